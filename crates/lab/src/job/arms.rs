//! The list of arms: what job files and flags may name, and what that means in an experiment.
//!
//! One list serves several experiments, so it is read into what was [`Asked`] and becomes [`Arm`]s
//! when the experiment is known: `epoll` is a poller in most and a way of waiting in `herd`.

use pollux_engine::Driver;

use super::keys::{self, Section};
use super::kind::{self, refusal};
use super::mistake::did_you_mean;
use super::walk::{Said, Table, Walk, scalar, wrong_type};
use crate::arm::{Arm, ArmKind, Build, Peer, Program, Wait};
use crate::experiments::{self, Experiment};

/// Most arms that a user names; more than a table can show side by side.
pub(super) const NAMED_MAX: usize = 16;
/// What another build runs on when nothing is said: the mechanism that most servers use.
const BUILD_DRIVER: Driver = Driver::Readiness(pollux_poller::Mechanism::Epoll);
/// The baseline where it is an arm and none was named: of a herd the way that was made against it,
/// else what most servers use today.
const BASELINES: [&str; 2] = [Wait::Exclusive.name(), BUILD_DRIVER.name()];

/// One entry of a list of arms, before it is known of which experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Several that the experiment has.
    Group(Group),
    /// One that the lab knows by this name.
    Known(String),
    /// One that the user named.
    Named(Arm),
}

/// A word for several arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    All,
    Mechanisms,
    Others,
}

impl Group {
    const EACH: [(&str, Self); 3] =
        [("all", Self::All), ("mechanisms", Self::Mechanisms), ("others", Self::Others)];

    fn of(self, experiment: &dyn Experiment) -> Vec<Arm> {
        let drivers = experiment.drivers().iter().copied().map(Arm::driver);
        let waits = experiment.waits().iter().copied().map(Arm::wait);
        let peers = experiment.peers().iter().copied().map(Arm::peer);
        match self {
            Self::All => drivers.chain(waits).chain(peers).collect(),
            Self::Mechanisms => drivers.chain(waits).collect(),
            Self::Others => peers.collect(),
        }
    }
}

/// The words that a list of arms may hold: groups, drivers, ways of waiting, other systems.
#[must_use]
pub fn arm_names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Group::EACH.iter().map(|(name, _)| *name).collect();
    let drivers = Driver::ALL.map(Driver::name);
    for name in
        drivers.into_iter().chain(Wait::ALL.map(Wait::name)).chain(Peer::ALL.map(Peer::name))
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Every arm that an experiment has by itself.
pub(super) fn all_of(experiment: &dyn Experiment) -> Vec<Arm> {
    Group::All.of(experiment)
}

/// The arms of `experiment` among those that were asked for, each once.
pub(super) fn of(asked: &[Asked], experiment: &dyn Experiment) -> Vec<Arm> {
    let mut arms: Vec<Arm> = Vec::new();
    for asked in asked {
        for arm in one(asked, experiment) {
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
    }
    arms
}

fn one(asked: &Asked, experiment: &dyn Experiment) -> Vec<Arm> {
    match asked {
        Asked::Group(group) => group.of(experiment),
        Asked::Known(name) => known_of(name, experiment).into_iter().collect(),
        Asked::Named(arm) if takes(experiment, &arm.kind) => vec![arm.clone()],
        Asked::Named(_) => Vec::new(),
    }
}

/// A driver that the experiment can't run on stays: the plan leaves it out, with the reason.
fn known_of(name: &str, experiment: &dyn Experiment) -> Option<Arm> {
    let driver = name.parse::<Driver>().ok().filter(|_| !experiment.drivers().is_empty());
    let wait = Wait::by_name(name).filter(|wait| experiment.waits().contains(wait));
    let peer = Peer::by_name(name).filter(|peer| experiment.peers().contains(peer));
    driver.map(Arm::driver).or(wait.map(Arm::wait)).or(peer.map(Arm::peer))
}

fn takes(experiment: &dyn Experiment, kind: &ArmKind) -> bool {
    match kind {
        ArmKind::Build(_) => !experiment.drivers().is_empty(),
        ArmKind::Server { .. } | ArmKind::Running { .. } => experiment.is_server(),
        _ => true,
    }
}

/// Why the first of `asked` that none of `experiments` has is none of theirs, with its name.
pub(super) fn stranger(
    asked: &[Asked],
    experiments: &[&'static dyn Experiment],
) -> Option<(String, String)> {
    let is_strange = |asked: &&Asked| {
        !matches!(asked, Asked::Group(_))
            && experiments.iter().all(|experiment| one(asked, *experiment).is_empty())
    };
    let names = |experiments: &[&dyn Experiment]| -> Vec<&str> {
        experiments.iter().map(|experiment| experiment.name()).collect()
    };
    let here = names(experiments).join(", ");
    match asked.iter().find(is_strange)? {
        Asked::Named(Arm { name, kind: ArmKind::Build(_) }) => {
            Some((name.clone(), format!("{here}: no build of pollux can be an arm of it")))
        }
        Asked::Named(Arm { name, .. }) => Some((
            name.clone(),
            format!("{here}: no server; expected a program that prints a figure, with a pattern"),
        )),
        asked @ Asked::Known(name) => {
            let owners = experiments::ALL.into_iter();
            let owners: Vec<_> = owners.filter(|each| !one(asked, *each).is_empty()).collect();
            let owners = names(&owners).join(", ");
            Some((name.clone(), format!("no arm of {here}; it belongs to {owners}")))
        }
        Asked::Group(_) => None,
    }
}

/// What is wrong with a list that leaves nothing for `experiment`.
pub(super) fn nothing_left(experiment: &dyn Experiment) -> String {
    let names: Vec<String> = all_of(experiment).into_iter().map(|arm| arm.name).collect();
    format!("no arm is left of {experiment}, which has {}", names.join(", "))
}

/// The baseline when none is named: the usual one where it is an arm, else the first arm.
pub(crate) fn default_baseline(arms: &[Arm]) -> Option<String> {
    let mut names = arms.iter().map(|arm| arm.name.as_str());
    let usual = BASELINES.into_iter().find(|usual| names.clone().any(|arm| arm == *usual));
    usual.or(names.next()).map(str::to_owned)
}

/// Why `baseline` cannot be compared with, if so.
pub(super) fn baseline_fault(baseline: &str, arms: &[Arm]) -> Option<String> {
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    (!names.contains(&baseline)).then(|| {
        let suggestion = did_you_mean(baseline, names.iter().copied());
        format!("\"{baseline}\" is none of the arms, which are {}{suggestion}", names.join(", "))
    })
}

/// A word of a list.
pub(super) fn word(text: &str) -> Result<Asked, String> {
    if let Some((_, group)) = Group::EACH.iter().find(|(name, _)| *name == text) {
        return Ok(Asked::Group(*group));
    }
    let names = arm_names();
    match names.contains(&text) {
        true => Ok(Asked::Known(text.to_owned())),
        false => {
            let suggestion = did_you_mean(text, names.iter().copied());
            Err(format!("no such arm; expected {}{suggestion}", names.join(", ")))
        }
    }
}

/// Why `next` may not stand behind the others, if so.
pub(super) fn next_fault(asked: &[Asked], next: &Asked) -> Option<String> {
    let Asked::Named(arm) = next else {
        return asked.contains(next).then(|| "stands here twice; expected once".to_owned());
    };
    let name = &arm.name;
    if arm_names().contains(&name.as_str()) {
        return Some(format!("\"{name}\" is a name of the lab; expected a name of its own"));
    }
    let named = asked.iter().filter_map(|asked| match asked {
        Asked::Named(arm) => Some(&arm.name),
        _ => None,
    });
    let named: Vec<&String> = named.collect();
    if named.contains(&name) {
        return Some(format!("two arms are called \"{name}\"; expected a name for each"));
    }
    (named.len() == NAMED_MAX)
        .then(|| format!("too many arms with names of their own; expected at most {NAMED_MAX}"))
}

/// The list `arms` of a section of a job file.
pub(super) fn in_file<'a>(walk: &mut Walk<'a>, table: Table<'a>) -> Said<Vec<Asked>> {
    let Some((at, items)) = walk.items(table, "arms") else { return Said::Nothing };
    let key = keys::key(table.section, "arms");
    let mut asked = Vec::new();
    let mut is_right = !items.is_empty();
    if items.is_empty() {
        walk.refuse(table, "arms", &refusal(key, "an empty list"));
    }
    for item in items {
        let read = match (Table::of(Section::Arm, item), scalar(item.get_ref())) {
            (Some(arm), _) => in_table(walk, arm).map(Asked::Named).ok_or(None),
            (None, Some(text)) if item.get_ref().is_str() => word(&text).map_err(Some),
            _ => Err(Some(refusal(key, &wrong_type(item.get_ref())))),
        };
        let read = read.and_then(|next| match next_fault(&asked, &next) {
            None => Ok(next),
            Some(fault) => Err(Some(fault)),
        });
        match read {
            Ok(next) => asked.push(next),
            Err(fault) => {
                is_right = false;
                if let Some(fault) = fault {
                    walk.wrong::<()>("arms", item, &fault);
                }
            }
        }
    }
    if is_right { Said::Value(asked, at) } else { Said::Wrong }
}

/// One arm that is a table; what is wrong with it is noted.
fn in_table<'a>(walk: &mut Walk<'a>, table: Table<'a>) -> Option<Arm> {
    walk.check_names(table, &[]);
    let name = walk.required(table, "name", kind::name);
    let forms = ["server", "pid", "pollux", "command"];
    let given: Vec<&str> = forms.into_iter().filter(|form| table.has(form)).collect();
    let kind = match given.as_slice() {
        ["server"] => {
            let command = walk.required(table, "server", kind::server_line);
            command.map(|command| ArmKind::Server { command })
        }
        ["pid"] => {
            let pid = walk.required(table, "pid", kind::whole_u32);
            let address = walk.required(table, "address", kind::address);
            pid.zip(address).map(|(pid, address)| ArmKind::Running { pid, address })
        }
        ["pollux"] => {
            let program = walk.required(table, "pollux", kind::line);
            let driver = match walk.said(table, "driver", kind::driver) {
                Said::Nothing => Some(BUILD_DRIVER),
                said => said.value(),
            };
            let build = program.zip(driver);
            build.map(|(program, driver)| ArmKind::Build(Build { program: program.into(), driver }))
        }
        ["command"] => {
            let command = walk.required(table, "command", kind::command_line);
            let pattern = walk.required(table, "pattern", kind::pattern);
            let program = command.zip(pattern);
            program.map(|(command, pattern)| ArmKind::Program(Program { command, pattern }))
        }
        _ => {
            let what = "expected one of server, pid with address, pollux, command with pattern";
            walk.note(table.at, format!("{} of them in an arm; {what}", given.len()));
            None
        }
    };
    Some(Arm { name: name?, kind: kind? })
}

/// What an arm of the command line is called, and what stands behind `=`.
pub(super) fn named_in_flag(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').map(|(name, what)| (name.trim(), what.trim()))
}

/// Whether what stands behind `=` is the command line of a program or server.
pub(super) fn is_command(what: &str, bare_is_build: bool) -> bool {
    !bare_is_build && !what.starts_with("pid:") && !what.starts_with("pollux:")
}

/// The arm `name=what` of the command line.
pub(super) fn in_flag(
    name: &str,
    what: &str,
    pattern: Option<&str>,
    bare_is_build: bool,
) -> Result<Arm, String> {
    let key = |name| keys::key(Section::Arm, name);
    let name = kind::name(key("name"), name)?;
    let kind = if let Some(running) = what.strip_prefix("pid:") {
        let (pid, address) = running.split_once('@').ok_or("expected NAME=pid:PID@ADDRESS")?;
        let pid = kind::whole_u32(key("pid"), pid)?;
        ArmKind::Running { pid, address: kind::address(key("address"), address)? }
    } else if !is_command(what, bare_is_build) {
        let what = what.strip_prefix("pollux:").unwrap_or(what);
        ArmKind::Build(build(&kind::line(key("pollux"), what)?))
    } else if let Some(pattern) = pattern {
        let command = kind::command_line(key("command"), what)?;
        ArmKind::Program(Program { command, pattern: kind::pattern(key("pattern"), pattern)? })
    } else {
        ArmKind::Server { command: kind::server_line(key("server"), what)? }
    };
    Ok(Arm { name, kind })
}

/// `PATH` or `PATH@DRIVER`.
fn build(text: &str) -> Build {
    let driver = text.rsplit_once('@').and_then(|(path, name)| Some((path, name.parse().ok()?)));
    let (path, driver) = driver.unwrap_or((text, BUILD_DRIVER));
    Build { program: path.into(), driver }
}

#[cfg(test)]
mod tests {
    use pollux_poller::Mechanism;

    use super::*;
    use crate::experiments::known;

    fn names(arms: &[Arm]) -> Vec<&str> {
        arms.iter().map(|arm| arm.name.as_str()).collect()
    }

    fn server(name: &str) -> Asked {
        let kind = ArmKind::Server { command: "mine {port}".to_owned() };
        Asked::Named(Arm { name: name.to_owned(), kind })
    }

    #[test]
    fn a_name_means_what_the_experiment_has_of_that_name() {
        let asked: Vec<Asked> =
            ["epoll", "uring", "nginx"].into_iter().map(|name| word(name).expect(name)).collect();
        let http = of(&asked, known("http"));
        assert_eq!(http[1].kind, ArmKind::Driver(Driver::Completion));
        assert_eq!(names(&http), ["epoll", "uring", "nginx"]);
        let herd = of(&asked, known("herd"));
        assert_eq!(herd[0].kind, ArmKind::Wait(Wait::Epoll));
        assert_eq!(names(&herd), ["epoll", "uring"]);
        // What an experiment can't run on is for the plan to say.
        assert_eq!(names(&of(&asked, known("streams"))), ["epoll", "uring"]);
        assert_eq!(stranger(&asked, &[known("chain"), known("http")]), None);
        let (name, what) = stranger(&asked, &[known("chain")]).expect("nginx is no library");
        assert_eq!((&*name, &*what), ("nginx", "no arm of chain; it belongs to http"));
    }

    #[test]
    fn groups_hold_each_arm_once_and_servers_are_for_experiments_that_take_them() {
        let asked = [word("mechanisms"), word("epoll"), word("raw-epoll"), word("others")];
        let asked: Vec<Asked> = asked.into_iter().map(|asked| asked.expect("a word")).collect();
        let all = of(&asked, known("http"));
        assert_eq!(all.len(), all_of(known("http")).len());
        assert_eq!(names(&of(&[server("mine")], known("http"))), ["mine"]);
        assert!(of(&[server("mine")], known("pipes")).is_empty());
        assert!(stranger(&[server("mine")], &[known("pipes")]).is_some());
    }

    #[test]
    fn an_arm_has_a_name_of_its_own() {
        let asked = [server("a")];
        assert_eq!(next_fault(&asked, &server("b")), None);
        for wrong in ["a", "poll", "nginx", "exclusive", "all"] {
            assert!(next_fault(&asked, &server(wrong)).is_some(), "{wrong}");
        }
        let many: Vec<Asked> = (0..NAMED_MAX).map(|at| server(&format!("c{at}"))).collect();
        assert!(next_fault(&many, &server("b")).is_some());
        assert_eq!(next_fault(&many[1..], &server("b")), None);
    }

    #[test]
    fn an_arm_of_the_command_line_says_what_it_is() {
        let read = |what, pattern, bare| in_flag("a", what, pattern, bare).map(|arm| arm.kind);
        let program = ArmKind::Program(Program { command: "b 1".into(), pattern: "(.)".into() });
        assert_eq!(read("b 1", Some("(.)"), false), Ok(program));
        let command = "b {port}".to_owned();
        assert_eq!(read("b {port}", None, false), Ok(ArmKind::Server { command }));
        assert!(read("b 1", None, false).is_err_and(|what| what.contains("{port}")));
        let build = |path: &str, driver| Ok(ArmKind::Build(Build { program: path.into(), driver }));
        let epoll = Driver::Readiness(Mechanism::Epoll);
        assert_eq!(read("pollux:old/pollux", Some("(.)"), false), build("old/pollux", epoll));
        assert_eq!(read("old/pollux@uring", None, true), build("old/pollux", Driver::Completion));
        assert_eq!(read("a@b/pollux", None, true), build("a@b/pollux", epoll));
        let address = "127.0.0.1:80".parse().expect("an address");
        assert_eq!(
            read("pid:7@127.0.0.1:80", None, false),
            Ok(ArmKind::Running { pid: 7, address })
        );
        for wrong in ["pid:7", "pid:0@127.0.0.1:80", "pid:7@here", "", "pollux:"] {
            assert!(read(wrong, None, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_usual_baseline_gives_way_to_the_first_arm() {
        let arms = |names: &[&str]| {
            let asked: Vec<Asked> = names.iter().map(|name| word(name).expect(name)).collect();
            of(&asked, known("herd"))
        };
        let baseline = |names: &[&str]| default_baseline(&arms(names));
        assert_eq!(baseline(&["block", "epoll"]).as_deref(), Some("epoll"));
        assert_eq!(baseline(&["epoll", "exclusive"]).as_deref(), Some("exclusive"));
        assert_eq!(baseline(&["block", "pool"]).as_deref(), Some("block"));
        assert_eq!(baseline(&[]), None);
    }
}
