//! What the tests of all crates share: skips that CI can forbid, waiting for a thing, commands that are
//! started, spoken to and ended ([`Process`]), brokers ([`Broker`]), addresses at
//! which nobody listens ([`Refusing`]), fuzz corpora ([`replay`]), and the main
//! function of test programs without libtest ([`run_tests`]).
//!
//! Only tests use it, those of every crate.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion};

mod cgroup;
mod nats;
mod process;
mod refusing;

pub use cgroup::{Cgroup, held_up};
pub use libtest_mimic::Trial;
pub use nats::{Broker, BrokerMessage, RawClient, broker_missing};
pub use process::{
    Output, Process, addresses, await_end, children, get, is_running, script, succeeded,
};
pub use refusing::Refusing;
pub use rustix::process::{Pid, Signal};

/// Set by CI: what a machine lacks fails the test then.
pub const FORBID_SKIP: &str = "POLLUX_FORBID_SKIP";

/// Longest wait for anything: far longer than a thing takes on a loaded machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Says why something is not tested on this machine, on standard error itself: what a test prints that passes is not
/// shown.
///
/// # Panics
/// With `POLLUX_FORBID_SKIP` set.
pub fn skip(why: impl Display) {
    assert!(std::env::var_os(FORBID_SKIP).is_none(), "{why}");
    // The harness names the thread of a test after it.
    let thread = std::thread::current();
    let line = match thread.name().filter(|name| *name != "main") {
        Some(test) => format!("skipped: {why} ({test})\n"),
        None => format!("skipped: {why}\n"),
    };
    // A closed standard error fails nothing.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// What a test was given to work with; where the machine refuses it, the test is skipped with the reason and ends.
///
/// ```
/// let opened: Result<u8, std::io::Error> = Ok(7);
/// let Some(number) = pollux_testing::or_skip(opened) else { return };
/// assert_eq!(number, 7);
/// ```
///
/// # Panics
/// As [`skip`].
#[must_use]
pub fn or_skip<T>(given: Result<T, impl Error>) -> Option<T> {
    given.map_err(|error| skip(process::with_cause(&error))).ok()
}

/// Whether `program` can be started; where it can't, the test is skipped.
///
/// # Panics
/// As [`skip`].
#[must_use]
pub fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = command.status().is_ok();
    if !is_there {
        skip(format_args!("{program} is not installed"));
    }
    is_there
}

/// Waits until `condition` holds, for what gives no event to wait for.
///
/// # Panics
/// When it does not within [`DEADLINE`]; `what` says what was waited for.
pub fn wait_until(what: impl Display, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Waits until `see` sees something, and gives it.
///
/// # Panics
/// As [`wait_until`].
pub fn wait_for<T>(what: impl Display, mut see: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = see() {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "{what} did not happen within {DEADLINE:?}");
        pause(begun);
    }
}

/// Leaves the processor to what is waited for, between two looks at a thing that gives no event: for a sixteenth of the
/// time since `begun`, a millisecond at most. A loop that only yields takes half of a machine of two CPUs from it.
pub fn pause(begun: Instant) {
    const SHORTEST: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(1);
    std::thread::sleep((begun.elapsed() / 16).clamp(SHORTEST, LONGEST));
}

/// What `call` gives once no stop interrupted it. A process that was stopped and continues has the reads and writes of
/// sockets that have a time limit end with EINTR, and the standard library asks again only where it has to read or
/// write all (`read_exact`, `read_to_end`, `write_all`).
///
/// # Errors
/// Those of `call`, but for [`ErrorKind::Interrupted`].
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            given => return given,
        }
    }
}

/// Gives every file of the fuzz corpus `target` to `holds`, which panics when it finds a fault. At least `files_min`
/// are expected.
///
/// # Panics
/// When the corpus is missing, has fewer files, or one of them breaks the check.
pub fn replay(target: &str, files_min: usize, holds: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    assert!(files.len() >= files_min, "{} files in the corpus of {target}", files.len());
    for file in files {
        let data = fs::read(&file).expect("readable");
        let outcome = std::panic::catch_unwind(|| holds(&data));
        assert!(outcome.is_ok(), "{} broke its check; the reason stands above", file.display());
    }
}

/// A test of a program with `harness = false`, for [`run_tests`]; it fails by a panic.
pub fn test(name: impl Into<String>, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// The same, of a test that finds what a machine may lack: `Err` is the reason why it was skipped. It is counted
/// as ignored then, and fails with `POLLUX_FORBID_SKIP` set.
pub fn skippable_test(
    name: impl Into<String>,
    test: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match test() {
        Ok(()) => Ok(Completion::Completed),
        Err(why) if std::env::var_os(FORBID_SKIP).is_some() => Err(why.into()),
        Err(why) => Ok(Completion::ignored_with(why)),
    })
}

/// Runs the tests of a program with `harness = false`, as libtest would: its options, its output, `--list`
/// for runners such as cargo-nextest. Without `--test-threads`, `threads` run at once; a single one is the
/// main thread.
///
/// With `missing`, the reason why none can run on this machine, they are listed but skipped.
///
/// # Panics
/// As [`skip`], with a reason.
#[must_use]
pub fn run_tests(threads: usize, missing: Option<&str>, tests: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    if let Some(why) = missing.filter(|_| !arguments.list) {
        skip(why);
    }
    let ignore = |test: Trial| test.with_ignored_flag(missing.is_some());
    let tests = if missing.is_some() { tests.into_iter().map(ignore).collect() } else { tests };
    libtest_mimic::run(&arguments, tests).exit_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_interrupted_is_called_again_and_another_error_is_given() {
        let mut came = vec![ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::Interrupted];
        let mut call = || came.pop().map_or(Ok(7), |kind| Err(kind.into()));
        let refused = uninterrupted(&mut call).expect_err("it would block");
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert_eq!(uninterrupted(&mut call).expect("a number"), 7);
    }
}
