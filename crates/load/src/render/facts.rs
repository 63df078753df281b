//! The facts of a result as names with values, small grids and sentences, the same for table and page.
//!
//! The sentences of a result: the answer, what set its limit, what went wrong by name.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_report::number::{self, NA, or_na};
use pollux_report::{Cell, Table};

use crate::findings::was_away;
use crate::{CrowdOutcome, Distribution, FindingKind, Outcome, percentile};

/// From this part of the answers on those to requests of the warm-up are said.
const OF_WARM_UP_SHARE: f64 = 0.01;
/// A rate takes as many answers, or this time: else it would be that of a few moments.
const RATE_ANSWERS_MIN: u64 = 100;
const RATE_TIME_MIN: Duration = Duration::from_millis(500);

/// Rows of texts under headings. A heading that begins with `#` stands over figures.
pub(super) fn grid(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new(headings).with_empty_columns();
    for row in rows {
        assert_eq!(row.len(), headings.len(), "a text for each heading");
        let cells = headings.iter().zip(row).map(|(heading, text)| {
            match (heading.starts_with('#'), text == NA) {
                (true, true) => Cell::missing(NA, ""),
                (true, false) => Cell::figure(&text),
                (false, _) => Cell::text(&text),
            }
        });
        table.row(cells.collect::<Vec<_>>());
    }
    table
}

/// A name and what there is to say.
pub(super) type Fact = (&'static str, String);

/// The run in a few lines.
pub(super) fn summary(outcome: &Outcome) -> Vec<Fact> {
    let totals = &outcome.totals;
    let mut right = format!(
        "{} of {} sent, {} right",
        number::count(totals.answered),
        number::count(totals.sent),
        number::part(totals.right, totals.answered),
    );
    if totals.redirected > 0 {
        right += &format!(", {} redirected", number::part(totals.redirected, totals.answered));
    }
    let within = outcome.within();
    if within.of_warm_up > 0 && has_many_of_warm_up(outcome) {
        right += &format!(
            "; in the measured time came {}, {} of them asked for in the warm-up: their latencies are in no figure",
            number::count(within.answered),
            number::count(within.of_warm_up)
        );
    }
    let mut facts = vec![
        ("target", outcome.setting.urls.join("  ")),
        ("requests", outcome.setting.listed.clone().unwrap_or_default()),
        ("setting", setting(outcome)),
        ("began", number::date_of_unix(outcome.began_unix_s)),
        ("rate", rate(outcome)),
        ("answers", right),
        ("statuses", statuses(outcome)),
        ("errors", errors(outcome)),
        ("waited", waited(outcome)),
        ("traffic", traffic(outcome)),
        ("HTTP/2", http2(outcome)),
        ("frames", frames(outcome)),
        (
            "connections",
            format!("{} opened during the measurement", number::count(totals.connects)),
        ),
    ];
    facts.extend(outcome.objectives.iter().map(|objective| {
        let verdict = objective.broken_by.as_ref().map(|why| format!("missed: {why}"));
        let verdict = verdict
            .unwrap_or_else(|| format!("held: {}", objective.found_text.as_deref().unwrap_or(NA)));
        ("objective", format!("{}, {verdict}", objective.text))
    }));
    let was_lost = outcome.errors.total() + outcome.warm_up_errors.total() > 0;
    facts.extend(outcome.first_failure.as_ref().map(|why| {
        let said = if !was_lost {
            format!("{why}; tried again, and no request was lost by it")
        } else if outcome.was_first_failure_early {
            format!("{why} (before the measured time)")
        } else {
            why.clone()
        };
        ("first failure", said)
    }));
    facts.extend(outcome.first_wrong.as_ref().map(|wrong| ("first wrong", wrong.in_words())));
    let redirect = outcome.first_redirect.as_ref();
    facts.extend(redirect.map(|redirect| ("redirected", redirect.in_words())));
    if let Some(server) = &outcome.server {
        let cpu = or_na(server.cpu_us_per_answer, |us| number::time(us * 1000.0));
        let text = format!("{cpu} CPU per answer (process {} and what it started)", server.pid);
        facts.push(("server", text));
    }
    facts.push(("generator", generator(outcome)));
    facts.retain(|(_, text)| !text.is_empty());
    facts
}

fn rate(outcome: &Outcome) -> String {
    let achieved = or_na(answered_per_s(outcome), |rate| number::si(rate) + "/s");
    if is_too_short(outcome) {
        return format!(
            "{} in {}: too few for a rate",
            number::plural(outcome.within().answered, "answer"),
            number::duration(outcome.measured.as_secs_f64())
        );
    }
    match outcome.setting.asked_per_s {
        Some(asked) => {
            let reached = answered_per_s(outcome).filter(|_| asked > 0.0);
            let share = or_na(reached.map(|rate| rate / asked), number::percent);
            format!("{achieved} answered of {}/s asked ({share})", number::si(asked))
        }
        None => format!("{achieved} answered"),
    }
}

/// Each status with its answers; results of an older pollux have classes only.
fn statuses(outcome: &Outcome) -> String {
    const NAMES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
    let each = outcome.statuses.iter().map(|(status, count)| (status.to_string(), *count));
    let classes = NAMES.iter().zip(outcome.totals.by_class).filter(|(_, count)| *count > 0);
    let classes = classes.map(|(name, count)| ((*name).to_owned(), count));
    let found: Vec<_> =
        if outcome.statuses.is_empty() { classes.collect() } else { each.collect() };
    let shown: Vec<_> =
        found.iter().map(|(name, count)| format!("{name}: {}", number::count(*count))).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// Each status with its answers and their part; `None` where all have the same.
pub(super) fn statuses_grid(outcome: &Outcome) -> Option<Table> {
    let answered = outcome.totals.answered;
    let row = |(status, count): (&u16, &u64)| {
        vec![status.to_string(), number::count(*count), number::part(*count, answered)]
    };
    let rows: Vec<_> = outcome.statuses.iter().map(row).collect();
    (rows.len() > 1).then(|| grid(&["status", "#answers", "#of all answers"], rows))
}

fn errors(outcome: &Outcome) -> String {
    let total = outcome.errors.total();
    let counted = match total {
        0 => "none".to_owned(),
        _ => {
            let share = number::part(total, requests(outcome));
            format!("{} ({share}): {}", number::count(total), outcome.errors.in_words())
        }
    };
    match outcome.warm_up_errors.total() {
        0 => counted,
        _ => format!("{counted}; in the warm-up {}", outcome.warm_up_errors.in_words()),
    }
}

/// What came of waiting for the last answers, where that is worth a line.
fn waited(outcome: &Outcome) -> String {
    const LITTLE: Duration = Duration::from_millis(100);
    let waited = number::duration(outcome.waited.as_secs_f64());
    match (outcome.unanswered.count(), outcome.unanswered.max_ns()) {
        (out, Some(longest_ns)) if out > 0 => format!(
            "{waited} for {} never answered; the longest had waited {}",
            number::plural(out, "request"),
            number::time(longest_ns as f64)
        ),
        _ if outcome.waited >= LITTLE => format!("{waited} for the last answers"),
        _ => String::new(),
    }
}

fn traffic(outcome: &Outcome) -> String {
    let rate =
        |total| or_na(per_second(outcome, total), |bytes| format!("{}/s", number::bytes(bytes)));
    format!("{} in, {} out", rate(outcome.within().bytes_in), rate(outcome.totals.bytes_out))
}

fn generator(outcome: &Outcome) -> String {
    let generator = &outcome.generator;
    let cpu = or_na(generator.cpu_us_per_answer, |us| number::time(us * 1000.0));
    let shares: Vec<_> = generator.busy_share.iter().map(|share| number::percent(*share)).collect();
    let shares = if shares.is_empty() { NA.to_owned() } else { shares.join(", ") };
    let lag = or_na(generator.lag.known_quantile_ns(0.99), |ns| number::time(ns as f64));
    let has = |kind| outcome.findings.iter().any(|finding| finding.kind == kind);
    let health = if has(FindingKind::GeneratorStalled) {
        "stood still for a time"
    } else if has(FindingKind::GeneratorBound) {
        "at its limit"
    } else if has(FindingKind::ScheduleLag) {
        "late"
    } else {
        "healthy"
    };
    // In a closed loop it is the length of a turn, which says little to a reader.
    let lag = if is_closed_loop(outcome) {
        String::new()
    } else {
        format!(", 99 % sent within {lag} of their time")
    };
    let spun = if generator.spun.is_zero() {
        String::new()
    } else {
        format!(", {} more CPU waiting by spinning", number::duration(generator.spun.as_secs_f64()))
    };
    let coarse = generator.coarse_timers.as_ref();
    let coarse = coarse.map_or_else(String::new, |why| {
        format!("; waits may be 50 µs longer, the kernel keeps its timer slack ({why})")
    });
    format!(
        "{health}: {cpu} CPU per answer, threads at work {shares} of the time{spun}{lag}{coarse}"
    )
}

/// Quantiles, mean and deviation of what was timed; the latency always.
pub(super) fn times(outcome: &Outcome) -> Table {
    let quantiles = &outcome.setting.quantiles;
    let mut rows = vec![times_row("latency", &outcome.latency, quantiles)];
    let others = [
        ("first byte", &outcome.first_byte),
        ("connect", &outcome.connect),
        ("connection life", &outcome.lifetime),
    ];
    rows.extend(
        others
            .iter()
            .filter(|(_, times)| times.count() > 0)
            .map(|(name, times)| times_row(name, times, quantiles)),
    );
    grid(&texts(&times_headings("", quantiles)), rows)
}

fn times_headings(first: &str, quantiles: &[f64]) -> Vec<String> {
    let quantiles = quantiles.iter().map(|quantile| format!("#{}", percentile(*quantile)));
    let rest = ["#max", "#mean", "#sd", "#count"].map(str::to_owned);
    std::iter::once(first.to_owned()).chain(quantiles).chain(rest).collect()
}

fn texts(headings: &[String]) -> Vec<&str> {
    headings.iter().map(String::as_str).collect()
}

fn times_row(name: &str, times: &Distribution, quantiles: &[f64]) -> Vec<String> {
    let quantiles =
        quantiles.iter().map(|quantile| times.known_quantile_ns(*quantile).map(|ns| ns as f64));
    let rest = [times.max_ns().map(|ns| ns as f64), times.mean_ns(), times.stddev_ns()];
    let shown = quantiles.chain(rest).map(|ns| or_na(ns, number::time));
    std::iter::once(name.to_owned()).chain(shown).chain([number::count(times.count())]).collect()
}

/// Each target's part; `None` when there is only one.
pub(super) fn targets(outcome: &Outcome) -> Option<Table> {
    let quantiles = &outcome.setting.quantiles;
    let row = |target: &crate::TargetOutcome| {
        let mut row = times_row(&target.url, &target.latency, quantiles);
        row.insert(1, target.weight.to_string());
        row.insert(2, number::count(target.answered));
        row.insert(3, number::count(target.errors.total()));
        row.truncate(row.len() - 1);
        row
    };
    let mut headings = times_headings("target", quantiles);
    headings.splice(1..1, ["#weight", "#answers", "#errors"].map(str::to_owned));
    headings.truncate(headings.len() - 1);
    let rows: Vec<_> = outcome.targets.iter().map(row).collect();
    (rows.len() > 1).then(|| grid(&texts(&headings), rows))
}

/// Each agent's part; `None` where one generator did it all.
pub(super) fn agents(outcome: &Outcome) -> Option<Table> {
    let headings = [
        "agent",
        "#connections",
        "#answers",
        "#per second",
        "#errors",
        "#p50",
        "#p99",
        "#max",
        "#busy",
        "#clock within",
    ];
    let row = |agent: &crate::AgentOutcome| {
        let name = match &agent.lost {
            Some(_) => format!("{} (lost)", agent.name),
            None => agent.name.clone(),
        };
        let shown = |ns: Option<u64>| or_na(ns, |ns| number::time(ns as f64));
        vec![
            name,
            number::count(agent.connections.into()),
            number::count(agent.answered),
            number::count(agent.answered_per_s.round() as u64),
            number::count(agent.errors),
            shown(agent.p50_ns),
            shown(agent.p99_ns),
            shown(agent.max_ns),
            number::percent(agent.busy_share),
            number::time(agent.clock_uncertainty_s * 1e9),
        ]
    };
    let rows: Vec<_> = outcome.agents.iter().map(row).collect();
    (!rows.is_empty()).then(|| grid(&headings, rows))
}

/// What the server did to the connections beside the active ones; `None` without any.
pub(super) fn crowd(outcome: &Outcome) -> Option<Table> {
    let headings = vec![
        "crowd",
        "#asked",
        "#connected",
        "#refused",
        "#answers",
        "#closed",
        "#reset",
        "#open at end",
        "#closed after",
        "#set up in",
    ];
    let row = |crowd: &CrowdOutcome| {
        let counts = [crowd.asked, crowd.connected, crowd.refused].map(u64::from);
        let ends =
            [crowd.closed_by_server, crowd.reset_by_server, crowd.open_at_end].map(u64::from);
        let after = crowd.closed_after_s.map(|(shortest, longest)| {
            format!("{} to {}", number::duration(shortest), number::duration(longest))
        });
        let mut row = vec![crowd.kind.to_owned()];
        row.extend(counts.into_iter().chain([crowd.answered]).chain(ends).map(number::count));
        row.push(or_na(after, |after| after));
        row.push(number::duration(crowd.set_up_s));
        row
    };
    let rows: Vec<_> = outcome.crowd.iter().map(row).collect();
    (!rows.is_empty()).then(|| grid(&headings, rows))
}

/// Answers per second of the measured part; `None` when it had no length.
pub(super) fn answered_per_s(outcome: &Outcome) -> Option<f64> {
    per_second(outcome, outcome.within().answered)
}

/// Whether latencies are missing of a notable part of the answers.
fn has_many_of_warm_up(outcome: &Outcome) -> bool {
    let within = outcome.within();
    within.of_warm_up as f64 > within.answered as f64 * OF_WARM_UP_SHARE
}

/// A total of the measured part for each of its seconds.
pub(super) fn per_second(outcome: &Outcome, total: u64) -> Option<f64> {
    let seconds = outcome.measured.as_secs_f64();
    (seconds > 0.0).then(|| total as f64 / seconds)
}

/// Whether the run was too short to say a rate.
pub(super) fn is_too_short(outcome: &Outcome) -> bool {
    let answered = outcome.within().answered;
    (1..RATE_ANSWERS_MIN).contains(&answered) && outcome.measured < RATE_TIME_MIN
}

/// Whether nearly every answer had a connection of its own.
fn has_one_each(outcome: &Outcome) -> bool {
    let answered = outcome.totals.answered;
    let totals = &outcome.totals;
    let is_closed_each = outcome.setting.requests_per_connection == Some(1);
    let is_one_each =
        totals.connects * 10 >= answered * 9 && outcome.lifetime.count() * 10 >= answered * 9;
    answered > 0 && outcome.connect.count() > 0 && (is_closed_each || is_one_each)
}

/// The 99th percentile, or the longest where there are too few for it, and which of both.
fn tail_of(times: &Distribution) -> Option<(&'static str, u64)> {
    let p99 = times.known_quantile_ns(0.99).map(|ns| ("99 %", ns));
    p99.or_else(|| times.max_ns().map(|ns| ("all", ns)))
}

/// How long answers took, in the terms of one who waits for them: with the connect where each has its own.
fn tail(outcome: &Outcome) -> String {
    let shown = |ns: u64| number::time(ns as f64);
    if outcome.latency.count() == 0 {
        return "all asked for in the warm-up, so no latency is known".to_owned();
    }
    let Some((part, ns)) = tail_of(&outcome.latency) else {
        return "their times unknown".to_owned();
    };
    let own = if has_many_of_warm_up(outcome) {
        format!("{part} of those not asked for in the warm-up within {}", shown(ns))
    } else {
        format!("{part} of them within {}", shown(ns))
    };
    if !has_one_each(outcome) {
        return own;
    }
    // In a closed loop a connection lives from its connect to its answer; in an open one it waits for its time first.
    match (tail_of(&outcome.lifetime), tail_of(&outcome.connect)) {
        (Some((part, whole)), _) if is_closed_loop(outcome) && outcome.lifetime.count() > 0 => {
            format!(
                "{part} of them within {} with their connect, {} without",
                shown(whole),
                shown(ns)
            )
        }
        (_, Some((part, connect))) => {
            format!("{own} after their connect, {part} of which within {}", shown(connect))
        }
        _ => own,
    }
}

/// Whether each connection asked again as soon as it was answered.
pub(super) fn is_closed_loop(outcome: &Outcome) -> bool {
    outcome.setting.pace == "closed"
}

/// The result in one sentence.
pub(super) fn answer(outcome: &Outcome) -> String {
    let Some(rate) = answered_per_s(outcome).filter(|_| outcome.within().answered > 0) else {
        let all = outcome.answered();
        return match (all, outcome.totals.answered) {
            (0, 0) => "No request was answered.".to_owned(),
            (some, 0) => format!(
                "Nothing was answered in the measured time; what came, {}, was to requests of the warm-up.",
                number::plural(some, "answer")
            ),
            (_, late) => format!(
                "Nothing was answered within the {} measured; {} came while the last answers were waited for, {}.",
                number::duration(outcome.measured.as_secs_f64()),
                number::plural(late, "answer"),
                tail(outcome)
            ),
        };
    };
    let asked = match outcome.setting.asked_per_s {
        Some(asked) => format!(" of {} asked", number::si(asked)),
        None => String::new(),
    };
    let tail = tail(outcome);
    let unsent = outcome.errors.unsent;
    let part = |some| number::part(some, requests(outcome));
    let mut failed = match outcome.errors.total() - unsent {
        0 if unsent > 0 => format!("{} of the requests never sent", part(unsent)),
        0 => "no errors".to_owned(),
        some if unsent > 0 => {
            format!("{} of the requests failed, {} never sent", part(some), part(unsent))
        }
        some => format!("{} of the requests failed", part(some)),
    };
    if outcome.unanswered.count() > 0 {
        failed += &format!(", {} still out at the end", number::count(outcome.unanswered.count()));
    }
    if is_too_short(outcome) {
        let answers = number::plural(outcome.within().answered, "answer");
        let took = number::duration(outcome.measured.as_secs_f64());
        return format!("{answers} in {took}, {tail}, {failed}; too few for a rate.");
    }
    let rate = number::si(rate);
    format!("{rate} answers per second{asked}, {tail}, {failed}; {}.", bottleneck(outcome))
}

/// Requests that errors are a part of: those that were due.
pub(super) fn requests(outcome: &Outcome) -> u64 {
    outcome.totals.due.max(outcome.errors.total())
}

/// What set the limit, as far as the run shows.
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
    } else if has(FindingKind::RateMissed) && was_away(outcome) {
        "connections failed or broke"
    } else if has(FindingKind::RateMissed) {
        "the server could not keep up with the asked rate"
    } else if outcome.latency.mean_ns().is_some_and(|mean| outcome.setting.think_s * 1e9 > mean) {
        "the time that clients think sets the rate"
    } else if is_closed_loop(outcome) {
        "limited by the server or the network, not by this program"
    } else {
        "the schedule set the rate, nothing was at its limit"
    };
    words.to_owned()
}

/// What ran, in one line without the targets.
pub(super) fn setting(outcome: &Outcome) -> String {
    let setting = &outcome.setting;
    let mut parts = vec![
        number::plural(u64::from(setting.connections), "connection"),
        number::plural(u64::from(setting.threads), "thread"),
        setting.driver.clone(),
        format!("{} loop", pace(outcome)),
    ];
    if setting.spoken != "1.1" {
        parts.push(spoken(outcome));
    } else if setting.streams > 1 {
        parts.push("HTTP/1.1, as the server chose, which has no streams".to_owned());
    }
    if setting.pipeline > 1 {
        parts.push(format!(
            "{} in a pipeline",
            number::plural(u64::from(setting.pipeline), "request")
        ));
    }
    if let Some(requests) = setting.requests_per_connection {
        parts.push(format!("{} per connection", number::plural(u64::from(requests), "request")));
    }
    if setting.think_s > 0.0 {
        parts.push(format!("{} to think after an answer", number::duration(setting.think_s)));
    }
    parts.push(format!("{} measured", number::duration(outcome.measured.as_secs_f64())));
    if setting.warm_up_s > 0.0 {
        parts.push(format!("{} warm-up before", number::duration(setting.warm_up_s)));
    }
    parts.join(", ")
}

/// Which HTTP, by how many streams of how many that were asked for.
fn spoken(outcome: &Outcome) -> String {
    let setting = &outcome.setting;
    let spoken = if setting.spoken.is_empty() { &setting.http } else { &setting.spoken };
    let chosen = if setting.http == "auto" { ", as the server chose" } else { "" };
    let of_all = number::plural(u64::from(setting.streams), "stream");
    let allowed = outcome.http2.as_ref().and_then(|http2| http2.streams_allowed);
    match allowed {
        Some(allowed) => format!(
            "HTTP/{spoken}{chosen}, {} on a connection, as the server allows ({} asked for)",
            number::plural(u64::from(allowed), "stream"),
            setting.streams
        ),
        None => format!("HTTP/{spoken}{chosen}, {of_all} on a connection"),
    }
}

/// What HTTP/2 did, as far as that is out of the ordinary, and what its heads took; empty where it was not spoken.
fn http2(outcome: &Outcome) -> String {
    let Some(http2) = &outcome.http2 else { return String::new() };
    let by_code = |what: &str, counts: &BTreeMap<String, u64>| {
        let each = counts.iter().map(|(code, count)| format!("{} {code}", number::count(*count)));
        let each = each.collect::<Vec<_>>().join(", ");
        (!each.is_empty()).then(|| format!("{what}: {each}"))
    };
    let each = |bytes: u64, of: u64| (of > 0).then(|| number::bytes(bytes as f64 / of as f64));
    let [out, back] = [
        each(http2.header_bytes_out, outcome.totals.sent),
        each(http2.header_bytes_in, outcome.within().answered),
    ];
    let mut parts = Vec::new();
    if let Some(under_way) = http2.streams_under_way {
        parts.push(format!("{under_way:.1} streams of a connection under way on average"));
    }
    let mut heads = format!(
        "heads of {} out and {} in for each request",
        or_na(out, |bytes| bytes),
        or_na(back, |bytes| bytes)
    );
    let saved = [
        saved(http2.header_bytes_out, http2.header_text_bytes_out),
        saved(http2.header_bytes_in, http2.header_text_bytes_in),
    ];
    if let [Some(out), Some(back)] = saved {
        heads +=
            &format!(", {} and {} less than as text", number::percent(out), number::percent(back));
    }
    parts.push(heads);
    parts.extend(by_code("GOAWAY", &http2.goaways));
    parts.extend(by_code("RST_STREAM", &http2.resets));
    let counted = [
        (http2.resent, "request", "sent again that the server had not looked at"),
        (http2.window_stalls, "time", "that a body waited for a window of the server"),
    ];
    for (count, what, words) in counted.into_iter().filter(|(count, ..)| *count > 0) {
        parts.push(format!("{} {words}", number::plural(count, what)));
    }
    parts.join("; ")
}

/// Which part of the heads as text their blocks save; `None` where they were not counted.
fn saved(block_bytes: u64, text_bytes: u64) -> Option<f64> {
    (text_bytes > 0).then(|| 1.0 - block_bytes as f64 / text_bytes as f64)
}

/// Frames by kind; empty where they were not counted.
fn frames(outcome: &Outcome) -> String {
    let Some(http2) = &outcome.http2 else { return String::new() };
    let of = |frames: &BTreeMap<String, u64>, way: &str| {
        let each = frames.iter().map(|(kind, count)| format!("{} {kind}", number::count(*count)));
        let each = each.collect::<Vec<_>>().join(", ");
        (!each.is_empty()).then(|| format!("{way} {each}"))
    };
    let both = [of(&http2.frames_in, "in"), of(&http2.frames_out, "out")];
    both.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn pace(outcome: &Outcome) -> String {
    if is_closed_loop(outcome) {
        "closed".to_owned()
    } else {
        format!("open ({})", outcome.setting.pace)
    }
}

/// The text with a capital at its start and a full stop at its end.
pub(super) fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let capital = rest.next().into_iter().flat_map(char::to_uppercase);
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    capital.chain(rest).collect::<String>() + stop
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Errors, sample};

    #[test]
    fn every_row_has_a_cell_for_each_heading() {
        let mut outcome = sample::outcome();
        outcome.targets.push(outcome.targets[0].clone());
        let grids = [
            times(&outcome),
            targets(&outcome).expect("two targets"),
            crowd(&outcome).expect("a crowd"),
        ];
        // A row that has not is refused by the table.
        assert!(grids.iter().all(|grid| !grid.is_empty()));
    }

    #[test]
    fn what_is_not_known_is_said() {
        let outcome = sample::empty();
        let row = format!("| latency | {}0 |", "n/a | ".repeat(8));
        assert!(times(&outcome).markdown().contains(&row));
        assert_eq!(rate(&outcome), "n/a answered");
        assert!(
            generator(&outcome).starts_with("healthy: n/a CPU per answer"),
            "{}",
            generator(&outcome)
        );
        assert!(targets(&outcome).is_none() && crowd(&outcome).is_none());
    }

    #[test]
    fn a_kernel_that_keeps_its_timer_slack_is_a_note() {
        let mut outcome = sample::outcome();
        outcome.generator.coarse_timers = Some("Invalid argument".to_owned());
        assert!(generator(&outcome).ends_with("timer slack (Invalid argument)"), "{outcome:?}");
    }

    #[test]
    fn clients_that_think_longer_than_they_wait_set_the_rate() {
        let mut outcome = sample::sample(8, 1_000, 2_000_000);
        assert!(answer(&outcome).ends_with("not by this program."));
        outcome.setting.think_s = 0.01;
        assert!(answer(&outcome).ends_with("the time that clients think sets the rate."));
        assert!(setting(&outcome).contains("10.0 ms to think after an answer"), "{outcome:?}");
    }

    #[test]
    fn where_each_answer_has_a_connection_the_first_sentence_has_both() {
        let mut outcome = sample::sample(8, 1_000, 2_000_000);
        (outcome.totals.connects, outcome.setting.requests_per_connection) = (1_000, Some(1));
        outcome.connect = sample::times(1_000, |_| 5_000_000);
        outcome.lifetime = sample::times(1_000, |_| 7_000_000);
        let has = |outcome: &Outcome, words: &str| {
            let answer = answer(outcome);
            assert!(answer.contains(words), "{answer}");
        };
        has(&outcome, "99 % of them within 7.00 ms with their connect, 2.00 ms without");
        outcome.setting.pace = "100".to_owned();
        has(
            &outcome,
            "99 % of them within 2.00 ms after their connect, 99 % of which within 5.00 ms",
        );
        outcome.totals.connects = 8;
        outcome.setting.requests_per_connection = None;
        has(&outcome, "99 % of them within 2.00 ms, no errors");
    }

    #[test]
    fn what_http2_did_is_said_in_one_line_and_its_frames_in_another() {
        let mut outcome = sample::sample(8, 1_000, 2_000_000);
        let has = |outcome: &Outcome, name: &str, words: &str| {
            let facts = summary(outcome);
            let text = facts.iter().find(|(known, _)| *known == name).map(|(_, text)| text.clone());
            assert_eq!(text.as_deref(), Some(words));
        };
        (outcome.setting.http, outcome.setting.streams) = ("auto".to_owned(), 16);
        let of_1_1 = "HTTP/1.1, as the server chose, which has no streams";
        assert!(setting(&outcome).contains(of_1_1), "{}", setting(&outcome));
        outcome.setting.spoken = "2".to_owned();
        let of_2 = "HTTP/2, as the server chose, 16 streams on a connection";
        assert!(setting(&outcome).contains(of_2), "{}", setting(&outcome));
        let frames = |kinds: &[(&str, u64)]| {
            kinds.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
        };
        outcome.http2 = Some(crate::Http2 {
            connections: 8,
            header_bytes_in: 4_000,
            header_bytes_out: 5_000,
            header_text_bytes_in: 100_000,
            header_text_bytes_out: 50_000,
            frames_in: frames(&[("data", 1_000), ("headers", 1_000)]),
            frames_out: frames(&[("headers", 1_000), ("settings", 16)]),
            streams_under_way: Some(12.34),
            ..crate::Http2::default()
        });
        has(
            &outcome,
            "HTTP/2",
            "12.3 streams of a connection under way on average; heads of 5.00 B out and 4.00 B in for each request, \
             90.0 % and 96.0 % less than as text",
        );
        has(&outcome, "frames", "in 1,000 data, 1,000 headers; out 1,000 headers, 16 settings");
        // Results of before have neither.
        outcome.http2 = Some(crate::Http2 {
            header_bytes_in: 4_000,
            header_bytes_out: 5_000,
            ..crate::Http2::default()
        });
        has(&outcome, "HTTP/2", "heads of 5.00 B out and 4.00 B in for each request");
        assert!(summary(&outcome).iter().all(|(name, _)| *name != "frames"));
    }

    #[test]
    fn the_asked_rate_stands_beside_the_achieved_one() {
        let mut outcome = sample::outcome();
        outcome.setting.asked_per_s = Some(3100.0);
        assert_eq!(rate(&outcome), "1.55 k/s answered of 3.10 k/s asked (50.0 %)");
    }

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
        let found = sample::outcome().errors.named();
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(Errors::default().named().is_empty());
    }

    #[test]
    fn each_error_is_counted_in_one_kind_and_no_number_is_said_twice() {
        let of = |connect, connect_refused, connect_no_port| {
            let status = 20;
            Errors { connect, connect_refused, connect_no_port, status, ..Errors::default() }
        };
        for (errors, expected) in [
            (
                of(119, 119, 0),
                "119 could not connect: refused, 20 had another status than expected",
            ),
            (of(4, 0, 0), "4 could not connect, 20 had another status than expected"),
            (
                of(9, 2, 3),
                "2 could not connect: refused, 3 could not connect: no port left, \
                 4 could not connect: other causes, 20 had another status than expected",
            ),
        ] {
            assert_eq!(errors.in_words(), expected);
            let named: u64 = errors.named().iter().map(|(_, count)| count).sum();
            assert_eq!(named, errors.total());
        }
    }
}
