//! What a reader has to know before believing a run: the generator watches itself.
//!
//! Pure judgements of a finished [`Outcome`]; every limit has its reason beside it.

use crate::{Finding, FindingKind, Outcome};

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
/// A part of a second that is shorter is no sign that nobody answers.
const SECOND_MIN_S: f64 = 0.5;
/// Answers beyond a quantile that it takes to believe it.
const ANSWERS_BEYOND_MIN: f64 = 10.0;

/// All findings of a run, worst first.
#[must_use]
pub fn findings(outcome: &Outcome) -> Vec<Finding> {
    let judges = [
        no_answers,
        outage,
        rate_missed,
        generator_bound,
        schedule_lag,
        delayed_ack,
        many_errors,
        few_answers,
    ];
    let mut found: Vec<Finding> = judges.iter().filter_map(|judge| judge(outcome)).collect();
    found.sort_by_key(|finding| finding.kind);
    found
}

fn finding(kind: FindingKind, text: String, advice: &str) -> Option<Finding> {
    Some(Finding { kind, text, advice: advice.to_owned() })
}

fn no_answers(outcome: &Outcome) -> Option<Finding> {
    if outcome.totals.answered > 0 {
        return None;
    }
    let (due, sent) = (outcome.totals.due, outcome.totals.sent);
    let errors = outcome.errors.total();
    let of_warm_up: u64 = outcome.seconds.iter().map(|second| second.answered).sum();
    let (text, advice) = match (of_warm_up, due) {
        (0, 0) if errors == 0 => (
            "the run ended before a request had begun that counts".to_owned(),
            "let it run longer (-d); dead connections that the server does not answer hold it up",
        ),
        (0, _) => (
            format!("nothing was answered: {sent} requests sent, {errors} errors"),
            "check that the server runs and the URL is right",
        ),
        (_, 0) => (
            "no request began in the measured part; answers came in the warm-up only".to_owned(),
            "measure for a longer time (-d)",
        ),
        _ => (
            format!(
                "no request of the measured part was answered: {due} were due, {sent} sent; the \
                 {of_warm_up} answers that came were to requests of the warm-up"
            ),
            "the connections were not done with the warm-up's requests when the run ended: this \
             load is beyond the server; ask for less, or give more connections (-c)",
        ),
    };
    finding(FindingKind::NoAnswers, text, advice)
}

/// Seconds in which requests failed and none was answered: nobody was there, or nobody worked.
/// Their errors may be few, for a closed loop asks little of a server that is gone.
fn outage(outcome: &Outcome) -> Option<Finding> {
    let mut began_s = outcome.setting.warm_up_s;
    let (mut lost, mut errors) = (0, 0);
    for second in outcome.seconds.iter().filter(|second| !second.is_warm_up) {
        let is_long = second.end_s - began_s >= SECOND_MIN_S;
        began_s = second.end_s;
        if is_long && second.answered == 0 && second.errors > 0 {
            (lost, errors) = (lost + 1, errors + second.errors);
        }
    }
    if lost == 0 || outcome.totals.answered == 0 {
        return None;
    }
    let seconds = if lost == 1 { "one second".to_owned() } else { format!("{lost} seconds") };
    let text =
        format!("in {seconds} of the run nothing was answered, and {errors} requests failed");
    let advice = "rate and latency are those of the time with a server; look at the seconds \
                  (--csv) and at the server's own log";
    finding(FindingKind::Outage, text, advice)
}

fn rate_missed(outcome: &Outcome) -> Option<Finding> {
    let asked = outcome.setting.asked_per_s?;
    let reached = outcome.answered_per_s();
    if reached >= asked * (1.0 - RATE_MISSED_SHARE) {
        return None;
    }
    let share = reached / asked * 100.0;
    let text =
        format!("{asked:.0} requests/s were asked for, {reached:.0} answered ({share:.1} %)");
    let advice = "this load is beyond the server, or beyond the connections: requests that found \
                  none free waited; give more of them (-c), or ask for less";
    finding(FindingKind::RateMissed, text, advice)
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
    let (lag_us, median_us) = (lag as f64 / 1e3, median as f64 / 1e3);
    let text = format!(
        "one request in a hundred left {lag_us:.0} µs or more after its time although a connection \
         was free; the median latency is {median_us:.0} µs"
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

fn many_errors(outcome: &Outcome) -> Option<Finding> {
    let errors = outcome.errors.total();
    let requests = outcome.totals.due.max(outcome.totals.sent).max(errors);
    if requests == 0 || errors as f64 <= requests as f64 * ERRORS_SHARE_MAX {
        return None;
    }
    let share = errors as f64 / requests as f64 * 100.0;
    let text = format!("{errors} of {requests} requests failed ({share:.2} %)");
    let advice = "the latency is that of the answers that came; look at the errors by kind";
    finding(FindingKind::ManyErrors, text, advice)
}

fn few_answers(outcome: &Outcome) -> Option<Finding> {
    let answers = outcome.latency.count();
    let needed = (ANSWERS_BEYOND_MIN / (1.0 - 0.99)).round() as u64;
    if answers == 0 || answers >= needed {
        return None;
    }
    let text = format!("{answers} answers are too few for a 99th percentile; it takes {needed}");
    finding(FindingKind::FewAnswers, text, "run longer (-d) or with more requests (-n)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::sample;
    use crate::{Distribution, Second};
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
        assert!(text.contains("2030") && text.contains("2000"), "{text}");
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

    fn second(end_s: f64, is_warm_up: bool, answered: u64, errors: u64) -> Second {
        let latency = Distribution::new();
        let (sent, bytes_in, open) = (answered + errors, 0, 0);
        Second { end_s, is_warm_up, sent, answered, errors, bytes_in, open, latency }
    }

    #[test]
    fn an_overloaded_run_whose_warm_up_alone_was_answered_says_so() {
        let mut outcome = sample(1, 0, 0);
        outcome.totals.due = 500;
        outcome.seconds = vec![second(1.0, true, 80, 0), second(1.5, false, 40, 0)];
        let text = &findings(&outcome)[0].text;
        assert!(text.contains("500 were due") && text.contains("120 answers"), "{text}");
        outcome.totals.due = 0;
        let text = &findings(&outcome)[0].text;
        assert!(text.contains("no request began"), "{text}");
        let text = &findings(&sample(1, 0, 0))[0].text;
        assert!(text.contains("ended before a request"), "{text}");
    }

    #[test]
    fn a_server_that_dies_is_told_although_a_closed_loop_then_asks_little() {
        let mut outcome = sample(4, 100_000, 40_000);
        outcome.setting.warm_up_s = 1.0;
        outcome.errors.connect = 60;
        let gone = [(2.0, 100_000, 4), (3.0, 0, 28), (4.0, 0, 28), (4.2, 0, 0)];
        outcome.seconds = vec![second(1.0, true, 0, 9)];
        outcome
            .seconds
            .extend(gone.map(|(end_s, right, wrong)| second(end_s, false, right, wrong)));
        assert_eq!(kinds(&outcome), [Outage]);
        assert!(findings(&outcome)[0].text.contains("2 seconds"), "{:?}", findings(&outcome));
        // A server that stands still without an error is not gone, nor is one for a moment.
        outcome.seconds = vec![second(1.0, true, 9, 0), second(2.0, false, 0, 0)];
        outcome.seconds.push(second(2.2, false, 0, 5));
        assert_eq!(kinds(&outcome), []);
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
