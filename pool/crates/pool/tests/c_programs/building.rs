//! `pollux pool build-server`, `build-client` and `lay-out` as a user runs them: options, mistakes, and what is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_testing::{Process, has, succeeded, wait_until};

use crate::workshop::{
    CLIENT_LIBRARIES, POLLUX_POOL, Pool, SERVER_LIBRARIES, Workshop, built_library, repository,
    source,
};

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
    let bank = |name: &str| repository("examples/bank").join(name).display().to_string();
    workshop.pollux(&["fld", &bank("bank.fd"), "-d", "."]);
    for (program, libraries) in [("banksv", SERVER_LIBRARIES), ("bankcl", CLIENT_LIBRARIES)] {
        let source = format!("{program}.c");
        fs::copy(bank(&source), workshop.path(&source)).expect("copied");
        workshop.linked(program, libraries);
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
    let include = prefix.join("include");
    let lib = prefix.join("lib");
    let bin = prefix.join("bin");
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
    // The command of FML32 takes the tables of its own variables alone.
    let commands = "mkfldhdr32 && exit 1\n\
                    FLDTBLDIR32=$PWD FIELDTBLS32=bank32.fd mkfldhdr32 && test -e bank32.fd.h";
    fs::copy(workshop.path("app1/ubftab/bank.fd"), workshop.path("app1/ubftab/bank32.fd"))
        .expect("");
    by_the_manual(&workshop, &prefix, "app1/ubftab", commands);
    let commands = "mkfldhdr -d never && exit 1\ntest ! -e never && mkdir there && mkfldhdr -d there\n\
                    test -e there/bank.fd.h";
    by_the_manual(&workshop, &prefix, "app1/ubftab", commands);
    // The other languages of the manual, and what stands twice in a table.
    let commands = "mkfldhdr -m1 -pubftab && head -n1 bank.fd.go | grep -qx 'package ubftab'\n\
                    printf 'A 1 long\\nA 2 long\\n' > twice\nmkfldhdr twice && exit 1\n\
                    NDRX_APIFLAGS=ubf_dupfidok mkfldhdr twice && grep -q '^#define\tA\t' twice.h";
    by_the_manual(&workshop, &prefix, "app1/ubftab", commands);
    let server =
        "gcc -o banksv banksv.c -I. -I ../../ubftab -lm -lubf -lnstd -latmi -latmisrv -lrt -ldl";
    by_the_manual(&workshop, &prefix, "app1/src/banksv", server);
    // A main of its own may name the functions of a server that it does not bring.
    let own = "printf '#include <atmi.h>\\nint tpsvrinit(int c, char **v) { return v == 0 ? c : 0; }\\n\
               int main(int c, char **v) { return tpsvrinit(c, v) || tpsvrthrinit(c, v); }\\n' > own.c\n\
               gcc -o own own.c -latmisrv -latmi && ./own";
    by_the_manual(&workshop, &prefix, "app1/src/banksv", own);
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
        "buildclient -w -o simpcl -f simpcl.c\nbuildserver -t -o simpserv -f simpserv.c -s TOUPPER";
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
    let pool = Pool::of(&workshop, "echosv");
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
    let pool = Pool::of(&workshop, "cppsv");
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
    let include = format!("-I{prefix}/include");
    let lib = format!("-L{prefix}/lib");
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

#[test]
fn the_examples_of_a_client_build_clients() {
    let said = Process::run(Command::new(POLLUX_POOL).args(["build-client", "--help"]));
    let examples = said.stdout.split("Examples:").nth(1).expect("examples");
    assert!(examples.contains("pollux pool build-client -o bankcl"), "{examples}");
    assert!(!examples.contains("build-server"), "{examples}");
}

#[test]
fn a_service_is_called_from_the_command_line_with_fields_json_and_text() {
    let Some(workshop) = Workshop::open() else { return };
    let table = repository("examples/bank/bank.fd");
    fs::copy(&table, workshop.path("bank.fd")).expect("copied");
    workshop.pollux(&["fld", "bank.fd"]);
    fs::copy(repository("examples/bank/banksv.c"), workshop.path("banksv.c")).expect("copied");
    workshop.pollux(&["build-server", "-o", "banksv", "banksv.c"]);
    let pool = Pool::of(&workshop, "banksv");
    let call = |words: &[&str], text: &str| {
        workshop.write("fields", text);
        let mut command = pool.tool(POLLUX_POOL);
        command
            .arg("call")
            .args(words)
            .stdin(fs::File::open(workshop.path("fields")).expect("written"));
        command.env("FLDTBLDIR", workshop.path("")).env("FIELDTBLS", "bank.fd");
        Process::run(&mut command)
    };
    let asked = "T_ACCNUM\tACC00000000001\nT_ACCCUR\tUSD\n";
    let lines = call(&["BALANCE"], asked);
    assert_eq!(lines.status.code(), Some(0), "{}", lines.stderr);
    assert!(lines.stdout.contains("T_ACCNUM\tACC00000000001\n"), "{}", lines.stdout);
    assert!(lines.stdout.contains("T_AMTAVL\t"), "{}", lines.stdout);
    let from_file = call(&["BALANCE", "--fields", "fields"], asked);
    assert_eq!(from_file.stdout, lines.stdout);
    let json = call(&["BALANCE", "--json"], r#"{"T_ACCNUM":"ACC00000000001","T_ACCCUR":"USD"}"#);
    assert!(json.stdout.contains("\"T_AMTAVL\":"), "{}{}", json.stdout, json.stderr);
    // Without a currency the service says TPFAIL.
    for (words, text, code, said) in [
        (
            &["BALANCE"][..],
            "T_ACCNUM\tACC1\n",
            1,
            "error: TPESVCFAIL: BALANCE returned TPFAIL with ",
        ),
        (&["NONE"], asked, 1, "error: TPENOENT: "),
        (&["BALANCE"], "T_NONE\t1\n", 2, "error: standard input: no field of this name"),
        (&["BALANCE", "--json"], "{", 2, "error: standard input: "),
        (&["BALANCE", "--fields", "none"], "", 1, "error: none: cannot be read: "),
    ] {
        let output = call(words, text);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", output.stderr);
        assert!(output.stderr.starts_with(said), "{words:?}: {}", output.stderr);
    }
    pool.stop();
}

#[test]
fn a_server_without_tpsvrinit_has_its_resources_open() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.write(
        "plainsv.c",
        "#include <atmi.h>\n#include <tx.h>\n\
         void CHAIN(TPSVCINFO *call) {\n\
           int done = tx_set_transaction_control(TX_CHAINED) == TX_OK && tpbegin(30, 0) == 0 && tpcommit(0) == 0\n\
             && tpgetlev() == 1 && tx_set_transaction_control(TX_UNCHAINED) == TX_OK && tpabort(0) == 0 && tpgetlev() == 0;\n\
           tpreturn(done ? TPSUCCESS : TPFAIL, 0, call->data, call->len, 0);\n\
         }\n",
    );
    workshop.pollux(&["build-server", "-o", "plainsv", "plainsv.c", "-s", "CHAIN"]);
    let pool = Pool::of(&workshop, "plainsv");
    let answer = succeeded(pool.tool(POLLUX_POOL).args(["call", "CHAIN", "--string", "done"]));
    assert_eq!(answer.stdout, "done\n");
    pool.stop();
}

#[test]
fn an_exception_that_leaves_a_server_in_cpp_is_named_in_its_output() {
    let Some(workshop) = Workshop::open().filter(|_| has("g++")) else { return };
    for (program, thrower) in [("startsv", "tpsvrinit"), ("callsv", "THROW")] {
        let source = format!("{program}.cpp");
        let throws = "throw std::out_of_range(\"no such door\");";
        let of = |function: &str, rest: &str| {
            if function == thrower { throws.to_owned() } else { rest.to_owned() }
        };
        workshop.write(
            &source,
            &format!(
                "#include <atmi.h>\n#include <stdexcept>\n\
                 extern \"C\" void THROW(TPSVCINFO *call) {{ {} }}\n\
                 int tpsvrinit(int, char **) {{ {} }}\n",
                of("THROW", "tpreturn(TPSUCCESS, 0, call->data, 0, 0);")
                    .replace("throw ", "if (call != nullptr) throw "),
                of("tpsvrinit", "return tpadvertise(\"THROW\", THROW);"),
            ),
        );
        let mut build = Command::new(POLLUX_POOL);
        build.args(["build-server", "-o", program, &source]);
        build.current_dir(workshop.path("")).env("CC", "g++").env("CFLAGS", "-O2");
        succeeded(&mut build);
    }
    let pool = Pool::begin(
        &workshop,
        "<endurox><servers>\
         <server name=\"startsv\"><srvid>1</srvid><min>1</min><max>1</max><respawn>N</respawn><sysopt>-e start.err</sysopt></server>\
         <server name=\"callsv\"><srvid>2</srvid><min>1</min><max>1</max><respawn>N</respawn><sysopt>-e call.err</sysopt></server>\
         </servers></endurox>",
    );
    let call = Process::run(pool.tool(POLLUX_POOL).args(["call", "THROW", "--string", "x"]));
    assert!(call.stderr.contains("TPESVCERR"), "{}", call.stderr);
    for file in ["start.err", "call.err"] {
        let read = || fs::read_to_string(workshop.path(file)).unwrap_or_default();
        wait_until("the exception is named", || read().contains("no such door"));
        let said = read();
        assert!(said.contains("std::out_of_range") && !said.contains("Rust"), "{file}: {said}");
    }
    pool.stop();
}
