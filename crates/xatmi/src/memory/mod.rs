//! Requests in shared memory: the transport of a pool beside its queues.
//!
//! The manager makes one memfd and hands it to workers and clients. Clients map its first part, the
//! records, so that they cannot write it; the rest, the exchange, is everybody's. What stands there is a
//! number or a claim of somebody else, so every index is looked at before it is used.
//!
//! ```text
//!  client    opens a request, writes its message, asks ──▶ pushes its number onto the ring of the service
//!            sleeps on the wake flag of its block               wakes the lowest idle worker that offers it
//!  worker    notes a claim, grabs the cell, notes that it holds the request, frees the cell
//!            copies the message, serves, writes the reply over it, answers, wakes the client
//!  manager   directory of services; finishes what a dead worker began; frees what a dead client had
//! ```
//!
//! | file | subject | pure |
//! |---|---|---|
//! | `ring` | the numbers of the requests that wait for a service | yes |
//! | `idle` | which workers sleep, and their wake flags | yes |
//! | `claim` | what a worker takes and holds, for the manager after its death | yes |
//! | `request` | one request and its reply, with generations | yes |
//! | `spin` | whether a moment's look pays before a sleep | but for the clock |
//! | `geometry` | where everything is | yes |
//! | `directory` | the services and who offers them | |
//! | `exchange` | the part that everybody writes, and waking | |
//! | `manager` | burial, ends of clients, rebuilding, takeover | |
//!
//! `docs/worker-wakes.md` and `docs/service-calls.md` say what can go wrong and what was chosen;
//! `tests/loom_memory.rs` tries all interleavings of the pure parts.

mod claim;
pub(crate) mod directory;
mod exchange;
mod geometry;
pub(crate) mod idle;
mod manager;
mod request;
mod ring;
mod spin;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{self, AtomicU64};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use pollux_sys::futex::Owned;
use pollux_sys::shared::{ReadOnlyPart, SharedPart, SharedWords};

pub(crate) use claim::{Claim, Ticket};
pub(crate) use directory::{Row, Words};
pub(crate) use exchange::{Block, Exchange, owner_of};
use geometry::{CONTEXTS, Geometry, MANAGER};
pub(crate) use manager::Answers;
pub(crate) use request::{Delivery, State};
pub(crate) use spin::Spin;

use crate::queue::Prefix;

/// Requests that wait for one service: far more than a pool has callers at once, and a page of cells.
const RING_LEN: usize = 1_024;

/// How often a thread tries to look at what is mapped; another one that looks is through long before.
const MAPPED_TRIES: u32 = 1_000;

/// The whole memory, as manager and workers have it.
#[derive(Debug)]
pub(crate) struct Memory {
    fd: OwnedFd,
    records: SharedPart,
    exchange: Exchange,
}

/// The memory as clients have it.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    /// By which a manager that begins finds this memory, when nobody else has it any more.
    #[expect(dead_code, reason = "held open")]
    fd: OwnedFd,
    pub(crate) records: ReadOnlyPart,
    pub(crate) exchange: Exchange,
}

impl Memory {
    /// New memory for a pool.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub(crate) fn create(
        prefix: &Prefix,
        workers: usize,
        message_len_bytes: u32,
    ) -> io::Result<Self> {
        let geometry = Geometry::new(workers, message_len_bytes);
        let name = CString::new(name(prefix))?;
        let words = SharedWords::create_named(&name, geometry.words())?;
        for (at, number) in geometry.head().into_iter().enumerate() {
            words[at].store(number, atomic::Ordering::Relaxed);
        }
        Self::from_fd(words.as_fd().try_clone_to_owned()?)
    }

    /// Maps memory that somebody else made.
    ///
    /// # Errors
    /// EINVAL for a file that is not such memory, `InvalidData` for that of another build.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let geometry = geometry_of(fd.as_fd())?;
        let records = SharedPart::map(fd.as_fd(), 0, geometry.records_words())?;
        let exchange = Exchange::map(fd.as_fd(), geometry)?;
        Ok(Self { fd, records, exchange })
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    pub(crate) fn records(&self) -> &SharedPart {
        &self.records
    }

    /// The record of worker `worker`, none beyond the last.
    pub(crate) fn claim(&self, worker: usize) -> Option<Claim<'_>> {
        if worker >= self.geometry().workers() {
            return None;
        }
        self.records[self.geometry().claim(worker)..].first_chunk().map(Claim::over)
    }

    /// The service of this name.
    pub(crate) fn find(&self, name: &crate::queue::ServiceName) -> Option<Row> {
        directory::find(&self.records, self.geometry(), name)
    }

    /// Makes this thread the manager, whose end the kernel tells the workers.
    ///
    /// # Errors
    /// As [`Owned::take`].
    pub(crate) fn lead(&self) -> io::Result<Owned> {
        Owned::take(self.fd.as_fd(), MANAGER)
    }

    /// The word that says which thread is the manager, or that it is gone.
    #[inline]
    pub(crate) fn manager(&self) -> &AtomicU64 {
        &self.records[MANAGER]
    }

    /// Whether another worker than this one takes requests from a ring.
    pub(crate) fn is_offered_beside(&self, ring: usize, worker: usize) -> bool {
        (0..self.geometry().worker_words()).any(|at| {
            let own = if at == worker / 64 { 1 << (worker % 64) } else { 0 };
            directory::offers(&self.records, self.geometry(), ring, at) & !own != 0
        })
    }

    fn geometry(&self) -> &Geometry {
        self.exchange.geometry()
    }

    /// A number for a context, which is never used again. Called by the manager.
    pub(crate) fn next_context(&self) -> u32 {
        self.records[CONTEXTS].fetch_add(1, atomic::Ordering::SeqCst) as u32
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ClientMemory {
    /// The memory of a pool, mapped once for all contexts of this process: each has a descriptor less,
    /// and threads share what the CPU knows of the mapping.
    ///
    /// # Errors
    /// As [`Memory::from_fd`].
    pub(crate) fn shared(fd: OwnedFd) -> io::Result<Arc<Self>> {
        static MAPPED: Mutex<Vec<(u64, Weak<ClientMemory>)>> = Mutex::new(Vec::new());
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        for _ in 0..MAPPED_TRIES {
            let mut mapped = match MAPPED.try_lock() {
                Ok(mapped) => mapped,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::yield_now();
                    continue;
                }
            };
            // One that is alive holds the file open, so its inode is nobody else's.
            mapped.retain(|(_, known)| known.strong_count() > 0);
            let known = mapped.iter().find(|(its, _)| *its == inode);
            if let Some(known) = known.and_then(|(_, known)| known.upgrade()) {
                return Ok(known);
            }
            let new = Arc::new(Self::from_fd(fd)?);
            mapped.push((inode, Arc::downgrade(&new)));
            return Ok(new);
        }
        // Locked for good by a thread that was there before fork(2): a child maps for itself.
        Self::from_fd(fd).map(Arc::new)
    }

    /// Maps the memory of a pool.
    ///
    /// # Errors
    /// As [`Memory::from_fd`].
    fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let geometry = geometry_of(fd.as_fd())?;
        let records = ReadOnlyPart::map(fd.as_fd(), 0, geometry.records_words())?;
        let exchange = Exchange::map(fd.as_fd(), geometry)?;
        Ok(Self { fd, records, exchange })
    }

    /// The service of this name.
    pub(crate) fn find(&self, name: &crate::queue::ServiceName) -> Option<Row> {
        directory::find(&self.records, self.exchange.geometry(), name)
    }

    /// Whether the service is still the one that was found.
    #[inline]
    pub(crate) fn stands(&self, row: Row) -> bool {
        directory::stands(&self.records, self.exchange.geometry(), row)
    }
}

/// The most services and client contexts in the memory of a pool with so many workers, and messages of
/// so many bytes.
pub(crate) fn limits(workers: usize, message_len_bytes: u32) -> (usize, usize) {
    (geometry::SERVICES_MAX, Geometry::new(workers, message_len_bytes).blocks())
}

/// What the memory of a pool is called in `/proc/PID/fd`.
pub(crate) fn name(prefix: &Prefix) -> String {
    format!("pollux-pool:{prefix}")
}

fn geometry_of(fd: BorrowedFd<'_>) -> io::Result<Geometry> {
    let head = ReadOnlyPart::map(fd, 0, 8)?;
    Geometry::read(|at| head.word(at)).ok_or_else(|| {
        let what = "it is of another build; stop the pool and start it with programs of one build";
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}
