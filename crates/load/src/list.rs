//! The requests of a run as bytes that are ready to send, made once before it and shared by all its
//! threads: those of the URLs, or the lines of a file and the URLs of a pattern.
//!
//! Nothing here knows connections or time. Who fills a list says which line a refusal is about.

use std::ops::Range;
use std::sync::OnceLock;

use pollux_http::RequestKind;

use crate::chooser::Chooser;
use crate::requests::write_request;
use crate::{LoadError, Target};

/// Requests in a list at most.
pub const LIST_REQUESTS_MAX: usize = 1_000_000;
/// Their bytes at most, heads and bodies.
pub const LIST_BYTES_MAX: usize = 256 << 20;

/// In which order the requests of a list are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// One after the other, and again from the first. Each thread begins at its own part.
    InTurn,
    /// By weight.
    Random,
}

/// Requests as bytes.
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
    has_cookie: bool,
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
            has_cookie: false,
        }
    }

    /// Adds the request for `target`.
    ///
    /// # Errors
    /// [`LoadError::Plan`] when it can't be put into a request, or the list is full
    /// ([`LIST_REQUESTS_MAX`], [`LIST_BYTES_MAX`]).
    pub fn push(&mut self, target: &Target) -> Result<(), LoadError> {
        let full = |why: String| LoadError::Plan { what: "requests", why };
        if self.entries.len() >= LIST_REQUESTS_MAX {
            return Err(full(format!("more than {LIST_REQUESTS_MAX} requests; leave some out")));
        }
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
        self.has_cookie |= target.has_field("cookie");
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

    /// The bytes of one of them.
    #[inline]
    pub(crate) fn bytes(&self, number: u32) -> &[u8] {
        &self.bytes[self.place(number as usize)]
    }

    #[inline]
    fn place(&self, number: usize) -> Range<usize> {
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

    /// One of them by weight.
    #[inline]
    pub(crate) fn choose(&self, random: &mut fastrand::Rng) -> u32 {
        match self.is_weighted() {
            true => {
                let weights = || Chooser::new(self.weights.iter().copied());
                self.chooser.get_or_init(weights).choose(random)
            }
            false => random.u32(..self.entries.len() as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(weights: &[u32]) -> RequestList {
        let mut list = RequestList::new(false);
        for (number, weight) in weights.iter().enumerate() {
            let url = format!("http://127.0.0.1:1/{number}");
            let target = Target { weight: *weight, ..Target::parse(&url, None).expect("a URL") };
            list.push(&target).expect("room");
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
            let (list, mut counts) = (list(weights), vec![0_u32; weights.len()]);
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
        list.push(&target).expect("room");
        let error = list.push(&target).expect_err("full").to_string();
        assert!(error.contains("256 MiB"), "{error}");
    }
}
