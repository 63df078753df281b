//! TLS below a session: what comes is decrypted before the session sees it, what it sends is encrypted.
//!
//! ```text
//!  bytes ─► Layer ─► plain, kept until used ─► the session ─► room ─► Layer ─► bytes
//! ```
//!
//! A session's wish to close waits until its last bytes and the `close_notify` behind them have been
//! handed over; its wish to end its output becomes a `close_notify`. The server's and the proxy's
//! sessions call it with every call of theirs, and it calls what speaks `PlaintextSession` it.

use std::sync::{Arc, Mutex, MutexGuard};

use pollux_engine::{Actions, DeferredClose};
use pollux_http::Method;
pub use pollux_tls::{Certificate, Keys, TlsError, Trust};
use pollux_tls::{ClientConfig, Layer, ServerConfig, ServerName};

/// What a client gets that speaks plain HTTP to a server with a certificate: in the words of nginx, which programs know
/// (`pollux load` among them).
const PLAIN_HTTP: &str =
    "400 Bad Request: the plain HTTP request was sent to HTTPS port; use https://\n";
/// What a record of TLS has in front: so much is needed for the verdict that it is none.
const RECORD_HEAD_BYTES: usize = 5;

/// What the first bytes of a connection begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opening {
    /// Too few for a verdict: part of the name of a method, perhaps.
    Unknown,
    /// A request of HTTP in plain text.
    Http { is_head: bool },
    /// TLS, or nothing that is known.
    Other,
}

impl Opening {
    /// A record of TLS begins with 20 to 24, never with a letter: a token and a space are a method, however they
    /// were cut on their way.
    fn of(input: &[u8]) -> Self {
        if !input.first().is_none_or(u8::is_ascii_alphabetic) {
            return Self::Other;
        }
        let window = &input[..input.len().min(Method::BYTES_MAX + 1)];
        let Some(end) = window.iter().position(|byte| *byte == b' ') else {
            let is_cut = window.is_empty() || Method::is_name(window);
            return if is_cut { Self::Unknown } else { Self::Other };
        };
        let method = &window[..end];
        match Method::is_name(method) && method != b"PROXY" {
            false => Self::Other,
            true if input.len() < RECORD_HEAD_BYTES => Self::Unknown,
            true => Self::Http { is_head: method == b"HEAD" },
        }
    }
}

/// What a client gets that speaks plain HTTP: all of it, or for HEAD no more than the head.
fn page_for_plain_http(is_head: bool) -> String {
    let len = PLAIN_HTTP.len();
    let body = if is_head { "" } else { PLAIN_HTTP };
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

/// What speaks above TLS: the calls of a session, on plain bytes.
pub(crate) trait PlaintextSession {
    /// What the sessions of its loop share.
    type Shared;

    /// Room for what is sent before it is encrypted; empty until it is needed.
    fn plain_room(shared: &mut Self::Shared) -> &mut Vec<u8>;

    /// The handshake is through; `is_resumed` by a session of before.
    fn opened(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>, is_resumed: bool);

    /// What came can't be decrypted, or the peer ended the connection in the handshake. The
    /// connection is about to end.
    fn tls_failed(
        &mut self,
        shared: &mut Self::Shared,
        actions: &Actions<'_>,
        error: Option<&pollux_tls::Error>,
    );

    /// Whether its peer is a client of HTTP, which understands a page in plain text.
    fn answers_http(&self) -> bool;

    fn on_bytes(
        &mut self,
        shared: &mut Self::Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize;

    fn on_end(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>);

    /// As `on_end`, where only the transport says so: an attacker on the path may have ended it.
    fn on_cut(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>);

    fn on_drained(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>);
}

/// TLS of one connection.
#[derive(Debug)]
pub(crate) struct Tls {
    layer: Layer,
    /// The session above was notified that the connection is there.
    is_open_notified: bool,
    /// The peer has said that it sends no more, or has gone.
    has_ended: bool,
    /// The session was notified of that end.
    is_end_notified: bool,
    /// The session has ended; it is not called any more.
    held: Option<DeferredClose>,
    is_over: bool,
    /// What the connection begins with is known.
    has_begun: bool,
    /// What came before it was: a method at most.
    start: Vec<u8>,
    output: Output,
}

/// How far the end of the session's output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    Goes,
    /// It is said; the connection's output ends when that has left.
    IsSaid,
    Ended,
}

/// How an input ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InputEnd {
    /// The peer said so.
    Said,
    /// Only the transport did: more may have been meant to come.
    Cut,
}

/// The encryption of a connection. It goes where the connection goes: an upstream connection that another
/// thread takes over has its state in what threads share. Only the holder of the connection touches it,
/// so its lock is free whenever it is asked for.
pub(crate) type SharedTls = Arc<Mutex<Tls>>;

pub(crate) fn lock(tls: &Mutex<Tls>) -> MutexGuard<'_, Tls> {
    tls.lock().expect("nothing panics under this lock")
}

impl Tls {
    /// Of a client.
    pub(crate) fn accepted(config: &Arc<ServerConfig>) -> Self {
        Self::of(Layer::server(config))
    }

    /// Of a server that is connected to.
    pub(crate) fn outgoing(config: &Arc<ClientConfig>, name: &ServerName<'static>) -> Self {
        Self::of(Layer::client(config, name))
    }

    fn of(layer: Layer) -> Self {
        let (is_open_notified, has_ended, is_end_notified) = (false, false, false);
        let (held, is_over, has_begun, output) = (None, false, false, Output::Goes);
        let start = Vec::new();
        Self {
            layer,
            is_open_notified,
            has_ended,
            is_end_notified,
            held,
            is_over,
            has_begun,
            start,
            output,
        }
    }

    /// The connection is there; its encryption too when it comes from another thread.
    pub(crate) fn connected<A: PlaintextSession>(
        &mut self,
        above: &mut A,
        shared: &mut A::Shared,
        actions: &mut Actions<'_>,
    ) {
        // One that comes back from another thread was notified before.
        self.is_open_notified = false;
        self.show(above, shared, actions);
    }

    /// Bytes came; all of them are taken.
    pub(crate) fn on_bytes<A: PlaintextSession>(
        &mut self,
        above: &mut A,
        shared: &mut A::Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let joined;
        let mut rest = input;
        if !self.start.is_empty() {
            self.start.extend_from_slice(input);
            joined = std::mem::take(&mut self.start);
            rest = &joined;
        }
        let is_looked_at = !self.has_begun && self.layer.is_server() && above.answers_http();
        let opening = if is_looked_at { Opening::of(rest) } else { Opening::Other };
        if opening == Opening::Unknown {
            self.start = rest.to_vec();
            return input.len();
        }
        self.has_begun = true;
        while !rest.is_empty() && !actions.is_ending() {
            if let Err(error) = self.decrypt(&mut rest) {
                above.tls_failed(shared, actions, Some(&error));
                self.fail(actions, &error, opening);
                break;
            }
            self.show(above, shared, actions);
        }
        input.len()
    }

    /// Ends a connection whose TLS has failed: with the alert that says why, or a page for a client that
    /// speaks no TLS, never with the `close_notify` of a regular end.
    #[cold]
    fn fail(&mut self, actions: &mut Actions<'_>, error: &pollux_tls::Error, opening: Opening) {
        let alert = self.layer.fail(error);
        let last = match opening {
            Opening::Http { is_head } => page_for_plain_http(is_head).into_bytes(),
            Opening::Unknown | Opening::Other => alert,
        };
        if last.len() <= actions.room() {
            actions.send(&last);
        }
        (self.is_over, self.output) = (true, Output::Ended);
        if self.layer.is_server() {
            // What is still on its way would reset the connection, and the peer would not see why.
            actions.linger();
        } else {
            actions.close();
        }
    }

    /// The connection has ended.
    pub(crate) fn on_end<A: PlaintextSession>(
        &mut self,
        above: &mut A,
        shared: &mut A::Shared,
        actions: &mut Actions<'_>,
    ) {
        self.has_ended = true;
        if self.is_open() {
            return self.show(above, shared, actions);
        }
        if !self.is_over {
            above.tls_failed(shared, actions, None);
        }
        actions.close();
    }

    /// All that was encrypted has left.
    pub(crate) fn on_drained<A: PlaintextSession>(
        &mut self,
        above: &mut A,
        shared: &mut A::Shared,
        actions: &mut Actions<'_>,
    ) {
        self.flush(actions);
        if self.is_open() && !self.layer.wants_write() {
            if self.is_open_notified {
                self.layered::<A, _>(shared, actions, |shared, upper| {
                    above.on_drained(shared, upper);
                });
            }
            self.show(above, shared, actions);
        }
    }

    /// Any other call; afterwards what speaks above may take input again.
    pub(crate) fn call<A: PlaintextSession>(
        &mut self,
        above: &mut A,
        shared: &mut A::Shared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut A, &mut A::Shared, &mut Actions<'_>),
    ) {
        if !self.is_over {
            self.layered::<A, _>(shared, actions, |shared, upper| call(above, shared, upper));
            self.show(above, shared, actions);
        }
    }

    /// Whether the handshake is still under way.
    pub(crate) fn is_in_handshake(&self) -> bool {
        !self.layer.is_open()
    }

    /// Notifies the session above of the connection, of what was decrypted, and of the end behind it.
    fn show<A: PlaintextSession>(
        &mut self,
        above: &mut A,
        shared: &mut A::Shared,
        actions: &mut Actions<'_>,
    ) {
        self.flush(actions);
        if self.is_open() && !std::mem::replace(&mut self.is_open_notified, true) {
            let is_resumed = self.layer.is_resumed();
            self.layered::<A, _>(shared, actions, |shared, upper| {
                above.opened(shared, upper, is_resumed);
            });
        }
        let takes_input =
            |actions: &Actions<'_>| !actions.is_input_paused() && !actions.is_ending();
        if takes_input(actions)
            && let Some(plain) = self.input(actions)
        {
            let used = self.layered::<A, _>(shared, actions, |shared, upper| {
                above.on_bytes(shared, upper, &plain)
            });
            self.layer.used(plain, used);
        }
        if takes_input(actions)
            && let Some(end) = self.takes_end(actions)
        {
            self.layered::<A, _>(shared, actions, |shared, upper| match end {
                InputEnd::Said => above.on_end(shared, upper),
                InputEnd::Cut => above.on_cut(shared, upper),
            });
        }
    }

    /// Calls what speaks above, and encrypts what it sends.
    fn layered<A: PlaintextSession, R>(
        &mut self,
        shared: &mut A::Shared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut A::Shared, &mut Actions<'_>) -> R,
    ) -> R {
        if self.layer.wants_write() {
            actions.hold_output();
        }
        let mut room = std::mem::take(A::plain_room(shared));
        room.resize(Actions::ROOM_MIN, 0);
        let (result, len) = actions.layered(&mut room, |upper| call(shared, upper));
        self.layer.encrypt(&room[..len]);
        *A::plain_room(shared) = room;
        self.flush(actions);
        result
    }

    /// Whether the handshake is through and the session may still be called.
    fn is_open(&self) -> bool {
        self.layer.is_open() && !self.is_over
    }

    /// Takes some of `rest`, and keeps what is decrypted of it.
    ///
    /// # Errors
    /// It is not TLS, nothing that both sides can speak, or the peer can't be believed.
    fn decrypt(&mut self, rest: &mut &[u8]) -> Result<(), pollux_tls::Error> {
        if self.has_ended || self.is_over {
            *rest = &[];
            return Ok(());
        }
        self.layer.decrypt(rest)?;
        self.has_ended |= self.layer.is_closed();
        Ok(())
    }

    /// What the session has to be shown now, if it takes input: `Layer::used` says what became of it.
    fn input(&mut self, actions: &Actions<'_>) -> Option<Vec<u8>> {
        let may_come = actions.reads_on() || !self.layer.wants_write();
        let is_due = self.is_open() && self.layer.has_input() && may_come;
        is_due.then(|| self.layer.take_input())
    }

    /// How the input has ended, when the session has to be notified now; once.
    fn takes_end(&mut self, actions: &Actions<'_>) -> Option<InputEnd> {
        let is_quiet = actions.reads_on() || !self.layer.wants_write();
        let is_due = self.has_ended && self.is_open() && is_quiet && !self.is_end_notified;
        self.is_end_notified |= is_due;
        let end = if self.layer.is_closed() { InputEnd::Said } else { InputEnd::Cut };
        is_due.then_some(end)
    }

    /// After each call: sends what is encrypted, and ends where the session wants to.
    fn flush(&mut self, actions: &mut Actions<'_>) {
        let held = actions.hold_ending();
        if (actions.hold_output_end() || held.is_some()) && self.output == Output::Goes {
            self.layer.close();
            self.output = Output::IsSaid;
        }
        if held.is_some() {
            (self.held, self.is_over) = (held, true);
        }
        while self.layer.wants_write() && actions.room() > 0 {
            let written = self.layer.write(actions.spare());
            actions.advance(written);
        }
        if self.layer.wants_write() {
            actions.call_again();
        } else if let Some(held) = self.held.take() {
            actions.end(held);
        } else if self.output == Output::IsSaid {
            self.output = Output::Ended;
            actions.end_output();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_plain_http_has_its_length_and_none_for_head() {
        let page = page_for_plain_http(false);
        let (head, body) = page.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert_eq!(page_for_plain_http(true), format!("{head}\r\n\r\n"));
    }

    #[test]
    fn a_request_is_one_however_it_is_cut_and_no_record_is_taken_for_one() {
        for (request, is_head) in [
            ("GET / HTTP/1.1\r\n", false),
            ("HEAD / HTTP/1.1\r\n", true),
            ("OPTIONS * HTTP/1.1\r\n", false),
            ("TRACE / HTTP/1.1\r\n", false),
            ("CONNECT a:1 HTTP/1.1\r\n", false),
            ("GET http://a/ HTTP/1.1\r\n", false),
            ("M-SEARCH * HTTP/1.1\r\n", false),
            ("A / HTTP/1.1\r\n", false),
        ] {
            let verdicts = (0..=request.len()).map(|len| Opening::of(&request.as_bytes()[..len]));
            let known: Vec<_> = verdicts.skip_while(|it| *it == Opening::Unknown).collect();
            assert!(!known.is_empty(), "{request}");
            assert!(
                known.iter().all(|it| *it == Opening::Http { is_head }),
                "{request}: {known:?}"
            );
        }
        let endless = [b'A'; Method::BYTES_MAX + 1];
        for other in [
            &b"\x16"[..],
            b"\x16\x03\x01",
            b"\x80GET /",
            b"GE\x00",
            b"\r\n",
            b"PROXY TCP4 ",
            &endless,
        ] {
            assert_eq!(Opening::of(other), Opening::Other, "{}", other.escape_ascii());
        }
    }
}
