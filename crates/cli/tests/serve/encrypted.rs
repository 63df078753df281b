//! TLS of `pollux serve` as other programs see it, a certificate that changes under load, and files that are not a
//! certificate and its key: what is said of them at a start and at a reload, where the old certificate stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pollux_testing::{Process, Signal, pause};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::child::Server;

/// Requests while the certificate changes, unless `POLLUX_TLS_REQUESTS` has another number.
const REQUESTS: &str = "20000";
/// For each connection: many of them are new ones, which see a new certificate.
const REQUESTS_PER_CONNECTION: &str = "50";

/// A certificate and its key, in files.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn make() -> Self {
        let files = Self { folder: tempfile::tempdir().expect("a folder") };
        files.renew();
        files
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// Puts another certificate and its key into the place of the old ones.
    pub(crate) fn renew(&self) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let cert = params.self_signed(&key).expect("signed");
        for (name, text) in [("cert.pem", cert.pem()), ("key.pem", key.serialize_pem())] {
            let new = self.at("new");
            fs::write(&new, text).expect("written");
            fs::rename(&new, self.at(name)).expect("renamed");
        }
    }

    pub(crate) fn serve(&self, driver: &str, more: &[&str]) -> Option<Server> {
        let cert = self.text("cert.pem");
        let key = self.text("key.pem");
        let flags = [&["--cert", &cert, "--key", &key], more].concat();
        Server::start(driver, &flags)
    }
}

/// What a program says; none where it is not installed, which is named.
fn output(command: &mut Command) -> Option<String> {
    let program = Path::new(command.get_program()).display().to_string();
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            Some(String::from_utf8_lossy(&said).into_owned())
        }
        Err(error) => {
            assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{program}: {error}");
            println!("{program} is skipped: {error}");
            None
        }
    }
}

#[test]
fn curl_gets_a_file_and_openssl_says_what_was_agreed_on() {
    let files = Files::make();
    let site = tempfile::tempdir().expect("a folder");
    let body: Vec<u8> = (0..500_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(site.path().join("large"), &body).expect("written");
    let folder = site.path().display().to_string();
    for driver in ["epoll-et", "uring"] {
        let Some(server) = files.serve(driver, &[&folder]) else { continue };
        let port = server.address.port();
        let got = files.at("got");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--http1.1", "-4", "--cacert"]).arg(files.at("cert.pem"));
        curl.args(["-w", "%{http_code} %{size_download}", "-o"]).arg(&got);
        curl.arg(format!("https://localhost:{port}/large"));
        if let Some(said) = output(&mut curl) {
            assert_eq!(said, "200 500000", "{driver}");
            assert!(fs::read(&got).expect("written") == body, "{driver}");
        }
        let client = |version: &str, more: &[&str]| {
            let mut openssl = Command::new("openssl");
            openssl.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), version]);
            output(openssl.args(["-alpn", "http/1.1"]).args(more))
        };
        for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
            let Some(said) = client(version, &[]) else { continue };
            assert!(said.contains(&format!("New, {name}, Cipher is ")), "{driver}: {said}");
            assert!(said.contains("ALPN protocol: http/1.1"), "{driver}: {said}");
            assert!(said.contains("Compression: NONE"), "{driver}: {said}");
        }
        for version in ["-tls1", "-tls1_1"] {
            let Some(said) = client(version, &["-cipher", "ALL:@SECLEVEL=0"]) else { continue };
            assert!(said.contains("Cipher is (NONE)"), "{driver} speaks {version}: {said}");
        }
        server.await_rest();
        server.end();
    }
}

#[test]
fn sessions_are_resumed_unless_the_load_forbids_it() {
    let files = Files::make();
    for driver in ["epoll-et", "uring"] {
        let Some(server) = files.serve(driver, &["--reply", "1"]) else { continue };
        let url = format!("https://127.0.0.1:{}/", server.address.port());
        let load = |more: &[&str]| {
            let mut load = Command::new(env!("CARGO_BIN_EXE_pollux"));
            load.args(["load", "-n", "100", "-c", "2", "--insecure", "--no-keepalive"]);
            let ended = load.args(more).arg(&url).output().expect("pollux starts");
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            let metrics = server.metrics();
            ["http_tls_handshakes_total", "http_tls_resumed_total"].map(|name| metrics.sum(name))
        };
        let [made, resumed] = load(&["--no-resumption"]);
        assert!(made >= 100 && resumed == 0, "{driver}: {resumed} of {made}");
        let [both, resumed] = load(&[]);
        assert!(resumed > (both - made) / 2, "{driver}: {resumed} of {}", both - made);
        server.end();
    }
}

#[test]
fn a_certificate_that_changes_under_load_fails_no_request() {
    let files = Files::make();
    let requests = std::env::var("POLLUX_TLS_REQUESTS").unwrap_or_else(|_| REQUESTS.to_owned());
    for driver in ["epoll-et", "uring"] {
        let flags = ["--reply", "128", "--threads", "2"];
        let Some(server) = files.serve(driver, &flags) else { continue };
        let mut load = Command::new(env!("CARGO_BIN_EXE_pollux"));
        load.args(["load", "-n", &requests, "-c", "16", "--insecure", "--quiet"]);
        load.args(["--requests-per-connection", REQUESTS_PER_CONNECTION]);
        load.arg(format!("https://127.0.0.1:{}/", server.address.port()));
        let load = Process::start(load.stdout(Stdio::piped()));
        let is_over = AtomicBool::new(false);
        let (ended, renewals) = std::thread::scope(|scope| {
            let renewing = scope.spawn(|| {
                let handshakes = || server.metrics().sum("http_tls_handshakes_total");
                let mut renewals = 0;
                while !is_over.load(Ordering::Acquire) {
                    files.renew();
                    server.signal(Signal::HUP);
                    renewals += 1;
                    // Each is there for some handshakes before the next one.
                    let seen = handshakes();
                    let begun = Instant::now();
                    while !is_over.load(Ordering::Acquire) && handshakes() < seen + 16 {
                        pause(begun);
                    }
                }
                renewals
            });
            let ended = load.ended();
            is_over.store(true, Ordering::Release);
            (ended, renewing.join().expect("renewed"))
        });
        let said = ended.stdout;
        println!("{driver}: {renewals} certificates in {requests} requests");
        assert!(ended.status.success(), "{driver}: {said}");
        assert!(said.contains(", no errors;"), "{driver}: {said}");
        assert!(renewals > 2, "{driver}: {renewals}");
        assert_eq!(server.metrics().sum("http_tls_failed_total"), 0, "{driver}");
        server.signal(Signal::TERM);
        // A late reload may read the pair between its two renames, and keeps the old one.
        let said = server.ended();
        assert!(said.lines().all(|line| line.contains("not the private key of")), "{said}");
    }
}

#[test]
fn a_certificate_without_its_key_and_files_that_are_not_there_are_named() {
    let files = Files::make();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| files.text(name));
    for (cert, key, code, wanted) in [
        (Some(&*cert), None, 2, "--cert: a certificate needs its key"),
        (None, Some(&*key), 2, "--key: belongs to a certificate"),
        (Some("/no/such"), Some(&*key), 1, "/no/such: "),
        (Some(&*cert), Some("/no/such"), 1, "/no/such: "),
    ] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_pollux"));
        serve.args(["serve", "--reply", "1", "--listen", "127.0.0.1:0"]);
        for (flag, file) in [("--cert", cert), ("--key", key)] {
            serve.args(file.map(|file| [flag, file]).into_iter().flatten());
        }
        let output = serve.output().expect("pollux starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{cert:?} {key:?}: {said}");
        assert!(said.contains(wanted), "{cert:?} {key:?}: {said}");
    }
}

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
pub(crate) fn is_shown(address: std::net::SocketAddr, cert: &Path) -> bool {
    let mut load = Command::new(env!("CARGO_BIN_EXE_pollux"));
    load.args(["load", "-n", "1", "-c", "1", "-q", "--connect-to", &address.to_string()]);
    load.arg("--cacert").arg(cert).arg("https://localhost/");
    load.output().expect("pollux starts").status.success()
}

#[test]
fn what_cannot_be_used_is_refused_at_a_start_and_at_a_reload_keeps_the_old_certificate() {
    let files = Files::make();
    let mut server = files.serve("epoll-et", &["--reply", "1"]).expect("it starts");
    fs::copy(files.at("cert.pem"), files.at("first")).expect("copied");
    for (cert, key, expected) in unusable() {
        put(&files, &cert, &key);
        let mut serve = Command::new(env!("CARGO_BIN_EXE_pollux"));
        serve.args(["serve", "--reply", "1", "--listen", "127.0.0.1:0", "--cert"]);
        let output = serve.arg(files.at("cert.pem")).arg("--key").arg(files.at("key.pem")).output();
        let output = output.expect("pollux starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{expected}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        server.signal(Signal::HUP);
        let said =
            server.wait_for_stderr_line("not reloaded, the old settings stay: the certificate: ");
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(is_shown(server.address, &files.at("first")), "{expected}");
    }
    let (cert, key) = made(|_| ());
    let windows = |text: &str| text.replace('\n', "\r\n");
    put(&files, &windows(&cert), &windows(&key));
    server.signal(Signal::HUP);
    pollux_testing::wait_for("a certificate with CRLF", || {
        is_shown(server.address, &files.at("cert.pem")).then_some(())
    });
    server.end();
}

#[test]
fn certificates_that_clients_refuse_are_served_and_warned_of() {
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
    for ((cert, key), expected) in cases {
        put(&files, &cert, &key);
        server.signal(Signal::HUP);
        let said = server.wait_for_stderr_line("warn: ");
        assert!(said.contains(expected), "{said}");
        let mut another = files.serve("epoll-et", &["--reply", "1"]).expect("it starts");
        let said = another.wait_for_stderr_line("warn: ");
        assert!(said.contains(expected), "{said}");
        another.end();
        let mut check = Command::new(env!("CARGO_BIN_EXE_pollux"));
        check.args(["serve", "--check", "--reply", "1", "--listen", "127.0.0.1:0", "--cert"]);
        let output = check.arg(files.at("cert.pem")).arg("--key").arg(files.at("key.pem")).output();
        let output = output.expect("pollux starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("warning: "), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    server.end();
}
