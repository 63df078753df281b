//! What all HTTP sessions of one loop share, of a server as of a proxy (the answer, the limits, the date, the log,
//! the backends), and how a reload replaces it. What answers a request: `handlers/respond.rs`.
//!
//! Each loop makes its own, so nothing here is locked; the counters are read from other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pollux_engine::{ListenAddress, Moment, Now};
use pollux_http::h2::{Scratch, Settings};
use pollux_tls::ServerConfig;
use rustix::io::Errno;

use crate::ServerError;
use crate::backends::groups::Secrets;
use crate::backends::shared_upstreams::SharedUpstreams;
use crate::config::{Answer, Limits, LogFormat, ProxyConfig, ServeConfig};
use crate::counters::ServerCounters;
use crate::epochs::EpochUses;
use crate::exchange::proxy_loop::ProxyLoop;
use crate::fault::ProxyCounters;
use crate::front::epoch::{FrontSettings, NewSettings, streams_of};
use crate::front::resting::RestingTable;
use crate::handlers::answer::FixedReply;
use crate::handlers::files::Folder;
use crate::handlers::respond::AnswerParts;
use crate::handlers::sites::SiteHandlers;
use crate::handlers::{Handler, Pages, SHORT_ROOM_BYTES};
use crate::head::shared_fields::{Common, FieldContext};
use crate::ids::{EpochId, FieldSetId, FrontId, RouteId};
use crate::log::{AccessLog, Event, Logs};
use crate::passwords::Passwords;
use crate::rates::Rates;
use crate::route::request_id::CurrentId;

/// What the HTTP sessions of one loop share.
#[derive(Debug)]
pub struct LoopState {
    pub(crate) handler: Handler,
    pub(crate) limits: Limits,
    pub(crate) head_limits: pollux_http::Limits,
    pub(crate) common: Common,
    /// For answers of a proxy's own, of each set of fields: first those of the front ends.
    pub(super) commons: Vec<Common>,
    pub(crate) now: Now,
    /// When a connection that is idle from now on has been idle too long.
    pub(crate) idle_deadline: Moment,
    /// Room without which no request is looked at.
    pub(crate) room_bytes_min: usize,
    pub(crate) log: Option<AccessLog>,
    /// Of new settings with the log of those before: the form of its lines from then on. The file stays open.
    kept_log: Option<LogFormat>,
    pub(crate) logs: Logs,
    pub(crate) counters: Arc<ServerCounters>,
    /// Whether the time of each request is counted.
    pub(crate) is_timing: bool,
    /// What connections speak TLS with, where they do.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Room for what is sent before it is encrypted; empty until it is needed.
    pub(crate) plain_room: Vec<u8>,
    /// What connections of HTTP/2 work with.
    pub(crate) streams: ForStreams,
    /// Where new settings come from, of a loop that can have some.
    inbox: Option<Inbox<Self>>,
    /// The same of a proxy.
    settings: Option<Inbox<NewSettings>>,
    /// The id of the request that is looked at.
    pub(super) current_id: CurrentId,
    /// Settings of before, in the place of its own fields, that requests still need.
    pub(super) epochs_before: Vec<(EpochId, Box<FrontSettings>)>,
    /// The backends of a proxy, with what is under way to them.
    pub(crate) proxy: Option<Box<ProxyLoop>>,
    /// What answers at front ends that lead to no backend.
    pub(super) sites: Option<Box<SiteHandlers>>,
    /// How often each client may ask there.
    pub(super) rates: Option<Arc<Rates>>,
    /// Whose passwords they are, and the number by which what checks them knows this loop.
    pub(super) passwords: Option<(Arc<Passwords>, u32)>,
}

/// What connections of HTTP/2 have in common.
#[derive(Default, Debug)]
pub(crate) struct ForStreams {
    /// None where HTTP/2 is not spoken.
    pub(crate) settings: Option<Settings>,
    /// Room for heads that are read.
    pub(crate) scratch: Scratch,
    /// Room for an answer before it becomes frames; empty until it is needed.
    pub(crate) room: Vec<u8>,
    /// Room for the streams that were woken; empty between calls.
    pub(crate) woken: Vec<u32>,
    /// Those that are idle.
    pub(crate) resting: RestingTable,
}

impl LoopState {
    /// What one loop of a server configured so needs; the counters are kept by the caller too.
    ///
    /// # Errors
    /// When the folder or the log cannot be opened.
    pub fn new(
        config: &ServeConfig,
        counters: Arc<ServerCounters>,
        logs: &Logs,
    ) -> Result<Self, ServerError> {
        let common = Common::new(&config.extras)?;
        let handler = match &config.answer {
            Answer::Reply { len_bytes, is_split } => {
                Handler::Reply(FixedReply::new(*len_bytes, *is_split, &common))
            }
            Answer::Echo => Handler::Echo,
            Answer::Files(files) => {
                let target_bytes_max = config.limits.heads.target_bytes_max;
                Handler::Files(Folder::open(files, logs, &counters, target_bytes_max)?)
            }
        };
        let open =
            |target| AccessLog::open(target, config.monitoring.access_log_format, logs.clone());
        let log = config.monitoring.access_log.as_ref().map(open).transpose()?;
        let head_limits = config.limits.heads.with_body(config.limits.own_body_bytes_max());
        let mut state = Self::assemble(handler, config.limits.clone(), head_limits, log, counters);
        state.room_bytes_min = state.room_bytes_min.max(SHORT_ROOM_BYTES + common.room_bytes());
        state.common = common;
        state.logs = logs.clone();
        state.is_timing = config.is_timing_requests;
        state.streams.settings = config.http2.settings(&config.limits);
        Ok(state)
    }

    /// What the loop of the metrics endpoint needs: the same sessions with another answer.
    #[must_use]
    pub fn for_status(pages: Box<dyn Pages>) -> Self {
        let limits = Limits::default();
        let head_limits = limits.heads.with_body(0);
        Self::assemble(Handler::Status(pages), limits, head_limits, None, Arc::default())
    }

    /// What the loop number `index` of a proxy configured so needs, which listens on `addresses`, each with the place
    /// of what it was in the configuration; what passes between loops, and counters are kept by the caller too.
    /// The first loop looks at the backends.
    ///
    /// # Errors
    /// When the log, or a folder of a site, cannot be opened.
    pub fn for_proxy(
        index: usize,
        config: &ProxyConfig,
        addresses: &[(ListenAddress, usize)],
        shared: Arc<SharedUpstreams>,
        counters: Arc<ServerCounters>,
        proxied: Arc<ProxyCounters>,
        logs: &Logs,
    ) -> Result<Self, ServerError> {
        let open =
            |target| AccessLog::open(target, config.monitoring.access_log_format, logs.clone());
        let log = config.monitoring.access_log.as_ref().map(open).transpose()?;
        let settings =
            FrontSettings::new(config, addresses, &shared.site_orders(), &counters, logs)?;
        let FrontSettings { limits, head_limits, room_bytes_min, commons, sites, .. } = settings;
        let frontends = settings.frontends;
        let mut state =
            Self::assemble(Handler::Proxy, limits, head_limits, log, Arc::clone(&counters));
        state.logs = logs.clone();
        (state.commons, state.sites) = (commons, sites);
        state.share_ids();
        state.room_bytes_min = state.room_bytes_min.max(room_bytes_min);
        state.streams.settings = streams_of(config);
        let proxy = ProxyLoop::new(index, config, frontends, shared, counters, proxied, logs);
        state.proxy = Some(Box::new(proxy));
        Ok(state)
    }

    /// With what clients and backends of a proxy speak TLS with.
    pub(crate) fn secured(mut self, secrets: Secrets) -> Self {
        self.proxy().secure(secrets);
        self
    }

    /// With what routes of sites are held to.
    pub(crate) fn held_to(mut self, rates: Arc<Rates>) -> Self {
        self.rates = Some(rates);
        self
    }

    /// With what checks passwords, for the loop of this number.
    pub(crate) fn guarded_by(mut self, passwords: Option<Arc<Passwords>>, index: usize) -> Self {
        self.passwords = passwords.map(|passwords| (passwords, index as u32));
        self
    }

    /// Requests of a proxy under way, and its upstream connections.
    #[must_use]
    pub fn open(&self) -> (usize, usize) {
        self.proxy.as_ref().map_or((0, 0), |proxy| proxy.open())
    }

    /// Upstream connections without a request, to the backend at this place.
    #[must_use]
    pub fn idle(&self, backend: usize) -> usize {
        self.proxy.as_ref().map_or(0, |proxy| proxy.idle(backend))
    }

    /// What answers requests, with what it makes its answers with.
    #[inline]
    pub(crate) fn handler_and_parts(&mut self) -> (&mut Handler, AnswerParts<'_>) {
        let Self { handler, common, now, counters, .. } = self;
        (handler, AnswerParts { common, now: *now, counters })
    }

    /// What answers of pollux's own have in common that clients of this front end get.
    pub(crate) fn common_of(&self, front: FrontId) -> &Common {
        self.commons.get(front.place()).unwrap_or(&self.common)
    }

    /// The same for an answer that depends on this.
    pub(crate) fn common_by(&self, asked: FieldContext) -> &Common {
        self.commons.get(asked.set().place()).unwrap_or(&self.common)
    }

    /// The same of the request that was decided on last, at a front end with sites; else that of the front end.
    pub(crate) fn common_routed(&self, front: FrontId) -> &Common {
        match &self.sites {
            Some(sites) if self.has_sites(front) => &self.commons[sites.fields(front).place()],
            _ => self.common_of(front),
        }
    }

    /// What is done to the fields of that request, and of its answer.
    pub(super) fn fields_routed(&self, front: FrontId) -> FieldSetId {
        self.sites.as_ref().expect("it has a route").fields(front)
    }

    /// Whether sites say what answers at this front end.
    fn has_sites(&self, front: FrontId) -> bool {
        let group = |proxy: &ProxyLoop| proxy.frontends.group(front);
        self.proxy.as_deref().is_some_and(|proxy| group(proxy).is_none())
    }

    /// What a request may have that takes this route, or none.
    pub(crate) fn limits_of(&self, route: Option<RouteId>) -> &pollux_http::Limits {
        match (route, &self.sites) {
            (Some(route), Some(sites)) => sites.limits(route),
            _ => &self.head_limits,
        }
    }

    /// The backends of a proxy.
    #[inline]
    pub(crate) fn proxy(&mut self) -> &mut ProxyLoop {
        self.proxy.as_mut().expect("a proxy has backends")
    }

    /// With what connections speak TLS with.
    #[must_use]
    pub fn encrypted(mut self, tls: Arc<ServerConfig>) -> Self {
        if let Handler::Files(folder) = &mut self.handler {
            folder.set_reads_all(true);
        }
        self.tls = Some(tls);
        self
    }

    /// With settings that may change.
    pub(crate) fn reloadable(mut self, inbox: Inbox<Self>) -> Self {
        self.inbox = Some(inbox);
        self
    }

    /// The same of a proxy; what goes by each of them is counted there.
    pub(crate) fn taking(mut self, settings: Inbox<NewSettings>, epochs: Arc<EpochUses>) -> Self {
        self.proxy().epochs.count_in(epochs);
        self.settings = Some(settings);
        self
    }

    /// Writes lines to this log from now on.
    pub(super) fn replace_log(&mut self, log: Option<AccessLog>) {
        if let Some(mut before) = std::mem::replace(&mut self.log, log) {
            before.flush(&self.counters);
        }
    }

    /// With the log of the settings before, whose lines have this form from now on.
    pub(crate) fn keeping_log(mut self, format: LogFormat) -> Self {
        self.kept_log = Some(format);
        self
    }

    /// Answers by other settings from now on; what counts and what is under way stays.
    #[cold]
    fn replace_settings(&mut self, mut new: Self) {
        std::mem::swap(&mut self.handler, &mut new.handler);
        std::mem::swap(&mut self.common, &mut new.common);
        std::mem::swap(&mut self.limits, &mut new.limits);
        match (new.kept_log, &mut self.log) {
            (Some(format), Some(log)) => log.set_format(format),
            // The old log goes with its last lines.
            _ => std::mem::swap(&mut self.log, &mut new.log),
        }
        (self.head_limits, self.room_bytes_min) = (new.head_limits, new.room_bytes_min);
        self.is_timing = new.is_timing;
        self.streams.settings = new.streams.settings;
        self.set_date();
    }

    pub(super) fn set_date(&mut self) {
        for common in self.commons.iter_mut().chain([&mut self.common]) {
            common.date.at(self.now.unix_s);
        }
        if let Handler::Reply(reply) = &mut self.handler {
            reply.set_date(&self.common.date);
        }
    }

    /// Reports that the rest of a file could not be read, whose length was announced.
    #[cold]
    pub(crate) fn report_cut(&self, errno: Errno) {
        self.logs.errors.report(Event::FileFailed, self.now.unix_s, || {
            let why = std::io::Error::from(errno);
            format!("the rest of a file could not be read, so its connection was cut: {why}")
        });
    }

    fn assemble(
        handler: Handler,
        limits: Limits,
        head_limits: pollux_http::Limits,
        log: Option<AccessLog>,
        counters: Arc<ServerCounters>,
    ) -> Self {
        let room_bytes_min = handler.room_bytes_min();
        let now = Now::default();
        let idle_deadline = Moment::NEVER;
        Self {
            handler,
            limits,
            head_limits,
            common: Common::default(),
            commons: Vec::new(),
            now,
            idle_deadline,
            room_bytes_min,
            log,
            kept_log: None,
            logs: Logs::default(),
            counters,
            is_timing: false,
            tls: None,
            plain_room: Vec::new(),
            streams: ForStreams::default(),
            inbox: None,
            settings: None,
            epochs_before: Vec::new(),
            current_id: CurrentId::default(),
            proxy: None,
            sites: None,
            rates: None,
            passwords: None,
        }
    }

    #[must_use]
    pub fn counters(&self) -> &Arc<ServerCounters> {
        &self.counters
    }

    pub(crate) fn begin_turn(&mut self, now: Now) {
        let is_another_second = now.unix_s != self.now.unix_s;
        self.now = now;
        if is_another_second {
            self.set_date();
        }
        if let Some(new) = self.inbox.as_mut().and_then(Inbox::take) {
            self.replace_settings(new);
        }
        if let Some(new) = self.settings.as_mut().and_then(Inbox::take) {
            self.begin_epoch(new);
        } else if !self.epochs_before.is_empty() {
            self.forget_epochs();
        }
        self.idle_deadline = now.at + self.limits.idle_timeout;
        if let Some(proxy) = &mut self.proxy {
            proxy.begin_turn(now);
        }
        if let Some(log) = &mut self.log {
            log.begin_turn(now.unix_s, &self.counters);
        }
    }

    pub(crate) fn end_turn(&mut self) {
        if let Some(proxy) = &mut self.proxy {
            proxy.end_turn();
        }
        if let Some(log) = &mut self.log {
            log.end_turn(&self.counters);
        }
    }
}

impl Drop for LoopState {
    /// The last lines of the log.
    fn drop(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush(&self.counters);
        }
    }
}

/// What the loops take over, each its own.
#[derive(Debug)]
pub(crate) struct Replacements<T> {
    generation: AtomicU64,
    of_loops: Mutex<Vec<Option<T>>>,
    taken: Condvar,
}

impl<T> Default for Replacements<T> {
    fn default() -> Self {
        Self { generation: AtomicU64::new(0), of_loops: Mutex::default(), taken: Condvar::new() }
    }
}

impl<T> Replacements<T> {
    /// One for each loop, which takes it at its next turn.
    pub(crate) fn offer(&self, replacements: Vec<T>) {
        let mut of_loops = self.of_loops.lock().expect(UNDER_LOCK);
        *of_loops = replacements.into_iter().map(Some).collect();
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Waits until all loops have taken theirs; false where one has not in that time.
    pub(crate) fn await_taken(&self, timeout: Duration) -> bool {
        let of_loops = self.of_loops.lock().expect(UNDER_LOCK);
        let is_offered = |all: &mut Vec<Option<T>>| all.iter().any(Option::is_some);
        let waited = self.taken.wait_timeout_while(of_loops, timeout, is_offered);
        !waited.expect(UNDER_LOCK).1.timed_out()
    }
}

const UNDER_LOCK: &str = "nothing panics under this lock";

/// Where one loop finds its replacement.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    replacements: Arc<Replacements<T>>,
    index: usize,
    seen: u64,
}

impl<T> Inbox<T> {
    pub(crate) fn new(replacements: &Arc<Replacements<T>>, index: usize) -> Self {
        Self { replacements: Arc::clone(replacements), index, seen: 0 }
    }

    /// The replacement, once, when there is one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<T> {
        let generation = self.replacements.generation.load(Ordering::Acquire);
        if generation == self.seen {
            return None;
        }
        self.seen = generation;
        let mut replacements = self.replacements.of_loops.lock().expect(UNDER_LOCK);
        let taken = replacements.get_mut(self.index)?.take();
        self.replacements.taken.notify_all();
        taken
    }
}
