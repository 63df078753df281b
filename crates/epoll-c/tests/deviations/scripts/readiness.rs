//! When a condition is reported, how often, and by which bits.

use std::io::{Read, Write, pipe};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT};

use super::ready;
use crate::subject::Subject;

pub(super) fn a_level_repeats_until_it_is_read(subject: &Subject) -> String {
    let (mut reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, u64::MAX);
    let seen = [subject.found(), subject.found()];
    reader.read_exact(&mut [0]).expect("a byte");
    format!("{seen:?} {:?}", subject.soon())
}

pub(super) fn an_edge_is_reported_once(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    format!("{:?} {:?}", subject.found(), subject.soon())
}

pub(super) fn an_edge_is_reported_again_after_mod(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    let flags = (EPOLLIN | EPOLLET) as u32;
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), flags, 2);
    let second = subject.found();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {second:?} {:?}", subject.found())
}

pub(super) fn an_edge_that_was_emptied_comes_again(subject: &Subject) -> String {
    let (mut reader, mut writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    reader.read_exact(&mut [0]).expect("a byte");
    let emptied = subject.soon();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {emptied:?} {:?}", subject.found())
}

pub(super) fn an_edge_that_was_left_comes_again_with_more(subject: &Subject) -> String {
    let (reader, mut writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLET, 1);
    let first = subject.found();
    writer.write_all(b"x").expect("room");
    format!("{first:?} {:?}", subject.found())
}

pub(super) fn an_edge_for_room_comes_again_when_there_is_some(subject: &Subject) -> String {
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

pub(super) fn an_edge_with_oneshot_is_silent_until_mod(subject: &Subject) -> String {
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

pub(super) fn an_edge_reports_all_that_holds(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    let first = subject.found();
    peer.write_all(b"x").expect("room");
    format!("{first:?} {:?}", subject.found())
}

pub(super) fn a_oneshot_reports_all_that_holds(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | libc::EPOLLRDHUP | EPOLLONESHOT, 1);
    let before = subject.soon();
    peer.write_all(b"x").expect("room");
    peer.shutdown(Shutdown::Write).expect("shut down");
    format!("{before:?} {:?}", subject.found())
}

pub(super) fn a_oneshot_is_reported_once_for_each_mod(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let once = EPOLLIN | EPOLLONESHOT;
    subject.add(&reader, once, 1);
    let mut seen = vec![subject.found(), subject.soon()];
    subject.ctl(EPOLL_CTL_MOD, reader.as_raw_fd(), once as u32, 2);
    seen.extend([subject.found(), subject.soon()]);
    format!("{seen:?}")
}

pub(super) fn a_disarmed_oneshot_is_silent_about_a_hang_up(subject: &Subject) -> String {
    let (reader, writer) = ready();
    subject.add(&reader, EPOLLIN | EPOLLONESHOT, 1);
    let first = subject.found();
    drop(writer);
    format!("{first:?} {:?}", subject.soon())
}

pub(super) fn what_was_read_before_the_wait_is_silent(subject: &Subject) -> String {
    let (mut reader, mut writer) = pipe().expect("a pipe");
    subject.add(&reader, EPOLLIN, 1);
    let before = subject.soon();
    writer.write_all(b"x").expect("room");
    reader.read_exact(&mut [0]).expect("a byte");
    format!("{before:?} {:?} {:?}", subject.soon(), subject.soon())
}

pub(super) fn a_hang_up_has_a_bit_of_its_own(subject: &Subject) -> String {
    let (reader, writer) = pipe().expect("a pipe");
    subject.add(&reader, EPOLLIN, 1);
    drop(writer);
    format!("{:?}", subject.found())
}

pub(super) fn a_hang_up_is_reported_without_interest(subject: &Subject) -> String {
    let (reader, writer) = pipe().expect("a pipe");
    subject.add(&reader, 0, 1);
    drop(writer);
    format!("{:?}", subject.soon())
}

pub(super) fn the_end_of_the_peers_writing_has_a_bit(subject: &Subject) -> String {
    let (ours, peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLIN | libc::EPOLLRDHUP, 1);
    peer.shutdown(Shutdown::Write).expect("shut down");
    format!("{:?}", subject.found())
}

pub(super) fn normal_data_has_a_name_of_its_own(subject: &Subject) -> String {
    let (ours, mut peer) = UnixStream::pair().expect("a pair");
    peer.write_all(b"x").expect("room");
    subject.add(&ours, libc::EPOLLRDNORM | libc::EPOLLWRNORM, 1);
    format!("{:?}", subject.found())
}

pub(super) fn bands_are_reported(subject: &Subject) -> String {
    let (ours, _peer) = UnixStream::pair().expect("a pair");
    subject.add(&ours, EPOLLOUT | libc::EPOLLWRBAND, 1);
    format!("{:?}", subject.found())
}

pub(super) fn unknown_and_ignored_flags_are_taken(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    let flags = EPOLLIN as u32 | libc::EPOLLWAKEUP as u32 | 1 << 20;
    let added = subject.ctl(EPOLL_CTL_ADD, reader.as_raw_fd(), flags, 1);
    format!("{added} {:?}", subject.found())
}

pub(super) fn poll_and_select_see_that_an_instance_is_ready(subject: &Subject) -> String {
    let (reader, _writer) = ready();
    subject.add(&reader, EPOLLIN, 1);
    let mut fd = libc::pollfd { fd: subject.number(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one element at a live local.
    let polled = unsafe { libc::poll(&raw mut fd, 1, 20) };
    let another = subject.another();
    another.add(&reader, EPOLLIN, 1);
    // SAFETY: a set consists of integers, for which zero is a value.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: a number below FD_SETSIZE and a live set.
    unsafe { libc::FD_SET(another.number(), &raw mut set) };
    let (none, mut time) = (std::ptr::null_mut(), libc::timeval { tv_sec: 0, tv_usec: 20_000 });
    // SAFETY: a live set and a live time.
    let selected =
        unsafe { libc::select(another.number() + 1, &raw mut set, none, none, &raw mut time) };
    format!("{polled} {selected} {:?} {:?}", subject.found(), another.found())
}

pub(super) fn an_instance_within_another_is_reported_through_it(subject: &Subject) -> String {
    let inner = subject.another();
    let (mut reader, mut writer) = ready();
    inner.add(&reader, EPOLLIN, 1);
    subject.add(&inner, EPOLLIN, 2);
    let seen = [subject.found(), inner.found()];
    reader.read_exact(&mut [0]).expect("a byte");
    let emptied = [subject.soon(), inner.soon()];
    writer.write_all(b"x").expect("room");
    let again = [subject.found(), inner.found()];
    let deleted = subject.ctl(libc::EPOLL_CTL_DEL, inner.number(), 0, 0);
    format!("{seen:?} {emptied:?} {again:?} {deleted} {:?}", subject.soon())
}

pub(super) fn an_instance_within_another_by_edge_is_reported_once(subject: &Subject) -> String {
    let inner = subject.another();
    let (reader, _writer) = ready();
    inner.add(&reader, EPOLLIN, 1);
    subject.add(&inner, EPOLLIN | EPOLLET, 2);
    format!("{:?} {:?}", subject.found(), subject.soon())
}
