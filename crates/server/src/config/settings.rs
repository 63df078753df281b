//! Every setting of the server: one table for flags, keys of the file, help and defaults.
//!
//! The command line makes its flags from it, the reader of files its keys. What a value means is
//! decided in `build.rs`; nothing is read or opened here.

/// How often and with what a setting is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// One value.
    Value,
    /// One value or several.
    List,
    /// On or off.
    Switch,
}

/// One setting: `--header-timeout` on the command line is `header_timeout` in a file.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name of the flag without its dashes.
    pub name: &'static str,
    /// What stands behind it.
    pub takes: Takes,
    /// Placeholder of the value in help texts.
    pub value: &'static str,
    /// Default as it would be written; empty when there is none, or when it depends on others.
    pub default: &'static str,
    /// Heading in help texts.
    pub heading: &'static str,
    /// What it does, in one line; values that need a word, in a line each behind it.
    pub about: &'static str,
}

impl Setting {
    /// The key in a file.
    #[must_use]
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// The setting called `name`, written as flag or as key.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key() == name.replace('-', "_"))
    }
}

const ANSWER: &str = "Answer";
const PLACE: &str = "Address";
const LOOPS: &str = "Loops";
const LIMITS: &str = "Limits";
const WATCH: &str = "Watching";

const fn value(
    heading: &'static str,
    name: &'static str,
    value: &'static str,
    default: &'static str,
    about: &'static str,
) -> Setting {
    Setting { name, takes: Takes::Value, value, default, heading, about }
}

const fn switch(heading: &'static str, name: &'static str, about: &'static str) -> Setting {
    Setting { name, takes: Takes::Switch, value: "", default: "false", heading, about }
}

/// All settings, in the order of the help text.
pub const SETTINGS: &[Setting] = &[
    value(ANSWER, "dir", "DIR", "", "Serve the files below this folder"),
    value(ANSWER, "reply", "SIZE", "", "Answer every request with a fixed body of this size"),
    switch(
        ANSWER,
        "split-reply",
        "With --reply: head and body in two writes and no TCP_NODELAY, to show what that costs",
    ),
    switch(ANSWER, "echo", "Answer every request with its own body"),
    switch(ANSWER, "listing", "List folders that have no index.html"),
    switch(ANSWER, "precompressed", "Serve FILE.br, FILE.zst or FILE.gz to clients that take it"),
    Setting {
        name: "listen",
        takes: Takes::List,
        value: "ADDRESS",
        default: "127.0.0.1:8080",
        heading: PLACE,
        about: "HOST:PORT, :PORT (every address of this machine), [IPV6]:PORT or unix:PATH; repeatable; port 0 takes a free one",
    },
    value(
        LOOPS,
        "poller",
        "NAME",
        "",
        "Event mechanism: select, poll, aio, epoll, epoll-et, epoll-oneshot, uring-poll or uring [default: the best that the kernel allows]",
    ),
    value(LOOPS, "threads", "N", "1", "Threads, each with a loop of its own"),
    value(
        LOOPS,
        "listeners",
        "HOW",
        "reuseport",
        "How threads share the address
reuseport: a listener for each thread, the kernel spreads connections over them
shared: the same, and other processes of this user may listen there too
exclusive: one listener that all threads watch, the kernel wakes one of them
single: the first thread accepts and hands each connection to the one with the fewest",
    ),
    value(LOOPS, "pin", "CPULIST", "", "Pin the threads to these CPUs in turn, such as 0,2-3"),
    switch(LOOPS, "busy-poll", "Spin instead of sleeping: lower latency, a whole CPU per thread"),
    value(
        LIMITS,
        "max-connections",
        "N",
        "",
        "Most connections at once, at least one for each thread [default: what the descriptor limit allows, at most 100000]",
    ),
    value(LIMITS, "header-timeout", "TIME", "10s", "Time for a whole request head"),
    value(
        LIMITS,
        "body-timeout",
        "TIME",
        "10s",
        "Time for a request body, beside what --body-rate-min allows",
    ),
    value(
        LIMITS,
        "body-rate-min",
        "SIZE",
        "1KiB",
        "Bodies slower than this per second are refused with 408 once --body-timeout is over; with 0 all that take longer",
    ),
    value(LIMITS, "idle-timeout", "TIME", "60s", "Time between two requests of a connection"),
    value(
        LIMITS,
        "write-timeout",
        "TIME",
        "60s",
        "Longest time in which a client takes nothing of what was sent to it",
    ),
    value(
        LIMITS,
        "read-rate-min",
        "SIZE",
        "1KiB",
        "Least output that a client takes per second while some waits for it; it may be behind by 64KiB and what this makes in --write-timeout; 0 for any",
    ),
    value(
        LIMITS,
        "drain-timeout",
        "TIME",
        "10s",
        "Time that connections have to end after a first SIGTERM or SIGINT",
    ),
    value(LIMITS, "max-body", "SIZE", "1MiB", "Largest request body"),
    value(
        WATCH,
        "access-log",
        "FILE",
        "",
        "Log every answer to this file, or to - (standard output)",
    ),
    value(WATCH, "access-log-format", "FORM", "common", "Form of the log: common or json"),
    value(
        WATCH,
        "error-log",
        "FILE",
        "stderr",
        "Say what goes wrong in this file, or on standard error (stderr); SIGHUP opens it again",
    ),
    value(
        WATCH,
        "log-level",
        "LEVEL",
        "warn",
        "How much the error log says: error, warn, info or debug; error with --quiet",
    ),
    value(WATCH, "stats", "ADDRESS", "", "Serve /metrics for Prometheus at this address"),
    value(
        WATCH,
        "control",
        "unix:PATH",
        "",
        "Answer commands (help, show info ...) at this socket",
    ),
    switch(WATCH, "request-times", "Count how long requests take inside the loop, for /metrics"),
    switch(WATCH, "quiet", "Print nothing but errors"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_flag_and_by_key() {
        for setting in SETTINGS {
            let by_flag = Setting::find(setting.name).expect("by flag");
            let by_key = Setting::find(&setting.key()).expect("by key");
            assert_eq!((by_flag.name, by_key.name), (setting.name, setting.name));
        }
        assert!(Setting::find("user").is_none());
    }
}
