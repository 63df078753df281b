//! Every setting of a server: flags, keys of the file, help and defaults, and what they are read as.
//!
//! [`pollux_settings::Given`] says what was said. The command line and the lab make a [`ServeConfig`];
//! nothing is opened here.

pub(crate) mod access;
mod acme;
pub(crate) mod added;
pub(crate) mod answers;
pub(crate) mod backend_answers;
pub(crate) mod client_tls;
pub(crate) mod descriptors;
#[cfg(test)]
mod mistakes;
mod named;
pub(crate) mod proxy;
pub(crate) mod rates;
pub(crate) mod sections;
pub mod serve_or_proxy;
pub(crate) mod sites;
pub(crate) mod sticky;
pub(crate) mod users;
pub(crate) mod written_paths;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{Address, CpuList, Driver, ListenAddress, ListenError, Listeners};
use pollux_http::h2;
use pollux_settings::{Key, Keys, Kind, bytes, duration, integer, one_of, parsed, path, table};
use pollux_sys::links;
use pollux_tls::{HTTP_1_1, HTTP_2};

pub use crate::config::answers::AnswerRule;
use crate::identity::{Identity, SocketOwner};
pub(crate) use crate::system::ADDRESSES_MAX;
use crate::tls;
pub use answers::{Answer, Extras, Files};
pub(crate) use answers::{FIELDS_BYTES_MAX, request_rule};
pub use client_tls::ClientTls;
pub use proxy::{ProxyConfig, ProxyLimits};
pub use rates::LimitConfig;
pub use sections::{
    BackendConfig, Balance, Check, Forwarding, Frontend, GroupConfig, Health, Mode, Protocol,
    Resolve, ServerTls,
};
pub use sites::{RouteConfig, SiteConfig, Sites};
pub(crate) use sticky::SameSite;
pub use sticky::Sticky;
pub use users::UsersConfig;
use written_paths::note_shared_paths;

/// Most threads; one per CPU of the largest machines.
const THREADS_MAX: u64 = 1024;
/// Most connections: the kernel's own limit for the descriptors of a process (`fs.nr_open`).
pub(crate) const CONNECTIONS_MAX: u64 = 1 << 20;
/// Most rules for fields of requests, and of answers.
pub(crate) const RULES_MAX: usize = 64;
/// Largest limit for a request body.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 40;
/// Smallest limit of a head, and of a target: one that no usual request exceeds.
const HEAD_BYTES_MIN: u64 = 1024;
/// Largest limit of a head. One that arrives in small pieces is read again with each of them, so a larger
/// one would cost a thread more than the packets themselves.
const HEAD_BYTES_MAX: u64 = 256 * 1024;
/// Most fields of a head.
const FIELDS_MAX: u64 = 10_000;
/// Largest rate in bytes per second.
const RATE_BYTES_MAX: u64 = 1 << 30;
/// Shortest timeout: the loops' deadlines have a grain of a millisecond.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest timeout; a deadline further away protects nothing.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

table! { keys, key;
    /// A server's configuration.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ServeConfig {
        #[heading("Answer")]
        /// What is answered.
        pub answer: Answer = answers::answer(keys),
        /// What is added to answers.
        pub extras: Extras = Extras::read(keys),
        #[heading("Address")]
        /// HOST:PORT, :PORT (every address of this machine), [IPV6]:PORT or unix:PATH; repeatable;
        /// port 0 takes a free one
        pub listen: Vec<Address> =
            key.default("127.0.0.1:8080").list(&address(), 1..=ADDRESSES_MAX),
        /// Who may connect to its unix sockets.
        pub sockets: UnixSockets = UnixSockets::read(keys),
        /// Its certificate, where clients speak TLS at all addresses.
        pub tls: Option<tls::Keys> = certificate(keys),
        /// Whether and how its clients may speak HTTP/2.
        pub http2: Http2 = Http2::read(keys),
        /// The user that it becomes once its sockets are open; none for the one that started it.
        pub identity: Option<Identity> = identity(keys),
        #[heading("Sandbox")]
        /// What it gives up once it serves.
        pub sandbox: SandboxConfig = sandbox(keys),
        /// What runs it.
        pub loops: Loops = Loops::read(keys),
        #[heading("Limits")]
        /// Times and amounts.
        pub limits: Limits = Limits::read(keys),
        /// How it is watched.
        pub monitoring: Monitoring = Monitoring::read(keys),
        /// Count how long requests take inside the loop, for /metrics
        pub is_timing_requests as "request_times": bool =
            key.needs("stats", "applies only to /metrics").switch(),
    }
    => consistent
}

impl ServeConfig {
    /// Refuses addresses of which the kernel would say that one is in use, by another one of them. Where files
    /// are served, a page for errors lies below their folder, as that of --spa does.
    fn consistent(mut self, keys: &mut Keys<'_>) -> Self {
        note_overlap(keys, &self.listen, &self.monitoring);
        note_shared_paths(keys, &self.listen, &self.monitoring);
        note_unix_only(keys, &self.listen, &self.monitoring);
        if let Answer::Files(files) = &self.answer {
            for (_, page) in &mut self.extras.error_pages {
                // One that begins at the root stays as it is.
                *page = files.root.join(&*page);
            }
        }
        // Names of other servers for what has another one here.
        elsewhere(
            keys,
            &[
                ("root", "nginx's; the folder is dir"),
                ("gzip", "nginx's; text is compressed by compress = true"),
                ("gzip_static", "nginx's; files that lie ready are sent by precompressed = true"),
                ("autoindex", "nginx's; folders are listed by listing = true"),
                ("try_files", "nginx's; the page of an application is spa = \"index.html\""),
                ("add_header", "nginx's; fields are added by response_field = \"set NAME: VALUE\""),
            ],
        );
        foreign_keys(keys);
        self
    }
}

/// Names that other servers and proxies have for keys that both commands have.
pub(crate) fn foreign_keys(keys: &mut Keys<'_>) {
    elsewhere(
        keys,
        &[
            (
                "worker_processes",
                "nginx's; the number of threads is threads, or threads = \"auto\"",
            ),
            ("worker_cpu_affinity", "nginx's; threads are kept on CPUs by pin"),
            ("worker_connections", "nginx's; most connections are max_connections"),
            ("nbthread", "HAProxy's; the number of threads is threads"),
            ("maxconn", "HAProxy's; most connections are max_connections"),
            ("bind", "HAProxy's; the key of the address is listen"),
            ("port", "part of listen here, as in listen = \"127.0.0.1:8080\""),
            ("host", "part of listen here, as in listen = \"127.0.0.1:8080\""),
            ("client_max_body_size", "nginx's; the largest request body is max_body"),
            ("keepalive_timeout", "nginx's; the time between two requests is idle_timeout"),
            ("client_header_timeout", "nginx's; the time for a head is header_timeout"),
            ("client_body_timeout", "nginx's; the time for a body is body_timeout"),
            ("send_timeout", "nginx's; the time for a client that reads nothing is write_timeout"),
            ("ssl_certificate", "nginx's; the certificate is cert"),
            ("ssl_certificate_key", "nginx's; the key of the certificate is key"),
            ("pid", "nginx's; the file with the id of the process is pid_file"),
        ],
    );
}

/// Answers keys of other programs, each with whose it is and what it is here.
pub(crate) fn elsewhere(keys: &mut Keys<'_>, names: &'static [(&'static str, &'static str)]) {
    for (name, here) in names {
        keys.foreign(name, || format!("{name} is {here}"));
    }
}

/// Notes addresses of clients, and of endpoints, that take the connections of another one of them.
pub(crate) fn note_overlap(keys: &mut Keys<'_>, listen: &[Address], monitoring: &Monitoring) {
    if let Some(why) = overlap(listen) {
        keys.note("listen", why);
    }
    let control = monitoring.control.clone().map(|path| ListenAddress::Unix(path).into());
    let endpoints = [("stats", &monitoring.stats), ("control", &control)];
    let mut others: Vec<(&str, &Address)> =
        listen.iter().map(|address| ("listen", address)).collect();
    for (key, address) in endpoints {
        let Some(address) = address else { continue };
        let other = others.iter().find(|(_, other)| takes(other, address) || takes(address, other));
        if let Some((of, other)) = other {
            let what = if *other == address {
                format!("{address} is the address of {of} as well")
            } else {
                format!("{address} takes the same connections as {other} of {of}")
            };
            keys.note(key, format!("{what}; expected an address of its own"));
        }
        others.push((key, address));
    }
}

/// Notes what is said of unix sockets where clients and metrics have none.
pub(crate) fn note_unix_only(keys: &mut Keys<'_>, listen: &[Address], monitoring: &Monitoring) {
    let is_unix = |address: &Address| matches!(address, Address::Known(ListenAddress::Unix(_)));
    if !keys.is_right() || listen.iter().chain(&monitoring.stats).any(is_unix) {
        return;
    }
    for name in ["socket_mode", "socket_owner"] {
        if keys.has(name) {
            keys.note(name, "applies only to unix: addresses of listen and stats");
        }
    }
}

/// The first two of these addresses of which one takes the connections of the other.
fn overlap(listen: &[Address]) -> Option<String> {
    let all = listen.iter().enumerate();
    let (whole, part) = all.clone().find_map(|(at, whole)| {
        let part = all.clone().find(|(of, part)| *of != at && takes(whole, part));
        part.map(|(_, part)| (whole, part))
    })?;
    Some(if whole == part {
        format!("{part} is given twice; expected each address once")
    } else {
        format!("{whole} takes connections to {part} as well; expected one of the two")
    })
}

/// Whether connections to `part` reach `whole` too: `[::]` takes IPv4 as well, and `[::ffff:127.0.0.1]` is `127.0.0.1`.
pub(crate) fn takes(whole: &Address, part: &Address) -> bool {
    match (whole, part) {
        (Address::Known(ListenAddress::Tcp(whole)), Address::Known(ListenAddress::Tcp(part))) => {
            let ip = whole.ip().to_canonical();
            let of = part.ip().to_canonical();
            let is_every = match ip {
                IpAddr::V4(ip) => ip.is_unspecified() && of.is_ipv4(),
                IpAddr::V6(ip) => ip.is_unspecified(),
            };
            let is_same = whole == part || (ip.is_ipv4() && ip == of);
            whole.port() != 0 && whole.port() == part.port() && (is_same || is_every)
        }
        (Address::Name { port: 0, .. }, _) => false,
        (whole, part) => whole == part,
    }
}

table! { keys, key, default;
    /// Who may connect to the unix sockets at which clients come, and to that of the metrics.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct UnixSockets {
        /// Mode of unix sockets, in octal digits: who may write to one may connect. The control socket is
        /// 0600 always
        pub mode as "socket_mode": u32 = key.default("0666").one(&socket_mode()),
        /// Owner of unix sockets, by names or numbers; another user than the one that starts the server
        /// needs root
        pub owner as "socket_owner": Option<SocketOwner> =
            key.otherwise("the user that starts the server").optional(&socket_owner()),
    }
    => with_known_owner
}

impl UnixSockets {
    fn with_known_owner(self, keys: &mut Keys<'_>) -> Self {
        if let Some(owner) = &self.owner
            && let Err(why) = owner.is_known()
        {
            keys.note("socket_owner", why);
        }
        self
    }
}

fn socket_mode() -> Kind<u32> {
    Kind::new("MODE", "three or four octal digits up to 0777, such as 0660", |text| {
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok();
        mode.filter(|mode| is_octal && *mode <= 0o777).ok_or_else(String::new)
    })
}

fn socket_owner() -> Kind<SocketOwner> {
    Kind::new("USER:GROUP", "USER, USER:GROUP or :GROUP, by names or numbers", |text| {
        SocketOwner::read(text).ok_or_else(String::new)
    })
}

table! { keys, key, default;
    /// Whether and how clients may speak HTTP/2.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Http2 {
        /// Speak HTTP/1 alone; by default HTTP/2 is spoken as well, with clients that begin with its preface, and in
        /// TLS with those that ask for it (h2 by ALPN)
        pub is_off as "no_http2": bool = key.switch(),
        /// Most requests at once of a connection of HTTP/2
        pub streams_max as "http2_streams": u32 = key.default("100").one(&integer(1..=1000)),
        /// Requests after which a connection of HTTP/2 takes no more: its client opens another one
        pub requests_max as "http2_requests": u32 =
            key.default("10000").one(&integer(1..=1_000_000_000)),
    }
}

impl Http2 {
    /// What is announced to clients under these limits; none where it is not spoken.
    pub(crate) fn settings(&self, limits: &Limits) -> Option<h2::Settings> {
        let head_bytes = u32::try_from(limits.heads.bytes_max).unwrap_or(u32::MAX);
        let Self { streams_max, requests_max, .. } = *self;
        let settings =
            h2::Settings { streams_max, requests_max, head_bytes, ..h2::Settings::DEFAULT };
        (!self.is_off).then_some(settings)
    }

    /// What TLS offers, the best first.
    pub(crate) fn protocols(&self) -> &'static [&'static [u8]] {
        if self.is_off { &[HTTP_1_1] } else { &[HTTP_2, HTTP_1_1] }
    }
}

table! { keys, key, default;
    /// What runs a server.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Loops {
        #[heading("Loops")]
        /// Event mechanism: {names}
        pub poller: Option<Driver> =
            key.otherwise("the best that the kernel allows").optional(&driver()),
        /// Threads, each with a loop of its own
        pub threads: usize = key.default("1").one(&threads()),
        /// How threads share the address
        pub listeners: Listeners = key.default("reuseport").one(&listeners()),
        /// Pin the threads to these CPUs in turn, such as 0,2-3
        pub pin: Option<CpuList> =
            key.optional(&parsed("CPULIST", "CPUs such as \"0,2-3\"", str::parse)),
        /// Spin instead of sleeping: lower latency, a whole CPU per thread; on uring and uring-poll a
        /// spin is not a system call
        pub is_busy_polling as "busy_poll": bool = key.switch(),
        /// For measurements, changes nothing for clients: report errors, hang-ups and ends of stream as
        /// readable, and let the read return them; uring does so anyway
        pub masks_ends as "mask_ends": bool = key.switch(),
    }
}

impl Loops {
    /// Such loops on this driver, within these limits.
    pub(crate) fn group(
        &self,
        driver: Driver,
        limits: &pollux_engine::Limits,
    ) -> pollux_engine::GroupConfig {
        pollux_engine::GroupConfig {
            listen: Vec::new(),
            driver,
            threads: self.threads,
            listeners: self.listeners,
            cpus: self.pin.clone(),
            delays_small_writes: false,
            limits: pollux_engine::Limits {
                busy_poll: self.is_busy_polling,
                mask_ends: self.masks_ends,
                ..limits.clone()
            },
        }
    }

    /// How many threads, and how they share the address.
    pub(crate) fn summary(&self) -> String {
        match self.threads {
            1 => "1 thread".to_owned(),
            n => format!("{n} threads, {}", self.listeners),
        }
    }
}

table! { keys, key, default;
    /// Times and amounts that a client may take, whatever answers it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Limits {
        /// Most connections of clients at once, at least one for each thread; a proxy has as many to backends
        pub connections_max as "max_connections": Option<u32> = connections_max(key),
        /// Time for a whole request head
        pub header_timeout: Duration = key.default("10s").one(&timeout()),
        /// Time for a request body, and longest time without a byte of it; altogether longer while it
        /// arrives at --body-rate-min or faster. Of the body of a backend's response longest time without a byte
        pub body_timeout: Duration = key.default("30s").one(&timeout()),
        /// Least rate of a request body per second, once --body-timeout is over; a slower one gets 408;
        /// with 0 every body that takes longer than --body-timeout does
        pub body_rate_min_bytes as "body_rate_min": u64 = key.default("1KiB").one(&rate()),
        /// Time between two requests of a connection
        pub idle_timeout: Duration = key.default("60s").one(&timeout()),
        /// Longest time in which a client, or a backend, reads nothing of what was sent to it
        pub write_timeout: Duration = key.default("60s").one(&timeout()),
        /// Least rate per second at which a client reads its response; one that falls behind by more than
        /// 64KiB plus this rate times --write-timeout is closed; 0 for no minimum
        pub read_rate_min_bytes as "read_rate_min": u64 = key.default("1KiB").one(&rate()),
        /// Time that connections have to end after a first SIGTERM or SIGINT, and requests to backends after a
        /// reload
        pub drain_timeout: Duration = key.default("10s").one(&timeout()),
        /// Largest request body
        pub body_bytes_max as "max_body": Option<u64> = key
            .otherwise("1MiB where pollux answers itself, 1GiB where requests go to backends")
            .optional(&bytes(0..=BODY_BYTES_MAX)),
        /// How large heads may be.
        pub heads: HeadLimits = HeadLimits::read(keys),
    }
}

table! { keys, key, default;
    /// How large a head may be.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct HeadLimits {
        /// Largest head of a request (first line and fields), 414 or 431 beyond; for a proxy also of a
        /// response, 502 beyond. A connection in the middle of a head keeps at most twice as much
        pub bytes_max as "max_head": usize =
            key.default("40KiB").one(&bytes(HEAD_BYTES_MIN..=HEAD_BYTES_MAX)),
        /// Most fields of a request, 431 beyond; for a proxy also of a response, 502 beyond
        pub fields_max as "max_fields": usize = key.default("1000").one(&integer(1..=FIELDS_MAX)),
        /// Longest target of a request (path and query), 414 beyond
        pub target_bytes_max as "max_target": usize =
            key.default("8KiB").one(&bytes(HEAD_BYTES_MIN..=HEAD_BYTES_MAX)),
    }
}

impl Limits {
    /// Largest request body where pollux answers itself: nothing that answers there has a use for a larger one.
    pub(crate) fn own_body_bytes_max(&self) -> u64 {
        self.body_bytes_max.unwrap_or(1 << 20)
    }

    /// The same where requests go to backends, which have limits of their own.
    pub(crate) fn passed_body_bytes_max(&self) -> u64 {
        self.body_bytes_max.unwrap_or(1 << 30)
    }
}

impl HeadLimits {
    /// What is read by, with this limit of bodies.
    pub(crate) fn with_body(&self, body_bytes: u64) -> pollux_http::Limits {
        pollux_http::Limits {
            head_bytes: self.bytes_max,
            fields: self.fields_max,
            target_bytes: self.target_bytes_max,
            body_bytes,
            ..pollux_http::Limits::DEFAULT
        }
    }
}

table! { keys, key, default;
    /// How a server is watched.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Monitoring {
        #[heading("Monitoring")]
        /// Log every answer to this file, or to - (standard output)
        pub access_log: Option<LogTarget> = key.optional(&log_target("-", LogTarget::Stdout)),
        /// Form of the log
        pub access_log_format: LogFormat = key
            .default("common")
            .needs("access_log", "applies only to an access log")
            .one(&LogFormat::kind()),
        /// Write the error log to this file, or to standard error (stderr); SIGHUP opens it again
        pub error_log: LogTarget =
            key.default("stderr").one(&log_target("stderr", LogTarget::Stderr)),
        /// How much the error log says: error, warn, info or debug; error with --quiet
        pub log_level: LogLevel = key.default("warn").one(&LogLevel::kind()),
        /// Serve /metrics for Prometheus at this address, and /status, a live page
        pub stats: Option<Address> = key.optional(&address()),
        /// Answer commands (help, show info ...) at this socket
        pub control: Option<PathBuf> = key.optional(&unix_path()),
        /// Write the id of the process to this file, and remove it at the end
        pub pid_file: Option<PathBuf> = key.optional(&path()),
        /// Print nothing but errors
        pub is_quiet as "quiet": bool = key.short('q').switch(),
    }
    => with_level
}

impl Monitoring {
    /// A quiet server says errors alone, where its level is not said.
    fn with_level(self, keys: &mut Keys<'_>) -> Self {
        if self.is_quiet && !keys.has("log_level") {
            Self { log_level: LogLevel::Error, ..self }
        } else {
            self
        }
    }
}

/// Whether a server gives up what it does not need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SandboxMode {
    /// Nothing is given up.
    Off,
    /// As much as the kernel allows.
    Available,
    /// All of it, or the server does not start.
    Required,
}

/// What a server gives up once it serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxConfig {
    /// Whether it does.
    pub mode: SandboxMode,
    /// Folders that are in reach beside what the settings name, for what a reload may name.
    pub paths: Vec<PathBuf>,
    /// Whether what takes the place of a folder is out of reach.
    pub is_exact: bool,
}

fn sandbox(keys: &mut Keys<'_>) -> SandboxConfig {
    let about = "Run without the sandbox; by default the server restricts itself, once it serves, to the paths in \
                 its settings and to the system calls that it needs";
    let is_off = keys
        .key("no_sandbox", about)
        .excludes(&["require_sandbox", "sandbox_path", "sandbox_exact"])
        .switch();
    let about = "Do not start where the kernel lacks a part of the sandbox";
    let is_required = keys.key("require_sandbox", about);
    let is_required =
        is_required.otherwise("a part that it lacks is reported and left out").switch();
    let about =
        "Let the sandbox read below this folder too, for what a reload may name; repeatable";
    let paths = keys.key("sandbox_path", about).list(&path(), 0..=ADDRESSES_MAX);
    let about = "Keep the folders of the settings alone in reach, and not those that they lie in: what takes \
                 the place of a folder, or what another link leads to, needs a restart";
    let is_exact = keys.key("sandbox_exact", about).switch();
    let mode = match (is_off, is_required) {
        (true, _) => SandboxMode::Off,
        (false, true) => SandboxMode::Required,
        (false, false) => SandboxMode::Available,
    };
    SandboxConfig { mode, paths, is_exact }
}

/// The user that the server, or a worker of one with backends, becomes.
pub(crate) fn identity(keys: &mut Keys<'_>) -> Option<Identity> {
    let about = "Become this user, by name or number, once the sockets, the certificate and the error log are \
                 open";
    let user = keys.key("user", about).optional(&account("USER"));
    let group = keys.key("group", "With --user: in this group alone, by name or number");
    let group =
        group.otherwise("the groups of the user").needs("user", "applies only to a change of user");
    let group = group.optional(&account("GROUP"));
    let found = Identity::find(&user?, group.as_deref());
    found.map_err(|wrong| keys.note("user", wrong)).ok()
}

/// The certificate that clients are shown.
pub(crate) fn certificate(keys: &mut Keys<'_>) -> Option<tls::Keys> {
    let about = "Speak TLS to clients: a PEM file with the certificate and those that lead to an authority; \
                 a reload reads it again";
    let cert =
        keys.key("cert", about).needs("key", "a certificate needs its key").optional(&path());
    let key = keys.key("key", "The PEM file with the certificate's private key");
    let key = key.needs("cert", "belongs to a certificate").optional(&path());
    // One without the other was noted.
    cert.zip(key).map(|(cert, key)| tls::Keys { cert, key })
}

/// Most connections of clients at once; none for what the descriptor limit allows.
pub(crate) fn connections_max(key: Key<'_, '_>) -> Option<u32> {
    let key = key.otherwise("what the descriptor limit allows, at most 100000");
    key.optional(&integer(1..=CONNECTIONS_MAX))
}

/// Form of a line of the access log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// The NCSA common log format.
    Common,
    /// The same with the page that led there and the client's program behind it.
    Combined,
    /// One JSON object for each answer.
    Json,
}

impl LogFormat {
    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::Json => "json",
        }
    }

    fn kind() -> Kind<Self> {
        let combined = "with the page that led there and the client's program";
        let forms = [(Self::Common, ""), (Self::Combined, combined), (Self::Json, "")];
        one_of("form", forms.map(|(form, about)| (form.name(), about, form))).called("FORM")
    }
}

/// Where a log goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file that is appended to.
    File(PathBuf),
}

impl LogTarget {
    /// Its path, or the word that stands for it on the command line.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Stdout => "-".into(),
            Self::Stderr => "stderr".into(),
            Self::File(path) => path.clone(),
        }
    }

    /// The stream of this process that a path names, or that links lead to which stand there: opening it by its
    /// name fails where it is a socket, and for another user than the one that started the process.
    pub(crate) fn led_to(&self) -> Self {
        let Self::File(path) = self else { return self.clone() };
        let stream = |at: PathBuf| match at.to_str() {
            Some("/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => Some(Self::Stdout),
            Some("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2") => Some(Self::Stderr),
            _ => None,
        };
        links::hops(path).find_map(stream).unwrap_or_else(|| self.clone())
    }
}

/// Level of the error log; each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// What the server should have done and could not.
    Error,
    /// What costs clients time or answers, and has a remedy.
    Warn,
    /// What the server does by itself or by a signal.
    Info,
    /// What clients did wrong.
    Debug,
}

impl LogLevel {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Name on the command line and in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    fn kind() -> Kind<Self> {
        one_of("level", Self::ALL.map(|level| (level.name(), "", level))).called("LEVEL")
    }
}

pub(crate) fn timeout() -> Kind<Duration> {
    duration(TIMEOUT_MIN..=TIMEOUT_MAX)
}

pub(crate) fn rate() -> Kind<u64> {
    bytes(0..=RATE_BYTES_MAX)
}

/// A number, or one for each CPU that the process may use.
fn threads() -> Kind<usize> {
    let number = integer::<usize>(1..=THREADS_MAX);
    let accepts = format!("{}, or auto: one for each CPU", number.accepts());
    let read = move |text: &str| match text {
        "auto" => CpuList::allowed()
            .map(|cpus| cpus.as_slice().len())
            .map_err(|error| format!("the CPUs are not known ({error})")),
        text => number.read(text).map_err(|_| String::new()),
    };
    Kind::new("N", accepts, read).or_number().offering(["auto"])
}

fn driver() -> Kind<Driver> {
    one_of("poller", Driver::ALL.map(|driver| (driver.name(), "", driver)))
}

/// An address as people write it. Host names are looked up later.
pub(crate) fn address() -> Kind<Address> {
    let accepts = "HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH, such as 127.0.0.1:8080 or :8080";
    Kind::new("ADDRESS", accepts, read_address)
}

fn unix_path() -> Kind<PathBuf> {
    let accepts = "unix:PATH, such as unix:/run/pollux.sock";
    Kind::new("unix:PATH", accepts, |text| match read_address(text) {
        Ok(Address::Known(ListenAddress::Unix(path))) => Ok(path),
        Err(why) if text.starts_with("unix:") => Err(why),
        _ => Err(String::new()),
    })
}

pub(crate) fn read_address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|error| match error {
        ListenError::Address { why, .. } => why,
        other => other.to_string(),
    })
}

fn account(word: &'static str) -> Kind<String> {
    Kind::new(word, "a name or a number", |text| match text {
        "" => Err(String::new()),
        text if text.contains([':', '\n', ' ']) => Err(String::new()),
        text => Ok(text.to_owned()),
    })
}

fn listeners() -> Kind<Listeners> {
    let about = |listeners| match listeners {
        Listeners::Reuseport => {
            "a listener for each thread, the kernel spreads connections over them"
        }
        Listeners::Shared => "the same, and other processes of this user may listen there too",
        Listeners::Exclusive => "one listener that all threads watch, the kernel wakes one of them",
        Listeners::Single => {
            "the first thread accepts and hands each connection to the one with the fewest"
        }
    };
    let values = Listeners::ALL.map(|listeners| (listeners.name(), about(listeners), listeners));
    one_of("listener strategy", values).called("HOW")
}

/// A file, or the word that stands for a stream.
fn log_target(word: &'static str, stream: LogTarget) -> Kind<LogTarget> {
    Kind::new("FILE", format!("the path of a file, or {word}"), move |text| match text {
        text if text == word => Ok(stream.clone()),
        "" | "-" => Err(String::new()),
        path => Ok(LogTarget::File(PathBuf::from(path))),
    })
}

#[cfg(test)]
mod tests {
    //! The table of the server's settings: its page, defaults, and mistakes with their places.

    use pollux_settings::{Given, Table};

    use super::*;

    fn build(text: &str) -> Result<ServeConfig, String> {
        Given::from_toml(text, "p").read().map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn the_page_in_docs_is_the_one_of_the_table() {
        let page = pollux_settings::reference::<ServeConfig>();
        pollux_settings::kept("reference/serve-settings.md", "settings", &page)
            .expect("that of the table");
    }

    #[test]
    fn every_flag_and_key_takes_the_same_spellings() {
        assert_eq!(pollux_settings::misread::<ServeConfig>(), [""; 0]);
    }

    #[test]
    fn the_defaults_of_the_table_are_right() {
        let config = build("reply = 128").expect("defaults");
        assert_eq!(config.answer, Answer::Reply { len_bytes: 128, is_split: false });
        assert_eq!(config.listen, ["127.0.0.1:8080".parse().expect("an address")]);
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.limits.header_timeout, Duration::from_secs(10));
        assert_eq!(config.limits.own_body_bytes_max(), 1 << 20);
        assert_eq!((config.loops.threads, config.loops.listeners), (1, Listeners::Reuseport));
        assert!(
            config.monitoring.stats.is_none()
                && config.monitoring.control.is_none()
                && config.loops.poller.is_none()
        );
    }

    #[test]
    fn modes_and_owners_of_sockets_are_read_and_mistakes_in_them_reported() {
        let unix = build("reply = 1").expect("right").sockets;
        assert_eq!((unix.mode, unix.owner), (0o666, None));
        let unix =
            build("reply = 1\nlisten = \"unix:a\"\nsocket_mode = \"660\"\nsocket_owner = \":0\"");
        assert_eq!(unix.expect("right").sockets.mode, 0o660);
        for (text, expected) in [
            ("socket_mode = \"0888\"", "three or four octal digits"),
            ("socket_mode = \"1777\"", "three or four octal digits"),
            ("socket_mode = \"+66\"", "three or four octal digits"),
            ("socket_owner = \":\"", "USER, USER:GROUP or :GROUP"),
            ("socket_owner = \"a:b:c\"", "USER, USER:GROUP or :GROUP"),
            ("socket_owner = \":no-such-group\"", "there is no group no-such-group"),
            ("socket_owner = \"no-such-user\"", "there is no user no-such-user"),
        ] {
            let wrong = build(&format!("reply = 1\n{text}")).expect_err(text);
            assert!(wrong.contains(expected), "{wrong}");
        }
    }

    #[test]
    fn a_log_at_the_name_of_a_stream_is_the_stream_also_behind_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let led_to = |path: PathBuf| LogTarget::File(path).led_to();
        for (name, stream) in [("/dev/stdout", LogTarget::Stdout), ("/dev/fd/2", LogTarget::Stderr)]
        {
            assert_eq!(led_to(name.into()), stream);
            let _ = std::fs::remove_file(at("access.log"));
            std::os::unix::fs::symlink(name, at("access.log")).expect("linked");
            assert_eq!(led_to(at("access.log")), stream);
            assert_eq!(LogTarget::File(at("access.log")).path(), at("access.log"));
        }
        std::os::unix::fs::symlink("round", at("round")).expect("linked");
        for path in [at("round"), at("none"), "/dev/null".into()] {
            assert_eq!(led_to(path.clone()), LogTarget::File(path));
        }
    }

    #[test]
    fn addresses_that_take_the_connections_of_each_other_are_refused_with_both() {
        for (listen, message) in [
            ("\":81\", \"127.0.0.1:81\"", "[::]:81 takes connections to 127.0.0.1:81 as well"),
            ("\"0.0.0.0:81\", \"[::]:81\"", "[::]:81 takes connections to 0.0.0.0:81 as well"),
            ("\"127.0.0.1:81\", \"0.0.0.0:81\"", "0.0.0.0:81 takes connections to 127.0.0.1:81 as"),
            ("\"[::1]:81\", \"[::1]:81\"", "[::1]:81 is given twice; expected each address once"),
            ("\"unix:a\", \"unix:a\"", "unix:a is given twice"),
            (
                "\"[::ffff:127.0.0.1]:81\", \"127.0.0.1:81\"",
                "[::ffff:127.0.0.1]:81 takes connections to 127.0.0.1:81 as well",
            ),
            (
                "\"[::ffff:0.0.0.0]:81\", \"127.0.0.1:81\"",
                "takes connections to 127.0.0.1:81 as well",
            ),
        ] {
            let wrong = build(&format!("reply = 1\nlisten = [{listen}]")).expect_err(listen);
            assert!(wrong.contains(message), "{wrong}");
        }
        let wrong = build("reply = 1\nlisten = \"127.0.0.1:81\"\nstats = \"127.0.0.1:81\"");
        assert_eq!(
            wrong.expect_err("the same"),
            "p:3:9: stats: 127.0.0.1:81 is the address of listen as well; expected an address of its own"
        );
        build("reply = 1\nlisten = \":0\"\nstats = \"127.0.0.1:0\"").expect("two ports");
        for listen in [
            "\":0\", \":0\"",
            "\"127.0.0.1:81\", \"127.0.0.2:81\", \"[::1]:81\"",
            "\"0.0.0.0:81\", \"[::1]:81\"",
            "\":81\", \":82\", \"unix:a\", \"unix:b\"",
        ] {
            build(&format!("reply = 1\nlisten = [{listen}]")).expect(listen);
        }
    }

    #[test]
    fn a_file_can_say_everything() {
        let text = "dir = \"/srv\"\nlisting = true\nlisten = [\"[::1]:0\", \"unix:/s\"]\n\
                poller = \"epoll-et\"\nthreads = 2\nlisteners = \"single\"\npin = \"0-1\"\n\
                busy_poll = true\nmax_connections = 9\nidle_timeout = \"500ms\"\n\
                max_body = \"64KiB\"\naccess_log = \"-\"\naccess_log_format = \"json\"\n\
                stats = \"127.0.0.1:0\"\ncontrol = \"unix:/c\"\nquiet = true";
        let config = build(text).expect("right");
        assert_eq!(config.listen.len(), 2);
        assert_eq!(config.loops.pin.expect("given").as_slice(), [0, 1]);
        assert_eq!(config.limits.connections_max, Some(9));
        assert_eq!(config.monitoring.access_log, Some(LogTarget::Stdout));
        assert_eq!(config.loops.poller.map(Driver::name), Some("epoll-et"));
        let Answer::Files(Files { listing_max, has_precompressed, .. }) = config.answer else {
            panic!("files were asked for");
        };
        assert!(listing_max == Some(10_000) && !has_precompressed);
    }

    #[test]
    fn the_error_log_has_warnings_on_standard_error_unless_it_is_to_be_quiet() {
        let of = |text: &str| {
            let config = build(&format!("reply = 1\n{text}")).expect("right");
            (config.monitoring.error_log, config.monitoring.log_level)
        };
        assert_eq!(of(""), (LogTarget::Stderr, LogLevel::Warn));
        assert_eq!(of("quiet = true"), (LogTarget::Stderr, LogLevel::Error));
        assert_eq!(of("quiet = true\nlog_level = \"info\"").1, LogLevel::Info);
        let file = of("error_log = \"/e\"\nlog_level = \"debug\"");
        assert_eq!(file, (LogTarget::File("/e".into()), LogLevel::Debug));
        assert!(build("reply = 1\nlog_level = \"loud\"").is_err());
    }

    #[test]
    fn every_wrong_value_is_reported_at_once() {
        let message = build("reply = 1\nthreads = 0\nidle_timeout = \"5\"\npoller = \"kqueue\"");
        let pollers = Driver::ALL.map(Driver::name).join(", ");
        let expected = format!(
            "p:2:11: threads = 0: expected a whole number from 1 to 1,024, or auto: one for each CPU\n\
             p:3:16: idle_timeout = \"5\": a number without its unit; expected a duration from 1ms to \
             24h, such as 500ms, 10s or 1m30s\n\
             p:4:10: poller = \"kqueue\": no such poller; expected {pollers}"
        );
        assert_eq!(message.expect_err("three mistakes"), expected);
    }

    /// A key without effect misleads the user: each either acts by itself or is refused.
    /// A new key has to be put into one of the two lists.
    fn acts_alone_or_is_refused<T: Table>(base: &str, alone: &[&str], bound: &[&str]) {
        let description = pollux_settings::describe::<T>();
        let names: Vec<_> = description.flags().map(|row| row.name).collect();
        let of_bound = |text: &&str| text.split(' ').next().expect("a name").to_owned();
        for name in &names {
            let is_bound = bound.iter().map(of_bound).any(|bound| bound == **name);
            assert!(is_bound != alone.contains(name), "{name} is in one of the two lists");
        }
        for text in bound {
            let name = of_bound(text);
            assert!(names.contains(&&*name), "{name} is a key no more");
            let read = Given::from_toml(&format!("{text}\n{base}"), "p").read::<T>();
            let wrong =
                read.err().unwrap_or_else(|| panic!("{text}: without effect, and accepted"));
            let wrong = wrong.to_string();
            assert!(wrong.starts_with("p:1:") && wrong.contains(&name), "{text}: {wrong}");
        }
    }

    #[test]
    fn no_setting_of_a_server_or_a_proxy_is_accepted_without_effect() {
        const OF_BOTH: [&str; 23] = [
            "user",
            "listen",
            "poller",
            "threads",
            "listeners",
            "pin",
            "busy_poll",
            "mask_ends",
            "max_connections",
            "max_head",
            "max_fields",
            "max_target",
            "header_timeout",
            "write_timeout",
            "drain_timeout",
            "access_log",
            "error_log",
            "log_level",
            "stats",
            "control",
            "no_http2",
            "http2_streams",
            "http2_requests",
        ];
        let alone = [
            &OF_BOTH[..],
            &[
                "dir",
                "reply",
                "echo",
                "response_field",
                "error_page",
                "no_sandbox",
                "require_sandbox",
                "sandbox_path",
                "sandbox_exact",
                "body_timeout",
                "body_rate_min",
                "idle_timeout",
                "read_rate_min",
                "max_body",
                "pid_file",
                "quiet",
            ],
        ];
        acts_alone_or_is_refused::<ServeConfig>(
            "echo = true",
            &alone.concat(),
            &[
                "split_reply = true",
                "listing = true",
                "listing_max = 5",
                "socket_mode = \"0600\"",
                "socket_owner = \"0\"",
                "precompressed = true",
                "spa = \"x\"",
                "compress = true",
                "cors = \"*\"",
                "cert = \"x\"",
                "key = \"x\"",
                "group = \"0\"",
                "access_log_format = \"json\"",
                "request_times = true",
            ],
        );
        let alone = [
            &OF_BOTH[..],
            &[
                "mode",
                "certs",
                "accept_proxy",
                "x_forwarded",
                "forwarded",
                "request_field",
                "response_field",
                "backend",
                "balance",
                "sticky",
                "health_check",
                "slow_start",
                "fall",
                "send_proxy",
                "tls",
                "protocol",
                "server_max_connections",
                "let_go_at_once",
                "idle_timeout",
                "connect_timeout",
                "first_byte_timeout",
                "body_timeout",
                "body_rate_min",
                "request_timeout",
                "tunnel_timeout",
                "tunnel_drain_timeout",
                "tunnel_workers_max",
                "read_rate_min",
                "upstream_idle_timeout",
                "max_body",
                "upstream_idle_max",
                "upstream_idle_total",
                "http2_waiting_max",
                "queue_max",
                "half_close",
                "pid_file",
                "quiet",
            ],
        ];
        acts_alone_or_is_refused::<ProxyConfig>(
            "[[server]]\naddress = \"127.0.0.1:9\"",
            &alone.concat(),
            &[
                "cert = \"x\"",
                "key = \"x\"",
                "socket_mode = \"0600\"",
                "socket_owner = \"0\"",
                "health_path = \"/\"",
                "health_host = \"a\"",
                "health_service = \"a\"",
                "health_interval = \"1s\"",
                "health_timeout = \"1s\"",
                "rise = 2",
                "sticky_cookie = \"a\"",
                "sticky_same_site = \"lax\"",
                "down_time = \"1s\"\nhealth_check = \"tcp\"",
                "sni = \"a\"",
                "ca = \"x\"",
                "verify = \"none\"",
                "access_log_format = \"json\"",
                "group = \"0\"",
                "pipes_max = 4\ncert = \"x\"\nkey = \"x\"",
                "lookup_interval = \"1s\"",
                "queue_timeout = \"1s\"\nqueue_max = 0",
            ],
        );
    }

    #[test]
    fn threads_may_be_as_many_as_cpus() {
        let cpus = CpuList::allowed().expect("known").as_slice().len();
        let threads = |text: &str| build(&format!("reply = 1\nthreads = {text}"));
        assert_eq!(threads("\"auto\"").expect("right").loops.threads, cpus);
        assert_eq!(threads("3").expect("right").loops.threads, 3);
        threads("\"many\"").expect_err("no number");
    }

    #[test]
    fn keys_of_nginx_are_answered_with_those_here() {
        let wrong = build("root = \"/srv\"\ngzip = true\nworker_processes = 4\nreply = 1");
        assert_eq!(
            wrong.expect_err("three"),
            "p:1:1: root is nginx's; the folder is dir\n\
             p:2:1: gzip is nginx's; text is compressed by compress = true\n\
             p:3:1: worker_processes is nginx's; the number of threads is threads, or threads = \"auto\""
        );
    }

    #[test]
    fn pages_for_errors_lie_below_the_folder_as_that_of_an_application_does() {
        let pages = |text: &str| build(text).expect("right").extras.error_pages;
        let both = "error_page = [\"404 404.html\", \"503 /etc/down.html\"]";
        let below = |name: &str| (404, PathBuf::from(name));
        let absolute = (503, PathBuf::from("/etc/down.html"));
        let files = pages(&format!("dir = \"/srv\"\n{both}"));
        assert_eq!(files, [below("/srv/404.html"), absolute.clone()]);
        assert_eq!(pages(&format!("reply = 1\n{both}")), [below("404.html"), absolute]);
    }

    #[test]
    fn exactly_one_answer_is_wanted() {
        assert!(build("").expect_err("none").starts_with("nothing to answer with"));
        assert!(build("echo = false").expect_err("none").starts_with("nothing to answer with"));
        let two = build("dir = \"x\"\nreply = 1").expect_err("two");
        assert_eq!(two, "p:1:7: dir: can't be combined with reply; expected one of them");
        assert!(
            build("reply = 1\necho = true").expect_err("two").contains("can't be combined with")
        );
        let message = build("echo = true\nlisting = true").expect_err("no files");
        assert_eq!(message, "p:2:11: listing: applies only to files; expected dir as well");
        let message = build("echo = true\nsplit_reply = true").expect_err("no fixed reply");
        assert!(message.contains("expected reply as well"), "{message}");
    }

    #[test]
    fn a_flag_for_the_answer_replaces_every_answer_of_the_file() {
        let file = "dir = \"/srv\"\nlisting = true\nthreads = 2\nlisten = \"127.0.0.1:1\"";
        let mut flags = Given::default();
        flags.flag("echo", vec!["true".to_owned()]);
        flags.flag("threads", vec!["3".to_owned()]);
        let config: ServeConfig = flags.over(Given::from_toml(file, "p")).read().expect("right");
        assert_eq!((config.answer, config.loops.threads), (Answer::Echo, 3));
        assert_eq!(config.listen[0].to_string(), "127.0.0.1:1");
    }
}
