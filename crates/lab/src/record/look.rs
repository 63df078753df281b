//! What a first look at an arm found, before anything was planned: how it starts, what it answers, what it can't do.
//!
//! The look is made once for each server that a user brought (`run::before_plan`). The plan is made from it: what an arm
//! can't do is not asked of it, and what it takes in time is counted on.

use std::time::Duration;

use pollux_report::number;
use serde::{Deserialize, Serialize};

use crate::axis::{Axes, PROCESSES};

/// Axes that say how a server is asked; the others say what is started, and asked for. A test wants each axis of `http` and
/// `proxy` named as one or the other.
const OF_LOAD: [&str; 10] = [
    "connections",
    "pipeline",
    "streams",
    "keepalive",
    "dead",
    "resumption",
    "reply",
    "generator",
    "differing",
    PROCESSES,
];
/// Times from which on they are worth a word of their own.
const SLOW_START_S: f64 = 1.0;
const SLOW_WAVE_S: f64 = 0.2;
/// What a server prints within a look beyond which that is worth a word.
const MUCH_PRINTED_BYTES: u64 = 1 << 20;

/// What a first look at an arm found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Name of the experiment.
    pub experiment: String,
    pub arm: String,
    /// What was started and asked for, as far as the experiment varies it.
    pub axes: Axes,
    /// Why it can't be measured, with the last that it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// From its start to its first answer; none of one that ran before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_s: Option<f64>,
    /// From the order to end to its end; none of one that ran before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_s: Option<f64>,
    /// Status of its first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Length of its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    /// Whether its answers come in chunks.
    #[serde(default)]
    pub is_chunked: bool,
    /// Whether it answers a second request on the same connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps_connections: Option<bool>,
    /// Whether its first answer says so.
    #[serde(default)]
    pub says_it_keeps: bool,
    /// Whether it answers several requests that are sent at once; none where that is not asked of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipelines: Option<bool>,
    /// Whether it serves a connection while another is open; none where that does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves_several: Option<bool>,
    /// Connections that may wait until it accepts them; none where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u32>,
    /// How long the quickest of its first answers took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_s: Option<f64>,
    /// How many connections asked at once then, once each.
    #[serde(default)]
    pub wave_requests: u64,
    /// How long it took to answer all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_s: Option<f64>,
    #[serde(default)]
    pub processes: u32,
    /// Whether the process that was started has left, and another one answers.
    #[serde(default)]
    pub is_daemon: bool,
    /// What it printed meanwhile.
    #[serde(default)]
    pub printed_bytes: u64,
    /// Whether it did not end when it was asked to, and was killed.
    #[serde(default)]
    pub was_killed: bool,
    /// What else a reader has to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// How long an arm takes at a point, as a look at it says. What else is found out about an arm's time before a set is
/// planned belongs here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArmTimes {
    /// From its start to its first answer.
    pub start: Duration,
    /// From the order to end to its end.
    pub end: Duration,
    /// Whether it has to be killed then.
    pub was_killed: bool,
    /// One request on each connection, all at once.
    pub wave: Duration,
    /// A request of a wave.
    pub request: Duration,
}

impl Look {
    /// The axes of a point that say what is started, and asked for.
    #[must_use]
    pub fn axes_of(axes: &Axes) -> Axes {
        let mut kept = Axes::default();
        for (name, value) in axes.iter().filter(|(name, _)| !OF_LOAD.contains(name)) {
            kept.set(name, value.clone());
        }
        kept
    }

    /// Whether it is one at this arm, as it is started at a point of these axes.
    #[must_use]
    pub fn is_of(&self, experiment: &str, arm: &str, axes: &Axes) -> bool {
        self.experiment == experiment && self.arm == arm && self.axes == Self::axes_of(axes)
    }

    /// Why the arm can't take part at a point at which it is asked so, if it can't.
    #[must_use]
    pub fn fault_at(&self, axes: &Axes) -> Option<String> {
        let is_kept = axes.get("keepalive").is_none() || axes.is_on("keepalive");
        let connections = axes.number("connections");
        let asks_several = axes.get("pipeline").is_some() && axes.number("pipeline") > 1;
        if asks_several && self.keeps_connections == Some(false) {
            Some(
                "it closes the connection behind each answer, so that no second request is answered on it"
                    .to_owned(),
            )
        } else if asks_several && self.pipelines == Some(false) {
            Some(
                "it does not answer several requests that are sent at once on a connection"
                    .to_owned(),
            )
        } else if is_kept && self.says_it_keeps && self.keeps_connections == Some(false) {
            Some(
                "it says that it keeps connections, and closes them; it can be asked for one request on each: \
                 --no-keepalive"
                    .to_owned(),
            )
        } else if is_kept && connections > 1 && self.serves_several == Some(false) {
            Some(format!(
                "it serves one connection at a time: of {connections} that are kept all but one would wait for \
                 ever; give --connections 1, or --no-keepalive"
            ))
        } else {
            None
        }
    }

    /// How long the arm takes at a point with so many connections.
    #[must_use]
    pub fn times(&self, connections: u64) -> ArmTimes {
        let seconds =
            |s: Option<f64>| Duration::try_from_secs_f64(s.unwrap_or(0.0)).unwrap_or_default();
        let answer = seconds(self.answer_s);
        let wave = seconds(self.wave_s);
        // A wave of more takes longer by what each of it added to the first answer.
        let more = self.wave_requests.saturating_sub(1).max(1) as f64;
        let each = wave.saturating_sub(answer).as_secs_f64() / more;
        let wave_here = answer.as_secs_f64() + each * connections.saturating_sub(1) as f64;
        let request = wave_here / connections.max(1) as f64;
        ArmTimes {
            start: seconds(self.startup_s),
            end: if self.was_killed { Duration::ZERO } else { seconds(self.shutdown_s) },
            was_killed: self.was_killed,
            wave: seconds(Some(wave_here)),
            request: seconds(Some(request)),
        }
    }

    /// What was found, in one line.
    #[must_use]
    pub fn in_words(&self) -> String {
        if let Some(fault) = &self.fault {
            return format!("can't be measured: {fault}");
        }
        let seconds = |s: f64| number::time(s * 1e9);
        let mut words = Vec::new();
        words.extend(self.startup_s.map(|s| format!("answers {} after its start", seconds(s))));
        if let (Some(status), Some(bytes)) = (self.status, self.body_bytes) {
            let chunked = if self.is_chunked { " in chunks" } else { "" };
            words.push(format!("{status} with {}{chunked}", number::plural(bytes, "byte")));
        }
        words.extend(self.answer_s.map(|s| format!("{} for an answer", seconds(s))));
        words.extend(self.keeps_connections.map(|keeps| {
            if keeps { "keeps connections".to_owned() } else { "closes each connection".to_owned() }
        }));
        words.extend(self.backlog.map(|backlog| format!("backlog {backlog}")));
        words.join(", ") + &self.oddities().iter().map(|odd| format!("; {odd}")).collect::<String>()
    }

    /// What is unusual about it, each in a few words.
    #[must_use]
    pub fn oddities(&self) -> Vec<String> {
        let seconds = |s: f64| number::time(s * 1e9);
        let slow = |s: Option<f64>, least: f64| s.filter(|s| *s >= least).map(seconds);
        let mut odd = Vec::new();
        odd.extend(
            slow(self.startup_s, SLOW_START_S).map(|s| format!("each set waits {s} for its start")),
        );
        let slowest = self.answer_s.map(|s| s.max(self.wave_s.unwrap_or(0.0)));
        odd.extend(slow(slowest, SLOW_WAVE_S).map(|s| {
            let requests = number::plural(self.wave_requests, "request");
            format!("slow: {s} for {requests} at once, so that a turn is one wave of them")
        }));
        if self.serves_several == Some(false) {
            odd.push("serves one connection at a time".to_owned());
        }
        if let Some(backlog) =
            self.backlog.filter(|backlog| u64::from(*backlog) < self.wave_requests)
        {
            odd.push(format!(
                "more than {backlog} new connections at once would overflow its backlog"
            ));
        }
        if self.pipelines == Some(false) && self.keeps_connections == Some(true) {
            odd.push("answers no requests that are sent at once".to_owned());
        }
        if self.is_daemon {
            odd.push("a daemon: the process that was started has left".to_owned());
        }
        if self.processes > 1 {
            odd.push(format!("{} processes", self.processes));
        }
        if self.printed_bytes >= MUCH_PRINTED_BYTES {
            odd.push(format!("prints much: {}", number::bytes(self.printed_bytes as f64)));
        }
        if self.was_killed {
            odd.push(
                "does not end when it is asked to (SIGTERM), and is killed at once from now on"
                    .to_owned(),
            );
        }
        odd.extend(self.remarks.iter().cloned());
        odd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Value;
    use crate::experiments::known;

    fn axes(values: &[(&str, &str)]) -> Axes {
        let mut axes = Axes::defaults(known("http").axes);
        for (name, value) in [("connections", "16")].iter().chain(values) {
            axes.set(name, Value::of(value));
        }
        axes
    }

    #[test]
    fn what_an_arm_can_not_do_is_not_asked_of_it() {
        let look = Look { keeps_connections: Some(true), ..Look::default() };
        let pipelined = axes(&[("pipeline", "16")]);
        assert_eq!(look.fault_at(&pipelined), None, "not known");
        let closes = Look { keeps_connections: Some(false), ..look.clone() };
        let lies = Look { says_it_keeps: true, ..closes.clone() };
        assert!(lies.fault_at(&axes(&[])).is_some_and(|why| why.contains("and closes them")));
        assert_eq!(lies.fault_at(&axes(&[("keepalive", "false")])), None);
        assert!(closes.fault_at(&pipelined).is_some_and(|why| why.starts_with("it closes")));
        assert_eq!(closes.fault_at(&axes(&[])), None);
        let unable = Look { pipelines: Some(false), ..look.clone() };
        assert!(unable.fault_at(&pipelined).is_some_and(|why| why.contains("sent at once")));
        let alone = Look { serves_several: Some(false), ..look };
        let why = alone.fault_at(&axes(&[])).expect("15 would wait");
        assert!(why.contains("of 16 that are kept all but one"), "{why}");
        assert_eq!(alone.fault_at(&axes(&[("connections", "1")])), None);
        assert_eq!(alone.fault_at(&axes(&[("keepalive", "false")])), None);
    }

    #[test]
    fn a_look_is_of_what_was_started_however_it_is_asked() {
        let asked = axes(&[("path", "/x")]);
        let look = Look {
            experiment: "http".to_owned(),
            arm: "mine".to_owned(),
            axes: Look::axes_of(&asked),
            ..Look::default()
        };
        let more = axes(&[("path", "/x"), ("connections", "1000"), ("pipeline", "16")]);
        assert!(look.is_of("http", "mine", &more));
        assert!(!look.is_of("http", "mine", &axes(&[])), "another path");
        assert!(!look.is_of("proxy", "mine", &more) && !look.is_of("http", "other", &more));
    }

    #[test]
    fn a_wave_takes_longer_with_more_connections_where_requests_wait_for_each_other() {
        let look = |answer_s, wave_s| Look {
            answer_s: Some(answer_s),
            wave_s: Some(wave_s),
            wave_requests: 16,
            ..Look::default()
        };
        let one_by_one = look(1.0, 16.0).times(32);
        assert_eq!(one_by_one.wave, Duration::from_secs(32));
        assert_eq!(one_by_one.request, Duration::from_secs(1));
        let at_once = look(1.0, 1.0).times(32);
        assert_eq!(at_once.wave, Duration::from_secs(1));
        assert_eq!(Look::default().times(64), ArmTimes::default());
    }

    #[test]
    fn each_axis_of_servers_says_how_one_is_asked_or_what_is_started() {
        let started = ["reply_bytes", "request_bytes", "http", "encrypted", "file", "log", "path"];
        for name in ["http", "proxy"] {
            for axis in known(name).axes {
                let is_of_load = OF_LOAD.contains(&axis.name);
                assert!(is_of_load != started.contains(&axis.name), "{name}: {}", axis.name);
            }
        }
    }
}
