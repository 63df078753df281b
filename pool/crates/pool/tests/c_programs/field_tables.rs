//! `pollux fld` as a user runs it: what it writes, and mistakes.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use pollux_testing::{Output, Process, has};

use crate::workshop::POLLUX_POOL;

const BANK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/bank/bank.fd");

fn fld(words: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(POLLUX_POOL);
    command.env_remove("FLDTBLDIR").env_remove("FIELDTBLS");
    command.env_remove("FLDTBLDIR32").env_remove("FIELDTBLS32").envs(environment.iter().copied());
    Process::run(command.arg("fld").args(words))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in ASCII")
}

#[test]
fn its_help_and_its_errors_name_the_command_as_it_was_called() {
    // `pollux fld` runs the program under the name of pollux.
    for (name, usage) in
        [("pollux", "pollux fld [OPTIONS]"), ("pollux-pool", "pollux pool fld [OPTIONS]")]
    {
        let said = |word| Process::run(Command::new(POLLUX_POOL).arg0(name).args(["fld", word]));
        let help = said("--help");
        let wrong = said("--wrong");
        let usage = format!("Usage: {usage}");
        assert!(help.stdout.contains(&usage), "{}", help.stdout);
        assert!(wrong.stderr.contains(&usage), "{}", wrong.stderr);
    }
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

    let fml32 = [("FLDTBLDIR32", folders.as_str()), ("FIELDTBLS32", "two.fd")];
    let out = scratch.path().join("out32");
    assert_eq!(fld(&["-d", text(&out)], &fml32).status.code(), Some(0));
    assert!(out.join("two.fd.h").is_file() && !out.join("one.fd.h").exists());

    for (left, missing) in [(environment[1], "FLDTBLDIR"), (environment[0], "FIELDTBLS")] {
        let output = fld(&[], &[left]);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stderr.contains(&format!("{missing} is not set")), "{}", output.stderr);
    }
}

#[test]
fn a_mistake_is_reported_with_file_and_line_and_nothing_is_written() {
    let scratch = tempfile::tempdir().expect("a folder");
    let good = scratch.path().join("good.fd");
    let bad = scratch.path().join("bad.fd");
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
    let one = scratch.path().join("one.fd");
    let two = scratch.path().join("two.fd");
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
    let a = scratch.path().join("a/x.fd");
    let b = scratch.path().join("b/x.fd");
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
