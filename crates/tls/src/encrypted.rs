//! TLS below a session of the engine: what comes is decrypted before the session sees it, what it sends is encrypted.
//!
//! ```text
//!  bytes ─► Layer ─► plain, kept until used ─► the session ─► room ─► Layer ─► bytes
//! ```
//!
//! [`Encrypted`] is a session and calls another one, which speaks [`PlaintextSession`] and does not know of it. A
//! session's wish to close waits until its last bytes and the `close_notify` behind them have been handed over; its
//! wish to end its output becomes a `close_notify`.

use std::io;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex};

use pollux_engine::{Actions, CloseCause, DeferredClose, Now, Session, Waker};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Error, ServerConfig};

use crate::asking::AskingConfigs;
use crate::client_certs::ClientShown;
use crate::layer::Layer;

/// A session that may have TLS below it.
///
/// Its input, its ends and all else come as without TLS. [`Session::connected`] comes when the handshake is through, on
/// either side, and what the session says before, in calls that do not wait for that, leaves behind the handshake.
pub trait PlaintextSession: Session {
    /// Room for what is sent before it is encrypted; empty until it is needed.
    fn plain_room(shared: &mut Self::Shared) -> &mut Vec<u8>;

    /// What the connections of a listener speak TLS with that [`Encrypted`] accepts by itself; none where another
    /// session accepts them.
    fn server_config(shared: &Self::Shared) -> Option<&Arc<ServerConfig>> {
        let _ = shared;
        None
    }

    /// What the first bytes of a connection begin, on the side of a server. Asked until that is known.
    fn opening(&self, start: &[u8]) -> Opening {
        let _ = start;
        Opening::Tls
    }

    /// The client has asked for this name in its handshake, or for none, on the side of a server;
    /// [`PlaintextSession::secured`] follows.
    fn named(&mut self, shared: &mut Self::Shared, name: Option<&str>) {
        let _ = (shared, name);
    }

    /// The client was asked for a certificate in its handshake, and has shown this, on the side of a server;
    /// [`PlaintextSession::secured`] follows.
    fn identified(
        &mut self,
        shared: &mut Self::Shared,
        actions: &Actions<'_>,
        client: ClientShown,
    ) {
        let _ = (shared, actions, client);
    }

    /// Both sides have agreed on what is spoken above, by ALPN; [`PlaintextSession::secured`] follows.
    fn agreed(&mut self, shared: &mut Self::Shared, protocol: &[u8]) {
        let _ = (shared, protocol);
    }

    /// The handshake is through; `is_resumed` by a session of before.
    fn secured(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>, is_resumed: bool) {
        let _ = is_resumed;
        self.connected(shared, actions);
    }

    /// What came can't be decrypted, or the peer ended the connection in the handshake (`None`). The connection is
    /// about to end, with what is said last.
    fn tls_failed(
        &mut self,
        shared: &mut Self::Shared,
        actions: &Actions<'_>,
        error: Option<&Error>,
    );

    /// The deadline has come in the handshake: whether the connection ends without a word, or has this call
    /// [`Session::on_deadline`], which is so unless the session says otherwise.
    fn ends_slow_handshake(&mut self, shared: &mut Self::Shared) -> bool {
        let _ = shared;
        false
    }

    /// As [`Session::on_end`], where only the transport says so: an attacker on the path may have ended it.
    fn on_cut(&mut self, shared: &mut Self::Shared, actions: &mut Actions<'_>) {
        self.on_end(shared, actions);
    }
}

/// What the first bytes of a connection begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Too few for a verdict. They are kept until more come: a few at most.
    Unknown,
    /// TLS, or nothing that is known.
    Tls,
    /// Not TLS, though the peer understands these bytes, which it gets in place of an alert.
    Plain(Vec<u8>),
}

/// Where the TLS of a connection is kept: with its session, or where other threads find it.
pub trait HoldsTls {
    /// It, for one call.
    fn tls(&mut self) -> impl DerefMut<Target = Tls>;
}

impl HoldsTls for Tls {
    #[inline]
    fn tls(&mut self) -> impl DerefMut<Target = Tls> {
        self
    }
}

impl HoldsTls for Box<Tls> {
    #[inline]
    fn tls(&mut self) -> impl DerefMut<Target = Tls> {
        &mut **self
    }
}

/// The TLS of a connection that goes to other threads. Only the holder of the connection touches it, so its lock is
/// free whenever it is asked for.
#[derive(Clone, Debug)]
pub struct SharedTls(Arc<Mutex<Tls>>);

impl From<Tls> for SharedTls {
    fn from(tls: Tls) -> Self {
        Self(Arc::new(Mutex::new(tls)))
    }
}

impl HoldsTls for SharedTls {
    #[inline]
    fn tls(&mut self) -> impl DerefMut<Target = Tls> {
        self.0.lock().expect("nothing panics under this lock")
    }
}

/// A session, and the TLS below it.
///
/// It opens no connections of its own: [`Session::next_command`] of the session above is not asked.
#[derive(Debug)]
pub struct Encrypted<S, T = Tls> {
    session: S,
    tls: T,
}

impl<S, T> Encrypted<S, T> {
    /// Such a session on a connection with such TLS.
    pub fn new(session: S, tls: T) -> Self {
        Self { session, tls }
    }

    /// The session above.
    pub fn session(&self) -> &S {
        &self.session
    }

    /// The same, to be changed.
    pub fn session_mut(&mut self) -> &mut S {
        &mut self.session
    }

    /// The session alone.
    pub fn into_session(self) -> S {
        self.session
    }
}

impl<S: PlaintextSession, T: HoldsTls + From<Tls>> Session for Encrypted<S, T> {
    type Shared = S::Shared;

    fn opened(shared: &mut S::Shared, waker: &Waker) {
        S::opened(shared, waker);
    }

    fn begin_turn(shared: &mut S::Shared, now: Now) {
        S::begin_turn(shared, now);
    }

    fn end_turn(shared: &mut S::Shared) {
        S::end_turn(shared);
    }

    fn release_memory(shared: &mut S::Shared) {
        S::release_memory(shared);
    }

    fn awake(shared: &S::Shared) -> u32 {
        S::awake(shared)
    }

    fn accepted(shared: &mut S::Shared, actions: &mut Actions<'_>) -> Self {
        let session = S::accepted(shared, actions);
        let config = S::server_config(shared).expect("listeners of TLS have a certificate");
        Self::new(session, Tls::accepted(config).into())
    }

    fn connected(&mut self, shared: &mut S::Shared, actions: &mut Actions<'_>) {
        let mut tls = self.tls.tls();
        // One that comes back from another thread was connected before.
        tls.is_connected = false;
        tls.show(&mut self.session, shared, actions);
    }

    fn connect_failed(&mut self, shared: &mut S::Shared, error: io::Error) {
        self.session.connect_failed(shared, error);
    }

    fn on_bytes(
        &mut self,
        shared: &mut S::Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        self.tls.tls().on_bytes(&mut self.session, shared, actions, input)
    }

    fn on_end(&mut self, shared: &mut S::Shared, actions: &mut Actions<'_>) {
        self.tls.tls().on_end(&mut self.session, shared, actions);
    }

    fn on_output_sent(&mut self, shared: &mut S::Shared, actions: &mut Actions<'_>) {
        self.tls.tls().on_output_sent(&mut self.session, shared, actions);
    }

    fn on_deadline(&mut self, shared: &mut S::Shared, actions: &mut Actions<'_>) {
        let mut tls = self.tls.tls();
        if !tls.layer.is_open() && self.session.ends_slow_handshake(shared) {
            return actions.close();
        }
        tls.call(&mut self.session, shared, actions, S::on_deadline);
    }

    fn on_wake(&mut self, shared: &mut S::Shared, actions: &mut Actions<'_>) {
        self.tls.tls().call(&mut self.session, shared, actions, S::on_wake);
    }

    fn on_shutdown(&mut self, shared: &mut S::Shared, actions: &mut Actions<'_>) {
        self.tls.tls().call(&mut self.session, shared, actions, S::on_shutdown);
    }

    fn output_lost(&mut self, bytes: u64) {
        // In records: a little more than the session has sent.
        self.session.output_lost(bytes);
    }

    fn closed(self, shared: &mut S::Shared, cause: CloseCause) {
        self.session.closed(shared, cause);
    }
}

/// TLS of one connection, and how far it is.
#[derive(Debug)]
pub struct Tls {
    layer: Layer,
    /// The session above was notified that the connection is there.
    is_connected: bool,
    /// The peer has said that it sends no more, or has gone.
    has_ended: bool,
    /// The session was notified of that end.
    is_end_notified: bool,
    /// The session has ended; it is not called any more.
    is_over: bool,
    held: Option<DeferredClose>,
    beginning: Beginning,
    output: Output,
}

/// What is known of the first bytes of a connection.
#[derive(Debug)]
enum Beginning {
    /// Nothing yet; this is what came of them.
    Unknown(Vec<u8>),
    Known,
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

impl Tls {
    /// Of a client that was accepted.
    #[must_use]
    pub fn accepted(config: &Arc<ServerConfig>) -> Self {
        Self::of(Layer::server(config), Beginning::Unknown(Vec::new()))
    }

    /// Of a client that was accepted, and is asked for a certificate, or not, by the name that it asks for.
    #[must_use]
    pub fn asking(configs: &Arc<AskingConfigs>) -> Self {
        Self::of(Layer::asking_server(configs), Beginning::Unknown(Vec::new()))
    }

    /// Of a server of this name that is connected to.
    #[must_use]
    pub fn outgoing(config: &Arc<ClientConfig>, name: &ServerName<'static>) -> Self {
        Self::of(Layer::client(config, name), Beginning::Known)
    }

    fn of(layer: Layer, beginning: Beginning) -> Self {
        Self {
            layer,
            is_connected: false,
            has_ended: false,
            is_end_notified: false,
            is_over: false,
            held: None,
            beginning,
            output: Output::Goes,
        }
    }

    /// Bytes came; all of them are taken.
    fn on_bytes<S: PlaintextSession>(
        &mut self,
        above: &mut S,
        shared: &mut S::Shared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        let Beginning::Unknown(start) = &mut self.beginning else {
            self.decrypt_all(above, shared, actions, input, None);
            return input.len();
        };
        let joined;
        let mut rest = input;
        if !start.is_empty() {
            start.extend_from_slice(input);
            joined = std::mem::take(start);
            rest = &joined;
        }
        let answer = match above.opening(rest) {
            Opening::Unknown => {
                *start = rest.to_vec();
                return input.len();
            }
            Opening::Tls => None,
            Opening::Plain(answer) => Some(answer),
        };
        self.beginning = Beginning::Known;
        self.decrypt_all(above, shared, actions, rest, answer);
        input.len()
    }

    /// Shows the session what is in `rest`; a peer whose bytes are not TLS gets the alert, or
    /// `answer` where there is one.
    fn decrypt_all<S: PlaintextSession>(
        &mut self,
        above: &mut S,
        shared: &mut S::Shared,
        actions: &mut Actions<'_>,
        mut rest: &[u8],
        answer: Option<Vec<u8>>,
    ) {
        while !rest.is_empty() && !actions.is_ending() {
            if let Err(error) = self.decrypt(&mut rest) {
                above.tls_failed(shared, actions, Some(&error));
                return self.fail(actions, &error, answer);
            }
            self.show(above, shared, actions);
        }
    }

    /// Ends a connection whose TLS has failed: with the alert that says why, or `answer` for a client that
    /// speaks no TLS, never with the `close_notify` of a regular end.
    #[cold]
    fn fail(&mut self, actions: &mut Actions<'_>, error: &Error, answer: Option<Vec<u8>>) {
        let alert = self.layer.fail(error);
        let last = answer.unwrap_or(alert);
        if last.len() <= actions.room() {
            actions.send(&last);
        }
        (self.is_over, self.output) = (true, Output::Ended);
        if self.layer.is_server() {
            // What is still on its way would reset the connection, and the peer would not see why.
            actions.linger();
        } else if actions.is_output_waiting() {
            // Nothing that waits is for a peer that can't be understood.
            actions.abort();
        } else {
            actions.close();
        }
    }

    /// The connection has ended.
    fn on_end<S: PlaintextSession>(
        &mut self,
        above: &mut S,
        shared: &mut S::Shared,
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
    fn on_output_sent<S: PlaintextSession>(
        &mut self,
        above: &mut S,
        shared: &mut S::Shared,
        actions: &mut Actions<'_>,
    ) {
        self.flush(actions);
        if self.is_open() && !self.layer.wants_write() {
            if self.is_connected {
                self.layered::<S, _>(shared, actions, |shared, upper| {
                    above.on_output_sent(shared, upper);
                });
            }
            self.show(above, shared, actions);
        }
    }

    /// Any other call; afterwards the session may take input again.
    fn call<S: PlaintextSession>(
        &mut self,
        above: &mut S,
        shared: &mut S::Shared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut S, &mut S::Shared, &mut Actions<'_>),
    ) {
        if !self.is_over {
            self.layered::<S, _>(shared, actions, |shared, upper| call(above, shared, upper));
            self.show(above, shared, actions);
        }
    }

    /// Notifies the session of the connection, of what was decrypted, and of the end behind it.
    fn show<S: PlaintextSession>(
        &mut self,
        above: &mut S,
        shared: &mut S::Shared,
        actions: &mut Actions<'_>,
    ) {
        self.flush(actions);
        if self.is_open() && !std::mem::replace(&mut self.is_connected, true) {
            let is_resumed = self.layer.is_resumed();
            if self.layer.is_server() {
                above.named(shared, self.layer.asked_name());
                if let Some(client) = self.layer.client_shown() {
                    above.identified(shared, actions, client);
                }
            }
            if let Some(protocol) = self.layer.protocol() {
                above.agreed(shared, protocol);
            }
            self.layered::<S, _>(shared, actions, |shared, upper| {
                above.secured(shared, upper, is_resumed);
            });
        }
        let takes_input =
            |actions: &Actions<'_>| !actions.is_input_paused() && !actions.is_ending();
        if takes_input(actions)
            && let Some(plain) = self.input(actions)
        {
            let used = self.layered::<S, _>(shared, actions, |shared, upper| {
                above.on_bytes(shared, upper, &plain)
            });
            self.layer.used(plain, used);
        }
        if takes_input(actions)
            && let Some(end) = self.takes_end(actions)
        {
            self.layered::<S, _>(shared, actions, |shared, upper| match end {
                InputEnd::Said => above.on_end(shared, upper),
                InputEnd::Cut => above.on_cut(shared, upper),
            });
        }
    }

    /// Calls the session, and encrypts what it sends.
    fn layered<S: PlaintextSession, R>(
        &mut self,
        shared: &mut S::Shared,
        actions: &mut Actions<'_>,
        call: impl FnOnce(&mut S::Shared, &mut Actions<'_>) -> R,
    ) -> R {
        if self.layer.wants_write() {
            actions.hold_output();
        }
        let mut room = std::mem::take(S::plain_room(shared));
        room.resize(Actions::ROOM_MIN, 0);
        let (result, len) = actions.layered(&mut room, |upper| call(shared, upper));
        self.layer.encrypt(&room[..len]);
        *S::plain_room(shared) = room;
        self.flush(actions);
        result
    }

    /// Whether the handshake is through and the session may still be called.
    #[inline]
    fn is_open(&self) -> bool {
        self.layer.is_open() && !self.is_over
    }

    /// Takes some of `rest`, and keeps what is decrypted of it.
    ///
    /// # Errors
    /// It is not TLS, nothing that both sides can speak, or the peer can't be believed.
    #[inline]
    fn decrypt(&mut self, rest: &mut &[u8]) -> Result<(), Error> {
        if self.has_ended || self.is_over {
            *rest = &[];
            return Ok(());
        }
        self.layer.decrypt(rest)?;
        self.has_ended |= self.layer.is_closed();
        Ok(())
    }

    /// What the session has to be shown now, if it takes input: `Layer::used` says what became of it.
    #[inline]
    fn input(&mut self, actions: &Actions<'_>) -> Option<Vec<u8>> {
        let may_come = actions.reads_on() || !self.layer.wants_write();
        let is_due = self.is_open() && self.layer.has_input() && may_come;
        is_due.then(|| self.layer.take_input())
    }

    /// How the input has ended, when the session has to be notified now; once.
    #[inline]
    fn takes_end(&mut self, actions: &Actions<'_>) -> Option<InputEnd> {
        let is_quiet = actions.reads_on() || !self.layer.wants_write();
        let is_due = self.has_ended && self.is_open() && is_quiet && !self.is_end_notified;
        self.is_end_notified |= is_due;
        let end = if self.layer.is_closed() { InputEnd::Said } else { InputEnd::Cut };
        is_due.then_some(end)
    }

    /// After each call: sends what is encrypted, and ends where the session wants to.
    #[inline]
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
            actions.notify_when_sent();
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
    use pollux_engine::Rehearsal;

    use super::*;
    use crate::layer::tests::configs;
    use crate::server_name;

    /// What the sessions of these tests share, and what was seen of them.
    struct Shared {
        config: Arc<ServerConfig>,
        plain_room: Vec<u8>,
        seen: Vec<String>,
    }

    /// Repeats lines in capitals. `end` ends its output, `bye` its connection.
    struct Shout;

    impl Session for Shout {
        type Shared = Shared;

        fn accepted(_: &mut Shared, _: &mut Actions<'_>) -> Self {
            Self
        }

        fn connected(&mut self, shared: &mut Shared, _: &mut Actions<'_>) {
            shared.seen.push("connected".to_owned());
        }

        fn on_bytes(
            &mut self,
            shared: &mut Shared,
            actions: &mut Actions<'_>,
            input: &[u8],
        ) -> usize {
            let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
            let line = &input[..end];
            shared.seen.push(String::from_utf8_lossy(line).into_owned());
            match line {
                b"end" => actions.end_output(),
                b"bye" => {
                    actions.send(b"BYE");
                    actions.close();
                }
                line => actions.send(&line.to_ascii_uppercase()),
            }
            end + 1
        }

        fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
            shared.seen.push("(end)".to_owned());
            actions.close();
        }

        fn on_output_sent(&mut self, _: &mut Shared, _: &mut Actions<'_>) {}
    }

    impl PlaintextSession for Shout {
        fn plain_room(shared: &mut Shared) -> &mut Vec<u8> {
            &mut shared.plain_room
        }

        fn server_config(shared: &Shared) -> Option<&Arc<ServerConfig>> {
            Some(&shared.config)
        }

        fn tls_failed(&mut self, shared: &mut Shared, _: &Actions<'_>, error: Option<&Error>) {
            shared.seen.push(format!("(failed: {})", error.is_some()));
        }

        fn on_cut(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
            shared.seen.push("(cut)".to_owned());
            actions.close();
        }
    }

    /// A client, and the encrypted session that it talks to.
    struct Pair<T: HoldsTls + From<Tls>> {
        client: Layer,
        server: Rehearsal<Encrypted<Shout, T>>,
    }

    impl<T: HoldsTls + From<Tls>> Pair<T> {
        fn new() -> Self {
            let (config, client) = configs();
            let shared = Shared { config, plain_room: Vec::new(), seen: Vec::new() };
            let client = Layer::client(&client, &server_name("localhost").expect("a name"));
            let mut pair = Self { client, server: Rehearsal::new(shared, Now::default()) };
            pair.carry();
            assert!(pair.client.is_open());
            pair
        }

        /// Carries bytes both ways until none are left; gives what the client got, decrypted.
        fn carry(&mut self) -> String {
            loop {
                let mut wire = [0; 4096];
                let len = self.client.write(&mut wire);
                self.server.feed(&wire[..len]);
                let output = self.server.take_output();
                let mut rest = &output[..];
                while !rest.is_empty() && !self.client.is_closed() {
                    self.client.decrypt(&mut rest).expect("sound");
                }
                if len == 0 && output.is_empty() {
                    let got = self.client.take_input();
                    let text = String::from_utf8_lossy(&got).into_owned();
                    let len = got.len();
                    self.client.used(got, len);
                    return text;
                }
            }
        }

        fn say(&mut self, text: &str) -> String {
            self.client.encrypt(text.as_bytes());
            self.carry()
        }

        fn seen(&self) -> String {
            self.server.shared.seen.join(" ")
        }
    }

    fn ends_are_said<T: HoldsTls + From<Tls>>() {
        let mut pair = Pair::<T>::new();
        assert_eq!(pair.say("hello\n"), "HELLO");
        // The end of the output is said, and the input continues.
        pair.say("end\n");
        assert!(pair.client.is_closed());
        assert_eq!(pair.server.closed(), None);
        pair.say("more\n");
        assert_eq!(pair.seen(), "connected hello end more");
        pair.client.close();
        pair.carry();
        assert_eq!(pair.seen(), "connected hello end more (end)");
        assert_eq!(pair.server.closed(), Some(CloseCause::Session));

        // A close has its last bytes and its end in front of it.
        let mut pair = Pair::<T>::new();
        assert_eq!(pair.say("bye\nunread\n"), "BYE");
        assert!(pair.client.is_closed());
        assert_eq!(pair.server.closed(), Some(CloseCause::Session));
        assert_eq!(pair.seen(), "connected bye");

        // An end that the peer has not said may be an attacker's.
        let mut pair = Pair::<T>::new();
        pair.say("part");
        pair.server.end();
        assert_eq!(pair.seen(), "connected (cut)");
    }

    #[test]
    fn ends_are_said_and_unsaid_ones_are_cuts_wherever_the_state_is_kept() {
        ends_are_said::<Tls>();
        ends_are_said::<Box<Tls>>();
        ends_are_said::<SharedTls>();
    }

    #[test]
    fn an_early_end_in_the_handshake_is_a_failure_without_an_error() {
        let (config, _) = configs();
        let shared = Shared { config, plain_room: Vec::new(), seen: Vec::new() };
        let mut server = Rehearsal::<Encrypted<Shout>>::new(shared, Now::default());
        server.feed(b"\x16\x03\x01");
        server.end();
        assert_eq!(server.shared.seen, ["(failed: false)"]);
        assert!(server.closed().is_some());
    }
}
