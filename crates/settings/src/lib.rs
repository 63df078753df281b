//! What a command is told, from one table: flags, keys of a TOML file, defaults, help, completions
//! and reference page.
//!
//! A command owns a type and implements [`Table`] for it: a function that asks [`Keys`] for one key
//! after the other, each with what it does and what it accepts. The same function reads what was
//! said and describes itself, so nothing is written twice and nothing is parsed twice.
//!
//! ```
//! use std::time::Duration;
//!
//! use pollux_settings::{Given, Keys, Table, duration, line, name, path, reference, whole};
//!
//! #[derive(Debug, PartialEq)]
//! struct Proxy {
//!     threads: usize,
//!     log: Option<std::path::PathBuf>,
//!     backends: Vec<Backend>,
//! }
//!
//! #[derive(Debug, PartialEq)]
//! struct Backend {
//!     name: String,
//!     connect_timeout: Duration,
//!     servers: Vec<Server>,
//! }
//!
//! #[derive(Debug, PartialEq)]
//! struct Server {
//!     address: String,
//!     weight: u32,
//! }
//!
//! impl Table for Proxy {
//!     fn read(keys: &mut Keys<'_>) -> Option<Self> {
//!         keys.heading("Loops");
//!         let threads = keys.key("threads", "Threads, each with a loop of its own");
//!         let threads = threads.default("1").one(&whole(1..=1024));
//!         keys.replaced("nbthread", "threads");
//!         keys.heading("Watching");
//!         let log = keys.key("log", "Log every request to this file").optional(&path());
//!         let about = "Servers that answer the same requests";
//!         let backends = keys.tables("backend", about, 1..=64, Backend::read);
//!         // Every key was asked for: now it may end where one is wrong.
//!         Some(Self { threads: threads?, log: log?, backends: backends? })
//!     }
//! }
//!
//! impl Backend {
//!     fn read(keys: &mut Keys<'_>) -> Option<Self> {
//!         let name = keys.key("name", "Name for metrics and commands").required(&name());
//!         let limits = Duration::from_millis(1)..=Duration::from_secs(600);
//!         let connect_timeout = keys.key("connect_timeout", "Time for a connect");
//!         let connect_timeout = connect_timeout.default("5s").one(&duration(limits));
//!         let servers = keys.tables("server", "One of them", 1..=256, Server::read);
//!         Some(Self { name: name?, connect_timeout: connect_timeout?, servers: servers? })
//!     }
//! }
//!
//! impl Server {
//!     fn read(keys: &mut Keys<'_>) -> Option<Self> {
//!         // `pollux_settings::address` makes a type of the engine of it.
//!         let address = keys.key("address", "Where it listens").required(&line());
//!         let weight = keys.key("weight", "Share of the requests in relation to the others");
//!         let weight = weight.default("1").one(&whole(1..=256));
//!         if weight == Some(256) && keys.has("address") {
//!             keys.note("weight", "expected fewer beside this address");
//!         }
//!         Some(Self { address: address?, weight: weight? })
//!     }
//! }
//!
//! let file = "threads = 2\n[[backend]]\nname = \"app\"\n[[backend.server]]\naddress = \"a:80\"";
//! let proxy: Proxy = Given::from_toml(file, "proxy.toml").read().expect("nothing is wrong");
//! assert_eq!(proxy.backends[0].servers, [Server { address: "a:80".into(), weight: 1 }]);
//!
//! // A flag wins over the file; a value means the same in both.
//! let mut flags = Given::default();
//! flags.flag("threads", vec!["4".into()]);
//! let proxy: Proxy = flags.over(Given::from_toml(file, "proxy.toml")).read().expect("right");
//! assert_eq!(proxy.threads, 4);
//!
//! // Every mistake is told at once, with its line.
//! let file = "thraeds = 2\n[[backend]]\nconnect_timeout = \"5\"\n";
//! let told = Given::from_toml(file, "proxy.toml").read::<Proxy>().expect_err("four mistakes");
//! assert_eq!(
//!     told.to_string(),
//!     "proxy.toml:1:1: unknown key \"thraeds\" at the top of the file; did you mean \"threads\"?\n\
//!      proxy.toml:2:1: [[backend]] lacks the key \"name\"; expected a name of at most 60 letters, \
//!      digits, \"-\", \"_\" or \".\" that begins with a letter or digit\n\
//!      proxy.toml:2:1: 0 [[backend.server]] sections; expected 1 to 256\n\
//!      proxy.toml:3:19: connect_timeout = \"5\": a number without its unit; expected a duration \
//!      from 1ms to 10m, such as 500ms, 10s or 1m30s"
//! );
//!
//! assert!(reference::<Proxy>().contains("| `threads` | `--threads` | a whole number from 1 to"));
//! ```
//!
//! The command line takes it as [`Flags`], which are arguments for clap with `--config FILE`:
//! `#[command(flatten)] flags: Flags<Proxy>`, then `flags.read()`.
//!
//! | part | one job |
//! |---|---|
//! | `keys`, `key` | the table: sections, their keys, what must hold between them |
//! | `kind`, `address` | which values there are, and how a text becomes one |
//! | `given`, `document`, `source` | what was said, by flags and by a TOML text |
//! | `describe` | the table as data |
//! | `flags`, `page` | what is made of it: arguments for clap, the reference page |
//! | `mistake` | what is wrong, and where |
#![forbid(unsafe_code)]

mod address;
mod describe;
mod document;
mod flags;
mod given;
mod key;
mod keys;
mod kind;
mod mistake;
mod page;
mod source;
#[cfg(test)]
mod tests;

pub use address::{address, unix_path};
pub use describe::{Description, Places, Row, Section, Takes, describe};
pub use flags::{Flags, FlagsAlone, args, given};
pub use given::Given;
pub use key::Key;
pub use keys::{Keys, Table};
pub use kind::{
    Kind, Word, boolean, bytes, duration, duration_text, line, name, one_of, parsed, path, share,
    share_text, whole,
};
pub use mistake::{Mistake, Mistakes, Place, did_you_mean, shown};
pub use page::{kept, reference};
