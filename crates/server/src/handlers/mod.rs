//! What answers requests: at once (a fixed reply, an echo, files, pages of state), or later, where backends do.
//!
//! | part | one job |
//! |---|---|
//! | `answer` | an answer as it leaves: its head, its body, what is left of it |
//! | `files` | answers with files |
//! | `respond` | how a handler answers a request, by its kind and the method |
//! | `sites` | the handlers of routes, and which of them has a request |

pub(crate) mod answer;
pub(crate) mod files;
pub(crate) mod respond;
pub(crate) mod sites;

use std::fmt;

use pollux_http::Method;

use crate::config::FIELDS_BYTES_MAX;
use crate::handlers::answer::{FixedReply, RouteReply, SHORT_BYTES_MAX};
use crate::handlers::files::Folder;

/// Room for heads, refusals and the framing of a chunk.
pub(crate) const SHORT_ROOM_BYTES: usize = 2 * 1024;

/// What answers requests.
#[derive(Debug)]
pub(crate) enum Handler {
    Reply(FixedReply),
    /// That of a route.
    RouteReply(RouteReply),
    Echo,
    Files(Folder),
    Status(Box<dyn Pages>),
    /// Backends answer, or what the sites say.
    Proxy,
}

/// Pages about the state of the server itself.
pub trait Pages: fmt::Debug + Send {
    /// The page of this path with its media type; none where there is no such page.
    fn page(&self, path: Option<&str>) -> Option<(&'static str, String)>;
}

impl Handler {
    /// Value of the Allow field: the methods that [`Handler::allows`].
    pub(crate) fn allow(&self) -> &'static [u8] {
        match self {
            Self::Files(_) | Self::Status(_) => b"GET, HEAD, OPTIONS",
            Self::Reply(_) | Self::RouteReply(_) | Self::Echo | Self::Proxy => {
                b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
            }
        }
    }

    #[inline]
    pub(crate) fn allows(&self, method: Method<'_>) -> bool {
        match method {
            Method::Get | Method::Head | Method::Options => true,
            Method::Post | Method::Put | Method::Patch | Method::Delete => {
                matches!(self, Self::Reply(_) | Self::RouteReply(_) | Self::Echo | Self::Proxy)
            }
            Method::Connect | Method::Trace | Method::Other(_) => false,
        }
    }

    /// Whether bodies of files are read here, or left to the loop; says what was so before.
    pub(crate) fn set_reads_all(&mut self, reads_all: bool) -> bool {
        match self {
            Self::Files(folder) => folder.set_reads_all(reads_all),
            _ => false,
        }
    }

    pub(crate) fn room_bytes_min(&self) -> usize {
        match self {
            Self::Reply(reply) => reply.room_bytes() + SHORT_ROOM_BYTES,
            Self::RouteReply(_) => RouteReply::ROOM_BYTES + SHORT_ROOM_BYTES,
            Self::Echo | Self::Status(_) | Self::Proxy => SHORT_ROOM_BYTES + FIELDS_BYTES_MAX,
            Self::Files(_) => (SHORT_BYTES_MAX + FIELDS_BYTES_MAX).max(Folder::ROOM_BYTES),
        }
    }
}
