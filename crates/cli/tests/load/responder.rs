//! A server whose delays are known: chosen by the number of the request, and measured by itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::run::wait;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// So long before its time an answer is waited for on the CPU: sleeping ends late.
const SPIN: Duration = Duration::from_micros(150);

/// Of a thousand requests; no quantile that is looked at lies on a step.
fn delay(number: u64) -> Duration {
    // 617 has no factor of 1,000, so all thousand remainders occur, well mixed.
    Duration::from_millis(match number * 617 % 1_000 {
        0..800 => 2,
        800..980 => 10,
        980..998 => 40,
        _ => 100,
    })
}

/// What its threads share.
#[derive(Default)]
struct Given {
    requests: AtomicU64,
    is_over: AtomicBool,
    /// From a request that was read to its answer, in seconds.
    times_s: Mutex<Vec<f64>>,
}

/// A thread for each connection.
pub(crate) struct Responder {
    pub(crate) url: String,
    given: Arc<Given>,
}

impl Responder {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let given = Arc::new(Given::default());
        let shared = Arc::clone(&given);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if shared.is_over.load(SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Self { url, given }
    }

    /// The times that it gave, shortest first.
    pub(crate) fn given_s(&self) -> Vec<f64> {
        let mut times_s = self.given.times_s.lock().expect("no thread failed").clone();
        times_s.sort_by(f64::total_cmp);
        times_s
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.given.is_over.store(true, SeqCst);
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        drop(TcpStream::connect(address));
    }
}

fn serve(stream: &TcpStream, given: &Given) {
    stream.set_nodelay(true).expect("set");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut writer = stream;
    while reader.read_line(&mut line).is_ok_and(|len| len > 0) {
        if line.trim_end().is_empty() {
            let began = Instant::now();
            let delay = delay(given.requests.fetch_add(1, SeqCst));
            wait(delay - SPIN);
            while began.elapsed() < delay {
                std::hint::spin_loop();
            }
            let took_s = began.elapsed().as_secs_f64();
            // Before the answer leaves: then nobody can have it earlier than is booked here.
            given.times_s.lock().expect("no thread failed").push(took_s);
            if writer.write_all(ANSWER).is_err() {
                return;
            }
        }
        line.clear();
    }
}
