//! Paths: what stays in reach of a process, and landlock(7) for all the rest.
//!
//! A rule is about a file or folder that is there now, whatever it is called later. Files that are put in
//! place anew (rotated logs, renewed certificates, edited settings) are reached by the folder that they
//! stand in, and by the one that links lead to. Folders that are put in place anew (a site that is built, a
//! release that a link is turned to) are reached by the folders that they lie in, where those are not
//! everybody's ([`AllowedPaths::add_replaceable`]).

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

use rustix::process::geteuid;

use crate::links;
use crate::sandbox::{Unavailable, on_a_thread};

/// What is forbidden, as far as the kernel knows it: files, TCP ports, abstract sockets and signals.
const KNOWN: ABI = ABI::V7;

/// What is done with a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Everything below a folder is read, and folders are listed.
    ReadBelow,
    /// A file is read, and what stands in its place later.
    Read,
    /// A file is read as it is now, and not what stands in its place later.
    ReadOne,
    /// A file is written, and made where it is not there.
    Write,
    /// A file is removed.
    Remove,
}

/// The paths that a process still uses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AllowedPaths {
    uses: Vec<(PathBuf, Use)>,
    /// Where what takes their places lies.
    beside: Vec<PathBuf>,
    ports: Ports,
}

/// Which TCP ports a process still uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Ports {
    #[default]
    None,
    /// Those of others, whichever they are.
    OfOthers,
    /// Those, and any of its own.
    All,
}

/// One rule: a file or folder, and what is allowed there and below.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    path: PathBuf,
    access: BitFlags<AccessFs>,
    /// Device and inode: another file in its place has no rule.
    file: Option<(u64, u64)>,
}

impl Rule {
    fn new(path: PathBuf, access: impl Into<BitFlags<AccessFs>>) -> Self {
        let file = identity(&path);
        Self { path, access: access.into(), file }
    }

    fn allows(&self, wanted: &Self) -> bool {
        wanted.path.starts_with(&self.path)
            && self.access.contains(wanted.access)
            && identity(&self.path) == self.file
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = path.metadata().ok()?;
    Some((meta.dev(), meta.ino()))
}

/// What a process was left with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confined {
    rules: Vec<Rule>,
    version: i32,
}

impl Confined {
    /// The first path of `later` that is out of reach: it lies elsewhere, or in a folder that took the
    /// place of the one that was there.
    #[must_use]
    pub fn lacks<'a>(&self, later: &'a AllowedPaths) -> Option<&'a Path> {
        let is_lacking = |(path, used): &&(PathBuf, Use)| {
            // What is not there can't be reached in any case.
            let is_allowed = |wanted: &Rule| {
                wanted.file.is_none() || self.rules.iter().any(|rule| rule.allows(wanted))
            };
            !needs_of(path, *used).iter().all(is_allowed)
        };
        later.uses.iter().find(is_lacking).map(|(path, _)| path.as_path())
    }
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "landlock (ABI {})", self.version)
    }
}

impl AllowedPaths {
    /// Adds a path.
    pub fn add(&mut self, path: &Path, used: Use) {
        self.uses.push((path.to_owned(), used));
    }

    /// Leaves TCP connections to others, whose ports nobody knows beforehand: what listens is still forbidden.
    pub fn allow_connecting(&mut self) {
        self.ports = Ports::OfOthers;
    }

    /// The same, from ports and addresses of its own. Where nothing may listen on them is for system calls to say.
    pub fn allow_binding(&mut self) {
        self.ports = Ports::All;
    }

    /// Adds a folder or a file that is read, and what takes its place later: a folder of the same name that is
    /// made anew, or one that a link of the path leads to then, if it lies beside the one that is there now.
    /// So the folders that these lie in are in reach as well, but none that holds what is everybody's: the
    /// folder whose successors are out of reach for that is given back.
    pub fn add_replaceable(&mut self, path: &Path, used: Use) -> Option<PathBuf> {
        self.add(path, used);
        let mut fixed = None;
        for place in places(path) {
            match place.parent() {
                Some(folder) if !is_everybodys(folder) => self.beside.push(folder.to_owned()),
                _ => fixed = Some(place),
            }
        }
        fixed
    }

    fn rules(&self) -> Vec<Rule> {
        let access = AccessFs::ReadFile | AccessFs::ReadDir;
        let beside = self.beside.iter().map(|folder| Rule::new(folder.clone(), access));
        self.uses.iter().flat_map(|(path, used)| rules_of(path, *used)).chain(beside).collect()
    }
}

/// Folders that hold what is everybody's: none of them is in reach because a folder in it is.
const EVERYBODYS: [&str; 22] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/pki",
    "/etc/ssl",
    "/home",
    "/lib",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/run/user",
    "/sbin",
    "/sys",
    "/usr",
    "/usr/lib",
    "/usr/local",
    "/usr/share",
    "/var",
    "/var/lib",
];

/// Whether the folder is one of the system, or somebody's home.
fn is_everybodys(folder: &Path) -> bool {
    let is_home = || {
        let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
        folder.parent() == Some(Path::new("/home")) || home.as_deref() == Some(folder)
    };
    EVERYBODYS.iter().any(|each| folder == Path::new(each)) || is_home()
}

/// The folders that a path and each link in it lead to; of a file the one that it stands in.
fn places(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let mut found = Vec::new();
    let mut add = |path: &Path| {
        let place = path.canonicalize().ok();
        let place = place.map(|place| {
            if place.is_dir() {
                place
            } else {
                place.parent().map_or_else(|| place.clone(), Path::to_owned)
            }
        });
        found.extend(place.filter(|place| !found.contains(place)));
    };
    add(&path);
    if let Some(folder) = path.parent().filter(|_| !path.is_dir()) {
        add(folder);
    }
    for link in links::on_the_way(&path) {
        add(&link);
    }
    found
}

/// What has to be in reach so that a path can be used: the file itself, or the folder that it is made in.
fn needs_of(path: &Path, used: Use) -> Vec<Rule> {
    match path.canonicalize() {
        Ok(meant) if used == Use::Read => vec![Rule::new(meant, AccessFs::ReadFile)],
        _ => rules_of(path, used),
    }
}

/// The rules for one path: for the folder that it is named in, and for the one that links lead to.
fn rules_of(path: &Path, used: Use) -> Vec<Rule> {
    let access = match used {
        Use::ReadBelow => AccessFs::ReadFile | AccessFs::ReadDir,
        Use::Read | Use::ReadOne => AccessFs::ReadFile.into(),
        Use::Write => AccessFs::WriteFile | AccessFs::MakeReg,
        Use::Remove => AccessFs::RemoveFile.into(),
    };
    let meant = path.canonicalize();
    if matches!(used, Use::ReadBelow | Use::ReadOne) {
        return vec![Rule::new(meant.unwrap_or_else(|_| path.to_owned()), access)];
    }
    // A pipe or a device is not replaced.
    let is_special = |path: &&PathBuf| !path.is_file() && !path.is_dir();
    if let Some(path) = meant.as_ref().ok().filter(is_special)
        && used == Use::Write
    {
        return vec![Rule::new(path.clone(), AccessFs::WriteFile)];
    }
    let named = std::path::absolute(path).ok();
    let named = named.as_deref().and_then(Path::parent).and_then(|at| at.canonicalize().ok());
    let real = meant.as_deref().ok().and_then(Path::parent).map(Path::to_owned);
    let mut folders: Vec<PathBuf> = named.into_iter().chain(real).collect();
    folders.dedup();
    let rule = |folder: PathBuf| {
        // All that there is is never meant.
        match folder.parent() {
            Some(_) => Rule::new(folder, access),
            None => Rule::new(path.to_owned(), access & AccessFs::from_file(KNOWN)),
        }
    };
    folders.into_iter().map(rule).collect()
}

/// Takes everything but `reach` from this thread and those that it starts from now on: files, TCP ports,
/// and, where the kernel knows them, abstract sockets and signals to others. What is open stays open.
///
/// A path that cannot be opened, which the process cannot use either, has no rule.
///
/// # Errors
/// [`Unavailable`]: the kernel has no landlock, or other threads run already, which it would not bind, or what no rule
/// allows was tried afterwards and not refused.
pub fn confine_files(reach: &AllowedPaths) -> Result<Confined, Unavailable> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    match threads {
        Ok(1) => enforce(reach.rules(), reach.ports),
        Ok(threads) => Err(Unavailable::because(format!("{threads} threads run already"))),
        Err(error) => Err(Unavailable::because(format!("/proc/self/task: {error}"))),
    }
}

/// Whether [`confine_files`] would be possible.
///
/// # Errors
/// As there.
pub fn try_files() -> Result<Confined, Unavailable> {
    on_a_thread(|| enforce(Vec::new(), Ports::None))
}

fn enforce(rules: Vec<Rule>, ports: Ports) -> Result<Confined, Unavailable> {
    let mut attempts = Attempt::beyond(&rules);
    attempts.retain(|attempt| *attempt != Attempt::Listen || ports != Ports::All);
    let status = restrict(&rules, ports).map_err(Unavailable::because)?;
    let RestrictionStatus { ruleset, landlock, .. } = status;
    match landlock {
        LandlockStatus::Available { effective_abi, kernel_abi }
            if ruleset != RulesetStatus::NotEnforced =>
        {
            refused(&attempts, effective_abi)?;
            let version = kernel_abi.unwrap_or(effective_abi as i32);
            Ok(Confined { rules, version })
        }
        LandlockStatus::NotImplemented => Err(Unavailable::because(
            "this kernel has no landlock: Linux 5.13 with CONFIG_SECURITY_LANDLOCK",
        )),
        _ => Err(Unavailable::because(
            "landlock is switched off: add it to the kernel's parameter lsm=",
        )),
    }
}

/// What is tried to see whether rules are enforced. It changes nothing where it succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    /// To list a folder.
    List(&'static str),
    /// To open a device to be written.
    Write(&'static str),
    /// To listen on a TCP port, which no rule allows (Linux 6.7).
    Listen,
}

impl Attempt {
    const ALL: [Self; 3] = [Self::List("/"), Self::Write("/dev/null"), Self::Listen];

    /// Those that succeed now and that none of `rules` allows.
    fn beyond(rules: &[Rule]) -> Vec<Self> {
        let is_allowed = |path: &str, access: AccessFs| {
            let wanted = Rule::new(PathBuf::from(path), access);
            rules.iter().any(|rule| rule.allows(&wanted))
        };
        let is_beyond = |attempt: &Self| match attempt {
            Self::List(path) => !is_allowed(path, AccessFs::ReadDir),
            Self::Write(path) => !is_allowed(path, AccessFs::WriteFile),
            Self::Listen => true,
        };
        let succeeds = |attempt: &Self| attempt.outcome().is_ok();
        Self::ALL.into_iter().filter(is_beyond).filter(succeeds).collect()
    }

    fn since(self) -> ABI {
        match self {
            Self::List(_) | Self::Write(_) => ABI::V1,
            Self::Listen => ABI::V4,
        }
    }

    fn outcome(self) -> io::Result<()> {
        match self {
            Self::List(path) => File::open(path).map(drop),
            Self::Write(path) => File::options().write(true).open(path).map(drop),
            Self::Listen => TcpListener::bind("127.0.0.1:0").map(drop),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(path) => write!(f, "reading {path}"),
            Self::Write(path) => write!(f, "writing to {path}"),
            Self::Listen => f.write_str("listening on a TCP port"),
        }
    }
}

/// Finds each attempt refused that this kernel's landlock knows.
fn refused(attempts: &[Attempt], abi: ABI) -> Result<(), Unavailable> {
    let is_refused = |attempt: &Attempt| {
        attempt.outcome().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let mut known = attempts.iter().filter(|attempt| attempt.since() <= abi);
    known.find(|attempt| !is_refused(attempt)).map_or(Ok(()), |passed| {
        Err(Unavailable::because(format!(
            "the kernel took the rules and still allows {passed}, which none of them does"
        )))
    })
}

/// What needs a rule. The kernel asks at each open whether the file may be emptied later, and climbs to
/// the root of the file system where no rule says so, which makes opening a file half as dear again. So
/// that is left to permissions, but for root, whom they do not bind.
fn forbidden() -> BitFlags<AccessFs> {
    let all = AccessFs::from_all(KNOWN);
    if geteuid().is_root() { all } else { all & !AccessFs::Truncate }
}

fn restrict(rules: &[Rule], ports: Ports) -> Result<RestrictionStatus, landlock::RulesetError> {
    let mut handled =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(forbidden())?;
    handled = match ports {
        Ports::None => handled.handle_access(AccessNet::from_all(KNOWN))?,
        Ports::OfOthers => handled.handle_access(AccessNet::BindTcp)?,
        Ports::All => handled,
    };
    let mut created = handled.scope(Scope::from_all(KNOWN))?.create()?;
    for Rule { path, access, .. } in rules {
        if let Ok(fd) = PathFd::new(path) {
            created = created.add_rule(PathBeneath::new(fd, *access))?;
        }
    }
    created.restrict_self()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn reach(paths: &[(&Path, Use)]) -> AllowedPaths {
        let mut reach = AllowedPaths::default();
        paths.iter().for_each(|(path, used)| reach.add(path, *used));
        reach
    }

    #[test]
    fn a_file_is_reached_by_its_folder_and_by_that_of_where_it_leads() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().canonicalize().expect("there").join(name);
        fs::create_dir(at("live")).expect("made");
        fs::create_dir(at("archive")).expect("made");
        fs::write(at("archive/cert1"), "").expect("written");
        symlink("../archive/cert1", at("live/cert")).expect("linked");
        let paths = |rules: Vec<Rule>| rules.into_iter().map(|rule| rule.path).collect::<Vec<_>>();
        let rules = paths(rules_of(&at("live/cert"), Use::Read));
        assert_eq!(rules, [at("live"), at("archive")]);
        assert_eq!(paths(rules_of(&at("live/new.log"), Use::Write)), [at("live")]);
        assert_eq!(paths(rules_of(Path::new("/dev/null"), Use::Write)), [Path::new("/dev/null")]);
        // Never all that there is.
        assert_eq!(paths(rules_of(Path::new("/hosts.x"), Use::Read)), [Path::new("/hosts.x")]);
    }

    #[test]
    fn rules_that_are_not_enforced_are_not_claimed() {
        let attempts = Attempt::beyond(&[]);
        assert!(attempts.contains(&Attempt::List("/")) && attempts.contains(&Attempt::Listen));
        let claimed = refused(&attempts, ABI::V1).expect_err("nothing binds this thread");
        assert!(claimed.reason.contains("still allows reading /"), "{claimed}");
        let claimed = refused(&[Attempt::Listen], ABI::V4).expect_err("nothing binds this thread");
        assert!(claimed.reason.contains("listening on a TCP port"), "{claimed}");
        // A kernel that knows no ports allows all of them.
        assert_eq!(refused(&[Attempt::Listen], ABI::V3), Ok(()));
    }

    #[test]
    fn what_the_rules_allow_is_not_tried() {
        let reach =
            reach(&[(Path::new("/"), Use::ReadBelow), (Path::new("/dev/null"), Use::Write)]);
        assert_eq!(Attempt::beyond(&reach.rules()), [Attempt::Listen]);
    }

    #[test]
    fn what_takes_the_place_of_a_folder_is_reached_where_it_lies_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().canonicalize().expect("there").join(name);
        for name in ["releases/1/public", "releases/2/public", "archive/a", "archive/a-1", "live"] {
            fs::create_dir_all(at(name)).expect("made");
        }
        fs::write(at("archive/a/cert1"), "").expect("written");
        fs::write(at("archive/a-1/cert1"), "").expect("written");
        symlink("releases/1", at("current")).expect("linked");
        symlink(at("archive/a"), at("live/a")).expect("linked");
        symlink("cert1", at("archive/a/cert")).expect("linked");
        let site = at("current/public");
        let cert = at("live/a/cert");
        let mut paths = AllowedPaths::default();
        assert_eq!(paths.add_replaceable(&site, Use::ReadBelow), None);
        assert_eq!(paths.add_replaceable(&cert, Use::Read), None);
        let made = Confined { rules: paths.rules(), version: 0 };
        // A link that is turned, also where it stands in the middle of the path.
        for (link, target) in [("current", "releases/2"), ("live/a", "../archive/a-1")] {
            fs::remove_file(at(link)).expect("removed");
            symlink(target, at(link)).expect("linked");
        }
        symlink("cert1", at("archive/a-1/cert")).expect("linked");
        let later = reach(&[(&site, Use::ReadBelow), (&cert, Use::Read)]);
        assert_eq!(made.lacks(&later), None);
        // A folder that is removed and made anew.
        fs::remove_dir_all(at("releases/2/public")).expect("removed");
        fs::create_dir(at("releases/2/public")).expect("made");
        assert_eq!(made.lacks(&later), None);
        let elsewhere = tempfile::tempdir().expect("a folder");
        fs::remove_file(at("current")).expect("removed");
        symlink(elsewhere.path(), at("current")).expect("linked");
        fs::create_dir(elsewhere.path().join("public")).expect("made");
        assert_eq!(made.lacks(&later), Some(site.as_path()));
    }

    #[test]
    fn no_folder_of_the_system_is_in_reach_for_what_lies_in_it() {
        let mut paths = AllowedPaths::default();
        for path in ["/usr/share", "/etc/hostname", "/"] {
            assert!(paths.add_replaceable(Path::new(path), Use::Read).is_some(), "{path}");
        }
        assert_eq!(paths.beside, Vec::<PathBuf>::new());
        assert!(is_everybodys(Path::new("/home/somebody")) && is_everybodys(Path::new("/var")));
        assert!(!is_everybodys(Path::new("/var/www")) && !is_everybodys(Path::new("/srv")));
    }

    #[test]
    fn what_a_later_reach_lacks_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["site", "site/sub", "logs"] {
            fs::create_dir(at(name)).expect("made");
        }
        let site = at("site");
        let log = at("logs/a");
        let made = reach(&[(&site, Use::ReadBelow), (&log, Use::Write)]);
        let made = Confined { rules: made.rules(), version: 0 };
        let sub = at("site/sub");
        let page = at("site/page");
        let within =
            reach(&[(&sub, Use::ReadBelow), (&page, Use::Read), (&at("logs/b"), Use::Write)]);
        assert_eq!(made.lacks(&within), None);
        let read = reach(&[(&log, Use::Read)]);
        let written = reach(&[(&page, Use::Write)]);
        assert_eq!(made.lacks(&read), Some(log.as_path()));
        assert_eq!(made.lacks(&written), Some(page.as_path()));
        let above = reach(&[(folder.path(), Use::ReadBelow)]);
        assert_eq!(made.lacks(&above), Some(folder.path()));
        fs::rename(&site, at("old")).expect("renamed");
        fs::create_dir(&site).expect("made");
        let replaced = reach(&[(&site, Use::ReadBelow)]);
        assert_eq!(made.lacks(&replaced), Some(site.as_path()));
    }
}
