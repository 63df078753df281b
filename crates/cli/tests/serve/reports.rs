//! What a server says: `--check`, and logs on a disk that is full, what it costs, what is said of it, and that it passes.
//!
//! The disk is a small file system in memory, in a mount namespace of the server's own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::child::Wire;
use crate::child::{Server, alone};

/// Room for some hundred lines.
const SIZE: &str = "64k";
const CLIENTS: usize = 4;

/// A server whose folder `disk` is one of its own, and that folder as others reach it.
fn start(driver: &str, disk: &Path, flags: &[&str]) -> Option<(Server, std::path::PathBuf)> {
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
    let _turn = alone();
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
        let said = server.says("the access log ");
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
        let (whole, torn) = pollux_testing::wait_for("every line", || counted(&server));
        println!("{driver}: {asked} answers, {whole} lines, {torn} parts of a line");
        assert!(whole >= 20 * CLIENTS && torn <= CLIENTS, "{whole} {torn}");
        // The rest of what was lost is reported once more at the end at most.
        server.signal(rustix::process::Signal::TERM);
        let rest = server.ended();
        assert!(rest.lines().all(|line| line.contains("the access log ")), "{rest}");
        assert!(rest.lines().count() <= 1, "{rest}");
    }
}

#[test]
fn an_error_log_on_a_full_disk_says_later_how_many_lines_it_lost() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("error").display().to_string();
    let flags = ["--reply", "5", "--error-log", &log, "--log-level", "debug"];
    let Some((server, disk)) = start("epoll-et", folder.path(), &flags) else { return };
    let (filler, at) = (disk.join("other"), disk.join("error"));
    let size_of = || fs::metadata(&at).expect("there").len();
    pollux_testing::wait_for("the first line", || (size_of() > 0).then_some(()));
    // All that is left beside the page that the log began.
    fs::write(&filler, vec![0; 1 << 20]).expect_err("a full disk");
    for _ in 0..60 {
        let mut client = Wire::connect(server.address);
        let refused = client.ask(b"GET /\r\n\r\n", &[false]).expect("an answer");
        assert_eq!(refused[0].status, 400);
    }
    pollux_testing::wait_for("a full page", || (size_of() >= 4096).then_some(()));
    fs::remove_file(&filler).expect("removed");
    let text = pollux_testing::wait_for("a line of what was lost", || {
        let text = fs::read_to_string(&at).expect("text");
        (text.contains(" of this log w") && text.ends_with('\n')).then_some(text)
    });
    assert!(text.contains(" lost: it could not be written"), "{text}");
    let mut client = Wire::connect(server.address);
    assert_eq!(ask(std::slice::from_mut(&mut client), 1), 1);
    drop(client);
    server.end();
}

// `--check`: what the settings mean, or everything that is wrong with them.

fn check(flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    let output = command.args(["serve", "--check"]).args(flags).output().expect("pollux starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn settings_are_checked_and_printed_and_no_address_is_listened_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, log) = (folder.path().display().to_string(), folder.path().join("log"));
    // The address is in use, which does not matter here.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
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
    let (pid_file, control) = (at("pid"), format!("unix:{}", at("control")));
    let flags = ["--reply", "1", "--pid-file", &pid_file, "--control", &control];
    let server = Server::start("epoll-et", &flags).expect("it starts");
    let (code, _, wrong) =
        check(&[&flags[..], &["--listen", &server.address.to_string()]].concat());
    assert_eq!((code, wrong.as_str()), (Some(0), ""));
    let id = fs::read_to_string(&pid_file).expect("written");
    assert_eq!(id.trim(), server.id().to_string());
    server.end();
    assert!(!folder.path().join("pid").exists() && !folder.path().join("control").exists());
}

#[test]
fn what_would_keep_a_server_from_starting_ends_the_check_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    fs::write(folder.path().join("file"), "a file").expect("written");
    let occupied = format!("unix:{dir}/file");
    for (flags, expected) in [
        (vec!["/no/such/folder"], "the folder \"/no/such/folder\" cannot be served: No such file"),
        (vec![&*dir, "--spa", "no.html"], "the page \"no.html\" cannot be served: no file of "),
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
    ] {
        let (code, said, wrong) = check(&flags);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{flags:?}: {wrong}");
        assert!(wrong.contains(expected), "{flags:?}: {wrong}");
    }
}
