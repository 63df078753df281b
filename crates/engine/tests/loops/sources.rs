//! What loops watch beside connections: datagram sockets, timers, processes. On every driver.

use std::cell::{Cell, RefCell};
use std::io::Read;
use std::net::UdpSocket;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use pollux_engine::{Counter, Limits};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::puppet::{Call, Puppet, Stage};
use crate::server::{DEADLINE, drivers};

fn udp() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_nonblocking(true).expect("set");
    socket
}

#[test]
fn datagrams_are_echoed_beside_a_connection() {
    const BURST: usize = 20;
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let socket = udp();
        let address = socket.local_addr().expect("bound");
        let watched = stage.event_loop.watch(socket, |socket, _, _| {
            let mut datagram = [0; 64];
            while let Ok((len, from)) = socket.recv_from(&mut datagram) {
                socket.send_to(&datagram[..len], from).expect("room");
            }
            ControlFlow::Continue(())
        });
        watched.expect("a datagram socket");
        let (_, mut stream) = stage.adopt(Puppet::new(|call, actions| match call {
            Call::Bytes(input) => {
                actions.send(input);
                input.len()
            }
            _ => 0,
        }));
        let peer = udp();
        for round in 0..3_u8 {
            (0..BURST).for_each(|_| assert_eq!(peer.send_to(&[round], address).expect("room"), 1));
            std::io::Write::write_all(&mut stream, &[round]).expect("room");
            let mut came = 0;
            stage.turn_until("the echoes", |_| {
                let mut datagram = [0; 64];
                while let Ok(len) = peer.recv(&mut datagram) {
                    assert_eq!(datagram[..len], [round], "{driver}");
                    came += 1;
                }
                came == BURST
            });
            assert_eq!(stage.read(&mut stream, 1), [round], "{driver}");
        }
        assert!(stage.count(Counter::SourcesReadable) >= 3, "{driver}");
        stage.assert_idle();
    }
}

/// What one call leaves unread brings the next call, also on mechanisms that report edges.
#[test]
fn a_source_that_is_still_readable_is_called_again() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let socket = udp();
        let taken = Rc::new(RefCell::new(Vec::new()));
        let address = socket.local_addr().expect("bound");
        let into = Rc::clone(&taken);
        let watched = stage.event_loop.watch(socket, move |socket, _, _| {
            let mut datagram = [0; 1];
            assert_eq!(socket.recv(&mut datagram).expect("it is readable"), 1);
            into.borrow_mut().push(datagram[0]);
            ControlFlow::Continue(())
        });
        watched.expect("a datagram socket");
        let peer = udp();
        (0..5).for_each(|byte| assert_eq!(peer.send_to(&[byte], address).expect("room"), 1));
        stage.turn_until("all five", |_| taken.borrow().len() == 5);
        assert_eq!(*taken.borrow(), [0, 1, 2, 3, 4], "{driver}");
        stage.assert_idle();
        assert_eq!(stage.count(Counter::SourcesReadable), 5, "{driver}");
    }
}

#[test]
fn timers_fire_once_or_until_they_are_asked_to_end() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let once = Rc::new(Cell::new(0));
        let often = Rc::new(Cell::new(0));
        let count = Rc::clone(&once);
        let at = stage.event_loop.now().at;
        let after = stage.event_loop.after(Duration::from_millis(2), move |_, now| {
            assert!(now.at - at >= Duration::from_millis(2), "too early");
            count.set(count.get() + 1);
        });
        let after = after.expect("a descriptor is left");
        let count = Rc::clone(&often);
        let every = stage.event_loop.every(Duration::from_millis(1), move |_, _| {
            count.set(count.get() + 1);
            if count.get() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let every = every.expect("a descriptor is left");
        stage.turn_until("all of them", |_| once.get() == 1 && often.get() == 3);
        stage.assert_idle();
        assert_eq!((once.get(), often.get()), (1, 3), "{driver}");
        assert!(!stage.event_loop.unwatch(after), "{driver}: it is over");
        assert!(!stage.event_loop.unwatch(every), "{driver}: it is over");
    }
}

#[test]
fn the_end_of_a_process_is_seen() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        // It lives until its input ends.
        let mut command = std::process::Command::new("cat");
        command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("cat is there");
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK).expect("Linux 5.10");
        let has_ended = Rc::new(Cell::new(false));
        let ends = Rc::clone(&has_ended);
        let watched = stage.event_loop.watch(pidfd, move |_, _, _| {
            ends.set(true);
            ControlFlow::Break(())
        });
        watched.expect("a pidfd");
        (0..3).for_each(|_| stage.turn());
        assert!(!has_ended.get(), "{driver}: it lives");
        drop(child.stdin.take());
        stage.turn_until("the end", |_| has_ended.get());
        assert!(child.wait().expect("ours").success(), "{driver}");
    }
}

#[test]
fn a_source_that_is_watched_no_more_is_closed_and_silent() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        let watched = stage.event_loop.watch(ours, |_, _, _| panic!("nothing was sent"));
        let source = watched.expect("a stream is readable too");
        (0..3).for_each(|_| stage.turn());
        assert!(stage.event_loop.unwatch(source), "{driver}");
        assert!(!stage.event_loop.unwatch(source), "{driver}: once is enough");
        (0..3).for_each(|_| stage.turn());
        theirs.set_read_timeout(Some(DEADLINE)).expect("set");
        assert_eq!(theirs.read_to_end(&mut Vec::new()).expect("the end"), 0, "{driver}");
        stage.assert_idle();
    }
}

/// Its readiness was on its way when it went.
#[test]
fn a_readable_source_that_goes_is_not_called() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let socket = udp();
        let address = socket.local_addr().expect("bound");
        let watched = stage.event_loop.watch(socket, |_, _, _| panic!("it is gone"));
        let source = watched.expect("a datagram socket");
        // A turn that cannot see it: the datagram comes after it.
        stage.turn();
        assert_eq!(udp().send_to(b"x", address).expect("room"), 1);
        assert!(stage.event_loop.unwatch(source), "{driver}");
        stage.assert_idle();
    }
}

#[test]
fn a_file_that_is_always_readable_is_refused() {
    for driver in drivers() {
        let mut stage = Stage::open(driver, Limits::default());
        let folder = std::fs::File::open(std::env::temp_dir()).expect("a folder");
        let refused = stage.event_loop.watch(folder, |_, _, _| ControlFlow::Break(()));
        let refused = refused.expect_err("a directory");
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{driver}: {refused}");
    }
}
