//! `pollux pool build-server` and `build-client`: C programs of the service pool, by the system's C
//! compiler.
//!
//! The command puts together one line for the compiler (`$CC`, `$CFLAGS`) with the headers and the
//! library of this installation; a server also gets a `main` with the services it offers from the
//! start. It never looks into the sources.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use pollux_settings::command::output::{self, Failure};
use pollux_xatmi_c::layout::{self, Library};
use pollux_xatmi_c::prefix::place;

use crate::flags::{BuildClientFlags, BuildFlags, BuildServerFlags, LayOutFlags};
use crate::server_main::{ServiceSpec, main_source};

/// Builds a client: the sources have main.
pub(crate) fn client(flags: &BuildClientFlags) -> Result<ExitCode, Failure> {
    if flags.is_workstation {
        output::remark(
            "warning: -w: clients run on the machine of their pool; this is a native one",
        );
    }
    let (output, words) = output_and_words(&flags.output);
    let mut command = compiler(&flags.build, &output)?;
    finish(&flags.build, &mut command, &Home::find()?);
    command.args(words);
    run(&mut command, flags.build.verbose, None)
}

/// Builds a server: main is made here.
pub(crate) fn server(flags: &BuildServerFlags) -> Result<ExitCode, Failure> {
    if flags.is_threaded {
        output::remark(
            "warning: -t: one thread serves requests; copies (<min>) serve side by side",
        );
    }
    let specs = ServiceSpec::read_all(&flags.services).map_err(Failure::usage)?;
    let main = main_source(&specs);
    let (output, words) = output_and_words(&flags.output);
    let mut command = compiler(&flags.build, &output)?;
    let piped = if flags.keep {
        let kept = beside(&output);
        fs::write(&kept, &main)
            .map_err(|error| Failure::failed(format!("{}: {error}", kept.display())))?;
        command.arg(&kept);
        None
    } else {
        // From standard input, so that no file is left behind when the compiler is stopped.
        command.args(["-x", "c", "-", "-x", "none"]);
        Some(main.as_str())
    };
    finish(&flags.build, &mut command, &Home::find()?);
    command.args(words);
    run(&mut command, flags.build.verbose, piped)
}

/// Puts headers, libraries, the package's description and the build commands of other makers' manuals where an
/// installation has them.
pub(crate) fn lay_out(flags: &LayOutFlags) -> Result<ExitCode, Failure> {
    layout::lay_out(&flags.prefix, &flags.library, Library::Copied).map_err(Failure::failed)?;
    let bin = flags.prefix.join("bin");
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", bin.display()));
    fs::create_dir_all(&bin).map_err(failed)?;
    for (name, script) in MANUAL_COMMANDS {
        place(&bin.join(name), |path| {
            fs::write(path, script)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        })
        .map_err(Failure::failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The commands that manuals of Tuxedo and Enduro/X build with, each a script that runs the program beside it.
const MANUAL_COMMANDS: [(&str, &str); 6] = [
    ("buildserver", "#!/bin/sh\nexec \"${0%/*}/pollux-pool\" build-server \"$@\"\n"),
    ("buildclient", "#!/bin/sh\nexec \"${0%/*}/pollux-pool\" build-client \"$@\"\n"),
    ("mkfldhdr", "#!/bin/sh\nexec \"${0%/*}/pollux-pool\" mkfldhdr \"$@\"\n"),
    ("viewc", "#!/bin/sh\nexec \"${0%/*}/pollux-pool\" viewc \"$@\"\n"),
    ("viewc32", "#!/bin/sh\nexec \"${0%/*}/pollux-pool\" viewc \"$@\"\n"),
    // Without tables on its command line, those of FLDTBLDIR32 and FIELDTBLS32 alone.
    ("mkfldhdr32", "#!/bin/sh\nunset FLDTBLDIR FIELDTBLS\nexec \"${0%/*}/mkfldhdr\" \"$@\"\n"),
];

/// The compiler with the user's flags, its output and the sources.
fn compiler(build: &BuildFlags, output: &Path) -> Result<Command, Failure> {
    if build.files.is_empty() && build.first.is_empty() {
        return Err(Failure::usage("nothing to compile: name the sources"));
    }
    let compiler = words("CC", "cc")?;
    let Some((program, its_flags)) = compiler.split_first() else {
        return Err(Failure::usage("CC is empty: it names the C compiler, as in CC=gcc"));
    };
    let mut command = Command::new(program);
    command.args(its_flags).args(words("CFLAGS", "")?).arg("-o").arg(output);
    Ok(command)
}

/// The rest of the line.
fn finish(build: &BuildFlags, command: &mut Command, home: &Home) {
    command.arg("-I").arg(&home.include);
    command.args(&build.files).args(split(&build.first));
    command.arg("-L").arg(&home.lib);
    // Not in one word behind -Wl, where a comma in the path would end it.
    command.args(["-Xlinker", "-rpath", "-Xlinker"]).arg(&home.lib);
    command.arg("-lpollux_xatmi").args(split(&build.last));
}

/// Words of an environment variable, between blanks; quotes are no more than other signs.
fn words(variable: &str, otherwise: &str) -> Result<Vec<String>, Failure> {
    let text = match std::env::var(variable) {
        Ok(text) => text,
        Err(std::env::VarError::NotPresent) => otherwise.to_owned(),
        Err(_) => return Err(Failure::usage(format!("{variable} is not UTF-8 text"))),
    };
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn split(groups: &[String]) -> impl Iterator<Item = &str> {
    groups.iter().flat_map(|group| group.split_whitespace())
}

/// Makefiles give words for the compiler behind the name of the program, in one value: `-o "server -lz"`.
fn output_and_words(output: &Path) -> (PathBuf, Vec<String>) {
    let whole = output.to_string_lossy();
    match whole.split_once(" -") {
        Some((name, words)) if !name.trim().is_empty() => {
            let words = format!("-{words}");
            (name.trim().into(), words.split_whitespace().map(str::to_owned).collect())
        }
        _ => (output.to_owned(), Vec::new()),
    }
}

fn beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".main.c");
    name.into()
}

fn run(command: &mut Command, is_shown: bool, source: Option<&str>) -> Result<ExitCode, Failure> {
    if is_shown {
        output::remark(&shown(command));
    }
    command.stdin(if source.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().map_err(|error| missing(command, &error))?;
    if let (Some(source), Some(mut stdin)) = (source, child.stdin.take()) {
        // A compiler that ended before it read says by its status what was wrong.
        let _ = stdin.write_all(source.as_bytes());
    }
    let status = child.wait().map_err(|error| missing(command, &error))?;
    if !status.success() {
        return Err(Failure::failed(format!("{}: {status}", name(command))));
    }
    Ok(ExitCode::SUCCESS)
}

fn missing(command: &Command, error: &std::io::Error) -> Failure {
    let name = name(command);
    Failure::failed(match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("{name} was not found: install a C compiler (apt install gcc), or set CC")
        }
        // execvp(3) also says so of a program that is nowhere, where a folder of PATH can't be read.
        std::io::ErrorKind::PermissionDenied => format!(
            "{name} was not found where this user may read and execute it (PATH): install a C compiler \
             (apt install gcc), or set CC"
        ),
        _ => format!("{name}: {error}"),
    })
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// The command as a shell reads it.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=+:,./@%^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Where the headers and the C library of this installation stand: in `../include` and `../lib` of an installed
/// binary. A development tree gets the same folders in its target folder, as links to what cargo built.
#[derive(Debug, PartialEq, Eq)]
struct Home {
    include: PathBuf,
    lib: PathBuf,
}

impl Home {
    /// The folders that belong to the running binary.
    fn find() -> Result<Self, Failure> {
        let binary = std::env::current_exe().and_then(fs::canonicalize);
        let binary = binary.map_err(|error| Failure::failed(format!("the own path: {error}")))?;
        let folder = binary.parent().unwrap_or(Path::new("/"));
        Self::beside(folder)
    }

    fn beside(folder: &Path) -> Result<Self, Failure> {
        if let Some(prefix) = folder.parent()
            && let Some(home) = Self::below(prefix)
        {
            return Ok(home);
        }
        let built = folder.join("deps").join(layout::BUILT_NAME);
        if !built.exists() {
            return Err(Failure::failed(format!(
                "no include/atmi.h and lib/{} beside {}: install pollux with cargo xtask install \
                 --prefix DIR, and use the binary of that folder",
                layout::SONAME,
                folder.display()
            )));
        }
        let prefix = folder.join("xatmi-home");
        layout::lay_out(&prefix, &built, Library::Linked).map_err(Failure::failed)?;
        Self::below(&prefix)
            .ok_or_else(|| Failure::failed(format!("{} is not whole", prefix.display())))
    }

    fn below(prefix: &Path) -> Option<Self> {
        let include = prefix.join("include");
        let lib = prefix.join("lib");
        let is_whole = include.join("atmi.h").exists() && lib.join(layout::SONAME).exists();
        is_whole.then_some(Self { include, lib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_split_at_blanks_and_keep_their_order() {
        let groups = ["a.c  -DX".to_owned(), String::new(), "b.o".to_owned()];
        assert_eq!(split(&groups).collect::<Vec<_>>(), ["a.c", "-DX", "b.o"]);
        assert_eq!(beside(Path::new("out/banksv")), Path::new("out/banksv.main.c"));
    }

    #[test]
    fn words_behind_the_name_of_the_program_are_for_the_compiler() {
        let split = |text: &str| {
            let (output, words) = output_and_words(Path::new(text));
            (output.display().to_string(), words.join(" "))
        };
        let pair = |name: &str, words: &str| (name.to_owned(), words.to_owned());
        assert_eq!(split("../bin/sv -lclntsh  -lm"), pair("../bin/sv", "-lclntsh -lm"));
        assert_eq!(split("my own-sv"), pair("my own-sv", ""));
        assert_eq!(split("sv"), pair("sv", ""));
        assert_eq!(split(" -x"), pair(" -x", ""));
    }

    #[test]
    fn the_line_is_shown_so_that_a_shell_takes_it() {
        let mut command = Command::new("cc");
        command.args(["-DX=\"a b\"", "it's.c", "", "-o", "out"]);
        assert_eq!(shown(&command), r#"cc '-DX="a b"' 'it'\''s.c' '' -o out"#);
    }

    #[test]
    fn the_line_has_the_headers_first_and_the_library_behind_the_sources() {
        let build = BuildFlags {
            files: vec!["bank.c".into()],
            first: vec!["x.o".into()],
            last: vec!["-lm -lz".into()],
            verbose: false,
        };
        let home = Home { include: "/p/include".into(), lib: "/p/lib".into() };
        let mut command = Command::new("cc");
        finish(&build, &mut command, &home);
        assert_eq!(
            shown(&command),
            "cc -I /p/include bank.c x.o -L /p/lib -Xlinker -rpath -Xlinker /p/lib \
             -lpollux_xatmi -lm -lz"
        );
    }

    #[test]
    fn an_installation_is_found_beside_the_binary() {
        let prefix = tempfile::tempdir().expect("a folder");
        let bin = prefix.path().join("bin");
        let error = Home::beside(&bin).expect_err("nothing there").message;
        assert!(error.contains("xtask install"), "{error}");
        let library = prefix.path().join("built.so");
        fs::write(&library, "").expect("written");
        layout::lay_out(prefix.path(), &library, Library::Copied).expect("laid out");
        let home = Home::beside(&bin).expect("an installation");
        assert_eq!(home.include, prefix.path().join("include"));
    }

    #[test]
    fn a_development_tree_gets_the_folders_in_its_target_folder() {
        let target = tempfile::tempdir().expect("a folder");
        let debug = target.path().join("debug");
        fs::create_dir_all(debug.join("deps")).expect("made");
        fs::write(debug.join("deps").join(layout::BUILT_NAME), "").expect("written");
        let home = Home::beside(&debug).expect("laid out");
        assert_eq!(home.lib, debug.join("xatmi-home/lib"));
        assert!(home.lib.join("libatmisrv.a").exists());
    }
}
