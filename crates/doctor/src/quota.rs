//! The CPU quota of this process's control group, the narrowest from its own folder upwards.

use std::fmt;
use std::fs;
use std::path::Path;

use super::check::Found;
use crate::host::Reading;
use crate::host::machine::cpu_group_folders;

/// CPUs that a control group may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quota {
    /// All of them, all the time.
    Unlimited,
    /// So many in the mean over a period.
    Cpus(f64),
}

impl Quota {
    fn narrower(self, other: Self) -> Self {
        match (self, other) {
            (Self::Cpus(one), Self::Cpus(two)) => Self::Cpus(one.min(two)),
            (Self::Unlimited, narrow) | (narrow, Self::Unlimited) => narrow,
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => out.write_str("none"),
            Self::Cpus(cpus) => write!(out, "{cpus:.2} CPUs"),
        }
    }
}

impl From<Quota> for Found {
    fn from(quota: Quota) -> Self {
        match quota {
            Quota::Unlimited => Self::Text("none".to_owned()),
            Quota::Cpus(cpus) => Self::Decimal(cpus),
        }
    }
}

/// Reads it. A group without a file of its own (the topmost one of version 2) has no quota.
pub(super) fn read() -> Reading<Quota> {
    cpu_group_folders().map(|folders| {
        let up = folders.iter().flat_map(|folder| Path::new(folder).ancestors());
        up.filter_map(of_folder).fold(Quota::Unlimited, Quota::narrower)
    })
}

fn of_folder(folder: &Path) -> Option<Quota> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let second = || parse(&text("cpu.max")?);
    let first = || parse(&(text("cpu.cfs_quota_us")? + " " + &text("cpu.cfs_period_us")?));
    second().or_else(first)
}

/// `QUOTA PERIOD` in microseconds; a quota of `max` (version 2) or -1 (version 1) is none.
fn parse(text: &str) -> Option<Quota> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period) = (words.next()?, words.next()?.parse::<f64>().ok()?);
    match quota {
        "max" | "-1" => Some(Quota::Unlimited),
        quota => Some(Quota::Cpus(quota.parse::<f64>().ok()? / period)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_control_group_versions_tell_a_quota_and_its_absence() {
        assert_eq!(parse("max 100000\n"), Some(Quota::Unlimited));
        assert_eq!(parse("150000 100000\n"), Some(Quota::Cpus(1.5)));
        assert_eq!(parse("-1\n 100000\n"), Some(Quota::Unlimited));
        assert_eq!(parse("50000\n 100000\n"), Some(Quota::Cpus(0.5)));
        assert_eq!(parse("50000\n"), None);
    }

    #[test]
    fn the_narrowest_group_counts() {
        let all = [Quota::Cpus(4.0), Quota::Unlimited, Quota::Cpus(1.5)];
        let narrowest = all.into_iter().fold(Quota::Unlimited, Quota::narrower);
        assert_eq!(narrowest, Quota::Cpus(1.5));
    }
}
