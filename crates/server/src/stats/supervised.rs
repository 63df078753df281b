//! What a worker knows of its master: counters of workers that have ended, and how reloads went.
//!
//! The thread that talks to the master writes it, the endpoints read it. In a server without a master
//! nothing is ever written.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use pollux_poller::Waker;

use super::Ended;

/// What a worker knows of its master.
#[derive(Default)]
pub struct Supervised {
    ended: Mutex<Ended>,
    reloads: Mutex<String>,
    wants_reload: AtomicBool,
    /// Of the thread that talks to the master.
    waker: OnceLock<Waker>,
}

impl Supervised {
    /// There is a master: `waker` wakes the thread that talks to it.
    pub(crate) fn begin(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    pub(crate) fn set_ended(&self, ended: Ended) {
        *self.ended.lock().expect("nothing panics under this lock") = ended;
    }

    pub(crate) fn set_reloads(&self, text: String) {
        *self.reloads.lock().expect("nothing panics under this lock") = text;
    }

    /// The page of a worker with what others counted that have ended.
    #[must_use]
    pub fn with_ended(&self, page: String) -> String {
        self.ended.lock().expect("nothing panics under this lock").added_to(page)
    }

    /// How reloads went: `N done, N failed`, and why the last one failed.
    #[must_use]
    pub fn reloads(&self) -> String {
        match self.waker.get() {
            None => NO_MASTER.to_owned(),
            Some(_) => self.reloads.lock().expect("nothing panics under this lock").clone(),
        }
    }

    /// Asks the master for a reload; what became of it is told by [`Supervised::reloads`].
    #[must_use]
    pub fn reload(&self) -> String {
        let Some(waker) = self.waker.get() else { return NO_MASTER.to_owned() };
        self.wants_reload.store(true, Relaxed);
        waker.wake();
        "asked for; show reloads tells how it went".to_owned()
    }

    /// Whether a reload was asked for since the last call.
    pub(crate) fn takes_reload(&self) -> bool {
        self.wants_reload.swap(false, Relaxed)
    }
}

const NO_MASTER: &str = "n/a: this server has no master";
