//! What the record says of the builds of pollux that were measured: this program, and those that are arms.
//!
//! The runner asks once, before anything is measured. Two builds of the same version differ in
//! their size and their date at least, so both are shown.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::host::Reading;
use crate::job::Job;
use crate::record::Fact;

/// A fact for `own`, the program that measures, and for each build of any part, each once.
pub(super) fn facts(own: &Path, job: &Job) -> Vec<Fact> {
    let mut seen: Vec<(&str, &Path)> = vec![("pollux", own)];
    for arm in job.parts.iter().flat_map(|part| &part.arms) {
        let build = arm.kind.build().map(|build| (arm.name.as_str(), build.program.as_path()));
        seen.extend(build.filter(|build| !seen.contains(build)));
    }
    let fact = |(name, program): &(&str, &Path)| Fact {
        name: format!("build {name}"),
        reading: Reading::from_io(&program.display().to_string(), described(program)),
    };
    seen.iter().map(fact).collect()
}

fn described(program: &Path) -> std::io::Result<String> {
    let file = std::fs::metadata(program)?;
    let modified = jiff::Timestamp::try_from(file.modified()?).map_err(std::io::Error::other)?;
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    let version = String::from_utf8_lossy(&output.stdout);
    let version = version.lines().next().unwrap_or("says no version");
    let (path, len_bytes) = (program.display(), file.len());
    Ok(format!("{version}, {len_bytes} bytes, made {modified:.0}, {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_distinguished_from_another_and_a_missing_one_says_so() {
        let program = std::env::current_exe().expect("this test");
        let said = described(&program).expect("it is there");
        assert!(said.contains(" bytes, made 20") && said.ends_with(&*program.to_string_lossy()));
        assert!(described(Path::new("no/such/pollux")).is_err());
    }
}
