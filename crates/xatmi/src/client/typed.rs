//! Calls with a [`Buffer`] each way: how Rust programs call.
//!
//! Stands on the calls that borrow memory, which the C interface uses; adds that what a stranger
//! sent is checked before it is given out as fields or text.

use std::fmt;

use super::{Arrived, Arriving, CallFlags, Client, Descriptor, Outgoing, Which};
use crate::buffer::{Buffer, BufferType};
use crate::error::{Code, Error};

/// What a service returned.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its buffer, if it returned one.
    pub buffer: Option<Buffer>,
    /// How much of the buffer was sent; of use for bytes, which do not know their length.
    pub len_bytes: usize,
    /// The call that was answered; used up now.
    pub descriptor: Descriptor,
    /// What the service gave `tpreturn` first.
    pub rval: i32,
    /// What it gave for the caller.
    pub urcode: i64,
}

/// Why a call did not succeed.
#[derive(Debug)]
pub enum CallError {
    /// The service said so, TPESVCFAIL, with a buffer that tells more.
    Failed(Answer),
    /// Everything else.
    Error(Error),
}

impl CallError {
    /// What kind of error it is.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Failed(_) => Code::ServiceFailed,
            Self::Error(error) => error.code(),
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(answer) => {
                write!(f, "TPESVCFAIL: the service failed with the code {}", answer.urcode)
            }
            Self::Error(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(_) => None,
            Self::Error(error) => std::error::Error::source(error),
        }
    }
}

impl Client {
    /// Calls a service and waits for its answer; `tpcall`. All of a buffer of bytes is sent. With
    /// TPNOCHANGE the answer must have the type of the request.
    ///
    /// # Errors
    /// [`CallError::Failed`] with the service's buffer, else as
    /// [`call_into`](Self::call_into); TPESVCERR when the answer is not of its type, TPEOTYPE when
    /// TPNOCHANGE is given and it is of another type.
    pub fn call(
        &mut self,
        service: &str,
        request: &Buffer,
        flags: CallFlags,
    ) -> Result<Answer, CallError> {
        let only = Some(request.buffer_type()).filter(|_| flags.contains(CallFlags::NO_CHANGE));
        let request = Outgoing::of(request, request.size())?;
        let mut buffer = None;
        let arrived = self.call_into(service, request, flags, |arriving| {
            match (arriving.buffer_type, only) {
                (Some(came), Some(only)) if came != only => Err(other_type(came, only)),
                _ => room(&mut buffer, arriving),
            }
        })?;
        answered(&arrived, buffer)
    }

    /// Sends a request and does not wait; `tpacall`. All of a buffer of bytes is sent.
    ///
    /// # Errors
    /// As [`send_request`](Self::send_request).
    pub fn call_async(
        &mut self,
        service: &str,
        request: &Buffer,
        flags: CallFlags,
    ) -> Result<Descriptor, Error> {
        self.send_request(service, Outgoing::of(request, request.size())?, flags)
    }

    /// Waits for an answer; `tpgetrply`.
    ///
    /// # Errors
    /// [`CallError::Failed`] with the service's buffer, else as
    /// [`wait_reply`](Self::wait_reply); TPESVCERR when the answer is not of its type.
    pub fn answer(&mut self, which: Which, flags: CallFlags) -> Result<Answer, CallError> {
        let mut buffer = None;
        let arrived = self
            .wait_reply(which, flags, |arriving| room(&mut buffer, arriving))
            .map_err(Error::from)?;
        answered(&arrived, buffer)
    }
}

/// A new buffer for what arrives, and its memory; without a buffer there is nothing to write.
fn room<'b>(buffer: &'b mut Option<Buffer>, arriving: &Arriving) -> Result<&'b mut [u8], Error> {
    let Some(buffer_type) = arriving.buffer_type else { return Ok(&mut []) };
    let made = Buffer::new(buffer_type, "", arriving.buffer_size_bytes)?;
    Ok(&mut buffer.insert(made).as_bytes_mut()[..arriving.len_bytes])
}

fn other_type(came: BufferType, only: BufferType) -> Error {
    let (came, only) = (came.name(), only.name());
    let detail = format!("the answer is {came}, and TPNOCHANGE allows only {only}");
    Error::new(Code::OutputType, detail)
}

/// What the caller gets, once the bytes are known to be of their type.
fn answered(arrived: &Arrived, mut buffer: Option<Buffer>) -> Result<Answer, CallError> {
    let len_bytes = arrived.payload.len_bytes;
    if let Some(buffer) = &mut buffer {
        buffer.received(len_bytes).map_err(|error| {
            Error::new(Code::ServiceError, format!("the answer is damaged: {error}"))
        })?;
    }
    let Arrived { descriptor, rval, urcode, is_failure, .. } = *arrived;
    let answer = Answer { buffer, len_bytes, descriptor, rval, urcode };
    if is_failure { Err(CallError::Failed(answer)) } else { Ok(answer) }
}
