//! The C interface as C programs see it: headers, layouts, and what each function answers.
//!
//! Every test compiles small C programs against the headers and the library as they were built,
//! without a pool; each says what did not hold and ends with 1 then. Without a C compiler they are skipped with the
//! reason, which `POLLUX_FORBID_SKIP` forbids.

mod headers;

use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_testing::{Output, Process, has, succeeded};
use pollux_xatmi::field_table::{self, FieldFile};
use pollux_xatmi::view::{self, ViewFile};
use pollux_xatmi_c::layout::{self, Library};
use tempfile::TempDir;

/// A compiler with all that a program needs.
pub(crate) struct Toolchain {
    compiler: &'static str,
    folder: TempDir,
}

impl Toolchain {
    /// `None`, with the reason printed, where the compiler is missing.
    pub(crate) fn of(compiler: &'static str) -> Option<Self> {
        if !has(compiler) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let tests = std::env::current_exe().expect("the own path");
        let built = tests.parent().expect("a folder").join(layout::BUILT_NAME);
        layout::lay_out(folder.path(), &built, Library::Linked).expect("laid out");
        Some(Self { compiler, folder })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the compiler with our headers.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.compiler);
        command.arg("-I").arg(self.path("include")).args(arguments);
        Process::run(command.current_dir(self.folder.path()))
    }

    /// Builds a program of `tests/interface` without a warning and returns its path.
    pub(crate) fn program(&self, source: &str) -> PathBuf {
        self.program_with(source, &[])
    }

    /// The same with further options.
    pub(crate) fn program_with(&self, source: &str, more: &[&str]) -> PathBuf {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interface").join(source);
        let path = path.display().to_string();
        let output = self.path("program");
        let lib = self.path("lib").display().to_string();
        let common = [
            "-std=c11",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            &output.display().to_string(),
            &path,
            &format!("-L{lib}"),
            &format!("-Wl,-rpath,{lib}"),
            "-lpollux_xatmi",
            "-lpthread",
        ];
        let built = self.run(&[&common[..], more].concat());
        assert!(built.status.success(), "{}", built.stderr);
        output
    }
}

#[test]
fn sizes_places_and_numbers_are_those_of_the_interface() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    succeeded(&mut Command::new(gcc.program("layouts.c")));
}

#[test]
fn buffers_answer_as_documented_and_no_pointer_crashes_them() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    succeeded(&mut Command::new(gcc.program("buffers.c")));
}

#[test]
fn fields_answer_as_documented_and_no_pointer_crashes_them() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    std::fs::write(gcc.path("bank.fd"), "*base 1000\nT_ACCNUM 1 string - account\n").expect("");
    let mut program = Command::new(gcc.program("fields.c"));
    program.env("FLDTBLDIR", gcc.path("")).env("FIELDTBLS", "bank.fd");
    let out = succeeded(&mut program).stdout;
    assert!(out.contains("T_ACCNUM\tone\n"), "{out}");
}

#[test]
fn values_paths_and_whole_buffers_answer_as_documented() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    succeeded(&mut Command::new(gcc.program("more_fields.c")));
}

#[test]
fn each_function_of_fields_has_its_errors() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let mut program = Command::new(gcc.program("errors.c"));
    let said = succeeded(program.env("FLDTBLDIR", gcc.path(""))).stderr;
    assert!(said.contains("as expected: 3:BNOTFLD"), "{said}");
}

#[test]
fn without_memory_for_what_is_given_out_nothing_else_changes() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let program = gcc.program_with("no_memory.c", &["-D_GNU_SOURCE", "-ldl"]);
    succeeded(&mut Command::new(program));
}

#[test]
fn expressions_and_files_answer_as_documented() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let table = "T_NAME 1 string\nT_AGE 2 long\nT_INNER 3 ubf\nT_BYTES 4 carray\n";
    std::fs::write(gcc.path("person.fd"), table).expect("written");
    let mut program = Command::new(gcc.program("expressions.c"));
    program.env("FLDTBLDIR", gcc.path("")).env("FIELDTBLS", "person.fd");
    succeeded(&mut program);
}

/// Members of all types, with all flags.
const PEOPLE: &str = "\
VIEW PERSON
short   age     T_AGE    1     -    -    -1
long    ids     T_ID     3     C    -    0
int     small   -        2     -    -    7
char    sex     T_SEX    1     -    -    '-'
float   height  T_HEIGHT 1     S    -    1.5
double  weight  T_WEIGHT 1     F    -    NONE
string  name    T_NAME   1     -    12   'no \\'one\\''
string  phones  T_PHONE  2     CL   8    -
carray  photo   T_PHOTO  1     L    6    '\\0\\n'
string  padded  -        1     P    6    'ab '
END
VIEW SMALL
char one - 1 - - -
END
VIEW STRANGE
long one T_NONE 1 - - -
END
";
const PEOPLE_FIELDS: &str = "T_AGE 1 short\nT_ID 2 long\nT_SEX 3 char\nT_HEIGHT 4 float\nT_WEIGHT 5 double\n\
                             T_NAME 6 string\nT_PHONE 7 string\nT_PHOTO 8 carray\nT_VIEW 9 view\n";

/// Writes what `viewc` and `mkfldhdr` make of the view and its fields; the folder.
fn with_people(gcc: &Toolchain) -> String {
    let views = ViewFile::parse(&gcc.path("people.v"), PEOPLE).expect("views");
    let fields = FieldFile::parse(&gcc.path("people.fd"), PEOPLE_FIELDS).expect("fields");
    for (name, text) in [
        ("people.h", view::c_header(&views, "people.h")),
        ("people.V", views.compiled()),
        ("people.fd.h", field_table::c_header(&fields)),
        ("people.fd", PEOPLE_FIELDS.to_owned()),
    ] {
        std::fs::write(gcc.path(name), text).expect("written");
    }
    gcc.path("").display().to_string()
}

#[test]
fn structs_of_views_answer_as_documented() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let here = with_people(&gcc);
    let path = gcc.program_with("views.c", &["-I", &here]);
    for suffix in ["", "32"] {
        let mut program = Command::new(&path);
        for (name, value) in [
            ("FLDTBLDIR", here.as_str()),
            ("FIELDTBLS", "people.fd"),
            ("VIEWDIR", here.as_str()),
            ("VIEWFILES", "people.V"),
        ] {
            program.env(format!("{name}{suffix}"), value);
        }
        let said = succeeded(&mut program).stdout;
        assert!(said.contains("name\ta\\09b\n"), "{said}");
    }
    std::fs::write(gcc.path("wrong.V"), "VIEW PERSON\n").expect("written");
    for (file, error) in [("none.V", "19"), ("wrong.V", "18")] {
        let mut program = Command::new(&path);
        program.env("VIEWDIR", &here).env("VIEWFILES", file);
        succeeded(program.env_remove("VIEWFILES32").arg(error));
    }
}

#[test]
fn buffers_and_structs_go_through_functions_and_json() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let here = with_people(&gcc);
    let mut program = Command::new(gcc.program_with("callbacks.c", &["-I", &here]));
    program.env("FLDTBLDIR", &here).env("FIELDTBLS", "people.fd").env_remove("POLLUX_OF_A_TEST");
    succeeded(program.env("VIEWDIR", &here).env("VIEWFILES", "people.V"));
}

#[test]
fn programs_of_fml_find_their_names_and_functions_have_addresses() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let said = succeeded(&mut Command::new(gcc.program("fml.c"))).stderr;
    assert!(said.starts_with("expected: 0:BMINVAL"), "{said}");
}

#[test]
fn fields_become_json_and_come_back() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let table = "T_NAME 1 string\nT_AGE 2 long\nT_INNER 3 ubf\nT_BYTES 4 carray\n";
    std::fs::write(gcc.path("person.fd"), table).expect("written");
    let mut program = Command::new(gcc.program("json.c"));
    program.env("FLDTBLDIR", gcc.path("")).env("FIELDTBLS", "person.fd");
    succeeded(&mut program);
}

#[test]
fn functions_with_a_context_in_front_keep_what_is_of_it() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(gcc.program("contexts.c"));
    program.arg(folder.path()).env("NDRX_QPREFIX", NO_POOL).env_remove("FIELDTBLS");
    succeeded(program.env("NDRX_DEBUG_STR", "tp=4"));
}

#[test]
fn lines_with_a_level_go_where_process_and_thread_say() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("process.log");
    let mut program = Command::new(gcc.program("logging.c"));
    program.arg(folder.path()).env("NDRX_DEBUG_STR", format!("tp=4 ndrx=0 file={}", log.display()));
    succeeded(&mut program);
}

#[test]
fn lines_for_the_log_leave_the_error_that_a_program_looks_at_next() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for levels in ["tp=0", "tp=3", "tp=6"] {
        let mut program = Command::new(gcc.program("tperrno.c"));
        program.arg(folder.path()).env("NDRX_QPREFIX", NO_POOL).env("NDRX_DEBUG_STR", levels);
        succeeded(program.env("NDRX_ULOG", folder.path()).env_remove("FIELDTBLS"));
    }
}

#[test]
fn an_environment_that_names_a_common_configuration_is_whole() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let program = gcc.program("common_config.c");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let app = "[@global]\nNDRX_NODEID=17\nNDRX_QPREFIX=/none\nLOG=${NDRX_APPHOME}/log\n\
               [@debug]\n*= ndrx=5 tp=5 file=\nprogram= tp=3 file=${LOG}\n";
    let debug = format!("* ndrx=0 tp=0 file=\nprogram tp=3 file={}\n", path("debug.log"));
    for (name, text) in
        [("app.ini", app), ("debug.conf", &debug), ("wrong.ini", "[@global]\nword\n")]
    {
        std::fs::write(path(name), text).expect("written");
    }
    let command = |variable: &str, file: &str| {
        let mut command = Command::new(&program);
        command.env_remove("NDRX_DEBUG_STR").env_remove("NDRX_NODEID");
        command.env("NDRX_APPHOME", folder.path()).env(variable, path(file));
        command
    };
    let said = succeeded(command("NDRX_CCONFIG", "app.ini").args([&path("log"), "17"])).stderr;
    assert_eq!(said, "");
    let mut by_debug = command("NDRX_DEBUG_CONF", "debug.conf");
    assert_eq!(
        succeeded(by_debug.args([&path("debug.log"), "5"]).env("NDRX_NODEID", "5")).stderr,
        ""
    );
    let mut wrong = command("NDRX_CCONFIG", "wrong.ini");
    assert_eq!(succeeded(wrong.arg("wrong.ini:2: expected NAME=VALUE")).stderr, "");
}

#[test]
fn programs_read_their_identity_and_the_last_error() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let mut program = Command::new(gcc.program("identity.c"));
    program.env("NDRX_QPREFIX", NO_POOL).env_remove("NDRX_NODEID");
    succeeded(&mut program);
}

#[test]
fn without_field_tables_names_are_errors_and_printing_goes_by_number() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let source = gcc.program("no_tables.c");
    let run = |dir: &str, tables: Option<&str>, error: &str| {
        let mut program = Command::new(&source);
        program.env_remove("FLDTBLDIR").env_remove("FIELDTBLS").arg(error);
        if let Some(tables) = tables {
            program.env("FLDTBLDIR", dir).env("FIELDTBLS", tables);
        }
        assert!(succeeded(&mut program).stdout.contains("\tx\n"));
    };
    let folder = gcc.path("");
    let folder = folder.to_str().expect("text");
    run(folder, None, "12");
    run(folder, Some("none.fd"), "12");
    std::fs::write(gcc.path("wrong.fd"), "T_ACCNUM one string\n").expect("written");
    run(folder, Some("wrong.fd"), "13");
}

/// A prefix that no pool has.
pub(crate) const NO_POOL: &str = "/pollux-no-pool-of-this-name";

#[test]
fn calls_without_a_pool_are_errors_and_no_argument_crashes_them() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let mut program = Command::new(gcc.program("calls.c"));
    program.env("NDRX_QPREFIX", NO_POOL).env_remove("NDRX_TOUT");
    succeeded(&mut program);
}

#[test]
fn transactions_over_no_resource_begin_end_and_time_out() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let mut program = Command::new(gcc.program("transactions.c"));
    program.env("NDRX_QPREFIX", NO_POOL).env_remove("NDRX_TOUT");
    succeeded(&mut program);
}

#[test]
fn lines_of_programs_stand_in_the_log_of_the_day() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(gcc.program("userlog.c"));
    program.arg(folder.path()).env("NDRX_QPREFIX", NO_POOL);
    succeeded(&mut program);
}

#[test]
fn a_prefix_that_makes_no_sense_is_an_argument_that_makes_none() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let mut program = Command::new(gcc.program("environment.c"));
    succeeded(program.env("NDRX_QPREFIX", "no slash"));
}

#[test]
fn a_server_that_is_started_by_hand_says_how_it_is_started() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    std::fs::write(gcc.path("server.c"), "extern int unused;\n").expect("written");
    let built = gcc.run(&[
        "-o",
        "server",
        "server.c",
        "-Llib",
        "-latmisrv",
        "-latmi",
        &format!("-Wl,-rpath,{}", gcc.path("lib").display()),
    ]);
    assert!(built.status.success(), "{}", built.stderr);
    let ended = Process::run(Command::new(gcc.path("server")).args(["-k", "x", "-i", "1"]));
    let said = ended.stderr;
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("pollux pool start"), "{said}");
}

/// Programs that run again under valgrind and with gcc's sanitizers, with their environment.
const PROGRAMS: [(&str, &[(&str, &str)]); 11] = [
    ("layouts.c", &[]),
    ("buffers.c", &[]),
    ("more_fields.c", &[]),
    ("fields.c", &[("FIELDTBLS", "bank.fd")]),
    ("expressions.c", &[("FIELDTBLS", "person.fd")]),
    ("json.c", &[("FIELDTBLS", "person.fd")]),
    ("errors.c", &[]),
    ("fml.c", &[]),
    ("calls.c", &[]),
    ("identity.c", &[]),
    ("transactions.c", &[]),
];

fn run_all(more: &[&str], start: impl Fn(&Path) -> Command) {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    std::fs::write(gcc.path("bank.fd"), "*base 1000\nT_ACCNUM 1 string - account\n").expect("");
    let person = "T_NAME 1 string\nT_AGE 2 long\nT_INNER 3 ubf\nT_BYTES 4 carray\n";
    std::fs::write(gcc.path("person.fd"), person).expect("written");
    for (source, variables) in PROGRAMS {
        let mut command = start(&gcc.program_with(source, more));
        command.env_remove("NDRX_TOUT").env_remove("NDRX_NODEID").env_remove("FIELDTBLS");
        command.env("MEMORY_IS_WATCHED", "1");
        command.env("NDRX_QPREFIX", NO_POOL).env("FLDTBLDIR", gcc.path(""));
        command.envs(variables.iter().copied());
        succeeded(&mut command);
    }
}

#[test]
fn valgrind_finds_nothing_wrong_in_any_program() {
    if !has("valgrind") {
        return;
    }
    let suppressions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interface/valgrind.supp");
    run_all(&["-g"], |program| {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full"]);
        valgrind.arg("--errors-for-leak-kinds=definite");
        valgrind.arg(format!("--suppressions={}", suppressions.display())).arg(program);
        valgrind
    });
}

#[test]
fn the_address_sanitizer_finds_nothing_wrong_in_any_program() {
    run_all(&["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], |program| {
        let mut program = Command::new(program);
        program.env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=1");
        program
    });
}
