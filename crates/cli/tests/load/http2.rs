//! `pollux load --http 2` against `pollux serve`: counts, ends of servers, TLS, bodies, and what is refused.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use pollux_testing::{Output, Process, Signal, addresses};
use serde_json::Value;

use crate::{Server, load, load_well, started};

/// What the result has of HTTP/2.
fn http2(json: &Value) -> &Value {
    assert_eq!(json["setting"]["spoken"], "2", "{json}");
    &json["http2"]
}

#[test]
fn counts_are_the_servers_own() {
    let server = Server::start();
    for (connections, streams, poller) in [
        ("1", "1", "epoll-et"),
        ("4", "16", "epoll-et"),
        ("4", "150", "poll"),
        ("4", "16", "uring"),
    ] {
        let before = server.requests();
        let flags = ["-n", "20000", "-c", connections, "--streams", streams, "--poller", poller];
        let flags = [&flags[..], &["--http", "2", "--json", "-", "--quiet", &server.url]].concat();
        let said = load(&flags);
        if poller == "uring" && said.stderr.contains("io_uring") {
            continue;
        }
        assert_eq!(said.code, Some(0), "{said:?}");
        let json = said.json();
        let totals = &json["totals"];
        for count in ["due", "sent", "answered", "right"] {
            assert_eq!(totals[count], 20_000, "{count} of {totals}");
        }
        assert_eq!(server.requests() - before, 20_000);
        assert_eq!(totals["body_bytes_in"], 20_000 * 128);
        let allowed = &http2(&json)["streams_allowed"];
        let expected = if streams == "150" { Value::from(100) } else { Value::Null };
        assert_eq!(*allowed, expected);
        // A byte for each field, whatever the date is.
        let each = |name: &str| http2(&json)[name].as_f64().expect("a count") / 20_000.0;
        assert!(each("header_bytes_out") < 6.0 && each("header_bytes_in") < 12.0, "{json}");
        assert!(each("header_text_bytes_out") > 40.0 && each("header_text_bytes_in") > 60.0);
        let frames = |way: &str, kind: &str| http2(&json)[way][kind].as_u64().expect("a count");
        assert_eq!(frames("frames_in", "headers"), 20_000);
        assert!(frames("frames_out", "headers") >= 20_000, "those that were refused again");
        assert!(http2(&json)["streams_under_way"].as_f64() > Some(0.0), "{json}");
    }
}

/// A server at a socket that outlives it, as one that a service manager opens.
fn serve_at(listener: &TcpListener) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0"]);
    command.arg(env!("CARGO_BIN_EXE_pollux"));
    command.args(["serve", "--reply", "128", "--threads", "2", "--poller", "epoll-et"]);
    let socket = OwnedFd::from(listener.try_clone().expect("ours"));
    let mut process = Process::start(command.stdin(Stdio::from(socket)));
    process.wait_for_stderr_line("http://");
    process
}

/// Each server is stopped while it is asked, when the next one listens; and in between reads its settings anew.
#[test]
fn no_request_fails_while_servers_come_and_go() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let mut server = serve_at(&listener);
    let folder = tempfile::tempdir().expect("a folder");
    // Not to a pipe, which nobody reads before the end.
    let result = folder.path().join("result.json").display().to_string();
    let flags = ["-n", "200000", "-c", "8", "--streams", "8", "--http", "2", "-q", "--json"];
    let mut run = started(&[&flags[..], &[&result, &url]].concat());
    let mut stopped = 0;
    while run.status().is_none() {
        let next = serve_at(&listener);
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        stopped += 1;
        server = next;
    }
    let Output { status, stderr, .. } = run.ended();
    assert!(status.success(), "{stderr}");
    let json = std::fs::read_to_string(&result).expect("written");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let totals = &json["totals"];
    assert_eq!((&totals["sent"], &totals["right"]), (&200_000.into(), &200_000.into()), "{json}");
    assert!(stopped > 2, "{stopped}");
    assert!(http2(&json)["goaways"]["no_error"].as_u64() >= Some(8), "{json}");
}

/// A server reads its settings anew while it is asked, and of a proxy the next worker takes over each time.
#[test]
fn no_request_fails_while_settings_are_read_anew() {
    let behind = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("settings.toml");
    let backend = behind.url.trim_start_matches("http://").trim_end_matches('/');
    let proxied = format!("[[server]]\naddress = \"{backend}\"\n");
    let by_http2 = format!("protocol = \"h2c\"\n{proxied}");
    let cases = [
        ("serve", "reply = 128\n", "200000"),
        ("proxy", &proxied, "80000"),
        ("proxy", &by_http2, "80000"),
    ];
    for (command, own, requests) in cases {
        let limits = "log_level = \"info\"\nhttp2_requests = 1000000";
        let settings = format!("listen = \"127.0.0.1:0\"\n{limits}\n{own}");
        std::fs::write(&path, &settings).expect("written");
        let mut served = Command::new(env!("CARGO_BIN_EXE_pollux"));
        let mut served = Process::start(served.args([command, "--config"]).arg(&path));
        let address = addresses(&served.wait_for_stderr_line("http://"))[0];
        // Not to a pipe, which nobody reads before the end.
        let result = folder.path().join("result.json").display().to_string();
        let flags = ["-n", requests, "-c", "8", "--streams", "8", "--http", "2", "-q", "--json"];
        let mut run = started(&[&flags[..], &[&result, &format!("http://{address}/")]].concat());
        let mut reloads = 0;
        while run.status().is_none() {
            if command == "proxy" {
                // A backend that changes takes another worker.
                let weight = 1 + reloads % 2;
                std::fs::write(&path, format!("{settings}weight = {weight}\n")).expect("written");
            }
            served.signal(Signal::HUP);
            served.wait_for_stderr_line("reloaded");
            reloads += 1;
        }
        let Output { status, stderr, .. } = run.ended();
        assert!(status.success(), "{command}: {stderr}");
        let json = std::fs::read_to_string(&result).expect("written");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let totals = &json["totals"];
        let requests = Value::from(requests.parse::<u64>().expect("a number"));
        assert_eq!((&totals["sent"], &totals["right"]), (&requests, &requests), "{json}");
        assert!(reloads > 1, "{command}: {reloads}");
        // The connections of a worker that has been replaced are opened anew.
        let connects = totals["connects"].as_u64().expect("a count");
        assert_eq!(connects > 8, command == "proxy", "{command}: {connects}");
        served.signal(Signal::TERM);
        assert!(served.wait().success());
    }
}

#[test]
fn an_open_loop_keeps_its_rate_over_streams() {
    let server = Server::start();
    let flags = ["--rate", "2000", "-d", "1s", "-c", "2", "--streams", "8", "--http", "2"];
    let json = load(&[&flags[..], &["--json", "-", "-q", &server.url]].concat()).json();
    // What a machine that is busy did not get to is counted as that.
    let totals = &json["totals"];
    assert_eq!(totals["due"], 2_000, "{json}");
    assert_eq!(totals["right"], totals["sent"], "{json}");
    let sum = totals["sent"].as_u64().zip(json["errors"]["unsent"].as_u64());
    assert_eq!(sum.map(|(sent, unsent)| sent + unsent), Some(2_000), "{json}");
    assert!(totals["right"].as_u64() > Some(0), "{json}");
    assert_eq!(json["setting"]["streams"], 8);
}

#[test]
fn long_bodies_go_both_ways_on_several_streams() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("body");
    std::fs::write(&file, vec![b'x'; 4 << 20]).expect("written");
    let body = format!("@{}", file.display());
    let server = Server::start_with(&["--echo", "--max-body", "1GiB", "--listen", "127.0.0.1:0"]);
    let flags = ["-n", "40", "-c", "2", "--streams", "10", "--http", "2", "--body", &body, "-q"];
    let json = load_well(&[&flags[..], &["--json", "-", &server.url]].concat()).json();
    assert_eq!((&json["totals"]["right"], &json["errors"]["timeout"]), (&40.into(), &0.into()));
    assert_eq!(json["totals"]["body_bytes_in"], 40 << 22);
    assert!(http2(&json)["window_stalls"].as_u64() > Some(0), "{json}");
}

#[test]
fn what_is_asked_for_and_what_a_server_speaks_have_to_fit() {
    let server = Server::start_with(&["--reply", "5", "--no-http2", "--listen", "127.0.0.1:0"]);
    let said = load(&["-n", "10", "-c", "2", "--http", "2", "-q", &server.url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("answers HTTP/2 by HTTP/1; use --http 1.1"), "{said:?}");
    // In clear text auto is HTTP/1.1.
    let json =
        load_well(&["-n", "10", "-c", "2", "--http", "auto", "--json", "-", &server.url]).json();
    assert_eq!((&json["setting"]["spoken"], &json["http2"]), (&"1.1".into(), &Value::Null));
    // Header lines are looked at with the protocol.
    let said = load(&["--http", "2", "-H", "Upgrade: h2c", "-n", "1", &server.url]);
    assert!(said.code == Some(2) && said.stderr.contains("Upgrade"), "{said:?}");
}

#[test]
fn in_tls_the_server_chooses_and_has_to_offer_what_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    std::fs::write(at("c"), made.cert.pem()).expect("written");
    std::fs::write(at("k"), made.signing_key.serialize_pem()).expect("written");
    let cert = at("c");
    let key = at("k");
    let flags = ["--reply", "5", "--cert", &cert, "--key", &key, "--listen", "127.0.0.1:0"];
    let both = Server::start_with(&flags);
    let one = Server::start_with(&[&flags[..], &["--no-http2"]].concat());
    let run = |server: &Server, http: &str| {
        let flags = ["-n", "200", "-c", "3", "--insecure", "--http", http, "--json", "-", "-q"];
        load(&[&flags[..], &[&server.url]].concat())
    };
    for (server, http, spoken) in
        [(&both, "1.1", "1.1"), (&both, "2", "2"), (&both, "auto", "2"), (&one, "auto", "1.1")]
    {
        let said = run(server, http);
        assert_eq!(said.code, Some(0), "{said:?}");
        let json = said.json();
        assert_eq!(
            (&json["setting"]["spoken"], &json["totals"]["right"]),
            (&spoken.into(), &200.into())
        );
    }
    let said = run(&one, "2");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("the server does not offer HTTP/2 (ALPN h2)"), "{said:?}");
}

#[test]
fn results_of_different_protocols_are_not_compared() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let one = at("1.json");
    let two = at("2.json");
    load_well(&["-n", "200", "-c", "2", "-q", "--json", &one, &server.url]);
    load_well(&["-n", "200", "-c", "2", "-q", "--http", "2", "--json", &two, &server.url]);
    let said = load(&["compare", &one, &two]);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("the HTTP that was spoken was \"1.1\" and is \"2\""), "{said:?}");
    let three = at("3.json");
    let windows = ["--http", "2", "--window", "64KiB", "--json", &three, &server.url];
    load_well(&[&["-n", "200", "-c", "2", "-q"][..], &windows].concat());
    let said = load(&["compare", &two, &three]);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("windows was \"1GiB of a stream"), "{said:?}");
}
