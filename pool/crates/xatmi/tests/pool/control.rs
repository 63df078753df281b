//! What arrives at the control socket at a bad moment: orders against each other, and connections that are not of
//! well-behaved clients, workers or commands.

use std::os::fd::AsFd;

use pollux_sys::mqueue::{MessageQueue, QueueSize};
use pollux_sys::shared::SharedWords;
use pollux_testing::DEADLINE;
use pollux_xatmi::client::{CallFlags, ClientHello};
use pollux_xatmi::control::{Answer, Control, ControlError, Request};
use pollux_xatmi::link::{PeerLink, Received, ToManager, ToWorker};
use pollux_xatmi::slots::Slots;
use pollux_xatmi::supervisor::Selection;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::support::{ONE, TestPool, copies, exists, kill_and_wait, text};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_pool_that_is_starting_stops_without_a_signal", a_pool_that_is_starting_stops),
    ("a_pool_that_is_learning_stops_without_a_signal", a_pool_that_is_learning_stops),
    ("a_restart_by_id_starts_a_standby_copy", a_restart_by_id_starts_a_standby_copy),
    ("a_restart_of_what_runs_leaves_the_rest", a_restart_of_what_runs_leaves_the_rest),
    ("a_stop_that_another_order_undoes_is_refused", a_stop_that_another_order_undoes_is_refused),
    ("two_ends_at_once_are_both_answered", two_ends_at_once_are_both_answered),
    ("a_silent_client_is_not_kept", a_silent_client_is_not_kept),
    (
        "a_client_that_reads_late_gets_all_of_its_tables",
        a_client_that_reads_late_gets_all_of_its_tables,
    ),
    ("a_worker_of_another_build_is_asked_to_end", a_worker_of_another_build_is_asked_to_end),
];

/// Those that speak of queues themselves.
pub(crate) const QUEUE_TESTS: &[crate::Test] =
    &[("a_connection_has_one_context", a_connection_has_one_context)];

/// The stop reaches workers at every point of their start.
fn a_pool_that_is_starting_stops() {
    let mut pool = TestPool::new("", &copies(100));
    pool.begin();
    pool.until("some are up", |pool| pool.workers().iter().any(|row| row.state == "up"));
    pool.end();
    assert!(!pool.log().contains("is sent signal"), "{}", pool.log());
}

/// Workers of an earlier manager get orders when they report, within a second.
fn a_pool_that_is_learning_stops() {
    let mut pool = TestPool::start("<restart_to_check>50</restart_to_check>", &copies(3));
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
    let said = pool
        .ask(&Request::Restart { what: Selection::Id(2), is_for_running: false })
        .expect("it starts");
    assert_eq!((said.as_str(), pool.worker(2).state.as_str()), ("1 of 1 workers up again", "up"));
    pool.end();
}

fn a_restart_of_what_runs_leaves_the_rest() {
    let servers = "<server name='testsv'><srvid>1</srvid><min>2</min><max>4</max></server>";
    let mut pool = TestPool::start("", servers);
    pool.ask(&Request::Stop { what: Selection::Id(1) }).expect("it stops");
    pool.ask(&Request::Start { what: Selection::Id(4) }).expect("it starts");
    let before = [2, 4].map(|id| pool.pid(id));
    let restart = |what| Request::Restart { what, is_for_running: true };
    for id in [1, 3] {
        let said = pool.ask(&restart(Selection::Id(id))).expect("nothing to do");
        assert!(said.contains("stays so"), "{said}");
        assert_eq!((pool.worker(id).state.as_str(), pool.worker(id).pid), ("down", None));
    }
    assert_eq!([2, 4].map(|id| pool.pid(id)), before);
    let said = pool.ask(&restart(Selection::Id(4))).expect("it comes back");
    assert_eq!(said, "1 of 1 workers up again");
    assert!(pool.pid(2) == before[0] && pool.pid(4) != before[1]);
    pool.ask(&restart(Selection::Id(9))).expect_err("there is none");
    let said = pool.ask(&restart(Selection::All)).expect("they come back");
    assert_eq!(said, "2 of 2 workers up again");
    assert!(pool.pid(2) != before[0] && pool.worker(1).pid.is_none());
    pool.end();
}

fn a_stop_that_another_order_undoes_is_refused() {
    let mut pool = TestPool::start("", ONE);
    let mut client = pool.client();
    let hello = text("x");
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
    let mut pool = TestPool::start("", &copies(5));
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
    let is_gone = |error: &ControlError| match error {
        ControlError::Ended => true,
        ControlError::System(cause) => cause.kind() == std::io::ErrorKind::BrokenPipe,
        _ => false,
    };
    assert!(said.iter().filter_map(|said| said.as_ref().err()).all(is_gone), "{said:?}");
    pool.ended();
}

pub(crate) fn guest(pool: &TestPool) -> PeerLink {
    let family = AddressFamily::UNIX;
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    let name = pool.prefix.control_socket();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short");
    connect(&socket, &address).expect("it listens");
    PeerLink::new(socket)
}

fn a_silent_client_is_not_kept() {
    let mut pool = TestPool::start("", ONE);
    let mut silent = guest(&pool);
    let mut client = pool.client();
    let received = silent.receive_within::<Answer>(DEADLINE).expect("no answer, but its end");
    assert!(matches!(received, Received::Ended), "{received:?}");
    assert_eq!(pool.count("connections_silent"), 1);
    let hello = text("x");
    let flags = CallFlags::NONE;
    client.call("ECHO", &hello, flags).expect("a context may be as silent as it likes");
    pool.end();
}

/// More than the socket holds.
fn a_client_that_reads_late_gets_all_of_its_tables() {
    const TABLES: usize = 200;
    let mut pool = TestPool::start("", ONE);
    let mut late = guest(&pool);
    for _ in 0..TABLES {
        late.send_within(&Request::Services, DEADLINE).expect("it reads");
    }
    // Each of these is answered in a turn of its own, as are those.
    for _ in 0..TABLES {
        assert_eq!(pool.worker(1).state, "up");
    }
    let mut rows = 0;
    let mut done = 0;
    while done < TABLES {
        match late.receive_within::<Answer>(DEADLINE).expect("an answer") {
            Received::Message(Answer::Services(some), _) => rows += some.len(),
            Received::Message(Answer::Done { .. }, _) => done += 1,
            other => panic!("{other:?} after {done} tables"),
        }
    }
    assert_eq!(rows, 4 * TABLES);
    pool.end();
}

fn a_connection_has_one_context() {
    let mut pool = TestPool::start("", ONE);
    let mut link = guest(&pool);
    let mut greet = |context| {
        let pid = std::process::id();
        let queue = pool.prefix.reply_queue(pid, context).to_string_lossy().into_owned();
        let hello = ClientHello { pid, context, nonce: 1, queue, memory: None };
        link.send(&Request::Client(hello)).expect("room");
        match link.receive_within::<Answer>(DEADLINE).expect("an answer") {
            Received::Message(answer, _) => answer,
            other => panic!("{other:?}"),
        }
    };
    // Beyond the descriptors that other tests use as numbers of contexts.
    let first = 1_000_001;
    assert!(matches!(greet(first), Answer::Welcome(_)));
    let name = pool.prefix.reply_queue(std::process::id(), first);
    let size = QueueSize { messages_max: 1, message_len_bytes: 256 };
    let _queue = MessageQueue::create(&name, size).expect("a queue");
    let second = greet(first + 1);
    assert!(matches!(&second, Answer::Refused { why } if why.contains("1000001")), "{second:?}");
    drop(link);
    pool.until("the queue of its context is removed", |_| !exists(&name));
    pool.end();
}

fn a_worker_of_another_build_is_asked_to_end() {
    let mut pool = TestPool::start("", ONE);
    let report = |pid, memory: std::os::fd::BorrowedFd<'_>| {
        let name = "testsv".to_owned();
        let services = Vec::new();
        let adopt = ToManager::Adopt { srvid: 1, pid, name, slot: 0, services, memory: None };
        let mut link = guest(&pool);
        link.send_with(&adopt, &[memory]).expect("room");
        let received = link.receive_within::<ToWorker>(DEADLINE).expect("an answer");
        assert!(matches!(received, Received::Message(ToWorker::Stop, _)), "{received:?}");
    };
    let own = std::process::id();
    let other = SharedWords::create(4096).expect("memory");
    report(own, other.as_fd());
    assert!(pool.log().contains("of different builds"), "{}", pool.log());
    let slots = Slots::create(1).expect("memory");
    report(own + 1, slots.as_fd());
    let refusal = format!("process {own} says that it is process {}", own + 1);
    assert!(pool.log().contains(&refusal), "{}", pool.log());
    report(own, slots.as_fd());
    let log = pool.log();
    assert!(log.contains("not wanted") || log.contains("travel in another way"), "{log}");
    assert_eq!(pool.worker(1).state, "up");
    pool.end();
}
