//! Results of several generators that put load on one server at the same time, added up.

use crate::{Outcome, Second, ServerUse, Setting, Silence, findings};

/// Part of the shortest run in which all of them have to have run.
const TOGETHER_MIN: f64 = 0.8;

/// Why results can't be added up.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There are fewer than two.
    #[error("expected two results or more")]
    TooFew,
    /// They asked for different things.
    #[error(
        "result {number} differs from the first in {what}: \"{second}\" instead of \"{first}\""
    )]
    Differs {
        /// Its position, from 1.
        number: usize,
        /// What differs.
        what: &'static str,
        /// In the first.
        first: String,
        /// In this one.
        second: String,
    },
    /// One run stands there twice.
    #[error(
        "result {number} is the same run as result {first}; expected those of several generators"
    )]
    Twice {
        /// The position of the first one, from 1.
        first: usize,
        /// That of the second one.
        number: usize,
    },
    /// They ran at different times.
    #[error(
        "the runs were at the same time for {together_s:.1} s only, of {shortest_s:.1} s of the shortest; \
         start all generators together"
    )]
    Apart {
        /// When all of them ran, in seconds.
        together_s: f64,
        /// The shortest, in seconds.
        shortest_s: f64,
    },
}

/// Adds results of runs that were at the same time. Objectives are left out: they were those of a part.
///
/// # Errors
/// [`MergeError`]: they are not parts of one load.
pub fn merged(outcomes: &[Outcome]) -> Result<Outcome, MergeError> {
    let [first, others @ ..] = outcomes else { return Err(MergeError::TooFew) };
    if others.is_empty() {
        return Err(MergeError::TooFew);
    }
    for (index, other) in others.iter().enumerate() {
        same_load(index + 2, first, other)?;
    }
    different_runs(outcomes)?;
    same_time(outcomes)?;
    let mut all = first.clone();
    others.iter().for_each(|other| all.add(other));
    all.close_sum();
    Ok(all)
}

fn same_load(number: usize, first: &Outcome, other: &Outcome) -> Result<(), MergeError> {
    let of = |outcome: &Outcome| {
        let setting = &outcome.setting;
        [
            ("URLs", setting.urls.join(" ")),
            ("the list of requests", setting.listed.clone().unwrap_or_else(|| "none".to_owned())),
            ("pipelining", setting.pipeline.to_string()),
            ("the HTTP that was spoken", setting.spoken.clone()),
            ("streams", setting.streams.to_string()),
            ("windows", setting.windows_in_words()),
            ("time to think", format!("{} s", setting.think_s)),
            ("requests of a connection", format!("{:?}", setting.requests_per_connection)),
            ("warm-up", format!("{} s", setting.warm_up_s)),
            ("open or closed loop", loop_of(outcome).to_owned()),
        ]
    };
    let pairs = of(first).into_iter().zip(of(other));
    match pairs.into_iter().find(|(first, second)| first != second) {
        None => Ok(()),
        Some(((what, first), (_, second))) => {
            Err(MergeError::Differs { number, what, first, second })
        }
    }
}

fn different_runs(outcomes: &[Outcome]) -> Result<(), MergeError> {
    for (index, outcome) in outcomes.iter().enumerate() {
        if let Some(first) = outcomes[..index].iter().position(|other| other.is_same_run(outcome)) {
            return Err(MergeError::Twice { first: first + 1, number: index + 1 });
        }
    }
    Ok(())
}

fn loop_of(outcome: &Outcome) -> &'static str {
    if outcome.setting.asked_per_s.is_some() { "open" } else { "closed" }
}

fn same_time(outcomes: &[Outcome]) -> Result<(), MergeError> {
    let began = |outcome: &Outcome| outcome.began_unix_s;
    let ended = |outcome: &Outcome| outcome.began_unix_s + outcome.measured.as_secs_f64();
    let last_began = outcomes.iter().map(began).fold(f64::MIN, f64::max);
    let first_ended = outcomes.iter().map(ended).fold(f64::MAX, f64::min);
    let lengths = outcomes.iter().map(|outcome| outcome.measured.as_secs_f64());
    let (together_s, shortest_s) =
        ((first_ended - last_began).max(0.0), lengths.fold(f64::MAX, f64::min));
    if together_s >= shortest_s * TOGETHER_MIN {
        Ok(())
    } else {
        Err(MergeError::Apart { together_s, shortest_s })
    }
}

impl Outcome {
    /// Makes of counts that were [added](Self::add) what follows from them. Objectives are left out: they were those of a
    /// part.
    pub(crate) fn close_sum(&mut self) {
        let answered = self.within().answered;
        let generator = &mut self.generator;
        let worked_us = generator.cpu.saturating_sub(generator.spun).as_secs_f64() * 1e6;
        generator.cpu_us_per_answer = (answered > 0).then(|| worked_us / answered as f64);
        self.server = self.server.map(|server| ServerUse {
            cpu_us_per_answer: (answered > 0).then(|| server.cpu_s * 1e6 / answered as f64),
            ..server
        });
        let under_way = self.streams_under_way();
        if let Some(http2) = &mut self.http2 {
            http2.streams_under_way = under_way;
        }
        self.objectives.clear();
        self.findings = findings(self);
    }

    /// Adds the counts of another part of the same load.
    pub(crate) fn add(&mut self, other: &Self) {
        self.began_unix_s = self.began_unix_s.min(other.began_unix_s);
        self.measured = self.measured.max(other.measured);
        self.waited = self.waited.max(other.waited);
        self.was_ended_early |= other.was_ended_early;
        self.in_time = self.in_time.zip(other.in_time).map(|(mut mine, more)| {
            mine.add(&more);
            mine
        });
        self.sent_to_answer =
            self.sent_to_answer.zip(other.sent_to_answer).map(|(mut mine, more)| {
                mine.add(&more);
                mine
            });
        self.silence = match (self.silence, other.silence) {
            (Some(mine), Some(more)) => Some(Silence {
                out_s: mine.out_s + more.out_s,
                is_until_end: mine.is_until_end && more.is_until_end,
            }),
            (mine, more) => mine.or(more),
        };
        self.add_setting(&other.setting);
        self.totals.add(&other.totals);
        match (&mut self.http2, &other.http2) {
            (Some(mine), Some(more)) => mine.add(more),
            (None, Some(more)) => self.http2 = Some(more.clone()),
            (_, None) => {}
        }
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.errors.add(&other.errors);
        self.warm_up_errors.add(&other.warm_up_errors);
        for (mine, others) in [
            (&mut self.latency, &other.latency),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.connect, &other.connect),
            (&mut self.lifetime, &other.lifetime),
            (&mut self.unanswered, &other.unanswered),
            (&mut self.generator.lag, &other.generator.lag),
        ] {
            mine.add(others);
        }
        self.add_first_findings(other);
        self.standstills.extend(&other.standstills);
        for (target, more) in self.targets.iter_mut().zip(&other.targets) {
            target.answered += more.answered;
            target.errors.add(&more.errors);
            target.latency.add(&more.latency);
        }
        self.add_seconds(&other.seconds);
        for kind in &other.crowd {
            match self.crowd.iter_mut().find(|mine| mine.kind == kind.kind) {
                Some(mine) => {
                    mine.asked = mine.asked.saturating_add(kind.asked);
                    mine.add(kind);
                }
                None => self.crowd.push(*kind),
            }
        }
        self.add_generator(other);
        // One generator names the server; of two that name it, both saw the same.
        self.server = self.server.or(other.server);
    }

    fn add_setting(&mut self, other: &Setting) {
        let setting = &mut self.setting;
        if !setting.driver.split(", ").any(|driver| driver == other.driver) {
            setting.driver = format!("{}, {}", setting.driver, other.driver);
        }
        if setting.pace != other.pace {
            setting.pace = format!("{} + {}", setting.pace, other.pace);
        }
        setting.threads = setting.threads.saturating_add(other.threads);
        setting.connections = setting.connections.saturating_add(other.connections);
        setting.asked_per_s = setting.asked_per_s.zip(other.asked_per_s).map(|(a, b)| a + b);
    }

    /// The first that was found of each kind is kept; a failure of the measured time counts more than one before it.
    fn add_first_findings(&mut self, other: &Self) {
        let is_of_measured = other.first_failure.is_some() && !other.was_first_failure_early;
        if self.first_failure.is_none() || (self.was_first_failure_early && is_of_measured) {
            self.first_failure.clone_from(&other.first_failure);
            self.was_first_failure_early = other.was_first_failure_early;
        }
        if self.first_wrong.is_none() {
            self.first_wrong.clone_from(&other.first_wrong);
        }
        if self.first_redirect.is_none() {
            self.first_redirect.clone_from(&other.first_redirect);
        }
    }

    /// What the generators used; their lags are added with the other distributions.
    fn add_generator(&mut self, other: &Self) {
        let generator = &mut self.generator;
        let more = &other.generator;
        generator.cpu += more.cpu;
        generator.spun += more.spun;
        generator.busy_share.extend(&more.busy_share);
        generator.cpus = generator.cpus.zip(more.cpus).map(|(a, b)| a.saturating_add(b));
        generator.stalls.extend(&more.stalls);
        generator.involuntary_switches =
            generator.involuntary_switches.zip(more.involuntary_switches).map(|(a, b)| a + b);
    }

    /// The first seconds of each belong together.
    fn add_seconds(&mut self, others: &[Second]) {
        for (index, more) in others.iter().enumerate() {
            let Some(second) = self.seconds.get_mut(index) else {
                self.seconds.push(more.clone());
                continue;
            };
            second.join(more);
            second.latency.pack();
        }
    }
}

impl Second {
    /// Adds the same second of another generator.
    pub(crate) fn join(&mut self, more: &Self) {
        self.end_s = self.end_s.max(more.end_s);
        self.sent += more.sent;
        self.answered += more.answered;
        self.errors += more.errors;
        self.bytes_in += more.bytes_in;
        self.open = self.open.saturating_add(more.open);
        self.latency.add(&more.latency);
        self.generator_cpu_s += more.generator_cpu_s;
        self.asked_per_s = self.asked_per_s.zip(more.asked_per_s).map(|(a, b)| a + b);
        self.server_cpu_s = self.server_cpu_s.or(more.server_cpu_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;
    use std::time::Duration;

    #[test]
    fn counts_and_times_of_all_are_added() {
        let mut second = sample(32, 500, 3_000_000);
        second.began_unix_s += 1e-5;
        second.setting.driver = "uring".to_owned();
        second.server = Some(ServerUse { pid: 7, cpu_s: 3.0, cpu_us_per_answer: Some(6_000.0) });
        let all = merged(&[sample(64, 1_000, 1_000_000), second]).expect("one load");
        assert_eq!((all.totals.answered, all.latency.count()), (1_500, 1_500));
        assert_eq!(all.statuses.get(&200), Some(&1_500));
        assert_eq!((all.setting.connections, all.setting.threads), (96, 2));
        assert_eq!(all.setting.driver, "epoll-et, uring");
        assert!((all.answered_per_s() - 150.0).abs() < 0.01);
        let middle = all.latency.quantile_ns(0.5);
        let high = all.latency.quantile_ns(0.9);
        assert!(middle < Some(1_010_000) && high > Some(2_990_000), "{middle:?} {high:?}");
        assert_eq!(all.generator.cpu, Duration::from_secs(6));
        let per_answer = all.server.and_then(|server| server.cpu_us_per_answer);
        assert_eq!(per_answer, Some(2_000.0));
    }

    #[test]
    fn parts_of_different_loads_are_refused() {
        let first = sample(64, 1_000, 1_000_000);
        assert_eq!(merged(&[]).expect_err("none"), MergeError::TooFew);
        assert_eq!(merged(std::slice::from_ref(&first)).expect_err("one"), MergeError::TooFew);
        let mut other = first.clone();
        other.setting.pipeline = 8;
        let message = merged(&[first.clone(), other]).expect_err("pipelined").to_string();
        assert_eq!(
            message,
            "result 2 differs from the first in pipelining: \"8\" instead of \"1\""
        );
        let twice = merged(&[first.clone(), first.clone()]).expect_err("the same one");
        assert_eq!(twice, MergeError::Twice { first: 1, number: 2 });
        let mut later = first.clone();
        later.began_unix_s += 8.0;
        let message = merged(&[first, later]).expect_err("apart").to_string();
        assert!(
            message.starts_with("the runs were at the same time for 2.0 s only, of 10.0 s"),
            "{message}"
        );
    }

    #[test]
    fn seconds_of_the_same_number_are_added() {
        let second = |answered| Second { answered, open: 3, ..Second::default() };
        let mut a = sample(1, 10, 5);
        let mut b = sample(1, 10, 5);
        b.began_unix_s += 1e-5;
        a.seconds = vec![second(5), second(6)];
        b.seconds = vec![second(1), second(2), second(3)];
        let seconds = merged(&[a, b]).expect("one load").seconds;
        let answered: Vec<u64> = seconds.iter().map(|second| second.answered).collect();
        assert_eq!(answered, [6, 8, 3]);
        assert_eq!(seconds[0].open, 6);
    }
}
