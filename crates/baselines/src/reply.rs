//! The replies of a baseline server, and how it recognises a request: by the blank line and nothing else.
//!
//! Both answer from constants that are made once. They read the first line only to
//! tell HTTP/1.0 from 1.1, which `ab` needs.

use memchr::{memchr, memmem::Finder};

/// The end of a request head.
const BLANK_LINE: &[u8] = b"\r\n\r\n";
/// Most replies that one send carries; some more short requests fit into a read.
const TOGETHER_MAX: usize = 256;
/// Most bytes that the replies which are kept together may take.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// The replies of one baseline server.
pub(super) struct Replies {
    /// The HTTP/1.1 reply, many times in a row.
    together: Vec<u8>,
    one_len: usize,
    /// The HTTP/1.0 reply after which the connection is closed.
    last: Vec<u8>,
    /// The HTTP/1.0 reply after which it is kept.
    kept: Vec<u8>,
    closes: bool,
    blank_line: Finder<'static>,
}

/// What to send for the bytes that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    /// One reply or several; never empty.
    pub(super) bytes: &'a [u8],
    /// Requests beyond these, for [`Replies::further`]: a burst larger than what is kept together.
    pub(super) unanswered: usize,
    /// Whether the connection ends behind it.
    pub(super) is_last: bool,
}

impl Replies {
    /// Replies with a body of `body_bytes`; with `closes` every one ends its connection.
    pub(super) fn new(body_bytes: usize, closes: bool) -> Self {
        let reply = |version: &str, connection: &str| {
            let mut reply = format!(
                "HTTP/{version} 200 OK\r\nServer: raw\r\nContent-Type: text/plain\r\n\
                 Content-Length: {body_bytes}\r\n{connection}\r\n"
            )
            .into_bytes();
            reply.resize(reply.len() + body_bytes, b'x');
            reply
        };
        let one = reply("1.1", if closes { "Connection: close\r\n" } else { "" });
        let copies = (TOGETHER_BYTES_MAX / one.len()).clamp(1, TOGETHER_MAX);
        Self {
            together: one.repeat(copies),
            one_len: one.len(),
            last: reply("1.0", "Connection: close\r\n"),
            kept: reply("1.0", "Connection: keep-alive\r\n"),
            closes,
            blank_line: Finder::new(BLANK_LINE),
        }
    }

    /// What `data`, just received, asks for. `carry` is the connection's own memory of how much
    /// of a blank line the bytes before ended with.
    #[inline]
    pub(super) fn answer(&self, data: &[u8], carry: &mut u8) -> Option<Answer<'_>> {
        let requests = self.blank_lines(data, carry);
        if requests == 0 {
            return None;
        }
        if is_http_1_0(data) {
            let is_kept = !self.closes && asks_to_be_kept(data);
            let bytes = if is_kept { &self.kept } else { &self.last };
            return Some(Answer { bytes, unanswered: 0, is_last: !is_kept });
        }
        let mut unanswered = if self.closes { 1 } else { requests };
        let bytes = self.further(&mut unanswered);
        Some(Answer { bytes, unanswered, is_last: self.closes })
    }

    /// Replies to as many of the `unanswered` requests as are kept together.
    #[inline]
    pub(super) fn further(&self, unanswered: &mut usize) -> &[u8] {
        let len = (*unanswered * self.one_len).min(self.together.len());
        *unanswered -= len / self.one_len;
        &self.together[..len]
    }

    /// Blank lines in `data`, one that began in the bytes before included.
    #[inline]
    fn blank_lines(&self, data: &[u8], carry: &mut u8) -> usize {
        let mut found = 0;
        let mut from = 0;
        if *carry > 0 {
            let missing = &BLANK_LINE[usize::from(*carry)..];
            if data.starts_with(missing) {
                found = 1;
                from = missing.len();
            } else if missing.starts_with(data) {
                *carry += data.len() as u8;
                return 0;
            }
        }
        while let Some(at) = self.blank_line.find(&data[from..]) {
            found += 1;
            from += at + BLANK_LINE.len();
        }
        *carry = if from == data.len() { 0 } else { started(&data[from..]) };
        found
    }
}

/// How many bytes of a blank line stand at the end of `data`.
fn started(data: &[u8]) -> u8 {
    let starts = (1..BLANK_LINE.len()).rev();
    starts.into_iter().find(|len| data.ends_with(&BLANK_LINE[..*len])).unwrap_or(0) as u8
}

/// Whether the first line ends in a version with the minor number 0.
fn is_http_1_0(data: &[u8]) -> bool {
    memchr(b'\r', data).is_some_and(|end| end > 0 && data[end - 1] == b'0')
}

fn asks_to_be_kept(data: &[u8]) -> bool {
    Finder::new("Keep-Alive").find(data).is_some() || Finder::new("keep-alive").find(data).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn each_blank_line_is_one_reply_with_a_body_of_the_right_length() {
        let replies = Replies::new(128, false);
        let answer = replies.answer(&GET.repeat(3), &mut 0).expect("three requests");
        let text = String::from_utf8(answer.bytes.to_vec()).expect("ASCII");
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3);
        assert_eq!(text.matches(&"x".repeat(128)).count(), 3);
        assert!(text.contains("Content-Length: 128\r\n"));
        assert!(!answer.is_last && answer.unanswered == 0);
    }

    #[test]
    fn a_request_is_counted_once_wherever_it_is_cut() {
        let replies = Replies::new(1, false);
        let two = GET.repeat(2);
        for cut in 1..two.len() {
            let mut carry = 0;
            let parts = [&two[..cut], &two[cut..]];
            let bytes: usize = parts
                .into_iter()
                .filter_map(|part| replies.answer(part, &mut carry))
                .map(|answer| answer.bytes.len())
                .sum();
            assert_eq!(bytes, 2 * replies.one_len, "cut at {cut}");
        }
        let mut carry = 0;
        let single: usize =
            two.iter().filter(|b| replies.answer(&[**b], &mut carry).is_some()).count();
        assert_eq!(single, 2, "byte by byte");
    }

    #[test]
    fn http_1_0_is_closed_unless_it_asks_to_be_kept() {
        let replies = Replies::new(8, false);
        let plain = replies.answer(b"GET / HTTP/1.0\r\n\r\n", &mut 0).expect("a request");
        assert!(plain.is_last && plain.bytes.starts_with(b"HTTP/1.0 200"));
        let kept = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
        assert!(!replies.answer(kept, &mut 0).expect("a request").is_last);
        let closing = Replies::new(8, true);
        assert!(closing.answer(kept, &mut 0).expect("a request").is_last);
        assert!(closing.answer(GET, &mut 0).expect("a request").is_last);
    }

    #[test]
    fn a_burst_larger_than_what_is_kept_together_is_answered_in_full() {
        let replies = Replies::new(60_000, false);
        let copies = replies.together.len() / replies.one_len;
        let answer = replies.answer(&GET.repeat(copies * 2 + 1), &mut 0).expect("requests");
        assert_eq!(answer.bytes.len(), replies.together.len());
        let mut unanswered = answer.unanswered;
        assert_eq!(replies.further(&mut unanswered).len(), replies.together.len());
        assert_eq!(replies.further(&mut unanswered).len(), replies.one_len);
        assert_eq!(unanswered, 0);
    }
}
