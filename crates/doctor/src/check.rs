//! One check: what was found, what is wanted, what follows, and the commands that fix it. Made by the
//! files of checks through [`Subject::judge`], which keeps n/a apart from a verdict.
//!
//! Commands are printed, never run. A remedy is one command or several, joined by `&&`: its steps. Two
//! checks may want the same setting at different values; [`agree`] makes all of them name the one that
//! serves both, so that the order in which they are run does not matter.

use std::collections::BTreeMap;
use std::fmt;

use pollux_host::Reading;
use pollux_host::environment::Environment;
use pollux_report::number::count;
use serde::{Serialize, Serializer};

use crate::readings::{Quota, Readings};

/// One thing looked at, and what it means for the experiments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The kernel's name where it has one, otherwise ours; the same in every version.
    pub name: String,
    /// The unit of `found`; `None` for words and plain counts that the name tells.
    pub unit: Option<&'static str>,
    /// What it concerns; the first is the group it is shown in.
    pub concerns: Vec<Concern>,
    /// What the machine has.
    pub found: Reading<CheckValue>,
    /// What would limit nothing, in words.
    pub wanted: String,
    pub verdict: Verdict,
    /// What is limited or blocked, in one clause; `None` where nothing is.
    pub limits: Option<String>,
    /// What fixes it, where something does.
    pub remedy: Option<Remedy>,
    /// The default job cannot run, or loses one of its experiments.
    pub blocks_default_job: bool,
}

/// What follows from a value. The order is that of the table: problems first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Something cannot run at all.
    Blocks,
    /// Something is smaller, noisier or less explained than it could be.
    Limits,
    /// The value could not be read, or does not exist here.
    NotAvailable,
    /// Nothing to do.
    Ok,
}

/// What a check concerns. The order is that of the table, below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// Whatever is measured.
    Everything,
    /// Many descriptors in one process.
    Descriptors,
    /// A server under a load generator.
    Servers,
    /// Many connections that have asked once and are silent.
    Dead,
    /// A connection for each request.
    Churn,
    /// Reply rate over the number of connections.
    Sweep,
    /// Message queues, and many processes that wait for one.
    Queues,
    /// A host that is one of several which put a load on a server together.
    Agents,
    /// What explains a figure: counts, samples, symbols.
    Counters,
}

/// A value that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CheckValue {
    /// A count, or an amount of the check's unit.
    Number(u64),
    /// A share or a mean.
    Decimal(f64),
    Text(String),
}

/// What a check says about a value that could be read.
pub(super) struct Judgement {
    verdict: Verdict,
    limits: Option<String>,
    remedy: Option<Remedy>,
    blocks_default_job: bool,
}

/// What a check looks at, before it is judged.
pub(super) struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) unit: Option<&'static str>,
    pub(super) concerns: &'static [Concern],
}

/// A setting of the kernel that is a number.
pub(super) struct Sysctl {
    pub(super) subject: Subject<'static>,
    /// What would limit nothing, in words.
    pub(super) wanted: String,
    pub(super) is_enough: fn(u64) -> bool,
    /// What a value that is not enough limits.
    pub(super) effect: fn(u64) -> String,
    /// The value that fixes it.
    pub(super) set: u64,
}

impl Check {
    /// Whether it concerns `asked`.
    #[must_use]
    pub fn concerns(&self, asked: Concern) -> bool {
        self.concerns.iter().any(|concern| [asked, Concern::Everything].contains(concern))
    }
}

/// Another name that users know a concern by, and its meaning.
type Alias = (&'static str, &'static str);

/// Each concern in the order of the table: its name on command lines and in JSON, other names that users know
/// it by with what those say, the heading of its group.
const CONCERNS: [(Concern, &str, &[Alias], &str); 9] = [
    (Concern::Everything, "everything", &[], "Every experiment"),
    (Concern::Descriptors, "descriptors", &[], "Many descriptors in one process"),
    (Concern::Servers, "servers", &[], "A server under load"),
    (Concern::Dead, "dead", &[("idle", "The same as dead")], "Dead connections"),
    (Concern::Churn, "churn", &[], "Churn: a connection for each request"),
    (Concern::Sweep, "sweep", &[], "Sweep over connections"),
    (
        Concern::Queues,
        "queues",
        &[("pool", "The same as queues")],
        "Message queues: a pool of services on one queue",
    ),
    (Concern::Agents, "agents", &[], "Load from several hosts: an agent here"),
    (Concern::Counters, "counters", &[], "Counters and samples"),
];

impl Concern {
    /// Every one, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        CONCERNS.iter().map(|row| row.0)
    }

    /// Name on command lines and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        CONCERNS[self as usize].1
    }

    /// Other names that users know it by, each with its meaning.
    #[must_use]
    pub const fn aliases(self) -> &'static [(&'static str, &'static str)] {
        CONCERNS[self as usize].2
    }

    /// Heading of its group.
    #[must_use]
    pub const fn title(self) -> &'static str {
        CONCERNS[self as usize].3
    }

    /// The concern called `name`, or by one of its other names.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all()
            .find(|own| own.name() == name || own.aliases().iter().any(|(alias, _)| *alias == name))
    }
}

impl Sysctl {
    pub(super) fn check(self, readings: &Readings) -> Check {
        let Self { subject, wanted, is_enough, effect, set } = self;
        let found = readings.files.number(&format!("/proc/sys/{}", subject.name.replace('.', "/")));
        let remedy = Remedy::sysctl(subject.name, set);
        subject.judge(found, wanted, |value| {
            Judgement::unless(is_enough(*value), effect(*value)).mended_by(remedy)
        })
    }
}

impl Subject<'_> {
    /// The check of something that was tried: a refusal is an answer here, and not a figure that is
    /// missing.
    pub(super) fn tried<T: fmt::Display>(
        self,
        tried: &Reading<T>,
        wanted: &str,
        effect: &str,
    ) -> Check {
        let found = tried.value().map_or_else(|| "no".to_owned(), T::to_string);
        self.judge(Reading::Value(found), wanted, |_| match tried.reason() {
            None => Judgement::ok(),
            Some(reason) => Judgement::limits(format!("{effect}: {reason}")),
        })
    }

    /// The check: n/a with its reason where nothing was read, otherwise what `judge` says.
    pub(super) fn judge<T: Into<CheckValue>>(
        self,
        reading: Reading<T>,
        wanted: impl Into<String>,
        judge: impl FnOnce(&T) -> Judgement,
    ) -> Check {
        let judgement = match &reading {
            Reading::Value(value) => judge(value),
            Reading::Unavailable { enable, .. } => Judgement {
                verdict: Verdict::NotAvailable,
                remedy: enable.clone().map(Remedy::of_command),
                ..Judgement::ok()
            },
        };
        Check {
            name: self.name.to_owned(),
            unit: self.unit,
            concerns: self.concerns.to_vec(),
            found: reading.map(Into::into),
            wanted: wanted.into(),
            verdict: judgement.verdict,
            limits: judgement.limits,
            remedy: judgement.remedy,
            blocks_default_job: judgement.blocks_default_job,
        }
    }
}

impl Judgement {
    pub(super) fn ok() -> Self {
        Self { verdict: Verdict::Ok, limits: None, remedy: None, blocks_default_job: false }
    }

    pub(super) fn limits(what: impl Into<String>) -> Self {
        Self { verdict: Verdict::Limits, limits: Some(what.into()), ..Self::ok() }
    }

    pub(super) fn blocks(what: impl Into<String>) -> Self {
        Self { verdict: Verdict::Blocks, ..Self::limits(what) }
    }

    /// Ok if `is_enough`, otherwise a limit on `what`.
    pub(super) fn unless(is_enough: bool, what: impl Into<String>) -> Self {
        if is_enough { Self::ok() } else { Self::limits(what) }
    }

    /// Names what fixes it; nothing where all is well.
    pub(super) fn mended_by(self, remedy: impl Into<Option<Remedy>>) -> Self {
        let remedy = if self.verdict == Verdict::Ok { None } else { remedy.into() };
        Self { remedy, ..self }
    }

    pub(super) fn and_the_default_job(self) -> Self {
        Self { blocks_default_job: true, ..self }
    }
}

impl From<u64> for CheckValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for CheckValue {
    fn from(number: f64) -> Self {
        Self::Decimal(number)
    }
}

impl From<String> for CheckValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Quota> for CheckValue {
    fn from(quota: Quota) -> Self {
        match quota {
            Quota::Unlimited => Self::Text("none".to_owned()),
            Quota::Cpus(cpus) => Self::Decimal(cpus),
        }
    }
}

impl fmt::Display for CheckValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => out.write_str(&count(*number)),
            Self::Decimal(number) => write!(out, "{number:.1}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}

impl Serialize for Concern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Between the steps of a command.
pub(crate) const AND: &str = " && ";
const SYSCTL: &str = "sudo sysctl -w ";
/// Settings of which less allows more; of all others more does.
const LESS_ALLOWS_MORE: [&str; 5] = [
    "kernel.perf_event_paranoid",
    "kernel.kptr_restrict",
    "kernel.io_uring_disabled",
    "kernel.sched_autogroup_enabled",
    "net.ipv4.tcp_fin_timeout",
];

/// A command for the user's shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Holds until the next boot or for this shell, unless it says otherwise.
    pub command: String,
    /// An ordinary user cannot do it alone; the command then has `sudo` where it is due.
    pub needs_root: bool,
}

impl Remedy {
    /// A command that any user can run, or one that says `sudo` itself.
    pub(crate) fn of_command(command: impl Into<String>) -> Self {
        let command = command.into();
        let needs_root = command.split_ascii_whitespace().any(|word| word == "sudo")
            || command.starts_with("boot ");
        Self { command, needs_root }
    }

    /// Sets a sysctl until the next boot.
    pub(crate) fn sysctl(name: &str, value: impl fmt::Display) -> Self {
        Self::of_command(setting_command(name, &value.to_string()))
    }

    /// Its commands, one after the other.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &str> {
        self.command.split(AND)
    }

    /// Writes a word into a file of `/sys`.
    pub(crate) fn write(word: &str, path: &str) -> Self {
        Self::of_command(format!("echo {word} | sudo tee {path}"))
    }

    /// Raises a hard limit of the calling shell and of what it starts, which takes
    /// `CAP_SYS_RESOURCE` (prlimit(1)). `None` where this root lacks it: a `sudo` would be the
    /// same root, so only the user that started the container or the machine can help.
    pub(crate) fn raise(environment: &Environment, limit: &str, value: u64) -> Option<Self> {
        if is_root_without_power(environment) {
            return None;
        }
        Some(Self::of_command(format!("sudo prlimit --pid $$ --{limit}={value}:{value}")))
    }
}

/// Gives each setting the one value that serves all checks that want it.
pub(crate) fn agree(checks: &mut [Check]) {
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in
        checks.iter().flat_map(remedies).flat_map(Remedy::steps).filter_map(setting)
    {
        let stricter = match wanted.get(name) {
            Some(known) if !allows_more(name, value, known) => continue,
            _ => value.to_owned(),
        };
        wanted.insert(name.to_owned(), stricter);
    }
    let agreed = |step: &str| match setting(step) {
        Some((name, _)) => setting_command(name, &wanted[name]),
        None => step.to_owned(),
    };
    for remedy in checks.iter_mut().filter_map(|check| check.remedy.as_mut()) {
        remedy.command = remedy.steps().map(agreed).collect::<Vec<_>>().join(AND);
    }
}

fn remedies(check: &Check) -> Option<&Remedy> {
    check.remedy.as_ref()
}

/// Whether the first value of a setting allows all that the second does and more. What is not a
/// number cannot be ordered: the first one stays.
fn allows_more(name: &str, value: &str, than: &str) -> bool {
    let (Ok(value), Ok(than)) = (value.parse::<i64>(), than.parse::<i64>()) else { return false };
    if LESS_ALLOWS_MORE.contains(&name) { value < than } else { value > than }
}

/// `sudo sysctl -w name=value` as its name and value.
fn setting(step: &str) -> Option<(&str, &str)> {
    let (name, value) = step.strip_prefix(SYSCTL)?.split_once('=')?;
    Some((name, value.trim_matches('"')))
}

fn setting_command(name: &str, value: &str) -> String {
    if value.contains(' ') {
        format!("{SYSCTL}{name}=\"{value}\"")
    } else {
        format!("{SYSCTL}{name}={value}")
    }
}

/// What to add where [`Remedy::raise`] has nothing.
pub(crate) fn note_on_rights(environment: &Environment) -> &'static str {
    if is_root_without_power(environment) {
        " (this root has no CAP_SYS_RESOURCE: raise it where the container or machine is started)"
    } else {
        ""
    }
}

fn is_root_without_power(environment: &Environment) -> bool {
    let held = environment.capabilities.value();
    environment.is_root
        && held.is_some_and(|held| !held.names.iter().any(|name| name == "CAP_SYS_RESOURCE"))
}
