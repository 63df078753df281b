//! Which fields go from one connection to the next, and which end here (RFC 9110 7.6.1).
//!
//! The writers of heads ask. Fields about one connection never leave it: those that are known, and
//! those that a Connection field names. What frames a message is written by the proxy itself.

use pollux_http::{Fields, decimal};

/// What becomes of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It is passed on.
    EndToEnd,
    /// It ends here, or is written anew from what was understood.
    Dropped,
    /// Connection: names others that end here.
    Connection,
    /// X-Forwarded-For.
    ForwardedFor,
    /// X-Forwarded-Proto and X-Forwarded-Host.
    ForwardedOther,
    /// Forwarded.
    Forwarded,
    /// Content-Length.
    Length,
    /// Transfer-Encoding.
    Coding,
    /// Upgrade.
    Upgrade,
    /// Date.
    Date,
    /// Max-Forwards.
    MaxForwards,
}

/// Fields that not every proxy passes on, by length.
const KNOWN: &[(&str, Kind)] = &[
    ("te", Kind::Dropped),
    ("date", Kind::Date),
    ("host", Kind::Dropped),
    ("expect", Kind::Dropped),
    ("trailer", Kind::Dropped),
    ("upgrade", Kind::Upgrade),
    ("forwarded", Kind::Forwarded),
    ("connection", Kind::Connection),
    ("keep-alive", Kind::Dropped),
    ("max-forwards", Kind::MaxForwards),
    ("content-length", Kind::Length),
    ("http2-settings", Kind::Dropped),
    ("x-forwarded-for", Kind::ForwardedFor),
    ("proxy-connection", Kind::Dropped),
    ("x-forwarded-host", Kind::ForwardedOther),
    ("transfer-encoding", Kind::Coding),
    ("x-forwarded-proto", Kind::ForwardedOther),
    ("proxy-authenticate", Kind::Dropped),
    ("proxy-authorization", Kind::Dropped),
];

/// One more than the longest known name.
const LEN_END: usize = KNOWN[KNOWN.len() - 1].0.len() + 1;

/// Where the known names of each length begin; those of the next one begin where they end.
const STARTS: [u8; LEN_END + 1] = {
    let mut starts = [0; LEN_END + 1];
    let mut at = 0;
    while at < KNOWN.len() {
        let mut longer = KNOWN[at].0.len() + 1;
        assert!(at == 0 || KNOWN[at - 1].0.len() < longer, "by length");
        while longer <= LEN_END {
            starts[longer] = at as u8 + 1;
            longer += 1;
        }
        at += 1;
    }
    starts
};

/// What becomes of a field of this name.
#[inline]
pub(crate) fn kind(name: &str) -> Kind {
    // The length tells most fields apart before a byte is compared.
    if name.len() >= LEN_END || STARTS[name.len()] == STARTS[name.len() + 1] {
        return Kind::EndToEnd;
    }
    // Some backends take `_` for `-`: a name that is known to them so is known here as well.
    if name.contains('_') {
        return match known(&name.replace('_', "-")) {
            Kind::EndToEnd | Kind::Date => Kind::EndToEnd,
            _ => Kind::Dropped,
        };
    }
    known(name)
}

fn known(name: &str) -> Kind {
    let same_len = usize::from(STARTS[name.len()])..usize::from(STARTS[name.len() + 1]);
    let found = KNOWN[same_len].iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map_or(Kind::EndToEnd, |(_, kind)| *kind)
}

/// Whether a Connection field of that value names a field that would have gone on.
pub(super) fn names_others(value: &[u8]) -> bool {
    options(value).any(|option| !is_usual(option))
}

/// Whether a Connection field among `fields` names the field `name`.
#[cold]
pub(super) fn is_named(fields: Fields<'_>, name: &str) -> bool {
    fields
        .all("connection")
        .any(|value| options(value).any(|option| option.eq_ignore_ascii_case(name.as_bytes())))
}

/// The options of a Connection field.
pub(super) fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// Whether an option of Connection names no field that would have gone on.
fn is_usual(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"close")
        || str::from_utf8(option)
            .is_ok_and(|name| !matches!(kind(name), Kind::EndToEnd | Kind::Date))
}

/// Writes one field line.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a number in digits.
pub(super) fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(decimal(number, &mut [0; 20]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_in_any_case_and_with_underscores() {
        for (name, expected) in KNOWN {
            assert_eq!(kind(name), *expected, "{name}");
            assert_eq!(kind(&name.to_uppercase()), *expected, "{name}");
            let odd = name.replace('-', "_");
            if odd != *name {
                assert_eq!(kind(&odd), Kind::Dropped, "{odd}");
            }
        }
        for name in ["accept", "x-forwarded", "cookie", "x_id", "dat", "hosts", &"x".repeat(40)] {
            assert_eq!(kind(name), Kind::EndToEnd, "{name}");
        }
    }

    #[test]
    fn numbers_are_written_in_digits() {
        for number in [0, 7, 10, 128, u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
