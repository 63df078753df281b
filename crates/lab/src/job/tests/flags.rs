//! The flags of `pollux lab run`: what they change, what gives way, how mistakes are named.

use std::time::Duration;

use pollux_engine::Driver;
use pollux_poller::Mechanism;

use crate::arm::{Arm, ArmKind};
use crate::axis::Value;
use crate::experiments::known;
use crate::job::{Job, JobError, Overrides, find};

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

fn axis(name: &str, values: &[&str]) -> Overrides {
    Overrides { axes: vec![(name.to_owned(), texts(values))], ..Overrides::default() }
}

fn streams(overrides: &Overrides) -> Result<Job, JobError> {
    Job::for_experiment(known("streams"), overrides)
}

fn answer(overrides: &Overrides) -> String {
    streams(overrides).expect_err("the flags are wrong").to_string()
}

#[test]
fn an_experiment_alone_is_the_shortest_file() {
    let from_file = Job::parse("[[job]]\nexperiment = \"streams\"\n", "streams").expect("right");
    assert_eq!(streams(&Overrides::default()), Ok(from_file));
}

#[test]
fn flags_replace_what_the_job_says() {
    let mut job = find("quick").expect("built in");
    let overrides = Overrides {
        only: texts(&["pipes"]),
        arms: texts(&["poll,select"]),
        axes: vec![("message-bytes".to_owned(), texts(&["1_024"]))],
        blocks: Some("20".to_owned()),
        budget: Some("30s".to_owned()),
        runtime: Some("20ms".to_owned()),
        profile: Some("999".to_owned()),
        show_intervals: true,
        ..Overrides::default()
    };
    job.apply(&overrides).expect("right flags");
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
}

#[test]
fn an_arm_of_another_experiment_is_named_with_its_owner() {
    let overrides = Overrides { arms: texts(&["raw-epoll", "libev"]), ..Overrides::default() };
    let refused = Job::for_experiment(known("http"), &overrides).expect_err("libev serves not");
    let expected = "--arm libev: no arm of http; it belongs to chain";
    assert!(refused.to_string().contains(expected), "{refused}");
}

#[test]
fn the_baseline_stays_where_it_is_still_an_arm() {
    let overrides = Overrides { arms: texts(&["poll", "epoll"]), ..Overrides::default() };
    assert_eq!(streams(&overrides).expect("right").parts[0].baseline, "epoll");
}

#[test]
fn arms_of_the_user_share_a_pattern_or_are_servers() {
    let overrides = Overrides {
        arms: texts(&["old=bench -n 2000,5", "new=env A=1 bench", "epoll,poll"]),
        arm_patterns: texts(&["Avg: (\\d+)"]),
        baseline: Some("new".to_owned()),
        ..Overrides::default()
    };
    let part = &streams(&overrides).expect("right").parts[0];
    let names: Vec<_> = part.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!((part.baseline.as_str(), names), ("new", vec!["old", "new", "epoll", "poll"]));
    let ArmKind::Program(new) = &part.arms[1].kind else { panic!("{part:?}") };
    assert_eq!((&*new.command, &*new.pattern), ("env A=1 bench", "Avg: (\\d+)"));
    let overrides = Overrides { arms: texts(&["mine=./mine {port}"]), ..Overrides::default() };
    let http = Job::for_experiment(known("http"), &overrides).expect("right");
    assert!(matches!(http.parts[0].arms[0].kind, ArmKind::Server { .. }));
}

#[test]
fn wrong_arm_flags_are_named() {
    let answer = |arms: &[&str], patterns: &[&str]| {
        let (arms, arm_patterns) = (texts(arms), texts(patterns));
        answer(&Overrides { arms, arm_patterns, ..Overrides::default() })
    };
    assert!(answer(&["bench"], &[]).starts_with("--arm bench: no such arm; expected all"));
    let server = answer(&["a=b"], &[]);
    assert!(
        server.starts_with("--arm a=b: does not say where the server has to listen"),
        "{server}"
    );
    let none = answer(&["epoll"], &["(.)"]);
    assert!(
        none.starts_with("--arm-pattern: 1 of them for 0 commands in --arm; expected"),
        "{none}"
    );
    assert!(answer(&["a=b"], &["x"]).starts_with("--arm a=b: has no capture group"));
    assert!(answer(&["a="], &["(.)"]).starts_with("--arm a=: not one line of text"));
    assert!(answer(&["=b"], &["(.)"]).starts_with("--arm =b: not a usable name"));
    let twice = answer(&["epoll", "epoll"], &[]);
    assert!(twice.starts_with("--arm epoll: stands here twice"), "{twice}");
}

#[test]
fn a_wrong_flag_is_named_with_what_would_be_right() {
    assert_eq!(
        answer(&axis("transport", &["pipe", "tpc"])),
        "--transport tpc: not accepted; expected pipe, unix, tcp; did you mean \"tcp\"?"
    );
    assert_eq!(
        answer(&axis("pipes", &["100"])),
        "--pipes 100: nothing in this job has this axis; it belongs to pipes"
    );
    assert_eq!(
        answer(&axis("nfd", &["100"])),
        "--nfd 100: no experiment has this axis; did you mean \"nfds\"?"
    );
    assert_eq!(
        answer(&axis("no-poller", &["true", "false"])),
        "--no-poller true,false: expected one value"
    );
    let flag = |set: fn(&mut Overrides)| {
        let mut overrides = Overrides::default();
        set(&mut overrides);
        answer(&overrides)
    };
    assert_eq!(
        flag(|flags| flags.baseline = Some("epol".to_owned())),
        "--baseline epol: in \"streams\", \"epol\" is none of the arms, which are select, poll, \
         aio, epoll, epoll-et, epoll-oneshot, uring-poll, raw-c; did you mean \"epoll\"?"
    );
    assert_eq!(
        flag(|flags| flags.blocks = Some("many".to_owned())),
        "--blocks many: not a whole number in bounds; expected a whole number from 1 to 1000, such \
         as 12"
    );
    assert_eq!(
        flag(|flags| flags.arms = texts(&["pol"])),
        "--arm pol: no such arm; expected all, mechanisms, others, select, poll, aio, epoll, \
         epoll-et, epoll-oneshot, uring-poll, uring, exclusive, edge, shared, block, raw-epoll, \
         raw-uring, raw-c, nginx, haproxy, h2o, lighttpd, libev, libuv, libevent, mio, polling, \
         pool, pool-epoll; did you mean \"poll\"?"
    );
    assert_eq!(
        flag(|flags| flags.arms = texts(&["mine=./mine {port}"])),
        "--arm mine: streams: no server; expected a program that prints a figure, with a pattern"
    );
    assert_eq!(
        flag(|flags| flags.only = texts(&["stream"])),
        "--only stream: no such part; expected streams; did you mean \"streams\"?"
    );
    assert_eq!(
        flag(|flags| {
            flags.runtime = Some("1s".to_owned());
            flags.interval = Some("2s".to_owned());
        }),
        "--interval 2s: an interval of 2s is longer than the runtime of 1s; expected at most 1s"
    );
    assert_eq!(
        flag(|flags| {
            flags.blocks = Some("9".to_owned());
            flags.max_blocks = Some("8".to_owned());
        }),
        "--blocks 9: 9 blocks are more than max_blocks = 8; expected at most that"
    );
}

#[test]
fn all_wrong_flags_are_named_at_once_and_the_job_stays_as_it_was() {
    let mut job = find("seed0").expect("built in");
    let before = job.clone();
    let overrides = Overrides {
        seed: Some("x".to_owned()),
        runtime: Some("1".to_owned()),
        arms: texts(&["x", "y"]),
        ..Overrides::default()
    };
    let error = job.apply(&overrides).expect_err("wrong flags");
    assert_eq!(error.mistakes.len(), 4, "{error}");
    assert_eq!(job, before);
}
