//! Which number names which instance; what close, dup and fork do to that.
//!
//! Instances are never freed, only used again: locks of them are held across `fork(2)`. There are as
//! many as were alive at the same time.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use libc::{c_int, epoll_event};
use pollux_poller::{AioPool, AioPoolCounts, Mechanism};

use crate::instance::{Instance, Locked};
use crate::{border, kernel};

/// How it is known that a number still names an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    /// The kernel is asked with each look-up: one `epoll_ctl(2)`.
    Checked,
    /// [`Instances::closing`] and [`Instances::duplicated`] are called for every descriptor.
    Hooked,
}

/// The instances of a process by their numbers.
#[derive(Debug)]
pub struct Instances {
    identity: Identity,
    /// How many instances are alive: with none, nothing is looked up.
    alive: AtomicUsize,
    table: RwLock<Table>,
    /// Descriptors are closed past the hooks: new instances are the kernel's.
    closes_past: AtomicBool,
    /// What closed instances on AIO leave to later ones.
    contexts: OnceLock<Arc<AioPool>>,
}

#[derive(Debug, Default)]
struct Table {
    by_number: Vec<Option<&'static Instance>>,
    all: Vec<&'static Instance>,
}

/// Locks that a thread holds while it forks.
struct Held {
    _table: RwLockWriteGuard<'static, Table>,
    states: Vec<Locked<'static>>,
}

/// Numbers that name an epoll of the kernel's for the program that this one becomes; when this is dropped,
/// as that failed, they name their instances again.
#[derive(Debug, Default)]
pub struct Handed {
    originals: Vec<(RawFd, OwnedFd)>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

impl Instances {
    /// None yet.
    #[must_use]
    pub const fn new(identity: Identity) -> Self {
        let table = Table { by_number: Vec::new(), all: Vec::new() };
        Self {
            identity,
            alive: AtomicUsize::new(0),
            table: RwLock::new(table),
            closes_past: AtomicBool::new(false),
            contexts: OnceLock::new(),
        }
    }

    /// `epoll_create1(2)` on `mechanism`, one of [`Mechanism::PLAIN`]. On [`Mechanism::Epoll`], and where descriptors are
    /// closed past the hooks ([`Instances::closes_past`]), it is the kernel's call, and [`Instances::find`] knows nothing
    /// of the number.
    ///
    /// # Errors
    /// Those of the system call, and why the mechanism can't be opened (EPERM and ENOSYS: forbidden).
    pub fn create(&self, mechanism: Mechanism, flags: c_int) -> io::Result<RawFd> {
        let epoll = kernel::create(flags)?;
        if mechanism == Mechanism::Epoll || self.closes_past() {
            return Ok(epoll.into_raw_fd());
        }
        if self.identity == Identity::Checked {
            self.sweep();
        }
        let mut table = self.write();
        if table.get(epoll.as_raw_fd()).is_some() {
            // What had the number was closed past the hooks.
            Self::name(&mut table, epoll.as_raw_fd(), None);
            self.end_unnamed(&table);
        }
        let vacant = table.all.iter().copied().find(|instance| instance.is_vacant());
        let instance = vacant.unwrap_or_else(|| {
            let contexts = self.contexts.get_or_init(Arc::default);
            let instance: &'static Instance =
                Box::leak(Box::new(Instance::new(mechanism, contexts)));
            table.all.push(instance);
            instance
        });
        if let Err(refused) = instance.begin(mechanism, epoll.as_raw_fd()) {
            instance.end();
            return Err(refused);
        }
        self.alive.fetch_add(1, Ordering::Release);
        let number = epoll.into_raw_fd();
        Self::name(&mut table, number, Some(instance));
        if self.identity == Identity::Hooked {
            let mut numbers = vec![number];
            instance.held(&mut numbers);
            let others = table.all.iter().filter(|other| !ptr::eq(**other, instance));
            let is_past = others.filter(|other| other.loses_to(&numbers)).count() > 0;
            drop(table);
            if is_past {
                self.become_kernels_all();
            }
        }
        Ok(number)
    }

    /// What became of the contexts of instances on AIO.
    pub fn contexts(&self) -> AioPoolCounts {
        self.contexts.get_or_init(Arc::default).counts()
    }

    /// Whether no instance is alive: every number is the kernel's then.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0
    }

    /// The instance that `epoll` names; `None` for a number of the kernel's own, or of nothing.
    #[inline]
    pub fn find(&self, epoll: RawFd) -> Option<&'static Instance> {
        if self.is_empty() {
            return None;
        }
        self.find_known(epoll)
    }

    fn find_known(&self, epoll: RawFd) -> Option<&'static Instance> {
        let table = self.read();
        let known = table.get(epoll);
        if self.identity == Identity::Hooked || known.is_some_and(|one| one.is_named_by(epoll)) {
            return known;
        }
        // A duplicate that no hook reported, a number that was closed since, or none of ours.
        let named = table.all.iter().copied().find(|one| one.is_named_by(epoll));
        drop(table);
        if named.is_some() || known.is_some() {
            let mut table = self.write();
            Self::name(&mut table, epoll, named);
        }
        named
    }

    /// `epoll_ctl(2)`, on whatever `epoll` names.
    ///
    /// # Errors
    /// Those of the system call; ENOSPC also at a bound of the mechanism.
    pub fn ctl(
        &self,
        epoll: RawFd,
        op: c_int,
        fd: RawFd,
        event: Option<epoll_event>,
    ) -> io::Result<()> {
        if op == libc::EPOLL_CTL_ADD && epoll != fd {
            self.watched(fd)?;
        }
        match self.find(epoll) {
            Some(instance) => instance.ctl(epoll, op, fd, event),
            None => kernel::ctl(epoll, op, fd, event),
        }
    }

    /// `fd` is about to be watched by something else than a wait on it: by another instance, by `poll(2)` or by
    /// `select(2)`. An instance becomes an epoll of the kernel's, which alone can be watched.
    ///
    /// # Errors
    /// What the kernel says where it has no room for a registration (ENOSPC, ENOMEM).
    pub fn watched(&self, fd: RawFd) -> io::Result<()> {
        match self.find(fd) {
            None => Ok(()),
            Some(instance) if instance.is_named_by(fd) => instance.become_kernels(fd),
            // Closed past the hooks.
            Some(_) => {
                self.become_kernels_all();
                Ok(())
            }
        }
    }

    /// A number of each instance that has a registration of `fd`.
    pub fn watching(&self, fd: RawFd) -> Vec<RawFd> {
        if self.is_empty() {
            return Vec::new();
        }
        let table = self.read();
        table.numbers().filter(|(_, one)| one.watches(fd)).map(|(number, _)| number).collect()
    }

    /// `fd` is about to be closed, or to name another file (`dup2(2)`): instances forget it, and an
    /// instance goes with its last number. A close that then fails has closed all the same.
    pub fn closing(&self, fd: RawFd) {
        if self.is_empty() {
            return;
        }
        let table = self.read();
        let is_instance = table.get(fd).is_some();
        for &instance in &table.all {
            let is_other =
                |(number, one): &(RawFd, &Instance)| *number != fd && ptr::eq(*one, instance);
            if instance.closing(fd)
                && let Some((number, _)) = table.numbers().find(is_other)
            {
                instance.tag_again(number);
            }
        }
        drop(table);
        if is_instance {
            let mut table = self.write();
            Self::name(&mut table, fd, None);
            self.end_unnamed(&table);
        }
    }

    /// Looks whether descriptors were closed past the hooks, by system calls of the program's own: on the instance that
    /// `epoll` names, all of them or those that its last wait reported. Where that is so the process may do it at any
    /// time, and all instances are the kernel's from now on.
    pub fn closed_past(&self, epoll: RawFd, is_whole: bool) -> bool {
        if !self.find(epoll).is_some_and(|instance| instance.is_closed_past(epoll, is_whole)) {
            return false;
        }
        self.become_kernels_all();
        true
    }

    /// Whether descriptors were found closed past the hooks: all instances are the kernel's since then.
    pub fn closes_past(&self) -> bool {
        self.closes_past.load(Ordering::Relaxed)
    }

    fn become_kernels_all(&self) {
        self.closes_past.store(true, Ordering::Relaxed);
        let named: Vec<RawFd> = self.read().numbers().map(|(number, _)| number).collect();
        named.into_iter().for_each(|number| self.become_kernels_where_closed(number));
    }

    /// The instance that `number` names is the kernel's from now on; it ends where the number names something else.
    fn become_kernels_where_closed(&self, number: RawFd) {
        let Some(instance) = self.read().get(number) else { return };
        if !instance.become_kernels_where_closed(number) {
            let mut table = self.write();
            Self::name(&mut table, number, None);
            self.end_unnamed(&table);
        }
    }

    /// All from `first` to `last` are about to be closed (`close_range(2)`).
    pub fn closing_range(&self, first: u32, last: u32) {
        if self.is_empty() {
            return;
        }
        let mut numbers: Vec<RawFd> = Vec::new();
        let table = self.read();
        let is_meant = |fd: RawFd| (first..=last).contains(&(fd as u32));
        numbers.extend(table.numbers().map(|(number, _)| number));
        for instance in &table.all {
            instance.numbers(&mut numbers);
        }
        drop(table);
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().filter(|&fd| is_meant(fd)).for_each(|fd| self.closing(fd));
    }

    /// The numbers from `first` to `last` that the library holds open itself, in order: a program that closes all
    /// that it has not opened does not mean them.
    pub fn held(&self, first: u32, last: u32) -> Vec<RawFd> {
        let mut numbers = Vec::new();
        if !self.is_empty() {
            self.read().all.iter().for_each(|instance| instance.held(&mut numbers));
            numbers.retain(|fd| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd)));
            numbers.sort_unstable();
        }
        numbers
    }

    /// `new` names what `old` names since a moment ago; [`Instances::closing`] was called for `new`
    /// before, if it was open.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        if old == new || self.is_empty() {
            return;
        }
        let named = self.read().get(old);
        if named.is_some() {
            let mut table = self.write();
            Self::name(&mut table, new, named);
        }
    }

    /// The process ends by `exit(3)`: rings let go of what they hold, which the kernel would have them do later.
    /// Takes no lock that is held, as the thread may be in a handler of a signal.
    pub fn ending(&self) {
        if self.is_empty() {
            return;
        }
        if let Ok(table) = self.table.try_read() {
            table.all.iter().for_each(|instance| instance.ending());
        }
    }

    /// Before `fork(2)`, in the thread that forks: no other thread is within the instances meanwhile.
    pub fn before_fork(&'static self) {
        let table = self.write();
        let states = table.all.iter().map(|instance| instance.lock()).collect();
        HELD.set(Some(Held { _table: table, states }));
    }

    /// After `fork(2)`, in the parent.
    pub fn after_fork_in_parent(&'static self) {
        HELD.set(None);
    }

    /// After `fork(2)`, in the child: it has a copy of every instance, which goes its own way.
    pub fn after_fork_in_child(&'static self) {
        let Some(mut held) = HELD.take() else { return };
        held.states.iter_mut().for_each(|state| state.inherited());
    }

    /// Has the three above called around every `fork(3)` of the process from now on. For one static
    /// of the process; calls after the first change nothing.
    pub fn guard_forks(&'static self) {
        GUARDED.get_or_init(|| {
            kernel::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
            self
        });
    }

    /// Before `execve(2)`: every instance with a number that survives it is handed to the kernel, as the
    /// poller ends with this program: the number names an epoll of the kernel's with the same registrations,
    /// and what other processes share with this one is as it was. Holds no lock behind it and changes no
    /// instance, so a child of `vfork(2)` may call it.
    ///
    /// # Errors
    /// What the kernel says where no further descriptor is available (EMFILE, ENFILE, ENOMEM).
    pub fn before_exec(&self) -> io::Result<Handed> {
        let mut handed = Handed::default();
        if self.is_empty() {
            return Ok(handed);
        }
        let table = self.read();
        for (number, instance) in table.numbers().filter(|(n, _)| kernel::survives_exec(*n)) {
            if let Some(epoll) = instance.as_kernels()? {
                handed.originals.push((number, kernel::duplicate(number)?));
                kernel::rename(number, &epoll)?;
            }
        }
        Ok(handed)
    }

    /// Ends every instance whose numbers were closed.
    fn sweep(&self) {
        if self.is_empty() {
            return;
        }
        let mut table = self.write();
        let mut is_orphaned = false;
        for number in 0..table.by_number.len() as RawFd {
            if table.get(number).is_some_and(|instance| !instance.is_named_by(number)) {
                Self::name(&mut table, number, None);
                is_orphaned = true;
            }
        }
        if is_orphaned {
            // Duplicates that no hook reported keep theirs alive.
            for number in kernel::open_numbers() {
                let named = table.all.iter().copied().find(|one| one.is_named_by(number));
                if named.is_some() {
                    Self::name(&mut table, number, named);
                }
            }
            self.end_unnamed(&table);
        }
    }

    fn name(table: &mut Table, number: RawFd, instance: Option<&'static Instance>) {
        let Ok(index) = usize::try_from(number) else { return };
        if index >= table.by_number.len() {
            table.by_number.resize(index + 1, None);
        }
        table.by_number[index] = instance;
    }

    fn end_unnamed(&self, table: &Table) {
        for &instance in &table.all {
            let is_named = table.by_number.iter().flatten().any(|one| ptr::eq(*one, instance));
            if !is_named && instance.end() {
                self.alive.fetch_sub(1, Ordering::Release);
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        for (number, original) in self.originals.drain(..) {
            // It was open a moment ago: nothing can be refused.
            let _ = kernel::rename(number, &original);
        }
    }
}

impl Table {
    /// The numbers that name an instance.
    fn numbers(&self) -> impl Iterator<Item = (RawFd, &'static Instance)> + '_ {
        (0..).zip(&self.by_number).filter_map(|(number, one)| Some((number, (*one)?)))
    }

    fn get(&self, number: RawFd) -> Option<&'static Instance> {
        let index = usize::try_from(number).ok()?;
        self.by_number.get(index).copied().flatten()
    }
}

/// Whose hooks `pthread_atfork(3)` calls, which takes functions without an argument.
static GUARDED: OnceLock<&'static Instances> = OnceLock::new();

extern "C" fn before_fork() {
    around_fork(Instances::before_fork);
}

extern "C" fn after_fork_in_parent() {
    around_fork(Instances::after_fork_in_parent);
}

extern "C" fn after_fork_in_child() {
    around_fork(Instances::after_fork_in_child);
}

fn around_fork(step: fn(&'static Instances)) {
    let Some(instances) = GUARDED.get() else { return };
    // There is no caller to answer.
    let _ = border::contained("fork", || {
        step(instances);
        Ok(())
    });
}
