//! `pollux pool build-server` and `build-client`: C programs of the service pool, by the system's C
//! compiler.
//!
//! The command puts together one line for the compiler (`$CC`, `$CFLAGS`) with the headers and the
//! library of this installation; a server also gets a `main` with the services it offers from the
//! start. It never looks into the sources.
//!
//! `pollux fld` makes C headers or Rust modules of field tables. Every table is read and checked before the first file is
//! written, so a mistake leaves no half of them behind.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use pollux_command::output::{self, Failure};
use pollux_pool_flags::{
    BuildClientFlags, BuildFlags, BuildServerFlags, FldFlags, Language, LayOutFlags,
};
use pollux_prefix::place;
use pollux_xatmi::field_table::{
    FieldFile, FieldTable, Problem, TableError, c_header, files_of_env, rust_module,
};
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::slots::SERVICES_MAX;
use pollux_xatmi_c::layout::{self, Library};

/// Builds a client: the sources have main.
pub(crate) fn client(flags: &BuildClientFlags) -> Result<ExitCode, Failure> {
    let mut command = compiler(&flags.build, &flags.output)?;
    finish(&flags.build, &mut command, &Home::find()?);
    run(&mut command, flags.build.verbose, None)
}

/// Builds a server: main is made here.
pub(crate) fn server(flags: &BuildServerFlags) -> Result<ExitCode, Failure> {
    let specs = ServiceSpec::read_all(&flags.services).map_err(Failure::usage)?;
    let main = main_source(&specs);
    let mut command = compiler(&flags.build, &flags.output)?;
    let piped = if flags.keep {
        let kept = beside(&flags.output);
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
const MANUAL_COMMANDS: [(&str, &str); 3] = [
    ("buildserver", "#!/bin/sh\nexec \"${0%/*}/pollux-pool\" build-server \"$@\"\n"),
    ("buildclient", "#!/bin/sh\nexec \"${0%/*}/pollux-pool\" build-client \"$@\"\n"),
    // Where the manual's command writes without -d: the folder that it is called in.
    (
        "mkfldhdr",
        "#!/bin/sh\nfor word in \"$@\"; do\n  case $word in -d*) exec \"${0%/*}/pollux-pool\" fld \"$@\" ;; esac\n\
         done\nexec \"${0%/*}/pollux-pool\" fld -d . \"$@\"\n",
    ),
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

// Where the headers and the C library of this installation stand.
//
// Beside an installed binary they are in `../include` and `../lib`; a
// development tree gets the same folders in its target folder, as links to what cargo built.

/// The folders for the compiler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) include: PathBuf,
    pub(crate) lib: PathBuf,
}

impl Home {
    /// The folders that belong to the running binary.
    pub(crate) fn find() -> Result<Self, Failure> {
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
        let (include, lib) = (prefix.join("include"), prefix.join("lib"));
        let is_whole = include.join("atmi.h").exists() && lib.join(layout::SONAME).exists();
        is_whole.then_some(Self { include, lib })
    }
}

// The services that a C server offers from the start, and the `main` that says so.
//
// It never looks for the functions: the linker reports a name that is missing.

/// One service, or only a function when `name` is empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServiceSpec {
    name: String,
    function: String,
}

impl ServiceSpec {
    /// Reads all lists: `A,B`, `A,B:FUNCTION`, `:FUNCTION`, `@FILE`.
    pub(crate) fn read_all(lists: &[String]) -> Result<Vec<Self>, String> {
        let mut specs = Vec::new();
        for list in lists {
            match list.strip_prefix('@') {
                None => read_list(list, &mut specs)?,
                Some(path) => {
                    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
                    for (index, line) in text.lines().enumerate() {
                        let line = line.split('#').next().unwrap_or_default().trim();
                        if !line.is_empty() {
                            read_list(line, &mut specs)
                                .map_err(|error| format!("{path}:{}: {error}", index + 1))?;
                        }
                    }
                }
            }
        }
        let services = specs.iter().filter(|spec| !spec.name.is_empty()).count();
        if services > SERVICES_MAX {
            return Err(format!("{services} services: a server offers {SERVICES_MAX} at most"));
        }
        Ok(specs)
    }
}

fn read_list(list: &str, specs: &mut Vec<ServiceSpec>) -> Result<(), String> {
    let (names, function) = match list.split_once(':') {
        Some((names, function)) => (names, Some(function.trim())),
        None => (list, None),
    };
    if names.trim().is_empty() && function.is_none() {
        return Err("an empty list of services: A,B or A,B:FUNCTION".to_owned());
    }
    for name in names.split(',').map(str::trim) {
        let function = function.unwrap_or(name);
        if !is_identifier(function) {
            return Err(format!("{function:?} in {list:?} is not a name of a C function"));
        }
        let is_only_linked = name.is_empty() && names.trim().is_empty();
        if !is_only_linked && !is_service_name(name) {
            return Err(format!(
                "{name:?} in {list:?} is not a name of a service: 1 to {} letters, digits and signs, \
                 without comma, slash, colon, quote, backslash and @, and no dot in front",
                ServiceName::LEN_BYTES_MAX
            ));
        }
        if !name.is_empty() && specs.iter().any(|known| known.name == name) {
            return Err(format!("{name} is listed twice"));
        }
        specs.push(ServiceSpec { name: name.to_owned(), function: function.to_owned() });
    }
    Ok(())
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

fn is_service_name(name: &str) -> bool {
    // A colon would be read as that of the function, the others end a text of C.
    let is_text_of_c = !name.contains([':', '"', '\\']);
    is_text_of_c && ServiceName::new(name).is_some_and(|name| !name.is_reserved())
}

/// The C source of `main` with the table of services.
pub(crate) fn main_source(specs: &[ServiceSpec]) -> String {
    let mut functions: Vec<_> = specs.iter().map(|spec| spec.function.as_str()).collect();
    functions.sort_unstable();
    functions.dedup();
    let mut source = String::from(
        "/* Made by pollux pool build-server. */\n#include <stddef.h>\n\n#include <atmi.h>\n\n\
         #pragma weak tpsvrinit\n#pragma weak tpsvrdone\n#pragma weak tpsvrthrinit\n\
         #pragma weak tpsvrthrdone\n\n",
    );
    for function in functions {
        writeln!(source, "extern void {function}(TPSVCINFO *);").expect("text grows");
    }
    source.push_str("\nstatic const struct pollux_service services[] = {\n");
    for ServiceSpec { name, function } in specs {
        writeln!(source, "    {{\"{name}\", {function}, \"{function}\"}},").expect("text grows");
    }
    source.push_str(
        "    {NULL, NULL, NULL},\n};\n\nint main(int argc, char **argv) {\n    \
         pollux_server_thread_functions(tpsvrthrinit, tpsvrthrdone);\n    \
         return pollux_server_main(argc, argv, tpsvrinit, tpsvrdone, services);\n}\n",
    );
    source
}

/// Reads all tables, then writes a file for each.
pub(crate) fn fld(flags: &FldFlags) -> Result<ExitCode, Failure> {
    let paths = match &flags.tables[..] {
        [] => files_of_env(|name| std::env::var_os(name)).map_err(failure)?,
        paths => paths.to_vec(),
    };
    let files: Vec<FieldFile> = paths
        .iter()
        .map(|path| FieldFile::open(path))
        .collect::<Result<_, _>>()
        .map_err(failure)?;
    let mut together = FieldTable::new();
    files.iter().try_for_each(|file| together.insert(file)).map_err(failure)?;
    let mut outcomes: Vec<Outcome<'_>> = Vec::new();
    for table in &files {
        let (path, text) = outcome(flags, table);
        if let Some(other) = outcomes.iter().find(|other| other.path == path) {
            let (one, two) = (other.table.path.display(), table.path.display());
            let path = path.display();
            return Err(Failure::usage(format!("{one} and {two} would both be written to {path}")));
        }
        outcomes.push(Outcome { table, path, text });
    }
    if let Some(folder) = &flags.folder {
        fs::create_dir_all(folder).map_err(|error| unwritten(folder, &error))?;
    }
    outcomes.iter().try_for_each(Outcome::write)?;
    Ok(ExitCode::SUCCESS)
}

/// What is written for a table.
struct Outcome<'a> {
    table: &'a FieldFile,
    path: PathBuf,
    text: String,
}

impl Outcome<'_> {
    fn write(&self) -> Result<(), Failure> {
        fs::write(&self.path, &self.text).map_err(|error| unwritten(&self.path, &error))?;
        let (fields, path) = (self.table.definitions().count(), self.path.display());
        output::remark(&format!("{path}: {fields} fields of {}", self.table.path.display()));
        Ok(())
    }
}

/// Where a table goes to, and as what.
fn outcome(flags: &FldFlags, file: &FieldFile) -> (PathBuf, String) {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let (name, text) = match flags.lang {
        Language::C => (format!("{name}.h"), c_header(file)),
        Language::Rust => {
            (format!("{}.rs", name.chars().map(word).collect::<String>()), rust_module(file))
        }
    };
    let folder = flags.folder.as_deref().or(file.path.parent()).unwrap_or(Path::new(""));
    (folder.join(name), text)
}

fn failure(error: TableError) -> Failure {
    match error.problem {
        Problem::NotSet { .. } => {
            Failure::usage(format!("{error}; or name tables: pollux fld bank.fd"))
        }
        _ => Failure::failed(error),
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: cannot be written: {error}", path.display()))
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

    fn read(lists: &[&str]) -> Result<Vec<(String, String)>, String> {
        let lists: Vec<_> = lists.iter().map(|&list| list.to_owned()).collect();
        let specs = ServiceSpec::read_all(&lists)?;
        Ok(specs.into_iter().map(|spec| (spec.name, spec.function)).collect())
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, function)| ((*name).to_owned(), (*function).to_owned())).collect()
    }

    #[test]
    fn lists_files_and_functions_are_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, "# services\nCREDIT : book\n\nDEBIT\n").expect("written");
        let at = format!("@{}", file.path().display());
        let expected = pairs(&[
            ("A", "A"),
            ("B.v2", "f"),
            ("C", "f"),
            ("", "g"),
            ("CREDIT", "book"),
            ("DEBIT", "DEBIT"),
        ]);
        assert_eq!(read(&["A", "B.v2, C:f", ":g", &at]), Ok(expected));
    }

    #[test]
    fn what_is_not_a_name_is_refused_with_its_list() {
        for (list, part) in [
            ("", "empty list"),
            ("A,,B", "not a name of a C function"),
            ("A,,B:f", "not a name of a service"),
            ("A:f g", "\"f g\""),
            ("1A", "not a name of a C function"),
            ("a\"b:f", "not a name of a service"),
            ("@/nowhere/at/all", "No such file"),
            (".hidden:f", "no dot in front"),
            ("A@B:f", "and @"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDE", "1 to 30"),
        ] {
            let error = read(&[list]).expect_err(list);
            assert!(error.contains(part), "{list}: {error}");
        }
        assert_eq!(read(&["A", "A:f"]), Err("A is listed twice".to_owned()));
        let names =
            |count: usize| (0..count).map(|n| format!("S{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(read(&[&names(48), ":g"]).map(|specs| specs.len()), Ok(49));
        let error = read(&[&names(49)]).expect_err("one more than a server offers");
        assert_eq!(error, "49 services: a server offers 48 at most");
    }

    #[test]
    fn main_declares_each_function_once() {
        let specs = ServiceSpec::read_all(&["A,B:f".to_owned(), ":g".to_owned()]).expect("read");
        let source = main_source(&specs);
        assert_eq!(source.matches("extern void f(").count(), 1);
        assert!(source.contains("{\"A\", f, \"f\"}") && source.contains("{\"\", g, \"g\"}"));
    }
}
