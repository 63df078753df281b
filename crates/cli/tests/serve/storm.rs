//! Ten thousand connects at once, while live connections continue: none of them starves, no turn
//! accepts more than its share, and the kernel doesn't bring more than a few unasked. Times are
//! printed only.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::child::{Server, alone, raise_descriptor_limit};
use crate::closed_loop::{Answered, ClosedLoop};

const LIVE: usize = 64;
const CONNECTS_MAX: usize = 10_000;
/// Descriptors of this process for all else.
const DESCRIPTORS_KEPT: usize = 500;
/// How long the live connections are looked at before the storm.
const CALM: Duration = Duration::from_secs(1);
/// Most connections that a loop accepts in a turn, as `Limits` has it.
const ACCEPTS_PER_TURN: u64 = 64;
/// Most completions in a turn that are not receives: four armed accepts, the waker, the alarm. One
/// accept that takes everybody would bring thousands before any live connection's bytes.
const UNASKED_PER_TURN: u64 = 6;

#[test]
fn an_accept_storm_starves_no_live_connection() {
    let _turn = alone();
    let connects = CONNECTS_MAX.min(raise_descriptor_limit().saturating_sub(DESCRIPTORS_KEPT));
    for driver in ["epoll-et", "uring"] {
        let Some(server) = Server::start(driver, &["--reply", "128"]) else { continue };
        let mut live = ClosedLoop::connect(server.address, LIVE);
        let start = Instant::now();
        show(driver, "before", &live.run(|_| start.elapsed() >= CALM));
        let before = server.metrics();
        let is_over = AtomicBool::new(false);
        let during = std::thread::scope(|scope| {
            let live = scope.spawn(|| live.run(|_| is_over.load(Relaxed)));
            let start = Instant::now();
            let _storm: Vec<OwnedFd> = (0..connects).map(|_| dial(server.address)).collect();
            let dialled = start.elapsed();
            let expected = (LIVE + connects) as u64;
            let accepted = |now: &crate::metrics::Metrics| now.sum("loop_accepted_total");
            server.await_that("accepting", |now| accepted(now) == expected);
            println!(
                "{driver}: {connects} connects in {dialled:?}, accepted after {:?}",
                start.elapsed()
            );
            is_over.store(true, Relaxed);
            live.join().expect("every answer came")
        });
        show(driver, "during", &during);
        assert!(during.fewest > 0, "{driver}: a live connection had no answer during the storm");
        let after = server.metrics();
        let counted = |name| after.sum(name) - before.sum(name);
        let turns = counted("loop_turns_total");
        let share = (connects as u64).div_ceil(ACCEPTS_PER_TURN);
        assert!(turns >= share, "{driver}: {connects} connections were accepted in {turns} turns");
        let unasked =
            counted("loop_completions_total").saturating_sub(counted("loop_receives_total"));
        let most = UNASKED_PER_TURN * turns;
        println!("{driver}: {unasked} came unasked in {turns} turns");
        assert!(unasked <= most, "{driver}: {unasked} came unasked in {turns} turns");
        assert_eq!(after.sum("loop_accept_pauses_total"), 0, "{driver}");
        drop(live);
        server.await_rest();
        server.end();
    }
}

fn show(driver: &str, when: &str, answered: &Answered) {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| answered.quantile(share));
    let requests = answered.requests();
    println!("{driver}: {when} p50 {p50:?}, p99 {p99:?}, max {max:?}, {requests} requests");
}

/// Begins to connect.
fn dial(address: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.expect("descriptors are left");
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => socket,
        Err(error) => panic!("connecting: {error}"),
    }
}
