//! Why what a client sent, or did not send in time, gets no answer of a handler or a backend: one row for each cause.
//!
//! Faults of backends and of a proxy itself, for which there are pages too, are in `fault.rs`. The page is made in
//! `handlers/answer.rs`; that it was sent is counted by its status in `record.rs`, as of every answer.

use pollux_http::{Rejection, Status};

use crate::counters::{ServerCounter, ServerCounters};
use crate::fault::Fault;

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The bytes of a head or of a body are not sound, or too many.
    Unsound,
    /// The rest of a head did not come in time.
    LateHead,
    /// The rest of a body did not come in time.
    LateBody,
    /// A method that nobody defined, or that this server does not know.
    UnknownMethod,
    /// A method that is not for this server, or not for what answers here.
    OtherMethod,
    /// A path that names no file whatever there is: a wrong escape, or longer than any.
    UnsoundPath,
    /// The folder with its slash would be a target too long to be sent.
    LongLocation,
    /// No descriptor or memory is left to open a file.
    NoDescriptor,
    /// No site has the host that it is for.
    UnknownHost,
    /// Its client has asked more often than a limit allows.
    TooOften,
    /// Its host has another certificate than the one that the client was shown.
    OtherCertificate,
    /// Its host asks for another client certificate than its connection did.
    NotAsked,
    /// Its host asks for a client certificate, and there is none.
    NoCertificate,
    /// The certificate of its client is not believed.
    BadCertificate,
    /// Its site or its route takes nothing from where it comes.
    NotAllowed,
    /// It lacks the password of a user, or has a wrong one.
    NoPassword,
    /// Its client has tried too many wrong passwords.
    TooManyTries,
    /// Too many wait for the check of their passwords, or it took too long.
    PasswordsBusy,
}

/// The word of the log for a client that may not ask, whether it gets a page or not.
pub(crate) const NOT_ALLOWED: &str = "client_not_allowed";

/// What follows from a cause.
struct Row {
    /// Of the page; none where what was wrong says it.
    status: Option<Status>,
    /// What the page says behind the status; empty where what was wrong says it, or there is nothing to add.
    reason: &'static str,
    /// What is counted beside the status.
    counter: Option<ServerCounter>,
    /// What the log of a proxy says.
    word: &'static str,
}

const fn row(
    status: Option<Status>,
    reason: &'static str,
    counter: Option<ServerCounter>,
    word: &'static str,
) -> Row {
    Row { status, reason, counter, word }
}

impl Refusal {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 18] = [
        Self::Unsound,
        Self::LateHead,
        Self::LateBody,
        Self::UnknownMethod,
        Self::OtherMethod,
        Self::UnsoundPath,
        Self::LongLocation,
        Self::NoDescriptor,
        Self::UnknownHost,
        Self::OtherCertificate,
        Self::NotAsked,
        Self::NoCertificate,
        Self::BadCertificate,
        Self::TooOften,
        Self::NotAllowed,
        Self::NoPassword,
        Self::TooManyTries,
        Self::PasswordsBusy,
    ];

    /// The table.
    const fn row(self) -> Row {
        const BAD: &str = Fault::BadRequest(Status::BAD_REQUEST).name();
        const LATE: &str = Fault::ClientTimeout.name();
        const SLOW: &str = "the body stood still, or came too slowly (RFC 9110 15.5.9)";
        const HOST: &str = "no site here has this host (RFC 9110 15.5.20)";
        const CERTIFICATE: &str =
            "this host has another certificate than the one of this connection (RFC 9110 15.5.20)";
        const ASKED: &str = "this connection did not ask for the client certificate that this host wants (RFC 9110 15.5.20)";
        const NONE: &str = "this host wants a client certificate, and none was sent";
        const WRONG: &str = "the client certificate is not one that this host takes";
        const OFTEN: &str = "too many requests; Retry-After has the seconds to wait (RFC 6585 4)";
        const TRIES: &str =
            "too many wrong passwords; Retry-After has the seconds to wait (RFC 6585 4)";
        const BUSY: &str = "too many passwords are being checked";
        const PASSWORD: Option<ServerCounter> = Some(ServerCounter::PasswordsRefused);
        const LATE_HEAD: Option<ServerCounter> = Some(ServerCounter::TimeoutsHeader);
        const LATE_BODY: Option<ServerCounter> = Some(ServerCounter::TimeoutsBody);
        const DENIED: Option<ServerCounter> = Some(ServerCounter::AccessDenied);
        const NO_CERT: Option<ServerCounter> = Some(ServerCounter::CertificatesRefused);
        const NO_FILE: Option<ServerCounter> = Some(ServerCounter::FilesRefused);
        match self {
            Self::Unsound => row(None, "", None, BAD),
            Self::LateHead => row(Some(Status::REQUEST_TIMEOUT), "", LATE_HEAD, LATE),
            Self::LateBody => row(Some(Status::REQUEST_TIMEOUT), SLOW, LATE_BODY, LATE),
            Self::UnknownMethod => row(Some(Status::NOT_IMPLEMENTED), "", None, BAD),
            Self::OtherMethod => row(Some(Status::METHOD_NOT_ALLOWED), "", None, BAD),
            Self::UnsoundPath => row(None, "", None, BAD),
            Self::LongLocation => row(Some(Status::URI_TOO_LONG), "", None, BAD),
            Self::NoDescriptor => row(Some(Status::UNAVAILABLE), "", NO_FILE, "server_file_failed"),
            Self::UnknownHost => row(Some(Status::MISDIRECTED), HOST, None, BAD),
            Self::TooOften => row(Some(Status::TOO_MANY_REQUESTS), OFTEN, None, BAD),
            Self::OtherCertificate => row(Some(Status::MISDIRECTED), CERTIFICATE, None, BAD),
            Self::NotAsked => row(Some(Status::MISDIRECTED), ASKED, NO_CERT, BAD),
            Self::NoCertificate => {
                row(Some(Status::FORBIDDEN), NONE, NO_CERT, "client_no_certificate")
            }
            Self::BadCertificate => {
                row(Some(Status::FORBIDDEN), WRONG, NO_CERT, "client_bad_certificate")
            }
            Self::NoPassword => row(Some(Status::UNAUTHORIZED), "", PASSWORD, "client_no_password"),
            Self::TooManyTries => {
                row(Some(Status::TOO_MANY_REQUESTS), TRIES, PASSWORD, "client_no_password")
            }
            Self::PasswordsBusy => {
                row(Some(Status::UNAVAILABLE), BUSY, PASSWORD, "server_passwords_busy")
            }
            // Which rule it was is nobody's business outside.
            Self::NotAllowed => row(Some(Status::FORBIDDEN), "", DENIED, NOT_ALLOWED),
        }
    }

    /// The status of the page, where the cause alone says it.
    ///
    /// # Panics
    /// Of a cause that is a [`Rejection`]: that has the status.
    pub(crate) const fn status(self) -> Status {
        self.row().status.expect("what was wrong says the status")
    }

    /// What the page says behind the status; empty where there is nothing to add.
    pub(crate) const fn reason(self) -> &'static str {
        self.row().reason
    }

    /// How a request that was refused ended, in the log of a proxy.
    pub(crate) const fn word(self) -> &'static str {
        self.row().word
    }

    /// Counts that it came to this, whether a page can still say so or not.
    pub(crate) fn count(self, counters: &ServerCounters) {
        if let Some(counter) = self.row().counter {
            counters.add(counter, 1);
        }
    }

    /// That of a request to a backend whose client gets this page; none of what is not the client's doing.
    pub(crate) const fn of_page(fault: Fault) -> Option<Self> {
        match fault {
            Fault::BadRequest(_) => Some(Self::Unsound),
            Fault::ClientTimeout => Some(Self::LateBody),
            _ => None,
        }
    }

    /// That of a path; none of one that is sound and names nothing.
    pub(crate) fn of_path(rejection: &Rejection) -> Option<Self> {
        (rejection.status != Status::NOT_FOUND).then_some(Self::UnsoundPath)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_status_that_says_no_and_a_word_that_says_whose_doing_it_is() {
        for cause in Refusal::ALL {
            let row = cause.row();
            assert!(row.status.is_none_or(|status| status.code() >= 400), "{cause:?}");
            let is_own = matches!(cause, Refusal::NoDescriptor | Refusal::PasswordsBusy);
            let whose = if is_own { "server_" } else { "client_" };
            assert!(cause.word().starts_with(whose), "{cause:?}");
        }
    }
}
