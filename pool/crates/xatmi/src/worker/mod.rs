//! The serving side: a process that offers services and answers one request at a time.
//!
//! Servers in Rust are built on it, and the C interface registers functions that jump into C.
//! The pool's manager starts it. It makes and removes no queue, has no thread of its own but one for each descriptor of the
//! program that is watched beside shared memory, and never waits where a message could be left unserved:
//! `docs/pool-internals.md`.
//!
//! ```no_run
//! use pollux_xatmi::worker::{Done, Worker};
//!
//! let worker = Worker::from_environment()?;
//! let registry = worker.registry();
//! let ending = worker.run(
//!     std::env::args_os(),
//!     |_arguments| {
//!         let answer = |request: pollux_xatmi::worker::Incoming| Done::success(request.buffer);
//!         registry.advertise("ECHO", "answer", answer).map_err(|error| error.to_string())
//!     },
//!     || {},
//! )?;
//! println!("{ending}");
//! # Ok::<(), pollux_xatmi::error::Error>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `setup` | what the manager left in the environment; the command line |
//! | `service` | what a service function gets and gives back; the services on offer |
//! | `stopper` | the end of the worker that any thread of its program asks for |
//! | `registrations` | offers, request sources and link, which loop and registry share |
//! | `manager_link` | the link, and what to do when the manager is gone |
//! | `continued` | calls that another thread of the program answers |
//! | `output` | standard output and standard error, as far as the manager gave them |
//! | `dispatch` | one request, from queue to reply; its buffer |
//! | `reply` | what goes back for a request: reply, error, forward; the trait `Transport` |
//! | `queues`, `queue_poller`, `unsent_messages` | the transport by queues |
//! | `mailbox` | the transport in shared memory |

mod continued;
mod dispatch;
mod mailbox;
mod manager_link;
mod output;
mod queue_poller;
mod queues;
mod registrations;
mod reply;
mod service;
mod setup;
mod stopper;
mod unsent_messages;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_poller::Events;

pub(crate) use output::{GivenOutput, OUTPUT_VARIABLE};
pub use registrations::Registry;
pub use service::{Done, Ending, Handler, Incoming, RVAL_EXIT, RVAL_FAIL, RVAL_SUCCESS, Return};
pub use setup::{Alias, Conversion, Options, arguments_or_left};
pub use setup::{LINK_VARIABLE, MEMORY_VARIABLE, Setup, WAKE_VARIABLE, Wake};
pub use stopper::Stopper;

use crate::error::{Code, Error};
use crate::link::ToManager;
use crate::memory::workers;
use crate::queue::monotonic_ns;
use crate::slots::Total;
use continued::Continued;
use dispatch::{Dispatch, DispatchResult};
use mailbox::Mailbox;
use manager_link::ManagerLink;
use queue_poller::Ready;
use queues::Queues;
use registrations::{Registrations, Sources};
use reply::Replies;
use service::Offers;

/// Events taken from the kernel at once: all services and the link at the same time.
const EVENTS_MAX: usize = 64;
/// How often a worker that sleeps on its wake flag reads its link without a wake: without `futex_waitv(2)` the end of
/// the manager does not wake it.
const LINK_EACH_NS: u64 = 20_000_000_000;
/// The same, when the manager ended and the link has not yet.
const LINK_END_NS: u64 = 10_000_000;
/// Requests after which a worker that never sleeps does.
const LINK_EACH_REQUESTS: u32 = 1_024;
/// How long a worker that always finds a request keeps the CPU: a part of the shortest slice of the scheduler.
const TURN_NS: u64 = 300_000;
/// How long an ending worker waits for callers to take the replies that are kept for them.
const SHUTDOWN_NS: u64 = 1_000_000_000;

/// A worker that is not serving yet.
pub struct Worker {
    registrations: Rc<RefCell<Registrations>>,
}

impl Worker {
    /// The worker that the manager started this process for.
    ///
    /// # Errors
    /// TPESYSTEM where no manager did, else as [`Worker::new`].
    pub fn from_environment() -> Result<Self, Error> {
        Self::new(Setup::of_process()?)
    }

    /// A worker that was given what it needs in another way.
    ///
    /// # Errors
    /// TPESYSTEM for a slot that does not exist, TPEOS without descriptors or epoll.
    pub fn new(setup: Setup) -> Result<Self, Error> {
        let Setup { link, slots, slot, wake, memory, output, environment } = setup;
        if slots.slot(slot).is_none() {
            let detail = format!("slot {slot} of a pool with {} slots", slots.len());
            return Err(Error::new(Code::System, detail));
        }
        let prefix = environment.prefix;
        let slots = Rc::new(slots);
        let sources = match memory {
            Some((memory, number)) => Sources::Memory(Mailbox::open(memory, number)?),
            None => {
                let queues = Queues::open(wake, prefix.clone(), Rc::clone(&slots), slot)?;
                Sources::Queues(queues)
            }
        };
        let registrations = Registrations {
            offers: Offers::default(),
            sources,
            replies: Replies::default(),
            manager_link: ManagerLink::new(link).with_output(output),
            prefix,
            program: None,
            on_log_level: None,
            before_waits: None,
            slots,
            slot,
            continued: Continued::default(),
            built_in: Vec::new(),
            linked_in: Vec::new(),
            is_serving: false,
        };
        Ok(Self { registrations: Rc::new(RefCell::new(registrations)) })
    }

    /// The handle by which services are offered; it may be moved into service functions.
    #[must_use]
    pub fn registry(&self) -> Registry {
        Registry::new(Rc::clone(&self.registrations))
    }

    /// Starts, serves until the end, and stops.
    ///
    /// `arguments` are those of the process, its name first. `init` gets what follows `--` and
    /// offers services; a sentence from it refuses the start. `done` runs before the end, except
    /// after a panic.
    ///
    /// # Errors
    /// TPEINVAL for a command line without a number, TPINITFAIL when `init` refused, TPESYSTEM
    /// when the manager is gone before the start is through, else why a queue cannot be obtained.
    pub fn run(
        self,
        arguments: impl IntoIterator<Item = OsString>,
        init: impl FnOnce(&[OsString]) -> Result<(), String>,
        done: impl FnOnce(),
    ) -> Result<Ending, Error> {
        let mut arguments = arguments_or_left(arguments.into_iter().collect()).into_iter();
        let name = program_name(arguments.next().as_deref());
        let options =
            Options::parse(arguments).map_err(|wrong| Error::new(Code::Invalid, wrong))?;
        options.notices.iter().for_each(|notice| log(&name, notice));
        self.start(&name, &options, init)?;
        let dispatch = Dispatch::new(self.registrations);
        let mut serving = Serving { dispatch, srvid: options.srvid, name };
        let ending = serving.until_end()?;
        serving.shut_down();
        if !matches!(ending, Ending::Panicked { .. }) {
            done();
        }
        // A manager that is gone needs no shut_down.
        let _ = serving.dispatch.registrations.borrow().manager_link.send(&ToManager::Bye);
        Ok(ending)
    }

    fn start(
        &self,
        name: &str,
        options: &Options,
        init: impl FnOnce(&[OsString]) -> Result<(), String>,
    ) -> Result<(), Error> {
        let hello = ToManager::Hello { srvid: options.srvid, pid: std::process::id() };
        self.registrations.borrow().manager_link.send(&hello)?;
        let started = match init(&options.application) {
            Ok(()) => self.start_service(name, options),
            Err(why) => Err(Error::new(Code::Init, format!("the server refused to start: {why}"))),
        };
        let registrations = self.registrations.borrow();
        if let Err(error) = &started {
            // Received or not, this process ends with the error.
            let _ = registrations.manager_link.send(&ToManager::Refused { why: error.to_string() });
            return started;
        }
        registrations.slot().idle();
        registrations.manager_link.send(&ToManager::Ready)
    }

    fn start_service(&self, name: &str, options: &Options) -> Result<(), Error> {
        let mut registrations = self.registrations.borrow_mut();
        for notice in registrations.apply(options)? {
            log(name, &notice);
        }
        registrations.start_services()?;
        registrations.watch_link()
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("registry", &self.registry()).finish()
    }
}

/// A worker that serves.
struct Serving {
    dispatch: Dispatch,
    srvid: u32,
    name: String,
}

impl Serving {
    fn until_end(&mut self) -> Result<Ending, Error> {
        let is_memory = matches!(self.dispatch.registrations.borrow().sources, Sources::Memory(_));
        if is_memory { self.until_end_in_memory() } else { self.until_end_by_queues() }
    }

    fn until_end_in_memory(&mut self) -> Result<Ending, Error> {
        let mut requests = 0;
        let mut is_maintenance_due = true;
        let mut turn_began_ns = None;
        loop {
            let (flags, is_manager_new) = self.dispatch.registrations.borrow_mut().take_wake_flag();
            if flags & workers::PROGRAM != 0 {
                if let Sources::Memory(mailbox) = &self.dispatch.registrations.borrow().sources {
                    mailbox.hand_over();
                }
                self.call_program();
                if let Some(ending) = self.dispatch.finish_continued() {
                    return Ok(ending);
                }
            }
            // The program may have ended the worker.
            let is_linked = is_manager_new || flags & (workers::LINK | workers::PROGRAM) != 0;
            if is_maintenance_due || is_linked || requests == LINK_EACH_REQUESTS {
                requests = 0;
                self.dispatch.registrations.borrow_mut().read_link();
                if let Some(ending) = self.maintain(is_maintenance_due)? {
                    return Ok(ending);
                }
            }
            is_maintenance_due = match self.dispatch.serve_next() {
                DispatchResult::Last(ending) => return Ok(ending),
                DispatchResult::Message => {
                    requests += 1;
                    self.give_way(&mut turn_began_ns);
                    false
                }
                DispatchResult::Nothing => {
                    turn_began_ns = None;
                    self.is_ended_before_wait() || self.sleep()
                }
            };
        }
    }

    /// Lets others have the CPU now and then, where they may want it: with no request at hand. A worker that always finds
    /// one would be interrupted at the end of its slice, within a call, and they could not run until then.
    fn give_way(&self, turn_began_ns: &mut Option<u64>) {
        let ended_ns = self.dispatch.ended_ns;
        let began_ns = *turn_began_ns.get_or_insert(ended_ns);
        if ended_ns.saturating_sub(began_ns) < TURN_NS {
            return;
        }
        *turn_began_ns = Some(ended_ns);
        let registrations = self.dispatch.registrations.borrow();
        if let Sources::Memory(mailbox) = &registrations.sources {
            mailbox.give_way();
        }
    }

    /// Lets the program do what it does before waits; whether the worker is to end.
    fn is_ended_before_wait(&self) -> bool {
        let each = self.dispatch.registrations.borrow().before_waits.clone();
        if let Some(each) = each {
            each();
        }
        self.dispatch.registrations.borrow().manager_link.is_stop_asked()
    }

    /// Sleeps until there is something to do; whether time passed for the link.
    fn sleep(&self) -> bool {
        if let Sources::Memory(mailbox) = &mut self.dispatch.registrations.borrow_mut().sources
            && mailbox.wait_a_moment()
        {
            return false;
        }
        let registrations = self.dispatch.registrations.borrow();
        let next_try = registrations.manager_link.next_try();
        let left = next_try.map(|moment| moment.saturating_duration_since(Instant::now()));
        let Sources::Memory(mailbox) = &registrations.sources else { return true };
        // Its link ends a moment after the manager itself.
        let longest_ns = if mailbox.is_manager_gone() { LINK_END_NS } else { LINK_EACH_NS };
        let left_ns = left.map_or(longest_ns, |left| left.as_nanos() as u64);
        let until_ns = monotonic_ns() + left_ns;
        mailbox.sleep(until_ns);
        next_try.is_some() || monotonic_ns() >= until_ns
    }

    fn until_end_by_queues(&mut self) -> Result<Ending, Error> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        // Requests of the manager that came while its answer to the adverts was awaited.
        if let Some(ending) = self.maintain(false)? {
            return Ok(ending);
        }
        loop {
            let is_ended = self.is_ended_before_wait();
            let timeout = if is_ended { Some(Duration::ZERO) } else { self.timeout() };
            if let Sources::Queues(queues) = &mut self.dispatch.registrations.borrow_mut().sources {
                queues.poller.wait(&mut events, timeout)?;
            }
            // All of them, also when a stop is among them: the first event may be the only wake for a
            // message.
            for event in &events {
                if let Some(ending) = self.handle(queue_poller::ready(event.token))? {
                    return Ok(ending);
                }
            }
            if let Some(ending) = self.maintain(timeout.is_some())? {
                return Ok(ending);
            }
        }
    }

    /// Handles one event; how the work ended, if it did.
    #[inline]
    fn handle(&mut self, ready: Ready) -> Result<Option<Ending>, Error> {
        match ready {
            Ready::Service(entry, generation) => {
                return Ok(match self.dispatch.serve_queue(entry, generation)? {
                    DispatchResult::Last(ending) => Some(ending),
                    DispatchResult::Message | DispatchResult::Nothing => None,
                });
            }
            Ready::Link => self.dispatch.registrations.borrow_mut().read_link(),
            Ready::Program => {
                self.call_program();
                return Ok(self.dispatch.finish_continued());
            }
            // Seen when the link is.
            Ready::Stop => {}
            Ready::Room(index, generation) => self.dispatch.flush(index, generation),
        }
        Ok(None)
    }

    /// Calls the program for its own descriptor; it may advertise meanwhile.
    fn call_program(&self) {
        let program = self.dispatch.registrations.borrow().program.clone();
        if let Some(program) = program {
            let mut count = [0; 8];
            // Empty already if the program read it: then there is nothing new.
            let _ = rustix::io::read(&program.fd, &mut count);
            (program.each.borrow_mut())();
        }
    }

    /// Handles requests of the manager, and what is due; how the work ended, if it did.
    fn maintain(&mut self, is_timed: bool) -> Result<Option<Ending>, Error> {
        if is_timed {
            self.dispatch.fail_continued(Some(monotonic_ns()));
        }
        let (is_nudged, is_swept, is_stopped) = {
            let manager_link = &mut self.dispatch.registrations.borrow_mut().manager_link;
            (manager_link.take_nudge(), manager_link.take_sweep(), manager_link.is_stop_asked())
        };
        self.change_log_level();
        if is_nudged && let Some(ending) = self.nudged()? {
            return Ok(Some(ending));
        }
        if is_stopped {
            return Ok(Some(Ending::Stopped));
        }
        let registrations = &mut *self.dispatch.registrations.borrow_mut();
        let slots = Rc::clone(&registrations.slots);
        let slot = slots.slot(registrations.slot).expect("looked up when the worker was made");
        if is_swept {
            registrations.replies.sweep(registrations.sources.transport(), slot);
        }
        if is_timed || registrations.manager_link.next_try().is_some() {
            registrations.sources.transport().expire(slot, monotonic_ns());
            let now = Instant::now();
            registrations.reconnect(now, self.srvid, &self.name)?;
            if registrations.manager_link.is_abandoned(now) {
                return Ok(Some(Ending::Abandoned));
            }
        }
        Ok(None)
    }

    /// Hands the level that the manager asked for to the program.
    fn change_log_level(&self) {
        let mut registrations = self.dispatch.registrations.borrow_mut();
        let level = registrations.manager_link.take_log_level();
        let each = registrations.on_log_level.clone();
        drop(registrations);
        if let (Some(level), Some(each)) = (level, each) {
            each(level);
        }
    }

    /// Serves a message of each queue: the worker that was woken for it may have died.
    fn nudged(&mut self) -> Result<Option<Ending>, Error> {
        let services = match &self.dispatch.registrations.borrow().sources {
            Sources::Queues(queues) => queues.poller.services(),
            // A wake that died is made up for by the manager, which looks at the rings.
            Sources::Memory(_) => Vec::new(),
        };
        for (entry, generation) in services {
            match self.dispatch.serve_queue(entry, generation)? {
                DispatchResult::Nothing => {}
                DispatchResult::Message => {
                    self.dispatch.registrations.borrow().slot().add(Total::Nudged, 1);
                }
                DispatchResult::Last(ending) => return Ok(Some(ending)),
            }
        }
        Ok(None)
    }

    /// How long to wait: until a message that is kept is too late, or until the next try to connect to a
    /// manager.
    fn timeout(&self) -> Option<Duration> {
        let registrations = self.dispatch.registrations.borrow();
        let until_ns = registrations.sources.first_until_ns();
        let messages =
            until_ns.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_ns())));
        let next_try = registrations.manager_link.next_try();
        let seek = next_try.map(|moment| moment.saturating_duration_since(Instant::now()));
        messages.into_iter().chain(seek).min()
    }

    /// Leaves the queues, so that messages wake others, and sends what is kept.
    fn shut_down(&mut self) {
        self.dispatch.fail_continued(None);
        let registrations = &mut *self.dispatch.registrations.borrow_mut();
        registrations.sources.transport().leave_all();
        let slots = Rc::clone(&registrations.slots);
        let slot = slots.slot(registrations.slot).expect("looked up when the worker was made");
        let until_ns = monotonic_ns() + SHUTDOWN_NS;
        registrations.replies.finish(registrations.sources.transport(), slot, until_ns);
    }
}

fn program_name(path: Option<&std::ffi::OsStr>) -> String {
    let name = path.map(Path::new).and_then(Path::file_name);
    name.map_or_else(|| "worker".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Writes to the worker's log, which is its standard error; a failure to write is ignored.
fn log(name: &str, notice: &str) {
    let _ = writeln!(std::io::stderr(), "{name}: {notice}");
}
