//! Servers that die, fall silent or close under load: each sentence of the result is true for what happened.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_engine::Driver;
use pollux_load::{Arrival, End, FindingKind, Outcome, Pace, Plan, Stage};
use pollux_testing::{Refusing, wait_until};

use crate::{OK, plan, try_run};

const ANSWERS: u64 = 40;

/// What a server does once it has given all its answers.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Death {
    /// It is gone, with its listener and all connections.
    Gone,
    /// It keeps all connections, takes new ones, and says nothing.
    Silent,
    /// Its listener is gone and each connection is closed when it is asked.
    ClosesEach,
}

/// A server that gives so many answers.
struct Mortal {
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
    life: Arc<Life>,
}

#[derive(Debug)]
struct Life {
    left: Mutex<u64>,
    is_over: AtomicBool,
    streams: Mutex<VecDeque<TcpStream>>,
    address: SocketAddr,
    death: Death,
}

impl Mortal {
    fn start(answers: u64, death: Death) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let address = listener.local_addr().expect("an address");
        let life = Arc::new(Life {
            left: Mutex::new(answers),
            is_over: AtomicBool::new(false),
            streams: Mutex::default(),
            address,
            death,
        });
        let shared = Arc::clone(&life);
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.is_over.load(SeqCst) {
                    return;
                }
                let kept = stream.try_clone().expect("a descriptor");
                shared.streams.lock().expect("no panic").push_back(kept);
                let life = Arc::clone(&shared);
                std::thread::spawn(move || life.serve(stream));
            }
        });
        Self { address, accepting: Some(accepting), life }
    }
}

impl Life {
    fn serve(&self, stream: TcpStream) {
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        while matches!(lines.read_line(&mut line), Ok(1..)) {
            if line == "\r\n" {
                match self.answer(lines.get_mut()) {
                    Ok(true) => {}
                    Err(_) => return,
                    _ if self.death == Death::Silent => {}
                    _ if self.death == Death::ClosesEach => {
                        self.end_listener();
                        let _ = lines.get_ref().shutdown(Shutdown::Both);
                        return;
                    }
                    _ => {
                        self.end_listener();
                        return self.close_all();
                    }
                }
            }
            line.clear();
        }
    }

    /// Gives one of the answers; false when none is left. All of them have been sent when that is seen: what ends the
    /// connections then cuts none off.
    fn answer(&self, stream: &mut TcpStream) -> io::Result<bool> {
        let mut left = self.left.lock().expect("no panic");
        if *left == 0 {
            return Ok(false);
        }
        *left -= 1;
        stream.write_all(OK)?;
        Ok(true)
    }

    fn end_listener(&self) {
        if !self.is_over.swap(true, SeqCst) {
            drop(TcpStream::connect(self.address));
        }
    }

    fn close_all(&self) {
        for stream in self.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.life.end_listener();
        self.life.close_all();
        if let Some(accepting) = self.accepting.take() {
            accepting.join().expect("the server's thread");
        }
    }
}

fn run_beside(death: Death, connections: u32, rate: Option<f64>, warm_up: Duration) -> Outcome {
    let server = Mortal::start(ANSWERS, death);
    let url = format!("http://{}/", server.address);
    let mut plan: Plan = plan(Driver::default(), &url, connections, 1);
    plan.end = End { requests: None, after: Some(Duration::from_millis(1_700)) };
    plan.warm_up = warm_up;
    if let Some(rate) = rate {
        let stages = vec![Stage { from_per_s: rate, to_per_s: rate, lasts: None }];
        plan.pace = Pace::Open { arrival: Arrival::Constant, stages };
    }
    try_run(plan).expect("the default is everywhere")
}

/// All that a reader sees.
fn said(outcome: &Outcome) -> String {
    pollux_load::render::table(outcome, 400, false)
}

fn on_each(death: Death, look: impl Fn(&Outcome, &str) + Sync) {
    std::thread::scope(|scope| {
        for connections in [1, 16] {
            for rate in [None, Some(400.0)] {
                for warm_up_ms in [0, 300] {
                    let look = &look;
                    scope.spawn(move || {
                        let warm_up = Duration::from_millis(warm_up_ms);
                        let outcome = run_beside(death, connections, rate, warm_up);
                        let text = said(&outcome);
                        let at = format!("{connections} {rate:?} {warm_up_ms}\n{text}");
                        look(&outcome, &at);
                    });
                }
            }
        }
    });
}

fn outage(outcome: &Outcome) -> String {
    let found = outcome.findings.iter().find(|one| one.kind == FindingKind::Outage);
    found.map_or_else(String::new, |one| format!("{}. {}", one.text, one.advice))
}

#[test]
fn a_server_that_is_gone_has_no_requests_out_and_its_answers_came_before() {
    on_each(Death::Gone, |outcome, at| {
        assert_eq!(outcome.answered(), ANSWERS, "{at}");
        let silence = outcome.silence.expect(at);
        assert!(silence.is_until_end && silence.out_s < 0.2, "{silence:?} {at}");
        let text = match outcome.within().answered {
            0 => {
                assert!(at.contains("Nothing was answered in the measured time"), "{at}");
                at.to_owned()
            }
            _ => outage(outcome),
        };
        assert!(!at.contains("requests were out"), "{at}");
        assert!(!at.contains("from 0.0 s"), "{at}");
        assert!(text.contains("40 answers"), "{at}");
        assert!(text.contains("could not connect: refused"), "{at}");
        assert!(!at.contains("longest latency shows it"), "{at}");
        assert!(!at.contains("beyond the server") && !at.contains("give more"), "{at}");
    });
}

#[test]
fn a_server_that_falls_silent_has_requests_out_all_the_time() {
    on_each(Death::Silent, |outcome, at| {
        assert_eq!(outcome.answered(), ANSWERS, "{at}");
        assert_eq!(outcome.errors.connect + outcome.warm_up_errors.connect, 0, "{at}");
        let silence = outcome.silence.expect(at);
        assert!(silence.is_until_end, "{silence:?} {at}");
        // In a time in which the generator had no CPU, it had no request out either.
        let stalled_s: f64 = outcome.generator.stalls.iter().map(|stall| stall.lasted_s).sum();
        // And before the first connection was open, or between answers that came late, others stood still.
        let is_one = outcome.standstills.len() == 1;
        if outcome.within().answered > 0 && is_one && stalled_s < 0.05 {
            assert!(outage(outcome).contains("requests were out all that time"), "{at}");
        }
        assert!(!at.contains("refused") && !at.contains("reset"), "{at}");
        assert!(!at.contains("beyond the server") && !at.contains("give more"), "{at}");
    });
}

#[test]
fn a_server_that_closes_each_connection_that_asks_is_counted_by_kind() {
    on_each(Death::ClosesEach, |outcome, at| {
        assert_eq!(outcome.answered(), ANSWERS, "{at}");
        let errors = outcome.errors;
        let broken = errors.short + errors.reset;
        let before = outcome.warm_up_errors.short + outcome.warm_up_errors.reset;
        assert!(broken + before >= 1, "{errors:?} {at}");
        assert!(
            at.contains("ended before the answer was complete") || at.contains("reset"),
            "{at}"
        );
        assert!(at.contains("could not connect: refused"), "{at}");
        assert!(!at.contains("requests were out all"), "{at}");
    });
}

/// Nobody listens for the first connects, and the server is slow later: what is never sent is not lost to them.
#[test]
fn a_connect_that_failed_before_the_measured_time_does_not_explain_what_failed_in_it() {
    let nobody = Refusing::bind();
    let url = format!("http://{}/", nobody.address());
    let mut plan: Plan = plan(Driver::default(), &url, 1, 1);
    plan.end = End { requests: None, after: Some(Duration::from_millis(600)) };
    plan.warm_up = Duration::from_millis(900);
    let stages = vec![Stage { from_per_s: 1_000.0, to_per_s: 1_000.0, lasts: None }];
    plan.pace = Pace::Open { arrival: Arrival::Constant, stages };
    let running = pollux_load::Load::start(plan).expect("started");
    wait_until("a refusal", || running.has_elapsed_unanswered());
    let listener = nobody.listen();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream);
            let mut line = String::new();
            while matches!(lines.read_line(&mut line), Ok(1..)) {
                if line == "\r\n" {
                    crate::delay(Duration::from_millis(20));
                    let _ = lines.get_mut().write_all(OK);
                }
                line.clear();
            }
        }
    });
    let outcome = running.join().expect("an outcome");
    assert!(outcome.was_first_failure_early, "{outcome:?}");
    assert_eq!(outcome.errors.connect, 0, "{:?}", outcome.errors);
    assert!(outcome.errors.unsent > 0 && outcome.totals.answered > 0, "{:?}", outcome.errors);
    for finding in &outcome.findings {
        assert!(!finding.text.contains("refused"), "{}", finding.text);
    }
    let text = said(&outcome);
    assert!(text.contains("(before the measured time)"), "{text}");
}
