//! Scripts that run on the kernel's epoll and on every mechanism: each answers what it saw.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT,
    epoll_event,
};

use crate::subject::Subject;

/// A name and what happens.
pub(crate) type Script = (&'static str, fn(&Subject) -> String);

macro_rules! scripts {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name)),*] };
}

pub(crate) const SCRIPTS: &[Script] = scripts![
    a_level_repeats_until_it_is_read,
    an_edge_is_reported_once,
    an_edge_is_reported_again_after_mod,
    an_edge_that_was_emptied_comes_again,
    an_edge_that_was_left_comes_again_with_more,
    an_edge_for_room_comes_again_when_there_is_some,
    an_edge_with_oneshot_is_silent_until_mod,
    an_edge_reports_all_that_holds,
    a_oneshot_reports_all_that_holds,
    a_oneshot_is_reported_once_for_each_mod,
    a_disarmed_oneshot_is_silent_about_a_hang_up,
    what_was_read_before_the_wait_is_silent,
    a_file_closed_without_del_is_closed,
    a_file_closed_after_del_is_closed,
    a_number_used_again_without_add_is_silent,
    a_number_used_again_can_be_added,
    a_duplicate_keeps_a_registration,
    a_duplicate_is_a_registration_of_its_own,
    another_eventfd_of_the_number_is_another_file,
    a_hang_up_has_a_bit_of_its_own,
    a_hang_up_is_reported_without_interest,
    the_end_of_the_peers_writing_has_a_bit,
    normal_data_has_a_name_of_its_own,
    bands_are_reported,
    unknown_and_ignored_flags_are_taken,
    poll_sees_that_an_instance_is_ready,
    a_child_shares_the_instance,
    a_new_program_has_the_registrations,
    a_new_program_can_use_the_number,
    files_without_readiness_are_refused,
    exclusive_goes_by_its_rules,
];

/// A pipe whose ends are high numbers, which no other test takes when they are free.
fn high_pipe(at: RawFd) -> (OwnedFd, PipeWriter) {
    let (reader, writer) = pipe().expect("a pipe");
    (at_number(&reader, at), writer)
}

fn at_number(of: &impl AsRawFd, at: RawFd) -> OwnedFd {
    // SAFETY: makes a new descriptor and touches no memory.
    let fd = unsafe { libc::fcntl(of.as_raw_fd(), libc::F_DUPFD_CLOEXEC, at) };
    assert_eq!(fd, at, "the number is free");
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn ready() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    writer.write_all(b"x").expect("room");
    (reader, writer)
}

fn eventfd() -> OwnedFd {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    assert!(fd >= 0, "an eventfd");
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn a_level_repeats_until_it_is_read(subject: &Subject) -> String {
    let (mut reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, u64::MAX);
    let seen = [subject.found(), subject.found()];
    reader.read_exact(&mut [0]).expect("a byte");
    format!("{seen:?} {:?}", subject.soon())
}

fn an_edge_is_reported_once(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    format!("{:?} {:?}", subject.found(), subject.soon())
}

fn an_edge_is_reported_again_after_mod(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    let flags = (EPOLLIN | EPOLLET) as u32;
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), flags, 2);
    let second = subject.found();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {second:?} {:?}", subject.found())
}

fn an_edge_that_was_emptied_comes_again(subject: &Subject) -> String {
    let (mut reader, mut writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    reader.read_exact(&mut [0]).expect("a byte");
    let emptied = subject.soon();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {emptied:?} {:?}", subject.found())
}

fn an_edge_that_was_left_comes_again_with_more(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {:?}", subject.found())
}

fn an_edge_for_room_comes_again_when_there_is_some(subject: &Subject) -> String {
    let (mut ours, mut peer) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    peer.set_nonblocking(true).expect("set");
    subject.add(&ours, EPOLLOUT | EPOLLET, 1);
    let first = subject.found();
    while ours.write(&[0; 4096]).is_ok() {}
    let full = subject.soon();
    while peer.read(&mut [0; 4096]).is_ok() {}
    format!("{first:?} {full:?} {:?}", subject.found())
}

fn an_edge_with_oneshot_is_silent_until_mod(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    let once = EPOLLIN | EPOLLET | EPOLLONESHOT;
    subject.add(&reader, once, 1);
    let mut seen = vec![subject.found()];
    writer.write_all(b"x").expect("room");
    seen.push(subject.soon());
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), once as u32, 2);
    seen.push(subject.found());
    format!("{seen:?}")
}

fn an_edge_reports_all_that_holds(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    let first = subject.found();
    peer.write_all(b"x").expect("room");
    format!("{first:?} {:?}", subject.found())
}

fn a_oneshot_reports_all_that_holds(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | libc::EPOLLRDHUP | EPOLLONESHOT, 1);
    let before = subject.soon();
    peer.write_all(b"x").expect("room");
    peer.shutdown(Shutdown::Write).expect("shut down");
    format!("{before:?} {:?}", subject.found())
}

fn a_oneshot_is_reported_once_for_each_mod(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let once = EPOLLIN | EPOLLONESHOT;
    subject.add(&reader, once, 1);
    let mut seen = vec![subject.found(), subject.soon()];
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), once as u32, 2);
    seen.extend([subject.found(), subject.soon()]);
    format!("{seen:?}")
}

fn a_disarmed_oneshot_is_silent_about_a_hang_up(subject: &Subject) -> String {
    let (reader, writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLONESHOT, 1);
    let first = subject.found();
    drop(writer);
    format!("{first:?} {:?}", subject.soon())
}

fn what_was_read_before_the_wait_is_silent(subject: &Subject) -> String {
    let (mut reader, mut writer) = pipe().expect("a pipe");
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    writer.write_all(b"x").expect("room");
    reader.read_exact(&mut [0]).expect("a byte");
    format!("{before:?} {:?} {:?}", subject.soon(), subject.soon())
}

/// What the peer of a closed socket hears.
fn after_close(subject: &Subject, is_deleted: bool) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.set_nonblocking(true).expect("set");
    subject.add(&ours, EPOLLIN, 1);
    let before = subject.soon();
    if is_deleted {
        subject.ctl(EPOLL_CTL_DEL, ours.as_raw_fd(), 0, 0);
    }
    drop(ours);
    let after = subject.soon();
    let heard = peer.read(&mut [0]).map_err(|error| error.kind());
    format!("{before:?} {after:?} {heard:?}")
}

fn a_file_closed_without_del_is_closed(subject: &Subject) -> String {
    after_close(subject, false)
}

fn a_file_closed_after_del_is_closed(subject: &Subject) -> String {
    after_close(subject, true)
}

fn a_number_used_again_without_add_is_silent(subject: &Subject) -> String {
    let (reader, _writer) = high_pipe(600);
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    drop(reader);
    let (other, _other) = ready();
    let _other = at_number(&other, 600);
    format!("{before:?} {:?}", subject.soon())
}

fn a_number_used_again_can_be_added(subject: &Subject) -> String {
    let (reader, writer) = high_pipe(601);
    subject.add(&reader, EPOLLIN, 1);
    drop((reader, writer));
    let (other, _other) = ready();
    let other = at_number(&other, 601);
    let modified = subject.ctl(EPOLL_CTL_MOD, other.as_raw_fd(), EPOLLIN as u32, 2);
    let deleted = subject.ctl(EPOLL_CTL_DEL, other.as_raw_fd(), 0, 0);
    let added = subject.add(&other, EPOLLIN, 3);
    format!("{modified} {deleted} {added} {:?}", subject.found())
}

fn a_duplicate_keeps_a_registration(subject: &Subject) -> String {
    let (reader, mut writer) = high_pipe(602);
    let twin = reader.try_clone().expect("a duplicate");
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    drop(reader);
    writer.write_all(b"x").expect("room");
    let after = subject.soon();
    drop(twin);
    format!("{before:?} {after:?}")
}

fn a_duplicate_is_a_registration_of_its_own(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let twin = reader.try_clone().expect("a duplicate");
    let added = [subject.add(&reader, EPOLLIN, 1), subject.add(&twin, EPOLLIN, 2)];
    let mut seen = subject.found();
    for _ in 0..20 {
        seen.extend(subject.found());
        seen.sort_unstable();
        seen.dedup();
        if seen.len() > 1 {
            break;
        }
    }
    subject.ctl(EPOLL_CTL_DEL, twin.as_raw_fd(), 0, 0);
    format!("{added:?} {seen:?} {:?}", subject.found())
}

fn another_eventfd_of_the_number_is_another_file(subject: &Subject) -> String {
    let first = at_number(&eventfd(), 603);
    subject.add(&first, EPOLLIN, 1);
    drop(first);
    let second = at_number(&eventfd(), 603);
    format!("{}", subject.add(&second, EPOLLIN, 2))
}

fn a_hang_up_has_a_bit_of_its_own(subject: &Subject) -> String {
    let (reader, writer) = pipe().expect("a pipe");
    subject.add(&reader, EPOLLIN, 1);
    drop(writer);
    format!("{:?}", subject.found())
}

fn a_hang_up_is_reported_without_interest(subject: &Subject) -> String {
    let (reader, writer) = pipe().expect("a pipe");
    subject.add(&reader, 0, 1);
    drop(writer);
    format!("{:?}", subject.soon())
}

fn the_end_of_the_peers_writing_has_a_bit(subject: &Subject) -> String {
    let (ours, peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | libc::EPOLLRDHUP, 1);
    peer.shutdown(Shutdown::Write).expect("shut down");
    format!("{:?}", subject.found())
}

fn normal_data_has_a_name_of_its_own(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.write_all(b"x").expect("room");
    subject.add(&ours, libc::EPOLLRDNORM | libc::EPOLLWRNORM, 1);
    format!("{:?}", subject.found())
}

fn bands_are_reported(subject: &Subject) -> String {
    let (ours, _peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLOUT | libc::EPOLLWRBAND, 1);
    format!("{:?}", subject.found())
}

fn unknown_and_ignored_flags_are_taken(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let flags = EPOLLIN as u32 | libc::EPOLLWAKEUP as u32 | 1 << 20;
    let added = subject.ctl(EPOLL_CTL_ADD, reader.as_raw_fd(), flags, 1);
    format!("{added} {:?}", subject.found())
}

fn poll_sees_that_an_instance_is_ready(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let mut fd = libc::pollfd { fd: subject.number(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one element at a live local.
    let found = unsafe { libc::poll(&raw mut fd, 1, 20) };
    format!("{found} {:?}", subject.found())
}

fn a_child_shares_the_instance(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let fd = reader.as_raw_fd();
    subject.instances().before_fork();
    // SAFETY: the child makes a few system calls and ends; nothing of what it uses is locked by
    // another thread, which the hooks see to.
    let child = unsafe { libc::fork() };
    if child == 0 {
        subject.instances().after_fork_in_child();
        let deleted = subject.ctl(EPOLL_CTL_DEL, fd, 0, 0);
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(deleted) };
    }
    subject.instances().after_fork_in_parent();
    let mut status = 0;
    // SAFETY: writes to a live local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    format!("{} {status} {:?}", ended == child, subject.soon())
}

/// A further number, which a new program has too.
fn inheritable(fd: RawFd) -> OwnedFd {
    // SAFETY: makes a new number and touches no memory.
    let number = unsafe { libc::dup(fd) };
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// What a wait finds on the number in another program, which adds `more` before.
fn in_a_new_program(subject: &Subject, more: &[RawFd]) -> String {
    let inherited = inheritable(subject.number());
    let words =
        [&[inherited.as_raw_fd()], more].concat().iter().map(RawFd::to_string).collect::<Vec<_>>();
    let mut program = Command::new(std::env::current_exe().expect("the own path"));
    program.args(["--exact", NEW_PROGRAM]).env(NUMBERS, words.join(" "));
    let output = program.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = said.lines().find(|line| line.starts_with("found "));
    found.unwrap_or_else(|| panic!("{number}: {said}", number = subject.number())).to_owned()
}

/// The test that [`in_a_new_program`] starts.
pub(crate) const NEW_PROGRAM: &str = "this_is_a_new_program";
const NUMBERS: &str = "POLLUX_TEST_NUMBERS";

/// Waits on the first of the numbers that were handed over, once the others were added, and says what came.
pub(crate) fn be_a_new_program() {
    let Ok(numbers) = std::env::var(NUMBERS) else { return };
    let mut numbers = numbers.split(' ').map(|number| number.parse::<RawFd>().expect("a number"));
    let epoll = numbers.next().expect("the instance");
    for fd in numbers {
        let mut event = epoll_event { events: EPOLLIN as u32, u64: 7 };
        // SAFETY: leads to a live local.
        let added = unsafe { libc::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &raw mut event) };
        assert_eq!(added, 0, "{}", std::io::Error::last_os_error());
    }
    let mut room = [epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for as many events as said.
    let found = unsafe { libc::epoll_wait(epoll, room.as_mut_ptr(), 4, 60) };
    let found = usize::try_from(found).expect("it is an epoll");
    let data: Vec<u64> = room[..found].iter().map(|event| event.u64).collect();
    let line = format!("\nfound {data:?}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("it is read");
}

fn a_new_program_has_the_registrations(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    in_a_new_program(subject, &[])
}

fn a_new_program_can_use_the_number(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let inherited = inheritable(reader.as_raw_fd());
    in_a_new_program(subject, &[inherited.as_raw_fd()])
}

fn files_without_readiness_are_refused(subject: &Subject) -> String {
    let refused = |path: &str, options: &mut std::fs::OpenOptions| {
        let file = options.open(path).expect("everywhere");
        [subject.add(&file, EPOLLIN, 1), subject.ctl(EPOLL_CTL_DEL, file.as_raw_fd(), 0, 0)]
    };
    let mut read = std::fs::OpenOptions::new();
    read.read(true);
    let mut seen: Vec<[i32; 2]> = ["/proc/self/exe", "/", "/dev/null", "/proc/self/mounts"]
        .map(|path| refused(path, &mut read))
        .into();
    use std::os::unix::fs::OpenOptionsExt;
    seen.push(refused("/", read.custom_flags(libc::O_PATH)));
    format!("{seen:?}")
}

fn exclusive_goes_by_its_rules(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let alone = EPOLLIN | libc::EPOLLEXCLUSIVE;
    let fd = reader.as_raw_fd();
    let refused = [
        subject.add(&reader, alone | EPOLLONESHOT, 1),
        subject.add(&reader, alone | libc::EPOLLPRI, 1),
        subject.add(&reader, alone | libc::EPOLLRDHUP, 1),
        subject.ctl(EPOLL_CTL_MOD, fd, alone as u32, 1),
    ];
    let added = subject.add(&reader, alone, 1);
    let modified = subject.ctl(EPOLL_CTL_MOD, fd, EPOLLIN as u32, 1);
    let seen = subject.found();
    format!("{refused:?} {added} {modified} {seen:?} {}", subject.ctl(EPOLL_CTL_DEL, fd, 0, 0))
}
