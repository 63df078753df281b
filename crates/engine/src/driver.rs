//! The names under which loops are chosen, and the choice where none is named.

use std::fmt;
use std::str::FromStr;

use pollux_poller::{Facility, Mechanism, UnknownMechanism};

/// A loop and the kernel interface under it.
///
/// ```
/// use pollux_engine::Driver;
///
/// let driver: Driver = "uring".parse()?;
/// assert_eq!(driver, Driver::Completion);
/// assert_eq!(Driver::default().name(), "epoll-et");
/// # Ok::<(), pollux_poller::UnknownMechanism>(())
/// ```
///
/// Servers take its name as `--poller`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Driver {
    /// The readiness loop over a poller.
    Readiness(Mechanism),
    /// `uring`: the completion loop over io_uring.
    Completion,
}

/// Edge-triggered epoll: every kernel and every container has it.
impl Default for Driver {
    fn default() -> Self {
        Self::Readiness(Mechanism::EpollEt)
    }
}

impl Driver {
    /// Every driver, in the order in which tables show them: the pollers, then the completion loop.
    pub const ALL: [Self; Mechanism::ALL.len() + 1] = {
        let mut all = [Self::Completion; Mechanism::ALL.len() + 1];
        let mut at = 0;
        while at < Mechanism::ALL.len() {
            all[at] = Self::Readiness(Mechanism::ALL[at]);
            at += 1;
        }
        all
    };

    /// What to take where none is named: the one that costs least for each request first, the next where
    /// it can't be opened.
    pub const PREFERRED: [Self; 4] = [
        Self::Completion,
        Self::Readiness(Mechanism::EpollEt),
        Self::Readiness(Mechanism::Epoll),
        Self::Readiness(Mechanism::Poll),
    ];

    /// Starts something on `chosen`, or without it on the first of [`Driver::PREFERRED`] that is not refused.
    ///
    /// io_uring is often forbidden (the `io_uring_disabled` sysctl, seccomp filters of containers, a small
    /// RLIMIT_MEMLOCK); the refusals come back with what was started and should be shown. `start` gives
    /// `Err` where the driver is not available; another failure, which the next driver would meet as well,
    /// is a part of what it gives as `Ok`.
    ///
    /// ```
    /// use pollux_engine::Driver;
    ///
    /// let started = Driver::start_first(None, |driver| match driver {
    ///     Driver::Completion => Err("forbidden"),
    ///     Driver::Readiness(_) => Ok("a loop"),
    /// })?;
    /// for (driver, cause) in &started.refused {
    ///     println!("{} instead of {driver}: {cause}", started.driver);
    /// }
    /// assert_eq!((started.driver, started.value), (Driver::default(), "a loop"));
    /// # Ok::<(), &str>(())
    /// ```
    ///
    /// # Errors
    /// The last refusal, when no driver is available.
    pub fn start_first<T, E>(
        chosen: Option<Self>,
        mut start: impl FnMut(Self) -> Result<T, E>,
    ) -> Result<Started<T, E>, E> {
        let drivers = chosen.as_ref().map_or(Self::PREFERRED.as_slice(), std::slice::from_ref);
        let mut refused = Vec::new();
        for &driver in drivers {
            match start(driver) {
                Ok(value) => {
                    return Ok(Started { driver, value, refused, is_named: chosen.is_some() });
                }
                Err(cause) => refused.push((driver, cause)),
            }
        }
        Err(refused.pop().expect("at least one was tried").1)
    }

    /// The name on command lines, in job files and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Readiness(mechanism) => mechanism.name(),
            Self::Completion => "uring",
        }
    }

    /// What it is, in a line that follows its name.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Readiness(mechanism) => mechanism.about(),
            Self::Completion => {
                "io_uring(7) that receives and sends by itself: completions in the place of readiness"
            }
        }
    }

    /// What the kernel has to give it.
    #[must_use]
    pub const fn facility(self) -> Facility {
        match self {
            Self::Readiness(mechanism) => mechanism.facility(),
            Self::Completion => Facility::Ring,
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Driver {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Self, UnknownMechanism> {
        let found = Self::ALL.into_iter().find(|driver| driver.name() == name);
        found.ok_or_else(|| UnknownMechanism::among(name, Self::ALL.map(Self::name)))
    }
}

/// The outcome of [`Driver::start_first`].
#[derive(Debug)]
pub struct Started<T, E> {
    /// The driver that it runs on.
    pub driver: Driver,
    /// What was started.
    pub value: T,
    /// The drivers that were preferred, each with the reason why it was refused: show them.
    pub refused: Vec<(Driver, E)>,
    /// Whether it was asked for, so that no other was tried.
    pub is_named: bool,
}

impl<T, E> Started<T, E> {
    /// The name of the driver, and why it was taken where none was named, for the line that a program starts with.
    ///
    /// ```
    /// # use pollux_engine::Driver;
    /// let works = |driver| if driver == Driver::Completion { Err("forbidden") } else { Ok(()) };
    /// let started = Driver::start_first(None, works)?;
    /// assert_eq!(started.choice(), "epoll-et, as uring is refused");
    /// let started = Driver::start_first(None, |_| Ok::<_, &str>(()))?;
    /// assert_eq!(started.choice(), "uring, as it costs least on most loads");
    /// let started = Driver::start_first(Some(Driver::default()), works)?;
    /// assert_eq!(started.choice(), "epoll-et");
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn choice(&self) -> String {
        let refused: Vec<&str> = self.refused.iter().map(|(driver, _)| driver.name()).collect();
        let name = self.driver.name();
        match &refused[..] {
            _ if self.is_named => name.to_owned(),
            [] => format!("{name}, as it costs least on most loads"),
            [one] => format!("{name}, as {one} is refused"),
            several => format!("{name}, as {} are refused", several.join(" and ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_driver() {
        for driver in Driver::ALL {
            assert_eq!(driver.name().parse(), Ok(driver));
        }
        let unknown = "kqueue".parse::<Driver>().expect_err("unknown");
        assert!(unknown.to_string().ends_with(", uring"), "{unknown}");
        // As a `main` that returns it prints it.
        assert_eq!(format!("{unknown:?}"), unknown.to_string());
    }

    fn start(works: &[&'static str]) -> impl Fn(Driver) -> Result<&'static str, String> {
        move |driver| {
            let found = works.iter().find(|name| **name == driver.name());
            found.copied().ok_or_else(|| format!("no {driver}"))
        }
    }

    #[test]
    fn the_first_driver_that_works_comes_with_the_refusals_before_it() {
        let started = Driver::start_first(None, start(&["poll", "epoll"])).expect("two work");
        assert_eq!((started.driver.name(), started.value), ("epoll", "epoll"));
        let refused: Vec<_> = started.refused.iter().map(|(_, cause)| cause.as_str()).collect();
        assert_eq!(refused, ["no uring", "no epoll-et"]);
        assert_eq!(started.choice(), "epoll, as uring and epoll-et are refused");
        let none = Driver::start_first(None, start(&["select"]));
        assert_eq!(none.expect_err("none of the preferred"), "no poll");
    }

    #[test]
    fn a_chosen_driver_is_the_only_one_that_is_tried() {
        let chosen = Some(Driver::Readiness(Mechanism::Select));
        let started = Driver::start_first(chosen, start(&["select", "uring"])).expect("it works");
        assert_eq!((Some(started.driver), started.refused.len()), (chosen, 0));
        let refused = Driver::start_first(chosen, start(&["uring"]));
        assert_eq!(refused.expect_err("it does not work"), "no select");
    }
}
