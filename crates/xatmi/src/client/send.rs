//! Requests on their way out: the queue found, room waited for, calls opened.
//!
//! A send never blocks in the kernel. A sender that does is served by the next receive, which
//! moves its message into the queue and wakes no poller: the message then waits while idle
//! workers sleep. So a full queue is polled for room, and the message sent when there is some.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::calls::descriptor_of;
use super::{CallFlags, Client, Descriptor, Outgoing, interrupted, late};
use crate::clock::monotonic_ns;
use crate::error::{Code, Error};
use crate::queue::ServiceName;
use crate::wire::{Body, Payload, Request};

/// How long room is waited for before the queue is looked at anew: it may have been withdrawn,
/// with nobody left to make room.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// Why a message is not in the queue yet.
enum Obstacle {
    Full,
    Failed(Error),
}

impl Client {
    /// Sends a request whose reply is to be waited for later: `tpacall`.
    ///
    /// Waits while the queue is full, until the time for the call is over. Replies that came
    /// meanwhile are taken out of the reply queue, so that no worker waits for it.
    ///
    /// # Errors
    /// TPENOENT when nobody offers the service, TPEBLOCK when its queue is full and TPNOBLOCK is
    /// given, TPETIME when it stayed full, TPELIMIT when too many calls or large payloads are
    /// out, TPGOTSIG, TPEINVAL for flags or a buffer that make no sense, TPEOS, TPESYSTEM.
    pub fn send_request(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
    ) -> Result<Descriptor, Error> {
        if flags.contains(CallFlags::NO_REPLY) {
            let detail = "a request with TPNOREPLY has no descriptor: use send_only";
            return Err(Error::new(Code::Invalid, detail));
        }
        if self.calls.out() > 0 {
            self.take_arrived()?;
        }
        let deadline_ns = self.request_deadline_ns(flags);
        let call_id = self.calls.open(deadline_ns).ok_or_else(too_many)?;
        match self.deliver_request(service, request, flags, call_id, deadline_ns) {
            Ok(()) => Ok(descriptor_of(call_id)),
            Err(error) => {
                self.forget_request(call_id);
                Err(error)
            }
        }
    }

    /// Sends a request that nobody waits for: `tpacall` with TPNOREPLY.
    ///
    /// # Errors
    /// As [`send_request`](Self::send_request), but for the limit on calls.
    pub fn send_only(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
    ) -> Result<(), Error> {
        let flags = flags | CallFlags::NO_REPLY;
        let deadline_ns = self.request_deadline_ns(flags);
        let call_id = self.calls.unanswered_id();
        self.deliver_request(service, request, flags, call_id, deadline_ns)
    }

    fn request_deadline_ns(&mut self, flags: CallFlags) -> u64 {
        let timeout = self.next_timeout.take().unwrap_or(self.timeout);
        if flags.contains(CallFlags::NO_TIME) { 0 } else { self.deadline_ns(timeout) }
    }

    /// Ends a call whose request did not get into the queue.
    fn forget_request(&mut self, call_id: u64) {
        if let Some((slot, _)) = self.calls.close(call_id)
            && slot.large_inode != 0
        {
            self.outbox.release(slot.large_inode);
        }
    }

    fn deliver_request(
        &mut self,
        service: &str,
        request: Outgoing<'_>,
        flags: CallFlags,
        call_id: u64,
        deadline_ns: u64,
    ) -> Result<(), Error> {
        let service = ServiceName::new(service).ok_or_else(|| not_offered(service))?;
        let len = self.encode_request(service, request, flags, call_id, deadline_ns)?;
        loop {
            match self.try_send(service, len) {
                Ok(()) => {
                    self.counters.sent += 1;
                    return Ok(());
                }
                Err(Obstacle::Failed(error)) => return Err(error),
                Err(Obstacle::Full) if flags.contains(CallFlags::NO_BLOCK) => return Err(full()),
                Err(Obstacle::Full) => self.wait_for_room(service, flags, deadline_ns)?,
            }
        }
    }

    /// Writes the request to `outgoing`, its payload to a memfd if it is too long for that; the
    /// length of the message.
    fn encode_request(
        &mut self,
        service: ServiceName,
        request: Outgoing<'_>,
        flags: CallFlags,
        call_id: u64,
        deadline_ns: u64,
    ) -> Result<usize, Error> {
        let Outgoing { buffer_type, buffer_size_bytes, bytes } = request;
        if buffer_type.is_none() && !bytes.is_empty() {
            return Err(Error::new(Code::Invalid, "data without a buffer's type"));
        }
        let buffer_size_bytes = buffer_size_bytes.max(bytes.len()) as u64;
        let body = Body::Inline(bytes);
        let mut message = Request {
            client: self.address,
            call_id,
            cd: descriptor_of(call_id).number(),
            deadline_ns,
            is_without_reply: flags.contains(CallFlags::NO_REPLY),
            service,
            payload: Payload { buffer_type, buffer_size_bytes, body },
        };
        if let Some(len) = message.encode(&mut self.outgoing) {
            return Ok(len);
        }
        let large = self.outbox.put(bytes, deadline_ns, None, monotonic_ns())?;
        if let Some(slot) = self.calls.get_mut(call_id) {
            slot.large_inode = large.inode;
        }
        message.payload.body = Body::Large(large);
        Ok(message.encode(&mut self.outgoing).expect("a message holds the longest head"))
    }

    fn try_send(&mut self, service: ServiceName, len: usize) -> Result<(), Obstacle> {
        let name = || self.prefix.service_queue(&service);
        let queue = self.services.open_named(service, name).map_err(|source| {
            let errno = Errno::from_io_error(&source);
            Obstacle::Failed(if errno == Some(Errno::NOENT) {
                not_offered(service.as_str())
            } else {
                Error::os(format!("the queue of {service} cannot be opened"), source)
            })
        })?;
        queue.send(&self.outgoing[..len], 0).map_err(|source| {
            if source.kind() == io::ErrorKind::WouldBlock {
                return Obstacle::Full;
            }
            let detail = format!(
                "the queue of {service} does not take a message of {len} bytes: its size is not \
                 that of the pool"
            );
            Obstacle::Failed(Error::caused(Code::System, detail, source))
        })
    }

    /// Waits until the queue of `service` may have room, and takes replies that come meanwhile.
    fn wait_for_room(
        &mut self,
        service: ServiceName,
        flags: CallFlags,
        deadline_ns: u64,
    ) -> Result<(), Error> {
        self.counters.waits_for_room += 1;
        let now_ns = monotonic_ns();
        if deadline_ns != 0 && now_ns >= deadline_ns {
            return Err(late());
        }
        let left_ns = if deadline_ns == 0 { LOOK_AGAIN_NS } else { deadline_ns - now_ns };
        let slice = Duration::from_nanos(left_ns.min(LOOK_AGAIN_NS));
        let slice = Timespec::try_from(slice).expect("a second at most");
        let name = || self.prefix.service_queue(&service);
        let Ok(queue) = self.services.open(service, name) else {
            return Ok(()); // Withdrawn; the next try to send says so.
        };
        let mut watched = [
            PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::OUT),
            PollFd::from_borrowed_fd(self.replies.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, Some(&slice)) {
            Err(Errno::INTR) if !flags.contains(CallFlags::SIGNAL_RESTART) => {
                return Err(interrupted());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::os("a full queue cannot be watched", errno.into())),
        }
        if watched[1].revents().contains(PollFlags::IN) { self.take_arrived() } else { Ok(()) }
    }
}

fn not_offered(service: &str) -> Error {
    Error::new(Code::NoEntry, format!("nobody offers the service '{}'", service.escape_debug()))
}

fn full() -> Error {
    Error::new(Code::Block, "the queue of the service is full, and TPNOBLOCK forbids to wait")
}

fn too_many() -> Error {
    let most = super::DESCRIPTORS_MAX;
    Error::new(Code::Limit, format!("{most} calls are out: take replies or cancel some"))
}
