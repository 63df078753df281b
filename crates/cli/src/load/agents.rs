//! `pollux load --agents` and `pollux load agents`, which reach agents on other hosts through another program: it has the
//! client of the broker, so that this one is built without it.
//!
//! The program drives the agents and tells how far they are, line by line; flags, view, files and exit codes are those of
//! every run.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pollux_engine::Signals;
use pollux_host::{find_program_beside, own_folder};
use pollux_load::campaign::{AgentName, AgentsNow, LoadOrder, Told, ToldOrder};
use pollux_load::render::plural;
use pollux_load::{FindingKind, Outcome, Plan};

use super::flags::{LoadSettings, Several};
use super::results::Files;
use super::view::View;
use super::{Interrupt, Ran, STEP, Scraped, at_once, capacity, conclude, failure};
use crate::output::{self, Failure};

/// The program, looked for beside the file of this one first, then in PATH.
const AGENT: &str = "pollux-agent";
/// How long it may take to end once that was asked for, before it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(3);

/// Where the broker is, in words for the program.
pub(super) struct BrokerWords<'a> {
    pub(super) nats: &'a Option<String>,
    pub(super) nats_login: &'a Option<PathBuf>,
    pub(super) nats_ca: &'a Option<PathBuf>,
    pub(super) group: Option<&'a AgentName>,
}

impl BrokerWords<'_> {
    fn of(several: &Several) -> BrokerWords<'_> {
        let Several { nats, nats_login, nats_ca, group, .. } = several;
        BrokerWords { nats, nats_login, nats_ca, group: group.as_ref() }
    }

    fn words(&self) -> Vec<OsString> {
        let group = self.group.map(|group| OsString::from(group.to_string()));
        let flags = [
            ("--nats", self.nats.as_ref().map(OsString::from)),
            ("--nats-login", self.nats_login.as_ref().map(OsString::from)),
            ("--nats-ca", self.nats_ca.as_ref().map(OsString::from)),
            ("--group", group),
        ];
        let given = flags.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?]));
        given.flatten().collect()
    }
}

/// Lists the agents: the program takes the place of this one. Returns where it can't.
pub(super) fn list(broker: &BrokerWords<'_>, json: bool) -> Failure {
    let program = match program() {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let json = json.then_some("--json");
    let error = Command::new(&program).arg("list").args(broker.words()).args(json).exec();
    Failure::failed(format!("{} could not be run: {error}", program.display()))
}

/// Has `count` agents carry out `plan`, or the trials of a search for the capacity.
pub(super) fn run(flags: &LoadSettings, plan: Plan, count: u32) -> Result<ExitCode, Failure> {
    let order = LoadOrder::of(&plan, flags.poller.is_none()).map_err(|error| failure(&error))?;
    order.parts(count).map_err(|error| failure(&error))?;
    let agents = Agents { program: program()?, flags, count };
    let files = Files::prepare(&flags.output)?;
    let scraped = Scraped::offer(flags.prometheus)?;
    let mut signals = Signals::catch(&Interrupt::signals()).map_err(Failure::failed)?;
    if flags.finds_capacity {
        return capacity::search(flags, plan, &files, |plan| {
            let view = &mut View::Quiet;
            let ran = agents.carry_out(plan, view, (&mut signals, &scraped))?;
            match ran.outcome.findings.iter().find(|each| each.kind == FindingKind::AgentLost) {
                None => Ok(ran),
                // Trials with fewer agents are trials of another load.
                Some(lost) => Err(Failure::failed(format!("the search ends: {}", lost.text))),
            }
        });
    }
    let shown = plural(count.into(), "agent");
    let mut view = View::open_for(&plan, &shown, flags.output.is_quiet, count);
    let ran = agents.carry_out(&plan, &mut view, (&mut signals, &scraped))?;
    view.close();
    let Ran { mut outcome, interrupt, .. } = ran;
    outcome.judge(&plan.objectives);
    conclude(flags, &files, &outcome, (interrupt, None))
}

/// So many agents, as the flags of a command reach them.
struct Agents<'a> {
    program: PathBuf,
    flags: &'a LoadSettings,
    count: u32,
}

impl Agents<'_> {
    /// Has them carry out a plan, to its end.
    fn carry_out(
        &self,
        plan: &Plan,
        view: &mut View,
        (signals, scraped): (&mut Signals, &Scraped),
    ) -> Result<Ran, Failure> {
        let Self { program, flags, count } = self;
        let order = LoadOrder::of(plan, flags.poller.is_none()).map_err(|error| failure(&error))?;
        let told = ToldOrder::Run {
            order: Box::new(order),
            agents: *count,
            on_lost_agent: flags.several.on_lost_agent,
        };
        let mut driver = Driving::start(program, &BrokerWords::of(&flags.several), &told)?;
        let (outcome, interrupt) = driver.until_the_end(view, (signals, scraped))?;
        let has_answers = outcome.totals.answered > 0;
        let why_in_vain = outcome.first_failure.clone().filter(|_| !has_answers);
        Ok(Ran { outcome, interrupt, why_in_vain })
    }
}

fn program() -> Result<PathBuf, Failure> {
    find_program_beside(AGENT).ok_or_else(|| {
        let own = own_folder().map_or_else(
            || "beside this program".to_owned(),
            |folder| format!("in {}, where this program is,", folder.display()),
        );
        Failure::failed(format!(
            "{AGENT}, the program that reaches agents over the broker, was found neither {own} nor in PATH; in the \
             sources of pollux, build it with `cargo build --release -p {AGENT}`, or install both with `cargo xtask \
             install --prefix DIR`"
        ))
    })
}

/// The program while it drives agents.
struct Driving {
    child: Child,
    /// Orders for it; when this is closed the agents are stopped.
    orders: ChildStdin,
    told: Receiver<Result<Told, String>>,
}

impl Driving {
    fn start(
        program: &std::path::Path,
        broker: &BrokerWords<'_>,
        order: &ToldOrder,
    ) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("{} could not be run: {error}", program.display()))
        };
        let mut command = Command::new(program);
        command.arg("drive").args(broker.words());
        // Ctrl-C of a terminal is for this process, which tells it in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (Some(orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no standard input and output"));
        };
        let (sender, told) = channel();
        let reader = std::thread::Builder::new().name("load-agents".to_owned());
        let read = move || read_lines(stdout, |line| sender.send(line).is_ok());
        reader.spawn(read).map_err(|error| failed(&error))?;
        let mut driving = Self { child, orders, told };
        driving.tell(order).map_err(|error| failed(&error))?;
        Ok(driving)
    }

    fn tell(&mut self, order: &ToldOrder) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(order).map_err(std::io::Error::other)?;
        line.push(b'\n');
        self.orders.write_all(&line)?;
        self.orders.flush()
    }

    /// Shows how far they are until the result comes. The first interrupt ends the run gently, the second at once.
    fn until_the_end(
        &mut self,
        view: &mut View,
        (signals, scraped): (&mut Signals, &Scraped),
    ) -> Result<(Outcome, Option<Interrupt>), Failure> {
        let mut interrupt = None;
        loop {
            if let Some(now) = view.wait(signals, STEP)? {
                if interrupt.is_some() {
                    view.close();
                    // One that is gone has ended at once as well.
                    let _ = self.tell(&ToldOrder::End);
                    self.await_end();
                    return Err(at_once(now));
                }
                interrupt = Some(now);
                let _ = self.tell(&ToldOrder::Stop);
            }
            loop {
                let told = match self.told.recv_timeout(Duration::ZERO) {
                    Ok(told) => told,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        view.close();
                        self.await_end();
                        let status = self.child.wait().map_err(Failure::failed)?;
                        return Err(Failure::failed(format!(
                            "{AGENT} ended without a result ({status}); agents stop by themselves after 5 s"
                        )));
                    }
                };
                match told.map_err(Failure::failed)? {
                    Told::Remark(text) => output::remark(&output::shown(&text)),
                    Told::Progress(now) => {
                        let AgentsNow { all, agents } = *now;
                        scraped.show(&all);
                        view.show_with(&all, &agents)?;
                    }
                    Told::Outcome(outcome) => {
                        self.await_end();
                        return Ok((*outcome, interrupt));
                    }
                    Told::Failed { why, is_usage } => {
                        view.close();
                        self.await_end();
                        return Err(match (interrupt, is_usage) {
                            (Some(interrupt), _) => {
                                Failure { message: why, code: interrupt.exit_code() }
                            }
                            (None, true) => Failure::usage(why),
                            (None, false) => Failure::failed(why),
                        });
                    }
                }
            }
        }
    }

    /// Waits until it has dismissed the agents, and no longer than that may take.
    fn await_end(&mut self) {
        let end = Instant::now() + END_TIME_MAX;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= end {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(STEP);
        }
    }
}

fn read_lines(stdout: ChildStdout, mut take: impl FnMut(Result<Told, String>) -> bool) {
    for line in BufReader::new(stdout).lines() {
        let read = line.map_err(|error| error.to_string()).and_then(|line| {
            serde_json::from_str(&line)
                .map_err(|error| format!("{AGENT} is of another version: it said {error}"))
        });
        let is_last = read.is_err();
        if !take(read) || is_last {
            return;
        }
    }
}
