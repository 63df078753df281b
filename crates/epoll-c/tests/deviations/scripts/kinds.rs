//! Files of which a mechanism may not be able to say that they are ready: with two queues of waiters, by the thread
//! that looks, or by what a look takes away.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT,
    EPOLLPRI, c_int,
};

use super::programs::{falls_asleep, while_another_waits};
use super::{PATIENCE, Subject, ctl, found_on, ready};

/// What a child finds of a pipe and of a listener that it adds when it can open nothing more, and of a client that it
/// cannot accept.
pub(super) fn a_pipe_and_a_listener_are_watched_when_no_number_is_left(
    subject: &Subject,
) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let (reader, _writer) = ready();
    let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let epoll = subject.another().into_number();
        // SAFETY: takes no pointer.
        while (0..31).contains(&unsafe { libc::dup(reader.as_raw_fd()) }) {}
        let none = libc::rlimit { rlim_cur: 32, rlim_max: 32 };
        // SAFETY: reads a live local.
        let mut status = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
        for (fd, data) in [(listener.as_raw_fd(), 1), (reader.as_raw_fd(), 2)] {
            status |= ctl(epoll.as_raw_fd(), EPOLL_CTL_ADD, fd, Some((EPOLLIN as u32, data)));
        }
        let mut seen = 0;
        let end = Instant::now() + PATIENCE;
        while status == 0 && seen != 3 && Instant::now() < end {
            match found_on(epoll.as_raw_fd(), Duration::from_millis(100)) {
                Ok(found) => seen |= found.iter().fold(0, |all, (data, _)| all | *data as c_int),
                Err(errno) => status = errno,
            }
        }
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(if status == 0 { seen } else { 100 + status }) };
    }
    let mut status = 0;
    // SAFETY: writes to a live local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    format!("{}", libc::WEXITSTATUS(status))
}

/// What is found of a file before and after it becomes ready, when it was emptied, and by each trigger; and of a pipe
/// beside it.
fn watched(
    subject: &Subject,
    of: &impl AsRawFd,
    mut make_ready: impl FnMut(),
    mut empty: impl FnMut(),
) -> String {
    let (beside, mut writer) = std::io::pipe().expect("a pipe");
    let fd = of.as_raw_fd();
    let mut seen = vec![(subject.add(of, EPOLLIN, 1), subject.soon())];
    subject.add(&beside, EPOLLIN, 2);
    make_ready();
    seen.push((0, subject.found()));
    seen.push((1, subject.found()));
    empty();
    seen.push((2, subject.soon()));
    writer.write_all(b"x").expect("room");
    seen.push((3, subject.found()));
    make_ready();
    let end = Instant::now() + PATIENCE;
    let mut both = subject.found();
    while both.len() < 2 && Instant::now() < end {
        both = subject.found();
    }
    seen.push((4, both));
    empty();
    let once = (EPOLLIN | EPOLLONESHOT) as u32;
    let deleted = subject.ctl(EPOLL_CTL_DEL, beside.as_raw_fd(), 0, 0);
    seen.push((subject.ctl(EPOLL_CTL_MOD, fd, once, 3), subject.soon()));
    make_ready();
    seen.push((0, subject.found()));
    seen.push((1, subject.soon()));
    seen.push((subject.ctl(EPOLL_CTL_MOD, fd, EPOLLIN as u32, 4), subject.found()));
    empty();
    let waited = while_another_waits(subject.number(), &mut make_ready);
    empty();
    let ended = subject.ctl(EPOLL_CTL_DEL, fd, 0, 0);
    make_ready();
    let after = subject.soon();
    empty();
    format!("{seen:?} {deleted:?} {waited:?} {ended} {after:?}")
}

fn read_some(from: &impl AsRawFd) {
    let mut room = [0_u8; 512];
    // SAFETY: room for as many bytes as are announced.
    unsafe { libc::read(from.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
}

fn write_some(to: &impl AsRawFd) {
    // SAFETY: two bytes of a literal.
    assert_eq!(unsafe { libc::write(to.as_raw_fd(), b"x\n".as_ptr().cast(), 2) }, 2);
}

/// A signal that no other script has.
const SIGNAL: c_int = libc::SIGWINCH;

pub(super) fn a_signalfd_is_reported(subject: &Subject) -> String {
    // SAFETY: a set consists of integers, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a live set and the number of a signal.
    unsafe { libc::sigaddset(&raw mut set, SIGNAL) };
    // SAFETY: a live set; blocked in this thread and in those that it starts.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    // SAFETY: a live set.
    let signals =
        unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    assert!(signals >= 0, "a signalfd");
    // SAFETY: made above.
    let signals = unsafe { OwnedFd::from_raw_fd(signals) };
    let make_ready = || {
        // SAFETY: takes no pointer. Other threads of a test ignore it, as is its default.
        unsafe { libc::raise(SIGNAL) };
    };
    // Of the thread alone: another one that waits does not see it.
    let (beside, mut writer) = std::io::pipe().expect("a pipe");
    let mut seen = vec![(subject.add(&signals, EPOLLIN, 1), subject.soon())];
    subject.add(&beside, EPOLLIN, 2);
    make_ready();
    seen.push((0, subject.found()));
    seen.push((1, subject.found()));
    read_some(&signals);
    seen.push((2, subject.soon()));
    writer.write_all(b"x").expect("room");
    seen.push((3, subject.found()));
    let once = (EPOLLIN | EPOLLONESHOT) as u32;
    subject.ctl(EPOLL_CTL_DEL, beside.as_raw_fd(), 0, 0);
    seen.push((subject.ctl(EPOLL_CTL_MOD, signals.as_raw_fd(), once, 3), subject.soon()));
    make_ready();
    seen.push((0, subject.found()));
    seen.push((1, subject.soon()));
    read_some(&signals);
    format!("{seen:?}")
}

pub(super) fn a_terminal_is_reported(subject: &Subject) -> String {
    let mut ours = -1;
    let mut theirs = -1;
    let none = std::ptr::null_mut();
    // SAFETY: two live locals; a null pointer asks for the defaults.
    let opened =
        unsafe { libc::openpty(&raw mut ours, &raw mut theirs, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0, "a terminal");
    // SAFETY: made above.
    let ours = unsafe { OwnedFd::from_raw_fd(ours) };
    // SAFETY: made above.
    let theirs = unsafe { OwnedFd::from_raw_fd(theirs) };
    // SAFETY: settings consist of integers, for which zero is a value.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: live settings.
    unsafe { libc::cfmakeraw(&raw mut settings) };
    // SAFETY: live settings and an open terminal.
    unsafe { libc::tcsetattr(theirs.as_raw_fd(), libc::TCSANOW, &raw const settings) };
    let seen = [
        watched(subject, &ours, || write_some(&theirs), || read_some(&ours)),
        watched(subject, &theirs, || write_some(&ours), || read_some(&theirs)),
    ];
    subject.add(&ours, EPOLLIN, 7);
    let before = subject.soon();
    drop(theirs);
    let hung_up = subject.found();
    // A terminal that is hung up has what select(2) calls readable.
    format!("{seen:?} {before:?} {:?}", hung_up.iter().map(|(data, _)| data).collect::<Vec<_>>())
}

pub(super) fn a_fifo_for_both_directions_is_reported(subject: &Subject) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fifo");
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL");
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let mut options = OpenOptions::new();
    let fifo = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let fifo: File = fifo.expect("opened");
    watched(subject, &fifo, || write_some(&fifo), || read_some(&fifo))
}

/// News of a file that a look takes away, in a mount namespace of a thread's own. Where that may not be made,
/// nothing is seen by either.
pub(super) fn news_of_the_mounts_are_reported(subject: &Subject) -> String {
    let epoll = subject.number();
    thread::scope(|scope| scope.spawn(move || mounts(epoll)).join().expect("no panic"))
}

fn mounts(epoll: c_int) -> String {
    // SAFETY: takes no pointer; of this thread alone, which ends behind it.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return "none may be made".to_owned();
    }
    let root = c"/".as_ptr();
    let none = std::ptr::null();
    // SAFETY: strings, and null where nothing is needed.
    unsafe { libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) };
    let folder = tempfile::tempdir().expect("a folder");
    let place =
        std::ffi::CString::new(folder.path().as_os_str().as_encoded_bytes()).expect("no NUL");
    let mounts = File::open("/proc/thread-self/mountinfo").expect("of this thread");
    let mut seen = Vec::new();
    // Whether it has news: select(2) has no bit for the error that comes with it.
    let found = |ms| {
        let found = found_on(epoll, Duration::from_millis(ms)).expect("waited");
        found.iter().map(|(_, events)| events & EPOLLPRI as u32).collect::<Vec<_>>()
    };
    for flags in [EPOLLPRI, EPOLLPRI | EPOLLIN] {
        let event = Some((flags as u32, 1));
        ctl(epoll, EPOLL_CTL_ADD, mounts.as_raw_fd(), event);
        seen.push(found(20));
        for _ in 0..3 {
            let tmpfs = c"tmpfs".as_ptr();
            // SAFETY: strings.
            assert_eq!(unsafe { libc::mount(tmpfs, place.as_ptr(), tmpfs, 0, none.cast()) }, 0);
            seen.push(found(400));
            // SAFETY: a string.
            assert_eq!(unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) }, 0);
            seen.push(found(400));
            ctl(epoll, EPOLL_CTL_MOD, mounts.as_raw_fd(), event);
            seen.push(found(20));
        }
        ctl(epoll, EPOLL_CTL_DEL, mounts.as_raw_fd(), None);
    }
    format!("{seen:?}")
}

/// What is found of a listener that is shut down while it is watched, beside what hangs up and what fails.
pub(super) fn a_listener_that_is_shut_down_is_hung_up(subject: &Subject) -> String {
    let seen = [EPOLLIN, EPOLLIN | EPOLLET].map(|flags| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        subject.add(&listener, flags, 1);
        let before = subject.soon();
        // SAFETY: takes no pointer; a socket that is open.
        let shut = unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        let found = subject.found();
        // select(2) has no bit for a hang-up: that is the subject of another script.
        let is_error = |found: &[(u64, u32)]| {
            found.iter().any(|(_, events)| events & libc::EPOLLERR as u32 != 0)
        };
        let seen = (before, shut, found.len(), is_error(&found));
        subject.ctl(EPOLL_CTL_DEL, listener.as_raw_fd(), 0, 0);
        seen
    });
    format!("{seen:?}")
}

/// A listener of two instances: one has taken a connection and is busy, the other waits. Who takes the next?
fn beside_a_busy_one(subject: &Subject, flags: c_int) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.set_nonblocking(true).expect("set");
    let address = listener.local_addr().expect("bound");
    let busy = subject.another();
    busy.add(&listener, EPOLLIN | EPOLLEXCLUSIVE | flags, 1);
    let first = TcpStream::connect(address).expect("connected");
    let mut seen = vec![busy.found()];
    drop((first, listener.accept().expect("the first")));
    subject.add(&listener, EPOLLIN | EPOLLEXCLUSIVE | flags, 2);
    let mut second = None;
    let found = while_another_waits(subject.number(), || {
        second = Some(TcpStream::connect(address).expect("connected"));
    });
    seen.push(found.unwrap_or_default());
    drop((second, listener.accept().expect("the second")));
    format!("{seen:?}")
}

pub(super) fn a_busy_instance_takes_no_exclusive_wake(subject: &Subject) -> String {
    format!("{:?}", [0, EPOLLET].map(|flags| beside_a_busy_one(subject, flags)))
}

/// Four threads wait on one instance for an edge of a file that was added before, and for a second edge: how many it
/// wakes.
pub(super) fn an_edge_wakes_one_of_the_threads_that_wait(subject: &Subject) -> String {
    let subject = &subject.another();
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | EPOLLET, 1);
    let epoll = subject.number();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let woken: usize = thread::scope(|scope| {
            let (sender, tids) = channel();
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        // SAFETY: takes no arguments.
                        sender.send(unsafe { libc::gettid() }).expect("received");
                        found_on(epoll, Duration::from_secs(1)).map_or(0, |found| found.len())
                    })
                })
                .collect();
            assert!(tids.iter().take(4).all(falls_asleep), "a wait has ended");
            peer.write_all(b"x").expect("room");
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        seen.push(woken);
        read_some(&ours);
    }
    format!("{seen:?}")
}

/// What another thread finds of an edge that this one got.
pub(super) fn an_edge_that_was_reported_is_silent_for_a_second_thread(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    let epoll = subject.number();
    let waits = move || [(); 2].map(|()| found_on(epoll, Duration::from_millis(60)));
    let second = thread::scope(|scope| scope.spawn(waits).join().expect("no panic"));
    format!("{first:?} {second:?}")
}

/// An instance that another one watches from now on, while a thread waits: it gets the event, and nothing before.
pub(super) fn a_wait_continues_when_its_instance_is_watched(subject: &Subject) -> String {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let inner = subject.another();
    let outer = subject.another();
    inner.add(&reader, EPOLLIN, 1);
    let mut watched = None;
    let found = while_another_waits(inner.number(), || {
        let added = outer.add(&inner, EPOLLIN, 2);
        // Long enough for a wait that ends too early to do so.
        watched = Some((added, outer.soon()));
        writer.write_all(b"x").expect("room");
    });
    format!("{found:?} {watched:?} {:?}", outer.found())
}
