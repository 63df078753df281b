//! What a command says below its flags: examples, environment, signals, exit codes; completion scripts and
//! manual pages, made from the command line itself.
//!
//! The same [`Section`]s become the end of `--help` ([`decorated`]) and sections of the manual page
//! ([`manual_pages`]), so the two cannot differ. They are written in a text for all commands of a program
//! and come through [`Sections`]; here only their form is decided.
//!
//! Manual pages: a command and its [`Section`]s in the man macros of roff (groff_man(7)).
//!
//! Written here and not by a library, because what is copied from a page has to be what was meant:
//! each minus sign, quote and tilde is named (`escaped`), examples are never filled, and no word
//! is hyphenated.

use std::path::Path;
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Arg, Command};

use crate::command::output::{self, Failure};

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

/// The heading of options that have none of their own.
const OPTIONS: &str = "Options";

/// The pages of a command and all below it that are not hidden, each with its name, such as
/// `pollux-lab-run`. `command` has to be built.
pub fn manual_pages(command: &Command, sections: Sections) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    collect(command, &[], sections, &mut pages);
    pages
}

fn collect(
    command: &Command,
    above: &[&Command],
    sections: Sections,
    pages: &mut Vec<(String, String)>,
) {
    let path: Vec<_> = above.iter().copied().chain([command]).collect();
    pages.push((name_of(&path), page(&path, sections)));
    for inner in visible(command) {
        collect(inner, &path, sections, pages);
    }
}

/// The commands below one that have a page.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn name_of(path: &[&Command]) -> String {
    path.iter().map(|command| command.get_name()).collect::<Vec<_>>().join("-")
}

/// The page of the last command of `path`, which the others are above.
fn page(path: &[&Command], sections: Sections) -> String {
    let (command, above) = path.split_last().expect("a command");
    let called: Vec<_> = path.iter().map(|command| command.get_name()).collect();
    let name = name_of(path);
    let called = called.join(" ");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        ".TH \"{}\" \"1\" \"\" \"pollux {version}\" \"pollux\"\n.nh\n.nr HY 0\n.ad l\n",
        escaped(&name.to_uppercase()),
    );
    page += &format!(".SH NAME\n{} \\- {}\n", escaped(&name), running(&about));
    page += &format!(".SH SYNOPSIS\n{}", synopsis(command, &called));
    page += &format!(".SH DESCRIPTION\n{}.\n", running(about.trim_end_matches('.')));
    page += &arguments(command);
    page += &options(command);
    if visible(command).next().is_some() {
        page += ".SH COMMANDS\n";
        for inner in visible(command) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            page += &format!(".TP\n{}\n{}\n", bold(inner.get_name()), running(&about));
        }
    }
    let mut sections = sections(&called);
    sections.sort_by_key(Section::place);
    sections.iter().for_each(|section| page += &section.roff());
    page + &see_also(command, above)
}

impl Section {
    /// Where it stands among the sections of a page (man-pages(7)).
    fn place(&self) -> usize {
        const LAST: [&str; 4] = ["Signals", "Exit codes", "Environment", "Examples"];
        LAST.iter().position(|heading| *heading == self.heading).map_or(0, |place| place + 1)
    }

    fn roff(&self) -> String {
        // What stands in brackets behind a heading is a sentence of its own below it.
        let (heading, remark) = self.heading.split_once(" (").unwrap_or((self.heading, ""));
        let heading = match heading {
            "Exit codes" => "EXIT STATUS".to_owned(),
            heading => heading.to_uppercase(),
        };
        let remark = match remark.trim_end_matches(')') {
            "" => String::new(),
            remark => sentence(remark),
        };
        let body = match self.body() {
            Body::Lines(lines) => format!(".PP\n{}", verbatim(&lines)),
            Body::Text(text) => format!("{}\n", running(&text)),
            Body::Rows(rows) => {
                let row = |(name, about): &(&str, &str)| {
                    format!(".TP\n{}\n{}\n", bold(name), running(about))
                };
                rows.iter().map(row).collect()
            }
        };
        format!(".SH \"{}\"\n{remark}{body}", escaped(&heading))
    }
}

/// How the command is called, with the values of its flags.
fn synopsis(command: &Command, called: &str) -> String {
    let mut parts: Vec<String> = shown(command)
        .filter(|arg| !arg.is_positional())
        .map(|arg| {
            if arg.is_required_set() {
                flag(arg, arg.get_short().is_none())
            } else {
                format!("[{}]", flag(arg, arg.get_short().is_none()))
            }
        })
        .collect();
    parts.extend(shown(command).filter(|arg| arg.is_positional()).map(|arg| {
        let dots = if is_repeated(arg) { "\\&..." } else { "" };
        if arg.is_required_set() {
            format!("{}{dots}", italic(&value(arg)))
        } else {
            format!("[{}]{dots}", italic(&value(arg)))
        }
    }));
    let mut text = format!(".SY \"{}\"\n", escaped(called));
    parts.iter().for_each(|part| text += &format!("{part}\n"));
    text += ".YS\n";
    if visible(command).next().is_some() {
        let call = format!("{}\n[{}]\n.YS\n", italic("command"), italic("argument"));
        let also = format!(".SY \"{}\"\n{call}", escaped(called));
        // A command that does nothing by itself has only the second form.
        text = if command.is_subcommand_required_set() { also } else { text + &also };
    }
    text
}

fn arguments(command: &Command) -> String {
    let mut text = String::new();
    for arg in shown(command).filter(|arg| arg.is_positional()) {
        text += &format!(".TP\n{}\n{}\n", italic(&value(arg)), running(&help(arg)));
    }
    if text.is_empty() { text } else { format!(".SH ARGUMENTS\n{text}") }
}

/// The options, below their headings in the order of the help.
fn options(command: &Command) -> String {
    let heading_of = |arg: &Arg| arg.get_help_heading().unwrap_or(OPTIONS).to_owned();
    let args: Vec<_> = shown(command).filter(|arg| !arg.is_positional()).collect();
    let mut headings = vec![OPTIONS.to_owned()];
    for heading in args.iter().map(|arg| heading_of(arg)) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut text = ".SH OPTIONS\n".to_owned();
    for heading in &headings {
        if heading != OPTIONS {
            text += &format!(".SS \"{}\"\n", escaped(heading));
        }
        for arg in args.iter().filter(|arg| heading_of(arg) == *heading) {
            let short = arg.get_short().filter(|_| arg.get_long().is_some());
            let short = short.map(|short| format!("{}, ", bold(&format!("-{short}"))));
            let names = format!("{}{}", short.unwrap_or_default(), flag(arg, true));
            text += &format!(".TP\n{names}\n{}", paragraphs(&help(arg)));
            let values = arg.get_possible_values();
            let with_help: Vec<_> = values.iter().filter(|v| v.get_help().is_some()).collect();
            if !with_help.is_empty() && !arg.is_hide_possible_values_set() {
                text += ".RS\n";
                for value in with_help {
                    let about = value.get_help().map(ToString::to_string).unwrap_or_default();
                    text += &format!(".TP\n{}\n{}\n", bold(value.get_name()), running(&about));
                }
                text += ".RE\n";
            }
        }
    }
    text
}

/// Text, and below it a list where it has lines such as `- name: what it means`.
fn paragraphs(help: &str) -> String {
    let is_row = |line: &&str| line.starts_with("- ");
    let rows: Vec<_> = help.lines().filter(is_row).collect();
    let text = help.lines().filter(|line| !is_row(line)).collect::<Vec<_>>().join(" ");
    let mut page = format!("{}\n", running(&text));
    if !rows.is_empty() {
        page += ".RS\n";
        for row in rows {
            let (name, about) = row[2..].split_once(": ").unwrap_or((&row[2..], ""));
            page += &format!(".TP\n{}\n{}\n", bold(name), running(about));
        }
        page += ".RE\n";
    }
    page
}

/// The page above and those beside and below this one.
fn see_also(command: &Command, above: &[&Command]) -> String {
    let below = |path: &[&Command], command: &Command| -> Vec<String> {
        let name = |inner: &Command| format!("{}-{}", name_of(path), inner.get_name());
        visible(command).map(name).collect()
    };
    let own: Vec<_> = above.iter().copied().chain([command]).collect();
    let mut names = Vec::new();
    if let Some(parent) = above.last() {
        names.push(name_of(above));
        names.extend(below(above, parent));
    }
    names.extend(below(&own, command));
    names.retain(|name| *name != name_of(&own));
    let links: Vec<_> = names.iter().map(|name| format!("{}(1)", bold(name))).collect();
    format!(".SH SEE ALSO\n{}\n", links.join(",\n"))
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

/// A flag with its value: `--only NAME`, `--profile[=HZ]`.
fn flag(arg: &Arg, is_long: bool) -> String {
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) if is_long => format!("--{long}"),
        (Some(long), None) => format!("--{long}"),
        (_, Some(short)) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let takes = arg.get_num_args().is_some_and(|values| values.takes_values());
    match (takes, arg.get_num_args().is_some_and(|values| values.min_values() == 0)) {
        (false, _) => bold(&name),
        (true, true) => format!("{}[={}]", bold(&name), italic(&value(arg))),
        (true, false) => format!("{}\\~{}", bold(&name), italic(&value(arg))),
    }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn is_repeated(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|values| values.max_values() > 1)
}

/// What the help says of an argument, with its default and its values.
fn help(arg: &Arg) -> String {
    let mut help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string);
    let mut note = |note: String| {
        let help = help.get_or_insert_default();
        *help += &format!(" [{note}]");
    };
    let takes = arg.get_num_args().is_some_and(|values| values.takes_values());
    let defaults = arg.get_default_values();
    if takes && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let words: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        note(format!("default: {}", words.join(",")));
    }
    let values = arg.get_possible_values();
    let is_plain = values.iter().all(|value| value.get_help().is_none());
    if takes && is_plain && !values.is_empty() && !arg.is_hide_possible_values_set() {
        let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
        note(format!("possible values: {}", names.join(", ")));
    }
    help.unwrap_or_default()
}

/// Lines that are never filled.
fn verbatim(lines: &[&str]) -> String {
    let lines = lines.iter().map(|line| format!("{}\n", guarded(&escaped(line))));
    let lines: String = lines.collect();
    format!(".RS 2\n.nf\n{lines}.fi\n.RE\n")
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}.\n", running(&format!("{}{}", first.unwrap_or_default(), letters.as_str())))
}

/// Running text; what stands between backticks is bold.
fn running(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pieces = words.split('`').enumerate();
    let piece = |(at, piece): (usize, &str)| match at % 2 {
        0 => escaped(piece),
        _ => bold(piece),
    };
    // A list without blanks may be broken behind its commas.
    guarded(&pieces.map(piece).collect::<String>().replace(',', ",\\:"))
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escaped(text))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escaped(text))
}

/// A line that is text, whatever it begins with.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

/// Each sign as itself: roff would make dashes, typographic quotes and accents of some.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '\\' => escaped += "\\(rs",
            '-' => escaped += "\\-",
            '\'' => escaped += "\\(aq",
            '`' => escaped += "\\(ga",
            '^' => escaped += "\\(ha",
            '~' => escaped += "\\(ti",
            '"' => escaped += "\\(dq",
            sign if sign.is_ascii() => escaped.push(sign),
            sign => escaped += &format!("\\[u{:04X}]", u32::from(sign)),
        }
    }
    escaped
}

/// Prints the completion script of a shell for the program called `name`.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(
    shell: clap_complete::Shell,
    mut command: Command,
    name: &str,
) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    let script = String::from_utf8_lossy(&script);
    output::result(&match shell {
        clap_complete::Shell::Bash => sparing(&command, &script),
        _ => script.into_owned(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `script` without the hidden flags of `command`, which offers flags only where one was begun or nothing else is there.
fn sparing(command: &Command, script: &str) -> String {
    let mut inner = None;
    let line = |line: &str| {
        let label = line.trim_start().strip_suffix(')').filter(|label| !label.contains([' ', '(']));
        if let Some(label) = label {
            inner = called(command, label).or(inner);
        }
        let words =
            line.trim_start().strip_prefix("opts=\"").and_then(|rest| rest.strip_suffix('"'));
        let Some((words, inner)) = words.zip(inner) else { return format!("{line}\n") };
        let is_hidden = |word: &str| {
            let name = word.strip_prefix("--").unwrap_or_default();
            inner.get_arguments().any(|arg| arg.is_hide_set() && arg.get_long() == Some(name))
        };
        let shown: Vec<&str> = words.split(' ').filter(|word| !is_hidden(word)).collect();
        let is_word = |word: &&&str| word.starts_with(|sign: char| sign.is_ascii_alphanumeric());
        let others: Vec<&str> = shown.iter().filter(is_word).copied().collect();
        let indent = " ".repeat(line.len() - line.trim_start().len());
        let mut lines = format!("{indent}opts=\"{}\"\n", shown.join(" "));
        if !others.is_empty() {
            lines += &format!("{indent}[[ ${{cur}} == -* ]] || opts=\"{}\"\n", others.join(" "));
        }
        lines
    };
    script.lines().map(line).collect()
}

/// The command that a script for bash calls `label`, such as `pollux__subcmd__lab__subcmd__run`.
fn called<'a>(command: &'a Command, label: &str) -> Option<&'a Command> {
    label.split("__subcmd__").skip(1).try_fold(command, |inner, name| {
        inner.get_subcommands().find(|each| each.get_name().replace('-', "__") == name)
    })
}

/// Writes manual pages, as [`manual_pages`] has them, into `folder`, which is made if need be.
///
/// # Errors
/// The folder or a page cannot be written.
pub fn write_pages(folder: &Path, pages: &[(String, String)]) -> Result<(), Failure> {
    let failed =
        |error| Failure::failed(format!("{}: cannot be written: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    pages
        .iter()
        .try_for_each(|(name, page)| std::fs::write(folder.join(format!("{name}.1")), page))
        .map_err(failed)
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

    #[test]
    fn signs_that_roff_would_change_are_named() {
        assert_eq!(escaped(r"a-b '\d' ~^` µ"), r"a\-b \(aq\(rsd\(aq \(ti\(ha\(ga \[u00B5]");
        assert_eq!(running(".x `lab -h`,y"), r"\&.x \fBlab \-h\fR,\:y");
        assert_eq!(verbatim(&["'a", "  b"]), ".RS 2\n.nf\n\\(aqa\n  b\n.fi\n.RE\n");
    }

    #[test]
    fn a_list_of_values_has_a_row_for_each() {
        let page =
            paragraphs("Order [default: in-turn]\n- in-turn: as they stand\n- random: by weight");
        let rows =
            ".RS\n.TP\n\\fBin\\-turn\\fR\nas they stand\n.TP\n\\fBrandom\\fR\nby weight\n.RE\n";
        assert_eq!(page, format!("Order [default: in\\-turn]\n{rows}"));
        assert_eq!(paragraphs("One line"), "One line\n");
    }

    #[test]
    fn a_flag_is_shown_with_its_value() {
        let arg = Arg::new("profile").long("profile").value_name("HZ").num_args(0..=1);
        let command = Command::new("x").arg(arg);
        let mut command = command.arg(Arg::new("out").short('o').long("out").value_name("DIR"));
        command.build();
        let flags: Vec<_> =
            shown(&command).map(|arg| flag(arg, arg.get_short().is_none())).collect();
        assert_eq!(flags[0], r"\fB\-\-profile\fR[=\fIHZ\fR]");
        assert_eq!(flags[1], r"\fB\-o\fR\~\fIDIR\fR");
    }
}
