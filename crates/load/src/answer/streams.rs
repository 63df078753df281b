//! The same by HTTP/2: requests on streams of a connection that blocks, and their answers in the order in which they are
//! whole.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use pollux_http::h2::{
    AskHead, CONTROL_ROOM_BYTES, Connection, DATA_BYTES_MAX, Event, Output, Role, Scratch, Settings,
};

use super::RequestError;
use crate::plan::WINDOW_BYTES;
use crate::protocol::ask_room_bytes;
use crate::requests::ANSWER_LIMITS;

/// Windows that hold up no server.
const SETTINGS: Settings = Settings {
    stream_window: WINDOW_BYTES,
    connection_window: WINDOW_BYTES,
    head_bytes: ANSWER_LIMITS.head_bytes as u32,
    ..Settings::DEFAULT
};

/// HTTP/2 on one connection: bytes in and out, answers.
pub(super) struct Http2 {
    connection: Connection<Whole>,
    scratch: Scratch,
    room: Vec<u8>,
    /// Where the rest of a request's body begins, in the order of their turns.
    unsent: VecDeque<(u32, usize)>,
    whole: VecDeque<Result<Whole, String>>,
    began: Instant,
    is_gone: bool,
    out: Vec<u8>,
}

/// An answer; whole when its stream has ended.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Whole {
    pub(super) status: u16,
    pub(super) body_bytes: u64,
    /// It has come to its end, or something else was said of it.
    is_over: bool,
}

impl Whole {
    /// What has come, to its end.
    fn end(&mut self) -> Self {
        self.is_over = true;
        *self
    }
}

impl Http2 {
    /// The end of a client that has not asked anything.
    pub(super) fn new(head_bytes: usize) -> Self {
        let room = ask_room_bytes(head_bytes).max(4 * DATA_BYTES_MAX);
        let mut this = Self {
            connection: Connection::new(Role::Client, SETTINGS),
            scratch: Scratch::default(),
            room: vec![0; room],
            unsent: VecDeque::new(),
            whole: VecDeque::new(),
            began: Instant::now(),
            is_gone: false,
            out: Vec::new(),
        };
        this.say(Connection::start);
        this
    }

    fn say<R>(&mut self, write: impl FnOnce(&mut Connection<Whole>, &mut Output<'_>) -> R) -> R {
        let mut out = Output::new(&mut self.room);
        let said = write(&mut self.connection, &mut out);
        self.out.extend_from_slice(out.bytes());
        said
    }

    /// What has to be sent.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Asks by this request, whose head has so many bytes.
    ///
    /// # Errors
    /// The server takes no further stream.
    pub(super) fn ask(
        &mut self,
        request: &[u8],
        head_len: usize,
        scheme: &str,
    ) -> Result<(), RequestError> {
        let ends = head_len == request.len();
        let asked = self.say(|connection, out| {
            let ask = AskHead { head: &request[..head_len], scheme, known: None, path: None };
            connection.ask_head(out, ask, ends, Whole::default())
        });
        let none = || RequestError::Malformed("the server allows no further stream".to_owned());
        let stream = asked.ok_or_else(none)?;
        if !ends {
            self.unsent.push_back((stream, head_len));
            self.send_bodies(request);
        }
        Ok(())
    }

    /// Sends more of the bodies of requests, which are all this one.
    fn send_bodies(&mut self, request: &[u8]) {
        for _ in 0..self.unsent.len() {
            let Some((stream, mut at)) = self.unsent.pop_front() else { break };
            loop {
                let room = self.connection.data_room(stream).min(request.len() - at);
                if room == 0 {
                    break;
                }
                let ends = at + room == request.len();
                let piece = &request[at..at + room];
                self.say(|connection, out| connection.send_data(out, stream, piece, ends));
                at += room;
            }
            if at < request.len() && self.connection.data_mut(stream).is_some() {
                self.unsent.push_back((stream, at));
            }
        }
    }

    /// Takes what came, all but the start of a frame at its end, and sends what is left of `request`. Says how much was
    /// used.
    ///
    /// # Errors
    /// What came is not HTTP/2.
    pub(super) fn read(&mut self, input: &[u8], request: &[u8]) -> Result<usize, RequestError> {
        let mut used = 0;
        let now_ms = self.began.elapsed().as_millis() as u64;
        loop {
            let mut out = Output::new(&mut self.room);
            let Self { connection, scratch, whole, is_gone, .. } = self;
            let read = connection.read(&input[used..], scratch, &mut out, &ANSWER_LIMITS, now_ms);
            let step = read.map_err(|fault| RequestError::Malformed(fault.to_string()))?;
            used += step.used;
            let Some(event) = step.event else {
                self.out.extend_from_slice(out.bytes());
                break;
            };
            match event {
                Event::Response { stream, response, ends, .. } => {
                    if let Some(answer) = connection.data_mut(stream) {
                        answer.status = response.facts.status.code();
                        whole.extend(ends.then(|| Ok(answer.end())));
                    }
                }
                Event::Data { stream, data, ends } => {
                    if let Some(answer) = connection.data_mut(stream) {
                        answer.body_bytes += data.len() as u64;
                        whole.extend(ends.then(|| Ok(answer.end())));
                    }
                    connection.release(&mut out, stream, data.len());
                }
                Event::Trailers { stream, .. } => {
                    whole.extend(connection.data_mut(stream).map(|answer| Ok(answer.end())));
                }
                // Behind a whole answer it says that the rest of the request is not wanted (RFC 9113 8.1).
                Event::Reset { data: answer, .. } | Event::Malformed { data: Some(answer), .. }
                    if answer.is_over => {}
                Event::Reset { code, .. } => {
                    whole.push_back(Err(format!("its stream was reset: {code}")));
                }
                Event::Malformed { rejection, .. } => {
                    whole.push_back(Err(rejection.to_string()));
                }
                Event::GoneAway { last, code } => {
                    *is_gone = true;
                    let untaken: Vec<Whole> =
                        connection.take_above(last).map(|(_, answer)| answer).collect();
                    let untaken = untaken.iter().filter(|answer| !answer.is_over);
                    whole.extend(untaken.map(|_| {
                        Err(format!(
                            "its stream was not taken: the server gives up the connection ({code})"
                        ))
                    }));
                }
                _ => {}
            }
            self.out.extend_from_slice(out.bytes());
        }
        let done: Vec<u32> = self.connection.streams().map(|(stream, _)| stream).collect();
        for stream in done {
            let _done = self.connection.take_done(stream);
        }
        self.send_bodies(request);
        Ok(used)
    }

    /// The next answer that is whole.
    pub(super) fn answer(&mut self) -> Option<Result<Whole, RequestError>> {
        let whole = self.whole.pop_front()?;
        Some(whole.map_err(|why| RequestError::Answer(io::Error::other(why))))
    }

    /// Whether another request may be asked on the connection.
    pub(super) fn keeps(&self) -> bool {
        !self.is_gone
    }

    /// What came of a body that is not whole.
    pub(super) fn body_bytes_so_far(&self) -> Option<u64> {
        let mut begun = self.connection.streams().filter(|(_, answer)| answer.status > 0);
        begun.next().map(|(_, answer)| answer.body_bytes)
    }
}

const _: () = assert!(CONTROL_ROOM_BYTES < DATA_BYTES_MAX);
