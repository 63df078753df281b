//! No descriptor is left for a connection: the listener pauses, the loop sleeps meanwhile, and
//! continues by itself, at once when connections of its own have closed; a connect gives its session
//! back. On every driver.
//!
//! Alone in its binary: the limit is that of the process.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pollux_engine::{
    Actions, ConnectError, ConnectTo, Counter, Driver, EventLoop, Limits, Listener, Moment, Session,
};
use rustix::process::{Resource, getrlimit, setrlimit};

const DEADLINE: Duration = Duration::from_secs(60);

/// One test at a time: the limit is that of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Lets numbers of descriptors be lower than `current`.
fn limit_descriptors(current: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(current);
    setrlimit(Resource::Nofile, limit).expect("within the hard limit");
}

/// Greets.
struct Greeter;

impl Session for Greeter {
    type Shared = ();

    fn accepted((): &mut (), actions: &mut Actions<'_>) -> Self {
        actions.send(b"hello");
        Self
    }

    fn on_bytes(&mut self, (): &mut (), _: &mut Actions<'_>, input: &[u8]) -> usize {
        input.len()
    }
    fn on_drain(&mut self, (): &mut (), _: &mut Actions<'_>) {}
}

/// Takes every descriptor that is left.
fn exhaust() -> Vec<OwnedFd> {
    let one = std::fs::File::open("/dev/null").expect("one is left");
    let more = || rustix::io::fcntl_dupfd_cloexec(&one, 0).ok();
    let mut taken: Vec<OwnedFd> = std::iter::from_fn(more).collect();
    taken.push(one.into());
    taken
}

fn turn_until(event_loop: &mut EventLoop<Greeter>, what: &str, is_done: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_done() {
        assert!(Instant::now() < end, "{what} did not happen in time");
        event_loop.turn(Some(Duration::from_millis(200))).expect("turned");
    }
}

fn assert_connect_gives_back(event_loop: &mut EventLoop<Greeter>, to: &ConnectTo) {
    let Err((Greeter, error)) = event_loop.connect(to, Greeter, Moment::NEVER) else {
        panic!("no descriptor was left")
    };
    let ConnectError::System { call: "socket", cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
}

#[test]
fn without_descriptors_a_listener_pauses_a_connect_fails_and_both_proceed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Few enough for `select`, and to take them all fast.
    limit_descriptors(128);
    for driver in Driver::ALL {
        let limits = Limits { accept_pause: Duration::from_millis(20), ..Limits::default() };
        let Ok(mut event_loop) = EventLoop::<Greeter>::open(driver, (), limits) else {
            pollux_testing::skip(format_args!("{driver} is missing"));
            continue;
        };
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let address = listener.address().to_string();
        let to = ConnectTo { peer: listener.address().clone(), source: None };
        event_loop.listen(listener, false);
        let counters = event_loop.counters();
        let mut peer = TcpStream::connect(address).expect("connected");
        let taken = exhaust();
        turn_until(&mut event_loop, "the pause", || counters.value(Counter::AcceptPauses) >= 3);
        // Each pause is a few turns, not a spin.
        let turns = counters.value(Counter::Turns);
        assert!(turns < 30, "{driver}: {turns} turns");
        assert_connect_gives_back(&mut event_loop, &to);
        drop(taken);
        turn_until(&mut event_loop, "the accept", || counters.value(Counter::Accepted) == 1);
        let mut greeting = [0; 5];
        event_loop.turn(Some(Duration::ZERO)).expect("turned");
        peer.read_exact(&mut greeting).expect("greeted");
        assert_eq!(&greeting, b"hello", "{driver}");
        assert_eq!((event_loop.open_connections(), counters.open()), (1, 1));
        event_loop.connect(&to, Greeter, Moment::NEVER).map_err(|(_, error)| error).expect("begun");
        turn_until(&mut event_loop, "its accept", || counters.value(Counter::Accepted) == 2);
    }
}

/// 300 clients that came and went while 40 descriptors are left: the loop takes them in as many
/// rounds as that needs, and none of the rounds waits for the pause to be over.
#[test]
fn a_listener_without_descriptors_continues_when_a_connection_of_its_own_has_closed() {
    const GONE: usize = 300;
    const LEFT: u64 = 40;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for driver in Driver::ALL {
        limit_descriptors(1024);
        // Longer than the test may take.
        let limits = Limits { accept_pause: 60 * DEADLINE, ..Limits::default() };
        let Ok(mut event_loop) = EventLoop::<Greeter>::open(driver, (), limits) else {
            pollux_testing::skip(format_args!("{driver} is missing"));
            continue;
        };
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(&any, false).expect("opened");
        let address = listener.address().to_string();
        event_loop.listen(listener, false);
        let counters = event_loop.counters();
        let connect = || TcpStream::connect(&address).expect("connected");
        let gone: Vec<TcpStream> = (0..GONE).map(|_| connect()).collect();
        gone.iter().for_each(|peer| peer.shutdown(Shutdown::Write).expect("connected"));
        let mut fresh = connect();
        let highest = fresh.as_raw_fd() as u64;
        limit_descriptors(highest + 1 + LEFT);
        let name = format!("{driver}: the end of all that are gone");
        turn_until(&mut event_loop, &name, || counters.closed_total() == GONE as u64);
        turn_until(&mut event_loop, "the accept", || counters.open() == 1);
        event_loop.turn(Some(Duration::ZERO)).expect("turned");
        let mut greeting = [0; 5];
        fresh.read_exact(&mut greeting).expect("greeted");
        assert_eq!(&greeting, b"hello", "{driver}");
        assert!(counters.value(Counter::AcceptPauses) > 0, "{driver}: descriptors never ran out");
    }
}
