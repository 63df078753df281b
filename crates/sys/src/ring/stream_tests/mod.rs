//! What the stream ring promises, tried on real sockets: the failures that other users of
//! io_uring have met, each in a test of its own.
//!
//! This file holds what the tests share. Every wait has a deadline.

mod limits;
mod ownership;
mod pools;
mod transfers;

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_testing::or_skip;

use super::*;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const BUFFER_BYTES: u32 = 16;

/// A ring with small queues, `buffers` receive buffers of 16 bytes and an arena of 1 MiB; none where io_uring is
/// forbidden, for tests that are skipped then.
fn ring(buffers: u16) -> Option<StreamRing> {
    ring_of(Sizes { submission: 16, completion: 64 }, buffers)
}

fn ring_of(sizes: Sizes, buffers: u16) -> Option<StreamRing> {
    ring_with(sizes, ReceiveBuffers::whole(buffers, BUFFER_BYTES))
}

/// A ring with just these receive buffers.
fn ring_with(sizes: Sizes, receive: ReceiveBuffers) -> Option<StreamRing> {
    let otherwise = None;
    let arena_bytes = 1 << 20;
    or_skip(StreamRing::open(StreamSizes { ring: sizes, receive, otherwise, arena_bytes }))
}

/// Our end and the peer's.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, peer) = UnixStream::pair().expect("a socket pair");
    peer.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    (ours, peer)
}

/// Our end and the peer's, over TCP.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let peer = TcpStream::connect(address).expect("a connection");
    peer.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    (listener.accept().expect("accepted").0, peer)
}

/// The next completion, which has to come.
fn next(ring: &mut StreamRing) -> StreamCompletion {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(completion) = ring.next_completion() {
            return completion;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "no completion came");
        enter(ring, 1, Some(left));
    }
}

/// Enters; a wait that ends without a completion is left to the caller's deadline.
fn enter(ring: &mut StreamRing, completions_min: u32, timeout: Option<Duration>) {
    match ring.enter(completions_min, timeout) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
        Err(error) => panic!("io_uring_enter: {error}"),
    }
}

/// Submits what is queued and finds that nothing completes by it.
fn submit_quietly(ring: &mut StreamRing) {
    enter(ring, 0, None);
    if let Some(completion) = ring.next_completion() {
        panic!("nothing should have completed: {completion:?}");
    }
}

/// The bytes of a receive, whose buffer goes back.
fn text(ring: &mut StreamRing, completion: StreamCompletion) -> Vec<u8> {
    let received = completion.received.expect("bytes were received");
    let bytes = ring.bytes(&received).to_vec();
    assert_eq!(Ok(bytes.len()), usize::try_from(completion.result));
    ring.give_back(received);
    bytes
}

/// Finds every buffer in the kernel's hands: `count` receives fill one each, the next has none.
fn assert_pool_is_whole(ring: &mut StreamRing, count: u16) {
    assert_eq!(ring.buffers_lent(), 0);
    let (ours, mut peer) = pair();
    let sent: Vec<u8> = (0..u32::from(count) * BUFFER_BYTES + 1).map(|at| at as u8).collect();
    peer.write_all(&sent).expect("room in the socket");
    ring.receive(ours.as_raw_fd(), Shots::Many, 99).expect("room");
    let mut seen = Vec::new();
    let mut leases = Vec::new();
    for _ in 0..count {
        let completion = next(ring);
        let received = completion.received.expect("a buffer for each");
        seen.extend_from_slice(ring.bytes(&received));
        leases.push(received);
    }
    assert_eq!(seen, sent[..sent.len() - 1]);
    let last = next(ring);
    assert_eq!((last.result, last.has_more), (-libc::ENOBUFS, false));
    assert!(last.received.is_none());
    assert_eq!(ring.buffers_lent(), usize::from(count));
    for received in leases {
        ring.give_back(received);
    }
    assert_eq!(ring.buffers_lent(), 0);
}

/// Bytes of which no two neighbours of a few hundred are alike.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Fills the socket until the peer has to read before more fits.
fn stuff(mut socket: &UnixStream) -> usize {
    socket.set_nonblocking(true).expect("a flag set");
    let mut stuffed = 0;
    for len in [1 << 16, 1] {
        let chunk = pattern(len);
        while let Ok(taken) = socket.write(&chunk) {
            stuffed += taken;
        }
    }
    socket.set_nonblocking(false).expect("a flag cleared");
    stuffed
}

/// Reads exactly `len` bytes at the peer's end.
fn read(mut peer: impl Read, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    peer.read_exact(&mut bytes).expect("the bytes that were sent");
    bytes
}

/// Finds the end of the stream at the peer's end.
fn assert_end(mut peer: impl Read) {
    assert_eq!(peer.read_to_end(&mut Vec::new()).expect("the end of the stream"), 0);
}

const CHILD: &str = "POLLUX_SYS_TEST_CHILD";

/// Whether this is the process of its own that the test named `test` in `module` needs, because
/// it changes what belongs to a whole process. Else starts it, changed by `prepare`, and waits
/// for its success.
fn is_own_process(module: &str, test: &str, prepare: impl FnOnce(&mut Command)) -> bool {
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let (_crate, module) = module.split_once("::").expect("a path below the crate");
    let mut child = Command::new("/proc/self/exe");
    child.args(["--exact", &format!("{module}::{test}"), "--test-threads=1"]).env(CHILD, "1");
    prepare(&mut child);
    let output = child.output().expect("a process of its own");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        line.split_once("skipped: ").into_iter().for_each(|(_, why)| pollux_testing::skip(why));
    }
    false
}

/// A child of this process, which lives until this is dropped.
struct Child(libc::pid_t);

impl Child {
    /// Forks; returns when the child has done `act`.
    fn after(act: impl FnOnce()) -> Self {
        let (mut theirs, ours) = pair();
        // SAFETY: the caller's test has a process of its own, whose other thread waits for that of the test: no lock is
        // held that the child may want.
        let id = unsafe { libc::fork() };
        assert!(id >= 0, "fork: {}", io::Error::last_os_error());
        if id == 0 {
            // SAFETY: ends this process when the parent has not, and changes nothing else.
            unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
            act();
            let said = theirs.write_all(b"x");
            while said.is_ok() {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
            // SAFETY: ends this process and nothing else.
            unsafe { libc::_exit(1) };
        }
        let child = Self(id);
        drop(theirs);
        assert_eq!(read(ours, 1), b"x");
        child
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the signal goes to our own child, which nobody has waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: writes no status.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}
