//! Opens files below one folder and nowhere else.
//!
//! The kernel resolves the path (`openat2(2)`, `RESOLVE_BENEATH`): neither `..`, nor an absolute
//! path, nor a symbolic link leads out, whatever is renamed meanwhile. Links that stay
//! within the folder are followed, but not to what is hidden: a path without links is what it
//! says (`RESOLVE_NO_SYMLINKS`); behind a link, the open file is asked for its name. No later
//! rename makes that another file. The file sessions call this; it never reads a file's bytes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;

use crate::ServerError;

/// A rename under way makes the kernel answer EAGAIN; so often it is asked again.
const OPEN_ATTEMPTS: usize = 8;

/// A folder below which files are opened.
#[derive(Debug)]
pub(super) struct Root {
    folder: OwnedFd,
}

/// What a path led to.
#[derive(Debug)]
pub(super) struct Opened {
    /// Open for reading.
    pub(super) fd: OwnedFd,
    /// What it is.
    pub(super) meta: Meta,
}

/// The facts of a file that an answer needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Meta {
    /// Whether it is a folder; else it is a regular file.
    pub(super) is_folder: bool,
    /// Size.
    pub(super) len_bytes: u64,
    /// Last change, seconds since 1970.
    pub(super) modified_s: u64,
    /// Nanoseconds within that second.
    pub(super) modified_ns: u32,
    /// Number within its file system.
    pub(super) inode: u64,
    /// Its file system: another one below the folder has the same numbers.
    pub(super) device: u64,
    /// Last change of anything, in nanoseconds since 1970: it cannot be set back, as the time of the
    /// content can be.
    pub(super) changed_ns: i128,
}

/// Why a path led to nothing that may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// There is no such file, or the path leads out of the folder.
    Missing,
    /// The process may not read it, or it is neither a file nor a folder.
    Forbidden,
    /// No descriptor or memory was left.
    Exhausted(Errno),
    /// Another error of the file system.
    Broken(Errno),
}

impl Refused {
    /// An error of a file or folder that was open already.
    pub(super) fn of_use(errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted(errno),
            _ => Self::Broken(errno),
        }
    }
}

impl Root {
    /// Opens the folder and tries the system call that every later open needs.
    ///
    /// # Errors
    /// When it cannot be opened, is not a folder, or the kernel lacks `openat2` (Linux 5.6).
    pub(super) fn open(path: &Path) -> Result<Self, ServerError> {
        let failed =
            |cause: Errno| ServerError::Root { path: path.to_owned(), cause: cause.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Self { folder: open(path, flags, Mode::empty()).map_err(failed)? };
        match root.openat(b".", ResolveFlags::empty()) {
            Ok(_) => Ok(root),
            // Seccomp filters that do not know the call say EPERM.
            Err(Errno::NOSYS | Errno::PERM) => Err(ServerError::NoOpenat2),
            Err(cause) => Err(failed(cause)),
        }
    }

    /// Opens what `path` names. A blocking system call, short unless the disk is slow.
    ///
    /// # Errors
    /// Says why there is nothing to serve.
    pub(super) fn find(&self, path: &[u8]) -> Result<Opened, Refused> {
        if is_hidden(path) {
            return Err(Refused::Missing);
        }
        let path = if path.is_empty() { b"." } else { path };
        let fd = match self.openat(path, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => self.find_behind_links(path)?,
            opened => opened.map_err(refused)?,
        };
        let meta = Meta::of(&fstat(fd.as_fd()).map_err(refused)?).ok_or(Refused::Forbidden)?;
        Ok(Opened { fd, meta })
    }

    /// Opens what a path with symbolic links leads to, unless it is hidden.
    fn find_behind_links(&self, path: &[u8]) -> Result<OwnedFd, Refused> {
        let fd = self.openat(path, ResolveFlags::empty()).map_err(refused)?;
        let (root, name) = (name(&self.folder)?, name(&fd)?);
        let root = root.strip_suffix(b"/").unwrap_or(&root);
        // A folder that is renamed at this moment has another name in each.
        let below = name.strip_prefix(root).filter(|below| below.is_empty() || below[0] == b'/');
        match below {
            Some(below) if !is_hidden_behind_links(below) => Ok(fd),
            _ => Err(Refused::Missing),
        }
    }

    fn openat(&self, path: &[u8], more: ResolveFlags) -> Result<OwnedFd, Errno> {
        // NONBLOCK: opening a pipe without a writer must not stop the loop.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
        let mut last = Errno::AGAIN;
        for _ in 0..OPEN_ATTEMPTS {
            match openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
                done => return done,
            }
        }
        Err(last)
    }
}

impl Meta {
    /// The facts of a regular file or a folder; none of anything else.
    pub(super) fn of(stat: &Stat) -> Option<Self> {
        let is_folder = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::Directory => true,
            _ => return None,
        };
        Some(Self {
            is_folder,
            len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            // Times before 1970 are shown as 1970.
            modified_s: u64::try_from(stat.st_mtime).unwrap_or(0),
            modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            inode: stat.st_ino,
            device: stat.st_dev,
            changed_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
        })
    }
}

/// Whether a segment starts with a dot; `.well-known` (RFC 8615) is meant to be seen.
fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.split(|byte| *byte == b'/');
    segments.any(|segment| segment.starts_with(b".") && segment != b".well-known")
}

/// The same for the name of a file that was found behind a link. Two dots hide nothing there:
/// volumes of Kubernetes are links to files in folders that are called `..` and a date.
fn is_hidden_behind_links(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .any(|segment| is_hidden(segment) && !segment.starts_with(b".."))
}

/// What an open file is called now, from the root of the file system (`proc_pid_fd(5)`). Without
/// /proc that is an error, as it cannot be known whether it is hidden.
fn name(fd: &OwnedFd) -> Result<Vec<u8>, Refused> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).map_err(Refused::Broken)?;
    Ok(name.into_bytes())
}

fn refused(errno: Errno) -> Refused {
    match errno {
        // XDEV: the path would have left the folder, which the client does not learn.
        Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG => {
            Refused::Missing
        }
        // NXIO, NODEV, OPNOTSUPP: sockets and devices.
        Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => {
            Refused::Forbidden
        }
        _ => Refused::of_use(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn refusal(root: &Root, path: &str) -> Refused {
        root.find(path.as_bytes()).map(|found| found.meta).expect_err(path)
    }

    #[test]
    fn no_path_and_no_link_leads_out() {
        let outside = tempfile::tempdir().expect("a folder");
        let secret = outside.path().join("secret");
        fs::write(&secret, "x").expect("written");
        let inside = outside.path().join("site");
        fs::create_dir(&inside).expect("made");
        fs::write(inside.join("page"), "hello").expect("written");
        symlink(&secret, inside.join("absolute")).expect("linked");
        symlink("../secret", inside.join("relative")).expect("linked");
        symlink("page", inside.join("within")).expect("linked");
        symlink("loop", inside.join("loop")).expect("linked");
        let root = Root::open(&inside).expect("a folder");
        for path in ["../secret", "absolute", "relative", "/etc/passwd", "loop", "page/x", "none"] {
            assert_eq!(refusal(&root, path), Refused::Missing, "{path}");
        }
        assert_eq!(root.find(b"within").expect("beneath").meta.len_bytes, 5);
        assert!(root.find(b"").expect("the folder itself").meta.is_folder);
        assert_eq!(refusal(&root, &"x".repeat(300)), Refused::Missing);
    }

    #[test]
    fn pipes_are_refused_without_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).expect("made");
        let root = Root::open(folder.path()).expect("a folder");
        assert_eq!(refusal(&root, "fifo"), Refused::Forbidden);
    }

    #[test]
    fn a_root_that_is_not_a_folder_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("page");
        fs::write(&file, "x").expect("written");
        let message = Root::open(&file).expect_err("a file").to_string();
        assert!(message.contains("page"), "{message}");
    }
}
