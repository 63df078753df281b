//! `cargo xtask install --prefix DIR`: everything of pollux below one folder; `uninstall` removes it.
//!
//! The release binaries lay out its own pages, completions and C files; here they are put where
//! programs look for them. Nothing outside the prefix is written; with `DESTDIR` the prefix lies below that.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::installed::{self, at};

/// The packages with their programs, in the order in which they are built.
const PACKAGES: [(&str, &[&str]); 2] =
    [("pollux-cli", &["pollux"]), ("pollux-pool", &["pollux-pool", "tpbridge"])];

/// The library of `pollux run`, which comes with its program.
const PRELOADED: &str = "libpollux_preload.so";

/// Programs that have completions.
const COMPLETED: [&str; 2] = ["pollux", "pollux-pool"];

/// Shells with the file that each reads the completions of a program from.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "share/bash-completion/completions/", ""),
    ("zsh", "share/zsh/site-functions/_", ""),
    ("fish", "share/fish/vendor_completions.d/", ".fish"),
];

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
    let count = installed::put(&staged, &prefix)?;
    Ok((prefix, count))
}

/// Removes what [`install`] put below the same prefix. Says where, and how many files.
///
/// # Errors
/// A sentence: wrong arguments, nothing is installed there, a file that could not be removed.
pub(crate) fn uninstall(arguments: &[String]) -> Result<(PathBuf, usize), String> {
    let prefix = destination("uninstall", arguments)?;
    let count = installed::remove(&prefix)?;
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
    done(Command::new(bin.join("pollux")).arg("man").arg(prefix.join("share/man/man1")))?;
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
    let library = built.join(pollux_epoll_c::layout::BUILT_NAME);
    pollux_epoll_c::layout::lay_out(prefix, &library).map_err(|error| error.to_string())
}

/// Copies a program or a library. Beside and renamed: one that is in use keeps its file.
fn put(built: &Path, folder: &Path, name: &str) -> Result<(), String> {
    let copy = |path: &Path| std::fs::copy(built.join(name), path).map(drop);
    pollux_prefix::place(&folder.join(name), copy).map_err(|error| error.to_string())
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
}
