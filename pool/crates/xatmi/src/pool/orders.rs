//! What operators ask: orders, answered when the workers are as ordered or when that has failed, and lists.

use std::collections::BTreeMap;
use std::time::Instant;

use pollux_host::ServiceState;

use super::Pool;
use crate::config::{Entry, PoolConfig, Spinning};
use crate::control::{Answer, Progress, ROWS_MAX, Request};
use crate::supervisor::{MemberView, NoSuchWorker, Selection, State};

/// Causes that the answer gives for workers that are not up, and programs that it names of a reload.
const EXAMPLES_MAX: usize = 5;
/// Workers that it names for each cause.
const IDS_MAX: usize = 8;

/// An order that is not finished yet.
#[derive(Debug)]
pub(super) struct PoolCommand {
    /// The connection that waits for it.
    number: u64,
    goal: Goal,
    /// Processes started for each of its workers when the order came.
    starts: BTreeMap<u32, u32>,
    last: Option<Progress>,
}

/// What an order waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goal {
    /// Its workers are up, or have failed.
    Up,
    /// Its workers have another process, which is up or has failed.
    Anew,
    /// Its workers are gone.
    Down,
    /// The pool has ended.
    End,
}

/// How far a worker is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    Done,
    Failed,
    NotYet,
}

impl Pool {
    /// A command of connection `number`.
    pub(super) fn obey(&mut self, number: u64, command: Request, now: Instant) {
        match command {
            Request::Ps => self.send_rows(number, &self.worker_rows(now), Answer::Workers),
            Request::Services => self.send_rows(number, &self.service_rows(now), Answer::Services),
            Request::Queues => self.send_rows(number, &self.queue_rows(), Answer::Queues),
            Request::Clients => self.send_rows(number, &self.client_rows(now), Answer::Clients),
            Request::Info => {
                let info = Answer::Info(Box::new(self.info(now)));
                self.reply(number, &info);
                self.done(number, "");
            }
            Request::Settle => {
                let members = self.members(now);
                self.enter_order(number, Goal::Up, &Selection::All, &members);
            }
            Request::Start { what } => self.order(number, Goal::Up, &what, now),
            Request::Stop { what } => self.order(number, Goal::Down, &what, now),
            Request::Restart { what, is_for_running: true } if self.is_stopped(&what, now) => {
                self.done(number, "it was stopped, and stays so");
            }
            Request::Restart { what, .. } => self.order(number, Goal::Anew, &what, now),
            Request::Log { what, level, is_opened_again } => {
                match self.change_logs(&what, level, is_opened_again) {
                    Ok(said) => self.done(number, &said),
                    Err(why) => self.reply(number, &Answer::Refused { why }),
                }
            }
            Request::Reload => match self.reload(now) {
                Ok(said) => {
                    self.log.line(&said);
                    self.done(number, &said);
                }
                Err(why) => self.reply(number, &Answer::Refused { why }),
            },
            Request::End { now: is_now } => {
                self.log.line("is ordered to end");
                let members = self.members(now);
                self.enter_order(number, Goal::End, &Selection::All, &members);
                self.end(is_now, now);
            }
            // Taken by the caller.
            Request::Client(_)
            | Request::Adopt { .. }
            | Request::Mailbox(_)
            | Request::Subscribe { .. }
            | Request::Unsubscribe { .. }
            | Request::Post { .. }
            | Request::Mailboxes => {}
        }
    }

    /// Opens the log and reads the configuration again; what changed, for people.
    pub(super) fn reload(&mut self, now: Instant) -> Result<String, String> {
        // READY is said when the start is over, by itself, and nothing behind STOPPING.
        if self.supervisor.is_ending() || !self.readiness.is_reported() {
            return self.read_again(now);
        }
        self.service_manager.notify(ServiceState::Reloading);
        let said = self.read_again(now);
        self.service_manager.notify(ServiceState::Ready);
        said
    }

    fn read_again(&mut self, now: Instant) -> Result<String, String> {
        // Whatever the configuration is: this is how logs are rotated.
        let logs = match self.change_logs(&Selection::All, None, true) {
            Ok(_) => String::new(),
            Err(why) => {
                self.log.line(&why);
                format!("; logs: {why}")
            }
        };
        if self.supervisor.is_ending() {
            return Err("the pool is ending".to_owned());
        }
        let config = PoolConfig::from_file(&self.options.config).map_err(|e| e.to_string())?;
        let mut actions = Vec::new();
        self.supervisor.reload(&config, now, &mut actions);
        for warning in &config.warnings {
            self.log.line(&format!("warning: {warning}"));
        }
        let file = config.file.display();
        let workers = config.workers_max();
        let warnings = match config.warnings.len() {
            0 => String::new(),
            count => format!("; {count} warnings: `pollux pool check` shows them"),
        };
        let changed = changed_options(&self.config, &config);
        let said = format!("{file} was read again: {workers} workers{changed}{warnings}{logs}");
        if let Some(memory) = &self.memory {
            memory.set_always_spins(config.settings.spin == Spinning::Always);
        }
        self.config = config;
        self.has_changes = true;
        self.act(actions, now);
        Ok(said)
    }

    /// Tells the commands that wait how far their orders are, and takes off what is finished.
    pub(super) fn settle_orders(&mut self, now: Instant) {
        if self.orders.is_empty() {
            return;
        }
        let members = self.members(now);
        let mut orders = std::mem::take(&mut self.orders);
        orders.retain_mut(|order| {
            let progress = order.progress(&members);
            if order.last != Some(progress) {
                order.last = Some(progress);
                self.reply(order.number, &Answer::Progress(progress));
            }
            let has_ended = order.goal == Goal::End && self.supervisor.is_empty();
            let is_settled =
                progress.done + progress.failed == progress.of && !self.supervisor.is_learning();
            let is_over = if order.goal == Goal::End { has_ended } else { is_settled };
            if is_over {
                let answer = order.outcome(progress, &members);
                self.reply(order.number, &answer);
            }
            !is_over && self.connections.by_number.contains_key(&order.number)
        });
        // A reply may have ended a connection, never begun an order.
        self.orders = orders;
    }

    /// Tells all workers to stop, or kills them.
    pub(super) fn end(&mut self, is_now: bool, now: Instant) {
        self.service_manager.notify(ServiceState::Stopping);
        self.has_changes = true;
        // Processes of an earlier manager whose ids are of no configuration any more.
        for (id, process) in &self.workers {
            if !self.supervisor.knows(*id) {
                let _ = process.signal(9);
            }
        }
        let mut actions = Vec::new();
        if is_now {
            self.supervisor.end_now(now, &mut actions);
        } else {
            self.supervisor.end(now, &mut actions);
        }
        self.act(actions, now);
    }

    /// Whether one worker is meant, which was stopped.
    fn is_stopped(&mut self, what: &Selection, now: Instant) -> bool {
        let Selection::Id(id) = what else { return false };
        member(&self.members(now), *id).is_some_and(|member| member.state == State::Down)
    }

    fn order(&mut self, number: u64, goal: Goal, what: &Selection, now: Instant) {
        let mut actions = Vec::new();
        // A stop and a restart are measured by what was before them.
        let before = self.members(now);
        let given = match goal {
            Goal::Up => self.supervisor.start(what, now, &mut actions),
            Goal::Anew => self.supervisor.restart(what, now, &mut actions),
            Goal::Down | Goal::End => self.supervisor.stop(what, now, &mut actions),
        };
        match given {
            Ok(count) => {
                self.log.line(&format!("an order for {count} workers: {goal:?} {what:?}"));
                let members = if goal == Goal::Up { self.members(now) } else { before };
                self.enter_order(number, goal, what, &members);
            }
            Err(error @ NoSuchWorker { .. }) => {
                self.reply(number, &Answer::Refused { why: error.to_string() });
            }
        }
        self.act(actions, now);
    }

    fn enter_order(&mut self, number: u64, goal: Goal, what: &Selection, members: &[MemberView]) {
        // What is down is waited for only where it was meant by its id.
        let is_meant = |member: &&MemberView| match what {
            Selection::All => member.state != State::Down,
            Selection::Program(name) => *name == member.program && member.state != State::Down,
            Selection::Id(id) => *id == member.id,
        };
        let meant = members.iter().filter(is_meant);
        let starts = meant.map(|member| (member.id, member.starts)).collect();
        // A connection waits for one order, its last.
        self.orders.retain(|order| order.number != number);
        self.orders.push(PoolCommand { number, goal, starts, last: None });
        self.has_changes = true;
    }

    pub(super) fn done(&mut self, number: u64, message: &str) {
        self.reply(number, &Answer::Done { message: message.to_owned() });
    }

    fn send_rows<R: Clone>(&mut self, number: u64, rows: &[R], answer: impl Fn(Vec<R>) -> Answer) {
        for some in rows.chunks(ROWS_MAX) {
            self.reply(number, &answer(some.to_vec()));
        }
        self.done(number, "");
    }
}

impl PoolCommand {
    fn progress(&self, members: &[MemberView]) -> Progress {
        let mut progress = Progress { of: self.starts.len(), ..Progress::default() };
        for (id, starts) in &self.starts {
            match self.reached(member(members, *id), *starts) {
                Reached::Done => progress.done += 1,
                Reached::Failed => progress.failed += 1,
                Reached::NotYet => {}
            }
        }
        progress
    }

    fn reached(&self, member: Option<&MemberView>, starts_before: u32) -> Reached {
        use State::{Down, Killing, Orphan, Queued, Silent, Starting, Stopping, Up, Waiting};
        let is_for_end = matches!(self.goal, Goal::Down | Goal::End);
        let Some(member) = member else {
            return if is_for_end { Reached::Done } else { Reached::Failed };
        };
        // Others give orders too: what they undo is not waited for.
        match (self.goal, member.state) {
            (Goal::Down | Goal::End, Down) => Reached::Done,
            (Goal::Down, Stopping | Killing) if !member.starts_again => Reached::NotYet,
            (Goal::Down, _) => Reached::Failed,
            (Goal::End, _) => Reached::NotYet,
            (_, Stopping | Killing) if member.starts_again => Reached::NotYet,
            (_, Queued | Starting | Orphan) => Reached::NotYet,
            (Goal::Anew, Up | Silent) if member.starts == starts_before => Reached::NotYet,
            (_, Up | Silent) => Reached::Done,
            (_, Waiting | Down | Killing | Stopping) => Reached::Failed,
        }
    }

    fn outcome(&self, progress: Progress, members: &[MemberView]) -> Answer {
        let Progress { done, of, failed } = progress;
        let what = match self.goal {
            Goal::Up => "up",
            Goal::Anew => "up again",
            Goal::Down | Goal::End => "stopped",
        };
        if failed == 0 {
            return Answer::Done { message: format!("{done} of {of} workers {what}") };
        }
        let examples = match self.goal {
            Goal::Down | Goal::End => "; another order starts them again".to_owned(),
            Goal::Up | Goal::Anew => self.examples(members),
        };
        Answer::Refused { why: format!("{failed} of {of} workers are not {what}{examples}") }
    }

    /// Why workers are not up: the first few causes, with the workers that have each.
    fn examples(&self, members: &[MemberView]) -> String {
        let failures = self.starts.keys().filter_map(|id| member(members, *id));
        let mut examples: Vec<(&str, &str, Vec<u32>)> = Vec::new();
        for failure in failures.filter(|member| member.state != State::Up) {
            let Some(cause) = &failure.cause else { continue };
            let program = failure.program.as_str();
            let cause = cause.as_str();
            let known = examples.iter_mut().find(|known| (known.0, known.1) == (program, cause));
            match known {
                Some((_, _, ids)) => ids.push(failure.id),
                None => examples.push((program, cause, vec![failure.id])),
            }
        }
        let more = match examples.len().saturating_sub(EXAMPLES_MAX) {
            0 => "",
            _ => "; `pollux pool ps` has the others",
        };
        examples.truncate(EXAMPLES_MAX);
        let words = |(program, cause, ids): (&str, &str, Vec<u32>)| {
            format!("; {program} {}: {cause}", listed(&ids))
        };
        examples.into_iter().map(words).collect::<String>() + more
    }
}

/// The first few ids, and how many more there are.
fn listed(ids: &[u32]) -> String {
    let first: Vec<String> = ids.iter().take(IDS_MAX).map(u32::to_string).collect();
    match ids.len().saturating_sub(IDS_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// What a reload changed of programs that run and that holds from their next start on, for people.
fn changed_options(old: &PoolConfig, new: &PoolConfig) -> String {
    let changed: Vec<String> = old
        .entries
        .iter()
        .filter(|old| {
            let same = |new: &&Entry| (&new.program, new.first_id) == (&old.program, old.first_id);
            new.entries.iter().find(same).is_some_and(|new| !old.starts_as(new))
        })
        .map(|entry| format!("{} {}", entry.program, entry.first_id))
        .collect();
    let more = match changed.len().saturating_sub(EXAMPLES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if changed.is_empty() {
        return String::new();
    }
    let first = changed[..changed.len().min(EXAMPLES_MAX)].join(", ");
    format!(
        "; options of {first}{more} changed, which count from the next start: `pollux pool restart`"
    )
}

/// The member with this id among `members`, which are in order.
pub(super) fn member(members: &[MemberView], id: u32) -> Option<&MemberView> {
    let at = members.binary_search_by_key(&id, |member| member.id).ok()?;
    members.get(at)
}
