//! Request targets in their four forms (RFC 9112 3.2). The request line calls it.

use crate::host;
use crate::scan::{self, run_len};
use crate::{Method, Rejection};

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
            (_, Method::Connect) if host::has_host_and_port(text) => Form::Authority,
            (_, Method::Connect) => return Err(&CONNECT),
            (b"*", Method::Options) => Form::Asterisk,
            (b"*", _) => return Err(&ASTERISK),
            _ => match split_absolute(text).ok_or(&FORM)?.0 {
                [] | [b':', ..] => return Err(&AUTHORITY),
                authority if host::is_host_and_port(authority) => Form::Absolute,
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
    let (path, query) = text.split_at(run_len(text, scan::question_mark, |b| b != b'?'));
    (path, query.get(1..))
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
}
