//! The life of a server in C: its `main`, the services that it offers, its start and end functions.
//!
//! `main` of libatmisrv and of built servers is [`pollux_server_main`]. The loop is that of
//! `pollux_xatmi::worker`; nothing is sent or received here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_long, c_void};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use pollux_xatmi::error::Code;
use pollux_xatmi::worker::{
    Conversion, Ending, Options, Registry, Stopper, Worker, arguments_or_left,
};

use crate::fault::{self, Fault};
use crate::messages::service_name;
use crate::registry::{self, registry};
use crate::service::{Function, run_function};
use crate::{caller, context, logging, service, transactions};

/// The greatest number of a node.
const NODE_MAX: c_long = 255;
/// More services than a server can have; a table without an end is recognised by it.
const ROWS_MAX: usize = 10_000;

/// Ends the server of this process from any thread.
static STOPPER: Mutex<Option<Stopper>> = Mutex::new(None);

/// What the program has for a thread that serves, said before the server runs.
static OF_THREAD: Mutex<(Option<Init>, Option<Finish>)> = Mutex::new((None, None));

/// The number of the server that this process is; -1 for none.
static SRVID: AtomicI32 = AtomicI32::new(-1);

thread_local! {
    /// Whether a function of the program's said that the server has failed.
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
    /// How buffers are converted for which function, by the command line.
    static CONVERSIONS: RefCell<BTreeMap<String, Conversion>> = const { RefCell::new(BTreeMap::new()) };
    /// Where the function of each service is that is offered.
    static OFFERED: RefCell<BTreeMap<String, usize>> = const { RefCell::new(BTreeMap::new()) };
}

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

fn set_stopper(stopper: Option<Stopper>) {
    *STOPPER.lock().unwrap_or_else(PoisonError::into_inner) = stopper;
}

/// Ends the server after the service function at hand, at once where there is none; from any thread of it. A client is left as
/// it is.
#[unsafe(no_mangle)]
pub extern "C" fn tpexit() {
    fault::atmi((), || {
        let stopper = STOPPER.lock().unwrap_or_else(PoisonError::into_inner);
        let detail = "there is no server in this process that could end";
        let stopper =
            stopper.as_ref().ok_or_else(|| Fault::new(Code::Protocol.number(), detail))?;
        stopper.stop();
        Ok(())
    });
}

/// Ends the server whose own thread this is, after what it is doing, as one that has failed.
pub(crate) fn end_as_failed() {
    HAS_FAILED.set(true);
    if let Ok(registry) = registry() {
        registry.stop();
    }
}

/// Offers a service: the worker calls `run_function` (`service.rs`) for each of its requests. What tells functions apart is
/// where they are, not what they are called: one has as many names as a program has ways to write it.
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
    let conversions = CONVERSIONS.with_borrow(|all| all.get(called).copied());
    registry
        .advertise(name, called, move |incoming| run_function(function, incoming, conversions))?;
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
    fault::atmi_if_failed(-1, || {
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

/// A variable of the environment, or NULL; the text is that of getenv(3).
///
/// # Safety
/// A sound `name` is that of a text; no other thread changes the environment meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tuxgetenv(name: *const c_char) -> *mut c_char {
    if !caller::is_sound(name) {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller promises a text.
    unsafe { libc::getenv(name) }
}

/// Puts `NAME=VALUE` into the environment, where the text itself stays; 0, or not.
///
/// # Safety
/// A sound `pair` is that of a text that stays; no other thread reads or changes the environment meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tuxputenv(pair: *mut c_char) -> c_int {
    if !caller::is_sound(pair) {
        return -1;
    }
    // SAFETY: the caller promises a text that stays.
    unsafe { libc::putenv(pair) }
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
    // SAFETY: the caller's promise.
    live(&arguments, init, done, || unsafe { rows(services) })
}

/// A row of the table of a server that is started by [`_tmstartserver`]: `struct tmdsptchtbl_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DispatchRow {
    name: *const c_char,
    function_name: *const c_char,
    function: Option<Function>,
    reserved: [c_long; 2],
}

/// What [`_tmstartserver`] is given: `struct tmsvrargs_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServerArguments {
    resource: *const c_void,
    services: *const DispatchRow,
    flags: c_long,
    init: Option<Init>,
    done: Option<Finish>,
    reserved: [*mut c_void; 5],
    thread_init: Option<Init>,
    thread_done: Option<Finish>,
}

/// The switch of no resource, which programs only take the address of.
#[unsafe(no_mangle)]
pub static tmnull_switch: AtomicI32 = AtomicI32::new(0);

/// What programs set that were built with threads; a server has one thread that serves.
#[unsafe(no_mangle)]
pub static _tmbuilt_with_thread_option: AtomicI32 = AtomicI32::new(0);

/// What [`ndrx_main`] calls at the start and the end of a server; a program with its own main sets them.
#[unsafe(no_mangle)]
pub static G_tpsvrinit__: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
#[unsafe(no_mangle)]
pub static G_tpsvrdone__: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Runs a server from its start to its end with the functions that the program set; the result is for its main to return.
///
/// # Safety
/// `argv` has `argc` texts; what `G_tpsvrinit__` and `G_tpsvrdone__` hold are functions of these types or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndrx_main(argc: c_int, argv: *mut *mut c_char) -> c_int {
    let init = G_tpsvrinit__.load(Ordering::SeqCst);
    let done = G_tpsvrdone__.load(Ordering::SeqCst);
    // SAFETY: a NULL is none, and the caller promises a function of this type.
    let init = unsafe { std::mem::transmute::<*mut c_void, Option<Init>>(init) };
    // SAFETY: as above.
    let done = unsafe { std::mem::transmute::<*mut c_void, Option<Finish>>(done) };
    // SAFETY: the caller's promise.
    unsafe { ndrx_main_integra(argc, argv, init, done, 0) }
}

/// The same with functions that are given; with `ATMI_SRVLIB_NOLONGJUMP` tpreturn and tpforward come back to the service
/// function, which then returns.
///
/// # Safety
/// `argv` has `argc` texts; `init` and `done` are functions of these types or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndrx_main_integra(
    argc: c_int,
    argv: *mut *mut c_char,
    init: Option<Init>,
    done: Option<Finish>,
    flags: c_long,
) -> c_int {
    const NO_JUMP: c_long = 1;
    service::set_jumps(flags & NO_JUMP == 0);
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(argc, argv) };
    live(&arguments, init, done, || Ok(Vec::new()))
}

/// Runs a server from its start to its end, for a program with a main of its own; the result is for that to return.
///
/// # Safety
/// `argv` has `argc` texts; a sound `given` is that of a `tmsvrargs_t` with functions of these types or NULL, and a table
/// whose last row has no name, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _tmstartserver(
    argc: c_int,
    argv: *mut *mut c_char,
    given: *const ServerArguments,
) -> c_int {
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(argc, argv) };
    let program = arguments.first().map_or(OsStr::new("server"), OsString::as_os_str);
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { caller::read(given) }) else {
        report(program, "_tmstartserver was given no tmsvrargs_t");
        return 1;
    };
    let none: *const c_void = (&raw const tmnull_switch).cast();
    if !given.resource.is_null() && !std::ptr::eq(given.resource, none) {
        report(
            program,
            "xa_switch is that of a resource manager: transactions are over no resource",
        );
        return 1;
    }
    *OF_THREAD.lock().unwrap_or_else(PoisonError::into_inner) =
        (given.thread_init, given.thread_done);
    // SAFETY: the caller's promise.
    live(&arguments, given.init, given.done, || unsafe { dispatch_rows(given.services) })
}

/// The life of a server with the rows of its table.
fn live(
    arguments: &[OsString],
    init: Option<Init>,
    done: Option<Finish>,
    rows: impl FnOnce() -> Result<Vec<Row>, Fault>,
) -> c_int {
    let ended = fault::atmi(None, || Ok(Some(run(arguments, init, done, &rows()?)?)));
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
        Some(Ending::Stopped | Ending::Exited) if HAS_FAILED.get() => {
            report(program, "a function of tpext_... did not return 0");
            1
        }
        Some(Ending::Stopped | Ending::Exited) => 0,
        None => {
            report(program, &fault::stderr_tail());
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
    registry::set(Some(registry.clone()));
    set_stopper(Some(registry.stopper()?));
    context::set_servers(true);
    registry.on_log_level(|level| logging::set_level_of_process(level.into()));
    // A line that makes no sense is refused below.
    let words = arguments_or_left(arguments.to_vec());
    let options = Options::parse(words.iter().skip(1).cloned()).ok();
    let srvid = options.as_ref().map(|options| options.srvid);
    CONVERSIONS.set(options.into_iter().flat_map(|options| options.conversions).collect());
    SRVID.store(
        srvid.and_then(|srvid| c_int::try_from(srvid).ok()).unwrap_or(-1),
        Ordering::Relaxed,
    );
    let (thread_init, thread_done) = *OF_THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |application: &[OsString]| {
        for row in rows {
            if row.name.is_empty() {
                let function = row.function;
                let conversions = CONVERSIONS.with_borrow(|all| all.get(&row.called).copied());
                registry.link_in(&row.called, move |incoming| {
                    run_function(function, incoming, conversions)
                });
                continue;
            }
            advertise(&registry, &row.name, row.function, &row.called)
                .map_err(|fault| fault.detail)?;
        }
        registry.built_in_end();
        if init.is_none() {
            // What tpsvrinit does where a program brings none.
            transactions::open();
        }
        call_init("tpsvrinit", init, &words, application.len())?;
        call_init("tpsvrthrinit", thread_init, &words, application.len())
    };
    let finish = || {
        for done in [thread_done, done].into_iter().flatten() {
            // SAFETY: the caller of pollux_server_main, and the one of
            // pollux_server_thread_functions, promise functions of this type.
            unsafe { pollux_finish(done) };
        }
    };
    let ending = worker.run(arguments.iter().cloned(), start, finish);
    set_stopper(None);
    registry::set(None);
    context::set_servers(false);
    Ok(ending?)
}

unsafe extern "C" {
    /// Where getopt(3) reads on.
    static mut optind: c_int;
    fn pollux_start(init: Init, count: c_int, words: *mut *mut c_char) -> c_int;
    fn pollux_finish(done: Finish);
}

/// Calls the program's start function with the whole command line; getopt(3) begins at its last `of_program` words, those
/// behind `--`.
fn call_init(
    name: &str,
    init: Option<Init>,
    words: &[OsString],
    of_program: usize,
) -> Result<(), String> {
    let Some(init) = init else { return Ok(()) };
    let mut texts: Vec<_> = words.iter().filter_map(|w| CString::new(w.as_bytes()).ok()).collect();
    let mut pointers: Vec<_> = texts.iter_mut().map(|text| text.as_ptr().cast_mut()).collect();
    let count = c_int::try_from(pointers.len()).map_err(|_| "too many arguments".to_owned())?;
    let begin = c_int::try_from(pointers.len() - of_program).map_err(|_| "too many arguments")?;
    // SAFETY: the server's own thread calls its start functions, and no other one reads options meanwhile.
    unsafe { optind = begin };
    pointers.push(std::ptr::null_mut());
    // The program may keep pointers to its arguments, as it may to those of main.
    let pointers = pointers.leak();
    texts.leak();
    // SAFETY: the caller of pollux_server_main promises a function of this type; the texts stay.
    match unsafe { pollux_start(init, count, pointers.as_mut_ptr()) } {
        0 => Ok(()),
        code => Err(format!("{name} returned {code}")),
    }
}

/// A service that is offered from the start.
struct Row {
    /// Empty for a function that is only linked in: the command line may give it a name.
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
        rows.push(Row { name: text(name), function, called: text(called) });
    }
    Ok(rows)
}

/// # Safety
/// A sound `table` has rows up to one without a name.
unsafe fn dispatch_rows(table: *const DispatchRow) -> Result<Vec<Row>, Fault> {
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
        rows.push(Row { name: text(name), function, called: text(called) });
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
