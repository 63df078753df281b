//! `pollux pool` and `pollux fld` as they find and run `pollux-pool`: arguments, exit codes, signals,
//! and what is said where it is missing. A script stands for that program.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pollux_testing::script;
use tempfile::TempDir;

/// What `pollux-pool outline` says in this test: a command with a flag.
const OUTLINE: &str = r#"[{"name":"pool","about":"A pool","flags":[],"commands":[{"name":"start","about":null,"commands":[],
    "flags":[{"name":"wake","short":null,"shorts":[],"long":"wake","help":null,"is_hidden":false,"is_repeated":false,
    "values":[1,1],"value_names":["WHICH"],"offered":[["one",null],["all",null]],"hint":"Unknown"}]}]}]"#;

/// A folder with `pollux` alone in it, and one for PATH.
pub(super) struct Installed {
    folder: TempDir,
}

impl Installed {
    pub(super) fn new() -> Self {
        // A link to the file, for which the folder has to be in the same file system.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        for name in ["bin", "path"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let pollux = folder.path().join("bin/pollux");
        std::fs::hard_link(env!("CARGO_BIN_EXE_pollux"), pollux).expect("a link");
        Self { folder }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn script(&self, name: &str, text: &str) {
        script(&self.path(name), &format!("#!/bin/sh\n{text}\n"));
    }

    pub(super) fn run(&self, words: &[&str]) -> Output {
        run(&self.path("bin/pollux"), &self.path("path"), words)
    }
}

fn run(program: &Path, path: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(words).env("PATH", path).stdin(Stdio::null());
    command.output().expect("pollux runs")
}

pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_pool_is_a_program_that_gets_the_words_and_gives_the_exit_code() {
    let installed = Installed::new();
    let words = "for word in \"$@\"; do echo \"[$word]\"; done";
    installed.script("path/pollux-pool", &format!("{words}\nexit 7"));
    // Words that pollux itself does not know are that program's to judge.
    let output = installed.run(&["pool", "start", "--new flag", "", "-x"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[start]\n[--new flag]\n[]\n[-x]\n");
    assert_eq!(output.status.code(), Some(7));
    let output = installed.run(&["fld", "--help"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[fld]\n[--help]\n");
    let output = installed.run(&["help", "pool", "start"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[help]\n[start]\n");
    // The one beside comes before PATH, also where pollux was found through a link.
    installed.script("bin/pollux-pool", "echo beside");
    let link = installed.path("path/linked");
    std::os::unix::fs::symlink(installed.path("bin/pollux"), &link).expect("a link");
    for program in [installed.path("bin/pollux"), link] {
        let output = run(&program, &installed.path("path"), &["pool", "ps"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "beside\n", "{}", said(&output));
    }
}

#[test]
fn a_signal_ends_the_pool_as_it_ends_any_program() {
    let installed = Installed::new();
    installed.script("bin/pollux-pool", "kill -TERM $$");
    assert_eq!(installed.run(&["pool", "start"]).status.signal(), Some(15));
    installed.script("bin/pollux-pool", "echo $$");
    let mut command = Command::new(installed.path("bin/pollux"));
    let child = command.args(["pool", "ps"]).stdout(Stdio::piped()).spawn().expect("pollux runs");
    let id = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id}\n"), "another process");
}

#[test]
fn where_the_program_is_missing_every_word_is_refused_with_a_remedy() {
    let installed = Installed::new();
    for words in [&["pool", "ps"][..], &["fld", "bank.fd"], &["pool"], &["pool", "--help"]] {
        let output = installed.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let own = format!("in {},", installed.path("bin").display());
        for part in [&*own, "PATH", "cargo build --release -p pollux-pool", "cargo xtask install"] {
            assert!(said(&output).contains(part), "{words:?}: no {part} in {}", said(&output));
        }
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    }
    let output = installed.run(&["--help"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Run a pool of service processes"));
    // A file that cannot be run is passed over.
    std::fs::write(installed.path("bin/pollux-pool"), "no program").expect("a file");
    assert!(said(&installed.run(&["pool", "ps"])).contains("was found neither"));
}

#[test]
fn completions_and_manual_pages_have_what_the_program_says_of_itself() {
    let installed = Installed::new();
    let pages = installed.path("pages");
    let man = ["man", pages.to_str().expect("UTF-8")];
    let script = || {
        let output = installed.run(&["completions", "bash"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        (
            String::from_utf8(output.stdout).expect("UTF-8"),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    // Missing: both are made without it.
    assert!(!script().0.contains("--wake"));
    let output = installed.run(&man);
    assert!(said(&output).contains("pollux-pool was not found"), "{}", said(&output));
    assert!(pages.join("pollux-serve.1").exists() && !pages.join("pollux-pool.1").exists());
    // There: it is asked.
    let written = "[ \"$1\" = man ] && echo page > \"$2/pollux-pool.1\" && exit 0";
    installed.script(
        "bin/pollux-pool",
        &format!("{written}\n[ \"$1\" = outline ] && /bin/cat <<'END'\n{OUTLINE}\nEND"),
    );
    assert!(script().0.contains("--wake"), "{}", script().0);
    let output = installed.run(&man);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(pages.join("pollux-pool.1")).expect("a page"), "page\n");
    // Another version: completions go without, pages are an error.
    installed.script("bin/pollux-pool", "echo unknown command >&2; exit 2");
    let (text, remarks) = script();
    assert!(text.contains("serve") && remarks.contains("of another version"), "{remarks}");
    let output = installed.run(&man);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("its manual pages were not written"), "{}", said(&output));
}

#[test]
fn the_lab_leaves_out_the_pool_with_the_reason_where_its_program_is_missing() {
    let installed = Installed::new();
    let words = ["lab", "plan", "herd", "--source", "queue", "--arm", "exclusive,pool", "--json"];
    let plan = |installed: &Installed| {
        let output = installed.run(&words);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let reason = "pollux-pool was found neither beside pollux nor in PATH";
    let without = plan(&installed);
    assert!(without.contains(reason), "{without}");
    installed.script("path/pollux-pool", "exit 1");
    assert!(!plan(&installed).contains(reason));
}
