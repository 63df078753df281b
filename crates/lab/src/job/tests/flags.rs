//! The flags of `pollux lab run`: what they change, what gives way, how mistakes are named.

use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use pollux_engine::Driver;
use pollux_poller::Mechanism;
use pollux_settings::{FlagsAlone, Given};

use crate::arm::{Arm, ArmKind};
use crate::axis::Value;
use crate::job::{Job, find, read};

/// Flags as they are typed.
fn given(line: &str) -> Given {
    let words = shell_words::split(line).expect("words");
    let command = FlagsAlone::<Job>::augment_args(Command::new("lab").no_binary_name(true));
    let matches = command.try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"));
    FlagsAlone::<Job>::from_arg_matches(&matches).expect("its flags").given
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
    let names = crate::job::arms::arm_names().join(", ");
    for case in include_str!("flags.txt").trim_end().split("\n\n") {
        let (line, told) = case.split_once('\n').expect("a message");
        let line = line.strip_prefix("$ ").expect("what is typed");
        let (target, line) = line.split_once(' ').expect("flags");
        let answer = read(target, given(line)).expect_err(case).to_string();
        assert_eq!(answer, told.replace("ARMS", &names), "{line}");
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
