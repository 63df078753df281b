//! Request heads, written for a client that sends the same one many times.
//!
//! The load generator builds its requests with it before the first byte is sent. What it is given
//! may come from a command line, so nothing in it can end its own line or frame the request
//! anew: that is an error, never repaired.

use std::fmt;

use crate::fields::{is_token_byte, is_value_byte};
use crate::request_line::is_target_byte;
use crate::{Field, Framing, Method, Target, host};

/// The parts of an HTTP/1.1 request head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead<'h> {
    /// What is to be done.
    pub method: Method<'h>,
    /// About what, in a form that the method allows; visible ASCII.
    pub target: &'h str,
    /// `host[:port]` of the Host field, which is always written; may be empty.
    pub host: &'h str,
    /// All other fields, in their order.
    pub fields: &'h [Field<'h>],
    /// How the body is announced; [`Framing::None`] writes nothing.
    pub framing: Framing,
}

/// What is wrong with the parts of a request head. Fields are counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestFault {
    /// The method is not a token of at most [`Method::BYTES_MAX`] bytes.
    Method,
    /// The target has bytes that no target has, or not a form that the method allows.
    Target,
    /// The host is not `host[:port]`.
    Host,
    /// The field's name is not a token.
    FieldName(usize),
    /// The field's value holds a control byte, a line end perhaps.
    FieldValue(usize),
    /// The field is Host, Content-Length or Transfer-Encoding: the head writes them itself.
    FieldReserved(usize),
}

/// Fields that the other parts stand for.
const RESERVED: [&str; 3] = ["host", "content-length", "transfer-encoding"];

impl RequestHead<'_> {
    /// Appends the head with its empty line to `out`.
    ///
    /// # Errors
    /// When a part is not sound; nothing is written then.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), RequestFault> {
        self.check()?;
        let line = [self.method.name(), " ", self.target, " HTTP/1.1\r\nHost: ", self.host, "\r\n"];
        line.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        for field in self.fields {
            let line = [field.name.as_bytes(), b": ", field.value, b"\r\n"];
            line.iter().for_each(|part| out.extend_from_slice(part));
        }
        match self.framing {
            Framing::None => {}
            Framing::Length(len) => {
                out.extend_from_slice(format!("Content-Length: {len}\r\n").as_bytes());
            }
            Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn check(&self) -> Result<(), RequestFault> {
        let method = self.method.name();
        if !is_token(method) || method.len() > Method::BYTES_MAX {
            return Err(RequestFault::Method);
        }
        let target = self.target.as_bytes();
        if !target.iter().all(|&b| is_target_byte(b)) || Target::parse(target, self.method).is_err()
        {
            return Err(RequestFault::Target);
        }
        if !host::is_host_and_port(self.host.as_bytes()) {
            return Err(RequestFault::Host);
        }
        for (at, field) in self.fields.iter().enumerate() {
            if !is_token(field.name) {
                return Err(RequestFault::FieldName(at));
            }
            if RESERVED.iter().any(|name| field.is(name)) {
                return Err(RequestFault::FieldReserved(at));
            }
            if !field.value.iter().all(|&b| is_value_byte(b)) {
                return Err(RequestFault::FieldValue(at));
            }
        }
        Ok(())
    }
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token_byte)
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => {
                write!(f, "the method is not a token of 1 to {} bytes", Method::BYTES_MAX)
            }
            Self::Target => f.write_str(
                "the target is not visible ASCII without # in a form that the method allows, \
                 as /path?query",
            ),
            Self::Host => f.write_str("the host is not host[:port]"),
            Self::FieldName(at) => write!(f, "the name of field {at} is not a token"),
            Self::FieldValue(at) => {
                write!(f, "the value of field {at} holds a control byte; a line end, perhaps")
            }
            Self::FieldReserved(at) => write!(
                f,
                "field {at} is Host, Content-Length or Transfer-Encoding; give the host and the \
                 framing instead"
            ),
        }
    }
}

impl std::error::Error for RequestFault {}
