//! What an experiment is, and the one list of them: the interface between what is measured and everything
//! that measures it.
//!
//! The plan, the runner, the judge, the report, the doctor and the documents ask the questions of
//! [`Description`] and [`Experiment`], and know no experiment by its name. One more is a file or folder with its
//! answers, its module and its line in `LIST`. No macro makes one of both: rustfmt finds no module in a
//! macro.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use pollux_doctor::{CONNECTION_BYTES, Concern, FDS_SPARE, SERVER_FDS_SPARE};
use pollux_engine::Driver;
use pollux_load::campaign::AgentName;
use pollux_poller::Mechanism;
use pollux_stats::{Direction, median};
use strum::{Display, EnumString, VariantNames};

use crate::arm::{Arm, ArmKind, Peer};
pub use crate::axis::PROCESSES;
use crate::axis::{Axes, Axis, Value};
use crate::error::MeasureError;
use crate::measure::{self, Done, RunSpec};
use crate::record::{Interval, Look, Measurement, Record};
use crate::subject::Subject;

mod chain;
pub mod herd;
pub(crate) mod http;
mod pipes;
mod poller;
mod preload;
mod proxy;
mod streams;

pub(crate) use http::{missing_form, missing_generator, running_fault};

/// The one list, in the order in which experiments are shown.
const LIST: &[&dyn Experiment] = &[
    &streams::Streams,
    &pipes::Pipes,
    &chain::Chain,
    &http::Http,
    &proxy::Proxy,
    &poller::Poller,
    &preload::Preload,
    &herd::Herd,
];

pub const ALL: [&dyn Experiment; LIST.len()] = *LIST.first_chunk().expect("as many as it has");

/// Every mechanism, without the loop that has no poller.
const WITH_A_POLLER: [Driver; Mechanism::ALL.len()] = with_pollers(Mechanism::ALL);

/// Starting a process, opening its poller, ending it.
const PROCESS_COST: Duration = Duration::from_millis(25);
/// Starting a server and two runs of a generator, and ending them, which is not done at once.
pub(crate) const SERVER_COST: Duration = Duration::from_millis(100);
/// Windows are not made shorter than this: ten intervals of 10 ms.
const RUNTIME_MIN: Duration = Duration::from_millis(100);
/// Nor is that of a load generator, which opens its connections within its run, made shorter than this.
pub(crate) const GENERATOR_RUNTIME_MIN: Duration = Duration::from_millis(200);
/// Opening and closing a pipe's or a local socket's descriptor: measured on two cores at 2.3 GHz.
pub(crate) const PIPE_COST: Duration = Duration::from_micros(10);
/// The same of TCP on loopback.
pub(crate) const TCP_COST: Duration = Duration::from_micros(73);

const UNREAD: &str = "could not be read in these runs";

/// The experiment called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

/// Every axis once, with the experiments that have it.
pub(crate) fn axes() -> Vec<(&'static Axis, Vec<&'static dyn Experiment>)> {
    let mut axes: Vec<(&Axis, Vec<&dyn Experiment>)> = Vec::new();
    for experiment in ALL {
        for axis in experiment.axes {
            match axes.iter_mut().find(|(known, _)| known == &axis) {
                Some((_, owners)) => owners.push(experiment),
                None => axes.push((axis, vec![experiment])),
            }
        }
    }
    axes
}

/// Every baseline server and other system that an experiment can compare with, each once.
#[must_use]
pub fn peers() -> Vec<Peer> {
    let mut peers: Vec<Peer> = Vec::new();
    for peer in ALL.iter().flat_map(|experiment| experiment.peers) {
        if !peers.contains(peer) {
            peers.push(*peer);
        }
    }
    peers
}

/// The sections of reports that experiments bring, each once.
pub(crate) fn sections() -> Vec<&'static Section> {
    let mut sections: Vec<&Section> = Vec::new();
    for section in ALL.iter().filter_map(|experiment| experiment.section) {
        if sections.iter().all(|known| known.id != section.id) {
            sections.push(section);
        }
    }
    sections
}

#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|experiment| experiment.name).collect()
}

/// An arm that was set up, asleep.
type Started<'a> = Result<Box<dyn Subject + 'a>, MeasureError>;

/// What an experiment says of itself, whatever the point.
#[derive(Debug)]
pub struct Description {
    /// Name on command lines, in job files and results.
    pub name: &'static str,
    /// Name in headings.
    pub title: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// The question, as the title of a report that has only this experiment.
    pub question: &'static str,
    /// The axes; each is a key of a job and a flag of `pollux lab run`. The first distinguishes its
    /// points from those of other experiments.
    pub axes: &'static [Axis],
    /// The axis along which its values are put into words.
    pub curve: Option<Curve>,
    /// The axis over which an answer is said once, where it is the same.
    pub span: Option<&'static str>,
    /// The axis that says with whose tool a figure is taken; at its default with that of the lab.
    pub tool: Option<&'static str>,
    /// The drivers of pollux that it can run on.
    pub drivers: &'static [Driver],
    /// The ways of its own that it can compare in place of drivers.
    pub ways: &'static [Peer],
    /// The baseline where it is an arm and none was named; what most servers use comes next.
    pub baseline: &'static str,
    /// The baseline servers and other people's systems that it can compare with.
    pub peers: &'static [Peer],
    /// What the command line of a user's server may have in braces beside the names of axes; nothing
    /// where no server can be an arm.
    pub placeholders: &'static [&'static str],
    /// Whether bare servers in forms can be arms.
    pub has_forms: bool,
    /// Whether its arms of pollux can time each request inside.
    pub times_requests: bool,
    /// Whether an arm has processes of its own, which a run has to end when it is interrupted.
    pub has_processes: bool,
    /// What a unit of work costs, where arms take turns.
    pub cost: Cost,
    /// What its runs hold that is about the load's generator and not about an arm, where it has one.
    pub of_generator: Option<&'static GeneratorDescription>,
    /// What whole runs measure; of servers only where a job asks for rates.
    pub of_runs: Metric,
    /// What it shows of its runs in a report, beside results and reasons.
    pub section: Option<&'static Section>,
}

impl Description {
    /// Of an experiment on the pollers of this process, with nothing beside them.
    pub(crate) const PLAIN: Self = Self {
        name: "",
        title: "",
        about: "",
        question: "",
        axes: &[],
        curve: None,
        span: None,
        tool: None,
        drivers: &WITH_A_POLLER,
        ways: &[],
        baseline: "epoll",
        peers: &[],
        placeholders: &[],
        has_forms: false,
        times_requests: false,
        has_processes: false,
        cost: Cost::ns("CPU time per event", "ns/event"),
        of_generator: None,
        of_runs: Metric::rate("events per second", "events/s"),
        section: None,
    };

    /// Whether the measured side is a server, which takes its load from a generator: then any server
    /// that a user names can be an arm.
    pub(crate) const fn is_server(&self) -> bool {
        !self.placeholders.is_empty()
    }
}

/// What runs hold that is about the load's generator.
#[derive(Debug)]
pub struct GeneratorDescription {
    /// Findings about its own figures, which stand in the section on the load with how busy it was: a
    /// row compares what arms used.
    pub findings: &'static [&'static str],
    /// The one of them that says it could make no more load.
    pub bound: &'static str,
    /// The figure that says for which share of the time it was busy, where it does not observe itself.
    pub busy: &'static str,
    /// The figure that is its own and not the arm's where it was the bound.
    pub rate: &'static str,
}

/// An experiment of the lab; what it says of itself is read like fields of it.
pub trait Experiment: Sync {
    /// What it says of itself.
    fn description(&self) -> &'static Description;

    /// The kind of load of a point, in words.
    fn load(&self, axes: &Axes) -> String;

    /// Arms that a job asks for by its axes, beside those of its list.
    fn more_arms(
        &self,
        _axes: &BTreeMap<String, Vec<Value>>,
        _: &[Arm],
        _baseline: &str,
    ) -> Vec<Arm> {
        Vec::new()
    }

    /// Why an arm can't be run at a point at which others can, if so.
    fn arm_fault(&self, _axes: &Axes, _arm: &ArmKind) -> Option<String> {
        None
    }

    /// Whether an arm takes nearly all of something, so that no two such can live at once.
    fn takes_all(&self, _arm: &ArmKind) -> bool {
        false
    }

    /// Why there can't be such a point, on whatever machine.
    fn point_fault(&self, _axes: &Axes) -> Option<String> {
        None
    }

    /// What a point needs of the machine.
    fn needs(&self, axes: &Axes) -> Needs;

    /// How many requests are under way at a time: a turn that ends by its units holds some such waves.
    fn wave(&self, _axes: &Axes) -> u64 {
        1
    }

    /// The load generator of a point; none where an experiment needs none.
    fn generator(&self, _axes: &Axes) -> Option<Generator> {
        None
    }

    /// Whether what runs at a point can work and sleep in turns.
    fn takes_turns(&self, _axes: &Axes) -> bool {
        true
    }

    /// What whole runs measure at a point: of a server what a request costs it, unless a job asks for
    /// rates.
    fn metric(&self, _axes: &Axes, rates: bool) -> Metric {
        let description = self.description();
        if description.is_server() && !rates {
            description.cost.metric
        } else {
            description.of_runs
        }
    }

    /// Sets up an arm, asleep, to take turns.
    ///
    /// # Errors
    /// [`MeasureError`] when something cannot be obtained, or the arm is none of this experiment.
    fn start<'a>(&self, spec: &RunSpec, is_interrupted: &'a dyn Fn() -> bool) -> Started<'a>;

    /// Starts a server that a user brought, asks it some requests and ends it: what a plan has to know of it. Only
    /// experiments on servers have such arms.
    ///
    /// # Errors
    /// [`MeasureError`] when it can't be measured.
    fn look(&self, _: &RunSpec, _: &dyn Fn() -> bool) -> Result<Look, MeasureError> {
        Ok(Look::default())
    }

    /// Runs one arm once by itself; `on_interval` receives each interval when it ends.
    ///
    /// # Errors
    /// [`MeasureError`] when the workload can't be set up, fails, or falls silent.
    fn measure(
        &self,
        spec: &RunSpec,
        on_interval: &mut dyn FnMut(&Interval),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Done, MeasureError> {
        measure::alone(self.start(spec, is_interrupted)?, spec, on_interval)
    }
}

impl Deref for dyn Experiment + '_ {
    type Target = Description;

    fn deref(&self) -> &Description {
        self.description()
    }
}

/// The readiness loop over each of these.
const fn with_pollers<const COUNT: usize>(mechanisms: [Mechanism; COUNT]) -> [Driver; COUNT] {
    let mut drivers = [Driver::Completion; COUNT];
    let mut at = 0;
    while at < COUNT {
        drivers[at] = Driver::Readiness(mechanisms[at]);
        at += 1;
    }
    drivers
}

impl fmt::Debug for dyn Experiment + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for dyn Experiment + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl PartialEq for dyn Experiment + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// An experiment's axis along which values are expected to change, and from where on that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Name of the axis.
    pub axis: &'static str,
    /// Points below are start-up cost more than anything else.
    pub from: u64,
}

/// What a point takes of the machine, for each arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Descriptors of the measured side, beside the few that every process has.
    pub fds: u64,
    /// What each of its processes keeps free beside them.
    pub fds_spare: u64,
    /// Most processes that may share them.
    pub processes_max: u64,
    /// Descriptors of the process that makes the load.
    pub generator_fds: u64,
    /// Memory, where it is much.
    pub memory_bytes: u64,
    /// Time to start and end an arm.
    pub start: Duration,
    /// The shortest window that says something.
    pub runtime_min: Duration,
    /// The shortest turn, where that is longer than turns usually are.
    pub turn_min: Duration,
    /// Bytes that its message queues are charged to their user.
    pub queue_bytes: u64,
    /// What of the machine limits it beside that.
    pub concerns: &'static [Concern],
}

impl Needs {
    /// The needs of a workload in the measuring process, with so many descriptors that take so long
    /// to open and close.
    pub(crate) const fn of_thread(fds: u64, fd_cost: Duration) -> Self {
        Self {
            fds,
            fds_spare: FDS_SPARE,
            processes_max: 1,
            generator_fds: 0,
            memory_bytes: 0,
            start: PROCESS_COST.saturating_add(fd_cost.saturating_mul(fds as u32)),
            runtime_min: RUNTIME_MIN,
            turn_min: Duration::ZERO,
            queue_bytes: 0,
            concerns: &[Concern::Descriptors],
        }
    }

    /// The needs of a server in one process on so many connections of a load generator.
    pub(crate) const fn of_server(connections: u64) -> Self {
        Self {
            fds_spare: SERVER_FDS_SPARE,
            generator_fds: connections,
            memory_bytes: connections * CONNECTION_BYTES,
            start: SERVER_COST.saturating_add(TCP_COST.saturating_mul(connections as u32)),
            runtime_min: GENERATOR_RUNTIME_MIN,
            concerns: &[Concern::Servers],
            ..Self::of_thread(connections, Duration::ZERO)
        }
    }
}

/// What an experiment measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    pub name: &'static str,
    /// As written behind a value.
    pub unit: &'static str,
    /// Which way it gets better; everything that is said of a value follows from it.
    pub direction: Direction,
}

impl fmt::Display for Metric {
    /// With what a program has to print of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let better = match self.direction {
            Direction::HigherIsBetter => "more",
            Direction::LowerIsBetter => "less",
        };
        write!(f, "{} in {}, {better} is better", self.name, self.unit)
    }
}

impl Metric {
    pub(crate) const fn rate(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, direction: Direction::HigherIsBetter }
    }

    pub(crate) const fn cost(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, direction: Direction::LowerIsBetter }
    }
}

/// What a unit of work costs, and how that is measured in turns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// What is compared.
    pub metric: Metric,
    /// Nanoseconds in its unit.
    pub unit_ns: f64,
    /// Whether callers and workers share the cost, and a turn starts threads.
    pub is_shared: bool,
}

impl Cost {
    pub(crate) const fn ns(name: &'static str, unit: &'static str) -> Self {
        Self { metric: Metric::cost(name, unit), unit_ns: 1.0, is_shared: false }
    }

    pub(crate) const fn us(name: &'static str, unit: &'static str) -> Self {
        Self { metric: Metric::cost(name, unit), unit_ns: 1000.0, is_shared: false }
    }
}

/// What makes the load: pollux itself, here or as an agent on another host, or Debian's tools to repeat a figure. Which one
/// runs is the axis `generator` of `http`. One that this machine lacks takes its points out of the plan, with the package to install.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Generator {
    /// Pollux itself: in turns a thread of the subject's process, in whole runs a process of its own.
    Pollux,
    /// wrk; with `Connection: close` where connections are not kept.
    Wrk,
    /// ApacheBench; HTTP/1.0.
    Ab,
    /// Pollux as an agent on another host, whose name stands behind the word and a colon.
    Agent,
}

impl Generator {
    /// Those of this host.
    pub(crate) const HERE: [&'static str; 3] =
        [Self::Pollux.name(), Self::Wrk.name(), Self::Ab.name()];

    /// That of a point, whose axes were checked when they were read; pollux where nothing else is
    /// offered.
    pub(crate) fn of(axes: &Axes) -> Self {
        let read = |word: &str| {
            let kind = word.split_once(':').map_or(word, |(kind, _)| kind);
            kind.parse().expect("the axis has the words of this type")
        };
        axes.word("generator").map_or(Self::Pollux, read)
    }

    /// The agent of a point whose load comes from one.
    pub(crate) fn agent(axes: &Axes) -> Option<AgentName> {
        let (kind, name) = axes.word("generator")?.split_once(':')?;
        name.parse().ok().filter(|_| kind == Self::Agent.name())
    }

    /// Whether it is pollux itself, on whatever host.
    pub(crate) const fn is_own(self) -> bool {
        matches!(self, Self::Pollux | Self::Agent)
    }

    /// Name in job files and of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::VARIANTS[self as usize]
    }

    /// The Debian package that brings it; none for what is part of this program.
    #[must_use]
    pub const fn package(self) -> Option<&'static str> {
        match self {
            Self::Pollux | Self::Agent => None,
            Self::Wrk => Some("wrk"),
            Self::Ab => Some("apache2-utils"),
        }
    }
}

/// What an experiment shows of its runs in a report, beside results and reasons: tables of figures, as data. Page and
/// CI summary are made of the same.
#[derive(Debug)]
pub struct Section {
    /// Its anchor in the page.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Whether a run has something of it.
    pub(crate) is_of: fn(&Measurement) -> bool,
    pub(crate) topics: &'static [Topic],
    /// What is to be said of the runs of a part of a job, below its first table.
    pub(crate) remarks: fn(&Record, &str) -> Vec<String>,
    /// The unit of work for which counts of the kernel are shown as `perf stat` prints them; none
    /// where they are not.
    pub(crate) counts_for_each: Option<&'static str>,
    /// Whether the summary of a CI step has the tables too.
    pub(crate) is_in_summary: bool,
}

/// A table of columns.
#[derive(Debug)]
pub struct Topic {
    /// What it is about.
    pub(crate) heading: &'static str,
    /// How it is to be read.
    pub(crate) about: &'static str,
    pub(crate) columns: &'static [Column],
    /// Whether the calls of workers are drawn above it, for each arm as a curve of their shares.
    pub(crate) is_drawn: bool,
}

/// A column of figures.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// What is read of a run.
    read: Read,
    pub(crate) show: fn(f64) -> String,
    /// Why a run may be without.
    pub(crate) lacking: &'static str,
}

/// What a column reads of a run.
#[derive(Debug)]
enum Read {
    /// The figure of this name.
    Figure(&'static str),
    /// What this makes of it.
    Of(fn(&Measurement) -> Option<f64>),
}

impl Column {
    /// The figure called `name`.
    pub(crate) const fn figure(
        heading: &'static str,
        name: &'static str,
        show: fn(f64) -> String,
    ) -> Self {
        Self { heading, read: Read::Figure(name), show, lacking: UNREAD }
    }

    /// What `read` makes of a run.
    pub(crate) const fn of(
        heading: &'static str,
        read: fn(&Measurement) -> Option<f64>,
        show: fn(f64) -> String,
    ) -> Self {
        Self { heading, read: Read::Of(read), show, lacking: UNREAD }
    }

    /// The same with why a run may be without.
    pub(crate) const fn lacking(self, lacking: &'static str) -> Self {
        Self { lacking, ..self }
    }

    /// Over these runs; none where no run has it.
    pub(crate) fn median(&self, runs: &[&Measurement]) -> Option<f64> {
        let of_run = |run: &&Measurement| match self.read {
            Read::Figure(name) => run.figures.get(name).copied(),
            Read::Of(read) => read(run),
        };
        median(&runs.iter().filter_map(of_run).collect::<Vec<f64>>())
    }
}

/// The experiment called `name`, which there is.
#[cfg(test)]
pub(crate) fn known(name: &str) -> &'static dyn Experiment {
    by_name(name).expect(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_system_is_called_like_a_driver_or_a_way_of_an_experiment() {
        for peer in peers() {
            assert!(peer.name.parse::<Driver>().is_err(), "{peer:?}");
            assert!(ALL.iter().all(|experiment| !experiment.ways.contains(&peer)), "{peer:?}");
        }
    }

    #[test]
    fn every_name_finds_its_experiment_and_every_default_is_accepted_by_its_own_axis() {
        for experiment in ALL {
            assert_eq!(by_name(experiment.name), Some(experiment));
            for axis in experiment.axes {
                assert!(axis.defaults().iter().all(|value| axis.holds(value)), "{}", axis.name);
            }
        }
    }
}
