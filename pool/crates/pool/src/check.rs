//! `pollux pool check`: would this configuration run here?

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use pollux_settings::command::output::{self, Failure};
use pollux_sys::descriptors;
use pollux_xatmi::config::{Diagnostic, PoolConfig};
use pollux_xatmi::control::{Answer, Control, Request};
use pollux_xatmi::environment::Transport;
use pollux_xatmi::needs::{
    MemoryRoom, Need, QueueLimits, Shortage, descriptor_shortage, file_size_limits,
    file_size_shortage, memory_shortages, shortages,
};
use pollux_xatmi::pool::{Sizes, find, memory_len_bytes, memory_room, output_faults, services_of};
use pollux_xatmi::queue::Prefix;
use serde::Serialize;

use crate::{SILENCE, config_file, environment, show};

/// What was found.
#[derive(Serialize)]
struct Findings {
    config: String,
    programs: usize,
    workers: u32,
    services: u64,
    clients: u32,
    /// What fits in shared memory; none where requests travel by queues.
    services_max: Option<u64>,
    clients_max: Option<u64>,
    service_queues: u64,
    /// Whether all of the pool runs, so that its services were counted; else the programs were asked.
    is_running: bool,
    /// Programs that did not say what they offer, with the reason; one service is reckoned with.
    silent_programs: Vec<String>,
    reply_queues: u32,
    /// How requests travel, in the pool that runs or in one that would be started; there are none
    /// in memory.
    transport: &'static str,
    /// How they would from the next start on, where that is another way.
    next_transport: Option<&'static str>,
    charge_bytes: u64,
    limit_bytes: Option<u64>,
    warnings: Vec<Diagnostic>,
    missing_programs: Vec<String>,
    unwritable_outputs: Vec<String>,
    short_limits: Vec<String>,
    /// The limits that could not be read, with the reason.
    unknown_limits: Option<String>,
}

/// Checks the configuration against this machine, with `clients` client threads. While the pool
/// does not run its programs are started and asked what they offer, unless `is_asking` is off.
pub(crate) fn check(
    config: Option<PathBuf>,
    clients: u32,
    is_asking: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let environment = environment()?;
    // Without a word the configuration of the pool that runs is meant.
    let running = Control::connect(&environment.prefix).ok();
    let running = running.and_then(|mut control| show::info_of(&mut control));
    let known = running.as_ref().map(|info| PathBuf::from(&info.config));
    let file = config_file(config).or_else(|none| known.ok_or(none))?;
    let config = crate::read_config(&file)?;
    let sizes = Sizes::new(&environment);
    let next = environment.transport_of(&config);
    let transport = running.as_ref().and_then(|info| Transport::named(&info.transport));
    let transport = transport.unwrap_or(next);
    let counted = count_services(&environment.prefix);
    let asked = || if is_asking { ask(&config, &environment.prefix) } else { unasked(&config) };
    let (services, silent_programs) = counted.map_or_else(asked, |count| (count, Vec::new()));
    let room = match transport {
        Transport::Queues => None,
        Transport::Memory => Some(memory_room(config.workers_max(), &sizes)),
    };
    let (service_queues, reply_queues) = if room.is_some() { (0, 0) } else { (services, clients) };
    let service =
        Need { what: "service queues".to_owned(), queues: service_queues, size: sizes.service };
    let reply = Need {
        what: "reply queues".to_owned(),
        queues: u64::from(reply_queues),
        size: sizes.reply,
    };
    let charge_bytes = service.charge_bytes() + reply.charge_bytes();
    let limits = QueueLimits::of_machine();
    let queues = limits.as_ref().map(|limits| shortages(&[service, reply], limits));
    let memory = room.map(|room| memory_shortages(room, services, clients.into()));
    let workers = config.workers_max();
    let files = descriptor_shortage(workers, clients, service_queues, descriptors::Limit::here());
    let len_bytes = memory_len_bytes(transport, workers, &sizes);
    let file_size = file_size_shortage(len_bytes, file_size_limits());
    let short = queues.iter().flatten().chain(memory.iter().flatten()).chain(&files);
    let short = short.chain(&file_size);
    let findings = Findings {
        config: file.display().to_string(),
        programs: config.entries.len(),
        workers,
        services,
        clients,
        service_queues,
        is_running: counted.is_some(),
        silent_programs,
        reply_queues,
        transport: transport.name(),
        next_transport: (next != transport).then_some(next.name()),
        services_max: room.map(|room| room.services),
        clients_max: room.map(|room| room.contexts),
        charge_bytes,
        limit_bytes: limits.as_ref().ok().and_then(|limits| limits.bytes),
        missing_programs: config.entries.iter().filter_map(|entry| find(entry).err()).collect(),
        unwritable_outputs: config.entries.iter().flat_map(output_faults).collect(),
        short_limits: short.map(Shortage::to_string).collect(),
        unknown_limits: limits.as_ref().err().cloned(),
        warnings: config.warnings,
    };
    show::print(json, &findings, in_words)?;
    Ok(if findings.are_good() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Findings {
    /// What fits in shared memory, where requests are there.
    fn room(&self) -> Option<MemoryRoom> {
        let (services, contexts) = self.services_max.zip(self.clients_max)?;
        Some(MemoryRoom { services, contexts })
    }

    fn are_good(&self) -> bool {
        let Self { missing_programs, unwritable_outputs, short_limits, .. } = self;
        [missing_programs, unwritable_outputs, short_limits].iter().all(|list| list.is_empty())
    }
}

/// The services of the pool with this prefix, if it runs, is ours and all of its workers are up.
fn count_services(prefix: &Prefix) -> Option<u64> {
    let mut count = 0;
    let mut is_whole = true;
    let mut control = Control::connect(prefix).ok()?;
    let mut each = |answer| match answer {
        Answer::Queues(rows) => count += rows.len() as u64,
        Answer::Workers(rows) => {
            is_whole &= rows.iter().all(|row| ["up", "silent", "down"].contains(&&*row.state));
        }
        _ => {}
    };
    for request in [Request::Ps, Request::Queues] {
        control.ask(&request, SILENCE, &mut each).ok()?;
    }
    is_whole.then_some(count)
}

/// The services that all programs offer together, and the programs that did not say, for which one
/// is counted, as for those that are missing.
fn ask(config: &PoolConfig, prefix: &Prefix) -> (u64, Vec<String>) {
    let mut names = BTreeSet::new();
    let mut silent = Vec::new();
    let (there, missing): (Vec<_>, Vec<_>) =
        config.entries.iter().partition(|entry| find(entry).is_ok());
    for entry in there {
        if std::io::stderr().is_terminal() {
            output::remark(&format!("asking {} what it offers", entry.program));
        }
        match services_of(config, entry, prefix) {
            Ok(services) => names.extend(services),
            Err(why) => silent.push(format!("{}: {why}", entry.program)),
        }
    }
    ((names.len() + silent.len() + missing.len()) as u64, silent)
}

fn unasked(config: &PoolConfig) -> (u64, Vec<String>) {
    let silent = config.entries.iter().map(|entry| format!("{}: not asked", entry.program));
    (config.entries.len() as u64, silent.collect())
}

fn in_words(findings: &Findings) -> String {
    let mut lines = Vec::new();
    let Findings { config, programs, workers, .. } = findings;
    lines.push(format!("{config}: {workers} workers of {programs} programs"));
    let limit = match (&findings.unknown_limits, findings.limit_bytes) {
        (Some(reason), _) => format!("limit n/a: {reason}"),
        (None, Some(bytes)) => format!("RLIMIT_MSGQUEUE allows {bytes}"),
        (None, None) => "RLIMIT_MSGQUEUE sets no limit".to_owned(),
    };
    let known = if findings.is_running {
        "those of the pool that runs"
    } else if findings.silent_programs.is_empty() {
        "as the programs say"
    } else {
        "as far as the programs said"
    };
    let Findings { services, clients, reply_queues, charge_bytes, .. } = findings;
    lines.push(match findings.room() {
        Some(room) => format!(
            "requests in shared memory: {services} services ({known}) of {} at most, {clients} client \
             threads of {} at most; no queues",
            room.services, room.contexts,
        ),
        None => format!(
            "queues: {services} for services ({known}), {reply_queues} for replies to client threads: \
             {charge_bytes} bytes; {limit}",
        ),
    });
    lines.extend(findings.next_transport.map(|next| {
        let now = findings.transport;
        format!(
            "warning: the pool that runs has the transport {now}, as it was started; configuration and \
             environment say {next}, which holds from the next start on"
        )
    }));
    lines.extend(findings.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.extend(findings.missing_programs.iter().map(|what| format!("missing: {what}")));
    lines.extend(findings.unwritable_outputs.iter().map(|what| format!("unwritable: {what}")));
    lines.extend(findings.silent_programs.iter().map(|what| {
        format!("unknown: {what}; one service is reckoned with, check again when the pool runs")
    }));
    lines.extend(findings.short_limits.iter().map(|what| format!("short: {what}")));
    if findings.are_good() {
        lines.push("it fits this machine".to_owned());
    }
    lines.join("\n")
}
