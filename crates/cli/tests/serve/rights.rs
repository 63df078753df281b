//! A server that gives up the rights of root: what its threads have left, and what a process that keeps them
//! does for it. Only root can try it.

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, geteuid};

use crate::child::Server;
use crate::daemon::{Served, await_that, write_settings};
use crate::encrypted::Files;

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "only root becomes another user");
        println!("skipped: only root can become another user");
    }
    is_root
}

/// A line of the status of a process.
fn status(pid: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.split_ascii_whitespace().next().expect("a word").to_owned()
}

/// The process that keeps the rights of a server.
fn privileged(server: Pid) -> u32 {
    let server = server.as_raw_nonzero();
    let path = format!("/proc/{server}/task/{server}/children");
    let children = std::fs::read_to_string(path).expect("it runs");
    children.trim().parse().unwrap_or_else(|_| panic!("one child: {children:?}"))
}

/// Whether this certificate is the one that is shown.
fn is_shown(server: &Server, cert: &Path) -> bool {
    let mut load = Command::new(env!("CARGO_BIN_EXE_pollux"));
    load.args(["load", "-n", "1", "-c", "1", "-q", "--connect-to"]);
    load.arg(server.address.to_string()).arg("--cacert").arg(cert).arg("https://localhost/");
    load.output().expect("pollux starts").status.success()
}

#[test]
fn a_key_that_only_root_may_read_is_read_again_and_files_in_its_folders_go_at_the_end() {
    if !is_root() {
        return;
    }
    let (files, run) = (Files::make(), tempfile::tempdir().expect("a folder"));
    let (pid_file, control) = (run.path().join("pid"), run.path().join("control"));
    let start = |more: &[&str]| {
        let (pid_file, control) =
            (pid_file.display().to_string(), format!("unix:{}", control.display()));
        let flags = ["--reply", "1", "--user", "65534", "--group", "65533"];
        let flags = [&flags[..], &["--pid-file", &pid_file, "--control", &control], more];
        files.serve("epoll-et", &flags.concat()).expect("it starts")
    };
    let is_left = || pid_file.exists() || control.exists();
    for sandbox in [&[][..], &["--no-sandbox"]] {
        let server = start(sandbox);
        assert_eq!(status(server.id(), "Uid:"), "65534");
        assert!(is_shown(&server, &files.at("cert.pem")));
        std::fs::copy(files.at("cert.pem"), files.at("old.pem")).expect("copied");
        files.renew();
        server.signal(Signal::HUP);
        await_that("the new certificate", || {
            is_shown(&server, &files.at("cert.pem")).then_some(())
        });
        assert!(!is_shown(&server, &files.at("old.pem")));
        let keeper = privileged(server.pid());
        assert_eq!(status(keeper, "Uid:"), "0");
        let (privileges, filter) = if sandbox.is_empty() { ("1", "2") } else { ("0", "0") };
        assert_eq!(status(keeper, "NoNewPrivs:"), privileges);
        assert_eq!(status(keeper, "Seccomp:"), filter);
        assert!(is_left());
        server.end();
        assert!(!is_left(), "they go before the server has ended");
    }
    // However it ends, and a signal for all processes of a service is for the server.
    let server = start(&[]);
    let keeper = privileged(server.pid());
    let keeper_pid = Pid::from_raw(keeper.cast_signed()).expect("a process");
    rustix::process::kill_process(keeper_pid, Signal::TERM).expect("it runs");
    assert!(is_left());
    server.signal(Signal::KILL);
    await_that("the end of what is left", || (!is_left()).then_some(()));
    drop(server);
}

#[test]
fn a_reload_says_what_the_rights_do_not_reach_either() {
    if !is_root() {
        return;
    }
    let files = Files::make();
    let log = files.text("errors");
    let flags = ["--reply", "1", "--user", "65534", "--group", "65533", "--error-log", &log];
    let server = files.serve("epoll-et", &flags).expect("it starts");
    std::fs::remove_file(files.at("key.pem")).expect("removed");
    server.signal(Signal::HUP);
    let told = "not reloaded, the old settings stay: the certificate: ";
    let said = await_that("an error", || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        said.contains(told).then_some(said)
    });
    assert!(said.contains("key.pem: No such file or directory"), "{said}");
    assert!(is_shown(&server, &files.at("cert.pem")));
}

#[test]
fn rights_are_given_up_by_every_thread_before_the_first_connection() {
    if !is_root() {
        return;
    }
    let user = "user = \"65534\"\ngroup = \"65533\"\nthreads = 2";
    let served = Served::start(&format!("reply = 5\n{user}"));
    assert_eq!(served.connect().get("/").1, "pollu");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.process.id())).expect("it runs");
    let mut threads = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task.expect("it runs").path().join("status"));
        let status = status.expect("it runs");
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            found.split_ascii_whitespace().collect::<Vec<_>>()
        };
        assert_eq!((line("Uid:"), line("Gid:")), (vec!["65534"; 4], vec!["65533"; 4]));
        assert_eq!(line("Groups:"), ["65533"]);
        for set in ["CapEff:", "CapPrm:"] {
            assert_eq!(line(set), ["0000000000000000"], "{set}");
        }
        threads += 1;
    }
    assert!(threads >= 3, "{threads}");
    assert_eq!(served.end(), "");
    // What would go wrong later is reported now.
    let folder = tempfile::tempdir().expect("a folder");
    write_settings(folder.path(), &format!("reply = 5\n{user}"));
    let path = folder.path().join("s.toml");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, closed).expect("ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["serve", "--config"]).arg(path);
    let said = Served::spawn_or(folder, command).expect("it starts").end();
    assert!(said.contains("s.toml can't be read by the user "), "{said}");
    assert!(said.contains("a reload will fail"), "{said}");
    // A file that only root may read is no longer there for it.
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("ours");
    std::fs::write(folder.path().join("secret"), "s").expect("written");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.path().join("secret"), closed).expect("ours");
    let served = Served::start(&format!("dir = {:?}\n{user}", folder.path()));
    assert!(served.connect().get("/secret").0.starts_with("HTTP/1.1 403 "));
    served.end();
}
