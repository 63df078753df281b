//! What a listener speaks TLS with that asks some of its clients for certificates, by the name that they ask for.
//!
//! ```text
//!  hello with a name ─► the configuration of its authorities ─► handshake ─► ClientShown
//! ```
//!
//! Each list of authorities has a configuration of its own, whose tickets no other one takes.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::client_certs::{AuthorityId, ClientAuthority, ClientShown};
use crate::keys::{TlsError, server_config};
use crate::named::Certificates;

/// What the connections of a listener speak TLS with that asks some clients for certificates.
#[derive(Debug)]
pub struct AskingConfigs {
    /// Of those that are not asked.
    pub(crate) plain: Arc<ServerConfig>,
    /// By [`AuthorityId`].
    asking: Box<[Arc<ServerConfig>]>,
    certificates: Arc<Certificates>,
}

impl AskingConfigs {
    /// Those of a listener that shows these certificates, with the configuration of clients that are not asked; none where
    /// no client is.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new<'n>(
        certificates: &Arc<Certificates>,
        plain: &Arc<ServerConfig>,
        protocols: &(impl IntoIterator<Item = &'n [u8]> + Clone),
    ) -> Result<Option<Arc<Self>>, TlsError> {
        if certificates.authorities().is_empty() {
            return Ok(None);
        }
        let of = |authority: &ClientAuthority| {
            let resolver = Arc::clone(certificates);
            server_config(resolver as _, Some(authority.asks()), protocols.clone())
        };
        let asking = certificates.authorities().iter().map(of).collect::<Result<_, _>>()?;
        let plain = Arc::clone(plain);
        let certificates = Arc::clone(certificates);
        Ok(Some(Arc::new(Self { plain, asking, certificates })))
    }

    /// That of a client that asks for this name, or for none, with whose certificates it is asked for.
    pub(crate) fn of(&self, name: Option<&str>) -> (&Arc<ServerConfig>, Option<AuthorityId>) {
        let asked = self.certificates.asked_for(name);
        (asked.map_or(&self.plain, |asked| &self.asking[asked.place()]), asked)
    }

    /// What is known of a client that was asked for a certificate of these, and has shown this.
    pub(crate) fn shown(
        &self,
        asked: AuthorityId,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> ClientShown {
        let authority = &self.certificates.authorities()[asked.place()];
        ClientShown { asked, verdict: authority.judge(chain, now) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustls::ClientConfig;
    use rustls::version::{TLS12, TLS13};

    use super::*;
    use crate::client_certs::ClientVerdict;
    use crate::layer::{Layer, NoCertificate};
    use crate::named::tests::{client, made, shake, write};
    use crate::named::{Named, OfHosts};
    use crate::{HTTP_1_1, Keys, server_name};

    fn keys(folder: &Path, name: &str) -> Keys {
        let file = |kind: &str| folder.join(format!("{name}.{kind}"));
        Keys { cert: file("pem"), key: file("key") }
    }

    /// A server whose one certificate is for all its sites, of which two ask for clients of one authority each, in a folder.
    fn server(folder: &Path, rest: Option<AuthorityId>) -> Arc<AskingConfigs> {
        let hosts = ["a.example", "b.example", "c.b.example", "open.example"];
        write(folder, "all", &made(&hosts, |_| {}));
        let authority = |params: &mut rcgen::CertificateParams| {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        };
        write(folder, "one", &made(&[], authority));
        write(folder, "two", &made(&[], authority));
        let of = |host: &str, place| OfHosts {
            hosts: vec![host.to_owned()],
            keys: None,
            asks: Some(AuthorityId::of_place(place)),
        };
        let named = Named {
            folder: None,
            may_be_empty: false,
            own: vec![of("a.example", 0), of(".b.example", 1)],
            otherwise: crate::Otherwise::Shown(keys(folder, "all")),
            authorities: vec![folder.join("one.pem"), folder.join("two.pem")],
            asks_unnamed: rest,
            asks_others: None,
        };
        let all = Arc::new(Certificates::read(&named).expect("right"));
        let plain = all.config(Some(HTTP_1_1)).expect("a configuration");
        let asking = AskingConfigs::new(&all, &plain, &Some(HTTP_1_1)).expect("a configuration");
        asking.expect("some are asked")
    }

    /// What a server knows of this client that asks for the name, and whether it has taken up a session.
    fn known(
        server: &Arc<AskingConfigs>,
        client: &Arc<ClientConfig>,
        name: &str,
    ) -> (Option<ClientShown>, bool) {
        let name = server_name(name).expect("a name");
        let mut client = Layer::client(client, &name);
        let mut server = Layer::asking_server(server);
        shake(&mut server, &mut client).expect("through");
        (server.client_shown(), server.is_resumed())
    }

    #[test]
    fn the_name_of_the_hello_says_whose_certificate_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let of_server = server(folder.path(), Some(AuthorityId::of_place(1)));
        for version in [&TLS12, &TLS13] {
            let client = client(version, &[folder.path().join("all.pem")]);
            for (name, expected) in [
                ("a.example", Some(0)),
                ("A.EXAMPLE", Some(0)),
                ("c.b.example", Some(1)),
                ("b.example", None),
                ("open.example", None),
            ] {
                let expected = expected.map(|place| ClientShown {
                    asked: AuthorityId::of_place(place),
                    verdict: ClientVerdict::Nothing,
                });
                assert_eq!(known(&of_server, &client, name).0, expected, "{version:?} {name}");
            }
        }
        let asked = |name| of_server.of(name).1.map(AuthorityId::place);
        assert_eq!(asked(None), Some(1));
        assert_eq!(asked(Some("nobody.example")), None);
    }

    #[test]
    fn a_ticket_of_one_list_of_authorities_is_taken_by_no_other_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let of_server = server(folder.path(), None);
        for version in [&TLS12, &TLS13] {
            // It offers what it has got for one name under all of them.
            let client = client(version, &[folder.path().join("all.pem")]);
            let resumed = |name: &str| known(&of_server, &client, name).1;
            assert!(!resumed("open.example"), "{version:?}");
            assert!(resumed("open.example"), "{version:?}");
            assert!(!resumed("a.example"), "{version:?}");
            assert!(resumed("a.example"), "{version:?}");
            assert!(!resumed("c.b.example"), "{version:?}");
            assert!(!resumed("open.example"), "{version:?}");
        }
    }

    #[test]
    fn a_session_that_is_taken_up_again_shows_who_it_was_and_is_judged_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let of_server = server(folder.path(), None);
        for version in [&TLS12, &TLS13] {
            let client = client(version, &[folder.path().join("all.pem")]);
            // One that it has issued itself.
            let client = keys(folder.path(), "all").shown_by(&client).expect("a certificate");
            for round in 0..3 {
                let (shown, is_resumed) = known(&of_server, &client, "a.example");
                assert_eq!(is_resumed, round > 0, "{version:?}");
                let verdict = shown.expect("it was asked").verdict;
                let path = folder.path().join("one.pem");
                let why = format!("no authority of {} has issued it", path.display());
                assert_eq!(verdict, ClientVerdict::Refused(why), "{version:?} {round}");
            }
        }
    }

    #[test]
    fn a_hello_in_pieces_is_read_and_what_is_none_gets_an_alert() {
        let folder = tempfile::tempdir().expect("a folder");
        let of_server = server(folder.path(), None);
        let client = client(&TLS13, &[folder.path().join("all.pem")]);
        let name = server_name("a.example").expect("a name");
        let mut hello = [0; 4096];
        let len = Layer::client(&client, &name).write(&mut hello);
        let mut server = Layer::asking_server(&of_server);
        for byte in hello[..len].chunks(1) {
            assert!(!server.wants_write());
            server.decrypt(&mut &byte[..]).expect("sound");
        }
        assert!(server.wants_write());
        for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\0\x05\x01\0\0\x01\0"] {
            let mut server = Layer::asking_server(&of_server);
            let error = server.decrypt(&mut &wrong[..]).expect_err("no hello");
            assert!(NoCertificate::of(&error).is_none());
            let last = server.fail(&error);
            assert_eq!((last.len(), last[0], last[5]), (7, 21, 2), "{last:?}");
        }
    }
}
