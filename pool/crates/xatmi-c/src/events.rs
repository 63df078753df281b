//! `tppost`, `tpsubscribe`, `tpunsubscribe`, `tpnotify`, `tpbroadcast`, `tpsetunsol`, `tpchkunsol`; messages that are handed
//! over around calls.
//!
//! What listens and how messages travel stands in `pollux_xatmi::events`. Filters are looked at here, by
//! the process that posts: for fields a Boolean expression, for texts a regular expression of the whole text.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_long};

use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{CallFlags, Outgoing};
use pollux_xatmi::control::{MailboxRow, SubscriberRow};
use pollux_xatmi::conversation::Message;
use pollux_xatmi::error::Code;
use pollux_xatmi::events::{self, Mailbox, Subscriptions};
use pollux_xatmi::expression::{EventPattern, Expression};
use pollux_xatmi::ubf::UbfRef;

use crate::fault::{self, Cause, Fault};
use crate::memory::{self, Held};
use crate::messages::{Copied, len_for_caller};
use crate::{caller, context, fields, startup};

/// The program's handler of unsolicited messages.
pub(crate) type Handler = unsafe extern "C" fn(*mut c_char, c_long, c_long);

/// Flags of `TPEVCTL`.
const TPEVSERVICE: c_long = 1;
const TPEVPERSIST: c_long = 8;
/// Of tpbroadcast.
const TPREGEXMATCH: c_long = 0x80_0000;

/// Messages that one look delivers at most.
const DELIVERED_MAX: usize = 1024;

/// The name that a client must have.
enum WantedName {
    Any,
    One(Vec<u8>),
    /// TPREGEXMATCH.
    Like(EventPattern),
}

impl WantedName {
    fn of(name: Option<&CStr>, by_pattern: bool) -> Result<Self, Fault> {
        let Some(name) = name else { return Ok(Self::Any) };
        if !by_pattern {
            return Ok(Self::One(name.to_bytes().to_vec()));
        }
        let pattern = name.to_str().map_err(|_| Fault::invalid("the pattern is not UTF-8"))?;
        EventPattern::new(pattern).map(Self::Like).map_err(Fault::invalid)
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(only) => only == name.as_bytes(),
            Self::Like(pattern) => pattern.fits(name),
        }
    }
}

/// `TPEVCTL`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventControl {
    flags: c_long,
    name1: [c_char; 32],
    name2: [c_char; 32],
}

/// What a context listens to.
#[derive(Debug)]
pub(crate) struct Listener {
    listening: Subscriptions,
    mailbox: Option<Mailbox>,
}

thread_local! {
    static HANDLER: Cell<Option<Handler>> = const { Cell::new(None) };
    /// The handler runs, and what it calls gives it no further message.
    static IS_HANDING_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Makes `handler` that of the thread; the one before.
pub(crate) fn exchange_handler(handler: Option<Handler>) -> Option<Handler> {
    HANDLER.replace(handler)
}

fn with_listener<T>(
    needs_mailbox: bool,
    work: impl FnOnce(&mut Listener) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let environment = startup::environment()?;
    context::with_listener(|place, address, (usrname, cltname)| {
        let done = place.take().map_or_else(
            || Ok(Listener { listening: Subscriptions::open(&environment)?, mailbox: None }),
            Ok::<_, Fault>,
        );
        let mut listener = done?;
        if needs_mailbox && listener.mailbox.is_none() {
            let usrname = usrname.to_owned();
            let cltname = cltname.to_owned();
            let pid = address.pid;
            let context = address.context;
            let nonce = address.nonce;
            let row = MailboxRow { pid, context, nonce, usrname, cltname };
            let mailbox = Mailbox::open(&environment, &row, listener.listening.owner())?;
            listener.listening.mailbox(row)?;
            listener.mailbox = Some(mailbox);
        }
        work(place.insert(listener))
    })
}

/// # Safety
/// A sound `text` is that of a text that stays while the result is used.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Fault> {
    // SAFETY: the caller's promise.
    let text = unsafe { caller::text(text) };
    let text = text.ok_or_else(|| Fault::invalid(format!("the pointer to the {what} is null")))?;
    text.to_str().map_err(|_| Fault::invalid(format!("the {what} is not UTF-8")))
}

/// Subscribes to events whose names fit a pattern; the handle of the subscription.
///
/// # Safety
/// Sound `pattern` and `filter` are those of texts, a sound `control` is that of a `TPEVCTL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpsubscribe(
    pattern: *const c_char,
    filter: *const c_char,
    control: *const EventControl,
    _flags: c_long,
) -> c_long {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let pattern = unsafe { text(pattern, "pattern of the events") }?;
        let filter = if filter.is_null() {
            ""
        } else {
            // SAFETY: the caller's promise.
            unsafe { text(filter, "filter") }?
        };
        // SAFETY: the caller's promise.
        let control = unsafe { caller::read(control) };
        let service = match &control {
            None => None,
            Some(control) if control.flags & !TPEVPERSIST == TPEVSERVICE => {
                let name: Vec<u8> =
                    control.name1.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
                let name = String::from_utf8(name).ok().filter(|name| !name.is_empty());
                Some(name.ok_or_else(|| Fault::invalid("name1 of TPEVCTL names the service"))?)
            }
            Some(_) => {
                return Err(Fault::invalid(
                    "flags of TPEVCTL: TPEVSERVICE is expected, there are no queues",
                ));
            }
        };
        if service.is_none() && HANDLER.get().is_none() {
            let detail = "a subscription without TPEVCTL needs a handler: tpsetunsol";
            return Err(Fault::new(Code::Protocol.number(), detail).by(Cause::NoHandler));
        }
        let handle = with_listener(service.is_none(), |listener| {
            Ok(listener.listening.subscribe(pattern, filter, service.as_deref())?)
        })?;
        c_long::try_from(handle).map_err(|_| Fault::invalid("no handle"))
    })
}

/// Takes a subscription of this context back, or all for -1; how many that were.
#[unsafe(no_mangle)]
pub extern "C" fn tpunsubscribe(subscription: c_long, _flags: c_long) -> c_int {
    fault::atmi(-1, || {
        let handle = match subscription {
            -1 => None,
            number => {
                Some(u64::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
                    Fault::invalid(format!("{number} is not a handle of a subscription"))
                })?)
            }
        };
        let count = with_listener(false, |listener| Ok(listener.listening.unsubscribe(handle)?))?;
        if count == 0 && handle.is_some() {
            let detail = format!("this context has no subscription {subscription}");
            return Err(Fault::new(Code::NoEntry.number(), detail));
        }
        counted(count)
    })
}

/// Tells a count as the result and in tpurcode.
fn counted(count: usize) -> Result<c_int, Fault> {
    fault::set_urcode(c_long::try_from(count).unwrap_or(c_long::MAX));
    Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
}

/// Posts an event to all subscribers; how many got it.
///
/// # Safety
/// A sound `event` is that of a text; no other thread changes the buffer meanwhile, whose pointer may be
/// any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tppost(
    event: *const c_char,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let event = unsafe { text(event, "name of the event") }?;
        let message = Copied::of(data, len)?;
        let environment = startup::environment()?;
        let mut count = 0;
        let mut called = BTreeSet::new();
        for SubscriberRow { filter, service, mailbox } in events::subscribers(&environment, event)?
        {
            if !fits(&filter, &message.outgoing()) {
                continue;
            }
            // Each copy of a server subscribes when it starts: the service gets the event once for all of them.
            if service.as_ref().is_some_and(|service| !called.insert(service.clone())) {
                continue;
            }
            let delivered = match (service, mailbox) {
                (Some(service), _) => context::with_client(|client| {
                    let flags = CallFlags::from_bits(flags) | CallFlags::NO_REPLY;
                    Ok(client.send_only(&service, message.outgoing(), flags)?)
                })
                .is_ok(),
                (None, Some(to)) => {
                    events::send(&environment.prefix, &to, message.outgoing()).is_ok()
                }
                (None, None) => false,
            };
            count += usize::from(delivered);
        }
        counted(count)
    })
}

/// Whether a subscriber with this filter wants the data.
fn fits(filter: &str, data: &Outgoing<'_>) -> bool {
    if filter.is_empty() {
        return true;
    }
    match data.buffer_type {
        Some(BufferType::Ubf) => {
            let compiled = Expression::compile(filter.as_bytes(), fields::table_or_empty());
            let fields = UbfRef::check(data.bytes);
            matches!((compiled, fields), (Ok(filter), Ok(fields)) if filter.is_true(fields) == Ok(true))
        }
        Some(BufferType::String | BufferType::Json) => {
            let text = data.bytes.strip_suffix(&[0]).unwrap_or(data.bytes);
            EventPattern::new(filter).is_ok_and(|filter| filter.fits_bytes(text))
        }
        _ => false,
    }
}

/// Sends an unsolicited message to the context that `client` names.
///
/// # Safety
/// A sound `client` is that of a `CLIENTID`; no other thread changes the buffer meanwhile, whose pointer
/// may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpnotify(
    client: *const [u8; 96],
    data: *mut c_char,
    len: c_long,
    _flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        // SAFETY: the caller's promise.
        let client = unsafe { caller::read(client) };
        let client = client.ok_or_else(|| Fault::invalid("the pointer to the client is null"))?;
        let row = mailbox_of(&client).ok_or_else(|| Fault::invalid("it names no client"))?;
        let message = Copied::of(data, len)?;
        let prefix = startup::environment()?.prefix;
        let sent = events::send(&prefix, &row, message.outgoing());
        sent.map(|()| 0).map_err(|error| match error.code() {
            Code::NoEntry => Fault::from(error).by(Cause::NoClient),
            _ => error.into(),
        })
    })
}

/// The mailbox of a `CLIENTID`, as `TPSVCINFO` has it: process, context, nonce.
fn mailbox_of(client: &[u8; 96]) -> Option<MailboxRow> {
    let text = client.split(|byte| *byte == 0).next().and_then(|text| str::from_utf8(text).ok())?;
    let mut parts = text.split(',');
    let pid = parts.next()?.parse().ok()?;
    let context = parts.next()?.parse().ok()?;
    let nonce = u64::from_str_radix(parts.next()?, 16).ok()?;
    Some(MailboxRow { pid, context, nonce, ..MailboxRow::default() })
}

/// Sends an unsolicited message to all contexts with a handler that have these names; how many got it.
///
/// # Safety
/// Sound names are those of texts; no other thread changes the buffer meanwhile, whose pointer may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpbroadcast(
    _machine: *const c_char,
    usrname: *const c_char,
    cltname: *const c_char,
    data: *mut c_char,
    len: c_long,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        let by_pattern = flags & TPREGEXMATCH != 0;
        // SAFETY: the caller's promise.
        let usrname = WantedName::of(unsafe { caller::text(usrname) }, by_pattern)?;
        // SAFETY: the caller's promise.
        let cltname = WantedName::of(unsafe { caller::text(cltname) }, by_pattern)?;
        let message = Copied::of(data, len)?;
        let environment = startup::environment()?;
        let is_meant = |row: &MailboxRow| usrname.fits(&row.usrname) && cltname.fits(&row.cltname);
        let all = events::mailboxes(&environment)?;
        let sent = all.iter().filter(|row| is_meant(row));
        counted(
            sent.filter(|row| events::send(&environment.prefix, row, message.outgoing()).is_ok())
                .count(),
        )
    })
}

/// Sets the thread's handler of unsolicited messages, none for NULL; the one before, or -1.
///
/// # Safety
/// `handler` is a function of this type or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpsetunsol(handler: Option<Handler>) -> isize {
    fault::atmi(-1, || {
        if handler.is_some() {
            with_listener(true, |_| Ok(()))?;
        }
        let before = HANDLER.replace(handler);
        Ok(before.map_or(0, |before| before as usize as isize))
    })
}

/// Gives the messages that came to the thread's handler; how many that were.
#[unsafe(no_mangle)]
pub extern "C" fn tpchkunsol() -> c_int {
    fault::atmi(-1, || {
        let Some(handler) = HANDLER.get() else {
            let detail = "there is no handler: tpsetunsol sets one";
            return Err(Fault::new(Code::Protocol.number(), detail).by(Cause::NoHandler));
        };
        let take = || {
            with_listener(true, |listener| {
                listener.mailbox.as_ref().map_or(Ok(None), |mailbox| Ok(mailbox.take()?))
            })
        };
        counted(deliver(handler, take)?)
    })
}

/// Gives the messages that came to the thread's handler, before and after a call: a program that does nothing but call
/// gets them too. Errors of the thread stay as they are.
pub(crate) fn hand_over() {
    let Some(handler) = HANDLER.get() else { return };
    if IS_HANDING_OVER.replace(true) {
        return;
    }
    let take = || {
        let taken =
            context::with_listener_there(|listener| listener.mailbox.as_ref()?.take().ok()?);
        Ok(taken.flatten())
    };
    fault::keeping(|| {
        // The look never fails.
        let _ = deliver(handler, take);
    });
    IS_HANDING_OVER.set(false);
}

/// Gives messages to a handler; how many that were.
fn deliver(
    handler: Handler,
    mut take: impl FnMut() -> Result<Option<Message>, Fault>,
) -> Result<usize, Fault> {
    let mut count = 0;
    while count < DELIVERED_MAX {
        let Some(message) = take()? else { break };
        // What another process sent and cannot be a buffer is dropped.
        let Some((held, len)) = buffer_of(message) else { continue };
        let data = held.map_or(std::ptr::null_mut(), memory::give_out);
        // SAFETY: the program set a function of this type; the buffer is this library's.
        unsafe { handler(data, len, 0) };
        // It may have freed it.
        if let Some(held) = memory::take(data) {
            memory::free(held);
        }
        count += 1;
    }
    Ok(count)
}

fn buffer_of(message: Message) -> Option<(Option<Held>, c_long)> {
    let Message { buffer_type, buffer_size_bytes, bytes, .. } = message;
    let Some(buffer_type) = buffer_type else { return Some((None, 0)) };
    let size = buffer_size_bytes.max(1);
    let buffer = Buffer::from_wire(buffer_type.name(), "", size, &bytes).ok()?;
    let len = len_for_caller(&buffer, bytes.len());
    Some((Some(Held::new(buffer, false)), len))
}
