//! Every interleaving of threads that share a pool of connections: no request waits beside a connection
//! that is free, none is served by two, and no place is lost.
//!
//! Checks `src/backends/pool.rs`, which is taken in as it stands, with numbers for connections. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pollux-server --test loom_pool --release`.
#![cfg(loom)]

#[path = "../src/backends/pool.rs"]
#[expect(dead_code, reason = "the proxy reads more of it")]
pub mod pool;

use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use pool::{Admission, Idle, Pool, PoolLimits, Ticket};
use std::sync::Arc;

/// How often loom may take the processor from a thread that could continue.
const PREEMPTIONS_MAX: usize = 3;

/// The owners of what is on its way.
const NO_THREAD: u32 = u32::MAX >> 1;

fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(run);
}

/// Held by a thread, or put down by one: as the engine's word for it.
#[derive(Debug)]
struct Connection(AtomicU32);

impl Idle for Arc<Connection> {
    fn take(&self, by: u32) -> bool {
        let seen = self.0.load(SeqCst);
        seen & 1 == 0 && self.0.compare_exchange(seen, by << 1 | 1, SeqCst, SeqCst).is_ok()
    }

    fn start_transfer(&self) -> bool {
        self.take(NO_THREAD)
    }

    fn owner(&self) -> u32 {
        self.0.load(SeqCst) >> 1
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

impl Connection {
    /// What was sent to the thread `by` has arrived there.
    fn receive(&self, by: u32) {
        let has = self.0.swap(by << 1 | 1, SeqCst);
        assert_eq!(has, NO_THREAD << 1 | 1, "it was on its way");
    }

    /// An event of it at the thread `by`: whether that one may act on it.
    fn is_held_by(&self, by: u32) -> bool {
        self.0.load(SeqCst) == by << 1 | 1
    }
}

/// What a thread was sent.
enum Grant {
    Connection(Arc<Connection>),
    Place,
}

/// A pool of one server, and an inbox for each thread.
struct World {
    pool: Pool<Arc<Connection>>,
    inboxes: [(Mutex<Vec<Grant>>, Condvar); 2],
}

impl World {
    fn new(open_max: u32) -> Arc<Self> {
        let limits = PoolLimits { idle_max: 8, idle_total_max: 8, queue_max: 8 };
        let inbox = || (Mutex::new(Vec::new()), Condvar::new());
        let pool = Pool::new(2, &[Some(open_max)], limits);
        Arc::new(Self { pool, inboxes: [inbox(), inbox()] })
    }

    fn send(&self, to: u32, grant: Grant) {
        let (inbox, bell) = &self.inboxes[to as usize];
        inbox.lock().expect("whole").push(grant);
        bell.notify_one();
    }

    fn receive(&self, by: u32) -> Grant {
        let (inbox, bell) = &self.inboxes[by as usize];
        let mut inbox = inbox.lock().expect("whole");
        loop {
            if let Some(grant) = inbox.pop() {
                return grant;
            }
            inbox = bell.wait(inbox).expect("whole");
        }
    }

    fn put(&self, by: u32, connection: Arc<Connection>) {
        assert!(self.pool.reserve(0), "there is room");
        connection.0.store(by << 1, SeqCst);
        if let Some((ticket, taken)) = self.pool.put(0, connection) {
            self.send(ticket.by, Grant::Connection(taken));
        }
    }

    fn close(&self) {
        if let Some(ticket) = self.pool.closed(0) {
            self.send(ticket.by, Grant::Place);
        }
    }

    /// A connection for a request of the thread `by`, waited for if need be.
    fn connect(&self, by: u32) -> Arc<Connection> {
        let open = || Arc::new(Connection(AtomicU32::new(by << 1 | 1)));
        let ticket = Ticket { by, at: 0, number: 0 };
        let connection = match self.pool.admit(0, ticket, false) {
            Admission::Own(found) | Admission::Other(found) => found,
            Admission::Open => open(),
            Admission::Wait(keeper) => {
                assert_eq!(keeper, None, "no thread keeps one for itself");
                match self.receive(by) {
                    Grant::Connection(connection) => {
                        connection.receive(by);
                        connection
                    }
                    Grant::Place => open(),
                }
            }
            Admission::Private | Admission::Full => unreachable!("neither is so here"),
        };
        assert!(connection.is_held_by(by), "no other thread has it");
        connection
    }
}

#[test]
fn no_request_waits_beside_a_free_connection_or_slot() {
    for closes in [false, true] {
        explore(move || {
            let world = World::new(1);
            let threads = [0, 1].map(|by| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let connection = world.connect(by);
                    if closes { world.close() } else { world.put(by, connection) }
                })
            });
            // A request that is left waiting is a thread that waits for ever, which loom reports.
            threads.into_iter().for_each(|thread| thread.join().expect("served"));
            let view = world.pool.view(0);
            let expected = u32::from(!closes);
            assert_eq!(
                (view.open, view.idle, view.waiting),
                (Some(expected), expected as usize, 0)
            );
        });
    }
}

/// A request that leaves the queue, or finds that it was served already: then it passes that on.
#[test]
fn what_was_on_its_way_to_a_request_that_left_is_not_lost() {
    explore(|| {
        let world = World::new(1);
        let connection = world.connect(0);
        let ticket = Ticket { by: 1, at: 0, number: 7 };
        assert!(matches!(world.pool.admit(0, ticket, false), Admission::Wait(None)));
        let other = Arc::clone(&world);
        let leaving = thread::spawn(move || {
            if other.pool.leave(0, ticket) {
                return;
            }
            match other.receive(1) {
                Grant::Connection(connection) => {
                    connection.receive(1);
                    other.put(1, connection);
                }
                Grant::Place => other.close(),
            }
        });
        world.put(0, connection);
        leaving.join().expect("it leaves");
        let view = world.pool.view(0);
        assert_eq!((view.open, view.idle, view.waiting), (Some(1), 1, 0));
        assert!(matches!(
            world.pool.admit(0, ticket, false),
            Admission::Own(_) | Admission::Other(_)
        ));
    });
}

/// A thread closes what it keeps idle, for want of room, while another one looks for a connection.
#[test]
fn a_connection_that_makes_room_is_closed_or_anothers() {
    explore(|| {
        let world = World::new(1);
        let connection = world.connect(0);
        world.put(0, connection);
        let other = Arc::clone(&world);
        let asking = thread::spawn(move || {
            let connection = other.connect(1);
            other.put(1, connection);
        });
        if let Some((server, _)) = world.pool.oldest(0) {
            assert_eq!(server, 0);
            world.close();
        }
        asking.join().expect("served");
        let view = world.pool.view(0);
        assert_eq!((view.open, view.idle, view.waiting), (Some(1), 1, 0));
    });
}

/// The owner finds something on a connection while others look for one.
#[test]
fn an_owner_that_takes_its_connection_back_and_a_taker_agree() {
    explore(|| {
        let world = World::new(2);
        let connection = world.connect(0);
        world.put(0, Arc::clone(&connection));
        let other = Arc::clone(&world);
        let taking = thread::spawn(move || {
            let taken = other.connect(1);
            other.put(1, taken);
        });
        // An event at its owner: claimed, or lost to the taker.
        if connection.0.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
            assert!(world.pool.remove(0, 0, &connection), "no other thread takes it off");
            world.close();
        }
        taking.join().expect("served");
        let view = world.pool.view(0);
        assert_eq!(view.waiting, 0);
        assert_eq!(view.open.expect("counted") as usize, view.idle, "all that is open is idle");
    });
}

/// A thread waits for the connection that it had before another one took it, and has an event of it
/// before the message that gives it back.
#[test]
fn an_event_at_a_former_owner_that_waits_finds_the_connection_to_be_anothers() {
    explore(|| {
        let world = World::new(1);
        let connection = world.connect(0);
        world.put(0, Arc::clone(&connection));
        let taken = world.connect(1);
        let ticket = Ticket { by: 0, at: 0, number: 1 };
        assert!(matches!(world.pool.admit(0, ticket, false), Admission::Wait(None)));
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || other.put(1, taken));
        assert!(!connection.is_held_by(0), "it would be put down, or closed, beside the message");
        let Grant::Connection(given) = world.receive(0) else { panic!("nothing was closed") };
        given.receive(0);
        assert!(connection.is_held_by(0), "the one that it had");
        thread.join().expect("put down");
    });
}
