//! Developer commands: `cargo xtask NAME`. Nothing here is part of the product.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

use std::path::Path;
use std::process::{Command, ExitCode};

mod aarch64;
#[cfg(test)]
mod circles;
mod container;
mod install;
mod instructions;
mod layers;
mod names;
mod package;
mod texts;

const HELP: &str = "\
cargo xtask layers   check that a crate uses only crates of the layers below its own
cargo xtask names    check that no public type name stands in more than three crates without a reason
cargo xtask phrases  check that no text has a phrase that docs/glossary.md replaces
cargo xtask install --prefix DIR
                     build for release; put programs, C libraries, headers, pages, completions there,
                     below DESTDIR where that is set
cargo xtask uninstall --prefix DIR
                     remove what install put there
cargo xtask package [deb] [static] [oci]
                     build packages into target/package, all three or those named; unpack and start each
cargo xtask aarch64  check that what is installed compiles for aarch64
cargo xtask container [--user] [cargo test arguments] [NAME...] [-- arguments of the programs]
                     run the tests of the workspace, or those named, in a container with the usual filter,
                     as root or as an ordinary user; needs root and runc
cargo xtask bless    write the generated pages of docs/, the transcripts of the servers and the answers to wrong
                     command lines anew
cargo xtask instructions
                     count the instructions of requests to the sessions of the servers, by valgrind: a change may cost
                     half a percent
cargo xtask ci       run what the CI runs, without installing anything";

fn main() -> ExitCode {
    let name = std::env::args().nth(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    match name.as_deref() {
        Some("layers") => check("the layers hold", layers::breaches(root)),
        Some("names") => check("no type name stands in too many crates", names::wrong(root)),
        Some("phrases") => check("no phrase of the list", texts::wrong(root)),
        Some("install") => {
            ended(install::install(root, &arguments()).map(|(prefix, count)| {
                format!("{count} files installed below {}", prefix.display())
            }))
        }
        Some("uninstall") => ended(
            install::uninstall(&arguments())
                .map(|(prefix, count)| format!("{count} files removed below {}", prefix.display())),
        ),
        Some("package") => ended(package::package(root, &arguments())),
        Some("aarch64") => ended(aarch64::check(root)),
        Some("container") => ended(container::test(root, &arguments())),
        Some("bless") => bless(root),
        Some("instructions") => ended(instructions::count(root)),
        Some("ci") => run(Command::new("bash").arg(".ci/run").current_dir(root)),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{HELP}");
            ExitCode::from(2)
        }
    }
}

/// The tests that compare a page of docs/ with the table that it is made from, a transcript with what is played,
/// or sentences with what the program says; with `POLLUX_BLESS` they write it.
const PAGES: [&str; 7] = [
    "-p pollux-settings -p pollux-server -p pollux-lab -p pollux-cli --lib --bins the_page_in_docs",
    "-p pollux-server --lib the_blessed_file",
    "-p pollux-server --test proxies in_the_documentation",
    "-p pollux-server --test transcripts transcripts_say",
    "-p pollux-poller --test conformance differences",
    "-p pollux-epoll-c --test deviations",
    "-p pollux-cli --test commands the_blessed_file",
];

fn bless(root: &Path) -> ExitCode {
    for tests in PAGES {
        let mut command = cargo();
        command.args(["test", "--quiet"]).args(tests.split(' ')).env("POLLUX_BLESS", "1");
        if run(command.current_dir(root)) != ExitCode::SUCCESS {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn arguments() -> Vec<String> {
    std::env::args().skip(2).collect()
}

fn ended(outcome: Result<String, String>) -> ExitCode {
    match outcome {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// cargo as the shell of the user would start it.
///
/// `cargo run` gives this program its own package in variables. Build scripts look at some (that of
/// ring at CARGO_MANIFEST_DIR), so that with them half of the workspace would be compiled again.
fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| text.starts_with(start)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// Prints what is `wrong`, or `fine` where nothing is.
fn check(fine: &str, wrong: Result<Vec<String>, String>) -> ExitCode {
    match wrong {
        Ok(wrong) if wrong.is_empty() => {
            println!("{fine}");
            ExitCode::SUCCESS
        }
        Ok(wrong) => {
            wrong.iter().for_each(|one| eprintln!("{one}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}: {error}", command.get_program().to_string_lossy());
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_does_not_inherit_the_package_that_starts_it() {
        // A test has these variables, as `cargo run` has.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let cargo = cargo();
        let removed: Vec<_> = cargo.get_envs().filter(|(_, value)| value.is_none()).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            assert!(removed.iter().any(|(removed, _)| *removed == name), "{name}: {removed:?}");
        }
        assert!(removed.iter().all(|(name, _)| *name != "CARGO_HOME"), "{removed:?}");
    }
}
