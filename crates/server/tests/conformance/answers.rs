//! Takes a stream of answers apart, strictly: what a sloppy server sends is a fault here.
//!
//! Written without the crate under test, so that a mistake is not made twice.

/// One answer as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case, values trimmed.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// How many 100 Continue came before it.
    pub(crate) interims: usize,
}

impl Answer {
    /// The value of the first field of that name, in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether a list in any field of that name has the element.
    pub(crate) fn lists(&self, name: &str, element: &str) -> bool {
        let values = self.fields.iter().filter(|(field, _)| field == name);
        values
            .flat_map(|(_, value)| value.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(element))
    }
}

/// What a stream held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answers {
    /// Whole answers.
    pub(crate) whole: Vec<Answer>,
    /// Whether bytes of one more answer stand behind them.
    pub(crate) has_part: bool,
}

impl Answers {
    /// Takes `stream` apart. The answers in `heads` that are true follow a HEAD request; those
    /// beyond its end do not.
    ///
    /// # Errors
    /// The first byte sequence that no server may send, in words.
    pub(crate) fn parse(stream: &[u8], heads: &[bool]) -> Result<Self, String> {
        let mut answers = Self { whole: Vec::new(), has_part: false };
        let mut rest = stream;
        let mut interims = 0;
        while !rest.is_empty() {
            let is_head = heads.get(answers.whole.len()).copied().unwrap_or(false);
            let Some((answer, len)) = answer(rest, is_head)? else {
                answers.has_part = true;
                break;
            };
            rest = &rest[len..];
            if answer.status == 100 {
                interims += 1;
            } else {
                answers.whole.push(Answer { interims, ..answer });
                interims = 0;
            }
        }
        Ok(answers)
    }
}

/// The answer at the front and its length; none when it has not come whole.
fn answer(stream: &[u8], is_head: bool) -> Result<Option<(Answer, usize)>, String> {
    let Some(end) = crate::case::find(stream, b"\r\n\r\n") else { return Ok(None) };
    let head = str::from_utf8(&stream[..end]).map_err(|_| "a head is not text".to_owned())?;
    let mut lines = head.split("\r\n");
    let status = status(lines.next().unwrap_or_default())?;
    let fields = lines.map(field).collect::<Result<Vec<_>, _>>()?;
    let mut answer = Answer { status, fields, body: Vec::new(), interims: 0 };
    let behind = &stream[end + 4..];
    let body = body(&answer, behind, is_head)?;
    Ok(body.map(|(body, len)| {
        answer.body = body;
        (answer, end + 4 + len)
    }))
}

fn status(line: &str) -> Result<u16, String> {
    let fault = || format!("{line:?} is not a status line");
    let rest = line.strip_prefix("HTTP/1.1 ").ok_or_else(fault)?;
    let (code, phrase) = rest.split_once(' ').ok_or_else(fault)?;
    let is_code = code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit());
    if !is_code || phrase.contains(|c: char| c.is_control()) {
        return Err(fault());
    }
    code.parse().map_err(|_| fault())
}

fn field(line: &str) -> Result<(String, String), String> {
    let fault = || format!("{line:?} is not a field line");
    let (name, value) = line.split_once(':').ok_or_else(fault)?;
    let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_token || value.contains(|c: char| c.is_control()) {
        return Err(fault());
    }
    Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
}

/// The body and the bytes it took; none when it has not come whole.
fn body(answer: &Answer, stream: &[u8], is_head: bool) -> Result<Option<(Vec<u8>, usize)>, String> {
    let count = |name: &str| answer.fields.iter().filter(|(field, _)| field == name).count();
    let (lengths, codings) = (count("content-length"), count("transfer-encoding"));
    if lengths + codings > 1 {
        return Err("more than one field says where the body ends".to_owned());
    }
    if answer.status < 200 || answer.status == 204 {
        if lengths + codings > 0 {
            return Err(format!("{} says where its body ends, but has none", answer.status));
        }
        return Ok(Some((Vec::new(), 0)));
    }
    if is_head || answer.status == 304 {
        return Ok(Some((Vec::new(), 0)));
    }
    if codings == 1 {
        return chunks(stream);
    }
    let length = answer.field("content-length").ok_or("nothing says where the body ends")?;
    let length: usize = length.parse().map_err(|_| format!("Content-Length {length:?}"))?;
    Ok(stream.get(..length).map(|body| (body.to_vec(), length)))
}

fn chunks(stream: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut rest) = (Vec::new(), stream);
    loop {
        let Some(end) = crate::case::find(rest, b"\r\n") else { return Ok(None) };
        let line = rest[..end].escape_ascii().to_string();
        let size = usize::from_str_radix(&line, 16).map_err(|_| format!("chunk size {line:?}"))?;
        let Some(chunk) = rest.get(end + 2..end + 4 + size) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err("a chunk is not followed by CRLF".to_owned());
        }
        body.extend_from_slice(&chunk[..size]);
        rest = &rest[end + 4 + size..];
        if size == 0 {
            return Ok(Some((body, stream.len() - rest.len())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(stream: &str, heads: &[bool]) -> Result<(Vec<u16>, bool), String> {
        let answers = Answers::parse(stream.as_bytes(), heads)?;
        Ok((answers.whole.iter().map(|answer| answer.status).collect(), answers.has_part))
    }

    const ONE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nA: b, C\r\n\r\nabc";

    #[test]
    fn answers_are_cut_at_their_ends() {
        let two = format!("{ONE}HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(statuses(&two, &[]), Ok((vec![200, 404], false)));
        let answers = Answers::parse(ONE.as_bytes(), &[]).expect("sound");
        assert_eq!(answers.whole[0].body, b"abc");
        assert_eq!(answers.whole[0].field("a"), Some("b, C"));
        assert!(answers.whole[0].lists("a", "c") && !answers.whole[0].lists("a", "x"));
    }

    #[test]
    fn a_part_is_seen() {
        for end in 1..ONE.len() {
            assert_eq!(statuses(&ONE[..end], &[]), Ok((vec![], true)), "{end}");
        }
        assert_eq!(statuses("", &[]), Ok((vec![], false)));
    }

    #[test]
    fn answers_to_head_and_304_have_no_body() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(statuses(&format!("{head}{ONE}"), &[true]), Ok((vec![200, 200], false)));
        assert_eq!(statuses("HTTP/1.1 304 Not Modified\r\n\r\n", &[]), Ok((vec![304], false)));
    }

    #[test]
    fn interim_answers_are_counted() {
        let stream = format!("HTTP/1.1 100 Continue\r\n\r\n{ONE}{ONE}");
        let answers = Answers::parse(stream.as_bytes(), &[]).expect("sound");
        assert_eq!((answers.whole[0].interims, answers.whole[1].interims), (1, 0));
    }

    #[test]
    fn chunks_are_joined() {
        let stream =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let answers = Answers::parse(stream.as_bytes(), &[]).expect("sound");
        assert_eq!(answers.whole[0].body, b"abc");
        assert_eq!(statuses(&stream[..stream.len() - 1], &[]), Ok((vec![], true)));
    }

    #[test]
    fn faults_are_reported() {
        for stream in [
            "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
            "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        ] {
            assert!(statuses(stream, &[]).is_err(), "{stream:?}");
        }
    }
}
