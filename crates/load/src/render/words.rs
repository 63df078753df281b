//! The sentences of a result: the answer, who set its limit, what went wrong by name.
//!
//! One place, so that table and page say the same thing in the same words.

use super::nines::told_ns;
use crate::{Errors, FindingKind, Outcome};
use pollux_report::number;

/// Answers per second of the measured part; `None` when it had no length.
pub(super) fn answered_per_s(outcome: &Outcome) -> Option<f64> {
    per_second(outcome, outcome.totals.answered)
}

/// A total of the measured part for each of its seconds.
pub(super) fn per_second(outcome: &Outcome, total: u64) -> Option<f64> {
    let seconds = outcome.measured.as_secs_f64();
    (seconds > 0.0).then(|| total as f64 / seconds)
}

/// Whether each connection asked again as soon as it was answered.
pub(super) fn is_closed_loop(outcome: &Outcome) -> bool {
    outcome.setting.pace == "closed"
}

/// The result in one sentence.
pub(super) fn answer(outcome: &Outcome) -> String {
    let Some(rate) = answered_per_s(outcome).filter(|_| outcome.totals.answered > 0) else {
        return "No request was answered.".to_owned();
    };
    let asked = match outcome.setting.asked_per_s {
        Some(asked) => format!(" of {} asked", number::si(asked)),
        None => String::new(),
    };
    let tail = match (told_ns(&outcome.latency, 0.99), outcome.latency.max_ns()) {
        (Some(p99), _) => format!("99 % of them within {}", number::time(p99 as f64)),
        (None, Some(max)) => format!("all of them within {}", number::time(max as f64)),
        (None, None) => "their times unknown".to_owned(),
    };
    let mut errors = match outcome.errors.total() {
        0 => "no errors".to_owned(),
        some => format!("{} of the requests failed", number::part(some, requests(outcome))),
    };
    if outcome.unanswered.count() > 0 {
        errors += &format!(", {} never answered", number::count(outcome.unanswered.count()));
    }
    let rate = number::si(rate);
    format!("{rate} answers per second{asked}, {tail}, {errors}; {}.", bottleneck(outcome))
}

/// Requests that errors are a part of: those whose turn came.
pub(super) fn requests(outcome: &Outcome) -> u64 {
    outcome.totals.due.max(outcome.errors.total())
}

/// Who set the limit, as far as the run can tell.
fn bottleneck(outcome: &Outcome) -> String {
    let has = |kind| outcome.findings.iter().any(|finding| finding.kind == kind);
    if let (true, Some(longest_s)) = (has(FindingKind::Outage), outcome.longest_standstill_s()) {
        return format!("for {longest_s:.1} s nothing was answered");
    }
    let words = if has(FindingKind::GeneratorStalled) {
        "the generator itself stood still for a part of the time"
    } else if has(FindingKind::GeneratorBound) {
        "the generator itself was the bottleneck"
    } else if has(FindingKind::ScheduleLag) {
        "the generator kept its schedule late"
    } else if has(FindingKind::DelayedAck) {
        "a timer, not the server's speed, set the rate"
    } else if has(FindingKind::RateMissed) {
        "the server could not keep up with the asked rate"
    } else if is_closed_loop(outcome) {
        "limited by the server or the network, not by this program"
    } else {
        "the schedule set the rate, nothing was at its limit"
    };
    words.to_owned()
}

/// The kinds of errors that occurred; those that name the cause of others begin with "of them".
pub(super) fn errors(errors: &Errors) -> Vec<(&'static str, u64)> {
    let Errors {
        connect,
        connect_no_descriptor,
        connect_no_port,
        timeout,
        reset,
        short,
        malformed,
        status,
        mismatch,
        tls,
        unsent,
    } = *errors;
    let named = [
        ("could not connect", connect),
        ("of them: no descriptor left", connect_no_descriptor),
        ("of them: no port left", connect_no_port),
        ("took longer than allowed", timeout),
        ("reset by the server", reset),
        ("ended before the answer was complete", short),
        ("answer is not HTTP", malformed),
        ("status is not the expected one", status),
        ("body has another length than expected", mismatch),
        ("TLS failed", tls),
        ("due but never sent", unsent),
    ];
    named.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// What ran, in one line without the targets.
pub(super) fn setting(outcome: &Outcome) -> String {
    let setting = &outcome.setting;
    let mut parts = vec![
        plural(u64::from(setting.connections), "connection"),
        plural(u64::from(setting.threads), "thread"),
        setting.driver.clone(),
        format!("{} loop", pace(outcome)),
    ];
    if setting.pipeline > 1 {
        parts.push(format!("{} requests in a pipeline", setting.pipeline));
    }
    if let Some(requests) = setting.requests_per_connection {
        parts.push(format!("{} per connection", plural(u64::from(requests), "request")));
    }
    parts.push(format!("{} measured", number::duration(outcome.measured.as_secs_f64())));
    if setting.warm_up_s > 0.0 {
        parts.push(format!("{} warm-up before", number::duration(setting.warm_up_s)));
    }
    parts.join(", ")
}

fn pace(outcome: &Outcome) -> String {
    match is_closed_loop(outcome) {
        true => "closed".to_owned(),
        false => format!("open ({})", outcome.setting.pace),
    }
}

/// The text with a capital at its start and a full stop at its end.
pub(super) fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let capital = rest.next().into_iter().flat_map(char::to_uppercase);
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    capital.chain(rest).collect::<String>() + stop
}

/// `1 thread`, `2 threads`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {noun}{s}", number::count(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn the_answer_names_rate_tail_errors_and_limit() {
        let answer = answer(&sample::outcome());
        // 12 s of 1000, 1100, … 2100 answers: 18,600 in all.
        assert!(answer.starts_with("1.55 k answers per second, 99 % of them within "), "{answer}");
        assert!(answer.contains("0.05 % of the requests failed"), "{answer}");
        assert!(answer.ends_with("a timer, not the server's speed, set the rate."), "{answer}");
    }

    #[test]
    fn without_answers_it_says_so() {
        assert_eq!(answer(&sample::empty()), "No request was answered.");
    }

    #[test]
    fn a_sentence_has_a_capital_and_a_stop() {
        assert_eq!(["the lag", "Done."].map(sentence), ["The lag.", "Done."]);
    }

    #[test]
    fn only_errors_that_occurred_are_named() {
        let found = errors(&sample::outcome().errors);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(errors(&Errors::default()).is_empty());
    }
}
