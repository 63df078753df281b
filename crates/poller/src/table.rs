//! What a backend knows about each descriptor: one entry for each number, and a sequence
//! number that distinguishes successive registrations of the same number.
//!
//! Every backend keeps one. The key that a backend hands to the kernel ([`Key`]) names number
//! and sequence; what comes back is looked up here, and what does not match is stale. Tokens
//! stay in user space. What may enter is checked here where the kernel interface does not: that
//! the number is open, and that its file has a readiness to wait for.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use pollux_sys::descriptors::FileKind;
use rustix::event::epoll;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::{Counters, Error, Registration, Token};

/// The most descriptors that a table can index: `fs.nr_open` can't be set higher.
const FDS_MAX: usize = 1 << 30;

/// Numbers below the usual RLIMIT_NOFILE get their memory whether they are open or not.
const UNASKED: usize = 1024;

/// Names one registration towards the kernel: descriptor number and sequence.
///
/// ```text
///  63      56 55            32 31                              0
/// +----------+----------------+---------------------------------+
/// |   kind   |    sequence    |         descriptor              |
/// +----------+----------------+---------------------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    const SEQUENCES: u32 = 1 << 24;

    /// The waker's eventfd, which is in no table.
    pub(crate) const WAKER: Self = Self(1 << 56);
    /// A completion that needs no answer: cancellations and updates that went well.
    pub(crate) const IGNORED: Self = Self(2 << 56);
    /// The epoll beside a ring, which is in no table. 3 is of [`crate::uring_changes`].
    pub(crate) const BESIDE: Self = Self(4 << 56);

    pub(crate) fn new(fd: RawFd, sequence: u32) -> Self {
        Self(u64::from(sequence) << 32 | u64::from(fd as u32))
    }

    pub(crate) fn fd(self) -> RawFd {
        self.0 as u32 as RawFd
    }

    /// The others have a kind, and number and sequence of them mean nothing.
    fn is_registration(self) -> bool {
        self.0 >> 56 == 0
    }

    fn sequence(self) -> u32 {
        (self.0 >> 32) as u32 % Self::SEQUENCES
    }
}

/// One registered descriptor, with the backend's own `state` beside it.
#[derive(Debug)]
pub(crate) struct Entry<S> {
    pub(crate) token: Token,
    pub(crate) how: Registration,
    pub(crate) state: S,
}

#[derive(Debug)]
struct Slot<S> {
    sequence: u32,
    entry: Option<Entry<S>>,
}

/// Registrations by descriptor number.
#[derive(Debug)]
pub(crate) struct Table<S> {
    slots: Vec<Slot<S>>,
    len: usize,
}

impl<S> Table<S> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }

    /// How many descriptors are registered.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Refuses `fd` when it is registered under an equal token; says whether an older
    /// registration of the same number stands, whose file was closed meanwhile.
    pub(crate) fn check_vacant(&self, fd: BorrowedFd<'_>, token: Token) -> Result<bool, Error> {
        let fd = fd.as_raw_fd();
        match self.by_fd(fd) {
            Some(entry) if entry.token == token => Err(Error::AlreadyRegistered { fd }),
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Refuses `fd` when it lies beyond the numbers that there is room for and is not open, so
    /// that no memory is taken for a number that names nothing. For backends whose `add` asks the
    /// kernel nothing else; what is wrong with a smaller number, the kernel says later.
    pub(crate) fn check_open(&self, fd: BorrowedFd<'_>, counters: &Counters) -> Result<(), Error> {
        let raw = fd.as_raw_fd();
        let unasked = self.slots.capacity().max(UNASKED);
        if usize::try_from(raw).is_ok_and(|index| index < unasked) {
            return Ok(());
        }
        counters.system_calls.add(1);
        if pollux_sys::poll_select::is_open(raw) { Ok(()) } else { Err(Error::NotOpen { fd: raw }) }
    }

    /// The key that the next [`Table::insert`] of `fd` will give.
    pub(crate) fn next_key(&self, fd: RawFd) -> Key {
        let slot = usize::try_from(fd).ok().and_then(|index| self.slots.get(index));
        Key::new(fd, slot.map_or(1, |slot| (slot.sequence + 1) % Key::SEQUENCES))
    }

    /// Enters `fd` under a new sequence number, over whatever stood there.
    pub(crate) fn insert(&mut self, fd: RawFd, entry: Entry<S>) -> Key {
        let index = usize::try_from(fd).expect("descriptors are not negative");
        assert!(index < FDS_MAX, "descriptor number beyond fs.nr_open");
        if index >= self.slots.len() {
            // The room doubles, so that `check_open` asks once for each doubling; what is not used of
            // it is not touched, and costs no memory.
            self.slots.resize_with(index + 1, || Slot { sequence: 0, entry: None });
        }
        let slot = &mut self.slots[index];
        slot.sequence = (slot.sequence + 1) % Key::SEQUENCES;
        self.len += usize::from(slot.entry.is_none());
        slot.entry = Some(entry);
        Key::new(fd, slot.sequence)
    }

    /// Takes `fd` out; its key is stale from now on.
    pub(crate) fn remove(&mut self, fd: RawFd) -> Option<Entry<S>> {
        let slot = self.slots.get_mut(usize::try_from(fd).ok()?)?;
        let entry = slot.entry.take()?;
        self.len -= 1;
        Some(entry)
    }

    pub(crate) fn by_fd(&self, fd: RawFd) -> Option<&Entry<S>> {
        self.slots.get(usize::try_from(fd).ok()?)?.entry.as_ref()
    }

    pub(crate) fn by_fd_mut(&mut self, fd: RawFd) -> Option<&mut Entry<S>> {
        self.slots.get_mut(usize::try_from(fd).ok()?)?.entry.as_mut()
    }

    /// The entry of `fd`, or the error that a caller gets for a descriptor it never added.
    pub(crate) fn registered(&mut self, fd: BorrowedFd<'_>) -> Result<&mut Entry<S>, Error> {
        let fd = fd.as_raw_fd();
        self.by_fd_mut(fd).ok_or(Error::NotRegistered { fd })
    }

    /// The entry that `key` names, unless it was removed or replaced since.
    pub(crate) fn by_key(&mut self, key: Key) -> Option<&mut Entry<S>> {
        if !key.is_registration() {
            return None;
        }
        let slot = self.slots.get_mut(key.0 as u32 as usize)?;
        if slot.sequence != key.sequence() {
            return None;
        }
        slot.entry.as_mut()
    }

    /// The keys of all entries, by number.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.entry.is_some());
        used.map(|(index, slot)| Key::new(index as RawFd, slot.sequence))
    }

    /// All entries, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<S>> + '_ {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// The key under which `fd` is registered now.
    pub(crate) fn key(&self, fd: RawFd) -> Option<Key> {
        let slot = self.slots.get(usize::try_from(fd).ok()?)?;
        slot.entry.as_ref().map(|_| Key::new(fd, slot.sequence))
    }
}

/// Whether what a poll request reports of this file is what its waker claims and not what holds: of sockets and
/// pipes. Asked only where a claim is doubtful; a number that was closed meanwhile is doubted.
pub(crate) fn is_claimed(fd: RawFd, counters: &Counters) -> bool {
    counters.system_calls.add(1);
    FileKind::of(fd).is_none_or(|kind| matches!(kind, FileKind::Socket | FileKind::Pipe))
}

/// Refuses a file without readiness, and counts the system calls that this takes. `epoll_ctl(2)`
/// refuses it by itself (EPERM); `select(2)` and `poll(2)` call it always ready.
///
/// One `fstat(2)` is enough for sockets, pipes and the kernel's anonymous files. Among regular
/// files, directories and devices are some with readiness (message queues, files of `/proc`,
/// terminals) and most without, and only epoll knows which: an instance is made for it and
/// dropped at once.
///
/// # Errors
/// [`Error::NotPollable`] for a file without readiness, [`Error::NotOpen`] for a number that
/// is not open and for an O_PATH descriptor. One of a socket or a pipe is let through.
pub(crate) fn check_pollable(fd: BorrowedFd<'_>, counters: &Counters) -> Result<(), Error> {
    counters.system_calls.add(1);
    let stat = rustix::fs::fstat(fd).map_err(refused(fd, "fstat"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile
        | FileType::Directory
        | FileType::BlockDevice
        | FileType::CharacterDevice
        | FileType::Symlink => ask_epoll(fd, counters),
        FileType::Socket | FileType::Fifo | FileType::Unknown => Ok(()),
    }
}

fn ask_epoll(fd: BorrowedFd<'_>, counters: &Counters) -> Result<(), Error> {
    // Made, asked and closed.
    counters.system_calls.add(3);
    let probe =
        epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
    let nothing = epoll::EventData::new_u64(0);
    let answer = epoll::add(&probe, fd, nothing, epoll::EventFlags::empty());
    answer.map_err(refused(fd, "epoll_ctl"))
}

fn refused(fd: BorrowedFd<'_>, call: &'static str) -> impl Fn(Errno) -> Error {
    let fd = fd.as_raw_fd();
    move |errno| match errno {
        Errno::PERM => Error::NotPollable { fd },
        Errno::BADF => Error::NotOpen { fd },
        other => Error::system(call)(other),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::{Interest, Trigger};

    fn entry(slot: u32) -> Entry<()> {
        let how = Registration::new(Interest::READABLE, Trigger::Level);
        Entry { token: Token::new(slot, 0), how, state: () }
    }

    #[test]
    fn a_key_is_stale_after_removal_and_after_reuse_of_the_number() {
        let mut table = Table::new();
        let first = table.insert(5, entry(1));
        assert!(table.by_key(first).is_some());
        table.remove(5);
        assert!(table.by_key(first).is_none());
        let second = table.insert(5, entry(2));
        assert!(table.by_key(first).is_none());
        assert_eq!(table.by_key(second).map(|entry| entry.token), Some(Token::new(2, 0)));
    }

    #[test]
    fn the_waker_is_not_a_registration_even_when_the_sequence_of_number_0_wraps() {
        let mut table = Table::new();
        for _ in 0..Key::SEQUENCES {
            table.insert(0, entry(1));
        }
        assert_eq!(table.key(0), Some(Key::new(0, 0)));
        assert!(table.by_key(Key::new(0, 0)).is_some());
        assert!(table.by_key(Key::WAKER).is_none());
        assert!(table.by_key(Key::IGNORED).is_none());
        assert!(table.by_key(Key::BESIDE).is_none());
    }

    #[test]
    fn replacing_an_entry_does_not_count_it_twice() {
        let mut table = Table::new();
        table.insert(3, entry(1));
        table.insert(3, entry(2));
        assert_eq!(table.len(), 1);
        table.remove(3);
        assert_eq!((table.len(), table.remove(3).is_none()), (0, true));
    }

    fn open(path: &str, flags: OFlags) -> OwnedFd {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("it is everywhere")
    }

    fn check(fd: impl AsFd) -> Result<(), Error> {
        check_pollable(fd.as_fd(), &Counters::default())
    }

    #[test]
    fn files_without_readiness_are_refused() {
        for path in ["/proc/self/exe", "/", "/dev/null"] {
            let refused = check(open(path, OFlags::RDONLY)).expect_err(path);
            assert!(matches!(refused, Error::NotPollable { .. }), "{path}: {refused}");
        }
    }

    #[test]
    fn regular_files_with_readiness_are_let_through() {
        check(open("/proc/self/mounts", OFlags::RDONLY)).expect("it reports changes");
    }

    #[test]
    fn a_path_is_not_a_file_and_a_pipe_costs_one_call() {
        let refused = check(open("/dev/null", OFlags::PATH)).expect_err("O_PATH");
        assert_eq!(refused.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        let counters = Counters::default();
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        check_pollable(reader.as_fd(), &counters).expect("a pipe");
        assert_eq!(counters.snapshot().system_calls, 1);
    }
}
