//! The key with which a WebSocket is asked for in HTTP/1.1, and what proves that the other side has understood it (RFC 6455 4).
//!
//! HTTP/2 has neither (RFC 8441 5): who passes a stream on to a connection of HTTP/1.1 makes the key, and judges the proof;
//! who passes the other way keeps the key, and answers it.

use pollux_http::{Method, Request};
use ring::digest;

use crate::random::random;

/// The field with the key.
pub(crate) const KEY: &str = "Sec-WebSocket-Key";
/// The field with the proof.
pub(crate) const ACCEPT: &str = "Sec-WebSocket-Accept";

/// What stands behind each key in the text whose digest is the proof.
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A nonce of 16 bytes, in base64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key([u8; 24]);

/// What a server has to answer to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accept([u8; 28]);

impl Key {
    /// A new one: nobody on the way is to know what it will be.
    pub(crate) fn random() -> Self {
        let nonce: [u8; 16] = random();
        Self(base64(&nonce))
    }

    /// That of a request of HTTP/1.1; none where it is not one for a WebSocket with one sound key (RFC 6455 4.2.1).
    pub(crate) fn of(request: &Request<'_>) -> Option<Self> {
        let mut said = request.fields.all(KEY);
        let key = said.next().filter(|_| said.next().is_none())?;
        let key = Self(key.try_into().ok()?);
        let (digits, padding) = key.0.split_at(22);
        let is_sound = padding == b"==" && digits.iter().all(|digit| ALPHABET.contains(digit));
        (is_sound && request.method == Method::Get).then_some(key)
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// What proves that it was understood.
    pub(crate) fn accept(&self) -> Accept {
        let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        context.update(&self.0);
        context.update(SUFFIX);
        Accept(base64(context.finish().as_ref()))
    }
}

impl Accept {
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// Whether a field says this.
    pub(crate) fn is(&self, value: &[u8]) -> bool {
        value == self.0
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding (RFC 4648 4); the result is as long as that of these bytes.
fn base64<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    let mut out = [b'='; LEN];
    for (group, four) in bytes.chunks(3).zip(out.chunks_mut(4)) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for (at, digit) in four.iter_mut().take(group.len() + 1).enumerate() {
            *digit = ALPHABET[((bits >> (18 - 6 * at)) & 63) as usize];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use pollux_http::{Limits, Parsed};

    use super::*;

    #[test]
    fn the_proof_is_that_of_the_standard() {
        // RFC 6455 1.3.
        let key = Key(*b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(base64(b"the sample nonce"), key.0);
        assert!(key.accept().is(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!key.accept().is(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOp=") && !key.accept().is(b""));
    }

    #[test]
    fn the_key_of_a_client_is_one_of_sixteen_bytes_that_stands_once() {
        let of = |method: &str, lines: &str| {
            let head = format!("{method} / HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
            let parsed = Request::parse(head.as_bytes(), &Limits::default());
            let Parsed::Complete(request, _) = parsed else { panic!("not sound: {head}") };
            Key::of(&request)
        };
        let line = |key: &str| format!("Sec-WebSocket-Key: {key}\r\n");
        let sound = line("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(of("GET", &sound), Some(Key(*b"dGhlIHNhbXBsZSBub25jZQ==")));
        assert_eq!(of("HEAD", &sound), None);
        for lines in [
            String::new(),
            line("k"),
            line(""),
            line("dGhlIHNhbXBsZSBub25jZQ="),
            line("dGhlIHNhbXBsZSBub25jZTE2"),
            line("dGhlIHNhbXBs\u{e9}SBub25jZQ=="),
            line("dGhl HNhbXBsZSBub25jZQ=="),
            format!("{sound}{sound}"),
        ] {
            assert_eq!(of("GET", &lines), None, "{lines}");
        }
    }

    #[test]
    fn each_key_is_another_one_and_of_sixteen_bytes() {
        let keys = [Key::random(), Key::random()];
        assert_ne!(keys[0], keys[1]);
        for key in keys {
            assert!(key.text().ends_with(b"==") && !key.text()[..22].contains(&b'='), "{key:?}");
        }
    }

    #[test]
    fn base64_fills_up_what_is_less_than_three_bytes() {
        // RFC 4648 10.
        for (bytes, text) in [(&b"f"[..], b"Zg=="), (b"fo", b"Zm8="), (b"foo", b"Zm9v")] {
            assert_eq!(base64::<4>(bytes), *text);
        }
    }
}
