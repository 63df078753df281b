//! Flags of other programs that people try: whose they are, and what takes their place here.
//!
//! One table serves the answer to a wrong command line and the page docs/reference/other-tools.md. Flags that mean one
//! thing there and another here (`-q 100`) are looked for before the command line is read, all others when a flag is
//! not known.

use clap::Command;

use crate::did_you_mean;

const RUN: &str = "pollux run";

/// The table: the command, then a line for each thing of it, with the flags for it, whose they are (nobody's where none
/// is known), and what takes their place here: a flag, or words. The value behind a flag that pollux has as well tells
/// which program is meant.
const TABLE: &str = include_str!("foreign.txt");

/// A line of the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The command that it is for and those below, as a usage line has it: `pollux serve`.
    command: &'static str,
    /// Flags, and perhaps a [kind of value](VALUES).
    flags: &'static str,
    /// Programs, with commas between.
    of: &'static str,
    here: &'static str,
}

/// Kinds of values by which another program's flag is distinguished from the one here.
const VALUES: [(&str, IsTheirs); 3] = [("NUMBER", is_number), ("TIME", is_time), ("BODY", is_body)];
type IsTheirs = fn(&str) -> bool;

/// Every line of the table.
fn rows() -> impl Iterator<Item = Row> {
    let mut command = "";
    TABLE.lines().filter_map(move |line| {
        let mut cells = line.split('|').map(str::trim);
        let first = cells.next()?;
        let rest = (cells.next(), cells.next());
        let (Some(of), Some(here)) = rest else {
            command = first;
            return None;
        };
        Some(Row { command, flags: first, of, here })
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Digits and a unit behind them.
fn is_time(text: &str) -> bool {
    let unit = text.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
    unit.len() < text.len() && matches!(unit, "ms" | "s" | "m" | "h" | "min" | "sec")
}

/// JSON, a form, or a file of either.
fn is_body(text: &str) -> bool {
    text.starts_with(['{', '[', '<', '@', '"']) || text.contains('=')
}

/// `oha, hey` as whose flag it is: `oha's and hey's`.
fn owners(of: &str) -> String {
    let owner =
        |name: &str| if name.ends_with('s') { format!("{name}'") } else { format!("{name}'s") };
    let owners: Vec<String> = of.split(", ").map(owner).collect();
    match owners.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => owners.concat(),
    }
}

impl Row {
    fn flags(self) -> impl Iterator<Item = &'static str> {
        self.flags.split(' ').filter(|word| word.starts_with('-'))
    }

    /// Of a flag that is one of pollux as well: which values are meant for the other program.
    fn value(self) -> Option<IsTheirs> {
        let kind = self.flags.split(' ').find(|word| !word.starts_with('-'))?;
        VALUES.iter().find(|(name, _)| *name == kind).map(|(_, is_theirs)| *is_theirs)
    }

    /// Whose `flag` is, and what takes its place.
    fn answer(self, flag: &str) -> String {
        let here = if self.here.starts_with('-') {
            format!("the pollux flag is {}", self.here)
        } else {
            self.here.to_owned()
        };
        match self.of {
            "" => format!("{flag}: {here}"),
            of => format!("{flag} is {}; {here}", owners(of)),
        }
    }
}

/// What to say of a flag that the command called `path`, such as `pollux lab run`, does not have; nothing where
/// no other program has it either.
#[must_use]
pub fn answer(path: &str, flag: &str) -> Option<String> {
    let is_here = |row: &Row| {
        let rest = path.strip_prefix(row.command);
        row.flags().any(|known| known == flag)
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    rows().find(is_here).map(|row| row.answer(flag))
}

/// What to say of `words`, which stand behind the name of the program, where one of them is a flag that means
/// something else to another program, or has one dash where the flag of `command` has two. Nothing is said of lines
/// that could be right.
#[must_use]
pub fn misread(command: &Command, words: &[String]) -> Option<String> {
    let mut inner = command;
    let mut path = command.get_name().to_owned();
    let mut rest = words;
    while let Some((word, behind)) = rest.split_first()
        && let Some(found) = inner.find_subcommand(word)
    {
        (inner, rest) = (found, behind);
        path = format!("{path} {word}");
    }
    // Behind the first word without a dash the program that is run has its own flags.
    let is_run = path == RUN;
    for (at, word) in rest.iter().enumerate() {
        if word == "--" || (is_run && !word.starts_with('-')) {
            break;
        }
        if let Some(name) = with_one_dash(word) {
            let long = format!("--{name}");
            let is_own = inner.get_arguments().any(|arg| arg.get_long() == Some(name));
            match answer(&path, &long) {
                Some(answer) => return Some(answer),
                None if is_own => return Some(format!("{word}: expected two dashes, {long}")),
                None => {}
            }
        }
        let value = rest.get(at + 1).map_or("", String::as_str);
        let meant = |row: Row| {
            let is_meant = |flag: &&str| {
                let Some(is_theirs) = row.value() else {
                    // All words behind are the program's, so no flag of it is unknown.
                    return is_run && row.command == RUN && flag == word;
                };
                let attached = word.strip_prefix(flag).filter(|text| !text.is_empty());
                row.command == path
                    && (attached.is_some_and(is_theirs) || (flag == word && is_theirs(value)))
            };
            row.flags().find(is_meant).map(|flag| row.answer(flag))
        };
        if let Some(answer) = rows().find_map(meant) {
            return Some(answer);
        }
    }
    None
}

/// The name of a long flag behind one dash, as of Go's flags: `-duration=5s`.
fn with_one_dash(word: &str) -> Option<&str> {
    let name = word.strip_prefix('-')?.split('=').next()?;
    let is_name =
        name.len() > 2 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (is_name && !name.starts_with('-')).then_some(name)
}

/// Whether a flag that clap takes for similar is near enough to be meant.
#[must_use]
pub fn is_near(flag: &str, similar: &str) -> bool {
    let bare = |flag: &'_ str| flag.trim_start_matches('-').to_owned();
    !did_you_mean(&bare(flag), [&*bare(similar)]).is_empty()
}

/// The table as a page of the documentation has it.
#[must_use]
pub fn reference() -> String {
    let mut page = String::new();
    let mut command = "";
    for row in rows() {
        if row.command != command {
            command = row.command;
            page += &format!("\n## `{command}`\n\n| flag | of | here |\n|---|---|---|\n");
        }
        let flags: Vec<String> = row.flags().map(|flag| format!("`{flag}`")).collect();
        page += &format!("| {} | {} | {} |\n", flags.join(", "), row.of, row.here);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_one_of_the_table() {
        crate::kept("reference/other-tools.md", "flags", &reference()).expect("that of the table");
    }

    #[test]
    fn every_line_of_the_table_is_read_and_no_flag_is_there_twice() {
        let lines = TABLE.lines().filter(|line| line.contains('|'));
        assert_eq!(rows().count(), lines.count());
        let mut seen = std::collections::HashSet::new();
        for row in rows() {
            assert!(row.command.starts_with("pollux ") && !row.here.is_empty(), "{row:?}");
            assert!(row.flags().count() > 0 && row.of.split(", ").all(|of| of.trim() == of));
            assert!(row.flags().all(|flag| seen.insert((row.command, flag))), "{row:?} twice");
            let kinds = row.flags.split(' ').filter(|word| !word.starts_with('-')).count();
            assert_eq!(kinds, usize::from(row.value().is_some()), "{row:?}");
        }
    }

    #[test]
    fn owners_are_named_as_one_would_say_it() {
        for (of, owners_of) in [
            ("oha", "oha's"),
            ("oha, hey", "oha's and hey's"),
            ("ab, oha, other servers", "ab's, oha's and other servers'"),
        ] {
            assert_eq!(owners(of), owners_of);
        }
    }

    #[test]
    fn a_flag_with_another_meaning_is_known_by_its_value() {
        for (flag, theirs, ours) in [
            ("-q", &["100", "0.5"][..], &["http://h/", "", "-c"][..]),
            ("-t", &["5s", "500ms", "2m"], &["5", "many", "s"]),
            ("-d", &["{\"a\":1}", "@file", "a=b"], &["5s", "soon", "1m30s"]),
        ] {
            let is_it = |row: &Row| row.flags().eq([flag]) && row.value().is_some();
            let is_theirs = rows().find(is_it).and_then(Row::value).expect("it has a value");
            assert!(theirs.iter().all(|value| is_theirs(value)), "{flag}");
            assert!(!ours.iter().any(|value| is_theirs(value)), "{flag}");
        }
    }

    #[test]
    fn only_a_typing_error_is_taken_for_one() {
        for (flag, similar) in [
            ("--latency", "--rate"),
            ("--qps", "--cpus"),
            ("--vus", "--cpus"),
            ("--data", "--duration"),
            ("--no-tui", "--no-resumption"),
            ("--http-version", "--version"),
            ("--upstream", "--upstream-idle-max"),
        ] {
            assert!(!is_near(flag, similar), "{flag}");
        }
        assert!(is_near("--blcoks", "--blocks") && is_near("--conections", "--connections"));
    }
}
