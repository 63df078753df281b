//! The id of this process, in a file, while it runs.

use std::io;
use std::path::{Path, PathBuf};

use crate::ServerError;

/// A file with the id; removed when it is dropped, unless another process has written its own since.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file whole, in place of one that is left over: who reads it finds an id.
    ///
    /// # Errors
    /// [`ServerError::PidFile`].
    pub(crate) fn write(path: &Path) -> Result<Self, ServerError> {
        let failed = |cause: io::Error| ServerError::PidFile { path: path.to_owned(), cause };
        if path.exists() && !path.is_file() {
            return Err(failed(io::Error::other("it is there and not a file")));
        }
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        std::fs::write(&new, text()).map_err(failed)?;
        std::fs::rename(&new, path).map_err(failed)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if std::fs::read_to_string(&self.0).is_ok_and(|found| found == text()) {
            // One who has given up its rights may not remove it; a left-over file is replaced.
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

fn text() -> String {
    format!("{}\n", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_left_over_is_replaced_and_another_ones_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid");
        std::fs::write(&path, "1\n").expect("written");
        let file = PidFile::write(&path).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), text());
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).expect("written");
        std::fs::write(&path, "1\n").expect("written");
        drop(file);
        assert!(path.exists());
        PidFile::write(folder.path()).expect_err("a folder");
        PidFile::write(&folder.path().join("no/pid")).expect_err("no folder");
    }
}
