//! Everything the checks look at, read once: files of `/proc` and `/sys`, the environment and the
//! sources that the lab probes anyway, and one second of CPU times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use pollux_host::environment::Environment;
use pollux_host::machine::{CpuTicks, HostSample, cpu_group_folders};
use pollux_host::sources::Sources;
use pollux_host::{self as host, Reading, number_of};
use pollux_poller::Mechanism;
use pollux_sys::ring::RESTRICTED;
use rustix::event::Timespec;

use crate::calls::Calls;

/// How long CPU times are watched: two hundred ticks on two CPUs, so 1 % can be seen.
const WATCHED: Duration = Duration::from_secs(1);

/// Every file that a check asks for.
const PATHS: [&str; 37] = [
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/fib_trie",
    "/proc/net/sockstat",
    "/proc/net/softnet_stat",
    "/proc/self/mountinfo",
    "/proc/self/status",
    "/proc/self/timerslack_ns",
    "/proc/sys/fs/aio-max-nr",
    "/proc/sys/fs/aio-nr",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/file-nr",
    "/proc/sys/fs/mqueue/msg_max",
    "/proc/sys/fs/mqueue/msgsize_max",
    "/proc/sys/fs/mqueue/queues_max",
    "/proc/sys/fs/nr_open",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/sys/net/core/netdev_max_backlog",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/tcp_fin_timeout",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "/proc/sys/net/ipv4/tcp_mem",
    "/proc/sys/net/ipv4/tcp_tw_reuse",
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/net/netfilter/nf_conntrack_max",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/active",
    "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
];

/// One machine, as far as the checks look at it.
#[derive(Clone, Debug)]
pub struct Readings {
    /// Limits, rights, CPUs, clock source and what else the lab stores with each result.
    pub environment: Environment,
    /// What can be measured, each source tried on known work.
    pub sources: Sources,
    /// Texts of files.
    pub files: Files,
    /// Share of CPU time that the hypervisor took in the last second, in percent.
    pub steal_percent: Reading<f64>,
    /// Share of CPU time that was used at all while doctor itself only waited, in percent.
    pub busy_percent: Reading<f64>,
    /// CPUs that the control group may use; without a bound where it has no quota.
    pub quota: Reading<Quota>,
    /// A ring was opened, or what forbids it.
    pub ring: Reading<()>,
    /// What a server can give up.
    pub sandbox: Sandbox,
    /// Calls that some kernels and filters lack.
    pub calls: Calls,
    /// A thread was followed as `pollux run --attach` does, or what forbids it.
    pub attach: Reading<()>,
    /// Where the load generators are.
    pub wrk: Option<PathBuf>,
    /// See `wrk`.
    pub ab: Option<PathBuf>,
}

/// Texts of files by path: `None` for one that does not exist on this machine.
#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<&'static str, Option<Reading<String>>>);

impl Readings {
    /// Reads this machine. Takes a little over a second, most of it asleep.
    #[must_use]
    pub fn take() -> Self {
        let before = HostSample::take();
        let sources = Sources::probe();
        let readings = Self {
            environment: Environment::read(),
            files: Files::read(),
            steal_percent: Reading::unavailable("not watched yet"),
            busy_percent: Reading::unavailable("not watched yet"),
            quota: read_quota(),
            ring: ring(),
            sandbox: Sandbox::take(),
            calls: Calls::take(),
            attach: attach(),
            wrk: host::find_program("wrk"),
            ab: host::find_program("ab"),
            sources,
        };
        // The probes burn CPU time; from here on all of it is that of others.
        let idle = HostSample::take();
        wait_until((before.taken_at + WATCHED).max(idle.taken_at + WATCHED / 2));
        let after = HostSample::take();
        let steal_percent = stolen(&before, &after, &readings.sources);
        let busy_percent = share(&idle, &after, CpuTicks::busy);
        Self { steal_percent, busy_percent, ..readings }
    }
}

fn attach() -> Reading<()> {
    match pollux_run::attach::probe() {
        Ok(()) => Reading::Value(()),
        Err(error) => Reading::unavailable(error.to_string()),
    }
}

impl Files {
    fn read() -> Self {
        Self(PATHS.iter().map(|path| (*path, text_of(path))).collect())
    }

    /// The text of `path` without white space around it; may be empty.
    ///
    /// # Panics
    /// When no check was meant to ask for `path`: a bug of ours.
    pub(super) fn text(&self, path: &str) -> Reading<String> {
        let text = self.0.get(path).unwrap_or_else(|| panic!("{path} is not in PATHS"));
        text.clone().unwrap_or_else(|| Reading::unavailable(format!("{path} is not there")))
    }

    /// Whether the machine has no such file, which is something else than one it does not show.
    pub(super) fn is_absent(&self, path: &str) -> bool {
        matches!(self.0.get(path), Some(None))
    }

    /// The only number in `path`.
    pub(super) fn number(&self, path: &str) -> Reading<u64> {
        self.text(path).parsed(&format!("{path} holds no number"), |text| text.parse().ok())
    }

    /// All numbers in `path`, at least one.
    pub(super) fn numbers(&self, path: &str) -> Reading<Vec<u64>> {
        self.text(path).parsed(&format!("{path} holds no numbers"), |text| {
            let words = text.split_ascii_whitespace().map(str::parse);
            words.collect::<Result<Vec<u64>, _>>().ok().filter(|numbers| !numbers.is_empty())
        })
    }

    /// The value of a line `name: number …`, as in `/proc/meminfo`.
    pub(super) fn field(&self, path: &str, name: &str) -> Reading<u64> {
        let otherwise = format!("{path} has no number at {name}");
        self.text(path).parsed(&otherwise, |text| number_of(text, name))
    }

    #[cfg(test)]
    pub(crate) fn set(&mut self, path: &'static str, text: Option<Reading<String>>) {
        assert!(PATHS.contains(&path), "{path} is not in PATHS");
        self.0.insert(path, text);
    }

    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Self(PATHS.iter().map(|path| (*path, None)).collect())
    }
}

fn text_of(path: &str) -> Option<Reading<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => Some(Reading::from_io(path, read).map(|text| text.trim().to_owned())),
    }
}

/// Readiness by io_uring needs the least of a ring; what refuses it refuses completion too.
fn ring() -> Reading<()> {
    match Mechanism::UringPoll.open() {
        Ok(_) => Reading::Value(()),
        Err(error) => Reading::unavailable(error.to_string()),
    }
}

/// A source that never reports stolen time is not taken for a quiet machine.
fn stolen(before: &HostSample, after: &HostSample, sources: &Sources) -> Reading<f64> {
    if let Some(reason) = sources.status("steal").and_then(|status| status.reason.clone()) {
        return Reading::unavailable(reason);
    }
    share(before, after, |ticks| ticks.steal)
}

/// The part of all CPU time between two samples that was spent so, in percent.
fn share(before: &HostSample, after: &HostSample, part: fn(&CpuTicks) -> u64) -> Reading<f64> {
    let ticks =
        before.cpu.as_ref().and_then(|before| after.cpu.clone().map(|now| now.since(before)));
    ticks.and_then(|ticks| match ticks.total() {
        0 => Reading::unavailable("no tick of CPU time was counted in a second"),
        total => Reading::Value(100.0 * part(&ticks) as f64 / total as f64),
    })
}

/// The time between two samples is what is wanted here, not a thing that becomes ready.
fn wait_until(deadline: Instant) {
    let mut left = deadline.saturating_duration_since(Instant::now());
    while !left.is_zero() {
        let wait = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        let wait = Timespec { tv_sec: left.as_secs().cast_signed(), ..wait };
        // A signal ends the wait early; the loop waits for the rest.
        let _ = rustix::event::poll(&mut [], Some(&wait));
        left = deadline.saturating_duration_since(Instant::now());
    }
}

/// What `pollux serve` can give up: paths, system calls, requests of its ring. Each part is tried, on a
/// thread that ends with it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// What landlock said of itself.
    pub landlock: Reading<String>,
    /// A filter was put in force.
    pub seccomp: Reading<()>,
    /// A ring was restricted.
    pub ring: Reading<()>,
}

impl Sandbox {
    pub(crate) fn take() -> Self {
        let landlock = match pollux_sys::sandbox::try_files() {
            Ok(confined) => Reading::Value(confined.to_string()),
            Err(unavailable) => Reading::unavailable(unavailable.reason),
        };
        let seccomp = match pollux_sys::sandbox::try_calls() {
            Ok(()) => Reading::Value(()),
            Err(unavailable) => Reading::unavailable(unavailable.reason),
        };
        Self { landlock, seccomp, ring: restricted_ring() }
    }
}

fn restricted_ring() -> Reading<()> {
    match Mechanism::UringPoll.open() {
        Ok(poller) if poller.caps().notes.iter().any(|note| note == RESTRICTED) => {
            Reading::Value(())
        }
        Ok(_) => Reading::unavailable("this kernel restricts no ring"),
        // A server has none then.
        Err(error) => Reading::unavailable(error.to_string()),
    }
}

/// CPUs that a control group may use: the narrowest quota from the process's own folder upwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quota {
    /// All of them, all the time.
    Unlimited,
    /// So many in the mean over a period.
    Cpus(f64),
}

impl Quota {
    fn narrower(self, other: Self) -> Self {
        match (self, other) {
            (Self::Cpus(one), Self::Cpus(two)) => Self::Cpus(one.min(two)),
            (Self::Unlimited, narrow) | (narrow, Self::Unlimited) => narrow,
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => out.write_str("none"),
            Self::Cpus(cpus) => write!(out, "{cpus:.2} CPUs"),
        }
    }
}

/// Reads the quota. A group without a file of its own (the topmost one of version 2) has no quota.
fn read_quota() -> Reading<Quota> {
    cpu_group_folders().map(|folders| {
        let up = folders.iter().flat_map(|folder| Path::new(folder).ancestors());
        up.filter_map(quota_of_folder).fold(Quota::Unlimited, Quota::narrower)
    })
}

fn quota_of_folder(folder: &Path) -> Option<Quota> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let second = || quota_of_text(&text("cpu.max")?);
    let first = || quota_of_text(&(text("cpu.cfs_quota_us")? + " " + &text("cpu.cfs_period_us")?));
    second().or_else(first)
}

/// `QUOTA PERIOD` in microseconds; a quota of `max` (version 2) or -1 (version 1) is none.
fn quota_of_text(text: &str) -> Option<Quota> {
    let mut words = text.split_ascii_whitespace();
    let quota = words.next()?;
    let period = words.next()?.parse::<f64>().ok()?;
    match quota {
        "max" | "-1" => Some(Quota::Unlimited),
        quota => Some(Quota::Cpus(quota.parse::<f64>().ok()? / period)),
    }
}

/// A machine that does not exist and limits nothing; each test spoils one thing of it.
#[cfg(test)]
pub(crate) mod invented {
    use super::*;
    use pollux_host::environment::{Capabilities, ProcessLimits, ResourceLimit};
    use pollux_host::sources::SourceStatus;

    /// The files of the sound machine. It has no conntrack, no `intel_pstate` and no debugfs.
    const FILES: [(&str, &str); 35] = [
        ("/proc/loadavg", "0.05 0.10 0.20 1/200 4242"),
        ("/proc/meminfo", "MemAvailable:   33554432 kB\nSwapTotal:   1024 kB\nSwapFree:  1024 kB"),
        ("/proc/net/sockstat", "sockets: used 24\nTCP: inuse 3 orphan 0 tw 0 alloc 3 mem 57"),
        ("/proc/net/softnet_stat", "00ab 00000000 00\n00cd 00000000 00"),
        (
            "/proc/self/mountinfo",
            "29 28 0:12 / /sys/kernel/tracing rw shared:9 - tracefs tracefs rw",
        ),
        ("/proc/self/status", "Name:\tpollux\nCpus_allowed_list:\t0-7"),
        ("/proc/net/fib_trie", "Local:\n  |-- 10.0.2.7\n    /32 host LOCAL"),
        ("/proc/self/timerslack_ns", "50000"),
        ("/proc/sys/fs/aio-max-nr", "1048576"),
        ("/proc/sys/fs/aio-nr", "0"),
        ("/proc/sys/fs/file-max", "2000000"),
        ("/proc/sys/fs/file-nr", "1000\t0\t2000000"),
        ("/proc/sys/fs/mqueue/msg_max", "10"),
        ("/proc/sys/fs/mqueue/msgsize_max", "8192"),
        ("/proc/sys/fs/mqueue/queues_max", "256"),
        ("/proc/sys/fs/nr_open", "1048576"),
        ("/proc/sys/kernel/sched_autogroup_enabled", "0"),
        ("/proc/sys/net/core/netdev_max_backlog", "1000"),
        ("/proc/sys/net/core/somaxconn", "4096"),
        ("/proc/sys/net/ipv4/ip_local_port_range", "1024\t65535"),
        ("/proc/sys/net/ipv4/tcp_fin_timeout", "60"),
        ("/proc/sys/net/ipv4/tcp_max_syn_backlog", "2048"),
        ("/proc/sys/net/ipv4/tcp_mem", "287898\t383867\t575796"),
        ("/proc/sys/net/ipv4/tcp_tw_reuse", "2"),
        ("/proc/sys/vm/overcommit_memory", "0"),
        ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm"),
        ("/sys/devices/system/cpu/cpufreq/boost", "0"),
        ("/sys/devices/system/cpu/isolated", "4-7"),
        ("/sys/devices/system/cpu/nohz_full", "4-7"),
        ("/sys/devices/system/cpu/online", "0-7"),
        ("/sys/devices/system/cpu/smt/active", "0"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
        ("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id", "443"),
        ("/proc/sys/net/netfilter/nf_conntrack_count", "0"),
        ("/proc/sys/net/netfilter/nf_conntrack_max", "262144"),
    ];

    const SOURCES: [&str; 11] = [
        "own counters",
        "schedstat",
        "task switches",
        "perf software events",
        "raw_syscalls:sys_enter",
        "sched:sched_waking",
        "hardware counters",
        "kernel samples",
        "kernel symbols",
        "cpu pressure",
        "steal",
    ];

    /// Nothing limits anything here.
    pub(crate) fn sound() -> Readings {
        let mut files = Files::nowhere();
        for (path, text) in FILES {
            files.set(path, Some(Reading::Value(text.to_owned())));
        }
        Readings {
            environment: environment(),
            sources: Sources {
                statuses: SOURCES.map(usable).into(),
                sys_enter: Reading::Value(443),
                sched_waking: Reading::Value(338),
            },
            files,
            steal_percent: Reading::Value(0.0),
            busy_percent: Reading::Value(30.0),
            quota: Reading::Value(Quota::Unlimited),
            ring: Reading::Value(()),
            sandbox: Sandbox {
                landlock: Reading::Value("landlock (ABI 7)".to_owned()),
                seccomp: Reading::Value(()),
                ring: Reading::Value(()),
            },
            calls: Calls::sound(),
            attach: Reading::Value(()),
            wrk: Some(PathBuf::from("/usr/bin/wrk")),
            ab: Some(PathBuf::from("/usr/bin/ab")),
        }
    }

    /// The sound machine with another text in one file.
    pub(crate) fn with(path: &'static str, text: &str) -> Readings {
        let mut readings = sound();
        readings.files.set(path, Some(Reading::Value(text.to_owned())));
        readings
    }

    /// The sound machine without one file.
    pub(crate) fn without(path: &'static str) -> Readings {
        let mut readings = sound();
        readings.files.set(path, None);
        readings
    }

    /// The sound machine after a change of anything.
    pub(crate) fn changed(change: impl FnOnce(&mut Readings)) -> Readings {
        let mut readings = sound();
        change(&mut readings);
        readings
    }

    fn usable(name: &str) -> SourceStatus {
        SourceStatus {
            name: name.to_owned(),
            gives: "something".to_owned(),
            available: true,
            reason: None,
            enable: None,
        }
    }

    fn environment() -> Environment {
        let unlimited = ResourceLimit { soft: None, hard: None };
        Environment {
            pollux: "0.0.0".to_owned(),
            rustc: Reading::Value("rustc".to_owned()),
            kernel: "6.18.0".to_owned(),
            architecture: "x86_64".to_owned(),
            cpu_model: Reading::Value("Invented CPU".to_owned()),
            cpus_online: Reading::Value(8),
            cpus_allowed: Reading::Value(8),
            memory_kib: Reading::Value(64 << 20),
            clocksource: Reading::Value("tsc".to_owned()),
            load_average: Reading::Value("0.05, 0.10, 0.20".to_owned()),
            governor: Reading::Value("performance".to_owned()),
            is_virtual: Reading::Value(false),
            limits: ProcessLimits {
                open_files: ResourceLimit { soft: Some(131_072), hard: Some(131_072) },
                locked_memory_bytes: unlimited,
                message_queue_bytes: unlimited,
            },
            io_uring_disabled: Reading::Value(0),
            perf_event_paranoid: Reading::Value(0),
            kptr_restrict: Reading::Value(0),
            is_root: false,
            capabilities: Reading::Value(Capabilities { mask: "0".to_owned(), names: Vec::new() }),
            mitigations: Reading::Value(BTreeMap::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_control_group_versions_tell_a_quota_and_its_absence() {
        assert_eq!(quota_of_text("max 100000\n"), Some(Quota::Unlimited));
        assert_eq!(quota_of_text("150000 100000\n"), Some(Quota::Cpus(1.5)));
        assert_eq!(quota_of_text("-1\n 100000\n"), Some(Quota::Unlimited));
        assert_eq!(quota_of_text("50000\n 100000\n"), Some(Quota::Cpus(0.5)));
        assert_eq!(quota_of_text("50000\n"), None);
    }

    #[test]
    fn the_narrowest_group_counts() {
        let all = [Quota::Cpus(4.0), Quota::Unlimited, Quota::Cpus(1.5)];
        let narrowest = all.into_iter().fold(Quota::Unlimited, Quota::narrower);
        assert_eq!(narrowest, Quota::Cpus(1.5));
    }
}
