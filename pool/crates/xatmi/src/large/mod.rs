//! Payloads that do not fit into a message: they wait in a memfd of the sender until the receiver
//! has read them.
//!
//! Clients put requests there and workers replies. The message carries a [`LargeRef`]; the
//! receiver opens the memfd through `/proc/PID/fd/FD`, makes sure by the inode that it is the one
//! that was meant, reads it and marks it as taken. The sender checks the marks before its next payload and keeps a
//! few memfds for further ones: a page that is there already costs a copy, a new one much more. One that
//! may still be read is never written again. A sender holds a bounded number of them,
//! and waits for receivers only when it ends, for a moment.
//!
//! Payloads of up to 4 MiB are in memory that both sides keep mapped (`mapped`); longer ones are written
//! and read, with the mark in the byte behind them.
//!
//! Sources: `memfd_create(2)`, `proc_pid_fd(5)`.

mod mapped;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use pollux_sys::shared::SharedWords;
use rustix::event::{Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::{Code, Error};
use crate::needs::fits_file_size;
use crate::queue::monotonic_ns;
use crate::wire::{LargeRef, PAYLOAD_LEN_BYTES_MAX};

/// The most payloads that one sender holds: each is a descriptor.
pub const HELD_MAX: usize = 64;
/// Mapped memfds that one sender keeps for further payloads.
const SPARE_MAX: usize = 2;
/// The mark behind a payload that is not mapped.
const WAITING: u8 = 1;
const TAKEN: u8 = 2;
/// How often a sender that ends checks whether its payloads were taken.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The state of a payload.
enum Fate {
    /// A receiver may still read it.
    Wanted,
    /// It was read: the memfd can be used again.
    Taken,
    /// It will not be read, or that can't be known.
    Unwanted,
}

/// The payloads that one sender holds for its receivers.
#[derive(Debug)]
pub struct Outbox {
    pid: u32,
    held: Vec<Held>,
    /// Memfds whose payload was taken, with their inodes.
    spare: Vec<(SharedWords, u64)>,
}

/// Where a payload is.
#[derive(Debug)]
enum Memfd {
    Mapped(SharedWords),
    File(File),
}

#[derive(Debug)]
struct Held {
    memfd: Memfd,
    inode: u64,
    len_bytes: u64,
    /// When it is dropped unread, in nanoseconds of the monotonic clock; 0 for never.
    until_ns: u64,
    /// The process that it is for, where that is known.
    receiver: Option<Pid>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { pid: std::process::id(), held: Vec::new(), spare: Vec::new() }
    }
}

impl Outbox {
    /// Holds a copy of `payload` until it is taken, [`release`](Self::release)d, the monotonic
    /// clock has passed `until_ns` (0 for never) or the process `receiver` is dead. Payloads that are not
    /// needed any more are released first.
    ///
    /// # Errors
    /// TPELIMIT when [`HELD_MAX`] payloads still wait to be taken, TPEINVAL for one beyond
    /// [`PAYLOAD_LEN_BYTES_MAX`], TPEOS when there is no descriptor or memory for it.
    pub fn put(
        &mut self,
        payload: &[u8],
        until_ns: u64,
        receiver: Option<u32>,
        now_ns: u64,
    ) -> Result<LargeRef, Error> {
        let len_bytes = payload.len() as u64;
        if len_bytes > PAYLOAD_LEN_BYTES_MAX {
            let detail = format!("a payload has at most {PAYLOAD_LEN_BYTES_MAX} bytes");
            return Err(Error::new(Code::Invalid, detail));
        }
        self.sweep(now_ns);
        if self.held.len() >= HELD_MAX {
            self.held.retain(|held| !held.receiver.is_some_and(is_of_another_user));
        }
        if self.held.len() >= HELD_MAX {
            let detail = format!("{HELD_MAX} large payloads still wait for their receivers");
            return Err(Error::new(Code::Limit, detail));
        }
        let filled = if len_bytes <= mapped::LEN_BYTES_MAX {
            self.filled(payload).map(|(words, inode)| (Memfd::Mapped(words), inode))
        } else {
            filled_file(payload).map(|(file, inode)| (Memfd::File(file), inode))
        };
        let (memfd, inode) = filled
            .map_err(|source| Error::os("a large payload cannot be put into a memfd", source))?;
        let fd = match &memfd {
            Memfd::Mapped(words) => words.as_fd().as_raw_fd(),
            Memfd::File(file) => file.as_raw_fd(),
        };
        let large = LargeRef { pid: self.pid, fd, inode, len_bytes };
        let receiver = receiver.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        self.held.push(Held { memfd, inode, len_bytes, until_ns, receiver });
        Ok(large)
    }

    /// The request with this memfd was answered: releases its payload if it was taken.
    ///
    /// The memfd may have another payload by now, which is still to be read; that, and an
    /// unread one, stays until it is taken or its time is over.
    pub fn release(&mut self, inode: u64) {
        if let Some(at) = self.held.iter().position(|held| held.inode == inode)
            && matches!(self.held[at].fate(0), Fate::Taken)
        {
            let held = self.held.swap_remove(at);
            self.keep(held);
        }
    }

    /// The payload was put for a message that was not sent: it will not be read.
    pub fn withdraw(&mut self, inode: u64) {
        self.held.retain(|held| held.inode != inode);
    }

    /// Releases payloads that were taken, are too late or are for a dead process.
    ///
    /// A system call at most for each payload that is held and mapped, two for others.
    pub fn sweep(&mut self, now_ns: u64) {
        let mut at = 0;
        while let Some(held) = self.held.get(at) {
            match held.fate(now_ns) {
                Fate::Wanted => at += 1,
                Fate::Taken => {
                    let held = self.held.swap_remove(at);
                    self.keep(held);
                }
                Fate::Unwanted => drop(self.held.swap_remove(at)),
            }
        }
    }

    /// Keeps a memfd for a further payload, within limits.
    fn keep(&mut self, held: Held) {
        if let Memfd::Mapped(words) = held.memfd
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push((words, held.inode));
        }
    }

    /// A mapped memfd with the payload: one that is kept, if it fits there, or a new one.
    fn filled(&mut self, payload: &[u8]) -> io::Result<(SharedWords, u64)> {
        let kept = self.spare.iter().position(|(words, _)| mapped::fits(words, payload.len()));
        let (words, inode) = match kept {
            Some(at) => self.spare.swap_remove(at),
            None => {
                // One that is too small makes room for one that fits.
                self.spare.truncate(SPARE_MAX - 1);
                let words = mapped::create(payload.len())?;
                let inode = rustix::fs::fstat(&words)?.st_ino;
                (words, inode)
            }
        };
        mapped::put(&words, payload);
        Ok((words, inode))
    }

    /// Waits until everything was taken, at the most until the monotonic clock shows `until_ns`:
    /// what is held ends with its sender. For a sender that ends; it does nothing in a child after
    /// `fork(2)`, whose parent holds everything.
    pub fn finish(&mut self, until_ns: u64) {
        while std::process::id() == self.pid {
            let now_ns = monotonic_ns();
            self.sweep(now_ns);
            if self.is_empty() || now_ns >= until_ns {
                return;
            }
            // The mark wakes no process. A signal only makes the next check earlier.
            let _ = poll(&mut [], Some(&LOOK_AGAIN));
        }
    }

    /// How many are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl Held {
    fn fate(&self, now_ns: u64) -> Fate {
        match &self.memfd {
            Memfd::Mapped(words) if mapped::is_taken(words) => return Fate::Taken,
            Memfd::Mapped(_) => {}
            Memfd::File(file) => {
                let mut mark = [0];
                // Empty when it was discarded. Its own memfd can always be read.
                if file.read_exact_at(&mut mark, self.len_bytes).is_err() {
                    return Fate::Unwanted;
                }
                if mark == [TAKEN] {
                    return Fate::Taken;
                }
            }
        }
        let is_late = self.until_ns != 0 && now_ns > self.until_ns;
        let is_dead = |pid| test_kill_process(pid) == Err(Errno::SRCH);
        if is_late || self.receiver.is_some_and(is_dead) { Fate::Unwanted } else { Fate::Wanted }
    }
}

/// Whether a process is of a user that cannot open the memfds of this one; root can.
fn is_of_another_user(pid: Pid) -> bool {
    let uid = std::fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    uid.is_ok_and(|uid| uid != 0 && uid != rustix::process::geteuid().as_raw())
}

/// Reads the payload into `room`, which must be as long as it, and marks it as taken.
///
/// # Errors
/// ENOENT when the sender is dead or released it, EACCES when it belongs to another user,
/// `InvalidData` when the descriptor is another file by now or shorter than named, EMFILE.
///
/// # Panics
/// When `room` has another length than the payload.
pub fn fetch(large: &LargeRef, room: &mut [u8]) -> io::Result<()> {
    assert_eq!(room.len() as u64, large.len_bytes, "room for the payload and no more");
    if is_mapped(large) { mapped::take(large, room) } else { take(&open(large)?, room) }
}

/// The payload in memory of its own; for a length that is only claimed yet.
///
/// # Errors
/// As [`fetch`], and ENOMEM.
pub fn fetch_all(large: &LargeRef) -> io::Result<Vec<u8>> {
    // The file has the length, or nothing is reserved.
    if !is_there(large) {
        return Err(other_file());
    }
    let len = usize::try_from(large.len_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(len, 0);
    fetch(large, &mut bytes)?;
    Ok(bytes)
}

/// Whether the payload is there, so that it is worth making room for it.
#[must_use]
pub fn is_there(large: &LargeRef) -> bool {
    if is_mapped(large) { mapped::is_there(large) } else { open(large).is_ok() }
}

/// Marks a payload that will not be read, so that its sender need not hold it; one that is gone already is
/// ignored.
pub fn discard(large: &LargeRef) {
    // A payload that cannot be marked or emptied is held until its deadline.
    if is_mapped(large) {
        let _ = mapped::discard(large);
    } else if let Ok(memfd) = open(large) {
        let _ = memfd.set_len(0);
    }
}

fn is_mapped(large: &LargeRef) -> bool {
    large.len_bytes <= mapped::LEN_BYTES_MAX
}

fn take(memfd: &File, room: &mut [u8]) -> io::Result<()> {
    memfd.read_exact_at(room, 0)?;
    memfd.write_all_at(&[TAKEN], room.len() as u64)
}

/// A memfd with the payload and the mark behind it.
fn filled_file(payload: &[u8]) -> io::Result<(File, u64)> {
    fits_file_size(payload.len() + 1)?;
    let memfd = File::from(memfd_create("pollux-payload", MemfdFlags::CLOEXEC)?);
    let inode = memfd.metadata()?.ino();
    memfd.write_all_at(payload, 0)?;
    memfd.write_all_at(&[WAITING], payload.len() as u64)?;
    Ok((memfd, inode))
}

/// Opens the memfd, and nothing else: what the name leads to is looked at before it is opened,
/// as opening some files has effects, and again afterwards, as numbers are used again.
fn open(large: &LargeRef) -> io::Result<File> {
    let path = format!("/proc/{}/fd/{}", large.pid, large.fd);
    let is_meant = |found: &std::fs::Metadata| {
        // A memfd has no name in any folder; a file that has one is never written to.
        let is_nameless = found.is_file() && found.nlink() == 0;
        // One that is mapped is as long as its sender's payloads may get.
        let has_len = if is_mapped(large) {
            found.len() > large.len_bytes
        } else {
            found.len() == large.len_bytes + 1
        };
        is_nameless && found.ino() == large.inode && has_len
    };
    if !is_meant(&std::fs::metadata(&path)?) {
        return Err(other_file());
    }
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).write(true).custom_flags(flags).open(&path)?;
    if is_meant(&file.metadata()?) { Ok(file) } else { Err(other_file()) }
}

fn other_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the descriptor is another file")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn taken_payloads_are_released_at_the_next_use() {
        let mut outbox = Outbox::default();
        let sent = payload(1 << 20);
        let large = outbox.put(&sent, 0, None, 1).expect("held");
        let mut room = vec![0; sent.len()];
        fetch(&large, &mut room).expect("read");
        assert_eq!(room, sent);
        assert_eq!(outbox.len(), 1);
        outbox.sweep(1);
        assert!(outbox.is_empty());
        assert_eq!(outbox.spare.len(), 1, "it is kept for the next one");
        let shorter = outbox.put(b"shorter", 0, None, 1).expect("held");
        assert_eq!((shorter.inode, outbox.spare.len()), (large.inode, 0));
        let gone = fetch(&large, &mut room).expect_err("another payload by now");
        assert_eq!(gone.kind(), io::ErrorKind::InvalidData);
        assert_eq!(fetch_all(&shorter).expect("read"), b"shorter");
    }

    #[test]
    fn a_reply_does_not_release_a_later_payload_in_the_same_memfd() {
        let mut outbox = Outbox::default();
        let first = outbox.put(b"first", 0, None, 1).expect("held");
        fetch_all(&first).expect("read");
        let second = outbox.put(b"other", 0, None, 1).expect("held");
        assert_eq!(second.inode, first.inode, "it is used again");
        // The answer to the first comes only now.
        outbox.release(first.inode);
        outbox.put(b"third", 0, None, 1).expect("held");
        assert_eq!(fetch_all(&second).expect("it was not read yet"), b"other");
    }

    #[test]
    fn few_memfds_are_kept_and_none_that_is_long_or_may_be_read() {
        let mut outbox = Outbox::default();
        let held: Vec<_> =
            (0..=SPARE_MAX).map(|_| outbox.put(b"x", 0, None, 1).expect("held")).collect();
        for large in &held {
            fetch_all(large).expect("read");
            outbox.release(large.inode);
        }
        assert_eq!((outbox.len(), outbox.spare.len()), (0, SPARE_MAX));
        outbox.spare.clear();
        let long = payload(mapped::LEN_BYTES_MAX as usize + 1);
        let long = outbox.put(&long, 0, None, 1).expect("held");
        fetch_all(&long).expect("read");
        outbox.release(long.inode);
        outbox.put(b"late", 5, None, 1).expect("held");
        outbox.sweep(6);
        assert!(outbox.is_empty() && outbox.spare.is_empty());
    }

    #[test]
    fn late_discarded_withdrawn_payloads_and_those_for_dead_processes_are_released() {
        let mut outbox = Outbox::default();
        outbox.put(b"late", 5, None, 1).expect("held");
        outbox.sweep(5);
        assert_eq!(outbox.len(), 1, "its moment has not passed");
        outbox.sweep(6);
        assert!(outbox.is_empty());

        let dropped = outbox.put(b"dropped", 0, None, 1).expect("held");
        discard(&dropped);
        outbox.sweep(1);
        assert!(outbox.is_empty());

        let unsent = outbox.put(b"not sent", 0, None, 1).expect("held");
        outbox.put(b"stays", 0, Some(std::process::id()), 1).expect("held");
        outbox.withdraw(unsent.inode);
        outbox.sweep(1);
        assert_eq!(outbox.len(), 1);

        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = child.id();
        child.wait().expect("it ended");
        outbox.put(b"for the dead", 0, Some(pid), 1).expect("held");
        outbox.sweep(1);
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn a_sender_that_ends_waits_for_readers_until_its_deadline() {
        let mut outbox = Outbox::default();
        let large = outbox.put(b"for later", 0, None, 1).expect("held");
        let until_ns = monotonic_ns() + 20_000_000;
        outbox.finish(until_ns);
        assert!(monotonic_ns() >= until_ns && outbox.len() == 1);
        let reader = std::thread::spawn(move || fetch_all(&large));
        outbox.finish(u64::MAX);
        assert_eq!(reader.join().expect("no panic").expect("held"), b"for later");
        outbox.put(b"for later", 0, None, 1).expect("held");
        // As in a child after fork(2).
        outbox.pid += 1;
        outbox.finish(u64::MAX);
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn only_so_many_are_held() {
        let mut outbox = Outbox::default();
        for _ in 0..HELD_MAX {
            outbox.put(b"one", 0, None, 1).expect("held");
        }
        let full = outbox.put(b"more", 0, None, 1).expect_err("full");
        assert_eq!(full.code(), Code::Limit);
    }

    /// Needs root, which starts a process of another user; without root it does nothing.
    #[test]
    fn payloads_for_other_users_are_dropped_at_the_limit() {
        use std::os::unix::process::CommandExt;

        if !rustix::process::geteuid().is_root() {
            return;
        }
        let mut other =
            std::process::Command::new("sleep").arg("1000").uid(61_504).spawn().expect("a process");
        let mut outbox = Outbox::default();
        for _ in 0..HELD_MAX - 1 {
            outbox.put(b"unreadable", 0, Some(other.id()), 1).expect("room");
        }
        outbox.put(b"own", 0, Some(outbox.pid), 1).expect("room");
        let more = outbox.put(b"more", 0, Some(outbox.pid), 1);
        other.kill().expect("ours");
        other.wait().expect("ours");
        more.expect("the other user cannot read what was held for it");
        assert_eq!(outbox.len(), 2);
    }

    #[test]
    fn another_file_behind_the_number_is_not_touched() {
        let mut outbox = Outbox::default();
        let large = outbox.put(b"payload", 0, None, 1).expect("held");
        let (pipe, _writer) = io::pipe().expect("a pipe");
        let mut room = [0; 7];
        for wrong in [
            LargeRef { inode: large.inode + 1, ..large },
            LargeRef { fd: pipe.as_raw_fd(), ..large },
        ] {
            let error = fetch(&wrong, &mut room).expect_err("not the one that was meant");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let longer = LargeRef { len_bytes: 8, ..large };
        assert!(fetch(&longer, &mut [0; 8]).is_err());
        // A file of the same number and length on another file system, which has a name.
        let named = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(named.path(), b"of use!").expect("written");
        let inode = named.as_file().metadata().expect("open").ino();
        let same = LargeRef { fd: named.as_file().as_raw_fd(), inode, ..large };
        let error = fetch(&same, &mut room).expect_err("another file");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read(named.path()).expect("there"), b"of use!");
        fetch(&large, &mut room).expect("read");
        assert_eq!(&room, b"payload");
    }
}
