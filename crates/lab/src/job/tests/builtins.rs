//! The built-in jobs keep what their comments promise, and names find them.

use pollux_settings::Given;

use crate::arm::Arm;
use crate::axis::Value;
use crate::experiments::{self, Generator, known};
use crate::job::{builtin, find, list, read};
use crate::plan::{Machine, Method, PLAIN_MACHINE, Plan, Wanted};
use crate::stats::SETS_MIN;

fn machine(fds_max: u64, missing: &dyn Fn(Wanted) -> Option<String>) -> Machine<'_> {
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
        ("http", 1000..=1200),
        ("dead", 1000..=1250),
        ("published-sehttpd", 600..=720),
        ("published-haproxy", 90..=300),
        ("herd", 340..=450),
        ("published-epollexclusive", 500..=600),
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
    assert_eq!(labels[3..], ["64 connections, 16 pipeline", "100 connections, no keepalive"]);
}

#[test]
fn without_its_generator_a_point_is_left_out() {
    let missing = |wanted| match wanted {
        Wanted::Generator(Generator::Wrk) => Some("wrk is not installed here".to_owned()),
        _ => None,
    };
    let mut job = find("http").expect("built in");
    let part = job.parts.iter_mut().find(|part| part.name == "churn").expect("a part");
    part.axes.insert("generator".into(), ["pollux", "wrk", "ab"].map(Value::of).to_vec());
    let plan = Plan::make(job, &machine(1 << 20, &missing));
    let labels: Vec<_> = plan.points.iter().map(|point| point.point.label.as_str()).collect();
    let churn = "100 connections, no keepalive";
    assert_eq!(labels[4..], [churn.to_owned(), format!("{churn}, ab")]);
    assert_eq!(plan.left_out[0].point, format!("{churn}, wrk"));
    assert_eq!(plan.left_out[0].reason, "wrk is not installed here");
}

#[test]
fn a_generator_that_does_not_pipeline_is_not_asked_to() {
    let mut job = find("http").expect("built in");
    for part in &mut job.parts {
        part.axes.insert("generator".into(), vec![Value::of("ab")]);
    }
    let plan = Plan::make(job, &machine(1 << 20, &|_| None));
    assert_eq!(plan.points.len(), 4);
    assert!(plan.left_out[0].reason.contains("one request at a time"));
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
fn one_build_alone_is_refused_with_what_is_missing() {
    let mut flags = Given::default();
    flags.flag("arms", vec!["old=a/pollux".into()]);
    let error = read("version", flags).expect_err("one build").to_string();
    assert_eq!(
        error,
        "--arm old=…: there is one build; expected two, the older first: --arm old=PATH --arm new=PATH"
    );
    assert!(read("version", Given::default()).is_ok(), "this build beside itself");
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
