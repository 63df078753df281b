//! Payloads that do not fit into a message, both ways.
//!
//! One test, as it counts the memfds of the whole process.

use std::sync::mpsc;

use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{CallFlags, Outgoing, Which};
use pollux_xatmi::error::Code;
use pollux_xatmi::large::{Outbox, fetch, fetch_all};
use pollux_xatmi::wire::{Body, LargeRef, Payload, Reply};

use crate::support::{PATIENCE, Pool, sleeps, until};

const MIB: usize = 1 << 20;
const NONE: CallFlags = CallFlags::NONE;

fn memfds() -> usize {
    let is_memfd = |fd: &std::fs::DirEntry| {
        let link = std::fs::read_link(fd.path());
        link.is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:pollux-payload"))
    };
    let open = std::fs::read_dir("/proc/self/fd").expect("a listing");
    open.filter(|fd| fd.as_ref().is_ok_and(is_memfd)).count()
}

#[test]
fn a_mebibyte_goes_both_ways_and_few_memfds_are_kept() {
    let mut pool = Pool::start();
    let mut outbox = Outbox::default();
    // Gives the data back with another first byte; to a short request a reply from nowhere.
    pool.serve("LARGE", move |request, replier| {
        let Body::Large(place) = request.payload.body else {
            let nowhere = LargeRef { pid: 1, fd: 0, inode: 1, len_bytes: 9 };
            let body = Body::Large(nowhere);
            return replier.answer(request, Payload { body, ..request.payload });
        };
        let mut bytes = vec![0; place.len_bytes as usize];
        fetch(&place, &mut bytes).expect("the caller holds it");
        bytes[0] = b'!';
        let reply = outbox.put(&bytes, 0, Some(request.client.pid), 1).expect("held");
        let payload = Payload { body: Body::Large(reply), ..request.payload };
        replier.answer(request, payload);
    });
    let mut client = pool.client();
    let sent = b"0123456".repeat(MIB / 7 + 1)[..MIB].to_vec();
    let buffer = Buffer::carray(&sent).expect("it fits");
    let is_right = |bytes: &[u8]| bytes[0] == b'!' && bytes[1..] == sent[1..];

    for _ in 0..100 {
        let answer = client.call("LARGE", &buffer, NONE).expect("served");
        let buffer = answer.buffer.expect("data");
        assert!(answer.len_bytes == MIB && is_right(&buffer.as_bytes()[..MIB]));
        assert!(memfds() <= 2, "one reply of the last call and none of its requests");
    }

    // Kept, then asked for.
    let first = client.call_async("LARGE", &buffer, NONE).expect("sent");
    let second = client.call_async("LARGE", &buffer, NONE).expect("sent");
    for cd in [second, first] {
        let answer = client.answer(Which::One(cd), NONE).expect("served");
        assert!(is_right(&answer.buffer.expect("data").as_bytes()[..MIB]));
    }

    // Cancelled: the late reply is dropped and its memfd let go.
    let cancelled = client.call_async("LARGE", &buffer, NONE).expect("sent");
    client.cancel(cancelled).expect("it is out");
    for _ in 0..2 {
        client.call("LARGE", &buffer, NONE).expect("served");
    }
    assert_eq!(client.counters().late, 1);
    assert!(memfds() <= 5, "{} are open: two that each side keeps, and a reply", memfds());

    // Nobody waits for these; each is let go when it was read.
    for _ in 0..200 {
        client.send_only("LARGE", Outgoing::of(&buffer, MIB).expect("sound"), NONE).expect("sent");
    }
    let small =
        Outgoing { buffer_type: Some(BufferType::Carray), buffer_size_bytes: 1, bytes: b"x" };
    let unreadable = client.call_into("LARGE", small, NONE, |_| Ok(Vec::leak(vec![0; 9])));
    assert_eq!(unreadable.expect_err("nowhere").code(), Code::ServiceError);
    drop(client);
    drop(pool);
    until("no memfd is left", || memfds() == 0);

    a_client_that_ends_holds_its_last_request_until_that_is_read();
    a_reply_for_an_earlier_owner_of_the_queue_is_let_go();
    assert_eq!(memfds(), 0);
}

fn a_reply_for_an_earlier_owner_of_the_queue_is_let_go() {
    let mut pool = Pool::start();
    let mut outbox = Outbox::default();
    let large = outbox.put(b"for somebody else", 0, None, 1).expect("held");
    pool.serve("ODD", move |request, replier| {
        let (nonce, call_id) = (!request.client.nonce, request.call_id);
        let payload = Payload { body: Body::Large(large), ..request.payload };
        let foreign = Reply { nonce, call_id, error: None, rval: 0, urcode: 0, payload };
        replier.send(request, &foreign);
        replier.answer(request, request.payload);
    });
    let mut client = pool.client();
    client.call("ODD", &Buffer::carray(b"x").expect("short"), NONE).expect("served");
    assert_eq!(client.counters().foreign, 1);
    outbox.sweep(1);
    assert!(outbox.is_empty(), "nobody else would read it");
}

fn a_client_that_ends_holds_its_last_request_until_that_is_read() {
    let mut pool = Pool::start();
    let (go, may_go) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    pool.serve("LATER", move |request, _| {
        let Body::Large(place) = request.payload.body else { return };
        may_go.recv_timeout(PATIENCE).expect("let go");
        let _ = tell.send(fetch_all(&place).map(|bytes| bytes.len()));
    });
    let mut client = pool.client();
    let buffer = Buffer::carray(&[7; 10_000]).expect("it fits");
    client.send_only("LATER", Outgoing::of(&buffer, 10_000).expect("sound"), NONE).expect("sent");
    let (say, said) = mpsc::channel();
    let ending = std::thread::spawn(move || {
        say.send(rustix::thread::gettid()).expect("somebody listens");
        drop(client);
    });
    let tid = said.recv_timeout(PATIENCE).expect("it began");
    until("the client waits", || ending.is_finished() || sleeps(tid));
    go.send(()).expect("it waits");
    let taken = told.recv_timeout(PATIENCE).expect("it was told");
    assert_eq!(taken.expect("the client holds it"), 10_000);
    ending.join().expect("no panic");
}
