//! Records and what is made of them. `docs/reference/result.schema.json` and the result file say the same thing: what the lab
//! writes is valid, a field more or less is not.
//!
//! The sample is a kept run of the first days, with everything put into it that a report has to cope with and that
//! run did not meet.

use std::sync::OnceLock;

use jsonschema::Validator;
use pollux_host::Reading;
use pollux_lab::record::{Outcome, Record, RowTurns, SCHEMA_VERSION, Turns, TurnsQuality, *};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

mod report;

/// Maps whose keys are names from outside; the schema cannot know them.
const MAPS: [&str; 4] = ["axes", "counters", "figures", "kernel"];
/// Fields that are written only when there is something to say, and those that results of earlier
/// versions do not have.
const OPTIONAL: &str = "figures generator page_faults_per_event enable repeats mechanism \
                        process_switches_per_s machine_switches_per_s more_blocks request_times \
                        worker_calls turns budget_s log_ratio round_sd between_sets within_set load_average \
                        control_half_width_max descriptors_per_wait completions_per_enter \
                        receive_buffers_per_event out_of_buffers_per_event \
                        memory_per_connection bounds place better \
                        unsettled warm_up is_kept is_short thirds ratio_change change_beside_generator \
                        looks fault startup_s shutdown_s status body_bytes keeps_connections pipelines \
                        serves_several backlog answer_s wave_s remarks";

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../docs/reference/result.schema.json"))
        .expect("JSON")
}

fn validator() -> Validator {
    jsonschema::meta::validate(&schema()).expect("a valid schema");
    jsonschema::validator_for(&schema()).expect("a schema that compiles")
}

/// The sample with one run, result and so on for each shape that occurs, so that the walk is short.
fn small_record() -> Record {
    let mut record = sample();
    record.runs.retain(|run| run.block == 0 && run.point == "pipe");
    record.runs.retain(|run| ["epoll", "select"].contains(&&*run.arm));
    record.runs.sort_by_key(|run| run.failure().is_some());
    record.results.retain(|row| row.point == "pipe");
    record.counting.truncate(1);
    record.why.truncate(1);
    record.request_times.truncate(1);
    record.looks = vec![look()];
    if let Outcome::Measured(measurement) = &mut record.runs[0].outcome {
        measurement.intervals.truncate(1);
        measurement.intervals[0].machine_switches_per_s = Some(5.0);
        measurement.turns = Some(Turns {
            rounds: 80,
            turn_us: 5000,
            lead_in_us: 1250,
            log_ratio: Some(-0.016),
            round_sd: Some(0.06),
            warm_up: Some(WarmUp {
                units: 84_000,
                time_s: 1.1,
                first_ns: 61_000.0,
                last_ns: 10_200.0,
                change: -0.004,
                is_flat: true,
                flat_after: 38_000,
                flat_after_s: 0.6,
                is_short: false,
            }),
            is_kept: true,
            thirds: Some(Thirds {
                rounds: 26,
                first: 10.3,
                last: 10.2,
                change: -0.01,
                change_beside_generator: Some(-0.004),
                ratio_change: Some(0.002),
            }),
        });
    }
    if let Some(row) = record.results.first_mut() {
        row.unsettled = Some("still getting cheaper: 73 to 16 µs".to_owned());
    }
    record.results[0].turns = Some(RowTurns {
        rounds: 80,
        turn_us: 5000,
        between_sets: Some(0.004),
        within_set: Some(0.06),
    });
    record.trust.turns = Some(TurnsQuality {
        rows: 6,
        rows_of_whole_runs: 0,
        half_width_max: Some(0.01),
        sets: [8, 8],
        rounds: [80, 80],
        controls: 1,
        control_half_width_max: Some(0.01),
        controls_hold: 1,
        controls_differ: 0,
        load_average: Some("0.05, 0.10, 0.20".to_owned()),
    });
    record
}

/// The path of every object in a value, from the root; not those of maps.
fn objects(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let name = path.rsplit('/').next().unwrap_or_default();
            if !MAPS.contains(&name) {
                found.push(path.to_owned());
            }
            for (key, field) in fields {
                objects(
                    field,
                    &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn is_optional(path: &str, field: &str) -> bool {
    let in_source = field == "reason" && path.starts_with("/sources/");
    let in_interval = field == "events_per_wait" && path.contains("/intervals/");
    let in_measurement = field == "events" && path.ends_with("/measured");
    in_source || in_interval || in_measurement || OPTIONAL.split(' ').any(|each| each == field)
}

#[test]
fn a_full_record_is_valid() {
    let json = serde_json::to_value(sample()).expect("a record");
    let errors: Vec<_> = validator()
        .iter_errors(&json)
        .take(3)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(schema()["properties"]["schema"]["const"], json!(SCHEMA_VERSION));
}

#[test]
fn a_field_more_or_less_is_invalid_everywhere() {
    let json = serde_json::to_value(small_record()).expect("a record");
    let validator = validator();
    let mut paths = Vec::new();
    objects(&json, "", &mut paths);
    assert!(paths.len() > 60, "{} objects", paths.len());
    for path in paths {
        let mut changed = json.clone();
        changed.pointer_mut(&path).expect("the object")["unknown"] = json!(1);
        assert!(!validator.is_valid(&changed), "one more field in {path}");
        for field in json.pointer(&path).and_then(Value::as_object).expect("an object").keys() {
            let mut changed = json.clone();
            let object = changed.pointer_mut(&path).and_then(Value::as_object_mut);
            object.expect("the object").remove(field);
            let is_valid = validator.is_valid(&changed);
            assert_eq!(is_valid, is_optional(&path, field), "without {path}/{field}");
        }
    }
}

#[test]
fn a_newer_version_and_other_values_in_maps_are_not_this_format() {
    let json = serde_json::to_value(small_record()).expect("a record");
    let validator = validator();
    for (path, wrong) in [
        ("/results/0/axes", json!(7)),
        ("/counting/0/counters", json!(-1)),
        ("/counting/0/kernel", json!(0)),
        ("/runs/0/outcome/measured/figures", json!("fast")),
        ("", json!(SCHEMA_VERSION + 1)),
    ] {
        let mut changed = json.clone();
        let name = if path.is_empty() { "schema" } else { "name" };
        changed.pointer_mut(path).expect("the map")[name] = wrong;
        assert!(!validator.is_valid(&changed), "{path}");
    }
}

#[test]
fn a_record_comes_back_from_its_file() {
    let record = sample();
    let file = serde_json::to_string_pretty(&record).expect("a record");
    assert_eq!(serde_json::from_str::<Record>(&file).expect("our own file"), record);
}

/// A label that would be markup if it were not escaped; in `streams` it stands for `aio`.
const HOSTILE: &str = "ext: <script>alert(1)</script> & \"it's\"";
/// Why `select` fails in `streams` over pipes.
const FAILURE: &str = "descriptor 1024 is not below FD_SETSIZE <1024>";
/// Why its curve ends.
const GAP: &str = "select cannot watch descriptors from 1024 on";
/// Why the hardware counters are missing.
const NO_PMU: &str = "no PMU in this guest";

fn sample() -> Record {
    static RECORD: OnceLock<Record> = OnceLock::new();
    RECORD.get_or_init(made).clone()
}

fn made() -> Record {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runs/2026-11-21-quick");
    let mut record = pollux_lab::store::load(kept.as_ref()).expect("a kept result");
    let command = ["pollux", "lab", "run", "jobs/quick.toml", "--note", "it's <quick>"];
    record.schema = SCHEMA_VERSION;
    record.ending = Ending::Budget;
    record.command = command.map(Into::into).into();
    record.job.toml.push_str("# <b>not bold</b>\n");
    let titled = record.job.toml.replace("\"dead\"", "\"dead\"\ntitle = \"Dead connections\"");
    (record.job.toml, record.job.budget_s) = (titled, Some(150.0));
    record.cuts = vec!["pipes: 16000 needs 32,000 descriptors, 9000 instead".into()];
    record.trust.noise = Some([1.001, 0.987, 1.016]);
    record.trust.hardware_counters = unread(NO_PMU, None);
    record.profiles = profiles();
    record.request_times = request_times();
    unread_what_it_read(&mut record);
    disturb_a_block(&mut record);
    name_the_hostile(&mut record);
    fail_and_leave_out(&mut record);
    add_a_second_curve(&mut record);
    for run in &mut record.runs {
        if let Outcome::Measured(measured) = &mut run.outcome
            && run.experiment == "pipes"
        {
            measured.worker_calls = vec![3, 0, 9];
        }
    }
    for row in &mut record.results {
        let decided = match row.key() {
            ["streams", "pipe", "epoll-et"] => [1.11, 1.10, 1.12],
            ["dead", "100 connections, 5000 dead", "uring"] => [0.8, 0.79, 0.81],
            ["streams", "pipe", "uring-poll"] => {
                row.more_blocks = Some(9);
                continue;
            }
            _ => continue,
        };
        [row.ratio, row.ci_low, row.ci_high] = decided.map(Some);
        (row.verdict, row.outliers) = (Verdict::Faster, 1);
    }
    record
}

/// A value that was not read; built from JSON, as a reader of the file would get it.
fn unread<T: DeserializeOwned>(reason: &str, enable: Option<&str>) -> Reading<T> {
    let mut json = json!({ "unavailable": reason });
    if let Some(command) = enable {
        json["enable"] = Value::from(command);
    }
    serde_json::from_value(json).expect("a reason")
}

fn unread_what_it_read(record: &mut Record) {
    let mount = Some("mount -t tracefs tracefs /sys/kernel/tracing");
    for row in &mut record.why {
        row.wakeups_per_event = unread("tracefs is not mounted", mount);
    }
    for source in &mut record.sources {
        if source.name == "sched:sched_waking" {
            (source.available, source.reason) = (false, Some("tracefs is not mounted".into()));
            source.enable = mount.map(Into::into);
        } else if !source.available {
            source.reason = Some(NO_PMU.into());
        }
    }
    let paranoid = "perf_event_paranoid is 2 & we are not root";
    let governor = unread("no cpufreq directory", None);
    let locks = unread(paranoid, Some("sysctl kernel.perf_event_paranoid=1"));
    let facts = [("frequency governor", governor), ("kernel locks", locks)];
    record.environment.extend(facts.map(|(name, reading)| Fact { name: name.into(), reading }));
}

fn disturb_a_block(record: &mut Record) {
    record.blocks[3].disturbances = vec!["6.1 % of CPU time stolen".into()];
    record.blocks[3].pressure = unread("/proc/pressure/cpu: no such file", Some("boot with psi=1"));
    record.blocks[6].repeats = Some(3);
    record.trust.blocks_disturbed = 1;
}

fn name_the_hostile(record: &mut Record) {
    let rows = record.results.iter_mut().map(|row| (&row.experiment, &mut row.arm));
    let why = record.why.iter_mut().map(|row| (&row.experiment, &mut row.arm));
    let runs = record.runs.iter_mut().map(|run| (&run.experiment, &mut run.arm));
    let counting = record.counting.iter_mut().map(|run| (&run.experiment, &mut run.arm));
    let all = rows.chain(why).chain(runs).chain(counting);
    all.filter(|(experiment, arm)| *experiment == "streams" && *arm == "aio")
        .for_each(|(_, arm)| HOSTILE.clone_into(arm));
}

fn fail_and_leave_out(record: &mut Record) {
    let is_failed = |key: Key<'_>| key == ["streams", "pipe", "select"];
    for run in record.runs.iter_mut().filter(|run| is_failed(run.key())) {
        run.outcome = Outcome::Failed { reason: FAILURE.into() };
        record.trust.runs_failed += 1;
    }
    for row in record.results.iter_mut().filter(|row| is_failed(row.key())) {
        let value = None;
        let ratio = None;
        let ci_low = None;
        let ci_high = None;
        let verdict = Verdict::Failed;
        *row = ResultRow { value, ratio, ci_low, ci_high, verdict, ..row.clone() };
    }
    let [experiment, point, arm] = ["pipes", "9000 pipes, fixed", "select"];
    record.results.retain(|row| row.key() != [experiment, point, arm]);
    record.runs.retain(|run| run.key() != [experiment, point, arm]);
    let left = |point: &str, arm: &str, reason: &str| {
        let point = point.into();
        let arm = arm.into();
        let reason = reason.into();
        LeftOut { experiment: experiment.into(), point, arm, reason }
    };
    let all = "completions have no readiness to compare";
    record.left_out = vec![left("*", "uring", all), left(point, arm, GAP)];
}

fn add_a_second_curve(record: &mut Record) {
    let of_pipes = record.results.iter().filter(|row| row.experiment == "pipes");
    let mut hopping: Vec<ResultRow> = of_pipes.cloned().collect();
    for row in &mut hopping {
        row.point = row.point.replace("fixed", "hopping");
        row.axes.insert("rule".into(), "hopping".into());
    }
    record.results.extend(hopping);
}

fn profiles() -> Vec<Profile> {
    let symbols = |names: &str| {
        let shares = [0.212, 0.143, 0.097, 0.061, 0.018];
        let one = |(name, share): (&str, f64)| SymbolShare {
            symbol: name.into(),
            samples: (share * 1480.0) as u64,
            share,
        };
        names.split('|').zip(shares).map(one).collect()
    };
    let profile = |arm: &str, samples, symbols| {
        let experiment = "streams".into();
        let point = "pipe".into();
        let arm = arm.into();
        Profile { experiment, point, arm, samples, symbols }
    };
    let epoll = "anon_pipe_read|ep_poll_callback|do_epoll_wait|entry_SYSCALL_64|vfs_read";
    let poll = "do_sys_poll|pipe_poll|__fdget|a_template<with, a_very_long_name_of_its_own>::poll|\
                copy_from_user";
    vec![
        profile("epoll", Reading::Value(1480), symbols(epoll)),
        profile("poll", Reading::Value(1480), symbols(poll)),
        profile("epoll-et", unread("cpu-clock sampling needs CAP_PERFMON", None), Vec::new()),
    ]
}

/// Two arms at two points: one bucket far out, and a gap between buckets.
fn look() -> Look {
    Look {
        experiment: "http".to_owned(),
        arm: "mine".to_owned(),
        fault: Some("ended with exit status: 3 before it answered".to_owned()),
        startup_s: Some(0.25),
        shutdown_s: Some(0.01),
        status: Some(200),
        body_bytes: Some(128),
        keeps_connections: Some(true),
        pipelines: Some(true),
        serves_several: Some(true),
        backlog: Some(5),
        answer_s: Some(0.001),
        wave_requests: 16,
        wave_s: Some(0.003),
        remarks: vec!["its answers differ".to_owned()],
        ..Look::default()
    }
}

fn request_times() -> Vec<RequestTimesRun> {
    let one = |point: &str, arm: &str, scale: f64| {
        let counts = [(1024.0, 1280.0, 900), (1280.0, 1536.0, 80), (40_960.0, 49_152.0, 20)];
        let buckets = counts.map(|(from_ns, below_ns, requests)| TimeBucket {
            from_ns: from_ns * scale,
            below_ns: below_ns * scale,
            requests,
        });
        let times = RequestTimes { requests: 1000, sum_ns: 2.1e6 * scale, buckets: buckets.into() };
        let experiment = "http".into();
        let point = point.into();
        let arm = arm.into();
        RequestTimesRun { experiment, point, arm, times }
    };
    let points = ["64 connections", "64 connections, no keepalive"];
    points
        .iter()
        .flat_map(|point| [one(point, "epoll", 1.0), one(point, "epoll-et", 2.0)])
        .collect()
}
