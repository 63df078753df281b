//! The names that are taken, where calls of each go, and the start of the library, which says that.
//!
//! ```text
//!  read@plt ──► two instructions: the caller's address behind the arguments, jump to the target
//!                 target = first     at the first call: settles where calls go
//!                        = inner     what is counted, or goes to another mechanism
//!                        = real      the C library's own, where neither is so: nothing else runs
//! ```
//! The instructions are the one thing that Rust cannot ask for. A function of the C library that is
//! given a further argument does not look at it.
//!
//! The library starts when it is loaded, as the program may be another user's later; or at the first call of a
//! name that is taken, if that comes earlier. A forked child has the memory of its parent: its thread needs a cell
//! of its own, and it has a copy of each instance of epoll.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use pollux_epoll_c::border;

use crate::thread::{Thread, set_errno};
use crate::{attach, emulation, filters, past};

/// A name that is taken. All that a call needs of it is in one cache line.
#[repr(C, align(32))]
pub(crate) struct Name {
    /// Where calls go. The first field, as the instructions jump to what stands here.
    target: AtomicPtr<c_void>,
    /// The C library's function; null before the first call, and where it has none.
    real: AtomicPtr<c_void>,
    /// Where each thread has its [`Thread`].
    place: AtomicIsize,
}

/// What a name is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interposed {
    /// To be counted.
    Counting,
    /// To be counted, once the library has started by another name.
    Lock,
    /// To be done, or noted, where another mechanism takes the place of the kernel's epoll.
    Emulation,
    Both,
}

impl Name {
    pub(crate) const fn new(first: *mut c_void) -> Self {
        let target = AtomicPtr::new(first);
        let real = AtomicPtr::new(ptr::null_mut());
        Self { target, real, place: AtomicIsize::new(0) }
    }

    /// The C library's function, once the name was called.
    #[inline]
    pub(crate) fn real(&self) -> *mut c_void {
        self.real.load(Relaxed)
    }

    /// The calling thread, once the name was called.
    #[inline]
    pub(crate) fn thread(&self) -> &'static Thread {
        // SAFETY: the caller was called by way of `settle`, which stored what `Thread::place` said.
        unsafe { Thread::at(self.place.load(Relaxed)) }
    }

    /// Looks the C library's function up and says where this call goes; from then on all go there, as soon
    /// as it is known whether anything is counted.
    #[cold]
    pub(crate) fn settle(
        &self,
        name: &CStr,
        inner: *mut c_void,
        taken_for: Interposed,
    ) -> *mut c_void {
        let real = look_up(name);
        self.real.store(real, Relaxed);
        self.place.store(Thread::place(), Relaxed);
        if taken_for == Interposed::Lock && !is_started() && !real.is_null() {
            // Allocators lock before anything else runs, and to start takes memory.
            return real;
        }
        if !start() {
            // In the middle of that: what is taken passes on whatever is not the program's.
            return inner;
        }
        let is_taken = match taken_for {
            Interposed::Counting | Interposed::Lock => attach::is_counted(),
            Interposed::Emulation => emulation::is_chosen(),
            Interposed::Both => attach::is_counted() || emulation::is_chosen(),
        };
        let target = if is_taken || real.is_null() { inner } else { real };
        self.target.store(target, Relaxed);
        target
    }
}

/// Set by the thread that starts the library, for good.
static IS_TRIED: AtomicBool = AtomicBool::new(false);
/// Set when that is over: what `attach.rs` and `emulation.rs` say holds for good.
static IS_SETTLED: AtomicBool = AtomicBool::new(false);

/// Called by the dynamic linker.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    start();
}

/// Called by the dynamic linker when the process ends by exit(3).
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDED: extern "C" fn() = ended;

extern "C" fn ended() {
    let thread = Thread::here();
    thread.counting("the end of the process", || thread.settle());
    if thread.is_own() && is_started() && (attach::is_counted() || emulation::is_chosen()) {
        past::look_at_the_end();
        emulation::ending();
    }
}

/// Starts the library at the first call. Says whether that is over; if not, this thread or another one is at it.
pub(crate) fn start() -> bool {
    if !IS_TRIED.load(Relaxed) && !IS_TRIED.swap(true, Relaxed) {
        border::own_all_panics();
        let thread = Thread::here();
        thread.inside(|| thread.counting("the start of the library", attach::attach));
        if attach::is_counted() || emulation::is_chosen() {
            thread.inside(past::note_the_start);
            // SAFETY: the functions live as long as the program: a library that is preloaded stays.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        }
        // Release: a thread that sees this sees what was found.
        IS_SETTLED.store(true, Release);
    }
    is_started()
}

/// Whether the library has started.
pub(crate) fn is_started() -> bool {
    IS_SETTLED.load(Acquire)
}

/// What is done around a fork that the C library does not know of, as pthread_atfork(3) does it: before it.
pub(crate) fn before_fork() {
    emulation::before_fork();
}

/// Behind it, in the parent.
pub(crate) fn forked() {
    emulation::after_fork_in_parent();
}

/// Behind it, in the child.
pub(crate) fn is_child() {
    Thread::here().forget();
    filters::forked();
    emulation::after_fork_in_child();
}

unsafe extern "C" fn before() {
    before_fork();
}

unsafe extern "C" fn in_parent() {
    forked();
}

unsafe extern "C" fn in_child() {
    is_child();
}

/// The function of the C library, or of a library between; null where there is none. Asked at the first call of
/// each name, for a program may call before any constructor ran.
pub(crate) fn look_up(name: &CStr) -> *mut c_void {
    // Of a name with several versions older C libraries give the oldest, whose arguments mean something else.
    #[cfg(target_arch = "x86_64")]
    for (start, version) in [("pthread_cond_", c"GLIBC_2.3.2"), ("posix_spawn", c"GLIBC_2.15")] {
        if name.to_bytes().starts_with(start.as_bytes()) {
            // SAFETY: both are C strings.
            let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
            if !found.is_null() {
                return found;
            }
        }
    }
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The C string of a name that ends with a zero.
pub(crate) const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name without zeros"),
    }
}

/// What a call answers that the C library does not have.
pub(crate) fn unknown() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// Defines a function under the name of one of the C library, with the caller's address as a further
/// argument. The number is that of its arguments, all of them integers or pointers. In the body `NAME.thread()`
/// is the calling thread, and `real()` the C library's function, if it has one.
macro_rules! taken {
    ($for:ident: $name:ident / $count:tt ($($arg:ident: $type:ty),*; $caller:ident) $(-> $ret:ty)? $body:block) => {
        mod $name {
            use super::*;

            type Real = unsafe extern "C-unwind" fn($($type),*) $(-> $ret)?;
            type Target = unsafe extern "C-unwind" fn($($type,)* usize) $(-> $ret)?;

            static NAME: crate::names::Name =
                crate::names::Name::new(first as Target as *mut std::ffi::c_void);

            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name() {
                crate::names::pass_on!($count)
            }

            #[cold]
            unsafe extern "C-unwind" fn first($($arg: $type,)* $caller: usize) $(-> $ret)? {
                const TEXT: &std::ffi::CStr = crate::names::name(concat!(stringify!($name), "\0"));
                let inner = inner as Target as *mut std::ffi::c_void;
                let target = NAME.settle(TEXT, inner, crate::names::Interposed::$for);
                // SAFETY: either function takes these arguments; the last one the C library's ignores.
                let target = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Target>(target) };
                // SAFETY: the caller's own arguments.
                unsafe { target($($arg,)* $caller) }
            }

            #[inline]
            fn real() -> Option<Real> {
                // SAFETY: the C library's function of this name has this type, and null is not a function.
                unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<Real>>(NAME.real()) }
            }

            unsafe extern "C-unwind" fn inner($($arg: $type,)* $caller: usize) $(-> $ret)? $body
        }
    };
}

/// The instructions for a number of arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! pass_on {
    (0) => { crate::names::pass_on!("mov rdi, [rsp]") };
    (1) => { crate::names::pass_on!("mov rsi, [rsp]") };
    (2) => { crate::names::pass_on!("mov rdx, [rsp]") };
    (3) => { crate::names::pass_on!("mov rcx, [rsp]") };
    (4) => { crate::names::pass_on!("mov r8, [rsp]") };
    (5) => { crate::names::pass_on!("mov r9, [rsp]") };
    // The seventh argument lies on the stack, which stands at a multiple of 16 before a call.
    (6) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push qword ptr [rsp]",
            ".cfi_adjust_cfa_offset 8",
            "call qword ptr [rip + {name}]",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
            name = sym NAME,
        )
    };
    // As above, with one argument that lay there before.
    (7) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "push qword ptr [rsp + 8]",
            ".cfi_adjust_cfa_offset 8",
            "push qword ptr [rsp + 24]",
            ".cfi_adjust_cfa_offset 8",
            "call qword ptr [rip + {name}]",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "ret",
            ".cfi_endproc",
            name = sym NAME,
        )
    };
    ($load:literal) => {
        core::arch::naked_asm!($load, "jmp qword ptr [rip + {name}]", name = sym NAME)
    };
}

/// The instructions for a number of arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! pass_on {
    (0) => { crate::names::pass_on!("mov x0, x30") };
    (1) => { crate::names::pass_on!("mov x1, x30") };
    (2) => { crate::names::pass_on!("mov x2, x30") };
    (3) => { crate::names::pass_on!("mov x3, x30") };
    (4) => { crate::names::pass_on!("mov x4, x30") };
    (5) => { crate::names::pass_on!("mov x5, x30") };
    (6) => { crate::names::pass_on!("mov x6, x30") };
    (7) => { crate::names::pass_on!("mov x7, x30") };
    ($load:literal) => {
        core::arch::naked_asm!(
            $load,
            "adrp x16, {name}",
            "ldr x16, [x16, :lo12:{name}]",
            "br x16",
            name = sym NAME,
        )
    };
}

pub(crate) use {pass_on, taken};
