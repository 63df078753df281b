//! `select(2)`: level and oneshot, over bitmaps of our own without the C library's bound of
//! 1024 descriptors.
//!
//! The bitmaps are kept up to date by the changes, which cost no system call beyond the
//! `fstat(2)` of an addition, and are copied for every wait up to the highest number. The
//! kernel has three conditions only: a hang-up or an error shows as readable or writable, and
//! an empty interest is reported nothing. It knows numbers and not files, and answers one closed
//! number with EBADF for the whole call: what is closed is then found with one `poll(2)`.
//! Differences from epoll: `docs/reference/poller-differences.md`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::poll_select::{self, Bitmaps, PollFd, WORD_BITS};
use rustix::io::Errno;

use crate::backend_base::{BackendBase, Deadline, base_methods};
use crate::table::{Entry, Table, check_pollable};
use crate::{
    Backend, Caps, Counters, Error, Events, Interest, Poller, Readiness, Registration, SignalMask,
    Token, Trigger, Waker,
};

/// A poller on `select(2)`.
pub(crate) struct Select {
    wanted: Sets,
    /// What the kernel works on: a copy of `wanted`, and then what is ready.
    found: Sets,
    /// One more than the highest number with a bit in `wanted`.
    nfds: usize,
    table: Table<()>,
    /// The number at which the next wait begins to look: the first that did not fit.
    cursor: usize,
    base: BackendBase,
}

impl Select {
    pub(crate) fn open() -> Result<Self, Error> {
        let mut select = Self {
            wanted: Sets::default(),
            found: Sets::default(),
            nfds: 0,
            table: Table::new(),
            cursor: 0,
            base: BackendBase::new(caps())?,
        };
        select.want(select.base.waker.fd().as_raw_fd(), Interest::READABLE);
        Ok(select)
    }

    /// Every change reaches the kernel, without a call of its own: the bitmaps go with each wait.
    fn count_update(&self) {
        self.base.counters.updates_asked.add(1);
        self.base.counters.updates_sent.add(1);
    }

    /// Replaces the bits of `fd` and keeps `nfds` exact.
    fn want(&mut self, fd: RawFd, interest: Interest) {
        let index = usize::try_from(fd).expect("descriptors are not negative");
        self.wanted.set(index, interest);
        if !self.wanted.interest(index).is_empty() {
            self.nfds = self.nfds.max(index + 1);
        } else if index + 1 == self.nfds {
            self.nfds = self.wanted.highest_below(index).map_or(0, |highest| highest + 1);
        }
    }

    fn forget_closed(&mut self, fd: RawFd) {
        self.want(fd, Interest::NONE);
        self.table.remove(fd);
        self.base.counters.closed_without_delete.add(1);
    }

    /// One `select(2)` on a fresh copy of the bitmaps.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.base.counters.system_calls.add(1);
        // The waker's is in none of the table.
        self.base.counters.descriptors_handed.add(self.table.len() as u64 + 1);
        self.found.copy_from(&self.wanted, self.nfds.div_ceil(WORD_BITS));
        let [read, write, except] = &mut self.found.bits;
        poll_select::select(
            self.nfds,
            Bitmaps { read, write, except },
            timeout,
            self.base.mask.as_ref(),
        )
    }

    /// Drops every registration whose number is closed. That there is none, or that it is the waker's, is an error: the
    /// same call would fail again.
    fn drop_closed(&mut self, cause: io::Error) -> Result<(), Error> {
        let numbers = (0..self.nfds).filter(|&index| !self.wanted.interest(index).is_empty());
        let mut fds: Vec<PollFd> = numbers.map(|index| PollFd::new(index as RawFd, 0)).collect();
        self.base.counters.system_calls.add(1);
        poll_select::poll(&mut fds, Some(Duration::ZERO), None)
            .map_err(|cause| Error::System { call: "ppoll", cause })?;
        fds.retain(|fd| fd.revents & NOT_OPEN != 0);
        // Without the waker's number no wait could be ended.
        let waker = self.base.waker.fd().as_raw_fd();
        if fds.is_empty() || fds.iter().any(|fd| fd.fd == waker) {
            return Err(Error::System { call: "pselect6", cause });
        }
        fds.into_iter().for_each(|fd| self.forget_closed(fd.fd));
        Ok(())
    }

    /// Hands out the bits that the kernel left, going round from the cursor: its word is
    /// looked at twice, first from the cursor on and at the end up to it.
    fn deliver(&mut self, events: &mut Events) {
        let words = self.nfds.div_ceil(WORD_BITS);
        let start = std::mem::take(&mut self.cursor);
        let start = if start < self.nfds { start } else { 0 };
        let from_cursor_on = u64::MAX << (start % WORD_BITS);
        for step in 0..=words {
            let word = (start / WORD_BITS + step) % words;
            let mut ready = self.found.any(word);
            if step == 0 {
                ready &= from_cursor_on;
            } else if step == words {
                ready &= !from_cursor_on;
            }
            while ready != 0 {
                let index = word * WORD_BITS + ready.trailing_zeros() as usize;
                if events.is_full() {
                    self.cursor = index;
                    return;
                }
                ready &= ready - 1;
                self.report(index, events);
            }
        }
    }

    fn report(&mut self, index: usize, events: &mut Events) {
        let fd = index as RawFd;
        if fd == self.base.waker.fd().as_raw_fd() {
            self.base.acknowledge_level_wake(events);
            return;
        }
        let entry = self.table.by_fd(fd).expect("every bit has its entry");
        // The three conditions have the bits that poll(2) gives them.
        let found = Readiness::from_poll_mask(self.found.interest(index).poll_mask());
        events.push(entry.token, found);
        if entry.how.trigger == Trigger::Oneshot {
            self.want(fd, Interest::NONE);
        }
    }
}

impl Poller for Select {
    #[inline]
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        let was_closed = self.table.check_vacant(fd, token)?;
        check_pollable(fd, &self.base.counters)?;
        self.count_update();
        let raw = fd.as_raw_fd();
        if was_closed {
            self.forget_closed(raw);
        }
        self.table.insert(raw, Entry { token, how, state: () });
        self.want(raw, how.interest);
        Ok(())
    }

    #[inline]
    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        let entry = self.table.registered(fd)?;
        (entry.token, entry.how) = (token, how);
        self.want(fd.as_raw_fd(), how.interest);
        self.count_update();
        Ok(())
    }

    #[inline]
    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.table.registered(fd)?;
        self.want(fd.as_raw_fd(), Interest::NONE);
        self.table.remove(fd.as_raw_fd());
        self.count_update();
        Ok(())
    }

    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        let deadline = Deadline::after(timeout);
        let mut remaining = timeout;
        loop {
            match self.look(remaining) {
                Ok(0) => break,
                Ok(_) => {
                    self.deliver(events);
                    break;
                }
                Err(cause) => match Errno::from_io_error(&cause) {
                    Some(Errno::BADF) => self.drop_closed(cause)?,
                    Some(Errno::INTR) => {
                        self.base.counters.interrupts.add(1);
                        events.set_interrupted();
                        break;
                    }
                    _ => return Err(Error::System { call: "pselect6", cause }),
                },
            }
            remaining = deadline.remaining();
        }
        self.base.counters.wait_ended(events.len());
        Ok(())
    }

    base_methods!();
}

fn caps() -> Caps {
    Caps {
        edge: false,
        exclusive: false,
        rdhup: false,
        hangup: false,
        ..Caps::complete(Backend::Select)
    }
}

/// POLLNVAL: the number names no open file (or one of O_PATH, which goes the same way here).
const NOT_OPEN: u16 = 0x20;

/// The condition that each bitmap stands for, in the order of the system call.
const CONDITIONS: [Interest; 3] = [Interest::READABLE, Interest::WRITABLE, Interest::PRIORITY];

/// Three bitmaps of equal length: what is wanted, or found, of each number.
///
/// They grow with the highest number and never shrink; the kernel bounds numbers by `fs.nr_open`.
#[derive(Default)]
struct Sets {
    bits: [Vec<u64>; 3],
}

impl Sets {
    /// Gives `index` the bits of `interest` and no others.
    fn set(&mut self, index: usize, interest: Interest) {
        let word = index / WORD_BITS;
        let bit = 1 << (index % WORD_BITS);
        for (bits, condition) in self.bits.iter_mut().zip(CONDITIONS) {
            if word >= bits.len() {
                bits.resize(word + 1, 0);
            }
            bits[word] &= !bit;
            if interest.contains(condition) {
                bits[word] |= bit;
            }
        }
    }

    fn interest(&self, index: usize) -> Interest {
        let word = index / WORD_BITS;
        let bit = 1 << (index % WORD_BITS);
        let mut interest = Interest::NONE;
        for (bits, condition) in self.bits.iter().zip(CONDITIONS) {
            if bits[word] & bit != 0 {
                interest |= condition;
            }
        }
        interest
    }

    /// The numbers of one word that have any bit.
    fn any(&self, word: usize) -> u64 {
        self.bits.iter().fold(0, |any, bits| any | bits[word])
    }

    /// The highest number below `index` that has any bit.
    fn highest_below(&self, index: usize) -> Option<usize> {
        let words = (0..index.div_ceil(WORD_BITS)).rev();
        let mut words = words.map(|word| (word, self.any(word))).filter(|&(_, any)| any != 0);
        let (word, any) = words.next()?;
        Some(word * WORD_BITS + any.ilog2() as usize)
    }

    /// Takes over the first `words` words of `other`; what lies behind them is not looked at.
    fn copy_from(&mut self, other: &Self, words: usize) {
        for (ours, theirs) in self.bits.iter_mut().zip(&other.bits) {
            ours.clear();
            ours.extend_from_slice(&theirs[..words]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Write, pipe};
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;

    const LEVEL: Registration = Registration::new(Interest::READABLE, Trigger::Level);
    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn at_number(reader: &PipeReader, least: RawFd) -> OwnedFd {
        rustix::io::fcntl_dupfd_cloexec(reader, least).expect("numbers up to a few thousand")
    }

    fn slots(events: &Events) -> Vec<u32> {
        events.iter().map(|event| event.token.slot()).collect()
    }

    #[test]
    fn numbers_beyond_1024_are_watched_and_the_bound_goes_back_with_them() {
        let mut select = Select::open().expect("select");
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(b"x").expect("room");
        let middle = at_number(&reader, 1100);
        let high = at_number(&reader, 3000);
        let lowest = select.nfds;
        select.add(middle.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
        select.add(high.as_fd(), Token::new(2, 0), LEVEL).expect("vacant");
        assert_eq!(select.nfds, high.as_raw_fd() as usize + 1);
        let mut events = Events::with_capacity(8);
        select.wait(&mut events, None).expect("wait");
        assert_eq!(slots(&events), [1, 2]);
        select.delete(high.as_fd()).expect("registered");
        assert_eq!(select.nfds, middle.as_raw_fd() as usize + 1);
        select.delete(middle.as_fd()).expect("registered");
        assert_eq!(select.nfds, lowest);
    }

    #[test]
    fn every_closed_number_is_dropped_and_the_others_are_still_served() {
        let mut select = Select::open().expect("select");
        let (reader, mut writer) = pipe().expect("a pipe");
        let duplicates = [1600, 1700, 1800].map(|least| at_number(&reader, least));
        for (slot, fd) in (0..).zip(&duplicates) {
            select.add(fd.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
        }
        writer.write_all(b"x").expect("room");
        let [first, second, third] = duplicates;
        drop((first, third));
        let mut events = Events::with_capacity(8);
        select.wait(&mut events, None).expect("wait");
        assert_eq!(slots(&events), [1]);
        let seen = select.counters().snapshot();
        // Three fstat; select, poll, select.
        assert_eq!((seen.closed_without_delete, seen.system_calls), (2, 6));
        assert_eq!(select.nfds, second.as_raw_fd() as usize + 1);
        assert_eq!(select.table.len(), 1);
    }

    /// An O_PATH descriptor of the same pipe: open, of a kind with readiness, not to be polled.
    fn path_of(reader: &PipeReader) -> OwnedFd {
        use rustix::fs::{Mode, OFlags};
        let name = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::open(name, flags, Mode::empty()).expect("our own descriptor")
    }

    #[test]
    fn an_open_descriptor_that_can_not_be_polled_shows_as_readable() {
        let mut select = Select::open().expect("select");
        let (reader, _writer) = pipe().expect("a pipe");
        let path = path_of(&reader);
        select.add(path.as_fd(), Token::new(1, 0), LEVEL).expect("fstat does not show it");
        let mut events = Events::with_capacity(8);
        select.wait(&mut events, NOW).expect("wait");
        assert_eq!(slots(&events), [1]);
        select.delete(path.as_fd()).expect("still registered");
        select.wait(&mut events, NOW).expect("wait");
        assert!(events.is_empty());
    }

    #[test]
    fn a_number_that_is_open_again_replaces_its_forerunner_with_its_bits() {
        let mut select = Select::open().expect("select");
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(b"x").expect("room");
        let writable = Registration::new(Interest::WRITABLE, Trigger::Level);
        select.add(reader.as_fd(), Token::new(1, 0), writable).expect("vacant");
        select.add(reader.as_fd(), Token::new(1, 1), LEVEL).expect("replaces");
        let mut events = Events::with_capacity(8);
        select.wait(&mut events, NOW).expect("wait");
        let event = events.iter().next().expect("readable");
        assert_eq!((event.token, event.readiness), (Token::new(1, 1), Readiness::READABLE));
        assert_eq!(select.counters().snapshot().closed_without_delete, 1);
    }

    #[test]
    fn waits_go_round_inside_one_word_and_over_several() {
        let mut select = Select::open().expect("select");
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(b"x").expect("room");
        let duplicates = [2000, 2001, 2002, 2100, 2200].map(|least| at_number(&reader, least));
        for (slot, fd) in (0..).zip(&duplicates) {
            select.add(fd.as_fd(), Token::new(slot, 0), LEVEL).expect("vacant");
        }
        let mut events = Events::with_capacity(2);
        let mut seen = Vec::new();
        for _ in 0..5 {
            select.wait(&mut events, NOW).expect("wait");
            seen.extend(slots(&events));
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_fired_oneshot_has_no_bit_until_it_is_modified() {
        let mut select = Select::open().expect("select");
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(b"x").expect("room");
        let oneshot = Registration::new(Interest::READABLE, Trigger::Oneshot);
        select.add(reader.as_fd(), Token::new(1, 0), oneshot).expect("vacant");
        let mut events = Events::with_capacity(2);
        let mut seen = Vec::new();
        for _ in 0..2 {
            select.wait(&mut events, NOW).expect("wait");
            seen.push(events.len());
        }
        select.modify(reader.as_fd(), Token::new(1, 0), oneshot).expect("registered");
        select.wait(&mut events, NOW).expect("wait");
        seen.push(events.len());
        assert_eq!(seen, [1, 0, 1]);
    }

    #[test]
    fn each_number_gets_back_the_conditions_that_it_was_given() {
        let all = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        let mut sets = Sets::default();
        sets.set(63, all);
        sets.set(64, Interest::WRITABLE);
        sets.set(63, Interest::PRIORITY);
        assert_eq!(sets.interest(63), Interest::PRIORITY);
        assert_eq!(sets.interest(64), Interest::WRITABLE);
        assert_eq!((sets.any(0), sets.any(1)), (1 << 63, 1));
    }

    #[test]
    fn the_highest_number_below_a_cleared_one_is_found_across_words() {
        let mut sets = Sets::default();
        for index in [3, 64, 200] {
            sets.set(index, Interest::READABLE);
        }
        sets.set(200, Interest::NONE);
        assert_eq!(sets.highest_below(200), Some(64));
        sets.set(64, Interest::NONE);
        assert_eq!(sets.highest_below(64), Some(3));
        sets.set(3, Interest::NONE);
        assert_eq!(sets.highest_below(3), None);
    }
}
