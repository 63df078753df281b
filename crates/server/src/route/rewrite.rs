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
        if is_sound && !path.is_empty() { Ok(path.to_owned()) } else { Err(String::new()) }
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

    /// Whether a path is not what it was.
    pub(crate) fn is_some(&self) -> bool {
        !(self.strip.is_empty() && self.add.is_empty())
    }

    /// Where a client is led by the value of a Location that a backend gave, which is known by this name, and was asked for
    /// that of the client: the same where that is another host, a path that the backend is not asked for, or one that has the
    /// prefix already, by X-Forwarded-Prefix. At the host that the client asked for scheme and host stay, as they may lead to
    /// https.
    pub(crate) fn location<'v>(
        &self,
        value: &'v [u8],
        own_host: &[u8],
        asked_host: &[u8],
    ) -> Cow<'v, [u8]> {
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
            _ => match (path_at(value, own_host), path_at(value, asked_host)) {
                (Some(path), _) => own(path),
                (None, Some(path)) => own(path)
                    .map(|led| Cow::Owned([&value[..value.len() - path.len()], &led].concat())),
                (None, None) => None,
            },
        };
        led.unwrap_or(Cow::Borrowed(value))
    }
}

/// What is done with the slash at the end of paths that a backend is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slash {
    /// One is put behind paths without, but for those whose last part has a dot.
    Add,
    /// It is taken away, but for the root.
    Remove,
}

impl Slash {
    /// Writes the path that a client is led to, of one that is passed on; says whether that is another one.
    pub(crate) fn write(self, passed: &[u8], out: &mut Vec<u8>) -> bool {
        let slashes = passed.iter().take_while(|byte| **byte == b'/').count();
        let path = &passed[slashes.saturating_sub(1)..];
        let is_folder = passed.ends_with(b"/");
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        match self {
            Self::Add if !is_folder && !last.contains(&b'.') => {
                out.extend_from_slice(path);
                out.push(b'/');
            }
            Self::Remove if is_folder && path.len() > 1 => {
                let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |at| at + 1);
                out.extend_from_slice(&path[..end]);
            }
            Self::Add | Self::Remove => return false,
        }
        true
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
    let scheme = &uri[..scheme_end];
    let rest = &uri[scheme_end + 3..];
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
            ("/api", "", "http://www.example.org:81/login", "http://www.example.org:81/api/login"),
            ("/api", "", "https://WWW.example.org:81", "https://WWW.example.org:81/api/"),
            ("/api", "", "http://www.example.org/login", "http://www.example.org/login"),
            ("/api", "", "http://www.example.org:81/api/x", "http://www.example.org:81/api/x"),
            (
                "/api",
                "/v2",
                "http://www.example.org:81/v2/x?y",
                "http://www.example.org:81/api/x?y",
            ),
            ("/api", "/v2", "http://www.example.org:81/v3/x", "http://www.example.org:81/v3/x"),
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
            let location =
                location.location(value.as_bytes(), b"10.0.0.1:80", b"www.example.org:81");
            assert_eq!(String::from_utf8_lossy(&location), expected, "{strip} {add} {value}");
        }
    }

    #[test]
    fn a_slash_is_put_behind_or_taken_away_and_no_path_becomes_a_host() {
        for (slash, passed, expected) in [
            (Slash::Add, "/a/b", Some("/a/b/")),
            (Slash::Add, "/a/b/", None),
            (Slash::Add, "/", None),
            (Slash::Add, "/a/b.css", None),
            (Slash::Add, "/a.b/c", Some("/a.b/c/")),
            (Slash::Add, "//evil.example/c", Some("/evil.example/c/")),
            (Slash::Remove, "/a/b/", Some("/a/b")),
            (Slash::Remove, "/a/b///", Some("/a/b")),
            (Slash::Remove, "/a/b", None),
            (Slash::Remove, "/", None),
            (Slash::Remove, "//", None),
            (Slash::Remove, "//evil.example/", Some("/evil.example")),
        ] {
            let mut out = Vec::new();
            let is_led = slash.write(passed.as_bytes(), &mut out);
            let led = is_led.then(|| String::from_utf8_lossy(&out).into_owned());
            assert_eq!(led.as_deref(), expected, "{slash:?} {passed}");
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
