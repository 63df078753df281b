//! A server in its sandbox does what one without does, on every mechanism, and says what it has given up.
//! That nobody leaves it is `crates/server/tests/sandbox.rs`.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::child::{Server, alone, raise_descriptor_limit};
use crate::closed_loop::ClosedLoop;
use crate::daemon::{Served, await_that, write_settings};

const DRIVERS: [&str; 8] =
    ["select", "poll", "aio", "epoll", "epoll-et", "epoll-oneshot", "uring-poll", "uring"];

/// Starts a server on a file of settings with these paths; none where its sandbox or its mechanism is not
/// to be had, which is reported.
fn start(settings: impl Fn(&Path) -> String) -> Option<Served> {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["site", "logs", "run", "conf"] {
        fs::create_dir(folder.path().join(name)).expect("made");
    }
    fs::write(folder.path().join("site/a.txt"), "a file").expect("written");
    let conf = folder.path().join("conf");
    write_settings(&conf, &settings(folder.path()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["serve", "--config"]).arg(conf.join("s.toml"));
    match Served::spawn_or(folder, command) {
        Ok(served) => Some(served),
        Err(said) => {
            assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{said}");
            println!("skipped: {said}");
            None
        }
    }
}

/// How many lines a log has that may not be there yet.
fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn a_server_in_its_sandbox_serves_reloads_logs_and_drains_on_every_mechanism() {
    for driver in DRIVERS {
        let settings = |at: &Path| {
            format!(
                "dir = {:?}\nthreads = 2\nrequire_sandbox = true\npoller = \"{driver}\"\n\
                 access_log = {:?}\nerror_log = {:?}\nlog_level = \"info\"\npid_file = {:?}\n\
                 control = \"unix:{}\"\ncompress = true\nlisting = true",
                at.join("site"),
                at.join("logs/access"),
                at.join("logs/error"),
                at.join("run/pid"),
                at.join("run/control").display(),
            )
        };
        let Some(served) = start(settings) else { continue };
        let said = &served.sandbox;
        assert!(said.contains("no new privileges, landlock (ABI "), "{driver}: {said}");
        assert!(said.contains(", seccomp"), "{driver}: {said}");
        assert_eq!(said.contains("ring restricted"), driver.starts_with("uring"), "{said}");
        let mut client = served.connect();
        assert_eq!(client.get("/a.txt").1, "a file");
        assert!(client.get("/").1.contains("a.txt"), "a listing");
        assert!(client.get("/none").0.starts_with("HTTP/1.1 404 "));
        let (log, old) = (served.at("logs/access"), served.at("logs/access.1"));
        await_that("a line of the log", || (lines(&log) == 3).then_some(()));
        // As logrotate does, and an editor that puts a new file in place of the old one.
        fs::rename(&log, &old).expect("renamed");
        let conf = served.at("conf");
        fs::remove_file(conf.join("s.toml")).expect("removed");
        let changed =
            format!("{}\nresponse_field = \"add X-New: 1\"", settings(served.folder.path()));
        write_settings(&conf, &changed);
        served.signal(Signal::HUP);
        await_that("a reload", || client.get("/a.txt").0.contains("X-New: 1").then_some(()));
        await_that("a line of the new log", || {
            client.get("/a.txt");
            (lines(&log) > 0).then_some(())
        });
        let errors = await_that("a line of the reload", || {
            let errors = fs::read_to_string(served.at("logs/error")).expect("written");
            errors.contains("info: reloaded").then_some(errors)
        });
        assert!(errors.contains("info: sandbox: no new privileges, landlock"), "{errors}");
        assert!(!errors.contains("error: "), "{errors}");
        let (pid, control) = (served.at("run/pid"), served.at("run/control"));
        assert!(pid.exists() && control.exists());
        // The folder stays until it was looked at.
        let (said, _folder) = served.end_and_keep();
        let is_start = said.starts_with("pollux serve: control: ") && said.lines().count() == 1;
        assert!(is_start, "{driver}: {said}");
        assert!(!pid.exists() && !control.exists(), "{driver}");
    }
}

/// More than the tables and contexts of any mechanism hold when they are opened.
const MANY: usize = 1_300;

#[test]
fn more_connections_than_a_mechanism_began_with_are_served_in_the_sandbox() {
    let _turn = alone();
    if raise_descriptor_limit() < 2 * MANY {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "too few descriptors");
        println!("skipped: {MANY} connections need {} descriptors", 2 * MANY);
        return;
    }
    for driver in DRIVERS {
        let flags = ["--reply", "1", "--require-sandbox"];
        let Some(server) = Server::start(driver, &flags) else { continue };
        let mut live = ClosedLoop::connect(server.address, MANY);
        let answered = live.run(|requests| requests >= 2 * MANY as u64).requests();
        assert!(answered >= 2 * MANY as u64, "{driver}: {answered}");
        drop(live);
        server.await_rest();
        server.end();
    }
}

#[test]
fn every_thread_is_in_the_sandbox_and_none_where_it_is_off() {
    for (setting, privileges, filter) in [("require_sandbox", "1", "2"), ("no_sandbox", "0", "0")] {
        let Some(served) = start(|_| format!("reply = 5\nthreads = 2\n{setting} = true")) else {
            continue;
        };
        assert_eq!(served.sandbox.contains("sandbox: off"), setting == "no_sandbox");
        let tasks = fs::read_dir(format!("/proc/{}/task", served.process.id())).expect("it runs");
        let mut threads = 0;
        for task in tasks {
            let status = task.expect("it runs").path().join("status");
            let status = fs::read_to_string(status).expect("it runs");
            let is = |name: &str, value: &str| {
                status
                    .lines()
                    .any(|line| line.strip_prefix(name).is_some_and(|found| found.trim() == value))
            };
            assert!(is("NoNewPrivs:", privileges) && is("Seccomp:", filter), "{setting}: {status}");
            threads += 1;
        }
        assert!(threads >= 3, "{threads}");
        assert_eq!(served.end(), "");
    }
}

#[test]
fn a_reload_that_leads_out_of_the_sandbox_is_refused_with_what_to_do() {
    let settings = |at: &Path| {
        let log = at.join("logs/error");
        format!("dir = {:?}\nrequire_sandbox = true\nerror_log = {log:?}", at.join("site"))
    };
    let Some(served) = start(settings) else { return };
    let told = |path: &Path, times: usize| {
        served.signal(Signal::HUP);
        let told = format!(
            "not reloaded, the old settings stay: the sandbox of the start does not reach {}: it lies \
             elsewhere, or was replaced; restart the server, or start it with --sandbox-path",
            path.display()
        );
        await_that("an error", || {
            let errors = fs::read_to_string(served.at("logs/error")).expect("written");
            (errors.matches(&told).count() == times).then_some(())
        });
        assert_eq!(served.connect().get("/a.txt").1, "a file");
    };
    let run = served.at("run");
    let (conf, now) = (served.at("conf"), settings(served.folder.path()));
    write_settings(&conf, &now.replace("/site\"", "/run\""));
    told(&run, 1);
    // Another folder at the same place is another one.
    write_settings(&conf, &now);
    fs::rename(served.at("site"), served.at("old")).expect("renamed");
    fs::create_dir(served.at("site")).expect("made");
    told(&served.at("site"), 1);
    served.end();
}
