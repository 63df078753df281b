//! Times in a high dynamic range histogram: recorded by the threads of a run, read by reports.
//!
//! Values are nanoseconds with three significant digits, up to [`LONGEST_NS`]; what is longer
//! counts as that. Those of single seconds have two, and no more counters than their longest value needs; once a second is
//! over its counters are packed, as a long run has many seconds.

use std::borrow::Cow;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    Deserializer as HistogramReader, Serializer as _, V2DeflateSerializer, V2Serializer,
};
use pollux_stats::{LATENCY_DIGITS, LONGEST_NS};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The quantiles that results show, in parts of one.
pub const QUANTILES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// The quantiles that tables show by default.
pub const SHOWN: [f64; 5] = [0.5, 0.75, 0.9, 0.99, 0.999];

/// Bytes of a histogram in a result at most, in base64.
const PACKED_BYTES_MAX: usize = 4 << 20;
/// Of a packed histogram: its mark, and how long the rest is.
const PACKED_HEAD_BYTES: usize = 8;
/// What one is before it is deflated, at most: each count takes nine bytes.
const PLAIN_BYTES_MAX: u64 = 1 << 20;
/// Of that: mark, length of the counts, offset, digits, lowest and highest value, ratio.
const HEAD_BYTES: usize = 40;
/// The highest value that a histogram may reach to: one that grew to [`LONGEST_NS`] may have some more.
const HIGHEST_MAX: u64 = 4 * LONGEST_NS;
/// Significant digits of those that long runs have many of.
const COARSE_DIGITS: u8 = 2;

/// How a time was distributed.
///
/// Times that were cut off, or that belong to no answer that counts, are in none of its figures
/// but the longest: see [`Distribution::note_longest`].
#[derive(Clone, Debug)]
pub struct Distribution {
    counted: Counted,
    /// Zero when none was noted.
    noted_ns: u64,
    /// Quantiles that are written beside [`QUANTILES`].
    further: Vec<f64>,
}

/// What was counted.
#[derive(Clone, Debug)]
enum Counted {
    /// A counter for each step of values.
    Counters(Histogram<u64>),
    /// The same, in some hundred bytes.
    Packed { count: u64, bytes: Box<[u8]> },
}

impl Counted {
    fn counters(&self) -> Cow<'_, Histogram<u64>> {
        match self {
            Self::Counters(counters) => Cow::Borrowed(counters),
            Self::Packed { bytes, .. } => Cow::Owned(unpacked_counters(bytes)),
        }
    }

    #[inline]
    fn counters_mut(&mut self) -> &mut Histogram<u64> {
        if let Self::Packed { bytes, .. } = self {
            *self = Self::Counters(unpacked_counters(bytes));
        }
        match self {
            Self::Counters(counters) => counters,
            Self::Packed { .. } => unreachable!("it was just unpacked"),
        }
    }
}

#[cold]
fn unpacked_counters(bytes: &[u8]) -> Histogram<u64> {
    let packed: Histogram<u64> =
        HistogramReader::new().deserialize(&mut &*bytes).expect("this process has packed it");
    let mut counters = coarse_counters();
    counters.add(packed).expect("it grows as needed");
    counters
}

fn coarse_counters() -> Histogram<u64> {
    Histogram::new(COARSE_DIGITS).expect("so many digits are allowed")
}

impl Distribution {
    /// One without values.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, LATENCY_DIGITS);
        let histogram = histogram.expect("the bounds are those of a histogram");
        Self { counted: Counted::Counters(histogram), noted_ns: 0, further: Vec::new() }
    }

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        let recorded = self.counted.counters_mut().record(nanoseconds.min(LONGEST_NS));
        recorded.expect("the bounds contain the longest, or grow to it");
    }

    /// Takes a time into the longest alone, as the least that a request has waited.
    pub fn note_longest(&mut self, nanoseconds: u64) {
        self.noted_ns = self.noted_ns.max(nanoseconds.min(LONGEST_NS));
    }

    /// Has `quantiles` written beside [`QUANTILES`].
    pub(crate) fn write_also(&mut self, quantiles: &[f64]) {
        self.further = quantiles.to_vec();
    }

    /// Adds all that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        self.note_longest(other.noted_ns);
        if other.count() > 0 {
            let added = self.counted.counters_mut().add(&*other.counted.counters());
            added.expect("no value is beyond the longest");
        }
    }

    /// Adds all that `other` has counted and empties it.
    pub(crate) fn take(&mut self, other: &mut Self) {
        self.add(other);
        other.clear();
    }

    /// The same to two significant digits, in a tenth of the memory or less.
    pub(crate) fn to_coarse(&self) -> Self {
        let mut coarse = Self::coarse();
        coarse.add(self);
        coarse
    }

    fn coarse() -> Self {
        let counted = Counted::Counters(coarse_counters());
        Self { counted, noted_ns: 0, further: Vec::new() }
    }

    /// Packs what has two significant digits: it is kept and seldom looked at. All of it can be asked and done as before, at
    /// the cost of unpacking it.
    pub(crate) fn pack(&mut self) {
        let Counted::Counters(counters) = &self.counted else { return };
        if counters.sigfig() > COARSE_DIGITS {
            return;
        }
        let count = counters.len();
        let mut bytes = Vec::new();
        let written = V2Serializer::new().serialize(counters, &mut bytes);
        written.expect("memory takes it, and no count exceeds 63 bits");
        self.counted = Counted::Packed { count, bytes: bytes.into() };
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.noted_ns = 0;
        if self.count() > 0 {
            self.counted.counters_mut().reset();
        }
    }

    /// How many times were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        match &self.counted {
            Counted::Counters(counters) => counters.len(),
            Counted::Packed { count, .. } => *count,
        }
    }

    /// The time that a part of `quantile` (0 to 1) do not exceed; `None` without values.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.histogram().value_at_quantile(quantile))
    }

    /// A quantile that the values show: at least one of them is beyond it.
    pub(crate) fn known_quantile_ns(&self, quantile: f64) -> Option<u64> {
        let beyond = self.count() as f64 * (1.0 - quantile);
        // 1000 * (1 - 0.999) is a little below one.
        self.quantile_ns(quantile).filter(|_| beyond >= 1.0 - 1e-6)
    }

    /// Shortest time; `None` without values.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.histogram().min())
    }

    /// Longest time, those that were only noted included; `None` without any.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        let counted = (self.count() > 0).then(|| self.histogram().max());
        counted.max((self.noted_ns > 0).then_some(self.noted_ns))
    }

    /// Mean; `None` without values.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram().mean())
    }

    /// Standard deviation; `None` without values.
    #[must_use]
    pub fn stddev_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram().stdev())
    }

    /// Standard deviation as `ab`, `wrk` and `httperf` show it: of a sample, divided by one less than the count;
    /// `None` below two values.
    pub(crate) fn sample_deviation_ns(&self) -> Option<f64> {
        let count = self.count() as f64;
        self.stddev_ns().filter(|_| count > 1.0).map(|all| all * (count / (count - 1.0)).sqrt())
    }

    /// Part of the values that is not further from the mean than that.
    pub(crate) fn share_within_deviation(&self) -> Option<f64> {
        let mean = self.mean_ns()?;
        let deviation = self.sample_deviation_ns()?;
        let is_within = |value: u64| (value as f64 - mean).abs() <= deviation;
        let counters = self.histogram();
        let within = counters
            .iter_recorded()
            .filter(|step| is_within(counters.median_equivalent(step.value_iterated_to())));
        let within: u64 = within.map(|step| step.count_since_last_iteration()).sum();
        Some(within as f64 / self.count() as f64)
    }

    /// The histogram, for curves and for files that other tools read.
    #[must_use]
    pub fn histogram(&self) -> Cow<'_, Histogram<u64>> {
        self.counted.counters()
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Serialize)]
struct Quantile {
    quantile: f64,
    ns: u64,
}

/// What stands in a result. The figures are for readers; what is read back is the histogram, from which
/// they follow.
#[derive(Serialize)]
struct Summary {
    count: u64,
    min_ns: Option<u64>,
    mean_ns: Option<f64>,
    stddev_ns: Option<f64>,
    max_ns: Option<u64>,
    quantiles: Vec<Quantile>,
    /// HdrHistogram V2, deflate, base64.
    histogram: String,
}

#[derive(Deserialize)]
struct Stored {
    max_ns: Option<u64>,
    histogram: Option<String>,
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let quantile = |&quantile: &f64| {
            let ns = self.quantile_ns(quantile)?;
            Some(Quantile { quantile, ns })
        };
        let mut all: Vec<f64> = QUANTILES.into_iter().chain(self.further.iter().copied()).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let quantiles = all.iter().filter_map(quantile).collect();
        let summary = Summary {
            count: self.count(),
            min_ns: self.min_ns(),
            mean_ns: self.mean_ns(),
            stddev_ns: self.stddev_ns(),
            max_ns: self.max_ns(),
            quantiles,
            histogram: self.packed(),
        };
        summary.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored { max_ns, histogram } = Stored::deserialize(deserializer)?;
        let packed = histogram.ok_or_else(|| D::Error::missing_field("histogram"))?;
        let mut distribution = Self::unpacked(&packed).map_err(D::Error::custom)?;
        distribution.note_longest(max_ns.unwrap_or(0));
        Ok(distribution)
    }
}

impl Distribution {
    fn packed(&self) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.histogram(), &mut bytes);
        written.expect("memory takes it, and no count exceeds 63 bits");
        STANDARD.encode(bytes)
    }

    /// Reads what [`packed`](Self::packed) made, and what others made in the same way. The bounds become
    /// those of this program, so that all can be added. What was packed coarse stays so: a result has one of these for each
    /// of its seconds.
    fn unpacked(packed: &str) -> Result<Self, String> {
        if packed.len() > PACKED_BYTES_MAX {
            return Err(format!("a histogram of more than {PACKED_BYTES_MAX} bytes"));
        }
        let wrong = |why: &dyn std::fmt::Display| format!("histogram: {why}");
        let bytes = STANDARD.decode(packed).map_err(|error| wrong(&error))?;
        let plain = inflated(&bytes).map_err(|why| wrong(&why))?;
        let read: Histogram<u64> =
            HistogramReader::new().deserialize(&mut &*plain).map_err(|error| wrong(&error))?;
        let mut distribution =
            if read.sigfig() > COARSE_DIGITS { Self::new() } else { Self::coarse() };
        for value in read.iter_recorded() {
            let at_ns = value.value_iterated_to().min(LONGEST_NS);
            let times = value.count_at_value();
            let recorded = distribution.counted.counters_mut().record_n(at_ns, times);
            recorded.expect("the bounds contain the longest, or grow to it");
        }
        distribution.pack();
        Ok(distribution)
    }
}

/// What a packed histogram is before it is deflated, once it is known to ask for no more memory than one of this program: it
/// may have come from a network.
fn inflated(packed: &[u8]) -> Result<Vec<u8>, String> {
    let deflated = packed.get(PACKED_HEAD_BYTES..).ok_or("it ends within its head")?;
    let mut plain = Vec::new();
    let inflating = flate2::read::ZlibDecoder::new(deflated).take(PLAIN_BYTES_MAX + 1);
    { inflating }.read_to_end(&mut plain).map_err(|error| error.to_string())?;
    if plain.len() as u64 > PLAIN_BYTES_MAX {
        return Err(format!("more than {PLAIN_BYTES_MAX} bytes"));
    }
    let head = plain.get(..HEAD_BYTES).ok_or("it ends within its head")?;
    let word =
        |at: usize| head[at..at + 4].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let counts_bytes = word(4);
    if counts_bytes != (plain.len() - HEAD_BYTES) as u64 {
        return Err(format!("{counts_bytes} bytes of counts, and there are others"));
    }
    let digits = word(12);
    if digits > LATENCY_DIGITS.into() {
        return Err(format!("{digits} digits; expected {LATENCY_DIGITS} at most"));
    }
    let longest = word(24) << 32 | word(28);
    if longest > HIGHEST_MAX {
        return Err(format!("times up to {longest} ns; expected {HIGHEST_MAX} ns at most"));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth_of_what_was_recorded() {
        let mut times = Distribution::new();
        (1..=10_000).for_each(|each| times.record(each * 1_000));
        for (quantile, expected) in [(0.5, 5_000_000), (0.99, 9_900_000), (1.0, 10_000_000)] {
            let found = times.quantile_ns(quantile).expect("has values");
            assert!(found.abs_diff(expected) * 1_000 <= expected, "{quantile}: {found}");
        }
    }

    #[test]
    fn coarse_ones_keep_numbers_and_take_more() {
        let mut times = Distribution::new();
        assert_eq!(times.to_coarse().count(), 0);
        (1..=1_000).for_each(|each| times.record(each * 1_000));
        let mut coarse = times.to_coarse();
        let mut longer = Distribution::new();
        longer.record(90_000_000_000);
        coarse.add(&longer);
        assert_eq!(coarse.count(), 1_001);
        let median = coarse.quantile_ns(0.5).expect("has values");
        assert!(median.abs_diff(500_000) < 5_000, "{median}");
        let longest = coarse.max_ns().expect("has values");
        assert!(longest.abs_diff(90_000_000_000) < 900_000_000, "{longest}");
    }

    #[test]
    fn a_time_that_is_only_noted_is_the_longest_and_nothing_else() {
        let mut times = Distribution::new();
        times.note_longest(5_000);
        assert_eq!((times.max_ns(), times.count(), times.quantile_ns(0.5)), (Some(5_000), 0, None));
        times.record(10);
        let mut all = Distribution::new();
        all.add(&times);
        assert_eq!((all.max_ns(), all.count(), all.quantile_ns(1.0)), (Some(5_000), 1, Some(10)));
        assert_eq!(all.to_coarse().max_ns(), Some(5_000));
        all.record(7_000);
        assert!(all.max_ns() >= Some(7_000), "{:?}", all.max_ns());
        all.clear();
        assert_eq!(all.max_ns(), None);
    }

    #[test]
    fn without_values_there_are_no_figures() {
        let times = Distribution::new();
        assert_eq!((times.quantile_ns(0.5), times.mean_ns(), times.max_ns()), (None, None, None));
    }

    #[test]
    fn what_is_written_is_read_back_and_can_be_added() {
        let mut times = Distribution::new();
        (1..=1_000).for_each(|each| times.record(each * 1_000));
        times.note_longest(3_000_000_000);
        for (written, apart) in [(times.clone(), 0), (times.to_coarse(), 100)] {
            let text = serde_json::to_string(&written).expect("plain data");
            let read: Distribution = serde_json::from_str(&text).expect("what was written");
            assert_eq!((read.count(), read.max_ns()), (1_000, Some(3_000_000_000)));
            for quantile in QUANTILES {
                let of = times.quantile_ns(quantile);
                let found = read.quantile_ns(quantile);
                let of = of.expect("values");
                let found = found.expect("values");
                assert!(of.abs_diff(found) * 10_000 <= of * apart, "{quantile}: {of} {found}");
            }
            let mut all = times.clone();
            all.add(&read);
            assert_eq!(all.count(), 2_000);
        }
    }

    #[test]
    fn what_was_packed_coarse_is_read_into_as_few_counters() {
        let mut times = Distribution::new();
        times.record(20_000_000);
        let coarse = times.to_coarse();
        let read = Distribution::unpacked(&coarse.packed()).expect("what was packed");
        let counters = |of: &Distribution| of.histogram().distinct_values();
        assert_eq!(counters(&read), counters(&coarse));
        assert!(counters(&read) * 10 < counters(&times), "{}", counters(&read));
        // It takes what is longer, and can be added to any.
        let mut sum = read.clone();
        times.record(u64::MAX);
        sum.add(&times);
        times.add(&sum);
        assert_eq!((sum.count(), times.count()), (3, 5));
        assert!(times.max_ns() >= Some(LONGEST_NS), "{:?}", times.max_ns());
    }

    #[test]
    fn a_histogram_that_is_missing_or_spoiled_is_refused() {
        for (text, says) in [
            (r#"{"max_ns": 5}"#, "missing field `histogram`"),
            (r#"{"max_ns": 5, "histogram": "%"}"#, "histogram: "),
            (r#"{"max_ns": 5, "histogram": "AAAA"}"#, "histogram: "),
        ] {
            let error = serde_json::from_str::<Distribution>(text).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// Packs what a histogram is before it is deflated.
    fn deflated(plain: &[u8]) -> String {
        use std::io::Write as _;
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(plain).expect("memory");
        let packed = zlib.finish().expect("memory");
        let len = u32::try_from(packed.len()).expect("short").to_be_bytes();
        STANDARD.encode([&0x1c84_9314_u32.to_be_bytes()[..], &len, &packed].concat())
    }

    #[test]
    fn a_histogram_that_asks_for_more_memory_than_its_own_is_refused() {
        let mut times = Distribution::new();
        times.record(5_000);
        let plain = inflated(&STANDARD.decode(times.packed()).expect("base64")).expect("sound");
        assert_eq!(Distribution::unpacked(&deflated(&plain)).expect("sound").count(), 1);
        for (at, bytes, says) in [
            // Four gigabytes of counts, of which none is there.
            (4, &u32::MAX.to_be_bytes()[..], "4294967295 bytes of counts"),
            (12, &5_u32.to_be_bytes(), "5 digits; expected 3 at most"),
            (24, &u64::MAX.to_be_bytes(), "times up to 18446744073709551615 ns"),
        ] {
            let mut forged = plain.clone();
            forged[at..at + bytes.len()].copy_from_slice(bytes);
            let error = Distribution::unpacked(&deflated(&forged)).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
        let long = vec![0; PLAIN_BYTES_MAX as usize + 1];
        let error = Distribution::unpacked(&deflated(&long)).expect_err("a bomb");
        assert!(error.contains("more than 1048576 bytes"), "{error}");
    }

    #[test]
    fn those_to_fewer_digits_stay_small_and_are_added_to_any() {
        let mut times = Distribution::new();
        times.record(u64::MAX);
        times.record(7_000_000);
        let coarse = Distribution::unpacked(&times.to_coarse().packed()).expect("sound");
        assert!(coarse.histogram().distinct_values() * 5 < times.histogram().distinct_values());
        let mut all = Distribution::new();
        all.add(&coarse);
        all.add(&coarse);
        let mut small =
            Distribution::unpacked(&Distribution::new().to_coarse().packed()).expect("sound");
        small.add(&times);
        assert_eq!((all.count(), small.count()), (4, 2));
    }

    #[test]
    fn packed_ones_say_and_take_the_same_in_little_memory() {
        let mut times = Distribution::new();
        (1..=1_000).for_each(|each| times.record(each * each * 100));
        times.note_longest(3_000_000_000);
        let coarse = times.to_coarse();
        let mut packed = coarse.clone();
        packed.pack();
        let Counted::Packed { bytes, .. } = &packed.counted else { panic!("it is not packed") };
        let counters_bytes = coarse.histogram().distinct_values() * 8;
        assert!(bytes.len() * 8 < counters_bytes, "{} of {counters_bytes}", bytes.len());
        assert_eq!((packed.count(), packed.max_ns()), (coarse.count(), coarse.max_ns()));
        assert_eq!(packed.histogram(), coarse.histogram());
        packed.record(5_000_000_000);
        packed.add(&coarse);
        assert_eq!(packed.count(), 2 * coarse.count() + 1);
        assert!(packed.max_ns() >= Some(4_900_000_000), "{:?}", packed.max_ns());
        // What has more digits stays as it is.
        times.pack();
        assert!(matches!(times.counted, Counted::Counters(_)));
        let mut none = Distribution::coarse();
        none.pack();
        assert_eq!((none.count(), none.quantile_ns(0.5), none.max_ns()), (0, None, None));
    }

    #[test]
    fn what_is_longer_than_the_longest_counts_as_that() {
        let mut times = Distribution::new();
        times.record(u64::MAX);
        let longest = times.max_ns().expect("one value");
        assert!(longest.abs_diff(LONGEST_NS) * 1_000 <= LONGEST_NS, "{longest}");
    }

    #[test]
    fn the_outlier_is_outside_of_the_deviation() {
        let mut times = Distribution::new();
        [100, 100, 100, 100, 1000].into_iter().for_each(|each| times.record(each));
        assert_eq!(times.share_within_deviation(), Some(0.8));
        assert_eq!(Distribution::new().sample_deviation_ns(), None);
    }
}
