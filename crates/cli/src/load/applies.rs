//! Flags that could do nothing in the run that is asked for: a mistake, never ignored in silence.
//!
//! Those that exclude each other are told by the flags themselves; here is what depends on values.

use std::time::Duration;

use pollux_load::{Arrival, LoadError, Pace, Plan};

use super::flags::{ArrivalFlag, LoadFlags};

/// Says which of `flags` has no use in `plan`, and what it needs.
///
/// # Errors
/// [`LoadError::Plan`] with the flag.
pub(crate) fn check(flags: &LoadFlags, plan: &Plan) -> Result<(), LoadError> {
    let is_open = flags.rate.is_some() || flags.find_capacity;
    let is_encrypted = plan.targets.iter().any(|target| target.tls_name.is_some());
    let is_random = plan.targets.len() > 1
        || flags.arrival == Some(ArrivalFlag::Poisson)
        || matches!(plan.pace, Pace::Open { arrival: Arrival::Poisson, .. });
    let useless = [
        (
            "--arrival",
            flags.arrival.is_some() && !is_open,
            "it spaces the requests of --rate; give --rate too",
        ),
        (
            "--insecure",
            flags.insecure && !is_encrypted,
            "an http:// URL has no certificate; it is for https://",
        ),
        (
            "--cacert",
            flags.cacert.is_some() && !is_encrypted,
            "an http:// URL has no certificate; it is for https://",
        ),
        (
            "--drip",
            flags.drip.is_some() && flags.slow == 0,
            "it is for slow connections; give --slow too",
        ),
        (
            "--trial",
            flags.trial.is_some() && !flags.find_capacity,
            "it is for the search; give --find-capacity too",
        ),
        (
            "--seed",
            flags.seed.is_some() && !is_random,
            "nothing is random in this run; it is for --arrival poisson and for several URLs",
        ),
    ];
    if let Some((what, _, why)) = useless.into_iter().find(|(_, is_useless, _)| *is_useless) {
        return Err(LoadError::Plan { what, why: why.to_owned() });
    }
    pipeline(plan)?;
    stages(plan)
}

/// A pipeline that no connection lives long enough for.
fn pipeline(plan: &Plan) -> Result<(), LoadError> {
    match plan.requests_per_connection {
        Some(requests) if requests.get() < plan.pipeline => {
            let each = match requests.get() {
                1 => "one request".to_owned(),
                more => format!("{more} requests"),
            };
            let why = format!("a connection has {each} in all, fewer than this; ask for no more");
            Err(LoadError::Plan { what: "--pipeline", why })
        }
        _ => Ok(()),
    }
}

/// A stage that begins after the end of the run.
fn stages(plan: &Plan) -> Result<(), LoadError> {
    let (Pace::Open { stages, .. }, Some(after)) = (&plan.pace, plan.end.after) else {
        return Ok(());
    };
    let ends = plan.warm_up + after;
    let mut begins = Duration::ZERO;
    for (number, stage) in stages.iter().enumerate() {
        if number > 0 && begins >= ends {
            let number = number + 1;
            let why = format!(
                "stage {number} would never begin: that is after {begins:?}, and the run ends \
                 after {ends:?}, warm-up included; give a longer --duration"
            );
            return Err(LoadError::Plan { what: "--rate", why });
        }
        begins += stage.lasts.unwrap_or_default();
    }
    Ok(())
}
