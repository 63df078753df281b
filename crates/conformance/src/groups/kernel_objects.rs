//! What only the kernel has: TCP and UDP sockets, timers, and epoll instances, which are themselves something to
//! watch.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use pollux_poller::{Interest, Readiness, Trigger};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::rig::{Rig, accepted};
use crate::{Case, CaseResult, case};

pub(crate) const NETWORK: &[Case] = &[
    case!(a_listener_is_readable_until_accepted, [Kernel]),
    case!(an_edge_listener_reports_each_connection, [Kernel, Edge]),
    case!(an_exclusive_listener_reports, [Kernel, Exclusive]),
    case!(a_fresh_socket_is_writable_and_hup, [Kernel, Hangup]),
    case!(a_connected_socket_becomes_writable, [Kernel]),
    case!(a_refused_connection_is_an_error, [Kernel, Hangup]),
    case!(a_tcp_half_close_is_readable_and_rdhup, [Kernel, Rdhup]),
    case!(a_tcp_socket_closed_in_both_directions_is_hup, [Kernel, Rdhup]),
    case!(a_reset_is_error_and_hup, [Kernel, Rdhup]),
    case!(urgent_data_is_priority, [Kernel]),
    case!(urgent_data_that_waits_is_priority, [Kernel]),
    case!(ordinary_data_is_not_priority, [Kernel]),
    case!(a_datagram_is_readable, [Kernel]),
    case!(a_refused_datagram_is_an_error, [Kernel, Hangup]),
    case!(a_timer_is_readable_when_it_expires, [Kernel]),
];

pub(crate) const NESTING: &[Case] = &[
    case!(an_epoll_instance_is_readable_while_something_is_ready, [Kernel]),
    case!(an_epoll_instance_can_be_watched_by_edge, [Kernel, Edge]),
    case!(an_epoll_instance_can_be_watched_once, [Kernel, Oneshot]),
    case!(two_levels_of_epoll_instances_can_be_watched, [Kernel]),
];

const READ: Interest = Interest::READABLE;

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

fn fresh_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket")
}

/// A port without a listener: bound a moment ago, and closed.
fn dead_address() -> SocketAddr {
    listener().1
}

fn a_listener_is_readable_until_accepted(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (listener, address) = listener();
    rig.add(&listener, 1, READ, Trigger::Level)?;
    rig.quiet();
    let _first = TcpStream::connect(address).expect("backlog");
    let _second = TcpStream::connect(address).expect("backlog");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    listener.accept().expect("the first");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)], "the second still waits");
    listener.accept().expect("the second");
    rig.quiet();
    Ok(())
}

fn an_edge_listener_reports_each_connection(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (listener, address) = listener();
    rig.add(&listener, 1, READ, Trigger::Edge)?;
    for _ in 0..3 {
        let _stream = TcpStream::connect(address).expect("backlog");
        assert_eq!(rig.settled(), [(1, Readiness::READABLE)]);
    }
    Ok(())
}

fn an_exclusive_listener_reports(rig: &mut Rig) -> CaseResult {
    use pollux_poller::{Registration, Token};
    use std::os::fd::AsFd;
    rig.needs_kernel()?;
    let (listener, address) = listener();
    let how = Registration::new(READ, Trigger::Level).exclusive();
    accepted(rig.poller.add(listener.as_fd(), Token::new(1, 0), how))?;
    let _stream = TcpStream::connect(address).expect("backlog");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    listener.accept().expect("queued");
    rig.quiet();
    Ok(())
}

fn a_fresh_socket_is_writable_and_hup(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let asked = READ | Interest::WRITABLE;
    let socket = fresh_socket();
    rig.add(&socket, 1, asked, Trigger::Level)?;
    rig.reported(1, asked, Readiness::WRITABLE | Readiness::HUP)
}

fn a_connected_socket_becomes_writable(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (_listener, address) = listener();
    let socket = fresh_socket();
    let outcome = rustix::net::connect(&socket, &address);
    assert!(matches!(outcome, Ok(()) | Err(Errno::INPROGRESS)), "{outcome:?}");
    rig.add(&socket, 1, READ | Interest::WRITABLE, Trigger::Level)?;
    rig.reported(1, READ | Interest::WRITABLE, Readiness::WRITABLE)
}

fn a_refused_connection_is_an_error(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let socket = fresh_socket();
    let outcome = rustix::net::connect(&socket, &dead_address());
    assert!(matches!(outcome, Err(Errno::INPROGRESS | Errno::CONNREFUSED)), "{outcome:?}");
    let asked = READ | Interest::WRITABLE;
    rig.add(&socket, 1, asked, Trigger::Level)?;
    let mut wanted = Readiness::READABLE | Readiness::WRITABLE | Readiness::HUP;
    if outcome == Err(Errno::INPROGRESS) {
        wanted |= Readiness::ERROR;
    }
    rig.reported(1, asked, wanted)
}

fn a_tcp_half_close_is_readable_and_rdhup(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.tcp_pair()?;
    let asked = READ | Interest::RDHUP;
    rig.add(&ours, 1, asked, Trigger::Level)?;
    rig.quiet();
    theirs.shutdown_write();
    rig.reported(1, asked, Readiness::READABLE | Readiness::RDHUP)
}

fn a_tcp_socket_closed_in_both_directions_is_hup(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.tcp_pair()?;
    let asked = READ | Interest::RDHUP;
    rig.add(&ours, 1, asked, Trigger::Level)?;
    theirs.shutdown_write();
    ours.shutdown_write();
    rig.reported(1, asked, Readiness::READABLE | Readiness::RDHUP | Readiness::HUP)
}

fn a_reset_is_error_and_hup(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.tcp_pair()?;
    let asked = READ | Interest::RDHUP;
    rig.add(&ours, 1, asked, Trigger::Level)?;
    // Closing with lingering time zero sends a reset.
    rustix::net::sockopt::set_socket_linger(&theirs, Some(Duration::ZERO)).expect("a socket");
    theirs.close();
    let wanted = Readiness::READABLE | Readiness::RDHUP | Readiness::HUP | Readiness::ERROR;
    rig.reported(1, asked, wanted)
}

fn urgent_data_is_priority(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.tcp_pair()?;
    rig.add(&ours, 1, Interest::PRIORITY, Trigger::Level)?;
    rig.quiet();
    rustix::net::send(&theirs, b"!", SendFlags::OOB).expect("room");
    rig.reported(1, Interest::PRIORITY, Readiness::PRIORITY)
}

fn urgent_data_that_waits_is_priority(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.tcp_pair()?;
    rustix::net::send(&theirs, b"!", SendFlags::OOB).expect("room");
    rig.add(&ours, 1, READ | Interest::PRIORITY, Trigger::Level)?;
    rig.reported(1, READ | Interest::PRIORITY, Readiness::PRIORITY)
}

fn ordinary_data_is_not_priority(rig: &mut Rig) -> CaseResult {
    let (ours, theirs) = rig.tcp_pair()?;
    rig.add(&ours, 1, READ | Interest::PRIORITY, Trigger::Level)?;
    rig.quiet();
    theirs.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.modify(&ours, 1, Interest::PRIORITY, Trigger::Level)?;
    rig.quiet();
    theirs.write(1).expect("room");
    rig.quiet();
    Ok(())
}

fn a_datagram_is_readable(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port of the loopback interface");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port of the loopback interface");
    rig.add(&receiver, 1, READ, Trigger::Level)?;
    rig.quiet();
    sender.send_to(b"x", receiver.local_addr().expect("bound")).expect("loopback");
    rig.reported(1, READ, Readiness::READABLE)?;
    receiver.recv(&mut [0; 4]).expect("it was reported");
    rig.quiet();
    Ok(())
}

fn a_refused_datagram_is_an_error(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let dead = UdpSocket::bind("127.0.0.1:0").expect("a port of the loopback interface");
    let address = dead.local_addr().expect("bound");
    drop(dead);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port of the loopback interface");
    sender.connect(address).expect("datagrams connect to anything");
    rig.add(&sender, 1, READ, Trigger::Level)?;
    rig.quiet();
    sender.send(b"x").expect("no answer came yet");
    rig.reported(1, READ, Readiness::ERROR)
}

fn a_timer_is_readable_when_it_expires(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).expect("timerfd");
    rig.add(&timer, 1, READ, Trigger::Level)?;
    rig.quiet();
    let soon = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let once = Itimerspec { it_interval: Timespec::default(), it_value: soon };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).expect("a valid time");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rustix::io::read(&timer, &mut [0u8; 8]).expect("it expired");
    rig.quiet();
    Ok(())
}

fn instance(watched: impl AsFd) -> OwnedFd {
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an instance");
    let data = epoll::EventData::new_u64(0);
    epoll::add(&instance, watched, data, epoll::EventFlags::IN).expect("a pollable file");
    instance
}

fn an_epoll_instance_is_readable_while_something_is_ready(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    rig.add(&inner, 1, READ, Trigger::Level)?;
    rig.quiet();
    writer.write(1).expect("room");
    for _ in 0..2 {
        assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    }
    reader.read(8).expect("it was written");
    rig.quiet();
    Ok(())
}

fn an_epoll_instance_can_be_watched_by_edge(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    rig.add(&inner, 1, READ, Trigger::Edge)?;
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.settled(), [(1, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn an_epoll_instance_can_be_watched_once(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    rig.add(&inner, 1, READ, Trigger::Oneshot)?;
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    rig.modify(&inner, 1, READ, Trigger::Oneshot)?;
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    rig.quiet();
    Ok(())
}

fn two_levels_of_epoll_instances_can_be_watched(rig: &mut Rig) -> CaseResult {
    rig.needs_kernel()?;
    let (reader, writer) = rig.pipe();
    let inner = instance(&reader);
    let outer = instance(&inner);
    rig.add(&outer, 1, READ, Trigger::Level)?;
    rig.quiet();
    writer.write(1).expect("room");
    assert_eq!(rig.found(), [(1, Readiness::READABLE)]);
    reader.read(8).expect("it was written");
    // The readiness of nested instances is looked at again, layer by layer.
    assert!(rig.wait(8, Duration::from_millis(5)).is_empty());
    Ok(())
}
