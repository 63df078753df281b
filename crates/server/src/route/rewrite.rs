//! What a backend gets of a path, and what its clients get of where it leads them.

use std::borrow::Cow;

use crate::route::path::behind;

/// What is taken away from the beginning of a path, and what is put there.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Rewrite {
    /// Begins with a slash, and ends with none; empty for nothing.
    pub(crate) strip: String,
    /// The same.
    pub(crate) add: String,
}

impl Rewrite {
    /// Reads `strip` or `add`: a path as it stands in a target.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<String, String> {
        let is_sound = text.starts_with('/')
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#%\\*".contains(&byte))
            && !text.contains("//")
            && !text.split('/').any(|part| matches!(part, "." | ".."));
        let path = text.strip_suffix('/').unwrap_or(text);
        match is_sound && !path.is_empty() {
            true => Ok(path.to_owned()),
            false => Err(String::new()),
        }
    }

    /// Writes the path that the backend gets of one that is passed on. Its first slash is alone: two would name a host.
    pub(crate) fn write_path(&self, passed: &[u8], out: &mut Vec<u8>) {
        // Only whole parts of the path are taken away.
        let is_whole = |rest: &&[u8]| rest.first().is_none_or(|byte| *byte == b'/');
        let rest = behind(passed, self.strip.as_bytes()).filter(is_whole).unwrap_or(passed);
        out.extend_from_slice(self.add.as_bytes());
        let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
        out.push(b'/');
        out.extend_from_slice(&rest[slashes..]);
    }

    /// Where a client is led by the value of a Location that a backend gave, which is known by this name: the same where that
    /// is another host, a path that the backend is not asked for, or one that has the prefix already, by X-Forwarded-Prefix.
    pub(crate) fn location<'v>(&self, value: &'v [u8], host: &[u8]) -> Cow<'v, [u8]> {
        let ends = |rest: &[u8]| matches!(rest.first(), None | Some(b'/' | b'?' | b'#'));
        let has_prefix = |path: &[u8]| {
            !self.strip.is_empty() && path.strip_prefix(self.strip.as_bytes()).is_some_and(ends)
        };
        let own = |path: &'v [u8]| -> Option<Cow<'v, [u8]>> {
            if has_prefix(path) {
                return None;
            }
            let rest = match self.add.as_bytes() {
                b"" => path,
                add => path.strip_prefix(add)?,
            };
            ends(rest).then(|| Cow::Owned([self.strip.as_bytes(), &rest_or_root(rest)].concat()))
        };
        let led = match value {
            [b'/', b'/', ..] => None,
            [b'/', ..] => own(value),
            _ => path_at(value, host).and_then(own),
        };
        led.unwrap_or(Cow::Borrowed(value))
    }
}

/// A path is never empty.
fn rest_or_root(rest: &[u8]) -> Cow<'_, [u8]> {
    match rest.first() {
        Some(b'/') => Cow::Borrowed(rest),
        _ => Cow::Owned([b"/", rest].concat()),
    }
}

/// The path of a URI of this host, and what follows it.
fn path_at<'v>(uri: &'v [u8], host: &[u8]) -> Option<&'v [u8]> {
    let scheme_end = uri.windows(3).position(|at| at == b"://")?;
    let (scheme, rest) = (&uri[..scheme_end], &uri[scheme_end + 3..]);
    let is_http = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    (is_http && !host.is_empty() && authority.eq_ignore_ascii_case(host)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(strip: &str, add: &str) -> Rewrite {
        Rewrite { strip: strip.to_owned(), add: add.to_owned() }
    }

    #[test]
    fn a_backend_gets_the_path_without_what_is_stripped_and_with_what_is_added() {
        for (strip, add, passed, expected) in [
            ("/api", "", "/api/x", "/x"),
            ("/api", "", "/api", "/"),
            ("/api", "", "/api/", "/"),
            ("/api", "/v2", "/api/x", "/v2/x"),
            ("", "/admin", "/x", "/admin/x"),
            ("", "/admin", "/", "/admin/"),
            ("/api", "", "/api//x//y", "/x//y"),
            ("/api", "", "//api/x", "/x"),
            ("/a@b", "", "/a%40b/x%20y", "/x%20y"),
            ("", "", "/x//y", "/x//y"),
            ("", "", "//y/admin", "/y/admin"),
            ("/x", "", "/xadmin/secret", "/xadmin/secret"),
        ] {
            let mut out = Vec::new();
            rewrite(strip, add).write_path(passed.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{strip} {add} {passed}");
        }
    }

    #[test]
    fn a_location_of_the_backend_gets_its_prefix_back_and_another_one_stays() {
        for (strip, add, value, expected) in [
            ("/api", "", "/login?next=/", "/api/login?next=/"),
            ("/api", "", "http://10.0.0.1:80/login", "/api/login"),
            ("/api", "", "https://10.0.0.1:80", "/api/"),
            ("/api", "", "http://10.0.0.1:80?x", "/api/?x"),
            ("/api", "", "https://login.example/x", "https://login.example/x"),
            ("/api", "", "//10.0.0.1:80/login", "//10.0.0.1:80/login"),
            ("/api", "", "login", "login"),
            ("/api", "", "/api/login", "/api/login"),
            ("/api", "", "/api", "/api"),
            ("/api", "", "/apis", "/api/apis"),
            ("/api", "", "http://10.0.0.1:80/api/x", "http://10.0.0.1:80/api/x"),
            ("/api", "", "?page=2", "?page=2"),
            ("/api", "/v2", "/v2/login", "/api/login"),
            ("/api", "/v2", "/v2", "/api/"),
            ("/api", "/v2", "/v20/login", "/v20/login"),
            ("", "/admin", "/admin/x", "/x"),
            ("", "/admin", "/x", "/x"),
        ] {
            let location = rewrite(strip, add);
            let location = location.location(value.as_bytes(), b"10.0.0.1:80");
            assert_eq!(String::from_utf8_lossy(&location), expected, "{strip} {add} {value}");
        }
    }

    #[test]
    fn what_is_stripped_or_added_is_a_path() {
        assert_eq!(Rewrite::read("/api/").as_deref(), Ok("/api"));
        for wrong in ["", "/", "api", "/a?b", "/a//b", "/a/../b", "/a b", "/a%20b", "/*"] {
            assert!(Rewrite::read(wrong).is_err(), "{wrong}");
        }
    }
}
