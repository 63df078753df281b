//! Closed loops: numbers that have to be exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{End, Load};

use crate::server::{OK, Server};
use crate::{is_sound, on_every_driver, plan, some};

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
        let seen = loop {
            let seen = running.progress();
            if seen.totals.answered > 0 {
                break seen;
            }
            std::thread::yield_now();
        };
        running.stop();
        while !running.is_finished() {
            std::thread::yield_now();
        }
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
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    let server = Server::start(move |mut peer| {
        while peer.request().is_some() && peer.send(OK) {
            counted.fetch_add(1, SeqCst);
        }
    });
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
