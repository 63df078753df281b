//! Programs of this machine that the lab starts: where they are, and what to install where not.
//!
//! The plan asks before anything is run; the experiments ask again when they start one.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// Searched after PATH: servers live there, and PATH of ordinary users leaves them out.
const SERVER_FOLDERS: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

/// The program called `name`, where it is installed.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| is_program(program))
}

/// A program of pollux: beside the file of this one, whatever links led to it, else in PATH.
#[must_use]
pub fn find_beside(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own_folder().into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|program| is_program(program))
}

/// The folder of this program's file.
#[must_use]
pub fn own_folder() -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok()?;
    own.parent().map(Path::to_owned)
}

/// What to say where `name` is not installed.
#[must_use]
pub fn missing(name: &str, package: &str) -> Option<String> {
    let reason = || format!("{name} is not installed here (Debian: apt-get install {package})");
    find(name).is_none().then(reason)
}

/// Whether a path is a file that may be run.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_machine_has_is_found_and_what_none_has_is_named_with_its_package() {
        assert!(find("sh").is_some());
        assert_eq!(missing("sh", "dash"), None);
        let reason = missing("no-such-program", "some-package").expect("it is missing");
        assert!(reason.contains("apt-get install some-package"), "{reason}");
    }
}
