//! What the system around a server gives it and receives: settings, checked (`--check`) and new ones at SIGHUP; the
//! id of the process in a file, how far the server is, sockets that were opened before; and logs on a disk that is
//! full: what that costs, what is said of it, and that it passes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_testing::{DEADLINE, Output, Process, Signal, addresses, uninterrupted, wait_for};
use tempfile::TempDir;

use crate::child::{Server, Wire, rest_of};

/// Room for some hundred lines.
const SIZE: &str = "64k";
const CLIENTS: usize = 4;

/// A server on settings of a file.
pub(crate) struct Served {
    pub(crate) folder: TempDir,
    pub(crate) process: Process,
    /// What it said of its sandbox.
    pub(crate) sandbox: String,
    pub(crate) address: SocketAddr,
}

impl Served {
    pub(crate) fn start(settings: &str) -> Self {
        Self::start_by(settings, |command| command)
    }

    /// The same, with further words or variables.
    fn start_by(settings: &str, set: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        write_settings(folder.path(), settings);
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["serve", "--config"]).arg(folder.path().join("s.toml"));
        set(&mut command);
        Self::spawn(folder, command)
    }

    fn spawn(folder: TempDir, command: Command) -> Self {
        Self::spawn_or(folder, command).unwrap_or_else(|said| panic!("{said}"))
    }

    /// The same, or what it said where it did not start.
    pub(crate) fn spawn_or(folder: TempDir, mut command: Command) -> Result<Self, String> {
        let mut process = Process::start(&mut command);
        let Some(line) = process.try_wait_for_stderr_line("http://") else {
            return Err(process.stderr_lines().join("\n"));
        };
        let sandbox = process.wait_for_stderr_line("pollux serve: sandbox: ");
        Ok(Self { folder, process, sandbox, address: addresses(&line)[0] })
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, settings: &str) {
        write_settings(self.folder.path(), settings);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        Client(BufReader::new(stream))
    }

    /// Ends it; what it said since its first line.
    pub(crate) fn end(self) -> String {
        self.end_and_keep().0
    }

    /// The same, with the folder of its settings.
    pub(crate) fn end_and_keep(self) -> (String, TempDir) {
        self.signal(Signal::TERM);
        (rest_of(self.process), self.folder)
    }
}

pub(crate) fn write_settings(folder: &Path, settings: &str) {
    let poller = if settings.contains("poller = ") { "" } else { "poller = \"epoll-et\"\n" };
    let text = format!("{settings}\nlisten = \"127.0.0.1:0\"\n{poller}");
    fs::write(folder.join("s.toml"), text).expect("written");
}

/// A connection that is kept.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    /// Head and body of the answer.
    pub(crate) fn get(&mut self, path: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).expect("sent");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).expect("a line") > 0, "ended: {head}");
        }
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; len.map_or(0, |len| len.parse().expect("a number"))];
        self.0.read_exact(&mut body).expect("a body");
        (head, String::from_utf8(body).expect("text"))
    }
}

#[test]
fn a_reload_that_is_asked_for_while_it_starts_is_done_once_it_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.toml");
    let kind = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let mut process = Process::start(command.args(["serve", "--config"]).arg(&path));
    // It waits for its settings from here on.
    let mut early = fs::File::options().write(true).open(&path).expect("it reads them");
    process.signal(Signal::HUP);
    process.signal(Signal::USR1);
    fs::remove_file(&path).expect("removed");
    write_settings(folder.path(), "reply = 7\nlog_level = \"info\"");
    let settings =
        "reply = 5\nlog_level = \"info\"\nlisten = \"127.0.0.1:0\"\npoller = \"epoll-et\"";
    early.write_all(settings.as_bytes()).expect("written");
    drop(early);
    let address = addresses(&process.wait_for_stderr_line("http://"))[0];
    process.wait_for_stderr_line("info: reloaded");
    wait_for("an answer by the new settings", || {
        let stream = TcpStream::connect(address).expect("connected");
        (Client(BufReader::new(stream)).get("/").1 == "pollux ").then_some(())
    });
    process.signal(Signal::TERM);
    assert!(process.wait().success());
}

#[test]
fn a_log_at_dev_stdout_is_written_where_standard_output_is_a_socket() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args([
        "serve",
        "--reply",
        "1",
        "--listen",
        "127.0.0.1:0",
        "--access-log",
        "/dev/stdout",
    ]);
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "65534", "--group", "65533"]);
    }
    let mut process = Process::start(command.stdout(Stdio::from(OwnedFd::from(theirs))));
    // The command keeps a copy of it.
    drop(command);
    let address = addresses(&process.wait_for_stderr_line("http://"))[0];
    ours.set_read_timeout(Some(DEADLINE)).expect("set");
    let mut lines = BufReader::new(ours);
    let mut ask = |path: &str| {
        let stream = TcpStream::connect(address).expect("connected");
        Client(BufReader::new(stream)).get(path);
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert!(line.contains(path), "{line}");
    };
    ask("/first");
    // Opened again it is the same stream.
    process.signal(Signal::USR1);
    ask("/second");
    process.signal(Signal::TERM);
    assert!(process.wait().success());
}

#[test]
fn who_may_connect_to_a_unix_socket_is_said_by_the_settings_and_not_by_the_umask() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    for (more, modes) in [("", [0o666, 0o666]), ("socket_mode = \"0660\"", [0o660, 0o660])] {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let unix = |name: &str| format!("\"unix:{}\"", at(name).display());
        let owner = if rustix::process::geteuid().is_root() {
            "socket_owner = \"65534:65533\""
        } else {
            ""
        };
        let text = format!(
            "reply = 1\nlisten = [\"127.0.0.1:0\", {}]\nstats = {}\ncontrol = {}\n{more}\n{owner}",
            unix("l"),
            unix("s"),
            unix("k")
        );
        fs::write(at("s.toml"), text).expect("written");
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_pollux")]);
        command.args(["serve", "--poller", "epoll-et", "--config"]).arg(at("s.toml"));
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_line("control: unix:");
        let found = |name: &str| at(name).metadata().expect("there");
        let mode = |name: &str| found(name).permissions().mode() & 0o7777;
        assert_eq!([mode("l"), mode("s")], modes);
        assert_eq!(mode("k"), 0o600);
        if !owner.is_empty() {
            for name in ["l", "s"] {
                assert_eq!((found(name).uid(), found(name).gid()), (65534, 65533), "{name}");
            }
            assert_eq!(found("k").uid(), 0);
        }
        process.signal(Signal::TERM);
        assert!(process.wait().success());
    }
}

#[test]
fn new_settings_answer_on_connections_that_are_kept_and_wrong_ones_change_nothing() {
    let site = tempfile::tempdir().expect("a folder");
    let in_reach = format!("threads = 2\nsandbox_path = {:?}", site.path());
    let mut served = Served::start(&format!("reply = 5\n{in_reach}"));
    fs::write(site.path().join("a.txt"), "a file").expect("written");
    // On either thread.
    let mut clients: Vec<Client> = (0..8).map(|_| served.connect()).collect();
    assert!(clients.iter_mut().all(|client| client.get("/").1 == "pollu"));
    let files = format!("dir = {:?}\n{in_reach}\nresponse_field = \"add X-New: 1\"", site.path());
    served.write(&files);
    served.signal(Signal::HUP);
    for client in &mut clients {
        let head = wait_for("a reload", || {
            let (head, body) = client.get("/a.txt");
            (body == "a file").then_some(head)
        });
        assert!(head.contains("\r\nX-New: 1\r\n"), "{head}");
        assert!(!head.contains("Thu, 01 Jan 1970"), "{head}");
    }
    // Each is reported, and the old settings stay.
    let missing = format!("dir = \"/no/such\"\n{in_reach}");
    for wrong in ["reply = 5\nthreads = 3", "reply = ", &missing] {
        served.write(wrong);
        served.signal(Signal::HUP);
        for client in &mut clients {
            assert_eq!(client.get("/a.txt").1, "a file");
        }
        // Signals that are not taken yet are one.
        served.process.wait_for_stderr_line("not reloaded, the old settings stay: ");
    }
    served.write(&format!("{}\nidle_timeout = \"50ms\"", files.replace("X-New: 1", "X-New: 2")));
    served.signal(Signal::HUP);
    // New ones: of those that are kept the new timeout ends some before they ask again.
    drop(clients);
    for _ in 0..8 {
        let mut client = wait_for("a reload", || {
            let mut client = served.connect();
            client.get("/a.txt").0.contains("X-New: 2").then_some(client)
        });
        let end = client.0.read_to_end(&mut Vec::new()).expect("an end by the new idle timeout");
        assert_eq!(end, 0);
    }
    served.end();
}

#[test]
fn each_wrong_reload_says_what_is_wrong() {
    for (settings, expected) in [
        ("reply = 5\nthreads = 3", "the old settings stay: threads: fixed while the server runs"),
        ("reply = 5x", "the old settings stay: "),
        (
            "reply = 5\nfoo = 1\nidle_timeout = \"x\"",
            "unknown key \"foo\" at the top of the file; ",
        ),
        (
            "dir = \"/no/such\"",
            "the old settings stay: the folder \"/no/such\" cannot be served: No such",
        ),
        (
            "reply = 5\nerror_page = \"404 /no/such\"",
            "the old settings stay: the page \"/no/such\"",
        ),
    ] {
        let mut served = Served::start("reply = 5");
        served.write(settings);
        served.signal(Signal::HUP);
        let said = served.process.wait_for_stderr_line("stay: ");
        assert!(said.contains(expected), "{settings}: {said}");
        assert_eq!(served.connect().get("/").1, "pollu");
        served.end();
    }
}

#[test]
fn no_request_fails_while_settings_change() {
    let served = Served::start("reply = 100\nthreads = 2");
    let mut load = Command::new(env!("CARGO_BIN_EXE_pollux"));
    load.args(["load", "-n", "200000", "-c", "16", "--quiet"])
        .arg(format!("http://{}/", served.address));
    let mut load = Process::start(load.stdout(Stdio::piped()));
    let mut client = served.connect();
    let mut reloads = 0_u32;
    while load.status().is_none() {
        let value = format!("set X-Turn: {reloads}");
        served.write(&format!("reply = 100\nthreads = 2\nresponse_field = \"{value}\""));
        served.signal(Signal::HUP);
        let field = format!("\r\nX-Turn: {reloads}\r\n");
        wait_for("a reload", || client.get("/").0.contains(&field).then_some(()));
        reloads += 1;
    }
    let Output { status, stdout: said, .. } = load.ended();
    println!("{reloads} reloads in 200,000 requests");
    assert!(status.success() && said.contains(", no errors;"), "{said}");
    assert!(reloads > 2, "{reloads}");
    assert_eq!(served.end(), "");
}

#[test]
fn a_manager_is_notified_and_the_id_stands_in_its_file_while_the_server_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("notify");
    let pid_file = folder.path().join("pid");
    let manager = UnixDatagram::bind(&name).expect("bound");
    manager.set_read_timeout(Some(DEADLINE)).expect("set");
    let notification = || {
        let mut text = [0; 200];
        let len = uninterrupted(|| manager.recv(&mut text)).expect("sent");
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let settings = format!("reply = 5\npid_file = {pid_file:?}");
    let served = Served::start_by(&settings, |command| command.env("NOTIFY_SOCKET", &name));
    assert_eq!(notification(), "READY=1");
    let id = fs::read_to_string(&pid_file).expect("written");
    assert_eq!(id, format!("{}\n", served.process.id()));
    served.signal(Signal::HUP);
    assert!(notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notification(), "READY=1");
    served.end();
    assert_eq!(notification(), "STOPPING=1");
    assert!(!pid_file.exists());
}

#[test]
fn a_watchdog_is_notified_by_idle_loops_too_until_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("notify");
    let manager = UnixDatagram::bind(&name).expect("bound");
    manager.set_read_timeout(Some(DEADLINE)).expect("set");
    let served = Served::start_by("reply = 5\nthreads = 2", |command| {
        command.env("NOTIFY_SOCKET", &name).env("WATCHDOG_USEC", "80000")
    });
    let notification = || {
        let mut text = [0; 200];
        let len = uninterrupted(|| manager.recv(&mut text))?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&text[..len]).into_owned())
    };
    assert_eq!(notification().expect("sent"), "READY=1");
    // Idle loops are asked for turns.
    for _ in 0..10 {
        assert_eq!(notification().expect("sent"), "WATCHDOG=1");
    }
    served.end();
    let mut left = String::new();
    while !left.contains("STOPPING=1") {
        left = notification().expect("sent");
        assert!(left == "WATCHDOG=1" || left == "STOPPING=1", "{left}");
    }
}

#[test]
fn a_passed_descriptor_that_is_not_a_listening_socket_is_reported_by_number() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let client = TcpStream::connect(address).expect("connected");
    for (count, redirects, expected) in [
        (
            "2",
            "3<&0",
            "LISTEN_FDS=2: descriptor 4 is not a socket that listens (Bad file descriptor",
        ),
        ("2", "3<&0 4</dev/null", "descriptor 4 is not a socket that listens ("),
        ("0", "3<&0", "LISTEN_FDS=0: expected 1 to 64"),
        ("x", "3<&0", "LISTEN_FDS=x: expected a number"),
        ("1", "3</dev/null", "at each number from 3 to 3"),
    ] {
        let script = format!("LISTEN_PID=$$ LISTEN_FDS={count} exec \"$0\" \"$@\" {redirects}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_pollux"), "serve", "--reply", "1"]);
        let socket = OwnedFd::from(listener.try_clone().expect("ours"));
        let output = command.stdin(Stdio::from(socket)).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{count} {redirects}: {said}");
        assert!(said.contains(expected), "{count} {redirects}: {said}");
    }
    // One that is connected, as with Accept=yes of systemd.
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0"]);
    command.args([env!("CARGO_BIN_EXE_pollux"), "serve", "--reply", "1"]);
    let output = command.stdin(Stdio::from(OwnedFd::from(client))).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("descriptor 3 is not a socket"),
        "{said}"
    );
}

#[test]
fn a_socket_that_was_opened_before_is_served_with_the_clients_that_wait_at_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    // It comes before there is a server.
    let early = TcpStream::connect(address).expect("waits");
    early.set_read_timeout(Some(DEADLINE)).expect("set");
    let folder = tempfile::tempdir().expect("a folder");
    write_settings(folder.path(), "reply = 5\nthreads = 2");
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0"]);
    command.arg(env!("CARGO_BIN_EXE_pollux")).args(["serve", "--config"]);
    command.arg(folder.path().join("s.toml")).stdin(Stdio::from(OwnedFd::from(listener)));
    let served = Served::spawn(folder, command);
    assert_eq!(served.address, address, "--listen is put aside");
    assert_eq!(Client(BufReader::new(early)).get("/").1, "pollu");
    assert_eq!(served.connect().get("/").1, "pollu");
    served.end();
}

#[test]
fn a_second_server_does_not_take_the_pid_file_of_one_that_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let pid_file = folder.path().join("pid");
    let settings = format!("reply = 5\npid_file = {pid_file:?}");
    let first = Served::start(&settings);
    let again = tempfile::tempdir().expect("a folder");
    write_settings(again.path(), &settings);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["serve", "--config"]).arg(again.path().join("s.toml"));
    let output = command.output().expect("pollux starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("is that of process {}, which runs", first.process.id());
    assert!(output.status.code() == Some(1) && said.contains(&expected), "{said}");
    let own = |served: &Served| {
        let found = fs::read_to_string(&pid_file).expect("written");
        assert_eq!(found, format!("{}\n", served.process.id()));
    };
    own(&first);
    // One that is killed leaves its file, which is the next one's.
    first.signal(Signal::KILL);
    drop(first);
    assert!(pid_file.exists());
    let second = Served::start(&settings);
    own(&second);
    second.end();
    assert!(!pid_file.exists());
}

/// A server whose folder `disk` is one of its own, and that folder as others reach it.
fn start(driver: &str, disk: &Path, flags: &[&str]) -> Option<(Server, PathBuf)> {
    let name = disk.display();
    let mount = format!("mount -t tmpfs -o size={SIZE} none {name} && exec \"$0\" \"$@\"");
    let script = format!("exec unshare -rm sh -c '{mount}' \"$0\" \"$@\"");
    let server = Server::start_by(driver, flags, Some(&script))?;
    let within = server.proc("root").join(disk.strip_prefix("/").expect("from the root"));
    Some((server, within))
}

fn ask(clients: &mut [Wire], times: usize) -> u64 {
    for _ in 0..times {
        for client in &mut *clients {
            let answers = client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[false]);
            assert_eq!(answers.expect("answered")[0].status, 200);
        }
    }
    (times * clients.len()) as u64
}

fn is_whole(line: &str) -> bool {
    line.starts_with("127.0.0.1 - - [")
        && line.ends_with("] \"GET / HTTP/1.1\" 200 5")
        && line.matches('[').count() == 1
}

#[test]
fn an_access_log_on_a_full_disk_costs_lines_that_are_counted_and_no_answer() {
    for driver in ["epoll-et", "uring"] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("access").display().to_string();
        let flags = ["--reply", "5", "--threads", "2", "--access-log", &log];
        let Some((mut server, disk)) = start(driver, folder.path(), &flags) else { continue };
        fs::write(disk.join("other"), vec![0; 32 * 1024]).expect("room");
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Wire::connect(server.address)).collect();
        let lost = |server: &Server| server.metrics().sum("http_log_lines_lost_total");
        let mut asked = 0;
        while lost(&server) == 0 {
            asked += ask(&mut clients, 50);
        }
        let said = server.wait_for_stderr_line("the access log ");
        assert!(said.contains(&format!("warn: the access log {log} lost ")), "{said}");
        assert!(said.contains(": No space left on device"), "{said}");
        asked += ask(&mut clients, 50);
        fs::remove_file(disk.join("other")).expect("removed");
        asked += ask(&mut clients, 20);
        drop(clients);
        server.await_rest();
        let log = disk.join("access");
        let counted = |server: &Server| {
            let text = fs::read_to_string(&log).expect("text");
            let (whole, torn): (Vec<_>, Vec<_>) = text.lines().partition(|line| is_whole(line));
            (whole.len() as u64 + lost(server) == asked).then_some((whole.len(), torn.len()))
        };
        // Lines of a busy loop are written within a second.
        let (whole, torn) = wait_for("every line", || counted(&server));
        println!("{driver}: {asked} answers, {whole} lines, {torn} parts of a line");
        assert!(whole >= 20 * CLIENTS && torn <= CLIENTS, "{whole} {torn}");
        // The rest of what was lost is reported once more at the end at most.
        server.signal(Signal::TERM);
        let rest = server.ended();
        assert!(rest.lines().all(|line| line.contains("the access log ")), "{rest}");
        assert!(rest.lines().count() <= 1, "{rest}");
    }
}

#[test]
fn an_error_log_on_a_full_disk_says_later_how_many_lines_it_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("error").display().to_string();
    let flags = ["--reply", "5", "--error-log", &log, "--log-level", "debug"];
    let Some((server, disk)) = start("epoll-et", folder.path(), &flags) else { return };
    let filler = disk.join("other");
    let at = disk.join("error");
    let size_of = || fs::metadata(&at).expect("there").len();
    wait_for("the first line", || (size_of() > 0).then_some(()));
    // All that is left beside the page that the log began.
    fs::write(&filler, vec![0; 1 << 20]).expect_err("a full disk");
    for _ in 0..60 {
        let mut client = Wire::connect(server.address);
        let refused = client.ask(b"GET /\r\n\r\n", &[false]).expect("an answer");
        assert_eq!(refused[0].status, 400);
    }
    wait_for("a full page", || (size_of() >= 4096).then_some(()));
    // What fills the page is the begin of what was to be written; the rest follows in the same go and is lost. A disk
    // with space again in between would take it.
    wait_for("the end of that write", || server.sleeps().then_some(()));
    fs::remove_file(&filler).expect("removed");
    let text = wait_for("a line of what was lost", || {
        let text = fs::read_to_string(&at).expect("text");
        (text.contains(" of this log w") && text.ends_with('\n')).then_some(text)
    });
    assert!(text.contains(" lost: it could not be written"), "{text}");
    let mut client = Wire::connect(server.address);
    assert_eq!(ask(std::slice::from_mut(&mut client), 1), 1);
    drop(client);
    server.end();
}

/// What `--check` says: what the settings mean, or everything that is wrong with them.
fn check(flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let output = command.args(["serve", "--check"]).args(flags).output().expect("pollux starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn settings_are_checked_and_printed_and_no_address_is_listened_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    let log = folder.path().join("log");
    // The address is in use, which does not matter here.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let log_text = log.display().to_string();
    let flags = [&*dir, "--listen", &address, "--idle-timeout", "5s", "--access-log", &log_text];
    let (code, said, wrong) = check(&flags);
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    assert!(said.contains(&format!("listen: {address}\n")), "{said}");
    assert!(said.contains("idle-timeout: 5s\n") && said.contains("answer: files of "), "{said}");
    assert!(!log.exists());
    // What a server has that runs is right, and stays its own.
    let at = |name: &str| format!("{dir}/{name}");
    let pid_file = at("pid");
    let control = format!("unix:{}", at("control"));
    let flags = ["--reply", "1", "--pid-file", &pid_file, "--control", &control];
    let server = Server::start("epoll-et", &flags).expect("it starts");
    let (code, _, wrong) =
        check(&[&flags[..], &["--listen", &server.address.to_string()]].concat());
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    let id = fs::read_to_string(&pid_file).expect("written");
    assert_eq!(id.trim(), server.id().to_string());
    let mut commands = UnixStream::connect(at("control")).expect("it still listens");
    commands.write_all(b"show info\n").expect("sent");
    let mut answer = [0];
    commands.read_exact(&mut answer).expect("an answer");
    drop(commands);
    server.end();
    assert!(!folder.path().join("pid").exists() && !folder.path().join("control").exists());
}

#[test]
fn folders_that_the_unit_makes_may_be_missing_at_a_check() {
    let control = "/run/pollux-no-such/control";
    let log = "/var/log/pollux-no-such/access.log";
    let flags = ["--reply", "1", "--listen", "127.0.0.1:0"];
    let (code, said, wrong) = check(
        &[&flags[..], &["--control", &format!("unix:{control}"), "--access-log", log]].concat(),
    );
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    for (setting, file) in [("RuntimeDirectory", control), ("LogsDirectory", log)] {
        let expected = format!("with {setting}=pollux-no-such cannot make {file}");
        let is_it = |line: &str| line.starts_with("warning: ") && line.ends_with(&expected);
        assert!(said.lines().any(is_it), "{expected}: {said}");
    }
}

#[test]
fn what_would_keep_a_server_from_starting_ends_the_check_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    fs::write(folder.path().join("file"), "a file").expect("written");
    let here = std::env::current_dir().expect("there").display().to_string();
    let occupied = format!("unix:{dir}/file");
    let pipe = format!("{dir}/pipe");
    let log = format!("{dir}/log");
    let kind = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("made");
    for (flags, expected) in [
        (vec!["/no/such/folder"], "the folder \"/no/such/folder\" cannot be served: No such file"),
        (
            vec![&*dir, "--spa", "no.html"],
            &format!("the page \"{dir}/no.html\" cannot be served: no file "),
        ),
        (
            vec![&*dir, "--error-page", "404 no.html"],
            &format!(
                "the page \"{dir}/no.html\" cannot be served: No such file or directory (os error 2); expected one that \
                 is there: below the folder that is served"
            ),
        ),
        (
            vec![&*dir, "--error-page", "404"],
            "both in one pair of quotes, such as \"404 404.html\"",
        ),
        (
            vec![&*dir, "--access-log", &log, "--pid-file", &log],
            &format!("{log:?} is the file of access_log as well; expected a path of its own"),
        ),
        (
            vec!["--reply", "1", "--error-page", "404 no.html"],
            &format!("the page \"{here}/no.html\" cannot be served: No such"),
        ),
        (vec![&*dir, "--access-log-format", "json"], "applies only to an access log; expected"),
        (
            vec![&*dir, "--error-page", "404 /no.html"],
            "the page \"/no.html\" cannot be served: No such",
        ),
        (vec![&*dir, "--cert", "/no.pem", "--key", "/no.key"], "/no.pem: "),
        (vec![&*dir, "--threads", "0"], "--threads"),
        (vec![&*dir, "--listen", "192.0.2.1:80"], "192.0.2.1 is not an address of this machine"),
        (vec![&*dir, "--listen", "unix:/no/such/s"], "unix:/no/such/s cannot be listened on"),
        (
            vec![&*dir, "--access-log", "/no/such/log"],
            "the access log \"/no/such/log\" cannot be opened",
        ),
        (vec![&*dir, "--access-log", &dir], "cannot be opened: Is a directory"),
        (vec![&*dir, "--access-log", &pipe], "no program reads this named pipe; start its reader"),
        (
            vec![&*dir, "--listen", "[::ffff:127.0.0.1]:8081", "--listen", "127.0.0.1:8081"],
            "[::ffff:127.0.0.1]:8081 takes connections to 127.0.0.1:8081 as well",
        ),
        (
            vec![&*dir, "--listen", "127.0.0.1:8081", "--listen", "localhost:8081"],
            "localhost:8081 and 127.0.0.1:8081 are one address of this machine",
        ),
        (
            vec![&*dir, "--error-log", "/no/such/log"],
            "the error log \"/no/such/log\" cannot be opened",
        ),
        (
            vec![&*dir, "--pid-file", "/no/such/pid"],
            "the pid file \"/no/such/pid\" cannot be written",
        ),
        (vec![&*dir, "--pid-file", &dir], "it is there and not a file"),
        (vec![&*dir, "--control", "unix:/no/such/c"], "unix:/no/such/c cannot be listened on"),
        (vec![&*dir, "--control", &occupied], "a file that is not a socket is here"),
        (vec![&*dir, "--stats", "192.0.2.1:1"], "choose one of its own with --stats"),
        (vec![&*dir, "--pin", "900"], "CPU 900 is not one that may be used here: those are "),
        (
            vec![&*dir, "--listen", "127.0.0.1:8081", "--stats", "127.0.0.1:8081"],
            "127.0.0.1:8081 is the address of listen as well",
        ),
    ] {
        let (code, said, wrong) = check(&flags);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{flags:?}: {wrong}");
        assert!(wrong.contains(expected), "{flags:?}: {wrong}");
    }
}
