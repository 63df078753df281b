//! The worker's side of its link: what the manager asked for, and what to do when it is gone.
//!
//! The registrations read messages here, and the loop acts on them later: they may arrive while a service
//! function waits for an answer.
//!
//! ```text
//!  connected ──(end of the link)──▶ orphaned ──(a manager listens again: Adopt)──▶ connected
//!                                      └──(none within ORPHAN_MAX)──▶ abandoned
//! ```

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::output::GivenOutput;
use crate::error::{Code, Error};
use crate::link::{PeerLink, Received, ToManager, ToWorker};
use crate::queue::Prefix;

/// How long a worker waits for an answer: a manager that makes queues for hundreds of workers
/// answers within a second, one that is stuck is not waited for longer than a caller waits.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long a worker serves without a manager.
const ORPHAN_MAX: Duration = Duration::from_secs(60);
/// How often it looks for a new one.
const ORPHAN_PAUSE: Duration = Duration::from_secs(1);
/// The most messages read in one turn, so that a flood of them does not stop the service.
const MESSAGES_MAX: usize = 16;

/// The link, and what came over it.
pub(super) struct ManagerLink {
    link: Option<PeerLink>,
    /// Since when no manager has sent anything; stays set until a new one does, or its link has stood for
    /// long.
    orphaned_at: Option<Instant>,
    /// While there is a link, when the next try would have been.
    next_try: Instant,
    answer: Option<Result<(), Error>>,
    is_stop_asked: bool,
    /// Set by any thread of the program.
    is_stop_asked_by_program: Arc<AtomicBool>,
    is_nudged: bool,
    is_sweep_asked: bool,
    log_level: Option<u8>,
    output: GivenOutput,
    /// The records in the memory of requests, of the manager that took this worker over.
    records: Option<OwnedFd>,
    /// A message was lost while an answer was awaited: the link cannot be used any more.
    is_broken: bool,
}

impl ManagerLink {
    pub(super) fn new(link: OwnedFd) -> Self {
        Self {
            link: Some(PeerLink::new(link)),
            orphaned_at: None,
            next_try: Instant::now(),
            answer: None,
            is_stop_asked: false,
            is_stop_asked_by_program: Arc::default(),
            is_nudged: false,
            is_sweep_asked: false,
            log_level: None,
            output: GivenOutput::default(),
            records: None,
            is_broken: false,
        }
    }

    /// With the files that the manager gave to this process.
    pub(super) fn with_output(self, output: GivenOutput) -> Self {
        Self { output, ..self }
    }

    /// The link, while there is one.
    pub(super) fn link(&self) -> Option<&PeerLink> {
        self.link.as_ref()
    }

    /// Sends a message, waiting for room if need be.
    ///
    /// # Errors
    /// TPESYSTEM when the manager is gone or does not read.
    pub(super) fn send(&self, message: &ToManager) -> Result<(), Error> {
        let link = self.link.as_ref().ok_or_else(|| gone(io::ErrorKind::NotConnected.into()))?;
        link.send_within(message, ANSWER_MAX).map_err(gone)
    }

    /// Sends a message and waits for the manager's answer.
    ///
    /// # Errors
    /// The error of the manager's answer, TPESYSTEM when it is gone or does not answer.
    pub(super) fn ask(&mut self, message: &ToManager) -> Result<(), Error> {
        self.answer = None;
        self.send(message)?;
        let end = Instant::now() + ANSWER_MAX;
        loop {
            if let Some(answer) = self.answer.take() {
                return answer;
            }
            let left = end.saturating_duration_since(Instant::now());
            let Some(link) = &mut self.link else {
                return Err(gone(io::ErrorKind::NotConnected.into()));
            };
            match link.receive_within(left) {
                Ok(Received::Message(said, beside)) => self.record(said, beside),
                Ok(Received::Nothing) => {}
                Ok(Received::Ended) => return Err(gone(io::ErrorKind::BrokenPipe.into())),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(error) => {
                    self.is_broken = error.kind() != io::ErrorKind::TimedOut;
                    return Err(gone(error));
                }
            }
        }
    }

    /// Records the messages that came; whether the link still stands. One whose records found no descriptor
    /// does not: over the next one the manager sends them again.
    pub(super) fn read(&mut self) -> bool {
        if std::mem::take(&mut self.is_broken) {
            return false;
        }
        for _ in 0..MESSAGES_MAX {
            let Some(link) = &mut self.link else { return true };
            match link.receive() {
                Ok(Received::Message(said, beside)) => self.record(said, beside),
                Ok(Received::Nothing) => return true,
                Ok(Received::Ended) => return false,
                // From a manager of another version: its pings show whether it is one.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// The link ended. Called when the poller has forgotten it.
    pub(super) fn disconnect(&mut self, now: Instant) {
        // One that stood for long was a manager's, though it had nothing to say.
        if now.saturating_duration_since(self.next_try) > ORPHAN_MAX {
            self.orphaned_at = None;
        }
        self.link = None;
        self.orphaned_at.get_or_insert(now);
        // A process that closes each link at once is tried no more often than a missing one.
        self.next_try = self.next_try.max(now);
    }

    /// When to look for a manager, if there is none.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.link.is_none().then_some(self.next_try)
    }

    /// Whether no manager came back in time.
    pub(super) fn is_abandoned(&self, now: Instant) -> bool {
        self.link.is_none()
            && self.orphaned_at.is_some_and(|since| now.duration_since(since) > ORPHAN_MAX)
    }

    /// Looks for a manager and asks it to take this worker; whether there is a link now.
    pub(super) fn reconnect(
        &mut self,
        now: Instant,
        prefix: &Prefix,
        adopt: &ToManager,
        slots: BorrowedFd<'_>,
    ) -> bool {
        self.next_try = now + ORPHAN_PAUSE;
        let found = connect(prefix).and_then(|fd| {
            let link = PeerLink::new(fd);
            link.send_with(adopt, &[slots])?;
            Ok(link)
        });
        // There is no manager yet, or another process listens: the next try comes.
        self.link = found.ok();
        self.link.is_some()
    }

    pub(super) fn is_stop_asked(&self) -> bool {
        self.is_stop_asked || self.is_stop_asked_by_program.load(Ordering::Acquire)
    }

    /// What a thread of the program sets to end the worker.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_stop_asked_by_program)
    }

    /// Ends the worker as an order of the manager does.
    pub(super) fn stop(&mut self) {
        self.is_stop_asked = true;
    }

    /// Whether the manager asked for a check of the queues, once.
    pub(super) fn take_nudge(&mut self) -> bool {
        std::mem::take(&mut self.is_nudged)
    }

    /// Whether clients ended, so that their queues should be closed, once.
    pub(super) fn take_sweep(&mut self) -> bool {
        std::mem::take(&mut self.is_sweep_asked)
    }

    /// The level that the manager has the program write, once.
    pub(super) fn take_log_level(&mut self) -> Option<u8> {
        self.log_level.take()
    }

    /// The records of the manager that took this worker over, once.
    pub(super) fn take_records(&mut self) -> Option<OwnedFd> {
        self.records.take()
    }

    fn record(&mut self, said: ToWorker, beside: Vec<OwnedFd>) {
        self.orphaned_at = None;
        match said {
            ToWorker::Advertised => self.answer = Some(Ok(())),
            ToWorker::NotAdvertised { code, why } => {
                let code = Code::from_number(code).unwrap_or(Code::System);
                self.answer = Some(Err(Error::new(code, why)));
            }
            ToWorker::Ping { number } => self.pong(number),
            ToWorker::Nudge => self.is_nudged = true,
            ToWorker::Sweep => self.is_sweep_asked = true,
            ToWorker::Log { level } => {
                self.log_level = level.or(self.log_level);
                self.output.replace(&beside);
            }
            ToWorker::Stop => self.is_stop_asked = true,
            ToWorker::Adopted => self.records = beside.into_iter().next(),
        }
    }

    fn pong(&self, number: u64) {
        if let Some(link) = &self.link {
            // A manager that does not read what it asked for asks again.
            let _ = link.send(&ToManager::Pong { number });
        }
    }
}

/// Connects to the manager's control socket; only ours or root's is one.
fn connect(prefix: &Prefix) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new_abstract_name(prefix.control_socket().as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::UNIX;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    let peer = rustix::net::sockopt::socket_peercred(&socket)?.uid;
    if peer.is_root() || peer == rustix::process::geteuid() {
        Ok(socket)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn gone(source: io::Error) -> Error {
    Error::caused(Code::System, "the pool's manager does not answer", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_come_while_an_answer_is_awaited_are_not_lost() {
        let (manager, worker) = PeerLink::pair().expect("a pair");
        let mut manager = PeerLink::new(manager);
        let mut manager_link = ManagerLink::new(worker);
        let why = "no queue is left".to_owned();
        let said = [
            ToWorker::Ping { number: 7 },
            ToWorker::Nudge,
            ToWorker::Stop,
            ToWorker::NotAdvertised { code: 5, why },
        ];
        for message in &said {
            manager.send(message).expect("room");
        }
        // An answer to an earlier question does not count for this one.
        manager_link.answer = Some(Ok(()));
        let refused = manager_link.ask(&ToManager::Ready).expect_err("refused");
        assert_eq!(refused.to_string(), "TPELIMIT: no queue is left");
        assert!(
            manager_link.is_stop_asked() && manager_link.take_nudge() && !manager_link.take_nudge()
        );
        let received = [manager.receive::<ToManager>(), manager.receive()].map(|got| match got {
            Ok(Received::Message(message, _)) => message,
            other => panic!("{other:?}"),
        });
        assert_eq!(received, [ToManager::Ready, ToManager::Pong { number: 7 }]);
    }

    #[test]
    fn an_orphan_looks_again_and_is_abandoned_in_the_end() {
        let (manager, worker) = PeerLink::pair().expect("a pair");
        let mut manager_link = ManagerLink::new(worker);
        assert!(manager_link.read() && manager_link.next_try().is_none());
        drop(manager);
        assert!(!manager_link.read());
        let now = Instant::now();
        manager_link.disconnect(now);
        assert!(manager_link.send(&ToManager::Bye).is_err());
        assert_eq!(manager_link.next_try(), Some(now));
        let prefix = Prefix::new("/no-manager-here").expect("a prefix");
        let slots = tempfile::tempfile().expect("a file");
        let slots = std::os::fd::AsFd::as_fd(&slots);
        assert!(!manager_link.reconnect(now, &prefix, &ToManager::Bye, slots));
        assert_eq!(manager_link.next_try(), Some(now + ORPHAN_PAUSE));
        assert!(!manager_link.is_abandoned(now + ORPHAN_MAX));
        assert!(manager_link.is_abandoned(now + ORPHAN_MAX + ORPHAN_PAUSE));
    }

    #[test]
    fn an_adopted_worker_is_not_abandoned_by_a_silent_manager() {
        let (manager, worker) = PeerLink::pair().expect("a pair");
        let mut manager_link = ManagerLink::new(worker);
        drop(manager);
        let lost = Instant::now();
        manager_link.disconnect(lost);
        // As after a try that found a manager.
        let (_manager, worker) = PeerLink::pair().expect("a pair");
        manager_link.link = Some(PeerLink::new(worker));
        manager_link.next_try = lost + ORPHAN_PAUSE;
        let later = lost + 10 * ORPHAN_MAX;
        assert!(!manager_link.is_abandoned(later));
        manager_link.disconnect(later);
        assert!(!manager_link.is_abandoned(later + ORPHAN_MAX));
        assert!(manager_link.is_abandoned(later + ORPHAN_MAX + ORPHAN_PAUSE));
        // A link that ended at once was not that of a manager.
        let (_other, worker) = PeerLink::pair().expect("a pair");
        manager_link.link = Some(PeerLink::new(worker));
        let tried = later + ORPHAN_MAX;
        manager_link.next_try = tried + ORPHAN_PAUSE;
        manager_link.disconnect(tried);
        assert_eq!(manager_link.next_try(), Some(tried + ORPHAN_PAUSE), "a try each second");
        assert!(manager_link.is_abandoned(tried + ORPHAN_PAUSE));
    }
}
