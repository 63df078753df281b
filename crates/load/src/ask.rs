//! One request and its answer, before there is any load: is this server the one that is meant?
//!
//! The lab asks each server once. It blocks, and knows nothing of loops.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pollux_engine::ListenAddress;
use pollux_tls::{HTTP_1_1, Layer, server_name};

use crate::answer::Reading;
use crate::requests::prepare;
use crate::{LoadError, Target, Trust};

/// What is read at once.
const PART_BYTES: usize = 64 * 1024;

/// What a server answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Status, interim ones passed over.
    pub status: u16,
    /// Length of the body, without the framing of chunks.
    pub body_bytes: u64,
    /// Whether the connection stays open for another request.
    pub keep_alive: bool,
    /// Version and cipher suite of TLS, as rustls names them; none of a connection without it.
    pub tls: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there, or not yet.
    #[error("no connection")]
    Connect(#[source] io::Error),
    /// The connection failed before the answer was whole, or nothing came in time.
    #[error("no whole answer")]
    Answer(#[source] io::Error),
    /// The server does not speak TLS, or can't be believed.
    #[error("TLS failed")]
    Tls(#[source] pollux_tls::Error),
    /// What came is not an answer of HTTP/1; in words.
    #[error("not an HTTP answer: {0}")]
    Malformed(String),
    /// The target can't be asked for.
    #[error(transparent)]
    Target(#[from] LoadError),
}

/// Sends one request for `target`, on a connection in TLS where its URL says so, and reads its
/// answer. Connecting and each part of the answer may take `patience`; `trust` says which
/// certificates are believed.
///
/// # Errors
/// [`AskError`]; any status is an answer.
pub fn ask(target: &Target, trust: &Trust, patience: Duration) -> Result<Answered, AskError> {
    let mut request = prepare(target, false)?;
    let mut line = Line::open(target, trust, patience)?;
    line.write(&request.bytes)?;
    let (mut reading, mut unread) = (Reading::default(), Vec::new());
    loop {
        let len = line.read(&mut unread)?;
        let read = match len {
            0 => reading
                .end()
                .map(|answer| (0, Some(answer)))
                .ok_or_else(|| AskError::Answer(io::ErrorKind::UnexpectedEof.into()))?,
            _ => {
                let read = reading.read(&unread, &mut request.cache, request.kind, |_| {});
                read.map_err(|rejection| AskError::Malformed(rejection.to_string()))?
            }
        };
        unread.drain(..read.0);
        if let Some(answer) = read.1 {
            let (status, body_bytes) = (answer.status, answer.body_bytes);
            // One that is ended by the end of its connection says so by nothing else.
            let keep_alive = answer.keep_alive && len > 0;
            let tls = line.tls.as_ref().and_then(Layer::suite);
            return Ok(Answered { status, body_bytes, keep_alive, tls });
        }
    }
}

/// A connection that blocks, with what encrypts it.
struct Line {
    socket: TcpStream,
    tls: Option<Layer>,
    patience: Duration,
    part: Vec<u8>,
}

impl Line {
    fn open(target: &Target, trust: &Trust, patience: Duration) -> Result<Self, AskError> {
        let ListenAddress::Tcp(address) = &target.address else {
            return Err(AskError::Connect(io::ErrorKind::Unsupported.into()));
        };
        let tls = match &target.tls_name {
            None => None,
            Some(name) => {
                let wrong = |why| LoadError::Url { url: target.url.clone(), why };
                let name = server_name(name).map_err(wrong)?;
                let unread = |error: pollux_tls::TlsError| LoadError::Plan {
                    what: "--cacert",
                    why: error.to_string(),
                };
                Some(Layer::client(&trust.config(Some(HTTP_1_1)).map_err(unread)?, &name))
            }
        };
        let socket = TcpStream::connect_timeout(address, patience).map_err(AskError::Connect)?;
        let limits = socket.set_read_timeout(Some(patience));
        limits.and_then(|()| socket.set_write_timeout(Some(patience))).map_err(AskError::Answer)?;
        Ok(Self { socket, tls, patience, part: vec![0; PART_BYTES] })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), AskError> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write_all(bytes).map_err(AskError::Answer);
        };
        // It leaves when the handshake is through, which `read` goes on with.
        tls.encrypt(bytes);
        self.flush()
    }

    /// Puts what comes next behind what is in `unread`; says how many bytes, none at the end.
    fn read(&mut self, unread: &mut Vec<u8>) -> Result<usize, AskError> {
        loop {
            let len = match self.socket.read(&mut self.part) {
                // With a timeout the kernel does not go on behind a signal, nor behind a stop (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| in_time(error, self.patience))?,
            };
            let Some(tls) = self.tls.as_mut().filter(|_| len > 0) else {
                unread.extend_from_slice(&self.part[..len]);
                return Ok(len);
            };
            let mut rest = &self.part[..len];
            while !rest.is_empty() {
                tls.decrypt(&mut rest).map_err(AskError::Tls)?;
            }
            let plain = tls.take_input();
            let (len, is_closed) = (plain.len(), tls.is_closed());
            unread.extend_from_slice(&plain);
            self.flush()?;
            if len > 0 || is_closed {
                return Ok(len);
            }
        }
    }

    /// Sends what is encrypted.
    fn flush(&mut self) -> Result<(), AskError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            let len = tls.write(&mut self.part);
            self.socket.write_all(&self.part[..len]).map_err(AskError::Answer)?;
        }
        Ok(())
    }
}

/// A read that has waited long enough says "try again".
fn in_time(error: io::Error, patience: Duration) -> AskError {
    AskError::Answer(match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, format!("nothing came for {patience:?}"))
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// What `ask` makes of these pieces, after which the server closes.
    fn asked(pieces: &'static [&'static str]) -> Result<Answered, AskError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            let len = connection.read(&mut [0; 4096]).expect("a request");
            for piece in pieces {
                connection.write_all(piece.as_bytes()).expect("written");
            }
            len
        });
        let target = Target::parse(&format!("http://{to}/x"), None).expect("a URL");
        let answered = ask(&target, &Trust::default(), Duration::from_secs(20));
        assert!(server.join().expect("the server ends well") > 0);
        answered
    }

    #[test]
    fn every_framing_is_understood() {
        let of =
            |status, body_bytes, keep_alive| Answered { status, body_bytes, keep_alive, tls: None };
        let fixed = asked(&["HTTP/1.1 500 x\r\nContent-", "Length: 5\r\n\r\nhe", "llo"]);
        assert_eq!(fixed.expect("an answer"), of(500, 5, true));
        let chunked = asked(&[
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ]);
        assert_eq!(chunked.expect("an answer"), of(200, 3, true));
        let until_the_end = asked(&["HTTP/1.0 200 OK\r\n\r\nabcd"]);
        assert_eq!(until_the_end.expect("an answer"), of(200, 4, false));
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let short = asked(&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"]);
        assert!(matches!(short, Err(AskError::Answer(_))), "{short:?}");
        let other = asked(&["SSH-2.0-OpenSSH\r\n\r\n"]);
        assert!(matches!(other, Err(AskError::Malformed(_))), "{other:?}");
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let to = nobody.local_addr().expect("its address");
        drop(nobody);
        let target = Target::parse(&format!("http://{to}/"), None).expect("a URL");
        let refused = ask(&target, &Trust::default(), Duration::from_secs(20));
        assert!(matches!(refused, Err(AskError::Connect(_))), "{refused:?}");
    }
}
