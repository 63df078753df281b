//! Certificates by name: which one a client is shown, and which hosts it may ask for on a connection that has shown it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use pollux_engine::Driver;
use pollux_http::Method;
use pollux_http::h2::Ask;
use pollux_server::config::ProxyConfig;
use pollux_server::tls::Trust;
use pollux_settings::Given;
use pollux_testing::DEADLINE;
use pollux_tls::{HTTP_1_1, HTTP_2};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tempfile::TempDir;

use crate::http2_client::{Answer, Client2};
use crate::identity::{ClientStream, head};
use crate::{Backend, Proxy, field, ok};

/// Writes NAME.pem and NAME.key for these names of hosts.
fn write(folder: &Path, name: &str, hosts: &[&str]) {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let key = KeyPair::generate().expect("a key");
    let cert = CertificateParams::new(hosts).expect("names").self_signed(&key).expect("signed");
    std::fs::write(folder.join(format!("{name}.pem")), cert.pem()).expect("written");
    std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("written");
}

/// A folder of certificates, and one of a site beside it, in `own`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("certs")).expect("made");
    write(&folder.path().join("certs"), "a", &["a.example"]);
    write(&folder.path().join("certs"), "b", &["b.example", "also.b.example"]);
    write(&folder.path().join("certs"), "star", &["*.wild.example"]);
    write(folder.path(), "own", &["own.wild.example"]);
    folder
}

fn file(folder: &Path, backend: &Backend) -> String {
    let at = folder.display();
    let address = backend.address;
    let site = |hosts: &str, more: &str, len: u32| {
        format!(
            "[[site]]\nhost = [{hosts}]\n{more}\nroute = [\n{{ path = \"/\", reply = {len} }},\n\
             {{ path = \"/up/\", backend = \"api\" }} ]\n"
        )
    };
    format!(
        "listen = \"127.0.0.1:0\"\ncerts = \"{at}/certs\"\n\
         [[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"{address}\"\n{}{}{}{}",
        site("\"a.example\"", "", 1),
        site("\"b.example\", \"also.b.example\"", "default = true", 2),
        site("\"*.wild.example\"", "", 3),
        site(
            "\"own.wild.example\"",
            &format!("cert = \"{at}/own.pem\"\nkey = \"{at}/own.key\""),
            4
        ),
    )
}

fn on_every_driver(test: impl Fn(Driver, &Proxy, &Path)) {
    let folder = folder();
    let backend = Backend::answering(|head, _| Some(ok("", head.lines().next()?)));
    let text = file(folder.path(), &backend);
    let read = || -> ProxyConfig {
        Given::from_toml(&text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"))
    };
    for driver in Driver::ALL {
        let set = |config: &mut ProxyConfig| {
            let loops = config.loops.clone();
            let monitoring = config.monitoring.clone();
            *config = ProxyConfig { loops, monitoring, ..read() };
        };
        if let Some(proxy) = Proxy::start(driver, &["127.0.0.1:1".parse().expect("one")], set) {
            test(driver, &proxy, folder.path());
        }
    }
}

/// A client that believes the certificate in this file, or all where there is none, and asks for this name.
fn connect(to: SocketAddr, believed: Option<&Path>, name: &str, protocol: &[u8]) -> ClientStream {
    let trust = believed.map_or(Trust::AnyCertificate, |path| Trust::File(path.to_owned()));
    let client: Arc<ClientConfig> = trust.config(Some(protocol)).expect("a certificate");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let client = ClientConnection::new(client, name).expect("sound");
    let socket = TcpStream::connect(to).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    StreamOwned::new(client, socket)
}

/// Status and body of a GET.
fn get(stream: &mut ClientStream, host: &str, path: &str) -> (String, String) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("sent");
    let head = head(stream);
    let len = field(&head, "Content-Length").expect("a length").parse().expect("a number");
    let mut body = vec![0; len];
    stream.read_exact(&mut body).expect("a body");
    (head[9..12].to_owned(), String::from_utf8(body).expect("a text"))
}

#[test]
fn a_client_sees_the_certificate_of_the_name_and_asks_for_its_hosts_alone() {
    on_every_driver(|driver, proxy, folder| {
        let certs = folder.join("certs");
        for (name, file, len) in [
            ("a.example", certs.join("a.pem"), 1),
            ("b.example", certs.join("b.pem"), 2),
            ("also.b.example", certs.join("b.pem"), 2),
            ("x.wild.example", certs.join("star.pem"), 3),
            ("own.wild.example", folder.join("own.pem"), 4),
        ] {
            // Another certificate would not be believed.
            let mut stream = connect(proxy.address, Some(&file), name, HTTP_1_1);
            let (status, body) = get(&mut stream, &format!("{name}:443"), "/");
            assert_eq!((&*status, body.len()), ("200", len), "{driver} {name}");
        }
        let mut stream = connect(proxy.address, Some(&certs.join("a.pem")), "a.example", HTTP_1_1);
        let (status, body) = get(&mut stream, "b.example", "/");
        assert_eq!(status, "421", "{driver}");
        assert!(body.contains("another certificate"), "{driver}: {body}");
        // The connection is as good as before.
        assert_eq!(get(&mut stream, "A.example.", "/").0, "200", "{driver}");
        assert_eq!(get(&mut stream, "nobody.example", "/").0, "421", "{driver}");
        // One certificate, other names of it.
        let star = certs.join("star.pem");
        let mut stream = connect(proxy.address, Some(&star), "x.wild.example", HTTP_1_1);
        assert_eq!(get(&mut stream, "y.wild.example", "/").0, "200", "{driver}");
        assert_eq!(get(&mut stream, "own.wild.example", "/").0, "421", "{driver}: it has its own");
        // No name is asked for, and one that nothing is for: the default site.
        for name in ["127.0.0.1", "nobody.example"] {
            let mut stream = connect(proxy.address, None, name, HTTP_1_1);
            assert_eq!(get(&mut stream, "b.example", "/").1.len(), 2, "{driver} {name}");
            assert_eq!(get(&mut stream, "a.example", "/").0, "421", "{driver} {name}");
            let (status, body) = get(&mut stream, "nobody.example", "/");
            assert!(status == "421" && body.contains("no site here"), "{driver} {name}: {body}");
        }
    });
}

#[test]
fn a_request_that_was_passed_on_is_refused_on_a_connection_with_another_certificate() {
    on_every_driver(|driver, proxy, folder| {
        let certs = folder.join("certs");
        let mut of_a = connect(proxy.address, Some(&certs.join("a.pem")), "a.example", HTTP_1_1);
        let mut of_b = connect(proxy.address, Some(&certs.join("b.pem")), "b.example", HTTP_1_1);
        for _ in 0..3 {
            // The very bytes, from the same client.
            let (status, body) = get(&mut of_a, "a.example", "/up/x");
            assert_eq!((&*status, &*body), ("200", "GET /up/x HTTP/1.1"), "{driver}");
            assert_eq!(get(&mut of_b, "a.example", "/up/x").0, "421", "{driver}");
        }
    });
}

#[test]
fn streams_of_one_connection_are_for_the_hosts_of_its_certificate() {
    on_every_driver(|driver, proxy, folder| {
        let star = folder.join("certs/star.pem");
        let stream = connect(proxy.address, Some(&star), "x.wild.example", HTTP_2);
        let mut client = Client2::on(stream, 1 << 20);
        for (host, path, status) in [
            ("x.wild.example", "/", "200"),
            ("y.wild.example", "/", "200"),
            ("y.wild.example", "/up/x", "200"),
            ("y.wild.example", "/up/x", "200"),
            ("own.wild.example", "/up/x", "421"),
            ("a.example", "/", "421"),
            ("x.wild.example", "/up/x", "200"),
        ] {
            let ask =
                Ask { method: Method::Get, scheme: "https", authority: host, path, fields: &[] };
            let stream = client.says(|connection, out| connection.ask(out, &ask, true, ()));
            let stream = stream.expect("a stream is free");
            client.answers.insert(stream, Answer::default());
            assert_eq!(client.answer(stream).status(), status, "{driver} {host} {path}");
        }
    });
}
