//! What holds for every stream of bytes that a client may send to a server of HTTP/2.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use std::convert::Infallible;
use std::fmt::Write as _;

use pollux_http::h2::{
    CONTROL_ROOM_BYTES, Connection, DATA_BYTES_MAX, ErrorCode, Event, Output, PREFACE, Role,
    Scratch, Sending, Settings,
};
use pollux_http::{Limits, Parsed, Request};

const LIMITS: Limits = Limits {
    head_bytes: 600,
    target_bytes: 40,
    fields: 12,
    body_bytes: 5000,
    trailer_bytes: 100,
    ..Limits::DEFAULT
};

const SETTINGS: Settings = Settings { streams_max: 4, stream_window: 3000, ..Settings::DEFAULT };

/// Bytes of each answer's body: more than a frame takes, and than some windows.
const BODY_BYTES: usize = 20_000;

/// What a server says and does: its events as text, and the bytes that it sends.
type Transcript = (String, Vec<u8>);

/// Plays a server that answers everything, with the input in pieces of several sizes.
pub(crate) fn holds(data: &[u8]) {
    let whole = play(data, usize::MAX);
    for piece in [1, 7, 61] {
        let pieces = play(data, piece);
        assert_eq!(pieces.0, whole.0, "in pieces of {piece}");
        assert!(pieces.1 == whole.1, "other bytes in pieces of {piece}");
    }
    // Whatever it is sent, what it says is sound for a client, up to its own end.
    frames_are_sound(&whole.1);
}

fn play(data: &[u8], piece: usize) -> Transcript {
    let mut server = Connection::<usize>::new(Role::Server, SETTINGS);
    let mut scratch = Scratch::default();
    let mut room = vec![0; 1 << 17];
    let mut events = String::new();
    let mut sent = Vec::new();
    let mut out = Output::new(&mut room);
    server.start(&mut out);
    sent.extend_from_slice(out.bytes());
    let input = [PREFACE, data].concat();
    let mut from = 0;
    let mut to = 0;
    while to < input.len() {
        to = input.len().min(to.saturating_add(piece));
        loop {
            let mut out = Output::new(&mut room);
            let step = server.read(&input[from..to], &mut scratch, &mut out, &LIMITS, 0);
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    server.fail(&mut out, &fault);
                    sent.extend_from_slice(out.bytes());
                    events += &format!("fault {:?}", fault.code);
                    return (events, sent);
                }
            };
            from += step.used;
            let is_over = step.event.is_none();
            if let Some(event) = step.event {
                act(&mut server, &event, &mut out, &mut events);
            }
            assert!(!out.is_short() && server.len() <= SETTINGS.streams_max as usize);
            sent.extend_from_slice(out.bytes());
            if is_over {
                break;
            }
        }
    }
    (events, sent)
}

fn act(
    server: &mut Connection<usize>,
    event: &Event<'_, usize>,
    out: &mut Output<'_>,
    events: &mut String,
) {
    let mut say = |text: std::fmt::Arguments<'_>| {
        events.write_fmt(text).expect("text takes all");
        events.push('\n');
    };
    match *event {
        Event::Request { stream, request, head, ends, .. } => {
            is_one_of_http_1(&request, head);
            say(format_args!("request {stream} {} {ends}", head.escape_ascii()));
            if ends {
                answer(server, stream, out);
            }
        }
        Event::Refused { stream, rejection, ends, .. } => {
            say(format_args!("refused {stream} {} {ends}", rejection.status.code()));
            server.send_head(out, stream, b"HTTP/1.1 400 Bad Request\r\nX: y\r\n\r\n", true);
            if server.take_done(stream).is_none() {
                server.reset(out, stream, ErrorCode::NO_ERROR).expect("it is open");
            }
        }
        Event::Data { stream, data, ends } => {
            say(format_args!("data {stream} {} {ends}", data.len()));
            server.release(out, stream, data.len());
            if ends {
                answer(server, stream, out);
            }
        }
        Event::Trailers { stream, fields, .. } => {
            say(format_args!("trailers {stream} {}", fields.count()));
            answer(server, stream, out);
        }
        Event::WindowOpened => send(server, out),
        Event::Malformed { stream, rejection, .. } => {
            say(format_args!("malformed {stream} {}", rejection.reason));
        }
        Event::TooMany { stream, .. } => say(format_args!("too many {stream}")),
        Event::Reset { stream, code, .. } => say(format_args!("reset {stream} {code:?}")),
        Event::GoneAway { last, code } => say(format_args!("gone {last} {code:?}")),
        Event::PingAnswered { data } => say(format_args!("pong {data:?}")),
        Event::NoRoom => panic!("there is room"),
        Event::Response { .. } => panic!("a client answers nothing"),
    }
}

/// The head is one of HTTP/1.1 but for its version: another program reads the same request in it.
fn is_one_of_http_1(request: &Request<'_>, head: &[u8]) {
    let at = head.windows(9).position(|part| part == b" HTTP/2.0").expect("it has a first line");
    let mut head = head.to_vec();
    head[at + 6..at + 9].copy_from_slice(b"1.1");
    // The authority does not count as a field there, nor do cookies, which count as bytes: as lines they are two more.
    let limits = Limits { head_bytes: 2000, fields: LIMITS.fields + 2, ..LIMITS };
    let Parsed::Complete(read, len) = Request::parse(&head, &limits) else {
        panic!("not a head of HTTP/1.1: {}", head.escape_ascii())
    };
    assert_eq!(len, head.len(), "something follows the head");
    assert_eq!((read.method, read.target), (request.method, request.target));
    assert!(read.fields.eq(request.fields));
    assert!(read.fields.all("transfer-encoding").count() == 0);
}

fn answer(server: &mut Connection<usize>, stream: u32, out: &mut Output<'_>) {
    let head =
        b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 20000\r\nConnection: close\r\n\r\n";
    server.send_head(out, stream, head, false);
    *server.data_mut(stream).expect("it is open") = BODY_BYTES;
    server.set_sending(stream, Sending::Data);
    send(server, out);
}

/// Sends of all bodies what the windows take, in the order of their priorities.
fn send(server: &mut Connection<usize>, out: &mut Output<'_>) {
    while let Some(stream) = server.next_sender() {
        if out.room() < DATA_BYTES_MAX + CONTROL_ROOM_BYTES {
            return;
        }
        let left = *server.data_mut(stream).expect("what sends is open");
        let len = left.min(server.data_room(stream));
        assert!(len > 0, "the windows of what sends are open");
        let sent = server.send_data_with(out, stream, len, len == left, |room| {
            room.fill(b'x');
            Ok::<(), Infallible>(())
        });
        sent.expect("filling does not fail");
        if len == left {
            server.take_done(stream).expect("both have ended it");
        } else {
            *server.data_mut(stream).expect("it is open") = left - len;
        }
    }
}

fn frames_are_sound(mut sent: &[u8]) {
    while let [a, b, c, kind, ..] = *sent {
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        assert!(len <= 16_384 && kind <= 9, "a frame of kind {kind} with {len} bytes");
        sent = sent.get(9 + len..).expect("frames are whole");
    }
    assert!(sent.is_empty());
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
