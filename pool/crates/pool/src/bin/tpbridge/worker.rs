//! A bridge: a worker of a service pool whose services are those of pools on other hosts, over a
//! NATS broker.
//!
//! The pool's manager starts it like any server, under the name `tpbridge`; each copy carries one
//! call at a time in each direction, so that only idle workers take work, and more copies carry
//! more. The processes that are measured have no part of it.
//!
//! ```xml
//! <server name="tpbridge">
//!   <srvid>900</srvid> <min>4</min> <max>4</max>
//!   <appopt>--nats nats://10.0.0.1:4222 --domain bank</appopt>
//! </server>
//! ```
//!
//! What `exportsvcs` lists is offered to others; what others offer and this pool does not have is
//! called like a service at home. See `docs/pool.md`.
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;

use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::queue::monotonic_ns;
use pollux_xatmi::worker::{
    Done, Ending, Incoming, RVAL_FAIL, RVAL_SUCCESS, Registry, Return, Worker,
};

use crate::broker::Broker;
use crate::envelope::{Answered, RequestHeader};
use crate::exchange::Wanted;
use crate::settings::Settings;

/// Runs as the worker that the manager started this process for, until the pool stops.
///
/// # Errors
/// TPESYSTEM where no manager started it, TPINITFAIL for options that make no sense, else as
/// [`Worker::run`].
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<Ending, Error> {
    let environment =
        Environment::of_process().map_err(|error| Error::new(Code::Invalid, error.to_string()))?;
    let worker = Worker::from_environment()?;
    let registry = worker.registry();
    let started: OnceCell<Rc<Broker>> = OnceCell::new();
    worker.run(
        arguments,
        |options| {
            let variable = |name: &str| std::env::var(name).ok();
            let settings = Settings::read(options, variable, &environment)?;
            let broker = Broker::start(&settings, &environment)?;
            let broker = Rc::clone(started.get_or_init(|| Rc::new(broker)));
            let wanted = broker.wanted();
            let changed = wanted.changed().map_err(|error| error.to_string())?;
            let handle = registry.clone();
            handle.report_trouble(broker.trouble());
            let adapt = move || {
                handle.report_trouble(broker.trouble());
                offer(&handle, &broker, &wanted);
            };
            registry.attend(changed, adapt).map_err(|error| error.to_string())
        },
        || {
            if let Some(broker) = started.get() {
                broker.leave();
            }
        },
    )
}

/// Offers what is wanted now, and nothing else.
fn offer(registry: &Registry, broker: &Rc<Broker>, wanted: &Wanted) {
    let offered: BTreeSet<_> = registry.services().into_iter().collect();
    let wanted = wanted.services();
    for service in offered.difference(&wanted) {
        // What the manager does not know ends with this worker.
        let _ = registry.unadvertise(service);
    }
    for service in wanted.difference(&offered) {
        let broker = Rc::clone(broker);
        let _ = registry.advertise(service, "tpbridge", move |incoming| carry(&broker, incoming));
    }
}

/// Carries one call to another host and back; a conversation is refused before anything is sent.
fn carry(broker: &Broker, incoming: Incoming) -> Done {
    if incoming.begins_conversation() {
        broker.say(&format!(
            "a conversation with {} was refused: bridges carry calls only",
            incoming.service.as_str()
        ));
        return refused(Code::Protocol);
    }
    let left_ns = incoming.deadline_ns.saturating_sub(monotonic_ns());
    let timeout = (incoming.deadline_ns != 0).then(|| Duration::from_nanos(left_ns));
    let asked = RequestHeader { timeout, is_without_reply: incoming.is_without_reply };
    let data = incoming.buffer.map(|buffer| (buffer, incoming.len_bytes));
    let (answered, data) = broker.call(incoming.service.as_str(), asked, &data);
    let (error, urcode) = match answered {
        Answered::Done { error, urcode, .. } => (error, urcode),
        Answered::Busy => (Some(Code::Time), 0),
    };
    let (buffer, len_bytes) = data.map_or((None, 0), |(buffer, len)| (Some(buffer), len));
    let (rval, soft_error) = match error {
        // Whatever was said with it: TPEXIT is for the worker over there, and would end the bridge.
        None => (RVAL_SUCCESS, None),
        Some(Code::ServiceFailed) => (RVAL_FAIL, None),
        Some(code) => (RVAL_FAIL, Some(code)),
    };
    let is_abort_only = false;
    let call_info = None;
    Done::Return(Return { rval, urcode, buffer, len_bytes, call_info, soft_error, is_abort_only })
}

/// The caller gets this error.
fn refused(code: Code) -> Done {
    let soft_error = Some(code);
    let rval = RVAL_FAIL;
    let urcode = 0;
    let buffer = None;
    let len_bytes = 0;
    let is_abort_only = false;
    let call_info = None;
    Done::Return(Return { rval, urcode, buffer, len_bytes, call_info, soft_error, is_abort_only })
}
