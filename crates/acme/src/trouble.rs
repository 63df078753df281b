//! What went wrong with an order, in words for who runs the server: what, where, and what is expected.

use std::time::Duration;

use instant_acme::{Error, Problem};

/// The pause after an authority has said that it was asked too often.
const RATE_LIMIT_PAUSE: Duration = Duration::from_secs(3600);
/// What kinds of problems begin with (RFC 8555 6.7).
const KIND: &str = "urn:ietf:params:acme:error:";
/// Longest text of an authority that is passed on.
const DETAIL_CHARS_MAX: usize = 500;

/// Why a certificate was not got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trouble {
    pub(crate) text: String,
    /// The next try is not before.
    pub(crate) pause: Duration,
    /// Whether it is nothing but bad luck, and another try at once may pass.
    pub(crate) is_of_nonces: bool,
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self { text, pause: Duration::ZERO, is_of_nonces: false }
    }
}

impl Trouble {
    /// What an answer of the authority, or none, means for what was done.
    pub(crate) fn of(doing: &str, error: Error) -> Self {
        match error {
            Error::Api(problem) => Self::of_problem(doing, &problem),
            Error::Timeout(_) => {
                format!("{doing}: the authority did not come to an end in time").into()
            }
            Error::Other(cause) => format!("{doing}: {cause}").into(),
            other => format!("{doing}: the authority sent what is not expected: {other}").into(),
        }
    }

    /// The same of a problem that the authority names.
    pub(crate) fn of_problem(doing: &str, problem: &Problem) -> Self {
        let mut detail = problem.detail.clone().unwrap_or_default();
        for one in &problem.subproblems {
            detail = format!("{detail}; {one}");
        }
        let detail = printable(&detail);
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let kind = kind.strip_prefix(KIND).unwrap_or(kind);
        let (what, expected) = match kind {
            "rateLimited" => (
                "the authority was asked too often",
                "the next try waits an hour or more; --production has other limits than the test authority",
            ),
            "caa" => (
                "DNS forbids it by a CAA record",
                "expected one that names this authority, or none",
            ),
            "dns" => (
                "DNS has no address of the name that the authority can find",
                "expected an A or AAAA record that leads to this server",
            ),
            "connection" => (
                "the authority can't reach the server",
                "expected port 80 of this name to lead to a front end with the sites, through firewalls and by IPv6 too where DNS has AAAA",
            ),
            "tls" => (
                "the authority can't speak TLS with the server",
                "expected challenges to be answered by http, without a redirect",
            ),
            "unauthorized" => (
                "the authority found another answer than the one expected",
                "expected the name to lead to this server, and the folder of challenges to be served there: acme_challenges in its settings",
            ),
            "incorrectResponse" => (
                "the authority found another answer than the one expected",
                "expected the folder of challenges to be served by this server",
            ),
            "rejectedIdentifier" | "unsupportedIdentifier" => {
                ("the authority issues no certificate for such a name", "expected a public name")
            }
            "userActionRequired" => (
                "the authority wants its terms agreed to once more",
                "expected them to be read where it says",
            ),
            "externalAccountRequired" => (
                "the authority takes only accounts that were opened with it before",
                "expected another --directory",
            ),
            "accountDoesNotExist" => (
                "the authority does not know the account",
                "expected the account.key that it was opened with",
            ),
            "badCSR" => (
                "the authority does not take the names together",
                "expected other names in the site",
            ),
            "serverInternal" => ("the authority has a problem of its own", "the next try may pass"),
            "badNonce" => (
                "the authority refused several numbers that it had given itself",
                "the next try may pass",
            ),
            _ => ("the authority refuses it", "see what it says"),
        };
        let detail = if detail.is_empty() { kind.to_owned() } else { detail };
        let pause = if kind == "rateLimited" { RATE_LIMIT_PAUSE } else { Duration::ZERO };
        let text = format!("{doing}: {what}: {detail}; {expected}");
        Self { text, pause, is_of_nonces: kind == "badNonce" }
    }
}

/// What an authority says, in one line that a terminal takes.
fn printable(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    clean.take(DETAIL_CHARS_MAX).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: &str, detail: &str) -> Problem {
        let json =
            serde_json::json!({ "type": format!("{KIND}{kind}"), "detail": detail, "status": 403 });
        serde_json::from_value(json).expect("a problem")
    }

    #[test]
    fn each_problem_says_what_is_expected() {
        for (kind, part) in [
            ("caa", "names this authority"),
            ("dns", "A or AAAA record"),
            ("connection", "port 80"),
            ("unauthorized", "acme_challenges"),
            ("rejectedIdentifier", "a public name"),
            ("badNonce", "the next try may pass"),
            ("unheardOf", "see what it says"),
        ] {
            let trouble =
                Trouble::of_problem("www.example.org", &problem(kind, "no\u{1b}[2J\nway"));
            assert!(trouble.text.starts_with("www.example.org: "), "{}", trouble.text);
            assert!(trouble.text.contains("no [2J way"), "{}", trouble.text);
            assert!(trouble.text.contains(part), "{}", trouble.text);
            assert_eq!((trouble.pause, trouble.is_of_nonces), (Duration::ZERO, kind == "badNonce"));
        }
        let limited = Trouble::of_problem("a.b", &problem("rateLimited", "too many"));
        assert_eq!(limited.pause, RATE_LIMIT_PAUSE);
    }
}
