//! Certificates of a folder: what a start, `--check`, `explain` and the metrics say of them, and a folder that changes under
//! handshakes.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use pollux_testing::{DEADLINE, wait_until};
use pollux_tls::{HTTP_1_1, Trust, server_name, without_resumption};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::stage::Proxy;

/// Handshakes while the folder changes, unless `POLLUX_TLS_HANDSHAKES` has another number.
const HANDSHAKES: &str = "2000";
const RELOADS: usize = 20;
const NAMES: usize = 4;

/// Puts a new certificate for these names into the place of NAME.pem and NAME.key; a client that looks at each moment finds
/// a pair that belongs together, or none.
fn renew(folder: &Path, name: &str, hosts: &[&str]) {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(hosts).expect("names");
    params.not_after = date_time_ymd(2100, 1, 1);
    let cert = params.self_signed(&key).expect("signed");
    let new = folder.join("new");
    fs::write(&new, format!("{}{}", cert.pem(), key.serialize_pem())).expect("written");
    fs::rename(new, folder.join(format!("{name}.pem"))).expect("renamed");
}

fn sites(names: impl IntoIterator<Item = String>) -> String {
    let site = |name: String| {
        format!("[[site]]\nhost = [\"{name}\"]\nroute = [ {{ path = \"/\", reply = 7 }} ]\n")
    };
    names.into_iter().map(site).collect()
}

/// Exit code, standard output and standard error of `pollux serve` with these words and settings.
fn pollux(folder: &Path, words: &[&str], settings: &str) -> (Option<i32>, String, String) {
    fs::write(folder.join("p.toml"), settings).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder).arg("serve").args(words).args(["--config", "p.toml"]);
    let ended = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[test]
fn a_site_without_a_certificate_and_a_broken_pair_are_named_and_explain_says_which_one_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let certs = folder.path().join("certs");
    fs::create_dir(&certs).expect("made");
    renew(&certs, "www", &["www.example.org"]);
    renew(&certs, "net", &["*.example.net"]);
    let front = "[[frontend]]\nlisten = \"127.0.0.1:0\"\ncerts = \"certs\"\n";
    let of = |hosts: &str| {
        format!("{front}[[site]]\nhost = [{hosts}]\nroute = [ {{ path = \"/\", reply = 7 }} ]\n")
    };
    let check = |settings: &str| pollux(folder.path(), &["--check"], settings);
    let (code, plan, wrong) = check(&of("\"www.example.org\", \"*.example.net\""));
    assert_eq!((code, &*wrong), (Some(0), ""), "{plan}");
    assert!(plan.starts_with("listen on 127.0.0.1:0: HTTP in TLS for the sites\n"), "{plan}");
    let (code, plan, wrong) = check(&of("\"www.example.org\", \"shop.example.org\""));
    assert_eq!((code, &*plan), (Some(2), ""));
    let expected = "p.toml:5:28: host: no certificate in certs is for shop.example.org (there are *.example.net, \
                    www.example.org); expected one, or cert and key";
    assert!(wrong.contains(expected), "{wrong}");
    // Two of one name: the newer one.
    fs::copy(certs.join("www.pem"), certs.join("copy.pem")).expect("copied");
    let (code, plan, _) = check(&of("\"www.example.org\""));
    assert_eq!(code, Some(0));
    let line =
        "www.pem: not shown for www.example.org, as certs/copy.pem comes first and is as new";
    assert!(plan.contains(line), "{plan}");
    fs::remove_file(certs.join("copy.pem")).expect("removed");
    let whole = of("\"www.example.org\", \"*.example.net\"");
    let explain = |uri: &str| pollux(folder.path(), &["explain", uri], &whole).1;
    let said = explain("https://www.example.org/");
    let line = "cert       certs/www.pem (www.example.org), until 2100-01-01 00:00:00 UTC\n";
    assert!(said.contains(line), "{said}");
    assert!(explain("https://x.example.net/").contains("certs/net.pem (*.example.net)"));
    let said = explain("https://x.y.example.net/");
    assert!(said.contains("handshake fails with the alert unrecognized_name"), "{said}");
    fs::write(certs.join("torn.pem"), "-----BEGIN CERTIFICATE-----\nMIIB").expect("written");
    let (code, _, wrong) = check(&whole);
    assert!(code == Some(2) && wrong.contains("certs/torn.pem: "), "{wrong}");
}

/// What a client of this name gets to a GET, on a connection of its own with a handshake of its own.
fn ask(client: &Arc<ClientConfig>, to: SocketAddr, name: &str) -> std::io::Result<String> {
    let server = server_name(name).expect("a name");
    let connection = ClientConnection::new(Arc::clone(client), server).expect("sound");
    let socket = TcpStream::connect(to)?;
    socket.set_read_timeout(Some(DEADLINE))?;
    let mut stream = StreamOwned::new(connection, socket);
    write!(stream, "GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_folder_that_changes_under_handshakes_fails_none() {
    let handshakes =
        std::env::var("POLLUX_TLS_HANDSHAKES").unwrap_or_else(|_| HANDSHAKES.to_owned());
    let handshakes: u64 = handshakes.parse().expect("a number");
    let folder = tempfile::tempdir().expect("a folder");
    let name = |number: usize| format!("n{number}.example");
    for number in 0..NAMES {
        renew(folder.path(), &format!("c{number}"), &[&name(number)]);
    }
    let settings =
        format!("certs = \"{}\"\n{}", folder.path().display(), sites((0..NAMES).map(name)));
    let mut proxy = Proxy::start(&[], &settings);
    assert_eq!(proxy.metric("pollux_certificate_expires_seconds", "c0.pem"), 4_102_444_800);
    let any = Trust::AnyCertificate.config(Some(HTTP_1_1)).expect("a configuration");
    let address = proxy.address;
    let any = without_resumption(&any);
    let done = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|client| {
            let any = Arc::clone(&any);
            let done = Arc::clone(&done);
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                for number in client.. {
                    if is_over.load(SeqCst) && done.load(SeqCst) >= handshakes {
                        return;
                    }
                    let name = name(number % NAMES);
                    let answer = ask(&any, address, &name).expect("a handshake and an answer");
                    assert!(answer.starts_with("HTTP/1.1 200 "), "{name}: {answer}");
                    done.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for reload in 0..RELOADS {
        let begun = done.load(SeqCst);
        renew(folder.path(), &format!("c{}", reload % NAMES), &[&name(reload % NAMES)]);
        let (is_right, said) = proxy.reload();
        assert!(is_right, "{said}");
        wait_until("handshakes with what is new", || done.load(SeqCst) > begun + 5);
    }
    // A half-written pair changes nothing, and is named.
    fs::write(folder.path().join("c0.pem"), "-----BEGIN CERTIFICATE-----\nMIIB").expect("written");
    let (is_right, said) = proxy.reload();
    assert!(!is_right && said.contains("c0.pem: "), "{said}");
    proxy.wait_for_stderr_line("not reloaded, the old settings stay");
    let begun = done.load(SeqCst);
    wait_until("handshakes with the old one", || done.load(SeqCst) > begun + 12);
    is_over.store(true, SeqCst);
    clients.into_iter().for_each(|client| client.join().expect("no handshake failed"));
    assert!(done.load(SeqCst) >= handshakes);
}
