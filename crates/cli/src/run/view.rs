//! What is noted and shown while a program runs: the figures over the time, and with --live what the loop
//! does at present.
//!
//! ```text
//!  nginx       after 12.0 s, processes 2, waits 36,402, events 1,102,334
//!  waits/s     3,954    ▂▅▇▇▇▇▆▇
//!  events/s    88,668   ▂▅▇▇▇▇▆▇  22.4 per wait
//!  updates/s   0        accepted/s 0, EAGAIN/s 12
//!  in waits    34 %     ▇▇▅▂▂▂▂▂  longest turn 2.31 ms
//! ```
//!
//! The terminal stays as it is, for the program may read from it: what it prints itself moves the lines up.
//! Where standard error is not a terminal a line is written about each second.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pollux_report::number;
use pollux_run::{Course, Process, Summary};
use pollux_sys::loop_stats::Counter;

use crate::output;

/// Between two looks of --live.
const LIVE_EVERY: Duration = Duration::from_secs(1);
/// Seconds whose course is drawn.
const SECONDS_MAX: usize = 32;
/// Columns of a figure before its course.
const FIGURE: usize = 9;

/// What is noted and shown.
pub(super) struct View {
    live: Option<Live>,
    course: Course,
    next_line: Instant,
    /// None where figures over the time are not asked for.
    next_note: Option<Instant>,
}

impl View {
    /// Begins with the program. With `keeps_course` the figures over the time are noted.
    pub(super) fn open(is_live: bool, keeps_course: bool) -> Self {
        let now = Instant::now();
        Self {
            live: is_live.then(Live::open),
            course: Course::default(),
            next_line: now + LIVE_EVERY,
            next_note: keeps_course.then(|| now + Course::interval(Duration::ZERO)),
        }
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Instant> {
        let line = self.live.as_ref().map(|_| self.next_line);
        line.into_iter().chain(self.next_note).min()
    }

    /// Takes a look at the figures.
    pub(super) fn look(&mut self, now: Summary) {
        let at = Instant::now();
        if self.next_note.is_some_and(|next| at >= next) {
            self.course.note(&now);
            self.next_note = Some(at + Course::interval(now.lasted));
        }
        if let Some(live) = &mut self.live
            && at >= self.next_line
        {
            live.show(&Moment::of(live.before.as_ref(), &now));
            live.before = Some(now);
            self.next_line += LIVE_EVERY;
        }
    }

    /// Ends with the program: nothing is shown from here on. The figures over the time.
    pub(super) fn close(mut self, end: &Summary) -> Course {
        if let Some(bar) = self.live.as_ref().and_then(|live| live.bar.as_ref()) {
            bar.finish_and_clear();
        }
        self.course.note(end);
        self.course
    }
}

/// What is shown each second.
struct Live {
    /// Lines that are redrawn; none where lines are written.
    bar: Option<ProgressBar>,
    before: Option<Summary>,
    /// The youngest moment last.
    moments: VecDeque<Moment>,
}

impl Live {
    fn open() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let bar = (std::io::stderr().is_terminal() && !is_dumb).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("a constant template"));
            bar
        });
        Self { bar, before: None, moments: VecDeque::new() }
    }

    fn show(&mut self, moment: &Moment) {
        let Some(bar) = &self.bar else { return output::remark(&output::shown(&moment.line())) };
        if self.moments.len() >= SECONDS_MAX {
            self.moments.pop_front();
        }
        self.moments.push_back(moment.clone());
        bar.set_message(output::shown(&block(&self.moments)));
    }
}

/// What a loop did between two looks.
#[derive(Clone, Debug, Default)]
struct Moment {
    name: String,
    lasted: Duration,
    processes: usize,
    waits: u64,
    events: u64,
    waits_per_s: f64,
    events_per_s: f64,
    updates_per_s: f64,
    accepted_per_s: f64,
    again_per_s: f64,
    per_wait: Option<f64>,
    in_waits: Option<f64>,
    longest_ns: Option<u64>,
}

impl Moment {
    fn of(before: Option<&Summary>, now: &Summary) -> Self {
        let since =
            |counter: Counter| now.get(counter) - before.map_or(0, |before| before.get(counter));
        let began = before.map_or(Duration::ZERO, |before| before.lasted);
        let seconds = (now.lasted - began).as_secs_f64();
        let rate = |counters: &[Counter]| {
            counters.iter().map(|counter| since(*counter)).sum::<u64>() as f64 / seconds
        };
        let waits = since(Counter::Waits);
        let wait_ns = since(Counter::WaitNs);
        let loop_ns = wait_ns + since(Counter::TurnNs);
        let longest = now.total.as_ref().and_then(|total| total.turns.first());
        Self {
            name: now.processes.first().map_or_else(|| "no epoll yet".to_owned(), Process::name),
            lasted: now.lasted,
            processes: now.processes.len(),
            waits: now.get(Counter::Waits),
            events: now.get(Counter::Events),
            waits_per_s: rate(&[Counter::Waits]),
            events_per_s: rate(&[Counter::Events]),
            updates_per_s: rate(&[Counter::Adds, Counter::Mods, Counter::Dels]),
            accepted_per_s: rate(&[Counter::Accepted]),
            again_per_s: rate(&[Counter::Again]),
            per_wait: (waits > 0).then(|| since(Counter::Events) as f64 / waits as f64),
            in_waits: (loop_ns > 0).then(|| wait_ns as f64 / loop_ns as f64),
            longest_ns: longest.map(|turn| turn.lasted_ns),
        }
    }

    fn line(&self) -> String {
        format!(
            "{:7.1} s  {:>7} waits/s  {:>7} events/s  {:>6} per wait  {:>7} ctl/s  {:>7} accepted/s  \
             {:>7} in waits",
            self.lasted.as_secs_f64(),
            number::si(self.waits_per_s),
            number::si(self.events_per_s),
            number::or_na(self.per_wait, number::significant),
            number::si(self.updates_per_s),
            number::si(self.accepted_per_s),
            number::or_na(self.in_waits, number::percent),
        )
    }
}

/// The lines for the last of the moments, with the course of the others.
fn block(moments: &VecDeque<Moment>) -> String {
    let Some(now) = moments.back() else { return String::new() };
    let course = |of: &dyn Fn(&Moment) -> f64, top: Option<f64>| {
        let values: Vec<f64> = moments.iter().map(of).collect();
        bars(&values, top.unwrap_or_else(|| values.iter().copied().fold(0.0, f64::max)))
    };
    let row = |name: &str, figure: &str, rest: &str| format!(" {name:<11}{figure:<FIGURE$}{rest}");
    [
        row(
            &now.name,
            "",
            &format!(
                "after {:.1} s, processes {}, waits {}, events {}",
                now.lasted.as_secs_f64(),
                now.processes,
                number::count(now.waits),
                number::count(now.events),
            ),
        ),
        row("waits/s", &number::si(now.waits_per_s), &course(&|one| one.waits_per_s, None)),
        row(
            "events/s",
            &number::si(now.events_per_s),
            &format!(
                "{}  {} per wait",
                course(&|one| one.events_per_s, None),
                number::or_na(now.per_wait, number::significant)
            ),
        ),
        row(
            "updates/s",
            &number::si(now.updates_per_s),
            &format!(
                "accepted/s {}, EAGAIN/s {}",
                number::si(now.accepted_per_s),
                number::si(now.again_per_s)
            ),
        ),
        row(
            "in waits",
            &number::or_na(now.in_waits, number::percent),
            &format!(
                "{}  longest turn {}",
                course(&|one| one.in_waits.unwrap_or(0.0), Some(1.0)),
                number::or_na(now.longest_ns.map(|ns| ns as f64), number::time)
            ),
        ),
    ]
    .join("\n")
}

/// A column for each value, as high as its share of `top`.
fn bars(values: &[f64], top: f64) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let step = |value: &f64| {
        let share = if top > 0.0 { value / top } else { 0.0 };
        STEPS[((share * STEPS.len() as f64) as usize).min(STEPS.len() - 1)]
    };
    values.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(second: u64, waits_per_s: f64) -> Moment {
        Moment {
            name: "nginx".to_owned(),
            lasted: Duration::from_secs(second),
            processes: 2,
            waits: 36_402,
            waits_per_s,
            events_per_s: 88_668.0,
            per_wait: Some(22.4),
            in_waits: Some(0.34),
            longest_ns: Some(2_310_000),
            ..Moment::default()
        }
    }

    #[test]
    fn the_block_shows_what_is_and_the_course_of_what_was() {
        let moments = VecDeque::from([moment(1, 0.0), moment(2, 2000.0), moment(3, 4000.0)]);
        let text = block(&moments);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        for (line, part) in [
            (0, "nginx"),
            (0, "after 3.0 s, processes 2, waits 36,402"),
            (1, "▁▅█"),
            (2, "███  22.4 per wait"),
            (3, "EAGAIN/s 0"),
            (4, "34.0 %"),
            (4, "▃▃▃  longest turn 2.31 ms"),
        ] {
            assert!(lines[line].contains(part), "no {part} in line {line} of\n{text}");
        }
    }

    #[test]
    fn no_more_seconds_are_kept_than_are_drawn() {
        let mut live =
            Live { bar: Some(ProgressBar::hidden()), before: None, moments: VecDeque::new() };
        (1..100).for_each(|second| live.show(&moment(second, 1.0)));
        assert_eq!(live.moments.len(), SECONDS_MAX);
        assert_eq!(live.moments.back().map(|last| last.lasted.as_secs()), Some(99));
    }
}
