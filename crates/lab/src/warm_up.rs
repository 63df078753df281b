//! Loading an arm before it is timed, until a unit of work costs it no less than before.
//!
//! A program that compiles itself while it runs, or whose caches fill, costs several times as much in its first
//! thousand requests as from the ten thousandth on. The process of an arm is therefore loaded in turns that grow,
//! and what a unit cost it in each of them is its curve ([`Curve`]): the load ends when the curve is flat, or when
//! its time is over. Called by the process that has the subject; nothing of it is compared.
//!
//! A machine that others share changes its speed by a factor of two within a second. What this process itself spends on
//! a unit, always the same work, changes with it, so costs are compared beside that.

use std::time::{Duration, Instant};

use pollux_sys::process::process_cpu_time;

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
const UNITS_MIN: u64 = 10_000;
const TIME_ENOUGH: Duration = Duration::from_secs(2);
const TURNS_MIN: usize = 8;
/// The end of a load of fewer turns is noise.
const TURNS_THAT_TELL: usize = 16;
/// Windows whose costs differ by less are alike; where so many turns in each differ more among themselves, by twice
/// what that makes of a window, and by no more than this. The differences of fewer turns are as much slope as noise.
const ALIKE: f64 = 0.025;
const ALIKE_MAX: f64 = 0.1;
const WINDOW_TURNS: usize = 4;
/// A curve that fell by this share since its first turn is one of a program that compiles itself: compilers work in
/// steps, and such a curve has to be flat over the last three quarters of the units, not only over half of them.
const COMPILED: f64 = 0.25;
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
    let (start, mut curve) = (Instant::now(), Curve::default());
    let mut before = subject.cpu_time()?;
    let mut own_before = own_time();
    while let Some(left) = length.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        let turn = (start.elapsed() / TURN_PART).clamp(TURN_MIN, TURN_MAX).min(left);
        let began = Instant::now();
        let units = subject.turn(TurnSize::of(turn))?;
        let wall_ns = began.elapsed().as_nanos() as u64;
        let after = subject.cpu_time()?;
        let cpu_ns = after.saturating_sub(std::mem::replace(&mut before, after)).as_nanos() as u64;
        let own = own_time();
        let own_ns = own.saturating_sub(std::mem::replace(&mut own_before, own)).as_nanos() as u64;
        curve.turns.push(Turn { figure: Figure { units, cpu_ns, wall_ns }, own_ns });
        let is_over = match until {
            Until::Flat => curve.is_flat(start.elapsed()),
            Until::Units(units) => curve.units() >= units,
            Until::TimeOver => false,
        };
        if is_over {
            break;
        }
    }
    Ok(curve.found(start.elapsed()))
}

/// What this process has spent on loading; nothing where the kernel does not say.
fn own_time() -> Duration {
    process_cpu_time(std::process::id()).unwrap_or_default()
}

/// Units that a load has which repeats the one that found this.
pub(crate) fn units_again(found: &WarmUp) -> u64 {
    let again = (found.flat_after as f64 * SPARE).max(found.units as f64 * REPEATED_PART);
    (again as u64).max(REPEATED_MIN)
}

/// What units cost in the turns of a load, one after the other.
#[derive(Clone, Debug, Default)]
struct Curve {
    turns: Vec<Turn>,
}

/// A turn, with what this process spent on it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    figure: Figure,
    own_ns: u64,
}

impl Turn {
    /// What a unit cost beside what it cost this process.
    fn beside_own(&self) -> Option<f64> {
        let own = (self.own_ns > 0).then_some(self.own_ns as f64)?;
        self.figure.cost_ns().map(|cost| cost * self.figure.units as f64 / own)
    }
}

/// What a part of a curve says.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The cost of a unit in nanoseconds.
    cost: Level,
    /// The same beside what it cost this process.
    beside_own: Option<Level>,
    turns: usize,
}

/// A mean, and how far that of one turn lies from it, as the turns beside each other differ, which a slope hardly changes.
#[derive(Clone, Copy, Debug)]
struct Level {
    mean: f64,
    error: f64,
}

impl Level {
    fn of(mean: f64, turns: &[f64]) -> Self {
        let steps: Vec<f64> =
            turns.windows(2).map(|pair| (pair[1] / pair[0]).ln().powi(2) / 2.0).collect();
        let variance = crate::stats::mean(&steps).unwrap_or(0.0);
        Self { mean, error: (variance / turns.len() as f64).sqrt() }
    }

    fn is_alike(self, other: Self, has_spread: bool) -> bool {
        let error = if has_spread { self.error.hypot(other.error) } else { 0.0 };
        (other.mean / self.mean).ln().abs() < (2.0 * error).clamp(ALIKE, ALIKE_MAX)
    }
}

impl Curve {
    fn units(&self) -> u64 {
        self.turns.iter().map(|turn| turn.figure.units).sum()
    }

    /// The turns whose middle lies between these shares of all units.
    fn window(&self, from: f64, to: f64) -> Option<Window> {
        let all = self.units() as f64;
        let mut done = 0;
        let mut inside = Vec::new();
        for turn in &self.turns {
            let units = turn.figure.units;
            let middle = (done as f64 + units as f64 / 2.0) / all;
            done += units;
            if middle >= from && middle < to && turn.figure.cost_ns().is_some() {
                inside.push(*turn);
            }
        }
        let sum = |of: &dyn Fn(&Turn) -> u64| inside.iter().map(of).sum::<u64>() as f64;
        let (units, cpu_ns) = (sum(&|turn| turn.figure.units), sum(&|turn| turn.figure.cpu_ns));
        let own_ns = sum(&|turn| turn.own_ns);
        let costs: Vec<f64> = inside.iter().filter_map(|turn| turn.figure.cost_ns()).collect();
        let beside: Vec<f64> = inside.iter().filter_map(Turn::beside_own).collect();
        let turns = costs.len();
        (turns > 0).then(|| Window {
            cost: Level::of(cpu_ns / units, &costs),
            beside_own: (beside.len() == turns).then(|| Level::of(cpu_ns / own_ns, &beside)),
            turns,
        })
    }

    /// Whether a unit costs as much as it did before; `elapsed` since the load began.
    fn is_flat(&self, elapsed: Duration) -> bool {
        let has_enough = self.units() >= UNITS_MIN || elapsed >= TIME_ENOUGH;
        if !has_enough || self.turns.len() < TURNS_MIN {
            return false;
        }
        let are_alike = |one: (f64, f64), other: (f64, f64)| {
            let windows = self.window(one.0, one.1).zip(self.window(other.0, other.1));
            windows.is_some_and(|(one, other)| is_alike(one, other))
        };
        let first = self.turns.iter().find_map(|turn| turn.figure.cost_ns());
        let last = self.window(0.5, 1.0).map(|last| last.cost.mean);
        let has_fallen =
            first.zip(last).is_some_and(|(first, last)| last < first * (1.0 - COMPILED));
        are_alike((0.5, 0.75), (0.75, 1.0)) && (!has_fallen || are_alike((0.2, 0.4), (0.5, 1.0)))
    }

    /// The number of turns after which it was flat: the last of them is the last from which on half as many units again
    /// cost more, or less, than the last half of all.
    fn flat_after(&self) -> usize {
        let Some(last) = self.window(0.5, 1.0) else { return self.turns.len() };
        let all = self.units() as f64;
        let mut done = 0;
        let mut flat_after = 0;
        for (index, turn) in self.turns.iter().enumerate() {
            let from = done as f64 / all;
            done += turn.figure.units;
            let to = (done as f64 / all).max(from * 1.5);
            if from >= 0.75 {
                break;
            }
            if self.window(from, to.min(1.0)).is_some_and(|window| !is_alike(window, last)) {
                flat_after = index + 1;
            }
        }
        flat_after
    }

    fn found(&self, elapsed: Duration) -> WarmUp {
        let cost = |from: f64, to: f64| self.window(from, to).map(|window| window.cost.mean);
        let last = self.window(0.75, 1.0);
        let before = self.window(0.5, 0.75);
        let last_ns = last.map(|last| last.cost.mean).or_else(|| cost(0.0, 1.0)).unwrap_or(0.0);
        let first_ns = self.turns.iter().find_map(|turn| turn.figure.cost_ns()).unwrap_or(last_ns);
        let change = last.zip(before).map_or(0.0, |(last, before)| last.change_since(before));
        let is_flat = self.turns.len() < TURNS_THAT_TELL
            || last.zip(before).is_none_or(|(last, before)| is_alike(before, last));
        let until_flat = &self.turns[..self.flat_after()];
        WarmUp {
            units: self.units(),
            time_s: elapsed.as_secs_f64(),
            first_ns,
            last_ns,
            change,
            is_flat,
            flat_after: until_flat.iter().map(|turn| turn.figure.units).sum(),
            flat_after_s: until_flat.iter().map(|turn| turn.figure.wall_ns as f64 / 1e9).sum(),
        }
    }
}

impl Window {
    /// By how much a unit costs more than before, beside what it cost this process.
    fn change_since(self, before: Self) -> f64 {
        let beside = self.beside_own.zip(before.beside_own);
        let (now, before) = beside.unwrap_or((self.cost, before.cost));
        now.mean / before.mean - 1.0
    }
}

fn is_alike(one: Window, other: Window) -> bool {
    let has_spread = one.turns.min(other.turns) >= WINDOW_TURNS;
    let beside = one.beside_own.zip(other.beside_own);
    let (one, other) = beside.unwrap_or((one.cost, other.cost));
    one.is_alike(other, has_spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve whose turns have a thousand units each, with what a unit costs after so many of them.
    fn curve(turns: u64, cost_us: impl Fn(u64) -> f64) -> Curve {
        let turn = |at: u64| {
            let cpu_ns = (cost_us(at * 1000 + 500) * 1e6) as u64;
            Turn { figure: Figure { units: 1000, cpu_ns, wall_ns: cpu_ns }, own_ns: 5_000_000 }
        };
        Curve { turns: (0..turns).map(turn).collect() }
    }

    /// The same on a machine that takes so many times as long for everything.
    fn slowed(mut curve: Curve, by: impl Fn(u64) -> f64) -> Curve {
        for (at, turn) in (0..).zip(&mut curve.turns) {
            for ns in [&mut turn.figure.cpu_ns, &mut turn.figure.wall_ns, &mut turn.own_ns] {
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
        assert!(ends_after(|_| 10.0) <= 12);
        assert!(ends_after(|units| 10.0 + 0.3 * noise(units)) <= 30);
        // Pages are touched for the first time.
        assert!(ends_after(|units| if units < 1000 { 12.0 } else { 10.0 }) <= 14);
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
        assert!(plain.is_flat && (plain.last_ns - 10_000.0).abs() < 1.0, "{plain:?}");
    }
}
