//! Whole conversations of HTTP/2, without a kernel, between the session and the other end of the same protocol.

use std::sync::Arc;

use pollux_engine::{CloseCause, Now, Rehearsal};
use pollux_http::h2::Ask;
use pollux_http::{Field, Method};
use pollux_settings::Given;

use super::*;
use crate::counters::ServerCounters;
use crate::front::epoch::play;
use crate::front::h1::HttpSession;
use crate::front::h2::answers::ECHO_OF_NOTHING;
use crate::log::Logs;

const SECOND: Duration = Duration::from_secs(1);

/// A client, and the server that it talks to.
struct Pair {
    play: Rehearsal<HttpSession>,
    client: Connection<()>,
    scratch: Scratch,
    /// What the client got, one line for each event.
    events: Vec<String>,
    bodies: Vec<(u32, Vec<u8>)>,
    /// Bytes in front are what is to be sent.
    output: Vec<u8>,
}

impl Pair {
    /// Windows that never close.
    const WIDE: u32 = 1 << 30;

    fn new(config: &str) -> Self {
        Self::with_window(config, Self::WIDE)
    }

    fn with_window(config: &str, window: u32) -> Self {
        let mut pair = Self::silent(config, window);
        pair.says(Connection::start);
        pair.exchange();
        pair
    }

    /// A client that has said nothing yet.
    fn silent(config: &str, window: u32) -> Self {
        let config = Given::from_toml(config, "test").read().expect("a configuration");
        let counters = Arc::new(ServerCounters::default());
        Self::of(LoopState::new(&config, counters, &Logs::default()).expect("a state"), window)
    }

    fn of(state: LoopState, window: u32) -> Self {
        let now = Now { at: Moment::from_nanos(1_000_000_000), unix_s: 784_111_777 };
        let settings =
            Settings { stream_window: window, connection_window: Self::WIDE, ..Settings::DEFAULT };
        Self {
            play: Rehearsal::new(state, now),
            client: Connection::new(Role::Client, settings),
            scratch: Scratch::default(),
            events: Vec::new(),
            bodies: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Brings the server what the client has said.
    fn deliver(&mut self) {
        let output = std::mem::take(&mut self.output);
        self.play.feed(&output);
    }

    /// What the client says next.
    fn says<R>(&mut self, say: impl FnOnce(&mut Connection<()>, &mut Output<'_>) -> R) -> R {
        let mut room = vec![0; 1 << 17];
        let mut out = Output::new(&mut room);
        let said = say(&mut self.client, &mut out);
        self.output.extend_from_slice(out.bytes());
        said
    }

    fn asks(&mut self, method: Method<'_>, path: &str, ends: bool) -> u32 {
        let fields = [Field { name: "User-Agent", value: b"test" }];
        let ask = Ask { method, scheme: "http", authority: "a", path, fields: &fields };
        self.says(|client, out| client.ask(out, &ask, ends, ())).expect("a stream is free")
    }

    /// Asks for `/` with this field.
    fn asks_with(&mut self, name: &str, value: &str) -> u32 {
        let fields = [Field { name, value: value.as_bytes() }];
        let method = Method::Get;
        let scheme = "http";
        let authority = "a";
        let path = "/";
        let ask = Ask { method, scheme, authority, path, fields: &fields };
        self.says(|client, out| client.ask(out, &ask, true, ())).expect("a stream is free")
    }

    /// Carries bytes both ways until none are left.
    fn exchange(&mut self) {
        loop {
            let output = std::mem::take(&mut self.output);
            self.play.feed(&output);
            let input = self.play.take_output();
            if input.is_empty() && output.is_empty() {
                return;
            }
            let mut room = vec![0; 1 << 17];
            let mut out = Output::new(&mut room);
            let mut at = 0;
            loop {
                let Self { client, scratch, .. } = self;
                let limits = pollux_http::Limits::DEFAULT;
                let step = client.read(&input[at..], scratch, &mut out, &limits, 0);
                let step = step.expect("the server keeps the rules");
                at += step.used;
                let Some(event) = step.event else { break };
                match event {
                    Event::Response { stream, response, .. } => {
                        self.events.push(format!("{stream}: {}", response.facts.status.code()));
                    }
                    Event::Data { stream, data, .. } => {
                        match self.bodies.iter_mut().find(|(of, _)| *of == stream) {
                            Some((_, body)) => body.extend_from_slice(data),
                            None => self.bodies.push((stream, data.to_vec())),
                        }
                        client.release(&mut out, stream, data.len());
                    }
                    Event::Reset { stream, code, .. } => {
                        self.events.push(format!("{stream}: {code}"));
                    }
                    Event::GoneAway { last, code } => {
                        self.events.push(format!("gone {last}: {code}"));
                    }
                    _ => {}
                }
            }
            assert_eq!(at, input.len(), "frames are whole");
            self.output.extend_from_slice(out.bytes());
        }
    }

    fn events(&mut self) -> String {
        std::mem::take(&mut self.events).join(", ")
    }

    fn body_of(&self, stream: u32) -> &[u8] {
        self.bodies.iter().find(|(of, _)| *of == stream).map_or(&[], |(_, body)| body)
    }

    fn counters(&self) -> &ServerCounters {
        self.play.shared.counters()
    }
}

#[test]
fn requests_of_a_burst_are_answered_in_one_output() {
    let mut pair = Pair::new("reply = 5");
    for _ in 0..32 {
        pair.asks(Method::Get, "/", true);
    }
    let burst = std::mem::take(&mut pair.output);
    pair.play.feed(&burst);
    let answers = pair.play.take_output();
    assert!(answers.len() < 32 * (2 * 9 + 5 + 20) + 200, "{} bytes", answers.len());
    let mut rest = &answers[..];
    let mut frames = [0; 10];
    while let [_, high, low, kind, ..] = *rest {
        frames[usize::from(kind)] += 1;
        rest = &rest[9 + (usize::from(high) << 8) + usize::from(low)..];
    }
    assert_eq!((frames[0], frames[1]), (32, 32), "HEADERS and DATA of each");
    assert_eq!(pair.counters().requests_total(), 32);
    assert_eq!(pair.counters().answers(1), 32);
}

#[test]
fn a_stream_ends_by_the_settings_by_which_it_began() {
    let sites = |routes: &str| format!("[[site]]\nhost = \"*\"\nroute = [ {routes} ]\n");
    let before = sites("{ path = \"/echo\", echo = true }, { path = \"/reply\", reply = 40000 }");
    let mut pair = Pair::of(play::state(&before), 100);
    pair.says(Connection::start);
    let echo = pair.asks(Method::Post, "/echo", false);
    let reply = pair.asks(Method::Post, "/reply", false);
    pair.exchange();
    play::reload(&mut pair.play.shared, &sites("{ path = \"/other\", reply = 7 }"));
    assert_eq!(play::epochs(&mut pair.play.shared), 2);
    for stream in [echo, reply] {
        pair.says(|client, out| client.send_data(out, stream, b"a body", true));
    }
    let gone = pair.asks(Method::Get, "/reply", true);
    let other = pair.asks(Method::Get, "/other", true);
    pair.exchange();
    let events = pair.events();
    for (stream, status) in [(echo, 200), (reply, 200), (gone, 404), (other, 200)] {
        assert!(events.contains(&format!("{stream}: {status}")), "{events}");
    }
    assert_eq!((pair.body_of(echo), pair.body_of(reply).len()), (&b"a body"[..], 40000));
    assert_eq!(pair.body_of(other).len(), 7);
    assert_eq!(play::epochs(&mut pair.play.shared), 1, "nothing goes by the first ones");
}

#[test]
fn large_answers_take_turns_and_arrive_whole() {
    let mut pair = Pair::new("reply = \"1MiB\"");
    let streams: Vec<u32> = (0..4).map(|_| pair.asks(Method::Get, "/", true)).collect();
    pair.exchange();
    for stream in streams {
        assert_eq!(pair.body_of(stream).len(), 1 << 20);
        assert!(pair.body_of(stream).starts_with(b"pollux 0123456789"));
    }
    assert_eq!(pair.counters().value(ServerCounter::Http2WindowStalls), 0);
}

#[test]
fn a_stream_whose_client_opens_no_window_holds_up_no_other_and_is_reset_in_time() {
    let mut pair = Pair::with_window("reply = 40000\nwrite_timeout = \"5s\"", 100);
    let stalled = pair.asks(Method::Get, "/", true);
    let burst = std::mem::take(&mut pair.output);
    pair.play.feed(&burst);
    // The client gets the first hundred bytes, and says nothing of it.
    let first = pair.play.take_output();
    assert!(first.len() > 100 && first.len() < 400, "{}", first.len());
    assert_eq!(pair.counters().value(ServerCounter::Http2WindowStalls), 1);
    let other = pair.asks(Method::Head, "/", true);
    let burst = std::mem::take(&mut pair.output);
    pair.play.feed(&burst);
    assert!(!pair.play.take_output().is_empty(), "the other one is answered");
    pair.play.pass(4 * SECOND);
    assert!(pair.play.take_output().is_empty());
    pair.play.pass(2 * SECOND);
    let end = pair.play.take_output();
    assert_eq!(end[..9], [0, 0, 4, 3, 0, 0, 0, 0, stalled as u8], "RST_STREAM");
    assert_eq!(pair.counters().value(ServerCounter::Http2WindowTimeouts), 1);
    assert_eq!(pair.play.closed(), None);
    assert_eq!(other, 3);
}

#[test]
fn files_are_sent_with_their_conditions_and_an_early_end_of_one_is_that_of_its_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(folder.path().join("large"), &content).expect("written");
    std::fs::write(folder.path().join("small.txt"), "small").expect("written");
    let mut pair = Pair::new(&format!("dir = {:?}", folder.path()));
    let (large, small) =
        (pair.asks(Method::Get, "/large", true), pair.asks(Method::Get, "/small.txt", true));
    let missing = pair.asks(Method::Get, "/missing", true);
    pair.exchange();
    assert!(pair.body_of(large) == content && pair.body_of(small) == b"small");
    assert_eq!(pair.events(), format!("{large}: 200, {small}: 200, {missing}: 404"));

    let mut pair = Pair::with_window(&format!("dir = {:?}", folder.path()), 65_535);
    let large = pair.asks(Method::Get, "/large", true);
    let burst = std::mem::take(&mut pair.output);
    pair.play.feed(&burst);
    std::fs::write(folder.path().join("large"), "cut").expect("written");
    let small = pair.asks(Method::Get, "/small.txt", true);
    pair.exchange();
    assert_eq!(pair.events(), format!("{large}: 200, {small}: 200, {large}: internal_error"));
    assert_eq!((pair.body_of(small), pair.play.closed()), (&b"small"[..], None));
}

#[test]
fn a_body_that_is_echoed_comes_back_while_it_is_sent() {
    let mut pair = Pair::new("echo = true");
    let stream = pair.asks(Method::Post, "/", false);
    let body = vec![b'x'; 500_000];
    let mut at = 0;
    while at < body.len() {
        let len = pair.client.data_room(stream).min(body.len() - at);
        assert!(len > 0, "the window of {at} bytes stays closed");
        let ends = at + len == body.len();
        pair.says(|client, out| client.send_data(out, stream, &body[at..at + len], ends));
        at += len;
        pair.exchange();
    }
    assert_eq!(pair.body_of(stream).len(), body.len());
    assert_eq!(pair.events(), format!("{stream}: 200"));
    assert_eq!(pair.counters().value(ServerCounter::BodyBytes), 500_000);
}

#[test]
fn an_echo_says_what_it_is_where_there_is_no_body() {
    let mut pair = Pair::new("echo = true");
    let get = pair.asks(Method::Get, "/", true);
    let head = pair.asks(Method::Head, "/", true);
    let post = pair.asks(Method::Post, "/", true);
    pair.exchange();
    assert_eq!(pair.body_of(get), ECHO_OF_NOTHING.as_bytes());
    assert!(pair.body_of(head).is_empty() && pair.body_of(post).is_empty());
    assert_eq!(pair.events(), format!("{get}: 200, {head}: 200, {post}: 200"));
}

#[test]
fn bodies_that_are_too_long_or_not_wanted_get_their_answers_and_the_connection_lives() {
    let mut pair = Pair::new("reply = 1\nmax_body = 10");
    let stream = pair.asks(Method::Post, "/", false);
    pair.says(|client, out| client.send_data(out, stream, b"0123456789a", false));
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 413"));
    pair.play.pass(2 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: no_error"));
    let stream = pair.asks(Method::Post, "/", false);
    pair.says(|client, out| client.send_data(out, stream, b"0123456789", true));
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 200"));
    let stream = pair.asks(Method::Trace, "/", true);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 405"));
    assert_eq!(pair.play.closed(), None);
}

#[test]
fn a_body_that_stands_still_gets_408_and_its_stream_ends_alone() {
    let mut pair = Pair::new("reply = 1\nbody_timeout = \"3s\"");
    let stream = pair.asks(Method::Post, "/", false);
    pair.exchange();
    pair.play.pass(4 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 408, {stream}: no_error"));
    assert_eq!(pair.counters().value(ServerCounter::TimeoutsBody), 1);
    assert_eq!(pair.play.closed(), None);
}

#[test]
fn a_connection_that_is_idle_says_so_and_ends() {
    let mut pair = Pair::new("reply = 1\nidle_timeout = \"5s\"");
    pair.asks(Method::Get, "/", true);
    pair.exchange();
    pair.play.pass(4 * SECOND);
    // A ping does not count.
    pair.says(|client, out| client.ping(out, *b"are you?"));
    pair.exchange();
    pair.events();
    pair.play.pass(2 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), "gone 1: no_error");
    assert!(pair.play.closed().is_some());
    assert_eq!(pair.counters().value(ServerCounter::TimeoutsIdle), 1);
}

#[test]
fn a_connection_that_rests_answers_as_before_and_is_idle_for_as_long() {
    let awake = |pair: &Pair| pair.play.shared.streams.resting.awake();
    let mut pair = Pair::new("reply = 1\nidle_timeout = \"9s\"");
    // Before its first stream, too.
    pair.play.pass(SECOND);
    assert_eq!(awake(&pair), 0);
    for round in 0..4 {
        let stream = pair.asks(Method::Get, "/", true);
        pair.exchange();
        assert_eq!(pair.events(), format!("{stream}: 200"), "in round {round}");
        assert_eq!(awake(&pair), 1);
        pair.play.pass(SECOND / 2);
        assert_eq!(awake(&pair), 1);
        pair.play.pass(SECOND / 2);
        assert_eq!(awake(&pair), 0);
    }
    // What makes no request wakes it, and does not keep it.
    pair.play.pass(6 * SECOND);
    pair.says(|client, out| client.ping(out, *b"are you?"));
    pair.exchange();
    assert_eq!(awake(&pair), 1);
    pair.play.pass(SECOND);
    assert_eq!((awake(&pair), pair.play.closed()), (0, None));
    pair.play.pass(SECOND);
    pair.exchange();
    assert_eq!(pair.events(), "gone 7: no_error");
    assert!(pair.play.closed().is_some());
    assert_eq!((awake(&pair), pair.counters().value(ServerCounter::TimeoutsIdle)), (0, 1));
}

#[test]
fn a_connection_that_rests_ends_as_one_that_does_not() {
    let rested = || {
        let mut pair = Pair::new("reply = 1");
        pair.asks(Method::Get, "/", true);
        pair.exchange();
        pair.play.pass(SECOND);
        pair.events();
        pair
    };
    let awake = |pair: &Pair| pair.play.shared.streams.resting.awake();
    let mut pair = rested();
    pair.play.drain();
    pair.exchange();
    let last = (1_u32 << 31) - 1;
    assert_eq!(pair.events(), format!("gone {last}: no_error, gone 1: no_error"));
    assert_eq!((pair.play.closed(), awake(&pair)), (Some(CloseCause::Session), 0));
    let mut pair = rested();
    pair.play.end();
    assert!(pair.play.closed().is_some());
    assert_eq!(awake(&pair), 0);
    // A frame that breaks the rules.
    let mut pair = rested();
    pair.play.feed(b"\0\0\0\x08\0\0\0\0\0");
    pair.exchange();
    assert_eq!(pair.events(), "gone 1: frame_size_error");
}

#[test]
fn a_connection_whose_output_waits_rests_once_it_has_left() {
    let mut pair = Pair::new("reply = 1");
    pair.play.stall();
    pair.asks(Method::Get, "/", true);
    pair.deliver();
    let awake = |pair: &Pair| pair.play.shared.streams.resting.awake();
    for _ in 0..3 {
        pair.play.pass(SECOND);
        assert_eq!(awake(&pair), 1);
    }
    pair.play.flow();
    pair.exchange();
    pair.play.pass(2 * SECOND);
    assert_eq!((awake(&pair), pair.events()), (0, "1: 200".to_owned()));
}

#[test]
fn a_shutdown_says_twice_which_requests_are_answered_and_loses_none() {
    let mut pair = Pair::new("reply = 1");
    pair.asks(Method::Get, "/", true);
    pair.exchange();
    pair.events();
    // A request is on its way while the server says that it ends.
    let late = pair.asks(Method::Get, "/", true);
    let on_its_way = std::mem::take(&mut pair.output);
    pair.play.drain();
    pair.play.feed(&on_its_way);
    pair.exchange();
    let last = (1_u32 << 31) - 1;
    assert_eq!(pair.events(), format!("gone {last}: no_error, {late}: 200, gone {late}: no_error"));
    assert_eq!(pair.play.closed(), Some(CloseCause::Session));
    assert_eq!(pair.counters().goaways(0), 2);
}

#[test]
fn a_client_that_does_not_answer_the_first_goaway_gets_the_second_one_in_time() {
    let mut pair = Pair::new("reply = 1");
    pair.play.drain();
    assert!(!pair.play.take_output().is_empty());
    pair.play.pass(2 * SECOND);
    let second = pair.play.take_output();
    assert_eq!(second[..9], [0, 0, 8, 7, 0, 0, 0, 0, 0], "GOAWAY");
    assert_eq!(pair.play.closed(), Some(CloseCause::Session));
}

#[test]
fn an_attack_ends_the_connection_with_its_code() {
    let mut pair = Pair::new("reply = 1");
    for _ in 0..2000 {
        pair.says(|client, out| client.ping(out, *b"a flood!"));
    }
    let flood = std::mem::take(&mut pair.output);
    pair.play.feed(&flood);
    let answers = pair.play.take_output();
    assert!(answers.len() < 1100 * 17, "{} bytes", answers.len());
    assert_eq!(pair.counters().goaways(11), 1, "enhance_your_calm");
    assert!(pair.play.closed().is_some());
}

#[test]
fn a_server_without_backends_opens_no_tunnels_and_does_not_say_so() {
    let mut pair = Pair::new("reply = 5");
    let ask =
        Ask { method: Method::Connect, scheme: "http", authority: "a", path: "/", fields: &[] };
    let asked = pair.says(|client, out| client.ask_for_protocol(out, &ask, "websocket", ()));
    assert_eq!(asked, None, "it was not allowed");
    // Who asks nevertheless has broken a rule.
    let block = b"\x02\x07CONNECT\x86\x84\x01\x01a\x00\x09:protocol\x09websocket";
    pair.output.extend_from_slice(&[0, 0, block.len() as u8, 1, 4, 0, 0, 0, 1]);
    pair.output.extend_from_slice(block);
    pair.deliver();
    let answer = pair.play.take_output();
    assert_eq!(answer, [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 1], "RST_STREAM, PROTOCOL_ERROR");
}

#[test]
fn without_http_2_its_preface_is_refused_as_before() {
    let config = Given::from_toml("reply = 1\nno_http2 = true", "test").read().expect("right");
    let counters = Arc::new(ServerCounters::default());
    let state = LoopState::new(&config, counters, &Logs::default()).expect("a state");
    let mut play = Rehearsal::<HttpSession>::new(state, Now::default());
    play.feed(pollux_http::h2::PREFACE);
    assert!(play.take_output().starts_with(b"HTTP/1.1 505 "));
}

#[test]
fn a_preface_in_pieces_is_one_and_another_start_is_http_1() {
    let config = Given::from_toml("reply = 1", "test").read().expect("right");
    let start = || {
        let counters = Arc::new(ServerCounters::default());
        let state = LoopState::new(&config, counters, &Logs::default()).expect("a state");
        Rehearsal::<HttpSession>::new(state, Now::default())
    };
    let mut play = start();
    for byte in pollux_http::h2::PREFACE.chunks(1) {
        assert!(play.take_output().is_empty());
        play.feed(byte);
    }
    assert_eq!(play.take_output()[3], 4, "SETTINGS");
    let mut play = start();
    for byte in b"PRI / HTTP/1.1\r\nHost: a\r\n\r\n".chunks(1) {
        play.feed(byte);
    }
    assert!(play.take_output().starts_with(b"HTTP/1.1 501 "));
    let mut play = start();
    play.feed(b"INVALID CONNECTION PREFACE\r\n\r\n");
    assert!(play.take_output().is_empty() && play.closed().is_some());
}

/// Frames that follow each other: their kinds, flags and payloads.
fn frames(mut rest: &[u8]) -> Vec<(u8, u8, &[u8])> {
    let mut frames = Vec::new();
    while let [_, high, low, kind, flags, _, _, _, _, behind @ ..] = rest {
        let (payload, next) = behind.split_at((usize::from(*high) << 8) + usize::from(*low));
        frames.push((*kind, *flags, payload));
        rest = next;
    }
    assert!(rest.is_empty(), "frames are whole");
    frames
}

fn window_update(stream: u8, by: u32) -> Vec<u8> {
    [&[0, 0, 4, 8, 0, 0, 0, 0, stream][..], &by.to_be_bytes()].concat()
}

#[test]
fn a_thousand_refused_requests_behind_output_that_waits_keep_no_thread() {
    let mut pair = Pair::new("reply = \"1MiB\"");
    pair.asks(Method::Get, "/", true);
    pair.play.stall();
    pair.deliver();
    // GET, scheme ftp, path /, authority a.
    let block = [0x82, 0x06, 3, b'f', b't', b'p', 0x84, 0x01, 1, b'a'];
    let ask = |at: u32| [&[0, 0, 10, 1, 5][..], &(2 * at + 3).to_be_bytes(), &block].concat();
    let flight: Vec<u8> = (0..1000).flat_map(ask).collect();
    pair.play.feed(&flight);
    pair.play.flow();
    let output = pair.play.take_output();
    // Status 400 is the twelfth of the static table.
    let sent = frames(&output);
    let answers = sent.iter().filter(|(kind, _, block)| *kind == 1 && block[0] == 0x8c);
    assert!(answers.count() >= 99);
}

#[test]
fn a_body_that_is_too_long_while_output_waits_is_refused_behind_it() {
    let mut pair = Pair::new("reply = \"1MiB\"\nmax_body = 10");
    let large = pair.asks(Method::Get, "/", true);
    let stream = pair.asks(Method::Post, "/", false);
    pair.play.stall();
    pair.deliver();
    pair.says(|client, out| client.send_data(out, stream, b"0123456789a", false));
    pair.deliver();
    pair.play.flow();
    pair.exchange();
    assert_eq!(pair.events(), format!("{large}: 200, {stream}: 413"));
    pair.play.pass(2 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: no_error"));
    assert_eq!(pair.body_of(large).len(), 1 << 20);
}

/// Sends of a body what the window takes, up to so many bytes, which may end it; how many that were.
fn send_refused(pair: &mut Pair, stream: u32, len: usize, ends: bool) -> usize {
    let mut sent = 0;
    while sent < len {
        let piece = pair.client.data_room(stream).min(len - sent);
        if piece == 0 {
            break;
        }
        let ends = ends && sent + piece == len;
        pair.says(|client, out| client.send_data(out, stream, &vec![b'x'; piece], ends));
        sent += piece;
        pair.exchange();
    }
    sent
}

/// httpx and others read no answer before all is sent.
#[test]
fn a_client_that_sends_all_of_a_body_that_is_too_long_gets_413_and_no_reset() {
    // Its length is said or not; with an echo, and with what drops it.
    for (config, length) in [
        ("reply = 1\nmax_body = 100000", None),
        ("reply = 1\nmax_body = 100000", Some("5000000")),
        ("echo = true\nmax_body = 100000", Some("5000000")),
    ] {
        let mut pair = Pair::new(config);
        let stream = match length {
            None => pair.asks(Method::Post, "/", false),
            Some(length) => {
                let fields = [Field { name: "content-length", value: length.as_bytes() }];
                let method = Method::Post;
                let path = "/";
                let ask = Ask { method, scheme: "http", authority: "a", path, fields: &fields };
                let asked = pair.says(|client, out| client.ask(out, &ask, false, ()));
                asked.expect("a stream is free")
            }
        };
        assert_eq!(send_refused(&mut pair, stream, 5_000_000, true), 5_000_000, "{config}");
        pair.play.pass(2 * SECOND);
        pair.exchange();
        assert_eq!(pair.events(), format!("{stream}: 413"), "{config}");
        assert_eq!(pair.counters().streams_open(), 0);
    }
}

#[test]
fn a_body_that_nobody_wants_is_taken_up_to_a_bound_and_no_longer_than_a_body_may_take() {
    let mut pair = Pair::new("reply = 1\nmax_body = 100000\nbody_timeout = \"3s\"");
    let stream = pair.asks(Method::Post, "/", false);
    let sent = send_refused(&mut pair, stream, 100_000_000, true);
    let most = 100_000 + DROPPED_BYTES_MAX as usize;
    assert!((most..most + 200_000).contains(&sent), "{sent}");
    assert_eq!(pair.events(), format!("{stream}: 413, {stream}: no_error"));
    // A byte now and then is not enough.
    let stream = pair.asks(Method::Post, "/", false);
    assert_eq!(send_refused(&mut pair, stream, 100_001, false), 100_001);
    assert_eq!(pair.events(), format!("{stream}: 413"));
    let mut passed = Duration::ZERO;
    while pair.events.is_empty() {
        pair.says(|client, out| client.send_data(out, stream, b"x", false));
        pair.play.pass(SECOND / 2);
        pair.exchange();
        passed += SECOND / 2;
        assert!(passed < 10 * SECOND, "it does not end");
    }
    assert!(passed <= 4 * SECOND, "{passed:?}");
    assert_eq!(pair.events(), format!("{stream}: no_error"));
}

#[test]
fn a_window_that_opens_while_output_waits_is_used_once_that_has_left() {
    let mut pair = Pair::with_window("reply = 100000", 40_000);
    let stream = pair.asks(Method::Get, "/", true);
    pair.play.stall();
    pair.deliver();
    pair.play.feed(&window_update(stream as u8, 60_000));
    pair.play.flow();
    let output = pair.play.take_output();
    assert!(output.len() > 100_000, "{} bytes", output.len());
}

#[test]
fn the_end_of_an_echo_that_comes_while_output_waits_is_sent_once_that_has_left() {
    let mut pair = Pair::new("echo = true");
    let stream = pair.asks(Method::Post, "/", false);
    pair.says(|client, out| client.send_data(out, stream, &[b'x'; 1000], false));
    pair.play.stall();
    pair.deliver();
    pair.says(|client, out| client.send_data(out, stream, &[b'y'; 500], true));
    pair.deliver();
    pair.play.flow();
    let output = pair.play.take_output();
    assert!(output.ends_with(&[b'y'; 500]), "{} bytes", output.len());
}

#[test]
fn echoes_with_long_fields_of_their_own_fit_whatever_their_number() {
    for bytes in [300, 4000] {
        let field = "~".repeat(bytes);
        let mut pair = Pair::new(&format!("echo = true\nresponse_field = \"add X: {field}\""));
        let streams: Vec<u32> = (0..6).map(|_| pair.asks(Method::Post, "/", false)).collect();
        let body = [b'x'; 16_000];
        for stream in &streams {
            pair.says(|client, out| client.send_data(out, *stream, &body, true));
        }
        pair.exchange();
        for stream in streams {
            assert_eq!(pair.body_of(stream), body, "{bytes}");
        }
    }
}

#[test]
fn a_connection_that_begins_during_a_shutdown_gets_its_goaway() {
    let mut pair = Pair::silent("reply = 1", Pair::WIDE);
    pair.play.drain();
    pair.says(Connection::start);
    pair.exchange();
    let last = (1_u32 << 31) - 1;
    assert_eq!(pair.events(), format!("gone {last}: no_error, gone 0: no_error"));
    assert_eq!(pair.play.closed(), Some(CloseCause::Session));
}

#[test]
fn a_shutdown_waits_a_second_for_the_first_settings() {
    let mut pair = Pair::silent("reply = 1\nheader_timeout = \"60s\"", Pair::WIDE);
    pair.play.feed(pollux_http::h2::PREFACE);
    pair.play.drain();
    pair.play.pass(2 * SECOND);
    assert_eq!(pair.play.closed(), Some(CloseCause::Session));
}

#[test]
fn a_client_that_leaves_before_its_settings_is_closed_at_once() {
    let mut pair = Pair::silent("reply = 1", Pair::WIDE);
    pair.play.feed(pollux_http::h2::PREFACE);
    pair.play.end();
    assert_eq!(pair.play.closed(), Some(CloseCause::Session));
    assert_eq!(pair.counters().value(ServerCounter::TimeoutsSilent), 0);
}

#[test]
fn bodies_that_closed_windows_keep_are_few_and_all_requests_get_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), vec![b'x'; 30_000]).expect("written");
    let config = format!("dir = {:?}\nwrite_timeout = \"5s\"", folder.path());
    let heads = |output: &[u8]| frames(output).iter().filter(|(kind, ..)| *kind == 1).count();
    let mut pair = Pair::with_window(&config, 0);
    let streams: Vec<u32> = (0..40).map(|_| pair.asks(Method::Get, "/file", true)).collect();
    pair.deliver();
    assert_eq!(heads(&pair.play.take_output()), 9, "of 30,000 bytes in 256 KiB");
    let opened: Vec<u8> =
        streams.iter().flat_map(|stream| window_update(*stream as u8, 30_000)).collect();
    pair.play.feed(&opened);
    let output = pair.play.take_output();
    let body_bytes: usize =
        frames(&output).iter().filter(|(kind, ..)| *kind == 0).map(|(.., body)| body.len()).sum();
    assert_eq!((heads(&output), body_bytes), (31, 40 * 30_000));

    // One that opens none has its streams reset, and then those that waited.
    let mut pair = Pair::with_window(&config, 0);
    for _ in 0..20 {
        pair.asks(Method::Get, "/file", true);
    }
    pair.deliver();
    assert_eq!(heads(&pair.play.take_output()), 9);
    pair.play.pass(6 * SECOND);
    assert_eq!(heads(&pair.play.take_output()), 9, "the next ones");
    pair.play.pass(6 * SECOND);
    assert_eq!(heads(&pair.play.take_output()), 2);
    assert_eq!(pair.counters().value(ServerCounter::Http2WindowTimeouts), 18);
}

#[test]
fn a_window_that_opens_by_a_byte_now_and_then_holds_no_stream() {
    // Bytes each four seconds; the default is 1 KiB/s, of which no stream has a share for those that could be open beside it.
    for (more, bytes, resets) in
        [("", 1, 1), ("", 60, 1), ("", 2800, 1), ("", 5000, 0), ("read_rate_min = 0", 1, 0)]
    {
        let config = format!("reply = 400000\nwrite_timeout = \"5s\"\n{more}");
        let mut pair = Pair::with_window(&config, 100);
        let stream = pair.asks(Method::Get, "/", true);
        pair.deliver();
        for _ in 0..20 {
            pair.play.pass(4 * SECOND);
            pair.play.feed(&window_update(stream as u8, bytes));
        }
        let timeouts = pair.counters().value(ServerCounter::Http2WindowTimeouts);
        assert_eq!(timeouts, resets, "{bytes} {more}");
    }
}

#[test]
fn streams_that_wait_for_the_window_of_their_connection_share_the_rate() {
    for (bytes, resets) in [(2800, 0), (1000, 2)] {
        let mut pair = Pair::silent("reply = 400000\nwrite_timeout = \"5s\"", Pair::WIDE);
        let settings = Settings { stream_window: Pair::WIDE, ..Settings::DEFAULT };
        pair.client = Connection::new(Role::Client, Settings { connection_window: 0, ..settings });
        pair.says(Connection::start);
        pair.exchange();
        for _ in 0..2 {
            pair.asks(Method::Get, "/", true);
        }
        pair.deliver();
        // They take turns.
        for _ in 0..100 {
            pair.play.pass(2 * SECOND);
            pair.play.feed(&window_update(0, bytes));
        }
        let timeouts = pair.counters().value(ServerCounter::Http2WindowTimeouts);
        assert_eq!(timeouts, resets, "{bytes}");
    }
}

#[test]
fn the_time_of_a_body_stands_while_output_waits() {
    let mut pair = Pair::new("reply = 100000\nbody_timeout = \"3s\"");
    let large = pair.asks(Method::Get, "/", true);
    let stream = pair.asks(Method::Post, "/", false);
    pair.play.stall();
    pair.deliver();
    pair.play.pass(20 * SECOND);
    pair.play.flow();
    pair.play.pass(2 * SECOND);
    pair.says(|client, out| client.send_data(out, stream, b"late", true));
    pair.exchange();
    assert_eq!(pair.events(), format!("{large}: 200, {stream}: 200"));
    let stream = pair.asks(Method::Post, "/", false);
    pair.exchange();
    pair.play.pass(4 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 408, {stream}: no_error"));
}

#[test]
fn a_body_of_a_method_that_is_not_served_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut pair = Pair::new(&format!("dir = {:?}", folder.path()));
    let stream = pair.asks(Method::Post, "/", false);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 405"));
    pair.play.pass(2 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: no_error"));
    assert_eq!(pair.counters().value(ServerCounter::Bodies), 0);
    // One that ends meanwhile is over.
    let stream = pair.asks(Method::Post, "/", false);
    pair.says(|client, out| client.send_data(out, stream, b"body", true));
    pair.exchange();
    pair.play.pass(2 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 405"));
    assert_eq!(pair.counters().streams_open(), 0);
    assert_eq!((pair.counters().requests_total(), pair.counters().refused(1)), (2, 2));
}

#[test]
fn a_body_that_is_not_wanted_may_be_longer_than_a_window() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut pair = Pair::new(&format!("dir = {:?}", folder.path()));
    let stream = pair.asks(Method::Post, "/", false);
    for part in 0..20 {
        let room = pair.says(|client, _| client.data_room(stream));
        assert!(room >= 10_000, "{room} bytes for part {part}");
        pair.says(|client, out| client.send_data(out, stream, &[b'x'; 10_000], part == 19));
        pair.exchange();
    }
    pair.play.pass(2 * SECOND);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 405"), "no reset");
    assert_eq!(pair.counters().streams_open(), 0);
}

#[test]
fn a_malformed_body_of_a_method_that_is_not_served_is_reset_behind_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let mut pair = Pair::new(&format!("dir = {:?}\naccess_log = {log:?}", folder.path()));
    let fields = [Field { name: "content-length", value: b"2" }];
    let ask =
        Ask { method: Method::Post, scheme: "http", authority: "a", path: "/", fields: &fields };
    let stream = pair.says(|client, out| client.ask(out, &ask, false, ())).expect("free");
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 405"));
    pair.says(|client, out| client.send_data(out, stream, b"longer", true));
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: protocol_error"));
    pair.play.pass(2 * SECOND);
    assert_eq!(pair.counters().streams_open(), 0);
    drop(pair);
    let lines = std::fs::read_to_string(log).expect("a log");
    assert_eq!(lines.matches(" 405 ").count(), 1, "{lines}");
    assert_eq!(lines.lines().count(), 1, "{lines}");
}

#[test]
fn an_echo_whose_client_opens_no_window_is_counted_as_one_of_a_window() {
    let mut pair = Pair::with_window("echo = true\nwrite_timeout = \"5s\"", 100);
    let stream = pair.asks(Method::Post, "/", false);
    pair.says(|client, out| client.send_data(out, stream, &[b'x'; 1000], false));
    pair.deliver();
    pair.play.pass(6 * SECOND);
    assert_eq!(pair.counters().value(ServerCounter::Http2WindowTimeouts), 1);
    assert_eq!(pair.counters().value(ServerCounter::TimeoutsBody), 0);
}

#[test]
fn a_window_that_overflows_is_logged_with_what_was_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut pair = Pair::with_window(&format!("reply = 40000\naccess_log = {path:?}"), 100);
    let stream = pair.asks(Method::Get, "/", true);
    pair.deliver();
    pair.play.feed(&window_update(stream as u8, (1 << 31) - 1).repeat(2));
    drop(pair);
    let log = std::fs::read_to_string(&path).expect("a log");
    assert!(log.trim_end().ends_with("\" 200 100"), "{log}");
}

#[test]
fn a_refused_head_request_gets_no_body_and_has_its_line_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let mut pair = Pair::new(&format!("reply = 5\naccess_log = {log:?}"));
    let long = format!("/{}", "a".repeat(20_000));
    for (scheme, path) in [("ftp", "/"), ("http", &*long)] {
        let method = Method::Head;
        let authority = "a";
        let fields = &[][..];
        let ask = Ask { method, scheme, authority, path, fields };
        pair.says(|client, out| client.ask(out, &ask, true, ()));
        pair.exchange();
    }
    assert_eq!(pair.events(), "1: 400, 3: 414");
    assert_eq!((pair.body_of(1), pair.body_of(3)), (&b""[..], &b""[..]));
    drop(pair);
    let log = std::fs::read_to_string(&log).expect("a log");
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].ends_with("\"HEAD / HTTP/2.0\" 400 -"), "{log}");
    assert!(lines[1].contains("\"HEAD /aaaa"), "{log}");
}

#[test]
fn stalled_downloads_keep_few_descriptors_and_small_files_pass_them() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("large"), vec![b'x'; 200_000]).expect("written");
    std::fs::write(folder.path().join("small"), "small").expect("written");
    let open = || {
        let large = folder.path().join("large");
        let links = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
        links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == large)).count()
    };
    let mut pair = Pair::with_window(&format!("dir = {:?}", folder.path()), 1000);
    let large: Vec<u32> = (0..90).map(|_| pair.asks(Method::Get, "/large", true)).collect();
    let small = pair.asks(Method::Get, "/small", true);
    pair.deliver();
    let output = pair.play.take_output();
    assert_eq!(frames(&output).iter().filter(|(kind, ..)| *kind == 1).count(), 17);
    let bodies = frames(&output).into_iter().filter(|(kind, ..)| *kind == 0);
    let bodies: Vec<usize> = bodies.map(|(.., body)| body.len()).collect();
    assert_eq!(bodies, [&[5], &[1000; 16][..]].concat(), "{small} is answered");
    assert_eq!(open(), 16);
    assert_eq!(pair.counters().value(ServerCounter::Http2FilesWaited), 74);
    // One that is given up, and one that is through, make room for two.
    pair.play.feed(&[0, 0, 4, 3, 0, 0, 0, 0, large[0] as u8, 0, 0, 0, 8]);
    pair.play.feed(&window_update(large[1] as u8, 200_000));
    assert_eq!(open(), 16);
    for stream in &large {
        pair.play.feed(&window_update(*stream as u8, 200_000));
    }
    let mut bytes = 0;
    loop {
        let output = pair.play.take_output();
        if output.is_empty() {
            break;
        }
        let data = frames(&output).into_iter().filter(|(kind, ..)| *kind == 0);
        bytes += data.map(|(.., payload)| payload.len()).sum::<usize>();
    }
    assert_eq!(bytes, 89 * 200_000 - 15 * 1000);
    assert_eq!(open(), 0);
}

#[test]
fn a_frame_or_field_block_that_trickles_ends_the_connection_in_time() {
    // GET / of the authority a, in HEADERS alone, and with its last byte in CONTINUATION.
    let block = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    let whole = [&[0, 0, 6, 1, 5, 0, 0, 0, 3][..], &block].concat();
    let (most, last) = block.split_at(5);
    let head = [&[0, 0, 5, 1, 1, 0, 0, 0, 3][..], most].concat();
    let parted = [&head[..], &[0, 0, 1, 9, 4, 0, 0, 0, 3], last].concat();
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"are you?"].concat();
    for (frames, pause_s, is_in_time) in [
        (&whole, 1, false),
        (&parted, 1, false),
        (&ping, 1, false),
        // Seven bytes a second: at most four seconds.
        (&whole, 0, true),
    ] {
        let mut pair = Pair::new("reply = 40000\nheader_timeout = \"5s\"");
        // Another stream is under way all the time, and has the connection not be idle.
        let other = pair.asks(Method::Post, "/", false);
        pair.exchange();
        for (at, byte) in frames.iter().enumerate() {
            if pair.play.closed().is_some() {
                break;
            }
            pair.play.feed(&[*byte]);
            if pause_s > 0 || at % 7 == 6 {
                pair.play.pass(SECOND);
            }
        }
        assert_eq!(pair.play.closed().is_none(), is_in_time, "{frames:?}");
        let counted = pair.counters().value(ServerCounter::TimeoutsHeader);
        assert_eq!(counted, u64::from(!is_in_time), "{other}");
    }
}

#[test]
fn frames_that_are_cut_at_every_read_are_each_in_time_and_data_has_that_of_its_body() {
    let mut pair = Pair::new("reply = 1\nheader_timeout = \"3s\"\nbody_timeout = \"9s\"");
    let stream = pair.asks(Method::Post, "/", false);
    pair.exchange();
    // Whole frames come each two seconds, and half of the next one with them.
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], b"are you?"].concat();
    pair.play.feed(&ping[..9]);
    for _ in 0..3 {
        pair.play.pass(2 * SECOND);
        pair.play.feed(&[&ping[9..], &ping[..9]].concat());
    }
    pair.play.feed(&ping[9..]);
    assert_eq!(pair.play.closed(), None);
    let data = [&[0, 0, 2, 0, 1, 0, 0, 0, stream as u8][..], b"ab"].concat();
    pair.play.feed(&data[..10]);
    pair.play.pass(2 * SECOND);
    pair.play.feed(&data[10..]);
    pair.exchange();
    assert_eq!(pair.events(), format!("{stream}: 200"));
    assert_eq!(pair.play.closed(), None);
}

/// The streams whose DATA follows each other, once for each run of frames, and how many frames each run has.
fn runs_of_data(mut rest: &[u8]) -> Vec<(u8, usize)> {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    while let [_, high, low, kind, _, _, _, _, stream, behind @ ..] = rest {
        rest = &behind[(usize::from(*high) << 8) + usize::from(*low)..];
        match runs.last_mut() {
            _ if *kind != 0 => {}
            Some((last, frames)) if last == stream => *frames += 1,
            _ => runs.push((*stream, 1)),
        }
    }
    runs
}

fn streams(runs: &[(u8, usize)]) -> Vec<u8> {
    runs.iter().map(|(stream, _)| *stream).collect()
}

/// What follows when clients who ask with these priorities open their windows once they have the heads of all answers.
fn runs_of(config: &str, priorities: &[&str]) -> Vec<(u8, usize)> {
    let mut pair = Pair::with_window(config, 0);
    for priority in priorities {
        pair.asks_with("Priority", priority);
    }
    pair.deliver();
    assert_eq!(runs_of_data(&pair.play.take_output()), []);
    pair.play.feed(&initial_window(1 << 30));
    runs_of_data(&pair.play.take_output())
}

fn initial_window(size: u32) -> Vec<u8> {
    [&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4][..], &size.to_be_bytes()].concat()
}

#[test]
fn the_most_urgent_answers_are_sent_first_and_what_is_wanted_whole_one_by_one() {
    let runs = runs_of("reply = 200000", &["u=7", "", "u=0", "u=0"]);
    assert_eq!(streams(&runs)[..3], [5, 7, 3], "{runs:?}");
}

#[test]
fn answers_of_one_urgency_take_turns_where_parts_of_them_are_of_use() {
    let runs = runs_of("reply = 100000", &["u=2, i", "u=2, i"]);
    assert!(runs.len() >= 13, "of seven frames each: {runs:?}");
}

#[test]
fn no_answer_waits_for_ever_behind_more_urgent_ones() {
    let runs = runs_of("reply = \"4MiB\"", &["u=7", "u=0"]);
    // Of some 258 frames of the urgent one each 31st is followed by one of the other.
    let last_of_urgent = runs.iter().rposition(|(stream, _)| *stream == 3).expect("it was sent");
    let others = runs[..last_of_urgent].iter().filter(|(stream, _)| *stream == 1);
    assert_eq!(others.map(|(_, frames)| frames).sum::<usize>(), 8, "{runs:?}");
}

#[test]
fn a_large_answer_begins_without_data_while_a_more_urgent_one_is_sent() {
    let mut pair = Pair::new("reply = 200000");
    pair.asks_with("Priority", "u=0");
    pair.play.stall();
    pair.deliver();
    pair.asks_with("Priority", "u=1");
    pair.deliver();
    pair.play.flow();
    assert_eq!(streams(&runs_of_data(&pair.play.take_output())), [1, 3]);
}

fn priority_update(stream: u8, value: &str) -> Vec<u8> {
    [&[0, 0, 4 + value.len() as u8, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, stream], value.as_bytes()]
        .concat()
}

#[test]
fn a_priority_may_change_before_and_while_a_stream_is_open() {
    let mut pair = Pair::with_window("reply = 100000", 0);
    pair.play.feed(&priority_update(5, "u=1"));
    for _ in 0..3 {
        pair.asks(Method::Get, "/", true);
    }
    pair.deliver();
    assert_eq!(runs_of_data(&pair.play.take_output()), []);
    pair.play.feed(&priority_update(3, "u=0"));
    // A window for all of them.
    pair.play.feed(&initial_window(100_000));
    assert_eq!(streams(&runs_of_data(&pair.play.take_output())), [3, 5, 1]);
}

#[test]
fn a_connection_that_had_its_requests_is_ended_without_a_lost_one() {
    let mut pair = Pair::new("reply = 5\nhttp2_requests = 10");
    for _ in 0..12 {
        pair.asks(Method::Get, "/", true);
    }
    pair.exchange();
    let events = pair.events();
    // Those that were on their way are answered, too.
    assert_eq!(events.matches(": 200").count(), 12, "{events}");
    assert!(events.ends_with("gone 23: no_error"), "{events}");
    assert_eq!(pair.play.closed(), Some(CloseCause::Session));
}

#[test]
fn open_streams_are_counted_until_they_end_with_their_connection() {
    let mut pair = Pair::with_window("reply = 1000", 10);
    for _ in 0..3 {
        pair.asks(Method::Get, "/", true);
    }
    pair.deliver();
    assert_eq!(pair.counters().streams_open(), 3);
    pair.play.feed(&window_update(1, 1000));
    assert_eq!(pair.counters().streams_open(), 2);
    let counters = Arc::clone(pair.play.shared.counters());
    // A frame that no connection survives.
    pair.play.feed(&window_update(1, 0));
    assert!(pair.play.closed().is_some());
    assert_eq!(counters.streams_open(), 0);
}

#[test]
fn large_heads_of_many_streams_are_counted_apart_from_too_many_streams() {
    let mut pair = Pair::with_window("reply = 1000", 10);
    let long = format!("/{}", "a".repeat(7000));
    for _ in 0..90 {
        pair.asks(Method::Get, &long, true);
    }
    pair.deliver();
    let counted = |counter| pair.counters().value(counter);
    assert!(counted(ServerCounter::Http2HeadsRefused) > 0);
    assert_eq!(counted(ServerCounter::Http2StreamsRefused), 0);
}

#[test]
fn bytes_of_heads_are_counted_as_the_client_has_them() {
    let mut pair = Pair::new("reply = 5");
    for _ in 0..20 {
        pair.asks(Method::Get, "/", true);
    }
    let asked = pair.client.block_bytes().asked;
    pair.exchange();
    let counted = |counter| pair.counters().value(counter);
    assert!(asked > 100);
    assert_eq!(counted(ServerCounter::Http2HeadBytesReceived), asked);
    assert_eq!(counted(ServerCounter::Http2HeadBytesSent), pair.client.block_bytes().received);
}
