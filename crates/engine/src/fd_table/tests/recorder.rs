//! A poller that records each registration and passes it on.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_poller::{
    Caps, Counters, Error, Events, Poller, Registration, SignalMask, Token, Waker,
};

/// How often each change was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Calls {
    pub(super) adds: u64,
    pub(super) modifies: u64,
    pub(super) deletes: u64,
    pub(super) forgets: u64,
}

impl Calls {
    pub(super) fn updates(self) -> u64 {
        self.adds + self.modifies + self.deletes
    }
}

pub(super) struct Recorder {
    inner: Box<dyn Poller>,
    pub(super) registered: BTreeMap<RawFd, (Token, Registration)>,
    pub(super) calls: Calls,
}

impl Recorder {
    pub(super) fn new(inner: Box<dyn Poller>) -> Self {
        Self { inner, registered: BTreeMap::new(), calls: Calls::default() }
    }
}

impl Poller for Recorder {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.calls.adds += 1;
        self.inner.add(fd, token, how)?;
        let before = self.registered.insert(fd.as_raw_fd(), (token, how));
        assert_eq!(before, None, "added twice");
        Ok(())
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.calls.modifies += 1;
        self.inner.modify(fd, token, how)?;
        self.registered.insert(fd.as_raw_fd(), (token, how)).expect("added before");
        Ok(())
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.calls.deletes += 1;
        self.inner.delete(fd)?;
        self.registered.remove(&fd.as_raw_fd()).expect("added before");
        Ok(())
    }

    fn forget(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.calls.forgets += 1;
        self.inner.forget(fd)?;
        self.registered.remove(&fd.as_raw_fd()).expect("added before");
        Ok(())
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        self.inner.wait(events, timeout)
    }

    fn set_signal_mask(&mut self, mask: Option<SignalMask>) {
        self.inner.set_signal_mask(mask);
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn counters(&self) -> &Arc<Counters> {
        self.inner.counters()
    }
}
