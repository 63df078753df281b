//! The requests that a thread sends: which is next, its bytes, and how its answers are read.
//!
//! One set for each thread: reading an answer writes into its cache. Nothing here is allocated
//! after the start.

use std::sync::Arc;

use pollux_http::{Field, Framing, HeadCache, Limits, Method, RequestHead, RequestKind};

use crate::{LoadError, Order, Plan, RequestList, Target};

/// Answers may be large; what is measured is not refused for it.
pub(crate) const ANSWER_LIMITS: Limits = Limits {
    head_bytes: 64 * 1024,
    target_bytes: 8000,
    fields: Limits::FIELDS_MAX,
    body_bytes: u64::MAX - 1,
    chunk_line_bytes: 1024,
    extension_bytes: 1 << 20,
    trailer_bytes: 64 * 1024,
};

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
    order: Order,
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
                (Arc::new(list), Order::Random)
            }
        };
        // Those of one thread are not sent in step with those of another.
        let next = (u64::from(thread) * list.len() as u64 / u64::from(plan.threads.max(1))) as u32;
        let is_long = order == Order::Random && list.memory_bytes() > LONG_BYTES;
        let drawn = is_long.then(|| Box::new(Drawn::new()));
        Ok(Self {
            caches: vec![HeadCache::new(ANSWER_LIMITS); list.len().min(CACHES_MAX)],
            list,
            lasting: prepare(&plan.targets[0], false)?,
            order,
            next,
            drawn,
            targets: plan.targets.len(),
            random: fastrand::Rng::with_seed(plan.seed ^ u64::from(thread).rotate_left(48)),
        })
    }

    /// The number of the request that is sent next.
    #[inline]
    pub(crate) fn choose(&mut self) -> u32 {
        if self.list.len() == 1 {
            return 0;
        }
        if self.order == Order::Random {
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
    let (path, host) = (&*target.path, &*target.host);
    let head = RequestHead { method, target: path, host, fields: &fields, framing };
    head.write(bytes).map_err(|fault| LoadError::Plan {
        what: "request",
        why: format!("{} can't be asked for: {fault}", target.url),
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
            list.push(&Target { weight, body: long, ..target }).expect("room");
        }
        assert!(list.memory_bytes() > LONG_BYTES);
        let (mut drawn, mut random) = (Drawn::new(), fastrand::Rng::with_seed(3));
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
}
