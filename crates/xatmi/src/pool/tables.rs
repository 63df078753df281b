//! The tables: workers, services, queues, clients, the pool.

use std::time::Instant;

use super::Pool;
use super::process::Process;
use super::services::RequestStore;
use crate::control::{Answer, ClientRow, PoolInfo, QueueRow, ROWS_MAX, ServiceRow, WorkerRow};
use crate::slots::{ServiceTally, State as WorkerState, Total, Totals, name_hash};
use crate::supervisor::MemberView;

impl Pool {
    pub(super) fn list_workers(&mut self, number: u64, now: Instant) {
        let rows = self.worker_rows(now);
        self.send_rows(number, &rows, Answer::Workers);
    }

    pub(super) fn list_services(&mut self, number: u64, now: Instant) {
        let rows = self.service_rows(now);
        self.send_rows(number, &rows, Answer::Services);
    }

    pub(super) fn list_queues(&mut self, number: u64) {
        let rows = self.queue_rows();
        self.send_rows(number, &rows, Answer::Queues);
    }

    pub(super) fn list_clients(&mut self, number: u64, now: Instant) {
        let open = self.memory.as_ref().map(|memory| memory.open_requests());
        let clients = self.visitors.by_number.values().filter_map(|v| v.client.as_ref());
        let rows: Vec<ClientRow> = clients
            .map(|client| ClientRow {
                pid: client.pid,
                program: program_of(client.pid),
                context: client.context,
                queue: match &open {
                    None => Some(text(&self.prefix.reply_queue(client.pid, client.context))),
                    Some(_) => None,
                },
                requests: open.as_ref().map(|open| client.requests(open)),
                since_s: (now - client.since).as_secs(),
            })
            .collect();
        self.send_rows(number, &rows, Answer::Clients);
    }

    pub(super) fn info(&self, now: Instant) -> PoolInfo {
        PoolInfo {
            prefix: self.prefix.to_string(),
            pid: std::process::id(),
            config: self.config.file.display().to_string(),
            transport: self.transport().name().to_owned(),
            wake: self.options.wake.to_string(),
            since_s: (now - self.started).as_secs(),
            is_learning: self.supervisor.is_learning(),
            log: self.log.path().map(|path| path.display().to_string()),
            metrics: self.metrics_address(),
            counts: self.named_counts().map(|(name, _, n)| (name.to_owned(), n)).collect(),
        }
    }

    pub(super) fn worker_rows(&self, now: Instant) -> Vec<WorkerRow> {
        self.supervisor.members(now).map(|member| self.worker_row(member)).collect()
    }

    fn worker_row(&self, member: MemberView) -> WorkerRow {
        let process = self.workers.get(&member.id);
        let totals = process.map(totals).unwrap_or_default();
        WorkerRow {
            program: member.program,
            srvid: member.id,
            pid: process.map(|process| process.pid),
            state: member.state.name().to_owned(),
            restarts: member.starts.saturating_sub(1),
            failures: member.failures,
            next_start_s: member.next_start.map(|time| time.as_secs_f64().ceil() as u64),
            since_s: member.age.as_secs(),
            is_busy: process.is_some_and(is_busy),
            calls: totals[Total::Calls],
            failed: totals[Total::Failed],
            late: totals[Total::Late],
            dropped: totals[Total::Dropped],
            cause: member.cause,
        }
    }

    pub(super) fn service_rows(&self, now: Instant) -> Vec<ServiceRow> {
        let members: Vec<MemberView> = self.supervisor.members(now).collect();
        let mut rows = Vec::new();
        for (name, service) in &self.services.by_name {
            let hash = name_hash(name.as_str());
            for (id, function) in &service.offers {
                let process = self.workers.get(id);
                let tally = process.and_then(|process| tally(process, hash));
                let program = members.iter().find(|member| member.id == *id);
                rows.push(ServiceRow {
                    service: name.to_string(),
                    function: function.clone(),
                    program: program.map(|member| member.program.clone()).unwrap_or_default(),
                    srvid: *id,
                    ok: tally.map_or(0, |tally| tally.ok),
                    failed: tally.map_or(0, |tally| tally.failed),
                    max_ns: tally.map_or(0, |tally| tally.max_ns),
                    last_ns: tally.map_or(0, |tally| tally.last_ns),
                    state: service_state(process, tally.as_ref()).to_owned(),
                });
            }
        }
        rows
    }

    pub(super) fn queue_rows(&self) -> Vec<QueueRow> {
        let services = self.services.by_name.iter();
        let rows = services.filter_map(|(name, service)| {
            let (depth, size) = self.services.depth_of(service)?;
            let depths = &service.depths;
            let sum: u32 = depths.iter().sum();
            let queue = match service.store {
                RequestStore::Queue(_) => Some(text(&self.prefix.service_queue(name))),
                RequestStore::Ring(_) => None,
            };
            let slots = service.offers.keys().filter_map(|id| self.workers.get(id)?.slot());
            let states: Vec<WorkerState> = slots.map(|slot| slot.occupation().state).collect();
            let count = |wanted| states.iter().filter(|state| **state == wanted).count();
            Some(QueueRow {
                queue,
                service: name.to_string(),
                depth,
                depth_max: size.messages_max,
                message_len_bytes: size.message_len_bytes,
                average: (!depths.is_empty()).then(|| f64::from(sum) / depths.len() as f64),
                workers: service.offers.len(),
                busy: count(WorkerState::Busy),
                idle: count(WorkerState::Idle),
            })
        });
        rows.collect()
    }

    fn send_rows<R: Clone>(&mut self, number: u64, rows: &[R], answer: impl Fn(Vec<R>) -> Answer) {
        for some in rows.chunks(ROWS_MAX) {
            self.reply(number, &answer(some.to_vec()));
        }
        self.done(number, "");
    }
}

fn totals(process: &Process) -> Totals {
    process.slot().map(|slot| slot.totals()).unwrap_or_default()
}

fn is_busy(process: &Process) -> bool {
    process.slot().is_some_and(|slot| slot.occupation().state == WorkerState::Busy)
}

fn tally(process: &Process, hash: u64) -> Option<ServiceTally> {
    process.slot()?.services().into_iter().find(|tally| tally.name_hash == hash)
}

/// As users of the reference know it: what a request sent now would meet.
fn service_state(process: Option<&Process>, tally: Option<&ServiceTally>) -> &'static str {
    let (Some(slot), Some(tally)) = (process.and_then(Process::slot), tally) else { return "down" };
    let occupation = slot.occupation();
    match occupation.state {
        WorkerState::Busy if occupation.service == tally.entry => "busy",
        WorkerState::Busy | WorkerState::Idle => "avail",
        WorkerState::Free | WorkerState::Starting => "down",
    }
}

fn program_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn text(name: &std::ffi::CStr) -> String {
    name.to_string_lossy().into_owned()
}
