//! What the environment asks of the runtime, and the users that may use a pool.
//!
//! The `NDRX_` variables that clients, workers and the manager share are read once, at the start, and passed on as
//! plain data: nothing else of the crate looks at the environment for these. Variables of one part alone (the manager's
//! configuration, field tables) are read by that part.
//!
//! A pool is open to its user and to root. [`GROUP_VARIABLE`], or the attribute `group` of `<appconfig>`, opens
//! it to a group as well: its members may call, converse and exchange events, not order. Names of sockets are
//! free for all, so both sides look: the manager accepts members of the group, and a client that names the
//! same group in its environment takes a pool for its own whose manager is in it. The kernel tells which user the
//! other side is (`SO_PEERCRED`, `SO_PEERGROUPS`, `unix(7)`), of a listener as it was when it began to listen.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::Duration;
use std::{fmt, io};

use pollux_sys::socket::peer_groups;
use rustix::fs::{Gid, Mode, fchmod, fchown};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, getegid, geteuid, getgroups};

use crate::config::PoolConfig;
use crate::queue::Prefix;

/// The variable that says how requests travel, over what the configuration says.
pub const TRANSPORT_VARIABLE: &str = "POLLUX_POOL_TRANSPORT";

/// The variable that names the group, for pools and for clients.
pub const GROUP_VARIABLE: &str = "POLLUX_POOL_GROUP";

/// The prefix where none is given.
pub const DEFAULT_PREFIX: &str = "/pollux";
/// How long a call may take where neither client nor pool say otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a message by default: a page. What is longer goes by a memfd.
pub const DEFAULT_MESSAGE_LEN_BYTES: u32 = 4096;
/// The shortest message: a head and some data, so that small calls need no memfd.
pub const MESSAGE_LEN_BYTES_MIN: u32 = 256;
/// The longest message that the kernel allows at all (`HARD_MSGSIZEMAX`).
pub const MESSAGE_LEN_BYTES_MAX: u32 = 16 << 20;
/// The deepest queue that the kernel allows at all (`HARD_MSGMAX`).
pub const MESSAGES_MAX: u32 = 65_536;
/// The longest time-out that is counted; longer ones are this long (a year).
pub const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a member may do with a queue: what its user may.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP);

/// The settings, with their defaults filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    /// What the names of all queues begin with: `NDRX_QPREFIX`, else [`DEFAULT_PREFIX`].
    pub prefix: Prefix,
    /// How long a call may take: `NDRX_TOUT` in seconds. `None` leaves it to the pool.
    pub timeout: Option<Duration>,
    /// Messages that a service queue holds: `NDRX_MSGMAX`. `None` leaves it to the kernel.
    pub messages_max: Option<u32>,
    /// Bytes of a message: `NDRX_MSGSIZEMAX`. `None` for [`DEFAULT_MESSAGE_LEN_BYTES`].
    pub message_len_bytes: Option<u32>,
    /// How requests travel in a pool that is started: `POLLUX_POOL_TRANSPORT`. `None` leaves it to the
    /// configuration.
    pub transport: Option<Transport>,
    /// Whose members use a pool of another one of them: `POLLUX_POOL_GROUP`, by name or number.
    pub group: Option<Group>,
}

/// How requests travel from clients to workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// By POSIX message queues.
    Queues,
    /// In memory that all of them share.
    #[default]
    Memory,
}

/// A group of users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    name: String,
    id: u32,
}

/// The other side of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    pub pid: u32,
    pub user: u32,
    groups: Vec<u32>,
}

/// What a peer is to this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The same user, or root.
    Own,
    /// A member of the group.
    Member,
    Foreign,
}

impl Transport {
    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Memory => "memory",
        }
    }

    /// Where requests are, in words: `in shared memory`, `by queues`.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Queues => "by queues",
            Self::Memory => "in shared memory",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Queues, Self::Memory].into_iter().find(|known| known.name() == name)
    }
}

/// A variable whose value makes no sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadVariable {
    pub name: &'static str,
    /// Its value, as far as it is text.
    pub value: String,
    /// What would be right.
    pub wanted: String,
}

impl fmt::Display for BadVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.escape_debug();
        write!(f, "{}=`{value}` in the environment: {}", self.name, self.wanted)
    }
}

impl std::error::Error for BadVariable {}

impl Environment {
    /// The settings of this process.
    ///
    /// # Errors
    /// The first variable whose value makes no sense.
    pub fn of_process() -> Result<Self, BadVariable> {
        Self::read(|name| std::env::var_os(name))
    }

    /// How requests travel in a pool of this configuration: as the environment says, else as it says.
    #[must_use]
    pub fn transport_of(&self, config: &PoolConfig) -> Transport {
        self.transport.or(config.settings.transport).unwrap_or_default()
    }

    /// The settings that `variable` gives; an empty value counts as none.
    ///
    /// # Errors
    /// The first variable whose value makes no sense.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, BadVariable> {
        let text = |name: &'static str| {
            let value = variable(name).unwrap_or_default();
            let value = value.to_string_lossy().trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let number = |name, least, most| {
            text(name).map(|value| whole_number(name, &value, least, most)).transpose()
        };
        let prefix = text("NDRX_QPREFIX").unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        let prefix = Prefix::new(&prefix).map_err(|mistake| BadVariable {
            name: "NDRX_QPREFIX",
            value: prefix,
            wanted: mistake.to_string(),
        })?;
        let timeout_s = number("NDRX_TOUT", 1, u32::MAX)?;
        let transport = text(TRANSPORT_VARIABLE).map(|value| {
            let bad = |value| BadVariable {
                name: TRANSPORT_VARIABLE,
                value,
                wanted: "give a transport: memory or queues".to_owned(),
            };
            Transport::named(&value).ok_or_else(|| bad(value))
        });
        let group = text(GROUP_VARIABLE).map(|value| {
            let bad = |wanted| BadVariable { name: GROUP_VARIABLE, value: value.clone(), wanted };
            Group::of_machine(&value).map_err(bad)
        });
        Ok(Self {
            prefix,
            timeout: timeout_s.map(|s| Duration::from_secs(s.into()).min(TIMEOUT_MAX)),
            messages_max: number("NDRX_MSGMAX", 1, MESSAGES_MAX)?,
            message_len_bytes: number(
                "NDRX_MSGSIZEMAX",
                MESSAGE_LEN_BYTES_MIN,
                MESSAGE_LEN_BYTES_MAX,
            )?,
            transport: transport.transpose()?,
            group: group.transpose()?,
        })
    }
}

impl Group {
    /// The group of this name, or with this number; `group_file` has the names, as `/etc/group` does.
    ///
    /// # Errors
    /// A sentence with what is expected.
    pub fn named(text: &str, group_file: &str) -> Result<Self, String> {
        if let Ok(id) = text.parse() {
            return Ok(Self { name: text.to_owned(), id });
        }
        let known = group_file.lines().find_map(|line| {
            let mut parts = line.split(':');
            let name = parts.next()?;
            let id = parts.nth(1)?.parse().ok()?;
            (name == text).then_some(id)
        });
        known.map(|id| Self { name: text.to_owned(), id }).ok_or_else(|| {
            format!("no group {text} in /etc/group: give the name or the number of a group")
        })
    }

    /// The same with the names of this machine.
    ///
    /// # Errors
    /// As [`named`](Self::named).
    pub fn of_machine(text: &str) -> Result<Self, String> {
        // Without the file there are only numbers.
        Self::named(text, &std::fs::read_to_string("/etc/group").unwrap_or_default())
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether this process may give files to it.
    #[must_use]
    pub fn has_this_process(&self) -> bool {
        let of_process =
            || getgroups().is_ok_and(|all| all.iter().any(|id| id.as_raw() == self.id));
        geteuid().is_root() || getegid().as_raw() == self.id || of_process()
    }

    /// Opens a queue of ours to the members.
    ///
    /// # Errors
    /// EPERM where this process is not in the group.
    pub fn admit_to(&self, queue: impl AsFd) -> io::Result<()> {
        fchown(&queue, None, Some(Gid::from_raw(self.id)))?;
        Ok(fchmod(&queue, MODE)?)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.parse() == Ok(self.id) {
            return write!(f, "group {}", self.id);
        }
        write!(f, "group {} ({})", self.name, self.id)
    }
}

impl Peer {
    /// The peer of a Unix socket.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let known = socket_peercred(&socket)?;
        let mut groups = peer_groups(&socket)?;
        groups.push(known.gid.as_raw());
        let pid = u32::try_from(known.pid.as_raw_nonzero().get()).unwrap_or(0);
        Ok(Self { pid, user: known.uid.as_raw(), groups })
    }

    /// What it is to this process, which is open to `group`.
    #[must_use]
    pub fn relation(&self, group: Option<&Group>) -> Relation {
        let user = Uid::from_raw(self.user);
        if user.is_root() || user == geteuid() {
            Relation::Own
        } else if group.is_some_and(|group| self.groups.contains(&group.id)) {
            Relation::Member
        } else {
            Relation::Foreign
        }
    }

    /// Whether it may be spoken with.
    #[must_use]
    pub fn is_known(&self, group: Option<&Group>) -> bool {
        self.relation(group) != Relation::Foreign
    }
}

impl fmt::Display for Peer {
    /// `user 1000, process 7 (banksv)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = std::fs::read_to_string(format!("/proc/{}/comm", self.pid));
        let program = program.unwrap_or_default();
        write!(f, "user {}, process {} ({})", self.user, self.pid, program.trim())
    }
}

fn whole_number(
    name: &'static str,
    value: &str,
    least: u32,
    most: u32,
) -> Result<u32, BadVariable> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| BadVariable {
        name,
        value: value.to_owned(),
        wanted: format!("give a whole number from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, BadVariable> {
        Environment::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        let bare = read(&[]).expect("defaults");
        assert_eq!(bare.prefix.as_str(), "/pollux");
        assert_eq!((bare.timeout, bare.messages_max, bare.message_len_bytes), (None, None, None));
        assert_eq!(read(&[("NDRX_QPREFIX", ""), ("NDRX_TOUT", " ")]), Ok(bare));
    }

    #[test]
    fn what_is_given_is_taken() {
        let given = [
            ("NDRX_QPREFIX", "/app1"),
            ("NDRX_TOUT", "5"),
            ("NDRX_MSGMAX", "100"),
            ("NDRX_MSGSIZEMAX", "8192"),
            ("POLLUX_POOL_TRANSPORT", "memory"),
        ];
        let environment = read(&given).expect("all good");
        assert_eq!(environment.prefix.as_str(), "/app1");
        assert_eq!(environment.timeout, Some(Duration::from_secs(5)));
        assert_eq!(environment.messages_max, Some(100));
        assert_eq!(environment.message_len_bytes, Some(8192));
        assert_eq!(environment.transport, Some(Transport::Memory));
    }

    #[test]
    fn a_mistake_names_variable_value_and_remedy() {
        for (name, value) in [
            ("NDRX_QPREFIX", "app1"),
            ("NDRX_TOUT", "0"),
            ("NDRX_TOUT", "soon"),
            ("NDRX_MSGMAX", "-1"),
            ("NDRX_MSGSIZEMAX", "100"),
            ("POLLUX_POOL_TRANSPORT", "memfd"),
            ("POLLUX_POOL_GROUP", "no group of this name"),
        ] {
            let said = read(&[(name, value)]).expect_err(name).to_string();
            assert!(said.starts_with(&format!("{name}=`{value}`")), "{said}");
            let is_remedy =
                ["give a", "give the name", "expected"].iter().any(|way| said.contains(way));
            assert!(is_remedy, "{said}");
        }
    }

    #[test]
    fn groups_have_names_and_numbers() {
        let file = "root:x:0:\nbank:x:1500:anna,bert\nbroken\nodd:x:y:\n";
        let bank = Group::named("bank", file).expect("known");
        assert_eq!((bank.id(), bank.to_string().as_str()), (1500, "group bank (1500)"));
        assert_eq!(Group::named("77", file).expect("a number").to_string(), "group 77");
        for wrong in ["odd", "broken", "ban", "-1", ""] {
            let error = Group::named(wrong, file).expect_err(wrong);
            assert!(error.contains("expected") || error.contains("give the name"), "{error}");
        }
    }

    #[test]
    fn a_peer_is_own_a_member_or_foreign() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let peer = Peer::of(&ours).expect("known");
        assert_eq!((peer.pid, peer.user), (std::process::id(), geteuid().as_raw()));
        assert!(peer.groups.contains(&getegid().as_raw()));
        assert_eq!(peer.relation(None), Relation::Own);
        assert!(peer.to_string().contains(&format!("process {} (", peer.pid)), "{peer}");
        let group = Group::named("4711", "").expect("a number");
        let other = Peer { pid: 1, user: geteuid().as_raw() + 1, groups: vec![5, 4711] };
        assert_eq!(other.relation(Some(&group)), Relation::Member);
        assert_eq!(other.relation(None), Relation::Foreign);
        assert!(!other.is_known(Some(&Group::named("4712", "").expect("a number"))));
        let root = Peer { pid: 1, user: 0, groups: vec![] };
        assert_eq!(root.relation(None), Relation::Own);
    }
}
