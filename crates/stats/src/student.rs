//! Student's t distribution: cumulative probability and quantile for whole degrees of freedom.
//!
//! Called by `ratio`, `verdict`, `holm` and `summary`. It must never approximate by the normal
//! distribution: at twelve blocks that would make every interval 11 % too narrow.

use std::f64::consts::FRAC_2_PI;

/// How far into a tail the quantile is computed; farther out rounding of `1 - p` takes over.
const TAIL_MIN: f64 = 1e-9;
/// Enough halvings to use up all bits of an f64.
const BISECTIONS: u32 = 100;

/// The probability that a t variable with `df` degrees of freedom is at most `t`.
///
/// Exact finite sums for whole `df` (Abramowitz & Stegun 26.7.3 and 26.7.4); the absolute error is
/// about 1e-15.
///
/// # Panics
///
/// When `df` is 0.
#[must_use]
pub fn student_t_cdf(t: f64, df: u32) -> f64 {
    assert!(df > 0, "Student's t needs at least one degree of freedom");
    0.5 + 0.5 * central_probability(t, df)
}

/// The value that a t variable with `df` degrees of freedom stays below with probability `p`.
///
/// # Panics
///
/// When `df` is 0 or `p` lies outside `1e-9..=1 - 1e-9`.
#[must_use]
pub fn student_t_quantile(p: f64, df: u32) -> f64 {
    assert!(
        (TAIL_MIN..=1.0 - TAIL_MIN).contains(&p),
        "the quantile of {p} is outside the supported range"
    );
    if p < 0.5 {
        return -student_t_quantile(1.0 - p, df);
    }
    let mut above = 1.0;
    while student_t_cdf(above, df) < p {
        above *= 2.0;
    }
    let mut below = 0.0;
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (below + above);
        if student_t_cdf(middle, df) < p {
            below = middle;
        } else {
            above = middle;
        }
    }
    0.5 * (below + above)
}

/// The signed probability between `-t` and `t`.
fn central_probability(t: f64, df: u32) -> f64 {
    let angle = (t / f64::from(df).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    if df.is_multiple_of(2) {
        sine * power_sum(1.0, cosine, (2..df).step_by(2))
    } else if df == 1 {
        FRAC_2_PI * angle
    } else {
        FRAC_2_PI * (angle + sine * power_sum(cosine, cosine, (3..df).step_by(2)))
    }
}

/// `first + first·c²·(k-1)/k + …`, one more factor for each `k`.
fn power_sum(first: f64, cosine: f64, steps: impl Iterator<Item = u32>) -> f64 {
    let mut term = first;
    let mut sum = first;
    for k in steps {
        term *= cosine * cosine * f64::from(k - 1) / f64::from(k);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_the_printed_table() {
        let table = [
            (0.975, 1, 12.7062),
            (0.975, 2, 4.3027),
            (0.975, 3, 3.1824),
            (0.975, 4, 2.7764),
            (0.975, 11, 2.2010),
            (0.975, 29, 2.0452),
            (0.975, 120, 1.9799),
            (0.95, 1, 6.3138),
            (0.95, 5, 2.0150),
            (0.95, 11, 1.7959),
            (0.995, 9, 3.2498),
            (0.9995, 10, 4.5869),
            (0.9995, 7, 5.4079),
        ];
        for (p, df, expected) in table {
            let found = student_t_quantile(p, df);
            assert!((found - expected).abs() < 6e-5, "p {p}, df {df}: {found}");
        }
    }

    #[test]
    fn the_distribution_is_symmetric_about_zero() {
        for df in [1, 2, 7, 30] {
            assert_eq!(student_t_cdf(0.0, df), 0.5);
            assert!((student_t_cdf(1.3, df) + student_t_cdf(-1.3, df) - 1.0).abs() < 1e-15);
            assert_eq!(student_t_quantile(0.1, df), -student_t_quantile(0.9, df));
        }
    }

    #[test]
    fn the_quantile_undoes_the_probability_deep_into_the_tail() {
        for df in [1, 2, 11, 100] {
            for tail in [1e-8, 1e-4, 0.3] {
                let back = student_t_cdf(student_t_quantile(1.0 - tail, df), df);
                assert!((back - (1.0 - tail)).abs() < 1e-12, "df {df}, tail {tail}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside the supported range")]
    fn certainty_has_no_quantile() {
        let _ = student_t_quantile(1.0, 5);
    }
}
