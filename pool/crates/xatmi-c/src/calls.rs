//! `tpcall`, `tpacall`, `tpgetrply`, `tpcancel`; `tpconnect`, `tpsend`, `tprecv`, `tpdiscon`: calls, and conversations of a
//! client and of a service.
//!
//! What they mean stands in `pollux_xatmi::client` and `pollux_xatmi::conversation`; here pointers become buffers and
//! back. A buffer of the caller's is the same after an error as before, except that the memory for a reply
//! may hold a part of it.
//!
//! Conversations that a thread began belong to its context; the one that a service function serves is its thread's, with
//! a descriptor of its own. They do not take part in transactions.
//!
//! | event | for | the descriptor |
//! |---|---|---|
//! | TPEV_SENDONLY | the side that receives: it has control now | stays |
//! | TPEV_SVCSUCC, TPEV_SVCFAIL | the initiator: tpreturn, with its data | is over |
//! | TPEV_SVCERR | the initiator: the service ended otherwise, or its process | is over |
//! | TPEV_DISCONIMM | the service: tpdiscon, or the end of the initiator | is over |

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::call_info;
use pollux_xatmi::client::{Arrived, Arriving, CallFlags, Client, Descriptor, Outgoing, Which};
use pollux_xatmi::conversation::{Conversation, Kind, Message, Sent};
use pollux_xatmi::error::Code;
use pollux_xatmi::worker::{Done, Incoming, Return};

use crate::context::{self, Conversations, with_client, with_context};
use crate::fault::{self, Fault};
use crate::memory::{Borrowed, no_buffer};
use crate::messages::{Copied, Landing, Wanted, outgoing, service_name};
use crate::{caller, events, priority, startup, transactions};

const TPSENDONLY: c_long = 0x800;
const TPRECVONLY: c_long = 0x1000;
const TPCONV: c_long = 0x400;

const TPEV_DISCONIMM: c_long = 0x1;
const TPEV_SVCERR: c_long = 0x2;
const TPEV_SVCFAIL: c_long = 0x4;
const TPEV_SVCSUCC: c_long = 0x8;
const TPEV_SENDONLY: c_long = 0x20;

/// `tperrno` when an event came.
const TPEEVENT: c_int = 22;

/// The descriptor of the conversation that a service function serves; those of clients are higher.
const OF_SERVICE: c_int = 1;

/// Most conversations of a context.
const CONVERSATIONS_MAX: usize = 1024;

thread_local! {
    /// The conversation that the service function of this thread serves.
    static SERVED: RefCell<Option<Conversation>> = const { RefCell::new(None) };
}

/// Does the work of a call, around which unsolicited messages that came are handed over.
fn with_messages<T>(failed: T, work: impl FnOnce() -> Result<T, Fault>) -> T {
    events::hand_over();
    let done = fault::atmi(failed, work);
    events::hand_over();
    done
}

/// Lets `work` make a request with the client of the thread.
#[inline]
fn requesting<T>(work: impl FnOnce(&mut Client) -> Result<T, Fault>) -> Result<T, Fault> {
    with_client(|client| {
        client.set_next_priority(priority::take_next());
        let done = work(client);
        priority::on_request(client.last_priority());
        done
    })
}

/// Calls a service and waits for its reply: `Client::call_into`, in `pool/crates/xatmi/src/client/call.rs`. What came is given to the
/// program by `Wanted::give` (`messages.rs`).
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
    with_messages(-1, || {
        // SAFETY: the caller's promise.
        let service = unsafe { service_name(svc) }?;
        // SAFETY: the caller's promise.
        let wanted = unsafe { Wanted::at(odata, olen) }?;
        transactions::call(CallFlags::from_bits(flags), |flags| {
            if wanted.pointer() == idata && !idata.is_null() {
                // SAFETY: the caller's promise.
                return unsafe { call_in_place(service, ilen, wanted, flags) };
            }
            let request = Copied::beside_info(idata, ilen)?;
            let mut landing = Landing::at(Borrowed::from(wanted.pointer())?, flags);
            let place = &mut landing;
            let (arrived, call_info) = requesting(|client| {
                let outgoing = request.outgoing();
                let arrived =
                    client.call_into(service, outgoing, flags, move |coming| place.room(coming))?;
                Ok((arrived, client.take_call_info()))
            })?;
            landing.call_info = call_info;
            // SAFETY: the caller's promise.
            unsafe { give(wanted, &arrived, landing, None) }.map(|()| 0)
        })
    })
}

/// Gives the caller a reply that landed; what its service did may decide what becomes of the transaction.
///
/// # Safety
/// As for [`Wanted::at`].
unsafe fn give(
    wanted: Wanted,
    arrived: &Arrived,
    landing: Landing,
    replaced: Option<Borrowed>,
) -> Result<(), Fault> {
    if arrived.is_abort_only {
        transactions::must_abort(arrived.descriptor);
    }
    // SAFETY: the caller's promise.
    unsafe { wanted.give(arrived, landing, replaced) }
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
    let (arrived, call_info) = requesting(|client| {
        let plain = outgoing(request.buffer(), len)?;
        let joined = request.call_info().map(|info| call_info::joined(plain.bytes, info));
        let outgoing = match &joined {
            Some(bytes) => Outgoing { has_info: true, bytes, ..plain },
            None => plain,
        };
        let arrived =
            client.call_into(service, outgoing, flags, move |coming| place.room(coming))?;
        Ok((arrived, client.take_call_info()))
    })?;
    landing.call_info = call_info;
    // SAFETY: the caller's promise.
    unsafe { give(wanted, &arrived, landing, Some(request)) }.map(|()| 0)
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
    with_messages(-1, || {
        // SAFETY: the caller's promise.
        let service = unsafe { service_name(svc) }?;
        let flags = CallFlags::from_bits(flags);
        let request = Copied::beside_info(data, len)?;
        if flags.contains(CallFlags::NO_REPLY) {
            transactions::check_no_reply(flags)?;
            return requesting(|client| {
                client.send_only(service, request.outgoing(), flags)?;
                Ok(0)
            });
        }
        transactions::call(flags, |flags| {
            let descriptor = requesting(|client| {
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
    with_messages(-1, || {
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
        let (waited, call_info) = with_client(|client| {
            let waited = client.wait_reply(which, flags, move |coming| place.room(coming));
            Ok((waited, client.take_call_info()))
        })?;
        landing.call_info = call_info;
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
            unsafe { give(wanted, &arrived, landing, None) }
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

/// The conversation of a request, if it begins one; what `TPSVCINFO` says of it.
pub(crate) struct Joined {
    pub(crate) cd: c_int,
    pub(crate) flags: c_long,
}

/// Joins the conversation that a request begins; none for a call.
///
/// # Errors
/// The initiator is gone.
pub(crate) fn join(incoming: &Incoming) -> Result<Option<Joined>, Fault> {
    if !incoming.begins_conversation() {
        return Ok(None);
    }
    let environment = startup::environment()?;
    let conversation = Conversation::join(&environment, &incoming.client, incoming.cd)?;
    let role = if conversation.has_control() { TPSENDONLY } else { TPRECVONLY };
    SERVED.set(Some(conversation));
    Ok(Some(Joined { cd: OF_SERVICE, flags: TPCONV | role }))
}

/// Whether the service function of this thread serves a conversation.
pub(crate) fn serves_conversation() -> bool {
    SERVED.with_borrow(Option::is_some)
}

/// Ends the conversation of the service function that ended with `outcome`; what is left for the
/// worker to reply, which is not read.
pub(crate) fn finish(outcome: Done) -> Done {
    let Some(conversation) = SERVED.take() else { return Done::NoReturn };
    let Done::Return(returned) = outcome else {
        // The end of the socket tells that the service broke.
        return Done::NoReturn;
    };
    let is_success = returned.is_success();
    let Return { rval, urcode, buffer, len_bytes, soft_error, is_abort_only, .. } = returned;
    let data = buffer.as_ref().map(|buffer| outgoing_of(buffer, len_bytes));
    let may_end = conversation.has_control() || (!is_success && buffer.is_none());
    let (kind, data) = match (soft_error, data) {
        (None, None) if may_end => (ended(is_success), Outgoing::NONE),
        (None, Some(Ok(data))) if may_end => (ended(is_success), data),
        _ => (Kind::Error, Outgoing::NONE),
    };
    let deadline_ns = transactions::deadline_ns(transactions::timeout());
    conversation.finish(kind, data, urcode, deadline_ns);
    let buffer = None;
    let len_bytes = 0;
    let call_info = None;
    Done::Return(Return { rval, urcode, buffer, len_bytes, call_info, soft_error, is_abort_only })
}

fn ended(is_success: bool) -> Kind {
    if is_success { Kind::Success } else { Kind::Failure }
}

fn outgoing_of(buffer: &Buffer, len: usize) -> Result<Outgoing<'_>, Fault> {
    outgoing(buffer, c_long::try_from(len).unwrap_or(c_long::MAX))
}

/// Lets `work` use a conversation; its result says whether that is over.
fn with<T>(
    cd: c_int,
    work: impl FnOnce(&mut Conversation) -> Result<(T, bool), Fault>,
) -> Result<T, Fault> {
    let unknown = || {
        let detail = format!("there is no conversation with the descriptor {cd}, or it is over");
        Fault::new(Code::BadDescriptor.number(), detail)
    };
    if cd == OF_SERVICE {
        return SERVED.with_borrow_mut(|served| {
            let (done, is_over) = work(served.as_mut().ok_or_else(unknown)?)?;
            if is_over {
                *served = None;
            }
            Ok(done)
        });
    }
    context::with_conversations(|all: &mut Conversations| {
        let (done, is_over) = work(all.get_mut(&cd).ok_or_else(unknown)?)?;
        if is_over {
            all.remove(&cd);
        }
        Ok(done)
    })
}

/// The event that a message is; none for data.
fn event(kind: Kind) -> Option<c_long> {
    match kind {
        Kind::Data => None,
        Kind::Control => Some(TPEV_SENDONLY),
        Kind::Success => Some(TPEV_SVCSUCC),
        Kind::Failure => Some(TPEV_SVCFAIL),
        Kind::Error => Some(TPEV_SVCERR),
        Kind::Disconnect => Some(TPEV_DISCONIMM),
    }
}

/// # Safety
/// A sound `revent` is that of a long.
unsafe fn report(revent: *mut c_long, kind: Kind) -> Result<(), Fault> {
    let Some(event) = event(kind) else { return Ok(()) };
    // SAFETY: the caller's promise.
    unsafe { caller::write(revent, event) };
    let detail = match kind {
        Kind::Data | Kind::Control => "TPEV_SENDONLY: this side has control now",
        Kind::Success => "TPEV_SVCSUCC: the service returned TPSUCCESS",
        Kind::Failure => "TPEV_SVCFAIL: the service returned TPFAIL",
        Kind::Error => "TPEV_SVCERR: the service ended without tpreturn, or its process ended",
        Kind::Disconnect => "TPEV_DISCONIMM: the initiator gave up, or its process ended",
    };
    Err(Fault::new(TPEEVENT, detail))
}

fn no_event(revent: *const c_long) -> Result<(), Fault> {
    if !caller::is_sound(revent) {
        return Err(Fault::invalid("no memory for the event"));
    }
    Ok(())
}

/// Begins a conversation with a service; its descriptor.
///
/// # Safety
/// A sound `svc` is that of a text; no other thread uses the buffer meanwhile, whose pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpconnect(
    svc: *const c_char,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
) -> c_int {
    with_messages(-1, || {
        // SAFETY: the caller's promise.
        let service = unsafe { service_name(svc) }?;
        let has_control = match flags & (TPSENDONLY | TPRECVONLY) {
            TPSENDONLY => true,
            TPRECVONLY => false,
            _ => return Err(Fault::invalid("flags: give either TPSENDONLY or TPRECVONLY")),
        };
        let request = Copied::beside_info(data, len)?;
        context::with_conversations(|all| {
            if all.len() >= CONVERSATIONS_MAX {
                let detail = format!("{CONVERSATIONS_MAX} conversations are under way: end some");
                return Err(Fault::new(Code::Limit.number(), detail));
            }
            Ok(())
        })?;
        let flags = CallFlags::from_bits(flags);
        let (cd, conversation) = requesting(|client| {
            Ok(client.converse(service, request.outgoing(), has_control, flags)?)
        })?;
        context::with_conversations(|all| {
            all.insert(cd.number(), conversation);
            Ok(cd.number())
        })
    })
}

/// Sends data; with TPRECVONLY the other side has control then.
///
/// # Safety
/// A sound `revent` is that of a long; no other thread uses the buffer meanwhile, whose pointer may be
/// any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpsend(
    cd: c_int,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
    revent: *mut c_long,
) -> c_int {
    with_messages(-1, || {
        no_event(revent)?;
        let message = Copied::of(data, len)?;
        let kind = if flags & TPRECVONLY != 0 { Kind::Control } else { Kind::Data };
        let flags = CallFlags::from_bits(flags);
        let deadline_ns = deadline_ns(flags);
        let over = with(cd, |conversation| {
            match conversation.send(kind, message.outgoing(), deadline_ns, flags)? {
                Sent::Done => Ok((None, false)),
                Sent::Over(message) => Ok((Some(message.kind), true)),
            }
        })?;
        match over {
            None => Ok(0),
            // SAFETY: the caller's promise.
            Some(kind) => unsafe { report(revent, kind) }.map(|()| 0),
        }
    })
}

/// Receives data, or what became of the conversation.
///
/// # Safety
/// Sound `data`, `len` and `revent` are those of a pointer and of longs; no other thread uses them or
/// the buffer meanwhile, whose pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tprecv(
    cd: c_int,
    data: *mut *mut c_char,
    len: *mut c_long,
    flags: c_long,
    revent: *mut c_long,
) -> c_int {
    with_messages(-1, || {
        no_event(revent)?;
        // SAFETY: the caller's promise.
        let wanted = unsafe { Wanted::at_without_length(data, len) }?;
        let flags = CallFlags::from_bits(flags);
        let mut landing = Landing::at(Borrowed::from(wanted.pointer())?, flags);
        let deadline_ns = deadline_ns(flags);
        let message = with(cd, |conversation| {
            let message = conversation.receive(deadline_ns, flags)?;
            let is_end = message.kind.is_end();
            Ok((message, is_end))
        })?;
        let Message { kind, buffer_type, buffer_size_bytes, bytes, urcode } = message;
        if kind.is_end() {
            fault::set_urcode(urcode);
        }
        let len_bytes = bytes.len();
        let arriving = Arriving { buffer_type, buffer_size_bytes, len_bytes };
        if buffer_type.is_some() {
            landing.room(&arriving)?.copy_from_slice(&bytes);
        }
        // SAFETY: the caller's promise.
        unsafe { wanted.give_payload(&arriving, landing, None) }?;
        // SAFETY: the caller's promise.
        unsafe { report(revent, kind) }.map(|()| 0)
    })
}

fn deadline_ns(flags: CallFlags) -> u64 {
    if flags.contains(CallFlags::NO_TIME) {
        return 0;
    }
    transactions::deadline_ns(transactions::take_timeout())
}

/// Gives a conversation up, which the service sees as TPEV_DISCONIMM.
#[unsafe(no_mangle)]
pub extern "C" fn tpdiscon(cd: c_int) -> c_int {
    fault::atmi(-1, || {
        context::with_conversations(|all| match all.remove(&cd) {
            Some(conversation) => {
                conversation.disconnect();
                Ok(0)
            }
            None => {
                let detail = format!("there is no conversation {cd} that this context began");
                Err(Fault::new(Code::BadDescriptor.number(), detail))
            }
        })
    })
}
