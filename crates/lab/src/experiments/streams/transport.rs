//! The streams that the `streams` experiment runs over: pipes, AF_UNIX socketpairs, TCP.
//!
//! Both ends are blocking, as in the original program. Nothing here is timed.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::MeasureError;

/// Connections waiting to be accepted: the original's value.
const BACKLOG: i32 = 256;

/// One stream: what is written to `write` arrives at `read`.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The end that is watched.
    pub(crate) read: OwnedFd,
    /// The end that is fed.
    pub(crate) write: OwnedFd,
}

/// Opens `count` streams of the given transport.
///
/// # Errors
/// [`MeasureError::Setup`] with the number that could be opened.
pub(crate) fn open(transport: &str, count: usize) -> Result<Vec<Stream>, MeasureError> {
    let mut streams = Vec::with_capacity(count);
    let opened = match transport {
        "pipe" => fill(&mut streams, count, || {
            rustix::pipe::pipe().map(|(read, write)| Stream { read, write })
        }),
        "unix" => fill(&mut streams, count, || {
            let kind = SocketType::STREAM;
            let (read, write) =
                rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
            Ok(Stream { read, write })
        }),
        "tcp" => open_tcp(&mut streams, count),
        other => unreachable!("transport {other} passed the axis check"),
    };
    opened.map_err(|errno| MeasureError::Setup {
        what: format!("stream {} of {count} ({transport})", streams.len() + 1),
        cause: errno.into(),
    })?;
    Ok(streams)
}

fn fill(
    streams: &mut Vec<Stream>,
    count: usize,
    mut open: impl FnMut() -> Result<Stream, Errno>,
) -> Result<(), Errno> {
    for _ in 0..count {
        streams.push(open()?);
    }
    Ok(())
}

/// One listener on loopback; each stream is connected without blocking and accepted at once.
fn open_tcp(streams: &mut Vec<Stream>, count: usize) -> Result<(), Errno> {
    let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let loopback = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    rustix::net::bind(&listener, &loopback)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let address = rustix::net::getsockname(&listener)?;
    fill(streams, count, || {
        let read = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        match rustix::net::connect(&read, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let write = rustix::net::accept(&listener)?;
        rustix::io::ioctl_fionbio(&read, false)?;
        Ok(Stream { read, write })
    })
}
