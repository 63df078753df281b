//! What the whole machine has done since it started, read at one moment; and whether it was quiet enough between two
//! moments for a run to be believed.
//!
//! The lab's runner takes a [`HostSample`] before and after each block, makes a [`GateReading`] of the difference and asks
//! for its [`GateReading::disturbances`]. A disturbed block is marked, and repeated where it holds whole runs; it is never thrown
//! away here. Everything is system-wide and readable by any user. It must never guess: a counter that this kernel or this
//! control group does not have is unavailable, and a gate that could not be read disturbs nothing: its reading
//! says `n/a`, and the report shows that.
//!
//! What a run does to itself must never count as a disturbance: our own CPU time is taken off before
//! foreign CPU is judged, and waiting for a CPU is shown but not judged, as two threads that wake each
//! other, or 250 processes on one queue, wait a lot by themselves.

use std::time::{Duration, Instant};

use crate::reading::Reading;

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
pub(crate) fn parse_cpu_ticks(stat: &str) -> Option<CpuTicks> {
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

pub(crate) fn parse_some_total_us(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    number_after(line, "total=")
}

fn number_after(line: &str, key: &str) -> Option<u64> {
    let word = line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key))?;
    word.parse().ok()
}

/// Folders of this process's CPU control group, version 2 first.
#[must_use]
pub fn cpu_group_folders() -> Reading<Vec<String>> {
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
        // A thread may end meanwhile; its count is gone with it.
        let Ok(status) = std::fs::read_to_string(task.ok()?.path().join("status")) else {
            continue;
        };
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

/// Ticks, over all CPUs, below which shares of CPU time are not given: one tick would then be more
/// than one percent, as large as the limits themselves. Half a second on two CPUs.
const TICKS_MIN: u64 = 100;
/// The largest stolen share of a quiet run: it moves rates by about as much, and smaller effects than
/// 3 % are not claimed.
pub const STEAL_SHARE_MAX: f64 = 0.02;
/// The largest foreign share of a quiet run: a fifth of a CPU on two CPUs; kernel threads and our own
/// terminal stay below.
pub const FOREIGN_CPU_SHARE_MAX: f64 = 0.10;

/// What happened on the machine between two samples. Shares go from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct GateReading {
    /// CPU time the hypervisor gave to others, of all CPU time.
    pub steal_share: Reading<f64>,
    /// Time in which some task, ours or not, waited for a CPU, of wall time. Not judged, because our
    /// own threads wait too.
    pub psi_some_share: Reading<f64>,
    /// CPU time used by neither us nor the kernel's packet delivery, of all CPU time.
    pub foreign_cpu_share: Reading<f64>,
    /// Microseconds our control group was kept off the CPU by its quota.
    pub throttled_us: Reading<u64>,
}

impl GateReading {
    /// Compares two samples, `before` taken first; `own` is the CPU time that the run's processes and
    /// we ourselves used in between.
    #[must_use]
    pub fn between(before: &HostSample, after: &HostSample, own: Duration) -> Self {
        let wall = after.taken_at.saturating_duration_since(before.taken_at);
        let ticks = grown(&before.cpu, &after.cpu, |a, b| b.since(a)).and_then(enough);
        let waits = grown(&before.cpu_waits_us, &after.cpu_waits_us, |a, b| b.saturating_sub(*a))
            .map(Duration::from_micros);
        let delivery = grown(&before.softirq_threads_cpu, &after.softirq_threads_cpu, |a, b| {
            b.saturating_sub(*a)
        });
        // Where the delivery threads cannot be seen, their time stays in the foreign share.
        let known = own + delivery.value().copied().unwrap_or_default();
        Self {
            steal_share: ticks.clone().map(|t| share(t.steal as f64, t.total() as f64)),
            psi_some_share: waits.map(|waits| share(waits.as_secs_f64(), wall.as_secs_f64())),
            foreign_cpu_share: ticks.map(|ticks| foreign_cpu_share(&ticks, known)),
            throttled_us: grown(&before.throttled_us, &after.throttled_us, |a, b| {
                b.saturating_sub(*a)
            }),
        }
    }

    /// Why the run is not to be trusted by itself: a clause for each limit that was passed, with figure
    /// and limit. Empty for a quiet run. A quota that bites even once stops all threads for most of a
    /// 100 ms period, so any throttling counts.
    #[must_use]
    pub fn disturbances(&self) -> Vec<String> {
        let shares = [
            ("CPU time stolen by the hypervisor", &self.steal_share, STEAL_SHARE_MAX),
            ("CPU time used by other programs", &self.foreign_cpu_share, FOREIGN_CPU_SHARE_MAX),
        ];
        let passed = |(what, reading, limit): (&str, &Reading<f64>, f64)| {
            let share = reading.value().filter(|share| **share > limit)?;
            Some(format!("{what}: {:.1} % (limit {:.1} %)", share * 100.0, limit * 100.0))
        };
        let throttled = self.throttled_us.value().filter(|us| **us > 0);
        let throttled =
            throttled.map(|us| format!("throttled by the CPU quota for {us} us (limit 0 us)"));
        shares.into_iter().filter_map(passed).chain(throttled).collect()
    }
}

/// The growth of a counter; the first missing end gives the reason.
fn grown<T, U>(
    before: &Reading<T>,
    after: &Reading<T>,
    difference: impl FnOnce(&T, &T) -> U,
) -> Reading<U> {
    before.as_ref().and_then(|a| after.as_ref().map(|b| difference(a, b)))
}

fn enough(ticks: CpuTicks) -> Reading<CpuTicks> {
    let total = ticks.total();
    if total < TICKS_MIN {
        let fault = format!("only {total} CPU ticks between the samples, {TICKS_MIN} are needed");
        return Reading::unavailable(fault);
    }
    Reading::Value(ticks)
}

/// Seconds are compared because ticks are whole and our own time is exact; below zero is rounding.
fn foreign_cpu_share(ticks: &CpuTicks, known: Duration) -> f64 {
    let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let foreign_s = (ticks.busy() as f64 * tick_s - known.as_secs_f64()).max(0.0);
    share(foreign_s, ticks.total() as f64 * tick_s)
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
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
        let process = process_switches();
        let machine = machine_switches();
        assert!(process.is_some_and(|process| machine.is_some_and(|machine| machine >= process)));
    }

    fn sample(taken_at: Instant, cpu: CpuTicks, waits_us: u64) -> HostSample {
        HostSample {
            taken_at,
            cpu: Reading::Value(cpu),
            cpu_waits_us: Reading::Value(waits_us),
            throttled_us: Reading::unavailable("no quota"),
            softirq_threads_cpu: Reading::unavailable("hidden"),
        }
    }

    /// Ten seconds on two CPUs, all of it busy but `idle_s`.
    fn ten_seconds(idle_s: u64, steal_s: u64, waits_us: u64) -> (HostSample, HostSample) {
        let start = Instant::now();
        let hz = rustix::param::clock_ticks_per_second();
        let ticks = CpuTicks {
            user: (20 - idle_s - steal_s) * hz,
            idle: idle_s * hz,
            steal: steal_s * hz,
            ..CpuTicks::default()
        };
        let before = sample(start, CpuTicks::default(), 0);
        (before, sample(start + Duration::from_secs(10), ticks, waits_us))
    }

    #[test]
    fn two_own_threads_that_fill_two_cpus_and_wait_for_each_other_are_not_disturbance() {
        let (before, after) = ten_seconds(0, 0, 9_000_000);
        let reading = GateReading::between(&before, &after, Duration::from_secs(20));
        assert_eq!(reading.psi_some_share, Reading::Value(0.9));
        assert_eq!(reading.foreign_cpu_share, Reading::Value(0.0));
        assert!(reading.disturbances().is_empty());
    }

    #[test]
    fn foreign_load_and_steal_are_named_with_figure_and_limit() {
        let (before, after) = ten_seconds(4, 1, 0);
        let reading = GateReading::between(&before, &after, Duration::from_secs(10));
        assert_eq!(
            reading.disturbances(),
            [
                "CPU time stolen by the hypervisor: 5.0 % (limit 2.0 %)",
                "CPU time used by other programs: 25.0 % (limit 10.0 %)"
            ]
        );
    }

    #[test]
    fn the_kernels_packet_delivery_is_not_foreign() {
        let (mut before, mut after) = ten_seconds(10, 0, 0);
        before.softirq_threads_cpu = Reading::Value(Duration::from_secs(100));
        after.softirq_threads_cpu = Reading::Value(Duration::from_secs(103));
        let reading = GateReading::between(&before, &after, Duration::from_secs(7));
        assert_eq!(reading.foreign_cpu_share, Reading::Value(0.0));
    }

    #[test]
    fn a_window_too_short_for_ticks_gives_no_shares_instead_of_wild_ones() {
        let start = Instant::now();
        let before = sample(start, CpuTicks::default(), 0);
        let ticks = CpuTicks { user: 5, ..CpuTicks::default() };
        let after = sample(start + Duration::from_millis(25), ticks, 0);
        let reading = GateReading::between(&before, &after, Duration::ZERO);
        assert!(reading.steal_share.reason().is_some_and(|why| why.contains("5 CPU ticks")));
        assert!(reading.disturbances().is_empty());
    }

    #[test]
    fn any_throttling_disturbs() {
        let (mut before, mut after) = ten_seconds(20, 0, 0);
        before.throttled_us = Reading::Value(10);
        after.throttled_us = Reading::Value(52);
        let reading = GateReading::between(&before, &after, Duration::ZERO);
        assert_eq!(reading.disturbances(), ["throttled by the CPU quota for 42 us (limit 0 us)"]);
    }
}
