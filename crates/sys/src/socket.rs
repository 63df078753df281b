//! Socket options that rustix lacks.
//!
//! Who opens many connections from one machine calls this: the lab and the load generator.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Leaves the choice of the local port to `connect(2)` (`IP_BIND_ADDRESS_NO_PORT`, `ip(7)`).
///
/// Set before a bind to an address and port 0. The kernel then needs a port that is free towards
/// the one destination and not towards all of them, so one address reaches each destination with
/// its whole range of ports.
///
/// # Errors
/// ENOPROTOOPT for a socket that is not of the internet family.
pub fn bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const on).cast();
    // SAFETY: `value` points to an int of `len` bytes that outlives the call, which only reads it.
    let set = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, value, len)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn an_internet_socket_takes_it_and_another_says_why_not() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        bind_address_no_port(&socket).expect("set");
        let (other, _) = UnixDatagram::pair().expect("a pair");
        let error = bind_address_no_port(&other).expect_err("not of the internet family");
        assert!(error.raw_os_error().is_some());
    }
}
