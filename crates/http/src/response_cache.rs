//! The last response head and its meaning: a server under load sends the same head over and over,
//! but for Date, which changes once a second. Comparing costs a fraction of reading.
//!
//! The load generator keeps one per loop and request. It never answers otherwise than
//! [`Response::parse`]: a head is whole in itself, its end included, so equal bytes in front mean
//! an equal verdict, whatever follows them. A test holds both side by side.

use std::fmt;

use crate::{Limits, Rejection, RequestKind, Response, ResponseFacts};

/// Reads heads like [`Response::parse`] under fixed limits, and remembers the last one.
///
/// It takes little more than [`HeadCache::HEAD_BYTES_MAX`] bytes and allocates nothing.
#[derive(Clone)]
pub struct HeadCache {
    limits: Limits,
    /// What the head in `bytes` answered, and its meaning; none at the start.
    known: Option<(RequestKind, ResponseFacts)>,
    bytes: [u8; Self::HEAD_BYTES_MAX],
}

impl HeadCache {
    /// Longer heads are read each time: they cost more in copying, and servers that are measured
    /// send 100 to 300 bytes.
    pub const HEAD_BYTES_MAX: usize = 1024;

    /// A cache that knows no head yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, known: None, bytes: [0; Self::HEAD_BYTES_MAX] }
    }

    /// The verdict of [`Response::parse`] without the fields.
    ///
    /// # Errors
    /// Those of [`Response::parse`]; the head that was known stays known.
    #[inline]
    pub fn read(
        &mut self,
        input: &[u8],
        to: RequestKind,
    ) -> Result<Option<ResponseFacts>, Rejection> {
        match self.lookup(input, to) {
            Some(facts) => Ok(Some(facts)),
            None => self.parse(input, to),
        }
    }

    /// What the head in front means, when it is the known one; none says nothing about it.
    #[must_use]
    #[inline]
    pub fn lookup(&self, input: &[u8], to: RequestKind) -> Option<ResponseFacts> {
        let (known_to, facts) = self.known?;
        let is_known = known_to == to && input.starts_with(&self.bytes[..facts.head_len]);
        is_known.then_some(facts)
    }

    #[inline(never)]
    fn parse(&mut self, input: &[u8], to: RequestKind) -> Result<Option<ResponseFacts>, Rejection> {
        let Some(response) = Response::parse(input, &self.limits, to)? else { return Ok(None) };
        let facts = response.facts;
        if let Some(room) = self.bytes.get_mut(..facts.head_len) {
            room.copy_from_slice(&input[..facts.head_len]);
            self.known = Some((to, facts));
        }
        Ok(Some(facts))
    }
}

impl fmt::Debug for HeadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadCache").field("known", &self.known).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";

    fn known(head: &str, to: RequestKind) -> HeadCache {
        let mut cache = HeadCache::new(Limits::default());
        assert!(cache.read(head.as_bytes(), to).is_ok());
        cache
    }

    #[test]
    fn a_known_head_is_found_whatever_follows_it() {
        let mut cache = known(HEAD, RequestKind::Other);
        for behind in ["", "abc", "abcHTTP/1.1 500 \r\n\r\n"] {
            let input = format!("{HEAD}{behind}");
            let facts = cache.lookup(input.as_bytes(), RequestKind::Other).expect("known");
            let parsed = Response::parse(input.as_bytes(), &cache.limits, RequestKind::Other);
            assert_eq!(parsed.map(|response| response.map(|r| r.facts)), Ok(Some(facts)));
            assert_eq!(cache.read(input.as_bytes(), RequestKind::Other), Ok(Some(facts)));
        }
    }

    #[test]
    fn another_head_another_question_or_a_part_is_not_known() {
        let cache = known(HEAD, RequestKind::Other);
        assert!(HeadCache::new(Limits::default()).lookup(b"", RequestKind::Other).is_none());
        assert_eq!(cache.lookup(HEAD.as_bytes(), RequestKind::Head), None);
        for end in 0..HEAD.len() {
            assert_eq!(cache.lookup(&HEAD.as_bytes()[..end], RequestKind::Other), None, "{end}");
            let mut other = HEAD.as_bytes().to_vec();
            other[end] ^= 1;
            assert_eq!(cache.lookup(&other, RequestKind::Other), None, "{end}");
        }
    }

    #[test]
    fn a_head_is_kept_until_another_fits() {
        let long = |len: usize| {
            let fixed = "HTTP/1.1 204 \r\nX: \r\n\r\n".len();
            format!("HTTP/1.1 204 \r\nX: {}\r\n\r\n", "a".repeat(len - fixed))
        };
        let mut cache = known(HEAD, RequestKind::Other);
        let too_long = long(HeadCache::HEAD_BYTES_MAX + 1);
        for input in [&too_long, "HTTP/1.1 2", "nonsense"] {
            assert_eq!(cache.lookup(input.as_bytes(), RequestKind::Other), None);
            let _verdict = cache.read(input.as_bytes(), RequestKind::Other);
            assert!(cache.lookup(HEAD.as_bytes(), RequestKind::Other).is_some(), "{input}");
        }
        let longest = long(HeadCache::HEAD_BYTES_MAX);
        assert!(cache.read(longest.as_bytes(), RequestKind::Other).is_ok());
        assert!(cache.lookup(longest.as_bytes(), RequestKind::Other).is_some());
        assert_eq!(cache.lookup(HEAD.as_bytes(), RequestKind::Other), None);
    }
}
