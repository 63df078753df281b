//! Streams, tasks, timers and other programs' futures on every loop.
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set that
//! is a failure.
#![expect(clippy::print_stdout, reason = "a skipped driver is named")]

mod echo;
mod ends;
mod hyper;
mod tasks;

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pollux_async::{Driver, Handle, Limits, ListenAddress, Listener, Runtime};

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// The drivers that this machine has: one that is missing is named, or fails the test.
fn drivers() -> impl Iterator<Item = Driver> {
    Driver::ALL.into_iter().filter(|driver| match Runtime::open(*driver, Limits::default()) {
        Ok(_) => true,
        Err(reason) => {
            assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{driver}: {reason}");
            println!("{driver} is skipped: {reason}");
            false
        }
    })
}

/// Plays a scene on every driver, within the deadline.
fn everywhere<F: Future<Output = io::Result<()>>>(scene: impl Fn(Handle) -> F) {
    everywhere_within(&Limits::default(), scene);
}

fn everywhere_within<F: Future<Output = io::Result<()>>>(
    limits: &Limits,
    scene: impl Fn(Handle) -> F,
) {
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, limits.clone()).expect("it was just opened");
        let handle = runtime.handle();
        let played = runtime.block_on(handle.timeout(DEADLINE, scene(handle.clone())));
        match played.expect("the loop turns") {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("{driver}: {error}"),
            Err(_) => panic!("{driver}: not done within {DEADLINE:?}"),
        }
        assert_eq!(handle.panicked_tasks(), 0, "{driver}");
    }
}

fn listen(handle: &Handle) -> Listener {
    let any = "127.0.0.1:0".parse().expect("an address");
    Listener::bind(handle, &any, false).expect("a port is left")
}

/// A blocking peer of a listener.
fn peer(listener: &Listener) -> TcpStream {
    let ListenAddress::Tcp(address) = listener.address() else { panic!("TCP") };
    let peer = TcpStream::connect(address).expect("it listens");
    peer.set_read_timeout(Some(DEADLINE)).expect("set");
    peer.set_write_timeout(Some(DEADLINE)).expect("set");
    peer
}

/// Bytes that differ enough to show which are missing.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|number| ((number * 31 + number / 251 + seed) % 256) as u8).collect()
}

/// Writes `sent` and reads as much, at the same time, in threads of its own.
fn exchange(mut peer: TcpStream, sent: Vec<u8>) -> std::thread::JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut writing = peer.try_clone()?;
        let len = sent.len();
        let writer = std::thread::spawn(move || writing.write_all(&sent));
        let mut got = vec![0; len];
        peer.read_exact(&mut got)?;
        writer.join().expect("it does not panic")?;
        Ok(got)
    })
}

/// The end of a thread, without blocking the loop.
async fn joined<T: Send + 'static>(thread: std::thread::JoinHandle<T>) -> T {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let ended = thread.join();
        assert!(sender.send(ended).is_ok(), "the scene ended before its thread");
    });
    receiver.await.expect("it sends").expect("the thread does not panic")
}
