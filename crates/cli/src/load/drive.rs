//! Starts a run and stays with it to its end: shows it on standard error (the live view on a terminal, a line
//! for each second elsewhere, nothing with `--quiet`) and to a scraper, ends it early when somebody asks.
//!
//! The caller is `load.rs`, once for a run, or the search for the capacity, once for a trial.

use std::io::{ErrorKind, IsTerminal, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pollux_engine::{Driver, Signal, Signals, Started};
use pollux_load::{Load, LoadError, Outcome, Plan, Progress, Running, render};

use super::failure;
use super::live::{Lines, Live};
use crate::output::{self, Failure};

/// So late is the end of a run noticed; often enough for people, too rare to disturb.
const STEP: Duration = Duration::from_millis(25);
/// Time between two looks at how far it is: to copy a second's latencies and to draw them takes
/// CPU time that the generator needs.
const LOOK: Duration = Duration::from_millis(250);

/// A run that came to its end.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    /// The signal that ended it early, if one did.
    pub(crate) interrupt: Option<Interrupt>,
    /// Why there was nobody to ask, where that is so.
    pub(crate) why_in_vain: Option<String>,
}

/// Starts `plan`. When nobody chose its driver and it can't be opened, the next one takes its
/// place in the plan.
pub(crate) fn start(plan: &mut Plan, is_free: bool) -> Result<Running, Failure> {
    // Another than the preferred one was chosen, or is the one on which this plan ran before.
    let is_chosen = !is_free || plan.driver != Driver::PREFERRED[0];
    let started =
        Driver::start_first(is_chosen.then_some(plan.driver), |driver| {
            match Load::start(Plan { driver, ..plan.clone() }) {
                Err(refused @ LoadError::Loop { .. }) => Err(refused),
                started => Ok(started),
            }
        });
    let started = started.map_err(|error| failure(&error))?;
    plan.driver = started.driver;
    remark_refused(&started);
    started.value.map_err(|error| failure(&error))
}

/// Says which driver took the place of those that were preferred, and why.
pub(super) fn remark_refused<T>(started: &Started<T, LoadError>) {
    for (refused, error) in &started.refused {
        let (driver, why) = (started.driver, output::in_words(error));
        output::remark(&format!("pollux load: {driver} instead of {refused}: {why}"));
    }
}

/// Waits for the end of a run. The first interrupt ends it gently, the second at once;
/// a run that has nobody to connect to is given up as soon as all connections have been tried.
pub(crate) fn to_the_end(
    running: Running,
    view: &mut View,
    (signals, scraped): (&mut Signals, &Scraped),
) -> Result<Ran, Failure> {
    let mut interrupt = None;
    let mut looked = Instant::now();
    while !running.is_finished() {
        if let Some(now) = view.wait(signals, STEP)? {
            if interrupt.is_some() {
                view.close();
                return Err(at_once(now));
            }
            interrupt = Some(now);
            running.stop();
        }
        if running.is_in_vain() {
            running.give_up();
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let progress = running.progress();
            scraped.show(&progress);
            view.show(&progress)?;
        }
    }
    let progress = running.progress();
    scraped.show(&progress);
    let is_in_vain = running.is_in_vain();
    if !is_in_vain {
        view.show(&progress)?;
    }
    let outcome = running.join().map_err(|error| failure(&error))?;
    let was_sent = outcome.seconds.iter().any(|second| second.sent > 0);
    let is_alone = !was_sent && outcome.totals.connects == 0;
    let why = outcome.first_failure.clone();
    Ok(Ran { why_in_vain: why.filter(|_| is_alone || is_in_vain), outcome, interrupt })
}

/// What the second interrupt does: nothing is shown.
pub(super) fn at_once(interrupt: Interrupt) -> Failure {
    let message = "ended at once; nothing was shown".to_owned();
    Failure { message, code: interrupt.exit_code() }
}

/// What ends a run early, and the exit code that it gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interrupt {
    /// A key of the live view: as Ctrl-C.
    Key,
    /// A signal.
    Signal(Signal),
}

impl Interrupt {
    /// The signals that end a run.
    pub(crate) const SIGNALS: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];

    /// That of a command which the signal ended.
    pub(crate) fn exit_code(self) -> ExitCode {
        output::ended_by(match self {
            Self::Signal(signal) => signal.number(),
            Self::Key => Signal::Interrupt.number(),
        })
    }
}

/// How a run is shown.
pub(super) enum View {
    /// Not at all.
    Quiet,
    /// A line for each second.
    Lines(Lines),
    /// Redrawn in place.
    Live(Box<Live>),
}

impl View {
    /// The view that fits where standard error goes.
    pub(crate) fn open(plan: &Plan, is_quiet: bool) -> Self {
        if is_quiet {
            return Self::Quiet;
        }
        output::remark(&format!("pollux load: {}", in_words(plan)));
        if !is_interactive() {
            return Self::Lines(Lines::new(plan));
        }
        match Live::open(plan) {
            Ok(live) => Self::Live(Box::new(live)),
            // A terminal that can't say where its cursor is still shows lines.
            Err(_) => Self::Lines(Lines::new(plan)),
        }
    }

    /// Waits at most so long; the request to end the run, if there is one.
    pub(crate) fn wait(
        &mut self,
        signals: &mut Signals,
        at_most: Duration,
    ) -> Result<Option<Interrupt>, Failure> {
        match self {
            Self::Quiet | Self::Lines(_) => {
                let signal = signals.wait(Some(at_most)).map_err(Failure::failed)?;
                Ok(signal.map(Interrupt::Signal))
            }
            Self::Live(live) => {
                let is_key = live.wait(at_most).map_err(Failure::failed)?;
                let signal = signals.take().map(Interrupt::Signal);
                Ok(signal.or(is_key.then_some(Interrupt::Key)))
            }
        }
    }

    /// Shows how far the run is, if that is worth showing by now.
    pub(crate) fn show(&mut self, progress: &Progress) -> Result<(), Failure> {
        match self {
            Self::Quiet => {}
            Self::Lines(lines) => lines.show(progress),
            Self::Live(live) => live.show(progress).map_err(Failure::failed)?,
        }
        Ok(())
    }

    /// Takes the live view away; nothing is shown from here on.
    pub(crate) fn close(&mut self) {
        *self = Self::Quiet;
    }
}

/// Whether somebody looks at a terminal that may be redrawn. Standard output counts too: the
/// question for the cursor's place is written there.
fn is_interactive() -> bool {
    let stderr = std::io::stderr();
    let is_seen = stderr.is_terminal() && std::io::stdout().is_terminal();
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    // In the background a change of the terminal's mode would stop the process.
    let is_in_front = rustix::termios::tcgetpgrp(&stderr) == Ok(rustix::process::getpgrp());
    is_seen && !is_dumb && is_in_front
}

/// What runs, in one line.
fn in_words(plan: &Plan) -> String {
    let more = match plan.targets.len() {
        0 | 1 => String::new(),
        targets => format!(" and {} more", targets - 1),
    };
    let url = plan.targets.first().map_or("", |target| &target.url);
    let threads = if plan.threads == 1 { "thread" } else { "threads" };
    let end = match (plan.end.requests, plan.end.after) {
        (Some(requests), Some(after)) => format!("{requests} requests, {after:?} at most"),
        (Some(requests), None) => format!("{requests} requests"),
        (None, after) => format!("{:?}", after.unwrap_or_default()),
    };
    let warm_up = match plan.warm_up {
        Duration::ZERO => String::new(),
        warm_up => format!(" after {warm_up:?} of warm-up"),
    };
    format!(
        "{url}{more}; {end}{warm_up}; {} connections, {} {threads} on {}",
        plan.connections, plan.threads, plan.driver
    )
}

// `--prometheus`: metrics of the run, for a scraper that asks over HTTP while it runs.
//
// A few threads answer, each one scraper after the other, and sleep otherwise; a scraper may take
// [`PATIENCE`] in all, so one that says nothing holds no other one up.

/// How long a scraper may take to ask and to read.
const PATIENCE: Duration = Duration::from_secs(2);
/// Scrapers that are answered at the same time.
const THREADS: usize = 4;
/// The head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The page that is offered, as it was last.
#[derive(Clone, Default)]
pub(super) struct Scraped(Option<Arc<Mutex<String>>>);

impl Scraped {
    /// Listens there, if anywhere, to the end of the process.
    pub(crate) fn offer(address: Option<SocketAddr>) -> Result<Self, Failure> {
        let Some(address) = address else { return Ok(Self(None)) };
        let failed = |error| {
            let what = format!("--prometheus: {address} can't be listened on: {error}");
            Failure::failed(what)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let page = Arc::<Mutex<String>>::default();
        for _ in 0..THREADS {
            let (listener, offered) = (listener.try_clone().map_err(failed)?, Arc::clone(&page));
            let serve = move || {
                for client in listener.incoming() {
                    // One that went away, or took too long, asks again.
                    let _ = client.and_then(|client| answer(client, &offered, PATIENCE));
                }
            };
            let thread = std::thread::Builder::new().name("load-metrics".to_owned());
            thread.spawn(serve).map_err(failed)?;
        }
        output::remark(&format!("pollux load: metrics at http://{address}/metrics"));
        Ok(Self(Some(page)))
    }

    /// Offers how far the run is now.
    pub(crate) fn show(&self, progress: &Progress) {
        if let Some(page) = &self.0 {
            *page.lock().unwrap_or_else(PoisonError::into_inner) = render::prometheus(progress);
        }
    }
}

fn answer(mut client: TcpStream, page: &Mutex<String>, patience: Duration) -> std::io::Result<()> {
    let end = Instant::now() + patience;
    client.set_write_timeout(Some(patience))?;
    let mut head = Vec::new();
    while !head.windows(4).any(|part| part == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= HEAD_BYTES_MAX {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let mut part = [0; 1024];
        let len = client.read(&mut part)?;
        if len == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..len]);
    }
    let mut words = head.split(|byte| *byte == b' ');
    let is_get = matches!(words.next(), Some(b"GET" | b"HEAD"));
    let has_body = !head.starts_with(b"HEAD");
    let is_here = matches!(words.next(), Some(b"/metrics" | b"/"));
    let page = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, body) = match (is_get, is_here) {
        (false, _) => ("405 Method Not Allowed", "expected GET\n".to_owned()),
        (true, false) => ("404 Not Found", "expected /metrics\n".to_owned()),
        (true, true) => ("200 OK", page),
    };
    let length = body.len();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    if has_body { client.write_all(body.as_bytes()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_that_says_nothing_is_not_waited_for_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut silent =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let accept = || listener.accept().expect("a client").0;
        let patience = Duration::from_millis(20);
        let page = Mutex::default();
        answer(accept(), &page, patience).expect_err("nothing was asked");
        assert_eq!(silent.read(&mut [0; 9]).expect("an end"), 0);
        // One that sends half of it, and continues for ever, byte by byte.
        silent = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let served = accept();
        std::thread::scope(|scope| {
            scope.spawn(|| while silent.write_all(b"x").is_ok() {});
            answer(served, &page, patience).expect_err("no end of the head");
        });
    }
}
