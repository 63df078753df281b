//! Whole runs against small servers, on every driver that is to be had here.

mod closed;
mod crowds;
mod encrypted;
mod faults;
mod paces;
mod refusals;
mod server;
mod shapes;

use std::num::NonZeroU32;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{Crowd, End, Expect, Load, LoadError, Outcome, Pace, Plan, Target, Trust};

/// A plan of `requests` over `connections`, in a closed loop without a warm-up.
pub(crate) fn plan(driver: Driver, url: &str, connections: u32, requests: u64) -> Plan {
    Plan {
        targets: vec![Target::parse(url, None).expect("a URL")],
        driver,
        threads: 1,
        cpus: None,
        connections,
        pace: Pace::Closed,
        end: End { requests: Some(requests), after: None },
        warm_up: Duration::ZERO,
        requests_per_connection: None,
        pipeline: 1,
        think_time: Duration::ZERO,
        connect_timeout: Duration::from_secs(10),
        request_timeout: Duration::from_secs(10),
        grace: Duration::from_secs(10),
        expect: Expect::default(),
        list: None,
        objectives: Vec::new(),
        quantiles: Vec::new(),
        sources: Vec::new(),
        crowd: Crowd::default(),
        trust: Trust::default(),
        resumes: true,
        keeps_cookies: false,
        identity: None,
        server_pid: None,
        seed: 1,
    }
}

/// Carries out `plan`; `None` where its driver is not to be had.
pub(crate) fn try_run(plan: Plan) -> Option<Outcome> {
    match Load::start(plan) {
        Ok(running) => Some(running.join().expect("a run")),
        Err(LoadError::Loop { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Carries out the same plan on every driver that is to be had, and looks at what came of it.
pub(crate) fn on_every_driver(make: impl Fn(Driver) -> Plan, look: impl Fn(&Outcome)) {
    let mut ran = 0;
    for driver in Driver::ALL {
        if let Some(outcome) = try_run(make(driver)) {
            look(&outcome);
            ran += 1;
        }
    }
    assert!(ran >= 5, "select, poll and the kinds of epoll are everywhere");
}

/// What every outcome has to keep to.
pub(crate) fn is_sound(outcome: &Outcome) {
    let Outcome { totals, errors, latency, first_byte, setting, .. } = outcome;
    let at = format!("{} {totals:?} {errors:?}", setting.driver);
    assert_eq!(latency.count(), totals.answered, "{at}");
    assert_eq!(first_byte.count(), totals.answered, "{at}");
    assert_eq!(totals.by_class.iter().sum::<u64>(), totals.answered, "{at}");
    let wrong = errors.status + errors.mismatch;
    assert_eq!(totals.right + totals.redirected + wrong, totals.answered, "{at}");
}

pub(crate) fn some(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}
