//! `pollux-pool` as it is asked by a user, and by `pollux`, which hands words over to it: help, mistakes, manual
//! pages, and what completions are made of.

use std::process::{Command, Output};

use serde_json::Value;

fn pool(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pollux-pool")).args(words).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_is_that_of_the_command_of_pollux() {
    let output = pool(&["--help"]);
    let help = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{help}");
    for part in
        ["Usage: pollux pool", "build-server", "NDRX_QPREFIX", "pollux pool start --wake all"]
    {
        assert!(help.contains(part), "no {part} in {help}");
    }
    assert!(!help.contains("outline") && !help.contains("lay-out"), "{help}");
}

#[test]
fn a_wrong_value_is_answered_in_one_line() {
    let output = pool(&["start", "--id", "x"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "error: --id x: expected a whole number from 0 to 4,294,967,295\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn manual_pages_are_those_of_the_pool_and_of_field_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = pool(&["man", folder.path().to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = |name: &str| {
        std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|_| panic!("no {name}"))
    };
    assert!(!folder.path().join("pollux.1").exists(), "that is another program's");
    assert!(page("pollux-fld.1").contains("pollux fld bank.fd"));
    assert!(page("pollux-pool-start.1").contains("\\-\\-wake"));
    let page = page("pollux-pool.1");
    let headings = page.lines().filter_map(|line| line.strip_prefix(".SH "));
    let headings: Vec<_> = headings.map(|heading| heading.trim_matches('"')).collect();
    let mut place = headings.iter();
    for heading in [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "COMMANDS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "EXAMPLES",
    ] {
        assert!(place.any(|found| *found == heading), "{heading} in {headings:?}");
    }
    // Each command has a page with examples, but those that help hides.
    for name in [
        "start", "stop", "restart", "reload", "log", "ps", "services", "queues", "clients", "info",
        "check", "call", "convert", "viewc",
    ] {
        let page = std::fs::read_to_string(folder.path().join(format!("pollux-pool-{name}.1")));
        assert!(page.expect(name).contains(".SH \"EXAMPLES\""), "{name}");
    }
    assert!(!folder.path().join("pollux-pool-lay-out.1").exists());
}

#[test]
fn what_completions_are_made_of_has_both_commands_without_hidden_ones() {
    let output = pool(&["outline"]);
    let outlines: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names = |commands: &Value| -> Vec<String> {
        let commands = commands.as_array().expect("a list").iter();
        commands.map(|command| command["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&outlines), ["pool", "fld"]);
    let below = names(&outlines[0]["commands"]);
    assert!(below.contains(&"build-server".to_owned()), "{below:?}");
    assert!(!below.contains(&"herd".to_owned()) && !below.contains(&"lay-out".to_owned()));
}
