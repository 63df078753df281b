//! Orders that come at a bad moment, or against each other.

use pollux_testing::DEADLINE;
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::CallFlags;
use pollux_xatmi::control::{AskError, Control, Request};
use pollux_xatmi::supervisor::Selection;

use crate::support::{TestPool, kill_and_wait};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_pool_that_is_starting_stops_without_a_signal", a_pool_that_is_starting_stops),
    ("a_pool_that_is_learning_stops_without_a_signal", a_pool_that_is_learning_stops),
    ("a_restart_by_id_starts_a_standby_copy", a_restart_by_id_starts_a_standby_copy),
    ("a_stop_that_another_order_undoes_is_refused", a_stop_that_another_order_undoes_is_refused),
    ("two_ends_at_once_are_both_answered", two_ends_at_once_are_both_answered),
];

const ONE: &str = "<server name='testsv'><srvid>1</srvid></server>";

/// The stop reaches workers at every point of their start.
fn a_pool_that_is_starting_stops() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>100</min><max>100</max></server>";
    let mut pool = TestPool::new("", servers);
    pool.begin();
    pool.until("some are up", |pool| pool.workers().iter().any(|row| row.state == "up"));
    pool.end();
    assert!(!pool.log().contains("is sent signal"), "{}", pool.log());
}

/// Workers of an earlier manager get orders when they report, within a second.
fn a_pool_that_is_learning_stops() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>3</min><max>3</max></server>";
    let mut pool = TestPool::start("<restart_to_check>50</restart_to_check>", servers);
    pool.kill_manager();
    pool.begin();
    pool.end();
    assert!(!pool.log().contains("is sent signal"), "{}", pool.log());
    assert!(pool.log().contains("worker ends"), "{}", pool.log());
    assert!(!pool.leaves_queue("ECHO"), "the queue of its service is left");
}

fn a_restart_by_id_starts_a_standby_copy() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>1</min><max>2</max></server>";
    let mut pool = TestPool::start("", servers);
    let said = pool.ask(&Request::Restart { what: Selection::Id(2) }).expect("it starts");
    assert_eq!((said.as_str(), pool.worker(2).state.as_str()), ("1 of 1 workers up again", "up"));
    pool.end();
}

fn a_stop_that_another_order_undoes_is_refused() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let hello = Buffer::string("x").expect("it fits");
    let call = std::thread::spawn(move || client.call("HANG", &hello, CallFlags::NONE).is_err());
    pool.until("the worker is inside the call", |pool| pool.worker(1).is_busy);
    let order = |request| {
        let mut control = Control::connect(&pool.prefix).expect("it runs");
        std::thread::spawn(move || control.ask(&request, DEADLINE, |_| {}))
    };
    let stop = order(Request::Stop { what: Selection::Id(1) });
    pool.until("it is asked to stop", |pool| pool.worker(1).state == "stopping");
    let start = order(Request::Start { what: Selection::Id(1) });
    let said = stop.join().expect("no panic").expect_err("it will not stay down").to_string();
    assert!(said.ends_with("not stopped; another order starts them again"), "{said}");
    kill_and_wait(pool.pid(1));
    assert_eq!(start.join().expect("no panic").expect("it starts"), "1 of 1 workers up");
    assert!(call.join().expect("no panic"), "its worker was killed");
    pool.end();
}

fn two_ends_at_once_are_both_answered() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>5</min><max>5</max></server>";
    let mut pool = TestPool::start("", servers);
    let ends = [(), ()].map(|()| {
        let mut control = Control::connect(&pool.prefix).expect("it runs");
        std::thread::spawn(move || {
            let said = control.ask(&Request::End { now: false }, DEADLINE, |_| {});
            control.wait_for_end(DEADLINE).expect("it ends");
            said
        })
    });
    let said = ends.map(|end| end.join().expect("no panic"));
    // The pool may have ended before the other one asked; then its connection has.
    let answers: Vec<_> = said.iter().filter_map(|said| said.as_ref().ok()).collect();
    assert!(!answers.is_empty(), "{said:?}");
    assert!(answers.iter().all(|answer| answer.ends_with("workers stopped")), "{said:?}");
    let is_gone = |error: &AskError| match error {
        AskError::Ended => true,
        AskError::System(cause) => cause.kind() == std::io::ErrorKind::BrokenPipe,
        _ => false,
    };
    assert!(said.iter().filter_map(|said| said.as_ref().err()).all(is_gone), "{said:?}");
    pool.ended();
}
