//! What a conformance case is, and what it may answer.
//!
//! A case is a script that runs unchanged on every backend; it answers that the contract was kept, or names the
//! deviation that it saw. Which deviations are expected is not known to a case: the runner compares the answer
//! with the declared table ([`differences`]). Test binaries of three crates run the cases: of `poller` as they are
//! (and scripts that need a process of their own, which stand there), of `epoll-c` and `preload` through the epoll
//! interface, in several ways ([`runner::Way`]).
//!
//! [`sim`] is the oracle: a simulated kernel that the cases run on too, and that loops are tested with.
#![forbid(unsafe_code)]

pub mod aio_polls;
pub mod differences;
mod groups;
pub mod objects;
pub mod rig;
pub mod runner;
pub mod sim;

use rig::Rig;

pub use groups::{OF_INTERFACES, OF_NUMBERS, OF_POLLERS};

/// One script with its name.
pub struct Case {
    /// What is true when the case passes, in snake case; unique in its group.
    pub name: &'static str,
    /// What of a backend the script uses beyond level triggers on pipes and socket pairs.
    pub needs: &'static [Need],
    /// The script. Everything that is neither the contract nor a deviation panics.
    pub run: fn(&mut Rig) -> CaseResult,
}

/// Cases on one subject.
#[derive(Clone, Copy)]
pub struct Group {
    /// Stands before the names of its cases: `triggers::edge_...`.
    pub name: &'static str,
    pub cases: &'static [Case],
}

/// `Ok` when the contract was kept.
pub type CaseResult = Result<(), Deviation>;

/// What a script uses that not every backend has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Edge triggers.
    Edge,
    /// Oneshot triggers.
    Oneshot,
    /// Exclusive registrations.
    Exclusive,
    /// The peer's half-close as a bit of its own.
    Rdhup,
    /// Hang-up and error as bits of their own.
    Hangup,
    /// Something that only the kernel has: TCP, files, signals, processes, nested polling, time
    /// that passes for several threads.
    Kernel,
}

impl Need {
    /// How the document calls the cases that need this.
    pub fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge triggers",
            Self::Oneshot => "oneshot triggers",
            Self::Exclusive => "exclusive registrations",
            Self::Rdhup => "rdhup interest",
            Self::Hangup => "hang-up and error",
            Self::Kernel => "TCP and UDP, files, timers, nested pollers, threads, processes",
        }
    }
}

/// A behaviour that differs from the contract in a known way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deviation {
    /// Refused with `Error::Unsupported`.
    Refused,
    /// The object or situation does not exist on this backend.
    NoObject,
    /// A file that is always ready was taken and reported as ready.
    AcceptsFiles,
    /// Hang-up and error arrived as readable and writable.
    HangupAsReadable,
    /// Hang-up and error are reported only with an interest in readable or writable.
    HangupUnreported,
    /// Adding a descriptor that is still open, under another token, replaced the registration.
    Replaces,
    /// The next file with the number of a closed one was reported under the old token.
    WatchesNumbers,
    /// The file was still watched after its descriptor had been closed.
    HoldsFiles,
    /// A closed descriptor was forgotten although a duplicate kept its file open.
    ForgetsClosed,
    /// A descriptor that can't be used was refused by the next wait instead of by add.
    ErrorLater,
    /// A condition that held while it was watched was reported after it was over.
    ReportsWhatIsOver,
    /// Modifying a number that was used again went over to the new file.
    ModifiesSuccessor,
    /// A wait ended without an event before its time was over.
    EndsEarly,
    /// No stale event came, because replacing a registration took the old watch away.
    NothingStale,
    /// A poller on which nobody waits took an exclusive wake, and the one that waits got none.
    TakesWakes,
}

impl Deviation {
    pub const ALL: [Self; 15] = [
        Self::Refused,
        Self::NoObject,
        Self::AcceptsFiles,
        Self::HangupAsReadable,
        Self::HangupUnreported,
        Self::Replaces,
        Self::WatchesNumbers,
        Self::HoldsFiles,
        Self::ForgetsClosed,
        Self::ErrorLater,
        Self::ReportsWhatIsOver,
        Self::ModifiesSuccessor,
        Self::EndsEarly,
        Self::NothingStale,
        Self::TakesWakes,
    ];

    /// What happens, in the words of the report and of the document.
    pub fn about(self) -> &'static str {
        match self {
            Self::Refused => "refused with `Unsupported`, as the capabilities say",
            Self::NoObject => "there is no such object",
            Self::AcceptsFiles => "taken and reported as ready, instead of EPERM",
            Self::HangupAsReadable => "hang-up is readable, an error readable and writable",
            Self::HangupUnreported => "a hang-up is not reported without an interest in reading",
            Self::Replaces => "the registration is replaced, instead of EEXIST",
            Self::WatchesNumbers => "the next file of that number is reported under the old token",
            Self::HoldsFiles => "the file stays open and watched until it is deleted or replaced",
            Self::ForgetsClosed => "a closed number is forgotten although a duplicate is open",
            Self::ErrorLater => "the next wait reports an error, instead of EBADF from add",
            Self::ReportsWhatIsOver => {
                "what became ready and was read before the wait is reported once"
            }
            Self::ModifiesSuccessor => "the new file of the number is watched, instead of ENOENT",
            Self::EndsEarly => "the wait ends at once, without an event and each time anew",
            Self::NothingStale => "no stale event comes and none is counted",
            Self::TakesWakes => {
                "a poller on which nobody waits takes the wake; others sleep until it waits again"
            }
        }
    }
}

/// Builds a [`Case`] from a function, which gives it its name.
#[macro_export]
macro_rules! case {
    ($run:ident) => {
        $crate::case!($run, [])
    };
    ($run:ident, [$($need:ident),*]) => {
        $crate::Case {
            name: stringify!($run),
            needs: &[$($crate::Need::$need),*],
            run: $run,
        }
    };
}
