//! One answer after the other out of the bytes of a connection.
//!
//! Most answers lie whole in the input and have the head of the one before; they cost a
//! comparison. Sessions call it; it knows no time and counts nothing.

use pollux_http::{BodyReader, HeadCache, Rejection, RequestKind, ResponseBody, ResponseFacts};

use crate::requests::ANSWER_LIMITS;

/// A whole answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// Its status.
    pub(crate) status: u16,
    /// Whether another one can follow on its connection.
    pub(crate) keep_alive: bool,
    /// Bytes of its body.
    pub(crate) body_bytes: u64,
    /// All its bytes, interim answers before it included.
    pub(crate) wire_bytes: u64,
}

/// How far the answer that is under way was read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Its body, once the head is known and not all of it was there.
    body: Option<(BodyReader, Answer)>,
    /// Bytes of interim answers before it.
    interim_bytes: u64,
}

impl Reading {
    /// Reads `input`, which follows what was used before, up to the end of one answer. Says how
    /// many bytes are used up, and the answer when it is whole. `seen` is given the head of an answer
    /// that is not an interim one.
    ///
    /// # Errors
    /// What comes is no HTTP.
    #[inline]
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        cache: &mut HeadCache,
        to: RequestKind,
        seen: impl FnOnce(&[u8]),
    ) -> Result<(usize, Option<Answer>), Rejection> {
        if self.body.is_some() {
            return self.read_body(input, 0);
        }
        let Some(facts) = cache.read(input, to)? else { return Ok((0, None)) };
        if facts.is_interim() {
            return self.begin(input, facts, cache, to, seen);
        }
        seen(&input[..facts.head_len]);
        let here = (input.len() - facts.head_len) as u64;
        match facts.body {
            ResponseBody::Length(len) if len <= here => Ok(self.whole(&facts, len)),
            ResponseBody::None => Ok(self.whole(&facts, 0)),
            _ => self.begin(input, facts, cache, to, |_| {}),
        }
    }

    /// The peer has ended: an answer that lasts until then is whole.
    pub(crate) fn end(&mut self) -> Option<Answer> {
        let (mut body, answer) = self.body.take()?;
        body.end().ok().map(|()| answer)
    }

    /// Bytes of the answer under way that were used up.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        self.body.as_ref().map_or(self.interim_bytes, |(_, answer)| answer.wire_bytes)
    }

    #[inline]
    fn whole(&mut self, facts: &ResponseFacts, body_bytes: u64) -> (usize, Option<Answer>) {
        let used = facts.head_len + body_bytes as usize;
        (used, Some(self.answer(facts, body_bytes, used as u64)))
    }

    #[inline]
    fn answer(&mut self, facts: &ResponseFacts, body_bytes: u64, bytes: u64) -> Answer {
        Answer {
            status: facts.status.code(),
            keep_alive: facts.keep_alive,
            body_bytes,
            wire_bytes: bytes + std::mem::take(&mut self.interim_bytes),
        }
    }

    /// Passes interim answers, and goes on with a body that is not whole yet.
    fn begin(
        &mut self,
        input: &[u8],
        mut facts: ResponseFacts,
        cache: &mut HeadCache,
        to: RequestKind,
        seen: impl FnOnce(&[u8]),
    ) -> Result<(usize, Option<Answer>), Rejection> {
        let mut used = facts.head_len;
        let was_interim = facts.is_interim();
        while facts.is_interim() {
            self.interim_bytes += facts.head_len as u64;
            facts = match cache.read(&input[used..], to)? {
                Some(facts) => facts,
                None => return Ok((used, None)),
            };
            used += facts.head_len;
        }
        if was_interim {
            seen(&input[used - facts.head_len..used]);
        }
        let reader = BodyReader::of_response(facts.body, &ANSWER_LIMITS);
        let answer = self.answer(&facts, 0, facts.head_len as u64);
        if reader.is_done() {
            return Ok((used, Some(answer)));
        }
        self.body = Some((reader, answer));
        self.read_body(input, used)
    }

    fn read_body(
        &mut self,
        input: &[u8],
        mut used: usize,
    ) -> Result<(usize, Option<Answer>), Rejection> {
        let Some((reader, answer)) = &mut self.body else {
            unreachable!("only called while a body is read");
        };
        while used < input.len() {
            let step = reader.feed(&input[used..])?;
            used += step.consumed;
            answer.wire_bytes += step.consumed as u64;
            answer.body_bytes += step.data.len() as u64;
            if step.is_done {
                return Ok((used, self.body.take().map(|(_, answer)| answer)));
            }
        }
        Ok((used, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_http::Limits;

    /// Feeds `wire` in pieces of `piece` bytes, as a loop would: what is unused comes again.
    fn read_all(wire: &[u8], piece: usize) -> (Vec<(u16, u64, u64)>, Option<Answer>) {
        let mut cache = HeadCache::new(Limits::default());
        let (mut reading, mut kept, mut found) = (Reading::default(), Vec::new(), Vec::new());
        for part in wire.chunks(piece) {
            kept.extend_from_slice(part);
            let mut used = 0;
            while used < kept.len() {
                let read = reading.read(&kept[used..], &mut cache, RequestKind::Other, |_| {});
                let (now, answer) = read.expect("sound");
                used += now;
                match answer {
                    Some(each) => found.push((each.status, each.body_bytes, each.wire_bytes)),
                    None => break,
                }
            }
            kept.drain(..used);
        }
        (found, reading.end())
    }

    #[test]
    fn answers_are_the_same_in_whatever_pieces_they_come() {
        let fixed = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let interim = "HTTP/1.1 100 Continue\r\n\r\n";
        let empty = "HTTP/1.1 204 No Content\r\n\r\n";
        let wire = [fixed, interim, interim, fixed, chunked, empty, fixed].concat();
        let len = |text: &str| text.len() as u64;
        let expected = [
            (200, 5, len(fixed)),
            (200, 5, len(fixed) + 2 * len(interim)),
            (404, 3, len(chunked)),
            (204, 0, len(empty)),
            (200, 5, len(fixed)),
        ];
        for piece in 1..=wire.len() {
            let (found, rest) = read_all(wire.as_bytes(), piece);
            assert_eq!((&found[..], rest), (&expected[..], None), "pieces of {piece}");
        }
    }

    #[test]
    fn the_end_completes_only_an_answer_that_lasts_until_it() {
        let (found, rest) = read_all(b"HTTP/1.0 200 OK\r\n\r\nabc", 7);
        assert_eq!((found.len(), rest.map(|answer| answer.body_bytes)), (0, Some(3)));
        let (found, rest) = read_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", 7);
        assert_eq!((found.len(), rest), (0, None));
    }
}
