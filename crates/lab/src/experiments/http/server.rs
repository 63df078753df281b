//! The server of one run: when it is ready, what it answers, which processes it is, what they use.
//!
//! Where one process may not hold all connections there are several on the same port, and the
//! kernel spreads connections among them by hash.
//!
//! It may be a user's: a command line that the lab starts, or a process that ran before, which is left as it was found.
//! Nothing is known of it but where it has to listen. What the words in braces of a command line stand for is said in
//! [`PLACEHOLDERS`]; beside them each axis of the experiment is one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_host::{
    Program, Reading, Tree, addresses_of, listener_at, listens_at, patience, threads_of,
};
use pollux_load::{Answered, Protocol, RequestError, Target, Trust, ask_by};
use pollux_settings::command::output::error_chain;

use super::Role;
use super::certificate::Certificate;
use super::command_lines::{Addresses, SUITE, backend, setup, spawn};
use super::dead_crowd::DeadCrowd;
use super::forms;
use super::load::Load;
use super::threads::KernelThreads;
use super::times::TimesSocket;
use crate::arm::ArmKind;
use crate::axis::Axes;
use crate::error::MeasureError;
use crate::measure::{Pass, RunSpec};
use crate::subject;

/// A server that listens elsewhere and does nothing for so long will not take the port that it was given.
const ELSEWHERE_PATIENCE: Duration = Duration::from_secs(1);
/// What it may use of a CPU in that time and still do nothing.
const IDLE_CPU: Duration = Duration::from_millis(20);
/// Between two looks at where it listens.
const ELSEWHERE_LOOK: Duration = Duration::from_millis(100);
/// How long the end of a process is waited for whose connections have ended.
const ENDING_PATIENCE: Duration = Duration::from_millis(200);
/// Between two attempts to connect to a server that does not say when it is ready.
const PAUSE: Duration = Duration::from_millis(5);
/// How long one answer may take.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The length of an answer may vary by this part of it.
const LENGTH_VARIES: u64 = 10;
/// What a command line may have in braces beside the names of axes: the port to listen at, on
/// 127.0.0.1 or the address of the job; the same with the address before it; the CPU that the server is kept on; a folder with
/// a body of `reply_bytes` at the path that is asked for; the PEM files of a certificate and its key, where
/// clients speak TLS.
pub(super) const PLACEHOLDERS: [&str; 6] = ["port", "address", "cpus", "root", "cert", "key"];
/// The same of a proxy, with the address of the server behind it and the port of that.
pub(crate) const PROXY_PLACEHOLDERS: [&str; 8] =
    ["port", "address", "cpus", "root", "cert", "key", "backend", "backend_port"];

/// What a server is asked for, and which answers are right.
pub(super) struct ServerSpec {
    /// The request, with its URL and body.
    pub(super) target: Target,
    pub(super) status: u16,
    /// Length of the body, where that is known before.
    pub(super) body_bytes: Option<u64>,
}

/// A server that answers.
pub(super) struct Server {
    name: String,
    /// Those of its processes that were started here, all on the same port; none of one that ran
    /// before.
    processes: Vec<Program>,
    /// All its processes.
    tree: Tree,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What it is asked for.
    pub(super) asked: ServerSpec,
    /// What it answered at first.
    pub(super) answered: Answered,
    /// Which HTTP it is asked by, and which certificates are trusted, where it is asked over TLS.
    http: Protocol,
    trust: Trust,
    /// The mechanism that it says it runs on; only pollux says so.
    pub(super) mechanism: Option<String>,
    /// Where it shows what its loop counted; in the pass that asks for it how long requests took as well.
    pub(super) page: Option<TimesSocket>,
    /// Memory of its processes when it had answered once.
    memory_before: Reading<u64>,
    /// What a reader has to know of it, by kind.
    pub(super) findings: BTreeMap<String, String>,
    /// Threads of the kernel that work for it, as they were when it had answered.
    kernel_threads: KernelThreads,
    /// How many of its processes had ended when it had answered.
    ended_before: u64,
    /// Whether it is known not to end when it is asked to.
    is_killed: bool,
    /// Of a proxy: the server behind it. It ends last.
    backend: Option<Program>,
}

impl Server {
    /// As [`Server::start`]; then the connections beside the load that ask for nothing, and this thread goes to the CPU
    /// of the generator.
    pub(super) fn start_beside_dead(
        spec: &RunSpec,
        load: &Load,
        cpus: [usize; 2],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(Self, DeadCrowd), MeasureError> {
        let mut server = Self::start(spec, load, cpus, is_interrupted)?;
        subject::pin(cpus[1])?;
        let dead = DeadCrowd::open(load.dead, server.address, &load.path, is_interrupted)?;
        server.leaves_out(&dead.pids());
        Ok((server, dead))
    }

    /// Starts the server of a run, or looks for the one that runs, and returns when it has given one
    /// correct answer.
    pub(super) fn start(
        spec: &RunSpec,
        load: &Load,
        [cpu, generator_cpu]: [usize; 2],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        if let ArmKind::Running { pid, address } = spec.arm {
            return Self::attach(pid, address, load, cpu);
        }
        // Before the tree, which leaves out what is there already.
        let backend = match load.role {
            Role::PassesOn => Some(backend(load, generator_cpu)?),
            Role::Answers => None,
        };
        let (backend, behind) = backend.unzip();
        subject::pin(cpu)?;
        let mut tree = Tree::of_this_process()?;
        let any = SocketAddr::from((load.listens_at, 0));
        // Of several processes each has but a part of the requests, and one may be asked by its caller already. A build of
        // another day may know no page: it is asked only where that is the purpose.
        let is_timing = spec.pass == Pass::RequestTimes;
        let is_ours = matches!(spec.arm, ArmKind::Driver(_)) && load.installed.is_none();
        let has_page = load.processes == 1 && load.options.is_empty() && (is_timing || is_ours);
        let page = has_page.then(|| TimesSocket::below(&spec.scratch));
        let (mut first, address) =
            spawn(spec, load, cpu, Addresses { listen: any, behind }, page.as_ref())?;
        let target = load.target(&load.url(address));
        let target = target.map_err(|error| first.failed(&error_chain(&error)))?;
        let answered = {
            let patience = spec.at_most(patience::SERVER_ANSWERS);
            first_answer(
                &mut first,
                &mut tree,
                address,
                (load.http, &target, &load.trust()),
                patience,
                is_interrupted,
            )?
        };
        let asked = match spec.arm {
            ArmKind::Server { .. } => {
                ServerSpec { target, status: answered.status, body_bytes: None }
            }
            _ => ServerSpec { target, status: 200, body_bytes: Some(load.reply_bytes as u64) },
        };
        if let Some(what) = fault(&answered, &asked, load) {
            return Err(first.failed(&what).into());
        }
        tree.look();
        if listens_at(&tree.pids(), address) == Some(false) {
            return Err(first.failed(&other_servers_at(address, &tree.pids())).into());
        }
        let name = first.name().to_owned();
        let mut processes = vec![first];
        // Each says by itself that it listens; which one answers on the port is the kernel's choice.
        for _ in 1..load.processes {
            processes.push(spawn(spec, load, cpu, Addresses { listen: address, behind }, None)?.0);
        }
        let mut server = Self::of(name, processes, tree, address, asked, answered, load);
        (server.page, server.backend) = (page, backend);
        server.is_killed = spec.kills;
        server.mechanism = spec.arm.driver().map(|driver| driver.name().to_owned());
        // Most stay where they were started; some choose CPUs themselves.
        if let Err((pid, errno)) = server.tree.pin(cpu) {
            let text = format!("process {pid} could not be kept on CPU {cpu}: {errno}");
            server.findings.insert("not-pinned".to_owned(), text);
        }
        Ok(server)
    }

    /// The server that runs as process `pid`.
    fn attach(
        pid: u32,
        address: SocketAddr,
        load: &Load,
        cpu: usize,
    ) -> Result<Self, MeasureError> {
        let name = format!("process {pid}");
        let failed = |what: String| MeasureError::Program { program: name.clone(), what };
        if let Some(what) = running_fault(pid, address) {
            return Err(failed(what));
        }
        let target = load.target(&load.url(address));
        let target = target.map_err(|error| failed(error_chain(&error)))?;
        let answered = ask_by(load.http, &target, &load.trust(), ANSWER_PATIENCE);
        let answered = answered.map_err(|error| {
            let elsewhere = elsewhere(&[pid], "; it listens at ");
            failed(format!("did not answer {}: {}{elsewhere}", target.url, error_chain(&error)))
        })?;
        let asked = ServerSpec { target, status: answered.status, body_bytes: None };
        if let Some(what) = fault(&answered, &asked, load) {
            return Err(failed(what));
        }
        let tree = Tree::of(&[pid]).map_err(|cause| setup("a look at the process", cause))?;
        let cpus = tree.cpus();
        let mut server = Self::of(name, Vec::new(), tree, address, asked, answered, load);
        if cpus != [cpu] {
            let cpus = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let text = format!(
                "process {pid} may run on CPUs {cpus} and was left there: `taskset -acp {cpu} {pid}` \
                 keeps it on that of the other servers"
            );
            server.findings.insert("not-pinned".to_owned(), text);
        }
        Ok(server)
    }

    fn of(
        name: String,
        processes: Vec<Program>,
        mut tree: Tree,
        address: SocketAddr,
        asked: ServerSpec,
        answered: Answered,
        load: &Load,
    ) -> Self {
        tree.look();
        let ended_before = tree.ended();
        let kernel_threads = KernelThreads::among(&threads_of(&tree.pids()));
        let mut findings = BTreeMap::new();
        if load.is_kept_alive && !answered.keep_alive {
            let text = "it closes the connection behind each answer, so that its cost has a connection \
                        for each request; --no-keepalive asks all arms for the same";
            findings.insert("closes".to_owned(), text.to_owned());
        }
        let memory_before = memory_of(&tree.pids());
        let mechanism = None;
        let page = None;
        let backend = None;
        Self {
            name,
            processes,
            tree,
            address,
            asked,
            answered,
            http: load.http,
            trust: load.trust(),
            mechanism,
            page,
            memory_before,
            findings,
            kernel_threads,
            ended_before,
            is_killed: false,
            backend,
        }
    }

    /// Says that these children of this process have nothing to do with the server.
    pub(super) fn leaves_out(&mut self, others: &[u32]) {
        self.tree.leaves_out(others);
    }

    /// How many of its processes have ended since it answered.
    pub(super) const fn ended(&self) -> u64 {
        self.tree.ended() - self.ended_before
    }

    /// How it ended, where all of it has.
    pub(super) fn ending(&mut self) -> Option<String> {
        // Its connections end a moment before it does.
        if let Some(first) = self.processes.first() {
            let _ = first.ends_within(ENDING_PATIENCE, &|| false);
        }
        if self.tree.is_alive() {
            return None;
        }
        self.processes.first_mut().map(Program::how_it_ended)
    }

    /// Whether the process that was started has left, and others answer.
    pub(super) fn is_daemon(&self) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|process| process.ends_within(Duration::ZERO, &|| false).unwrap_or(false))
    }

    /// `generator`, with what it and the server speak of TLS, if they do.
    pub(super) fn with_suite(&self, generator: String) -> String {
        match &self.answered.tls {
            Some(suite) => format!("{generator}, {suite}"),
            None => generator,
        }
    }

    /// What it has printed, where that is read.
    pub(super) fn printed_bytes(&self) -> u64 {
        self.processes.iter().map(Program::printed_bytes).sum()
    }

    /// What it answered, and how many of its processes have ended since.
    pub(super) fn figures(&self) -> BTreeMap<String, f64> {
        let figures = [
            ("answer_status", f64::from(self.answered.status)),
            ("answer_bytes", self.answered.body_bytes as f64),
            ("processes_ended", self.ended() as f64),
        ];
        figures.map(|(name, figure)| (name.to_owned(), figure)).into()
    }

    /// By how many bytes its processes have grown since it had answered once.
    pub(super) fn grown(&self) -> Reading<u64> {
        let Reading::Value(before) = self.memory_before else { return self.memory_before.clone() };
        memory_of(&self.tree.pids()).map(|now| now.saturating_sub(before))
    }

    /// CPU time of all its processes, when they sleep.
    pub(super) fn cpu_time(&mut self) -> Duration {
        self.kernel_threads.wait_until_asleep();
        cpu_time_of(&mut self.tree)
    }

    /// What it counted itself, where it says so at its end.
    pub(super) fn counted(&mut self) -> Vec<(String, f64)> {
        let said = self.processes.first_mut().map(Program::stderr_tail).unwrap_or_default();
        forms::counts(&said)
    }

    /// All its processes, those last that were started last.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.tree.pids()
    }

    /// Every thread of it, with its process.
    pub(super) fn threads(&mut self) -> Vec<(u32, u32)> {
        self.tree.look();
        threads_of(&self.tree.pids())
    }

    /// What is wrong with its answer now, if anything.
    fn changed(&self) -> Option<String> {
        match ask_by(self.http, &self.asked.target, &self.trust, ANSWER_PATIENCE) {
            Ok(answered) => change(&self.answered, &answered),
            Err(error) => {
                Some(format!("did not answer after the measurement: {}", error_chain(&error)))
            }
        }
    }

    /// A failure of it, with the last that it said.
    pub(super) fn failed(&mut self, what: &str) -> MeasureError {
        match self.processes.first_mut() {
            Some(first) => first.failed(what).into(),
            None => MeasureError::Program { program: self.name.clone(), what: what.to_owned() },
        }
    }

    /// Ends it, unless it ran before.
    ///
    /// # Errors
    /// [`MeasureError::Program`] where it has ended already, and was not there for the whole
    /// window, or answers otherwise than at first.
    pub(super) fn end(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<(), MeasureError> {
        let mut is_over = !self.tree.is_alive();
        // A daemon leaves the process that was started, perhaps only after its first answer.
        // Whose sockets can't be read is asked below.
        let is_left = listens_at(&self.tree.pids(), self.address) != Some(false);
        for process in &mut self.processes {
            let has_ended = process.ends_within(Duration::ZERO, is_interrupted)?;
            is_over |= has_ended && !(is_left && process.has_succeeded());
        }
        if is_over {
            return Err(self.failed("ended while it was measured"));
        }
        if let Some(what) = self.changed() {
            return Err(self.failed(&what));
        }
        if !self.processes.is_empty() {
            if self.is_killed {
                self.tree.kill();
            } else {
                self.tree.end();
            }
            self.processes.iter_mut().for_each(Program::end);
        }
        Ok(())
    }
}

/// Anonymous memory of processes (proc_pid_smaps(5)): how much of a program is shared with others moves with
/// those.
fn memory_of(pids: &[u32]) -> Reading<u64> {
    let mut sum = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = match Reading::from_io(&path, std::fs::read_to_string(&path)) {
            Reading::Value(text) => text,
            missing => return missing.map(|_| 0),
        };
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let Some(kib) = kib else {
            return Reading::unavailable(format!("{path} has no line Anonymous"));
        };
        sum += kib << 10;
    }
    Reading::Value(sum)
}

/// CPU time of processes, when they sleep.
pub(crate) fn cpu_time_of(tree: &mut Tree) -> Duration {
    tree.cpu_time_asleep(|used| {
        let Ok(_) = subject::until_asleep(&|| Ok::<_, Infallible>(used()));
    })
}

/// How an answer differs from the first, if it does: what was measured between is not work of one kind. A
/// page that shows a count or the time may vary in its length.
fn change(first: &Answered, last: &Answered) -> Option<String> {
    let answer =
        |answered: &Answered| format!("{} with {} bytes", answered.status, answered.body_bytes);
    let varied = first.body_bytes.abs_diff(last.body_bytes);
    let is_other = first.status != last.status || varied > first.body_bytes / LENGTH_VARIES;
    let first = answer(first);
    let last = answer(last);
    is_other
        .then(|| format!("answered {last} after the measurement, expected {first} as before it"))
}

/// Asks as soon as a process listens.
fn first_answer(
    process: &mut Program,
    tree: &mut Tree,
    address: SocketAddr,
    (http, target, trust): (Protocol, &Target, &Trust),
    patience: Duration,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Answered, MeasureError> {
    let url = &target.url;
    let start = Instant::now();
    let mut watched = Elsewhere::default();
    loop {
        let error = match ask_by(http, target, trust, ANSWER_PATIENCE) {
            Ok(answered) => return Ok(answered),
            Err(error) => error,
        };
        // A daemon leaves the process that was started.
        if !tree.is_alive() {
            let how = process.how_it_ended();
            return Err(process.failed(&format!("{how} before it answered {url}")).into());
        }
        let is_early = matches!(error, RequestError::Connect(_));
        let is_elsewhere = is_early && watched.is_settled(tree, address);
        if !is_early || is_elsewhere || start.elapsed() > patience {
            let remedy = "put {port} or {address} into its command where it takes that";
            let pids = tree.pids();
            let elsewhere = match addresses_of(&pids) {
                // It is there, and does not answer.
                _ if listens_at(&pids, address) == Some(true) => String::new(),
                None => "; where it listens can't be read".to_owned(),
                Some(addresses) if addresses.is_empty() => "; it listens nowhere".to_owned(),
                Some(_) => format!("{}: {remedy}", elsewhere(&pids, "; it listens at ")),
            };
            let why = error_chain(&error);
            let waited = start.elapsed().as_secs();
            // The budget has cut it short.
            let more = if is_early && !is_elsewhere && patience < patience::SERVER_ANSWERS {
                format!(
                    "; a larger --budget waits longer, up to {} s",
                    patience::SERVER_ANSWERS.as_secs()
                )
            } else {
                String::new()
            };
            let what =
                format!("did not answer {url}, {waited} s after its start: {why}{elsewhere}{more}");
            return Err(process.failed(&what).into());
        }
        if is_interrupted() {
            return Err(MeasureError::Interrupted);
        }
        tree.wait_for_an_end(PAUSE);
    }
}

/// How long processes have listened elsewhere than where they should, and done nothing.
#[derive(Default)]
struct Elsewhere {
    looked: Option<Instant>,
    /// Since when, and what they had used by then.
    since: Option<(Instant, Duration)>,
}

impl Elsewhere {
    /// Whether they have for so long that nothing else is to be expected.
    fn is_settled(&mut self, tree: &mut Tree, address: SocketAddr) -> bool {
        if self.looked.is_some_and(|looked| looked.elapsed() < ELSEWHERE_LOOK) {
            return false;
        }
        self.looked = Some(Instant::now());
        let used = tree.look();
        let addresses = addresses_of(&tree.pids()).unwrap_or_default();
        let is_elsewhere =
            !addresses.is_empty() && addresses.iter().all(|at| at.port() != address.port());
        let idle = self
            .since
            .filter(|(_, before)| is_elsewhere && used.saturating_sub(*before) < IDLE_CPU);
        let now = is_elsewhere.then(|| (Instant::now(), used));
        self.since = idle.or(now);
        self.since.is_some_and(|(since, _)| since.elapsed() >= ELSEWHERE_PATIENCE)
    }
}

/// What is wrong with an answer: arms must do the same to be compared.
fn fault(answered: &Answered, asked: &ServerSpec, load: &Load) -> Option<String> {
    let Answered { status, body_bytes, ref tls, .. } = *answered;
    if !(200..300).contains(&status) {
        return Some(format!(
            "answered {} {} with {status}, expected 200 to 299; --path asks for another page",
            load.method(),
            load.path
        ));
    }
    if status != asked.status {
        return Some(format!(
            "answered {} {} with {status}, expected {}",
            load.method(),
            load.path,
            asked.status
        ));
    }
    if load.certificate.is_some() && tls.as_deref() != Some(SUITE) {
        let spoken = tls.as_deref().unwrap_or("nothing");
        return Some(format!("speaks {spoken}, expected {SUITE}"));
    }
    let expected = asked.body_bytes.filter(|expected| *expected != body_bytes)?;
    Some(format!("answered with {body_bytes} bytes, expected {expected}"))
}

/// A command line, ready to be started.
pub(super) struct CommandLine {
    /// The program's name, for messages.
    pub(super) name: String,
    pub(super) command: Command,
}

impl CommandLine {
    /// Of `line`, for a server that has to listen at its end on `cpu`; files for it are written
    /// into `folder`.
    pub(super) fn new(
        line: &str,
        axes: &Axes,
        load: &Load,
        addresses: Addresses,
        cpu: usize,
        folder: &Path,
    ) -> Result<Self, MeasureError> {
        let setup = |cause| MeasureError::Setup { what: format!("the files for {line}"), cause };
        let root = write_site(folder, load).map_err(setup)?;
        let mut values = axes.texts();
        let mut stands_for = |name: &str, value: String| values.insert(name.to_owned(), value);
        stands_for("port", addresses.listen.port().to_string());
        stands_for("address", addresses.listen.to_string());
        stands_for("cpus", cpu.to_string());
        stands_for("root", root);
        if let Some(Certificate { cert, key, .. }) = &load.certificate {
            stands_for("cert", cert.display().to_string());
            stands_for("key", key.display().to_string());
        }
        if let Some(behind) = addresses.behind {
            stands_for("backend", behind.to_string());
            stands_for("backend_port", behind.port().to_string());
        }
        let words =
            shell_words::split(line).map_err(|error| MeasureError::Spec(error.to_string()))?;
        let words: Vec<String> = words.iter().map(|word| filled(word, &values)).collect();
        let (program, arguments) =
            words.split_first().ok_or_else(|| MeasureError::Spec("an empty command".into()))?;
        let mut command = Command::new(program);
        command.args(arguments);
        let name = program.rsplit('/').next().unwrap_or(program).to_owned();
        Ok(Self { name, command })
    }
}

/// What is wrong with a server that is said to run already, if so.
pub(crate) fn running_fault(pid: u32, address: SocketAddr) -> Option<String> {
    let tree = Tree::of(&[pid]).ok().and_then(|mut tree| tree.is_alive().then_some(tree));
    let Some(tree) = tree else {
        return Some(format!("process {pid} does not run; expected the number of one that does"));
    };
    let pids = tree.pids();
    (listens_at(&pids, address) == Some(false)).then(|| other_servers_at(address, &pids))
}

/// That another process than these listens at `address`, and what is expected.
fn other_servers_at(address: SocketAddr, pids: &[u32]) -> String {
    let elsewhere = elsewhere(pids, ", which listens at ");
    match listener_at(address) {
        Some((owner, name)) => format!(
            "at {address} listens another process, {owner} ({name}), and not this server{elsewhere}; \
             expected its own address, or pid:{owner}@{address}"
        ),
        None => format!(
            "at {address} listens another process, and not this server{elsewhere}; expected its own \
             address"
        ),
    }
}

/// Where these processes listen, behind `before`; empty where they don't or it can't be known.
pub(super) fn elsewhere(pids: &[u32], before: &str) -> String {
    let addresses = addresses_of(pids).unwrap_or_default();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    if addresses.is_empty() { String::new() } else { format!("{before}{}", addresses.join(", ")) }
}

fn filled(word: &str, values: &BTreeMap<String, String>) -> String {
    values
        .iter()
        .fold(word.to_owned(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
}

/// A folder to serve, with the body at the load's path; a folder's path has it in `index.html`.
pub(super) fn write_site(folder: &Path, load: &Load) -> std::io::Result<String> {
    let root = folder.join("root");
    let path = load.path.split('?').next().unwrap_or_default().trim_start_matches('/');
    let is_inside = !path.split('/').any(|part| part == "..");
    let mut file = root.join(if is_inside { path } else { "" });
    if path.is_empty() || path.ends_with('/') || !is_inside {
        file.push("index.html");
    }
    std::fs::create_dir_all(file.parent().unwrap_or(&root))?;
    std::fs::write(file, "x".repeat(load.reply_bytes))?;
    Ok(root.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_has_changed_is_reported() {
        let answered = |status, body_bytes| Answered {
            status,
            body_bytes,
            keep_alive: true,
            is_chunked: false,
            tls: None,
        };
        let first = answered(200, 128);
        assert_eq!(change(&first, &Answered { keep_alive: false, ..first.clone() }), None);
        let changed = "answered 503 with 9 bytes after the measurement, expected 200 with 128 bytes as \
                    before it";
        assert_eq!(change(&first, &answered(503, 9)).as_deref(), Some(changed));
        assert_eq!(change(&first, &answered(200, 140)), None, "within a tenth");
        assert!(change(&first, &answered(200, 112)).is_some());
    }

    #[test]
    fn an_answer_of_another_status_or_length_is_reported() {
        let load = Load { path: "/x".to_owned(), ..Load::kept(Role::Answers, 1) };
        let target = load.target("http://127.0.0.1:1/x").expect("a URL");
        let asked = ServerSpec { target, status: 200, body_bytes: Some(128) };
        let fault = |status, body_bytes, asked: &ServerSpec| {
            let answered =
                Answered { status, body_bytes, keep_alive: true, is_chunked: false, tls: None };
            fault(&answered, asked, &load)
        };
        assert_eq!(fault(200, 128, &asked), None);
        let wrong = "answered GET /x with 500, expected 200 to 299; --path asks for another page";
        assert_eq!(fault(500, 128, &asked).as_deref(), Some(wrong));
        assert_eq!(
            fault(204, 128, &asked).as_deref(),
            Some("answered GET /x with 204, expected 200")
        );
        let wrong = "answered with 5 bytes, expected 128";
        assert_eq!(fault(200, 5, &asked).as_deref(), Some(wrong));
        assert_eq!(fault(200, 5, &ServerSpec { body_bytes: None, ..asked }), None);
        let load = Load { request_bytes: 9, ..load };
        let target = load.target("http://127.0.0.1:1/x").expect("a URL");
        assert_eq!((&*target.method, target.body.len()), ("POST", 9));
        let asked = ServerSpec { target, status: 200, body_bytes: None };
        let refused = Answered {
            status: 405,
            body_bytes: 0,
            keep_alive: false,
            is_chunked: false,
            tls: None,
        };
        let wrong = "answered POST /x with 405, expected 200 to 299; --path asks for another page";
        assert_eq!(super::fault(&refused, &asked, &load).as_deref(), Some(wrong));
    }

    #[test]
    fn words_in_braces_are_filled_in_after_the_line_is_split() {
        let values = [("port", "8080"), ("root", "/a folder")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let values = BTreeMap::from(values);
        let words =
            shell_words::split("./mine --on=:{port} '{root} {port}' '{\"a\": 1}'").expect("words");
        let words: Vec<String> = words.iter().map(|word| filled(word, &values)).collect();
        assert_eq!(words, ["./mine", "--on=:8080", "/a folder 8080", "{\"a\": 1}"]);
    }

    #[test]
    fn a_running_server_that_is_gone_or_another_one_is_distinguished() {
        use std::net::{Ipv4Addr, TcpListener};
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let this = std::process::id();
        assert_eq!(running_fault(this, address), None);
        let mut other = Command::new("sleep").arg("600").spawn().expect("a process");
        let fault = running_fault(other.id(), address).expect("it does not listen");
        let expected = format!("at {address} listens another process, {this} (");
        assert!(fault.starts_with(&expected), "{fault}");
        assert!(fault.ends_with(&format!("or pid:{this}@{address}")), "{fault}");
        other.kill().expect("ours");
        other.wait().expect("ours");
        let fault = running_fault(other.id(), address).expect("it is gone");
        assert!(fault.starts_with(&format!("process {} does not run;", other.id())), "{fault}");
    }
}
