//! Scales: from a value to a place on the paper, and where the lines of an axis go.
//!
//! The charts use one for each axis. Linear or logarithmic, always with a domain that is not empty.

/// A linear or logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    domain: (f64, f64),
    paper: (f64, f64),
    is_log: bool,
}

impl Scale {
    /// From the domain to the paper. A domain without width gets some.
    #[must_use]
    pub fn linear(domain: (f64, f64), paper: (f64, f64)) -> Self {
        let (low, high) = domain;
        let domain = if high > low { domain } else { (low - 0.5, low + 0.5) };
        Self { domain, paper, is_log: false }
    }

    /// The same for a domain above zero, on which equal ratios are equal lengths.
    ///
    /// # Panics
    /// If the domain reaches to zero or below: the caller has to look first.
    #[must_use]
    pub fn log(domain: (f64, f64), paper: (f64, f64)) -> Self {
        let (low, high) = domain;
        assert!(low > 0.0, "a logarithmic axis starts above zero, not at {low}");
        let domain = if high > low { domain } else { (low / 2.0, low * 2.0) };
        Self { domain, paper, is_log: true }
    }

    /// Where a value stands; values outside the domain stand at its ends.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.domain;
        let value = value.clamp(low, high);
        let part = match self.is_log {
            true => (value / low).ln() / (high / low).ln(),
            false => (value - low) / (high - low),
        };
        self.paper.0 + part * (self.paper.1 - self.paper.0)
    }

    /// Round values within the domain, at most about `wanted`.
    #[must_use]
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.is_log { self.log_ticks(wanted) } else { self.linear_ticks(wanted) }
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        let rough = (high - low) / wanted.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| nice * power >= rough);
        let step = nice.unwrap_or(10.0) * power;
        let first = (low / step).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (first..=last).map(|index| index as f64 * step).collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let mut found = Vec::new();
        // From many lines to few; the first set that fits is taken.
        for within in [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]] {
            let values =
                decades.clone().flat_map(|p| within.iter().map(move |w| w * 10f64.powi(p)));
            found = values.filter(|v| (low * 0.9999..=high * 1.0001).contains(v)).collect();
            if found.len() <= wanted {
                return found;
            }
        }
        let stride = found.len().div_ceil(wanted.max(1));
        found.into_iter().step_by(stride).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_lines_of_a_linear_axis() {
        let scale = Scale::linear((0.0, 200.0), (100.0, 0.0));
        assert_eq!((scale.at(0.0), scale.at(50.0), scale.at(900.0)), (100.0, 75.0, 0.0));
        assert_eq!(scale.ticks(4), [0.0, 50.0, 100.0, 150.0, 200.0]);
        assert!(Scale::linear((3.0, 3.0), (0.0, 1.0)).at(3.0).is_finite());
    }

    #[test]
    fn equal_ratios_are_equal_lengths_on_a_log_axis() {
        let scale = Scale::log((0.1, 10.0), (0.0, 100.0));
        assert!((scale.at(1.0) - 50.0).abs() < 1e-9);
        assert_eq!(scale.ticks(3), [0.1, 1.0, 10.0]);
        assert!(Scale::log((1e-6, 1e9), (0.0, 1.0)).ticks(6).len() <= 6);
    }
}
