//! The upstream connections of one loop: which request each has, and which are idle.
//!
//! ```text
//!  Connecting ── connected ──► Busy ── answer whole ──► Idle ── next request ──► Busy
//!       └────────── closed ──────┴──────── closed ────────┴──► gone
//!
//!  Idle:  Here ── end of the turn, where other loops may take it ──► Shelved ── taken ──► elsewhere
//! ```
//!
//! One that another loop has taken keeps its link until this loop lets go of its descriptor.

use std::sync::Arc;

use pollux_engine::ConnectionId;

use super::passing::Pooled;
use super::secrets::SharedTls;

/// One upstream connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) backend: usize,
    /// None until it is connected.
    pub(super) id: Option<ConnectionId>,
    /// The request that it has.
    pub(super) exchange: Option<u32>,
    /// It was woken and has not been called yet.
    pub(super) is_woken: bool,
    /// Its request was taken away in the middle: nothing that comes belongs to another one.
    pub(super) is_cut: bool,
    pub(super) idle: Idle,
    /// Its encryption, until other loops may take it.
    pub(super) tls: Option<SharedTls>,
    /// What other loops may take it by.
    pub(super) pooled: Option<Arc<Pooled>>,
}

/// Where an upstream connection without a request is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Idle {
    /// It is not idle, or another loop has it.
    No,
    /// With this loop.
    Here,
    /// In the pool of all loops.
    Shelved,
}

/// What a connection to a backend is opened for, with its encryption: the session on it is made of this.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) purpose: Purpose,
    pub(super) tls: Option<SharedTls>,
}

/// What a connection to a backend is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Requests, by the link of this number.
    Requests(u32),
    /// A check of the backend at this index.
    Check(usize),
    /// The stream of this pair.
    Stream(u32),
}

/// The upstream connections of one loop, by number, and those of each backend that it keeps idle.
#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Link>,
    free: Vec<u32>,
    /// The one that was used last is taken first: the others may be closed in peace.
    here: Vec<Vec<u32>>,
}

impl Links {
    pub(super) fn new(backends: usize) -> Self {
        Self { all: Vec::new(), free: Vec::new(), here: vec![Vec::new(); backends] }
    }

    /// A connection that is about to be there.
    pub(super) fn begin(&mut self, backend: usize, exchange: Option<u32>) -> u32 {
        let (id, idle, tls, pooled) = (None, Idle::No, None, None);
        let link =
            Link { backend, id, exchange, is_woken: false, is_cut: false, idle, tls, pooled };
        match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = link;
                at
            }
            None => {
                self.all.push(link);
                self.all.len() as u32 - 1
            }
        }
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Link {
        &mut self.all[at as usize]
    }

    pub(super) fn get(&self, at: u32) -> &Link {
        &self.all[at as usize]
    }

    /// Whether this loop keeps an idle connection to `backend`.
    pub(super) fn has_here(&self, backend: usize) -> bool {
        !self.here[backend].is_empty()
    }

    /// Takes an idle connection to `backend` that this loop keeps.
    pub(super) fn take_here(&mut self, backend: usize) -> Option<u32> {
        let at = self.here[backend].pop()?;
        self.all[at as usize].idle = Idle::No;
        Some(at)
    }

    /// Takes the one that this loop has kept longest, to the backend to which it keeps most.
    pub(super) fn take_oldest_here(&mut self) -> Option<u32> {
        let here = self.here.iter_mut().max_by_key(|here| here.len())?;
        if here.is_empty() {
            return None;
        }
        let at = here.remove(0);
        self.all[at as usize].idle = Idle::No;
        Some(at)
    }

    /// Keeps a connection that has no request.
    pub(super) fn keep_here(&mut self, at: u32) {
        let link = &mut self.all[at as usize];
        link.idle = Idle::Here;
        self.here[link.backend].push(at);
    }

    /// Keeps it here no more; false when it was not.
    pub(super) fn unkeep_here(&mut self, at: u32) -> bool {
        let link = &mut self.all[at as usize];
        if link.idle != Idle::Here {
            return false;
        }
        link.idle = Idle::No;
        let here = &mut self.here[link.backend];
        let place = here.iter().rposition(|each| *each == at);
        here.remove(place.expect("what is idle here is on the list"));
        true
    }

    /// Forgets a connection that is gone, and was taken out of the idle ones.
    pub(super) fn end(&mut self, at: u32) {
        debug_assert!(!self.free.contains(&at), "a link ends once");
        let link = &mut self.all[at as usize];
        (link.tls, link.pooled) = (None, None);
        self.free.push(at);
    }

    /// The session of a link, if that is in the pool, or was taken from there.
    pub(super) fn id_of_shelved(&self, at: u32) -> Option<ConnectionId> {
        let link = self.all.get(at as usize)?;
        link.id.filter(|_| link.idle == Idle::Shelved)
    }

    /// Connections that are open or being opened.
    pub(super) fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
