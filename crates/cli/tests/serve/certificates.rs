//! Files that are not a certificate and its key: what is said of them at a start and at a reload, where the
//! old certificate stays; and those that can be shown although clients will not like them.

use std::fs;
use std::path::Path;
use std::process::Command;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustix::process::Signal;

use crate::child::alone;
use crate::encrypted::Files;

/// A certificate for `localhost` with its key; `change` sets what is not as usual.
fn made(change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    change(&mut params);
    (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
}

/// Certificate, key, and what is said of them.
fn unusable() -> Vec<(String, String, &'static str)> {
    let (cert, key) = made(|_| ());
    let (other, other_key) = made(|_| ());
    let section = |label: &str, inner: &str| {
        format!("-----BEGIN {label}-----\n{inner}\n-----END {label}-----\n")
    };
    let encrypted = section("ENCRYPTED PRIVATE KEY", "AAAA");
    let old = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA";
    vec![
        (String::new(), key.clone(), "cert.pem: the file is empty; expected a PEM file with CERT"),
        (
            cert.clone(),
            String::new(),
            "key.pem: the file is empty; expected a PEM file with PRIVATE",
        ),
        (
            cert.clone(),
            cert.clone(),
            "key.pem: no private key in it; expected a PEM file with PRIVATE",
        ),
        (key.clone(), key.clone(), "cert.pem: no certificate in it; expected a PEM file with CERT"),
        (cert.clone(), other_key, "key.pem: not the private key of the first certificate in "),
        (
            format!("{other}{cert}"),
            key.clone(),
            " is number 2 in it; expected it first, and behind it",
        ),
        (
            cert.clone(),
            encrypted,
            "key.pem: its private key is encrypted; expected one that is not",
        ),
        (cert.clone(), section("RSA PRIVATE KEY", old), "key.pem: its private key is encrypted; "),
        (
            cert.clone(),
            section("PRIVATE KEY", "AAAA"),
            "of a kind that can't be used; expected RSA of",
        ),
        (cert[..cert.len() / 2].to_owned(), key.clone(), "cert.pem: the file ends before END CERT"),
        (
            section("CERTIFICATE", "?!"),
            key.clone(),
            "between BEGIN and END of a section is not base64",
        ),
        (
            section("CERTIFICATE", "MAMCAQU="),
            key,
            "cert.pem: its first certificate can't be used: ",
        ),
    ]
}

fn put(files: &Files, cert: &str, key: &str) {
    for (name, text) in [("cert.pem", cert), ("key.pem", key)] {
        let new = files.at("new");
        fs::write(&new, text).expect("written");
        fs::rename(&new, files.at(name)).expect("renamed");
    }
}

/// Whether a client that believes the certificate in this file gets an answer.
fn is_shown(address: std::net::SocketAddr, cert: &Path) -> bool {
    let mut load = Command::new(env!("CARGO_BIN_EXE_pollux"));
    load.args(["load", "-n", "1", "-c", "1", "-q", "--connect-to", &address.to_string()]);
    load.arg("--cacert").arg(cert).arg("https://localhost/");
    load.output().expect("pollux starts").status.success()
}

#[test]
fn what_cannot_be_used_is_refused_at_a_start_and_at_a_reload_keeps_the_old_certificate() {
    let _turn = alone();
    let files = Files::make();
    let mut server = files.serve("epoll-et", &["--reply", "1"]).expect("it starts");
    fs::copy(files.at("cert.pem"), files.at("first")).expect("copied");
    for (cert, key, told) in unusable() {
        put(&files, &cert, &key);
        let mut serve = Command::new(env!("CARGO_BIN_EXE_pollux"));
        serve.args(["serve", "--reply", "1", "--listen", "127.0.0.1:0", "--cert"]);
        let output = serve.arg(files.at("cert.pem")).arg("--key").arg(files.at("key.pem")).output();
        let output = output.expect("pollux starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(told), "{told}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        server.signal(Signal::HUP);
        let said = server.says("not reloaded, the old settings stay: the certificate: ");
        assert!(said.contains(told), "{told}: {said}");
        assert!(is_shown(server.address, &files.at("first")), "{told}");
    }
    let (cert, key) = made(|_| ());
    let windows = |text: &str| text.replace('\n', "\r\n");
    put(&files, &windows(&cert), &windows(&key));
    server.signal(Signal::HUP);
    crate::daemon::await_that("a certificate with CRLF", || {
        is_shown(server.address, &files.at("cert.pem")).then_some(())
    });
    server.end();
}

#[test]
fn certificates_that_clients_refuse_are_shown_and_told() {
    let _turn = alone();
    let files = Files::make();
    let expired = made(|params| params.not_after = date_time_ymd(2021, 1, 1));
    let early = made(|params| params.not_before = date_time_ymd(2999, 1, 1));
    let (other, _) = made(|params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "another");
    });
    let (cert, key) = made(|_| ());
    let untidy = (format!("{cert}{other}"), key);
    let cases = [
        (
            expired,
            "cert.pem: the certificate expired on 2021-01-01 00:00:00 UTC; clients refuse it",
        ),
        (early, "cert.pem: the certificate is valid from 2999-01-01 00:00:00 UTC on only"),
        (untidy, "cert.pem: certificate 2 in it is not that of the issuer of the certificate"),
    ];
    let mut server = files.serve("epoll-et", &["--reply", "1"]).expect("it starts");
    for ((cert, key), told) in cases {
        put(&files, &cert, &key);
        server.signal(Signal::HUP);
        let said = server.says("warn: ");
        assert!(said.contains(told), "{said}");
        let mut another = files.serve("epoll-et", &["--reply", "1"]).expect("it starts");
        let said = another.says("warn: ");
        assert!(said.contains(told), "{said}");
        another.end();
        let mut check = Command::new(env!("CARGO_BIN_EXE_pollux"));
        check.args(["serve", "--check", "--reply", "1", "--listen", "127.0.0.1:0", "--cert"]);
        let output = check.arg(files.at("cert.pem")).arg("--key").arg(files.at("key.pem")).output();
        let output = output.expect("pollux starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("warning: "), "{said}");
        assert!(said.contains(told), "{said}");
    }
    server.end();
}
