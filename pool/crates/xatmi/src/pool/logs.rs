//! Logs while the pool runs: files are opened by their names again, and programs write another level.
//!
//! Workers are sent the files that the manager has opened, in the place of their standard output and standard error, so
//! that one whose log was moved away need not be restarted. What a program has put in the place of these itself stays.

use std::os::fd::AsFd;

use super::Pool;
use super::process::outputs;
use crate::link::ToWorker;
use crate::supervisor::Selection;

impl Pool {
    /// Changes the level of the workers that are meant, or opens their output again, and the log of the manager where all
    /// are meant; what was done, for people.
    ///
    /// # Errors
    /// No worker that runs is meant, or files that could not be opened; the others are.
    pub(super) fn change_logs(
        &mut self,
        what: &Selection,
        level: Option<u8>,
        is_opened_again: bool,
    ) -> Result<String, String> {
        let mut faults = Vec::new();
        if is_opened_again
            && *what == Selection::All
            && let Err(error) = self.log.open_again()
        {
            faults.push(format!("the log could not be opened again: {error}"));
        }
        let ids = self.running(what);
        if ids.is_empty() && *what != Selection::All {
            return Err(
                "no worker that runs is meant; `pollux pool ps` shows those that do".to_owned()
            );
        }
        for id in &ids {
            if let Err(why) = self.change_log(*id, level, is_opened_again) {
                faults.push(format!("{}: {why}", self.called(*id)));
            }
        }
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let opened = if is_opened_again { "logs opened again" } else { "" };
        let level = level.map(|level| format!("level {level}"));
        let parts: Vec<&str> = [opened, level.as_deref().unwrap_or_default()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        Ok(format!("{}: {} workers", parts.join(", "), ids.len()))
    }

    fn change_log(
        &mut self,
        id: u32,
        level: Option<u8>,
        is_opened_again: bool,
    ) -> Result<(), String> {
        let message = ToWorker::Log { level };
        let find = |entry: &&crate::config::Entry| entry.ids().contains(&id);
        let entry = self.config.entries.iter().find(find).filter(|_| is_opened_again);
        let files = entry.map(|entry| outputs(&entry.of_copy(id), &self.log)).transpose()?;
        match files {
            Some((out, error)) => self.send_with(id, &message, &[out.as_fd(), error.as_fd()]),
            None => self.send_to(id, &message),
        }
        Ok(())
    }

    /// The workers that run and are meant.
    fn running(&self, what: &Selection) -> Vec<u32> {
        let is_program = |id: u32, name: &str| {
            let mut entries = self.config.entries.iter();
            entries.any(|entry| entry.program == name && entry.ids().contains(&id))
        };
        let is_meant = |id: &u32| match what {
            Selection::All => true,
            Selection::Program(name) => is_program(*id, name),
            Selection::Id(wanted) => id == wanted,
        };
        self.workers.keys().copied().filter(is_meant).collect()
    }
}
