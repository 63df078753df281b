//! What a pool says of itself: workers, services, queues, clients and what it has counted, as rows for commands
//! and as a page of metrics in the text format of Prometheus (0.0.4), which an endpoint serves over HTTP.
//!
//! The endpoint is one small loop on a thread of its own, which serves a page that the pool writes once a second:
//! a scrape never reaches the pool's thread, and a client that does not read delays no other.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pollux_engine::{
    Actions, Driver, Group, GroupConfig, GroupError, Limits, ListenAddress, Listeners, Session,
};
use pollux_http::{HeadWriter, Method, MetricsPage, Parsed, Request, Status};
use pollux_poller::Mechanism;
use pollux_sys::clock::monotonic_ns;

use super::Pool;
use super::process::Process;
use super::services::RequestStore;
use crate::control::{ClientRow, PoolInfo, QueueRow, ServiceRow, WorkerRow};
use crate::slots::{ServiceTally, State as WorkerState, Total, Totals, name_hash};
use crate::supervisor::MemberView;

/// How old the page may be: scrapers come every few seconds.
const PAGE_EACH: Duration = Duration::from_secs(1);
/// Connections at once.
const SCRAPERS_MAX: u32 = 64;
/// From the accept to the end of the answer.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Where the page is.
const PATH: &str = "/metrics";
/// Room for the head of an answer.
const HEAD_BYTES: usize = 512;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) starts: u64,
    pub(super) start_failures: u64,
    pub(super) deaths: u64,
    pub(super) died_busy: u64,
    pub(super) adoptions: u64,
    pub(super) signals: u64,
    pub(super) nudges: u64,
    pub(super) sweeps: u64,
    pub(super) rings_rebuilt: u64,
    pub(super) unsent: u64,
    pub(super) clients: u64,
    pub(super) accept_pauses: u64,
}

impl Pool {
    /// Each count: name, meaning, number.
    pub(super) fn named_counts(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, u64)> + use<> {
        let counts = self.counts;
        [
            ("worker_starts", "Worker processes that were started", counts.starts),
            ("worker_start_failures", "Starts that failed", counts.start_failures),
            ("worker_ends", "Worker processes that ended", counts.deaths),
            ("worker_ends_busy", "Those that ended inside a service", counts.died_busy),
            ("worker_adoptions", "Workers taken over from a manager", counts.adoptions),
            ("worker_signals", "Signals sent to workers", counts.signals),
            ("worker_nudges", "Idle workers asked to look into their queues", counts.nudges),
            ("worker_sweeps", "Times when workers were notified of ended contexts", counts.sweeps),
            (
                "rings_rebuilt",
                "Rings in shared memory that another process had damaged",
                counts.rings_rebuilt,
            ),
            ("messages_unsent", "Messages to clients that did not read", counts.unsent),
            ("client_contexts", "Client contexts that came", counts.clients),
            (
                "connections_silent",
                "Connections that said nothing",
                self.connections.dropped_silent,
            ),
            ("accept_pauses", "Times when no connection was taken", counts.accept_pauses),
            ("answers_sent", "Errors sent to callers for others", self.unsent.sent),
            ("answers_gone", "Answers whose caller was gone", self.unsent.gone),
            ("answers_lost", "Those that found no room in time", self.unsent.lost),
            (
                "requests_unserved",
                "Requests that stood in a queue that was removed",
                self.services.unserved.requests,
            ),
            (
                "messages_malformed",
                "Messages that were not requests",
                self.services.unserved.malformed,
            ),
            ("events_posted", "Events that were posted", self.events.posted),
            ("events_matched", "Subscriptions that they matched by name", self.events.matched),
            ("log_lines_lost", "Lines of the log that could not be written", self.log.lost()),
            ("check_cycles", "Check cycles", self.supervisor.cycles()),
        ]
        .into_iter()
    }

    pub(super) fn members(&self, now: Instant) -> Vec<MemberView> {
        self.supervisor.members(now).collect()
    }

    pub(super) fn client_rows(&self, now: Instant) -> Vec<ClientRow> {
        let open = self.memory.as_ref().map(|memory| memory.open_requests());
        let clients = self.connections.by_number.values().filter_map(|v| v.client.as_ref());
        clients
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
            .collect()
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
        let busy = process.and_then(busy);
        WorkerRow {
            program: member.program,
            srvid: member.id,
            pid: process.map(|process| process.pid),
            state: member.state.name().to_owned(),
            restarts: member.starts.saturating_sub(1),
            failures: member.failures,
            next_start_s: member.next_start.map(|time| time.as_secs_f64().ceil() as u64),
            since_s: member.age.as_secs(),
            is_busy: busy.is_some(),
            service: busy.as_ref().and_then(|busy| busy.0.clone()),
            busy_ms: busy.map(|busy| busy.1),
            calls: totals[Total::Calls],
            failed: totals[Total::Failed],
            late: totals[Total::Late],
            dropped: totals[Total::Dropped],
            // Of one that is up, what it says itself.
            cause: member.cause.or_else(|| process?.trouble.clone()),
        }
    }

    pub(super) fn service_rows(&self, now: Instant) -> Vec<ServiceRow> {
        let members = self.members(now);
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

    /// Writes the metrics anew if there is an endpoint and it is time.
    pub(super) fn publish(&mut self, now: Instant) {
        if self.endpoint.as_ref().is_none_or(|endpoint| now < endpoint.next_moment()) {
            return;
        }
        let text = self.page(now);
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.publish(text, now);
        }
    }

    fn page(&self, now: Instant) -> String {
        let mut page = MetricsPage::new("pollux_pool_");
        page.family("build_info", "gauge", "Version of the manager");
        page.line("build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
        page.family("uptime_seconds", "gauge", "Seconds since the manager began");
        page.line("uptime_seconds", &[], (now - self.started).as_secs_f64());
        for (name, about, number) in self.named_counts() {
            let name = format!("{name}_total");
            page.family(&name, "counter", about);
            page.line(&name, &[], number);
        }
        self.add_workers(&mut page, now);
        self.add_services(&mut page, now);
        self.add_queues(&mut page);
        page.text()
    }

    fn add_workers(&self, page: &mut MetricsPage, now: Instant) {
        let rows = self.worker_rows(now);
        page.family("workers", "gauge", "Workers, by program and state");
        let mut states: Vec<(&str, &str, u32)> = Vec::new();
        for row in &rows {
            let state = if row.is_busy { "busy" } else { row.state.as_str() };
            match states.iter_mut().find(|known| (known.0, known.1) == (&row.program, state)) {
                Some(known) => known.2 += 1,
                None => states.push((&row.program, state, 1)),
            }
        }
        for (program, state, count) in states {
            page.line("workers", &[("program", &program), ("state", &state)], count);
        }
        let sums = [
            ("worker_calls_total", "Requests given to services"),
            ("worker_calls_failed_total", "Those that ended otherwise than with success"),
            ("worker_requests_late_total", "Requests whose caller had given up"),
            ("worker_replies_dropped_total", "Replies that found no room in time"),
            ("worker_restarts_total", "Processes started after the first of each id"),
        ];
        for (place, (name, about)) in sums.into_iter().enumerate() {
            page.family(name, "counter", about);
            for row in &rows {
                let values =
                    [row.calls, row.failed, row.late, row.dropped, u64::from(row.restarts)];
                page.line(name, &[("program", &row.program), ("srvid", &row.srvid)], values[place]);
            }
        }
    }

    fn add_services(&self, page: &mut MetricsPage, now: Instant) {
        let rows = self.service_rows(now);
        let names = [
            ("service_ok_total", "counter", "Calls that ended with success"),
            ("service_failed_total", "counter", "Calls that ended otherwise"),
            (
                "service_seconds_max",
                "gauge",
                "Seconds that the longest call since the worker began took",
            ),
            ("service_seconds_last", "gauge", "Seconds that the last call took"),
        ];
        for (place, (name, kind, about)) in names.into_iter().enumerate() {
            page.family(name, kind, about);
            for row in &rows {
                let seconds = |ns: u64| ns as f64 / 1e9;
                let values =
                    [row.ok as f64, row.failed as f64, seconds(row.max_ns), seconds(row.last_ns)];
                let labels: [(&str, &dyn Display); 2] =
                    [("service", &row.service), ("srvid", &row.srvid)];
                page.line(name, &labels, values[place]);
            }
        }
    }

    fn add_queues(&self, page: &mut MetricsPage) {
        page.family("queue_messages", "gauge", "Requests that wait");
        let rows = self.queue_rows();
        for row in &rows {
            page.line("queue_messages", &[("service", &row.service)], row.depth);
        }
        page.family("queue_messages_max", "gauge", "Requests that the queue holds");
        for row in &rows {
            page.line("queue_messages_max", &[("service", &row.service)], row.depth_max);
        }
    }
}

fn totals(process: &Process) -> Totals {
    process.slot().map(|slot| slot.totals()).unwrap_or_default()
}

/// The service that a worker is inside of, as far as it is known, and the milliseconds since that began.
fn busy(process: &Process) -> Option<(Option<String>, u64)> {
    let slot = process.slot()?;
    let occupation = slot.occupation();
    if occupation.state != WorkerState::Busy {
        return None;
    }
    let tally = slot.services().into_iter().find(|tally| tally.entry == occupation.service);
    let is_it = |name: &str| tally.as_ref().is_some_and(|tally| tally.name_hash == name_hash(name));
    let advert = process.adverts.iter().find(|advert| is_it(&advert.name));
    let since = monotonic_ns().saturating_sub(occupation.since_ns);
    Some((advert.map(|advert| advert.name.clone()), since / 1_000_000))
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

/// The text of the page; replaced as a whole.
type Published = Arc<Mutex<Arc<[u8]>>>;

/// The running endpoint.
pub(super) struct Endpoint {
    group: Group,
    page: Published,
    next: Instant,
}

impl Endpoint {
    /// Listens at `address`.
    pub(super) fn start(address: &ListenAddress) -> Result<Self, GroupError> {
        let page: Published = Arc::new(Mutex::new(Arc::from([].as_slice())));
        let config = GroupConfig {
            listen: vec![address.clone()],
            driver: Driver::Readiness(Mechanism::Poll),
            threads: 1,
            listeners: Listeners::Reuseport,
            cpus: None,
            delays_small_writes: false,
            limits: Limits { connections_max: SCRAPERS_MAX, ..Limits::default() },
        };
        let shared = Arc::clone(&page);
        let make = move |_| Ok::<_, GroupError>(Arc::clone(&shared));
        let group = Group::start::<Scrape, _, _>(&config, make)?;
        Ok(Self { group, page, next: Instant::now() })
    }

    /// Where it listens, with the port that the kernel chose.
    pub(super) fn address(&self) -> String {
        self.group.addresses()[0].to_string()
    }

    /// When the page is to be written again.
    pub(super) fn next_moment(&self) -> Instant {
        self.next
    }

    /// Puts up a new page.
    pub(super) fn publish(&mut self, text: String, now: Instant) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = Arc::from(text.into_bytes());
        self.next = now + PAGE_EACH;
    }

    /// Ends the thread.
    pub(super) fn end(self) {
        self.group.abort();
        // What ended its loop before is of no interest any more.
        let _ = self.group.join();
    }
}

/// One connection: one request, one answer.
#[derive(Debug)]
struct Scrape {
    answer: Vec<u8>,
    sent: usize,
}

impl Session for Scrape {
    type Shared = Published;

    fn accepted(_: &mut Published, actions: &mut Actions<'_>) -> Self {
        actions.set_deadline(actions.now().at + TIME_MAX);
        Self { answer: Vec::new(), sent: 0 }
    }

    fn on_bytes(&mut self, page: &mut Published, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        if !self.answer.is_empty() {
            return input.len();
        }
        let used = match Request::parse(input, &pollux_http::Limits::default()) {
            Parsed::Incomplete => return 0,
            Parsed::Complete(request, len) => {
                self.answer = answer(&request, page);
                len
            }
            Parsed::Rejected(rejection) => {
                self.answer = plain(rejection.status, &[], rejection.reason.as_bytes());
                input.len()
            }
        };
        self.on_output_sent(page, actions);
        used
    }

    fn on_end(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        if self.answer.is_empty() {
            actions.close();
        }
    }

    fn on_output_sent(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        let piece = (self.answer.len() - self.sent).min(actions.room());
        actions.send(&self.answer[self.sent..self.sent + piece]);
        self.sent += piece;
        if self.sent < self.answer.len() {
            actions.notify_when_sent();
        } else {
            actions.linger();
        }
    }

    fn on_deadline(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        actions.close();
    }

    fn on_shutdown(&mut self, _: &mut Published, actions: &mut Actions<'_>) {
        actions.close();
    }
}

fn answer(request: &Request<'_>, page: &Published) -> Vec<u8> {
    let is_get = request.method == Method::Get;
    if !is_get && request.method != Method::Head {
        return plain(Status::METHOD_NOT_ALLOWED, &[("allow", "GET, HEAD")], b"GET or HEAD\n");
    }
    if request.target.path() != Some(PATH) {
        return plain(Status::NOT_FOUND, &[], b"the metrics are at /metrics\n");
    }
    let text = Arc::clone(&page.lock().unwrap_or_else(PoisonError::into_inner));
    let mut whole = head(Status::OK, &[("cache-control", "no-store")], text.len());
    if is_get {
        whole.extend_from_slice(&text);
    }
    whole
}

fn plain(status: Status, fields: &[(&str, &str)], text: &[u8]) -> Vec<u8> {
    let mut whole = head(status, fields, text.len());
    whole.extend_from_slice(text);
    whole
}

fn head(status: Status, fields: &[(&str, &str)], len_bytes: usize) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    let mut writer = HeadWriter::new(&mut head, status);
    writer.field("content-type", MetricsPage::CONTENT_TYPE.as_bytes());
    for (name, value) in fields {
        writer.field(name, value.as_bytes());
    }
    writer.content_length(len_bytes as u64).connection(1, true);
    let len = writer.finish().expect("constant fields fit");
    head.truncate(len);
    head
}
