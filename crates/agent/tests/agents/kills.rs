//! SIGKILL of an agent, of the controller and of the broker at several moments of a run, from its first question to its last
//! answer: it ends in time, says what is missing, and leaves nothing that runs.
//!
//! `POLLUX_AGENT_MOMENTS=10` has ten moments of each: run it after a change to what agents and controller say to each other.

use std::time::{Duration, Instant};

use pollux_load::FindingKind;
use pollux_testing::{Process, wait_until};

use crate::broker::Broker;
use crate::driven::{Driven, Ended, agents, counted, lasting, run};
use crate::server::Counting;

/// How many moments there are without [`VARIABLE`], and how many runs at the same time.
const MOMENTS: u32 = 3;
const VARIABLE: &str = "POLLUX_AGENT_MOMENTS";
/// From the start of the controller to its end.
const WHOLE: Duration = Duration::from_millis(2_600);
/// From a death to the end of all: what the table of `docs/scale.md` says, where five seconds are the longest time of it,
/// the rest of the run, and what a busy machine takes.
const END_TIME_MAX: Duration = Duration::from_secs(25);

/// A broker, three agents and a server.
struct Scene {
    broker: Broker,
    agents: Vec<Process>,
    server: Counting,
}

/// Starts a run for each moment, some at the same time, and has `kill` end something at that; `judge` sees how the run ended.
fn at_each_moment(
    kill: impl Fn(&mut Scene, &mut Driven) + Sync,
    judge: impl Fn(&Scene, Driven, u64) + Sync,
) {
    let moments = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let moments: u32 = moments.unwrap_or(MOMENTS);
    let at_moment = |moment: u32| {
        let broker = Broker::start(&[]);
        let agents = agents(&broker, 3);
        let mut scene = Scene { broker, agents, server: Counting::start() };
        let mut driven = Driven::start(&scene.broker, &lasting(&scene.server.url(), 1), 3);
        // Not a wait for anything: the moment is what is varied.
        std::thread::sleep(WHOLE * (2 * moment + 1) / (2 * moments));
        kill(&mut scene, &mut driven);
        let began = Instant::now();
        judge(&scene, driven, u64::from(moment));
        let took = began.elapsed();
        assert!(took < END_TIME_MAX, "moment {moment} of {moments}: {took:?}");
    };
    let all: Vec<u32> = (0..moments).collect();
    for together in all.chunks(MOMENTS as usize) {
        std::thread::scope(|scope| {
            for moment in together {
                scope.spawn(|| at_moment(*moment));
            }
        });
    }
}

impl Scene {
    /// Waits until so many agents have nothing to do, and proves it.
    fn are_idle(&self, count: u32) {
        wait_until("the agents are idle", || {
            run(&self.broker, &counted(&self.server.url(), 30), count).is_ok()
        });
        let before = self.server.requests();
        let after = run(&self.broker, &counted(&self.server.url(), 300), count);
        assert_eq!(after.expect("they are idle").totals.answered, 300);
        assert_eq!(self.server.requests(), before + 300, "something else runs");
    }
}

pub(crate) fn of_an_agent() {
    let kill = |scene: &mut Scene, _: &mut Driven| drop(scene.agents.remove(1));
    at_each_moment(kill, |scene, driven, moment| {
        let ended: Ended = driven.end();
        match ended {
            Ok(outcome) => {
                let lost = outcome.agents.iter().find(|agent| agent.lost.is_some());
                let is_found =
                    outcome.findings.iter().any(|found| found.kind == FindingKind::AgentLost);
                assert_eq!(is_found, lost.is_some(), "moment {moment}: {:?}", outcome.findings);
                let whole = outcome.agents.iter().filter(|agent| agent.lost.is_none());
                let answered: u64 = whole.map(|agent| agent.answered).sum();
                assert_eq!(outcome.totals.answered, answered, "moment {moment}");
                match lost {
                    Some(lost) => assert_eq!(lost.name, "b", "moment {moment}"),
                    None => assert_eq!(outcome.totals.sent, scene.server.requests()),
                }
            }
            Err(why) => {
                let is_said = why.contains("agent b") || why.contains("3 agents were asked for");
                assert!(is_said, "moment {moment}: {why}");
            }
        }
        scene.are_idle(2);
    });
}

pub(crate) fn of_the_controller() {
    let kill = |_: &mut Scene, driven: &mut Driven| {
        driven.process.kill();
    };
    at_each_moment(kill, |scene, driven, _| {
        drop(driven);
        scene.are_idle(3);
    });
}

pub(crate) fn of_the_broker() {
    let kill = |scene: &mut Scene, _: &mut Driven| {
        scene.broker.kill();
        scene.broker.start_again();
    };
    at_each_moment(kill, |scene, driven, moment| {
        match driven.end() {
            Ok(outcome) => {
                assert!(!outcome.was_ended_early, "moment {moment}");
                assert_eq!(outcome.totals.sent, scene.server.requests(), "moment {moment}");
                assert!(outcome.agents.iter().all(|agent| agent.lost.is_none()), "moment {moment}");
            }
            Err(why) => {
                let has_begun = scene.server.requests() > 0 && !why.contains("did not begin");
                assert!(!has_begun, "moment {moment}: {why}");
            }
        }
        scene.are_idle(3);
    });
}
