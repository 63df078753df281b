//! A thread's place in the pool: the client that its first call opens and its end closes.
//!
//! `calls.rs` works through it. It never opens one without need: a program that only builds buffers
//! touches no queue.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Once;

use pollux_xatmi::client::Client;
use pollux_xatmi::environment::{BadVariable, Environment};
use pollux_xatmi::error::{Code, Error};

use crate::fault::{self, Fault};
use crate::{server, times, transactions};

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let detail = format!("{}{}", error.detail(), cause.unwrap_or_default());
        Self::new(error.code().number(), detail)
    }
}

impl From<BadVariable> for Fault {
    fn from(bad: BadVariable) -> Self {
        Self::invalid(bad.to_string())
    }
}

thread_local! {
    /// Dropped when the thread ends, which removes its reply queue.
    static CLIENT: RefCell<Option<Client>> = const { RefCell::new(None) };
}

/// Lets `work` make a call through the thread's client, within the times that hold for it.
pub(crate) fn with_client<T>(
    work: impl FnOnce(&mut Client) -> Result<T, Fault>,
) -> Result<T, Fault> {
    with_context(|client| {
        times::apply(client);
        work(client)
    })
}

/// Lets `work` use the thread's client, which is opened when there is none.
pub(crate) fn with_context<T>(
    work: impl FnOnce(&mut Client) -> Result<T, Fault>,
) -> Result<T, Fault> {
    with_place(|place| {
        if place.is_none() {
            let client = open()?;
            times::opened(&client);
            *place = Some(client);
        }
        work(place.as_mut().expect("some, by the lines above"))
    })
}

/// Lets `work` use the thread's client where there is one.
pub(crate) fn with_open_client<T>(work: impl FnOnce(&Client) -> T) -> Option<T> {
    CLIENT.try_with(|place| place.try_borrow().ok()?.as_ref().map(work)).ok()?
}

fn with_place<T>(work: impl FnOnce(&mut Option<Client>) -> Result<T, Fault>) -> Result<T, Fault> {
    let protocol = |detail: &str| Fault::new(Code::Protocol.number(), detail);
    let done = CLIENT.try_with(|place| match place.try_borrow_mut() {
        Ok(mut place) => work(&mut place),
        Err(_) => Err(protocol("a signal handler interrupted a call and must not make another")),
    });
    done.unwrap_or_else(|_| Err(protocol("the thread is ending: its context is gone")))
}

fn open() -> Result<Client, Fault> {
    static FORKS_WATCHED: Once = Once::new();
    FORKS_WATCHED.call_once(|| {
        // SAFETY: the handler stays as long as the library; it only drops a value of its thread.
        unsafe { libc::pthread_atfork(None, None, Some(leave_in_child)) };
    });
    Ok(Client::open(&Environment::of_process()?)?)
}

/// After fork(2) the client is the parent's, whose queue and connection outlive this: the child
/// only closes its own descriptors of them, as they would keep the context alive otherwise.
unsafe extern "C" fn leave_in_child() {
    let _ = CLIENT.try_with(|place| place.try_borrow_mut().map(|mut place| place.take()));
}

/// Joins the pool. It may be left out, and `info` is not looked at.
#[unsafe(no_mangle)]
pub extern "C" fn tpinit(_info: *mut libc::c_void) -> c_int {
    fault::atmi(-1, || with_context(|_| Ok(0)))
}

/// Leaves the pool; replies that are out are lost. 0 as well when the thread has not joined.
#[unsafe(no_mangle)]
pub extern "C" fn tpterm() -> c_int {
    fault::atmi(-1, || {
        if server::is_on_this_thread() {
            let detail = "a server's own thread leaves the pool when the server ends";
            return Err(Fault::new(Code::Protocol.number(), detail));
        }
        // A transaction that is under way aborts; there may be none.
        let _ = transactions::abort();
        with_place(|place| {
            *place = None;
            Ok(0)
        })
    })
}
