//! Words that several processes share: a sealed memfd, mapped.
//!
//! The service pool's manager makes some and hands their descriptors to workers and clients. The seals fix
//! the size for good, so no peer can shrink the file under a mapping, which would end its other users by
//! SIGBUS. [`SharedWords`] are written by every holder, [`PublishedWords`] by their maker alone. Nothing
//! here knows what a word means.
//!
//! Sources: `memfd_create(2)`, `fcntl(2)` (file sealing), `mmap(2)`.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::futex::Address;

/// The most words of one file (256 MiB): a bound against a size read from a broken peer.
pub const WORDS_MAX: usize = 32 << 20;

/// Words of a page, which parts of a file begin at.
pub const PAGE_WORDS: usize = 4096 / size_of::<u64>();

/// What shows in `/proc/PID/maps`.
const NAME: &CStr = c"pollux-words";
const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A fixed number of atomic words that every holder of the descriptor sees.
///
/// Dereferences to `[AtomicU64]`; all zero when made. Any thread may use it.
///
/// ```
/// use pollux_sys::shared::SharedWords;
/// use std::os::fd::AsFd;
/// use std::sync::atomic::Ordering::SeqCst;
///
/// let ours = SharedWords::create(8)?;
/// let theirs = SharedWords::from_fd(ours.as_fd().try_clone_to_owned()?)?;
/// ours[3].store(7, SeqCst);
/// assert_eq!((theirs.len(), theirs[3].load(SeqCst)), (8, 7));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedWords {
    fd: OwnedFd,
    part: SharedPart,
}

/// A fixed number of atomic words that the process which makes them writes, and every holder of the
/// descriptor reads: whatever others do with it, its own user's and root's processes among them.
///
/// The mapping that is made with the file is the last one that can be written (F_SEAL_FUTURE_WRITE), so
/// the words cannot be written any more when the process has ended; a child after `fork(2)` shares it.
/// Dereferences to `[AtomicU64]`; all zero when made. Any thread may use it.
#[derive(Debug)]
pub struct PublishedWords {
    fd: OwnedFd,
    part: Arc<SharedPart>,
}

/// Some of the words, mapped without keeping the descriptor; dereferences to `[AtomicU64]`.
#[derive(Debug)]
pub struct SharedPart(Mapping);

/// Some of the words, mapped so that this process cannot write them.
#[derive(Debug)]
pub struct ReadOnlyPart(Mapping);

/// A mapping of words that lives as long as this.
struct Mapping {
    first: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to no thread, and dropping it needs none in particular.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out its address, and all uses of it are atomic accesses.
unsafe impl Sync for Mapping {}

impl SharedWords {
    /// New words, all zero, behind a descriptor that is closed on exec.
    ///
    /// # Errors
    /// EINVAL for none or more than [`WORDS_MAX`], EMFILE, ENFILE, ENOMEM.
    pub fn create(words: usize) -> io::Result<Self> {
        Self::create_named(NAME, words)
    }

    /// The same under a name of its own, by which it is found in `/proc/PID/fd`: 249 bytes at most.
    ///
    /// # Errors
    /// As [`create`](Self::create), EINVAL for a longer name.
    pub fn create_named(name: &CStr, words: usize) -> io::Result<Self> {
        let fd = made(name, words)?;
        seal(fd.as_fd(), SIZE_SEALS | libc::F_SEAL_SEAL)?;
        Self::mapping(fd, words)
    }

    /// The words behind a descriptor that another process made by [`create`](Self::create).
    ///
    /// # Errors
    /// EINVAL when the file is not a memfd, is not sealed against a change of its size, is empty,
    /// no whole number of words or beyond [`WORDS_MAX`]; ENOMEM.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let words = words_of(fd.as_fd())?;
        Self::mapping(fd, words)
    }

    /// The same words, mapped until the process ends, without keeping the descriptor: for a library in
    /// a program whose descriptors are its own matter.
    ///
    /// # Errors
    /// Those of [`from_fd`](Self::from_fd).
    pub fn map_static(fd: BorrowedFd<'_>) -> io::Result<&'static [AtomicU64]> {
        let words = words_of(fd)?;
        let first = mapped(fd, 0, words, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: the mapping starts at a page, is `words` long, is never taken away, cannot lose its
        // file's pages (the seals forbid it), and atomic words may be written by others meanwhile.
        Ok(unsafe { slice::from_raw_parts(first.as_ptr(), words) })
    }

    /// Maps a file whose seals keep it `words` long.
    fn mapping(fd: OwnedFd, words: usize) -> io::Result<Self> {
        let first = mapped(fd.as_fd(), 0, words, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Self { fd, part: SharedPart(Mapping { first, words }) })
    }
}

impl PublishedWords {
    /// New words under a name by which they are found in `/proc/PID/fd`, at most 249 bytes.
    ///
    /// # Errors
    /// As [`SharedWords::create_named`]; EINVAL before Linux 5.1.
    pub fn create_named(name: &CStr, words: usize) -> io::Result<Self> {
        let fd = made(name, words)?;
        let first = mapped(fd.as_fd(), 0, words, libc::PROT_READ | libc::PROT_WRITE)?;
        let part = Arc::new(SharedPart(Mapping { first, words }));
        seal(fd.as_fd(), SIZE_SEALS | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)?;
        // The seals hold as they are; another user cannot even open the file again.
        // SAFETY: the call takes numbers only.
        checked(unsafe { libc::fchmod(fd.as_raw_fd(), libc::S_IRUSR) })?;
        Ok(Self { fd, part })
    }

    /// The mapping.
    #[must_use]
    pub fn part(&self) -> &Arc<SharedPart> {
        &self.part
    }
}

impl SharedPart {
    /// Maps `words` words from word `from` on, which begins a page.
    ///
    /// # Errors
    /// Those of [`SharedWords::from_fd`]; EINVAL beyond the end of the file.
    pub fn map(fd: BorrowedFd<'_>, from: usize, words: usize) -> io::Result<Self> {
        Mapping::part(fd, from, words, libc::PROT_READ | libc::PROT_WRITE).map(Self)
    }
}

impl ReadOnlyPart {
    /// Maps `words` words from word `from` on, which begins a page.
    ///
    /// # Errors
    /// As [`SharedPart::map`].
    pub fn map(fd: BorrowedFd<'_>, from: usize, words: usize) -> io::Result<Self> {
        Mapping::part(fd, from, words, libc::PROT_READ).map(Self)
    }

    /// All words of the file, as many as there are.
    ///
    /// # Errors
    /// Those of [`SharedWords::from_fd`].
    pub fn map_all(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let words = words_of(fd)?;
        Self::map(fd, 0, words)
    }

    /// How many words.
    #[must_use]
    pub fn words(&self) -> usize {
        self.0.words
    }

    /// Where a word is, to sleep on it.
    ///
    /// # Panics
    /// Beyond the end.
    #[must_use]
    pub fn address(&self, at: usize) -> Address<'_> {
        assert!(at < self.0.words, "word {at} of {}", self.0.words);
        Address::of_mapped(self.0.first.as_ptr().wrapping_add(at))
    }

    /// One word; what was written before it is seen by later reads.
    ///
    /// # Panics
    /// Beyond the end.
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        assert!(at < self.0.words, "word {at} of {}", self.0.words);
        // SAFETY: within the mapping, which lives as long as `self`.
        let word = unsafe { self.0.first.add(at) };
        // SAFETY: a mapped word; relaxed loads of this size are allowed in memory that cannot be written.
        let value = unsafe { word.as_ref() }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }
}

impl Mapping {
    fn part(
        fd: BorrowedFd<'_>,
        from: usize,
        words: usize,
        access: libc::c_int,
    ) -> io::Result<Self> {
        let end = from.checked_add(words);
        if words == 0 || end.is_none_or(|end| words_of(fd).is_ok_and(|all| end > all)) {
            return Err(invalid("a part of the file has at least one word and ends within it"));
        }
        words_of(fd)?;
        Ok(Self { first: mapped(fd, from, words, access)?, words })
    }
}

/// A new file of so many words that no other process has yet, without seals.
fn made(name: &CStr, words: usize) -> io::Result<OwnedFd> {
    let len = len_bytes(words)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let made = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    checked(made)?;
    // SAFETY: the kernel just made this descriptor, and it has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(made) };
    // SAFETY: the call takes numbers only.
    checked(unsafe { libc::ftruncate(fd.as_raw_fd(), len) })?;
    Ok(fd)
}

fn seal(fd: BorrowedFd<'_>, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: F_ADD_SEALS takes an int.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(())
}

/// The length of a file that is sealed against a change of it.
fn words_of(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: F_GET_SEALS takes no argument.
    let seals = checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
    if seals & SIZE_SEALS != SIZE_SEALS {
        return Err(invalid("the file is not sealed against a change of its size"));
    }
    let len = file_len(fd)?;
    if len % size_of::<u64>() != 0 {
        return Err(invalid("the file does not hold a whole number of words"));
    }
    let words = len / size_of::<u64>();
    len_bytes(words)?;
    Ok(words)
}

/// Maps words of a file whose seals keep it long enough for them.
fn mapped(
    fd: BorrowedFd<'_>,
    from: usize,
    words: usize,
    access: libc::c_int,
) -> io::Result<NonNull<AtomicU64>> {
    let len = words * size_of::<u64>();
    let offset = len_bytes_to(from);
    let raw = fd.as_raw_fd();
    let shared = libc::MAP_SHARED;
    // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, access, shared, raw, offset) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| invalid("mapped at address zero"))
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.part
    }
}

impl Deref for SharedPart {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts at a page, is `words` long until drop, cannot lose its file's
        // pages (the seals forbid it), and atomic words may be written by others meanwhile.
        unsafe { slice::from_raw_parts(self.0.first.as_ptr(), self.0.words) }
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for PublishedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.part
    }
}

impl AsFd for PublishedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let len = self.words * size_of::<u64>();
        // SAFETY: exactly this was mapped, and no reference into it outlives `self`.
        let result = unsafe { libc::munmap(self.first.as_ptr().cast(), len) };
        debug_assert_eq!(result, 0, "the mapping is ours");
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("words", &self.words).finish()
    }
}

fn len_bytes(words: usize) -> io::Result<libc::off_t> {
    if !(1..=WORDS_MAX).contains(&words) {
        return Err(invalid("shared words are at least one and at most WORDS_MAX"));
    }
    Ok(len_bytes_to(words))
}

fn len_bytes_to(word: usize) -> libc::off_t {
    (word * size_of::<u64>()) as libc::off_t
}

fn file_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: `stat` consists of integers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the record is written to a live local.
    checked(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) })?;
    usize::try_from(stat.st_size).map_err(|_| invalid("a file of negative length"))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn memfd(flags: libc::c_uint) -> OwnedFd {
        // SAFETY: the name is a C string.
        let made = unsafe { libc::memfd_create(NAME.as_ptr(), flags) };
        // SAFETY: the kernel just made this descriptor, and it has no other owner.
        unsafe { OwnedFd::from_raw_fd(checked(made).expect("a memfd")) }
    }

    #[test]
    fn two_mappings_of_one_descriptor_see_the_same_words() {
        let ours = SharedWords::create(1000).expect("made");
        assert!(ours.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let fd = ours.as_fd().try_clone_to_owned().expect("a descriptor");
        let theirs = SharedWords::from_fd(fd).expect("sealed");
        assert_eq!(theirs.len(), 1000);
        theirs[999].store(7, Ordering::Release);
        drop(theirs);
        let map_static = SharedWords::map_static(ours.as_fd()).expect("sealed");
        assert_eq!((map_static.len(), map_static[999].load(Ordering::Acquire)), (1000, 7));
        assert_eq!(ours[999].load(Ordering::Acquire), 7);
    }

    #[test]
    fn parts_are_the_words_of_the_file_from_a_page_on() {
        let whole = SharedWords::create_named(c"pollux-parts", 3 * PAGE_WORDS).expect("made");
        let part = SharedPart::map(whole.as_fd(), PAGE_WORDS, PAGE_WORDS + 1).expect("within");
        let read = ReadOnlyPart::map(whole.as_fd(), PAGE_WORDS, 2).expect("within");
        part[1].store(5, Ordering::Release);
        assert_eq!((whole[PAGE_WORDS + 1].load(Ordering::Acquire), read.word(1)), (5, 5));
        for (from, words) in [(1, 1), (0, 0), (2 * PAGE_WORDS, PAGE_WORDS + 1), (usize::MAX, 2)] {
            SharedPart::map(whole.as_fd(), from, words).expect_err("not a part");
        }
    }

    #[test]
    fn the_size_can_not_be_changed() {
        let ours = SharedWords::create(1).expect("made");
        let file = File::from(ours.as_fd().try_clone_to_owned().expect("a descriptor"));
        assert_eq!(file.set_len(0).expect_err("sealed").raw_os_error(), Some(libc::EPERM));
        assert_eq!(file.set_len(4096).expect_err("sealed").raw_os_error(), Some(libc::EPERM));
    }

    /// Each way to write a file or to change its length, through a descriptor of it; those that worked.
    fn ways_to_write(fd: BorrowedFd<'_>) -> Vec<&'static str> {
        use std::os::unix::fs::FileExt;
        let raw = fd.as_raw_fd();
        let len = PAGE_WORDS * size_of::<u64>();
        let file = File::from(fd.try_clone_to_owned().expect("a descriptor"));
        let read = libc::PROT_READ;
        let write = libc::PROT_WRITE;
        let mut worked = Vec::new();
        let mut note = |way, is_done: bool| worked.extend(is_done.then_some(way));
        note("write", file.write_at(&[1], 0).is_ok());
        note("map to write", mapped(fd, 0, 1, read | write).is_ok());
        note("shrink", file.set_len(0).is_ok());
        note("grow", file.set_len(2 * len as u64).is_ok());
        // SAFETY: F_ADD_SEALS takes an int.
        note("seal", unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, libc::F_SEAL_WRITE) } == 0);
        for (way, mode) in [
            ("punch a hole", libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            ("allocate behind the end", 0),
        ] {
            let from = if mode == 0 { len } else { 0 };
            // SAFETY: the call takes numbers only.
            note(way, unsafe { libc::fallocate(raw, mode, from as libc::off_t, 4096) } == 0);
        }
        let first = mapped(fd, 0, PAGE_WORDS, read).expect("it may be read");
        let mapping = Mapping { first, words: PAGE_WORDS };
        let at = mapping.first.as_ptr();
        // SAFETY: a whole mapping of this function, which nothing else refers to.
        note("protect anew", unsafe { libc::mprotect(at.cast(), len, read | write) } == 0);
        // SAFETY: the same; what it removes is not read again.
        note("remove pages", unsafe { libc::madvise(at.cast(), len, libc::MADV_REMOVE) } == 0);
        let own = File::options().write(true).open("/proc/self/mem").expect("our own");
        note("write through /proc", own.write_at(&[1], at.addr() as u64).is_ok());
        worked
    }

    #[test]
    fn published_words_are_written_by_their_maker_alone() {
        let ours = PublishedWords::create_named(c"pollux-published", PAGE_WORDS).expect("made");
        ours[0].store(7, Ordering::Release);
        let read = ReadOnlyPart::map_all(ours.as_fd()).expect("it may be read");
        assert_eq!((read.words(), read.word(0)), (PAGE_WORDS, 7));
        assert_eq!(ways_to_write(ours.as_fd()), [""; 0]);
        // Root opens it again; the seals are those of the file.
        let again = format!("/proc/self/fd/{}", ours.as_fd().as_raw_fd());
        if let Ok(again) = File::options().read(true).write(true).open(again) {
            assert_eq!(ways_to_write(again.as_fd()), [""; 0]);
        }
        ours[0].store(8, Ordering::Release);
        assert_eq!(read.word(0), 8, "its maker still writes");
    }

    #[test]
    fn shared_words_are_written_by_all_and_keep_their_length() {
        let ours = SharedWords::create(PAGE_WORDS).expect("made");
        let ways = ["write", "map to write", "punch a hole", "protect anew", "remove pages"];
        let worked = ways_to_write(ours.as_fd());
        assert_eq!(worked, [&ways[..], &["write through /proc"]].concat());
    }

    #[test]
    fn a_file_that_could_shrink_or_has_the_wrong_size_is_refused() {
        SharedWords::create(0).expect_err("none");
        SharedWords::create(WORDS_MAX + 1).expect_err("too many");
        SharedWords::from_fd(memfd(libc::MFD_ALLOW_SEALING)).expect_err("not sealed");
        let pipe = io::pipe().expect("a pipe").0;
        SharedWords::from_fd(pipe.into()).expect_err("no memfd");
        for len in [0, 12] {
            let file = File::from(memfd(libc::MFD_ALLOW_SEALING));
            file.set_len(len).expect("not sealed yet");
            // SAFETY: F_ADD_SEALS takes an int.
            let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SIZE_SEALS) };
            checked(sealed).expect("sealed");
            SharedWords::from_fd(file.into()).expect_err("no whole number of words");
        }
    }
}
