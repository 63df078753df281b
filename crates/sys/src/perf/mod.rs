//! Performance events: counters, samples, traces and tracepoint numbers (`perf_event_open(2)`).
//!
//! The lab calls this to learn what a measured thread did in the kernel: how many system calls,
//! switches and wakeups it had, and in which functions it spent its time. Nothing here decides
//! whether a figure can be believed: an event that the kernel lets us open can still read 0 for
//! ever (at `kernel.perf_event_paranoid` = 2 a counter opened with `excludes_kernel` counts no
//! context switch, and says nothing about it). The lab probes each source with a known amount of
//! work before it uses one.
//!
//! What this must never do: change the machine. Events are attached to the threads or CPUs named
//! by the caller and vanish with their descriptors; the trace file system is mounted only in a
//! mount namespace that lives as long as one short thread.
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, thread};

mod counter;
mod sampler;
mod trace;

pub use counter::{Counter, CounterOptions, CounterReading, Event, Hardware, Scope, Software};
pub use sampler::{Sample, Sampler, SamplerOptions, online_cpus};
pub use trace::{Followed, Record, Trace, TraceError, What};

// Tracepoint numbers, which differ from boot to boot.
//
// The lab asks for the numbers of a few tracepoints before it opens counters on them. They are
// read from the trace file system where that is mounted. Where it is not, and we may mount, it is
// mounted in a mount namespace of one short-lived thread, so that no other process (nor any other
// thread of ours) ever sees it. Nothing but `id` files is read and nothing is written.

/// Where distributions mount the trace file system, today's place first.
pub const TRACEFS_ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel makes this folder as a mount point, so no folder of ours is needed.
const MOUNT_POINT: &CStr = c"/sys/kernel/tracing";

/// A tracepoint by its names, as in `raw_syscalls:sys_enter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Group, such as `raw_syscalls`.
    pub group: &'static str,
    /// Name within its group, such as `sys_enter`.
    pub name: &'static str,
}

/// Reads one tracepoint's number below a mounted trace file system.
///
/// # Errors
///
/// Those of reading `events/<group>/<name>/id`: `NotFound` when it is not mounted there or the
/// kernel has no such tracepoint, `PermissionDenied` for users who may not look; `InvalidData`
/// when the file holds no number.
pub fn tracepoint_id(tracefs_root: &Path, group: &str, name: &str) -> io::Result<u64> {
    let path = tracefs_root.join("events").join(group).join(name).join("id");
    let text = std::fs::read_to_string(&path)?;
    text.trim().parse().map_err(|_| {
        let fault = format!("{} holds {text:?}, not a number", path.display());
        io::Error::new(io::ErrorKind::InvalidData, fault)
    })
}

/// Reads several tracepoints' numbers from where the trace file system is mounted, or else by a
/// private mount. One result for each tracepoint, in order.
///
/// # Errors
///
/// The outer error: it is not mounted where we can read it, and a private mount was refused too
/// (`EPERM` without `CAP_SYS_ADMIN`). The inner ones: this tracepoint does not exist.
pub fn tracepoint_ids(wanted: &[Tracepoint]) -> io::Result<Vec<io::Result<u64>>> {
    let readable = |root: &&str| std::fs::read_dir(Path::new(root).join("events")).is_ok();
    match TRACEFS_ROOTS.iter().copied().find(|root| readable(root)) {
        Some(root) => Ok(ids_below(Path::new(root), wanted)),
        None => tracepoint_ids_by_private_mount(wanted),
    }
}

/// Reads several tracepoints' numbers through a mount that only one short-lived thread can see.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` on a kernel without tracing, `ENOENT` when
/// `/sys` is not mounted, and those of starting a thread.
fn tracepoint_ids_by_private_mount(wanted: &[Tracepoint]) -> io::Result<Vec<io::Result<u64>>> {
    thread::scope(|scope| {
        let reader =
            thread::Builder::new().name("tracefs-ids".to_owned()).spawn_scoped(scope, || {
                mount_for_this_thread()?;
                Ok(ids_below(Path::new(TRACEFS_ROOTS[0]), wanted))
            })?;
        reader.join().expect("the id reader does not panic")
    })
}

fn ids_below(root: &Path, wanted: &[Tracepoint]) -> Vec<io::Result<u64>> {
    wanted.iter().map(|point| tracepoint_id(root, point.group, point.name)).collect()
}

/// Leaves the process's mount namespace, cuts the propagation of mounts, and only then mounts.
///
/// The order is what keeps the host untouched: a mount made before the recursive change to
/// private would travel to every namespace that shares it.
fn mount_for_this_thread() -> io::Result<()> {
    // SAFETY: takes only a number. A new mount namespace for this thread alone also gives it its
    // own root and working directory, so no other thread sees what follows.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(c"tracefs", MOUNT_POINT, Some(c"tracefs"), flags)
}

fn mount(source: &CStr, target: &CStr, kind: Option<&CStr>, flags: u64) -> io::Result<()> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all strings end in NUL and outlive the call; a null file system type and null data
    // are allowed by mount(2) for a change of propagation and for tracefs.
    checked(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) })
}

fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Offset of `data_head` in the control page: bytes the kernel has ever written.
const HEAD_OFFSET_BYTES: usize = 1024;
/// Offset of `data_tail`: bytes we have ever taken.
const TAIL_OFFSET_BYTES: usize = 1032;

/// A mapped sample buffer; unmapped on drop.
///
/// `sampler.rs` maps one for each CPU and drains it. The layout is that of `struct perf_event_mmap_page`: one
/// control page, then a power-of-two number of data pages used as a circle. The kernel moves `head` forward, we
/// move `tail`; both only ever grow. Nothing here knows what a record means.
#[derive(Debug)]
struct Ring {
    mapping: Mapping,
    page_bytes: usize,
    data_bytes: usize,
}

impl Ring {
    /// Maps the buffer of `event` with `data_bytes` of data, which is a power of two and at least
    /// one page.
    ///
    /// # Errors
    ///
    /// `EPERM` when the user's locked memory (`kernel.perf_event_mlock_kb` for each CPU, then
    /// `RLIMIT_MEMLOCK`) is used up; `EINVAL` for an inherited event that is not bound to a CPU.
    fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = page_bytes();
        assert!(data_bytes.is_power_of_two() && data_bytes >= page_bytes);
        let mapping = Mapping::new(event, page_bytes + data_bytes)?;
        Ok(Self { mapping, page_bytes, data_bytes })
    }

    /// Appends all bytes written since the last call to `out` and hands their room back.
    fn drain_into(&mut self, out: &mut Vec<u8>) {
        // Acquire pairs with the kernel's store of `data_head` after the record's bytes.
        let head = self.control(HEAD_OFFSET_BYTES).load(Ordering::Acquire);
        let tail = self.control(TAIL_OFFSET_BYTES).load(Ordering::Relaxed);
        let filled = usize::try_from(head - tail).expect("at most the ring's length");
        assert!(filled <= self.data_bytes, "the kernel never overtakes us");
        let start = (tail as usize) & (self.data_bytes - 1);
        let first = filled.min(self.data_bytes - start);
        self.copy(start, first, out);
        self.copy(0, filled - first, out);
        // Release: the bytes above are copied before the kernel may overwrite them.
        self.control(TAIL_OFFSET_BYTES).store(head, Ordering::Release);
    }

    fn control(&self, offset_bytes: usize) -> &AtomicU64 {
        let word = self.mapping.at(offset_bytes).cast::<AtomicU64>();
        // SAFETY: the control page is mapped readable and writable for as long as `self` lives,
        // both offsets are multiples of 8, and the kernel shares these words by single loads and
        // stores of 64 bits.
        unsafe { word.as_ref() }
    }

    fn copy(&self, start: usize, len_bytes: usize, out: &mut Vec<u8>) {
        let old = out.len();
        out.resize(old + len_bytes, 0);
        let from = self.mapping.at(self.page_bytes + start);
        // SAFETY: `start + len_bytes <= data_bytes`, which is mapped; the kernel does not write
        // between tail and head; `out` was grown by exactly `len_bytes` and does not overlap.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), out[old..].as_mut_ptr(), len_bytes) };
    }
}

/// A shared mapping of an event's descriptor.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Ring` is its only user.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(event: BorrowedFd<'_>, len_bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = event.as_raw_fd();
        // SAFETY: a null address lets the kernel choose a free place, so nothing mapped is lost.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), len_bytes, protection, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel never maps page 0 unasked");
        Ok(Self { base, len_bytes })
    }

    fn at(&self, offset_bytes: usize) -> NonNull<u8> {
        assert!(offset_bytes < self.len_bytes);
        // SAFETY: the offset lies inside the one mapping that `base` starts.
        unsafe { self.base.add(offset_bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len_bytes` are those of a successful mmap, and no reference into the
        // mapping outlives `self`.
        let answer = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
        assert_eq!(answer, 0, "munmap of our own mapping");
    }
}

/// Length of a memory page.
fn page_bytes() -> usize {
    // SAFETY: sysconf only takes a number and returns one.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(answer).expect("every Linux has a page size")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;
    use crate::perf::counter::{self, Attribute, ENABLE, KIND_SOFTWARE, flag};

    const SYS_ENTER: Tracepoint = Tracepoint { group: "raw_syscalls", name: "sys_enter" };
    const UNKNOWN: Tracepoint = Tracepoint { group: "raw_syscalls", name: "no_such_point" };

    /// A folder shaped like a trace file system; removed on drop.
    struct FakeRoot(std::path::PathBuf);

    impl FakeRoot {
        fn with_id(label: &str, text: &str) -> Self {
            let name = format!("pollux-tracefs-{label}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            let folder = root.join("events/raw_syscalls/sys_enter");
            fs::create_dir_all(&folder).expect("temporary folder");
            fs::write(folder.join("id"), text).expect("temporary file");
            Self(root)
        }
    }

    impl Drop for FakeRoot {
        fn drop(&mut self) {
            // Best effort: a leftover in the temporary folder harms no later test.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_id_file_is_one_number() {
        let root = FakeRoot::with_id("number", "348\n");
        let id = tracepoint_id(&root.0, "raw_syscalls", "sys_enter").expect("a number");
        assert_eq!(id, 348);
        let missing = tracepoint_id(&root.0, "raw_syscalls", "sys_exit").expect_err("missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_id_file_without_a_number_is_named_in_the_error() {
        let root = FakeRoot::with_id("text", "many\n");
        let error = tracepoint_id(&root.0, "raw_syscalls", "sys_enter").expect_err("no number");
        assert!(error.to_string().contains("sys_enter/id"), "{error}");
    }

    #[test]
    fn a_private_mount_is_seen_by_nobody_else() {
        let before = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        let answer = tracepoint_ids_by_private_mount(&[SYS_ENTER, UNKNOWN]);
        let after = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert_eq!(before, after);
        match answer {
            Ok(ids) => {
                assert!(ids[0].as_ref().is_ok_and(|id| *id > 0), "{:?}", ids[0]);
                assert!(ids[1].is_err());
            }
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }

    /// Bytes of a sample record that holds an address and nothing else.
    const RECORD_BYTES: usize = 16;
    /// Pages touched at most; far more than the records waited for.
    const TOUCHES_MAX: usize = 100_000;

    /// One record for each page fault of this thread in user mode.
    fn every_page_fault() -> Attribute {
        Attribute {
            kind: KIND_SOFTWARE,
            config: 2,
            sample_frequency_hz: 1, // without the frequency flag: a period of one fault
            sample_type: 1,
            flags: flag::DISABLED | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HYPERVISOR,
            ..Attribute::default()
        }
    }

    #[test]
    fn records_stay_whole_when_the_ring_wraps() {
        let Ok(event) = counter::open(every_page_fault(), 0, -1) else {
            return; // perf is closed to this user; the counter tests check the reason
        };
        let data_bytes = page_bytes();
        let mut ring = Ring::map(event.as_fd(), data_bytes).expect("one page may be locked");
        counter::request(event.as_fd(), ENABLE, 0).expect("enable");
        let mut fresh = Vec::new();
        let mut drained = Vec::new();
        while drained.len() < 3 * data_bytes {
            assert!(fresh.len() < TOUCHES_MAX, "{} bytes of records", drained.len());
            let mut page = vec![0_u8; page_bytes()];
            page.fill(1);
            fresh.push(page);
            ring.drain_into(&mut drained);
        }
        let (records, rest) = drained.as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        for record in records {
            assert_eq!(record[0], 9, "a sample: {record:?}");
            assert_eq!(usize::from(record[6]), RECORD_BYTES, "its length: {record:?}");
        }
    }
}
