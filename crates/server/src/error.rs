//! What can keep a server from starting or running.

use std::io;
use std::path::{Path, PathBuf};

use pollux_engine::GroupError;
use pollux_sys::descriptors::NONE_LEFT;

/// Why a server could not be started, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The folder with the files cannot be served.
    #[error("the folder {:?} cannot be served", absolute(path))]
    Root {
        /// As it was configured.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A page of the user's own cannot be served.
    #[error("the page {:?} cannot be served", absolute(path))]
    Page {
        /// As it was configured.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: io::Error,
    },
    /// The kernel cannot keep paths within a folder.
    #[error("files need openat2(2): Linux 5.6, and a seccomp filter that allows it")]
    NoOpenat2,
    /// A log cannot be written.
    #[error("the {log} log {:?} cannot be opened", absolute(path))]
    Log {
        /// Which one.
        log: &'static str,
        /// As it was configured.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// An address cannot be listened on.
    #[error("{reason}")]
    Listen {
        /// Which address, which program has it or what it needs, and what to do.
        reason: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// No server of a group has an address.
    #[error("{why}")]
    NoAddress {
        /// Which group, which names can't be looked up, and what to do.
        why: String,
    },
    /// The users of a site can't be read.
    #[error("{why}")]
    Users {
        /// The file, the line, what is wrong with it, and what is expected.
        why: String,
    },
    /// Loops could not be started, or ended with an error.
    #[error("the {part} could not be run")]
    Group {
        /// Which of the server's groups.
        part: &'static str,
        /// Why.
        #[source]
        cause: GroupError,
    },
    /// The socket for commands could not be closed to other users.
    #[error("the permissions of {:?} cannot be set", absolute(path))]
    Permissions {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The file with the id of the process cannot be written.
    #[error("the pid file {:?} cannot be written", absolute(path))]
    PidFile {
        /// As it was configured.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Another server runs that wrote the file.
    #[error(
        "the pid file {:?} is that of process {holder}, which runs; end it, or choose another file with \
         --pid-file",
        absolute(path)
    )]
    PidFileTaken {
        /// As it was configured.
        path: PathBuf,
        /// The id in the file.
        holder: String,
    },
    /// The process that keeps the rights which the server gives up cannot be started.
    #[error(
        "no process could be started that keeps the rights to read the key and to remove files"
    )]
    Privileged(#[source] io::Error),
    /// The process cannot continue as another user.
    #[error("the server cannot become the user {user}; expected root, or no user and group")]
    Privileges {
        /// The user that it was to become.
        user: String,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A part of the sandbox is not available.
    #[error("the sandbox was required, and {part} is not available: {reason}")]
    Sandbox {
        /// Which one.
        part: String,
        /// Why, and what would allow it.
        reason: String,
    },
    /// A certificate or key can't be used.
    #[error(transparent)]
    Tls(#[from] pollux_tls::TlsError),
    /// No descriptor is left.
    #[error("{NONE_LEFT}")]
    Descriptors {
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Signals cannot be waited for.
    #[error("signals cannot be waited for")]
    Signals(#[source] io::Error),
}

/// A path as it is found from anywhere: what is relative to the working folder looks like what is relative
/// to another one. The words that stand for streams are left alone.
fn absolute(path: &Path) -> PathBuf {
    match path.to_str() {
        Some("-" | "stderr") => path.to_owned(),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}
