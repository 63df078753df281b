//! Whole servers on the kernel, in one process, on port 0 and without sleeping: endpoints, logs, limits and
//! ends (`server`), what settings add to answers (`extras`), files compressed on their way (`compression`),
//! TLS (`encrypted`).
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set that is a
//! failure.

mod compression;
mod encrypted;
mod extras;
#[path = "../proxy/identity.rs"]
#[expect(dead_code, reason = "the tests of the proxy use the others")]
mod identity;
mod server;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use pollux_engine::{GroupError, ListenAddress};
use pollux_server::config::ServeConfig;
use pollux_server::{Server, ServerCounter, ServerError};
use pollux_settings::Given;
use pollux_testing::{DEADLINE, skip};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn configured(config: &str) -> ServeConfig {
    let text = format!("{config}\nlisten = \"127.0.0.1:0\"\nquiet = true");
    Given::from_toml(&text, "test").read().expect("right")
}

fn start(config: &str) -> Server {
    Server::start(&configured(config)).expect("started")
}

/// None where the driver is not available.
fn start_on(driver: &str, config: &str) -> Option<Server> {
    match Server::start(&configured(&format!("{config}\npoller = \"{driver}\""))) {
        Ok(server) => Some(server),
        Err(ServerError::Group { cause: GroupError::Loop(reason), .. }) => {
            skip(format_args!("{driver}: {reason}"));
            None
        }
        Err(error) => panic!("{driver}: {error}"),
    }
}

fn address(server: &Server) -> SocketAddr {
    let ListenAddress::Tcp(address) = server.addresses()[0] else { panic!("a TCP address") };
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream
}

fn client(server: &Server) -> TcpStream {
    connect(address(server))
}

fn count(server: &Server, counter: ServerCounter) -> u64 {
    server.overview().loops.iter().map(|each| each.server.value(counter)).sum()
}

/// What went wrong, with all causes.
fn causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The page of the endpoint for metrics.
fn metrics(server: &Server) -> String {
    let Some(ListenAddress::Tcp(stats)) = server.stats_address() else { panic!("a TCP address") };
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    last_answer(connect(*stats), request)
}

/// Sends and reads until the server closes.
fn last_answer(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read");
    String::from_utf8(answer).expect("text")
}

fn end(server: Server) {
    server.abort();
    server.join().expect("ended");
}
