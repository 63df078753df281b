//! What the error log can say: each kind of message with its level and how often it is said.

use crate::config::LogLevel;

/// A kind of message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// There are as many connections as there may be.
    ConnectionsFull,
    /// There is room for connections again.
    ConnectionsFree,
    /// An accept failed, and the listener waits.
    AcceptPaused,
    /// No descriptor or memory was left for a file: 503.
    FileRefused,
    /// A file or folder could not be read: 500.
    FileFailed,
    /// Lines of the access log were lost.
    AccessLogLost,
    /// A log could not be opened again.
    ReopenFailed,
    /// New settings or a new certificate can't be used.
    ReloadFailed,
    /// Clients will not like a certificate that is shown.
    Certificate,
    /// A client speaks TLS.
    TlsSpoken,
    /// Bytes that are not a request.
    RequestRefused,
    /// No connection to a backend came about.
    BackendLost,
    /// A backend answered wrongly, or not in time.
    BackendFailed,
    /// A backend came up or went down.
    BackendHealth,
    /// What the server gave up at its start.
    Sandbox,
    /// What the server does by a signal.
    Signal,
}

impl Event {
    /// All of them, in order.
    pub(super) const ALL: [Self; 16] = [
        Self::ConnectionsFull,
        Self::ConnectionsFree,
        Self::AcceptPaused,
        Self::FileRefused,
        Self::FileFailed,
        Self::AccessLogLost,
        Self::ReopenFailed,
        Self::ReloadFailed,
        Self::Certificate,
        Self::TlsSpoken,
        Self::RequestRefused,
        Self::BackendLost,
        Self::BackendFailed,
        Self::BackendHealth,
        Self::Sandbox,
        Self::Signal,
    ];
    /// How many there are.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// From which level on it is written.
    pub(super) const fn level(self) -> LogLevel {
        match self {
            Self::FileFailed | Self::ReopenFailed | Self::ReloadFailed => LogLevel::Error,
            Self::ConnectionsFull
            | Self::AcceptPaused
            | Self::FileRefused
            | Self::AccessLogLost
            | Self::Certificate
            | Self::TlsSpoken
            | Self::BackendLost
            | Self::BackendFailed
            | Self::BackendHealth => LogLevel::Warn,
            Self::ConnectionsFree | Self::Sandbox | Self::Signal => LogLevel::Info,
            Self::RequestRefused => LogLevel::Debug,
        }
    }

    /// How often it is written in a minute; the rest is counted.
    pub(super) const fn minutely_max(self) -> u32 {
        match self {
            Self::ConnectionsFull
            | Self::ConnectionsFree
            | Self::AcceptPaused
            | Self::TlsSpoken
            | Self::Sandbox => 1,
            // The watch reports them once a minute.
            Self::AccessLogLost => 2,
            Self::FileRefused | Self::FileFailed | Self::BackendLost | Self::BackendFailed => 5,
            // A signal was sent for each, and its sender waits for the outcome.
            Self::ReopenFailed | Self::ReloadFailed | Self::Certificate => 60,
            Self::RequestRefused | Self::BackendHealth | Self::Signal => 60,
        }
    }

    /// What the messages are about, for the line that counts those that were not written.
    pub(super) const fn subject(self) -> &'static str {
        match self {
            Self::ConnectionsFull => "full connections",
            Self::ConnectionsFree => "free connections",
            Self::AcceptPaused => "pauses of a listener",
            Self::FileRefused => "files without a descriptor",
            Self::FileFailed => "files that failed",
            Self::AccessLogLost => "lost lines of the access log",
            Self::ReopenFailed => "logs that could not be opened again",
            Self::ReloadFailed => "reloads that failed",
            Self::Certificate => "certificates that clients refuse",
            Self::TlsSpoken => "clients that speak TLS",
            Self::RequestRefused => "refused requests",
            Self::BackendLost => "connects to backends that failed",
            Self::BackendHealth => "backends that came up or went down",
            Self::BackendFailed => "answers of backends that failed",
            Self::Sandbox => "the sandbox",
            Self::Signal => "signals",
        }
    }
}
