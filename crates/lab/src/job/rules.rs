//! What must hold between the values of a job: lists without repetition, arms with their own
//! names, a baseline among the arms, intervals that fit into the window.
//!
//! Job files and flags are checked by the same rules; a rule answers with what is wrong in
//! words, and its caller knows where that stands.

use std::time::Duration;

use pollux_engine::Driver;
use pollux_poller::Mechanism;

use crate::experiment::{Axis, Experiment, Peer, Wait};

use super::keys::{self, Section};
use super::kind::{self, length_text};
use super::mistake::did_you_mean;
use super::{Build, Command, arms_of_pollux};

/// Most values of one axis; each makes a point of the plan.
const AXIS_VALUES_MAX: usize = 64;
/// Most external arms of one experiment; more than a table can show side by side.
pub(super) const COMMANDS_MAX: usize = 16;
/// Most builds of pollux in one job.
const BUILDS_MAX: usize = 8;
/// Most intervals of one run: each is kept in the result. Ten minutes of the default interval.
const INTERVALS_MAX: u128 = 6000;
/// The baseline where it is an arm and none was named: of a herd the way that was made against it,
/// else what most servers use today.
const BASELINES: [&str; 2] = [Wait::Exclusive.name(), Mechanism::Epoll.name()];

/// Mistakes of a list: the index of the item, and what is wrong with it.
pub(super) type ItemMistakes = Vec<(usize, String)>;

/// A choice of arms before it is known for which experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice<T> {
    /// Whatever the experiment has.
    All,
    /// These; an experiment that lacks one says so.
    These(Vec<T>),
}

impl Choice<Driver> {
    /// The drivers for `experiment`. One that it can't run on stays and is left out by the plan,
    /// with the reason.
    pub(super) fn of(&self, experiment: Experiment) -> Vec<Driver> {
        match self {
            Self::These(drivers) if !experiment.drivers().is_empty() => drivers.clone(),
            _ => experiment.drivers().to_vec(),
        }
    }
}

impl Choice<Wait> {
    /// The ways of `experiment` among these.
    pub(super) fn of(&self, experiment: Experiment) -> Vec<Wait> {
        let waits = experiment.waits().iter().copied();
        match self {
            Self::All => waits.collect(),
            Self::These(these) => {
                these.iter().copied().filter(|wait| experiment.waits().contains(wait)).collect()
            }
        }
    }
}

impl Choice<Peer> {
    /// The peers of `experiment` among these.
    pub(super) fn of(&self, experiment: Experiment) -> Vec<Peer> {
        let peers = experiment.peers().iter().copied();
        match self {
            Self::All => peers.collect(),
            Self::These(these) => {
                these.iter().copied().filter(|peer| experiment.peers().contains(peer)).collect()
            }
        }
    }

    /// The first of these that none of `experiments` has.
    pub(super) fn stranger(&self, experiments: &[Experiment]) -> Option<Peer> {
        let Self::These(these) = self else { return None };
        let is_known = |peer: &Peer| experiments.iter().any(|each| each.peers().contains(peer));
        these.iter().copied().find(|peer| !is_known(peer))
    }
}

/// Reads a list of drivers, or one of the words `all` and `none`.
pub(super) fn pollers(items: &[&str]) -> Result<Choice<Driver>, ItemMistakes> {
    choice(items, "run only other arms", poller)
}

/// Reads a list of ways of waiting, or one of the words `all` and `none`.
pub(super) fn waits(items: &[&str]) -> Result<Choice<Wait>, ItemMistakes> {
    choice(items, "run only other arms", wait)
}

/// Reads a list of peers, or one of the words `all` and `none`.
pub(super) fn peers(items: &[&str]) -> Result<Choice<Peer>, ItemMistakes> {
    choice(items, "compare only pollers", peer)
}

fn choice<T: PartialEq>(
    items: &[&str],
    purpose: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Choice<T>, ItemMistakes> {
    match items {
        [] => Err(vec![(0, format!("an empty list; write \"none\" to {purpose}"))]),
        ["all"] => Ok(Choice::All),
        ["none"] => Ok(Choice::These(Vec::new())),
        _ => distinct(items, read).map(Choice::These),
    }
}

/// Reads a list of builds of pollux, each with a name of its own.
pub(super) fn builds(items: &[&str]) -> Result<Vec<Build>, ItemMistakes> {
    let key = keys::key(Section::Job, "binaries");
    if items.len() > BUILDS_MAX {
        let what = format!("{} builds; expected at most {BUILDS_MAX}", items.len());
        return Err(vec![(BUILDS_MAX, what)]);
    }
    let read = |item: &str| {
        let build = kind::build(key, item)?;
        name_fault(&build.name).map_or(Ok(build), Err)
    };
    let builds = distinct(items, read)?;
    let is_second = |at: &usize| builds[..*at].iter().any(|other| other.name == builds[*at].name);
    match (0..builds.len()).find(is_second) {
        None => Ok(builds),
        Some(at) => {
            let name = &builds[at].name;
            Err(vec![(at, format!("two builds are called \"{name}\"; expected a name for each"))])
        }
    }
}

/// Reads the values of an axis in their canonical form.
pub(super) fn axis_values(axis: &Axis, items: &[&str]) -> Result<Vec<String>, ItemMistakes> {
    if items.is_empty() {
        return Err(vec![(0, format!("an empty list; expected {}", axis.accepts()))]);
    }
    if items.len() > AXIS_VALUES_MAX {
        let what = format!("{} values; at most {AXIS_VALUES_MAX} make points", items.len());
        return Err(vec![(AXIS_VALUES_MAX, what)]);
    }
    distinct(items, |value| {
        axis.check(value).map_err(|_| {
            let words = axis.accepts();
            let suggestion = did_you_mean(value, words.split(", "));
            format!("not accepted; expected {words}{suggestion}")
        })
    })
}

/// Why the last of `commands` may not be an arm beside the others, if so.
pub(super) fn last_command_fault(commands: &[Command]) -> Option<String> {
    let (last, others) = commands.split_last()?;
    let name = &last.name;
    if commands.len() > COMMANDS_MAX {
        return Some(format!("too many external arms; expected at most {COMMANDS_MAX}"));
    }
    if let Some(fault) = name_fault(name) {
        return Some(fault);
    }
    others
        .iter()
        .any(|other| other.name == *name)
        .then(|| format!("two arms are called \"{name}\"; expected a name for each"))
}

/// Why an arm may not be called so, if so.
fn name_fault(name: &str) -> Option<String> {
    let owner = match (name.parse::<Driver>(), Peer::by_name(name), Wait::by_name(name)) {
        (Ok(_), ..) => "poller",
        (_, Some(_), _) => "peer",
        (.., Some(_)) => "way of waiting",
        _ => return None,
    };
    Some(format!("\"{name}\" is the name of a {owner}; expected a name of its own"))
}

/// The names of the arms: those of pollux in their order, the ways of waiting, the peers, then the
/// commands.
pub(super) fn arms(
    pollers: &[Driver],
    builds: &[Build],
    waits: &[Wait],
    peers: &[Peer],
    commands: &[Command],
) -> Vec<String> {
    let ours = arms_of_pollux(pollers, builds).into_iter().map(|(name, ..)| name);
    let commands = commands.iter().map(|command| command.name.clone());
    let peers = peers.iter().map(|peer| peer.name().to_owned());
    let waits = waits.iter().map(|wait| wait.name().to_owned());
    ours.chain(waits).chain(peers).chain(commands).collect()
}

/// Why the arms are no arms, if two of them have one name.
pub(super) fn arms_fault(arms: &[String]) -> Option<String> {
    let second = (0..arms.len()).find(|&at| arms[..at].contains(&arms[at]))?;
    Some(format!("two arms are called \"{}\"; expected a name for each", arms[second]))
}

/// The baseline when none is named: the usual one where it is an arm, else the first arm.
pub(crate) fn default_baseline(arms: &[impl AsRef<str>]) -> Option<String> {
    let mut names = arms.iter().map(AsRef::as_ref);
    let usual = BASELINES.into_iter().find(|usual| names.clone().any(|arm| arm == *usual));
    usual.or(names.next()).map(str::to_owned)
}

/// Why `baseline` cannot be compared with, if so.
pub(super) fn baseline_fault(baseline: &str, arms: &[String]) -> Option<String> {
    (!arms.iter().any(|arm| arm == baseline)).then(|| {
        let suggestion = did_you_mean(baseline, arms.iter().map(String::as_str));
        format!("\"{baseline}\" is none of the arms, which are {}{suggestion}", arms.join(", "))
    })
}

/// Why a window cannot be cut into such intervals, if so.
pub(super) fn interval_fault(runtime: Duration, interval: Duration) -> Option<String> {
    let (runtime_text, text) = (length_text(runtime), length_text(interval));
    if interval > runtime {
        return Some(format!(
            "an interval of {text} is longer than the runtime of {runtime_text}; expected at \
             most {runtime_text}"
        ));
    }
    (runtime.as_nanos() / interval.as_nanos() > INTERVALS_MAX).then(|| {
        format!(
            "intervals of {text} cut the runtime of {runtime_text} into too many; expected at \
             most {INTERVALS_MAX}"
        )
    })
}

/// Why these numbers of blocks do not go together, if so.
pub(super) fn blocks_fault(blocks: u32, blocks_max: u32) -> Option<String> {
    (blocks > blocks_max).then(|| {
        format!("{blocks} blocks are more than max_blocks = {blocks_max}; expected at most that")
    })
}

fn wait(name: &str) -> Result<Wait, String> {
    Wait::by_name(name).ok_or_else(|| {
        let names = Wait::ALL.map(Wait::name);
        let suggestion = did_you_mean(name, names.into_iter().chain(["all", "none"]));
        let names = names.join(", ");
        format!("no such way of waiting; expected \"all\", \"none\" or {names}{suggestion}")
    })
}

fn peer(name: &str) -> Result<Peer, String> {
    Peer::by_name(name).ok_or_else(|| {
        let names = Peer::ALL.map(Peer::name);
        let suggestion = did_you_mean(name, names.into_iter().chain(["all", "none"]));
        format!("no such peer; expected \"all\", \"none\" or {}{suggestion}", names.join(", "))
    })
}

fn poller(name: &str) -> Result<Driver, String> {
    name.parse::<Driver>().map_err(|_| {
        let names = Driver::ALL.map(Driver::name);
        let suggestion = did_you_mean(name, names.into_iter().chain(["all", "none"]));
        format!("no such poller; expected \"all\", \"none\" or {}{suggestion}", names.join(", "))
    })
}

/// Reads every item and refuses repetitions.
pub(super) fn distinct<T: PartialEq>(
    items: &[&str],
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, ItemMistakes> {
    let mut values = Vec::new();
    let mut mistakes = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match read(item) {
            Ok(value) if values.contains(&value) => {
                mistakes.push((at, "stands here twice; expected once".to_owned()));
            }
            Ok(value) => values.push(value),
            Err(what) => mistakes.push((at, what)),
        }
    }
    if mistakes.is_empty() { Ok(values) } else { Err(mistakes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str) -> Command {
        Command { name: name.to_owned(), line: "true".to_owned(), pattern: "(.)".to_owned() }
    }

    #[test]
    fn pollers_are_a_word_or_a_list_without_repetition() {
        assert_eq!(pollers(&["all"]), Ok(Choice::All));
        assert_eq!(pollers(&["none"]), Ok(Choice::These(vec![])));
        let two = [Mechanism::Poll, Mechanism::Epoll].map(Driver::Readiness);
        assert_eq!(pollers(&["poll", "epoll"]), Ok(Choice::These(two.to_vec())));
        for (items, at) in [(vec![], 0), (vec!["poll", "epol"], 1), (vec!["poll", "poll"], 1)] {
            assert_eq!(pollers(&items).expect_err("refused")[0].0, at, "{items:?}");
        }
    }

    #[test]
    fn peers_are_those_of_the_experiment() {
        let all = peers(&["all"]).expect("a word");
        assert_eq!(all.of(Experiment::Http), Experiment::Http.peers());
        assert!(all.of(Experiment::Pipes).is_empty());
        let some = peers(&["raw-epoll", "nginx"]).expect("two peers");
        assert_eq!(some.of(Experiment::Chain), [Peer::RawEpoll]);
        assert_eq!(some.stranger(&[Experiment::Chain]), Some(Peer::Nginx));
        assert_eq!(some.stranger(&[Experiment::Chain, Experiment::Http]), None);
        assert_eq!(peers(&["nginks"]).expect_err("unknown")[0].0, 0);
    }

    #[test]
    fn an_arm_has_a_name_of_its_own() {
        assert_eq!(last_command_fault(&[command("a"), command("b")]), None);
        assert!(last_command_fault(&[command("a"), command("a")]).is_some());
        assert!(last_command_fault(&[command("poll")]).is_some());
        assert!(last_command_fault(&[command("nginx")]).is_some());
        let many: Vec<_> = (0..=COMMANDS_MAX).map(|at| command(&format!("c{at}"))).collect();
        assert!(last_command_fault(&many).is_some());
        assert_eq!(last_command_fault(&many[1..]), None);
    }

    #[test]
    fn builds_are_arms_for_each_poller_under_names_of_their_own() {
        let two = builds(&["old=a/pollux", "new = b/pollux"]).expect("two builds");
        let epoll = Driver::Readiness(Mechanism::Epoll);
        assert_eq!(arms(&[epoll], &two, &[], &[Peer::Nginx], &[]), ["old", "new", "nginx"]);
        let both = arms(&[epoll, Driver::Completion], &two, &[], &[], &[]);
        assert_eq!(both, ["epoll-old", "epoll-new", "uring-old", "uring-new"]);
        for wrong in [&["old"][..], &["=a"], &["old="], &["epoll=a"], &["a=b", "a=c"], &["a b=c"]] {
            assert!(builds(wrong).is_err(), "{wrong:?}");
        }
        assert!(arms_fault(&arms(&[epoll], &two, &[], &[], &[command("new")])).is_some());
    }

    #[test]
    fn the_usual_baseline_gives_way_to_the_first_arm() {
        assert_eq!(default_baseline(&["poll", "epoll"]).as_deref(), Some("epoll"));
        assert_eq!(default_baseline(&["epoll", "exclusive"]).as_deref(), Some("exclusive"));
        assert_eq!(default_baseline(&["poll", "mine"]).as_deref(), Some("poll"));
        assert_eq!(default_baseline(&[""; 0]), None);
    }

    #[test]
    fn intervals_fit_into_the_window_and_stay_few() {
        let ms = Duration::from_millis;
        assert_eq!(interval_fault(ms(100), ms(100)), None);
        assert!(interval_fault(ms(99), ms(100)).is_some());
        assert_eq!(interval_fault(ms(600_000), ms(100)), None);
        assert!(interval_fault(ms(600_000), ms(50)).is_some());
    }
}
