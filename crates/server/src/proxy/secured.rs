//! A client's side behind TLS: the same calls, on decrypted bytes.

use pollux_engine::Actions;

use super::client::Client;
use super::shared::ProxyShared;
use crate::tls::Tls;

/// Bytes came; all of them are taken.
pub(super) fn on_bytes(
    tls: &mut Tls,
    client: &mut Client,
    shared: &mut ProxyShared,
    actions: &mut Actions<'_>,
    input: &[u8],
) -> usize {
    let mut rest = input;
    while !rest.is_empty() {
        if let Err(error) = tls.decrypt(&mut rest) {
            shared.refuse_tls(&error);
            // The alert that says why still leaves.
            actions.close();
            tls.flush(actions);
            return input.len();
        }
        show(tls, client, shared, actions);
    }
    input.len()
}

/// The connection has ended.
pub(super) fn on_end(
    tls: &mut Tls,
    client: &mut Client,
    shared: &mut ProxyShared,
    actions: &mut Actions<'_>,
) {
    tls.end();
    if tls.is_open() {
        show(tls, client, shared, actions);
    } else {
        actions.close();
    }
}

/// All that was encrypted has left.
pub(super) fn on_drained(
    tls: &mut Tls,
    client: &mut Client,
    shared: &mut ProxyShared,
    actions: &mut Actions<'_>,
) {
    tls.flush(actions);
    if tls.is_open() && !tls.is_waiting() {
        above(tls, shared, actions, |shared, above| client.on_drained(shared, above));
        show(tls, client, shared, actions);
    }
}

/// Any other call; afterwards the client may take input again.
pub(super) fn call(
    tls: &mut Tls,
    client: &mut Client,
    shared: &mut ProxyShared,
    actions: &mut Actions<'_>,
    call: impl FnOnce(&mut Client, &mut ProxyShared, &mut Actions<'_>),
) {
    if !tls.is_over() {
        above(tls, shared, actions, |shared, above| call(client, shared, above));
        show(tls, client, shared, actions);
    }
}

/// Gives the client what was decrypted, and the end behind it.
fn show(tls: &mut Tls, client: &mut Client, shared: &mut ProxyShared, actions: &mut Actions<'_>) {
    tls.flush(actions);
    if actions.is_input_paused() {
        return;
    }
    if let Some(plain) = tls.input() {
        let used =
            above(tls, shared, actions, |shared, above| client.on_bytes(shared, above, &plain));
        tls.used(plain, used);
    }
    if !actions.is_input_paused() && tls.takes_end() {
        above(tls, shared, actions, |shared, above| client.on_end(shared, above));
    }
}

/// Calls the client, and encrypts what it sends.
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
