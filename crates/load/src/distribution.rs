//! Times in a high dynamic range histogram: recorded by the threads of a run, read by reports.
//!
//! Values are nanoseconds with three significant digits, up to [`LONGEST_NS`]; what is longer
//! counts as that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    Deserializer as HistogramReader, Serializer as _, V2DeflateSerializer,
};
use pollux_stats::{LATENCY_DIGITS, LONGEST_NS};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The quantiles that results show, in parts of one.
pub const QUANTILES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// The quantiles that tables show by default.
pub const SHOWN: [f64; 5] = [0.5, 0.75, 0.9, 0.99, 0.999];

/// How a time was distributed.
///
/// Times that were cut off, or that belong to no answer that counts, are in none of its figures
/// but the longest: see [`Distribution::note_longest`].
#[derive(Clone, Debug)]
pub struct Distribution {
    counted: Histogram<u64>,
    /// Zero when none was noted.
    noted_ns: u64,
    /// Quantiles that are written beside [`QUANTILES`].
    further: Vec<f64>,
}

impl Distribution {
    /// One without values.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, LATENCY_DIGITS);
        Self {
            counted: histogram.expect("the bounds are those of a histogram"),
            noted_ns: 0,
            further: Vec::new(),
        }
    }

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.counted.saturating_record(nanoseconds);
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
            self.counted.add(&other.counted).expect("all have the same bounds");
        }
    }

    /// Adds all that `other` has counted and empties it.
    pub(crate) fn take(&mut self, other: &mut Self) {
        self.add(other);
        other.clear();
    }

    /// The same to two significant digits, in a tenth of the memory or less.
    pub(crate) fn to_coarse(&self) -> Self {
        let mut coarse = Histogram::new(2).expect("two digits are allowed");
        coarse.add(&self.counted).expect("it grows as needed");
        Self { counted: coarse, noted_ns: self.noted_ns, further: Vec::new() }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.noted_ns = 0;
        if self.count() > 0 {
            self.counted.reset();
        }
    }

    /// How many times were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counted.len()
    }

    /// The time that a part of `quantile` (0 to 1) do not exceed; `None` without values.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.counted.value_at_quantile(quantile))
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
        (self.count() > 0).then(|| self.counted.min())
    }

    /// Longest time, those that were only noted included; `None` without any.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        let counted = (self.count() > 0).then(|| self.counted.max());
        counted.max((self.noted_ns > 0).then_some(self.noted_ns))
    }

    /// Mean; `None` without values.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.counted.mean())
    }

    /// Standard deviation; `None` without values.
    #[must_use]
    pub fn stddev_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.counted.stdev())
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
        let within = self
            .counted
            .iter_recorded()
            .filter(|step| is_within(self.counted.median_equivalent(step.value_iterated_to())));
        let within: u64 = within.map(|step| step.count_since_last_iteration()).sum();
        Some(within as f64 / self.count() as f64)
    }

    /// The histogram, for curves and for files that other tools read.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.counted
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
        let written = V2DeflateSerializer::new().serialize(&self.counted, &mut bytes);
        written.expect("memory takes it, and no count exceeds 63 bits");
        STANDARD.encode(bytes)
    }

    /// Reads what [`packed`](Self::packed) made, and what others made in the same way. The bounds become
    /// those of this program, so that all can be added.
    fn unpacked(packed: &str) -> Result<Self, String> {
        const PACKED_BYTES_MAX: usize = 4 << 20;
        if packed.len() > PACKED_BYTES_MAX {
            return Err(format!("a histogram of more than {PACKED_BYTES_MAX} bytes"));
        }
        let bytes = STANDARD.decode(packed).map_err(|error| format!("histogram: {error}"))?;
        let read: Histogram<u64> = HistogramReader::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("histogram: {error}"))?;
        let mut distribution = Self::new();
        for value in read.iter_recorded() {
            let at = value.value_iterated_to();
            let times = value.count_at_value();
            distribution.counted.saturating_record_n(at, times);
        }
        Ok(distribution)
    }
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
