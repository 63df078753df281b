//! Which precompressed form of a file a client takes: `Accept-Encoding` (RFC 9110 12.5.3).
//!
//! The file sessions ask it when `--precompressed` is on. Forms are tried best first; a client
//! that says nothing gets the plain file.

/// A form that a file may lie in beside the plain one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    /// `FILE.br`
    Brotli,
    /// `FILE.zst`
    Zstd,
    /// `FILE.gz`
    Gzip,
}

impl Coding {
    /// All of them, smallest result first.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Name in `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// What the file's name ends with.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }
}

/// Codings that a client takes, by the value of its `Accept-Encoding` field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accepted {
    /// For each of [`Coding::ALL`]: not named, refused or taken.
    named: [Option<bool>; 3],
    /// What `*` says of those that are not named.
    others: Option<bool>,
}

impl Accepted {
    /// Reads one field value, adding to what earlier ones said. What cannot be read is refused.
    #[must_use]
    pub fn and(mut self, field_value: &str) -> Self {
        for item in field_value.split(',') {
            let mut parts = item.split(';');
            let name = parts.next().unwrap_or("").trim();
            let is_taken = parts.next().is_none_or(|weight| is_positive(weight.trim()));
            let is_called =
                |coding: &Coding| name.eq_ignore_ascii_case(coding.name()) || is_old(name, *coding);
            match Coding::ALL.iter().position(is_called) {
                Some(index) => self.named[index] = Some(is_taken),
                None if name == "*" => self.others = Some(is_taken),
                None => {}
            }
        }
        self
    }

    /// Whether the client takes `coding`.
    #[must_use]
    pub fn takes(&self, coding: Coding) -> bool {
        self.named[coding as usize].or(self.others).unwrap_or(false)
    }
}

/// The name of gzip from before 1999.
fn is_old(name: &str, coding: Coding) -> bool {
    coding == Coding::Gzip && name.eq_ignore_ascii_case("x-gzip")
}

/// Whether `q=0.5` and the like is above zero.
fn is_positive(weight: &str) -> bool {
    let value = weight.strip_prefix("q=").or_else(|| weight.strip_prefix("Q="));
    let is_number = |value: &str| value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let digits = value.filter(|value| is_number(value));
    digits.is_some_and(|value| value.bytes().any(|b| (b'1'..=b'9').contains(&b)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(value: &str) -> Vec<&'static str> {
        let accepted = Accepted::default().and(value);
        Coding::ALL.into_iter().filter(|c| accepted.takes(*c)).map(Coding::name).collect()
    }

    #[test]
    fn only_what_is_named_and_not_refused_is_taken() {
        assert_eq!(taken("gzip, deflate, br"), ["br", "gzip"]);
        assert_eq!(taken("gzip;q=0.5 , br;q=0"), ["gzip"]);
        assert_eq!(taken("*"), ["br", "zstd", "gzip"]);
        assert_eq!(taken("*;q=0, x-gzip"), ["gzip"]);
        assert_eq!(taken("zstd;q=0, *"), ["br", "gzip"]);
        assert_eq!(taken("br ; q=0.000, ZSTD; q=0.001"), ["zstd"]);
        for nothing in ["", "identity", "brr", "gzip;q=", "gzip;q=-1", "gzip;x=1"] {
            assert_eq!(taken(nothing), [""; 0], "{nothing}");
        }
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(value in "\\PC{0,40}") {
            let _ = taken(&value);
        }
    }
}
