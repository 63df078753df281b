//! Judges what a server sent against its case: the case's own wishes, and the rules that every
//! answer keeps.

use crate::answers::{Answer, Answers};
use crate::case::{After, Case, Expected, Interim, Setup};

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
        if came.is_none() || value.is_some_and(|value| came != Some(value)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{case, get, ok};

    const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn answer(status: &str, fields: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\n{DATE}Content-Length: {length}\r\n{fields}\r\n{body}")
    }

    fn plain() -> Case {
        case(Setup::Reply, "plain", "RFC 9112 3", get(""))
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
}
