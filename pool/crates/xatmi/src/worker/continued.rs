//! Calls whose service function has ended and which another thread of the program answers (`tpcontinue`).
//!
//! The dispatch keeps them and sends their answers, the registry takes these from the program. A worker that is killed
//! takes them with it: its callers wait until their time is over, as for a service that never answers.

use std::collections::{BTreeMap, VecDeque};

use super::reply::Call;
use super::service::Done;
use crate::memory::Ticket;

/// Most calls that wait for other threads; the next one fails.
const WAITING_MAX: usize = 4096;

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
    /// Its request, in shared memory.
    pub(super) ticket: Option<Ticket>,
}

/// All of a worker, by the numbers that the program gave them.
#[derive(Debug, Default)]
pub(super) struct Continued {
    waiting: BTreeMap<u64, Waiting>,
    answers: VecDeque<(u64, Done)>,
}

impl Continued {
    /// Keeps a call; whether there was room.
    pub(super) fn keep(&mut self, number: u64, call: Waiting) -> bool {
        let is_kept = self.waiting.len() < WAITING_MAX;
        if is_kept {
            self.waiting.insert(number, call);
        }
        is_kept
    }

    /// The program answers a call; one that is over is passed over.
    pub(super) fn answer(&mut self, number: u64, done: Done) {
        if self.waiting.contains_key(&number) {
            self.answers.push_back((number, done));
        }
    }

    /// The next call that was answered, with the answer.
    pub(super) fn next_answered(&mut self) -> Option<(Waiting, Done)> {
        loop {
            let (number, done) = self.answers.pop_front()?;
            // A second answer to a call is none.
            if let Some(call) = self.waiting.remove(&number) {
                return Some((call, done));
            }
        }
    }

    /// Takes out the calls whose callers do not wait any more at `now_ns`, or all.
    pub(super) fn take_over(&mut self, now_ns: Option<u64>) -> Vec<Waiting> {
        let is_over = |_: &u64, of: &mut Waiting| {
            now_ns.is_none_or(|now_ns| of.call.deadline_ns != 0 && now_ns > of.call.deadline_ns)
        };
        self.waiting.extract_if(.., is_over).map(|(_, waiting)| waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::Priority;
    use crate::wire::ClientAddress;

    fn waiting(deadline_ns: u64) -> Waiting {
        let client = ClientAddress { pid: 1, context: 2, nonce: 3 };
        let call_id = deadline_ns;
        let cd = 1;
        let is_without_reply = false;
        let is_in_transaction = false;
        let priority = Priority::USUAL;
        let call = Call {
            client,
            call_id,
            cd,
            deadline_ns,
            is_without_reply,
            is_in_transaction,
            priority,
        };
        Waiting { call, ticket: None }
    }

    #[test]
    fn a_call_is_answered_once_and_not_after_its_time() {
        let mut continued = Continued::default();
        for number in [1, 2, 3] {
            assert!(continued.keep(number, waiting(number * 10)));
        }
        for number in [2, 2, 9] {
            continued.answer(number, Done::NoReturn);
        }
        let (call, _) = continued.next_answered().expect("answered");
        assert_eq!(call.call.call_id, 20);
        assert!(continued.next_answered().is_none());
        let over = continued.take_over(Some(11));
        assert_eq!(over.iter().map(|of| of.call.call_id).collect::<Vec<_>>(), [10]);
        continued.answer(1, Done::NoReturn);
        assert!(continued.next_answered().is_none());
        assert_eq!(continued.take_over(None).len(), 1);
    }

    #[test]
    fn there_is_a_bound() {
        let mut continued = Continued::default();
        for number in 0..WAITING_MAX as u64 {
            assert!(continued.keep(number, waiting(0)));
        }
        assert!(!continued.keep(u64::MAX, waiting(0)));
        assert!(continued.take_over(Some(u64::MAX)).is_empty(), "they have no time");
    }
}
