//! Priorities of calls: they are taken and given back, and change nothing, as requests of a service are served in their
//! order.

use std::cell::Cell;
use std::ffi::{c_int, c_long};

use pollux_xatmi::error::Code;

use crate::fault::{self, Fault};

/// `TPABSOLUTE`.
const ABSOLUTE: c_long = 0x40;
/// What a call has where nothing was said.
const DEFAULT: c_int = 50;
const HIGHEST: c_int = 100;

thread_local! {
    /// What tpsprio said of the next call.
    static NEXT: Cell<Option<c_int>> = const { Cell::new(None) };
    /// That of the last call.
    static LAST: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// A call is made.
pub(crate) fn on_call() {
    LAST.set(Some(NEXT.take().unwrap_or(DEFAULT)));
}

/// Says the priority of the thread's next call: relative to 50, or with TPABSOLUTE itself.
#[unsafe(no_mangle)]
pub extern "C" fn tpsprio(priority: c_int, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        let (least, most) = match flags {
            0 => (-HIGHEST, HIGHEST),
            ABSOLUTE => (1, HIGHEST),
            other => {
                return Err(Fault::invalid(format!("flags {other:#x}: expected 0 or TPABSOLUTE")));
            }
        };
        if !(least..=most).contains(&priority) {
            return Err(Fault::invalid(format!("{priority}: expected {least} to {most}")));
        }
        let priority = if flags == ABSOLUTE { priority } else { DEFAULT + priority };
        NEXT.set(Some(priority.clamp(1, HIGHEST)));
        Ok(0)
    })
}

/// The priority of the thread's last call.
#[unsafe(no_mangle)]
pub extern "C" fn tpgprio() -> c_int {
    fault::atmi(-1, || {
        LAST.get().ok_or_else(|| Fault::new(Code::NoEntry.number(), "this thread has made no call"))
    })
}
