//! What stands below a prefix: put there from a staged tree, listed in one file, removed by that list.
//!
//! A file appears whole under its name, so programs that run keep theirs. Files that an earlier version
//! had and this one has not are removed. What the list does not name is never touched.

use std::path::{Component, Path, PathBuf};

/// Below the prefix: the names of everything that was installed, one a line, this file too.
const LIST: &str = "share/pollux/installed-files";

/// The files and links below `folder`, as paths relative to it, sorted.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).map_err(at(&next))? {
            let entry = entry.map_err(at(&next))?;
            let path = entry.path();
            if entry.file_type().map_err(at(&path))?.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).expect("it lies there").to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Puts the tree `staged` below `prefix`, with its list.
pub(crate) fn put(staged: &Path, prefix: &Path) -> Result<usize, String> {
    let mut names = files(staged)?;
    let before = listed(prefix).unwrap_or_default();
    for name in &names {
        let from = staged.join(name);
        let copied =
            pollux_prefix::place(&prefix.join(name), |path| match std::fs::read_link(&from) {
                Ok(target) => std::os::unix::fs::symlink(target, path),
                Err(_) => std::fs::copy(&from, path).map(drop),
            });
        copied.map_err(|error| error.to_string())?;
    }
    names.push(LIST.into());
    for old in before.iter().filter(|old| !names.contains(old)) {
        remove_file(prefix, old)?;
    }
    let lines: String = names.iter().map(|name| format!("{}\n", name.display())).collect();
    let written = pollux_prefix::place(&prefix.join(LIST), |path| std::fs::write(path, &lines));
    written.map_err(|error| error.to_string())?;
    Ok(names.len())
}

/// Removes what the list below `prefix` names, and folders that are empty then; says how many files.
pub(crate) fn remove(prefix: &Path) -> Result<usize, String> {
    let names = listed(prefix)?;
    let mut removed = 0;
    for name in &names {
        removed += usize::from(remove_file(prefix, name)?);
    }
    Ok(removed)
}

fn listed(prefix: &Path) -> Result<Vec<PathBuf>, String> {
    let path = prefix.join(LIST);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error}; nothing is removed without it", path.display()))?;
    let names: Vec<_> = text.lines().map(PathBuf::from).collect();
    let is_below = |name: &PathBuf| name.components().all(|c| matches!(c, Component::Normal(_)));
    match names.iter().find(|name| !is_below(name)) {
        None => Ok(names),
        Some(name) => {
            Err(format!("{}: \"{}\" leads out of the prefix", path.display(), name.display()))
        }
    }
}

/// Says whether it was there; removes the folders above it that are empty now.
fn remove_file(prefix: &Path, name: &Path) -> Result<bool, String> {
    let path = prefix.join(name);
    let was_there = match std::fs::remove_file(&path) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(at(&path)(error)),
    };
    for folder in name.ancestors().skip(1).take_while(|folder| *folder != Path::new("")) {
        // Not empty, or gone already.
        if std::fs::remove_dir(prefix.join(folder)).is_err() {
            break;
        }
    }
    Ok(was_there)
}

pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        folder
    }

    #[test]
    fn what_was_installed_is_removed_and_nothing_else() {
        let target = tempfile::tempdir().expect("a folder");
        let prefix = target.path().join("prefix");
        let first =
            stage(&[("bin/pollux", "one"), ("lib/old/libx.so.0", "x"), ("share/man/a", "a")]);
        std::os::unix::fs::symlink("libx.so.0", first.path().join("lib/old/libx.so"))
            .expect("made");
        assert_eq!(put(first.path(), &prefix), Ok(5));
        let link = std::fs::read_link(prefix.join("lib/old/libx.so")).expect("a link stays one");
        assert_eq!(link, Path::new("libx.so.0"));
        std::fs::write(prefix.join("bin/other"), "not ours").expect("written");

        let second = stage(&[("bin/pollux", "two"), ("share/man/b", "b")]);
        assert_eq!(put(second.path(), &prefix), Ok(3));
        let names: Vec<_> =
            files(&prefix).expect("read").iter().map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["bin/other", "bin/pollux", "share/man/b", LIST]);
        assert_eq!(std::fs::read_to_string(prefix.join("bin/pollux")).expect("read"), "two");

        assert_eq!(remove(&prefix), Ok(3));
        assert_eq!(files(&prefix), Ok(vec![PathBuf::from("bin/other")]));
        let error = remove(&prefix).expect_err("no list");
        assert!(
            error.contains(LIST) && error.ends_with("nothing is removed without it"),
            "{error}"
        );
    }

    #[test]
    fn a_list_that_leads_out_of_the_prefix_removes_nothing() {
        let folder = stage(&[("keep", "it"), ("prefix/bin/pollux", "p")]);
        let prefix = folder.path().join("prefix");
        for name in ["../keep", "/etc/passwd"] {
            let list = prefix.join(LIST);
            std::fs::create_dir_all(list.parent().expect("a folder")).expect("made");
            std::fs::write(&list, format!("bin/pollux\n{name}\n")).expect("written");
            let error = remove(&prefix).expect_err(name);
            assert!(error.ends_with(&format!("\"{name}\" leads out of the prefix")), "{error}");
            assert!(prefix.join("bin/pollux").exists() && folder.path().join("keep").exists());
        }
    }
}
