//! Agents as processes, and the program that drives them, as `pollux load --agents` starts it.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::campaign::{AgentsNow, LoadOrder, OnLostAgent, Told, ToldOrder};
use pollux_load::{End, Outcome, Phase, Plan, Target};
use pollux_testing::{DEADLINE, Process};

use crate::broker::Broker;
use crate::hosts::Host;

/// The program, on a host of its own where one is named.
fn program(host: Option<&Host>) -> Command {
    let program = env!("CARGO_BIN_EXE_pollux-agent");
    host.map_or_else(|| Command::new(program), |host| host.command(program))
}

/// An agent that waits for orders.
pub(crate) fn agent(broker: &Broker, name: &str, flags: &[&str]) -> Process {
    agent_on(None, broker, name, flags)
}

pub(crate) fn agent_on(
    host: Option<&Host>,
    broker: &Broker,
    name: &str,
    flags: &[&str],
) -> Process {
    let mut command = program(host);
    command.args(["--nats", &broker.url(), "--name", name]).args(flags);
    let mut agent = Process::start(&mut command);
    agent.wait_for_stderr_line("waits for orders");
    agent
}

/// Agents with the names `a`, `b`, `c` and so on.
pub(crate) fn agents(broker: &Broker, count: usize) -> Vec<Process> {
    ["a", "b", "c"][..count].iter().map(|name| agent(broker, name, &[])).collect()
}

/// A closed loop over twelve connections, without a warm-up, whose end is the caller's to set.
pub(crate) fn plan(url: &str) -> Plan {
    let target = Target::parse(url, None).expect(url);
    let grace = Duration::from_millis(500);
    Plan { connections: 12, grace, ..Plan::new(vec![target], Driver::PREFERRED[0]) }
}

/// Most tests look at what is said and counted, beside others: their clients think, so that processors are left to those.
const THINK: Duration = Duration::from_millis(4);

pub(crate) fn lasting(url: &str, seconds: u64) -> Plan {
    let end = End { requests: None, after: Some(Duration::from_secs(seconds)) };
    Plan { end, think_time: THINK, ..plan(url) }
}

pub(crate) fn counted(url: &str, requests: u64) -> Plan {
    Plan { end: End { requests: Some(requests), after: None }, ..plan(url) }
}

/// The program that drives agents.
pub(crate) struct Driven {
    pub(crate) process: Process,
    orders: Option<ChildStdin>,
    told: Receiver<Told>,
}

/// The end of a run: its result, or why there is none.
pub(crate) type Ended = Result<Outcome, String>;

impl Driven {
    pub(crate) fn start(broker: &Broker, plan: &Plan, agents: u32) -> Self {
        Self::start_with(broker, plan, agents, OnLostAgent::Stop, &[])
    }

    /// One agent alone, on the mechanism that the plan names.
    pub(crate) fn start_named(broker: &Broker, plan: &Plan, flags: &[&str]) -> Self {
        let order = LoadOrder::of(plan, false).expect("it can be sent");
        Self::spawn(program(None), broker, order, 1, (OnLostAgent::Stop, flags))
    }

    pub(crate) fn start_on(host: &Host, broker: &Broker, plan: &Plan, agents: u32) -> Self {
        let order = LoadOrder::of(plan, true).expect("it can be sent");
        Self::spawn(program(Some(host)), broker, order, agents, (OnLostAgent::Stop, &[]))
    }

    pub(crate) fn start_with(
        broker: &Broker,
        plan: &Plan,
        agents: u32,
        on_lost_agent: OnLostAgent,
        flags: &[&str],
    ) -> Self {
        Self::start_by(program(None), broker, plan, agents, on_lost_agent, flags)
    }

    /// The same, by a command that ends with the path of the program.
    pub(crate) fn start_by(
        command: Command,
        broker: &Broker,
        plan: &Plan,
        agents: u32,
        on_lost_agent: OnLostAgent,
        flags: &[&str],
    ) -> Self {
        let order = LoadOrder::of(plan, true).expect("it can be sent");
        Self::spawn(command, broker, order, agents, (on_lost_agent, flags))
    }

    fn spawn(
        mut command: Command,
        broker: &Broker,
        order: LoadOrder,
        agents: u32,
        (on_lost_agent, flags): (OnLostAgent, &[&str]),
    ) -> Self {
        command.args(["drive", "--nats", &broker.url()]).args(flags);
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let orders = process.take_stdin();
        let stdout = BufReader::new(process.take_stdout());
        let (sender, told) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let told =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(told).is_err() {
                    return;
                }
            }
        });
        let order = Box::new(order);
        let mut driven = Self { process, orders: Some(orders), told };
        driven.tell(&ToldOrder::Run { order, agents, on_lost_agent });
        driven
    }

    pub(crate) fn tell(&mut self, order: &ToldOrder) {
        let line = serde_json::to_string(order).expect("plain data") + "\n";
        let orders = self.orders.as_mut().expect("it was not closed");
        orders.write_all(line.as_bytes()).expect("it reads");
    }

    /// Ends its standard input, as the end of the process that started it does.
    pub(crate) fn leave(&mut self) {
        self.orders = None;
    }

    /// Waits until agents have told this of themselves.
    pub(crate) fn wait_for(
        &mut self,
        what: &str,
        mut is_there: impl FnMut(&AgentsNow) -> bool,
    ) -> AgentsNow {
        loop {
            match self.told.recv_timeout(DEADLINE) {
                Ok(Told::Progress(now)) if is_there(&now) => return *now,
                Ok(Told::Progress(_) | Told::Remark(_)) => {}
                other => panic!("no {what}: {other:?}"),
            }
        }
    }

    /// Waits until it has said this.
    pub(crate) fn wait_for_remark(&mut self, part: &str) -> String {
        loop {
            match self.told.recv_timeout(DEADLINE) {
                Ok(Told::Remark(text)) if text.contains(part) => return text,
                Ok(Told::Progress(_) | Told::Remark(_)) => {}
                other => panic!("no {part}: {other:?}"),
            }
        }
    }

    /// Waits until requests were answered.
    pub(crate) fn wait_for_answers(&mut self) -> AgentsNow {
        self.wait_for("answers", |now| {
            now.all.phase == Phase::Measuring && now.all.totals.answered > 0
        })
    }

    /// Waits for the end of the run, and of the program.
    pub(crate) fn end(self) -> Ended {
        self.end_seeing(|_| {})
    }

    /// The same; `see` is shown how far all are on the way.
    pub(crate) fn end_seeing(mut self, mut see: impl FnMut(&AgentsNow)) -> Ended {
        loop {
            match self.told.recv_timeout(DEADLINE).expect("an end") {
                Told::Progress(now) => see(&now),
                Told::Remark(_) => {}
                Told::Outcome(outcome) => {
                    assert!(self.process.wait().success());
                    return Ok(*outcome);
                }
                Told::Failed { why, .. } => {
                    assert!(self.process.wait().success());
                    return Err(why);
                }
            }
        }
    }
}

/// Runs it to its end.
pub(crate) fn run(broker: &Broker, plan: &Plan, agents: u32) -> Ended {
    Driven::start(broker, plan, agents).end()
}
