//! Workers that share one source: what a call cost the machine, and how the calls were shared.
//!
//! All figures are medians over the timing runs; the curves are the mean of the runs, rank by rank.

use pollux_report::number;

use crate::experiments::section::{Column, Section, Topic};
use crate::record::Measurement;

/// Of runs that had workers.
pub(super) const SECTION: Section = Section {
    id: "herd",
    title: "workers and calls",
    is_of: |run| !run.worker_calls.is_empty(),
    topics: &[TIMES, COSTS, SHARES],
    remarks: |_, _| Vec::new(),
    counts_for_each: None,
    is_in_summary: true,
};

const UNCOUNTED: &str = "a pool's workers don't count their waits";
const IN_TURNS: &str = "turns tell what a call costs, not rate or latency";

/// Calls per second, of a run whose value is a rate: those have latencies, turns have none.
fn rate(run: &Measurement) -> Option<f64> {
    run.figures.contains_key("latency_p50_us").then_some(run.value)
}

/// What a call cost.
const COSTS: Topic = Topic {
    heading: "what a call cost",
    about: "Switches of the whole machine are those of callers, workers and everybody else. A worker \
            that is woken in vain, finds nothing and sleeps again switches twice and answers nothing: \
            a herd shows here before it shows anywhere else. Callers are a closed loop, each with one \
            call under way: a stall is one long latency for each of them, and not one for every call \
            that others would have wanted to make meanwhile.",
    columns: &[
        Column::of("calls/s", rate, number::si).lacking(IN_TURNS),
        Column::figure("switches/call, whole machine", "switches_per_call", number::si),
        Column::figure(
            "voluntary switches/call, workers",
            "worker_switches_voluntary_per_call",
            number::si,
        ),
        Column::figure("CPU µs/call, workers", "worker_us_per_call", number::si),
        Column::figure("CPU µs/call, callers", "caller_us_per_call", number::si),
        Column::figure("p50 µs", "latency_p50_us", number::si).lacking(IN_TURNS),
        Column::figure("p99 µs", "latency_p99_us", number::si).lacking(IN_TURNS),
        Column::figure("longest µs", "latency_max_us", number::si).lacking(IN_TURNS),
    ],
    is_drawn: false,
};

/// How the calls were shared.
const SHARES: Topic = Topic {
    heading: "how the calls were shared",
    about: "As the workers counted them. A curve shows which part of the calls the least busy workers \
            had together: on the diagonal all had the same. The Gini coefficient is twice the area \
            between both, 0 where all had the same, near 1 where few had all.",
    columns: &[
        Column::figure("Gini coefficient", "gini", number::si),
        Column::figure("share of the busiest", "busiest_share", number::percent),
        Column::figure("workers above 1 %", "workers_above_1pct", number::tick),
        Column::figure("workers without a call", "workers_idle", number::tick),
        Column::figure("waits/call", "waits_per_call", number::si).lacking(UNCOUNTED),
        Column::figure("waits in vain/call", "empty_waits_per_call", number::si).lacking(UNCOUNTED),
    ],
    is_drawn: true,
};

/// A fixed number of calls, as a shell's `time` shows it.
const TIMES: Topic = Topic {
    heading: "the time of 1,000,000 calls",
    about: "Each caller made so many calls as the point says; where that is not a million in all, the \
            times are scaled to a million. Real is from the first request to the last answer; user and \
            sys are the CPU time of the callers' process meanwhile, which is what `time` of a client \
            shows.",
    columns: &[
        Column::figure("real s", "real_s_per_million_calls", number::si),
        Column::figure("user s", "user_s_per_million_calls", number::si),
        Column::figure("sys s", "sys_s_per_million_calls", number::si),
    ],
    is_drawn: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_in_turns_is_not_shown_as_a_rate() {
        let turns = Measurement { value: 9.44, ..Measurement::default() };
        let figures = [("latency_p50_us".to_owned(), 51.0)].into();
        let timed = Measurement { value: 187_893.0, figures, ..Measurement::default() };
        let calls = &COSTS.columns[0];
        assert_eq!(calls.median(&[&turns]), None);
        assert_eq!(calls.median(&[&timed]), Some(187_893.0));
    }
}
