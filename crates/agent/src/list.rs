//! `pollux load agents`: who is there, and what each can carry.

use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use pollux_load::campaign::{
    AgentFacts, AgentName, CampaignReply, CampaignRequest, Demand, MessageError, Said, VERSION,
};
use pollux_report::number::count;
use pollux_settings::command::output::{self, Failure};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::flags::BrokerFlags;

/// How long answers are waited for.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Once there are enough, and no other came for so long, no more are waited for.
const SILENCE: Duration = Duration::from_millis(150);
/// Agents at most: more than any order has parts.
const AGENTS_MAX: usize = 10_000;

/// An agent that has answered.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Found {
    pub(crate) name: AgentName,
    #[serde(skip)]
    pub(crate) instance: u64,
    #[serde(flatten)]
    pub(crate) facts: AgentFacts,
}

/// Asks who is there. Returns as soon as `enough` have answered, and with sentences about answers that were none.
pub(crate) async fn discover(
    broker: &Broker,
    campaign: &AgentName,
    enough: usize,
) -> Result<(Vec<Found>, Vec<String>), Failure> {
    let inbox = broker.client.new_inbox();
    let mut replies = broker.client.subscribe(inbox.clone()).await.map_err(Failure::failed)?;
    let request = CampaignRequest {
        version: VERSION,
        campaign: campaign.clone(),
        instance: 0,
        demand: Demand::Hello,
    };
    let asked = broker.client.publish_with_reply(broker.hello(), inbox, request.encode().into());
    asked.await.map_err(Failure::failed)?;
    let end = Instant::now() + ANSWER_TIME_MAX;
    let mut found: Vec<Found> = Vec::new();
    let mut strange = Vec::new();
    while found.len() < AGENTS_MAX {
        let until = if found.len() >= enough { end.min(Instant::now() + SILENCE) } else { end };
        let Ok(Some(message)) = tokio::time::timeout_at(until, replies.next()).await else { break };
        // Nobody listens there: the broker says so itself.
        if message.status.is_some() {
            break;
        }
        match CampaignReply::decode(&message.payload) {
            Ok(CampaignReply { agent, instance, said: Said::Here(facts), .. }) => {
                found.push(Found { name: agent, instance, facts });
            }
            Ok(_) => strange.push("an answer that names no agent".to_owned()),
            Err(error @ MessageError::Version(_)) => {
                let said: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
                let name = said.get("agent").and_then(Value::as_str).unwrap_or("without a name");
                let name = AgentName::nearest(name);
                strange.push(format!("agent {name} sends {error}"));
            }
            Err(error) => strange.push(format!("an answer that can't be read: {error}")),
        }
        if strange.len() > AGENTS_MAX {
            break;
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((found, strange))
}

/// Prints who is there.
pub(crate) async fn list(flags: &BrokerFlags, json: bool) -> Result<ExitCode, Failure> {
    let broker = Broker::connect(flags, "pollux load agents", false).await?;
    let asked = AgentName::nearest("list");
    let (found, strange) = discover(&broker, &asked, usize::MAX).await?;
    strange.iter().for_each(|line| output::remark(&format!("pollux load agents: {line}")));
    if json {
        output::result(&(serde_json::to_string_pretty(&found).expect("plain data") + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        let group = &flags.group;
        return Err(Failure::failed(format!(
            "no agent of the group {group} answered within {ANSWER_TIME_MAX:?}; start one: pollux-agent --nats URL \
             --allow HOST:PORT"
        )));
    }
    output::result(&output::shown(&table(&found)))?;
    Ok(ExitCode::SUCCESS)
}

fn table(found: &[Found]) -> String {
    let head =
        ["agent", "host", "CPUs", "load", "descriptors", "connections", "allows", "busy with"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(found.iter().map(|Found { name, facts, .. }| {
        [
            name.to_string(),
            facts.host.clone(),
            facts.cpus.to_string(),
            facts.load.map_or_else(|| "n/a".to_owned(), |load| format!("{load:.2}")),
            count(facts.descriptors),
            count(facts.connections_max),
            facts.allowed.clone(),
            facts.campaign.as_ref().map_or_else(String::new, ToString::to_string),
        ]
    }));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
