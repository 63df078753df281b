//! All remedies as one script for the shell: each command once, with what it is for.
//!
//! `pollux doctor --fix-script` prints it. What belongs to one shell, to the command line of the
//! kernel or to another machine cannot stand in it as a command and is a remark at its end.

use std::fmt::Write;

use super::Diagnosis;
use super::check::Check;

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
    /// The remedies of all checks as a script. It changes nothing until somebody runs it.
    #[must_use]
    pub fn fix_script(&self) -> String {
        let (runs, by_hand): (Vec<_>, Vec<_>) =
            self.steps().into_iter().partition(|(step, _)| is_for_a_script(step));
        let mut script = HEAD.to_owned();
        if runs.is_empty() {
            script.push_str("\n# There is nothing that a command could mend.\n");
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
    pub(super) fn has_fixes(&self) -> bool {
        self.steps().iter().any(|(step, _)| is_for_a_script(step))
    }

    /// Each step once, in the order of the checks, with the checks that it is for.
    fn steps(&self) -> Vec<(&str, Vec<&Check>)> {
        let mut steps: Vec<(&str, Vec<&Check>)> = Vec::new();
        for check in &self.checks {
            for step in check.remedy.iter().flat_map(super::Remedy::steps) {
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
