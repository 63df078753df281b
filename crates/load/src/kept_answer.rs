//! Which statuses answers had, and the first answer that was not right: the start of it, so that a reader sees what the
//! server said. Sessions note it; a thread keeps one of each kind, and the first of all threads is in the outcome.
//!
//! What a server sends is foreign text: it is cut, and escaped byte by byte where it is not printable.

use std::collections::BTreeMap;

use pollux_http::Rejection;

use crate::tally::{Fault, Verdict};
use crate::{AnswerStart, Expect};

/// Bytes of a body that are kept.
const BODY_BYTES: usize = 200;
/// And of the first line of a head.
const LINE_BYTES: usize = 200;
/// And of a Location.
const LOCATION_BYTES: usize = 500;

/// How often each status came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statuses(Vec<(u16, u64)>);

impl Statuses {
    /// Counts one. Servers have a few statuses, and mostly the same one, which stands first.
    #[inline]
    pub(crate) fn count(&mut self, status: u16) {
        match self.0.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => self.0.push((status, 1)),
        }
    }

    /// Adds all of `other`, and empties it.
    pub(crate) fn take(&mut self, other: &mut Self) {
        for (status, count) in other.0.drain(..) {
            match self.0.iter_mut().find(|(known, _)| *known == status) {
                Some((_, all)) => *all += count,
                None => self.0.push((status, count)),
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// By status, rising.
    pub(crate) fn sorted(&self) -> BTreeMap<u16, u64> {
        self.0.iter().copied().collect()
    }
}

/// The start of what can't be read as an answer, from its first byte on where `is_start`, and why.
fn unreadable(input: &[u8], is_start: bool, why: &str) -> AnswerStart {
    let (line, rest) = if is_start { first_line(input) } else { (&[][..], input) };
    AnswerStart {
        status_line: if is_start {
            escaped(line, LINE_BYTES)
        } else {
            "in the body of an answer".to_owned()
        },
        location: None,
        body: escaped(rest, BODY_BYTES),
        why: Some(why.to_owned()),
    }
}

/// A head and the start of its body, while it is not known what the answer is.
#[derive(Debug)]
pub(crate) struct Kept {
    status_line: Vec<u8>,
    location: Option<Vec<u8>>,
    body: Vec<u8>,
}

impl Kept {
    #[cold]
    pub(crate) fn of(head: &[u8]) -> Self {
        let (line, fields) = first_line(head);
        let cut = |bytes: &[u8], most: usize| bytes[..bytes.len().min(most)].to_vec();
        let location = fields.split(|byte| *byte == b'\n').find_map(|field| {
            let colon = field.iter().position(|byte| *byte == b':')?;
            let (name, value) = field.split_at(colon);
            name.eq_ignore_ascii_case(b"location")
                .then(|| cut(value[1..].trim_ascii(), LOCATION_BYTES))
        });
        Self { status_line: cut(line, LINE_BYTES), location, body: Vec::new() }
    }

    /// More of its body.
    pub(crate) fn body(&mut self, bytes: &[u8]) {
        let room = BODY_BYTES - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn start(&self, why: Option<String>) -> AnswerStart {
        AnswerStart {
            status_line: escaped(&self.status_line, LINE_BYTES),
            location: self.location.as_ref().map(|location| escaped(location, LOCATION_BYTES)),
            body: escaped(&self.body, BODY_BYTES),
            why,
        }
    }
}

/// The first answers of a thread that were not right, with when they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Firsts {
    pub(crate) wrong: Option<(u64, AnswerStart)>,
    pub(crate) redirect: Option<(u64, AnswerStart)>,
    /// Why the first connection failed that took a request of the measured time with it.
    pub(crate) failure: Option<(u64, String)>,
}

/// What is still looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    expect: Expect,
    wrong: bool,
    redirect: bool,
}

impl Wanted {
    /// Whether an answer with this head may be one of those.
    #[inline]
    pub(crate) fn is_suspect(self, head: &[u8]) -> bool {
        // `HTTP/1.1 200`: the head was read, so its status stands there.
        let digits = head.get(9..12).unwrap_or_default();
        self.is_suspect_status(digits.iter().fold(0, |all, digit| all * 10 + u16::from(digit & 15)))
    }

    /// The same of an answer with this status.
    #[inline]
    pub(crate) fn is_suspect_status(self, status: u16) -> bool {
        let is_length_wanted = self.expect.body_bytes.is_some();
        match Verdict::of_status(status, self.expect.status) {
            Verdict::Wrong(_) => self.wrong,
            Verdict::Redirected => self.redirect,
            Verdict::Right => self.wrong && is_length_wanted,
        }
    }
}

impl Firsts {
    #[inline]
    pub(crate) fn wanted(&self, expect: Expect) -> Wanted {
        Wanted { expect, wrong: self.wrong.is_none(), redirect: self.redirect.is_none() }
    }

    /// Keeps an answer if it is the first one that is not right; `body_bytes` is the length of its body.
    #[cold]
    pub(crate) fn note(
        &mut self,
        at_ns: u64,
        verdict: Verdict,
        kept: &Kept,
        (body_bytes, expect): (u64, &Expect),
    ) {
        let (place, why) = match verdict {
            Verdict::Right => return,
            Verdict::Redirected => (&mut self.redirect, None),
            Verdict::Wrong(Fault::Mismatch) => {
                let expected = expect.body_bytes.unwrap_or_default();
                let why = format!("a body of {body_bytes} bytes, expected {expected}");
                (&mut self.wrong, Some(why))
            }
            Verdict::Wrong(_) => (&mut self.wrong, None),
        };
        place.get_or_insert_with(|| (at_ns, kept.start(why)));
    }

    /// Keeps what can't be read as an answer if it is the first that is not right.
    #[cold]
    pub(crate) fn note_unreadable(
        &mut self,
        at_ns: u64,
        (input, is_start): (&[u8], bool),
        rejection: &Rejection,
    ) {
        let start = || unreadable(input, is_start, rejection.reason);
        self.wrong.get_or_insert_with(|| (at_ns, start()));
    }

    /// The first of both.
    pub(crate) fn merge(&mut self, other: &Self) {
        keep_earlier(&mut self.wrong, &other.wrong);
        keep_earlier(&mut self.redirect, &other.redirect);
        keep_earlier(&mut self.failure, &other.failure);
    }
}

/// The earlier of both, by the moment that each has.
fn keep_earlier<T: Clone>(mine: &mut Option<(u64, T)>, others: &Option<(u64, T)>) {
    let is_earlier = match (&*mine, others) {
        (Some((mine_ns, _)), Some((others_ns, _))) => others_ns < mine_ns,
        (None, Some(_)) => true,
        _ => false,
    };
    if is_earlier {
        mine.clone_from(others);
    }
}

/// The first line without its end, and what follows.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (bytes[..end].trim_ascii_end(), &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// The first bytes in printable characters: controls and what is not UTF-8 as `\n`, `\x1b`.
fn escaped(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for chunk in bytes[..bytes.len().min(most)].utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' | '"' => text.extend(['\\', character]),
                other if other.is_control() => text.extend(other.escape_default()),
                other => text.push(other),
            }
        }
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_sends_is_cut_and_cannot_reach_a_terminal() {
        let mut kept = Kept::of(b"HTTP/1.1 302 Found\r\nlocation:  /\x1b[2J \r\nA: b\r\n\r\n");
        kept.body(b"a\xff\"\n");
        kept.body(&[b'x'; 1000]);
        let start = kept.start(None);
        assert_eq!(start.status_line, "HTTP/1.1 302 Found");
        assert_eq!(start.location.as_deref(), Some("/\\u{1b}[2J"));
        assert_eq!(start.body, format!("a\\xff\\\"\\n{}", "x".repeat(196)));
        assert!(start.in_words().starts_with("HTTP/1.1 302 Found, Location: /"));
    }

    #[test]
    fn only_answers_that_may_be_wrong_are_kept() {
        let expect = |status, body_bytes| Expect { status, body_bytes };
        let head = |status: u16| format!("HTTP/1.1 {status} x\r\n\r\n").into_bytes();
        for (status, expect, is_suspect) in [
            (200, expect(None, None), false),
            (404, expect(None, None), true),
            (301, expect(None, None), true),
            (301, expect(Some(301), None), false),
            (200, expect(Some(201), None), true),
            (200, expect(None, Some(5)), true),
        ] {
            let wanted = Firsts::default().wanted(expect);
            assert_eq!(wanted.is_suspect(&head(status)), is_suspect, "{status} {expect:?}");
        }
    }

    #[test]
    fn the_first_of_all_threads_is_the_earliest() {
        let of = |at_ns| {
            let mut firsts = Firsts::default();
            let rejection = Rejection::new(pollux_http::Status::of(502), "no", "RFC 9112");
            firsts.note_unreadable(at_ns, (format!("{at_ns}").as_bytes(), true), &rejection);
            firsts
        };
        let mut all = of(5);
        [of(7), Firsts::default(), of(3)].iter().for_each(|other| all.merge(other));
        let (at_ns, start) = all.wrong.expect("one");
        assert_eq!((at_ns, &*start.in_short()), (3, "3 (no)"));
    }

    #[test]
    fn each_status_is_counted() {
        let mut all = Statuses::default();
        let mut more = Statuses::default();
        [200, 404, 200].into_iter().for_each(|status| all.count(status));
        [503, 404].into_iter().for_each(|status| more.count(status));
        all.take(&mut more);
        let sorted: Vec<(u16, u64)> = all.sorted().into_iter().collect();
        assert_eq!((sorted, more.sorted().len()), (vec![(200, 2), (404, 2), (503, 1)], 0));
    }
}
