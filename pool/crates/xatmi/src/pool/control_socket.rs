//! Who comes to the control socket, and what is said there: client contexts, commands, workers that come back.
//!
//! Only the user of the pool, root and members of its group are served.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_sys::mqueue::MessageQueue;
use rustix::net::SocketFlags;

use super::connections::{Client, ControlConnection, Sent};
use super::poller::Source;
use super::workers::Report;
use super::{Pool, SlotHandle, previous};
use crate::client::{ClientHello, Welcome};
use crate::control::{Answer, Request};
use crate::environment::{Peer, Relation};
use crate::link::{PeerLink, Received};
use crate::slots::Slots;

/// Most connections: each client thread has one.
const CONNECTIONS_MAX: usize = 8_192;
/// Connections accepted in one turn.
const ACCEPT_BUDGET: usize = 64;
/// How long a connection may be open before its first message: clients, workers and commands
/// speak at once, and one that does not takes a place from them.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long accepting pauses when there is no room.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How often the log says that accepting pauses.
const REST_LOG_PAUSE: Duration = Duration::from_secs(60);
impl Pool {
    /// Takes new connections.
    pub(super) fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPT_BUDGET {
            let Some((listener, _)) = &self.control else { return };
            if self.connections.by_number.len() >= CONNECTIONS_MAX {
                return self.pause(now, "too many connections");
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(listener, flags) {
                Ok(socket) => self.welcome(socket, now),
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                // EMFILE, ENFILE, ENOMEM: the connection waits in the backlog.
                Err(errno) => return self.pause(now, &errno.to_string()),
            }
        }
    }

    /// Ends the connections that have said nothing for too long.
    pub(super) fn drop_silent(&mut self, now: Instant) {
        while self.connections.silence_ends().is_some_and(|until| now >= until) {
            let Some((number, _)) = self.connections.silent.pop_first() else { return };
            self.connections.dropped_silent += 1;
            self.leave(number);
        }
    }

    /// Watches the listener again when there may be room.
    pub(super) fn accept_again(&mut self, now: Instant) {
        if self.connections.accepts_at.is_some_and(|at| now >= at) {
            self.connections.accepts_at = None;
            if let Some((listener, token)) = &mut self.control {
                match self.poller.add(listener.as_fd(), Source::Control) {
                    Ok(fresh) => *token = fresh,
                    Err(_) => self.connections.accepts_at = Some(now + ACCEPT_REST),
                }
            }
        }
    }

    /// What a connection says.
    pub(super) fn read_visitor(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.connections.by_number.get_mut(&number) else { return };
        if !connection.unsent.is_empty() {
            if self.send_rest(number) == Sent::All {
                self.wait_for_room(number, false);
            }
            return;
        }
        match connection.link.receive::<Request>() {
            Ok(Received::Message(request, descriptors)) => {
                self.understand_visitor(number, request, descriptors, now);
            }
            Ok(Received::Nothing) => {}
            Ok(Received::Ended) => self.leave(number),
            Err(error) => {
                let why = format!("that is not a request: {error}");
                self.reply(number, &Answer::Refused { why });
                self.leave(number);
            }
        }
    }

    fn understand_visitor(
        &mut self,
        number: u64,
        request: Request,
        descriptors: Vec<OwnedFd>,
        now: Instant,
    ) {
        self.connections.silent.remove(&number);
        let guest = self.connections.by_number.get(&number).and_then(|connection| connection.guest);
        if guest.is_some_and(|pid| !is_for_guests(&request, pid)) {
            let owner = rustix::process::geteuid().as_raw();
            let why = format!(
                "members of the group may call, converse and exchange events; orders and lists are for user \
                 {owner} and root"
            );
            return self.reply(number, &Answer::Forbidden { why });
        }
        match request {
            Request::Client(hello) => self.greet(number, &hello, now),
            Request::Adopt { srvid, pid, name, slot, services, memory } => {
                let Some(connection) = self.connections.by_number.remove(&number) else { return };
                self.poller.remove(connection.link.as_fd(), connection.token);
                let ControlConnection { link, .. } = connection;
                let slot_handle = is_sent_by(&link, pid)
                    .and_then(|()| self.slot_handle_of(descriptors, slot))
                    .and_then(|slot_handle| {
                        self.is_of_this_transport(pid, memory).map(|()| slot_handle)
                    });
                match slot_handle {
                    Ok(slot_handle) => {
                        let program = previous::program_of(pid).unwrap_or(name);
                        let report = Report { id: srvid, pid, program, services, number: memory };
                        self.adopt(report, link, slot_handle, now);
                    }
                    Err(why) => {
                        self.services.leave(&services);
                        self.reject(srvid, pid, &link, &why, now);
                    }
                }
            }
            request => {
                if let Some(command) = self.serve_events(number, request) {
                    self.obey(number, command, now);
                }
            }
        }
    }

    fn greet(&mut self, number: u64, hello: &ClientHello, now: Instant) {
        if self.supervisor.is_ending() {
            let why = "the pool is ending".to_owned();
            return self.reply(number, &Answer::Refused { why });
        }
        let known = self.connections.by_number.get(&number).and_then(|v| v.client.as_ref());
        if let Some(Client { pid, context, .. }) = known {
            let why = format!(
                "this connection is that of context {context} of process {pid}; open another one \
                 for another context"
            );
            return self.reply(number, &Answer::Refused { why });
        }
        let connection = self.connections.by_number.get(&number);
        let is_guest = connection.is_some_and(|connection| connection.guest.is_some());
        let has_made_queue = is_guest && self.memory.is_none();
        if has_made_queue && let Err(error) = self.make_reply_queue(hello) {
            let why = format!("no reply queue for a client of another user: {error}");
            return self.reply(number, &Answer::Refused { why });
        }
        let kept = self.memory.as_ref().zip(hello.memory).and_then(|(memory, known)| {
            (known.exchange == memory.exchange().inode()).then_some(known.context)
        });
        let welcome = Welcome {
            message_len_bytes: self.sizes.reply.message_len_bytes,
            reply_depth: self.sizes.reply.messages_max,
            timeout_s: u32::try_from(self.sizes.timeout.as_secs()).unwrap_or(u32::MAX),
            pool: self.prefix.to_string(),
            memory: self
                .memory
                .as_ref()
                .map(|memory| kept.unwrap_or_else(|| memory.next_context())),
            has_made_queue,
            priorities: self.config.priorities.clone(),
        };
        self.counts.clients += 1;
        let has_kept_requests =
            kept.is_some() && self.earlier_clients.has(hello.pid, &mut self.poller);
        if let Some(connection) = self.connections.by_number.get_mut(&number) {
            let pid = hello.pid;
            let context = hello.context;
            let memory = welcome.memory;
            connection.client =
                Some(Client { pid, context, memory, has_kept_requests, since: now });
        }
        self.reply(number, &Answer::Welcome(welcome));
    }

    fn welcome(&mut self, socket: OwnedFd, now: Instant) {
        let Ok(peer) = Peer::of(&socket) else { return };
        let link = PeerLink::new(socket);
        let guest = match peer.relation(self.group.as_ref()) {
            Relation::Own => None,
            Relation::Member => Some(peer.pid),
            Relation::Foreign => {
                let owner = rustix::process::geteuid().as_raw();
                let open_to = match &self.group {
                    Some(group) => {
                        format!(" and is open to {group}; user {} is not in it", peer.user)
                    }
                    None => " and is open to no group".to_owned(),
                };
                let why = format!("this pool belongs to user {owner}{open_to}");
                let _ = link.send(&Answer::Forbidden { why });
                return;
            }
        };
        self.connections.numbers += 1;
        let number = self.connections.numbers;
        if let Ok(token) = self.poller.add(link.as_fd(), Source::Connection(number)) {
            let connection =
                ControlConnection { link, token, guest, client: None, unsent: VecDeque::new() };
            self.connections.by_number.insert(number, connection);
            self.connections.silent.insert(number, now + SILENCE_MAX);
        }
    }

    /// The reply queue of a client of another user, which could not let workers send to its own, nor this
    /// process remove it.
    fn make_reply_queue(&self, hello: &ClientHello) -> io::Result<()> {
        let Some(group) = &self.group else { return Err(io::ErrorKind::PermissionDenied.into()) };
        let name = self.prefix.reply_queue(hello.pid, hello.context);
        // One of a dead process with the same number.
        let _ = MessageQueue::unlink(&name);
        let made = MessageQueue::create_for_replies(&name, self.sizes.reply)?;
        group.admit_to(&made).inspect_err(|_| {
            let _ = MessageQueue::unlink(&name);
        })
    }

    fn pause(&mut self, now: Instant, why: &str) {
        if let Some((listener, token)) = &self.control {
            self.poller.remove(listener.as_fd(), *token);
            self.connections.accepts_at = Some(now + ACCEPT_REST);
            self.counts.accept_pauses += 1;
            // A pool that is full pauses ten times a second.
            if self.connections.rest_logged.is_none_or(|at| now - at >= REST_LOG_PAUSE) {
                self.connections.rest_logged = Some(now);
                self.log.line(&format!("no connection is taken for a moment: {why}"));
            }
        }
    }

    /// Whether a worker's requests travel as those of this pool do.
    fn is_of_this_transport(&self, pid: u32, number: Option<usize>) -> Result<(), String> {
        let is_ours = match (&self.memory, number) {
            (Some(memory), Some(number)) => memory.process_of(number) == Some(pid),
            (None, None) => true,
            _ => false,
        };
        let why = "its requests travel in another way than those of this pool";
        if is_ours { Ok(()) } else { Err(why.to_owned()) }
    }

    /// The slot that a worker of an earlier manager brings along.
    fn slot_handle_of(
        &mut self,
        descriptors: Vec<OwnedFd>,
        index: usize,
    ) -> Result<SlotHandle, String> {
        let memory = descriptors.into_iter().next().ok_or("it brought no memory")?;
        let status = rustix::fs::fstat(&memory).map_err(|errno| format!("fstat: {errno}"))?;
        let key = (status.st_dev, status.st_ino);
        let known = self.connections.mappings.iter().find(|(known, _)| *known == key);
        let slots = match known {
            Some((_, slots)) => Rc::clone(slots),
            None => {
                let slots = Slots::from_fd(memory).map_err(|error| error.to_string())?;
                let slots = Rc::new(slots);
                self.connections.mappings.retain(|(_, slots)| Rc::strong_count(slots) > 1);
                self.connections.mappings.push((key, Rc::clone(&slots)));
                slots
            }
        };
        if slots.slot(index).is_none() {
            return Err(format!("its slot {index} is beyond its memory"));
        }
        Ok(SlotHandle { slots, index })
    }
}

/// Whether a member of the group, in process `pid`, may ask for this.
fn is_for_guests(request: &Request, pid: u32) -> bool {
    match request {
        // What is done at its end is done to what it says it is.
        Request::Client(hello) => hello.pid == pid,
        Request::Mailbox(row) => row.pid == pid,
        Request::Subscribe { .. }
        | Request::Unsubscribe { .. }
        | Request::Post { .. }
        | Request::Mailboxes => true,
        Request::Adopt { .. }
        | Request::Ps
        | Request::Services
        | Request::Queues
        | Request::Clients
        | Request::Info
        | Request::Settle
        | Request::Start { .. }
        | Request::Stop { .. }
        | Request::Restart { .. }
        | Request::Reload
        | Request::Log { .. }
        | Request::End { .. } => false,
    }
}

/// Whether the process at the other end is the one that it says it is: what is taken over is
/// watched and sent signals.
fn is_sent_by(link: &PeerLink, pid: u32) -> Result<(), String> {
    let peer = rustix::net::sockopt::socket_peercred(link.as_fd());
    let peer = peer.map_err(|errno| format!("SO_PEERCRED: {errno}"))?;
    let peer = peer.pid.as_raw_nonzero().get();
    if u32::try_from(peer) == Ok(pid) {
        Ok(())
    } else {
        Err(format!("process {peer} says that it is process {pid}"))
    }
}
