//! Events and unsolicited messages, from the side of programs.
//!
//! The manager keeps the subscriptions ([`Subscriptions`], [`subscribers`]); messages go straight from
//! process to process, each to the [`Mailbox`] of a context, a socket with a name of its own. One that
//! is not read fills up and takes no more: a sender never waits for a context that does not read.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, bind, connect, recvmsg, shutdown, socket_with,
};
use rustix::process::geteuid;

use crate::client::Outgoing;
use crate::control::{Answer, Control, ControlError, MailboxRow, Request, SubscriberRow};
use crate::conversation::{
    HEAD_LEN_BYTES, INLINE_LEN_BYTES_MAX, Kind, Message, decode, head, memfd_for, send_once,
};
use crate::environment::{Environment, Group};
use crate::error::{Code, Error};
use crate::queue::Prefix;

/// How long the manager may take for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How often the next manager is looked for.
const FOLLOW_PAUSE: Duration = Duration::from_millis(500);

/// The socket that receives the unsolicited messages of a context.
#[derive(Debug)]
pub struct Mailbox {
    socket: OwnedFd,
    /// The user of the pool, whose workers send.
    owner: u32,
    group: Option<Group>,
}

/// The subscriptions of a context; they end when this is dropped.
///
/// The manager has them for as long as this connection to it is there. A thread observes the connection, as a
/// context may wait for messages, or a worker for requests, without a call: when the manager ended, the thread
/// connects to the next one and registers the mailbox and the subscriptions there.
#[derive(Debug)]
pub struct Subscriptions {
    registered: Arc<Mutex<Registered>>,
    pid: u32,
}

/// What a context has registered, and the connection to the manager that has it.
#[derive(Debug)]
struct Registered {
    environment: Environment,
    control: Control,
    /// The connection ended before all was registered.
    is_partial: bool,
    /// The subscriptions were dropped.
    is_over: bool,
    mailbox: Option<MailboxRow>,
    subscriptions: Vec<Subscription>,
    last_handle: u64,
}

#[derive(Debug)]
struct Subscription {
    /// As the program knows it.
    handle: u64,
    /// As the manager knows it.
    number: u64,
    pattern: String,
    filter: String,
    service: Option<String>,
}

impl Subscription {
    fn request(&self) -> Request {
        let Self { pattern, filter, service, .. } = self;
        let pattern = pattern.clone();
        let filter = filter.clone();
        let service = service.clone();
        Request::Subscribe { pattern, filter, service }
    }
}

impl Registered {
    /// Asks the manager, or the next one if it has ended.
    fn ask(&mut self, request: &Request) -> Result<String, ControlError> {
        if self.is_ended() {
            self.follow()?;
        }
        self.control.ask(request, ANSWER_TIME, |_| {})
    }

    fn is_ended(&self) -> bool {
        self.is_partial || self.control.is_ended()
    }

    /// Connects to the next manager and registers everything there.
    fn follow(&mut self) -> Result<(), ControlError> {
        self.control = manager(&self.environment)?;
        self.is_partial = true;
        if let Some(row) = &self.mailbox {
            self.control.ask(&Request::Mailbox(row.clone()), ANSWER_TIME, |_| {})?;
        }
        for subscription in &mut self.subscriptions {
            match self.control.ask(&subscription.request(), ANSWER_TIME, |_| {}) {
                Ok(number) => subscription.number = number.parse().unwrap_or(0),
                // Other contexts were first: this one is without it, and no handle of the manager is 0.
                Err(ControlError::Full(_) | ControlError::Refused(_)) => subscription.number = 0,
                Err(error) => return Err(error),
            }
        }
        self.is_partial = false;
        Ok(())
    }
}

/// Waits for ends of the connection, and follows, until the subscriptions are dropped.
fn observe(registered: &Weak<Mutex<Registered>>) {
    while let Some(known) = registered.upgrade() {
        let mut known_now = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known_now.is_over {
            return;
        }
        let is_connected = !known_now.is_ended() || known_now.follow().is_ok();
        let connection = known_now.control.as_fd().try_clone_to_owned().ok();
        drop(known_now);
        drop(known);
        if let Some(connection) = connection.filter(|_| is_connected) {
            // An end is reported whatever is asked for.
            let mut end = [PollFd::new(&connection, PollFlags::empty())];
            let _ = retry_on_intr(|| poll(&mut end, None));
        } else {
            // Nothing announces the next manager: its name is an abstract socket.
            std::thread::sleep(FOLLOW_PAUSE);
        }
    }
}

impl MailboxRow {
    /// The abstract name of its socket.
    fn name(&self, prefix: &Prefix) -> io::Result<SocketAddrUnix> {
        let Self { pid, context, nonce, .. } = self;
        let name = format!("{prefix},msg,{pid},{context},{nonce:x}");
        Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Refused(why) => Self::new(Code::Invalid, why),
            ControlError::Full(why) => Self::new(Code::Limit, why),
            ControlError::Foreign { .. } | ControlError::Forbidden(_) => {
                Self::new(Code::Permission, error.to_string())
            }
            error => Self::new(Code::System, error.to_string()),
        }
    }
}

impl Mailbox {
    /// The mailbox of a context in a pool of the user `owner`.
    ///
    /// # Errors
    /// TPEOS.
    pub fn open(environment: &Environment, row: &MailboxRow, owner: u32) -> Result<Self, Error> {
        let made = socket().and_then(|socket| {
            set_socket_passcred(&socket, true)?;
            bind(&socket, &row.name(&environment.prefix)?)?;
            Ok(socket)
        });
        let socket = made.map_err(|e| Error::os("a mailbox cannot be made", e))?;
        Ok(Self { socket, owner, group: environment.group.clone() })
    }

    /// The next message, if there is one; those of other users are dropped. A message does not carry the
    /// supplementary groups of its sender.
    ///
    /// # Errors
    /// TPEOS.
    pub fn take(&self) -> Result<Option<Message>, Error> {
        const SPACE: usize = rustix::cmsg_space!(ScmRights(1), ScmCredentials(1));
        let mut buffer = vec![0; HEAD_LEN_BYTES + INLINE_LEN_BYTES_MAX];
        loop {
            let mut space = [MaybeUninit::uninit(); SPACE];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let parts = &mut [io::IoSliceMut::new(&mut buffer)];
            let got = match recvmsg(&self.socket, parts, &mut beside, flags) {
                Ok(got) => got,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Error::os("a mailbox cannot be read", errno.into())),
            };
            let mut descriptor = None;
            let mut is_ours = false;
            for message in beside.drain() {
                match message {
                    RecvAncillaryMessage::ScmRights(mut all) => descriptor = all.next(),
                    RecvAncillaryMessage::ScmCredentials(from) => {
                        let of_group = |group: &Group| group.id() == from.gid.as_raw();
                        is_ours = from.uid == geteuid()
                            || from.uid.is_root()
                            || from.uid.as_raw() == self.owner
                            || self.group.as_ref().is_some_and(of_group);
                    }
                    _ => {}
                }
            }
            if is_ours && let Some(message) = decode(&buffer[..got.bytes], descriptor) {
                return Ok(Some(message));
            }
        }
    }
}

/// Sends a message to a mailbox.
///
/// # Errors
/// TPENOENT when it is gone, TPEBLOCK when it is full, TPEOS.
pub fn send(prefix: &Prefix, to: &MailboxRow, data: Outgoing<'_>) -> Result<(), Error> {
    let os = |error| Error::os("a message cannot be sent", error);
    let memfd = memfd_for(data.bytes).map_err(os)?;
    let inline = if memfd.is_some() { &[][..] } else { data.bytes };
    let sent = socket().and_then(|socket| {
        connect(&socket, &to.name(prefix)?)?;
        let memfd = memfd.as_ref().map(AsFd::as_fd);
        let head = head(Kind::Data, &data, 0);
        retry_on_intr(|| send_once(socket.as_fd(), &head, inline, memfd))?;
        Ok(())
    });
    sent.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => {
            Error::new(Code::NoEntry, "the client takes no messages, or it has ended")
        }
        Some(Errno::AGAIN) => Error::new(Code::Block, "the client does not read its messages"),
        _ => os(error),
    })
}

impl Subscriptions {
    /// A connection to the manager.
    ///
    /// # Errors
    /// TPESYSTEM, TPEOS without a thread.
    pub fn open(environment: &Environment) -> Result<Self, Error> {
        let registered = Arc::new(Mutex::new(Registered {
            control: manager(environment)?,
            environment: environment.clone(),
            is_partial: false,
            is_over: false,
            mailbox: None,
            subscriptions: Vec::new(),
            last_handle: 0,
        }));
        let observed = Arc::downgrade(&registered);
        let named = std::thread::Builder::new().name("pollux-events".to_owned());
        let spawned = named.spawn(move || observe(&observed));
        spawned.map_err(|source| Error::os("no thread to observe the manager", source))?;
        Ok(Self { registered, pid: std::process::id() })
    }

    /// The user of the pool.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.lock().control.owner()
    }

    /// Registers the mailbox of the context.
    ///
    /// # Errors
    /// TPESYSTEM.
    pub fn mailbox(&mut self, row: MailboxRow) -> Result<(), Error> {
        let mut known = self.lock();
        known.ask(&Request::Mailbox(row.clone()))?;
        known.mailbox = Some(row);
        Ok(())
    }

    /// Subscribes to events; its handle. Without a service they are sent to the mailbox.
    ///
    /// # Errors
    /// TPEINVAL with what was wrong, TPELIMIT with the limit, TPESYSTEM.
    pub fn subscribe(
        &mut self,
        pattern: &str,
        filter: &str,
        service: Option<&str>,
    ) -> Result<u64, Error> {
        let mut known = self.lock();
        let mut subscription = Subscription {
            handle: 0,
            number: 0,
            pattern: pattern.to_owned(),
            filter: filter.to_owned(),
            service: service.map(str::to_owned),
        };
        subscription.number = known.ask(&subscription.request())?.parse().unwrap_or(0);
        // Another manager counts anew.
        subscription.handle = subscription.number.max(known.last_handle + 1);
        known.last_handle = subscription.handle;
        known.subscriptions.push(subscription);
        Ok(known.last_handle)
    }

    /// Takes a subscription back, or all for `None`; how many that were.
    ///
    /// # Errors
    /// TPESYSTEM.
    pub fn unsubscribe(&mut self, handle: Option<u64>) -> Result<usize, Error> {
        let mut known = self.lock();
        if known.is_ended() {
            known.follow()?;
        }
        let Some(handle) = handle else {
            let count = known.ask(&Request::Unsubscribe { handle: None })?.parse().unwrap_or(0);
            known.subscriptions.clear();
            return Ok(count);
        };
        let at = known.subscriptions.iter().position(|its| its.handle == handle);
        let Some(at) = at else { return Ok(0) };
        let handle = Some(known.subscriptions[at].number);
        let count = known.ask(&Request::Unsubscribe { handle })?.parse().unwrap_or(0);
        known.subscriptions.remove(at);
        Ok(count)
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        // A child after fork(2) shares the connection, which is its parent's.
        if std::process::id() == self.pid {
            let mut known = self.lock();
            known.is_over = true;
            // The thread has a descriptor of the connection, too; its wait ends.
            let _ = shutdown(known.control.as_fd(), Shutdown::Both);
        }
    }
}

/// The subscribers to an event, by its name; their filters are for the sender.
///
/// # Errors
/// TPEINVAL for a text that is not the name of an event, TPESYSTEM.
pub fn subscribers(environment: &Environment, event: &str) -> Result<Vec<SubscriberRow>, Error> {
    let mut all = Vec::new();
    let request = Request::Post { event: event.to_owned() };
    manager(environment)?.ask(&request, ANSWER_TIME, |answer| {
        if let Answer::Subscribers(rows) = answer {
            all.extend(rows);
        }
    })?;
    Ok(all)
}

/// All mailboxes.
///
/// # Errors
/// TPESYSTEM.
pub fn mailboxes(environment: &Environment) -> Result<Vec<MailboxRow>, Error> {
    let mut all = Vec::new();
    manager(environment)?.ask(&Request::Mailboxes, ANSWER_TIME, |answer| {
        if let Answer::Mailboxes(rows) = answer {
            all.extend(rows);
        }
    })?;
    Ok(all)
}

fn manager(environment: &Environment) -> Result<Control, ControlError> {
    Control::connect_within(&environment.prefix, environment.group.as_ref())
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferType;

    #[test]
    fn messages_come_to_the_mailbox_until_it_is_full_or_gone() {
        let variable = |name: &str| (name == "NDRX_QPREFIX").then(|| "/mailboxes".into());
        let environment = Environment::read(variable).expect("a prefix");
        let prefix = environment.prefix.clone();
        let row =
            MailboxRow { pid: std::process::id(), context: 1, nonce: 77, ..MailboxRow::default() };
        let gone = send(&prefix, &row, Outgoing::NONE).expect_err("there is no mailbox");
        assert_eq!(gone.code(), Code::NoEntry);
        let mailbox = Mailbox::open(&environment, &row, 0).expect("it is free");
        assert!(mailbox.take().expect("readable").is_none());
        for len in [0, 5, INLINE_LEN_BYTES_MAX, 1_000_000] {
            let bytes = vec![7; len];
            let buffer_type = Some(BufferType::Carray);
            let data =
                Outgoing { buffer_type, buffer_size_bytes: len, has_info: false, bytes: &bytes };
            send(&prefix, &row, data).expect("room");
            assert_eq!(mailbox.take().expect("readable").expect("it came").bytes, bytes);
        }
        let full = loop {
            if let Err(error) = send(&prefix, &row, Outgoing::NONE) {
                break error;
            }
        };
        assert_eq!(full.code(), Code::Block);
    }
}
