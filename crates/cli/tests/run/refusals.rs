//! What is out of reach is told before it starts.

use crate::programs::{built, run, skip, text};

fn refused(program: &str, code: i32, words: &str) {
    let output = run(&["--", program]).output().expect("pollux starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with(&format!("error: {program}")) && said.contains(words), "{said}");
    assert_eq!(text(&output.stdout), "", "it did not run");
}

#[test]
fn a_static_program_is_refused() {
    let Some((_folder, program)) = built("clean", &["-static"]) else { return };
    refused(program.to_str().expect("UTF-8"), 126, "static");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    refused("no-such-program", 127, "program not found");
}

#[test]
fn a_go_program_is_refused() {
    let Some(go) = pollux_doctor::host::programs::find("go") else {
        return skip("no Go program is known here: go is not installed");
    };
    refused(go.to_str().expect("UTF-8"), 126, "a Go program");
}

#[test]
fn a_setuid_program_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let Some((_folder, program)) = built("clean", &[]) else { return };
    let mode = std::fs::Permissions::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).expect("its owner may");
    refused(program.to_str().expect("UTF-8"), 126, "setuid");
}

#[test]
fn a_text_that_is_no_script_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes");
    std::fs::write(&path, "words\n").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its owner may");
    refused(path.to_str().expect("UTF-8"), 126, "neither a 64-bit ELF program nor a script");
}
