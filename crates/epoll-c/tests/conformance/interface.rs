//! The epoll interface in the shape of a poller: tokens are data, and nothing is kept.
//!
//! What the capabilities of the mechanism deny is refused here, as the interface does it in the next
//! best way, which `tests/deviations` is about.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use libc::{c_int, epoll_event, sigset_t};
use pollux_conformance::runner::Way;
use pollux_poller::{
    Caps, Counters, Error, Events, FilePolicy, Mechanism, Poller, Readiness, Registration,
    SignalMask, Token, Trigger, Waker,
};

use rustix::thread::{Pid, gettid};

use crate::calls;

/// An instance that the C functions made.
pub(crate) struct Interface {
    epoll: OwnedFd,
    caps: Caps,
    waker: Waker,
    counters: Arc<Counters>,
    /// The thread that changes it and the one that waits; none: this thread does both.
    callers: Option<[Caller; 2]>,
}

/// A call of a function of the interface: with the events that it wrote.
type Call = Box<dyn FnOnce() -> Answer + Send>;
type Answer = io::Result<Vec<epoll_event>>;

/// A thread that makes calls, until this is dropped.
struct Caller {
    calls: Sender<Call>,
    answers: Receiver<Answer>,
    tid: Pid,
    /// Whether it makes a call at present.
    is_calling: Arc<AtomicBool>,
}

impl Caller {
    fn start() -> Self {
        let (calls, next) = channel::<Call>();
        let (answered, answers) = channel();
        let (named, name) = channel();
        let is_calling = Arc::new(AtomicBool::new(false));
        let calls_now = Arc::clone(&is_calling);
        std::thread::spawn(move || {
            named.send(gettid()).expect("awaited");
            next.iter().all(|call| {
                calls_now.store(true, Ordering::SeqCst);
                let answer = call();
                calls_now.store(false, Ordering::SeqCst);
                answered.send(answer).is_ok()
            })
        });
        let tid = name.recv().expect("it was started");
        Self { calls, answers, tid, is_calling }
    }

    /// This thread sleeps only once the other one does: scripts look at whether it sleeps.
    fn call(&self, call: Call) -> Answer {
        self.calls.send(call).expect("it listens as long as this is here");
        loop {
            match self.answers.try_recv() {
                Ok(answer) => return answer,
                Err(_) if self.is_calling.load(Ordering::SeqCst) && is_asleep(self.tid) => break,
                Err(_) => std::thread::yield_now(),
            }
        }
        self.answers.recv().expect("no function panics")
    }
}

fn is_asleep(tid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", tid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
}

impl Interface {
    pub(crate) fn open(mechanism: Mechanism, way: Way) -> Result<Self, Error> {
        let mut caps =
            if way == Way::Program { Mechanism::Epoll } else { mechanism }.open()?.caps().clone();
        (caps.files, caps.deferred_changes) = (FilePolicy::Refused, false);
        let epoll = instance(mechanism, way)?;
        let callers = (way == Way::Threads).then(|| [Caller::start(), Caller::start()]);
        let waker = Waker::new()?;
        let counters = Arc::default();
        let made = Self { epoll, caps, waker, counters, callers };
        let wake = epoll_event { events: libc::EPOLLIN as u32, u64: WAKE };
        made.change(libc::EPOLL_CTL_ADD, made.waker.fd(), wake)?;
        // A ring for several threads is opened when the second one waits: before the script begins.
        for caller in made.callers.iter().flatten() {
            caller
                .call(wait(made.epoll.as_raw_fd(), 1, Some(Duration::ZERO)))
                .expect("nothing yet");
        }
        if way == Way::Child {
            continue_as_child();
        }
        Ok(made)
    }

    fn change(&self, op: c_int, fd: BorrowedFd<'_>, event: epoll_event) -> Result<(), Error> {
        let epoll = self.epoll.as_raw_fd();
        let raw = fd.as_raw_fd();
        let call = Box::new(move || {
            let mut event = event;
            // SAFETY: an event that is alive.
            answered(unsafe { calls::ctl(epoll, op, raw, &raw mut event) }).map(|_| vec![])
        });
        let done = match &self.callers {
            Some([changes, _]) => changes.call(call),
            None => call(),
        };
        let Err(cause) = done else { return Ok(()) };
        Err(match cause.raw_os_error() {
            Some(libc::EEXIST) => Error::AlreadyRegistered { fd: raw },
            Some(libc::ENOENT) => Error::NotRegistered { fd: raw },
            Some(libc::EBADF) => Error::NotOpen { fd: raw },
            // What can't be added was not: epoll_ctl(2) says EPERM of it for the other operations too.
            Some(libc::EPERM) if op != libc::EPOLL_CTL_ADD => Error::NotRegistered { fd: raw },
            Some(libc::EPERM) => Error::NotPollable { fd: raw },
            _ => Error::System { call: "epoll_ctl", cause },
        })
    }
}

/// An instance of a script: a new one, or one that the program has from the one before it.
fn instance(mechanism: Mechanism, way: Way) -> Result<OwnedFd, Error> {
    if way == Way::Program {
        return inherited().map_or_else(|| become_another_program(mechanism), Ok);
    }
    create(mechanism)
}

fn create(mechanism: Mechanism) -> Result<OwnedFd, Error> {
    let epoll = calls::create(mechanism, libc::EPOLL_CLOEXEC);
    if epoll < 0 {
        return Err(Error::System { call: "epoll_create1", cause: io::Error::last_os_error() });
    }
    // SAFETY: made a moment ago.
    Ok(unsafe { OwnedFd::from_raw_fd(epoll) })
}

/// Lists the instances of a program that became this one.
const INHERITED: &str = "POLLUX_TEST_INSTANCES";
/// As many as a script uses at most.
const INHERITED_LEN: usize = 8;

/// The next of the instances that this program has from the one before it; `None` where it was started anew.
fn inherited() -> Option<OwnedFd> {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    let numbers = std::env::var(INHERITED).ok()?;
    let number = numbers.split(' ').nth(TAKEN.fetch_add(1, Ordering::Relaxed));
    let number: RawFd = number.expect("enough instances").parse().expect("a number");
    // SAFETY: the program before left the number for this one, and it is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Starts this binary anew in this process, which has instances then.
fn become_another_program(mechanism: Mechanism) -> Result<OwnedFd, Error> {
    let instances: Vec<OwnedFd> =
        (0..INHERITED_LEN).map(|_| create(mechanism)).collect::<Result<_, _>>()?;
    for epoll in &instances {
        // SAFETY: changes a flag of a number of this process.
        let kept = unsafe { libc::fcntl(epoll.as_raw_fd(), libc::F_SETFD, 0) };
        assert_eq!(kept, 0, "{}", io::Error::last_os_error());
    }
    let numbers: Vec<String> = instances.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let mut again = Command::new(std::env::current_exe().expect("the own path"));
    again.args(std::env::args_os().skip(1)).env(INHERITED, numbers.join(" "));
    panic!("{}", again.exec());
}

/// The result of a function, with its errno.
fn answered(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn wait(epoll: RawFd, capacity: usize, timeout: Option<Duration>) -> Call {
    Box::new(move || {
        let mut room = vec![epoll_event { events: 0, u64: 0 }; capacity];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().min(1 << 40) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let first = room.as_mut_ptr();
        let len = capacity as c_int;
        let no_mask = std::ptr::null::<sigset_t>();
        // SAFETY: room for as many events as said, and a time that is null or live.
        let found = answered(unsafe { calls::pwait2(epoll, first, len, time, no_mask) })?;
        room.truncate(found);
        Ok(room)
    })
}

/// Forks: the child continues the script, and this process ends as it does. Instances that the script
/// makes later are the child's own.
fn continue_as_child() {
    static HAS_FORKED: AtomicBool = AtomicBool::new(false);
    if HAS_FORKED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: this process has one thread, so the child finds nothing locked.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        return;
    }
    let mut status = 0;
    // SAFETY: writes to a live local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    let is_well = ended == child && status == 0;
    // SAFETY: ends this process and nothing else; what was printed is the child's.
    unsafe { libc::_exit(i32::from(!is_well)) };
}

/// The data of the waker; tokens end below.
const WAKE: u64 = u64::MAX;

fn event(token: Token, how: Registration) -> epoll_event {
    let mut events = how.interest.poll_mask();
    for (flag, is_meant) in [
        (libc::EPOLLET, how.trigger == Trigger::Edge),
        (libc::EPOLLONESHOT, how.trigger == Trigger::Oneshot),
        (libc::EPOLLEXCLUSIVE, how.exclusive),
    ] {
        events |= if is_meant { flag as u32 } else { 0 };
    }
    epoll_event { events, u64: u64::from(token.generation()) << 32 | u64::from(token.slot()) }
}

impl Poller for Interface {
    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        self.change(libc::EPOLL_CTL_ADD, fd, event(token, how))
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, token: Token, how: Registration) -> Result<(), Error> {
        self.caps.check(how)?;
        self.change(libc::EPOLL_CTL_MOD, fd, event(token, how))
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.change(libc::EPOLL_CTL_DEL, fd, epoll_event { events: 0, u64: 0 })
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        events.clear();
        let call = wait(self.epoll.as_raw_fd(), events.capacity(), timeout);
        let found = match &self.callers {
            Some([_, waits]) => waits.call(call),
            None => call(),
        };
        match found {
            Ok(found) => {
                for epoll_event { events: mask, u64: data } in found {
                    if data == WAKE {
                        self.waker.acknowledge_level();
                        events.set_woken();
                        continue;
                    }
                    let token = Token::new(data as u32, (data >> 32) as u32);
                    events.push(token, Readiness::from_poll_mask(mask));
                }
            }
            Err(cause) => {
                if cause.kind() != io::ErrorKind::Interrupted {
                    return Err(Error::System { call: "epoll_pwait2", cause });
                }
                events.set_interrupted();
            }
        }
        Ok(())
    }

    fn set_signal_mask(&mut self, _mask: Option<SignalMask>) {
        unreachable!("no script sets one");
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
