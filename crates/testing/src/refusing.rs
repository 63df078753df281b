//! An address at which nobody listens. A port that was free a moment ago may be another test's by the time it is used:
//! this one is taken.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};

/// A port that refuses connections for as long as this lives: its socket is bound and does not listen.
#[derive(Debug)]
pub struct Refusing {
    address: SocketAddr,
    bound: OwnedFd,
}

impl Refusing {
    /// One of the loopback interface.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn bind() -> Self {
        let kind = SocketType::STREAM;
        let bound = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None);
        let bound = bound.expect("a socket");
        bind(&bound, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = getsockname(&bound).expect("it is bound");
        let address = SocketAddr::try_from(address).expect("of TCP");
        Self { address, bound }
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens there from now on.
    ///
    /// # Panics
    /// When the kernel refuses that.
    #[must_use]
    pub fn listen(self) -> TcpListener {
        listen(&self.bound, 128).expect("a bound socket");
        TcpListener::from(self.bound)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn it_refuses_and_cannot_be_taken() {
        let refusing = Refusing::bind();
        for _ in 0..3 {
            let refused = TcpStream::connect(refusing.address()).expect_err("nobody listens");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
        let taken = TcpListener::bind(refusing.address()).expect_err("it is taken");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let address = refusing.address();
        let listener = refusing.listen();
        let _client = TcpStream::connect(address).expect("it listens");
        listener.accept().expect("a client");
    }
}
