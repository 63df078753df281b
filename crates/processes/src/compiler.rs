//! Small C programs, built with the compiler of the machine: what others are measured beside.
//!
//! Each is built once for each folder that keeps it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// The program `name` made of `source` with these flags; it stays in `folder` for the runs that
/// follow.
///
/// # Errors
/// [`Error`] when the folder can't be written, or with what the compiler said first.
pub fn built(folder: &Path, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf, Error> {
    // A folder that outlives a build of pollux may hold the program of another one.
    let mut hasher = DefaultHasher::new();
    (source, flags).hash(&mut hasher);
    let program = folder.join(format!("{name}-{:016x}", hasher.finish()));
    if program.exists() {
        return Ok(program);
    }
    let setup = |path: &Path| {
        let what = path.display().to_string();
        move |cause| Error::Setup { what, cause }
    };
    let own = std::process::id();
    let text = folder.join(format!("{name}-{own}.c"));
    std::fs::write(&text, source).map_err(setup(&text))?;
    // Under another name until it is whole: a run that was stopped must leave no half program, and
    // another one may build it at the same time.
    let unfinished = folder.join(format!("{name}-{own}.new"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-o"]).arg(&unfinished).arg(&text).args(flags);
    let output = compiler.stdin(Stdio::null()).output().map_err(setup(Path::new("cc")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or("no reason");
        let what = format!("could not be built: {first}");
        return Err(Error::Program { program: name.to_owned(), what });
    }
    std::fs::rename(&unfinished, &program).map_err(setup(&program))?;
    Ok(program)
}
