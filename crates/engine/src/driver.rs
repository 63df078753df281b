//! Which loop on which mechanism runs the sessions: the value of `--poller` for servers.

use std::fmt;
use std::str::FromStr;

use pollux_poller::Mechanism;

/// A loop and the kernel interface under it.
///
/// ```
/// use pollux_engine::Driver;
///
/// let driver: Driver = "uring".parse()?;
/// assert_eq!(driver, Driver::Completion);
/// assert_eq!(Driver::default().name(), "epoll-et");
/// # Ok::<(), pollux_engine::UnknownDriver>(())
/// ```
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
    /// Every driver, in the order in which tables show them.
    pub const ALL: [Self; 8] = [
        Self::Readiness(Mechanism::Select),
        Self::Readiness(Mechanism::Poll),
        Self::Readiness(Mechanism::Aio),
        Self::Readiness(Mechanism::Epoll),
        Self::Readiness(Mechanism::EpollEt),
        Self::Readiness(Mechanism::EpollOneshot),
        Self::Readiness(Mechanism::UringPoll),
        Self::Completion,
    ];

    /// The name on command lines, in job files and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Readiness(mechanism) => mechanism.name(),
            Self::Completion => "uring",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Driver {
    type Err = UnknownDriver;

    fn from_str(name: &str) -> Result<Self, UnknownDriver> {
        let found = Self::ALL.into_iter().find(|driver| driver.name() == name);
        found.ok_or_else(|| UnknownDriver { name: name.to_owned() })
    }
}

/// No driver has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDriver {
    name: String,
}

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Driver::ALL.iter().map(|known| known.name()).collect();
        write!(f, "no poller is called \"{}\"; there are {}", self.name, known.join(", "))
    }
}

impl std::error::Error for UnknownDriver {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_driver() {
        for driver in Driver::ALL {
            assert_eq!(driver.name().parse(), Ok(driver));
        }
        assert!("kqueue".parse::<Driver>().expect_err("unknown").to_string().contains("uring"));
    }
}
