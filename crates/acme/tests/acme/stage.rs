//! An authority, a server of names, and a server of HTTP whose names lead to loopback.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pollux_testing::{DEADLINE, Process, addresses, has, skip, wait_for};
use pollux_tls::{HTTP_1_1, Trust, server_name, without_resumption};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tempfile::TempDir;

/// The names of the first site.
pub(crate) const HOSTS: [&str; 2] = ["www.example.test", "example.test"];
/// Ports are free when they are looked for, and may be taken by another process a moment later.
const ATTEMPTS: u32 = 5;

/// Two sites: one with two names, and one that nobody may ask. Everything by http is led to https.
const SETTINGS: &str = r#"
acme_challenges = "acme"
control = "unix:control"
[[frontend]]
listen = "127.0.0.1:0"
redirect = "https"
[[frontend]]
listen = "127.0.0.1:0"
certs = "certs"
[[users]]
name = "staff"
file = "staff"
[[site]]
host = ["www.example.test", "example.test"]
canonical = true
[[site.route]]
path = "/"
reply = 7
[[site]]
host = "closed.example.test"
allow = "192.0.2.1"
users = "staff"
[[site.route]]
path = "/"
maintenance = "staff"
"#;

/// Whether the tests have to be skipped for want of a program.
pub(crate) fn is_missing() -> bool {
    !has("pebble") || !has("pebble-challtestsrv") || is_pollux_missing()
}

/// The same for want of the server.
pub(crate) fn is_pollux_missing() -> bool {
    let is_missing = !pollux().exists();
    if is_missing {
        skip("pollux is not built: cargo build -p pollux-cli");
    }
    is_missing
}

/// The program of another package of the workspace, beside the one that is tested.
fn pollux() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_pollux-acme")).with_file_name("pollux")
}

/// `pollux-acme` at this authority.
pub(crate) fn acme(folder: &Path, pebble: &Pebble) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-acme"));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
    command.args(["--state", "state", "--directory", &pebble.directory]);
    command.arg("--ca").arg(pebble.folder.path().join("own.pem"));
    command
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// `pollux serve` with sites.
pub(crate) struct Server {
    folder: TempDir,
    pub(crate) http: SocketAddr,
    https: SocketAddr,
    client: Arc<ClientConfig>,
    _process: Process,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        fs::write(at.join("p.toml"), SETTINGS).expect("written");
        fs::create_dir(at.join("acme")).expect("made");
        fs::write(at.join("acme/secret.txt"), "secret").expect("written");
        fs::create_dir(at.join("certs")).expect("made");
        // A password of nobody.
        let hash = "$2y$08$whBKhjX8aqwrH8Dut0B81uBChBQpmr5z4cIQb0pYKxnEM9uSyV9Pe";
        fs::write(at.join("staff"), format!("anna:{hash}\n")).expect("written");
        let mut command = Command::new(pollux());
        command.current_dir(at).args(["serve", "--config", "p.toml"]).stdin(Stdio::null());
        let mut process = Process::start(&mut command);
        let [http, https] = addresses(&process.wait_for_stderr_line("https://"))[..] else {
            panic!("two front ends")
        };
        let client = Trust::AnyCertificate.config([HTTP_1_1]).expect("a client");
        Self { folder, http, https, client: without_resumption(&client), _process: process }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The certificate that a client sees that asks for this name; none where its handshake fails.
    pub(crate) fn shown(&self, name: &str) -> Option<Vec<u8>> {
        let mut tcp = TcpStream::connect(self.https).expect("it listens");
        tcp.set_read_timeout(Some(DEADLINE)).expect("a time");
        let name = server_name(name).expect("a name");
        let mut tls = ClientConnection::new(Arc::clone(&self.client), name).expect("a client");
        while tls.is_handshaking() {
            match tls.complete_io(&mut tcp) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
                Ok(_) => {}
            }
        }
        tls.peer_certificates().map(|all| all[0].to_vec())
    }

    /// The answer to a request by https: its status and its body.
    pub(crate) fn https(&self, host: &str) -> (u16, String) {
        let tcp = TcpStream::connect(self.https).expect("it listens");
        tcp.set_read_timeout(Some(DEADLINE)).expect("a time");
        let name = server_name(host).expect("a name");
        let tls = ClientConnection::new(Arc::clone(&self.client), name).expect("a client");
        asked(StreamOwned::new(tls, tcp), host, "/")
    }

    /// The same by http, of this path.
    pub(crate) fn http(&self, host: &str, path: &str) -> (u16, String) {
        let tcp = TcpStream::connect(self.http).expect("it listens");
        tcp.set_read_timeout(Some(DEADLINE)).expect("a time");
        asked(tcp, host, path)
    }
}

fn asked(mut stream: impl Read + Write, host: &str, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}

/// The authority, and the server of names that it asks: all names lead to loopback.
pub(crate) struct Pebble {
    pub(crate) directory: String,
    folder: TempDir,
    process: Process,
    _names: Process,
}

impl Pebble {
    /// One that looks for answers at this port; `variables` are further ones of its environment.
    pub(crate) fn start(port: u16, variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        let own = params.self_signed(&key).expect("signed").pem();
        fs::write(folder.path().join("own.pem"), own).expect("written");
        fs::write(folder.path().join("own.key"), key.serialize_pem()).expect("written");
        for _ in 0..ATTEMPTS {
            let Some((names, dns)) = names() else { continue };
            let listen = free();
            let settings = serde_json::json!({ "pebble": {
                "listenAddress": listen.to_string(),
                "managementListenAddress": "127.0.0.1:0",
                "certificate": folder.path().join("own.pem"),
                "privateKey": folder.path().join("own.key"),
                "httpPort": port,
                "tlsPort": 1,
                "retryAfter": { "authz": 1, "order": 1 },
                "keyAlgorithm": "ecdsa",
                "profiles": { "default": { "description": "for tests", "validityPeriod": 7_776_000 } },
            } });
            let path = folder.path().join("pebble.json");
            fs::write(&path, settings.to_string()).expect("written");
            // It says everything on standard output.
            let mut command = Command::new("sh");
            command
                .args(["-c", "exec pebble \"$@\" 1>&2", "pebble"])
                .arg("-config")
                .arg(&path)
                .args(["-dnsserver", &dns.to_string()]);
            command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
            command.envs(variables.iter().copied()).stdin(Stdio::null());
            let mut process = Process::start(&mut command);
            let is_up = || TcpStream::connect(listen).is_ok();
            let is_up = wait_for("an authority", || match (is_up(), process.status()) {
                (_, Some(_)) => Some(false),
                (true, None) => Some(true),
                (false, None) => None,
            });
            if is_up {
                let directory = format!("https://{listen}/dir");
                return Self { directory, folder, process, _names: names };
            }
        }
        panic!("no authority in {ATTEMPTS} attempts");
    }

    /// The last number between these words of what it has said, until it is ended by that.
    pub(crate) fn count(&mut self, before: &str, behind: &str) -> u64 {
        self.process.kill();
        let lines = self.process.all_stderr_lines().iter().rev();
        let mut counts =
            lines.filter_map(|line| line.split_once(before)?.1.split_once(behind)?.0.parse().ok());
        counts.next().expect("it has said a number")
    }
}

/// A server of names, and where it answers; none where the port was taken meanwhile.
fn names() -> Option<(Process, SocketAddr)> {
    let at = free();
    let mut command = Command::new("pebble-challtestsrv");
    command.args(["-dnsserver", &at.to_string(), "-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
    for none in ["-http01", "-https01", "-tlsalpn01", "-doh"] {
        command.args([none, ""]);
    }
    command.args(["-management", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = Process::start(&mut command);
    // It answers by TCP as well.
    let is_up = wait_for("a server of names", || {
        let is_there = TcpStream::connect(at).is_ok();
        if process.status().is_some() { Some(false) } else { is_there.then_some(true) }
    });
    is_up.then_some((process, at))
}

/// A port that nobody has now.
fn free() -> SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.local_addr().expect("an address")
}
