//! The transaction of a thread, over no resource: what belongs to it and what becomes of it; and the timeouts of calls,
//! which a transaction limits.
//!
//! It is what a program sees that is linked with the null switch: there is nothing to prepare or
//! to log, so a transaction commits unless it must abort. `tx.rs` begins and ends it for programs,
//! and `calls.rs` reports each call to it. A service that is called in it takes part until its function has ended: its
//! level is 1, its calls belong to it too, and only the caller that began it ends it.
//!
//! | in a transaction | becomes |
//! |---|---|
//! | a call ends with TPETIME, TPESVCFAIL, TPESVCERR or TPEOTYPE | abort-only |
//! | its time is over | abort-only; calls that belong to it are TPETIME |
//! | replies are outstanding at its end | aborted; their descriptors are no longer valid |
//! | the service function that began it ends | aborted, and its caller gets TPESVCERR |
//! | one that takes part ends, and it is abort-only there or replies are outstanding | abort-only at the caller |
//!
//! Calls with TPNOTRAN do not belong to it.
//!
//! Timeouts are of the process, of the thread, of its next call. A context applies them before each call. The one closest
//! to the call counts: `tpsblktime` with TPBLK_NEXT, with TPBLK_ALL, `tptoutset`, NDRX_TOUT, the pool.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pollux_xatmi::client::{CallFlags, Client, Descriptor};
use pollux_xatmi::environment::{DEFAULT_TIMEOUT, TIMEOUT_MAX};
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::monotonic_ns;

use crate::context::pools_time;
use crate::fault::{self, Fault};
use crate::startup;

/// `tperrno` of a transaction that could not commit.
const TPEABORT: c_int = 1;
/// `tperrno` of what a transaction does not allow.
const TPETRAN: c_int = 14;

/// Shortest time for a call: 0 would mean no limit.
const LIMIT_MIN: Duration = Duration::from_millis(1);

/// A transaction of the context that this thread is in.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// Tells it from others of this process.
    number: u64,
    deadline: Option<Instant>,
    /// Why it can only abort.
    abort_reason: Option<String>,
    /// Calls of tpacall whose replies the program did not take.
    outstanding: Vec<c_int>,
    /// That of the caller of the service function that runs.
    is_callers: bool,
}

/// What of a transaction a program may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionInfo {
    pub(crate) number: u64,
    pub(crate) is_timed_out: bool,
    pub(crate) is_abort_only: bool,
}

/// tpopen or tx_open was called, and no close behind it; of the process, as resources are.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Transaction>> = const { RefCell::new(None) };
    /// How long the call at hand may take at most, by the transaction that it belongs to.
    static LIMIT: Cell<Option<Duration>> = const { Cell::new(None) };
}

const TPBLK_NEXT: c_long = 1;
const TPBLK_ALL: c_long = 2;

/// `tptoutset`: of the process, as the interface says. 0 when it was not called.
static OF_PROCESS: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static OF_THREAD: Cell<c_int> = const { Cell::new(0) };
    static OF_NEXT: Cell<c_int> = const { Cell::new(0) };
}

impl Transaction {
    fn begin(timeout: Duration) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let deadline = (!timeout.is_zero()).then(|| Instant::now().checked_add(timeout)).flatten();
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let abort_reason = None;
        let outstanding = Vec::new();
        Self { number, deadline, abort_reason, outstanding, is_callers: false }
    }

    /// That of a caller who waits until `deadline_ns` of the monotonic clock; 0 for ever.
    pub(crate) fn of_caller(deadline_ns: u64) -> Self {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()));
        let timeout = if deadline_ns == 0 { Duration::ZERO } else { left.max(LIMIT_MIN) };
        Self { is_callers: true, ..Self::begin(timeout) }
    }

    /// Whether it can only abort, once the service function that took part has ended.
    pub(crate) fn is_abort_only(&self) -> bool {
        self.abort_reason.is_some() || !self.outstanding.is_empty()
    }

    fn is_timed_out(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn abort_only(&mut self, reason: impl FnOnce() -> String) {
        self.abort_reason.get_or_insert_with(reason);
    }

    /// Calls whose replies the program did not take.
    pub(crate) fn outstanding(&self) -> &[c_int] {
        &self.outstanding
    }

    /// Commits, once it was taken out.
    ///
    /// # Errors
    /// TPEABORT with the reason when it could only abort.
    pub(crate) fn commit(mut self) -> Result<(), Fault> {
        if self.is_timed_out() {
            self.abort_only(|| "its time was over".to_owned());
        }
        let outstanding = self.outstanding.len();
        if outstanding > 0 {
            self.abort_only(|| format!("{outstanding} replies of it are outstanding"));
        }
        match self.abort_reason {
            Some(reason) => {
                Err(Fault::new(TPEABORT, format!("the transaction was aborted: {reason}")))
            }
            None => Ok(()),
        }
    }

    /// The fault of a call that ended: some decide what becomes of the transaction.
    fn note(&mut self, fault: &Fault) {
        let codes = [Code::Time, Code::ServiceFailed, Code::ServiceError, Code::OutputType];
        if codes.iter().any(|code| code.number() == fault.number) {
            self.abort_only(|| format!("a call of it failed: {}", fault.detail));
        }
    }
}

/// Lets `work` use the thread's transaction; a thread that is ending has none.
fn with_current<T>(work: impl FnOnce(&mut Option<Transaction>) -> T) -> T {
    let mut none = None;
    let mut work = Some(work);
    let done = CURRENT.try_with(|place| {
        let mut place = place.try_borrow_mut().ok()?;
        work.take().map(|work| work(&mut place))
    });
    match (done.ok().flatten(), work) {
        (Some(done), _) => done,
        (None, Some(work)) => work(&mut none),
        (None, None) => unreachable!("work was done or is there still"),
    }
}

/// Takes the thread's transaction out, which stays with its context.
pub(crate) fn take() -> Option<Transaction> {
    with_current(Option::take)
}

/// Gives the thread the transaction of the context that it enters.
pub(crate) fn put(transaction: Option<Transaction>) {
    with_current(|current| *current = transaction);
}

/// The thread's transaction, if there is one.
pub(crate) fn seen() -> Option<TransactionInfo> {
    with_current(|current| {
        current.as_ref().map(|transaction| {
            let is_timed_out = transaction.is_timed_out();
            let is_abort_only = is_timed_out || transaction.abort_reason.is_some();
            TransactionInfo { number: transaction.number, is_timed_out, is_abort_only }
        })
    })
}

/// How long a call may take that would take `standing`, where 0 means no limit.
fn limited(standing: Duration) -> Duration {
    match LIMIT.get() {
        Some(limit) if standing.is_zero() || limit < standing => limit,
        _ => standing,
    }
}

/// The flags with which `work` makes a call, which belongs to the transaction unless they say no.
pub(crate) fn call<T>(
    flags: CallFlags,
    work: impl FnOnce(CallFlags) -> Result<T, Fault>,
) -> Result<T, Fault> {
    if flags.contains(CallFlags::NO_TRANSACTION) || seen().is_none() {
        return work(flags);
    }
    let flags = enter(flags)? | CallFlags::TRANSACTION;
    let done = work(flags);
    LIMIT.set(None);
    if let Err(fault) = &done {
        with_current(|current| current.iter_mut().for_each(|current| current.note(fault)));
    }
    done
}

/// Limits the call at hand by the time that is left; TPNOTIME does not go beyond it.
fn enter(flags: CallFlags) -> Result<CallFlags, Fault> {
    with_current(|current| {
        let Some(transaction) = current else { return Ok(flags) };
        let Some(deadline) = transaction.deadline else { return Ok(flags) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let detail = "the time of the transaction is over: abort it";
            return Err(Fault::new(Code::Time.number(), detail));
        }
        LIMIT.set(Some(left.max(LIMIT_MIN)));
        Ok(flags.without(CallFlags::NO_TIME))
    })
}

/// A request that belongs to the transaction went out; its reply is asked for by `descriptor`.
pub(crate) fn sent(flags: CallFlags, descriptor: Descriptor) {
    if !flags.contains(CallFlags::NO_TRANSACTION) {
        with_current(|current| {
            current.iter_mut().for_each(|current| current.outstanding.push(descriptor.number()));
        });
    }
}

/// A service that took part did what the transaction cannot commit after; it may be the reply to a call outside of it.
pub(crate) fn must_abort(descriptor: Descriptor) {
    with_current(|current| {
        let Some(transaction) = current else { return };
        let number = descriptor.number();
        transaction.abort_only(|| format!("a call of a service that was called failed ({number})"));
    });
}

/// What tpgetrply answered for `descriptor`.
pub(crate) fn answered<T>(descriptor: Option<Descriptor>, answer: &Result<T, Fault>) {
    let Some(number) = descriptor.map(Descriptor::number) else { return };
    with_current(|current| {
        let Some(transaction) = current else { return };
        let Some(at) = transaction.outstanding.iter().position(|cd| *cd == number) else { return };
        let may_ask_again = [Code::Time, Code::Block, Code::GotSignal];
        let is_over = |fault: &Fault| !may_ask_again.iter().any(|c| c.number() == fault.number);
        if answer.as_ref().err().is_none_or(is_over) {
            transaction.outstanding.swap_remove(at);
        }
        if let Err(fault) = answer {
            transaction.note(fault);
        }
    });
}

/// Whether tpcancel may give up `descriptor`: not while its transaction lasts.
pub(crate) fn check_cancel(descriptor: c_int) -> Result<(), Fault> {
    let belongs = |current: &mut Option<Transaction>| {
        current.as_ref().is_some_and(|current| current.outstanding.contains(&descriptor))
    };
    if with_current(belongs) {
        let detail = format!("call {descriptor} belongs to the transaction: end that instead");
        return Err(Fault::new(TPETRAN, detail));
    }
    Ok(())
}

/// Whether a call without a reply may be made: in a transaction only with TPNOTRAN.
pub(crate) fn check_no_reply(flags: CallFlags) -> Result<(), Fault> {
    if seen().is_some() && !flags.contains(CallFlags::NO_TRANSACTION) {
        return Err(Fault::invalid("in a transaction TPNOREPLY needs TPNOTRAN as well"));
    }
    Ok(())
}

pub(crate) fn is_open() -> bool {
    IS_OPEN.load(Ordering::Relaxed)
}

pub(crate) fn open() {
    IS_OPEN.store(true, Ordering::Relaxed);
}

/// # Errors
/// TPEPROTO within a transaction.
pub(crate) fn close() -> Result<(), Fault> {
    if seen().is_some() {
        return Err(protocol("a transaction is under way: end it before the resources are closed"));
    }
    IS_OPEN.store(false, Ordering::Relaxed);
    Ok(())
}

/// # Errors
/// TPEPROTO within a transaction.
pub(crate) fn begin(timeout: Duration) -> Result<(), Fault> {
    with_current(|current| {
        if current.is_some() {
            return Err(protocol("a transaction is under way, and they do not nest"));
        }
        *current = Some(Transaction::begin(timeout));
        Ok(())
    })
}

/// Most transactions that are put aside.
const SUSPENDED_MAX: usize = 4096;

/// Those that no thread is in, by their numbers; of the process, as any thread may take them up.
static SUSPENDED: Mutex<BTreeMap<u64, Transaction>> = Mutex::new(BTreeMap::new());

/// Puts the thread's transaction aside; its number.
///
/// # Errors
/// TPEPROTO outside a transaction and in that of a service's caller, TPEABORT where replies are outstanding, TPELIMIT.
pub(crate) fn suspend() -> Result<u64, Fault> {
    with_current(|current| {
        let Some(transaction) = current else {
            return Err(protocol("no transaction is under way: tpbegin starts one"));
        };
        if transaction.is_callers {
            return Err(protocol("the transaction is that of the service's caller"));
        }
        if !transaction.outstanding.is_empty() {
            let detail =
                "replies of the transaction are outstanding: take them before it is put aside";
            return Err(Fault::new(TPEABORT, detail));
        }
        let mut all = SUSPENDED.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SUSPENDED_MAX {
            let detail = format!("{SUSPENDED_MAX} transactions are put aside: take some up");
            return Err(Fault::new(Code::Limit.number(), detail));
        }
        let number = transaction.number;
        all.extend(current.take().map(|transaction| (number, transaction)));
        Ok(number)
    })
}

/// Takes a transaction up that was put aside.
///
/// # Errors
/// TPEPROTO within a transaction, TPEMATCH where no such one is put aside.
pub(crate) fn resume(number: Option<u64>) -> Result<(), Fault> {
    with_current(|current| {
        if current.is_some() {
            return Err(protocol("a transaction is under way, and they do not nest"));
        }
        let mut all = SUSPENDED.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = number.and_then(|number| all.remove(&number)).ok_or_else(|| {
            Fault::new(Code::Match.number(), "no such transaction of this process is put aside")
        })?;
        *current = Some(taken);
        Ok(())
    })
}

/// Takes the transaction out to end it; its context gives up the calls that are outstanding.
///
/// # Errors
/// TPEPROTO outside a transaction, and in that of a service's caller.
pub(crate) fn end() -> Result<Transaction, Fault> {
    if with_current(|current| current.as_ref().is_some_and(|current| current.is_callers)) {
        return Err(protocol("the transaction is that of the service's caller, who ends it"));
    }
    take().ok_or_else(|| protocol("no transaction is under way: tpbegin starts one"))
}

fn protocol(detail: &str) -> Fault {
    Fault::new(Code::Protocol.number(), detail)
}

/// Tells the client what holds for the call at hand; `of_pool` without any of the above.
pub(crate) fn apply_timeouts(client: &mut Client, of_pool: Duration) {
    let next = OF_NEXT.take();
    if next != 0 {
        client.set_next_timeout(Some(limited(duration(next))));
    }
    client.set_timeout(limited(of_thread_or(of_pool)));
}

fn of_thread_or(of_pool: Duration) -> Duration {
    match (OF_THREAD.get(), OF_PROCESS.load(Ordering::Relaxed)) {
        (0, 0) => of_pool,
        (0, of_process) => duration(of_process),
        (of_thread, _) => duration(of_thread),
    }
}

/// Makes these the times of the thread, for all calls and for the next one; the ones before.
pub(crate) fn exchange_times((of_thread, of_next): (c_int, c_int)) -> (c_int, c_int) {
    (OF_THREAD.replace(of_thread), OF_NEXT.replace(of_next))
}

/// How long something of this thread may take that is not a call.
pub(crate) fn timeout() -> Duration {
    let of_environment = || startup::environment().ok().and_then(|known| known.timeout);
    let of_pool = pools_time().or_else(of_environment).unwrap_or(DEFAULT_TIMEOUT);
    of_thread_or(of_pool)
}

/// The same for the next one, which TPBLK_NEXT may have been for.
pub(crate) fn take_timeout() -> Duration {
    match OF_NEXT.take() {
        0 => timeout(),
        next => duration(next),
    }
}

/// When something that may take so long has to be over, on the monotonic clock.
pub(crate) fn deadline_ns(time: Duration) -> u64 {
    let ns = u64::try_from(time.min(TIMEOUT_MAX).as_nanos()).unwrap_or(u64::MAX);
    monotonic_ns().saturating_add(ns)
}

fn duration(seconds: c_int) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn not_negative(seconds: c_int) -> Result<c_int, Fault> {
    if seconds < 0 {
        return Err(Fault::invalid(format!("a time of {seconds} seconds is below 0")));
    }
    Ok(seconds)
}

/// Sets the time of all threads; 0 gives it back to the environment and the pool.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tptoutset(seconds: c_int) -> c_int {
    fault::atmi(-1, || {
        OF_PROCESS.store(not_negative(seconds)?, Ordering::Relaxed);
        Ok(0)
    })
}

/// The time that `tptoutset` set, or what holds without it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tptoutget() -> c_int {
    fault::atmi(-1, || match OF_PROCESS.load(Ordering::Relaxed) {
        0 => {
            let holds = match pools_time() {
                Some(pools) => pools,
                None => startup::environment()?.timeout.unwrap_or(DEFAULT_TIMEOUT),
            };
            Ok(c_int::try_from(holds.as_secs()).unwrap_or(c_int::MAX))
        }
        set => Ok(set),
    })
}

/// Sets the time of this thread's next call or of all; 0 takes it back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpsblktime(seconds: c_int, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        let seconds = not_negative(seconds)?;
        match flags {
            TPBLK_NEXT => OF_NEXT.set(seconds),
            TPBLK_ALL => OF_THREAD.set(seconds),
            _ => return Err(wrong_flags(flags)),
        }
        Ok(0)
    })
}

/// What `tpsblktime` set: for TPBLK_NEXT, for TPBLK_ALL, or with 0 what counts of both.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tpgblktime(flags: c_long) -> c_int {
    fault::atmi(-1, || match (flags, OF_NEXT.get(), OF_THREAD.get()) {
        (TPBLK_NEXT, next, _) => Ok(next),
        (TPBLK_ALL, _, of_thread) => Ok(of_thread),
        (0, 0, of_thread) => Ok(of_thread),
        (0, next, _) => Ok(next),
        _ => Err(wrong_flags(flags)),
    })
}

fn wrong_flags(flags: c_long) -> Fault {
    Fault::invalid(format!("flags {flags:#x}: give TPBLK_NEXT or TPBLK_ALL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_limits_its_calls_and_one_whose_time_is_over_aborts() {
        begin(Duration::from_secs(3600)).expect("none is under way");
        let all = CallFlags::from_bits(CallFlags::NO_TIME.bits());
        let limited = call(all, |flags| {
            assert!(!flags.contains(CallFlags::NO_TIME));
            Ok((limited(Duration::ZERO), limited(Duration::from_secs(1))))
        });
        let (endless, short) = limited.expect("done");
        assert!(endless > Duration::from_secs(3500) && endless <= Duration::from_secs(3600));
        assert_eq!(short, Duration::from_secs(1));
        end().expect("one is under way");

        begin(Duration::from_nanos(1)).expect("none is under way");
        let none = CallFlags::from_bits(0);
        let late = call(none, |_| -> Result<(), Fault> { panic!("it is not made") });
        assert_eq!(late.expect_err("its time is over").number, Code::Time.number());
        call(CallFlags::NO_TRANSACTION, |_| Ok(())).expect("it does not belong to it");
        assert!(seen().expect("one").is_timed_out);
        let aborted = end().and_then(Transaction::commit).expect_err("its time is over");
        assert_eq!(aborted.number, TPEABORT);
        assert!(aborted.detail.contains("its time was over"), "{}", aborted.detail);
        assert_eq!(seen(), None);
    }

    #[test]
    fn failures_of_calls_make_it_abort_only() {
        for (code, is_abort_only) in [
            (Code::Time, true),
            (Code::ServiceFailed, true),
            (Code::ServiceError, true),
            (Code::OutputType, true),
            (Code::NoEntry, false),
            (Code::Block, false),
        ] {
            begin(Duration::ZERO).expect("none is under way");
            let failed: Result<(), _> =
                call(CallFlags::from_bits(0), |_| Err(Fault::new(code.number(), "it failed")));
            assert!(failed.is_err());
            assert_eq!(seen().expect("one").is_abort_only, is_abort_only, "{code:?}");
            assert_eq!(end().and_then(Transaction::commit).is_err(), is_abort_only, "{code:?}");
        }
    }

    #[test]
    fn calls_of_tpacall_belong_to_it_until_their_replies_are_there() {
        begin(Duration::ZERO).expect("none is under way");
        let none = CallFlags::from_bits(0);
        for number in 1..=3 {
            sent(none, Descriptor::from_number(number));
        }
        sent(CallFlags::NO_TRANSACTION, Descriptor::from_number(4));
        assert_eq!(check_cancel(1).expect_err("it belongs to it").number, TPETRAN);
        check_cancel(4).expect("it does not");
        assert_eq!(check_no_reply(none).expect_err("no reply").number, Code::Invalid.number());
        check_no_reply(CallFlags::NO_TRANSACTION).expect("it does not belong to it");
        let block: Result<(), _> = Err(Fault::new(Code::Block.number(), "not yet"));
        answered(Some(Descriptor::from_number(1)), &block);
        check_cancel(1).expect_err("it may be asked for again");
        for number in 1..=3 {
            answered(Some(Descriptor::from_number(number)), &Ok(()));
            check_cancel(number).expect("its reply is there");
        }
        end().and_then(Transaction::commit).expect("nothing is outstanding");
    }
}
