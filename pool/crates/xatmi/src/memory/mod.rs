//! Requests in shared memory: the transport of a pool beside its queues.
//!
//! The memory is three files, memfds whose sizes are sealed. What stands where others write is a number or
//! a claim of theirs, so every index is looked at before it is used.
//!
//! | file | the manager | workers | clients |
//! |---|---|---|---|
//! | records: sizes, directory of services | writes | read | read |
//! | claims: what each worker takes and holds | writes | write | do not have it |
//! | exchange: rings, requests, wake flags | writes | write | write |
//!
//! The seals of the records let no process map them for writing but the manager that made them, whatever it
//! does with the descriptor. So each manager makes its own, a copy of those of the one before it, and the
//! kernel's mark in the old ones says that they are not kept any more: workers get the new ones when they
//! are adopted, clients when they come to the new manager (`client/successor`).
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
//! | `workers` | what a worker takes and holds, for the manager after its death; which sleep, their wake flags | yes |
//! | `request` | one request and its reply, with generations | yes |
//! | `runnable` | which threads can run, so that none spins while another waits for a CPU | yes |
//! | `patience` | what a thread does before it sleeps: it looks, and gives way | |
//! | `records` | where everything is, the services and the workers that offer them | |
//! | `exchange` | the part that all processes write, waking | |
//! | `manager` | answers for dead workers, ends of clients, rebuilding, takeover | |
//!
//! `docs/pool-internals.md` says what can go wrong and what was chosen;
//! `tests/loom_pool.rs` tries all interleavings of the pure parts.

mod exchange;
mod manager;
mod patience;
pub(crate) mod records;
mod request;
mod ring;
mod runnable;
pub(crate) mod workers;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, TryLockError, Weak, atomic};

use pollux_sys::shared::SharedWords;

pub(crate) use exchange::{Block, Exchange, owner_of};
pub(crate) use manager::{Answers, Memory};
pub(crate) use patience::Patience;
use records::Geometry;
pub(crate) use records::{Records, Row, Words};
pub(crate) use request::{Delivery, State};
pub(crate) use workers::{Claim, Ticket};

use crate::priority::Priority;
use crate::queue::Prefix;

/// Requests that wait for one service: far more than a pool has callers at once, and a page of cells.
const RING_LEN: usize = 1_024;

/// How often a thread tries to look at what is mapped; another one that looks is through long before.
const MAPPED_TRIES: u32 = 1_000;

/// Descriptors of the three files, in this order: records, claims, exchange.
pub(crate) type Files<F> = [F; 3];

/// The memory as a worker has it.
#[derive(Debug)]
pub(crate) struct WorkerMemory {
    records: Records,
    claims: SharedWords,
    exchange: Arc<Exchange>,
    /// Records and exchange, by which a manager that begins finds the memory.
    kept: [OwnedFd; 2],
}

/// The memory as clients have it. No descriptor of it is left: contexts do not count against their limit.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    pub(crate) records: Records,
    pub(crate) exchange: Arc<Exchange>,
}

impl WorkerMemory {
    /// Maps what the manager left to this process.
    ///
    /// # Errors
    /// EINVAL for a file that is not such memory, `InvalidData` for that of another build.
    pub(crate) fn from_files(
        [records_fd, claims, exchange_fd]: Files<OwnedFd>,
    ) -> io::Result<Self> {
        let records = Records::map(records_fd.as_fd())?;
        let claims = claims_of(claims, records.geometry())?;
        let exchange = Arc::new(Exchange::map(exchange_fd.as_fd(), *records.geometry())?);
        Ok(Self { records, claims, exchange, kept: [records_fd, exchange_fd] })
    }

    /// Continues with the records of another manager.
    ///
    /// # Errors
    /// As [`from_files`](Self::from_files); EINVAL for those of another pool.
    pub(crate) fn follow(&mut self, records_fd: OwnedFd) -> io::Result<()> {
        let records = Records::map(records_fd.as_fd())?;
        if records.geometry() != self.records.geometry() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.records = records;
        self.kept[0] = records_fd;
        Ok(())
    }

    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// The record of worker `worker`, none beyond the last.
    pub(crate) fn claim(&self, worker: usize) -> Option<Claim<'_>> {
        claim_in(&self.claims, worker)
    }

    /// Whether another worker than this one takes requests from a ring.
    pub(crate) fn is_offered_beside(&self, ring: usize, worker: usize) -> bool {
        let geometry = self.records.geometry();
        (0..geometry.worker_words()).any(|at| {
            let own = if at == worker / 64 { 1 << (worker % 64) } else { 0 };
            records::offers(&self.records, geometry, ring, at) & !own != 0
        })
    }
}

impl ClientMemory {
    /// The memory of a pool, mapped once for all contexts of this process: threads share what the CPU
    /// knows of the mapping. `records` and `exchange` are their descriptors.
    ///
    /// # Errors
    /// As [`WorkerMemory::from_files`].
    pub(crate) fn shared(records: &OwnedFd, exchange: &OwnedFd) -> io::Result<Arc<Self>> {
        static MAPPED: Mutex<Vec<(u64, Weak<ClientMemory>)>> = Mutex::new(Vec::new());
        let inode = rustix::fs::fstat(records)?.st_ino;
        for _ in 0..MAPPED_TRIES {
            let mut mapped = match MAPPED.try_lock() {
                Ok(mapped) => mapped,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::yield_now();
                    continue;
                }
            };
            // A file that is mapped is there, so no other file has its inode.
            mapped.retain(|(_, known)| known.strong_count() > 0);
            let alive = || mapped.iter().filter_map(|(its, known)| Some((*its, known.upgrade()?)));
            if let Some((_, known)) = alive().find(|(its, _)| *its == inode) {
                return Ok(known);
            }
            // The records of another manager lead to the same exchange.
            let its = rustix::fs::fstat(exchange)?.st_ino;
            let known = alive().map(|(_, known)| Arc::clone(&known.exchange));
            let known = known.into_iter().find(|known| known.inode() == its);
            let new = Arc::new(Self::map(records, exchange, known)?);
            mapped.push((inode, Arc::downgrade(&new)));
            return Ok(new);
        }
        // Locked for good by a thread that was there before fork(2): a child maps for itself.
        Self::map(records, exchange, None).map(Arc::new)
    }

    fn map(
        records: &OwnedFd,
        exchange: &OwnedFd,
        known: Option<Arc<Exchange>>,
    ) -> io::Result<Self> {
        let records = Records::map(records.as_fd())?;
        let exchange = match known {
            Some(known) => known,
            None => Arc::new(Exchange::map(exchange.as_fd(), *records.geometry())?),
        };
        Ok(Self { records, exchange })
    }
}

/// The most services and client contexts in the memory of a pool with so many workers, and messages of
/// so many bytes.
pub(crate) fn limits(workers: usize, message_len_bytes: u32) -> (usize, usize) {
    (records::SERVICES_MAX, Geometry::new(workers, message_len_bytes).blocks())
}

/// Bytes of the longest file of a pool with so many workers, and messages of so many bytes.
pub(crate) fn len_bytes(workers: usize, message_len_bytes: u32) -> u64 {
    let geometry = Geometry::new(workers, message_len_bytes);
    let files = [geometry.records_words(), geometry.claims_words(), geometry.exchange_words()];
    (files.into_iter().max().unwrap_or(0) * size_of::<u64>()) as u64
}

/// What the three files are called in `/proc/PID/fd`.
pub(crate) fn names(prefix: &Prefix) -> Files<String> {
    ["records", "claims", "exchange"].map(|which| format!("pollux-pool-{which}:{prefix}"))
}

fn claims_of(fd: OwnedFd, geometry: &Geometry) -> io::Result<SharedWords> {
    let claims = SharedWords::from_fd(fd)?;
    if claims.len() == geometry.claims_words() {
        Ok(claims)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

fn claim_in(claims: &[atomic::AtomicU64], worker: usize) -> Option<Claim<'_>> {
    let from = worker.checked_mul(workers::CLAIM_WORDS)?;
    claims.get(from..)?.first_chunk().map(Claim::over)
}
