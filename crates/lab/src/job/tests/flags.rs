//! The flags of `pollux lab run`: what they change, what gives way, how mistakes are named.

use std::time::Duration;

use pollux_engine::Driver;
use pollux_poller::Mechanism;

use crate::experiment::Experiment;
use crate::job::{Job, JobError, Overrides, commands_from_flags, find};

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

fn axis(name: &str, values: &[&str]) -> Overrides {
    Overrides { axes: vec![(name.to_owned(), texts(values))], ..Overrides::default() }
}

fn streams(overrides: &Overrides) -> Result<Job, JobError> {
    Job::for_experiment(Experiment::Streams, overrides)
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
        pollers: texts(&["poll", "select"]),
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
    let expected = [Mechanism::Poll, Mechanism::Select].map(Driver::Readiness);
    assert_eq!(part.pollers, expected);
    assert_eq!(part.baseline, "poll");
    assert_eq!(part.axes["message_bytes"], ["1024"]);
    let [runtime, interval] = [20, 20].map(Duration::from_millis);
    assert_eq!((part.runtime, part.interval), (runtime, interval));
}

#[test]
fn a_peer_of_another_experiment_is_named_with_its_owner() {
    let overrides = Overrides { peers: texts(&["raw-epoll", "libev"]), ..Overrides::default() };
    let refused = Job::for_experiment(Experiment::Http, &overrides).expect_err("libev serves not");
    let expected = "--peer libev: nothing in this job compares with it; it belongs to chain";
    assert!(refused.to_string().contains(expected), "{refused}");
}

#[test]
fn the_baseline_stays_where_it_is_still_an_arm() {
    let overrides = Overrides { pollers: texts(&["poll", "epoll"]), ..Overrides::default() };
    assert_eq!(streams(&overrides).expect("right").parts[0].baseline, "epoll");
}

#[test]
fn external_arms_come_from_pairs_and_share_a_pattern() {
    let arms = texts(&["old=bench -n 2000", "new=env A=1 bench"]);
    let commands = commands_from_flags(&arms, &texts(&["Avg: (\\d+)"])).expect("right");
    assert_eq!((commands[1].name.as_str(), commands[1].line.as_str()), ("new", "env A=1 bench"));
    assert_eq!(commands[0].pattern, commands[1].pattern);
    let overrides = Overrides {
        commands,
        pollers: texts(&["none"]),
        baseline: Some("new".to_owned()),
        ..Overrides::default()
    };
    let job = streams(&overrides).expect("right");
    assert_eq!((job.parts[0].baseline.as_str(), job.parts[0].commands.len()), ("new", 2));
}

#[test]
fn wrong_arm_flags_are_named() {
    let answer = |arms: &[&str], patterns: &[&str]| {
        let result = commands_from_flags(&texts(arms), &texts(patterns));
        result.expect_err("the flags are wrong").to_string()
    };
    assert_eq!(answer(&["bench"], &["(.)"]), "--arm bench: expected 'name=command'");
    assert!(answer(&["a=b"], &[]).starts_with("--arm-pattern: 0 of them for 1 --arm; expected"));
    assert!(answer(&["a=b"], &["x"]).starts_with("--arm-pattern x: has no capture group"));
    assert!(answer(&["a="], &["(.)"]).starts_with("--arm a=: not one line of text"));
    assert!(answer(&["=b"], &["(.)"]).starts_with("--arm: not a usable name"));
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
        flag(|flags| flags.pollers = texts(&["pol"])),
        "--poller pol: no such poller; expected \"all\", \"none\" or select, poll, aio, epoll, \
         epoll-et, epoll-oneshot, uring-poll, uring; did you mean \"poll\"?"
    );
    assert_eq!(
        flag(|flags| {
            flags.pollers = texts(&["none"]);
            flags.peers = texts(&["none"]);
        }),
        "--poller none: leaves nothing to compare in \"streams\"; add an --arm"
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
        pollers: texts(&["x", "y"]),
        ..Overrides::default()
    };
    let error = job.apply(&overrides).expect_err("wrong flags");
    assert_eq!(error.mistakes.len(), 4, "{error}");
    assert_eq!(job, before);
}
