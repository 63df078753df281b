//! One call of a service function in C: its `TPSVCINFO`, and its end by tpreturn, tpforward or tpcontinue.
//!
//! A server registers `serve` for each service. tpreturn and tpforward jump back over the C
//! program's own frames (see `c/leave.c`): everything that Rust does there has ended before the jump.
//!
//! ```text
//!  serve ─▶ pollux_run_service (C, setjmp) ─▶ function of the program ─▶ ... ─▶ tpreturn
//!    ▲               ▲                                                             │ jmp
//!    │ Done          └───────────────── longjmp ◀── pollux_leave_by_return (C) ◀───┘
//!    └─ OUTCOME ◀───────────────────────────────── pollux_record_return (Rust, returns)
//! ```

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::wire::ClientAddress;
use pollux_xatmi::worker::{Conversion, Done, Incoming, Return};

use crate::caller::jump_to;
use crate::fault::{self, Fault};
use crate::memory::{self, Borrowed, Held};
use crate::messages::{len_for_caller, sent, service_name};
use crate::transactions::{self, Transaction};
use crate::{calls, context, continued, conversion, handed_over, priority, tx};

/// A service function of the program.
pub(crate) type Function = unsafe extern "C" fn(*mut ServiceInfo);

/// `TPSVCINFO`.
#[repr(C)]
#[derive(Debug)]
pub struct ServiceInfo {
    name: [u8; 31],
    data: *mut c_char,
    len: c_long,
    flags: c_long,
    cd: c_int,
    appkey: c_long,
    client: [u8; 96],
    function: [u8; 32],
}

thread_local! {
    /// Where the service function that runs was started; NULL when none does.
    static START: Cell<*mut c_void> = const { Cell::new(std::ptr::null_mut()) };
    /// How it says that it ended.
    static OUTCOME: RefCell<Option<Done>> = const { RefCell::new(None) };
}

unsafe extern "C" {
    fn pollux_run_service(
        function: Function,
        info: *mut ServiceInfo,
        start: *mut *mut c_void,
    ) -> c_int;
    fn pollux_leave_by_return(
        rval: c_int,
        rcode: c_long,
        data: *mut c_char,
        len: c_long,
        flags: c_long,
    );
    fn pollux_leave_by_forward(svc: *const c_char, data: *mut c_char, len: c_long, flags: c_long);
    fn pollux_leave_by_continue();
}

/// Runs `function` for a request, and gives back how it ended: what the handler does that `advertise` in `server.rs` offers. The
/// way continues where it was called, in `pool/crates/xatmi/src/worker/dispatch.rs`, `answer_to`.
///
/// `pollux_run_service` (C, `leave.c`) calls the function; where that calls `tpreturn` or `tpforward`, `pollux_record_return` and
/// its like keep the outcome in `OUTCOME`, and the function is left by a jump to here.
pub(crate) fn run_function(
    function: Function,
    mut incoming: Incoming,
    conversion: Option<Conversion>,
) -> Done {
    // Without its initiator a conversation is nothing to be served.
    let Ok(joined) = calls::join(&incoming) else { return Done::NoReturn };
    let conversion = match conversion {
        Some(asked) => match conversion::to_function(&mut incoming, asked) {
            Ok(is_converted) => is_converted.then_some(asked),
            Err(_) => return Done::NoReturn,
        },
        None => None,
    };
    priority::on_request(incoming.priority);
    handed_over::begin(incoming.is_in_transaction, incoming.deadline_ns, conversion);
    let part = Part::of(&incoming);
    let mut info = ServiceInfo::of(incoming);
    if let Some(joined) = &joined {
        info.cd = joined.cd;
        info.flags |= joined.flags;
    }
    let before = transactions::seen().map(|seen| seen.number);
    // SAFETY: the program registered the function for this; `info` and START outlive the call, and
    // what the jump leaves out is the program's own.
    let has_left = unsafe { pollux_run_service(function, &raw mut info, START.with(Cell::as_ptr)) };
    START.set(std::ptr::null_mut());
    handed_over::end();
    context::end_visits();
    // Where the program's frames are not jumped over, it says how it ends and returns.
    let has_left = has_left != 0 || !JUMPS.load(Ordering::Relaxed);
    if let Some(held) = memory::take_request() {
        memory::free(held);
    }
    let outcome = OUTCOME.take();
    // One that the function began and did not end aborts, and its caller gets an error.
    let is_left_open =
        transactions::seen().is_some_and(|seen| Some(seen.number) != before) && tx::abort().is_ok();
    let is_abort_only = part.is_some_and(Part::end);
    let done = match outcome {
        Some(Done::Return(returned)) if has_left && !is_left_open => {
            Done::Return(Return { is_abort_only, ..returned })
        }
        Some(done) if has_left && !is_left_open && !is_abort_only => done,
        _ => Done::NoReturn,
    };
    match (joined, conversion) {
        (Some(_), _) => calls::finish(done),
        (None, Some(conversion)) => conversion::from_function(done, conversion),
        (None, None) => done,
    }
}

/// The part of a service function in the transaction of its caller; the server's own, if it has one, waits meanwhile.
struct Part {
    own: Option<Transaction>,
}

impl Part {
    /// None for a request outside of any.
    fn of(incoming: &Incoming) -> Option<Self> {
        incoming.is_in_transaction.then(|| {
            let own = transactions::take();
            transactions::put(Some(Transaction::of_caller(incoming.deadline_ns)));
            Self { own }
        })
    }

    /// The function has ended; whether the transaction can only abort.
    fn end(self) -> bool {
        let is_abort_only = transactions::take().is_some_and(|part| part.is_abort_only());
        transactions::put(self.own);
        is_abort_only
    }
}

impl ServiceInfo {
    fn of(incoming: Incoming) -> Self {
        const TPNOREPLY: c_long = 4;
        const TPTRAN: c_long = 0x10;
        let client = incoming.client;
        let len = incoming.buffer.as_ref().map_or(0, |b| len_for_caller(b, incoming.len_bytes));
        let call_info = incoming.call_info;
        let give_out = |buffer| memory::give_out(Held { buffer, is_request: true, call_info });
        Self {
            name: filled(incoming.service.as_str()),
            data: incoming.buffer.map_or(std::ptr::null_mut(), give_out),
            len,
            flags: if incoming.is_without_reply { TPNOREPLY } else { 0 }
                | if incoming.is_in_transaction { TPTRAN } else { 0 },
            cd: incoming.cd,
            appkey: 0,
            client: client_id(client),
            function: filled(&incoming.function),
        }
    }
}

/// Process, context and nonce of a client as text, the nonce in 16 hexadecimal digits. Written by hand: `format!` is an
/// eighth of what the library does for a request.
fn client_id(client: ClientAddress) -> [u8; 96] {
    let mut bytes = [0; 96];
    let mut len = 0;
    for number in [client.pid, client.context] {
        let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1);
        let mut left = number;
        for digit in bytes[len..][..digits].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        bytes[len + digits] = b',';
        len += digits + 1;
    }
    for (at, digit) in bytes[len..][..16].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(client.nonce >> (60 - 4 * at) & 0xf) as usize];
    }
    bytes
}

/// A name in so many bytes, with a NUL at least at their end.
fn filled<const BYTES: usize>(name: &str) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let len = name.len().min(BYTES - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes
}

/// Whether tpreturn and tpforward jump over the frames of the program.
static JUMPS: AtomicBool = AtomicBool::new(true);

/// Says it for this process.
pub(crate) fn set_jumps(jumps: bool) {
    JUMPS.store(jumps, Ordering::Relaxed);
}

/// Keeps an outcome, and says where to jump to: NULL, with TPEPROTO, outside a service. NULL as well where nothing is jumped
/// over, and for a thread that answers a call of the server's own.
fn record(outcome: impl FnOnce() -> Result<Done, Fault>) -> *mut c_void {
    fault::atmi(std::ptr::null_mut(), || {
        let start = START.get();
        if start.is_null() {
            let mut failed = None;
            let answer = || {
                outcome().unwrap_or_else(|fault| {
                    failed = Some(fault);
                    Done::NoReturn
                })
            };
            if continued::give(answer) {
                return failed.map_or(Ok(std::ptr::null_mut()), Err);
            }
            let detail = "tpreturn and tpforward are for service functions, on their own thread";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        let done = outcome()?;
        OUTCOME.with_borrow_mut(|place| *place = Some(done));
        Ok(if JUMPS.load(Ordering::Relaxed) { start } else { std::ptr::null_mut() })
    })
}

/// The buffer that a service function sends, which is the server's from now on; one that cannot
/// be sent is freed, as the program believes it gone too.
fn taken(data: *const c_char, len: c_long) -> Result<(Option<Held>, usize), Fault> {
    let Some(held) = Borrowed::from(data)?.map(Borrowed::into_held) else { return Ok((None, 0)) };
    match sendable(&held.buffer, len) {
        Ok(len) => Ok((Some(held), len)),
        Err(fault) => {
            memory::free(held);
            Err(fault)
        }
    }
}

/// A buffer, and what travels beside its data.
fn apart(held: Option<Held>) -> (Option<Buffer>, Option<Box<[u8]>>) {
    held.map_or((None, None), |held| (Some(held.buffer), held.call_info))
}

/// How much of a buffer is sent when the program says `len`.
fn sendable(buffer: &Buffer, len: c_long) -> Result<usize, Fault> {
    let len = sent(buffer.buffer_type(), len)?;
    buffer.used_len(len)?;
    Ok(len)
}

/// Called by `c/leave.c` for tpreturn; says where to jump to.
///
/// # Safety
/// No other thread uses the buffer at `data` during the call, whose pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_record_return(
    rval: c_int,
    rcode: c_long,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
) -> *mut c_void {
    record(|| {
        let (sent, wrong) = match taken(data, len) {
            Ok(sent) => (sent, None),
            // A reply that cannot be sent is an error of the service.
            Err(_) => ((None, 0), Some(Code::ServiceError)),
        };
        let (held, len_bytes) = sent;
        let (buffer, call_info) = apart(held);
        Ok(Done::Return(Return {
            rval,
            urcode: rcode,
            buffer,
            len_bytes,
            call_info,
            soft_error: wrong.or_else(|| soft_error(rval, flags)),
            is_abort_only: false,
        }))
    })
}

/// The error that the caller is to see by the flags of tpreturn.
fn soft_error(rval: c_int, flags: c_long) -> Option<Code> {
    const TPSOFTTIMEOUT: c_long = 0x0008_0000;
    const TPSOFTENOENT: c_long = 0x0010_0000;
    const TPSOFTERR: c_long = 0x0040_0000;
    if flags & TPSOFTTIMEOUT != 0 {
        Some(Code::Time)
    } else if flags & TPSOFTENOENT != 0 {
        Some(Code::NoEntry)
    } else if flags & TPSOFTERR != 0 {
        Some(Code::from_number(rval).unwrap_or(Code::ServiceError))
    } else {
        None
    }
}

/// Called by `c/leave.c` for tpforward; says where to jump to.
///
/// # Safety
/// A sound `svc` points to a text; no other thread uses the buffer at `data` during the call, whose
/// pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_record_forward(
    svc: *const c_char,
    data: *mut c_char,
    len: c_long,
    _flags: c_long,
) -> *mut c_void {
    record(|| {
        // SAFETY: the caller's promise.
        let service = unsafe { service_name(svc) }.ok().and_then(ServiceName::new);
        Ok(match (service, taken(data, len)) {
            (Some(service), Ok((held, len_bytes))) => {
                let (buffer, call_info) = apart(held);
                let priority = priority::take_next();
                Done::Forward { service, buffer, len_bytes, call_info, priority }
            }
            _ => Done::NoReturn,
        })
    })
}

/// Called by `c/leave.c` for tpcontinue; says where to jump to.
#[unsafe(no_mangle)]
pub extern "C" fn pollux_record_continue() -> *mut c_void {
    let is_of_server = !START.get().is_null();
    record(|| {
        if !is_of_server {
            let detail = "tpcontinue is for service functions, on their own thread";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        // The conversation of a service function is its thread's.
        if calls::serves_conversation() {
            let detail = "a conversation is served by its service function, and not handed over";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        continued::leave()
    })
}

/// Ends the service function without an answer, which another thread of the program gives. Comes back, with TPEPROTO, only
/// elsewhere.
///
/// # Safety
/// As for [`tpreturn`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpcontinue() {
    jump_to!(pollux_leave_by_continue)
}

/// Ends the service function: the caller gets `data`. Comes back, with TPEPROTO, only elsewhere.
///
/// # Safety
/// No other thread uses the buffer at `data` during the call, whose pointer may be any. Between the
/// service function and this call there are only frames of C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpreturn(
    rval: c_int,
    rcode: c_long,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
) {
    jump_to!(pollux_leave_by_return)
}

/// Ends the service function: another service answers. Comes back, with TPEPROTO, only elsewhere.
///
/// # Safety
/// As for [`tpreturn`]; a sound `svc` points to a text.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpforward(
    svc: *const c_char,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
) {
    jump_to!(pollux_leave_by_forward)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_end_with_a_nul() {
        assert_eq!(filled::<4>("ab"), *b"ab\0\0");
        assert_eq!(filled::<4>("abcdef"), *b"abc\0");
        assert_eq!(size_of::<ServiceInfo>(), 200);
    }

    #[test]
    fn a_client_is_named_by_its_numbers() {
        for (pid, context, nonce) in [(0, 7, 0), (10, 99, 0xfe), (u32::MAX, 100, u64::MAX)] {
            let expected = format!("{pid},{context},{nonce:016x}");
            assert_eq!(client_id(ClientAddress { pid, context, nonce }), filled(&expected));
        }
    }

    #[test]
    fn soft_errors_follow_the_flags() {
        assert_eq!(soft_error(2, 0), None);
        assert_eq!(soft_error(2, 0x0008_0000), Some(Code::Time));
        assert_eq!(soft_error(17, 0x0040_0000), Some(Code::InputType));
        assert_eq!(soft_error(999, 0x0040_0000), Some(Code::ServiceError));
    }
}
