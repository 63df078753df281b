//! Cookies that lead a client back to the server that it had.
//!
//! ```text
//!  request ──► the mark in its cookie ──► is a server of the group marked so, and may it have requests?
//!                                          │ yes: it has this one              │ no, or no cookie: the one whose turn it is
//!                                          ▼                                   ▼
//!                                         answer as it came                   answer with a new cookie
//! ```
//!
//! A mark is a keyed hash of the address of a server: all proxies with the same secret give it the same one, whichever
//! order their settings have, and a server that is away for a while has it again. The address can't be read from it. Backends
//! never see the cookie. That a server gets no requests, as it is down, drained or not there any more, counts for clients that
//! have its mark as for all others: they are led to another one from then on.

use pollux_http::{Fields, Request};
use ring::hmac;

use crate::config::{GroupConfig, SameSite, Sticky};
use crate::fields;

/// Hexadecimal digits of a mark.
const MARK_DIGITS: usize = 16;

/// What stands for a server in a cookie; the default one for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Whether it is none.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }

    fn read(text: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_mark = text.len() == MARK_DIGITS && text.iter().all(is_digit);
        let text = str::from_utf8(text).ok().filter(|_| is_mark)?;
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

/// The cookie of a group.
#[derive(Debug)]
pub(crate) struct StickyCookie {
    name: String,
    key: hmac::Key,
    /// What stands behind its value.
    attributes: String,
    /// Browsers take it by https alone.
    is_always_secure: bool,
}

/// What a request says, and how it came, as far as the cookie of its group goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Brought {
    /// Of the server that its client had.
    pub(crate) mark: Mark,
    /// The client speaks TLS.
    pub(crate) is_secure: bool,
}

/// A cookie that an answer sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCookie<'a> {
    pub(crate) of: &'a StickyCookie,
    /// Of the server that the client has from now on.
    pub(crate) mark: Mark,
    /// The client speaks TLS.
    pub(crate) is_secure: bool,
}

impl StickyCookie {
    /// That of this group, where it has one.
    pub(crate) fn of(group: &GroupConfig) -> Option<Self> {
        let Sticky { cookie, secret, same_site } = group.sticky.as_ref()?;
        Some(Self {
            name: cookie.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.0.as_bytes()),
            attributes: format!("; Path=/; HttpOnly; SameSite={}", same_site.name()),
            is_always_secure: *same_site == SameSite::None,
        })
    }

    /// What stands for the server at this address.
    pub(crate) fn mark(&self, address: &str) -> Mark {
        let tag = hmac::sign(&self.key, address.as_bytes());
        let first = tag.as_ref().first_chunk().expect("it has 32 bytes");
        // The default one is none.
        Mark(u64::from_be_bytes(*first).max(1))
    }

    /// The mark that a request brings: the first one where it has several, or none.
    #[inline(never)]
    pub(crate) fn brought(&self, request: &Request<'_>) -> Mark {
        let mut pairs = request.fields.all("cookie").flat_map(pairs);
        pairs.find_map(|pair| Mark::read(self.value(pair)?)).unwrap_or_default()
    }

    /// The value of this cookie, if the pair is one.
    fn value<'p>(&self, pair: &'p [u8]) -> Option<&'p [u8]> {
        let value =
            pair.strip_prefix(self.name.as_bytes())?.trim_ascii_start().strip_prefix(b"=")?;
        Some(value.trim_ascii())
    }

    /// Writes a Cookie field without this cookie; nothing of one that has no other.
    pub(crate) fn write_others(&self, out: &mut Vec<u8>, field: &str, value: &[u8]) {
        if pairs(value).all(|pair| self.value(pair).is_none()) {
            return fields::write(out, field, value);
        }
        let mut others = pairs(value).filter(|pair| self.value(pair).is_none());
        let Some(first) = others.next() else { return };
        out.extend_from_slice(field.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(first);
        for other in others {
            out.extend_from_slice(b"; ");
            out.extend_from_slice(other);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The pairs of a Cookie field (RFC 6265 4.2.1).
fn pairs(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty())
}

impl NewCookie<'_> {
    /// Writes the field that sets it.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let Self { of: StickyCookie { name, attributes, is_always_secure, .. }, mark, is_secure } =
            self;
        let secure = if *is_secure || *is_always_secure { "; Secure" } else { "" };
        let value = format!("{name}={:016x}{attributes}{secure}", mark.0);
        fields::write(out, "Set-Cookie", value.as_bytes());
    }

    /// The same of an answer with these fields: caches that others share keep none that says nothing about them, as it is one
    /// client's.
    #[inline(never)]
    pub(crate) fn write_to(&self, out: &mut Vec<u8>, came: Fields<'_>, is_said: bool) {
        self.write(out);
        if came.first("cache-control").is_none() && !is_said {
            fields::write(out, "Cache-Control", b"private");
        }
    }
}

#[cfg(test)]
mod tests {
    use pollux_http::{Limits, Parsed};

    use super::*;
    use crate::config::ProxyConfig;

    fn cookie(more: &str) -> StickyCookie {
        let text = format!("sticky = \"cookie\"\n{more}\n[[server]]\naddress = \"10.0.0.1:80\"");
        let config = pollux_settings::Given::from_toml(&text, "p").read::<ProxyConfig>();
        StickyCookie::of(&config.expect("right").groups[0]).expect("it has one")
    }

    fn brought(cookie: &StickyCookie, lines: &str) -> Mark {
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
        let Parsed::Complete(request, _) = Request::parse(head.as_bytes(), &Limits::default())
        else {
            panic!("not sound: {head}")
        };
        cookie.brought(&request)
    }

    #[test]
    fn a_mark_is_that_of_an_address_and_of_a_secret_and_shows_neither() {
        let one = cookie("");
        let mark = one.mark("10.0.0.1:80");
        assert_eq!(mark, cookie("sticky_cookie = \"other\"").mark("10.0.0.1:80"));
        assert_ne!(mark, one.mark("10.0.0.2:80"));
        let secret = cookie("sticky_secret = \"0123456789abcdef\"");
        assert_ne!(mark, secret.mark("10.0.0.1:80"));
        // Another way to the same: printf %s 10.0.0.1:80 | openssl dgst -sha256 -hmac default
        assert_eq!(format!("{:016x}", mark.0), "c94637ca4cf3d943");
    }

    #[test]
    fn the_first_mark_of_a_request_is_read_and_nothing_that_looks_like_one() {
        let cookie = cookie("");
        for (lines, expected) in [
            ("", 0),
            ("Cookie: a=1\r\n", 0),
            ("Cookie: pollux_default=00000000000000ff\r\n", 0xff),
            ("Cookie: a=1;pollux_default=00000000000000ff ; b=2\r\n", 0xff),
            ("cookie: a=1\r\nCookie: b=2; pollux_default=00000000000000ff\r\n", 0xff),
            ("Cookie: pollux_default=x; pollux_default=00000000000000ff\r\n", 0xff),
            ("Cookie: pollux_default=0000000000000001; pollux_default=00000000000000ff\r\n", 1),
            ("Cookie: pollux_default=00000000000000FF\r\n", 0),
            ("Cookie: pollux_default=+0000000000000ff\r\n", 0),
            ("Cookie: pollux_default=ff\r\n", 0),
            ("Cookie: pollux_default\r\n", 0),
            ("Cookie: Pollux_default=00000000000000ff\r\n", 0),
            ("Cookie: xpollux_default=00000000000000ff\r\n", 0),
            ("Cookie: pollux_default2=00000000000000ff\r\n", 0),
            ("Cookie: a=pollux_default=00000000000000ff\r\n", 0),
            ("Cookie: pollux_default=\u{ff}000000000000ff\r\n", 0),
        ] {
            assert_eq!(brought(&cookie, lines), Mark(expected), "{lines}");
        }
    }

    #[test]
    fn other_cookies_are_passed_on_as_they_came() {
        let cookie = cookie("");
        for (value, expected) in [
            ("a=1;b=\"x y\" ;  c", "cookie: a=1;b=\"x y\" ;  c\r\n"),
            ("", "cookie: \r\n"),
            ("pollux_default=00000000000000ff", ""),
            ("pollux_default=x; pollux_default=y;", ""),
            ("a=1; pollux_default=z; b=2", "cookie: a=1; b=2\r\n"),
            ("pollux_default=z; a=1", "cookie: a=1\r\n"),
            ("a=1;pollux_default = z", "cookie: a=1\r\n"),
            (
                "a=pollux_default=z; pollux_default",
                "cookie: a=pollux_default=z; pollux_default\r\n",
            ),
        ] {
            let mut out = Vec::new();
            cookie.write_others(&mut out, "cookie", value.as_bytes());
            assert_eq!(String::from_utf8(out).expect("text"), expected, "{value}");
        }
    }

    #[test]
    fn a_cookie_says_to_whom_browsers_send_it() {
        let written = |more: &str, is_secure: bool| {
            let cookie = cookie(more);
            let mut out = Vec::new();
            NewCookie { of: &cookie, mark: Mark(255), is_secure }.write(&mut out);
            String::from_utf8(out).expect("text")
        };
        let lax = "Set-Cookie: pollux_default=00000000000000ff; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(written("", false), format!("{lax}\r\n"));
        assert_eq!(written("", true), format!("{lax}; Secure\r\n"));
        let none = "sticky_same_site = \"none\"\nsticky_cookie = \"r\"";
        let expected =
            "Set-Cookie: r=00000000000000ff; Path=/; HttpOnly; SameSite=None; Secure\r\n";
        assert_eq!(written(none, false), expected);
    }
}
