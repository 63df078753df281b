//! The request and the result of a service function, and the services that a worker offers.
//!
//! Programs in Rust write these functions; the C interface registers one that jumps into C.
//! Plain data: nothing here sends or receives.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::error::{Code, Error};
use crate::link::Advert;
use crate::priority::{Asked, Priority};
use crate::queue::ServiceName;
use crate::slots::SERVICES_MAX;
use crate::wire::ClientAddress;

/// TPFAIL: the service could not do what was asked; its buffer is delivered all the same.
pub const RVAL_FAIL: i32 = 1;
/// TPSUCCESS.
pub const RVAL_SUCCESS: i32 = 2;
/// TPEXIT, to be added to one of the others: the worker ends after the reply and is started anew.
pub const RVAL_EXIT: i32 = 0x0800_0000;

/// A service function. It runs on the worker's own thread, one call at a time.
pub type Handler = Box<dyn FnMut(Incoming) -> Done>;

#[derive(Debug)]
pub struct Incoming {
    /// The name that was called.
    pub service: ServiceName,
    /// The function behind it, as it was advertised.
    pub function: Rc<str>,
    /// The data, in memory that does not move while this is held; none when none was sent.
    pub buffer: Option<Buffer>,
    /// Bytes that were sent; what follows them in the buffer is zero.
    pub len_bytes: usize,
    /// The fields beside the data, if there are some.
    pub call_info: Option<Box<[u8]>>,
    /// Whether the caller does not wait for a reply (TPNOREPLY).
    pub is_without_reply: bool,
    /// Whether it belongs to a transaction of the caller.
    pub is_in_transaction: bool,
    pub priority: Priority,
    /// The caller's descriptor.
    pub cd: i32,
    pub client: ClientAddress,
    /// When the caller stops waiting, in nanoseconds of the monotonic clock; 0 for never.
    pub deadline_ns: u64,
}

impl Incoming {
    /// Whether the caller waits for the service to come to a conversation: the descriptor is negative then.
    #[must_use]
    pub fn begins_conversation(&self) -> bool {
        self.cd < 0
    }
}

/// How a service function ended.
#[derive(Debug)]
pub enum Done {
    /// `tpreturn`: the caller gets this.
    Return(Return),
    /// `tpforward`: another service answers the caller.
    Forward {
        service: ServiceName,
        /// The data for it.
        buffer: Option<Buffer>,
        /// Bytes of it, for buffers without a length of their own.
        len_bytes: usize,
        /// Fields beside it.
        call_info: Option<Box<[u8]>>,
        /// What is asked for it; without that it keeps the priority of the request.
        priority: Option<Asked>,
    },
    /// `tpcontinue`: the worker serves on, and another thread of the program answers the caller, by
    /// [`Registry::answer`](super::Registry::answer) with this number, which no other call has.
    Continue(u64),
    /// The function came back without any of these: the caller gets TPESVCERR.
    NoReturn,
}

/// The arguments of `tpreturn`.
#[derive(Debug)]
pub struct Return {
    /// [`RVAL_SUCCESS`] or [`RVAL_FAIL`], and [`RVAL_EXIT`]; all but success is failure.
    pub rval: i32,
    /// For the caller's `tpurcode`.
    pub urcode: i64,
    /// The reply; its memory is used again for the next request.
    pub buffer: Option<Buffer>,
    /// Bytes of it, for buffers without a length of their own.
    pub len_bytes: usize,
    /// Fields beside it.
    pub call_info: Option<Box<[u8]>>,
    /// An error that the caller is to see instead, without data (TPSOFTTIMEOUT, TPSOFTERR).
    pub soft_error: Option<Code>,
    /// The transaction that the request belongs to can only abort.
    pub is_abort_only: bool,
}

impl Return {
    /// Whether it is a success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.rval & !RVAL_EXIT == RVAL_SUCCESS && self.soft_error.is_none()
    }

    /// Whether the worker is to end after this reply.
    #[must_use]
    pub fn is_exit(&self) -> bool {
        let what = self.rval & !RVAL_EXIT;
        self.rval != what && matches!(what, 0 | RVAL_FAIL | RVAL_SUCCESS)
    }
}

impl Done {
    /// The service did what was asked; `buffer` is sent as far as it is used, bytes without a
    /// length of their own whole.
    #[must_use]
    pub fn success(buffer: impl Into<Option<Buffer>>) -> Self {
        Self::with(RVAL_SUCCESS, buffer.into())
    }

    /// It did not; the caller gets TPESVCFAIL and the buffer.
    #[must_use]
    pub fn failure(buffer: impl Into<Option<Buffer>>) -> Self {
        Self::with(RVAL_FAIL, buffer.into())
    }

    fn with(rval: i32, buffer: Option<Buffer>) -> Self {
        let len_bytes = buffer.as_ref().map_or(0, Buffer::size);
        let urcode = 0;
        let soft_error = None;
        let is_abort_only = false;
        let call_info = None;
        Self::Return(Return {
            rval,
            urcode,
            buffer,
            len_bytes,
            call_info,
            soft_error,
            is_abort_only,
        })
    }
}

/// How a worker's work ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The manager asked for it.
    Stopped,
    /// A service returned with [`RVAL_EXIT`].
    Exited,
    /// The manager was gone and none came back in time.
    Abandoned,
    /// A service function panicked: its caller got TPESVCERR, and the process should end as a
    /// failure, as the state that the panic left is unknown.
    Panicked {
        service: ServiceName,
        /// The message of the panic.
        message: String,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped by the manager"),
            Self::Exited => f.write_str("a service returned with TPEXIT"),
            Self::Abandoned => f.write_str("the pool's manager is gone and none came back"),
            Self::Panicked { service, message } => {
                write!(f, "the function of service {service} panicked: {message}")
            }
        }
    }
}

/// A function that can be called while the table that holds it changes.
pub(super) type SharedHandler = Rc<RefCell<Handler>>;

/// One service on offer.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) name: ServiceName,
    pub(super) function: Rc<str>,
    pub(super) handler: SharedHandler,
}

/// All services of a worker, at most [`SERVICES_MAX`]: names and functions. An entry's number is the one in the
/// worker's slot and in the poller's tokens, so it stays while the service is offered.
#[derive(Default)]
pub(super) struct Offers {
    entries: Vec<Option<Offer>>,
}

/// Whether a name is new to the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can be offered.
    New(ServiceName),
    /// It is, with the same function: nothing to do.
    Same,
}

impl Offers {
    /// Whether `name` can be offered with `function`.
    ///
    /// # Errors
    /// TPEINVAL for a name that can't be offered, TPEMATCH where another function has it,
    /// TPELIMIT at the bound.
    pub(super) fn standing(&self, name: &str, function: &str) -> Result<Standing, Error> {
        let name = service_name(name)?;
        if let Some(entry) = self.find(&name) {
            let offered = self.get(entry).map_or("", |offer| &offer.function);
            if offered == function {
                return Ok(Standing::Same);
            }
            let detail = format!("service {name} is offered already, by function {offered}");
            return Err(Error::new(Code::Match, detail));
        }
        if self.len() == SERVICES_MAX {
            let detail = format!("{name} would be one more than the {SERVICES_MAX} of a server");
            return Err(Error::new(Code::Limit, detail));
        }
        Ok(Standing::New(name))
    }

    /// Adds an offer that [`Offers::standing`] found to be new; returns its entry.
    pub(super) fn insert(&mut self, offer: Offer) -> usize {
        let free = self.entries.iter().position(Option::is_none);
        let entry = free.unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[entry] = Some(offer);
        entry
    }

    pub(super) fn remove(&mut self, entry: usize) {
        self.entries[entry] = None;
    }

    pub(super) fn find(&self, name: &ServiceName) -> Option<usize> {
        self.iter().find(|(_, offer)| offer.name == *name).map(|(entry, _)| entry)
    }

    pub(super) fn get(&self, entry: usize) -> Option<&Offer> {
        self.entries.get(entry)?.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Offer)> {
        self.entries.iter().enumerate().filter_map(|(entry, offer)| Some((entry, offer.as_ref()?)))
    }

    pub(super) fn adverts(&self) -> Vec<Advert> {
        self.iter().map(|(_, offer)| offer.advert()).collect()
    }
}

impl Offer {
    pub(super) fn advert(&self) -> Advert {
        Advert { name: self.name.as_str().to_owned(), function: self.function.to_string() }
    }
}

/// The name of a service that a program may offer.
///
/// # Errors
/// TPEINVAL.
pub(super) fn service_name(name: &str) -> Result<ServiceName, Error> {
    match ServiceName::new(name) {
        Some(name) if !name.is_reserved() => Ok(name),
        Some(name) => {
            let detail = format!("service {name}: names with @ or a dot in front are the system's");
            Err(Error::new(Code::Invalid, detail))
        }
        None => {
            let name = name.escape_debug();
            let most = ServiceName::LEN_BYTES_MAX;
            let detail = format!(
                "`{name}` is not a name of a service: expected 1 to {most} signs without comma, slash \
                 and blank"
            );
            Err(Error::new(Code::Invalid, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Done;

    fn returned(rval: i32) -> (bool, bool) {
        let Done::Return(returned) = Done::with(rval, None) else { unreachable!("made so") };
        (returned.is_success(), returned.is_exit())
    }

    #[test]
    fn other_values_are_failures_and_end_nothing() {
        assert_eq!(returned(RVAL_SUCCESS), (true, false));
        assert_eq!(returned(RVAL_FAIL), (false, false));
        assert_eq!(returned(RVAL_SUCCESS | RVAL_EXIT), (true, true));
        assert_eq!(returned(RVAL_FAIL | RVAL_EXIT), (false, true));
        assert_eq!(returned(RVAL_EXIT), (false, true));
        for odd in [0, 3, 6, -1, i32::MAX, RVAL_EXIT | 3, -1 - RVAL_EXIT] {
            assert_eq!(returned(odd), (false, false), "{odd}");
        }
    }

    fn offer(name: &str) -> Offer {
        let handler: Handler = Box::new(|_| Done::NoReturn);
        Offer {
            name: ServiceName::new(name).expect("a name"),
            function: "f".into(),
            handler: Rc::new(RefCell::new(handler)),
        }
    }

    #[test]
    fn one_function_for_a_name_and_a_bound_for_all() {
        let mut offers = Offers::default();
        for number in 0..SERVICES_MAX {
            assert_eq!(offers.insert(offer(&format!("S{number}"))), number);
        }
        assert_eq!(offers.standing("S7", "f").expect("the same"), Standing::Same);
        assert_eq!(offers.standing("S7", "g").expect_err("another").code(), Code::Match);
        assert_eq!(offers.standing("MORE", "f").expect_err("full").code(), Code::Limit);
        offers.remove(7);
        let name = ServiceName::new("MORE").expect("a name");
        assert_eq!(offers.standing("MORE", "f").expect("room"), Standing::New(name));
        assert_eq!(offers.insert(offer("MORE")), 7);
        assert_eq!((offers.find(&name), offers.len()), (Some(7), SERVICES_MAX));
    }

    #[test]
    fn names_of_the_system_and_impossible_ones_are_refused() {
        let offers = Offers::default();
        for bad in ["", ".hidden", "A@B", "A,B", "A/B", "A B", &"N".repeat(31)] {
            let error = offers.standing(bad, "f").expect_err(bad);
            assert_eq!(error.code(), Code::Invalid, "{bad:?}");
        }
        assert!(offers.standing(&"N".repeat(30), "f").is_ok());
    }
}
