//! `pollux pool build-server`, `build-client` and `pollux fld` as a user runs them: options, mistakes, and what is
//! installed and written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_testing::{Ended, Process, has, skip, succeeded};

use crate::{POLLUX_POOL, Pool, Workshop, repository, source};

/// The library as cargo built it.
fn built_library() -> String {
    let binary = Path::new(POLLUX_POOL);
    binary.with_file_name("deps").join("libpollux_xatmi_c.so").display().to_string()
}

#[test]
fn the_bank_example_is_built_and_answers() {
    let Some(workshop) = Workshop::open() else { return };
    let bank = |name: &str| repository("examples/bank").join(name).display().to_string();
    workshop.pollux(&["fld", &bank("bank.fd"), "-d", "."]);
    workshop.pollux(&["build-server", "-o", "banksv", &bank("banksv.c")]);
    workshop.pollux(&["build-client", "-o", "bankcl", &bank("bankcl.c"), "-l", "-lpthread"]);
    let xml = fs::read_to_string(repository("examples/bank/pool.xml")).expect("an example");
    let pool = Pool::start(&workshop, &xml);
    let printed = succeeded(pool.client("bankcl").args(["10", "50"])).stdout;
    assert_eq!(printed.lines().count(), 10, "{printed}");
    assert!(printed.contains("account 1: balance 7595.21 USD after 50 calls\n"), "{printed}");
    pool.stop();
}

#[test]
fn simpapp_is_built_by_the_commands_of_its_manual_and_answers() {
    let Some(workshop) = Workshop::open() else { return };
    let simpapp = |name: &str| repository("examples/simpapp").join(name).display().to_string();
    workshop.pollux(&["build-client", "-o", "simpcl", "-f", &simpapp("simpcl.c")]);
    let server = ["build-server", "-o", "simpserv", "-f", &simpapp("simpserv.c"), "-s", "TOUPPER"];
    workshop.pollux(&server);
    let pool = Pool::start(&workshop, &fs::read_to_string(simpapp("pool.xml")).expect("there"));
    let printed = succeeded(pool.client("simpcl").arg("hello, world")).stdout;
    assert_eq!(printed, "Returned string is: HELLO, WORLD\n");
    let usage = Process::run(&mut pool.client("simpcl"));
    assert_eq!(usage.status.code(), Some(2));
    pool.stop();
    let log = succeeded(&mut workshop.command("sh", &["-c", "cat ULOG.*"])).stdout;
    assert!(log.contains(":simpserv:simpserv starts with 0 arguments\n"), "{log}");
    assert!(log.contains(":the server ends\n"), "{log}");
}

#[test]
fn the_bank_is_built_by_the_link_lines_of_its_manual_and_answers() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.pollux(&["lay-out", "prefix", "--library", &built_library()]);
    let bank = |name: &str| repository("examples/bank").join(name).display().to_string();
    workshop.pollux(&["fld", &bank("bank.fd"), "-d", "."]);
    for (program, libraries) in [
        ("banksv", "-latmisrv -latmi -lubf -lnstd -lrt -ldl -lm"),
        ("bankcl", "-latmiclt -latmi -lubf -lnstd -lpthread -lrt -ldl -lm"),
    ] {
        let source = bank(&format!("{program}.c"));
        let rpath = format!("-Wl,-rpath,{}", workshop.path("prefix/lib").display());
        let mut arguments = vec!["-o", program, &source, "-I.", "-Iprefix/include", "-Lprefix/lib"];
        arguments.push(&rpath);
        arguments.extend(libraries.split(' '));
        succeeded(&mut workshop.command("cc", &arguments));
    }
    let xml = fs::read_to_string(bank("pool.xml")).expect("an example");
    let pool = Pool::start(&workshop, &xml);
    let printed = succeeded(pool.client("bankcl").args(["2", "5"])).stdout;
    assert_eq!(printed.lines().count(), 2, "{printed}");
    pool.stop();
}

/// A prefix in this folder as an installer leaves it, with the program in its `bin`.
fn installed(workshop: &Workshop, folder: &str) -> PathBuf {
    let prefix = workshop.path(folder);
    fs::create_dir_all(prefix.join("bin")).expect("made");
    let program = prefix.join("bin/pollux-pool");
    // Not by this process: what another test starts meanwhile would keep the file open for writing.
    succeeded(Command::new("cp").arg(POLLUX_POOL).arg(&program));
    let mut lay_out = Command::new(program);
    lay_out.arg("lay-out").arg(&prefix).args(["--library", &built_library()]);
    succeeded(&mut lay_out);
    prefix
}

/// Commands as a manual has them, in a shell that knows where pollux is installed, and nothing else.
fn by_the_manual(workshop: &Workshop, prefix: &Path, folder: &str, commands: &str) {
    let (include, lib, bin) = (prefix.join("include"), prefix.join("lib"), prefix.join("bin"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", commands]).current_dir(workshop.path(folder));
    shell.env("PATH", format!("{}:{path}", bin.display())).env_remove("CFLAGS").env_remove("CC");
    // What gcc(1) and ld(1) look at: no flag has to be added to a link line.
    shell.env("CPATH", include).env("LIBRARY_PATH", &lib).env("LD_RUN_PATH", &lib);
    shell.env("FLDTBLDIR", workshop.path("app1/ubftab")).env("FIELDTBLS", "bank.fd");
    succeeded(&mut shell);
}

#[test]
fn the_getting_started_application_is_built_as_its_manual_says_and_answers() {
    let Some(workshop) = Workshop::open() else { return };
    let prefix = installed(&workshop, "opt/pollux");
    for folder in ["app1/ubftab", "app1/src/banksv", "app1/src/bankcl"] {
        fs::create_dir_all(workshop.path(folder)).expect("made");
    }
    for (from, to) in [
        ("bank.fd", "app1/ubftab/bank.fd"),
        ("banksv.c", "app1/src/banksv/banksv.c"),
        ("bankcl.c", "app1/src/bankcl/bankcl.c"),
    ] {
        let from = repository("examples/bank").join(from);
        fs::copy(from, workshop.path(to)).expect("copied");
    }
    by_the_manual(&workshop, &prefix, "app1/ubftab", "mkfldhdr");
    assert!(workshop.path("app1/ubftab/bank.fd.h").exists());
    let server =
        "gcc -o banksv banksv.c -I. -I ../../ubftab -lm -lubf -lnstd -latmi -latmisrv -lrt -ldl";
    by_the_manual(&workshop, &prefix, "app1/src/banksv", server);
    // Threads are the example's own.
    let client = "gcc -o bankcl bankcl.c -I. -I ../../ubftab -lm -lubf -lnstd -latmi -latmiclt -lrt -ldl \
                  -lpthread";
    by_the_manual(&workshop, &prefix, "app1/src/bankcl", client);
    fs::rename(workshop.path("app1/src/banksv/banksv"), workshop.path("banksv")).expect("");
    fs::rename(workshop.path("app1/src/bankcl/bankcl"), workshop.path("bankcl")).expect("");
    let xml = fs::read_to_string(repository("examples/bank/pool.xml")).expect("an example");
    let pool = Pool::start(&workshop, &xml);
    let mut client = pool.client("bankcl");
    let printed = succeeded(client.env_remove("LD_LIBRARY_PATH").args(["2", "5"])).stdout;
    assert_eq!(printed.lines().count(), 2, "{printed}");
    pool.stop();
}

#[test]
fn simpapp_is_built_by_buildserver_and_buildclient_of_the_installation() {
    let Some(workshop) = Workshop::open() else { return };
    let prefix = installed(&workshop, "opt/pollux");
    for name in ["simpcl.c", "simpserv.c"] {
        let from = repository("examples/simpapp").join(name);
        fs::copy(from, workshop.path(name)).expect("copied");
    }
    let commands =
        "buildclient -o simpcl -f simpcl.c\nbuildserver -o simpserv -f simpserv.c -s TOUPPER";
    by_the_manual(&workshop, &prefix, "", commands);
    let xml = fs::read_to_string(repository("examples/simpapp/pool.xml")).expect("there");
    let pool = Pool::start(&workshop, &xml);
    let printed = succeeded(pool.client("simpcl").arg("hello, world")).stdout;
    assert_eq!(printed, "Returned string is: HELLO, WORLD\n");
    pool.stop();
}

#[test]
fn services_of_the_command_line_are_offered_from_the_start() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.write("list", "THIRD:echo\n");
    workshop.write(
        "echo.c",
        "#include <atmi.h>\nvoid echo(TPSVCINFO *i) { tpreturn(TPSUCCESS, 3, i->data, i->len, 0); }\n",
    );
    let server = ["build-server", "-k", "-o", "echosv", "-s", "FIRST,SECOND:echo", "-s", "@list"];
    workshop.pollux(&[&server[..], &["-f", "echo.c"]].concat());
    let main = fs::read_to_string(workshop.path("echosv.main.c")).expect("kept");
    assert!(main.contains("{\"SECOND\", echo, \"echo\"}"), "{main}");
    workshop.pollux(&["build-client", "-o", "callcl", &source("call.c")]);
    let pool = Pool::start(
        &workshop,
        "<endurox><servers><server name=\"echosv\"><srvid>1</srvid><min>1</min><max>1</max>\
         </server></servers></endurox>",
    );
    for service in ["FIRST", "SECOND", "THIRD"] {
        succeeded(pool.client("callcl").arg(service));
    }
    let missing = Process::run(pool.client("callcl").arg("FOURTH"));
    let said = missing.stderr;
    assert!(!missing.status.success() && said.contains("6:TPENOENT"), "{said}");
    pool.stop();
}

#[test]
fn a_server_in_cpp_is_built_by_the_compiler_that_cc_names() {
    let Some(workshop) = Workshop::open().filter(|_| has("g++")) else { return };
    workshop.write(
        "cppsv.cpp",
        "#include <atmi.h>\n#include <string>\n\
         void CPP(TPSVCINFO *call) {\n\
           { const std::string text = call->data; call->data[0] = text.at(text.size() - 1); }\n\
           tpreturn(TPSUCCESS, 3, call->data, call->len, 0);\n\
         }\n\
         int tpsvrinit(int, char **) { return tpadvertise(\"CPP\", CPP); }\n",
    );
    let mut build = Command::new(POLLUX_POOL);
    build.args(["build-server", "-o", "cppsv", "cppsv.cpp"]);
    build.current_dir(workshop.path("")).env("CC", "g++").env("CFLAGS", "-Wall -Wextra -Werror");
    succeeded(&mut build);
    workshop.write(
        "cppcl.c",
        "#include <atmi.h>\n#include <string.h>\nint main(void) {\n\
           char *text = tpalloc(\"STRING\", NULL, 100);\n  long len = 0;\n\
           strcpy(text, \"a to z\");\n\
           return tpcall(\"CPP\", text, 0, &text, &len, 0) == -1 || strcmp(text, \"z to z\") != 0;\n\
         }\n",
    );
    workshop.pollux(&["build-client", "-o", "cppcl", "cppcl.c"]);
    let pool = Pool::start(
        &workshop,
        "<endurox><servers><server name=\"cppsv\"><srvid>1</srvid><min>1</min><max>1</max>\
         </server></servers></endurox>",
    );
    succeeded(&mut pool.client("cppcl"));
    pool.stop();
}

#[test]
fn an_installation_may_stand_in_any_folder() {
    let Some(workshop) = Workshop::open() else { return };
    let prefix = installed(&workshop, "a folder, with 'signs'");
    workshop.write("my client.c", "#include <atmi.h>\nint main(void) { return tpterm(); }\n");
    let mut build = Command::new(prefix.join("bin/pollux-pool"));
    build.args(["build-client", "-v", "-o", "my client", "my client.c"]);
    build.current_dir(workshop.path("")).env_remove("CFLAGS").env_remove("CC");
    let built = Process::run(&mut build);
    assert!(built.status.success(), "{}", built.stderr);
    let mut client = Command::new(workshop.path("my client"));
    succeeded(client.env_remove("LD_LIBRARY_PATH"));
    // What -v shows is what a shell takes.
    succeeded(&mut workshop.command("sh", &["-c", built.stderr.trim_end()]));
}

#[test]
fn mistakes_are_reported_with_what_is_expected() {
    let Some(workshop) = Workshop::open() else { return };
    let fails = |arguments: &[&str], code: i32, part: &str| {
        refused(workshop.command(POLLUX_POOL, arguments).env_remove("CFLAGS"), code, part);
    };
    fails(&["build-server"], 2, "name the sources");
    fails(&["build-server", "-s", "A,,B", "x.c"], 2, "not a name of a C function");
    fails(&["build-server", "-s", "A@B:f", "x.c"], 2, "not a name of a service");
    fails(&["build-client", "missing.c"], 1, "missing.c");
    fails(&["build-client", "-o", "no/such/folder/x", "/dev/null"], 1, "no/such/folder");
    let client = || workshop.command(POLLUX_POOL, &["build-client", "x.c"]);
    refused(client().env("PATH", "").env_remove("CC"), 1, "cc was not found");
    refused(client().env("CC", "no-such-compiler-here"), 1, "install a C compiler");
}

/// Runs a command that must end with `code` and say `part`.
fn refused(command: &mut Command, code: i32, part: &str) {
    let ended = Process::run(command);
    assert_eq!(ended.status.code(), Some(code), "{command:?}: {}", ended.stderr);
    assert!(ended.stderr.contains(part), "{command:?}: {}", ended.stderr);
}

#[test]
fn a_laid_out_prefix_has_a_package_that_stands_for_itself() {
    let Some(workshop) = Workshop::open() else { return };
    let library = built_library();
    workshop.pollux(&["lay-out", "prefix", "--library", &library]);
    workshop.write("empty.c", "#include <atmi.h>\nint main(void) { return tpterm(); }\n");
    let prefix = workshop.path("prefix").display().to_string();
    let (include, lib) = (format!("-I{prefix}/include"), format!("-L{prefix}/lib"));
    let flags = match Command::new("pkg-config").arg("--version").output() {
        Err(_) => vec![include, lib, "-lpollux_xatmi".to_owned()],
        Ok(_) => {
            let mut command = Command::new("pkg-config");
            command.args(["--cflags", "--libs", "pollux-xatmi"]);
            command.env("PKG_CONFIG_PATH", workshop.path("prefix/lib/pkgconfig"));
            let flags = succeeded(&mut command).stdout;
            flags.split_whitespace().map(str::to_owned).collect()
        }
    };
    let mut arguments = vec!["-o", "empty", "empty.c"];
    arguments.extend(flags.iter().map(String::as_str));
    succeeded(&mut workshop.command("cc", &arguments));
    let mut program = Command::new(workshop.path("empty"));
    succeeded(program.env("LD_LIBRARY_PATH", workshop.path("prefix/lib")));
}

// The bank of seed 4: its client, server and configuration, taken from the document as they are.
//
// Only paths are changed, and in the ordinary tests two numbers: copies and calls. The whole run,
// 250 copies and 1,000,000 calls, is for release builds.

/// The document with the sources.
const DOCUMENT: &str = "004_1aefc34da9e286d5.txt";
/// The seed's link lines.
const SERVER_LIBRARIES: &str = "-latmisrv -latmi -lubf -lnstd -lrt -ldl -lm";
const CLIENT_LIBRARIES: &str = "-latmiclt -latmi -lubf -lnstd -lpthread -lrt -ldl -lm";

/// Client, server and configuration of the document.
struct Seed {
    client: String,
    server: String,
    xml: String,
}

impl Seed {
    fn read() -> Option<Self> {
        let folder = std::env::var_os("POLLUX_SEEDS").map_or_else(beside, PathBuf::from);
        let path = folder.join(DOCUMENT);
        let Ok(text) = fs::read_to_string(&path) else {
            skip(format_args!("{}: not there; POLLUX_SEEDS names the folder", path.display()));
            return None;
        };
        let between = |from: &str, to: &str| {
            let rest = text.split_once(from).expect("a heading").1;
            rest.split_once(to).expect("the next heading").0.to_owned()
        };
        let server = between("Test server app", "Enduro/X runtime config");
        let code = server.find("#include").expect("a first line");
        Some(Self {
            client: between("Client source code:", "Test server app"),
            server: server[code..].to_owned(),
            xml: format!("<?xml{}</endurox>", between("<?xml", "</endurox>")),
        })
    }

    /// Builds both programs with the seed's link lines, and starts the pool.
    fn pool<'a>(&self, workshop: &'a Workshop, copies: u32) -> Pool<'a> {
        let bank = repository("examples/bank/bank.fd").display().to_string();
        workshop.pollux(&["fld", &bank, "-d", "."]);
        build(workshop, "banksv", &self.server, SERVER_LIBRARIES);
        build(workshop, "bankcl", &self.client, CLIENT_LIBRARIES);
        let logs = workshop.path("").display().to_string();
        let xml = self.xml.replace("/opt/app1/log/", &logs).replace("250<", &format!("{copies}<"));
        Pool::start(workshop, &xml)
    }
}

/// The folder beside the repository.
fn beside() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds")
}

/// Warnings of the seed's own code are its own; none may point at a header of ours.
fn build(workshop: &Workshop, name: &str, source: &str, libraries: &str) {
    let file = format!("{name}.c");
    workshop.write(&file, source);
    let prefix = workshop.path("prefix").display().to_string();
    if !workshop.path("prefix").exists() {
        workshop.pollux(&["lay-out", "prefix", "--library", &built_library()]);
    }
    let folders = [
        format!("-I{prefix}/include"),
        format!("-L{prefix}/lib"),
        format!("-Wl,-rpath,{prefix}/lib"),
    ];
    let mut arguments = vec!["-O2", "-Wall", "-Wextra", "-I.", "-o", name, &file];
    arguments.extend(folders.iter().map(String::as_str));
    arguments.extend(libraries.split(' '));
    let built = Process::run(&mut workshop.command("gcc", &arguments));
    let said = built.stderr;
    assert!(built.status.success(), "{said}");
    let ours = |line: &&str| ["atmi.h:", "ubf.h:", "bank.fd.h:"].iter().any(|h| line.contains(h));
    assert_eq!(said.lines().find(ours), None, "a warning from our headers");
}

/// The client's ten lines, and nothing else.
fn assert_ten_balances(printed: &str) {
    let is_balance =
        |line: &str| line.starts_with("Account balance is: ") && line.ends_with(" USD");
    assert!(printed.lines().count() == 10 && printed.lines().all(is_balance), "{printed}");
}

#[test]
fn the_bank_of_the_seed_runs_with_fewer_copies_and_calls() {
    let Some(seed) = Seed::read() else { return };
    let Some(workshop) = Workshop::open() else { return };
    let fewer = seed.client.replace("1000000/THREADCOUNT", "1000/THREADCOUNT");
    assert_ne!(fewer, seed.client, "the seed's number of calls");
    let seed = Seed { client: fewer, ..seed };
    let pool = seed.pool(&workshop, 20);
    assert_ten_balances(&succeeded(&mut pool.client("bankcl")).stdout);
    pool.stop();
    // Each copy's tpsvrdone writes to the file of -e.
    let log = fs::read_to_string(workshop.path("BANKSV")).expect("the servers' output");
    assert_eq!(log.matches("tpsvrdone called").count(), 20, "{log}");
}

/// Half a minute even when optimised: `cargo test --release -p pollux-cli --test c_programs`.
#[cfg(not(debug_assertions))]
#[test]
fn the_bank_of_the_seed_runs_as_it_is() {
    let Some(seed) = Seed::read() else { return };
    let Some(workshop) = Workshop::open() else { return };
    let pool = seed.pool(&workshop, 250);
    assert_ten_balances(&succeeded(&mut pool.client("bankcl")).stdout);
    pool.stop();
    let log = fs::read_to_string(workshop.path("BANKSV")).expect("the servers' output");
    assert_eq!(log.matches("tpsvrdone called").count(), 250);
}

const BANK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bank/bank.fd");

fn fld(words: &[&str], environment: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-pool"));
    command.env_remove("FLDTBLDIR").env_remove("FIELDTBLS").envs(environment.iter().copied());
    Process::run(command.arg("fld").args(words))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in ASCII")
}

#[test]
fn the_header_of_the_bank_has_the_numbers_that_its_programs_know() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("made/include");
    let output = fld(&[BANK, "-d", text(&folder)], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("bank.fd.h: 3 fields of "), "{}", output.stderr);
    let header = fs::read_to_string(folder.join("bank.fd.h")).expect("written");
    for define in [
        "#define T_ACCNUM ((BFLDID32)167773161)",
        "#define T_ACCCUR ((BFLDID32)167773162)",
        "#define T_AMTAVL ((BFLDID32)134218731)",
    ] {
        assert!(header.contains(define), "{header}");
    }
}

#[test]
fn without_a_folder_it_is_written_beside_the_table_and_rust_is_a_module() {
    let scratch = tempfile::tempdir().expect("a folder");
    let table = scratch.path().join("bank.fd");
    fs::copy(BANK, &table).expect("copied");
    assert_eq!(fld(&[text(&table)], &[]).status.code(), Some(0));
    assert!(scratch.path().join("bank.fd.h").is_file());
    assert_eq!(fld(&["-m", "rust", text(&table)], &[]).status.code(), Some(0));
    let module = fs::read_to_string(scratch.path().join("bank_fd.rs")).expect("written");
    assert!(
        module.contains("pub const T_ACCNUM: FieldId = FieldId::new(FieldType::String, 1001);")
    );
}

#[test]
fn without_tables_the_environment_names_them() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (folder, name, line) in [("a", "one.fd", "A 1 long"), ("b", "two.fd", "B 1 short")] {
        fs::create_dir(scratch.path().join(folder)).expect("made");
        fs::write(scratch.path().join(folder).join(name), line).expect("written");
    }
    let folders = format!("{0}/a:{0}/b", text(scratch.path()));
    let environment = [("FLDTBLDIR", folders.as_str()), ("FIELDTBLS", "one.fd,two.fd")];
    let out = scratch.path().join("out");
    assert_eq!(fld(&["-d", text(&out)], &environment).status.code(), Some(0));
    assert!(out.join("one.fd.h").is_file() && out.join("two.fd.h").is_file());

    for (left, missing) in [(environment[1], "FLDTBLDIR"), (environment[0], "FIELDTBLS")] {
        let output = fld(&[], &[left]);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stderr.contains(&format!("{missing} is not set")), "{}", output.stderr);
    }
}

#[test]
fn a_mistake_is_reported_with_file_and_line_and_nothing_is_written() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (good, bad) = (scratch.path().join("good.fd"), scratch.path().join("bad.fd"));
    fs::write(&good, "A 1 long\n").expect("written");
    for (table, what) in [
        ("B 2 strong\n", "bad.fd:1: 'strong' is not a type"),
        ("# x\nB 2\n", "bad.fd:2: 'B 2' is not a field"),
        ("B 1 long\n", "bad.fd:1: number 1 of type long is taken by A in "),
        ("A 2 long\nA 3 long\n", "bad.fd:2: the name A is taken by a field in "),
    ] {
        fs::write(&bad, table).expect("written");
        let output = fld(&[text(&good), text(&bad)], &[]);
        assert_eq!(output.status.code(), Some(1), "{table}");
        assert!(output.stderr.contains(what), "{}", output.stderr);
        assert!(!scratch.path().join("good.fd.h").exists());
    }
    let output = fld(&["no/such.fd"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("no/such.fd: cannot be read"), "{}", output.stderr);
}

#[test]
fn a_name_in_two_tables_is_a_field_of_each_header() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (one, two) = (scratch.path().join("one.fd"), scratch.path().join("two.fd"));
    fs::write(&one, "A 1 long\n").expect("written");
    fs::write(&two, "A 2 long\n").expect("written");
    let output = fld(&[text(&one), text(&two), "-d", text(scratch.path())], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    for (header, id) in [("one.fd.h", 33_554_433), ("two.fd.h", 33_554_434)] {
        let header = fs::read_to_string(scratch.path().join(header)).expect("written");
        assert!(header.contains(&id.to_string()), "{header}");
    }
}

#[test]
fn two_tables_do_not_become_one_file() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (folder, line) in [("a", "A 1 long"), ("b", "B 2 long")] {
        fs::create_dir(scratch.path().join(folder)).expect("made");
        fs::write(scratch.path().join(folder).join("x.fd"), line).expect("written");
    }
    let (a, b) = (scratch.path().join("a/x.fd"), scratch.path().join("b/x.fd"));
    let output = fld(&[text(&a), text(&b), "-d", text(scratch.path())], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.contains("would both be written to "), "{}", output.stderr);
    assert!(!scratch.path().join("x.fd.h").exists());
    assert_eq!(fld(&[text(&a), text(&b)], &[]).status.code(), Some(0));
}

#[test]
fn what_cannot_be_written_is_named() {
    let scratch = tempfile::tempdir().expect("a folder");
    fs::write(scratch.path().join("file"), "").expect("written");
    let output = fld(&[BANK, "-d", text(&scratch.path().join("file"))], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("file: cannot be written: "), "{}", output.stderr);
}

#[test]
fn the_header_is_one_that_a_compiler_takes() {
    let scratch = tempfile::tempdir().expect("a folder");
    assert_eq!(fld(&[BANK, "-d", text(scratch.path())], &[]).status.code(), Some(0));
    let program = scratch.path().join("fields.c");
    let source = "typedef int BFLDID32;\n#include \"bank.fd.h\"\n#include \"bank.fd.h\"\n\
                  _Static_assert(T_ACCNUM == 167773161 && T_AMTAVL == 134218731, \"ids\");\n";
    fs::write(&program, source).expect("written");
    if !has("cc") {
        return;
    }
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Werror", "-pedantic-errors", "-fsyntax-only"]);
    let output = Process::run(compiler.arg(&program));
    assert!(output.status.success(), "{}", output.stderr);
}
