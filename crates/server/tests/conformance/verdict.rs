//! Judges what a server sent against its case: the case's own wishes, and the rules that every
//! answer keeps.

use crate::cases::{After, Case, Expected, Interim, Setup};

/// Judges all bytes that came for `case`, without those for the request that a runner may send
/// behind it; `has_ended` says whether the server ended the connection.
///
/// # Errors
/// The first thing that is not as it must be, in words.
pub(crate) fn judge(case: &Case, stream: &[u8], has_ended: bool) -> Result<(), String> {
    let answers = Answers::parse(stream, &case.heads())?;
    if case.after == After::ClosedOrCut && answers.whole.len() + 1 == case.answers.len() {
        return if has_ended { Ok(()) } else { Err("it was neither refused nor cut".to_owned()) };
    }
    let may_have_begun = case.after == After::Waiting && case.setup == Setup::Echo;
    if answers.has_part && !may_have_begun {
        return Err("the last answer is not whole".to_owned());
    }
    if answers.whole.len() != case.answers.len() {
        let came: Vec<u16> = answers.whole.iter().map(|answer| answer.status).collect();
        return Err(format!("{} answers must come, {came:?} came", case.answers.len()));
    }
    for (at, (answer, expected)) in answers.whole.iter().zip(&case.answers).enumerate() {
        as_expected(answer, expected)
            .and_then(|()| keeps_the_rules(answer))
            .map_err(|fault| format!("answer {at}: {fault}"))?;
    }
    suits_the_end(case, answers.whole.last(), has_ended)
}

fn as_expected(answer: &Answer, expected: &Expected) -> Result<(), String> {
    let Answer { status, body, interims, .. } = answer;
    if !expected.statuses.contains(status) {
        return Err(format!("{status} came, {:?} was expected", expected.statuses));
    }
    let is_wrong = match expected.interim {
        Interim::Must => *interims != 1,
        Interim::May => *interims > 1,
        Interim::Never => *interims > 0,
    };
    if is_wrong {
        return Err(format!("{interims} interim answers, {:?}", expected.interim));
    }
    if expected.body.as_ref().is_some_and(|expected| expected != body) {
        return Err(format!("another body of {} bytes", body.len()));
    }
    for (name, value) in &expected.fields {
        let came = answer.field(&name.to_ascii_lowercase());
        if came.is_none() || value.is_some() && came != value.as_deref() {
            return Err(format!("{name} is {came:?}, expected {value:?}"));
        }
    }
    match expected.absent.iter().find(|name| answer.field(&name.to_ascii_lowercase()).is_some()) {
        Some(name) => Err(format!("{name} must not be there")),
        None => Ok(()),
    }
}

/// RFC 9110 6.6.1 (Date), 15.5.6 (Allow), 15.5.17 (Content-Range), 15.3.7 (206).
fn keeps_the_rules(answer: &Answer) -> Result<(), String> {
    let must_have: &[&str] = match answer.status {
        405 => &["date", "allow"],
        206 | 416 => &["date", "content-range"],
        301 | 308 => &["date", "location"],
        _ => &["date"],
    };
    match must_have.iter().find(|name| answer.field(name).is_none()) {
        Some(name) => Err(format!("{} without {name}", answer.status)),
        None => Ok(()),
    }
}

/// RFC 9112 9.6: a side that closes says so, and a side that says so closes.
fn suits_the_end(case: &Case, last: Option<&Answer>, has_ended: bool) -> Result<(), String> {
    let says_close = last.is_some_and(|answer| answer.lists("connection", "close"));
    let must_end = match case.after {
        After::Kept | After::Waiting => false,
        After::Closed | After::ClosedOrCut => true,
        After::Any => has_ended,
    };
    match (must_end, has_ended, says_close) {
        (true, true, true) | (false, false, false) => Ok(()),
        _ => Err(format!(
            "must end: {must_end}, has ended: {has_ended}, last answer says close: {says_close}"
        )),
    }
}

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
///
/// Takes a stream of answers apart, strictly: what a sloppy server sends is a fault here.
///
/// Written without the crate under test, so that a mistake is not made twice.
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
    let Some(end) = crate::cases::find(stream, b"\r\n\r\n") else { return Ok(None) };
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
    let lengths = count("content-length");
    let codings = count("transfer-encoding");
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
    let mut body = Vec::new();
    let mut rest = stream;
    loop {
        let Some(end) = crate::cases::find(rest, b"\r\n") else { return Ok(None) };
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
    use crate::cases::{case, get, ok};

    const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn answer(status: &str, fields: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\n{DATE}Content-Length: {length}\r\n{fields}\r\n{body}")
    }

    fn plain() -> Case {
        case(Setup::Reply, "plain", "9112 3", get(""))
    }

    #[test]
    fn a_sound_exchange_passes() {
        let sent = answer("200 OK", "", "abc");
        assert_eq!(judge(&plain().kept([ok().body("abc")]), sent.as_bytes(), false), Ok(()));
        let sent = answer("400 Bad Request", "Connection: close\r\n", "");
        assert_eq!(judge(&plain().refused(&[400]), sent.as_bytes(), true), Ok(()));
        assert_eq!(judge(&plain().waiting(), b"", false), Ok(()));
    }

    #[test]
    fn an_answer_may_be_cut_only_where_the_case_says_so() {
        let part = answer("200 OK", "", "abc");
        let part = &part.as_bytes()[..part.len() - 1];
        let case = plain().refused_or_cut(&[400]);
        assert_eq!(judge(&case, part, true), Ok(()));
        assert!(judge(&case, part, false).is_err(), "it must end");
        assert!(judge(&case, answer("200 OK", "", "abc").as_bytes(), true).is_err());
        assert!(judge(&plain().refused(&[400]), part, true).is_err());
        let refusal = answer("400 Bad Request", "Connection: close\r\n", "");
        assert_eq!(judge(&case, refusal.as_bytes(), true), Ok(()));
        assert!(judge(&plain().waiting(), part, false).is_err(), "only an echo may have begun");
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        let good = answer("200 OK", "X: y\r\n", "abc");
        let kept = |expected: Expected| plain().kept([expected]);
        for (case, sent, has_ended) in [
            (kept(ok().body("abd")), good.clone(), false),
            (kept(ok().has("X", "z")), good.clone(), false),
            (kept(ok().has_any("Y")), good.clone(), false),
            (kept(ok().lacks("X")), good.clone(), false),
            (kept(ok().interim(Interim::Must)), good.clone(), false),
            (kept(Expected::any_of(&[404])), good.clone(), false),
            (kept(ok()), format!("{good}{good}"), false),
            (kept(ok()), good[..good.len() - 1].to_owned(), false),
            (kept(ok()), good.clone(), true),
            (kept(ok()), format!("HTTP/1.1 100 Continue\r\n\r\n{good}"), false),
            (kept(ok()), good.replace(DATE, ""), false),
            (kept(ok()), good.replace("X: y", "Connection: close"), false),
            (plain().refused(&[200]), good.clone(), true),
            (plain().waiting(), good, false),
            (kept(Expected::any_of(&[405])), answer("405 Method Not Allowed", "", ""), false),
            (kept(Expected::any_of(&[416])), answer("416 Range Not Satisfiable", "", ""), false),
        ] {
            assert!(judge(&case, sent.as_bytes(), has_ended).is_err(), "{case:?}\n{sent}");
        }
    }

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
