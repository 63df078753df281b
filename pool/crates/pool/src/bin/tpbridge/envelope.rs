//! Requests and replies of the pool as messages of the broker, and back.
//!
//! The data travel as the payload, all else as headers. Whatever an unknown sender sends is checked
//! here before a buffer is made of it.
//!
//! | header | in | meaning |
//! |---|---|---|
//! | `Pollux-Request`, `Pollux-Reply` | one each | which of the two it is, and by which version of this table: 1 |
//! | `Pollux-Type`, `Pollux-Size` | both | type of the buffer and bytes that it had; none without a buffer |
//! | `Pollux-Timeout-Ms` | request | how long the caller still waits; none for ever |
//! | `Pollux-Without-Reply` | request | no caller waits |
//! | `Pollux-Busy` | reply | nothing was done: ask again |
//! | `Pollux-Error` | reply | the number of a TPE error |
//! | `Pollux-Rval`, `Pollux-Urcode` | reply | what the service gave `tpreturn` |

use std::time::Duration;

use async_nats::HeaderMap;
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::error::Code;

const REQUEST: &str = "Pollux-Request";
const REPLY: &str = "Pollux-Reply";
/// Of the table above. Bridges of different versions refuse each other's messages.
const VERSION: u32 = 1;
const TYPE: &str = "Pollux-Type";
const SIZE: &str = "Pollux-Size";
const TIMEOUT_MS: &str = "Pollux-Timeout-Ms";
const WITHOUT_REPLY: &str = "Pollux-Without-Reply";
const BUSY: &str = "Pollux-Busy";
const ERROR: &str = "Pollux-Error";
const RVAL: &str = "Pollux-Rval";
const URCODE: &str = "Pollux-Urcode";

/// The largest buffer that is made for what another host sent.
const BUFFER_SIZE_BYTES_MAX: usize = 64 << 20;

/// A request, without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestHeader {
    /// How long the caller still waits; `None` for ever.
    pub(crate) timeout: Option<Duration>,
    /// No caller waits.
    pub(crate) is_without_reply: bool,
}

/// A reply, without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// Nothing was done: ask again.
    Busy,
    /// The service returned, or there was an error.
    Done {
        /// What kind of error.
        error: Option<Code>,
        /// What the service gave `tpreturn` first.
        rval: i32,
        urcode: i64,
    },
}

/// Data on their way: a buffer, and how much of one that does not say it itself is meant.
pub(crate) type Data = Option<(Buffer, usize)>;

/// Bytes that are not a message of a bridge, in words.
pub(crate) type Foreign = String;

impl RequestHeader {
    pub(crate) fn write(&self, data: &Data) -> Result<(HeaderMap, Vec<u8>), Foreign> {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST, VERSION.to_string());
        if let Some(timeout) = self.timeout {
            headers.insert(TIMEOUT_MS, timeout.as_millis().to_string());
        }
        if self.is_without_reply {
            headers.insert(WITHOUT_REPLY, "1");
        }
        let payload = put(data, &mut headers)?;
        Ok((headers, payload))
    }

    pub(crate) fn read(
        headers: Option<&HeaderMap>,
        payload: &[u8],
    ) -> Result<(Self, Data), Foreign> {
        let headers = marked(headers, REQUEST)?;
        let timeout = number::<u64>(headers, TIMEOUT_MS)?.map(Duration::from_millis);
        let is_without_reply = headers.get(WITHOUT_REPLY).is_some();
        Ok((Self { timeout, is_without_reply }, take(headers, payload)?))
    }
}

impl Answered {
    pub(crate) fn write(&self, data: &Data) -> Result<(HeaderMap, Vec<u8>), Foreign> {
        let mut headers = HeaderMap::new();
        headers.insert(REPLY, VERSION.to_string());
        match self {
            Self::Busy => headers.insert(BUSY, "1"),
            Self::Done { error, rval, urcode } => {
                if let Some(code) = error {
                    headers.insert(ERROR, code.number().to_string());
                }
                headers.insert(RVAL, rval.to_string());
                headers.insert(URCODE, urcode.to_string());
            }
        }
        let payload = put(data, &mut headers)?;
        Ok((headers, payload))
    }

    pub(crate) fn read(
        headers: Option<&HeaderMap>,
        payload: &[u8],
    ) -> Result<(Self, Data), Foreign> {
        let headers = marked(headers, REPLY)?;
        if headers.get(BUSY).is_some() {
            return Ok((Self::Busy, None));
        }
        let error = match number::<i32>(headers, ERROR)? {
            None => None,
            Some(number) => Some(Code::from_number(number).ok_or("an unknown error number")?),
        };
        let rval = number(headers, RVAL)?.ok_or("no Pollux-Rval")?;
        let urcode = number(headers, URCODE)?.ok_or("no Pollux-Urcode")?;
        Ok((Self::Done { error, rval, urcode }, take(headers, payload)?))
    }
}

/// The headers, if they are those of a request or of a reply of this version.
fn marked<'a>(headers: Option<&'a HeaderMap>, mark: &str) -> Result<&'a HeaderMap, Foreign> {
    let headers = headers.ok_or("no headers")?;
    match number::<u32>(headers, mark)? {
        Some(VERSION) => Ok(headers),
        Some(other) => Err(format!("{mark} is {other}, and this bridge knows {VERSION}")),
        None => Err(format!("no {mark}")),
    }
}

fn put(data: &Data, headers: &mut HeaderMap) -> Result<Vec<u8>, Foreign> {
    let Some((buffer, len_bytes)) = data else { return Ok(Vec::new()) };
    let used = buffer.used_len(*len_bytes).map_err(|error| error.to_string())?;
    headers.insert(TYPE, buffer.buffer_type().name());
    headers.insert(SIZE, buffer.size().to_string());
    Ok(buffer.as_bytes()[..used].to_vec())
}

fn take(headers: &HeaderMap, payload: &[u8]) -> Result<Data, Foreign> {
    let Some(name) = headers.get(TYPE) else { return Ok(None) };
    let kind = name.as_str();
    let size: usize = number(headers, SIZE)?.ok_or("no Pollux-Size")?;
    if size > BUFFER_SIZE_BYTES_MAX || payload.len() > size {
        return Err(format!("{} bytes in a buffer of {size}", payload.len()));
    }
    let buffer = Buffer::from_wire(kind, "", size, payload).map_err(|error| error.to_string())?;
    Ok(Some((buffer, payload.len())))
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<Option<T>, Foreign> {
    let read = |value: &async_nats::HeaderValue| value.as_str().parse().ok();
    match headers.get(name) {
        None => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| format!("{name} is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Data {
        let buffer = Buffer::string("ACC00000000001").expect("text");
        let size = buffer.size();
        Some((buffer, size))
    }

    fn content(data: Data) -> Vec<u8> {
        data.map_or_else(Vec::new, |(buffer, _)| buffer.as_bytes().to_vec())
    }

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        for timeout in [None, Some(Duration::from_millis(1500))] {
            for data in [None, text()] {
                let asked = RequestHeader { timeout, is_without_reply: timeout.is_none() };
                let (headers, payload) = asked.write(&data).expect("sound");
                let (read, arrived) =
                    RequestHeader::read(Some(&headers), &payload).expect("its own");
                assert_eq!(read, asked);
                assert_eq!(content(arrived), content(data));
            }
        }
    }

    #[test]
    fn a_reply_arrives_as_it_was_sent() {
        let done = |error| Answered::Done { error, rval: 2, urcode: -7 };
        for answered in [Answered::Busy, done(None), done(Some(Code::ServiceFailed))] {
            let data = if answered == Answered::Busy { None } else { text() };
            let (headers, payload) = answered.write(&data).expect("sound");
            let (read, arrived) = Answered::read(Some(&headers), &payload).expect("its own");
            assert_eq!(read, answered);
            assert_eq!(content(arrived), content(data));
        }
    }

    #[test]
    fn bytes_of_unknown_senders_make_no_buffer() {
        let with = |pairs: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST, "1");
            headers.insert(REPLY, "1");
            pairs.iter().for_each(|(name, value)| headers.insert(*name, *value));
            headers
        };
        let asked = |pairs: &[(&str, &str)], payload: &[u8]| {
            RequestHeader::read(Some(&with(pairs)), payload).expect_err("foreign")
        };
        assert!(RequestHeader::read(None, b"").is_err());
        assert!(asked(&[(TYPE, "UBF")], b"").contains("Pollux-Size"));
        assert!(asked(&[(TYPE, "STRING"), (SIZE, "3")], b"four").contains("4 bytes"));
        assert!(asked(&[(TYPE, "CARRAY"), (SIZE, "99999999999")], b"x").contains("bytes in"));
        assert!(asked(&[(TYPE, "CARRAY"), (SIZE, "-1")], b"x").contains("not a number"));
        assert!(!asked(&[(TYPE, "UBF"), (SIZE, "64")], b"no fields at all").is_empty());
        assert!(!asked(&[(TYPE, "VIEW?"), (SIZE, "64")], b"x").is_empty());
        assert!(asked(&[(REQUEST, "2")], b"").contains("knows 1"));
        let error = Answered::read(Some(&with(&[(ERROR, "4711")])), b"");
        assert!(error.expect_err("foreign").contains("unknown"));
    }

    #[test]
    fn a_reply_is_not_a_request_and_a_request_not_a_reply() {
        let (reply, payload) = Answered::Busy.write(&None).expect("sound");
        assert!(RequestHeader::read(Some(&reply), &payload).is_err());
        let asked = RequestHeader { timeout: None, is_without_reply: false };
        let (request, payload) = asked.write(&None).expect("sound");
        assert!(Answered::read(Some(&request), &payload).is_err());
    }
}
