//! The loop's side of a stream: a session that moves bytes between its connection and two buffers.
//!
//! ```text
//!  Stream: read  ◄── input, at most INPUT_MAX: then the loop stops reading
//!          write ──► output, at most OUTPUT_MAX: then writes wait
//!                       │ one piece at a time: the next when that has left the process
//!                       ▼
//!          dropped ─► rest of the output ─► close if all input was read, else linger
//! ```

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::Waker;

use pollux_engine::Waker as LoopWaker;
use pollux_engine::{Actions, CloseCause, Command, ConnectionId, Moment, Now, Session};

use crate::executor::Core;

/// Most input that a stream holds for its reader.
pub(crate) const INPUT_MAX: usize = 64 * 1024;

/// Most output that a stream holds for its loop.
pub(crate) const OUTPUT_MAX: usize = 64 * 1024;

/// What a buffer that is empty keeps of its memory; an idle stream should cost little.
const KEPT_BYTES: usize = 4096;

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The loop does not have it yet, or its peer is not there yet.
    Opening,
    Open,
    Closed(CloseCause),
    /// It could not be established. The first call on the stream takes the error.
    Failed(Option<io::Error>),
}

/// What a stream and its session share.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) stage: Stage,
    /// Known once the loop has the connection.
    pub(crate) id: Option<ConnectionId>,
    pub(crate) input: Buffer,
    pub(crate) has_input_ended: bool,
    is_paused: bool,
    pub(crate) reader: Option<Waker>,
    pub(crate) output: Buffer,
    /// The loop has a piece of the output that has not left.
    pub(crate) is_sending: bool,
    pub(crate) writer: Option<Waker>,
    pub(crate) wants_end: bool,
    pub(crate) is_output_ended: bool,
    pub(crate) wants_reset: bool,
    is_dropped: bool,
    /// It was dropped before all of its input was read: more is probably under way.
    has_unread: bool,
    /// Counted among those whose output is waited for at the end of the runtime.
    is_leaving: bool,
    /// A call of the session is queued.
    is_called: bool,
}

impl Channel {
    pub(crate) fn new(stage: Stage) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            stage,
            id: None,
            input: Buffer::default(),
            has_input_ended: false,
            is_paused: false,
            reader: None,
            output: Buffer::default(),
            is_sending: false,
            writer: None,
            wants_end: false,
            is_output_ended: false,
            wants_reset: false,
            is_dropped: false,
            has_unread: false,
            is_leaving: false,
            is_called: false,
        }))
    }

    /// Has the session called, once the loop has it.
    pub(crate) fn call(&mut self, core: &Core) {
        if let Some(id) = self.id
            && !std::mem::replace(&mut self.is_called, true)
        {
            core.call(id);
        }
    }

    /// The loop has the connection.
    pub(crate) fn taken(&mut self, id: ConnectionId, core: &Core) {
        self.id = Some(id);
        if self.is_dropped {
            self.leave(core);
        }
        if self.is_dropped || !self.output.is_empty() || self.wants_end || self.wants_reset {
            self.call(core);
        }
    }

    /// The connection could not be established.
    pub(crate) fn failed(&mut self, error: io::Error) {
        self.stage = Stage::Failed(Some(error));
        self.wake_both();
    }

    /// Takes up to `into` bytes of input; reading continues when half of the room is free.
    pub(crate) fn read(&mut self, into: &mut [u8], core: &Core) -> usize {
        let len = into.len().min(self.input.len());
        into[..len].copy_from_slice(&self.input.as_slice()[..len]);
        self.input.consume(len);
        if self.is_paused && self.input.len() <= INPUT_MAX / 2 {
            self.call(core);
        }
        len
    }

    /// The stream is gone: what it wrote is sent, then the connection ends.
    pub(crate) fn dropped(&mut self, core: &Core) {
        self.is_dropped = true;
        (self.reader, self.writer) = (None, None);
        self.has_unread = !self.input.is_empty() && !self.has_input_ended;
        self.input.clear();
        self.leave(core);
        self.call(core);
    }

    /// Counts a connection that the loop has and whose stream is gone, until its session knows.
    fn leave(&mut self, core: &Core) {
        let is_open = self.id.is_some() && matches!(self.stage, Stage::Open);
        if is_open && !self.wants_reset && !std::mem::replace(&mut self.is_leaving, true) {
            core.leaving.set(core.leaving.get() + 1);
        }
    }

    fn left(&mut self, core: &Core) {
        if std::mem::take(&mut self.is_leaving) {
            core.leaving.set(core.leaving.get() - 1);
        }
    }

    fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    fn wake_both(&mut self) {
        self.wake_reader();
        self.wake_writer();
    }

    /// Does for the stream what can be done now.
    fn advance(&mut self, core: &Core, actions: &mut Actions<'_>) {
        if self.wants_reset {
            return actions.reset();
        }
        if matches!(self.stage, Stage::Opening) {
            if self.is_dropped {
                actions.abort();
            }
            return;
        }
        if self.is_paused && (self.is_dropped || self.input.len() <= INPUT_MAX / 2) {
            self.is_paused = false;
            actions.resume_input();
        }
        if !self.is_sending && !self.output.is_empty() {
            let len = self.output.len().min(actions.room());
            actions.send(&self.output.as_slice()[..len]);
            self.output.consume(len);
            self.is_sending = true;
            actions.notify_when_sent();
            self.wake_writer();
        }
        if !self.output.is_empty() {
            return;
        }
        if self.is_dropped {
            if !self.is_sending {
                self.left(core);
                let has_unread = self.has_unread || !self.has_input_ended && actions.has_unread();
                if has_unread { actions.linger() } else { actions.close() }
            }
        } else if self.wants_end && !std::mem::replace(&mut self.is_output_ended, true) {
            actions.end_output();
            self.wake_writer();
        }
    }
}

/// The sessions of a loop share its executor.
pub(crate) struct Shared(pub(crate) Rc<Core>);

/// The session of a stream.
#[derive(Debug)]
pub(crate) struct Connection(pub(crate) Rc<RefCell<Channel>>);

impl Session for Connection {
    type Shared = Shared;

    fn opened(shared: &mut Shared, waker: &LoopWaker) {
        shared.0.tasks.ready().set_waker(waker.clone());
    }

    fn begin_turn(shared: &mut Shared, _: Now) {
        shared.0.begin_phase();
    }

    fn end_turn(shared: &mut Shared) {
        shared.0.begin_phase();
    }

    fn next_command(shared: &mut Shared) -> Option<Command<Self>> {
        shared.0.next_command()
    }

    fn next_command_at(shared: &Shared) -> Moment {
        shared.0.next_command_at()
    }

    fn accepted(_: &mut Shared, _: &mut Actions<'_>) -> Self {
        unreachable!("the loop of a runtime has no listener: tasks accept")
    }

    fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let mut channel = self.0.borrow_mut();
        channel.stage = Stage::Open;
        if channel.id.is_none() {
            channel.taken(actions.id(), &shared.0);
        }
        channel.wake_both();
        channel.advance(&shared.0, actions);
    }

    fn connect_failed(&mut self, _: &mut Shared, error: io::Error) {
        self.0.borrow_mut().failed(error);
    }

    fn on_bytes(&mut self, _: &mut Shared, actions: &mut Actions<'_>, input: &[u8]) -> usize {
        let mut channel = self.0.borrow_mut();
        if channel.is_dropped {
            channel.has_unread = true;
            return input.len();
        }
        let len = input.len().min(INPUT_MAX - channel.input.len());
        channel.input.push(&input[..len]);
        if channel.input.len() == INPUT_MAX {
            channel.is_paused = true;
            actions.pause_input();
        }
        channel.wake_reader();
        len
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let mut channel = self.0.borrow_mut();
        channel.has_input_ended = true;
        channel.wake_reader();
        channel.advance(&shared.0, actions);
    }

    fn on_output_sent(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let mut channel = self.0.borrow_mut();
        channel.is_sending = false;
        channel.wake_writer();
        channel.advance(&shared.0, actions);
    }

    fn on_deadline(&mut self, _: &mut Shared, _: &mut Actions<'_>) {
        unreachable!("a stream sets no deadline")
    }

    fn on_wake(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        let mut channel = self.0.borrow_mut();
        channel.is_called = false;
        channel.advance(&shared.0, actions);
    }

    fn on_shutdown(&mut self, _: &mut Shared, _: &mut Actions<'_>) {
        // A runtime ends by dropping its tasks, and streams with them.
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        let mut channel = self.0.borrow_mut();
        if !matches!(channel.stage, Stage::Failed(_)) {
            channel.stage = Stage::Closed(cause);
        }
        channel.output.clear();
        channel.left(&shared.0);
        channel.wake_both();
        shared.0.closed();
    }
}

/// A queue of bytes, taken from the front. Its writer keeps it within a limit.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Moves what is there instead of growing, when that makes the room.
        if self.start > 0 && self.bytes.len() + bytes.len() > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the first `len` bytes away.
    fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.len(), "more than there is");
        self.start += len;
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_their_order_and_an_empty_buffer_gives_its_memory_back() {
        let mut buffer = Buffer::default();
        let mut next_in = 0_u8;
        let mut next_out = 0_u8;
        for round in 0..1000 {
            let piece: Vec<u8> = (0..round % 97).map(|n| next_in.wrapping_add(n as u8)).collect();
            buffer.push(&piece);
            next_in = next_in.wrapping_add(piece.len() as u8);
            let taken = buffer.len().min(round % 89);
            for byte in &buffer.as_slice()[..taken] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            buffer.consume(taken);
        }
        buffer.push(&[0; 100_000]);
        buffer.consume(buffer.len());
        assert!(buffer.is_empty());
        assert!(buffer.bytes.capacity() <= KEPT_BYTES, "{}", buffer.bytes.capacity());
    }
}
