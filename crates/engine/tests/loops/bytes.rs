//! What a peer sees, on every driver.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;

use pollux_engine::{CloseCause, Counter, EventLoop, Limits, Listeners};
use pollux_testing::wait_until;

use crate::lines::Lines;
use crate::peer::{Server, drivers, read, read_all};

fn big(len: usize) -> Vec<u8> {
    (0..len).map(Lines::byte).collect()
}

#[test]
fn the_same_bytes_on_every_driver() {
    let mut expected = b"hello\necho one\n".to_vec();
    expected.extend(big(1_000_000));
    expected.extend(b"file\n");
    expected.extend(&big(300_000)[7..200_007]);
    expected.extend(b"echo two\nresumed\nwoken\necho three\nbye\n");
    let request = b"echo one\nbig 1000000\nfile 7 200000\necho two\npause\nlater\necho three\n";
    for driver in drivers() {
        let answer = Server::of(driver).talk(request);
        assert_eq!(answer.len(), expected.len(), "{driver}");
        assert!(answer == expected, "{driver}: the bytes differ");
    }
}

#[test]
fn byte_by_byte_gives_the_same() {
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        peer.set_nodelay(true).expect("set");
        for byte in b"echo one\necho two\nclose\n" {
            peer.write_all(&[*byte]).expect("written");
        }
        assert_eq!(read_all(&mut peer), b"hello\necho one\necho two\n", "{driver}");
    }
}

#[test]
fn a_peer_that_does_not_read_stops_the_server_and_gets_everything_later() {
    // More than the socket buffers of both ends ever hold.
    const LINES: usize = 250_000;
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        let mut writer = peer.try_clone().expect("a descriptor is left");
        let feeder = std::thread::spawn(move || {
            for number in 0..LINES {
                let line = format!("echo {number} {}\n", "x".repeat(100));
                writer.write_all(line.as_bytes()).expect("the server reads in the end");
            }
            writer.shutdown(Shutdown::Write).expect("ended");
        });
        let counters = server.counters(0);
        wait_until("a megabyte of answers", || counters.value(Counter::BytesOut) > 1_000_000);
        let answer = read_all(&mut peer);
        feeder.join().expect("all was taken");
        let text = String::from_utf8(answer).expect("ASCII");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("hello"));
        for number in 0..LINES {
            let line = lines.next().expect("one line for each");
            assert!(line.starts_with(&format!("echo {number} ")), "{driver}: {line}");
        }
        assert_eq!((lines.next(), lines.next()), (Some("bye"), None), "{driver}");
    }
}

#[test]
fn data_and_end_in_one_edge_are_both_seen() {
    // The server's thread is stopped while both arrive.
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        assert_eq!(read(&mut peer, 6), b"hello\n");
        let (release, released) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let stop = move |_: &mut EventLoop<Lines>| {
            begin.send(()).expect("received");
            released.recv().expect("released");
        };
        server.group().handle(0).tell(stop).expect("room");
        begun.recv().expect("the loop runs");
        peer.write_all(b"echo last\n").expect("written");
        peer.shutdown(Shutdown::Write).expect("ended");
        release.send(()).expect("received");
        assert_eq!(read_all(&mut peer), b"echo last\nbye\n", "{driver}");
    }
}

#[test]
fn lingering_lets_the_last_answer_arrive_before_unread_input() {
    for driver in drivers() {
        let server = Server::of(driver);
        let mut peer = server.connect();
        peer.write_all(b"echo last\nlinger\n").expect("written");
        assert_eq!(read(&mut peer, 16), b"hello\necho last\n", "{driver}");
        // The server has ended its output and drops what comes.
        assert_eq!(peer.read(&mut [0; 1]).expect("the end"), 0, "{driver}");
        peer.write_all(&[b'x'; 100_000]).expect("no reset");
        drop(peer);
        let counters = server.counters(0);
        wait_until("the close", || counters.closed(CloseCause::Session) == 1);
    }
}

#[test]
fn every_end_has_its_cause() {
    ends_have_their_causes(|_| {});
}

#[test]
fn masked_ends_have_the_same_causes() {
    ends_have_their_causes(|limits| limits.mask_ends = true);
}

fn ends_have_their_causes(adjust: fn(&mut Limits)) {
    for driver in drivers() {
        let server = Server::start(driver, 1, Listeners::Single, adjust);
        let server = server.expect("the driver is there");
        let counters = server.counters(0);
        assert_eq!(server.talk(b"echo x\n"), b"hello\necho x\nbye\n", "{driver}");
        server.talk(b"abort\n");
        server.talk(b"close\n");
        let mut reset = server.connect();
        assert_eq!(read(&mut reset, 6), b"hello\n");
        rustix::net::sockopt::set_socket_linger(&reset, Some(std::time::Duration::ZERO))
            .expect("set");
        drop(reset);
        wait_until("four ends", || counters.closed_total() == 4);
        let ends = [
            (CloseCause::PeerClosed, 1),
            (CloseCause::Aborted, 1),
            (CloseCause::Session, 1),
            (CloseCause::PeerReset, 1),
        ];
        for (cause, times) in ends {
            assert_eq!(counters.closed(cause), times, "{driver}: {cause:?}");
        }
        assert_eq!(counters.open(), 0, "{driver}");
    }
}
