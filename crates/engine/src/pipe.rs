//! Bytes from one socket to another through a pipe, past the memory of the process (`splice(2)`).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

use crate::{Counter, Counters};

/// Most bytes of one call into a pipe, or out of it.
const SPLICE_BYTES: usize = 1 << 20;
/// A pipe as the kernel makes it: 16 places (pipe(7)), each for a page or less of what the socket has. Where a user has as
/// many as the system allows (`/proc/sys/fs/pipe-user-pages-soft`) it has two, which take more calls than they save.
const PLAIN_BYTES: usize = 64 * 1024;
/// A large one takes a quarter of the calls; twice as large ones cost as much.
const LARGE_BYTES: usize = 256 * 1024;

/// A pipe between two sockets: two descriptors.
///
/// Bytes go through it from one socket to another without passing through memory of the process:
///
/// ```text
///  socket ── Actions::splice_in ──► Pipe ── Actions::send_pipe ──► socket of another session
/// ```
///
/// A session that leaves its input in the socket ([`Actions::leave_input`](crate::Actions::leave_input)) is
/// notified that something is there, and takes it into an empty pipe (splice(2)). Only an empty one: of a pipe
/// that holds something the kernel does not say whether it is full or the socket empty.
#[derive(Debug)]
pub struct Pipe {
    from: OwnedFd,
    into: OwnedFd,
    is_large: bool,
}

/// What came of taking input into a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplicedIn {
    /// So many bytes, at least one.
    Bytes(u64),
    /// Nothing is there now.
    Nothing,
    /// The peer has ended, or the connection is broken: the loop reports either.
    Over,
    /// The kernel does not do so with this socket: the session has to take its input
    /// ([`Actions::take_input`](crate::Actions::take_input)).
    Refused,
}

/// What a session found when it read its socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReadOutcome {
    /// It did not read.
    #[default]
    Unseen,
    Bytes(u32),
    Nothing,
    Ended,
    Broken(Errno),
}

impl ReadOutcome {
    /// Counts the read, and what was taken out of the socket.
    pub(crate) fn count(self, counters: &Counters) {
        counters.add(Counter::Receives, u64::from(self != Self::Unseen));
        match self {
            Self::Bytes(bytes) => {
                counters.add(Counter::BytesIn, bytes.into());
                counters.add(Counter::BytesSpliced, bytes.into());
            }
            Self::Nothing => counters.count(Counter::ReceivesEmpty),
            Self::Unseen | Self::Ended | Self::Broken(_) => {}
        }
    }
}

/// The same in four bytes: every connection has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PackedReadOutcome(i32);

impl PackedReadOutcome {
    const NOTHING: i32 = i32::MIN;
    const ENDED: i32 = i32::MIN + 1;

    pub(crate) fn unpacked(self) -> ReadOutcome {
        match self.0 {
            0 => ReadOutcome::Unseen,
            Self::NOTHING => ReadOutcome::Nothing,
            Self::ENDED => ReadOutcome::Ended,
            bytes if bytes > 0 => ReadOutcome::Bytes(bytes.unsigned_abs()),
            errno => ReadOutcome::Broken(Errno::from_raw_os_error(-errno)),
        }
    }
}

impl From<ReadOutcome> for PackedReadOutcome {
    fn from(seen: ReadOutcome) -> Self {
        Self(match seen {
            ReadOutcome::Unseen => 0,
            // A splice takes at most `SPLICE_BYTES`.
            ReadOutcome::Bytes(bytes) => bytes.cast_signed(),
            ReadOutcome::Nothing => Self::NOTHING,
            ReadOutcome::Ended => Self::ENDED,
            ReadOutcome::Broken(errno) => -errno.raw_os_error(),
        })
    }
}

impl Pipe {
    /// An empty one, of 64 KiB.
    ///
    /// # Errors
    /// No descriptor or no memory is left, or the user has as many pipes as the system allows.
    pub fn open() -> io::Result<Self> {
        let (from, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if fcntl_getpipe_size(&into)? < PLAIN_BYTES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Self { from, into, is_large: false })
    }

    /// An empty one, of 256 KiB where the system allows that.
    ///
    /// # Errors
    /// As [`Pipe::open`].
    pub fn open_large() -> io::Result<Self> {
        let pipe = Self::open()?;
        let is_large = fcntl_setpipe_size(&pipe.into, LARGE_BYTES).is_ok();
        Ok(Self { is_large, ..pipe })
    }

    /// Whether it has 256 KiB.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.is_large
    }

    /// Takes what is in the socket, `bytes_max` bytes of it at most. None where the kernel does not do so.
    pub(crate) fn fill(&self, socket: BorrowedFd<'_>, bytes_max: u64) -> Option<ReadOutcome> {
        let len = bytes_max.min(SPLICE_BYTES as u64) as usize;
        loop {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match splice(socket, None, &self.into, None, len, flags) {
                Ok(0) => return Some(ReadOutcome::Ended),
                Ok(taken) => return Some(ReadOutcome::Bytes(taken as u32)),
                Err(Errno::AGAIN) => return Some(ReadOutcome::Nothing),
                Err(Errno::INTR) => {}
                // No call of this kernel (ENOSYS), or of this process (EPERM); nothing that this socket can (EINVAL).
                Err(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => return None,
                Err(errno) => return Some(ReadOutcome::Broken(errno)),
            }
        }
    }

    /// Gives the socket some of `len` bytes that are in the pipe.
    pub(crate) fn drain(&self, socket: BorrowedFd<'_>, len: u64) -> rustix::io::Result<usize> {
        let len = len.min(SPLICE_BYTES as u64) as usize;
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        splice(&self.from, None, socket, None, len, flags)
    }

    /// Takes `len` bytes out of the pipe, for a peer that is not a socket.
    pub(crate) fn read(&self, len: u64, into: &mut Vec<u8>) -> rustix::io::Result<()> {
        let mut at = into.len();
        let end = into.len() + len as usize;
        into.resize(end, 0);
        while at < end {
            at += rustix::io::read(&self.from, &mut into[at..])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn no_more_is_taken_than_was_asked_for() {
        let (mut theirs, ours) = UnixStream::pair().expect("two descriptors");
        let pipe = Pipe::open().expect("two descriptors");
        theirs.write_all(b"bodynext").expect("room");
        assert_eq!(pipe.fill(ours.as_fd(), 4), Some(ReadOutcome::Bytes(4)));
        let mut body = Vec::new();
        pipe.read(4, &mut body).expect("it is there");
        assert_eq!(body, b"body");
        let mut rest = [0; 4];
        (&ours).read_exact(&mut rest).expect("it is there");
        assert_eq!(&rest, b"next");
    }

    #[test]
    fn a_large_pipe_takes_more_at_once() {
        let (mut theirs, ours) = UnixStream::pair().expect("two descriptors");
        theirs.write_all(&[b'x'; 80 << 10]).expect("room");
        let pipe = Pipe::open_large().expect("two descriptors");
        let Some(ReadOutcome::Bytes(taken)) = pipe.fill(ours.as_fd(), u64::MAX) else {
            panic!("there are bytes");
        };
        assert_eq!(taken as usize > PLAIN_BYTES, pipe.is_large(), "{taken} bytes");
    }

    #[test]
    fn what_cannot_be_spliced_is_refused_and_not_taken_for_broken() {
        let pipe = Pipe::open().expect("two descriptors");
        // From its own other end.
        assert_eq!(pipe.fill(pipe.from.as_fd(), 1), None);
    }
}
