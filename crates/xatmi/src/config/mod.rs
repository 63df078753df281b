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
//! | `ids` | bounds of server ids |
//! | `settings` | the values |
//! | `words` | options to words, variables |

mod document;
mod ids;
mod mistake;
mod read;
mod settings;
mod words;

use std::io::Read;
use std::path::Path;

pub use mistake::{ConfigError, Remark};
pub use settings::{Entry, ID_VARIABLE, Output, Policy, PoolConfig, Settings};

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
        let mut bytes = Vec::new();
        std::fs::File::open(file)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| failed(format!("{error}; give the path of an ndrxconfig.xml")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let wanted = "give the path of an ndrxconfig.xml";
            return Err(failed(format!("it is longer than {FILE_BYTES_MAX} bytes; {wanted}")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            let byte = error.as_bytes()[good.len()];
            let what = format!("the byte 0x{byte:02x} is no UTF-8; save the file in UTF-8");
            ConfigError::one(&name, line, what)
        })?;
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
