//! The loop of a pool: wait, take what is ready, let time pass, do what follows.

use std::time::{Duration, Instant};

use pollux_engine::Signal;
use pollux_poller::Token;
use pollux_sys::mqueue::MessageQueue;

use super::figures::Endpoint;
use super::poller::{EVENTS_MAX, Source};
use super::previous::{self, EarlierClients};
use super::process::Process;
use super::{Pool, PoolError};
use crate::queue::QueueName;
use crate::supervisor::Action;

/// How long the end waits for callers to take the answers that were not sent yet.
const SHUTDOWN: Duration = Duration::from_secs(1);
/// Full waits in one turn: enough for every worker, link and connection that there may be.
const ROUNDS_MAX: usize = 64;
/// Longest wait: a bound for whatever a computed moment has missed.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl Pool {
    /// Starts the workers and runs until the pool is ordered to end, by a signal (SIGTERM, SIGINT;
    /// a second one kills) or a command. SIGHUP reads the configuration again. Leaves no process
    /// and no queue, but the reply queues of clients that are still there: those are the clients'
    /// own, and of use again when the pool comes back.
    ///
    /// # Errors
    /// [`PoolError::Poller`] when the kernel refuses to wait; the workers continue without a manager.
    pub fn run(mut self) -> Result<(), PoolError> {
        self.begin();
        let mut ready: Vec<Token> = Vec::new();
        while !self.has_ended() {
            let now = Instant::now();
            let mut wait = self.next_moment(now).saturating_duration_since(now);
            // A manager that was held up reads all messages before it judges which worker is late.
            for _ in 0..ROUNDS_MAX {
                self.poller.wait(wait, &mut ready)?;
                self.dispatch_all(&ready, Instant::now());
                if ready.len() < EVENTS_MAX {
                    break;
                }
                wait = Duration::ZERO;
            }
            self.pass(Instant::now());
        }
        self.close();
        Ok(())
    }

    fn dispatch_all(&mut self, ready: &[Token], now: Instant) {
        for &token in ready {
            // What an earlier one of this turn has closed is not a source any more.
            if let Some(source) = self.poller.source(token) {
                self.dispatch(source, now);
            }
        }
    }

    /// Takes over what an earlier manager left, or starts from nothing.
    fn begin(&mut self) {
        let now = Instant::now();
        let found = previous::workers(&self.prefix);
        self.log.line(&format!(
            "begins as process {}: {}, {} workers of {} programs, prefix {}, requests {}",
            std::process::id(),
            self.config.file.display(),
            self.config.workers_max(),
            self.config.entries.len(),
            self.prefix,
            self.transport().in_words(),
        ));
        self.earlier_clients = EarlierClients::find(&self.prefix, &mut self.poller);
        self.take_over_memory();
        self.remove_stale_queues(found.is_empty());
        if self.earlier_clients.len() > 0 {
            let count = self.earlier_clients.len();
            self.log.line(&format!("{count} client processes of an earlier manager are watched"));
        }
        let mut ids = Vec::new();
        for (id, pid) in found {
            match Process::of_pid(id, pid, &mut self.poller) {
                Ok(process) => {
                    self.workers.insert(id, process);
                    ids.push(id);
                }
                Err(error) => self.log.line(&format!("process {pid} can't be watched: {error}")),
            }
        }
        if !ids.is_empty() {
            self.awaits_adoption = true;
            self.log.line(&format!("{} workers of an earlier manager are awaited", ids.len()));
        }
        let mut actions = Vec::new();
        self.supervisor.begin(&ids, now, &mut actions);
        self.act(actions, now);
    }

    /// Continues in the memory of an earlier manager: finishes what the dead left there, and has workers
    /// look at their links.
    fn take_over_memory(&mut self) {
        let Some(memory) = self.memory.clone() else { return };
        match memory.lead() {
            Ok(lead) => self.lead = Some(lead),
            Err(error) => self.log.line(&format!("idle workers would notice an end late: {error}")),
        }
        for (number, pid) in memory.numbers() {
            if !pollux_host::is_running(pid) {
                let (answers, _) = memory.answer_callers_of_dead(number);
                self.count_answers(answers);
            }
        }
        for pid in self.earlier_clients.find_in_memory(&memory, &mut self.poller) {
            let _ = memory.end_client(pid, None);
        }
        memory.ring_all();
        self.is_suspicious = true;
    }

    /// Removes what no thread uses: reply queues of processes that are gone and, if no worker of an
    /// earlier manager is left that has not reported, the queues of services that no worker offers.
    fn remove_stale_queues(&mut self, services: bool) {
        let mut removed = 0;
        for queue in previous::queues(&self.prefix) {
            let is_removed = match queue {
                QueueName::Service(name) => {
                    let is_stale = services && !self.services.by_name.contains_key(&name);
                    is_stale && self.services.discard(&name).is_ok()
                }
                QueueName::Reply { pid, context } => {
                    let is_stale = !pollux_host::is_running(pid);
                    let name = self.prefix.reply_queue(pid, context);
                    is_stale && MessageQueue::unlink(&name).is_ok()
                }
            };
            removed += usize::from(is_removed);
        }
        let rings = self.memory.as_ref().map(|memory| memory.services()).unwrap_or_default();
        for (_, name) in rings.into_iter().filter(|_| services) {
            if !self.services.by_name.contains_key(&name) && self.services.discard(&name).is_ok() {
                removed += 1;
            }
        }
        if removed > 0 {
            self.log.line(&format!("{removed} queues of an earlier manager were removed"));
        }
    }

    fn dispatch(&mut self, source: Source, now: Instant) {
        match source {
            Source::Signals => self.take_signals(now),
            Source::Control => self.accept(now),
            Source::Link(id) => self.read_worker(id, now),
            Source::Process(id) => self.worker_died(id, now),
            Source::Connection(number) => self.read_visitor(number, now),
            Source::EarlierClient(pid) => {
                self.earlier_clients.ended(pid, &self.prefix, &mut self.poller);
                match &self.memory {
                    Some(memory) => self.is_suspicious |= memory.end_client(pid, None),
                    None => self.schedule_sweep(now),
                }
            }
            Source::Withdrawn(number) => {
                let mut callers = Vec::new();
                self.services.drain(number, &mut callers);
                self.answer_unserved(callers, now);
            }
        }
    }

    fn take_signals(&mut self, now: Instant) {
        while let Some(signal) = self.signals.take() {
            self.log.line(&format!("{} came", signal.name()));
            match signal {
                Signal::HangUp => match self.reload(now) {
                    Ok(said) => self.log.line(&said),
                    Err(why) => self.log.line(&format!("not reloaded: {why}")),
                },
                _ => self.end(self.supervisor.is_ending(), now),
            }
        }
    }

    /// What is due, and what follows from this turn's events.
    fn pass(&mut self, now: Instant) {
        let cycles = self.supervisor.cycles();
        let was_learning = self.supervisor.is_learning();
        let mut actions: Vec<Action> = Vec::new();
        self.supervisor.pass(now, &mut actions);
        self.act(actions, now);
        self.has_changes |= was_learning != self.supervisor.is_learning();
        if self.supervisor.cycles() != cycles {
            self.has_changes = true;
            if self.config.settings.gathers_queue_depths {
                self.services.note_depths();
            }
            self.look_into_memory();
            self.start_anew_what_must(now);
            self.wake_all();
        }
        self.nudge_when_due(now);
        self.look_at_rings_when_due(now);
        self.sweep_when_due(now);
        let has_changed = std::mem::take(&mut self.has_changes);
        if has_changed {
            if !self.supervisor.is_learning() {
                self.services.take_in_left();
            }
            let expected = &self.supervisor;
            self.services.retire(|id| expected.is_expected(id), &mut self.poller, now);
        }
        if self.awaits_adoption
            && !self.supervisor.is_learning()
            && self.workers.values().all(|process| process.slot_handle().is_some())
        {
            self.awaits_adoption = false;
            self.remove_stale_queues(true);
        }
        let mut callers = std::mem::take(&mut self.services.stranded);
        self.services.close_withdrawn(&mut self.poller, now, false, &mut callers);
        self.answer_unserved(callers, now);
        let answers = std::mem::take(&mut self.services.answers);
        self.count_answers(answers);
        self.unsent.pass(now);
        self.drop_silent(now);
        self.accept_again(now);
        if has_changed {
            self.settle_orders(now);
            self.report_readiness(now);
        }
        self.report_life_when_due(now);
        self.publish(now);
    }

    fn next_moment(&self, now: Instant) -> Instant {
        let optional = [
            self.services.next_moment(),
            self.unsent.next_moment(),
            self.nudging.map(|(next, _)| next),
            self.next_ring_look,
            self.connections.accepts_at,
            self.connections.sweeps_at,
            self.connections.silence_ends(),
            self.endpoint.as_ref().map(Endpoint::next_moment),
            self.readiness.next_life(),
        ];
        let soonest = optional.into_iter().flatten().min();
        let known = self.supervisor.next_moment().min(now + WAIT_MAX);
        soonest.map_or(known, |soonest| soonest.min(known))
    }

    fn has_ended(&self) -> bool {
        self.supervisor.is_ending() && self.supervisor.is_empty() && self.workers.is_empty()
    }

    /// Everything is stopped: the last callers are answered, and commands that wait for the end see it.
    fn close(&mut self) {
        let now = Instant::now();
        let mut callers = Vec::new();
        self.services.take_in_left();
        self.services.retire(|_| false, &mut self.poller, now);
        self.services.close_withdrawn(&mut self.poller, now, true, &mut callers);
        self.answer_unserved(callers, now);
        self.settle_orders(now);
        if let Some(endpoint) = self.endpoint.take() {
            endpoint.end();
        }
        self.unsent.finish(SHUTDOWN);
        self.log.line("ends");
    }
}
