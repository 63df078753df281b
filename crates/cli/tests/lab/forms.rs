//! The bare server in each of its forms, as a client sees it: the same bytes and the same ends for the same script. What
//! a kernel does not grant is skipped with the reason that the program gives.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use pollux_host::built_from_c;
use pollux_testing::{DEADLINE, Process, addresses, has, skip, wait_until};
use rustix::net::sockopt::set_socket_linger;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde_json::Value;
use tempfile::TempDir;

use crate::measure;

const SOURCE: &str = include_str!("../../../lab/src/experiments/http/forms.c");
/// Each word of the table, and those together that share code.
const FORMS: [&str; 19] = [
    "raw-epoll:edge",
    "raw-epoll:level",
    "raw-epoll:busy-poll+anyway",
    "raw-uring:defer",
    "raw-uring:coop",
    "raw-uring:none",
    "raw-uring:sqpoll",
    "raw-uring:single",
    "raw-uring:poll-first",
    "raw-uring:incremental",
    "raw-uring:bundle",
    "raw-uring:own",
    "raw-uring:epoll-wait",
    "raw-uring:direct",
    "raw-uring:zc+anyway",
    "raw-uring:min-wait",
    "raw-uring:none+single+2x4k",
    "raw-uring:coop+bundle+2x4k+direct",
    "raw-uring:sqpoll+incremental+direct+zc+anyway",
];
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// The program, built for a test.
struct Workshop {
    program: PathBuf,
    _folder: TempDir,
}

impl Workshop {
    fn open() -> Option<Self> {
        if !has("cc") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let program = built_from_c(folder.path(), "forms", SOURCE, &["-Wextra", "-Werror"]);
        let program = program.expect("it is right C");
        Some(Self { program, _folder: folder })
    }

    /// The server in a form; none where it is out of this machine's reach.
    fn start(&self, form: &str, options: &[&str]) -> Option<(Process, SocketAddr)> {
        let trial = Command::new(&self.program).args([form, "probe"]).output().expect("a trial");
        let said = String::from_utf8_lossy(&trial.stderr).into_owned();
        match trial.status.code() {
            Some(0) => {}
            Some(3 | 4) => {
                skip(said.trim());
                return None;
            }
            _ => panic!("{form}: {}: {said}", trial.status),
        }
        let mut command = Command::new(&self.program);
        let mut process = Process::start(command.arg(form).args(options));
        let line = process.wait_for_stderr_line("http://");
        let words = form.split_once(':').expect("a form").1;
        assert!(line.contains(&format!(" ({words}, ")), "{form} says {line}");
        let address = addresses(&line)[0];
        Some((process, address))
    }

    fn on_every_form(&self, options: &[&str], test: impl Fn(&str, &mut Process, SocketAddr)) {
        for form in FORMS {
            if let Some((mut process, address)) = self.start(form, options) {
                test(form, &mut process, address);
            }
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(address).expect("a connection");
    connection.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    connection.set_nodelay(true).expect("an option");
    connection
}

/// A request with a body of so many bytes.
fn post(body: usize) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\ncontent-length: {body}\r\n\r\n");
    let mut request = head.into_bytes();
    request.resize(request.len() + body, b'\n');
    request
}

fn reply(body: usize, closes: bool) -> Vec<u8> {
    let close = if closes { "Connection: close\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: raw\r\nContent-Type: text/plain\r\nContent-Length: {body}\r\n{close}\r\n"
    );
    let mut reply = head.into_bytes();
    reply.resize(reply.len() + body, b'x');
    reply
}

/// All that comes until the end.
fn read_to_end(form: &str, connection: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    connection.read_to_end(&mut all).unwrap_or_else(|error| panic!("{form}: {error}"));
    all
}

#[test]
fn requests_are_answered_in_order_however_they_are_cut_and_their_bodies_read() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.on_every_form(&["reply=5000"], |form, _, address| {
        let mut connection = connect(address);
        // Each byte by itself, then bodies with the next head right behind them.
        for byte in GET {
            connection.write_all(&[*byte]).expect("written");
        }
        let several = [post(300_000), GET.to_vec(), post(1), post(0), GET.repeat(40)].concat();
        let mut writer = connection.try_clone().expect("another handle");
        let writing = thread::spawn(move || {
            for part in several.chunks(70_001) {
                writer.write_all(part).expect("written");
            }
            writer.shutdown(Shutdown::Write).expect("ended");
        });
        let got = read_to_end(form, &mut connection);
        writing.join().expect("written");
        assert!(got == reply(5000, false).repeat(45), "{form}: {} bytes", got.len());
    });
}

#[test]
fn a_client_that_reads_late_gets_every_byte_of_large_replies_in_order() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.on_every_form(&["reply=1000000"], |form, _, address| {
        let mut connection = connect(address);
        connection.write_all(&GET.repeat(9)).expect("written");
        connection.write_all(&post(1000)).expect("written");
        connection.shutdown(Shutdown::Write).expect("ended");
        let got = read_to_end(form, &mut connection);
        assert!(got == reply(1_000_000, false).repeat(10), "{form}: {} bytes", got.len());
    });
}

#[test]
fn a_reply_that_ends_its_connection_is_whole() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.on_every_form(&["reply=3000000", "close"], |form, _, address| {
        for round in 0..20 {
            let mut connection = connect(address);
            let request = if round % 2 == 0 { GET.to_vec() } else { post(70_000) };
            connection.write_all(&request).expect("written");
            let got = read_to_end(form, &mut connection);
            assert!(got == reply(3_000_000, true), "{form}: {} bytes", got.len());
        }
    });
}

#[test]
fn clients_that_break_off_harm_no_other_and_leave_nothing() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.on_every_form(&["reply=200000"], |form, process, address| {
        let folder = format!("/proc/{}/fd", process.id());
        let open = || std::fs::read_dir(&folder).expect("a process").count();
        let before = open();
        let mut kept = connect(address);
        for round in 0..60 {
            let mut connection = connect(address);
            let text = match round % 4 {
                0 => GET.repeat(20),
                1 => post(500_000)[..100_000].to_vec(),
                2 => b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
                _ => vec![b'a'; 40_000],
            };
            // The server may have ended it by then.
            let _ = connection.write_all(&text);
            if round % 3 == 0 {
                set_socket_linger(&connection, Some(Duration::ZERO)).expect("an option");
            }
        }
        kept.write_all(GET).expect("written");
        kept.shutdown(Shutdown::Write).expect("ended");
        let got = read_to_end(form, &mut kept);
        assert!(got == reply(200_000, false), "{form}: {} bytes", got.len());
        // One of its own trial may have been there still.
        wait_until(form, || open() <= before);
    });
}

const SYS_IO_URING_SETUP: i64 = 425;
const SYS_IO_URING_REGISTER: i64 = 427;

#[test]
fn a_form_that_a_filter_forbids_alone_is_distinguished_from_io_uring_that_is_forbidden() {
    let Some(workshop) = Workshop::open() else { return };
    for form in ["raw-uring:incremental", "raw-uring:own"] {
        if workshop.start(form, &[]).is_none() {
            return;
        }
    }
    let tried = |form: &'static str, forbidden: i64| {
        let mut command = Command::new(&workshop.program);
        command.args([form, "probe"]);
        // What a thread starts inherits its filter.
        let run = move || {
            forbid(forbidden);
            command.output().expect("a trial")
        };
        let output = thread::spawn(run).join().expect("it ran");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).trim().to_owned())
    };
    let no_ring = "raw-uring:own: refused: io_uring_setup: Operation not permitted; io_uring is forbidden here, or \
                   this kernel has none";
    assert_eq!(tried("raw-uring:own", SYS_IO_URING_SETUP), (Some(3), no_ring.to_owned()));
    let alone = "raw-uring:incremental: refused: incremental: io_uring_register: Operation not permitted; a filter or \
                 security module forbids what this form needs, not every ring";
    assert_eq!(tried("raw-uring:incremental", SYS_IO_URING_REGISTER), (Some(3), alone.to_owned()));
    // It registers nothing.
    assert_eq!(tried("raw-uring:own", SYS_IO_URING_REGISTER), (Some(0), String::new()));
}

/// Has the kernel refuse `call` of this thread, and of what it starts, from now on.
fn forbid(call: i64) {
    let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this architecture");
    let rules = BTreeMap::from([(call, Vec::new())]);
    let these = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, these, arch);
    let program = filter.and_then(BpfProgram::try_from).expect("a valid program");
    apply_filter(&program).expect("a thread may restrict itself");
}

/// Asks the lab for something with these arms.
fn lab(verb: &str, arms: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", verb, "http", "--only", "keep-alive", "--connections", "2"]);
    measure(command.args(["--arm", arms]).args(options))
}

#[test]
fn a_form_is_measured_as_it_is_called_and_one_that_shows_nothing_is_left_out_with_the_proof() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let sets = ["--blocks", "1", "--max-blocks", "1", "--runtime", "100ms", "--ramp-time", "10ms"];
    let options = [&sets[..], &["--quiet", "--json", "--out", &out]].concat();
    let arms = "raw-epoll:edge,raw-uring:single+plain+none,raw-uring:sqpoll,raw-uring:zc";
    let output = lab("run", arms, &[&options[..], &["--baseline", "raw-epoll:edge"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    let record: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let runs = record["runs"].as_array().expect("runs");
    let left_out = record["left_out"].as_array().expect("a list");
    let reason = |arm: &str| {
        let left = left_out.iter().find(|left| left["arm"] == arm);
        left.and_then(|left| left["reason"].as_str())
    };
    let figures = |arm: &str| {
        let run = runs.iter().find(|run| run["arm"] == arm)?;
        assert!(run["outcome"]["measured"].is_object(), "{arm}: {}", run["outcome"]);
        Some(&run["outcome"]["measured"])
    };
    let edge = &figures("raw-epoll:edge").expect("measured")["figures"];
    assert!(edge["completions_per_enter"].as_f64() >= Some(0.5), "{edge}");
    let zc = reason("raw-uring:zc").expect("loopback copies");
    let Some(single) = figures("raw-uring:none+single") else {
        let why = reason("raw-uring:none+single").expect("one or the other");
        assert!(why.starts_with("refused: "), "{why}");
        return skip(why);
    };
    // A receive for each request, and one that waits.
    let each = single["figures"]["receives_per_request"].as_f64().expect("a count");
    assert!((0.9..2.1).contains(&each), "{single}");
    assert!(zc.contains("said copied for 16 of 16") || zc.contains("needs Linux"), "{zc}");
    if let Some(sqpoll) = figures("raw-uring:sqpoll") {
        let parts = sqpoll["findings"]["iou-sqp"].as_str().expect("a thread that submits");
        assert!(parts.contains(" % is main and ") && parts.contains(" % iou-sqp"), "{parts}");
        assert!(sqpoll["figures"]["iou_sqp_us_per_request"].as_f64() > Some(0.0), "{sqpoll}");
    }
}
