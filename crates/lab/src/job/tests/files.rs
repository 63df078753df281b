//! What a right job file means: defaults, overriding, and what gives way to what.

use std::time::Duration;

use pollux_engine::Driver;
use pollux_poller::Mechanism;
use pollux_settings::describe;

use crate::arm::{Arm, ArmKind, Build, RAW_C, RAW_EPOLL};
use crate::axis::Value;
use crate::experiments::known;
use crate::job::{Job, of_text};

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
        (Duration::from_millis(100), Duration::from_millis(500), Duration::from_millis(20))
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
            let (mut global, mut part, mut arm) = (String::new(), String::new(), String::new());
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
    let page = include_str!("../../../../../docs/job-file.md");
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
