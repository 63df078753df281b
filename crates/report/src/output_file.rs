//! The file of a result: written beside its path and moved there whole, so that half of one is never
//! read, and an earlier one stays until the new one is there.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What is tried to be written before a run: a full disk takes less, and most results are longer.
const ROOM_BYTES: usize = 16 * 1024;

/// A file that a result is written to, not yet or whole.
#[derive(Debug)]
pub struct OutputFile {
    given: PathBuf,
    /// Behind all links, so that a link stays one.
    path: PathBuf,
    /// Where it is written first; none for a pipe or a device, which nothing may replace.
    beside: Option<PathBuf>,
}

impl OutputFile {
    /// Tries that a file can be written there, before anything is done for it.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn prepare(given: &Path) -> io::Result<Self> {
        let path = given.canonicalize().unwrap_or_else(|_| in_its_folder(given));
        let found = fs::metadata(&path);
        let mut file = Self { given: given.to_owned(), beside: None, path };
        match found {
            Ok(found) if found.is_dir() => {
                return Err(io::Error::other("expected a file, this is a folder"));
            }
            Ok(found) if !found.is_file() => return Ok(file),
            _ => {}
        }
        let beside = file.beside();
        // Removed with it also where it can't be filled.
        file.beside = Some(beside.clone());
        fs::write(beside, [0; ROOM_BYTES])?;
        Ok(file)
    }

    /// The path as it was named.
    #[must_use]
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// Whether what is written last to one of both is all that is left.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.beside.is_some() && self.path == other.path
    }

    /// A name in the same folder, for only there a file can be moved whole.
    fn beside(&self) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(format!(".{}", std::process::id()));
        self.path.with_file_name(name)
    }

    /// Writes the file, which is replaced as a whole or, where that fails, left as it was.
    ///
    /// # Errors
    /// What the file system said.
    pub fn put(&self, text: &str) -> io::Result<()> {
        let Some(beside) = &self.beside else { return fs::write(&self.path, text) };
        let mut file = fs::File::create(beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(beside, &self.path)
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // After all went well it is no longer there; on a full disk it holds room that others need.
            let _ = fs::remove_file(beside);
        }
    }
}

/// A file that is not there yet, by the name that its folder has behind all links.
fn in_its_folder(path: &Path) -> PathBuf {
    let name = path.file_name();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    name.zip(folder.ok()).map_or_else(|| path.to_owned(), |(name, folder)| folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_a_link_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let link = folder.path().join("link");
        fs::write(&path, "before").expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        let file = OutputFile::prepare(&link).expect("prepared");
        let read = || fs::read_to_string(&path).expect("a file");
        assert_eq!(read(), "before", "until there is something new");
        file.put("after").expect("written");
        assert_eq!(read(), "after");
        assert!(link.is_symlink());
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn a_run_that_fails_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(OutputFile::prepare(&folder.path().join("file")).expect("prepared"));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let file = OutputFile::prepare(Path::new("/dev/null")).expect("prepared");
        assert_eq!(file.beside, None);
        file.put("nothing").expect("written");
    }

    #[test]
    fn two_names_of_one_file_are_the_same_place_and_a_device_takes_several() {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).expect("linked");
        let at = |name: &str| OutputFile::prepare(&folder.path().join(name)).expect("prepared");
        assert!(at("a").is_same(&at("link/a")) && !at("a").is_same(&at("b")));
        fs::write(folder.path().join("a"), "there").expect("written");
        assert!(at("a").is_same(&at("link/a")));
        let device = || OutputFile::prepare(Path::new("/dev/null")).expect("prepared");
        assert!(!device().is_same(&device()));
    }
}
