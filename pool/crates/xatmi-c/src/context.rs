//! Contexts: a place in the pool, and which one a thread is in.
//!
//! `calls.rs` works through it. A thread gets a context by its first call and ends it with itself,
//! so that a program that only builds buffers touches no queue. One whose number is in use, by
//! tpgetctxt or TPMULTICONTEXTS, lasts until its tpterm, and threads come and go by tpsetctxt; of
//! several in one context one calls at a time, the others wait. One of `tpnewctxt` (`in_context.rs`) lasts until
//! `tpfreectxt`, with a client or without.
//!
//! ```text
//!              first call, tpinit                 tpgetctxt
//!   none ───────────────────────────▶ own ─────────────────────▶ kept ◀── tpinit, TPMULTICONTEXTS
//!     ▲                                │ thread ends, tpterm        │
//!     └────────────────────────────────┘                            │ tpterm of any thread in it
//!   none ◀── tpterm, tpsetctxt ── invalid, for the others in it ◀───┘
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use pollux_xatmi::client::Client;
use pollux_xatmi::conversation::Conversation;
use pollux_xatmi::environment::BadVariable;
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::wire::ClientAddress;

use crate::events::{self, Handler, Listener};
use crate::fault::{self, Cause, Errors, Fault};
use crate::transactions::{self, Transaction};
use crate::{caller, handed_over, logging, startup};

/// `TPCONTEXT_T`: the number of a context in the place of an address, as programs compare it with NULL.
pub(crate) type Handle = *mut c_void;

/// `TPCONTEXT_T` of a thread whose context another thread ended; no number comes to it.
const TPINVALIDCONTEXT: c_int = c_int::MAX;
/// `TPCONTEXT_T` of a thread without a context.
const TPNULLCONTEXT: c_int = 0;

/// Flag of tpinit: a context of its own, beside those that there are.
const TPMULTICONTEXTS: c_long = 0x20;

/// Most contexts that are kept; the manager takes no more connections.
const KEPT_MAX: usize = 8192;

/// Contexts by their numbers: C programs name them so, without a handle of ours.
static KEPT: Mutex<Kept> = Mutex::new(BTreeMap::new());

/// Bytes of a name of `TPINIT`, with its NUL.
const NAME_BYTES: usize = 31;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let detail = format!("{}{}", error.detail(), cause.unwrap_or_default());
        let fault = Self::new(error.code().number(), detail);
        match error.code() {
            Code::Permission => fault.by(Cause::NoPermission),
            _ => fault,
        }
    }
}

impl From<BadVariable> for Fault {
    fn from(bad: BadVariable) -> Self {
        Self::invalid(bad.to_string())
    }
}

/// A place in the pool.
pub(crate) struct Context {
    number: c_int,
    /// Its number was given out, so it stays when no thread is in it.
    is_kept: AtomicBool,
    /// Made by tpnewctxt: tpterm ends its client, and not the context.
    is_lasting: AtomicBool,
    /// Ended by tpterm.
    is_over: AtomicBool,
    state: Mutex<State>,
    /// Of the functions that name it in front.
    errors: OwnErrors,
    /// What such functions have in the place of what is the thread's own.
    settings: Mutex<ThreadSettings>,
}

/// Errors that count for whichever thread works in a context.
struct OwnErrors(Errors);

// SAFETY: programs promise that of several threads one calls functions with a context in front at a time.
unsafe impl Sync for OwnErrors {}

/// What a program sets for a thread, or for a context whose functions it calls on any thread.
#[derive(Default)]
pub(crate) struct ThreadSettings {
    handler: Option<Handler>,
    times: (c_int, c_int),
    log: logging::OfThread,
    /// The call of a server that is to be answered.
    taken_over: Option<handed_over::Call>,
}

impl ThreadSettings {
    /// Makes these those of the thread; what those were.
    fn exchange(self) -> Self {
        Self {
            handler: events::exchange_handler(self.handler),
            times: transactions::exchange_times(self.times),
            log: logging::exchange_of_thread(self.log),
            taken_over: handed_over::exchange(self.taken_over),
        }
    }
}

#[derive(Default)]
struct State {
    client: Option<Client>,
    /// How long a call may take where nothing else says it.
    pools_time: Duration,
    /// Those that were begun in it, by their descriptors.
    conversations: Conversations,
    /// What it listens to.
    listener: Option<Listener>,
    /// `usrname` and `cltname` of its TPINIT.
    names: (String, String),
    /// The transaction of the thread that left last.
    transaction: Option<Transaction>,
}

thread_local! {
    /// Dropped when the thread ends, which removes the reply queue of a context of its own.
    static PLACE: RefCell<Option<Arc<Context>>> = const { RefCell::new(None) };
    /// This is the thread of a server that runs, whose context is the server's.
    static IS_SERVERS: Cell<bool> = const { Cell::new(false) };
    /// Functions with a context in front that are at work here; the innermost is the last.
    static VISITS: RefCell<Vec<Visit>> = const { RefCell::new(Vec::new()) };
    /// Held while the process forks.
    static FORKING: RefCell<Option<MutexGuard<'static, Kept>>> = const { RefCell::new(None) };
}

/// Conversations by their descriptors.
pub(crate) type Conversations = BTreeMap<c_int, Conversation>;

type Kept = BTreeMap<c_int, Arc<Context>>;

/// A stay of the thread in a context for one function, and what counts for the thread otherwise.
struct Visit {
    context: Arc<Context>,
    errors: *const Errors,
    /// None where the thread is in that context anyway.
    thread: Option<(Option<Arc<Context>>, Option<Transaction>, ThreadSettings)>,
}

fn kept() -> MutexGuard<'static, Kept> {
    // Nothing panics while it is locked.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    fn new() -> Arc<Self> {
        static NUMBERS: AtomicI32 = AtomicI32::new(1);
        watch_forks();
        Arc::new(Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            is_kept: AtomicBool::new(false),
            is_lasting: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            state: Mutex::default(),
            errors: OwnErrors(Errors::new()),
            settings: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic the client is as it is after any error.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it last beyond the thread that is in it.
    fn keep(self: &Arc<Self>) -> Result<(), Fault> {
        let mut kept = kept();
        if !kept.contains_key(&self.number) {
            room(&kept)?;
        }
        self.is_kept.store(true, Ordering::Relaxed);
        kept.insert(self.number, Arc::clone(self));
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn settings(&self) -> MutexGuard<'_, ThreadSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it for good.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        kept().remove(&self.number);
        // It ends outside the lock, as that may take a while.
        let ended = std::mem::take(&mut *self.state());
        drop(ended);
    }
}

/// The handle of a context by its number.
fn handle(number: c_int) -> Handle {
    std::ptr::without_provenance_mut(number as usize)
}

/// The number behind a handle; one that is none is that of no context.
fn number_of(handle: Handle) -> c_int {
    c_int::try_from(handle.addr()).unwrap_or(TPINVALIDCONTEXT)
}

fn with_number(number: c_int) -> Option<Arc<Context>> {
    kept().get(&number).map(Arc::clone)
}

/// A server begins or ceases to run on this thread.
pub(crate) fn set_servers(is_servers: bool) {
    IS_SERVERS.set(is_servers);
}

/// Whether this is the thread of a server, in the context of the server.
fn is_servers() -> bool {
    IS_SERVERS.get()
        && VISITS.with_borrow(|visits| visits.iter().all(|visit| visit.thread.is_none()))
}

/// A context that is made by itself: without a client yet, it lasts until [`free`].
///
/// # Errors
/// TPELIMIT.
pub(crate) fn make() -> Result<Handle, Fault> {
    let context = Context::new();
    context.is_lasting.store(true, Ordering::Relaxed);
    context.keep()?;
    Ok(handle(context.number))
}

/// Ends a context that was made by itself, or any other.
pub(crate) fn free(context: Handle) {
    let Some(context) = with_number(number_of(context)) else { return };
    context.end();
    let _ = with_place(|place| {
        if place.as_ref().is_some_and(|of_thread| of_thread.number == context.number) {
            drop(transactions::take());
            *place = None;
        }
        Ok(())
    });
}

/// The thread enters the context of `place` for one function, until [`end_visit`]. Where that is NULL one is made, and its
/// handle put there; one that there is not makes all that needs a context TPEPROTO.
///
/// # Safety
/// No other thread is in the context by such a function.
pub(crate) unsafe fn visit(place: &mut Handle) {
    if place.is_null() {
        *place = make().unwrap_or_else(|_| handle(TPINVALIDCONTEXT));
    }
    let context = with_number(number_of(*place)).unwrap_or_else(|| {
        let none = Context::new();
        none.is_over.store(true, Ordering::Relaxed);
        none
    });
    let is_there = |place: &RefCell<Option<Arc<Context>>>| {
        place.borrow().as_ref().is_some_and(|of_thread| of_thread.number == context.number)
    };
    let thread = if PLACE.with(is_there) {
        None
    } else {
        let transaction = transactions::take();
        transactions::put(context.state().transaction.take());
        let settings = std::mem::take(&mut *context.settings()).exchange();
        let before = PLACE.replace(Some(Arc::clone(&context)));
        Some((before, transaction, settings))
    };
    // SAFETY: the visit keeps the context, and the caller's promise.
    let errors = unsafe { fault::exchange(&raw const context.errors.0) };
    VISITS.with_borrow_mut(|visits| visits.push(Visit { context, errors, thread }));
}

/// The function of the last [`visit`] has ended: what counted for the thread before counts again.
pub(crate) fn end_visit() {
    let Some(Visit { context, errors, thread }) = VISITS.with_borrow_mut(Vec::pop) else { return };
    // SAFETY: they are the thread's own, or those of a context of a visit before.
    unsafe { fault::exchange(errors) };
    let Some((before, transaction, settings)) = thread else { return };
    PLACE.replace(before);
    context.state().transaction = transactions::take();
    transactions::put(transaction);
    *context.settings() = settings.exchange();
}

/// All visits have ended: a service function left by a jump.
pub(crate) fn end_visits() {
    while VISITS.with_borrow(|visits| !visits.is_empty()) {
        end_visit();
    }
}

/// Where `tperrno`, `tpurcode` and `Berror` of a context stand, as long as it is not freed; none without such a context.
pub(crate) fn errors_of(context: Handle) -> Option<*const Errors> {
    // The list keeps it.
    with_number(number_of(context)).map(|context| &raw const context.errors.0)
}

/// Whether one more context may be kept.
fn room(kept: &Kept) -> Result<(), Fault> {
    if kept.len() >= KEPT_MAX {
        let detail = format!("{KEPT_MAX} contexts are kept: end some by tpterm");
        return Err(Fault::new(Code::Limit.number(), detail));
    }
    Ok(())
}

/// Lets `work` make a call through the thread's client, within the times that hold for it.
pub(crate) fn with_client<T>(
    work: impl FnOnce(&mut Client) -> Result<T, Fault>,
) -> Result<T, Fault> {
    with_state(|state| {
        let pools_time = state.pools_time;
        let client = client_of(state);
        transactions::apply_timeouts(client, pools_time);
        work(client)
    })
}

/// Lets `work` use the thread's client, which is opened when there is none.
pub(crate) fn with_context<T>(
    work: impl FnOnce(&mut Client) -> Result<T, Fault>,
) -> Result<T, Fault> {
    with_state(|state| work(client_of(state)))
}

/// Lets `work` use the conversations of the thread's context, which is opened when there is none.
pub(crate) fn with_conversations<T>(
    work: impl FnOnce(&mut Conversations) -> Result<T, Fault>,
) -> Result<T, Fault> {
    with_state(|state| work(&mut state.conversations))
}

/// Lets `work` use what the thread's context listens to, with its address and its names.
pub(crate) fn with_listener<T>(
    work: impl FnOnce(&mut Option<Listener>, ClientAddress, (&str, &str)) -> Result<T, Fault>,
) -> Result<T, Fault> {
    with_state(|state| {
        let address = client_of(state).address();
        work(&mut state.listener, address, (&state.names.0, &state.names.1))
    })
}

/// Lets `work` use what the thread's context listens to, if it does; no context is opened.
pub(crate) fn with_listener_there<T>(work: impl FnOnce(&mut Listener) -> T) -> Option<T> {
    let look = |place: &RefCell<Option<Arc<Context>>>| {
        let place = place.try_borrow().ok()?;
        let context = place.as_ref().filter(|context| !context.is_over())?;
        context.state().listener.as_mut().map(work)
    };
    PLACE.try_with(look).ok()?
}

fn client_of(state: &mut State) -> &mut Client {
    state.client.as_mut().expect("opened with the context, taken when it is over")
}

fn with_state<T>(work: impl FnOnce(&mut State) -> Result<T, Fault>) -> Result<T, Fault> {
    with_place(|place| {
        let context = match place {
            Some(context) => context,
            None => {
                // Nothing is left behind by a client that cannot be opened.
                let context = Context::new();
                open(&mut context.state())?;
                place.insert(context)
            }
        };
        let state = &mut *context.state();
        if context.is_over() {
            let detail = "there is no such context, or another thread ended it by tpterm: set another by tpsetctxt";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        if state.client.is_none() {
            open(state)?;
        }
        work(state)
    })
}

/// How long a call may take by the thread's pool, where it has joined one.
pub(crate) fn pools_time() -> Option<Duration> {
    let time = |context: &Arc<Context>| {
        let state = context.state();
        (!context.is_over() && state.client.is_some()).then_some(state.pools_time)
    };
    PLACE.try_with(|place| place.try_borrow().ok()?.as_ref().and_then(time)).ok()?
}

fn with_place<T>(
    work: impl FnOnce(&mut Option<Arc<Context>>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let protocol = |detail: &str| Fault::new(Code::Protocol.number(), detail);
    let done = PLACE.try_with(|place| match place.try_borrow_mut() {
        Ok(mut place) => work(&mut place),
        Err(_) => Err(protocol("a signal handler interrupted a call and must not make another")),
    });
    done.unwrap_or_else(|_| Err(protocol("the thread is ending: its context is gone")))
}

fn open(state: &mut State) -> Result<(), Fault> {
    let client = Client::open(&startup::environment()?)?;
    state.pools_time = client.timeout();
    state.client = Some(client);
    Ok(())
}

/// The thread leaves its context, which ends unless it is kept.
fn leave(place: &mut Option<Arc<Context>>) {
    let transaction = transactions::take();
    if let Some(context) = place.take()
        && context.is_kept.load(Ordering::Relaxed)
        && !context.is_over()
    {
        context.state().transaction = transaction;
    }
}

/// The thread enters a context.
fn enter(place: &mut Option<Arc<Context>>, context: Arc<Context>) {
    transactions::put(context.state().transaction.take());
    *place = Some(context);
}

fn watch_forks() {
    static FORKS_WATCHED: Once = Once::new();
    FORKS_WATCHED.call_once(|| {
        let before = hold_kept;
        let parent = release_kept;
        let child = leave_in_child;
        // SAFETY: the handlers stay as long as the library, and only use values of their thread.
        unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

/// No other thread changes the list while the process is copied.
unsafe extern "C" fn hold_kept() {
    let _ = FORKING.try_with(|place| place.try_borrow_mut().map(|mut p| *p = Some(kept())));
}

unsafe extern "C" fn release_kept() {
    let _ = FORKING.try_with(|place| place.try_borrow_mut().map(|mut place| *place = None));
}

/// After fork(2) the clients are the parent's, whose queues and connections outlive this: the child
/// only closes its own descriptors of them, as they would keep the contexts alive otherwise. One
/// that a thread was calling in stays: that thread is not here to let go of it.
unsafe extern "C" fn leave_in_child() {
    let forget = |context: &Arc<Context>| {
        context.is_over.store(true, Ordering::Relaxed);
        if let Ok(mut state) = context.state.try_lock() {
            state.client = None;
            state.conversations.clear();
            state.listener = None;
        }
    };
    let _ = FORKING.try_with(|place| {
        if let Ok(mut place) = place.try_borrow_mut()
            && let Some(mut kept) = place.take()
        {
            kept.values().for_each(forget);
            kept.clear();
        }
    });
    let _ = PLACE.try_with(|place| {
        if let Ok(mut place) = place.try_borrow_mut()
            && let Some(context) = place.take()
        {
            forget(&context);
        }
    });
}

/// `TPINIT`, as far as it counts.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Info {
    names: [u8; 4 * NAME_BYTES],
    flags: c_long,
}

impl Info {
    /// `usrname` (0) or `cltname` (1).
    fn name(&self, at: usize) -> String {
        let field = &self.names[at * NAME_BYTES..(at + 1) * NAME_BYTES];
        let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Joins the pool. It may be left out; with TPMULTICONTEXTS each makes another context.
///
/// # Safety
/// A sound `info` is that of a `TPINIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpinit(info: *const Info) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let info = unsafe { caller::read(info) };
        let names = info.map(|info| (info.name(0), info.name(1))).unwrap_or_default();
        if info.is_none_or(|info| info.flags & TPMULTICONTEXTS == 0) {
            return with_state(|state| {
                state.names = names;
                Ok(0)
            });
        }
        if is_servers() {
            let detail = "a server's own thread has the context of the server";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        with_place(|place| {
            // Before the manager is asked, which has no room for it either.
            room(&kept())?;
            let context = Context::new();
            open(&mut context.state())?;
            context.state().names = names;
            context.keep()?;
            leave(place);
            enter(place, context);
            Ok(0)
        })
    })
}

/// Joins the pool for a thread of a server that is not its own, as [`tpinit`] does.
///
/// # Safety
/// As for [`tpinit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpappthrinit(info: *const Info) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { tpinit(info) }
}

/// Leaves the pool for such a thread, as [`tpterm`] does.
#[unsafe(no_mangle)]
pub extern "C" fn tpappthrterm() -> c_int {
    tpterm()
}

/// Leaves the pool; replies that are out are lost. 0 as well when the thread has not joined.
#[unsafe(no_mangle)]
pub extern "C" fn tpterm() -> c_int {
    fault::atmi(-1, || {
        if is_servers() {
            let detail = "a server's own thread leaves the pool when the server ends";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        // A transaction that is under way aborts, and the calls that belong to it end with the client.
        drop(transactions::take());
        with_place(|place| {
            if let Some(context) = place.as_ref()
                && context.is_lasting.load(Ordering::Relaxed)
            {
                let ended = std::mem::take(&mut *context.state());
                drop(ended);
                return Ok(0);
            }
            if let Some(context) = place.take() {
                context.end();
            }
            Ok(0)
        })
    })
}

/// The number of the thread's context, which lasts until its tpterm from now on; TPMULTICONTEXTS, or 0 (TPNULLCONTEXT) where
/// there is none.
///
/// # Safety
/// A sound `context` is that of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpgetctxt(context: *mut Handle, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        if !caller::is_sound(context) {
            return Err(Fault::invalid("no memory for the context"));
        }
        no_flags(flags)?;
        let number = with_place(|place| match place {
            // A server has a context before its first call.
            None if IS_SERVERS.get() => {
                let of_server = Context::new();
                of_server.keep()?;
                Ok(place.insert(of_server).number)
            }
            None => Ok(TPNULLCONTEXT),
            Some(of_thread) if of_thread.is_over() => Ok(TPINVALIDCONTEXT),
            Some(of_thread) => of_thread.keep().map(|()| of_thread.number),
        })?;
        // SAFETY: the caller's promise.
        unsafe { caller::write(context, handle(number)) };
        // A small constant.
        Ok(if number == TPNULLCONTEXT { 0 } else { TPMULTICONTEXTS as c_int })
    })
}

/// Lets the thread be in another context, or in none.
#[unsafe(no_mangle)]
pub extern "C" fn tpsetctxt(context: Handle, flags: c_long) -> c_int {
    fault::atmi(-1, || {
        no_flags(flags)?;
        let number = number_of(context);
        with_place(|place| {
            if place.as_ref().is_some_and(|of_thread| of_thread.number == number) {
                return Ok(0);
            }
            if is_servers() {
                let detail = "a server's own thread stays in the context of the server";
                return Err(Fault::new(Code::Protocol.number(), detail));
            }
            if number == TPNULLCONTEXT {
                leave(place);
                return Ok(0);
            }
            let known = with_number(number).ok_or_else(|| {
                let detail = format!("there is no context {number}, or it was ended by tpterm");
                Fault::new(Code::NoEntry.number(), detail)
            })?;
            leave(place);
            enter(place, known);
            Ok(0)
        })
    })
}

/// Flags that are for later: 0 today.
pub(crate) fn no_flags(flags: c_long) -> Result<(), Fault> {
    if flags != 0 {
        return Err(Fault::invalid(format!("flags {flags:#x} are not supported; expected 0")));
    }
    Ok(())
}
