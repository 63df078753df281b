//! `pollux-acme` with an authority of its own: pebble, the test server of Let's Encrypt, with its server of names, and `pollux serve`
//! that answers challenges and shows certificates. All on loopback.
//!
//! | file | one job |
//! |---|---|
//! | `stage` | starts them |

mod stage;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use pollux_testing::{Process, Signal, wait_for, wait_until};
use pollux_tls::{Certificates, Named};

use stage::{HOSTS, Pebble, Server, acme, is_missing, is_pollux_missing, json};

/// Moments at which the program is killed.
const KILLS: u32 = 4;

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn a_site_gets_its_first_certificate_and_no_request_fails_while_it_is_renewed() {
    if is_missing() {
        return;
    }
    let server = Server::start();
    let folder = server.folder();
    // Of the numbers that requests have to repeat a fifth is refused.
    let mut pebble = Pebble::start(server.http.port(), &[("PEBBLE_WFE_NONCEREJECT", "20")]);
    let run = |words: &[&str]| {
        Process::run(acme(folder, &pebble).args(["--config", "p.toml"]).args(words))
    };

    assert_eq!(server.shown("www.example.test"), None, "there is none yet");
    let plan = run(&["--check"]);
    assert!(plan.status.success(), "{}", plan.stderr);
    let lines: Vec<&str> = plan.stdout.lines().collect();
    assert!(
        lines[0].starts_with("www.example.test, example.test: one is ordered at "),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("into certs/www.example.test.pem: there is none"), "{lines:?}");
    assert_eq!(lines.len(), 2, "one for each site");
    let refused = run(&["--once"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.stderr.contains("agrees to its terms of service, data:text/plain"),
        "{}",
        refused.stderr
    );
    assert!(!folder.join("state/account.key").exists());

    let got = run(&["--once", "--agree-terms", "--json"]);
    assert!(got.status.success(), "{}", got.stderr);
    assert!(got.stderr.contains("\nreloaded\n"), "{}", got.stderr);
    let report = json(&got.stdout);
    for (place, names) in [&HOSTS[..], &["closed.example.test"]].iter().enumerate() {
        let one = &report["certificates"][place];
        let names: serde_json::Value = (*names).into();
        assert_eq!(one["state"], "issued", "{report}");
        assert_eq!(one["names"], names, "{report}");
    }
    let file = folder.join("certs/www.example.test.pem");
    assert_eq!((mode(&file), mode(&folder.join("state/account.key"))), (0o600, 0o600));
    assert_eq!(fs::read_dir(folder.join("acme")).expect("read").count(), 1, "but for secret.txt");
    // For a moment the worker before may still accept.
    let shown = HOSTS.map(|host| wait_for("a certificate", || server.shown(host)));
    assert_eq!(shown[0], shown[1], "one certificate has both names");
    let other = wait_for("a certificate", || server.shown("closed.example.test"));
    assert_ne!(other, shown[0]);
    let key = fs::read(folder.join("state/account.key")).expect("a key");

    // What is in order costs no order.
    let again = run(&["--once", "--agree-terms", "--json"]);
    assert_eq!(json(&again.stdout)["certificates"][0]["state"], "current", "{}", again.stderr);
    assert_eq!(server.shown("www.example.test").as_ref(), Some(&shown[0]));

    let is_over = AtomicBool::new(false);
    let answers = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let (status, _) = server.https("www.example.test");
                    assert_eq!(status, 200);
                    answers.fetch_add(1, SeqCst);
                }
            });
        }
        wait_until("answers", || answers.load(SeqCst) > 10);
        let renewed = run(&["--once", "--agree-terms", "--renew"]);
        assert!(renewed.status.success(), "{}", renewed.stderr);
        let before = answers.load(SeqCst);
        wait_until("the new certificate", || {
            server.shown("www.example.test").as_ref() != Some(&shown[0])
        });
        wait_until("answers", || answers.load(SeqCst) > before + 10);
        is_over.store(true, SeqCst);
    });
    assert_eq!(fs::read(folder.join("state/account.key")).expect("a key"), key);
    // A file of somebody else stays.
    fs::write(&file, "mine").expect("written");
    let other = run(&["--once", "--agree-terms"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(other.stderr.contains("is not of pollux-acme, and stays as it is"), "{}", other.stderr);
    assert_eq!(fs::read(&file).expect("there"), b"mine");
    let accounts = pebble.count("There are now ", " accounts in memory");
    assert_eq!(accounts, 1, "one account made all orders");
}

#[test]
fn challenges_are_answered_by_http_for_everybody_and_nothing_else_is() {
    if is_pollux_missing() {
        return;
    }
    let server = Server::start();
    let folder = server.folder().join("acme");
    let path = |name: &str| format!("/.well-known/acme-challenge/{name}");
    fs::write(folder.join("to-ken_1"), "to-ken_1.hash").expect("written");
    fs::write(folder.join("long"), "x".repeat(1025)).expect("written");
    symlink("../p.toml", folder.join("out")).expect("made");
    fs::create_dir(folder.join("folder")).expect("made");
    fs::write(folder.join("folder/index.html"), "page").expect("written");
    // One site leads to https and to its first name, the other one takes nobody, and has users and maintenance.
    for host in [HOSTS[0], HOSTS[1], "closed.example.test"] {
        assert_eq!(
            server.http(host, &path("to-ken_1")),
            (200, "to-ken_1.hash".to_owned()),
            "{host}"
        );
        for other in
            ["", "none", "long", "out", "secret.txt", "folder/", "folder/index.html", "%74o-ken_1/"]
        {
            let (status, body) = server.http(host, &path(other));
            let is_refused = matches!(status, 301 | 400 | 403 | 404) && !body.contains("secret");
            assert!(is_refused, "{host} {other}: {status} {body}");
        }
        assert_eq!(server.http(host, &path("secret.txt")).0, 404, "{host}");
        assert_eq!(server.http(host, &path("folder")).0, 404, "{host}");
    }
    assert_eq!(server.http(HOSTS[0], "/x").0, 301);
    assert_eq!(server.http("other.example.test", &path("to-ken_1")).0, 421);
}

#[test]
fn a_challenge_that_is_not_found_keeps_the_certificate_and_says_what_is_expected() {
    if is_missing() {
        return;
    }
    let server = Server::start();
    let folder = server.folder();
    let pebble = Pebble::start(server.http.port(), &[("PEBBLE_WFE_NONCEREJECT", "0")]);
    let got =
        Process::run(acme(folder, &pebble).args(["--config", "p.toml", "--once", "--agree-terms"]));
    assert!(got.status.success(), "{}", got.stderr);
    let file = folder.join("certs/www.example.test.pem");
    let before = fs::read(&file).expect("a certificate");

    fs::create_dir(folder.join("elsewhere")).expect("made");
    symlink("elsewhere", folder.join("link")).expect("made");
    let words = ["--config", "p.toml", "--agree-terms", "--challenges", "link"];
    let failed =
        Process::run(acme(folder, &pebble).args(words).args(["--once", "--renew", "--json"]));
    assert_eq!(failed.status.code(), Some(1), "{}", failed.stderr);
    let expected = "example.test: the authority found another answer than the one expected: ";
    let line = failed.stderr.lines().find(|line| line.contains(expected));
    let line = line.unwrap_or_else(|| panic!("{}", failed.stderr));
    assert!(line.contains("404") && line.contains("acme_challenges"), "{line}");
    assert!(line.ends_with("; the certificate there stays"), "{line}");
    assert_eq!(json(&failed.stdout)["certificates"][0]["state"], "failed");
    assert_eq!(fs::read(&file).expect("a certificate"), before);
    assert_eq!(fs::read_dir(folder.join("elsewhere")).expect("read").count(), 0);

    // One that runs on waits, and tries at once when it is asked to.
    fs::rename(&file, folder.join("kept")).expect("moved");
    let mut running = Process::start(acme(folder, &pebble).args(words));
    let line = running.wait_for_stderr_line("found another answer");
    assert!(line.ends_with("; the next try is in 5 min"), "{line}");
    fs::remove_file(folder.join("link")).expect("removed");
    symlink("acme", folder.join("link")).expect("made");
    running.signal(Signal::HUP);
    running.wait_for_stderr_line("certs/www.example.test.pem is new, good until ");
    running.wait_for_stderr_line("reloaded");
    let second = Process::run(acme(folder, &pebble).args(words).arg("--once"));
    assert!(second.stderr.contains("another pollux-acme works with "), "{}", second.stderr);
    running.signal(Signal::TERM);
    assert!(running.wait().success());
}

#[test]
fn an_end_at_any_moment_leaves_a_certificate_with_its_own_key() {
    if is_missing() {
        return;
    }
    let server = Server::start();
    let folder = server.folder();
    let pebble = Pebble::start(server.http.port(), &[("PEBBLE_WFE_NONCEREJECT", "0")]);
    let command = || {
        let mut command = acme(folder, &pebble);
        command.args(["--config", "p.toml", "--once", "--agree-terms", "--renew"]);
        command
    };
    let begun = std::time::Instant::now();
    let got = Process::run(&mut command());
    assert!(got.status.success(), "{}", got.stderr);
    let whole = begun.elapsed();
    let read =
        || Certificates::read(&Named { folder: Some(folder.join("certs")), ..Named::default() });
    for kill in 0..KILLS {
        let mut running = Process::start(&mut command());
        // Some of them end before.
        thread::sleep(whole * (kill + 1) / KILLS);
        running.kill();
        let all = read().unwrap_or_else(|wrong| panic!("killed {kill}: {wrong}"));
        assert!(all.is_for("www.example.test") && all.is_for("closed.example.test"));
    }
    let got = Process::run(&mut command());
    assert!(got.status.success(), "what was left keeps nobody from the next order: {}", got.stderr);
    let hidden = fs::read_dir(folder.join("certs")).expect("read");
    let hidden = hidden.filter(|entry| {
        entry.as_ref().is_ok_and(|it| it.file_name().as_encoded_bytes()[0] == b'.')
    });
    assert_eq!(hidden.count(), 0, "what was left is written over");
}

/// The program with these words, in an empty folder with these settings: its exit code, and what it said.
fn said(settings: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("p.toml"), settings).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-acme"));
    let ended = Process::run(command.current_dir(folder.path()).args(words));
    (ended.status.code(), ended.stdout, ended.stderr)
}

#[test]
fn what_settings_lack_is_named_and_names_with_stars_are_left_alone() {
    let site = "[[site]]\nhost = [\"www.example.org\", \"*.example.org\", \"192.0.2.1\"]\n[[site.route]]\npath = \"/\"\nreply = 1\n";
    let front = "[[frontend]]\nlisten = \":443\"\ncerts = \"certs\"\n";
    let check = ["--check", "--config", "p.toml"];
    let (code, plan, remarks) = said(&format!("acme_challenges = \"acme\"\n{front}{site}"), &check);
    assert_eq!(code, Some(0), "{remarks}");
    assert!(
        plan.starts_with("www.example.org: one is ordered at https://acme-staging-v02."),
        "{plan}"
    );
    assert!(remarks.contains("*.example.org is left alone: "), "{remarks}");
    for (settings, words, expected) in [
        (format!("{front}{site}"), &check[..], "p.toml has no acme_challenges; expected "),
        (
            format!("acme_challenges = \"acme\"\n{site}"),
            &check,
            "no front end with the sites has certs; expected ",
        ),
        ("reply = 1\n".to_owned(), &check, "p.toml has no sites; expected [[site]], or --name"),
        (
            "acme_challenges = \"x\"\n[[server]]\naddress = \"192.0.2.1:1\"\n".to_owned(),
            &check,
            "p.toml:1:1: acme_challenges: applies only to sites; expected [[site]]",
        ),
        (String::new(), &[], "which certificates? expected --config FILE, or --name"),
        (
            String::new(),
            &["--check", "--name", "*.a.b", "--certs", "c", "--challenges", "d"],
            "--name *.a.b: authorities want a change of DNS",
        ),
        (String::new(), &["--json", "--config", "p.toml"], "--json belongs to --once or --check"),
    ] {
        let (code, _, wrong) = said(&settings, words);
        assert_eq!(code, Some(2), "{wrong}");
        assert!(wrong.contains(expected), "{wrong}");
    }
    // An authority that is not there.
    let words = [
        "--name",
        "a.b",
        "--certs",
        "c",
        "--challenges",
        "d",
        "--state",
        "s",
        "--once",
        "--agree-terms",
    ];
    let directory = ["--directory", "https://127.0.0.1:1/dir"];
    let (code, _, wrong) = said("", &[&words[..], &directory].concat());
    assert_eq!(code, Some(1), "{wrong}");
    assert!(
        wrong.contains("the authority at 127.0.0.1:1 can't be asked: Connection refused"),
        "{wrong}"
    );
}
