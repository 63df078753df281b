//! Connections that send one request and are silent then, as `deadconn_last` did in 2002.
//!
//! Opened by the measuring process before the ramp and held until after the window. They come from
//! several source addresses of 127.0.0.0/8, so that none of them runs out of ports. After the
//! window it is looked up how many the server has closed: a server that closes what it should hold
//! would look good for the wrong reason.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::load::request;
use crate::error::MeasureError;

/// Connections from one source address: far below the 28,000 ports that Linux gives out.
const PER_ADDRESS: usize = 5000;
/// First source address; the generator and the readiness check come from 127.0.0.1.
const FIRST_ADDRESS: u32 = Ipv4Addr::new(127, 0, 0, 2).to_bits();
/// How long a connection or an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are opened before their answers are read: a server that looks at all of them
/// in each turn then needs few turns. Below any backlog.
const AT_ONCE: usize = 256;
/// A server that closes more than this share of what it should hold is not measured: it would
/// look good for the wrong reason.
const CLOSED_SHARE_MAX: f64 = 0.01;

/// Idle connections to a server.
pub(super) struct Idle(Vec<TcpStream>);

impl Idle {
    /// Opens `count` connections; each has had one answer when this returns.
    pub(super) fn open(
        count: usize,
        to: SocketAddr,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let request = request(to);
        let mut connections: Vec<TcpStream> = Vec::with_capacity(count);
        let failed = |index: usize| {
            move |cause| MeasureError::Setup {
                what: format!("idle connection {} of {count}", index + 1),
                cause,
            }
        };
        while connections.len() < count {
            if is_interrupted() {
                return Err(MeasureError::Interrupted);
            }
            let first = connections.len();
            for index in first..count.min(first + AT_ONCE) {
                let source = Ipv4Addr::from_bits(FIRST_ADDRESS + (index / PER_ADDRESS) as u32);
                connections.push(ask(source, to, request.as_bytes()).map_err(failed(index))?);
            }
            for (index, connection) in connections.iter_mut().enumerate().skip(first) {
                hear(connection).map_err(failed(index))?;
            }
        }
        Ok(Self(connections))
    }

    /// How many the server has closed meanwhile.
    ///
    /// # Errors
    /// In words, where they are too many for a measurement.
    pub(super) fn closed(&self) -> Result<usize, String> {
        let (closed, all) = (self.count_closed(), self.0.len());
        match closed as f64 > all as f64 * CLOSED_SHARE_MAX {
            true => Err(format!("closed {closed} of {all} idle connections")),
            false => Ok(closed),
        }
    }

    /// What is left of an answer is read first.
    fn count_closed(&self) -> usize {
        let mut rest = [0u8; 4096];
        let mut is_closed = |connection: &&TcpStream| {
            loop {
                match rustix::net::recv(connection, &mut rest[..], RecvFlags::DONTWAIT) {
                    Ok((_, 1..)) => {}
                    Err(Errno::AGAIN) => return false,
                    Ok(_) | Err(_) => return true,
                }
            }
        };
        self.0.iter().filter(&mut is_closed).count()
    }
}

/// Connects and sends the request.
fn ask(source: Ipv4Addr, to: SocketAddr, request: &[u8]) -> std::io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    pollux_sys::socket::bind_address_no_port(&socket)?;
    rustix::net::bind(&socket, &SocketAddr::from((source, 0)))?;
    let mut connection = TcpStream::from(socket);
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    rustix::net::connect(&connection, &to)?;
    connection.write_all(request)?;
    Ok(connection)
}

fn hear(connection: &mut TcpStream) -> std::io::Result<()> {
    // One answer is small and the only one under way: what it brings first shows that it came.
    match connection.read(&mut [0; 4096])? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connections_have_had_an_answer_and_those_closed_are_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let answer = |_| {
                let (mut connection, from) = listener.accept().expect("a connection");
                let len = connection.read(&mut [0; 4096]).expect("a request");
                assert!(len > 0 && from.ip() == Ipv4Addr::new(127, 0, 0, 2));
                connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("an answer");
                connection
            };
            let mut held: Vec<TcpStream> = (0..3).map(answer).collect();
            held.truncate(2);
            held
        });
        let idle = Idle::open(3, address, &|| false).expect("three connections");
        let held = server.join().expect("the server ends well");
        assert_eq!(idle.count_closed(), 1);
        assert_eq!(idle.closed(), Err("closed 1 of 3 idle connections".to_owned()));
        drop(held);
    }

    #[test]
    fn an_interruption_ends_the_opening() {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        assert!(matches!(Idle::open(1, to, &|| true), Err(MeasureError::Interrupted)));
    }
}
