//! What one thread or process has used: CPU, waiting, switches, page faults.
//!
//! A measured process reads its own use around its window; the runner reads that of its children.
//! Everything comes from `/proc` and needs no rights over one's own tasks. It must never be called
//! inside a measured window: one reading opens three files.

use std::path::Path;
use std::time::Duration;

use pollux_sys::clock;

use crate::reading::{Reading, number_of};

/// Use of one thread, or of a process as the sum of its living threads, since it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskUse {
    /// CPU time. For the calling thread and process it is exact; for others the kernel shows what
    /// it last booked, at most one tick (1 to 10 ms) behind while the thread runs.
    pub cpu_ns: Reading<u64>,
    /// Time spent ready to run without a CPU, added up over threads.
    pub runqueue_wait_ns: Reading<u64>,
    /// Times it was put on a CPU.
    pub timeslices: Reading<u64>,
    /// Times it gave the CPU away, nearly always to wait: for each there was one wakeup.
    pub switches_voluntary: Reading<u64>,
    /// Times the CPU was taken from it.
    pub switches_involuntary: Reading<u64>,
    /// Page faults that needed no disk.
    pub faults_minor: Reading<u64>,
    /// Page faults that waited for a disk.
    pub faults_major: Reading<u64>,
}

impl TaskUse {
    /// One thread of a process; of any process whose `/proc` entries we may read.
    #[must_use]
    pub fn of_thread(pid: u32, tid: u32) -> Self {
        let mut used = Self::below(&format!("/proc/{pid}/task/{tid}"));
        if calling_tid() == tid {
            used.cpu_ns = Reading::Value(clock::thread_cpu().as_nanos() as u64);
        }
        used
    }

    /// All living threads of a process. Those that have ended are missing from the sum, except in
    /// its page faults.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        let tasks = format!("/proc/{pid}/task");
        let entries = match std::fs::read_dir(&tasks) {
            Ok(entries) => entries,
            Err(error) => return Self::filled(&Reading::unavailable(format!("{tasks}: {error}"))),
        };
        let mut sum = Self::zero();
        for entry in entries.flatten() {
            let folder = entry.path();
            let used = Self::below(&folder.display().to_string());
            // A thread that ended while it was read is simply no longer there.
            if folder.exists() {
                sum = sum.combined(&used, |a, b| Reading::Value(a + b));
            }
        }
        let whole = Self::below(&format!("/proc/{pid}"));
        if pid == std::process::id() {
            sum.cpu_ns = Reading::Value(clock::process_cpu().as_nanos() as u64);
        }
        Self { faults_minor: whole.faults_minor, faults_major: whole.faults_major, ..sum }
    }

    /// The sum over several processes.
    #[must_use]
    pub fn of_processes(pids: &[u32]) -> Self {
        let used = pids.iter().map(|pid| Self::of_process(*pid));
        used.fold(Self::zero(), |sum, one| sum.combined(&one, |a, b| Reading::Value(a + b)))
    }

    /// What was used since `earlier`, a reading of the same thread or process.
    ///
    /// A sum that went back is unavailable: a thread ended in between and took its figures along.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.combined(earlier, |now, then| match now.checked_sub(then) {
            Some(used) => Reading::Value(used),
            None => Reading::unavailable("went back: a thread ended inside the window"),
        })
    }

    fn below(folder: &str) -> Self {
        let file = |name: &str| Reading::of_file(Path::new(folder).join(name));
        let schedstat = file("schedstat")
            .parsed(&format!("{folder}/schedstat does not hold three numbers"), parse_schedstat);
        let stat = file("stat").parsed(&format!("{folder}/stat is too short"), parse_stat);
        let status = file("status");
        let switches = |name: &str| {
            let otherwise = format!("{folder}/status has no line {name}");
            status.clone().parsed(&otherwise, |text| number_of(text, name))
        };
        Self {
            cpu_ns: schedstat.clone().map(|columns| columns[0]),
            runqueue_wait_ns: schedstat.clone().map(|columns| columns[1]),
            timeslices: schedstat.map(|columns| columns[2]),
            switches_voluntary: switches("voluntary_ctxt_switches"),
            switches_involuntary: switches("nonvoluntary_ctxt_switches"),
            faults_minor: stat.clone().map(|stat| stat.faults_minor),
            faults_major: stat.map(|stat| stat.faults_major),
        }
    }

    /// Combines field by field; a missing field stays missing.
    fn combined(&self, other: &Self, combine: impl Fn(u64, u64) -> Reading<u64>) -> Self {
        let pair = |a: &Reading<u64>, b: &Reading<u64>| {
            a.clone().and_then(|a| b.clone().and_then(|b| combine(a, b)))
        };
        Self {
            cpu_ns: pair(&self.cpu_ns, &other.cpu_ns),
            runqueue_wait_ns: pair(&self.runqueue_wait_ns, &other.runqueue_wait_ns),
            timeslices: pair(&self.timeslices, &other.timeslices),
            switches_voluntary: pair(&self.switches_voluntary, &other.switches_voluntary),
            switches_involuntary: pair(&self.switches_involuntary, &other.switches_involuntary),
            faults_minor: pair(&self.faults_minor, &other.faults_minor),
            faults_major: pair(&self.faults_major, &other.faults_major),
        }
    }

    fn zero() -> Self {
        Self::filled(&Reading::Value(0))
    }

    fn filled(with: &Reading<u64>) -> Self {
        Self {
            cpu_ns: with.clone(),
            runqueue_wait_ns: with.clone(),
            timeslices: with.clone(),
            switches_voluntary: with.clone(),
            switches_involuntary: with.clone(),
            faults_minor: with.clone(),
            faults_major: with.clone(),
        }
    }
}

/// CPU time of this process, of its ended threads and of the children it has waited for.
///
/// The children's part has the resolution of a tick (10 ms). The gates take this, before and after
/// a run, as the run's own CPU time.
#[must_use]
pub fn cpu_with_waited_children() -> Reading<Duration> {
    waited_children_cpu().map(|children| children + clock::process_cpu())
}

/// CPU time of the children that this process has waited for, in ticks (10 ms).
#[must_use]
pub fn waited_children_cpu() -> Reading<Duration> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    Reading::of_file("/proc/self/stat")
        .parsed("/proc/self/stat is too short", parse_stat)
        .map(|stat| Duration::from_nanos(stat.children_ticks * tick_ns))
}

/// The calling thread's number.
pub(crate) fn calling_tid() -> u32 {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    u32::try_from(tid).expect("thread numbers are positive")
}

/// CPU time of the calling thread, exact.
pub(crate) fn calling_thread_cpu() -> Duration {
    clock::thread_cpu()
}

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    faults_minor: u64,
    faults_major: u64,
    children_ticks: u64,
}

/// Fields are counted after the command name, which may hold spaces and brackets itself.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // proc_pid_stat(5) numbers fields from 1; the first one here is number 3 (state).
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        faults_minor: field(10)?,
        faults_major: field(12)?,
        children_ticks: field(16)? + field(17)?,
    })
}

fn parse_schedstat(schedstat: &str) -> Option<[u64; 3]> {
    let mut columns = schedstat.split_ascii_whitespace().map(|column| column.parse().ok());
    Some([columns.next()??, columns.next()??, columns.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 120 40 3 2 5 6 11 13 20 0 1 0 99";
        let expected = Stat { faults_minor: 120, faults_major: 3, children_ticks: 24 };
        assert_eq!(parse_stat(stat), Some(expected));
        assert_eq!(parse_stat("7 (a) S 1"), None);
    }

    #[test]
    fn switch_kinds_are_not_mixed_up() {
        let status = "Threads:\t1\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(number_of(status, "voluntary_ctxt_switches"), Some(17));
        assert_eq!(number_of(status, "nonvoluntary_ctxt_switches"), Some(4));
        assert_eq!(number_of("", "voluntary_ctxt_switches"), None);
    }

    #[test]
    fn schedstat_holds_three_numbers() {
        assert_eq!(parse_schedstat("123 45 6"), Some([123, 45, 6]));
        assert_eq!(parse_schedstat("123 45"), None);
    }

    #[test]
    fn the_calling_thread_sees_its_own_cpu_time_grow() {
        let own = || TaskUse::of_thread(std::process::id(), calling_tid());
        let before = own();
        let sum = (0..1_000_000_u64).fold(0, |sum, step| std::hint::black_box(sum ^ step));
        std::hint::black_box(sum);
        let used = own().since(&before);
        assert!(used.cpu_ns.value().is_some_and(|ns| *ns > 0), "{used:?}");
        assert!(used.switches_voluntary.value().is_some(), "{used:?}");
    }

    #[test]
    fn a_process_is_the_sum_of_its_threads() {
        let used = TaskUse::of_process(std::process::id());
        assert!(used.cpu_ns.value().is_some_and(|ns| *ns > 0), "{used:?}");
        assert!(used.faults_minor.value().is_some_and(|count| *count > 0));
        let total = cpu_with_waited_children();
        assert!(total.value().is_some_and(|cpu| !cpu.is_zero()));
    }

    #[test]
    fn a_process_that_does_not_exist_has_reasons_not_zeros() {
        let used = TaskUse::of_process(u32::MAX);
        assert!(used.cpu_ns.reason().is_some_and(|why| why.contains("/proc/4294967295")));
        let thread = TaskUse::of_thread(u32::MAX, 1);
        assert!(thread.switches_voluntary.reason().is_some());
    }

    #[test]
    fn a_sum_that_went_back_is_not_a_figure() {
        let later = TaskUse::zero();
        let earlier = TaskUse::filled(&Reading::Value(5));
        assert!(later.since(&earlier).cpu_ns.reason().is_some_and(|why| why.contains("went back")));
    }
}
