//! Runs an unmodified program with the library of `crates/preload` before its C library, or follows one
//! that already runs, and says what its event loop does.
//!
//! | file | subject |
//! |---|---|
//! | `reach.rs`, `elf.rs` | which programs are out of reach, found before anything is started |
//! | `library.rs` | where the library is |
//! | `kin.rs` | processes and who started them |
//! | `session.rs` | a program that runs, with the memory that its processes write to |
//! | `attach/` | a process that already ran, followed by tracepoints |
//! | `source.rs` | which figures are not known, by where they come from |
//! | `summary.rs` | the figures: each process, and all together |
//! | `symbols.rs` | names of call sites |
//! | `advice.rs` | patterns that are known to cost, each with the figure that it rests on |
//! | `course.rs` | the figures over the time |
//! | `show.rs`, `page.rs`, `json.rs` | the figures on a terminal, as a page, for programs |
//!
//! The command line and what is printed belong to `pollux`; nothing here writes to a terminal.
#![forbid(unsafe_code)]

mod advice;
pub mod attach;
mod course;
mod elf;
mod json;
mod kin;
pub mod library;
mod page;
pub mod reach;
mod session;
mod show;
mod source;
mod summary;
mod symbols;

pub use advice::Advice;
pub use course::Course;
pub use session::{Ended, Session, Start};
pub use source::Source;
pub use summary::{Process, Summary};

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
        json::json(self, course)
    }
}
