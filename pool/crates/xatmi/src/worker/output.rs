//! Standard output and standard error of a worker, as far as they are the manager's: files that it gave are replaced when
//! logs are opened again, and what the program has put in their place (`freopen(3)`, `dup2(2)`) stays.

use std::env;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::retry_on_intr;
use rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout};

/// The variable with the files that the manager gave: DEVICE:INODE of standard output, a comma, and of standard error.
pub(crate) const OUTPUT_VARIABLE: &str = "POLLUX_POOL_OUTPUT";

/// A file, by the numbers of its device and of its inode.
type FileNumbers = (u64, u64);

/// The files that the manager gave to a worker; none where that is not known: then whatever is there is taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct GivenOutput {
    out: Option<FileNumbers>,
    error: Option<FileNumbers>,
}

impl GivenOutput {
    /// Of this process, as its manager has it in the environment.
    pub(super) fn of_process() -> Self {
        env::var(OUTPUT_VARIABLE).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let numbers = |text: &str| {
            let (device, inode) = text.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        };
        let (out, error) = text.split_once(',').unwrap_or_default();
        Self { out: numbers(out), error: numbers(error) }
    }

    /// The value of the variable for a worker that is given these.
    ///
    /// # Errors
    /// Of `fstat(2)`.
    pub(crate) fn variable(out: BorrowedFd<'_>, error: BorrowedFd<'_>) -> io::Result<String> {
        let [out, error] = [numbers(out)?, numbers(error)?];
        Ok(format!("{}:{},{}:{}", out.0, out.1, error.0, error.1))
    }

    /// Puts what the manager opened in the place of what it gave before.
    pub(super) fn replace(&mut self, beside: &[OwnedFd]) {
        let [out, error] = beside else { return };
        // EINTR alone is possible, and the next order comes; the old file stays then.
        if is_given(self.out, stdout()) && retry_on_intr(|| dup2_stdout(out)).is_ok() {
            self.out = numbers(out.as_fd()).ok();
        }
        if is_given(self.error, stderr()) && retry_on_intr(|| dup2_stderr(error)).is_ok() {
            self.error = numbers(error.as_fd()).ok();
        }
    }
}

fn is_given(given: Option<FileNumbers>, now: BorrowedFd<'_>) -> bool {
    given.is_none_or(|given| numbers(now).is_ok_and(|now| now == given))
}

fn numbers(file: BorrowedFd<'_>) -> io::Result<FileNumbers> {
    let found = fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognised_by_what_the_variable_says() {
        let [a, b] = [0; 2].map(|_| tempfile::tempfile().expect("a file"));
        let said = GivenOutput::variable(a.as_fd(), b.as_fd()).expect("both are open");
        let given = GivenOutput::parse(&said);
        assert!(is_given(given.out, a.as_fd()) && is_given(given.error, b.as_fd()));
        assert!(!is_given(given.out, b.as_fd()));
        for text in ["", "1:2", "x,y", "1,2"] {
            assert_eq!(GivenOutput::parse(text).error, None, "{text}");
        }
        assert!(is_given(None, a.as_fd()));
    }
}
