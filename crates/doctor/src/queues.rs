//! POSIX message queues: what a pool of 250 workers with ten client threads needs, and what the
//! built-in jobs do, whose messages are short.
//!
//! The kernel charges a queue `messages * (bytes of a message + 96)` to its user, in full and when
//! it is made. A pool has one queue for its service, which all workers share, and one for the
//! replies to each client thread; a queue for each worker would not fit any default.

use pollux_report::number::count;

use super::Demands;
use super::check::{Check, Concern, Judgement, Subject};
use super::descriptors::number_or_unlimited;
use super::readings::Readings;
use super::remedy::{Remedy, who_can_raise};

const WORKERS: u64 = 250;
const CLIENT_THREADS: u64 = 10;
const QUEUES: u64 = 1 + CLIENT_THREADS;
/// The kernel's defaults, which need no privilege.
const MESSAGES: u64 = 10;
const MESSAGE_BYTES: u64 = 8192;
/// What the kernel adds to each message: its header and its node in the tree of priorities.
const OVERHEAD_BYTES: u64 = 96;
const FULL_BYTES: u64 = QUEUES * queue_bytes(MESSAGES);

const QUEUES_ONLY: &[Concern] = &[Concern::Queues];

pub(super) fn checks(readings: &Readings, demands: &Demands<'_>) -> Vec<Check> {
    vec![
        bytes(readings, demands.queue_bytes),
        sysctl(readings, "fs.mqueue.queues_max", "/proc/sys/fs/mqueue/queues_max", QUEUES),
        sysctl(readings, "fs.mqueue.msg_max", "/proc/sys/fs/mqueue/msg_max", MESSAGES),
        sysctl(readings, "fs.mqueue.msgsize_max", "/proc/sys/fs/mqueue/msgsize_max", MESSAGE_BYTES),
    ]
}

const fn queue_bytes(messages: u64) -> u64 {
    messages * (MESSAGE_BYTES + OVERHEAD_BYTES)
}

/// The deepest reply queues beside a service queue of full depth; `None` if not even one message.
fn reply_depth(limit_bytes: u64) -> Option<u64> {
    let left = limit_bytes.checked_sub(queue_bytes(MESSAGES))?;
    Some(left / (CLIENT_THREADS * queue_bytes(1))).filter(|depth| *depth > 0)
}

fn bytes(readings: &Readings, jobs_bytes: u64) -> Check {
    let environment = &readings.environment;
    let limit = environment.limits.message_queue_bytes.soft.unwrap_or(u64::MAX);
    let subject =
        Subject { name: "message_queue_bytes", unit: Some("bytes"), concerns: QUEUES_ONLY };
    let wanted = format!(
        "{}: {QUEUES} queues of {MESSAGES} messages of 8 KiB for {WORKERS} workers; {} for the jobs",
        count(FULL_BYTES),
        count(jobs_bytes)
    );
    subject.judge(number_or_unlimited(limit), wanted, |_| {
        if limit >= FULL_BYTES {
            return Judgement::ok();
        }
        let short = count(FULL_BYTES - limit);
        let who = who_can_raise(environment);
        let raise = Remedy::raise(environment, "msgqueue", FULL_BYTES);
        match reply_depth(limit) {
            Some(depth) => Judgement::limits(format!(
                "{short} bytes short: reply queues of {depth} messages instead of {MESSAGES}{who}"
            )),
            None if limit >= jobs_bytes => Judgement::limits(format!(
                "{short} bytes short: no pool by queues with {CLIENT_THREADS} client threads; the built-in jobs \
                 have short messages and fit{who}"
            )),
            None => Judgement::blocks(format!(
                "{short} bytes short: no built-in job on a queue, no pool by queues with {CLIENT_THREADS} \
                 client threads{who}"
            )),
        }
        .mended_by(raise)
    })
}

fn sysctl(readings: &Readings, name: &'static str, path: &str, least: u64) -> Check {
    let unit = match name {
        "fs.mqueue.msgsize_max" => "bytes",
        "fs.mqueue.msg_max" => "messages",
        _ => "queues",
    };
    let subject = Subject { name, unit: Some(unit), concerns: QUEUES_ONLY };
    subject.judge(readings.files.number(path), count(least), |max| {
        let what = match name {
            "fs.mqueue.queues_max" => format!("a pool with more than {max} queues"),
            "fs.mqueue.msg_max" => format!("queues are {max} deep: senders wait sooner"),
            _ => format!("messages longer than {} bytes", count(*max)),
        };
        Judgement::unless(*max >= least, what).mended_by(Remedy::sysctl(name, least))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
