//! Heads of messages, written anew, without a connection.
//!
//! | part | one job |
//! |---|---|
//! | `shared_fields` | what all answers of pollux's own have in common |
//! | `media_types` | the content type of a file, by its name |
//! | `rules` | the user's rules for fields of answers |
//! | `sets` | the rules of a front end, its sites and their routes, as they add up |
//! | `proxied` | heads of requests and answers that a proxy passes on, by the rules of `fields.rs` |
//! | `changed` | which answers of backends are compressed, or have a page in their place, and what their heads say then |
//! | `tail` | what the connection that a head leaves by adds to it |
//! | `cache` | the last of those, which may come again |
//! | `websocket` | the key of a WebSocket, and its proof |

pub(crate) mod cache;
pub(crate) mod changed;
pub(crate) mod media_types;
pub(crate) mod proxied;
pub(crate) mod rules;
pub(crate) mod sets;
pub(crate) mod shared_fields;
pub(crate) mod tail;
pub(crate) mod websocket;

use pollux_http::{LimitName, Limits, Rejection};

/// What the client of a request speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Version {
    Http10,
    #[default]
    Http11,
    /// The request has a stream of its own.
    Http2,
}

impl Version {
    /// HTTP/1.`minor`.
    pub(crate) const fn of_minor(minor: u8) -> Self {
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }

    /// As a log has it, and Via.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2.0",
        }
    }
}

/// Why bytes were refused, with the limit that they exceed as the settings call it.
pub(crate) fn explanation(refused: &Rejection, limits: &Limits) -> String {
    let Rejection { reason, rfc, .. } = refused;
    let Some(limit) = refused.limit else { return format!("{reason} ({rfc})") };
    let (setting, most, unit) = match limit {
        LimitName::Head => ("max_head", limits.head_bytes as u64, " bytes"),
        LimitName::Target => ("max_target", limits.target_bytes as u64, " bytes"),
        LimitName::Fields => ("max_fields", limits.fields as u64, ""),
        LimitName::Body => ("max_body", limits.body_bytes, " bytes"),
    };
    format!("{reason}, {setting} = {most}{unit} ({rfc})")
}
