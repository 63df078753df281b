//! The observation of a running server by the thread that waits for signals: once a second it writes to the
//! error log what the counters mean, and for a watchdog it finds loops that hang.
//!
//! ```text
//!  Free ── a loop paused for want of room ──► Full ── no pause since, and room in every loop ──► Free
//!            "connections are full"                     "there is room for connections again"
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pollux_engine::Counter;

use crate::config::LogTarget;
use crate::counters::ServerCounter;
use crate::descriptors::remedy_for;
use crate::log::{ErrorLog, Event};
use crate::stats::LoopSource;

/// Lost lines of the access log are reported so often.
const LOST_LINES_S: u64 = 60;

/// What was seen last.
#[derive(Debug)]
pub(crate) struct Reporter {
    connections_max: u64,
    remedy: String,
    access_log: Option<PathBuf>,
    is_full: bool,
    seen: Seen,
    lost_unreported: u64,
    lost_reported_s: Option<u64>,
}

/// Counts over all loops.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Seen {
    full_pauses: u64,
    accept_pauses: u64,
    lines_lost: u64,
}

impl Reporter {
    /// For a server with so many connections at most; the remedy says how to get more.
    pub(crate) fn new(
        connections_max: u32,
        remedy: String,
        access_log: Option<&LogTarget>,
    ) -> Self {
        Self {
            connections_max: connections_max.into(),
            remedy,
            access_log: access_log.map(LogTarget::path),
            is_full: false,
            seen: Seen::default(),
            lost_unreported: 0,
            lost_reported_s: None,
        }
    }

    /// The access log is another one from now on.
    pub(crate) fn set_access_log(&mut self, access_log: Option<&LogTarget>) {
        self.access_log = access_log.map(LogTarget::path);
    }

    /// Tells what is new at this second since 1970; everything when the server ends.
    pub(crate) fn report(
        &mut self,
        loops: &[LoopSource],
        log: &ErrorLog,
        unix_s: u64,
        is_end: bool,
    ) {
        let sum = |of: &dyn Fn(&LoopSource) -> u64| loops.iter().map(of).sum::<u64>();
        let now = Seen {
            full_pauses: sum(&|source| source.engine.value(Counter::FullPauses)),
            accept_pauses: sum(&|source| source.engine.value(Counter::AcceptPauses)),
            lines_lost: sum(&|source| source.server.value(ServerCounter::LogLinesLost)),
        };
        let before = std::mem::replace(&mut self.seen, now);
        let open = sum(&|source| source.engine.open());
        self.report_fullness(now.full_pauses > before.full_pauses, open, loops, log, unix_s);
        if now.accept_pauses > before.accept_pauses {
            let times = now.accept_pauses - before.accept_pauses;
            log.report(Event::AcceptPaused, unix_s, || accept_paused(times, open, loops));
        }
        self.lost_unreported += now.lines_lost - before.lines_lost;
        let is_due =
            self.lost_reported_s.is_none_or(|message| unix_s.abs_diff(message) >= LOST_LINES_S);
        if self.lost_unreported > 0 && (is_due || is_end) {
            self.lost_reported_s = Some(unix_s);
            let lines = std::mem::take(&mut self.lost_unreported);
            log.report(Event::AccessLogLost, unix_s, || self.lines_lost(lines, loops));
        }
    }

    fn report_fullness(
        &mut self,
        has_paused: bool,
        open: u64,
        loops: &[LoopSource],
        log: &ErrorLog,
        unix_s: u64,
    ) {
        // A proxy's connections to backends are open as well, and bounded apart.
        let most = self.connections_max;
        let open = open.min(most);
        if has_paused && !self.is_full {
            self.is_full = true;
            log.report(Event::ConnectionsFull, unix_s, || {
                let remedy = &self.remedy;
                format!("connections are full, {open} of {most}: others wait unanswered; {remedy}")
            });
        } else if !has_paused && self.is_full {
            // A loop that paused continues as soon as one of its own closes.
            let share = (most / loops.len() as u64).max(1);
            self.is_full = loops.iter().any(|source| source.engine.open() >= share);
            if !self.is_full {
                let text = || format!("there is room for connections again: {open} of {most}");
                log.report(Event::ConnectionsFree, unix_s, text);
            }
        }
    }

    fn lines_lost(&self, lines: u64, loops: &[LoopSource]) -> String {
        let why = match loops.iter().find_map(|source| source.server.log_errno()) {
            Some(errno) => std::io::Error::from(errno).to_string(),
            None => "its reader is too slow".to_owned(),
        };
        let word = if lines == 1 { "line" } else { "lines" };
        let log = self.access_log.as_deref().unwrap_or("access log".as_ref()).display();
        format!("the access log {log} lost {lines} {word}: {why}")
    }
}

fn accept_paused(times: u64, open: u64, loops: &[LoopSource]) -> String {
    let error = loops.iter().find_map(|source| source.engine.accept_error());
    let (why, remedy) = match &error {
        Some(error) => (error.to_string(), remedy_for(error)),
        None => ("unknown".to_owned(), String::new()),
    };
    format!("accepting paused {times} times with {open} connections open: {why}{remedy}")
}

/// When it is asked next, and the turns that each loop had taken when it was asked last.
///
/// Whether a server works, for the watchdog of its manager: every loop has taken a turn since it was
/// asked for one.
///
/// The thread that waits for signals asks, so a loop that hangs is noticed although that thread does not.
#[derive(Debug)]
pub(super) struct Watchdog {
    every: Duration,
    due: Instant,
    turns: Vec<u64>,
}

impl Watchdog {
    /// One that is asked for now, and then this often.
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        Self { every, due: now, turns: Vec::new() }
    }

    /// How long until it is asked for next.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// When it is due, whether each loop has taken turns since it was due last; every loop has to be
    /// nudged then. The first time nothing is known against them.
    pub(super) fn is_alive(
        &mut self,
        now: Instant,
        turns: impl Iterator<Item = u64>,
    ) -> Option<bool> {
        if now < self.due {
            return None;
        }
        self.due = now + self.every;
        let before = std::mem::replace(&mut self.turns, turns.collect());
        Some(before.iter().zip(&self.turns).all(|(before, now)| now > before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_takes_no_turn_stops_the_pulse_and_one_that_does_again_starts_it() {
        let (begin, every) = (Instant::now(), Duration::from_secs(1));
        let mut watchdog = Watchdog::new(every, begin);
        for (at, turns, is_alive) in [
            (0, [5, 0], Some(true)),
            (0, [9, 9], None),
            (1, [6, 1], Some(true)),
            (2, [7, 1], Some(false)),
            (3, [8, 1], Some(false)),
            (4, [8, 2], Some(false)),
            (5, [9, 3], Some(true)),
        ] {
            assert_eq!(watchdog.is_alive(begin + every * at, turns.into_iter()), is_alive, "{at}");
        }
        assert_eq!(watchdog.wait(begin + every * 5), every);
        assert_eq!(watchdog.wait(begin + every * 9), Duration::ZERO);
    }
}
