//! Bytes between two connections of one loop: what a proxy or a tunnel does once both of its sides are known.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::{Actions, ConnectionId};

/// One side of two connections of a loop that pass on to each other what their peers send.
///
/// A session that is a side of a relay calls the method of the same name from its callbacks. Then
/// * **back-pressure** holds in both directions: of each side the input of one call waits for the other, at most what a
///   loop receives at once; until that has left the process, the side takes no more;
/// * **an end is passed on** behind the bytes before it, while the other direction continues (half-close); when both
///   directions have ended, both connections are closed;
/// * **a side that breaks** (reset, not connected, too slow: closed before both directions have ended) has the other
///   one reset, so that its peer does not take a part for the whole.
///
/// As with every session, a side whose peer takes nothing is closed after
/// [`Limits::write_timeout`](crate::Limits::write_timeout), and while output of it waits it receives nothing.
///
/// ```
/// use pollux_engine::{Actions, CloseCause, Command, ConnectTo, Moment, Relay, Session};
///
/// struct Side(Relay);
///
/// struct Shared {
///     upstream: ConnectTo,
///     commands: Vec<Command<Side>>,
/// }
///
/// impl Session for Side {
///     type Shared = Shared;
///
///     fn accepted(shared: &mut Shared, actions: &mut Actions<'_>) -> Self {
///         let (mut client, upstream) = Relay::pair();
///         client.opened(actions);
///         let (to, deadline) = (shared.upstream.clone(), Moment::NEVER);
///         shared.commands.push(Command::Connect { to, session: Self(upstream), deadline });
///         Self(client)
///     }
///     fn next_command(shared: &mut Shared) -> Option<Command<Self>> {
///         shared.commands.pop()
///     }
///     fn connected(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
///         self.0.opened(actions);
///     }
///     fn on_bytes(&mut self, _: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
///         self.0.on_bytes(actions, input)
///     }
///     fn on_output_sent(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
///         self.0.on_output_sent(actions);
///     }
///     fn on_wake(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
///         self.0.on_wake(actions);
///     }
///     fn on_end(&mut self, _: &mut Shared, actions: &mut Actions<'_>) {
///         self.0.on_end(actions);
///     }
///     fn closed(self, shared: &mut Shared, _: CloseCause) {
///         shared.commands.extend(self.0.closed().map(Command::Wake));
///     }
/// }
/// ```
pub struct Relay {
    pair: Rc<RefCell<Pair>>,
    side: usize,
}

/// What both sides share; each array is by side.
#[derive(Default)]
struct Pair {
    ids: [Option<ConnectionId>; 2],
    /// What goes to the side.
    output: [Output; 2],
    is_broken: bool,
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    /// Some of it is with the loop: `on_output_sent` follows when that has left.
    is_leaving: bool,
    /// The other side's peer has ended: nothing comes behind it.
    is_last: bool,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_leaving
    }
}

impl Relay {
    /// The two sides.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let pair = Rc::<RefCell<Pair>>::default();
        (Self { pair: Rc::clone(&pair), side: 0 }, Self { pair, side: 1 })
    }

    /// The connection is there: for `accepted` and `connected`.
    pub fn opened(&mut self, actions: &mut Actions<'_>) {
        self.pair.borrow_mut().ids[self.side] = Some(actions.id());
        self.proceed(actions);
    }

    /// Input of this side, all of which is taken.
    pub fn on_bytes(&mut self, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        self.pair.borrow_mut().output[1 - self.side].bytes.extend_from_slice(input);
        actions.pause_input();
        self.wake_other(actions);
        input.len()
    }

    /// The output of this side has left: the other side may take more.
    pub fn on_output_sent(&mut self, actions: &mut Actions<'_>) {
        self.pair.borrow_mut().output[self.side].is_leaving = false;
        self.proceed(actions);
        self.wake_other(actions);
    }

    /// The other side woke this one.
    pub fn on_wake(&mut self, actions: &mut Actions<'_>) {
        self.proceed(actions);
    }

    /// This side's peer has ended.
    pub fn on_end(&mut self, actions: &mut Actions<'_>) {
        self.pair.borrow_mut().output[1 - self.side].is_last = true;
        self.proceed(actions);
        self.wake_other(actions);
    }

    /// This side is closed. Gives the connection of the other one, which has to be woken
    /// ([`Command::Wake`](crate::Command::Wake)); none when it is not connected yet.
    #[must_use]
    pub fn closed(self) -> Option<ConnectionId> {
        let Pair { ids, output, is_broken } = &mut *self.pair.borrow_mut();
        *is_broken |= !output.iter().all(|output| output.is_last);
        ids[1 - self.side]
    }

    /// Sends what there is for this side, or does what is left to do when there is nothing.
    fn proceed(&mut self, actions: &mut Actions<'_>) {
        let Pair { output, is_broken, .. } = &mut *self.pair.borrow_mut();
        if *is_broken {
            return actions.reset();
        }
        if output[1 - self.side].is_empty() {
            actions.resume_input();
        }
        let has_ended = output[1 - self.side].is_last;
        let output = &mut output[self.side];
        if !output.bytes.is_empty() && !output.is_leaving {
            let len = output.bytes.len().min(actions.room());
            actions.send(&output.bytes[..len]);
            output.bytes.drain(..len);
            output.is_leaving = true;
            actions.notify_when_sent();
        } else if output.is_empty() && output.is_last {
            if has_ended { actions.close() } else { actions.end_output() }
        }
    }

    fn wake_other(&self, actions: &mut Actions<'_>) {
        if let Some(id) = self.pair.borrow().ids[1 - self.side] {
            actions.wake(id);
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("side", &self.side).finish_non_exhaustive()
    }
}
