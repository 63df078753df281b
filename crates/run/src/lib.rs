//! Runs an unmodified program with the library of `crates/preload` before its C library, or follows one
//! that already runs, and says what its event loop does.
//!
//! | file | subject |
//! |---|---|
//! | `reach.rs` | which programs are out of reach, found before anything is started |
//! | `session.rs` | a program that runs, its descendants, and the memory that they write to; where the library is |
//! | `attach/` | a process that already ran, followed by tracepoints |
//! | `summary.rs` | the figures: each process, all together, over the time; which are not known, by their source |
//! | `symbols.rs` | names of call sites, from ELF files |
//! | `advice.rs` | patterns that are known to cost, each with the figure that it rests on |
//! | `show.rs`, `page.rs` | the figures on a terminal; as a page and as JSON |
//!
//! The command line and what is printed belong to `pollux`; nothing here writes to a terminal.
#![forbid(unsafe_code)]

mod advice;
pub mod attach;
mod page;
pub mod reach;
mod session;
mod show;
mod summary;
mod symbols;

pub use advice::Advice;
pub use session::{Ended, Session, Start, library};
pub use summary::{Course, Process, Source, Summary};

use symbols::Symbols;

/// The figures of a run, with the advice that they give and the longest turns.
pub struct Findings {
    /// The figures.
    pub summary: Summary,
    /// What to change, the costliest first; empty where no pattern is known.
    pub advice: Vec<Advice>,
    /// The longest turns.
    turns: Vec<show::LongTurn>,
}

impl Findings {
    /// Reads names of call sites from the files of the programs, which takes a moment for large ones.
    #[must_use]
    pub fn of(summary: Summary) -> Self {
        let mut symbols = Symbols::default();
        let advice = advice::of(&summary, &mut symbols);
        let turns = show::long_turns(&summary, &mut symbols);
        Self { summary, advice, turns }
    }

    /// For a terminal of so many columns (at least 40), with colours or without.
    #[must_use]
    pub fn table(&self, width_chars: usize, colour: bool) -> String {
        show::table(self, width_chars, colour)
    }

    /// As one HTML file; `command` is what was run.
    #[must_use]
    pub fn page(&self, course: &Course, command: &str) -> String {
        page::page(self, course, command)
    }

    /// For programs.
    #[must_use]
    pub fn json(&self, course: &Course) -> String {
        page::json(self, course)
    }
}
