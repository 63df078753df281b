//! Certificates of many names: which one a client is shown by the name that it asks for (SNI, RFC 6066 3).
//!
//! ```text
//!  NAME.pem and NAME.key ──┐                          ┌─► www.example.org ─┐
//!  NAME.pem with its key ──┼─► names that it has ─────┼─► *.example.org   ─┼─► the one whose key the client takes
//!  NAME/fullchain.pem and ─┘   (SAN)                  └─► otherwise       ─┘
//!  NAME/privkey.pem
//! ```
//!
//! A name is looked for among those that have a certificate of their own, then among those of the folder, itself before
//! `*.` of its domain, which stands for one label. What is read is never changed: a server that reads its folder anew
//! makes a new one.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureAlgorithm};
use webpki::EndEntityCert;

use crate::client_certs::{AuthorityId, ClientAuthority};
use crate::keys::{Keys, TlsError, Validity, remarks, server_config};
use crate::trust::date;

/// Most certificates of one folder.
pub const CERTIFICATES_MAX: usize = 10_000;
/// Most names that a line lists.
const LISTED_MAX: usize = 5;

/// Which certificates there are, and who is shown which.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Named {
    /// Each of these is shown to clients that ask for a name that it has.
    pub folder: Option<PathBuf>,
    /// Whether there may be none at all: then handshakes fail until some are read.
    pub may_be_empty: bool,
    /// Names for which the folder does not decide, or alone decides.
    pub own: Vec<OfHosts>,
    /// For clients that ask for no name, and for names that no other certificate is for.
    pub otherwise: Otherwise,
    /// PEM files with authorities whose clients are known.
    pub authorities: Vec<PathBuf>,
    /// Whose certificates clients are asked for that ask for no name, and for one that is not in `own`.
    pub asks_unnamed: Option<AuthorityId>,
    pub asks_others: Option<AuthorityId>,
}

/// Names of hosts with what is shown for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfHosts {
    /// Each is one name in small letters, or, with a dot in front, all below a domain.
    pub hosts: Vec<String>,
    /// None where the folder decides, whatever is said of a domain above.
    pub keys: Option<Keys>,
    /// Whose certificates clients are asked for.
    pub asks: Option<AuthorityId>,
}

/// What is shown where nothing else is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Otherwise {
    /// Nothing: the handshake fails with `unrecognized_name`.
    #[default]
    Nothing,
    Shown(Keys),
    /// What those see who ask for this name.
    AsFor(String),
}

/// What clients are shown that ask for a certain name: equal where it is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShownId(NonZeroU16);

impl ShownId {
    fn of_place(place: usize) -> Result<Self, TlsError> {
        let number = u16::try_from(place + 1).ok().and_then(NonZeroU16::new);
        number.map(Self).ok_or_else(|| {
            TlsError::new(format!(
                "names with more than {} different certificates; expected fewer",
                u16::MAX - 1
            ))
        })
    }

    fn place(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

/// The certificates of a folder and those beside it, by name.
#[derive(Debug)]
pub struct Certificates {
    pairs: Box<[Pair]>,
    /// By [`ShownId`]: places of pairs, one for each kind of key, the one that costs least to sign with first.
    sets: Box<[Box<[usize]>]>,
    /// Of the folder: one name, or, with its dot in front, one label below a domain.
    by_name: HashMap<Box<str>, ShownId>,
    /// Names, and with a dot in front domains, of which something is said apart from the folder.
    own: HashMap<Box<str>, Own>,
    otherwise: Option<ShownId>,
    authorities: Box<[ClientAuthority]>,
    asks_unnamed: Option<AuthorityId>,
    asks_others: Option<AuthorityId>,
    /// Why some are shown to nobody, or not to all.
    notes: Vec<String>,
}

/// What is said of some names.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// None without a certificate of their own.
    shown: Option<ShownId>,
    asks: Option<AuthorityId>,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct Pair {
    keys: Keys,
    certified: Arc<CertifiedKey>,
    /// In small letters, as the certificate has them: `*.example.org` too.
    names: Vec<String>,
    validity: Validity,
}

impl Pair {
    fn read(keys: Keys) -> Result<Self, TlsError> {
        let certified = keys.certified(&keys.load()?)?;
        let read = certified.cert.first().and_then(|one| EndEntityCert::try_from(one).ok());
        let names = read
            .as_ref()
            .map(|read| read.valid_dns_names().map(str::to_ascii_lowercase).collect::<Vec<_>>());
        let validity = read.as_ref().map(Validity::of).unwrap_or_default();
        Ok(Self { keys, names: names.unwrap_or_default(), validity, certified })
    }

    /// The file that it is in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.keys.cert
    }

    /// The names of hosts that it has.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// When it expires, in seconds since 1970, where that can be read.
    #[must_use]
    pub fn expires_s(&self) -> Option<u64> {
        self.validity.not_after.map(|end| end.as_secs())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.certified.key.algorithm()
    }

    fn is_for(&self, name: &str) -> bool {
        self.names.iter().any(|own| match own.strip_prefix('*') {
            Some(domain) => one_label_below(name) == Some(domain),
            None => own == name,
        })
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path().display(), listed(&self.names))?;
        match self.validity.not_after {
            Some(end) => write!(f, ", until {}", date(end)),
            None => Ok(()),
        }
    }
}

impl Certificates {
    /// Reads all of them.
    ///
    /// # Errors
    /// The folder or a file can't be read, or what is in it can't be used: the message names it.
    pub fn read(named: &Named) -> Result<Self, TlsError> {
        let mut build = Build::default();
        let of_folder = match &named.folder {
            Some(folder) => pairs_in(folder)?,
            None => Vec::new(),
        };
        let by_name = build.add_folder(of_folder)?;
        let mut own = HashMap::new();
        for OfHosts { hosts, keys, asks } in &named.own {
            let shown = keys.as_ref().map(|keys| build.add(keys)).transpose()?;
            let said = Own { shown, asks: *asks };
            own.extend(hosts.iter().map(|host| (host.as_str().into(), said)));
        }
        let otherwise = match &named.otherwise {
            Otherwise::Shown(keys) => Some(build.add(keys)?),
            Otherwise::Nothing | Otherwise::AsFor(_) => None,
        };
        let Build { pairs, sets, notes, .. } = build;
        let read = named.authorities.iter().map(|path| ClientAuthority::read(path));
        let mut all = Self {
            pairs: pairs.into(),
            sets: sets.into(),
            by_name,
            own,
            otherwise,
            authorities: read.collect::<Result<_, _>>()?,
            asks_unnamed: named.asks_unnamed,
            asks_others: named.asks_others,
            notes,
        };
        if let Otherwise::AsFor(name) = &named.otherwise {
            all.otherwise = all.of_name(name);
        }
        if let (true, Some(folder)) = (all.pairs.is_empty() && !named.may_be_empty, &named.folder) {
            return Err(TlsError::of_file(
                folder,
                "no certificate in it; expected NAME.pem and NAME.key, or NAME/fullchain.pem and NAME/privkey.pem",
            ));
        }
        Ok(all)
    }

    /// What connections have in common that are shown them; as of [`Certificate`](crate::Certificate).
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn config<'n>(
        self: &Arc<Self>,
        protocols: impl IntoIterator<Item = &'n [u8]>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        server_config(Arc::clone(self) as _, None, protocols)
    }

    pub(crate) fn authorities(&self) -> &[ClientAuthority] {
        &self.authorities
    }

    /// Whose certificates a client is asked for that asks for this name, or for none.
    #[must_use]
    pub fn asked_for(&self, name: Option<&str>) -> Option<AuthorityId> {
        let Some(name) = name else { return self.asks_unnamed };
        self.own(&folded(name)).map_or(self.asks_others, |own| own.asks)
    }

    /// What a client is shown that asks for this name, or for none; none where the handshake fails.
    #[must_use]
    pub fn shown_for(&self, name: Option<&str>) -> Option<ShownId> {
        name.and_then(|name| self.of_name(name)).or(self.otherwise)
    }

    /// The certificates of one kind of name, one for each kind of key.
    pub fn shown(&self, id: ShownId) -> impl Iterator<Item = &Pair> {
        self.sets[id.place()].iter().map(|place| &self.pairs[*place])
    }

    /// All of them.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Whether a client that asks for this name sees a certificate that is for it, or that was said to be.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        let name = folded(name);
        let is_for = |id| self.shown(id).any(|pair| pair.is_for(&name));
        self.of_name(&name).is_some() || self.otherwise.is_some_and(is_for)
    }

    /// Whether there is one for some name below a domain, which has its dot in front.
    #[must_use]
    pub fn is_for_some_below(&self, domain: &str) -> bool {
        let is_own =
            self.own.iter().any(|(name, own)| own.shown.is_some() && name.ends_with(domain));
        is_own || self.by_name.keys().any(|name| name.ends_with(domain))
    }

    /// Names that there are certificates for, in words.
    #[must_use]
    pub fn names(&self) -> String {
        let mut names: Vec<&String> = self.pairs.iter().flat_map(|pair| &pair.names).collect();
        names.sort();
        names.dedup();
        listed(&names)
    }

    /// Has this line be one of [`Certificates::remarks`].
    pub fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    /// What clients will not like about those that are shown, and which are not and why, in lines.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let now = UnixTime::now();
        let of_pair = |pair: &Pair| remarks(pair.path(), &pair.certified.cert, now);
        let places = self.sets.iter().flatten().copied().collect::<std::collections::BTreeSet<_>>();
        let dates = places.into_iter().flat_map(|place| of_pair(&self.pairs[place]));
        dates.chain(self.notes.iter().cloned()).collect()
    }

    /// What is said of a name itself, or of the longest domain above it.
    fn own(&self, name: &str) -> Option<Own> {
        // That is how a domain is kept, which itself is none of the names below it.
        if self.own.is_empty() || name.starts_with('.') {
            return None;
        }
        let domains = name.match_indices('.').map(|(at, _)| &name[at..]);
        let mut names = std::iter::once(name).chain(domains);
        names.find_map(|name| self.own.get(name)).copied()
    }

    fn of_name(&self, name: &str) -> Option<ShownId> {
        let name = folded(name);
        // That is how a domain is kept, which itself is none of the names below it.
        if name.starts_with('.') {
            return None;
        }
        if let Some(Own { shown: Some(shown), .. }) = self.own(&name) {
            return Some(shown);
        }
        let exact = self.by_name.get(&*name);
        exact.or_else(|| self.by_name.get(one_label_below(&name)?)).copied()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let id = self.shown_for(client.server_name())?;
        let takes =
            |pair: &&Pair| pair.certified.key.choose_scheme(client.signature_schemes()).is_some();
        // Of none that it takes the handshake says so itself.
        let pair = self.shown(id).find(takes).or_else(|| self.shown(id).next())?;
        Some(Arc::clone(&pair.certified))
    }
}

/// Certificates on their way to be found by name.
#[derive(Default)]
struct Build {
    pairs: Vec<Pair>,
    sets: Vec<Box<[usize]>>,
    known: HashMap<Box<[usize]>, ShownId>,
    notes: Vec<String>,
}

impl Build {
    /// Adds one that is shown by what is said elsewhere.
    fn add(&mut self, keys: &Keys) -> Result<ShownId, TlsError> {
        let known = self.pairs.iter().position(|pair| pair.keys == *keys);
        let place = match known {
            Some(place) => place,
            None => {
                self.pairs.push(Pair::read(keys.clone())?);
                self.pairs.len() - 1
            }
        };
        self.set(Box::new([place]))
    }

    fn set(&mut self, places: Box<[usize]>) -> Result<ShownId, TlsError> {
        if let Some(id) = self.known.get(&places) {
            return Ok(*id);
        }
        let id = ShownId::of_place(self.sets.len())?;
        self.sets.push(places.clone());
        self.known.insert(places, id);
        Ok(id)
    }

    /// Finds out which of a folder's are shown for which of their names.
    fn add_folder(&mut self, pairs: Vec<Pair>) -> Result<HashMap<Box<str>, ShownId>, TlsError> {
        self.pairs = pairs;
        let now = UnixTime::now();
        let mut of_names: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, pair) in self.pairs.iter().enumerate() {
            if pair.names.is_empty() {
                self.notes.push(format!(
                    "{}: the certificate has no name of a host (subjectAltName), so nobody is shown it",
                    pair.path().display()
                ));
            }
            for name in &pair.names {
                of_names.entry(name.clone()).or_default().push(place);
            }
        }
        let mut by_name = HashMap::new();
        // Who is not shown for which names, as another one is.
        let mut passed_over: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
        for (name, places) in of_names {
            let mut best: Vec<usize> = Vec::new();
            for place in places {
                let kind = self.pairs[place].algorithm();
                let Some(other) =
                    best.iter_mut().find(|other| self.pairs[**other].algorithm() == kind)
                else {
                    best.push(place);
                    continue;
                };
                let (loser, winner) = if self.rank(place, now) > self.rank(*other, now) {
                    (std::mem::replace(other, place), place)
                } else {
                    (place, *other)
                };
                passed_over.entry((loser, winner)).or_default().push(name.clone());
            }
            best.sort_by_key(|place| cost(self.pairs[*place].algorithm()));
            let id = self.set(best.into())?;
            by_name.insert(name.strip_prefix('*').unwrap_or(&name).into(), id);
        }
        for ((loser, winner), names) in passed_over {
            let is_valid = |place: usize| self.pairs[place].validity.holds(now);
            let why = if is_valid(winner) && !is_valid(loser) {
                "is valid now"
            } else if self.rank(winner, now).1 > self.rank(loser, now).1 {
                "is newer"
            } else {
                "comes first and is as new"
            };
            self.notes.push(format!(
                "{}: not shown for {}, as {} {why}",
                self.pairs[loser].path().display(),
                listed(&names),
                self.pairs[winner].path().display()
            ));
        }
        Ok(by_name)
    }

    /// Of two for one name the greater one is shown.
    fn rank(&self, place: usize, now: UnixTime) -> (bool, u64) {
        let validity = &self.pairs[place].validity;
        (validity.holds(now), validity.not_before.map_or(0, |begin| begin.as_secs()))
    }
}

/// By what a handshake costs the server.
fn cost(algorithm: SignatureAlgorithm) -> u8 {
    match algorithm {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        _ => 2,
    }
}

/// The certificates of a folder, in the order of their names.
fn pairs_in(folder: &Path) -> Result<Vec<Pair>, TlsError> {
    let wrong = |error: std::io::Error| TlsError::of_file(folder, error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        found.extend(keys_at(path));
        if found.len() > CERTIFICATES_MAX {
            return Err(TlsError::of_file(
                folder,
                format!(
                    "more than {CERTIFICATES_MAX} certificates in it; expected as many at most"
                ),
            ));
        }
    }
    found.sort_by(|one, other| one.cert.cmp(&other.cert));
    found.into_iter().map(Pair::read).collect()
}

/// What an entry of a folder of certificates is; none of what has another name.
fn keys_at(path: PathBuf) -> Option<Keys> {
    let is_hidden = path.file_name()?.as_encoded_bytes().starts_with(b".");
    if is_hidden {
        return None;
    }
    // Through links, as certbot makes them.
    if path.is_dir() {
        let cert = path.join("fullchain.pem");
        return cert.exists().then(|| Keys { key: path.join("privkey.pem"), cert });
    }
    if path.extension()? != "pem" {
        return None;
    }
    let key = path.with_extension("key");
    let key = if key.exists() { key } else { path.clone() };
    Some(Keys { cert: path, key })
}

/// A name as it is looked for: in small letters, without the dot at its end.
fn folded(name: &str) -> Cow<'_, str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let has_capitals = name.bytes().any(|byte| byte.is_ascii_uppercase());
    if has_capitals { name.to_ascii_lowercase().into() } else { name.into() }
}

/// The domain of a name, with its dot in front; none of a name that is one label.
fn one_label_below(name: &str) -> Option<&str> {
    name.find('.').filter(|at| *at > 0).map(|at| &name[at..])
}

/// Names in words, so many at most.
fn listed(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(LISTED_MAX).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(LISTED_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::sync::Mutex;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::client::{
        ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
        Tls13ClientSessionValue,
    };
    use rustls::crypto::ring;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::version::{TLS12, TLS13};
    use rustls::{
        ClientConfig, DigitallySignedStruct, Error, NamedGroup, RootCertStore, SignatureScheme,
        SupportedProtocolVersion,
    };

    use super::*;
    use crate::keys::certificates;
    use crate::layer::{Layer, NoCertificate};
    use crate::{HTTP_1_1, server_name};

    /// A self-signed certificate with its key, as PEM.
    pub(crate) fn made(
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
    }

    /// Writes one as NAME.pem and NAME.key.
    pub(crate) fn write(folder: &Path, name: &str, (cert, key): &(String, String)) {
        fs::write(folder.join(format!("{name}.pem")), cert).expect("written");
        fs::write(folder.join(format!("{name}.key")), key).expect("written");
    }

    fn of_folder(folder: &Path) -> Result<Certificates, TlsError> {
        Certificates::read(&Named { folder: Some(folder.to_owned()), ..Named::default() })
    }

    /// The file that is shown for a name, without its folder.
    fn file(all: &Certificates, name: Option<&str>) -> Option<String> {
        let pair = all.shown(all.shown_for(name)?).next().expect("a set is never empty");
        let name = pair.path().file_name().expect("a file");
        Some(name.to_string_lossy().into_owned())
    }

    #[test]
    fn a_folder_of_all_three_forms_is_read_and_names_are_those_of_the_certificates() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        write(at, "one", &made(&["www.example.org", "Example.org"], |_| {}));
        let (cert, key) = made(&["*.example.net"], |_| {});
        fs::write(at.join("both.pem"), format!("{key}{cert}")).expect("written");
        fs::create_dir(at.join("shop.example.org")).expect("made");
        let (cert, key) = made(&["shop.example.org"], |_| {});
        fs::write(at.join("shop.example.org/fullchain.pem"), cert).expect("written");
        fs::write(at.join("shop.example.org/privkey.pem"), key).expect("written");
        // What is something else.
        fs::write(at.join("README"), "no").expect("written");
        fs::write(at.join(".old.pem"), "no").expect("written");
        fs::create_dir(at.join("empty")).expect("made");
        let all = of_folder(at).expect("right");
        for (name, expected) in [
            ("www.example.org", Some("one.pem")),
            ("WWW.Example.ORG", Some("one.pem")),
            ("www.example.org.", Some("one.pem")),
            ("example.org", Some("one.pem")),
            ("shop.example.org", Some("fullchain.pem")),
            ("a.example.net", Some("both.pem")),
            // One label alone, and not the domain itself.
            ("a.b.example.net", None),
            ("example.net", None),
            (".example.net", None),
            ("other.example.org", None),
            ("", None),
        ] {
            assert_eq!(file(&all, Some(name)).as_deref(), expected, "{name}");
        }
        assert_eq!(file(&all, None), None);
        assert_eq!(all.names(), "*.example.net, example.org, shop.example.org, www.example.org");
        assert_eq!(all.remarks(), Vec::<String>::new());
    }

    #[test]
    fn a_name_itself_comes_before_a_star_and_what_was_said_of_it_before_both() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        write(at, "star", &made(&["*.example.org"], |_| {}));
        write(at, "www", &made(&["www.example.org"], |_| {}));
        let apart = tempfile::tempdir().expect("a folder");
        write(apart.path(), "own", &made(&["else.example"], |_| {}));
        let own = Keys { cert: apart.path().join("own.pem"), key: apart.path().join("own.key") };
        let named = Named {
            folder: Some(at.to_owned()),
            own: vec![
                OfHosts {
                    hosts: vec!["shop.example.org".to_owned()],
                    keys: Some(own.clone()),
                    asks: None,
                },
                OfHosts {
                    hosts: vec![".in.example.org".to_owned()],
                    keys: Some(own.clone()),
                    asks: None,
                },
                OfHosts { hosts: vec!["www.in.example.org".to_owned()], keys: None, asks: None },
            ],
            otherwise: Otherwise::AsFor("www.example.org".to_owned()),
            ..Named::default()
        };
        let all = Certificates::read(&named).expect("right");
        for (name, expected) in [
            (Some("www.example.org"), "www.pem"),
            (Some("a.example.org"), "star.pem"),
            (Some("shop.example.org"), "own.pem"),
            (Some("a.b.in.example.org"), "own.pem"),
            // Its own site has none, so the one of the domain is not its.
            (Some("www.in.example.org"), "www.pem"),
            (Some("nobody.example"), "www.pem"),
            (None, "www.pem"),
        ] {
            assert_eq!(file(&all, name).as_deref(), Some(expected), "{name:?}");
        }
        let id = |name| all.shown_for(Some(name));
        assert_eq!(id("a.example.org"), id("b.example.org"), "one certificate");
        assert_ne!(id("a.example.org"), id("shop.example.org"));
        assert!(all.is_for("b.example.org") && !all.is_for("nobody.example"));
        assert!(all.is_for_some_below(".example.org") && !all.is_for_some_below(".example.com"));
        assert_eq!(all.pairs().len(), 3, "one that is named twice is read once");
    }

    #[test]
    fn of_two_for_a_name_the_newest_valid_one_is_shown_and_a_line_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let begins = |year| {
            move |params: &mut CertificateParams| {
                params.not_before = date_time_ymd(year, 1, 1);
            }
        };
        write(at, "a-new", &made(&["a.example", "b.example"], begins(2020)));
        write(at, "b-old", &made(&["a.example", "c.example"], begins(2010)));
        write(
            at,
            "c-expired",
            &made(&["a.example"], |params| {
                params.not_before = date_time_ymd(2022, 1, 1);
                params.not_after = date_time_ymd(2023, 1, 1);
            }),
        );
        write(at, "d-to-come", &made(&["b.example"], begins(4000)));
        let all = of_folder(at).expect("right");
        let shown = |name| file(&all, Some(name)).expect("one");
        assert_eq!(shown("a.example"), "a-new.pem");
        assert_eq!(shown("b.example"), "a-new.pem");
        assert_eq!(shown("c.example"), "b-old.pem");
        let lines = all.remarks().join("\n");
        for (loser, rest) in [
            ("b-old.pem", "not shown for a.example, as "),
            ("c-expired.pem", "not shown for a.example, as "),
            ("d-to-come.pem", "not shown for b.example, as "),
        ] {
            let line = format!("{}: {rest}", at.join(loser).display());
            assert!(lines.contains(&line), "{line}\n{lines}");
        }
        assert!(lines.contains("a-new.pem is newer") && lines.contains("a-new.pem is valid now"));
        let end = all.pairs()[2].expires_s();
        assert_eq!(end, Some(1_672_531_200), "2023-01-01");
    }

    #[test]
    fn what_is_wrong_with_a_folder_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let wrong = |at: &Path| of_folder(at).expect_err("wrong").to_string();
        assert!(wrong(at).contains("no certificate in it; expected NAME.pem and NAME.key"));
        let (cert, key) = made(&["a.example"], |_| {});
        fs::write(at.join("a.pem"), &cert).expect("written");
        let without_key = wrong(at);
        let file = at.join("a.pem").display().to_string();
        assert!(without_key.starts_with(&format!("{file}: no private key in it")), "{without_key}");
        fs::write(at.join("a.key"), &key[..key.len() / 2]).expect("written");
        let cut = wrong(at);
        assert!(cut.starts_with(&at.join("a.key").display().to_string()), "{cut}");
        let (_, other) = made(&["a.example"], |_| {});
        fs::write(at.join("a.key"), other).expect("written");
        assert!(wrong(at).contains("not the private key of the first certificate in"));
        fs::write(at.join("a.key"), key).expect("written");
        assert!(of_folder(at).is_ok());
        let none = wrong(&at.join("nothing"));
        assert!(none.starts_with(&at.join("nothing").display().to_string()), "{none}");
        write(at, "nameless", &made(&[], |_| {}));
        let lines = of_folder(at).expect("right").remarks();
        assert!(lines.len() == 1 && lines[0].contains("has no name of a host"), "{lines:?}");
    }

    /// Carries a handshake through in memory; what is wrong with it on the side of the server, with the last bytes that
    /// it has to say.
    pub(crate) fn shake(server: &mut Layer, client: &mut Layer) -> Result<(), (Error, Vec<u8>)> {
        let mut wire = [0; 4096];
        let mut answers = [0; 4096];
        loop {
            let asks = client.write(&mut wire);
            let mut rest = &wire[..asks];
            while !rest.is_empty() {
                if let Err(error) = server.decrypt(&mut rest) {
                    let last = server.fail(&error);
                    return Err((error, last));
                }
            }
            let len = server.write(&mut answers);
            let mut rest = &answers[..len];
            while !rest.is_empty() {
                client.decrypt(&mut rest).expect("believed");
            }
            if asks == 0 && len == 0 {
                assert!(server.is_open() && client.is_open());
                return Ok(());
            }
        }
    }

    /// A client of one version of TLS that believes the certificates in these files, and keeps what it may resume by under
    /// one name for all servers.
    pub(crate) fn client(
        version: &'static SupportedProtocolVersion,
        believed: &[PathBuf],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for path in believed {
            for certificate in certificates(path).expect("a certificate") {
                roots.add(certificate).expect("sound");
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[version]).expect("known");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::store(Arc::new(OneName::default()));
        Arc::new(config)
    }

    #[test]
    fn a_name_that_nothing_is_for_is_answered_with_unrecognized_name_and_so_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "a", &made(&["a.example"], |_| {}));
        let all = Arc::new(of_folder(folder.path()).expect("right"));
        let server = all.config(Some(HTTP_1_1)).expect("a configuration");
        for version in [&TLS12, &TLS13] {
            for (asked, said) in [
                ("b.example", "no certificate is for b.example, which it asks for"),
                ("127.0.0.1", "it asks for no name, and no certificate is for such clients"),
            ] {
                let name = server_name(asked).expect("a name");
                let mut asking = Layer::client(&client(version, &[]), &name);
                let mut server = Layer::server(&server);
                let (error, last) = shake(&mut server, &mut asking).expect_err("refused");
                assert_eq!(last, [21, 3, 3, 0, 2, 2, 112], "{asked}");
                let why = NoCertificate::of(&error).expect("that it is").to_string();
                assert_eq!(why, said);
            }
        }
    }

    /// What a client may resume by, with one name for all servers.
    #[derive(Debug)]
    struct OneName(ClientSessionMemoryCache);

    impl Default for OneName {
        fn default() -> Self {
            Self(ClientSessionMemoryCache::new(8))
        }
    }

    fn one_name() -> ServerName<'static> {
        server_name("one.example").expect("a name")
    }

    impl ClientSessionStore for OneName {
        fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
            self.0.set_kx_hint(one_name(), group);
        }

        fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
            self.0.kx_hint(&one_name())
        }

        fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
            self.0.set_tls12_session(one_name(), value);
        }

        fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
            self.0.tls12_session(&one_name())
        }

        fn remove_tls12_session(&self, _: &ServerName<'static>) {
            self.0.remove_tls12_session(&one_name());
        }

        fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
            self.0.insert_tls13_ticket(one_name(), value);
        }

        fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
            self.0.take_tls13_ticket(&one_name())
        }
    }

    #[test]
    fn a_ticket_is_taken_again_under_its_name_and_under_no_other_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        write(at, "a", &made(&["a.example"], |_| {}));
        write(at, "b", &made(&["b.example"], |_| {}));
        let all = Arc::new(of_folder(at).expect("right"));
        let server = all.config(Some(HTTP_1_1)).expect("a configuration");
        for version in [&TLS12, &TLS13] {
            let client = client(version, &[at.join("a.pem"), at.join("b.pem")]);
            let mut resumed = |name: &str| {
                let name = server_name(name).expect("a name");
                let (mut server, mut client) =
                    (Layer::server(&server), Layer::client(&client, &name));
                shake(&mut server, &mut client).expect("through, with the certificate of the name");
                server.is_resumed()
            };
            let of_a = ["a.example"; 2].map(&mut resumed);
            assert_eq!(of_a, [false, true], "{version:?}");
            assert!(!resumed("b.example"), "by what a.example gave: {version:?}");
            assert!(resumed("b.example"), "{version:?}");
        }
    }

    #[test]
    fn of_one_name_a_client_is_shown_the_key_that_it_takes() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let of_kind = |algorithm| {
            let key = KeyPair::generate_for(algorithm).expect("a key");
            let params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
            (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
        };
        write(at, "ed25519", &of_kind(&rcgen::PKCS_ED25519));
        write(at, "p256", &of_kind(&rcgen::PKCS_ECDSA_P256_SHA256));
        let all = Arc::new(of_folder(at).expect("right"));
        assert_eq!(all.remarks(), Vec::<String>::new(), "both are shown");
        let server = all.config(Some(HTTP_1_1)).expect("a configuration");
        for (file, schemes) in [
            ("p256.pem", &[SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256][..]),
            ("ed25519.pem", &[SignatureScheme::ED25519]),
            ("p256.pem", &[SignatureScheme::ECDSA_NISTP256_SHA256]),
        ] {
            let provider = Arc::new(ring::default_provider());
            let shown = Arc::new(Seen { schemes: schemes.to_vec(), certificate: Mutex::default() });
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("known")
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&shown) as _)
                .with_no_client_auth();
            let name = server_name("a.example").expect("a name");
            let mut client = Layer::client(&Arc::new(config), &name);
            shake(&mut Layer::server(&server), &mut client).expect("through");
            let seen = shown.certificate.lock().expect("unlocked").take();
            assert_eq!(seen, certificates(&at.join(file)).expect("one").pop(), "{schemes:?}");
        }
    }

    /// Signs by these alone, and keeps what it was shown.
    #[derive(Debug)]
    struct Seen {
        schemes: Vec<SignatureScheme>,
        certificate: Mutex<Option<CertificateDer<'static>>>,
    }

    impl ServerCertVerifier for Seen {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            *self.certificate.lock().expect("unlocked") = Some(end_entity.clone().into_owned());
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.schemes.clone()
        }
    }
}
