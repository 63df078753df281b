//! Judges what was given: texts in, a [`ServeConfig`] or every mistake out.
//!
//! Defaults are the texts of the table and are read in the same way, so what the help says is
//! what happens.

use std::path::PathBuf;
use std::time::Duration;

use pollux_engine::{CpuList, Driver, ListenAddress, Listeners};

use super::mistake::{ConfigError, Mistake, Place};
use super::settings::Setting;
use super::values;
use super::{Answer, Given, Limits, LogFormat, LogLevel, LogTarget, ServeConfig};

/// Most threads; one per CPU of the largest machines.
const THREADS_MAX: u64 = 1024;
/// Most addresses; each costs a descriptor in each loop.
const ADDRESSES_MAX: usize = 64;
/// Most connections: the kernel's own limit for the descriptors of a process (`fs.nr_open`).
const CONNECTIONS_MAX: u64 = 1 << 20;
/// Largest fixed reply.
const REPLY_BYTES_MAX: u64 = 1 << 30;
/// Largest limit for a request body.
const BODY_BYTES_MAX: u64 = 1 << 40;
/// Largest rate in bytes per second.
const RATE_BYTES_MAX: u64 = 1 << 30;
/// Shortest timeout: the loops' deadlines have a grain of a millisecond.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest timeout; a deadline further away protects nothing.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Given {
    /// The configuration that was given, with defaults for the rest.
    ///
    /// # Errors
    /// Every mistake, each with its place and with what would be right.
    pub fn build(&self) -> Result<ServeConfig, ConfigError> {
        let mut reader = Reader { given: self, mistakes: Vec::new() };
        let config = reader.config();
        let mut mistakes = self.mistakes().to_vec();
        // What a broken file did not say is no mistake of its own.
        let is_told = |found: &Mistake| self.mistakes().is_empty() || found.place != Place::Whole;
        mistakes.extend(reader.mistakes.into_iter().filter(is_told));
        mistakes.sort_by_key(|mistake| mistake.place.order());
        match config {
            Some(config) if mistakes.is_empty() => Ok(config),
            _ => Err(ConfigError { mistakes }),
        }
    }
}

/// The limits of a server that was told none.
pub(super) fn default_limits() -> Limits {
    let given = Given::default();
    Reader { given: &given, mistakes: Vec::new() }.limits().expect("the table's defaults are right")
}

/// Reads setting after setting and keeps the mistakes.
struct Reader<'a> {
    given: &'a Given,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    /// None only when a mistake was noted.
    fn config(&mut self) -> Option<ServeConfig> {
        let answer = self.answer();
        let limits = self.limits();
        let listen = self.listen();
        let stats = self.optional("stats", values::address);
        let control = self.optional("control", values::unix_path);
        let poller = self
            .optional("poller", |text| text.parse::<Driver>().map_err(|error| error.to_string()));
        let threads = self.one("threads", |text| values::whole(text, 1, THREADS_MAX));
        let listeners = self.one("listeners", str::parse::<Listeners>);
        let pin =
            self.optional("pin", |text| text.parse::<CpuList>().map_err(|error| error.to_string()));
        let is_busy_polling = self.one("busy-poll", values::switch);
        let access_log = self.optional("access-log", log_target);
        let access_log_format = self.one("access-log-format", |text| {
            values::word(text, &[("common", LogFormat::Common), ("json", LogFormat::Json)])
        });
        let error_log = self.one("error-log", error_log_target);
        let log_level = self.log_level();
        let is_timing_requests = self.one("request-times", values::switch);
        let is_quiet = self.one("quiet", values::switch);
        Some(ServeConfig {
            answer: answer?,
            listen: listen?,
            poller: poller?,
            threads: usize::try_from(threads?).expect("bounded"),
            listeners: listeners?,
            pin: pin?,
            is_busy_polling: is_busy_polling?,
            limits: limits?,
            access_log: access_log?,
            access_log_format: access_log_format?,
            error_log: error_log?,
            log_level: log_level?,
            stats: stats?,
            control: control?,
            is_timing_requests: is_timing_requests?,
            is_quiet: is_quiet?,
        })
    }

    fn limits(&mut self) -> Option<Limits> {
        let timeout = |text: &str| values::duration(text, TIMEOUT_MIN, TIMEOUT_MAX);
        let rate = |text: &str| values::size(text, 0, RATE_BYTES_MAX);
        let header_timeout = self.one("header-timeout", timeout);
        let body_timeout = self.one("body-timeout", timeout);
        let body_rate_min_bytes = self.one("body-rate-min", rate);
        let idle_timeout = self.one("idle-timeout", timeout);
        let write_timeout = self.one("write-timeout", timeout);
        let read_rate_min_bytes = self.one("read-rate-min", rate);
        let drain_timeout = self.one("drain-timeout", timeout);
        let body_bytes_max = self.one("max-body", |text| values::size(text, 0, BODY_BYTES_MAX));
        let connections_max = self.optional("max-connections", |text| {
            let number = values::whole(text, 1, CONNECTIONS_MAX)?;
            Ok(u32::try_from(number).expect("bounded"))
        });
        Some(Limits {
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

    /// What was given; a server that is to be quiet says errors only.
    fn log_level(&mut self) -> Option<LogLevel> {
        let is_quiet = self.text("quiet") == Some("true") && !self.given.has("log-level");
        let words = LogLevel::ALL.map(|level| (level.name(), level));
        let level = self.one("log-level", |text| values::word(text, &words))?;
        Some(if is_quiet { LogLevel::Error } else { level })
    }

    /// Exactly one of the three kinds, with what belongs to it.
    fn answer(&mut self) -> Option<Answer> {
        let dir = self.optional("dir", |text| Ok(PathBuf::from(text)))?;
        let reply = self.optional("reply", |text| values::size(text, 0, REPLY_BYTES_MAX))?;
        let is_split = self.one("split-reply", values::switch)?;
        let is_echo = self.one("echo", values::switch)?;
        let has_listing = self.one("listing", values::switch)?;
        let has_precompressed = self.one("precompressed", values::switch)?;
        if dir.is_none() {
            for name in ["listing", "precompressed"] {
                if self.given.has(name) {
                    self.note(name, "is about files; expected to name a folder as well");
                }
            }
        }
        if reply.is_none() && self.given.has("split-reply") {
            self.note("split-reply", "is about the fixed reply; expected to give --reply as well");
        }
        match (dir, reply, is_echo) {
            (Some(root), None, false) => {
                Some(Answer::Files { root, has_listing, has_precompressed })
            }
            (None, Some(len_bytes), false) => Some(Answer::Reply { len_bytes, is_split }),
            (None, None, true) => Some(Answer::Echo),
            (None, None, false) => {
                self.whole("nothing to answer with; expected a folder, --reply SIZE or --echo");
                None
            }
            (_, reply, _) => {
                let name = if reply.is_some() { "reply" } else { "echo" };
                self.note(name, "more than one answer; expected a folder, --reply SIZE or --echo");
                None
            }
        }
    }

    fn listen(&mut self) -> Option<Vec<ListenAddress>> {
        let name = "listen";
        let default = [Setting::find(name).expect("a setting").default.to_owned()];
        let given = self.given;
        let texts = given.texts(name).map_or(default.as_slice(), |(texts, _)| texts);
        let read: Vec<_> = texts.iter().map(|text| (text, values::address(text))).collect();
        let mut found = Vec::new();
        for (text, address) in read {
            found.push(self.noted(name, text, address)?);
        }
        if (1..=ADDRESSES_MAX).contains(&found.len()) {
            return Some(found);
        }
        self.note(name, &format!("expected 1 to {ADDRESSES_MAX} addresses"));
        None
    }

    /// The value of a setting that has a default.
    fn one<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let default = Setting::find(name).expect("a setting").default;
        let text = self.text(name).unwrap_or(default).to_owned();
        self.noted(name, &text, read(&text))
    }

    /// The value of a setting that may be missing; none when it is wrong.
    fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Option<T>> {
        let Some(text) = self.text(name).map(str::to_owned) else { return Some(None) };
        self.noted(name, &text, read(&text)).map(Some)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.given.texts(name).and_then(|(texts, _)| texts.last()).map(String::as_str)
    }

    fn noted<T>(&mut self, name: &str, text: &str, read: Result<T, String>) -> Option<T> {
        read.map_err(|right| self.note(name, &format!("\"{text}\": {right}"))).ok()
    }

    fn note(&mut self, name: &str, message: &str) {
        let place = self.given.texts(name).map(|(_, place)| place.clone());
        let message = match place {
            Some(Place::File { .. }) => format!("{}: {message}", name.replace('-', "_")),
            _ => message.to_owned(),
        };
        self.mistakes.push(Mistake { place: place.unwrap_or(Place::Whole), message });
    }

    fn whole(&mut self, message: &str) {
        self.mistakes.push(Mistake { place: Place::Whole, message: message.to_owned() });
    }
}

fn log_target(text: &str) -> Result<LogTarget, String> {
    match text {
        "" => Err("expected the path of a file, or - for standard output".to_owned()),
        "-" => Ok(LogTarget::Stdout),
        path => Ok(LogTarget::File(PathBuf::from(path))),
    }
}

fn error_log_target(text: &str) -> Result<LogTarget, String> {
    match text {
        "" | "-" => Err("expected the path of a file, or stderr".to_owned()),
        "stderr" => Ok(LogTarget::Stderr),
        path => Ok(LogTarget::File(PathBuf::from(path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(text: &str) -> Result<ServeConfig, String> {
        Given::from_toml(text, "p").build().map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_of_the_table_are_right() {
        let config = build("reply = 128").expect("defaults");
        assert_eq!(config.answer, Answer::Reply { len_bytes: 128, is_split: false });
        assert_eq!(
            config.listen,
            [ListenAddress::Tcp("127.0.0.1:8080".parse().expect("an address"))]
        );
        assert_eq!(config.limits.header_timeout, Duration::from_secs(10));
        assert_eq!(config.limits.body_bytes_max, 1 << 20);
        assert_eq!((config.threads, config.listeners), (1, Listeners::Reuseport));
        assert!(config.stats.is_none() && config.control.is_none() && config.poller.is_none());
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
        assert_eq!(config.pin.expect("given").as_slice(), [0, 1]);
        assert_eq!(config.limits.connections_max, Some(9));
        assert_eq!(config.access_log, Some(LogTarget::Stdout));
        assert_eq!(config.poller.map(Driver::name), Some("epoll-et"));
        let Answer::Files { has_listing, has_precompressed, .. } = config.answer else {
            panic!("files were asked for");
        };
        assert!(has_listing && !has_precompressed);
    }

    #[test]
    fn the_error_log_is_told_warnings_on_standard_error_unless_it_is_to_be_quiet() {
        let of = |text: &str| {
            let config = build(&format!("reply = 1\n{text}")).expect("right");
            (config.error_log, config.log_level)
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
        let told = told.expect_err("three mistakes");
        assert_eq!(told.lines().count(), 3, "{told}");
        assert!(told.contains("p:2:11: threads: \"0\": expected a whole number from 1"), "{told}");
        assert!(told.contains("p:3:16: idle_timeout: \"5\": expected a duration"), "{told}");
        assert!(told.contains("no poller is called \"kqueue\""), "{told}");
    }

    #[test]
    fn exactly_one_answer_is_wanted() {
        assert!(build("").expect_err("none").contains("nothing to answer with"));
        let two = build("dir = \"x\"\nreply = 1").expect_err("two");
        assert!(two.starts_with("p:2:9: reply: more than one answer"), "{two}");
        assert!(build("reply = 1\necho = true").expect_err("two").contains("more than one"));
        assert!(build("echo = true\nlisting = true").expect_err("no files").contains("a folder"));
        assert!(build("echo = false").is_err());
    }
}
