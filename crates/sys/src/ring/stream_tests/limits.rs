//! Limits: small queues, many ready sockets, little memory, signals.

use std::os::unix::process::CommandExt;
use std::sync::mpsc;
use std::thread;

use super::*;

/// Sixteen sockets speak at once and again, and only four completions fit.
#[test]
fn an_overflow_loses_nothing_and_keeps_the_order_of_each_socket() {
    const SOCKETS: usize = 16;
    const ROUNDS: u8 = 20;
    let Some(mut ring) = ring_of(Sizes { submission: 4, completion: 4 }, 64) else { return };
    let mut pairs: Vec<_> = (0..SOCKETS).map(|_| pair()).collect();
    let mut seen = vec![Vec::new(); SOCKETS];
    let mut has_overflowed = false;
    let mut ends = 0;
    for (index, (ours, _)) in pairs.iter().enumerate() {
        arm(&mut ring, ours, index);
    }
    submit_quietly(&mut ring);
    for round in 0..ROUNDS {
        for (_, peer) in &mut pairs {
            peer.write_all(&[round]).expect("sent");
        }
        while seen.iter().map(Vec::len).sum::<usize>() < SOCKETS * (usize::from(round) + 1) {
            enter(&mut ring, 1, Some(PATIENCE));
            has_overflowed |= ring.has_overflow();
            while let Some(completion) = ring.next_completion() {
                let index = completion.user_data as usize;
                if !completion.has_more {
                    ends += 1;
                    arm(&mut ring, &pairs[index].0, index);
                }
                seen[index].extend(text(&mut ring, completion));
            }
        }
    }
    let expected: Vec<u8> = (0..ROUNDS).collect();
    assert!(seen.iter().all(|bytes| *bytes == expected), "{seen:?}");
    assert!(has_overflowed && ends > 0, "the completion queue was too large for this test");
    assert_eq!(ring.buffers_lent(), 0);
    // Before the sockets: what is still queued names their descriptors, which other tests are given next.
    drop(ring);
}

fn arm(ring: &mut StreamRing, socket: &UnixStream, index: usize) {
    while ring.receive(socket.as_raw_fd(), Shots::Many, index as u64).is_err() {
        match ring.submit() {
            Ok(_) => {}
            // The kernel wants completions to be taken before it takes more.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => enter(ring, 0, None),
            Err(error) => panic!("io_uring_enter: {error}"),
        }
    }
}

/// What was not sent is reported by a completion, which may be among those that did not fit.
#[test]
fn the_arena_is_not_reset_while_completions_overflow() {
    let Some(mut ring) = ring_of(Sizes { submission: 8, completion: 8 }, 1) else { return };
    let (ours, _peer) = pair();
    stuff(&ours);
    let mut sends = Vec::new();
    for _ in 0..2 {
        for user_data in 0..8 {
            ring.spare()[..5].copy_from_slice(b"hello");
            sends.push(ring.send_spare(ours.as_raw_fd(), 5, user_data).expect("room"));
        }
        assert_eq!(ring.submit().expect("submitted"), 8);
    }
    assert!(ring.has_overflow());
    assert!(!ring.reset_arena());
    for _ in 0..16 {
        assert_eq!(next(&mut ring).result, -libc::EAGAIN);
    }
    assert!(sends.iter().all(|sent| ring.sent_bytes(*sent) == Some(b"hello".as_slice())));
    assert!(ring.reset_arena());
    assert!(sends.iter().all(|sent| ring.sent_bytes(*sent).is_none()));
}

/// A call finishes about twenty deferred receives; the flag says that more is left.
#[test]
fn more_ready_sockets_than_one_call_serves_are_all_served() {
    const SOCKETS: usize = 64;
    // More buffers than are needed: up to Linux 6.12 the receive that takes the last one ends with ENOBUFS.
    let Some(mut ring) = ring_of(Sizes { submission: 64, completion: 256 }, 128) else { return };
    let mut pairs: Vec<_> = (0..SOCKETS).map(|_| pair()).collect();
    for (index, (ours, _)) in pairs.iter().enumerate() {
        ring.receive(ours.as_raw_fd(), Shots::Many, index as u64).expect("room");
    }
    submit_quietly(&mut ring);
    for (_, peer) in &mut pairs {
        peer.write_all(b"x").expect("sent");
    }
    assert!(ring.has_deferred_work());
    let mut completions = Vec::new();
    let mut calls = 0;
    while ring.has_deferred_work() {
        enter(&mut ring, u32::from(calls == 0), Some(PATIENCE));
        calls += 1;
        completions.extend(std::iter::from_fn(|| ring.next_completion()));
    }
    let mut served: Vec<u64> = completions.iter().map(|seen| seen.user_data).collect();
    served.sort_unstable();
    assert_eq!(served, (0..SOCKETS as u64).collect::<Vec<_>>());
    for completion in completions {
        assert_eq!(text(&mut ring, completion), b"x");
    }
    assert_eq!(ring.buffers_lent(), 0);
}

#[test]
fn too_little_locked_memory_for_the_buffers_is_explained() {
    const NAME: &str = "too_little_locked_memory_for_the_buffers_is_explained";
    const LIMIT_BYTES: u64 = 64 << 10;
    if !is_own_process(module_path!(), NAME, drop_privileges) || ring(1).is_none() {
        return;
    }
    let limit = libc::rlimit { rlim_cur: LIMIT_BYTES, rlim_max: LIMIT_BYTES };
    // SAFETY: `limit` is a valid structure, read during the call.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) };
    assert_eq!(done, 0);
    let ring = Sizes { submission: 16, completion: 32 };
    let sizes = StreamSizes {
        ring,
        receive: ReceiveBuffers::whole(1 << 15, 16),
        otherwise: None,
        arena_bytes: 16,
    };
    let Err(refused) = StreamRing::open(sizes) else {
        // Linux 6.12 and before, and 7.3.
        pollux_testing::skip("this kernel counts no ring of buffers as locked memory");
        return;
    };
    assert_eq!(refused.cause.raw_os_error(), Some(libc::ENOMEM));
    assert!(refused.reason.contains("fewer buffers"), "{refused}");
    let fewer = StreamSizes { receive: ReceiveBuffers::whole(16, 16), ..sizes };
    StreamRing::open(fewer).expect("the advice helps");
}

/// Locked memory is counted for users without CAP_IPC_LOCK only.
fn drop_privileges(child: &mut Command) {
    const UID: u32 = 65_534;
    // SAFETY: the call takes no argument and always succeeds.
    if unsafe { libc::geteuid() } == 0 {
        child.uid(UID).gid(UID);
    }
}

extern "C" fn nothing(_signal: libc::c_int) {}

#[test]
fn a_signal_ends_a_wait_and_harms_nothing() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, mut peer) = pair();
    ring.receive(ours.as_raw_fd(), Shots::Many, 7).expect("room");
    submit_quietly(&mut ring);
    let handler = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, so it may run anywhere.
    unsafe { libc::signal(libc::SIGUSR1, handler) };
    // SAFETY: the call takes no argument.
    let waiter = unsafe { libc::pthread_self() };
    let (done, is_done) = mpsc::channel::<()>();
    let signaller = thread::spawn(move || {
        while is_done.recv_timeout(Duration::from_millis(1)) == Err(mpsc::RecvTimeoutError::Timeout)
        {
            // SAFETY: the thread lives: it joins this one.
            unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
        }
    });
    let error = ring.enter(1, Some(PATIENCE)).expect_err("nothing else ends it");
    drop(done);
    signaller.join().expect("the signaller");
    assert_eq!(error.raw_os_error(), Some(libc::EINTR));
    peer.write_all(b"x").expect("sent");
    let seen = next(&mut ring);
    assert_eq!(text(&mut ring, seen), b"x");
}

/// A request that the kernel refuses fails alone: those behind it in the queue are taken.
#[test]
fn a_faulty_request_does_not_hold_up_those_behind_it() {
    let Some(mut ring) = ring(4) else { return };
    let (ours, mut peer) = pair();
    peer.write_all(b"x").expect("sent");
    ring.receive(-1, Shots::One, 6).expect("room");
    ring.accept(ours.as_raw_fd(), Shots::One, 5).expect("room");
    ring.receive(ours.as_raw_fd(), Shots::One, 7).expect("room");
    assert_eq!(ring.enter(0, None).expect("entered"), 3);
    let mut results = std::collections::BTreeMap::new();
    while results.len() < 3 {
        let seen = next(&mut ring);
        results.insert(seen.user_data, seen.result);
        if seen.received.is_some() {
            assert_eq!(text(&mut ring, seen), b"x");
        }
    }
    assert_eq!((results[&5], results[&6], results[&7]), (-libc::EINVAL, -libc::EBADF, 1));
    assert_eq!(ring.owned_in_flight(), 0);
    assert_pool_is_whole(&mut ring, 4);
}

/// A program that is started must not hold the ring, and with it our sockets, open.
#[test]
fn a_ring_is_closed_on_exec() {
    let Some(ring) = ring(1) else { return };
    let fd = ring.ring.io.as_raw_fd();
    // SAFETY: the call reads a flag of a descriptor that is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

/// What `Ring` and `StreamRing` make impossible by not being `Send`, asked of the kernel.
#[test]
fn another_thread_than_the_owner_is_refused() {
    let Some(ring) = ring(1) else { return };
    let fd = ring.ring.io.as_raw_fd();
    let outcome = thread::spawn(move || {
        Door::to(fd).enter(0, 0, EnterFlags::GETEVENTS, None).map_err(|error| error.raw_os_error())
    });
    assert_eq!(outcome.join().expect("no panic"), Err(Some(libc::EEXIST)));
}

#[test]
fn a_thread_that_ends_with_requests_armed_leaves_none_behind() {
    let (ours, peer) = tcp_pair();
    let fd = ours.as_raw_fd();
    let owner = thread::spawn(move || {
        let Some(mut ring) = ring(4) else { return };
        ring.receive(fd, Shots::Many, 7).expect("room");
        submit_quietly(&mut ring);
    });
    owner.join().expect("no panic");
    drop(ours);
    peer.set_nonblocking(true).expect("a flag set");
    assert_end(&peer);
}
