//! The call that a service function of this thread runs for, and the one that this thread is to answer for a server's own
//! thread. `continued.rs` hands calls over; contexts take what is to be answered from thread to thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_xatmi::worker::Conversion;

/// What a service function runs for, and what another thread needs to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// No other call of this process has it.
    pub(crate) number: u64,
    pub(crate) is_in_transaction: bool,
    pub(crate) deadline_ns: u64,
    /// How its request was converted.
    pub(crate) conversion: Option<Conversion>,
}

thread_local! {
    static RUNNING: Cell<Option<Call>> = const { Cell::new(None) };
    static TAKEN_OVER: Cell<Option<Call>> = const { Cell::new(None) };
}

/// A service function begins to run.
pub(crate) fn begin(is_in_transaction: bool, deadline_ns: u64, conversion: Option<Conversion>) {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    RUNNING.set(Some(Call { number, is_in_transaction, deadline_ns, conversion }));
}

/// The service function has ended.
pub(crate) fn end() {
    RUNNING.set(None);
}

/// The call of the service function that runs on this thread.
pub(crate) fn running() -> Option<Call> {
    RUNNING.get()
}

/// Makes `call` the one that this thread is to answer; the one before.
pub(crate) fn exchange(call: Option<Call>) -> Option<Call> {
    TAKEN_OVER.replace(call)
}
