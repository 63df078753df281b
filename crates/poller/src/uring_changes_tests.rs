//! The plan against a model of the kernel, and the order of updates.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const FDS: usize = 3;

/// A poll as the kernel holds it: of which file, how.
type Poll = (u32, u32, Shots);

/// Descriptors, the files behind them, and a kernel that obeys requests.
#[derive(Default)]
struct World {
    files: [u32; FDS],
    is_registered: [bool; FDS],
    armed: BTreeMap<u64, Poll>,
}

impl World {
    fn obey(&mut self, request: Request) {
        match request {
            Request::PollAdd { fd, events, shots, user_data } => {
                let poll = (self.files[fd as usize], events, shots);
                assert_eq!(self.armed.insert(user_data, poll), None, "a key armed twice");
            }
            Request::PollUpdate { target, becomes, events, .. } => {
                let (file, _, shots) = self.armed.remove(&target).expect("armed");
                assert_eq!(self.armed.insert(becomes, (file, events, shots)), None);
            }
            Request::Cancel { target, .. } => {
                self.armed.remove(&target).expect("armed");
            }
        }
    }

    fn token(&self, index: usize) -> Token {
        Token::new(index as u32, self.files[index])
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Add, or modify where the descriptor is registered already.
    Want(usize, Registration),
    Delete(usize),
    /// Closes the file and opens another one under its number, without delete.
    Reopen(usize),
    Plan,
}

fn step() -> impl Strategy<Value = Step> {
    let trigger = prop_oneof![Just(Trigger::Edge), Just(Trigger::Level)];
    let interest = prop_oneof![Just(Interest::READABLE), Just(Interest::WRITABLE)];
    let how = (interest, trigger, prop::bool::weighted(0.2));
    let how = how.prop_map(|(interest, trigger, exclusive)| Registration {
        exclusive,
        ..Registration::new(interest, trigger)
    });
    prop_oneof![
        4 => (0..FDS, how).prop_map(|(index, how)| Step::Want(index, how)),
        3 => (0..FDS).prop_map(Step::Delete),
        1 => (0..FDS).prop_map(Step::Reopen),
        2 => Just(Step::Plan),
    ]
}

fn run(steps: &[Step]) {
    let (mut world, mut table, mut changes) = (World::default(), Table::new(), Changes::new());
    for &step in steps.iter().chain(&[Step::Plan]) {
        match step {
            Step::Want(index, how) => {
                let (fd, token) = (index as RawFd, world.token(index));
                world.is_registered[index] = true;
                changes.named(fd, token);
                table.insert(fd, Entry { token, how, state: Watch::new(how) });
                changes.ask(fd);
            }
            Step::Delete(index) if world.is_registered[index] => {
                world.is_registered[index] = false;
                table.remove(index as RawFd);
                changes.ask(index as RawFd);
            }
            Step::Delete(_) => {}
            Step::Reopen(index) => {
                world.files[index] += 1;
                world.is_registered[index] = false;
            }
            Step::Plan => {
                changes.plan(&table, &Counters::default());
                changes.queue().drain(..).for_each(|request| world.obey(request));
                check(&world, &table);
            }
        }
    }
}

/// What is registered is armed as it was asked for, under its present key and on its
/// present file; of anything else only forgotten files may still be armed.
fn check(world: &World, table: &Table<Watch>) {
    for index in (0..FDS).filter(|&index| world.is_registered[index]) {
        let fd = index as RawFd;
        let (key, entry) = table.key(fd).zip(table.by_fd(fd)).expect("registered");
        let poll = (world.files[index], events(entry.how), entry.state.shots);
        assert_eq!(world.armed.get(&key.0), Some(&poll));
    }
    assert_eq!(world.armed.len(), table.len(), "a poll that nobody wants");
}

proptest! {
    #[test]
    fn the_kernel_holds_what_is_wanted_after_every_plan(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        run(&steps);
    }
}

#[test]
fn the_newest_poll_is_updated_first() {
    let (mut table, mut changes) = (Table::new(), Changes::new());
    let how = Registration::new(Interest::READABLE, Trigger::Edge);
    for _ in 0..2 {
        for fd in 0..3 {
            let token = Token::new(fd as u32, 0);
            table.insert(fd, Entry { token, how, state: Watch::new(how) });
            changes.ask(fd);
        }
        changes.plan(&table, &Counters::default());
    }
    let targets = changes.queue().iter().filter_map(|request| match *request {
        Request::PollUpdate { target, .. } => Some(Key(target).fd()),
        _ => None,
    });
    assert_eq!(targets.collect::<Vec<_>>(), [2, 1, 0]);
}
