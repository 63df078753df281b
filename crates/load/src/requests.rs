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
        Ok(Self {
            caches: vec![HeadCache::new(ANSWER_LIMITS); list.len().min(CACHES_MAX)],
            list,
            lasting: prepare(&plan.targets[0], false)?,
            order,
            next,
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
            return self.list.choose(&mut self.random);
        }
        let now = self.next;
        self.next = if now as usize + 1 == self.list.len() { 0 } else { now + 1 };
        now
    }

    /// Head and body of a request.
    #[inline]
    pub(crate) fn bytes(&self, number: u32) -> &[u8] {
        self.list.bytes(number)
    }

    /// What the answers to a request are read as, and the head of one that came before.
    #[inline]
    pub(crate) fn reading(&mut self, number: u32) -> (RequestKind, &mut HeadCache) {
        let cache = number as usize % self.caches.len();
        (self.list.kind(number), &mut self.caches[cache])
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
