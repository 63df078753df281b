//! `pollux proxy` before clients of HTTP/2 that ask while its workers come and go, and while it ends.

use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

use pollux_http::h2::{Ask, Connection, ErrorCode, Event, Output, Role, Scratch, Settings};
use pollux_http::{Field, Limits, Method};
use pollux_testing::{DEADLINE, Process, Signal, addresses, has, wait_until};

use crate::stage::{Backend, Proxy};

/// `pollux serve` as a backend.
struct Server {
    _process: Process,
    address: SocketAddr,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        let mut process = Process::start(command.stdin(Stdio::null()));
        let address = addresses(&process.wait_for_stderr_line("http://"))[0];
        Self { _process: process, address }
    }
}

/// Clients that ask all the time on connections of many streams; at a GOAWAY each opens another one.
struct Clients {
    is_over: Arc<AtomicBool>,
    right: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

/// Streams that a client has at once.
const STREAMS: usize = 8;

impl Clients {
    fn start(to: SocketAddr, count: usize) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let right = Arc::<AtomicU64>::default();
        let one = |number: usize| {
            let is_over = Arc::clone(&is_over);
            let right = Arc::clone(&right);
            std::thread::spawn(move || ask_all(to, number, &is_over, &right))
        };
        let threads = (0..count).map(one).collect();
        Self { is_over, right, threads }
    }

    fn await_right(&self, more: u64) {
        let goal = self.right.load(SeqCst) + more;
        wait_until("more right answers", || {
            let ended = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!ended, "a client has ended");
            self.right.load(SeqCst) >= goal
        });
    }

    /// Ends them: how many were answered rightly, and what went wrong.
    fn end(self) -> (u64, Vec<String>) {
        self.is_over.store(true, SeqCst);
        let failed = self.threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        let failed = failed.collect();
        (self.right.load(SeqCst), failed)
    }
}

/// What a client knows of a request.
#[derive(Default)]
struct Asked {
    path: String,
    head: String,
    body: Vec<u8>,
}

fn ask_all(to: SocketAddr, number: usize, is_over: &AtomicBool, right: &AtomicU64) -> Vec<String> {
    use std::io::{Read, Write};
    let mut failed = Vec::new();
    let mut asked = 0_u64;
    while !is_over.load(SeqCst) && failed.is_empty() {
        let mut socket = TcpStream::connect(to).expect("the port stays open");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.set_nodelay(true).expect("set");
        let mut connection = Connection::<Asked>::new(Role::Client, Settings::DEFAULT);
        let mut scratch = Scratch::default();
        let mut unread = Vec::new();
        let mut room = vec![0; 1 << 17];
        let mut out = Output::new(&mut room);
        connection.start(&mut out);
        let mut last = None;
        loop {
            while last.is_none() && !is_over.load(SeqCst) && connection.len() < STREAMS {
                asked += 1;
                let path = format!("/{number}/{asked}");
                let length = path.len().to_string();
                let fields = [
                    Field { name: "x-id", value: path.as_bytes() },
                    Field { name: "content-length", value: length.as_bytes() },
                ];
                let authority = "x";
                let method = Method::Post;
                let scheme = "http";
                let ask = Ask { method, scheme, authority, path: &path, fields: &fields };
                let data = Asked { path: path.clone(), ..Asked::default() };
                let Some(stream) = connection.ask(&mut out, &ask, false, data) else { break };
                connection.send_data(&mut out, stream, path.as_bytes(), true);
            }
            if !out.is_empty() && socket.write_all(out.bytes()).is_err() {
                failed.push("the connection was reset".to_owned());
                break;
            }
            if connection.is_empty() && (last.is_some() || is_over.load(SeqCst)) {
                break;
            }
            let mut buffer = vec![0; 64 * 1024];
            match socket.read(&mut buffer) {
                Ok(0) => {
                    let left = connection.take_all().map(|(_, asked)| asked.path);
                    failed.extend(left.map(|path| format!("{path}: the connection ended")));
                    break;
                }
                Ok(len) => unread.extend_from_slice(&buffer[..len]),
                Err(error) => {
                    failed.push(format!("{error}"));
                    break;
                }
            }
            out = Output::new(&mut room);
            let mut at = 0;
            let limits = Limits::DEFAULT;
            loop {
                let step = connection.read(&unread[at..], &mut scratch, &mut out, &limits, 0);
                let step = step.expect("the proxy keeps the rules");
                at += step.used;
                let Some(event) = step.event else { break };
                let mut done = None;
                match event {
                    Event::Response { stream, response, ends } => {
                        let id = response.fields.first("x-id").unwrap_or_default();
                        let id = String::from_utf8_lossy(id);
                        let asked = connection.data_mut(stream).expect("it was asked");
                        asked.head = format!("{} {id}", response.facts.status.code());
                        done = ends.then_some(stream);
                    }
                    Event::Data { stream, data, ends } => {
                        let asked = connection.data_mut(stream).expect("it was asked");
                        asked.body.extend_from_slice(data);
                        connection.release(&mut out, stream, data.len());
                        done = ends.then_some(stream);
                    }
                    Event::Reset { code, data, .. } => {
                        failed.push(format!("{}: {code}", data.path));
                    }
                    Event::GoneAway { last: to, code } => {
                        assert_eq!(code, ErrorCode::NO_ERROR);
                        last = Some(to);
                        // Nobody looks at these.
                        let lost: Vec<u32> =
                            connection.streams().map(|(id, _)| id).filter(|id| *id > to).collect();
                        for id in lost {
                            failed.push(format!(
                                "stream {id} was not looked at, the last one is {to}"
                            ));
                        }
                    }
                    _ => {}
                }
                if let Some(asked) = done.and_then(|stream| connection.take_done(stream)) {
                    let is_right = asked.head == format!("200 {}", asked.path)
                        && asked.body == asked.path.as_bytes();
                    if is_right {
                        right.fetch_add(1, SeqCst);
                    } else {
                        failed.push(format!("{}: {}", asked.path, asked.head));
                    }
                }
            }
            unread.drain(..at);
        }
    }
    failed
}

#[test]
fn no_stream_fails_while_settings_are_read_anew_again_and_again() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 2");
    let clients = Clients::start(proxy.address, 4);
    let mut workers = vec![proxy.one_worker(&[])];
    for round in 0..4 {
        clients.await_right(200);
        proxy.write_settings(&[backend.address], &format!("threads = {}", 1 + round % 3));
        assert_eq!(proxy.reload(), (true, "reloaded\n".to_owned()));
        clients.await_right(50);
        workers.push(proxy.one_worker(&workers));
    }
    let (right, failed) = clients.end();
    assert!(right >= 1000, "{right}");
    assert!(failed.is_empty(), "of {right}: {failed:?}");
    proxy.await_metric("pollux_http_requests_total", "\"post\"", right);
    proxy.await_metric("pollux_http_answers_total", "2xx", right);
    proxy.await_metric("pollux_proxy_backend_in_use", "", 0);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
}

/// What h2load says of its requests: started, and answered with 2xx.
fn load(to: SocketAddr, flags: &[&str]) -> Option<String> {
    if !has("h2load") {
        return None;
    }
    let mut command = Command::new("h2load");
    let output = command.args(flags).arg(format!("http://{to}/")).output().expect("it was found");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_proxy_that_is_ended_answers_every_stream_that_was_begun() {
    if !has("h2load") {
        return;
    }
    let backend = Server::start(&["--reply", "128"]);
    for streams in ["1", "16"] {
        let mut proxy = Proxy::start(&[backend.address], "access_log = \"access.log\"");
        let to = proxy.address;
        // More than it will answer before it ends.
        let load = std::thread::spawn(move || {
            load(to, &["-n", "9000000", "-c", "64", "-m", streams]).expect("it is there")
        });
        wait_until("thousands of answers", || {
            proxy.metric("pollux_http_answers_total", "2xx") > 5000
        });
        proxy.signal(Signal::TERM);
        let said = load.join().expect("it ends");
        assert!(proxy.ended().success());
        // h2load opens no connection anew, and counts what it would have sent next as begun. What has reached the proxy stands
        // in its log.
        let log = std::fs::read_to_string(proxy.file("access.log")).expect("a log");
        let is_right = |line: &&str| line.contains("\" 200 128 ") && line.ends_with(" ok");
        let answered = log.lines().filter(is_right).count();
        assert!(answered > 5000, "{said}");
        assert_eq!(log.lines().count(), answered, "{streams}: only those");
        let succeeded = format!(" {answered} succeeded, ");
        assert!(said.contains(&succeeded), "{streams}: {answered}: {said}");
    }
}
