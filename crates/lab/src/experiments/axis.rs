//! The axes of the experiments as data: names, meanings, accepted values, defaults.
//!
//! A list of values for one axis makes a point of the plan for each value. The table is read by
//! the job parser, the command line, the documentation and the experiments themselves.

use std::fmt;

use super::Generator;
use crate::experiments::herd::Source;

/// One thing that can be varied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Key in a job file; the flag is the same with `-` for `_`.
    pub name: &'static str,
    /// What it sets, in one line.
    pub about: &'static str,
    /// The option of the original program, where there is one.
    pub original: Option<&'static str>,
    /// Which values are accepted.
    pub kind: AxisKind,
    /// The value, or values, when nothing is said.
    pub default: &'static [&'static str],
}

/// Which values an axis accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AxisKind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// One of these words, or a whole number from the first to the second.
    WordOrCount(&'static [&'static str], u64, u64),
    /// `true` or `false`; never a list.
    Switch,
    /// `true`, `false` or a list of both.
    Either,
    /// What a request asks for: it begins with `/`.
    Path,
}

/// Streams: descriptors are bounded by RLIMIT_NOFILE later, in the plan.
pub(super) const STREAMS: &[Axis] = &[
    Axis {
        name: "transport",
        about: "what a stream is: a pipe, an AF_UNIX socketpair, a TCP connection on loopback",
        original: Some("-u, -i"),
        kind: AxisKind::Word(&["pipe", "unix", "tcp"]),
        default: &["pipe"],
    },
    Axis {
        name: "nfds",
        about: "number of streams",
        original: Some("-n"),
        kind: AxisKind::Count(1, 500_000),
        default: &["2000"],
    },
    Axis {
        name: "ready",
        about: "streams that are ready whenever the reader looks, so that it is known how many events \
                a wait finds; free lets a writer run against the reader, as the original does, and \
                measures the rate",
        original: None,
        kind: AxisKind::WordOrCount(&[super::streams::ALL, super::streams::FREE], 1, 500_000),
        default: &["16"],
    },
    Axis {
        name: "maxevents",
        about: "most events that one wait may return",
        original: Some("-e"),
        kind: AxisKind::Count(1, 65_536),
        default: &["1024"],
    },
    Axis {
        name: "yield_below",
        about: "the reader yields the CPU after a wait that returned fewer events than this",
        original: Some("-l"),
        kind: AxisKind::Count(0, 65_536),
        default: &["1000"],
    },
    Axis {
        name: "cpus",
        about: "where the two threads run: split gives each a CPU of its own, free leaves it to \
                the scheduler, as the original does",
        original: None,
        kind: AxisKind::Word(&["split", "free"]),
        default: &["split"],
    },
    Axis {
        name: "no_poller",
        about: "two more arms: cyclic instead of random writes with the baseline's poller, and \
                cyclic writes with blocking reads and no poller",
        original: Some("-f"),
        kind: AxisKind::Switch,
        default: &["false"],
    },
];

/// Pipes: two descriptors each.
pub(super) const PIPES: &[Axis] = &[
    Axis {
        name: "pipes",
        about: "number of pipes, all watched",
        original: Some("num_pipes"),
        kind: AxisKind::Count(2, 500_000),
        default: &["10", "100", "500", "1000", "2000", "4000", "8000", "16000"],
    },
    Axis {
        name: "rule",
        about: "where a token goes next: hopping over the whole set (2002), or always the same \
                pipe near the end of the set (fixed, 2006)",
        original: None,
        kind: AxisKind::Word(&["fixed", "hopping"]),
        default: &["fixed", "hopping"],
    },
    Axis {
        name: "messages",
        about: "tokens under way at once; pipetest calls them message threads",
        original: Some("message_threads"),
        kind: AxisKind::Count(1, 1024),
        default: &["1"],
    },
    Axis {
        name: "message_bytes",
        about: "size of a token on its way; at least the 16 bytes that it consists of",
        original: Some("--bufsize"),
        kind: AxisKind::Count(16, 4096),
        default: &["16"],
    },
];

/// Chain: two descriptors for each pair.
pub(super) const CHAIN: &[Axis] = &[
    Axis {
        name: "pairs",
        about: "number of socket pairs, one end of each watched",
        original: Some("-n"),
        kind: AxisKind::Count(1, 250_000),
        default: &["100", "1000"],
    },
    Axis {
        name: "active",
        about: "bytes under way at once, spread over the pairs",
        original: Some("-a"),
        kind: AxisKind::Count(1, 250_000),
        default: &["100"],
    },
    Axis {
        name: "writes",
        about: "writes that follow in each round: for each byte read one goes to the next pair, \
                until they are used up",
        original: Some("-w"),
        kind: AxisKind::Count(1, 1_000_000),
        default: &["10000"],
    },
];

/// Http: the server's descriptors are its connections.
pub(super) const HTTP: &[Axis] = &[
    Axis {
        name: "connections",
        about: "connections of the load generator, each with its next request as soon as the last \
                is answered",
        original: Some("ab -c"),
        kind: AxisKind::Count(1, 60_000),
        default: &["64", "256", "1000"],
    },
    Axis {
        name: "pipeline",
        about: "requests that a connection sends at once",
        original: None,
        kind: AxisKind::Count(1, 256),
        default: &["1"],
    },
    Axis {
        name: "keepalive",
        about: "whether connections are kept; without (--no-keepalive), each request has its own",
        original: Some("ab -k"),
        kind: AxisKind::Either,
        default: &["true"],
    },
    Axis {
        name: "dead",
        about: "connections beside the active ones that send one request and are silent then",
        original: Some("deadconn"),
        kind: AxisKind::Count(0, 500_000),
        default: &["0"],
    },
    Axis {
        name: "reply_bytes",
        about: "length of the body of each reply",
        original: Some("dphttpd --msgsize"),
        kind: AxisKind::Count(1, 65_536),
        default: &["128"],
    },
    Axis {
        name: "path",
        about: "what is asked for; servers of your own may answer elsewhere than at /",
        original: None,
        kind: AxisKind::Path,
        default: &["/"],
    },
    Axis {
        name: "reply",
        about: "how pollux sends it: in one write (whole), or head and body in two without \
                TCP_NODELAY (split), a classic mistake whose cost is judged by the rate",
        original: None,
        kind: AxisKind::Word(&["whole", "split"]),
        default: &["whole"],
    },
    Axis {
        name: "generator",
        about: "what makes the load; wrk and ab repeat a figure with other people's tools",
        original: None,
        kind: AxisKind::Word(Generator::NAMES),
        default: &["pollux"],
    },
];

/// Herd: a process for each worker, a thread for each caller.
pub(super) const HERD: &[Axis] = &[
    Axis {
        name: "source",
        about: "what all workers wait for: a POSIX message queue, a listening TCP socket, an \
                eventfd that counts what lies in a pipe, a pipe",
        original: None,
        kind: AxisKind::Word(Source::NAMES),
        default: &["queue"],
    },
    Axis {
        name: "workers",
        about: "processes that wait",
        original: Some("min and max of its server"),
        kind: AxisKind::Count(1, 1000),
        default: &["1", "16", "50", "100", "250"],
    },
    Axis {
        name: "callers",
        about: "threads of one process, each with its next call as soon as the last is answered",
        original: None,
        kind: AxisKind::Count(1, 64),
        default: &["10"],
    },
    Axis {
        name: "calls",
        about: "calls that each caller makes, however long that takes; 0 for as many as the window \
                has time for",
        original: Some("100,000"),
        kind: AxisKind::Count(0, 10_000_000),
        default: &["0"],
    },
];

impl Axis {
    /// The name as a command-line flag, without the dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The accepted values in words.
    #[must_use]
    pub fn accepts(&self) -> String {
        match self.kind {
            AxisKind::Word(words) => words.join(", "),
            AxisKind::Count(low, high) => format!("a whole number from {low} to {high}"),
            AxisKind::WordOrCount(words, low, high) => {
                format!("a whole number from {low} to {high}, {}", words.join(", "))
            }
            AxisKind::Switch => "true or false".to_owned(),
            AxisKind::Either => "true, false".to_owned(),
            AxisKind::Path => "a path such as /x, in ASCII and without spaces".to_owned(),
        }
    }

    /// Checks one value and gives it in its canonical form.
    ///
    /// # Errors
    /// [`AxisValueError`] with what would be right.
    pub fn check(&self, value: &str) -> Result<String, AxisValueError> {
        let is_right = match self.kind {
            AxisKind::Word(words) => words.contains(&value),
            AxisKind::Switch | AxisKind::Either => matches!(value, "true" | "false"),
            AxisKind::Path => {
                value.starts_with('/')
                    && value.bytes().all(|byte| byte.is_ascii_graphic() && !b",#".contains(&byte))
            }
            AxisKind::WordOrCount(words, ..) if words.contains(&value) => true,
            AxisKind::Count(low, high) | AxisKind::WordOrCount(_, low, high) => {
                let number = value.replace('_', "").parse::<u64>();
                if let Ok(number) = number
                    && (low..=high).contains(&number)
                {
                    return Ok(number.to_string());
                }
                false
            }
        };
        let wrong =
            || AxisValueError { axis: self.name, value: value.to_owned(), accepts: self.accepts() };
        if is_right { Ok(value.to_owned()) } else { Err(wrong()) }
    }
}

/// A value that an axis does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisValueError {
    axis: &'static str,
    value: String,
    accepts: String,
}

impl fmt::Display for AxisValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = \"{}\" is not accepted; expected {}", self.axis, self.value, self.accepts)
    }
}

impl std::error::Error for AxisValueError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_accepted_by_its_own_axis() {
        for axis in STREAMS.iter().chain(PIPES).chain(CHAIN).chain(HTTP).chain(HERD) {
            for value in axis.default {
                assert_eq!(axis.check(value).as_deref(), Ok(*value), "{}", axis.name);
            }
        }
    }

    #[test]
    fn a_wrong_value_is_answered_with_the_right_ones() {
        let error = STREAMS[0].check("tpc").expect_err("no such transport");
        assert_eq!(
            error.to_string(),
            "transport = \"tpc\" is not accepted; expected pipe, unix, tcp"
        );
    }

    #[test]
    fn counts_may_carry_underscores_and_keep_their_bounds() {
        assert_eq!(STREAMS[1].check("2_000").as_deref(), Ok("2000"));
        assert!(STREAMS[1].check("0").is_err());
    }
}
