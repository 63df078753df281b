//! How runs end: exit codes, signals, findings that cannot be missed, the reason of a failure in words and at once; and
//! wrong input, which ends with 2 and the words that would be right.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use pollux_testing::{Output, Process, Signal, has, skip};

use crate::{Nginx, Said, Server, interrupt_until_it_ends, load, started};

/// An address without a listener: no test is given this port, nor may one take it.
pub(crate) const CLOSED: &str = "http://127.0.0.1:1/";

#[test]
fn a_server_that_is_not_there_ends_the_run_after_a_second() {
    // One that ran to its end would be killed before.
    let said = load(&["-d", "1h", "-c", "4", CLOSED]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("Connection refused"), "{said:?}");
}

#[test]
fn a_rate_that_was_missed_is_an_exit_code_and_is_said_beside_json() {
    let server = Server::start();
    // One connection for a request at a time can't reach that on any machine.
    let flags = ["--rate", "2000000", "-c", "1", "-d", "300ms", "--warm-up", "0s"];
    let said = load(&[&flags[..], &["--json", "-", "--quiet", &server.url]].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("!!") && said.stderr.contains("2,000,000"), "{said:?}");
    let json = said.json();
    let kinds = json["findings"].as_array().expect("findings").iter();
    assert!(kinds.clone().any(|finding| finding["kind"] == "rate-missed"), "{said:?}");
}

#[test]
fn a_host_that_cannot_be_looked_up_is_not_a_wrong_flag() {
    let said = load(&["-n", "1", "http://pollux.invalid/"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("\"pollux.invalid\" can't be looked up"), "{said:?}");
}

#[test]
fn a_server_that_dies_in_the_middle_is_an_exit_code() {
    std::thread::scope(|scope| {
        for pace in [["--think", "5ms"], ["--rate", "200"]] {
            scope.spawn(move || {
                let server = Server::start();
                let flags = ["-d", "3s", "--warm-up", "0s", "-c", "2", "--json", "-"];
                let load = started(&[&flags[..], &pace, &[&*server.url]].concat());
                server.answers(10);
                drop(server);
                let Output { status, stderr: said, .. } = load.ended();
                assert_eq!(status.code(), Some(3), "{said}");
                assert!(said.contains("!! nothing was answered for "), "{said}");
                assert!(said.contains("Connection refused"), "{said}");
                // More connections would not bring it back.
                assert!(!said.contains("beyond the server"), "{said}");
            });
        }
    });
}

#[test]
fn answers_that_are_not_as_expected_are_an_exit_code() {
    let server = Server::start();
    for (expectation, kind) in [("--expect-status=201", "status"), ("--expect-bytes=5", "mismatch")]
    {
        let said = load(&["-n", "200", "-c", "2", expectation, "--json", "-", "-q", &server.url]);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert_eq!(said.json()["errors"][kind], 200, "{expectation}");
    }
    let right = ["--expect-status=200", "--expect-bytes=128"];
    let said = load(&[&["-n", "200", "-c", "2"], &right[..], &[&*server.url]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn the_first_interrupt_ends_the_run_and_shows_its_result() {
    let ends = |(signal, code)| {
        let server = Server::start();
        let flags = ["-d", "1h", "--warm-up", "0s", "-c", "2", "--think", "5ms", "--json", "-"];
        let load = started(&[&flags[..], &[&server.url]].concat());
        server.answers(10);
        load.signal(signal);
        let said = Said::of(load.ended());
        assert_eq!(said.code, Some(code), "{said:?}");
        let json = said.json();
        assert!(json["measured_s"].as_f64() > Some(0.0), "{json}");
        assert!(json["totals"]["answered"].as_u64().expect("a count") > 0);
    };
    std::thread::scope(|scope| {
        for one in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            scope.spawn(move || ends(one));
        }
    });
}

#[test]
fn the_second_interrupt_ends_at_once() {
    // It never answers, so that the gentle end takes a while.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("bound"));
    let mut load = started(&["-d", "60s", "--warm-up", "0s", "-c", "2", &url]);
    load.wait_for_stderr_line("");
    interrupt_until_it_ends(&mut load);
    let said = Said::of(load.ended());
    assert_eq!((said.code, &*said.stdout), (Some(130), ""), "{said:?}");
    assert!(said.stderr.contains("at once"), "{said:?}");
}

#[test]
fn a_server_that_is_not_there_is_reported_at_once_and_not_after_the_warm_up() {
    let said = load(&["-d", "60s", "--warm-up", "60s", "-c", "4", CLOSED]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("Connection refused"), "{said:?}");
    assert!(!said.stderr.contains("/s  p50"), "a second went by: {said:?}");
}

#[test]
fn a_server_without_tls_is_named_as_that() {
    let server = Server::start();
    let url = server.url.replace("http:", "https:");
    let said = load(&["-d", "60s", "--warm-up", "60s", "-c", "4", "--insecure", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("does not speak TLS (is it http://?)"), "{said:?}");
}

#[test]
fn a_server_that_speaks_tls_is_named_as_that_whatever_it_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let cert = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let cert = cert.self_signed(&key).expect("signed");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("cert"), cert.pem()).expect("written");
    std::fs::write(at("key"), key.serialize_pem()).expect("written");
    let run = ["-d", "60s", "--warm-up", "60s", "-c", "4"];
    let is_named = |flags: &[&str]| {
        let said = load(&[&run[..], flags].concat());
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains(" speaks TLS; use https://"), "{said:?}");
    };
    let tls =
        ["--reply", "1", "--listen", "127.0.0.1:0", "--cert", &at("cert"), "--key", &at("key")];
    let server = Server::start_with(&tls);
    is_named(&[&server.url.replace("https:", "http:")]);
    is_named(&["--json", "-", &server.url.replace("https:", "http:")]);
    // As OpenSSL does, and Go.
    for answer in [
        &b"\x15\x03\x01\x00\x02\x02\x46"[..],
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let asked = std::io::Read::read(&mut client, &mut [0; 512]);
                let _ = asked.and_then(|_| std::io::Write::write_all(&mut client, answer));
            }
        });
        is_named(&[&url]);
    }
    if has("nginx") {
        let words = format!(
            "listen unix:{} ssl; ssl_certificate {}; ssl_certificate_key {};",
            at("tls"),
            at("cert"),
            at("key")
        );
        let _nginx = Nginx::start_with(folder.path(), &words);
        is_named(&["--unix", &at("tls"), "http://localhost/"]);
    }
}

/// The first process of an initramfs, or what `unshare -p` starts on a terminal, has a process group without a number.
#[test]
fn a_process_group_outside_of_the_pid_namespace_is_none_and_no_failure() {
    if !has("script") || !has("unshare") {
        return;
    }
    // Without rights in a user namespace of its own.
    let is_allowed = |how: &&str| {
        let mut unshare = Command::new("unshare");
        Process::run(unshare.args([how, "--mount-proc", "true"])).status.success()
    };
    let Some(how) = ["-pf", "-Urpf"].iter().find(|how| is_allowed(how)) else {
        return skip("no PID namespace may be made here");
    };
    let load = env!("CARGO_BIN_EXE_pollux");
    let line = format!("unshare {how} --mount-proc {load} load -n 1 -c 1 {CLOSED}");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let said = Said::of(Process::run(&mut script));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("Connection refused"), "{said:?}");
}

#[test]
fn a_source_that_is_not_ours_is_not_called_a_port_that_is_missing() {
    let said = load(&["-n", "1", "--source", "192.0.2.1", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("192.0.2.1 is not an address of this machine"), "{said:?}");
}

#[test]
fn an_interrupt_in_the_warm_up_is_called_that() {
    let server = Server::start();
    let run = ["-d", "60s", "--warm-up", "60s", "-c", "2", "--think", "5ms", &server.url];
    let load = started(&run);
    server.answers(10);
    load.signal(Signal::INT);
    let Output { status, stdout: said, .. } = load.ended();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("ended in its warm-up"), "{said}");
    assert!(!said.contains("longer time"), "{said}");
}

#[test]
fn an_objective_judges_every_run() {
    let server = Server::start();
    let run = ["-n", "200", "-c", "2", "-q"];
    let missed = load(&[&run[..], &["--slo", "p50=1us", &server.url]].concat());
    assert_eq!(missed.code, Some(3), "{missed:?}");
    assert!(missed.stdout.contains("p50 at most 1.00 µs"), "{missed:?}");
    for (objective, code, is_held) in [("p50=1us", Some(3), false), ("p99=9s", Some(0), true)] {
        let said = load(&[&run[..], &["--slo", objective, "--json", "-", &server.url]].concat());
        let json = said.json();
        assert_eq!(
            (said.code, &json["objectives"][0]["is_held"]),
            (code, &is_held.into()),
            "{said:?}"
        );
    }
    let html = load(&[&run[..], &["--slo", "p99=9s", "--html", "-", &server.url]].concat());
    assert!(html.stdout.contains("p99 at most 9.00 s"), "{html:?}");
}

#[test]
fn every_figure_has_a_threshold() {
    let server = Server::start();
    let run = ["-n", "200", "-c", "2", "-q", "--json", "-"];
    let held = "p99=9s,mean=9s,max=9s,first-byte-p99=9s,connect-max=9s,errors=0.1%,redirects=0,\
                unanswered=0,5xx=0,4xx=1%,rate=1";
    let said = load(&[&run[..], &["--slo", held, "--slo", "p99.9=9s", &server.url]].concat());
    let json = said.json();
    let objectives = json["objectives"].as_array().expect("a list");
    assert_eq!((said.code, objectives.len()), (Some(0), 12), "{said:?}");
    assert!(objectives.iter().all(|one| one["is_held"] == true), "{said:?}");
    for missed in ["mean=1us", "first-byte-p50=1us", "rate=1000000000", "2xx=0", "2xx=99%"] {
        let said = load(&[&run[..], &["--slo", "p99=9s", "--slo", missed, &server.url]].concat());
        let json = said.json();
        assert_eq!(said.code, Some(3), "{said:?}");
        assert_eq!(json["objectives"][0]["is_held"], true, "{said:?}");
        assert_eq!(json["objectives"][1]["is_held"], false, "{said:?}");
        assert!(said.stderr.contains("was missed"), "{said:?}");
    }
}

#[test]
fn errors_are_judged_by_the_threshold_that_is_given() {
    let server = Server::start();
    let run = ["-n", "200", "-c", "2", "-q", "--json", "-", "--expect-status", "201"];
    for (slo, code) in [("errors=100%", Some(0)), ("errors=199", Some(3)), ("p99=9s", Some(3))] {
        let said = load(&[&run[..], &["--slo", slo, &server.url]].concat());
        assert_eq!((said.code, &said.json()["errors"]["status"]), (code, &200.into()), "{said:?}");
    }
}

#[test]
fn chosen_percentiles_are_shown_and_written() {
    let server = Server::start();
    let run = ["-n", "300", "-c", "2", "-q", "--percentiles", "97,42"];
    let table = load(&[&run[..], &[&*server.url]].concat());
    let head = table.stdout.lines().find(|line| line.contains("p42")).expect("the chosen ones");
    assert!(head.find("p42") < head.find("p97") && !head.contains("p50"), "{table:?}");
    let json = load(&[&run[..], &["--json", "-", &server.url]].concat()).json();
    let quantiles = json["latency"]["quantiles"].as_array().expect("a list");
    let has = |quantile: f64| quantiles.iter().any(|one| one["quantile"] == quantile);
    assert!([0.42, 0.5, 0.97, 0.99].into_iter().all(has), "{quantiles:?}");
}

#[test]
fn redirects_are_neither_right_nor_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("sub")).expect("made");
    std::fs::write(folder.path().join("sub/index.html"), "hello").expect("written");
    let root = folder.path().to_str().expect("a plain name");
    let server = Server::start_with(&["--listen", "127.0.0.1:0", root]);
    let moved = format!("{}sub", server.url);
    let run = ["-n", "200", "-c", "2", "-q"];
    let said = load(&[&run[..], &["--json", "-", &moved]].concat());
    let json = said.json();
    assert_eq!((said.code, &json["totals"]["redirected"]), (Some(0), &200.into()), "{said:?}");
    assert_eq!((&json["totals"]["right"], &json["errors"]["status"]), (&0.into(), &0.into()));
    assert!(said.stderr.contains("redirects, which are not followed"), "{said:?}");
    let table = load(&[&run[..], &[&*moved]].concat());
    assert!(table.stdout.contains("0 % right, 100 % redirected"), "{table:?}");
    let named = load(&[&run[..], &["--expect-status", "301", "--json", "-", &moved]].concat());
    assert_eq!(named.json()["totals"]["right"], 200, "{named:?}");
    let gated = load(&[&run[..], &["--slo", "redirects=0", &moved]].concat());
    assert_eq!(gated.code, Some(3), "{gated:?}");
}

fn refused(flags: &[&str]) -> Said {
    let said = load(flags);
    assert_eq!(said.code, Some(2), "{flags:?}: {said:?}");
    assert_eq!(said.stdout, "", "{flags:?}");
    said
}

#[test]
fn the_cpus_that_there_are_have_one_name_for_load_and_serve() {
    let load = refused(&["--cpus", "0-1023", "http://127.0.0.1:1/"]).stderr;
    let serve = Command::new(env!("CARGO_BIN_EXE_pollux"))
        .args(["serve", "--check", "--reply", "1", "--pin", "0-1023"])
        .output()
        .expect("pollux starts");
    let why = |said: &str| said.trim().split_once(": CPU ").map(|(_, why)| why.to_owned());
    let load = why(&load);
    let serve = why(&String::from_utf8_lossy(&serve.stderr));
    assert!(load.is_some() && load == serve, "{load:?} and {serve:?}");
}

#[test]
fn a_few_answers_in_a_moment_have_not_a_rate_and_a_number_may_be_of_thousands() {
    let server = Server::start();
    let said = load(&["-n", "1", "-c", "1", "-q", &server.url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("1 answer in ") && said.stdout.contains("too few for a rate"));
    assert!(!said.stdout.contains("answers per second") && !said.stdout.contains("1 answers"));
    let many = load(&["-n", "1k", "-c", "4", "-q", "--json", "-", &server.url]);
    assert_eq!(many.json()["totals"]["right"], 1_000, "{many:?}");
    // In words with the connect where each request has its own.
    let each = load(&["-n", "1k", "-c", "4", "-q", "--no-keepalive", &server.url]);
    assert!(each.stdout.contains(" with their connect, "), "{each:?}");
    assert!(each.stdout.contains("1,000 opened during"), "{each:?}");
}

#[test]
fn help_has_examples_and_exit_codes() {
    let said = load(&["--help"]);
    assert_eq!(said.code, Some(0));
    for words in ["Examples:", "--find-capacity --slo", "Exit codes:", "130", "[default: 64]"] {
        assert!(said.stdout.contains(words), "no {words}");
    }
    // Turns have the flags that make sense in them.
    let said = load(&["turns", "--help"]);
    for words in [
        "Usage: pollux load turns [OPTIONS] <BEFORE_URL> <AFTER_URL>",
        "URL of the server before, then of the server after",
        "--before-pid",
        "[default: 30s]",
    ] {
        assert!(said.stdout.contains(words), "no {words} in {}", said.stdout);
    }
    for flag in ["--server-pid", "--rate", "--warm-up", "--html", "--as "] {
        assert!(!said.stdout.contains(flag), "{flag} in {}", said.stdout);
    }
    // Without anything: the short help, as an error.
    let said = load(&[]);
    assert!(said.code == Some(2) && said.stderr.contains("--connections"), "{said:?}");
}
