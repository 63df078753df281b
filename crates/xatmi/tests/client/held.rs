//! Services that answer when the test says so, and calls with texts.

use std::sync::mpsc;
use std::time::Duration;

use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::client::{CallFlags, Client, Descriptor, Which};
use pollux_xatmi::error::Code;
use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::wire::{Body, ClientAddress, Payload, Request};

use crate::support::{PATIENCE, Pool, Replier};

/// No flags.
pub(crate) const NONE: CallFlags = CallFlags::NONE;
/// A time-out that is meant to pass.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

/// A buffer with this text.
pub(crate) fn text(text: &str) -> Buffer {
    Buffer::string(text).expect("no zero byte")
}

/// The text in a buffer.
pub(crate) fn said(buffer: Option<Buffer>) -> String {
    let buffer = buffer.expect("a buffer");
    let len = buffer.used_len(0).expect("text");
    String::from_utf8(buffer.as_bytes()[..len - 1].to_vec()).expect("text")
}

/// A request that came, with what is needed to answer it.
pub(crate) struct Held {
    client: ClientAddress,
    call_id: u64,
    text: Vec<u8>,
}

/// Serves a service by handing every request to the test.
pub(crate) fn serve_held(pool: &mut Pool, service: &str) -> mpsc::Receiver<Held> {
    let (sender, held) = mpsc::channel();
    pool.serve(service, move |request, _| {
        let Body::Inline(bytes) = request.payload.body else { return };
        let (client, call_id) = (request.client, request.call_id);
        let _ = sender.send(Held { client, call_id, text: bytes.to_vec() });
    });
    held
}

impl Held {
    fn request(&self) -> Request<'_> {
        Request {
            client: self.client,
            call_id: self.call_id,
            cd: 0,
            deadline_ns: 0,
            is_without_reply: false,
            service: ServiceName::new("HELD").expect("a name"),
            payload: self.payload(),
        }
    }

    fn payload(&self) -> Payload<'_> {
        Payload {
            buffer_type: Some(BufferType::String),
            buffer_size_bytes: self.text.len() as u64,
            body: Body::Inline(&self.text),
        }
    }

    pub(crate) fn answer(&self, pool: &Pool) {
        let replier = Replier { prefix: pool.prefix.clone() };
        replier.answer(&self.request(), self.payload());
    }
}

/// The next request that came.
pub(crate) fn next(held: &mpsc::Receiver<Held>) -> Held {
    held.recv_timeout(PATIENCE).expect("a request")
}

/// The next answer: its call and its text.
pub(crate) fn get(client: &mut Client, which: Which) -> Result<(Descriptor, String), Code> {
    match client.answer(which, NONE) {
        Ok(answer) => Ok((answer.descriptor, said(answer.buffer))),
        Err(error) => Err(error.code()),
    }
}
