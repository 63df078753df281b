//! Connections that send one request and are silent then, as `deadconn_last` did in 2002.
//!
//! `pollux lab hold` opens them with [`Held::open`] and holds them until it is told to end; the
//! `http` experiment starts as many of these processes as the descriptor limit asks for. They
//! come from several source addresses of 127.0.0.0/8, so that none of them runs out of ports. At
//! the end [`Held::count_closed`] tells how many the server has closed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

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

/// Dead connections to a server.
#[derive(Debug)]
pub struct Held(Vec<TcpStream>);

impl Held {
    /// Opens `count` connections; each has had one answer when this returns. `first` is the
    /// number of the first among those of all holders: source addresses go by it.
    ///
    /// # Errors
    /// [`MeasureError::Setup`] with the connection that could not be had.
    pub fn open(first: usize, count: usize, to: SocketAddr) -> Result<Self, MeasureError> {
        let request = request(to);
        let mut connections: Vec<TcpStream> = Vec::with_capacity(count);
        let failed = |index: usize| {
            move |cause| MeasureError::Setup {
                what: format!("dead connection {} of {count}", index + 1),
                cause,
            }
        };
        while connections.len() < count {
            let done = connections.len();
            for index in done..count.min(done + AT_ONCE) {
                let address = FIRST_ADDRESS + ((first + index) / PER_ADDRESS) as u32;
                let source = Ipv4Addr::from_bits(address);
                connections.push(ask(source, to, request.as_bytes()).map_err(failed(index))?);
            }
            for (index, connection) in connections.iter_mut().enumerate().skip(done) {
                hear(connection).map_err(failed(index))?;
            }
        }
        Ok(Self(connections))
    }

    /// How many the server has closed meanwhile. What is left of an answer is read first.
    #[must_use]
    pub fn count_closed(&self) -> usize {
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

/// What readiness and dead connections ask; the generators have their own requests.
pub(crate) fn request(to: SocketAddr) -> String {
    format!("GET / HTTP/1.1\r\nHost: {to}\r\n\r\n")
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
                assert!(len > 0 && from.ip() == Ipv4Addr::new(127, 0, 0, 3));
                connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("an answer");
                connection
            };
            let mut held: Vec<TcpStream> = (0..3).map(answer).collect();
            held.truncate(2);
            held
        });
        let dead = Held::open(PER_ADDRESS, 3, address).expect("three connections");
        let held = server.join().expect("the server ends well");
        assert_eq!(dead.count_closed(), 1);
        drop(held);
    }
}
