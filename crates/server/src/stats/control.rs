//! The control socket: lines with commands in, texts that end with an empty line out.
//!
//! ```text
//! $ echo "show info" | socat - unix:/run/pollux.sock
//! ```
//!
//! A small group of its own runs these sessions beside the server's loops.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Actions, ConnectionId, Errand, Session};
use pollux_poller::Waker;

use super::{Overview, activity, info, pools, servers, set_server};
use crate::unsent::Unsent;

/// Longest command.
const LINE_BYTES_MAX: usize = 1024;
/// Time between two commands.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The commands, and what they show.
const COMMANDS: [(&str, &str); 11] = [
    ("show activity", "every counter that is not 0, summed up and for each loop"),
    ("show info", "version, addresses, limits"),
    ("show fd", "what each loop knows of its descriptors; stops all loops for a moment"),
    ("show servers", "a proxy's backends: weight, health, requests"),
    ("show pools", "a proxy's idle connections to backends, and requests that wait for one"),
    (
        "set server NAME drain|ready",
        "gives a backend no new requests, or again; also for workers to come",
    ),
    ("set server NAME weight N", "changes a backend's share, 1 to 256"),
    ("reload", "has the proxy's master read the settings anew; says how that went"),
    ("show reloads", "how reloads went, and why the last one failed"),
    ("help", "this list"),
    ("quit", "ends the connection"),
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
        self.on_drained(shared, actions);
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

    fn errand(shared: &mut ControlShared) -> Option<Errand<Self>> {
        let (number, _) = shared.waiting.front()?;
        shared.overview.supervised.answer(*number)?;
        shared.waiting.pop_front().map(|(_, session)| Errand::Wake(session))
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

    fn on_drained(&mut self, _: &mut ControlShared, actions: &mut Actions<'_>) {
        let Some(unsent) = &mut self.unsent else { return };
        if unsent.send(actions).expect("a text is in memory") {
            self.unsent = None;
            actions.set_deadline(actions.now().at + IDLE_TIMEOUT);
        }
        // More of this answer, or the next command.
        actions.call_again();
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

    fn on_drain(&mut self, _: &mut ControlShared, actions: &mut Actions<'_>) {
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
        ["show", "reloads"] => overview.supervised.reloads(),
        ["help"] | [] => help(),
        _ => {
            let shown: String = command.chars().filter(|c| !c.is_control()).take(80).collect();
            format!("unknown command \"{shown}\"\n{}", help())
        }
    }
}

fn help() -> String {
    let line = |(name, about): (&str, &str)| format!("  {name:<27} {about}\n");
    "commands:\n".to_owned() + &COMMANDS.map(line).concat()
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
