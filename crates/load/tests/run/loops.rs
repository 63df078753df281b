//! When requests begin: schedules, closed loops, think time, warm-up, stops. Numbers are exact; times have generous
//! bounds, and those that can only be longer have none above.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_load::{
    Arrival, Arrivals, End, FindingKind, Load, Outcome, Pace, Phase, Plan, Stage, backlog_grew,
};
use pollux_testing::{wait_for, wait_until};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use crate::{OK, Server, delay, is_sound, on_every_driver, plan, some, try_run};

/// So many are due within `AFTER`: no start lies near its end.
const AFTER: Duration = Duration::from_micros(149_500);

fn epoll() -> Driver {
    "epoll".parse().expect("a driver")
}

fn stages(per_s: f64) -> Vec<Stage> {
    vec![Stage { from_per_s: per_s, to_per_s: per_s, lasts: None }]
}

/// An open loop at `per_s` for `after`.
fn open(driver: Driver, url: &str, per_s: f64, arrival: Arrival, after: Duration) -> Plan {
    let mut plan = plan(driver, url, 8, 1);
    plan.pace = Pace::Open { arrival, stages: stages(per_s) };
    plan.end = End { requests: None, after: Some(after) };
    plan
}

fn all_due_are_sent(outcome: &Outcome, due: u64) {
    is_sound(outcome);
    let at = format!("{} {:?}", outcome.setting.driver, outcome.errors);
    assert_eq!(outcome.totals.due, due, "{at}");
    assert_eq!(outcome.totals.sent + outcome.errors.unsent, due, "{at}");
    assert_eq!(outcome.totals.right, outcome.totals.sent, "{at}");
    assert!(outcome.generator.lag.count() > 0, "{at}");
}

#[test]
fn what_is_due_is_exactly_what_the_schedule_says() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    on_every_driver(
        |driver| open(driver, &server.url("/"), 1_000.0, Arrival::Constant, AFTER),
        |outcome| all_due_are_sent(outcome, 150),
    );
}

#[test]
fn threads_share_a_schedule() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let mut plan = open(epoll(), &server.url("/"), 1_000.0, Arrival::Constant, AFTER);
    plan.threads = 2;
    all_due_are_sent(&try_run(plan).expect("epoll is everywhere"), 150);
}

#[test]
fn random_arrivals_are_those_of_the_seed() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let mut arrivals = Arrivals::new(&stages(1_000.0), Arrival::Poisson, 0, 1, 1);
    let last_ns = AFTER.as_nanos() as u64 - 1;
    let due = std::iter::from_fn(|| arrivals.take(last_ns)).count() as u64;
    let plan = open(epoll(), &server.url("/"), 1_000.0, Arrival::Poisson, AFTER);
    all_due_are_sent(&try_run(plan).expect("epoll is everywhere"), due);
}

#[test]
fn an_open_loop_ends_after_its_number_of_requests() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let mut plan =
        open(epoll(), &server.url("/"), 2_000.0, Arrival::Constant, Duration::from_secs(60));
    plan.end.requests = Some(101);
    plan.threads = 2;
    let outcome = try_run(plan).expect("epoll is everywhere");
    assert_eq!((outcome.totals.due, outcome.totals.right), (101, 101));
}

/// A server that stands still for 300 ms lets 60 requests of 200 a second wait: their latencies
/// go down from 300 ms to none in equal steps, so 40 are above 100 ms. A closed loop sees one.
#[test]
fn a_stall_is_charged_to_every_request_that_would_have_come() {
    let stalls = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&stalls);
    let server = Server::start(move |mut peer| {
        while peer.request().is_some() {
            if armed.swap(false, SeqCst) {
                delay(Duration::from_millis(300));
            }
            peer.send(OK);
        }
    });
    for driver in ["epoll-et", "uring"] {
        stalls.store(true, SeqCst);
        let driver = driver.parse().expect("a driver");
        let after = Duration::from_millis(500);
        let mut plan = open(driver, &server.url("/"), 200.0, Arrival::Constant, after);
        plan.connections = 1;
        let Some(outcome) = try_run(plan) else { continue };
        let above = |limit: u64| outcome.latency.histogram().count_between(limit, u64::MAX / 2);
        let above_100 = above(100_000_000);
        let above_200 = above(200_000_000);
        // More where the machine stood still as well.
        assert!(above_100 >= 34, "{above_100}");
        assert!(above_200 >= 15, "{above_200}");
    }
    stalls.store(true, SeqCst);
    let closed = try_run(plan(epoll(), &server.url("/"), 1, 100)).expect("epoll is everywhere");
    // Of a hundred requests one waited for the server, and few for the machine.
    assert!(closed.latency.quantile_ns(0.9).expect("answers") < 100_000_000);
}

#[test]
fn requests_that_found_no_connection_are_counted() {
    let server = Server::start(|mut peer| peer.stay_silent());
    let after = Duration::from_micros(199_500);
    let mut plan = open(epoll(), &server.url("/"), 1_000.0, Arrival::Constant, after);
    plan.connections = 3;
    plan.request_timeout = Duration::from_secs(1);
    let outcome = try_run(plan).expect("epoll is everywhere");
    assert_eq!((outcome.totals.due, outcome.totals.sent), (200, 3));
    assert_eq!((outcome.errors.unsent, outcome.errors.timeout), (197, 3));
}

/// 200 million requests are never sent; to look at each would take a minute.
#[test]
fn a_rate_out_of_reach_ends_in_time_and_loses_no_request() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let after = Duration::from_millis(200);
    let began = Instant::now();
    let mut plan = open(epoll(), &server.url("/"), 1e9, Arrival::Constant, after);
    plan.warm_up = Duration::from_millis(100);
    let outcome = try_run(plan).expect("epoll is everywhere");
    let Outcome { totals, errors, .. } = &outcome;
    assert!(totals.due.abs_diff(200_000_000) <= 1, "{totals:?}");
    assert_eq!(totals.sent + errors.unsent, totals.due);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn the_warm_up_is_sent_and_not_counted() {
    let (server, asked) = Server::counting();
    on_every_driver(
        |driver| {
            asked.store(0, SeqCst);
            let mut plan = plan(driver, &server.url("/"), 2, 50);
            plan.warm_up = Duration::from_millis(60);
            plan
        },
        |outcome| {
            is_sound(outcome);
            let totals = outcome.totals;
            assert_eq!((totals.due, totals.sent, totals.right, totals.connects), (50, 50, 50, 0));
            let sent: u64 = outcome.seconds.iter().map(|second| second.sent).sum();
            assert_eq!(sent, asked.load(SeqCst));
            assert!(sent > 50 && outcome.seconds[0].is_warm_up, "{sent}");
            assert!(outcome.seconds.last().is_some_and(|second| !second.is_warm_up));
            let counted = outcome.seconds.iter().filter(|second| !second.is_warm_up);
            assert_eq!(counted.map(|second| second.latency.count()).sum::<u64>(), 50);
        },
    );
}

/// A server that answers a connection 50 times a second; with the number of those that it answered.
fn slow_server() -> (Server, Arc<AtomicU64>) {
    let answered = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answered);
    let server = Server::start(move |mut peer| {
        while peer.request().is_some() {
            delay(Duration::from_millis(20));
            // Before it is sent: a client that has the answer sees the count.
            counted.fetch_add(1, SeqCst);
            peer.send(OK);
        }
    });
    (server, answered)
}

/// Answers of the seconds of either part.
fn answered_in(outcome: &Outcome, is_warm_up: bool) -> u64 {
    let seconds = outcome.seconds.iter().filter(|second| second.is_warm_up == is_warm_up);
    seconds.map(|second| second.answered).sum()
}

/// One connection gets through a tenth of what is asked for. What it left undone in the warm-up is dropped, so that
/// what counts is served: else the whole of a run went by with answers that count nowhere.
#[test]
fn a_rate_beyond_the_server_is_the_rate_that_the_server_answered_and_not_the_backlog_of_the_warm_up()
 {
    let (server, served) = slow_server();
    let after = Duration::from_millis(600);
    on_every_driver(
        |driver| {
            served.store(0, SeqCst);
            let mut plan = open(driver, &server.url("/"), 500.0, Arrival::Constant, after);
            (plan.connections, plan.warm_up) = (1, Duration::from_millis(300));
            plan.objectives = vec!["rate=400".parse().expect("an objective")];
            plan
        },
        |outcome| {
            is_sound(outcome);
            let Outcome { totals, errors, warm_up_errors, .. } = outcome;
            assert_eq!(totals.due, 300);
            assert_eq!(totals.sent + errors.unsent, 300);
            assert_eq!(totals.sent, totals.answered + totals.unanswered);
            // 30 in its time; fewer on a machine that is busy, and never more. However many the server served, all but
            // the one that was out at the end of the warm-up were asked for in the time that counts.
            assert!((1..=31).contains(&totals.answered), "{totals:?}");
            let in_time = outcome.in_time.expect("it is counted");
            assert!(in_time.of_warm_up <= 1 && in_time.answered <= 31, "{in_time:?}");
            assert!(totals.answered >= in_time.answered - in_time.of_warm_up, "{in_time:?}");
            let came = answered_in(outcome, true) + answered_in(outcome, false);
            assert_eq!(came, served.load(SeqCst));
            // 150 were due in the warm-up, of which 15 were served.
            assert!((130..150).contains(&warm_up_errors.unsent), "{warm_up_errors:?}");
            let missed = outcome.findings.iter().find(|one| one.kind == FindingKind::RateMissed);
            let text = &missed.expect("a finding").text;
            assert!(text.contains("of the warm-up had found no connection by its end"), "{text}");
            // Latency still counts from the intended start: requests that waited are charged.
            assert!(outcome.latency.max_ns() > Some(200_000_000), "{:?}", outcome.latency.max_ns());
            assert!(!outcome.objectives[0].is_held, "{:?}", outcome.objectives);
        },
    );
}

/// A server that gives 90 answers per second at most: each of `workers` takes the next request when it is free. What
/// is late on a busy machine comes at once then; nothing comes early.
fn server_of_90_per_s(workers: u32) -> Server {
    let service = workers * Duration::from_secs(1) / 90;
    let free_at = Mutex::new(vec![Instant::now(); workers as usize]);
    Server::start(move |mut peer| {
        while peer.request().is_some() {
            let done_at = {
                let mut free_at = free_at.lock().expect("no panic");
                let next = free_at.iter_mut().min().expect("a worker");
                *next = Instant::now().max(*next) + service;
                *next
            };
            delay(done_at.saturating_duration_since(Instant::now()));
            peer.send(OK);
        }
    })
}

/// Connections that are many are all taken by requests of the warm-up for longer than what is measured: their answers
/// are what the server did in that time.
#[test]
fn the_rate_is_what_came_also_where_all_of_it_was_asked_for_in_the_warm_up() {
    let try_one = |pace: Option<f64>, threads| {
        let server = server_of_90_per_s(1);
        let after = Duration::from_secs(1);
        let mut plan = open(epoll(), &server.url("/"), 1_000.0, Arrival::Constant, after);
        if pace.is_none() {
            plan.pace = Pace::Closed;
        }
        (plan.connections, plan.threads) = (400, threads);
        (plan.warm_up, plan.grace) = (Duration::from_millis(700), Duration::from_millis(250));
        plan.objectives =
            ["rate=5", "p99=9s", "5xx=0"].map(|one| one.parse().expect("an objective")).to_vec();
        let outcome = try_run(plan).expect("epoll is everywhere");
        let in_time = outcome.in_time.expect("it is counted");
        // 90 on a machine that is idle; on one that is busy some of the warm-up's come late.
        assert!((5..=155).contains(&in_time.answered), "{in_time:?}");
        assert_eq!((in_time.of_warm_up, outcome.totals.answered), (in_time.answered, 0));
        assert_eq!(in_time.bytes_in, in_time.answered * OK.len() as u64);
        let per_s = in_time.answered as f64 / outcome.measured.as_secs_f64();
        assert!((outcome.answered_per_s() - per_s).abs() < 0.01, "{}", outcome.answered_per_s());
        let kinds: Vec<FindingKind> = outcome.findings.iter().map(|one| one.kind).collect();
        assert!(!kinds.contains(&FindingKind::NoAnswers), "{:?}", outcome.findings);
        assert!(kinds.contains(&FindingKind::FewAnswers), "{:?}", outcome.findings);
        if pace.is_some() {
            let missed = outcome.findings.iter().find(|one| one.kind == FindingKind::RateMissed);
            let advice = &missed.expect("a finding").advice;
            assert!(advice.contains("beyond the server: "), "{advice}");
            assert!(!advice.contains("give more"), "{advice}");
        }
        let held: Vec<bool> = outcome.objectives.iter().map(|one| one.is_held).collect();
        assert_eq!(held, [true, false, false], "{:?}", outcome.objectives);
        let text = pollux_load::render::table(&outcome, 200, false);
        assert!(text.contains("answers per second") && text.contains("in the warm-up"), "{text}");
        assert!(
            !text.contains(" 0/s answered") && !text.contains("Nothing was answered"),
            "{text}"
        );
    };
    std::thread::scope(|scope| {
        for threads in [1, 2] {
            scope.spawn(move || try_one(Some(1_000.0), threads));
            scope.spawn(move || try_one(None, threads));
        }
    });
}

/// The same of a run that a user ends, and of one that ends by number.
#[test]
fn the_rate_is_what_came_also_of_a_run_that_ends_early_or_by_number() {
    let begun = || {
        let server = server_of_90_per_s(1);
        let mut plan =
            open(epoll(), &server.url("/"), 1_000.0, Arrival::Constant, Duration::from_secs(600));
        (plan.connections, plan.warm_up) = (100, Duration::from_millis(300));
        (server, plan)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_server, plan) = begun();
            let running = Load::start(plan).expect("epoll is everywhere");
            wait_until("a measured second", || running.progress().elapsed > Duration::from_secs(1));
            running.stop();
            let outcome = running.join().expect("an outcome");
            let in_time = outcome.in_time.expect("it is counted");
            // On a machine that is busy those of the warm-up may come late, all of them at once.
            let limit = (outcome.measured.as_secs_f64() + 0.3) * 90.0 + 3.0;
            assert!((1.0..limit).contains(&(in_time.answered as f64)), "{in_time:?} {limit}");
            assert!(in_time.of_warm_up > 0, "{in_time:?}");
        });
        scope.spawn(|| {
            let (_server, mut plan) = begun();
            plan.end.requests = Some(30);
            let outcome = try_run(plan).expect("epoll is everywhere");
            let in_time = outcome.in_time.expect("it is counted");
            assert_eq!(outcome.totals.answered, 30, "{:?}", outcome.errors);
            assert_eq!(in_time.answered, 30 + in_time.of_warm_up);
            // What was out had its turn before.
            assert!(in_time.of_warm_up > 30, "{in_time:?}");
        });
    });
}

/// Each connection of its own is answered in a time of its own: there the number of connections is the limit.
#[test]
fn too_few_connections_are_distinguished_from_a_server_that_is_too_slow() {
    let (server, _) = slow_server();
    let after = Duration::from_millis(600);
    let mut plan = open(epoll(), &server.url("/"), 1_000.0, Arrival::Constant, after);
    (plan.connections, plan.warm_up) = (2, Duration::from_millis(100));
    let outcome = try_run(plan).expect("epoll is everywhere");
    let took = outcome.sent_to_answer.expect("it is counted");
    assert!(took.first_mean_ns >= 2e7 && took.mean_ns >= 2e7, "{took:?}");
    let missed = outcome.findings.iter().find(|one| one.kind == FindingKind::RateMissed);
    let advice = &missed.expect("a finding").advice;
    assert!(advice.contains("give more connections (-c)"), "{advice} {took:?}");
}

/// All of it is answered while the run waits for what is under way, and no latency is long yet.
#[test]
fn a_short_run_just_above_the_rate_of_the_server_shows_that_its_backlog_grows() {
    let try_above = |workers| {
        let server = server_of_90_per_s(workers);
        let after = Duration::from_secs(4);
        let mut plan = open(epoll(), &server.url("/"), 94.0, Arrival::Constant, after);
        (plan.connections, plan.warm_up) = (64, Duration::from_millis(300));
        let outcome = try_run(plan).expect("epoll is everywhere");
        let in_time = outcome.in_time.expect("it ended by time");
        assert!(in_time.answered < outcome.totals.due, "{workers}: {in_time:?}");
        assert_eq!(outcome.totals.due, 94 * 4);
        let why = backlog_grew(&outcome).expect("a backlog");
        assert!(why.contains("the backlog grew by"), "{workers}: {why}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| try_above(1));
        scope.spawn(|| try_above(4));
    });
}

#[test]
fn requests_that_were_never_sent_are_errors_of_the_second_in_which_they_were_due() {
    let (server, _) = slow_server();
    let mut plan = open(epoll(), &server.url("/"), 1.0, Arrival::Constant, Duration::from_secs(3));
    let stages = pollux_load::parse_rate("30@1s,200@1s,30@1s").expect("a schedule");
    plan.pace = Pace::Open { arrival: Arrival::Constant, stages };
    (plan.connections, plan.warm_up) = (1, Duration::ZERO);
    let outcome = try_run(plan).expect("epoll is everywhere");
    let seconds: Vec<u64> = outcome.seconds.iter().map(|second| second.errors).collect();
    assert_eq!(seconds.iter().sum::<u64>(), outcome.errors.unsent, "{seconds:?}");
    assert!(seconds[1] >= 80 && seconds[2] == 30, "{seconds:?}");
    assert_eq!(seconds[3..].iter().sum::<u64>(), 0, "{seconds:?}");
}

#[test]
fn threads_drop_their_parts_of_the_warm_up_and_random_arrivals_are_dropped_too() {
    let (server, _) = slow_server();
    let after = Duration::from_millis(600);
    for arrival in [Arrival::Constant, Arrival::Poisson] {
        let mut plan = open(epoll(), &server.url("/"), 2_000.0, arrival, after);
        (plan.connections, plan.threads, plan.warm_up) = (2, 2, Duration::from_millis(300));
        let outcome = try_run(plan).expect("epoll is everywhere");
        let Outcome { totals, errors, warm_up_errors, .. } = &outcome;
        assert_eq!(totals.sent + errors.unsent, totals.due);
        // Some 60; however many, at most one of each connection was asked for before.
        assert!(totals.answered >= 1, "{totals:?}");
        let in_time = outcome.in_time.expect("it is counted");
        assert!(in_time.of_warm_up <= 2, "{in_time:?}");
        assert!(totals.answered >= in_time.answered - in_time.of_warm_up, "{in_time:?}");
        // 600 were due, of which some 30 were served.
        assert!((450..750).contains(&warm_up_errors.unsent), "{warm_up_errors:?}");
    }
}

/// 300 million requests of the warm-up are dropped; to look at each would take a minute.
#[test]
fn a_backlog_of_any_size_is_dropped_in_no_time() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let mut plan =
        open(epoll(), &server.url("/"), 1e9, Arrival::Constant, Duration::from_millis(300));
    (plan.connections, plan.warm_up) = (1, Duration::from_millis(300));
    let began = Instant::now();
    let outcome = try_run(plan).expect("epoll is everywhere");
    assert!(outcome.totals.answered > 0, "{:?}", outcome.totals);
    assert!(outcome.warm_up_errors.unsent > 290_000_000, "{:?}", outcome.warm_up_errors);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Each answer takes longer than what is measured.
#[test]
fn answers_that_came_to_the_warm_up_alone_are_named_as_that_and_hold_no_objective() {
    let server = Server::start(|mut peer| {
        while peer.request().is_some() {
            delay(Duration::from_millis(900));
            peer.send(OK);
        }
    });
    let mut plan =
        open(epoll(), &server.url("/"), 100.0, Arrival::Constant, Duration::from_millis(100));
    (plan.connections, plan.warm_up) = (1, Duration::from_millis(300));
    plan.objectives = ["p99=9s", "5xx=0"].map(|one| one.parse().expect("an objective")).to_vec();
    let outcome = try_run(plan).expect("epoll is everywhere");
    assert_eq!((outcome.totals.due, outcome.totals.answered), (10, 0));
    let text = &outcome.findings[0].text;
    assert!(
        text.contains("nothing was answered in the measured time") && text.contains("1 answer,"),
        "{text}"
    );
    assert!(outcome.objectives.iter().all(|one| !one.is_held), "{:?}", outcome.objectives);
}

/// The seconds that are measured have the requests that count, no more and no fewer.
#[test]
fn a_request_at_the_end_of_the_warm_up_is_counted_once() {
    let (server, asked) = Server::counting();
    for rate in [None, Some(4_000.0)] {
        on_every_driver(
            |driver| {
                asked.store(0, SeqCst);
                let mut plan = plan(driver, &server.url("/"), 4, 1);
                plan.end = End { requests: None, after: Some(Duration::from_millis(150)) };
                plan.warm_up = Duration::from_millis(100);
                if let Some(rate) = rate {
                    plan.pace = Pace::Open { arrival: Arrival::Constant, stages: stages(rate) };
                }
                plan
            },
            |outcome| {
                let sent = |is_warm_up| {
                    let seconds = outcome.seconds.iter();
                    let of = seconds.filter(|second| second.is_warm_up == is_warm_up);
                    of.map(|second| second.sent).sum::<u64>()
                };
                let at = &outcome.setting.driver;
                assert_eq!(sent(false), outcome.totals.sent, "{at}");
                // The last ones may have been sent and are yet to be read.
                let all = sent(true) + sent(false);
                wait_until("the server has read them all", || asked.load(SeqCst) >= all);
                assert_eq!(asked.load(SeqCst), all, "{at}");
            },
        );
    }
}

/// The pause is the client's, whatever becomes of its connection.
#[test]
fn users_think_between_their_requests_on_whatever_connection() {
    const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    let keeps = Server::start(|mut peer| peer.answer_all(OK));
    let says_so = Server::start(|mut peer| {
        peer.request();
        peer.send(LAST);
    });
    // Without a word, while the client thinks.
    let hangs_up = Server::start(|mut peer| {
        peer.request();
        peer.send(OK);
        peer.close();
    });
    for (server, limit) in
        [(&keeps, None), (&keeps, some(1)), (&keeps, some(2)), (&says_so, None), (&hangs_up, None)]
    {
        on_every_driver(
            |driver| {
                let mut plan = plan(driver, &server.url("/"), 2, 10);
                plan.think_time = Duration::from_millis(15);
                plan.requests_per_connection = limit;
                plan
            },
            |outcome| {
                assert_eq!((outcome.totals.right, outcome.errors.total()), (10, 0));
                // One of the two has five requests or more, and thinks four times.
                let at = &outcome.setting.driver;
                assert!(
                    outcome.measured >= Duration::from_millis(60),
                    "{at}: {:?}",
                    outcome.measured
                );
            },
        );
    }
}

/// Silence is the server's only while somebody asks.
#[test]
fn a_client_that_thinks_before_its_next_connection_does_not_wait_for_the_server() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let mut plan = plan(epoll(), &server.url("/"), 1, 3);
    plan.think_time = Duration::from_millis(1_200);
    plan.requests_per_connection = some(1);
    let outcome = try_run(plan).expect("epoll is everywhere");
    assert_eq!((outcome.totals.right, outcome.standstills.len()), (3, 0), "{outcome:?}");
}

#[test]
fn no_connection_is_opened_that_has_no_request_to_carry() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    for (connections, requests, opened) in [(8, 100, 100), (8, 5, 5)] {
        on_every_driver(
            |driver| {
                let mut plan = plan(driver, &server.url("/"), connections, requests);
                plan.requests_per_connection = some(1);
                plan
            },
            |outcome| {
                let at = format!("{} {:?}", outcome.setting.driver, outcome.errors);
                assert_eq!(
                    (outcome.totals.right, outcome.totals.connects),
                    (requests, opened),
                    "{at}"
                );
            },
        );
    }
    let mut few = plan(epoll(), &server.url("/"), 8, 5);
    few.threads = 2;
    let outcome = try_run(few).expect("epoll is everywhere");
    assert_eq!((outcome.totals.right, outcome.totals.connects), (5, 5));
}

/// As gVisor does: prctl(2) with PR_SET_TIMERSLACK fails there.
#[test]
fn a_kernel_that_keeps_its_timer_slack_is_a_note_and_no_failure() {
    const PR_SET_TIMERSLACK: u64 = 29;
    const EINVAL: u32 = 22;
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let plan = plan(epoll(), &server.url("/"), 2, 10);
    // The threads of the run inherit the filter of this one.
    let run = std::thread::spawn(move || {
        let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this architecture");
        let kind = SeccompCmpArgLen::Dword;
        let is = SeccompCmpOp::Eq;
        let is_slack = SeccompCondition::new(0, kind, is, PR_SET_TIMERSLACK).expect("sound");
        let rule = SeccompRule::new(vec![is_slack]).expect("sound");
        let rules = BTreeMap::from([(libc::SYS_prctl, vec![rule])]);
        let others = SeccompAction::Allow;
        let these = SeccompAction::Errno(EINVAL);
        let filter = SeccompFilter::new(rules, others, these, arch).expect("a valid filter");
        let program: BpfProgram = filter.try_into().expect("a valid program");
        apply_filter(&program).expect("a thread may restrict itself");
        try_run(plan).expect("epoll is everywhere")
    });
    let outcome = run.join().expect("a run");
    assert_eq!(outcome.totals.right, 10);
    let why = outcome.generator.coarse_timers.expect("a note");
    assert!(why.contains("Invalid argument"), "{why}");
}

#[test]
fn a_stop_ends_a_run_with_what_was_found() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    for driver in ["poll", "epoll-et", "uring"] {
        let driver = driver.parse().expect("a driver");
        let mut plan = plan(driver, &server.url("/"), 4, 1);
        plan.end = End { requests: None, after: Some(Duration::from_secs(600)) };
        plan.threads = 2;
        let began = Instant::now();
        let Ok(running) = Load::start(plan) else { continue };
        wait_until("an answer", || running.progress().totals.answered > 0);
        assert_eq!(running.progress().phase, Phase::Measuring);
        // One driver is enough for what every second shows.
        if driver == Driver::default() {
            wait_until("a whole second", || running.progress().last.is_some());
            assert_eq!(running.progress().last.expect("one").open, 4);
        }
        running.stop();
        let outcome = running.join().expect("an outcome");
        assert!(outcome.totals.right > 0 && began.elapsed() < Duration::from_secs(60));
        assert_eq!(outcome.errors.total(), 0, "{driver}");
    }
}

#[test]
fn a_stop_does_not_wait_for_a_server_that_does_not_answer() {
    let server = Server::start(|mut peer| peer.stay_silent());
    let mut plan = plan(epoll(), &server.url("/"), 2, 10);
    plan.request_timeout = Duration::from_secs(600);
    let running = Load::start(plan).expect("epoll is everywhere");
    wait_until("connections", || server.accepted.load(SeqCst) == 2);
    wait_until("the start", || running.progress().phase == Phase::Measuring);
    delay(Duration::from_millis(50));
    running.stop();
    let outcome = running.join().expect("an outcome");
    assert_eq!((outcome.totals.sent, outcome.totals.answered), (2, 0));
    assert_eq!(outcome.errors.total(), 0);
}

#[test]
fn a_stop_ends_also_the_wait_for_the_last_answers() {
    let server = Server::start(|mut peer| peer.stay_silent());
    let mut plan =
        open(epoll(), &server.url("/"), 1_000.0, Arrival::Constant, Duration::from_millis(20));
    plan.request_timeout = Duration::from_secs(600);
    let running = Load::start(plan).expect("epoll is everywhere");
    wait_until("the end of the schedule", || running.progress().phase == Phase::Finishing);
    running.stop();
    let outcome = running.join().expect("an outcome");
    assert_eq!((outcome.totals.due, outcome.totals.answered), (20, 0));
}

#[test]
fn a_stop_ends_also_what_is_being_set_up() {
    let server = Server::start(|mut peer| peer.stay_silent());
    let mut plan = plan(epoll(), &server.url("/"), 2, 10);
    plan.request_timeout = Duration::from_secs(600);
    plan.crowd.dead = 3;
    let running = Load::start(plan).expect("epoll is everywhere");
    wait_until("the crowd", || running.progress().crowd_connected == 3);
    assert_eq!(running.progress().phase, Phase::SettingUp);
    running.stop();
    let outcome = running.join().expect("an outcome");
    assert_eq!((outcome.totals.sent, outcome.crowd[0].connected), (0, 3));
    assert_eq!((outcome.crowd[0].answered, outcome.crowd[0].open_at_end), (0, 3));
}

#[test]
fn every_request_is_sent_once_and_answered() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    on_every_driver(
        |driver| plan(driver, &server.url("/"), 8, 1_000),
        |outcome| {
            is_sound(outcome);
            let totals = outcome.totals;
            let at = &outcome.setting.driver;
            assert_eq!((totals.due, totals.sent, totals.right), (1_000, 1_000, 1_000), "{at}");
            assert_eq!((totals.connects, outcome.errors.total()), (8, 0), "{at}");
            assert_eq!(totals.bytes_in, 1_000 * OK.len() as u64, "{at}");
            assert_eq!((totals.body_bytes_in, totals.first_body_bytes), (5_000, Some(5)), "{at}");
            assert_eq!(totals.by_class, [0, 0, 1_000, 0, 0, 0], "{at}");
            assert_eq!(outcome.connect.count(), 8, "{at}");
        },
    );
}

#[test]
fn what_is_counted_is_seen_before_the_second_is_over_and_in_the_end_all_of_it() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    let is_seen_early = || {
        let mut plan = plan(Driver::default(), &server.url("/"), 2, 1);
        plan.end = End { requests: None, after: Some(Duration::from_secs(3600)) };
        let running = Load::start(plan).expect("started");
        let seen = wait_for("an answer", || {
            Some(running.progress()).filter(|seen| seen.totals.answered > 0)
        });
        running.stop();
        wait_until("the end", || running.is_finished());
        let last = running.progress();
        let outcome = running.join().expect("a run");
        assert_eq!(last.totals.answered, outcome.totals.answered);
        assert_eq!(last.errors.total(), outcome.errors.total());
        seen.last.is_none()
    };
    // A machine that is busy may take a second for the first look.
    assert!((0..5).any(|_| is_seen_early()), "counts came by whole seconds");
}

#[test]
fn threads_share_the_number_of_requests() {
    let (server, asked) = Server::counting();
    on_every_driver(
        |driver| {
            asked.store(0, SeqCst);
            let mut plan = plan(driver, &server.url("/"), 5, 777);
            plan.threads = 2;
            plan
        },
        |outcome| {
            is_sound(outcome);
            assert_eq!((outcome.totals.right, asked.load(SeqCst)), (777, 777));
            assert_eq!(outcome.generator.busy_share.len(), 2);
        },
    );
}

#[test]
fn a_connection_is_closed_after_its_requests_and_opened_anew() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    for (limit, connects) in [(1, 100), (4, 25)] {
        on_every_driver(
            |driver| {
                let mut plan = plan(driver, &server.url("/"), 1, 100);
                plan.requests_per_connection = some(limit);
                plan
            },
            |outcome| {
                is_sound(outcome);
                let at = format!("{limit} {} {:?}", outcome.setting.driver, outcome.errors);
                assert_eq!(outcome.totals.right, 100, "{at}");
                assert_eq!(outcome.totals.connects, connects, "{at}");
                assert_eq!(outcome.lifetime.count(), connects, "{at}");
            },
        );
    }
}
