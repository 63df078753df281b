//! The distance of an agent's clock, asked for over a broker as the controller does, against the one that it has: a test hook
//! moves it and lets it drift.

use pollux_load::campaign::{
    AgentName, CampaignReply, CampaignRequest, ClockDistance, Demand, PingSample, VERSION,
};
use pollux_sys::clock::monotonic_ns;

use crate::broker::{Broker, Raw};
use crate::driven::agent;

/// Trials with each clock.
const TRIALS: usize = 100;
/// Messages of a trial.
const PINGS: usize = 20;

fn ping(raw: &mut Raw, subject: &str, request: &[u8]) -> PingSample {
    let sent_ns = monotonic_ns();
    raw.publish(subject, "answers", request);
    let (_, answer) = raw.message();
    let received_ns = monotonic_ns();
    let agent_ns = CampaignReply::decode(&answer).expect("a reply").now_ns;
    PingSample { sent_ns, agent_ns, received_ns }
}

pub(crate) fn the_uncertainty_holds_the_true_distance() {
    let broker = Broker::start(&[]);
    for (name, offset_ns, ppm) in [("a", 10_000_000_000, 100.0), ("b", -10_000_000_000_i64, -100.0)]
    {
        let before_ns = monotonic_ns();
        let clock = format!("{offset_ns},{ppm}");
        let _agent = agent(&broker, name, &["--test-clock", &clock]);
        let after_ns = monotonic_ns();
        let mut raw = broker.raw();
        raw.subscribe("answers");
        let subject = format!("pollux-load.default.agent.{name}");
        let campaign = AgentName::nearest("trial");
        let demand = Demand::Ping;
        let request = CampaignRequest { version: VERSION, campaign, instance: 0, demand }.encode();
        // It drifts from some moment of its start on.
        let drifted_ns = |own_ns: u64, from_ns: u64| (own_ns - from_ns) as f64 * ppm / 1e6;
        let unknown_ns = drifted_ns(after_ns, before_ns).abs() as u64 + 1;
        let mut held = 0;
        for _ in 0..TRIALS {
            let samples: Vec<_> = (0..PINGS).map(|_| ping(&mut raw, &subject, &request)).collect();
            let distance = ClockDistance::of(&samples).expect("samples");
            let now_ns = monotonic_ns();
            let true_ns = now_ns
                .saturating_add_signed(offset_ns)
                .saturating_add_signed(drifted_ns(now_ns, before_ns) as i64);
            let found_ns = distance.to_agent(now_ns).expect("it runs longer than ten seconds");
            let allowed_ns = distance.uncertainty_ns(now_ns) + unknown_ns;
            held += usize::from(found_ns.abs_diff(true_ns) <= allowed_ns);
        }
        assert_eq!(held, TRIALS, "with a clock moved by {clock}");
    }
}
