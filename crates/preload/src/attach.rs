//! The shared memory of the observer: found by the environment, mapped once in each program.
//!
//! The description of the program waits until a thread has figures. A program without the variable, or whose
//! memory is gone, continues uncounted.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pollux_sys::loop_stats::{Cell as Tally, Counter, Image, Region};
use pollux_sys::shared::SharedWords;

use crate::filters;

/// Set by the thread that describes the program, for good.
static IS_DESCRIBED: AtomicBool = AtomicBool::new(false);
/// Whether there is a memory to count in. Without it calls are passed on and nothing is looked at.
static IS_COUNTED: AtomicBool = AtomicBool::new(false);
static REGION: OnceLock<Region<'static>> = OnceLock::new();
/// The number of this program's image, plus one. Children that are forked keep it.
static IMAGE: AtomicU64 = AtomicU64::new(0);

/// Whether anything is counted in this program.
#[inline]
pub(crate) fn is_counted() -> bool {
    IS_COUNTED.load(Relaxed)
}

/// A cell with this thread's name on it.
pub(crate) fn claim(pid: u32) -> Option<Tally<'static>> {
    describe_once();
    let tally = REGION.get()?.claim_cell()?;
    let mut tid = filters::own_tid();
    let mut name = [0u8; 16];
    if filters::is_set() {
        tally.count(Counter::Filtered);
    } else {
        // SAFETY: the call takes no arguments.
        tid = unsafe { libc::gettid() }.unsigned_abs();
        // SAFETY: the kernel writes at most 16 bytes to the address.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    }
    tally.name(pid, tid, name, IMAGE.load(Relaxed).checked_sub(1));
    Some(tally)
}

/// Describes the program to the observer, before it has figures or may no longer be asked.
pub(crate) fn describe_once() {
    let Some(region) = REGION.get() else { return };
    if !IS_DESCRIBED.swap(true, Relaxed)
        && let Some((number, image)) = region.claim_image()
    {
        describe(image);
        IMAGE.store(number + 1, Relaxed);
    }
}

/// Starts another program by `exec`, which comes back only when that failed; `is_counted` says whether it finds
/// the memory too. Holds nothing, as a child of vfork(2) may call it.
pub(crate) fn starting(is_counted: bool, exec: impl FnOnce() -> c_int) -> c_int {
    let region = REGION.get().filter(|_| !is_counted);
    region.inspect(|region| region.starts_uncounted());
    let result = exec();
    region.inspect(|region| region.not_started());
    result
}

/// Names the memory, to programs that have the library.
const VARIABLE: &CStr = c"POLLUX_LOOP_STATS";

/// Maps the memory, if the environment names one; called once, by `names.rs`.
pub(crate) fn attach() {
    // SAFETY: the name is a C string.
    let path = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if path.is_null() {
        return;
    }
    // SAFETY: the path is a C string of the environment.
    let fd = unsafe { libc::open(path, libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return;
    }
    // SAFETY: the kernel just gave this descriptor out, to this thread alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let Ok(words) = SharedWords::map_static(fd.as_fd()) else { return };
    let Some(region) = Region::of(words) else { return };
    // No other thread attaches, so it cannot be set already.
    let _ = REGION.set(region);
    IS_COUNTED.store(true, Relaxed);
}

/// Whether a program with this environment counts as well: it has the library and finds the memory.
///
/// # Safety
/// `environment` is null or leads to strings, the last of which is null.
pub(crate) unsafe fn is_in(environment: *const *const c_char) -> bool {
    const LIBRARY: &CStr = c"LD_PRELOAD";
    let has = |name: &CStr| {
        let mut next = environment;
        loop {
            // SAFETY: not beyond the null at the end.
            let entry = unsafe { *next };
            if entry.is_null() {
                return false;
            }
            // SAFETY: a string of the environment.
            let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
            if entry.strip_prefix(name.to_bytes()).is_some_and(|rest| rest.starts_with(b"=")) {
                return true;
            }
            next = next.wrapping_add(1);
        }
    };
    !environment.is_null() && has(VARIABLE) && has(LIBRARY)
}

/// Says which files lie where.
fn describe(mut image: Image<'_>) {
    let data = (&raw mut image).cast::<c_void>();
    // SAFETY: the callback is given the image, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(add), data) };
}

/// Adds one file. Called by the dynamic linker with a record that is valid during the call.
unsafe extern "C" fn add(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    image: *mut c_void,
) -> c_int {
    // SAFETY: `describe` gave this address, of an image that is alive.
    let image = unsafe { &*image.cast::<Image<'_>>() };
    // SAFETY: the dynamic linker's record is valid during the call.
    let info = unsafe { &*info };
    let mut start = u64::MAX;
    let mut end = 0;
    for index in 0..info.dlpi_phnum {
        // SAFETY: the record says that there are so many headers.
        let header = unsafe { info.dlpi_phdr.add(index.into()) };
        // SAFETY: as above.
        let header = unsafe { &*header };
        if header.p_type == libc::PT_LOAD {
            start = start.min(info.dlpi_addr + header.p_vaddr);
            end = end.max(info.dlpi_addr + header.p_vaddr + header.p_memsz);
        }
    }
    let mut own = [0; 224];
    image.add(start, end, info.dlpi_addr, path_of(info.dlpi_name, &mut own));
    0
}

/// The path of a file; the program itself has none in the record.
fn path_of(name: *const c_char, own: &mut [u8; 224]) -> &[u8] {
    if !name.is_null() {
        // SAFETY: the dynamic linker's names are C strings, which live as long as their files.
        let name = unsafe { CStr::from_ptr(name) };
        if !name.is_empty() {
            return name.to_bytes();
        }
    }
    const OWN: &CStr = c"/proc/self/exe";
    // SAFETY: the link's target is written to so many bytes at most.
    let len = unsafe { libc::readlink(OWN.as_ptr(), own.as_mut_ptr().cast(), own.len()) };
    &own[..usize::try_from(len).unwrap_or(0)]
}
