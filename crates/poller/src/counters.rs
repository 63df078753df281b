//! What a poller did, counted from its first wait and readable while it runs.
//!
//! Only the thread that owns the poller writes; any thread may read. A count is a relaxed load
//! and store on a cache line of its own, so keeping it costs less than a nanosecond.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of the events-per-wait histogram: 0, 1, 2–3, 4–7, … and 65,536 and more.
pub const HISTOGRAM_BUCKETS: usize = 18;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters of one poller. Its implementation counts; any thread may read them.
        ///
        /// ```
        /// use pollux_poller::{Events, Mechanism};
        /// use std::time::Duration;
        ///
        /// let mut poller = Mechanism::Epoll.open()?;
        /// let counters = poller.counters().clone();
        /// poller.wait(&mut Events::with_capacity(64), Some(Duration::ZERO))?;
        /// let seen = std::thread::spawn(move || counters.snapshot()).join().expect("it only reads");
        /// assert_eq!((seen.waits, seen.empty_waits, seen.events), (1, 1, 0));
        /// # Ok::<(), pollux_poller::Error>(())
        /// ```
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: Count,)*
            pub(crate) events_per_wait: [Count; HISTOGRAM_BUCKETS],
        }

        /// The values of [`Counters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// How many waits found 0, 1, 2–3, 4–7, … events.
            pub events_per_wait: [u64; HISTOGRAM_BUCKETS],
        }

        impl Counters {
            /// Reads every counter; each is exact, together they may be a few events apart.
            #[must_use]
            pub fn snapshot(&self) -> CountersSnapshot {
                CountersSnapshot {
                    $($name: self.$name.value(),)*
                    events_per_wait: std::array::from_fn(|i| self.events_per_wait[i].value()),
                }
            }
        }

        impl CountersSnapshot {
            /// What was counted since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($name: self.$name - earlier.$name,)*
                    events_per_wait: std::array::from_fn(|i| {
                        self.events_per_wait[i] - earlier.events_per_wait[i]
                    }),
                }
            }

            /// Names and values, for tables and result files.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Calls of wait.
    waits,
    /// Waits that returned without an event.
    empty_waits,
    /// Events delivered.
    events,
    /// Waits that a waker ended.
    wakes,
    /// Waits that a signal ended.
    interrupts,
    /// Additions, modifications and deletions that the caller made.
    updates_asked,
    /// Updates that were merged with another one or cancelled out before the kernel saw them.
    updates_merged,
    /// Updates that were handed to the kernel.
    updates_sent,
    /// Registrations armed again by the backend: emulated level trigger, ended multishots.
    rearms,
    /// Events for deleted or replaced registrations, dropped.
    stale_events,
    /// Registrations dropped because their descriptor had been closed without delete.
    closed_without_delete,
    /// System calls made for waiting and for changes.
    system_calls,
    /// Descriptors handed to the kernel anew with the waits, summed up: select and poll hand over all of theirs each
    /// time, elsewhere the kernel keeps the set.
    descriptors_handed,
    /// Completions that did not fit the completion queue and were kept back by the kernel.
    overflows,
}

impl Counters {
    /// Books the end of one wait that delivered `events`.
    pub fn wait_ended(&self, events: usize) {
        self.waits.add(1);
        self.events.add(events as u64);
        if events == 0 {
            self.empty_waits.add(1);
        }
        let bucket = (usize::BITS - events.leading_zeros()) as usize;
        self.events_per_wait[bucket.min(HISTOGRAM_BUCKETS - 1)].add(1);
    }
}

/// A count with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Only the owning thread may call this: load and store are not one atomic step.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// The count as of now, from any thread.
    #[must_use]
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_power_of_two_buckets() {
        let counters = Counters::default();
        for events in [0, 1, 2, 3, 4, 65_535, 65_536, 1 << 20] {
            counters.wait_ended(events);
        }
        let seen = counters.snapshot();
        assert_eq!(seen.events_per_wait[..4], [1, 1, 2, 1]);
        assert_eq!(seen.events_per_wait[16..], [1, 2]);
        assert_eq!((seen.waits, seen.empty_waits), (8, 1));
    }

    #[test]
    fn a_difference_counts_only_what_came_later() {
        let counters = Counters::default();
        counters.wait_ended(5);
        let earlier = counters.snapshot();
        counters.wait_ended(2);
        assert_eq!(counters.snapshot().since(&earlier).events, 2);
    }
}
