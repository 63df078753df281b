//! Connections beside the active ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use pollux_load::{Crowd, CrowdOutcome, End};

use crate::server::{OK, Server, delay, wait_until};
use crate::{on_every_driver, plan};

fn kinds(crowd: &[CrowdOutcome]) -> Vec<(&'static str, u32, u32)> {
    crowd.iter().map(|kind| (kind.kind, kind.asked, kind.connected)).collect()
}

#[test]
fn they_stand_there_while_others_work() {
    let server = Server::start(|mut peer| peer.answer_all(OK));
    on_every_driver(
        |driver| {
            let mut plan = plan(driver, &server.url("/"), 2, 1);
            plan.end = End { requests: None, after: Some(Duration::from_millis(250)) };
            let drip = Duration::from_millis(1);
            plan.crowd = Crowd { dead: 20, silent: 10, slow: 5, drip };
            plan.threads = 2;
            plan
        },
        |outcome| {
            let crowd = &outcome.crowd;
            assert_eq!(kinds(crowd), [("dead", 20, 20), ("silent", 10, 10), ("slow", 5, 5)]);
            let [dead, silent, slow] = &crowd[..] else { panic!("three kinds") };
            assert_eq!((dead.answered, silent.answered), (20, 0));
            assert!(slow.answered >= 1, "{slow:?}");
            for kind in crowd {
                assert_eq!((kind.open_at_end, kind.refused), (kind.asked, 0), "{kind:?}");
            }
            assert!(outcome.totals.right > 0);
            assert_eq!((outcome.totals.connects, outcome.errors.total()), (2, 0));
        },
    );
}

#[test]
fn what_the_server_does_to_them_is_told() {
    // The silent ones come first: four are closed, four reset. The active one is answered then.
    let ended = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&ended);
    let server = Server::start(move |mut peer| {
        match peer.number % 9 {
            0..4 => {
                delay(Duration::from_millis(30));
                drop(peer);
            }
            4..8 => peer.reset(),
            _ => {
                wait_until("eight ends", || counted.load(SeqCst) == 8);
                // What was closed on a busy machine arrives a little later.
                delay(Duration::from_millis(50));
                return peer.answer_all(OK);
            }
        }
        counted.fetch_add(1, SeqCst);
    });
    on_every_driver(
        |driver| {
            ended.store(0, SeqCst);
            let mut plan = plan(driver, &server.url("/"), 1, 1);
            plan.crowd.silent = 8;
            plan
        },
        |outcome| {
            let [silent] = &outcome.crowd[..] else { panic!("one kind") };
            // A reset may come so early that the connect fails with it.
            assert_eq!(silent.reset_by_server + silent.refused, 4, "{silent:?}");
            assert_eq!((silent.closed_by_server, silent.open_at_end), (4, 0), "{silent:?}");
            let (_, longest) = silent.closed_after_s.expect("some were closed");
            // The generator sees a connection later than the server does.
            assert!((0.005..10.0).contains(&longest), "{silent:?}");
        },
    );
}

#[test]
fn those_that_are_refused_are_counted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    drop(listener);
    on_every_driver(
        |driver| {
            let mut plan = plan(driver, &url, 1, 1);
            plan.crowd.dead = 7;
            plan
        },
        |outcome| {
            let [dead] = &outcome.crowd[..] else { panic!("one kind") };
            assert_eq!((dead.connected, dead.refused), (0, 7));
        },
    );
}
