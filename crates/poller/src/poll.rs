//! `poll(2)`: level and oneshot, over one dense array that travels with every wait.
//!
//! Changes cost no system call beyond the `fstat(2)` of an addition; a wait costs the kernel a
//! look at every descriptor. The kernel knows numbers and not files: a number that was closed
//! without delete comes back as POLLNVAL and is dropped, unless it was given out again before.
//! Differences from epoll: `docs/reference/poller-differences.md`.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_sys::poll_select::{self, PollFd};
use rustix::io::Errno;

use crate::backend_base::{BackendBase, Deadline, base_methods};
use crate::table::{Entry, Table, check_pollable};
use crate::{
    Backend, Caps, Counters, Error, Events, Interest, Poller, Readiness, Registration, SignalMask,
    Token, Trigger, Waker,
};

/// POLLNVAL: the number names no open file, or one opened with O_PATH.
const NOT_OPEN: u16 = 0x20;

/// Where the waker's eventfd stands in the array.
const WAKER: usize = 0;

/// A poller on `poll(2)`.
pub(crate) struct Poll {
    /// The waker, and then one element for each entry of the table. The element of a oneshot
    /// registration that fired holds the complement of its number: negative, so that the
    /// kernel skips it.
    fds: Vec<PollFd>,
    /// The state of an entry is its index in `fds`.
    table: Table<usize>,
    /// Where the next wait begins to look: behind the last event when not all of them fitted.
    cursor: usize,
    /// Numbers that were found closed; kept to use its memory again.
    closed: Vec<RawFd>,
    base: BackendBase,
}

impl Poll {
    pub(crate) fn open() -> Result<Self, Error> {
        let base = BackendBase::new(caps())?;
        let readable = Interest::READABLE.poll_mask() as u16;
        Ok(Self {
            fds: vec![PollFd::new(base.waker.fd().as_raw_fd(), readable)],
            table: Table::new(),
            cursor: 0,
            closed: Vec::new(),
            base,
        })
    }

    /// Every change reaches the kernel, without a call of its own: the array goes with each wait.
    fn count_update(&self) {
        self.base.counters.updates_asked.add(1);
        self.base.counters.updates_sent.add(1);
    }

    /// Takes `fd` out of table and array; the last element moves into the gap.
    fn drop_entry(&mut self, fd: RawFd) {
        let Some(entry) = self.table.remove(fd) else { return };
        self.fds.swap_remove(entry.state);
        if let Some(moved) = self.fds.get(entry.state) {
            let number = number(moved);
            self.table.by_fd_mut(number).expect("every element has its entry").state = entry.state;
        }
    }

    /// Hands out what the kernel left in `found` elements, beginning at the cursor.
    ///
    /// # Errors
    /// EBADF where the waker's number was closed: no wait could be ended any more.
    fn deliver(&mut self, mut found: usize, events: &mut Events) -> Result<(), Error> {
        let start = std::mem::take(&mut self.cursor);
        for step in 0..self.fds.len() {
            if found == 0 {
                break;
            }
            let index = (start + step) % self.fds.len();
            let revents = self.fds[index].revents;
            if revents == 0 {
                continue;
            }
            if events.is_full() {
                self.cursor = index;
                break;
            }
            found -= 1;
            match (index, revents) {
                (WAKER, NOT_OPEN) => {
                    return Err(Error::System { call: "ppoll", cause: Errno::BADF.into() });
                }
                (WAKER, _) => self.base.acknowledge_level_wake(events),
                (_, NOT_OPEN) => self.report_dead(index, events),
                _ => self.report(index, revents, events),
            }
        }
        while let Some(fd) = self.closed.pop() {
            self.drop_entry(fd);
            self.base.counters.closed_without_delete.add(1);
        }
        Ok(())
    }

    fn report(&mut self, index: usize, revents: u16, events: &mut Events) {
        let fd = &mut self.fds[index];
        let entry = self.table.by_fd(fd.fd).expect("every element has its entry");
        let found = Readiness::from_poll_mask(u32::from(revents));
        events.push(entry.token, found.visible_to(entry.how.interest));
        if entry.how.trigger == Trigger::Oneshot {
            fd.fd = !fd.fd;
        }
    }

    /// A number that the kernel won't poll: closed without delete, or an open O_PATH
    /// descriptor, which is reported once.
    fn report_dead(&mut self, index: usize, events: &mut Events) {
        let fd = self.fds[index].fd;
        self.base.counters.system_calls.add(1);
        if poll_select::is_open(fd) {
            let entry = self.table.by_fd(fd).expect("every element has its entry");
            events.push(entry.token, Readiness::ERROR);
            self.fds[index].fd = !fd;
        } else {
            self.closed.push(fd);
        }
    }
}

impl Poller for Poll {
    #[inline]
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        let was_closed = self.table.check_vacant(fd, token)?;
        check_pollable(fd, &self.base.counters)?;
        self.count_update();
        let raw = fd.as_raw_fd();
        if was_closed {
            self.drop_entry(raw);
            self.base.counters.closed_without_delete.add(1);
        }
        self.table.insert(raw, Entry { token, how, state: self.fds.len() });
        self.fds.push(element(raw, how));
        Ok(())
    }

    #[inline]
    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.base.caps.check(how)?;
        let entry = self.table.registered(fd)?;
        (entry.token, entry.how) = (token, how);
        self.fds[entry.state] = element(fd.as_raw_fd(), how);
        self.count_update();
        Ok(())
    }

    #[inline]
    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.table.registered(fd)?;
        self.drop_entry(fd.as_raw_fd());
        self.count_update();
        Ok(())
    }

    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        let deadline = Deadline::after(timeout);
        let mut remaining = timeout;
        loop {
            self.base.counters.system_calls.add(1);
            self.base.counters.descriptors_handed.add(self.fds.len() as u64);
            match poll_select::poll(&mut self.fds, remaining, self.base.mask.as_ref()) {
                Ok(0) => break,
                Ok(found) => self.deliver(found, events)?,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {
                    self.base.counters.interrupts.add(1);
                    events.set_interrupted();
                }
                Err(cause) => return Err(Error::System { call: "ppoll", cause }),
            }
            // Nothing but closed numbers was found: they are gone, the wait is not over.
            if !events.is_empty() || events.is_woken() || events.is_interrupted() {
                break;
            }
            remaining = deadline.remaining();
        }
        self.base.counters.wait_ended(events.len());
        Ok(())
    }

    base_methods!();
}

fn caps() -> Caps {
    Caps { edge: false, exclusive: false, ..Caps::complete(Backend::Poll) }
}

fn element(fd: RawFd, how: Registration) -> PollFd {
    // Every bit that an interest has lies in the lower half of the mask.
    PollFd::new(fd, how.interest.poll_mask() as u16)
}

/// The number that `element` stands for, also when it is disabled.
fn number(element: &PollFd) -> RawFd {
    if element.fd < 0 { !element.fd } else { element.fd }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Write, pipe};
    use std::os::fd::AsFd;

    const LEVEL: Registration = Registration::new(Interest::READABLE, Trigger::Level);
    const ONESHOT: Registration = Registration::new(Interest::READABLE, Trigger::Oneshot);
    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn registered(poll: &mut Poll, slots: u32, how: Registration) -> Vec<(PipeReader, PipeWriter)> {
        let add = |slot| {
            let (reader, writer) = pipe().expect("a pipe");
            poll.add(reader.as_fd(), Token::new(slot, 0), how).expect("vacant");
            (reader, writer)
        };
        (0..slots).map(add).collect()
    }

    fn slots(events: &Events) -> Vec<u32> {
        events.iter().map(|event| event.token.slot()).collect()
    }

    #[test]
    fn a_deletion_in_the_middle_leaves_the_others_in_their_places() {
        let mut poll = Poll::open().expect("poll");
        let mut pipes = registered(&mut poll, 4, LEVEL);
        poll.delete(pipes[1].0.as_fd()).expect("registered");
        poll.delete(pipes[3].0.as_fd()).expect("registered");
        for (_, writer) in &mut pipes {
            writer.write_all(b"x").expect("room");
        }
        let mut events = Events::with_capacity(8);
        poll.wait(&mut events, None).expect("wait");
        assert_eq!(slots(&events), [0, 2]);
        assert_eq!((poll.fds.len(), poll.table.len()), (3, 2));
    }

    #[test]
    fn a_closed_number_is_dropped_and_does_not_end_the_wait() {
        let mut poll = Poll::open().expect("poll");
        let (reader, _writer) = pipe().expect("a pipe");
        // A high number, which no other test takes meanwhile.
        let high = rustix::io::fcntl_dupfd_cloexec(&reader, 1500).expect("numbers up to 1500");
        poll.add(high.as_fd(), Token::new(1, 0), LEVEL).expect("vacant");
        drop(high);
        let mut events = Events::with_capacity(8);
        poll.wait(&mut events, Some(Duration::from_millis(2))).expect("wait");
        assert!(events.is_empty());
        let seen = poll.counters().snapshot();
        // fstat; poll, fcntl, poll.
        assert_eq!((seen.closed_without_delete, seen.system_calls), (1, 4));
        assert_eq!(poll.fds.len(), 1, "only the waker is left");
    }

    #[test]
    fn a_fired_oneshot_stays_silent_in_its_place_until_it_is_modified() {
        let mut poll = Poll::open().expect("poll");
        let mut pipes = registered(&mut poll, 2, ONESHOT);
        pipes[0].1.write_all(b"x").expect("room");
        let mut events = Events::with_capacity(8);
        poll.wait(&mut events, None).expect("wait");
        assert_eq!(slots(&events), [0]);
        poll.wait(&mut events, NOW).expect("wait");
        assert!(events.is_empty());
        // The last element moves into the gap while it is disabled.
        let first = pipes[0].0.as_fd();
        poll.modify(first, Token::new(7, 0), ONESHOT).expect("registered");
        poll.wait(&mut events, NOW).expect("wait");
        assert_eq!(slots(&events), [7]);
        poll.delete(pipes[1].0.as_fd()).expect("registered");
        poll.modify(first, Token::new(8, 0), LEVEL).expect("registered");
        poll.wait(&mut events, NOW).expect("wait");
        assert_eq!(slots(&events), [8]);
    }

    #[test]
    fn a_disabled_element_keeps_its_entry_when_it_moves() {
        let mut poll = Poll::open().expect("poll");
        let mut pipes = registered(&mut poll, 2, ONESHOT);
        pipes[1].1.write_all(b"x").expect("room");
        let mut events = Events::with_capacity(8);
        poll.wait(&mut events, None).expect("wait");
        poll.delete(pipes[0].0.as_fd()).expect("registered");
        poll.modify(pipes[1].0.as_fd(), Token::new(5, 0), LEVEL).expect("registered");
        poll.wait(&mut events, NOW).expect("wait");
        assert_eq!(slots(&events), [5]);
    }

    #[test]
    fn successive_waits_go_round_when_more_is_ready_than_fits() {
        let mut poll = Poll::open().expect("poll");
        let mut pipes = registered(&mut poll, 5, LEVEL);
        for (_, writer) in &mut pipes {
            writer.write_all(b"x").expect("room");
        }
        let mut events = Events::with_capacity(2);
        let mut seen = Vec::new();
        for _ in 0..5 {
            poll.wait(&mut events, NOW).expect("wait");
            seen.extend(slots(&events));
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    }

    /// An O_PATH descriptor of the same pipe: open, of a kind with readiness, not to be polled.
    fn path_of(reader: &PipeReader) -> std::os::fd::OwnedFd {
        use rustix::fs::{Mode, OFlags};
        let name = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::open(name, flags, Mode::empty()).expect("our own descriptor")
    }

    #[test]
    fn an_open_descriptor_that_can_not_be_polled_is_reported_once() {
        let mut poll = Poll::open().expect("poll");
        let (reader, _writer) = pipe().expect("a pipe");
        let path = path_of(&reader);
        poll.add(path.as_fd(), Token::new(1, 0), LEVEL).expect("fstat does not show it");
        let mut events = Events::with_capacity(8);
        poll.wait(&mut events, NOW).expect("wait");
        let seen: Vec<Readiness> = events.iter().map(|event| event.readiness).collect();
        assert_eq!(seen, [Readiness::ERROR]);
        poll.wait(&mut events, NOW).expect("wait");
        assert!(events.is_empty());
        poll.delete(path.as_fd()).expect("still registered");
    }

    #[test]
    fn a_wake_is_taken_once() {
        let mut poll = Poll::open().expect("poll");
        poll.waker().wake();
        let mut events = Events::with_capacity(2);
        poll.wait(&mut events, None).expect("wait");
        assert!(events.is_woken() && events.is_empty());
        poll.wait(&mut events, NOW).expect("wait");
        assert!(!events.is_woken());
    }
}
