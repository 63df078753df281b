//! State that the loop of a worker and its registry share: the offers, the sources of requests, the link.
//!
//! [`Registry`] is the handle of the program; [`Sources`] are queues or shared memory, as the pool has it. What is sent
//! goes through `reply`.
//!
//! Borrowed for single steps and never while a service function runs, so that the function can
//! advertise, withdraw and call. One thread.

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::continued::Continued;
use super::mailbox::Mailbox;
use super::manager_link::ManagerLink;
use super::queues::Queues;
use super::reply::{Replies, Transport};
use super::service::{
    Done, Handler, Incoming, Offer, Offers, SharedHandler, Standing, service_name,
};
use super::setup::Options;
use super::stopper::Stopper;
use crate::error::{Code, Error};
use crate::link::ToManager;
use crate::queue::{Prefix, ServiceName};
use crate::slots::{Slot, Slots};

pub(super) struct Registrations {
    pub(super) offers: Offers,
    pub(super) sources: Sources,
    pub(super) replies: Replies,
    pub(super) manager_link: ManagerLink,
    pub(super) prefix: Prefix,
    pub(super) slots: Rc<Slots>,
    pub(super) slot: usize,
    pub(super) program: Option<Rc<ProgramEvent>>,
    /// What the program does when another level is to be written.
    pub(super) on_log_level: Option<Rc<dyn Fn(u8)>>,
    /// What the program does before the worker waits.
    pub(super) before_waits: Option<Rc<dyn Fn()>>,
    /// Calls whose service function has ended, and which another thread answers.
    pub(super) continued: Continued,
    /// Names of services that the program was built with.
    pub(super) built_in: Vec<ServiceName>,
    /// Functions that are offered under no name, with theirs: the command line may give them one.
    pub(super) linked_in: Vec<(String, SharedHandler)>,
    /// Before the start function has returned, offers are only collected.
    pub(super) is_serving: bool,
}

/// Where requests come from, and replies and forwarded requests go.
pub(super) enum Sources {
    Queues(Queues),
    Memory(Mailbox),
}

/// A descriptor of the program's own, and what it does when that becomes readable.
pub(super) struct ProgramEvent {
    pub(super) fd: OwnedFd,
    pub(super) each: RefCell<Box<dyn FnMut()>>,
}

impl Registrations {
    /// Calls `each` whenever `fd` is readable.
    ///
    /// # Errors
    /// TPEMATCH when there is such a descriptor already, TPEOS.
    pub(super) fn watch_descriptor(
        &mut self,
        fd: OwnedFd,
        each: Box<dyn FnMut()>,
    ) -> Result<(), Error> {
        if self.program.is_some() {
            return Err(Error::new(Code::Match, "the worker watches a descriptor already"));
        }
        // A read of one that the program has emptied must not block the worker.
        let set = |flags| fcntl_setfl(&fd, flags | OFlags::NONBLOCK);
        let is_set = fcntl_getfl(&fd).and_then(set);
        is_set.map_err(|errno| Error::os("the descriptor can't be set", errno.into()))?;
        self.sources.transport().watch_program(fd.as_fd())?;
        self.program = Some(Rc::new(ProgramEvent { fd, each: RefCell::new(each) }));
        Ok(())
    }

    /// Offers `name`: at once, or when the start function has returned.
    ///
    /// # Errors
    /// TPEINVAL, TPEMATCH, TPELIMIT by the rules for offers; else what the manager answered.
    pub(super) fn advertise(
        &mut self,
        name: &str,
        function: &str,
        handler: Handler,
    ) -> Result<(), Error> {
        let Standing::New(name) = self.offers.standing(name, function)? else { return Ok(()) };
        let offer =
            Offer { name, function: function.into(), handler: Rc::new(RefCell::new(handler)) };
        if !self.is_serving {
            self.offers.insert(offer);
            return Ok(());
        }
        self.manager_link.ask(&ToManager::Advertise { services: vec![offer.advert()] })?;
        let entry = self.offers.insert(offer);
        self.start_service(entry).inspect_err(|_| {
            self.offers.remove(entry);
            // The manager counts this worker as one that offers it.
            let _ =
                self.manager_link.send(&ToManager::Unadvertise { name: name.as_str().to_owned() });
        })
    }

    /// Offers `name` no longer.
    ///
    /// # Errors
    /// TPEINVAL for a name that a service can't have, TPENOENT when it is not offered.
    pub(super) fn unadvertise(&mut self, name: &str) -> Result<(), Error> {
        let name = service_name(name)?;
        let Some(entry) = self.offers.find(&name) else {
            return Err(Error::new(Code::NoEntry, format!("service {name} is not offered here")));
        };
        self.offers.remove(entry);
        if self.is_serving {
            self.sources.transport().withdraw(entry);
            self.slot().withdraw(entry);
            // A manager that is gone learns what is offered when it adopts this worker.
            let _ =
                self.manager_link.send(&ToManager::Unadvertise { name: name.as_str().to_owned() });
        }
        Ok(())
    }

    /// Changes the offers as the command line wants them; returns notices.
    pub(super) fn apply(&mut self, options: &Options) -> Result<Vec<String>, Error> {
        let mut notices = Vec::new();
        let offered: Vec<_> =
            self.offers.iter().map(|(entry, offer)| (entry, offer.clone())).collect();
        for alias in &options.aliases {
            let Some(service) = &alias.service else { continue };
            let by_name = offered.iter().find(|(_, offer)| offer.name.as_str() == service);
            let by_function = || offered.iter().find(|(_, offer)| *offer.function == **service);
            let source = by_name.or_else(by_function);
            let source = source.map(|(_, offer)| (&*offer.function, &offer.handler));
            let linked_in = || {
                let found = self.linked_in.iter().find(|(function, _)| function == service);
                found.map(|(function, handler)| (function.as_str(), handler))
            };
            let Some((function, handler)) = source.or_else(linked_in) else {
                notices
                    .push(format!("option -s: no service or function {service} is offered here"));
                continue;
            };
            for name in alias.names.iter().filter(|name| !options.is_masked(name)) {
                if let Standing::New(name) = self.offers.standing(name, function)? {
                    let handler = Rc::clone(handler);
                    self.offers.insert(Offer { name, function: function.into(), handler });
                }
            }
        }
        for (entry, offer) in offered {
            if !options.keeps(offer.name.as_str(), self.built_in.contains(&offer.name)) {
                self.offers.remove(entry);
            }
        }
        Ok(notices)
    }

    /// Has the manager make the queues of all offers, and takes requests from them.
    ///
    /// # Errors
    /// The error of the manager's answer, or why a queue can't be opened.
    pub(super) fn start_services(&mut self) -> Result<(), Error> {
        self.is_serving = true;
        let services = self.offers.adverts();
        if services.is_empty() {
            return Ok(());
        }
        self.manager_link.ask(&ToManager::Advertise { services })?;
        let entries: Vec<_> = self.offers.iter().map(|(entry, _)| entry).collect();
        entries.into_iter().try_for_each(|entry| self.start_service(entry))
    }

    fn start_service(&mut self, entry: usize) -> Result<(), Error> {
        self.follow_manager();
        let Some(offer) = self.offers.get(entry) else { return Ok(()) };
        self.sources.transport().take_requests_for(entry, &offer.name)?;
        self.slot().offer(entry, offer.name.as_str());
        Ok(())
    }

    /// Watches the link.
    ///
    /// # Errors
    /// TPEOS.
    pub(super) fn watch_link(&mut self) -> Result<(), Error> {
        let link = self.manager_link.link();
        link.map_or(Ok(()), |link| self.sources.transport().watch_link(link.as_fd()))
    }

    /// Reads what came over the link, and closes a link that ended.
    pub(super) fn read_link(&mut self) {
        let stands = self.manager_link.read();
        self.follow_manager();
        if stands {
            return;
        }
        if let Some(link) = self.manager_link.link() {
            self.sources.transport().forget_link(link.as_fd());
        }
        self.manager_link.disconnect(Instant::now());
    }

    /// Continues with the records of a manager that took this worker over.
    fn follow_manager(&mut self) {
        if let (Some(records), Sources::Memory(mailbox)) =
            (self.manager_link.take_records(), &mut self.sources)
            && mailbox.follow(records).is_err()
        {
            // It could not be sent services: the next try comes, as after its end.
            self.manager_link.disconnect(Instant::now());
        }
    }

    /// Connects to a manager when there is none and a try is due.
    ///
    /// # Errors
    /// TPEOS.
    pub(super) fn reconnect(&mut self, now: Instant, srvid: u32, name: &str) -> Result<(), Error> {
        if self.manager_link.next_try().is_none_or(|moment| moment > now) {
            return Ok(());
        }
        let adopt = ToManager::Adopt {
            srvid,
            pid: std::process::id(),
            name: name.to_owned(),
            slot: self.slot,
            services: self.offers.adverts(),
            memory: match &self.sources {
                Sources::Queues(_) => None,
                Sources::Memory(mailbox) => Some(mailbox.number()),
            },
        };
        if self.manager_link.reconnect(now, &self.prefix, &adopt, self.slots.as_fd()) {
            self.watch_link()?;
        }
        Ok(())
    }

    /// The reasons for which the wake flag was set, and whether the manager is another one or gone, in shared memory.
    #[inline]
    pub(super) fn take_wake_flag(&mut self) -> (u64, bool) {
        match &mut self.sources {
            Sources::Queues(_) => (0, false),
            Sources::Memory(mailbox) => (mailbox.take_wake_flag(), mailbox.is_manager_new()),
        }
    }

    pub(super) fn slot(&self) -> Slot<'_> {
        self.slots.slot(self.slot).expect("looked up when the worker was made")
    }
}

impl Sources {
    /// What does not depend on which it is.
    #[inline]
    pub(super) fn transport(&mut self) -> &mut dyn Transport {
        match self {
            Self::Queues(queues) => queues,
            Self::Memory(mailbox) => mailbox,
        }
    }

    /// When the first message that waits is dropped, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn first_until_ns(&self) -> Option<u64> {
        match self {
            Self::Queues(queues) => queues.first_until_ns(),
            Self::Memory(mailbox) => mailbox.first_until_ns(),
        }
    }
}

/// Offers and withdraws the services of one worker: in the start function, and in service functions while they
/// run. Copies share one table; it stays on the worker's thread.
#[derive(Clone)]
pub struct Registry {
    registrations: Rc<RefCell<Registrations>>,
}

impl Registry {
    pub(super) fn new(registrations: Rc<RefCell<Registrations>>) -> Self {
        Self { registrations }
    }

    /// Offers `handler` under `name` (`tpadvertise`); `function` is what tables call it, and
    /// distinguishes functions. Before the start function has returned it is noted, afterwards the
    /// queue exists when this returns. The same name with the same function changes nothing.
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

    /// Offers `name` no longer (`tpunadvertise`); a function that runs is not interrupted.
    ///
    /// # Errors
    /// TPEINVAL for a name that a service can't have, TPENOENT when it is not offered.
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
        self.registrations.borrow_mut().watch_descriptor(eventfd, Box::new(each))
    }

    /// Calls `each` on the worker's thread, between requests, with the highest level that is to be written from now on, 0 to
    /// 6 (`pollux pool log --level`). The last one that was given counts.
    pub fn on_log_level(&self, each: impl Fn(u8) + 'static) {
        self.registrations.borrow_mut().on_log_level = Some(Rc::new(each));
    }

    /// Keeps a function under its own name, for services that the command line makes of it (`-S SERVICE:FUNCTION`).
    pub fn link_in(&self, function: &str, handler: impl FnMut(Incoming) -> Done + 'static) {
        let linked_in = (function.to_owned(), Rc::new(RefCell::new(Box::new(handler) as Handler)));
        self.registrations.borrow_mut().linked_in.push(linked_in);
    }

    /// What is offered so far are the services that the program was built with; `-B` leaves these out.
    pub fn built_in_end(&self) {
        let mut registrations = self.registrations.borrow_mut();
        let names = registrations.offers.iter().map(|(_, offer)| offer.name).collect();
        registrations.built_in = names;
    }

    /// Calls `each` on the worker's thread whenever it is about to wait for requests; the last one that was given counts.
    pub fn before_waits(&self, each: Option<Rc<dyn Fn()>>) {
        self.registrations.borrow_mut().before_waits = each;
    }

    /// Ends the worker after the request at hand, as an order of its manager does; that one starts another in its place.
    pub fn stop(&self) {
        self.registrations.borrow_mut().manager_link.stop();
    }

    /// Ends the worker as [`stop`](Self::stop) does, from any thread of the program.
    ///
    /// # Errors
    /// TPEMATCH for a second one where requests are in queues, TPEOS.
    pub fn stopper(&self) -> Result<Stopper, Error> {
        let registrations = &mut *self.registrations.borrow_mut();
        let asked = registrations.manager_link.stop_flag();
        match &mut registrations.sources {
            Sources::Queues(queues) => Stopper::by_descriptor(asked, &mut queues.poller),
            Sources::Memory(mailbox) => Ok(Stopper::new(asked, mailbox.waker())),
        }
    }

    /// Answers a call that its service function left by [`Done::Continue`] with this number. To be called where
    /// [`Registry::attend`] calls, on the worker's thread; a call that is over is not answered.
    pub fn answer(&self, number: u64, done: Done) {
        self.registrations.borrow_mut().continued.answer(number, done);
    }

    /// Tells what keeps the worker from its work while it runs, or that nothing does any more: `ps` shows it.
    pub fn report_trouble(&self, why: Option<String>) {
        // A manager that is gone shows nothing; the next one learns of the next change.
        let _ = self.registrations.borrow().manager_link.send(&ToManager::Trouble { why });
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

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::link::PeerLink;
    use crate::worker::Wake;

    #[test]
    fn one_descriptor_is_watched_and_read_without_waiting() {
        let (_manager, worker) = PeerLink::pair().expect("a pair");
        let prefix = Prefix::new("/registrations").expect("a prefix");
        let slots = Rc::new(Slots::create(1).expect("memory"));
        let queues = Queues::open(Wake::One, prefix.clone(), Rc::clone(&slots), 0);
        let mut registrations = Registrations {
            offers: Offers::default(),
            sources: Sources::Queues(queues.expect("epoll")),
            replies: Replies::default(),
            manager_link: ManagerLink::new(worker),
            prefix,
            slots,
            slot: 0,
            program: None,
            on_log_level: None,
            before_waits: None,
            continued: Continued::default(),
            built_in: Vec::new(),
            linked_in: Vec::new(),
            is_serving: false,
        };
        let program = || eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        registrations.watch_descriptor(program(), Box::new(|| {})).expect("the first");
        let read = rustix::io::read(&registrations.program.as_ref().expect("kept").fd, &mut [0; 8]);
        assert_eq!(read, Err(rustix::io::Errno::AGAIN));
        let second =
            registrations.watch_descriptor(program(), Box::new(|| {})).expect_err("one is enough");
        assert_eq!(second.code(), Code::Match);
    }
}
