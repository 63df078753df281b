//! `split-reply` and `request-times`, on every driver: what they are for, and that nothing of them
//! is there when they are off.
//!
//! A head and a body in two writes without TCP_NODELAY wait for the peer's acknowledgement, which
//! a peer that has nothing to send delays by 40 ms. The answers are the same bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pollux_engine::{Driver, GroupError, ListenAddress};
use pollux_server::{Server, ServerError};
use pollux_settings::Given;

const PATIENCE: Duration = Duration::from_secs(20);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const REQUESTS: u32 = 12;
/// Linux delays an acknowledgement by this much, when it does.
const DELAYED_ACK: Duration = Duration::from_millis(40);

/// None where the driver is not to be had.
#[expect(clippy::print_stdout, reason = "a skipped driver is named")]
fn start(driver: Driver, more: &str) -> Option<Server> {
    let text = format!("reply = 300\nlisten = \"127.0.0.1:0\"\npoller = \"{driver}\"\n{more}");
    let config = Given::from_toml(&text, "test").read().expect("right");
    match Server::start(&config) {
        Ok(server) => Some(server),
        Err(ServerError::Group { cause: GroupError::Loop(why), .. })
            if std::env::var_os("POLLUX_FORBID_SKIP").is_none() =>
        {
            println!("{driver} is skipped: {why}");
            None
        }
        Err(error) => panic!("{driver}: {error}"),
    }
}

fn connect(address: &ListenAddress) -> TcpStream {
    let ListenAddress::Tcp(address) = address else { panic!("a TCP address") };
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Answers without their dates, and how long they took.
fn ask(server: &Server) -> (Vec<String>, Duration) {
    let mut stream = connect(&server.addresses()[0]);
    let began = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..REQUESTS {
        stream.write_all(GET).expect("sent");
        let mut bytes = Vec::new();
        let whole = |bytes: &[u8]| {
            let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
            head.is_some_and(|head| bytes.len() == head + 4 + 300)
        };
        let mut piece = [0; 1024];
        while !whole(&bytes) {
            let len = stream.read(&mut piece).expect("an answer");
            assert!(len > 0, "closed behind {} bytes", bytes.len());
            bytes.extend_from_slice(&piece[..len]);
        }
        let text = String::from_utf8(bytes).expect("text");
        let lines = text.lines().filter(|line| !line.starts_with("Date: "));
        answers.push(lines.collect::<Vec<_>>().join("\n"));
    }
    (answers, began.elapsed())
}

#[test]
fn a_split_reply_is_the_same_and_waits_for_acknowledgements() {
    for driver in Driver::ALL {
        let (Some(right), Some(wrong)) = (start(driver, ""), start(driver, "split_reply = true"))
        else {
            continue;
        };
        let (expected, _) = ask(&right);
        let (found, took) = ask(&wrong);
        assert_eq!(found, expected, "{driver}");
        // The first answers of a connection are acknowledged at once; some later one is not.
        assert!(took >= DELAYED_ACK, "{driver}: {REQUESTS} answers in {took:?}: nothing waited");
        for server in [right, wrong] {
            server.abort();
            server.join().expect("ended");
        }
    }
}

#[test]
fn requests_are_timed_when_that_is_asked_for() {
    for (more, expected) in [("", 0), ("request_times = true", u64::from(REQUESTS))] {
        let server = start(Driver::ALL[0], &format!("{more}\nstats = \"127.0.0.1:0\""));
        let server = server.expect("the first driver is everywhere");
        ask(&server);
        let mut stats = connect(server.stats_address().expect("configured"));
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stats.write_all(request).expect("sent");
        let mut page = String::new();
        stats.read_to_string(&mut page).expect("read");
        let counted = page
            .lines()
            .find_map(|line| line.strip_prefix("pollux_http_request_seconds_count{loop=\"0\"} "));
        let counted = counted.map_or(0, |count| count.parse().expect("a count"));
        assert_eq!(counted, expected, "{more}: {page}");
        server.abort();
        server.join().expect("ended");
    }
}
