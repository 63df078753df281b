//! Dead connections beside the active ones, held by processes of their own.
//!
//! One process may have only so many descriptors, so each holder has a share. They open their
//! connections at the same time, before the ramp, and hold them until after the window.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Signal, getrlimit};

use super::process::Process;
use crate::error::MeasureError;
use crate::plan::FDS_SPARE;

/// What a holder says when all its connections are open.
const READY: &str = "dead connections";
/// How long one connection may take to be set up when the server looks at tens of thousands of
/// them in each turn; more than ten times what select takes on two shared CPUs.
const SET_UP_EACH: Duration = Duration::from_millis(2);
/// The same for the holders themselves, and for what they do at the end.
const PATIENCE: Duration = Duration::from_secs(10);
/// A server that closes more than this share of what it should hold is not measured: it would
/// look good for the wrong reason.
const CLOSED_SHARE_MAX: f64 = 0.01;

/// Dead connections to a server.
pub(super) struct Dead {
    holders: Vec<Process>,
    count: usize,
}

impl Dead {
    /// Has `count` connections opened; each has had one answer when this returns.
    pub(super) fn open(
        count: usize,
        to: SocketAddr,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let each = usize::try_from(limit.saturating_sub(FDS_SPARE)).unwrap_or(usize::MAX).max(1);
        let mut holders = Vec::new();
        for (first, share) in shares(count, each) {
            let program = std::env::current_exe();
            let program = program.map_err(|cause| MeasureError::Io { call: "readlink", cause })?;
            let mut command = Command::new(program);
            command.args(["lab", "hold", "--to", &to.to_string()]);
            command.args(["--first", &first.to_string(), "--count", &share.to_string()]);
            holders.push(Process::start("pollux lab hold", command, Stdio::piped())?);
        }
        let patience = PATIENCE + SET_UP_EACH * u32::try_from(count).unwrap_or(u32::MAX);
        for holder in &mut holders {
            holder.says_within(READY, patience, is_interrupted)?;
        }
        Ok(Self { holders, count })
    }

    /// Ends the holders; how many connections the server had closed until then, or in words why
    /// they are too many for a measurement.
    pub(super) fn close(
        mut self,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<usize, String>, MeasureError> {
        self.holders.iter_mut().for_each(|holder| holder.signal(Signal::INT));
        let mut closed = 0;
        for mut holder in self.holders.drain(..) {
            if !holder.ends_within(PATIENCE, is_interrupted)? {
                return Err(holder.failed("did not end when it was asked to"));
            }
            let failure = holder.failed("printed no count");
            let (text, _) = holder.output()?;
            closed += text.trim().parse::<usize>().map_err(|_| failure)?;
        }
        Ok(judged(closed, self.count))
    }
}

fn judged(closed: usize, all: usize) -> Result<usize, String> {
    match closed as f64 > all as f64 * CLOSED_SHARE_MAX {
        true => Err(format!("closed {closed} of {all} dead connections")),
        false => Ok(closed),
    }
}

/// The first connection and the number of each holder, as even as can be.
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
    fn holders_share_the_connections_evenly() {
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
        assert_eq!(judged(10, 1000), Ok(10));
        assert_eq!(judged(0, 0), Ok(0));
        assert_eq!(judged(11, 1000), Err("closed 11 of 1000 dead connections".to_owned()));
    }
}
