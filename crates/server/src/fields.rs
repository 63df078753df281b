//! Which fields go from one connection to the next, and which end here (RFC 9110 7.6.1); the user's rules
//! for them.
//!
//! The writers of heads ask. Fields about one connection never leave it: those that are known, and
//! those that a Connection field names. What frames a message is written by the proxy itself.

use std::collections::HashSet;
use std::fmt;

use pollux_http::{Fields, decimal, is_host_and_port};

/// What becomes of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It is passed on.
    EndToEnd,
    /// It ends here, or is written anew from what was understood.
    Dropped,
    /// TE: which codings, and whether trailers, the other end of one connection takes.
    Te,
    /// Connection: names others that end here.
    Connection,
    /// X-Forwarded-For.
    ForwardedFor,
    /// X-Forwarded-Proto and X-Forwarded-Host.
    ForwardedOther,
    /// Forwarded.
    Forwarded,
    /// Another one that names the client, or how it came, to backends that believe it.
    ClaimsClient,
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
    ("te", Kind::Te),
    ("date", Kind::Date),
    ("host", Kind::Dropped),
    ("proxy", Kind::ClaimsClient),
    ("expect", Kind::Dropped),
    ("trailer", Kind::Dropped),
    ("upgrade", Kind::Upgrade),
    ("x-scheme", Kind::ClaimsClient),
    ("forwarded", Kind::Forwarded),
    ("x-real-ip", Kind::ClaimsClient),
    ("connection", Kind::Connection),
    // Only who speaks TLS with the client knows that it came early (RFC 8470 5.1).
    ("early-data", Kind::ClaimsClient),
    ("keep-alive", Kind::Dropped),
    ("x-client-ip", Kind::ClaimsClient),
    ("max-forwards", Kind::MaxForwards),
    ("x-url-scheme", Kind::ClaimsClient),
    ("x-rewrite-url", Kind::ClaimsClient),
    ("content-length", Kind::Length),
    ("x-original-url", Kind::ClaimsClient),
    ("http2-settings", Kind::Dropped),
    ("true-client-ip", Kind::ClaimsClient),
    ("front-end-https", Kind::ClaimsClient),
    ("x-forwarded-for", Kind::ForwardedFor),
    ("x-forwarded-ssl", Kind::ClaimsClient),
    ("proxy-connection", Kind::Dropped),
    ("x-forwarded-host", Kind::ForwardedOther),
    ("x-forwarded-port", Kind::ClaimsClient),
    ("transfer-encoding", Kind::Coding),
    ("x-forwarded-proto", Kind::ForwardedOther),
    ("proxy-authenticate", Kind::Dropped),
    ("x-forwarded-prefix", Kind::ClaimsClient),
    ("x-forwarded-scheme", Kind::ClaimsClient),
    ("x-forwarded-server", Kind::ClaimsClient),
    ("proxy-authorization", Kind::Dropped),
    ("x-cluster-client-ip", Kind::ClaimsClient),
    ("x-forwarded-protocol", Kind::ClaimsClient),
    ("x-forwarded-client-cert", Kind::ClaimsClient),
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

/// Fields that say what becomes of a message, who asks, or how its body is to be read: those behind it come too late, and who
/// merges them with those in front would take them for what they are not (RFC 9110 6.5.1).
const NOT_TRAILING: [&str; 29] = [
    "accept",
    "accept-encoding",
    "age",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "expires",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "location",
    "origin",
    "pragma",
    "range",
    "referer",
    "retry-after",
    "set-cookie",
    "strict-transport-security",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
];

/// Whether a field of that name may stand behind a body: one that goes from end to end, claims nothing of a client, and is not
/// needed before.
pub(crate) fn may_trail(name: &str) -> bool {
    kind(name) == Kind::EndToEnd && !NOT_TRAILING.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Whether a Connection field of that value names a field that is not hop-by-hop by itself.
pub(crate) fn names_others(value: &[u8]) -> bool {
    options(value).any(|option| !is_usual(option))
}

/// What the Connection fields of a head name beside the usual, in lower case. Collected once: to walk all
/// fields for each field would take the square of their number, which a peer chooses.
pub(crate) struct Named(HashSet<Vec<u8>>);

impl Named {
    #[cold]
    pub(crate) fn in_fields(fields: Fields<'_>) -> Self {
        let named = fields.all("connection").flat_map(options).filter(|option| !is_usual(option));
        Self(named.map(<[u8]>::to_ascii_lowercase).collect())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.0.is_empty() && self.0.contains(name.to_ascii_lowercase().as_bytes())
    }
}

/// The options of a Connection field.
pub(crate) fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// Whether an option of Connection is `close`, or names a field that is hop-by-hop anyway.
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
pub(crate) fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(decimal(number, &mut [0; 20]));
}

/// A rule for one field.
///
/// Rules apply to fields that go from end to end. What frames a message, what is about one connection,
/// and what the proxy writes itself (Date, the client) is out of their reach: such a rule is a mistake
/// in the settings. Host can be set in requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldRule {
    /// The field has this value alone.
    Set(String, String),
    /// One more line of the field.
    Add(String, String),
    /// No line of the field.
    Remove(String),
}

/// Most bytes of a name, and of a value.
const NAME_BYTES_MAX: usize = 128;
const VALUE_BYTES_MAX: usize = 4096;

impl FieldRule {
    /// Reads a rule for requests: as [`FieldRule::read`], or `set Host: VALUE`.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read_for_requests(text: &str) -> Result<Self, String> {
        let Some((field, value)) = text.trim().split_once(':') else { return Self::read(text) };
        let words: Vec<&str> = field.split_ascii_whitespace().collect();
        let [verb, name] = words[..] else { return Self::read(text) };
        if !name.eq_ignore_ascii_case("host") {
            return Self::read(text);
        }
        let value = value.trim();
        if verb != "set" {
            return Err("a request has one Host; expected \"set Host: NAME\"".to_owned());
        }
        if value.is_empty() || !is_host_and_port(value.as_bytes()) {
            return Err(format!("\"{value}\" is not a host, with a port perhaps"));
        }
        Ok(Self::Set("Host".to_owned(), value.to_owned()))
    }

    /// Reads `set NAME: VALUE`, `add NAME: VALUE` or `remove NAME`.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (verb, rest) = text.trim().split_once(' ').unwrap_or((text, ""));
        if verb == "remove" {
            return name(rest).map(Self::Remove);
        }
        let make = match verb {
            "set" => Self::Set,
            "add" => Self::Add,
            _ => return Err(format!("\"{verb}\" is not an action")),
        };
        let (field, value) = rest.split_once(':').ok_or("it has no \":\" behind the name")?;
        let name = name(field)?;
        let value = value.trim();
        let is_sound = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        if !is_sound || value.len() > VALUE_BYTES_MAX {
            return Err(format!("the value has to be up to {VALUE_BYTES_MAX} characters of ASCII"));
        }
        Ok(make(name, value.to_owned()))
    }

    /// The field that it is about.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Set(name, _) | Self::Add(name, _) | Self::Remove(name) => name,
        }
    }
}

impl fmt::Display for FieldRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(name, value) => write!(f, "set {name}: {value}"),
            Self::Add(name, value) => write!(f, "add {name}: {value}"),
            Self::Remove(name) => write!(f, "remove {name}"),
        }
    }
}

/// A name that rules may be about (RFC 9110 5.6.2: a token).
fn name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_token) {
        return Err(format!("\"{name}\" is not the name of a field"));
    }
    match kind(name) {
        Kind::EndToEnd | Kind::ClaimsClient => Ok(name.to_owned()),
        Kind::ForwardedFor | Kind::ForwardedOther | Kind::Forwarded => {
            Err(format!("{name} is what --x-forwarded and --forwarded are for"))
        }
        _ => Err(format!(
            "{name} frames messages, is about one connection or is the proxy's own; expected a field \
             that goes from end to end"
        )),
    }
}

/// Whether a field that came goes no further.
#[inline]
pub(crate) fn drops<'r>(rules: impl IntoIterator<Item = &'r FieldRule>, name: &str) -> bool {
    let drops = |rule: &FieldRule| {
        !matches!(rule, FieldRule::Add(..)) && is_read_as(name.as_bytes(), rule.name().as_bytes())
    };
    rules.into_iter().any(drops)
}

/// Whether a name that came may be read as this one: some backends take `_` for `-`.
fn is_read_as(came: &[u8], name: &[u8]) -> bool {
    let same = |(came, name): (&u8, &u8)| {
        came.eq_ignore_ascii_case(name) || (*came == b'_' && *name == b'-')
    };
    came.len() == name.len() && came.iter().zip(name).all(same)
}

/// What Host is set to; the last rule holds.
#[inline]
pub(crate) fn host_of(rules: &[FieldRule]) -> Option<&str> {
    rules.iter().rev().find_map(|rule| match rule {
        FieldRule::Set(name, value) if is_host(name) => Some(value.as_str()),
        _ => None,
    })
}

/// Writes the lines that rules ask for, but for Host, which stands in front.
#[inline]
pub(crate) fn write_added<'r>(out: &mut Vec<u8>, rules: impl IntoIterator<Item = &'r FieldRule>) {
    for rule in rules {
        if let FieldRule::Set(name, value) | FieldRule::Add(name, value) = rule
            && !is_host(name)
        {
            write(out, name, value.as_bytes());
        }
    }
}

fn is_host(name: &str) -> bool {
    name.len() == 4 && name.eq_ignore_ascii_case("host")
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
    fn what_a_message_needs_in_front_does_not_trail() {
        for name in ["Authorization", "set-cookie", "Content-Type", "te", "Connection", "X-Real-IP"]
        {
            assert!(!may_trail(name), "{name}");
        }
        assert!(may_trail("grpc-status") && may_trail("Server-Timing"));
    }

    #[test]
    fn numbers_are_written_in_digits() {
        for number in [0, 7, 10, 128, u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }

    #[test]
    fn rules_are_read_as_they_are_shown() {
        for text in ["set X-Env: prod", "add Via: 1.1 front", "remove Cookie", "set X-Empty: "] {
            assert_eq!(FieldRule::read(text).expect(text).to_string(), text);
        }
        assert_eq!(
            FieldRule::read("  set  X-A :b:c "),
            Ok(FieldRule::Set("X-A".into(), "b:c".into()))
        );
    }

    #[test]
    fn no_rule_reaches_framing_or_a_connection_or_breaks_a_line() {
        for name in [
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "Host",
            "Expect",
            "Proxy-Connection",
            "HTTP2-Settings",
            "Date",
            "content_length",
            "Transfer_Encoding",
            "X-Forwarded-For",
            "Forwarded",
            "Max-Forwards",
            "a b",
            "",
            "a\r\nb",
        ] {
            for text in
                [format!("set {name}: 1"), format!("add {name}: 1"), format!("remove {name}")]
            {
                assert!(FieldRule::read(&text).is_err(), "{text:?}");
            }
        }
        for text in ["set X: a\r\nY: b", "set X: \0", "set X", "drop X", "", "set X: \u{e4}"] {
            assert!(FieldRule::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_rule_for_requests_may_set_host_to_a_host() {
        for text in ["set Host: app.example", " set  host :[::1]:81 "] {
            let rule = FieldRule::read_for_requests(text).expect(text);
            assert_eq!(rule.name(), "Host");
            FieldRule::read(text).expect_err("not in answers");
        }
        for text in [
            "set Host: a b",
            "set Host:",
            "set Host: a/b",
            "add Host: a",
            "remove Host",
            "set H_ost",
        ] {
            FieldRule::read_for_requests(text).expect_err(text);
        }
        let rules = ["set Host: a", "set X: 1", "set Host: b:81"];
        let rules = rules.map(|text| FieldRule::read_for_requests(text).expect(text));
        assert_eq!(host_of(&rules), Some("b:81"));
        let mut out = Vec::new();
        write_added(&mut out, &rules);
        assert_eq!(out, b"X: 1\r\n");
    }

    #[test]
    fn what_is_set_or_removed_is_dropped_in_any_case_and_what_is_added_stays() {
        let rules =
            ["set A: 1", "add B: 2", "remove C"].map(|text| FieldRule::read(text).expect("right"));
        let dropped = ["a", "b", "c", "d"].map(|name| drops(&rules, name));
        assert_eq!(dropped, [true, false, true, false]);
        let mut out = Vec::new();
        write_added(&mut out, &rules);
        assert_eq!(out, b"A: 1\r\nB: 2\r\n");
    }
}
