//! The processes of a program: the first ones and all that they have started, now and later.
//!
//! Workers come and go, and a program may leave the process that was started (a daemon): in
//! [`Tree::of_this_process`] orphans become children of this one and stay in the tree.
//!
//! CPU time of what lives is exact. A process that has ended between two looks is counted with
//! what it had at the last look, or with what its parent waited for, whichever is more; the kernel
//! shows the latter in ticks of 10 ms.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use pollux_sys::process::process_cpu_time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Error;
use super::proc::{Stat, pids, threads_of};
use crate::patience;

/// Longest wait for the end of one of them.
const END_LOOK: Duration = Duration::from_millis(50);
/// How long after its number was given out a process may come into sight.
const APPEARS_WITHIN: Duration = Duration::from_millis(100);
/// Looks at a tree that grows while it is read.
const GROWING_LOOKS_MAX: u32 = 3;

/// Processes of one program.
pub struct Tree {
    members: HashMap<u32, Member>,
    /// Processes that were looked at and are not of the tree.
    unrelated: HashSet<u32>,
    /// Whether children of this process belong to the tree, and end with it.
    adopts: bool,
    /// What processes had used whose parent is not in the tree, and that have ended.
    gone: Duration,
    /// Processes that have ended so far.
    ended: u64,
    /// Whether all processes of this machine have to be looked through.
    newest: Newest,
}

/// The process that was started last on this machine, where that is known.
struct Newest {
    pid: Option<u32>,
    /// When it was seen first.
    since: Instant,
    /// When processes were looked through last; none where one could not be placed.
    looked_through: Option<Instant>,
}

/// A process of the tree.
struct Member {
    parent: u32,
    /// Ticks from the start of the machine to its own: with its number it is unique.
    started: u64,
    /// Means this process also when its number is another one's; none where that is forbidden.
    handle: Option<OwnedFd>,
    /// CPU time at the last look.
    used: Duration,
    /// CPU time of those of its children that have ended.
    by_children: Duration,
    /// Whether it has ended, and only its parent has not noticed yet.
    is_zombie: bool,
}

impl Tree {
    /// Of these processes and what they start.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn of(roots: &[u32]) -> io::Result<Self> {
        let members = roots.iter().map(|pid| {
            let stat = Stat::of(*pid).ok_or_else(|| io::Error::from(Errno::SRCH))?;
            Ok((*pid, Member::new(*pid, stat)))
        });
        let members = members.collect::<io::Result<_>>()?;
        let unrelated = HashSet::new();
        let gone = Duration::ZERO;
        let newest = Newest { pid: None, since: Instant::now(), looked_through: None };
        let mut tree = Self { members, unrelated, adopts: false, gone, ended: 0, newest };
        tree.look();
        Ok(tree)
    }

    /// Of what this process starts from now on, but what is left out, and of what that starts. It is
    /// ended with this handle. For a process that has one tree.
    ///
    /// # Errors
    /// Orphans cannot be obtained as children.
    pub fn of_this_process() -> Result<Self, Error> {
        // Any process will do: the kernel takes it as "yes".
        let yes = Some(rustix::process::getpid());
        rustix::process::set_child_subreaper(yes).map_err(Error::io("prctl"))?;
        let mut tree = Self::of(&[]).map_err(|cause| Error::Io { call: "open", cause })?;
        tree.adopts = true;
        Ok(tree)
    }

    /// The CPUs that some of its threads may use.
    pub fn cpus(&self) -> Vec<usize> {
        let sets = threads_of(&self.pids()).into_iter();
        let sets: Vec<CpuSet> =
            sets.filter_map(|(_, tid)| sched_getaffinity(Pid::from_raw(tid as i32)).ok()).collect();
        let is_used = |cpu: &usize| sets.iter().any(|set| set.is_set(*cpu));
        (0..CpuSet::MAX_CPU).filter(is_used).collect()
    }

    /// Says that these children of this process are none of the tree's.
    pub fn leaves_out(&mut self, others: &[u32]) {
        self.unrelated.extend(others);
    }

    /// Their numbers, those last that were started last.
    pub fn pids(&self) -> Vec<u32> {
        let mut members: Vec<(u64, u32)> =
            self.members.iter().map(|(pid, member)| (member.started, *pid)).collect();
        members.sort_unstable();
        members.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Whether one of them still runs, by a look at all of them. While none does they are looked at again until no
    /// other comes into sight: a daemon starts its process and leaves, perhaps between the reads of one look.
    pub fn is_alive(&mut self) -> bool {
        self.look();
        loop {
            if self.members.values().any(|member| !member.is_zombie) {
                return true;
            }
            let known = self.pids();
            self.look();
            if self.members.keys().all(|pid| known.contains(pid)) {
                return false;
            }
        }
    }

    /// How many of them have ended since the beginning.
    pub const fn ended(&self) -> u64 {
        self.ended
    }

    /// CPU time of all since they started, when it does not grow any more: `until_asleep` is handed
    /// what reads it, and returns when that says the same twice.
    pub fn cpu_time_asleep(&mut self, until_asleep: impl Fn(&dyn Fn() -> Duration)) -> Duration {
        let mut sum = Duration::ZERO;
        for _ in 0..GROWING_LOOKS_MAX {
            let known = self.pids();
            let used = |pid: &u32| process_cpu_time(*pid).unwrap_or_default();
            until_asleep(&|| known.iter().map(used).sum());
            sum = self.look();
            if self.members.keys().all(|pid| known.contains(pid)) {
                break;
            }
        }
        sum
    }

    /// Reads which processes are there: CPU time of all since they started.
    pub fn look(&mut self) -> Duration {
        self.find_new();
        // Parents before children: what a parent has waited for is not counted as its child's.
        let stats: HashMap<u32, Option<Stat>> =
            self.members.keys().map(|pid| (*pid, Stat::of(*pid))).collect();
        let mut ended = Vec::new();
        for (pid, member) in &mut self.members {
            let stat = stats[pid].as_ref().filter(|stat| stat.started == member.started);
            match (stat, process_cpu_time(*pid)) {
                (Some(stat), Ok(used)) => {
                    (member.parent, member.is_zombie) = (stat.parent, stat.is_zombie);
                    member.used = used.max(member.used);
                }
                _ => ended.push(*pid),
            }
        }
        for pid in ended {
            self.ended += 1;
            let Some(member) = self.members.remove(&pid) else { continue };
            let used = member.used + member.by_children;
            match self.members.get_mut(&member.parent) {
                Some(parent) => parent.by_children += used,
                None => self.gone += used,
            }
        }
        for (pid, member) in &mut self.members {
            if let Some(Some(stat)) = stats.get(pid) {
                member.by_children = member.by_children.max(stat.by_children);
            }
        }
        let used: Duration = self.members.values().map(|m| m.used + m.by_children).sum();
        used + self.gone
    }

    /// Takes in processes that were not there at the last look and come from a member.
    fn find_new(&mut self) {
        if !self.newest.may_be_unseen() {
            return;
        }
        let there: HashSet<u32> = pids().collect();
        self.unrelated.retain(|pid| there.contains(pid));
        let is_new =
            |pid: &&u32| !self.unrelated.contains(*pid) && !self.members.contains_key(*pid);
        let new = there.iter().filter(is_new);
        let mut new: Vec<(u32, Stat)> =
            new.filter_map(|pid| Some((*pid, Stat::of(*pid)?))).collect();
        let this = std::process::id();
        loop {
            let is_ours = |stat: &Stat| {
                self.members.contains_key(&stat.parent) || (self.adopts && stat.parent == this)
            };
            let (ours, others): (Vec<_>, Vec<_>) =
                new.into_iter().partition(|(_, stat)| is_ours(stat));
            new = others;
            if ours.is_empty() {
                break;
            }
            self.members.extend(ours.into_iter().map(|(pid, stat)| (pid, Member::new(pid, stat))));
        }
        // One whose parent ended between these reads may be a member's by now: it is looked at again.
        let others: HashSet<u32> = new.iter().map(|(pid, _)| *pid).collect();
        let is_settled = |parent: u32| {
            parent == 0 || others.contains(&parent) || self.unrelated.contains(&parent)
        };
        let (settled, unsettled): (Vec<_>, Vec<_>) =
            new.into_iter().partition(|(_, stat)| is_settled(stat.parent));
        self.unrelated.extend(settled.into_iter().map(|(pid, _)| pid));
        if !unsettled.is_empty() {
            self.newest.looked_through = None;
        }
    }

    /// Puts every thread on one CPU.
    ///
    /// # Errors
    /// The process that may not be moved, with the reason.
    pub fn pin(&mut self, cpu: usize) -> Result<(), (u32, Errno)> {
        self.look();
        let mut only = CpuSet::new();
        only.set(cpu);
        for (pid, tid) in threads_of(&self.pids()) {
            match sched_setaffinity(Pid::from_raw(tid as i32), &only) {
                // One that has ended meanwhile needs no place.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err((pid, errno)),
            }
        }
        Ok(())
    }

    /// Ends all: asks each of them, as a service manager does, waits, and kills those that are left.
    pub fn end(&mut self) {
        self.look();
        self.signal(Signal::TERM);
        let start = Instant::now();
        let mut has_killed = false;
        while self.is_alive() && start.elapsed() < patience::PROCESS_ENDS * 2 {
            if start.elapsed() > patience::PROCESS_ENDS {
                // Again and again: one may have started another meanwhile.
                has_killed = true;
                self.signal(Signal::KILL);
            }
            self.wait_for_an_end(END_LOOK);
        }
        if !has_killed {
            self.signal(Signal::KILL);
        }
    }

    /// Kills all at once, for what is known not to end when it is asked to.
    pub fn kill(&mut self) {
        let start = Instant::now();
        while self.is_alive() && start.elapsed() < patience::PROCESS_ENDS {
            self.signal(Signal::KILL);
            self.wait_for_an_end(END_LOOK);
        }
    }

    /// Waits until one that runs has ended, for `at_most`.
    pub fn wait_for_an_end(&self, at_most: Duration) {
        let mut runs = self.members.values().filter(|member| !member.is_zombie);
        let mut fds: Vec<PollFd<'_>> = runs
            .find_map(|member| member.handle.as_ref())
            .map(|handle| PollFd::new(handle, PollFlags::IN))
            .into_iter()
            .collect();
        let time = Timespec::try_from(at_most).expect("a part of a second");
        // A wait that was interrupted is tried again.
        let _ = poll(&mut fds, Some(&time));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        for handle in self.members.values().filter_map(|member| member.handle.as_ref()) {
            // One that has ended does not mind.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

impl Newest {
    /// Whether a process may be there that was not when processes were looked through last; they are
    /// looked through now if so. As long as the number that was given out last, to a process or a thread,
    /// stays the same (`proc_loadavg(5)`), no other was started; but it is given out a moment before its
    /// process can be seen.
    fn may_be_unseen(&mut self) -> bool {
        let loadavg = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let pid = loadavg.split_ascii_whitespace().last().and_then(|pid| pid.parse().ok());
        let now = Instant::now();
        if pid.is_none() || pid != self.pid {
            (self.pid, self.since, self.looked_through) = (pid, now, None);
        }
        let appeared = self.since + APPEARS_WITHIN;
        let may_be = self.looked_through.is_none_or(|last| last < appeared);
        if may_be {
            self.looked_through = Some(now);
        }
        may_be
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.adopts {
            self.end();
        }
    }
}

impl Member {
    fn new(pid: u32, stat: Stat) -> Self {
        let Stat { parent, started, by_children, is_zombie } = stat;
        let handle = Pid::from_raw(pid as i32);
        let handle = handle.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let used = process_cpu_time(pid).unwrap_or_default();
        Self { parent, started, handle, used, by_children, is_zombie }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use pollux_testing::{await_end, wait_for, wait_until};

    use super::*;

    fn shell(line: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("a shell")
    }

    /// Looks until there are at least so many.
    fn look_until(tree: &mut Tree, processes: usize) {
        wait_until(format_args!("a tree of {processes}"), || {
            tree.look();
            tree.pids().len() >= processes
        });
    }

    /// A loop that takes some CPU time in a shell.
    const BUSY: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";

    #[test]
    fn workers_that_come_and_go_are_counted() {
        // Three that end, one after the other, and one that stays; the shell itself does little.
        let line =
            format!("for n in 1 2 3; do ( {BUSY} ); done; ( {BUSY}; exec sleep 600 ) & wait");
        let mut child = shell(&line);
        let mut tree = Tree::of(&[child.id()]).expect("a shell");
        let mut last = Duration::ZERO;
        let used = wait_for("the sleep", || {
            let used = tree.look();
            assert!(used >= last, "it never goes back: {used:?} after {last:?}");
            last = used;
            let last_one = tree.pids().last().copied().unwrap_or_default();
            let name = std::fs::read_to_string(format!("/proc/{last_one}/comm"));
            name.is_ok_and(|name| name.trim() == "sleep").then_some(used)
        });
        assert_eq!(tree.pids().len(), 2, "the shell and its sleep");
        let one = tree.members.values().map(|member| member.used).max().expect("two of them");
        assert!(used > one * 5 / 2, "{used:?} in all, the last one {one:?}");
        tree.end();
        child.wait().expect("it was killed");
        assert!(!tree.is_alive());
    }

    #[test]
    fn the_time_of_a_whole_tree_stands_still_when_it_sleeps() {
        let mut child = shell(&format!("( {BUSY}; exec sleep 600 ) & ( exec sleep 600 ) & wait"));
        let mut tree = Tree::of(&[child.id()]).expect("a shell");
        look_until(&mut tree, 3);
        let twice = |used: &dyn Fn() -> Duration| while used() != used() {};
        wait_until("sleep", || tree.cpu_time_asleep(twice) == tree.cpu_time_asleep(twice));
        tree.end();
        child.wait().expect("it was killed");
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed_with_what_it_started() {
        let mut child = shell("trap '' TERM; ( trap '' TERM; sleep 600 ) & wait; wait");
        let mut tree = Tree::of(&[child.id()]).expect("a shell");
        look_until(&mut tree, 2);
        let pids = tree.pids();
        tree.end();
        child.wait().expect("it was killed");
        pids.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)).for_each(await_end);
    }

    #[test]
    fn a_whole_tree_is_put_on_one_cpu() {
        let mut child = shell("sleep 600 & sleep 600 & wait");
        let mut tree = Tree::of(&[child.id()]).expect("a shell");
        look_until(&mut tree, 3);
        let ours = sched_getaffinity(None).expect("our CPUs");
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| ours.is_set(*cpu)).expect("a CPU");
        tree.pin(cpu).expect("they are ours");
        for (_, tid) in threads_of(&tree.pids()) {
            let set = sched_getaffinity(Pid::from_raw(tid as i32)).expect("it sleeps");
            assert_eq!((set.count(), set.is_set(cpu)), (1, true));
        }
        tree.end();
        child.wait().expect("it was killed");
    }

    #[test]
    fn a_process_that_is_not_there_has_no_tree() {
        let mut child = shell("exit 0");
        let pid = child.id();
        child.wait().expect("it ends");
        assert!(Tree::of(&[pid]).is_err());
    }
}
