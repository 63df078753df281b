//! What every program of pollux has beside its work: a version with its commit, the commands that write its texts, and the end of
//! its `main`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, FromArgMatches, Subcommand};

use super::help::{self, Sections};
use super::output::{self, Failure};

/// The version with the commit that was built, where the build knew it: `option_env!("POLLUX_COMMIT")` of the program, as only
/// programs are built anew for another commit.
#[must_use]
pub fn long_version(version: &str, commit: Option<&str>) -> String {
    commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
}

/// The commands that write texts of the command line itself.
#[derive(Debug, Subcommand)]
pub enum TextCommand {
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder, created where it is missing
        folder: PathBuf,
    },
}

impl TextCommand {
    /// Hides them in the help of `command`: of a program that people rarely start themselves.
    #[must_use]
    pub fn hidden(command: Command) -> Command {
        let hide = |text: Command| text.hide(true);
        command.mut_subcommand("completions", hide).mut_subcommand("man", hide)
    }

    /// Writes the text of the program `name`, whose command line this is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(
        &self,
        mut command: Command,
        name: &str,
        sections: Sections,
    ) -> Result<ExitCode, Failure> {
        match self {
            Self::Completions { shell } => help::completions(*shell, command, name),
            Self::Man { folder } => {
                command.build();
                help::write_pages(folder, &help::manual_pages(&command, sections))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Does what the command line says, or what is due where it is wrong or asks for help; an error is printed.
pub fn main<Cli: FromArgMatches>(
    mut command: Command,
    run: impl FnOnce(Cli) -> Result<ExitCode, Failure>,
) -> ExitCode {
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let ran = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(cli),
        Err(error) => output::answer(error, &mut command),
    };
    ended(ran)
}

/// The exit code of a program; an error is printed.
pub fn ended(ran: Result<ExitCode, Failure>) -> ExitCode {
    ran.unwrap_or_else(|failure| {
        output::error(&failure.message);
        failure.code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_its_commit_where_it_is_known() {
        assert_eq!(long_version("0.1.0", None), "0.1.0");
        assert_eq!(long_version("0.1.0", Some("abc")), "0.1.0 (abc)");
    }

    #[test]
    fn hidden_commands_are_known_all_the_same() {
        let command = TextCommand::hidden(TextCommand::augment_subcommands(Command::new("x")));
        assert!(command.get_subcommands().all(Command::is_hide_set));
        let matches = command.try_get_matches_from(["x", "man", "pages"]).expect("it is known");
        let text = TextCommand::from_arg_matches(&matches).expect("one of them");
        assert!(matches!(text, TextCommand::Man { folder } if folder.ends_with("pages")));
    }
}
