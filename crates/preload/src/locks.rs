//! Where a thread may sleep without a descriptor: locks, conditions, semaphores, other threads, processes, signals.
//!
//! A lock that is free is taken at once and leaves no note: programs lock more often than they read. The names that
//! are tried first are those whose success is the same as that of the name itself.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{id_t, idtype_t, pid_t, rusage, siginfo_t, sigset_t, ssize_t, timespec};
use pollux_sys::loop_stats::Call;

use crate::calls::{outcome_of_none, timed};
use crate::names::{taken, unknown};
use crate::thread::{errno, set_errno};
use crate::turn::Outcome;

// Those of the C library that the crate libc does not have.
unsafe extern "C-unwind" {
    fn mtx_trylock(lock: *mut c_void) -> c_int;
    fn pthread_testcancel();
}

/// What a mutex is; where the C library of this kind keeps that, since its initializers are a part of programs.
const MUTEX_KIND: usize = 16;
/// Robust, with priority inheritance, or with a ceiling: of such a mutex a try is not the same as the lock.
const SPECIAL: c_int = 16 | 32 | 64;

/// Tries a mutex, unless that means something else than to lock it.
///
/// # Safety
/// `lock` is a mutex, as its lock asks for.
unsafe fn try_plain(lock: *mut libc::pthread_mutex_t) -> c_int {
    // SAFETY: within the mutex, and aligned as it is.
    let kind = unsafe { lock.cast::<c_int>().wrapping_byte_add(MUTEX_KIND).read_volatile() };
    if kind & SPECIAL != 0 {
        return libc::EBUSY;
    }
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_mutex_trylock(lock) }
}

/// Takes names of locks: behind the arrow stands what is tried first.
macro_rules! locking {
    ($($name:ident / $count:tt ($lock:ident: $type:ty $(, $arg:ident: $other:ty)*), $call:ident $(=> $try:path)?;)+) => {
        $(taken! { Lock: $name / $count ($lock: $type $(, $arg: $other)*; caller) -> c_int {
            let Some(real) = real() else { return libc::ENOSYS };
            let thread = NAME.thread();
            if !thread.is_in_turn() {
                // SAFETY: the caller's own arguments.
                return unsafe { real($lock $(, $arg)*) };
            }
            $(
                // SAFETY: the caller's own argument.
                if unsafe { $try($lock) } == 0 {
                    return 0;
                }
            )?
            let began = thread.begin();
            // SAFETY: as above.
            let result = unsafe { real($lock $(, $arg)*) };
            thread.end(Call::$call, -1, caller as u64, began, Outcome::None);
            result
        } })+
    };
}

// Those with a time judge that first, so they are never tried.
locking! {
    pthread_mutex_lock / 1 (lock: *mut libc::pthread_mutex_t), MutexLock => try_plain;
    pthread_mutex_timedlock / 2 (lock: *mut c_void, until: *const timespec), MutexLock;
    pthread_mutex_clocklock / 3 (lock: *mut c_void, clock: c_int, until: *const timespec), MutexLock;
    pthread_rwlock_rdlock / 1 (lock: *mut libc::pthread_rwlock_t), RwlockLock => libc::pthread_rwlock_tryrdlock;
    pthread_rwlock_timedrdlock / 2 (lock: *mut c_void, until: *const timespec), RwlockLock;
    pthread_rwlock_clockrdlock / 3 (lock: *mut c_void, clock: c_int, until: *const timespec), RwlockLock;
    pthread_rwlock_wrlock / 1 (lock: *mut libc::pthread_rwlock_t), RwlockLock => libc::pthread_rwlock_trywrlock;
    pthread_rwlock_timedwrlock / 2 (lock: *mut c_void, until: *const timespec), RwlockLock;
    pthread_rwlock_clockwrlock / 3 (lock: *mut c_void, clock: c_int, until: *const timespec), RwlockLock;
    mtx_lock / 1 (lock: *mut c_void), MutexLock => mtx_trylock;
    mtx_timedlock / 2 (lock: *mut c_void, until: *const timespec), MutexLock;
}

taken! { Lock: sem_wait / 1 (semaphore: *mut libc::sem_t; caller) -> c_int {
    let Some(real) = real() else { return unknown() };
    let thread = NAME.thread();
    if thread.is_in_turn() {
        // SAFETY: takes no arguments; nothing is held here, and a cancelled thread unwinds through this as through
        // the call itself, which looks first as well.
        unsafe { pthread_testcancel() };
        let before = errno();
        // SAFETY: the caller's own argument.
        if unsafe { libc::sem_trywait(semaphore) } == 0 {
            return 0;
        }
        set_errno(before);
    }
    let began = thread.begin();
    // SAFETY: the caller's own argument.
    let result = unsafe { real(semaphore) };
    thread.end(Call::SemWait, -1, caller as u64, began, Outcome::None);
    result
} }

/// Takes names that are timed whatever they meet.
macro_rules! sleeping {
    ($($name:ident / $count:tt ($($arg:ident: $type:ty),*) -> $ret:ty, $call:ident;)+) => {
        $(timed! { Lock, {}; $name / $count ($($arg: $type),*) -> $ret, $call(-1) => outcome_of_none; })+
    };
}

sleeping! {
    sem_timedwait / 2 (semaphore: *mut c_void, until: *const timespec) -> c_int, SemWait;
    sem_clockwait / 3 (semaphore: *mut c_void, clock: c_int, until: *const timespec) -> c_int, SemWait;
    pthread_cond_wait / 2 (condition: *mut c_void, lock: *mut c_void) -> c_int, CondWait;
    pthread_cond_timedwait / 3 (condition: *mut c_void, lock: *mut c_void, until: *const timespec) -> c_int, CondTimedwait;
    pthread_cond_clockwait / 4 (condition: *mut c_void, lock: *mut c_void, clock: c_int, until: *const timespec) -> c_int, CondTimedwait;
    cnd_wait / 2 (condition: *mut c_void, lock: *mut c_void) -> c_int, CondWait;
    cnd_timedwait / 3 (condition: *mut c_void, lock: *mut c_void, until: *const timespec) -> c_int, CondTimedwait;
    pthread_barrier_wait / 1 (barrier: *mut c_void) -> c_int, BarrierWait;
    pthread_join / 2 (thread: libc::pthread_t, result: *mut *mut c_void) -> c_int, Join;
    pthread_timedjoin_np / 3 (thread: libc::pthread_t, result: *mut *mut c_void, until: *const timespec) -> c_int, Join;
    thrd_join / 2 (thread: libc::pthread_t, result: *mut c_int) -> c_int, Join;
    thrd_sleep / 2 (time: *const timespec, left: *mut timespec) -> c_int, Nanosleep;
    system / 1 (command: *const c_char) -> c_int, System;
    posix_spawn / 6 (pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, words: *const *mut c_char, environment: *const *mut c_char) -> c_int, Spawn;
    posix_spawnp / 6 (pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, words: *const *mut c_char, environment: *const *mut c_char) -> c_int, Spawn;
    wait / 1 (status: *mut c_int) -> pid_t, Waitpid;
    wait3 / 3 (status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t, Waitpid;
    wait4 / 4 (pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t, Waitpid;
    waitid / 4 (kind: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int, Waitpid;
    sigwait / 2 (set: *const sigset_t, signal: *mut c_int) -> c_int, Sigwait;
    sigwaitinfo / 2 (set: *const sigset_t, info: *mut siginfo_t) -> c_int, Sigwait;
    sigtimedwait / 3 (set: *const sigset_t, info: *mut siginfo_t, time: *const timespec) -> c_int, Sigwait;
    sigsuspend / 1 (set: *const sigset_t) -> c_int, Sigwait;
    pause / 0 () -> c_int, Sigwait;
    getnameinfo / 7 (address: *const c_void, address_len: c_uint, host: *mut c_char, host_len: c_uint, service: *mut c_char, service_len: c_uint, flags: c_int) -> c_int, Getaddrinfo;
}
