//! The names under which mechanisms are chosen, and the one table of all that there is to say of them.
//!
//! The same names stand on every command line, in job files, results and charts. A mechanism is
//! a backend together with the trigger that it is named for. A new one is its file, which `lib.rs` declares, and a row of the
//! table here. All else comes from the row: choices of command lines, their help, what a server's sandbox lets it wait by, and
//! how it differs from epoll(7) as all do that keep the same of a descriptor ([`Keeps`]). What is its own alone is a row
//! in the declared differences (`crates/conformance/src/differences.rs`, `crates/epoll-c/src/deviations.rs`). System calls
//! that no wrapper in `crates/sys` makes yet come with a wrapper, which lists them.
//! Two pages name each by hand: `docs/mechanisms.md` and `docs/kernels.md`.
//! `cargo xtask bless` writes the pages, sentences and the line of a C header (`crates/epoll-c/include/pollux/epoll.h`) that list them.

use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;

use pollux_sys::SystemCall;

use crate::Trigger;

/// What the kernel has to give a mechanism beside system calls that nobody forbids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Facility {
    /// Nothing.
    Calls,
    /// A context of Linux AIO, which all processes share the slots of (`fs.aio-max-nr`).
    AioContext,
    /// A ring, which sysctls, filters and limits may refuse.
    Ring,
}

/// What a backend keeps of a descriptor between two waits. Its differences from epoll(7) follow from that: what it does with a
/// number that is closed and used again, and what it reports that is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Keeps {
    /// Its number alone: the kernel looks at whatever has that at each wait.
    Number,
    /// A request, which holds the file until it completes or is cancelled.
    Request,
    /// A registration, which ends with the last descriptor of the file.
    Registration,
}

/// The one table of mechanisms: backends, each with the type that it is and the module that has it, what it needs, what it
/// keeps of a descriptor, the system calls by which it waits, how it is opened, and the mechanisms that it serves; the first of them is the backend's own,
/// gives it its name, and has the trigger that the kernel interface has by itself. A mechanism has its name on command
/// lines and in results, its trigger, and what it is in a line.
macro_rules! mechanisms {
    ($define:ident) => {
        $define! {
            /// `select(2)` with bitmaps of our own.
            Select is Select in select, needs Calls, keeps Number,
            waits by pollux_sys::poll_select::SELECT_CALLS,
            opens |_how| Select::open() => {
                /// `select`: level.
                Select = "select", Level, "select(2): the kernel looks at all watched descriptors at each wait";
            }
            /// `poll(2)`.
            Poll is Poll in poll, needs Calls, keeps Number,
            waits by pollux_sys::poll_select::POLL_CALLS,
            opens |_how| Poll::open() => {
                /// `poll`: level.
                Poll = "poll", Level, "poll(2): the kernel looks at all watched descriptors at each wait";
            }
            /// Linux AIO poll (`io_submit(2)`, IOCB_CMD_POLL).
            Aio is Aio in aio, needs AioContext, keeps Request,
            waits by pollux_sys::aio::CALLS,
            opens |how| Aio::open(how.release, how.contexts) => {
                /// `aio`: Linux AIO poll, level by arming again. Dropping a poller, and each doubling of the most
                /// descriptors that one watched, takes 30 to 40 ms: `io_destroy(2)` waits for a grace period (RCU).
                Aio = "aio", Level,
                    "Linux asynchronous I/O that is asked for readiness (io_submit(2) with IOCB_CMD_POLL)";
            }
            /// `epoll(7)`.
            Epoll is Epoll in epoll, needs Calls, keeps Registration,
            waits by pollux_sys::epoll::CALLS,
            opens |_how| Epoll::open() => {
                /// `epoll`: level.
                Epoll = "epoll", Level, "epoll(7), level-triggered";
                /// `epoll-et`: edge.
                EpollEt = "epoll-et", Edge, "epoll(7), edge-triggered: one event for each change";
                /// `epoll-oneshot`: oneshot, modified after each event.
                EpollOneshot = "epoll-oneshot", Oneshot,
                    "epoll(7) with EPOLLONESHOT: each descriptor is armed anew after its event";
            }
            /// io_uring poll requests.
            UringPoll is UringPoll in uring_poll, needs Ring, keeps Request,
            waits by pollux_sys::ring::CALLS,
            opens |how| UringPoll::open(how.threads, how.expected, how.release) => {
                /// `uring-poll`: io_uring multishot poll, edge.
                UringPoll = "uring-poll", Edge,
                    "io_uring(7) that is asked for readiness, in the place of epoll";
            }
        }
    };
}

pub(crate) use mechanisms;

/// Those of a constant array for which a condition of constants holds, as a slice: `chosen!(Mechanism in Mechanism::PLAIN,
/// |it| matches!(it.backend().keeps(), Keeps::Number))`.
#[macro_export]
macro_rules! chosen {
    ($Type:ident in $all:expr, |$each:ident| $holds:expr) => {{
        const CHOSEN: &([$Type; $all.len()], usize) = &{
            let mut chosen = [$all[0]; $all.len()];
            let mut count = 0;
            let mut at = 0;
            while at < $all.len() {
                let $each = $all[at];
                if $holds {
                    chosen[count] = $each;
                    count += 1;
                }
                at += 1;
            }
            (chosen, count)
        };
        CHOSEN.0.split_at(CHOSEN.1).0
    }};
}

/// What there is to say of mechanisms; how they are opened is `opening.rs`'s.
macro_rules! names {
    ($(
        $(#[$of_backend:meta])*
        $Backend:ident is $Type:ident in $module:ident, needs $Facility:ident, keeps $Keeps:ident,
        waits by $calls:expr,
        opens |$_how:ident| $_open:expr => {$(
            $(#[$of_mechanism:meta])*
            $Name:ident = $name:literal, $Trigger:ident, $about:literal;
        )+}
    )+) => {
        /// A kernel interface that a poller is built on.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Backend {
            $($(#[$of_backend])* $Backend,)+
            /// A poller of another crate, by its name.
            Other(&'static str),
        }

        impl Backend {
            /// Every backend of this crate, in the order in which tables show them.
            pub const ALL: &'static [Self] = &[$(Self::$Backend),+];

            /// The name in messages and results.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Backend => [$($name),+][0],)+
                    Self::Other(name) => name,
                }
            }

            /// What it keeps of a descriptor; of another crate's it is not known, and taken for a registration.
            #[must_use]
            pub const fn keeps(self) -> Keeps {
                match self {
                    $(Self::$Backend => Keeps::$Keeps,)+
                    Self::Other(_) => Keeps::Registration,
                }
            }

            /// The trigger that its kernel interface has by itself; of another crate's it is not known, and taken for level.
            #[must_use]
            pub const fn plain_trigger(self) -> Trigger {
                match self {
                    $(Self::$Backend => [$(Trigger::$Trigger),+][0],)+
                    Self::Other(_) => Trigger::Level,
                }
            }

            /// What the kernel has to give it; of another crate's it is not known, and taken for system calls alone.
            #[must_use]
            pub const fn facility(self) -> Facility {
                match self {
                    $(Self::$Backend => Facility::$Facility,)+
                    Self::Other(_) => Facility::Calls,
                }
            }
        }

        /// A backend with the trigger that it is compared under.
        ///
        /// ```
        /// use pollux_poller::{Mechanism, Trigger};
        ///
        /// let mechanism: Mechanism = "epoll-et".parse()?;
        /// assert_eq!(mechanism.trigger(), Trigger::Edge);
        /// let poller = mechanism.open()?;
        /// assert!(poller.caps().serves(mechanism.trigger()));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Mechanism {
            $($($(#[$of_mechanism])* $Name,)+)+
        }

        impl Mechanism {
            /// Every mechanism, in the order in which tables show them.
            pub const ALL: [Self; [$($($name),+),+].len()] = [$($(Self::$Name),+),+];

            /// One for each kernel interface, with the trigger that it has by itself.
            pub const PLAIN: [Self; Backend::ALL.len()] = [$([$(Self::$Name),+][0]),+];

            /// The name on command lines and in results.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$Name => $name,)+)+
                }
            }

            /// The name as C has it.
            #[must_use]
            pub const fn c_name(self) -> &'static CStr {
                match self {
                    $($(Self::$Name => const { c_text(concat!($name, "\0")) },)+)+
                }
            }

            /// What it is, in a line that follows its name.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $($(Self::$Name => $about,)+)+
                }
            }

            /// The kernel interface.
            #[must_use]
            pub const fn backend(self) -> Backend {
                match self {
                    $($(Self::$Name)|+ => Backend::$Backend,)+
                }
            }

            /// The trigger to register with.
            #[must_use]
            pub const fn trigger(self) -> Trigger {
                match self {
                    $($(Self::$Name => Trigger::$Trigger,)+)+
                }
            }

            /// The system calls by which it waits, and changes what it waits for.
            #[must_use]
            pub const fn system_calls(self) -> &'static [SystemCall] {
                match self {
                    $($(Self::$Name)|+ => $calls,)+
                }
            }

            /// What the kernel has to give it.
            #[must_use]
            pub const fn facility(self) -> Facility {
                self.backend().facility()
            }
        }
    };
}

mechanisms!(names);

/// A text that ends with a zero, as C has it.
const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one zero, at the end"),
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Self, UnknownMechanism> {
        let found = Self::ALL.into_iter().find(|mechanism| mechanism.name() == name);
        found.ok_or_else(|| UnknownMechanism::among(name, Self::ALL.map(Self::name)))
    }
}

/// No mechanism has this name.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownMechanism {
    name: String,
    known: Vec<&'static str>,
}

impl UnknownMechanism {
    /// That `name` is none of those that are `known`.
    #[must_use]
    pub fn among(name: &str, known: impl IntoIterator<Item = &'static str>) -> Self {
        Self { name: name.to_owned(), known: known.into_iter().collect() }
    }
}

impl fmt::Display for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.join(", ");
        write!(f, "unknown mechanism \"{}\"; expected one of {known}", self.name)?;
        match self.name.as_str() {
            "uring" => f.write_str(
                "; uring is not a poller: it is Driver::Completion of pollux-engine, which runs sessions",
            ),
            _ => Ok(()),
        }
    }
}

/// As it is displayed: a `main` that returns it prints this.
impl fmt::Debug for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for UnknownMechanism {}

impl From<UnknownMechanism> for std::io::Error {
    fn from(error: UnknownMechanism) -> Self {
        Self::new(std::io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_mechanism() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
    }

    #[test]
    fn uring_is_said_to_be_a_driver_also_where_a_main_returns_the_error() {
        let error = "uring".parse::<Mechanism>().expect_err("no poller of that name");
        let printed = format!("{error:?}");
        assert!(printed.starts_with("unknown mechanism \"uring\"; expected one of select, "));
        assert!(
            printed.ends_with("it is Driver::Completion of pollux-engine, which runs sessions")
        );
        let other = "urin".parse::<Mechanism>().expect_err("no poller of that name");
        assert!(!other.to_string().contains("Driver"), "{other}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "kqueue".parse::<Mechanism>().expect_err("no such mechanism here");
        assert!(error.to_string().contains("epoll-oneshot"), "{error}");
    }
}
