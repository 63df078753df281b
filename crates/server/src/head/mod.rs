//! Heads of messages, written anew, without a connection.
//!
//! | part | one job |
//! |---|---|
//! | `common` | what all answers of pollux's own have in common; media types |
//! | `rules` | the user's rules for fields of answers |
//! | `proxied` | heads of requests and answers that a proxy passes on, by the rules of `fields.rs` |
//! | `tail` | what the connection that a head leaves by adds to it |
//! | `cache` | the last of those, which may come again |

pub(crate) mod cache;
pub(crate) mod common;
pub(crate) mod proxied;
pub(crate) mod rules;
pub(crate) mod tail;

use pollux_http::{LimitName, Limits, Rejection};

/// HTTP/1.`minor`, as a log has it.
pub(crate) const fn version(minor: u8) -> &'static str {
    if minor == 0 { "1.0" } else { "1.1" }
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
