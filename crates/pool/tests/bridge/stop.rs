//! Bridges that end, by an order and by a signal, while calls are under way.

use std::time::{Duration, Instant};

use pollux_xatmi::client::CallFlags;
use pollux_xatmi::error::Code;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Signal;

use crate::broker::Broker;
use crate::pools::{Plan, Pool, content, text, until};

/// The time limit of a call whose answer was lost.
const LIMIT: Duration = Duration::from_secs(2);
/// Far less than a call may take by itself.
const AT_ONCE: Duration = Duration::from_secs(20);

pub(crate) fn a_bridge_that_ends_owes_nothing() {
    let broker = Broker::start(&[]);
    let url = broker.url();
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let services = format!("HOLD={} ECHO", fifo.display());
    let here = Pool::start(&Plan {
        name: "here",
        nats: &url,
        exports: "HOLD",
        services: &services,
        ..Plan::EMPTY
    });
    let there = Pool::start(&Plan { name: "there", nats: &url, services: "OTHER", ..Plan::EMPTY });
    let mut client = there.client();
    // A service has begun to read; it continues when this is dropped.
    let gate = || {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        open(&fifo, flags, Mode::empty()).ok()
    };
    let held = || until("the service reads", gate);
    let mut raw = broker.raw();
    raw.subscribe("answers", "");
    let is_offered = |raw: &mut crate::broker::Raw| {
        raw.publish("pollux.test.call.HOLD", "answers", &["Pollux-Request: 0"], b"");
        !raw.next().bytes.starts_with(b"NATS/1.0 503")
    };
    until("the service is offered", || is_offered(&mut raw).then_some(()));

    // Told to stop in a call: the call is answered first, and no other is taken.
    let hold = |client: &mut pollux_xatmi::client::Client| {
        until("the service is known", || match client.call("HOLD", &text("x"), CallFlags::NONE) {
            Err(error) if error.code() == Code::NoEntry => None,
            ended => Some(ended),
        })
    };
    std::thread::scope(|scope| {
        let call = scope.spawn(|| hold(&mut client));
        let held_up = held();
        let stopping = here.started(&["stop", "--name", "tpbridge"]);
        until("no bridge takes requests", || (!is_offered(&mut raw)).then_some(()));
        drop(held_up);
        let ended = call.join().expect("it ended");
        assert_eq!(content(&ended.expect("the bridge waited for it")), b"x\0");
        assert!(stopping.wait_with_output().expect("it ran").status.success());
    });

    // Killed over there, nobody can say what became of the call: its time is over. Killed here, it
    // is known at once.
    here.command(&["start", "--name", "tpbridge"]);
    client.set_timeout(LIMIT);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| hold(&mut client));
        let held_up = held();
        here.signal_bridges(Signal::KILL);
        let error = call.join().expect("it ended").expect_err("its answer is lost");
        assert_eq!(error.code(), Code::Time);
        drop(held_up);
    });
    until("the service has gone on", || gate().is_none().then_some(()));
    client.set_timeout(AT_ONCE * 2);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| hold(&mut client));
        let held_up = held();
        let began = Instant::now();
        there.signal_bridges(Signal::KILL);
        let error = call.join().expect("it ended").expect_err("nobody waits for its answer");
        assert_eq!(error.code(), Code::ServiceError);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        drop(held_up);
    });
    drop(client);
    here.end();
    there.end();
}
