//! A server in its sandbox does what one without does, on every mechanism, and says what it has given up.
//! That no call leads out of it is checked in `crates/server/tests/sandbox.rs`. Started by root, it gives up the rights
//! of root too: what its threads have left, and what a process that keeps them does for it.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use pollux_engine::Driver;
use pollux_poller::Facility;
use pollux_testing::{Pid, Signal, children, wait_for};
use rustix::process::geteuid;

use crate::child::{ClosedLoop, Server, alone, raise_descriptor_limit};
use crate::daemon::{Served, write_settings};
use crate::encrypted::{Files, is_shown};

/// More than the tables and contexts of any mechanism hold when they are opened.
const MANY: usize = 1_300;

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
    for driver in Driver::ALL {
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
        let is_ring = driver.facility() == Facility::Ring;
        assert_eq!(said.contains("ring restricted"), is_ring, "{said}");
        let mut client = served.connect();
        assert_eq!(client.get("/a.txt").1, "a file");
        assert!(client.get("/").1.contains("a.txt"), "a listing");
        assert!(client.get("/none").0.starts_with("HTTP/1.1 404 "));
        let log = served.at("logs/access");
        let old = served.at("logs/access.1");
        wait_for("a line of the log", || (lines(&log) == 3).then_some(()));
        // As logrotate does, and an editor that puts a new file in place of the old one.
        fs::rename(&log, &old).expect("renamed");
        let conf = served.at("conf");
        fs::remove_file(conf.join("s.toml")).expect("removed");
        let changed =
            format!("{}\nresponse_field = \"add X-New: 1\"", settings(served.folder.path()));
        write_settings(&conf, &changed);
        served.signal(Signal::HUP);
        wait_for("a reload", || client.get("/a.txt").0.contains("X-New: 1").then_some(()));
        wait_for("a line of the new log", || {
            client.get("/a.txt");
            (lines(&log) > 0).then_some(())
        });
        let errors = wait_for("a line of the reload", || {
            let errors = fs::read_to_string(served.at("logs/error")).expect("written");
            errors.contains("info: reloaded").then_some(errors)
        });
        assert!(errors.contains("info: sandbox: no new privileges, landlock"), "{errors}");
        assert!(!errors.contains("error: "), "{errors}");
        let pid = served.at("run/pid");
        let control = served.at("run/control");
        assert!(pid.exists() && control.exists());
        // The folder stays until it was looked at.
        let (said, _folder) = served.end_and_keep();
        let is_start = said.starts_with("pollux serve: control: ") && said.lines().count() == 1;
        assert!(is_start, "{driver}: {said}");
        assert!(!pid.exists() && !control.exists(), "{driver}");
    }
}

#[test]
fn more_connections_than_a_mechanism_began_with_are_served_in_the_sandbox() {
    let _turn = alone();
    if raise_descriptor_limit() < 2 * MANY {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "too few descriptors");
        println!("skipped: {MANY} connections need {} descriptors", 2 * MANY);
        return;
    }
    for driver in Driver::ALL {
        let flags = ["--reply", "1", "--require-sandbox"];
        let Some(server) = Server::start(driver.name(), &flags) else { continue };
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
    // In a container this process has a filter itself.
    let own = ["NoNewPrivs:", "Seccomp:"].map(|name| status(std::process::id(), name));
    for (setting, privileges, filter) in
        [("require_sandbox", "1", "2"), ("no_sandbox", own[0].as_str(), own[1].as_str())]
    {
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
        format!(
            "dir = {:?}\nrequire_sandbox = true\nsandbox_exact = true\nerror_log = {log:?}",
            at.join("site")
        )
    };
    let Some(served) = start(settings) else { return };
    let expect_lines = |path: &Path, times: usize| {
        served.signal(Signal::HUP);
        let line = format!(
            "not reloaded, the old settings stay: the sandbox of the start does not reach {}: it lies \
             elsewhere, or was replaced; restart the server, or start it with --sandbox-path",
            path.display()
        );
        wait_for("an error", || {
            let errors = fs::read_to_string(served.at("logs/error")).expect("written");
            (errors.matches(&line).count() == times).then_some(())
        });
        assert_eq!(served.connect().get("/a.txt").1, "a file");
    };
    let run = served.at("run");
    let conf = served.at("conf");
    let now = settings(served.folder.path());
    write_settings(&conf, &now.replace("/site\"", "/run\""));
    expect_lines(&run, 1);
    // Another folder at the same place is another one.
    write_settings(&conf, &now);
    fs::rename(served.at("site"), served.at("old")).expect("renamed");
    fs::create_dir(served.at("site")).expect("made");
    expect_lines(&served.at("site"), 1);
    // Without a reload too, and what stood there is served on.
    wait_for("a line of the folder", || {
        served.connect().get("/a.txt");
        let errors = fs::read_to_string(served.at("logs/error")).expect("written");
        let line = "cannot be served: Permission denied (os error 13); let the server's user read it; where \
                    the sandbox does not reach it, restart the server, or start it with --sandbox-path";
        errors.contains(line).then_some(())
    });
    assert_eq!(served.connect().get("/a.txt").1, "a file");
    served.end();
}

#[test]
fn a_folder_of_logs_that_was_replaced_keeps_no_reload_from_what_else_is_new() {
    let settings = |at: &Path| {
        format!(
            "dir = {:?}\nrequire_sandbox = true\nerror_log = {:?}\naccess_log = {:?}",
            at.join("site"),
            at.join("run/error"),
            at.join("logs/access"),
        )
    };
    let Some(served) = start(settings) else { return };
    let conf = served.at("conf");
    let now = settings(served.folder.path());
    let errors = || fs::read_to_string(served.at("run/error")).expect("written");
    fs::rename(served.at("logs"), served.at("old")).expect("renamed");
    fs::create_dir(served.at("logs")).expect("made");
    write_settings(
        &conf,
        &format!("{now}\naccess_log_format = \"json\"\nresponse_field = \"add X-New: 1\""),
    );
    served.signal(Signal::HUP);
    wait_for("a reload", || served.connect().get("/a.txt").0.contains("X-New: 1").then_some(()));
    wait_for("a line in the file that is open, in its new form", || {
        served.connect().get("/a.txt");
        fs::read_to_string(served.at("old/access")).expect("there").contains("{\"").then_some(())
    });
    let said = wait_for("why it is written on", || {
        let said = errors();
        said.contains("the access log can't be opened again").then_some(said)
    });
    assert!(said.contains("restart the server") && !said.contains("not reloaded"), "{said}");
    // Another file is one that can't be had, and no setting would help.
    write_settings(&conf, &now.replace("logs/access", "logs/other"));
    served.signal(Signal::HUP);
    let said = wait_for("a refusal", || {
        let said = errors();
        said.contains("not reloaded").then_some(said)
    });
    let refused = said.lines().find(|line| line.contains("not reloaded")).expect("there");
    let path = served.at("logs/other").display().to_string();
    assert!(refused.contains(&path) && refused.ends_with("; restart the server"), "{refused}");
    served.end();
}

/// Makes the folder with a page that says which one it is.
fn make_site(folder: &Path, text: &str) {
    fs::create_dir_all(folder).expect("made");
    fs::write(folder.join("page"), text).expect("written");
}

#[test]
fn a_site_that_is_built_anew_or_released_by_a_link_is_served_without_a_restart() {
    for driver in ["epoll-et", "uring"] {
        let settings = |at: &Path| {
            make_site(&at.join("releases/1/public"), "first");
            symlink("releases/1", at.join("current")).expect("linked");
            format!(
                "dir = {:?}\nrequire_sandbox = true\nthreads = 2\npoller = \"{driver}\"\nerror_log = {:?}",
                at.join("current/public"),
                at.join("logs/error"),
            )
        };
        let Some(served) = start(settings) else { continue };
        // On either thread.
        let mut clients: Vec<_> = (0..8).map(|_| served.connect()).collect();
        let mut all_get = |text: &str| {
            for client in &mut clients {
                wait_for(format_args!("{text} on {driver}"), || {
                    (client.get("/page").1 == text).then_some(())
                });
            }
        };
        all_get("first");
        // A build that empties its folder: found by the first request that misses something.
        fs::remove_dir_all(served.at("releases/1/public")).expect("removed");
        for path in ["/page", "/"] {
            let head = served.connect().get(path).0;
            assert!(head.starts_with("HTTP/1.1 404 "), "{path} of a folder that is gone: {head}");
        }
        make_site(&served.at("releases/1/public"), "built");
        assert_eq!(served.connect().get("/page").1, "built");
        all_get("built");
        // A release: a link that is turned, in the middle of the path.
        make_site(&served.at("releases/2/public"), "second");
        symlink("releases/2", served.at("next")).expect("linked");
        fs::rename(served.at("next"), served.at("current")).expect("turned");
        all_get("second");
        // A folder that is put in place by a rename.
        make_site(&served.at("releases/new"), "renamed");
        fs::rename(served.at("releases/2/public"), served.at("old")).expect("renamed");
        fs::rename(served.at("releases/new"), served.at("releases/2/public")).expect("renamed");
        all_get("renamed");
        // And reloads continue.
        let now = fs::read_to_string(served.at("conf/s.toml")).expect("written");
        fs::write(served.at("conf/s.toml"), format!("response_field = \"add X-New: 1\"\n{now}"))
            .expect("written");
        served.signal(Signal::HUP);
        let mut client = served.connect();
        wait_for("a reload", || client.get("/page").0.contains("X-New: 1").then_some(()));
        let errors = fs::read_to_string(served.at("logs/error")).expect("written");
        let gone = "cannot be served: No such file or directory (os error 2); every request is answered \
                    with 404 until it can be";
        assert!(errors.contains(gone), "{errors}");
        served.end();
    }
}

#[test]
fn a_site_whose_parent_is_made_anew_is_answered_with_404_as_the_log_says() {
    for more in ["", "\nlisting = true", "\nspa = \"page\""] {
        // Not beside the settings: what these lie in is in reach.
        let sites = tempfile::tempdir().expect("a folder");
        let app = sites.path().join("app");
        let site = app.join("dist");
        make_site(&site, "first");
        let settings = |at: &Path| {
            format!(
                "dir = {site:?}\nrequire_sandbox = true\nerror_log = {:?}{more}",
                at.join("logs/error"),
            )
        };
        let Some(served) = start(settings) else { return };
        let is_said = |words: &str| {
            wait_for(format_args!("{words:?} in the error log"), || {
                let log = fs::read_to_string(served.at("logs/error")).expect("written");
                let line = log.lines().find(|line| line.contains(words)).map(str::to_owned);
                line.inspect(|line| {
                    assert!(line.contains("; every request is answered with 404 until"), "{line}");
                })
            });
        };
        let all_missing = || {
            for path in ["/page", "/", "/other/", "/index.html"] {
                let head = served.connect().get(path).0;
                assert!(head.starts_with("HTTP/1.1 404 "), "{path}{more}: {head}");
            }
        };
        assert_eq!(served.connect().get("/page").1, "first");
        fs::remove_dir_all(&app).expect("removed");
        all_missing();
        is_said("No such file or directory");
        make_site(&site, "anew");
        all_missing();
        is_said("start it with --sandbox-path and the folder that it lies in");
        served.end();
    }
}

#[test]
fn a_folder_of_the_system_does_not_come_into_reach_by_a_site_in_it_and_the_start_says_so() {
    let Some(served) = start(|_| "dir = \"/usr/share\"\nrequire_sandbox = true".to_owned()) else {
        return;
    };
    let said = "; a folder put in the place of /usr/share needs a restart, or --sandbox-path /usr at the start";
    assert!(served.sandbox.contains(said), "{}", served.sandbox);
    served.end();
    let Some(served) = start(|_| {
        "dir = \"/usr/share\"\nrequire_sandbox = true\nsandbox_path = \"/usr\"".to_owned()
    }) else {
        return;
    };
    assert!(!served.sandbox.contains("a restart"), "{}", served.sandbox);
    served.end();
}

#[test]
fn a_certificate_behind_a_folder_that_is_replaced_is_read_by_a_reload() {
    let users = if geteuid().is_root() { 2 } else { 1 };
    for user in [&[][..], &["--user", "65534", "--group", "65533"]].into_iter().take(users) {
        let files = Files::make();
        let elsewhere = tempfile::tempdir().expect("a folder");
        let at = |name: &str| files.at(name);
        for name in ["v1", "v2"] {
            files.renew();
            fs::create_dir(at(name)).expect("made");
            for file in ["cert.pem", "key.pem"] {
                fs::rename(at(file), at(name).join(file)).expect("renamed");
            }
        }
        symlink("v1", at("current")).expect("linked");
        let cert = files.text("current/cert.pem");
        let key = files.text("current/key.pem");
        let log = files.text("errors");
        fs::write(&log, "").expect("written");
        fs::set_permissions(&log, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .expect("ours");
        let turn = |target: &Path| {
            symlink(target, at("next")).expect("linked");
            fs::rename(at("next"), at("current")).expect("turned");
        };
        let shown = |server: &Server, cert: &Path| {
            server.signal(Signal::HUP);
            wait_for("the new certificate", || is_shown(server.address, cert).then_some(()));
        };
        let start = |more: &[&str]| {
            let flags = ["--cert", &cert, "--key", &key, "--reply", "1", "--error-log", &log];
            Server::start("epoll-et", &[&flags[..], user, more].concat()).expect("it starts")
        };
        let server = start(&[]);
        assert!(is_shown(server.address, &at("v1/cert.pem")));
        turn(Path::new("v2"));
        shown(&server, &at("v2/cert.pem"));
        // The folder itself.
        fs::rename(at("v2"), at("v3")).expect("renamed");
        fs::rename(at("v1"), at("v2")).expect("renamed");
        shown(&server, &at("v2/cert.pem"));
        // What lies elsewhere is refused with what helps.
        let other = elsewhere.path().canonicalize().expect("there").join("v");
        fs::create_dir(&other).expect("made");
        for file in ["cert.pem", "key.pem"] {
            fs::copy(at("v3").join(file), other.join(file)).expect("copied");
        }
        turn(&other);
        server.signal(Signal::HUP);
        let line = format!(
            "the sandbox of the start does not reach {cert}: it lies elsewhere, or was replaced; restart the \
             server, or start it with --sandbox-path"
        );
        wait_for("an error", || {
            fs::read_to_string(&log).expect("written").contains(&line).then_some(())
        });
        assert!(is_shown(server.address, &at("v2/cert.pem")));
        server.end();
        turn(Path::new("v2"));
        let server = start(&["--sandbox-path", &elsewhere.path().display().to_string()]);
        turn(&other);
        shown(&server, &at("v3/cert.pem"));
        server.end();
    }
}

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "only root becomes another user");
        println!("skipped: only root can become another user");
    }
    is_root
}

/// A line of the status of a process.
fn status(pid: impl Display, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.split_ascii_whitespace().next().expect("a word").to_owned()
}

/// The process that keeps the rights of a server.
fn privileged(server: &Server) -> Pid {
    let children = children(server.id());
    let [keeper] = children[..] else { panic!("expected one child: {children:?}") };
    keeper
}

#[test]
fn a_key_that_only_root_may_read_is_read_again_and_files_in_its_folders_go_at_the_end() {
    if !is_root() {
        return;
    }
    let files = Files::make();
    let run = tempfile::tempdir().expect("a folder");
    let pid_file = run.path().join("pid");
    let control = run.path().join("control");
    let start = |more: &[&str]| {
        let pid_file = pid_file.display().to_string();
        let control = format!("unix:{}", control.display());
        let flags = ["--reply", "1", "--user", "65534", "--group", "65533"];
        let flags = [&flags[..], &["--pid-file", &pid_file, "--control", &control], more];
        files.serve("epoll-et", &flags.concat()).expect("it starts")
    };
    let is_left = || pid_file.exists() || control.exists();
    for sandbox in [&[][..], &["--no-sandbox"]] {
        let server = start(sandbox);
        assert_eq!(status(server.id(), "Uid:"), "65534");
        assert!(is_shown(server.address, &files.at("cert.pem")));
        fs::copy(files.at("cert.pem"), files.at("old.pem")).expect("copied");
        files.renew();
        server.signal(Signal::HUP);
        wait_for("the new certificate", || {
            is_shown(server.address, &files.at("cert.pem")).then_some(())
        });
        assert!(!is_shown(server.address, &files.at("old.pem")));
        let keeper = privileged(&server);
        assert_eq!(status(keeper.as_raw_pid(), "Uid:"), "0");
        for (name, inside) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
            // Without a sandbox of its own what this process has: in a container a filter.
            let outside = status(std::process::id(), name);
            let expected = if sandbox.is_empty() { inside } else { &outside };
            assert_eq!(status(keeper.as_raw_pid(), name), expected);
        }
        assert!(is_left());
        server.end();
        assert!(!is_left(), "they go before the server has ended");
    }
    // However it ends, and a signal for all processes of a service is for the server.
    let server = start(&[]);
    let keeper = privileged(&server);
    rustix::process::kill_process(keeper, Signal::TERM).expect("it runs");
    assert!(is_left());
    server.signal(Signal::KILL);
    wait_for("the end of what is left", || (!is_left()).then_some(()));
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
    fs::remove_file(files.at("key.pem")).expect("removed");
    server.signal(Signal::HUP);
    let refusal = "not reloaded, the old settings stay: the certificate: ";
    let said = wait_for("an error", || {
        let said = fs::read_to_string(&log).unwrap_or_default();
        said.contains(refusal).then_some(said)
    });
    assert!(said.contains("key.pem: No such file or directory"), "{said}");
    assert!(is_shown(server.address, &files.at("cert.pem")));
}

#[test]
fn a_reload_with_a_user_is_done_where_the_system_has_its_users_in_new_files() {
    if !is_root() {
        return;
    }
    // In a mount namespace of its own, with users of our own.
    let script = "mount --bind \"$1\" /etc && exec \"$0\" serve --config \"$2\"";
    let folder = tempfile::tempdir().expect("a folder");
    let etc = folder.path().join("etc");
    fs::create_dir(&etc).expect("made");
    let put = |name: &str, text: &str| {
        fs::write(etc.join("new"), text).expect("written");
        fs::rename(etc.join("new"), etc.join(name)).expect("renamed");
    };
    put("passwd", "root:x:0:0::/:/bin/sh\nwww:x:65534:65533::/:/bin/false\n");
    put("group", "root:x:0:\nwww:x:65533:\n");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).expect("ours");
    write_settings(folder.path(), "reply = 5\nuser = \"www\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_pollux")]).arg(&etc);
    command.arg(folder.path().join("s.toml"));
    let served = match Served::spawn_or(folder, command) {
        Ok(served) => served,
        Err(said) => return pollux_testing::skip(said),
    };
    assert_eq!(served.connect().get("/").1, "pollu");
    // As useradd does.
    let etc = served.at("etc");
    for (name, text) in [
        ("passwd", "www:x:65534:65533::/:/bin/false\nnew:x:7:7::/:/bin/false\n"),
        ("group", "www:x:65533:\nnew:x:7:\n"),
    ] {
        fs::write(etc.join("new"), text).expect("written");
        fs::rename(etc.join("new"), etc.join(name)).expect("renamed");
    }
    served.write("reply = 7\nuser = \"www\"");
    served.signal(Signal::HUP);
    wait_for("a reload", || (served.connect().get("/").1 == "pollux ").then_some(()));
    served.end();
}

#[test]
fn rights_are_given_up_by_every_thread_before_the_first_connection() {
    if !is_root() {
        return;
    }
    let user = "user = \"65534\"\ngroup = \"65533\"\nthreads = 2";
    let served = Served::start(&format!("reply = 5\n{user}"));
    assert_eq!(served.connect().get("/").1, "pollu");
    let tasks = fs::read_dir(format!("/proc/{}/task", served.process.id())).expect("it runs");
    let mut threads = 0;
    for task in tasks {
        let status = fs::read_to_string(task.expect("it runs").path().join("status"));
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
    fs::set_permissions(&path, closed).expect("ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["serve", "--config"]).arg(path);
    let said = Served::spawn_or(folder, command).expect("it starts").end();
    assert!(said.contains("s.toml can't be read by the user "), "{said}");
    assert!(said.contains("a reload will fail"), "{said}");
    // A file that only root may read is no longer there for it.
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).expect("ours");
    fs::write(folder.path().join("secret"), "s").expect("written");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(folder.path().join("secret"), closed).expect("ours");
    let served = Served::start(&format!("dir = {:?}\n{user}", folder.path()));
    assert!(served.connect().get("/secret").0.starts_with("HTTP/1.1 403 "));
    served.end();
}
