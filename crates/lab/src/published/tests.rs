//! The figures of the documents beside what follows from their raw counts: a slip of a digit in a
//! table would otherwise judge our own runs wrongly for ever. And one document beside a record.

use pollux_stats::agree::Agreement;

use super::{Document, FILES, Figure, beside};
use crate::experiments;
use crate::judge::row_for_tests;
use crate::record::{LeftOut, Record, ResultRow, Verdict};

fn document(name: &str) -> &'static Document {
    Document::all().iter().find(|one| one.name == name).expect("a document")
}

fn published(result: &str, name: &str) -> Vec<f64> {
    let series = document(result).series.iter().find(|series| series.name == name);
    let series = series.unwrap_or_else(|| panic!("no {name}"));
    series.points.iter().map(|place| place.published.expect("a figure")).collect()
}

/// Whether every figure is the raw one but for its rounding to so many digits.
fn assert_rounded(name: &str, figures: &[f64], raw: &[f64], digits: i32) {
    assert_eq!(figures.len(), raw.len(), "{name}");
    for (figure, raw) in figures.iter().zip(raw) {
        let unit = 10_f64.powi(raw.log10().floor() as i32 - (digits - 1));
        assert!((figure - raw).abs() <= unit * 0.500_1, "{name}: {figure} is not {raw}");
    }
}

#[test]
fn the_rates_of_epoll_bench_are_the_means_of_its_seconds() {
    // Events per second, one for each of the fifteen seconds.
    let pipes = [
        255_320, 254_054, 249_868, 181_010, 233_368, 284_682, 292_485, 279_194, 267_917, 291_450,
        266_837, 272_762, 253_756, 251_250, 260_706,
    ];
    let unix = [
        264_827, 259_241, 262_266, 262_730, 253_212, 255_219, 166_655, 111_348, 104_812, 95_897,
        97_096, 113_808, 102_509, 100_318, 102_893,
    ];
    let tcp = [
        69_210, 59_436, 60_722, 60_583, 58_192, 54_291, 47_978, 59_009, 58_248, 58_708, 58_613,
        58_490, 59_108, 59_636, 59_355,
    ];
    let no_epoll = [
        79_939, 78_468, 73_153, 73_668, 73_667, 74_106, 73_442, 74_220, 74_367, 64_402, 53_555,
        46_000, 67_052, 68_460, 67_629,
    ];
    let mean = |seconds: [u32; 15]| f64::from(seconds.iter().sum::<u32>()) / 15.0;
    let by_transport = published("epoll-bench", "events/s by transport, epoll");
    for (figure, seconds) in by_transport.iter().zip([pipes, unix, tcp]) {
        assert!((figure - mean(seconds)).abs() < 60.0, "{figure} is not {}", mean(seconds));
    }
    let on_tcp = published("epoll-bench", "events/s on TCP with and without epoll");
    assert_eq!(on_tcp[0], by_transport[2]);
    assert!((on_tcp[1] - mean(no_epoll)).abs() < 60.0, "{} {}", on_tcp[1], mean(no_epoll));
    // The last lines of its running means.
    let waits = published("epoll-bench", "events for each wait by transport");
    assert_rounded("pipes", &waits[..1], &[265.079], 4);
    assert_rounded("AF_UNIX, TCP", &waits[1..], &[7.788_41, 36.291_4], 3);
    // What a remark says of the AF_UNIX run: six seconds fast, the rest slow.
    let mean_of = |part: &[u32]| f64::from(part.iter().sum::<u32>()) / part.len() as f64;
    assert_rounded("fast", &[260_000.0], &[mean_of(&unix[..6])], 2);
    assert_rounded("slow", &[100_000.0], &[mean_of(&unix[7..])], 1);
}

#[test]
fn time_per_request_is_connections_by_rate_as_ab_defines_it() {
    for (kind, mechanism) in
        [("kept", "epoll"), ("kept", "io_uring"), ("closed", "epoll"), ("closed", "io_uring")]
    {
        let name = |what| format!("{what} over connections, {kind}, {mechanism}");
        let rates = published("sehttpd", &name("requests/s"));
        let times_ms = published("sehttpd", &name("time per request"));
        for ((connections, rate), ms) in
            [100.0, 300.0, 500.0, 800.0, 1000.0].into_iter().zip(rates).zip(times_ms)
        {
            let by_rate_ms = connections / rate * 1e3;
            // ab cuts to whole milliseconds or rounds, which the document does not say.
            assert!((by_rate_ms - ms).abs() < 1.0, "{}: {ms} at {connections}", name("time"));
        }
        let last = published("sehttpd", &format!("requests/s with 1,000 connections, {kind}"));
        let rates = published("sehttpd", &name("requests/s"));
        assert!(last.contains(&rates[4]), "{kind}, {mechanism}");
    }
}

#[test]
fn requests_per_second_of_2020_are_those_of_its_two_tables() {
    let rates = |name: &str| published("sehttpd", &format!("requests/s over connections, {name}"));
    // A checksum for each row of the tables, io_uring and epoll added, so that a row moved is seen.
    let sums =
        |a: Vec<f64>, b: Vec<f64>| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
    assert_eq!(
        sums(rates("kept, io_uring"), rates("kept, epoll")),
        [4_291.0, 12_915.0, 21_700.0, 34_197.0, 42_904.0]
    );
    assert_eq!(
        sums(rates("closed, io_uring"), rates("closed, epoll")),
        [102_789.0, 97_900.0, 97_628.0, 96_390.0, 94_664.0]
    );
    assert_eq!(rates("kept, io_uring")[0], 2_266.0);
    assert_eq!(rates("closed, io_uring")[0], 58_642.0);
}

#[test]
fn counts_per_request_are_those_of_perf_stat() {
    let each =
        |what: &str| published("sehttpd", &format!("{what} per request, 1,000 connections, kept"));
    assert_rounded("task clock", &[23.18, 15.33], &each("task clock"), 4);
    assert_rounded("page faults", &[1.012, 0.01391], &each("page faults"), 4);
    assert_rounded("cycles", &[80_470.0, 53_170.0], &each("cycles"), 4);
}

#[test]
fn the_test_of_2015_is_a_million_calls_over_the_time_of_its_client() {
    let real_s = published("epollexclusive", "real time of 1,000,000 calls, service pool");
    let rates = published("epollexclusive", "calls/s with 250 servers, service pool");
    for (rate, real_s) in rates.iter().zip(&real_s) {
        assert_rounded("calls/s", &[*rate], &[1e6 / real_s], 4);
    }
    assert!((real_s[0] / real_s[1] - 34.5).abs() < 0.05);
}

#[test]
fn the_page_of_2002_has_no_figures_and_pipetest_no_level_curve() {
    for series in &document("sys-epoll").series {
        assert!(series.claim.is_some(), "{}", series.name);
        assert!(series.points.iter().all(|place| place.published.is_none()), "{}", series.name);
        // Of AIO poll it has pipetest only, and of pipes it says which mechanism does better.
        let has = |name: &str| series.points.iter().any(|place| place.name == name);
        let is_rate_of_pipes = matches!(series.figure, Figure::Value);
        assert!(!has("AIO poll") || is_rate_of_pipes, "{}", series.name);
        assert!(!is_rate_of_pipes || has("sys_epoll"), "{}", series.name);
    }
}

#[test]
fn ours_stands_beside_theirs_and_a_gap_has_its_reason() {
    let mut record = Record::empty();
    record.job.name = "published-sys-epoll".into();
    let mut row = |pipes: &str, arm: &str, value| {
        record.results.push(ResultRow {
            axes: [("pipes", pipes), ("rule", "hopping")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            value: Some(value),
            unit: "passes/s".into(),
            ..row_for_tests(arm, Verdict::Baseline)
        });
    };
    row("8000", "epoll-et", 199_000.0);
    row("8000", "poll", 9_000.0);
    row("16000", "epoll-et", 198_000.0);
    record.left_out.push(LeftOut {
        experiment: "pipes".into(),
        point: "16000 pipes, hopping".into(),
        arm: "aio".into(),
        reason: "needs 40000 slots".into(),
    });
    let beside = beside(&record).expect("a job of the document");
    let reasons: Vec<_> =
        beside.series.iter().flat_map(|one| &one.ours).filter_map(|o| o.clone().err()).collect();
    assert!(reasons.contains(&"not part of this run".to_owned()));
    assert!(reasons.contains(&"needs 40000 slots".to_owned()), "{reasons:?}");
    let pair = beside
        .series
        .iter()
        .find(|one| one.series.name.contains("8,000 pipes") && one.series.points[0].name == "poll");
    assert!(pair.is_some_and(|pair| pair.judgement.agreement == Agreement::Agrees));
    assert_eq!(beside.tally().iter().sum::<usize>(), beside.series.len());
}
#[test]
fn other_jobs_have_no_document() {
    assert!(beside(&Record::empty()).is_none());
}

#[test]
fn a_cost_does_not_stand_beside_a_rate() {
    let mut record = Record::empty();
    record.job.name = "published-sys-epoll".into();
    record.results = vec![ResultRow {
        axes: [("pipes", "8000"), ("rule", "hopping")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        unit: "ns/pass".into(),
        ..row_for_tests("epoll-et", Verdict::Baseline)
    }];
    let beside = beside(&record).expect("a job of the document");
    assert_eq!(beside.series[0].ours[1], Err("measured in ns/pass here".to_owned()));
}

#[test]
fn every_place_is_one_that_its_experiment_can_have() {
    for text in FILES {
        let document = Document::read(text).unwrap_or_else(|mistake| panic!("{mistake}"));
        assert!(!document.series.is_empty());
        for job in &document.jobs {
            assert!(crate::job::builtin(job).is_some(), "{job}");
        }
        for series in &document.series {
            let experiment = experiments::by_name(&series.experiment);
            let experiment = experiment.unwrap_or_else(|| panic!("{}", series.name));
            assert!(series.points.len() >= 2, "{}", series.name);
            for (name, value) in series.points.iter().flat_map(|place| &place.axes) {
                let axis = experiment.axes.iter().find(|axis| axis.name == *name);
                let axis = axis.unwrap_or_else(|| panic!("{}: {name}", series.name));
                assert!(axis.kind().read(value).is_ok(), "{}", series.name);
            }
        }
    }
}

#[test]
fn a_figure_too_few_is_a_mistake() {
    let text = FILES[0].replace("[259_643, 170_188, 58_771]", "[259_643, 170_188]");
    let mistake = Document::read(&text).expect_err("two figures for three names");
    assert_eq!(mistake, "events/s by transport, epoll: not one for each name");
}
