//! `tpcall`, `tpacall`, `tpgetrply`, `tpcancel`.
//!
//! What a call means stands in `pollux_xatmi::client`; here pointers become buffers and back. A
//! buffer of the caller's is the same after an error as before, except that the memory for a reply
//! may hold a part of it.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::client::{CallFlags, Descriptor, Which};

use crate::context::{with_client, with_context};
use crate::fault::{self, Fault};
use crate::memory::{Borrowed, no_buffer};
use crate::messages::{Copied, Landing, Wanted, outgoing, service_name};
use crate::{caller, transactions};

/// Calls a service and waits for its reply.
///
/// # Safety
/// A sound `svc` is that of a text, `odata` and `olen` those of a pointer and a long; no other thread
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
            if wanted.pointer() == idata && !idata.is_null() {
                // SAFETY: the caller's promise.
                return unsafe { call_in_place(service, ilen, wanted, flags) };
            }
            let request = Copied::of(idata, ilen)?;
            let mut landing = Landing::at(Borrowed::from(wanted.pointer())?, flags);
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
    let request = Borrowed::from(wanted.pointer())?.ok_or_else(no_buffer)?;
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
/// A sound `svc` is that of a text; no other thread uses the buffer meanwhile, whose pointer may be any.
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
/// Sound `cd`, `data` and `len` are those of an int, a pointer and a long; no other thread uses them or
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
        let mut landing = Landing::at(Borrowed::from(wanted.pointer())?, flags);
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
