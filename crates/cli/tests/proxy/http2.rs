//! `pollux proxy` before clients of HTTP/2 that ask while its workers come and go, and while it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_http::h2::{Ask, Connection, ErrorCode, Event, Output, Role, Scratch, Settings};
use pollux_http::{Field, Limits, Method};
use pollux_testing::{DEADLINE, Process, Signal, addresses, has, uninterrupted, wait_until};

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
            match uninterrupted(|| socket.read(&mut buffer)) {
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
                    Event::Response { stream, response, ends, .. } => {
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

/// The end of the proxy, and that of a worker, whose place another one takes: before backends of either version.
#[test]
fn a_proxy_or_worker_that_is_ended_answers_every_stream_that_was_begun() {
    if !has("h2load") {
        return;
    }
    // It is not to end its connections by their number meanwhile.
    let backend = Server::start(&["--reply", "128", "--http2-requests", "1000000000"]);
    let cases = ["1.1", "h2c"].into_iter().flat_map(|protocol| {
        [Signal::TERM, Signal::HUP].into_iter().flat_map(move |signal| {
            ["1", "16"].into_iter().map(move |streams| (protocol, signal, streams))
        })
    });
    for (protocol, signal, streams) in cases {
        let more = format!(
            "access_log = \"access.log\"\nhttp2_requests = 1000000000\n{}",
            if protocol == "h2c" { "protocol = \"h2c\"" } else { "" }
        );
        let mut proxy = Proxy::start(&[backend.address], &more);
        let to = proxy.address;
        // More than it will answer before it ends.
        let load = std::thread::spawn(move || {
            load(to, &["-n", "9000000", "-c", "64", "-m", streams]).expect("it is there")
        });
        wait_until("thousands of answers", || {
            proxy.metric("pollux_http_answers_total", "2xx") > 5000
        });
        // Where the proxy does not end, what it reads needs another worker.
        proxy.write_settings(&[backend.address], &format!("{more}\nthreads = 2"));
        proxy.signal(signal);
        let said = load.join().expect("it ends");
        if signal == Signal::HUP {
            proxy.signal(Signal::TERM);
        }
        assert!(proxy.ended().success());
        // h2load opens no connection anew, and counts what it would have sent next as begun. What has reached the proxy stands
        // in its log.
        let log = std::fs::read_to_string(proxy.file("access.log")).expect("a log");
        let is_right = |line: &&str| line.contains("\" 200 128 ") && line.ends_with(" ok");
        let answered = log.lines().filter(is_right).count();
        let case = format!("{protocol}, {signal:?}, {streams} streams");
        assert!(answered > 5000, "{case}: {said}");
        assert_eq!(log.lines().count(), answered, "{case}: only those");
        let succeeded = format!(" {answered} succeeded, ");
        assert!(said.contains(&succeeded), "{case}: {answered}: {said}");
    }
}

/// One end of a connection of HTTP/2 in the hands of a test.
struct Peer {
    socket: TcpStream,
    connection: Connection<()>,
    scratch: Scratch,
    unread: Vec<u8>,
}

impl Peer {
    fn new(socket: TcpStream, role: Role) -> Self {
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        socket.set_nodelay(true).expect("set");
        let settings = Settings { has_connect_protocol: role == Role::Server, ..Settings::DEFAULT };
        let connection = Connection::new(role, settings);
        let mut peer = Self { socket, connection, scratch: Scratch::default(), unread: Vec::new() };
        peer.says(Connection::start);
        peer
    }

    fn says<R>(&mut self, say: impl FnOnce(&mut Connection<()>, &mut Output<'_>) -> R) -> R {
        let mut room = vec![0; 1 << 17];
        let mut out = Output::new(&mut room);
        let said = say(&mut self.connection, &mut out);
        let _ = self.socket.write_all(out.bytes());
        said
    }

    /// Reads until `take` makes something of an event; none at the end of the connection.
    fn until<R>(
        &mut self,
        mut take: impl FnMut(&mut Connection<()>, &mut Output<'_>, Event<'_, ()>) -> Option<R>,
    ) -> Option<R> {
        let mut room = vec![0; 1 << 17];
        loop {
            let mut out = Output::new(&mut room);
            let Self { connection, scratch, unread, .. } = self;
            let step = connection.read(unread, scratch, &mut out, &Limits::DEFAULT, 0);
            let step = step.expect("the proxy keeps the rules");
            let used = step.used;
            let is_more = step.event.is_some();
            let made = step.event.and_then(|event| take(connection, &mut out, event));
            let _ = self.socket.write_all(out.bytes());
            self.unread.drain(..used);
            if made.is_some() {
                return made;
            }
            let mut buffer = [0; 4096];
            if !is_more {
                match uninterrupted(|| self.socket.read(&mut buffer)) {
                    Ok(len @ 1..) => self.unread.extend_from_slice(&buffer[..len]),
                    Ok(0) => return None,
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// A backend of HTTP/2 that agrees to every WebSocket, and gives back what comes through it.
fn websockets() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                Peer::new(socket, Role::Server).until(|connection, out, event| {
                    match event {
                        Event::Request { stream, .. } => {
                            connection.send_head(out, stream, b"HTTP/1.1 200 OK\r\n\r\n", false);
                        }
                        Event::Data { stream, data, ends } => {
                            connection.release(out, stream, data.len());
                            connection.send_data(out, stream, data, ends);
                        }
                        _ => {}
                    }
                    None::<()>
                });
            });
        }
    });
    address
}

/// A WebSocket on a stream.
struct Tunnel {
    peer: Peer,
    stream: u32,
}

impl Tunnel {
    fn open(proxy: &Proxy) -> Self {
        let socket = TcpStream::connect(proxy.address).expect("connected");
        let mut peer = Peer::new(socket, Role::Client);
        let method = Method::Connect;
        let scheme = "http";
        let authority = "x";
        let ask = Ask { method, scheme, authority, path: "/chat", fields: &[] };
        let stream = loop {
            let asked =
                peer.says(|client, out| client.ask_for_protocol(out, &ask, "websocket", ()));
            if let Some(stream) = asked {
                break stream;
            }
            peer.until(|_, _, _| Some(())).expect("the proxy says that it may be asked");
        };
        let status = peer.until(|_, _, event| match event {
            Event::Response { response, .. } => Some(response.facts.status.code()),
            _ => None,
        });
        assert_eq!(status, Some(200));
        Self { peer, stream }
    }

    /// Sends this, and has it back.
    fn echo(&mut self, text: &str) {
        let stream = self.stream;
        self.peer.says(|client, out| client.send_data(out, stream, text.as_bytes(), false));
        let back = self.peer.until(|client, out, event| match event {
            Event::Data { stream, data, .. } => {
                client.release(out, stream, data.len());
                Some(String::from_utf8_lossy(data).into_owned())
            }
            Event::Reset { code, .. } => Some(code.to_string()),
            _ => None,
        });
        assert_eq!(back.as_deref(), Some(text));
    }

    /// Waits for the end of it, or of its connection.
    fn end(mut self) {
        self.peer.until(|_, _, event| matches!(event, Event::Reset { .. }).then_some(()));
    }
}

/// To a backend of HTTP/2 by streams, and to one of HTTP/1.1 by a connection.
#[test]
fn a_websocket_on_a_stream_outlives_reloads_and_ends_with_the_proxy() {
    let backend = websockets();
    let second = Proxy::start(&[backend], "protocol = \"h2c\"");
    let drains = "drain_timeout = \"100ms\"\nlog_level = \"info\"";
    for (backend, protocol) in [(backend, "h2c"), (second.address, "http/1.1")] {
        let mut proxy = Proxy::start(&[backend], &format!("protocol = \"{protocol}\"\n{drains}"));
        let mut tunnel = Tunnel::open(&proxy);
        let first = proxy.one_worker(&[]);
        // In place, then by two other workers.
        proxy.signal(Signal::HUP);
        proxy.wait_for_stderr_line("reloaded: process ");
        assert_eq!(proxy.workers(), [first]);
        for threads in [2, 3] {
            let more = format!("protocol = \"{protocol}\"\n{drains}\nthreads = {threads}");
            proxy.write_settings(&[backend], &more);
            let (is_well, said) = proxy.reload();
            assert!(is_well, "{said}");
        }
        wait_until("the end of the worker without a tunnel", || proxy.workers().len() == 2);
        assert!(proxy.workers().contains(&first), "the tunnel's worker");
        // Ten times what requests have.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1) {
            tunnel.echo("ping");
        }
        assert!(proxy.workers().contains(&first), "the tunnel's worker");
        // Others are for the worker that took over.
        Tunnel::open(&proxy).echo("other");
        proxy.signal(Signal::TERM);
        tunnel.end();
        assert!(proxy.ended().success());
    }
}

#[test]
fn a_websocket_on_a_stream_ends_in_its_own_time_after_a_reload() {
    let drains = "protocol = \"h2c\"\ndrain_timeout = \"50ms\"\ntunnel_drain_timeout = \"300ms\"";
    let backend = websockets();
    let proxy = Proxy::start(&[backend], drains);
    let mut tunnel = Tunnel::open(&proxy);
    tunnel.echo("ping");
    let first = proxy.one_worker(&[]);
    proxy.write_settings(&[backend], &format!("{drains}\nthreads = 2"));
    assert!(proxy.reload().0);
    tunnel.end();
    proxy.one_worker(&[first]);
}
