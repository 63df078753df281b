//! How a running pool is asked: the messages of its control socket, and the asking side.
//!
//! Clients introduce themselves on it, workers of an earlier manager report on it, and the
//! command line asks and orders. Each message is one JSON text in one message of a seqpacket
//! socket, framed by [`PeerLink`]. A command is answered by any number of lists or progress
//! messages and then by exactly one that [`Answer::is_last`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::client::{ClientHello, Welcome};
use crate::environment::{Group, Peer};
use crate::link::{Advert, PeerLink, Received};
use crate::queue::Prefix;
use crate::supervisor::Selection;

mod rows;

pub use rows::{ClientRow, MailboxRow, PoolInfo, QueueRow, ServiceRow, SubscriberRow, WorkerRow};

/// Rows of one message: the longest row is a few hundred bytes, a message carries 64 KiB.
pub const ROWS_MAX: usize = 64;

/// The line that a pool prints when it can be asked, as `pollux-pool start --detached`.
pub const OPEN: &str = "open";

/// What is sent to the socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// A client context begins; the connection stays open as long as it lives.
    Client(ClientHello),
    /// A worker of an earlier manager reports, see [`crate::link::ToManager::Adopt`].
    Adopt {
        /// Its server id.
        srvid: u32,
        pid: u32,
        name: String,
        /// Its slot in the memory that comes along.
        slot: usize,
        /// What it offers.
        services: Vec<Advert>,
        /// Its number in the memory that requests are in, where they are.
        #[serde(default)]
        memory: Option<usize>,
    },
    Ps,
    /// The services, one row for each worker that offers one.
    Services,
    /// The queues of services.
    Queues,
    /// The client contexts.
    Clients,
    Info,
    /// Tell when everything that is on its way is up or has failed.
    Settle,
    /// Start workers; answered when they are up or have failed.
    Start {
        what: Selection,
    },
    /// Stop workers; answered when they are gone.
    Stop {
        what: Selection,
    },
    /// Stop workers and start them again; answered when they are up or have failed. A worker that is meant by its id and was
    /// stopped is started, unless only those that run are meant.
    Restart {
        what: Selection,
        #[serde(default)]
        is_for_running: bool,
    },
    /// Unsolicited messages come to this mailbox as long as the connection is there.
    Mailbox(MailboxRow),
    /// Subscribe to events, as long as the connection is there; answered with a handle.
    Subscribe {
        /// A regular expression of their names.
        pattern: String,
        /// What their data have to be like; empty for any.
        filter: String,
        /// The service that gets them; the mailbox without.
        service: Option<String>,
    },
    /// Take a subscription of this connection back, or all; answered with how many.
    Unsubscribe {
        handle: Option<u64>,
    },
    /// The subscribers of an event; the client that asks delivers it.
    Post {
        event: String,
    },
    Mailboxes,
    /// Read the configuration again.
    Reload,
    /// Change what workers log, or have logs opened by their names again.
    Log {
        what: Selection,
        /// The highest level that their programs write, 0 to 6.
        level: Option<u8>,
        /// Whether files are opened again: that of the manager too where all workers are meant.
        is_opened_again: bool,
    },
    /// Stop all workers and end; answered when they are gone.
    End {
        /// Kill them instead.
        now: bool,
    },
}

/// What the socket answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// To a client.
    Welcome(Welcome),
    Workers(Vec<WorkerRow>),
    Services(Vec<ServiceRow>),
    Queues(Vec<QueueRow>),
    /// Some client contexts.
    Clients(Vec<ClientRow>),
    Info(Box<PoolInfo>),
    /// A part of the subscribers of an event.
    Subscribers(Vec<SubscriberRow>),
    Mailboxes(Vec<MailboxRow>),
    /// How far an order is.
    Progress(Progress),
    /// The last message: done.
    Done {
        message: String,
    },
    /// The last message: not done, as there is no room for more.
    Full {
        /// In words, with the limit.
        why: String,
    },
    /// The last message: not done for this user.
    Forbidden {
        /// In words, with the users that may.
        why: String,
    },
    /// The last message: not done.
    Refused {
        /// In words, with what would be right.
        why: String,
    },
}

/// How far an order is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Workers that are where they should be.
    pub done: usize,
    /// Workers that the order is for.
    pub of: usize,
    /// Workers that failed.
    pub failed: usize,
}

impl Answer {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Done { .. }
                | Self::Full { .. }
                | Self::Forbidden { .. }
                | Self::Refused { .. }
                | Self::Welcome(_)
        )
    }
}

/// Why a pool could not be asked.
#[derive(Debug)]
pub enum ControlError {
    /// No pool with this prefix runs.
    NoPool {
        /// What the names of its queues begin with.
        prefix: String,
    },
    /// It said no.
    Refused(String),
    /// A limit of the pool was reached.
    Full(String),
    /// It does not do this for this user.
    Forbidden(String),
    /// It ended, or closed the connection, before it answered.
    Ended,
    /// It gave no answer in this time.
    Silent(Duration),
    /// Its socket is that of another user, with any messages.
    Foreign {
        /// What the names of its queues begin with.
        prefix: String,
        /// The process that holds it, in words.
        holder: String,
    },
    /// The socket failed.
    System(io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool { prefix } => write!(
                f,
                "no pool with the prefix {prefix} runs; start it with `pollux pool start`, or set \
                 NDRX_QPREFIX to the prefix of the one that is meant"
            ),
            Self::Refused(why) | Self::Full(why) | Self::Forbidden(why) => f.write_str(why),
            Self::Ended => f.write_str(
                "the manager closed the connection before it answered: it is ending, or it belongs \
                 to another user",
            ),
            Self::Foreign { prefix, holder } => write!(
                f,
                "the pool with the prefix {prefix} is that of {holder}, and only its user and root may give commands; \
                 set NDRX_QPREFIX to the prefix of one of yours"
            ),
            Self::Silent(time) => write!(
                f,
                "the manager gave no answer in {time:?}: it is held up, or what was ordered waits \
                 for a worker; its log says more"
            ),
            Self::System(_) => f.write_str("the control socket failed"),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(cause) => Some(cause),
            _ => None,
        }
    }
}

/// A connection to a running pool.
#[derive(Debug)]
pub struct Control {
    link: PeerLink,
    /// The manager's process, to see its end; none where it can't be watched from here.
    process: Option<OwnedFd>,
    pid: u32,
    owner: u32,
}

impl Control {
    /// Connects to the pool with this prefix, which is one of this user's.
    ///
    /// # Errors
    /// [`ControlError::NoPool`], [`ControlError::Foreign`], [`ControlError::System`].
    pub fn connect(prefix: &Prefix) -> Result<Self, ControlError> {
        Self::connect_within(prefix, None)
    }

    /// The same for a pool that may be that of another member of `group`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_within(prefix: &Prefix, group: Option<&Group>) -> Result<Self, ControlError> {
        let socket = seqpacket().map_err(|errno| ControlError::System(errno.into()))?;
        let address = address(prefix).map_err(ControlError::System)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::CONNREFUSED) => {
                return Err(ControlError::NoPool { prefix: prefix.to_string() });
            }
            Err(errno) => return Err(ControlError::System(errno.into())),
        }
        let peer = Peer::of(&socket).map_err(ControlError::System)?;
        // Names of sockets are free for all: the process that holds one may be of any user.
        if !peer.is_known(group) && !rustix::process::geteuid().is_root() {
            return Err(ControlError::Foreign {
                prefix: prefix.to_string(),
                holder: peer.to_string(),
            });
        }
        let process = i32::try_from(peer.pid).ok().and_then(Pid::from_raw);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self { link: PeerLink::new(socket), process, pid: peer.pid, owner: peer.user })
    }

    /// The process of the manager.
    #[must_use]
    pub fn manager(&self) -> u32 {
        self.pid
    }

    /// The user of the manager.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Asks, hands each answer but the last to `each`, and gives the words of the last one.
    /// `silence` is the longest time between two answers.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn ask(
        &mut self,
        request: &Request,
        silence: Duration,
        mut each: impl FnMut(Answer),
    ) -> Result<String, ControlError> {
        if let Err(error) = self.link.send_within(request, silence) {
            // A manager that admits no process of this user has answered so, and closed.
            return Err(match self.next(silence) {
                Ok(Answer::Forbidden { why }) => ControlError::Forbidden(why),
                _ => ControlError::System(error),
            });
        }
        loop {
            match self.next(silence)? {
                Answer::Done { message } => return Ok(message),
                Answer::Refused { why } => return Err(ControlError::Refused(why)),
                Answer::Full { why } => return Err(ControlError::Full(why)),
                Answer::Forbidden { why } => return Err(ControlError::Forbidden(why)),
                answer => each(answer),
            }
        }
    }

    /// Whether the manager closed the connection, as it does at its end.
    pub(crate) fn is_ended(&self) -> bool {
        let mut connection = [PollFd::new(&self.link, PollFlags::empty())];
        let looked = retry_on_intr(|| poll(&mut connection, Some(&Timespec::default())));
        looked.is_ok() && connection[0].revents().contains(PollFlags::HUP)
    }

    /// Waits up to `limit` for the manager to close the connection, as it does at its end, and
    /// for the end of its process. One that was late may be waited for again.
    ///
    /// # Errors
    /// [`ControlError::Silent`].
    pub fn wait_for_end(&mut self, limit: Duration) -> Result<(), ControlError> {
        let end = Instant::now() + limit;
        loop {
            match self.next(end.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(ControlError::Silent(_)) => return Err(ControlError::Silent(limit)),
                Err(_) => break,
            }
        }
        let Some(process) = &self.process else { return Ok(()) };
        let left = end.saturating_duration_since(Instant::now());
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        match retry_on_intr(|| poll(&mut ended, left.try_into().ok().as_ref())) {
            Ok(0) => Err(ControlError::Silent(limit)),
            _ => Ok(()),
        }
    }

    fn next(&mut self, silence: Duration) -> Result<Answer, ControlError> {
        let received = match self.link.receive_within(silence) {
            // A reset is reported once, before what came ahead of it.
            Ok(Received::Ended) => self.link.receive_within(silence),
            received => received,
        };
        match received {
            Ok(Received::Message(answer, _)) => Ok(answer),
            Ok(Received::Ended | Received::Nothing) => Err(ControlError::Ended),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(ControlError::Silent(silence))
            }
            Err(error) => Err(ControlError::System(error)),
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// Listens for the pool with this prefix; non-blocking.
///
/// # Errors
/// EADDRINUSE when one runs already, EMFILE, ENFILE.
pub fn listen(prefix: &Prefix) -> io::Result<OwnedFd> {
    /// Connections that may wait to be accepted: a client process with many threads.
    const BACKLOG: i32 = 1024;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &address(prefix)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The process that listens on the name of the pool's control socket, in words: the first one has it.
#[must_use]
pub fn holder(prefix: &Prefix) -> String {
    let peer = seqpacket().map_err(io::Error::from).and_then(|socket| {
        rustix::net::connect(&socket, &address(prefix)?)?;
        Peer::of(&socket)
    });
    match peer {
        Ok(peer) => format!("{peer} holds its name"),
        Err(error) => format!("its name is held, and its holder cannot be asked: {error}"),
    }
}

fn seqpacket() -> rustix::io::Result<OwnedFd> {
    let family = AddressFamily::UNIX;
    let kind = SocketType::SEQPACKET;
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

fn address(prefix: &Prefix) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(prefix.control_socket().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_look_as_clients_and_workers_write_them() {
        let hello = r#"{"Client":{"pid":7,"context":1,"nonce":9,"queue":"/p,clt,reply,7,1"}}"#;
        let Request::Client(hello) = serde_json::from_str(hello).expect("a request") else {
            panic!("a client")
        };
        assert_eq!((hello.pid, hello.context), (7, 1));
        let services = vec![Advert { name: "A".to_owned(), function: "a".to_owned() }];
        let adopt = crate::link::ToManager::Adopt {
            srvid: 3,
            pid: 8,
            name: "banksv".to_owned(),
            slot: 2,
            services: services.clone(),
            memory: Some(5),
        };
        let text = serde_json::to_string(&adopt).expect("JSON");
        let read: Request = serde_json::from_str(&text).expect("a request");
        let name = "banksv".to_owned();
        let memory = Some(5);
        assert_eq!(read, Request::Adopt { srvid: 3, pid: 8, name, slot: 2, services, memory });
    }

    #[test]
    fn a_full_message_of_rows_fits_a_link() {
        let row = WorkerRow {
            program: "p".repeat(255),
            srvid: u32::MAX,
            pid: Some(u32::MAX),
            state: "starting".to_owned(),
            restarts: u32::MAX,
            failures: u32::MAX,
            next_start_s: Some(u64::MAX),
            since_s: u64::MAX,
            is_busy: true,
            service: Some("s".repeat(30)),
            busy_ms: Some(u64::MAX),
            calls: u64::MAX,
            failed: u64::MAX,
            late: u64::MAX,
            dropped: u64::MAX,
            cause: Some("c".repeat(200)),
        };
        let text = serde_json::to_vec(&Answer::Workers(vec![row; ROWS_MAX])).expect("JSON");
        assert!(text.len() < crate::link::MESSAGE_LEN_BYTES_MAX, "{} bytes", text.len());
    }

    #[test]
    fn a_pool_that_does_not_run_is_named_by_its_prefix() {
        let prefix = Prefix::new(&format!("/none{}", std::process::id())).expect("a prefix");
        let error = Control::connect(&prefix).expect_err("no manager listens");
        assert!(error.to_string().contains(prefix.as_str()), "{error}");
        let _listener = listen(&prefix).expect("free");
        assert!(listen(&prefix).is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse));
        Control::connect(&prefix).expect("the manager listens");
        let pid = std::process::id();
        let user = rustix::process::geteuid().as_raw();
        let held = holder(&prefix);
        assert!(held.starts_with(&format!("user {user}, process {pid} (")), "{held}");
        assert!(held.ends_with(") holds its name"), "{held}");
    }
}
