//! Whether the counters and the log of a proxy add up at its end, and whether it ended well.

use crate::stage::Proxy;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::collections::HashSet;

/// What a proxy says that it did.
#[derive(Default)]
pub(super) struct Ledger {
    /// Requests whose heads it understood.
    requests: u64,
    /// Answers that it gave, its own pages among them.
    answers: u64,
    faults: u64,
    retries: u64,
    taken_over: u64,
    stale: u64,
    unasked: u64,
    /// Targets in its log.
    pub(crate) targets: HashSet<String>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { requests, answers, faults, retries, taken_over, stale, unasked, .. } = self;
        write!(
            f,
            "proxy: {requests} requests, {answers} answers, {faults} faults, {retries} retries, \
             {taken_over} taken over, {stale} stale, {unasked} unasked"
        )
    }
}

/// Ends a proxy whose clients have gone: nothing is left open, all that came was answered or failed, and
/// each is one line of the log.
pub(super) fn close(mut proxy: Proxy, worker: Pid) -> Ledger {
    proxy.await_metric("pollux_connections_open", "", 0);
    proxy.await_metric("pollux_proxy_backend_in_use", "", 0);
    assert_eq!(proxy.one_worker(&[]), worker, "the worker died");
    let sum = |name: &str| proxy.metric(name, "");
    let ledger = Ledger {
        requests: sum("pollux_http_requests_total"),
        answers: sum("pollux_http_answers_total"),
        faults: sum("pollux_proxy_faults_total"),
        retries: sum("pollux_proxy_retries_total"),
        taken_over: sum("pollux_proxy_taken_over_total"),
        stale: sum("pollux_proxy_stale_total"),
        unasked: sum("pollux_proxy_unasked_total"),
        targets: HashSet::new(),
    };
    assert_eq!(sum("pollux_http_log_lines_lost_total"), 0);
    let log = proxy.file("log");
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success(), "{:#?}", proxy.all_said());
    let said = proxy.all_said();
    assert!(!said.iter().any(|line| line.contains("panicked")), "{said:#?}");
    let lines = std::fs::read_to_string(log).expect("the log");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let count =
        |test: &dyn Fn(&Value) -> bool| lines.iter().filter(|line| test(line)).count() as u64;
    let is_request = |line: &Value| line["method"] != "";
    assert_eq!(count(&is_request), ledger.requests, "each request is one line");
    let has_failed = |line: &Value| line["end"].is_string() && line["end"] != "ok";
    assert_eq!(count(&has_failed), ledger.faults, "each fault is one line");
    assert_eq!(count(&|line| line["status"] != 0), ledger.answers, "each answer is one line");
    let is_answered = |line: &Value| is_request(line) && !has_failed(line);
    assert_eq!(count(&is_answered) + ledger.faults, ledger.requests, "answered or failed");
    let targets = lines.iter().filter_map(|line| line["target"].as_str());
    Ledger { targets: targets.map(str::to_owned).collect(), ..ledger }
}
