//! A chat: each line that a member sends goes to all others. Over TCP or a Unix socket.
//!
//! ```text
//! cargo run -p pollux-engine --example chat -- [ADDRESS] [MECHANISM]
//! cargo run -p pollux-engine --example chat -- unix:/tmp/chat.sock uring
//! ```
//!
//! How sessions of one loop reach each other: what is meant for a member is put into its outbox,
//! and the member is woken. A member that does not read is sent away when its outbox is full, so
//! that no other member waits for it.
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::collections::BTreeMap;
use std::error::Error;

use pollux_engine::{
    Actions, CloseCause, ConnectionId, Driver, EventLoop, Limits, Listener, Session,
};

/// The longest line, in bytes.
const LINE_MAX: usize = 4096;
/// What may wait for one member, in bytes.
const OUTBOX_MAX: usize = 256 * 1024;

/// What waits for each member.
type Outboxes = BTreeMap<ConnectionId, Vec<u8>>;

struct Member {
    id: ConnectionId,
    /// Output is on its way: `on_output_sent` says when it has left.
    is_sending: bool,
}

impl Member {
    fn send(&mut self, outboxes: &mut Outboxes, actions: &mut Actions<'_>) {
        let Some(outbox) = outboxes.get_mut(&self.id) else { return };
        if outbox.len() > OUTBOX_MAX {
            return actions.abort();
        }
        if self.is_sending || outbox.is_empty() {
            return;
        }
        let len = outbox.len().min(actions.room());
        actions.send(&outbox[..len]);
        outbox.drain(..len);
        actions.notify_when_sent();
        self.is_sending = true;
    }
}

impl Session for Member {
    type Shared = Outboxes;

    fn accepted(outboxes: &mut Outboxes, actions: &mut Actions<'_>) -> Self {
        outboxes.insert(actions.id(), Vec::new());
        Self { id: actions.id(), is_sending: false }
    }

    fn on_bytes(
        &mut self,
        outboxes: &mut Outboxes,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let Some(end) = input.iter().rposition(|byte| *byte == b'\n') else {
            if input.len() > LINE_MAX {
                actions.abort();
            }
            // The beginning of a line comes again with the rest of it.
            return 0;
        };
        let lines = &input[..=end];
        for (id, outbox) in outboxes.iter_mut().filter(|(id, _)| **id != self.id) {
            outbox.extend_from_slice(lines);
            actions.wake(*id);
        }
        lines.len()
    }

    fn on_wake(&mut self, outboxes: &mut Outboxes, actions: &mut Actions<'_>) {
        self.send(outboxes, actions);
    }

    fn on_output_sent(&mut self, outboxes: &mut Outboxes, actions: &mut Actions<'_>) {
        self.is_sending = false;
        self.send(outboxes, actions);
    }
    fn closed(self, outboxes: &mut Outboxes, _: CloseCause) {
        outboxes.remove(&self.id);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let driver = arguments.next().map_or(Ok(Driver::default()), |name| name.parse())?;
    let mut event_loop = EventLoop::<Member>::open(driver, BTreeMap::new(), Limits::default())?;
    let listener = Listener::open(&address.parse()?, false)?;
    println!("chat {}", listener.address());
    event_loop.listen(listener, false);
    loop {
        event_loop.turn(None)?;
    }
}
