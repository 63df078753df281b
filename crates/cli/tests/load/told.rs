//! What a run that failed says: the reason in words, at once, and what to do.

use std::io::BufReader;

use rustix::process::{Pid, Signal, kill_process};

use crate::endings::nobody;
use crate::nginx::{Nginx, has_nginx};
use crate::run::{Server, load, read_until, started, text_of};

#[test]
fn a_server_that_is_not_there_is_reported_at_once_and_not_after_the_warm_up() {
    let said = load(&["-d", "60s", "--warm-up", "60s", "-c", "4", &nobody()]);
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
    let told = |flags: &[&str]| {
        let said = load(&[&run[..], flags].concat());
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains(" speaks TLS; use https://"), "{said:?}");
    };
    let tls =
        ["--reply", "1", "--listen", "127.0.0.1:0", "--cert", &at("cert"), "--key", &at("key")];
    let server = Server::start_with(&tls);
    told(&[&server.url.replace("https:", "http:")]);
    told(&["--json", "-", &server.url.replace("https:", "http:")]);
    // As OpenSSL does, and Go.
    for answer in [
        &b"\x15\x03\x01\x00\x02\x02\x46"[..],
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let asked = std::io::Read::read(&mut client, &mut [0; 512]);
                let _ = asked.and_then(|_| std::io::Write::write_all(&mut client, answer));
            }
        });
        told(&[&url]);
    }
    if has_nginx() {
        let words = format!(
            "listen unix:{} ssl; ssl_certificate {}; ssl_certificate_key {};",
            at("tls"),
            at("cert"),
            at("key")
        );
        let _nginx = Nginx::start_with(folder.path(), &words);
        told(&["--unix", &at("tls"), "http://localhost/"]);
    }
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
    let mut load = started(&["-d", "60s", "--warm-up", "60s", "-c", "2", &server.url]);
    let mut stderr = BufReader::new(load.stderr.take().expect("piped"));
    read_until(&mut stderr, "1.0 s");
    kill_process(Pid::from_child(&load), Signal::INT).expect("it runs");
    let said = text_of(load.stdout.take().expect("piped"));
    assert_eq!(load.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(said.contains("ended in its warm-up"), "{said}");
    assert!(!said.contains("longer time"), "{said}");
}

#[test]
fn an_objective_judges_every_run() {
    let server = Server::start();
    let run = ["-n", "2000", "-c", "2", "-q"];
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
    let run = ["-n", "2000", "-c", "2", "-q", "--json", "-"];
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
    let run = ["-n", "2000", "-c", "2", "-q", "--json", "-", "--expect-status", "201"];
    for (slo, code) in [("errors=100%", Some(0)), ("errors=1999", Some(3)), ("p99=9s", Some(3))] {
        let said = load(&[&run[..], &["--slo", slo, &server.url]].concat());
        assert_eq!(
            (said.code, &said.json()["errors"]["status"]),
            (code, &2_000.into()),
            "{said:?}"
        );
    }
}

#[test]
fn chosen_percentiles_are_shown_and_written() {
    let server = Server::start();
    let run = ["-n", "3000", "-c", "2", "-q", "--percentiles", "97,42"];
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
    let (moved, run) = (format!("{}sub", server.url), ["-n", "2000", "-c", "2", "-q"]);
    let said = load(&[&run[..], &["--json", "-", &moved]].concat());
    let json = said.json();
    assert_eq!((said.code, &json["totals"]["redirected"]), (Some(0), &2_000.into()), "{said:?}");
    assert_eq!((&json["totals"]["right"], &json["errors"]["status"]), (&0.into(), &0.into()));
    assert!(said.stderr.contains("redirects, which are not followed"), "{said:?}");
    let table = load(&[&run[..], &[&*moved]].concat());
    assert!(table.stdout.contains("0 % right, 100 % redirected"), "{table:?}");
    let named = load(&[&run[..], &["--expect-status", "301", "--json", "-", &moved]].concat());
    assert_eq!(named.json()["totals"]["right"], 2_000, "{named:?}");
    let gated = load(&[&run[..], &["--slo", "redirects=0", &moved]].concat());
    assert_eq!(gated.code, Some(3), "{gated:?}");
}
