//! What a kernel does with receive buffers that are filled piece by piece, tried on a ring of its own before the loops
//! rely on it: that it knows them (Linux 6.12), that their pieces are named in the order in which they were filled, and
//! whether a receive that stays armed takes a bound (Linux 6.17).
//!
//! Until a fix of 2025, which older lines of kernels have too, a receive that ends with its bytes is reported after one
//! that stays armed though it was served before: a reader then takes the bytes of one connection for another's.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::pool::ReceiveBuffers;
use super::stream::{StreamRing, StreamSizes};
use super::{Bound, Shots, Sizes, StreamCompletion};

pub(super) const UNKNOWN: &str =
    "this kernel does not fill receive buffers piece by piece (Linux 6.12 and newer do)";

const WRONG_ORDER: &str = "this kernel names the pieces of receive buffers in the wrong order (Linux 6.15 and newer do not)";

/// A ring that does no more than the trial.
const SIZES: StreamSizes = StreamSizes {
    ring: Sizes { submission: 8, completion: 16 },
    receive: ReceiveBuffers::incremental(1, 64),
    otherwise: None,
    arena_bytes: 1,
};

/// Each receive of the trial has its bytes there when it is submitted.
const COMPLETION_TIME_MAX: Duration = Duration::from_secs(1);

/// Whether a receive that stays armed takes a bound of what it brings.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Bounds {
    Known,
    #[default]
    Unknown,
}

/// Serves a receive that ends with its bytes and one that stays armed in one submission, then one with a bound.
///
/// # Errors
/// Why incremental buffers are not to be used here.
pub(super) fn run() -> Result<Bounds, String> {
    let mut ring =
        StreamRing::open_with(SIZES, SIZES.receive).map_err(|refused| refused.to_string())?;
    let failed = |error: std::io::Error| {
        format!("receive buffers that are filled piece by piece could not be tried: {error}")
    };
    let words = [b"one".as_slice(), b"and two"];
    let mut pairs = Vec::new();
    for (number, (word, shots)) in words.into_iter().zip([Shots::One, Shots::Many]).enumerate() {
        let (ours, mut peer) = UnixStream::pair().map_err(failed)?;
        peer.write_all(word).map_err(failed)?;
        ring.receive(ours.as_raw_fd(), shots, number as u64).expect("it fits the queue");
        pairs.push((ours, peer));
    }
    for _ in &words {
        let seen = next(&mut ring).ok_or(UNKNOWN)?;
        let word = words.get(seen.user_data as usize).copied();
        if word.is_none() || taken(&mut ring, seen).as_deref() != word {
            return Err(WRONG_ORDER.to_owned());
        }
    }
    let (ours, mut peer) = UnixStream::pair().map_err(failed)?;
    peer.write_all(b"two").map_err(failed)?;
    ring.bounds = Bounds::Known;
    ring.receive_up_to(ours.as_raw_fd(), Bound { each: 2, enough: 1 }, 3)
        .expect("it fits the queue");
    let is_bound = next(&mut ring).is_some_and(|seen| {
        let has_ended = !seen.has_more;
        has_ended && taken(&mut ring, seen).is_some_and(|bytes| bytes == b"tw")
    });
    Ok(if is_bound { Bounds::Known } else { Bounds::Unknown })
}

fn next(ring: &mut StreamRing) -> Option<StreamCompletion> {
    let end = Instant::now() + COMPLETION_TIME_MAX;
    loop {
        if let Some(completion) = ring.next_completion() {
            return Some(completion);
        }
        if Instant::now() > end {
            return None;
        }
        // What it says is seen by what is there then.
        let _ = ring.enter(1, Some(COMPLETION_TIME_MAX));
    }
}

fn taken(ring: &mut StreamRing, completion: StreamCompletion) -> Option<Vec<u8>> {
    let received = completion.received?;
    let bytes = ring.bytes(&received).to_vec();
    ring.give_back(received);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_fills_pieces_names_them_in_order() {
        if pollux_testing::or_skip(StreamRing::open_with(SIZES, ReceiveBuffers::whole(1, 64)))
            .is_none()
        {
            return;
        }
        if let Err(reason) = run() {
            pollux_testing::skip(reason);
        }
    }
}
