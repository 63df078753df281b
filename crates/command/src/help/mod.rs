//! What a command says below its flags: examples, environment, signals, exit codes.
//!
//! The same [`Section`]s become the end of `--help` ([`decorated`]) and sections of the manual page
//! ([`manual`]), so the two cannot differ. The texts of a command stand beside its flags and come
//! through [`Sections`]; here only their form is decided.

pub mod manual;

use clap::Command;

/// Columns of a help text, as clap's own.
const WIDTH_CHARS: usize = 100;

/// A part of what stands below the flags.
#[derive(Clone, Copy, Debug)]
pub enum Section {
    /// Commands to copy, line by line as they stand; words behind `#` say what they do.
    Examples(&'static str),
    /// What variables of the environment mean.
    Environment(&'static [(&'static str, &'static str)]),
    /// What signals do.
    Signals(&'static [(&'static str, &'static str)]),
    /// When the command ends with which code.
    ExitCodes(&'static [(&'static str, &'static str)]),
    /// Lines that stand as they are, below a heading.
    Lines(&'static str, &'static str),
    /// Running text below a heading.
    Text(&'static str, &'static str),
}

/// Finds the sections of a command by its path, such as `pollux lab run`.
pub type Sections = fn(&str) -> &'static [Section];

/// What a section holds.
enum Body {
    Rows(&'static [(&'static str, &'static str)]),
    Lines(&'static str),
    Text(&'static str),
}

impl Section {
    /// The heading in a help text.
    const fn heading(&self) -> &'static str {
        match self {
            Self::Examples(_) => "Examples",
            Self::Environment(_) => "Environment",
            Self::Signals(_) => "Signals",
            Self::ExitCodes(_) => "Exit codes",
            Self::Lines(heading, _) | Self::Text(heading, _) => heading,
        }
    }

    const fn body(&self) -> Body {
        match self {
            Self::Environment(rows) | Self::Signals(rows) | Self::ExitCodes(rows) => {
                Body::Rows(rows)
            }
            Self::Examples(lines) | Self::Lines(_, lines) => Body::Lines(lines),
            Self::Text(_, text) => Body::Text(text),
        }
    }

    /// As it stands in a help text.
    fn help(&self) -> String {
        let heading = self.heading();
        match self.body() {
            Body::Lines(lines) => {
                let lines = lines.lines().map(|line| format!("\n  {line}"));
                format!("{heading}:{}", lines.collect::<String>())
            }
            Body::Text(text) => format!("{heading}:\n  {}", wrapped(text, 2)),
            Body::Rows(rows) => {
                let name_chars = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
                let row = |(name, about): &(&str, &str)| {
                    format!("\n  {name:name_chars$}  {}", wrapped(about, name_chars + 4))
                };
                format!("{heading}:{}", rows.iter().map(row).collect::<String>())
            }
        }
    }
}

/// Breaks a text into lines that stand `indent_chars` from the left; the first is not indented.
fn wrapped(text: &str, indent_chars: usize) -> String {
    let mut lines = String::new();
    let mut column = indent_chars;
    for word in text.split_whitespace() {
        let chars = word.chars().count();
        if column == indent_chars {
        } else if column + 1 + chars > WIDTH_CHARS {
            lines += &format!("\n{:indent_chars$}", "");
            column = indent_chars;
        } else {
            lines.push(' ');
            column += 1;
        }
        lines += word;
        column += chars;
    }
    lines
}

/// The command line with its help texts: `-h` ends with examples, `--help` with everything.
pub fn decorated(command: Command, sections: Sections) -> Command {
    let name = command.get_name().to_owned();
    below(command, &name, sections)
}

/// Gives the command at `path`, and those below it, their sections.
fn below(command: Command, path: &str, sections_of: Sections) -> Command {
    let sections = sections_of(path);
    let help = |sections: &mut dyn Iterator<Item = &Section>| {
        sections.map(Section::help).collect::<Vec<_>>().join("\n\n")
    };
    let is_example = |section: &&Section| matches!(section, Section::Examples(_));
    let short = help(&mut sections.iter().filter(is_example));
    let long = help(&mut sections.iter());
    let command = if short == long { command } else { command.after_long_help(long) };
    command.after_help(short).mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        below(inner, &path, sections_of)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hang_below_their_text() {
        let words = "word ".repeat(30);
        let rows: &'static [_] = Box::leak(Box::new([("SIGHUP", &*words.leak())]));
        let help = Section::Signals(rows).help();
        let lines: Vec<_> = help.lines().collect();
        assert_eq!(lines[0], "Signals:");
        assert!(lines[1].starts_with("  SIGHUP  word word"), "{help}");
        assert!(lines[2].starts_with("          word"), "{help}");
        assert!(lines.iter().all(|line| line.len() <= WIDTH_CHARS), "{help}");
    }
}
