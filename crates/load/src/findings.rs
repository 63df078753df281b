//! What a reader has to know before believing a run: findings about the server and about the generator itself.
//!
//! Pure judgements of a finished [`Outcome`]; every limit has its reason beside it.
//!
//! Answers that did not come: none at all, none for a time, some never; and the time in which the generator itself
//! did not run.

use pollux_report::number::{count, counted, plural, time};

use crate::{
    AgentOutcome, Errors, Finding, FindingKind, Judged, Outcome, Setting, Stall, backlog_grew,
};

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
pub(crate) const ANSWERS_BEYOND_MIN: f64 = 10.0;

/// An answer that takes so many times as long as the first ones did waited behind others in the server.
const QUEUES_FROM: f64 = 2.0;
/// A shorter one is not a finding: neither a standstill of the generator nor a request that waits.
const NOTABLE_S: f64 = 1.0;
/// A clock of 20 ms takes some of its steps off both ends.
const AT_THE_ENDS_S: f64 = 0.1;
/// Connections of a thread whose first requests, all at once, may take it a second.
const MANY_TO_START: f64 = 1_000.0;

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
    if !outcome.agents.is_empty() {
        // Of several generators each says it of itself.
        found.retain(|finding| !is_of_generator(finding));
        found.extend(of_agents(outcome));
        found.extend(outcome.agents.iter().filter_map(agent_lost));
    }
    found.sort_by_key(|finding| finding.kind);
    found
}

/// Whether it is about the generator and not about the server.
pub(crate) fn is_of_generator(finding: &Finding) -> bool {
    matches!(
        finding.kind,
        FindingKind::GeneratorBound | FindingKind::GeneratorStalled | FindingKind::ScheduleLag
    )
}

/// What agents found about themselves, with their names.
fn of_agents(outcome: &Outcome) -> impl Iterator<Item = Finding> {
    outcome.agents.iter().flat_map(|agent| {
        agent.findings.iter().map(|finding| Finding {
            text: format!("agent {}: {}", agent.name, finding.text),
            ..finding.clone()
        })
    })
}

fn agent_lost(agent: &AgentOutcome) -> Option<Finding> {
    let why = agent.lost.as_ref()?;
    let after = time(agent.lost_after_s.unwrap_or_default() * 1e9);
    let answers = plural(agent.answered, "answer");
    let text = format!(
        "agent {} was lost after {after}: {why}; {answers} that it had counted are in no figure",
        agent.name
    );
    let advice = "the load was less from then on: look at that host, and run again";
    finding(FindingKind::AgentLost, text, advice)
}

pub(crate) fn finding(kind: FindingKind, text: String, advice: &str) -> Option<Finding> {
    Some(Finding { kind, text, advice: advice.to_owned() })
}

fn rate_missed(outcome: &Outcome) -> Option<Finding> {
    let asked = outcome.setting.asked_per_s?;
    let reached = outcome.answered_per_s();
    let enough = asked * (1.0 - RATE_MISSED_SHARE);
    // What was asked for last is answered a moment after the time; a fault only where it adds up.
    let seconds = outcome.measured.as_secs_f64();
    let is_answered = seconds > 0.0 && outcome.totals.answered as f64 / seconds >= enough;
    if reached >= enough || (is_answered && backlog_grew(outcome).is_none()) {
        return None;
    }
    let share = reached / asked * 100.0;
    let [asked, reached] = [asked, reached].map(|rate| count(rate.round() as u64));
    let text = format!(
        "{asked} requests/s were asked for, {reached} answered ({share:.1} %){}",
        dropped(outcome)
    );
    let advice = if was_away(outcome) {
        format!("{}: look at the server's own log", what_went_wrong(outcome))
    } else {
        what_limits(outcome)
    };
    finding(FindingKind::RateMissed, text, &advice)
}

/// What a server that worked all the time was limited by, and what to change, as far as the run shows it.
fn what_limits(outcome: &Outcome) -> String {
    if generator_bound(outcome).is_some() {
        return "the generator had no time left, so this says nothing about the server".to_owned();
    }
    let known = outcome.sent_to_answer.filter(|took| took.answers > 0 && took.first_answers > 0);
    let more = more_slots(outcome);
    let Some(took) = known else {
        return format!(
            "this load is beyond the server, or beyond the connections: requests that found none free \
             waited; give more {more}, or ask for less"
        );
    };
    let [now, first] = [took.mean_ns, took.first_mean_ns].map(time);
    if took.mean_ns >= took.first_mean_ns * QUEUES_FROM {
        return format!(
            "this load is beyond the server: from its sending a request took {now}, the first ones {first}, so \
             requests queue in the server, and with more {more} the queue is longer; ask for less"
        );
    }
    if outcome.errors.unsent == 0 {
        return format!(
            "all requests were sent, and took {now} each: some were out when the time was over; measure for a \
             longer time (-d), or ask for less"
        );
    }
    let slots = slots(outcome);
    format!(
        "from its sending a request took {now}, at the start too, and {slots:.0} at a time make {}/s of that; \
         give more {more}, or ask for less: where more of them answer no more, the server is at its \
         limit",
        pollux_report::number::si(slots / took.mean_ns * 1e9)
    )
}

/// What kept the answers of a server away that was not slow, by what was counted of the whole run.
fn what_went_wrong(outcome: &Outcome) -> String {
    let still_s: f64 = outcome.standstills.iter().map(|still| still.lasted_s).sum();
    let mut all = Vec::new();
    if still_s > 0.0 {
        all.push(format!("nothing was answered for {still_s:.1} s"));
    }
    all.extend(broken(outcome).map(|kinds| format!("{kinds} in the whole run")));
    all.join(", and ")
}

/// Requests that a connection which failed or broke took with it, by kind, those of the warm-up too; `None`
/// without any.
fn broken(outcome: &Outcome) -> Option<String> {
    let mut errors = outcome.errors;
    errors.add(&outcome.warm_up_errors);
    let Errors { status, mismatch, unsent, .. } = errors;
    let is_any = errors.total() > status + mismatch + unsent;
    let broken = Errors { status: 0, mismatch: 0, unsent: 0, ..errors };
    is_any.then(|| broken.in_words())
}

/// What became of the requests of the warm-up that had not begun when it was over.
fn dropped(outcome: &Outcome) -> String {
    let dropped = outcome.warm_up_errors.unsent;
    if dropped == 0 || outcome.setting.asked_per_s.is_none() {
        return String::new();
    }
    let were = if dropped == 1 { "was" } else { "were" };
    let requests = plural(dropped, "request");
    format!("; {requests} of the warm-up had found no connection by its end and {were} dropped")
}

/// Whether what is missing was not lost to the server's speed: it answered nothing for a second or more, or
/// took no connections or broke them where it had answered before.
pub(crate) fn was_away(outcome: &Outcome) -> bool {
    let Errors { connect, connect_no_descriptor, connect_no_port, reset, short, goaway, .. } =
        outcome.errors;
    let refused = connect - connect_no_descriptor - connect_no_port;
    let failed = refused + reset + short + goaway;
    !outcome.standstills.is_empty() || failed * 2 >= outcome.errors.total().max(1)
}

fn objective_missed(outcome: &Outcome) -> Option<Finding> {
    let missed = |judged: &Judged| Some((judged.text.clone(), judged.broken_by.clone()?));
    let missed: Vec<(String, String)> = outcome.objectives.iter().filter_map(missed).collect();
    let text = match missed.as_slice() {
        [] => return None,
        [(objective, why)] => format!("the objective {objective} was missed: {why}"),
        several => {
            let each: Vec<String> =
                several.iter().map(|(objective, why)| format!("{objective} ({why})")).collect();
            format!("{} objectives were missed: {}", several.len(), each.join("; "))
        }
    };
    finding(FindingKind::ObjectiveMissed, text, "it is what --slo asks for; see the figures below")
}

fn generator_bound(outcome: &Outcome) -> Option<Finding> {
    let shares = &outcome.generator.busy_share;
    let busiest = shares.iter().copied().fold(0.0, f64::max);
    // Threads that share CPUs can have used up these while none of them looks busy.
    let cpus = outcome.generator.cpus.map_or(f64::INFINITY, f64::from);
    let of_cpus = shares.iter().sum::<f64>() / cpus;
    let text = if busiest >= BUSY_SHARE_MAX {
        format!(
            "the generator is the bottleneck: a thread of it worked {:.0} % of the time",
            busiest * 100.0
        )
    } else if of_cpus >= BUSY_SHARE_MAX {
        format!(
            "the generator is the bottleneck: {} threads of it worked {:.0} % of the time of \
             all its CPUs ({cpus})",
            shares.len(),
            of_cpus * 100.0
        )
    } else {
        return None;
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
    let rate = outcome.answered_per_s();
    let median_ms = median as f64 / 1e6;
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
    let Setting { connections, pipeline, streams, .. } = &outcome.setting;
    let allowed = outcome.http2.as_ref().and_then(|http2| http2.streams_allowed);
    let streams = if outcome.http2.is_some() {
        allowed.map_or(*streams, |allowed| allowed.min(*streams)).max(1)
    } else {
        1
    };
    f64::from(*connections) * f64::from(*pipeline) * f64::from(streams)
}

/// What there may be more of, so that more requests are under way.
fn more_slots(outcome: &Outcome) -> &'static str {
    match &outcome.http2 {
        // The server has set the number of streams.
        Some(http2) if http2.streams_allowed.is_none() => "connections (-c) or streams (--streams)",
        _ => "connections (-c)",
    }
}

/// Redirects are not followed: what was measured is the answer that sends elsewhere.
fn redirected(outcome: &Outcome) -> Option<Finding> {
    let redirected = outcome.totals.redirected;
    let answered = outcome.totals.answered;
    if redirected as f64 <= answered as f64 * ERRORS_SHARE_MAX {
        return None;
    }
    let first = outcome.first_redirect.as_ref().and_then(|first| first.location.as_ref());
    let first = first.map_or_else(String::new, |location| format!("; the first to {location}"));
    let text = format!(
        "{} of {} {}, which are not followed{first}",
        count(redirected),
        plural(answered, "answer"),
        if answered == 1 { "was a redirect" } else { "were redirects" }
    );
    let advice = "ask for the URL that their Location names (often a slash at the end, or \
                  https://), or say that they are right with --expect-status";
    finding(FindingKind::Redirected, text, advice)
}

fn many_errors(outcome: &Outcome) -> Option<Finding> {
    // An objective for errors judges them instead.
    if outcome.objectives.iter().any(|judged| judged.figure == "errors") {
        return None;
    }
    let errors = outcome.errors.total();
    let requests = outcome.totals.due.max(outcome.totals.sent).max(errors);
    if requests == 0 || errors as f64 <= requests as f64 * ERRORS_SHARE_MAX {
        return None;
    }
    let share = errors as f64 / requests as f64 * 100.0;
    let text = format!(
        "{} of {} failed ({share:.2} %): {}{}{}",
        count(errors),
        plural(requests, "request"),
        outcome.errors.in_words(),
        first_failure(outcome),
        outcome.first_wrong.as_ref().map_or_else(String::new, |wrong| format!(
            "; the first wrong answer: {}",
            wrong.in_short()
        ))
    );
    let advice = "the latency is that of the answers that came; look at the errors by kind";
    finding(FindingKind::ManyErrors, text, advice)
}

/// Why the first connection failed that is among the errors that count.
fn first_failure(outcome: &Outcome) -> String {
    let counts = outcome.first_failure.as_ref().filter(|_| !outcome.was_first_failure_early);
    counts.map_or_else(String::new, |why| format!("; the first connection that failed: {why}"))
}

fn few_answers(outcome: &Outcome) -> Option<Finding> {
    let answers = outcome.latency.count();
    let needed = (ANSWERS_BEYOND_MIN / (1.0 - 0.99)).round() as u64;
    if answers >= needed || (answers == 0 && outcome.within().answered == 0) {
        return None;
    }
    if answers == 0 {
        return finding(
            FindingKind::FewAnswers,
            only_of_warm_up(outcome),
            "measure for a longer time (-d)",
        );
    }
    let answers = counted(answers, "answer is", "answers are");
    let needed = count(needed);
    let text = format!("{answers} too few for a 99th percentile; it takes {needed}");
    finding(FindingKind::FewAnswers, text, "run longer (-d) or with more requests (-n)")
}

/// All that came in the measured time was asked for before it.
fn only_of_warm_up(outcome: &Outcome) -> String {
    format!(
        "no latency is known: all that was answered in the measured time, {}, was asked for in the warm-up, and no \
         request that began later was answered",
        plural(outcome.within().answered, "request")
    )
}

pub(crate) fn no_answers(outcome: &Outcome) -> Option<Finding> {
    if outcome.totals.answered > 0 || outcome.within().answered > 0 {
        return None;
    }
    let of_warm_up = outcome.answered();
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
    let mut by_kinds = outcome.errors;
    by_kinds.add(&outcome.warm_up_errors);
    let Errors { connect, tls, timeout, unsent, .. } = by_kinds;
    let of_connects = connect + tls + timeout + unsent;
    if let Some(why) = outcome.first_failure.as_ref().filter(|_| of_connects == errors) {
        return (
            format!("nothing was answered, and {} failed: {why}", plural(errors, "request")),
            "check that the server runs and the URL is right",
        );
    }
    if errors + out > 0 {
        let longest_s = outcome.latency.max_ns().unwrap_or(0) as f64 / 1e9;
        let waited = match out {
            0 => String::new(),
            _ => format!(
                ", {} out at the end; the longest had waited {longest_s:.1} s",
                counted(out, "was", "were")
            ),
        };
        let wrong = outcome.first_wrong.as_ref();
        let wrong = wrong
            .map_or_else(String::new, |wrong| format!("; what came first: {}", wrong.in_short()));
        let why = outcome.first_failure.as_ref();
        let why = why
            .map_or_else(String::new, |why| format!("; the first connection that failed: {why}"));
        let kinds = if errors > 0 { format!(" ({})", by_kinds.in_words()) } else { String::new() };
        let failed = plural(errors, "request");
        let text = format!("nothing was answered: {failed} failed{kinds}{waited}{wrong}{why}");
        return (text, never_answered_because(outcome));
    }
    let is_crowd = outcome.crowd.iter().any(|kind| kind.asked > 0);
    let advice = if is_crowd {
        "let it run longer (-d); a crowd that the server does not answer holds the start up"
    } else {
        "let it run longer (-d)"
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
        return match outcome.http2 {
            Some(_) => {
                "what the server sends is not HTTP/2, or breaks its rules: check the port, and look at an \
                 answer (curl -v --http2-prior-knowledge)"
            }
            None => {
                "what the server sends is not HTTP/1.1, or breaks its rules: check the port, and look at \
                 an answer (curl -v)"
            }
        };
    }
    if ended > silent {
        return "the server ends its connections before an answer is whole: look at its log, and at an \
                answer (curl -v)";
    }
    "the server takes connections and says nothing to them: check that it works, and that the URL is right"
}

/// The measured part had no answer, the warm-up had `answered`.
fn only_in_warm_up(outcome: &Outcome, answered: u64) -> (String, &'static str) {
    let due = outcome.totals.due;
    let sent = outcome.totals.sent;
    match (due, outcome.unanswered.count()) {
        (0, 0) => (
            "no request began in the measured part; answers came in the warm-up only".to_owned(),
            "measure for a longer time (-d)",
        ),
        (0, out) => (
            format!(
                "nothing was answered after the warm-up: {} out until the end",
                counted(out, "request of it was", "requests of it were")
            ),
            "the server stands still, or takes longer than the run: look at its log, or measure \
             for a longer time (-d)",
        ),
        _ => (
            format!(
                "nothing was answered in the measured time: {} due, {} sent{}; what came, {}, was to \
                 requests of the warm-up{}{}",
                counted(due, "was", "were"),
                count(sent),
                broken(outcome)
                    .map_or_else(String::new, |kinds| format!(", {kinds} in the whole run")),
                plural(answered, "answer"),
                dropped(outcome),
                first_failure(outcome)
            ),
            if was_away(outcome) {
                "the server stopped answering: look at its own log"
            } else {
                "an answer takes longer than was measured: measure for a longer time (-d), or ask for less"
            },
        ),
    }
}

/// Seconds in which requests waited and nothing was answered: the server was away, or did not work.
pub(crate) fn outage(outcome: &Outcome) -> Option<Finding> {
    let still = &outcome.standstills;
    let mut text = for_so_long("nothing was answered", still)?;
    let came = outcome.answered();
    if came == 0 && outcome.totals.answered == 0 {
        return None;
    }
    if outcome.silence.is_some_and(|silence| silence.is_until_end) {
        let last = if still.len() > 1 { "the last of them" } else { "it" };
        text += &format!(
            "; {last} lasted until the end, and {} before",
            counted(came, "answer came", "answers came")
        );
    }
    text +=
        &broken(outcome).map_or_else(String::new, |kinds| format!("; in the whole run {kinds}"));
    text += &first_failure(outcome);
    let advice =
        format!("{}look at the seconds (--csv) and at the server's own log", meanwhile(outcome));
    finding(FindingKind::Outage, text, &advice)
}

/// What requests did while nothing was answered, and where that is seen.
fn meanwhile(outcome: &Outcome) -> String {
    let Some(silence) = outcome.silence else { return String::new() };
    let all_s: f64 = outcome.standstills.iter().map(|still| still.lasted_s).sum();
    let ends_s = AT_THE_ENDS_S * outcome.standstills.len() as f64;
    let mut text = match silence.out_s {
        out_s if out_s >= all_s - ends_s => "requests were out all that time".to_owned(),
        out_s if out_s <= ends_s => {
            "no request was out meanwhile, for there was no connection to send one on".to_owned()
        }
        out_s => format!(
            "requests were out for {out_s:.1} s of it, and for the rest there was no connection to send one on"
        ),
    };
    let longest_ns = outcome.longest_standstill_s().unwrap_or(0.0) * 1e9;
    // Those that wait in an open loop are in the quantiles, too.
    if outcome.setting.asked_per_s.is_none()
        && outcome.latency.count() > 0
        && outcome.latency.max_ns().is_some_and(|max_ns| max_ns as f64 >= longest_ns - ends_s * 1e9)
    {
        text += ": the longest latency shows it, rate and quantiles hardly do";
    }
    text + "; "
}

pub(crate) fn generator_stalled(outcome: &Outcome) -> Option<Finding> {
    let stalls = outcome.generator.stalls.iter().filter(|stall| stall.lasted_s >= NOTABLE_S);
    let text =
        for_so_long("the generator itself did not run", &stalls.copied().collect::<Vec<_>>())?;
    let opens = f64::from(outcome.setting.connections) / f64::from(outcome.setting.threads.max(1));
    let advice = if stalls_began_at_start(outcome) && opens >= MANY_TO_START {
        "it began with the requests of all its connections at once: the first latencies are its own, not \
             the server's; give it more threads (--threads) and CPUs of its own (--cpus), or a longer \
             --warm-up"
    } else {
        "the longest latencies are its own, not the server's; give it CPUs of its own (--cpus): others \
             had them, or the machine was suspended"
    };
    finding(FindingKind::GeneratorStalled, text, advice)
}

fn stalls_began_at_start(outcome: &Outcome) -> bool {
    let mut notable = outcome.generator.stalls.iter().filter(|stall| stall.lasted_s >= NOTABLE_S);
    notable.all(|stall| stall.from_s < 0.1)
}

pub(crate) fn unanswered(outcome: &Outcome) -> Option<Finding> {
    let longest_ns = outcome.unanswered.max_ns()?;
    let answered_ns = outcome.latency.histogram().max();
    let longest_s = longest_ns as f64 / 1e9;
    if outcome.totals.answered == 0 || longest_s < NOTABLE_S || longest_ns <= answered_ns {
        return None;
    }
    let out = outcome.unanswered.count();
    let text = format!(
        "{} never answered: the longest had waited {longest_s:.1} s when the run ended",
        counted(out, "request was", "requests were")
    );
    let advice = "the rate is that of the other connections; check whether the server serves all \
                  of them (its limits, its log)";
    finding(FindingKind::Unanswered, text, advice)
}

/// `what` with how long it was so; `None` when it never was.
fn for_so_long(what: &str, times: &[Stall]) -> Option<String> {
    let longest =
        times.iter().copied().reduce(|a, b| if b.lasted_s > a.lasted_s { b } else { a })?;
    let Stall { from_s, lasted_s } = longest;
    // What came in the first moments came before.
    let from = match from_s {
        0.0..0.95 => format!("{from_s:.2} s"),
        _ => format!("{from_s:.1} s"),
    };
    Some(match times.len() {
        1 => format!("{what} for {lasted_s:.1} s, from {from} after the start on"),
        number => format!(
            "{what} for {:.1} s in all, {number} times; the longest was {lasted_s:.1} s, from \
             {from} after the start on",
            times.iter().map(|each| each.lasted_s).sum::<f64>()
        ),
    })
}

#[cfg(test)]
mod tests {
    use FindingKind::*;

    use super::*;
    use crate::objective::judge;
    use crate::sample::sample;
    use crate::{Distribution, Second, findings};

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
    fn a_missed_rate_is_a_finding_from_a_hundredth_on() {
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
    fn a_missed_objective_is_a_finding() {
        let mut outcome = sample(100, 20_000, 6_200_000);
        for (objective, expected) in [("p99=5ms", &[ObjectiveMissed][..]), ("p99=7ms", &[])] {
            let objective: crate::Objective = objective.parse().expect("an objective");
            outcome.objectives = judge(&[objective], &outcome);
            assert_eq!(kinds(&outcome), expected);
        }
    }

    #[test]
    fn several_missed_objectives_are_named_one_by_one() {
        let mut outcome = sample(100, 20_000, 6_200_000);
        let objectives = ["p99=5ms", "rate=9000", "max=1s"].map(|one| one.parse().expect(one));
        outcome.objectives = judge(&objectives, &outcome);
        let text = first(&outcome);
        assert_eq!(
            text,
            "2 objectives were missed: p99 at most 5.00 ms (p99 was 6.20 ms); rate at least 9.00 k/s (it was \
             2.00 k/s)"
        );
    }

    /// A server that is gone has no limit that more connections would move.
    #[test]
    fn a_server_that_was_away_is_not_called_overloaded() {
        let mut outcome = sample(100, 5_000, 1_000_000);
        outcome.setting.asked_per_s = Some(2_000.0);
        outcome.totals.due = 20_000;
        let advice = |outcome: &Outcome| {
            let found = findings(outcome).into_iter().find(|one| one.kind == RateMissed);
            found.expect("a finding").advice
        };
        outcome.errors.unsent = 15_000;
        assert!(advice(&outcome).contains("beyond the server"), "{outcome:?}");
        outcome.errors = Errors { connect: 9_000, unsent: 6_000, ..Errors::default() };
        assert!(!advice(&outcome).contains("beyond the server"));
        outcome.errors = Errors { unsent: 15_000, ..Errors::default() };
        outcome.standstills = vec![Stall { from_s: 2.5, lasted_s: 7.5 }];
        assert!(!advice(&outcome).contains("beyond the server"));
        // Without an answer there is no longest latency that would show it.
        outcome.latency.clear();
        let outage = findings(&outcome).into_iter().find(|one| one.kind == Outage);
        assert!(!outage.expect("a finding").advice.contains("longest latency"));
    }

    /// With --http auto a server may choose HTTP/1.1, whatever number of streams was asked for.
    #[test]
    fn streams_are_advised_where_there_are_some_and_the_server_does_not_limit_them() {
        let mut outcome = sample(100, 5_000, 1_000_000);
        outcome.setting.asked_per_s = Some(2_000.0);
        (outcome.totals.due, outcome.errors.unsent) = (20_000, 15_000);
        (outcome.setting.http, outcome.setting.streams) = ("auto".to_owned(), 16);
        outcome.sent_to_answer = Some(crate::SentToAnswer {
            answers: 5_000,
            mean_ns: 1e6,
            first_answers: 16,
            first_mean_ns: 1e6,
        });
        let advice = |outcome: &Outcome| {
            let found = findings(outcome).into_iter().find(|one| one.kind == RateMissed);
            found.expect("a finding").advice
        };
        let said = advice(&outcome);
        assert!(said.contains("100 at a time") && !said.contains("--streams"), "{said}");
        outcome.http2 = Some(crate::Http2::default());
        let said = advice(&outcome);
        assert!(
            said.contains("1600 at a time") && said.contains("or streams (--streams)"),
            "{said}"
        );
        outcome.http2 = Some(crate::Http2 { streams_allowed: Some(4), ..crate::Http2::default() });
        let said = advice(&outcome);
        assert!(said.contains("400 at a time") && !said.contains("--streams"), "{said}");
    }

    #[test]
    fn redirects_are_a_finding_when_they_are_more_than_a_few() {
        let mut outcome = sample(100, 20_000, 1_000_000);
        outcome.totals.redirected = 20;
        assert_eq!(kinds(&outcome), []);
        outcome.totals.redirected = 21;
        assert_eq!(kinds(&outcome), [Redirected]);
    }

    #[test]
    fn errors_that_an_objective_allows_are_not_a_finding() {
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

    fn second(end_s: f64, is_warm_up: bool, answered: u64, errors: u64) -> Second {
        let latency = Distribution::new();
        let sent = answered + errors;
        let bytes_in = 0;
        let open = 0;
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
        assert!(!findings(&outcome)[0].advice.contains("crowd"), "there is no crowd");
        outcome.unanswered.record(10_000_000_000);
        outcome.latency.note_longest(10_000_000_000);
        let text = first(&outcome);
        assert!(text.contains("1 was out at the end") && text.contains("10.0 s"), "{text}");
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
    fn a_standstill_is_shown_with_its_seconds_and_without_errors() {
        let mut outcome = sample(4, 100_000, 40_000);
        outcome.standstills = vec![Stall { from_s: 4.2, lasted_s: 3.02 }];
        assert_eq!(
            first(&outcome),
            "nothing was answered for 3.0 s, from 4.2 s after the start on"
        );
        outcome.standstills.push(Stall { from_s: 8.0, lasted_s: 1.0 });
        let text = first(&outcome);
        assert!(
            text.contains("4.0 s in all, 2 times") && text.contains("3.0 s, from 4.2 s"),
            "{text}"
        );
    }

    #[test]
    fn a_generator_that_was_stopped_is_a_finding_from_a_second_on() {
        let mut outcome = sample(4, 100_000, 40_000);
        outcome.generator.stalls = vec![Stall { from_s: 1.0, lasted_s: 0.9 }];
        assert_eq!(findings(&outcome), []);
        outcome.generator.stalls.push(Stall { from_s: 2.0, lasted_s: 3.0 });
        assert!(first(&outcome).contains("did not run for 3.0 s, from 2.0 s"));
    }

    #[test]
    fn requests_that_wait_longer_than_any_answer_took_are_a_finding() {
        let mut outcome = sample(8, 100_000, 2_000_000_000);
        outcome.unanswered.record(1_900_000_000);
        assert_eq!(findings(&outcome), [], "as slow as the others");
        outcome.unanswered.record(2_500_000_000);
        assert!(first(&outcome).starts_with("2 requests were never answered: the longest had"));
    }
}
