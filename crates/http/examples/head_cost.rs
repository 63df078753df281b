//! Prints what one request head costs: `cargo run --release -p pollux-http --example head_cost`.
#![expect(clippy::print_stdout, reason = "an example's answer is what it prints")]

use std::hint::black_box;
use std::time::Instant;

use pollux_http::{Limits, Parsed, Request};

const HEADS: [(&str, &str); 3] = [
    ("a GET of 40 bytes", "GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n"),
    (
        "what wrk sends",
        "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: x\r\nConnection: keep-alive\r\n\r\n",
    ),
    (
        "what a browser sends",
        "GET /assets/app.js?v=20260101 HTTP/1.1\r\nHost: www.example.org\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
         Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
         Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n\
         Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\nIf-None-Match: \"68a1b2c3\"\r\n\r\n",
    ),
];

/// Parses in one batch; long enough for the clock, short enough to be undisturbed now and then.
const BATCH: u32 = 20_000;
const BATCHES: u32 = 50;

fn main() {
    let limits = Limits::default();
    for (name, head) in HEADS {
        let best =
            (0..BATCHES).map(|_| batch_ns(head.as_bytes(), &limits)).fold(f64::MAX, f64::min);
        println!("{name:22} {:4} bytes  {best:6.1} ns", head.len());
    }
}

fn batch_ns(head: &[u8], limits: &Limits) -> f64 {
    let start = Instant::now();
    for _ in 0..BATCH {
        let parsed = Request::parse(black_box(head), black_box(limits));
        assert!(matches!(black_box(&parsed), Parsed::Complete(..)));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
}
