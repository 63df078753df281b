//! The checks over invented machines: each verdict both ways, reasons of n/a, JSON, text.

use pollux_host::Reading;
use pollux_host::environment::ResourceLimit;

use super::readings::invented::{changed, sound, with, without};
use super::{
    Check, CheckValue, Concern, Demands, Diagnosis, Files, Options, Quota, Readings, Remedy,
    TextOptions, Verdict,
};

const PLAIN: TextOptions = TextOptions { is_colourful: false, width_chars: 100 };

/// Two jobs: the one that runs by default, of two experiments, and one that needs more.
fn diagnose(readings: &Readings, asked: Option<Options>) -> Diagnosis {
    let needs = [("quick", 4064), ("quick", 1600), ("published-sys-epoll", 32_064)];
    let lost = |limit: u64| {
        let short = needs.iter().filter(|(_, needed)| *needed > limit);
        short.map(|(job, needed)| format!("`{job}` leaves out {needed}")).collect()
    };
    let demands = Demands {
        default_job: "quick",
        descriptors: 32_064,
        lost: &lost,
        loses_an_experiment: &|limit| limit < 1600,
        queue_bytes: 10_560,
    };
    Diagnosis::of(readings, &demands, asked)
}

fn check(readings: &Readings, name: &str) -> Check {
    let all = diagnose(readings, None).checks;
    all.into_iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check {name}"))
}

/// One check of a spoiled machine: a limit or a block, with words that say so.
#[track_caller]
fn spoiled(readings: &Readings, name: &str, verdict: Verdict, words: &str) -> Check {
    let check = check(readings, name);
    assert_eq!(check.verdict, verdict, "{check:?}");
    let limits = check.limits.as_deref().expect("what is limited");
    assert!(limits.contains(words), "{limits}");
    check
}

#[track_caller]
fn fixed(check: &Check, command: &str, needs_root: bool) {
    let remedy = check.remedy.as_ref().expect("a command");
    assert_eq!((remedy.command.as_str(), remedy.needs_root), (command, needs_root));
}

#[test]
fn a_sound_machine_has_nothing_to_mend() {
    let diagnosis = diagnose(&sound(), None);
    for check in &diagnosis.checks {
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        assert_eq!((&check.limits, &check.remedy), (&None, &None));
    }
    let names: std::collections::BTreeSet<_> =
        diagnosis.checks.iter().map(|check| &check.name).collect();
    assert_eq!(names.len(), diagnosis.checks.len(), "names differ");
    assert!(!diagnosis.is_blocked());
    assert_eq!(diagnosis.summary(), "0 limits, 0 blocks; nothing keeps `pollux lab` from running");
}

#[test]
fn every_value_of_a_file_that_is_too_small_or_too_slow_limits_something() {
    let cases = [
        ("/proc/loadavg", "3.50 1.0 1.0 1/1 1", "load_average_1min", "others use the CPUs"),
        ("/proc/self/timerslack_ns", "90000", "timer_slack_ns", "90,000 ns late"),
        ("/proc/sys/fs/aio-max-nr", "65536", "fs.aio-max-nr_free", "past 32,768"),
        ("/proc/sys/fs/file-max", "100000", "fs.file-max_free", "past 49,180"),
        ("/proc/sys/fs/mqueue/msg_max", "4", "fs.mqueue.msg_max", "4 deep"),
        ("/proc/sys/fs/mqueue/msgsize_max", "4096", "fs.mqueue.msgsize_max", "4,096 bytes"),
        ("/proc/sys/fs/mqueue/queues_max", "8", "fs.mqueue.queues_max", "more than 8"),
        ("/proc/sys/fs/nr_open", "4096", "fs.nr_open", "ends at 4,096"),
        (
            "/proc/sys/kernel/sched_autogroup_enabled",
            "1",
            "kernel.sched_autogroup_enabled",
            "shared among sessions",
        ),
        ("/proc/sys/net/core/netdev_max_backlog", "300", "net.core.netdev_max_backlog", "past 300"),
        ("/proc/sys/net/core/somaxconn", "128", "net.core.somaxconn", "past 128"),
        (
            "/proc/sys/net/ipv4/ip_local_port_range",
            "32768\t60999",
            "net.ipv4.ip_local_port_range",
            "past 28,232",
        ),
        ("/proc/sys/net/ipv4/tcp_fin_timeout", "120", "net.ipv4.tcp_fin_timeout", "120 s"),
        ("/proc/sys/net/ipv4/tcp_max_syn_backlog", "128", "net.ipv4.tcp_max_syn_backlog", "128"),
        ("/proc/sys/net/ipv4/tcp_mem", "1000 2560 4000", "net.ipv4.tcp_mem_pressure", "10 MiB"),
        ("/proc/sys/net/ipv4/tcp_tw_reuse", "0", "net.ipv4.tcp_tw_reuse", "1,075 connections/s"),
        ("/proc/sys/vm/overcommit_memory", "2", "vm.overcommit_memory", "250 workers"),
        ("/sys/devices/system/cpu/cpufreq/boost", "1", "frequency_boost", "warms"),
        ("/sys/devices/system/cpu/isolated", "", "cpus_isolated", "beside a run"),
        ("/sys/devices/system/cpu/nohz_full", "(null)", "cpus_nohz_full", "timer tick"),
        ("/sys/devices/system/cpu/smt/active", "1", "smt_siblings", "one core"),
        (
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never",
            "transparent_hugepages",
            "2 MiB",
        ),
        ("/proc/net/sockstat", "TCP: inuse 3 orphan 0 tw 30000", "time_wait_now", "former runs"),
        (
            "/proc/meminfo",
            "MemAvailable: 1048576 kB\nSwapTotal: 4096 kB\nSwapFree: 0 kB",
            "memory_available_mib",
            "past about 32,768",
        ),
        (
            "/proc/meminfo",
            "MemAvailable: 1048576 kB\nSwapTotal: 4096 kB\nSwapFree: 0 kB",
            "swap_used_mib",
            "from disk",
        ),
    ];
    for (path, text, name, words) in cases {
        let check = spoiled(&with(path, text), name, Verdict::Limits, words);
        let has_remedy = check.remedy.is_some();
        assert!(has_remedy || name == "memory_available_mib", "{name} names no command");
        assert!(!check.blocks_default_job, "{name}");
    }
}

#[test]
fn a_kernel_without_sessions_that_count_shares_cpus_among_none() {
    let name = "kernel.sched_autogroup_enabled";
    assert_eq!(
        check(&without("/proc/sys/kernel/sched_autogroup_enabled"), name).verdict,
        Verdict::Ok
    );
}

#[test]
fn few_descriptors_are_recognised_by_the_jobs_that_lose_points() {
    let limited = |hard| {
        changed(|readings| {
            readings.environment.limits.open_files =
                ResourceLimit { soft: Some(1024), hard: Some(hard) };
        })
    };
    let some =
        spoiled(&limited(20_000), "open_files_hard", Verdict::Limits, "`published-sys-epoll`");
    let words = some.limits.as_deref().expect("words");
    assert!(words.contains("past 19,580") && words.contains("need 4 server processes"), "{words}");
    assert!(!words.contains("`quick`") && !words.contains("`dead`"), "{words}");
    fixed(&some, "sudo prlimit --pid $$ --nofile=131072:131072", true);
    let fewer = spoiled(&limited(4000), "open_files_hard", Verdict::Limits, "`quick` leaves out");
    assert!(!fewer.blocks_default_job, "a part of each experiment still runs");
    let few = spoiled(&limited(1024), "open_files_hard", Verdict::Blocks, "`quick` leaves out");
    assert!(few.blocks_default_job && diagnose(&limited(1024), None).is_blocked());
    spoiled(&limited(60), "open_files_hard", Verdict::Blocks, "no dead connections at all");
    let soft = spoiled(&limited(131_072), "open_files_soft", Verdict::Limits, "stop at 1,024");
    fixed(&soft, "ulimit -S -n 60420", false);
}

#[test]
fn a_root_that_cannot_raise_limits_is_reported_so_instead_of_a_command() {
    let mut readings = changed(|readings| {
        readings.environment.limits.message_queue_bytes =
            ResourceLimit { soft: Some(819_200), hard: Some(819_200) };
    });
    let words = "92,480 bytes short: reply queues of 8 messages instead of 10";
    let user = spoiled(&readings, "message_queue_bytes", Verdict::Limits, words);
    fixed(&user, "sudo prlimit --pid $$ --msgqueue=911680:911680", true);
    readings.environment.is_root = true;
    let root = spoiled(&readings, "message_queue_bytes", Verdict::Limits, "no CAP_SYS_RESOURCE");
    assert_eq!(root.remedy, None);
    readings.environment.limits.message_queue_bytes.soft = Some(100_000);
    spoiled(&readings, "message_queue_bytes", Verdict::Limits, "no pool by queues with 10");
    readings.environment.limits.message_queue_bytes.soft = Some(10_559);
    let none =
        spoiled(&readings, "message_queue_bytes", Verdict::Blocks, "no built-in job on a queue");
    assert!(!none.blocks_default_job);
    assert!(!diagnose(&readings, None).is_blocked(), "the default job needs no queue");
    assert!(diagnose(&readings, Some(Concern::Queues.into())).is_blocked());
    assert!(!diagnose(&readings, Some(Concern::Churn.into())).is_blocked());
}

#[test]
fn what_starves_the_default_job_blocks_it() {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let ports = check(&with(path, "60000 60999"), "net.ipv4.ip_local_port_range");
    assert_eq!((ports.verdict, ports.blocks_default_job), (Verdict::Blocks, true));
    let files = check(&with("/proc/sys/fs/file-max", "1500"), "fs.file-max_free");
    assert_eq!((files.verdict, files.blocks_default_job), (Verdict::Blocks, true));
    let readings = with("/proc/meminfo", "MemAvailable: 102400 kB");
    let memory = check(&readings, "memory_available_mib");
    assert_eq!((memory.verdict, memory.blocks_default_job), (Verdict::Blocks, true));
    let summary = diagnose(&readings, None).summary();
    let end = "; memory_available_mib keeps `pollux lab` (job `quick`) from running";
    assert!(summary.ends_with(end), "{summary}");
}

#[test]
fn cpus_and_clocks_limit_what_they_should() {
    let cpus = |count| changed(|r| r.environment.cpus_allowed = Reading::Value(count));
    spoiled(&cpus(1), "cpus_allowed", Verdict::Limits, "share one CPU");
    spoiled(&cpus(2), "cpus_allowed", Verdict::Limits, "of the generator");
    assert_eq!(check(&cpus(4), "cpus_allowed").verdict, Verdict::Ok);
    let quota = |cpus| changed(|r| r.quota = Reading::Value(Quota::Cpus(cpus)));
    spoiled(&quota(1.5), "cpu_quota", Verdict::Limits, "used up");
    assert_eq!(check(&quota(8.0), "cpu_quota").verdict, Verdict::Ok);
    let steal = |percent| changed(|r| r.steal_percent = Reading::Value(percent));
    spoiled(&steal(5.0), "steal_percent", Verdict::Limits, "disturbed");
    assert_eq!(check(&steal(1.0), "steal_percent").verdict, Verdict::Ok);
    let kept = with("/proc/self/status", "Cpus_allowed_list:\t0-3");
    let isolated = spoiled(&kept, "cpus_isolated", Verdict::Limits, "also from pollux");
    fixed(&isolated, "taskset -c 0-7 pollux lab", false);
    let slow = changed(|r| {
        r.environment.clocksource = Reading::Value("hpet".to_owned());
        r.environment.governor = Reading::Value("powersave".to_owned());
        r.environment.is_virtual = Reading::Value(true);
    });
    let clock = spoiled(&slow, "clock_source", Verdict::Limits, "each reading");
    let current = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    fixed(&clock, &format!("echo tsc | sudo tee {current}"), true);
    let governor = spoiled(&slow, "frequency_governor", Verdict::Limits, "slow clock");
    fixed(&governor, "sudo cpupower frequency-set -g performance", true);
    spoiled(&slow, "virtual_machine", Verdict::Limits, "counts before times");
}

#[test]
fn a_call_that_is_missing_blocks_what_needs_it_and_is_named() {
    let missing = || Reading::unavailable("Function not implemented (os error 38)");
    let sandboxed = changed(|r| {
        r.calls.pidfd_open = missing();
        r.calls.openat2 = missing();
        r.calls.close_range = missing();
        r.calls.timer_slack = missing();
    });
    let lab = spoiled(&sandboxed, "pidfd_open", Verdict::Blocks, "`pollux lab`");
    assert!(lab.blocks_default_job && diagnose(&sandboxed, None).is_blocked());
    let files = spoiled(&sandboxed, "openat2", Verdict::Blocks, "`pollux serve` of a folder");
    assert!(!files.blocks_default_job);
    spoiled(&sandboxed, "close_range_cloexec", Verdict::Limits, "has open: Function not");
    spoiled(&sandboxed, "timer_slack_set", Verdict::Limits, "late");
    // A folder of root without /proc.
    let bare = changed(|r| r.calls.own_program = Reading::unavailable("No such file or directory"));
    assert!(spoiled(&bare, "own_program", Verdict::Blocks, "`pollux lab`").blocks_default_job);
}

#[test]
fn parts_of_the_sandbox_that_are_refused_say_what_a_server_keeps() {
    let refused = changed(|r| {
        r.sandbox.landlock = Reading::unavailable("landlock is switched off");
        r.sandbox.seccomp = Reading::unavailable("no filters");
        r.sandbox.ring = Reading::unavailable("too old");
    });
    spoiled(&refused, "sandbox_landlock", Verdict::Limits, "every path stays in reach");
    spoiled(&refused, "sandbox_seccomp", Verdict::Limits, "every system call: no filters");
    spoiled(&refused, "sandbox_ring", Verdict::Limits, "takes every request: too old");
    assert!(!diagnose(&refused, None).is_blocked(), "servers run without");
    let without = changed(|r| r.ring = Reading::unavailable("forbidden"));
    let checks = diagnose(&without, None).checks;
    assert!(checks.iter().all(|check| check.name != "sandbox_ring"), "there is no ring");
}

#[test]
fn a_refused_trace_says_what_cannot_be_followed() {
    let refused = changed(|r| r.attach = Reading::unavailable("run pollux as root"));
    spoiled(&refused, "run_attach", Verdict::Limits, "follows no process: run pollux as root");
}

#[test]
fn rings_programs_and_sources_that_are_refused_are_answers() {
    let refused = changed(|r| {
        r.environment.io_uring_disabled = Reading::Value(2);
        r.ring = Reading::unavailable("the sysctl forbids it");
        let limit = ResourceLimit { soft: Some(65_536), hard: Some(65_536) };
        r.environment.limits.locked_memory_bytes = limit;
        (r.wrk, r.ab) = (None, None);
    });
    let sysctl = spoiled(&refused, "kernel.io_uring_disabled", Verdict::Limits, "no process");
    fixed(&sysctl, "sudo sysctl -w kernel.io_uring_disabled=0", true);
    spoiled(&refused, "io_uring_opens", Verdict::Limits, "the sysctl forbids it");
    spoiled(&refused, "locked_memory_soft_bytes", Verdict::Limits, "opened smaller");
    spoiled(&refused, "wrk", Verdict::Limits, "--generator wrk");
    spoiled(&refused, "ab", Verdict::Limits, "--generator ab");
    assert!(!diagnose(&refused, None).is_blocked(), "the default job needs none of them");
    let group = changed(|r| r.environment.io_uring_disabled = Reading::Value(1));
    assert_eq!(check(&group, "kernel.io_uring_disabled").verdict, Verdict::Ok);

    let blind = changed(|r| {
        let status = r.sources.statuses.iter_mut().find(|s| s.name == "sched:sched_waking");
        let status = status.expect("listed");
        status.available = false;
        status.reason = Some("not permitted".to_owned());
        status.enable = Some("sudo sysctl -w kernel.perf_event_paranoid=0".to_owned());
        r.environment.perf_event_paranoid = Reading::Value(2);
        r.sources.sys_enter = Reading::unavailable("not permitted");
        r.files.set("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id", None);
    });
    let waking = spoiled(&blind, "sched:sched_waking", Verdict::Limits, "(not permitted)");
    fixed(&waking, "sudo sysctl -w kernel.perf_event_paranoid=0", true);
    spoiled(&blind, "kernel.perf_event_paranoid", Verdict::Limits, "refused, or read 0");
    let tracefs = spoiled(&blind, "tracefs", Verdict::Limits, "cannot be counted");
    assert!(tracefs.remedy.is_some_and(|remedy| remedy.command.contains("remount")));
}

/// A machine on which an ordinary user may count nothing.
fn blind() -> Readings {
    changed(|r| {
        let mount = "sudo mount -t tracefs -o gid=$(id -g),mode=750 tracefs /sys/kernel/tracing";
        let enables = [
            (
                "raw_syscalls:sys_enter",
                format!("{mount} && sudo sysctl -w kernel.perf_event_paranoid=1"),
            ),
            (
                "sched:sched_waking",
                format!("{mount} && sudo sysctl -w kernel.perf_event_paranoid=0"),
            ),
            ("kernel samples", "sudo sysctl -w kernel.perf_event_paranoid=1".to_owned()),
        ];
        for (name, enable) in enables {
            let status = r.sources.statuses.iter_mut().find(|status| status.name == name);
            let status = status.expect("listed");
            (status.available, status.reason) = (false, Some("not permitted".to_owned()));
            status.enable = Some(enable);
        }
        r.environment.perf_event_paranoid = Reading::Value(2);
        r.environment.limits.open_files = ResourceLimit { soft: Some(1024), hard: Some(131_072) };
    })
}

#[test]
fn remedies_of_one_thing_agree_on_the_strictest_need_and_are_reported_once() {
    let diagnosis = diagnose(&blind(), None);
    let text = diagnosis.text(PLAIN);
    let setting = "sudo sysctl -w kernel.perf_event_paranoid=";
    assert_eq!(text.matches(setting).count(), 1, "{text}");
    assert!(text.contains(&format!("{setting}0")), "sched:sched_waking needs 0: {text}");
    assert_eq!(text.matches("sudo mount -t tracefs").count(), 1, "{text}");
    assert!(text.matches("fix     as above\n").count() >= 2, "{text}");
    // A single check has all that it needs.
    for check in diagnosis.checks.iter().filter(|check| check.name == "kernel samples") {
        assert_eq!(check.remedy.as_ref().expect("a remedy").command, format!("{setting}0"));
    }
    let more = Remedy::sysctl("net.core.netdev_max_backlog", 4000);
    let most = Remedy::sysctl("net.core.netdev_max_backlog", 8000);
    let mut checks = diagnosis.checks;
    (checks[0].remedy, checks[1].remedy) = (Some(most.clone()), Some(more));
    crate::check::agree(&mut checks);
    assert_eq!(checks[1].remedy, Some(most), "of most settings more is stricter");
}

#[test]
fn the_script_has_each_command_once_and_leaves_the_shells_own_to_the_user() {
    let script = diagnose(&blind(), None).fix_script();
    let commands: Vec<&str> =
        script.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(
        commands[4..],
        [
            "sysctl -w kernel.perf_event_paranoid=0",
            "mount -t tracefs -o gid=${SUDO_GID:-$(id -g)},mode=750 tracefs /sys/kernel/tracing",
        ],
        "{script}"
    );
    assert!(script.contains("# sched:sched_waking: n/a in reports"), "{script}");
    assert!(script.contains("#   ulimit -S -n 60420\n"), "{script}");
    let nothing = diagnose(&sound(), None).fix_script();
    assert!(nothing.contains("nothing that a command could fix"), "{nothing}");
}

#[test]
fn what_was_dropped_since_boot_is_reported_and_not_judged() {
    let dropped =
        check(&with("/proc/net/softnet_stat", "1 0000000a 0"), "packets_dropped_since_boot");
    assert_eq!((dropped.verdict, dropped.remedy), (Verdict::Ok, None));
    assert_eq!(dropped.found.value(), Some(&CheckValue::Number(10)));
}

#[test]
fn a_load_that_is_over_is_not_a_limit() {
    let mut readings = with("/proc/loadavg", "3.50 1.0 1.0 1/1 1");
    readings.busy_percent = Reading::Value(1.0);
    assert_eq!(check(&readings, "load_average_1min").verdict, Verdict::Ok);
    readings.busy_percent = Reading::Value(60.0);
    spoiled(&readings, "load_average_1min", Verdict::Limits, "60 % of their time just now");
    readings.busy_percent = Reading::unavailable("no ticks");
    spoiled(&readings, "load_average_1min", Verdict::Limits, "others use the CPUs:");
}

#[test]
fn a_tracefs_that_pollux_mounts_itself_is_said_so() {
    let mut readings =
        with("/proc/self/mountinfo", "29 28 0:12 / /proc rw shared:9 - proc proc rw");
    readings.files.set("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id", None);
    let own = check(&readings, "tracefs");
    assert_eq!(own.verdict, Verdict::Ok);
    assert_eq!(
        own.found.value(),
        Some(&CheckValue::Text("not mounted (pollux mounts its own)".into()))
    );
}

#[test]
fn connection_tracking_matters_only_where_something_is_tracked() {
    let name = "net.netfilter.nf_conntrack_max";
    let max = "/proc/sys/net/netfilter/nf_conntrack_max";
    assert_eq!(check(&without(max), name).verdict, Verdict::Ok);
    let mut small = with(max, "32768");
    assert_eq!(check(&small, name).verdict, Verdict::Ok, "nothing is tracked");
    let count = "/proc/sys/net/netfilter/nf_conntrack_count";
    small.files.set(count, Some(Reading::Value("12".to_owned())));
    spoiled(&small, name, Verdict::Limits, "32,768 connections");
}

#[test]
fn what_cannot_be_read_is_not_available_with_a_reason_and_never_a_verdict() {
    let mut readings = sound();
    readings.files = Files::nowhere();
    readings.steal_percent = Reading::unavailable("the hypervisor does not tell");
    let diagnosis = diagnose(&readings, None);
    let unread = diagnosis.checks.iter().filter(|check| check.found.value().is_none());
    let unread: Vec<&Check> = unread.collect();
    assert!(unread.len() >= 24, "{}", unread.len());
    for check in &unread {
        assert_eq!(check.verdict, Verdict::NotAvailable, "{check:?}");
        assert!(check.found.reason().is_some_and(|reason| !reason.is_empty()));
        assert_eq!(check.limits, None);
    }
    let shown = diagnosis.checks.iter().filter(|check| check.verdict == Verdict::NotAvailable);
    assert_eq!(shown.count(), unread.len());
    let garbage = check(&with("/proc/sys/net/core/somaxconn", "many"), "net.core.somaxconn");
    let reason = garbage.found.reason().expect("no number");
    assert_eq!(reason, "/proc/sys/net/core/somaxconn holds no number");
    assert!(diagnosis.text(PLAIN).contains("why     the hypervisor does not tell"));
}

#[test]
fn json_has_the_shape_that_its_page_describes() {
    let readings = with("/proc/sys/net/core/somaxconn", "128");
    let json = diagnose(&readings, Some(Concern::Sweep.into())).json();
    assert_eq!((&json["schema"], &json["for"]), (&2.into(), &"sweep".into()));
    assert_eq!((&json["default_job"], &json["is_blocked"]), (&"quick".into(), &false.into()));
    assert_eq!(json["counts"]["limits"], 1);
    let checks = json["checks"].as_array().expect("a list");
    let row = checks.iter().find(|check| check["verdict"] == "limits").expect("one limit");
    let expected = serde_json::json!({
        "name": "net.core.somaxconn",
        "unit": "connections",
        "concerns": ["sweep", "churn"],
        "found": { "value": 128 },
        "wanted": "4,096: what pollux listens with",
        "verdict": "limits",
        "limits": "bursts past 128 connections wait a second for a second SYN",
        "remedy": { "command": "sudo sysctl -w net.core.somaxconn=4096", "needs_root": true },
        "blocks_default_job": false,
    });
    assert_eq!(*row, expected);
    let missing = diagnose(&without("/proc/sys/net/core/somaxconn"), None).json();
    let missing = missing["checks"].as_array().expect("a list").iter();
    let missing = missing.filter(|check| check["verdict"] == "not_available");
    let reasons: Vec<_> = missing.map(|check| &check["found"]["unavailable"]).collect();
    assert_eq!(reasons, ["/proc/sys/net/core/somaxconn is not there"]);
}

#[test]
fn the_summary_stands_first_then_problems() {
    let readings = changed(|r| {
        r.environment.limits.message_queue_bytes.soft = Some(1000);
        r.steal_percent = Reading::Value(5.0);
    });
    let text = diagnose(&readings, None).text(PLAIN);
    let groups: Vec<&str> =
        text.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()).collect();
    assert_eq!(groups[0], "1 limit, 1 block; nothing keeps `pollux lab` from running");
    assert!(groups[1].starts_with("What to do now: "), "{}", groups[1]);
    assert_eq!(groups[2..4], [Concern::Queues.title(), Concern::Everything.title()]);
    assert!(text.contains("\n  limit   steal_percent"), "{text}");
    assert!(!text.contains('\x1b'));
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    let colourful = TextOptions { is_colourful: true, ..PLAIN };
    assert!(diagnose(&readings, None).text(colourful).contains("\x1b[31;1mblocks\x1b[0m"));
}

#[test]
fn an_agent_carries_as_many_connections_as_the_least_of_all_resources() {
    let ports = with("/proc/sys/net/ipv4/ip_local_port_range", "60000 60999");
    let words =
        "1,000 connections here to one address of a server: 1,000 ports of 1 source address";
    let few = spoiled(&ports, "agent_connections", Verdict::Limits, words);
    fixed(&few, "sudo sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"", true);
    let descriptors = changed(|readings| {
        let few = ResourceLimit { soft: Some(4096), hard: Some(4096) };
        readings.environment.limits.open_files = few;
    });
    let words = "4,032 connections here to one address of a server: each takes a descriptor";
    spoiled(&descriptors, "agent_connections", Verdict::Limits, words);
    let memory = with("/proc/meminfo", "MemAvailable: 65536 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB");
    spoiled(&memory, "agent_connections", Verdict::Limits, "4,096 connections here");
    assert!(check(&without("/proc/meminfo"), "agent_connections").found.reason().is_some());
}

#[test]
fn an_experiment_sees_its_own_checks_and_those_of_all() {
    for asked in Concern::all() {
        let diagnosis = diagnose(&sound(), Some(asked.into()));
        assert!(!diagnosis.checks.is_empty(), "{asked:?}");
        assert!(diagnosis.checks.iter().all(|check| check.concerns(asked)));
        assert_eq!(Concern::by_name(asked.name()), Some(asked));
    }
    assert_eq!(Concern::by_name("pool"), Some(Concern::Queues));
    assert_eq!(Concern::by_name("none-such"), None);
}

#[test]
fn every_source_that_is_probed_has_a_check() {
    let readings = Readings::take();
    let checks = diagnose(&readings, None).checks;
    for status in &readings.sources.statuses {
        // Stolen time has a check of its own, and the counters of pollux need nothing.
        let is_elsewhere = ["steal", "own counters"].contains(&status.name.as_str());
        let has_check = checks.iter().any(|check| check.name == status.name);
        assert!(is_elsewhere || has_check, "{}", status.name);
    }
}

#[test]
fn this_machine_can_be_read_and_judged() {
    let readings = Readings::take();
    let diagnosis = diagnose(&readings, None);
    assert!(diagnosis.checks.len() >= 45, "{}", diagnosis.checks.len());
    for check in diagnosis.checks {
        assert!(check.found.reason() != Some(""), "{check:?}");
    }
}
