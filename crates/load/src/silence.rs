//! Findings about answers that did not come: none at all, none for a time, some never; and about
//! the time in which the generator itself did not run.

use crate::render::count;
use crate::watch::finding;
use crate::{Errors, Finding, FindingKind, Outcome, Standstill};

/// What is shorter is no standstill of the generator, and not a request that hangs.
const TOLD_S: f64 = 1.0;

pub(crate) fn no_answers(outcome: &Outcome) -> Option<Finding> {
    if outcome.totals.answered > 0 {
        return None;
    }
    let of_warm_up: u64 = outcome.seconds.iter().map(|second| second.answered).sum();
    let (text, advice) = match of_warm_up {
        _ if was_ended_in_warm_up(outcome) => (
            "the run was ended in its warm-up, before anything was measured".to_owned(),
            "let it run longer than its warm-up, or give it none (--warm-up 0s)",
        ),
        0 => never_any(outcome),
        _ => only_in_warm_up(outcome, of_warm_up),
    };
    finding(FindingKind::NoAnswers, text, advice)
}

fn was_ended_in_warm_up(outcome: &Outcome) -> bool {
    outcome.was_ended_early && outcome.totals.due == 0 && outcome.setting.warm_up_s > 0.0
}

/// Nothing was answered from the start to the end.
fn never_any(outcome: &Outcome) -> (String, &'static str) {
    let errors = outcome.errors.total() + outcome.warm_up_errors.total();
    let out = outcome.unanswered.count();
    if let Some(why) = &outcome.first_failure {
        return (
            format!("nothing was answered, and {} requests failed: {why}", count(errors)),
            "check that the server runs and the URL is right",
        );
    }
    if errors + out > 0 {
        let longest_s = outcome.latency.max_ns().unwrap_or(0) as f64 / 1e9;
        let waited = match out {
            0 => String::new(),
            _ => format!(
                ", {} were out at the end; the longest had waited {longest_s:.1} s",
                count(out)
            ),
        };
        let text = format!("nothing was answered: {} requests failed{waited}", count(errors));
        return (text, never_answered_because(outcome));
    }
    let is_crowd = outcome.crowd.iter().any(|kind| kind.asked > 0);
    let advice = match is_crowd {
        true => {
            "let it run longer (-d); a crowd that the server does not answer holds the start up"
        }
        false => "let it run longer (-d)",
    };
    ("the run ended before a request had begun that counts".to_owned(), advice)
}

/// What to do where the server takes connections: by what it does to most of them.
fn never_answered_because(outcome: &Outcome) -> &'static str {
    let of = |kind: fn(&Errors) -> u64| kind(&outcome.errors) + kind(&outcome.warm_up_errors);
    let malformed = of(|errors| errors.malformed);
    let ended = of(|errors| errors.short + errors.reset);
    let silent = of(|errors| errors.timeout + errors.unsent) + outcome.unanswered.count();
    if malformed > ended.max(silent) {
        return "what the server sends is not HTTP/1.1, or breaks its rules: check the port, and look at \
                an answer (curl -v)";
    }
    if ended > silent {
        return "the server ends its connections before an answer is whole: look at its log, and at an \
                answer (curl -v)";
    }
    "the server takes connections and says nothing to them: check that it works, and that the URL is right"
}

/// The measured part had no answer, the warm-up had `answered`.
fn only_in_warm_up(outcome: &Outcome, answered: u64) -> (String, &'static str) {
    let (due, sent) = (outcome.totals.due, outcome.totals.sent);
    match (due, outcome.unanswered.count()) {
        (0, 0) => (
            "no request began in the measured part; answers came in the warm-up only".to_owned(),
            "measure for a longer time (-d)",
        ),
        (0, out) => (
            format!(
                "nothing was answered after the warm-up: {} requests of it were out until the end",
                count(out)
            ),
            "the server stands still, or takes longer than the run: look at its log, or measure \
             for a longer time (-d)",
        ),
        _ => (
            format!(
                "no request of the measured part was answered: {} were due, {} sent; the {} \
                 answers that came were to requests of the warm-up",
                count(due),
                count(sent),
                count(answered)
            ),
            "the connections were not done with the warm-up's requests when the run ended: this \
             load is beyond the server; ask for less, or give more connections (-c)",
        ),
    }
}

/// Seconds in which requests were out and nothing was answered: the server was away, or did not
/// work. Rate and quantiles hardly show them, for a closed loop asks nothing meanwhile.
pub(crate) fn outage(outcome: &Outcome) -> Option<Finding> {
    let still = &outcome.standstills;
    let text = for_so_long("nothing was answered", still)?;
    let had_answers = outcome.seconds.iter().any(|second| second.answered > 0);
    if !had_answers && outcome.totals.answered == 0 {
        return None;
    }
    let advice = "requests were out all that time: the longest latency shows it, rate and \
                  quantiles hardly do; look at the seconds (--csv) and at the server's own log";
    finding(FindingKind::Outage, text, advice)
}

pub(crate) fn generator_stalled(outcome: &Outcome) -> Option<Finding> {
    let stalls = outcome.generator.stalls.iter().filter(|stall| stall.lasted_s >= TOLD_S);
    let text =
        for_so_long("the generator itself did not run", &stalls.copied().collect::<Vec<_>>())?;
    let advice = "the longest latencies are its own, not the server's; give it CPUs of its own \
                  (--cpus), on a machine that is not stopped";
    finding(FindingKind::GeneratorStalled, text, advice)
}

pub(crate) fn unanswered(outcome: &Outcome) -> Option<Finding> {
    let longest_ns = outcome.unanswered.max_ns()?;
    let answered_ns = outcome.latency.histogram().max();
    let longest_s = longest_ns as f64 / 1e9;
    if outcome.totals.answered == 0 || longest_s < TOLD_S || longest_ns <= answered_ns {
        return None;
    }
    let out = outcome.unanswered.count();
    let requests = if out == 1 { "request was" } else { "requests were" };
    let text = format!(
        "{} {requests} never answered: the longest had waited {longest_s:.1} s when the run ended",
        count(out)
    );
    let advice = "the rate is that of the other connections; check whether the server serves all \
                  of them (its limits, its log)";
    finding(FindingKind::Unanswered, text, advice)
}

/// `what` with how long it was so; `None` when it never was.
fn for_so_long(what: &str, times: &[Standstill]) -> Option<String> {
    let longest =
        times.iter().copied().reduce(|a, b| if b.lasted_s > a.lasted_s { b } else { a })?;
    let Standstill { from_s, lasted_s } = longest;
    Some(match times.len() {
        1 => format!("{what} for {lasted_s:.1} s, from {from_s:.1} s after the start on"),
        number => format!(
            "{what} for {:.1} s in all, {number} times; the longest was {lasted_s:.1} s, from \
             {from_s:.1} s after the start on",
            times.iter().map(|each| each.lasted_s).sum::<f64>()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::sample;
    use crate::{Distribution, Second, findings};

    fn second(end_s: f64, is_warm_up: bool, answered: u64, errors: u64) -> Second {
        let latency = Distribution::new();
        let (sent, bytes_in, open) = (answered + errors, 0, 0);
        Second {
            end_s,
            is_warm_up,
            sent,
            answered,
            errors,
            bytes_in,
            open,
            latency,
            ..Second::default()
        }
    }

    fn first(outcome: &Outcome) -> String {
        findings(outcome)[0].text.clone()
    }

    #[test]
    fn an_overloaded_run_whose_warm_up_alone_was_answered_says_so() {
        let mut outcome = sample(1, 0, 0);
        outcome.totals.due = 500;
        outcome.seconds = vec![second(1.0, true, 80, 0), second(1.5, false, 40, 0)];
        let text = first(&outcome);
        assert!(text.contains("500 were due") && text.contains("120 answers"), "{text}");
        outcome.totals.due = 0;
        let text = first(&outcome);
        assert!(text.contains("no request began"), "{text}");
        outcome.unanswered.record(3_000_000_000);
        let text = first(&outcome);
        assert!(text.contains("nothing was answered after the warm-up: 1 "), "{text}");
    }

    #[test]
    fn a_run_without_any_answer_says_what_it_knows() {
        let mut outcome = sample(1, 0, 0);
        assert!(first(&outcome).contains("ended before a request"));
        assert!(!findings(&outcome)[0].advice.contains("crowd"), "nobody asked for one");
        outcome.unanswered.record(10_000_000_000);
        outcome.latency.note_longest(10_000_000_000);
        let text = first(&outcome);
        assert!(text.contains("1 were out at the end") && text.contains("10.0 s"), "{text}");
        assert!(findings(&outcome)[0].advice.contains("says nothing to them"));
        outcome.errors.short = 2;
        assert!(findings(&outcome)[0].advice.contains("before an answer is whole"));
        outcome.errors.malformed = 3;
        assert!(findings(&outcome)[0].advice.contains("not HTTP/1.1"));
        outcome.first_failure = Some("can't connect to x".to_owned());
        assert!(first(&outcome).contains("can't connect to x"));
        outcome.was_ended_early = true;
        assert!(first(&outcome).contains("can't connect to x"), "there was no warm-up");
        outcome.setting.warm_up_s = 1.0;
        assert!(first(&outcome).contains("ended in its warm-up"));
    }

    #[test]
    fn a_standstill_is_told_with_its_seconds_and_without_a_word_of_errors() {
        let mut outcome = sample(4, 100_000, 40_000);
        outcome.standstills = vec![Standstill { from_s: 4.2, lasted_s: 3.02 }];
        assert_eq!(
            first(&outcome),
            "nothing was answered for 3.0 s, from 4.2 s after the start on"
        );
        outcome.standstills.push(Standstill { from_s: 8.0, lasted_s: 1.0 });
        let text = first(&outcome);
        assert!(
            text.contains("4.0 s in all, 2 times") && text.contains("3.0 s, from 4.2 s"),
            "{text}"
        );
    }

    #[test]
    fn a_generator_that_was_stopped_is_told_from_a_second_on() {
        let mut outcome = sample(4, 100_000, 40_000);
        outcome.generator.stalls = vec![Standstill { from_s: 1.0, lasted_s: 0.9 }];
        assert_eq!(findings(&outcome), []);
        outcome.generator.stalls.push(Standstill { from_s: 2.0, lasted_s: 3.0 });
        assert!(first(&outcome).contains("did not run for 3.0 s, from 2.0 s"));
    }

    #[test]
    fn who_hangs_longer_than_anybody_was_answered_is_told() {
        let mut outcome = sample(8, 100_000, 2_000_000_000);
        outcome.unanswered.record(1_900_000_000);
        assert_eq!(findings(&outcome), [], "as slow as the others");
        outcome.unanswered.record(2_500_000_000);
        assert!(first(&outcome).starts_with("2 requests were never answered: the longest had"));
    }
}
