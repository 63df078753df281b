//! The cookies of one connection: what its server set goes out with its later requests (RFC 6265).
//!
//! ```text
//!  head of an answer ─► note: its Set-Cookie values ─► learn: kept, replaced, deleted, refused
//!  prepared request ─► compose: the same with a Cookie field at the end of its head
//! ```
//!
//! Path, Max-Age and Expires are kept to. Domain and Secure are not looked at: all requests go to one
//! server. A cookie's age is looked at when it is set, and not again.

use std::time::SystemTime;

use httpdate::parse_http_date;

/// Cookies of one connection at most; the least that RFC 6265, section 6.1, asks of programs.
const COOKIES_MAX: usize = 50;
/// Bytes of name, value and path at most; likewise.
const COOKIE_BYTES_MAX: usize = 4096;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

#[derive(Debug)]
struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
}

/// What became of the cookies that an answer set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Learnt {
    /// Kept, replaced or deleted.
    pub(crate) set: u64,
    /// Too many, too long, or without a name.
    pub(crate) refused: u64,
}

/// The cookies of one connection. They survive its sockets.
#[derive(Debug, Default)]
pub(crate) struct Cookies {
    /// Those of longer paths first, as they are sent (RFC 6265, section 5.4); else in the order in which
    /// they were set.
    kept: Vec<Cookie>,
    /// Values of Set-Cookie that were not learnt yet, each with a line end.
    fresh: Vec<u8>,
    composed: Vec<u8>,
}

impl Cookies {
    /// Takes the Set-Cookie values of the head of an answer.
    pub(crate) fn note(&mut self, head: &[u8]) {
        const NAME: &[u8] = b"set-cookie:";
        for line in head.split(|byte| *byte == b'\n') {
            let Some((name, value)) = line.split_at_checked(NAME.len()) else { continue };
            if name.eq_ignore_ascii_case(NAME) {
                self.note_value(value);
            }
        }
    }

    /// Takes the value of one Set-Cookie.
    pub(crate) fn note_value(&mut self, value: &[u8]) {
        self.fresh.extend_from_slice(value.trim_ascii());
        self.fresh.push(b'\n');
    }

    /// Whether there is something to learn.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Keeps what was noted; `request` is what was answered.
    pub(crate) fn learn(&mut self, request: &[u8]) -> Learnt {
        let fresh = std::mem::take(&mut self.fresh);
        let mut learnt = Learnt::default();
        for value in fresh.split(|byte| *byte == b'\n').filter(|value| !value.is_empty()) {
            if self.set(value, request) { learnt.set += 1 } else { learnt.refused += 1 }
        }
        // Its room is used again.
        self.fresh = fresh;
        self.fresh.clear();
        learnt
    }

    /// RFC 6265, sections 5.2 and 5.3.
    fn set(&mut self, text: &[u8], request: &[u8]) -> bool {
        let mut parts = text.split(|byte| *byte == b';');
        let Some((name, value)) = pair(parts.next().unwrap_or_default()) else { return false };
        let mut path = None;
        let mut max_age = None;
        let mut expires = None;
        for attribute in parts {
            let (key, value) = pair(attribute).unwrap_or((attribute.trim_ascii(), b""));
            if key.eq_ignore_ascii_case(b"path") {
                path = Some(value).filter(|path| path.starts_with(b"/"));
            } else if key.eq_ignore_ascii_case(b"max-age") {
                max_age = seconds(value).or(max_age);
            } else if key.eq_ignore_ascii_case(b"expires") {
                let text = std::str::from_utf8(value).ok();
                expires = text.and_then(|text| parse_http_date(text).ok()).or(expires);
            }
        }
        let path = path.unwrap_or_else(|| default_path(request));
        let is_over = match (max_age, expires) {
            (Some(seconds), _) => seconds <= 0,
            (None, Some(at)) => at <= SystemTime::now(),
            (None, None) => false,
        };
        let known = self.kept.iter().position(|known| known.name == name && known.path == path);
        match known {
            Some(at) if is_over => drop(self.kept.remove(at)),
            None if is_over => {}
            _ if name.len() + value.len() + path.len() > COOKIE_BYTES_MAX => return false,
            Some(at) => value.clone_into(&mut self.kept[at].value),
            None if self.kept.len() >= COOKIES_MAX => return false,
            None => {
                let at = self.kept.partition_point(|known| known.path.len() >= path.len());
                let cookie = Cookie { name: name.into(), value: value.into(), path: path.into() };
                self.kept.insert(at, cookie);
            }
        }
        true
    }

    /// Makes `request` with the cookies that belong to it; says whether there is any.
    pub(crate) fn compose(&mut self, request: &[u8]) -> bool {
        self.composed.clear();
        let path = path_of(request);
        let Some(end) = request.windows(END_OF_HEAD.len()).position(|part| part == END_OF_HEAD)
        else {
            return false;
        };
        let (head, rest) = request.split_at(end);
        let mut separator: &[u8] = b"\r\nCookie: ";
        for cookie in self.kept.iter().filter(|cookie| matches(&cookie.path, path)) {
            if self.composed.is_empty() {
                self.composed.extend_from_slice(head);
            }
            self.composed.extend_from_slice(separator);
            self.composed.extend_from_slice(&cookie.name);
            self.composed.push(b'=');
            self.composed.extend_from_slice(&cookie.value);
            separator = b"; ";
        }
        if self.composed.is_empty() {
            return false;
        }
        self.composed.extend_from_slice(rest);
        true
    }

    /// What [`compose`](Self::compose) made last; nothing where there was no cookie.
    #[inline]
    pub(crate) fn composed(&self) -> Option<&[u8]> {
        Some(&*self.composed).filter(|composed| !composed.is_empty())
    }
}

/// Name and value without the blanks around them; none without a name.
fn pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    let name = text[..at].trim_ascii();
    let value = text[at + 1..].trim_ascii();
    (!name.is_empty()).then_some((name, value))
}

/// Digits with a sign; a number that is too large is one.
fn seconds(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok()?.parse().unwrap_or(i64::MAX);
    is_number.then_some(if is_negative { -number } else { number })
}

/// The path of a request, without its query.
fn path_of(request: &[u8]) -> &[u8] {
    let target = request.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    target.split(|byte| *byte == b'?').next().unwrap_or_default()
}

/// RFC 6265, section 5.1.4.
fn default_path(request: &[u8]) -> &[u8] {
    let path = path_of(request);
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(end @ 1..) if path.starts_with(b"/") => &path[..end],
        _ => b"/",
    }
}

/// Whether a cookie of one path belongs to a request for another (RFC 6265, section 5.1.4).
fn matches(cookie: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(cookie)
        .is_some_and(|rest| rest.is_empty() || cookie.ends_with(b"/") || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    fn set(cookies: &mut Cookies, request: &[u8], values: &[&str]) -> Learnt {
        let lines: String = values.iter().map(|value| format!("Set-Cookie: {value}\r\n")).collect();
        cookies.note(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n").as_bytes());
        cookies.learn(request)
    }

    /// The Cookie field of a request for this path.
    fn sent(cookies: &mut Cookies, path: &str) -> Option<String> {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n");
        cookies.compose(request.as_bytes()).then(|| {
            let composed =
                std::str::from_utf8(cookies.composed().expect("composed")).expect("text");
            let rest = composed.strip_suffix("\r\n\r\n\r\n\r\n").expect("head and body");
            let (head, field) = rest.split_once("\r\nCookie: ").expect("a field");
            assert!(head.ends_with("Content-Length: 4"), "{composed:?}");
            field.to_owned()
        })
    }

    #[test]
    fn what_was_set_is_sent_and_replaced_in_its_place() {
        let mut cookies = Cookies::default();
        assert_eq!(sent(&mut cookies, "/"), None);
        let learnt = set(&mut cookies, ROOT, &["a=1", " b = 2 ; HttpOnly", "set=x=y"]);
        assert_eq!(learnt, Learnt { set: 3, refused: 0 });
        assert!(!cookies.is_fresh());
        assert_eq!(sent(&mut cookies, "/").as_deref(), Some("a=1; b=2; set=x=y"));
        set(&mut cookies, ROOT, &["a=3"]);
        assert_eq!(sent(&mut cookies, "/x?y=/").as_deref(), Some("a=3; b=2; set=x=y"));
    }

    #[test]
    fn paths_decide_where_a_cookie_goes() {
        let mut cookies = Cookies::default();
        let request = b"GET /shop/cart?x=/y/z HTTP/1.1\r\nHost: a\r\n\r\n";
        set(&mut cookies, request, &["own=1", "all=2; Path=/", "odd=3; Path=relative"]);
        set(&mut cookies, request, &["deep=4; Path=/shop/cart"]);
        for (path, expected) in [
            ("/", Some("all=2")),
            ("/shop", Some("own=1; odd=3; all=2")),
            ("/shopping", Some("all=2")),
            ("/shop/cart/1", Some("deep=4; own=1; odd=3; all=2")),
        ] {
            assert_eq!(sent(&mut cookies, path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn an_age_that_is_over_deletes() {
        for over in ["Max-Age=0", "max-age=-5", "Expires=Thu, 01 Jan 1970 00:00:00 GMT"] {
            let mut cookies = Cookies::default();
            set(&mut cookies, ROOT, &["a=1", "b=2"]);
            assert_eq!(set(&mut cookies, ROOT, &[&format!("a=; {over}")]).set, 1);
            assert_eq!(sent(&mut cookies, "/").as_deref(), Some("b=2"), "{over}");
        }
        let mut cookies = Cookies::default();
        let later = "Max-Age=99999999999999999999; Expires=Thu, 01 Jan 1970 00:00:00 GMT";
        set(
            &mut cookies,
            ROOT,
            &[&format!("a=1; {later}"), "b=2; Max-Age=soon", "c=3; Expires=never"],
        );
        assert_eq!(sent(&mut cookies, "/").as_deref(), Some("a=1; b=2; c=3"));
    }

    #[test]
    fn what_is_too_much_is_refused_and_counted() {
        let mut cookies = Cookies::default();
        let long = format!("long={}", "x".repeat(COOKIE_BYTES_MAX));
        assert_eq!(
            set(&mut cookies, ROOT, &["=1", "nothing", &long]),
            Learnt { set: 0, refused: 3 }
        );
        let many: Vec<String> = (0..COOKIES_MAX + 5).map(|number| format!("n{number}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let learnt = set(&mut cookies, ROOT, &many);
        assert_eq!(learnt, Learnt { set: COOKIES_MAX as u64, refused: 5 });
        // One that is known can still change.
        assert_eq!(set(&mut cookies, ROOT, &["n0=2"]), Learnt { set: 1, refused: 0 });
        assert!(sent(&mut cookies, "/").is_some_and(|field| field.starts_with("n0=2; n1=1")));
    }
}
