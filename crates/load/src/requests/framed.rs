//! What HTTP/2 asks of a long list: its paths packed once for all connections, and which requests differ in their path alone.
//!
//! A connection knows the field block of a request that it has sent before, and copies it. Of a list of thousands it would
//! have to know thousands; but these mostly have one shape, a head that is the same but for its path.

use std::collections::HashMap;

use pollux_http::h2::path_block;

/// Blocks that a connection knows: of so many requests, or of so many shapes of a longer list. The others are encoded anew
/// each time.
pub(crate) const KNOWN_MAX: usize = 16;

/// A request whose shape is not among those that are known.
const NO_SHAPE: u16 = u16::MAX;

/// The requests of a list, as HTTP/2 asks for them.
#[derive(Clone, Default, Debug)]
pub(super) struct Framed {
    paths: Vec<u8>,
    entries: Vec<Entry>,
    shapes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its path ends; it begins where that of the one before ends.
    end: u32,
    shape: u16,
}

impl Framed {
    /// Of requests with these heads, which are less than 4 GiB.
    pub(super) fn of<'a>(heads: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut framed = Self::default();
        let mut shapes = HashMap::new();
        let mut key = Vec::new();
        for head in heads {
            let (before, path, behind) = parts(head);
            key.clear();
            // No head has a byte 0.
            [before, b"\0", behind].into_iter().for_each(|part| key.extend_from_slice(part));
            let known = shapes.get(&key).copied();
            let shape = known.unwrap_or_else(|| {
                if shapes.len() == KNOWN_MAX {
                    return NO_SHAPE;
                }
                let shape = shapes.len() as u16;
                shapes.insert(key.clone(), shape);
                shape
            });
            if shape != NO_SHAPE {
                framed.paths.extend_from_slice(&path_block(path));
            }
            let end = u32::try_from(framed.paths.len()).expect("a list is smaller");
            framed.entries.push(Entry { end, shape });
        }
        framed.shapes = shapes.len();
        framed
    }

    /// How many shapes are known.
    pub(super) fn shapes(&self) -> usize {
        self.shapes
    }

    /// The shape of a request and its packed path; none where it has one that is not known.
    #[inline]
    pub(super) fn entry(&self, number: u32) -> Option<(usize, &[u8])> {
        let at = number as usize;
        let Entry { end, shape } = self.entries[at];
        let begin = at.checked_sub(1).map_or(0, |before| self.entries[before].end);
        let path = &self.paths[begin as usize..end as usize];
        (shape != NO_SHAPE).then_some((usize::from(shape), path))
    }
}

/// A head before its target, that, and what stands behind.
fn parts(head: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let space = |from: usize| {
        head[from..].iter().position(|byte| *byte == b' ').map_or(head.len(), |at| from + at)
    };
    let begin = (space(0) + 1).min(head.len());
    let end = space(begin);
    (&head[..begin], &head[begin..end], &head[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, path: &str, field: &str) -> Vec<u8> {
        format!("{method} {path} HTTP/1.1\r\nHost: a\r\nX-Own: {field}\r\n\r\n").into_bytes()
    }

    #[test]
    fn requests_that_differ_in_their_path_have_one_shape() {
        let heads: Vec<Vec<u8>> = (0..100)
            .map(|number| {
                let method = if number % 3 == 0 { "DELETE" } else { "GET" };
                head(method, &format!("/{number}"), "x")
            })
            .collect();
        let framed = Framed::of(heads.iter().map(Vec::as_slice));
        assert_eq!(framed.shapes(), 2);
        for number in 0..100 {
            let (shape, path) = framed.entry(number).expect("known");
            assert_eq!(shape, usize::from(number % 3 != 0));
            assert_eq!(path, path_block(format!("/{number}").as_bytes()));
        }
    }

    #[test]
    fn shapes_beyond_those_that_are_known_are_none() {
        let heads: Vec<Vec<u8>> =
            (0..40).map(|number| head("GET", "/", &format!("{}", number % 20))).collect();
        let framed = Framed::of(heads.iter().map(Vec::as_slice));
        assert_eq!(framed.shapes(), KNOWN_MAX);
        for number in 0..40 {
            let shape = framed.entry(number).map(|(shape, _)| shape);
            let of = number as usize % 20;
            assert_eq!(shape, (of < KNOWN_MAX).then_some(of), "{number}");
        }
    }
}
