//! Answers that begin, or are whole, before their request has left: an echo of a long body, a body that is refused. On every
//! mechanism, plain and in TLS, straight and through `pollux proxy`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use pollux_testing::{Process, addresses, skip};
use tempfile::TempDir;

use crate::{Said, load};

const DRIVERS: [&str; 7] = ["select", "poll", "aio", "epoll", "epoll-et", "uring-poll", "uring"];

/// More than the buffers of two connections hold in one direction.
const LONG_BYTES: usize = 24 << 20;

/// A long body, and a certificate.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().expect("a folder"));
        // Seven of each byte, again and again: copied, as byte by byte it takes a second without optimisation.
        let turn: Vec<u8> = (0..7 * 256).map(|at| (at / 7) as u8).collect();
        let mut body = turn.repeat(LONG_BYTES.div_ceil(turn.len()));
        body.truncate(LONG_BYTES);
        std::fs::write(this.at("body"), body).expect("written");
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        std::fs::write(this.at("cert"), made.cert.pem()).expect("written");
        std::fs::write(this.at("key"), made.signing_key.serialize_pem()).expect("written");
        this
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tls(&self, is_on: bool) -> Vec<String> {
        let path = |name: &str| self.at(name).display().to_string();
        let flags = ["--cert".to_owned(), path("cert"), "--key".to_owned(), path("key")];
        flags.into_iter().filter(|_| is_on).collect()
    }

    /// Posts the body so many times over one connection at a time.
    fn post(&self, driver: &str, requests: &str, url: &str) -> Said {
        let body = format!("@{}", self.at("body").display());
        let mut flags = vec!["-X", "POST", "--body", &body, "-c", "1", "-n", requests];
        flags.extend(["--poller", driver, "--timeout", "60s", "--quiet", "--json", "-"]);
        if url.starts_with("https") {
            flags.push("--insecure");
        }
        flags.push(url);
        load(&flags)
    }
}

/// `pollux serve` or `pollux proxy` on a port of its own; none where the mechanism is not to be had, which is reported.
fn start(which: &str, driver: &str, flags: &[String]) -> Option<(Process, SocketAddr)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args([which, "--listen", "127.0.0.1:0", "--poller", driver]).args(flags);
    let mut process = Process::start(&mut command);
    match process.try_wait_for_stderr_line("://127.0.0.1:") {
        Some(line) => {
            let address = addresses(&line)[0];
            Some((process, address))
        }
        None => {
            let said = process.all_stderr_lines().join(" ");
            assert!(said.contains("not available"), "{said}");
            skip(said);
            None
        }
    }
}

fn echo(max_body: &str, tls: Vec<String>) -> Vec<String> {
    let mut flags: Vec<String> = ["--echo", "--max-body", max_body].map(str::to_owned).into();
    flags.extend(tls);
    flags
}

fn url(address: SocketAddr, is_encrypted: bool) -> String {
    format!("{}://{address}/", if is_encrypted { "https" } else { "http" })
}

#[test]
fn a_long_body_that_is_echoed_comes_back_whole() {
    let files = Files::new();
    for driver in DRIVERS {
        for is_encrypted in [false, true] {
            let flags = echo("1GiB", files.tls(is_encrypted));
            let Some((_server, address)) = start("serve", driver, &flags) else { continue };
            let said = files.post(driver, "2", &url(address, is_encrypted));
            let totals = &said.json()["totals"];
            assert_eq!(totals["right"], 2, "{driver}, TLS {is_encrypted}: {said:?}");
            assert_eq!(totals["body_bytes_in"], 2 * LONG_BYTES, "{driver}: {said:?}");
        }
    }
}

#[test]
fn a_long_body_that_is_echoed_comes_back_whole_through_a_proxy() {
    let files = Files::new();
    for driver in DRIVERS {
        for (is_encrypted, pipes_max) in [(false, Some("0")), (false, Some("64")), (true, None)] {
            let Some((_server, backend)) = start("serve", driver, &echo("1GiB", vec![])) else {
                continue;
            };
            let mut flags = vec!["--backend".to_owned(), backend.to_string()];
            flags.extend(pipes_max.map(|max| format!("--pipes-max={max}")));
            flags.extend(files.tls(is_encrypted));
            let Some((_proxy, address)) = start("proxy", driver, &flags) else { continue };
            let said = files.post(driver, "2", &url(address, is_encrypted));
            let totals = &said.json()["totals"];
            assert_eq!(totals["right"], 2, "{driver}, TLS {is_encrypted}, {pipes_max:?}: {said:?}");
            assert_eq!(totals["body_bytes_in"], 2 * LONG_BYTES, "{driver}: {said:?}");
        }
    }
}

/// That each of twenty requests was answered with 413, and that no more is said to have been sent than was.
fn assert_refused(said: &Said, what: &str) {
    let result = said.json();
    assert_eq!(result["statuses"]["413"], 20, "{what}: {said:?}");
    assert_eq!(result["errors"]["reset"], 0, "{what}: {said:?}");
    let sent = result["totals"]["bytes_out"].as_u64().expect("a count");
    assert!(sent < 20 * LONG_BYTES as u64, "{what}: {sent} bytes of bodies that were cut");
}

#[test]
fn a_body_that_is_too_large_shows_its_413_each_time() {
    let files = Files::new();
    for driver in DRIVERS {
        for is_encrypted in [false, true] {
            let flags = echo("1MiB", files.tls(is_encrypted));
            let Some((_server, address)) = start("serve", driver, &flags) else { continue };
            let said = files.post(driver, "20", &url(address, is_encrypted));
            assert_refused(&said, &format!("{driver}, TLS {is_encrypted}"));
        }
    }
}

/// A server that answers as soon as it has read something, and then does as `then` says.
fn early(then: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let mut some = [0; 1000];
            let _ = client.read(&mut some);
            let answer = "HTTP/1.1 413 x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
            let _ = client.write_all(answer.as_bytes());
            then(client);
        }
    });
    address
}

#[test]
fn servers_that_answer_early_and_reset_or_read_nothing_more_show_their_413() {
    let files = Files::new();
    let resets = early(drop);
    let holds = early(|client| {
        std::thread::spawn(move || {
            // Until the other end closes; what it sent stays unread.
            let mut some = [0; 1];
            while client.peek(&mut some).is_ok_and(|len| len > 0) {
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
        });
    });
    let drops = early(|mut client| {
        std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
    });
    for driver in DRIVERS {
        for (server, name) in [(resets, "resets"), (holds, "holds"), (drops, "drops")] {
            let said = files.post(driver, "20", &url(server, false));
            if said.stdout.is_empty() {
                skip(said.stderr);
                continue;
            }
            assert_refused(&said, &format!("{driver}, {name}"));
            let Some((_proxy, address)) =
                start("proxy", driver, &["--backend".to_owned(), server.to_string()])
            else {
                continue;
            };
            let said = files.post(driver, "20", &url(address, false));
            // What such a backend does is its answer, and no fault: the proxy has no other one.
            let statuses = said.json()["statuses"].clone();
            let seen = statuses.as_object().expect("statuses");
            assert!(seen.len() == 1 && seen.contains_key("413"), "{driver}, {name}: {said:?}");
        }
    }
}
