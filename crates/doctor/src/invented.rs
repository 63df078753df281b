//! A machine that does not exist and limits nothing; each test spoils one thing of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Files, Quota, Readings};
use crate::host::Reading;
use crate::host::environment::{Capabilities, Environment, Limits, ResourceLimit};
use crate::host::sources::{SourceStatus, Sources};
use crate::readings::Sandbox;

/// The files of the sound machine. It has no conntrack, no `intel_pstate` and no debugfs.
const FILES: [(&str, &str); 33] = [
    ("/proc/loadavg", "0.05 0.10 0.20 1/200 4242"),
    ("/proc/meminfo", "MemAvailable:   33554432 kB\nSwapTotal:   1024 kB\nSwapFree:  1024 kB"),
    ("/proc/net/sockstat", "sockets: used 24\nTCP: inuse 3 orphan 0 tw 0 alloc 3 mem 57"),
    ("/proc/net/softnet_stat", "00ab 00000000 00\n00cd 00000000 00"),
    ("/proc/self/mountinfo", "29 28 0:12 / /sys/kernel/tracing rw shared:9 - tracefs tracefs rw"),
    ("/proc/self/status", "Name:\tpollux\nCpus_allowed_list:\t0-7"),
    ("/proc/self/timerslack_ns", "50000"),
    ("/proc/sys/fs/aio-max-nr", "1048576"),
    ("/proc/sys/fs/aio-nr", "0"),
    ("/proc/sys/fs/file-max", "2000000"),
    ("/proc/sys/fs/file-nr", "1000\t0\t2000000"),
    ("/proc/sys/fs/mqueue/msg_max", "10"),
    ("/proc/sys/fs/mqueue/msgsize_max", "8192"),
    ("/proc/sys/fs/mqueue/queues_max", "256"),
    ("/proc/sys/fs/nr_open", "1048576"),
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
pub(super) fn sound() -> Readings {
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
        attach: Reading::Value(()),
        wrk: Some(PathBuf::from("/usr/bin/wrk")),
        ab: Some(PathBuf::from("/usr/bin/ab")),
    }
}

/// The sound machine with another text in one file.
pub(super) fn with(path: &'static str, text: &str) -> Readings {
    let mut readings = sound();
    readings.files.set(path, Some(Reading::Value(text.to_owned())));
    readings
}

/// The sound machine without one file.
pub(super) fn without(path: &'static str) -> Readings {
    let mut readings = sound();
    readings.files.set(path, None);
    readings
}

/// The sound machine after a change of anything.
pub(super) fn changed(change: impl FnOnce(&mut Readings)) -> Readings {
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
        limits: Limits {
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
