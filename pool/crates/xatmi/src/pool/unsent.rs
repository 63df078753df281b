//! Answers of the manager to callers whose request no worker will answer: their worker died, or the
//! service was withdrawn.
//!
//! Sent at once where there is room, else tried again until the caller has given up. The manager
//! never waits for it. A caller that had its answer already drops ours by its nonce and number.

use std::time::{Duration, Instant};

use pollux_sys::mqueue::MessageQueue;
use rustix::event::{PollFd, PollFlags};

use crate::error::Code;
use crate::queue::Prefix;
use crate::wire::{HEAD_LEN_BYTES_MAX, Reply};

/// Answers that may wait for room: reply queues are two deep, so only callers that stopped
/// reading get that far.
const UNSENT_MAX: usize = 1024;
/// How often room is looked for.
const RETRY: Duration = Duration::from_millis(20);

/// The caller that an answer goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CallerAddress {
    pub(super) pid: u32,
    pub(super) context: u32,
    pub(super) nonce: u64,
    pub(super) call_id: u64,
}

#[derive(Debug)]
struct PendingReply {
    queue: MessageQueue,
    message: Vec<u8>,
    until: Instant,
}

/// The answers that wait, and what became of the others.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pending_replies: Vec<PendingReply>,
    next_try: Option<Instant>,
    /// Answers that were sent.
    pub(super) sent: u64,
    /// Answers whose caller was gone.
    pub(super) gone: u64,
    /// Answers that were given up: no room in time, or too many.
    pub(super) lost: u64,
}

impl Unsent {
    /// Sends `code` to `caller`, now or within `patience`.
    pub(super) fn answer(
        &mut self,
        prefix: &Prefix,
        caller: CallerAddress,
        code: Code,
        now: Instant,
        patience: Duration,
    ) {
        let name = prefix.reply_queue(caller.pid, caller.context);
        let Ok(queue) = MessageQueue::open(&name) else {
            self.gone += 1;
            return;
        };
        let reply = Reply::failing(caller.nonce, caller.call_id, code);
        let mut message = vec![0; HEAD_LEN_BYTES_MAX];
        let len = reply.encode(&mut message).expect("a reply without data fits its head");
        message.truncate(len);
        let mut pending = PendingReply { queue, message, until: now + patience };
        if self.try_send(&mut pending, now) {
            return;
        }
        if self.pending_replies.len() < UNSENT_MAX {
            self.pending_replies.push(pending);
            self.next_try.get_or_insert(now + RETRY);
        } else {
            self.lost += 1;
        }
    }

    /// Tries again where it is time.
    pub(super) fn pass(&mut self, now: Instant) {
        if self.next_try.is_none_or(|at| now < at) {
            return;
        }
        let mut pending_replies = std::mem::take(&mut self.pending_replies);
        pending_replies.retain_mut(|pending| !self.try_send(pending, now));
        self.next_try = (!pending_replies.is_empty()).then_some(now + RETRY);
        self.pending_replies = pending_replies;
    }

    /// The last tries, for at most `patience`: until everything is settled, each as soon as there
    /// is room. What is left then is lost.
    pub(super) fn finish(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        while !self.pending_replies.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            let queues = self
                .pending_replies
                .iter()
                .map(|pending| PollFd::new(&pending.queue, PollFlags::OUT));
            let mut queues: Vec<PollFd<'_>> = queues.collect();
            let ready = rustix::event::poll(&mut queues, left.try_into().ok().as_ref());
            if left.is_zero() || !matches!(ready, Ok(1..) | Err(rustix::io::Errno::INTR)) {
                break;
            }
            let mut pending_replies = std::mem::take(&mut self.pending_replies);
            pending_replies.retain_mut(|pending| !self.try_send(pending, Instant::now()));
            self.pending_replies = pending_replies;
        }
        self.lost += self.pending_replies.len() as u64;
        self.pending_replies.clear();
    }

    /// When [`Unsent::pass`] has something to do.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.next_try
    }

    /// Whether it is settled: sent, or given up.
    fn try_send(&mut self, pending: &mut PendingReply, now: Instant) -> bool {
        match pending.queue.send(&pending.message, 0) {
            Ok(()) => self.sent += 1,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && now < pending.until => {
                return false;
            }
            // No room in time, or a queue whose messages are shorter than a head.
            Err(_) => self.lost += 1,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_sys::mqueue::QueueSize;

    #[test]
    fn an_answer_waits_for_room_and_not_for_ever() {
        let prefix = Prefix::new(&format!("/unsent{}", std::process::id())).expect("a prefix");
        let size = QueueSize { messages_max: 1, message_len_bytes: 256 };
        let name = prefix.reply_queue(1, 2);
        let queue = MessageQueue::create(&name, size).expect("a queue");
        let start = Instant::now();
        let patience = Duration::from_secs(1);
        let caller = |call_id| CallerAddress { pid: 1, context: 2, nonce: 9, call_id };
        let mut unsent = Unsent::default();
        for call_id in 1..=3 {
            unsent.answer(&prefix, caller(call_id), Code::ServiceError, start, patience);
        }
        unsent.answer(
            &prefix,
            CallerAddress { pid: 8, ..caller(1) },
            Code::NoEntry,
            start,
            patience,
        );
        assert_eq!((unsent.sent, unsent.gone, unsent.lost), (1, 1, 0));
        let take = || {
            let mut buffer = [0; 256];
            let (len, _) = queue.receive(&mut buffer).expect("a message");
            let reply = Reply::decode(&buffer[..len]).expect("a reply");
            (reply.call_id, reply.nonce, reply.error)
        };
        assert_eq!(take(), (1, 9, Some(Code::ServiceError)));
        unsent.pass(start + RETRY);
        assert_eq!(take(), (2, 9, Some(Code::ServiceError)));
        assert!(unsent.next_moment().is_some());
        queue.send(b"x", 0).expect("room");
        unsent.pass(start + patience + RETRY);
        assert_eq!((unsent.sent, unsent.lost, unsent.next_moment()), (2, 1, None));
        MessageQueue::unlink(&name).expect("it stands");
    }

    #[test]
    fn at_the_end_answers_go_out_as_room_comes_for_a_bounded_time() {
        let prefix = Prefix::new(&format!("/unsent-end{}", std::process::id())).expect("a prefix");
        let size = QueueSize { messages_max: 1, message_len_bytes: 256 };
        let name = prefix.reply_queue(1, 2);
        let queue = MessageQueue::create(&name, size).expect("a queue");
        let mut unsent = Unsent::default();
        for call_id in 1..=4 {
            let caller = CallerAddress { pid: 1, context: 2, nonce: 9, call_id };
            let patience = Duration::from_secs(60);
            unsent.answer(&prefix, caller, Code::NoEntry, Instant::now(), patience);
        }
        let reader = std::thread::spawn(move || {
            for _ in 0..3 {
                let mut wait = [PollFd::new(&queue, PollFlags::IN)];
                let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
                assert_eq!(rustix::event::poll(&mut wait, Some(&limit)), Ok(1), "an answer");
                queue.receive(&mut [0; 256]).expect("a message");
            }
            queue
        });
        unsent.finish(Duration::from_secs(60));
        let queue = reader.join().expect("three answers");
        assert_eq!((unsent.sent, unsent.lost), (4, 0));
        let caller = CallerAddress { pid: 1, context: 2, nonce: 9, call_id: 5 };
        unsent.answer(&prefix, caller, Code::NoEntry, Instant::now(), Duration::from_secs(60));
        unsent.finish(Duration::from_millis(20));
        assert_eq!((unsent.sent, unsent.lost), (4, 1), "the queue is still full");
        drop(queue);
        MessageQueue::unlink(&name).expect("it stands");
    }
}
