//! The requests of a plan as bytes, made once, and the choice among them.
//!
//! One set for each thread: reading an answer writes into its cache. Nothing here is allocated
//! after the start.

use pollux_http::{Field, Framing, HeadCache, Limits, Method, RequestHead, RequestKind};

use crate::{LoadError, Plan, Target};

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

/// One target's request.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Head and body.
    pub(crate) bytes: Box<[u8]>,
    /// What its answers are read as.
    pub(crate) kind: RequestKind,
    /// The head of its last answer.
    pub(crate) cache: HeadCache,
    /// Weights of this and all before it.
    cumulated: u64,
}

/// All targets' requests.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    targets: Vec<Prepared>,
    /// What connections beside the active ones ask: the first target, on a connection that stays.
    pub(crate) lasting: Prepared,
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
        let is_last = plan.requests_per_connection.is_some_and(|limit| limit.get() == 1);
        let mut cumulated = 0;
        let mut targets = Vec::with_capacity(plan.targets.len());
        for target in &plan.targets {
            cumulated += u64::from(target.weight);
            targets.push(prepare(target, is_last, cumulated)?);
        }
        let lasting = prepare(&plan.targets[0], false, 0)?;
        let random = fastrand::Rng::with_seed(plan.seed ^ u64::from(thread).rotate_left(48));
        Ok(Self { targets, lasting, random })
    }

    /// The number of the target that is asked next, by weight.
    #[inline]
    pub(crate) fn choose(&mut self) -> u32 {
        if self.targets.len() == 1 {
            return 0;
        }
        let all = self.targets.last().map_or(1, |last| last.cumulated);
        let at = self.random.u64(..all);
        self.targets.partition_point(|target| target.cumulated <= at) as u32
    }

    #[inline]
    pub(crate) fn target(&mut self, number: u32) -> &mut Prepared {
        &mut self.targets[number as usize]
    }

    /// How many there are to choose from.
    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }
}

/// The request for one target, as bytes.
pub(crate) fn prepare(
    target: &Target,
    is_last: bool,
    cumulated: u64,
) -> Result<Prepared, LoadError> {
    let method = Method::named(&target.method);
    let mut fields: Vec<Field<'_>> = Vec::with_capacity(target.fields.len() + 1);
    for (name, value) in &target.fields {
        fields.push(Field { name, value: value.trim().as_bytes() });
    }
    if is_last && !target.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        fields.push(Field { name: "Connection", value: b"close" });
    }
    let framing = match target.body.len() {
        0 => Framing::None,
        len => Framing::Length(len as u64),
    };
    let (path, host) = (&*target.path, &*target.host);
    let head = RequestHead { method, target: path, host, fields: &fields, framing };
    let mut bytes = Vec::new();
    head.write(&mut bytes).map_err(|fault| LoadError::Plan {
        what: "request",
        why: format!("{} can't be asked for: {fault}", target.url),
    })?;
    bytes.extend_from_slice(&target.body);
    Ok(Prepared {
        bytes: bytes.into(),
        kind: RequestKind::of(method),
        cache: HeadCache::new(ANSWER_LIMITS),
        cumulated,
    })
}
