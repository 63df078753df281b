//! The system around a server: sockets that a manager opened, and the id of the process in a file;
//! in `privileges` what the server gives up.
//!
//! The command line and the thread that waits for signals call it; loops never do.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pollux_engine::Sockets;
use pollux_sys::process;
use rustix::fs::{
    Access, AtFlags, CWD, FlockOperation, RenameFlags, accessat, flock, renameat_with,
};
use rustix::io::Errno;

use crate::ServerError;

/// Most addresses of a server; each costs a descriptor in each loop.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// The first descriptor that a manager passes.
const FIRST: i32 = 3;
/// Most of them: as many as there are addresses.
const SOCKETS_MAX: i32 = ADDRESSES_MAX as i32;

/// How often the file may become another one while it is looked at.
const ATTEMPTS_MAX: usize = 16;

/// So much of a file is looked at; an id has ten digits at most.
const ID_BYTES_MAX: u64 = 64;

/// That a file could be made or removed here, as far as permissions say.
pub(crate) fn is_folder_writable(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(".".as_ref());
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, folder, access, AtFlags::EACCESS)?;
    Ok(())
}

/// Below which folders the unit of a service has its own made at its start, and by which setting
/// (`systemd.exec(5)`).
const MADE_BY_UNITS: [(&str, &str); 3] = [
    ("/run", "RuntimeDirectory="),
    ("/var/run", "RuntimeDirectory="),
    ("/var/log", "LogsDirectory="),
];

/// What a check of a file of the server found; a warning in its place where its folder is missing and a unit that
/// starts the server can make it.
///
/// # Errors
/// That of the check.
pub(crate) fn unless_unit_makes(
    file: &Path,
    checked: Result<(), ServerError>,
) -> Result<Vec<String>, ServerError> {
    let folder = file.parent().unwrap_or(file);
    let setting = MADE_BY_UNITS.iter().find(|(above, _)| folder.parent() == Some(above.as_ref()));
    match (checked, setting) {
        (
            Err(
                ServerError::Log { cause, .. }
                | ServerError::Listen { cause, .. }
                | ServerError::PidFile { cause, .. },
            ),
            Some((above, setting)),
        ) if cause.kind() == ErrorKind::NotFound => {
            let name = folder.strip_prefix(above);
            let folder = folder.display();
            let name = name.unwrap_or(file).display();
            Ok(vec![format!(
                "{folder} is missing: a server that is not started by a unit with {setting}{name} cannot make {}",
                file.display()
            )])
        }
        (checked, _) => checked.map(|()| Vec::new()),
    }
}

/// The sockets that were passed to this process, by `LISTEN_PID` and `LISTEN_FDS`; none where they are
/// another's or were not set.
///
/// # Errors
/// They are set and no numbers, or one of what they name is not a socket that listens.
pub fn sockets() -> io::Result<Option<Sockets>> {
    let variable = |name| std::env::var(name).ok();
    passed(variable("LISTEN_PID"), variable("LISTEN_FDS"), std::process::id())
}

fn passed(pid: Option<String>, fds: Option<String>, own: u32) -> io::Result<Option<Sockets>> {
    let (Some(pid), Some(fds)) = (pid, fds) else { return Ok(None) };
    if pid != own.to_string() {
        return Ok(None);
    }
    let wrong = |why: &str| io::Error::other(format!("LISTEN_FDS={fds}: {why}"));
    let number: i32 = fds.parse().map_err(|_| wrong("expected a number"))?;
    if !(1..=SOCKETS_MAX).contains(&number) {
        return Err(wrong(&format!("expected 1 to {SOCKETS_MAX}")));
    }
    // Taken and not duplicated: a duplicate would have the next number, and pass for one that was passed.
    let mut sockets = Sockets::inherited(Vec::new())?;
    for fd in FIRST..FIRST + number {
        let one =
            process::take_inherited(fd).and_then(|fd: OwnedFd| Sockets::inherited(vec![vec![fd]]));
        sockets.append(one.map_err(|error| {
            let last = FIRST + number - 1;
            wrong(&format!(
                "descriptor {fd} is not a socket that listens ({error}); expected one at each number from \
                 {FIRST} to {last}"
            ))
        })?);
    }
    Ok(Some(sockets))
}

/// A file with the id; removed when it is dropped, unless another process has written its own since. While the
/// process runs it holds a lock on the file, so a second server sees that the file is not left over.
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
    pub(crate) fn write(path: &Path) -> Result<Self, ServerError> {
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
    pub(crate) fn check(path: &Path) -> Result<(), ServerError> {
        is_id_or_free(path)
            .and_then(|()| is_folder_writable(path))
            .map_err(|cause| ServerError::PidFile { path: path.to_owned(), cause })
    }

    /// Whether the file at the path is the one that was written, with what was written.
    fn is_own(&mut self) -> io::Result<bool> {
        let there = self.path.symlink_metadata()?;
        let own = self.file.metadata()?;
        let mut found = String::new();
        self.file.rewind()?;
        (&self.file).take(64).read_to_string(&mut found)?;
        Ok((there.dev(), there.ino()) == (own.dev(), own.ino()) && found == text())
    }
}

/// Puts the new file at the path; what the one there says when its process runs, and then nothing is done.
fn place(new: &Path, path: &Path) -> io::Result<Option<String>> {
    for _ in 0..ATTEMPTS_MAX {
        is_id_or_free(path)?;
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
        let found = path.metadata();
        let own = there.metadata()?;
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
            return std::fs::rename(new, path).map(|()| None);
        }
    }
    Err(io::Error::other("other servers write it at the same time"))
}

/// Locks an open file until it is closed; false where another process has. A file system without locks has
/// none to respect.
fn lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// That nothing is at the path but a file that holds an id, or nothing yet: another one is of somebody who needs it.
fn is_id_or_free(path: &Path) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    if !path.is_file() {
        return Err(io::Error::other("it is there and not a file"));
    }
    let mut found = Vec::new();
    File::open(path)?.take(ID_BYTES_MAX).read_to_end(&mut found)?;
    if found.trim_ascii().iter().all(u8::is_ascii_digit) {
        Ok(())
    } else {
        Err(io::Error::other(
            "it is there and holds something else than the id of a process, and would be lost; expected a free path",
        ))
    }
}

/// Makes a file that was not there: where others may write, one that is may be a link to anything.
fn make(path: &Path) -> io::Result<File> {
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
    fn a_missing_folder_that_a_unit_makes_is_a_warning_and_another_one_an_error() {
        let checked = |path: &str| unless_unit_makes(path.as_ref(), PidFile::check(path.as_ref()));
        let warned = checked("/run/pollux-no-such/pid").expect("a unit makes it").concat();
        assert!(warned.contains(" RuntimeDirectory=pollux-no-such "), "{warned}");
        let warned = checked("/var/log/pollux-no-such/log").expect("a unit makes it").concat();
        assert!(warned.contains(" LogsDirectory=pollux-no-such "), "{warned}");
        for path in ["/run/pollux-no-such/further/pid", "/pollux-no-such/pid", "/run"] {
            checked(path).expect_err(path);
        }
    }

    #[test]
    fn variables_of_another_process_mean_nothing_and_wrong_ones_are_refused() {
        let of = |pid: &str, fds: &str| passed(Some(pid.into()), Some(fds.into()), 7);
        assert!(of("8", "1").expect("another's").is_none());
        assert!(passed(None, Some("1".into()), 7).expect("half of it").is_none());
        for (fds, message) in
            [("", "expected a number"), ("0", "expected 1 to 64"), ("99", "expected 1 to 64")]
        {
            let error = of("7", fds).expect_err(fds).to_string();
            assert!(error.contains(message), "{error}");
        }
    }

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
    fn a_file_that_holds_no_id_is_neither_replaced_nor_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("settings.toml");
        for text in ["reply = 1\n", "12 monkeys", "1\n2 3\n", "\u{661}"] {
            fs::write(&path, text).expect("written");
            for error in [
                PidFile::write(&path).map(drop).expect_err("not an id"),
                PidFile::check(&path).expect_err("not an id"),
            ] {
                let ServerError::PidFile { cause, .. } = error else { panic!("{error}") };
                assert!(cause.to_string().contains("something else"), "{cause}");
            }
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 1, "nothing is left");
        // Made by a package or an administrator.
        fs::write(&path, "").expect("written");
        drop(PidFile::write(&path).expect("free"));
    }

    #[test]
    fn a_link_that_waits_under_the_new_name_is_not_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid");
        let other = folder.path().join("other");
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
