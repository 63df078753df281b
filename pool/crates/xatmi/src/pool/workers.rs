//! Workers: what the supervisor asks for, what they say, and what their death leaves behind.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::Pool;
use super::anew::stamp_of;
use super::process::{Process, SlotHandle, Start, spawn};
use super::services::caller_of;
use super::unsent::CallerAddress;
use crate::error::Code;
use crate::link::{Advert, PeerLink, Received, ToManager, ToWorker};
use crate::memory::{Answers, workers};
use crate::queue::ServiceName;
use crate::slots::{Caller, State as WorkerState};
use crate::supervisor::{Action, Event};
use crate::wire::Request;

/// Messages of one worker in one turn: a start has three.
const MESSAGES_BUDGET: usize = 64;
/// How long after a death queues are looked at for messages whose wake died too.
const NUDGE_FOR: Duration = Duration::from_secs(1);
/// How often within that time.
const NUDGE_EACH: Duration = Duration::from_millis(20);
/// How often rings are looked at for requests that stand still.
const RING_LOOK_EACH: Duration = Duration::from_secs(1);
/// Longest reason that is kept, in characters.
const CAUSE_CHARS_MAX: usize = 200;

/// What a worker of an earlier manager says of itself.
pub(super) struct Report {
    pub(super) id: u32,
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) services: Vec<Advert>,
    /// Its number in the memory that requests are in, where they are.
    pub(super) number: Option<usize>,
}

impl Pool {
    /// Does what the supervisor asks for, and what follows from it.
    pub(super) fn act(&mut self, actions: Vec<Action>, now: Instant) {
        let mut actions = std::collections::VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let failed = match action {
                Action::Spawn { id } => self.spawn(id).err().map(|how| Event::Died { id, how }),
                Action::Ping { id, number } => {
                    self.send_to(id, &ToWorker::Ping { number });
                    None
                }
                Action::Stop { id } => {
                    self.send_to(id, &ToWorker::Stop);
                    None
                }
                Action::Signal { id, signal } => {
                    self.signal(id, signal);
                    None
                }
            };
            if let Some(Event::Died { id, how }) = failed {
                self.counts.start_failures += 1;
                self.has_changes = true;
                self.log.line(&format!("{}: {how}", self.called(id)));
                let mut more = Vec::new();
                self.supervisor.event(Event::Died { id, how: short(&how) }, now, &mut more);
                actions.extend(more);
            }
        }
    }

    /// What the worker with this id says.
    pub(super) fn read_worker(&mut self, id: u32, now: Instant) {
        for _ in 0..MESSAGES_BUDGET {
            let Some(process) = self.workers.get_mut(&id) else { return };
            let Some((link, _)) = &mut process.link else { return };
            match link.receive::<ToManager>() {
                Ok(Received::Message(message, _)) => self.understand(id, message, now),
                Ok(Received::Nothing) => return,
                // Its process descriptor tells the rest.
                Ok(Received::Ended) => return process.disconnect(&mut self.poller),
                Err(error) => {
                    self.log.line(&format!("{}: a message on its link: {error}", self.called(id)));
                    if error.kind() != std::io::ErrorKind::InvalidData {
                        let process = self.workers.get_mut(&id).expect("found above");
                        return process.disconnect(&mut self.poller);
                    }
                }
            }
        }
    }

    /// The process ended: its caller is answered, its last messages are read.
    pub(super) fn worker_died(&mut self, id: u32, now: Instant) {
        self.read_worker(id, now);
        let Some(process) = self.workers.remove(&id) else { return };
        match (&self.memory, process.number) {
            (Some(memory), Some(number)) => {
                let (answers, is_unclear) = memory.answer_callers_of_dead(number);
                self.is_suspicious |= is_unclear;
                self.count_answers(answers);
                if answers != Answers::default() {
                    self.counts.died_busy += 1;
                    self.log.line(&format!("{} died in a call", self.called(id)));
                }
            }
            _ => self.answer_caller_of_dead_worker(id, &process, now),
        }
        for Caller { pid, context, call_id, nonce } in process.unsent_replies() {
            let caller = CallerAddress { pid, context, nonce, call_id };
            let patience = self.sizes.timeout;
            self.unsent.answer(&self.prefix, caller, Code::ServiceError, now, patience);
        }
        if let Some(slot_handle) = process.slot_handle().cloned() {
            self.release(&slot_handle);
        }
        let pid = process.pid;
        let how = process.reap(&mut self.poller);
        self.counts.deaths += 1;
        self.has_changes = true;
        if !self.supervisor.is_ending() {
            self.log.line(&format!("{} (process {pid}) {how}", self.called(id)));
        }
        let mut actions = Vec::new();
        self.supervisor.event(Event::Died { id, how }, now, &mut actions);
        self.act(actions, now);
        self.nudging = Some((now, now + NUDGE_FOR));
    }

    /// A worker of an earlier manager reports on a connection, which becomes its link.
    pub(super) fn adopt(
        &mut self,
        report: Report,
        link: PeerLink,
        slot_handle: SlotHandle,
        now: Instant,
    ) {
        let Report { id, pid, program, services, number } = report;
        let stands = |advert: &Advert| {
            ServiceName::new(&advert.name).is_some_and(|name| {
                if let Some(memory) = &self.memory {
                    return memory.find(&name).is_some();
                }
                let queue = self.prefix.service_queue(&name);
                pollux_sys::mqueue::MessageQueue::open(&queue).is_ok()
            })
        };
        self.has_changes = true;
        let known = self.workers.get(&id);
        let other = known.is_some_and(|known| known.pid != pid);
        let has_lost_link = known.is_some_and(|known| known.pid == pid && known.link.is_none());
        let mut actions = Vec::new();
        let is_wanted = !other
            && services.iter().all(stands)
            && (has_lost_link && self.supervisor.reconnect(id)
                || self.supervisor.adopt(id, &program, now, &mut actions));
        if !is_wanted {
            self.services.leave(&services);
            self.reject(id, pid, &link, "it is not wanted", now);
        } else if let Err(error) = self.take_over(id, pid, link, slot_handle, &services, number) {
            let how = format!("can't be watched: {error}");
            self.log.line(&format!("{} (process {pid}) {how}", self.called(id)));
            self.supervisor.event(Event::Died { id, how }, now, &mut actions);
        } else {
            self.counts.adoptions += 1;
            self.log.line(&format!("{} (process {pid}) was taken over", self.called(id)));
        }
        self.act(actions, now);
    }

    /// Has a worker of an earlier manager end; if it is the one that was awaited, another one is
    /// started in its place.
    pub(super) fn reject(&mut self, id: u32, pid: u32, link: &PeerLink, why: &str, now: Instant) {
        let called = self.called(id);
        let line = format!("{called} (process {pid}) is not taken over: {why}; it is asked to end");
        self.log.line(&line);
        // One that does not read will look for a manager again.
        let _ = link.send(&ToWorker::Stop);
        if let Some(memory) = &self.memory {
            memory.ring_all();
        }
        if self.workers.get(&id).is_some_and(|known| known.pid == pid) {
            let mut actions = Vec::new();
            self.supervisor.replace(id, now, &mut actions);
            self.has_changes = true;
            self.act(actions, now);
        }
    }

    fn take_over(
        &mut self,
        id: u32,
        pid: u32,
        link: PeerLink,
        slot_handle: SlotHandle,
        services: &[Advert],
        number: Option<usize>,
    ) -> Result<(), std::io::Error> {
        if !self.workers.contains_key(&id) {
            let process = Process::of_pid(id, pid, &mut self.poller)?;
            self.workers.insert(id, process);
        }
        if let Some(memory) = &self.memory {
            let [records, ..] = memory.files();
            link.send_with(&ToWorker::Adopted, &[records])?;
        }
        let process = self.workers.get_mut(&id).expect("it was just put in");
        process.connect(id, link, &mut self.poller)?;
        process.take_slot(slot_handle);
        process.number = number;
        process.adverts = services.to_vec();
        if let Some((memory, number)) = self.memory.as_ref().zip(number) {
            memory.exchange().set_wake_flag(number, workers::LINK);
        }
        // The queues stand, so nothing can be refused but a 49th service.
        let _ = self.services.advertise(id, services, true);
        self.set_offers(number, services, true);
        Ok(())
    }

    /// What a worker is called in the log.
    pub(super) fn called(&self, id: u32) -> String {
        let entry = self.config.entries.iter().find(|entry| entry.ids().contains(&id));
        format!("{} {id}", entry.map_or("worker", |entry| entry.program.as_str()))
    }

    fn understand(&mut self, id: u32, message: ToManager, now: Instant) {
        self.has_changes = true;
        let mut actions = Vec::new();
        match message {
            ToManager::Hello { .. } | ToManager::Bye | ToManager::Adopt { .. } => {}
            ToManager::Advertise { services } => self.advertise(id, services),
            ToManager::Unadvertise { name } => {
                self.services.unadvertise(id, &name);
                if let Some(process) = self.workers.get_mut(&id) {
                    let of_it = |advert: &mut Advert| advert.name == name;
                    let gone: Vec<Advert> = process.adverts.extract_if(.., of_it).collect();
                    let number = process.number;
                    self.set_offers(number, &gone, false);
                }
            }
            ToManager::Ready => {
                if let Some(process) = self.workers.get(&id) {
                    self.services.keep(id, &process.adverts);
                }
                self.supervisor.event(Event::Ready { id }, now, &mut actions);
            }
            ToManager::Refused { why } => {
                self.log.line(&format!("{} does not start: {why}", self.called(id)));
                let why = short(&why);
                self.supervisor.event(Event::Refused { id, why }, now, &mut actions);
            }
            ToManager::Trouble { why } => {
                if let Some(process) = self.workers.get_mut(&id) {
                    process.trouble = why.as_deref().map(short);
                }
            }
            ToManager::Pong { number } => {
                self.supervisor.event(Event::Pong { id, number }, now, &mut actions);
            }
        }
        self.act(actions, now);
    }

    fn advertise(&mut self, id: u32, services: Vec<Advert>) {
        let answer = match self.services.advertise(id, &services, self.awaits_adoption) {
            Ok(()) => {
                let number = self.workers.get(&id).and_then(|process| process.number);
                self.set_offers(number, &services, true);
                if let Some(process) = self.workers.get_mut(&id) {
                    let names = |advert: &Advert| services.iter().any(|s| s.name == advert.name);
                    process.adverts.retain(|advert| !names(advert));
                    process.adverts.extend(services);
                }
                ToWorker::Advertised
            }
            Err((code, why)) => {
                self.log.line(&format!("{}: {why}", self.called(id)));
                ToWorker::NotAdvertised { code: code.number(), why }
            }
        };
        self.send_to(id, &answer);
    }

    fn spawn(&mut self, id: u32) -> Result<(), String> {
        let find = |entry: &&crate::config::Entry| entry.ids().contains(&id);
        let entry = self.config.entries.iter().find(find).cloned();
        let entry = entry.ok_or("the configuration has it no more")?;
        let (ours, theirs) = PeerLink::pair().map_err(|error| format!("socketpair: {error}"))?;
        let slot_handle =
            self.slot_handle().ok_or("no slot is free; restart the pool to have more")?;
        if let Some(slot) = slot_handle.slots.slot(slot_handle.index) {
            slot.start();
        }
        let memory = self.memory.clone();
        let number = memory.as_ref().and_then(|memory| memory.take_number());
        if memory.is_some() && number.is_none() {
            self.release(&slot_handle);
            let why = "no place is free in the memory; stop the pool and start it to have more";
            return Err(why.to_owned());
        }
        let start = Start {
            config: &self.config,
            entry: &entry,
            id,
            key: &self.key,
            prefix: self.prefix.as_str(),
            wake: self.options.wake,
            group: self.group.as_ref(),
            link: theirs.as_fd(),
            slots: self.slots.as_fd(),
            slot: slot_handle.index,
            memory: memory.as_ref().map(|memory| memory.files()).zip(number),
        };
        let program_stamp = if entry.policy.restarts_on_change { stamp_of(&entry) } else { None };
        let spawned = spawn(&start, &self.log).and_then(|child| {
            let poller = &mut self.poller;
            Process::of_child(id, child, PeerLink::new(ours), slot_handle.clone(), poller)
                .map_err(|error| format!("its process can't be watched: {error}"))
        });
        match spawned {
            Ok(mut process) => {
                self.counts.starts += 1;
                process.number = number;
                process.program_stamp = program_stamp;
                if let Some((memory, number)) = memory.zip(number) {
                    memory.name(number, process.pid);
                }
                self.workers.insert(id, process);
                Ok(())
            }
            Err(why) => {
                self.release(&slot_handle);
                if let Some((memory, number)) = memory.zip(number) {
                    // It took nothing.
                    memory.answer_callers_of_dead(number);
                }
                Err(why)
            }
        }
    }

    pub(super) fn send_to(&mut self, id: u32, message: &ToWorker) {
        self.send_with(id, message, &[]);
    }

    /// Sends a message with descriptors beside it.
    pub(super) fn send_with(
        &mut self,
        id: u32,
        message: &ToWorker,
        descriptors: &[BorrowedFd<'_>],
    ) {
        let Some(process) = self.workers.get(&id) else { return };
        let Some((link, _)) = &process.link else { return };
        // A worker that does not read is found by its pings; one that is gone, by its end.
        if link.send_with(message, descriptors).is_err() {
            self.counts.unsent += 1;
        }
        if let Some((memory, number)) = self.memory.as_ref().zip(process.number) {
            memory.exchange().set_wake_flag(number, workers::LINK);
        }
    }

    fn signal(&mut self, id: u32, signal: i32) {
        let Some(process) = self.workers.get(&id) else { return };
        let pid = process.pid;
        let sent = process.signal(signal);
        self.counts.signals += 1;
        let line = match sent {
            Ok(()) => format!("{} (process {pid}) is sent signal {signal}", self.called(id)),
            Err(error) => format!("signal {signal} to {}: {error}", self.called(id)),
        };
        self.log.line(&line);
    }

    /// The caller of a worker that died inside a service, or on the way into it, is answered at
    /// once.
    fn answer_caller_of_dead_worker(&mut self, id: u32, process: &Process, now: Instant) {
        let Some(slot) = process.slot() else { return };
        let occupation = slot.occupation();
        let caller = match occupation.state {
            WorkerState::Busy => {
                let caller = occupation.caller;
                let pid = caller.pid;
                let context = caller.context;
                let nonce = caller.nonce;
                let call_id = caller.call_id;
                occupation.wants_reply.then_some(CallerAddress { pid, context, nonce, call_id })
            }
            WorkerState::Idle => {
                let inbox = process.inbox().unwrap_or_default();
                // Empty, as nearly always, is not a request.
                let Ok(request) = Request::decode_first(&inbox) else { return };
                (!request.is_without_reply).then(|| caller_of(&request))
            }
            WorkerState::Free | WorkerState::Starting => return,
        };
        self.counts.died_busy += 1;
        if let Some(caller) = caller {
            let prefix = &self.prefix;
            let patience = self.sizes.timeout;
            self.unsent.answer(prefix, caller, Code::ServiceError, now, patience);
            let line = format!("{} died in a call of process {}", self.called(id), caller.pid);
            self.log.line(&line);
        }
    }

    /// Says in the memory of the pool that a worker offers services, or does not.
    fn set_offers(&self, number: Option<usize>, adverts: &[Advert], does: bool) {
        let Some((memory, number)) = self.memory.as_ref().zip(number) else { return };
        let names = adverts.iter().filter_map(|advert| ServiceName::new(&advert.name));
        for ring in names.filter_map(|name| self.services.ring(&name)) {
            memory.set_offer(ring, number, does);
        }
        if does {
            // What came while no worker offered it.
            memory.wake_for_queued();
        }
    }

    /// Counts callers that were answered for others.
    pub(super) fn count_answers(&mut self, answers: Answers) {
        self.unsent.sent += answers.sent;
        self.unsent.gone += answers.gone;
        if answers.rings_rebuilt > 0 {
            let rings = answers.rings_rebuilt;
            self.counts.rings_rebuilt += rings;
            self.log
                .line(&format!("{rings} rings of withdrawn services were broken and are rebuilt"));
            // A request whose place was overwritten is in no ring.
            self.is_suspicious = true;
        }
    }

    /// Looks into the memory of the pool for what should not be.
    pub(super) fn look_into_memory(&mut self) {
        let Some(memory) = self.memory.clone() else { return };
        let is_suspicious = std::mem::take(&mut self.is_suspicious);
        let look = memory.inspect(is_suspicious, &mut self.suspects);
        for name in &look.rebuilt {
            self.log.line(&format!("the ring of {name} was broken and is rebuilt"));
        }
        self.counts.rings_rebuilt += look.rebuilt.len() as u64;
        self.count_answers(look.answers);
    }

    /// Callers of a service that was withdrawn.
    pub(super) fn answer_unserved(&mut self, callers: Vec<CallerAddress>, now: Instant) {
        for caller in callers {
            let prefix = &self.prefix;
            let patience = self.sizes.timeout;
            self.unsent.answer(prefix, caller, Code::NoEntry, now, patience);
        }
    }

    /// Looks for messages that wait beside idle workers, for a while after a death.
    pub(super) fn nudge_when_due(&mut self, now: Instant) {
        let Some((next, until)) = self.nudging else { return };
        if now < next {
            return;
        }
        self.wake_all();
        let next = now + NUDGE_EACH;
        self.nudging = (next <= until).then_some((next, until));
    }

    /// Wakes workers for requests that stand still in their rings.
    pub(super) fn look_at_rings_when_due(&mut self, now: Instant) {
        if self.next_ring_look.is_some_and(|at| now >= at)
            && let Some(memory) = &self.memory
        {
            self.counts.nudges += memory.rouse_if_stuck(&mut self.ring_heads);
            self.next_ring_look = Some(now + RING_LOOK_EACH);
        }
    }

    /// Tells the workers that contexts ended, if some did and it is time.
    pub(super) fn sweep_when_due(&mut self, now: Instant) {
        if !self.take_sweep(now) {
            return;
        }
        self.counts.sweeps += 1;
        let ids: Vec<u32> = self.workers.keys().copied().collect();
        for id in ids {
            self.send_to(id, &ToWorker::Sweep);
        }
    }

    /// As many idle workers as there are messages are asked to look into their queues.
    pub(super) fn wake_all(&mut self) {
        if let Some(memory) = &self.memory {
            self.counts.nudges += memory.wake_for_queued();
            return;
        }
        let mut sent = 0;
        for (waiting, offers) in self.services.waiting() {
            let processes = offers.keys().filter_map(|id| self.workers.get(id));
            let is_idle = |process: &&Process| {
                process.slot().is_some_and(|slot| slot.occupation().state == WorkerState::Idle)
            };
            let idle: Vec<&Process> = processes.filter(is_idle).collect();
            // Others each time: one that says idle may stand still.
            let first = (self.counts.nudges + sent) as usize % idle.len().max(1);
            let count = idle.len().min(waiting as usize);
            for process in idle.iter().cycle().skip(first).take(count) {
                if let Some((link, _)) = &process.link {
                    sent += u64::from(link.send(&ToWorker::Nudge).is_ok());
                }
            }
        }
        self.counts.nudges += sent;
    }
}

fn short(why: &str) -> String {
    why.chars().take(CAUSE_CHARS_MAX).collect()
}
