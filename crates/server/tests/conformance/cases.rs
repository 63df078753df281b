//! What a conformance case is: bytes for a server, and what must come back.
//!
//! The files in `cases/` fill the table, `verdict.rs` judges by it. Nothing here does I/O.

/// How the server under test is configured. In all set-ups a head may have 16 KiB and 100
/// fields, a target 8000 bytes, a body [`BODY_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Setup {
    /// 128 bytes for GET and HEAD of any target; other known methods get the same or 405.
    Reply,
    /// The request's body for POST and PUT; no bytes for GET and HEAD. The answer may begin
    /// before the body has come whole.
    Echo,
    /// The files of the site in `stage.rs` for GET and HEAD.
    Files,
}

/// Largest body that the server under test is to take.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Stands in a request for the ETag that the server gave `/hello.txt`.
pub(crate) const ETAG: &str = "{etag}";

/// What becomes of the connection behind the last answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// It answers one more request.
    Kept,
    /// The server ends it, and says so in the last answer.
    Closed,
    /// The server may do either.
    Any,
    /// The server refuses as with `Closed`, or has begun its answer already, for the fault
    /// stands behind the first bytes of a body; then it ends the connection within the answer.
    ClosedOrCut,
    /// The request is not whole: the server waits for the rest of it. An echo may have begun.
    Waiting,
}

/// Whether 100 Continue comes before an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interim {
    /// It must.
    Must,
    /// It may: the body was there when the head was read.
    May,
    /// It must not.
    Never,
}

/// One answer that must come.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Any of these.
    pub(crate) statuses: &'static [u16],
    /// Whether the request was a HEAD: a length may be given, no body follows.
    pub(crate) is_head: bool,
    /// The exact body.
    pub(crate) body: Option<Vec<u8>>,
    /// Fields and what they must be; none for any value.
    pub(crate) fields: Vec<(&'static str, Option<String>)>,
    /// Fields that must not be there.
    pub(crate) absent: Vec<&'static str>,
    /// What comes before it.
    pub(crate) interim: Interim,
}

impl Expected {
    pub(crate) fn any_of(statuses: &'static [u16]) -> Self {
        Self {
            statuses,
            is_head: false,
            body: None,
            fields: Vec::new(),
            absent: Vec::new(),
            interim: Interim::Never,
        }
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub(crate) fn has(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, Some(value.into())));
        self
    }

    pub(crate) fn has_any(mut self, name: &'static str) -> Self {
        self.fields.push((name, None));
        self
    }

    pub(crate) fn lacks(mut self, name: &'static str) -> Self {
        self.absent.push(name);
        self
    }

    pub(crate) fn for_head(mut self) -> Self {
        self.is_head = true;
        self.body(Vec::new())
    }

    pub(crate) fn interim(mut self, interim: Interim) -> Self {
        self.interim = interim;
        self
    }
}

/// 200 with any body.
pub(crate) fn ok() -> Expected {
    Expected::any_of(&[200])
}

/// A case of the table.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Unique; says what is sent.
    pub(crate) name: &'static str,
    /// The rule: the number of an RFC, and the section, as `9112 6.3`.
    pub(crate) rfc: &'static str,
    pub(crate) setup: Setup,
    /// Sent at once, in pieces or byte by byte: the answers are the same. May hold [`ETAG`].
    pub(crate) request: Vec<u8>,
    /// Sent when the interim answer has come.
    pub(crate) after_continue: Vec<u8>,
    /// In the order of the requests.
    pub(crate) answers: Vec<Expected>,
    pub(crate) after: After,
}

/// A case whose answers are still to be said; without them nothing may come.
pub(crate) fn case(
    setup: Setup,
    name: &'static str,
    rfc: &'static str,
    request: impl Into<Vec<u8>>,
) -> Case {
    Case {
        name,
        rfc,
        setup,
        request: request.into(),
        after_continue: Vec::new(),
        answers: Vec::new(),
        after: After::Any,
    }
}

impl Case {
    /// These answers come, and the connection stays.
    pub(crate) fn kept(self, answers: impl Into<Vec<Expected>>) -> Self {
        Self { answers: answers.into(), after: After::Kept, ..self }
    }

    /// These answers come, and the connection ends.
    pub(crate) fn closed(self, answers: impl Into<Vec<Expected>>) -> Self {
        Self { answers: answers.into(), after: After::Closed, ..self }
    }

    /// These answers come, and the server is free to keep or end the connection.
    pub(crate) fn either(self, answers: impl Into<Vec<Expected>>) -> Self {
        Self { answers: answers.into(), after: After::Any, ..self }
    }

    /// One refusal comes, and the connection ends whatever follows.
    pub(crate) fn refused(self, statuses: &'static [u16]) -> Self {
        self.closed([Expected::any_of(statuses)])
    }

    /// One refusal comes, or an answer that has begun is cut; the connection ends.
    pub(crate) fn refused_or_cut(self, statuses: &'static [u16]) -> Self {
        Self { after: After::ClosedOrCut, ..self.refused(statuses) }
    }

    /// No whole answer comes: the request is not whole.
    pub(crate) fn waiting(self) -> Self {
        Self { after: After::Waiting, ..self }
    }

    /// What is sent when 100 Continue has come.
    pub(crate) fn then(self, rest: impl Into<Vec<u8>>) -> Self {
        Self { after_continue: rest.into(), ..self }
    }

    /// Whether the last answer is a refusal that leaves input unread: the server waits then for a
    /// client that is still sending (RFC 9112 9.6).
    pub(crate) fn is_refused(&self) -> bool {
        let is_error = |expected: &Expected| expected.statuses.iter().all(|status| *status >= 400);
        self.after == After::Closed && self.answers.last().is_some_and(is_error)
    }

    /// The request with the ETag that the server gave.
    pub(crate) fn request_with(&self, etag: &[u8]) -> Vec<u8> {
        let mut request = self.request.clone();
        while let Some(at) = find(&request, ETAG.as_bytes()) {
            request.splice(at..at + ETAG.len(), etag.iter().copied());
        }
        request
    }

    /// For each answer, whether it is one to HEAD, as `Answers::parse` wants to know.
    pub(crate) fn heads(&self) -> Vec<bool> {
        self.answers.iter().map(|expected| expected.is_head).collect()
    }
}

/// A GET of `/` with these field lines behind Host.
pub(crate) fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// A POST to `/` with these field lines behind Host, and what follows the head.
pub(crate) fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
}

/// Lines of a table, which has bars between them.
pub(crate) fn lines(text: &str) -> String {
    text.split(" | ").filter(|line| !line.is_empty()).map(|line| format!("{line}\r\n")).collect()
}

/// Where `part`, which is not empty, stands in `whole` first.
pub(crate) fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    // By the first byte: most of what is searched here are bodies, and this build is for tests.
    let mut from = 0;
    while let Some(at) = whole[from..].iter().position(|byte| *byte == part[0]) {
        if whole[from + at..].starts_with(part) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[test]
fn the_etag_takes_the_place_of_its_name() {
    let case = case(Setup::Files, "x", "9110 13", "A: {etag}, {etag}\r\n");
    assert_eq!(case.request_with(b"\"v\""), b"A: \"v\", \"v\"\r\n");
}

#[test]
fn a_part_is_found_where_it_stands_first() {
    for (whole, at) in [("abcabd", Some(3)), ("aabd", Some(1)), ("ab", None), ("", None)] {
        assert_eq!(find(whole.as_bytes(), b"abd"), at, "{whole}");
    }
}

mod files;
mod framing;
mod heads;

/// Every case; names are unique.
pub(crate) fn cases() -> Vec<Case> {
    [
        heads::cases(),
        heads::field_cases(),
        heads::host_cases(),
        framing::cases(),
        framing::chunked_cases(),
        framing::persistence_cases(),
        heads::method_cases(),
        heads::limit_cases(),
        files::condition_cases(),
        files::cases(),
    ]
    .concat()
}
