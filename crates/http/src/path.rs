//! From the path of a target to the path of a file, below some directory.
//!
//! The file server calls it before it opens anything. The result is relative, has no segment
//! `.` or `..` and no NUL; that no symbolic link leads out is for `openat2` to see to.
//!
//! | in the target | policy |
//! |---|---|
//! | `%` without two hex digits, `%00` | 400: no honest client makes it |
//! | `%2F` | 404: a sound URI, but no file name can hold a slash |
//! | `.` and `..`, encoded or not | resolved; above the root 400 |
//! | empty segments (`//`) | as one slash |
//! | a slash, `.` or `..` at the end | names a directory |

use crate::{Rejection, Status};

/// A decoded path below a directory.
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
