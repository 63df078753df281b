//! The settings of a command, from one table: flags, keys of a TOML file, defaults, help, completions
//! and reference page.
//!
//! A command owns a type, and [`table!`] makes a [`Table`] of it: a line for each key says what it
//! does, what it accepts and its default. The same table reads what was said and describes itself,
//! so nothing is written twice and nothing is parsed twice.
//!
//! ```
//! use std::time::Duration;
//!
//! use pollux_settings::{Given, Keys, Table, duration, line, name, reference, table, integer};
//!
//! table! { keys, key;
//!     #[derive(Debug, PartialEq)]
//!     struct Proxy {
//!         #[heading("Loops")]
//!         /// Threads, each with a loop of its own
//!         threads: usize = key.default("1").one(&integer(1..=1024)),
//!         /// Log every request
//!         is_logged as "log": bool = key.switch(),
//!         backends: Vec<Backend> = keys.tables("backend", "Servers alike", 1..=64, Backend::read),
//!     }
//!     => sound
//! }
//!
//! table! { keys, key;
//!     #[derive(Debug, PartialEq)]
//!     struct Backend {
//!         /// Name for metrics and commands
//!         name: Option<String> = key.required(&name()),
//!         /// Time for a connect
//!         connect_timeout: Duration = key.default("5s").one(&duration(LIMITS)),
//!     }
//! }
//!
//! const LIMITS: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::MAX;
//!
//! impl Proxy {
//!     /// What must hold between keys.
//!     fn sound(self, keys: &mut Keys<'_>) -> Self {
//!         if self.is_logged && self.threads > 4 {
//!             keys.note("log", "expected fewer threads beside it");
//!         }
//!         self
//!     }
//! }
//!
//! let file = "threads = 2\n[[backend]]\nname = \"app\"";
//! let proxy: Proxy = Given::from_toml(file, "proxy.toml").read().expect("nothing is wrong");
//! assert_eq!(proxy.backends[0].connect_timeout, Duration::from_secs(5));
//!
//! // A flag wins over the file; a value means the same in both.
//! let mut flags = Given::default();
//! flags.flag("threads", vec!["4".into()]);
//! let proxy: Proxy = flags.over(Given::from_toml(file, "proxy.toml")).read().expect("right");
//! assert_eq!(proxy.threads, 4);
//!
//! // Every mistake is reported at once, with its line.
//! let file = "thraeds = 2\n[[backend]]\nconnect_timeout = \"5\"\n";
//! let mistakes = Given::from_toml(file, "proxy.toml").read::<Proxy>().expect_err("three mistakes");
//! let message = mistakes.to_string();
//! let first = "proxy.toml:1:1: unknown key \"thraeds\" at the top of the file; did you mean \"threads\"?";
//! assert!(message.starts_with(first) && message.lines().count() == 3, "{message}");
//!
//! assert!(reference::<Proxy>().contains("| `threads` | `--threads` | a whole number from 1 to"));
//! ```
//!
//! The command line takes it as [`Flags`], which are arguments for clap with `--config FILE`:
//! `#[command(flatten)] flags: Flags<Proxy>`, then `flags.read()`.
//!
//! | part | one job |
//! |---|---|
//! | `keys`, `key` | the keys of a section, and what must hold between them |
//! | `kind` | which values there are, and how a text becomes one |
//! | `quantity` | the one grammar of numbers, sizes, durations and shares |
//! | `document`, `include`, `variables` | a text of TOML, taken apart; files that it names; `${NAME}` |
//! | `given` | what was said, by flags and by a TOML text; arguments for clap |
//! | `describe` | a struct with its keys, line by line; the table as data, and as a reference page |
//! | `mistake` | what is wrong, and where |
//! | [`command`] | what commands share beside their settings: output, sections of help, manual pages, completions |
#![forbid(unsafe_code)]

pub mod command;
mod describe;
mod document;
mod given;
mod include;
mod key;
mod keys;
mod kind;
mod mistake;
pub mod quantity;
#[cfg(test)]
mod tests;
mod variables;

pub use describe::{Description, GivenBy, Row, Section, Takes, describe, kept, misread, reference};
pub use given::{Flags, FlagsOnly, Given};
pub use key::Key;
pub use keys::{Chosen, Keys, Table};
pub use kind::{
    Kind, Word, boolean, bytes, duration, duration_text, integer, line, many, name, one_of, parsed,
    path, share, share_text, size_text,
};
pub use mistake::{Location, SettingError, SettingErrors, did_you_mean, shown};
