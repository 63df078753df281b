//! The core as a library that takes the plain names uses it: numbers, hooks, threads and fork.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

use libc::{EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, epoll_event};
use pollux_conformance::rig::allowed_but_epoll;
use pollux_epoll_c::{Identity, Instances, Mechanism};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const NOW: Option<Duration> = Some(Duration::ZERO);

fn instances(identity: Identity) -> &'static Instances {
    Box::leak(Box::new(Instances::new(identity)))
}

/// Made, and closed at the end whatever the instances know of it.
fn create(instances: &Instances, mechanism: Mechanism) -> OwnedFd {
    let epoll = instances.create(mechanism, EPOLL_CLOEXEC).expect("created");
    // SAFETY: the number was made for us a moment ago.
    unsafe { OwnedFd::from_raw_fd(epoll) }
}

fn event(events: i32, data: u64) -> Option<epoll_event> {
    Some(epoll_event { events: events as u32, u64: data })
}

fn wait(instances: &Instances, epoll: RawFd, timeout: Option<Duration>) -> Vec<(u32, u64)> {
    let instance = instances.find(epoll).expect("an instance");
    let mut room = [MaybeUninit::uninit(); 8];
    let found = instance.wait(epoll, &mut room, timeout, None).expect("waited");
    // SAFETY: that many were written.
    let of = |event: &MaybeUninit<epoll_event>| unsafe { event.assume_init() };
    room[..found].iter().map(of).map(|event| (event.events, event.u64)).collect()
}

fn ready() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    writer.write_all(b"x").expect("room");
    (reader, writer)
}

fn errno(outcome: std::io::Result<()>) -> Option<i32> {
    outcome.expect_err("refused").raw_os_error()
}

#[test]
fn an_instance_reports_what_was_added_with_the_data_as_it_was() {
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let epoll = create(instances, mechanism);
        let (reader, _writer) = ready();
        let fd = reader.as_raw_fd();
        instances.ctl(epoll.as_raw_fd(), EPOLL_CTL_ADD, fd, event(EPOLLIN, u64::MAX)).expect("add");
        assert_eq!(wait(instances, epoll.as_raw_fd(), LONG), [(1, u64::MAX)], "{mechanism}");
        instances.ctl(epoll.as_raw_fd(), EPOLL_CTL_MOD, fd, event(EPOLLIN, 7)).expect("mod");
        assert_eq!(wait(instances, epoll.as_raw_fd(), LONG), [(1, 7)], "{mechanism}");
        instances.ctl(epoll.as_raw_fd(), EPOLL_CTL_DEL, fd, None).expect("del");
        assert_eq!(wait(instances, epoll.as_raw_fd(), NOW), [], "{mechanism}");
    }
}

/// The length of the submission queue of an instance's ring.
fn ring_entries(instances: &Instances) -> u32 {
    let is_ring = |fd: &RawFd| {
        std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|link| link.as_os_str() == "anon_inode:[io_uring]")
    };
    let ring = instances.held(0, u32::MAX).into_iter().find(is_ring).expect("a ring");
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{ring}")).expect("open");
    let mask = info.lines().find_map(|line| line.strip_prefix("SqMask:")).expect("its length");
    u32::from_str_radix(mask.trim().trim_start_matches("0x"), 16).expect("a number") + 1
}

#[test]
fn a_ring_is_small_until_many_files_are_registered() {
    if !allowed_but_epoll().any(|mechanism| mechanism == Mechanism::UringPoll) {
        return;
    }
    let instances = instances(Identity::Checked);
    let epoll = create(instances, Mechanism::UringPoll);
    let number = epoll.as_raw_fd();
    let (reader, _writer) = ready();
    let (quiet, _other) = pipe().expect("a pipe");
    let duplicates = |of: &PipeReader, count| -> Vec<OwnedFd> {
        (0..count).map(|_| of.try_clone().expect("a number").into()).collect()
    };
    let few = duplicates(&quiet, 500);
    let many = duplicates(&reader, 100);
    let add = |fd: &OwnedFd, events| {
        let data = fd.as_raw_fd() as u64;
        instances.ctl(number, EPOLL_CTL_ADD, fd.as_raw_fd(), event(events, data)).expect("add");
    };
    few.iter().for_each(|fd| add(fd, EPOLLIN));
    assert_eq!(wait(instances, number, NOW), []);
    assert_eq!(ring_entries(instances), 256, "8 MiB of locked memory are enough for many");
    many.iter().for_each(|fd| add(fd, EPOLLIN | libc::EPOLLONESHOT));
    let mut seen = Vec::new();
    while seen.len() < many.len() {
        let found = wait(instances, number, LONG);
        assert!(!found.is_empty(), "{} of {} were found", seen.len(), many.len());
        seen.extend(found.into_iter().map(|(_, data)| data));
    }
    seen.sort_unstable();
    let mut all: Vec<u64> = many.iter().map(|fd| fd.as_raw_fd() as u64).collect();
    all.sort_unstable();
    assert_eq!(seen, all, "each once");
    assert_eq!(ring_entries(instances), 2048, "600 files are many");
}

/// Each `io_destroy(2)` is 30 to 40 ms.
#[test]
fn a_program_that_opens_and_closes_a_hundred_instances_on_aio_gives_no_context_up() {
    if !allowed_but_epoll().any(|mechanism| mechanism == Mechanism::Aio) {
        return;
    }
    let instances = instances(Identity::Hooked);
    for round in 0..100 {
        let epoll = create(instances, Mechanism::Aio);
        let number = epoll.as_raw_fd();
        let (reader, _writer) = ready();
        let (ours, mut peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        for (fd, data) in [(reader.as_raw_fd(), round), (ours.as_raw_fd(), 1000 + round)] {
            instances.ctl(number, EPOLL_CTL_ADD, fd, event(EPOLLIN, data)).expect("add");
        }
        assert_eq!(wait(instances, number, NOW), [(1, round)]);
        peer.write_all(b"x").expect("room");
        instances.ctl(number, EPOLL_CTL_DEL, reader.as_raw_fd(), None).expect("del");
        assert_eq!(wait(instances, number, LONG), [(1, 1000 + round)]);
        instances.closing(number);
        drop(epoll);
    }
    let counts = instances.contexts();
    assert_eq!((counts.given_up, counts.opened + counts.reused), (0, 100), "{counts:?}");
    // Together they are as many as were in use at the same time, and one more for the change to an epoll beside it.
    assert!(counts.opened <= 2, "{counts:?}");
}

#[test]
fn a_number_that_was_closed_and_used_again_is_another_file() {
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let epoll = create(instances, mechanism);
        let epoll = epoll.as_raw_fd();
        let (reader, writer) = ready();
        // A high number, which no other test takes meanwhile.
        let high = duplicate(&reader, 700);
        let number = high.as_raw_fd();
        instances.ctl(epoll, EPOLL_CTL_ADD, number, event(EPOLLIN, 1)).expect("add");
        drop((high, reader, writer));
        let (other, _writer) = ready();
        let high = duplicate(&other, number);
        assert_eq!(high.as_raw_fd(), number);
        let modified = instances.ctl(epoll, EPOLL_CTL_MOD, number, event(EPOLLIN, 2));
        assert_eq!(errno(modified), Some(libc::ENOENT), "{mechanism}");
        instances.ctl(epoll, EPOLL_CTL_ADD, number, event(EPOLLIN, 3)).expect("another file");
        assert_eq!(wait(instances, epoll, LONG), [(1, 3)], "{mechanism}");
    }
}

fn duplicate(reader: &PipeReader, at_least: RawFd) -> OwnedFd {
    // SAFETY: makes a new descriptor and touches no memory.
    let fd = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_DUPFD_CLOEXEC, at_least) };
    assert!(fd >= 0, "numbers up to {at_least}");
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[test]
fn an_instance_ends_with_its_last_number_which_is_free_then() {
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let epoll = create(instances, mechanism);
        let (reader, _writer) = ready();
        let fd = reader.as_raw_fd();
        instances.ctl(epoll.as_raw_fd(), EPOLL_CTL_ADD, fd, event(EPOLLIN, 1)).expect("add");
        // SAFETY: makes a new descriptor and touches no memory.
        let second = unsafe { libc::fcntl(epoll.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 720) };
        // SAFETY: made above.
        let second = unsafe { OwnedFd::from_raw_fd(second) };
        let number = epoll.as_raw_fd();
        drop(epoll);
        // The number is free, or that of another test's file.
        assert!(instances.find(number).is_none(), "{mechanism}");
        assert_eq!(wait(instances, second.as_raw_fd(), LONG), [(1, 1)], "{mechanism}: a duplicate");
        let third = create(instances, mechanism);
        assert_eq!(
            wait(instances, second.as_raw_fd(), LONG),
            [(1, 1)],
            "{mechanism}: it continues"
        );
        drop(second);
        drop(third);
        let last = create(instances, mechanism);
        assert_eq!(wait(instances, last.as_raw_fd(), NOW), [], "{mechanism}: a new one is empty");
    }
}

#[test]
fn hooks_report_closed_and_duplicated_numbers() {
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Hooked);
        let epoll = create(instances, mechanism);
        let number = epoll.as_raw_fd();
        let (reader, _writer) = ready();
        let fd = reader.as_raw_fd();
        instances.ctl(number, EPOLL_CTL_ADD, fd, event(EPOLLIN, 1)).expect("add");
        instances.duplicated(number, 5000);
        instances.closing(number);
        assert!(instances.find(number).is_none());
        assert!(instances.find(5000).is_some(), "{mechanism}: the duplicate names it");
        instances.closing_range(fd as u32, fd as u32);
        let instance = instances.find(5000).expect("an instance");
        let mut room = [MaybeUninit::uninit(); 2];
        assert_eq!(instance.wait(5000, &mut room, NOW, None).expect("waited"), 0, "{mechanism}");
        instances.closing_range(3, u32::MAX);
        assert!(instances.find(5000).is_none(), "{mechanism}");
    }
}

#[test]
fn a_waiting_thread_sees_what_another_thread_changes() {
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let epoll = create(instances, mechanism);
        let number = epoll.as_raw_fd();
        let (reader, mut writer) = pipe().expect("a pipe");
        let (other, _other) = ready();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut seen = vec![wait(instances, number, LONG)];
                seen.push(wait(instances, number, LONG));
                seen
            });
            let fd = other.as_raw_fd();
            let other = reader.as_raw_fd();
            instances.ctl(number, EPOLL_CTL_ADD, other, event(EPOLLIN, 1)).expect("add");
            let once = EPOLLIN | libc::EPOLLONESHOT;
            instances.ctl(number, EPOLL_CTL_ADD, fd, event(once, 2)).expect("add");
            writer.write_all(b"x").expect("room");
            let seen: Vec<_> = waiting.join().expect("no panic").concat();
            assert!(seen.contains(&(1, 2)) && seen.contains(&(1, 1)), "{mechanism}: {seen:?}");
        });
    }
}

/// Each of four threads takes bytes until it sees the last one; all bytes are taken once.
#[test]
fn threads_that_wait_together_take_every_event() {
    const BYTES: usize = 400;
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let epoll = create(instances, mechanism);
        let number = epoll.as_raw_fd();
        let mut pipes: Vec<_> = (0..8).map(|_| pipe().expect("a pipe")).collect();
        let once = EPOLLIN | libc::EPOLLONESHOT;
        for (place, (reader, _)) in (0..).zip(&pipes) {
            let fd = reader.as_raw_fd();
            instances.ctl(number, EPOLL_CTL_ADD, fd, event(once, place)).expect("add");
        }
        let (stop, mut stopper) = pipe().expect("a pipe");
        let last = event(EPOLLIN, u64::MAX);
        instances.ctl(number, EPOLL_CTL_ADD, stop.as_raw_fd(), last).expect("add");
        let readers: Vec<PipeReader> =
            pipes.iter().map(|(reader, _)| reader.try_clone().expect("a duplicate")).collect();
        let readers = &readers;
        let fds = &pipes.iter().map(|p| p.0.as_raw_fd()).collect::<Vec<_>>();
        let taken = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            for (_, data) in wait(instances, number, LONG) {
                                if data == u64::MAX {
                                    return;
                                }
                                let place = data as usize;
                                let read = (&readers[place]).read(&mut [0; 1]).expect("a byte");
                                taken.fetch_add(read, std::sync::atomic::Ordering::Relaxed);
                                let again = event(once, data);
                                instances
                                    .ctl(number, EPOLL_CTL_MOD, fds[place], again)
                                    .expect("mod");
                            }
                        }
                    })
                })
                .collect();
            for byte in 0..BYTES {
                pipes[byte % 8].1.write_all(b"x").expect("room");
            }
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while taken.load(std::sync::atomic::Ordering::Relaxed) < BYTES {
                assert!(std::time::Instant::now() < deadline, "{mechanism}: {taken:?} of {BYTES}");
                thread::yield_now();
            }
            stopper.write_all(b"x").expect("room");
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        assert_eq!(taken.into_inner(), BYTES, "{mechanism}");
    }
}

#[test]
fn interests_of_a_thread_that_has_ended_are_still_reported() {
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let epoll = create(instances, mechanism);
        let number = epoll.as_raw_fd();
        let pipes: Vec<_> = (0..3).map(|_| pipe().expect("a pipe")).collect();
        let edge = EPOLLIN | libc::EPOLLET;
        for (place, flags) in [EPOLLIN, edge, EPOLLIN | libc::EPOLLONESHOT].into_iter().enumerate()
        {
            let fd = pipes[place].0.as_raw_fd();
            let data = place as u64;
            instances.ctl(number, EPOLL_CTL_ADD, fd, event(flags, data)).expect("add");
        }
        for _ in 0..3 {
            let waiting = thread::spawn(move || wait(instances, number, NOW));
            assert_eq!(waiting.join().expect("no panic"), [], "{mechanism}");
        }
        for (place, (_, writer)) in pipes.iter().enumerate() {
            let mut writer = writer;
            writer.write_all(b"x").expect("room");
            // The level stays meanwhile, and the kernel ends what a thread has left behind some
            // milliseconds later.
            let expected = (1, place as u64);
            let end = std::time::Instant::now() + Duration::from_secs(10);
            let mut is_reported = false;
            while !is_reported && std::time::Instant::now() < end {
                is_reported = wait(instances, number, LONG).contains(&expected);
            }
            assert!(is_reported, "{mechanism}: nothing of {expected:?}");
        }
    }
}

#[test]
fn an_instance_within_another_is_reported_through_it() {
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let outer = create(instances, mechanism);
        let inner = create(instances, mechanism);
        let outer = outer.as_raw_fd();
        let inner = inner.as_raw_fd();
        let (reader, _writer) = ready();
        instances.ctl(inner, EPOLL_CTL_ADD, reader.as_raw_fd(), event(EPOLLIN, 1)).expect("add");
        instances.ctl(outer, EPOLL_CTL_ADD, inner, event(EPOLLIN, 2)).expect("nested");
        assert_eq!(wait(instances, outer, LONG), [(1, 2)], "{mechanism}");
        assert_eq!(wait(instances, inner, LONG), [(1, 1)], "{mechanism}");
        let circle = instances.ctl(inner, EPOLL_CTL_ADD, outer, event(EPOLLIN, 3));
        assert_eq!(errno(circle), Some(libc::ELOOP), "{mechanism}");
        let itself = instances.ctl(outer, EPOLL_CTL_ADD, outer, event(EPOLLIN, 3));
        assert_eq!(errno(itself), Some(libc::EINVAL), "{mechanism}");
    }
}

/// A ring of one thread takes submissions of that thread only; others' changes wait for its next wait.
#[test]
fn many_changes_of_a_thread_that_never_waits_are_taken() {
    const PIPES: u64 = 200;
    const ROUNDS: u64 = 20;
    for mechanism in allowed_but_epoll() {
        let instances = instances(Identity::Checked);
        let epoll = create(instances, mechanism);
        let number = epoll.as_raw_fd();
        assert_eq!(wait(instances, number, NOW), [], "{mechanism}");
        let pipes: Vec<_> = (0..PIPES).map(|_| ready()).collect();
        thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for round in 0..ROUNDS {
                    let op = if round == 0 { EPOLL_CTL_ADD } else { EPOLL_CTL_MOD };
                    for (place, (reader, _)) in (0..).zip(&pipes) {
                        let how = event(EPOLLIN, round * PIPES + place);
                        instances.ctl(number, op, reader.as_raw_fd(), how).expect("taken");
                    }
                }
            });
            changes.join().expect("no panic");
        });
        let mut seen = std::collections::BTreeSet::new();
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while seen.len() < PIPES as usize {
            assert!(std::time::Instant::now() < end, "{mechanism}: {} of {PIPES}", seen.len());
            seen.extend(wait(instances, number, LONG).into_iter().map(|(_, data)| data));
        }
        let last = (ROUNDS - 1) * PIPES;
        assert_eq!(seen, (last..last + PIPES).collect(), "{mechanism}");
    }
}
