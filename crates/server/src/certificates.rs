//! What the clients of each front end are shown, read from the files that the settings name: one certificate, or many by
//! name. Asked when a connection of TLS is accepted, for each request whether its host is one of the certificate that its
//! client has seen, and by `pollux serve explain`.

use std::path::PathBuf;
use std::sync::Arc;

use pollux_tls::{
    AskingConfigs, AuthorityId, Certificates, Named, OfHosts, Otherwise, ServerConfig, ShownId, Tls,
};

use crate::config::sites::{SiteConfig, Sites};
use crate::config::{ClientTls, Frontend, Http2, Mode, ProxyConfig};
use crate::route::host::{HOST_BYTES_MAX, HostName, folded};
use crate::tls::{Certificate, TlsError};

/// Most names without a certificate that are listed.
const MISSING_MAX: usize = 10;

/// What clients of a front end are shown.
#[derive(Clone, Debug)]
pub(crate) enum FrontCertificates {
    /// The same, whatever name they ask for.
    One(Certificate),
    /// With what asks some of them for certificates of their own, where that is so.
    ByName(Arc<Certificates>, Arc<ServerConfig>, Option<Arc<AskingConfigs>>),
}

impl FrontCertificates {
    /// Reads those of a front end; none where clients speak clear text.
    ///
    /// # Errors
    /// A file or folder can't be used, or a name of a site has no certificate: the message has its place in the settings.
    pub(crate) fn read(
        front: &Frontend,
        sites: &Sites,
        http2: &Http2,
    ) -> Result<Option<Self>, TlsError> {
        let names: &[&[u8]] = if front.mode == Mode::Http { http2.protocols() } else { &[] };
        let protocols = names.iter().copied();
        if let Some(named) = named(front, sites) {
            let mut all = Certificates::read(&named)?;
            let later = missing(front, sites, &all).filter(|(host, _)| is_got_later(host, sites));
            let later = later.map(|(_, why)| format!("{why}; pollux-acme gets one"));
            let later: Vec<String> = later.take(MISSING_MAX).collect();
            later.into_iter().for_each(|line| all.note(line));
            let all = Arc::new(all);
            let config = all.config(protocols.clone())?;
            let asking = AskingConfigs::new(&all, &config, &protocols)?;
            let by_name = Self::ByName(all, config, asking);
            by_name.note_missing(front, sites)?;
            return Ok(Some(by_name));
        }
        match &front.tls {
            ClientTls::One(keys) => {
                Certificate::open(keys.clone(), protocols).map(Self::One).map(Some)
            }
            ClientTls::Off | ClientTls::Folder(_) => Ok(None),
        }
    }

    /// What its connections have in common.
    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        match self {
            Self::One(certificate) => certificate.config(),
            Self::ByName(_, config, _) => config,
        }
    }

    /// The TLS of a connection that was accepted.
    pub(crate) fn accepted(&self) -> Tls {
        match self {
            Self::ByName(.., Some(asking)) => Tls::asking(asking),
            Self::One(_) | Self::ByName(.., None) => Tls::accepted(self.config()),
        }
    }

    /// What clients will not like about them, in lines.
    pub(crate) fn remarks(&self) -> Vec<String> {
        match self {
            Self::One(certificate) => certificate.remarks(),
            Self::ByName(all, ..) => all.remarks(),
        }
    }

    /// What a client has seen that has asked for this name, or for none; nothing where all see the same.
    pub(crate) fn shown_for(&self, name: Option<&str>) -> Option<ShownId> {
        match self {
            Self::One(_) => None,
            Self::ByName(all, ..) => all.shown_for(name),
        }
    }

    /// Whether a client that has seen this would be shown the same for the host of a request.
    #[inline]
    pub(crate) fn is_of_host(&self, shown: Option<ShownId>, host: Option<&str>) -> bool {
        let Self::ByName(all, ..) = self else { return true };
        let mut room = [0; HOST_BYTES_MAX];
        let host = host.and_then(|host| folded(host.as_bytes(), &mut room));
        let host = host.and_then(|host| str::from_utf8(host).ok());
        all.shown_for(host) == shown
    }

    /// Whether there is a certificate for each host of other sites, of those of a folder.
    ///
    /// # Errors
    /// For one there is none; the message has its place.
    pub(crate) fn note_missing(&self, front: &Frontend, sites: &Sites) -> Result<(), TlsError> {
        let Self::ByName(all, ..) = self else { return Ok(()) };
        let mut missing = missing(front, sites, all);
        match missing.find(|(host, _)| !is_got_later(host, sites)) {
            None => Ok(()),
            Some((_, why)) => Err(TlsError::new(format!("{why}; expected one, or cert and key"))),
        }
    }

    /// Each file, with when its certificate expires in seconds since 1970, where that can be read.
    pub(crate) fn expiries(&self) -> Vec<(PathBuf, u64)> {
        match self {
            Self::One(one) => {
                one.expires_s().map(|end| (one.keys().cert.clone(), end)).into_iter().collect()
            }
            Self::ByName(all, ..) => {
                let of_pair =
                    |pair: &pollux_tls::Pair| Some((pair.path().to_owned(), pair.expires_s()?));
                all.pairs().iter().filter_map(of_pair).collect()
            }
        }
    }
}

/// What clients of a front end that ask for this host are shown, in words; none where they get no certificate.
///
/// # Errors
/// As [`FrontCertificates::read`].
pub(crate) fn described(
    front: &Frontend,
    config: &ProxyConfig,
    host: &str,
) -> Result<Option<String>, TlsError> {
    if let (ClientTls::One(keys), None) = (&front.tls, named(front, &config.sites)) {
        return Ok(Some(format!("{}, whatever name is asked for", keys.cert.display())));
    }
    let read = FrontCertificates::read(front, &config.sites, &config.http2)?;
    let Some(FrontCertificates::ByName(all, ..)) = read else { return Ok(None) };
    let shown = all.shown_for(Some(host)).map(|id| all.shown(id).map(ToString::to_string));
    Ok(shown.map(|pairs| pairs.collect::<Vec<_>>().join("; ")))
}

/// The hosts of sites for which the folder of a front end has no certificate, with that in words.
fn missing<'s>(
    front: &'s Frontend,
    sites: &'s Sites,
    all: &'s Certificates,
) -> impl Iterator<Item = (&'s HostName, String)> {
    let folder = match &front.tls {
        ClientTls::Folder(folder) if front.group.is_none() => Some(folder.display()),
        _ => None,
    };
    let of_sites = if folder.is_some() { &sites.all[..] } else { &[] };
    let hosts = of_sites.iter().flat_map(|site| site.hosts.iter().zip(&site.host_places));
    let without = hosts.filter(|(host, _)| match host {
        // Nobody asks for an address by name.
        HostName::Exact(name) => !is_address(name) && !all.is_for(name),
        HostName::Below(domain) => !all.is_for_some_below(domain),
        HostName::Any => false,
    });
    let folder = folder.map(|folder| folder.to_string()).unwrap_or_default();
    without.map(move |(host, place)| {
        let there = match all.names() {
            names if names.is_empty() => "there is no name".to_owned(),
            names => format!("there are {names}"),
        };
        (host, format!("{place}: host: no certificate in {folder} is for {host} ({there})"))
    })
}

/// Whether a certificate for this host may be missing, as it is got once the server answers challenges.
fn is_got_later(host: &HostName, sites: &Sites) -> bool {
    sites.challenges.is_some() && matches!(host, HostName::Exact(_))
}

/// Whether a host is an address.
pub(crate) fn is_address(name: &str) -> bool {
    name.starts_with('[') || name.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Whether clients of each front end are shown the same certificates by both settings, and asked for the same, as long as the
/// files are the same.
pub(crate) fn are_shown_alike(one: &ProxyConfig, other: &ProxyConfig) -> bool {
    let all = |config: &ProxyConfig| {
        config.frontends.iter().map(|front| named(front, &config.sites)).collect::<Vec<_>>()
    };
    all(one) == all(other)
}

/// Which certificates clients of a front end are shown by name; none where there are none, or one for all.
fn named(front: &Frontend, all: &Sites) -> Option<Named> {
    // A front end that leads to backends has nothing to do with sites.
    let sites = if front.group.is_none() { &all.all[..] } else { &[] };
    let (folder, one) = match &front.tls {
        ClientTls::Off => return None,
        ClientTls::One(_)
            if sites.iter().all(|site| site.tls.keys.is_none() && site.tls.clients.is_none()) =>
        {
            return None;
        }
        ClientTls::One(keys) => (None, Some(keys)),
        ClientTls::Folder(folder) => (Some(folder.clone()), None),
    };
    let of_site = |site: &SiteConfig| {
        let first = site.hosts.iter().find_map(|host| match host {
            HostName::Exact(name) => Some(name.clone()),
            HostName::Below(_) | HostName::Any => None,
        });
        match (&site.tls.keys, first) {
            (Some(keys), _) => Some(Otherwise::Shown(keys.clone())),
            (None, Some(name)) => Some(Otherwise::AsFor(name)),
            (None, None) => None,
        }
    };
    let default_site = sites.iter().find(|site| site.tls.is_default);
    let default = default_site.and_then(of_site);
    let any = sites.iter().find(|site| site.hosts.contains(&HostName::Any));
    let authorities = client_authorities(sites);
    let asks = |site: &SiteConfig| authority_of(site, &authorities);
    let asks_others = any.and_then(asks);
    let asks_unnamed = default_site.map_or(asks_others, asks);
    let of_any = any.and_then(|site| site.tls.keys.clone()).map(Otherwise::Shown);
    let one = one.cloned().map(Otherwise::Shown);
    let own = sites.iter().map(|site| OfHosts {
        hosts: site
            .hosts
            .iter()
            .filter_map(|host| match host {
                HostName::Exact(name) | HostName::Below(name) => Some(name.clone()),
                HostName::Any => None,
            })
            .collect(),
        keys: site.tls.keys.clone(),
        asks: asks(site),
    });
    // Where no site has one, no name has to be looked for among them.
    let has_own = sites.iter().any(|site| site.tls.keys.is_some() || site.tls.clients.is_some());
    let own = own.filter(|_| has_own).collect();
    let otherwise = default.or(of_any).or(one).unwrap_or_default();
    let may_be_empty = front.group.is_none() && all.challenges.is_some();
    Some(Named { folder, may_be_empty, own, otherwise, authorities, asks_unnamed, asks_others })
}

/// The files of authorities that sites ask clients for, each once: their places are those of [`AuthorityId`].
pub(crate) fn client_authorities(sites: &[SiteConfig]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for clients in sites.iter().filter_map(|site| site.tls.clients.as_ref()) {
        if !all.contains(&clients.ca) {
            all.push(clients.ca.clone());
        }
    }
    all
}

/// Whose certificates this site asks its clients for.
pub(crate) fn authority_of(site: &SiteConfig, all: &[PathBuf]) -> Option<AuthorityId> {
    let clients = site.tls.clients.as_ref()?;
    all.iter().position(|path| *path == clients.ca).map(AuthorityId::of_place)
}

#[cfg(test)]
mod tests {
    //! Who is shown what, by what a file says, and what it says in vain.

    use std::path::Path;

    use pollux_tls::{AuthorityId, Named, Otherwise};

    use super::named;
    use crate::config::serve_or_proxy::proxy_of;

    /// A front end with this, and sites with these keys each.
    fn file(front: &str, sites: &[&str]) -> String {
        let sites = sites
            .iter()
            .map(|keys| format!("[[site]]\n{keys}\n[[site.route]]\npath = \"/\"\nreply = 1\n"));
        format!("[[frontend]]\nlisten = \":443\"\n{front}\n{}", sites.collect::<String>())
    }

    fn of(front: &str, sites: &[&str]) -> Option<Named> {
        let config = proxy_of(&file(front, sites)).expect("right");
        named(&config.frontends[0], &config.sites)
    }

    const FOLDER: &str = "certs = \"/certs\"";
    const ONE: &str = "cert = \"one.pem\"\nkey = \"one.key\"";
    const OWN: &str = "cert = \"own.pem\"\nkey = \"own.key\"";

    fn cert(otherwise: &Otherwise) -> Option<&str> {
        match otherwise {
            Otherwise::Shown(keys) => keys.cert.to_str(),
            Otherwise::AsFor(_) | Otherwise::Nothing => None,
        }
    }

    #[test]
    fn one_certificate_for_all_stays_one_until_a_site_has_its_own() {
        let site = "host = \"a.example\"";
        assert_eq!(of("", &[site]), None);
        assert_eq!(of(ONE, &[site]), None);
        let with_own = of(ONE, &[site, &format!("host = \"b.example\"\n{OWN}")]).expect("two");
        assert_eq!(
            (with_own.folder.as_deref(), cert(&with_own.otherwise)),
            (None, Some("one.pem"))
        );
        let shown: Vec<_> =
            with_own.own.iter().map(|of| (&of.hosts[..], of.keys.is_some())).collect();
        assert_eq!(
            shown,
            [(&["a.example".to_owned()][..], false), (&["b.example".to_owned()][..], true)]
        );
    }

    #[test]
    fn without_a_name_the_default_site_is_shown_or_that_of_all_others_and_else_nothing() {
        let of_folder = |sites: &[&str]| of(FOLDER, sites).expect("by name");
        let site = "host = [\"*.a.example\", \"www.a.example\"]";
        let plain = of_folder(&[site]);
        assert_eq!(plain.folder.as_deref(), Some(Path::new("/certs")));
        assert_eq!((plain.otherwise, plain.own.len()), (Otherwise::Nothing, 0));
        let default = of_folder(&[&format!("{site}\ndefault = true")]).otherwise;
        assert_eq!(default, Otherwise::AsFor("www.a.example".to_owned()));
        let any = of_folder(&[site, &format!("host = \"*\"\n{OWN}")]);
        assert_eq!(cert(&any.otherwise), Some("own.pem"));
        // A site for all others without one of its own has none that they could be shown.
        assert_eq!(of_folder(&[site, "host = \"*\""]).otherwise, Otherwise::Nothing);
    }

    #[test]
    fn names_are_asked_for_what_their_site_asks_for_and_others_for_that_of_all_or_the_default_one()
    {
        let [one, two] = ["one", "two"].map(|ca| format!("client_ca = \"{ca}.pem\""));
        let asks = |sites: &[&str]| {
            let named = of(ONE, sites).expect("by name");
            let asked =
                named.own.iter().map(|of| (of.hosts.join(" "), of.asks)).collect::<Vec<_>>();
            (named.authorities.len(), asked, named.asks_unnamed, named.asks_others)
        };
        let id = |place| Some(AuthorityId::of_place(place));
        let a = format!("host = \"a\"\n{one}");
        let b = format!("host = \"*.b\"\n{two}");
        let again = format!("host = \"c\"\n{one}\nclient_cert = \"optional\"");
        let asked = [("a", id(0)), (".b", id(1)), ("c", id(0)), ("d", None)];
        let asked = asked.map(|(host, asks)| (host.to_owned(), asks)).to_vec();
        assert_eq!(asks(&[&a, &b, &again, "host = \"d\""]), (2, asked, None, None));
        let any = format!("host = \"*\"\n{two}");
        assert_eq!(asks(&[&a, &any]).3, id(1));
        assert_eq!(asks(&[&a, &any]).2, id(1));
        let default = format!("{a}\ndefault = true");
        assert_eq!((asks(&[&default, &any]).2, asks(&[&default, &any]).3), (id(0), id(1)));
        assert_eq!(asks(&[&any, "host = \"d\"\ndefault = true"]).2, None);
    }

    #[test]
    fn a_check_says_whose_certificates_clients_are_asked_for() {
        let config =
            proxy_of(&file(FOLDER, &["host = \"a\"\nclient_ca = \"ca.pem\""])).expect("right");
        let summary = config.sites.summary(&config.groups);
        assert!(summary.starts_with("site a\n  client certificates by ca.pem\n"), "{summary}");
        let more = "host = \"a\"\nclient_ca = \"ca.pem\"\nclient_cert = \"optional\"";
        let config = proxy_of(&file(FOLDER, &[more])).expect("right");
        let summary = config.sites.summary(&config.groups);
        assert!(summary.contains("\n  client certificates by ca.pem, or none\n"), "{summary}");
    }

    #[test]
    fn what_is_said_of_certificates_in_vain_has_its_place() {
        for (front, sites, expected) in [
            (
                "certs = \"/certs\"\ncert = \"a\"\nkey = \"b\"",
                &["host = \"a\""][..],
                "p.toml:3:9: certs: can't be combined with cert; expected one of them",
            ),
            (
                "",
                &[&format!("host = \"a\"\n{OWN}")],
                "p.toml:6:8: cert: has no effect: no front end with the sites speaks TLS; expected certs, or cert and \
                 key, in one",
            ),
            (
                "",
                &["host = \"a\"\ndefault = true"],
                "p.toml:6:11: default: has no effect: no front end with the sites speaks TLS",
            ),
            (
                "",
                &["host = \"a\"\nclient_ca = \"ca.pem\""],
                "p.toml:6:13: client_ca: has no effect: no front end with the sites speaks TLS; expected certs, or cert and key, \
                 in one",
            ),
            (
                FOLDER,
                &["host = \"a\"\nclient_cert = \"optional\""],
                "p.toml:6:15: client_cert: applies only to certificates of clients; expected client_ca as well",
            ),
            (
                FOLDER,
                &["host = \"a\"\nclient_ca = \"ca.pem\"\nclient_cert = \"maybe\""],
                "p.toml:7:15: client_cert = \"maybe\": no such way; expected required, optional",
            ),
            (
                FOLDER,
                &["host = \"a\"\ncert = \"own.pem\""],
                "p.toml:6:8: cert: a certificate needs its key; expected key as well",
            ),
            (
                FOLDER,
                &["host = \"a\"\ndefault = true", "host = \"b\"\ndefault = true"],
                "p.toml:12:11: default: the site of a is the default one; expected one site",
            ),
            (
                FOLDER,
                &["host = \"*.a\"\ndefault = true"],
                "p.toml:6:11: default: the site has no certificate: it names no host; expected a name in host, or cert and \
                 key",
            ),
            (
                "certs = \"/certs\"\nredirect = \"https\"",
                &["host = \"a\""],
                "p.toml:4:12: redirect: leads to itself: clients speak TLS here",
            ),
        ] {
            let wrong = proxy_of(&file(front, sites)).expect_err("a mistake");
            assert!(wrong.starts_with(expected), "{front} {sites:?}:\n{wrong}\n{expected}");
        }
    }
}
