//! Every setting of the server: flags, keys of the file, help and defaults.
//!
//! A key is asked for where what it says goes; what must hold between keys stands below them.

mod answers;

use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{CpuList, Driver, Listeners};
use pollux_settings::{
    Keys, Kind, Table, address, bytes, duration, one_of, parsed, path, unix_path, whole,
};

use super::{
    Limits, LogFormat, LogLevel, LogTarget, Loops, SandboxConfig, SandboxMode, ServeConfig,
    Watching,
};
use crate::system::Identity;
use crate::tls;
pub(crate) use answers::field_rule;
use answers::{answer, extras};

/// Most threads; one per CPU of the largest machines.
const THREADS_MAX: u64 = 1024;
/// Most addresses; each costs a descriptor in each loop.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// Most connections: the kernel's own limit for the descriptors of a process (`fs.nr_open`).
pub(crate) const CONNECTIONS_MAX: u64 = 1 << 20;
/// Most rules for fields of requests, and of answers.
pub(crate) const RULES_MAX: usize = 64;
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
        let sandbox = sandbox(keys);
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
            sandbox: sandbox?,
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
            .key(
                "busy_poll",
                "Spin instead of sleeping: lower latency, a whole CPU per thread; on uring and uring-poll \
                 a spin is no system call",
            )
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

/// What the server gives up.
fn sandbox(keys: &mut Keys<'_>) -> Option<SandboxConfig> {
    keys.heading("Sandbox");
    let is_off = keys
        .key(
            "no_sandbox",
            "Give up nothing; else a server that serves reaches only the paths that its settings name, and \
             makes only the system calls that serving takes",
        )
        .excludes(&["require_sandbox", "sandbox_path"])
        .switch();
    let is_required = keys
        .key("require_sandbox", "Do not start where the kernel lacks a part of the sandbox")
        .otherwise("what it lacks is told and left out")
        .switch();
    let paths = keys
        .key(
            "sandbox_path",
            "Let the sandbox read below this folder too, for what a reload may name; repeatable",
        )
        .list(&path(), 0..=ADDRESSES_MAX);
    let mode = match (is_off?, is_required?) {
        (true, _) => SandboxMode::Off,
        (false, true) => SandboxMode::Required,
        (false, false) => SandboxMode::Available,
    };
    Some(SandboxConfig { mode, paths: paths? })
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
        .needs("key", "a certificate needs its key")
        .optional(&path());
    let key = keys
        .key("key", "The PEM file with the certificate's private key")
        .needs("cert", "it is of a certificate")
        .optional(&path());
    let (cert, key) = (cert?, key?);
    // One without the other was noted.
    Some(cert.zip(key).map(|(cert, key)| tls::Keys { cert, key }))
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

    use super::super::{Answer, Files};
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
