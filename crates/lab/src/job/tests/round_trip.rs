//! Any job can be written and read back, and no text makes the parser panic.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_settings::{Given, Mistakes};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use crate::arm::{Arm, ArmKind, Build, Program};
use crate::axis::{Axis, AxisKind, CPUS, Value};
use crate::experiments::{self, Experiment};
use crate::job::{Job, Part, arms, find, list};

fn parse(text: &str) -> Result<Job, Mistakes> {
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
        AxisKind::Word(words) | AxisKind::Manner(words) => {
            subsequence(texts(words), 1..=words.len()).boxed()
        }
        AxisKind::Path => subsequence(texts(&["/", "/x?y=1"]), 1..=2).boxed(),
        AxisKind::Either { .. } => subsequence(texts(&["true", "false"]), 1..=2).boxed(),
        AxisKind::Switch => any::<bool>().prop_map(|is_on| vec![Value::Switch(is_on)]).boxed(),
        AxisKind::WordOrCount(words, low, high) => (subsequence(texts(words), 1), low..=high)
            .prop_map(|(words, number)| words.into_iter().chain([Value::Number(number)]).collect())
            .boxed(),
        AxisKind::Count(low, high) => proptest::collection::btree_set(low..=high, 1..5)
            .prop_map(|numbers| numbers.into_iter().map(Value::Number).collect())
            .boxed(),
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
    let strategy = (name(), with_axes, any::<u32>(), vec(named(), 0..4), any::<Index>(), windows);
    strategy.prop_map(|(name, (experiment, axes), chosen, named, at, windows)| {
        let (ramp_time, runtime, cut) = windows;
        let known = arms::all_of(experiment).into_iter();
        let known = known.enumerate().filter(|(at, _)| at == &0 || chosen >> at & 1 == 1);
        let is_taken = |kind: &ArmKind| arms::takes(experiment, kind);
        let named = named.into_iter().filter(is_taken).enumerate();
        let named = named.map(|(at, kind)| Arm { name: format!("arm-{at}"), kind });
        let arms: Vec<Arm> = known.map(|(_, arm)| arm).chain(named).collect();
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

fn job() -> impl Strategy<Value = Job> {
    let global = (name(), LINE, 0..=i64::MAX as u64, 1u32..=1000, 0u32..=500, 1e-3..0.5, 1e-3..1.0);
    let optional =
        (option::of(length(1000)), option::of(1u32..=10_000), any::<bool>(), any::<bool>());
    let require = proptest::collection::btree_set(LINE, 0..3);
    (global, optional, require, vec(part(), 1..4)).prop_map(|(global, optional, require, parts)| {
        let (name, question, seed, blocks, more, precision, min_effect) = global;
        let (budget, profile_hz, shows_intervals, times_requests) = optional;
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
            parts,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_job_reads_back_from_its_own_text(job in job()) {
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
    let (name, line) = ("a".to_owned(), "x 'y z'".to_owned());
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
