//! Any job can be written and read back, and no text makes the parser panic.
//!
//! The built-in jobs keep what their comments promise, and names find them.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::campaign::AgentName;
use pollux_settings::{Given, SettingErrors};
use pollux_stats::SETS_MIN;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::super::{Job, Part, arm_specs, builtin, find, list, read};
use crate::arm::{Arm, ArmKind, Build, Program};
use crate::axis::{Axis, AxisKind, CPUS, Value};
use crate::experiments::{self, Experiment, Generator, known};
use crate::form::tests::SOME;
use crate::hosts::Hosts;
use crate::plan::{Machine, Method, PLAIN_MACHINE, Plan, Requirement};

fn parse(text: &str) -> Result<Job, SettingErrors> {
    Given::from_toml(text, "x.toml").read()
}

const LINE: &str = "[ -~µ€\"\\\\']{0,20}[a-z\"'\\\\]";

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,20}"
}

fn axis_values(axis: &'static Axis) -> BoxedStrategy<Vec<Value>> {
    let texts = |words: &[&str]| words.iter().map(|word| Value::of(word)).collect::<Vec<_>>();
    match axis.kind {
        AxisKind::Cpus => subsequence(texts(&CPUS), 1..=2).boxed(),
        AxisKind::Word(words) | AxisKind::Manner(words) | AxisKind::Version(words) => {
            subsequence(texts(words), 1..=words.len()).boxed()
        }
        AxisKind::WordOrAgent(words, agent) => {
            let words = texts(words).into_iter().chain([Value::Word(format!("{agent}:a-1"))]);
            let words: Vec<Value> = words.collect();
            let most = words.len();
            subsequence(words, 1..=most).boxed()
        }
        AxisKind::Path => subsequence(texts(&["/", "/x?y=1"]), 1..=2).boxed(),
        AxisKind::Either { .. } => subsequence(texts(&["true", "false"]), 1..=2).boxed(),
        AxisKind::Switch => any::<bool>().prop_map(|is_on| vec![Value::Switch(is_on)]).boxed(),
        AxisKind::WordOrCount(words, low, high) => (subsequence(texts(words), 1), low..=high)
            .prop_map(|(words, number)| words.into_iter().chain([Value::Number(number)]).collect())
            .boxed(),
        AxisKind::Count(low, high) | AxisKind::Bytes(low, high) => {
            proptest::collection::btree_set(low..=high, 1..5)
                .prop_map(|numbers| numbers.into_iter().map(Value::Number).collect())
                .boxed()
        }
    }
}

fn axes(experiment: &'static dyn Experiment) -> BoxedStrategy<BTreeMap<String, Vec<Value>>> {
    let values: Vec<_> = experiment.axes.iter().map(axis_values).collect();
    let names = experiment.axes.iter().map(|axis| axis.name.to_owned());
    let names: Vec<_> = names.collect();
    values.prop_map(move |values| names.iter().cloned().zip(values).collect()).boxed()
}

/// An arm of the user's own.
fn named() -> impl Strategy<Value = ArmKind> {
    let line = || (LINE, LINE).prop_map(|(word, text)| (shell_words::join([word]), text));
    let driver = prop::sample::select(Driver::ALL.to_vec());
    prop_oneof![
        line().prop_map(|(command, text)| {
            let pattern = format!("{} (\\d+)", regex_lite::escape(&text));
            ArmKind::Program(Program { command, pattern })
        }),
        line().prop_map(|(line, _)| ArmKind::Server { command: format!("{line} {{port}}") }),
        (1u32..1 << 22, any::<std::net::SocketAddrV4>())
            .prop_map(|(pid, address)| ArmKind::Running { pid, address: address.into() }),
        (LINE, driver)
            .prop_map(|(path, driver)| ArmKind::Build(Build { program: path.into(), driver })),
    ]
}

/// Milliseconds up to ten minutes.
fn length(low_ms: u64) -> impl Strategy<Value = Duration> {
    (low_ms..=600_000).prop_map(Duration::from_millis)
}

fn part() -> impl Strategy<Value = Part> {
    let experiment = prop::sample::select(experiments::ALL.to_vec());
    let with_axes = experiment.prop_flat_map(|experiment| (Just(experiment), axes(experiment)));
    let windows = (length(0), length(10), 1u32..=50);
    let forms = subsequence(SOME.to_vec(), 0..4);
    let own = (vec(named(), 0..4), forms);
    let strategy = (name(), with_axes, any::<u32>(), own, any::<Index>(), windows);
    strategy.prop_map(|(name, (experiment, axes), chosen, (named, forms), at, windows)| {
        let (ramp_time, runtime, cut) = windows;
        let ramp_time = Some(ramp_time).filter(|_| !cut.is_multiple_of(5));
        let known = arm_specs::all_of(experiment).into_iter();
        let known = known.enumerate().filter(|(at, _)| at == &0 || chosen >> at & 1 == 1);
        let is_taken = |kind: &ArmKind| arm_specs::takes(experiment, kind);
        let named = named.into_iter().filter(is_taken).enumerate();
        let named = named.map(|(at, kind)| Arm { name: format!("arm-{at}"), kind });
        let forms = forms.into_iter().map(|form| Arm::form(form.parse().expect(form)));
        let forms = forms.filter(|arm| is_taken(&arm.kind));
        let arms: Vec<Arm> = known.map(|(_, arm)| arm).chain(named).chain(forms).collect();
        let interval = (runtime / cut).max(Duration::from_millis(10)).min(runtime);
        let baseline = arms[at.index(arms.len())].name.clone();
        Part {
            title: Some(name.clone()).filter(|_| cut.is_multiple_of(3)),
            name,
            experiment,
            arms,
            baseline,
            axes,
            ramp_time,
            runtime,
            interval,
            rates: cut.is_multiple_of(2),
        }
    })
}

fn any_job() -> impl Strategy<Value = Job> {
    let global = (name(), LINE, 0..=i64::MAX as u64, 1u32..=1000, 0u32..=500, 1e-3..0.5, 1e-3..1.0);
    let optional =
        (option::of(length(1000)), option::of(1u32..=10_000), any::<bool>(), any::<bool>());
    let require = proptest::collection::btree_set(LINE, 0..3);
    (global, optional, require, vec(part(), 1..4)).prop_map(|(global, optional, require, parts)| {
        let (name, question, seed, blocks, more, precision, min_effect) = global;
        let (budget, profile_hz, shows_intervals, times_requests) = optional;
        let cut = blocks.is_multiple_of(2);
        let blocks_max = (blocks + more).min(1000);
        let require = require.into_iter().collect();
        let rename =
            |(at, part): (usize, Part)| Part { name: format!("{at}{}", part.name), ..part };
        let parts = parts.into_iter().enumerate().map(rename).collect();
        Job {
            name,
            question,
            seed,
            blocks,
            blocks_max,
            precision,
            min_effect,
            budget,
            profile_hz,
            shows_intervals,
            times_requests,
            require,
            hosts: Hosts {
                listen: cut.then_some([10, 0, 0, 1].into()),
                nats: cut.then(|| "nats://h:4222,tls://i".to_owned()),
                nats_login: shows_intervals.then(|| "/a b".into()),
                nats_ca: times_requests.then(|| "c.pem".into()),
                group: cut.then(|| AgentName::nearest("g")),
            },
            parts,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_job_reads_back_from_its_own_text(job in any_job()) {
        let text = job.to_toml();
        let read = parse(&text);
        prop_assert_eq!(read, Ok(job), "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    /// Bytes of a built-in file replaced, removed and repeated: near misses of every kind.
    #[test]
    fn no_damage_to_a_file_makes_the_parser_panic(
        which in any::<Index>(),
        damage in vec((any::<Index>(), 0usize..6, any::<u8>()), 1..8),
    ) {
        let mut bytes = which.get(list()).text.as_bytes().to_vec();
        for (at, count, byte) in damage {
            let at = at.index(bytes.len());
            let end = (at + count).min(bytes.len());
            bytes.splice(at..end, std::iter::repeat_n(byte, count / 2));
        }
        if let Err(error) = parse(&String::from_utf8_lossy(&bytes)) {
            prop_assert!(error.to_string().lines().count() == error.mistakes.len(), "{}", error);
        }
    }

    /// Lines of all built-in files in any order: sections and keys in wrong places.
    #[test]
    fn no_shuffled_file_makes_the_parser_panic(picks in vec(any::<Index>(), 1..40)) {
        let lines: Vec<_> = list().iter().flat_map(|builtin| builtin.text.lines()).collect();
        let text: Vec<_> = picks.iter().map(|pick| *pick.get(&lines)).collect();
        let _ = parse(&text.join("\n"));
    }
}

#[test]
fn the_builtins_read_back() {
    for builtin in list() {
        let job = find(builtin.name).expect("built in");
        assert_eq!(parse(&job.to_toml()), Ok(job));
    }
}

#[test]
fn a_pattern_with_every_kind_of_character_reads_back() {
    let mut job = find("pipes").expect("an experiment");
    let pattern = "\"'''\n\t\u{1}\u{7f}µ\"\"\" (\\d+)".to_owned();
    let name = "a".to_owned();
    let line = "x 'y z'".to_owned();
    let kind = ArmKind::Program(Program { command: line, pattern });
    job.parts[0].arms.push(Arm { name, kind });
    assert_eq!(parse(&job.to_toml()), Ok(job));
}

#[test]
fn deep_nesting_is_a_mistake_and_no_overflow() {
    let deep = 20_000;
    let arrays = format!("a = {}", "[".repeat(deep));
    let dotted = format!("a{} = 1", ".a".repeat(deep));
    let header = format!("[a{}]", ".a".repeat(deep));
    let tables = format!("a = {}", "{a = ".repeat(deep));
    for text in [arrays, dotted, header, tables] {
        assert!(parse(&text).is_err());
    }
}

fn machine(fds_max: u64, missing: &dyn Fn(Requirement) -> Option<String>) -> Machine<'_> {
    Machine { fds_max, missing, ..PLAIN_MACHINE }
}

#[test]
fn every_builtin_is_right_and_called_like_its_file() {
    for known in list() {
        let job = find(known.name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(job.name, known.name);
        assert_eq!(builtin(known.name), Some(known.text));
    }
    assert_eq!(builtin("slow"), None);
    assert_eq!(find("seed2").expect("its old name").name, "published-sehttpd");
}

#[test]
fn the_builtins_take_as_long_as_their_comments_say() {
    let seconds = |name| {
        Plan::make(find(name).expect("built in"), &machine(1 << 20, &|_| None))
            .forecast()
            .total
            .as_secs()
    };
    for (name, forecast) in [
        ("quick", 100..=175),
        ("published-epoll-bench", 450..=530),
        ("published-sys-epoll", 1400..=1650),
        ("chain", 540..=640),
        ("http", 1000..=1230),
        ("dead", 1000..=1250),
        ("uring-forms", 120..=190),
        ("published-sehttpd", 600..=720),
        ("published-haproxy", 90..=300),
        ("herd", 340..=450),
        ("published-epollexclusive", 500..=600),
        ("published-echo-servers", 40..=150),
        ("published-streaming", 20..=90),
        // Without a second build.
        ("version", 30..=60),
    ] {
        assert!(forecast.contains(&seconds(name)), "{name}: {} s", seconds(name));
    }
}

#[test]
fn no_builtin_that_takes_turns_plans_too_few_sets_for_a_verdict() {
    for known in list() {
        let job = find(known.name).unwrap_or_else(|error| panic!("{error}"));
        let plan = Plan::make(job, &machine(1 << 20, &|_| None));
        if plan.points.iter().any(|point| point.method == Method::Turns) {
            assert!(plan.job.blocks >= SETS_MIN, "{}: {}", known.name, plan.job.blocks);
        }
    }
}

#[test]
fn points_that_mean_nothing_or_need_too_much_are_left_out_with_the_reason() {
    let plan =
        |name, fds_max| Plan::make(find(name).expect("built in"), &machine(fds_max, &|_| None));
    let chain = plan("chain", 1 << 20);
    assert_eq!(chain.points.len(), 5);
    assert!(chain.left_out[0].reason.contains("more bytes under way than there are pairs"));
    let dead = plan("dead", 20_000);
    let labels: Vec<_> = dead.points.iter().map(|point| point.point.label.as_str()).collect();
    assert_eq!(labels[..2], ["100 connections", "100 connections, 1000 dead"]);
    assert_eq!(labels[4], "100 connections, 18000 dead");
    assert_eq!(labels[5], "100 connections, 30000 dead, 2 processes");
    assert_eq!(labels[7], "100 connections, 60000 dead, 4 processes");
    let alone: Vec<_> = dead.left_out.iter().map(|left| (&*left.arm, &*left.point)).collect();
    assert_eq!(alone.len(), 3, "nginx at the points of several processes");
    assert_eq!(alone[0], ("nginx", labels[5]));
    assert_eq!(dead.points[7].arms.len(), dead.points[0].arms.len() - 1);
    let labels: Vec<_> =
        plan("http", 1 << 20).points.iter().map(|point| point.point.label.clone()).collect();
    assert_eq!(labels[3..5], ["64 connections, 16 pipeline", "100 connections, no keepalive"]);
    assert_eq!(
        labels[6..8],
        ["16 connections, 1MiB reply_bytes", "16 connections, 64KiB request_bytes"]
    );
}

#[test]
fn without_its_generator_a_point_is_left_out() {
    let missing = |wanted| match wanted {
        Requirement::Generator(Generator::Wrk) => Some("wrk is not installed here".to_owned()),
        _ => None,
    };
    let mut job = find("http").expect("built in");
    let part = job.parts.iter_mut().find(|part| part.name == "churn").expect("a part");
    part.axes.insert("generator".into(), ["pollux", "wrk", "ab"].map(Value::of).to_vec());
    let plan = Plan::make(job, &machine(1 << 20, &missing));
    let labels: Vec<_> = plan.points.iter().map(|point| point.point.label.as_str()).collect();
    let churn = "100 connections, no keepalive";
    assert_eq!(labels[4..6], [churn.to_owned(), format!("{churn}, ab")]);
    let left = plan.left_out.iter().find(|left| left.point == format!("{churn}, wrk"));
    assert_eq!(left.expect("left out").reason, "wrk is not installed here");
}

#[test]
fn a_generator_that_does_not_pipeline_is_not_asked_to() {
    let mut job = find("http").expect("built in");
    for part in &mut job.parts {
        part.axes.insert("generator".into(), vec![Value::of("ab")]);
    }
    let plan = Plan::make(job, &machine(1 << 20, &|_| None));
    assert_eq!(plan.points.len(), 8);
    assert!(plan.left_out.iter().any(|left| left.reason.contains("one request at a time")));
}

#[test]
fn only_pollux_is_run_where_replies_are_split_and_there_the_rate_is_judged() {
    let machine = machine(1 << 20, &|_| None);
    let mut job = find("published-sehttpd").expect("built in");
    job.parts[0].arms.extend(known("http").peers.iter().copied().map(Arm::peer));
    let plan = Plan::make(job.clone(), &machine);
    assert_eq!(plan.points.len(), 20);
    for point in &plan.points {
        let is_split = point.point.axes.is("reply", "split");
        let names: Vec<_> = point.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names.contains(&"nginx"), !is_split, "{}", point.point.label);
        let unit = if is_split { "requests/s" } else { "µs/request" };
        assert_eq!(point.metric().unit, unit, "{}", point.point.label);
        assert_eq!(point.point.label.ends_with(", split reply"), is_split);
    }
    let left = plan.left_out.iter().filter(|left| left.arm == "nginx");
    assert_eq!(left.count(), 10, "one line for each point");
    // Without its baseline nothing can be said of a point.
    job.parts[0].baseline = "nginx".into();
    let plan = Plan::make(job, &machine);
    assert_eq!(plan.points.len(), 10);
    assert!(plan.left_out.iter().any(|left| left.arm == "*" && left.reason.contains("nginx")));
}

#[test]
fn builds_are_the_arms_of_pollux_and_the_first_is_the_baseline() {
    let machine = machine(1 << 20, &|_| None);
    let mut flags = Given::default();
    flags.flag("arms", vec!["old=a/pollux".into(), "new=b/pollux".into()]);
    let job = read("version", flags).expect("two builds");
    let plan = Plan::make(job, &machine);
    for point in &plan.points {
        let names: Vec<_> = point.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["old", "new", "A/A"]);
        assert_eq!((point.baseline, point.arms[2].kind == point.arms[0].kind), (0, true));
        assert!(point.arms.iter().all(|arm| !arm.kind.is_other()));
    }
}

#[test]
fn fewer_than_two_builds_are_refused_with_what_is_missing() {
    let mut flags = Given::default();
    flags.flag("arms", vec!["old=a/pollux".into()]);
    let error = read("version", flags).expect_err("one build").to_string();
    assert_eq!(
        error,
        "--arm old=…: there is one build; expected --arm old=PATH --arm new=PATH, the older first"
    );
    let error = read("version", Given::default()).expect_err("no build").to_string();
    assert_eq!(
        error,
        "--arm: the job version compares two builds; expected --arm old=PATH --arm new=PATH"
    );
    assert!(find("version").is_ok(), "what it is about can be asked");
}

#[test]
fn an_experiment_is_found_by_its_name() {
    let job = find("pipes").expect("an experiment");
    assert_eq!(job.parts[0].experiment, known("pipes"));
    assert_eq!(job.name, "pipes");
}

#[test]
fn a_name_that_means_nothing_is_answered_with_those_that_do() {
    let error = find("quik").expect_err("no such job").to_string();
    let jobs = list().iter().map(|job| job.name).collect::<Vec<_>>().join(", ");
    let experiments = experiments::names().join(", ");
    assert_eq!(
        error,
        format!(
            "\"quik\" is not a job; expected a path to a .toml file, a built-in job ({jobs}) or an \
             experiment ({experiments}); did you mean \"quick\"?"
        )
    );
    let error = find("no/such/file.toml").expect_err("no such file").to_string();
    assert!(error.starts_with("JOB: no/such/file.toml: No such file"), "{error}");
}
