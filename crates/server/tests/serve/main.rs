//! Whole servers on the kernel, in one process, on port 0 and without sleeping: endpoints, logs, limits, ends,
//! refusals, and what the options for measurements cost; what settings add to answers, compression among it
//! (`extras`); TLS (`encrypted`); HTTP/2 as its conformance suite sees it (`http2`).
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set that is a
//! failure.

mod encrypted;
mod extras;
mod http2;
#[path = "../proxy/identity.rs"]
#[expect(dead_code, reason = "the tests of the proxy use the others")]
mod identity;

use std::error::Error;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use pollux_engine::{Driver, GroupError, ListenAddress};
use pollux_server::config::ServeConfig;
use pollux_server::{Server, ServerCounter, ServerError};
use pollux_settings::Given;
use pollux_testing::{DEADLINE, skip, uninterrupted};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Where the loops send files in different ways.
const DRIVERS: [&str; 2] = ["epoll-et", "uring"];

const REQUESTS: u32 = 12;
/// Linux delays an acknowledgement by this much, when it does.
const DELAYED_ACK: Duration = Duration::from_millis(40);

fn configured(config: &str) -> ServeConfig {
    let text = format!("{config}\nlisten = \"127.0.0.1:0\"\nquiet = true");
    Given::from_toml(&text, "test").read().expect("right")
}

fn start(config: &str) -> Server {
    Server::start(&configured(config)).expect("started")
}

/// None where the driver is not available.
fn start_on(driver: &str, config: &str) -> Option<Server> {
    match Server::start(&configured(&format!("{config}\npoller = \"{driver}\""))) {
        Ok(server) => Some(server),
        Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
            skip(format_args!("{driver}: {reason}"));
            None
        }
        Err(error) => panic!("{driver}: {error}"),
    }
}

fn address(server: &Server) -> SocketAddr {
    let ListenAddress::Tcp(address) = server.addresses()[0] else { panic!("a TCP address") };
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream
}

fn client(server: &Server) -> TcpStream {
    connect(address(server))
}

fn count(server: &Server, counter: ServerCounter) -> u64 {
    server.overview().loops.iter().map(|each| each.server.value(counter)).sum()
}

/// What went wrong, with all causes.
fn causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The page of the endpoint for metrics.
fn metrics(server: &Server) -> String {
    let Some(ListenAddress::Tcp(stats)) = server.stats_address() else { panic!("a TCP address") };
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    last_answer(connect(*stats), request)
}

/// Sends and reads until the server closes.
fn last_answer(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read");
    String::from_utf8(answer).expect("text")
}

fn end(server: Server) {
    server.abort();
    server.join().expect("ended");
}

/// Reads a head and the body that it announces.
fn answer(stream: &mut TcpStream) -> String {
    let mut head = identity::head(stream);
    let field = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; field.map_or(0, |value| value.parse().expect("a length"))];
    stream.read_exact(&mut body).expect("a body");
    head.push_str(&String::from_utf8_lossy(&body));
    head
}

#[test]
fn metrics_show_what_was_served() {
    let server = start("reply = 5\nthreads = 2\nstats = \"127.0.0.1:0\"");
    for _ in 0..3 {
        let mut stream = client(&server);
        stream.write_all(GET).expect("sent");
        assert!(answer(&mut stream).ends_with("pollu"));
    }
    let page = metrics(&server);
    let name = "pollux_http_requests_total{loop=\"";
    let lines = page.lines().filter(|line| line.starts_with(name) && line.contains("\"get\""));
    let counts: Vec<u64> = lines
        .map(|line| line.rsplit(' ').next().expect("a value").parse().expect("a count"))
        .collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (2, 3), "{page}");
    end(server);
}

#[test]
fn the_control_socket_is_for_its_owner_and_goes_with_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control");
    let server = start(&format!("reply = 5\ncontrol = \"unix:{}\"", path.display()));
    assert_eq!(path.metadata().expect("made").permissions().mode() & 0o777, 0o600);
    let idle = client(&server);
    let mut idle_counts = &idle;
    idle_counts.write_all(GET).expect("sent");
    let _ = answer(&mut idle.try_clone().expect("the same socket"));
    let control = UnixStream::connect(&path).expect("connected");
    control.set_read_timeout(Some(DEADLINE)).expect("set");
    let shown = last_answer(control, b"show info\nshow fd\nshow activity\nquit\n");
    assert!(
        shown.contains("name: pollux\n") && shown.contains("answer: a fixed reply, size 5\n"),
        "{shown}"
    );
    assert!(shown.contains("loop 0: ") && shown.contains("requests get"), "{shown}");
    end(server);
    assert!(!path.exists());
}

#[test]
fn draining_lets_a_started_request_finish_and_refuses_new_connections() {
    let server = start("reply = 5");
    let mut started = client(&server);
    let mut idle = client(&server);
    idle.write_all(GET).expect("sent");
    answer(&mut idle);
    started.write_all(GET).expect("sent");
    answer(&mut started);
    started.write_all(&GET[..9]).expect("sent");
    // An answer to a later request shows that the loop has seen the earlier bytes.
    idle.write_all(GET).expect("sent");
    answer(&mut idle);
    server.drain();
    assert_eq!(idle.read_to_end(&mut Vec::new()).expect("the end"), 0);
    let message = last_answer(&mut started, &GET[9..]);
    assert!(message.contains("Connection: close\r\n") && message.ends_with("pollu"), "{message}");
    let address = address(&server);
    server.join().expect("ended");
    assert_eq!(refusal(&address), ErrorKind::ConnectionRefused);
}

fn refusal(address: &SocketAddr) -> ErrorKind {
    TcpStream::connect(address).expect_err("nothing listens").kind()
}

#[test]
fn deadlines_close_on_the_kernel_too_and_are_counted_apart() {
    let server = start("reply = 5\nheader_timeout = \"50ms\"\nidle_timeout = \"50ms\"");
    assert_eq!(last_answer(client(&server), b""), "");
    assert!(last_answer(client(&server), &GET[..9]).starts_with("HTTP/1.1 408 "));
    assert!(last_answer(client(&server), GET).ends_with("pollu"));
    let counters = &server.overview().loops[0].server;
    use ServerCounter::{TimeoutsHeader, TimeoutsIdle, TimeoutsSilent};
    for counter in [TimeoutsSilent, TimeoutsHeader, TimeoutsIdle] {
        assert_eq!(counters.value(counter), 1, "{}", counter.name());
    }
    end(server);
}

#[test]
fn the_log_has_the_peer_and_is_complete_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let server =
        start(&format!("echo = true\naccess_log = {path:?}\naccess_log_format = \"json\""));
    let request = b"PUT /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
    assert!(last_answer(client(&server), request).ends_with("hi"));
    end(server);
    let log = std::fs::read_to_string(path).expect("written");
    assert!(log.contains("\"peer\":\"127.0.0.1\",\"method\":\"PUT\",\"target\":\"/x\""), "{log}");
    assert!(log.ends_with("\"status\":200,\"body_bytes\":2}\n"), "{log}");
}

#[test]
fn no_byte_hides_what_a_client_calls_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let server =
        start(&format!("reply = 2\naccess_log = {path:?}\naccess_log_format = \"combined\""));
    let request =
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUser-Agent: evil\xe4scanner\r\n\r\n";
    assert!(last_answer(client(&server), request).starts_with("HTTP/1.1 200 "));
    end(server);
    let log = std::fs::read_to_string(path).expect("written");
    assert!(log.ends_with(" \"-\" \"evil\\xe4scanner\"\n"), "{log}");
}

#[test]
fn a_file_beyond_every_buffer_reaches_a_slow_reader_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(folder.path().join("big"), &content).expect("written");
    let server = start(&format!("dir = {:?}", folder.path()));
    let mut stream = client(&server);
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("read");
    let head = all.windows(4).position(|at| at == b"\r\n\r\n").expect("a head") + 4;
    assert!(all[head..][..content.len()] == content);
    assert!(all[head + content.len()..].starts_with(b"HTTP/1.1 404 "));
    end(server);
}

#[test]
fn a_file_that_is_cut_or_grows_while_it_is_sent_never_lies_about_its_length() {
    const WHOLE_BYTES: usize = 32 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f");
    for driver in DRIVERS {
        for (new_bytes, is_whole) in [(1000, false), (WHOLE_BYTES as u64 * 2, true)] {
            let file = std::fs::File::create(&path).expect("made");
            file.set_len(WHOLE_BYTES as u64).expect("sparse");
            let log = folder.path().join("log");
            let config = format!(
                "dir = {:?}\naccess_log = {log:?}\naccess_log_format = \"json\"",
                folder.path()
            );
            let Some(server) = start_on(driver, &config) else { continue };
            let mut stream = client(&server);
            stream.write_all(b"GET /f HTTP/1.0\r\n\r\n").expect("sent");
            stream.read_exact(&mut [0]).expect("the answer has begun");
            file.set_len(new_bytes).expect("changed");
            let mut all = Vec::new();
            let read = stream.read_to_end(&mut all).map_err(|error| error.kind());
            assert_eq!(all.len() > WHOLE_BYTES, is_whole, "{driver}: {}", all.len());
            assert!(all.len() < WHOLE_BYTES + 1024, "{driver}: {}", all.len());
            // No part passes for the whole, and nobody but the server is to blame.
            let is_reset = read == Err(ErrorKind::ConnectionReset);
            assert_eq!(is_reset, !is_whole, "{driver}: {read:?}");
            server.drain();
            server.join().expect("ended");
            let line = std::fs::read_to_string(&log).expect("written");
            std::fs::remove_file(&log).expect("there");
            let is_blamed = line.ends_with("\"end\":\"server_file_failed\"}\n");
            assert_eq!(is_blamed, !is_whole, "{driver}: {line}");
        }
    }
}

#[test]
fn an_answer_that_is_cut_is_logged_with_what_was_sent_of_it() {
    const WHOLE_BYTES: u64 = 64 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(folder.path().join("f")).expect("made");
    file.set_len(WHOLE_BYTES).expect("sparse");
    let log = folder.path().join("log");
    let from_file = format!("dir = {:?}", folder.path());
    for (driver, answer) in DRIVERS
        .into_iter()
        .flat_map(|driver| [from_file.as_str(), "reply = \"64MiB\""].map(|answer| (driver, answer)))
    {
        let config = format!("{answer}\naccess_log = {log:?}\naccess_log_format = \"json\"");
        let Some(server) = start_on(driver, &config) else { continue };
        let mut stream = client(&server);
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        stream.read_exact(&mut [0; 9000]).expect("the answer has begun");
        let linger = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        linger.expect("set");
        drop(stream);
        // It ends with its last connection.
        server.drain();
        server.join().expect("ended");
        let line = std::fs::read_to_string(&log).expect("written");
        std::fs::remove_file(&log).expect("there");
        let (_, rest) = line.split_once("\"body_bytes\":").expect("a line");
        let (bytes, end) = rest.split_once(',').unwrap_or_else(|| panic!("{driver}: {line}"));
        let bytes: u64 = bytes.parse().expect("a number");
        assert!((8000..WHOLE_BYTES).contains(&bytes), "{driver}, {answer}: {line}");
        assert_eq!(end, "\"end\":\"client_gone\"}\n", "{driver}, {answer}");
    }
}

#[test]
fn a_part_beyond_four_gigabytes_comes_from_its_place() {
    const LEN_BYTES: u64 = 5 << 30;
    let folder = tempfile::tempdir().expect("a folder");
    let mut file = std::fs::File::create(folder.path().join("f")).expect("made");
    file.set_len(LEN_BYTES).expect("sparse");
    let part: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    file.seek(SeekFrom::End(-(part.len() as i64))).expect("set");
    file.write_all(&part).expect("written");
    for driver in DRIVERS {
        let Some(server) = start_on(driver, &format!("dir = {:?}", folder.path())) else {
            continue;
        };
        let mut stream = client(&server);
        let suffix = format!("GET /f HTTP/1.0\r\nRange: bytes=-{}\r\n\r\n", part.len());
        stream.write_all(suffix.as_bytes()).expect("sent");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        assert!(all.starts_with(b"HTTP/1.1 206 ") && all.ends_with(&part), "{driver}");
        end(server);
    }
}

/// Why a server could not be started, with all causes.
fn refused(config: &ServeConfig) -> String {
    causes(&Server::start(config).err().expect("it cannot be started"))
}

/// Whether it says that this process has the address, and the way out.
fn names_holder(message: &str) -> bool {
    let holder = format!("(process {})", std::process::id());
    message.contains("is in use by ") && message.contains(&holder) && message.contains("--listen")
}

#[test]
fn what_cannot_be_started_says_why_and_leaves_nothing_behind() {
    let build = |text: &str| Given::from_toml(text, "test").read().expect("right");
    let missing = build("dir = \"/nowhere\"\nlisten = \"127.0.0.1:0\"");
    let message = refused(&missing);
    assert!(message.contains("/nowhere") && message.contains("No such file"), "{message}");
    let first = start("reply = 1");
    let taken = build(&format!("reply = 1\nlisten = \"{}\"", first.addresses()[0]));
    let message = refused(&taken);
    assert!(names_holder(&message), "{message}");
    let several = start("reply = 1\nthreads = 2");
    let shared = format!("reply = 1\nthreads = 2\nlisten = \"{}\"", several.addresses()[0]);
    let message = refused(&build(&shared));
    assert!(names_holder(&message), "{message}");
    end(several);
    let unix = "reply = 1\nlisten = \"127.0.0.1:0\"\ncontrol = \"unix:/nowhere/control\"";
    assert!(Server::start(&build(unix)).is_err());
    assert!(!Path::new("/nowhere").exists());
    end(first);
}

/// Answers without their dates, and how long they took.
fn timed(server: &Server) -> (Vec<String>, Duration) {
    let mut stream = client(server);
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
            let len = uninterrupted(|| stream.read(&mut piece)).expect("an answer");
            assert!(len > 0, "closed behind {} bytes", bytes.len());
            bytes.extend_from_slice(&piece[..len]);
        }
        let text = String::from_utf8(bytes).expect("text");
        let lines = text.lines().filter(|line| !line.starts_with("Date: "));
        answers.push(lines.collect::<Vec<_>>().join("\n"));
    }
    (answers, began.elapsed())
}

/// `split-reply` and `request-times`, and that nothing of them is there when they are off: a head and a body in
/// two writes without TCP_NODELAY wait for the peer's acknowledgement, which a peer that has nothing to send
/// delays by 40 ms. The answers are the same bytes.
#[test]
fn a_split_reply_is_the_same_and_waits_for_acknowledgements() {
    for driver in Driver::ALL {
        let start = |more| start_on(driver.name(), &format!("reply = 300\n{more}"));
        let (Some(right), Some(wrong)) = (start(""), start("split_reply = true")) else {
            continue;
        };
        let (expected, _) = timed(&right);
        let (found, took) = timed(&wrong);
        assert_eq!(found, expected, "{driver}");
        // The first answers of a connection are acknowledged at once; some later one is not.
        assert!(took >= DELAYED_ACK, "{driver}: {REQUESTS} answers in {took:?}: nothing waited");
        [right, wrong].into_iter().for_each(end);
    }
}

#[test]
fn requests_are_timed_when_that_is_asked_for() {
    for (more, expected) in [("", 0), ("request_times = true", u64::from(REQUESTS))] {
        let server = start(&format!("reply = 300\n{more}\nstats = \"127.0.0.1:0\""));
        timed(&server);
        let page = metrics(&server);
        let counted = page
            .lines()
            .find_map(|line| line.strip_prefix("pollux_http_request_seconds_count{loop=\"0\"} "));
        let counted = counted.map_or(0, |count| count.parse().expect("a count"));
        assert_eq!(counted, expected, "{more}: {page}");
        end(server);
    }
}
