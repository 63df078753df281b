//! How a peer takes what was sent to it, and when it is too slow.
//!
//! What the kernel took is not what the peer took: the buffers of a socket hold megabytes, for
//! minutes of a slow peer. So the loop looks at what it still holds
//! (`pollux_sys::socket::outq_bytes`), but only of a connection that was silent for a part of
//! `write_timeout`, and then at each such part until nothing is left: a connection that is busy
//! costs a stored moment for each send, one that falls idle costs a single call.
//!
//! ```text
//!           sent                          a look finds something untaken
//!  quiet ─────────► sent ─┐ sent: look later ───────────────────► watched ─┐ looks, sends
//!    ▲                └───┘        or the socket is full             ▲     │
//!    └───────────── a look finds that all was taken ─────────────────┴─────┘
//! ```
//!
//! The two limits of a watched peer:
//! * It takes something within `write_timeout`. A look knows only that it did so since the look
//!   before, so a peer that takes nothing any more is cut up to 1/16 later.
//! * It takes `write_rate_min` in each second. Its kernel reports what it reads in steps, when
//!   so much is free that sending is worth while again (RFC 9293 3.8.6.2.2), and on loopback a
//!   step is 64 KiB. So a peer may be behind by [`STEP_BYTES`] beside what it has to take in
//!   `write_timeout`; what it took faster than it had to is not kept.
//!
//! A peer that takes between two looks all that the first one found keeps up with its session,
//! however little that sends.
//!
//! Pure: the loops look and say when it is. Nothing here makes a system call.

use std::time::Duration;

use crate::{Limits, Moment};

/// Looks within `write_timeout`.
const LOOKS: u32 = 16;

/// What a peer's kernel may keep to itself of what the peer has read.
const STEP_BYTES: u64 = 64 << 10;

/// How one peer takes its output.
#[derive(Debug, Default)]
pub(crate) enum Flow {
    /// Nothing was sent since the peer had taken everything.
    #[default]
    Quiet,
    /// Something was sent, and not looked for since: the next look is at this moment.
    Sent(Moment),
    /// The peer had not taken everything when it was looked for, or the socket was full.
    Watched(Box<SlowPeer>),
}

/// What is known of a peer that may be slow.
#[derive(Debug)]
pub(crate) struct SlowPeer {
    look_at: Moment,
    looked_at: Moment,
    /// When it took something last, or a little later.
    taken_at: Moment,
    /// What the kernel held then; none before the first look.
    held_bytes: Option<u64>,
    /// What the kernel was given since.
    given_bytes: i64,
    /// What the peer may fall behind by from now on.
    credit_bytes: u64,
}

impl Flow {
    /// The kernel took so many bytes for the peer.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize, now: Moment, limits: &Limits) {
        match self {
            Self::Watched(peer) => peer.given_bytes += bytes as i64,
            _ => *self = Self::Sent(now + interval(limits)),
        }
    }

    /// The kernel gave back so many bytes of what was taken for sent.
    pub(crate) fn came_back(&mut self, bytes: usize) {
        if let Self::Watched(peer) = self {
            peer.given_bytes -= bytes as i64;
        }
    }

    /// The socket takes no more: whatever else is sent, the peer is looked at.
    pub(crate) fn is_full(&mut self, now: Moment, limits: &Limits) {
        if !matches!(self, Self::Watched(_)) {
            *self = Self::Watched(Box::new(SlowPeer::begin(now, None, limits)));
        }
    }

    /// Whether the peer had not taken everything when it was known last. To close then would
    /// leave the rest to the kernel, whose patience is its own, and lose it if the peer says one
    /// word more.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self, Self::Watched(_))
    }

    /// When to look next.
    #[inline]
    pub(crate) fn look_at(&self) -> Moment {
        match self {
            Self::Quiet => Moment::NEVER,
            Self::Sent(moment) => *moment,
            Self::Watched(peer) => peer.look_at,
        }
    }

    /// Learns that the kernel holds `outq_bytes` for the peer, and that more waits for room.
    /// False when the peer is too slow.
    #[must_use]
    pub(crate) fn look(
        &mut self,
        outq_bytes: u64,
        has_more: bool,
        now: Moment,
        limits: &Limits,
    ) -> bool {
        if outq_bytes == 0 && !has_more {
            *self = Self::Quiet;
            return true;
        }
        if let Self::Watched(peer) = self {
            return peer.look(outq_bytes, now, limits);
        }
        *self = Self::Watched(Box::new(SlowPeer::begin(now, Some(outq_bytes), limits)));
        true
    }
}

impl SlowPeer {
    fn begin(now: Moment, held_bytes: Option<u64>, limits: &Limits) -> Self {
        Self {
            look_at: now + interval(limits),
            looked_at: now,
            taken_at: now,
            held_bytes,
            given_bytes: 0,
            credit_bytes: credit_max(limits),
        }
    }

    fn look(&mut self, outq_bytes: u64, now: Moment, limits: &Limits) -> bool {
        let Some(held_bytes) = self.held_bytes else {
            *self = Self::begin(now, Some(outq_bytes), limits);
            return true;
        };
        // What a unix socket holds is counted with its bookkeeping: less than nothing is nothing.
        let taken_bytes = held_bytes as i64 + self.given_bytes - outq_bytes as i64;
        if taken_bytes > 0 || outq_bytes == 0 {
            let taken_bytes = taken_bytes.unsigned_abs();
            let keeps_up = taken_bytes >= held_bytes || outq_bytes == 0;
            let credit_bytes = self.credit_bytes.saturating_add(taken_bytes);
            let credit_max = credit_max(limits);
            self.credit_bytes = if keeps_up { credit_max } else { credit_bytes.min(credit_max) };
            (self.taken_at, self.held_bytes, self.given_bytes) = (now, Some(outq_bytes), 0);
        }
        let due_bytes = bytes_in(now - self.looked_at, limits.write_rate_min);
        let left = self.credit_bytes.checked_sub(due_bytes);
        self.credit_bytes = left.unwrap_or(0);
        (self.looked_at, self.look_at) = (now, now + interval(limits));
        left.is_some() && now - self.taken_at < limits.write_timeout
    }
}

fn interval(limits: &Limits) -> Duration {
    limits.write_timeout / LOOKS
}

fn credit_max(limits: &Limits) -> u64 {
    STEP_BYTES.saturating_add(bytes_in(limits.write_timeout, limits.write_rate_min))
}

/// What moves in `time` at so many bytes per second.
fn bytes_in(time: Duration, rate: u64) -> u64 {
    let bytes = time.as_nanos().saturating_mul(u128::from(rate)) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1024;

    fn limits() -> Limits {
        let write_timeout = Duration::from_secs(60);
        Limits { write_timeout, write_rate_min: RATE, ..Limits::default() }
    }

    /// A session that has `len` bytes to send, a socket that holds `room`, and a peer that reads
    /// `rate` bytes a second, which its kernel acknowledges in steps.
    struct Scene {
        flow: Flow,
        left: u64,
        room: u64,
        held: u64,
        rate: u64,
        step: u64,
        read: u64,
        now: Moment,
    }

    impl Scene {
        fn new(len: u64, room: u64, rate: u64, step: u64) -> Self {
            let now = Moment::from_nanos(1);
            Self { flow: Flow::Quiet, left: len, room, held: 0, rate, step, read: 0, now }
        }

        fn fill(&mut self) {
            let taken = self.left.min(self.room - self.held);
            if taken > 0 {
                self.flow.sent(taken as usize, self.now, &limits());
            }
            (self.left, self.held) = (self.left - taken, self.held + taken);
            if self.left > 0 {
                self.flow.is_full(self.now, &limits());
            }
        }

        /// Plays on until all was taken or the peer is cut; says after how long, and which.
        fn play(&mut self) -> (Duration, bool) {
            const TICK: Duration = Duration::from_millis(100);
            let begin = self.now;
            self.fill();
            loop {
                self.now = self.now + TICK;
                self.read += self.rate / 10;
                let acked = self.read / self.step * self.step;
                let acked = if self.read >= self.held { self.held } else { acked.min(self.held) };
                (self.held, self.read) = (self.held - acked, self.read.saturating_sub(acked));
                // As a socket does, which reports room when a third is free.
                if self.held * 3 <= self.room * 2 {
                    self.fill();
                }
                let has_more = self.left > 0;
                if self.flow.look_at() <= self.now
                    && !self.flow.look(self.held, has_more, self.now, &limits())
                {
                    return (self.now - begin, false);
                }
                if self.held == 0 && !has_more {
                    return (self.now - begin, true);
                }
            }
        }
    }

    #[test]
    fn a_steady_peer_gets_all_of_it_at_every_rate_above_the_least() {
        // All fits the kernel, some of it, next to nothing.
        for room in [4 << 20, 1 << 20, 100_000] {
            for (rate, step) in [(1_100, 6_144), (2_000, 65_536), (5_000, 65_536), (40_000, 1)] {
                let mut scene = Scene::new(3_000_000, room, rate, step);
                let (took, is_whole) = scene.play();
                assert!(is_whole, "{rate} bytes/s in steps of {step}: cut after {took:?}");
                assert!(took >= Duration::from_secs(3_000_000 / rate - 1), "{took:?}");
            }
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_cut_within_a_tenth_of_the_timeout() {
        for (len, room) in [(3_000_000, 1 << 20), (3_000_000, 4 << 20), (1, 4096)] {
            let (took, is_whole) = Scene::new(len, room, 0, 1).play();
            assert!(!is_whole);
            let least = limits().write_timeout;
            assert!((least..=least * 11 / 10).contains(&took), "{len} bytes: {took:?}");
        }
    }

    #[test]
    fn a_peer_that_stops_is_cut_as_long_after_its_last_byte() {
        let mut scene = Scene::new(3_000_000, 1 << 20, 20_000, 1);
        scene.fill();
        for _ in 0..12 {
            scene.held -= 100_000;
            scene.fill();
            scene.now = scene.now + Duration::from_secs(5);
            assert!(scene.flow.look(scene.held, true, scene.now, &limits()));
        }
        scene.rate = 0;
        let (took, is_whole) = scene.play();
        assert!(!is_whole);
        let least = limits().write_timeout - Duration::from_secs(5);
        assert!((least..=limits().write_timeout * 11 / 10).contains(&took), "{took:?}");
    }

    #[test]
    fn a_peer_below_the_least_rate_is_cut_when_it_is_too_far_behind() {
        let (took, is_whole) = Scene::new(3_000_000, 1 << 20, RATE / 2, 512).play();
        assert!(!is_whole);
        let behind_max = Duration::from_secs(credit_max(&limits()) / (RATE / 2));
        assert!((behind_max..behind_max * 11 / 10).contains(&took), "{took:?}");
    }

    #[test]
    fn a_session_that_says_little_has_no_slow_peer() {
        let mut flow = Flow::Quiet;
        let mut now = Moment::from_nanos(1);
        // Far away: each look finds the last message under way, and never an older one.
        for _ in 0..1000 {
            flow.sent(10, now, &limits());
            now = now + interval(&limits());
            assert!(flow.look(10, false, now, &limits()));
        }
    }

    #[test]
    fn a_busy_connection_is_not_looked_at_and_an_idle_one_once() {
        let mut flow = Flow::Quiet;
        let mut now = Moment::from_nanos(1);
        for _ in 0..1000 {
            assert!(flow.look_at() > now);
            flow.sent(100, now, &limits());
            now = now + Duration::from_millis(100);
        }
        let look_at = flow.look_at();
        assert!(look_at <= now + interval(&limits()));
        assert!(flow.look(0, false, look_at, &limits()));
        assert_eq!(flow.look_at(), Moment::NEVER);
    }

    #[test]
    fn bytes_that_came_back_were_not_taken() {
        let mut flow = Flow::Quiet;
        let mut now = Moment::from_nanos(1);
        flow.is_full(now, &limits());
        assert!(flow.look(1000, true, now, &limits()));
        flow.sent(5000, now, &limits());
        flow.came_back(5000);
        now = now + limits().write_timeout;
        assert!(!flow.look(1000, true, now, &limits()));
    }

    #[test]
    fn without_a_least_rate_a_peer_that_takes_something_is_not_cut() {
        let limits = Limits { write_rate_min: 0, ..limits() };
        let mut flow = Flow::Quiet;
        let mut now = Moment::from_nanos(1);
        let mut held = 1_000_000;
        flow.sent(held as usize, now, &limits);
        for _ in 0..1000 {
            now = now + (limits.write_timeout - Duration::from_secs(1));
            held -= 1;
            assert!(flow.look(held, false, now, &limits));
        }
    }
}
