//! The requests of a run as bytes that are ready to send: a list that is made once and shared by all threads, and each
//! thread's way through it, which says what is next and how answers are read.
//!
//! Nothing here depends on connections or time, and nothing is allocated after the start.

mod framed;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use pollux_http::{Field, Framing, HeadCache, Limits, Method, RequestHead, RequestKind};

use crate::protocol::{self, HEAD_BYTES_MAX};
use crate::{LoadError, Plan, Target};
use framed::Framed;
pub(crate) use framed::KNOWN_MAX;

/// Requests in a list at most.
const LIST_REQUESTS_MAX: usize = 1_000_000;
/// Their bytes at most, heads and bodies.
const LIST_BYTES_MAX: usize = 256 << 20;

/// Answers may be large; what is measured is not refused for it.
pub(crate) const ANSWER_LIMITS: Limits = Limits {
    head_bytes: 64 * 1024,
    target_bytes: Limits::DEFAULT.target_bytes,
    fields: Limits::DEFAULT.fields,
    body_bytes: u64::MAX - 1,
    chunk_line_bytes: 1024,
    extension_bytes: 1 << 20,
    trailer_bytes: 64 * 1024,
};
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// Heads that a thread remembers: a kilobyte each, so few enough for the caches of a CPU. URLs that
/// are given one by one are seldom more.
const CACHES_MAX: usize = 16;
/// A list of less stays in the caches of a CPU.
const LONG_BYTES: usize = 256 * 1024;
/// Requests that are drawn at once from a longer one, so that the CPU fetches all of them from memory at the same
/// time, and not each when it is sent.
const DRAWN: usize = 32;
/// Longer requests are sent from where they are.
const DRAWN_BYTES_MAX: usize = 1024;

/// In which order the requests of a list are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestOrder {
    /// One after the other, and again from the first. Each thread begins at its own part.
    InTurn,
    /// By weight.
    Random,
}

/// Requests as bytes: those of the URLs, or the lines of a file and the URLs of a pattern. The caller that fills a list
/// says which line a refusal is about.
#[derive(Clone, Debug)]
pub struct RequestList {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Whether a connection carries one request only, and each says so.
    closes: bool,
    /// Of each; nothing where all are 1.
    weights: Vec<u32>,
    /// Made when the list is whole.
    chooser: OnceLock<Chooser>,
    /// Likewise, where HTTP/2 asks for more of them than a connection knows.
    framed: OnceLock<Framed>,
    has_cookie: bool,
    has_bodies: bool,
    /// The longest head.
    head_bytes_max: usize,
    /// The first thing that HTTP/2 has not, in words.
    not_http2: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its bytes end; they begin where those before it end. Small, as a long list does not fit into the
    /// caches of a CPU.
    end: u32,
    kind: RequestKind,
}

impl RequestList {
    /// An empty one. `closes` when a connection carries one request only: each then says so with
    /// `Connection: close`.
    #[must_use]
    pub fn new(closes: bool) -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            closes,
            weights: Vec::new(),
            chooser: OnceLock::new(),
            framed: OnceLock::new(),
            has_cookie: false,
            has_bodies: false,
            head_bytes_max: 0,
            not_http2: None,
        }
    }

    /// Adds the request for `target`.
    ///
    /// # Errors
    /// [`LoadError::Plan`] when it can't be put into a request, or the list is full
    /// (1,000,000 requests, 256 MiB).
    pub fn push(&mut self, target: &Target) -> Result<(), LoadError> {
        let full = |why: String| LoadError::Plan { what: "requests", why };
        if self.entries.len() >= LIST_REQUESTS_MAX {
            return Err(full(format!("more than {LIST_REQUESTS_MAX} requests; leave some out")));
        }
        let begin = self.bytes.len();
        let kind = write_request(target, self.closes, &mut self.bytes)?;
        if self.bytes.len() > LIST_BYTES_MAX {
            let why = format!("longer than {} MiB in all, heads included", LIST_BYTES_MAX >> 20);
            return Err(full(why));
        }
        if target.weight != 1 || !self.weights.is_empty() {
            self.weights.resize(self.entries.len(), 1);
            self.weights.push(target.weight);
        }
        self.chooser.take();
        self.framed.take();
        self.has_cookie |= target.has_field("cookie");
        self.has_bodies |= !target.body.is_empty();
        let head_bytes = self.bytes.len() - begin - target.body.len();
        self.head_bytes_max = self.head_bytes_max.max(head_bytes);
        if self.not_http2.is_none() {
            self.not_http2 = protocol::has_not(&target.fields);
        }
        let end = u32::try_from(self.bytes.len()).expect("LIST_BYTES_MAX is less");
        self.entries.push(Entry { end, kind });
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a weight is other than 1.
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        !self.weights.is_empty()
    }

    /// Whether one of them has a Cookie field.
    pub(crate) fn has_cookie(&self) -> bool {
        self.has_cookie
    }

    /// What one of them has that HTTP/2 has not, in words.
    pub(crate) fn has_not_http2(&self) -> Option<&str> {
        self.not_http2.as_deref()
    }

    /// The bytes of one of them.
    #[inline]
    pub(crate) fn bytes(&self, number: u32) -> &[u8] {
        &self.bytes[self.range(number as usize)]
    }

    #[inline]
    fn range(&self, number: usize) -> Range<usize> {
        let begin = number.checked_sub(1).map_or(0, |before| self.entries[before].end);
        begin as usize..self.entries[number].end as usize
    }

    /// Bytes of all requests, and of what is known of each.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.entries[..])
    }

    /// What the answers to one of them are read as.
    #[inline]
    pub(crate) fn kind(&self, number: u32) -> RequestKind {
        self.entries[number as usize].kind
    }

    /// As HTTP/2 asks for them, where they are more than a connection knows.
    #[inline]
    fn framed(&self) -> Option<&Framed> {
        let heads = || (0..self.entries.len() as u32).map(|number| self.head(number));
        (self.len() > KNOWN_MAX).then(|| self.framed.get_or_init(|| Framed::of(heads())))
    }

    /// The head of one of them.
    fn head(&self, number: u32) -> &[u8] {
        let bytes = self.bytes(number);
        &bytes[..head_len(bytes, self.has_bodies)]
    }

    /// One of them by weight.
    #[inline]
    pub(crate) fn choose(&self, random: &mut fastrand::Rng) -> u32 {
        if self.is_weighted() {
            let weights = || Chooser::new(self.weights.iter().copied());
            self.chooser.get_or_init(weights).choose(random)
        } else {
            random.u32(..self.entries.len() as u32)
        }
    }
}

/// One request's column.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Up to here, in parts of 2^32, it is its own.
    own: u32,
    /// And above it this one's.
    other: u32,
}

/// Which request of a list comes next at random, by weight, at the cost of one look into a table.
///
/// The alias method (Walker 1977, Vose 1991): a column for each request, all of the same height, filled by it and at most
/// one other. One random number says which column, and where in it.
///
/// ```text
///  weights 1 6 3          columns      │ 1 │ 0 │ 2 │
///                                      │▒▒▒│ 1 │ 1 │    0 is topped up by 1, 2 by 1
///                                      │▒0▒│▒1▒│▒2▒│
/// ```
#[derive(Clone, Debug)]
struct Chooser(Box<[Column]>);

impl Chooser {
    /// For requests with these weights, of which one at least is not 0 and their sum fits 63 bits.
    fn new(weights: impl ExactSizeIterator<Item = u32>) -> Self {
        let count = weights.len() as u64;
        // In units of which a column is `height` high, so that nothing is rounded before the end.
        let mut left: Vec<u64> = weights.map(|weight| u64::from(weight) * count).collect();
        let height = left.iter().map(|left| left / count).sum::<u64>();
        let mut columns: Vec<Column> =
            (0..count as u32).map(|own| Column { own: u32::MAX, other: own }).collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) =
            (0..left.len()).partition(|at| left[*at] < height);
        while let (Some(short), Some(&tall)) = (low.pop(), high.last()) {
            columns[short] = Column { own: part(left[short], height), other: tall as u32 };
            left[tall] -= height - left[short];
            if left[tall] < height {
                high.pop();
                low.push(tall);
            }
        }
        Self(columns.into())
    }

    /// One of them.
    #[inline]
    fn choose(&self, random: &mut fastrand::Rng) -> u32 {
        let number = random.u64(..);
        // The upper half says which column (Lemire's multiplication), the lower one where in it.
        let at = ((number >> 32) * self.0.len() as u64) >> 32;
        let Column { own, other } = self.0[at as usize];
        if number as u32 <= own { at as u32 } else { other }
    }
}

/// A part of the height, in parts of 2^32.
fn part(left: u64, height: u64) -> u32 {
    let part = (u128::from(left) << 32) / u128::from(height);
    u32::try_from(part.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Requests drawn from a long list, with copies of their bytes.
#[derive(Clone, Debug)]
struct Drawn {
    /// The number of each, and where its bytes end; nothing where it is too long.
    requests: [(u32, u32); DRAWN],
    bytes: Vec<u8>,
    /// The one that was sent last.
    at: usize,
}

impl Drawn {
    fn new() -> Self {
        let bytes = Vec::with_capacity(DRAWN * DRAWN_BYTES_MAX);
        Self { requests: [(0, 0); DRAWN], bytes, at: DRAWN - 1 }
    }

    #[inline]
    fn next(&mut self, list: &RequestList, random: &mut fastrand::Rng) -> u32 {
        self.at += 1;
        if self.at == DRAWN {
            self.draw(list, random);
        }
        self.requests[self.at].0
    }

    #[inline(never)]
    fn draw(&mut self, list: &RequestList, random: &mut fastrand::Rng) {
        self.at = 0;
        self.bytes.clear();
        // One loop for each memory: no look into the next one waits for the last one's.
        self.requests.iter_mut().for_each(|(number, _)| *number = list.choose(random));
        let bytes = self.requests.map(|(number, _)| list.bytes(number));
        for ((_, end), bytes) in self.requests.iter_mut().zip(bytes) {
            if bytes.len() <= DRAWN_BYTES_MAX {
                self.bytes.extend_from_slice(bytes);
            }
            *end = self.bytes.len() as u32;
        }
    }

    /// The bytes of the request, if it is the one that was drawn last.
    #[inline]
    fn bytes(&self, number: u32) -> Option<&[u8]> {
        let (drawn, end) = self.requests[self.at];
        let begin = self.at.checked_sub(1).map_or(0, |before| self.requests[before].1);
        (drawn == number && begin < end).then(|| &self.bytes[begin as usize..end as usize])
    }
}

/// One target's request.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Head and body.
    pub(crate) bytes: Box<[u8]>,
    /// What its answers are read as.
    pub(crate) kind: RequestKind,
    /// The head of its last answer.
    pub(crate) cache: HeadCache,
}

/// The requests that one thread sends.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    list: Arc<RequestList>,
    /// The heads of the last answers; the requests of a long list share them.
    caches: Vec<HeadCache>,
    /// What connections beside the active ones ask: the first target, on a connection that stays.
    pub(crate) lasting: Prepared,
    order: RequestOrder,
    /// The next one in turn.
    next: u32,
    /// Of a long list in random order.
    drawn: Option<Box<Drawn>>,
    /// Parts that are counted apart.
    targets: usize,
    random: fastrand::Rng,
}

impl Requests {
    /// Makes the requests of `plan` for one thread.
    ///
    /// A connection that carries one request only says so with `Connection: close`, as `wrk`
    /// and `ab` users do for this load, so that the server closes first and keeps the port's
    /// TIME_WAIT. With more requests a connection it is not sent: the client closes after the
    /// last answer.
    ///
    /// # Errors
    /// [`LoadError::Plan`] when a target can't be put into a request.
    pub(crate) fn new(plan: &Plan, thread: u32) -> Result<Self, LoadError> {
        let (list, order) = match &plan.list {
            Some((list, order)) => (Arc::clone(list), *order),
            None => {
                let mut list = RequestList::new(plan.closes_after_one());
                plan.targets.iter().try_for_each(|target| list.push(target))?;
                (Arc::new(list), RequestOrder::Random)
            }
        };
        if plan.may_be_http2() && list.head_bytes_max > HEAD_BYTES_MAX {
            let why = format!(
                "a head of {} bytes; HTTP/2 is asked with up to {HEAD_BYTES_MAX}",
                list.head_bytes_max
            );
            return Err(LoadError::Plan { what: "--header", why });
        }
        if plan.may_be_http2() {
            // Before the run.
            let _framed = list.framed();
        }
        // Those of one thread are not sent in step with those of another.
        let (of_all, threads) = plan.thread_of_all(thread);
        let next = (u64::from(of_all) * list.len() as u64 / u64::from(threads.max(1))) as u32;
        let is_long = order == RequestOrder::Random && list.memory_bytes() > LONG_BYTES;
        let drawn = is_long.then(|| Box::new(Drawn::new()));
        Ok(Self {
            caches: vec![HeadCache::new(ANSWER_LIMITS); list.len().min(CACHES_MAX)],
            list,
            lasting: prepare(&plan.targets[0], false)?,
            order,
            next,
            drawn,
            targets: plan.targets.len(),
            random: fastrand::Rng::with_seed(plan.seed ^ u64::from(of_all).rotate_left(48)),
        })
    }

    /// The number of the request that is sent next.
    #[inline]
    pub(crate) fn choose(&mut self) -> u32 {
        if self.list.len() == 1 {
            return 0;
        }
        if self.order == RequestOrder::Random {
            return match &mut self.drawn {
                Some(drawn) => drawn.next(&self.list, &mut self.random),
                None => self.list.choose(&mut self.random),
            };
        }
        let now = self.next;
        self.next = if now as usize + 1 == self.list.len() { 0 } else { now + 1 };
        now
    }

    /// Head and body of a request.
    #[inline]
    pub(crate) fn bytes(&self, number: u32) -> &[u8] {
        let drawn = self.drawn.as_ref().and_then(|drawn| drawn.bytes(number));
        drawn.unwrap_or_else(|| self.list.bytes(number))
    }

    /// What the answers to a request are read as.
    #[inline]
    pub(crate) fn kind(&self, number: u32) -> RequestKind {
        self.list.kind(number)
    }

    /// How long the head of these bytes of a request is.
    #[inline]
    pub(crate) fn head_len(&self, bytes: &[u8]) -> usize {
        head_len(bytes, self.list.has_bodies)
    }

    /// How many blocks a connection of HTTP/2 knows.
    pub(crate) fn known_max(&self) -> usize {
        self.list.framed().map_or(self.list.len(), Framed::shapes)
    }

    /// Which of these is that of a request, and its packed path where that is not in it; none where it is not among them.
    #[inline]
    pub(crate) fn known(&self, number: u32) -> Option<(usize, Option<&[u8]>)> {
        match self.list.framed() {
            None => Some((number as usize, None)),
            Some(framed) => framed.entry(number).map(|(shape, path)| (shape, Some(path))),
        }
    }

    /// The longest head.
    pub(crate) fn head_bytes_max(&self) -> usize {
        self.list.head_bytes_max
    }

    /// The head of an answer that came before to a request, or to another one of a long list.
    #[inline]
    pub(crate) fn cache(&mut self, number: u32) -> &mut HeadCache {
        let cache = number as usize % self.caches.len();
        &mut self.caches[cache]
    }

    /// Parts that are counted apart: the URLs, and a list as one.
    pub(crate) fn targets(&self) -> usize {
        self.targets
    }
}

/// How long the head of a request is.
#[inline]
fn head_len(request: &[u8], may_have_body: bool) -> usize {
    if !may_have_body {
        return request.len();
    }
    let end = request.windows(END_OF_HEAD.len()).position(|part| part == END_OF_HEAD);
    end.map_or(request.len(), |at| at + END_OF_HEAD.len())
}

/// The request for one target, as bytes.
pub(crate) fn prepare(target: &Target, is_last: bool) -> Result<Prepared, LoadError> {
    let mut bytes = Vec::new();
    let kind = write_request(target, is_last, &mut bytes)?;
    Ok(Prepared { bytes: bytes.into(), kind, cache: HeadCache::new(ANSWER_LIMITS) })
}

/// Appends the request for `target` to `bytes`; says what its answers are read as.
pub(crate) fn write_request(
    target: &Target,
    is_last: bool,
    bytes: &mut Vec<u8>,
) -> Result<RequestKind, LoadError> {
    let method = Method::named(&target.method);
    let mut fields: Vec<Field<'_>> = Vec::with_capacity(target.fields.len() + 1);
    for (name, value) in &target.fields {
        fields.push(Field { name, value: value.trim().as_bytes() });
    }
    if is_last && !target.has_field("connection") {
        fields.push(Field { name: "Connection", value: b"close" });
    }
    let framing = match target.body.len() {
        0 => Framing::None,
        len => Framing::Length(len as u64),
    };
    let path = &*target.path;
    let host = &*target.host;
    let head = RequestHead { method, target: path, host, fields: &fields, framing };
    head.write(bytes).map_err(|fault| LoadError::Plan {
        what: "request",
        why: format!("{}: {fault}", target.url),
    })?;
    bytes.extend_from_slice(&target.body);
    Ok(RequestKind::of(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_from_a_long_list_has_the_bytes_of_its_number() {
        let mut list = RequestList::new(false);
        for number in 0..5_000_u32 {
            let url = format!("http://127.0.0.1:1/{number}");
            let long = if number % 7 == 0 { vec![b'x'; DRAWN_BYTES_MAX] } else { Vec::new() };
            let target = Target::parse(&url, None).expect("a URL");
            let weight = 1 + number % 3;
            list.push(&Target { weight, body: long, ..target }).expect("it fits");
        }
        assert!(list.memory_bytes() > LONG_BYTES);
        let mut drawn = Drawn::new();
        let mut random = fastrand::Rng::with_seed(3);
        let mut seen = vec![false; list.len()];
        for _ in 0..200_000 {
            let number = drawn.next(&list, &mut random);
            seen[number as usize] = true;
            match drawn.bytes(number) {
                Some(bytes) => assert_eq!(bytes, list.bytes(number)),
                None => assert!(list.bytes(number).len() > DRAWN_BYTES_MAX),
            }
            assert!(drawn.bytes(number ^ 1).is_none(), "only the one that was drawn last");
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn each_comes_as_often_as_it_weighs() {
        let mut random = fastrand::Rng::with_seed(7);
        let many: Vec<u32> = (0..300).map(|_| random.u32(1..50)).collect();
        for weights in [&[1][..], &[1, 1, 1, 1], &[1, 6, 3], &[1, u32::MAX], &[u32::MAX; 5], &many]
        {
            let chooser = Chooser::new(weights.iter().copied());
            let sum: u64 = weights.iter().copied().map(u64::from).sum();
            // Exactly: what all columns give to each.
            let mut given = vec![0_u128; weights.len()];
            for (at, Column { own, other }) in chooser.0.iter().enumerate() {
                let own = u128::from(*own) + 1;
                given[at] += own;
                given[*other as usize] += (1 << 32) - own;
            }
            let whole = (weights.len() as u128) << 32;
            for (weight, given) in weights.iter().zip(given) {
                let expected = u128::from(*weight) * whole / u128::from(sum);
                // A part of 2^32 for each column that tops others up.
                assert!(given.abs_diff(expected) <= weights.len() as u128 + 1, "{weights:?}");
            }
        }
        let chooser = Chooser::new([1, 6, 3].into_iter());
        let mut counts = [0_u32; 3];
        (0..100_000).for_each(|_| counts[chooser.choose(&mut random) as usize] += 1);
        for (count, expected) in counts.iter().zip([10_000, 60_000, 30_000_u32]) {
            assert!(count.abs_diff(expected) < 1_000, "{counts:?}");
        }
    }

    fn list(weights: &[u32]) -> RequestList {
        let mut list = RequestList::new(false);
        for (number, weight) in weights.iter().enumerate() {
            let url = format!("http://127.0.0.1:1/{number}");
            let target = Target { weight: *weight, ..Target::parse(&url, None).expect("a URL") };
            list.push(&target).expect("it fits");
        }
        list
    }

    #[test]
    fn each_request_keeps_its_bytes() {
        let list = list(&[1, 1, 1]);
        for number in 0..3 {
            let text = String::from_utf8(list.bytes(number).to_vec()).expect("text");
            assert!(text.starts_with(&format!("GET /{number} HTTP/1.1\r\n")), "{text}");
            assert!(text.ends_with("\r\n\r\n"), "{text}");
        }
    }

    #[test]
    fn weights_are_kept_to() {
        let mut random = fastrand::Rng::with_seed(7);
        for weights in [&[1, 1, 1, 1][..], &[1, 6, 3]] {
            let list = list(weights);
            let mut counts = vec![0_u32; weights.len()];
            (0..100_000).for_each(|_| counts[list.choose(&mut random) as usize] += 1);
            let all: u32 = weights.iter().sum();
            for (count, weight) in counts.iter().zip(weights) {
                let expected = 100_000 * weight / all;
                assert!(count.abs_diff(expected) < 1_000, "{weights:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let mut list = RequestList::new(false);
        let body = vec![b'x'; LIST_BYTES_MAX / 2];
        let target = Target { body, ..Target::parse("http://127.0.0.1:1/", None).expect("a URL") };
        list.push(&target).expect("it fits");
        let error = list.push(&target).expect_err("full").to_string();
        assert!(error.contains("256 MiB"), "{error}");
    }
}
