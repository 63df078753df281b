//! Rows of arms that cost less and less, or more and more, while they were measured: they have no verdict.
//!
//! A program that still compiles itself, a cache that fills, a list that grows: the interval of such a row holds what
//! its sets have in common, and that is the time at which they were taken. Whatever machine and neighbours do meanwhile
//! is in all arms alike, so a change counts where it is one beside the baseline; a change of both sides only where it
//! is too large for a machine. Of pollux and what the lab knows only the first is asked.

use pollux_report::number;
use pollux_stats::{SetChange, change_over_sets, change_within_sets, median};

use super::estimates::PointRuns;
use crate::arm::Arm;
use crate::plan::{Method, Plan, PlannedPoint, SAME_AGAIN};
use crate::record::{Measurement, Record, ResultRow, Thirds, Turns, Verdict, WarmUp};

/// The least change of a ratio within sets, or over sets of one process, that takes a verdict away.
const OF_RATIO_MIN: f64 = 0.05;
/// The least change of a cost by itself: machines change by less from the start of a set to its end.
const OF_COST_MIN: f64 = 0.12;
/// The least change at the end of the load before sets, where several had one.
const OF_LOAD_MIN: f64 = 0.08;

/// The least change between the ends of the first load and the last one of a process that lives on: twice, as short
/// loads on a busy machine differ by half.
const OF_LOADS_MIN: f64 = 0.7;
/// A difference that is so many times a change, both as logarithms, has its verdict in spite of it.
const REACH: f64 = 2.0;
/// How much cheaper, as a logarithm, a program may still become whose load was cut: three times.
const UNKNOWN: f64 = 1.1;
/// What costs so many times as much in its first requests compiles itself.
const FELL: f64 = 2.0;

/// Takes the verdict from the rows of which a side has not settled.
pub(super) fn withhold(plan: &Plan, record: &Record, results: &mut [ResultRow]) {
    for point in plan.points.iter().filter(|point| point.method == Method::Turns) {
        let runs = PointRuns::of(plan, point, record);
        let baseline = &point.arms[point.baseline];
        for arm in point.arms.iter().filter(|arm| arm.name != SAME_AGAIN) {
            let here = |row: &&mut ResultRow| {
                row.experiment == runs.part && row.point == point.point.label && row.arm == arm.name
            };
            let Some(row) = results.iter_mut().find(here) else { continue };
            let is_judged = matches!(
                row.verdict,
                Verdict::Faster | Verdict::Slower | Verdict::Equivalent | Verdict::Inconclusive
            );
            let found = Side::of(&runs, arm).filter(|_| is_judged).and_then(|own| {
                let other = Side::of(&runs, baseline)?;
                own.unsettled("", point).or_else(|| {
                    let of_baseline = other.unsettled("the baseline is ", point);
                    of_baseline.or_else(|| beside(&own, &other, point))
                })
            });
            let Some(found) = found else { continue };
            if is_out_of_reach(row, found.change) {
                row.notes.push(found.text);
                continue;
            }
            (row.verdict, row.more_blocks, row.bounds) = (Verdict::Inconclusive, None, None);
            row.unsettled = Some(found.text);
        }
    }
}

/// Whether a difference is so much larger than a change that the change can't take it away.
fn is_out_of_reach(row: &ResultRow, change: f64) -> bool {
    let is_decided = matches!(row.verdict, Verdict::Faster | Verdict::Slower);
    let ends = row.bounds.or_else(|| Some([row.ci_low?, row.ci_high?]));
    let nearest = ends.map_or(0.0, |[low, high]| low.ln().abs().min(high.ln().abs()));
    let is_one_way = ends.is_some_and(|[low, high]| (low > 1.0) == (high > 1.0));
    is_decided && is_one_way && nearest > change.abs() * REACH
}

/// That a side changes: by how much, as a logarithm, and what is said of it.
struct Found {
    change: f64,
    text: String,
}

/// One side of a ratio: what its sets say of changes.
struct Side {
    turns: Vec<Turns>,
    values: Vec<f64>,
    /// Whether nothing is known of it.
    is_of_user: bool,
    /// Whether sets had the same process, or one whose cost fell by much while it was loaded: where some had more load than
    /// others, their order shows it.
    is_older_in_later_sets: bool,
    /// Whether all had.
    is_one_process: bool,
}

impl Side {
    fn of(runs: &PointRuns<'_>, arm: &Arm) -> Option<Self> {
        let measured: Vec<&Measurement> = runs.measured(arm).collect();
        let turns: Vec<Turns> = measured.iter().filter_map(|measured| measured.turns).collect();
        let values = measured.iter().map(|measured| measured.value).collect();
        let is_one_process = matches!(arm.kind, crate::arm::ArmKind::Running { .. });
        let fell = |load: &WarmUp| load.first_ns >= load.last_ns * FELL;
        let is_older_in_later_sets = is_one_process
            || turns.iter().any(|turns| turns.is_kept || turns.warm_up.as_ref().is_some_and(fell));
        let is_of_user = arm.kind.is_of_user();
        let side = Self { turns, values, is_of_user, is_older_in_later_sets, is_one_process };
        (!side.turns.is_empty()).then_some(side)
    }

    /// The loads of each process that lived through several sets.
    fn lives(&self) -> Vec<Vec<WarmUp>> {
        let mut lives: Vec<Vec<WarmUp>> = Vec::new();
        for turns in &self.turns {
            match lives.last_mut() {
                Some(life) if turns.is_kept || self.is_one_process => life.extend(turns.warm_up),
                _ => lives.push(turns.warm_up.into_iter().collect()),
            }
        }
        lives
    }

    fn thirds(&self) -> impl Iterator<Item = (&Turns, Thirds)> {
        self.turns.iter().filter_map(|turns| Some((turns, turns.thirds?)))
    }

    /// The median over the sets of something in their thirds.
    fn usual(&self, of: impl Fn(Thirds) -> f64) -> f64 {
        median(&self.thirds().map(|(_, thirds)| of(thirds)).collect::<Vec<f64>>()).unwrap_or(0.0)
    }

    /// That this side changes by itself, if so.
    fn unsettled(&self, whose: &str, point: &PlannedPoint) -> Option<Found> {
        if !self.is_of_user || !point.experiment.is_server() {
            return None;
        }
        let unit_ns = point.experiment.cost.unit_ns;
        let mut loads: Vec<_> = self.turns.iter().filter_map(|turns| turns.warm_up).collect();
        let lives = self.lives();
        if let Some((change, first, last)) = change_over_loads(&lives) {
            let [from, to] = [first, last].map(|load| load.last_ns / unit_ns);
            return Some(words(whose, change, from, to, point));
        }
        if let Some(short) = lives.iter().find_map(|life| short_look(life)) {
            let [from, to] = [short.first_ns, short.last_ns].map(|ns| ns / unit_ns);
            return Some(words(whose, -UNKNOWN, from, to, point));
        }
        // A process that is kept has short loads after a long one, which they can't speak against.
        let longest = loads.iter().map(|load| load.time_s).fold(0.0, f64::max);
        loads.retain(|load| load.time_s * 2.0 >= longest);
        let least = if loads.len() == 1 { OF_COST_MIN } else { OF_LOAD_MIN };
        let moving = loads.iter().filter(|load| !load.is_flat).count();
        let change = median(&loads.iter().map(|load| load.change).collect::<Vec<f64>>());
        if let (Some(change), Some(first), Some(last)) = (change, loads.first(), loads.last())
            && moving * 2 > loads.len()
            && change.abs() >= least
            && loads.iter().all(|load| load.is_flat || load.change.signum() == change.signum())
        {
            // What got dearer had been cheapest in between.
            let from = if change < 0.0 { first.first_ns } else { last.last_ns / (1.0 + change) };
            let [from, to] = [from, last.last_ns].map(|ns| ns / unit_ns);
            return Some(words(whose, change, from, to, point));
        }
        let thirds: Vec<Thirds> = self.thirds().map(|(_, thirds)| thirds).collect();
        Some(self.words(whose, fall_within_sets(&thirds)?, point))
    }

    /// To the last third, from what the first would have been at the same speed of the machine.
    fn words(&self, whose: &str, change: f64, point: &PlannedPoint) -> Found {
        let to = self.usual(|thirds| thirds.last);
        words(whose, change, to / change.exp(), to, point)
    }
}

/// What the end of the load before its last set cost beside that before its first one, of processes that lived through
/// several; none where that is little, or where they do not agree. Of the loads of two processes nothing is learned:
/// one may have been loaded longer.
fn change_over_loads(lives: &[Vec<WarmUp>]) -> Option<(f64, WarmUp, WarmUp)> {
    let of_life = |life: &Vec<WarmUp>| {
        let first = *life.first()?;
        let last = *life.last()?;
        let change = (last.last_ns / first.last_ns).ln();
        (life.len() > 1 && change.is_finite()).then_some((change, first, last))
    };
    let mut changes: Vec<(f64, WarmUp, WarmUp)> = lives.iter().filter_map(of_life).collect();
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let middle = *changes.get(changes.len() / 2)?;
    let is_one_way = changes.iter().all(|change| change.0.signum() == middle.0.signum());
    (is_one_way && middle.0.abs() >= OF_LOADS_MIN).then_some(middle)
}

/// The look at a process that was over before it could tell whether the cost falls on, where no later one at it could.
fn short_look(life: &[WarmUp]) -> Option<WarmUp> {
    let short = life.iter().rposition(|load| load.is_short)?;
    (!life[short..].iter().any(|load| load.is_flat)).then(|| life[short])
}

/// By how much a cost fell within sets, as its logarithm, where it did so by itself and beside the generator's. That it
/// rose says nothing here: a machine that slows down after a burst makes all costs rise in every set. What rises on one
/// side only is seen beside the other.
fn fall_within_sets(thirds: &[Thirds]) -> Option<f64> {
    let of_set = |thirds: &Thirds| {
        let beside = thirds.change_beside_generator.unwrap_or(thirds.change);
        SetChange { change: thirds.change.max(beside), error: 0.0 }
    };
    let sets: Vec<SetChange> = thirds.iter().map(of_set).collect();
    change_within_sets(&sets, OF_COST_MIN).filter(|change| *change < 0.0)
}

/// That one side of a ratio changes beside the other, if so.
fn beside(own: &Side, other: &Side, point: &PlannedPoint) -> Option<Found> {
    let of_set = |(turns, thirds): (&Turns, Thirds)| {
        let error = turns.round_sd? * (2.0 / f64::from(thirds.rounds)).sqrt();
        Some(SetChange { change: thirds.ratio_change?, error })
    };
    let sets: Vec<SetChange> = own.thirds().filter_map(of_set).collect();
    if let Some(change) = change_within_sets(&sets, OF_RATIO_MIN) {
        let of_own = own.usual(|t| t.change);
        let of_other = other.usual(|t| t.change);
        // Seen from the other side the ratio goes the other way.
        return Some(if of_own * change.signum() >= -of_other * change.signum() {
            own.words("", change, point)
        } else {
            other.words("the baseline is ", -change, point)
        });
    }
    let log_ratios: Vec<f64> = own.turns.iter().filter_map(|turns| turns.log_ratio).collect();
    let living = [(own, "", 1.0), (other, "the baseline is ", -1.0)];
    let (side, whose, sign) = living.into_iter().find(|(side, ..)| side.is_older_in_later_sets)?;
    let change = change_over_sets(&log_ratios, OF_RATIO_MIN)? * sign;
    let third = side.values.len() / 3;
    let from = median(&side.values[..third])?;
    let to = median(&side.values[side.values.len() - third..])?;
    Some(words(whose, change, from, to, point))
}

fn words(whose: &str, change: f64, from: f64, to: f64, point: &PlannedPoint) -> Found {
    let unit = point.experiment.cost.metric.unit;
    let unit = unit.split_once('/').map_or(unit, |(unit, _)| unit);
    let span = format!("{} to {} {unit}", number::si(from), number::si(to));
    let text = if change < 0.0 {
        format!("{whose}still getting cheaper: {span}; give --ramp-time or more budget")
    } else {
        format!("{whose}getting dearer: {span}; --ramp-time shows whether that ends")
    };
    Found { change, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(changes: &[(f64, f64)]) -> Vec<Thirds> {
        let of_set = |(change, beside): &(f64, f64)| Thirds {
            rounds: 34,
            first: 13.0,
            last: 13.0 * change.exp(),
            change: *change,
            change_beside_generator: Some(*beside),
            ratio_change: None,
        };
        changes.iter().map(of_set).collect()
    }

    #[test]
    fn a_cost_that_falls_in_every_set_by_itself_and_beside_the_generator_is_still_falling() {
        let falling =
            [(-0.5, -0.6), (-0.4, -0.4), (-0.6, -0.5), (-0.5, -0.5), (-0.3, -0.4), (-0.5, -0.7)];
        let change = fall_within_sets(&sets(&falling)).expect("it falls");
        assert!((-0.6..-0.3).contains(&change), "{change}");
    }

    fn load(last_ns: f64) -> WarmUp {
        WarmUp { last_ns, ..WarmUp::default() }
    }

    #[test]
    fn loads_are_compared_with_those_of_the_same_process() {
        // Each process gets dearer; the first was loaded longest.
        let lives =
            [vec![load(150e3), load(250e3)], vec![load(40e3), load(220e3)], vec![load(80e3)]];
        let (change, first, last) = change_over_loads(&lives).expect("they get dearer");
        assert_eq!((change > 1.0, first.last_ns, last.last_ns), (true, 40e3, 220e3));
        let starts = [vec![load(238e3)], vec![load(93e3)]];
        assert_eq!(change_over_loads(&starts), None);
        let both_ways = [vec![load(20e3), load(60e3)], vec![load(60e3), load(20e3)]];
        assert_eq!(change_over_loads(&both_ways), None);
    }

    #[test]
    fn a_look_that_was_cut_takes_the_verdict_away_unless_a_later_one_could_tell() {
        let short = WarmUp { is_short: true, ..load(50e3) };
        let flat = WarmUp { is_flat: true, ..load(20e3) };
        assert_eq!(short_look(&[short]), Some(short));
        assert_eq!(short_look(&[short, WarmUp { is_flat: false, ..flat }]), Some(short));
        assert_eq!(short_look(&[short, flat]), None);
        assert_eq!(short_look(&[flat, load(21e3)]), None);
    }

    #[test]
    fn a_change_takes_away_no_difference_that_it_cannot_reach() {
        let row = |ci: [f64; 2]| ResultRow {
            verdict: Verdict::Slower,
            ci_low: Some(ci[0]),
            ci_high: Some(ci[1]),
            ..ResultRow::default()
        };
        assert!(is_out_of_reach(&row([2.1, 2.8]), 0.19));
        assert!(is_out_of_reach(&row([0.15, 0.17]), 0.5), "six times beside a change of 1.6");
        assert!(!is_out_of_reach(&row([1.02, 1.2]), 0.19));
        assert!(!is_out_of_reach(&row([0.9, 3.0]), 0.01), "both directions");
        assert!(!is_out_of_reach(&row([2.1, 2.8]), UNKNOWN), "a load that was cut");
        let open = ResultRow { verdict: Verdict::Inconclusive, ..row([2.1, 2.8]) };
        assert!(!is_out_of_reach(&open, 0.19));
    }

    #[test]
    fn a_machine_that_changes_its_speed_takes_no_verdict_away() {
        // Slower behind the burst of each load, seen in a run; faster, where the generator was as much faster.
        let slower =
            [(0.41, 0.26), (0.01, 0.32), (0.16, 0.09), (-0.57, -0.45), (0.23, 0.08), (0.42, 0.37)];
        let faster =
            [(-0.5, 0.0), (-0.4, 0.02), (-0.6, -0.01), (-0.5, 0.03), (-0.3, -0.02), (-0.5, 0.0)];
        for machine in [slower, faster] {
            assert_eq!(fall_within_sets(&sets(&machine)), None, "{machine:?}");
        }
    }
}
