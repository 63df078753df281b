//! Scripts that random operations do not reach, run on the simulated poller and on epoll: what
//! duplicates keep alive, which watcher comes first, what is refused. Both must give the same answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use pollux_conformance::sim::{SimFd, World};
use pollux_poller::{
    Error, Events, Interest, Mechanism, Poller, Readiness, Registration, Token, Trigger,
};
use rustix::pipe::PipeFlags;

/// Descriptors and pollers of one kind: real or simulated.
trait Side {
    type Fd: AsFd;
    fn open(&self) -> Box<dyn Poller>;
    fn pipe(&self) -> (Self::Fd, Self::Fd);
    fn dup(&self, fd: &Self::Fd) -> Self::Fd;
    fn write(&self, fd: &Self::Fd);
}

struct Real;

impl Side for Real {
    type Fd = OwnedFd;

    fn open(&self) -> Box<dyn Poller> {
        Mechanism::Epoll.open().expect("every Linux has epoll")
    }

    fn pipe(&self) -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe_with(PipeFlags::NONBLOCK).expect("descriptors are left")
    }

    fn dup(&self, fd: &OwnedFd) -> OwnedFd {
        rustix::io::dup(fd).expect("descriptors are left")
    }

    fn write(&self, fd: &OwnedFd) {
        rustix::io::write(fd, b"x").expect("the byte fits into the pipe");
    }
}

impl Side for World {
    type Fd = SimFd;

    fn open(&self) -> Box<dyn Poller> {
        World::open(self)
    }

    fn pipe(&self) -> (SimFd, SimFd) {
        World::pipe(self)
    }

    fn dup(&self, fd: &SimFd) -> SimFd {
        World::dup(self, fd)
    }

    fn write(&self, fd: &SimFd) {
        World::write(self, fd, 1).expect("the byte fits into the pipe");
    }
}

/// A poller and what it said so far.
struct Record {
    poller: Box<dyn Poller>,
    lines: Vec<String>,
}

const READ_LEVEL: Registration = Registration::new(Interest::READABLE, Trigger::Level);
const READ_EDGE: Registration = Registration::new(Interest::READABLE, Trigger::Edge);
const READ_ONESHOT: Registration = Registration::new(Interest::READABLE, Trigger::Oneshot);

impl Record {
    fn of(side: &impl Side) -> Self {
        Self { poller: side.open(), lines: Vec::new() }
    }

    fn add(&mut self, fd: BorrowedFd<'_>, slot: u32, how: Registration) {
        let outcome = self.poller.add(fd, Token::new(slot, 0), how);
        self.note("add", &outcome);
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, slot: u32, how: Registration) {
        let outcome = self.poller.modify(fd, Token::new(slot, 0), how);
        self.note("modify", &outcome);
    }

    fn delete(&mut self, fd: BorrowedFd<'_>) {
        let outcome = self.poller.delete(fd);
        self.note("delete", &outcome);
    }

    fn note(&mut self, verb: &str, outcome: &Result<(), Error>) {
        let errno = outcome.as_ref().map_err(Error::raw_os_error);
        self.lines.push(format!("{verb}: {errno:?}"));
    }

    /// Looks once for up to `capacity` events.
    fn look(&mut self, capacity: usize) {
        let mut events = Events::with_capacity(capacity);
        self.poller.wait(&mut events, Some(Duration::ZERO)).expect("waits do not fail here");
        let seen: Vec<(u32, Readiness)> =
            events.iter().map(|event| (event.token.slot(), event.readiness)).collect();
        self.lines.push(format!("look: {seen:?}"));
    }

    fn end(mut self) -> Vec<String> {
        let counters = self.poller.counters().snapshot();
        self.lines.push(format!("{counters:?}"));
        self.lines
    }
}

macro_rules! same_on_both {
    ($($(#[$doc:meta])* $name:ident => $script:ident;)*) => {
        $($(#[$doc])* #[test] fn $name() {
            assert_eq!($script(&World::new()), $script(&Real));
        })*
    };
}

same_on_both! {
    a_duplicate_keeps_a_closed_number_reporting => duplicate_lives_on;
    a_number_used_again_receives_nothing_of_its_former_file => number_is_reused;
    ready_descriptors_take_turns => turns;
    each_write_is_an_edge_and_modify_shows_it_again => edges;
    oneshot_hides_even_the_hang_up_until_modified => oneshot;
    exclusive_refuses_what_epoll_refuses => exclusive;
    wrong_changes_are_refused_alike => refusals;
}

fn duplicate_lives_on<S: Side>(side: &S) -> Vec<String> {
    let mut record = Record::of(side);
    let (reader, writer) = side.pipe();
    record.add(reader.as_fd(), 1, READ_LEVEL);
    let twin = side.dup(&reader);
    record.add(twin.as_fd(), 2, READ_LEVEL);
    drop(reader);
    side.write(&writer);
    record.look(8);
    record.delete(twin.as_fd());
    record.look(8);
    drop(twin);
    record.look(8);
    record.end()
}

/// The lowest free number is given to the next descriptor; other tests of this binary run at the
/// same time, so the script continues only when it got its number back.
fn number_is_reused<S: Side>(side: &S) -> Vec<String> {
    use std::os::fd::AsRawFd;
    for _ in 0..10_000 {
        let mut record = Record::of(side);
        let (reader, writer) = side.pipe();
        let (other, _other_writer) = side.pipe();
        record.add(reader.as_fd(), 1, READ_LEVEL);
        let twin = side.dup(&reader);
        side.write(&writer);
        let number = reader.as_fd().as_raw_fd();
        drop(reader);
        let successor = side.dup(&other);
        if successor.as_fd().as_raw_fd() != number {
            continue;
        }
        record.modify(successor.as_fd(), 1, READ_LEVEL);
        record.add(successor.as_fd(), 3, READ_LEVEL);
        record.look(8);
        drop(twin);
        record.look(8);
        return record.end();
    }
    panic!("the number of a closed descriptor never came back");
}

fn turns<S: Side>(side: &S) -> Vec<String> {
    let mut record = Record::of(side);
    let pipes: Vec<_> = (0..6).map(|_| side.pipe()).collect();
    for (slot, (reader, writer)) in (0..).zip(&pipes) {
        record.add(reader.as_fd(), slot, if slot == 3 { READ_EDGE } else { READ_LEVEL });
        side.write(writer);
    }
    for capacity in [2, 2, 2, 2, 3, 4, 1, 8] {
        record.look(capacity);
    }
    record.end()
}

fn edges<S: Side>(side: &S) -> Vec<String> {
    let mut record = Record::of(side);
    let (reader, writer) = side.pipe();
    record.add(reader.as_fd(), 1, READ_EDGE);
    record.look(8);
    for _ in 0..2 {
        side.write(&writer);
        side.write(&writer);
        record.look(8);
        record.look(8);
    }
    record.modify(reader.as_fd(), 2, READ_EDGE);
    record.look(8);
    drop(writer);
    record.look(8);
    record.look(8);
    record.end()
}

fn oneshot<S: Side>(side: &S) -> Vec<String> {
    let mut record = Record::of(side);
    let (reader, writer) = side.pipe();
    record.add(reader.as_fd(), 1, READ_ONESHOT);
    side.write(&writer);
    record.look(8);
    record.look(8);
    drop(writer);
    record.look(8);
    record.modify(reader.as_fd(), 1, Registration::new(Interest::NONE, Trigger::Oneshot));
    record.look(8);
    record.look(8);
    record.end()
}

fn exclusive<S: Side>(side: &S) -> Vec<String> {
    let mut record = Record::of(side);
    let (reader, writer) = side.pipe();
    let fd = reader.as_fd();
    let with_rdhup = Registration::new(Interest::READABLE | Interest::RDHUP, Trigger::Level);
    record.add(fd, 1, READ_ONESHOT.exclusive());
    record.add(fd, 1, with_rdhup.exclusive());
    record.add(fd, 1, Registration::new(Interest::PRIORITY, Trigger::Edge).exclusive());
    record.add(fd, 1, READ_EDGE.exclusive());
    record.modify(fd, 1, READ_EDGE);
    side.write(&writer);
    record.look(8);
    record.delete(fd);
    record.add(fd, 1, READ_LEVEL);
    record.modify(fd, 1, READ_LEVEL.exclusive());
    record.look(8);
    record.end()
}

fn refusals<S: Side>(side: &S) -> Vec<String> {
    let mut record = Record::of(side);
    let (reader, _writer) = side.pipe();
    record.modify(reader.as_fd(), 1, READ_LEVEL);
    record.delete(reader.as_fd());
    record.add(reader.as_fd(), 1, READ_LEVEL);
    record.add(reader.as_fd(), 1, READ_LEVEL);
    record.delete(reader.as_fd());
    record.delete(reader.as_fd());
    let file = std::fs::File::open("/proc/self/exe").expect("the test is a file");
    record.add(file.as_fd(), 9, READ_LEVEL);
    record.end()
}
