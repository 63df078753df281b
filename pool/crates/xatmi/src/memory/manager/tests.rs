//! Requests that a dead worker or client left, in every state that they can be in.

use super::*;
use crate::memory::owner_of;
use crate::memory::request::Request;
use crate::queue::Prefix;

const WORKER: usize = 3;
/// Words with bits of workers and of blocks.
const ALL: [usize; 2] = [1, 1];

/// A pool whose worker died in the middle of passing on a request that its client does not wait for.
fn passed_on_by_the_dead(leaves: impl FnOnce(&Memory, Ticket)) -> (Memory, Ticket) {
    let prefix = Prefix::new("/passed-on").expect("a prefix");
    let memory = Memory::create(&prefix, 64, 512).expect("memory");
    memory.offer(&ServiceName::new("FIRST").expect("a name"), |_| false).expect("room");
    let block = memory.exchange.block(7).expect("there are more");
    assert!(block.take(owner_of(4711, 1)));
    let number = block.requests().start;
    let request = memory.exchange.request(number).expect("it is there");
    let ticket = request.open(7).expect("it is free");
    leaves(&memory, ticket);
    memory.claim(WORKER).expect("it is there").hold(ticket);
    let passed_on = Ticket { hops: 1, ..ticket };
    (memory, passed_on)
}

fn request(memory: &Memory, ticket: Ticket) -> Request<'_> {
    memory.exchange.request(ticket.request).expect("it is there")
}

fn is_reclaimed(memory: &Memory, ticket: Ticket, is_suspicious: bool) {
    let request = request(memory, ticket);
    assert!(request.state().0.is_under_way(), "no check has shown yet that it is not in a ring");
    let mut suspects = HashSet::new();
    memory.inspect(is_suspicious, &mut suspects);
    assert_eq!(suspects, HashSet::from([ticket]));
    memory.inspect(false, &mut suspects);
    assert_eq!((request.state().0, suspects.len()), (State::Free, 0));
}

#[test]
fn a_request_without_reply_whose_worker_died_before_its_push_is_free_again() {
    let (memory, ticket) = passed_on_by_the_dead(|memory, ticket| {
        let request = request(memory, ticket);
        request.ask(ticket, false);
        assert!(request.pass_on(ticket).is_some());
    });
    let (_, is_unclear) = memory.answer_callers_of_dead(WORKER);
    is_reclaimed(&memory, ticket, is_unclear);
}

#[test]
fn a_request_that_was_given_up_and_whose_worker_died_before_its_push_is_free_again() {
    let (memory, ticket) = passed_on_by_the_dead(|memory, ticket| {
        let request = request(memory, ticket);
        request.ask(ticket, true);
        assert!(request.pass_on(ticket).is_some());
        request.give_up();
        memory.end_client(4711, Some(1));
        assert_eq!(memory.exchange.block(7).expect("there are more").owner(), 0);
    });
    let (_, is_unclear) = memory.answer_callers_of_dead(WORKER);
    is_reclaimed(&memory, ticket, is_unclear);
}

#[test]
fn a_request_whose_client_died_before_its_push_is_free_again() {
    let mut is_left = false;
    let (memory, ticket) = passed_on_by_the_dead(|memory, ticket| {
        request(memory, ticket).ask(ticket, true);
        is_left = memory.end_client(4711, None);
    });
    memory.claim(WORKER).expect("it is there").give_to(0);
    is_reclaimed(&memory, Ticket { hops: 0, ..ticket }, is_left);
}

#[test]
fn a_request_for_a_service_that_was_withdrawn_long_ago_is_answered() {
    let (memory, ticket) = passed_on_by_the_dead(|memory, ticket| {
        request(memory, ticket).ask(ticket, true);
    });
    memory.claim(WORKER).expect("it is there").let_go();
    memory.withdraw(0);
    let pushed = memory.exchange.ring(0).expect("it was offered").push(ticket.request);
    assert!(matches!(pushed, Ok(Some(_))));
    let look = memory.inspect(false, &mut HashSet::new());
    let state = request(&memory, ticket).state().0;
    assert_eq!(state, State::Answered(Some(Code::NoEntry.number() as u8)));
    assert_eq!(look.answers.sent, 1);
}

#[test]
fn callers_of_a_service_whose_ring_was_broken_when_it_was_withdrawn_are_answered() {
    // Its head, its tail, and the cell of the first request.
    let words = [0, 8, 24].into_iter().flat_map(|word| [(word, false), (word, true)]);
    for (word, is_withdrawn_first) in words {
        let (memory, ticket) = passed_on_by_the_dead(|memory, ticket| {
            request(memory, ticket).ask(ticket, true);
        });
        memory.claim(WORKER).expect("it is there").let_go();
        let break_ring = || {
            let ring = memory.exchange.ring(0).expect("it was offered");
            assert!(matches!(ring.push(ticket.request), Ok(Some(_))));
            let at = (memory.geometry().ring(0) + word) * size_of::<u64>();
            let wrong = (5_u64 << 40 | 0b11 << 32).to_ne_bytes();
            let written = rustix::io::pwrite(&memory.exchange_fd, &wrong, at as u64);
            assert_eq!(written, Ok(wrong.len()));
        };
        let mut suspects = HashSet::new();
        let mut answers = Answers::default();
        if is_withdrawn_first {
            answers += memory.withdraw(0);
            break_ring();
        } else {
            break_ring();
            answers += memory.withdraw(0);
        }
        // The request whose cell was overwritten is found to be in no ring, and missed again.
        for _ in 0..3 {
            answers += memory.inspect(answers.rings_rebuilt > 0, &mut suspects).answers;
        }
        let context = format!("word {word}, withdrawn first: {is_withdrawn_first}");
        assert_eq!((answers.sent, answers.rings_rebuilt), (1, 1), "{context}");
        assert!(memory.is_sound(0), "{context}");
    }
}

#[test]
fn requests_never_used_are_not_looked_at() {
    let prefix = Prefix::new("/unused").expect("a prefix");
    let memory = Memory::create(&prefix, 64, 8192).expect("memory");
    let pages = || rustix::fs::fstat(&memory.exchange_fd).expect("it is open").st_blocks;
    for number in [0, 5, 1_000] {
        let request = memory.exchange.request(number).expect("it is there");
        let ticket = request.open(0).expect("it is free");
        request.ask(ticket, true);
    }
    let before = pages();
    let numbers: HashSet<u32> = memory.orphans().iter().map(|ticket| ticket.request).collect();
    assert_eq!(numbers, HashSet::from([0, 5, 1_000]));
    assert_eq!(pages(), before, "no page more, in blocks of 512 bytes");
}

#[test]
fn threads_of_dead_processes_do_not_count_as_able_to_run() {
    let (memory, ticket) = passed_on_by_the_dead(|memory, ticket| {
        request(memory, ticket).ask(ticket, true);
    });
    let runnable = memory.exchange.runnable();
    runnable.set_present(WORKER, true);
    let block = memory.exchange.block(7).expect("there are more");
    block.set_calling(true);
    assert!(runnable.is_above(1, ALL) && !runnable.is_above(2, ALL), "both run");
    block.arm();
    assert!(!runnable.is_above(1, ALL), "the client sleeps");
    request(&memory, ticket).answer(ticket, 0);
    memory.exchange.wake_client(&request(&memory, ticket));
    assert!(runnable.is_above(1, ALL), "it counts from its wake on");
    memory.end_client(4711, None);
    assert!(!runnable.is_above(1, ALL), "the client is dead");
    memory.answer_callers_of_dead(WORKER);
    assert!(!runnable.is_above(0, ALL), "the worker too");
}

#[test]
fn a_worker_that_calls_another_service_is_one_thread() {
    let prefix = Prefix::new("/one-thread").expect("a prefix");
    let memory = Memory::create(&prefix, 64, 512).expect("memory");
    let runnable = memory.exchange.runnable();
    memory.exchange.serve_here(WORKER);
    let block = memory.exchange.block(7).expect("there are more");
    block.set_calling(true);
    memory.exchange.set_worker_here(false);
    assert!(runnable.is_above(0, ALL) && !runnable.is_above(1, ALL), "as a client");
    block.arm();
    assert!(!runnable.is_above(0, ALL), "it sleeps for its reply");
    block.disarm();
    block.set_calling(false);
    memory.exchange.set_worker_here(true);
    assert!(runnable.is_above(0, ALL) && !runnable.is_above(1, ALL), "as a worker");
    let other = Memory::create(&prefix, 64, 512).expect("memory");
    other.exchange.set_worker_here(true);
    assert!(!other.exchange.runnable().is_above(0, ALL), "it is none of another pool");
}

#[test]
fn no_worker_is_woken_beside_one_that_comes_unless_that_is_in_doubt() {
    let prefix = Prefix::new("/coming").expect("a prefix");
    let memory = Memory::create(&prefix, 64, 512).expect("memory");
    let service = ServiceName::new("FIRST").expect("a name");
    let ring = memory.offer(&service, |_| false).expect("room");
    let exchange = &memory.exchange;
    let workers = [(); 3].map(|()| memory.take_number().expect("room"));
    for worker in workers {
        exchange.runnable().set_present(worker, true);
        memory.set_offer(ring, worker, true);
        exchange.idle().come(worker);
        exchange.idle().arm(worker);
    }
    let asleep = || workers.into_iter().filter(|worker| exchange.idle().is_armed(*worker)).count();
    let wake = || exchange.wake_one_if_none_comes(&*memory.records, ring);
    wake();
    wake();
    assert_eq!(asleep(), 2, "the first one comes for both");
    exchange.idle().come(workers[0]);
    wake();
    assert_eq!(asleep(), 1, "it has looked: another one comes for what was pushed since");
    wake();
    assert_eq!(asleep(), 1, "that one was not there yet");
    exchange.doubt(&*memory.records, ring);
    wake();
    assert_eq!(asleep(), 0, "it is stopped");
    memory.answer_callers_of_dead(workers[2]);
    exchange.idle().arm(workers[1]);
    wake();
    assert!(!exchange.idle().is_armed(workers[1]), "the dead do not come");
}
