//! What all HTTP sessions of one loop share, of a server as of a proxy (the answer, the limits, the date, the log,
//! the backends), which answer a request gets, and how a reload replaces it.
//!
//! Each loop makes its own, so nothing here is locked; the counters are read from other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pollux_engine::{Actions, ListenAddress, Moment, Now};
use pollux_http::Request;
use pollux_http::h2::{Scratch, Settings};
use pollux_tls::ServerConfig;
use rustix::io::Errno;

use crate::ServerError;
use crate::backends::groups::Secrets;
use crate::backends::passing::Passing;
use crate::config::{Answer, Limits, LogFormat, ProxyConfig, ServeConfig};
use crate::counters::ServerCounters;
use crate::exchange::upstreams::Upstreams;
use crate::fault::ProxyCounters;
use crate::handlers::answer::{Answered, Context, FixedReply};
use crate::handlers::files::Site;
use crate::handlers::respond::{Making, respond_by};
use crate::handlers::sites::SiteHandlers;
use crate::handlers::{Handler, Pages, SHORT_ROOM_BYTES};
use crate::head::common::Common;
use crate::ids::{FrontId, RouteId};
use crate::log::{AccessLog, Event, Logs};

/// What the HTTP sessions of one loop share.
#[derive(Debug)]
pub struct LoopState {
    pub(crate) handler: Handler,
    pub(crate) limits: Limits,
    pub(crate) head_limits: pollux_http::Limits,
    pub(crate) common: Common,
    /// For answers of a proxy's own, of each front end.
    pub(super) of_fronts: Vec<Common>,
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
    inbox: Option<Inbox>,
    /// The backends of a proxy, with what is under way to them.
    pub(crate) upstreams: Option<Box<Upstreams>>,
    /// What answers at front ends that lead to no backend.
    pub(super) sites: Option<Box<SiteHandlers>>,
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
                Handler::Files(Site::open(files, logs, &counters, target_bytes_max)?)
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
        passing: Arc<Passing>,
        counters: Arc<ServerCounters>,
        proxied: Arc<ProxyCounters>,
        logs: &Logs,
    ) -> Result<Self, ServerError> {
        let open =
            |target| AccessLog::open(target, config.monitoring.access_log_format, logs.clone());
        let log = config.monitoring.access_log.as_ref().map(open).transpose()?;
        let limits = config.limits.clients.clone();
        let head_limits = limits.heads.with_body(limits.passed_body_bytes_max());
        let mut state =
            Self::assemble(Handler::Proxy, limits, head_limits, log, Arc::clone(&counters));
        state.logs = logs.clone();
        state.sites = SiteHandlers::open(config, logs, &counters)?.map(Box::new);
        if let Some(sites) = &state.sites {
            state.room_bytes_min = state.room_bytes_min.max(sites.room_bytes_min());
            // Each route has its own, which is known once the head was read.
            let body_bytes = &mut state.head_limits.body_bytes;
            *body_bytes = (*body_bytes).max(sites.body_bytes_max());
        }
        let upstreams = Upstreams::new(index, config, addresses, passing, counters, proxied, logs);
        state.upstreams = Some(Box::new(upstreams));
        let settings = config.http2.settings(&config.limits.clients);
        state.streams.settings =
            settings.map(|settings| Settings { has_connect_protocol: true, ..settings });
        let fronts = config.frontends.iter();
        state.of_fronts = fronts.map(|front| Common::of_rules(&front.rules.response)).collect();
        Ok(state)
    }

    /// With what clients and backends of a proxy speak TLS with.
    pub(crate) fn secured(mut self, secrets: Secrets) -> Self {
        self.upstreams().secure(secrets);
        self
    }

    /// Requests of a proxy under way, and its upstream connections.
    #[must_use]
    pub fn open(&self) -> (usize, usize) {
        self.upstreams.as_ref().map_or((0, 0), |upstreams| upstreams.open())
    }

    /// Upstream connections without a request, to the backend at this place.
    #[must_use]
    pub fn idle(&self, backend: usize) -> usize {
        self.upstreams.as_ref().map_or(0, |upstreams| upstreams.idle(backend))
    }

    /// What answers of pollux's own have in common that clients of this front end get.
    pub(crate) fn common_of(&self, front: FrontId) -> &Common {
        self.of_fronts.get(front.place()).unwrap_or(&self.common)
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
    pub(crate) fn upstreams(&mut self) -> &mut Upstreams {
        self.upstreams.as_mut().expect("a proxy has backends")
    }

    /// With what connections speak TLS with.
    #[must_use]
    pub fn encrypted(mut self, tls: Arc<ServerConfig>) -> Self {
        if let Handler::Files(site) = &mut self.handler {
            site.read_all(true);
        }
        self.tls = Some(tls);
        self
    }

    /// With settings that may change.
    pub(crate) fn reloadable(mut self, inbox: Inbox) -> Self {
        self.inbox = Some(inbox);
        self
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

    fn set_date(&mut self) {
        for common in self.of_fronts.iter_mut().chain([&mut self.common]) {
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
        let (now, idle_deadline) = (Now::default(), Moment::NEVER);
        Self {
            handler,
            limits,
            head_limits,
            common: Common::default(),
            of_fronts: Vec::new(),
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
            upstreams: None,
            sites: None,
        }
    }

    /// The counters.
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
        self.idle_deadline = now.at + self.limits.idle_timeout;
        if let Some(upstreams) = &mut self.upstreams {
            upstreams.begin_turn(now);
        }
        if let Some(log) = &mut self.log {
            log.begin_turn(now.unix_s, &self.counters);
        }
    }

    pub(crate) fn end_turn(&mut self) {
        if let Some(upstreams) = &mut self.upstreams {
            upstreams.end_turn();
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
#[derive(Debug, Default)]
pub(crate) struct Replacements {
    generation: AtomicU64,
    of_loops: Mutex<Vec<Option<LoopState>>>,
}

impl Replacements {
    /// One for each loop, which takes it at its next turn.
    pub(crate) fn offer(&self, replacements: Vec<LoopState>) {
        let mut of_loops = self.of_loops.lock().expect("nothing panics under this lock");
        *of_loops = replacements.into_iter().map(Some).collect();
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// Where one loop finds its replacement.
#[derive(Debug)]
pub(crate) struct Inbox {
    replacements: Arc<Replacements>,
    index: usize,
    seen: u64,
}

impl Inbox {
    pub(crate) fn new(replacements: &Arc<Replacements>, index: usize) -> Self {
        Self { replacements: Arc::clone(replacements), index, seen: 0 }
    }

    /// The replacement, once, when there is one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<LoopState> {
        let generation = self.replacements.generation.load(Ordering::Acquire);
        if generation == self.seen {
            return None;
        }
        self.seen = generation;
        let mut replacements =
            self.replacements.of_loops.lock().expect("nothing panics under this lock");
        replacements.get_mut(self.index)?.take()
    }
}

/// Sends the answer to a sound request; none where backends answer.
#[inline]
pub(crate) fn respond(
    state: &mut LoopState,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
) -> Option<Answered> {
    let LoopState { handler, common, now, counters, .. } = state;
    let with = Making { common, now: *now, counters };
    respond_by(handler, &with, actions, request, None, context)
}
