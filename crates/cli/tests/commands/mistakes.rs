//! What a wrong command line is answered with, and what a shell completes.

use std::process::{Command, Stdio};

use pollux_testing::{Output, Process, Signal};

use crate::{pollux, text};

const POLLERS: &str = "select, poll, aio, epoll, epoll-et, epoll-oneshot, uring-poll, uring";

/// The standard error of a command that has to end with `code`.
fn refused(code: i32, words: &[&str]) -> String {
    let output = pollux(words);
    let said = text(output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

#[test]
fn an_unknown_poller_is_answered_alike_by_every_command() {
    let end = format!("{POLLERS}; did you mean \"epoll\"?\n");
    for words in
        [&["load", "--poller", "eppoll", "http://h/"][..], &["serve", "--poller", "eppoll", "."]]
    {
        let said = refused(2, words);
        assert!(said.starts_with("error: --poller eppoll: no such poller; expected "), "{said}");
        assert!(said.ends_with(&end), "{said}");
    }
}

#[test]
fn wrong_values_say_what_was_expected_in_one_line() {
    for (line, answer) in [
        ("load -c 0 http://h/", "--connections 0: expected a whole number from 1 to 4,294,967,295"),
        (
            "load -c -5 http://h/",
            "--connections -5: expected a whole number from 1 to 4,294,967,295",
        ),
        (
            "load --dead ten http://h/",
            "--dead ten: expected a whole number from 0 to 4,294,967,295",
        ),
        (
            "load --expect-status 7 http://h/",
            "--expect-status 7: expected a whole number from 100 to 599",
        ),
        (
            "load -d 5 http://h/",
            "--duration 5: a number without its unit; expected a duration from 1ms to 168h, such as \
             500ms, 10s or 1m30s",
        ),
        (
            "load --as wkr http://h/",
            "--as wkr: no such program; expected ab, wrk, httperf; did you mean \"wrk\"?",
        ),
        (
            "lab reproduce 7",
            "NAME 7: no such published benchmark; expected epoll-bench, sys-epoll, sehttpd, haproxy, \
             epollexclusive, echo-servers, streaming, 0, 1, 2, 3, 4, 5, 6",
        ),
        (
            "load --rate fast http://h/",
            "--rate fast: \"fast\": not a number; expected 1000 for a rate, 1000@10s,2000@10s for \
             steps, 100..5000@60s for a ramp (requests per second)",
        ),
        (
            "load --slo p99=5 http://h/",
            "--slo p99=5: a time without its unit (us, ms or s); expected such as p99=5ms, mean=1ms, \
             max=1s, first-byte-p99=5ms, connect-p99=1ms, errors=0.1%, redirects=0, unanswered=0, \
             5xx=0 or rate=5000",
        ),
        (
            "load --cpus x http://h/",
            "--cpus x: \"x\" is not a list of CPUs; expected numbers and ranges such as 0,2-3",
        ),
        (
            "serve --listeners x .",
            "--listeners x: no such listener strategy; expected reuseport, shared, exclusive, \
             single",
        ),
        (
            "serve --listen localhost .",
            "--listen localhost: no port; expected HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH, \
             such as 127.0.0.1:8080 or :8080",
        ),
        (
            "load --find-capacity http://h/",
            "--find-capacity: needs a latency objective; expected --slo, such as --slo p99=5ms",
        ),
        (
            "load 127.0.0.1:80",
            "URL 127.0.0.1:80: no scheme; expected http://127.0.0.1:80 or https://127.0.0.1:80",
        ),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(refused(2, &words), format!("error: {answer}\n"), "{line}");
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
    let whole = "expected a whole number from";
    let expected = format!(
        "error: --connections 0: {whole} 1 to 4,294,967,295\n\
         --duration soon: expected a duration from 1ms to 168h, such as 500ms, 10s or 1m30s\n\
         {file}:1:1: unknown key \"conections\"; did you mean \"connections\"?\n\
         {file}:2:8: dead = \"ten\": {whole} 0 to 4,294,967,295\n"
    );
    assert_eq!(said, expected);
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
fn a_flag_of_another_program_is_answered_with_the_one_here() {
    for (line, hint) in [
        ("serve --port 8080 .", "--port: the port is part of --listen"),
        ("serve --tls .", "--tls: TLS takes a certificate: --cert FILE --key FILE"),
        ("load --tls http://h/", "--tls: TLS is asked for by the URL"),
        ("load -z 10s http://h/", "error: -z is oha's and hey's; the pollux flag is -d TIME\n"),
        ("load --latency http://h/", "--latency is wrk's; latencies are always shown"),
        ("load --no-reuse http://h/", "--no-reuse: the pollux flag"),
        ("load -b 8 http://h/", "-b is ab's and autocannon's; the pollux flag is --body TEXT"),
        ("load -v 2 http://h/", "-v is ab's and wrk's; the first wrong answer is shown"),
        ("load -P u:p http://h/", "-P is ab's; there are no forward proxies"),
        (
            "load -f FILE http://h/",
            "-f is siege's, bombardier's and ab's; the pollux flag is --req",
        ),
        ("load -S /s http://h/", "-S is ab's and autocannon's; the pollux flag is --unix PATH"),
        ("load --burst-delay 2s http://h/", "--burst-delay is oha's; the pollux flag is --rate N"),
        ("load --keepalive http://h/", "--keepalive is vegeta's; connections are kept by default"),
        ("load --url http://h/", "--url is curl's and autocannon's; the URL stands alone"),
        ("load --stages 5s:10 http://h/", "--stages is k6's; the pollux flag is --rate 100@10s"),
        (
            "load -x 1.2.3.4:80 http://h/",
            "-x is oha's, hey's, curl's and ab's; the pollux flag is --connect-to",
        ),
        ("load -6 http://h/", "-6 is oha's and curl's; the pollux flag is --connect-to"),
        ("load -4 http://h/", "-4 is oha's and curl's; the pollux flag is --connect-to"),
        ("load --host http://h/", "--host is oha's and locust's; the pollux flag is -H"),
        ("load -q 100 http://h/", "-q is oha's and hey's; the pollux flag is --rate N (-q is"),
        ("load -q100 http://h/", "-q is oha's and hey's; the pollux flag is --rate N (-q is"),
        ("load -t 5s http://h/", "the pollux flag is --timeout TIME, or -d TIME for ab's"),
        ("load -d {\"a\":1} http://h/", "-d is oha's, hey's and curl's; the pollux flag is --body"),
        ("load -duration=5s http://h/", "-duration=5s: expected two dashes, --duration"),
        ("load -disable-keepalive http://h/", "--disable-keepalive is oha's and hey's; "),
        ("load --vus=3 http://h/", "--vus is k6's; the pollux flag is -c N"),
        ("proxy --upstream 127.0.0.1:1", "--upstream: the pollux flag is --backend ADDRESS"),
        ("run -p 7", "-p is strace's and perf's; the pollux flag is --attach PID"),
        ("lab run http --warmup 3", "--warmup is hyperfine's; the pollux flag is --ramp-time TIME"),
        ("lab --runs 3", "--runs is hyperfine's; the pollux flag is --blocks N"),
        (
            "serve --balance least",
            "--balance: pollux serve has no such flag; it is one of pollux proxy, which passes requests on",
        ),
        (
            "serve . --backend=127.0.0.1:1",
            "--backend: pollux serve has no such flag; it is one of pollux proxy",
        ),
        (
            "proxy --backend 127.0.0.1:1 --listing",
            "--listing: pollux proxy has no such flag; it is one of pollux serve, which answers requests by itself",
        ),
        ("load --no-such http://h/", "error: unexpected argument '--no-such' found\n\nUsage:"),
        ("lab run quick --blcoks 3", "tip: a similar argument exists: '--blocks'"),
        ("serv .", "tip: a similar subcommand exists: 'serve'"),
        ("lab foo", "error: unrecognized subcommand 'foo'\n\nUsage: pollux lab"),
        ("doctor --verbose", "error: unexpected argument '--verbose' found"),
    ] {
        let said = refused(2, &line.split(' ').collect::<Vec<_>>());
        assert!(said.contains(hint) && !said.contains("'-- "), "{line}: {said}");
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
    for (line, expected) in [
        ("pollux lab run quick --arm epoll-", &["epoll-et", "epoll-oneshot", "epoll-plain"][..]),
        ("pollux serve --poller ur", &["uring-poll", "uring"]),
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
    for (shell, part) in [("zsh", "epoll-oneshot uring-poll"), ("fish", "epoll-oneshot")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        let output = command.args(["completions", shell]).output().expect("pollux runs");
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        for part in [part, "published-epollexclusive", "nginx", "exclusive"] {
            assert!(script.contains(part), "{shell}: no {part}");
        }
    }
}
