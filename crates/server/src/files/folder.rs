//! Opens files below one folder and nowhere else, and shows a folder as a page.
//!
//! The kernel resolves the path (`openat2(2)`, `RESOLVE_BENEATH`): neither `..`, nor an absolute
//! path, nor a symbolic link leads out, whatever is renamed meanwhile. Links that stay
//! within the folder are followed, but not to what is hidden: a path without links is what it
//! says (`RESOLVE_NO_SYMLINKS`); behind a link, the open file is asked for its name. No later
//! rename makes that another file. The file sessions call this; it never reads a file's bytes.

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, statat,
};
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

/// Most entries that are looked at; each costs a system call of about a microsecond.
const ENTRIES_MAX: usize = 4096;

/// One row of the page.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    is_file: bool,
    name: String,
    len_bytes: u64,
}

/// The page of the folder `fd`, which is served at `path` (decoded, without slashes at the ends).
/// `follow` says what a symbolic link leads to; where it leads out of the site, it does not show.
///
/// The file sessions call it when `--listing` is on. Hidden files and what is neither file nor
/// folder do not show. The page is bounded, because a loop waits while it is made.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn page(
    fd: BorrowedFd<'_>,
    path: &str,
    follow: impl Fn(&str) -> Option<Meta>,
) -> rustix::io::Result<String> {
    let (mut rows, has_more) = rows(fd, follow)?;
    rows.sort();
    Ok(render(path, &rows, has_more))
}

fn rows(
    fd: BorrowedFd<'_>,
    follow: impl Fn(&str) -> Option<Meta>,
) -> rustix::io::Result<(Vec<Row>, bool)> {
    let mut rows = Vec::new();
    for (looked_at, entry) in Dir::read_from(fd)?.enumerate() {
        let entry = entry?;
        if looked_at == ENTRIES_MAX {
            return Ok((rows, true));
        }
        // A name that is not UTF-8 has no path that the server would find again.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') {
            continue;
        }
        // The entry may be gone by now.
        let Ok(stat) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let meta = if is_link { follow(name) } else { Meta::of(&stat) };
        let Some(meta) = meta else { continue };
        let (is_file, len_bytes) = (!meta.is_folder, meta.len_bytes);
        rows.push(Row { is_file, name: name.to_owned(), len_bytes });
    }
    Ok((rows, false))
}

fn render(path: &str, rows: &[Row], has_more: bool) -> String {
    let title = escaped(&format!("/{path}"));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<table>\n"
    );
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a><td>\n");
    }
    for row in rows {
        let slash = if row.is_file { "" } else { "/" };
        let size = if row.is_file { row.len_bytes.to_string() } else { String::new() };
        // "./" keeps a name with a colon from being read as a scheme.
        let (href, name) = (percent_encoded(row.name.as_bytes()), escaped(&row.name));
        writeln!(page, "<tr><td><a href=\"./{href}{slash}\">{name}{slash}</a><td>{size}")
            .expect("a string takes everything");
    }
    if has_more {
        writeln!(page, "<tr><td>only {ENTRIES_MAX} entries were looked at<td>")
            .expect("a string takes everything");
    }
    page.push_str("</table>\n</html>\n");
    page
}

/// Text as it may stand in HTML and in its quoted attributes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Text as it may stand in one segment of a path (RFC 3986 unreserved characters stay).
pub(super) fn percent_encoded(text: &[u8]) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.iter().copied() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            safe.push(char::from(byte));
        } else {
            write!(safe, "%{byte:02X}").expect("a string takes everything");
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;
    use std::path::Path;

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

    fn listed(path: &Path) -> String {
        let fd = fs::File::open(path).expect("opened");
        page(fd.as_fd(), "a/b", |_| None).expect("read")
    }

    #[test]
    fn folders_come_first_and_hidden_files_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.txt", "a.txt", ".hidden"] {
            fs::write(folder.path().join(name), "12345").expect("written");
        }
        fs::create_dir(folder.path().join("z")).expect("made");
        let page = listed(folder.path());
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(at("href=\"../\"") < at("./z/"));
        assert!(at("./z/") < at("./a.txt") && at("./a.txt") < at("./b.txt"));
        assert!(page.contains("<td>5\n") && !page.contains("hidden"));
    }

    #[test]
    fn entries_that_do_not_show_are_looked_at_within_the_bound_too() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..ENTRIES_MAX {
            fs::File::create(folder.path().join(format!(".{number}"))).expect("made");
        }
        let page = listed(folder.path());
        assert!(page.contains("only 4096 entries were looked at"), "{page}");
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("<img src=x onerror='1'>\"&\n%"), "").expect("written");
        fs::write(folder.path().join("javascript:1"), "").expect("written");
        let page = listed(folder.path());
        assert!(!page.contains("<img") && !page.contains("onerror='"), "{page}");
        assert!(page.contains("href=\"./%3Cimg%20src%3Dx%20onerror%3D%271%27%3E%22%26%0A%25\""));
        assert!(page.contains("href=\"./javascript%3A1\""));
    }
}
