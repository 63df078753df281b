//! What the rate did inside the runs: small charts over time, one for each arm.
//!
//! Shows whether the mean of a run describes it. Runs in two regimes are drawn strongly, with the
//! place at which they change; the record's own words stand beside it.

use pollux_report::chart::{LETTERS, Scale, Svg, figure, fit, polyline};
use pollux_report::markup::notes;
use pollux_report::{Cell, Table};

use crate::record::{Interval, Measurement, Record, Run, SteadyKind};
use crate::report::view::{Arms, grouped, in_order};
use crate::report::{number, words};
use crate::stats::{Steadiness, steadiness};

const WIDTH: f64 = 250.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 36.0;
const FOOT: f64 = 20.0;
const GAP: f64 = 22.0;
/// Room at the right for half of the last number.
const RIGHT: f64 = 18.0;

/// One figure that an interval carries.
struct Strip {
    name: &'static str,
    height: f64,
    read: fn(&Interval) -> Option<f64>,
}

const STRIPS: [Strip; 3] = [
    Strip { name: "events/s", height: 84.0, read: |interval| Some(interval.events_per_s) },
    Strip { name: "events per wait", height: 42.0, read: |interval| interval.events_per_wait },
    Strip { name: "switches/s", height: 42.0, read: |interval| interval.process_switches_per_s },
];

/// The runs of one point, arm by arm; nothing when no run kept intervals.
pub(crate) fn intervals(
    record: &Record,
    experiment: &str,
    point: &str,
    arms: &Arms<'_>,
    key: &str,
) -> String {
    let is_here = |run: &&Run| run.experiment == experiment && run.point == point;
    let runs = record.runs.iter().filter(is_here);
    let measured: Vec<_> = runs.filter_map(|run| Some((run, run.measured()?))).collect();
    if measured.iter().all(|(_, m)| m.intervals.is_empty()) {
        return String::new();
    }
    let panel = Panel::new(&measured);
    let names = in_order(measured.iter().map(|(run, _)| run.arm.as_str()));
    let draw = |(index, arm): (usize, &&str)| panel.draw(arm, arms, &format!("{key}-{index}"));
    let charts: String = names.iter().enumerate().map(draw).collect();
    let grid = format!("<div class=\"multiples\">{charts}</div>");
    figure("intervals", &grid, &notes(&remarks(&measured)), &table(&measured))
}

/// One line for each arm and kind: in which blocks, and in the record's words how, for the first.
fn remarks(measured: &[(&Run, &Measurement)]) -> Vec<String> {
    let odd = measured.iter().filter(|(_, m)| m.steadiness.kind != SteadyKind::Steady);
    let odd = odd.map(|(run, m)| ((run.arm.as_str(), m.steadiness.kind), (run.block, m)));
    let line = |((arm, kind), runs): ((&str, SteadyKind), Vec<(u32, &&Measurement)>)| {
        let blocks: Vec<String> = runs.iter().map(|(block, _)| block.to_string()).collect();
        let (state, blocks) = (words::steady(kind), blocks.join(", "));
        let first = &runs[0].1.steadiness.detail;
        format!("{arm}: {state} in blocks {blocks}; in the first of them {first}")
    };
    grouped(odd).into_iter().map(line).collect()
}

fn table(measured: &[(&Run, &Measurement)]) -> String {
    let mut table = Table::new(["arm", "#block", "state", "events/s in each interval"]);
    for (run, m) in measured {
        let values = m.intervals.iter().map(|interval| number::si(interval.events_per_s));
        table.row([
            Cell::text(&run.arm),
            Cell::count(run.block),
            Cell::text(words::steady(m.steadiness.kind)).title(&m.steadiness.detail),
            Cell::text(&values.collect::<Vec<_>>().join(" · ")).wide(),
        ]);
    }
    table.html()
}

/// The charts of one point: same axes for every arm.
struct Panel<'a> {
    measured: &'a [(&'a Run, &'a Measurement)],
    time: Scale,
    strips: Vec<(&'static Strip, Scale, f64)>,
    height: f64,
}

impl<'a> Panel<'a> {
    fn new(measured: &'a [(&'a Run, &'a Measurement)]) -> Self {
        let all = || measured.iter().flat_map(|(_, m)| &m.intervals);
        let end = all().map(|interval| interval.end_s).fold(0.0, f64::max);
        let mut top = TOP;
        let mut strips = Vec::new();
        for strip in &STRIPS {
            let highest = all().filter_map(strip.read).fold(f64::NEG_INFINITY, f64::max);
            if highest.is_finite() {
                let paper = (top + strip.height, top);
                strips.push((strip, Scale::linear((0.0, highest.max(1e-9) * 1.08), paper), top));
                top += strip.height + GAP;
            }
        }
        Self {
            measured,
            time: Scale::linear((0.0, end), (LEFT, WIDTH - RIGHT)),
            strips,
            height: top - GAP + FOOT,
        }
    }

    fn draw(&self, arm: &str, arms: &Arms<'_>, key: &str) -> String {
        let runs: Vec<_> = self.measured.iter().filter(|(run, _)| run.arm == arm).collect();
        let about = format!("{} runs of {arm} over time, one line each.", runs.len());
        let mut svg =
            Svg::new(key, (WIDTH, self.height), &format!("{arm}, inside the runs"), &about);
        svg.open(&arms.class(arm), Some(arms.index(arm)));
        let two = runs.iter().filter(|(_, m)| m.steadiness.kind == SteadyKind::TwoRegime).count();
        let name_width = WIDTH - LEFT - if two > 0 { 140.0 } else { 20.0 };
        svg.text((LEFT, 12.0), "strong", &fit(arm, LETTERS * 1.125, name_width));
        if two > 0 {
            let words = format!("{two} of {} in two regimes", runs.len());
            svg.text((WIDTH - 2.0, 12.0), "end warn", &words);
        }
        for (strip, scale, top) in &self.strips {
            let ticks = scale.ticks(if strip.height > 60.0 { 3 } else { 2 });
            svg.grid(scale, &ticks, (LEFT, WIDTH - RIGHT), "small", number::tick);
            svg.about((LEFT, *top), strip.name);
            for (_, m) in &runs {
                self.run(&mut svg, strip, scale, m);
            }
        }
        self.foot(&mut svg);
        if let Some((_, m)) = runs.iter().find(|(_, m)| m.steadiness.kind == SteadyKind::TwoRegime)
        {
            self.regimes(&mut svg, &m.intervals);
        }
        svg.close();
        svg.finish()
    }

    fn run(&self, svg: &mut Svg, strip: &Strip, scale: &Scale, m: &Measurement) {
        let place = |interval: &Interval| {
            Some((self.time.at(interval.end_s), scale.at((strip.read)(interval)?)))
        };
        let points: Vec<_> = m.intervals.iter().filter_map(place).collect();
        let is_odd = m.steadiness.kind == SteadyKind::TwoRegime;
        svg.path(&polyline(&points), if is_odd { "run odd" } else { "run" });
    }

    fn foot(&self, svg: &mut Svg) {
        let y = self.height - 6.0;
        for tick in self.time.ticks(4) {
            let words = format!("{} s", number::tick(tick));
            svg.text((self.time.at(tick), y), "dim mid small", &words);
        }
    }

    /// Where the first run in two regimes changes, and the two levels.
    fn regimes(&self, svg: &mut Svg, intervals: &[Interval]) {
        let Some((_, scale, top)) = self.strips.first() else { return };
        let rates: Vec<_> = intervals.iter().map(|interval| interval.events_per_s).collect();
        let Steadiness::TwoRegime { change_index, before, after } = steadiness(&rates) else {
            return;
        };
        let x = self.time.at(intervals[change_index - 1].end_s);
        svg.line((x, *top), (x, self.height - FOOT), "regime");
        svg.line((LEFT, scale.at(before)), (x, scale.at(before)), "regime");
        svg.line((x, scale.at(after)), (WIDTH - RIGHT, scale.at(after)), "regime");
    }
}
