//! io_uring and AIO: whether the kernel gives them to this user, and how large they may be.

use pollux_report::number::count;

use super::check::{Check, Concern, Judgement, Subject};
use super::descriptors::{ACTIVE_CONNECTIONS, DEAD_CONNECTIONS, number_or_unlimited};
use super::readings::Readings;
use super::remedy::{Remedy, who_can_raise};
use crate::host::Reading;

use Concern::{Dead, Descriptors, Everything, Servers};

/// The completion loop's ring (1024 requests of 64 bytes, 8192 completions of 16) and its buffers.
const LOCKED_BYTES: u64 = 8 << 20;
/// The context of one poller that watches the dead connections and the active ones: it doubles when
/// it is full, and the half as large one stands meanwhile.
const AIO_SLOTS: u64 = {
    let size = (DEAD_CONNECTIONS + ACTIVE_CONNECTIONS).next_power_of_two();
    size + size / 2
};

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![disabled(readings), opened(readings), locked(readings), aio(readings)]
}

fn disabled(readings: &Readings) -> Check {
    let name = "kernel.io_uring_disabled";
    let subject = Subject { name, unit: None, concerns: &[Everything] };
    let found = readings.environment.io_uring_disabled.clone().map(|level| level.to_string());
    subject.judge(found, "0", |level| {
        let who =
            if level == "1" { "only one group may open rings" } else { "nobody may open rings" };
        // Level 1 lets those with CAP_SYS_ADMIN and a group through: the probe below decides.
        let is_let_through = level == "1" && readings.ring.value().is_some();
        Judgement::unless(
            level == "0" || is_let_through,
            format!("arms `uring-poll`, `uring`: {who}"),
        )
        .mended_by(Remedy::sysctl(name, 0))
    })
}

fn opened(readings: &Readings) -> Check {
    let subject = Subject { name: "io_uring_opens", unit: None, concerns: &[Everything] };
    // A refusal is an answer here, and not a figure that is missing.
    let found = match &readings.ring {
        Reading::Value(()) => "yes".to_owned(),
        Reading::Unavailable { .. } => "no".to_owned(),
    };
    subject.judge(Reading::Value(found), "yes", |_| match readings.ring.reason() {
        None => Judgement::ok(),
        Some(reason) => {
            Judgement::limits(format!("arms `uring-poll`, `uring` are left out: {reason}"))
        }
    })
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
            who_can_raise(environment)
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
