//! Faults that were planted are named, with their line; a clean program gets no advice.

use crate::{figures, source};
use pollux_testing::skip;
use serde_json::Value;

/// The line of the planted fault as the table of lines has it.
fn assert_names_the_line(place: &Value, file: &str) {
    let has_tool = std::process::Command::new("addr2line").arg("--version").output().is_ok();
    if !has_tool {
        return skip("no addr2line");
    }
    let text = std::fs::read_to_string(source(file)).expect("the source");
    let line = text.lines().position(|line| line.contains("/* fault */")).expect("a fault") + 1;
    let place = place.as_str().expect("a place");
    assert!(place.contains(&format!("{file}:{line}")), "{place}, expected line {line}");
}

fn only_advice(figures: &Value) -> &Value {
    let advice = figures["advice"].as_array().expect("advice");
    assert_eq!(advice.len(), 1, "{advice:#?}");
    &advice[0]
}

#[test]
fn one_event_for_each_wait_is_named() {
    let Some(figures) = figures("one_by_one") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "one-event-per-wait");
    let measured = advice["measured"].as_str().expect("a figure");
    assert!(measured.contains("of 2,400 waits"), "{measured}");
    assert_names_the_line(&advice["place"], "one_by_one.c");
    assert_eq!(figures["total"]["full"], 2400);
    assert_eq!(figures["total"]["events_per_wait"][1]["count"], 2400);
}

#[test]
fn mod_to_and_fro_is_named() {
    let Some(figures) = figures("to_and_fro") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "mod-to-and-fro");
    let measured = advice["measured"].as_str().expect("a figure");
    assert!(measured.starts_with("500 MODs asked for writability"), "{measured}");
    assert_names_the_line(&advice["place"], "to_and_fro.c");
    assert_eq!(figures["total"]["mods"], 1000);
    assert_eq!(figures["total"]["mods_back"], 999, "all but the first");
}

#[test]
fn a_turn_that_blocks_is_named_with_what_it_called() {
    let Some(figures) = figures("blocks") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "turn-blocks");
    assert_names_the_line(&advice["place"], "blocks.c");
    // On a busy machine a turn may be kept from the CPU for longer than it slept.
    let blocked = figures["total"]["turns_blocked"].as_u64().expect("a count");
    assert!((3..=12).contains(&blocked), "{blocked}");
    let calls = figures["longest_turns"][0]["calls"].as_array().expect("calls");
    let of = |name: &str| calls.iter().find(|call| call["call"] == name);
    assert!(of("nanosleep").is_some_and(|call| call["lasted_ns"].as_u64() >= Some(20_000_000)));
    assert!(of("read").is_some(), "{calls:#?}");
}

#[test]
fn registering_for_each_request_is_named() {
    let Some(figures) = figures("registers_anew") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "registered-anew");
    assert_names_the_line(&advice["place"], "registers_anew.c");
    assert_eq!(figures["total"]["readds"], 399, "all but the first");
}

#[test]
fn a_herd_is_named_with_each_of_its_processes() {
    let Some(figures) = figures("herd") else { return };
    let advice = only_advice(&figures);
    assert_eq!(advice["kind"], "herd");
    let measured = advice["measured"].as_str().expect("a figure");
    assert!(measured.contains("180 of 240 wakes"), "{measured}");
    assert_names_the_line(&advice["place"], "herd.c");
    let processes = figures["processes"].as_array().expect("processes");
    let workers = processes.iter().filter(|process| process["waits"] == 60);
    assert_eq!(workers.count(), 4, "{processes:#?}");
    assert_eq!(figures["total"]["accepted"], 60);
}

#[test]
fn a_clean_program_gets_no_advice_and_is_counted_to_the_last_call() {
    let Some(figures) = figures("clean") else { return };
    assert_eq!(figures["advice"].as_array().map(Vec::len), Some(0), "{:#}", figures["advice"]);
    let total = &figures["total"];
    for (name, expected) in [
        ("events", 4000),
        ("adds", 8),
        ("dels", 8),
        ("mods", 0),
        ("creates", 1),
        ("controls_failed", 0),
        ("stale", 0),
        ("unknown", 0),
        ("again", 0),
        ("accepted", 0),
    ] {
        assert_eq!(total[name], expected, "{name} in {total:#}");
    }
}
