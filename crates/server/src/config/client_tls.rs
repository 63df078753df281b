//! What clients of a front end speak TLS with: nothing, one certificate for all, or certificates by the names that clients
//! ask for, of a folder and of sites.

use std::fmt;
use std::path::PathBuf;

use pollux_settings::{Keys, Location, one_of, path};

use crate::config::certificate;
use crate::route::host::HostName;
use crate::tls;

/// What clients of a front end speak TLS with.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum ClientTls {
    /// Nothing: it is clear text.
    #[default]
    Off,
    /// One certificate, whatever name a client asks for.
    One(tls::Keys),
    /// The certificates of this folder, each for the names that it has.
    Folder(PathBuf),
}

impl From<Option<tls::Keys>> for ClientTls {
    fn from(keys: Option<tls::Keys>) -> Self {
        keys.map_or(Self::Off, Self::One)
    }
}

impl From<tls::Keys> for ClientTls {
    fn from(keys: tls::Keys) -> Self {
        Self::One(keys)
    }
}

impl ClientTls {
    pub(super) fn read(keys: &mut Keys<'_>) -> Self {
        let about = "Speak TLS to clients, each of which is shown the certificate for the name that it asks for: a folder \
                     with NAME.pem and NAME.key, or both in NAME.pem, or NAME/fullchain.pem and NAME/privkey.pem. The \
                     names are those that the certificates have; a reload reads it again";
        let key = keys.key("certs", about).excludes(&["cert", "key"]);
        let folder = key.optional(&path().called("DIR"));
        let one = certificate(keys);
        folder.map_or_else(|| one.into(), Self::Folder)
    }

    /// Whether they speak TLS.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        *self != Self::Off
    }
}

/// What a site says of the certificate for its names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SiteTls {
    /// In place of that of the front end.
    pub(crate) keys: Option<tls::Keys>,
    /// Whether clients that ask for no name, or for one without a certificate, are shown it.
    pub(crate) is_default: bool,
    /// What clients are asked for themselves.
    pub(crate) clients: Option<ClientCerts>,
}

/// The certificates that a site asks its clients for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientCerts {
    /// The authorities that are believed.
    pub(crate) ca: PathBuf,
    /// Whether a client without one gets 403.
    pub(crate) is_required: bool,
}

impl fmt::Display for ClientCerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = if self.is_required { "" } else { ", or none" };
        write!(f, "client certificates by {}{others}", self.ca.display())
    }
}

/// Where a site says so.
pub(super) struct TlsPlaces {
    /// Its first name.
    host: String,
    cert: Option<Location>,
    default: Option<Location>,
    client_ca: Option<Location>,
}

impl SiteTls {
    pub(super) fn read(keys: &mut Keys<'_>, hosts: &[HostName]) -> (Self, TlsPlaces) {
        let about = "The certificate for the names of the site, in place of what the front end has for them: a PEM file, \
                     with those behind it that lead to an authority";
        let key = keys.key("cert", about).needs("key", "a certificate needs its key");
        let cert = key.optional(&path());
        let key = keys.key("key", "The PEM file with the private key of cert");
        let key_file = key.needs("cert", "belongs to a certificate").optional(&path());
        let about = "Show the certificate of this site to clients that ask for no name, or for one that no certificate is for; \
                     as of a site with *, which is one. Without either their handshake fails";
        let is_default = keys.key("default", about).switch();
        let about = "Ask clients for a certificate that one of the authorities in this PEM file has issued; backends get its subject and \
                     SHA-256 as X-Client-Cert-Subject and X-Client-Cert-SHA256, and in X-Client-Cert verified or none";
        let ca =
            keys.key("client_ca", about).example("\"/etc/pollux/clients.pem\"").optional(&path());
        let ways = [
            ("required", "answer 403 without one", true),
            ("optional", "take clients without one, too; one that is not believed gets 403", false),
        ];
        let about = "Whether clients have to have that certificate";
        let key = keys.key("client_cert", about).default("required");
        let key = key.needs("client_ca", "applies only to certificates of clients");
        let is_required = key.one(&one_of("way", ways));
        let clients = ca.map(|ca| ClientCerts { ca, is_required });
        let certificate = cert.zip(key_file).map(|(cert, key)| tls::Keys { cert, key });
        let has_name = hosts.iter().any(|host| matches!(host, HostName::Exact(_)));
        if is_default && certificate.is_none() && !has_name && keys.is_right() {
            keys.note("default", "the site has no certificate: it names no host; expected a name in host, or cert and key");
        }
        let places = TlsPlaces {
            host: hosts.first().map(ToString::to_string).unwrap_or_default(),
            cert: keys.location("cert"),
            default: keys.location("default").filter(|_| is_default),
            client_ca: keys.location("client_ca"),
        };
        (Self { keys: certificate, is_default, clients }, places)
    }
}

/// Notes what sites say of certificates in vain, where their front ends speak TLS or do not.
pub(super) fn note_useless(keys: &mut Keys<'_>, places: &[TlsPlaces], speaks_tls: bool) {
    if !speaks_tls {
        for TlsPlaces { cert, default, client_ca, .. } in places {
            let said = [("cert", cert), ("client_ca", client_ca), ("default", default)];
            let said = said.into_iter().find_map(|(key, place)| Some((key, place.as_ref()?)));
            let Some((key, place)) = said else { continue };
            let why = format!(
                "{key}: has no effect: no front end with the sites speaks TLS; expected certs, or cert and key, in one"
            );
            keys.note_at(place.clone(), why);
        }
    }
    let mut defaults = places.iter().filter_map(|one| Some((&one.host, one.default.as_ref()?)));
    if let (Some((host, _)), Some((_, place))) = (defaults.next(), defaults.next()) {
        let why = format!("default: the site of {host} is the default one; expected one site");
        keys.note_at(place.clone(), why);
    }
}
