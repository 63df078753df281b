//! A certificate in its file, behind a line that says which authority issued it, with its key: one file, so that no end of
//! this program leaves a pair that does not belong together. Files without that line are somebody else's, and never touched.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What the first line begins with; the directory of the authority follows.
const MARK: &str = "pollux-acme: issued by ";
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate that this program got.
#[derive(Debug)]
pub(crate) struct Held {
    /// The directory of the authority that issued it.
    pub(crate) directory: String,
    pub(crate) names: BTreeSet<String>,
    pub(crate) from: SystemTime,
    pub(crate) until: SystemTime,
    certificate: CertificateDer<'static>,
}

/// Why a certificate is ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Missing,
    /// It has other names than it should have.
    OtherNames,
    /// It is from this authority, not from the one that is asked.
    OtherAuthority(String),
    /// It is time.
    Age,
    /// Somebody wants it.
    Asked,
}

impl Held {
    /// Reads a file; none where there is none.
    ///
    /// # Errors
    /// It can't be read, or belongs to somebody else.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, String> {
        let shown = path.display();
        let text = match read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{shown}: {error}")),
        };
        let directory = text.lines().next().and_then(|line| line.strip_prefix(MARK));
        let Some(directory) = directory else {
            return Err(format!(
                "{shown} is not of pollux-acme, and stays as it is; expected no such file: give it another name, or move it away"
            ));
        };
        let parsed =
            CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| error.to_string());
        let held = parsed.and_then(|der| Self::of(directory.to_owned(), der));
        held.map(Some).map_err(|why| {
            format!("{shown} has no certificate that can be read ({why}); expected one: move the file away, and another is ordered")
        })
    }

    fn of(directory: String, certificate: CertificateDer<'static>) -> Result<Self, String> {
        let (_, parsed) =
            X509Certificate::from_der(&certificate).map_err(|error| error.to_string())?;
        let moment = |unix_s: i64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_s).unwrap_or(0))
        };
        let validity = parsed.validity();
        let from = moment(validity.not_before.timestamp());
        let until = moment(validity.not_after.timestamp());
        let names = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = names.into_iter().flat_map(|all| &all.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        Ok(Self { directory, names: names.collect(), from, until, certificate })
    }

    /// Why another one is ordered for these names at this authority, if not by its age.
    ///
    /// # Errors
    /// Staging would take the place of a certificate that clients may believe.
    pub(crate) fn differs(
        &self,
        names: &[String],
        directory: &str,
        is_staging: bool,
    ) -> Result<Option<Due>, String> {
        if self.directory != directory {
            if is_staging {
                return Err(format!(
                    "the certificate there is of {}, and a test authority does not replace it; expected --production or --directory {} as before",
                    self.directory, self.directory
                ));
            }
            return Ok(Some(Due::OtherAuthority(self.directory.clone())));
        }
        // An authority may add names of its own.
        let has_all = names.iter().all(|name| self.names.contains(name));
        Ok((!has_all).then_some(Due::OtherNames))
    }

    /// When it is renewed, where the authority does not say: once two thirds of its life have passed.
    pub(crate) fn renewal(&self) -> SystemTime {
        self.from + self.life().mul_f64(2.0 / 3.0)
    }

    /// When, within this window of the authority: the same whenever it is asked, and for each certificate another.
    pub(crate) fn renewal_within(&self, start: SystemTime, end: SystemTime) -> SystemTime {
        // The last bytes are of a signature.
        let of_signature =
            self.certificate.last_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
        let share = f64::from(of_signature) / f64::from(u16::MAX);
        let within = end.duration_since(start).unwrap_or_default().mul_f64(share);
        // Whatever is said: not in the last tenth of its life.
        (start + within).min(self.from + self.life().mul_f64(0.9))
    }

    fn life(&self) -> Duration {
        self.until.duration_since(self.from).unwrap_or_default()
    }

    /// How the authority calls it; none where it says too little of itself.
    pub(crate) fn identifier(&self) -> Option<CertificateIdentifier<'_>> {
        CertificateIdentifier::try_from(&self.certificate).ok()
    }
}

/// Puts a certificate in the place of the one before, with its key.
///
/// # Errors
/// What the authority sent has not these names, or the file can't be written; the one before stays.
pub(crate) fn replace(
    path: &Path,
    directory: &str,
    names: &[String],
    chain: &str,
    key: &str,
) -> Result<Held, String> {
    let der = CertificateDer::from_pem_slice(chain.as_bytes());
    let held = der.map_err(|error| error.to_string());
    let held = held.and_then(|der| Held::of(directory.to_owned(), der));
    let held = held.map_err(|why| format!("the authority sent no certificate: {why}"))?;
    if let Some(name) = names.iter().find(|name| !held.names.contains(*name)) {
        return Err(format!("the authority sent a certificate without {name}"));
    }
    let text = format!("{MARK}{directory}\n{}\n{key}", chain.trim_end());
    write_secret(path, text.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(held)
}

/// Writes a file that nobody else may read: whole under its name, or not at all.
pub(crate) fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    // With a dot in front, which servers leave alone; what an end of this program left is written over.
    let beside = folder.join(format!(".{}.new", name.display()));
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).to_owned();
    let mut file = options.open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

fn read_to_string(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    io::read_to_string(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    const DIRECTORY: &str = "https://acme.example/directory";

    fn made(names: &[&str]) -> (String, String) {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 4, 1);
        let key = KeyPair::generate().expect("a key");
        (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn day(day: u64) -> SystemTime {
        // The first day of 2026.
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600 + day * 86_400)
    }

    #[test]
    fn what_was_written_is_read_again_and_due_at_two_thirds_of_its_life() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("www.example.org.pem");
        assert!(Held::read(&path).expect("none").is_none());
        let wanted = names(&["www.example.org", "example.org"]);
        let (chain, key) = made(&["www.example.org", "example.org"]);
        replace(&path, DIRECTORY, &wanted, &chain, &key).expect("written");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let held = Held::read(&path).expect("read").expect("there");
        assert_eq!((held.from, held.until), (day(0), day(90)));
        assert_eq!(held.renewal(), day(60));
        assert_eq!(held.differs(&wanted, DIRECTORY, false), Ok(None));
        let reversed = names(&["example.org", "www.example.org"]);
        assert_eq!(held.differs(&reversed, DIRECTORY, true), Ok(None), "the order is nothing");
        let other = names(&["www.example.org", "a.example.org"]);
        assert_eq!(held.differs(&other, DIRECTORY, false), Ok(Some(Due::OtherNames)));
        let fewer = names(&["www.example.org"]);
        assert_eq!(held.differs(&fewer, DIRECTORY, false), Ok(None), "some authorities add names");
        let of_other = Some(Due::OtherAuthority(DIRECTORY.to_owned()));
        assert_eq!(held.differs(&wanted, "https://other.example/", false), Ok(of_other));
        let why = held.differs(&wanted, "https://other.example/", true).expect_err("kept");
        assert!(why.contains("does not replace it"), "{why}");
        let within = held.renewal_within(day(10), day(20));
        assert!(within >= day(10) && within <= day(20), "{within:?}");
        assert_eq!(within, held.renewal_within(day(10), day(20)), "the same again");
        assert_eq!(held.renewal_within(day(200), day(300)), day(81), "not after it has expired");
    }

    #[test]
    fn a_file_of_others_and_a_wrong_answer_change_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("www.example.org.pem");
        let (chain, key) = made(&["www.example.org"]);
        std::fs::write(&path, format!("{chain}{key}")).expect("written");
        let why = Held::read(&path).expect_err("not of this program");
        assert!(why.contains("stays as it is"), "{why}");
        let other = folder.path().join("other.pem");
        let wanted = names(&["other.example"]);
        for (sent, part) in [("garbage", "no certificate"), (&chain, "without other.example")] {
            let why = replace(&other, DIRECTORY, &wanted, sent, &key).expect_err(part);
            assert!(why.contains(part), "{why}");
        }
        assert!(!other.exists());
    }
}
