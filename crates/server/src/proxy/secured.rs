//! A side behind TLS: the same calls, on decrypted bytes.
//!
//! What is known of the encryption goes where the connection goes: an upstream connection that another
//! thread takes over has its state in what threads share. Only the holder of the connection touches
//! it, so its lock is free whenever it is asked for.

use std::sync::{Arc, Mutex, MutexGuard};

use pollux_engine::Actions;

use super::session::Side;
use super::shared::ProxyShared;
use crate::tls::{InputEnd, Tls};

/// The encryption of a connection.
pub(super) type SharedTls = Arc<Mutex<Tls>>;

/// What lies between a side and its connection.
#[derive(Debug)]
pub(super) struct Secured {
    tls: SharedTls,
    /// The side was told that the connection is there.
    is_open: bool,
}

impl Secured {
    pub(super) fn new(tls: SharedTls) -> Self {
        Self { tls, is_open: false }
    }

    /// The connection is there; its encryption too when it comes from another thread.
    pub(super) fn connected(
        &mut self,
        side: &mut Side,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
    ) {
        // One that comes back from another thread was told so before.
        self.is_open = false;
        show(&mut lock(&self.tls), &mut self.is_open, side, shared, actions);
    }

    /// Bytes came; all of them are taken.
    pub(super) fn on_bytes(
        &mut self,
        side: &mut Side,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let mut tls = lock(&self.tls);
        let mut rest = input;
        while !rest.is_empty() && !actions.is_ending() {
            if let Err(error) = tls.decrypt(&mut rest) {
                side.tls_failed(shared, Some(&error));
                // The alert that says why still leaves.
                actions.close();
                tls.flush(actions);
                break;
            }
            show(&mut tls, &mut self.is_open, side, shared, actions);
        }
        input.len()
    }

    /// The connection has ended.
    pub(super) fn on_end(
        &mut self,
        side: &mut Side,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
    ) {
        let mut tls = lock(&self.tls);
        tls.end();
        if tls.is_open() {
            return show(&mut tls, &mut self.is_open, side, shared, actions);
        }
        if !tls.is_over() {
            side.tls_failed(shared, None);
        }
        actions.close();
    }

    /// All that was encrypted has left.
    pub(super) fn on_drained(
        &mut self,
        side: &mut Side,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
    ) {
        let mut tls = lock(&self.tls);
        tls.flush(actions);
        if tls.is_open() && !tls.is_waiting() {
            if self.is_open {
                above(&mut tls, shared, actions, |shared, above| side.on_drained(shared, above));
            }
            show(&mut tls, &mut self.is_open, side, shared, actions);
        }
    }

    /// Any other call; afterwards the side may take input again.
    pub(super) fn call(
        &mut self,
        side: &mut Side,
        shared: &mut ProxyShared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut Side, &mut ProxyShared, &mut Actions<'_>),
    ) {
        let mut tls = lock(&self.tls);
        if !tls.is_over() {
            above(&mut tls, shared, actions, |shared, above| call(side, shared, above));
            show(&mut tls, &mut self.is_open, side, shared, actions);
        }
    }
}

fn lock(tls: &Mutex<Tls>) -> MutexGuard<'_, Tls> {
    tls.lock().expect("nothing panics under this lock")
}

/// Tells the side that the connection is there, gives it what was decrypted, and the end behind it.
fn show(
    tls: &mut Tls,
    is_open: &mut bool,
    side: &mut Side,
    shared: &mut ProxyShared,
    actions: &mut Actions<'_>,
) {
    tls.flush(actions);
    if tls.is_open() && !std::mem::replace(is_open, true) {
        above(tls, shared, actions, |shared, above| side.opened(shared, above));
    }
    let takes_input = |actions: &Actions<'_>| !actions.is_input_paused() && !actions.is_ending();
    if takes_input(actions)
        && let Some(plain) = tls.input()
    {
        let used =
            above(tls, shared, actions, |shared, above| side.on_bytes(shared, above, &plain));
        tls.used(plain, used);
    }
    if takes_input(actions)
        && let Some(end) = tls.takes_end()
    {
        above(tls, shared, actions, |shared, above| match end {
            InputEnd::Said => side.on_end(shared, above),
            InputEnd::Cut => side.on_cut(shared, above),
        });
    }
}

/// Calls the side, and encrypts what it sends.
fn above<R>(
    tls: &mut Tls,
    shared: &mut ProxyShared,
    actions: &mut Actions<'_>,
    call: impl FnOnce(&mut ProxyShared, &mut Actions<'_>) -> R,
) -> R {
    let mut room = std::mem::take(&mut shared.plain_room);
    room.resize(Actions::ROOM_MIN, 0);
    let (result, len) = actions.layered(&mut room, |above| call(shared, above));
    tls.encrypt(&room[..len]);
    shared.plain_room = room;
    tls.flush(actions);
    result
}
