//! Counts what threads do, by the records of their system calls and of their way to and from the CPU.
//!
//! ```text
//!           wait ends                    wait begins
//!  waiting ──────────▶ in a turn ──────────────────────▶ waiting
//!                       │   ▲
//!            leaves CPU ▼   │ comes back
//!                      off the CPU: asleep in a call, or held up by others
//! ```
//!
//! Where records are lost, every thread begins anew: its turn, its wait and its update are forgotten.

use std::collections::{HashMap, HashSet};

use pollux_sys::loop_stats::{
    CALLS_MAX, Call, CallRecord, Cell, Counter, Histogram, LONG_NS, NESTED_WAITS_MAX, Region, Site,
    turn_kinds,
};
use pollux_sys::perf::{Record, What};

use super::{Images, Role, SAMPLE_EVERY, TimeoutIn, role};

/// From here on a turn is long.
const EINTR: i64 = 4;
const EAGAIN: i64 = 11;
const CTL_ADD: i32 = 1;
const CTL_DEL: i32 = 2;

/// All threads that were met.
pub(super) struct Followers<'a> {
    region: Region<'a>,
    images: Images<'a>,
    threads: HashMap<u32, Follower<'a>>,
    /// Of each process.
    taken_out: HashMap<u32, TakenOut>,
    pub(super) records_lost: u64,
}

/// A thread that used epoll.
struct Follower<'a> {
    /// None where there was no room.
    cell: Option<Cell<'a>>,
    wait: Option<Wait>,
    turn: Option<Turn>,
    /// An update whose failure would be reported next.
    control: Option<Control>,
    /// The listener of a call of accept.
    accepting: Option<i32>,
    /// Where it was when it went to sleep.
    asleep_at: Option<u64>,
    left: Option<Left>,
    /// The shortest turn that is kept.
    keep_above_ns: u64,
}

struct Wait {
    began_ns: u64,
    most: i32,
    /// None where the timeout is in the program's memory.
    is_poll: Option<bool>,
    has_slept: bool,
    epfd: i32,
    /// On another instance than the one whose turn it is.
    is_nested: bool,
}

#[derive(Default)]
struct Turn {
    began_ns: u64,
    /// The instance whose turn it is; none where its wait was not seen from the start, or it was closed.
    epfd: Option<i32>,
    nested: u32,
    events: u64,
    /// Off the CPU, and of that asleep.
    off_ns: u64,
    asleep_ns: u64,
    sleeps: Vec<CallRecord>,
    sleeps_left_out: u64,
    /// Listeners that were asked by now.
    listeners: Vec<i32>,
}

struct Left {
    at_ns: u64,
    is_preempted: bool,
}

#[derive(Clone, Copy)]
struct Control {
    op: i32,
    epfd: i32,
    fd: i32,
}

/// Descriptors that were registered before, with the instance; not closed since.
#[derive(Default)]
struct TakenOut(HashSet<(i32, i32)>);

impl TakenOut {
    /// Descriptors of one process that are remembered.
    const MAX: usize = 65_536;

    fn closed(&mut self, fd: i32) {
        self.0.retain(|(epfd, of)| *epfd != fd && *of != fd);
    }

    fn took(&mut self, control: Control) {
        if self.0.len() < Self::MAX {
            self.0.insert((control.epfd, control.fd));
        }
    }

    fn put_back(&mut self, control: Control) -> bool {
        self.0.remove(&(control.epfd, control.fd))
    }
}

impl<'a> Followers<'a> {
    pub(super) fn new(region: Region<'a>) -> Self {
        Self {
            region,
            images: Images::new(region),
            threads: HashMap::new(),
            taken_out: HashMap::new(),
            records_lost: 0,
        }
    }

    /// Processes whose threads used epoll.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.taken_out.keys().copied()
    }

    /// Takes note of a record; they come in order of time.
    pub(super) fn note(&mut self, record: Record) {
        let Record { time_ns, pid, tid, what } = record;
        let what = match what {
            What::Lost(records) => return self.begin_anew(records),
            What::Passed(place, words) => Ok((role(place), words)),
            other => Err(other),
        };
        let uses_epoll = matches!(
            what,
            Ok((Role::WaitBegins(_) | Role::WaitEnds | Role::Controls | Role::Created, _))
        );
        if uses_epoll && !self.threads.contains_key(&tid) {
            let cell = self.claim(pid, tid);
            self.threads.insert(tid, Follower::new(cell));
            self.taken_out.entry(pid).or_default();
        }
        let Some(taken_out) = self.taken_out.get_mut(&pid) else { return };
        let thread = self.threads.get_mut(&tid);
        match (what, thread) {
            (Ok((role, words)), Some(thread)) => thread.called(role, words, time_ns, taken_out),
            // Any thread of the process may close.
            (Ok((Role::Closes, words)), None) => taken_out.closed(words[1] as i32),
            (Err(switch), Some(thread)) => thread.switched(switch, time_ns),
            (_, None) => {}
        }
    }

    /// Counts updates that no failure followed.
    pub(super) fn settle(&mut self) {
        for thread in self.threads.values_mut() {
            thread.settle(&mut TakenOut::default());
        }
    }

    fn claim(&mut self, pid: u32, tid: u32) -> Option<Cell<'a>> {
        let cell = self.region.claim_cell()?;
        let mut name = [0; 16];
        let path = format!("/proc/{pid}/task/{tid}/comm");
        // A thread that is gone by now has no name.
        let text = std::fs::read(path).unwrap_or_default();
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let len = text.len().min(name.len());
        name[..len].copy_from_slice(&text[..len]);
        cell.name(pid, tid, name, self.images.of(pid));
        Some(cell)
    }

    fn begin_anew(&mut self, records_lost: u64) {
        self.records_lost += records_lost;
        for thread in self.threads.values_mut() {
            thread.forget();
        }
        for taken_out in self.taken_out.values_mut() {
            taken_out.0.clear();
        }
    }
}

impl<'a> Follower<'a> {
    fn new(cell: Option<Cell<'a>>) -> Self {
        Self {
            cell,
            wait: None,
            turn: None,
            control: None,
            accepting: None,
            asleep_at: None,
            left: None,
            keep_above_ns: 0,
        }
    }

    fn forget(&mut self) {
        (self.wait, self.turn, self.control, self.left) = (None, None, None, None);
        (self.accepting, self.asleep_at) = (None, None);
    }

    fn count(&self, counter: Counter) {
        self.cell.inspect(|cell| cell.count(counter));
    }

    fn called(&mut self, role: Role, words: [u64; 7], now_ns: u64, taken_out: &mut TakenOut) {
        // Descriptors, counts and milliseconds have 32 bits, whatever stands above them.
        let argument = |index: usize| words[1 + index] as i32;
        let result = words[1].cast_signed();
        if role == Role::ControlFailed {
            self.control = None;
            return self.count(Counter::ControlsFailed);
        }
        self.settle(taken_out);
        match role {
            Role::WaitBegins(timeout) => {
                let epfd = argument(0);
                let is_nested = self.turn.as_mut().is_some_and(|turn| turn.has_nested(epfd));
                if is_nested {
                    self.count(Counter::NestedWaits);
                } else {
                    self.end_turn(now_ns);
                }
                let is_poll = (timeout == TimeoutIn::Milliseconds).then(|| argument(3) == 0);
                let began_ns = now_ns;
                let most = argument(2);
                let has_slept = false;
                self.wait = Some(Wait { began_ns, most, is_poll, has_slept, epfd, is_nested });
            }
            Role::WaitEnds => self.end_wait(result, now_ns),
            Role::Controls => {
                self.control =
                    Some(Control { op: argument(1), epfd: argument(0), fd: argument(2) });
            }
            Role::Created if result >= 0 => {
                self.count(Counter::Creates);
                taken_out.closed(result as i32);
            }
            Role::AcceptBegins => self.accepting = Some(argument(0)),
            Role::AcceptEnds => {
                if result >= 0 {
                    taken_out.closed(result as i32);
                }
                self.accepted(result);
            }
            Role::Again => {
                // For those that were not looked at.
                self.cell.inspect(|cell| cell.add(Counter::Again, SAMPLE_EVERY));
            }
            Role::Closes => {
                let fd = argument(0);
                taken_out.closed(fd);
                if let Some(turn) = &mut self.turn {
                    turn.epfd = turn.epfd.filter(|epfd| *epfd != fd);
                }
            }
            Role::Created | Role::ControlFailed => {}
        }
    }

    /// Counts the update before, which did not fail.
    fn settle(&mut self, taken_out: &mut TakenOut) {
        let Some(control) = self.control.take() else { return };
        self.count(match control.op {
            CTL_ADD => Counter::Adds,
            CTL_DEL => Counter::Dels,
            _ => Counter::Mods,
        });
        match control.op {
            CTL_ADD if taken_out.put_back(control) => self.count(Counter::Readds),
            CTL_DEL => taken_out.took(control),
            _ => {}
        }
    }

    /// Counts what accept returned; the first call of a turn on a listener is taken to be behind an event.
    fn accepted(&mut self, result: i64) {
        let first = self.accepting.take().zip(self.turn.as_mut()).is_some_and(|(fd, turn)| {
            let is_first = turn.events > 0 && !turn.listeners.contains(&fd);
            if is_first {
                turn.listeners.push(fd);
            }
            is_first
        });
        if result >= 0 {
            self.count(Counter::Accepted);
        }
        match result {
            0.. if first => self.count(Counter::AcceptsWoken),
            _ if result == -EAGAIN && first => self.count(Counter::AcceptsEmpty),
            _ => {}
        }
    }

    fn end_wait(&mut self, result: i64, now_ns: u64) {
        let wait = self.wait.take();
        let events = u64::try_from(result).unwrap_or(0);
        if !wait.as_ref().is_some_and(|wait| wait.is_nested) {
            let epfd = wait.as_ref().map(|wait| wait.epfd);
            self.turn = Some(Turn { began_ns: now_ns, epfd, events, ..Turn::default() });
        }
        let Some(cell) = self.cell else { return };
        cell.count(Counter::Waits);
        // A wait that had begun when the trace did has no length.
        if let Some(wait) = &wait {
            let lasted_ns = now_ns.saturating_sub(wait.began_ns);
            if !wait.is_nested {
                cell.add(Counter::WaitNs, lasted_ns);
            }
            cell.time(Histogram::WaitLength, lasted_ns);
        }
        if result < 0 {
            let is_signal = result == -EINTR;
            return cell.count(if is_signal { Counter::Interrupted } else { Counter::WaitsFailed });
        }
        cell.events(events);
        if events == 0 {
            // Where the timeout is in the program's memory, a wait that slept had one.
            let is_poll = |wait: &Wait| wait.is_poll.unwrap_or(!wait.has_slept);
            let is_poll = wait.as_ref().is_some_and(is_poll);
            return cell.count(if is_poll { Counter::EmptyPolls } else { Counter::TimedOut });
        }
        cell.add(Counter::Events, events);
        if wait.is_some_and(|wait| i64::from(wait.most) == result) {
            cell.count(Counter::Full);
        }
    }

    fn end_turn(&mut self, now_ns: u64) {
        let (Some(turn), Some(cell)) = (self.turn.take(), self.cell) else { return };
        let lasted_ns = now_ns.saturating_sub(turn.began_ns);
        cell.count(Counter::Turns);
        cell.add(Counter::TurnNs, lasted_ns);
        cell.time(Histogram::TurnLength, lasted_ns);
        let cpu_ns = lasted_ns.saturating_sub(turn.off_ns);
        if lasted_ns >= LONG_NS {
            judge(cell, &turn, lasted_ns, cpu_ns);
        }
        if lasted_ns > self.keep_above_ns {
            let asleep_ns = turn.asleep_ns;
            let left_out = turn.sleeps_left_out;
            let figures = [turn.began_ns, lasted_ns, cpu_ns, turn.events, left_out, asleep_ns];
            self.keep_above_ns = cell.turn(figures, &turn.sleeps);
        }
    }

    fn switched(&mut self, switch: What, now_ns: u64) {
        match switch {
            What::Sleeps(place) => self.asleep_at = place,
            What::Left { is_preempted } => {
                self.left = Some(Left { at_ns: now_ns, is_preempted });
                if let Some(wait) = &mut self.wait {
                    wait.has_slept |= !is_preempted;
                }
            }
            What::Came => {
                let left = self.left.take();
                let place = self.asleep_at.take();
                // In a wait it is where it should be.
                let is_in_turn = self.wait.as_ref().is_none_or(|wait| wait.is_nested);
                if let (Some(left), Some(turn), true) = (left, &mut self.turn, is_in_turn) {
                    turn.was_off(&left, now_ns, place);
                }
            }
            What::Passed(..) | What::Lost(_) => {}
        }
    }
}

impl Turn {
    /// Whether a wait is on another instance: a loop within a callback, whose waits are a part of this turn.
    fn has_nested(&mut self, epfd: i32) -> bool {
        self.nested += 1;
        self.nested <= NESTED_WAITS_MAX && self.epfd.is_some_and(|own| own != epfd)
    }

    fn was_off(&mut self, left: &Left, now_ns: u64, place: Option<u64>) {
        let since_ns = left.at_ns.max(self.began_ns);
        let lasted_ns = now_ns.saturating_sub(since_ns);
        self.off_ns += lasted_ns;
        if left.is_preempted {
            return;
        }
        self.asleep_ns += lasted_ns;
        let caller = place.unwrap_or(0);
        let after_ns = since_ns - self.began_ns;
        if let Some(sleep) = self.sleeps.iter_mut().find(|sleep| sleep.caller == caller) {
            sleep.times += 1;
            sleep.lasted_ns += lasted_ns;
            if lasted_ns > sleep.longest_ns {
                (sleep.longest_ns, sleep.after_ns) = (lasted_ns, after_ns);
            }
        } else if self.sleeps.len() < CALLS_MAX {
            let call = Call::Asleep;
            let longest_ns = lasted_ns;
            let sleep =
                CallRecord { call, times: 1, fd: -1, caller, after_ns, lasted_ns, longest_ns };
            self.sleeps.push(sleep);
        } else {
            self.sleeps_left_out += 1;
        }
    }
}

/// Says what a long turn did with its time.
fn judge(cell: Cell<'_>, turn: &Turn, lasted_ns: u64, cpu_ns: u64) {
    cell.count(Counter::TurnsLong);
    let kinds = turn_kinds(lasted_ns, cpu_ns, turn.asleep_ns);
    if kinds.computed {
        cell.count(Counter::TurnsComputed);
        cell.add(Counter::ComputedNs, cpu_ns);
    }
    if kinds.blocked {
        cell.count(Counter::TurnsBlocked);
        cell.add(Counter::BlockedNs, turn.asleep_ns);
        let longest = turn.sleeps.iter().max_by_key(|sleep| sleep.longest_ns);
        longest.inspect(|sleep| cell.site(Site::Blocked, sleep.caller));
    }
    if !kinds.computed && !kinds.blocked {
        cell.count(Counter::TurnsHeldUp);
    }
}

#[cfg(test)]
mod tests {
    use super::super::followed;
    use super::*;
    use crate::{Source, Summary};
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    /// A thread whose calls are passed to followers.
    struct Traced<'a> {
        followers: Followers<'a>,
        now_ns: u64,
    }

    impl Traced<'_> {
        fn call(&mut self, name: &str, arguments: &[i64]) {
            let place = followed().iter().position(|one| one.point.name == name);
            let mut words = [0; 7];
            let arguments = arguments.iter().map(|argument| argument.cast_unsigned());
            words[1..].iter_mut().zip(arguments).for_each(|(to, from)| *to = from);
            self.is(What::Passed(place.expect("a call that is followed"), words));
        }

        fn is(&mut self, what: What) {
            // No process has this number, so nothing is read of one.
            self.followers.note(Record { time_ns: self.now_ns, pid: u32::MAX, tid: 7, what });
            self.now_ns += 1000;
        }

        fn off(&mut self, what: What, lasted_ns: u64) {
            self.is(what);
            self.now_ns += lasted_ns;
            self.is(What::Came);
        }
    }

    /// The figures of a thread that did this.
    fn figures(does: impl FnOnce(&mut Traced<'_>)) -> Summary {
        let memory = crate::attach::memory();
        let region = Region::begin(&memory).expect("room");
        let mut traced = Traced { followers: Followers::new(region), now_ns: 5000 };
        does(&mut traced);
        traced.followers.settle();
        let source = Source::Tracepoints { records_lost: traced.followers.records_lost };
        Summary::of(region, Duration::from_secs(1), source)
    }

    fn assert_counts(summary: &Summary, expected: &[(Counter, u64)]) {
        for (counter, count) in expected {
            assert_eq!(summary.get(*counter), *count, "{}", counter.name());
        }
    }

    #[test]
    fn waits_are_distinguished_by_their_result_and_timeout() {
        let summary = figures(|traced| {
            for (timeout, result) in [(0, 0), (-1, -4), (50, 0), (-1, 3), (-1, 64), (-1, -22)] {
                traced.call("sys_enter_epoll_wait", &[4, 0, 64, timeout]);
                traced.call("sys_exit_epoll_wait", &[result]);
            }
            // 32 bits of the timeout count, and its sign.
            traced.call("sys_enter_epoll_pwait", &[4, 0, 64, 1 << 32]);
            traced.call("sys_exit_epoll_pwait", &[0]);
        });
        assert_counts(
            &summary,
            &[
                (Counter::Waits, 7),
                (Counter::EmptyPolls, 2),
                (Counter::TimedOut, 1),
                (Counter::Interrupted, 1),
                (Counter::WaitsFailed, 1),
                (Counter::Events, 67),
                (Counter::Full, 1),
                (Counter::WaitNs, 7000),
                (Counter::Turns, 6),
                (Counter::TurnNs, 6000),
            ],
        );
    }

    #[test]
    fn a_timeout_in_memory_is_recognised_by_whether_the_thread_slept() {
        let summary = figures(|traced| {
            traced.call("sys_enter_epoll_pwait2", &[4, 0, 64, 0x7fff_0000]);
            traced.call("sys_exit_epoll_pwait2", &[0]);
            traced.call("sys_enter_epoll_pwait2", &[4, 0, 64, 0x7fff_0000]);
            traced.off(What::Left { is_preempted: false }, 3 * MS);
            traced.call("sys_exit_epoll_pwait2", &[0]);
        });
        assert_counts(&summary, &[(Counter::EmptyPolls, 1), (Counter::TimedOut, 1)]);
    }

    #[test]
    fn an_update_counts_where_it_did_not_fail() {
        let summary = figures(|traced| {
            traced.call("sys_enter_epoll_ctl", &[4, 1, 9, 0]);
            traced.call("sys_exit_epoll_ctl", &[-17]);
            traced.call("sys_enter_epoll_ctl", &[4, 1, 9, 0]);
            traced.call("sys_enter_epoll_ctl", &[4, 3, 9, 0]);
            traced.call("sys_enter_epoll_ctl", &[4, 2, 9, 0]);
        });
        let expected = [Counter::Adds, Counter::Mods, Counter::Dels, Counter::ControlsFailed]
            .map(|of| (of, 1));
        assert_counts(&summary, &expected);
    }

    #[test]
    fn registered_anew_is_what_stayed_open() {
        let summary = figures(|traced| {
            for closes in [false, true, false] {
                traced.call("sys_enter_epoll_ctl", &[4, 1, 9, 0]);
                traced.call("sys_enter_epoll_ctl", &[4, 2, 9, 0]);
                if closes {
                    traced.call("sys_enter_close", &[9]);
                }
            }
            // Another instance, and a number that accept gave out anew.
            traced.call("sys_enter_epoll_ctl", &[5, 1, 9, 0]);
            traced.call("sys_enter_epoll_ctl", &[5, 2, 9, 0]);
            traced.call("sys_enter_accept4", &[3]);
            traced.call("sys_exit_accept4", &[9]);
            traced.call("sys_enter_epoll_ctl", &[5, 1, 9, 0]);
        });
        assert_counts(
            &summary,
            &[(Counter::Adds, 5), (Counter::Readds, 1), (Counter::Accepted, 1)],
        );
    }

    #[test]
    fn the_first_accept_of_a_turn_tells_whether_the_wake_was_for_something() {
        let accept = |traced: &mut Traced<'_>, listener, result| {
            traced.call("sys_enter_accept", &[listener]);
            traced.call("sys_exit_accept", &[result]);
        };
        let summary = figures(|traced| {
            traced.call("sys_exit_epoll_wait", &[2]);
            accept(traced, 3, 10);
            accept(traced, 3, -11);
            accept(traced, 4, -11);
            // Behind no event.
            traced.call("sys_exit_epoll_wait", &[0]);
            accept(traced, 3, -11);
        });
        let expected =
            [Counter::Accepted, Counter::AcceptsWoken, Counter::AcceptsEmpty].map(|of| (of, 1));
        assert_counts(&summary, &expected);
    }

    #[test]
    fn one_wait_and_one_event_are_not_several() {
        let summary = figures(|traced| {
            traced.call("sys_exit_epoll_wait", &[1]);
        });
        let total = summary.total.as_ref().expect("a thread");
        let said = crate::show::answer(&summary, total, "1 s");
        assert!(said.starts_with("1 wait and 1 event in 1 s, by one process; "), "{said}");
    }

    #[test]
    fn long_turns_are_judged_by_where_their_time_went() {
        let turn = |traced: &mut Traced<'_>, does: &dyn Fn(&mut Traced<'_>)| {
            traced.call("sys_exit_epoll_wait", &[1]);
            does(traced);
            traced.call("sys_enter_epoll_wait", &[4, 0, 64, -1]);
        };
        let summary = figures(|traced| {
            turn(traced, &|traced| {
                traced.is(What::Sleeps(Some(0x1234)));
                traced.off(What::Left { is_preempted: false }, 20 * MS);
            });
            turn(traced, &|traced| traced.now_ns += 12 * MS);
            turn(traced, &|traced| traced.off(What::Left { is_preempted: true }, 30 * MS));
            // Both: more of it asleep, but long enough on the CPU to hold up everything else.
            turn(traced, &|traced| {
                traced.now_ns += 11 * MS;
                traced.is(What::Sleeps(Some(0x9abc)));
                traced.off(What::Left { is_preempted: false }, 14 * MS);
            });
            // A loop within a callback.
            turn(traced, &|traced| {
                traced.call("sys_enter_epoll_wait", &[7, 0, 64, -1]);
                traced.is(What::Sleeps(Some(0x5678)));
                traced.off(What::Left { is_preempted: false }, 40 * MS);
                traced.call("sys_exit_epoll_wait", &[1]);
            });
        });
        assert_counts(
            &summary,
            &[
                (Counter::TurnsLong, 5),
                (Counter::TurnsBlocked, 3),
                (Counter::TurnsComputed, 2),
                (Counter::TurnsHeldUp, 1),
                (Counter::NestedWaits, 1),
            ],
        );
        let turns = summary.total.expect("a thread").turns;
        let cpu: Vec<u64> = turns.iter().map(|turn| turn.cpu_ns / MS).collect();
        assert_eq!(cpu, [0, 0, 11, 0], "the longest first: nested, held up, both, asleep");
        assert_eq!((turns[0].calls[0].call, turns[0].calls[0].caller), (Call::Asleep, 0x5678));
        assert_eq!((turns[3].calls[0].call, turns[3].calls[0].caller), (Call::Asleep, 0x1234));
    }

    #[test]
    fn what_lies_around_lost_records_is_left_out() {
        let summary = figures(|traced| {
            traced.call("sys_enter_epoll_wait", &[4, 0, 64, -1]);
            traced.call("sys_exit_epoll_wait", &[1]);
            traced.call("sys_enter_epoll_ctl", &[4, 2, 9, 0]);
            traced.is(What::Lost(900));
            traced.now_ns += 50 * MS;
            traced.call("sys_enter_epoll_wait", &[4, 0, 64, -1]);
            traced.is(What::Lost(30));
            traced.call("sys_exit_epoll_wait", &[1]);
        });
        let expected = [(Counter::Waits, 2), (Counter::Turns, 0), (Counter::Dels, 0)];
        assert_counts(&summary, &expected);
        assert_eq!(summary.get(Counter::WaitNs), 1000, "the second wait has no beginning");
        assert_eq!(summary.source.records_lost(), 930);
    }

    #[test]
    fn threads_without_epoll_are_none() {
        let summary = figures(|traced| {
            traced.call("sys_enter_close", &[9]);
            traced.call("sys_exit_read", &[-11]);
            traced.off(What::Left { is_preempted: false }, MS);
        });
        assert!(summary.total.is_none());
    }
}
