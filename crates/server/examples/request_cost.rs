//! Prints what one request costs a session, without any system call:
//! `cargo run --release -p pollux-server --example request_cost`.
//!
//! Requests come pipelined in batches, so the share of the rehearsal around the session is small.
//! No head is like the one before it, unless the line says so: equal ones are read once.
#![expect(clippy::print_stdout, reason = "an example's answer is what it prints")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pollux_engine::{Now, Rehearsal};
use pollux_server::{HttpSession, Logs, Shared};
use pollux_settings::Given;

/// Requests in one batch: their answers fit the room of one call.
const BATCH: usize = 100;
const ROUNDS: usize = 2000;

const REQUESTS: [(&str, &str); 3] = [
    ("the least", "GET / HTTP/1.1\r\nHost: 127.0.0.1:7771\r\n\r\n"),
    (
        "what ab sends",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
    ),
    (
        "what a browser sends",
        "GET /assets/app.js?v=20260101 HTTP/1.1\r\nHost: www.example.org\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
         Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
         Connection: keep-alive\r\n\r\n",
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    let equal = ("the least, all equal", REQUESTS[0].1, REQUESTS[0].1.to_owned());
    let differing =
        REQUESTS.map(|(name, request)| (name, request, request.replace("Host", "HOST")));
    for (name, request, next) in differing.into_iter().chain([equal]) {
        let config = Given::from_toml("reply = 128", "example").read()?;
        let shared = Shared::new(&config, Arc::default(), &Logs::default())?;
        let mut play: Rehearsal<HttpSession> = Rehearsal::new(shared, Now::default());
        let input = format!("{request}{next}").repeat(BATCH / 2);
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            play.feed(black_box(input.as_bytes()));
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / BATCH as f64);
            black_box(play.take_output());
        }
        println!("{name:22} {:4} bytes  {best:6.1} ns", request.len());
    }
    Ok(())
}
