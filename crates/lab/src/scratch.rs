//! A private folder for what the runs of one record write, configurations and built programs.
//!
//! It is made before the first run and removed with all that is in it after the last, also where a run was
//! killed before it could clean up. Of a lab that was killed itself the next one removes it: the owner holds a lock
//! (flock(2)) on its folder, which ends with the process.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Names that are tried before the folder for temporary files is given up.
const NAMES_MAX: u32 = 100;
/// How the names of these folders begin.
const PREFIX: &str = "pollux-lab-";

/// The folder and the lock on it; dropping it removes the folder.
#[derive(Debug)]
pub struct Scratch(PathBuf, #[expect(dead_code, reason = "held, not read")] File);

impl Scratch {
    /// Makes a folder of a new name that only this user may enter, and removes what labs that were killed
    /// have left.
    ///
    /// # Errors
    /// Those of mkdir(2) in the folder for temporary files, and of flock(2).
    pub fn make() -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir())
    }

    fn make_in(base: &Path) -> io::Result<Self> {
        remove_abandoned(base);
        let mut refused = io::Error::other("no name was tried");
        for number in 0..NAMES_MAX {
            let folder = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => match locked(&folder) {
                    Some(lock) => return Ok(Self(folder, lock)),
                    None => refused = io::Error::other("another lab removed the folder just made"),
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// The lock on a folder that is still there, where no other process holds it.
fn locked(folder: &Path) -> Option<File> {
    let lock = File::open(folder).ok()?;
    lock.try_lock().ok()?;
    folder.exists().then_some(lock)
}

/// Removes the folders of this user whose lab is gone; what is not a folder (a link of that name) is left.
fn remove_abandoned(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let user = rustix::process::geteuid().as_raw();
    for entry in entries.filter_map(Result::ok) {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Of the entry itself, not of what a link leads to.
        let is_ours = |found: fs::Metadata| found.is_dir() && found.uid() == user;
        if is_named && entry.metadata().is_ok_and(is_ours) {
            let folder = entry.path();
            if let Some(_lock) = locked(&folder) {
                let _ = fs::remove_dir_all(&folder);
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed is left to the system's cleaning of the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_private_and_goes_with_its_content() {
        // Another test of this process would be given the name that the first one has left.
        let base = Scratch::make().expect("a folder");
        let first = Scratch::make_in(base.path()).expect("in it");
        let second = Scratch::make_in(base.path()).expect("two");
        assert_ne!(first.path(), second.path());
        let mode = fs::metadata(first.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(first.path().join("file"), "x").expect("writable");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_lab_left_is_removed_and_what_a_living_one_has_is_not() {
        let base = Scratch::make().expect("a folder");
        let abandoned = base.path().join("pollux-lab-1-0");
        let other = base.path().join("pollux-data");
        fs::create_dir_all(abandoned.join("conf")).expect("as a killed lab left it");
        fs::create_dir(&other).expect("something else");
        let living = Scratch::make_in(base.path()).expect("a folder");
        assert!(!abandoned.exists() && other.exists());
        let second = Scratch::make_in(base.path()).expect("beside it");
        assert!(living.path().exists() && second.path().exists());
    }
}
