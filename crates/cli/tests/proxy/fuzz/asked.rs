//! What a strict reader finds in the bytes of a client, and how it has to look behind the proxy.

use super::strict::{self, Frame, Head, Writer};

/// A request that a strict reader finds in what a client sent.
pub(crate) struct Asked {
    pub(crate) head: Head,
    /// None when its body is broken, or not whole.
    pub(crate) body: Option<Vec<u8>>,
}

/// All requests that a strict reader finds there, until it refuses something or a request is the last
/// one of its connection.
pub(crate) fn asked(bytes: &[u8]) -> Vec<Asked> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Ok(Some(head)) = strict::request(&bytes[at..], Writer::Client) {
        at += head.len;
        let body = strict::body(&bytes[at..], head.frame, Writer::Client).ok().flatten();
        let is_kept = match head.minor {
            0 => head.fields.has("connection", "keep-alive"),
            _ => true,
        };
        let is_last = !is_kept || head.fields.has("connection", "close") || body.is_none();
        at += body.as_ref().map_or(0, |(_, len)| *len);
        found.push(Asked { head, body: body.map(|(body, _)| body) });
        if is_last {
            break;
        }
    }
    found
}

impl Asked {
    /// As a backend must see its head: what is about the client's connection is gone.
    pub(crate) fn as_forwarded(&self) -> String {
        let (mut host, mut target) = (self.head.fields.first("host"), self.head.target.clone());
        if let Some((authority, path)) = strict::authority(&self.head.target) {
            host = Some(authority.as_bytes());
            target = match path {
                "" if self.head.method == "OPTIONS" => "*".to_owned(),
                path if path.starts_with('/') => path.to_owned(),
                path => format!("/{path}"),
            };
        }
        let host = host.map(|host| String::from_utf8_lossy(host).into_owned());
        let fields = end_to_end(&self.head, true);
        canonical(&self.head.method, &target, host.as_deref(), &fields)
    }
}

/// A request's head as text, to compare.
pub(crate) fn canonical(
    method: &str,
    target: &str,
    host: Option<&str>,
    fields: &[(String, Vec<u8>)],
) -> String {
    let host = host.unwrap_or("(the backend)");
    let mut text = format!("{method} {target}\n host {host}\n");
    for (name, value) in fields {
        text.push_str(&format!(" {name}: {}\n", value.escape_ascii()));
    }
    text
}

/// The fields that go from end to end; `by_client` those of a client's request, else those of what the
/// proxy sent, without what it says itself.
pub(crate) fn end_to_end(head: &Head, by_client: bool) -> Vec<(String, Vec<u8>)> {
    const ENDING: [&str; 19] = [
        "te",
        "host",
        "expect",
        "trailer",
        "upgrade",
        "forwarded",
        "connection",
        "keep-alive",
        "max-forwards",
        "content-length",
        "http2-settings",
        "x-forwarded-for",
        "proxy-connection",
        "x-forwarded-host",
        "transfer-encoding",
        "x-forwarded-proto",
        "proxy-authenticate",
        "proxy-authorization",
        "",
    ];
    let ends = |name: &str| {
        ENDING.contains(&name.replace('_', "-").as_str())
            || (by_client && head.fields.has("connection", name))
    };
    let mut fields: Vec<_> =
        head.fields.0.iter().filter(|(name, _)| !ends(name)).cloned().collect();
    if !by_client {
        // The proxy's own stands last.
        assert_eq!(fields.pop().map(|(name, _)| name).as_deref(), Some("via"));
    }
    fields
}

/// What a body is known by.
pub(crate) fn mark(body: &[u8]) -> (usize, u64) {
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (body.len(), hash)
}

/// Whether a request has a body, and of what kind, so that it can be answered in time.
pub(crate) fn waits_to_proceed(head: &Head) -> bool {
    head.fields.has("expect", "100-continue") && head.frame != Frame::Nothing
}
