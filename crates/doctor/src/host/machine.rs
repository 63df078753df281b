//! What the whole machine has done since it started, read at one moment.
//!
//! The runner takes a [`HostSample`] before and after each run; `gates.rs` judges the difference.
//! Everything here is system-wide and readable by any user. It must never guess: a counter that
//! this kernel or this control group does not have is unavailable.

use std::time::{Duration, Instant};

use super::Reading;

/// The machine's counters at one moment.
#[derive(Clone, Debug)]
pub struct HostSample {
    /// When it was taken.
    pub taken_at: Instant,
    /// CPU time by state, all CPUs together.
    pub cpu: Reading<CpuTicks>,
    /// Microseconds in which some task was ready and waited for a CPU (`/proc/pressure/cpu`).
    pub cpu_waits_us: Reading<u64>,
    /// Microseconds this control group was kept off the CPU by its quota.
    pub throttled_us: Reading<u64>,
    /// CPU time of the kernel's `ksoftirqd` threads: packets delivered for anyone, us included.
    pub softirq_threads_cpu: Reading<Duration>,
}

/// CPU time by state in ticks of `USER_HZ` (usually 10 ms), as in the first line of `/proc/stat`.
///
/// The kernel samples these states at its own tick (4 ms at 250 Hz), so they mean something over
/// a second, not over a millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// User mode, niced tasks and guests included.
    pub user: u64,
    /// Kernel mode on behalf of tasks.
    pub system: u64,
    /// Nothing to do, or only disk to wait for.
    pub idle: u64,
    /// Interrupts and soft interrupts.
    pub interrupts: u64,
    /// Wanted to run, but the hypervisor ran something else.
    pub steal: u64,
}

impl HostSample {
    /// Reads the machine now. Costs some milliseconds: call it outside the measured window.
    #[must_use]
    pub fn take() -> Self {
        Self {
            taken_at: Instant::now(),
            cpu: Reading::of_file("/proc/stat")
                .parsed("/proc/stat has no line cpu", parse_cpu_ticks),
            cpu_waits_us: Reading::of_file("/proc/pressure/cpu")
                .parsed("/proc/pressure/cpu has no total of some", parse_some_total_us)
                .or_enable_with("boot with psi=1"),
            throttled_us: throttled_us(),
            softirq_threads_cpu: softirq_threads_cpu(),
        }
    }
}

impl CpuTicks {
    /// All CPU time there was.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.busy() + self.idle + self.steal
    }

    /// CPU time that was used by someone on this machine.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.user + self.system + self.interrupts
    }

    /// What was added since `earlier`. A state that went back (idle times may, by a tick, when a
    /// CPU goes offline) counts as unchanged.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// Columns: user nice system idle iowait irq softirq steal guest guest_nice. The guest columns are
/// already inside user and nice.
pub(super) fn parse_cpu_ticks(stat: &str) -> Option<CpuTicks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let columns: Vec<u64> =
        line.split_ascii_whitespace().map_while(|column| column.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = columns[..] else {
        return None;
    };
    Some(CpuTicks {
        user: user + nice,
        system,
        idle: idle + iowait,
        interrupts: irq + softirq,
        steal,
    })
}

pub(super) fn parse_some_total_us(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    number_after(line, "total=")
}

fn number_after(line: &str, key: &str) -> Option<u64> {
    let word = line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key))?;
    word.parse().ok()
}

/// Folders of this process's CPU control group, version 2 first.
pub(crate) fn cpu_group_folders() -> Reading<Vec<String>> {
    Reading::of_file("/proc/self/cgroup").and_then(|groups| {
        Reading::of_file("/proc/self/mountinfo").parsed(
            "no CPU control group is mounted",
            |mounts| {
                let candidates = [cgroup2_folder(mounts, &groups), cgroup1_folder(mounts, &groups)];
                let folders: Vec<String> = candidates.into_iter().flatten().collect();
                (!folders.is_empty()).then_some(folders)
            },
        )
    })
}

fn throttled_us() -> Reading<u64> {
    cpu_group_folders().and_then(|folders| {
        let texts =
            folders.iter().filter_map(|f| std::fs::read_to_string(format!("{f}/cpu.stat")).ok());
        match texts.filter_map(|text| parse_throttled_us(&text)).next() {
            Some(us) => Reading::Value(us),
            None => Reading::unavailable("this control group keeps no count of CPU throttling"),
        }
    })
}

/// `throttled_usec` in version 2, `throttled_time` in nanoseconds in version 1.
fn parse_throttled_us(cpu_stat: &str) -> Option<u64> {
    cpu_stat.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", us) => us.trim().parse().ok(),
        ("throttled_time", ns) => ns.trim().parse::<u64>().ok().map(|ns| ns / 1000),
        _ => None,
    })
}

fn cgroup2_folder(mounts: &str, groups: &str) -> Option<String> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| mount_point(left))?
    })?;
    Some(folder(mount, group))
}

fn cgroup1_folder(mounts: &str, groups: &str) -> Option<String> {
    let has_cpu = |list: &str| list.split(',').any(|name| name == "cpu");
    let group = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        has_cpu(parts.next()?).then(|| parts.next())?
    })?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let options = right.strip_prefix("cgroup ")?.rsplit(' ').next()?;
        has_cpu(options).then(|| mount_point(left))?
    })?;
    Some(folder(mount, group))
}

/// Fifth field of a line of `/proc/self/mountinfo`.
fn mount_point(fields: &str) -> Option<&str> {
    fields.split(' ').nth(4)
}

fn folder(mount: &str, group: &str) -> String {
    format!("{mount}{}", group.trim_end_matches('/'))
}

/// Sums the `ksoftirqd/N` threads, of which there is one for each CPU.
fn softirq_threads_cpu() -> Reading<Duration> {
    let entries = match std::fs::read_dir("/proc") {
        Ok(entries) => entries,
        Err(error) => return Reading::unavailable(format!("/proc: {error}")),
    };
    let mut threads = 0_u32;
    let mut cpu = Duration::ZERO;
    for entry in entries.flatten() {
        let folder = entry.path();
        let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        if !name.starts_with("ksoftirqd/") {
            continue;
        }
        let schedstat = std::fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
        let ns = schedstat.split(' ').next().and_then(|word| word.parse().ok());
        if let Some(ns) = ns {
            threads += 1;
            cpu += Duration::from_nanos(ns);
        }
    }
    if threads == 0 {
        return Reading::unavailable(
            "no ksoftirqd thread is visible (a separate process namespace)",
        );
    }
    Reading::Value(cpu)
}

/// Voluntary and involuntary switches of all threads of this process since they started.
#[must_use]
pub fn process_switches() -> Option<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        sum += numbers_after(&status, "ctxt_switches:").sum::<u64>();
    }
    Some(sum)
}

/// Switches of all tasks of the machine since it started.
#[must_use]
pub fn machine_switches() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    numbers_after(&stat, "ctxt").next()
}

/// The numbers in lines whose first word ends in `name`.
fn numbers_after<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = u64> + 'a {
    text.lines().filter_map(move |line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| word.ends_with(name))?;
        words.next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  26525 5 2831 211001 1702 3 95 117 9 0\n\
        cpu0 13547 0 1429 105162 899 0 23 44 0 0\nintr 363208 0 0\nctxt 477847\nbtime 1795272380\n";
    const GROUPS_V1: &str = "3:cpuset:/\n2:cpuacct:/\n1:cpu:/jobs/a\n0::/\n";
    const MOUNTS: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_summed_cpu_line_is_read_without_counting_guests_twice() {
        let ticks = parse_cpu_ticks(STAT).expect("a cpu line");
        let expected =
            CpuTicks { user: 26530, system: 2831, idle: 212_703, interrupts: 98, steal: 117 };
        assert_eq!(ticks, expected);
        assert_eq!(ticks.total(), 26530 + 2831 + 212_703 + 98 + 117);
        assert_eq!(numbers_after(STAT, "ctxt").next(), Some(477_847));
    }

    #[test]
    fn a_stat_file_without_steal_is_not_taken_for_zero_steal() {
        assert_eq!(parse_cpu_ticks("cpu  1 2 3 4 5 6 7\n"), None);
        assert_eq!(parse_cpu_ticks(""), None);
    }

    #[test]
    fn pressure_is_the_total_of_some_not_of_full() {
        let text = "some avg10=0.01 avg60=0.44 avg300=1.04 total=9017498\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(parse_some_total_us(text), Some(9_017_498));
        assert_eq!(parse_some_total_us("full avg10=0.00 total=3\n"), None);
    }

    #[test]
    fn both_control_group_versions_are_found_and_read() {
        let second = cgroup2_folder(MOUNTS, GROUPS_V1);
        assert_eq!(second.as_deref(), Some("/sys/fs/cgroup/unified"));
        let first = cgroup1_folder(MOUNTS, GROUPS_V1);
        assert_eq!(first.as_deref(), Some("/sys/fs/cgroup/cpu/jobs/a"));
        assert_eq!(cgroup1_folder(MOUNTS, "0::/\n"), None);
        let v1 = "nr_periods 9\nnr_throttled 2\nthrottled_time 5000000\n";
        assert_eq!(parse_throttled_us(v1), Some(5000));
        assert_eq!(parse_throttled_us("usage_usec 5\nthrottled_usec 41\n"), Some(41));
        assert_eq!(parse_throttled_us("usage_usec 5\n"), None);
    }

    #[test]
    fn this_machine_can_be_sampled() {
        let sample = HostSample::take();
        let ticks = sample.cpu.value().expect("every Linux has /proc/stat");
        assert!(ticks.total() > 0);
    }

    #[test]
    fn both_kinds_of_switches_are_added_up() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(numbers_after(status, "ctxt_switches:").sum::<u64>(), 157);
    }

    #[test]
    fn the_machine_switches_at_least_as_much_as_this_process() {
        let (process, machine) = (process_switches(), machine_switches());
        assert!(process.is_some_and(|process| machine.is_some_and(|machine| machine >= process)));
    }
}
