//! The last head in each direction, and what was written of it: clients and backends under load send
//! the same head over and over, and to compare costs a fraction of reading and writing.
//!
//! A head is remembered with everything else that decided what was made of it, and is used only when
//! all of that is the same again; so what leaves is what would have been written. Only requests
//! without a body and without a wish of their own are remembered.

use pollux_http::{RequestKind, ResponseBody, ResponseFacts};
use pollux_tls::ShownId;

use crate::head::Version;
use crate::head::changed::Wishes;
use crate::head::tail::{HeadTail, Hop, HopFields};
use crate::ids::{BackendId, EpochId, FieldSetId, FrontId, GroupId, RouteId};
use crate::sticky::Brought;

/// Longer heads are read each time: they cost more in copying.
const HEAD_BYTES_MAX: usize = 2048;

/// The last heads of one loop.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Taken while it is looked at.
    pub(crate) request: Option<Box<LastRequest>>,
    response: LastResponse,
    tail: LastTail,
}

/// What else decides what is made of a request head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestKey<'a> {
    /// The front end.
    pub(crate) front: FrontId,
    pub(crate) is_secure: bool,
    /// It came by a stream: its lines look as if they were of HTTP/1, and say another version.
    pub(crate) is_stream: bool,
    /// The certificate that the client has seen, where there are several by name.
    pub(crate) shown: Option<ShownId>,
    /// The client's address.
    pub(crate) peer: &'a str,
}

/// A request head that was passed on.
#[derive(Debug, Default)]
pub(crate) struct LastRequest {
    head: Vec<u8>,
    front: FrontId,
    is_secure: bool,
    is_stream: bool,
    shown: Option<ShownId>,
    peer: String,
    /// The head that was written.
    pub(crate) written: Vec<u8>,
    /// Its line in the log.
    pub(crate) line: Vec<u8>,
    /// The host that the backend was asked for, where its route changes paths.
    pub(crate) host: Vec<u8>,
    pub(crate) facts: RequestFacts,
}

/// What is known of a request beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestFacts {
    /// The place of its method among those that are counted.
    pub(crate) method: usize,
    pub(crate) kind: RequestKind,
    pub(crate) is_idempotent: bool,
    pub(crate) version: Version,
    pub(crate) keep_alive: bool,
    /// What a backend is chosen by.
    pub(crate) key: u64,
    /// What its client brought of the cookie of its group.
    pub(crate) brought: Brought,
    /// What is done to its fields, and those of its answer.
    pub(crate) fields: FieldSetId,
    /// The rules of these for its answer, as [`Rules`](crate::head::rules::Rules) has them.
    pub(crate) rules: u64,
    /// The backends that may have it.
    pub(crate) group: GroupId,
    /// The route that leads to them, where there are sites.
    pub(crate) route: Option<RouteId>,
    /// What of the changes of answers its client wants.
    pub(crate) wishes: Wishes,
}

impl LastRequest {
    /// Whether this head stands in front of `input` and comes from one like that.
    pub(crate) fn is(&self, input: &[u8], by: RequestKey<'_>) -> bool {
        let Self { front, is_secure, is_stream, shown, .. } = *self;
        !self.head.is_empty()
            && input.starts_with(&self.head)
            && by == RequestKey { front, is_secure, is_stream, shown, peer: &self.peer }
    }

    /// Bytes of the head.
    pub(crate) fn len(&self) -> usize {
        self.head.len()
    }

    /// Remembers `head`.
    pub(crate) fn note(
        &mut self,
        head: &[u8],
        by: RequestKey<'_>,
        written: &[u8],
        line: &[u8],
        host: &[u8],
        facts: RequestFacts,
    ) {
        self.head.clear();
        if head.len() > HEAD_BYTES_MAX || written.len() > HEAD_BYTES_MAX {
            return;
        }
        self.head.extend_from_slice(head);
        (self.front, self.is_secure, self.facts) = (by.front, by.is_secure, facts);
        (self.is_stream, self.shown) = (by.is_stream, by.shown);
        by.peer.clone_into(&mut self.peer);
        self.written.clear();
        self.written.extend_from_slice(written);
        self.line.clear();
        self.line.extend_from_slice(line);
        self.host.clear();
        self.host.extend_from_slice(host);
    }
}

/// What else decides what is made of the head of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AnswerKey {
    /// By which the others are meant.
    pub(crate) epoch: Option<EpochId>,
    /// What is done to its fields.
    pub(crate) fields: FieldSetId,
    pub(crate) kind: RequestKind,
    /// An answer that has no Date gets that of this second.
    pub(crate) unix_s: u64,
    /// The rules for the path of its request.
    pub(crate) rules: u64,
    /// The route of its request, which may change where it leads.
    pub(crate) route: Option<RouteId>,
    /// The backend, where the route does so: that knows it by its name.
    pub(crate) backend: Option<BackendId>,
}

/// What decides what a tail says: the body, the version of the client, and whether its connection is to end.
pub(crate) type TailKey = (ResponseBody, Version, bool);

/// The tail of an answer that was passed on.
#[derive(Debug, Default)]
struct LastTail {
    of: Option<TailKey>,
    tail: HeadTail,
    is_last: bool,
}

impl LastTail {
    #[inline(never)]
    fn new(of: TailKey) -> Self {
        let (body, version, is_last) = of;
        let fields = HopFields::of_answer(body, version, is_last);
        Self { of: Some(of), tail: HeadTail::of(fields), is_last: fields.hop == Hop::Close }
    }
}

/// The head of an answer that was passed on.
#[derive(Debug, Default)]
struct LastResponse {
    head: Vec<u8>,
    by: AnswerKey,
    written: Vec<u8>,
    meaning: Option<ResponseFacts>,
}

impl Repeats {
    /// Writes what is made of the head in front of `input` behind what is in `out`, if it is the last
    /// one again; says what it means.
    pub(crate) fn answer(
        &self,
        input: &[u8],
        by: AnswerKey,
        out: &mut Vec<u8>,
    ) -> Option<ResponseFacts> {
        let last = &self.response;
        let meaning = last.meaning?;
        if last.by != by || !input.starts_with(&last.head) {
            return None;
        }
        out.extend_from_slice(&last.written);
        Some(meaning)
    }

    /// What the connection of a client adds to the head of an answer, and whether it ends with that
    /// ([`HopFields::of_answer`]).
    #[inline]
    pub(crate) fn tail(&mut self, of: TailKey) -> (&HeadTail, bool) {
        if self.tail.of != Some(of) {
            self.tail = LastTail::new(of);
        }
        (&self.tail.tail, self.tail.is_last)
    }

    /// Remembers the head of a final answer, of which `written` was made.
    pub(crate) fn note_answer(
        &mut self,
        head: &[u8],
        by: AnswerKey,
        written: &[u8],
        meaning: ResponseFacts,
    ) {
        let last = &mut self.response;
        last.meaning = None;
        if head.len() > HEAD_BYTES_MAX || written.len() > HEAD_BYTES_MAX {
            return;
        }
        last.head.clear();
        last.head.extend_from_slice(head);
        last.written.clear();
        last.written.extend_from_slice(written);
        (last.by, last.meaning) = (by, Some(meaning));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn a_request_is_the_last_one_again_only_from_the_same_client_by_the_same_front_end() {
        let front = FrontId::of_place(1);
        let shown = None;
        let by = RequestKey { front, is_secure: false, is_stream: false, shown, peer: "192.0.2.1" };
        let mut last = LastRequest::default();
        assert!(!last.is(HEAD, by), "nothing came before");
        last.note(HEAD, by, b"written", b"line", b"", RequestFacts::default());
        assert!(last.is(HEAD, by) && last.is(&[HEAD, b"more"].concat(), by));
        assert!(!last.is(&HEAD[..HEAD.len() - 1], by), "not whole");
        assert!(!last.is(b"GET / HTTP/1.1\r\nHost: y\r\n\r\n", by));
        assert!(!last.is(HEAD, RequestKey { peer: "192.0.2.2", ..by }));
        assert!(!last.is(HEAD, RequestKey { front: FrontId::default(), ..by }));
        assert!(!last.is(HEAD, RequestKey { is_secure: true, ..by }));
        assert!(!last.is(HEAD, RequestKey { is_stream: true, ..by }));
        last.note(&[b'x'; HEAD_BYTES_MAX + 1], by, b"", b"", b"", RequestFacts::default());
        assert!(!last.is(HEAD, by) && !last.is(&[b'x'; HEAD_BYTES_MAX + 1], by), "too long");
    }

    #[test]
    fn an_answer_is_the_last_one_again_only_for_the_same_kind_of_request_in_the_same_second() {
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        let limits = pollux_http::Limits::default();
        let response = pollux_http::Response::parse(input, &limits, RequestKind::Other);
        let facts = response.expect("sound").expect("whole").facts;
        let by = AnswerKey { unix_s: 7, ..AnswerKey::default() };
        let mut repeats = Repeats::default();
        let mut out = b"before ".to_vec();
        assert_eq!(repeats.answer(input, by, &mut out), None);
        repeats.note_answer(input, by, b"written", facts);
        assert_eq!(repeats.answer(input, by, &mut out), Some(facts));
        assert_eq!(out, b"before written");
        for other in [
            AnswerKey { fields: FieldSetId::of_place(1), ..by },
            AnswerKey { kind: RequestKind::Head, ..by },
            AnswerKey { unix_s: 8, ..by },
            AnswerKey { rules: 1, ..by },
            AnswerKey { route: Some(RouteId::of_place(0)), ..by },
            AnswerKey { backend: Some(BackendId::of_place(0)), ..by },
        ] {
            assert_eq!(repeats.answer(input, other, &mut out), None, "{other:?}");
        }
        assert_eq!(repeats.answer(&input[1..], by, &mut out), None);
        assert_eq!(out, b"before written");
    }
}
