//! What a server keeps of root's rights once it runs as another user, and what that user can't reach.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::ServerError;
use crate::config::{LogTarget, SandboxMode, ServeConfig};
use crate::system::{Identity, Privileged, privileged};

/// Starts the process that does for a server what only root may, where there is something.
pub(super) fn keep_rights(
    config: &ServeConfig,
    removed: &[PathBuf],
    words: &[OsString],
) -> Result<Option<Privileged>, ServerError> {
    if config.tls.is_none() && removed.is_empty() {
        return Ok(None);
    }
    let is_confined = config.sandbox.mode != SandboxMode::Off;
    let task =
        privileged::Task { keys: config.tls.clone(), removed: removed.to_vec(), is_confined };
    Privileged::start(&task, words).map(Some).map_err(ServerError::Privileged)
}

/// What a reload would need and this user can't open, in lines: better shown now than then.
pub(super) fn out_of_reach(
    config: &ServeConfig,
    settings: Option<&Path>,
    user: &Identity,
) -> Vec<String> {
    let user = user.name();
    let unread = settings.and_then(|path| {
        let error = std::fs::File::open(path).err()?;
        Some(format!(
            "the settings in {} can't be read by the user {user} ({error}): a reload will fail; let that user \
             read them (chgrp, chmod g+r)",
            path.display()
        ))
    });
    let log = match &config.monitoring.error_log {
        LogTarget::File(path) => Some(path),
        LogTarget::Stdout | LogTarget::Stderr => None,
    };
    let unwritten = log.and_then(|path| {
        let error = std::fs::OpenOptions::new().append(true).open(path).err()?;
        Some(format!(
            "the error log {} can't be opened again by the user {user} ({error}): after a rotation the old \
             file will be written on; let that user write it (chown, chmod g+w)",
            path.display()
        ))
    });
    unread.into_iter().chain(unwritten).collect()
}
