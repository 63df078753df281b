//! What a call can end in: the error numbers of the specification, and what they mean here.
//!
//! Clients, workers and the C interface give these out; a reply carries the number over the wire.
//! Nothing here decides when an error arises.

use std::borrow::Cow;
use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::buffer::BufferError;

/// Declares the numbers once: variant, number, name, sentence.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal;)+) => {
        /// An error number of the specification (`tperrno`).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i32)]
        pub enum Code {
            $($(#[doc = $doc])+ $variant = $number,)+
        }

        impl Code {
            /// Every number, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name in C, such as `TPENOENT`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

codes! {
    /// The transaction was aborted.
    Abort = 1, "TPEABORT";
    /// The descriptor names no call that is out.
    BadDescriptor = 2, "TPEBADDESC";
    /// It would have to wait, and TPNOBLOCK forbids that.
    Block = 3, "TPEBLOCK";
    /// An argument makes no sense.
    Invalid = 4, "TPEINVAL";
    /// A limit of the system was reached.
    Limit = 5, "TPELIMIT";
    /// The service is not offered, or the type is unknown.
    NoEntry = 6, "TPENOENT";
    /// The operating system refused.
    Os = 7, "TPEOS";
    /// Permission denied.
    Permission = 8, "TPEPERM";
    /// Called at a moment when it must not be.
    Protocol = 9, "TPEPROTO";
    /// The service broke: its process died, or its reply could not be made or read.
    ServiceError = 10, "TPESVCERR";
    /// The service said TPFAIL; its buffer is delivered.
    ServiceFailed = 11, "TPESVCFAIL";
    /// The pool itself is in trouble, for one because none runs.
    System = 12, "TPESYSTEM";
    /// The time was over.
    Time = 13, "TPETIME";
    /// The transaction cannot be taken part in.
    Transaction = 14, "TPETRAN";
    /// A signal came, and TPSIGRSTRT was not given.
    GotSignal = 15, "TPGOTSIG";
    /// A resource manager failed.
    ResourceManager = 16, "TPERMERR";
    /// The service does not take this type of buffer.
    InputType = 17, "TPEITYPE";
    /// The reply has another type than the caller allows.
    OutputType = 18, "TPEOTYPE";
    /// Releases do not match.
    Release = 19, "TPERELEASE";
    /// The transaction may have ended by itself.
    Hazard = 20, "TPEHAZARD";
    /// The transaction was ended by itself in part.
    Heuristic = 21, "TPEHEURISTIC";
    /// An event came on a conversation.
    Event = 22, "TPEEVENT";
    /// The name is taken by another function.
    Match = 23, "TPEMATCH";
    /// More is said elsewhere.
    Diagnostic = 24, "TPEDIAGNOSTIC";
    /// The management interface failed.
    Mib = 25, "TPEMIB";
    /// The program could not join.
    Init = 30, "TPINITFAIL";
}

impl Code {
    /// The number, such as 6.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The code with this number, if there is one.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.number() == number)
    }
}

/// A failure of this crate, with the number that C programs see and a sentence of detail.
#[derive(Debug)]
pub struct Error {
    code: Code,
    detail: Cow<'static, str>,
    source: Option<io::Error>,
}

impl Error {
    /// An error of this kind; `detail` says what was wrong, where, and what is expected.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), source: None }
    }

    /// TPEOS: the system call behind `detail` failed in a way that has no number of its own.
    pub fn os(detail: impl Into<Cow<'static, str>>, source: io::Error) -> Self {
        Self::caused(Code::Os, detail, source)
    }

    /// An error of this kind that a failed system call caused.
    pub fn caused(code: Code, detail: impl Into<Cow<'static, str>>, source: io::Error) -> Self {
        Self { code, detail: detail.into(), source: Some(source) }
    }

    /// What kind it is.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The sentence, without number and cause.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<BufferError> for Error {
    fn from(error: BufferError) -> Self {
        let code = Code::from_number(error.number()).unwrap_or(Code::Invalid);
        Self::new(code, error.to_string())
    }
}

impl fmt::Display for Error {
    /// `TPENOENT: the service 'BALANCE' is not offered`; the cause is [`source`](std::error::Error::source).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.detail)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Whether a system call failed by this errno.
pub(crate) fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_the_specification() {
        let numbers: Vec<i32> = Code::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers, (1..=25).chain([30]).collect::<Vec<_>>());
        assert_eq!(Code::from_number(11), Some(Code::ServiceFailed));
        assert_eq!(Code::from_number(0), None);
        assert_eq!(Code::from_number(26), None);
        assert_eq!(Code::GotSignal.name(), "TPGOTSIG");
    }

    #[test]
    fn an_error_says_its_own_layer_and_keeps_the_cause() {
        let error = Error::os("the reply queue cannot be made", io::ErrorKind::NotFound.into());
        assert_eq!(error.to_string(), "TPEOS: the reply queue cannot be made");
        assert!(std::error::Error::source(&error).is_some());
    }
}
