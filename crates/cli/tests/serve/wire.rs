//! A client that does everything right, and wants the same of the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::child::PATIENCE;

/// What is written at once without reading meanwhile: socket buffers hold more.
const UNREAD_BYTES_MAX: usize = 16 * 1024;

/// An answer that came whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    /// What was received and not looked at yet.
    got: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        Self { stream, got: Vec::new() }
    }

    /// Sends `request` and takes an answer for each place of `heads`, which says whether it is
    /// one to HEAD.
    pub(crate) fn ask(&mut self, request: &[u8], heads: &[bool]) -> io::Result<Vec<Answer>> {
        if request.len() <= UNREAD_BYTES_MAX {
            self.send(request)?;
            return heads.iter().map(|is_head| self.answer(*is_head)).collect();
        }
        let mut writer = self.stream.try_clone()?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || writer.write_all(request));
            let answers = heads.iter().map(|is_head| self.answer(*is_head)).collect();
            sent.join().expect("no panic")?;
            answers
        })
    }

    /// Sends `request`, which is short.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Takes the next answer.
    pub(crate) fn answer(&mut self, is_head: bool) -> io::Result<Answer> {
        let head_bytes = self.line_end(b"\r\n\r\n")?;
        let head = self.take(head_bytes)?;
        let head = String::from_utf8(head).map_err(|_| wrong("a head is not text"))?;
        let status = head.get(9..12).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| wrong("no status"))?;
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let body = match (field("Content-Length: "), field("Transfer-Encoding: chunked")) {
            _ if is_head => Vec::new(),
            (Some(len), None) => self.take(len.parse().map_err(|_| wrong("a length"))?)?,
            (None, Some(_)) => self.chunks()?,
            _ => return Err(wrong("one field has to say where the body ends")),
        };
        Ok(Answer { status, body })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line_bytes = self.line_end(b"\r\n")?;
            let line = self.take(line_bytes)?;
            let line = String::from_utf8_lossy(&line);
            let len = usize::from_str_radix(line.trim_end(), 16).map_err(|_| wrong("a size"))?;
            let chunk = self.take(len + 2)?;
            body.extend_from_slice(&chunk[..len]);
            if len == 0 {
                return Ok(body);
            }
        }
    }

    /// How many bytes there are up to and with `end`.
    fn line_end(&mut self, end: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(at) = self.got.windows(end.len()).position(|part| part == end) {
                return Ok(at + end.len());
            }
            self.receive()?;
        }
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.got.len() < len {
            self.receive()?;
        }
        Ok(self.got.drain(..len).collect())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut room = [0; 16 * 1024];
        match self.stream.read(&mut room)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.got.extend_from_slice(&room[..read]);
                Ok(())
            }
        }
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(what)
}
