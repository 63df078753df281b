//! The configuration of a pool: `ndrxconfig.xml` as it is.
//!
//! The manager and the commands read it. Every element of `docs/pool-manager.md` has its unit
//! and its bounds; `<server>` overrides `<defaults>`; `${NAME}` in values is taken from the
//! environment. What is not known is a warning with file and line; what is wrong is an error
//! that says what would be right, all of them at once. Nothing here starts or watches anything.
//!
//! | part | one job |
//! |---|---|
//! | `document` | XML as a tree with lines |
//! | `read` | elements to values: defaults, overrides, bounds |
//! | `settings` | the values |
//! | `words` | options to words, variables |

mod document;
mod mistake;
mod read;
mod settings;
mod words;

use std::io::Read;
use std::path::Path;

pub use mistake::{ConfigError, Remark};
pub use settings::{Entry, Output, Policy, PoolConfig, Settings};

/// Longest file that is read; thousands of servers fit.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl PoolConfig {
    /// Reads `file`, with the environment of this process for `${NAME}`.
    ///
    /// # Errors
    /// Everything that is wrong with it, with lines.
    pub fn from_file(file: &Path) -> Result<Self, ConfigError> {
        let name = file.display().to_string();
        let failed = |why: String| ConfigError::one(&name, 0, why);
        // What it holds counts, not what it says: a device says that it has none.
        let mut text = String::new();
        std::fs::File::open(file)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(format!("it is longer than {FILE_BYTES_MAX} bytes")));
        }
        Self::from_text(&name, &text, &|variable| std::env::var(variable).ok())
    }

    /// Reads `text`, called `file` in messages; `lookup` knows the environment.
    ///
    /// # Errors
    /// Everything that is wrong with it, with lines.
    pub fn from_text(
        file: &str,
        text: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        read::read(file, text, lookup)
    }
}

#[cfg(test)]
mod tests;
