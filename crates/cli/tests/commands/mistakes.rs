//! What a wrong command line is answered with, and what a shell completes.

use std::path::Path;
use std::process::{Command, Stdio};

use pollux_engine::Driver;
use pollux_testing::{Output, Process, Signal};

use crate::{pollux, text};

/// The standard error of a command that has to end with `code`.
fn refused(code: i32, words: &[&str]) -> String {
    let output = pollux(words);
    let said = text(output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

#[test]
fn an_unknown_poller_is_answered_alike_by_every_command() {
    let pollers = Driver::ALL.map(Driver::name).join(", ");
    let end = format!("{pollers}; did you mean \"epoll\"?\n");
    for words in
        [&["load", "--poller", "eppoll", "http://h/"][..], &["serve", "--poller", "eppoll", "."]]
    {
        let said = refused(2, words);
        assert!(said.starts_with("error: --poller eppoll: no such poller; expected "), "{said}");
        assert!(said.ends_with(&end), "{said}");
    }
}

/// Wrong command lines with their answers: sentences stand there, and in no test.
const LINES: &str = "tests/commands/mistakes.txt";

#[test]
fn wrong_command_lines_are_answered_as_the_blessed_file_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(LINES);
    let old = std::fs::read_to_string(&path).expect("a file of lines");
    let mut entries = old.split("\n$ pollux ");
    let mut new = entries.next().expect("what the file is").to_owned();
    let mut count = 0;
    for entry in entries {
        let (line, rest) = entry.split_once('\n').expect("a code and a word below the line");
        let expected = rest.lines().next().expect("a code and a word");
        let (code, word) = expected.split_once(' ').expect("a code and a word");
        let words: Vec<_> = line.split(' ').collect();
        let said = refused(code.parse().expect("an exit code"), &words);
        let first = said.lines().next().unwrap_or_default();
        assert!(first.starts_with("error: ") && first.contains(word), "{line}: {said}");
        new += &format!("\n$ pollux {line}\n{expected}\n{said}");
        count += 1;
    }
    assert!(count > 100, "only {count} lines in {LINES}");
    if std::env::var_os("POLLUX_BLESS").is_some() {
        std::fs::write(&path, new).expect("written");
    } else {
        assert!(new == old, "{LINES} says otherwise, `cargo xtask bless` writes:\n{new}");
    }
}

#[test]
fn a_name_that_no_experiment_has_is_answered_with_those_that_there_are() {
    let names = pollux_lab::experiments::names().join(", ");
    let answer = format!("no such experiment; expected {names}; did you mean \"http\"?");
    let refused = refused(2, &["lab", "axes", "htp"]);
    assert_eq!(refused, format!("error: EXPERIMENT htp: {answer}\n"));
}

#[test]
fn every_wrong_flag_and_every_wrong_line_of_the_file_is_reported_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("load.toml");
    std::fs::write(&path, "conections = 5\ndead = \"ten\"\n").expect("written");
    let file = path.to_str().expect("UTF-8");
    let said = refused(2, &["load", "--config", file, "-c", "0", "-d", "soon", "http://h/"]);
    let places = [
        "error: --connections 0: ",
        "--duration soon: ",
        &format!("{file}:1:1: "),
        &format!("{file}:2:8: "),
    ];
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), places.len(), "{said}");
    assert!(lines.iter().zip(places).all(|(line, place)| line.starts_with(place)), "{said}");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for words in [&["--help"][..], &["-V"], &["load", "--help"], &["serve", "-h"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        let output = command.args(words).stdout(full).output().expect("pollux runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.starts_with("error: standard output: No space left"), "{words:?}: {said}");
    }
}

#[test]
fn a_folder_for_results_that_cannot_be_one_is_refused_with_the_flag() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    let said = refused(1, &["lab", "run", "streams", "--quiet", "--out", path]);
    let why = "expected a folder, this is a file; --out DIR names another folder";
    assert_eq!(said, format!("error: results can't be written to {path}: {why}\n"));
    let said = refused(1, &["lab", "run", "streams", "--quiet", "--out", "/proc/x"]);
    assert!(said.contains("results can't be written to /proc/x: No such file"), "{said}");
}

#[test]
fn a_folder_that_holds_a_result_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let file = folder.path().join("result.json");
    std::fs::write(&file, "{}").expect("written");
    let line = ["lab", "run", "streams", "--quiet", "--out", path];
    let said = refused(2, &line);
    let why = "holds a result; choose another folder, or give --overwrite to replace it";
    assert_eq!(said, format!("error: --out {path}: {why}\n"));
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), "{}");
    // With the flag what comes next is looked at.
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("a folder in its place");
    let said = refused(1, &[&line[..], &["--overwrite"]].concat());
    assert!(said.contains("results can't be written to"), "{said}");
    let said = refused(2, &["lab", "run", "streams", "--overwrite"]);
    assert!(said.contains("--out <DIR>"), "{said}");
}

#[test]
fn a_gate_with_nothing_to_compare_is_refused() {
    let gate = ["--gate", "--quiet", "--out", "/proc/x"];
    let said = refused(2, &[&["lab", "run", "streams", "--arm", "epoll"][..], &gate].concat());
    let why = "nothing to compare with the baseline epoll; expected --arm with another arm";
    assert_eq!(said, format!("error: --gate: {why}\n"));
    for line in [&["lab", "version"][..], &["lab", "plan", "version"]] {
        let said = refused(2, line);
        let why = "the job version compares two builds; expected --arm old=PATH --arm new=PATH";
        assert_eq!(said, format!("error: --arm: {why}\n"));
    }
}

#[test]
fn a_text_without_quotes_in_a_job_file_is_one_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.toml");
    for value in ["200ms", "1.5%", "quick"] {
        std::fs::write(&path, format!("schema = 1\n[global]\nbudget = {value}\n"))
            .expect("written");
        let said = refused(2, &["lab", "plan", path.to_str().expect("UTF-8")]);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains(":3:1") && said.contains("not TOML: expected a text in quotes"),
            "{said}"
        );
    }
}

#[test]
fn a_budget_that_decides_nothing_is_refused_with_the_least_that_does() {
    let said = refused(2, &["lab", "--budget", "5s", "--out", "/proc/x"]);
    assert!(said.contains("a budget of 5 s decides nothing"), "{said}");
    assert!(said.contains("; give --budget ") && said.contains(" with --only (streams"), "{said}");
    assert_eq!(refused(2, &["lab", "plan", "quick", "--budget", "5s"]), said, "as its run");
    let said = refused(2, &["lab", "run", "herd", "--only", "queue", "--budget", "1s"]);
    assert!(said.trim_end().ends_with('s') && !said.contains("--only"), "{said}");
}

#[test]
fn a_plan_of_which_nothing_can_run_ends_like_its_run() {
    for verb in ["plan", "run"] {
        let line = ["lab", verb, "chain", "--pairs", "1", "--active", "2"];
        let said = refused(1, &line);
        // Mechanisms that are missing here stand there too.
        assert!(said.contains("nothing can run here: "), "{said}");
        assert!(said.contains("more bytes under way"), "{said}");
    }
}

#[test]
fn help_names_every_experiment() {
    let help = Command::new(env!("CARGO_BIN_EXE_pollux")).args(["lab", "run", "--help"]).output();
    let help = String::from_utf8(help.expect("pollux runs").stdout).expect("UTF-8");
    let said: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let names = pollux_lab::experiments::names().join(", ");
    assert!(said.contains(&format!("or an experiment: {names}")), "{help}");
}

#[test]
fn an_external_program_is_looked_at_before_the_run() {
    let arm = |line: &str| format!("mine={line}");
    let run = |verb, line: &str| {
        refused(2, &["lab", verb, "http", "--arm", &arm(line), "--arm-pattern", "(.*)"])
    };
    for verb in ["plan", "run"] {
        let said = run(verb, "./nosuch {connections}");
        assert!(said.contains("arm mine: ./nosuch: no such program; expected a path"), "{said}");
        let said = run(verb, "echo {pipes}");
        assert!(said.contains("arm mine: {pipes} has no meaning in http; expected {"), "{said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "plan", "http", "--connections", "4"]);
    command.args(["--arm", "epoll", "--arm", "mine=echo {connections}", "--arm-pattern", "(.*)"]);
    let plan = String::from_utf8(command.output().expect("pollux runs").stdout).expect("UTF-8");
    let figure = "arm mine has to print server CPU per request in µs/request, less is better";
    assert!(plan.contains(figure), "{plan}");
    let path = format!("{}/requires.toml", env!("CARGO_TARGET_TMPDIR"));
    let text = "schema = 2\n[global]\nrequire = [\"nonsense\"]\n[[job]]\nexperiment = \"pipes\"\n";
    std::fs::write(&path, text).expect("a file in target");
    let said = refused(5, &["lab", "plan", &path]);
    assert!(said.contains("the job requires \"nonsense\": no source has this name"), "{said}");
}

#[test]
fn a_lab_that_sigterm_ends_says_so_by_its_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.args(["lab", "run", "streams", "--arm", "epoll,poll", "--nfds", "10"]);
    command.args(["--transport", "pipe", "--blocks", "500", "--ramp-time", "10ms"]);
    command.args(["--runtime", "50ms", "--interval", "10ms", "--out"]).arg(folder.path());
    let mut lab = Process::start(command.stdout(Stdio::null()));
    lab.wait_for_stderr_line("set 1/");
    lab.signal(Signal::TERM);
    let Output { status, stderr, .. } = lab.ended();
    assert_eq!(status.code(), Some(143), "{stderr}");
}

#[test]
fn the_version_names_a_commit_or_nothing() {
    let said = |flag| text(pollux(&[flag]).stdout);
    let version = said("-V");
    assert_eq!(version, format!("pollux {}\n", env!("CARGO_PKG_VERSION")));
    let long = said("--version");
    let commit = long.trim_end().strip_prefix(version.trim_end()).expect("the version first");
    let digits = commit.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    let is_commit = |text: &str| text.len() >= 12 && text.chars().all(|c| c.is_ascii_hexdigit());
    assert!(commit.is_empty() || digits.is_some_and(is_commit), "{long}");
}

/// What bash offers at the end of `line`.
fn completed(line: &str) -> Vec<String> {
    // The function of the script is called as bash does on the tabulator key.
    let words: Vec<_> = line.split(' ').collect();
    let script = format!(
        "source <(\"$POLLUX\" completions bash)\nCOMP_WORDS=({})\nCOMP_CWORD={}\n\
         _pollux pollux \"${{COMP_WORDS[$COMP_CWORD]}}\" \"${{COMP_WORDS[$COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
    );
    let output = Command::new("bash")
        .args(["--norc", "-c", &script])
        .env("POLLUX", env!("CARGO_BIN_EXE_pollux"))
        .output()
        .expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_mechanisms_jobs_and_published_benchmarks() {
    let pollers = |beginning: &str| {
        let names = Driver::ALL.into_iter().map(Driver::name);
        names.filter(|name| name.starts_with(beginning)).collect::<Vec<_>>()
    };
    let of_the_lab = [pollers("epoll-"), vec!["epoll-plain"]].concat();
    for (line, expected) in [
        ("pollux lab run quick --arm epoll-", &of_the_lab[..]),
        ("pollux serve --poller ur", &pollers("ur")),
        ("pollux load --poller se", &["select"]),
        ("pollux lab run st", &["streams"]),
        (
            "pollux lab plan publ",
            &[
                "published-echo-servers",
                "published-epoll-bench",
                "published-epollexclusive",
                "published-haproxy",
                "published-sehttpd",
                "published-streaming",
                "published-sys-epoll",
            ],
        ),
        ("pollux lab --only dea", &["dead"]),
        ("pollux lab run http --arm ngi", &["nginx"]),
        ("pollux lab run streams --transport t", &["tcp"]),
        ("pollux lab run herd --arm ex", &["exclusive"]),
        ("pollux doctor --for dea", &["dead"]),
        ("pollux lab axes ch", &["chain"]),
    ] {
        assert_eq!(completed(line), expected, "{line}");
    }
    // Flags are offered where one was begun, and none that help hides.
    let jobs = completed("pollux lab run ");
    assert!(jobs.contains(&"http".to_owned()), "{jobs:?}");
    assert!(jobs.iter().all(|word| !word.starts_with('-')), "{jobs:?}");
    let flags = completed("pollux lab reproduce -");
    assert!(flags.contains(&"--out".to_owned()), "{flags:?}");
    for hidden in ["--target-ci", "--peers", "--waits"] {
        assert!(!flags.contains(&hidden.to_owned()), "{flags:?}");
    }
    for command in ["reproduce", "seed"] {
        let offered = completed(&format!("pollux lab {command} "));
        for name in ["epoll-bench", "sehttpd", "haproxy", "0", "4"] {
            assert!(offered.iter().any(|one| one == name), "{command} {name} in {offered:?}");
        }
    }
}

#[test]
fn zsh_and_fish_are_given_the_same_names() {
    let pollers = Driver::ALL.map(Driver::name).join(" ");
    for (shell, part) in [("zsh", pollers.as_str()), ("fish", "epoll-oneshot")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        let output = command.args(["completions", shell]).output().expect("pollux runs");
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        for part in [part, "published-epollexclusive", "nginx", "exclusive"] {
            assert!(script.contains(part), "{shell}: no {part}");
        }
    }
}
