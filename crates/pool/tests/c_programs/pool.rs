//! A pool that runs the programs of a workshop.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::workshop::{Workshop, succeeded};

/// A running pool; it is stopped when this is dropped.
pub(crate) struct Pool<'a> {
    workshop: &'a Workshop,
    prefix: String,
}

impl<'a> Pool<'a> {
    /// Starts the programs of `xml`, which stand in the workshop; all of them must come up.
    pub(crate) fn start(workshop: &'a Workshop, xml: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        workshop.write("pool.xml", xml);
        let prefix = format!("/pollux-test-{}-{number}", std::process::id());
        let pool = Self { workshop, prefix };
        succeeded(&pool.order(&["start"]).output().expect("run"));
        pool
    }

    /// A program of the workshop as a client of this pool.
    pub(crate) fn client(&self, program: &str) -> Command {
        self.in_environment(Command::new(self.workshop.path(program)))
    }

    /// A program of the system in the environment of a client of this pool.
    pub(crate) fn tool(&self, program: &str) -> Command {
        self.in_environment(Command::new(program))
    }

    /// Stops it; all workers must end.
    pub(crate) fn stop(self) {
        succeeded(&self.order(&["stop"]).output().expect("run"));
        std::mem::forget(self);
    }

    fn order(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-pool"));
        command.args(arguments);
        self.in_environment(command)
    }

    fn in_environment(&self, mut command: Command) -> Command {
        self.workshop.in_environment(&self.prefix, &mut command);
        command
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        // After a failed test; there is nothing to be done when this fails too.
        let _ = self.order(&["stop", "--now"]).output();
    }
}
