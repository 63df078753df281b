//! Priorities of calls: what tpsprio says of the next request of a thread, and what its last one had.

use std::cell::Cell;
use std::ffi::{c_int, c_long};

use pollux_xatmi::error::Code;
use pollux_xatmi::priority::{Asked, Priority};

use crate::fault::{self, Fault};

/// `TPABSOLUTE`.
const ABSOLUTE: c_long = 0x40;
const HIGHEST: c_int = 100;

thread_local! {
    /// What tpsprio said of the next request.
    static NEXT: Cell<Option<Asked>> = const { Cell::new(None) };
    /// That of the last one, sent or received.
    static LAST: Cell<Option<Priority>> = const { Cell::new(None) };
}

/// What was said of the request that is made now.
pub(crate) fn take_next() -> Option<Asked> {
    NEXT.take()
}

/// A request was made, or came.
pub(crate) fn on_request(priority: Priority) {
    LAST.set(Some(priority));
}

/// Says the priority of the thread's next request: relative to that of the service, or with TPABSOLUTE itself.
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
        let absolute = (flags == ABSOLUTE).then(|| Priority::new(priority.into())).flatten();
        NEXT.set(Some(absolute.map_or(Asked::Relative(priority), Asked::Absolute)));
        Ok(0)
    })
}

/// The priority of the thread's last request, sent or received.
#[unsafe(no_mangle)]
pub extern "C" fn tpgprio() -> c_int {
    fault::atmi(-1, || {
        let last = LAST.get().map(|priority| priority.number().into());
        last.ok_or_else(|| Fault::new(Code::NoEntry.number(), "this thread has made no call"))
    })
}
