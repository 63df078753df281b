//! Connections to the control socket that are not of well-behaved clients, workers or commands.

use std::os::fd::AsFd;

use pollux_sys::mqueue::{MessageQueue, QueueSize};
use pollux_sys::shared::SharedWords;
use pollux_testing::DEADLINE;
use pollux_xatmi::client::ClientHello;
use pollux_xatmi::control::{Answer, Request};
use pollux_xatmi::link::{Link, Received, ToManager, ToWorker};
use pollux_xatmi::slots::Slots;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::support::{TestPool, exists};

pub(crate) const TESTS: &[crate::Test] = &[
    ("who_says_nothing_is_not_kept", who_says_nothing_is_not_kept),
    ("who_reads_late_gets_all_of_its_tables", who_reads_late_gets_all_of_its_tables),
    ("a_worker_of_another_build_is_asked_to_end", a_worker_of_another_build_is_asked_to_end),
];

/// Those that speak of queues themselves.
pub(crate) const QUEUE_TESTS: &[crate::Test] =
    &[("a_connection_has_one_context", a_connection_has_one_context)];

const ONE: &str = "<server name='testsv'><srvid>1</srvid></server>";

pub(crate) fn guest(pool: &TestPool) -> Link {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    let name = pool.prefix.control_socket();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short");
    connect(&socket, &address).expect("it listens");
    Link::new(socket)
}

fn who_says_nothing_is_not_kept() {
    let mut pool = TestPool::start("", ONE);
    let (mut silent, mut client) = (guest(&pool), pool.client());
    let received = silent.receive_within::<Answer>(DEADLINE).expect("no answer, but its end");
    assert!(matches!(received, Received::Ended), "{received:?}");
    assert_eq!(pool.count("connections_silent"), 1);
    let hello = pollux_xatmi::buffer::Buffer::string("x").expect("it fits");
    let flags = pollux_xatmi::client::CallFlags::NONE;
    client.call("ECHO", &hello, flags).expect("a context may be as silent as it likes");
    pool.end();
}

/// More than the socket holds.
fn who_reads_late_gets_all_of_its_tables() {
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
    let (mut rows, mut done) = (0, 0);
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
        let (name, services) = ("testsv".to_owned(), Vec::new());
        let adopt = ToManager::Adopt { srvid: 1, pid, name, slot: 0, services, memory: None };
        let mut link = guest(&pool);
        link.send_with(&adopt, &[memory]).expect("room");
        let received = link.receive_within::<ToWorker>(DEADLINE).expect("an answer");
        assert!(matches!(received, Received::Message(ToWorker::Stop, _)), "{received:?}");
    };
    let (own, other) = (std::process::id(), SharedWords::create(4096).expect("memory"));
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
