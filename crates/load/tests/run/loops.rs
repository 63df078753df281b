//! When requests begin: schedules, closed loops, think time, warm-up, stops. Numbers are exact; times have generous
//! bounds, and those that can only be longer have none above.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_load::{Arrival, Arrivals, End, Load, Outcome, Pace, Phase, Plan, Stage};
use pollux_testing::{wait_for, wait_until};

use crate::{OK, Server, delay, is_sound, on_every_driver, plan, some, try_run};

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

/// So many are due within `AFTER`: no start lies near its end.
const AFTER: Duration = Duration::from_micros(149_500);

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
        let (above_100, above_200) = (above(100_000_000), above(200_000_000));
        assert!((34..=60).contains(&above_100), "{above_100}");
        assert!((15..=40).contains(&above_200), "{above_200}");
    }
    stalls.store(true, SeqCst);
    let closed = try_run(plan(epoll(), &server.url("/"), 1, 100)).expect("epoll is everywhere");
    assert!(closed.latency.quantile_ns(0.98).expect("answers") < 100_000_000);
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

/// One connection that is answered 50 times a second gets through a tenth of the warm-up.
#[test]
fn an_overload_in_the_warm_up_is_named_as_what_it_is() {
    let server = Server::start(|mut peer| {
        while peer.request().is_some() {
            delay(Duration::from_millis(20));
            peer.send(OK);
        }
    });
    let after = Duration::from_millis(100);
    let mut plan = open(epoll(), &server.url("/"), 500.0, Arrival::Constant, after);
    (plan.connections, plan.warm_up) = (1, Duration::from_millis(300));
    let outcome = try_run(plan).expect("epoll is everywhere");
    assert_eq!((outcome.totals.due, outcome.totals.answered), (50, 0));
    assert_eq!(outcome.errors.unsent, 50);
    let text = &outcome.findings[0].text;
    assert!(text.contains("no request of the measured part"), "{text}");
}

#[test]
fn users_think_between_their_requests() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    on_every_driver(
        |driver| {
            let mut plan = plan(driver, &server.url("/"), 2, 10);
            plan.think_time = Duration::from_millis(15);
            plan
        },
        |outcome| {
            assert_eq!(outcome.totals.right, 10);
            assert!(outcome.measured >= Duration::from_millis(60), "{:?}", outcome.measured);
        },
    );
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
                assert!((connects..=connects + 1).contains(&outcome.totals.connects), "{at}");
                assert_eq!(outcome.lifetime.count(), connects, "{at}");
            },
        );
    }
}
