//! `pollux load turns`: two servers that run now, compared in turns of some milliseconds.
//!
//! How turns are taken and judged is the generator's; here they run beside the signals that end them.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use pollux_engine::{Driver, Signals};
use pollux_load::compare::{Change, Comparison};
use pollux_load::{LoadError, Side, beside};

use super::drive::{Interrupt, at_once, remark_refused};
use super::flags::{LoadFlags, LoadSettings};
use super::results::WORSE;
use super::{failure, plan};
use crate::output::{self, Failure};

/// Default time for which turns are taken.
const LAST: Duration = Duration::from_secs(30);
/// So late is the end of the turns noticed.
const STEP: Duration = Duration::from_millis(25);

/// Compares the servers of the two URLs in `flags`, whose processes `pids` are.
pub(super) fn run(
    flags: &LoadFlags,
    pids: [Option<u32>; 2],
    gate: bool,
) -> Result<ExitCode, Failure> {
    let settings = flags.read().map_err(Failure::usage)?;
    if let Some(flag) = useless(&settings) {
        let why =
            format!("{flag}: it is of no use in turns, which are a closed loop of one thread");
        return Err(Failure::usage(why));
    }
    let count = settings.urls.len();
    if count != pids.len() {
        let s = if count == 1 { "" } else { "s" };
        return Err(Failure::usage(format!(
            "{count} URL{s} given; expected two: of the server before, and of the one after"
        )));
    }
    let side = |at: usize| {
        let mut own = settings.clone();
        own.urls = vec![settings.urls[at].clone()];
        let plan = plan::plan(&own).map_err(|error| failure(&error))?;
        Ok::<_, Failure>(Side { plan, pid: pids[at] })
    };
    let mut sides = [side(0)?, side(1)?];
    pollux_sys::descriptors::raise().map_err(Failure::failed)?;
    let mut signals = Signals::catch(&Interrupt::SIGNALS).map_err(Failure::failed)?;
    let lasts = settings.duration.unwrap_or(LAST);
    let turns = Driver::start_first(settings.poller, |driver| {
        sides.iter_mut().for_each(|side| side.plan.driver = driver);
        match taken(&sides, lasts, &mut signals) {
            Ok((Err(refused @ LoadError::Loop { .. }), None)) => Err(refused),
            turns => Ok(turns),
        }
    });
    let turns = turns.map_err(|error| failure(&error))?;
    remark_refused(&turns);
    let (found, interrupt) = turns.value?;
    let found = match (found, interrupt) {
        (Ok(found), _) => found,
        (Err(error), None) => return Err(failure(&error)),
        (Err(error), Some(interrupt)) => {
            return Err(Failure { message: output::in_words(&error), code: interrupt.exit_code() });
        }
    };
    output::result(&match settings.output.json {
        Some(_) => serde_json::to_string_pretty(&found).expect("plain data") + "\n",
        None => output::shown(&found.table()),
    })?;
    Ok(match interrupt {
        Some(interrupt) => interrupt.exit_code(),
        None if gate && found.has(Change::Worse) => ExitCode::from(WORSE),
        None => ExitCode::SUCCESS,
    })
}

/// What the turns found, and what ended them early. The first interrupt ends them after a round,
/// the second at once.
fn taken(
    sides: &[Side; 2],
    lasts: Duration,
    signals: &mut Signals,
) -> Result<(Result<Comparison, LoadError>, Option<Interrupt>), Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let (sides, asked) = (sides.clone(), Arc::clone(&is_over));
    let turns = std::thread::Builder::new().name("load-turns".to_owned());
    let turns = turns.spawn(move || beside(&sides, lasts, &|| asked.load(Relaxed)));
    let turns = turns.map_err(Failure::failed)?;
    let mut interrupt = None;
    while !turns.is_finished() {
        let Some(signal) = signals.wait(Some(STEP)).map_err(Failure::failed)? else { continue };
        let now = Interrupt::Signal(signal);
        if interrupt.is_some() {
            return Err(at_once(now));
        }
        interrupt = Some(now);
        is_over.store(true, Relaxed);
    }
    let found =
        turns.join().map_err(|_| Failure::failed("the thread that takes turns panicked"))?;
    Ok((found, interrupt))
}

/// A flag that asks for what turns are not.
fn useless(settings: &LoadSettings) -> Option<&'static str> {
    let LoadSettings { output, .. } = settings;
    let asked = [
        ("--rate", settings.rate.is_some()),
        ("--requests", settings.requests.is_some()),
        ("--warm-up", settings.warm_up.is_some()),
        ("--think", !settings.think.is_zero()),
        ("--pipeline", settings.pipeline > 1),
        ("--threads", settings.threads > 1),
        ("--slo", !settings.objectives.is_empty()),
        ("--percentiles", !settings.quantiles.is_empty()),
        ("--find-capacity", settings.finds_capacity),
        ("--hold", settings.holds),
        ("--prometheus", settings.prometheus.is_some()),
        ("--server-pid", settings.server_pid.is_some()),
        ("--hlog", output.hlog.is_some()),
        ("--csv", output.csv.is_some()),
        ("--html", output.html.is_some()),
        ("--as", output.style.is_some()),
        ("--json", output.json.as_ref().is_some_and(|path| path.as_os_str() != "-")),
    ];
    asked.into_iter().find(|(_, is_asked)| *is_asked).map(|(flag, _)| flag)
}
