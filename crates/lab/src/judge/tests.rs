//! What a judged record says of servers: answers for rates and costs, and what the load generator
//! found.

use std::collections::BTreeMap;

use pollux_host::Reading;

use super::{answer, judge, row_for_tests};
use crate::job::of_text;
use crate::judge;
use crate::plan::{PLAIN_MACHINE, Plan};
use crate::record::{
    Badge, Block, CountingRun, Measurement, Outcome, Record, ResultRow, Run, Turns, Verdict,
};

/// An HTTP server on 64 connections, and one beside up to 60000 dead ones.
const JOB: &str = "[global]\nmin_effect = \"2%\"\narms = [\"select\", \"epoll\", \"uring\"]\n\
                   [[job]]\nname = \"http\"\nexperiment = \"http\"\nconnections = 64\n\
                   keepalive = [true, false]\n\
                   [[job]]\nname = \"dead\"\nexperiment = \"http\"\nconnections = 100\n\
                   dead = [0, 5000, 60000]\n";

fn plan() -> Plan {
    Plan::make(of_text(JOB), &PLAIN_MACHINE)
}

fn row([experiment, point, arm]: [&str; 3], value: f64, ratio: f64, verdict: Verdict) -> ResultRow {
    let row = row_for_tests(arm, verdict).of_cost("server CPU per request");
    let experiment = experiment.to_owned();
    let point = point.to_owned();
    let row = ResultRow { experiment, point, value: Some(value), ratio: Some(ratio), ..row };
    match verdict {
        Verdict::Baseline => row,
        _ => row.with_interval([ratio, ratio * 0.99, ratio * 1.01]),
    }
}

#[test]
fn a_wide_interval_of_the_same_program_twice_is_not_a_quiet_machine() {
    let mut record = Record::empty();
    record.runs = vec![run(0, "epoll", &[])];
    record.blocks = vec![block(0, &[])];
    let mut badge = |low: f64, high: f64| {
        record.results =
            vec![row_for_tests("A/A", Verdict::NoiseLevel).with_interval([1.0, low, high])];
        judge::trust_of(&record, 0).badge
    };
    assert_eq!(badge(0.96, 1.05), Badge::Quiet);
    assert_eq!(badge(0.92, 1.05), Badge::Quiet, "1/1.08");
    assert_eq!(badge(0.83, 1.05), Badge::Noisy);
    assert_eq!(badge(0.99, 1.38), Badge::Noisy);
    assert_eq!(badge(1.06, 1.38), Badge::Invalid, "apart from itself");
}

#[test]
fn every_load_of_a_server_has_its_answer_and_a_curve_has_one() {
    use Verdict::{Baseline, Equivalent, Faster, Slower};
    let kept = "64 connections";
    let churn = "64 connections, no keepalive";
    let none = "100 connections";
    let most = "100 connections, 60000 dead, 4 processes";
    let mut record = Record::empty();
    record.results = vec![
        row(["http", kept, "epoll"], 8.0, 1.0, Baseline),
        row(["http", kept, "select"], 8.8, 1.1, Slower),
        row(["http", kept, "uring"], 6.8, 0.85, Faster),
        row(["http", churn, "epoll"], 40.0, 1.0, Baseline),
        row(["http", churn, "select"], 40.0, 1.0, Equivalent),
        row(["http", churn, "uring"], 40.0, 1.0, Equivalent),
        row(["dead", none, "epoll"], 8.0, 1.0, Baseline),
        row(["dead", none, "select"], 8.0, 1.0, Equivalent),
        row(["dead", none, "uring"], 8.0, 1.0, Equivalent),
        row(["dead", most, "epoll"], 8.4, 1.0, Baseline),
        row(["dead", most, "select"], 184.0, 21.9, Slower),
        row(["dead", most, "uring"], 8.3, 0.99, Equivalent),
    ];
    let answers = answer::of(&plan(), &record);
    let said: Vec<[&str; 3]> = answers.iter().map(|a| [&*a.load, &*a.choice, &*a.reason]).collect();
    assert_eq!(
        said,
        [
            [
                "HTTP on 64 connections",
                "uring",
                "uring: 15 % less server CPU per request than epoll [0.84, 0.86]; select: 10 % \
                 more server CPU per request than epoll [1.09, 1.11]",
            ],
            [
                "HTTP on 64 connections, each for one request",
                "no difference",
                "epoll is the baseline; uring: as much server CPU per request as epoll \
                 [0.99, 1.01]",
            ],
            [
                "HTTP on 100 connections",
                "no difference",
                "epoll is the baseline; uring: as much server CPU per request as epoll \
                 [0.99, 1.01]",
            ],
            [
                "HTTP on 100 connections, 60000 dead beside them, 4 server processes",
                "uring or epoll",
                "uring: 1 % less server CPU per request than epoll [0.98, 1.00]; uring and epoll \
                 rise less than 15 % from 0 to 60000 dead; select costs 23.0 times as much at 60000 \
                 dead (184 µs) as at 0 (8.00 µs)",
            ],
        ]
    );
}

/// The answers to rows of the job's first point, `epoll` among them.
fn answers_to(job: &str, rows: Vec<ResultRow>) -> Vec<(String, String)> {
    let job = of_text(job);
    let mut record = Record::empty();
    record.job.name.clone_from(&job.name);
    record.results = rows;
    let answers = answer::of(&Plan::make(job, &PLAIN_MACHINE), &record);
    answers.into_iter().map(|answer| (answer.choice, answer.reason)).collect()
}

#[test]
fn a_rival_that_failed_leaves_nothing_to_compare_with() {
    let job = JOB
        .replace("\n[[job]]\nname = \"http\"", "\n[[job]]\nname = \"http\"\nbaseline = \"epoll\"");
    let failed = |arm| ResultRow {
        value: None,
        ratio: None,
        notes: vec!["2 of 2 runs failed: no such file".to_owned()],
        ..row(["http", "64 connections", arm], 0.0, 0.0, Verdict::Failed)
    };
    let epoll = || row(["http", "64 connections", "epoll"], 8.0, 1.0, Verdict::Baseline);
    let said = answers_to(&job, vec![epoll(), failed("select"), failed("uring")]);
    assert_eq!(
        said[0],
        (
            "nothing to compare with".to_owned(),
            "only epoll could be judged; select: 2 of 2 runs failed; uring: 2 of 2 runs failed"
                .to_owned()
        )
    );
    let uring = row(["http", "64 connections", "uring"], 6.8, 0.85, Verdict::Faster);
    let said = answers_to(&job, vec![epoll(), failed("select"), uring]);
    assert_eq!(said[0].0, "uring");
    assert!(said[0].1.ends_with("; select: 2 of 2 runs failed"), "{}", said[0].1);
}

#[test]
fn a_program_of_the_users_own_is_in_the_headline() {
    let job = "[[job]]\nname = \"http\"\nexperiment = \"http\"\nconnections = 64\narms = [\"epoll\", \
               { name = \"python\", command = \"./loop.py\", pattern = '(.*)' }]\n";
    let point = "64 connections";
    let rows = |ratio, verdict| {
        vec![
            row(["http", point, "epoll"], 8.0, 1.0, Verdict::Baseline),
            row(["http", point, "python"], 8.0 * ratio, ratio, verdict),
        ]
    };
    let said = answers_to(job, rows(2.8, Verdict::Slower));
    assert_eq!(said[0].0, "epoll");
    assert!(said[0].1.contains("python: 2.8 times the server CPU per request of epoll"));
    assert_eq!(answers_to(job, rows(0.8, Verdict::Faster))[0].0, "python");
    // Peers are asked for by name and stand beside, unless there is nothing else.
    let job = "[global]\narms = [\"epoll\", \"nginx\"]\n[[job]]\nname = \"http\"\n\
               experiment = \"http\"\nconnections = 64\n";
    let nginx = row(["http", point, "nginx"], 12.0, 1.5, Verdict::Slower);
    let said = answers_to(job, vec![rows(1.0, Verdict::Equivalent).remove(0), nginx]);
    assert_eq!(said[0].0, "epoll");
    assert!(said[0].1.contains("nginx: 50 % more server CPU per request"), "{}", said[0].1);
}

#[test]
fn a_row_that_is_open_is_not_chosen_beside_one_that_is_ruled_out() {
    let place = |arm| ["http", "64 connections", arm];
    let open = ResultRow {
        ci_low: Some(0.18),
        ci_high: Some(1.8),
        ..row(place("uring"), 4.6, 0.57, Verdict::Inconclusive)
    };
    let rows = vec![
        row(place("epoll"), 8.0, 1.0, Verdict::Baseline),
        row(place("select"), 16.0, 2.0, Verdict::Slower),
        open,
    ];
    let (choice, reason) = answers_to(JOB, rows).remove(0);
    assert_eq!(choice, "epoll");
    assert!(reason.ends_with("; undecided: uring"), "{reason}");
}

#[test]
fn the_question_of_a_document_is_answered_in_the_headline() {
    let job = "[global]\narms = [\"epoll-et\"]\n[[job]]\nname = \"pipe-unix\"\n\
               experiment = \"streams\"\ntransport = [\"pipe\", \"unix\"]\nready = \"free\"\n\
               cpus = \"free\"\n";
    let mut parsed = of_text(job);
    parsed.name = "published-epoll-bench".into();
    let plan = Plan::make(parsed, &PLAIN_MACHINE);
    let mut record = Record::empty();
    record.job.name = "published-epoll-bench".into();
    record.results = (plan.points.iter().zip([2_000_000.0, 1_100_000.0]))
        .map(|(planned, value)| ResultRow {
            experiment: "pipe-unix".into(),
            axes: planned.point.axes.texts(),
            point: planned.point.label.clone(),
            value: Some(value),
            ratio: Some(1.0),
            ..row_for_tests("epoll-et", Verdict::Baseline)
        })
        .collect();
    let answers = answer::of(&plan, &record);
    let said: Vec<&str> = answers.iter().map(|answer| answer.choice.as_str()).collect();
    assert_eq!(said, ["1 of 2 published series comes back"], "and no row of one arm alone");
    assert_eq!(answers[0].load, "Beside epoll_bench, 6 November 2006");
    assert!(answers[0].reason.starts_with("direction and shape agree in 1"), "{answers:?}");
}

fn block(block: u32, disturbances: &[&str]) -> Block {
    Block {
        block,
        repeats: None,
        start_s: 0.0,
        duration_s: 10.0,
        steal: Reading::Value(0.0),
        foreign_cpu: Reading::Value(0.0),
        pressure: Reading::Value(0.0),
        disturbances: disturbances.iter().map(|&text| text.to_owned()).collect(),
    }
}

pub(super) fn run(block: u32, arm: &str, findings: &[(&str, &str)]) -> Run {
    let findings = findings.iter().map(|(kind, text)| ((*kind).into(), (*text).into()));
    let measured = Measurement {
        value: 8.0,
        generator: Some("pollux".to_owned()),
        findings: findings.collect(),
        window_s: 1.0,
        events: Some(1000),
        cpu_ns: Reading::Value(8_000_000),
        process_cpu_ns: Reading::Value(1),
        ..Measurement::default()
    };
    Run {
        block,
        position: 0,
        experiment: "http".to_owned(),
        point: "64 connections".to_owned(),
        arm: arm.to_owned(),
        outcome: Outcome::Measured(measured),
    }
}

#[test]
fn a_row_tells_what_the_generator_found_of_the_server_and_not_of_itself() {
    let stall = ("delayed-ack", "answers seem to wait for a delayed acknowledgement");
    let bound = ("generator-bound", "the generator is the bottleneck");
    let mut record = Record::empty();
    record.runs = vec![
        run(0, "epoll", &[bound]),
        run(1, "epoll", &[]),
        run(0, "uring", &[bound, stall]),
        run(1, "uring", &[bound]),
    ];
    judge(&plan(), &mut record);
    let notes = |arm: &str| {
        let is_it = |row: &&ResultRow| row.arm == arm && row.point == "64 connections";
        record.results.iter().find(is_it).expect("a row").notes.join("; ")
    };
    assert!(notes("uring").contains(&format!("in 1 of 2 runs: {}", stall.1)), "{}", notes("uring"));
    assert!(!notes("uring").contains(bound.1) && !notes("epoll").contains(bound.1));
}

/// One arm in one set, whose rounds gave this ratio to the baseline; none for the baseline.
fn in_set(set: u32, arm: &str, ratio: Option<f64>) -> Run {
    let mut run = run(set, arm, &[]);
    if let Outcome::Measured(measured) = &mut run.outcome {
        // Values drift from set to set by more than any difference: only the ratio may count.
        measured.value = 8.0 + f64::from(set);
        measured.turns = Some(Turns {
            rounds: 80,
            turn_us: 5000,
            lead_in_us: 1250,
            log_ratio: ratio.map(f64::ln),
            round_sd: ratio.map(|_| 0.06),
            warm_up: None,
            is_kept: false,
            thirds: None,
        });
    }
    run
}

/// Eight sets, half of them disturbed, in which the arms cost these ratios give or take half a
/// percent.
fn turned(ratios: &[(&str, f64)]) -> Record {
    let mut record = Record::empty();
    for set in 0..8 {
        let give = 0.005 * f64::from(set % 2 * 2) - 0.005;
        record.blocks.push(block(set, if set < 4 { &["other processes"] } else { &[] }));
        record.runs.push(in_set(set, "epoll", None));
        record.runs.extend(ratios.iter().map(|(arm, ratio)| in_set(set, arm, Some(ratio + give))));
    }
    judge(&plan(), &mut record);
    record
}

fn judged<'a>(record: &'a Record, arm: &str) -> &'a ResultRow {
    let is_it = |row: &&ResultRow| row.arm == arm && row.point == "64 connections";
    record.results.iter().find(is_it).expect("a row")
}

#[test]
fn arms_in_turns_are_judged_over_all_sets_by_the_ratios_of_their_rounds() {
    let record = turned(&[("select", 1.002), ("uring", 0.96), ("A/A", 1.001)]);
    let uring = judged(&record, "uring");
    assert_eq!((uring.verdict, uring.blocks, uring.no_difference), (Verdict::Faster, 8, 0.02));
    assert!((uring.ratio.expect("a ratio") - 0.96).abs() < 1e-4, "{uring:?}");
    assert_eq!(uring.method, "8 sets × 80 rounds of 5 ms, Student t over sets");
    let turns = uring.turns.expect("turns");
    assert_eq!((turns.rounds, turns.turn_us), (80, 5000));
    assert_eq!(judged(&record, "select").verdict, Verdict::Equivalent);
    assert_eq!(judged(&record, "epoll").verdict, Verdict::Baseline);
    assert_eq!(judged(&record, "A/A").verdict, Verdict::NoiseLevel);
    let answer = record.answers.first().expect("an answer");
    assert_eq!(answer.choice, "uring");
    assert!(answer.reason.starts_with("uring: 4.0 % less"), "{}", answer.reason);
}

/// So many sets of rounds whose ratios differ from set to set by this, give or take.
fn few_sets(sets: u32, spread: f64, ratios: &[(&str, f64)]) -> Record {
    let mut record = Record::empty();
    for set in 0..sets {
        let times = (spread * (f64::from(set) - f64::from(sets - 1) / 2.0)).exp();
        record.blocks.push(block(set, &[]));
        record.runs.push(in_set(set, "epoll", None));
        record.runs.extend(ratios.iter().map(|(arm, ratio)| in_set(set, arm, Some(ratio * times))));
    }
    judge(&plan(), &mut record);
    record
}

#[test]
fn nearly_two_thousand_times_is_decided_with_three_sets() {
    let record = few_sets(3, 0.2, &[("select", 1937.0), ("uring", 0.96), ("A/A", 1.0)]);
    let row = judged(&record, "select");
    assert_eq!((row.verdict, row.blocks), (Verdict::Slower, 3));
    let times = row.at_least().expect("a bound");
    assert!((500.0..1937.0).contains(&times), "{times}");
    let uring = judged(&record, "uring");
    assert_eq!((uring.verdict, uring.at_least()), (Verdict::Inconclusive, None));
    let answer = &record.answers[0];
    assert_eq!(answer.choice, "epoll");
    assert!(answer.reason.contains("select: at least "), "{}", answer.reason);
    assert!(
        answer.reason.contains(" times the server CPU per request of epoll (1937 times in 3 sets)")
    );
    assert!(answer.reason.ends_with("; undecided: uring"), "{}", answer.reason);
}

#[test]
fn a_fifth_is_decided_with_few_sets_and_one_set_decides_nothing() {
    let row = |sets, arm: &str| {
        let record = few_sets(sets, 0.02, &[("select", 0.1), ("uring", 1.3), ("A/A", 1.0)]);
        (judged(&record, arm).verdict, judged(&record, arm).at_least().is_some())
    };
    assert_eq!(row(2, "select"), (Verdict::Faster, true));
    assert_eq!(row(4, "uring"), (Verdict::Inconclusive, false), "not large");
    assert_eq!(row(1, "select"), (Verdict::Inconclusive, false));
    assert_eq!(row(8, "select"), (Verdict::Faster, false), "its interval says more");
}

#[test]
fn few_sets_that_lie_close_together_still_bound_a_card() {
    let record = few_sets(3, 0.004, &[("select", 1.02), ("uring", 0.97), ("A/A", 1.0)]);
    let answer = &record.answers[0];
    assert_eq!(answer.choice, "probably uring", "{answer:?}");
    let record = few_sets(3, 0.05, &[("select", 1.02), ("uring", 0.99), ("A/A", 1.0)]);
    let answer = &record.answers[0];
    assert!(answer.choice.starts_with("no difference larger than "), "{answer:?}");
}

/// What was counted of an arm on a server without and with dead connections.
fn counting(point: &str, arm: &str, open: u64) -> CountingRun {
    let kernel = [("system_calls", 3000), ("open_descriptors", open)];
    CountingRun {
        experiment: "dead".to_owned(),
        point: point.to_owned(),
        arm: arm.to_owned(),
        events: 1000,
        counters: BTreeMap::new(),
        events_per_wait_histogram: Vec::new(),
        kernel: kernel.map(|(name, count)| (name.to_owned(), Reading::Value(count))).into(),
    }
}

#[test]
fn select_is_explained_by_the_descriptors_that_each_wait_hands_over() {
    let mut record = Record::empty();
    let none = "100 connections";
    let some = "100 connections, 5000 dead";
    for set in 0..8 {
        record.blocks.push(block(set, &[]));
        for (point, of_select, open) in [(none, 1.25, 110), (some, 6.0, 5110)] {
            let give = 0.005 * f64::from(set % 2 * 2) - 0.005;
            let ratios = [("epoll", None), ("select", Some(of_select)), ("A/A", Some(1.0))];
            for (arm, ratio) in ratios {
                let mut run = in_set(0, arm, ratio.map(|ratio| ratio + give));
                (run.experiment, run.point, run.block) = ("dead".to_owned(), point.to_owned(), set);
                record.runs.push(run);
            }
            if set == 0 {
                record.counting.extend(["epoll", "select"].map(|arm| counting(point, arm, open)));
            }
        }
    }
    judge(&plan(), &mut record);
    let row = |point: &str, arm: &str| {
        let is_it = |row: &&ResultRow| row.point == point && row.arm == arm;
        record.results.iter().find(is_it).expect("a row")
    };
    // The baseline costs 8 µs at both: 10 and 48 µs, so 38 µs for 5,000 descriptors.
    let note = "O(n), each costs 7.60 ns per request, by 10.0 µs with 110 and 48.0 µs with 5110 (epoll: 0 ns \
                per descriptor)";
    for (point, open) in [(none, 110), (some, 5110)] {
        let select = row(point, "select");
        assert_eq!(select.verdict, Verdict::Slower);
        let expected = format!("hands {open} descriptors to the kernel at each wait: {note}");
        assert_eq!(select.notes, [expected]);
    }
    let why = record.why_at(["dead", some, "epoll"]).expect("counted");
    assert_eq!(why.descriptors_per_wait, Reading::Value(0.0));
    let words = &record.why_at(["dead", some, "select"]).expect("counted").sentence;
    let handed = "5110 descriptors handed to the kernel at each wait, the baseline next to none";
    assert_eq!(words, handed);
}

#[test]
fn what_is_known_and_not_counted_is_marked_and_the_rest_is_unexplained() {
    let job = JOB.replace("\"select\"", "\"uring-poll\", \"epoll-et\"");
    let plan = Plan::make(of_text(&job), &PLAIN_MACHINE);
    let mut record = Record::empty();
    for set in 0..8 {
        record.blocks.push(block(set, &[]));
        let give = 0.005 * f64::from(set % 2 * 2) - 0.005;
        record.runs.push(in_set(set, "epoll", None));
        for (arm, ratio) in [("uring-poll", 0.8), ("epoll-et", 1.3), ("A/A", 1.0)] {
            record.runs.push(in_set(set, arm, Some(ratio + give)));
        }
    }
    for arm in ["epoll", "uring-poll", "epoll-et"] {
        let counted = counting("64 connections", arm, 70);
        record.counting.push(CountingRun { experiment: "http".to_owned(), ..counted });
    }
    judge(&plan, &mut record);
    let known = "known, not counted here: completions are read from shared memory; ";
    assert!(judged(&record, "uring-poll").notes[0].starts_with(known), "{record:?}");
    assert_eq!(judged(&record, "epoll-et").notes, ["unexplained: no count moved by 10 %"]);
}

#[test]
fn a_card_begins_with_the_arm_that_it_names() {
    use Verdict::{Baseline, Faster, Inconclusive};
    let place = |arm| ["http", "64 connections", arm];
    let open = ResultRow {
        ci_low: Some(0.5),
        ci_high: Some(1.1),
        ..row(place("uring"), 5.6, 0.7, Inconclusive)
    };
    let rows =
        vec![row(place("epoll"), 8.0, 1.0, Baseline), row(place("select"), 7.2, 0.9, Faster), open];
    let (choice, reason) = answers_to(JOB, rows).remove(0);
    assert_eq!(choice, "select");
    assert!(reason.starts_with("select: 10 % less server CPU"), "{reason}");
}

#[test]
fn trust_in_turns_rests_on_the_control_and_not_on_quiet_sets() {
    let record = turned(&[("uring", 1.002), ("A/A", 1.001)]);
    let trust = &record.trust;
    assert_eq!((trust.badge, trust.blocks_disturbed), (Badge::Controlled, 4));
    assert_eq!(trust.noise, None, "no band of noise");
    let turns = trust.turns.as_ref().expect("turns");
    assert_eq!((turns.rows, turns.rows_of_whole_runs, turns.sets), (1, 0, [8, 8]));
    assert_eq!((turns.controls, turns.controls_hold, turns.controls_differ), (1, 1, 0));
    assert!(turns.half_width_max.is_some_and(|half| (0.003..0.006).contains(&half)), "{turns:?}");
    assert_eq!(record.answers[0].choice, "equal within 2 %");
}

#[test]
fn the_costs_of_a_point_stand_in_the_order_of_its_ratios() {
    // As a set goes by, all costs drift apart by far more than the arms do; the dearer arm has its sets in cheap times.
    let mut record = turned(&[("select", 1.06), ("uring", 0.96), ("A/A", 1.001)]);
    for (at, run) in record.runs.iter_mut().enumerate() {
        if let Outcome::Measured(measured) = &mut run.outcome {
            measured.value = if run.arm == "select" { 3.0 } else { 8.0 + at as f64 / 10.0 };
        }
    }
    judge(&plan(), &mut record);
    let baseline = judged(&record, "epoll").value.expect("measured");
    for arm in ["select", "uring", "A/A"] {
        let row = judged(&record, arm);
        let value = row.value.expect("measured");
        let ratio = row.ratio.expect("judged");
        assert!((value / baseline - ratio).abs() < 1e-9, "{arm}: {value} of {baseline}, {ratio}");
        assert_eq!(row.value_half_width, None, "that of the ratio says more");
    }
    assert!(judged(&record, "epoll").value_half_width.is_some());
}

#[test]
fn three_percent_is_not_a_verdict_where_the_same_program_twice_is_further_apart() {
    let mut record = turned(&[("select", 1.033), ("uring", 0.7), ("A/A", 0.99)]);
    for run in record.runs.iter_mut().filter(|run| run.arm == "A/A") {
        if let Outcome::Measured(Measurement { turns: Some(turns), .. }) = &mut run.outcome {
            // 0.975 [0.91, 1.04].
            let apart = 0.07 * (f64::from(run.block % 2) - 0.5) * 2.0;
            turns.log_ratio = Some(0.975_f64.ln() + apart);
        }
    }
    judge(&plan(), &mut record);
    let select = judged(&record, "select");
    assert_eq!(select.verdict, Verdict::Inconclusive, "{select:?}");
    assert!(select.more_blocks.is_some_and(|sets| sets >= 10), "{select:?}");
    // The control reaches from 0.91.
    assert!(select.notes[0].starts_with("the same program twice is known to ± 9"), "{select:?}");
    assert_eq!(
        judged(&record, "uring").verdict,
        Verdict::Faster,
        "beyond what the control leaves open"
    );
}

#[test]
fn equal_and_small_are_not_verdicts_beside_a_wide_control() {
    let narrow = turned(&[("select", 1.012), ("uring", 1.001), ("A/A", 1.0)]);
    let said =
        |arm: &str| (judged(&narrow, arm).verdict, judged(&narrow, arm).is_small_difference());
    assert_eq!((said("select"), said("uring").0), ((Verdict::Slower, true), Verdict::Equivalent));
    let mut wide = narrow.clone();
    for run in wide.runs.iter_mut().filter(|run| run.arm == "A/A") {
        if let Outcome::Measured(Measurement { turns: Some(turns), .. }) = &mut run.outcome {
            turns.log_ratio = Some(0.04 * (f64::from(run.block % 2) - 0.5));
        }
    }
    judge(&plan(), &mut wide);
    // ± 1.8 %: what is within 2 % is equal, and 1.2 % more is not told from nothing.
    assert_eq!(judged(&wide, "uring").verdict, Verdict::Equivalent);
    assert_eq!(judged(&wide, "select").verdict, Verdict::Equivalent);
}

#[test]
fn a_control_that_differs_is_reported_at_every_row_of_its_point() {
    let record = turned(&[("uring", 0.96), ("select", 1.025), ("A/A", 1.03)]);
    assert_eq!(record.trust.badge, Badge::Biased);
    assert_eq!(record.trust.turns.as_ref().expect("turns").controls_differ, 1);
    let note = "the same program twice differs at this point".to_owned();
    assert!(judged(&record, "uring").notes.contains(&note));
    assert_eq!(judged(&record, "uring").verdict, Verdict::Faster, "beyond the control");
    // The control's interval is narrow, and reaches farther than this.
    assert_eq!(judged(&record, "select").verdict, Verdict::Inconclusive);
    assert_eq!(judged(&record, "select").more_blocks, None, "no number of sets moves the control");
}

#[test]
fn an_interval_that_begins_within_what_the_control_leaves_open_has_no_verdict() {
    let apart = |record: &mut Record, arm: &str, by: f64| {
        for run in record.runs.iter_mut().filter(|run| run.arm == arm) {
            if let Outcome::Measured(Measurement { turns: Some(turns), .. }) = &mut run.outcome {
                let middle = turns.log_ratio.expect("a ratio");
                turns.log_ratio = Some(middle + by * (f64::from(run.block % 2) - 0.5));
            }
        }
    };
    // About ± 2.9 % beside ± 2.2 %: the estimate lies beyond the control, the interval does not.
    let mut record = turned(&[("select", 1.04), ("A/A", 1.0)]);
    apart(&mut record, "select", 0.055);
    judge(&plan(), &mut record);
    assert_eq!(judged(&record, "select").verdict, Verdict::Slower);
    apart(&mut record, "A/A", 0.04);
    judge(&plan(), &mut record);
    let select = judged(&record, "select");
    assert_eq!(select.verdict, Verdict::Inconclusive, "{select:?}");
    assert!(select.more_blocks.is_some_and(|sets| sets < 20), "{select:?}");
}

#[test]
fn whole_runs_beside_turns_keep_their_rules() {
    let mut record = Record::empty();
    let other = "64 connections, no keepalive";
    for set in 0..8 {
        record.blocks.push(block(set, &[]));
        record.runs.push(in_set(set, "epoll", None));
        record.runs.push(in_set(set, "uring", Some(1.0 + 0.001 * f64::from(set))));
        for (arm, value) in [("epoll", 8.0), ("uring", 8.1), ("A/A", 8.4)] {
            let mut whole = run(set, arm, &[]);
            whole.point = other.to_owned();
            if let Outcome::Measured(measured) = &mut whole.outcome {
                measured.value = value + 0.01 * f64::from(set % 2);
            }
            record.runs.push(whole);
        }
    }
    judge(&plan(), &mut record);
    let whole = |arm: &str| {
        let is_it = |row: &&ResultRow| row.arm == arm && row.point == other;
        record.results.iter().find(is_it).expect("a row")
    };
    assert_eq!(whole("uring").turns, None);
    assert!(whole("uring").no_difference > 0.04, "the noise of the A/A arm");
    assert_eq!(judged(&record, "uring").no_difference, 0.02);
    let turns = record.trust.turns.as_ref().expect("turns");
    assert_eq!((turns.rows, turns.rows_of_whole_runs), (1, 1));
    assert_eq!(record.trust.badge, Badge::Quiet, "of the whole runs");
}
