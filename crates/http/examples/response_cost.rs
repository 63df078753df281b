//! Prints what one response head costs, read and known:
//! `cargo run --release -p pollux-http --example response_cost`.
#![expect(clippy::print_stdout, reason = "an example's answer is what it prints")]

use std::hint::black_box;
use std::time::Instant;

use pollux_http::{BodyReader, HeadCache, Limits, RequestKind, Response};

const HEADS: [(&str, &str); 3] = [
    ("a short one", "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n"),
    (
        "as nginx sends it",
        "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: text/plain\r\nContent-Length: 13\r\n\r\n",
    ),
    (
        "a file's",
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: text/html\r\nContent-Length: 13\r\n\
         Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: keep-alive\r\n\
         ETag: \"63452c10-264\"\r\nAccept-Ranges: bytes\r\n\r\n",
    ),
];

/// Reads in one batch; long enough for the clock, short enough to be undisturbed now and then.
const BATCH: u32 = 20_000;
const BATCHES: u32 = 50;

fn main() {
    let limits = Limits::default();
    for (name, head) in HEADS {
        let input = format!("{head}Hello, World!");
        let input = input.as_bytes();
        let read = best_ns(|| {
            let parsed = Response::parse(black_box(input), &limits, RequestKind::Other);
            assert!(matches!(black_box(&parsed), Ok(Some(_))));
        });
        let mut cache = HeadCache::new(limits);
        let known = best_ns(|| {
            let facts = cache.read(black_box(input), RequestKind::Other);
            assert!(matches!(black_box(&facts), Ok(Some(_))));
        });
        let with_body = best_ns(|| {
            let Ok(Some(facts)) = cache.read(black_box(input), RequestKind::Other) else {
                panic!("the head is whole and sound")
            };
            let mut reader = BodyReader::of_response(facts.body, &limits);
            let step = reader.feed(&input[facts.head_len..]);
            assert!(black_box(&step).as_ref().is_ok_and(|step| step.is_done));
        });
        println!(
            "{name:18} {:4} bytes  read {read:6.1} ns  known {known:6.1} ns  \
             known, with its body {with_body:6.1} ns",
            head.len()
        );
    }
}

fn best_ns(mut once: impl FnMut()) -> f64 {
    (0..BATCHES).map(|_| batch_ns(&mut once)).fold(f64::MAX, f64::min)
}

fn batch_ns(once: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..BATCH {
        once();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
}
