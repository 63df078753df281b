//! Dead connections beside the active ones: the crowd of `pollux load --hold`.
//!
//! One process may have only so many descriptors, so each has a share. They open their connections at the same time,
//! before the first turn, and sleep until the end.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_doctor::FDS_SPARE;
use pollux_host::Program;
use pollux_poller::Mechanism;
use pollux_sys::descriptors;
use serde::Deserialize;

use crate::error::MeasureError;

/// What holds the dead connections, by its name for people.
const HOLDER: &str = "the lab's holder of dead connections (pollux load --hold)";
/// What a process says when all its connections are open and were answered once.
const READY: &str = "the crowd is set up";
/// How long one connection may take to be set up when the server looks at tens of thousands of
/// them in each turn; more than ten times what select takes on two shared CPUs.
const SET_UP_EACH: Duration = Duration::from_millis(2);
/// The same for the processes themselves, and for what they do at the end.
const SET_UP_TIME_MAX: Duration = Duration::from_secs(10);
/// A server that closes more than this share of what it should hold is not measured: it would
/// look good for the wrong reason.
const CLOSED_SHARE_MAX: f64 = 0.01;
/// Connections from one source address: far below the 28,000 ports that Linux gives out.
const PER_ADDRESS: usize = 5000;
/// First source address; the generator and the check of an answer come from 127.0.0.1.
const FIRST_ADDRESS: u32 = Ipv4Addr::new(127, 0, 0, 2).to_bits();

/// Dead connections to a server.
pub(super) struct DeadCrowd {
    holders: Vec<Program>,
    count: usize,
}

/// What became of one population, as `pollux load` prints it.
#[derive(Deserialize)]
struct Population {
    answered: usize,
    closed_by_server: usize,
    reset_by_server: usize,
}

impl DeadCrowd {
    /// Has `count` connections opened, each of which asks for `path`; each has had one answer when
    /// this returns.
    pub(super) fn open(
        count: usize,
        to: SocketAddr,
        path: &str,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let limit = descriptors::Limit::here().hard;
        let each = usize::try_from(limit.saturating_sub(FDS_SPARE)).unwrap_or(usize::MAX).max(1);
        let mut holders = Vec::new();
        for (first, share) in shares(count, each) {
            let program = std::env::current_exe();
            let program = program.map_err(MeasureError::io("readlink"))?;
            let mut command = Command::new(program);
            command.arg("load").arg(format!("http://{to}{path}")).arg("--hold");
            command.args(["--dead", &share.to_string()]);
            command.args(["--source", &sources(first, share)]);
            // A ring takes seconds to let go of so many reads that are under way.
            command.args(["--poller", Mechanism::EpollEt.name()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            holders.push(Program::start(HOLDER, command)?);
        }
        let patience = patience(count);
        for holder in &mut holders {
            holder
                .wait_for_line(READY, patience, is_interrupted)
                .map_err(|error| not_open(error, count))?;
        }
        Ok(Self { holders, count })
    }

    /// The processes that hold it.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.holders.iter().map(Program::pid).collect()
    }

    /// Ends it; how many connections the server had closed until then, or in words why they are too
    /// many for a measurement.
    pub(super) fn close(
        mut self,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<usize, String>, MeasureError> {
        self.holders.iter_mut().for_each(Program::end_input);
        let mut answered = 0;
        let mut closed = 0;
        for mut holder in self.holders.drain(..) {
            if !holder.ends_within(patience(self.count), is_interrupted)? {
                return Err(holder.failed("did not end when it was asked to").into());
            }
            let failure = holder.failed("did not say what became of the crowd");
            let (text, _) = holder.output()?;
            let populations: Vec<Population> =
                serde_json::from_str(text.trim()).map_err(|_| failure)?;
            answered += populations.iter().map(|one| one.answered).sum::<usize>();
            closed += populations
                .iter()
                .map(|one| one.closed_by_server + one.reset_by_server)
                .sum::<usize>();
        }
        Ok(judged(answered, closed, self.count))
    }
}

/// That not all of them could be opened, with what helps: each waits until the server has answered it once.
fn not_open(error: pollux_host::Error, count: usize) -> MeasureError {
    match error {
        pollux_host::Error::Program { program, what } => {
            let what = format!(
                "{what}: the server did not answer {count} connections once each until then; give fewer (--dead), raise \
                 the server's limits, or run it on a quieter machine"
            );
            pollux_host::Error::Program { program, what }.into()
        }
        other => other.into(),
    }
}

/// How long opening so many may take, and closing them.
fn patience(count: usize) -> Duration {
    SET_UP_TIME_MAX + SET_UP_EACH * u32::try_from(count).unwrap_or(u32::MAX)
}

/// The source addresses of a share, so that none of them runs out of ports.
fn sources(first: usize, share: usize) -> String {
    let address = |at: usize| Ipv4Addr::from_bits(FIRST_ADDRESS + at as u32);
    let last = (first + share.max(1) - 1) / PER_ADDRESS;
    let addresses = (first / PER_ADDRESS..=last).map(|at| address(at).to_string());
    addresses.collect::<Vec<_>>().join(",")
}

fn judged(answered: usize, closed: usize, all: usize) -> Result<usize, String> {
    if answered < all {
        return Err(format!("answered only {answered} of {all} dead connections"));
    }
    if closed as f64 > all as f64 * CLOSED_SHARE_MAX {
        Err(format!("closed {closed} of {all} dead connections"))
    } else {
        Ok(closed)
    }
}

/// The first connection and the number of each process, as even as can be.
fn shares(count: usize, each: usize) -> impl Iterator<Item = (usize, usize)> {
    let holders = count.div_ceil(each);
    (0..holders).map(move |holder| {
        let first = count * holder / holders;
        (first, count * (holder + 1) / holders - first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_does_not_fit_is_named_with_what_helps_and_not_by_a_flag_alone() {
        let program = HOLDER.to_owned();
        let what = "was not ready within 14.0s".to_owned();
        let said = not_open(pollux_host::Error::Program { program, what }, 2000).to_string();
        assert_eq!(
            said,
            "the lab's holder of dead connections (pollux load --hold): was not ready within 14.0s: the server \
             did not answer 2000 connections once each until then; give fewer (--dead), raise the server's \
             limits, or run it on a quieter machine"
        );
    }

    #[test]
    fn processes_share_the_connections_evenly() {
        let of = |count, each| shares(count, each).collect::<Vec<_>>();
        assert_eq!(of(0, 100), []);
        assert_eq!(of(100, 100), [(0, 100)]);
        assert_eq!(of(101, 100), [(0, 50), (50, 51)]);
        let many = of(60_000, 19_936);
        assert_eq!(many.iter().map(|(_, share)| share).sum::<usize>(), 60_000);
        assert_eq!(many[3], (45_000, 15_000));
    }

    #[test]
    fn a_server_that_closes_what_it_should_hold_is_not_measured() {
        assert_eq!(judged(1000, 10, 1000), Ok(10));
        assert_eq!(judged(0, 0, 0), Ok(0));
        let too_many = judged(1000, 11, 1000);
        assert_eq!(too_many, Err("closed 11 of 1000 dead connections".to_owned()));
        let too_few = judged(999, 0, 1000);
        assert_eq!(too_few, Err("answered only 999 of 1000 dead connections".to_owned()));
    }

    #[test]
    fn every_share_has_source_addresses_enough() {
        assert_eq!(sources(0, 5000), "127.0.0.2");
        assert_eq!(sources(0, 5001), "127.0.0.2,127.0.0.3");
        assert_eq!(sources(15_000, 15_000), "127.0.0.5,127.0.0.6,127.0.0.7");
    }
}
