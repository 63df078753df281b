//! One order: prepared in a thread of its own, begun at a moment, followed second by second, ended, its result kept until it
//! was fetched.
//!
//! ```text
//!  Prepare ──► preparing ──► prepared ── Start ──► running ──► finished ── Dismiss ──► ends, then gone
//!                  │             └───────────────────┴────────── Dismiss, or no beat ──────────┘
//!                  └──► failed
//! ```
//!
//! What is finished or failed gives way to the order of another campaign when its controller has been silent for some
//! seconds.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_engine::Driver;
use pollux_load::campaign::{
    AgentName, AgentState, AgentStatus, LoadBounds, LoadOrder, PIECES_MAX, SECONDS_MAX, pieces,
};
use pollux_load::{Load, LoadError, Outcome, Phase, Plan, Progress, Running, Second, Totals};
use pollux_settings::command::output::error_chain;
use pollux_sys::clock::monotonic_ns;

/// An order is ended so long after the last message of its controller.
pub(crate) const BEAT_MAX: Duration = Duration::from_secs(5);
/// A result that nobody fetched gives way to another order so long after that message: a controller that is there asks
/// twice a second, and gives up an agent that is silent for as long.
const FETCHED_WITHIN: Duration = Duration::from_secs(3);
/// Without another order it is kept for so long: its controller may be slow, and it was measured.
const RESULT_TIME_MAX: Duration = Duration::from_secs(30);
/// What an order may last beyond the time in which it may send requests, for opening its connections and waiting for the
/// last answers: as long again, but no longer than this.
const OVERTIME_MAX: Duration = Duration::from_secs(60);
/// Seconds that are kept for a controller that is behind.
const KEPT_MAX: usize = 120;

/// An order that is carried out.
#[derive(Debug)]
pub(crate) struct Work {
    campaign: AgentName,
    stage: Stage,
    /// When the last message of its controller came.
    beat: Instant,
    /// When it has to end, whatever it is at.
    until: Instant,
    seconds: VecDeque<Second>,
    /// The number of the first of them.
    first: u32,
    /// Up to where seconds were taken.
    taken_s: f64,
    /// When requests begin, by the host's clock, once that was ordered.
    begins_ns: Option<u64>,
    /// Why it was ended from here.
    ended: Option<String>,
    /// Whether that was for want of a controller: nobody is there to fetch a result.
    is_left: bool,
    is_dismissed: Arc<AtomicBool>,
    len_bytes: usize,
}

#[derive(Debug)]
enum Stage {
    Preparing(JoinHandle<Result<Running, String>>),
    Running(Running),
    /// The pieces of its result.
    Finished(Vec<String>),
    Failed(String),
    /// Its threads end; there is no result, and where a controller waits for one, this is why.
    Ending(JoinHandle<()>, Option<String>),
    Gone,
}

impl Work {
    /// Begins with an order of `campaign`, whose result will be given in pieces of so many bytes.
    ///
    /// # Errors
    /// A sentence: the order asks for what no order may, or a thread could not be started.
    pub(crate) fn begin(
        campaign: AgentName,
        order: &LoadOrder,
        (bounds, sources): (&LoadBounds, &[IpAddr]),
        len_bytes: usize,
    ) -> Result<(Self, String), String> {
        let (mut plan, driver) = order.plan().map_err(|error| error_chain(&error))?;
        let by_name = bounds.check(&mut plan)?;
        plan.sources = sources.to_vec();
        let about = in_words(&plan);
        let is_dismissed = Arc::new(AtomicBool::new(false));
        let dismissed = Arc::clone(&is_dismissed);
        let thread = std::thread::Builder::new().name("agent-order".to_owned());
        let preparing = thread.spawn(move || {
            // A resolver may take long, and the agent has to answer meanwhile.
            by_name.check()?;
            prepare(&plan, driver, &dismissed)
        });
        let preparing =
            preparing.map_err(|error| format!("a thread could not be started: {error}"))?;
        let work = Self {
            campaign,
            stage: Stage::Preparing(preparing),
            beat: Instant::now(),
            until: Instant::now() + bounds.duration_max + bounds.duration_max.min(OVERTIME_MAX),
            seconds: VecDeque::new(),
            first: 0,
            taken_s: 0.0,
            begins_ns: None,
            ended: None,
            is_left: false,
            is_dismissed,
            len_bytes,
        };
        Ok((work, about))
    }

    pub(crate) fn campaign(&self) -> &AgentName {
        &self.campaign
    }

    /// A message of its controller came.
    pub(crate) fn take_beat(&mut self) {
        self.beat = Instant::now();
    }

    /// Whether nothing of it is left.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.stage, Stage::Gone)
    }

    /// Whether its result is there.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished(_))
    }

    /// Whether it could not begin, or not continue.
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed(_))
    }

    /// Whether all that is left of it is a result, or why there is none, which nobody has asked for lately.
    pub(crate) fn gives_way(&self) -> bool {
        let is_over = matches!(self.stage, Stage::Finished(_) | Stage::Failed(_));
        is_over && self.beat.elapsed() > FETCHED_WITHIN
    }

    /// How far its requests are, while they are sent.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let Stage::Running(running) = &self.stage else { return None };
        Some(running.progress())
    }

    /// Looks how far it is; says what has to be logged.
    pub(crate) fn look(&mut self, results: Option<&Path>) -> Option<String> {
        let mut line = None;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Gone) {
            Stage::Preparing(preparing) if preparing.is_finished() => {
                let panicked = |_| Err("the generator panicked".to_owned());
                match preparing.join().unwrap_or_else(panicked) {
                    Ok(running) => Stage::Running(running),
                    Err(why) => {
                        line = Some(format!("{}: could not begin: {why}", self.campaign));
                        Stage::Failed(why)
                    }
                }
            }
            Stage::Ending(ending, why) if ending.is_finished() => {
                why.map_or(Stage::Gone, Stage::Failed)
            }
            stage => stage,
        };
        if let Stage::Running(running) = &self.stage {
            if running.has_elapsed_unanswered() {
                running.give_up();
            }
            let last = running.progress().last;
            if let Some(last) = last.filter(|last| last.end_s > self.taken_s) {
                self.taken_s = last.end_s;
                self.seconds.push_back(last);
                if self.seconds.len() > KEPT_MAX {
                    self.seconds.pop_front();
                    self.first += 1;
                }
            }
        }
        if matches!(&self.stage, Stage::Running(running) if running.is_finished()) {
            let Stage::Running(running) = std::mem::replace(&mut self.stage, Stage::Gone) else {
                unreachable!("it was just looked at")
            };
            let said;
            (self.stage, said) = self.finished(running, results);
            line = Some(said);
        }
        if let Some(why) = self.has_to_end() {
            line = Some(format!("{}: ended: {why}", self.campaign));
            self.ended = Some(why.clone());
            match &self.stage {
                Stage::Running(running) if running.progress().phase != Phase::SettingUp => {
                    running.stop();
                }
                Stage::Finished(_) | Stage::Failed(_) => {}
                _ => self.give_up(Some(why).filter(|_| !self.is_left)),
            }
        }
        if self.is_left && matches!(self.stage, Stage::Finished(..) | Stage::Failed(_)) {
            self.stage = Stage::Gone;
        }
        line
    }

    /// Why it is to be ended from here, once.
    fn has_to_end(&mut self) -> Option<String> {
        let patience = match &self.stage {
            Stage::Finished(_) => RESULT_TIME_MAX,
            _ => BEAT_MAX,
        };
        if !self.is_left && self.beat.elapsed() > patience {
            self.is_left = true;
            return Some(format!("no message of its controller for {patience:?}"));
        }
        let is_under_way = matches!(self.stage, Stage::Preparing(_) | Stage::Running(_));
        (self.ended.is_none() && is_under_way && Instant::now() > self.until).then(|| {
            "connections or last answers took longer than this agent waits (--max-duration)"
                .to_owned()
        })
    }

    fn finished(&self, running: Running, results: Option<&Path>) -> (Stage, String) {
        let campaign = &self.campaign;
        let outcome: Outcome = match running.join() {
            Ok(outcome) => outcome,
            Err(error) => {
                let why = error_chain(&error);
                return (Stage::Failed(why.clone()), format!("{campaign}: failed: {why}"));
            }
        };
        let text = serde_json::to_string(&outcome).expect("plain data");
        let Totals { sent, answered, .. } = outcome.totals;
        let mut line = format!(
            "{campaign}: finished: {sent} requests sent, {answered} answered, {} errors in {:.1} s",
            outcome.errors.total(),
            outcome.measured.as_secs_f64()
        );
        if let Some(folder) = results {
            let path = folder.join(format!("{campaign}.json"));
            let written = std::fs::write(&path, &text);
            line += &match written {
                Ok(()) => format!("; written to {}", path.display()),
                Err(error) => format!("; {} could not be written: {error}", path.display()),
            };
        }
        let pieces = pieces(&text, self.len_bytes);
        if pieces.len() > PIECES_MAX as usize {
            let why = format!("its result of {} bytes is too long to be sent", text.len());
            return (Stage::Failed(why), line);
        }
        (Stage::Finished(pieces), line)
    }

    /// Has requests begin at this time of the host's clock.
    ///
    /// # Errors
    /// A sentence: it is not ready, or the time has passed.
    pub(crate) fn start(&mut self, host_ns: u64) -> Result<(), String> {
        // The answer to the first one was lost.
        if self.begins_ns == Some(host_ns) {
            return Ok(());
        }
        let Stage::Running(running) = &self.stage else {
            return Err("it is not ready to start".to_owned());
        };
        if !running.is_ready() || running.progress().phase != Phase::SettingUp {
            return Err("it is not ready to start".to_owned());
        }
        let now_ns = monotonic_ns();
        if host_ns <= now_ns {
            let late = Duration::from_nanos(now_ns - host_ns);
            return Err(format!("the moment to start had passed {late:?} before the message came"));
        }
        running.begin_at(host_ns);
        self.begins_ns = Some(host_ns);
        Ok(())
    }

    /// Ends it early; what was measured is the result.
    pub(crate) fn stop(&mut self) {
        if let Stage::Running(running) = &self.stage {
            running.stop();
        }
    }

    /// Gives it up, with its result.
    pub(crate) fn dismiss(&mut self) {
        self.give_up(None);
    }

    /// Ends its threads without a result, and fails then where there is a reason.
    fn give_up(&mut self, why: Option<String>) {
        self.is_dismissed.store(true, SeqCst);
        let stage = std::mem::replace(&mut self.stage, Stage::Gone);
        let ending = match stage {
            Stage::Preparing(preparing) => std::thread::spawn(move || {
                // It gives up by itself; a panic is an end as well.
                drop(preparing.join());
            }),
            Stage::Running(running) => {
                running.give_up();
                std::thread::spawn(move || drop(running.join()))
            }
            Stage::Ending(ending, _) => ending,
            Stage::Finished(..) | Stage::Failed(_) | Stage::Gone => return,
        };
        self.stage = Stage::Ending(ending, why);
    }

    /// A piece of its result, and how many there are.
    pub(crate) fn piece(&self, number: u32) -> Option<(u32, &str)> {
        let Stage::Finished(pieces) = &self.stage else { return None };
        Some((pieces.len() as u32, pieces.get(number as usize)?))
    }

    /// How far it is, with the seconds from one on.
    pub(crate) fn status(&self, seconds_from: u32) -> AgentStatus {
        let mut status = AgentStatus {
            state: AgentState::Idle,
            why: self.ended.clone(),
            phase: Phase::SettingUp,
            elapsed_ns: 0,
            totals: Totals::default(),
            errors: pollux_load::Errors::default(),
            crowd_connected: 0,
            first: self.first,
            seconds: Vec::new(),
            pieces: 0,
        };
        match &self.stage {
            Stage::Preparing(_) => status.state = AgentState::Preparing,
            Stage::Running(running) => {
                let progress = running.progress();
                status.state = match progress.phase {
                    Phase::SettingUp if running.is_ready() => AgentState::Ready,
                    Phase::SettingUp => AgentState::Preparing,
                    _ => AgentState::Running,
                };
                status.phase = progress.phase;
                status.elapsed_ns = progress.elapsed.as_nanos() as u64;
                status.totals = progress.totals;
                status.errors = progress.errors;
                status.crowd_connected = progress.crowd_connected;
            }
            Stage::Finished(pieces) => {
                status.state = AgentState::Finished;
                status.phase = Phase::Finishing;
                status.pieces = pieces.len() as u32;
            }
            Stage::Failed(why) => {
                status.state = AgentState::Failed;
                status.why = Some(why.clone());
            }
            Stage::Ending(..) | Stage::Gone => {}
        }
        let skipped = seconds_from.saturating_sub(self.first);
        status.first = self.first.max(seconds_from.min(self.first + self.seconds.len() as u32));
        let some = self.seconds.iter().skip(skipped as usize).take(SECONDS_MAX);
        status.seconds = some.cloned().collect();
        status
    }
}

/// Opens the threads and their connections on the first mechanism that works, unless the order names one.
fn prepare(plan: &Plan, driver: Option<Driver>, dismissed: &AtomicBool) -> Result<Running, String> {
    let prepared = Driver::start_first(driver, |driver| {
        match Load::prepare(Plan { driver, ..plan.clone() }) {
            Err(refused @ LoadError::Loop(_)) => Err(refused),
            prepared => Ok(prepared),
        }
    });
    let prepared = prepared.and_then(|started| started.value);
    let running = prepared.map_err(|error| error_chain(&error))?;
    if dismissed.load(SeqCst) {
        running.give_up();
        drop(running.join());
        return Err("it was dismissed".to_owned());
    }
    Ok(running)
}

fn in_words(plan: &Plan) -> String {
    let url = plan.targets.first().map_or("", |target| &target.url);
    let more = match plan.targets.len() {
        0 | 1 => String::new(),
        targets => format!(" and {} more", targets - 1),
    };
    let part = plan.part;
    let requests =
        plan.end.requests.map_or(String::new(), |requests| format!(", {requests} requests"));
    format!(
        "part {} of {}: {}{more}, {} connections, {} threads{requests}, {:?} at most after {:?} of warm-up",
        part.number.saturating_add(1),
        part.of,
        url.escape_debug(),
        plan.connections,
        plan.threads,
        plan.end.after.unwrap_or_default(),
        plan.warm_up
    )
}
