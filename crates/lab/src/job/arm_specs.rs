//! The list of arms: what job files and flags may name, and what that means in an experiment.
//!
//! One list serves several experiments, so it is read into what was [`ArmSpec`] and becomes [`Arm`]s
//! when the experiment is known: `epoll` is a poller in most and a way of waiting in `herd`.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use pollux_engine::{Address, Driver, ListenAddress};
use pollux_settings::{
    Keys, Kind, Table, did_you_mean, integer, line, name, one_of, parsed, table,
};

use crate::arm::{Arm, ArmKind, Build, Program};
use crate::experiments::{self, Experiment};
use crate::form::Form;

/// Highest number of a process (`PID_MAX_LIMIT`).
const PID_MAX: u64 = 1 << 22;
/// Most entries of a list: all that the lab has, and those of the user.
const ASKED_MAX: usize = 64;
/// Most arms that a user names; more than a table can show side by side.
const NAMED_MAX: usize = 16;
/// What another build runs on when nothing is said: the mechanism that most servers use.
const BUILD_DRIVER: Driver = Driver::Readiness(pollux_poller::Mechanism::Epoll);

/// For a server of a name to accept a connection.
const LISTENS_TIMEOUT: Duration = Duration::from_secs(1);

/// One entry of a list of arms, before it is known of which experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ArmSpec {
    /// Several that the experiment has.
    Group(Group),
    /// One that the lab knows by this name.
    Known(String),
    /// A bare server in a form.
    Form(Form),
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
        let drivers = experiment.drivers.iter().copied().map(Arm::driver);
        let ways = experiment.ways.iter().copied().map(Arm::way);
        let peers = experiment.peers.iter().copied().map(Arm::peer);
        match self {
            Self::All => drivers.chain(ways).chain(peers).collect(),
            Self::Mechanisms => drivers.chain(ways).collect(),
            Self::Others => peers.collect(),
        }
    }
}

/// The words that a list of arms may hold: groups, drivers, ways of waiting, other systems.
pub(crate) fn arm_names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Group::EACH.iter().map(|(name, _)| *name).collect();
    let drivers = Driver::ALL.map(Driver::name);
    let ways = experiments::ALL.into_iter().flat_map(|each| each.ways).map(|way| way.name);
    let peers = experiments::peers().into_iter().map(|peer| peer.name);
    for name in drivers.into_iter().chain(ways).chain(peers) {
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
pub(super) fn of(asked: &[ArmSpec], experiment: &dyn Experiment) -> Vec<Arm> {
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

fn one(asked: &ArmSpec, experiment: &dyn Experiment) -> Vec<Arm> {
    match asked {
        ArmSpec::Group(group) => group.of(experiment),
        ArmSpec::Known(name) => known_of(name, experiment).into_iter().collect(),
        ArmSpec::Form(form) if takes(experiment, &ArmKind::Form(*form)) => vec![Arm::form(*form)],
        ArmSpec::Named(arm) if takes(experiment, &arm.kind) => vec![arm.clone()],
        ArmSpec::Form(_) | ArmSpec::Named(_) => Vec::new(),
    }
}

/// A driver that the experiment can't run on stays: the plan leaves it out, with the reason.
fn known_of(name: &str, experiment: &dyn Experiment) -> Option<Arm> {
    let driver = name.parse::<Driver>().ok().filter(|_| !experiment.drivers.is_empty());
    let way = experiment.ways.iter().copied().find(|way| way.name == name);
    let peer = experiment.peers.iter().copied().find(|peer| peer.name == name);
    driver.map(Arm::driver).or(way.map(Arm::way)).or(peer.map(Arm::peer))
}

pub(super) fn takes(experiment: &dyn Experiment, kind: &ArmKind) -> bool {
    match kind {
        ArmKind::Build(_) => !experiment.drivers.is_empty(),
        ArmKind::Form(_) => experiment.has_forms,
        ArmKind::Server { .. } | ArmKind::Running { .. } => experiment.is_server(),
        _ => true,
    }
}

/// Why the first of `asked` that none of `experiments` has is none of theirs, with its name.
pub(super) fn unknown_to(
    asked: &[ArmSpec],
    experiments: &[&'static dyn Experiment],
) -> Option<(String, String)> {
    let is_unknown = |asked: &&ArmSpec| {
        !matches!(asked, ArmSpec::Group(_))
            && experiments.iter().all(|experiment| one(asked, *experiment).is_empty())
    };
    let names = |experiments: &[&dyn Experiment]| -> Vec<&str> {
        experiments.iter().map(|experiment| experiment.name).collect()
    };
    let here = names(experiments).join(" or ");
    match asked.iter().find(is_unknown)? {
        ArmSpec::Named(Arm { name, kind: ArmKind::Build(_) }) => {
            Some((name.clone(), format!("a build of pollux can't be an arm of {here}")))
        }
        ArmSpec::Named(Arm { name, .. }) => Some((
            name.clone(),
            format!(
                "a server can't be an arm of {here}; expected a program that prints a figure, with a pattern"
            ),
        )),
        asked @ (ArmSpec::Known(_) | ArmSpec::Form(_)) => {
            let name = match asked {
                ArmSpec::Form(form) => form.to_string(),
                ArmSpec::Known(name) | ArmSpec::Named(Arm { name, .. }) => name.clone(),
                ArmSpec::Group(_) => String::new(),
            };
            let owners = experiments::ALL.into_iter();
            let owners: Vec<_> = owners.filter(|each| !one(asked, *each).is_empty()).collect();
            let owners = names(&owners).join(", ");
            Some((name, format!("not an arm of {here}, but of {owners}")))
        }
        ArmSpec::Group(_) => None,
    }
}

/// What is wrong with a list that leaves nothing for `experiment`.
pub(super) fn nothing_left(experiment: &dyn Experiment) -> String {
    let names: Vec<String> = all_of(experiment).into_iter().map(|arm| arm.name).collect();
    format!("no arm is left of {experiment}, which has {}", names.join(", "))
}

/// The baseline when none is named: where it is an arm the experiment's usual one, or what most servers
/// use today; else the first arm.
pub(crate) fn default_baseline(experiment: &dyn Experiment, arms: &[Arm]) -> Option<String> {
    let mut names = arms.iter().map(|arm| arm.name.as_str());
    let usual = [experiment.baseline, BUILD_DRIVER.name()];
    let usual = usual.into_iter().find(|usual| names.clone().any(|arm| arm == *usual));
    usual.or(names.next()).map(str::to_owned)
}

/// Why `baseline` cannot be compared with, if so.
pub(super) fn baseline_fault(
    baseline: &str,
    arms: &[Arm],
    experiment: &dyn Experiment,
) -> Option<String> {
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    (!names.contains(&baseline)).then(|| {
        let suggestion = did_you_mean(baseline, names.iter().copied());
        let names = names.join(", ");
        format!("not an arm of {experiment}; expected {names}{suggestion}")
    })
}

/// A word of a list.
fn word(text: &str) -> Result<ArmSpec, String> {
    if let Some((_, group)) = Group::EACH.iter().find(|(name, _)| *name == text) {
        return Ok(ArmSpec::Group(*group));
    }
    if Form::is_meant_by(text) {
        return text.parse().map(ArmSpec::Form);
    }
    if let Some(words) = text.strip_prefix("uring:") {
        return Err(format!(
            "pollux has one form of uring, which it chooses by what the kernel has; expected uring, or the bare \
             server raw-uring:{words}"
        ));
    }
    let names = arm_names();
    if names.contains(&text) {
        Ok(ArmSpec::Known(text.to_owned()))
    } else {
        let suggestion = did_you_mean(text, names.iter().copied());
        Err(format!("no such arm; expected {}{suggestion}", names.join(", ")))
    }
}

/// Why `next` may not stand behind the others, if so.
fn next_fault(asked: &[ArmSpec], next: &ArmSpec) -> Option<String> {
    let ArmSpec::Named(arm) = next else {
        return asked.contains(next).then(|| "is given twice; expected once".to_owned());
    };
    let name = &arm.name;
    if arm_names().contains(&name.as_str()) {
        return Some(format!("\"{name}\" is a name of the lab; expected a name of its own"));
    }
    let named = asked.iter().filter_map(|asked| match asked {
        ArmSpec::Named(arm) => Some(&arm.name),
        _ => None,
    });
    let named: Vec<&String> = named.collect();
    if named.contains(&name) {
        return Some(format!("two arms are called \"{name}\"; expected a name for each"));
    }
    (named.len() == NAMED_MAX)
        .then(|| format!("too many arms with names of their own; expected at most {NAMED_MAX}"))
}

/// The key `arms`. Commands of flags are programs with the patterns of `arm_pattern`, one for all or one
/// for each; without them they are servers.
pub(super) fn read(keys: &mut Keys<'_>) -> Vec<ArmSpec> {
    let about = "Where the program of --arm prints its figure: a regular expression with one group; one for \
                 all or one for each";
    let patterns = keys.key("arm_pattern", about).only_flag().list(&pattern(), 0..=usize::MAX);
    let given = patterns.len();
    // Where a pattern is wrong, what its command would be is not judged.
    let patterns = if keys.is_wrong("arm_pattern") { vec![String::new()] } else { patterns };
    let commands = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&commands);
    let pattern = move || {
        let at = count.fetch_add(1, Relaxed);
        (!patterns.is_empty()).then(|| patterns[at % patterns.len()].clone())
    };
    let names = arm_names();
    let accepts = format!(
        "{}, a form of a bare server (raw-uring:WORDS, raw-epoll:WORDS), or a table with a name",
        names.join(", ")
    );
    let read = move |text: &str| match text.split_once('=') {
        None => word(text),
        Some((name, what)) => named(name.trim(), what.trim(), &pattern).map(ArmSpec::Named),
    };
    let about = "Arms to compare: names from `pollux lab list`, ways of waiting of a herd, `all`, `mechanisms`, \
                 `others`, or arms of your own (below)";
    let otherwise =
        "the question is which one; those that the machine lacks are left out with the reason";
    let key = keys.key("arms", about).flag("arm").more(FLAG).default("all").otherwise(otherwise);
    let asked =
        key.example("\"uring\"").split_at_commas(|text| !text.contains('=')).texts_or_tables(
            &parsed("ARM", accepts, read).offering(names),
            1..=ASKED_MAX,
            "An arm of your own, of one of four forms",
            |keys| Own::read(keys).asked(),
            next_fault,
        );
    let commands = commands.load(Relaxed);
    let is_wrong = commands == 0 || ![1, commands].contains(&given);
    if keys.has("arm_pattern") && !keys.is_wrong("arms") && is_wrong {
        let found = format!("{given} of them for {commands} commands in --arm");
        keys.note("arm_pattern", format!("{found}; expected one for all or one for each"));
    }
    asked
}

/// What the flag takes beside names.
const FLAG: &str = "\
Several are separated by commas, or by more --arm. They replace the arms of the job.

NAME=COMMAND, in http: your own server, which the lab starts. {port} or {address} in the command stands for \
where it has to listen. With --arm-pattern, anywhere: a program that runs from start to end; {nfds} and the \
like stand for axes, and `pollux lab plan` says in which unit its figure has to be, and whether more or less \
of it is better.

NAME=pid:PID@ADDRESS, in http: a server that runs already.

raw-uring:WORDS and raw-epoll:WORDS, in http: a bare server in a form of io_uring or epoll, such as \
raw-uring:none+single; docs/mechanisms.md has the words.

NAME=pollux:PATH: another build of pollux on epoll; PATH@DRIVER for another mechanism. In the job version, \
NAME=PATH is that too.";

table! { keys, key;
    /// An arm that is a table of a file.
    struct Own {
        /// Name of the arm; not one that the lab has
        name: Option<String> = key.example("\"mine\"").required(&name()),
        /// A server that the lab starts, for `http`: a command line, split into words as a POSIX shell
        /// does; no shell runs it
        server: Option<String> = key.excludes(&["pid", "pollux", "command"])
            .example("\"./mine --listen {address}\"").optional(&server_line()),
        /// A server that runs already, for `http`: the process whose CPU time counts, with that of its
        /// descendants
        pid: Option<u32> = key.excludes(&["pollux", "command"])
            .needs("address", "a server that runs has an address").optional(&pid()),
        /// Where that server listens
        address: Option<SocketAddr> =
            key.needs("pid", "it is for a server that runs already").optional(&address()),
        /// Path of another build of pollux: in `http` it is the server, elsewhere it runs the workload
        pollux: Option<String> = key.excludes(&["command"])
            .example("\"../old/target/release/pollux\"").optional(&line()),
        /// What that build runs on
        driver: Driver = key.needs("pollux", "it is for a build of pollux").default("epoll")
            .otherwise("the mechanism that most servers use")
            .one(&one_of("driver", Driver::ALL.map(|each| (each.name(), "", each)))),
        /// A program that runs from start to end and prints its own figure, in the unit of the
        /// experiment: a command line like that of `server`, in which `{nfds}` and the like stand for
        /// axes of the point
        command: Option<String> = key.needs("pattern", "a program prints more than its figure")
            .example("\"epoll_bench -n {nfds}\"").optional(&command_line()),
        /// Regular expression whose first group is the figure, searched in both outputs; the last match
        /// counts
        pattern: Option<String> = key.needs("command", "it is for a program that prints a figure")
            .example("'Avg: ([0-9.]+) evts/sec'").optional(&pattern()),
    }
    => of_one_form
}

impl Own {
    fn of_one_form(self, keys: &mut Keys<'_>) -> Self {
        if !["server", "pid", "pollux", "command"].iter().any(|form| keys.has(form)) {
            let what = "nothing to run; expected one of server, pid with address, pollux, command with pattern";
            keys.refuse(what);
        }
        self
    }

    fn asked(self) -> Option<ArmSpec> {
        let Self { driver, .. } = self;
        let running = self.pid.zip(self.address);
        let kind = self.server.map(|command| ArmKind::Server { command });
        let kind = kind.or(running.map(|(pid, address)| ArmKind::Running { pid, address }));
        let build = self.pollux.map(|path| ArmKind::Build(Build { program: path.into(), driver }));
        let kind = kind.or(build).or_else(|| {
            let (command, pattern) = self.command.zip(self.pattern)?;
            Some(ArmKind::Program(Program { command, pattern }))
        });
        Some(ArmSpec::Named(Arm { name: self.name?, kind: kind? }))
    }
}

/// The name of an arm, which may be a form in another order of words.
pub(super) fn arm_name() -> Kind<String> {
    let accepts = "the name of an arm";
    Kind::new("ARM", accepts, |text| {
        if Form::is_meant_by(text) {
            text.parse::<Form>().map(|form| form.to_string())
        } else {
            name().read(text)
        }
    })
}

/// The arm `name=what`; `pattern` gives that of the next command.
fn named(called: &str, what: &str, pattern: &impl Fn() -> Option<String>) -> Result<Arm, String> {
    let name = name().read(called)?;
    let kind = if let Some(running) = what.strip_prefix("pid:") {
        let (id, at) = running.split_once('@').ok_or("expected NAME=pid:PID@ADDRESS")?;
        ArmKind::Running { pid: pid().read(id)?, address: address().read(at)? }
    } else if let Some(path) = what.strip_prefix("pollux:") {
        ArmKind::Build(build(&line().read(path)?))
    } else if let Some(pattern) = pattern() {
        ArmKind::Program(Program { command: command_line().read(what)?, pattern })
    } else {
        ArmKind::Server { command: server_line().read(what)? }
    };
    Ok(Arm { name, kind })
}

fn pid() -> Kind<u32> {
    integer(1..=PID_MAX)
}

fn address() -> Kind<SocketAddr> {
    let accepts = "an address with its port, such as 127.0.0.1:8080 or localhost:8080";
    Kind::new("ADDRESS", accepts, |text| match text.parse::<SocketAddr>() {
        Ok(address) => Ok(address),
        Err(_) => match text.parse().map_err(|_| String::new())? {
            // Every address of this machine is where nobody is asked.
            Address::Known(ListenAddress::Tcp(address)) if !address.ip().is_unspecified() => {
                Ok(address)
            }
            Address::Known(_) => Err(String::new()),
            name @ Address::Name { .. } => listening(&name),
        },
    })
}

/// Of the addresses of a name the first at which somebody listens, else the first.
fn listening(name: &Address) -> Result<SocketAddr, String> {
    let found = name.look_up().map_err(|why| format!("{name} can't be looked up: {why}"))?;
    let tcp = |address: ListenAddress| match address {
        ListenAddress::Tcp(tcp) => Some(tcp),
        ListenAddress::Unix(_) => None,
    };
    let all: Vec<SocketAddr> = found.into_iter().filter_map(tcp).collect();
    let answers = |at: &&SocketAddr| TcpStream::connect_timeout(at, LISTENS_TIMEOUT).is_ok();
    let found = all.iter().find(answers).or(all.first());
    found.copied().ok_or_else(|| format!("{name} has no address"))
}

fn command_line() -> Kind<String> {
    Kind::new("COMMAND", "a command line that splits into words", command)
}

/// A command line that says where in it the port or the address stands.
fn server_line() -> Kind<String> {
    Kind::new("COMMAND", "a command line with {port} or {address} in it", |text| {
        let text = command(text)?;
        let says_where = text.contains("{port}") || text.contains("{address}");
        says_where
            .then_some(text)
            .ok_or_else(|| "does not say where the server has to listen".to_owned())
    })
}

fn command(text: &str) -> Result<String, String> {
    match shell_words::split(text) {
        Ok(words) if !words.is_empty() => line().read(text),
        Ok(_) => Err("holds no word".to_owned()),
        Err(error) => Err(format!("does not split into words ({error})")),
    }
}

/// A regular expression with at least one capture group.
pub(super) fn pattern() -> Kind<String> {
    Kind::new("REGEX", "a regular expression with a capture group", |text| {
        match regex_lite::Regex::new(text) {
            // Group 0 is the whole match.
            Ok(regex) if regex.captures_len() >= 2 => Ok(text.to_owned()),
            Ok(_) => Err("has no capture group, so no figure can be found".to_owned()),
            Err(error) => {
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or("unreadable").trim();
                let reason = reason.trim_start_matches("error: ");
                Err(format!("not a regular expression ({reason})"))
            }
        }
    })
}

/// `PATH` or `PATH@DRIVER`.
fn build(text: &str) -> Build {
    let driver = text.rsplit_once('@').and_then(|(path, name)| Some((path, name.parse().ok()?)));
    let (path, driver) = driver.unwrap_or((text, BUILD_DRIVER));
    Build { program: path.into(), driver }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::slice;

    use pollux_poller::Mechanism;

    use super::*;
    use crate::experiments::known;

    fn names(arms: &[Arm]) -> Vec<&str> {
        arms.iter().map(|arm| arm.name.as_str()).collect()
    }

    fn server(name: &str) -> ArmSpec {
        let kind = ArmKind::Server { command: "mine {port}".to_owned() };
        ArmSpec::Named(Arm { name: name.to_owned(), kind })
    }

    #[test]
    fn a_name_means_what_the_experiment_has_of_that_name() {
        let asked: Vec<ArmSpec> =
            ["epoll", "uring", "nginx"].into_iter().map(|name| word(name).expect(name)).collect();
        let http = of(&asked, known("http"));
        assert_eq!(http[1].kind, ArmKind::Driver(Driver::Completion));
        assert_eq!(names(&http), ["epoll", "uring", "nginx"]);
        let herd = of(&asked, known("herd"));
        assert_eq!(herd[0].kind, ArmKind::Way("epoll".to_owned()));
        assert_eq!(names(&herd), ["epoll", "uring"]);
        // What an experiment can't run on is for the plan to say.
        assert_eq!(names(&of(&asked, known("streams"))), ["epoll", "uring"]);
        assert_eq!(unknown_to(&asked, &[known("chain"), known("http")]), None);
        let (name, what) = unknown_to(&asked, &[known("chain")]).expect("nginx is not a library");
        assert_eq!((&*name, &*what), ("nginx", "not an arm of chain, but of http, proxy, poller"));
    }

    #[test]
    fn groups_hold_each_arm_once_and_servers_are_for_experiments_that_take_them() {
        let asked = [word("mechanisms"), word("epoll"), word("raw-epoll"), word("others")];
        let asked: Vec<ArmSpec> = asked.into_iter().map(|asked| asked.expect("a word")).collect();
        let all = of(&asked, known("http"));
        assert_eq!(all.len(), all_of(known("http")).len());
        assert_eq!(names(&of(&[server("mine")], known("http"))), ["mine"]);
        assert!(of(&[server("mine")], known("pipes")).is_empty());
        assert!(unknown_to(&[server("mine")], &[known("pipes")]).is_some());
    }

    #[test]
    fn a_bare_server_in_a_form_is_an_arm_of_experiments_that_have_them_once() {
        let one = word("raw-uring:single+plain+none").expect("a form");
        let http = of(slice::from_ref(&one), known("http"));
        assert_eq!(names(&http), ["raw-uring:none+single"]);
        assert!(http[0].kind.is_other() && http[0].kind.form().is_some());
        assert!(
            next_fault(slice::from_ref(&one), &word("raw-uring:none+single").expect("it again"))
                .is_some()
        );
        assert!(of(slice::from_ref(&one), known("pipes")).is_empty());
        let (_, what) = unknown_to(&[one], &[known("pipes")]).expect("pipes has no servers");
        assert_eq!(what, "not an arm of pipes, but of http");
        assert!(word("raw-uring:defer+sqpoll").is_err_and(|why| why.contains("exclude")));
        assert_eq!(arm_name().read("raw-uring:plain+coop"), Ok("raw-uring:coop".to_owned()));
        assert!(arm_name().read("a+b").is_err());
    }

    #[test]
    fn an_arm_has_a_name_of_its_own() {
        let asked = [server("a")];
        assert_eq!(next_fault(&asked, &server("b")), None);
        for wrong in ["a", "poll", "nginx", "exclusive", "all"] {
            assert!(next_fault(&asked, &server(wrong)).is_some(), "{wrong}");
        }
        let many: Vec<ArmSpec> = (0..NAMED_MAX).map(|at| server(&format!("c{at}"))).collect();
        assert!(next_fault(&many, &server("b")).is_some());
        assert_eq!(next_fault(&many[1..], &server("b")), None);
    }

    #[test]
    fn an_arm_of_the_command_line_says_what_it_is() {
        let read = |what, pattern: Option<&str>| {
            named("a", what, &|| pattern.map(str::to_owned)).map(|arm| arm.kind)
        };
        let program = ArmKind::Program(Program { command: "b 1".into(), pattern: "(.)".into() });
        assert_eq!(read("b 1", Some("(.)")), Ok(program));
        let command = "b {port}".to_owned();
        assert_eq!(read("b {port}", None), Ok(ArmKind::Server { command }));
        assert!(read("b 1", None).is_err_and(|what| what.contains("{port}")));
        let build = |path: &str, driver| Ok(ArmKind::Build(Build { program: path.into(), driver }));
        let epoll = Driver::Readiness(Mechanism::Epoll);
        assert_eq!(read("pollux:old/pollux", Some("(.)")), build("old/pollux", epoll));
        assert_eq!(read("pollux:old/pollux@uring", None), build("old/pollux", Driver::Completion));
        assert_eq!(read("pollux:a@b/pollux", None), build("a@b/pollux", epoll));
        let address = "127.0.0.1:80".parse().expect("an address");
        assert_eq!(read("pid:7@127.0.0.1:80", None), Ok(ArmKind::Running { pid: 7, address }));
        // On whichever of its addresses somebody listens.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let named = format!("pid:7@localhost:{}", address.port());
        assert_eq!(read(&named, None), Ok(ArmKind::Running { pid: 7, address }));
        for wrong in
            ["pid:7", "pid:0@127.0.0.1:80", "pid:7@here", "pid:7@pollux.invalid:80", "", "pollux:"]
        {
            assert!(read(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_usual_baseline_gives_way_to_the_first_arm() {
        let arms = |names: &[&str]| {
            let asked: Vec<ArmSpec> = names.iter().map(|name| word(name).expect(name)).collect();
            of(&asked, known("herd"))
        };
        let baseline = |names: &[&str]| default_baseline(known("herd"), &arms(names));
        assert_eq!(baseline(&["block", "epoll"]).as_deref(), Some("epoll"));
        assert_eq!(baseline(&["epoll", "exclusive"]).as_deref(), Some("exclusive"));
        assert_eq!(baseline(&["block", "pool"]).as_deref(), Some("block"));
        assert_eq!(baseline(&[]), None);
    }
}
