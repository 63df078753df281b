//! What a signal does to a caller that waits. A program of its own, as handlers belong to all
//! threads.

#[expect(dead_code, reason = "the other program uses the rest")]
#[path = "client/support.rs"]
mod support;

use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{CallFlags, Client};
use pollux_xatmi::error::Code;
use pollux_xatmi::wire::Payload;
use support::{PATIENCE, Pool, sleeps, until};

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handle(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Counts SIGUSR1, without SA_RESTART: system calls that wait end with EINTR.
fn install() {
    let handler: extern "C" fn(libc::c_int) = handle;
    // SAFETY: the record consists of integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: the handler touches one atomic word; the record outlives the call.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0, "installed");
}

fn signal<T>(thread: &std::thread::JoinHandle<T>) {
    // SAFETY: the thread was not joined, so its handle is valid.
    let result = unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
    assert_eq!(result, 0, "the thread is there");
}

/// Signals the thread until `is_enough`, each time when the one before was handled.
fn signal_until<T>(thread: &std::thread::JoinHandle<T>, mut is_enough: impl FnMut() -> bool) {
    until("the signals were handled", || {
        let before = HANDLED.load(Ordering::SeqCst);
        if thread.is_finished() {
            return is_enough();
        }
        signal(thread);
        until("one signal was handled", || {
            HANDLED.load(Ordering::SeqCst) > before || thread.is_finished()
        });
        is_enough()
    });
}

fn text() -> Buffer {
    Buffer::string("x").expect("no zero byte")
}

#[test]
fn a_signal_ends_a_wait_without_tpsigrstrt() {
    install();
    let mut pool = Pool::start();
    let (request_came, came) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel::<()>();
    pool.serve("SLOW", move |request, replier| {
        let _ = request_came.send(());
        if may_go.recv_timeout(PATIENCE).is_ok() {
            replier.answer(request, Payload::NONE);
        }
    });
    let queue = pool.queue("FULL", 1);
    queue.send(b"x", 0).expect("room");

    // In the wait for a reply.
    let mut client = pool.client();
    let calling = std::thread::spawn(move || {
        let error = client.call("SLOW", &text(), CallFlags::NONE).expect_err("a signal comes");
        (client, error.code())
    });
    came.recv_timeout(PATIENCE).expect("a request");
    signal_until(&calling, || calling.is_finished());
    let (client, code) = calling.join().expect("no panic");
    assert_eq!(code, Code::GotSignal);
    assert_eq!(client.calls_out(), 0, "a call is over afterwards");
    let_go.send(()).expect("it waits");

    // In the wait for room.
    let (client, code) = interrupted_at_full_queue(client);
    assert_eq!(code, Code::GotSignal);

    // With TPSIGRSTRT the wait continues.
    let (sender, began) = mpsc::channel();
    let mut client: Client = client;
    let calling = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid()).expect("the test listens");
        let answer = client.call("SLOW", &text(), CallFlags::SIGNAL_RESTART);
        answer.map(|_| client.counters().late)
    });
    let tid = began.recv_timeout(PATIENCE).expect("it began");
    came.recv_timeout(PATIENCE).expect("a request");
    until("the caller waits", || sleeps(tid));
    let enough = HANDLED.load(Ordering::SeqCst) + 20;
    signal_until(&calling, || HANDLED.load(Ordering::SeqCst) >= enough);
    assert!(!calling.is_finished(), "it still waits");
    let_go.send(()).expect("it waits");
    let late = calling.join().expect("no panic").expect("served after all");
    assert_eq!(late, 1, "the reply to the first call came meanwhile");
}

fn interrupted_at_full_queue(mut client: Client) -> (Client, Code) {
    let calling = std::thread::spawn(move || {
        let error = client.call("FULL", &text(), CallFlags::NONE).expect_err("a signal comes");
        (client, error.code())
    });
    signal_until(&calling, || calling.is_finished());
    calling.join().expect("no panic")
}
