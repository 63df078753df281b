//! What clients will not like about certificates that can be shown all the same.
//!
//! Nothing here keeps a server from starting: a certificate that expired is better renewed while the server
//! runs than while it does not.

use std::path::Path;

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

use crate::why::date;

/// A line for each thing that clients may refuse about the certificates of this file.
pub(crate) fn remarks(path: &Path, chain: &[CertificateDer<'_>], now: UnixTime) -> Vec<String> {
    let path = path.display();
    // What can't be read is of a kind that only clients judge.
    let read = chain.iter().map(|one| EndEntityCert::try_from(one).ok());
    let read: Vec<Option<EndEntityCert<'_>>> = read.collect();
    let dates = read.iter().enumerate().filter_map(|(at, one)| {
        let why = out_of_date(one.as_ref()?, now)?;
        Some(format!("{path}: {} {why}", name(at)))
    });
    let pairs = read.windows(2).enumerate().filter_map(|(at, pair)| {
        let [Some(one), Some(next)] = pair else { return None };
        (one.issuer() != next.subject()).then_some(at)
    });
    let order = pairs.map(|at| {
        format!(
            "{path}: {} is not that of the issuer of {}; some clients refuse it: expected the server's own \
             first, and behind each the one of its issuer",
            name(at + 1),
            name(at)
        )
    });
    dates.chain(order).collect()
}

fn name(at: usize) -> String {
    match at {
        0 => "the certificate".to_owned(),
        at => format!("certificate {} in it", at + 1),
    }
}

/// Why this moment is not one of those that the certificate is for. Dates are looked at before all else,
/// so that no issuer has to be known.
fn out_of_date(certificate: &EndEntityCert<'_>, now: UnixTime) -> Option<String> {
    let usage = KeyUsage::server_auth();
    match certificate.verify_for_usage(&[], &[], &[], now, usage, None, None).err()? {
        Error::CertExpired { not_after, .. } => {
            Some(format!("expired on {}; clients refuse it: renew it", date(not_after)))
        }
        Error::CertNotValidYet { not_before, .. } => Some(format!(
            "is valid from {} on only; clients refuse it until then",
            date(not_before)
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    #[test]
    fn dates_and_the_order_of_a_chain_are_reported_and_nothing_of_a_sound_one() {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).expect("no name");
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let key = || KeyPair::generate().expect("a key");
        let root = CertifiedIssuer::self_signed(authority("root"), key()).expect("signed");
        let middle = CertifiedIssuer::signed_by(authority("middle"), key(), &root).expect("signed");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let (begin, end) = (params.not_before, params.not_after);
        let leaf = params.signed_by(&key(), &middle).expect("signed");
        let [leaf, middle, root] = [leaf.der().clone(), middle.der().clone(), root.der().clone()];
        let of = |chain: &[&CertificateDer<'static>], at_s: i64| {
            let chain: Vec<_> = chain.iter().map(|one| (*one).clone()).collect();
            let at_s = u64::try_from(at_s).expect("after 1970");
            let now = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
            remarks(Path::new("c.pem"), &chain, now)
        };
        let now = begin.unix_timestamp() + 1_000_000;
        for sound in [vec![&leaf], vec![&leaf, &middle], vec![&leaf, &middle, &root]] {
            assert_eq!(of(&sound, now), Vec::<String>::new());
        }
        let swapped = of(&[&leaf, &root, &middle], now);
        assert!(swapped.len() == 2, "{swapped:?}");
        assert!(swapped[0].starts_with(
            "c.pem: certificate 2 in it is not that of the issuer of the certificate; some clients"
        ));
        let late = of(&[&leaf, &middle], end.unix_timestamp() + 1);
        assert!(late[0].starts_with("c.pem: the certificate expired on 4096-01-01"), "{late:?}");
        assert!(late[1].starts_with("c.pem: certificate 2 in it expired on "), "{late:?}");
        let early = of(&[&leaf], begin.unix_timestamp() - 1);
        assert!(
            early.len() == 1 && early[0].contains("the certificate is valid from 1975-01-01"),
            "{early:?}"
        );
    }
}
