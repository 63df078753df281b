//! One worker's process: its end of the link, its slot, and the descriptor that tells its end.
//!
//! Made by a spawn, or taken over from an earlier manager; then it is not a child of this process and only
//! its process descriptor tells that it ended, not how.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::rc::Rc;

use pollux_poller::Token;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::poller::{PoolPoller, Source};
use crate::link::{Advert, Link};
use crate::slots::{Caller, Slot, Slots, UnsentReply};

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    child: Option<Child>,
    pidfd: OwnedFd,
    pidfd_token: Token,
    pub(super) link: Option<(Link, Token)>,
    slot_handle: Option<SlotHandle>,
    /// Its number in the memory that requests are in, where they are.
    pub(super) number: Option<usize>,
    /// What it offers.
    pub(super) adverts: Vec<Advert>,
}

/// A slot of a worker.
#[derive(Debug, Clone)]
pub(super) struct SlotHandle {
    pub(super) slots: Rc<Slots>,
    pub(super) index: usize,
}

impl Process {
    /// Watches a child that was just started.
    pub(super) fn of_child(
        id: u32,
        child: Child,
        link: Link,
        slot_handle: SlotHandle,
        poller: &mut PoolPoller,
    ) -> io::Result<Self> {
        let mut process = match Self::of_pid(id, child.id(), poller) {
            Ok(process) => process,
            Err(error) => {
                end_unwatched(child);
                return Err(error);
            }
        };
        process.child = Some(child);
        process.slot_handle = Some(slot_handle);
        if let Err(error) = process.connect(id, link, poller) {
            poller.remove(process.pidfd.as_fd(), process.pidfd_token);
            if let Some(child) = process.child.take() {
                end_unwatched(child);
            }
            return Err(error);
        }
        Ok(process)
    }

    /// Watches a process of an earlier manager.
    pub(super) fn of_pid(id: u32, pid: u32, poller: &mut PoolPoller) -> io::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty())?;
        let pidfd_token = poller.add(pidfd.as_fd(), Source::Process(id))?;
        let adverts = Vec::new();
        Ok(Self {
            pid,
            child: None,
            pidfd,
            pidfd_token,
            link: None,
            slot_handle: None,
            number: None,
            adverts,
        })
    }

    /// Takes a link to it.
    pub(super) fn connect(
        &mut self,
        id: u32,
        link: Link,
        poller: &mut PoolPoller,
    ) -> io::Result<()> {
        let token = poller.add(link.as_fd(), Source::Link(id))?;
        self.link = Some((link, token));
        Ok(())
    }

    /// Takes the slot that it writes.
    pub(super) fn take_slot(&mut self, slot_handle: SlotHandle) {
        self.slot_handle = Some(slot_handle);
    }

    /// Its slot, which is there as soon as its link is.
    pub(super) fn slot(&self) -> Option<Slot<'_>> {
        let slot_handle = self.slot_handle.as_ref()?;
        slot_handle.slots.slot(slot_handle.index)
    }

    /// The request that it had taken and not begun when it died.
    pub(super) fn inbox(&self) -> Option<Vec<u8>> {
        let slot_handle = self.slot_handle.as_ref()?;
        Some(slot_handle.slots.inbox(slot_handle.index)?.content())
    }

    /// Whose answers it had and could not send before it died.
    pub(super) fn unsent_replies(&self) -> Vec<Caller> {
        let slot_handle = self.slot_handle.as_ref();
        slot_handle
            .map(|slot_handle| UnsentReply::all(&slot_handle.slots, slot_handle.index))
            .unwrap_or_default()
    }

    /// Kills what is left of the group. The number is the worker's until it is collected; of one
    /// that was taken over, which others collect, until nothing of its group is left.
    fn end_group(&self) {
        let is_ours = self.child.is_some() || !super::previous::is_alive(self.pid);
        let number = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(number) = number.filter(|_| is_ours) {
            // None is left, as nearly always.
            let _ = kill_process_group(number, Signal::KILL);
        }
    }

    /// Its slot, to be given back; none of one that has not reported yet.
    pub(super) fn slot_handle(&self) -> Option<&SlotHandle> {
        self.slot_handle.as_ref()
    }

    /// Sends a signal to exactly this process.
    pub(super) fn signal(&self, number: i32) -> io::Result<()> {
        let signal = Signal::from_named_raw(number).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Lets go of the link.
    pub(super) fn disconnect(&mut self, poller: &mut PoolPoller) {
        if let Some((link, token)) = self.link.take() {
            poller.remove(link.as_fd(), token);
        }
    }

    /// Collects the dead process, with what it has started and left in its process group; how it
    /// ended, for people.
    pub(super) fn reap(mut self, poller: &mut PoolPoller) -> String {
        self.end_group();
        self.disconnect(poller);
        poller.remove(self.pidfd.as_fd(), self.pidfd_token);
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => ending(status),
            Some(Err(error)) => format!("ended; its status can't be read: {error}"),
            None => "ended; it was a child of an earlier manager".to_owned(),
        }
    }
}

/// A child whose end would not be seen must not continue. SIGKILL ends a fresh process at once.
fn end_unwatched(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
