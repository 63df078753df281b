//! Load generators that an experiment may need: pollux's own, and Debian's tools to repeat a figure.
//!
//! Which one runs is the axis `generator` of `http`, which says how each is started. One that this
//! machine lacks takes its points out of the plan, with the package to install.

use crate::axis::Axes;
use strum::{Display, EnumString, VariantNames};

/// What makes the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Generator {
    /// Pollux itself, in a process of its own.
    Pollux,
    /// wrk; with `Connection: close` where connections are not kept.
    Wrk,
    /// ApacheBench; HTTP/1.0.
    Ab,
}

impl Generator {
    /// That of a point, whose axes were checked when they were read; pollux where nothing else is
    /// offered.
    pub(crate) fn of(axes: &Axes) -> Self {
        let read = |word: &str| word.parse().expect("the axis has the words of this type");
        axes.word("generator").map_or(Self::Pollux, read)
    }

    /// Name in job files and of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::VARIANTS[self as usize]
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
