//! The bare server in its forms: one program in C, built by the compiler of the machine, that says which form it is.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use pollux_host::{self as host, Program, built_from_c, patience};
use pollux_settings::command::output::error_chain;

use super::load::Load;
use crate::error::MeasureError;
use crate::form::Form;
use crate::scratch::Scratch;

const PROGRAM: &str = include_str!("forms.c");
/// The word before what it counted.
const COUNTS: &str = "counts ";

/// The command that serves `load` in a form.
pub(super) fn command(
    form: Form,
    listen: SocketAddr,
    load: &Load,
    scratch: &Path,
) -> Result<Command, MeasureError> {
    let mut command = Command::new(program(scratch)?);
    command.arg(form.to_string()).arg(format!("listen={listen}"));
    command.arg(format!("reply={}", load.reply_bytes));
    if !load.is_kept_alive {
        command.arg("close");
    }
    Ok(command)
}

/// The program, built once for a record: arms start at the same time, and the first builds it for all.
fn program(folder: &Path) -> Result<PathBuf, MeasureError> {
    let setup = |cause| MeasureError::Setup { what: "the program of forms".to_owned(), cause };
    let lock = File::create(folder.join("forms.lock")).map_err(setup)?;
    lock.lock().map_err(setup)?;
    Ok(built_from_c(folder, "forms", PROGRAM, &[])?)
}

/// Why this machine can't run a form, or can't show anything by it, in the words of the program, which tries it over
/// loopback.
pub(crate) fn missing(form: Form) -> Option<String> {
    if let Some(reason) = host::missing_program("cc", "gcc") {
        return Some(reason);
    }
    tried(form).unwrap_or_else(|why| Some(format!("could not be tried: {why}")))
}

fn tried(form: Form) -> Result<Option<String>, String> {
    let mut command = Command::new(for_trials()?);
    let name = form.to_string();
    command.args([&name, "probe"]).stdin(Stdio::null()).stdout(Stdio::null());
    let failed = |error: pollux_host::Error| error_chain(&error);
    let mut trial = Program::start(&name, command).map_err(failed)?;
    if !trial.ends_within(patience::FORM_TRIED, &|| false).map_err(failed)? {
        return Err(format!("its trial took more than {} s", patience::FORM_TRIED.as_secs()));
    }
    if trial.has_succeeded() {
        return Ok(None);
    }
    let said = trial.stderr_tail();
    Ok(Some(said.strip_prefix(&format!("{name}: ")).unwrap_or(&said).to_owned()))
}

/// The program for trials, which has no file that would stay: before a run there is no folder yet.
fn for_trials() -> Result<&'static Path, String> {
    static BUILT: OnceLock<Result<(PathBuf, File), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = Scratch::make().map_err(|error| error.to_string())?;
        let built = program(folder.path()).map_err(|error| error_chain(&error))?;
        let file = File::open(&built).map_err(|error| error.to_string())?;
        // A child has it under the same number until it runs something else: this.
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        fs::remove_file(&built).map_err(|error| error.to_string())?;
        Ok((path, file))
    });
    built.as_ref().map(|(path, _)| path.as_path()).map_err(String::clone)
}

/// What the program counted, which it says when it is ended, for each request that it answered; and what completions
/// there were for each call.
pub(super) fn counts(said: &str) -> Vec<(String, f64)> {
    let Some((_, counts)) = said.rsplit_once(COUNTS) else { return Vec::new() };
    let counts: Vec<(&str, f64)> = counts
        .split_ascii_whitespace()
        .filter_map(|count| count.split_once('='))
        .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
        .collect();
    let count = |name: &str| counts.iter().find(|(one, _)| *one == name).map_or(0.0, |one| one.1);
    let requests = count("requests").max(1.0);
    let each = |name: &str| (format!("{name}_per_request"), count(name) / requests);
    let mut figures: Vec<(String, f64)> =
        ["enters", "completions", "receives", "rearmed", "sends", "out_of_buffers"]
            .map(each)
            .into();
    let per_enter = count("completions") / count("enters").max(1.0);
    figures.push(("completions_per_enter".to_owned(), per_enter));
    for name in ["out_of_buffers", "cut_short", "overflows", "zero_copy", "copied"] {
        figures.push((name.to_owned(), count(name)));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_counted_is_read_for_each_request_and_each_call() {
        let said = "raw-uring: http://127.0.0.1:1 (defer, ...); counts accepted=2 requests=10 receives=20 \
                    enters=5 completions=40 out_of_buffers=3\n";
        let counts = counts(said);
        let of = |name: &str| counts.iter().find(|(one, _)| one == name).map(|one| one.1);
        assert_eq!(of("completions_per_enter"), Some(8.0));
        assert_eq!(of("receives_per_request"), Some(2.0));
        assert_eq!(of("out_of_buffers"), Some(3.0));
        assert!(super::counts("nothing").is_empty());
    }

    #[test]
    fn what_loopback_cannot_show_is_said_with_the_count_that_proves_it() {
        if let Some(reason) = host::missing_program("cc", "gcc") {
            return pollux_testing::skip(reason);
        }
        let missing = |name: &str| missing(name.parse().expect(name));
        // Epoll with busy polling came with Linux 6.9.
        let said = missing("raw-epoll:busy-poll").expect("loopback has no queue");
        assert!(
            said.contains("SO_INCOMING_NAPI_ID is 0") || said.contains("needs Linux 6.9"),
            "{said}"
        );
        assert_eq!(missing("raw-epoll:edge"), None);
        let Some(said) = missing("raw-uring:zc") else { panic!("loopback copies") };
        let is_said = ["said copied for 16 of 16", "needs Linux", "forbidden"];
        assert!(is_said.iter().any(|part| said.contains(part)), "{said}");
    }
}
