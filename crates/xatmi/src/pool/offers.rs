//! The services that a program offers, asked of it without a pool: for `pollux pool check`.
//!
//! The program is started as a worker is, up to its start function (tpsvrinit), names the services
//! that it wants to offer, and is refused: no queue is made, nothing is served, and it ends. Its
//! output is discarded. It has a process group of its own, which is killed when its time is over.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::time::Timespec;

use super::log::Log;
use super::start::{BRIDGE_PROGRAM, Start, spawn};
use crate::config::{Entry, Output, PoolConfig};
use crate::error::Code;
use crate::link::{Link, Received, ToManager, ToWorker};
use crate::queue::Prefix;
use crate::slots::Slots;
use crate::worker::Wake;

/// How long a program may take to say what it offers.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The names of the services that the program of `entry` offers at its start.
///
/// # Errors
/// A sentence for people: the program is missing, refused to start, ended or said nothing within
/// 10 seconds; bridges are not asked.
pub fn services_of(
    config: &PoolConfig,
    entry: &Entry,
    prefix: &Prefix,
) -> Result<Vec<String>, String> {
    if entry.program == BRIDGE_PROGRAM {
        return Err("a bridge offers what other hosts have".to_owned());
    }
    let Some(id) = entry.ids().next() else { return Ok(Vec::new()) };
    let system = |error: io::Error| error.to_string();
    let (ours, theirs) = Link::pair().map_err(system)?;
    let slots = Slots::create(1).map_err(system)?;
    let silent = Entry { output: Output::default(), ..entry.clone() };
    let start = Start {
        config,
        entry: &silent,
        id,
        key: &prefix.as_str()[1..],
        prefix: prefix.as_str(),
        wake: Wake::default(),
        link: theirs.as_fd(),
        slots: slots.as_fd(),
        slot: 0,
        memory: None,
        group: None,
    };
    let nowhere = Log::append_to(Path::new("/dev/null")).map_err(system)?;
    let child = spawn(&start, &nowhere)?;
    drop(theirs);
    let mut link = Link::new(ours);
    let answer = listen(&mut link, Instant::now() + ANSWER_TIME);
    drop(link);
    end(child);
    answer
}

/// What the program says until it has named its services, or ended.
fn listen(link: &mut Link, until: Instant) -> Result<Vec<String>, String> {
    let mut services = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match link.receive_within(left) {
            Ok(Received::Message(ToManager::Advertise { services: adverts }, _)) => {
                services = adverts.into_iter().map(|advert| advert.name).collect();
                let (code, why) = (Code::Protocol.number(), "it was only asked".to_owned());
                // One that is gone says so at the next look.
                let _ = link.send(&ToWorker::NotAdvertised { code, why });
            }
            Ok(Received::Message(ToManager::Ready, _)) => {
                // It offers nothing, and would wait for what it is to do.
                let _ = link.send(&ToWorker::Stop);
                return Ok(services);
            }
            Ok(Received::Message(ToManager::Refused { why }, _)) if services.is_empty() => {
                return Err(why);
            }
            Ok(Received::Message(ToManager::Refused { .. }, _)) => return Ok(services),
            Ok(Received::Message(..) | Received::Nothing) => {}
            Ok(Received::Ended) => return Err("it ended without a word of its services".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let seconds = ANSWER_TIME.as_secs();
                return Err(format!("it did not say what it offers within {seconds} s"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Waits for the end of a program that was refused, for a second; then it is killed, and what it
/// started in any case.
fn end(mut child: Child) {
    let number = Pid::from_child(&child);
    let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
    if let Ok(ended) = pidfd_open(number, PidfdFlags::empty()) {
        // Ended, late or interrupted: it goes now.
        let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience));
    }
    // The process id stays its own until it is collected; mostly the group is empty.
    let _ = kill_process_group(number, Signal::KILL);
    let _ = child.wait();
}
