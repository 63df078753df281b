//! What `pollux serve` can give up on this machine once it serves: paths, system calls, requests of its
//! ring. Each part is tried, on a thread that ends with it.

use pollux_poller::Mechanism;
use pollux_sys::ring::RESTRICTED;

use super::check::{Check, Concern, Judgement, Subject};
use super::readings::Readings;
use crate::host::Reading;

/// What was tried.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// What landlock said of itself.
    pub landlock: Reading<String>,
    /// A filter was put in force.
    pub seccomp: Reading<()>,
    /// A ring was restricted.
    pub ring: Reading<()>,
}

impl Sandbox {
    pub(super) fn take() -> Self {
        let landlock = match pollux_sandbox::try_files() {
            Ok(confined) => Reading::Value(confined.to_string()),
            Err(unavailable) => Reading::unavailable(unavailable.reason),
        };
        let seccomp = match pollux_sandbox::try_calls() {
            Ok(()) => Reading::Value(()),
            Err(unavailable) => Reading::unavailable(unavailable.reason),
        };
        Self { landlock, seccomp, ring: ring() }
    }
}

fn ring() -> Reading<()> {
    match Mechanism::UringPoll.open() {
        Ok(poller) if poller.caps().notes.iter().any(|note| note == RESTRICTED) => {
            Reading::Value(())
        }
        Ok(_) => Reading::unavailable("this kernel restricts no ring"),
        // A server has none then.
        Err(error) => Reading::unavailable(error.to_string()),
    }
}

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    let Sandbox { landlock, seccomp, ring } = &readings.sandbox;
    let landlock =
        part("sandbox_landlock", landlock, "every path stays in reach of `pollux serve`");
    let seccomp = part(
        "sandbox_seccomp",
        &seccomp.clone().map(|()| "yes".to_owned()),
        "`pollux serve` may make every system call",
    );
    let mut checks = vec![landlock, seccomp];
    // Without rings nothing is asked of one.
    if readings.ring.value().is_some() {
        let ring = &ring.clone().map(|()| "yes".to_owned());
        checks.push(part("sandbox_ring", ring, "the ring of `pollux serve` takes every request"));
    }
    checks
}

/// A refusal is an answer here, and not a figure that is missing.
fn part(name: &'static str, tried: &Reading<String>, effect: &str) -> Check {
    let subject = Subject { name, unit: None, concerns: &[Concern::Servers] };
    let found = tried.value().cloned().unwrap_or_else(|| "no".to_owned());
    subject.judge(Reading::Value(found), "in force where it is tried", |_| match tried.reason() {
        None => Judgement::ok(),
        Some(reason) => Judgement::limits(format!("{effect}: {reason}")),
    })
}
