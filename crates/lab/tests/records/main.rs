//! Records and what is made of them. `docs/result.schema.json` and the result file say the same thing: what the lab
//! writes is valid, a field more or less is not.

mod report;
mod sample;

use jsonschema::Validator;
use pollux_lab::record::{Outcome, Record, RowTurns, SCHEMA_VERSION, Turns, TurnsTrust};
use serde_json::{Value, json};

/// Maps whose keys are names from outside; the schema cannot know them.
const MAPS: [&str; 4] = ["axes", "counters", "figures", "kernel"];
/// Fields that are written only when there is something to say, and those that results of earlier
/// versions do not have.
const OPTIONAL: &str = "figures generator page_faults_per_event enable repeats mechanism \
                        process_switches_per_s machine_switches_per_s more_blocks request_times \
                        worker_calls turns budget_s log_ratio round_sd between_sets within_set load_average \
                        control_half_width_max";

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../docs/result.schema.json")).expect("JSON")
}

fn validator() -> Validator {
    jsonschema::meta::validate(&schema()).expect("a valid schema");
    jsonschema::validator_for(&schema()).expect("a schema that compiles")
}

/// The sample with one run, result and so on for each shape that occurs, so that the walk is short.
fn small_record() -> Record {
    let mut record = sample::record();
    record.runs.retain(|run| run.block == 0 && run.point == "pipe");
    record.runs.retain(|run| ["epoll", "select"].contains(&&*run.arm));
    record.runs.sort_by_key(|run| run.failure().is_some());
    record.results.retain(|row| row.point == "pipe");
    record.counting.truncate(1);
    record.why.truncate(1);
    record.request_times.truncate(1);
    if let Outcome::Measured(measurement) = &mut record.runs[0].outcome {
        measurement.intervals.truncate(1);
        measurement.intervals[0].machine_switches_per_s = Some(5.0);
        measurement.turns = Some(Turns {
            rounds: 80,
            turn_us: 5000,
            lead_in_us: 1250,
            log_ratio: Some(-0.016),
            round_sd: Some(0.06),
        });
    }
    record.results[0].turns = Some(RowTurns {
        rounds: 80,
        turn_us: 5000,
        between_sets: Some(0.004),
        within_set: Some(0.06),
    });
    record.trust.turns = Some(TurnsTrust {
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
    let json = serde_json::to_value(sample::record()).expect("a record");
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
    let record = sample::record();
    let file = serde_json::to_string_pretty(&record).expect("a record");
    assert_eq!(serde_json::from_str::<Record>(&file).expect("our own file"), record);
}
