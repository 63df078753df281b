//! Load generators of the `http` experiment: pollux's own, and Debian's tools to repeat a figure.
//!
//! Which one runs is the axis `generator`; how each is started is said in `http`. One that this
//! machine lacks takes its points out of the plan, with the package to install.

use std::fmt;

/// What makes the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generator {
    /// Pollux itself, in a process of its own.
    Pollux,
    /// wrk; with `Connection: close` where connections are not kept.
    Wrk,
    /// ApacheBench; HTTP/1.0.
    Ab,
}

impl Generator {
    /// Every generator, in the order of lists.
    pub const ALL: [Self; 3] = [Self::Pollux, Self::Wrk, Self::Ab];
    /// Their names, as the axis accepts them.
    pub(crate) const NAMES: &'static [&'static str] =
        &[Self::Pollux.name(), Self::Wrk.name(), Self::Ab.name()];

    /// Name in job files and of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pollux => "pollux",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
        }
    }

    /// The generator called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|generator| generator.name() == name)
    }

    /// The Debian package that brings it; none for what is part of this program.
    #[must_use]
    pub const fn package(self) -> Option<&'static str> {
        match self {
            Self::Pollux => None,
            Self::Wrk => Some("wrk"),
            Self::Ab => Some("apache2-utils"),
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_generator() {
        for (generator, name) in Generator::ALL.into_iter().zip(Generator::NAMES) {
            assert_eq!(Generator::by_name(name), Some(generator));
        }
        assert_eq!(Generator::by_name("httperf"), None);
    }
}
