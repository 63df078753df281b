//! Certificates that sites ask their clients for: who is let in, what backends and logs get of it, and that no name, ticket
//! or connection of one site is good for another one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollux_engine::{Driver, ListenAddress};
use pollux_http::Method;
use pollux_http::h2::Ask;
use pollux_server::ServerCounter;
use pollux_server::config::{LogFormat, LogLevel, LogTarget, ProxyConfig};
use pollux_server::tls::{Keys, Trust};
use pollux_settings::Given;
use pollux_testing::{DEADLINE, uninterrupted};
use pollux_tls::{HTTP_1_1, HTTP_2};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use tempfile::TempDir;

use crate::http2_client::{Answer, Client2};
use crate::identity::{ClientStream, head};
use crate::{Backend, Proxy, field, ok};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("no name");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key()).expect("signed")
}

/// A folder with two authorities, clients of theirs, and the one certificate of the server.
struct People(TempDir);

impl People {
    fn new() -> Self {
        let people = Self(tempfile::tempdir().expect("a folder"));
        let one = authority("one");
        let two = authority("two");
        std::fs::write(people.path("one.pem"), one.pem()).expect("written");
        std::fs::write(people.path("two.pem"), two.pem()).expect("written");
        people.add("anna", &one, |_| {});
        people.add("berta", &two, |_| {});
        people.add("late", &one, |params| params.not_after = date_time_ymd(2020, 1, 1));
        people.add("early", &one, |params| params.not_before = date_time_ymd(2090, 1, 1));
        people.add("server-only", &one, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        people.add("stranger", &authority("one"), |_| {});
        let hosts = ["a", "b", "may", "open"].map(|name| format!("{name}.example"));
        let own = key();
        let params = CertificateParams::new(hosts.to_vec()).expect("names");
        let cert = params.self_signed(&own).expect("signed");
        people.write("server", &cert.pem(), &own);
        people
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, cert: &str, key: &KeyPair) {
        std::fs::write(self.path(&format!("{name}.cert")), cert).expect("written");
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).expect("written");
    }

    fn add(&self, name: &str, by: &Authority, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "A, Inc.");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let own = key();
        let cert = params.signed_by(&own, by).expect("signed");
        self.write(name, &cert.pem(), &own);
    }

    /// A client that has this certificate, or none.
    fn client(&self, who: Option<&str>, protocol: &[u8]) -> Arc<ClientConfig> {
        let trust = Trust::File(self.path("server.cert"));
        let client = trust.config(Some(protocol)).expect("a certificate");
        let keys = |name: &str| Keys {
            cert: self.path(&format!("{name}.cert")),
            key: self.path(&format!("{name}.key")),
        };
        match who {
            Some(name) => keys(name).shown_by(&client).expect("a certificate"),
            None => client,
        }
    }

    /// Sites with one certificate: two ask for those of one authority each, one for those of the first one if there is one.
    fn file(&self, backend: &Backend) -> String {
        let at = self.0.path().display();
        let site = |host: &str, more: &str| {
            format!(
                "[[site]]\nhost = \"{host}.example\"\n{more}\nroute = [\n{{ path = \"/\", backend = \"api\" }},\n\
                 {{ path = \"/reply\", reply = 5 }},\n{{ path = \"/.well-known/acme-challenge/\", reply = 7 }} ]\n"
            )
        };
        let sites = [
            site("a", &format!("client_ca = \"{at}/one.pem\"")),
            site("b", &format!("client_ca = \"{at}/two.pem\"")),
            site("may", &format!("client_ca = \"{at}/one.pem\"\nclient_cert = \"optional\"")),
            site("open", ""),
        ];
        format!(
            "[[frontend]]\nlisten = \"127.0.0.1:0\"\ncert = \"{at}/server.cert\"\nkey = \"{at}/server.key\"\n\
             [[frontend]]\nlisten = \"127.0.0.1:0\"\n\
             [[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"{}\"\n{}",
            backend.address,
            sites.concat()
        )
    }
}

/// A backend that says what it got of the client.
fn telling() -> Backend {
    Backend::answering(|head, _| {
        let names = ["X-Client-Cert", "X-Client-Cert-Subject", "X-Client-Cert-SHA256"];
        let said = names.map(|name| match field(head, name) {
            Some(value) => value.to_owned(),
            None => "-".to_owned(),
        });
        let is_forged = head.contains("forged");
        Some(ok("", &format!("{}{}", said.join("|"), if is_forged { " forged" } else { "" })))
    })
}

fn on_every_driver(change: impl Fn(&mut ProxyConfig), test: impl Fn(Driver, &Proxy, &People)) {
    let people = People::new();
    let backend = telling();
    let text = people.file(&backend);
    let read = || -> ProxyConfig {
        Given::from_toml(&text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"))
    };
    for driver in Driver::ALL {
        let set = |config: &mut ProxyConfig| {
            let loops = config.loops.clone();
            let monitoring = config.monitoring.clone();
            *config = ProxyConfig { loops, monitoring, ..read() };
            change(config);
        };
        if let Some(proxy) = Proxy::start(driver, &["127.0.0.1:1".parse().expect("one")], set) {
            test(driver, &proxy, &people);
        }
    }
}

fn connect(proxy: &Proxy, client: &Arc<ClientConfig>, name: &str) -> ClientStream {
    let name = ServerName::try_from(format!("{name}.example")).expect("a name");
    let client = ClientConnection::new(Arc::clone(client), name).expect("sound");
    let socket = TcpStream::connect(proxy.address).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    // A request is written in pieces, which would wait for acknowledgements.
    socket.set_nodelay(true).expect("set");
    StreamOwned::new(client, socket)
}

const FORGED: &str =
    "X-Client-Cert: forged\r\nX_Client_Cert_Subject: forged\r\nx-client-cert-sha256: forged\r\n";

/// Status and body of a GET by a client that says whose certificate it has, too.
fn get(stream: &mut (impl Read + Write), host: &str, path: &str) -> (String, String) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}.example\r\n{FORGED}\r\n").expect("sent");
    let head = head(stream);
    let len = field(&head, "Content-Length").expect("a length").parse().expect("a number");
    let mut body = vec![0; len];
    let mut read = 0;
    while read < len {
        let more = uninterrupted(|| stream.read(&mut body[read..])).expect("a body");
        assert!(more > 0, "the body was cut");
        read += more;
    }
    (head[9..12].to_owned(), String::from_utf8(body).expect("a text"))
}

fn refused(proxy: &Proxy) -> u64 {
    proxy.sum(|each| each.server.value(ServerCounter::CertificatesRefused))
}

const NO_CERT: &str = "this host wants a client certificate, and none was sent";
const BAD_CERT: &str = "the client certificate is not one that this host takes";
const NOT_ASKED: &str =
    "this connection did not ask for the client certificate that this host wants";

#[test]
fn a_site_takes_clients_of_its_authority_alone_and_backends_get_who_they_are() {
    on_every_driver(
        |_| {},
        |driver, proxy, people| {
            let who = |name| people.client(name, HTTP_1_1);
            for (name, site, expected) in [
                (Some("anna"), "a", Ok(true)),
                (Some("anna"), "may", Ok(true)),
                (None, "may", Ok(false)),
                (Some("berta"), "b", Ok(true)),
                (None, "a", Err(NO_CERT)),
                (Some("berta"), "a", Err(BAD_CERT)),
                (Some("stranger"), "a", Err(BAD_CERT)),
                (Some("late"), "a", Err(BAD_CERT)),
                (Some("early"), "a", Err(BAD_CERT)),
                (Some("server-only"), "a", Err(BAD_CERT)),
                (Some("late"), "may", Err(BAD_CERT)),
                (Some("berta"), "may", Err(BAD_CERT)),
                (Some("anna"), "b", Err(BAD_CERT)),
            ] {
                let told = format!("{driver} {name:?} {site}");
                let before = refused(proxy);
                let mut stream = connect(proxy, &who(name), site);
                for path in ["/", "/", "/x", "/reply", "/"] {
                    let (status, body) = get(&mut stream, site, path);
                    match expected {
                        Err(why) => {
                            assert_eq!(status, "403", "{told} {path}: {body}");
                            assert!(body.contains(why), "{told} {path}: {body}");
                        }
                        Ok(_) if path == "/reply" => {
                            assert_eq!((&*status, body.len()), ("200", 5), "{told}");
                        }
                        Ok(false) => assert_eq!(body, "none|-|-", "{told} {path}"),
                        Ok(true) => {
                            let name = name.expect("a certificate");
                            let said = format!("verified|CN={name},O=A\\, Inc.|");
                            let sha256 = body
                                .strip_prefix(&*said)
                                .unwrap_or_else(|| panic!("{told}: {body}"));
                            let is_hex = sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
                            assert!(sha256.len() == 64 && is_hex, "{told}: {body}");
                        }
                    }
                }
                // Who issues certificates has none.
                let (status, body) = get(&mut stream, site, "/.well-known/acme-challenge/x");
                assert_eq!((&*status, body.len()), ("200", 7), "{told}");
                let counted = if expected.is_err() { 5 } else { 0 };
                assert_eq!(refused(proxy) - before, counted, "{told}");
            }
            // A site that asks for none gets nobody's word.
            let mut stream = connect(proxy, &who(Some("anna")), "open");
            assert_eq!(
                get(&mut stream, "open", "/"),
                ("200".to_owned(), "-|-|-".to_owned()),
                "{driver}"
            );
        },
    );
}

#[test]
fn the_name_of_one_site_opens_no_other_one_whatever_host_is_said_or_was_answered_before() {
    on_every_driver(
        |_| {},
        |driver, proxy, people| {
            let anna = people.client(Some("anna"), HTTP_1_1);
            let nobody = people.client(None, HTTP_1_1);
            let mut to_a = connect(proxy, &anna, "a");
            let mut without = connect(proxy, &nobody, "a");
            let mut to_open = connect(proxy, &anna, "open");
            let mut to_may = connect(proxy, &nobody, "may");
            let mut unnamed = {
                // An address is not a name.
                let name = ServerName::try_from("127.0.0.1").expect("an address");
                let trust = Trust::AnyCertificate.config(Some(HTTP_1_1)).expect("any");
                let client = ClientConnection::new(trust, name).expect("sound");
                let socket = TcpStream::connect(proxy.address).expect("connected");
                socket.set_read_timeout(Some(DEADLINE)).expect("set");
                StreamOwned::new(client, socket)
            };
            let ListenAddress::Tcp(clear) = proxy.server().addresses()[1] else { panic!("TCP") };
            let mut clear = TcpStream::connect(clear).expect("connected");
            clear.set_read_timeout(Some(DEADLINE)).expect("set");
            for _ in 0..3 {
                // The very bytes, from the same client.
                assert!(get(&mut to_a, "a", "/").1.starts_with("verified|"), "{driver}");
                let (status, body) = get(&mut without, "a", "/");
                assert!(status == "403" && body.contains(NO_CERT), "{driver}: {body}");
                for stream in [&mut to_open, &mut unnamed] {
                    let (status, body) = get(stream, "a", "/");
                    assert!(status == "421" && body.contains(NOT_ASKED), "{driver}: {body}");
                }
                let (status, body) = get(&mut clear, "a", "/");
                assert!(status == "421" && body.contains(NOT_ASKED), "{driver}: {body}");
                // The same authority, which does not make it another client.
                let (status, body) = get(&mut to_may, "a", "/");
                assert!(status == "403" && body.contains(NO_CERT), "{driver}: {body}");
                assert_eq!(get(&mut to_may, "may", "/").1, "none|-|-", "{driver}");
                assert_eq!(get(&mut to_a, "b", "/").0, "421", "{driver}");
                assert_eq!(get(&mut to_a, "may", "/").1[..9], *"verified|", "{driver}");
                assert_eq!(get(&mut to_a, "open", "/").1, "-|-|-", "{driver}");
                assert_eq!(get(&mut unnamed, "open", "/").1, "-|-|-", "{driver}");
            }
        },
    );
}

#[test]
fn streams_to_a_site_that_asks_come_by_connections_that_were_asked() {
    on_every_driver(
        |_| {},
        |driver, proxy, people| {
            let anna = people.client(Some("anna"), HTTP_2);
            let nobody = people.client(None, HTTP_2);
            for (client, name, asked) in [
                (
                    &anna,
                    "a",
                    &[("a", "200"), ("open", "200"), ("b", "421"), ("may", "200"), ("a", "200")][..],
                ),
                (&anna, "open", &[("open", "200"), ("a", "421"), ("may", "421"), ("open", "200")]),
                (&nobody, "a", &[("a", "403"), ("open", "200"), ("may", "200"), ("a", "403")]),
                (&nobody, "may", &[("may", "200"), ("a", "403")]),
            ] {
                let mut client = Client2::on(connect(proxy, client, name), 1 << 20);
                for (host, status) in asked {
                    for path in ["/", "/reply"] {
                        let authority = format!("{host}.example");
                        let ask = Ask {
                            method: Method::Get,
                            scheme: "https",
                            authority: &authority,
                            path,
                            fields: &[],
                        };
                        let stream =
                            client.says(|connection, out| connection.ask(out, &ask, true, ()));
                        let stream = stream.expect("a stream is free");
                        client.answers.insert(stream, Answer::default());
                        let answer = client.answer(stream);
                        assert_eq!(answer.status(), *status, "{driver} {name} {host} {path}");
                    }
                }
            }
        },
    );
}

#[test]
fn a_session_that_is_taken_up_again_is_that_of_the_same_client() {
    on_every_driver(
        |_| {},
        |driver, proxy, people| {
            let client = people.client(Some("anna"), HTTP_1_1);
            for round in 0..3 {
                let mut stream = connect(proxy, &client, "a");
                let (_, body) = get(&mut stream, "a", "/");
                assert!(body.starts_with("verified|CN=anna,"), "{driver} {round}: {body}");
                let kind = stream.conn.handshake_kind();
                assert_eq!(kind == Some(HandshakeKind::Resumed), round > 0, "{driver} {kind:?}");
            }
            // A client that has the tickets of a session without a certificate gets no further with one.
            let nobody = people.client(None, HTTP_1_1);
            get(&mut connect(proxy, &nobody, "a"), "a", "/");
            let mut with = ClientConfig::clone(&client);
            with.resumption = nobody.resumption.clone();
            let mut stream = connect(proxy, &Arc::new(with), "a");
            let (status, _) = get(&mut stream, "a", "/");
            let is_resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
            assert_eq!(status, if is_resumed { "403" } else { "200" }, "{driver}");
            let mut without = ClientConfig::clone(&client);
            without.resumption = Resumption::disabled();
            assert_eq!(get(&mut connect(proxy, &Arc::new(without), "a"), "a", "/").0, "200");
        },
    );
}

#[test]
fn logs_say_whose_certificate_it_was_and_why_one_is_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let [access, errors] = ["access", "errors"].map(|name| folder.path().join(name));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    on_every_driver(
        |config| {
            std::fs::write(&access, "").expect("written");
            config.monitoring.access_log = Some(LogTarget::File(access.clone()));
            config.monitoring.access_log_format = LogFormat::Json;
            config.monitoring.error_log = LogTarget::File(errors.clone());
            config.monitoring.log_level = LogLevel::Debug;
        },
        |driver, proxy, people| {
            let ask =
                |who, path| get(&mut connect(proxy, &people.client(who, HTTP_1_1), "a"), "a", path);
            let (_, told) = ask(Some("anna"), "/to");
            let sha256 = told.rsplit('|').next().expect("the digest");
            ask(Some("anna"), "/reply");
            ask(None, "/without");
            ask(Some("late"), "/late");
            pollux_testing::wait_until("four lines", || read(&access).lines().count() == 4);
            let all = read(&access);
            let line = |path: &str| {
                let part = format!("\"target\":\"{path}\"");
                all.lines()
                    .find(|line| line.contains(&part))
                    .unwrap_or_else(|| panic!("{driver}: {all}"))
            };
            for path in ["/to", "/reply"] {
                let said = format!(
                    "\"client_subject\":\"CN=anna,O=A\\\\, Inc.\",\"client_sha256\":\"{sha256}\""
                );
                assert!(line(path).contains(&said), "{driver}: {}", line(path));
            }
            for (path, end) in
                [("/without", "client_no_certificate"), ("/late", "client_bad_certificate")]
            {
                let line = line(path);
                assert!(line.contains(&format!("\"end\":\"{end}\"")), "{driver}: {line}");
                assert!(!line.contains("client_subject"), "{driver}: {line}");
            }
        },
    );
    // Written when a server ends.
    let why =
        "127.0.0.1: the client certificate is not believed: it expired on 2020-01-01 00:00:00 UTC";
    let errors = read(&errors);
    assert!(errors.contains(why), "{errors}");
}
