//! Opens files below one folder and nowhere else, and shows a folder as a page.
//!
//! The kernel resolves the path (`openat2(2)`, `RESOLVE_BENEATH`): neither `..`, nor an absolute
//! path, nor a symbolic link leads out, whatever is renamed meanwhile. Links that stay
//! within the folder are followed, but not to what is hidden: a path without links is what it
//! says (`RESOLVE_NO_SYMLINKS`); behind a link, the open file is asked for its name. No later
//! rename makes that another file. The file sessions call this; it never reads a file's bytes.
//!
//! The folder is kept open, so that no request looks its path up. Whether another folder stands there by now
//! (a build that makes it anew, a link that is turned to the next release) is for the caller to ask from time
//! to time ([`Root::look`]).

use std::collections::BinaryHeap;
use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf, absolute};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, stat, statat,
};
use rustix::io::Errno;

use crate::ServerError;
use crate::html;

/// A file that changed so recently may change again within the same tick of its clock.
const SETTLED_S: u64 = 2;
/// The length that a file of /sys claims, whatever it has: a page.
const MADE_PAGE_BYTES_MAX: u64 = 64 * 1024;
/// A rename under way makes the kernel answer EAGAIN; so often it is asked again.
const OPEN_ATTEMPTS: usize = 8;

/// A folder below which files are opened.
#[derive(Debug)]
pub(super) struct Root {
    folder: OwnedFd,
    /// Where it was opened, whatever the working folder is later.
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

/// What stands at the path of a folder now.
#[derive(Debug)]
pub(super) enum Found {
    /// The same folder.
    Same,
    /// Another one.
    Other(Root),
    /// Nothing, or nothing that can be served: why.
    Nothing(ServerError),
}

/// What a path led to.
#[derive(Debug)]
pub(super) struct Opened {
    /// Open for reading.
    pub(super) fd: OwnedFd,
    /// What it is.
    pub(super) meta: Meta,
    /// Whether its length may be untrue, as that of files is which the kernel makes when they are read.
    pub(super) is_perhaps_made: bool,
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
        let folder = open(path, flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&folder).map_err(failed)?;
        if stat.st_nlink == 0 {
            // A working folder that was removed.
            return Err(failed(Errno::NOENT));
        }
        let identity = (stat.st_dev, stat.st_ino);
        let absolute = absolute(path).unwrap_or_else(|_| path.to_owned());
        let root = Self { folder, path: absolute, identity };
        match root.openat(b".", ResolveFlags::empty()) {
            Ok(_) => Ok(root),
            // Seccomp filters that do not know the call say EPERM.
            Err(Errno::NOSYS | Errno::PERM) => Err(ServerError::NoOpenat2),
            Err(cause) => Err(failed(cause)),
        }
    }

    /// Where it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder was removed: nothing can be found in it any more.
    pub(super) fn is_removed(&self) -> bool {
        fstat(&self.folder).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// What stands at its path now. One system call where it is the same folder.
    pub(super) fn look(&self) -> Found {
        let there = stat(&self.path).map(|there| (there.st_dev, there.st_ino));
        // While this one is open no other has its numbers.
        if there == Ok(self.identity) {
            return Found::Same;
        }
        Self::open(&self.path).map_or_else(Found::Nothing, Found::Other)
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
        let stat = fstat(fd.as_fd()).map_err(refused)?;
        let meta = Meta::from_stat(&stat).ok_or(Refused::Forbidden)?;
        if meta.is_folder && stat.st_nlink == 0 {
            // Open, and removed: nothing can be found in it any more.
            return Err(Refused::Missing);
        }
        // Those of /proc are empty, those of /sys have a page; neither takes room on a disk.
        let takes_room = stat.st_blocks > 0 || meta.len_bytes > MADE_PAGE_BYTES_MAX;
        let is_perhaps_made = !meta.is_folder && (meta.len_bytes == 0 || !takes_room);
        Ok(Opened { fd, meta, is_perhaps_made })
    }

    /// Opens what a path with symbolic links leads to, unless it is hidden.
    fn find_behind_links(&self, path: &[u8]) -> Result<OwnedFd, Refused> {
        let fd = self.openat(path, ResolveFlags::empty()).map_err(refused)?;
        let root = name(&self.folder)?;
        let name = name(&fd)?;
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
    pub(super) fn from_stat(stat: &Stat) -> Option<Self> {
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

impl Meta {
    /// Whether it changed so recently that a second change may have the same time: within the grain of a clock
    /// that file systems have. Of a modification time that lies ahead, which somebody set, nothing follows: then
    /// the time of the last change of anything decides, which is the system's own.
    pub(super) fn may_change_within(&self, now_s: u64) -> bool {
        now_s < self.changed_by_s(now_s).saturating_add(SETTLED_S)
    }

    /// The second by which the content was as it is: its modification time, or where that lies ahead the last
    /// change of anything. Where that lies ahead too one of two clocks is wrong, and nothing is known.
    pub(super) fn changed_by_s(&self, now_s: u64) -> u64 {
        if self.modified_s <= now_s {
            return self.modified_s;
        }
        u64::try_from(self.changed_ns.div_euclid(1_000_000_000)).unwrap_or(0)
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

/// Most names that are read of a folder, whatever part of them is shown: the loop waits meanwhile, some
/// tenths of a second for so many.
const NAMES_MAX: usize = 1 << 20;

/// How much of a folder was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    shown: usize,
    /// All names that may be shown.
    names: usize,
    /// Whether the folder has more than were read.
    has_more: bool,
}

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
/// folder do not show. The page is bounded, because a loop waits while it is made: of more than `rows_max`
/// names it has the first ones by their order, and says so at the top.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn page(
    fd: BorrowedFd<'_>,
    path: &str,
    rows_max: usize,
    follow: impl Fn(&str) -> Option<Meta>,
) -> rustix::io::Result<String> {
    let (names, cut) = names(fd, rows_max)?;
    let mut rows: Vec<Row> = names.into_iter().filter_map(|name| row(fd, name, &follow)).collect();
    rows.sort_unstable();
    Ok(render(path, &rows, cut))
}

/// The first names of a folder by their order.
fn names(fd: BorrowedFd<'_>, rows_max: usize) -> rustix::io::Result<(Vec<String>, Option<Cut>)> {
    // The largest one on top, which goes for each smaller one that comes.
    let mut first = BinaryHeap::new();
    let mut names = 0;
    let mut has_more = false;
    for (looked_at, entry) in Dir::read_from(fd)?.enumerate() {
        let entry = entry?;
        if looked_at == NAMES_MAX {
            has_more = true;
            break;
        }
        // A name that is not UTF-8 has no path that the server would find again.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') {
            continue;
        }
        names += 1;
        if first.len() < rows_max {
            first.push(name.to_owned());
        } else if first.peek().is_some_and(|last| name < &**last) {
            first.pop();
            first.push(name.to_owned());
        }
    }
    let cut = Cut { shown: first.len(), names, has_more };
    Ok((first.into_vec(), Some(cut).filter(|cut| has_more || cut.shown < names)))
}

fn row(fd: BorrowedFd<'_>, name: String, follow: impl Fn(&str) -> Option<Meta>) -> Option<Row> {
    // The entry may be gone by now.
    let stat = statat(fd, &*name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let meta = if is_link { follow(&name) } else { Meta::from_stat(&stat) }?;
    Some(Row { is_file: !meta.is_folder, name, len_bytes: meta.len_bytes })
}

fn render(path: &str, rows: &[Row], cut: Option<Cut>) -> String {
    let title = html::escaped(&format!("/{path}"));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n"
    );
    if let Some(Cut { shown, names, has_more }) = cut {
        let more = if has_more { "more than " } else { "" };
        writeln!(page, "<p>Only {shown} of {more}{names} names are shown (--listing-max).</p>")
            .expect("a string takes everything");
    }
    page.push_str("<table>\n");
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a><td>\n");
    }
    for row in rows {
        let slash = if row.is_file { "" } else { "/" };
        let size = if row.is_file { row.len_bytes.to_string() } else { String::new() };
        // "./" keeps a name with a colon from being read as a scheme.
        let href = percent_encoded(row.name.as_bytes());
        let name = html::escaped(&row.name);
        writeln!(page, "<tr><td><a href=\"./{href}{slash}\">{name}{slash}</a><td>{size}")
            .expect("a string takes everything");
    }
    page.push_str("</table>\n</html>\n");
    page
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
        page(fd.as_fd(), "a/b", ROWS_MAX, |_| None).expect("read")
    }

    const ROWS_MAX: usize = 20;

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
    fn of_a_folder_with_too_many_names_the_first_ones_are_listed_and_the_cut_is_said_at_the_top() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..ROWS_MAX {
            fs::File::create(folder.path().join(format!(".{number}"))).expect("made");
            fs::File::create(folder.path().join(format!("{:02}", ROWS_MAX - number)))
                .expect("made");
        }
        let page = listed(folder.path());
        assert!(page.contains("./20\"") && !page.contains("Only"), "{page}");
        fs::create_dir(folder.path().join("zz")).expect("made");
        fs::create_dir(folder.path().join("00")).expect("made");
        let page = listed(folder.path());
        let said = page.find("<p>Only 20 of 22 names are shown (--listing-max).</p>");
        assert!(said.is_some_and(|at| at < page.find("<table>").expect("a table")), "{page}");
        assert!(page.contains("./00/\"") && page.contains("./19\""), "{page}");
        assert!(!page.contains("./20\"") && !page.contains("zz"), "{page}");
    }

    #[test]
    fn a_folder_that_was_replaced_is_found_and_one_that_is_gone_is_missed() {
        let folder = tempfile::tempdir().expect("a folder");
        let site = folder.path().join("site");
        fs::create_dir(&site).expect("made");
        let root = Root::open(&site).expect("a folder");
        assert!(matches!(root.look(), Found::Same) && !root.is_removed());
        fs::remove_dir(&site).expect("removed");
        assert!(matches!(root.look(), Found::Nothing(_)) && root.is_removed());
        fs::create_dir(&site).expect("made");
        fs::write(site.join("page"), "hello").expect("written");
        let Found::Other(root) = root.look() else { panic!("another folder") };
        assert_eq!(root.find(b"page").expect("there").meta.len_bytes, 5);
        fs::rename(&site, folder.path().join("old")).expect("renamed");
        assert!(matches!(root.look(), Found::Nothing(_)) && !root.is_removed());
        symlink("old", &site).expect("linked");
        assert!(matches!(root.look(), Found::Same));
        fs::create_dir(folder.path().join("next")).expect("made");
        fs::remove_file(&site).expect("removed");
        symlink("next", &site).expect("linked");
        assert!(matches!(root.look(), Found::Other(_)));
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
