//! Connections that pass from one loop to another: two loops in one thread, turned by hand.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{
    Actions, CloseCause, Command, ConnectTo, ConnectionId, Counter, Driver, EventLoop, Limits,
    ListenAddress, Moment, Session, SharedSocket,
};
use pollux_poller::{Mechanism, Trigger};

use crate::server::drivers;

/// What sessions of one loop report to the test, and what it has them do.
#[derive(Default)]
struct Shared {
    number: u32,
    commands: VecDeque<Command<Runner>>,
    reported: Vec<String>,
    socket: Option<Arc<SharedSocket>>,
    id: Option<ConnectionId>,
    opened: u32,
}

/// Shares its connection with the first loop that has it, and records everything.
struct Runner;

impl Session for Runner {
    type Shared = Shared;

    fn opened(shared: &mut Shared, _: &pollux_poller::Waker) {
        shared.opened += 1;
    }

    fn next_command(shared: &mut Shared) -> Option<Command<Self>> {
        shared.commands.pop_front()
    }

    fn accepted(_: &mut Shared, _: &mut Actions<'_>) -> Self {
        unreachable!("there is no listener")
    }

    fn connected(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.reported.push("connected".to_owned());
        shared.id = Some(actions.id());
        actions.set_deadline(Moment::NEVER);
        if shared.socket.is_none() {
            shared.socket = actions.share(shared.number);
        }
    }

    fn on_bytes(&mut self, shared: &mut Shared, _: &mut Actions<'_>, input: &[u8]) -> usize {
        shared.reported.push(String::from_utf8_lossy(input).into_owned());
        input.len()
    }

    fn on_end(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.reported.push("end".to_owned());
        actions.close();
    }

    fn on_deadline(&mut self, shared: &mut Shared, _: &mut Actions<'_>) {
        shared.reported.push("deadline".to_owned());
    }

    fn on_wake(&mut self, shared: &mut Shared, _: &mut Actions<'_>) {
        shared.reported.push("wake".to_owned());
    }

    fn on_shutdown(&mut self, shared: &mut Shared, actions: &mut Actions<'_>) {
        shared.reported.push("drain".to_owned());
        actions.close();
    }

    fn closed(self, shared: &mut Shared, cause: CloseCause) {
        shared.reported.push(cause.name().to_owned());
    }
}

/// Two loops, and a connection that the first one opened, shared and put down.
struct Scene {
    loops: [EventLoop<Runner>; 2],
    socket: Arc<SharedSocket>,
    peer: TcpStream,
}

impl Scene {
    fn open(driver: Driver) -> Self {
        let open = |number| {
            let shared = Shared { number, ..Shared::default() };
            EventLoop::<Runner>::open(driver, shared, Limits::default()).expect("there")
        };
        let mut loops = [open(0), open(1)];
        assert!(loops.iter().all(|each| each.shared().opened == 1));
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let peer = ListenAddress::Tcp(listener.local_addr().expect("bound"));
        let to = ConnectTo { peer, source: None };
        loops[0].connect(&to, Runner, Moment::NEVER).map_err(|(_, error)| error).expect("begun");
        let peer = listener.accept().expect("accepted").0;
        while loops[0].shared().socket.is_none() {
            turn(&mut loops[0]);
        }
        // The update that writing is not watched any more.
        turn(&mut loops[0]);
        let socket = Arc::clone(loops[0].shared().socket.as_ref().expect("shared"));
        socket.release(0);
        // It is shared already.
        loops[1].shared_mut().socket = Some(Arc::clone(&socket));
        let mut scene = Self { loops, socket, peer };
        assert_eq!(scene.reported(0), "connected");
        scene
    }

    /// What the sessions of a loop reported since the last time.
    fn reported(&mut self, number: usize) -> String {
        std::mem::take(&mut self.loops[number].shared_mut().reported).join(" ")
    }

    fn count(&self, number: usize, counter: Counter) -> u64 {
        self.loops[number].counters().value(counter)
    }

    fn changes(&self) -> u64 {
        let sent = |each: &EventLoop<Runner>| {
            each.poller_counters().expect("a readiness loop").snapshot().updates_sent
        };
        self.loops.iter().map(sent).sum()
    }

    /// The second loop takes the connection.
    fn take_over(&mut self) {
        assert!(self.socket.take(1), "no loop owns it");
        let socket = Arc::clone(&self.socket);
        let deadline = Moment::NEVER;
        let command = Command::TakeOver { socket, owner: 1, session: Runner, deadline };
        self.loops[1].shared_mut().commands.push_back(command);
        turn(&mut self.loops[1]);
    }

    /// One loop puts the connection down, and the other, which has had it before, takes it back.
    fn pass_back(&mut self, from: u32, to: u32) {
        self.socket.release(from);
        assert!(self.socket.take(to), "put down");
        let receiver = &mut self.loops[to as usize];
        let id = receiver.shared().id.expect("it has had it");
        receiver.shared_mut().commands.push_back(Command::TakeBack(id));
        turn(receiver);
        assert_eq!(self.reported(to as usize), "connected");
    }

    fn say(&mut self, word: &str) {
        self.peer.write_all(word.as_bytes()).expect("taken");
    }
}

fn turn(event_loop: &mut EventLoop<Runner>) {
    event_loop.turn(Some(Duration::from_millis(20))).expect("turned");
}

/// The drivers that can do it.
fn readiness() -> impl Iterator<Item = Driver> {
    drivers().into_iter().filter(|driver| *driver != Driver::Completion)
}

/// Those where what came is reported once.
fn is_edge(driver: Driver) -> bool {
    matches!(driver, Driver::Readiness(mechanism) if mechanism.trigger() == Trigger::Edge)
}

#[test]
fn input_goes_to_the_new_owner_and_the_old_one_lets_go_in_its_next_batch() {
    for driver in readiness() {
        let mut scene = Scene::open(driver);
        scene.take_over();
        assert_eq!(scene.reported(1), "connected", "{driver}");
        scene.say("hello");
        turn(&mut scene.loops[0]);
        assert_eq!(scene.reported(0), "", "{driver}: the event is dropped");
        assert_eq!(scene.count(0, Counter::EventsLost), 1, "{driver}");
        assert_eq!(scene.count(0, Counter::Receives), 0, "{driver}: nothing is read");
        if is_edge(driver) {
            turn(&mut scene.loops[0]);
            assert_eq!(scene.reported(0), "", "{driver}: an edge is reported once, so it may stay");
            scene.say(" you");
            turn(&mut scene.loops[0]);
            assert_eq!(scene.count(0, Counter::EventsLost), 2, "{driver}");
        }
        turn(&mut scene.loops[0]);
        assert_eq!(
            (scene.reported(0).as_str(), scene.loops[0].open_connections()),
            ("taken_over", 0)
        );
        while scene.loops[1].shared().reported.is_empty() {
            turn(&mut scene.loops[1]);
        }
        assert!(scene.reported(1).starts_with("hello"), "{driver}");
        // The end goes to the one that has it, and reaches the peer though others had duplicates.
        scene.peer.shutdown(Shutdown::Write).expect("shut");
        while scene.loops[1].open_connections() > 0 {
            turn(&mut scene.loops[1]);
        }
        assert_eq!(scene.reported(1), "end peer_closed", "{driver}");
        let ended = std::io::Read::read(&mut scene.peer, &mut [0; 8]);
        assert_eq!(ended.expect("an end"), 0, "{driver}");
    }
}

#[test]
fn a_connection_that_comes_back_in_the_same_round_costs_no_call() {
    for driver in readiness() {
        let mut scene = Scene::open(driver);
        scene.take_over();
        turn(&mut scene.loops[1]);
        scene.reported(1);
        let before = scene.changes();
        for round in 0..50 {
            let (from, to) = if round % 2 == 0 { (1, 0) } else { (0, 1) };
            scene.pass_back(from, to);
        }
        assert_eq!(scene.count(0, Counter::TakenBack), 25, "{driver}");
        assert_eq!(scene.count(0, Counter::EventsLost), 0, "{driver}");
        // Pollers that are armed for one event have nothing to do either: no event came.
        assert_eq!(scene.changes() - before, 0, "{driver}");
    }
}

#[test]
fn of_a_connection_that_went_and_came_back_once_for_each_event_an_edge_needs_no_call() {
    for driver in readiness().filter(|driver| is_edge(*driver)) {
        let mut scene = Scene::open(driver);
        scene.take_over();
        turn(&mut scene.loops[1]);
        scene.reported(1);
        let before = scene.changes();
        for round in 0..20 {
            let (from, to) = if round % 2 == 0 { (1, 0) } else { (0, 1) };
            scene.say("x");
            // Both get the event; the one that owns it reads.
            for number in [to as usize, from as usize] {
                turn(&mut scene.loops[number]);
            }
            assert_eq!(scene.reported(from as usize), "x", "{driver}");
            scene.pass_back(from, to);
        }
        let lost = [0, 1].map(|number| scene.count(number, Counter::EventsLost));
        let empty = [0, 1].map(|number| scene.count(number, Counter::ReceivesEmpty));
        assert_eq!((lost, empty), ([10, 10], [0, 0]), "{driver}");
        assert_eq!(scene.changes() - before, 0, "{driver}");
        // Of an end no second event would come.
        scene.peer.shutdown(Shutdown::Write).expect("shut");
        for _ in 0..4 {
            scene.loops.iter_mut().for_each(turn);
        }
        assert_eq!(scene.reported(1), "end peer_closed", "{driver}");
        assert_eq!(scene.reported(0), "taken_over", "{driver}");
    }
}

#[test]
fn an_event_at_the_owner_of_a_connection_that_was_put_down_is_its_own() {
    for driver in readiness() {
        let mut scene = Scene::open(driver);
        scene.say("unasked");
        while scene.loops[0].shared().reported.is_empty() {
            turn(&mut scene.loops[0]);
        }
        assert_eq!(scene.reported(0).split(' ').next(), Some("unasked"), "{driver}");
        assert!(!scene.socket.take(1), "{driver}: it owns it again");
    }
}

#[test]
fn a_wake_of_what_is_on_its_way_back_to_its_old_owner_is_dropped() {
    for driver in readiness() {
        let mut scene = Scene::open(driver);
        scene.take_over();
        assert_eq!(scene.reported(1), "connected", "{driver}");
        // The second loop gives it to the first one, which has a wake of it and has read no message yet.
        scene.socket.release(1);
        assert!(scene.socket.start_transfer(), "put down");
        let shared = scene.loops[0].shared_mut();
        let id = shared.id.expect("it has had it");
        shared.commands.push_back(Command::Wake(id));
        (0..2).for_each(|_| turn(&mut scene.loops[0]));
        assert_eq!(scene.reported(0), "taken_over", "{driver}: it would use it beside the message");
        assert_eq!(scene.count(0, Counter::EventsLost), 1, "{driver}");
        // Now the message is read.
        scene.socket.receive(0);
        let socket = Arc::clone(&scene.socket);
        let deadline = Moment::NEVER;
        let command = Command::TakeOver { socket, owner: 0, session: Runner, deadline };
        scene.loops[0].shared_mut().commands.push_back(command);
        turn(&mut scene.loops[0]);
        scene.say("hello");
        while scene.loops[0].counters().value(Counter::Receives) == 0 {
            turn(&mut scene.loops[0]);
        }
        assert_eq!(scene.reported(0), "connected hello", "{driver}");
    }
}

#[test]
fn a_connection_with_unasked_input_or_an_end_is_not_taken_over() {
    for driver in readiness() {
        for says in ["unasked", ""] {
            let mut scene = Scene::open(driver);
            if says.is_empty() {
                scene.peer.shutdown(Shutdown::Write).expect("shut");
            } else {
                scene.say(says);
            }
            let is_there = || {
                use rustix::net::{RecvFlags, recv};
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                recv(scene.socket.socket(), &mut [0; 1][..], flags).is_ok()
            };
            while !is_there() {
                std::thread::yield_now();
            }
            scene.take_over();
            assert_eq!(scene.reported(1), "peer_closed", "{driver}");
            assert_eq!(scene.loops[1].open_connections(), 0, "{driver}");
            while scene.loops[0].open_connections() > 0 {
                turn(&mut scene.loops[0]);
            }
            assert_eq!(scene.reported(0), "taken_over", "{driver}");
        }
    }
}

#[test]
fn loops_that_end_close_what_they_hold_and_leave_the_rest() {
    for driver in readiness() {
        let mut scene = Scene::open(driver);
        scene.take_over();
        scene.reported(1);
        scene.loops[0].close_all(CloseCause::LoopEnded);
        assert_eq!(scene.reported(0), "taken_over", "{driver}");
        scene.say("still there");
        while scene.loops[1].shared().reported.is_empty() {
            turn(&mut scene.loops[1]);
        }
        assert_eq!(scene.reported(1), "still there", "{driver}");
        scene.loops[1].close_all(CloseCause::LoopEnded);
        assert_eq!(scene.reported(1), "loop_ended", "{driver}");
        let ended = std::io::Read::read(&mut scene.peer, &mut [0; 8]);
        assert!(matches!(ended, Ok(0)), "{driver}: the peer sees the end: {ended:?}");
    }
}

#[test]
fn a_completion_loop_shares_no_connection() {
    for driver in drivers().into_iter().filter(|driver| *driver == Driver::Completion) {
        let outcome = Rc::new(RefCell::new(None));
        let reported = Rc::clone(&outcome);
        let mut stage = crate::puppet::Stage::open(driver, Limits::default());
        let (id, _peer) = stage.adopt(crate::puppet::Puppet::new(move |_, actions| {
            *reported.borrow_mut() = Some(actions.share(0).is_some());
            0
        }));
        stage.event_loop.wake(id);
        stage.turn_until("a call", |_| outcome.borrow().is_some());
        assert_eq!(*outcome.borrow(), Some(false));
    }
}

#[test]
fn a_takeover_is_one_registration_and_one_deregistration_in_the_next_batch() {
    // The mechanisms that the figures of the document are about.
    for mechanism in [Mechanism::Epoll, Mechanism::EpollEt] {
        let mut scene = Scene::open(Driver::Readiness(mechanism));
        let before = scene.changes();
        scene.take_over();
        turn(&mut scene.loops[1]);
        assert_eq!(scene.changes() - before, 1, "{mechanism}: the new owner registers it");
        scene.say("ring");
        turn(&mut scene.loops[0]);
        if mechanism == Mechanism::EpollEt {
            scene.say("ring");
            turn(&mut scene.loops[0]);
        }
        assert_eq!(scene.changes() - before, 1, "{mechanism}: the old one waits for its batch");
        turn(&mut scene.loops[0]);
        assert_eq!(scene.changes() - before, 2, "{mechanism}: and takes it out there");
    }
}
