//! The change to the next manager when this one ended.
//!
//! Calls need no manager, so a client notices its end only indirectly: in shared memory by the kernel's mark in
//! the records, which are not written any more, with queues when a service is not there. As long as no manager
//! listens, a client in shared memory calls as the old records say. It greets the next one and waits for the
//! answer, so that it sends nothing where that manager has withdrawn a service; a manager that does not answer
//! for a second is waited for no longer.
//!
//! ```text
//!  attached ──(the manager ended)──▶ looking ──(one listens: hello)──▶ greeted ──(welcome)──▶ attached
//!                                     ▲  │ none: in LOOK_EACH again       │ refused, gone
//!                                     ├──┘                                │
//!                                     └───────────────────────────────────┘
//! ```
//!
//! | the next pool has | the client continues | calls that are out |
//! |---|---|---|
//! | the same queues, or the same memory (its workers were taken over) | where it was | are answered |
//! | another memory, queues of another size, or queues in place of memory and the reverse | there | end with TPESVCERR; TPENOENT if they cannot have been served |

use std::time::Duration;

use super::connection::{ClientFiles, Connection};
use super::mailbox::Mailbox;
use super::out_calls::Kept;
use super::queues::Queues;
use super::transport::Transport;
use super::{Client, Welcome};
use crate::error::{Code, Error};
use crate::queue::{Prefix, monotonic_ns};
use crate::wire::Reply;

/// How often a manager is looked for, or its answer.
const LOOK_EACH_NS: u64 = 20_000_000;
/// The longest wait for the answer of a manager that begins.
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// The longest wait for a place among the connections that the manager has not taken yet.
const CONNECT_MAX: Duration = Duration::from_millis(1);

/// The search for the next manager.
#[derive(Debug, Default)]
pub(super) struct Successor {
    /// When to look again.
    pub(super) look_ns: u64,
    /// Was greeted, and has not answered.
    greeted: Option<Connection>,
}

impl Client {
    /// Comes to the next manager if this one is gone and another one is there, for a call that may take until
    /// `deadline_ns` (0 for as long as it takes; one that is over does not wait).
    #[inline]
    pub(super) fn follow_manager(&mut self, deadline_ns: u64) {
        if self.transport.is_manager_gone() && monotonic_ns() >= self.successor.look_ns {
            let has_waited = self.successor.greeted.is_some();
            let patience = if has_waited { Duration::ZERO } else { patience(deadline_ns) };
            // The next look comes; a call that fails meanwhile has its reason.
            let _ = self.look_for_manager(patience, None);
        }
    }

    /// Comes to the next manager if this one is gone, for a call (`call_id`) that ends otherwise; whether it
    /// did. It is waited for until `deadline_ns` (0 for none), a second at most.
    ///
    /// # Errors
    /// TPEPERM when it is that of another user; what else forbids to work with it.
    pub(super) fn await_manager(
        &mut self,
        call_id: Option<u64>,
        deadline_ns: u64,
    ) -> Result<bool, Error> {
        if !self.transport.is_manager_gone() && !self.connection.is_ended() {
            return Ok(false);
        }
        self.look_for_manager(patience(deadline_ns), call_id)
    }

    /// Looks for the next manager, and for its answer; whether this client works with it now.
    fn look_for_manager(
        &mut self,
        patience: Duration,
        call_id: Option<u64>,
    ) -> Result<bool, Error> {
        self.successor.look_ns = monotonic_ns() + LOOK_EACH_NS;
        // A child after fork(2) has what is its parent's.
        if self.address.pid != std::process::id() {
            return Ok(false);
        }
        let connection = match self.successor.greeted.take() {
            Some(connection) => connection,
            None => {
                let group = self.group.as_ref();
                match self.connection.succeed(&self.prefix, group, patience.max(CONNECT_MAX)) {
                    Ok(connection) => {
                        connection.say_hello(&self.prefix, self.transport.known())?;
                        connection
                    }
                    // None is there, or does not take connections yet.
                    Err(error) if error.code() == Code::System => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        };
        match connection.welcome(&self.prefix, patience) {
            Ok(Some((welcome, memory))) => {
                self.attach(&connection, &welcome, memory.as_ref(), call_id)?;
                Ok(true)
            }
            Ok(None) => {
                self.successor.greeted = Some(connection);
                Ok(false)
            }
            Err(error) if error.code() == Code::System => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Works with another manager from now on. `call_id` is not out yet.
    fn attach(
        &mut self,
        connection: &Connection,
        welcome: &Welcome,
        memory: Option<&ClientFiles>,
        call_id: Option<u64>,
    ) -> Result<(), Error> {
        if !self.transport.follow(&self.prefix, welcome, memory)? {
            let next = offered_transport(&self.prefix, connection, welcome, memory)?;
            self.end_calls(call_id)?;
            self.transport = next;
            let scratch = vec![0; self.transport.message_len_bytes()].into_boxed_slice();
            self.outgoing = scratch.clone();
            self.incoming = scratch;
        }
        self.connection
            .replace_by(connection)
            .map_err(|errno| Error::os("the connection to the pool can't be kept", errno.into()))?;
        self.is_guest = self.connection.is_guest();
        self.priorities = welcome.priorities();
        self.counters.managers_followed += 1;
        Ok(())
    }

    /// Ends all calls that are out but this one: their replies, where they are there, or errors are kept until they are
    /// asked for.
    fn end_calls(&mut self, but: Option<u64>) -> Result<(), Error> {
        self.take_arrived()?;
        while let Some(len) = self.transport.end_next(&mut self.incoming) {
            self.keep_if_known(len);
        }
        for call_id in self.calls.ids_out().into_iter().filter(|call_id| Some(*call_id) != but) {
            let failed = Reply::failing(self.address.nonce, call_id, Code::ServiceError);
            self.calls.keep(call_id, Kept::new(&failed, Vec::new()));
            self.counters.kept += 1;
        }
        Ok(())
    }
}

/// The transport that the manager offers: its memory, else queues.
///
/// # Errors
/// TPESYSTEM for memory of another build, TPELIMIT when all of it is in use, TPEOS.
pub(super) fn offered_transport(
    prefix: &Prefix,
    connection: &Connection,
    welcome: &Welcome,
    memory: Option<&ClientFiles>,
) -> Result<Box<dyn Transport>, Error> {
    let (Some(context), Some(memory)) = (welcome.memory, memory) else {
        return Ok(Box::new(Queues::open(prefix, connection, welcome)?));
    };
    Ok(Box::new(Mailbox::open(prefix, memory, context, connection.address().nonce)?))
}

/// How long a call waits for the answer of a manager.
fn patience(deadline_ns: u64) -> Duration {
    match deadline_ns {
        0 => PATIENCE_MAX,
        _ => Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns())).min(PATIENCE_MAX),
    }
}
