//! From flags to a plan: what they mean together, and the defaults that depend on each other.
//!
//! The generator checks the plan itself; here only what it cannot see is refused.

use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Address, Driver, ListenAddress};
use pollux_load::{
    Crowd, End, Expect, LoadError, LoadPart, Pace, Plan, RequestList, RequestOrder, Stage, Target,
    Trust,
};

use super::flags::{DURATION, LoadSettings, TRIAL, WARM_UP};
use super::list;

/// How long answers are waited for when the time of a run is over: longer than answers of a
/// server that works take, too short to be waited for.
const GRACE: Duration = Duration::from_millis(250);

/// The plan that `flags` ask for.
///
/// # Errors
/// [`LoadError::Url`] for URLs that are none, [`LoadError::Plan`] for flags without a use. Host names are looked up here:
/// [`LoadError::Lookup`].
pub(crate) fn plan(flags: &LoadSettings) -> Result<Plan, LoadError> {
    let targets = targets(flags)?;
    let (warm_up, after) = times(flags);
    let list = list(flags, &targets)?;
    Ok(Plan {
        targets,
        list,
        driver: flags.poller.unwrap_or(Driver::PREFERRED[0]),
        threads: flags.threads,
        cpus: flags.cpus.clone(),
        connections: flags.connections,
        pace: pace(flags),
        end: End { requests: flags.requests, after },
        warm_up,
        requests_per_connection: flags.requests_per_connection(),
        pipeline: flags.pipeline,
        http: flags.http,
        streams: flags.streams,
        stream_window: flags.window,
        connection_window: flags.connection_window,
        think_time: flags.think,
        connect_timeout: flags.connect_timeout,
        request_timeout: flags.timeout,
        grace: GRACE,
        expect: Expect { status: flags.expect_status, body_bytes: flags.expect_bytes },
        // The search judges each trial by it itself.
        objectives: if flags.finds_capacity { Vec::new() } else { flags.objectives.clone() },
        quantiles: flags.quantiles.clone(),
        sources: flags.sources.clone(),
        crowd: Crowd { dead: flags.dead, silent: flags.silent, slow: flags.slow, drip: flags.drip },
        trust: match &flags.cacert {
            Some(path) => Trust::File(path.clone()),
            None if flags.is_insecure => Trust::AnyCertificate,
            None => Trust::Public,
        },
        resumes: !flags.is_unresumed,
        keeps_cookies: flags.keeps_cookies,
        unproven_max: None,
        identity: flags.identity(),
        server_pid: flags.server_pid,
        seed: flags.seed,
        part: LoadPart::WHOLE,
    })
}

/// The length of the warm-up, and of what is counted where that ends by time.
pub(crate) fn times(flags: &LoadSettings) -> (Duration, Option<Duration>) {
    let is_counted = flags.requests.is_some();
    let warm_up = if is_counted { Duration::ZERO } else { WARM_UP };
    let warm_up = flags.warm_up.unwrap_or(warm_up);
    (warm_up, flags.duration.or_else(|| (!is_counted).then(|| duration(flags, warm_up))))
}

/// How long a run lasts where no flag sets it: as long as its schedule, where that has an end.
fn duration(flags: &LoadSettings, warm_up: Duration) -> Duration {
    let Some(stages) = &flags.rate else { return DURATION };
    let whole: Option<Duration> = stages.iter().map(|stage| stage.lasts).sum();
    whole
        .and_then(|whole| whole.checked_sub(warm_up))
        .filter(|rest| !rest.is_zero())
        .unwrap_or(DURATION)
}

/// The same plan as a trial of a rate.
pub(crate) fn trial(flags: &LoadSettings, plan: &Plan, rate_per_s: f64) -> Plan {
    let stages = vec![Stage { from_per_s: rate_per_s, to_per_s: rate_per_s, lasts: None }];
    Plan {
        pace: Pace::Open { arrival: flags.arrival, stages },
        end: End { requests: None, after: Some(trial_length(flags)) },
        warm_up: trial_warm_up(flags),
        ..plan.clone()
    }
}

/// What is not counted at the start of a trial; a short one has a short one.
pub(crate) fn trial_warm_up(flags: &LoadSettings) -> Duration {
    flags.warm_up.unwrap_or(WARM_UP.min(trial_length(flags) / 5))
}

/// How long a trial counts.
pub(crate) fn trial_length(flags: &LoadSettings) -> Duration {
    flags.trial.unwrap_or(TRIAL)
}

fn targets(flags: &LoadSettings) -> Result<Vec<Target>, LoadError> {
    let body = flags.body.clone().unwrap_or_default();
    let method = match (&flags.method, &flags.body) {
        (Some(method), _) => method,
        (None, Some(_)) => "POST",
        (None, None) => "GET",
    };
    // A host that is named takes the place of the URL's; where to connect to stays.
    let is_host = |field: &&(String, String)| field.0.eq_ignore_ascii_case("host");
    let host = flags.fields.iter().find(is_host);
    let fields: Vec<_> = flags.fields.iter().filter(|field| !is_host(field)).cloned().collect();
    let mut fields = fields;
    if let Some(value) = &flags.user {
        if fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            let why = "the header Authorization says it already; use one of both".to_owned();
            return Err(LoadError::Plan { what: "--user", why });
        }
        fields.push(("Authorization".to_owned(), value.clone()));
    }
    let unix = flags.unix.clone().map(|path| Address::from(ListenAddress::Unix(path)));
    let instead = unix.as_ref().or(flags.connect_to.as_ref());
    let target = |weighted: &super::values::Weighted| {
        let parsed = Target::parse(&weighted.url, instead)?;
        Ok(Target {
            method: method.to_owned(),
            host: host.map_or_else(|| parsed.host.clone(), |field| field.1.clone()),
            fields: fields.clone(),
            body: body.clone(),
            weight: weighted.weight,
            ..parsed
        })
    };
    flags.urls.iter().map(target).collect()
}

/// The requests of a file or of patterns, and their order; `None` when there are only the targets.
fn list(
    flags: &LoadSettings,
    targets: &[Target],
) -> Result<Option<(Arc<RequestList>, RequestOrder)>, LoadError> {
    let closes = flags.requests_per_connection().is_some_and(|requests| requests.get() == 1);
    let mut list = RequestList::new(closes);
    match &flags.requests_from {
        Some(_) if targets.len() > 1 => {
            let why = "its requests go to the server of one URL; give one".to_owned();
            return Err(LoadError::Plan { what: "--requests-from", why });
        }
        Some(_) if list::has_pattern(&targets[0].url) || targets[0].weight != 1 => {
            let why = format!(
                "its lines are what is asked for, and {} only says of which server; expected a URL without \
                 weight and [FIRST-LAST]: these may stand in the lines",
                targets[0].url
            );
            return Err(LoadError::Plan { what: "--requests-from", why });
        }
        Some(path) => list::read(path, &targets[0], &mut list)?,
        None if !targets.iter().any(|target| list::has_pattern(&target.url)) => return Ok(None),
        None if targets.len() > 1 => {
            let why = "several URLs with a pattern; write them into a file for --requests-from";
            return Err(LoadError::Plan { what: "URL", why: why.to_owned() });
        }
        None => list::expand(&targets[0], &mut list)?,
    }
    let order = match (flags.order, list.is_weighted()) {
        (Some(RequestOrder::InTurn), true) if flags.requests_from.is_some() => {
            let why = "weights say how often requests are chosen at random; expected random, or no \
                       weights";
            return Err(LoadError::Plan { what: "--order", why: why.to_owned() });
        }
        (Some(order), _) => order,
        (None, true) => RequestOrder::Random,
        (None, false) => RequestOrder::InTurn,
    };
    Ok(Some((Arc::new(list), order)))
}

fn pace(flags: &LoadSettings) -> Pace {
    match &flags.rate {
        None => Pace::Closed,
        Some(rate) => Pace::Open { arrival: flags.arrival, stages: rate.clone() },
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use clap::{Args, Command, FromArgMatches};
    use pollux_load::Arrival;

    use super::*;
    use crate::load::flags::LoadFlags;

    fn flags(line: &str) -> Result<LoadSettings, String> {
        let words = std::iter::once("load").chain(line.split(' '));
        let command = LoadFlags::augment_args(Command::new("load"));
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let flags = LoadFlags::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        flags.read().map_err(|mistakes| mistakes.to_string())
    }

    fn planned(line: &str) -> Plan {
        plan(&flags(line).unwrap_or_else(|error| panic!("{error}"))).expect(line)
    }

    #[test]
    fn a_url_is_enough() {
        let plan = planned("http://127.0.0.1:1/");
        assert_eq!((plan.connections, plan.threads, plan.pipeline), (64, 1, 1));
        assert_eq!(plan.end, End { requests: None, after: Some(Duration::from_secs(10)) });
        assert_eq!((plan.warm_up, plan.pace), (Duration::from_secs(1), Pace::Closed));
        assert_eq!((&*plan.targets[0].method, plan.requests_per_connection), ("GET", None));
    }

    #[test]
    fn a_number_of_requests_takes_the_place_of_duration_and_warm_up() {
        let plan = planned("-n 5 http://127.0.0.1:1/");
        assert_eq!(plan.end, End { requests: Some(5), after: None });
        assert_eq!(plan.warm_up, Duration::ZERO);
        let both = planned("-n 5 -d 2s --warm-up 1s http://127.0.0.1:1/");
        assert_eq!((both.end.after, both.warm_up.as_secs()), (Some(Duration::from_secs(2)), 1));
    }

    #[test]
    fn a_schedule_with_an_end_is_run_whole() {
        let ramp = planned("--rate 100..200@60s http://127.0.0.1:1/");
        assert_eq!((ramp.end.after, ramp.warm_up.as_secs()), (Some(Duration::from_secs(59)), 1));
        let endless = planned("--rate 100@60s,200 -d 99s http://127.0.0.1:1/");
        assert_eq!(endless.end.after, Some(Duration::from_secs(99)));
        assert_eq!(planned("--rate 100 http://127.0.0.1:1/").end.after, Some(DURATION));
    }

    #[test]
    fn a_body_is_posted_unless_a_method_is_named() {
        assert_eq!(planned("--body x http://127.0.0.1:1/").targets[0].method, "POST");
        let put = planned("-X PUT --body x -H A:b http://127.0.0.1:1/");
        assert_eq!((&*put.targets[0].method, put.targets[0].body.len()), ("PUT", 1));
        assert_eq!(put.targets[0].fields, [("A".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn a_host_that_is_named_is_asked_for_at_the_address_of_the_url() {
        let plan = planned("-H host:www.example -H A:b http://127.0.0.1:1/");
        let target = &plan.targets[0];
        assert_eq!((&*target.host, &*target.address.to_string()), ("www.example", "127.0.0.1:1"));
        assert_eq!(target.fields, [("A".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn rates_crowds_and_sources_arrive_in_the_plan() {
        let line = "--rate 10@1s,20 --arrival poisson --dead 1 --silent 2 --slow 3 --drip 2s \
                    --source 127.0.0.2-127.0.0.3,127.0.0.9 --no-keepalive --cpus 0 \
                    --poller epoll 3@http://127.0.0.1:1/a http://127.0.0.1:1/b";
        let plan = planned(line);
        let Pace::Open { arrival: Arrival::Poisson, stages } = &plan.pace else {
            panic!("{:?}", plan.pace)
        };
        assert_eq!((stages.len(), plan.crowd.len(), plan.sources.len()), (2, 6, 3));
        assert_eq!(plan.requests_per_connection, NonZeroU32::new(1));
        assert_eq!(plan.targets.iter().map(|each| each.weight).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(plan.driver.name(), "epoll");
    }

    #[test]
    fn a_trial_is_an_open_loop_of_its_rate() {
        let line = "--find-capacity --slo p99=5ms --trial 300ms http://127.0.0.1:1/";
        let flags = flags(line).expect(line);
        let trial = trial(&flags, &plan(&flags).expect(line), 500.0);
        assert_eq!(trial.end.after, Some(Duration::from_millis(300)));
        assert_eq!(trial.warm_up, Duration::from_millis(60));
        assert!(matches!(trial.pace, Pace::Open { .. }));
    }

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        for line in [
            "-c 0 http://h/",
            "--rate fast http://h/",
            "--rate 5 --think 1s http://h/",
            "--find-capacity http://h/",
            "--find-capacity --slo p99=5ms -n 5 http://h/",
            "--unix s --source 127.0.0.1 http://h/",
            "--no-keepalive --requests-per-connection 2 http://h/",
            "--poller kqueue http://h/",
            "--drip 0s http://h/",
        ] {
            assert!(flags(line).is_err(), "{line}");
        }
    }
}
