//! What holds for every stream of bytes that a server may send to a client of HTTP/2 with three requests under way.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use std::fmt::Write as _;

use pollux_http::h2::{Ask, Connection, Event, Output, PREFACE, Role, Scratch, Settings};
use pollux_http::{Field, Limits, Method};

const LIMITS: Limits =
    Limits { head_bytes: 600, fields: 12, trailer_bytes: 100, ..Limits::DEFAULT };

/// Plays a client, with the input in pieces of several sizes.
pub(crate) fn holds(data: &[u8]) {
    let whole = play(data, usize::MAX);
    for piece in [1, 7, 61] {
        assert_eq!(play(data, piece), whole, "in pieces of {piece}");
    }
}

/// What a client gets as text, and the bytes that it sends.
fn play(data: &[u8], piece: usize) -> (String, Vec<u8>) {
    let mut client = Connection::<u64>::new(Role::Client, Settings::DEFAULT);
    let mut scratch = Scratch::default();
    let mut room = vec![0; 4096];
    let mut out = Output::new(&mut room);
    client.start(&mut out);
    assert!(out.bytes().starts_with(PREFACE));
    for method in [Method::Get, Method::Head, Method::Post] {
        let fields = [Field { name: "X-Own", value: b"value" }];
        let ask = Ask { method, scheme: "http", authority: "a", path: "/", fields: &fields };
        assert!(client.ask(&mut out, &ask, method != Method::Post, 0).is_some());
    }
    let mut events = String::new();
    let mut sent = out.bytes().to_vec();
    let mut from = 0;
    let mut to = 0;
    while to < data.len() {
        to = data.len().min(to.saturating_add(piece));
        loop {
            let mut out = Output::new(&mut room);
            let step = client.read(&data[from..to], &mut scratch, &mut out, &LIMITS, 0);
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    events += &format!("fault {:?}", fault.code);
                    client.fail(&mut out, &fault);
                    sent.extend_from_slice(out.bytes());
                    return (events, sent);
                }
            };
            from += step.used;
            let Some(event) = step.event else {
                sent.extend_from_slice(out.bytes());
                break;
            };
            act(&mut client, &event, &mut out, &mut events);
            assert!(!out.is_short() && client.len() <= 3);
            sent.extend_from_slice(out.bytes());
        }
    }
    (events, sent)
}

fn act(
    client: &mut Connection<u64>,
    event: &Event<'_, u64>,
    out: &mut Output<'_>,
    events: &mut String,
) {
    let mut say = |text: std::fmt::Arguments<'_>| {
        events.write_fmt(text).expect("text takes all");
        events.push('\n');
    };
    match *event {
        Event::Response { stream, response, ends, .. } => {
            let code = response.facts.status.code();
            for field in response.fields {
                assert!(
                    !field.name.is_empty() && !field.value.iter().any(|b| b"\r\n\0".contains(b))
                );
            }
            assert!((100..1000).contains(&code) && code != 101 && !(ends && code < 200));
            say(format_args!("answer {stream} {code} {} {ends}", response.fields.count()));
            if ends {
                client.take_done(stream);
            }
        }
        Event::Data { stream, data, ends } => {
            say(format_args!("data {stream} {} {ends}", data.len()));
            *client.data_mut(stream).expect("it is open") += data.len() as u64;
            client.release(out, stream, data.len());
            if ends {
                client.take_done(stream);
            }
        }
        Event::Trailers { stream, fields, .. } => {
            say(format_args!("trailers {stream} {}", fields.count()));
            client.take_done(stream);
        }
        Event::Malformed { stream, rejection, ref data, .. } => {
            assert!(data.is_some(), "a client has begun all its streams");
            say(format_args!("malformed {stream} {}", rejection.reason));
        }
        Event::Reset { stream, code, .. } => say(format_args!("reset {stream} {code:?}")),
        Event::GoneAway { last, code } => say(format_args!("gone {last} {code:?}")),
        Event::PingAnswered { data } => say(format_args!("pong {data:?}")),
        Event::WindowOpened => {
            // The body of the POST, a little at a time.
            let len = client.data_room(5).min(100);
            if len > 0 && !client.has_ended(5) {
                client.send_data(out, 5, &[b'x'; 100][..len], len < 100);
                client.take_done(5);
            }
        }
        Event::NoRoom => panic!("there is room"),
        Event::Request { .. } | Event::Refused { .. } | Event::TooMany { .. } => {
            panic!("a server asks nothing")
        }
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
