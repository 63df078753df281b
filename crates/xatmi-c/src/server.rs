//! The life of a server in C: its `main`, the services that it offers, its start and end functions.
//!
//! `main` of libatmisrv and of built servers is [`pollux_server_main`]. The loop is that of
//! `pollux_xatmi::worker`; nothing is sent or received here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_long, c_void};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::worker::{Done, Ending, Incoming, Options, Registry, Return, Worker};

use crate::caller::jump_to;
use crate::calls::{len_for_caller, sent, service_name};
use crate::fault::{self, Fault};
use crate::memory::{self, Borrowed, Held};
use crate::{caller, context, conversations, transactions, tx};

/// The program's tpsvrinit or tpsvrthrinit.
type Init = unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int;
/// The program's tpsvrdone or tpsvrthrdone.
type Finish = unsafe extern "C" fn();

/// A row of the table that `pollux pool build-server` makes: `struct pollux_service`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServiceRow {
    name: *const c_char,
    function: Option<Function>,
    function_name: *const c_char,
}

/// The greatest number of a node.
const NODE_MAX: c_long = 255;

/// More services than a server can have; a table without an end is recognised by it.
const ROWS_MAX: usize = 10_000;

/// What the program has for a thread that serves, said before the server runs.
static OF_THREAD: Mutex<(Option<Init>, Option<Finish>)> = Mutex::new((None, None));

/// The number of the server that this process is; -1 for none.
static SRVID: AtomicI32 = AtomicI32::new(-1);

thread_local! {
    /// The registry of the server whose own thread this is.
    static REGISTRY: RefCell<Option<Registry>> = const { RefCell::new(None) };
    /// Where the function of each service is that is offered.
    static OFFERED: RefCell<BTreeMap<String, usize>> = const { RefCell::new(BTreeMap::new()) };
}

fn registry() -> Result<Registry, Fault> {
    let found = REGISTRY.try_with(|registry| registry.borrow().clone()).ok().flatten();
    found.ok_or_else(|| {
        let detail = "services are offered by a server, on its own thread, from tpsvrinit on";
        Fault::new(Code::Protocol.number(), detail)
    })
}

/// Offers a service. What tells functions apart is where they are, not what they are called: one
/// has as many names as a program has ways to write it.
fn advertise(
    registry: &Registry,
    name: &str,
    function: Function,
    called: &str,
) -> Result<(), Fault> {
    let at = function as usize;
    let known = OFFERED.with_borrow(|offered| offered.get(name).copied());
    if known.is_some() && registry.services().iter().any(|offered| offered == name) {
        if known == Some(at) {
            return Ok(());
        }
        let detail = format!("service {name} is offered already, by another function");
        return Err(Fault::new(Code::Match.number(), detail));
    }
    registry.advertise(name, called, move |incoming| serve(function, incoming))?;
    OFFERED.with_borrow_mut(|offered| offered.insert(name.to_owned(), at));
    Ok(())
}

/// Offers a service; 0 is an int without anything else, as some programs return what is left of it.
///
/// # Safety
/// Sound `name` and `function_name` are those of texts; `function` takes a `TPSVCINFO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpadvertise_full(
    name: *const c_char,
    function: Option<Function>,
    function_name: *const c_char,
) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let name = unsafe { service_name(name) }
            .map_err(|fault| Fault::new(Code::Invalid.number(), fault.detail))?;
        let function = function.ok_or_else(|| Fault::invalid("tpadvertise needs a function"))?;
        // SAFETY: the caller's promise.
        let called = unsafe { caller::text(function_name) };
        let called = called.map_or_else(|| name.to_owned(), |c| c.to_string_lossy().into_owned());
        advertise(&registry()?, name, function, &called).map(|()| 0)
    })
}

/// Offers a service no longer.
///
/// # Safety
/// A sound `name` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpunadvertise(name: *const c_char) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let name = unsafe { service_name(name) }
            .map_err(|fault| Fault::new(Code::Invalid.number(), fault.detail))?;
        registry()?.unadvertise(name)?;
        OFFERED.with_borrow_mut(|offered| offered.remove(name));
        Ok(0)
    })
}

/// Says what is called for the thread that serves, once tpsvrinit has returned and before
/// tpsvrdone. To be called before pollux_server_main.
///
/// # Safety
/// Both are functions of these types or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_server_thread_functions(init: Option<Init>, done: Option<Finish>) {
    *OF_THREAD.lock().unwrap_or_else(PoisonError::into_inner) = (init, done);
}

/// The number of the server that this process is.
#[unsafe(no_mangle)]
pub extern "C" fn tpgetsrvid() -> c_int {
    fault::atmi(-1, || match SRVID.load(Ordering::Relaxed) {
        -1 => {
            let detail = "a client has no number: pools number their servers";
            Err(Fault::new(Code::Protocol.number(), detail))
        }
        srvid => Ok(srvid),
    })
}

/// The number of this node: NDRX_NODEID, 1 without.
#[unsafe(no_mangle)]
pub extern "C" fn tpgetnodeid() -> c_long {
    fault::atmi(-1, || {
        let value = std::env::var_os("NDRX_NODEID").filter(|value| !value.is_empty());
        let Some(value) = value else { return Ok(1) };
        let number = value.to_str().and_then(|value| value.trim().parse().ok());
        number.filter(|number| (1..=NODE_MAX).contains(number)).ok_or_else(|| {
            let value = value.display();
            Fault::invalid(format!(
                "NDRX_NODEID=`{value}`: a number of 1 to {NODE_MAX} is expected"
            ))
        })
    })
}

/// Runs a server from its start to its end; the result is for `main` to return.
///
/// # Safety
/// `argv` has `argc` texts; `init` and `done` are functions of these types or NULL; `services` is a
/// table whose last row has no name, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_server_main(
    argc: c_int,
    argv: *mut *mut c_char,
    init: Option<Init>,
    done: Option<Finish>,
    services: *const ServiceRow,
) -> c_int {
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(argc, argv) };
    let ended = fault::atmi(None, || {
        // SAFETY: the caller's promise.
        let rows = unsafe { rows(services) }?;
        Ok(Some(run(&arguments, init, done, &rows)?))
    });
    let program = arguments.first().map_or(OsStr::new("server"), OsString::as_os_str);
    match ended {
        Some(Ending::Panicked { .. }) => {
            report(program, "a fault in the library ended the server");
            1
        }
        Some(ending @ Ending::Abandoned) => {
            report(program, &ending.to_string());
            1
        }
        Some(Ending::Stopped | Ending::Exited) => 0,
        None => {
            report(program, &fault::last_words());
            1
        }
    }
}

fn run(
    arguments: &[OsString],
    init: Option<Init>,
    done: Option<Finish>,
    rows: &[Row],
) -> Result<Ending, Fault> {
    let worker = Worker::from_environment()?;
    let registry = worker.registry();
    REGISTRY.set(Some(registry.clone()));
    context::set_servers(true);
    // A line that makes no sense is refused below.
    let srvid = Options::parse(arguments.iter().skip(1).cloned()).ok().map(|options| options.srvid);
    SRVID.store(
        srvid.and_then(|srvid| c_int::try_from(srvid).ok()).unwrap_or(-1),
        Ordering::Relaxed,
    );
    let (thread_init, thread_done) = *OF_THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |application: &[OsString]| {
        for row in rows {
            advertise(&registry, &row.name, row.function, &row.called)
                .map_err(|fault| fault.detail)?;
        }
        let program = &arguments[..1.min(arguments.len())];
        call_init("tpsvrinit", init, program, application)?;
        call_init("tpsvrthrinit", thread_init, program, application)
    };
    let finish = || {
        for done in [thread_done, done].into_iter().flatten() {
            // SAFETY: the caller of pollux_server_main, and the one of
            // pollux_server_thread_functions, promise functions of this type.
            unsafe { done() };
        }
    };
    let ending = worker.run(arguments.iter().cloned(), start, finish);
    REGISTRY.set(None);
    context::set_servers(false);
    Ok(ending?)
}

/// Calls the program's start function with its own name and what follows `--`, as getopt wants it.
fn call_init(
    name: &str,
    init: Option<Init>,
    program: &[OsString],
    application: &[OsString],
) -> Result<(), String> {
    let Some(init) = init else { return Ok(()) };
    let words = program.iter().chain(application);
    let mut texts: Vec<_> = words.filter_map(|w| CString::new(w.as_bytes()).ok()).collect();
    let mut pointers: Vec<_> = texts.iter_mut().map(|text| text.as_ptr().cast_mut()).collect();
    let count = c_int::try_from(pointers.len()).map_err(|_| "too many arguments".to_owned())?;
    pointers.push(std::ptr::null_mut());
    // The program may keep pointers to its arguments, as it may to those of main.
    let pointers = pointers.leak();
    texts.leak();
    // SAFETY: the caller of pollux_server_main promises a function of this type; the texts stay.
    match unsafe { init(count, pointers.as_mut_ptr()) } {
        0 => Ok(()),
        code => Err(format!("{name} returned {code}")),
    }
}

/// A service that is offered from the start.
struct Row {
    name: String,
    function: Function,
    called: String,
}

/// # Safety
/// As for [`pollux_server_main`].
unsafe fn rows(table: *const ServiceRow) -> Result<Vec<Row>, Fault> {
    let mut rows = Vec::new();
    for index in 0..ROWS_MAX {
        // SAFETY: the caller promises rows up to one without a name, and none before was one.
        let Some(row) = (unsafe { caller::read(table.wrapping_add(index)) }) else { break };
        // SAFETY: the caller's promise.
        let Some(name) = (unsafe { caller::text(row.name) }) else { break };
        // SAFETY: the caller's promise.
        let called = unsafe { caller::text(row.function_name) }.unwrap_or(name);
        let function =
            row.function.ok_or_else(|| Fault::invalid("a service without a function"))?;
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        // Without a name a function is only linked in.
        if !name.is_empty() {
            rows.push(Row { name: text(name), function, called: text(called) });
        }
    }
    Ok(rows)
}

/// # Safety
/// As for [`pollux_server_main`].
unsafe fn arguments(argc: c_int, argv: *mut *mut c_char) -> Vec<OsString> {
    let count = usize::try_from(argc).unwrap_or(0);
    let texts = (0..count).map_while(|index| {
        // SAFETY: the caller promises so many pointers.
        let pointer = unsafe { caller::read(argv.wrapping_add(index)) }?;
        // SAFETY: the caller promises texts.
        let text = unsafe { caller::text(pointer) }?;
        Some(OsString::from_vec(text.to_bytes().to_vec()))
    });
    texts.collect()
}

/// Writes the reason why the server ends to standard error, which may be closed.
fn report(program: &OsStr, words: &str) {
    let _ = writeln!(std::io::stderr(), "{}: {words}", program.display());
}

// One call of a service function in C: what it is given, and how it leaves.
//
// A server registers `serve` for each service. The function leaves by tpreturn or tpforward,
// which jump back over the C program's own frames (see `c/leave.c`): everything that Rust does
// there has ended before the jump.
//
// ```text
//  serve ─▶ pollux_run_service (C, setjmp) ─▶ function of the program ─▶ ... ─▶ tpreturn
//    ▲               ▲                                                             │ jmp
//    │ Done          └───────────────── longjmp ◀── pollux_leave_by_return (C) ◀───┘
//    └─ OUTCOME ◀───────────────────────────────── pollux_record_return (Rust, returns)
// ```

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
}

/// Runs `function` for a request.
pub(crate) fn serve(function: Function, incoming: Incoming) -> Done {
    // Without its initiator a conversation is nothing to be served.
    let Ok(joined) = conversations::join(&incoming) else { return Done::NoReturn };
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
    if let Some(held) = memory::take_request() {
        memory::free(held);
    }
    let outcome = OUTCOME.take();
    // One that the function began and did not end aborts, and its caller gets an error.
    let is_left_open =
        transactions::seen().is_some_and(|seen| Some(seen.number) != before) && tx::abort().is_ok();
    let done = match outcome {
        Some(done) if has_left != 0 && !is_left_open => done,
        _ => Done::NoReturn,
    };
    if joined.is_some() { conversations::finish(done) } else { done }
}

impl ServiceInfo {
    fn of(incoming: Incoming) -> Self {
        const TPNOREPLY: c_long = 4;
        let client = incoming.client;
        let len = incoming.buffer.as_ref().map_or(0, |b| len_for_caller(b, incoming.len_bytes));
        let give_out = |buffer| memory::give_out(Held { buffer, is_request: true });
        Self {
            name: filled(incoming.service.as_str()),
            data: incoming.buffer.map_or(std::ptr::null_mut(), give_out),
            len,
            flags: if incoming.is_without_reply { TPNOREPLY } else { 0 },
            cd: incoming.cd,
            appkey: 0,
            client: filled(&format!("{},{},{:016x}", client.pid, client.context, client.nonce)),
            function: filled(&incoming.function),
        }
    }
}

/// A name in so many bytes, with a NUL at least at their end.
fn filled<const BYTES: usize>(name: &str) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let len = name.len().min(BYTES - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes
}

/// Keeps an outcome, and says where to jump to: NULL, with TPEPROTO, outside a service.
fn record(outcome: impl FnOnce() -> Done) -> *mut c_void {
    fault::atmi(std::ptr::null_mut(), || {
        let start = START.get();
        if start.is_null() {
            let detail = "tpreturn and tpforward are for service functions, on their own thread";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        let done = outcome();
        OUTCOME.with_borrow_mut(|place| *place = Some(done));
        Ok(start)
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

/// How much of a buffer is sent when the program says `len`.
fn sendable(buffer: &Buffer, len: c_long) -> Result<usize, Fault> {
    let len = sent(buffer.buffer_type(), len)?;
    buffer.used_len(len)?;
    Ok(len)
}

/// Called by `c/leave.c` for tpreturn; says where to jump to.
///
/// # Safety
/// No other thread uses the buffer at `data`, whose pointer may be any.
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
        Done::Return(Return {
            rval,
            urcode: rcode,
            buffer: sent.0.map(|held| held.buffer),
            len_bytes: sent.1,
            soft_error: wrong.or_else(|| soft_error(rval, flags)),
        })
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
/// A sound `svc` is that of a text; no other thread uses the buffer at `data`, whose pointer may be any.
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
        match (service, taken(data, len)) {
            (Some(service), Ok((held, len_bytes))) => {
                Done::Forward { service, buffer: held.map(|held| held.buffer), len_bytes }
            }
            _ => Done::NoReturn,
        }
    })
}

/// Ends the service function: the caller gets `data`. Comes back, with TPEPROTO, only elsewhere.
///
/// # Safety
/// No other thread uses the buffer at `data`, whose pointer may be any. Between the service function
/// and this call there are only frames of C.
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
/// As for [`tpreturn`]; a sound `svc` is that of a text.
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
    fn soft_errors_follow_the_flags() {
        assert_eq!(soft_error(2, 0), None);
        assert_eq!(soft_error(2, 0x0008_0000), Some(Code::Time));
        assert_eq!(soft_error(17, 0x0040_0000), Some(Code::InputType));
        assert_eq!(soft_error(999, 0x0040_0000), Some(Code::ServiceError));
    }
}
