//! Why a handshake failed, in words, with the remedy where there is one.

use jiff::Timestamp;
use rustls::CertificateError::{
    ApplicationVerificationFailure, Expired, ExpiredContext, NotValidForName,
    NotValidForNameContext, NotValidYet, NotValidYetContext,
};
use rustls::Error;
use rustls::pki_types::UnixTime;

use crate::trust::is_of_the_issuer;

/// What a user can do about a certificate, in the words of the program that they use.
#[derive(Clone, Copy, Debug)]
pub struct Remedies {
    /// How an authority is named, such as `--cacert FILE`.
    pub name_authority: &'static str,
    /// How any certificate is accepted, such as `--insecure`.
    pub accept_any: &'static str,
    /// What to do where the server's certificate has another name.
    pub name_server: &'static str,
}

impl Remedies {
    /// Why a client's handshake failed, and what to do.
    #[must_use]
    pub fn why(&self, error: &Error) -> String {
        use Error::{AlertReceived, InvalidCertificate, InvalidMessage};
        let Self { name_authority, accept_any, name_server } = self;
        match error {
            error if is_of_the_issuer(error) => format!(
                "the certificate's authority is unknown; give its certificate with \
                 {name_authority}, or {accept_any} to accept any"
            ),
            InvalidCertificate(NotValidForNameContext { expected, presented }) => format!(
                "the certificate is for {}, not \"{}\"; {name_server}, or give {accept_any}",
                names(presented),
                expected.to_str()
            ),
            InvalidCertificate(NotValidForName) => {
                format!("the certificate is for another name; {name_server}, or give {accept_any}")
            }
            InvalidCertificate(ExpiredContext { not_after, .. }) => format!(
                "the certificate expired on {}; renew it, or give {accept_any}",
                date(*not_after)
            ),
            InvalidCertificate(Expired) => {
                format!("the certificate has expired; renew it, or give {accept_any}")
            }
            InvalidCertificate(NotValidYetContext { not_before, .. }) => format!(
                "the certificate is valid from {} on only; check the clock, or give {accept_any}",
                date(*not_before)
            ),
            InvalidCertificate(NotValidYet) => {
                format!("the certificate is not valid yet; check the clock, or give {accept_any}")
            }
            InvalidCertificate(ApplicationVerificationFailure) => {
                format!("the certificate was not accepted; {accept_any} accepts any")
            }
            InvalidCertificate(other) => {
                format!("the certificate can't be believed: {other}; {accept_any} accepts any")
            }
            InvalidMessage(_) => "the server does not speak TLS (is it http://?)".to_owned(),
            AlertReceived(alert) => format!("the server refused with the alert {alert:?}"),
            other => other.to_string(),
        }
    }
}

/// A moment as people write it.
pub(crate) fn date(at: UnixTime) -> String {
    let at = i64::try_from(at.as_secs()).ok().and_then(|at| Timestamp::from_second(at).ok());
    at.map_or_else(|| "–".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// `DnsName("a")` and `IpAddress(::1)`, as rustls shows names, in quotes; the first few of them.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = 3;
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        format!("\"{}\"", inner.unwrap_or(name).trim_matches('"'))
    };
    let shown: Vec<String> = presented.iter().take(SHOWN).map(bare).collect();
    match presented.len() {
        0 => "no name".to_owned(),
        len if len > SHOWN => format!("{} and {} more", shown.join(", "), len - SHOWN),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_certificates_are_bare_and_few() {
        let presented = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let all: Vec<String> = presented(&["DnsName(\"a\")", "IpAddress(::1)", "b", "c", "d"]);
        assert_eq!(names(&all), "\"a\", \"::1\", \"b\" and 2 more");
        assert_eq!(names(&all[..1]), "\"a\"");
        assert_eq!(names(&[]), "no name");
    }
}
