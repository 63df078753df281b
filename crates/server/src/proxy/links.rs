//! The upstream connections of one loop: which request each has, and which are idle.
//!
//! ```text
//!  Connecting ── connected ──► Busy ── answer whole ──► Idle ── next request ──► Busy
//!       └────────── closed ──────┴──────── closed ────────┴──► gone
//! ```

use pollux_engine::ConnectionId;

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
}

/// The upstream connections of one loop, by number, and the idle ones of each backend.
#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Link>,
    free: Vec<u32>,
    /// The one that was used last is taken first: the others may be closed in peace.
    idle: Vec<Vec<u32>>,
}

impl Links {
    pub(super) fn new(backends: usize) -> Self {
        Self { all: Vec::new(), free: Vec::new(), idle: vec![Vec::new(); backends] }
    }

    /// A connection that is about to be opened for `exchange`.
    pub(super) fn begin(&mut self, backend: usize, exchange: u32) -> u32 {
        let (id, exchange) = (None, Some(exchange));
        let link = Link { backend, id, exchange, is_woken: false, is_cut: false };
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

    pub(super) fn get(&mut self, at: u32) -> &mut Link {
        &mut self.all[at as usize]
    }

    /// An idle connection to `backend` for `exchange`.
    pub(super) fn take_idle(&mut self, backend: usize, exchange: u32) -> Option<u32> {
        let at = self.idle[backend].pop()?;
        self.all[at as usize].exchange = Some(exchange);
        Some(at)
    }

    /// Keeps a connection without a request; false when there are `most` already.
    pub(super) fn park(&mut self, at: u32, most: usize) -> bool {
        let idle = &mut self.idle[self.all[at as usize].backend];
        let has_room = idle.len() < most;
        if has_room {
            idle.push(at);
        }
        has_room
    }

    /// Forgets a connection that is gone; says whether it was idle.
    pub(super) fn end(&mut self, at: u32) -> bool {
        let was_idle = self.unpark(at);
        debug_assert!(!self.free.contains(&at), "a link ends once");
        self.free.push(at);
        was_idle
    }

    /// Takes it out of the idle ones, if it is one.
    fn unpark(&mut self, at: u32) -> bool {
        let idle = &mut self.idle[self.all[at as usize].backend];
        let place = idle.iter().rposition(|each| *each == at);
        place.map(|place| idle.remove(place)).is_some()
    }

    /// Idle connections to `backend`.
    pub(super) fn idle(&self, backend: usize) -> usize {
        self.idle[backend].len()
    }

    /// Connections that are open or being opened.
    pub(super) fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
