//! Tests of the job as its users meet it: files (defaults, overriding, what gives way to what), the flags of
//! `pollux lab run`, built-in jobs and the way back to text; and mistakes, with the exact line that answers each. Forms
//! of values and of files are held by the tests of `pollux-settings`.
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use pollux_engine::Driver;
use pollux_poller::Mechanism;
use pollux_settings::{FlagsOnly, Given, describe};

use super::arm_specs::arm_names;
use super::{Job, find, of_text, read};
use crate::arm::{Arm, ArmKind, Build, RAW_C, RAW_EPOLL};
use crate::axis::Value;
use crate::experiments::{self, known};

mod round_trip;

#[test]
fn the_shortest_file_has_the_documented_defaults() {
    let job = of_text("[[job]]\nexperiment = \"streams\"\n");
    assert_eq!((job.name.as_str(), job.seed), ("my-job", 20_061_106));
    assert_eq!((job.blocks, job.blocks_max), (12, 30));
    assert_eq!((job.precision, job.min_effect), (0.01, 0.02));
    assert_eq!((job.budget, job.profile_hz, job.shows_intervals), (None, None, false));
    assert_eq!(job.question, known("streams").question);
    let part = &job.parts[0];
    assert_eq!((part.name.as_str(), part.baseline.as_str()), ("streams", "epoll"));
    let all = Mechanism::ALL.map(|each| Arm::driver(Driver::Readiness(each)));
    assert_eq!(part.arms[..all.len()], all);
    assert_eq!(part.arms[all.len()..], [Arm::peer(RAW_C)]);
    assert_eq!(
        (part.ramp_time, part.runtime, part.interval),
        (None, Duration::from_millis(500), Duration::from_millis(20))
    );
    assert_eq!(part.axes.len(), known("streams").axes.len());
    assert_eq!(part.axes["nfds"], [Value::Number(2000)]);
}

#[test]
fn a_job_overrides_the_global_run_settings() {
    let job = of_text(
        "[global]\nruntime = \"1s\"\narms = [\"poll\", \"aio\"]\n\
                   [[job]]\nexperiment = \"streams\"\nruntime = \"3s\"\n\
                   [[job]]\nexperiment = \"pipes\"\narms = \"uring-poll\"\n",
    );
    assert_eq!(job.parts[0].runtime, Duration::from_secs(3));
    assert_eq!(job.parts[1].runtime, Duration::from_secs(1));
    assert_eq!(job.parts[0].baseline, "poll");
    assert_eq!(job.parts[1].arms, [Arm::driver(Driver::Readiness(Mechanism::UringPoll))]);
    assert_eq!(job.parts[1].baseline, "uring-poll");
    assert_eq!(job.question, "Which event mechanism for which load?");
}

#[test]
fn defaults_give_way_to_what_is_given() {
    let with =
        |global: &str| of_text(&format!("[global]\n{global}\n[[job]]\nexperiment = \"pipes\"\n"));
    let many = with("blocks = 40");
    assert_eq!((many.blocks, many.blocks_max), (40, 40));
    let few = with("max_blocks = 5");
    assert_eq!((few.blocks, few.blocks_max), (5, 5));
    assert_eq!(with("runtime = \"15ms\"").parts[0].interval, Duration::from_millis(15));
}

#[test]
fn arms_of_the_user_are_tables_in_the_same_list() {
    let job = of_text(
        "[[job]]\nexperiment = \"http\"\nbaseline = \"mine\"\narms = [\n\"uring\",\n\
                   { name = \"mine\", server = \"./mine --listen {address}\" },\n\
                   { name = \"live\", pid = 7, address = \"[::1]:80\" },\n\
                   { name = \"old\", pollux = \"old/pollux\", driver = \"uring\" },\n\
                   { name = \"new\", pollux = \"new/pollux\" },\n\
                   { name = \"ab\", command = \"ab http://x/\", pattern = '(\\d+)' },\n]\n",
    );
    let part = &job.parts[0];
    let kinds: Vec<&ArmKind> = part.arms.iter().map(|arm| &arm.kind).collect();
    assert_eq!(part.baseline, "mine");
    assert_eq!(*kinds[1], ArmKind::Server { command: "./mine --listen {address}".to_owned() });
    let address = "[::1]:80".parse().expect("an address");
    assert_eq!(*kinds[2], ArmKind::Running { pid: 7, address });
    let build = Build { program: "old/pollux".into(), driver: Driver::Completion };
    assert_eq!(*kinds[3], ArmKind::Build(build));
    assert_eq!(kinds[4].driver(), Some(Driver::Readiness(Mechanism::Epoll)));
    assert!(kinds[5].is_program());
}

#[test]
fn values_may_be_written_in_every_way_that_toml_has() {
    let job = of_text(
        "[global]\nmin_effect = 5e-2\nprofile = 99\nseed = 0xff\n\
                   [[job]]\nexperiment = \"pipes\"\npipes = [1_000, 0b1010]\n",
    );
    assert_eq!((job.min_effect, job.profile_hz, job.seed), (0.05, Some(99), 255));
    assert_eq!(job.parts[0].axes["pipes"], [1000, 10].map(Value::Number));
}

#[test]
fn every_example_of_the_documentation_is_right() {
    let mut examples = 0;
    for section in &describe::<Job>().sections {
        for row in section.rows.iter().filter(|row| !row.example.is_empty()) {
            let line = format!("{} = {}\n", row.name, row.example);
            let mut global = String::new();
            let mut part = String::new();
            let mut arm = String::new();
            match &*section.path {
                "" => continue,
                "global" => global = line,
                "job" => part = line,
                _ => arm = line.trim().to_owned(),
            }
            let others = match row.name {
                "name" => ", server = \"a {port}\"",
                "command" => ", name = \"a\", pattern = '(.)'",
                "pattern" => ", name = \"a\", command = \"a\"",
                _ => ", name = \"a\"",
            };
            if !arm.is_empty() {
                arm = format!("arms = [{{ {arm}{others} }}]\n");
            }
            let name = if row.name == "experiment" { "" } else { "experiment = \"http\"\n" };
            of_text(&format!("[global]\n{global}[[job]]\n{name}{part}{arm}"));
            examples += 1;
        }
    }
    assert!(examples > 10, "{examples}");
    let page = include_str!("../../../../../docs/reference/job-file.md");
    let example = page.split("```").nth(1).and_then(|block| block.strip_prefix("toml"));
    assert_eq!(of_text(example.expect("the page has an example")).parts[0].arms.len(), 3);
}

#[test]
fn arms_of_global_are_for_the_jobs_that_have_them() {
    let job = of_text(
        "[global]\narms = [\"epoll\", \"raw-epoll\", \"nginx\"]\n\
                   [[job]]\nexperiment = \"http\"\nkeepalive = [true, false]\n\
                   [[job]]\nexperiment = \"chain\"\n\
                   [[job]]\nexperiment = \"pipes\"\n\
                   [[job]]\nexperiment = \"herd\"\n",
    );
    let [http, chain, pipes, herd] = job.parts.as_slice() else { panic!("{:?}", job.parts) };
    let epoll = Arm::driver(Driver::Readiness(Mechanism::Epoll));
    let raw = Arm::peer(RAW_EPOLL);
    assert_eq!(http.arms[2].kind, ArmKind::Peer("nginx".to_owned()));
    assert_eq!(http.arms[..2], [epoll.clone(), raw.clone()]);
    assert_eq!(http.axes["keepalive"], [true, false].map(Value::Switch));
    assert_eq!(chain.arms, [epoll.clone(), raw]);
    assert_eq!(pipes.arms, [epoll]);
    let epoll = Arm { name: "epoll".to_owned(), kind: ArmKind::Way("epoll".to_owned()) };
    assert_eq!(herd.arms, [epoll]);
}

/// Flags as they are typed.
fn given(line: &str) -> Given {
    let words = shell_words::split(line).expect("words");
    let command = FlagsOnly::<Job>::augment_args(Command::new("lab").no_binary_name(true));
    let matches = command.try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"));
    FlagsOnly::<Job>::from_arg_matches(&matches).expect("its flags").given
}

fn right(target: &str, line: &str) -> Job {
    read(target, given(line)).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

#[test]
fn an_experiment_alone_is_the_shortest_file() {
    let text = "[[job]]\nexperiment = \"streams\"\n";
    assert_eq!(find("streams"), Given::from_toml(text, "streams").read());
}

#[test]
fn a_budget_that_is_asked_for_is_used() {
    for (target, line, most) in [
        ("streams", "", 30),
        ("streams", "--budget 20m", 200),
        ("streams", "--budget 20m --max-blocks 40", 40),
        ("streams", "--budget 20m --blocks 6", 6),
        ("http", "--budget 30s", 200),
        // Counts: more of them decide nothing.
        ("published-haproxy", "--budget 20m", 3),
    ] {
        assert_eq!(right(target, line).blocks_max, most, "{target} {line}");
    }
}

#[test]
fn flags_replace_what_the_job_says() {
    let line = "--only pipes --arm poll,select --message-bytes 1_024 --blocks 20 --budget 30s \
                --runtime 20ms --profile=999 --show-intervals";
    let job = right("quick", line);
    assert_eq!((job.blocks, job.blocks_max), (20, 20));
    assert_eq!(job.budget, Some(Duration::from_secs(30)));
    assert_eq!((job.profile_hz, job.shows_intervals), (Some(999), true));
    let [part] = job.parts.as_slice() else { panic!("one part is left") };
    let expected = [Mechanism::Poll, Mechanism::Select];
    assert_eq!(part.arms, expected.map(|each| Arm::driver(Driver::Readiness(each))));
    assert_eq!(part.baseline, "poll");
    assert_eq!(part.axes["message_bytes"], [Value::Number(1024)]);
    let [runtime, interval] = [20, 20].map(Duration::from_millis);
    assert_eq!((part.runtime, part.interval), (runtime, interval));
    let fewer = right("quick", "--max-blocks 3");
    assert_eq!((fewer.blocks, fewer.blocks_max), (3, 3));
    let closed = right("http", "--no-keepalive");
    assert!(closed.parts.iter().all(|part| part.axes["keepalive"] == [Value::Switch(false)]));
}

#[test]
fn the_baseline_stays_where_it_is_still_an_arm() {
    let job = right("streams", "--arm poll --arm epoll");
    assert_eq!(job.parts[0].baseline, "epoll");
}

#[test]
fn arms_of_the_user_share_a_pattern_or_are_servers() {
    let line = "--arm 'old=bench -n 2000,5' --arm 'new=env A=1 bench' --arm epoll,poll \
                --arm-pattern 'Avg: (\\d+)' --baseline new";
    let part = &right("streams", line).parts[0];
    let names: Vec<_> = part.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!((part.baseline.as_str(), names), ("new", vec!["old", "new", "epoll", "poll"]));
    let ArmKind::Program(new) = &part.arms[1].kind else { panic!("{part:?}") };
    assert_eq!((&*new.command, &*new.pattern), ("env A=1 bench", "Avg: (\\d+)"));
    let http = right("http", "--arm 'mine=./mine {port}'");
    assert!(matches!(http.parts[0].arms[0].kind, ArmKind::Server { .. }));
}

#[test]
fn a_wrong_flag_is_named_with_what_would_be_right() {
    for case in include_str!("flags.txt").trim_end().split("\n\n") {
        let (line, expected) = case.split_once('\n').expect("a message");
        let line = line.strip_prefix("$ ").expect("what is typed");
        let (target, line) = line.split_once(' ').expect("flags");
        let answer = read(target, given(line)).expect_err(case).to_string();
        assert_eq!(answer, with_lists(expected), "{line}");
    }
    let unnamed = read("streams", given("--arm =b --arm-pattern '(.)'")).expect_err("no name");
    assert!(unnamed.to_string().starts_with("--arm =b: not a usable name"), "{unnamed}");
}

#[test]
fn all_wrong_flags_are_named_at_once() {
    let flags = given("--seed x --runtime 1 --arm x --arm y");
    let mistakes = read("published-epoll-bench", flags).expect_err("wrong flags");
    assert_eq!(mistakes.mistakes.len(), 4, "{mistakes}");
}

/// An answer, with what stands in for a list of the program's names replaced by that.
fn with_lists(answer: &str) -> String {
    let lists = [
        ("EXPERIMENTS", experiments::names()),
        ("MECHANISMS", Mechanism::ALL.map(Mechanism::name).to_vec()),
        ("DRIVERS", Driver::ALL.map(Driver::name).to_vec()),
        ("ARMS", arm_names()),
    ];
    lists
        .iter()
        .fold(answer.to_owned(), |answer, (word, names)| answer.replace(word, &names.join(", ")))
}

/// The lines that answer `text` as the file `x.toml`.
fn answer(text: &str) -> Vec<String> {
    let error = Given::from_toml(text, "x.toml").read::<Job>().expect_err("the text is wrong");
    error.to_string().lines().map(str::to_owned).collect()
}

/// A file with these lines in one of its places.
fn text(place: &str, lines: &str) -> String {
    let job = |name: &str| format!("[[job]]\nexperiment = \"{name}\"\n");
    match place {
        "global" => format!("[global]\n{lines}\n{}", job("pipes")),
        "job" => format!("{}{lines}\n", job("streams")),
        "http" => format!("{}{lines}\n", job("http")),
        "arm" => format!("{}arms = [\"poll\",\n{{ {lines} }}]\n", job("http")),
        _ => lines.to_owned(),
    }
}

#[test]
fn a_mistake_is_answered_with_its_place_and_what_is_expected() {
    for case in include_str!("mistakes.txt").split("\n\n") {
        let mut lines = case.lines();
        let place = lines.next().and_then(|line| line.strip_prefix("in ")).expect("a place");
        let (file, expected): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("| "));
        let file: Vec<_> = file.iter().map(|line| &line[2..]).collect();
        let expected = with_lists(&expected.join("\n"));
        assert_eq!(
            answer(&text(place, &file.join("\n"))),
            [format!("x.toml:{expected}")],
            "{case}"
        );
    }
    let names = arm_names().join(", ");
    let unknown = answer(&text("global", "arms = [\"epoll\", \"epol-et\"]"));
    let near = "did you mean \"epoll-et\"?";
    let expected =
        format!("x.toml:2:18: arms = \"epol-et\": no such arm; expected {names}; {near}");
    assert_eq!(unknown, [expected]);
    let old = answer("[[job]]\nexperiment = \"streams\"\n[[job.arm]]\nname = \"a\"\n");
    assert!(old.len() == 1 && old[0].contains("was replaced by arms = [{ name = "), "{old:?}");
}

#[test]
fn a_wrong_global_setting_is_reported_once_for_all_jobs() {
    let text = "[global]\ninterval = \"3s\"\n[[job]]\nexperiment = \"streams\"\n[[job]]\n\
                experiment = \"pipes\"\n";
    let expected = "x.toml:2:12: an interval of 3s is longer than the runtime of 500ms; expected \
                    at most 500ms";
    assert_eq!(answer(text), [expected]);
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_and_in_its_order() {
    let text = "schema = 3\n[global]\nblcoks = 2\nruntime = \"2 parsecs\"\ninterval = \"1s\"\n\
                arms = [\"epol\", \"pol\"]\nbaseline = \"x\"\n[[job]]\nexperiment = \"pipes\"\n\
                rule = \"jumping\"\narms = [{ name = \"a\" }]\n";
    let places: Vec<_> = answer(text)
        .iter()
        .map(|line| line.split(": ").next().unwrap_or_default().to_owned())
        .collect();
    let expected = ["1:10", "3:1", "4:11", "6:9", "6:17", "10:8", "11:9"];
    assert_eq!(places, expected.map(|place| format!("x.toml:{place}")));
}
