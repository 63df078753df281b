//! What a worker knows of its master: counters of workers that have ended, and how reloads went.
//!
//! The thread that talks to the master writes it, the endpoints read it. In a server without a master
//! nothing is ever written.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

use pollux_poller::Waker;

use super::Ended;

/// What a worker knows of its master.
#[derive(Default)]
pub struct Supervised {
    ended: Mutex<Ended>,
    reloads: Mutex<Reloads>,
    /// Reloads that were asked for here.
    asked: AtomicU64,
    /// Those of them that the master knows of.
    message: AtomicU64,
    /// Of the thread that talks to the master.
    waker: OnceLock<Waker>,
    /// Of the loop whose clients wait for an answer.
    asking: OnceLock<Waker>,
}

/// How reloads went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reloads {
    /// Those that were asked for here, up to this number, have come to their end.
    pub(crate) answered: u64,
    /// `N done, N failed`.
    pub(crate) counts: String,
    /// Why the last one failed, if it did.
    pub(crate) why: String,
}

impl Supervised {
    /// There is a master: `waker` wakes the thread that talks to it.
    pub(crate) fn begin(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    pub(crate) fn set_ended(&self, ended: Ended) {
        *self.ended.lock().expect("nothing panics under this lock") = ended;
    }

    pub(crate) fn set_reloads(&self, reloads: Reloads) {
        *self.known() = reloads;
        if let Some(asking) = self.asking.get() {
            asking.wake();
        }
    }

    /// Clients ask for reloads in the loop of this waker.
    pub(crate) fn asked_by(&self, waker: &Waker) {
        let _ = self.asking.set(waker.clone());
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
            Some(_) => {
                let Reloads { counts, why, .. } = &*self.known();
                format!("{counts}\n{why}").trim_end().to_owned()
            }
        }
    }

    /// Has the thread that talks to the master look for what is new.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Asks the master for a reload; its number tells what became of it.
    ///
    /// # Errors
    /// There is no master; the text says so.
    pub(crate) fn reload(&self) -> Result<u64, &'static str> {
        let waker = self.waker.get().ok_or(NO_MASTER)?;
        let number = self.asked.fetch_add(1, Relaxed) + 1;
        waker.wake();
        Ok(number)
    }

    /// What became of the reload with this number; none while it is under way.
    pub(crate) fn answer(&self, number: u64) -> Option<String> {
        let Reloads { answered, why, .. } = &*self.known();
        (*answered >= number).then(|| match why.as_str() {
            "" => RELOADED.to_owned(),
            why => format!("{NOT_RELOADED}{why}"),
        })
    }

    /// The number of the last reload that was asked for, if one was since the last call.
    pub(crate) fn takes_reload(&self) -> Option<u64> {
        let asked = self.asked.load(Relaxed);
        (self.message.swap(asked, Relaxed) != asked).then_some(asked)
    }

    fn known(&self) -> MutexGuard<'_, Reloads> {
        self.reloads.lock().expect("nothing panics under this lock")
    }
}

/// The answer of the control socket to a reload that went well.
pub const RELOADED: &str = "reloaded";
/// The beginning of its answer to another one; the reason follows.
pub const NOT_RELOADED: &str = "not reloaded, the old settings stay: ";

const NO_MASTER: &str = "n/a: this server has no master";
