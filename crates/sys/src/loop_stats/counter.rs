//! What is counted, and what a call and a call site are called.

/// Makes an enum whose members are counted from 0, with a name and a line about each.
macro_rules! numbered {
    ($(#[$about:meta])* $kind:ident { $($(#[doc = $line:literal])+ $member:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $kind { $($(#[doc = $line])+ $member,)+ }

        impl $kind {
            /// All, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$member,)+];

            /// The name in results for programs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$member => $name,)+ }
            }

            /// What it means.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$member => concat!($($line,)+).trim_start(),)+ }
            }

            /// The member with a number.
            #[must_use]
            pub fn numbered(number: u64) -> Option<Self> {
                Self::ALL.get(usize::try_from(number).ok()?).copied()
            }
        }
    };
}

numbered! {
    /// A counter of a cell. All of them only rise. Those that rise most often stand first, in one cache line.
    Counter {
        /// Calls of epoll_wait, epoll_pwait and epoll_pwait2 that returned
        Waits = "waits",
        /// Events that waits returned
        Events = "events",
        /// Nanoseconds in waits
        WaitNs = "wait_ns",
        /// Turns: from the return of a wait to the next wait
        Turns = "turns",
        /// Nanoseconds between waits
        TurnNs = "turn_ns",
        /// Reads and writes
        Transfers = "transfers",
        /// Reads and writes that would have blocked
        Again = "again",
        /// Connections that accept and accept4 returned
        Accepted = "accepted",
        /// Waits without an event whose timeout was 0
        EmptyPolls = "empty_polls",
        /// Waits without an event that ended by their timeout
        TimedOut = "timed_out",
        /// Waits that a signal ended
        Interrupted = "interrupted",
        /// Waits that failed otherwise
        WaitsFailed = "waits_failed",
        /// Waits that filled the buffer they were given
        Full = "full",
        /// Waits for one event at most whose event was ready already, for another descriptor than the one before
        OneByOne = "one_by_one",
        /// Events for a descriptor that was closed since it was registered
        Stale = "stale",
        /// Events whose descriptor could not be recognised by their data
        Unknown = "unknown",
        /// Epoll instances made
        Creates = "creates",
        /// EPOLL_CTL_ADD that succeeded
        Adds = "adds",
        /// EPOLL_CTL_MOD that succeeded
        Mods = "mods",
        /// EPOLL_CTL_DEL that succeeded
        Dels = "dels",
        /// Calls of epoll_ctl that failed
        ControlsFailed = "controls_failed",
        /// ADD or MOD with EPOLLET
        Edges = "edges",
        /// ADD or MOD with EPOLLONESHOT
        Oneshots = "oneshots",
        /// ADD with EPOLLEXCLUSIVE
        Exclusives = "exclusives",
        /// MOD to what was registered already, with neither EPOLLET nor EPOLLONESHOT
        ModsSame = "mods_same",
        /// Updates that another one took back before the next wait
        Cancelled = "cancelled",
        /// MOD back to what was registered before the last MOD
        ModsBack = "mods_back",
        /// MOD that asks for writability although no write was short since it was last asked for
        WritableUnneeded = "writable_unneeded",
        /// ADD of a descriptor that was registered before and was not closed since
        Readds = "readds",
        /// First calls of accept behind an event that found a connection
        AcceptsWoken = "accepts_woken",
        /// First calls of accept behind an event that found none
        AcceptsEmpty = "accepts_empty",
        /// First reads and writes behind an event that would have blocked
        AgainAfterEvent = "again_after_event",
        /// Turns of 10 ms or more
        TurnsLong = "turns_long",
        /// Long turns that were asleep in calls for 10 ms, or for half of their time
        TurnsBlocked = "turns_blocked",
        /// Long turns that used the CPU for 10 ms, or for half of their time
        TurnsComputed = "turns_computed",
        /// Nanoseconds that turns which blocked were asleep
        BlockedNs = "blocked_ns",
        /// Nanoseconds of CPU time of turns that computed
        ComputedNs = "computed_ns",
        /// Long turns that did neither: the thread was ready and had no CPU
        TurnsHeldUp = "turns_held_up",
        /// Waits within a turn on another instance than the one whose turn it is
        NestedWaits = "nested_waits",
        /// Registrations that the kernel has and that were made past the C library
        PastRegistrations = "past_registrations",
        /// Instances of epoll that were made past the C library
        PastInstances = "past_instances",
        /// Threads with figures in processes that set a filter of system calls
        Filtered = "filtered",
    }
}

numbered! {
    /// A histogram of a cell.
    Histogram {
        /// Events of each wait
        EventsPerWait = "events_per_wait",
        /// Lengths of turns
        TurnLength = "turn_length",
        /// Lengths of waits
        WaitLength = "wait_length",
    }
}

numbered! {
    /// What happened at a call site that is worth naming.
    Site {
        /// A wait for one event at most, whose event was ready already
        OneByOne = "one_by_one",
        /// An update that asks for writability without need
        WritableUnneeded = "writable_unneeded",
        /// An update that changes nothing or takes another one back before the next wait
        Cancelled = "cancelled",
        /// A registration anew
        Readd = "readd",
        /// An accept without a connection behind an event
        AcceptEmpty = "accept_empty",
        /// A read or write that would have blocked behind an event
        AgainAfterEvent = "again_after_event",
        /// The longest call of a turn that blocked
        Blocked = "blocked",
        /// The wait behind a turn that computed
        Computed = "computed",
        /// The wait behind a turn that slept in a call which is not followed
        BlockedElsewhere = "blocked_elsewhere",
    }
}

numbered! {
    /// A call that is timed within a turn.
    Call {
        /// accept(2)
        Accept = "accept",
        /// accept4(2)
        Accept4 = "accept4",
        /// connect(2)
        Connect = "connect",
        /// close(2)
        Close = "close",
        /// read(2)
        Read = "read",
        /// readv(2)
        Readv = "readv",
        /// recv(2)
        Recv = "recv",
        /// recvfrom(2)
        Recvfrom = "recvfrom",
        /// recvmsg(2)
        Recvmsg = "recvmsg",
        /// recvmmsg(2)
        Recvmmsg = "recvmmsg",
        /// write(2)
        Write = "write",
        /// writev(2)
        Writev = "writev",
        /// send(2)
        Send = "send",
        /// sendto(2)
        Sendto = "sendto",
        /// sendmsg(2)
        Sendmsg = "sendmsg",
        /// sendmmsg(2)
        Sendmmsg = "sendmmsg",
        /// sendfile(2)
        Sendfile = "sendfile",
        /// splice(2)
        Splice = "splice",
        /// pread(2)
        Pread = "pread",
        /// pwrite(2)
        Pwrite = "pwrite",
        /// fsync(2)
        Fsync = "fsync",
        /// fdatasync(2)
        Fdatasync = "fdatasync",
        /// nanosleep(2)
        Nanosleep = "nanosleep",
        /// clock_nanosleep(2)
        ClockNanosleep = "clock_nanosleep",
        /// usleep(3)
        Usleep = "usleep",
        /// sleep(3)
        Sleep = "sleep",
        /// poll(2)
        Poll = "poll",
        /// ppoll(2)
        Ppoll = "ppoll",
        /// select(2)
        Select = "select",
        /// pselect(2)
        Pselect = "pselect",
        /// waitpid(2)
        Waitpid = "waitpid",
        /// flock(2)
        Flock = "flock",
        /// getaddrinfo(3)
        Getaddrinfo = "getaddrinfo",
        /// epoll_ctl(2)
        EpollCtl = "epoll_ctl",
        /// open(2)
        Open = "open",
        /// openat(2)
        Openat = "openat",
        /// futex(2), by syscall(2)
        Futex = "futex",
        /// epoll_wait(2) on another instance than the one whose turn it is
        EpollWait = "epoll_wait",
        /// pthread_mutex_lock(3) and its kin, where it has to wait
        MutexLock = "pthread_mutex_lock",
        /// pthread_rwlock_rdlock(3), pthread_rwlock_wrlock(3) and their kin, where they have to wait
        RwlockLock = "pthread_rwlock_lock",
        /// pthread_cond_wait(3)
        CondWait = "pthread_cond_wait",
        /// pthread_cond_timedwait(3), pthread_cond_clockwait(3)
        CondTimedwait = "pthread_cond_timedwait",
        /// sem_wait(3) and its kin, where it has to wait
        SemWait = "sem_wait",
        /// pthread_barrier_wait(3)
        BarrierWait = "pthread_barrier_wait",
        /// pthread_join(3) and its kin
        Join = "pthread_join",
        /// system(3)
        System = "system",
        /// posix_spawn(3), posix_spawnp(3)
        Spawn = "posix_spawn",
        /// sigwait(3), sigtimedwait(2) and their kin
        Sigwait = "sigwait",
        /// Any call that the thread slept in: the call itself is not known, but the function that made it
        Asleep = "asleep",
    }
}
