//! What measured thread and controller share.
//!
//! The measured thread stores a count now and then and sends a few notices; the controller
//! reads the count when an interval ends. Nothing here makes the measured thread wait, except at
//! the ends of a window of its own: until the counters are attached, and until they are read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pollux_poller::{Counters, Poller, Waker};

/// A message from the measured thread.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Everything is set up and the first wait comes next.
    Ready {
        /// The process whose thread is measured: this one, or a library's program.
        pid: u32,
        /// Kernel number of the measured thread.
        tid: u32,
        /// Name of what was opened and what it noted; none without a mechanism of pollux.
        opened: Option<(String, Vec<String>)>,
        /// The poller's counters.
        counters: Option<Arc<Counters>>,
    },
    /// The workload begins its measured part by itself.
    WindowOpened,
    /// The workload is over, in order or not.
    Left,
    /// It ended it by itself.
    WindowClosed {
        /// What was done in it.
        events: u64,
        /// How long it took.
        elapsed: Duration,
    },
}

impl Notice {
    /// A notice that the calling thread is ready, with what its poller says of itself.
    pub(crate) fn ready(poller: Option<&dyn Poller>) -> Self {
        Self::Ready {
            pid: std::process::id(),
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            opened: poller
                .map(|poller| (poller.caps().backend.to_string(), poller.caps().notes.clone())),
            counters: poller.map(|poller| Arc::clone(poller.counters())),
        }
    }

    /// A notice that another process is ready, whose only thread is measured.
    pub(crate) fn ready_elsewhere(pid: u32) -> Self {
        Self::Ready { pid, tid: pid, opened: None, counters: None }
    }

    /// The same for something else than a poller, by the name of its driver.
    pub(crate) fn ready_with(name: String, notes: Vec<String>) -> Self {
        Self::Ready {
            pid: std::process::id(),
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            opened: Some((name, notes)),
            counters: None,
        }
    }
}

/// The shared state of one run.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Gauge {
    /// Events so far; the measured thread stores, the controller loads.
    pub(crate) events: AtomicU64,
    is_stopped: AtomicBool,
    is_admitted: AtomicBool,
    waker: Mutex<Option<Waker>>,
    notices: Sender<Notice>,
}

impl Gauge {
    pub(crate) fn new(notices: Sender<Notice>) -> Self {
        let (is_stopped, is_admitted) = (AtomicBool::new(false), AtomicBool::new(false));
        let (events, waker) = (AtomicU64::new(0), Mutex::new(None));
        Self { events, is_stopped, is_admitted, waker, notices }
    }

    /// Tells the controller that the workload is ready; `waker` ends a wait at the stop.
    pub(crate) fn announce(&self, ready: Notice, waker: Option<Waker>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
        self.send(ready);
    }

    /// The measured part begins; returns when the controller has attached what it counts with.
    pub(crate) fn open_window(&self) {
        self.send(Notice::WindowOpened);
        while !self.is_admitted.load(Relaxed) && !self.is_stopped() {
            std::thread::park();
        }
    }

    /// Lets a workload into the window that it has opened; the caller unparks its thread.
    pub(crate) fn admit(&self) {
        self.is_admitted.store(true, Relaxed);
    }

    /// The measured part is over; returns when the controller has read what it needs.
    pub(crate) fn close_window(&self, events: u64, elapsed: Duration) {
        self.send(Notice::WindowClosed { events, elapsed });
        while !self.is_stopped() {
            std::thread::park();
        }
    }

    /// The measured thread ends; a controller that still expects something of it gives up.
    pub(crate) fn leave(&self) {
        self.send(Notice::Left);
    }

    /// Whether the workload should end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Ends the workload, also when it waits.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake();
        }
    }

    fn send(&self, notice: Notice) {
        // The controller is gone only when it gave up; then nobody needs to know.
        let _ = self.notices.send(notice);
    }
}
