//! The table of all conformance cases, by subject.
//!
//! `rehearsed.rs` and `drivers.rs` send each request to a server in the case's set-up, at once and
//! in pieces, and give what came to `verdict::judge`.

mod chunked;
mod conditions;
mod fields;
mod files;
mod framing;
mod host;
mod limits;
mod methods;
mod persistence;
mod request_line;

use crate::case::Case;

/// Every case; names are unique.
pub(crate) fn cases() -> Vec<Case> {
    [
        request_line::cases(),
        fields::cases(),
        host::cases(),
        framing::cases(),
        chunked::cases(),
        persistence::cases(),
        methods::cases(),
        limits::cases(),
        conditions::cases(),
        files::cases(),
    ]
    .concat()
}
