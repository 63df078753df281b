//! The handle by which a program says what it offers.
//!
//! The start function uses it, and service functions may while they run. Copies share one table.

use std::cell::RefCell;
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::registrations::Registrations;
use super::service::{Done, Incoming};
use crate::error::Error;

/// Offers and withdraws the services of one worker. It stays on the worker's thread.
#[derive(Clone)]
pub struct Registry {
    registrations: Rc<RefCell<Registrations>>,
}

impl Registry {
    pub(super) fn new(registrations: Rc<RefCell<Registrations>>) -> Self {
        Self { registrations }
    }

    /// Offers `handler` under `name` (`tpadvertise`); `function` is what tables call it, and what
    /// tells functions apart. Before the start function has returned it is noted, afterwards the
    /// queue stands when this returns. The same name with the same function changes nothing.
    ///
    /// # Errors
    /// TPEINVAL for a name that can't be offered, TPEMATCH when another function has it, TPELIMIT
    /// beyond [`SERVICES_MAX`](crate::slots::SERVICES_MAX) or when the machine has no room for
    /// another queue, TPESYSTEM when the manager is gone, TPEOS.
    pub fn advertise(
        &self,
        name: &str,
        function: &str,
        handler: impl FnMut(Incoming) -> Done + 'static,
    ) -> Result<(), Error> {
        self.registrations.borrow_mut().advertise(name, function, Box::new(handler))
    }

    /// Offers `name` no longer (`tpunadvertise`); a function that runs goes on to its end.
    ///
    /// # Errors
    /// TPEINVAL for what is no name of a service, TPENOENT when it is not offered.
    pub fn unadvertise(&self, name: &str) -> Result<(), Error> {
        self.registrations.borrow_mut().unadvertise(name)
    }

    /// Calls `each` on the worker's thread, between requests, whenever `eventfd` was written to;
    /// the worker empties it first. One for each worker: so a thread of the program can have
    /// services offered and withdrawn.
    ///
    /// # Errors
    /// TPEMATCH for a second one, TPEOS for a descriptor that can't be watched.
    pub fn attend(&self, eventfd: OwnedFd, each: impl FnMut() + 'static) -> Result<(), Error> {
        self.registrations.borrow_mut().attend_to(eventfd, Box::new(each))
    }

    /// The names on offer.
    #[must_use]
    pub fn services(&self) -> Vec<String> {
        let adverts = self.registrations.borrow().offers.adverts();
        adverts.into_iter().map(|advert| advert.name).collect()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.services()).finish()
    }
}
