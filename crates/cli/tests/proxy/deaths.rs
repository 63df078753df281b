//! kill -9 of a worker, of the master, of a backend, under load.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use pollux_testing::{Output, Process, Signal, await_end, is_running, wait_until};
use rustix::process::kill_process;

use crate::stage::{Backend, Client, Clients, Outcome, Proxy, Server};

const LOST: Outcome = Outcome::Lost;
/// Two threads that soon close what waits for a request, so that none may be left.
const SHORT: &str = "threads = 2\nupstream_idle_timeout = \"200ms\"";

#[test]
fn a_killed_worker_costs_only_what_it_had_under_way() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], SHORT);
    let clients = Clients::start(proxy.address, 4);
    let mut workers = vec![proxy.one_worker(&[])];
    for _ in 0..3 {
        clients.await_right(100);
        kill_process(*workers.last().expect("one"), Signal::KILL).expect("it runs");
        proxy.wait_for_stderr_line("another one is started in ");
        clients.await_right(100);
        workers.push(proxy.one_worker(&workers));
    }
    let (right, failed) = clients.end();
    // A connection of each client, three times; new clients wait in the queue meanwhile.
    assert!(failed.len() <= 12, "of {right}: {failed:?}");
    assert!(failed.iter().all(|(outcome, _)| *outcome == LOST), "{failed:?}");
    proxy.await_metric("pollux_proxy_backend_in_use", "", 0);
    // No request reached the backend twice, and what did was answered or lost with its worker.
    let lost = failed.len() as u64;
    assert!((right..=right + lost).contains(&backend.asked()), "{} of {right}", backend.asked());
    // Of a killed worker at most the last second is not counted.
    let counted = proxy.metric("pollux_http_requests_total", "\"get\"");
    assert!(counted > 0 && counted <= right + lost, "{counted} of {right}");
    // The connections of the dead are gone, and the living one counts on from there.
    proxy.await_metric("pollux_connections_open", "", 0);
    backend.await_none_open();
    let clients = Clients::start(proxy.address, 4);
    clients.await_right(100);
    let (more, failed) = clients.end();
    assert!(failed.is_empty(), "of {more}: {failed:?}");
    proxy.await_metric("pollux_http_requests_total", "\"get\"", counted + more);
    assert!((right + more..=right + more + lost).contains(&backend.asked()));
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
    backend.await_none_open();
}

#[test]
fn a_killed_backend_costs_at_most_what_it_had_under_way() {
    const CLIENTS: usize = 4;
    const KILLS: usize = 3;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let stays = Server::start(any);
    let mut dies = Server::start(any);
    let mut proxy =
        Proxy::start(&[stays.address, dies.address], "threads = 2\ndown_time = \"20ms\"");
    proxy.one_worker(&[]);
    let clients = Clients::start(proxy.address, CLIENTS);
    for _ in 0..KILLS {
        clients.await_right(200);
        dies.kill();
        // All of these come from the other one.
        clients.await_right(200);
        dies = Server::start(dies.address);
    }
    let (right, failed) = clients.end();
    // A request that was on a new connection got an error; all others were repeated.
    assert!(failed.len() <= CLIENTS * KILLS, "of {right}: {failed:?}");
    assert!(failed.iter().all(|(outcome, _)| *outcome == Outcome::Refused), "{failed:?}");
    proxy.await_metric("pollux_proxy_backend_in_use", "", 0);
    let asked = right + failed.len() as u64;
    proxy.await_metric("pollux_http_requests_total", "\"get\"", asked);
    proxy.await_metric("pollux_http_answers_total", "2xx", right);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
}

#[test]
fn workers_end_with_their_connections_when_the_master_is_killed() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 2");
    let worker = proxy.one_worker(&[]);
    let clients = Clients::start(proxy.address, 4);
    clients.await_right(100);
    proxy.signal(Signal::KILL);
    proxy.ended();
    await_end(worker);
    let (right, failed) = clients.end();
    // What was under way was answered; afterwards no process listens.
    let lost: Vec<_> = failed.iter().filter(|(_, why)| why.starts_with("kept")).collect();
    assert!(lost.is_empty(), "{lost:?}");
    TcpStream::connect(proxy.address).expect_err("the socket is closed");
    assert!((right..=right + failed.len() as u64).contains(&backend.asked()), "of {right}");
    backend.await_none_open();
}

#[test]
fn both_workers_of_a_reload_end_when_the_master_is_killed() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 2");
    proxy.one_worker(&[]);
    let clients = Clients::start(proxy.address, 4);
    clients.await_right(100);
    proxy.write_settings(&[backend.address], "threads = 3");
    proxy.signal(Signal::HUP);
    wait_until("a second worker", || proxy.workers().len() >= 2);
    let workers = proxy.workers();
    proxy.signal(Signal::KILL);
    proxy.ended();
    workers.into_iter().for_each(await_end);
    let (right, failed) = clients.end();
    let lost: Vec<_> = failed.iter().filter(|(_, why)| why.starts_with("kept")).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!((right..=right + failed.len() as u64).contains(&backend.asked()), "of {right}");
    TcpStream::connect(proxy.address).expect_err("the socket is closed");
    backend.await_none_open();
}

#[test]
fn an_address_that_no_worker_accepts_from_any_more_refuses_connections() {
    for signal in [Signal::KILL, Signal::TERM] {
        let backend = Backend::start();
        let mut proxy = Proxy::start(&[backend.address], "threads = 2");
        let worker = proxy.one_worker(&[]);
        // A request that the worker has to wait for while it drains.
        let mut client = TcpStream::connect(proxy.address).expect("it listens");
        let half = "GET /a HTTP/1.1\r\nHost: x\r\nX-Id: /a\r\nContent-Length: 2\r\n\r\n/";
        client.write_all(half.as_bytes()).expect("taken");
        proxy.await_metric("pollux_proxy_backend_in_use", "", 1);
        proxy.signal(signal);
        wait_until(format_args!("refusal of clients after {signal:?}"), || {
            // A reset is the end of one of the listeners, which a client was on its way to.
            let refused = TcpStream::connect(proxy.address);
            refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        assert!(is_running(worker), "{signal:?}: it has a request");
        // Another proxy can listen there at once.
        let next = std::net::TcpListener::bind(proxy.address);
        drop(next.unwrap_or_else(|error| panic!("{signal:?}: {error}")));
        client.write_all(b"a").expect("taken");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer, and the end");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/a"), "{answer}");
        proxy.ended();
    }
}

#[test]
fn a_master_that_is_asked_to_end_answers_what_is_under_way() {
    let backend = Backend::start();
    let mut proxy = Proxy::start(&[backend.address], "threads = 2");
    let clients = Clients::start(proxy.address, 4);
    clients.await_right(100);
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().success());
    let (_, failed) = clients.end();
    let lost: Vec<_> = failed.iter().filter(|(_, why)| why.starts_with("kept")).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(proxy.workers().is_empty());
}

#[test]
fn a_backend_that_is_gone_is_answered_for_and_comes_back() {
    let one = Backend::start();
    // No test is given this port, nor may one take it.
    let gone = "127.0.0.1:1".parse().expect("an address");
    let proxy = Proxy::start(&[gone], "down_time = \"1ms\"");
    let mut client = Client::default();
    assert_eq!(client.ask(proxy.address, "/a").0, Outcome::Refused);
    let worker = proxy.one_worker(&[]);
    proxy.write_settings(&[gone, one.address], "");
    assert!(proxy.reload().0);
    proxy.one_worker(&[worker]);
    for path in ["/b", "/c", "/d"] {
        assert_eq!(Client::default().ask(proxy.address, path).0, Outcome::Right);
    }
}

#[test]
fn a_proxy_that_cannot_start_says_why_and_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pollux"));
    command.current_dir(folder.path()).args(["proxy", "--backend", "127.0.0.1:1"]);
    command.args(["--listen", "127.0.0.1:0", "--access-log", "no/such/log"]);
    let Output { status, stderr: log, .. } = Process::run(&mut command);
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("access log") && log.contains("No such file"), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}
