//! What the system around a proxy gives it and receives: new settings while requests are under way, of which none
//! fails, is counted twice or lost; settings to check; its state for the manager, its number in the PID file,
//! requests and the backends that answered in the access log.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use base64::Engine as _;
use pollux_testing::{DEADLINE, Process, Signal, uninterrupted, wait_for, wait_until};
use rustix::process::kill_process;

use crate::stage::{Backend, Client, Clients, Outcome, Proxy};

/// How many requests are asked for at least while settings are read anew.
fn requests_min() -> u64 {
    let given = std::env::var("POLLUX_PROXY_REQUESTS").ok();
    given.map_or(0, |given| given.parse().expect("POLLUX_PROXY_REQUESTS is a number"))
}

#[test]
#[expect(clippy::print_stdout, reason = "figures where more requests are asked for")]
fn no_request_fails_while_settings_are_read_anew_again_and_again() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 2");
    let clients = Clients::start(proxy.address, 4);
    let mut workers = vec![proxy.one_worker(&[])];
    let mut round = 0;
    while round < 6 || clients.right.load(SeqCst) < requests_min() {
        clients.await_right(200);
        // With another number of threads each time.
        proxy.write_settings(&[backend.address], &format!("threads = {}", 1 + round % 3));
        if round % 2 == 0 {
            proxy.signal(Signal::HUP);
            proxy.wait_for_stderr_line("reloaded: process ");
        } else {
            assert_eq!(proxy.reload(), (true, "reloaded\n".to_owned()));
        }
        clients.await_right(50);
        workers.push(proxy.one_worker(&workers));
        round += 1;
    }
    let (right, failed) = clients.end();
    println!("{right} requests and {round} reloads: {} failed", failed.len());
    assert!(right >= 1500, "{right}");
    assert!(failed.is_empty(), "of {right}: {failed:?}");
    // What the workers that have ended counted is on the page of the one that runs.
    proxy.await_metric("pollux_http_requests_total", "\"get\"", right);
    proxy.await_metric("pollux_http_answers_total", "2xx", right);
    proxy.await_metric("pollux_proxy_backend_in_use", "", 0);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
}

#[test]
fn sockets_that_were_opened_before_are_the_front_ends_of_a_proxy() {
    let backend = Backend::start();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let addresses = listeners.each_ref().map(|one| one.local_addr().expect("bound"));
    // One comes before there is a proxy.
    let early = TcpStream::connect(addresses[1]).expect("waits");
    early.set_read_timeout(Some(DEADLINE)).expect("set");
    let folder = tempfile::tempdir().expect("a folder");
    let start = |settings: &str, numbers: &str| {
        fs::write(folder.path().join("p.toml"), settings).expect("written");
        let mut command = Command::new("sh");
        let count = numbers.split(' ').count();
        let script = format!("LISTEN_PID=$$ LISTEN_FDS={count} exec \"$0\" \"$@\" {numbers}");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_pollux"), "proxy", "--config", "p.toml"]);
        let [one, two] = listeners.each_ref().map(|one| one.try_clone().expect("ours"));
        command.stdin(Stdio::from(OwnedFd::from(one))).stdout(Stdio::from(OwnedFd::from(two)));
        Process::start(command.current_dir(folder.path()))
    };
    let server = format!("[[server]]\naddress = \"{}\"\n", backend.address);
    // A single address is put aside for what was passed.
    let mut one = start(&format!("listen = \"127.0.0.1:1\"\n{server}"), "3<&0");
    one.wait_for_stderr_line(&format!("pollux proxy: http://{}", addresses[0]));
    assert_eq!(Client::default().ask(addresses[0], "/a").0, Outcome::Right);
    one.signal(Signal::HUP);
    one.wait_for_stderr_line("reloaded: process ");
    assert_eq!(Client::default().ask(addresses[0], "/b").0, Outcome::Right);
    one.signal(Signal::TERM);
    assert!(one.ended().status.success());
    // Of several each has its own.
    let [first, second] = addresses;
    let settings = format!("listen = [\"{second}\", \"{first}\"]\n{server}");
    let mut both = start(&settings, "3<&0 4<&1");
    both.wait_for_stderr_line(&format!("http://{second}"));
    let mut client = early;
    client.write_all(b"GET /early HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("answered");
    assert!(answer.contains("\r\nX-Id: "), "by the backend: {answer}");
    assert_eq!(Client::default().ask(first, "/c").0, Outcome::Right);
    both.signal(Signal::TERM);
    assert!(both.ended().status.success());
    let settings = format!("listen = [\"127.0.0.1:0\", \"{first}\"]\n{server}");
    let refused = start(&settings, "3<&0 4<&1").ended();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    let expected =
        format!("LISTEN_FDS passes a socket at {second}, which no listen of the settings names");
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
}

#[test]
fn the_settings_of_a_proxy_are_served_by_the_server_and_those_of_a_server_by_the_proxy() {
    let backend = Backend::start();
    let mut server = Proxy::start_as_server(&[backend.address], "threads = 2");
    let worker = server.one_worker(&[]);
    assert_eq!(Client::default().ask(server.address, "/a").0, Outcome::Right);
    server.write_settings(&[backend.address], "threads = 1");
    assert_eq!(server.reload(), (true, "reloaded\n".to_owned()));
    server.one_worker(&[worker]);
    assert_eq!(Client::default().ask(server.address, "/b").0, Outcome::Right);
    // Another kind of server is another program.
    fs::write(server.file("p.toml"), "echo = true").expect("written");
    server.signal(Signal::HUP);
    server.wait_for_stderr_line(
        "not reloaded, the old settings stay: the settings name no backends now",
    );
    assert_eq!(Client::default().ask(server.address, "/c").0, Outcome::Right);
    server.signal(Signal::TERM);
    assert!(server.ended().success());

    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("s.toml"), "reply = 3\nlisten = \"unix:s\"").expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder.path()).args(["proxy", "--config", "s.toml"]);
    let mut server = Process::start(&mut command);
    server.wait_for_stderr_line("pollux proxy: ");
    let mut socket = UnixStream::connect(folder.path().join("s")).expect("it listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("Content-Length: 3"),
        "{answer}"
    );
    server.signal(Signal::TERM);
    assert!(server.ended().status.success());
}

#[test]
fn a_server_that_was_drained_stays_drained_while_workers_come_and_go() {
    let stays = Backend::start();
    let drained = Backend::start();
    let mut proxy = Proxy::start(&[stays.address, drained.address], "threads = 2");
    let name = drained.address;
    let shown =
        proxy.control(&format!("set server {name} drain\nset server {name} weight 9\nquit\n"));
    assert!(shown.contains("drain"), "{shown}");
    let mut workers = vec![proxy.one_worker(&[])];
    let goes_to_the_other_one = |proxy: &Proxy, when: &str| {
        for path in ["/a", "/b", "/c", "/d"] {
            assert_eq!(Client::default().ask(proxy.address, path).0, Outcome::Right, "{when}");
        }
        assert_eq!(drained.asked(), 0, "{when}");
        let shown = proxy.control("show servers\nquit\n");
        let line = shown.lines().find(|line| line.starts_with(&name.to_string()));
        let words: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
        assert_eq!(words[1..3], ["9", "drain"], "{when}: {shown}");
    };
    goes_to_the_other_one(&proxy, "when it was drained");
    assert!(proxy.reload().0);
    goes_to_the_other_one(&proxy, "behind a reload in place");
    proxy.write_settings(&[stays.address, drained.address], "threads = 3");
    assert!(proxy.reload().0);
    workers.push(proxy.one_worker(&workers));
    goes_to_the_other_one(&proxy, "by another worker");
    kill_process(workers[1], Signal::KILL).expect("it runs");
    proxy.wait_for_stderr_line("another one is started in ");
    workers.push(proxy.one_worker(&workers));
    goes_to_the_other_one(&proxy, "behind a worker that was killed");
    proxy.control(&format!("set server {name} ready\nquit\n"));
    proxy.write_settings(&[stays.address, drained.address], "threads = 2");
    assert!(proxy.reload().0);
    proxy.one_worker(&workers);
    for path in ["/a", "/b", "/c", "/d"] {
        assert_eq!(Client::default().ask(proxy.address, path).0, Outcome::Right);
    }
    assert!(drained.asked() > 0, "it is ready again");
}

#[test]
fn wrong_settings_are_reported_and_the_old_ones_stay() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 1");
    let worker = proxy.one_worker(&[]);
    proxy.write_settings(&[backend.address], "threads = 0");
    let (is_well, log) = proxy.reload();
    assert!(!is_well && log.contains("p.toml:4:11: threads = 0: expected"), "{log}");
    proxy.signal(Signal::HUP);
    proxy.wait_for_stderr_line("not reloaded, the old settings stay: p.toml:4:11: threads = 0");
    // What is found only when the worker opens it.
    proxy.write_settings(&[backend.address], "access_log = \"no/such/folder/log\"");
    let (is_well, log) = proxy.reload();
    assert!(!is_well && log.contains("no/such/folder/log"), "{log}");
    assert_eq!(proxy.one_worker(&[]), worker);
    assert_eq!(Client::default().ask(proxy.address, "/a").0, Outcome::Right);
    proxy.write_settings(&[backend.address], "threads = 2");
    assert!(proxy.reload().0);
    proxy.one_worker(&[worker]);
}

/// Real, effective, saved and file system ids of a process: of its user and of its group (`proc_pid_status(5)`).
fn owners(process: u32) -> [Vec<u32>; 2] {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    ["Uid:", "Gid:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.split_whitespace().map(|id| id.parse().expect("a number")).collect()
    })
}

#[test]
fn workers_run_as_the_user_of_the_settings_and_the_master_that_starts_them_as_its_own() {
    if !rustix::process::geteuid().is_root() {
        return pollux_testing::skip(format_args!("only root can become another user"));
    }
    let backend = Backend::start();
    let user = "user = \"65534\"\ngroup = \"65533\"";
    let proxy = Proxy::start(&[backend.address], user);
    let mut known = Vec::new();
    for path in ["/first", "/behind-reloads"] {
        let worker = proxy.one_worker(&known);
        let number = worker.as_raw_nonzero().get().cast_unsigned();
        assert_eq!(owners(number), [vec![65534; 4], vec![65533; 4]], "{path}");
        assert_eq!(Client::default().ask(proxy.address, path).0, Outcome::Right);
        known.push(worker);
        // In place first: the files of the new settings are opened by the same user.
        for more in ["idle_timeout = \"7s\"", "threads = 2"] {
            proxy.write_settings(&[backend.address], &format!("{user}\n{more}"));
            let (is_well, said) = proxy.reload();
            assert!(is_well, "{said}");
        }
    }
    assert_eq!(owners(proxy.id()), [vec![0; 4], vec![0; 4]]);
    let (code, _, said) = check("user = \"no-such-user\"\n[[server]]\naddress = \"127.0.0.1:1\"");
    assert!(code != Some(0) && said.contains("there is no user no-such-user"), "{code:?}: {said}");
}

#[test]
fn a_reload_as_soon_as_the_address_answers_is_done() {
    let backend = Backend::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.sock");
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["proxy", "--poller", "epoll-et"]);
        command.arg(format!("--listen=unix:{}", path.display()));
        let mut proxy = Process::start(command.arg(format!("--backend={}", backend.address)));
        // The master listens before there is a worker.
        wait_for("the address", || UnixStream::connect(&path).ok());
        proxy.signal(Signal::HUP);
        proxy.wait_for_stderr_line("reloaded: process ");
        proxy.signal(Signal::TERM);
        let ended = proxy.ended();
        assert!(ended.status.success() && !ended.stderr.contains("not reloaded"), "{ended:?}");
    }
}

#[test]
fn signals_of_nginx_open_the_logs_again_and_drain_and_no_other_one_ends_a_proxy() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "access_log = \"log\"");
    let worker = proxy.one_worker(&[]);
    assert_eq!(Client::default().ask(proxy.address, "/a").0, Outcome::Right);
    wait_for("a line", || {
        (fs::read(proxy.file("log")).is_ok_and(|log| !log.is_empty())).then_some(())
    });
    fs::rename(proxy.file("log"), proxy.file("log.1")).expect("renamed");
    proxy.signal(Signal::USR1);
    wait_for("a new log", || {
        assert_eq!(Client::default().ask(proxy.address, "/b").0, Outcome::Right);
        proxy.file("log").exists().then_some(())
    });
    // A worker knows it too: nginx's do.
    fs::rename(proxy.file("log"), proxy.file("log.2")).expect("renamed");
    kill_process(worker, Signal::USR1).expect("it runs");
    wait_for("a new log", || {
        assert_eq!(Client::default().ask(proxy.address, "/c").0, Outcome::Right);
        proxy.file("log").exists().then_some(())
    });
    kill_process(worker, Signal::USR2).expect("it runs");
    proxy.wait_for_stderr_line("SIGUSR2 is ignored");
    assert_eq!(Client::default().ask(proxy.address, "/d").0, Outcome::Right);
    assert_eq!(proxy.one_worker(&[]), worker);
    // As nginx's it has another program take its place.
    proxy.signal(Signal::USR2);
    proxy.wait_for_stderr_line("upgraded: this is ");
    proxy.one_worker(&[worker]);
    proxy.signal(Signal::QUIT);
    assert!(proxy.ended().success());
}

#[test]
fn a_reload_command_is_answered_when_the_reload_is_over() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[backend.address], "threads = 1");
    let worker = proxy.one_worker(&[]);
    proxy.write_settings(&[backend.address], "threads = 0");
    let answers = proxy.control("reload\nshow reloads\nquit\n");
    let lines: Vec<_> = answers.split("\n\n").collect();
    assert!(lines[0].starts_with("not reloaded, the old settings stay: p.toml:4:11"), "{answers}");
    assert!(lines[1].starts_with("0 done, 1 failed\np.toml:4:11"), "{answers}");
    assert_eq!(proxy.one_worker(&[]), worker);
    proxy.write_settings(&[backend.address], "threads = 2");
    // The worker that is asked ends because of it, and answers before.
    assert_eq!(proxy.control("reload\n"), "reloaded\n\n");
    let worker = proxy.one_worker(&[worker]);
    // All ask at once: some for the reload that is under way, some for the one behind it.
    let asking: Vec<_> = (0..6).map(|_| proxy.begin_reload()).collect();
    for each in asking {
        let ended = each.ended();
        assert!(ended.status.success() && ended.stderr == "reloaded\n", "{ended:?}");
    }
    assert_eq!(proxy.one_worker(&[]), worker, "nothing has changed that needs another one");
    assert_eq!(Client::default().ask(proxy.address, "/a").0, Outcome::Right);
}

/// What is answered to the key of this head (RFC 6455 4.2.2).
fn proof(head: &str) -> String {
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("Sec-WebSocket-Key").then_some(value)
    });
    let text = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key.unwrap_or_default());
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash)
}

/// A backend that makes a tunnel of each request, and gives back what comes through it.
pub(crate) fn tunnels() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let head = until(&mut socket, b"\r\n\r\n");
                let proof = proof(&String::from_utf8_lossy(&head));
                let head = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                     Upgrade: websocket\r\nSec-WebSocket-Accept: {proof}\r\n\r\n"
                );
                let _ = socket.write_all(head.as_bytes());
                let mut from = socket.try_clone().expect("the same socket");
                let _ = std::io::copy(&mut from, &mut socket);
            });
        }
    });
    address
}

/// Reads to this end; to that of the connection where it does not come.
pub(crate) fn until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.ends_with(end) && socket.read_exact(&mut byte).is_ok() {
        all.push(byte[0]);
    }
    all
}

/// A tunnel through a proxy, whose settings have this of drains.
fn tunnel(more: &str) -> (Proxy, SocketAddr, TcpStream) {
    let backend = tunnels();
    let proxy = Proxy::start(&[backend], &format!("log_level = \"info\"\n{more}"));
    let mut tunnel = TcpStream::connect(proxy.address).expect("connected");
    tunnel.set_read_timeout(Some(DEADLINE)).expect("set");
    let ask = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
               Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    tunnel.write_all(ask.as_bytes()).expect("sent");
    let head = until(&mut tunnel, b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    (proxy, backend, tunnel)
}

#[test]
fn a_websocket_outlives_reloads_and_ends_with_the_proxy() {
    let (mut proxy, backend, mut tunnel) = tunnel("drain_timeout = \"100ms\"");
    let first = proxy.one_worker(&[]);
    // In place, then by two other workers.
    for threads in [1, 2, 3] {
        let more = format!("log_level = \"info\"\ndrain_timeout = \"100ms\"\nthreads = {threads}");
        proxy.write_settings(&[backend], &more);
        let (is_well, said) = proxy.reload();
        assert!(is_well, "{said}");
        if threads == 1 {
            assert_eq!(proxy.workers(), [first]);
        }
    }
    wait_until("the end of the worker without a tunnel", || proxy.workers().len() == 2);
    assert!(proxy.workers().contains(&first), "the tunnel's worker");
    // Ten times what requests have.
    let began = Instant::now();
    tunnel.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    while began.elapsed() < Duration::from_secs(1) {
        // Nothing comes unasked.
        let cause = uninterrupted(|| tunnel.read(&mut [0])).expect_err("no end, and no byte");
        assert_eq!(cause.kind(), ErrorKind::WouldBlock);
    }
    tunnel.set_read_timeout(Some(DEADLINE)).expect("set");
    tunnel.write_all(b"ping.").expect("taken");
    assert_eq!(until(&mut tunnel, b"."), b"ping.");
    proxy.signal(Signal::TERM);
    assert_eq!(until(&mut tunnel, b"."), b"");
    assert!(proxy.ended().success());
    let said = proxy.all_stderr_lines().join("\n");
    let ends = "draining: no new connections, then the end";
    assert_eq!(said.matches(ends).count(), 2, "{said}");
    assert_eq!(said.matches("another worker takes the connections").count(), 2, "{said}");
}

#[test]
fn a_websocket_ends_in_its_own_time_after_a_reload() {
    let drains = "drain_timeout = \"50ms\"\ntunnel_drain_timeout = \"300ms\"";
    let (proxy, backend, mut tunnel) = tunnel(drains);
    let first = proxy.one_worker(&[]);
    proxy.write_settings(&[backend], &format!("{drains}\nthreads = 2"));
    assert!(proxy.reload().0);
    assert_eq!(until(&mut tunnel, b"."), b"");
    proxy.one_worker(&[first]);
}

/// Exit code, standard output and standard error of a check of this file.
fn check(text: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("p.toml"), text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder.path()).args(["proxy", "--config", "p.toml", "--check"]);
    let ended = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

const SOUND: &str = "\
threads = 2
[[frontend]]
listen = [\"127.0.0.1:0\", \"unix:p.sock\"]
backend = \"app\"
[[backend]]
name = \"app\"
balance = \"least\"
health_check = \"http\"
health_path = \"/up\"
[[backend.server]]
address = \"127.0.0.1:2\"
weight = 3
[[backend]]
name = \"other\"
[[backend.server]]
address = \"127.0.0.1:3\"
";

#[test]
fn a_check_says_what_the_proxy_would_do_and_opens_no_address() {
    let (code, plan, errors) = check(SOUND);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for line in [
        "listen on 127.0.0.1:0: HTTP to the backend \"app\"",
        "listen on unix:p.sock: HTTP to the backend \"app\"",
        "backend \"app\": least; GET /up every 2s",
        "  127.0.0.1:2 weight 3",
        "backend \"other\": round-robin; no checks, down for 5s after 3",
    ] {
        assert!(plan.lines().any(|found| found == line), "{line}\nis not in\n{plan}");
    }
    assert!(plan.contains("2 threads, "), "{plan}");
}

/// What `pollux proxy` ends with and says, with these flags.
fn ended(flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let ended = command.args(["proxy", "--backend", "127.0.0.1:1"]).args(flags).output();
    let ended = ended.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[test]
fn a_check_refuses_what_the_start_refuses_in_the_same_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    let links = tempfile::tempdir().expect("a folder");
    let link = |name: &str, target: &str| {
        let path = links.path().join(name);
        std::os::unix::fs::symlink(target, &path).expect("linked");
        path.display().to_string()
    };
    let leads_nowhere = link("nowhere", "nodir/x");
    let leads_to_itself = link("itself", "itself");
    let too_long = format!("{dir}/{}", "n".repeat(300));
    let wrong = [
        (["--access-log", "/nodir/x"], "the access log \"/nodir/x\" cannot be opened"),
        (["--access-log", &*dir], "cannot be opened: Is a directory"),
        (["--error-log", "/nodir/y"], "the error log \"/nodir/y\" cannot be opened"),
        (["--control", "unix:/nodir/c.sock"], "unix:/nodir/c.sock cannot be listened on"),
        (["--stats", "unix:/nodir/s.sock"], "unix:/nodir/s.sock cannot be listened on"),
        (["--pid-file", "/nodir/p"], "the pid file \"/nodir/p\" cannot be written"),
        (["--access-log", &*leads_nowhere], "No such file or directory"),
        (["--access-log", &*leads_to_itself], "Too many levels of symbolic links"),
        (["--error-log", &*leads_to_itself], "Too many levels of symbolic links"),
        (["--access-log", &*too_long], "File name too long"),
        (["--listen", "unix:/nodir/l.sock"], "unix:/nodir/l.sock cannot be listened on"),
        (["--listen", "192.0.2.7:80"], "192.0.2.7 is not an address of this machine"),
        (["--pin", "900"], "CPU 900 is not one that may be used here"),
        (["--pin", "0-900"], " is not one that may be used here"),
    ];
    for (flags, expected) in wrong {
        let own = ["--listen", "127.0.0.1:0"];
        let flags = if flags[0] == "--listen" { flags.to_vec() } else { [own, flags].concat() };
        let (code, plan, refused) = ended(&[&flags[..], &["--check"]].concat());
        assert_eq!((code, plan.as_str()), (Some(2), ""), "{flags:?}: {refused}");
        assert!(refused.contains(expected), "{flags:?}: {refused}");
        let (code, _, started) = ended(&flags);
        assert_eq!(code, Some(1), "{flags:?}: {started}");
        let why = refused.trim_start_matches("error: ").trim_end();
        assert!(started.contains(why), "{flags:?}: {started}: {refused}");
    }
    // All at once.
    let (_, _, refused) = ended(&["--check", "--access-log", "/nodir/x", "--pin", "900"]);
    assert!(refused.contains("/nodir/x") && refused.contains("CPU 900"), "{refused}");
    assert!(folder.path().read_dir().expect("readable").next().is_none(), "something was made");
}

#[test]
fn a_check_warns_of_what_the_start_warns_of_and_of_another_program_on_the_port() {
    let most = ["--max-connections", "1048576", "--listen", "127.0.0.1:0"];
    let (code, plan, _) = ended(&[&most[..], &["--check"]].concat());
    assert_eq!(code, Some(0));
    let expected = "warning: max-connections is 1048576, but the descriptor limit allows about ";
    assert!(plan.contains(expected), "{plan}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let (code, plan, _) = ended(&["--check", "--listen", &address]);
    assert_eq!(code, Some(0));
    let expected = format!("warning: {address} is in use by ");
    assert!(plan.contains(&expected), "{plan}");
    assert!(plan.contains(&format!("(process {})", std::process::id())), "{plan}");
    // On a unix socket it is the same, and a start names the program as well.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a socket");
    let taken = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let address = format!("unix:{}", path.display());
    for flag in ["--listen", "--stats", "--control"] {
        let other = ["--listen", "127.0.0.1:0"];
        let flags = if flag == "--listen" { &[][..] } else { &other };
        let flags = [flags, &[flag, &address]].concat();
        let (code, plan, _) = ended(&[&flags[..], &["--check"]].concat());
        assert_eq!(code, Some(0));
        let held = format!("{address} is in use by ");
        let by = format!("(process {})", std::process::id());
        assert!(plan.contains(&format!("warning: {held}")) && plan.contains(&by), "{plan}");
        let (code, _, started) = ended(&flags);
        assert_eq!(code, Some(1), "{started}");
        let next = format!("{by}; end that program or choose another address with {flag}");
        assert!(started.contains(&held) && started.contains(&next), "{started}");
    }
    drop(taken);
}

#[test]
fn a_check_of_the_settings_of_a_running_proxy_is_well_and_leaves_it_alone() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[backend.address], "pid_file = \"pid\"");
    let folder = proxy.file("");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let command = command.current_dir(&folder).args(["proxy", "--config", "p.toml", "--check"]);
    let ended = command.args(["--listen", &proxy.address.to_string()]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!said.contains("in use"), "{said}");
    let id = fs::read_to_string(proxy.file("pid")).expect("written");
    assert_eq!(id.trim(), proxy.id().to_string());
    assert_eq!(Client::default().ask(proxy.address, "/a").0, Outcome::Right);
    proxy.control("show info\nquit\n");
}

#[test]
fn a_check_opens_certificates() {
    let secured = SOUND
        .replace("backend = \"app\"", "cert = \"no.pem\"\nkey = \"no.key\"\nbackend = \"app\"");
    let (code, plan, errors) = check(&secured);
    assert_eq!((code, plan.as_str()), (Some(2), ""));
    assert!(errors.contains("no.pem: "), "{errors}");
    let (code, _, errors) = check(&secured.replace("key = \"no.key\"\n", ""));
    assert_eq!(code, Some(2));
    assert!(errors.contains("p.toml:4:8: cert: "), "{errors}");
    let trusting = SOUND.replace("name = \"app\"", "name = \"app\"\ntls = true\nca = \"no.pem\"");
    let (code, plan, errors) = check(&trusting);
    assert_eq!((code, plan.as_str()), (Some(2), ""));
    assert!(errors.contains("no.pem: "), "{errors}");
}

#[test]
fn a_check_looks_for_the_authorities_that_the_system_trusts() {
    let check = |certificates: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["proxy", "--backend", "127.0.0.1:1", "--tls", "--check"]);
        command.env("SSL_CERT_FILE", certificates).env("SSL_CERT_DIR", "/nonexistent");
        let ended = command.output().expect("it runs");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("a text"))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("roots.pem");
    let certified = rcgen::generate_simple_self_signed(["x".to_owned()]).expect("a certificate");
    fs::write(&file, certified.cert.pem()).expect("written");
    assert_eq!(check(file.to_str().expect("a text")), (Some(0), String::new()));
    let (code, errors) = check("/dev/null");
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("this system has no certificates of authorities"), "{errors}");
}

#[test]
fn a_check_tells_every_mistake_with_its_line_and_column() {
    let wrong = SOUND
        .replace("weight = 3", "weight = 0")
        .replace("threads = 2", "thread = 2")
        .replace("backend = \"app\"", "backend = \"ap\"");
    let (code, plan, errors) = check(&wrong);
    assert_eq!((code, plan.as_str()), (Some(2), ""));
    assert!(errors.contains("p.toml:1:1: unknown key \"thread\""), "{errors}");
    assert!(errors.contains("did you mean \"threads\"?"), "{errors}");
    assert!(errors.contains("p.toml:12:10: weight = 0: expected a whole number"), "{errors}");
    // Which names there are is not known while one of the sections is wrong.
    let (code, _, errors) = check(&SOUND.replace("backend = \"app\"", "backend = \"ap\""));
    assert_eq!(code, Some(2));
    let expected = "p.toml:4:11: backend: no [[backend]] is called \"ap\"; did you mean \"app\"?";
    assert!(errors.contains(expected), "{errors}");
}

#[test]
fn a_manager_is_recognised_by_the_master_whose_id_stands_in_its_file_until_the_end() {
    let backend = Backend::start();
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("notify");
    let manager = UnixDatagram::bind(&name).expect("bound");
    manager.set_read_timeout(Some(DEADLINE)).expect("set");
    let notification = || {
        let mut text = [0; 200];
        let len = uninterrupted(|| manager.recv(&mut text)).expect("sent");
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let backends = [backend.address];
    let proxy = Proxy::start_by(&backends, "pid_file = \"pid\"", |command| {
        command.env("NOTIFY_SOCKET", &name)
    });
    let mut proxy = proxy.unwrap_or_else(|said| panic!("{said:#?}"));
    assert_eq!(notification(), "READY=1");
    let id = || fs::read_to_string(proxy.file("pid")).expect("written");
    assert_eq!(id(), format!("{}\n", proxy.id()));
    assert!(!proxy.file("pid.new").exists());
    let first = proxy.one_worker(&[]);
    proxy.signal(Signal::HUP);
    assert!(notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notification(), "READY=1");
    // The worker has the new settings, and the master is the same.
    assert_eq!(proxy.one_worker(&[]), first);
    assert_eq!(id(), format!("{}\n", proxy.id()));
    // Wrong settings change nothing, and it is as ready as before.
    fs::write(proxy.file("p.toml"), "nonsense").expect("written");
    proxy.signal(Signal::HUP);
    assert!(notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notification(), "READY=1");
    let file = proxy.file("pid");
    proxy.signal(Signal::TERM);
    assert_eq!(notification(), "STOPPING=1");
    assert!(proxy.ended().success());
    assert!(!file.exists());
}

/// Asks for `/page` with these fields, on a connection of its own.
fn ask(proxy: &Proxy, fields: &str) {
    let mut socket = TcpStream::connect(proxy.address).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let request = format!(
        "POST /page?q=1 HTTP/1.1\r\nHost: x\r\nX-Id: /page?q=1\r\n{fields}Connection: close\r\n\
         Content-Length: 9\r\n\r\n/page?q=1"
    );
    socket.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// The only line of a log, once it is written.
fn line(log: &Path) -> String {
    let text = wait_for(format_args!("a line in {}", log.display()), || {
        fs::read_to_string(log).ok().filter(|text| text.ends_with('\n'))
    });
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_combined_line_has_page_and_program_before_what_the_proxy_adds() {
    let backend = Backend::start();
    let settings = "access_log = \"access\"\naccess_log_format = \"combined\"";
    let proxy = Proxy::start(&[backend.address], settings);
    let log = proxy.file("access");
    ask(&proxy, "Referer: http://from.example/?a=\"b\"\r\nUser-Agent: a program/1.0\r\n");
    let first = line(&log);
    assert!(first.starts_with("127.0.0.1 - - ["), "{first}");
    let (_, rest) = first.split_once(" +0000] ").expect("a time");
    let said = "\"POST /page?q=1 HTTP/1.1\" 200 9 \"http://from.example/?a=\\x22b\\x22\" \"a program/1.0\" ";
    let added = rest.strip_prefix(said).unwrap_or_else(|| panic!("{first}"));
    let words: Vec<&str> = added.split_ascii_whitespace().collect();
    let [server, times, ended] = words[..] else { panic!("{first}") };
    assert_eq!(server, backend.address.to_string(), "{first}");
    let times: Vec<u64> = times.split('/').map(|time| time.parse().expect("a time")).collect();
    let [_, connected, first_byte, total] = times[..] else { panic!("{first}") };
    assert!(connected <= first_byte && first_byte <= total, "{first}");
    assert_eq!(ended, "ok", "{first}");
    // A reload leaves the old file to the program that renamed it; a value that is absent is a dash.
    fs::rename(&log, proxy.file("access.1")).expect("renamed");
    proxy.signal(Signal::HUP);
    wait_until("a new log", || log.exists());
    ask(&proxy, "");
    assert!(line(&log).contains("\" 200 9 \"-\" \"-\" "), "{}", line(&log));
    assert_eq!(line(&proxy.file("access.1")), first);
}
