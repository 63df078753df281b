//! `pollux pool` and `pollux fld`, which are another program: words are handed over to it, and it is asked for its
//! manual pages and for what completions are made of. Nothing here knows what a pool is.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use pollux_host::{find_program_beside, own_folder};
use pollux_settings::command::outline::Outline;
use pollux_settings::command::output;

/// The program of `pollux pool` and `pollux fld`, as git has them for its commands: looked for beside the file of this
/// program first, then in PATH. It takes the place of this process, so its exit code and the signals that it gets are
/// its own.
const POOL: &str = "pollux-pool";

/// The commands that are its.
const POOL_WORD: &str = "pool";
const FIELDS_WORD: &str = "fld";

/// Runs the program in the place of this one where the first of `words` is its command. Returns where
/// another one is meant, where there is no such program, and, with a failure, where it cannot be run.
pub(super) fn hand_over(words: &[OsString]) -> Option<output::Failure> {
    let mut own = words.to_vec();
    // `pollux help pool start` is the help of that program.
    let at = usize::from(words.first()? == "help");
    let is_of_pool = words.get(at)? == POOL_WORD;
    if is_of_pool {
        drop(own.remove(at));
    } else if words[at] != FIELDS_WORD {
        return None;
    }
    let program = find_program_beside(POOL)?;
    let mut command = Command::new(&program);
    if !is_of_pool {
        // Its help and its errors show the command as it was called.
        command.arg0("pollux");
    }
    let error = command.args(own).exec();
    Some(output::Failure::failed(format!("{} could not be run: {error}", program.display())))
}

/// What is said where the program is needed and missing.
pub(super) fn is_missing() -> output::Failure {
    let own = own_folder().map_or_else(
        || "beside this program".to_owned(),
        |folder| format!("in {}, where this program is,", folder.display()),
    );
    output::Failure::failed(format!(
        "{POOL}, the program of `pollux pool` and `pollux fld`, was found neither {own} nor in \
         PATH; in the sources of pollux, build it with `cargo build --release -p {POOL}`, or install \
         both with `cargo xtask install --prefix DIR`"
    ))
}

/// The command line with the commands of that program, as it says that they are; without them where it is missing.
pub(super) fn with_its_commands(command: clap::Command) -> clap::Command {
    let Some(program) = find_program_beside(POOL) else { return command };
    let printed = Command::new(&program).arg("outline").output();
    let printed = printed.map(|output| output.stdout).unwrap_or_default();
    let Ok(outlines) = serde_json::from_slice::<Vec<Outline>>(&printed) else {
        output::remark(&format!(
            "{} is of another version: its commands are not completed",
            program.display()
        ));
        return command;
    };
    outlines.into_iter().map(Outline::command).fold(command, |command, inner| {
        let name = inner.get_name().to_owned();
        command.mut_subcommand(name, |_| inner)
    })
}

/// Whether the manual page with this name is that program's.
pub(super) fn has_page(name: &str) -> bool {
    [POOL_WORD, FIELDS_WORD].iter().any(|word| name.strip_prefix("pollux-") == Some(word))
}

/// Has that program write its manual pages into `folder`; a remark where it is missing.
pub(super) fn write_pages(folder: &Path) -> Result<(), output::Failure> {
    let Some(program) = find_program_beside(POOL) else {
        output::remark(&format!("{POOL} was not found: its manual pages are left out"));
        return Ok(());
    };
    let failed = |what: String| output::Failure::failed(format!("{}: {what}", program.display()));
    let ended = Command::new(&program).arg("man").arg(folder).status();
    match ended.map_err(|error| failed(error.to_string()))? {
        status if status.success() => Ok(()),
        status => Err(failed(format!("its manual pages were not written: {status}"))),
    }
}
