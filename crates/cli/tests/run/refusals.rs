//! What is out of reach is refused before it starts.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::geteuid;
use tempfile::TempDir;

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

/// Another user than any that tests run as.
const NOBODY: u32 = 65534;

/// A program with the setuid bit, whose owner is this user or another one.
fn setuid(owner: Option<u32>) -> Option<(TempDir, PathBuf)> {
    let (folder, program) = built("clean", &[])?;
    chown(&program, owner, None).expect("root may");
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("its owner may");
    Some((folder, program))
}

#[test]
fn a_setuid_program_is_refused() {
    if !geteuid().is_root() {
        return skip("only root may give a file to another user");
    }
    let Some((_folder, program)) = setuid(Some(NOBODY)) else { return };
    refused(program.to_str().expect("UTF-8"), 126, "setuid");
}

#[test]
fn a_program_that_is_setuid_to_the_same_user_is_run() {
    let Some((_folder, program)) = setuid(None) else { return };
    let output = run(&["--"]).arg(&program).arg("3").output().expect("pollux starts");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("4,000 events"), "{output:?}");
}

#[test]
fn a_program_that_gains_capabilities_is_refused() {
    /// VFS_CAP_REVISION_2 of linux/capability.h, with CAP_NET_BIND_SERVICE permitted and effective.
    const CAPABILITIES: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    if !geteuid().is_root() {
        return skip("only root may give a file capabilities");
    }
    let Some((folder, program)) = built("clean", &[]) else { return };
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    let value = CAPABILITIES.map(u32::to_le_bytes).concat();
    if let Err(error) = setxattr(&program, "security.capability", &value, XattrFlags::empty()) {
        return skip(&format!("no capabilities of files here: {error}"));
    }
    let output = match run(&["--"]).arg(&program).uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("another user may not start pollux: {error}")),
    };
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(text(&output.stderr).contains("gives it capabilities"), "{output:?}");
    // Root has them anyhow.
    let output = run(&["--"]).arg(&program).output().expect("pollux starts");
    assert!(text(&output.stderr).contains("4,000 events"), "{output:?}");
}

#[test]
fn what_may_not_be_executed_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes");
    std::fs::write(&path, "#!/bin/sh\n").expect("written");
    for path in [folder.path(), &path] {
        refused(path.to_str().expect("UTF-8"), 126, "not a file that may be executed");
    }
}

#[test]
fn a_text_that_is_not_a_script_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes");
    std::fs::write(&path, "words\n").expect("written");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its owner may");
    refused(path.to_str().expect("UTF-8"), 126, "neither a 64-bit ELF program nor a script");
}
