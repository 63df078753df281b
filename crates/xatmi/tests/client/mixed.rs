//! Many callers at once, with everything that goes wrong: no reply may reach another call.

use std::collections::HashMap;
use std::time::Duration;

use pollux_xatmi::client::{Client, Descriptor, Which};
use pollux_xatmi::error::Code;
use pollux_xatmi::wire::Reply;

use crate::held::{NONE, get, text};
use crate::support::Pool;

const CALLERS: u64 = 6;
const STEPS: u64 = 250;
const SERVICES: [&str; 3] = ["ONE", "TWO", "THREE"];

/// Numbers that are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Serves requests: most are answered, some twice, some never, some with an error.
fn serve(pool: &mut Pool, service: &str, seed: u64) {
    let mut random = Random(seed);
    pool.serve(service, move |request, replier| match random.below(20) {
        0 => {}
        1 => {
            let (nonce, call_id) = (request.client.nonce, request.call_id);
            replier.send(request, &Reply::failing(nonce, call_id, Code::ServiceError));
        }
        2 => {
            replier.answer(request, request.payload);
            replier.answer(request, request.payload);
        }
        _ => replier.answer(request, request.payload),
    });
}

/// One caller: sends, asks, gives up, in any order; every answer must be that of its call.
fn call_at_random(client: &mut Client, caller: u64) -> [u32; 3] {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ caller);
    let mut out: HashMap<Descriptor, String> = HashMap::new();
    let [mut right, mut failed, mut late] = [0; 3];
    for step in 0..STEPS {
        let any = out.keys().nth(random.below(out.len().max(1))).copied();
        let which = match (random.below(8), any) {
            (0, Some(descriptor)) => {
                client.cancel(descriptor).expect("it is out");
                out.remove(&descriptor);
                continue;
            }
            (1 | 2, Some(descriptor)) => Which::One(descriptor),
            (3, Some(_)) => Which::Any,
            _ => {
                let (service, said) = (SERVICES[random.below(3)], format!("{caller}-{step}"));
                match client.call_async(service, &text(&said), NONE) {
                    Ok(descriptor) => {
                        assert_eq!(out.insert(descriptor, said), None, "given out while open");
                    }
                    Err(error) => assert_eq!(error.code(), Code::Time, "the queue stayed full"),
                }
                continue;
            }
        };
        match get(client, which) {
            Ok((descriptor, said)) => {
                assert_eq!(out.remove(&descriptor), Some(said), "another call's reply");
                right += 1;
            }
            // Which one failed is not told here, so all of these are given up.
            Err(Code::ServiceError) => {
                failed += 1;
                for (descriptor, _) in out.drain() {
                    let _ = client.cancel(descriptor);
                }
            }
            Err(Code::Time) => late += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    [right, failed, late]
}

#[test]
fn no_reply_reaches_another_call() {
    let mut pool = Pool::start();
    for (number, service) in SERVICES.iter().enumerate() {
        serve(&mut pool, service, 77 + number as u64);
    }
    let sums = std::thread::scope(|scope| {
        let callers: Vec<_> = (1..=CALLERS)
            .map(|caller| {
                let mut client = pool.client();
                client.set_timeout(Duration::from_millis(40));
                scope.spawn(move || (call_at_random(&mut client, caller), client.counters()))
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("no panic")).collect::<Vec<_>>()
    });
    let sum = |of: usize| sums.iter().map(|(counts, _)| counts[of]).sum::<u32>();
    assert!(sum(0) > 0 && sum(1) > 0 && sum(2) > 0, "right, failed and late: {sums:?}");
    let dropped: u64 = sums.iter().map(|(_, counters)| counters.late).sum();
    assert!(dropped > 0, "second answers and those of cancelled calls were dropped");
    for (_, counters) in sums {
        assert_eq!((counters.malformed, counters.foreign), (0, 0));
    }
}
