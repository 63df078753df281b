//! Loading an arm before it is timed, until a unit of work costs it no less than before.
//!
//! A program that compiles itself while it runs, or whose caches fill, costs several times as much in its first
//! thousand requests as from the ten thousandth on. The process of an arm is therefore loaded in turns that grow,
//! and what a unit cost it in each of them is its curve ([`Curve`]): the load ends when the curve is flat, or when
//! its time is over. Called by the process that has the subject; nothing of it is compared.
//!
//! A machine that others share changes its speed by a factor of two within a second; [`Measure`] says how a curve is
//! read in spite of it.

use std::time::{Duration, Instant};

use crate::error::MeasureError;
use crate::record::WarmUp;
use crate::subject::{Figure, Subject, TurnSize};

/// The shortest turn, the longest, and the part of the time so far that one takes: windows over the curve then
/// hold several turns each.
const TURN_MIN: Duration = Duration::from_millis(20);
const TURN_MAX: Duration = Duration::from_millis(250);
const TURN_PART: u32 = 16;
/// Less is not looked at: compilers begin after some thousand calls. Of a server that is so slow that this would
/// take long, two seconds of load.
const UNITS_MIN: u64 = 20_000;
const TIME_ENOUGH: Duration = Duration::from_secs(2);
/// Where a unit costs this much less than in the first turn, a compiler is at work, and more is needed: one that has a
/// CPU in common with what it compiles costs a JVM as much in its requests 6,000 to 40,000, which looks as if nothing
/// became cheaper any more.
const FELL: f64 = 2.0;
const UNITS_MIN_FELL: u64 = 80_000;
const TIME_ENOUGH_FELL: Duration = Duration::from_secs(4);
const TURNS_MIN: usize = 8;
/// The end of a load of fewer turns is noise.
const TURNS_THAT_TELL: usize = 16;
/// Windows have so many turns.
const WINDOW_TURNS: usize = 4;
/// Windows whose costs differ by less are alike; where turns differ more among themselves, by three times what that
/// makes of a window, and by no more than this.
const ALIKE: f64 = 0.03;
const ALIKE_MAX: f64 = 0.08;
const ERRORS: f64 = 3.0;
/// A load ends where nothing behind this share of its units was cheaper than what came before it: compilers work in
/// steps, and those lie further and further apart.
const FLAT_FROM: f64 = 0.25;
/// What is said of the end of a load is said of the units from this share on.
const END_FROM: f64 = 0.75;
/// A load that repeats a curve has so many times the units after which that was flat: starts differ.
const SPARE: f64 = 2.0;
/// It has this part of the units of that load at least, since noise can hide where a curve became flat, and so many.
const REPEATED_PART: f64 = 0.4;
const REPEATED_MIN: u64 = 1000;

/// A program that is loaded for less is started anew before each set.
pub(crate) const CHEAP: Duration = Duration::from_millis(200);

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When a unit costs no less than before.
    Flat,
    /// After so many units.
    Units(u64),
    /// When the time is over.
    TimeOver,
}

/// Loads `subject` for `length` at most.
pub(crate) fn warm_up(
    subject: &mut dyn Subject,
    until: Until,
    length: Duration,
) -> Result<WarmUp, MeasureError> {
    let start = Instant::now();
    let mut curve = Curve::default();
    let mut before = subject.cpu_time()?;
    let mut own_before = subject.own_time();
    while let Some(left) = length.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        let turn = (start.elapsed() / TURN_PART).clamp(TURN_MIN, TURN_MAX).min(left);
        let began = Instant::now();
        let units = subject.turn(TurnSize::of(turn))?;
        let wall_ns = began.elapsed().as_nanos() as u64;
        let after = subject.cpu_time()?;
        let cpu_ns = after.saturating_sub(std::mem::replace(&mut before, after)).as_nanos() as u64;
        let own = subject.own_time();
        let own_ns = own.saturating_sub(std::mem::replace(&mut own_before, own)).as_nanos() as u64;
        curve.turns.push(Figure { units, cpu_ns, wall_ns, own_ns });
        let is_over = match until {
            Until::Flat => curve.is_flat(start.elapsed()),
            Until::Units(least) => curve.units() >= least,
            Until::TimeOver => false,
        };
        if is_over {
            break;
        }
    }
    let elapsed = start.elapsed();
    let is_short = until == Until::Flat && !curve.has_enough(elapsed);
    let found = curve.found(elapsed);
    Ok(WarmUp { is_short, is_flat: found.is_flat && !is_short, ..found })
}

/// Units that a load has which repeats the one that found this.
pub(crate) fn units_again(found: &WarmUp) -> u64 {
    let again = (found.flat_after as f64 * SPARE).max(found.units as f64 * REPEATED_PART);
    (again as u64).max(REPEATED_MIN)
}

/// What units cost in the turns of a load, one after the other.
#[derive(Clone, Debug, Default)]
struct Curve {
    turns: Vec<Figure>,
}

/// What a unit cost in one window after the other, by one of two measures.
///
/// A neighbour of the machine makes what runs dearer for a tenth of a second or for seconds, and never cheaper than it is,
/// so the cheapest windows are compared. A program that becomes cheaper is so by both measures: by its cost, and by its
/// cost beside that of this process, which the machine slows down likewise, though not always by as much.
#[derive(Clone, Debug)]
struct Measure {
    /// The share of all units that was done by the end of each window, and its cost.
    windows: Vec<(f64, f64)>,
    /// By how much windows that are alike differ at most.
    alike: f64,
}

impl Measure {
    fn of(turns: &[Figure], cost: impl Fn(&[Figure]) -> Option<f64>) -> Option<Self> {
        let all = units(turns) as f64;
        let mut done = units(&turns[..turns.len().min(WINDOW_TURNS - 1)]);
        let mut windows = Vec::new();
        for window in turns.windows(WINDOW_TURNS) {
            done += window.last().map_or(0, |turn| turn.units);
            windows.extend(cost(window).map(|cost| (done as f64 / all, cost)));
        }
        let of_turns: Option<Vec<f64>> =
            turns.iter().filter(|turn| turn.units > 0).map(|turn| cost(&[*turn])).collect();
        let steps: Vec<f64> =
            of_turns?.windows(2).map(|pair| (pair[1] / pair[0]).ln().powi(2) / 2.0).collect();
        let error = (pollux_stats::mean(&steps)? / WINDOW_TURNS as f64).sqrt();
        Some(Self { windows, alike: (ERRORS * error).clamp(ALIKE, ALIKE_MAX) })
    }

    /// The cheapest window that ends behind the first share and not behind the second.
    fn lowest(&self, from: f64, to: f64) -> Option<f64> {
        let inside = self.windows.iter().filter(|(end, _)| *end > from && *end <= to);
        inside.map(|(_, cost)| *cost).reduce(f64::min)
    }

    /// By how much the cheapest window behind a share is cheaper (below 0) or dearer than the cheapest before it; 0 where
    /// they are alike.
    fn change_at(&self, share: f64) -> Option<f64> {
        let change = self.lowest(share, 1.0)? / self.lowest(0.0, share)? - 1.0;
        Some(if change.abs() <= self.alike { 0.0 } else { change })
    }

    /// The first window that is as cheap as it gets.
    fn flat_window(&self) -> Option<usize> {
        let lowest = self.lowest(0.0, 1.0)?;
        self.windows.iter().position(|(_, cost)| *cost <= lowest * (1.0 + self.alike))
    }
}

fn units(turns: &[Figure]) -> u64 {
    turns.iter().map(|turn| turn.units).sum()
}

/// CPU time of a unit over some turns.
fn cost_ns(turns: &[Figure]) -> Option<f64> {
    let cpu_ns = turns.iter().map(|turn| turn.cpu_ns).sum();
    Figure { units: units(turns), cpu_ns, wall_ns: 0, own_ns: 0 }.cost_ns()
}

/// The same beside what it cost this process.
fn beside_own(turns: &[Figure]) -> Option<f64> {
    let sum = |of: fn(&Figure) -> u64| turns.iter().map(of).sum();
    let cpu_ns = sum(|turn| turn.cpu_ns);
    let own_ns = sum(|turn| turn.own_ns);
    Figure { units: units(turns), cpu_ns, wall_ns: 0, own_ns }.beside_own()
}

impl Curve {
    fn units(&self) -> u64 {
        units(&self.turns)
    }

    fn measures(&self) -> Vec<Measure> {
        let both = [Measure::of(&self.turns, cost_ns), Measure::of(&self.turns, beside_own)];
        both.into_iter().flatten().collect()
    }

    /// The change at a share of the units on which the measures agree, and the smaller of theirs.
    fn change_at(&self, share: f64) -> Option<f64> {
        let changes: Option<Vec<f64>> =
            self.measures().iter().map(|measure| measure.change_at(share)).collect();
        let changes = changes?;
        let smallest = changes.iter().copied().min_by(|a, b| a.abs().total_cmp(&b.abs()))?;
        let do_agree = changes.iter().all(|change| change.signum() == smallest.signum());
        Some(if do_agree { smallest } else { 0.0 })
    }

    /// Whether a unit became so much cheaper that a compiler has to be at work.
    fn fell(&self) -> bool {
        let first = self.turns.iter().find_map(Figure::cost_ns);
        let lowest = Measure::of(&self.turns, cost_ns).and_then(|costs| costs.lowest(0.0, 1.0));
        first.zip(lowest).is_some_and(|(first, lowest)| first >= lowest * FELL)
    }

    /// Whether there was load enough to say that nothing becomes cheaper any more; `elapsed` since it began.
    fn has_enough(&self, elapsed: Duration) -> bool {
        let (units, time) =
            if self.fell() { (UNITS_MIN_FELL, TIME_ENOUGH_FELL) } else { (UNITS_MIN, TIME_ENOUGH) };
        self.units() >= units || elapsed >= time
    }

    /// Whether a unit costs no less than before; `elapsed` since the load began.
    fn is_flat(&self, elapsed: Duration) -> bool {
        self.has_enough(elapsed)
            && self.turns.len() >= TURNS_MIN
            && self.change_at(FLAT_FROM).is_some_and(|change| change >= 0.0)
    }

    fn found(&self, elapsed: Duration) -> WarmUp {
        let all = self.units() as f64;
        let mut done = 0;
        let is_at_the_end = |turn: &&Figure| {
            done += turn.units;
            done as f64 > all * END_FROM
        };
        let last: Vec<Figure> = self.turns.iter().filter(is_at_the_end).copied().collect();
        let last_ns = cost_ns(&last).or_else(|| cost_ns(&self.turns)).unwrap_or(0.0);
        let first_ns = self.turns.iter().find_map(Figure::cost_ns).unwrap_or(last_ns);
        let does_tell = self.turns.len() >= TURNS_THAT_TELL;
        let change = self.change_at(END_FROM).filter(|_| does_tell).unwrap_or(0.0);
        let flat_windows = self.measures().into_iter().filter_map(|of| of.flat_window());
        let until_flat = &self.turns[..flat_windows.min().unwrap_or(0)];
        WarmUp {
            units: self.units(),
            time_s: elapsed.as_secs_f64(),
            first_ns,
            last_ns,
            change,
            is_flat: change == 0.0,
            flat_after: units(until_flat),
            flat_after_s: until_flat.iter().map(|turn| turn.wall_ns).sum::<u64>() as f64 / 1e9,
            is_short: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve whose turns have a thousand units each, with what a unit costs after so many of them.
    fn curve(turns: u64, cost_us: impl Fn(u64) -> f64) -> Curve {
        let turn = |at: u64| {
            let cpu_ns = (cost_us(at * 1000 + 500) * 1e6) as u64;
            Figure { units: 1000, cpu_ns, wall_ns: cpu_ns, own_ns: 5_000_000 }
        };
        Curve { turns: (0..turns).map(turn).collect() }
    }

    /// The same on a machine that takes so many times as long for everything.
    fn slowed(mut curve: Curve, by: impl Fn(u64) -> f64) -> Curve {
        for (at, turn) in (0..).zip(&mut curve.turns) {
            for ns in [&mut turn.cpu_ns, &mut turn.wall_ns, &mut turn.own_ns] {
                *ns = (*ns as f64 * by(at * 1000)) as u64;
            }
        }
        curve
    }

    /// After how many thousand units a load until the curve is flat ends.
    fn ends_after(cost_us: impl Fn(u64) -> f64) -> u64 {
        let is_flat = |turns: &u64| curve(*turns, &cost_us).is_flat(Duration::from_millis(*turns));
        (1..2000).find(is_flat).expect("it ends")
    }

    /// Of a turn by its place, between -1 and 1.
    fn noise(units: u64) -> f64 {
        ((units as f64 * 12.9898).sin() * 43758.5453).fract()
    }

    #[test]
    fn a_server_that_costs_the_same_from_the_first_request_on_is_loaded_for_a_moment() {
        assert!(ends_after(|_| 10.0) <= 22);
        assert!(ends_after(|units| 10.0 + 0.3 * noise(units)) <= 30);
        // Pages are touched for the first time.
        assert!(ends_after(|units| if units < 1000 { 12.0 } else { 10.0 }) <= 24);
    }

    #[test]
    fn a_program_that_compiles_itself_is_loaded_until_it_is_as_fast_as_it_gets() {
        let node = |units: u64| 10.2 + 60.0 * (-(units as f64) / 4000.0).exp();
        assert!((20..160).contains(&ends_after(node)), "{}", ends_after(node));
        // A plateau of tiered compilation, then the next step.
        let jvm = |units: u64| match units {
            0..25_000 => 132.0 - 114.0 * units as f64 / 25_000.0,
            25_000..74_000 => 18.0 - 5.0 * (units - 25_000) as f64 / 49_000.0,
            74_000..217_000 => 13.0,
            _ => 7.0,
        };
        assert!((250..=1200).contains(&ends_after(jvm)), "{}", ends_after(jvm));
        let noisy = |units: u64| jvm(units) * (1.0 + 0.05 * noise(units));
        assert!((250..=1200).contains(&ends_after(noisy)), "{}", ends_after(noisy));
    }

    #[test]
    fn a_compiler_that_has_the_cpu_in_common_with_what_it_compiles_does_not_end_a_load() {
        // A JVM's server on one CPU, as it was measured: its compiler's own time is in the cost of requests.
        let jvm = |units: u64| match units {
            0..6000 => 400.0 - 350.0 * units as f64 / 6000.0,
            6000..45_000 => 50.0 * (1.0 + 0.08 * noise(units)),
            45_000..130_000 => 50.0 - 29.5 * (units - 45_000) as f64 / 85_000.0,
            _ => 20.5,
        };
        assert!((250..=1200).contains(&ends_after(jvm)), "{}", ends_after(jvm));
        let cut = curve(40, jvm);
        assert!(!cut.has_enough(Duration::from_secs(3)) && cut.has_enough(TIME_ENOUGH_FELL));
        // One that costs the same throughout needs no more than before.
        assert!(curve(20, |_| 20.0).has_enough(Duration::from_millis(400)));
    }

    #[test]
    fn a_machine_that_changes_its_speed_makes_no_load_longer() {
        let node = |units: u64| 10.2 + 60.0 * (-(units as f64) / 4000.0).exp();
        let speed = |units: u64| if (units / 15_000).is_multiple_of(2) { 1.0 } else { 1.8 };
        let of = |turns: u64| slowed(curve(turns, node), speed);
        let is_flat = |turns: &u64| of(*turns).is_flat(Duration::from_millis(*turns));
        let ends = (1..2000).find(is_flat).expect("it ends");
        assert!(ends.abs_diff(ends_after(node)) <= 20, "{ends} {}", ends_after(node));
        let found = of(150).found(Duration::from_secs(2));
        assert!(found.is_flat && found.change.abs() < 0.05, "{found:?}");
        assert!((10_000..40_000).contains(&found.flat_after), "{found:?}");
    }

    #[test]
    fn what_falls_or_rises_to_the_end_is_not_flat() {
        for sign in [-1.0, 1.0] {
            let moving = curve(100, |units| 50.0 + sign * 40.0 * units as f64 / 100_000.0);
            let found = moving.found(Duration::from_secs(1));
            assert!(!found.is_flat && found.change * sign > 0.1, "{found:?}");
        }
    }

    #[test]
    fn a_load_that_repeats_one_has_as_many_units_as_that_one_needed() {
        let found =
            |cost_us: &dyn Fn(u64) -> f64| curve(200, cost_us).found(Duration::from_secs(2));
        let steps = found(&|units| if units < 40_000 { 50.0 } else { 10.0 });
        assert!((36_000..=44_000).contains(&steps.flat_after), "{steps:?}");
        assert!((72_000..=88_000).contains(&units_again(&steps)), "{steps:?}");
        let plain = found(&|_| 10.0);
        assert_eq!((plain.flat_after, units_again(&plain)), (0, 80_000));
        assert!(plain.flat_after_s.is_sign_positive(), "not printed as -0.0");
        assert!(plain.is_flat && (plain.last_ns - 10_000.0).abs() < 1.0, "{plain:?}");
    }
}
