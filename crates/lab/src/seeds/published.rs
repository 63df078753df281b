//! The figures of the documents beside what follows from their raw counts: a slip of a digit in a
//! table would otherwise judge our own runs wrongly for ever.

use super::{Figure, SEEDS, Seed, Series, one, two, zero};

/// Requests of each run of ab.
const REQUESTS: f64 = 100_000.0;

fn series(seed: &'static Seed, name: &str) -> &'static Series {
    seed.series.iter().find(|series| series.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn published(seed: &'static Seed, name: &str) -> Vec<f64> {
    series(seed, name).places.iter().map(|place| place.published.expect("a figure")).collect()
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
    let by_transport = published(&zero::SEED, "events/s by transport, epoll");
    for (figure, seconds) in by_transport.iter().zip([pipes, unix, tcp]) {
        assert!((figure - mean(seconds)).abs() < 60.0, "{figure} is not {}", mean(seconds));
    }
    let on_tcp = published(&zero::SEED, "events/s on TCP with and without epoll");
    assert_eq!(on_tcp[0], by_transport[2]);
    assert!((on_tcp[1] - mean(no_epoll)).abs() < 60.0, "{} {}", on_tcp[1], mean(no_epoll));
    // The last lines of its running means.
    let waits = published(&zero::SEED, "events for each wait by transport");
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
        let rates = published(&two::SEED, &name("requests/s"));
        let times_ms = published(&two::SEED, &name("time per request"));
        for ((connections, rate), ms) in
            [100.0, 300.0, 500.0, 800.0, 1000.0].into_iter().zip(rates).zip(times_ms)
        {
            let by_rate_ms = connections / rate * 1e3;
            // ab cuts to whole milliseconds or rounds, which the document does not say.
            assert!((by_rate_ms - ms).abs() < 1.0, "{}: {ms} at {connections}", name("time"));
        }
        let last = published(&two::SEED, &format!("requests/s with 1,000 connections, {kind}"));
        let rates = published(&two::SEED, &name("requests/s"));
        assert!(last.contains(&rates[4]), "{kind}, {mechanism}");
    }
}

#[test]
fn counts_per_request_are_those_of_perf_stat() {
    // Of epoll and io_uring, kept and closed: task clock in ms, then counts of the whole run.
    let raw: [(&str, f64, [[f64; 2]; 2]); 7] = [
        ("task clock", 1e3, [[2_318.17, 1_533.19], [3_658.49, 2_931.98]]),
        ("context switches", 1.0, [[876.0, 1_593.0], [774.0, 627.0]]),
        ("page faults", 1.0, [[101_220.0, 1_391.0], [102_289.0, 1_134.0]]),
        ("cycles", 1.0, [[8_046_643_190.0, 5_316_634_475.0], [12_713_996_125.0, 10_222_300_431.0]]),
        (
            "instructions",
            1.0,
            [[6_151_488_232.0, 5_397_118_059.0], [10_128_855_709.0, 9_501_551_090.0]],
        ),
        ("branches", 1.0, [[1_174_246_810.0, 1_031_652_823.0], [1_923_276_791.0, 1_792_242_173.0]]),
        ("branch misses", 1.0, [[14_519_502.0, 11_219_837.0], [25_670_694.0, 21_889_467.0]]),
    ];
    for (what, factor, by_kind) in raw {
        for (kind, counts) in ["kept", "closed"].into_iter().zip(by_kind) {
            let name = format!("{what} per request, 1,000 connections, {kind}");
            let each = counts.map(|count| count * factor / REQUESTS);
            assert_rounded(&name, &published(&two::SEED, &name), &each, 3);
        }
    }
}

#[test]
fn requests_per_second_of_2020_are_those_of_its_two_tables() {
    let rates = |name: &str| published(&two::SEED, &format!("requests/s over connections, {name}"));
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
fn the_page_of_2002_has_no_figures_and_pipetest_no_level_curve() {
    for series in one::SEED.series {
        assert!(series.claim.is_some(), "{}", series.name);
        assert!(series.places.iter().all(|place| place.published.is_none()), "{}", series.name);
        // Of AIO poll it has pipetest only, and of pipes it says which mechanism does better.
        let has = |name: &str| series.places.iter().any(|place| place.name == name);
        let is_rate_of_pipes = matches!(series.figure, Figure::Value);
        assert!(!has("AIO poll") || is_rate_of_pipes, "{}", series.name);
        assert!(!is_rate_of_pipes || has("sys_epoll"), "{}", series.name);
    }
    assert!(SEEDS.iter().all(|seed| !seed.series.is_empty()));
}
