//! How a run is shown while it runs: live, a few lines of the terminal that are redrawn in place; or plain,
//! a line for each second that has passed, without a single escape code.
//!
//! ```text
//!  measuring   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━────────────────────  6.5 s left
//!  requests/s  183,402  ▂▅▇▇▇▇▆▇
//!  latency     p50 310 µs    p99 1.02 ms   max 4.40 ms    (last second)
//!  answers     1,102,334   errors 0   connections 64
//!  q or Ctrl-C ends the run and shows the result
//! ```
//!
//! The terminal is put back in order when the view is dropped, and before the words of a panic are
//! printed.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Stderr};
use std::time::Duration;

use pollux_engine::Signals;
use pollux_load::campaign::AgentNow;
use pollux_load::render::{count, plural, time};
use pollux_load::{Phase, Plan, Progress, Second};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Paragraph, Sparkline};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use super::Interrupt;
use crate::output::{self, Failure};

/// Members of the crowd between two lines while they are set up.
const CROWD_STEP: u32 = 1_000;
/// Lines of the view.
const HEIGHT: u16 = 5;
/// Lines of agents at most.
const AGENTS_MAX: u16 = 16;
/// Columns of the names at the left.
const NAMES: u16 = 12;
/// Columns of the rate before its course.
const RATE: u16 = 13;
/// Seconds whose rates are kept; no terminal shows more.
const COURSE_MAX: usize = 500;

/// How a run is shown.
pub(super) enum View {
    /// Not at all.
    Quiet,
    /// A line for each second.
    Lines(Lines),
    /// Redrawn in place.
    Live(Box<Live>),
}

impl View {
    /// The view that fits where standard error goes.
    pub(crate) fn open(plan: &Plan, choice: &str, is_quiet: bool) -> Self {
        Self::open_for(plan, choice, is_quiet, 0)
    }

    /// The same of a run of so many agents, each with a line.
    pub(crate) fn open_for(plan: &Plan, choice: &str, is_quiet: bool, agents: u32) -> Self {
        if is_quiet {
            return Self::Quiet;
        }
        output::remark(&format!("pollux load: {} on {choice}", in_words(plan)));
        if !is_interactive() {
            return Self::Lines(Lines::new(plan));
        }
        match Live::open(plan, agents) {
            Ok(live) => Self::Live(Box::new(live)),
            // A terminal that can't say where its cursor is still shows lines.
            Err(_) => Self::Lines(Lines::new(plan)),
        }
    }

    /// Waits at most so long; the request to end the run, if there is one.
    pub(crate) fn wait(
        &mut self,
        signals: &mut Signals,
        at_most: Duration,
    ) -> Result<Option<Interrupt>, Failure> {
        match self {
            Self::Quiet | Self::Lines(_) => {
                let signal = signals.wait(Some(at_most)).map_err(Failure::failed)?;
                Ok(signal.map(Interrupt::Signal))
            }
            Self::Live(live) => {
                let is_key = live.wait(at_most).map_err(Failure::failed)?;
                let signal = signals.take().map(Interrupt::Signal);
                Ok(signal.or(is_key.then_some(Interrupt::Key)))
            }
        }
    }

    /// Shows how far the run is, if that is worth showing by now.
    pub(crate) fn show(&mut self, progress: &Progress) -> Result<(), Failure> {
        match self {
            Self::Quiet => {}
            Self::Lines(lines) => lines.show(progress),
            Self::Live(live) => live.show(progress).map_err(Failure::failed)?,
        }
        Ok(())
    }

    /// Shows how far several agents are, with a line for each.
    pub(crate) fn show_with(
        &mut self,
        progress: &Progress,
        agents: &[AgentNow],
    ) -> Result<(), Failure> {
        match self {
            Self::Quiet => {}
            Self::Lines(lines) => lines.show_with(progress, agents),
            Self::Live(live) => live.show_with(progress, agents).map_err(Failure::failed)?,
        }
        Ok(())
    }

    /// Takes the live view away; nothing is shown from here on.
    pub(crate) fn close(&mut self) {
        *self = Self::Quiet;
    }
}

/// Whether the output is a terminal that may be redrawn. Standard output counts too: the
/// question for the cursor's place is written there.
fn is_interactive() -> bool {
    let stderr = io::stderr();
    let is_seen = stderr.is_terminal() && io::stdout().is_terminal();
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    // In the background a change of the terminal's mode would stop the process.
    is_seen && !is_dumb && output::is_in_front(&stderr)
}

/// What runs, in one line without its mechanism.
fn in_words(plan: &Plan) -> String {
    let more = match plan.targets.len() {
        0 | 1 => String::new(),
        targets => format!(" and {} more", targets - 1),
    };
    let url = plan.targets.first().map_or("", |target| &target.url);
    let end = match (plan.end.requests, plan.end.after) {
        (Some(requests), Some(after)) => {
            format!("{}, {after:?} at most", plural(requests, "request"))
        }
        (Some(requests), None) => plural(requests, "request"),
        (None, after) => format!("{:?}", after.unwrap_or_default()),
    };
    let warm_up = match plan.warm_up {
        Duration::ZERO => String::new(),
        warm_up => format!(" after {warm_up:?} of warm-up"),
    };
    format!(
        "{url}{more}; {end}{warm_up}; {}, {}",
        plural(plan.connections.into(), "connection"),
        plural(plan.threads.into(), "thread")
    )
}

/// What was already said.
pub(super) struct Lines {
    crowd: u32,
    crowd_shown: u32,
    shown_s: f64,
}

impl Lines {
    fn new(plan: &Plan) -> Self {
        Self { crowd: plan.crowd.len(), crowd_shown: 0, shown_s: 0.0 }
    }

    /// Prints what is new.
    fn show(&mut self, progress: &Progress) {
        let connected = progress.crowd_connected;
        let is_step = connected >= self.crowd_shown + CROWD_STEP;
        if progress.phase == Phase::SettingUp && is_step {
            self.crowd_shown = connected;
            output::remark(&format!("{connected} of {} connections beside", self.crowd));
        }
        if let Some(second) = progress.last.as_ref().filter(|last| last.end_s > self.shown_s) {
            output::remark(&output::shown(&line(second, rate_per_s(second, self.shown_s))));
            self.shown_s = second.end_s;
        }
    }

    /// The same with a line for each agent below that of a second.
    fn show_with(&mut self, progress: &Progress, agents: &[AgentNow]) {
        let before_s = self.shown_s;
        self.show(progress);
        if self.shown_s > before_s {
            for line in agent_lines(agents, AGENTS_MAX.into()) {
                output::remark(&output::shown(&line));
            }
        }
    }
}

/// A line for each agent; of more than there is room for, those that are lost or slowest, and how many others there are.
fn agent_lines(agents: &[AgentNow], room: usize) -> Vec<String> {
    if agents.len() <= room {
        return agents.iter().map(agent_line).collect();
    }
    let shown = room.saturating_sub(1);
    let mut worst: Vec<&AgentNow> = agents.iter().collect();
    worst.sort_by_key(|agent| Reverse((agent.is_lost, agent.errors, agent.p99_ns)));
    let lines = worst.iter().take(shown).map(|agent| agent_line(agent));
    let others = plural((agents.len() - shown) as u64, "other agent");
    lines.chain([format!("  {others}")]).take(room).collect()
}

/// An agent in its last second.
fn agent_line(agent: &AgentNow) -> String {
    let AgentNow { name, is_lost, answered, p99_ns, errors, cpu } = agent;
    if *is_lost {
        return format!("  {name:<20}  lost");
    }
    let errors = match errors {
        0 => String::new(),
        errors => format!("  {}", plural(*errors, "error")),
    };
    let p99 = p99_ns.map_or_else(|| "n/a".to_owned(), |ns| time(ns as f64));
    let cpu = time(cpu.as_nanos() as f64);
    format!("  {name:<20}  {:>10}/s  p99 {p99:<8}  CPU {cpu}{errors}", count(*answered))
}

fn line(second: &Second, rate_per_s: u64) -> String {
    let warm_up = if second.is_warm_up { "  warm-up" } else { "" };
    let errors = match second.errors {
        0 => String::new(),
        errors => format!("  {}", plural(errors, "error")),
    };
    let line = format!(
        "{:7.1} s  {:>10}/s  {}{errors}{warm_up}",
        second.end_s,
        count(rate_per_s),
        latency(second)
    );
    // The last column is as wide as any.
    line.trim_end().to_owned()
}

/// Answers per second since `before_s`, for the last second may be cut short.
fn rate_per_s(second: &Second, before_s: f64) -> u64 {
    let lasted_s = second.end_s - before_s;
    if lasted_s > 0.0 { (second.answered as f64 / lasted_s).round() as u64 } else { 0 }
}

/// Median, 99th percentile and longest latency of a second.
fn latency(second: &Second) -> String {
    let shown = |ns: Option<u64>| ns.map_or_else(|| "n/a".to_owned(), |ns| time(ns as f64));
    let at = |quantile| shown(second.latency.quantile_ns(quantile));
    let max = shown(second.latency.max_ns());
    format!("p50 {:<8}  p99 {:<8}  max {max:<8}", at(0.5), at(0.99))
}

/// The view and the terminal that it draws on.
pub(super) struct Live {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    state: State,
    _raw: RawMode,
}

impl Live {
    /// Takes the lines below the cursor.
    ///
    /// # Errors
    /// The terminal can't be put into raw mode, or does not say where its cursor is.
    pub(crate) fn open(plan: &Plan, agents: u32) -> io::Result<Self> {
        let raw = RawMode::enter()?;
        let height = HEIGHT + (agents as u16).min(AGENTS_MAX);
        let options = TerminalOptions { viewport: Viewport::Inline(height) };
        let terminal = Terminal::with_options(CrosstermBackend::new(io::stderr()), options)?;
        Ok(Self { terminal, state: State::new(plan), _raw: raw })
    }

    /// Waits for a key at most so long; whether it was one that ends the run.
    pub(crate) fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        if !event::poll(at_most)? {
            return Ok(false);
        }
        Ok(matches!(event::read()?, Event::Key(key) if ends(&key)))
    }

    pub(crate) fn show(&mut self, progress: &Progress) -> io::Result<()> {
        self.state.learn(progress);
        let Self { terminal, state, .. } = self;
        terminal.draw(|frame| state.draw(progress, frame)).map(drop)
    }

    /// The same with a line for each agent, as many as there is room for.
    pub(crate) fn show_with(&mut self, progress: &Progress, agents: &[AgentNow]) -> io::Result<()> {
        self.state.learn(progress);
        let Self { terminal, state, .. } = self;
        let draw = |frame: &mut Frame<'_>| {
            state.draw(progress, frame);
            draw_agents(agents, frame);
        };
        terminal.draw(draw).map(drop)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let top = self.terminal.get_frame().area().as_position();
        // A terminal that has gone needs no order.
        let _ = self.terminal.clear();
        let _ = self.terminal.set_cursor_position(top);
        let _ = self.terminal.show_cursor();
    }
}

fn ends(key: &KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_ending = match key.code {
        KeyCode::Char('c') => is_control,
        KeyCode::Char('q') => !is_control,
        _ => false,
    };
    is_ending && key.kind == KeyEventKind::Press
}

/// The terminal gives each key as it is pressed, until this is dropped or something panics.
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = disable_raw_mode();
            before(panic);
        }));
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = disable_raw_mode();
    }
}

/// What the view remembers of a run.
struct State {
    warm_up: Duration,
    after: Option<Duration>,
    requests: Option<u64>,
    crowd: u32,
    /// Answers per second, the youngest second first.
    course: VecDeque<u64>,
    learnt_s: f64,
}

impl State {
    fn new(plan: &Plan) -> Self {
        Self {
            warm_up: plan.warm_up,
            after: plan.end.after,
            requests: plan.end.requests,
            crowd: plan.crowd.len(),
            course: VecDeque::new(),
            learnt_s: 0.0,
        }
    }

    fn learn(&mut self, progress: &Progress) {
        let Some(last) = progress.last.as_ref().filter(|last| last.end_s > self.learnt_s) else {
            return;
        };
        self.course.push_front(rate_per_s(last, self.learnt_s));
        self.learnt_s = last.end_s;
        self.course.truncate(COURSE_MAX);
    }

    fn draw(&self, progress: &Progress, frame: &mut Frame<'_>) {
        let rows = Layout::vertical([Constraint::Length(1); HEIGHT as usize]);
        let [gauge, rate, latencies, counts, keys] = rows.areas(frame.area());
        self.draw_gauge(progress, frame, gauge);
        self.draw_rate(frame, rate);
        let words = progress
            .last
            .as_ref()
            .map_or_else(String::new, |last| format!("{}   (last second)", latency(last)));
        frame.render_widget(named("latency", vec![words.into()]), latencies);
        frame.render_widget(named("answers", counted(progress)), counts);
        let hint = match progress.phase {
            Phase::Finishing => " waiting for the answers that are under way",
            _ => " q or Ctrl-C ends the run and shows the result",
        };
        frame.render_widget(Line::from(hint).dim(), keys);
    }

    fn draw_gauge(&self, progress: &Progress, frame: &mut Frame<'_>, area: Rect) {
        let [name, bar, left] = Layout::horizontal([
            Constraint::Length(NAMES),
            Constraint::Fill(1),
            Constraint::Length(15),
        ])
        .areas(area);
        let phase = match progress.phase {
            Phase::SettingUp => "connecting",
            Phase::WarmUp => "warm-up",
            Phase::Measuring => "measuring",
            Phase::Finishing => "finishing",
        };
        frame.render_widget(Line::from(format!(" {phase}")).bold(), name);
        let (share, words) = self.progressed(progress);
        let gauge = LineGauge::default()
            .ratio(share)
            .label("")
            .filled_symbol("━")
            .filled_style(Style::new().cyan());
        frame.render_widget(gauge, bar);
        frame.render_widget(Line::from(words).right_aligned(), left);
    }

    /// How much of the run is over, 0 to 1, and what is left of it.
    fn progressed(&self, progress: &Progress) -> (f64, String) {
        let share =
            |part: f64, all: f64| if all > 0.0 { (part / all).clamp(0.0, 1.0) } else { 0.0 };
        if progress.phase == Phase::SettingUp {
            let connected = progress.crowd_connected;
            return (share(connected.into(), self.crowd.into()), format!("{connected} beside "));
        }
        let by_number = self.requests.map(|requests| {
            let left = requests.saturating_sub(progress.totals.answered);
            (share(progress.totals.answered as f64, requests as f64), format!("{left} left "))
        });
        let by_time = self.after.map(|after| {
            let all = self.warm_up + after;
            let left = all.saturating_sub(progress.elapsed).as_secs_f64();
            let elapsed = progress.elapsed.as_secs_f64();
            (share(elapsed, all.as_secs_f64()), format!("{left:.1} s left "))
        });
        let all = by_number.into_iter().chain(by_time);
        all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
    }

    fn draw_rate(&self, frame: &mut Frame<'_>, area: Rect) {
        let widths = [NAMES + RATE, area.width.saturating_sub(NAMES + RATE)];
        let [figure, course] = Layout::horizontal(widths.map(Constraint::Length)).areas(area);
        let rate = self.course.front().map(|rate| count(*rate)).unwrap_or_default();
        frame.render_widget(named("requests/s", vec![rate.bold()]), figure);
        let seconds = self.course.len().min(course.width.into());
        // The oldest at the left.
        let bars: Vec<u64> = self.course.iter().take(seconds).rev().copied().collect();
        frame.render_widget(Sparkline::default().data(bars).cyan(), course);
    }
}

fn named(name: &'static str, figures: Vec<Span<'static>>) -> Paragraph<'static> {
    let name = format!(" {name:<width$}", width = usize::from(NAMES) - 1);
    let spans = std::iter::once(name.dim()).chain(figures);
    Paragraph::new(Line::from_iter(spans))
}

/// A line for each agent below those of the sum, as many as there is room for.
fn draw_agents(agents: &[AgentNow], frame: &mut Frame<'_>) {
    let area = frame.area();
    let room = area.height.saturating_sub(HEIGHT);
    for (line, row) in agent_lines(agents, room.into()).into_iter().zip(HEIGHT..area.height) {
        let at = Rect { y: area.y + row, height: 1, ..area };
        frame.render_widget(Line::from(line), at);
    }
}

fn counted(progress: &Progress) -> Vec<Span<'static>> {
    let errors = progress.errors.total();
    let now = progress.last.as_ref().map_or(0, |last| last.errors);
    let errors = Span::from(format!("errors {}", count(errors.max(now))));
    let open = progress.last.as_ref().map_or(0, |last| last.open);
    vec![
        format!("{}   ", count(progress.totals.answered)).into(),
        if now > 0 || progress.errors.total() > 0 { errors.red().bold() } else { errors },
        format!("   connections {open}   {}", elapsed(progress)).into(),
    ]
}

fn elapsed(progress: &Progress) -> String {
    match progress.elapsed {
        Duration::ZERO => String::new(),
        elapsed => format!("after {}", time(elapsed.as_nanos() as f64)),
    }
}

#[cfg(test)]
mod tests {
    use pollux_load::{Distribution, Errors, Second, Totals};
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn of_many_agents_the_worst_are_shown() {
        let agent = |number: u64| AgentNow {
            name: format!("agent-{number}"),
            is_lost: number == 3,
            answered: 5,
            p99_ns: Some(1_000_000 * number),
            errors: 0,
            cpu: Duration::ZERO,
        };
        let agents: Vec<AgentNow> = (0..500).map(agent).collect();
        let lines = agent_lines(&agents, 4);
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("agent-3 ") && lines[0].contains("lost"), "{lines:?}");
        assert!(lines[1].contains("agent-499") && lines[2].contains("agent-498"), "{lines:?}");
        assert_eq!(lines[3], "  497 other agents");
        assert_eq!(agent_lines(&agents[..4], 4).len(), 4);
        assert_eq!(agent_lines(&agents, 0).len(), 0);
    }

    fn progress(phase: Phase, end_s: f64, answered: u64) -> Progress {
        let mut latency = Distribution::new();
        (0..100).for_each(|_| latency.record(310_000));
        Progress {
            phase,
            elapsed: Duration::from_secs_f64(end_s),
            last: Some(Second {
                end_s,
                is_warm_up: false,
                sent: answered,
                answered,
                errors: 0,
                bytes_in: 0,
                open: 64,
                latency,
                ..Second::default()
            }),
            totals: Totals { answered: 1_102_334, ..Totals::default() },
            errors: Errors { reset: 3, ..Errors::default() },
            crowd_connected: 7,
        }
    }

    fn state() -> State {
        State {
            warm_up: Duration::from_secs(1),
            after: Some(Duration::from_secs(9)),
            requests: None,
            crowd: 14,
            course: VecDeque::new(),
            learnt_s: 0.0,
        }
    }

    fn drawn(state: &State, progress: &Progress) -> String {
        let mut terminal = Terminal::new(TestBackend::new(72, HEIGHT)).expect("memory");
        terminal.draw(|frame| state.draw(progress, frame)).expect("memory");
        terminal.backend().to_string()
    }

    #[test]
    fn the_view_shows_rate_course_latency_counts_and_what_is_left() {
        let mut state = state();
        for second in 1..=4 {
            state.learn(&progress(Phase::Measuring, f64::from(second), 50_000 * second as u64));
        }
        let now = progress(Phase::Measuring, 5.0, 183_402);
        state.learn(&now);
        // The same second again counts once.
        state.learn(&now);
        let text = drawn(&state, &now);
        for part in ["measuring", "5.0 s left", "183,402", "p99 310 µs", "1,102,334", "errors 3"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(text.contains("▂▄▆█▇") || text.contains("█▇"), "{text}");
    }

    #[test]
    fn each_agent_has_a_line() {
        let agent = |name: &str, is_lost| AgentNow {
            name: name.to_owned(),
            is_lost,
            answered: 1_234,
            p99_ns: Some(310_000),
            errors: 2,
            cpu: Duration::from_millis(120),
        };
        let agents = [agent("gen-1", false), agent("gen-2", true)];
        let height = HEIGHT + agents.len() as u16;
        let mut terminal = Terminal::new(TestBackend::new(72, height)).expect("memory");
        let now = progress(Phase::Measuring, 5.0, 183_402);
        let draw = |frame: &mut Frame<'_>| {
            state().draw(&now, frame);
            draw_agents(&agents, frame);
        };
        terminal.draw(draw).expect("memory");
        let text = terminal.backend().to_string();
        for part in ["gen-1", "1,234/s", "CPU 120 ms  2 errors", "gen-2                 lost"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn before_the_first_second_only_the_crowd_is_known() {
        let mut now = progress(Phase::SettingUp, 0.0, 0);
        now.last = None;
        let text = drawn(&state(), &now);
        assert!(text.contains("connecting") && text.contains("7 beside"), "{text}");
    }

    #[test]
    fn a_number_of_requests_is_counted_down() {
        let mut state = state();
        (state.after, state.requests) = (None, Some(1_102_335));
        let (share, words) = state.progressed(&progress(Phase::Measuring, 3.0, 10));
        assert!(share > 0.99 && words == "1 left ", "{share} {words}");
    }

    #[test]
    fn q_and_control_c_end_the_run_and_other_keys_do_not() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        assert!(ends(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(ends(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!ends(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!ends(&key(KeyCode::Esc, KeyModifiers::NONE)));
    }

    #[test]
    fn a_second_is_one_line() {
        let mut latency = Distribution::new();
        (0..1_000).for_each(|_| latency.record(64_100));
        let mut second = Second {
            end_s: 3.0,
            is_warm_up: true,
            sent: 1_000,
            answered: 1_000,
            errors: 2,
            bytes_in: 0,
            open: 64,
            latency,
            ..Second::default()
        };
        assert_eq!((rate_per_s(&second, 2.0), rate_per_s(&second, 2.75)), (1_000, 4_000));
        let text = line(&second, 1_000);
        assert!(text.contains("    3.0 s") && text.contains("1,000/s"), "{text}");
        assert!(text.contains("p99 64.1 µs") && text.ends_with("2 errors  warm-up"), "{text}");
        second = Second { end_s: 4.0, ..Second::default() };
        let text = line(&second, 0);
        assert!(text.contains("p50 n/a") && text.ends_with("max n/a"), "{text}");
    }
}
