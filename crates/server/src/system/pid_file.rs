//! The id of this process, in a file, while it runs.

use std::fs::{File, OpenOptions, remove_file, rename};
use std::io::{ErrorKind, Read, Result, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::ServerError;

/// A file with the id; removed when it is dropped, unless another process has written its own since.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Kept open, as a sandbox lets it be removed and not be read.
    file: File,
}

impl PidFile {
    /// Writes the file whole, in place of one that is left over: who reads it finds an id.
    ///
    /// # Errors
    /// [`ServerError::PidFile`].
    pub(crate) fn write(path: &Path) -> std::result::Result<Self, ServerError> {
        let failed = |cause| ServerError::PidFile { path: path.to_owned(), cause };
        if path.exists() && !path.is_file() {
            return Err(failed(std::io::Error::other("it is there and not a file")));
        }
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let file = make(new.as_ref()).and_then(|mut file| {
            file.write_all(text().as_bytes())?;
            rename(&new, path)?;
            Ok(file)
        });
        Ok(Self { path: path.to_owned(), file: file.map_err(failed)? })
    }

    /// Whether the file at the path is the one that was written, with what was written.
    fn is_own(&mut self) -> Result<bool> {
        let (there, own) = (self.path.symlink_metadata()?, self.file.metadata()?);
        let mut found = String::new();
        self.file.rewind()?;
        (&self.file).take(64).read_to_string(&mut found)?;
        Ok((there.dev(), there.ino()) == (own.dev(), own.ino()) && found == text())
    }
}

/// Makes a file that was not there: where others may write, one that is may be a link to anything.
fn make(path: &Path) -> Result<File> {
    let new = || OpenOptions::new().read(true).write(true).create_new(true).open(path);
    match new() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // Left over by one that ended in the middle; what a link leads to stays as it is.
            remove_file(path)?;
            new()
        }
        done => done,
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.is_own().unwrap_or(false) {
            // One who has given up its rights may not remove it; a left-over file is replaced.
            let _ = remove_file(&self.path);
        }
    }
}

fn text() -> String {
    format!("{}\n", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_left_over_is_replaced_and_another_ones_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid");
        fs::write(&path, "1\n").expect("written");
        let file = PidFile::write(&path).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("there"), text());
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).expect("written");
        fs::write(&path, "1\n").expect("written");
        drop(file);
        assert!(path.exists());
        let file = PidFile::write(&path).expect("written");
        remove_file(&path).expect("removed");
        fs::write(&path, text()).expect("written");
        drop(file);
        assert!(path.exists(), "another process of the same id wrote it");
        PidFile::write(folder.path()).expect_err("a folder");
        PidFile::write(&folder.path().join("no/pid")).expect_err("no folder");
    }

    #[test]
    fn a_link_that_waits_under_the_new_name_is_not_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("pid"), folder.path().join("other"));
        fs::write(&other, "as it was").expect("written");
        std::os::unix::fs::symlink(&other, folder.path().join("pid.new")).expect("linked");
        let _file = PidFile::write(&path).expect("written");
        assert_eq!(fs::read_to_string(&other).expect("there"), "as it was");
        assert_eq!(fs::read_to_string(&path).expect("there"), text());
    }
}
