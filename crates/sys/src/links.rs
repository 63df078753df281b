//! Symbolic links that are followed by hand: where it matters what a path leads to, before anything is opened or made.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Most links of a path that are followed, as in the kernel (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// The path itself, what it leads to if it is a link, what that leads to, and so on, `LINKS_MAX` of them at most. Links in
/// the folders before the last name are left as they stand.
pub fn hops(path: &Path) -> impl Iterator<Item = PathBuf> {
    let hops = std::iter::successors(Some(path.to_owned()), |at| target(at));
    hops.take(LINKS_MAX + 1)
}

/// The last of these [`hops`]: what is opened by this path, or made where nothing is there.
///
/// # Errors
/// `ELOOP`: it is a link still.
pub fn end(path: &Path) -> Result<PathBuf, Errno> {
    let last = hops(path).last().expect("the path itself is one");
    if last.is_symlink() { Err(Errno::LOOP) } else { Ok(last) }
}

/// Every link that the kernel meets on the way along an absolute path, those that stand in targets of others too.
#[must_use]
pub fn on_the_way(path: &Path) -> Vec<PathBuf> {
    let mut met = Vec::new();
    let mut rest: Vec<OsString> = path.iter().rev().map(OsString::from).collect();
    let mut at = PathBuf::new();
    while let Some(part) = rest.pop() {
        match part.as_bytes() {
            b"." => continue,
            b".." => {
                at.pop();
                continue;
            }
            _ => {}
        }
        let next = at.join(&part);
        match next.read_link() {
            Ok(target) if met.len() < LINKS_MAX => {
                met.push(next);
                // An absolute target begins anew by its first part.
                rest.extend(target.iter().rev().map(OsString::from));
            }
            _ => at = next,
        }
    }
    met
}

fn target(link: &Path) -> Option<PathBuf> {
    let target = link.read_link().ok()?;
    // Joined with one that is absolute it is that one.
    Some(link.parent().map_or_else(|| target.clone(), |folder| folder.join(&target)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_ends_where_its_links_lead_whether_something_is_there_or_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        symlink("b", at("a")).expect("a link");
        symlink(at("c"), at("b")).expect("a link");
        assert_eq!(hops(&at("a")).collect::<Vec<_>>(), [at("a"), at("b"), at("c")]);
        assert_eq!(end(&at("a")), Ok(at("c")));
        assert_eq!(end(&at("c")), Ok(at("c")));
    }

    #[test]
    fn as_many_links_are_followed_as_the_kernel_does_and_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |number: usize| folder.path().join(number.to_string());
        for number in 0..=LINKS_MAX {
            symlink(at(number + 1), at(number)).expect("a link");
        }
        std::fs::write(at(LINKS_MAX + 1), "").expect("a file");
        assert_eq!(end(&at(1)), Ok(at(LINKS_MAX + 1)));
        assert!(at(1).metadata().is_ok(), "the kernel follows as many");
        assert_eq!(end(&at(0)), Err(Errno::LOOP));
        assert!(at(0).metadata().is_err(), "nor does the kernel");
        symlink("loop", folder.path().join("loop")).expect("a link");
        assert_eq!(end(&folder.path().join("loop")), Err(Errno::LOOP));
    }

    #[test]
    fn links_in_folders_and_in_targets_are_met_on_the_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        let at = |name: &str| folder.join(name);
        std::fs::create_dir(at("real")).expect("a folder");
        symlink("real", at("named")).expect("a link");
        symlink("./../named/file", at("real/link")).expect("a link");
        assert_eq!(on_the_way(&at("named/link")), [at("named"), at("real/link"), at("named")]);
        assert_eq!(on_the_way(&at("real/file")), [] as [PathBuf; 0]);
    }
}
