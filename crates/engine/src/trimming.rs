//! When a loop gives memory back that its connections no longer need.
//!
//! A connection whose peer does not read holds what waits for it, some 150 KiB in a proxy. When many have left, or have been
//! read from again, their room is free in the heap, and the process would keep it for good: the allocator gives back by itself
//! only what is free at the end of the heap, and there something always lives. So the heap is trimmed
//!
//! * a second after half of a loop's connections have left, or half of those whose output waited wait no more, or half of those
//!   whose sessions held memory while they were busy ([`Session::awake`](crate::Session::awake)) have given it back;
//! * a second after the last of many such ends, where those left at the time were fewer than half.
//!
//! That is done in a turn that brings nothing to do, or half a second later on a loop that never rests, and not more often
//! than every two seconds; every ten for connections that are idle, as those of some clients wake again and again. On a loop
//! whose connections come and go steadily, nothing is done.

use std::time::Duration;

use crate::Moment;

/// As few connections as this are not worth it: what they held is used by the next ones.
const LEFT_MIN: u32 = 32;
/// Those that leave together have left by then.
const DELAY: Duration = Duration::from_secs(1);
/// For how long a loop that is busy puts it off.
const BUSY_MAX: Duration = Duration::from_millis(500);
/// From one time to the next.
const INTERVAL: Duration = Duration::from_secs(2);
/// The same where connections stay that are idle.
const INTERVAL_OF_IDLE: Duration = Duration::from_secs(10);

/// How many there are, and the most there were since the heap was trimmed last.
#[derive(Debug, Default)]
struct HighWater {
    now: u32,
    most: u32,
}

impl HighWater {
    fn rise(&mut self) {
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    /// One less; says whether half of them, and not few, are gone.
    fn fall(&mut self) -> bool {
        self.now -= 1;
        self.most - self.now >= LEFT_MIN && self.now <= self.most / 2
    }

    /// There are so many: how many fewer than before, and whether half of them, and not few, are gone.
    fn set(&mut self, now: u32) -> (u32, bool) {
        let fewer = self.now.saturating_sub(now);
        (self.now, self.most) = (now, self.most.max(now));
        (fewer, self.most - now >= LEFT_MIN && now <= self.most / 2)
    }

    fn forget(&mut self) {
        self.most = self.now;
    }
}

#[derive(Debug)]
pub(crate) struct Trimming {
    open: HighWater,
    /// Of those, the ones whose output waits for the peer.
    waiting: HighWater,
    /// Those whose sessions hold memory while they are busy.
    awake: HighWater,
    /// Ends since the heap was trimmed last: of connections, of waits for a peer, and of busy times.
    ends: u32,
    last_end: Moment,
    /// Half of one or the other were gone at the last end, or before.
    is_half_gone: bool,
    due: Moment,
    /// Not before this.
    earliest: Moment,
    /// The same where connections have become idle.
    earliest_of_idle: Moment,
    /// What the loop had received when this was asked last.
    receives: u64,
}

impl Trimming {
    pub(crate) fn new() -> Self {
        Self {
            open: HighWater::default(),
            waiting: HighWater::default(),
            awake: HighWater::default(),
            ends: 0,
            last_end: Moment::default(),
            is_half_gone: false,
            due: Moment::NEVER,
            earliest: Moment::default(),
            earliest_of_idle: Moment::default(),
            receives: 0,
        }
    }

    #[inline]
    pub(crate) fn opened(&mut self) {
        self.open.rise();
    }

    /// A connection has left.
    #[inline]
    pub(crate) fn closed(&mut self, now: Moment) {
        let is_half_gone = self.open.fall();
        self.ended(1, is_half_gone, self.earliest, now);
    }

    /// The output of a connection waits for its peer, or does so no more.
    pub(crate) fn waits(&mut self, is_waiting: bool, now: Moment) {
        if is_waiting {
            self.waiting.rise();
        } else {
            let is_half_gone = self.waiting.fall();
            self.ended(1, is_half_gone, self.earliest, now);
        }
    }

    /// So many sessions hold memory that they give back when they are idle.
    #[inline]
    pub(crate) fn awake(&mut self, count: u32, now: Moment) {
        if count != self.awake.now {
            self.awake_changed(count, now);
        }
    }

    #[cold]
    fn awake_changed(&mut self, count: u32, now: Moment) {
        let (fewer, is_half_gone) = self.awake.set(count);
        if fewer > 0 {
            self.ended(fewer, is_half_gone, self.earliest_of_idle, now);
        }
    }

    #[inline]
    fn ended(&mut self, count: u32, is_half_gone: bool, earliest: Moment, now: Moment) {
        self.ends += count;
        self.last_end = now;
        self.is_half_gone |= is_half_gone;
        if self.ends >= LEFT_MIN {
            self.due = self.due.min(earliest.max(now + DELAY));
        }
    }

    /// When the heap is to be trimmed.
    #[inline]
    pub(crate) fn due(&self) -> Moment {
        self.due
    }

    /// Whether it is to be trimmed now that it is due: the loop has received nothing since this was asked last, or has been
    /// busy for too long. It is not due any more then.
    pub(crate) fn begin(&mut self, receives: u64, now: Moment) -> bool {
        let is_idle = std::mem::replace(&mut self.receives, receives) == receives;
        let quiet_from = self.last_end + DELAY;
        if !self.is_half_gone && quiet_from > now {
            self.due = quiet_from;
            return false;
        }
        let begins = self.due <= now && (is_idle || self.due + BUSY_MAX <= now);
        if begins {
            (self.due, self.earliest) = (Moment::NEVER, now + INTERVAL);
            self.earliest_of_idle = now + INTERVAL_OF_IDLE;
            (self.ends, self.is_half_gone) = (0, false);
            self.open.forget();
            self.waiting.forget();
            self.awake.forget();
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1);

    fn with_open(open: u32) -> Trimming {
        let mut trimming = Trimming::new();
        (0..open).for_each(|_| trimming.opened());
        trimming
    }

    #[test]
    fn the_heap_is_trimmed_a_second_after_half_of_many_connections_left() {
        let mut trimming = with_open(100);
        (0..31).for_each(|_| trimming.closed(NOW));
        assert_eq!(trimming.due(), Moment::NEVER);
        trimming.closed(NOW);
        (0..50).for_each(|_| trimming.closed(NOW + DELAY / 2));
        assert_eq!(trimming.due(), NOW + DELAY);
        assert!(!trimming.begin(0, NOW + DELAY / 2));
        assert!(trimming.begin(0, NOW + DELAY));
        assert_eq!(trimming.due(), Moment::NEVER);
        // Few come and go as they like.
        (0..20).for_each(|_| trimming.opened());
        (0..30).for_each(|_| trimming.closed(NOW + INTERVAL));
        assert_eq!(trimming.due(), Moment::NEVER);
    }

    #[test]
    fn while_connections_come_and_go_nothing_is_trimmed_until_they_stop() {
        let mut trimming = with_open(1000);
        let mut now = NOW;
        for _ in 0..50 {
            now = now + DELAY / 5;
            (0..20).for_each(|_| trimming.closed(now));
            (0..20).for_each(|_| trimming.opened());
            assert!(trimming.due() > now || !trimming.begin(0, now));
        }
        let due = now + DELAY;
        assert!(trimming.due() >= due || !trimming.begin(0, trimming.due));
        assert_eq!(trimming.due(), due);
        assert!(trimming.begin(0, due));
    }

    #[test]
    fn the_heap_is_trimmed_when_peers_have_read_what_waited_for_them() {
        let mut trimming = with_open(100);
        (0..100).for_each(|_| trimming.waits(true, NOW));
        (0..50).for_each(|_| trimming.waits(false, NOW));
        assert_eq!(trimming.due(), NOW + DELAY);
        assert!(trimming.begin(0, NOW + DELAY));
    }

    #[test]
    fn the_heap_is_trimmed_when_sessions_are_idle_and_every_ten_seconds_at_most() {
        let mut trimming = with_open(100);
        trimming.awake(100, NOW);
        trimming.awake(60, NOW);
        assert_eq!(trimming.due(), NOW + DELAY);
        // Fewer than half: it waits until no more of them become idle.
        assert!(!trimming.begin(0, NOW + DELAY / 2));
        trimming.awake(40, NOW + DELAY / 2);
        assert!(trimming.begin(0, NOW + DELAY));
        let first = NOW + DELAY;
        // The next burst.
        trimming.awake(100, first);
        trimming.awake(0, first);
        assert_eq!(trimming.due(), first + INTERVAL_OF_IDLE);
        // Those that leave do not wait for so long.
        (0..100).for_each(|_| trimming.closed(first));
        assert_eq!(trimming.due(), first + INTERVAL);
    }

    #[test]
    fn a_loop_that_is_busy_trims_the_heap_a_little_later_and_not_often() {
        let mut trimming = with_open(100);
        (0..100).for_each(|_| trimming.closed(NOW));
        let due = NOW + DELAY;
        assert!(!trimming.begin(7, due), "something came since");
        assert!(!trimming.begin(9, due + BUSY_MAX / 2), "something came since");
        assert!(trimming.begin(12, due + BUSY_MAX));
        (0..100).for_each(|_| trimming.opened());
        (0..100).for_each(|_| trimming.closed(due + BUSY_MAX));
        assert_eq!(trimming.due(), due + BUSY_MAX + INTERVAL);
    }
}
