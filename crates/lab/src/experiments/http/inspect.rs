//! A first look at a server of a user: it is started, asked some requests, and ended.
//!
//! ```text
//!  start ─► first answer ─► [one server at a time] second request ─► second connection ─► several at once ─► a wave ─► end
//! ```
//!
//! Nothing is measured here that is compared; the plan is made from it (`record::look`). Servers are started all at the
//! same time, as those of a set are, and looked at one after the other, so that none is slow because of another.

use std::fs::File;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::{Duration, Instant};

use pollux_host::backlog_at;
use pollux_load::{Client, RequestError, Turns};
use pollux_settings::command::output::error_chain;
use rustix::fs::{FlockOperation, flock};

use super::Role;
use super::generator;
use super::load::Load;
use super::load_turns::{are_too_many, failures, generator_failed};
use super::server::{ANSWER_PATIENCE, Server};
use crate::arm::ArmKind;
use crate::error::MeasureError;
use crate::measure::RunSpec;
use crate::record::Look;
use crate::subject;

/// Within this a server that serves several connections answers on a second one, also on a busy machine; one that does
/// not is given that long once more.
const SECOND_PATIENCE: Duration = Duration::from_millis(300);
const SECOND_PATIENCE_MORE: Duration = Duration::from_secs(1);
/// The same as a multiple of what its first answers took.
const SECOND_TIMES: u32 = 4;
/// Answers to requests that were sent at once have to come within this.
const PIPELINED_PATIENCE: Duration = Duration::from_secs(2);
/// Waves are taken for so long, twice at least where the first is quicker: that one has to open its connections, and a
/// program that compiles itself is slow only at first.
const QUICK_WAVE: Duration = Duration::from_millis(500);
/// A wave that is quicker than this need not be taken again.
const SHORT_WAVE: Duration = Duration::from_millis(10);
/// A wave is given up after so long.
const WAVE_PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a server may take to end before it is killed; a little less than that time.
const KILLED_AFTER: Duration = Duration::from_millis(2_950);
/// Between two looks whether the server before is done.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks at the server of `spec`, whose axes say the most that is asked of it.
pub(crate) fn look(
    spec: &RunSpec,
    role: Role,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Look, MeasureError> {
    let load = Load::of(spec, role)?;
    let cpus = subject::cpus()?;
    let began = Instant::now();
    let mut server = Server::start(spec, &load, cpus, is_interrupted)?;
    let started = began.elapsed();
    let ran_before = matches!(spec.arm, ArmKind::Running { .. });
    let _alone = Alone::below(&spec.scratch, is_interrupted)?;
    subject::pin(cpus[1])?;
    let mut look = Look {
        startup_s: (!ran_before).then_some(started.as_secs_f64()),
        status: Some(server.answered.status),
        body_bytes: Some(server.answered.body_bytes),
        is_chunked: server.answered.is_chunked,
        // A kernel or a filter that forbids it leaves it unknown.
        backlog: backlog_at(server.address).ok().flatten().map(|backlog| backlog.limit),
        ..Look::default()
    };
    let target = server.asked.target.clone();
    let open = || Client::open(load.http, &target, &load.trust(), ANSWER_PATIENCE);
    answers(&mut look, &mut server, &open)?;
    let answer = Duration::from_secs_f64(look.answer_s.unwrap_or(0.0));
    let keeps = look.keeps_connections == Some(true);
    if keeps && load.is_kept_alive && load.connections > 1 {
        look.serves_several = serves_several(&open, answer).ok();
    }
    if keeps && load.pipeline > 1 && look.serves_several != Some(false) {
        look.pipelines = Some(pipelines(&open, load.pipeline, answer).is_ok());
    }
    wave(&mut look, &mut server, &load)?;
    look.processes = server.pids().len() as u32;
    look.is_daemon = server.is_daemon();
    look.printed_bytes = server.printed_bytes();
    let ending = Instant::now();
    server.end(is_interrupted)?;
    if !ran_before {
        let took = ending.elapsed();
        look.shutdown_s = Some(took.as_secs_f64());
        look.was_killed = took >= KILLED_AFTER + answer;
    }
    Ok(look)
}

/// Asks twice on one connection: how long an answer takes, and whether the connection is kept.
fn answers(
    look: &mut Look,
    server: &mut Server,
    open: &dyn Fn() -> Result<Client, RequestError>,
) -> Result<(), MeasureError> {
    let start = Instant::now();
    let asked = open().and_then(|mut client| {
        client.send(1)?;
        client.answer(ANSWER_PATIENCE).map(|answered| (client, answered))
    });
    let (mut client, first) = asked.map_err(|error| {
        server.failed(&format!("answered once, and then no more: {}", error_chain(&error)))
    })?;
    let mut quickest = start.elapsed();
    (look.keeps_connections, look.says_it_keeps) = (Some(false), first.keep_alive);
    if !first.keep_alive {
        // The first of them may have found the server cold.
        let start = Instant::now();
        if open()
            .and_then(|mut client| client.send(1).and_then(|()| client.answer(ANSWER_PATIENCE)))
            .is_ok()
        {
            quickest = quickest.min(start.elapsed());
        }
    }
    if first.keep_alive {
        let start = Instant::now();
        let second = client.send(1).and_then(|()| client.answer(ANSWER_PATIENCE));
        match second {
            Ok(second) => {
                quickest = quickest.min(start.elapsed());
                look.keeps_connections = Some(true);
                if (first.status, first.body_bytes) != (second.status, second.body_bytes) {
                    look.remarks.push(format!(
                        "its answers differ: {} with {} bytes, then {} with {} bytes",
                        first.status, first.body_bytes, second.status, second.body_bytes
                    ));
                }
            }
            Err(RequestError::Malformed(why)) => {
                return Err(server.failed(&format!(
                    "what follows its first answer on the connection is not an answer ({why}): the body is longer than \
                     its Content-Length, {} bytes, says",
                    first.body_bytes
                )));
            }
            Err(error) => look.remarks.push(format!(
                "it says that it keeps the connection, and does not answer on it again ({})",
                error_chain(&error)
            )),
        }
    }
    look.answer_s = Some(quickest.as_secs_f64());
    Ok(())
}

/// Whether a connection is served while another one is open.
fn serves_several(
    open: &dyn Fn() -> Result<Client, RequestError>,
    answer: Duration,
) -> Result<bool, RequestError> {
    let mut first = open()?;
    first.send(1)?;
    first.answer(ANSWER_PATIENCE)?;
    let mut second = open()?;
    second.send(1)?;
    let patience = SECOND_PATIENCE.max(answer * SECOND_TIMES).min(ANSWER_PATIENCE);
    if second.answer(patience).is_ok() || second.answer(SECOND_PATIENCE_MORE).is_ok() {
        return Ok(true);
    }
    // The answer comes when the first connection is gone: else something else is wrong.
    drop(first);
    second.answer(ANSWER_PATIENCE).map(|_| false)
}

/// Requests that are sent at once are all answered.
fn pipelines(
    open: &dyn Fn() -> Result<Client, RequestError>,
    requests: usize,
    answer: Duration,
) -> Result<(), RequestError> {
    let patience = PIPELINED_PATIENCE.max(answer * SECOND_TIMES).min(ANSWER_PATIENCE);
    let mut client = open()?;
    client.send(requests)?;
    (0..requests).try_for_each(|_| client.answer(patience).map(drop))
}

/// One request on each of many connections, all at once.
fn wave(look: &mut Look, server: &mut Server, load: &Load) -> Result<(), MeasureError> {
    let backlog = backlog_at(server.address).ok().flatten();
    let requests = load.connections as u64;
    let mut plan =
        generator::plan(load, &server.asked, backlog).map_err(|error| generator_failed(&error))?;
    let is_kept = look.keeps_connections == Some(true) && look.serves_several != Some(false);
    if !is_kept {
        plan.requests_per_connection = Some(NonZeroU32::MIN);
    }
    (plan.pipeline, plan.streams) = (1, 1);
    let mut turns = Turns::open(plan).map_err(|error| generator_failed(&error))?;
    let turn = |turns: &mut Turns| {
        turns.turn(WAVE_PATIENCE, Some(requests)).map_err(|error| generator_failed(&error))
    };
    let first = if is_kept { turns.opened() } else { turn(&mut turns)? };
    if are_too_many(first.failed, first.right) {
        return Err(failures(server, turns.why_failed(), first.failed, first.right));
    }
    let mut took = first.took;
    let mut spent = took;
    let mut has_opened = false;
    while spent < QUICK_WAVE && (took > SHORT_WAVE || !has_opened) {
        let again = turn(&mut turns)?;
        has_opened = true;
        spent += again.took.max(PAUSE);
        if again.failed == 0 && again.right == requests {
            took = took.min(again.took);
        }
    }
    look.wave_requests = requests;
    look.wave_s = Some(took.as_secs_f64());
    Ok(())
}

/// The only one that is looked at, as long as it lives.
struct Alone(#[expect(dead_code, reason = "its lock goes with it")] File);

impl Alone {
    fn below(scratch: &Path, is_interrupted: &dyn Fn() -> bool) -> Result<Self, MeasureError> {
        let file = File::create(scratch.join("look.lock"))
            .map_err(|cause| MeasureError::Setup { what: "a lock file".to_owned(), cause })?;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if is_interrupted() {
                return Err(MeasureError::Interrupted);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Self(file))
    }
}
