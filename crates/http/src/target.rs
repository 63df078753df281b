//! Request targets in their four forms (RFC 9112 3.2), the authorities in them, and the path of a file
//! below some directory. The request line and the file server call it.

use crate::fields::{self, run_len};
use crate::{Method, Rejection, Status};

/// What a request is about. It is taken apart when it is asked: most requests never are, and so
/// a request stays small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'b> {
    /// Visible ASCII without `#`, sound for its form.
    text: &'b [u8],
    form: Form,
}

/// The forms of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `/where?query`: the usual one.
    Origin,
    /// `http://host/where?query`, as a proxy gets it; its authority overrides Host.
    Absolute,
    /// `host:port`, for CONNECT only.
    Authority,
    /// `*`, the server as a whole, for OPTIONS only.
    Asterisk,
}

impl<'b> Target<'b> {
    /// Reads a target whose bytes are visible ASCII without `#`.
    #[inline(always)]
    pub(crate) fn parse(text: &'b [u8], method: Method<'b>) -> Result<Self, &'static Rejection> {
        match text {
            [b'/', ..] if method != Method::Connect => Ok(Self { text, form: Form::Origin }),
            _ => Self::parse_rare(text, method),
        }
    }

    #[cold]
    fn parse_rare(text: &'b [u8], method: Method<'b>) -> Result<Self, &'static Rejection> {
        let form = match (text, method) {
            (_, Method::Connect) if has_host_and_port(text) => Form::Authority,
            (_, Method::Connect) => return Err(&CONNECT),
            (b"*", Method::Options) => Form::Asterisk,
            (b"*", _) => return Err(&ASTERISK),
            _ => match split_absolute(text).ok_or(&FORM)?.0 {
                [] | [b':', ..] => return Err(&AUTHORITY),
                authority if is_host_and_port(authority) => Form::Absolute,
                _ => return Err(&AUTHORITY),
            },
        };
        Ok(Self { text, form })
    }

    /// As it was sent.
    #[must_use]
    pub fn text(&self) -> &'b [u8] {
        self.text
    }

    /// Which form it has.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether it is an https URI, which is to be served on connections that are secured alone (RFC 9110 7.4).
    #[must_use]
    #[inline]
    pub fn is_https(&self) -> bool {
        self.form == Form::Absolute && self.text[..5].eq_ignore_ascii_case(b"https")
    }

    /// The undecoded path, which starts with `/`; none for the forms that have none.
    #[must_use]
    pub fn path(&self) -> Option<&'b str> {
        let path = split_query(self.path_and_query()?).0;
        // An absolute target may end behind its authority.
        if path.is_empty() { Some("/") } else { str::from_utf8(path).ok() }
    }

    /// The undecoded query without its `?`.
    #[must_use]
    pub fn query(&self) -> Option<&'b str> {
        str::from_utf8(split_query(self.path_and_query()?).1?).ok()
    }

    /// The authority that stands in the target itself: `host[:port]`, never empty.
    #[must_use]
    pub fn authority(&self) -> Option<&'b str> {
        let authority = match self.form {
            Form::Absolute => split_absolute(self.text)?.0,
            Form::Authority => self.text,
            Form::Origin | Form::Asterisk => return None,
        };
        str::from_utf8(authority).ok()
    }

    /// What a server of that authority is asked for: the undecoded path with `?` and query. May lack
    /// the `/` in front in an absolute target; none for the forms that have no path.
    #[must_use]
    pub fn path_and_query(&self) -> Option<&'b [u8]> {
        match self.form {
            Form::Origin => Some(self.text),
            Form::Absolute => Some(split_absolute(self.text)?.1),
            Form::Authority | Form::Asterisk => None,
        }
    }
}

const ASTERISK: Rejection = Rejection::bad("target * is for OPTIONS only", "RFC 9112 3.2.4");
const CONNECT: Rejection =
    Rejection::bad("CONNECT wants host:port as its target", "RFC 9112 3.2.3");
const FORM: Rejection =
    Rejection::bad("the target is neither a path nor an http or https URI", "RFC 9112 3.2");
const AUTHORITY: Rejection =
    Rejection::bad("the target's authority is not host[:port]", "RFC 9110 4.2.1");

/// The authority and what follows it; none when this is not an http or https URI.
fn split_absolute(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|&b| b == b':')?;
    let (scheme, rest) = text.split_at(colon);
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    let rest = rest.strip_prefix(b"://")?;
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    Some(rest.split_at(end))
}

fn split_query(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (path, query) = text.split_at(run_len(text, fields::question_mark, |b| b != b'?'));
    (path, query.get(1..))
}

/// Whether the bytes are a `uri-host [ ":" port ]`; nothing at all is one (RFC 9112 3.2), a port alone is not.
///
/// Syntax only; whether the name exists is not checked here. User information is refused:
/// RFC 9110 4.2.4 calls it a means of deception, and no client sends it.
#[inline]
#[must_use]
pub fn is_host_and_port(authority: &[u8]) -> bool {
    // One pass settles what nearly every request sends.
    let plain = authority.iter().take_while(|&&b| NAME[usize::from(b)]).count();
    match &authority[plain..] {
        [] => true,
        // A port without a host names no URI (RFC 9110 4.2.1).
        [b':', port @ ..] if plain > 0 => is_port(port),
        _ => is_rare_host_and_port(authority),
    }
}

#[cold]
fn is_rare_host_and_port(authority: &[u8]) -> bool {
    let Some((host, port)) = split_port(authority) else { return false };
    is_host(host) && port.is_none_or(|port| !host.is_empty() && is_port(port))
}

/// Whether the bytes name a host and a port, both present, as CONNECT needs.
pub(crate) fn has_host_and_port(authority: &[u8]) -> bool {
    let Some((host, Some(port))) = split_port(authority) else { return false };
    !host.is_empty() && is_host(host) && !port.is_empty() && is_port(port)
}

/// Splits at the colon before the port; none when there is something else behind a literal.
fn split_port(authority: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let host_end = match authority.first() {
        Some(b'[') => authority.iter().position(|&b| b == b']')? + 1,
        _ => authority.iter().position(|&b| b == b':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(host_end);
    match rest.split_first() {
        None => Some((host, None)),
        Some((b':', port)) => Some((host, Some(port))),
        Some(_) => None,
    }
}

/// An empty port is allowed by the grammar; a number must be one a socket can have.
fn is_port(port: &[u8]) -> bool {
    let mut value = 0u32;
    for &b in port {
        let digit = b.wrapping_sub(b'0');
        value = value * 10 + u32::from(digit);
        if digit > 9 || value > 65_535 {
            return false;
        }
    }
    true
}

fn is_host(host: &[u8]) -> bool {
    match host {
        [b'[', literal @ .., b']'] => is_literal(literal),
        name => is_registered_name(name),
    }
}

fn is_literal(literal: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(literal) else { return false };
    if let Some(future) = text.strip_prefix(['v', 'V']) {
        let Some((version, rest)) = future.split_once('.') else { return false };
        return !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_hexdigit())
            && !rest.is_empty()
            && rest.bytes().all(|b| b == b':' || NAME[usize::from(b)]);
    }
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

fn is_registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [b, rest @ ..] if NAME[usize::from(*b)] => rest,
            _ => return false,
        }
    }
}

/// `unreserved` and `sub-delims` of RFC 3986 2.
static NAME: [bool; 256] = fields::alphanumeric_and(b"-._~!$&'()*+,;=");

/// A decoded path below a directory.
///
/// The file server calls it before it opens anything. The result is relative, has no segment
/// `.` or `..` and no NUL; that no symbolic link leads out is for `openat2` to see to.
///
/// | in the target | policy |
/// |---|---|
/// | `%` without two hex digits, `%00` | 400: no honest client makes it |
/// | `%2F` | 404: a sound URI, but no file name can hold a slash |
/// | `.` and `..`, encoded or not | resolved; above the root 400 |
/// | empty segments (`//`) | as one slash |
/// | a slash, `.` or `..` at the end | names a directory |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePath<'o> {
    /// Segments with slashes between them, none at the ends; empty for the root itself. May hold
    /// any byte but NUL.
    pub relative: &'o [u8],
    /// Whether the target asked for a directory.
    pub is_directory: bool,
}

const NOT_A_PATH: Rejection = Rejection::bad("a path starts with a slash", "RFC 9112 3.2.1");
const ESCAPE: Rejection =
    Rejection::bad("% is not followed by two hex digits other than 00", "RFC 3986 2.1");
const ABOVE_ROOT: Rejection = Rejection::bad("the path leads above the root", "RFC 3986 5.2.4");
const SLASH: Rejection =
    Rejection::new(Status::NOT_FOUND, "no file name holds a slash", "RFC 3986 2.2");
const LONG: Rejection =
    Rejection::new(Status::URI_TOO_LONG, "the path exceeds the buffer", "RFC 9110 15.5.15");

impl<'o> FilePath<'o> {
    /// Decodes the path of an origin or absolute target, once, into `out`, which must be at least
    /// as long as `path`.
    ///
    /// # Errors
    /// By the policy above; 414 when `out` is too short.
    pub fn decode(path: &str, out: &'o mut [u8]) -> Result<Self, Rejection> {
        let encoded = path.strip_prefix('/').ok_or(NOT_A_PATH)?;
        let room = out.get_mut(..path.len()).ok_or(LONG)?;
        let mut len = 0;
        let mut is_directory = true;
        for segment in encoded.as_bytes().split(|&b| b == b'/') {
            let end = decode_segment(segment, room, len)?;
            is_directory = true;
            match &room[len..end] {
                b"" | b"." => {}
                b".." => len = parent(&room[..len]).ok_or(ABOVE_ROOT)?,
                _ => {
                    room[end] = b'/';
                    len = end + 1;
                    is_directory = false;
                }
            }
        }
        let relative = &room[..len];
        Ok(Self { relative: relative.strip_suffix(b"/").unwrap_or(relative), is_directory })
    }
}

/// Writes a segment's bytes from `at` on, and says where they end. There is room for it and one
/// slash: what was written before came from as many bytes of the path.
fn decode_segment(segment: &[u8], room: &mut [u8], at: usize) -> Result<usize, Rejection> {
    let mut end = at;
    let mut rest = segment;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let mut b = first;
        if first == b'%' {
            let (digits, tail) = tail.split_first_chunk::<2>().ok_or(ESCAPE)?;
            b = hex_byte(*digits).filter(|&b| b != 0).ok_or(ESCAPE)?;
            rest = tail;
        }
        match b {
            b'/' => return Err(SLASH),
            0 => return Err(ESCAPE),
            _ => room[end] = b,
        }
        end += 1;
    }
    Ok(end)
}

fn hex_byte([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Where the last segment of a path that ends in a slash starts; none in the root.
fn parent(path: &[u8]) -> Option<usize> {
    let path = path.strip_suffix(b"/")?;
    Some(path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(target: &str) -> Result<Target<'_>, &'static Rejection> {
        Target::parse(target.as_bytes(), Method::Get)
    }

    #[test]
    fn a_path_may_have_a_query() {
        for (text, path, query) in [
            ("/", "/", None),
            ("/a?b?c", "/a", Some("b?c")),
            ("//a", "//a", None),
            ("/?", "/", Some("")),
            ("/long/enough/for/words?and=a&query", "/long/enough/for/words", Some("and=a&query")),
        ] {
            let target = get(text).expect("sound");
            assert_eq!((target.form(), target.authority()), (Form::Origin, None));
            assert_eq!((target.path(), target.query()), (Some(path), query), "{text}");
        }
    }

    #[test]
    fn an_absolute_target_is_taken_apart() {
        let target = get("HTTP://a:80/b?c").expect("sound");
        assert_eq!(target.authority(), Some("a:80"));
        assert_eq!((target.path(), target.query()), (Some("/b"), Some("c")));
        assert_eq!(target.form(), Form::Absolute);
        assert_eq!(get("https://a").expect("sound").path(), Some("/"));
        assert_eq!(get("http://a?q").map(|t| (t.path(), t.query())), Ok((Some("/"), Some("q"))));
    }

    #[test]
    fn other_forms_are_refused() {
        for target in
            ["a", "a:80", "ftp://a/", "http:///x", "http://u@a/", "http://:80/", "http:/a", "?a"]
        {
            assert!(get(target).is_err(), "{target}");
        }
    }

    #[test]
    fn asterisk_and_authority_belong_to_one_method_each() {
        let asterisk = Target::parse(b"*", Method::Options).expect("sound");
        assert_eq!((asterisk.form(), asterisk.path()), (Form::Asterisk, None));
        assert_eq!(get("*"), Err(&ASTERISK));
        let authority = Target::parse(b"a:1", Method::Connect).expect("sound");
        assert_eq!((authority.form(), authority.authority()), (Form::Authority, Some("a:1")));
        for target in ["/", "a", "http://a/", "*"] {
            assert_eq!(
                Target::parse(target.as_bytes(), Method::Connect),
                Err(&CONNECT),
                "{target}"
            );
        }
    }

    #[test]
    fn hosts_that_are_sound() {
        for host in [
            "",
            "a",
            "example.org",
            "example.org:80",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:443",
            "[v1.fe:80]",
            "a%20b",
            "a:",
            "x_y",
            "localhost:65535",
        ] {
            assert!(is_host_and_port(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn hosts_that_are_not() {
        for host in [
            "a b", "a/b", "user@a", "a:b", "a:80:80", "a:65536", "a:-1", "[::1", "::1", "[::1]x",
            "[zz]", ":80", ":", "a%2", "a%zz", "a?b", "a#b", "a\\b", "\u{e4}", "a,b c", "[v.a]",
            "[]",
        ] {
            assert!(!is_host_and_port(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn connect_needs_both_parts() {
        assert!(has_host_and_port(b"a:443"));
        assert!(has_host_and_port(b"[::1]:443"));
        for target in ["a", "a:", ":443", "", "[::1]"] {
            assert!(!has_host_and_port(target.as_bytes()), "{target}");
        }
    }

    fn decode(path: &str) -> Result<(String, bool), u16> {
        let mut out = vec![0; path.len()];
        let decoded = FilePath::decode(path, &mut out).map_err(|r| r.status.code())?;
        Ok((decoded.relative.escape_ascii().to_string(), decoded.is_directory))
    }

    #[test]
    fn paths_are_decoded_and_normalised() {
        for (path, relative, is_directory) in [
            ("/", "", true),
            ("/a", "a", false),
            ("/a/", "a", true),
            ("//a///b", "a/b", false),
            ("/a/./b/../c", "a/c", false),
            ("/a/..", "", true),
            ("/a/b/.", "a/b", true),
            ("/a/%2e%2E/b", "b", false),
            ("/%61%20b", "a b", false),
            ("/a..b/...", "a..b/...", false),
            ("/%252e", "%2e", false),
            ("/%C3%A4", "\\xc3\\xa4", false),
            ("/a\\b", "a\\\\b", false),
        ] {
            assert_eq!(decode(path), Ok((relative.to_owned(), is_directory)), "{path}");
        }
    }

    #[test]
    fn paths_that_are_refused() {
        for (path, code) in [
            ("", 400),
            ("a", 400),
            ("/..", 400),
            ("/a/../..", 400),
            ("/%2e%2e/", 400),
            ("/%", 400),
            ("/%4", 400),
            ("/%4/", 400),
            ("/%zz", 400),
            ("/%00", 400),
            ("/a%2fb", 404),
            ("/a%2F..%2F..", 404),
            ("/%+1", 400),
            ("/a/b/../../../a", 400),
        ] {
            assert_eq!(decode(path), Err(code), "{path}");
        }
    }

    #[test]
    fn a_short_buffer_is_414() {
        let mut out = [0; 2];
        assert_eq!(FilePath::decode("/ab", &mut out), Err(LONG));
        assert!(FilePath::decode("/a", &mut out).is_ok());
    }
}
