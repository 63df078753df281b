//! The ways in which a request is sent, and which differences between answers they may explain.

use std::ops::Range;

use crate::cases::{After, Case, Interim, Setup, find};
use crate::stage::{Stage, masked};
use crate::verdict;
use crate::verdict::Answers;

/// How a request is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Whole,
    /// In pieces of so many bytes.
    Pieces(usize),
    /// In two, here.
    Split(usize),
    /// Whole, and then so many bytes twice which no answer depends on: what a client sends that has not
    /// seen its refusal yet.
    Followed(usize),
}

/// Requests up to here are sent byte by byte, longer ones in pieces of [`PIECE_BYTES`].
const BYTE_BY_BYTE_MAX: usize = 2048;
const PIECE_BYTES: usize = 997;
/// Bytes that are sent at most for the evenly spread offsets of one request.
const SPREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Way {
    /// Whole, in pieces, and split at every offset; beyond `every_offset_max` bytes the offsets
    /// are about `offsets` evenly spread ones (fewer beyond [`SPREAD_BYTES_MAX`] in all) and those
    /// around the end of the first head.
    pub(crate) fn all(request: &[u8], every_offset_max: usize, offsets: usize) -> Vec<Self> {
        let len = request.len();
        let piece = if len <= BYTE_BY_BYTE_MAX { 1 } else { PIECE_BYTES };
        let offsets = offsets.min(SPREAD_BYTES_MAX.div_ceil(len));
        let stride = if len <= every_offset_max { 1 } else { len.div_ceil(offsets) };
        let mut cuts: Vec<usize> = (1..len).step_by(stride).collect();
        if let Some(end) = find(request, b"\r\n\r\n") {
            cuts.extend(end..(end + 6).min(len));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let splits = cuts.into_iter().filter(|at| *at > 0).map(Self::Split);
        [Self::Whole, Self::Pieces(piece)].into_iter().chain(splits).collect()
    }

    /// What must come of `case` when it is sent in this way: a fault that is read together with
    /// its head is refused, for no answer has begun.
    pub(crate) fn judged(self, case: &Case) -> Case {
        let is_one_read = self == Self::Whole && case.request.len() <= BYTE_BY_BYTE_MAX;
        let after = match case.after {
            After::ClosedOrCut if is_one_read => After::Closed,
            after => after,
        };
        Case { after, ..case.clone() }
    }

    /// The piece of a request of `len` bytes that is sent in step `step`; none behind the last.
    pub(crate) fn piece(self, step: usize, len: usize) -> Option<Range<usize>> {
        let (start, end) = match (self, step) {
            (Self::Whole, 0) => (0, len),
            (Self::Pieces(bytes), step) => (step * bytes, (step + 1) * bytes),
            (Self::Split(at), 0) => (0, at),
            (Self::Split(at), 1) => (at, len),
            (Self::Followed(more), 0) => (0, len - 2 * more),
            (Self::Followed(more), 1 | 2) => (len - (3 - step) * more, len - (2 - step) * more),
            _ => return None,
        };
        (start < len).then_some(start..end.min(len))
    }
}

/// What came of a case, without the answer to the probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    /// Dates masked.
    pub(crate) stream: Vec<u8>,
    pub(crate) has_ended: bool,
    /// The connection broke behind a refusal while the client was still sending.
    pub(crate) has_broken: bool,
}

impl Came {
    /// Takes the answer to the probe off what came up to the end. Without it the connection was
    /// not kept, and all of it belongs to the case.
    pub(crate) fn before_probe(stream: &[u8], probe_answer: &[u8]) -> Self {
        let stream = masked(stream);
        match stream.strip_suffix(probe_answer) {
            Some(own) => Self { stream: own.to_vec(), has_ended: false, has_broken: false },
            None => Self { stream, has_ended: true, has_broken: false },
        }
    }
}

/// What came of each case when it was rehearsed whole: everything else is compared to it.
pub(crate) fn references(stage: &Stage) -> Vec<Came> {
    stage.scenes.iter().map(|scene| crate::lockstep::rehearse(stage, scene, Way::Whole)).collect()
}

/// Judges `came` and compares it to the reference. Most bytes have to be the same; what may
/// differ is said here, and is judged by the case alone or compared without its framing:
///
/// * A body that is broken in its middle, or not whole, may be echoed as far as it was sound
///   when it came, and that depends on how it came.
/// * An echo of a chunked body has the chunks in which it was read.
/// * 100 Continue is left out when the body was there with the head, so it depends on whether
///   it was.
///
/// # Errors
/// What is not as it must be, in words.
pub(crate) fn compare(case: &Case, reference: &Came, came: &Came) -> Result<(), String> {
    if reference == came {
        return Ok(());
    }
    verdict::judge(case, &came.stream, came.has_ended)?;
    if came.has_broken {
        return Err("refused without waiting for a client that is still sending".to_owned());
    }
    let is_cut_anywhere = case.after == After::ClosedOrCut
        || case.after == After::Waiting && case.setup == Setup::Echo;
    if is_cut_anywhere {
        return Ok(());
    }
    if came.has_ended != reference.has_ended {
        return Err(format!("ended: {}, in the rehearsal {}", came.has_ended, reference.has_ended));
    }
    let (ours, theirs) = (&reference.stream, &came.stream);
    let (may_differ, loose) = (framing_may_differ(case, ours), |s| without_framing(case, s));
    if may_differ && loose(ours) == loose(theirs) {
        return Ok(());
    }
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let show = |bytes: &[u8]| bytes[at..bytes.len().min(at + 60)].escape_ascii().to_string();
    Err(format!("from byte {at} on: \"{}\", rehearsed \"{}\"", show(theirs), show(ours)))
}

fn framing_may_differ(case: &Case, stream: &[u8]) -> bool {
    let is_chunked = || find(stream, b"\r\nTransfer-Encoding: ").is_some();
    may_get_a_100_continue(case) || case.setup == Setup::Echo && is_chunked()
}

fn may_get_a_100_continue(case: &Case) -> bool {
    case.answers.iter().any(|answer| answer.interim == Interim::May)
}

/// The answers without their chunks, and without what stands before them where it may be left out.
fn without_framing(case: &Case, stream: &[u8]) -> Answers {
    let mut answers = Answers::parse(stream, &case.heads()).expect("judged before");
    if may_get_a_100_continue(case) {
        answers.whole.iter_mut().for_each(|answer| answer.interims = 0);
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Came {
        Came { stream: Vec::new(), has_ended: false, has_broken: false }
    }

    #[test]
    fn every_way_sends_all_bytes_in_order() {
        let request: Vec<u8> = b"GET / HTTP/1.1\r\n\r\n".iter().copied().chain(0..200).collect();
        for every_offset_max in [0, 1000] {
            let ways = Way::all(&request, every_offset_max, 10);
            assert!(ways.len() >= if every_offset_max > 0 { request.len() } else { 14 });
            for way in ways.into_iter().chain([Way::Followed(50)]) {
                let pieces = (0..).map_while(|step| way.piece(step, request.len()));
                let sent: Vec<u8> = pieces.flat_map(|piece| request[piece].to_vec()).collect();
                assert_eq!(sent, request, "{way:?}");
            }
        }
    }

    #[test]
    fn a_difference_is_found_unless_it_may_be() {
        let head = "HTTP/1.1 200 OK\r\nDate: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let came = |body: &str| Came { stream: format!("{head}{body}").into(), ..quiet() };
        let request = "POST / HTTP/1.1\r\n\r\n";
        let echo = crate::cases::case(Setup::Echo, "x", "9112 7.1", request);
        let echo = echo.kept([crate::cases::ok()]);
        let (one, two) = (came("2\r\nab\r\n0\r\n\r\n"), came("1\r\na\r\n1\r\nb\r\n0\r\n\r\n"));
        assert_eq!(compare(&echo, &one, &two), Ok(()));
        assert!(compare(&echo, &one, &came("2\r\nac\r\n0\r\n\r\n")).is_err());
        let files = Case { setup: Setup::Files, ..echo };
        assert!(compare(&files, &one, &two).is_err());
        assert!(compare(&files, &one, &Came { has_ended: true, ..one.clone() }).is_err());
        assert!(compare(&files, &one, &Came { has_broken: true, ..one.clone() }).is_err());
    }

    #[test]
    fn the_answer_to_the_probe_is_taken_off() {
        let kept = Came::before_probe(b"abcprobe", b"probe");
        assert_eq!(kept, Came { stream: b"abc".to_vec(), ..quiet() });
        assert!(Came::before_probe(b"abc", b"probe").has_ended);
    }
}
