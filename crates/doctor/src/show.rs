//! The checks as text: what to do now, then a group for each concern, problems first; and all remedies
//! as one script for the shell.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::check::{AND, Check, Concern, Remedy, Verdict};
use crate::{Counts, Diagnosis};

/// Width of the column of names: the longest is a sysctl.
const NAME_CHARS: usize = 33;
/// Where the lines below a check begin.
const INDENT: &str = "          ";

/// How the text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// With colours of a terminal.
    pub is_colourful: bool,
    /// Lines are broken at spaces to fit into so many characters; commands are never broken.
    pub width_chars: usize,
}

impl Diagnosis {
    /// The summary with what to do now, and the table. A command is printed once, where it is
    /// first of use.
    #[must_use]
    pub fn text(&self, options: TextOptions) -> String {
        let mut out = format!("{}\n{}\n\n", options.paint(&self.summary(), "1"), self.what_to_do());
        let mut shown = BTreeSet::new();
        let mut groups: Vec<Concern> = self.checks.iter().map(|check| check.concerns[0]).collect();
        groups.dedup();
        // The sort is stable: groups of the same worst verdict stay in the order of `Concern`.
        groups.sort_by_key(|group| self.worst(*group));
        for group in groups {
            let _ = writeln!(out, "{}", options.paint(group.title(), "1"));
            for check in self.checks.iter().filter(|check| check.concerns[0] == group) {
                show(&mut out, check, &mut shown, options);
            }
            out.push('\n');
        }
        out.truncate(out.trim_end().len());
        out + "\n"
    }

    fn what_to_do(&self) -> String {
        let asked =
            self.asked.as_ref().map_or(String::new(), |asked| format!("--for {} ", asked.name));
        if self.has_fixes() {
            format!("What to do now: pollux doctor {asked}--fix-script | sudo sh   (read it first)")
        } else {
            "What to do now: nothing that a command could fix".to_owned()
        }
    }

    /// "3 limits, 1 block; nothing keeps `pollux lab` from running".
    #[must_use]
    pub fn summary(&self) -> String {
        let Counts { blocks, limits, not_available, .. } = self.counts();
        let unread = match not_available {
            0 => String::new(),
            count => format!(", {count} n/a"),
        };
        let run = match &self.asked {
            None => "`pollux lab`".to_owned(),
            Some(asked) => format!("`{}`", asked.name),
        };
        let blocking = self.checks.iter().filter(|check| match &self.asked {
            None => check.blocks_default_job,
            Some(_) => check.verdict == Verdict::Blocks,
        });
        let blocking: Vec<&str> = blocking.map(|check| check.name.as_str()).collect();
        let end = match (&blocking[..], &self.asked) {
            ([], _) => format!("nothing keeps {run} from running"),
            (names, None) => {
                format!(
                    "{} keeps {run} (job `{}`) from running",
                    names.join(", "),
                    self.default_job
                )
            }
            (names, Some(_)) => format!("{} keeps {run} from running", names.join(", ")),
        };
        let counted = |count, name| format!("{count} {name}{}", if count == 1 { "" } else { "s" });
        format!("{}, {}{unread}; {end}", counted(limits, "limit"), counted(blocks, "block"))
    }

    fn worst(&self, group: Concern) -> Option<Verdict> {
        let of_group = self.checks.iter().filter(|check| check.concerns[0] == group);
        of_group.map(|check| check.verdict).min()
    }
}

impl TextOptions {
    fn paint(self, text: &str, code: &str) -> String {
        if self.is_colourful { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn show(out: &mut String, check: &Check, shown: &mut BTreeSet<String>, options: TextOptions) {
    let (word, colour) = match check.verdict {
        Verdict::Blocks => ("blocks", "31;1"),
        Verdict::Limits => ("limit", "33"),
        Verdict::NotAvailable => ("n/a", "2"),
        Verdict::Ok => ("ok", "32"),
    };
    let word = options.paint(&format!("{word:<6}"), colour);
    let found = found(check);
    let _ = write!(out, "  {word}  {:<NAME_CHARS$} {found}", check.name);
    if let Some(reason) = check.found.reason() {
        let _ = write!(out, "\n{}", broken("why     ", reason, options));
    } else if check.verdict != Verdict::Ok {
        let _ = write!(out, "\n{}", broken("wanted  ", &check.wanted, options));
    }
    if let Some(limits) = &check.limits {
        let _ = write!(out, "\n{}", broken("effect  ", limits, options));
    }
    if let Some(remedy) = &check.remedy {
        let _ = write!(out, "\n{INDENT}fix     {}", fix(remedy, shown, options));
    }
    out.push('\n');
}

/// The steps that no check before this one has shown.
fn fix(remedy: &Remedy, shown: &mut BTreeSet<String>, options: TextOptions) -> String {
    let new: Vec<&str> = remedy.steps().filter(|step| shown.insert((*step).to_owned())).collect();
    if new.is_empty() {
        return "as above".to_owned();
    }
    let root = if remedy.needs_root { "   (root)" } else { "" };
    let above = if new.len() < remedy.steps().count() { ", beside the above" } else { "" };
    format!("{}{root}{above}", options.paint(&new.join(AND), "36"))
}

fn found(check: &Check) -> String {
    match (check.found.value(), check.unit) {
        (
            Some(value @ (super::CheckValue::Number(_) | super::CheckValue::Decimal(_))),
            Some(unit),
        ) => {
            format!("{value} {unit}")
        }
        (Some(value), _) => value.to_string(),
        (None, _) => "n/a".to_owned(),
    }
}

/// `text` behind `label`, broken at spaces; what follows is indented to the text.
fn broken(label: &str, text: &str, options: TextOptions) -> String {
    let indent = INDENT.len() + label.len();
    let mut lines = format!("{INDENT}{label}");
    let mut column = indent;
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        let len = word.chars().count();
        if index > 0 && column + 1 + len > options.width_chars {
            let _ = write!(lines, "\n{:indent$}", "");
            column = indent;
        } else if index > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += len;
    }
    lines
}

// `pollux doctor --fix-script`: each command once, with what it is for. What belongs to one shell, to the command line of the
// kernel or to another machine cannot stand in it as a command and is a remark at its end.

const HEAD: &str = "\
#!/bin/sh
# What `pollux doctor` would change on this machine, until the next boot. It needs root:
#   pollux doctor --fix-script | sudo sh
if [ \"$(id -u)\" -ne 0 ]; then
  echo 'this script needs root: pollux doctor --fix-script | sudo sh' >&2
  exit 1
fi
";

impl Diagnosis {
    /// The remedies of all checks as a script. It changes nothing until it is run.
    #[must_use]
    pub fn fix_script(&self) -> String {
        let (runs, by_hand): (Vec<_>, Vec<_>) =
            self.steps().into_iter().partition(|(step, _)| is_for_a_script(step));
        let mut script = HEAD.to_owned();
        if runs.is_empty() {
            script.push_str("\n# There is nothing that a command could fix.\n");
        }
        for (step, checks) in runs {
            script.push('\n');
            script.push_str(&reasons(&checks));
            let _ = writeln!(script, "{}", as_root(step));
        }
        if !by_hand.is_empty() {
            script.push_str("\n# By hand, in your own shell or where it is said:\n");
        }
        for (step, checks) in by_hand {
            let _ = write!(script, "#\n{}#   {step}\n", reasons(&checks));
        }
        script
    }

    /// Whether [`Self::fix_script`] has a command in it.
    fn has_fixes(&self) -> bool {
        self.steps().iter().any(|(step, _)| is_for_a_script(step))
    }

    /// Each step once, in the order of the checks, with the checks that it is for.
    fn steps(&self) -> Vec<(&str, Vec<&Check>)> {
        let mut steps: Vec<(&str, Vec<&Check>)> = Vec::new();
        for check in &self.checks {
            for step in check.remedy.iter().flat_map(Remedy::steps) {
                match steps.iter_mut().find(|(known, _)| *known == step) {
                    Some((_, checks)) => checks.push(check),
                    None => steps.push((step, vec![check])),
                }
            }
        }
        steps
    }
}

/// Whether a step does in a script of root what it does in the user's shell.
fn is_for_a_script(step: &str) -> bool {
    let is_of_the_shell = step.contains("$$");
    // It asks before it installs, and the script may be its standard input.
    let asks = step.contains("apt-get");
    step.contains("sudo ") && !is_of_the_shell && !asks
}

/// The step for a shell that is root's already; groups stay those of the user.
fn as_root(step: &str) -> String {
    step.replace("sudo ", "").replace("$(id -g)", "${SUDO_GID:-$(id -g)}")
}

fn reasons(checks: &[&Check]) -> String {
    let line = |check: &&Check| {
        let why = check.limits.as_deref().or(check.found.reason()).unwrap_or_default();
        format!("# {}: {}\n", check.name, why.replace(['\n', '\r'], " "))
    };
    checks.iter().map(line).collect()
}
