//! Any job can be written and read back, and no text makes the parser panic.

use std::collections::BTreeMap;
use std::time::Duration;

use pollux_engine::Driver;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use crate::experiment::{Axis, AxisKind, Experiment};
use crate::job::{Build, Command, Job, Part, arms_of_pollux, find, list};

const LINE: &str = "[ -~µ€\"\\\\']{0,20}[a-z\"'\\\\]";

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,20}"
}

fn axis_values(axis: &'static Axis) -> BoxedStrategy<Vec<String>> {
    let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match axis.kind {
        AxisKind::Word(words) => subsequence(texts(words), 1..=words.len()).boxed(),
        AxisKind::Either => subsequence(texts(&["true", "false"]), 1..=2).boxed(),
        AxisKind::Switch => any::<bool>().prop_map(|is_on| vec![is_on.to_string()]).boxed(),
        AxisKind::WordOrCount(words, low, high) => (subsequence(texts(words), 1), low..=high)
            .prop_map(|(words, number)| words.into_iter().chain([number.to_string()]).collect())
            .boxed(),
        AxisKind::Count(low, high) => proptest::collection::btree_set(low..=high, 1..5)
            .prop_map(|numbers| numbers.into_iter().map(|number| number.to_string()).collect())
            .boxed(),
    }
}

fn axes(experiment: Experiment) -> BoxedStrategy<BTreeMap<String, Vec<String>>> {
    let values: Vec<_> = experiment.axes().iter().map(axis_values).collect();
    let names = experiment.axes().iter().map(|axis| axis.name.to_owned());
    let names: Vec<_> = names.collect();
    values.prop_map(move |values| names.iter().cloned().zip(values).collect()).boxed()
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let command = (LINE, LINE).prop_map(|(word, text)| (shell_words::join([word]), text));
    vec(command, 0..3).prop_map(|commands| {
        let command = |(at, (line, text)): (usize, (String, String))| Command {
            name: format!("arm-{at}"),
            line,
            pattern: format!("{} (\\d+)", regex::escape(&text)),
        };
        commands.into_iter().enumerate().map(command).collect()
    })
}

/// Milliseconds up to ten minutes.
fn length(low_ms: u64) -> impl Strategy<Value = Duration> {
    (low_ms..=600_000).prop_map(Duration::from_millis)
}

fn part() -> impl Strategy<Value = Part> {
    let experiment = prop::sample::select(Experiment::ALL.to_vec());
    let with_axes = experiment.prop_flat_map(|experiment| (Just(experiment), axes(experiment)));
    let pollers = subsequence(Driver::ALL.to_vec(), 1..=Driver::ALL.len());
    let windows = (length(0), length(10), 1u32..=50);
    let strategy = (name(), with_axes, pollers, any::<u16>(), commands(), any::<Index>(), windows);
    strategy.prop_map(|(name, (experiment, axes), pollers, peers, commands, at, windows)| {
        let (ramp_time, runtime, cut) = windows;
        // None, one or both, by bits that no peer takes.
        let made = |name: &str| Build { name: name.into(), program: format!("{name}/p").into() };
        let builds: Vec<_> = ["old.build", "new"].map(made).into_iter().collect();
        let builds = builds[..usize::from(peers >> 14).min(2)].to_vec();
        let chosen = |at: &usize| peers >> at & 1 == 1;
        let known = experiment.peers();
        let peers: Vec<_> = (0..known.len()).filter(chosen).map(|at| known[at]).collect();
        // What has ways of waiting has no pollers.
        let waits: Vec<_> = experiment.waits().iter().copied().skip(peers.len()).collect();
        let pollers = if experiment.drivers().is_empty() { Vec::new() } else { pollers };
        let names = arms_of_pollux(&pollers, &builds).into_iter().map(|(name, ..)| name);
        let names = names.chain(waits.iter().map(|wait| wait.name().to_owned()));
        let names = names.chain(peers.iter().map(|peer| peer.name().to_owned()));
        let arms: Vec<_> = names.chain(commands.iter().map(|c| c.name.clone())).collect();
        let interval = (runtime / cut).max(Duration::from_millis(10)).min(runtime);
        let baseline = arms[at.index(arms.len())].clone();
        Part {
            name,
            experiment,
            pollers,
            builds,
            waits,
            peers,
            baseline,
            commands,
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
        let (name, question, seed, blocks, more, target_ci, min_effect) = global;
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
            target_ci,
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
        let read = Job::parse(&text, "result.json");
        prop_assert_eq!(read, Ok(job), "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = Job::parse(&text, "x.toml");
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
        if let Err(error) = Job::parse(&String::from_utf8_lossy(&bytes), "x.toml") {
            prop_assert!(error.to_string().lines().count() == error.mistakes.len(), "{}", error);
        }
    }

    /// Lines of all built-in files in any order: sections and keys in wrong places.
    #[test]
    fn no_shuffled_file_makes_the_parser_panic(picks in vec(any::<Index>(), 1..40)) {
        let lines: Vec<_> = list().iter().flat_map(|builtin| builtin.text.lines()).collect();
        let text: Vec<_> = picks.iter().map(|pick| *pick.get(&lines)).collect();
        let _ = Job::parse(&text.join("\n"), "x.toml");
    }
}

#[test]
fn the_builtins_read_back() {
    for builtin in list() {
        let job = find(builtin.name).expect("built in");
        assert_eq!(Job::parse(&job.to_toml(), "x.toml"), Ok(job));
    }
}

#[test]
fn a_pattern_with_every_kind_of_character_reads_back() {
    let mut job = find("pipes").expect("an experiment");
    let pattern = "\"'''\n\t\u{1}\u{7f}µ\"\"\" (\\d+)".to_owned();
    let (name, line) = ("a".to_owned(), "x 'y z'".to_owned());
    job.parts[0].commands.push(Command { name, line, pattern });
    assert_eq!(Job::parse(&job.to_toml(), "x.toml"), Ok(job));
}

#[test]
fn deep_nesting_is_a_mistake_and_no_overflow() {
    let deep = 20_000;
    let arrays = format!("a = {}", "[".repeat(deep));
    let dotted = format!("a{} = 1", ".a".repeat(deep));
    let header = format!("[a{}]", ".a".repeat(deep));
    let tables = format!("a = {}", "{a = ".repeat(deep));
    for text in [arrays, dotted, header, tables] {
        assert!(Job::parse(&text, "x.toml").is_err());
    }
}
