//! `tpcall`, `tpacall`, `tpgetrply`, `tpcancel`.
//!
//! What a call means stands in `pollux_xatmi::client`; here pointers become buffers and back. A
//! buffer of the caller's is the same after an error as before, except that the memory for a reply
//! may hold a part of it.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::client::{Arrived, Arriving, CallFlags, Descriptor, Which};
use pollux_xatmi::error::Code;

use crate::caller;
use crate::context::{with_client, with_context};
use crate::fault::{self, Fault};
use crate::lent::{Copied, Landing, Lent, outgoing};
use crate::transactions;
use crate::typed::no_buffer;

/// The name of a service that is called; what cannot be one is offered by nobody.
///
/// # Safety
/// A sound `name` is that of a text that stays as long as the result is used.
pub(crate) unsafe fn service_name<'a>(name: *const c_char) -> Result<&'a str, Fault> {
    // SAFETY: the caller's promise.
    let name = unsafe { caller::text(name) };
    let name = name.ok_or_else(|| Fault::invalid("the pointer to the service's name is none"))?;
    name.to_str().map_err(|_| {
        let detail = format!("nobody offers {}: its name is no text", name.to_string_lossy());
        Fault::new(Code::NoEntry.number(), detail)
    })
}

/// Where the caller wants a reply.
pub(crate) struct Wanted {
    data: *mut *mut c_char,
    len: *mut c_long,
    /// What `*data` is now.
    pointer: *mut c_char,
}

impl Wanted {
    /// # Safety
    /// Sound `data` and `len` are those of a pointer and a long that nobody else uses meanwhile.
    pub(crate) unsafe fn at(data: *mut *mut c_char, len: *mut c_long) -> Result<Self, Fault> {
        if !caller::is_sound(len) {
            return Err(Fault::invalid("no memory for the length of the reply"));
        }
        // SAFETY: the caller's promise.
        match unsafe { caller::read(data) } {
            Some(pointer) => Ok(Self { data, len, pointer }),
            None => Err(Fault::invalid("no memory for the pointer to the reply")),
        }
    }

    /// What the caller has there now.
    pub(crate) fn pointer(&self) -> *mut c_char {
        self.pointer
    }

    /// Gives the caller what landed, in place of what was there and of `replaced`.
    ///
    /// # Safety
    /// As for [`Wanted::at`].
    pub(crate) unsafe fn give_payload(
        self,
        arriving: &Arriving,
        mut landing: Landing,
        replaced: Option<Lent>,
    ) -> Result<(), Fault> {
        if arriving.buffer_type.is_some() {
            let told = landing.landed(arriving.len_bytes)?;
            // SAFETY: the caller's promise.
            unsafe { caller::write(self.data, landing.give_out(replaced)) };
            // SAFETY: the caller's promise.
            unsafe { caller::write(self.len, told) };
        } else {
            // Whatever the caller had stays where it is.
            // SAFETY: the caller's promise.
            unsafe { caller::write(self.len, 0) };
        }
        Ok(())
    }

    /// Gives the caller a reply that landed; TPESVCFAIL comes with one too.
    ///
    /// # Safety
    /// As for [`Wanted::at`].
    unsafe fn give(
        self,
        arrived: &Arrived,
        landing: Landing,
        replaced: Option<Lent>,
    ) -> Result<(), Fault> {
        fault::set_urcode(arrived.urcode);
        // SAFETY: the caller's promise.
        unsafe { self.give_payload(&arrived.payload, landing, replaced) }?;
        if arrived.is_failure {
            let detail = format!("the service returned TPFAIL with {}", arrived.urcode);
            return Err(Fault::new(Code::ServiceFailed.number(), detail));
        }
        Ok(())
    }
}

/// Calls a service and waits for its reply.
///
/// # Safety
/// A sound `svc` is that of a text, `odata` and `olen` those of a pointer and a long; nobody else
/// uses them or the buffers meanwhile. Pointers to buffers may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpcall(
    svc: *const c_char,
    idata: *mut c_char,
    ilen: c_long,
    odata: *mut *mut c_char,
    olen: *mut c_long,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let service = unsafe { service_name(svc) }?;
        // SAFETY: the caller's promise.
        let wanted = unsafe { Wanted::at(odata, olen) }?;
        transactions::call(CallFlags::from_bits(flags), |flags| {
            if wanted.pointer == idata && !idata.is_null() {
                // SAFETY: the caller's promise.
                return unsafe { call_in_place(service, ilen, wanted, flags) };
            }
            let request = Copied::of(idata, ilen)?;
            let mut landing = Landing::at(Lent::from(wanted.pointer)?, flags);
            let place = &mut landing;
            let arrived = with_client(|client| {
                let outgoing = request.outgoing();
                Ok(client.call_into(service, outgoing, flags, move |coming| place.room(coming))?)
            })?;
            // SAFETY: the caller's promise.
            unsafe { wanted.give(&arrived, landing, None) }.map(|()| 0)
        })
    })
}

/// A call whose reply takes the place of its request, which stays when there is none.
///
/// # Safety
/// As for [`Wanted::at`].
unsafe fn call_in_place(
    service: &str,
    len: c_long,
    wanted: Wanted,
    flags: CallFlags,
) -> Result<c_int, Fault> {
    let request = Lent::from(wanted.pointer)?.ok_or_else(no_buffer)?;
    let mut landing = Landing::beside(&request, flags);
    let place = &mut landing;
    let arrived = with_client(|client| {
        let outgoing = outgoing(request.buffer(), len)?;
        Ok(client.call_into(service, outgoing, flags, move |coming| place.room(coming))?)
    })?;
    // SAFETY: the caller's promise.
    unsafe { wanted.give(&arrived, landing, Some(request)) }.map(|()| 0)
}

/// Calls a service; the reply is asked for later by the descriptor. 0 with TPNOREPLY.
///
/// # Safety
/// A sound `svc` is that of a text; nobody else uses the buffer meanwhile, whose pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpacall(
    svc: *const c_char,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let service = unsafe { service_name(svc) }?;
        let flags = CallFlags::from_bits(flags);
        let request = Copied::of(data, len)?;
        if flags.contains(CallFlags::NO_REPLY) {
            transactions::check_no_reply(flags)?;
            return with_client(|client| {
                client.send_only(service, request.outgoing(), flags)?;
                Ok(0)
            });
        }
        transactions::call(flags, |flags| {
            let descriptor = with_client(|client| {
                Ok(client.send_request(service, request.outgoing(), flags)?)
            })?;
            transactions::sent(flags, descriptor);
            Ok(descriptor.number())
        })
    })
}

/// Waits for the reply to `*cd`, or with TPGETANY for any, whose descriptor `*cd` becomes.
///
/// # Safety
/// Sound `cd`, `data` and `len` are those of an int, a pointer and a long; nobody else uses them or
/// the buffer meanwhile, whose pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpgetrply(
    cd: *mut c_int,
    data: *mut *mut c_char,
    len: *mut c_long,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let asked = unsafe { caller::read(cd) };
        let asked = asked.ok_or_else(|| Fault::invalid("no memory for the descriptor"))?;
        // SAFETY: the caller's promise.
        let wanted = unsafe { Wanted::at(data, len) }?;
        let flags = CallFlags::from_bits(flags);
        let is_any = flags.contains(CallFlags::ANY);
        let which = if is_any { Which::Any } else { Which::One(Descriptor::from_number(asked)) };
        let mut landing = Landing::at(Lent::from(wanted.pointer)?, flags);
        let place = &mut landing;
        let waited = with_client(|client| {
            Ok(client.wait_reply(which, flags, move |coming| place.room(coming)))
        })?;
        let descriptor = match &waited {
            Ok(arrived) => Some(arrived.descriptor),
            Err(failed) => failed.descriptor,
        };
        if is_any {
            // SAFETY: the caller's promise.
            unsafe { caller::write(cd, descriptor.map_or(0, Descriptor::number)) };
        }
        let given = waited.map_err(|failed| Fault::from(failed.error)).and_then(|arrived| {
            // SAFETY: the caller's promise.
            unsafe { wanted.give(&arrived, landing, None) }
        });
        transactions::answered(descriptor, &given);
        given.map(|()| 0)
    })
}

/// Gives up a call: its reply is dropped when it comes.
#[unsafe(no_mangle)]
pub extern "C" fn tpcancel(cd: c_int) -> c_int {
    fault::atmi(-1, || {
        transactions::check_cancel(cd)?;
        with_context(|client| Ok(client.cancel(Descriptor::from_number(cd))?)).map(|()| 0)
    })
}
