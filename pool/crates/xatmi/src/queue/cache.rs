//! Queues of others, held open: service queues by clients, reply queues by workers.
//!
//! Opening one costs a formatted name and a walk through the file system, so both keep what they
//! opened, up to a bound; beyond it the one that was used the longest time ago is closed. The
//! cache never makes or removes a queue, and never sends.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

use pollux_sys::mqueue::MessageQueue;

/// How long a queue that was seen to have its name is taken to have it still, a millisecond, so that
/// frequent callers need no system call for it each time. The process that removes a queue reads it for
/// longer than this, as a sender may be late anyway, between the check and the send.
const SEEN_LASTS_NS: u64 = 1_000_000;

/// Open queues by key, a bounded number of them.
#[derive(Debug)]
pub struct QueueCache<K> {
    entries: Vec<Entry<K>>,
    entries_max: usize,
    /// Counts uses, so that the smallest number is the longest time ago.
    uses: u64,
    /// Where the last one was found: most callers stay with one queue.
    recent: usize,
    /// Queues that were opened since the names of all were checked.
    inserts: usize,
    /// What their messages have to be, where that is known.
    message_len_bytes: Option<u32>,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    queue: MessageQueue,
    last_use: u64,
    /// When it was last seen to have its name, in nanoseconds of the monotonic clock.
    seen_ns: u64,
}

impl<K: Copy + Eq> QueueCache<K> {
    /// An empty cache for up to `entries_max` queues, each of which is a descriptor.
    ///
    /// # Panics
    /// When `entries_max` is 0.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        assert!(entries_max > 0, "a cache holds something");
        let message_len_bytes = None;
        Self { entries: Vec::new(), entries_max, uses: 0, recent: 0, inserts: 0, message_len_bytes }
    }

    /// The same, of queues whose messages have `message_len_bytes`; others are refused with EMSGSIZE.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn of_messages(entries_max: usize, message_len_bytes: u32) -> Self {
        Self { message_len_bytes: Some(message_len_bytes), ..Self::new(entries_max) }
    }

    /// The queue of `key`, opened by the name that `name` gives unless it is open.
    ///
    /// # Errors
    /// As [`MessageQueue::open`]: ENOENT where there is none; EMSGSIZE for one with other messages.
    pub fn open(&mut self, key: K, name: impl FnOnce() -> CString) -> io::Result<&MessageQueue> {
        self.uses += 1;
        let at = match self.find(key) {
            Some(at) => at,
            None => {
                let queue = MessageQueue::open(&name())?;
                if let Some(wanted) = self.message_len_bytes
                    && queue.state()?.size.message_len_bytes != wanted
                {
                    return Err(rustix::io::Errno::MSGSIZE.into());
                }
                self.insert(key, queue)
            }
        };
        self.recent = at;
        let entry = &mut self.entries[at];
        entry.last_use = self.uses;
        Ok(&entry.queue)
    }

    /// As [`open`](Self::open), and a queue that lost its name meanwhile is opened again.
    ///
    /// # Errors
    /// ENOENT when the name is gone and no other queue took its place.
    pub fn open_named(&mut self, key: K, name: impl Fn() -> CString) -> io::Result<&MessageQueue> {
        if self.find(key).is_some_and(|at| is_withdrawn(&self.entries[at].queue)) {
            self.close(key);
        }
        self.open(key, name)
    }

    /// As [`open_named`](Self::open_named), for frequent callers: the name is checked only when the
    /// last check was more than a millisecond before `now_ns`, the monotonic clock.
    ///
    /// # Errors
    /// ENOENT when the name is gone and no other queue took its place.
    pub fn open_named_lately(
        &mut self,
        key: K,
        now_ns: u64,
        name: impl Fn() -> CString,
    ) -> io::Result<&MessageQueue> {
        let known = self.find(key).map(|at| &mut self.entries[at]);
        match known.filter(|entry| now_ns.saturating_sub(entry.seen_ns) <= SEEN_LASTS_NS) {
            Some(_) => self.open(key, name),
            None => {
                self.open_named(key, name)?;
                let entry = &mut self.entries[self.recent];
                entry.seen_ns = now_ns;
                Ok(&entry.queue)
            }
        }
    }

    /// Closes the queue of `key`, if it is open.
    pub fn close(&mut self, key: K) {
        if let Some(at) = self.find(key) {
            self.entries.swap_remove(at);
        }
    }

    /// Closes the queues that lost their name: as long as one is open, it counts against the limit
    /// of the user that made it.
    pub fn close_withdrawn(&mut self) {
        self.entries.retain(|entry| !is_withdrawn(&entry.queue));
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, key: K) -> Option<usize> {
        if self.entries.get(self.recent).is_some_and(|entry| entry.key == key) {
            return Some(self.recent);
        }
        self.entries.iter().position(|entry| entry.key == key)
    }

    fn insert(&mut self, key: K, queue: MessageQueue) -> usize {
        // Many new queues mean that others are gone. On average one is checked for each new one.
        self.inserts += 1;
        if self.inserts >= self.entries.len() {
            self.inserts = 0;
            self.close_withdrawn();
        }
        if self.entries.len() == self.entries_max {
            let oldest = (0..self.entries.len()).min_by_key(|at| self.entries[*at].last_use);
            self.entries.swap_remove(oldest.unwrap_or(0));
        }
        self.entries.push(Entry { key, queue, last_use: self.uses, seen_ns: 0 });
        self.entries.len() - 1
    }
}

/// Whether the queue lost its name: no sender will open it any more, and its readers are leaving.
///
/// One `fstat(2)`; a queue that cannot be asked counts as withdrawn.
#[must_use]
pub fn is_withdrawn(queue: impl AsFd) -> bool {
    rustix::fs::fstat(queue).map_or(true, |stat| stat.st_nlink == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_sys::mqueue::QueueSize;

    const SIZE: QueueSize = QueueSize { messages_max: 1, message_len_bytes: 8 };

    fn name(number: u32) -> CString {
        let text = format!("/pollux-xatmi-cache-{}-{number}", std::process::id());
        CString::new(text).expect("no zero byte")
    }

    #[test]
    fn the_one_used_the_longest_time_ago_is_closed_first() {
        let queues: Vec<_> =
            (0..3).map(|n| MessageQueue::create(&name(n), SIZE).expect("a queue")).collect();
        let mut cache = QueueCache::new(2);
        for n in [0, 1, 0, 2] {
            cache.open(n, || name(n)).expect("it stands");
        }
        for n in 0..3 {
            MessageQueue::unlink(&name(n)).expect("it stands");
        }
        let unreachable = |_| panic!("it was still open");
        assert_eq!(cache.len(), 2);
        cache.open(0, || unreachable(0)).expect("open");
        cache.open(2, || unreachable(2)).expect("open");
        let gone = cache.open(1, || name(1)).expect_err("it was closed, and its name is gone");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        drop(queues);
    }

    #[test]
    fn queues_that_lost_their_name_are_closed_when_another_one_is_opened() {
        let mut cache = QueueCache::new(4);
        for n in [20, 21] {
            MessageQueue::create(&name(n), SIZE).expect("a queue");
        }
        cache.open(20, || name(20)).expect("it stands");
        MessageQueue::unlink(&name(20)).expect("it stands");
        cache.open(21, || name(21)).expect("it stands");
        MessageQueue::unlink(&name(21)).expect("it stands");
        assert_eq!(cache.len(), 1);
        cache.close_withdrawn();
        assert!(cache.is_empty());
    }

    #[test]
    fn many_short_lived_queues_are_checked_together() {
        let mut cache = QueueCache::new(8);
        let queues: Vec<_> =
            (30..38).map(|n| MessageQueue::create(&name(n), SIZE).expect("a queue")).collect();
        for n in 30..38 {
            cache.open(n, || name(n)).expect("it stands");
        }
        cache.inserts = 0;
        for n in 30..38 {
            MessageQueue::unlink(&name(n)).expect("it stands");
        }
        let looks = (40..48).filter(|n| {
            let _queue = MessageQueue::create(&name(*n), SIZE).expect("a queue");
            cache.open(*n, || name(*n)).expect("it stands");
            MessageQueue::unlink(&name(*n)).expect("it stands");
            cache.inserts == 0
        });
        assert_eq!(looks.count(), 1);
        drop(queues);
    }

    #[test]
    fn a_queue_that_lost_its_name_is_opened_again() {
        let mut cache = QueueCache::new(4);
        let first = MessageQueue::create(&name(9), SIZE).expect("a queue");
        cache.open_named((), || name(9)).expect("it stands").send(b"first", 0).expect("room");
        MessageQueue::unlink(&name(9)).expect("it stands");
        let gone = cache.open_named((), || name(9)).expect_err("no name");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        assert!(cache.is_empty());
        let second = MessageQueue::create(&name(9), SIZE).expect("a queue");
        cache.open_named((), || name(9)).expect("it stands").send(b"again", 0).expect("room");
        MessageQueue::unlink(&name(9)).expect("it stands");
        assert_eq!(first.state().expect("open").messages_waiting, 1);
        assert_eq!(second.state().expect("open").messages_waiting, 1);
    }

    #[test]
    fn a_queue_that_was_just_seen_is_looked_at_a_millisecond_later() {
        let mut cache = QueueCache::new(4);
        let _queue = MessageQueue::create(&name(8), SIZE).expect("a queue");
        let mut open = |now_ns| cache.open_named_lately((), now_ns, || name(8)).map(drop);
        open(5 * SEEN_LASTS_NS).expect("it stands");
        MessageQueue::unlink(&name(8)).expect("it stands");
        open(6 * SEEN_LASTS_NS).expect("seen a millisecond ago");
        let gone = open(6 * SEEN_LASTS_NS + 1).expect_err("seen too long ago");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
