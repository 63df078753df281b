//! Whole conversations, without a kernel.

use std::sync::Arc;

use pollux_engine::{CloseCause, Rehearsal};
use proptest::prelude::*;

use super::*;
use crate::counters::ServerCounters;
use crate::front::epoch;
use crate::log::Logs;
use pollux_settings::Given;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const SECOND: Duration = Duration::from_secs(1);

type Play = Rehearsal<HttpSession>;

fn play(config: &str) -> Play {
    let config = Given::from_toml(config, "test").read().expect("a configuration");
    let counters = Arc::new(ServerCounters::default());
    let state = LoopState::new(&config, counters, &Logs::default()).expect("a state");
    Rehearsal::new(state, Now { at: Moment::from_nanos(1_000_000_000), unix_s: 784_111_777 })
}

fn text(play: &mut Play) -> String {
    String::from_utf8(play.take_output()).expect("text")
}

fn ask(play: &mut Play, request: &str) -> String {
    play.feed(request.as_bytes());
    text(play)
}

fn count(play: &Play, counter: ServerCounter) -> u64 {
    play.shared.counters().value(counter)
}

fn status(answer: &str) -> u16 {
    answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0)
}

#[test]
fn an_idle_connection_costs_little() {
    assert!(size_of::<HttpSession>() <= 32, "{}", size_of::<HttpSession>());
}

#[test]
fn the_fixed_reply_is_what_was_asked_for_to_the_byte() {
    let answer = ask(&mut play("reply = 5"), GET);
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\nServer: pollux\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: text/plain\r\nContent-Length: 5\r\n\r\npollu"
    );
}

#[test]
fn a_request_ends_by_the_settings_by_which_it_began_and_the_next_one_by_those_of_then() {
    let sites = |timeout: &str, routes: &str| {
        format!("body_timeout = \"{timeout}\"\n[[site]]\nhost = \"*\"\nroute = [ {routes} ]\n")
    };
    let before = sites("2s", "{ path = \"/\", reply = 40 }, { path = \"/echo\", echo = true }");
    let after = sites("9s", "{ path = \"/other\", reply = 7 }");
    let now = Now { at: Moment::from_nanos(1_000_000_000), unix_s: 784_111_777 };
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
    for (path, body) in [("/", "pollux 0123"), ("/echo", "ok")] {
        let mut play = Play::new(epoch::play::state(&before), now);
        assert_eq!(ask(&mut play, &post(path)), "");
        epoch::play::reload(&mut play.shared, &after);
        assert_eq!(epoch::play::epochs(&mut play.shared), 2);
        let answers = ask(&mut play, &format!("okGET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let (first, second) = answers.split_at(answers.rfind("HTTP/1.1 ").expect("two"));
        assert!(status(first) == 200 && first.contains(body), "{answers}");
        assert_eq!(status(second), 404, "{answers}");
        assert_eq!(epoch::play::epochs(&mut play.shared), 1);
    }
    // Its time is that of then, too.
    let mut play = Play::new(epoch::play::state(&before), now);
    ask(&mut play, &post("/"));
    epoch::play::reload(&mut play.shared, &after);
    play.pass(3 * SECOND);
    assert_eq!(status(&text(&mut play)), 408);
    assert_eq!(epoch::play::epochs(&mut play.shared), 1);
}

#[test]
fn a_large_reply_comes_whole_and_what_follows_it_in_order() {
    let mut play = play("reply = \"1MiB\"");
    let answer = ask(&mut play, &format!("{GET}HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("Content-Length: 1048576"));
    let (body, next) = body.split_at(1 << 20);
    assert!(body.bytes().enumerate().all(|(at, byte)| byte == body.as_bytes()[at % 32]));
    assert!(next.starts_with("HTTP/1.1 200 OK") && next.ends_with("\r\n\r\n"), "{next}");
}

#[test]
fn pipelined_requests_are_answered_and_counted_however_many_there_are() {
    let mut play = play("reply = 1000");
    let answer = ask(&mut play, &GET.repeat(500));
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 500);
    assert_eq!((play.closed(), play.shared.counters().requests_total()), (None, 500));
}

#[test]
fn methods_that_are_not_served_have_different_statuses() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("dir = {:?}", folder.path());
    for (method, code) in [("POST", 405), ("TRACE", 405), ("BREW", 501), ("OPTIONS", 204)] {
        let mut play = play(&config);
        let answer = ask(&mut play, &format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(status(&answer), code, "{answer}");
        assert!(answer.contains("Allow: GET, HEAD, OPTIONS\r\n"), "{answer}");
        assert_eq!(play.closed(), None);
    }
    let mut play = play("reply = 1");
    assert_eq!(status(&ask(&mut play, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")), 204);
    let refused = ask(&mut play, "TRACE / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nxxxx");
    assert!(status(&refused) == 405 && refused.contains("Connection: close"));
    assert_eq!(play.closed(), Some(CloseCause::Session));
}

#[test]
fn heads_that_nginx_takes_are_served() {
    let mut play = play("reply = 2");
    let fields: String = (0..120).map(|at| format!("X-{at}: 1\r\n")).collect();
    let cookies = format!("Cookie: {}\r\n", "a".repeat(7 * 1024)).repeat(4);
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "t".repeat(8099));
    for request in
        [fields, cookies].map(|lines| GET.replace("\r\n\r\n", &format!("\r\n{lines}\r\n")))
    {
        assert_eq!(status(&ask(&mut play, &request)), 200, "{request:.60}");
    }
    assert_eq!(status(&ask(&mut play, &target)), 200);
}

#[test]
fn limits_of_heads_move_and_a_refusal_names_them() {
    let config = "reply = 2\nmax_head = \"2KiB\"\nmax_fields = 3\nmax_target = 1024\nmax_body = 5";
    let head = |line: String, fields: String| format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let line = || "GET /".to_owned();
    for (request, code, named) in [
        (head(line(), "A: b\r\n".repeat(2)), 200, ""),
        (head(line(), "A: b\r\n".repeat(3)), 431, "max_fields = 3 ("),
        (head(line(), format!("A: {:2048}\r\n", "b")), 431, "max_head = 2048 bytes ("),
        (head(format!("GET /{:a<1023}", ""), String::new()), 200, ""),
        (head(format!("GET /{:a<1024}", ""), String::new()), 414, "max_target = 1024 bytes ("),
        (
            head("POST /".to_owned(), "Content-Length: 6\r\n".to_owned()),
            413,
            "max_body = 5 bytes (",
        ),
    ] {
        let answer = ask(&mut play(config), &request);
        assert_eq!(status(&answer), code, "{request:.60}");
        assert!(answer.contains(named), "{answer}");
    }
}

#[test]
fn an_https_target_is_for_connections_that_are_secured() {
    for method in ["GET", "HEAD", "POST"] {
        let mut play = play("reply = 2");
        let answer =
            ask(&mut play, &format!("{method} https://a/x HTTP/1.1\r\nHost: a\r\n\r\n{GET}"));
        assert_eq!(status(&answer), 421, "{method}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{method}: what follows is not read");
    }
    assert_eq!(
        status(&ask(&mut play("reply = 2"), "GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n")),
        200
    );
}

#[test]
fn a_refusal_of_head_has_no_body() {
    for request in [
        "HEAD / HTTP/1.1\r\n\r\n",
        "\r\nHEAD / HTTP/2.0\r\n",
        "HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz",
    ] {
        let answer = ask(&mut play("reply = 1"), request);
        assert!(status(&answer) >= 400 && answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(!answer.contains("Content-Length: 0\r\n"), "{answer}");
        assert_eq!(answer.matches("Server: ").count(), 1, "{answer}");
    }
}

#[test]
fn bodies_are_read_and_dropped_before_the_answer() {
    let mut play = play("reply = 1");
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
    assert_eq!(ask(&mut play, &format!("{head}12345")), "");
    let answer = ask(&mut play, &format!("67890{GET}"));
    assert_eq!(answer.matches("200 OK").count(), 2);
    assert_eq!(count(&play, ServerCounter::BodyBytes), 10);
}

#[test]
fn a_100_continue_is_sent_only_while_the_client_waits() {
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let mut waiting = play("echo = true");
    assert_eq!(ask(&mut waiting, head), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(ask(&mut waiting, "hi").ends_with("\r\n\r\nhi"));
    let mut sending = play("echo = true");
    assert!(ask(&mut sending, &format!("{head}h")).starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn an_echo_keeps_the_framing_of_the_request() {
    let mut play = play("echo = true");
    let answer = ask(&mut play, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert!(answer.contains("Content-Length: 5\r\n") && answer.ends_with("\r\n\r\nhello"));
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n";
    let answer = ask(&mut play, chunked);
    assert!(answer.ends_with("\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"), "{answer}");
    let empty = ask(&mut play, GET);
    assert!(empty.contains("Content-Length: 0\r\n") && empty.ends_with("\r\n\r\n"));
    let get = ask(&mut play, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert!(get.ends_with("\r\n\r\nhi"), "{get}");
    let none = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(ask(&mut play, none).ends_with("\r\n\r\n0\r\n\r\n"));
    assert_eq!(play.shared.counters().answers(1), 5);
}

#[test]
fn an_echo_larger_than_any_room_comes_back_whole() {
    let mut play = play("echo = true\nmax_body = \"1MiB\"");
    let body: String = (0..150_000).map(|n| format!("{n:06}")).collect();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    play.stall();
    play.feed(head.as_bytes());
    play.feed(body.as_bytes());
    play.flow();
    play.feed(GET.as_bytes());
    let answer = text(&mut play);
    let (_, echoed) = answer.split_once("\r\n\r\n").expect("a head");
    let (echoed, next) = echoed.split_at(body.len());
    assert!(echoed == body && next.starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_broken_body_is_refused_before_and_cut_after_the_answer_began() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut early = play("echo = true");
    assert_eq!(status(&ask(&mut early, &format!("{head}zz\r\n"))), 400);
    assert_eq!(early.closed(), Some(CloseCause::Session));
    let mut late = play("echo = true");
    ask(&mut late, &format!("{head}1\r\nx\r\n"));
    ask(&mut late, "zz\r\n");
    assert_eq!(late.closed(), Some(CloseCause::Reset));
}

#[test]
fn a_silent_client_is_closed_silently() {
    let mut play = play("reply = 1\nheader_timeout = \"5s\"");
    play.pass(5 * SECOND);
    assert_eq!((text(&mut play), play.closed()), (String::new(), Some(CloseCause::Session)));
    assert_eq!(count(&play, ServerCounter::TimeoutsSilent), 1);
}

#[test]
fn a_head_that_trickles_in_is_answered_with_408_at_an_absolute_deadline() {
    let mut play = play("reply = 1\nheader_timeout = \"5s\"");
    ask(&mut play, GET);
    play.pass(50 * SECOND);
    for byte in "GET /".bytes() {
        assert_eq!(play.closed(), None);
        play.feed(&[byte]);
        play.pass(SECOND);
    }
    let answer = text(&mut play);
    assert!(status(&answer) == 408 && answer.contains("Connection: close"), "{answer}");
    assert_eq!(count(&play, ServerCounter::TimeoutsHeader), 1);
}

#[test]
fn a_connection_that_is_idle_too_long_is_closed_silently() {
    let mut play = play("reply = 1\nidle_timeout = \"3s\"");
    for _ in 0..3 {
        ask(&mut play, GET);
        play.pass(2 * SECOND);
        assert_eq!(play.closed(), None);
    }
    play.pass(SECOND);
    assert_eq!((text(&mut play), play.closed()), (String::new(), Some(CloseCause::Session)));
    assert_eq!(count(&play, ServerCounter::TimeoutsIdle), 1);
}

#[test]
fn an_empty_line_behind_a_body_starts_no_request() {
    let mut idle = play("reply = 1\nheader_timeout = \"2s\"\nidle_timeout = \"5s\"");
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n";
    assert_eq!(status(&ask(&mut idle, post)), 200);
    idle.pass(4 * SECOND);
    assert_eq!((ask(&mut idle, "\r\n").as_str(), idle.closed()), ("", None));
    idle.pass(SECOND);
    assert_eq!((text(&mut idle), idle.closed()), (String::new(), Some(CloseCause::Session)));
    assert_eq!(count(&idle, ServerCounter::TimeoutsIdle), 1);
    let mut continued = play("reply = 1");
    assert_eq!(status(&ask(&mut continued, post)), 200);
    assert_eq!(status(&ask(&mut continued, GET)), 200);
}

#[test]
fn a_body_has_the_time_that_its_bytes_earned() {
    let config = "reply = 1\nbody_timeout = \"2s\"\nbody_rate_min = 100";
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
    let mut fast = play(config);
    ask(&mut fast, head);
    for _ in 0..9 {
        fast.pass(SECOND);
        fast.feed(&[b'x'; 110]);
    }
    assert_eq!(fast.closed(), None);
    assert_eq!(status(&ask(&mut fast, "xxxxxxxxxx")), 200);
    let mut slow = play(config);
    ask(&mut slow, head);
    for _ in 0..3 {
        slow.pass(SECOND);
        slow.feed(&[b'x'; 50]);
    }
    assert_eq!(status(&text(&mut slow)), 408);
    assert_eq!(count(&slow, ServerCounter::TimeoutsBody), 1);
}

#[test]
fn a_client_that_has_sent_much_may_not_be_silent_for_long() {
    let mut play = play("reply = 1\nbody_timeout = \"1s\"\nmax_body = \"100MiB\"");
    ask(&mut play, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n");
    for _ in 0..200 {
        play.feed(&[b'x'; 100_000]);
    }
    play.pass(2 * SECOND);
    assert_eq!(status(&text(&mut play)), 408);
}

#[test]
fn a_client_that_does_not_read_its_echo_is_not_blamed_for_a_body_that_is_not_read() {
    let mut play = play("echo = true\nbody_timeout = \"3s\"");
    play.stall();
    ask(&mut play, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    play.pass(60 * SECOND);
    assert_eq!((play.closed(), count(&play, ServerCounter::TimeoutsBody)), (None, 0));
    play.flow();
    play.pass(SECOND);
    play.feed(b"def");
    play.pass(SECOND);
    assert_eq!(play.closed(), None);
    assert!(ask(&mut play, "ghi").ends_with("ghi"));
    assert_eq!(play.closed(), None);
}

#[test]
fn an_echo_that_has_begun_cannot_be_timed_out_politely() {
    let mut play = play("echo = true\nbody_timeout = \"2s\"\nbody_rate_min = 0");
    ask(&mut play, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx");
    play.pass(2 * SECOND);
    assert_eq!(play.closed(), Some(CloseCause::Reset));
}

#[test]
fn a_peer_that_ends_gets_what_it_asked_for() {
    let mut whole = play("reply = \"1MiB\"");
    whole.feed(GET.as_bytes());
    whole.end();
    assert!(whole.take_output().len() > 1 << 20);
    assert_eq!(whole.closed(), Some(CloseCause::Session));
    let mut half = play("reply = 1");
    half.feed(b"GET / HT");
    half.end();
    assert_eq!(half.closed(), Some(CloseCause::Session));
    assert_eq!(count(&half, ServerCounter::Incomplete), 1);
}

#[test]
fn draining_leaves_idle_connections_time_and_makes_the_next_answer_the_last() {
    for has_asked in [false, true] {
        let [mut silent, mut on_its_way] = std::array::from_fn(|_| play("reply = 1"));
        for idle in [&mut silent, &mut on_its_way] {
            if has_asked {
                ask(idle, GET);
            }
            idle.drain();
            assert_eq!(idle.closed(), None);
        }
        assert!(ask(&mut on_its_way, GET).contains("Connection: close"));
        assert_eq!(on_its_way.closed(), Some(CloseCause::Session));
        silent.pass(DRAIN_GRACE);
        assert_eq!(silent.closed(), Some(CloseCause::Session));
    }
    let mut busy = play("reply = 1");
    busy.feed(b"GET / HTTP/1.1\r\n");
    busy.drain();
    assert!(ask(&mut busy, "Host: a\r\n\r\n").contains("Connection: close"));
    assert_eq!(busy.closed(), Some(CloseCause::Session));
}

#[test]
fn every_answer_is_logged_with_what_was_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut play = play(&format!("reply = 5\naccess_log = {path:?}"));
    ask(&mut play, "GET /a?b HTTP/1.1\r\nHost: a\r\n\r\nHEAD /h HTTP/1.0\r\n\r\n");
    drop(play);
    let mut refused = self::play(&format!("reply = 5\naccess_log = {path:?}"));
    let head = "POST /big HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    ask(&mut refused, &format!("{head}200000\r\n"));
    drop(refused);
    let mut late = self::play(&format!("reply = 5\naccess_log = {path:?}"));
    ask(&mut late, head);
    late.pass(50 * SECOND);
    drop(late);
    let log = std::fs::read_to_string(&path).expect("written");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "- - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 5");
    assert!(lines[1].ends_with("\"HEAD /h HTTP/1.0\" 200 -"), "{log}");
    assert!(lines[2].contains("\"POST /big HTTP/1.1\" 413 "), "{log}");
    assert!(lines[3].contains("\"POST /big HTTP/1.1\" 408 -"), "{log}");
    assert_eq!(lines.len(), 4);
}

/// What the log says of a connection on which this was played, in JSON.
fn logged(config: &str, scene: impl Fn(&mut Play)) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let log = format!("{config}\naccess_log = {path:?}\naccess_log_format = \"json\"");
    let mut play = play(&log);
    scene(&mut play);
    drop(play);
    let log = std::fs::read_to_string(&path).expect("written");
    let end = |line: &str| line.split_once("\"status\":").expect("a status").1.to_owned();
    log.lines().map(end).collect()
}

#[test]
fn a_request_that_does_not_come_to_its_end_is_logged_too() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let gone = logged("reply = 1", |play| {
        ask(play, post);
        play.end();
    });
    assert_eq!(gone, ["499,\"body_bytes\":0,\"end\":\"client_gone\"}"]);
    let gone_from_echo = logged("echo = true", |play| {
        ask(play, post);
        play.end();
    });
    assert_eq!(gone_from_echo, ["200,\"body_bytes\":3,\"end\":\"client_gone\"}"]);
    let late = logged("echo = true", |play| {
        ask(play, post);
        play.pass(40 * SECOND);
    });
    assert_eq!(late, ["200,\"body_bytes\":3,\"end\":\"client_timeout\"}"]);
    let unsound = logged("echo = true", |play| {
        ask(play, chunked);
        play.feed(b"zz\r\n");
    });
    assert_eq!(unsound, ["200,\"body_bytes\":3,\"end\":\"client_bad_request\"}"]);
    let well = logged("echo = true", |play| {
        ask(play, post);
        play.feed(b"defghi");
    });
    assert_eq!(well, ["200,\"body_bytes\":9}"]);
}

proptest! {
    /// However the bytes are split, the answers are the same.
    #[test]
    fn splits_change_nothing(
        picks in prop::collection::vec(0_usize..6, 1..6),
        cuts in prop::collection::vec(1_usize..60, 1..20),
    ) {
        const REQUESTS: [&str; 6] = [
            GET,
            "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n1234567",
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nbad line\r\n\r\n",
        ];
        let input: String = picks.iter().map(|pick| REQUESTS[*pick]).collect();
        let mut whole = play("reply = 9");
        whole.feed(input.as_bytes());
        let mut split = play("reply = 9");
        let mut rest = input.as_bytes();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at((*cut).min(rest.len()));
            split.feed(piece);
            rest = tail;
        }
        prop_assert_eq!(text(&mut whole), text(&mut split));
        prop_assert_eq!(whole.closed(), split.closed());
    }

    /// No bytes make a session panic, stop answering in full lines, or stay open after an error.
    #[test]
    fn no_bytes_break_a_session(pieces in prop::collection::vec(".{0,80}|\\PC{0,20}\r\n\r\n", 0..6)) {
        let mut play = play("echo = true");
        for piece in &pieces {
            play.feed(piece.as_bytes());
        }
        play.end();
        prop_assert!(play.closed().is_some());
    }
}

#[test]
fn a_connection_without_a_request_takes_32_bytes() {
    assert!(size_of::<HttpSession>() <= 32, "{}", size_of::<HttpSession>());
}
