//! What a server that nobody asks anything costs the machine: it waits for its clients, and must not show as one that
//! waits for a disk.

use std::fs;
use std::thread;
use std::time::Duration;

use pollux_testing::{Cgroup, held_up, skip};

use crate::child::Server;

/// Longer than the kernel's period of 2 s, after which it adds up what tasks were held up for.
const IDLE: Duration = Duration::from_millis(4500);

/// `io_uring_enter(2)` counts as a wait for I/O where it is not asked not to (IORING_ENTER_NO_IOWAIT, Linux 6.15): an
/// idle server was 100 % of pressure.
#[test]
fn an_idle_server_puts_no_pressure_on_io() {
    if kernel() < (6, 15) {
        return skip("this kernel takes every wait on a ring for I/O (before Linux 6.15)");
    }
    let start = |driver: &&'static str| {
        let server = Server::start(driver, &["--reply", "128", "--threads", "2"])?;
        let group = Cgroup::of(server.id());
        Some((*driver, server, group))
    };
    let servers: Vec<_> = ["epoll-et", "uring", "uring-poll"].iter().filter_map(start).collect();
    let pressure = |group: &Option<Cgroup>| held_up(&group.as_ref()?.io_pressure());
    let before: Vec<_> = servers.iter().map(|(_, _, group)| pressure(group)).collect();
    thread::sleep(IDLE);
    for ((driver, server, group), before) in servers.into_iter().zip(before) {
        match pressure(&group).zip(before) {
            None => {
                skip(format_args!(
                    "{driver}: no cgroup of its own, and the machine is everybody's"
                ));
            }
            Some((after, before)) => {
                let held_up = after - before;
                println!("{driver}: {held_up:?} of {IDLE:?} held up by I/O");
                assert!(
                    held_up < IDLE / 10,
                    "{driver} was held up by I/O for {held_up:?} of {IDLE:?}"
                );
            }
        }
        drop(group);
        server.end();
    }
}

/// The version of the kernel that runs, by its first two numbers.
fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("procfs");
    let mut numbers = release.split(|other: char| !other.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).expect("a number");
    (next(), next())
}
