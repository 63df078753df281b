//! A domain: the pools that see each other's services, and the subjects that their bridges use.
//!
//! | subject | content |
//! |---|---|
//! | `pollux.DOMAIN.call.SERVICE` | requests for a service; queue group `bridges`, so one bridge gets each |
//! | `pollux.DOMAIN.news` | the services that a pool offers to the others, at changes and periodically |
//! | `pollux.DOMAIN.who` | a request for these lists, from a bridge that has just connected |

use std::fmt::{self, Write as _};

/// The queue group of bridges, so that one of them gets each call.
pub(crate) const GROUP: &str = "bridges";

/// The longest name of a domain.
const DOMAIN_LEN_BYTES_MAX: usize = 64;

/// The pools that see each other's services.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Domain(String);

impl Domain {
    /// Reads a name of 1 to 64 letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let fits = (1..=DOMAIN_LEN_BYTES_MAX).contains(&name.len());
        if !fits || !name.bytes().all(is_plain) {
            return Err(format!(
                "`{}` is not a domain: give 1 to {DOMAIN_LEN_BYTES_MAX} letters, digits, - or _",
                name.escape_debug()
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// The subject of requests for `service`.
    ///
    /// Names of services may hold what means something in a subject (`.`, `*`, `>`); that is
    /// written as `=` and two hexadecimal digits.
    pub(crate) fn call(&self, service: &str) -> String {
        let mut subject = format!("pollux.{}.call.", self.0);
        for byte in service.bytes() {
            if is_plain(byte) {
                subject.push(char::from(byte));
            } else {
                let _ = write!(subject, "={byte:02X}");
            }
        }
        subject
    }

    /// The subject of service lists.
    pub(crate) fn service_lists(&self) -> String {
        format!("pollux.{}.news", self.0)
    }

    /// The subject on which lists are asked for.
    pub(crate) fn questions(&self) -> String {
        format!("pollux.{}.who", self.0)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_domain_is_one_token() {
        for bad in ["", "a.b", "a b", "*", ">", "ä", &"d".repeat(65)] {
            let said = Domain::new(bad).expect_err(bad);
            assert!(said.contains("letters, digits"), "{said}");
        }
        assert_eq!(Domain::new("bank-1").expect("a domain").service_lists(), "pollux.bank-1.news");
    }

    #[test]
    fn each_service_has_one_token_of_its_own() {
        let domain = Domain::new("d").expect("a domain");
        assert_eq!(domain.call("BALANCE"), "pollux.d.call.BALANCE");
        let odd = ["A.B", "A*", "A>", "A=2EB", "A=B", "@sys", "A"];
        let subjects: HashSet<_> = odd.iter().map(|service| domain.call(service)).collect();
        assert_eq!(subjects.len(), odd.len());
        for subject in subjects {
            assert_eq!(subject.split('.').count(), 4, "{subject}");
            assert!(!subject.contains(['*', '>']), "{subject}");
        }
    }
}
