//! `cargo xtask install --prefix DIR`: everything of pollux below one folder; `uninstall` removes it.
//!
//! The release binaries lay out its own pages, completions and C files; here they are put where
//! programs look for them. Nothing outside the prefix is written; with `DESTDIR` the prefix lies below that.
//! A file appears whole under its name, so programs that run keep theirs. One list below the prefix names
//! what was installed: files that an earlier version had and this one has not are removed, and what the
//! list does not name is never touched.

use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_xatmi_c::prefix::{Library, Package, place};

/// The packages with their programs, in the order in which they are built.
const PACKAGES: [(&str, &[&str]); 4] = [
    ("pollux-cli", &["pollux"]),
    ("pollux-pool", &["pollux-pool", "tpbridge"]),
    ("pollux-agent", &["pollux-agent"]),
    ("pollux-acme", &["pollux-acme"]),
];

/// The library of `pollux run`, which comes with its program.
const PRELOADED: &str = "libpollux_preload.so";

/// Programs that have completions.
const COMPLETED: [&str; 4] = ["pollux", "pollux-pool", "pollux-agent", "pollux-acme"];

/// Shells with the file that each reads the completions of a program from.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "share/bash-completion/completions/", ""),
    ("zsh", "share/zsh/site-functions/_", ""),
    ("fish", "share/fish/vendor_completions.d/", ".fish"),
];

/// The epoll interface for C programs, as it is installed.
const EPOLL_INTERFACE: Package<'_> = Package {
    name: "pollux-epoll",
    description: "The epoll interface over any event mechanism, for C programs",
    version: env!("CARGO_PKG_VERSION"),
    headers: &[pollux_epoll_c::HEADER],
    soname: pollux_epoll_c::SONAME,
    link_names: &[pollux_epoll_c::LINK_NAME],
    archives: &[],
    other_names: &[],
};

/// Builds and installs below `DESTDIR` and the prefix; `arguments` are those after `install`. Says where,
/// and how many files.
///
/// # Errors
/// A sentence: wrong arguments, a build that failed, a file that could not be written.
pub(crate) fn install(root: &Path, arguments: &[String]) -> Result<(PathBuf, usize), String> {
    let prefix = destination("install", arguments)?;
    // Before the build, which takes minutes: a prefix that cannot be written is reported at once.
    create(&prefix.join("bin"))?;
    let staged = target(root).join("staged");
    stage(root, &staged)?;
    let count = put_tree(&staged, &prefix)?;
    Ok((prefix, count))
}

/// Removes what [`install`] put below the same prefix. Says where, and how many files.
///
/// # Errors
/// A sentence: wrong arguments, nothing is installed there, a file that could not be removed.
pub(crate) fn uninstall(arguments: &[String]) -> Result<(PathBuf, usize), String> {
    let prefix = destination("uninstall", arguments)?;
    let count = remove(&prefix)?;
    Ok((prefix, count))
}

/// Builds everything and lays it out below `prefix`, which is made anew.
pub(crate) fn stage(root: &Path, prefix: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(prefix) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(at(prefix)(error));
        }
        _ => {}
    }
    let bin = prefix.join("bin");
    create(&bin)?;
    let built = target(root).join("release");
    // One by one: together, dependencies would get the features that either asks for, and be built
    // again by the next `cargo build --release`.
    for (package, programs) in PACKAGES {
        let build = ["build", "--release", "--locked", "--package", package];
        done(crate::cargo().args(build).current_dir(root))?;
        programs.iter().try_for_each(|program| put(&built, &bin, program))?;
    }
    let library = prefix.join("lib/pollux");
    create(&library)?;
    put(&built.join("deps"), &library, PRELOADED)?;
    for program in ["pollux", "pollux-agent", "pollux-acme"] {
        done(Command::new(bin.join(program)).arg("man").arg(prefix.join("share/man/man1")))?;
    }
    for program in COMPLETED {
        for (shell, before, after) in COMPLETIONS {
            let path = prefix.join(format!("{before}{program}{after}"));
            create(path.parent().unwrap_or(prefix))?;
            let script = output(Command::new(bin.join(program)).args(["completions", shell]))?;
            std::fs::write(&path, script).map_err(at(&path))?;
        }
    }
    let library = built.join("deps/libpollux_xatmi_c.so");
    let mut pool = Command::new(bin.join("pollux-pool"));
    done(pool.arg("lay-out").arg(prefix).arg("--library").arg(library))?;
    let build = ["build", "--release", "--locked", "--package", "pollux-epoll-c"];
    done(crate::cargo().args(build).current_dir(root))?;
    let library = built.join(pollux_epoll_c::BUILT_NAME);
    EPOLL_INTERFACE.lay_out(prefix, &library, Library::Copied).map_err(|error| error.to_string())
}

/// Copies a program or a library. Beside and renamed: one that is in use keeps its file.
fn put(built: &Path, folder: &Path, name: &str) -> Result<(), String> {
    let copy = |path: &Path| std::fs::copy(built.join(name), path).map(drop);
    place(&folder.join(name), copy).map_err(|error| error.to_string())
}

/// Where the files of a prefix go: below `DESTDIR`, where that is set, as for packages.
fn destination(command: &str, arguments: &[String]) -> Result<PathBuf, String> {
    let prefix = prefix_of(command, arguments)?;
    Ok(match std::env::var_os("DESTDIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => below(Path::new(&folder), &prefix),
        None => prefix,
    })
}

fn below(folder: &Path, prefix: &Path) -> PathBuf {
    folder.join(prefix.strip_prefix("/").unwrap_or(prefix))
}

fn prefix_of(command: &str, arguments: &[String]) -> Result<PathBuf, String> {
    let path = match arguments {
        [flag, path] if flag == "--prefix" => path.as_str(),
        [only] => only.strip_prefix("--prefix=").unwrap_or_default(),
        _ => "",
    };
    if path.is_empty() {
        return Err(format!("cargo xtask {command}: expected --prefix DIR"));
    }
    std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
}

/// The folder that cargo builds in.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

pub(crate) fn create(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(at(folder))
}

pub(crate) fn done(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output();
    match output {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(format!("{program}: {}", output.status)),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// Below the prefix: the names of everything that was installed, one a line, this file too.
const LIST: &str = "share/pollux/installed-files";

/// The files and links below `folder`, as paths relative to it, sorted; without what lies in folders called
/// `target` or `.git`, which a tree of sources has and a staged one has not.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).map_err(at(&next))? {
            let entry = entry.map_err(at(&next))?;
            let path = entry.path();
            if entry.file_type().map_err(at(&path))?.is_dir() {
                let is_read = !path.ends_with("target") && !path.ends_with(".git");
                folders.extend(is_read.then_some(path));
            } else {
                found.push(path.strip_prefix(folder).expect("it lies there").to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Puts the tree `staged` below `prefix`, with its list.
fn put_tree(staged: &Path, prefix: &Path) -> Result<usize, String> {
    let mut names = files(staged)?;
    let before = listed(prefix).unwrap_or_default();
    for name in &names {
        let from = staged.join(name);
        let copied = place(&prefix.join(name), |path| match std::fs::read_link(&from) {
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
    let written = place(&prefix.join(LIST), |path| std::fs::write(path, &lines));
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

    #[test]
    fn a_prefix_that_cannot_be_made_is_reported_before_anything_is_built() {
        let words = ["--prefix".to_owned(), "/dev/null/prefix".to_owned()];
        let error = install(Path::new("/nowhere"), &words).expect_err("no folder");
        assert!(error.starts_with("/dev/null/prefix/bin: "), "{error}");
    }

    #[test]
    fn the_prefix_is_given_in_either_form_and_made_absolute() {
        let read = |words: &[&str]| {
            prefix_of("install", &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(read(&["--prefix", "/p"]), Ok(PathBuf::from("/p")));
        assert_eq!(read(&["--prefix=/p"]), Ok(PathBuf::from("/p")));
        assert!(read(&["--prefix", "p"]).expect("a path").is_absolute());
        assert_eq!(below(Path::new("/stage"), Path::new("/usr")), Path::new("/stage/usr"));
        for wrong in [&[][..], &["--prefix"], &["--prefix="], &["p"], &["--prefix", "p", "q"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

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
        assert_eq!(put_tree(first.path(), &prefix), Ok(5));
        let link = std::fs::read_link(prefix.join("lib/old/libx.so")).expect("a link stays one");
        assert_eq!(link, Path::new("libx.so.0"));
        std::fs::write(prefix.join("bin/other"), "not ours").expect("written");

        let second = stage(&[("bin/pollux", "two"), ("share/man/b", "b")]);
        assert_eq!(put_tree(second.path(), &prefix), Ok(3));
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
    fn a_program_is_built_with_what_pkg_config_says_of_the_epoll_interface() {
        if !["cc", "pkg-config"].into_iter().all(pollux_testing::has) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let tests = std::env::current_exe().expect("the own path");
        let built = tests.parent().expect("a folder").join(pollux_epoll_c::BUILT_NAME);
        EPOLL_INTERFACE.lay_out(folder.path(), &built, Library::Copied).expect("laid out");
        let mut asked = Command::new("pkg-config");
        asked.args(["--cflags", "--libs", EPOLL_INTERFACE.name]);
        asked.env("PKG_CONFIG_PATH", folder.path().join("lib/pkgconfig"));
        let flags = String::from_utf8(output(&mut asked).expect("flags")).expect("text");
        let source = folder.path().join("one.c");
        let program = folder.path().join("one");
        let text =
            "#include <pollux/epoll.h>\nint main(void) { return px_epoll_create1(0) < 0; }\n";
        std::fs::write(&source, text).expect("written");
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Werror", "-o"]).arg(&program).arg(&source);
        done(compiler.args(flags.split_whitespace())).expect("built");
        // It has no path of the library in it.
        done(Command::new(&program).env("LD_LIBRARY_PATH", folder.path().join("lib")))
            .expect("run");
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
