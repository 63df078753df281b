//! Accept-Encoding (RFC 9110 12.5.3), for files that lie ready in several codings.
//!
//! The file server calls it. An answer that depended on it says `Vary: Accept-Encoding`.

use crate::Fields;
use crate::fields::list;

/// A content coding in which a file may lie ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentCoding {
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
    /// `gzip`, also called `x-gzip`.
    Gzip,
    /// None at all.
    Identity,
}

impl ContentCoding {
    const ALL: [Self; 4] = [Self::Brotli, Self::Zstd, Self::Gzip, Self::Identity];

    /// Its name in Accept-Encoding and Content-Encoding.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Identity => "identity",
        }
    }

    fn named(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// How much a client wants each coding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acceptable {
    /// In thousandths, in the order of `ContentCoding::ALL`; 0 is refused.
    weights: [u16; 4],
}

impl Acceptable {
    /// What the Accept-Encoding fields say; without any, only identity: a client that does not ask for a
    /// coding may not know it.
    #[must_use]
    pub fn of(fields: Fields<'_>) -> Self {
        let mut named = [None; 4];
        let mut others = None;
        for element in fields.all("accept-encoding").flat_map(list) {
            let (name, weight) = split_weight(element);
            let Some(weight) = weight else { continue };
            if name == b"*" {
                others = Some(weight);
            } else if let Some(coding) = ContentCoding::named(name) {
                named[coding as usize] = Some(weight);
            }
        }
        Self { weights: ContentCoding::ALL.map(|c| weight_of(c, named[c as usize], others)) }
    }

    /// The weight of a coding in thousandths; 0 is refused.
    #[must_use]
    pub fn weight(&self, coding: ContentCoding) -> u16 {
        self.weights[coding as usize]
    }

    /// The best of what lies ready, given in the server's own order, which decides between
    /// equals. None when the client refuses all of it: answer 406.
    #[must_use]
    pub fn best(&self, ready: &[ContentCoding]) -> Option<ContentCoding> {
        let mut best = None;
        for &coding in ready {
            if self.weight(coding) > best.map_or(0, |best| self.weight(best)) {
                best = Some(coding);
            }
        }
        best
    }
}

/// Least weight above refusal: identity, when it is not named, is what is left.
const LEAST: u16 = 1;

fn weight_of(coding: ContentCoding, named: Option<u16>, others: Option<u16>) -> u16 {
    let unnamed = if coding == ContentCoding::Identity { LEAST } else { 0 };
    named.or(others).unwrap_or(unnamed)
}

/// The name before the parameters, and the weight; none when the weight is not one.
fn split_weight(element: &[u8]) -> (&[u8], Option<u16>) {
    let mut parts = element.split(|&b| b == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let weight = match (parts.next(), parts.next()) {
        (None, _) => Some(1000),
        (Some([b'q' | b'Q', b'=', value @ ..]), None) => thousandths(value),
        _ => None,
    };
    (name, weight)
}

/// `0`, `1` and up to three decimals, not above 1 (RFC 9110 12.4.2).
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut sum = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (decimal, worth) in decimals.iter().zip([100, 10, 1]) {
        sum += u16::try_from(char::from(*decimal).to_digit(10)?).ok()? * worth;
    }
    (sum <= 1000).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::ContentCoding::{Brotli, Gzip, Identity, Zstd};
    use super::*;

    fn best(value: &str, ready: &[ContentCoding]) -> Option<ContentCoding> {
        let line = format!("Accept-Encoding: {value}\r\n");
        Acceptable::of(Fields::of_checked(line.as_bytes())).best(ready)
    }

    const READY: &[ContentCoding] = &[Brotli, Zstd, Gzip, Identity];

    #[test]
    fn the_order_of_codings_is_the_order_of_weights() {
        for (at, coding) in ContentCoding::ALL.into_iter().enumerate() {
            assert_eq!(coding as usize, at);
        }
    }

    #[test]
    fn the_server_decides_between_equals() {
        assert_eq!(best("gzip, br, zstd", READY), Some(Brotli));
        assert_eq!(best("gzip, br", &[Gzip, Brotli]), Some(Gzip));
        assert_eq!(best("*", READY), Some(Brotli));
        assert_eq!(best("gzip", &[Identity]), Some(Identity));
    }

    #[test]
    fn weights_decide_first() {
        assert_eq!(best("br;q=0.5, gzip;q=0.501", READY), Some(Gzip));
        assert_eq!(best("br ; q=0.1, identity;q=0.9", READY), Some(Identity));
        assert_eq!(best("br;q=0, *;q=0.2", READY), Some(Zstd));
        assert_eq!(best("X-GZIP;Q=1.000", READY), Some(Gzip));
        assert_eq!(best("gzip;q=0.001", READY), Some(Gzip));
    }

    #[test]
    fn identity_is_left_unless_it_is_refused() {
        assert_eq!(Acceptable::of(Fields::of_checked(b"")).best(READY), Some(Identity));
        assert_eq!(best("", READY), Some(Identity));
        assert_eq!(best("gzip;q=0", READY), Some(Identity));
        assert_eq!(best("compress", READY), Some(Identity));
        assert_eq!(best("identity;q=0", READY), None);
        assert_eq!(best("*;q=0", READY), None);
        assert_eq!(best("*;q=0, gzip", &[Identity]), None);
        assert_eq!(best("*;q=0, identity", READY), Some(Identity));
    }

    #[test]
    fn elements_that_are_not_sound_do_not_count() {
        for value in
            ["br;q=2", "br;q=1.001", "br;q=0.1234", "br;q=", "br;q=.5", "br;x=1", "br;q=1;q=1"]
        {
            assert_eq!(best(value, READY), Some(Identity), "{value}");
        }
    }
}
