//! `cargo xtask install --prefix DIR`: everything of pollux below one folder.
//!
//! The release binaries lay out its own pages, completions and C files; here they are put where
//! programs look for them. Nothing outside the prefix is written.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// Builds and installs; `arguments` are those after `install`.
///
/// # Errors
/// A sentence: wrong arguments, a build that failed, a file that could not be written.
pub(crate) fn install(root: &Path, arguments: &[String]) -> Result<PathBuf, String> {
    let prefix = prefix_of(arguments)?;
    let bin = prefix.join("bin");
    // Before the build, which takes minutes: a prefix that cannot be written is told at once.
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
            create(path.parent().unwrap_or(&prefix))?;
            let script = output(Command::new(bin.join(program)).args(["completions", shell]))?;
            std::fs::write(&path, script).map_err(at(&path))?;
        }
    }
    let library = built.join("deps/libpollux_xatmi_c.so");
    let mut pool = Command::new(bin.join("pollux-pool"));
    done(pool.arg("lay-out").arg(&prefix).arg("--library").arg(library))?;
    let build = ["build", "--release", "--locked", "--package", "pollux-epoll-c"];
    done(crate::cargo().args(build).current_dir(root))?;
    let library = built.join(pollux_epoll_c::layout::BUILT_NAME);
    pollux_epoll_c::layout::lay_out(&prefix, &library).map_err(|error| error.to_string())?;
    Ok(prefix)
}

/// Copies a program or a library. Beside and renamed: one that is in use keeps its file.
fn put(built: &Path, folder: &Path, name: &str) -> Result<(), String> {
    let copy = |path: &Path| std::fs::copy(built.join(name), path).map(drop);
    pollux_prefix::place(&folder.join(name), copy).map_err(|error| error.to_string())
}

fn prefix_of(arguments: &[String]) -> Result<PathBuf, String> {
    let path = match arguments {
        [flag, path] if flag == "--prefix" => path.as_str(),
        [only] => only.strip_prefix("--prefix=").unwrap_or_default(),
        _ => "",
    };
    if path.is_empty() {
        return Err("cargo xtask install --prefix DIR: the folder is missing".to_owned());
    }
    std::path::absolute(path).map_err(|error| format!("{path}: {error}"))
}

/// The folder that cargo builds in.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

fn create(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(at(folder))
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn done(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

fn output(command: &mut Command) -> Result<Vec<u8>, String> {
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
    fn a_prefix_that_cannot_be_made_is_told_before_anything_is_built() {
        let words = ["--prefix".to_owned(), "/dev/null/prefix".to_owned()];
        let error = install(Path::new("/nowhere"), &words).expect_err("no folder");
        assert!(error.starts_with("/dev/null/prefix/bin: "), "{error}");
    }

    #[test]
    fn the_prefix_is_given_in_either_form_and_made_absolute() {
        let read = |words: &[&str]| {
            prefix_of(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(read(&["--prefix", "/p"]), Ok(PathBuf::from("/p")));
        assert_eq!(read(&["--prefix=/p"]), Ok(PathBuf::from("/p")));
        assert!(read(&["--prefix", "p"]).expect("a path").is_absolute());
        for wrong in [&[][..], &["--prefix"], &["--prefix="], &["p"], &["--prefix", "p", "q"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
