//! Another program in the place of the one that runs: under load, over one that does not run, with tunnels and limits that
//! stay.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_testing::{DEADLINE, Pid, Process, Signal, wait_until};
use tempfile::TempDir;

use crate::stage::{Backend, Client, Clients, Outcome, Proxy, Server};

/// A link to a version of the program, which can be turned to another one while it runs.
struct Program {
    folder: TempDir,
    versions: Cell<usize>,
}

impl Program {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = Self { folder, versions: Cell::new(0) };
        program.install_another();
        program
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("pollux")
    }

    /// Puts what `write` makes in its place, as a package does it.
    fn install(&self, write: impl FnOnce(&Path)) {
        let new = self.folder.path().join("pollux.new");
        write(&new);
        fs::rename(new, self.path()).expect("renamed");
    }

    /// Turns the link to another version.
    fn install_another(&self) {
        let version = self.versions.get() + 1;
        self.versions.set(version);
        let name = format!("pollux-{version}");
        let at = self.folder.path().join(&name);
        let built = env!("CARGO_BIN_EXE_pollux");
        // On another file system there is no link.
        if fs::hard_link(built, &at).is_err() {
            fs::copy(built, &at).expect("copied");
        }
        self.install(|path| symlink(name, path).expect("a link"));
    }

    /// Whether this process runs what the link leads to now.
    fn is_of(&self, process: u32) -> bool {
        let runs = fs::read_link(format!("/proc/{process}/exe")).expect("it runs");
        runs == fs::canonicalize(self.path()).expect("it is there")
    }

    fn start(&self, backends: &[SocketAddr], more: &str) -> Proxy {
        Proxy::start_program(&self.path(), backends, more)
    }
}

fn number(worker: Pid) -> u32 {
    worker.as_raw_nonzero().get().unsigned_abs()
}

#[test]
fn no_request_fails_while_another_program_takes_the_place_of_the_one_that_runs() {
    let program = Program::new();
    let backend = Backend::start();
    let mut proxy = program.start(&[backend.address], "threads = 2\npid_file = \"p.pid\"");
    let clients = Clients::start(proxy.address, 8);
    let mut workers = vec![proxy.one_worker(&[])];
    let id = proxy.id();
    for _ in 0..3 {
        clients.await_right(200);
        program.install_another();
        assert!(!program.is_of(id), "the one before still runs");
        proxy.signal(Signal::USR2);
        proxy.wait_for_stderr_line("upgraded: this is ");
        assert!(program.is_of(id));
        clients.await_right(200);
        // The one before has ended, and this master has noticed.
        let worker = proxy.one_worker(&workers);
        assert!(program.is_of(number(worker)));
        workers.push(worker);
        let written = fs::read_to_string(proxy.file("p.pid")).expect("written");
        assert_eq!(written.trim(), id.to_string());
    }
    // What a master does it does as before.
    proxy.write_settings(&[backend.address], "threads = 1\npid_file = \"p.pid\"");
    assert_eq!(proxy.reload(), (true, "reloaded\n".to_owned()));
    clients.await_right(50);
    let (right, failed) = clients.end();
    assert!(failed.is_empty(), "of {right}: {failed:?}");
    proxy.await_metric("pollux_http_answers_total", "2xx", right);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
    assert!(!proxy.file("p.pid").exists() && !proxy.file("k.sock").exists());
}

#[test]
fn load_sees_nothing_of_an_upgrade() {
    let program = Program::new();
    let backend = Server::start("127.0.0.1:0".parse().expect("an address"));
    let mut proxy = program.start(&[backend.address], "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let url = format!("http://{}/", proxy.address);
    command.args(["load", "-n", "100000", "-c", "16", "--quiet", "--slo", "errors=0", &url]);
    let mut load = Process::start(command.stdin(Stdio::null()));
    for upgrade in 1..=3 {
        wait_until("thousands of answers more", || {
            proxy.metric("pollux_http_answers_total", "2xx") > upgrade * 5000
        });
        program.install_another();
        proxy.signal(Signal::USR2);
        proxy.wait_for_stderr_line("upgraded: this is ");
        assert!(program.is_of(proxy.id()));
    }
    let ended = load.wait();
    assert!(ended.success(), "{ended:?}");
    proxy.await_metric("pollux_http_answers_total", "2xx", 100_000);
}

#[test]
fn a_program_that_does_not_serve_leaves_the_one_before_in_its_place() {
    let program = Program::new();
    let backend = Backend::start();
    let mut proxy = program.start(&[backend.address], "");
    let worker = proxy.one_worker(&[]);
    let exe = format!("/proc/{}/exe", proxy.id());
    let first = fs::read_link(&exe).expect("it runs");
    let clients = Clients::start(proxy.address, 4);
    for (text, mode, expected) in [
        ("no program\n", 0o755, ": Exec format error"),
        ("#!/bin/sh\nexit 3\n", 0o644, ": Permission denied"),
        ("#!/bin/sh\necho broken >&2\nexit 3\n", 0o755, " ended: exit status: 3"),
        ("#!/bin/sh\nkill -SEGV $$\n", 0o755, " ended: signal: 11"),
    ] {
        program.install(|path| {
            fs::write(path, text).expect("written");
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
        });
        proxy.signal(Signal::USR2);
        let line = proxy.wait_for_stderr_line("not upgraded, the program before serves on: ");
        assert!(line.contains(expected), "{text:?}: {line}");
        clients.await_right(50);
        assert_eq!(proxy.one_worker(&[]), worker, "{text:?}");
        assert_eq!(fs::read_link(&exe).expect("it runs"), first, "{text:?}");
    }
    fs::remove_file(program.path()).expect("removed");
    proxy.signal(Signal::USR2);
    proxy.wait_for_stderr_line("No such file or directory");
    // A worker that dies is one of the program that runs.
    assert_eq!(proxy.reload(), (true, "reloaded\n".to_owned()));
    program.install_another();
    proxy.signal(Signal::USR2);
    proxy.wait_for_stderr_line("upgraded: this is ");
    assert!(program.is_of(proxy.id()));
    clients.await_right(50);
    let (right, failed) = clients.end();
    assert!(failed.is_empty(), "of {right}: {failed:?}");
}

#[test]
fn a_tunnel_and_what_a_limit_has_counted_outlive_an_upgrade() {
    let program = Program::new();
    // Of a stream in TCP mode both sides are here.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    let mut proxy = program.start(&[at], "mode = \"tcp\"");
    let mut client = TcpStream::connect(proxy.address).expect("connected");
    client.set_read_timeout(Some(DEADLINE)).expect("set");
    let (mut server, _) = listener.accept().expect("accepted");
    server.set_read_timeout(Some(DEADLINE)).expect("set");
    let mut exchange = |said: &[u8; 4]| {
        client.write_all(said).expect("taken");
        let mut got = [0; 4];
        server.read_exact(&mut got).expect("it comes");
        server.write_all(&got).expect("taken");
        client.read_exact(&mut got).expect("it comes back");
        assert_eq!(&got, said);
    };
    exchange(b"one.");
    let first = proxy.one_worker(&[]);
    program.install_another();
    proxy.signal(Signal::USR2);
    proxy.wait_for_stderr_line("upgraded: this is ");
    exchange(b"two.");
    // It has a worker of the program before, which this master looks after.
    let workers = proxy.workers();
    assert!(workers.len() == 2 && workers.contains(&first), "{workers:?}");
    assert!(!program.is_of(number(first)));
    drop((client, server));
    proxy.one_worker(&[first]);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
}

#[test]
fn clients_are_held_to_a_limit_by_the_next_program_as_well() {
    let program = Program::new();
    let sites = "[[limit]]\nname = \"few\"\nrate = \"1/h\"\nburst = 3\n[[site]]\nhost = \"*\"\nlimit = [\"few\"]\nroute = [{ path = \"/\", reply = 2 }]\n";
    let mut proxy = program.start(&[], sites);
    let ask = |proxy: &Proxy| {
        let mut client = TcpStream::connect(proxy.address).expect("connected");
        client.set_read_timeout(Some(DEADLINE)).expect("set");
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("taken");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer)[9..12].to_owned()
    };
    assert_eq!([ask(&proxy), ask(&proxy)], ["200", "200"]);
    program.install_another();
    proxy.signal(Signal::USR2);
    proxy.wait_for_stderr_line("upgraded: this is ");
    assert_eq!([ask(&proxy), ask(&proxy)], ["200", "429"]);
}

#[test]
fn orders_and_a_second_upgrade_are_obeyed_by_the_next_program() {
    let program = Program::new();
    let backend = Backend::start();
    let mut proxy = program.start(&[backend.address], "");
    let name = backend.address.to_string();
    let said = proxy.control(&format!("set server {name} drain\nquit\n"));
    assert!(said.contains("drain"), "{said}");
    for _ in 0..2 {
        proxy.signal(Signal::USR2);
        proxy.wait_for_stderr_line("upgraded: this is ");
        assert_eq!(Client::default().ask(proxy.address, "/").0, Outcome::Refused);
    }
    let said = proxy.control(&format!("set server {name} ready\nquit\n"));
    assert!(said.contains("ready") || said.contains("up"), "{said}");
    assert_eq!(Client::default().ask(proxy.address, "/").0, Outcome::Right);
    // A signal that ends it does so, whichever program it is.
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
}
