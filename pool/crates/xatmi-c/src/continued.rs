//! Calls that a service function leaves to another thread of the program: `tpsrvgetctxdata` and `tpsrvsetctxdata` hand the
//! call over, `tpcontinue` ends the function without an answer, and `tpreturn` or `tpforward` of the other thread gives it.
//!
//! ```text
//!  server's thread: function ─ tpsrvgetctxdata ─ tpcontinue ─▶ serves on ── answers of other threads ──▶ callers
//!  other thread:         tpsrvsetctxdata ─ ... ─ tpreturn ──▶ ANSWERS, eventfd ──────┘
//! ```

use std::ffi::{c_char, c_int, c_long};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use pollux_xatmi::error::Code;
use pollux_xatmi::worker::{Conversion, Done, Return};
use rustix::io::retry_on_intr;

use crate::fault::{self, Fault};
use crate::handed_over::{self, Call};
use crate::registry::{attend, registry};
use crate::transactions::{self, Transaction};
use crate::{caller, conversion};

/// A call as a program holds it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Data {
    mark: u64,
    pid: u64,
    number: u64,
    deadline_ns: u64,
    is_in_transaction: u32,
    /// 0 for none.
    conversion: u32,
}

const MARK: u64 = u64::from_le_bytes(*b"PLXCALL1");

/// Answers of other threads, and what wakes the server's own.
struct Answers {
    done: Vec<(u64, Done)>,
    wake: Option<OwnedFd>,
}

static ANSWERS: Mutex<Answers> = Mutex::new(Answers { done: Vec::new(), wake: None });

/// The service function that runs leaves its call to another thread.
///
/// # Errors
/// TPEPROTO: none runs.
pub(crate) fn leave() -> Result<Done, Fault> {
    let call = handed_over::running().ok_or_else(no_service)?;
    Ok(Done::Continue(call.number))
}

/// Gives the answer of the call that this thread took over, if it did; whether so.
pub(crate) fn give(answer: impl FnOnce() -> Done) -> bool {
    let Some(call) = handed_over::exchange(None) else { return false };
    let part = if call.is_in_transaction { transactions::take() } else { None };
    let is_abort_only = part.is_some_and(|part| part.is_abort_only());
    let mut done = match answer() {
        Done::Return(returned) => Done::Return(Return { is_abort_only, ..returned }),
        _ if is_abort_only => Done::NoReturn,
        done => done,
    };
    if let Some(conversion) = call.conversion {
        done = conversion::from_function(done, conversion);
    }
    let mut answers = answers();
    answers.done.push((call.number, done));
    if let Some(wake) = &answers.wake {
        // A server that has ended reads nothing any more.
        let _ = retry_on_intr(|| rustix::io::write(wake, &1_u64.to_ne_bytes()));
    }
    true
}

fn answers() -> std::sync::MutexGuard<'static, Answers> {
    // Nothing panics while it is locked.
    ANSWERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the server's own thread, which this is, send what others answer.
fn watch_answers() -> Result<(), Fault> {
    let registry = registry()?;
    if answers().wake.is_some() {
        return Ok(());
    }
    let wake = attend(Box::new(move || {
        let done = std::mem::take(&mut answers().done);
        for (number, done) in done {
            registry.answer(number, done);
        }
    }))?;
    answers().wake = Some(wake);
    Ok(())
}

fn no_service() -> Fault {
    let detail = "a call is handed over by its service function, on the thread that runs it";
    Fault::new(Code::Protocol.number(), detail)
}

/// The call at hand for another thread, in memory of malloc(3); NULL for an error.
#[unsafe(no_mangle)]
pub extern "C" fn tpsrvgetctxdata() -> *mut c_char {
    // SAFETY: without memory of the caller's it allocates some.
    unsafe { tpsrvgetctxdata2(std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// The same in the `*len` bytes at `data`, whose length `*len` becomes, or in memory of malloc(3) for NULL.
///
/// # Safety
/// A sound `len` is that of a long, a sound `data` that of so many bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpsrvgetctxdata2(data: *mut c_char, len: *mut c_long) -> *mut c_char {
    fault::atmi(std::ptr::null_mut(), || {
        let call = handed_over::running().ok_or_else(no_service)?;
        // Before another thread knows of the call, which may answer at once.
        watch_answers()?;
        let size = size_of::<Data>();
        let memory = if data.is_null() {
            // SAFETY: malloc takes any size.
            unsafe { libc::malloc(size) }.cast::<c_char>()
        } else {
            // SAFETY: the caller promises a long.
            let room = unsafe { caller::read(len) }.and_then(|room| usize::try_from(room).ok());
            if room.is_none_or(|room| room < size) {
                return Err(Fault::invalid(format!("the data of a call takes {size} bytes")));
            }
            data
        };
        if memory.is_null() {
            return Err(Fault::new(Code::Os.number(), "no memory for the data of a call"));
        }
        let handed_over = Data {
            mark: MARK,
            pid: std::process::id().into(),
            number: call.number,
            deadline_ns: call.deadline_ns,
            is_in_transaction: call.is_in_transaction.into(),
            conversion: match call.conversion {
                None => 0,
                Some(Conversion::JsonToUbf) => 1,
                Some(Conversion::UbfToJson) => 2,
            },
        };
        // SAFETY: there are so many bytes, allocated above or by the caller's promise.
        unsafe { caller::write(memory.cast(), handed_over) };
        // SAFETY: the caller promises a long.
        unsafe { caller::write(len, c_long::try_from(size).unwrap_or(c_long::MAX)) };
        Ok(memory)
    })
}

/// Frees the data of a call.
///
/// # Safety
/// A pointer that is not NULL is one of tpsrvgetctxdata that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpsrvfreectxdata(data: *mut c_char) {
    // SAFETY: it was allocated by malloc(3), by the caller's promise.
    unsafe { libc::free(data.cast()) };
}

/// The thread takes the call over: its tpreturn or tpforward answers it.
///
/// # Safety
/// A sound `data` is that of the data of a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpsrvsetctxdata(data: *const c_char, _flags: c_long) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let data = unsafe { caller::read(data.cast::<Data>()) }.filter(|data| data.mark == MARK);
        let data =
            data.ok_or_else(|| Fault::invalid("it is not the data of a call of tpsrvgetctxdata"))?;
        if data.pid != u64::from(std::process::id()) {
            return Err(Fault::invalid(
                "the call is one of another process, which has to answer it",
            ));
        }
        if handed_over::running().is_some() {
            let detail = "a service function runs on this thread: another thread takes calls over";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        let conversion = match data.conversion {
            1 => Some(Conversion::JsonToUbf),
            2 => Some(Conversion::UbfToJson),
            _ => None,
        };
        let is_in_transaction = data.is_in_transaction != 0;
        let Data { number, deadline_ns, .. } = data;
        if is_in_transaction {
            transactions::put(Some(Transaction::of_caller(deadline_ns)));
        }
        handed_over::exchange(Some(Call { number, is_in_transaction, deadline_ns, conversion }));
        Ok(0)
    })
}
