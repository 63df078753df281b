//! Every setting of the server: flags, keys of the file, help and defaults.
//!
//! A key is asked for where what it says goes; what must hold between keys stands below them.

use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{CpuList, Driver, Listeners};
use pollux_settings::{
    Keys, Kind, Table, address, bytes, duration, one_of, parsed, path, unix_path, whole,
};

use super::{
    Answer, Extras, Files, Limits, LogFormat, LogLevel, LogTarget, Loops, ServeConfig, Watching,
};
use crate::common_fields::FIELDS_BYTES_MAX;
use crate::rules::FieldRule;
use crate::system::Identity;
use crate::tls;

/// Most threads; one per CPU of the largest machines.
const THREADS_MAX: u64 = 1024;
/// Most addresses; each costs a descriptor in each loop.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// Most connections: the kernel's own limit for the descriptors of a process (`fs.nr_open`).
pub(crate) const CONNECTIONS_MAX: u64 = 1 << 20;
/// Most rules for fields of requests, and of answers.
pub(crate) const RULES_MAX: usize = 64;
/// Most origins: each request with one is compared with all.
const ORIGINS_MAX: usize = 64;
/// Most pages for errors; there are fewer codes that the server answers with.
const ERROR_PAGES_MAX: usize = 64;
/// Largest fixed reply.
const REPLY_BYTES_MAX: u64 = 1 << 30;
/// Largest limit for a request body.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 40;
/// Largest rate in bytes per second.
const RATE_BYTES_MAX: u64 = 1 << 30;
/// Shortest timeout: the loops' deadlines have a grain of a millisecond.
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest timeout; a deadline further away protects nothing.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Table for ServeConfig {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let answer = answer(keys);
        let extras = extras(keys);
        keys.heading("Address");
        let listen = keys
            .key(
                "listen",
                "HOST:PORT, :PORT (every address of this machine), [IPV6]:PORT or unix:PATH; \
                 repeatable; port 0 takes a free one",
            )
            .default("127.0.0.1:8080")
            .list(&address(), 1..=ADDRESSES_MAX);
        let tls = tls(keys);
        let identity = identity(keys);
        let loops = Loops::read(keys);
        keys.heading("Limits");
        let limits = Limits::read(keys);
        let watching = Watching::read(keys);
        let is_timing_requests = keys
            .key("request_times", "Count how long requests take inside the loop, for /metrics")
            .switch();
        Some(Self {
            answer: answer?,
            extras: extras?,
            listen: listen?,
            tls: tls?,
            identity: identity?,
            loops: loops?,
            limits: limits?,
            watching: watching?,
            is_timing_requests: is_timing_requests?,
        })
    }
}

impl Table for Loops {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        keys.heading("Loops");
        let poller = keys
            .key(
                "poller",
                "Event mechanism: select, poll, aio, epoll, epoll-et, epoll-oneshot, uring-poll or \
                 uring",
            )
            .otherwise("the best that the kernel allows")
            .optional(&one_of("poller", Driver::ALL.map(|driver| (driver.name(), "", driver))));
        let threads = keys
            .key("threads", "Threads, each with a loop of its own")
            .default("1")
            .one(&whole(1..=THREADS_MAX));
        let listeners = keys
            .key("listeners", "How threads share the address")
            .default("reuseport")
            .one(&listeners());
        let pin = keys
            .key("pin", "Pin the threads to these CPUs in turn, such as 0,2-3")
            .optional(&parsed("CPULIST", "CPUs such as \"0,2-3\"", str::parse::<CpuList>));
        let is_busy_polling = keys
            .key("busy_poll", "Spin instead of sleeping: lower latency, a whole CPU per thread")
            .switch();
        let masks_ends = keys
            .key(
                "mask_ends",
                "Take error, hang-up and end of stream for readable, so that the read alone tells; uring \
                 does so anyway",
            )
            .switch();
        Some(Self {
            poller: poller?,
            threads: threads?,
            listeners: listeners?,
            pin: pin?,
            is_busy_polling: is_busy_polling?,
            masks_ends: masks_ends?,
        })
    }
}

impl Table for Watching {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        keys.heading("Watching");
        let access_log = keys
            .key("access_log", "Log every answer to this file, or to - (standard output)")
            .optional(&log_target("-", LogTarget::Stdout));
        let forms = [
            ("common", "", LogFormat::Common),
            (
                "combined",
                "with the page that led there and the client's program",
                LogFormat::Combined,
            ),
            ("json", "", LogFormat::Json),
        ];
        let access_log_format = keys
            .key("access_log_format", "Form of the log")
            .default("common")
            .one(&one_of("form", forms).called("FORM"));
        let error_log = keys
            .key(
                "error_log",
                "Say what goes wrong in this file, or on standard error (stderr); SIGHUP opens it \
                 again",
            )
            .default("stderr")
            .one(&log_target("stderr", LogTarget::Stderr));
        let log_level = keys
            .key(
                "log_level",
                "How much the error log says: error, warn, info or debug; error with --quiet",
            )
            .default("warn")
            .one(
                &one_of("level", LogLevel::ALL.map(|level| (level.name(), "", level)))
                    .called("LEVEL"),
            );
        let stats =
            keys.key("stats", "Serve /metrics for Prometheus at this address, and of a proxy /status, a live page").optional(&address());
        let control = keys
            .key("control", "Answer commands (help, show info ...) at this socket")
            .optional(&unix_path());
        let pid_file = keys
            .key("pid_file", "Write the id of the process to this file, and remove it at the end")
            .optional(&path());
        let is_quiet = keys.key("quiet", "Print nothing but errors").switch();
        let is_level_given = keys.has("log_level");
        let is_quiet = is_quiet?;
        Some(Self {
            access_log: access_log?,
            access_log_format: access_log_format?,
            error_log: error_log?,
            log_level: if is_quiet && !is_level_given { LogLevel::Error } else { log_level? },
            stats: stats?,
            control: control?,
            pid_file: pid_file?,
            is_quiet,
        })
    }
}

impl Table for Limits {
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let timeout = duration(TIMEOUT_MIN..=TIMEOUT_MAX);
        let rate = bytes(0..=RATE_BYTES_MAX);
        let connections_max = keys
            .key("max_connections", "Most connections at once, at least one for each thread")
            .otherwise("what the descriptor limit allows, at most 100000")
            .optional(&whole(1..=CONNECTIONS_MAX));
        let header_timeout = keys
            .key("header_timeout", "Time for a whole request head")
            .default("10s")
            .one(&timeout);
        let body_timeout = keys
            .key("body_timeout", "Time for a request body, beside what --body-rate-min allows")
            .default("10s")
            .one(&timeout);
        let body_rate_min_bytes = keys
            .key(
                "body_rate_min",
                "Bodies slower than this per second are refused with 408 once --body-timeout is \
                 over; with 0 all that take longer",
            )
            .default("1KiB")
            .one(&rate);
        let idle_timeout = keys
            .key("idle_timeout", "Time between two requests of a connection")
            .default("60s")
            .one(&timeout);
        let write_timeout = keys
            .key(
                "write_timeout",
                "Longest time in which a client takes nothing of what was sent to it",
            )
            .default("60s")
            .one(&timeout);
        let read_rate_min_bytes = keys
            .key(
                "read_rate_min",
                "Least output that a client takes per second while some waits for it; it may be \
                 behind by 64KiB and what this makes in --write-timeout; 0 for any",
            )
            .default("1KiB")
            .one(&rate);
        let drain_timeout = keys
            .key(
                "drain_timeout",
                "Time that connections have to end after a first SIGTERM or SIGINT",
            )
            .default("10s")
            .one(&timeout);
        let body_bytes_max = keys
            .key("max_body", "Largest request body")
            .default("1MiB")
            .one(&bytes(0..=BODY_BYTES_MAX));
        Some(Self {
            header_timeout: header_timeout?,
            body_timeout: body_timeout?,
            body_rate_min_bytes: body_rate_min_bytes?,
            idle_timeout: idle_timeout?,
            write_timeout: write_timeout?,
            read_rate_min_bytes: read_rate_min_bytes?,
            drain_timeout: drain_timeout?,
            body_bytes_max: body_bytes_max?,
            connections_max: connections_max?,
        })
    }
}

/// Exactly one of the three kinds, with what belongs to it.
fn answer(keys: &mut Keys<'_>) -> Option<Answer> {
    let (files, fixed) = ("it is about files", "it is about the fixed reply");
    keys.heading("Answer");
    let dir = keys
        .key("dir", "Serve the files below this folder")
        .positional()
        .excludes(&["reply", "echo"])
        .optional(&path().called("DIR"));
    let reply = keys
        .key("reply", "Answer every request with a fixed body of this size")
        .excludes(&["echo"])
        .optional(&bytes(0..=REPLY_BYTES_MAX));
    let is_split = keys
        .key(
            "split_reply",
            "With --reply: head and body in two writes and no TCP_NODELAY, to show what that costs",
        )
        .needs("reply", fixed)
        .switch();
    let is_echo = keys.key("echo", "Answer every request with its own body").switch();
    let has_listing =
        keys.key("listing", "List folders that have no index.html").needs("dir", files).switch();
    let has_precompressed = keys
        .key("precompressed", "Serve FILE.br, FILE.zst or FILE.gz to clients that take it")
        .needs("dir", files)
        .switch();
    let spa = keys
        .key(
            "spa",
            "Send this file below the folder, with 200, where there is none and the last part of the path \
             has no dot: for applications in one page",
        )
        .needs("dir", files)
        .optional(&path());
    if !["dir", "reply", "echo"].iter().any(|name| keys.has(name)) {
        keys.refuse("nothing to answer with; expected a folder, --reply SIZE or --echo");
    }
    let (has_listing, has_precompressed, spa) = (has_listing?, has_precompressed?, spa?);
    match (dir?, reply?, is_echo?) {
        (Some(root), ..) => {
            Some(Answer::Files(Files { root, has_listing, has_precompressed, spa }))
        }
        (None, Some(len_bytes), _) => Some(Answer::Reply { len_bytes, is_split: is_split? }),
        (None, None, true) => Some(Answer::Echo),
        (None, None, false) => None,
    }
}

/// The user that the server goes on as.
fn identity(keys: &mut Keys<'_>) -> Option<Option<Identity>> {
    let user = keys
        .key(
            "user",
            "Go on as this user, by name or number, once the sockets, the certificate and the error log \
             are open",
        )
        .optional(&account("USER"));
    let group = keys
        .key("group", "With --user: in this group alone, by name or number")
        .otherwise("the groups of the user")
        .needs("user", "it is about the user")
        .optional(&account("GROUP"));
    let (user, group) = (user?, group?);
    let Some(user) = user else { return Some(None) };
    match Identity::find(&user, group.as_deref()) {
        Ok(identity) => Some(Some(identity)),
        Err(wrong) => {
            keys.note("user", wrong);
            None
        }
    }
}

fn account(word: &'static str) -> Kind<String> {
    Kind::new(word, "a name or a number", |text| match text {
        "" => Err(String::new()),
        text if text.contains([':', '\n', ' ']) => Err(String::new()),
        text => Ok(text.to_owned()),
    })
}

/// The certificate that clients are shown.
pub(crate) fn tls(keys: &mut Keys<'_>) -> Option<Option<tls::Keys>> {
    let cert = keys
        .key(
            "cert",
            "Speak TLS to clients: a PEM file with the certificate and those that lead to an authority; \
             a reload reads it again",
        )
        .needs("key", "it is no use without its key")
        .optional(&path());
    let key = keys
        .key("key", "The PEM file with the certificate's private key")
        .needs("cert", "it is of a certificate")
        .optional(&path());
    let (cert, key) = (cert?, key?);
    // One without the other was noted.
    Some(cert.zip(key).map(|(cert, key)| tls::Keys { cert, key }))
}

/// What is added to answers of every kind.
fn extras(keys: &mut Keys<'_>) -> Option<Extras> {
    let fields = keys
        .key("response_field", "What is done to a field of every answer; repeatable, in this order")
        .list(&field_rule(own_rule), 0..=RULES_MAX);
    let cors = keys
        .key(
            "cors",
            "Let pages of this origin read the answers, such as https://app.example; repeatable; * for all",
        )
        .needs("dir", "it is about files")
        .list(&origin(), 0..=ORIGINS_MAX);
    let error_pages = keys
        .key(
            "error_page",
            "Send this file with answers of this status; it is read at the start and at each reload; \
             repeatable",
        )
        .list(&error_page(), 0..=ERROR_PAGES_MAX);
    let (fields, cors, error_pages) = (fields?, cors?, error_pages?);
    if cors.len() > 1 && cors.iter().any(|origin| origin == "*") {
        keys.note("cors", "* stands for all; expected it alone");
    }
    let added = |rule: &FieldRule| rule.to_string().len();
    let bytes = fields.iter().map(added).chain(cors.iter().map(String::len)).sum::<usize>();
    if bytes > FIELDS_BYTES_MAX / 2 {
        let most = FIELDS_BYTES_MAX / 2;
        keys.note("response_field", format!("{bytes} bytes in all; expected at most {most}"));
    }
    Some(Extras { fields, cors, error_pages })
}

/// `set NAME: VALUE` and the like.
pub(crate) fn field_rule(read: fn(&str) -> Result<FieldRule, String>) -> Kind<FieldRule> {
    let accepts = "\"set NAME: VALUE\", \"add NAME: VALUE\" or \"remove NAME\"";
    Kind::new("RULE", accepts, read)
}

/// A rule for answers of the server's own making: what it says of a file stays true.
fn own_rule(text: &str) -> Result<FieldRule, String> {
    /// Written by the server from what it sends.
    const OWN: [&str; 12] = [
        "accept-ranges",
        "access-control-allow-origin",
        "access-control-expose-headers",
        "allow",
        "content-encoding",
        "content-range",
        "content-type",
        "etag",
        "last-modified",
        "location",
        "retry-after",
        "vary",
    ];
    let rule = FieldRule::read(text)?;
    let name = rule.name().to_ascii_lowercase();
    let is_vary_added = name == "vary" && matches!(rule, FieldRule::Add(..));
    let is_server = name == "server" && !matches!(rule, FieldRule::Add(..));
    match &rule {
        _ if is_vary_added || is_server => Ok(rule),
        FieldRule::Remove(_) => Err("only Server can be removed".to_owned()),
        _ if name == "server" => {
            Err("an answer has one Server field; expected set or remove".to_owned())
        }
        _ if OWN.contains(&&*name) => Err(format!("the server writes {name} itself")),
        _ => Ok(rule),
    }
}

/// `*` or an origin as browsers send it (RFC 6454 6.2): scheme, host, and a port that is not usual.
fn origin() -> Kind<String> {
    Kind::new("ORIGIN", "* or an origin such as https://app.example", |text| {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b':' | b'[' | b']' | b'_');
        match host {
            Some(host) if !host.is_empty() && host.bytes().all(is_plain) => Ok(text.to_owned()),
            _ if text == "*" => Ok(text.to_owned()),
            Some(_) => {
                Err("an origin is in small letters and ends behind host and port".to_owned())
            }
            None => Err(String::new()),
        }
    })
}

/// `STATUS FILE`.
fn error_page() -> Kind<(u16, PathBuf)> {
    Kind::new(
        "'STATUS FILE'",
        "a status from 400 to 599 and a file, such as \"404 404.html\"",
        |text| {
            let (status, path) = text.split_once(' ').ok_or_else(String::new)?;
            let status: u16 = status.parse().map_err(|_| String::new())?;
            let path = path.trim();
            if !(400..=599).contains(&status) || path.is_empty() {
                return Err(String::new());
            }
            Ok((status, PathBuf::from(path)))
        },
    )
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
    use pollux_engine::ListenAddress;
    use pollux_settings::Given;

    use super::*;

    fn build(text: &str) -> Result<ServeConfig, String> {
        Given::from_toml(text, "p").read().map_err(|mistakes| mistakes.to_string())
    }

    /// What stands above the keys on their page.
    const HEAD: &str = "\
# Settings of `pollux serve`

Each is a key of the file that `--config FILE` names and a flag of the same name, and means the same
in both; a flag wins over the file. The file is TOML:

```toml
dir = \"site\"
listen = [\"[::]:8080\", \"unix:/run/pollux.sock\"]
idle_timeout = \"30s\"
precompressed = true
```

A key that is not known is a mistake, and all mistakes are told at once, each with its line. This page
is made from the table that the program reads by.
";

    #[test]
    fn the_page_in_docs_is_the_one_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve-settings.md");
        let page = format!("{HEAD}{}", pollux_settings::reference::<ServeConfig>());
        pollux_settings::kept(path.as_ref(), &page).expect("the page is that of the table");
    }

    #[test]
    fn the_defaults_of_the_table_are_right() {
        let config = build("reply = 128").expect("defaults");
        assert_eq!(config.answer, Answer::Reply { len_bytes: 128, is_split: false });
        assert_eq!(
            config.listen,
            [ListenAddress::Tcp("127.0.0.1:8080".parse().expect("an address"))]
        );
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.limits.header_timeout, Duration::from_secs(10));
        assert_eq!(config.limits.body_bytes_max, 1 << 20);
        assert_eq!((config.loops.threads, config.loops.listeners), (1, Listeners::Reuseport));
        assert!(
            config.watching.stats.is_none()
                && config.watching.control.is_none()
                && config.loops.poller.is_none()
        );
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
        assert_eq!(config.watching.access_log, Some(LogTarget::Stdout));
        assert_eq!(config.loops.poller.map(Driver::name), Some("epoll-et"));
        let Answer::Files(Files { has_listing, has_precompressed, .. }) = config.answer else {
            panic!("files were asked for");
        };
        assert!(has_listing && !has_precompressed);
    }

    #[test]
    fn the_error_log_is_told_warnings_on_standard_error_unless_it_is_to_be_quiet() {
        let of = |text: &str| {
            let config = build(&format!("reply = 1\n{text}")).expect("right");
            (config.watching.error_log, config.watching.log_level)
        };
        assert_eq!(of(""), (LogTarget::Stderr, LogLevel::Warn));
        assert_eq!(of("quiet = true"), (LogTarget::Stderr, LogLevel::Error));
        assert_eq!(of("quiet = true\nlog_level = \"info\"").1, LogLevel::Info);
        let file = of("error_log = \"/e\"\nlog_level = \"debug\"");
        assert_eq!(file, (LogTarget::File("/e".into()), LogLevel::Debug));
        assert!(build("reply = 1\nlog_level = \"loud\"").is_err());
    }

    #[test]
    fn every_wrong_value_is_told_at_once() {
        let told = build("reply = 1\nthreads = 0\nidle_timeout = \"5\"\npoller = \"kqueue\"");
        assert_eq!(
            told.expect_err("three mistakes"),
            "p:2:11: threads = 0: expected a whole number from 1 to 1,024\n\
             p:3:16: idle_timeout = \"5\": a number without its unit; expected a duration from 1ms to \
             24h, such as 500ms, 10s or 1m30s\n\
             p:4:10: poller = \"kqueue\": no such poller; expected select, poll, aio, epoll, \
             epoll-et, epoll-oneshot, uring-poll, uring"
        );
    }

    #[test]
    fn exactly_one_answer_is_wanted() {
        assert!(build("").expect_err("none").starts_with("nothing to answer with"));
        assert!(build("echo = false").expect_err("none").starts_with("nothing to answer with"));
        let two = build("dir = \"x\"\nreply = 1").expect_err("two");
        assert_eq!(two, "p:1:7: dir: can't stand beside reply; expected one of them");
        assert!(build("reply = 1\necho = true").expect_err("two").contains("can't stand beside"));
        let told = build("echo = true\nlisting = true").expect_err("no files");
        assert_eq!(told, "p:2:11: listing: it is about files; expected dir as well");
        let told = build("echo = true\nsplit_reply = true").expect_err("no fixed reply");
        assert!(told.contains("expected reply as well"), "{told}");
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
