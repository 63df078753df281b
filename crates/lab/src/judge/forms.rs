//! Two sentences on a load at which bare servers in forms of io_uring stand beside pollux: which form costs least and
//! whether that is worth anything over bare epoll, and the same of pollux on its ring over pollux on epoll.
//!
//! Bare servers are compared with each other, and not with the baseline, which is a real server: the ratios are formed
//! here of the rounds that both had.

use pollux_engine::Driver;
use pollux_poller::Mechanism;
use pollux_stats::{RatioEstimate, set_ratio};

use crate::arm::{Arm, ArmKind};
use crate::form::Form;
use crate::plan::{Plan, PlannedPoint, SAME_AGAIN};
use crate::record::{Record, ResultRow};
use crate::subject::Figure;

/// Whether bare servers in forms are arms of a point.
pub(super) fn stand_at(point: &PlannedPoint) -> bool {
    point.arms.iter().any(|arm| arm.kind.form().is_some())
}

/// The choice and the two sentences; none where no bare server in a form on a ring was measured.
pub(super) fn answer(
    plan: &Plan,
    point: &PlannedPoint,
    record: &Record,
) -> Option<(String, String)> {
    let here = Here { plan, point, record };
    let epoll = here.cheapest(|arm| arm.kind.form().is_some_and(|form| !form.is_on_ring()))?;
    let form = here.cheapest(|arm| arm.kind.form().is_some_and(Form::is_on_ring))?;
    let bare = here.change(form, epoll);
    let first = format!("bare servers: {form} costs least on io_uring, over {epoll} {bare}");
    let uring = here.cheapest(|arm| arm.kind == ArmKind::Driver(Driver::Completion));
    let epoll_et = Driver::Readiness(Mechanism::EpollEt);
    let own = here.cheapest(|arm| arm.kind == ArmKind::Driver(epoll_et));
    let second = match uring.zip(own) {
        Some((uring, epoll)) => {
            format!(". pollux: {uring} over {epoll} {}", here.change(uring, epoll))
        }
        None => String::new(),
    };
    Some((form.to_owned(), first + &second))
}

/// A point of a record.
struct Here<'a> {
    plan: &'a Plan,
    point: &'a PlannedPoint,
    record: &'a Record,
}

impl<'a> Here<'a> {
    fn row(&self, arm: &str) -> Option<&'a ResultRow> {
        let part = self.plan.part_name(self.point);
        let label = &self.point.point.label;
        let mut rows = self.record.results.iter();
        rows.find(|row| row.experiment == part && row.point == *label && row.arm == arm)
    }

    /// The arm that costs least of those that were measured.
    fn cheapest(&self, is_wanted: impl Fn(&Arm) -> bool) -> Option<&'a str> {
        let arms = self.point.arms.iter().filter(|arm| arm.name != SAME_AGAIN && is_wanted(arm));
        let costs = arms.filter_map(|arm| Some((arm.name.as_str(), self.row(&arm.name)?.ratio?)));
        costs.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(name, _)| name)
    }

    /// What `arm` costs more or less than `other`, and what that is worth.
    fn change(&self, arm: &str, other: &str) -> String {
        let estimate = self.estimate(arm, other);
        match estimate.and_then(|estimate| estimate.ci95) {
            Some(interval) => change_in_words(interval.lo, interval.hi, self.plan.job.min_effect),
            None => "not decided: two sets at least are needed".to_owned(),
        }
    }

    /// From the rounds that both took part in.
    fn estimate(&self, arm: &str, other: &str) -> Option<RatioEstimate> {
        let part = self.plan.part_name(self.point);
        let label = &self.point.point.label;
        let rounds = self.record.rounds.iter();
        let sets: Vec<_> = rounds
            .filter(|set| set.experiment == part && set.point == *label)
            .filter_map(|set| {
                let of = |name: &str| set.arms.iter().find(|(arm, _)| arm == name);
                let costs = |figure: &Option<Figure>| figure.as_ref().and_then(Figure::cost_ns);
                let (arm, other) = of(arm).zip(of(other))?;
                let both = arm.1.iter().map(costs).zip(other.1.iter().map(costs));
                let (arm, other): (Vec<f64>, Vec<f64>) = both.filter_map(|(a, b)| a.zip(b)).unzip();
                set_ratio(&arm, &other)
            })
            .collect();
        RatioEstimate::over_sets(&sets)
    }
}

/// An interval of a ratio of costs, and whether a change is worth it where less than `margin` is not: not where it surely
/// saves less, nor where it may save nothing and at most twice that.
fn change_in_words(low: f64, high: f64, margin: f64) -> String {
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "\u{2212}");
    let worth = if high < 1.0 - margin {
        "worth a change"
    } else if low > 1.0 + margin {
        "dearer"
    } else if low >= 1.0 - margin || (high >= 1.0 && low >= 1.0 - 2.0 * margin) {
        "not worth a change"
    } else {
        "undecided"
    };
    format!("{} to {}: {worth}", percent(low), percent(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_says_whether_a_change_is_worth_it() {
        let said = |low, high| change_in_words(low, high, 0.02);
        assert_eq!(said(0.97, 1.02), "\u{2212}3.0 % to +2.0 %: not worth a change");
        assert_eq!(said(0.93, 1.02), "\u{2212}7.0 % to +2.0 %: undecided");
        assert_eq!(said(0.97, 0.99), "\u{2212}3.0 % to \u{2212}1.0 %: undecided");
        assert_eq!(said(0.985, 1.02), "\u{2212}1.5 % to +2.0 %: not worth a change");
        assert_eq!(said(0.90, 0.95), "\u{2212}10.0 % to \u{2212}5.0 %: worth a change");
        assert_eq!(said(0.99, 1.05), "\u{2212}1.0 % to +5.0 %: not worth a change");
        assert_eq!(said(1.15, 1.30), "+15.0 % to +30.0 %: dearer");
    }
}
