//! What a plan has to keep to, before anything is opened.
//!
//! Every refusal names the flag of `pollux load` and what would be right.

use std::io;
use std::net::{IpAddr, UdpSocket};

use pollux_engine::ListenAddress;
use rustix::process::{Resource, getrlimit};

use crate::{LoadError, Pace, Plan, Stage};

/// Requests under way on one connection at most.
pub const PIPELINE_MAX: u32 = 1024;
/// Threads at most: far more than machines that have a use for them have CPUs.
pub const THREADS_MAX: u32 = 1024;
/// Descriptors that a run needs beside its connections: loops, timers, files of the program.
const DESCRIPTORS_OVER: u64 = 32;
/// And for each thread.
const DESCRIPTORS_PER_THREAD: u64 = 8;

/// Says what is wrong with `plan`.
///
/// # Errors
/// [`LoadError::Plan`].
pub(crate) fn check(plan: &Plan) -> Result<(), LoadError> {
    targets(plan)?;
    numbers(plan)?;
    pace(plan)?;
    sources(plan)?;
    descriptors(plan)
}

fn refuse<T>(what: &'static str, why: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError::Plan { what, why: why.into() })
}

fn targets(plan: &Plan) -> Result<(), LoadError> {
    let Some(first) = plan.targets.first() else {
        return refuse("URL", "there is none; say what to ask for");
    };
    if plan.list.as_ref().is_some_and(|(list, _)| list.is_empty()) {
        return refuse("requests", "the list of them is empty");
    }
    if plan.list.is_some() && plan.targets.len() > 1 {
        return refuse("URL", "a list of requests goes to one URL; give one");
    }
    let of_list = plan.list.as_ref().is_some_and(|(list, _)| list.has_cookie());
    if plan.keeps_cookies
        && (of_list || plan.targets.iter().any(|target| target.has_field("cookie")))
    {
        return refuse(
            "--cookies",
            "a request has a Cookie field of its own; leave one of both out",
        );
    }
    for target in &plan.targets {
        if target.address != first.address {
            let why = format!(
                "{} and {} are at different addresses; a run asks one server",
                first.url, target.url
            );
            return refuse("URL", why);
        }
        if target.weight == 0 {
            return refuse("URL", format!("{} has weight 0; leave it out", target.url));
        }
        if target.tls_name != first.tls_name {
            let why = format!(
                "{} and {} differ in encryption or name; connections are shared by all targets",
                first.url, target.url
            );
            return refuse("URL", why);
        }
    }
    Ok(())
}

fn numbers(plan: &Plan) -> Result<(), LoadError> {
    if !(1..=THREADS_MAX).contains(&plan.threads) {
        return refuse("--threads", format!("it is {}, not 1 to {THREADS_MAX}", plan.threads));
    }
    let is_crowd_only = plan.connections == 0 && !plan.crowd.is_empty();
    if plan.connections < plan.threads && !is_crowd_only {
        let (connections, threads) = (plan.connections, plan.threads);
        let why = format!("{connections} for {threads} threads; each thread needs at least one");
        return refuse("--connections", why);
    }
    if !(1..=PIPELINE_MAX).contains(&plan.pipeline) {
        return refuse("--pipeline", format!("it is {}, not 1 to {PIPELINE_MAX}", plan.pipeline));
    }
    if plan.end.requests.is_none() && plan.end.after.is_none() {
        return refuse("--duration", "the run has no end; give a duration or --requests");
    }
    if plan.end.requests == Some(0) || plan.end.after.is_some_and(|after| after.is_zero()) {
        return refuse("--duration", "the run would end before it begins");
    }
    if plan.connect_timeout.is_zero() || plan.request_timeout.is_zero() {
        return refuse("--timeout", "it is zero; everything would fail");
    }
    if plan.crowd.slow > 0 && plan.crowd.drip.is_zero() {
        return refuse("--drip", "it is zero; a slow connection waits between its bytes");
    }
    Ok(())
}

fn pace(plan: &Plan) -> Result<(), LoadError> {
    let has_think_time = !plan.think_time.is_zero();
    match &plan.pace {
        Pace::Closed if has_think_time && plan.pipeline > 1 => refuse(
            "--think",
            "with --pipeline it is not clear after which answer to think; use one of both",
        ),
        Pace::Closed => Ok(()),
        Pace::Open { .. } if has_think_time => {
            refuse("--think", "with --rate the schedule says when requests begin")
        }
        Pace::Open { stages, .. } => {
            rate(stages)?;
            let falls_to_zero = stages.last().is_some_and(|stage| stage.to_per_s == 0.0);
            match falls_to_zero && plan.end.after.is_none() {
                true => refuse(
                    "--rate",
                    "it ends at zero, and what is missing of --requests then would never come; \
                     give --duration too",
                ),
                false => Ok(()),
            }
        }
    }
}

fn rate(stages: &[Stage]) -> Result<(), LoadError> {
    let is_rate = |rate: f64| rate.is_finite() && rate >= 0.0;
    for (number, stage) in stages.iter().enumerate() {
        if !is_rate(stage.from_per_s) || !is_rate(stage.to_per_s) {
            return refuse("--rate", format!("stage {} is not a rate", number + 1));
        }
        if stage.lasts.is_none() && number + 1 < stages.len() {
            return refuse("--rate", format!("stage {} has no end; only the last may", number + 1));
        }
    }
    if stages.iter().all(|stage| stage.from_per_s == 0.0 && stage.to_per_s == 0.0) {
        return refuse("--rate", "nothing would ever be asked for");
    }
    Ok(())
}

fn sources(plan: &Plan) -> Result<(), LoadError> {
    let is_wrong = |source: &&IpAddr| match &plan.targets[0].address {
        ListenAddress::Tcp(address) => address.is_ipv4() != source.is_ipv4(),
        ListenAddress::Unix(_) => true,
    };
    match plan.sources.iter().find(is_wrong) {
        None => Ok(()),
        Some(source) => {
            let address = &plan.targets[0].address;
            refuse("--source", format!("no connection to {address} can come from {source}"))
        }
    }?;
    plan.sources.iter().try_for_each(is_ours)
}

/// Whether something can be bound to `source`. Only an address that is not of this machine is
/// refused: whatever else fails says so when connections are opened.
fn is_ours(source: &IpAddr) -> Result<(), LoadError> {
    match UdpSocket::bind((*source, 0)) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => refuse(
            "--source",
            format!("{source} is not an address of this machine (`ip addr` lists them)"),
        ),
        _ => Ok(()),
    }
}

fn descriptors(plan: &Plan) -> Result<(), LoadError> {
    let crowd = [plan.crowd.dead, plan.crowd.silent, plan.crowd.slow];
    let connections = crowd.map(u64::from).iter().sum::<u64>() + u64::from(plan.connections);
    let over = DESCRIPTORS_OVER + DESCRIPTORS_PER_THREAD * u64::from(plan.threads);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if connections + over > limit => refuse(
            "--connections",
            format!(
                "{connections} connections need {} descriptors, and the limit is {limit}; raise \
                 it with ulimit -n",
                connections + over
            ),
        ),
        _ => Ok(()),
    }
}
