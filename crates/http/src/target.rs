//! Request targets in their four forms (RFC 9112 3.2). The request line calls it.

use crate::host;
use crate::{Method, Rejection};

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'b> {
    /// `/where?query`: the usual form.
    Origin {
        /// Undecoded, starts with `/`.
        path: &'b str,
        /// Undecoded, without the `?`.
        query: Option<&'b str>,
    },
    /// `http://host/where?query`, as a proxy gets it; its authority overrides Host.
    Absolute {
        /// Whether the scheme is `https` rather than `http`.
        is_https: bool,
        /// `host[:port]`, never empty.
        authority: &'b str,
        /// Undecoded, starts with `/`; `/` when the target had none.
        path: &'b str,
        /// Undecoded, without the `?`.
        query: Option<&'b str>,
    },
    /// `host:port`, for CONNECT only.
    Authority(&'b str),
    /// `*`, the server as a whole, for OPTIONS only.
    Asterisk,
}

impl<'b> Target<'b> {
    /// Reads a target whose bytes are visible ASCII without `#`.
    #[inline]
    pub(crate) fn parse(target: &'b str, method: Method<'b>) -> Result<Self, &'static Rejection> {
        if method == Method::Connect {
            return if host::has_host_and_port(target.as_bytes()) {
                Ok(Self::Authority(target))
            } else {
                Err(&CONNECT)
            };
        }
        if target.starts_with('/') {
            let (path, query) = split_query(target);
            return Ok(Self::Origin { path, query });
        }
        if target == "*" {
            return if method == Method::Options { Ok(Self::Asterisk) } else { Err(&ASTERISK) };
        }
        absolute(target)
    }

    /// The undecoded path; none for the forms that have none.
    #[must_use]
    pub fn path(&self) -> Option<&'b str> {
        match *self {
            Self::Origin { path, .. } | Self::Absolute { path, .. } => Some(path),
            Self::Authority(_) | Self::Asterisk => None,
        }
    }

    /// The undecoded query without its `?`.
    #[must_use]
    pub fn query(&self) -> Option<&'b str> {
        match *self {
            Self::Origin { query, .. } | Self::Absolute { query, .. } => query,
            Self::Authority(_) | Self::Asterisk => None,
        }
    }

    /// The authority that stands in the target itself.
    #[must_use]
    pub fn authority(&self) -> Option<&'b str> {
        match *self {
            Self::Absolute { authority, .. } | Self::Authority(authority) => Some(authority),
            Self::Origin { .. } | Self::Asterisk => None,
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

fn absolute(target: &str) -> Result<Target<'_>, &'static Rejection> {
    let (scheme, rest) = target.split_once("://").ok_or(&FORM)?;
    let is_https = scheme.eq_ignore_ascii_case("https");
    if !is_https && !scheme.eq_ignore_ascii_case("http") {
        return Err(&FORM);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    if authority.is_empty()
        || authority.starts_with(':')
        || !host::is_host_and_port(authority.as_bytes())
    {
        return Err(&AUTHORITY);
    }
    let (path, query) = split_query(rest);
    let path = if path.is_empty() { "/" } else { path };
    Ok(Target::Absolute { is_https, authority, path, query })
}

fn split_query(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(target: &str) -> Result<Target<'_>, &'static Rejection> {
        Target::parse(target, Method::Get)
    }

    #[test]
    fn a_path_may_have_a_query() {
        assert_eq!(get("/"), Ok(Target::Origin { path: "/", query: None }));
        assert_eq!(get("/a?b?c"), Ok(Target::Origin { path: "/a", query: Some("b?c") }));
        assert_eq!(get("//a"), Ok(Target::Origin { path: "//a", query: None }));
        assert_eq!(get("/?").map(|t| t.query()), Ok(Some("")));
    }

    #[test]
    fn an_absolute_target_is_taken_apart() {
        let target = get("HTTP://a:80/b?c").expect("sound");
        assert_eq!(target.authority(), Some("a:80"));
        assert_eq!((target.path(), target.query()), (Some("/b"), Some("c")));
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
        assert_eq!(Target::parse("*", Method::Options), Ok(Target::Asterisk));
        assert_eq!(get("*"), Err(&ASTERISK));
        assert_eq!(Target::parse("a:1", Method::Connect), Ok(Target::Authority("a:1")));
        for target in ["/", "a", "http://a/", "*"] {
            assert_eq!(Target::parse(target, Method::Connect), Err(&CONNECT), "{target}");
        }
    }
}
