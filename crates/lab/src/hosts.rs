//! Where the servers of a job listen, and how agents are reached that make its load on another host.
//!
//! The program that has the client of the broker is another one, `pollux-agent`: each arm whose load comes from an agent
//! runs it, and speaks to it by lines of JSON.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use pollux_load::campaign::AgentName;
use serde::{Deserialize, Serialize};

/// The program, looked for beside this one first.
pub(crate) const AGENT_PROGRAM: &str = "pollux-agent";

/// What a job says of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// The address at which servers listen; loopback where nothing is said.
    pub listen: Option<IpAddr>,
    /// Addresses of the broker.
    pub nats: Option<String>,
    /// The file with what logs in to it.
    pub nats_login: Option<PathBuf>,
    /// Certificates that its own is checked with.
    pub nats_ca: Option<PathBuf>,
    /// The group of the agents.
    pub group: Option<AgentName>,
}

impl Hosts {
    pub(crate) fn listens_at(&self) -> IpAddr {
        self.listen.unwrap_or(Ipv4Addr::LOCALHOST.into())
    }

    /// What was said, by the name of its key.
    pub(crate) fn keys(&self) -> Vec<(&'static str, String)> {
        let Self { listen, nats, nats_login, nats_ca, group } = self;
        let path = |path: &PathBuf| path.display().to_string();
        let keys = [
            ("listen", listen.map(|address| address.to_string())),
            ("nats", nats.clone()),
            ("nats_login", nats_login.as_ref().map(path)),
            ("nats_ca", nats_ca.as_ref().map(path)),
            ("group", group.as_ref().map(ToString::to_string)),
        ];
        keys.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Flags that say to the program where the broker is.
    pub(crate) fn broker_words(&self) -> Vec<OsString> {
        let path = |path: &PathBuf| path.clone().into_os_string();
        let flags = [
            ("--nats", self.nats.as_ref().map(OsString::from)),
            ("--nats-login", self.nats_login.as_ref().map(path)),
            ("--nats-ca", self.nats_ca.as_ref().map(path)),
            ("--group", self.group.as_ref().map(|group| group.to_string().into())),
        ];
        let given = flags.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?]));
        given.flatten().collect()
    }
}

/// The campaign of a run, by its private folder, which no other has: all its loads on an agent are of it.
pub(crate) fn campaign(scratch: &Path) -> AgentName {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host.chars().take(32).collect();
    let run = scratch.file_name().unwrap_or_default().to_string_lossy();
    AgentName::nearest(&format!("{host}-{run}"))
}

/// Reads an address to listen at. All addresses together are none that a load could be sent to.
pub(crate) fn listen_address(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Err(format!(
            "{address} stands for all addresses; expected the one that the load is sent to, such as 10.0.0.1"
        )),
        Ok(address) => Ok(address),
        Err(_) => {
            Err("expected an address of this host without a port, such as 10.0.0.1".to_owned())
        }
    }
}
