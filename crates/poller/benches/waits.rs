//! What a wait and an update cost on each mechanism: `cargo bench -p pollux-poller`.
//!
//! Times of one process on one machine: to see what a change to a backend does before the lab decides it
//! (`pollux lab run pipes`), which puts both builds side by side.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use divan::Bencher;
use pollux_poller::{Events, Interest, Mechanism, Poller, Registration, Token, Trigger};

fn main() {
    divan::main();
}

const MECHANISMS: [&str; Mechanism::ALL.len()] = {
    let mut names = [""; Mechanism::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Mechanism::ALL[at].name();
        at += 1;
    }
    names
};

/// A poller with so many pipes, which are all empty; none where the machine forbids the mechanism.
struct Pipes {
    poller: Box<dyn Poller>,
    how: Registration,
    ends: Vec<(PipeReader, PipeWriter)>,
}

impl Pipes {
    fn open(mechanism: &str, count: usize) -> Option<Self> {
        let mechanism: Mechanism = mechanism.parse().expect("a mechanism");
        let mut poller = mechanism.open().ok()?;
        let how = Registration::new(Interest::READABLE, mechanism.trigger());
        let ends: Vec<_> = (0..count).map(|_| std::io::pipe().expect("a pipe")).collect();
        for (slot, (reader, _)) in ends.iter().enumerate() {
            poller.add(reader.as_fd(), Token::new(slot as u32, 0), how).expect("it is watched");
        }
        Some(Self { poller, how, ends })
    }

    /// Arms a registration again, where its mechanism wants that.
    fn arm(&mut self, slot: usize) {
        if self.how.trigger == Trigger::Oneshot {
            let token = Token::new(slot as u32, 0);
            self.poller.modify(self.ends[slot].0.as_fd(), token, self.how).expect("it is watched");
        }
    }
}

/// Write to one of so many pipes, wait, read.
#[divan::bench(args = MECHANISMS, consts = [16, 256])]
fn one_active_of<const PIPES: usize>(bencher: Bencher<'_, '_>, mechanism: &str) {
    let Some(mut pipes) = Pipes::open(mechanism, PIPES) else { return };
    let mut events = Events::with_capacity(64);
    let mut next = 0;
    bencher.bench_local(|| {
        next = (next + 1) % PIPES;
        pipes.ends[next].1.write_all(b"x").expect("room");
        pipes.poller.wait(&mut events, None).expect("it waits");
        let slot = events.iter().next().expect("one is ready").token.slot() as usize;
        pipes.ends[slot].0.read_exact(&mut [0]).expect("a byte");
        pipes.arm(slot);
    });
}

/// Write to all of so many pipes, wait once, read all.
#[divan::bench(args = MECHANISMS, consts = [16, 256])]
fn all_active<const PIPES: usize>(bencher: Bencher<'_, '_>, mechanism: &str) {
    let Some(mut pipes) = Pipes::open(mechanism, PIPES) else { return };
    let mut events = Events::with_capacity(PIPES);
    bencher.counter(PIPES).bench_local(|| {
        pipes.ends.iter_mut().for_each(|(_, end)| end.write_all(b"x").expect("room"));
        let mut read = 0;
        while read < PIPES {
            pipes.poller.wait(&mut events, None).expect("it waits");
            for event in events.as_slice() {
                let slot = event.token.slot() as usize;
                pipes.ends[slot].0.read_exact(&mut [0]).expect("a byte");
                read += 1;
            }
            for event in events.as_slice() {
                pipes.arm(event.token.slot() as usize);
            }
        }
    });
}

/// Delete a registration, add it again, and have the kernel know.
#[divan::bench(args = MECHANISMS)]
fn delete_and_add(bencher: Bencher<'_, '_>, mechanism: &str) {
    let Some(mut pipes) = Pipes::open(mechanism, 16) else { return };
    let mut events = Events::with_capacity(64);
    bencher.bench_local(|| {
        let reader = pipes.ends[3].0.as_fd();
        let how = pipes.how;
        pipes.poller.delete(reader).expect("it is watched");
        pipes.poller.add(reader, Token::new(3, 0), how).expect("it is not watched");
        pipes.poller.wait(&mut events, Some(Duration::ZERO)).expect("it looks");
    });
}
