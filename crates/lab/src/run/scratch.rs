//! A private folder for what the runs of one record write: configurations, built programs.
//!
//! It is made before the first run and removed with all that is in it after the last,
//! also where a run was killed before it could clean up.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names that are tried before the folder for temporary files is given up.
const NAMES_MAX: u32 = 100;

/// The folder; dropping it removes it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder of a new name that only this user may enter.
    ///
    /// # Errors
    /// Those of mkdir(2) in the folder for temporary files.
    pub fn make() -> io::Result<Self> {
        let base = std::env::temp_dir();
        let mut refused = io::Error::other("no name was tried");
        for number in 0..NAMES_MAX {
            let folder = base.join(format!("pollux-lab-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Self(folder)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed is left to whoever clears the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_private_and_goes_with_its_content() {
        let (first, second) = (Scratch::make().expect("a folder"), Scratch::make().expect("two"));
        assert_ne!(first.path(), second.path());
        let mode = fs::metadata(first.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(first.path().join("file"), "x").expect("writable");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
