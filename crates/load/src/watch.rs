//! What a reader has to know before believing a run: the generator watches itself.
//!
//! Pure judgements of a finished [`Outcome`]; every limit has its reason beside it.

use crate::render::{count, time};
use crate::silence::{generator_stalled, no_answers, outage, unanswered};
use crate::{Finding, FindingKind, Judged, Outcome};

/// Part of the asked rate that may be missing: beyond it the load was another one.
const RATE_MISSED_SHARE: f64 = 0.01;
/// A thread that works this part of its time has no room for the server's best moments.
const BUSY_SHARE_MAX: f64 = 0.95;
/// Lag of the 99th percentile that is forgiven whatever the latency is.
const LAG_FORGIVEN_NS: u64 = 50_000;
/// Beyond this part of the median latency the lag is a part of what is shown.
const LAG_SHARE_MAX: f64 = 0.1;
/// Linux delays acknowledgements by 40 ms at least; scheduling adds some.
const DELAYED_ACK_NS: std::ops::Range<u64> = 38_000_000..52_000_000;
/// A timer makes all answers alike: the 90th percentile is this near to the median.
const TIMER_WIDTH: f64 = 1.25;
/// Connections that Little's law finds must be this near to those that there are.
const LITTLE_WIDTH: f64 = 0.15;
/// More errors than this part of the requests make the latency that of the lucky ones.
const ERRORS_SHARE_MAX: f64 = 0.001;
/// Answers beyond a quantile that it takes to believe it.
const ANSWERS_BEYOND_MIN: f64 = 10.0;

/// All findings of a run, worst first.
#[must_use]
pub fn findings(outcome: &Outcome) -> Vec<Finding> {
    let judges = [
        no_answers,
        outage,
        rate_missed,
        objective_missed,
        generator_stalled,
        generator_bound,
        schedule_lag,
        delayed_ack,
        redirected,
        unanswered,
        many_errors,
        few_answers,
    ];
    let mut found: Vec<Finding> = judges.iter().filter_map(|judge| judge(outcome)).collect();
    found.sort_by_key(|finding| finding.kind);
    found
}

pub(crate) fn finding(kind: FindingKind, text: String, advice: &str) -> Option<Finding> {
    Some(Finding { kind, text, advice: advice.to_owned() })
}

fn rate_missed(outcome: &Outcome) -> Option<Finding> {
    let asked = outcome.setting.asked_per_s?;
    let reached = outcome.answered_per_s();
    if reached >= asked * (1.0 - RATE_MISSED_SHARE) {
        return None;
    }
    let share = reached / asked * 100.0;
    let [asked, reached] = [asked, reached].map(|rate| count(rate.round() as u64));
    let text = format!("{asked} requests/s were asked for, {reached} answered ({share:.1} %)");
    let advice = "this load is beyond the server, or beyond the connections: requests that found \
                  none free waited; give more of them (-c), or ask for less";
    finding(FindingKind::RateMissed, text, advice)
}

fn objective_missed(outcome: &Outcome) -> Option<Finding> {
    let missed = |judged: &Judged| {
        let why = judged.broken_by.as_ref()?;
        Some(format!("{} was missed: {why}", judged.text))
    };
    let missed: Vec<String> = outcome.objectives.iter().filter_map(missed).collect();
    let objectives = if missed.len() == 1 { "objective" } else { "objectives" };
    let text = (!missed.is_empty()).then(|| format!("the {objectives} {}", missed.join("; ")))?;
    finding(FindingKind::ObjectiveMissed, text, "it is what --slo asks for; see the figures below")
}

fn generator_bound(outcome: &Outcome) -> Option<Finding> {
    let shares = &outcome.generator.busy_share;
    let busiest = shares.iter().copied().fold(0.0, f64::max);
    // Threads that share CPUs can have used up these while none of them looks busy.
    let cpus = outcome.generator.cpus.map_or(f64::INFINITY, f64::from);
    let of_cpus = shares.iter().sum::<f64>() / cpus;
    let text = match () {
        () if busiest >= BUSY_SHARE_MAX => format!(
            "the generator is the bottleneck: a thread of it worked {:.0} % of the time",
            busiest * 100.0
        ),
        () if of_cpus >= BUSY_SHARE_MAX => format!(
            "the generator is the bottleneck: {} threads of it worked {:.0} % of the time of \
             all its CPUs ({cpus})",
            shares.len(),
            of_cpus * 100.0
        ),
        () => return None,
    };
    let advice = "rate and latency are the generator's, not the server's; give it more threads \
                  (--threads) and CPUs, or judge the server by its CPU time for each request";
    finding(FindingKind::GeneratorBound, text, advice)
}

fn schedule_lag(outcome: &Outcome) -> Option<Finding> {
    outcome.setting.asked_per_s?;
    let lag = outcome.generator.lag.quantile_ns(0.99)?;
    let median = outcome.latency.quantile_ns(0.5)?;
    if lag <= LAG_FORGIVEN_NS || lag as f64 <= median as f64 * LAG_SHARE_MAX {
        return None;
    }
    let [lag, median] = [lag, median].map(|ns| time(ns as f64));
    let text = format!(
        "the generator was late: 1 % of the requests left {lag} or more after schedule although a \
         connection was free; the median latency is {median}"
    );
    let advice = "the lag is a part of the latency shown; give the generator CPUs of its own \
                  (--cpus) or more threads";
    finding(FindingKind::ScheduleLag, text, advice)
}

fn delayed_ack(outcome: &Outcome) -> Option<Finding> {
    let median = outcome.latency.quantile_ns(0.5)?;
    let high = outcome.latency.quantile_ns(0.9)?;
    let is_timer = DELAYED_ACK_NS.contains(&median) && high as f64 <= median as f64 * TIMER_WIDTH;
    if !is_timer || !holds_by_little(outcome) {
        return None;
    }
    let (rate, median_ms) = (outcome.answered_per_s(), median as f64 / 1e6);
    let slots = slots(outcome);
    let text = format!(
        "answers seem to wait for a delayed acknowledgement: nearly all took {median_ms:.0} ms, and \
         {slots:.0} requests under way make {rate:.0}/s of that (Little's law)"
    );
    let advice = "check that the server sets TCP_NODELAY and sends head and body in one write";
    finding(FindingKind::DelayedAck, text, advice)
}

/// Whether the rate is that of requests which all take the mean latency, one after another.
fn holds_by_little(outcome: &Outcome) -> bool {
    if outcome.setting.asked_per_s.is_some() {
        return true;
    }
    let Some(mean_ns) = outcome.latency.mean_ns() else { return false };
    let under_way = outcome.answered_per_s() * mean_ns / 1e9;
    (under_way / slots(outcome) - 1.0).abs() <= LITTLE_WIDTH
}

/// Requests that can be under way at the same time.
fn slots(outcome: &Outcome) -> f64 {
    f64::from(outcome.setting.connections) * f64::from(outcome.setting.pipeline)
}

/// Redirects are not followed: what was measured is the answer that sends elsewhere.
fn redirected(outcome: &Outcome) -> Option<Finding> {
    let (redirected, answered) = (outcome.totals.redirected, outcome.totals.answered);
    if redirected as f64 <= answered as f64 * ERRORS_SHARE_MAX {
        return None;
    }
    let text = format!(
        "{} of {} answers were redirects, which are not followed",
        count(redirected),
        count(answered)
    );
    let advice = "ask for the place that their Location names (often a slash at the end, or \
                  https://), or say that they are right with --expect-status";
    finding(FindingKind::Redirected, text, advice)
}

fn many_errors(outcome: &Outcome) -> Option<Finding> {
    // Who says how many may fail has them judged by that.
    if outcome.objectives.iter().any(|judged| judged.figure == "errors") {
        return None;
    }
    let errors = outcome.errors.total();
    let requests = outcome.totals.due.max(outcome.totals.sent).max(errors);
    if requests == 0 || errors as f64 <= requests as f64 * ERRORS_SHARE_MAX {
        return None;
    }
    let share = errors as f64 / requests as f64 * 100.0;
    let why = outcome.first_failure.as_ref().map(|why| format!("; the first: {why}"));
    let text = format!(
        "{} of {} requests failed ({share:.2} %){}",
        count(errors),
        count(requests),
        why.unwrap_or_default()
    );
    let advice = "the latency is that of the answers that came; look at the errors by kind";
    finding(FindingKind::ManyErrors, text, advice)
}

fn few_answers(outcome: &Outcome) -> Option<Finding> {
    let answers = outcome.latency.count();
    let needed = (ANSWERS_BEYOND_MIN / (1.0 - 0.99)).round() as u64;
    if answers == 0 || answers >= needed {
        return None;
    }
    let [answers, needed] = [answers, needed].map(count);
    let text = format!("{answers} answers are too few for a 99th percentile; it takes {needed}");
    finding(FindingKind::FewAnswers, text, "run longer (-d) or with more requests (-n)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::judge;
    use crate::outcome::sample;
    use FindingKind::*;

    fn kinds(outcome: &Outcome) -> Vec<FindingKind> {
        findings(outcome).iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn a_sound_run_has_no_findings() {
        assert_eq!(kinds(&sample(100, 20_000, 5_000_000)), []);
    }

    #[test]
    fn a_stall_of_delayed_acknowledgements_is_recognised_by_littles_law() {
        // 100 connections, each answer 44 ms after its request: 2,273 a second.
        let stalled = sample(100, 22_727, 44_000_000);
        assert_eq!(kinds(&stalled), [DelayedAck]);
        // As slow, but with a third of the connections idle: no timer of the connection.
        assert_eq!(kinds(&sample(150, 22_727, 44_000_000)), []);
        // As regular, at another time.
        assert_eq!(kinds(&sample(100, 10_000, 100_000_000)), []);
    }

    #[test]
    fn a_missed_rate_is_told_from_a_hundredth_on() {
        let mut outcome = sample(100, 20_000, 1_000_000);
        outcome.setting.asked_per_s = Some(2_015.0);
        assert_eq!(kinds(&outcome), []);
        outcome.setting.asked_per_s = Some(2_030.0);
        assert_eq!(kinds(&outcome), [RateMissed]);
        let text = &findings(&outcome)[0].text;
        assert!(text.contains("2,030") && text.contains("2,000"), "{text}");
    }

    #[test]
    fn a_busy_thread_is_the_bottleneck() {
        let mut outcome = sample(100, 20_000, 1_000_000);
        outcome.generator.busy_share = vec![0.5, 0.97];
        assert_eq!(kinds(&outcome), [GeneratorBound]);
        outcome.generator.busy_share = vec![0.32; 3];
        assert_eq!(kinds(&outcome), []);
        outcome.generator.cpus = Some(1);
        assert_eq!(kinds(&outcome), [GeneratorBound]);
    }

    #[test]
    fn lag_counts_in_an_open_loop_when_it_is_a_part_of_the_latency() {
        let mut outcome = sample(100, 20_000, 1_000_000);
        (0..1_000).for_each(|_| outcome.generator.lag.record(120_000));
        assert_eq!(kinds(&outcome), []);
        outcome.setting.asked_per_s = Some(2_000.0);
        assert_eq!(kinds(&outcome), [ScheduleLag]);
    }

    #[test]
    fn a_missed_objective_is_told() {
        let mut outcome = sample(100, 20_000, 6_200_000);
        for (objective, expected) in [("p99=5ms", &[ObjectiveMissed][..]), ("p99=7ms", &[])] {
            let objective: crate::Objective = objective.parse().expect("an objective");
            outcome.objectives = judge(&[objective], &outcome);
            assert_eq!(kinds(&outcome), expected);
        }
    }

    #[test]
    fn redirects_are_told_when_they_are_more_than_a_few() {
        let mut outcome = sample(100, 20_000, 1_000_000);
        outcome.totals.redirected = 20;
        assert_eq!(kinds(&outcome), []);
        outcome.totals.redirected = 21;
        assert_eq!(kinds(&outcome), [Redirected]);
    }

    #[test]
    fn errors_that_an_objective_allows_are_no_finding() {
        let mut outcome = sample(100, 20_000, 1_000_000);
        outcome.errors.reset = 100;
        for (objective, expected) in
            [("errors=1%", &[][..]), ("errors=99", &[ObjectiveMissed]), ("max=1s", &[ManyErrors])]
        {
            let objective: crate::Objective = objective.parse().expect("an objective");
            outcome.objectives = Vec::new();
            outcome.objectives = judge(&[objective], &outcome);
            let found = kinds(&outcome);
            assert!(found.ends_with(expected) && found.is_empty() == expected.is_empty());
        }
    }

    #[test]
    fn errors_and_their_absence() {
        let mut outcome = sample(100, 20_000, 1_000_000);
        outcome.errors.reset = 20;
        assert_eq!(kinds(&outcome), []);
        outcome.errors.reset = 21;
        assert_eq!(kinds(&outcome), [ManyErrors]);
        let nothing = sample(100, 0, 0);
        assert_eq!(kinds(&nothing), [NoAnswers]);
        assert_eq!(kinds(&sample(1, 999, 1_000_000)), [FewAnswers]);
    }
}
