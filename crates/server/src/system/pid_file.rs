//! The id of this process, in a file, while it runs.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{ErrorKind, Read, Result, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::ServerError;

/// How often the file may become another one while it is looked at.
const ATTEMPTS_MAX: usize = 16;

/// A file with the id; removed when it is dropped, unless another process has written its own since. While the
/// process runs it holds a lock on the file, so a second server knows that the file is not left over.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Kept open, as a sandbox lets it be removed and not be read, and as the lock is the open file's.
    file: File,
}

impl PidFile {
    /// Writes the file whole, in place of one that is left over: a reader always finds an id.
    ///
    /// # Errors
    /// [`ServerError::PidFileTaken`] when the process that wrote it runs, [`ServerError::PidFile`].
    pub(crate) fn write(path: &Path) -> std::result::Result<Self, ServerError> {
        let failed = |cause| ServerError::PidFile { path: path.to_owned(), cause };
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".new.{}", std::process::id()));
        let new = PathBuf::from(new);
        let file = make(&new).and_then(|mut file| {
            file.write_all(text().as_bytes())?;
            lock(&file).map(|_| file)
        });
        let file = file.map_err(failed)?;
        let placed = place(&new, path);
        if placed.is_err() {
            // Nothing of it stays.
            let _ = remove_file(&new);
        }
        match placed.map_err(failed)? {
            None => Ok(Self { path: path.to_owned(), file }),
            Some(holder) => Err(ServerError::PidFileTaken { path: path.to_owned(), holder }),
        }
    }

    /// Whether the file could be written, or is that of a server that runs; nothing is changed.
    ///
    /// # Errors
    /// [`ServerError::PidFile`].
    pub(crate) fn check(path: &Path) -> std::result::Result<(), ServerError> {
        is_file_or_free(path)
            .and_then(|()| super::is_folder_writable(path))
            .map_err(|cause| ServerError::PidFile { path: path.to_owned(), cause })
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

/// Puts the new file at the path; what the one there says when its process runs, and then nothing is done.
fn place(new: &Path, path: &Path) -> Result<Option<String>> {
    for _ in 0..ATTEMPTS_MAX {
        is_file_or_free(path)?;
        let there = match File::open(path) {
            Ok(there) => there,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
                    // Another server was faster.
                    Err(Errno::EXIST) => continue,
                    // A file system that can't.
                    Err(Errno::INVAL) => return std::fs::rename(new, path).map(|()| None),
                    renamed => return Ok(renamed.map(|()| None)?),
                }
            }
            Err(error) => return Err(error),
        };
        if !lock(&there)? {
            let mut holder = String::new();
            (&there).take(20).read_to_string(&mut holder)?;
            let _ = remove_file(new);
            return Ok(Some(holder.trim().to_owned()));
        }
        // Locked by us, so no other server takes it over; but it may have been taken over just before.
        let (found, own) = (path.metadata(), there.metadata()?);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
            return std::fs::rename(new, path).map(|()| None);
        }
    }
    Err(std::io::Error::other("other servers write it at the same time"))
}

/// Locks an open file until it is closed; false where another process has. A file system without locks has
/// none to respect.
fn lock(file: &File) -> Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// That nothing but a file is at the path.
fn is_file_or_free(path: &Path) -> Result<()> {
    match path.exists() && !path.is_file() {
        true => Err(std::io::Error::other("it is there and not a file")),
        false => Ok(()),
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
            // A process that has given up its rights may not remove it; a left-over file is replaced.
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
    fn a_file_whose_process_runs_is_refused_with_its_id_and_taken_over_when_that_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid");
        let first = PidFile::write(&path).expect("written");
        let message = PidFile::write(&path).expect_err("it runs").to_string();
        assert!(
            message.contains(&format!("of process {}, which runs", text().trim())),
            "{message}"
        );
        assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 1, "nothing is left");
        assert_eq!(fs::read_to_string(&path).expect("there"), text());
        PidFile::check(&path).expect("one may check while it runs");
        // As when it is killed: the file stays, the lock goes.
        let PidFile { path: _, file } = &first;
        flock(file, FlockOperation::Unlock).expect("ours");
        let second = PidFile::write(&path).expect("left over");
        drop(first);
        assert!(path.exists(), "the first removes what it wrote and no more");
        drop(second);
        assert!(!path.exists());
        PidFile::check(&folder.path().join("no/pid")).expect_err("no folder");
        PidFile::check(folder.path()).expect_err("a folder");
    }

    #[test]
    fn a_link_that_waits_under_the_new_name_is_not_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("pid"), folder.path().join("other"));
        fs::write(&other, "as it was").expect("written");
        std::os::unix::fs::symlink(
            &other,
            folder.path().join(format!("pid.new.{}", std::process::id())),
        )
        .expect("linked");
        let _file = PidFile::write(&path).expect("written");
        assert_eq!(fs::read_to_string(&other).expect("there"), "as it was");
        assert_eq!(fs::read_to_string(&path).expect("there"), text());
    }
}
