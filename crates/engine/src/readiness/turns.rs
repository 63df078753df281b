//! A turn of the readiness loop: one wait, what became ready, and the rest.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::receiving::NOTHING;
use super::{Connection, ReadinessLoop, SOURCES, socket};
use crate::actions::Sharing;
use crate::admission::Queue;
use crate::conversation::Occasion;
use crate::ending::{Due, Tail};
use crate::fd_table::ENDS;
use crate::output::Flushed;
use crate::session::refused;
use crate::{ConnectionId, Counter, Errand, Moment, Session};
use pollux_poller::{Error, Event, Token};

impl<S: Session> ReadinessLoop<S> {
    /// One turn: waits at most `timeout` for something to do, and does it. Says whether a
    /// waker ended the wait.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        self.run_errands();
        self.apply_updates();
        let began = self.clock.begin_wait(&self.counters);
        let timeout = self.patience(timeout, began);
        self.wait(timeout, began)?;
        self.counters.count(Counter::Turns);
        let now = self.clock.begin_turn(&self.counters);
        S::begin_turn(&mut self.shared, now);
        let unfinished = std::mem::take(&mut self.unfinished);
        let has_connections = self.serve_events();
        self.proceed(unfinished);
        self.fire_deadlines();
        self.run_errands();
        self.wake_sessions();
        self.accept(has_connections);
        S::end_turn(&mut self.shared);
        Ok(self.events.is_woken())
    }

    /// How long this turn may sleep from `began` on, when the caller allows `at_most`.
    fn patience(&mut self, at_most: Option<Duration>, began: Moment) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.wakes.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadline = self.timers.next_deadline().unwrap_or(Moment::NEVER);
        let alarm = deadline.min(self.admission.resumes_at()).min(S::errand_at(&self.shared));
        let timeout = self.alarm.end_wait_at(alarm, began);
        timeout.into_iter().chain(at_most).min()
    }

    fn wait(&mut self, timeout: Option<Duration>, began: Moment) -> Result<(), Error> {
        if !self.limits.busy_poll {
            return self.poller.wait(&mut self.events, timeout);
        }
        let end = timeout.map_or(Moment::NEVER, |timeout| began + timeout);
        loop {
            self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
            let is_idle = self.events.is_empty() && !self.events.is_woken();
            if !is_idle || self.events.is_interrupted() || self.clock.spin() >= end {
                return Ok(());
            }
            self.counters.count(Counter::BusySpins);
        }
    }

    /// Serves what became ready; says whether a client waits at a listener.
    fn serve_events(&mut self) -> bool {
        let mut has_connections = false;
        for index in 0..self.events.len() {
            let Event { token, readiness } = self.events.as_slice()[index];
            if token.slot() >= SOURCES {
                self.ready_beside_connections(token);
                continue;
            }
            let Some(due) = self.table.reported(token, readiness) else { continue };
            if self.listeners.contains(&token) {
                has_connections |= due.read;
                continue;
            }
            if due == crate::Due::NOTHING || !self.owns_for_event(token, readiness) {
                continue;
            }
            if due.write || due.closed {
                self.flush(token);
            }
            if due.closed || due.read && readiness.intersects(ENDS) {
                self.receive(token, true);
            } else if due.read {
                self.receive_with_others(token);
            }
        }
        self.call_those_received();
        has_connections
    }

    /// Sends what waits; when all of it has left, the session continues.
    fn flush(&mut self, token: Token) {
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let Tail::Waiting(output) = &mut connection.tail else { return };
        if output.is_connecting() {
            return self.connected(token);
        }
        let (socket, now) = (socket(&self.table, token), self.clock.now().at);
        match output.flush(socket, &self.counters, &mut connection.flow, now, &self.limits) {
            Ok(Flushed::All) => {
                connection.tail = Tail::None;
                connection.conversation.output_left();
                self.table.stop_write(token);
                self.play(token, None, NOTHING);
            }
            Ok(Flushed::Full) => {
                self.table.cannot_write(token);
                self.table.want_write(token);
            }
            Ok(Flushed::Budget) => self.unfinished.push(ConnectionId(token)),
            Err(cause) => self.close(token, cause),
        }
    }

    /// Connections that had not finished in the last turn.
    fn proceed(&mut self, mut ids: Vec<ConnectionId>) {
        for id in ids.drain(..) {
            let token = id.0;
            if !self.table.is_current(token) || !self.regains(token) {
                continue;
            }
            match &self.connections[token.slot() as usize] {
                Some(Connection { tail: Tail::Waiting(_), .. }) => self.flush(token),
                Some(Connection { tail: Tail::None, .. }) => {
                    self.play(token, None, NOTHING);
                    self.receive_if_ready(token);
                }
                Some(Connection { tail: Tail::Lingering(_), .. }) => self.receive_if_ready(token),
                None => {}
            }
        }
        if self.unfinished.is_empty() {
            self.unfinished = ids;
        }
    }

    fn receive_if_ready(&mut self, token: Token) {
        if self.connections[token.slot() as usize].is_some() && self.table.left_to_loop(token).read
        {
            // What ended it may lie behind the data: read to the very end.
            self.receive(token, true);
        }
    }

    fn fire_deadlines(&mut self) {
        let mut fired = std::mem::take(&mut self.fired);
        self.timers.expire(self.clock.now().at, &mut fired);
        for slot in fired.drain(..) {
            self.counters.count(Counter::DeadlinesFired);
            let Some(connection) = &self.connections[slot as usize] else { continue };
            let token = connection.token;
            if self.regains(token) {
                self.fire(token);
            }
        }
        self.fired = fired;
    }

    fn fire(&mut self, token: Token) {
        let now = self.clock.now().at;
        let Some(connection) = &mut self.connections[token.slot() as usize] else { return };
        let Connection { conversation, tail, flow, .. } = connection;
        let socket = socket(&self.table, token);
        let deadline = conversation.deadline();
        match tail.due(flow, socket, deadline, now, &self.limits, &self.counters) {
            Due::Close(cause) => self.close(token, cause),
            Due::Later(deadline) => {
                self.timers.set(token.slot(), deadline);
            }
            Due::Flush => {
                self.timers.set(token.slot(), tail.deadline(flow, deadline));
                self.flush(token);
            }
            Due::Session => {
                connection.conversation.deadline_fired();
                self.play(token, Some(Occasion::Deadline), NOTHING);
            }
        }
    }

    /// Does what the sessions left to be done.
    fn run_errands(&mut self) {
        while let Some(errand) = S::errand(&mut self.shared) {
            match errand {
                Errand::Wake(id) => self.wakes.push(id),
                Errand::Connect { to, session, deadline } => {
                    if let Err((session, error)) = self.connect(&to, session, deadline) {
                        refused(&mut self.shared, session, error);
                    }
                }
                Errand::TakeOver { socket, owner, session, deadline } => {
                    self.take_over(Sharing { socket, owner }, session, deadline);
                }
                Errand::TakeBack(id) => self.take_back(id.0),
            }
        }
    }

    /// Calls the sessions that others woke; those that are woken now come in the next turn.
    fn wake_sessions(&mut self) {
        if self.wakes.is_empty() {
            return;
        }
        let mut woken = std::mem::take(&mut self.wakes);
        for id in woken.drain(..) {
            if self.table.is_current(id.0) && self.owns(id.0) {
                self.counters.count(Counter::SessionWakes);
                self.play(id.0, Some(Occasion::Wake), NOTHING);
            }
        }
        if self.wakes.is_empty() {
            self.wakes = woken;
        }
    }

    fn accept(&mut self, has_connections: bool) {
        let now = self.clock.now();
        if self.admission.is_paused() {
            if !self.admission.may_resume(self.open_for_accepts(), now.at, &self.limits) {
                return;
            }
            for token in &self.listeners {
                self.table.want_read(*token);
            }
            return;
        }
        if !has_connections {
            return;
        }
        for index in 0..self.listeners.len() {
            let token = self.listeners[index];
            let open = self.open_for_accepts();
            let (socket, limits) = (socket(&self.table, token), &self.limits);
            let share = limits.accepts_per_turn;
            let queue = self.admission.accept(socket, open, share, now.at, limits, &self.counters);
            if queue == Queue::Empty {
                self.table.cannot_read(token);
            }
            self.welcome_arrivals();
            if queue == Queue::Paused {
                self.listeners.iter().for_each(|token| self.table.stop_read(*token));
                return;
            }
        }
    }

    /// Takes a last share of the clients that wait at a listener that is given up.
    pub(super) fn accept_last(&mut self, listener: BorrowedFd<'_>) {
        let (open, now) = (self.open_for_accepts(), self.clock.now().at);
        let (share, limits) = (self.limits.accepts_per_turn, &self.limits);
        // Clients that are left wait in the socket's queue for the next process that accepts from it.
        let _ = self.admission.accept(listener, open, share, now, limits, &self.counters);
        self.welcome_arrivals();
    }

    fn welcome_arrivals(&mut self) {
        let mut arrivals = self.admission.arrivals();
        for socket in arrivals.drain(..) {
            self.welcome(socket);
        }
        self.admission.reuse(arrivals);
    }

    /// What counts against the limit: with others to hand out to, the count of the loop with the fewest.
    fn open_for_accepts(&self) -> u32 {
        let own = self.limits.accepted(self.open, self.outgoing);
        self.hand_out.as_ref().map_or(own, |others| others.open_least(own))
    }
}
