//! The users that may use a pool beside its own: the members of a group, where one is named.
//!
//! A pool is open to its user and to root. [`GROUP_VARIABLE`], or the attribute `group` of `<appconfig>`, opens
//! it to a group as well: its members may call, converse and exchange events, not order. Names of sockets are
//! free for all, so both sides look: the manager accepts members of the group, and a client that names the
//! same group in its environment takes a pool for its own whose manager is in it. The kernel tells which user the
//! other side is (`SO_PEERCRED`, `SO_PEERGROUPS`, `unix(7)`), of a listener as it was when it began to listen.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use pollux_sys::socket::peer_groups;
use rustix::fs::{Gid, Mode, fchmod, fchown};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, getegid, geteuid, getgroups};

/// The variable that names the group, for pools and for clients.
pub const GROUP_VARIABLE: &str = "POLLUX_POOL_GROUP";

/// What a member may do with a queue: what its user may.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP);

/// A group of users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    name: String,
    id: u32,
}

/// The other side of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its process.
    pub pid: u32,
    /// Its user.
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
    /// Neither.
    Foreign,
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

    /// Its number.
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

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
