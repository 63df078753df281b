//! A server of HTTP/2, driven by a table: what a client sends, what comes of it, at every split of the input. And both ends
//! with each other.

use std::fmt::Write as _;

use pollux_http::h2::{
    Ask, AskHead, Connection, ErrorCode, Event, Fault, KnownBlock, Output, PREFACE, RestingBytes,
    Role, Scratch, Sending, Settings, path_block,
};
use pollux_http::{Field, Limits, Method};

/// Frames.
mod frames {
    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).expect("small").to_be_bytes();
        [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    pub(crate) fn data(stream: u32, payload: &[u8], ends: bool) -> Vec<u8> {
        frame(0, u8::from(ends), stream, payload)
    }

    pub(crate) fn headers(stream: u32, block: &[u8], ends: bool) -> Vec<u8> {
        frame(1, 4 | u8::from(ends), stream, block)
    }

    pub(crate) fn reset(stream: u32, code: u8) -> Vec<u8> {
        frame(3, 0, stream, &[0, 0, 0, code])
    }

    pub(crate) fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
        let bytes =
            |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(4, 0, 0, &entries.iter().flat_map(bytes).collect::<Vec<_>>())
    }

    pub(crate) fn ping() -> Vec<u8> {
        frame(6, 0, 0, b"12345678")
    }

    pub(crate) fn window(stream: u32, by: u32) -> Vec<u8> {
        frame(8, 0, stream, &by.to_be_bytes())
    }
}

use frames::{data, frame, headers, ping, reset, settings, window};

/// `GET /` and `POST /`, both to `a`, without touching a table.
const GET: &[u8] = b"\x82\x86\x84\x01\x01a";
const POST: &[u8] = b"\x83\x86\x84\x01\x01a";

/// A server that answers requests with 204 when they are whole, but those to `/wait`, and takes bodies.
struct Server {
    connection: Connection<()>,
    scratch: Scratch,
    room: Vec<u8>,
    input: Vec<u8>,
    /// Events and frames, in order.
    log: String,
    is_over: bool,
}

const SETTINGS: Settings = Settings { streams_max: 3, ..Settings::DEFAULT };

impl Server {
    fn new() -> Self {
        let connection = Connection::new(Role::Server, SETTINGS);
        let scratch = Scratch::default();
        let room = vec![0; 1 << 16];
        let log = String::new();
        let mut server = Self { connection, scratch, room, input: Vec::new(), log, is_over: false };
        server.feed(PREFACE, 0);
        server
    }

    fn feed(&mut self, bytes: &[u8], now_ms: u64) {
        self.input.extend_from_slice(bytes);
        let Self { connection, scratch, room, input, log, is_over } = self;
        while !*is_over {
            let mut out = Output::new(room);
            let limits = Limits { body_bytes: 100_000, ..Limits::DEFAULT };
            let step = match connection.read(input, scratch, &mut out, &limits, now_ms) {
                Ok(step) => step,
                Err(fault) => {
                    connection.fail(&mut out, &fault);
                    note_frames(out.bytes(), log);
                    *is_over = true;
                    return;
                }
            };
            let used = step.used;
            let Some(event) = step.event else {
                note_frames(out.bytes(), log);
                input.drain(..used);
                return;
            };
            let mut answers = None;
            match event {
                Event::Request { stream, request, ends, .. } => {
                    let target = request.target.text().escape_ascii();
                    let _ = write!(log, "{} {target} {stream}|", request.method);
                    let waits = request.target.text() == b"/wait";
                    answers = (ends && !waits).then_some(stream);
                }
                Event::Refused { stream, rejection, .. } => {
                    let _ = write!(log, "refused {stream} {}|", rejection.status.code());
                }
                Event::Malformed { stream, .. } => {
                    let _ = write!(log, "malformed {stream}|");
                }
                Event::TooMany { stream, .. } => {
                    let _ = write!(log, "too many {stream}|");
                }
                Event::Data { stream, data, ends } => {
                    let _ = write!(log, "{} bytes {stream}|", data.len());
                    connection.release(&mut out, stream, data.len());
                    answers = ends.then_some(stream);
                }
                Event::Trailers { stream, fields, .. } => {
                    let _ = write!(log, "{} trailers {stream}|", fields.count());
                    answers = Some(stream);
                }
                Event::Reset { stream, code, .. } => {
                    let _ = write!(log, "reset {stream} {code}|");
                }
                Event::GoneAway { last, code } => {
                    let _ = write!(log, "gone {last} {code}|");
                }
                Event::PingAnswered { .. } => log.push_str("pong|"),
                Event::WindowOpened => {}
                Event::NoRoom | Event::Response { .. } => panic!("{event:?}"),
            }
            if let Some(stream) = answers {
                connection.send_head(&mut out, stream, b"HTTP/1.1 204 No Content\r\n\r\n", true);
                let _done = connection.take_done(stream);
            }
            note_frames(out.bytes(), log);
            input.drain(..used);
        }
    }
}

impl Server {
    fn send_head(&mut self, stream: u32) {
        let mut out = Output::new(&mut self.room);
        self.connection.send_head(&mut out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
    }

    fn send_data(&mut self, stream: u32, data: &[u8]) {
        let mut out = Output::new(&mut self.room);
        self.connection.send_data(&mut out, stream, data, false);
    }
}

/// The frames that were sent, but for the acknowledgement of settings.
fn note_frames(mut bytes: &[u8], log: &mut String) {
    const KINDS: [&str; 10] = [
        "DATA", "HEADERS", "PRIORITY", "RST", "SETTINGS", "PUSH", "PING", "GOAWAY", "WINDOW",
        "CONT",
    ];
    const CODES: [&str; 14] = [
        "no",
        "protocol",
        "internal",
        "flow",
        "timeout",
        "closed",
        "size",
        "refused",
        "cancel",
        "compression",
        "connect",
        "calm",
        "weak",
        "http11",
    ];
    while bytes.len() >= 9 {
        let len = usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        let kind = bytes[3];
        let stream = bytes[8];
        let payload = &bytes[9..9 + len];
        let _ = match kind {
            3 => write!(log, "->RST {stream} {}|", CODES[usize::from(payload[3])]),
            4 => Ok(()),
            7 => write!(log, "->GOAWAY {} {}|", payload[3], CODES[usize::from(payload[7])]),
            8 => write!(
                log,
                "->WINDOW {stream} {}|",
                u32::from_be_bytes(payload.try_into().expect("four"))
            ),
            _ => write!(log, "->{} {stream}|", KINDS[usize::from(kind)]),
        };
        bytes = &bytes[9 + len..];
    }
}

fn played(input: &[u8], split: usize) -> String {
    let mut server = Server::new();
    server.feed(&input[..split], 0);
    server.feed(&input[split..], 0);
    server.log
}

#[test]
fn every_frame_in_every_state_has_its_outcome_at_every_split() {
    let start = settings(&[]);
    let wait = [b"\x82\x86\x01\x01a".as_slice(), b"\x04\x05/wait"].concat();
    let half_closed = headers(1, &wait, true);
    let open = headers(1, POST, false);
    let closed = headers(1, GET, true);
    let by_us = headers(1, &[GET, b"\x00\x02te\x01x"].concat(), false);
    let length = |digits: &[u8]| [POST, b"\x0f\x0d", &[digits.len() as u8], digits].concat();
    let trailers = b"\x00\x01a\x01b";
    let cases: Vec<(Vec<Vec<u8>>, &str)> = vec![
        // Idle.
        (vec![data(1, b"x", false)], "->GOAWAY 0 protocol|"),
        (vec![reset(1, 8)], "->GOAWAY 0 protocol|"),
        (vec![window(1, 5)], "->GOAWAY 0 protocol|"),
        (vec![frame(2, 0, 1, &[0, 0, 0, 0, 9])], ""),
        (vec![headers(2, GET, true)], "->GOAWAY 0 protocol|"),
        (vec![closed.clone()], "GET / 1|->HEADERS 1|"),
        // Open.
        (
            vec![open.clone(), data(1, b"xy", false), data(1, b"z", true)],
            "POST / 1|2 bytes 1|1 bytes 1|->HEADERS 1|",
        ),
        (
            vec![open.clone(), data(1, b"xy", false), headers(1, trailers, true)],
            "POST / 1|2 bytes 1|1 trailers 1|->HEADERS 1|",
        ),
        (vec![open.clone(), headers(1, trailers, false)], "POST / 1|malformed 1|->RST 1 protocol|"),
        (vec![open.clone(), headers(1, b"\x84", true)], "POST / 1|malformed 1|->RST 1 protocol|"),
        (vec![open.clone(), reset(1, 8)], "POST / 1|reset 1 cancel|"),
        (vec![open.clone(), window(1, 5), frame(2, 0, 1, &[0, 0, 0, 0, 9])], "POST / 1|"),
        // Half closed by the client.
        (vec![half_closed.clone(), data(1, b"x", false)], "GET /wait 1|->GOAWAY 1 closed|"),
        (vec![half_closed.clone(), headers(1, trailers, true)], "GET /wait 1|->GOAWAY 1 closed|"),
        (vec![half_closed.clone(), reset(1, 8)], "GET /wait 1|reset 1 cancel|"),
        (vec![half_closed.clone(), window(1, 5)], "GET /wait 1|"),
        // Closed by both.
        (vec![closed.clone(), data(1, b"x", false)], "GET / 1|->HEADERS 1|->GOAWAY 1 closed|"),
        (vec![closed.clone(), headers(1, GET, true)], "GET / 1|->HEADERS 1|->GOAWAY 1 closed|"),
        (vec![closed.clone(), reset(1, 8), window(1, 5)], "GET / 1|->HEADERS 1|"),
        (vec![closed.clone(), frame(2, 0, 1, &[0, 0, 0, 0, 9])], "GET / 1|->HEADERS 1|"),
        // Reset by the client.
        (
            vec![open.clone(), reset(1, 8), data(1, b"", true)],
            "POST / 1|reset 1 cancel|->GOAWAY 1 closed|",
        ),
        // Reset by the server: the client may not know yet.
        (
            vec![
                by_us.clone(),
                data(1, b"x", false),
                headers(1, trailers, true),
                reset(1, 8),
                window(1, 5),
                headers(3, GET, true),
            ],
            "malformed 1|->RST 1 protocol|GET / 3|->HEADERS 3|",
        ),
        // A number that was left out.
        (
            vec![headers(5, GET, true), headers(3, GET, true)],
            "GET / 5|->HEADERS 5|->GOAWAY 5 protocol|",
        ),
        (
            vec![headers(1, GET, true), headers(5, GET, true), headers(1, GET, true)],
            "GET / 1|->HEADERS 1|GET / 5|->HEADERS 5|->GOAWAY 5 closed|",
        ),
        // Bodies and their lengths.
        (
            vec![headers(1, &length(b"3"), false), data(1, b"xyz", true)],
            "POST / 1|3 bytes 1|->HEADERS 1|",
        ),
        (
            vec![headers(1, &length(b"3"), false), data(1, b"xyzz", false)],
            "POST / 1|malformed 1|->RST 1 protocol|",
        ),
        (
            vec![headers(1, &length(b"3"), false), data(1, b"xy", true)],
            "POST / 1|malformed 1|->RST 1 protocol|",
        ),
        (vec![headers(1, &length(b"3"), true)], "malformed 1|->RST 1 protocol|"),
        (
            vec![
                headers(1, &length(b"3"), false),
                data(1, b"xy", false),
                headers(1, trailers, true),
            ],
            "POST / 1|2 bytes 1|malformed 1|->RST 1 protocol|",
        ),
        (vec![headers(1, &length(b"100001"), false)], "refused 1 413|"),
        // Settings, pings, windows.
        (vec![settings(&[(2, 2)])], "->GOAWAY 0 protocol|"),
        (vec![settings(&[(4, 1 << 31)])], "->GOAWAY 0 flow|"),
        (vec![ping()], "->PING 0|"),
        (vec![frame(6, 1, 0, b"abcdefgh")], "pong|"),
        (vec![window(0, 0)], "->GOAWAY 0 protocol|"),
        (vec![open.clone(), window(1, 0)], "POST / 1|->GOAWAY 1 protocol|"),
        (vec![window(0, (1 << 31) - 1)], "->GOAWAY 0 flow|"),
        (vec![open.clone(), window(1, (1 << 31) - 1)], "POST / 1|malformed 1|->RST 1 flow|"),
        (
            vec![
                open.clone(),
                settings(&[(4, 100)]),
                window(1, (1 << 31) - 101),
                settings(&[(4, 101)]),
            ],
            "POST / 1|->GOAWAY 1 flow|",
        ),
        (vec![frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0, b'x'])], "gone 0 no_error|"),
        (vec![frame(5, 4, 1, &[0, 0, 0, 2])], "->GOAWAY 0 protocol|"),
        (
            vec![frame(0x10, 0, 0, b"\0\0\0\x01u=1"), frame(0x77, 9, 9, b"x"), closed.clone()],
            "GET / 1|->HEADERS 1|",
        ),
        (vec![frame(0x10, 0, 0, b"\0\0\0\x02u=1")], "->GOAWAY 0 protocol|"),
        // Priorities of the old kind.
        (vec![frame(2, 0, 1, &[0, 0, 0, 1, 9])], "->GOAWAY 0 protocol|"),
        (vec![frame(1, 0x25, 1, &[&[0, 0, 0, 1, 9], GET].concat())], "->GOAWAY 0 protocol|"),
        (vec![frame(1, 0x25, 1, &[&[0x80, 0, 0, 0, 9], GET].concat())], "GET / 1|->HEADERS 1|"),
        // Padding that leaves no room for the priority, and a frame that has none.
        (vec![frame(1, 0x2d, 1, &[3, 0, 0, 0, 0, 0, 0, 0])], "->GOAWAY 0 protocol|"),
        (vec![frame(1, 0x25, 1, &[0; 4])], "->GOAWAY 0 size|"),
        // Field blocks.
        (
            vec![frame(1, 1, 1, &GET[..2]), frame(9, 0, 1, &GET[2..3]), frame(9, 4, 1, &GET[3..])],
            "GET / 1|->HEADERS 1|",
        ),
        (vec![frame(1, 1, 1, GET), ping()], "->GOAWAY 0 protocol|"),
        (vec![frame(1, 1, 1, GET), frame(9, 4, 3, b"")], "->GOAWAY 0 protocol|"),
        (vec![frame(1, 1, 1, GET), frame(0x77, 0, 0, b"")], "->GOAWAY 0 protocol|"),
        (vec![frame(9, 4, 1, GET)], "->GOAWAY 0 protocol|"),
        (vec![headers(1, b"\xbe", true)], "->GOAWAY 1 compression|"),
        (vec![headers(1, b"\x82\x86\x84\x0f\x17\0", true)], "malformed 1|->RST 1 protocol|"),
        (vec![headers(1, b"\x82\x86\x84", true)], "malformed 1|->RST 1 protocol|"),
        // Too many at a time: the first ones live, and the tables stay the same.
        (
            (0..4).map(|at| headers(2 * at + 1, POST, false)).chain([data(1, b"", true)]).collect(),
            "POST / 1|POST / 3|POST / 5|too many 7|->RST 7 refused|0 bytes 1|->HEADERS 1|",
        ),
    ];
    for (frames, expected) in cases {
        let input = [start.clone(), frames.concat()].concat();
        for split in 0..=input.len() {
            assert_eq!(played(&input, split), expected, "{frames:x?} split at {split}");
        }
    }
}

#[test]
fn what_is_not_http_2_ends_at_its_first_wrong_byte() {
    let fails = |input: &[u8]| {
        let mut server = Connection::<()>::new(Role::Server, SETTINGS);
        let mut room = [0; 1024];
        let mut scratch = Scratch::default();
        let read =
            server.read(input, &mut scratch, &mut Output::new(&mut room), &Limits::DEFAULT, 0);
        read.map(|step| step.used).map_err(|fault| fault.code.name())
    };
    assert_eq!(fails(b"GET / HTTP/1.1\r\n"), Err("protocol_error"));
    assert_eq!(fails(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"), Ok(0));
    assert_eq!(fails(b"PRI * HTTP/2.0\r\n\r\nSM\r\nx"), Err("protocol_error"));
    assert_eq!(fails(&[PREFACE, &headers(1, GET, true)].concat()), Err("protocol_error"));
    assert_eq!(fails(&[PREFACE, b"\0\x40\x01\x04\0\0\0\0\0"].concat()), Err("frame_size_error"));
}

const ROUNDS: u32 = 60_000;

/// How many times `frames` can be sent, `apart_ms` apart, before the connection ends, and how.
fn endured(mut frames: impl FnMut(u32) -> Vec<u8>, apart_ms: u64) -> (u32, String) {
    let mut server = Server::new();
    server.feed(&settings(&[]), 0);
    // The client knows the settings.
    server.feed(&frame(4, 1, 0, b""), 0);
    for round in 0..ROUNDS {
        server.log.clear();
        server.feed(&frames(round), u64::from(round) * apart_ms);
        if server.is_over {
            return (round, server.log.split("->GOAWAY").nth(1).unwrap_or_default().into());
        }
    }
    (ROUNDS, String::new())
}

#[test]
fn each_attack_is_ended_at_its_limit() {
    let id = |round: u32| 2 * round + 1;
    let rapid = |round| [headers(id(round), POST, false), reset(id(round), 8)].concat();
    let (rounds, end) = endured(rapid, 0);
    assert!(rounds == 500 && end.ends_with(" calm|"), "rapid reset: {rounds} {end}");
    // One at the pace of ten clients whose requests time out is not an attacker.
    assert_eq!(endured(rapid, 10).0, ROUNDS);

    let bad = [GET, b"\x00\x02te\x01x"].concat();
    assert_eq!(endured(|round| headers(id(round), &bad, true), 0).0, 500, "malformed");
    let unfinished = |round: u32| headers(id(round), POST, false);
    assert_eq!(endured(unfinished, 0).0, 503, "streams beyond the limit");
    let mut server = Server::new();
    server.feed(&settings(&[]), 0);
    let rounds = (0..ROUNDS).take_while(|round| {
        server.feed(&unfinished(*round), 0);
        !server.is_over
    });
    assert_eq!(rounds.count(), 603, "streams beyond a limit that the client does not acknowledge");

    for (what, flood) in [
        ("pings", ping()),
        ("settings", settings(&[(3, 1)])),
        ("priorities", frame(2, 0, 1, &[0, 0, 0, 0, 9])),
        ("priority updates", frame(0x10, 0, 0, b"\0\0\0\x01u=1")),
        ("unknown frames", frame(0x77, 0, 0, b"")),
        ("small window updates", window(0, 1)),
        ("acknowledgements of settings", frame(4, 1, 0, b"")),
        ("answers to no PING", frame(6, 1, 0, b"12345678")),
        ("GOAWAY", frame(7, 0, 0, &[0; 8])),
    ] {
        let (rounds, end) = endured(|_| flood.clone(), 0);
        assert!(rounds == 1000 && end.ends_with(" calm|"), "{what}: {rounds} {end}");
    }

    let empty = |round| if round == 0 { headers(1, POST, false) } else { data(1, b"", false) };
    assert_eq!(endured(empty, 0).0, 11, "empty DATA");
    let tiny = |round| if round == 0 { headers(1, POST, false) } else { data(1, b"x", false) };
    assert_eq!(endured(tiny, 0).0, 50_001, "DATA of a byte");

    let endless = |round| match round {
        0 => frame(1, 1, 1, GET),
        _ => frame(9, 0, 1, b"\x00\x01a\x01b"),
    };
    assert_eq!(endured(endless, 0), (15, " 0 calm|".into()), "CONTINUATION");
    let huge = |round| frame(if round == 0 { 1 } else { 9 }, 0, 1, &[0; 16_384]);
    assert_eq!(endured(huge, 0).0, 6, "a huge block");
    let empty = |round| frame(if round == 0 { 1 } else { 9 }, 0, 1, b"");
    assert_eq!(endured(empty, 0).0, 1, "empty CONTINUATION");

    // Fields behind the end that was announced, and on a stream that was reset.
    let mut server = Server::new();
    server.feed(&settings(&[]), 0);
    server.connection.end(&mut Output::new(&mut server.room));
    let rounds = (0..ROUNDS).take_while(|round| {
        server.feed(&headers(id(*round), GET, true), 0);
        !server.is_over
    });
    assert_eq!(rounds.count(), 1000, "HEADERS behind GOAWAY");
    let late = |round| headers(1, if round == 0 { &bad } else { b"" }, round > 0);
    assert_eq!(endured(late, 0).0, 1001, "trailers of a stream that was reset");

    // A window of a byte, and a byte of an answer for it.
    let mut server = Server::new();
    server.feed(&[settings(&[(4, 0)]), headers(1, WAIT, true)].concat(), 0);
    server.send_head(1);
    let rounds = (0..ROUNDS).take_while(|_| {
        server.feed(&window(1, 1), 0);
        if server.connection.data_room(1) > 0 {
            server.send_data(1, b"x");
        }
        !server.is_over
    });
    assert_eq!(rounds.count(), 1004, "a dribble of an answer");
}

/// `GET /wait`, which is not answered at once.
const WAIT: &[u8] = b"\x82\x86\x01\x01a\x04\x05/wait";

/// grpc-go has a PING under way whenever DATA arrives, and gives the window back before it.
#[test]
fn a_grpc_client_that_measures_each_round_trip_of_a_millisecond_is_served() {
    let mut server = Server::new();
    server.feed(&[settings(&[]), frame(4, 1, 0, b""), headers(1, WAIT, true)].concat(), 0);
    server.send_head(1);
    for now_ms in 0..60_000 {
        server.log.clear();
        server.send_data(1, &[0; 25]);
        let mut answer = [window(0, 25), ping()].concat();
        if now_ms % 500 == 0 {
            answer.extend(window(1, 500 * 25));
        }
        server.feed(&answer, now_ms);
        assert!(!server.is_over, "after {now_ms} ms: {}", server.log);
    }
}

/// The same of a backend, with four messages in each round trip.
#[test]
fn a_grpc_backend_that_measures_each_round_trip_is_asked() {
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut room = vec![0; 4096];
    let mut scratch = Scratch::default();
    let ask = Ask { method: Method::Post, scheme: "http", authority: "a", path: "/", fields: &[] };
    assert_eq!(client.ask(&mut Output::new(&mut room), &ask, false, ()), Some(1));
    let mut input = settings(&[]);
    for now_ms in 0..60_000 {
        let mut at = 0;
        loop {
            let mut out = Output::new(&mut room);
            let step = client.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, now_ms);
            let step = step.unwrap_or_else(|fault| panic!("{fault} after {now_ms} ms"));
            at += step.used;
            if step.event.is_none() {
                break;
            }
        }
        input.clear();
        for _ in 0..4 {
            client.send_data(&mut Output::new(&mut room), 1, &[0; 25], false);
            input.extend([window(0, 25), window(1, 25)].concat());
        }
        input.extend(ping());
    }
}

#[test]
fn small_messages_of_grpc_are_taken_at_every_pace_of_a_busy_stream() {
    for a_second in [500, 5_000, 40_000] {
        let mut server = Server::new();
        server.feed(&[settings(&[]), frame(4, 1, 0, b""), headers(1, POST, false)].concat(), 0);
        for message in 0..(60 * a_second).min(200_000) {
            server.log.clear();
            server.feed(&data(1, &[0; 25], false), message * 1000 / a_second);
            assert!(!server.is_over, "message {message} of {a_second}/s: {}", server.log);
        }
    }
}

#[test]
fn a_head_within_the_announced_limit_is_served_and_one_beyond_it_gets_431() {
    let limit = Limits::DEFAULT.head_bytes;
    let played = |value_bytes: usize| {
        let mut block = [GET, b"\x00\x01a\x7f"].concat();
        let mut left = value_bytes - 127;
        while left >= 128 {
            block.push(0x80 | (left % 128) as u8);
            left /= 128;
        }
        block.push(left as u8);
        block.resize(block.len() + value_bytes, b'x');
        let mut frames = settings(&[]);
        let many = block.chunks(16_384).count();
        for (at, piece) in block.chunks(16_384).enumerate() {
            let (kind, ends) = if at == 0 { (1, 1) } else { (9, 0) };
            frames.extend(frame(kind, ends | if at + 1 == many { 4 } else { 0 }, 1, piece));
        }
        frames.extend(headers(3, GET, true));
        played(&frames, 0)
    };
    let next = "GET / 3|->HEADERS 3|";
    assert_eq!(played(limit - 100), format!("GET / 1|->HEADERS 1|{next}"));
    assert_eq!(played(limit + 100), format!("refused 1 431|{next}"));
    assert_eq!(played(2 * limit), format!("refused 1 431|{next}"));
    assert_eq!(played(3 * limit), "->GOAWAY 0 calm|");
}

/// Feeds `total` requests, of which `is_cancelled` are reset before their answers, `a_second` in each second.
fn cancelling(total: u32, a_second: u32, is_cancelled: impl Fn(u32) -> bool) {
    let mut server = Server::new();
    server.feed(&[settings(&[]), frame(4, 1, 0, b"")].concat(), 0);
    for request in 0..total {
        server.log.clear();
        let id = 2 * request + 1;
        let frames = if is_cancelled(request) {
            [headers(id, WAIT, true), reset(id, 8)].concat()
        } else {
            headers(id, GET, true)
        };
        server.feed(&frames, u64::from(request) * 1000 / u64::from(a_second));
        assert!(!server.is_over, "request {request}: {}", server.log);
    }
}

#[test]
fn a_proxy_of_which_one_request_in_a_hundred_is_cancelled_is_served() {
    cancelling(100_000, 5_000, |request| request % 100 == 99);
}

#[test]
fn a_browser_may_cancel_half_of_the_images_of_a_page() {
    cancelling(600, 300, |request| request < 300);
    cancelling(600, 300, |request| request >= 300);
    cancelling(600, 300, |request| request % 2 == 1);
}

#[test]
fn a_client_whose_requests_all_time_out_keeps_its_connection() {
    cancelling(6_000, 100, |_| true);
}

/// Frames of a stream that was refused may be on their way still.
#[test]
fn empty_ends_of_refused_streams_are_not_held_against_a_client() {
    let mut server = Server::new();
    server.feed(&[settings(&[]), frame(4, 1, 0, b"")].concat(), 0);
    let open: Vec<u8> = (0..3).flat_map(|at| headers(2 * at + 1, POST, false)).collect();
    server.feed(&open, 0);
    let id = |at: u32| 2 * at + 1;
    let late: Vec<u8> = (3..33).flat_map(|at| headers(id(at), POST, false)).collect();
    let ends: Vec<u8> = (3..33).flat_map(|at| data(id(at), b"", true)).collect();
    server.feed(&[late, ends].concat(), 0);
    assert!(!server.is_over, "{}", server.log);
}

#[test]
fn a_bomb_of_references_is_answered_by_431_or_ends_the_connection() {
    // One cookie crumb of 3000 bytes, then references to it.
    let mut block = [GET, b"\x40\x06cookie\x7f\xb9\x16"].concat();
    block.extend_from_slice(&[b'c'; 3000]);
    let references = |many| [&block[..], &[0xbe].repeat(many)].concat();
    let played = |block: &[u8]| played(&[settings(&[]), headers(1, block, true)].concat(), 0);
    assert_eq!(played(&references(10)), "GET / 1|->HEADERS 1|");
    assert_eq!(played(&references(20)), "refused 1 431|");
    assert_eq!(played(&references(4000)), "->GOAWAY 1 calm|");
}

#[test]
fn a_repeated_answer_takes_at_most_twenty_bytes_of_head() {
    let head = b"HTTP/1.1 200 OK\r\nServer: pollux\r\nDate: Thu, 26 Nov 2026 12:00:00 GMT\r\n\
        Content-Type: text/html; charset=utf-8\r\nContent-Length: 5120\r\nAccept-Ranges: bytes\r\n\
        Last-Modified: Thu, 26 Nov 2026 11:00:00 GMT\r\nETag: \"0123456789abcdef\"\r\n\
        Vary: Accept-Encoding\r\nCache-Control: max-age=60\r\n\r\n";
    let mut server = Connection::<()>::new(Role::Server, Settings::DEFAULT);
    let mut room = vec![0; 4096];
    let mut scratch = Scratch::default();
    let mut lens = Vec::new();
    let mut input = [PREFACE, &settings(&[])].concat();
    for round in 0..5 {
        input.extend(headers(2 * round + 1, GET, true));
        let mut out = Output::new(&mut room);
        let mut at = 0;
        loop {
            let step = server.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("sound");
            at += step.used;
            match step.event {
                Some(Event::Request { stream, .. }) => {
                    let before = out.len();
                    server.send_head(&mut out, stream, head, true);
                    lens.push(out.len() - before - 9);
                    server.take_done(stream).expect("both have ended");
                }
                Some(_) => {}
                None => break,
            }
        }
        input.clear();
    }
    assert!(lens[2..].iter().all(|len| *len <= 20), "{lens:?}");
    assert_eq!(lens[4], 10, "an index for each field: {lens:?}");
}

/// What one end keeps of a stream: bytes to send, bytes received.
#[derive(Default)]
struct Transfer {
    left: usize,
    received: usize,
}

struct End {
    connection: Connection<Transfer>,
    scratch: Scratch,
    input: Vec<u8>,
    done: Vec<usize>,
}

impl End {
    fn new(role: Role) -> Self {
        let settings =
            Settings { stream_window: 20_000, connection_window: 70_000, ..Settings::DEFAULT };
        let connection = Connection::new(role, settings);
        Self { connection, scratch: Scratch::default(), input: Vec::new(), done: Vec::new() }
    }

    /// Reads what has come, up to `len` bytes of it, and sends what the windows allow.
    fn turn(&mut self, len: usize) -> Vec<u8> {
        let mut room = vec![0; 1 << 18];
        let mut out = Output::new(&mut room);
        let len = len.min(self.input.len());
        let mut at = 0;
        loop {
            let input = &self.input[at..len];
            let step =
                self.connection.read(input, &mut self.scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("both are sound");
            at += step.used;
            let Some(event) = step.event else { break };
            let connection = &mut self.connection;
            match event {
                Event::Request { stream, .. } => {
                    connection.send_head(
                        &mut out,
                        stream,
                        b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n",
                        false,
                    );
                    connection.data_mut(stream).expect("open").left = BODY_BYTES;
                }
                Event::Data { stream, data, .. } => {
                    connection.data_mut(stream).expect("open").received += data.len();
                    connection.release(&mut out, stream, data.len());
                }
                Event::Response { .. } | Event::WindowOpened => {}
                other => panic!("{:?}", std::mem::discriminant(&other)),
            }
        }
        self.input.drain(..at);
        let streams: Vec<u32> = self.connection.streams().map(|(stream, _)| stream).collect();
        for stream in streams {
            let len = self.connection.data_room(stream);
            let transfer = self.connection.data_mut(stream).expect("open");
            let len = len.min(transfer.left);
            transfer.left -= len;
            let ends = transfer.left == 0;
            if len > 0 && !self.connection.has_ended(stream) {
                self.connection.send_data(&mut out, stream, &vec![b'x'; len], ends);
            }
            if let Some(done) = self.connection.take_done(stream) {
                self.done.push(done.received);
            }
        }
        assert!(!out.is_short());
        out.bytes().to_vec()
    }
}

const BODY_BYTES: usize = 200_000;

#[test]
fn ten_bodies_both_ways_arrive_whole_within_small_windows() {
    let mut client = End::new(Role::Client);
    let mut server = End::new(Role::Server);
    let mut room = [0; 4096];
    let mut out = Output::new(&mut room);
    client.connection.start(&mut out);
    for _ in 0..10 {
        let fields = [Field { name: "X-Own", value: b"v" }];
        let ask = Ask {
            method: Method::Post,
            scheme: "http",
            authority: "a",
            path: "/",
            fields: &fields,
        };
        let transfer = Transfer { left: BODY_BYTES, received: 0 };
        assert!(client.connection.ask(&mut out, &ask, false, transfer).is_some());
    }
    server.input.extend_from_slice(out.bytes());
    let mut out = Output::new(&mut room);
    server.connection.start(&mut out);
    client.input.extend_from_slice(out.bytes());
    let mut turns = 0;
    while client.done.len() < 10 {
        let len = 1 + turns * 7919 % 30_000;
        server.input.extend(client.turn(len));
        client.input.extend(server.turn(len));
        turns += 1;
        assert!(turns < 20_000, "they wait for each other");
    }
    assert_eq!(client.done, [BODY_BYTES; 10]);
    while server.done.len() < 10 {
        server.turn(usize::MAX);
    }
    assert_eq!(server.done, [BODY_BYTES; 10]);
}

#[test]
fn a_drain_says_twice_which_streams_are_taken() {
    let mut server = Server::new();
    server.feed(&settings(&[]), 0);
    server.log.clear();
    let mut room = [0; 256];
    let mut out = Output::new(&mut room);
    server.connection.announce_end(&mut out);
    server.connection.ping(&mut out, *b"drained?");
    note_frames(out.bytes(), &mut server.log);
    server.feed(&headers(1, GET, true), 0);
    let mut out = Output::new(&mut room);
    server.connection.end(&mut out);
    note_frames(out.bytes(), &mut server.log);
    // On its way before the client knew: decoded, not answered.
    server.feed(&headers(3, b"\x82\x86\x84\x41\x01b", true), 0);
    server.feed(&data(3, b"", true), 0);
    assert_eq!(server.log, "->GOAWAY 255 no|->PING 0|GET / 1|->HEADERS 1|->GOAWAY 1 no|");
    assert!(!server.is_over);
}

/// HPACK makes a head of 40 KB of 30 bytes: those of all open streams have one limit.
#[test]
fn large_heads_of_a_hundred_open_streams_are_bounded_and_small_ones_are_not() {
    let many = |times: usize, bytes: usize| {
        let mut connection = Connection::<usize>::new(Role::Server, Settings::DEFAULT);
        let mut room = vec![0; 1 << 16];
        let mut scratch = Scratch::default();
        let mut input = [PREFACE, &settings(&[])].concat();
        let first = [POST, b"\x40\x01a\x7f\x81", &[(bytes >> 7) as u8 - 1], &vec![b'c'; bytes]];
        for at in 0..100 {
            let block = match at {
                0 => first.concat(),
                _ => [POST, &[0xbe].repeat(times)].concat(),
            };
            input.extend(headers(2 * at + 1, &block, false));
        }
        let mut out = Output::new(&mut room);
        let mut at = 0;
        let mut refused = 0;
        loop {
            let step = connection.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("sound");
            at += step.used;
            match step.event {
                Some(Event::Request { stream, head, .. }) => {
                    let len = head.len();
                    *connection.data_mut(stream).expect("open") = len;
                }
                Some(Event::TooMany { .. }) => refused += 1,
                Some(_) => {}
                None => break,
            }
        }
        (refused, connection.streams().map(|(_, len)| *len).sum::<usize>())
    };
    let (refused, kept) = many(12, 3200);
    assert!(refused >= 85 && kept <= 520 * 1024, "{refused} {kept}");
    assert_eq!(many(1, 3200).0, 0);
}

#[test]
fn resets_of_twice_the_streams_that_may_be_open_are_remembered() {
    let settings_of = Settings { streams_max: 300, ..Settings::DEFAULT };
    let mut server = Server::new();
    server.connection = Connection::new(Role::Server, settings_of);
    server.feed(&[PREFACE, &settings(&[]), &frame(4, 1, 0, b"")].concat(), 0);
    let open: Vec<u8> = (0..300).flat_map(|at| headers(2 * at + 1, POST, false)).collect();
    server.feed(&open, 0);
    for at in 0..300 {
        let mut out = Output::new(&mut server.room);
        assert!(server.connection.reset(&mut out, 2 * at + 1, ErrorCode::CANCEL).is_some());
    }
    let late: Vec<u8> = (0..300).flat_map(|at| data(2 * at + 1, b"", true)).collect();
    server.feed(&late, 0);
    assert!(!server.is_over, "{}", server.log);
}

#[test]
fn a_client_that_never_acknowledges_settings_is_ended_after_ten_seconds() {
    let mut server = Server::new();
    server.feed(&settings(&[]), 5_000);
    server.feed(&headers(1, GET, true), 15_000);
    assert!(!server.is_over);
    server.log.clear();
    server.feed(&headers(3, GET, true), 15_001);
    assert_eq!(server.log, "->GOAWAY 3 timeout|");
}

#[test]
fn a_window_smaller_than_the_first_counts_once_the_client_knows_it() {
    let mut server = Server::new();
    let settings_of = Settings { stream_window: 10_000, ..Settings::DEFAULT };
    server.connection = Connection::new(Role::Server, settings_of);
    server.feed(&[PREFACE, &settings(&[]), &headers(1, POST, false)].concat(), 0);
    for _ in 0..4 {
        server.feed(&data(1, &[0; 15_000], false), 0);
    }
    assert!(!server.is_over, "within 65,535 bytes: {}", server.log);
    // 60,000 were sent and given back, of 10,000 that it knows from now on.
    server.feed(&frame(4, 1, 0, b""), 0);
    server.feed(&data(1, &[0; 10_000], false), 0);
    assert!(!server.is_over, "{}", server.log);
    server.feed(&headers(3, POST, false), 0);
    server.log.clear();
    server.feed(&data(3, &[0; 10_001], false), 0);
    assert_eq!(server.log, "->GOAWAY 3 flow|");
}

/// The events of a client that has asked and gets `answer`.
fn asked(method: Method<'_>, answer: &[u8]) -> String {
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut room = vec![0; 4096];
    let mut scratch = Scratch::default();
    let ask = Ask { method, scheme: "http", authority: "a:1", path: "/", fields: &[] };
    let mut out = Output::new(&mut room);
    client.ask(&mut out, &ask, false, ()).expect("the first");
    let input = [&settings(&[]), answer].concat();
    let mut at = 0;
    let mut log = String::new();
    loop {
        match client.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0) {
            Err(fault) => return log + fault.code.name(),
            Ok(step) => {
                at += step.used;
                match step.event {
                    Some(Event::Response { response, .. }) => {
                        let _ = write!(log, "{}|", response.facts.status.code());
                    }
                    Some(Event::Data { data, .. }) => {
                        let _ = write!(log, "{} bytes|", data.len());
                    }
                    Some(Event::Malformed { .. }) => log.push_str("malformed|"),
                    Some(_) => {}
                    None => return log,
                }
            }
        }
    }
}

#[test]
fn a_tunnel_to_a_backend_carries_bytes() {
    let answer = [headers(1, b"\x88", false), data(1, b"hello", false)].concat();
    assert_eq!(asked(Method::Connect, &answer), "200|5 bytes|");
    assert_eq!(asked(Method::Head, &answer), "200|malformed|");
    // It has no fields behind; an answer without a tunnel may have them.
    let trailers = headers(1, b"\0\x01a\x01b", true);
    let tunnel = [answer, trailers.clone()].concat();
    assert_eq!(asked(Method::Connect, &tunnel), "200|5 bytes|malformed|");
    let refused = [headers(1, b"\x08\x03403", false), data(1, b"no", false), trailers].concat();
    assert_eq!(asked(Method::Connect, &refused), "403|2 bytes|");
}

/// The head of a request for a WebSocket, as HTTP/1.1 has it, asks for one on a stream.
#[test]
fn a_head_asks_for_a_protocol_where_that_was_announced() {
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let has_connect_protocol = true;
    let settings_of = Settings { has_connect_protocol, ..Settings::DEFAULT };
    let mut server = Connection::<()>::new(Role::Server, settings_of);
    let mut rooms = [vec![0; 4096], vec![0; 4096]];
    let [client_room, server_room] = &mut rooms;
    let mut scratch = Scratch::default();
    let mut by_client = Output::new(client_room);
    let mut by_server = Output::new(server_room);
    client.start(&mut by_client);
    server.start(&mut by_server);
    let head = b"GET /chat?a HTTP/1.1\r\nHost: a\r\nOrigin: o\r\nX-Secret: s\r\n\r\n";
    let ask = || AskHead { head, scheme: "https", known: None, path: None };
    let marked = b"x-secret\n";
    let early = client.ask_head_for_protocol(&mut by_client, ask(), "websocket", marked, ());
    assert!(early.is_none() && !client.takes_protocols(), "nothing is said of it yet");
    let step = client.read(by_server.bytes(), &mut scratch, &mut by_client, &Limits::DEFAULT, 0);
    assert!(step.is_ok() && client.takes_protocols());
    let asked = client.ask_head_for_protocol(&mut by_client, ask(), "websocket", marked, ());
    let stream = asked.expect("it may be asked so");
    assert!(!client.has_ended(stream), "what follows is the protocol's");
    let mut at = 0;
    loop {
        let input = &by_client.bytes()[at..];
        let step = server.read(input, &mut scratch, &mut by_server, &Limits::DEFAULT, 0);
        let step = step.expect("sound");
        at += step.used;
        let event = step.event.expect("it is asked");
        if let Event::Request { head, never_indexed, ends, .. } = event {
            let head = String::from_utf8_lossy(head).replace("\r\n", "|");
            let of_client = "GET /chat?a HTTP/2.0|host: a|origin: o|x-secret: s|";
            assert_eq!(head, format!("{of_client}connection: upgrade|upgrade: websocket||"));
            assert!(never_indexed.has(2) && !never_indexed.has(1) && !ends);
            return;
        }
    }
}

/// What the client and the server see of a stream that is asked for `protocol`, and has trailers where `is_trailed`.
fn asked_for_protocol(protocol: &str, is_announced: bool, is_trailed: bool) -> String {
    let settings_of = Settings { has_connect_protocol: is_announced, ..Settings::DEFAULT };
    let mut server = Connection::<()>::new(Role::Server, settings_of);
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut client_room = vec![0; 4096];
    let mut server_room = vec![0; 4096];
    let mut by_client = Output::new(&mut client_room);
    let mut by_server = Output::new(&mut server_room);
    let fields = [Field { name: "Origin", value: b"o" }];
    let ask =
        Ask { method: Method::Get, scheme: "http", authority: "a", path: "/chat", fields: &fields };
    client.start(&mut by_client);
    let early = client.ask_for_protocol(&mut by_client, &ask, protocol, ());
    assert_eq!(early, None, "the server has not said that it may be asked so");
    server.start(&mut by_server);
    let mut log = String::new();
    let mut read = 0;
    let mut taken = 0;
    let mut is_asked = false;
    let mut scratch = Scratch::default();
    loop {
        let input = &by_server.bytes()[taken..];
        let step = client.read(input, &mut scratch, &mut by_client, &Limits::DEFAULT, 0);
        let step = step.expect("sound");
        taken += step.used;
        match &step.event {
            Some(Event::Response { response, .. }) => {
                let _ = write!(log, "{}|", response.facts.status.code());
            }
            Some(Event::Data { data, ends, .. }) => {
                let _ = write!(log, "{} {ends}|", String::from_utf8_lossy(data));
            }
            Some(Event::Reset { code, .. }) => {
                let _ = write!(log, "{}|", code.name());
            }
            _ => {}
        }
        if !is_asked {
            let stream = client.ask_for_protocol(&mut by_client, &ask, protocol, ());
            is_asked = stream.is_some();
            if let Some(stream) = stream {
                client.send_data(&mut by_client, stream, b"up", false);
                if is_trailed {
                    client.send_trailers(&mut by_client, stream, &fields);
                } else {
                    client.send_data(&mut by_client, stream, b"", true);
                }
            }
        }
        let input = &by_client.bytes()[read..];
        let step_of_server =
            server.read(input, &mut scratch, &mut by_server, &Limits::DEFAULT, 0).expect("sound");
        read += step_of_server.used;
        match step_of_server.event {
            Some(Event::Request { stream, head, ends, .. }) => {
                let _ =
                    write!(log, "{}{ends}|", String::from_utf8_lossy(head).replace("\r\n", "|"));
                server.send_head(&mut by_server, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                server.send_data(&mut by_server, stream, b"down", true);
            }
            Some(Event::Refused { rejection, .. }) => {
                let _ = write!(log, "{}|", rejection.status.code());
            }
            Some(Event::Data { data, ends, .. }) => {
                let _ = write!(log, "{} {ends}|", String::from_utf8_lossy(data));
            }
            Some(Event::Malformed { rejection, .. }) => {
                let _ = write!(log, "{}|", rejection.reason);
            }
            Some(_) => {}
            None if taken == by_server.len() => return log,
            None => {}
        }
    }
}

#[test]
fn a_stream_becomes_a_tunnel_where_that_was_announced_and_is_bytes_alone() {
    let head =
        "GET /chat HTTP/2.0|host: a|origin: o|connection: upgrade|upgrade: websocket||false|";
    let sound = asked_for_protocol("websocket", true, false);
    assert!(sound.starts_with(head), "{sound}");
    for part in ["up false|", "|200|", "|down true|", "| true|"] {
        assert!(sound.contains(part), "{part} in {sound}");
    }
    assert_eq!(asked_for_protocol("connect-udp", true, false), "501|up false| true|");
    let trailed = asked_for_protocol("websocket", true, true);
    assert!(trailed.contains("fields in a tunnel"), "{trailed}");
    assert!(trailed.contains("protocol_error|"), "{trailed}");
    assert_eq!(asked_for_protocol("websocket", false, false), "");
}

#[test]
fn interim_answers_without_end_cost_their_stream_alone() {
    let interim = headers(1, b"\x08\x03103", false);
    assert!(asked(Method::Get, &interim.repeat(1024)).ends_with("103|"));
    assert!(asked(Method::Get, &interim.repeat(1100)).ends_with("103|malformed|"));
}

#[test]
fn a_body_before_its_head_is_refused_for_that() {
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut room = vec![0; 4096];
    let mut scratch = Scratch::default();
    let ask = Ask { method: Method::Get, scheme: "http", authority: "a", path: "/", fields: &[] };
    let mut out = Output::new(&mut room);
    client.ask(&mut out, &ask, true, ()).expect("the first");
    let input = [settings(&[]), data(1, b"x", true)].concat();
    let mut at = 0;
    let mut why = None;
    while at < input.len() {
        let step = client.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
        let step = step.expect("its stream alone is over");
        at += step.used;
        if let Some(Event::Malformed { rejection, .. }) = step.event {
            why = Some(rejection.reason);
        }
    }
    assert_eq!(why, Some("a body before the head of its answer"));
}

/// A server that is slow answers streams that its client has given up, long ago or because it said that it would not take
/// them: nothing else ends for it.
#[test]
fn late_answers_to_streams_that_a_client_has_given_up_break_nothing() {
    let mut client = Connection::<u32>::new(Role::Client, Settings::DEFAULT);
    let mut room = vec![0; 1 << 16];
    let mut scratch = Scratch::default();
    let mut out = Output::new(&mut room);
    let ask = Ask { method: Method::Get, scheme: "http", authority: "a", path: "/", fields: &[] };
    let mut late = settings(&[]);
    for number in 0..1000 {
        let stream = client.ask(&mut out, &ask, true, number).expect("there is room");
        assert_eq!(client.reset(&mut out, stream, ErrorCode::CANCEL), Some(number));
        late.extend(headers(stream, b"\x88", false));
        late.extend(data(stream, b"late", true));
    }
    let kept: Vec<u32> =
        (0..6).map(|number| client.ask(&mut out, &ask, true, number).expect("room")).collect();
    // The server takes two of them; what it sends of the others all the same is not looked at.
    let last = kept[1];
    late.extend(frame(7, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat()));
    late.extend(headers(kept[5], b"\x88", true));
    late.extend(headers(last, b"\x88", true));
    let mut at = 0;
    let mut answered = Vec::new();
    loop {
        let mut room = vec![0; 4096];
        let mut out = Output::new(&mut room);
        let step = client.read(&late[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
        let step = step.expect("nothing is broken");
        at += step.used;
        match step.event {
            Some(Event::GoneAway { last: said, .. }) => {
                assert_eq!(said, last);
                let above: Vec<u32> = client.take_above(last).map(|(_, number)| number).collect();
                assert_eq!(above, [5, 4, 3, 2], "the latest first");
            }
            Some(Event::Response { stream, .. }) => answered.push(stream),
            Some(_) => {}
            None => break,
        }
        // Nothing is said of streams that the server has never begun.
        assert!(!out.bytes().windows(4).any(|part| part == [0, 0, 4, 3]), "{:?}", out.bytes());
    }
    assert_eq!((answered, client.len()), (vec![last], 2));
}

/// The fields that a server sees in the request and in the trailers.
#[test]
fn fields_that_http_2_does_not_have_are_not_sent() {
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut room = vec![0; 4096];
    let mut out = Output::new(&mut room);
    let field = |name, value: &'static str| Field { name, value: value.as_bytes() };
    let mut fields = vec![
        field("Connection", "close"),
        field("Transfer-Encoding", "chunked"),
        field("Keep-Alive", "5"),
        field("Proxy-Connection", "close"),
        field("Upgrade", "h2c"),
        field("Host", "other"),
        field("TE", "gzip"),
        field("X-Own", "v"),
    ];
    let ask =
        Ask { method: Method::Post, scheme: "http", authority: "a", path: "/", fields: &fields };
    client.start(&mut out);
    let stream = client.ask(&mut out, &ask, false, ()).expect("the first");
    fields.push(field("Content-Length", "5"));
    client.send_trailers(&mut out, stream, &fields);
    let te = [field("TE", "trailers")];
    let ask = Ask { method: Method::Post, scheme: "http", authority: "a", path: "/", fields: &te };
    client.ask(&mut out, &ask, true, ()).expect("the second");
    let mut server = Connection::<()>::new(Role::Server, Settings::DEFAULT);
    let mut answers = vec![0; 4096];
    let mut scratch = Scratch::default();
    let mut to_client = Output::new(&mut answers);
    let mut at = 0;
    let mut log = String::new();
    loop {
        let input = &out.bytes()[at..];
        let step = server.read(input, &mut scratch, &mut to_client, &Limits::DEFAULT, 0);
        let step = step.expect("sound");
        at += step.used;
        match step.event {
            Some(Event::Request { head, .. }) => {
                log += &String::from_utf8_lossy(head).replace("\r\n", "|");
            }
            Some(Event::Trailers { fields, .. }) => {
                for field in fields {
                    log += field.name;
                }
            }
            Some(Event::Malformed { rejection, .. }) => log += rejection.reason,
            Some(_) => {}
            None => break,
        }
    }
    assert_eq!(
        log,
        "POST / HTTP/2.0|host: a|x-own: v||x-ownPOST / HTTP/2.0|host: a|te: trailers||"
    );
}

#[test]
fn a_table_that_is_emptied_and_opened_again_in_one_frame_is_emptied() {
    let mut server = Server::new();
    server.feed(&[settings(&[]), headers(1, WAIT, true), headers(3, WAIT, true)].concat(), 0);
    let mut block = |settings_between: &[u8], stream| {
        server.feed(settings_between, 0);
        let mut room = [0; 256];
        let mut out = Output::new(&mut room);
        let head = b"HTTP/1.1 200 OK\r\nx-own: value\r\n\r\n";
        server.connection.send_head(&mut out, stream, head, false);
        out.bytes()[9..].to_vec()
    };
    let first = block(&[], 1);
    let second = block(&settings(&[(1, 0), (1, 4096)]), 3);
    assert_eq!(second, [b"\x20\x3f\xe1\x1f", &first[..]].concat());
}

#[test]
fn what_has_no_room_is_known_to_be_lost_and_breaks_nothing() {
    for room_bytes in 0..80 {
        let mut server = Server::new();
        server.feed(&[settings(&[]), headers(1, WAIT, true)].concat(), 0);
        let mut room = vec![0; room_bytes];
        let mut out = Output::new(&mut room);
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        server.connection.send_head(&mut out, 1, head, false);
        assert!(out.is_short() || room_bytes >= 12, "{room_bytes}");
        let mut out = Output::new(&mut room);
        let fault = Fault::LATE;
        server.connection.fail(&mut out, &fault);
        match room_bytes {
            0..17 => assert!(out.is_short() && out.is_empty()),
            _ => {
                let len = usize::from(out.bytes()[2]);
                assert_eq!(out.len(), 9 + len, "{room_bytes}");
                assert!(!out.is_short());
            }
        }
    }
}

#[test]
fn many_small_fields_fit_into_the_room_that_is_asked_for() {
    let names: Vec<String> = (0..60).map(|at| format!("{}", char::from(b'a' + at % 26))).collect();
    let fields: Vec<_> = names.iter().map(|name| Field { name, value: b"" }).collect();
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let ask =
        Ask { method: Method::Get, scheme: "http", authority: "a", path: "/", fields: &fields };
    let len = (fields.len() + 4) * 32 + 60 + b":methodGET:schemehttp:authoritya:path/".len();
    let mut room = vec![0; len + 9 + 32];
    let mut out = Output::new(&mut room);
    assert!(client.ask(&mut out, &ask, true, ()).is_some());
    assert!(!out.is_short());
}

#[test]
fn an_end_that_is_said_twice_takes_nothing_back_and_a_stream_that_is_gone_is_not_reset() {
    let mut server = Server::new();
    server.feed(&[settings(&[]), headers(1, GET, true)].concat(), 0);
    let mut room = [0; 256];
    server.connection.end(&mut Output::new(&mut room));
    server.feed(&headers(3, GET, true), 0);
    server.log.clear();
    let mut out = Output::new(&mut room);
    server.connection.end(&mut out);
    assert!(server.connection.reset(&mut out, 1, ErrorCode::CANCEL).is_none());
    assert!(server.connection.reset(&mut out, 9, ErrorCode::CANCEL).is_none());
    note_frames(out.bytes(), &mut server.log);
    assert_eq!(server.log, "->GOAWAY 1 no|");
}

/// A list of requests that differ in their paths: what they share is encoded once for each connection, the paths once for all.
#[test]
fn heads_that_differ_in_their_paths_alone_are_known_together() {
    let mut server = Connection::<()>::new(Role::Server, Settings::DEFAULT);
    let mut scratch = Scratch::default();
    let mut known = KnownBlock::default();
    let mut room = vec![0; 1 << 16];
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut to_server = Vec::new();
    let mut out = Output::new(&mut room);
    client.start(&mut out);
    to_server.extend_from_slice(out.bytes());
    let long = format!("/{}", "%C3%A4".repeat(1000));
    for round in 0..60 {
        let path = match round % 5 {
            0 => "/".to_owned(),
            1 => long.clone(),
            other => format!("/items/{round}?page={other}"),
        };
        let head = format!("GET {path} HTTP/1.1\r\nHost: h:1\r\nX-Own: V\r\n\r\n");
        let block = path_block(path.as_bytes());
        let mut out = Output::new(&mut room);
        let before = client.block_bytes().asked;
        let known = Some(&mut known);
        let ask = AskHead { head: head.as_bytes(), scheme: "http", known, path: Some(&block) };
        client.ask_head(&mut out, ask, true, ()).expect("there is room");
        let took = client.block_bytes().asked - before;
        // Method, scheme, authority and the field of its own take a byte each.
        assert!(round == 0 || took == 4 + block.len() as u64, "{round}: {took}");
        to_server.extend_from_slice(out.bytes());
        let mut room = vec![0; 1 << 16];
        let mut out = Output::new(&mut room);
        let mut at = 0;
        let mut seen = None;
        while at < to_server.len() {
            let step = server.read(&to_server[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("sound");
            at += step.used;
            if let Some(Event::Request { stream, head, .. }) = step.event {
                seen = Some((stream, String::from_utf8(head.to_vec()).expect("text")));
            }
        }
        to_server.clear();
        let (stream, head) = seen.expect("a request");
        assert_eq!(head, format!("GET {path} HTTP/2.0\r\nhost: h:1\r\nx-own: V\r\n\r\n"));
        let mut out = Output::new(&mut room);
        server.send_head(&mut out, stream, b"HTTP/1.1 204 x\r\n\r\n", true);
        server.take_done(stream).expect("done");
        let answer = out.bytes().to_vec();
        let mut at = 0;
        // Its SETTINGS come first.
        let input = if round == 0 { [settings(&[]), answer].concat() } else { answer };
        let mut out = Output::new(&mut room);
        while at < input.len() {
            let step = client.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
            at += step.expect("sound").used;
        }
        client.take_done(stream).expect("done");
    }
}

/// Requests by the lines of their heads, and their answers, again and again: each is what it was, whatever the tables of
/// both ends become, and what does not change takes a byte for each field.
#[test]
fn heads_that_come_again_are_what_they_were() {
    const HEADS: [(&[u8], &str); 2] = [
        (
            b"GET /a?b HTTP/1.1\r\nHost: h:1\r\nX-Own: V\r\nConnection: close\r\nTE: gzip\r\n\r\n",
            "GET /a?b HTTP/2.0\r\nhost: h:1\r\nx-own: V\r\n\r\n",
        ),
        (
            b"HEAD /c HTTP/1.1\r\nX-Own: W\r\nHOST:  h:1 \r\nCookie: a=b\r\n\r\n",
            "HEAD /c HTTP/2.0\r\nhost: h:1\r\nx-own: W\r\ncookie: a=b\r\n\r\n",
        ),
    ];
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut server = Connection::<()>::new(Role::Server, Settings::DEFAULT);
    let mut scratch = Scratch::default();
    let mut to_server = Vec::new();
    let mut to_client = Vec::new();
    let mut known = [KnownBlock::default(), KnownBlock::default()];
    let mut room = vec![0; 8192];
    let mut out = Output::new(&mut room);
    server.start(&mut out);
    to_client.extend_from_slice(out.bytes());
    let mut out = Output::new(&mut room);
    client.start(&mut out);
    to_server.extend_from_slice(out.bytes());
    for round in 0..40 {
        match round {
            20 => to_client.extend(settings(&[(1, 0)])),
            30 => to_client.extend(settings(&[(1, 4096)])),
            _ => {}
        }
        for ((head, expected), known) in HEADS.iter().zip(&mut known) {
            let mut out = Output::new(&mut room);
            let before = client.block_bytes().asked;
            let ask = AskHead { head, scheme: "http", known: Some(known), path: None };
            let stream = client.ask_head(&mut out, ask, true, ()).expect("there is room");
            let took = client.block_bytes().asked - before;
            if (5..20).contains(&round) || round >= 35 {
                // The cookie is never in a table.
                assert!(
                    took <= 5 + if head.starts_with(b"HEAD") { 6 } else { 0 },
                    "{round} {took}"
                );
            }
            to_server.extend_from_slice(out.bytes());
            // It changes in between, and comes again.
            let status = 200 + round / 7;
            let own = format!("{}", round / 3 % 2);
            let answer =
                format!("HTTP/1.1 {status} x\r\nX-Own: {own}\r\nContent-Length: 0\r\n\r\n");
            let mut out = Output::new(&mut room);
            let mut at = 0;
            while at < to_server.len() {
                let step =
                    server.read(&to_server[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
                let step = step.expect("sound");
                at += step.used;
                if let Some(Event::Request { stream, head, ends: true, .. }) = step.event {
                    assert_eq!(str::from_utf8(head), Ok(*expected), "{round}");
                    server.send_head(&mut out, stream, answer.as_bytes(), true);
                    assert!(server.take_done(stream).is_some());
                }
            }
            to_server.clear();
            to_client.extend_from_slice(out.bytes());
            let mut out = Output::new(&mut room);
            let mut at = 0;
            let mut is_answered = false;
            while at < to_client.len() {
                let step =
                    client.read(&to_client[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
                let step = step.expect("sound");
                at += step.used;
                if let Some(Event::Response { response, ends: true, .. }) = step.event {
                    assert_eq!(response.facts.status.code(), status, "{round}");
                    assert_eq!(response.fields.first("x-own"), Some(own.as_bytes()), "{round}");
                    is_answered = true;
                }
            }
            to_client.clear();
            to_server.extend_from_slice(out.bytes());
            assert!(is_answered && client.take_done(stream).is_some(), "{round}");
        }
    }
    assert!(client.block_bytes().received > 0);
}

#[test]
fn priorities_of_streams_that_are_not_begun_are_kept_for_the_last_sixteen() {
    let update =
        |stream: u32, value: &[u8]| frame(0x10, 0, 0, &[&stream.to_be_bytes()[..], value].concat());
    let mut server = Server::new();
    server.feed(&settings(&[]), 0);
    for stream in (1..40).step_by(2) {
        server.feed(&update(stream, b"u=0"), 0);
    }
    // The first is forgotten; the second was never said; the third is known.
    let wait = b"\x82\x86\x04\x05/wait\x01\x01a";
    for stream in [1, 41, 43] {
        server.feed(&update(43, b"u=0"), 0);
        server.feed(&headers(stream, wait, true), 0);
        server.send_head(stream);
        server.connection.set_sending(stream, Sending::Data);
    }
    let connection = &mut server.connection;
    assert_eq!(connection.next_sender(), Some(43));
    // Of equal ones the first is first; and nothing that cannot be read counts.
    connection.set_sending(43, Sending::Nothing);
    assert_eq!(connection.next_sender(), Some(1));
    server.feed(&update(41, b"u=0,"), 0);
    assert_eq!(server.connection.next_sender(), Some(1));
    server.feed(&update(41, b"u=2"), 0);
    assert_eq!(server.connection.next_sender(), Some(41));
    // Updates without end are a flood.
    for _ in 0..2000 {
        server.feed(&update(101, b"u=1"), 0);
    }
    assert!(server.is_over && server.log.ends_with("calm|"), "{}", server.log);
}

#[test]
fn what_an_idle_connection_gives_back_is_not_missed() {
    let head = b"HTTP/1.1 200 OK\r\nServer: pollux\r\nX-Long: 0123456789\r\nETag: \"1\"\r\n\r\n";
    let mut server = Connection::<()>::new(Role::Server, Settings::DEFAULT);
    let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
    let mut bytes = RestingBytes::default();
    let mut rooms = [vec![0; 4096], vec![0; 4096]];
    let mut scratch = Scratch::default();
    let mut to_server = Vec::new();
    for round in 0..12 {
        let [of_client, of_server] = &mut rooms;
        let mut out = Output::new(of_client);
        if round == 0 {
            client.start(&mut out);
        }
        let method = Method::Get;
        let fields = &[Field { name: "X", value: b"y" }][..];
        let ask = Ask { method, scheme: "http", authority: "a", path: "/", fields };
        client.ask(&mut out, &ask, true, ()).expect("a stream is free");
        to_server.extend_from_slice(out.bytes());
        let mut answers = Output::new(of_server);
        if round == 0 {
            server.start(&mut answers);
        }
        let mut at = 0;
        while let Ok(step) =
            server.read(&to_server[at..], &mut scratch, &mut answers, &Limits::DEFAULT, 0)
        {
            at += step.used;
            match step.event {
                Some(Event::Request { stream, .. }) => {
                    server.send_head(&mut answers, stream, head, true);
                    server.take_done(stream).expect("both have ended");
                }
                Some(_) => {}
                None => break,
            }
        }
        assert_eq!(at, to_server.len());
        to_server.clear();
        let mut out = Output::new(of_client);
        let mut at = 0;
        let mut got = 0;
        loop {
            let input = &answers.bytes()[at..];
            let step = client.read(input, &mut scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("the tables are the same");
            at += step.used;
            match step.event {
                Some(Event::Response { stream, response, .. }) => {
                    got += response.fields.count();
                    client.take_done(stream).expect("both have ended");
                }
                Some(_) => {}
                None => break,
            }
        }
        assert_eq!(got, 3, "in round {round}");
        to_server.extend_from_slice(out.bytes());
        if round % 3 == 2 {
            server = server.rest(&mut bytes).wake(&mut bytes);
            client = client.rest(&mut bytes).wake(&mut bytes);
        }
    }
}

#[test]
fn what_a_client_has_marked_as_never_indexed_stays_so_at_each_hop() {
    /// The request that a server reads, and which of its fields are marked, passed on to the next one.
    fn hop(input: &[u8], expected: &[(&str, bool)]) -> Vec<u8> {
        let mut server = Connection::<()>::new(Role::Server, Settings::DEFAULT);
        let mut client = Connection::<()>::new(Role::Client, Settings::DEFAULT);
        let mut scratch = Scratch::default();
        let mut at = 0;
        let mut room = vec![0; 4096];
        let mut room_of_client = vec![0; 4096];
        let mut out = Output::new(&mut room);
        let mut asked = Output::new(&mut room_of_client);
        client.start(&mut asked);
        let mut count = 0;
        loop {
            let step = server.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("sound");
            at += step.used;
            match step.event {
                Some(Event::Request { request, never_indexed, .. }) => {
                    let fields: Vec<Field<'_>> = request.fields.collect();
                    let marked = fields.iter().enumerate();
                    let marked =
                        marked.map(|(place, field)| (field.name, never_indexed.has(place)));
                    assert_eq!(marked.collect::<Vec<_>>(), expected);
                    assert!(never_indexed.has_path());
                    let method = Method::Get;
                    let path = "/a";
                    let ask = Ask { method, scheme: "http", authority: "a", path, fields: &fields };
                    client.ask_marked(&mut asked, &ask, never_indexed, true, ()).expect("free");
                    count += 1;
                }
                Some(_) => {}
                None => break,
            }
        }
        assert_eq!(count, 1);
        asked.bytes().to_vec()
    }

    // The path /a never indexed, the authority a; x-secret never indexed, x-plain not; a cookie in two crumbs, of which
    // one is; a field that the static table has.
    let block = b"\x82\x86\x14\x02/a\x01\x01a\x10\x08x-secret\x01s\x00\x07x-plain\x01p\
        \x0f\x11\x03a=b\x1f\x11\x03c=d\x1f\x01\x0dgzip, deflate";
    let input = [PREFACE, &settings(&[]), &headers(1, block, true)].concat();
    let expected = [
        ("host", false),
        ("x-secret", true),
        ("x-plain", false),
        ("accept-encoding", true),
        ("cookie", true),
    ];
    let second = hop(&input, &expected);
    hop(&second, &expected);
}

#[test]
fn the_stream_whose_reset_is_one_too_many_is_still_there_for_its_user() {
    let mut server = Connection::<u32>::new(Role::Server, Settings::DEFAULT);
    let mut room = vec![0; 4096];
    let mut scratch = Scratch::default();
    let mut input = [PREFACE, &settings(&[])].concat();
    for stream in (1..2000).step_by(2) {
        input.extend(headers(stream, GET, true));
        input.extend(reset(stream, 8));
    }
    let mut at = 0;
    let mut begun = 0;
    let mut ended = 0;
    loop {
        let mut out = Output::new(&mut room);
        let step = server.read(&input[at..], &mut scratch, &mut out, &Limits::DEFAULT, 0);
        let Ok(step) = step else { break };
        at += step.used;
        match step.event.expect("there is more") {
            Event::Request { stream, .. } => {
                *server.data_mut(stream).expect("it is open") = stream;
                begun += 1;
            }
            Event::Reset { stream, data, .. } => {
                assert_eq!(data, stream);
                ended += 1;
            }
            _ => {}
        }
    }
    assert_eq!((begun, ended), (501, 500));
    assert_eq!(server.take_all().collect::<Vec<_>>(), [(1001, 1001)]);
}
