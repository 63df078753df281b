//! How far the monotonic clock of an agent is from the controller's, from messages that go there and back. The clocks of
//! days play no part: who has set them, and when, is of no account.

/// One message there and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PingSample {
    /// When the controller sent it, by its clock.
    pub sent_ns: u64,
    /// What the agent's clock said when it answered.
    pub agent_ns: u64,
    /// When the answer came, by the controller's clock.
    pub received_ns: u64,
}

impl PingSample {
    fn round_trip_ns(&self) -> u64 {
        self.received_ns.saturating_sub(self.sent_ns)
    }
}

/// So far may two clocks drift apart, in parts of a million: quartz keeps to 100, each of them in its own direction.
const DRIFT_PPM: u128 = 200;

/// What is to be added to the controller's clock to have the agent's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockDistance {
    offset_ns: i128,
    /// Half of the way of the message that it is from.
    half_way_ns: u64,
    /// When that was under way, by the controller's clock.
    found_ns: u64,
}

impl ClockDistance {
    /// From the message with the shortest way: the agent answered at some moment of it, so half of it is the uncertainty.
    /// `None` without messages.
    #[must_use]
    pub fn of(samples: &[PingSample]) -> Option<Self> {
        let shortest = samples.iter().min_by_key(|sample| sample.round_trip_ns())?;
        let half_way_ns = shortest.round_trip_ns().div_ceil(2);
        let middle_ns = i128::from(shortest.sent_ns) + i128::from(half_way_ns);
        let offset_ns = i128::from(shortest.agent_ns) - middle_ns;
        Some(Self { offset_ns, half_way_ns, found_ns: shortest.sent_ns })
    }

    /// A moment of the controller's clock as the agent's clock has it; `None` where that has no such moment.
    #[must_use]
    pub fn to_agent(&self, own_ns: u64) -> Option<u64> {
        u64::try_from(i128::from(own_ns) + self.offset_ns).ok()
    }

    /// The true distance at a moment of the controller's clock lies within this of it: what the clocks may have drifted apart
    /// since is in it.
    #[must_use]
    pub fn uncertainty_ns(&self, own_ns: u64) -> u64 {
        let drift_ns = u128::from(own_ns.abs_diff(self.found_ns)) * DRIFT_PPM / 1_000_000;
        self.half_way_ns.saturating_add(u64::try_from(drift_ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages whose ways there and back are drawn anew each time, over clocks that are `offset_ns` apart.
    fn samples(random: &mut fastrand::Rng, offset_ns: i64, ppm: f64) -> Vec<PingSample> {
        let mut now_ns = 20_000_000_000_u64;
        let agent = |own_ns: u64| {
            let drifted = own_ns as f64 * ppm / 1e6;
            own_ns.saturating_add_signed(offset_ns).saturating_add_signed(drifted as i64)
        };
        let mut one = || {
            let there_ns = random.u64(20_000..2_000_000);
            let back_ns = random.u64(20_000..2_000_000);
            let sample = PingSample {
                sent_ns: now_ns,
                agent_ns: agent(now_ns + there_ns),
                received_ns: now_ns + there_ns + back_ns,
            };
            now_ns += 5_000_000;
            sample
        };
        (0..20).map(|_| one()).collect()
    }

    #[test]
    fn the_uncertainty_holds_the_true_distance_in_every_trial() {
        let mut random = fastrand::Rng::with_seed(7);
        for trial in 0..200 {
            let offset_ns = random.i64(-10_000_000_000..10_000_000_000);
            let ppm = if trial % 2 == 0 { 100.0 } else { -100.0 };
            let samples = samples(&mut random, offset_ns, ppm);
            let distance = ClockDistance::of(&samples).expect("samples");
            // While the messages were sent, and long after.
            for at_ns in [20_000_000_000, 20_050_000_000, 21_000_000_000, 90_000_000_000_u64] {
                let drifted_ns = at_ns as f64 * ppm / 1e6;
                let true_ns = i128::from(offset_ns) + drifted_ns as i128;
                let error_ns = (distance.offset_ns - true_ns).unsigned_abs();
                let allowed_ns = u128::from(distance.uncertainty_ns(at_ns));
                assert!(error_ns <= allowed_ns, "{trial}: {error_ns} ns of {allowed_ns} ns");
            }
        }
    }

    #[test]
    fn forged_times_give_a_distance_or_none_and_never_a_panic() {
        assert_eq!(ClockDistance::of(&[]), None);
        for agent_ns in [0, 1, u64::MAX] {
            for (sent_ns, received_ns) in [(0, 0), (u64::MAX, 0), (0, u64::MAX)] {
                let sample = PingSample { sent_ns, agent_ns, received_ns };
                let distance = ClockDistance::of(&[sample]).expect("a sample");
                for own_ns in [0, u64::MAX] {
                    let _ = (distance.to_agent(own_ns), distance.uncertainty_ns(own_ns));
                }
            }
        }
    }
}
