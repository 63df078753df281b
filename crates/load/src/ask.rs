//! One request and its answer, before there is any load: is this server the one that is meant?
//!
//! The lab asks each server once. It blocks, and knows nothing of loops.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pollux_engine::ListenAddress;

use crate::answer::Reading;
use crate::requests::prepare;
use crate::{LoadError, Target};

/// What is read at once.
const PART_BYTES: usize = 64 * 1024;

/// What a server answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Status, interim ones passed over.
    pub status: u16,
    /// Length of the body, without the framing of chunks.
    pub body_bytes: u64,
    /// Whether the connection stays open for another request.
    pub keep_alive: bool,
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
    /// What came is not an answer of HTTP/1; in words.
    #[error("not an HTTP answer: {0}")]
    Malformed(String),
    /// The target can't be asked for.
    #[error(transparent)]
    Target(#[from] LoadError),
}

/// Sends one request for `target`, not encrypted, and reads its answer. Connecting and each part
/// of the answer may take `patience`.
///
/// # Errors
/// [`AskError`]; any status is an answer.
pub fn ask(target: &Target, patience: Duration) -> Result<Answered, AskError> {
    let mut request = prepare(target, false, 0)?;
    let ListenAddress::Tcp(address) = &target.address else {
        return Err(AskError::Connect(io::ErrorKind::Unsupported.into()));
    };
    let connection = TcpStream::connect_timeout(address, patience);
    let mut connection = connection.map_err(AskError::Connect)?;
    let limits = connection.set_read_timeout(Some(patience));
    limits.and_then(|()| connection.set_write_timeout(Some(patience))).map_err(AskError::Answer)?;
    connection.write_all(&request.bytes).map_err(AskError::Answer)?;
    let (mut reading, mut unread) = (Reading::default(), Vec::new());
    let mut part = vec![0; PART_BYTES];
    loop {
        let len = connection.read(&mut part).map_err(|error| in_time(error, patience))?;
        let read = match len {
            0 => reading
                .end()
                .map(|answer| (0, Some(answer)))
                .ok_or_else(|| AskError::Answer(io::ErrorKind::UnexpectedEof.into()))?,
            len => {
                unread.extend_from_slice(&part[..len]);
                let read = reading.read(&unread, &mut request.cache, request.kind);
                read.map_err(|rejection| AskError::Malformed(rejection.to_string()))?
            }
        };
        unread.drain(..read.0);
        if let Some(answer) = read.1 {
            let (status, body_bytes) = (answer.status, answer.body_bytes);
            // One that is ended by the end of its connection says so by nothing else.
            let keep_alive = answer.keep_alive && len > 0;
            return Ok(Answered { status, body_bytes, keep_alive });
        }
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
        let answered = ask(&target, Duration::from_secs(20));
        assert!(server.join().expect("the server ends well") > 0);
        answered
    }

    #[test]
    fn every_framing_is_understood() {
        let of = |status, body_bytes, keep_alive| Answered { status, body_bytes, keep_alive };
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
        let refused = ask(&target, Duration::from_secs(20));
        assert!(matches!(refused, Err(AskError::Connect(_))), "{refused:?}");
    }
}
