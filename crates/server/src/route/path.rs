//! The one reading of a path, and the patterns that it is matched with.
//!
//! What was decided on is what is passed on: a path that a backend may read in another way than the table of routes did would
//! pass by a route that is stricter. So each path is read once, and one that has two readings is refused.
//!
//! | in the path | matched | passed on |
//! |---|---|---|
//! | escapes of letters, digits, `-`, `.`, `_`, `~` | decoded | decoded |
//! | other escapes | decoded | as escapes, in capital letters |
//! | `.` and `..`, escaped or not | resolved | resolved |
//! | `//` | as one slash | as it was sent |
//! | `%2F`, `%5C`, `\`, `%00` and other control bytes, `%` without two hex digits | 400 | |
//! | `.` or `..` with a `;` behind it (`/x/..;/`), which some servers resolve | 400 | |
//! | `..` above the root, or over an empty part (`/a//../b`): it depends on the order of both steps | 400 | |
//!
//! What follows a `;` in a part of the path is a parameter of it to some servers, which take the path without, and part of its
//! name to others. Both are matched (`bare` is the one without), and have to lead to the same route (`table.rs`).

use std::fmt;

use pollux_http::{Rejection, Status};

const ESCAPE: Rejection = bad("% is not followed by two hex digits", "RFC 3986 2.1");
const AMBIGUOUS: Rejection = bad(
    "an escaped slash, a backslash or a control byte in a path has more than one reading",
    "RFC 3986 6",
);
const ABOVE_ROOT: Rejection = bad("the path leads above the root", "RFC 3986 5.2.4");
const ORDER: Rejection = bad("a .. behind // has more than one reading", "RFC 3986 5.2.4");

const PARAMETERS: Rejection =
    bad("a . or .. with ; behind it has more than one reading", "RFC 3986 3.3");

/// Of a path whose parameters decide between two routes.
pub(crate) const TWO_ROUTES: Rejection =
    bad("a ; in the path leads to another route than the path without it", "RFC 3986 3.3");

const fn bad(reason: &'static str, rfc: &'static str) -> Rejection {
    Rejection::new(Status::BAD_REQUEST, reason, rfc)
}

/// Room for a path that is not as it is read; one for each loop.
#[derive(Default, Debug)]
pub(crate) struct PathRoom {
    passed: Vec<u8>,
    matched: Vec<u8>,
    bare: Vec<u8>,
}

/// A path that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadPath<'r> {
    /// What routes are matched with: decoded. Begins with a slash.
    pub(crate) matched: &'r [u8],
    /// What is passed on. Begins with a slash.
    pub(crate) passed: &'r [u8],
    /// What is matched without parameters, where that is another path.
    pub(crate) bare: Option<&'r [u8]>,
}

impl<'r> ReadPath<'r> {
    /// Reads the path of a target: visible ASCII that begins with a slash.
    ///
    /// # Errors
    /// Why it has not one reading.
    #[inline]
    pub(crate) fn of(path: &'r [u8], room: &'r mut PathRoom) -> Result<Self, Rejection> {
        if is_plain(path) {
            return Ok(Self { matched: path, passed: path, bare: None });
        }
        resolve(path, &mut room.passed)?;
        decode(&room.passed, &mut room.matched);
        let has_parameters = room.matched.contains(&b';');
        if has_parameters {
            leave_out_parameters(&room.matched, &mut room.bare);
        }
        let bare = has_parameters.then_some(&*room.bare);
        Ok(Self { matched: &room.matched, passed: &room.passed, bare })
    }
}

/// Whether a path is as it is read.
#[inline]
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    for byte in path {
        match byte {
            b'%' | b'\\' | b';' => return false,
            b'/' | b'.' if before == b'/' => return false,
            _ => before = *byte,
        }
    }
    true
}

/// Resolves segments, and decodes what has to be for that.
fn resolve(path: &[u8], out: &mut Vec<u8>) -> Result<(), Rejection> {
    out.clear();
    let mut segments =
        path.strip_prefix(b"/").unwrap_or(path).split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let before = out.len();
        out.push(b'/');
        push_segment(segment, out)?;
        if has_dots_with_parameters(&out[before + 1..]) {
            return Err(PARAMETERS);
        }
        match &out[before + 1..] {
            b"." => out.truncate(before),
            b".." => {
                out.truncate(before);
                let parent = out.iter().rposition(|byte| *byte == b'/').ok_or(ABOVE_ROOT)?;
                if parent + 1 == out.len() {
                    return Err(ORDER);
                }
                out.truncate(parent);
            }
            _ => continue,
        }
        // What named a folder still does.
        if is_last {
            out.push(b'/');
        }
    }
    Ok(())
}

/// Whether a segment is `.` or `..` to a server that takes what follows a `;` for parameters of it.
fn has_dots_with_parameters(segment: &[u8]) -> bool {
    let rest = segment.strip_prefix(b"..").or_else(|| segment.strip_prefix(b"."));
    rest.is_some_and(|rest| rest.starts_with(b";") || rest.starts_with(b"%3B"))
}

/// Writes a segment with its escapes as they are passed on.
fn push_segment(mut rest: &[u8], out: &mut Vec<u8>) -> Result<(), Rejection> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'\\' | 0..=0x1f | 0x7f => return Err(AMBIGUOUS),
            b'%' => {
                let (digits, tail) = tail.split_first_chunk().ok_or(ESCAPE)?;
                let byte = hex_byte(*digits).ok_or(ESCAPE)?;
                rest = tail;
                match byte {
                    b'/' | b'\\' | 0..=0x1f | 0x7f => return Err(AMBIGUOUS),
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        out.push(byte);
                    }
                    _ => out.extend_from_slice(&[
                        b'%',
                        HEX[usize::from(byte >> 4)],
                        HEX[usize::from(byte & 15)],
                    ]),
                }
            }
            byte => out.push(*byte),
        }
    }
    Ok(())
}

fn hex_byte([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Decodes a path that is passed on, with one slash for several.
fn decode(passed: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut before = 0;
    for byte in Decoded(passed) {
        if byte != b'/' || before != b'/' {
            out.push(byte);
        }
        before = byte;
    }
}

/// A decoded path without what follows a `;` in its parts, with one slash for several.
fn leave_out_parameters(matched: &[u8], out: &mut Vec<u8>) {
    out.clear();
    for part in matched.split(|byte| *byte == b'/').skip(1) {
        let name = part.split(|byte| *byte == b';').next().unwrap_or_default();
        // A part of parameters alone is empty, as one between two slashes.
        if out.last() != Some(&b'/') {
            out.push(b'/');
        }
        out.extend_from_slice(name);
    }
}

/// The bytes of a path that is passed on, decoded: all of its escapes are sound.
struct Decoded<'p>(&'p [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        match rest.split_first_chunk() {
            Some((digits, tail)) if *first == b'%' => {
                self.0 = tail;
                hex_byte(*digits)
            }
            _ => Some(*first),
        }
    }
}

/// What follows these decoded bytes at the beginning of a path that is passed on; none where others stand there. Several
/// slashes are one: what follows a prefix that ends with a slash does not begin with one.
pub(crate) fn behind<'p>(passed: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let mut bytes = Decoded(passed);
    let mut before = 0;
    for expected in prefix {
        loop {
            let byte = bytes.next()?;
            let is_repeated = byte == b'/' && before == b'/';
            before = byte;
            if is_repeated {
                continue;
            }
            if byte != *expected {
                return None;
            }
            break;
        }
    }
    while before == b'/' && bytes.0.first() == Some(&b'/') {
        bytes.0 = &bytes.0[1..];
    }
    Some(bytes.0)
}

/// Longest pattern.
const PATTERN_BYTES_MAX: usize = 8 * 1024;

/// The paths that a route takes.
#[derive(Clone, Debug)]
pub(crate) struct PathPattern {
    /// As it was written.
    text: String,
    shape: Shape,
}

/// All of it decoded.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Shape {
    /// One path.
    Exact(Vec<u8>),
    /// A folder, with its slash, and all below it; without the slash as well.
    Below(Vec<u8>),
    /// Two parts or more, with anything between them.
    Parts(Vec<Vec<u8>>),
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape
    }
}

impl Eq for PathPattern {}

impl PathPattern {
    /// Reads a pattern as it stands in settings: what is not ASCII, or has to be escaped in a target, may be written as it is.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if !text.starts_with(['/', '*']) {
            return Err("does not begin with /; expected a path such as /feed.xml, /api/ for all below it, or a \
                        pattern such as /u/*/edit or *.php"
                .to_owned());
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("has {} bytes; expected at most {PATTERN_BYTES_MAX}", text.len()));
        }
        if let Some(at) = text.find(['?', '#']) {
            let what = if text[at..].starts_with('?') { "a query" } else { "a fragment" };
            return Err(format!("has {what}; expected the path alone, {}", &text[..at]));
        }
        let parts: Vec<Vec<u8>> =
            text.split('*').map(decoded_part).collect::<Result<_, String>>()?;
        let whole: Vec<u8> = parts.join(&b'*');
        if whole.windows(2).any(|two| two == b"//") {
            return Err("has // in it, which is matched as one slash; expected one".to_owned());
        }
        if whole.split(|byte| *byte == b'/').any(|part| matches!(part, b"." | b"..")) {
            return Err(
                "has . or .. in it, which no path has that is matched; expected it without"
                    .to_owned(),
            );
        }
        let ends_below = text.ends_with('/');
        let shape = match <[Vec<u8>; 1]>::try_from(parts) {
            Ok([one]) if ends_below => Shape::Below(one),
            Ok([one]) => Shape::Exact(one),
            Err(mut parts) => {
                if ends_below {
                    parts.push(Vec::new());
                }
                Shape::Parts(parts)
            }
        };
        Ok(Self { text: text.to_owned(), shape })
    }

    /// Whether it takes this path, as it is matched.
    #[inline]
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        match &self.shape {
            Shape::Exact(own) => path == own,
            Shape::Below(folder) => {
                path.starts_with(folder)
                    || (folder.len() > 1 && path == &folder[..folder.len() - 1])
            }
            Shape::Parts(parts) => matches_parts(parts, path),
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What it begins with: up to the first `*`, or all of it. As each path begins with a slash, that is the start of what
    /// begins with a `*`.
    pub(crate) fn start(&self) -> &[u8] {
        match &self.shape {
            Shape::Exact(own) | Shape::Below(own) => own,
            Shape::Parts(parts) if parts[0].is_empty() => b"/",
            Shape::Parts(parts) => &parts[0],
        }
    }

    /// What follows its start in a path that is passed on, and that it takes.
    pub(crate) fn rest<'p>(&self, passed: &'p [u8]) -> &'p [u8] {
        behind(passed, self.start()).unwrap_or_default()
    }

    /// A path that it takes, as it is sent.
    pub(crate) fn sample(&self) -> String {
        let path = match &self.shape {
            Shape::Exact(path) => path.clone(),
            Shape::Below(folder) => [folder, &b"x"[..]].concat(),
            Shape::Parts(parts) => parts.join(&b'x'),
        };
        let path = if path.starts_with(b"/") { path } else { [b"/", &path[..]].concat() };
        let encoded = path.iter().map(|byte| match byte {
            b'%' | b'?' | b'#' => format!("%{byte:02X}"),
            byte if byte.is_ascii_graphic() => char::from(*byte).to_string(),
            byte => format!("%{byte:02X}"),
        });
        encoded.collect()
    }

    /// By what it comes before others, the first ones first: one path, then those that say more up to their first `*`, of equal
    /// ones those with one, which say more behind it.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        use std::cmp::Reverse;
        let (is_exact, all) = match &self.shape {
            Shape::Exact(own) => (true, own.len()),
            Shape::Below(own) => (false, own.len()),
            Shape::Parts(parts) => (false, parts.iter().map(Vec::len).sum()),
        };
        let has_star = matches!(self.shape, Shape::Parts(_));
        (Reverse(is_exact), Reverse(self.start().len()), Reverse(has_star), Reverse(all))
    }

    /// Whether it takes all that the other one takes, of two that are tried in this order.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.shape, &other.shape) {
            (one, two) if one == two => true,
            (Shape::Below(folder), Shape::Parts(parts)) => parts[0].starts_with(folder),
            // The folder without its slash is not below it.
            (Shape::Parts(own), Shape::Below(folder)) => {
                matches!(&own[..], [start, end] if end.is_empty()
                    && folder.starts_with(start)
                    && (folder == b"/" || start.len() < folder.len()))
            }
            (Shape::Parts(own), Shape::Parts(parts)) => {
                matches!(&own[..], [start, end] if end.is_empty() && parts[0].starts_with(start))
            }
            _ => false,
        }
    }

    /// Whether some path may be taken by both, of two of the same rank. It may say so of some that have none in common.
    pub(crate) fn may_meet(&self, other: &Self) -> bool {
        match (&self.shape, &other.shape) {
            (Shape::Parts(one), Shape::Parts(two)) => {
                let (ends, end) =
                    (one.last().expect("two or more"), two.last().expect("two or more"));
                self.start() == other.start() && (ends.ends_with(end) || end.ends_with(ends))
            }
            (one, two) => one == two,
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A part of a pattern, decoded.
fn decoded_part(part: &str) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(part.len());
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || bytes.next();
                let digits = digit().zip(digit()).and_then(|(high, low)| hex_byte([high, low]));
                digits.ok_or("has a % without two hex digits; expected %25 for % itself")?
            }
            byte => byte,
        };
        if matches!(byte, b'\\' | 0..=0x1f | 0x7f) {
            return Err(
                "has a backslash or a control byte, which no path may have; expected it without"
                    .to_owned(),
            );
        }
        decoded.push(byte);
    }
    if decoded.iter().filter(|byte| **byte == b'/').count() > part.matches('/').count() {
        return Err("has an escaped slash, which no path may have; expected it without".to_owned());
    }
    Ok(decoded)
}

fn matches_parts(parts: &[Vec<u8>], path: &[u8]) -> bool {
    let [first, middle @ .., last] = parts else { return false };
    let Some(mut rest) = path.strip_prefix(&first[..]) else { return false };
    for part in middle {
        let Some(at) = find(rest, part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The first place of a part.
fn find(path: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { Some(0) } else { path.windows(part.len()).position(|at| at == part) }
}
