//! Runs by HTTP/2 against servers whose conduct each test writes itself, frame by frame: what servers may do to streams, and
//! what is counted of it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pollux_engine::Driver;
use pollux_http::h2::{Connection, ErrorCode, Event, Output, Role, Scratch, Settings};
use pollux_http::{Limits, Method};
use pollux_load::{
    Arrival, Client, Errors, FindingKind, Outcome, Pace, Plan, Protocol, RequestError, Stage,
    Target, Trust, ask_by,
};

use pollux_testing::wait_until;

use crate::{Peer, Server, at_once, delay, is_sound, on_every_driver, plan, some, try_run};

/// What a client has done.
#[derive(Debug)]
pub(crate) enum Seen {
    Request { stream: u32, head: String, ends: bool },
    Data { stream: u32, bytes: usize, ends: bool },
    Reset { stream: u32, code: ErrorCode },
    Window,
}

/// A server's end of a connection, which does what a test says.
pub(crate) struct H2 {
    pub(crate) peer: Peer,
    connection: Connection<()>,
    scratch: Scratch,
    input: Vec<u8>,
    room: Vec<u8>,
    /// Heads of requests whose bodies are to come.
    heads: BTreeMap<u32, String>,
    /// Requests that were shown.
    pub(crate) requests: u32,
    /// GOAWAYs that came.
    goaways: u32,
}

const LIMITS: Limits = Limits { body_bytes: 1 << 30, ..Limits::DEFAULT };

impl H2 {
    pub(crate) fn new(peer: Peer, settings: Settings) -> Self {
        let connection = Connection::new(Role::Server, settings);
        let scratch = Scratch::default();
        let input = Vec::new();
        let room = vec![0; 1 << 17];
        let heads = BTreeMap::new();
        let requests = 0;
        let goaways = 0;
        let mut h2 = Self { peer, connection, scratch, input, room, heads, requests, goaways };
        h2.say(Connection::start);
        h2
    }

    /// Sends what `write` writes; false when the client is gone.
    pub(crate) fn say(&mut self, write: impl FnOnce(&mut Connection<()>, &mut Output<'_>)) -> bool {
        let mut out = Output::new(&mut self.room);
        write(&mut self.connection, &mut out);
        assert!(!out.is_short());
        self.peer.send(out.bytes())
    }

    /// The next thing that the client does; none at its end.
    pub(crate) fn next(&mut self) -> Option<Seen> {
        loop {
            let mut out = Output::new(&mut self.room);
            let Self { connection, scratch, input, .. } = self;
            let step =
                connection.read(input, scratch, &mut out, &LIMITS, 0).expect("a sound client");
            let used = step.used;
            let more = step.event.is_none();
            let seen = match step.event {
                Some(Event::Request { stream, head, ends, .. }) => {
                    let head = String::from_utf8(head.to_vec()).expect("text");
                    Some(Seen::Request { stream, head, ends })
                }
                Some(Event::Data { stream, data, ends }) => {
                    let bytes = data.len();
                    connection.release(&mut out, stream, bytes);
                    Some(Seen::Data { stream, bytes, ends })
                }
                Some(Event::Reset { stream, code, .. }) => Some(Seen::Reset { stream, code }),
                Some(Event::WindowOpened) => Some(Seen::Window),
                Some(Event::GoneAway { .. }) => {
                    self.goaways += 1;
                    None
                }
                Some(Event::TooMany { .. }) | None => None,
                Some(other) => panic!("{other:?}"),
            };
            self.input.drain(..used);
            if !out.bytes().is_empty() && !self.peer.send(out.bytes()) {
                return None;
            }
            self.requests += u32::from(matches!(seen, Some(Seen::Request { .. })));
            if seen.is_some() {
                return seen;
            }
            if more {
                let read = self.peer.stream.fill_buf().ok()?;
                let len = read.len();
                if len == 0 {
                    return None;
                }
                self.input.extend_from_slice(read);
                self.peer.stream.consume(len);
            }
        }
    }

    /// The next request that is whole: its stream and head.
    pub(crate) fn request(&mut self) -> Option<(u32, String)> {
        loop {
            match self.next()? {
                Seen::Request { stream, head, ends: true } => return Some((stream, head)),
                Seen::Request { stream, head, .. } => drop(self.heads.insert(stream, head)),
                Seen::Data { stream, ends: true, .. } => {
                    return Some((stream, self.heads.remove(&stream)?));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn answer(&mut self, stream: u32) -> bool {
        self.answer_with(stream, "200", b"hello")
    }

    /// Answers by a body that fits into one frame.
    fn answer_with(&mut self, stream: u32, status: &str, body: &[u8]) -> bool {
        let head = format!(
            "HTTP/1.1 {status} x\r\nserver: test\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.say(|connection, out| {
            connection.send_head(out, stream, head.as_bytes(), false);
            connection.send_data(out, stream, body, true);
            let _done = connection.take_done(stream);
        })
    }

    fn reset(&mut self, stream: u32, code: ErrorCode) -> bool {
        self.say(|connection, out| {
            let _was_there = connection.reset(out, stream, code);
        })
    }

    /// GOAWAY with this last stream.
    pub(crate) fn goaway(&mut self, last: u32, code: u8) -> bool {
        let payload = [&last.to_be_bytes()[..], &[0, 0, 0, code]].concat();
        self.peer.send(&[&[0, 0, 8, 7, 0, 0, 0, 0, 0], &payload[..]].concat())
    }

    pub(crate) fn answer_all(&mut self) {
        while let Some((stream, _)) = self.request() {
            if !self.answer(stream) {
                return;
            }
        }
    }
}

pub(crate) fn streams(
    driver: Driver,
    url: &str,
    connections: u32,
    streams: u32,
    requests: u64,
) -> Plan {
    Plan { http: Protocol::Http2, streams, ..plan(driver, url, connections, requests) }
}

pub(crate) fn first_driver() -> Driver {
    "poll".parse().expect("a driver")
}

/// Nothing failed, and each request was answered once.
pub(crate) fn all_right(outcome: &Outcome, requests: u64) {
    is_sound(outcome);
    let Outcome { totals, errors, setting, http2, .. } = outcome;
    let at = format!("{} {totals:?} {errors:?} {http2:?}", setting.driver);
    assert_eq!((totals.right, totals.sent, errors.total()), (requests, requests, 0), "{at}");
}

#[test]
fn requests_are_asked_on_streams_and_counted_as_the_server_counts_them() {
    let answered = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answered);
    let server = Server::start(move |peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, head)) = h2.request() {
            assert!(head.starts_with("GET /x?y HTTP/2.0\r\nhost: 127.0.0.1:"), "{head}");
            assert!(head.contains("\r\nx-one: two\r\n"), "{head}");
            counted.fetch_add(1, SeqCst);
            h2.answer(stream);
        }
    });
    for each in [1, 16] {
        on_every_driver(
            |driver| {
                answered.store(0, SeqCst);
                let mut plan = streams(driver, &server.url("/x?y"), 3, each, 1_000);
                plan.targets[0].fields.push(("X-One".to_owned(), "two".to_owned()));
                plan
            },
            |outcome| {
                all_right(outcome, 1_000);
                assert_eq!(answered.load(SeqCst), 1_000);
                assert_eq!(outcome.totals.body_bytes_in, 5_000);
                let setting = &outcome.setting;
                assert_eq!((&*setting.http, &*setting.spoken, setting.streams), ("2", "2", each));
                let http2 = outcome.http2.as_ref().expect("it was spoken");
                assert_eq!((http2.connections, http2.resent), (3, 0));
                assert!(http2.goaways.is_empty() && http2.resets.is_empty(), "{http2:?}");
                // What repeats takes a byte for each field, once both tables know it.
                let each = |bytes: u64| bytes as f64 / 1_000.0;
                let out = each(http2.header_bytes_out);
                let back = each(http2.header_bytes_in);
                assert!((5.0..6.0).contains(&out) && (3.0..4.0).contains(&back), "{out} {back}");
            },
        );
    }
}

/// Many streams are under way at the same time: the first answer is held back until all of them were asked.
#[test]
fn as_many_streams_as_were_asked_for_are_under_way() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        loop {
            let mut asked = Vec::new();
            while asked.len() < 20 {
                let Some((stream, _)) = h2.request() else { return };
                asked.push(stream);
            }
            // In any order.
            asked.reverse();
            for stream in asked {
                h2.answer(stream);
            }
        }
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 20, 400),
        |outcome| all_right(outcome, 400),
    );
}

#[test]
fn a_server_that_allows_fewer_streams_gets_fewer() {
    let settings = Settings { streams_max: 3, ..Settings::DEFAULT };
    let server = Server::start(move |peer| H2::new(peer, settings).answer_all());
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 2, 10, 200),
        |outcome| {
            all_right(outcome, 200);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            assert_eq!((http2.streams_allowed, http2.connections_limited), (Some(3), 2));
            // What was refused before the limit was known.
            let refused = http2.resets.get("refused_stream").copied().unwrap_or(0);
            assert_eq!(http2.resent, refused);
        },
    );
}

#[test]
fn a_server_that_allows_no_stream_fails_by_time() {
    let settings = Settings { streams_max: 0, ..Settings::DEFAULT };
    let server = Server::start(move |peer| H2::new(peer, settings).answer_all());
    let mut plan = streams(first_driver(), &server.url("/"), 1, 2, 3);
    plan.request_timeout = Duration::from_millis(100);
    let outcome = try_run(plan).expect("poll is everywhere");
    let Errors { timeout, stream_refused, .. } = outcome.errors;
    assert_eq!((timeout + stream_refused, outcome.errors.total()), (3, 3), "{:?}", outcome.errors);
}

/// What its server has not looked at is sent again on a connection that is opened at once: the two streams that are under
/// way on the old one are answered only when the new one is there.
#[test]
fn a_goaway_costs_no_request_and_is_not_waited_for() {
    let opened = Arc::new((Mutex::new(0), Condvar::new()));
    let seen = Arc::clone(&opened);
    let server = Server::start(move |peer| {
        let number = peer.number;
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        let (count, changed) = &*seen;
        *count.lock().expect("no panic") += 1;
        changed.notify_all();
        if !number.is_multiple_of(2) {
            return h2.answer_all();
        }
        let asked: Vec<u32> =
            std::iter::from_fn(|| h2.request()).take(4).map(|(stream, _)| stream).collect();
        assert_eq!(asked, [1, 3, 5, 7]);
        h2.goaway(3, 0);
        let is_before = |count: &mut u32| *count < number + 2;
        let waited = changed.wait_while(count.lock().expect("no panic"), is_before);
        drop(waited.expect("no panic"));
        h2.answer(3);
        h2.answer(1);
        while let Some(seen) = h2.next() {
            // To the server those above its last were never begun (RFC 9113 6.8).
            assert!(matches!(seen, Seen::Window), "{seen:?}");
        }
    });
    on_every_driver(
        |driver| {
            // Each run begins with a connection of an even number.
            let opened = *opened.0.lock().expect("no panic");
            assert_eq!(opened % 2, 0);
            streams(driver, &server.url("/"), 1, 4, 100)
        },
        |outcome| {
            all_right(outcome, 100);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            assert_eq!((http2.resent, outcome.totals.connects), (2, 2));
            assert_eq!(http2.goaways, BTreeMap::from([("no_error".to_owned(), 1)]));
            assert!(http2.resets.is_empty(), "{http2:?}");
        },
    );
}

/// As servers end that drain: a first GOAWAY that names no stream, a second one that does, and then the end.
#[test]
fn connections_that_end_after_a_goaway_cost_nothing() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while h2.requests < 10 {
            let Some((stream, _)) = h2.request() else { return };
            h2.answer(stream);
        }
        h2.goaway((1 << 31) - 1, 0);
        h2.goaway(19, 0);
        // What was on its way is not looked at.
        while h2.next().is_some() {}
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 2, 4, 200),
        |outcome| {
            all_right(outcome, 200);
            let goaways = &outcome.http2.as_ref().expect("it was spoken").goaways;
            assert!(goaways["no_error"] >= 36, "{goaways:?}");
            assert!(outcome.totals.connects >= 19, "{:?}", outcome.totals);
        },
    );
}

#[test]
fn a_server_may_end_a_connection_between_streams() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        for _ in 0..5 {
            let Some((stream, _)) = h2.request() else { return };
            h2.answer(stream);
        }
        h2.peer.close();
    });
    // A client that thinks has nothing under way when the server ends.
    on_every_driver(
        |driver| Plan {
            think_time: Duration::from_millis(5),
            ..streams(driver, &server.url("/"), 2, 1, 40)
        },
        |outcome| {
            all_right(outcome, 40);
            assert!(outcome.totals.connects >= 8, "{:?}", outcome.totals);
        },
    );
}

#[test]
fn refused_streams_are_sent_again_and_fail_when_that_is_in_vain() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, head)) = h2.request() {
            let is_refused = head.starts_with("GET /never") || h2.requests <= 5;
            let done = if is_refused {
                h2.reset(stream, ErrorCode::REFUSED_STREAM)
            } else {
                h2.answer(stream)
            };
            if !done {
                return;
            }
        }
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 2, 50),
        |outcome| {
            all_right(outcome, 50);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            assert_eq!((http2.resent, http2.resets["refused_stream"]), (5, 5));
        },
    );
    let outcome = try_run(streams(first_driver(), &server.url("/never"), 1, 2, 20));
    let outcome = outcome.expect("poll is everywhere");
    assert_eq!(outcome.errors, Errors { stream_refused: 20, ..Errors::default() });
    let http2 = outcome.http2.as_ref().expect("it was spoken");
    assert_eq!((http2.resent, http2.resets["refused_stream"]), (20 * 8, 20 * 9));
    assert_eq!(outcome.totals.sent, 20);
}

/// One of two connections refuses whatever it is asked: its requests are for the other one, also where that has come to rest
/// later.
#[test]
fn what_one_connection_refuses_another_one_is_asked() {
    let fewest = Cell::new(u64::MAX);
    // The other one is asked first, then the one refuses, then the other one answers.
    let steps = Arc::new((Mutex::new(0), Condvar::new()));
    let seen = Arc::clone(&steps);
    let server = Server::start(move |peer| {
        let refuses = peer.number.is_multiple_of(2);
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        let (step, changed) = &*seen;
        let go_to = |next: u32| {
            let mut step = step.lock().expect("no panic");
            *step = next.max(*step);
            changed.notify_all();
        };
        let wait_for = |step_min: u32| {
            let step = step.lock().expect("no panic");
            drop(changed.wait_while(step, |step| *step < step_min).expect("no panic"));
        };
        while let Some((stream, _)) = h2.request() {
            if refuses {
                wait_for(1);
                h2.reset(stream, ErrorCode::REFUSED_STREAM);
                go_to(2);
            } else {
                go_to(1);
                wait_for(2);
                h2.answer(stream);
            }
        }
    });
    on_every_driver(
        |driver| {
            *steps.0.lock().expect("no panic") = 0;
            streams(driver, &server.url("/"), 2, 1, 2)
        },
        |outcome| {
            all_right(outcome, 2);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            assert_eq!(http2.resent, http2.resets["refused_stream"]);
            fewest.set(http2.resent.min(fewest.get()));
        },
    );
    // The one is asked again when the other one has not come to rest within two milliseconds, as on a machine that is busy.
    assert_eq!(fewest.get(), 1);
}

/// A limit that is lowered while requests are under way.
#[test]
fn the_fewest_streams_that_a_server_has_allowed_are_shown() {
    let settings = Settings { streams_max: 6, ..Settings::DEFAULT };
    let server = Server::start(move |peer| {
        let mut h2 = H2::new(peer, settings);
        while let Some((stream, _)) = h2.request() {
            if h2.requests == 10 {
                // SETTINGS_MAX_CONCURRENT_STREAMS.
                h2.peer.send(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2]);
            }
            h2.answer(stream);
        }
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 10, 60),
        |outcome| {
            all_right(outcome, 60);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            assert_eq!((http2.streams_allowed, http2.connections_limited), (Some(2), 1));
        },
    );
}

#[test]
fn a_reset_costs_its_request_and_no_other() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, _)) = h2.request() {
            let done = match h2.requests % 10 {
                3 => h2.reset(stream, ErrorCode::INTERNAL_ERROR),
                // In the middle of its body.
                7 => {
                    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
                    h2.say(|connection, out| {
                        connection.send_head(out, stream, head, false);
                        connection.send_data(out, stream, b"abc", false);
                        let _was_there = connection.reset(out, stream, ErrorCode::CANCEL);
                    })
                }
                _ => h2.answer(stream),
            };
            if !done {
                return;
            }
        }
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 4, 100),
        |outcome| {
            is_sound(outcome);
            assert_eq!(outcome.errors, Errors { stream_reset: 20, ..Errors::default() });
            assert_eq!((outcome.totals.right, outcome.totals.connects), (80, 1));
            let resets = &outcome.http2.as_ref().expect("it was spoken").resets;
            assert_eq!((resets["internal_error"], resets["cancel"]), (10, 10));
            let said = outcome.findings.iter().find(|each| each.kind == FindingKind::ManyErrors);
            assert!(said.expect("one").text.contains("reset by the server, each its stream alone"));
        },
    );
}

#[test]
fn a_goaway_with_an_error_is_why_its_requests_failed() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        let asked = std::iter::from_fn(|| h2.request()).take(2).count();
        if asked == 2 {
            h2.goaway(3, 11);
            h2.peer.close();
        }
    });
    let outcome = try_run(streams(first_driver(), &server.url("/"), 1, 2, 10));
    let outcome = outcome.expect("poll is everywhere");
    assert_eq!(outcome.errors, Errors { goaway: 10, ..Errors::default() });
    let goaways = &outcome.http2.as_ref().expect("it was spoken").goaways;
    assert_eq!(goaways, &BTreeMap::from([("enhance_your_calm".to_owned(), 5)]));
}

#[test]
fn an_answer_that_takes_too_long_costs_its_stream_alone() {
    at_once(|driver| {
        let cancelled = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&cancelled);
        let server = Server::start(move |peer| {
            let mut h2 = H2::new(peer, Settings::DEFAULT);
            loop {
                match h2.next() {
                    Some(Seen::Request { .. }) if h2.requests == 2 => {}
                    Some(Seen::Request { stream, .. }) => {
                        delay(Duration::from_millis(5));
                        h2.answer(stream);
                    }
                    Some(Seen::Reset { stream: 3, code: ErrorCode::CANCEL }) => {
                        counted.fetch_add(1, SeqCst);
                    }
                    Some(_) => {}
                    None => return,
                }
            }
        });
        let mut plan = streams(driver, &server.url("/"), 1, 2, 500);
        // Longer than a machine that is busy takes for any other answer, and shorter than all of them take.
        plan.request_timeout = Duration::from_secs(2);
        let Some(outcome) = try_run(plan) else { return false };
        assert_eq!(outcome.errors, Errors { timeout: 1, ..Errors::default() }, "{driver}");
        assert_eq!((outcome.totals.right, outcome.totals.connects), (499, 1), "{driver}");
        wait_until("the server has read its end", || cancelled.load(SeqCst) == 1);
        true
    });
}

#[test]
fn a_server_that_says_nothing_more_is_given_up() {
    // It reads the preface, and then not even that.
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        h2.request();
        h2.peer.stay_silent();
    });
    on_every_driver(
        |driver| {
            let mut plan = streams(driver, &server.url("/"), 1, 4, 12);
            plan.request_timeout = Duration::from_millis(60);
            plan
        },
        |outcome| {
            assert_eq!(outcome.errors, Errors { timeout: 12, ..Errors::default() });
            // Its SETTINGS came while the first four waited; while the next four did nothing came.
            assert_eq!(outcome.totals.connects, 2);
        },
    );
}

#[test]
fn windows_of_both_ends_are_kept_to() {
    const BODY: usize = 50_000;
    let settings = Settings { stream_window: 1_000, ..Settings::DEFAULT };
    let server = Server::start(move |peer| {
        let mut h2 = H2::new(peer, settings);
        let mut received = BTreeMap::new();
        // What is left to be sent, and how much of it the client lets through.
        let mut rests: BTreeMap<u32, usize> = BTreeMap::new();
        while let Some(seen) = h2.next() {
            match seen {
                Seen::Request { stream, head, ends } => {
                    assert!(!ends && head.contains("\r\ncontent-length: 50000\r\n"), "{head}");
                    received.insert(stream, 0);
                }
                Seen::Data { stream, bytes, ends } => {
                    let all = received.entry(stream).or_default();
                    *all += bytes;
                    if ends {
                        assert_eq!(*all, BODY);
                        rests.insert(stream, BODY);
                        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 50000\r\n\r\n";
                        h2.say(|connection, out| connection.send_head(out, stream, head, false));
                    }
                }
                _ => {}
            }
            for (stream, rest) in &mut rests {
                let piece = h2.connection.data_room(*stream).min(*rest);
                if piece > 0 {
                    // The client said 2,000, and never lets more be under way.
                    assert!(piece <= 2_000, "{piece}");
                    *rest -= piece;
                    let ends = *rest == 0;
                    h2.say(|connection, out| {
                        connection.send_data(out, *stream, &vec![1; piece], ends);
                        let _done = connection.take_done(*stream);
                    });
                }
            }
            rests.retain(|_, rest| *rest > 0);
        }
    });
    on_every_driver(
        |driver| {
            let mut plan = streams(driver, &server.url("/in"), 1, 3, 12);
            plan.targets[0].method = "POST".to_owned();
            plan.targets[0].body = vec![7; BODY];
            plan.stream_window = 2_000;
            plan
        },
        |outcome| {
            all_right(outcome, 12);
            assert_eq!(outcome.totals.body_bytes_in, 12 * BODY as u64);
            assert!(outcome.totals.bytes_out > 12 * BODY as u64, "{:?}", outcome.totals);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            assert!(http2.window_stalls >= 12, "{http2:?}");
        },
    );
}

#[test]
fn an_answer_before_the_request_has_left_counts_and_the_rest_follows_or_is_not_wanted() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some(seen) = h2.next() {
            let Seen::Request { stream, head, .. } = seen else { continue };
            h2.answer_with(stream, "413", b"");
            if head.starts_with("POST /cut") {
                h2.reset(stream, ErrorCode::NO_ERROR);
            }
        }
    });
    for path in ["/cut", "/read"] {
        on_every_driver(
            |driver| {
                let mut plan = streams(driver, &server.url(path), 1, 2, 6);
                plan.targets[0].method = "POST".to_owned();
                plan.targets[0].body = vec![7; 200_000];
                plan
            },
            |outcome| {
                is_sound(outcome);
                assert_eq!(outcome.errors, Errors { status: 6, ..Errors::default() }, "{path}");
                assert_eq!((outcome.statuses[&413], outcome.totals.connects), (6, 1));
            },
        );
    }
}

#[test]
fn answers_are_checked_and_the_first_wrong_one_is_kept() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, _)) = h2.request() {
            match h2.requests % 4 {
                0 => h2.answer_with(stream, "503", b"bu\x1bsy"),
                1 => h2.say(|connection, out| {
                    let interim = b"HTTP/1.1 103 x\r\nlink: a\r\n\r\n";
                    connection.send_head(out, stream, interim, false);
                    let moved = b"HTTP/1.1 302 x\r\nlocation: /login\r\n\r\n";
                    connection.send_head(out, stream, moved, true);
                    let _done = connection.take_done(stream);
                }),
                _ => h2.answer(stream),
            };
        }
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 1, 40),
        |outcome| {
            is_sound(outcome);
            let counts: Vec<_> = outcome.statuses.iter().map(|(a, b)| (*a, *b)).collect();
            assert_eq!(counts, [(200, 20), (302, 10), (503, 10)]);
            let wrong = outcome.first_wrong.as_ref().expect("one");
            assert_eq!((&*wrong.status_line, &*wrong.body), ("HTTP/2 503", "bu\\u{1b}sy"));
            let redirect = outcome.first_redirect.as_ref().expect("one");
            assert_eq!(redirect.location.as_deref(), Some("/login"));
        },
    );
    let mut plan = streams(first_driver(), &server.url("/"), 1, 1, 40);
    plan.expect.body_bytes = Some(6);
    let outcome = try_run(plan).expect("poll is everywhere");
    assert_eq!((outcome.errors.mismatch, outcome.errors.status), (20, 10));
}

#[test]
fn cookies_and_hosts_and_methods_are_those_of_http1() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, head)) = h2.request() {
            assert!(head.starts_with("HEAD /a HTTP/2.0\r\nhost: www.example\r\n"), "{head}");
            let cookie = (h2.requests > 1).then(|| format!("a={}", h2.requests - 1));
            let sent = head.lines().find_map(|line| line.strip_prefix("cookie: "));
            assert_eq!(sent, cookie.as_deref());
            let answer = format!(
                "HTTP/1.1 200 OK\r\nset-cookie: a={}\r\ncontent-length: 77\r\n\r\n",
                h2.requests
            );
            h2.say(|connection, out| {
                connection.send_head(out, stream, answer.as_bytes(), true);
                let _done = connection.take_done(stream);
            });
        }
    });
    on_every_driver(
        |driver| {
            let mut plan = streams(driver, &server.url("/a"), 1, 1, 20);
            plan.targets[0].method = Method::Head.name().to_owned();
            plan.targets[0].host = "www.example".to_owned();
            plan.keeps_cookies = true;
            plan
        },
        |outcome| {
            all_right(outcome, 20);
            assert_eq!((outcome.totals.cookies_set, outcome.totals.body_bytes_in), (20, 0));
        },
    );
}

#[test]
fn a_connection_carries_as_many_requests_as_it_may() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        h2.answer_all();
        assert!(h2.requests <= 5, "{}", h2.requests);
    });
    on_every_driver(
        |driver| {
            let plan = streams(driver, &server.url("/"), 2, 4, 100);
            Plan { requests_per_connection: some(5), ..plan }
        },
        |outcome| {
            all_right(outcome, 100);
            // The last requests may be shared among more.
            assert!((20..=22).contains(&outcome.totals.connects), "{:?}", outcome.totals);
        },
    );
}

#[test]
fn what_is_not_http2_is_malformed_or_named() {
    let server = Server::start(|mut peer| {
        peer.send(&[0xff; 64]);
        peer.stay_silent();
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 2, 6),
        |outcome| {
            assert_eq!((outcome.totals.answered, outcome.errors.connect), (0, 0));
            assert!(outcome.errors.malformed >= 6, "{:?}", outcome.errors);
            let why = outcome.first_wrong.as_ref().and_then(|wrong| wrong.why.clone());
            assert!(why.expect("why").contains("frame"));
        },
    );
    let server = Server::start(|mut peer| {
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        peer.stay_silent();
    });
    let outcome = try_run(streams(first_driver(), &server.url("/"), 1, 2, 6));
    let why = outcome.expect("poll is everywhere").first_failure.expect("why");
    assert!(why.contains("answers HTTP/2 by HTTP/1") && why.contains("--http 1.1"), "{why}");
}

/// A frame that breaks the rules behind sound ones which come with it, and others that nobody looks at.
#[test]
fn the_frame_at_fault_is_the_one_that_is_shown() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        let Some((stream, _)) = h2.request() else { return };
        h2.say(|connection, out| {
            let head = b"HTTP/1.1 200 OK\r\nserver: test\r\n\r\n";
            connection.send_head(out, stream, head, false);
            connection.ping(out, *b"are you?");
            // Of the stream 201, which nobody has begun.
            out.put(&[0, 0, 4, 8, 0, 0, 0, 0, 201, 0, 0, 0, 9]);
            connection.ping(out, *b"are you?");
        });
        h2.peer.stay_silent();
    });
    on_every_driver(
        |driver| streams(driver, &server.url("/"), 1, 1, 4),
        |outcome| {
            assert_eq!((outcome.errors.malformed, outcome.totals.answered), (4, 0));
            let wrong = outcome.first_wrong.as_ref().expect("one");
            assert_eq!(wrong.status_line, "frame window_update, 4 bytes, flags 0x0, stream 201");
            let why = wrong.why.as_deref();
            assert_eq!(why, Some("a frame for a stream that was not begun"));
        },
    );
}

/// RFC 9113 6.8: so that the server knows that nothing else comes.
#[test]
fn a_connection_that_ends_regularly_says_so() {
    let said = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&said);
    let server = Server::start(move |peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        h2.answer_all();
        counted.fetch_add(h2.goaways, SeqCst);
    });
    on_every_driver(
        |driver| {
            said.store(0, SeqCst);
            let plan = streams(driver, &server.url("/"), 2, 4, 100);
            Plan { requests_per_connection: some(5), ..plan }
        },
        |outcome| {
            all_right(outcome, 100);
            let http2 = outcome.http2.as_ref().expect("it was spoken");
            // The last ones end with the run.
            assert!(http2.frames_out["goaway"] >= 18, "{http2:?}");
            wait_until("what was said has come", || said.load(SeqCst) >= 18);
        },
    );
}

/// A schedule that is faster than the server: what waits for a stream has waited from its time on.
#[test]
fn latency_counts_from_the_schedule_when_all_streams_are_in_use() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        while let Some((stream, _)) = h2.request() {
            delay(Duration::from_millis(10));
            h2.answer(stream);
        }
    });
    let stage = |rate: f64| Stage { from_per_s: rate, to_per_s: rate, lasts: None };
    let pace = |rate| Pace::Open { arrival: Arrival::Constant, stages: vec![stage(rate)] };
    let mut plan = streams(first_driver(), &server.url("/"), 1, 2, 40);
    // 40 requests in 0.1 s, of which one is answered each 10 ms.
    plan.pace = pace(400.0);
    let outcome = try_run(plan).expect("poll is everywhere");
    all_right(&outcome, 40);
    let last_ns = outcome.latency.max_ns().expect("answers");
    assert!(last_ns >= 40 * 10_000_000 - 100_000_000, "{last_ns}");
    let took = outcome.sent_to_answer.expect("it is counted");
    // From sending on only the stream before it.
    assert!(took.mean_ns < outcome.latency.mean_ns().expect("answers") / 2.0, "{took:?}");
}

/// As the lab looks at a server: with a body that is longer than its windows, and again on the same connection.
#[test]
fn a_request_before_any_load_is_asked_by_http2_too() {
    let settings = Settings { stream_window: 1_000, ..Settings::DEFAULT };
    let server = Server::start(move |peer| {
        let mut h2 = H2::new(peer, settings);
        while let Some((stream, head)) = h2.request() {
            if head.starts_with("POST /reset") {
                h2.reset(stream, ErrorCode::INTERNAL_ERROR);
            } else if head.starts_with("POST /away") {
                h2.goaway(0, 11);
            } else {
                h2.answer_with(stream, "404", b"no such");
            }
        }
    });
    let patience = Duration::from_secs(20);
    let target = |path: &str| {
        let target = Target::parse(&server.url(path), None).expect("a URL");
        Target { method: "POST".to_owned(), body: vec![b'x'; 100_000], ..target }
    };
    let http = Protocol::Http2;
    let answered = ask_by(http, &target("/"), &Trust::default(), patience).expect("an answer");
    assert_eq!((answered.status, answered.body_bytes, answered.keep_alive), (404, 7, true));
    let mut client =
        Client::open(http, &target("/"), &Trust::default(), patience).expect("a connection");
    client.send(2).expect("sent");
    for _ in 0..2 {
        assert_eq!(client.answer(patience).expect("an answer").status, 404);
    }
    let reset = ask_by(http, &target("/reset"), &Trust::default(), patience);
    assert!(
        matches!(&reset, Err(RequestError::Answer(why)) if why.to_string().contains("internal_error")),
        "{reset:?}"
    );
    let away = ask_by(http, &target("/away"), &Trust::default(), patience);
    assert!(
        matches!(&away, Err(RequestError::Answer(why)) if why.to_string().contains("enhance_your_calm")),
        "{away:?}"
    );
    let early = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings { stream_window: 1_000, ..Settings::DEFAULT });
        while let Some(seen) = h2.next() {
            if let Seen::Request { stream, .. } = seen {
                h2.answer_with(stream, "413", b"too long");
                h2.reset(stream, ErrorCode::NO_ERROR);
            }
        }
    });
    let long = Target { body: vec![b'x'; 100_000], ..target("/") };
    let long = Target { address: early.address.into(), ..long };
    let mut client = Client::open(http, &long, &Trust::default(), patience).expect("a connection");
    for _ in 0..3 {
        client.send(1).expect("sent");
        assert_eq!(client.answer(patience).expect("an answer").status, 413);
    }
    let other = Server::start(|mut peer| peer.answer_all(crate::OK));
    let target = Target::parse(&other.url("/"), None).expect("a URL");
    let refused = ask_by(http, &target, &Trust::default(), patience);
    assert!(matches!(refused, Err(RequestError::Malformed(_))), "{refused:?}");
}

/// What is still under way on a connection that its server ends counts among the streams that were asked for: the new one
/// asks as many fewer.
#[test]
fn no_more_streams_are_under_way_while_a_connection_is_replaced() {
    let state = Arc::new((Mutex::new((0_u32, 0_u32)), Condvar::new()));
    let seen = Arc::clone(&state);
    let server = Server::start(move |peer| {
        let number = peer.number;
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        let (both, changed) = &*seen;
        // How many are under way that count, and how many connections have seen all of them.
        let begin = |more: u32| {
            let mut both = both.lock().expect("no panic");
            both.0 += more;
            assert!(both.0 <= 4, "{} under way", both.0);
            both.0
        };
        if number.is_multiple_of(2) {
            let asked = std::iter::from_fn(|| h2.request()).take(4).count();
            assert_eq!(asked, 4);
            begin(2);
            h2.goaway(3, 0);
            let is_before = |both: &mut (u32, u32)| both.1 <= number;
            let waited = changed.wait_while(both.lock().expect("no panic"), is_before);
            waited.expect("no panic").0 -= 2;
            h2.answer(1);
            h2.answer(3);
            assert!(h2.request().is_none(), "the client ends it");
            return;
        }
        let mut asked = Vec::new();
        while asked.len() < 4 {
            let Some((stream, _)) = h2.request() else { return };
            asked.push(stream);
            if begin(1) == 4 && asked.len() == 2 {
                both.lock().expect("no panic").1 = number;
                changed.notify_all();
            }
        }
        both.lock().expect("no panic").0 -= 4;
        asked.iter().for_each(|stream| assert!(h2.answer(*stream)));
        h2.answer_all();
    });
    on_every_driver(
        |driver| {
            state.0.lock().expect("no panic").0 = 0;
            streams(driver, &server.url("/"), 1, 4, 40)
        },
        |outcome| all_right(outcome, 40),
    );
}

#[test]
fn a_server_that_gives_up_each_connection_at_once_fails_and_is_not_asked_for_ever() {
    let server = Server::start(|peer| {
        let mut h2 = H2::new(peer, Settings::DEFAULT);
        h2.goaway(0, 11);
        h2.peer.close();
    });
    let outcome = try_run(streams(first_driver(), &server.url("/"), 1, 2, 4));
    let outcome = outcome.expect("poll is everywhere");
    assert_eq!((outcome.totals.answered, outcome.errors.total()), (0, 4), "{:?}", outcome.errors);
    let goaways = &outcome.http2.as_ref().expect("it was spoken").goaways;
    assert!(goaways["enhance_your_calm"] >= 9, "{goaways:?}");
    let why = outcome.first_failure.expect("why");
    assert!(why.contains("before it answers anything (GOAWAY enhance_your_calm)"), "{why}");
}
