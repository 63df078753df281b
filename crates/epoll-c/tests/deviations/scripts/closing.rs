//! What EPOLL_CTL_DEL and close(2) have done when they come back: nothing waits between them and the look at the
//! peer. `programs.rs` has the same with a wait between.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, c_int};

use super::programs::{close_range, read_in_time, while_another_waits};
use super::{Subject, ctl, found_on};

/// What the peer of a socket sees now, once `close` has ended its registration and closed it: an end, or nothing.
fn end_at_once(subject: &Subject, flags: c_int, close: impl FnOnce(RawFd)) -> String {
    let (ours, peer) = UnixStream::pair().expect("a pair");
    peer.set_nonblocking(true).expect("set");
    subject.add(&ours, flags, 1);
    let before = subject.soon();
    close(ours.into_raw_fd());
    format!("{before:?} {:?}", seen_by(&peer))
}

fn seen_by(mut peer: &UnixStream) -> Result<usize, ErrorKind> {
    peer.read(&mut [0]).map_err(|error| error.kind())
}

fn delete(subject: &Subject, fd: RawFd) {
    assert_eq!(subject.ctl(EPOLL_CTL_DEL, fd, 0, 0), 0);
}

fn close(fd: RawFd) {
    // SAFETY: a number of a script's alone.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

pub(super) fn a_file_closed_after_del_ends_at_once(subject: &Subject) -> String {
    let seen = [EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT].map(|flags| {
        end_at_once(subject, flags, |fd| {
            delete(subject, fd);
            close(fd);
        })
    });
    format!("{seen:?}")
}

/// What is written to a pipe whose reader was taken out and closed.
pub(super) fn a_pipe_closed_after_del_is_broken_at_once(subject: &Subject) -> String {
    let seen = [(); 10].map(|()| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        subject.add(&reader, EPOLLIN, 1);
        let before = subject.wait(Duration::ZERO);
        delete(subject, reader.as_raw_fd());
        drop(reader);
        (before, writer.write(b"x").map_err(|error| error.kind()))
    });
    format!("{seen:?}")
}

pub(super) fn a_file_closed_without_del_ends_at_once(subject: &Subject) -> String {
    let closes: [fn(RawFd); 4] = [
        close,
        |fd| assert_eq!(close_range(fd.unsigned_abs(), fd.unsigned_abs(), 0), 0),
        |fd| {
            // SAFETY: a number of this script's alone, and a string.
            let stream = unsafe { libc::fdopen(fd, c"r+".as_ptr()) };
            assert!(!stream.is_null(), "a stream");
            // SAFETY: made above.
            assert_eq!(unsafe { libc::fclose(stream) }, 0);
        },
        |fd| {
            let other = std::io::pipe().expect("a pipe").0;
            // SAFETY: takes no pointer; the number is this script's.
            assert_eq!(unsafe { libc::dup3(other.as_raw_fd(), fd, libc::O_CLOEXEC) }, fd);
            // SAFETY: it names the pipe, which nothing else owns.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        },
    ];
    format!("{:?}", closes.map(|close| end_at_once(subject, EPOLLIN, close)))
}

/// Whether a closed listener still takes a connection, and whether its port can be bound again. Each is tried ten
/// times, as one that is refused only a moment later is seldom seen.
fn closed_listeners(subject: &Subject, is_deleted: bool) -> String {
    let mut seen = Vec::new();
    for _ in 0..10 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address: SocketAddr = listener.local_addr().expect("bound");
        subject.add(&listener, EPOLLIN, 1);
        let before = subject.wait(Duration::ZERO);
        let fd = listener.into_raw_fd();
        if is_deleted {
            delete(subject, fd);
        }
        close(fd);
        let connected = TcpStream::connect(address).map_err(|error| error.kind()).map(drop);
        let bound = TcpListener::bind(address).map_err(|error| error.kind()).map(drop);
        seen.push((before, connected, bound));
    }
    format!("{seen:?}")
}

pub(super) fn a_listener_closed_after_del_takes_nobody(subject: &Subject) -> String {
    closed_listeners(subject, true)
}

pub(super) fn a_listener_closed_without_del_takes_nobody(subject: &Subject) -> String {
    closed_listeners(subject, false)
}

/// An address of this thread's alone: nobody else listens there at a port that was given back.
fn own_address() -> Ipv4Addr {
    // SAFETY: takes no pointer.
    let [_, high, middle, low] = unsafe { libc::gettid() }.to_be_bytes();
    Ipv4Addr::new(127, 64 + high, middle, low)
}

/// All are deleted first, then all are closed, by which no time passes that a program would notice.
pub(super) fn many_listeners_deleted_before_their_closes_take_nobody(subject: &Subject) -> String {
    let subject = subject.another();
    let address = own_address();
    let bind = |_| TcpListener::bind((address, 0)).expect("a port");
    let listeners: Vec<TcpListener> = (0..100).map(bind).collect();
    let addresses: Vec<SocketAddr> =
        listeners.iter().map(|one| one.local_addr().expect("bound")).collect();
    for one in &listeners {
        subject.add(one, EPOLLIN, 1);
    }
    let before = subject.wait(Duration::ZERO);
    listeners.iter().for_each(|one| delete(&subject, one.as_raw_fd()));
    let began = Instant::now();
    listeners.into_iter().for_each(|one| close(one.into_raw_fd()));
    let is_fast = began.elapsed() < Duration::from_secs(2);
    let taken = addresses.iter().filter(|address| TcpStream::connect(address).is_ok()).count();
    format!("{before:?} {is_fast} {taken}")
}

/// A socket is registered, and waited for, before it listens.
pub(super) fn a_socket_that_listens_after_its_add_takes_nobody_once_closed(
    subject: &Subject,
) -> String {
    let mut seen = Vec::new();
    for _ in 0..10 {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: made above, and of nobody else.
        let socket = TcpListener::from(unsafe { OwnedFd::from_raw_fd(fd) });
        subject.add(&socket, EPOLLIN, 1);
        // It is hung up, until it listens.
        subject.wait(Duration::ZERO);
        // SAFETY: takes no pointer. It is bound to a port of the kernel's choice.
        assert_eq!(unsafe { libc::listen(fd, 5) }, 0);
        let mut address = socket.local_addr().expect("bound");
        address.set_ip(own_address().into());
        subject.wait(Duration::ZERO);
        subject.wait(Duration::ZERO);
        let client = TcpStream::connect(address).expect("it listens");
        let found = subject.found();
        let found: Vec<u64> = found.iter().map(|(data, _)| *data).collect();
        drop((client, socket.accept().expect("a client")));
        delete(subject, fd);
        close(socket.into_raw_fd());
        let connected = TcpStream::connect(address).map_err(|error| error.kind()).map(drop);
        seen.push((found, connected));
    }
    format!("{seen:?}")
}

/// The same while another thread waits, which holds what is watched.
pub(super) fn a_file_closed_after_del_beside_a_wait_ends_at_once(subject: &Subject) -> String {
    let (ours, peer) = UnixStream::pair().expect("a pair");
    let (waker, mut wakes) = UnixStream::pair().expect("a pair");
    peer.set_nonblocking(true).expect("set");
    subject.add(&ours, EPOLLIN, 1);
    subject.add(&waker, EPOLLIN, 2);
    let mut seen = None;
    let found = while_another_waits(subject.number(), || {
        delete(subject, ours.as_raw_fd());
        drop(ours);
        seen = Some(seen_by(&peer));
        wakes.write_all(b"x").expect("room");
    });
    format!("{found:?} {seen:?}")
}

/// What a thread has waited for, another one closes: the end comes, if not at once.
pub(super) fn a_file_that_another_thread_closes_ends(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    subject.add(&ours, EPOLLIN, 1);
    let before = subject.soon();
    let epoll = subject.number();
    thread::scope(|scope| {
        let (sender, done) = channel();
        scope.spawn(move || {
            ctl(epoll, EPOLL_CTL_DEL, ours.as_raw_fd(), None);
            drop(ours);
            sender.send(()).expect("received");
        });
        done.recv().expect("sent");
        let read = read_in_time(&mut peer);
        // From the second on it is at once.
        let (ours, peer) = UnixStream::pair().expect("a pair");
        peer.set_nonblocking(true).expect("set");
        subject.add(&ours, EPOLLIN, 2);
        let again = subject.soon();
        let second = scope.spawn(move || {
            ctl(epoll, EPOLL_CTL_DEL, ours.as_raw_fd(), None);
            drop(ours);
        });
        second.join().expect("no panic");
        format!("{before:?} {read:?} {again:?} {:?}", seen_by(&peer))
    })
}

/// An instance that is closed lets go of what it watched, also where another thread waits on it.
pub(super) fn a_file_of_a_closed_instance_ends_at_once(subject: &Subject) -> String {
    let seen = [false, true].map(|is_waited_on| {
        let (ours, peer) = UnixStream::pair().expect("a pair");
        peer.set_nonblocking(true).expect("set");
        let (other, mut writer) = std::io::pipe().expect("a pipe");
        let number = subject.another().into_number();
        let epoll = number.as_raw_fd();
        for (fd, data) in [(ours.as_raw_fd(), 1), (other.as_raw_fd(), 2)] {
            ctl(epoll, EPOLL_CTL_ADD, fd, Some((EPOLLIN as u32, data)));
        }
        // The thread that waits is the first: what another one watched by a ring of its own is let go of later.
        let before = (!is_waited_on).then(|| found_on(epoll, Duration::ZERO));
        let close = || {
            drop((number, ours));
            let seen = seen_by(&peer);
            // Ends the wait of the kernel's own.
            writer.write_all(b"x").expect("room");
            seen
        };
        let mut seen = None;
        if is_waited_on {
            // What that found is the subject of another script.
            let _ = while_another_waits(epoll, || seen = Some(close()));
        } else {
            seen = Some(close());
        }
        format!("{before:?} {seen:?}")
    });
    format!("{seen:?}")
}

/// What the peer of a file sees once waitpid(2) has said that the process which watched it is over.
fn end_with_its_process(subject: &Subject, end: fn()) -> String {
    let (ours, peer) = UnixStream::pair().expect("a pair");
    peer.set_nonblocking(true).expect("set");
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let epoll = subject.another().into_number().into_raw_fd();
        ctl(epoll, EPOLL_CTL_ADD, ours.as_raw_fd(), Some((EPOLLIN as u32, 1)));
        let _ = found_on(epoll, Duration::ZERO);
        end();
    }
    drop(ours);
    // SAFETY: no status is asked for.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    format!("{:?}", seen_by(&peer))
}

pub(super) fn a_file_of_a_process_that_is_killed_ends_with_it(subject: &Subject) -> String {
    end_with_its_process(subject, || {
        // SAFETY: ends the child and nothing else.
        unsafe { libc::raise(libc::SIGKILL) };
    })
}

pub(super) fn a_file_of_a_process_that_exits_ends_with_it(subject: &Subject) -> String {
    // SAFETY: as above; what the test has to do at its end is none of the child's.
    end_with_its_process(subject, || unsafe { libc::exit(0) })
}

/// The port of a process that listened and was killed can be bound once that was waited for, each of 30 times.
pub(super) fn a_port_of_a_process_that_is_killed_is_free(subject: &Subject) -> String {
    let seen = [EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLEXCLUSIVE].map(|events| {
        let bound = (0..10).map(|_| {
            let listener = TcpListener::bind((own_address(), 0)).expect("a port");
            let address = listener.local_addr().expect("bound");
            watched_by_one_that_is_killed(subject, listener, events);
            TcpListener::bind(address).map(drop).map_err(|error| error.kind())
        });
        bound.filter(Result::is_ok).count()
    });
    format!("{seen:?}")
}

/// The same of a port of UDP, each of 20 times.
pub(super) fn a_udp_port_of_a_process_that_is_killed_is_free(subject: &Subject) -> String {
    let seen = [EPOLLIN, EPOLLIN | EPOLLET].map(|events| {
        let bound = (0..10).map(|_| {
            let socket = UdpSocket::bind((own_address(), 0)).expect("a port");
            let address = socket.local_addr().expect("bound");
            watched_by_one_that_is_killed(subject, socket, events);
            UdpSocket::bind(address).map(drop).map_err(|error| error.kind())
        });
        bound.filter(Result::is_ok).count()
    });
    format!("{seen:?}")
}

/// A child watches a socket that nobody else has open, is killed, and is waited for.
fn watched_by_one_that_is_killed(subject: &Subject, socket: impl AsRawFd, events: c_int) {
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let epoll = subject.another().into_number().into_raw_fd();
        ctl(epoll, EPOLL_CTL_ADD, socket.as_raw_fd(), Some((events as u32, 1)));
        let _ = found_on(epoll, Duration::ZERO);
        // SAFETY: ends the child and nothing else.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    drop(socket);
    // SAFETY: no status is asked for.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
}

/// A child that uses the instance and ends by exit(3) takes nothing of its parent's with it.
pub(super) fn a_child_that_exits_leaves_the_instance_to_its_parent(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN, 1);
    let before = subject.soon();
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = found_on(subject.number(), Duration::ZERO);
        // SAFETY: what the test has to do at its end is none of the child's.
        unsafe { libc::exit(0) };
    }
    // SAFETY: no status is asked for.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    peer.write_all(b"x").expect("room");
    format!("{before:?} {:?}", subject.found())
}

/// Threads wait on an instance, or only look again and again, while their process ends by exit(3): it ends.
pub(super) fn a_process_whose_threads_wait_can_exit(subject: &Subject) -> String {
    let seen = [None, Some(Duration::ZERO)].map(|timeout| {
        // SAFETY: the child makes system calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: takes no pointer. It ends a child that does not end by itself.
            unsafe { libc::alarm(30) };
            let epoll = subject.another().into_number().into_raw_fd();
            let (ours, peer) = UnixStream::pair().expect("a pair");
            ctl(epoll, EPOLL_CTL_ADD, ours.as_raw_fd(), Some((EPOLLIN as u32, 1)));
            let (sender, began) = channel();
            for _ in 0..2 {
                let sender = sender.clone();
                thread::spawn(move || {
                    sender.send(()).expect("received");
                    while found_on(epoll, timeout.unwrap_or(Duration::from_secs(60))).is_ok() {}
                });
            }
            (0..2).for_each(|_| began.recv().expect("sent"));
            std::mem::forget((ours, peer));
            // SAFETY: as above.
            unsafe { libc::exit(7) };
        }
        let mut status = 0;
        // SAFETY: writes to a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    });
    format!("{seen:?}")
}

/// An instance after a program has closed every number behind it that it did not open: in a child, which has no
/// other file there.
pub(super) fn an_instance_lives_on_when_all_behind_it_is_closed(subject: &Subject) -> String {
    let mut seen = Vec::new();
    for close_all in [
        by_closefrom as fn(c_int),
        by_close_range,
        one_by_one,
        by_dup2,
        by_the_number_of_close_range,
        one_by_one_by_number,
    ] {
        // SAFETY: the child makes system calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = survives(subject, close_all);
            // SAFETY: ends the child and nothing else.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: writes to a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        seen.push(status);
    }
    format!("{seen:?}")
}

/// The numbers behind which nothing of the test is open.
const BEHIND: c_int = 620;

/// How many events of three an instance found, in three waits of which the second is behind `close_all`.
fn survives(subject: &Subject, close_all: fn(c_int)) -> c_int {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let all: Vec<OwnedFd> = (0..BEHIND)
        .map_while(|_| reader.try_clone().ok().filter(|one| one.as_raw_fd() < BEHIND))
        .map(OwnedFd::from)
        .collect();
    let epoll = subject.another().into_number();
    writer.write_all(b"x").expect("room");
    let epoll = epoll.as_raw_fd();
    ctl(epoll, EPOLL_CTL_ADD, reader.as_raw_fd(), Some((EPOLLIN as u32, 1)));
    let mut found = 0;
    for close in [|_: c_int| (), close_all, |_: c_int| ()] {
        close(epoll + 1);
        found +=
            found_on(epoll, Duration::from_millis(300)).map_or(0, |found| found.len() as c_int);
    }
    std::mem::forget(all);
    found
}

fn by_closefrom(first: c_int) {
    // The C library's function, which the crate libc does not have.
    unsafe extern "C" {
        fn closefrom(first: c_int);
    }
    // SAFETY: takes no pointer; nothing behind the number is used again.
    unsafe { closefrom(first) };
}

fn by_close_range(first: c_int) {
    close_range(first.unsigned_abs(), u32::MAX, 0);
}

fn by_the_number_of_close_range(first: c_int) {
    // SAFETY: takes no pointer; nothing behind the number is used again.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    assert_eq!(closed, 0);
}

fn one_by_one_by_number(first: c_int) {
    for fd in first..first + 64 {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
}

fn one_by_one(first: c_int) {
    for fd in first..first + 64 {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

fn by_dup2(first: c_int) {
    for fd in first..first + 64 {
        // SAFETY: takes no pointer; nothing behind the number is used again.
        unsafe { libc::dup2(0, fd) };
    }
}
