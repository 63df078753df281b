//! Hosts of a load, as network namespaces: some for agents, and one for the broker, the server and the controller, to which
//! each of them has a link of its own.
//!
//! ```text
//!  agent 0: 10.0.0.2 ──── 10.0.0.1 ┐
//!  agent 1: 10.0.1.2 ──── 10.0.1.1 ├ centre: 10.1.0.1
//!  agent 2: 10.0.2.2 ──── 10.0.2.1 ┘
//! ```

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The address of the centre, which every agent has a way to.
pub(crate) const CENTRE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));

/// A network namespace, which is removed when it is dropped.
pub(crate) struct Host {
    name: String,
}

/// The hosts of a load.
pub(crate) struct Hosts {
    pub(crate) agents: Vec<Host>,
    pub(crate) centre: Host,
}

impl Hosts {
    /// Makes them; where the machine forbids it, the reason.
    pub(crate) fn make(agents: usize) -> Result<Self, String> {
        let centre = Host::make("centre")?;
        let agents: Vec<Host> = (0..agents)
            .map(|number| Host::make(&format!("agent{number}")))
            .collect::<Result<_, _>>()?;
        centre.ip(&["address", "add", &format!("{CENTRE}/32"), "dev", "lo"])?;
        for (number, agent) in agents.iter().enumerate() {
            let link = format!("to{number}");
            let near = format!("10.0.{number}.1");
            let pair = ["link", "add", &link, "type", "veth", "peer", "name", "eth0"];
            centre.ip(&[&pair[..], &["netns", &agent.name]].concat())?;
            for (host, own, address) in
                [(&centre, &*link, &*near), (agent, "eth0", &*format!("10.0.{number}.2"))]
            {
                host.ip(&["address", "add", &format!("{address}/24"), "dev", own])?;
                host.ip(&["link", "set", own, "up"])?;
            }
            agent.ip(&["route", "add", "default", "via", &near])?;
        }
        Ok(Self { agents, centre })
    }
}

impl Host {
    fn make(what: &str) -> Result<Self, String> {
        let name = format!("pollux-test-{}-{what}", std::process::id());
        // What a run that was killed left there, under a number that came again.
        let _ = ip(&["netns", "delete", &name]);
        ip(&["netns", "add", &name])?;
        let host = Self { name };
        host.ip(&["link", "set", "lo", "up"])?;
        Ok(host)
    }

    fn ip(&self, words: &[&str]) -> Result<(), String> {
        ip(&[&["-n", &*self.name], words].concat())
    }

    /// A program on this host.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// A socket that listens on this host.
    pub(crate) fn listen(&self, address: IpAddr) -> TcpListener {
        let file = Path::new("/run/netns").join(&self.name);
        // The thread ends with its namespace; what it has opened stays there.
        let bound = std::thread::spawn(move || {
            let namespace = std::fs::File::open(file).expect("it was made");
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).expect("root may");
            TcpListener::bind((address, 0)).expect("a port is free")
        });
        bound.join().expect("it listens")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(words).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| format!("ip: {error}"))?;
    if ran.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(format!("no network namespaces may be made here: ip {}: {why}", words.join(" ")))
}
