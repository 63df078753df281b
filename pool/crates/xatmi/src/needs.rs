//! Do the queues of a pool fit the limits of this machine, and which limit is short by how much?
//!
//! The manager asks before it makes queues, and `pollux pool check` before it is even started.
//! Pure but for [`QueueLimits::of_machine`], which reads the limits.
//!
//! The kernel charges a queue in full when it is made: for each message its bytes and
//! [`MESSAGE_OVERHEAD_BYTES`] (`mq_overview(7)`, "Resource limit").

use std::fmt;
use std::fs;
use std::io;

use pollux_sys::descriptors;
use pollux_sys::mqueue::QueueSize;
use rustix::process::{Resource, getrlimit};

use crate::environment::{MESSAGE_LEN_BYTES_MAX, MESSAGES_MAX};

/// What the kernel adds to each message: its header and its node in the tree of priorities.
pub const MESSAGE_OVERHEAD_BYTES: u64 = 96;

/// Bytes of what `ulimit -f` of bash counts.
const FILE_BLOCK_BYTES: u64 = 1024;

/// The bit of CAP_SYS_RESOURCE, which lifts the limits of `/proc/sys/fs/mqueue`
/// (`capabilities(7)`).
const CAP_SYS_RESOURCE: u32 = 24;

/// A number of queues that are alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// What they are for, such as `service queues`.
    pub what: String,
    pub queues: u64,
    /// The size of each.
    pub size: QueueSize,
}

impl Need {
    /// Bytes that the kernel charges for all of them.
    #[must_use]
    pub fn charge_bytes(&self) -> u64 {
        self.queues.saturating_mul(charge_bytes(self.size))
    }
}

/// Bytes that the kernel charges for a queue.
#[must_use]
pub fn charge_bytes(size: QueueSize) -> u64 {
    let message_bytes = u64::from(size.message_len_bytes) + MESSAGE_OVERHEAD_BYTES;
    u64::from(size.messages_max) * message_bytes
}

/// The limits on message queues, as they hold for this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueLimits {
    /// Bytes of all queues of the user (RLIMIT_MSGQUEUE); `None` for no limit.
    pub bytes: Option<u64>,
    /// What the user may raise that to without privilege; `None` for no limit.
    pub bytes_hard: Option<u64>,
    /// Queues of the machine (`fs.mqueue.queues_max`).
    pub queues: u64,
    /// Messages in a queue (`fs.mqueue.msg_max`).
    pub messages: u64,
    /// Bytes of a message (`fs.mqueue.msgsize_max`).
    pub message_len_bytes: u64,
}

/// How long files may get, RLIMIT_FSIZE; `None` for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSizeLimits {
    pub soft: Option<u64>,
    /// What the user may raise that to without privilege.
    pub hard: Option<u64>,
}

/// The most that fits in the shared memory of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRoom {
    pub services: u64,
    /// Client contexts at the same time.
    pub contexts: u64,
}

impl QueueLimits {
    /// The limits that hold for this process.
    ///
    /// # Errors
    /// The file that cannot be read, with the reason.
    pub fn of_machine() -> Result<Self, String> {
        let limit = getrlimit(Resource::Msgqueue);
        let bytes = limit.current;
        let bytes_hard = limit.maximum;
        if is_privileged()? {
            return Ok(Self {
                bytes,
                bytes_hard,
                queues: u64::MAX,
                messages: MESSAGES_MAX.into(),
                message_len_bytes: MESSAGE_LEN_BYTES_MAX.into(),
            });
        }
        Ok(Self {
            bytes,
            bytes_hard,
            queues: sysctl("queues_max")?,
            messages: sysctl("msg_max")?,
            message_len_bytes: sysctl("msgsize_max")?,
        })
    }
}

/// A limit that the queues do not fit into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// The limit, as it is called where it is set.
    pub limit: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// What the queues need.
    pub needed: u64,
    /// What the limit allows.
    pub allowed: u64,
    /// What would help.
    pub remedy: String,
}

impl Shortage {
    /// By how much the limit is short.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.needed - self.allowed
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, unit, needed, allowed, remedy } = self;
        let missing = self.missing();
        write!(
            f,
            "{limit} is short by {missing} {unit}: {needed} needed, {allowed} allowed; {remedy}"
        )
    }
}

/// The limits that are too low for all of `needs` together, the tightest kind first; empty when
/// everything fits.
///
/// Queues of other programs count against the same limits and are not known here, so a pool that
/// just fits may still find no room.
#[must_use]
pub fn shortages(needs: &[Need], limits: &QueueLimits) -> Vec<Shortage> {
    let used = || needs.iter().filter(|need| need.queues > 0);
    let bytes = used().fold(0_u64, |sum, need| sum.saturating_add(need.charge_bytes()));
    let queues = used().fold(0_u64, |sum, need| sum.saturating_add(need.queues));
    let messages = used().map(|need| need.size.messages_max.into()).max().unwrap_or(0);
    let longest = used().map(|need| need.size.message_len_bytes.into()).max().unwrap_or(0);
    let sysctl = |name: &str, needed: u64| format!("run `sysctl fs.mqueue.{name}={needed}`");
    let may_raise = limits.bytes_hard.is_none_or(|hard| bytes <= hard);
    let raise = if may_raise {
        format!("run `ulimit -q {bytes}`")
    } else {
        format!(
            "have root raise the hard limit (msgqueue in /etc/security/limits.conf, \
             LimitMSGQUEUE={bytes} of a systemd unit)"
        )
    };
    let all = [
        Shortage {
            limit: "RLIMIT_MSGQUEUE",
            unit: "bytes",
            needed: bytes,
            allowed: limits.bytes.unwrap_or(u64::MAX),
            remedy: raise + ", or make queues smaller by NDRX_MSGSIZEMAX or NDRX_MSGMAX",
        },
        Shortage {
            limit: "fs.mqueue.queues_max",
            unit: "queues",
            needed: queues,
            allowed: limits.queues,
            remedy: sysctl("queues_max", queues),
        },
        Shortage {
            limit: "fs.mqueue.msg_max",
            unit: "messages",
            needed: messages,
            allowed: limits.messages,
            remedy: sysctl("msg_max", messages) + ", or set NDRX_MSGMAX",
        },
        Shortage {
            limit: "fs.mqueue.msgsize_max",
            unit: "bytes",
            needed: longest,
            allowed: limits.message_len_bytes,
            remedy: sysctl("msgsize_max", longest) + ", or set NDRX_MSGSIZEMAX",
        },
    ];
    all.into_iter().filter(|shortage| shortage.needed > shortage.allowed).collect()
}

/// What the shared memory of a pool has too little room for; empty when everything fits.
#[must_use]
pub fn memory_shortages(room: MemoryRoom, services: u64, contexts: u64) -> Vec<Shortage> {
    let limit = "the memory of the pool";
    let fewer = |what| format!("run some of the {what} in a pool of their own");
    let all = [
        Shortage {
            limit,
            unit: "services",
            needed: services,
            allowed: room.services,
            remedy: fewer("servers"),
        },
        Shortage {
            limit,
            unit: "client contexts",
            needed: contexts,
            allowed: room.contexts,
            remedy: fewer("clients"),
        },
    ];
    all.into_iter().filter(|shortage| shortage.needed > shortage.allowed).collect()
}

/// The limit on descriptors, if it is too low for the manager of so many workers, client contexts
/// and services: a link and a process for each worker, a connection for each context, a queue for
/// each service, and some of its own. A manager raises its soft limit to the hard one.
#[must_use]
pub fn descriptor_shortage(
    workers: u32,
    contexts: u32,
    services: u64,
    limit: descriptors::Limit,
) -> Option<Shortage> {
    /// Poller, signals, log, metrics with their connections, and what a start needs for a moment.
    const OWN: u64 = 128;
    let needed = services.saturating_add(2 * u64::from(workers) + u64::from(contexts) + OWN);
    (needed > limit.hard).then(|| Shortage {
        limit: "RLIMIT_NOFILE",
        unit: "descriptors",
        needed,
        allowed: limit.hard,
        remedy: limit.remedy(needed),
    })
}

/// The limit on the length of files, if it is too low for one of `needed` bytes: those of shared memory
/// count as well (`memfd_create(2)`), and a process that exceeds it is ended by SIGXFSZ.
#[must_use]
pub fn file_size_shortage(needed: u64, limits: FileSizeLimits) -> Option<Shortage> {
    let allowed = limits.soft.unwrap_or(u64::MAX);
    let blocks = needed.div_ceil(FILE_BLOCK_BYTES);
    let remedy = if limits.hard.is_none_or(|hard| needed <= hard) {
        format!("run `ulimit -S -f {blocks}` (files in shared memory count as files)")
    } else {
        format!(
            "have root raise the hard limit (fsize in /etc/security/limits.conf, LimitFSIZE={needed} of \
             a systemd unit); files in shared memory count as files"
        )
    };
    (needed > allowed).then_some(Shortage {
        limit: "RLIMIT_FSIZE",
        unit: "bytes",
        needed,
        allowed,
        remedy,
    })
}

/// The limits on the length of files of this process.
#[must_use]
pub fn file_size_limits() -> FileSizeLimits {
    let limit = getrlimit(Resource::Fsize);
    FileSizeLimits { soft: limit.current, hard: limit.maximum }
}

/// Whether this process may have a file of `len_bytes`, which is to be made.
///
/// # Errors
/// EFBIG, with the [`Shortage`] in words.
pub(crate) fn fits_file_size(len_bytes: usize) -> io::Result<()> {
    match file_size_shortage(len_bytes as u64, file_size_limits()) {
        Some(shortage) => Err(io::Error::new(io::ErrorKind::FileTooLarge, shortage.to_string())),
        None => Ok(()),
    }
}

fn sysctl(name: &str) -> Result<u64, String> {
    let path = format!("/proc/sys/fs/mqueue/{name}");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{path}: '{}' is not a number", text.trim()))
}

/// Whether the limits of `/proc/sys/fs/mqueue` do not count. The kernel asks for the capability
/// in the first user namespace; what root of a container has is one within its own.
fn is_privileged() -> Result<bool, String> {
    let read = |path| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let path = "/proc/self/status";
    let map = "/proc/self/uid_map";
    let text = read(path)?;
    if !is_first_namespace(&read(map)?) {
        return Ok(false);
    }
    let bits = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    let bits = bits.ok_or_else(|| format!("{path}: no line CapEff"))?;
    Ok(bits >> CAP_SYS_RESOURCE & 1 == 1)
}

/// Whether a map of user ids (`user_namespaces(7)`) leaves every id as it is.
fn is_first_namespace(map: &str) -> bool {
    let every_id = u32::MAX.to_string();
    map.split_whitespace().eq(["0", "0", &every_id])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOCK: QueueLimits = QueueLimits {
        bytes: Some(819_200),
        bytes_hard: Some(819_200),
        queues: 256,
        messages: 10,
        message_len_bytes: 8192,
    };

    fn need(what: &str, queues: u64, messages_max: u32, message_len_bytes: u32) -> Need {
        let size = QueueSize { messages_max, message_len_bytes };
        Need { what: what.to_owned(), queues, size }
    }

    #[test]
    fn the_pool_of_one_service_and_ten_callers_fits_stock_limits() {
        let needs = [need("service queues", 1, 10, 4096), need("reply queues", 10, 2, 4096)];
        assert_eq!(needs[0].charge_bytes(), 41_920);
        assert_eq!(needs[1].charge_bytes(), 83_840);
        assert_eq!(shortages(&needs, &STOCK), []);
    }

    #[test]
    fn every_short_limit_is_reported_with_what_is_missing() {
        let needs = [need("service queues", 300, 11, 8193), need("unused", 0, 99, 1 << 20)];
        let found = shortages(&needs, &STOCK);
        let missing: Vec<_> = found.iter().map(|s| (s.limit, s.missing())).collect();
        let bytes = 300 * 11 * (8193 + 96) - 819_200;
        let wanted = [
            ("RLIMIT_MSGQUEUE", bytes),
            ("fs.mqueue.queues_max", 44),
            ("fs.mqueue.msg_max", 1),
            ("fs.mqueue.msgsize_max", 1),
        ];
        assert_eq!(missing, wanted);
        assert!(found[1].to_string().contains("short by 44 queues: 300 needed, 256 allowed"));
    }

    #[test]
    fn what_does_not_fit_in_memory_is_a_shortage() {
        let room = MemoryRoom { services: 1_024, contexts: 8_192 };
        assert_eq!(memory_shortages(room, 1_024, 8_192), []);
        let short = memory_shortages(room, 1_025, 9_000);
        let short: Vec<_> = short.iter().map(|short| (short.unit, short.missing())).collect();
        assert_eq!(short, [("services", 1), ("client contexts", 808)]);
    }

    #[test]
    fn one_byte_decides() {
        let needs = [need("queue", 1, 1, 8096)];
        let limits = QueueLimits { bytes: Some(8192), ..STOCK };
        assert_eq!(shortages(&needs, &limits), []);
        let limits = QueueLimits { bytes: Some(8191), ..STOCK };
        assert_eq!(shortages(&needs, &limits)[0].missing(), 1);
        let limits = QueueLimits { bytes: None, ..STOCK };
        assert_eq!(shortages(&needs, &limits), []);
    }

    #[test]
    fn the_limits_of_this_machine_can_be_read() {
        let limits = QueueLimits::of_machine().expect("Linux with message queues");
        assert!(limits.messages >= 1 && limits.message_len_bytes >= 128, "{limits:?}");
    }

    #[test]
    fn a_user_that_may_raise_the_limit_gets_the_remedy() {
        let needs = [need("queue", 10, 10, 8192)];
        let said = |bytes_hard| {
            let limits = QueueLimits { bytes_hard, ..STOCK };
            shortages(&needs, &limits)[0].to_string()
        };
        assert!(said(None).contains("run `ulimit -q 828800`"), "{}", said(None));
        assert!(said(Some(828_800)).contains("ulimit"), "{}", said(Some(828_800)));
        assert!(said(Some(828_799)).contains("have root raise"), "{}", said(Some(828_799)));
    }

    #[test]
    fn only_the_first_user_namespace_keeps_every_id() {
        assert!(is_first_namespace("         0          0 4294967295\n"));
        for map in ["0 1000 1\n", "0 0 65536\n", "0 0 4294967295\n1 1 1\n", ""] {
            assert!(!is_first_namespace(map), "{map:?}");
        }
    }

    #[test]
    fn a_file_that_would_be_too_long_is_refused_before_it_is_made() {
        let short = |needed, soft, hard| {
            let shortage = file_size_shortage(needed, FileSizeLimits { soft, hard });
            shortage.map(|shortage| shortage.to_string())
        };
        assert_eq!(short(4096, Some(4096), Some(4096)), None);
        assert_eq!(short(u64::MAX, None, None), None);
        let said = short(4097, Some(4096), Some(8192)).expect("one byte is missing");
        assert!(
            said.starts_with("RLIMIT_FSIZE is short by 1 bytes: 4097 needed, 4096 allowed; run")
        );
        assert!(said.contains("`ulimit -S -f 5`"), "{said}");
        let said = short(4097, Some(4096), Some(4096)).expect("one byte is missing");
        assert!(said.contains("have root raise the hard limit"), "{said}");
    }

    #[test]
    fn descriptors_are_counted_for_workers_contexts_and_services() {
        let limit = |hard| descriptors::Limit { soft: hard, hard };
        assert_eq!(descriptor_shortage(250, 10, 1, limit(639)), None);
        let short = descriptor_shortage(250, 10, 1, limit(638)).expect("one is missing");
        assert!(
            short.to_string().starts_with("RLIMIT_NOFILE is short by 1 descriptors"),
            "{short}"
        );
        assert_eq!(descriptor_shortage(u32::MAX, u32::MAX, u64::MAX, limit(u64::MAX)), None);
    }
}
