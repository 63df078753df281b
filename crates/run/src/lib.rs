//! Runs an unmodified program with the library of `crates/preload` before its C library, or follows one
//! that already runs, and says what its event loop does.
//!
//! | file | subject |
//! |---|---|
//! | `session.rs` | which programs are out of reach; one that runs, its descendants, the memory that they write to |
//! | `attach/` | a process that already ran, followed by tracepoints |
//! | `summary.rs` | the figures: each process, all together, over the time; which are not known, by their source |
//! | `show.rs`, `page.rs` | the figures on a terminal; as a page and as JSON |
//!
//! Here are the findings: figures with patterns that are known to cost. A pattern is reported when it happened often
//! enough to be one, and makes up a share of the loop's work that a change could save. Both limits are in one place.
//!
//! The command line and what is printed belong to `pollux`; nothing here writes to a terminal.
#![forbid(unsafe_code)]

pub mod attach;
mod page;
mod session;
mod show;
mod summary;

use std::fmt::Write as _;

use pollux_host::symbols::Symbols;
use pollux_report::number;
use pollux_sys::loop_stats::{Counter, Site};

pub use session::{ExitStatus, NotObservable, Session, Start, library, within_reach};
pub use summary::{Course, Process, Source, Summary};

/// Fewer times are not a pattern.
const TIMES_MIN: u64 = 100;
/// Less of the whole is not worth a change.
const SHARE_MIN: f64 = 0.1;
/// Long turns of one kind; fewer may be the start of a program.
const TURNS_MIN: u64 = 3;

/// The figures of a run, with the advice that they give and the longest turns.
pub struct Findings {
    pub summary: Summary,
    /// What to change, the costliest first; empty where no pattern is known.
    pub advice: Vec<Advice>,
    /// The longest turns.
    turns: Vec<show::LongTurn>,
}

impl Findings {
    /// Reads names of call sites from the files of the programs, which takes a moment for large ones.
    #[must_use]
    pub fn of(summary: Summary) -> Self {
        let mut symbols = Symbols::default();
        let advice = advice(&summary, &mut symbols);
        let turns = show::long_turns(&summary, &mut symbols);
        Self { summary, advice, turns }
    }

    /// For a terminal of so many columns (at least 40), with colours or without.
    #[must_use]
    pub fn table(&self, width_chars: usize, colour: bool) -> String {
        show::table(self, width_chars, colour)
    }

    /// As one HTML file; `command` is what was run.
    #[must_use]
    pub fn page(&self, course: &Course, command: &str) -> String {
        page::page(self, course, command)
    }

    #[must_use]
    pub fn json(&self, course: &Course) -> String {
        page::json(self, course)
    }
}

/// A pattern that costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Its name in results for programs.
    pub kind: &'static str,
    /// What to change, in a few words.
    pub change: &'static str,
    /// What was measured.
    pub measured: String,
    /// What to do.
    pub remedy: &'static str,
    /// Where it happens most often.
    pub place: Option<String>,
}

/// What a run is advised.
fn advice(summary: &Summary, symbols: &mut Symbols) -> Vec<Advice> {
    let mut all = turns(summary, symbols);
    if summary.get(Counter::PastRegistrations) > 0 {
        // The others rest on registrations.
        return all;
    }
    all.extend(one_by_one(summary, symbols));
    all.extend(to_and_fro(summary, symbols));
    // A descriptor that is taken out and put back is one pattern, not two.
    let anew = registered_anew(summary, symbols);
    all.extend(anew.or_else(|| cancelled(summary, symbols)));
    all.extend(herd(summary, symbols));
    all
}

/// Whether something is a pattern: so often, and such a part of the whole.
fn is_pattern(times: u64, whole: u64) -> bool {
    times >= TIMES_MIN && times as f64 >= whole as f64 * SHARE_MIN
}

fn turns(summary: &Summary, symbols: &mut Symbols) -> Vec<Advice> {
    let kinds = [
        (
            "turn-computes",
            "the loop computes for long in its callbacks",
            (Counter::TurnsComputed, Counter::ComputedNs),
            "used the CPU",
            "nothing else is served meanwhile: divide the work over turns, or leave it to a thread",
        ),
        (
            "turn-blocks",
            "the loop sleeps in its callbacks",
            (Counter::TurnsBlocked, Counter::BlockedNs),
            "was asleep in calls",
            "nothing else is served meanwhile: make the call non-blocking, or leave it to a thread",
        ),
    ];
    let findings = kinds.into_iter().filter_map(|(kind, change, (turns, time), what, remedy)| {
        let times = summary.get(turns);
        let ns = summary.get(time);
        (times >= TURNS_MIN).then(|| Advice {
            kind,
            change,
            measured: format!(
                "in {} of {} turns, of 10 ms or more, the thread {what}, for {} on average",
                number::count(times),
                number::count(summary.get(Counter::Turns)),
                number::time(ns as f64 / times as f64),
            ),
            remedy,
            place: match kind {
                "turn-blocks" => blocked_at(summary, symbols),
                _ => summary.place_of(Site::Computed, symbols),
            },
        })
    });
    findings.collect()
}

/// The call that turns slept in, or the wait behind which they did where that is not followed.
fn blocked_at(summary: &Summary, symbols: &mut Symbols) -> Option<String> {
    let times = |site| summary.times_at(site);
    if times(Site::Blocked) >= times(Site::BlockedElsewhere) {
        return summary.place_of(Site::Blocked, symbols);
    }
    let place = summary.place_of(Site::BlockedElsewhere, symbols)?;
    Some(format!(
        "a call that is not followed (pollux run --attach names it), behind the wait in {place}"
    ))
}

/// The one line above all figures.
pub(crate) fn verdict(findings: &Findings) -> String {
    let waits = findings.summary.get(Counter::Waits);
    let changes: Vec<&str> = findings.advice.iter().map(|advice| advice.change).collect();
    if waits == 0 && findings.summary.get(Counter::PastInstances) > 0 {
        return "Epoll was used past the C library, and nothing of it could be counted.".to_owned();
    }
    match changes.as_slice() {
        [] if waits < TIMES_MIN => format!(
            "Too little to judge: {}, and patterns are looked for from {TIMES_MIN} on.",
            number::plural(waits, "wait"),
        ),
        [] => "Nothing to change: no pattern that costs was found.".to_owned(),
        [change] => format!("One thing to change: {change}."),
        [first, rest @ ..] => {
            format!("{} things to change, first of all: {first}.", rest.len() + 1)
        }
    }
}

fn one_by_one(summary: &Summary, symbols: &mut Symbols) -> Option<Advice> {
    let times = summary.get(Counter::OneByOne);
    let waits = summary.get(Counter::Waits);
    is_pattern(times, waits).then(|| Advice {
        kind: "one-event-per-wait",
        change: "waits take one event each",
        measured: format!(
            "{} of {} waits ({}) took one event although a further descriptor was ready",
            number::count(times),
            number::count(waits),
            number::part(times, waits),
        ),
        remedy: "give epoll_wait a buffer of 64 events or more: one call then returns them all",
        place: summary.place_of(Site::OneByOne, symbols),
    })
}

fn to_and_fro(summary: &Summary, symbols: &mut Symbols) -> Option<Advice> {
    let times = summary.get(Counter::WritableUnneeded);
    let events = summary.get(Counter::Events);
    is_pattern(times, events).then(|| {
        let mut measured = format!(
            "{} MODs asked for writability although no write had been short",
            number::count(times)
        );
        let accepted = summary.get(Counter::Accepted);
        if accepted > 0 {
            let each = number::significant(summary.get(Counter::Mods) as f64 / accepted as f64);
            let _ = write!(measured, "; {each} MODs for each accepted connection");
        }
        let _ = write!(
            measured,
            ", {} of {} MODs set what was there before",
            number::count(summary.get(Counter::ModsBack)),
            number::count(summary.get(Counter::Mods)),
        );
        Advice {
            kind: "mod-to-and-fro",
            change: "writability is asked for before it is needed",
            measured,
            remedy: "write at once and ask for EPOLLOUT only after a short write or EAGAIN, or register \
                     both directions once with EPOLLET",
            place: summary.place_of(Site::WritableUnneeded, symbols),
        }
    })
}

fn cancelled(summary: &Summary, symbols: &mut Symbols) -> Option<Advice> {
    let same = summary.get(Counter::ModsSame);
    let back = summary.get(Counter::Cancelled);
    let updates: u64 = [Counter::Adds, Counter::Mods, Counter::Dels]
        .map(|counter| summary.get(counter))
        .iter()
        .sum();
    is_pattern(same + back, updates).then(|| Advice {
        kind: "updates-cancel-out",
        change: "updates change nothing, or undo each other before the next wait",
        measured: format!(
            "of {} updates {} changed nothing and {} were undone before the next wait",
            number::count(updates),
            number::count(same),
            number::count(back),
        ),
        remedy: "note what is wanted, and tell epoll once, before the wait, what \
                 differs from what epoll has",
        place: summary.place_of(Site::Cancelled, symbols),
    })
}

fn registered_anew(summary: &Summary, symbols: &mut Symbols) -> Option<Advice> {
    let times = summary.get(Counter::Readds);
    let events = summary.get(Counter::Events);
    is_pattern(times, events).then(|| Advice {
        kind: "registered-anew",
        change: "descriptors are taken out and registered again",
        measured: format!(
            "{} ADDs registered a descriptor again that was taken out before and not closed, {} for each \
             event",
            number::count(times),
            number::significant(times as f64 / events.max(1) as f64),
        ),
        remedy: "leave descriptors registered between requests; to silence one, change its mask",
        place: summary.place_of(Site::Readd, symbols),
    })
}

fn herd(summary: &Summary, symbols: &mut Symbols) -> Option<Advice> {
    let empty = summary.get(Counter::AcceptsEmpty);
    let woken = summary.get(Counter::AcceptsWoken);
    let wakes = empty + woken;
    let crowd = summary.total.as_ref().map_or(0, |_| {
        summary
            .processes_with(Counter::AcceptsEmpty)
            .max(summary.processes_with(Counter::AcceptsWoken))
    });
    let threads: u64 = summary.processes.iter().map(|process| process.threads).sum();
    (is_pattern(empty, wakes) && (crowd > 1 || threads > 1)).then(|| Advice {
        kind: "herd",
        change: "several threads wake for one connection",
        measured: format!(
            "{} of {} wakes for a listener ({}) found no connection: about {} threads were woken for each",
            number::count(empty),
            number::count(wakes),
            number::part(empty, wakes),
            number::significant(wakes as f64 / woken.max(1) as f64),
        ),
        remedy: "register the listener with EPOLLEXCLUSIVE, or give each worker a listener of its own \
                 with SO_REUSEPORT",
        place: summary.place_of(Site::AcceptEmpty, symbols),
    })
}
