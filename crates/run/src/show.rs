//! The figures for people: a table for each process, histograms, the longest turns, advice.

use pollux_host::symbols::Symbols;
use pollux_report::number::{self, or_na};
use pollux_report::terminal::{Page, bar};
use pollux_report::{Cell, Table, Tone};
use pollux_sys::loop_stats::{
    Call, Counter, Figures, Histogram, LONG_NS, Turn, events_of, time_of,
};
use serde::Serialize;

use crate::summary::unknown;
use crate::{Findings, Source, Summary, verdict};

/// Columns of the label of a histogram's row, and of its bar.
const LABEL: usize = 26;
const BAR_MAX: usize = 40;
/// Calls of a long turn that are shown, the longest first.
const CALLS_SHOWN_MAX: usize = 4;

/// The histograms with their headings, and what these need beside them.
pub(crate) const HISTOGRAMS: [(&str, &str, Histogram); 3] = [
    ("events per wait", "", Histogram::EventsPerWait),
    ("length of turns", " (from a wait's return to the next wait)", Histogram::TurnLength),
    ("length of waits", "", Histogram::WaitLength),
];

/// A turn with names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LongTurn {
    pub(crate) pid: u32,
    pub(crate) program: String,
    /// The process for people.
    #[serde(skip)]
    name: String,
    pub(crate) lasted_ns: u64,
    /// Read in turns of 10 ms and more.
    pub(crate) cpu_ns: Option<u64>,
    /// Asleep in calls, read as the CPU time is.
    pub(crate) asleep_ns: Option<u64>,
    /// Ready, but without a CPU.
    pub(crate) held_up_ns: Option<u64>,
    pub(crate) events: u64,
    pub(crate) calls: Vec<LongCall>,
    calls_left_out: u64,
}

/// What one place called within a turn: once, or several times.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LongCall {
    pub(crate) call: &'static str,
    pub(crate) times: u32,
    pub(crate) fd: Option<i32>,
    /// When the longest began, since the wait.
    pub(crate) after_ns: u64,
    pub(crate) lasted_ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) place: String,
}

/// The longest turns, named.
pub(crate) fn long_turns(summary: &Summary, symbols: &mut Symbols) -> Vec<LongTurn> {
    let mut named = |(process, turn): (&crate::Process, &Turn)| {
        let calls = turn.calls.iter().map(|call| LongCall {
            call: call.call.name(),
            times: call.times,
            fd: Some(call.fd).filter(|fd| *fd >= 0),
            after_ns: call.after_ns,
            lasted_ns: call.lasted_ns,
            longest_ns: call.longest_ns,
            place: symbols.name(&process.modules, call.caller),
        });
        LongTurn {
            pid: process.figures.pid,
            program: process.program().to_owned(),
            name: process.name(),
            lasted_ns: turn.lasted_ns,
            cpu_ns: judged(turn, turn.cpu_ns),
            asleep_ns: judged(turn, turn.asleep_ns),
            held_up_ns: judged(turn, turn.lasted_ns.saturating_sub(turn.cpu_ns + turn.asleep_ns)),
            events: turn.events,
            calls: calls.collect(),
            calls_left_out: turn.calls_left_out,
        }
    };
    summary.turns().into_iter().map(&mut named).collect()
}

/// A figure that is read in long turns alone.
fn judged(turn: &Turn, ns: u64) -> Option<u64> {
    (turn.lasted_ns >= LONG_NS).then_some(ns)
}

pub(crate) fn table(findings: &Findings, width_chars: usize, colour: bool) -> String {
    let mut page = Page::new(width_chars, colour);
    let summary = &findings.summary;
    let lasted = number::duration(summary.lasted.as_secs_f64());
    let Some(total) = &summary.total else {
        let (by, own) = match summary.source {
            Source::Library => (
                " by the C library",
                ", nor are those by system calls of the program's own, which --attach follows",
            ),
            Source::Tracepoints { .. } => ("", ""),
        };
        let text = format!(
            "No process called epoll{by} in {lasted}: nothing to report. Calls of select, poll and io_uring are \
             not counted{own}."
        );
        page.paragraph(&text, Tone::Open, 0);
        if let Some(text) = uncounted(summary) {
            page.paragraph(&sentence(&text), Tone::Open, 0);
        }
        return page.finish();
    };
    page.words(&verdict(findings), Tone::Bold);
    page.gap();
    for advice in &findings.advice {
        page.labelled(("!!", Tone::Bad), (&sentence(&advice.measured), Tone::Bad), 3);
        if let Some(place) = &advice.place {
            page.labelled(("", Tone::Plain), (&format!("In {place}."), Tone::Plain), 3);
        }
        page.labelled(("", Tone::Plain), (&sentence(advice.remedy), Tone::Plain), 3);
    }
    if !findings.advice.is_empty() {
        page.gap();
    }
    page.words(&answer(summary, total, &lasted), Tone::Plain);
    page.gap();
    page.table(&processes(summary));
    page.gap();
    for (name, text) in facts(summary, total) {
        page.labelled((name, Tone::Dim), (&text, Tone::Plain), 16);
    }
    for (heading, about, histogram) in HISTOGRAMS {
        bars(&mut page, &format!("{heading}{about}"), total, histogram);
    }
    turns(&mut page, &findings.turns);
    page.finish()
}

/// The run in one line.
pub(crate) fn answer(summary: &Summary, total: &Figures, lasted: &str) -> String {
    let processes = match summary.processes.len() {
        1 => "one process".to_owned(),
        many => format!("{many} processes"),
    };
    format!(
        "{} and {} in {lasted}, by {processes}; {} events per wait",
        number::plural(total.get(Counter::Waits), "wait"),
        number::plural(total.get(Counter::Events), "event"),
        or_na(ratio(total.get(Counter::Events), total.get(Counter::Waits)), number::significant),
    )
}

/// A line for each process and, of several, one for all.
pub(crate) fn processes(summary: &Summary) -> Table {
    let mut table = Table::new([
        "process",
        "#waits",
        "#events",
        "#per wait",
        "#empty",
        "#accepted",
        "#ADD",
        "#MOD",
        "#DEL",
        "#in waits",
        "#longest turn",
    ]);
    for process in &summary.processes {
        let threads = match process.threads {
            1 => String::new(),
            threads => format!(" ({threads} threads)"),
        };
        let name = format!("{} {}{threads}", process.figures.pid, process.name());
        table.row(row(&name, summary.source, &process.figures));
    }
    if let Some(total) = summary.total.as_ref().filter(|_| summary.processes.len() > 1) {
        table.row(row("all", summary.source, total));
    }
    table
}

fn row(name: &str, source: Source, of: &Figures) -> Vec<Cell> {
    let count = |counter: Counter| match unknown(source, of, counter) {
        Some(_) => Cell::figure("n/a"),
        None => Cell::count(of.get(counter)),
    };
    let per_wait = ratio(of.get(Counter::Events), of.get(Counter::Waits));
    let wait_ns = of.get(Counter::WaitNs);
    let turn_ns = of.get(Counter::TurnNs);
    let longest = of.turns.first().map(|turn| turn.lasted_ns as f64);
    vec![
        Cell::text(name),
        count(Counter::Waits),
        count(Counter::Events),
        Cell::figure(&or_na(per_wait, number::significant)),
        Cell::figure(&number::part(empty(of), of.get(Counter::Waits))),
        count(Counter::Accepted),
        count(Counter::Adds),
        count(Counter::Mods),
        count(Counter::Dels),
        Cell::figure(&number::part(wait_ns, wait_ns + turn_ns)),
        Cell::figure(&or_na(longest, number::time)),
    ]
}

/// What the table has as a ratio, by its name in results for programs.
pub(crate) fn ratios(of: &Figures) -> [(&'static str, Option<f64>); 7] {
    let get = |counter| of.get(counter);
    let wait_ns = get(Counter::WaitNs);
    let turn_ns = get(Counter::TurnNs);
    let accepted = get(Counter::Accepted);
    let woken = get(Counter::AcceptsWoken);
    let found_none = get(Counter::AcceptsEmpty);
    [
        ("events_per_wait", ratio(get(Counter::Events), get(Counter::Waits))),
        ("in_waits", ratio(wait_ns, wait_ns + turn_ns)),
        ("turn_mean_ns", ratio(turn_ns, get(Counter::Turns))),
        ("adds_per_connection", ratio(get(Counter::Adds), accepted)),
        ("mods_per_connection", ratio(get(Counter::Mods), accepted)),
        ("dels_per_connection", ratio(get(Counter::Dels), accepted)),
        ("threads_woken_per_connection", ratio(woken + found_none, woken)),
    ]
}

/// Waits without an event.
fn empty(of: &Figures) -> u64 {
    of.get(Counter::EmptyPolls) + of.get(Counter::TimedOut)
}

fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
}

/// What needs more words than a column has.
pub(crate) fn facts(summary: &Summary, of: &Figures) -> Vec<(&'static str, String)> {
    let source = summary.source;
    let words = Words { source, of };
    let mut facts = vec![("empty waits", words.empty_waits()), ("updates", words.updates())];
    facts.extend(words.updates_per_connection().map(|text| ("per connection", text)));
    facts.extend([
        ("EAGAIN", words.transfers_again()),
        ("events", words.events_lost()),
        ("turns", words.turns()),
    ]);
    facts.extend(words.nested_waits().map(|text| ("nested", text)));
    facts.extend(words.listeners().map(|text| ("listeners", text)));
    facts.extend(not_known(source));
    facts.extend(past(of).map(|text| ("past", text)));
    facts.extend(words.threads_filtered().map(|text| ("seccomp", text)));
    if summary.threads_lost > 0 {
        let lost = number::count(summary.threads_lost);
        let text =
            format!("{lost} threads found no room for figures: what they did is not counted");
        facts.push(("lost", text));
    }
    facts.extend(uncounted(summary).map(|text| ("not counted", text)));
    facts
}

/// Figures as sentences; some are left out where there is nothing to say.
struct Words<'a> {
    source: Source,
    of: &'a Figures,
}

impl Words<'_> {
    fn get(&self, counter: Counter) -> u64 {
        self.of.get(counter)
    }

    fn count(&self, counter: Counter) -> String {
        match unknown(self.source, self.of, counter) {
            Some(_) => "n/a".to_owned(),
            None => number::count(self.get(counter)),
        }
    }

    fn empty_waits(&self) -> String {
        format!(
            "{} with timeout 0, {} timed out, {} interrupted by a signal",
            self.count(Counter::EmptyPolls),
            self.count(Counter::TimedOut),
            self.count(Counter::Interrupted),
        )
    }

    fn updates(&self) -> String {
        format!(
            "{} ADD, {} MOD, {} DEL ({} failed); {} changed nothing, {} were undone before the \
             next wait",
            self.count(Counter::Adds),
            self.count(Counter::Mods),
            self.count(Counter::Dels),
            self.count(Counter::ControlsFailed),
            self.count(Counter::ModsSame),
            self.count(Counter::Cancelled),
        )
    }

    fn updates_per_connection(&self) -> Option<String> {
        let accepted = self.get(Counter::Accepted);
        let each = |counter| or_na(ratio(self.get(counter), accepted), number::significant);
        (accepted > 0).then(|| {
            let adds = each(Counter::Adds);
            format!("{adds} ADD, {} MOD, {} DEL", each(Counter::Mods), each(Counter::Dels))
        })
    }

    fn transfers_again(&self) -> String {
        format!(
            "{} of {} reads and writes; {} right behind an event",
            self.count(Counter::Again),
            self.count(Counter::Transfers),
            self.count(Counter::AgainAfterEvent),
        )
    }

    fn events_lost(&self) -> String {
        format!(
            "{} for descriptors that were closed since, {} that could not be attributed",
            self.count(Counter::Stale),
            self.count(Counter::Unknown),
        )
    }

    fn turns(&self) -> String {
        let mean = ratio(self.get(Counter::TurnNs), self.get(Counter::Turns));
        format!(
            "{}, {} on average; {} took 10 ms or more: {} computing, {} asleep in calls, {} ready but \
             without a CPU",
            self.count(Counter::Turns),
            or_na(mean, number::time),
            self.count(Counter::TurnsLong),
            self.count(Counter::TurnsComputed),
            self.count(Counter::TurnsBlocked),
            self.count(Counter::TurnsHeldUp),
        )
    }

    fn nested_waits(&self) -> Option<String> {
        let waits = self.get(Counter::NestedWaits);
        (waits > 0).then(|| {
            format!(
                "{} within turns of another instance: what they slept is a part of those turns",
                number::plural(waits, "wait"),
            )
        })
    }

    fn listeners(&self) -> Option<String> {
        let woken = self.get(Counter::AcceptsWoken);
        let found_none = self.get(Counter::AcceptsEmpty);
        let wakes = woken + found_none;
        (wakes > 0).then(|| {
            format!(
                "{} for {} connections, about {} threads for each; {} found none",
                number::plural(wakes, "wake"),
                self.count(Counter::Accepted),
                or_na(ratio(wakes, woken), number::significant),
                number::count(found_none),
            )
        })
    }

    fn threads_filtered(&self) -> Option<String> {
        let threads = self.get(Counter::Filtered);
        (threads > 0).then(|| {
            format!(
                "{} locked up by seccomp(2): from then on CPU times are n/a, and neither long turns that computed nor \
                 epoll past the C library are known",
                number::plural(threads, "thread"),
            )
        })
    }
}

/// What went past the C library.
fn past(of: &Figures) -> Option<String> {
    let instances = of.get(Counter::PastInstances);
    let registrations = of.get(Counter::PastRegistrations);
    let mut parts = Vec::new();
    if registrations > 0 {
        parts.push(format!(
            "{} made past the C library, by system calls of the program's own or by io_uring: figures of updates \
             are not known",
            number::plural(registrations, "registration"),
        ));
    }
    if instances > 0 {
        parts.push(format!(
            "{} of epoll made past the C library: their waits and events are not counted (pollux run --attach \
             follows them)",
            number::plural(instances, "instance"),
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Which programs are missing, as far as that is known.
fn uncounted(summary: &Summary) -> Option<String> {
    let programs = summary.programs_uncounted;
    (programs > 0).then(|| {
        format!(
            "{} started with an environment without LD_PRELOAD or POLLUX_LOOP_STATS, as by env -i: nothing of \
             them is counted",
            if programs == 1 { "one program".to_owned() } else { format!("{} programs", number::count(programs)) },
        )
    })
}

/// What the source of the figures leaves open, with what was lost of it.
fn not_known(source: Source) -> Vec<(&'static str, String)> {
    let mut facts: Vec<_> = source
        .open()
        .iter()
        .map(|open| ("not known", format!("{}: {}", open.what, open.why)))
        .collect();
    let lost = source.records_lost();
    if lost > 0 {
        let text = format!(
            "{} records found no room: what threads did meanwhile is not counted, and the turns and \
             waits around it are left out",
            number::count(lost)
        );
        facts.push(("lost", text));
    }
    facts
}

/// The buckets of a histogram that count, from the first to the last that is not empty: words, count.
pub(crate) fn buckets(of: &Figures, histogram: Histogram) -> Vec<(String, u64)> {
    let counts = of.histogram(histogram);
    let used = |(_, count): &(usize, &u64)| **count > 0;
    let first = counts.iter().enumerate().find(used).map_or(0, |(index, _)| index);
    let end = counts.iter().enumerate().rfind(used).map_or(0, |(index, _)| index + 1);
    let words = |index: usize| match histogram {
        Histogram::EventsPerWait => match events_of(index) {
            (from, Some(to)) if from == to => from.to_string(),
            (from, Some(to)) => format!("{from} to {to}"),
            (from, None) => format!("{from} or more"),
        },
        Histogram::TurnLength | Histogram::WaitLength => match time_of(index) {
            (_, Some(to)) => format!("< {}", number::time_tick(to as f64)),
            (from, None) => format!("≥ {}", number::time_tick(from as f64)),
        },
    };
    (first..end).map(|index| (words(index), counts[index])).collect()
}

fn bars(page: &mut Page, heading: &str, of: &Figures, histogram: Histogram) {
    let buckets = buckets(of, histogram);
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let most = buckets.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    if total == 0 {
        return;
    }
    page.gap();
    page.words(heading, Tone::Bold);
    let room = page.width().saturating_sub(LABEL + 4).clamp(8, BAR_MAX);
    for (words, count) in buckets {
        let columns = count as f64 / most as f64 * room as f64;
        let left = format!("{words:>12} {:>10}  ", number::part(count, total));
        page.line(&[(&left, Tone::Plain), (&bar(columns), Tone::Open)]);
    }
}

fn turns(page: &mut Page, turns: &[LongTurn]) {
    if turns.is_empty() {
        return;
    }
    page.gap();
    page.words("longest turns", Tone::Bold);
    for turn in turns {
        page.words(&turn_text(turn), Tone::Plain);
        let mut calls: Vec<&LongCall> = turn.calls.iter().collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.lasted_ns));
        for call in calls.iter().take(CALLS_SHOWN_MAX) {
            page.labelled(("", Tone::Plain), (&call_text(call), Tone::Dim), 4);
        }
    }
}

/// A turn in one line.
pub(crate) fn turn_text(turn: &LongTurn) -> String {
    let events = if turn.events == 1 { "event" } else { "events" };
    let parts = [
        (turn.cpu_ns, "on the CPU"),
        (turn.asleep_ns, "asleep"),
        (turn.held_up_ns, "ready but without a CPU"),
    ];
    let shown = |(ns, what): (Option<u64>, &str)| {
        ns.map(|ns| format!(", {} {what}", number::time(ns as f64))).unwrap_or_default()
    };
    format!(
        "{} behind {} {events}{}, {} {}",
        number::time(turn.lasted_ns as f64),
        number::count(turn.events),
        parts.map(shown).concat(),
        turn.name,
        turn.pid,
    )
}

/// What a place called, in one line.
fn call_text(call: &LongCall) -> String {
    let times = if call.times > 1 { format!("{} × ", call.times) } else { String::new() };
    let fd = call.fd.map_or_else(String::new, |fd| format!("({fd})"));
    let what = if call.call == Call::Asleep.name() {
        format!("asleep {times}in {}", call.place)
    } else if call.times > 1 {
        format!("in {times}{} called by {}", call.call, call.place)
    } else {
        format!("in {}{fd} called by {}", call.call, call.place)
    };
    let longest = match call.times {
        ..=1 => String::new(),
        _ => {
            let descriptor = if fd.is_empty() { String::new() } else { format!(" {fd}") };
            format!("the longest{descriptor} {}, ", number::time(call.longest_ns as f64))
        }
    };
    format!(
        "{:>8} {what}, {longest}{} after the wait",
        number::time(call.lasted_ns as f64),
        number::time(call.after_ns as f64)
    )
}

/// With a capital at its start and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    pollux_report::markup::capital(text) + "."
}
