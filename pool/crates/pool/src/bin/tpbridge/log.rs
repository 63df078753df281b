//! The log of the bridge: what it says, once.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use pollux_xatmi::pool::BRIDGE_PROGRAM;

/// The log of the bridge, on standard error, which the manager directs to the worker's log.
///
/// A line that would only repeat the last one is left out, so that a broker that stays away does
/// not fill a disk. A password is never in it.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<String>);

impl Log {
    /// Writes a line, unless it is the last one again.
    pub(crate) fn say(&self, line: &str) {
        if self.is_new(line) {
            // A log that can't be written cannot be reported anywhere.
            // In one piece: all copies write to one file.
            let whole = format!("{BRIDGE_PROGRAM}: {line}\n");
            let _ = std::io::stderr().write_all(whole.as_bytes());
        }
    }

    fn is_new(&self, line: &str) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *last != line;
        if is_new {
            line.clone_into(&mut last);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_once_until_another_one_was() {
        let log = Log::default();
        let said = ["a", "a", "b", "a"].map(|line| log.is_new(line));
        assert_eq!(said, [true, false, true, true]);
    }
}
