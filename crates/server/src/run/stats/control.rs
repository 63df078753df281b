//! The control socket: lines with commands in, texts that end with an empty line out.
//!
//! ```text
//! $ echo "show info" | socat - unix:/run/pollux.sock
//! ```
//!
//! A small group of its own runs these sessions beside the server's loops. The texts are pure functions over
//! an [`Overview`].

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Actions, CloseCause, Command, ConnectionId, Counter, Session};
use pollux_poller::{CountersSnapshot, Waker};

use crate::backends::Backend;
use crate::config::sections::WEIGHT_MAX;
use crate::counters::{CLASSES, METHODS, REFUSALS, ServerCounter};
use crate::fault::{BackendCounts, Fault, ProxyCounter, ProxyCounters};
use crate::handlers::answer::Unsent;
use crate::run::stats::{LoopSource, Overview};

/// Longest command.
const LINE_BYTES_MAX: usize = 1024;
/// Time between two commands.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The commands of every server.
const COMMANDS: [(&str, &str); 5] = [
    ("show activity", "every counter that is not 0, summed up and for each loop"),
    ("show info", "version, addresses, limits"),
    ("show fd", "what each loop knows of its descriptors"),
    ("help", "this list"),
    ("quit", "ends the connection"),
];
/// Those of a proxy beside them.
const PROXY_COMMANDS: [(&str, &str); 8] = [
    ("show servers", "a proxy's backends: weight, health, requests"),
    ("show pools", "a proxy's idle connections to backends, and requests that wait for one"),
    (
        "set server NAME drain|ready",
        "gives a backend no new requests, or again; also for workers to come",
    ),
    ("set server NAME weight N", "changes a backend's share, 1 to 256"),
    (
        "maintenance HOST on|off",
        "answers 503 for the site that has this host, or as before; also by workers to come",
    ),
    ("maintenance", "which sites are in maintenance"),
    ("reload", "has the proxy's master read the settings anew; says how that went"),
    ("show reloads", "how reloads went, and why the last one failed"),
];

/// What the sessions of the control socket share.
#[derive(Clone, Debug)]
pub struct ControlShared {
    /// The server that they show.
    pub overview: Arc<Overview>,
    /// The connections that wait for the end of a reload, with its number; in the order of numbers.
    waiting: VecDeque<(u64, ConnectionId)>,
}

impl ControlShared {
    /// Shows this server.
    #[must_use]
    pub fn new(overview: Arc<Overview>) -> Self {
        Self { overview, waiting: VecDeque::new() }
    }
}

/// One connection to the control socket.
#[derive(Debug)]
pub struct ControlSession {
    unsent: Option<Unsent>,
    /// The reload whose end is the answer to the last command.
    reload: Option<u64>,
    is_draining: bool,
}

impl ControlSession {
    /// Answers a command.
    fn answer(&mut self, shared: &mut ControlShared, actions: &mut Actions<'_>, text: &str) {
        let answer = format!("{}\n\n", text.trim_end());
        self.unsent = Some(Unsent::once(answer.into_bytes()));
        self.on_output_sent(shared, actions);
    }

    /// Answers when the reload has come to its end, or at once where there is no master.
    fn reload(&mut self, shared: &mut ControlShared, actions: &mut Actions<'_>) {
        match shared.overview.supervised.reload() {
            Ok(number) => {
                self.reload = Some(number);
                shared.waiting.push_back((number, actions.id()));
                actions.pause_input();
            }
            Err(why) => self.answer(shared, actions, why),
        }
    }
}

impl Session for ControlSession {
    type Shared = ControlShared;

    fn opened(shared: &mut ControlShared, waker: &Waker) {
        shared.overview.supervised.asked_by(waker);
    }

    fn next_command(shared: &mut ControlShared) -> Option<Command<Self>> {
        let (number, _) = shared.waiting.front()?;
        shared.overview.supervised.answer(*number)?;
        shared.waiting.pop_front().map(|(_, session)| Command::Wake(session))
    }

    fn accepted(_: &mut ControlShared, actions: &mut Actions<'_>) -> Self {
        actions.set_deadline(actions.now().at + IDLE_TIMEOUT);
        Self { unsent: None, reload: None, is_draining: false }
    }

    fn on_bytes(
        &mut self,
        shared: &mut ControlShared,
        actions: &mut Actions<'_>,
        input: &[u8],
    ) -> usize {
        actions.set_deadline(actions.now().at + IDLE_TIMEOUT);
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            if input.len() > LINE_BYTES_MAX {
                actions.send(b"a command has at most 1024 bytes; try help\n\n");
                actions.linger();
            }
            return 0;
        };
        let line = String::from_utf8_lossy(&input[..end]);
        match line.trim() {
            "quit" => actions.close(),
            "reload" => self.reload(shared, actions),
            command => {
                let answer = answer(&shared.overview, command);
                self.answer(shared, actions, &answer);
            }
        }
        end + 1
    }

    fn on_end(&mut self, _: &mut ControlShared, actions: &mut Actions<'_>) {
        actions.close();
    }

    fn on_output_sent(&mut self, _: &mut ControlShared, actions: &mut Actions<'_>) {
        let Some(unsent) = &mut self.unsent else { return };
        if unsent.send(actions).expect("a text is in memory") {
            self.unsent = None;
            actions.set_deadline(actions.now().at + IDLE_TIMEOUT);
        }
        // More of this answer, or the next command.
        actions.notify_when_sent();
    }

    fn on_wake(&mut self, shared: &mut ControlShared, actions: &mut Actions<'_>) {
        let supervised = &shared.overview.supervised;
        let Some(answer) = self.reload.and_then(|number| supervised.answer(number)) else { return };
        self.reload = None;
        actions.resume_input();
        self.answer(shared, actions, &answer);
        if self.is_draining {
            actions.close();
        }
    }

    fn on_deadline(&mut self, _: &mut ControlShared, actions: &mut Actions<'_>) {
        // An answer under way is the loop's to judge: how fast it must be taken.
        if self.unsent.is_none() {
            actions.close();
        }
    }

    fn on_shutdown(&mut self, _: &mut ControlShared, actions: &mut Actions<'_>) {
        self.is_draining = true;
        // A reload may be why this server ends: the client that asked for it is answered first.
        if self.reload.is_none() {
            actions.close();
        }
    }
}

fn answer(overview: &Overview, command: &str) -> String {
    // Any white space between the words will do.
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["show", "activity"] => activity(overview),
        ["show", "info"] => info(overview),
        ["show", "fd"] => descriptors(overview),
        ["show", "servers"] => servers(overview),
        ["show", "pools"] => pools(overview),
        ["set", "server", name, order @ ..] => set_server(overview, name, order),
        ["maintenance", order @ ..] => maintenance(overview, order),
        ["show", "reloads"] => overview.supervised.reloads(),
        ["help"] | [] => help(overview),
        _ => {
            let shown: String = command.chars().filter(|c| !c.is_control()).take(80).collect();
            format!("unknown command \"{shown}\"\n{}", help(overview))
        }
    }
}

/// The commands of this server.
fn help(overview: &Overview) -> String {
    let of_proxy = if overview.upstreams.is_none() { &[][..] } else { &PROXY_COMMANDS };
    let lines = COMMANDS.iter().chain(of_proxy);
    let lines = lines.map(|(name, about)| format!("  {name:<27} {about}\n"));
    "commands:\n".to_owned() + &lines.collect::<String>()
}

fn descriptors(overview: &Overview) -> String {
    match (overview.descriptors)() {
        Err(reason) => format!("n/a: {reason}"),
        Ok(loops) => {
            let mut text = String::new();
            for (index, lines) in loops.iter().enumerate() {
                text += &format!("loop {index}: {} descriptors\n", lines.len());
                for line in lines {
                    text += &format!("  {line}\n");
                }
            }
            text
        }
    }
}

/// Why there are no counters of a poller.
const NO_POLLER: &str = "n/a (the completion loop has no poller)";

/// Every counter that is not 0 in all loops, summed up and for each loop.
#[must_use]
pub(super) fn activity(overview: &Overview) -> String {
    let mut table = Table { text: String::new(), loops: &overview.loops };
    table.head();
    table.row("connections open", |source| source.engine.open());
    for &counter in Counter::ALL {
        table.row(&format!("loop {}", counter.name()), |source| source.engine.value(counter));
    }
    for &cause in CloseCause::ALL {
        table.row(&format!("closed {}", cause.name()), |source| source.engine.closed(cause));
    }
    table.poller();
    for (place, method) in METHODS.iter().enumerate() {
        table.row(&format!("requests {method}"), |source| source.server.requests(place));
    }
    for (place, class) in CLASSES.iter().enumerate() {
        table.row(&format!("answers {class}"), |source| source.server.answers(place));
    }
    for place in 0..=REFUSALS.len() {
        let status = REFUSALS.get(place).map_or_else(|| "other".to_owned(), u16::to_string);
        table.row(&format!("refused {status}"), |source| source.server.refused(place));
    }
    for &counter in ServerCounter::ALL {
        table.row(&format!("http {}", counter.name()), |source| source.server.value(counter));
    }
    let of = |source: &LoopSource, read: &dyn Fn(&ProxyCounters) -> u64| {
        source.proxy.as_deref().map_or(0, read)
    };
    for &counter in ProxyCounter::ALL {
        let name = format!("proxy {}", counter.name());
        table.row(&name, |source| of(source, &|proxy| proxy.value(counter)));
    }
    for (place, fault) in Fault::ALL.into_iter().enumerate() {
        let name = format!("fault {}", fault.name());
        table.row(&name, |source| of(source, &|proxy| proxy.faults(place)));
    }
    table.text
}

/// What the server is and how it was configured.
#[must_use]
pub(super) fn info(overview: &Overview) -> String {
    let uptime = jiff::SignedDuration::from_secs(
        i64::try_from(overview.started.elapsed().as_secs()).unwrap_or(i64::MAX),
    );
    let mut text = format!(
        "name: pollux\nversion: {}\npid: {}\nuptime: {uptime:#}\npoller: {}\nloops: {}\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        overview.driver,
        overview.loops.len(),
    );
    let facts = overview.facts.lock().expect("nothing panics under this lock");
    for (name, value) in facts.iter().chain(&overview.notes) {
        writeln!(text, "{name}: {value}").expect("a string");
    }
    text
}

struct Table<'a> {
    text: String,
    loops: &'a [LoopSource],
}

impl Table<'_> {
    fn head(&mut self) {
        write!(self.text, "{:<28}{:>16}", "counter", "sum").expect("a string");
        for index in 0..self.loops.len() {
            write!(self.text, "{:>16}", format!("loop {index}")).expect("a string");
        }
        self.text.push('\n');
    }

    fn row(&mut self, name: &str, read: impl Fn(&LoopSource) -> u64) {
        let values: Vec<u64> = self.loops.iter().map(read).collect();
        self.values(name, &values);
    }

    fn values(&mut self, name: &str, values: &[u64]) {
        if values.iter().all(|value| *value == 0) {
            return;
        }
        write!(self.text, "{name:<28}{:>16}", values.iter().sum::<u64>()).expect("a string");
        for value in values {
            write!(self.text, "{value:>16}").expect("a string");
        }
        self.text.push('\n');
    }

    fn poller(&mut self) {
        let snapshots: Option<Vec<_>> =
            self.loops.iter().map(|source| Some(source.poller.as_ref()?.snapshot())).collect();
        let Some(snapshots) = snapshots else {
            writeln!(self.text, "{:<28}{NO_POLLER}", "poller").expect("a string");
            return;
        };
        let names = snapshots.first().map(CountersSnapshot::named).unwrap_or_default();
        for (place, (name, _)) in names.into_iter().enumerate() {
            let values: Vec<u64> = snapshots.iter().map(|s| s.named()[place].1).collect();
            self.values(&format!("poller {name}"), &values);
        }
    }
}

/// The backends of a proxy, one line each.
#[must_use]
pub fn servers(overview: &Overview) -> String {
    if overview.backends.is_empty() {
        return NO_PROXY.to_owned();
    }
    let mut text = format!(
        "{:<28} {:>7}{:>8}{:>7}{:>7}{:>12}{:>8}{:>8}{:>8}\n",
        "server", "weight", "order", "health", "falls", "requests", "failed", "in use", "idle"
    );
    for (place, backend) in overview.backends_there() {
        let proxies = overview.loops.iter().filter_map(|source| source.proxy.as_ref());
        let counts: Vec<_> = proxies.filter_map(|proxy| proxy.backends().get(place)).collect();
        let sum = |read: fn(&BackendCounts) -> u64| counts.iter().map(|of| read(of)).sum::<u64>();
        let line = format!(
            "{:<28} {:>7}{:>8}{:>7}{:>7}{:>12}{:>8}{:>8}{:>8}",
            backend.name(),
            backend.weight(),
            if backend.is_draining() { "drain" } else { "ready" },
            if backend.is_down() { "down" } else { "up" },
            backend.falls(),
            sum(|of| of.begun.value()),
            sum(|of| of.failed.value()),
            sum(BackendCounts::in_use),
            overview.upstreams.as_ref().map_or(0, |upstreams| upstreams.view(place).idle),
        );
        writeln!(text, "{line}").expect("a string");
    }
    text
}

/// The connections to a proxy's backends that have no request, and the requests that have none.
#[must_use]
pub fn pools(overview: &Overview) -> String {
    let Some(upstreams) = &overview.upstreams else { return NO_PROXY.to_owned() };
    let mut text =
        format!("{:<28} {:>7}{:>8}{:>8}{:>9}\n", "server", "idle", "open", "most", "waiting");
    let or_dash = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
    for (place, backend) in overview.backends_there() {
        let view = upstreams.view(place);
        let open = or_dash(view.open);
        let most = or_dash(view.open_max);
        let name = backend.name();
        let idle = view.idle;
        let waiting = view.waiting;
        writeln!(text, "{name:<28} {idle:>7}{open:>8}{most:>8}{waiting:>9}").expect("a string");
    }
    text.push('\n');
    for counter in POOL_COUNTERS {
        let proxies = overview.loops.iter().filter_map(|source| source.proxy.as_ref());
        let sum: u64 = proxies.map(|proxy| proxy.value(counter)).sum();
        let line = format!("{:<14}{sum:>12}  {}", counter.name(), counter.about());
        writeln!(text, "{line}").expect("a string");
    }
    text
}

/// The counters of `show pools`.
const POOL_COUNTERS: [ProxyCounter; 9] = [
    ProxyCounter::Connects,
    ProxyCounter::Parked,
    ProxyCounter::Reuses,
    ProxyCounter::TakenOver,
    ProxyCounter::NotKept,
    ProxyCounter::Stale,
    ProxyCounter::IdleClosed,
    ProxyCounter::IdleDropped,
    ProxyCounter::Queued,
];

/// Does what `set server NAME …` says with every backend of that name, and shows them.
#[must_use]
pub fn set_server(overview: &Overview, name: &str, order: &[&str]) -> String {
    let there = || overview.backends_there().map(|(_, backend)| backend);
    let mut called = there().filter(|backend| backend.is_called(name)).peekable();
    if called.peek().is_none() {
        let names: Vec<_> = there().map(Backend::name).collect();
        return if names.is_empty() {
            NO_PROXY.to_owned()
        } else {
            format!("no such server; expected one of: {}", names.join(", "))
        };
    }
    match order {
        ["drain"] => called.for_each(|backend| backend.set_draining(true)),
        ["ready"] => called.for_each(|backend| backend.set_draining(false)),
        ["weight", weight] => match Backend::read_weight(weight) {
            Some(weight) => called.for_each(|backend| backend.set_weight(weight)),
            None => return format!("expected a weight from 1 to {WEIGHT_MAX}"),
        },
        _ => return "expected drain, ready or weight N".to_owned(),
    }
    // The next worker has to get it, also when this one is about to end.
    overview.supervised.wake();
    servers(overview)
}

/// Does what `maintenance HOST on|off` says, and shows what holds then.
fn maintenance(overview: &Overview, order: &[&str]) -> String {
    let Some(upstreams) = &overview.upstreams else { return NO_PROXY.to_owned() };
    let done = match order {
        [] => return upstreams.site_orders().view(),
        [host, "on"] => upstreams.site_orders().set(host, true),
        [host, "off"] => upstreams.site_orders().set(host, false),
        _ => return "expected maintenance HOST on, or off".to_owned(),
    };
    // The next worker has to get it, also when this one is about to end.
    overview.supervised.wake();
    done.unwrap_or_else(|why| why)
}

const NO_PROXY: &str = "n/a: this server is not a proxy";
