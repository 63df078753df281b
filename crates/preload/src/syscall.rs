//! syscall(2): calls by their number, which go the way of those by name.
//!
//! libuv closes by it, so as not to be cancelled, and enters its rings by it; the standard library of Rust sleeps by
//! it (futex(2)).
//!
//! Allocators call it while they start, to pass by libraries of this kind: until this library has started, the
//! call is the kernel's, and nothing is looked up.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use libc::{epoll_event, iovec, msghdr, pollfd, sigset_t, ssize_t, timespec};
use pollux_sys::loop_stats::Call;

use crate::attach;
use crate::calls::{self, Words, outcome_of_connect, outcome_of_none, outcome_of_read};
use crate::calls::{of_message, outcome_of_write, sum};
use crate::emulation::{self, Limit};
use crate::kernel::kernels;
use crate::lockup;
use crate::names::{self, look_up};
use crate::rings;
use crate::thread::{Thread, set_errno};
use crate::turn::Outcome;
use crate::waits::{self, WaitArgs};

type Real =
    unsafe extern "C-unwind" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
type Target = unsafe extern "C-unwind" fn(
    c_long,
    c_long,
    c_long,
    c_long,
    c_long,
    c_long,
    c_long,
    usize,
) -> c_long;

/// Where calls go: to the kernel, to [`inner`], or to the C library's own function.
static NAME: AtomicPtr<c_void> = AtomicPtr::new(early as Target as *mut c_void);
/// The C library's function, or that of a library between.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall() {
    crate::names::pass_on!(7)
}

/// Called by the dynamic linker: until then calls are the kernel's.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    if !names::start() {
        return;
    }
    let real = look_up(c"syscall");
    if real.is_null() {
        return;
    }
    REAL.store(real, Release);
    let is_taken = attach::is_counted() || emulation::is_chosen();
    NAME.store(if is_taken { inner as Target as *mut c_void } else { real }, Release);
}

unsafe extern "C-unwind" fn early(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
    _caller: usize,
) -> c_long {
    // SAFETY: the program's own call, with its own arguments.
    answered(unsafe { kernels(number, [a, b, c, d, e, f]) })
}

/// As the C library answers: the kernel's errors are numbers from -4095 on.
fn answered(result: c_long) -> c_long {
    if (-4095..0).contains(&result) {
        set_errno(-result as c_int);
        return -1;
    }
    result
}

unsafe extern "C-unwind" fn inner(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
    caller: usize,
) -> c_long {
    let real = REAL.load(Acquire);
    // SAFETY: `settle` found it before calls came here, and the C library's function of this name has this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Real>(real) };
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real(number, a, b, c, d, e, f) };
    let thread = Thread::here();
    if thread.is_inside() {
        return kernel();
    }
    let args = Arguments { number, words: [a, b, c, d, e], caller };
    // SAFETY: what the kernel asks for of the program's arguments.
    unsafe { args.pass(thread, kernel) }
}

/// A call as the program made it.
struct Arguments {
    number: c_long,
    words: [c_long; 5],
    caller: usize,
}

impl Arguments {
    /// # Safety
    /// The arguments are such as the kernel asks for of this call.
    unsafe fn pass(&self, thread: &Thread, kernel: impl Fn() -> c_long) -> c_long {
        let number_of = |index: usize| self.words[index] as c_int;
        let fd = number_of(0);
        let caller = self.caller as u64;
        let answer = || kernel() as c_int;
        match self.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => waits::create(0, fd > 0, answer).into(),
            libc::SYS_epoll_create1 => waits::create(fd, true, answer).into(),
            libc::SYS_epoll_ctl => {
                let event = self.words[3] as *mut epoll_event;
                let update = (fd, number_of(1), number_of(2));
                // SAFETY: the caller's promise.
                unsafe { waits::control(update, event, caller, answer) }.into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                let asked = self.wait(Limit::of_ms(number_of(3)));
                // SAFETY: the caller's promise.
                unsafe { waits::wait(&asked, ptr::null(), answer) }.into()
            }
            libc::SYS_epoll_pwait => {
                let asked = self.wait(Limit::of_ms(number_of(3)));
                // SAFETY: the caller's promise.
                unsafe { waits::wait(&asked, self.words[4] as *const sigset_t, answer) }.into()
            }
            libc::SYS_epoll_pwait2 => {
                let time = self.words[3] as *const timespec;
                // SAFETY: the caller's promise; null means without a limit.
                let asked = self.wait(Limit::of(unsafe { time.as_ref() }));
                // SAFETY: the caller's promise.
                unsafe { waits::wait(&asked, self.words[4] as *const sigset_t, answer) }.into()
            }
            libc::SYS_io_uring_setup => {
                let made = kernel();
                // SAFETY: the kernel wrote what the ring is like.
                unsafe { rings::made(made, self.words[1]) };
                made
            }
            libc::SYS_io_uring_enter => {
                // SAFETY: the caller's promise.
                unsafe { rings::entered(fd, self.words[1], caller, calls::closing_by_ring, kernel) }
            }
            libc::SYS_close_range => {
                let first = fd.cast_unsigned();
                let last = number_of(1).cast_unsigned();
                let flags = number_of(2);
                let closed = calls::close_range_by(first, last, flags, |first, last| {
                    thread.inside(|| {
                        // SAFETY: takes no pointer; the caller's own arguments, or a part of the range.
                        unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int }
                    })
                });
                closed.into()
            }
            libc::SYS_dup => duplicated(fd, kernel()),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => {
                calls::replaced(fd, number_of(1), 0);
                duplicated(fd, kernel())
            }
            libc::SYS_dup3 => {
                calls::replaced(fd, number_of(1), number_of(2));
                duplicated(fd, kernel())
            }
            libc::SYS_fcntl if matches!(number_of(1), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                duplicated(fd, kernel())
            }
            libc::SYS_prctl if lockup::is_prctl(fd) => lockup::setting(kernel),
            libc::SYS_seccomp if lockup::is_seccomp(fd) => lockup::setting(kernel),
            libc::SYS_execve => calls::started(self.words[2] as Words, answer).into(),
            libc::SYS_execveat => calls::started(self.words[3] as Words, answer).into(),
            _ => match self.forks() {
                Some(flags) => forked(thread, flags, kernel),
                None => self.timed(thread, kernel),
            },
        }
    }

    /// The flags of a fork: a child that has a copy of the memory, and the stack that is there.
    fn forks(&self) -> Option<u64> {
        let [a, b, ..] = self.words;
        let (flags, stack) = match self.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork => (0, 0),
            libc::SYS_clone => (a.cast_unsigned(), b.cast_unsigned()),
            // `struct clone_args`: the first word has the flags, the sixth one the stack.
            libc::SYS_clone3 if a != 0 && b >= 64 => {
                let words = a as *const [u64; 8];
                // SAFETY: clone3(2) asks for so many bytes at the address.
                let words = unsafe { words.read_unaligned() };
                (words[0], words[5])
            }
            _ => return None,
        };
        (flags & libc::CLONE_VM as u64 == 0 && stack == 0).then_some(flags)
    }

    fn wait(&self, limit: Limit) -> WaitArgs {
        WaitArgs {
            epfd: self.words[0] as c_int,
            events: self.words[1] as *mut epoll_event,
            most: self.words[2] as c_int,
            limit,
            caller: self.caller,
        }
    }

    /// What may sleep, or says something of a descriptor.
    fn timed(&self, thread: &Thread, kernel: impl FnOnce() -> c_long) -> c_long {
        let Some(call) = self.call() else { return kernel() };
        let fd = if has_descriptor(call) { self.words[0] as c_int } else { -1 };
        match call {
            Call::Close if calls::is_held(fd) => {
                set_errno(libc::EBADF);
                return -1;
            }
            Call::Close => calls::closing(fd),
            Call::Poll | Call::Ppoll => {
                emulation::polled(self.words[0] as *const pollfd, self.words[1].cast_unsigned());
            }
            _ => {}
        }
        let began = thread.begin();
        let result = kernel();
        thread.end(call, fd, self.caller as u64, began, self.outcome(call, result as ssize_t));
        if matches!(call, Call::Accept | Call::Accept4) {
            calls::accepted(thread, fd, self.caller as u64, began, result as c_int);
        }
        result
    }

    fn call(&self) -> Option<Call> {
        Some(match self.number {
            libc::SYS_close => Call::Close,
            libc::SYS_read => Call::Read,
            libc::SYS_readv => Call::Readv,
            libc::SYS_recvfrom => Call::Recvfrom,
            libc::SYS_recvmsg => Call::Recvmsg,
            libc::SYS_recvmmsg => Call::Recvmmsg,
            libc::SYS_pread64 => Call::Pread,
            libc::SYS_pwrite64 => Call::Pwrite,
            libc::SYS_write => Call::Write,
            libc::SYS_writev => Call::Writev,
            libc::SYS_sendto => Call::Sendto,
            libc::SYS_sendmsg => Call::Sendmsg,
            libc::SYS_accept => Call::Accept,
            libc::SYS_accept4 => Call::Accept4,
            libc::SYS_connect => Call::Connect,
            libc::SYS_fsync => Call::Fsync,
            libc::SYS_fdatasync => Call::Fdatasync,
            libc::SYS_flock => Call::Flock,
            libc::SYS_nanosleep => Call::Nanosleep,
            libc::SYS_clock_nanosleep => Call::ClockNanosleep,
            libc::SYS_wait4 => Call::Waitpid,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => Call::Poll,
            libc::SYS_ppoll => Call::Ppoll,
            libc::SYS_futex if self.waits_for_futex() => Call::Futex,
            _ => return None,
        })
    }

    fn waits_for_futex(&self) -> bool {
        let operation = self.words[1] as c_int & libc::FUTEX_CMD_MASK;
        matches!(
            operation,
            libc::FUTEX_WAIT
                | libc::FUTEX_WAIT_BITSET
                | libc::FUTEX_LOCK_PI
                | libc::FUTEX_WAIT_REQUEUE_PI
        )
    }

    fn outcome(&self, call: Call, result: ssize_t) -> Outcome {
        let given = || match call {
            _ if result < 0 => 0,
            Call::Writev => {
                sum(self.words[1] as *const iovec, self.words[2].unsigned_abs() as usize)
            }
            Call::Sendmsg => of_message(self.words[1] as *const msghdr),
            _ => self.words[2].unsigned_abs() as usize,
        };
        match call {
            Call::Read | Call::Readv | Call::Recvfrom | Call::Recvmsg | Call::Recvmmsg => {
                outcome_of_read(result)
            }
            Call::Write | Call::Writev | Call::Sendto | Call::Sendmsg => {
                outcome_of_write(result, given())
            }
            Call::Connect => outcome_of_connect(result),
            _ => outcome_of_none(result),
        }
    }
}

/// Whether a descriptor is the first argument.
fn has_descriptor(call: Call) -> bool {
    !matches!(
        call,
        Call::Nanosleep
            | Call::ClockNanosleep
            | Call::Waitpid
            | Call::Poll
            | Call::Ppoll
            | Call::Futex
    )
}

/// A fork that the C library does not know of. Where there are other threads, which may hold its locks for good in the
/// child, or where both have the same numbers, the child has its figures alone.
fn forked(thread: &Thread, flags: u64, kernel: impl FnOnce() -> c_long) -> c_long {
    let is_whole = flags & libc::CLONE_FILES as u64 == 0 && is_alone();
    if is_whole {
        names::before_fork();
    }
    let pid = kernel();
    match (pid, is_whole) {
        (0, true) => names::is_child(),
        (0, false) => thread.forget(),
        (_, true) => names::forked(),
        (_, false) => {}
    }
    pid
}

/// Whether the process has one thread.
fn is_alone() -> bool {
    let before = crate::thread::errno();
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a C string, and the kernel writes one `stat` to a live local.
    let done = unsafe { libc::stat(c"/proc/self/task".as_ptr(), stat.as_mut_ptr()) };
    set_errno(before);
    // Two links of its own, and one for each thread.
    // SAFETY: the call succeeded, and then it has written the whole structure.
    done == 0 && unsafe { stat.assume_init() }.st_nlink <= 3
}

fn duplicated(from: c_int, to: c_long) -> c_long {
    calls::duplicated(from, to as c_int);
    to
}
