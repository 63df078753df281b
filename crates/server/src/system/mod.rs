//! The system around a server: sockets that a manager opened, notifications of the manager, the id of the
//! process in a file, the user that it continues as, and the process that keeps the rights of before.
//!
//! The command line and the thread that waits for signals call it; loops never do.

pub mod activation;
mod notify;
mod pid_file;
pub mod privileged;
mod privileges;

pub(crate) use notify::{Manager, State};
pub(crate) use pid_file::PidFile;
pub(crate) use privileged::Privileged;
pub(crate) use privileges::ACCOUNTS;
pub use privileges::Identity;

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// That a file could be made or removed here, as far as permissions say.
pub(crate) fn is_folder_writable(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (folder, access) = (folder.unwrap_or(".".as_ref()), Access::WRITE_OK | Access::EXEC_OK);
    accessat(CWD, folder, access, AtFlags::EACCESS)?;
    Ok(())
}
