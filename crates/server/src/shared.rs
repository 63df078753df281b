//! What all HTTP sessions of one loop share (the answer, the limits, the date, the log), and which answer a
//! request gets.
//!
//! Each loop makes its own, so nothing here is locked; the counters are read from other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pollux_engine::{Actions, Moment, Now};
use pollux_http::{HeadWriter, Method, Request, Status};
use pollux_tls::ServerConfig;
use rustix::io::Errno;

use crate::ServerError;
use crate::answer::{self, Answered, Context, FixedReply, Left, Persistence, SHORT_BYTES_MAX};
use crate::common_fields::Common;
use crate::config::{Answer, FIELDS_BYTES_MAX, Limits, ServeConfig};
use crate::counters::{ServerCounter, ServerCounters};
use crate::files::Site;
use crate::log::{AccessLog, Event, Logs};
use crate::stats::{self, Overview};

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
    /// When a connection that rests from now on has rested too long.
    pub(crate) idle_deadline: Moment,
    /// Room without which no request is looked at.
    pub(crate) room_bytes_min: usize,
    pub(crate) log: Option<AccessLog>,
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
}

/// What answers requests.
#[derive(Debug)]
pub(crate) enum Handler {
    Reply(FixedReply),
    Echo,
    Files(Site),
    Metrics(Arc<Overview>),
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
            Answer::Files(files) => Handler::Files(Site::open(files, logs, &counters)?),
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

    /// Answers by other settings from now on; what counts and what is under way stays.
    #[cold]
    fn succeed(&mut self, mut new: Self) {
        std::mem::swap(&mut self.handler, &mut new.handler);
        std::mem::swap(&mut self.common, &mut new.common);
        std::mem::swap(&mut self.limits, &mut new.limits);
        // The old log goes with its last lines.
        std::mem::swap(&mut self.log, &mut new.log);
        (self.head_limits, self.room_bytes_min) = (new.head_limits, new.room_bytes_min);
        self.is_timing = new.is_timing;
        self.tell_date();
    }

    fn tell_date(&mut self) {
        self.common.date.at(self.now.unix_s);
        if let Handler::Reply(reply) = &mut self.handler {
            reply.set_date(&self.common.date);
        }
    }

    /// Tells that the rest of a file could not be read, whose length was announced.
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
        let body_bytes = limits.body_bytes_max;
        let head_limits = pollux_http::Limits { body_bytes, ..pollux_http::Limits::default() };
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
            logs: Logs::default(),
            counters,
            is_timing: false,
            tls: None,
            plain_room: Vec::new(),
            inbox: None,
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
            self.tell_date();
        }
        if let Some(new) = self.inbox.as_mut().and_then(Inbox::take) {
            self.succeed(new);
        }
        self.idle_deadline = now.at + self.limits.idle_timeout;
        if let Some(log) = &mut self.log {
            log.begin_turn(now.unix_s, &self.counters);
        }
    }

    pub(crate) fn end_turn(&mut self) {
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
            Self::Reply(_) | Self::Echo => b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
        }
    }

    #[inline]
    pub(crate) fn allows(&self, method: Method<'_>) -> bool {
        match method {
            Method::Get | Method::Head | Method::Options => true,
            Method::Post | Method::Put | Method::Patch | Method::Delete => {
                matches!(self, Self::Reply(_) | Self::Echo)
            }
            Method::Connect | Method::Trace | Method::Other(_) => false,
        }
    }

    fn room_bytes_min(&self) -> usize {
        match self {
            Self::Reply(reply) => reply.room_bytes() + SHORT_ROOM_BYTES,
            Self::Echo | Self::Metrics(_) => SHORT_ROOM_BYTES + FIELDS_BYTES_MAX,
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
        Handler::Echo => answer::empty(actions, &shared.common, context, Status::OK, |_| {}),
        Handler::Files(site) => {
            let answered =
                site.answer(actions, &shared.common, shared.now.unix_s, request, context);
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
        Some("/status") if is_proxy => (HTML, stats::STATUS_PAGE.to_owned()),
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
