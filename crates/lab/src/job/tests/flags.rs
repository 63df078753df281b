//! The flags of `pollux lab run`: what they change, what gives way, how mistakes are named.

use std::time::Duration;

use pollux_engine::Driver;
use pollux_poller::Mechanism;
use pollux_settings::Given;

use crate::arm::{Arm, ArmKind};
use crate::axis::Value;
use crate::job::{Job, find, read};

/// Flags as they are typed: the key, and its texts.
type Typed<'a> = &'a [(&'a str, &'a [&'a str])];

fn given(typed: Typed<'_>) -> Given {
    let mut given = Given::default();
    for (key, texts) in typed {
        given.flag(key, texts.iter().map(|text| (*text).to_owned()).collect());
    }
    given
}

fn right(target: &str, typed: Typed<'_>) -> Job {
    read(target, given(typed)).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn answer(target: &str, typed: Typed<'_>) -> String {
    read(target, given(typed)).expect_err("the flags are wrong").to_string()
}

#[test]
fn an_experiment_alone_is_the_shortest_file() {
    let text = "[[job]]\nexperiment = \"streams\"\n";
    assert_eq!(find("streams"), Given::from_toml(text, "streams").read());
}

#[test]
fn a_budget_that_is_asked_for_is_used() {
    let most = |target, typed: Typed<'_>| right(target, typed).blocks_max;
    assert_eq!(most("streams", &[]), 30);
    assert_eq!(most("streams", &[("budget", &["20m"])]), 200);
    assert_eq!(most("streams", &[("budget", &["20m"]), ("max_blocks", &["40"])]), 40);
    assert_eq!(most("streams", &[("budget", &["20m"]), ("blocks", &["6"])]), 6);
    assert_eq!(most("http", &[("budget", &["30s"])]), 200);
    assert_eq!(most("seed3", &[("budget", &["20m"])]), 3, "counts: more of them decide nothing");
}

#[test]
fn flags_replace_what_the_job_says() {
    let job = right(
        "quick",
        &[
            ("only", &["pipes"]),
            ("arms", &["poll,select"]),
            ("message_bytes", &["1_024"]),
            ("blocks", &["20"]),
            ("budget", &["30s"]),
            ("runtime", &["20ms"]),
            ("profile", &["999"]),
            ("show_intervals", &["true"]),
        ],
    );
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
    let fewer = right("quick", &[("max_blocks", &["3"])]);
    assert_eq!((fewer.blocks, fewer.blocks_max), (3, 3));
    let closed = right("http", &[("no_keepalive", &["true"])]);
    assert!(closed.parts.iter().all(|part| part.axes["keepalive"] == [Value::Switch(false)]));
}

#[test]
fn the_baseline_stays_where_it_is_still_an_arm() {
    let job = right("streams", &[("arms", &["poll", "epoll"])]);
    assert_eq!(job.parts[0].baseline, "epoll");
}

#[test]
fn arms_of_the_user_share_a_pattern_or_are_servers() {
    let arms = &["old=bench -n 2000,5", "new=env A=1 bench", "epoll,poll"];
    let flags: Typed<'_> =
        &[("arms", arms), ("arm_pattern", &["Avg: (\\d+)"]), ("baseline", &["new"])];
    let part = &right("streams", flags).parts[0];
    let names: Vec<_> = part.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!((part.baseline.as_str(), names), ("new", vec!["old", "new", "epoll", "poll"]));
    let ArmKind::Program(new) = &part.arms[1].kind else { panic!("{part:?}") };
    assert_eq!((&*new.command, &*new.pattern), ("env A=1 bench", "Avg: (\\d+)"));
    let http = right("http", &[("arms", &["mine=./mine {port}"])]);
    assert!(matches!(http.parts[0].arms[0].kind, ArmKind::Server { .. }));
}

#[test]
fn a_wrong_flag_is_named_with_what_would_be_right() {
    let names = crate::job::arms::arm_names().join(", ");
    let no_such = format!("no such arm; expected {names}; did you mean");
    let cases: &[(&str, Typed<'_>, String)] = &[
        (
            "streams",
            &[("transport", &["pipe,tpc"])],
            "--transport tpc: no such value; expected pipe, unix, tcp; did you mean \"tcp\"?".into(),
        ),
        (
            "streams",
            &[("pipes", &["100"])],
            "--pipes: nothing in this job has this axis; it belongs to pipes".into(),
        ),
        (
            "http",
            &[("no_keepalive", &["true"]), ("keepalive", &["true"])],
            "--no-keepalive: can't stand beside the flag that it is short for".into(),
        ),
        (
            "streams",
            &[("baseline", &["epol"])],
            "--baseline: \"epol\" is none of the arms of streams, which are select, poll, aio, epoll, \
             epoll-et, epoll-oneshot, uring-poll, raw-c; did you mean \"epoll\"?"
                .into(),
        ),
        (
            "streams",
            &[("blocks", &["many"])],
            "--blocks many: expected a whole number from 1 to 1,000".into(),
        ),
        ("streams", &[("arms", &["pol"])], format!("--arm pol: {no_such} \"poll\"?")),
        (
            "streams",
            &[("arms", &["mine=./mine {port}"])],
            "--arm: mine: streams: no server; expected a program that prints a figure, with a pattern"
                .into(),
        ),
        (
            "http",
            &[("arms", &["raw-epoll", "libev"])],
            "--arm: libev: no arm of http; it belongs to chain".into(),
        ),
        (
            "streams",
            &[("only", &["stream"]), ("nfds", &["7"])],
            "--only: no such part as stream; expected streams; did you mean \"streams\"?".into(),
        ),
        (
            "streams",
            &[("arms", &["a=b"])],
            "--arm a=b: does not say where the server has to listen; expected a command line with \
             {port} or {address} in it"
                .into(),
        ),
        (
            "streams",
            &[("arms", &["epoll"]), ("arm_pattern", &["(.)"])],
            "--arm-pattern: 1 of them for 0 commands in --arm; expected one for all or one for each"
                .into(),
        ),
        (
            "streams",
            &[("arms", &["a=b"]), ("arm_pattern", &["x"])],
            "--arm-pattern x: has no capture group, so no figure can be found; expected a regular \
             expression with a capture group"
                .into(),
        ),
        (
            "streams",
            &[("arms", &["a="]), ("arm_pattern", &["(.)"])],
            "--arm a=: holds no word; expected a command line that splits into words".into(),
        ),
    ];
    for (target, typed, expected) in cases {
        assert_eq!(answer(target, typed), *expected);
    }
    let unnamed = answer("streams", &[("arms", &["=b"]), ("arm_pattern", &["(.)"])]);
    assert!(unnamed.starts_with("--arm =b: not a usable name"), "{unnamed}");
}

#[test]
fn all_wrong_flags_are_named_at_once() {
    let flags: Typed<'_> = &[("seed", &["x"]), ("runtime", &["1"]), ("arms", &["x", "y"])];
    let mistakes = read("seed0", given(flags)).expect_err("wrong flags");
    assert_eq!(mistakes.mistakes.len(), 4, "{mistakes}");
}
