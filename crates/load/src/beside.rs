//! Two servers that run now, measured beside each other in turns of some milliseconds.
//!
//! Whole runs fall into moods of the machine that differ by more than most changes do. Here both servers have
//! their connections open all the time, and take turns in random order: the change is formed within each
//! round, so what moves more slowly than a round falls out of it. A set is one opening of all connections; the
//! interval is that of sets. One thread asks; a closed loop alone makes sense.
//!
//! ```text
//!  set:  connections ─► warm-up ─► round: before, after │ after, before │ …    each: lead-in, turn, asleep
//! ```

use std::time::{Duration, Instant};

use pollux_processes::Tree;
use pollux_stats::{mean, set_ratio, standard_deviation};

use crate::compare::{Comparison, Moved, figure};
use crate::cpu::{cpu_time, tree_of};
use crate::{LoadError, Plan, Turned, Turns};

/// Rounds of a set: what differs between openings of connections is found by more sets.
const ROUNDS: usize = 40;
/// Sets at least, for an interval.
const SETS_MIN: usize = 4;
/// Length of a turn that is looked for.
const TURN: Duration = Duration::from_millis(5);
/// What of a turn goes before it and does not count, as caches are cold and a process wakes.
const LEAD_IN_PART: u64 = 4;
/// A turn that takes longer is given up.
const TURN_MAX: Duration = Duration::from_secs(5);
/// Between two looks whether a server sleeps, and looks at most.
const ASLEEP_LOOK: Duration = Duration::from_micros(50);
const ASLEEP_LOOKS_MAX: u32 = 200;
const SIDES: usize = 2;

/// What is found, in the order of the figures of a comparison.
const FOUND: [&str; 3] = ["mean", "server CPU", "generator CPU"];

/// One of the two servers.
#[derive(Clone, Debug)]
pub struct Side {
    /// How it is asked; a closed loop.
    pub plan: Plan,
    /// Its process, for its CPU time.
    pub pid: Option<u32>,
}

/// Compares two servers for about this long, and at least four sets; ends early, after a round, once
/// `is_over` says so.
///
/// # Errors
/// [`LoadError`]: a plan makes no sense, a process is not there, a request failed, or it was over before
/// four sets were measured.
pub fn beside(
    sides: &[Side; SIDES],
    lasts: Duration,
    is_over: &dyn Fn() -> bool,
) -> Result<Comparison, LoadError> {
    let began = Instant::now();
    let mut random = fastrand::Rng::with_seed(sides[0].plan.seed);
    let mut trees = [tree(&sides[0])?, tree(&sides[1])?];
    let (mut sets, mut costs): (Vec<[Option<f64>; FOUND.len()]>, Costs) = Default::default();
    while sets.len() < SETS_MIN || began.elapsed() < lasts {
        let Some(set) = measured(sides, &mut trees, &mut random, is_over)? else { break };
        let ratio = |at: usize| {
            let of = |side: usize| set.iter().map(|round| round[side][at]).collect::<Vec<_>>();
            set_ratio(&of(1), &of(0)).map(|ratio| ratio.log_ratio)
        };
        sets.push(std::array::from_fn(ratio));
        for round in set {
            for (side, found) in round.into_iter().enumerate() {
                costs[side].push(found);
            }
        }
    }
    if sets.len() < SETS_MIN {
        let why = format!(
            "ended after {} of at least {SETS_MIN} sets of turns; so few say nothing",
            sets.len()
        );
        return Err(LoadError::Run { why });
    }
    let moved = FOUND.iter().enumerate().filter_map(|(at, name)| {
        let logs = sets.iter().map(|set| set[at]).collect::<Option<Vec<f64>>>()?;
        let error = standard_deviation(&logs)? / (logs.len() as f64).sqrt();
        let middle = |side: usize| {
            let mut values: Vec<f64> = costs[side].iter().map(|found| found[at]).collect();
            values.sort_unstable_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let error = Some((error, logs.len() as u32 - 1));
        let (before, after) = (middle(0), middle(1));
        Some((figure(name)?, Moved { before, after, centre: mean(&logs)?, error }))
    });
    Ok(Comparison::of_turns(&moved.collect::<Vec<_>>(), sets.len(), ROUNDS))
}

/// Of each side, what each of its turns took: latency, CPU time of the server and of this thread.
type Costs = [Vec<[f64; FOUND.len()]>; SIDES];

fn tree(side: &Side) -> Result<Option<Tree>, LoadError> {
    let Some(pid) = side.pid else { return Ok(None) };
    let refused =
        |error| LoadError::Plan { what: "the server's process", why: format!("{pid}: {error}") };
    tree_of(pid).map(Some).map_err(refused)
}

/// What a round found of each side.
type Round = [[f64; FOUND.len()]; SIDES];

/// The rounds of one set; nothing when it was over before the last of them.
fn measured(
    sides: &[Side; SIDES],
    trees: &mut [Option<Tree>; SIDES],
    random: &mut fastrand::Rng,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Vec<Round>>, LoadError> {
    let mut arms = [Turns::open(sides[0].plan.clone())?, Turns::open(sides[1].plan.clone())?];
    let connections = u64::from(sides[0].plan.connections);
    // Both warm up; the slower one says how many requests make a turn.
    let mut requests = u64::MAX;
    let sound = |turned: Turned, side: usize| sound(turned, side, &sides[side].plan);
    for (side, arm) in arms.iter_mut().enumerate() {
        sound(arm.turn(TURN * 4, None)?, side)?;
        requests = requests.min(sound(arm.turn(TURN, None)?, side)?.right);
    }
    let requests = requests.max(connections * 2);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        if is_over() {
            return Ok(None);
        }
        let mut round = [[0.0; FOUND.len()]; SIDES];
        let first = random.usize(..SIDES);
        for side in [first, 1 - first] {
            let lead_in = (requests / LEAD_IN_PART).max(connections);
            sound(arms[side].turn(TURN_MAX, Some(lead_in))?, side)?;
            let (server, own) = (asleep(&mut trees[side]), cpu_time());
            let turned = sound(arms[side].turn(TURN_MAX, Some(requests))?, side)?;
            let own = cpu_time().saturating_sub(own);
            let server = asleep(&mut trees[side]).saturating_sub(server);
            let each = |time: Duration| time.as_secs_f64() * 1e6 / turned.right as f64;
            // Each connection waits for its answers one after the other.
            let latency_ns = each(turned.took) * 1e3 * connections as f64;
            round[side] = [latency_ns, each(server), each(own)];
        }
        rounds.push(round);
    }
    Ok(Some(rounds))
}

/// A turn in which nothing failed: another one measures something else.
fn sound(turned: Turned, side: usize, plan: &Plan) -> Result<Turned, LoadError> {
    if turned.failed == 0 && turned.right > 0 {
        return Ok(turned);
    }
    let server = ["the first server", "the second server"][side];
    let url = plan.targets.first().map_or("", |target| &target.url);
    let what = match turned.failed {
        0 => "answered no request in a turn".to_owned(),
        1 => "failed 1 request of a turn, or answered it wrongly".to_owned(),
        failed => format!("failed {failed} requests of a turn, or answered them wrongly"),
    };
    let why = format!(
        "{server}, {url}, {what}; expected right answers alone: pollux load {url} says what is wrong"
    );
    Err(LoadError::Run { why })
}

/// CPU time of a server once it sleeps; nothing where it is not known.
fn asleep(tree: &mut Option<Tree>) -> Duration {
    let Some(tree) = tree else { return Duration::ZERO };
    tree.cpu_time_asleep(|used| {
        let mut before = used();
        for _ in 0..ASLEEP_LOOKS_MAX {
            std::thread::sleep(ASLEEP_LOOK);
            let now = used();
            if now == before {
                return;
            }
            before = now;
        }
    })
}
