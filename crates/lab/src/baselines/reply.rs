//! The replies of a baseline server, and how it recognises a request: by the blank line and by the length of its body.
//!
//! All answer from constants that are made once. They read the first line only to tell HTTP/1.0 from 1.1,
//! which `ab` needs, and the fields of other requests than GET only for the length of the body. A body is read
//! to its end and forgotten; the reply follows behind it.

use memchr::{memchr, memmem::Finder};

/// The end of a request head.
const BLANK_LINE: &[u8] = b"\r\n\r\n";
/// Most bytes of a head; a longer one ends its connection.
const HEAD_BYTES_MAX: usize = 64 << 10;
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
    /// One reply or several; nothing to what can't be answered.
    pub(super) bytes: &'a [u8],
    /// Requests beyond these, for [`Replies::further`]: a burst larger than what is kept together.
    pub(super) unanswered: usize,
    /// Whether the connection ends behind it.
    pub(super) is_last: bool,
}

/// What a connection remembers of a request that has not come whole.
#[derive(Default)]
pub(super) struct Unfinished {
    /// Its head, as far as it came.
    head: Vec<u8>,
    /// What its head said, and how many bytes of its body are to come.
    body: Option<(Head, u64)>,
}

/// What the head of a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Head {
    /// HTTP/1.1, on a connection that is kept.
    Usual,
    /// HTTP/1.0, which asks for its connection to be kept.
    OldKept,
    /// HTTP/1.0, behind which it is closed.
    OldLast,
    /// A body whose length it does not say, or a head that is too long.
    Unanswerable,
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

    /// What `data`, just received, asks for. `unfinished` is the connection's own memory of the bytes before.
    #[inline]
    pub(super) fn answer(&self, data: &[u8], unfinished: &mut Unfinished) -> Option<Answer<'_>> {
        let mut requests = 0;
        let mut from = 0;
        while from < data.len() {
            let (used, whole) = self.next(&data[from..], unfinished);
            from += used;
            match whole {
                Some(Head::Usual) => requests += 1,
                // Clients of HTTP/1.0 wait for the reply.
                Some(Head::OldKept) if !self.closes => return Some(one(&self.kept, false)),
                Some(Head::OldKept | Head::OldLast) => return Some(one(&self.last, true)),
                Some(Head::Unanswerable) => return Some(one(&[], true)),
                None => {}
            }
        }
        if requests == 0 {
            return None;
        }
        let mut unanswered = if self.closes { 1 } else { requests };
        let bytes = self.further(&mut unanswered);
        Some(Answer { bytes, unanswered, is_last: self.closes })
    }

    /// How many bytes of `data` belong to the request under way, and what it asks for where it is whole
    /// with them.
    #[inline]
    fn next(&self, data: &[u8], unfinished: &mut Unfinished) -> (usize, Option<Head>) {
        if let Some((head, left)) = unfinished.body {
            return body(data, 0, (head, left), unfinished);
        }
        if !unfinished.head.is_empty() {
            return self.rest_of_head(data, unfinished);
        }
        let Some(at) = self.blank_line.find(data) else {
            unfinished.head.extend_from_slice(data);
            return (data.len(), too_long(unfinished));
        };
        let used = at + BLANK_LINE.len();
        body(data, used, read(&data[..used]), unfinished)
    }

    /// The same behind the bytes of a head that came before.
    #[cold]
    fn rest_of_head(&self, data: &[u8], unfinished: &mut Unfinished) -> (usize, Option<Head>) {
        let mut head = std::mem::take(&mut unfinished.head);
        let before = head.len();
        let look_from = head.len().saturating_sub(BLANK_LINE.len() - 1);
        head.extend_from_slice(data);
        let Some(at) = self.blank_line.find(&head[look_from..]) else {
            unfinished.head = head;
            return (data.len(), too_long(unfinished));
        };
        let end = look_from + at + BLANK_LINE.len();
        body(data, end - before, read(&head[..end]), unfinished)
    }

    /// Replies to as many of the `unanswered` requests as are kept together.
    #[inline]
    pub(super) fn further(&self, unanswered: &mut usize) -> &[u8] {
        let len = (*unanswered * self.one_len).min(self.together.len());
        *unanswered -= len / self.one_len;
        &self.together[..len]
    }
}

fn one(bytes: &[u8], is_last: bool) -> Answer<'_> {
    Answer { bytes, unanswered: 0, is_last }
}

/// Takes the bytes of a body, of which `left` are to come, from `data` behind its first `used`.
#[inline]
fn body(
    data: &[u8],
    used: usize,
    (head, left): (Head, u64),
    unfinished: &mut Unfinished,
) -> (usize, Option<Head>) {
    let here = ((data.len() - used) as u64).min(left);
    let left = left - here;
    unfinished.body = (left > 0).then_some((head, left));
    (used + here as usize, (left == 0).then_some(head))
}

/// What a head asks for, and the length of the body behind it.
#[inline]
fn read(head: &[u8]) -> (Head, u64) {
    // A GET, nearly always.
    let body_bytes = if head[0] == b'G' { Some(0) } else { body_bytes(head) };
    let asks = match body_bytes {
        None => Head::Unanswerable,
        Some(_) if !is_http_1_0(head) => Head::Usual,
        Some(_) if asks_to_be_kept(head) => Head::OldKept,
        Some(_) => Head::OldLast,
    };
    (asks, body_bytes.unwrap_or(0))
}

/// That a head without an end is longer than one may be.
fn too_long(unfinished: &Unfinished) -> Option<Head> {
    (unfinished.head.len() > HEAD_BYTES_MAX).then_some(Head::Unanswerable)
}

/// The length of the body behind a head; nothing where that is not a number, or the body comes in chunks.
fn body_bytes(head: &[u8]) -> Option<u64> {
    let mut len = 0;
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr(b':', line) else { continue };
        let name = &line[..colon];
        let value = line[colon + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return None;
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            len = std::str::from_utf8(value).ok()?.parse().ok()?;
        }
    }
    Some(len)
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
        let answer =
            replies.answer(&GET.repeat(3), &mut Unfinished::default()).expect("three requests");
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
            let mut unfinished = Unfinished::default();
            let parts = [&two[..cut], &two[cut..]];
            let bytes: usize = parts
                .into_iter()
                .filter_map(|part| replies.answer(part, &mut unfinished))
                .map(|answer| answer.bytes.len())
                .sum();
            assert_eq!(bytes, 2 * replies.one_len, "cut at {cut}");
        }
        let mut unfinished = Unfinished::default();
        let single: usize =
            two.iter().filter(|b| replies.answer(&[**b], &mut unfinished).is_some()).count();
        assert_eq!(single, 2, "byte by byte");
    }

    #[test]
    fn http_1_0_is_closed_unless_it_asks_to_be_kept() {
        let replies = Replies::new(8, false);
        let plain = replies
            .answer(b"GET / HTTP/1.0\r\n\r\n", &mut Unfinished::default())
            .expect("a request");
        assert!(plain.is_last && plain.bytes.starts_with(b"HTTP/1.0 200"));
        let kept = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
        assert!(!replies.answer(kept, &mut Unfinished::default()).expect("a request").is_last);
        let closing = Replies::new(8, true);
        assert!(closing.answer(kept, &mut Unfinished::default()).expect("a request").is_last);
        assert!(closing.answer(GET, &mut Unfinished::default()).expect("a request").is_last);
    }

    #[test]
    fn a_burst_larger_than_what_is_kept_together_is_answered_in_full() {
        let replies = Replies::new(60_000, false);
        let copies = replies.together.len() / replies.one_len;
        let answer = replies
            .answer(&GET.repeat(copies * 2 + 1), &mut Unfinished::default())
            .expect("requests");
        assert_eq!(answer.bytes.len(), replies.together.len());
        let mut unanswered = answer.unanswered;
        assert_eq!(replies.further(&mut unanswered).len(), replies.together.len());
        assert_eq!(replies.further(&mut unanswered).len(), replies.one_len);
        assert_eq!(unanswered, 0);
    }

    fn post(body: &str) -> Vec<u8> {
        format!("POST /x HTTP/1.1\r\nHost: x\r\ncontent-length:  {}\r\n\r\n{body}", body.len())
            .into_bytes()
    }

    /// A body was taken for the next request, or the reply came before its last byte.
    #[test]
    fn a_body_is_read_to_its_end_wherever_it_is_cut() {
        let replies = Replies::new(1, false);
        let body = "a\r\n\r\nGET / HTTP/1.0\r\n\r\nb";
        let all = [post(body), GET.to_vec(), post(""), post(body)].concat();
        for cut in 1..all.len() {
            let mut unfinished = Unfinished::default();
            let parts = [&all[..cut], &all[cut..]];
            let answers = parts.map(|part| replies.answer(part, &mut unfinished));
            let bytes: usize = answers.iter().flatten().map(|answer| answer.bytes.len()).sum();
            assert_eq!(bytes, 4 * replies.one_len, "cut at {cut}");
            assert!(answers.iter().flatten().all(|answer| !answer.is_last), "cut at {cut}");
            assert_eq!(answers[0].is_some(), cut >= post(body).len(), "cut at {cut}");
        }
        let mut unfinished = Unfinished::default();
        let single = all.iter().filter(|b| replies.answer(&[**b], &mut unfinished).is_some());
        assert_eq!(single.count(), 4, "byte by byte");
        assert!(unfinished.head.is_empty() && unfinished.body.is_none());
    }

    #[test]
    fn a_body_of_http_1_0_is_read_before_its_reply() {
        let replies = Replies::new(8, false);
        let head = b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n";
        let mut unfinished = Unfinished::default();
        assert_eq!(replies.answer(head, &mut unfinished), None);
        assert_eq!(replies.answer(b"1234", &mut unfinished), None);
        let answer = replies.answer(b"5", &mut unfinished).expect("a request");
        assert!(!answer.is_last && answer.bytes.starts_with(b"HTTP/1.0 200"));
    }

    #[test]
    fn what_has_no_length_or_no_end_ends_its_connection() {
        let replies = Replies::new(8, false);
        let long = [b'x'; HEAD_BYTES_MAX + 1];
        for request in [
            &b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"[..],
            b"PUT / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            &long,
        ] {
            let answer = replies.answer(request, &mut Unfinished::default()).expect("an end");
            assert_eq!(answer, one(&[], true), "{}", request.len());
        }
    }
}
