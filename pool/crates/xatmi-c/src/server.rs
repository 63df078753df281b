//! The life of a server in C: its `main`, the services that it offers, its start and end functions.
//!
//! `main` of libatmisrv and of built servers is [`pollux_server_main`]. The loop is that of
//! `pollux_xatmi::worker`; nothing is sent or received here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_long};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use pollux_xatmi::error::Code;
use pollux_xatmi::worker::{Ending, Options, Registry, Worker};

use crate::fault::{self, Fault};
use crate::messages::service_name;
use crate::service::{Function, serve};
use crate::{caller, context};

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
