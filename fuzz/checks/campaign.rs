//! What holds for all bytes that come from a broker, to an agent or to a controller.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use std::time::Duration;

use pollux_load::campaign::{
    AgentEnd, CampaignReply, CampaignRequest, Demand, LiveSum, LoadBounds, MessageError, ResultSum,
    Said, TURN_ANSWER_MAX, TurnsDemand, result_of,
};
use pollux_load::{Pace, Plan};

/// Reads the input as each of the messages, and does with it what is done before anything is opened.
pub(crate) fn holds(data: &[u8]) {
    if let Ok(request) = CampaignRequest::decode(data) {
        // Numbers with a fraction may be rounded once.
        let again = CampaignRequest::decode(&request.encode()).expect("it was taken before");
        assert_eq!(CampaignRequest::decode(&again.encode()), Ok(again));
        match request.demand {
            Demand::Prepare(order) => {
                if let Ok((plan, _)) = order.plan() {
                    bounded(plan);
                }
                if let Ok(parts) = order.parts(3) {
                    assert_eq!(parts.len(), 3);
                }
            }
            Demand::Turns(TurnsDemand::Open { order, .. }) => {
                if let Ok((plan, _)) = order.plan() {
                    assert!(plan.request_timeout <= TURN_ANSWER_MAX);
                    assert!(plan.connect_timeout <= TURN_ANSWER_MAX);
                    bounded(plan);
                }
            }
            _ => {}
        }
    }
    if let Ok(reply) = CampaignReply::decode(data) {
        let again = CampaignReply::decode(&reply.encode());
        assert!(!matches!(again, Err(MessageError::Version(_) | MessageError::TooMany { .. })));
        if let Said::Turned(report) = &reply.said {
            // Sums of a run: none overflows.
            let _ = report.turned().right.checked_add(report.failed).expect("both are counts");
        }
        if let Said::Status(status) = reply.said {
            let mut live = LiveSum::new(["a", "b"].map(str::to_owned));
            live.take(0, (*status).clone());
            live.take(1, *status);
            live.lose(0);
            let _ = live.now();
        }
    }
    if let Ok(outcome) = result_of(data) {
        let mut results = ResultSum::default();
        let ends = ["a", "b"].map(|name| AgentEnd {
            name: name.to_owned(),
            host: "h".to_owned(),
            clock_uncertainty: Duration::ZERO,
            ended: results.take(outcome.clone()),
        });
        let all = results.outcome(ends.into(), 0.0).expect("two results");
        assert_eq!(all.totals.sent, 2 * outcome.totals.sent);
        assert_eq!(all.latency.count(), outcome.latency.count().saturating_mul(2));
    }
}

/// A plan that passes the bounds of an agent keeps to them.
fn bounded(mut plan: Plan) {
    let bounds = LoadBounds {
        allowed: Vec::new(),
        connections_max: 100,
        rate_max: None,
        duration_max: Duration::from_secs(60),
        body_bytes_max: 1_000,
        threads_max: 8,
    };
    if bounds.check(&mut plan).is_ok() {
        let after = plan.end.after.expect("it ends in time");
        assert!(plan.warm_up + after <= bounds.duration_max);
        let all = u64::from(plan.connections) + u64::from(plan.crowd.dead);
        assert!(all <= bounds.connections_max);
        assert!(plan.threads <= bounds.threads_max);
    }
    let slow = LoadBounds { rate_max: Some(1_000.0), ..bounds };
    if slow.check(&mut plan).is_ok() {
        assert!(matches!(plan.pace, Pace::Open { .. }));
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
