//! Flags that could do nothing in the run that is asked for: a mistake, never ignored in silence.
//!
//! Those that exclude or need each other are told by their table; here is what depends on the plan.

use std::time::Duration;

use pollux_load::{LoadError, Pace, Plan};

use super::flags::LoadSettings;

/// Says which of `flags` has no use in `plan`, and what it needs.
///
/// # Errors
/// [`LoadError::Plan`] with the flag.
pub(crate) fn check(flags: &LoadSettings, plan: &Plan) -> Result<(), LoadError> {
    let is_encrypted = plan.targets.iter().any(|target| target.tls_name.is_some());
    let asked = [
        ("--insecure", flags.is_insecure),
        ("--cacert", flags.cacert.is_some()),
        ("--no-resumption", flags.is_unresumed),
        ("--cert", flags.identity().is_some()),
    ];
    if let Some((what, _)) = asked.into_iter().find(|(_, is_asked)| *is_asked && !is_encrypted) {
        let why = "an http:// URL is not encrypted; it is for https://".to_owned();
        return Err(LoadError::Plan { what, why });
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
