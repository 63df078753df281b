//! What all HTTP sessions of one loop share, of a server as of a proxy (the answer, the limits, the date, the log,
//! the backends), which answer a request gets, and how a reload replaces it.
//!
//! Each loop makes its own, so nothing here is locked; the counters are read from other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pollux_engine::{Actions, ListenAddress, Moment, Now};
use pollux_http::{HeadWriter, Method, Request, Status};
use pollux_tls::ServerConfig;
use rustix::io::Errno;

use crate::ServerError;
use crate::answer::{self, Answered, Context, FixedReply, Left, Persistence, SHORT_BYTES_MAX};
use crate::common_fields::Common;
use crate::config::{Answer, FIELDS_BYTES_MAX, Limits, LogFormat, ServeConfig};
use crate::counters::{ServerCounter, ServerCounters};
use crate::error::in_words;
use crate::files::Site;
use crate::log::{AccessLog, Event, Logs};
use crate::proxy::groups::Secrets;
use crate::proxy::shared::Upstreams;
use crate::proxy::{Passing, ProxyConfig, ProxyCounters, ProxyLimits};
use crate::stats::{self, Overview};
use crate::system::{Privileged, Sandbox};
use crate::tls::Certificate;

/// Room for heads, refusals and the framing of a chunk.
const SHORT_ROOM_BYTES: usize = 2 * 1024;

/// What the HTTP sessions of one loop share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) handler: Handler,
    pub(crate) limits: Limits,
    pub(crate) head_limits: pollux_http::Limits,
    pub(crate) common: Common,
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
    /// Where new settings come from, of a loop that can have some.
    inbox: Option<Inbox>,
    /// The backends of a proxy, with what is under way to them.
    pub(crate) upstreams: Option<Box<Upstreams>>,
}

/// What answers requests.
#[derive(Debug)]
pub(crate) enum Handler {
    Reply(FixedReply),
    Echo,
    Files(Site),
    Metrics(Arc<Overview>),
    /// Backends answer.
    Proxy,
}

impl Shared {
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
        let mut shared = Self::assemble(handler, config.limits.clone(), log, counters);
        shared.room_bytes_min = shared.room_bytes_min.max(SHORT_ROOM_BYTES + common.room_bytes());
        shared.common = common;
        shared.logs = logs.clone();
        shared.is_timing = config.is_timing_requests;
        Ok(shared)
    }

    /// What the loop of the metrics endpoint needs: the same sessions with another answer.
    #[must_use]
    pub fn for_metrics(overview: Arc<Overview>) -> Self {
        let limits = Limits { body_bytes_max: 0, ..Limits::default() };
        Self::assemble(Handler::Metrics(overview), limits, None, Arc::default())
    }

    /// What the loop number `index` of a proxy configured so needs, which listens on `addresses`, each with the place
    /// of what it was in the configuration; what passes between loops, and counters are kept by the caller too.
    /// The first loop looks at the backends.
    ///
    /// # Errors
    /// When the log cannot be opened.
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
        let mut shared = Self::assemble(
            Handler::Proxy,
            limits_of_clients(&config.limits),
            log,
            Arc::clone(&counters),
        );
        shared.logs = logs.clone();
        let upstreams = Upstreams::new(index, config, addresses, passing, counters, proxied, logs);
        shared.upstreams = Some(Box::new(upstreams));
        Ok(shared)
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

    /// The backends of a proxy.
    #[inline]
    pub(crate) fn upstreams(&mut self) -> &mut Upstreams {
        self.upstreams.as_mut().expect("a proxy has backends")
    }

    /// With what connections speak TLS with.
    #[must_use]
    pub fn encrypted(mut self, tls: Arc<ServerConfig>) -> Self {
        if let Handler::Files(site) = &mut self.handler {
            site.read_all();
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
    fn keeping_log(mut self, format: LogFormat) -> Self {
        self.kept_log = Some(format);
        self
    }

    /// Answers by other settings from now on; what counts and what is under way stays.
    #[cold]
    fn succeed(&mut self, mut new: Self) {
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
        self.set_date();
    }

    fn set_date(&mut self) {
        self.common.date.at(self.now.unix_s);
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
        log: Option<AccessLog>,
        counters: Arc<ServerCounters>,
    ) -> Self {
        let head_limits = limits.heads.with_body(limits.body_bytes_max);
        let room_bytes_min = handler.room_bytes_min();
        let (now, idle_deadline) = (Now::default(), Moment::NEVER);
        Self {
            handler,
            limits,
            head_limits,
            common: Common::default(),
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
            inbox: None,
            upstreams: None,
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
            self.succeed(new);
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

impl Drop for Shared {
    /// The last lines of the log.
    fn drop(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush(&self.counters);
        }
    }
}

/// What the limits of a proxy say of its clients.
fn limits_of_clients(limits: &ProxyLimits) -> Limits {
    Limits {
        connections_max: limits.connections_max,
        header_timeout: limits.header_timeout,
        body_timeout: limits.body_timeout,
        body_rate_min_bytes: limits.body_rate_min_bytes,
        idle_timeout: limits.idle_timeout,
        write_timeout: limits.write_timeout,
        drain_timeout: limits.drain_timeout,
        body_bytes_max: limits.body_bytes_max,
        heads: limits.heads.clone(),
        ..Limits::default()
    }
}

/// What the loops take over, each its own.
#[derive(Debug, Default)]
pub(crate) struct Replacements {
    generation: AtomicU64,
    of_loops: Mutex<Vec<Option<Shared>>>,
}

impl Replacements {
    /// One for each loop, which takes it at its next turn.
    pub(crate) fn offer(&self, replacements: Vec<Shared>) {
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
    pub(crate) fn take(&mut self) -> Option<Shared> {
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

impl Handler {
    /// Value of the Allow field: the methods that [`Handler::allows`].
    pub(crate) fn allow(&self) -> &'static [u8] {
        match self {
            Self::Files(_) | Self::Metrics(_) => b"GET, HEAD, OPTIONS",
            Self::Reply(_) | Self::Echo | Self::Proxy => {
                b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
            }
        }
    }

    #[inline]
    pub(crate) fn allows(&self, method: Method<'_>) -> bool {
        match method {
            Method::Get | Method::Head | Method::Options => true,
            Method::Post | Method::Put | Method::Patch | Method::Delete => {
                matches!(self, Self::Reply(_) | Self::Echo | Self::Proxy)
            }
            Method::Connect | Method::Trace | Method::Other(_) => false,
        }
    }

    fn room_bytes_min(&self) -> usize {
        match self {
            Self::Reply(reply) => reply.room_bytes() + SHORT_ROOM_BYTES,
            Self::Echo | Self::Metrics(_) | Self::Proxy => SHORT_ROOM_BYTES + FIELDS_BYTES_MAX,
            Self::Files(_) => (SHORT_BYTES_MAX + FIELDS_BYTES_MAX).max(Site::ROOM_BYTES),
        }
    }
}

/// Sends the answer to a sound request.
#[inline]
pub(crate) fn respond(
    shared: &mut Shared,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
) -> Answered {
    if !shared.handler.allows(request.method) || request.method == Method::Options {
        return respond_without_handler(shared, actions, request, context);
    }
    match &mut shared.handler {
        Handler::Reply(reply) => {
            let left = reply.send(actions, &shared.common, context);
            let body_bytes = if context.is_head { 0 } else { reply.len_bytes() };
            let left = left.map_or(Left::Nothing, Left::Unsent);
            Answered { status: Status::OK, body_bytes, left }
        }
        Handler::Metrics(overview) => {
            let overview = Arc::clone(overview);
            respond_with_metrics(shared, actions, request, context, &overview)
        }
        Handler::Proxy => unreachable!("the session has a backend answer"),
        Handler::Echo => answer::empty(actions, &shared.common, context, Status::OK, |_| {}),
        Handler::Files(site) => {
            let answered = site.answer(actions, &shared.common, shared.now, request, context);
            if matches!(answered.left, Left::File) {
                shared.counters.add(ServerCounter::FilesSent, 1);
            }
            if answered.status == Status::UNAVAILABLE {
                shared.counters.add(ServerCounter::FilesRefused, 1);
            }
            answered
        }
    }
}

/// The pages of the metrics endpoint.
#[cold]
fn respond_with_metrics(
    shared: &Shared,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
    overview: &Overview,
) -> Answered {
    const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
    const HTML: &str = "text/html; charset=utf-8";
    let is_proxy = overview.passing.is_some();
    let (format, page) = match request.target.path() {
        Some("/metrics") => (FORMAT, overview.supervised.with_ended(stats::metrics(overview))),
        Some("/" | "/status") if is_proxy => (HTML, stats::STATUS_PAGE.to_owned()),
        Some("/" | "/status") => (HTML, stats::server_page(overview)),
        Some("/status.json") if is_proxy => ("application/json", stats::status(overview)),
        _ => return answer::page(actions, &shared.common, context, Status::NOT_FOUND, |_| {}),
    };
    answer::document(actions, &shared.common, context, format, page)
}

/// OPTIONS, and methods that are not for this server.
#[cold]
fn respond_without_handler(
    shared: &Shared,
    actions: &mut Actions<'_>,
    request: &Request<'_>,
    context: Context,
) -> Answered {
    let allow = shared.handler.allow();
    let add_allow = |head: &mut HeadWriter<'_>| {
        head.field("Allow", allow);
    };
    let status = match request.method {
        Method::Options if context.asked.is_from_another_origin() => {
            return answer::empty(actions, &shared.common, context, Status::NO_CONTENT, |head| {
                add_allow(head);
                head.field("Access-Control-Allow-Methods", b"GET, HEAD");
                head.field("Access-Control-Allow-Headers", b"*");
                head.field("Access-Control-Max-Age", b"86400");
            });
        }
        Method::Options => {
            return answer::empty(actions, &shared.common, context, Status::NO_CONTENT, add_allow);
        }
        Method::Other(_) => Status::NOT_IMPLEMENTED,
        _ => Status::METHOD_NOT_ALLOWED,
    };
    shared.counters.count_refusal(status);
    if request.method == Method::Connect {
        // The bytes behind it may be meant for the tunnel, made to look like a request.
        let context = Context { persistence: Persistence::Close, ..context };
        let page = answer::page(actions, &shared.common, context, status, add_allow);
        actions.linger();
        return Answered { left: Left::End, ..page };
    }
    answer::page(actions, &shared.common, context, status, add_allow)
}

/// Reads the settings anew; or says what is wrong with them.
pub(crate) type Reader = Box<dyn Fn() -> Result<ServeConfig, String> + Send + Sync>;

/// What a reload of a server needs. What answers is replaced between two turns, and no connection is touched.
///
/// ```text
///  signal ─► settings read and checked ─► a replacement for each loop ─► wake_all ─► taken at the next turn
///                     │ wrong
///                     └─► reported, and nothing changes
/// ```
///
/// All replacements are made before the first one is offered, so a server never answers by two settings
/// for longer than a turn takes. What is fixed when loops start is refused by its name.
pub(crate) struct Reload {
    pub(crate) config: ServeConfig,
    pub(crate) replacements: Arc<Replacements>,
    pub(crate) counters: Vec<Arc<ServerCounters>>,
    /// None where only the certificate is read again.
    pub(crate) read: Option<Reader>,
}

impl Reload {
    /// Offers the loops what the settings say now; which is in force from then on.
    ///
    /// # Errors
    /// What is wrong; nothing was changed then.
    pub(crate) fn offer(
        &mut self,
        certificate: Option<&Certificate>,
        logs: &Logs,
        sandbox: Option<&Sandbox>,
        privileged: Option<&Privileged>,
    ) -> Result<(), String> {
        let config = match &self.read {
            Some(read) => read()?,
            None => self.config.clone(),
        };
        let fixed = fixed(&self.config, &config);
        if !fixed.is_empty() {
            let names = fixed.join(", ");
            return Err(format!("{names}: fixed while the server runs; restart it to change them"));
        }
        // The loops open a file of the same name again by themselves, and write the old one on where they can't.
        let target = config.monitoring.access_log.as_ref();
        let is_kept = target.is_some() && target == self.config.monitoring.access_log.as_ref();
        let new_log = target.filter(|_| !is_kept);
        sandbox.map_or(Ok(()), |sandbox| sandbox.admits(&config, new_log))?;
        let words = |error: ServerError| in_words(&error);
        let tls = certificate.map(Certificate::config);
        let mut replacements = Vec::new();
        if self.read.is_some() {
            let mut own = config.clone();
            own.monitoring.access_log = new_log.cloned();
            let format = config.monitoring.access_log_format;
            for counters in &self.counters {
                let mut shared = Shared::new(&own, Arc::clone(counters), logs).map_err(words)?;
                if is_kept {
                    shared = shared.keeping_log(format);
                }
                replacements.push(match tls {
                    Some(tls) => shared.encrypted(Arc::clone(tls)),
                    None => shared,
                });
            }
        }
        if let Some(certificate) = certificate {
            let keys = certificate.keys();
            let pem = privileged.map_or_else(|| keys.load(), Privileged::pem);
            let renewed = pem.and_then(|pem| certificate.renew(&pem));
            renewed.map_err(|error| format!("the certificate: {error}"))?;
        }
        if !replacements.is_empty() {
            self.replacements.offer(replacements);
        }
        self.config = config;
        Ok(())
    }
}

/// The settings that differ and can't be changed while loops run, by their names.
fn fixed(old: &ServeConfig, new: &ServeConfig) -> Vec<&'static str> {
    let is_split =
        |config: &ServeConfig| matches!(config.answer, Answer::Reply { is_split: true, .. });
    let (loops, limits, monitoring) = (&old.loops, &old.limits, &old.monitoring);
    let settings = [
        ("listen", old.listen != new.listen),
        ("socket_mode and socket_owner", old.sockets != new.sockets),
        ("cert and key", old.tls != new.tls),
        ("user and group", old.identity != new.identity),
        ("no_sandbox, require_sandbox, sandbox_path, sandbox_exact", old.sandbox != new.sandbox),
        ("poller", loops.poller != new.loops.poller),
        ("threads", loops.threads != new.loops.threads),
        ("listeners", loops.listeners != new.loops.listeners),
        ("pin", loops.pin != new.loops.pin),
        ("busy_poll", loops.is_busy_polling != new.loops.is_busy_polling),
        ("mask_ends", loops.masks_ends != new.loops.masks_ends),
        ("split_reply", is_split(old) != is_split(new)),
        ("max_connections", limits.connections_max != new.limits.connections_max),
        ("write_timeout", limits.write_timeout != new.limits.write_timeout),
        ("read_rate_min", limits.read_rate_min_bytes != new.limits.read_rate_min_bytes),
        ("error_log", monitoring.error_log != new.monitoring.error_log),
        ("log_level", monitoring.log_level != new.monitoring.log_level),
        ("stats", monitoring.stats != new.monitoring.stats),
        ("control", monitoring.control != new.monitoring.control),
        ("pid_file", monitoring.pid_file != new.monitoring.pid_file),
    ];
    settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use pollux_settings::Given;

    use super::*;

    fn config(text: &str) -> ServeConfig {
        Given::from_toml(text, "test").read().expect("right")
    }

    #[test]
    fn what_loops_are_made_of_is_fixed_and_what_answers_is_not() {
        let old = config("reply = 1");
        for (text, names) in [
            ("reply = 2\nidle_timeout = \"1s\"\nmax_body = 5\naccess_log = \"-\"", vec![]),
            ("dir = \".\"\nresponse_field = \"add X: 1\"\nheader_timeout = \"1s\"", vec![]),
            ("reply = 1\nthreads = 2\nlisten = \":1\"", vec!["listen", "threads"]),
            ("reply = 1\nsplit_reply = true", vec!["split_reply"]),
            ("reply = 1\ncert = \"a\"\nkey = \"b\"", vec!["cert and key"]),
            (
                "reply = 1\nwrite_timeout = \"1s\"\nread_rate_min = 0",
                vec!["write_timeout", "read_rate_min"],
            ),
        ] {
            assert_eq!(fixed(&old, &config(text)), names, "{text}");
        }
    }
}
