//! Limits of the kernel: descriptors, memory, message queues, io_uring and AIO; what fits below them; and
//! what `pollux serve` can give up on this machine once it serves.

use pollux_host::environment::ResourceLimit;
use pollux_host::{Reading, number_of};
use pollux_report::number::count;
use pollux_sys::descriptors;

use crate::Demands;
use crate::check::Concern::{self, Agents, Dead, Descriptors, Everything, Queues, Servers};
use crate::check::{Check, Judgement, Remedy, Subject, Sysctl, note_on_rights};
use crate::readings::{Readings, Sandbox};

/// Descriptors that a run needs besides those of its streams or pipes: standard streams, the
/// poller's own, counters, and files of `/proc` that are open for a moment.
pub const FDS_SPARE: u64 = 64;
/// What a server keeps for listeners, logs and endpoints, and does not give to connections.
pub const SERVER_FDS_SPARE: u64 = 320;
/// Memory of one connection on loopback, both ends with their files, buffers and sessions:
/// rounded up from 9 KiB of slabs and 3 KiB of the programs.
pub const CONNECTION_BYTES: u64 = 16 << 10;
/// A run may take so much of the free memory: one part in this many.
pub const MEMORY_PARTS: u64 = 2;
/// The longest curve of the sys_epoll page, and its hundred active connections beside it.
pub(super) const DEAD_CONNECTIONS: u64 = 60_000;
const ACTIVE_CONNECTIONS: u64 = 100;
/// Descriptors of a server beside its connections.
const SPARE: u64 = SERVER_FDS_SPARE;
/// One side of that experiment in one process.
const ONE_SIDE: u64 = DEAD_CONNECTIONS + ACTIVE_CONNECTIONS + SPARE;
const BOTH_SIDES: u64 = 2 * ONE_SIDE;
/// The page's own setting: room for both sides in one process.
const PAGE_ULIMIT: u64 = 131_072;
const ALL: &[Concern] = &[Dead, Descriptors, Servers, Concern::Sweep, Agents];
/// What the plan wants to be free before it opens the dead connections and the active ones, both
/// ends of each here.
const AVAILABLE_MIB: u64 = {
    let connections = DEAD_CONNECTIONS + ACTIVE_CONNECTIONS;
    (connections * CONNECTION_BYTES * MEMORY_PARTS).div_ceil(1 << 20)
};
/// Two thousand TCP connections with full buffers and the lab itself.
const DEFAULT_JOB_MIB: u64 = 256;
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// A service pool as it is asked for: its workers, the threads that call them, and a queue for all and for each of these.
const POOL_WORKERS: u64 = 250;
const POOL_CLIENT_THREADS: u64 = 10;
const POOL_QUEUES: u64 = 1 + POOL_CLIENT_THREADS;
/// The kernel's defaults, which need no privilege.
const MESSAGES: u64 = 10;
const MESSAGE_BYTES: u64 = 8192;
/// What the kernel adds to each message: its header and its node in the tree of priorities.
const OVERHEAD_BYTES: u64 = 96;
/// All those queues when they are full.
const FULL_BYTES: u64 = POOL_QUEUES * queue_bytes(MESSAGES);
const QUEUES_ONLY: &[Concern] = &[Queues];
/// The completion loop's ring (1024 requests of 64 bytes, 8192 completions of 16) and its buffers.
const LOCKED_BYTES: u64 = 8 << 20;
/// The context of one poller that watches the dead connections and the active ones: it doubles when
/// it is full, and the half as large one stands meanwhile.
const AIO_SLOTS: u64 = {
    let size = (DEAD_CONNECTIONS + ACTIVE_CONNECTIONS).next_power_of_two();
    size + size / 2
};

/// What is free of what all processes together may have; `None` where it can't be read.
///
/// ```
/// use pollux_doctor::{CONNECTION_BYTES, MEMORY_PARTS, Resources};
///
/// let free = Resources::here();
/// let fitting = free.memory_bytes.map(|bytes| bytes / MEMORY_PARTS / CONNECTION_BYTES);
/// println!("connections that fit: {fitting:?}");
/// assert!(free.memory_bytes.is_some(), "every Linux says what is available");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    pub memory_bytes: Option<u64>,
    /// Slots of AIO contexts (`fs.aio-max-nr`).
    pub aio_slots: Option<u64>,
}

impl Resources {
    /// Reads what is free here.
    #[must_use]
    pub fn here() -> Self {
        let number = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let aio_slots = number("/proc/sys/fs/aio-max-nr").zip(number("/proc/sys/fs/aio-nr"));
        Self {
            memory_bytes: memory_available_bytes(),
            aio_slots: aio_slots.map(|(max, used)| max.saturating_sub(used)),
        }
    }
}

/// Memory that programs may still take, by the kernel's estimate.
fn memory_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    number_of(&text, "MemAvailable").map(|kib| kib * 1024)
}

pub(super) fn descriptor_checks(readings: &Readings, demands: &Demands<'_>) -> Vec<Check> {
    vec![hard(readings, demands), soft(readings), file_max(readings, demands), nr_open(readings)]
}

/// The limit on descriptors as it was read.
fn open_files(readings: &Readings) -> descriptors::Limit {
    let ResourceLimit { soft, hard } = readings.environment.limits.open_files;
    descriptors::Limit { soft: soft.unwrap_or(u64::MAX), hard: hard.unwrap_or(u64::MAX) }
}

fn hard(readings: &Readings, demands: &Demands<'_>) -> Check {
    let limit = open_files(readings).hard;
    let subject = Subject { name: "open_files_hard", unit: Some("descriptors"), concerns: ALL };
    let wanted = format!(
        "{}: {} dead connections of one server process; {} leave nothing out of a built-in job",
        count(ONE_SIDE),
        count(DEAD_CONNECTIONS),
        count(demands.descriptors)
    );
    subject.judge(number_or_unlimited(limit), wanted, |_| {
        let raise = Remedy::raise(&readings.environment, "nofile", PAGE_ULIMIT);
        judge_hard(limit, note_on_rights(&readings.environment), demands).mended_by(raise)
    })
}

fn judge_hard(limit: u64, note: &str, demands: &Demands<'_>) -> Judgement {
    if limit >= ONE_SIDE {
        return Judgement::ok();
    }
    let mut lost = (demands.lost)(limit);
    let room = limit.saturating_sub(SPARE + ACTIVE_CONNECTIONS);
    let dead = count(DEAD_CONNECTIONS);
    lost.push(match limit.saturating_sub(SPARE) {
        0 => format!("no dead connections at all (of {dead})"),
        usable => {
            let processes = (DEAD_CONNECTIONS + ACTIVE_CONNECTIONS).div_ceil(usable);
            format!(
                "dead connections past {} of one server; {dead} need {processes} server \
                 processes",
                count(room),
            )
        }
    });
    let text = lost.join("; ") + note;
    if (demands.loses_an_experiment)(limit) {
        return Judgement::blocks(text).and_the_default_job();
    }
    Judgement::limits(text)
}

fn soft(readings: &Readings) -> Check {
    let limit = open_files(readings);
    let subject = Subject { name: "open_files_soft", unit: Some("descriptors"), concerns: ALL };
    subject.judge(number_or_unlimited(limit.soft), "the hard limit", |_| {
        let what = format!(
            "programs that you start beside pollux stop at {}; pollux raises its own",
            count(limit.soft)
        );
        let needed = limit.hard.min(ONE_SIDE);
        let raise = limit.command(needed).map(Remedy::of_command);
        Judgement::unless(limit.soft >= needed, what).mended_by(raise)
    })
}

fn file_max(readings: &Readings, demands: &Demands<'_>) -> Check {
    let free = readings.files.number("/proc/sys/fs/file-max").and_then(|max| {
        let in_use = readings.files.numbers("/proc/sys/fs/file-nr");
        in_use.map(|numbers| max.saturating_sub(numbers[0]))
    });
    let subject = Subject { name: "fs.file-max_free", unit: Some("files"), concerns: ALL };
    let wanted =
        format!("{}: both ends of {} dead connections", count(BOTH_SIDES), count(DEAD_CONNECTIONS));
    subject.judge(free, wanted, |free| {
        let what = format!(
            "connections past {} when both ends are on this machine",
            count(free.saturating_sub(2 * SPARE) / 2)
        );
        let remedy = Remedy::sysctl("fs.file-max", 2 * BOTH_SIDES);
        if (demands.loses_an_experiment)(*free) {
            Judgement::blocks(what).and_the_default_job().mended_by(remedy)
        } else {
            Judgement::unless(*free >= BOTH_SIDES, what).mended_by(remedy)
        }
    })
}

fn nr_open(readings: &Readings) -> Check {
    Sysctl {
        subject: Subject { name: "fs.nr_open", unit: Some("descriptors"), concerns: ALL },
        wanted: format!("{}: no limit is raised beyond it", count(PAGE_ULIMIT)),
        is_enough: |max| max >= PAGE_ULIMIT,
        effect: |max| format!("the hard limit of descriptors, which ends at {}", count(max)),
        set: 1_048_576,
    }
    .check(readings)
}

/// A limit of `u64::MAX` stands for none.
fn number_or_unlimited(limit: u64) -> Reading<super::CheckValue> {
    Reading::Value(match limit {
        u64::MAX => super::CheckValue::Text("unlimited".to_owned()),
        limit => super::CheckValue::Number(limit),
    })
}

pub(super) fn memory_checks(readings: &Readings) -> Vec<Check> {
    vec![available(readings), swap(readings), huge_pages(readings), overcommit(readings)]
}

fn available(readings: &Readings) -> Check {
    let kib = readings.files.field("/proc/meminfo", "MemAvailable");
    let concerns = &[Dead, Descriptors, Agents];
    let subject = Subject { name: "memory_available_mib", unit: Some("MiB"), concerns };
    let wanted = format!(
        "{}: a run takes half, for {} dead connections with both ends here",
        count(AVAILABLE_MIB),
        count(DEAD_CONNECTIONS)
    );
    subject.judge(kib.map(|kib| kib / 1024), wanted, |mib| match *mib {
        ..DEFAULT_JOB_MIB => {
            Judgement::blocks("the kernel may end the lab itself").and_the_default_job()
        }
        DEFAULT_JOB_MIB..AVAILABLE_MIB => {
            let most = (mib << 20) / MEMORY_PARTS / CONNECTION_BYTES;
            Judgement::limits(format!("dead connections past about {}", count(most)))
        }
        _ => Judgement::ok(),
    })
}

fn swap(readings: &Readings) -> Check {
    let meminfo = |name| readings.files.field("/proc/meminfo", name);
    let used = meminfo("SwapTotal")
        .and_then(|total| meminfo("SwapFree").map(|free| total.saturating_sub(free) / 1024));
    let subject = Subject { name: "swap_used_mib", unit: Some("MiB"), concerns: &[Everything] };
    subject.judge(used, "0", |mib| {
        Judgement::unless(*mib == 0, "a run may wait for pages from disk")
            .mended_by(Remedy::of_command("sudo swapoff -a"))
    })
}

/// `always [madvise] never`: the word in brackets is in force.
fn parse_choice(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice.to_owned())
}

fn huge_pages(readings: &Readings) -> Check {
    let name = "transparent_hugepages";
    let subject = Subject { name, unit: None, concerns: &[Everything] };
    let found = if readings.files.is_absent(HUGE_PAGES) {
        Reading::Value("not built in".to_owned())
    } else {
        readings.files.text(HUGE_PAGES).parsed("no choice in brackets", parse_choice)
    };
    subject.judge(found, "madvise or never", |choice| {
        let what = "memory figures jump by 2 MiB, and the kernel may merge pages in mid-run";
        Judgement::unless(choice != "always", what).mended_by(Remedy::write("madvise", HUGE_PAGES))
    })
}

fn overcommit(readings: &Readings) -> Check {
    let name = "vm.overcommit_memory";
    Sysctl {
        subject: Subject { name, unit: None, concerns: &[Queues, Descriptors] },
        wanted: "0 or 1".to_owned(),
        is_enough: |mode| mode != 2,
        effect: |_| {
            "stacks of many threads and processes count in full: 250 workers may be refused".into()
        },
        set: 0,
    }
    .check(readings)
}

pub(super) fn queue_checks(readings: &Readings, demands: &Demands<'_>) -> Vec<Check> {
    let of = |name, unit| Subject { name, unit: Some(unit), concerns: QUEUES_ONLY };
    let sysctls = [
        Sysctl {
            subject: of("fs.mqueue.queues_max", "queues"),
            wanted: count(POOL_QUEUES),
            is_enough: |max| max >= POOL_QUEUES,
            effect: |max| format!("a pool with more than {max} queues"),
            set: POOL_QUEUES,
        },
        Sysctl {
            subject: of("fs.mqueue.msg_max", "messages"),
            wanted: count(MESSAGES),
            is_enough: |max| max >= MESSAGES,
            effect: |max| format!("queues are {max} deep: senders wait sooner"),
            set: MESSAGES,
        },
        Sysctl {
            subject: of("fs.mqueue.msgsize_max", "bytes"),
            wanted: count(MESSAGE_BYTES),
            is_enough: |max| max >= MESSAGE_BYTES,
            effect: |max| format!("messages longer than {} bytes", count(max)),
            set: MESSAGE_BYTES,
        },
    ];
    let others = [bytes(readings, demands.queue_bytes), sessions(readings)];
    others.into_iter().chain(sysctls.map(|sysctl| sysctl.check(readings))).collect()
}

/// The kernel shares the CPUs among sessions first (sched(7)): who calls from another session than that of the workers waits
/// long where a thread is interrupted within a call.
fn sessions(readings: &Readings) -> Check {
    let name = "kernel.sched_autogroup_enabled";
    let found = if readings.files.is_absent(AUTOGROUP) {
        // A kernel without sessions that count.
        Reading::Value(0)
    } else {
        readings.files.number(AUTOGROUP)
    };
    let wanted =
        "0 for a pool in another session than its clients, as a unit of systemd is; else any";
    let subject = Subject { name, unit: None, concerns: QUEUES_ONLY };
    subject.judge(found, wanted, |value| {
        let effect = "CPUs are shared among sessions: calls of another one than the pool's take 75 ms and more at the \
                      longest, 4 to 18 within one";
        Judgement::unless(*value == 0, effect).mended_by(Remedy::sysctl(name, 0))
    })
}

const fn queue_bytes(messages: u64) -> u64 {
    messages * (MESSAGE_BYTES + OVERHEAD_BYTES)
}

/// The deepest reply queues beside a service queue of full depth; `None` if not even one message.
fn reply_depth(limit_bytes: u64) -> Option<u64> {
    let left = limit_bytes.checked_sub(queue_bytes(MESSAGES))?;
    Some(left / (POOL_CLIENT_THREADS * queue_bytes(1))).filter(|depth| *depth > 0)
}

fn bytes(readings: &Readings, jobs_bytes: u64) -> Check {
    let environment = &readings.environment;
    let limit = environment.limits.message_queue_bytes.soft.unwrap_or(u64::MAX);
    let subject =
        Subject { name: "message_queue_bytes", unit: Some("bytes"), concerns: QUEUES_ONLY };
    let wanted = format!(
        "{}: {POOL_QUEUES} queues of {MESSAGES} messages of 8 KiB for {POOL_WORKERS} workers; {} for the jobs",
        count(FULL_BYTES),
        count(jobs_bytes)
    );
    subject.judge(number_or_unlimited(limit), wanted, |_| {
        if limit >= FULL_BYTES {
            return Judgement::ok();
        }
        let short = count(FULL_BYTES - limit);
        let note = note_on_rights(environment);
        let raise = Remedy::raise(environment, "msgqueue", FULL_BYTES);
        match reply_depth(limit) {
            Some(depth) => Judgement::limits(format!(
                "{short} bytes short: reply queues of {depth} messages instead of {MESSAGES}{note}"
            )),
            None if limit >= jobs_bytes => Judgement::limits(format!(
                "{short} bytes short: no pool by queues with {POOL_CLIENT_THREADS} client threads; the built-in jobs \
                 have short messages and fit{note}"
            )),
            None => Judgement::blocks(format!(
                "{short} bytes short: no built-in job on a queue, no pool by queues with {POOL_CLIENT_THREADS} \
                 client threads{note}"
            )),
        }
        .mended_by(raise)
    })
}

pub(super) fn ring_checks(readings: &Readings) -> Vec<Check> {
    vec![disabled(readings), opened(readings), locked(readings), aio(readings)]
}

fn disabled(readings: &Readings) -> Check {
    let name = "kernel.io_uring_disabled";
    let subject = Subject { name, unit: None, concerns: &[Everything] };
    let found = readings.environment.io_uring_disabled.clone().map(|level| level.to_string());
    subject.judge(found, "0", |level| {
        let rule = if level == "1" {
            "only one group may open rings"
        } else {
            "no process may open rings"
        };
        // Level 1 lets those with CAP_SYS_ADMIN and a group through: the probe below decides.
        let is_let_through = level == "1" && readings.ring.value().is_some();
        Judgement::unless(
            level == "0" || is_let_through,
            format!("arms `uring-poll`, `uring`: {rule}"),
        )
        .mended_by(Remedy::sysctl(name, 0))
    })
}

fn opened(readings: &Readings) -> Check {
    let subject = Subject { name: "io_uring_opens", unit: None, concerns: &[Everything] };
    let tried = readings.ring.as_ref().map(|()| "yes");
    subject.tried(&tried, "yes", "arms `uring-poll`, `uring` are left out")
}

fn locked(readings: &Readings) -> Check {
    let environment = &readings.environment;
    let name = "locked_memory_soft_bytes";
    let subject = Subject { name, unit: Some("bytes"), concerns: &[Servers, Descriptors, Dead] };
    let soft = environment.limits.locked_memory_bytes.soft.unwrap_or(u64::MAX);
    let held = environment.capabilities.value();
    let is_exempt = held.is_some_and(|held| held.names.iter().any(|name| name == "CAP_IPC_LOCK"));
    let wanted = format!("{}, or CAP_IPC_LOCK", count(LOCKED_BYTES));
    subject.judge(number_or_unlimited(soft), wanted, |_| {
        let what = format!(
            "rings are opened smaller, or not at all, where the kernel counts them{}",
            note_on_rights(environment)
        );
        Judgement::unless(soft >= LOCKED_BYTES || is_exempt, what).mended_by(Remedy::raise(
            environment,
            "memlock",
            LOCKED_BYTES,
        ))
    })
}

fn aio(readings: &Readings) -> Check {
    let name = "fs.aio-max-nr_free";
    let subject = Subject { name, unit: Some("slots"), concerns: &[Dead, Descriptors] };
    let free = readings.files.number("/proc/sys/fs/aio-max-nr").and_then(|max| {
        let used = readings.files.number("/proc/sys/fs/aio-nr");
        used.map(|used| max.saturating_sub(used))
    });
    let wanted = format!(
        "{}: the arm `aio` beside {} dead connections of one server process",
        count(AIO_SLOTS),
        count(DEAD_CONNECTIONS)
    );
    subject.judge(free, wanted, |free| {
        // Doubling from a power of two holds one and a half times the new size for a moment.
        let most = (free * 2 / 3).checked_ilog2().map_or(0, |power| 1_u64 << power);
        let what = format!("the arm `aio` past {} descriptors in one poller", count(most));
        let remedy = Remedy::sysctl("fs.aio-max-nr", 1_048_576);
        Judgement::unless(*free >= AIO_SLOTS, what).mended_by(remedy)
    })
}

pub(crate) fn checks(readings: &Readings) -> Vec<Check> {
    let Sandbox { landlock, seccomp, ring } = &readings.sandbox;
    let part = |name, tried: &Reading<String>, effect| {
        let subject = Subject { name, unit: None, concerns: &[Servers] };
        subject.tried(tried, "in force where it is tried", effect)
    };
    let yes = |tried: &Reading<()>| tried.as_ref().map(|()| "yes".to_owned());
    let mut checks = vec![
        part("sandbox_landlock", landlock, "every path stays in reach of `pollux serve`"),
        part("sandbox_seccomp", &yes(seccomp), "`pollux serve` may make every system call"),
    ];
    // Without rings nothing is asked of one.
    if readings.ring.value().is_some() {
        let effect = "the ring of `pollux serve` takes every request";
        checks.push(part("sandbox_ring", &yes(ring), effect));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_in_force_is_the_one_in_brackets() {
        assert_eq!(parse_choice("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(parse_choice("always madvise never"), None);
    }

    #[test]
    fn the_need_is_what_the_kernel_charges() {
        assert_eq!(queue_bytes(MESSAGES), 82_880);
        assert_eq!(FULL_BYTES, 911_680);
        assert_eq!(reply_depth(819_200), Some(8));
        assert_eq!(reply_depth(FULL_BYTES), Some(MESSAGES));
        assert_eq!(reply_depth(82_880 + 82_879), None);
        assert_eq!(reply_depth(0), None);
    }
}
