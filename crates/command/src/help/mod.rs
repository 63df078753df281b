//! What a command says below its flags: examples, environment, signals, exit codes.
//!
//! The same [`Section`]s become the end of `--help` ([`decorated`]) and sections of the manual page
//! ([`manual`]), so the two cannot differ. They are written in a text for all commands of a program
//! and come through [`Sections`]; here only their form is decided.

pub mod manual;

use clap::Command;

/// Columns of a help text, as clap's own.
const WIDTH_CHARS: usize = 100;

/// A part of what stands below the flags.
#[derive(Clone, Debug)]
pub struct Section {
    heading: &'static str,
    lines: Vec<&'static str>,
}

/// What the lines of a section are.
enum Body {
    /// Lines that stand as they are.
    Lines(Vec<&'static str>),
    /// Words, each with what it means.
    Rows(Vec<(&'static str, &'static str)>),
    /// Running text.
    Text(String),
}

/// Finds the sections of a command by its path, such as `pollux lab run`.
pub type Sections = fn(&str) -> Vec<Section>;

impl Section {
    /// Those of the command at `path` in a text, in its order:
    ///
    /// ```text
    /// = pollux load, pollux load merge
    /// == Examples
    /// | pollux load http://127.0.0.1:8080/     a line that stands as it is
    /// == Exit codes
    /// 0  done                                  two spaces behind a word, then what it means
    /// == What it does not do
    /// HTTP/2 and HTTP/3.                       running text, a paragraph in a line
    /// ```
    ///
    /// # Panics
    /// When a line stands below no heading.
    #[must_use]
    pub fn of(path: &str, texts: &'static str) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        let mut is_meant = false;
        for line in texts.lines().filter(|line| !line.is_empty()) {
            if let Some(paths) = line.strip_prefix("= ") {
                is_meant = paths.split(", ").any(|each| each == path);
            } else if is_meant {
                match line.strip_prefix("== ") {
                    Some(heading) => sections.push(Self { heading, lines: Vec::new() }),
                    None => sections.last_mut().expect("a heading above").lines.push(line),
                }
            }
        }
        sections
    }

    fn body(&self) -> Body {
        let lines = self.lines.iter().copied();
        let verbatim: Option<_> = lines.clone().map(|line| line.strip_prefix("| ")).collect();
        let rows: Option<_> = lines.map(|line| line.split_once("  ")).collect();
        match (verbatim, rows) {
            (Some(lines), _) => Body::Lines(lines),
            (None, Some(rows)) => Body::Rows(rows),
            (None, None) => Body::Text(self.lines.join(" ")),
        }
    }

    /// As it stands in a help text.
    fn help(&self) -> String {
        let body = match self.body() {
            Body::Lines(lines) => lines.iter().map(|line| format!("\n  {line}")).collect(),
            Body::Text(text) => format!("\n  {}", wrapped(&text, 2)),
            Body::Rows(rows) => {
                let name_chars = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
                let row = |(name, about): &(&str, &str)| {
                    format!("\n  {name:name_chars$}  {}", wrapped(about, name_chars + 4))
                };
                rows.iter().map(row).collect::<String>()
            }
        };
        format!("{}:{body}", self.heading)
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
    let is_example = |section: &&Section| section.heading == "Examples";
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
        let text = format!("= x\n== Signals\nSIGHUP  {}", "word ".repeat(30));
        let help = Section::of("x", text.leak())[0].help();
        let lines: Vec<_> = help.lines().collect();
        assert_eq!(lines[0], "Signals:");
        assert!(lines[1].starts_with("  SIGHUP  word word"), "{help}");
        assert!(lines[2].starts_with("          word"), "{help}");
        assert!(lines.iter().all(|line| line.len() <= WIDTH_CHARS), "{help}");
    }
}
