//! What an agent gives up before it takes its first order: it connects to servers and to its broker, and nothing else. Files are
//! out of reach but for those that names, certificates and its own results need; no program can be started, and nothing
//! listens (`pollux_sys::sandbox`). Ports that it connects to are bounded by `--allow` alone: the kernel does not know them.

use std::net::ToSocketAddrs;
use std::path::Path;

use pollux_poller::Mechanism;
use pollux_settings::command::output::{self, Failure};
use pollux_sys::sandbox::{
    AllowedPaths, CALLS_OF_CLIENTS, CALLS_OF_SOURCES, Unavailable, Use, confine_calls,
    confine_files, refuse_privileges,
};

use crate::broker;
use crate::flags::{AgentFlags, SandboxFlags};

/// What names are looked up by, and the certificates of the machine: what stands in their places later too.
const READ: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
const READ_BELOW: [&str; 4] = [
    "/etc/ssl",
    "/usr/share/ca-certificates",
    // Switches of the threads of a load.
    "/proc/self/task",
    "/run/systemd/resolve",
];
/// A figure of the answer to the question who is there.
const READ_ONE: [&str; 1] = ["/proc/loadavg"];

/// Gives up what an agent with these flags does not need, for this thread and all that it starts. It has to be the only one.
///
/// # Errors
/// A part is not available, and was required.
pub(crate) fn confine(flags: &AgentFlags, who: &str) -> Result<(), Failure> {
    let SandboxFlags { no_sandbox, require_sandbox } = flags.sandbox;
    if no_sandbox {
        output::remark(&format!("{who}: sandbox: off"));
        return Ok(());
    }
    // What explains a ring that is refused, and what looks names up, is read while it can be.
    pollux_sys::ring::note_reasons();
    look_up(flags);
    let ways = Mechanism::ALL.iter().flat_map(|mechanism| mechanism.system_calls());
    let of_sources = if flags.source.is_empty() { &[][..] } else { CALLS_OF_SOURCES };
    let calls = ways.chain(CALLS_OF_CLIENTS).chain(of_sources).copied();
    let parts = [
        ("no new privileges", refuse_privileges().map(|()| "no new privileges".to_owned())),
        ("landlock", confine_files(&reach(flags)).map(|confined| confined.to_string())),
        ("seccomp", confine_calls(calls).map(|()| "seccomp".to_owned())),
    ];
    let mut in_force = Vec::new();
    let mut lacking = String::new();
    for (part, done) in parts {
        match done {
            Ok(part) => in_force.push(part),
            Err(Unavailable { reason }) if require_sandbox => {
                return Err(Failure::failed(format!(
                    "--require-sandbox: {part} is not available: {reason}"
                )));
            }
            Err(Unavailable { reason }) => lacking += &format!("; without {part}: {reason}"),
        }
    }
    let in_force = if in_force.is_empty() { "none".to_owned() } else { in_force.join(", ") };
    output::remark(&format!("{who}: sandbox: {in_force}{lacking}"));
    Ok(())
}

fn reach(flags: &AgentFlags) -> AllowedPaths {
    let mut reach = AllowedPaths::default();
    if flags.source.is_empty() {
        reach.allow_connecting();
    } else {
        reach.allow_binding();
    }
    READ.iter().for_each(|path| reach.add(Path::new(path), Use::Read));
    READ_BELOW.iter().for_each(|path| reach.add(Path::new(path), Use::ReadBelow));
    READ_ONE.iter().for_each(|path| reach.add(Path::new(path), Use::ReadOne));
    let of_broker = [&flags.broker.nats_login, &flags.broker.nats_ca];
    of_broker.into_iter().flatten().for_each(|path| reach.add(path, Use::Read));
    if let Some(folder) = &flags.results {
        reach.add(&folder.join("result.json"), Use::Write);
    }
    reach
}

/// Has the C library load what it looks names up by: memory never becomes code later. Whether there is an answer is of no
/// account.
fn look_up(flags: &AgentFlags) {
    let brokers = broker::hosts(&flags.broker);
    let allowed = flags.allow.iter().filter_map(|target| target.name());
    for host in brokers.iter().map(String::as_str).chain(allowed) {
        let _ = (host, 0).to_socket_addrs();
    }
}
