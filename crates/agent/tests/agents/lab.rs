//! `pollux lab run http --generator agent:NAME`: servers of the lab here, their load from an agent, in turns. `pollux` is
//! another package's program: without it beside the one under test these tests say so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_load::Plan;
use pollux_load::campaign::{
    AgentName, CampaignReply, CampaignRequest, Demand, Said, TurnOrder, TurnsDemand, TurnsNumber,
    TurnsOrder, VERSION,
};
use pollux_testing::{Output, Pid, Process, await_end, children, wait_until};
use serde_json::Value;

use crate::broker::{Broker, Raw};
use crate::driven::{agent, agent_on, counted, plan, run};
use crate::hosts::{CENTRE, Host, Hosts};
use crate::server::Counting;

/// The fewest sets that have an interval, and not longer.
const SMALL: [&str; 6] = ["--connections", "4", "--runtime", "500ms", "--budget", "15s"];
/// An agent is lost after three seconds; an arm is given up after some failures in a row, and others end what they began.
const END_TIME_MAX: Duration = Duration::from_secs(60);

/// The program, where it was built.
fn pollux() -> Result<PathBuf, String> {
    let path = Path::new(env!("CARGO_BIN_EXE_pollux-agent")).with_file_name("pollux");
    let why =
        "pollux is not built beside pollux-agent; expected `cargo build -p pollux-cli` before";
    path.exists().then_some(path).ok_or_else(|| why.to_owned())
}

/// A run whose load the agent `gen` makes; what it writes goes below `folder`.
fn lab(
    pollux: &Path,
    host: Option<&Host>,
    broker: &Broker,
    folder: &Path,
    words: &[&str],
) -> Command {
    let program = pollux.to_str().expect("a path of text");
    let mut command = host.map_or_else(|| Command::new(program), |host| host.command(program));
    command.args([
        "lab",
        "run",
        "http",
        "--quiet",
        "--json",
        "--only",
        "keep-alive",
        "--overwrite",
    ]);
    command.args(["--generator", "agent:gen", "--nats", &broker.url(), "--out"]).arg(folder);
    command.args(words).stdin(Stdio::null());
    command
}

fn record(output: &Output) -> Value {
    serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", output.stdout, output.stderr))
}

fn rows<'a>(record: &'a Value, arm: &str) -> Vec<&'a Value> {
    record["results"].as_array().expect("rows").iter().filter(|row| row["arm"] == arm).collect()
}

/// Two arms, and the same one twice; with a network between, where namespaces are allowed.
pub(crate) fn an_agent_makes_the_load_of_the_lab() -> Result<(), String> {
    let pollux = pollux()?;
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = Hosts::make(1);
    let (broker, mut generator, host) = match &hosts {
        Ok(hosts) => {
            let broker = Broker::start_in(&hosts.centre);
            let allowed = ["--allow", &CENTRE.to_string()];
            let generator = agent_on(Some(&hosts.agents[0]), &broker, "gen", &allowed);
            (broker, generator, Some(&hosts.centre))
        }
        Err(_) => {
            let broker = Broker::start(&[]);
            let generator = agent(&broker, "gen", &[]);
            (broker, generator, None)
        }
    };
    let listen = host.map_or("127.0.0.1".to_owned(), |_| CENTRE.to_string());
    let arms = ["--arm", "epoll", "--arm", "poll", "--baseline", "epoll", "--listen", &listen];
    let words = [&SMALL[..], &arms].concat();
    let ran = Process::run(&mut lab(&pollux, host, &broker, folder.path(), &words));
    assert!(ran.status.success(), "{}{}", ran.stdout, ran.stderr);
    let record = record(&ran);
    let [poll] = *rows(&record, "poll") else { panic!("{}", record["results"]) };
    assert_eq!(poll["axes"]["generator"], "agent:gen");
    // On a machine that is busy the budget may end behind the first set.
    if poll["blocks"] == 1 {
        assert_eq!(
            (&poll["ci_low"], &poll["verdict"]),
            (&Value::Null, &"inconclusive".into()),
            "{poll}"
        );
    } else {
        assert!(poll["ci_low"].as_f64() < poll["ci_high"].as_f64(), "{poll}");
    }
    let [same] = *rows(&record, "A/A") else { panic!("{}", record["results"]) };
    let alike = same["ratio"].as_f64().expect("a ratio");
    // One set says nothing of that on a busy machine.
    let is_alike = same["blocks"] == 1 || (0.8..1.25).contains(&alike);
    assert!(is_alike, "the same program twice: {same}");
    let runs = record["runs"].as_array().expect("runs");
    // Three arms in each set.
    assert!(!runs.is_empty() && runs.len().is_multiple_of(3), "{}", runs.len());
    for run in runs {
        let measured = &run["outcome"]["measured"];
        let generator = measured["generator"].as_str().unwrap_or_default();
        assert!(generator.ends_with("(agent gen)"), "{run}");
        let turns = &measured["turns"];
        assert!(turns["turn_us"].as_u64().is_some_and(|us| us > 1_000), "{turns}");
        for figure in ["generator_us_per_request", "server_busy"] {
            assert!(measured["figures"][figure].as_f64().is_some_and(|found| found > 0.0), "{run}");
        }
        assert_eq!(measured["figures"]["failed"], 0.0, "{run}");
    }
    let summary = std::fs::read_to_string(folder.path().join("report.md")).expect("a summary");
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("a report");
    for text in [&summary, &page] {
        assert!(text.contains("(agent gen)") || text.contains("agent:gen"), "{text}");
    }
    assert!(
        page.contains("it came from another host over the network"),
        "what differs is not said"
    );
    generator.wait_for_stderr_line("4 connections, in turns");
    generator.wait_for_stderr_line("closed after");
    Ok(())
}

/// SIGKILL of the agent while arms take turns, and of the lab.
pub(crate) fn a_lab_or_an_agent_that_dies_ends_all() -> Result<(), String> {
    let pollux = pollux()?;
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(&[]);
    let long = ["--connections", "4", "--runtime", "500ms", "--budget", "10m"];
    let words = [&long[..], &["--arm", "epoll", "--arm", "poll"]].concat();
    let start = |generator: &mut Process| {
        let mut command = lab(&pollux, None, &broker, folder.path(), &words);
        let lab = Process::start(command.stdout(Stdio::null()));
        for _ in 0..3 {
            generator.wait_for_stderr_line("in turns");
        }
        let arms = children(lab.id());
        let below = arms.iter().flat_map(|arm| children(arm.as_raw_nonzero().get().unsigned_abs()));
        let all: Vec<Pid> = below.collect::<Vec<_>>().into_iter().chain(arms).collect();
        assert!(all.len() >= 3, "{all:?}");
        (lab, all)
    };
    let mut generator = agent(&broker, "gen", &[]);
    let (mut lab, all) = start(&mut generator);
    generator.kill();
    let began = Instant::now();
    let status = lab.wait();
    let said = lab.all_stderr_lines().join("\n");
    // The last that was said of an arm.
    let is_named =
        said.contains("agent gen: nobody listens") || said.contains("agent gen: no answer");
    assert!(status.code() == Some(1) && is_named, "{said}");
    assert!(began.elapsed() < END_TIME_MAX, "{:?}", began.elapsed());
    all.into_iter().for_each(await_end);
    // A lab that is killed takes its arms along, and they their connections.
    let mut generator = agent(&broker, "gen", &[]);
    let (mut lab, all) = start(&mut generator);
    lab.kill();
    all.into_iter().for_each(await_end);
    for _ in 0..3 {
        generator.wait_for_stderr_line("closed after");
    }
    let server = Counting::start();
    let after = run(&broker, &counted(&server.url(), 60), 1).expect("it is idle");
    assert_eq!((after.totals.answered, server.requests()), (60, 60));
    Ok(())
}

pub(crate) fn a_server_of_the_lab_that_is_not_allowed_is_never_asked() -> Result<(), String> {
    let pollux = pollux()?;
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(&[]);
    let _generator = agent(&broker, "gen", &["--allow", "192.0.2.1"]);
    let words = [&SMALL[..], &["--arm", "epoll", "--arm", "poll"]].concat();
    let ran = Process::run(&mut lab(&pollux, None, &broker, folder.path(), &words));
    assert_eq!(ran.status.code(), Some(1), "{}", ran.stderr);
    let said = format!("{}{}", ran.stderr, ran.stdout);
    assert!(said.contains("is not a target that this agent allows; it allows 192.0.2.1"), "{said}");
    // Nobody of this name, and a broker that is not there.
    let mut other = lab(&pollux, None, &broker, folder.path(), &words);
    let ran = Process::run(other.args(["--group", "other"]));
    let said = format!("{}{}", ran.stderr, ran.stdout);
    assert!(said.contains("agent gen: nobody listens"), "{said}");
    assert_eq!(ran.status.code(), Some(1), "{said}");
    let rates = Process::run(lab(&pollux, None, &broker, folder.path(), &words).arg("--rates"));
    assert_eq!(rates.status.code(), Some(2), "{}", rates.stderr);
    assert!(rates.stderr.contains("--rates: an agent gives a load in turns"), "{}", rates.stderr);
    Ok(())
}

/// What a client of the broker asks an agent by hand.
struct Asked {
    raw: Raw,
    campaign: AgentName,
    /// The process that is asked.
    instance: u64,
}

impl Asked {
    fn new(broker: &Broker) -> Self {
        let mut raw = broker.raw();
        raw.subscribe("answers");
        let mut asked = Self { raw, campaign: AgentName::nearest("by-hand"), instance: 0 };
        asked.instance = asked.answer(Demand::Hello).instance;
        asked
    }

    fn answer(&mut self, demand: Demand) -> CampaignReply {
        let campaign = self.campaign.clone();
        let instance = self.instance;
        let request = CampaignRequest { version: VERSION, campaign, instance, demand };
        self.raw.publish("pollux-load.default.agent.gen", "answers", &request.encode());
        let (_, bytes) = self.raw.message();
        CampaignReply::decode(&bytes).expect("an answer")
    }

    fn ask(&mut self, demand: TurnsDemand) -> Said {
        self.answer(Demand::Turns(demand)).said
    }

    fn refusal(&mut self, demand: TurnsDemand) -> String {
        match self.ask(demand) {
            Said::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

/// The messages themselves: once, again, late, out of order, of another campaign; and a run beside them.
pub(crate) fn turns_that_are_repeated_or_forged_are_not_done() {
    let broker = Broker::start(&[]);
    let mut generator = agent(&broker, "gen", &["--max-connections", "20", "--max-duration", "1m"]);
    let server = Counting::start();
    let mut asked = Asked::new(&broker);
    let of = TurnsNumber(7);
    let order = |plan: &Plan| Box::new(TurnsOrder::of(plan).expect("it can be sent"));
    let open = TurnsDemand::Open { number: of, order: order(&plan(&server.url())) };
    let process = std::mem::take(&mut asked.instance);
    assert!(asked.refusal(open.clone()).contains("does not name the process"));
    asked.instance = process;
    let Said::Opened(opened) = asked.ask(open.clone()) else { panic!("not opened") };
    // Each connection has asked once.
    assert_eq!((opened.first.right, server.requests()), (12, 12));
    let turn = |number| TurnsDemand::Turn {
        of,
        turn: TurnOrder { number, length_ns: 10_000_000_000, requests: Some(50) },
    };
    let Said::Turned(first) = asked.ask(turn(1)) else { panic!("no turn") };
    let counted_by_server = server.requests();
    assert!(first.right >= 50 && counted_by_server == 12 + first.right, "{first:?}");
    // Again, and the opening again: the same answer, and nothing is asked of the server.
    let Said::Turned(again) = asked.ask(turn(1)) else { panic!("no turn") };
    assert_eq!(again, first);
    assert!(asked.refusal(open.clone()).contains("is over"));
    assert!(asked.refusal(turn(3)).contains("out of order"));
    assert!(asked.refusal(turn(0)).contains("out of order"));
    let long = TurnOrder { number: 2, length_ns: 61_000_000_000, requests: None };
    assert!(asked.refusal(TurnsDemand::Turn { of, turn: long }).contains("--max-duration"));
    let more = TurnsDemand::Open { number: TurnsNumber(8), order: order(&plan(&server.url())) };
    assert!(asked.refusal(more).contains("24 connections of all its loads; this agent opens 20"));
    let away =
        TurnsDemand::Open { number: TurnsNumber(9), order: order(&plan("http://192.0.2.1/")) };
    assert!(asked.refusal(away).contains("is not a target that this agent allows"));
    // Of a campaign that is not this one.
    let own = std::mem::replace(&mut asked.campaign, AgentName::nearest("forged"));
    assert!(asked.refusal(turn(2)).contains("of this campaign"));
    assert!(asked.refusal(TurnsDemand::Close { of }).contains("of this campaign"));
    let mine = TurnsDemand::Open { number: TurnsNumber(1), order: order(&plan(&server.url())) };
    assert!(asked.refusal(mine).contains("busy with by-hand"));
    asked.campaign = own;
    assert_eq!(server.requests(), counted_by_server);
    let why = run(&broker, &counted(&server.url(), 30), 1).expect_err("it is busy");
    assert!(why.contains("busy with by-hand"), "{why}");
    assert!(matches!(asked.ask(TurnsDemand::Close { of }), Said::Accepted));
    assert!(asked.refusal(turn(2)).contains("were closed"));
    assert!(asked.refusal(open.clone()).contains("were closed"));
    assert_eq!(server.requests(), counted_by_server);
    generator.wait_for_stderr_line("by-hand: closed after 1 turn with");
    // A silent controller loses its connections.
    let other = TurnsDemand::Open { number: TurnsNumber(10), order: order(&plan(&server.url())) };
    let said = asked.ask(other);
    assert!(matches!(said, Said::Opened(_)), "{said:?}");
    generator.wait_for_stderr_line("no message of its controller for 5s");
    assert!(run(&broker, &counted(&server.url(), 30), 1).is_ok());
    // What was recorded of it is sent again, when it was followed by another campaign.
    let before = server.requests();
    wait_until("that is over", || asked.refusal(open.clone()).contains("were closed"));
    assert_eq!(server.requests(), before);
}

/// The lab closes the loads of one set before it opens those of the next: nobody comes between them.
pub(crate) fn a_generator_is_kept_between_the_sets_of_a_run() {
    let broker = Broker::start(&[]);
    let _generator = agent(&broker, "gen", &[]);
    let server = Counting::start();
    let mut asked = Asked::new(&broker);
    let order = |plan: &Plan| Box::new(TurnsOrder::of(plan).expect("it can be sent"));
    let open = |number| TurnsDemand::Open { number, order: order(&plan(&server.url())) };
    let one = TurnsNumber(7);
    let said = asked.ask(open(one));
    assert!(matches!(said, Said::Opened(_)), "{said:?}");
    assert!(matches!(asked.ask(TurnsDemand::Close { of: one }), Said::Accepted));
    let own = std::mem::replace(&mut asked.campaign, AgentName::nearest("other"));
    assert!(asked.refusal(open(TurnsNumber(8))).contains("busy with by-hand"));
    asked.campaign = own;
    let next = TurnsNumber(9);
    let said = asked.ask(open(next));
    assert!(matches!(said, Said::Opened(_)), "{said:?}");
    assert!(matches!(asked.ask(TurnsDemand::Close { of: next }), Said::Accepted));
    // One that waits for it, as each does that finds it busy, has it then.
    assert!(run(&broker, &counted(&server.url(), 30), 1).is_ok());
}
