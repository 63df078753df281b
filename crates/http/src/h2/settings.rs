//! SETTINGS (RFC 9113 6.5): what a peer has said, and what this end says.

use crate::h2::error::Fault;
use crate::h2::frame::{self, PAYLOAD_BYTES_MAX};
use crate::h2::output::Output;
use crate::h2::window::{WINDOW_INITIAL, WINDOW_MAX};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
const NO_RFC7540_PRIORITIES: u16 = 9;

/// Which end of a connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Answers.
    Server,
    /// Asks.
    Client,
}

/// Largest number of settings in a frame: there are eight, and none has a reason to stand there four times.
pub(crate) const ENTRIES_MAX: usize = 32;

/// What the peer allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSettings {
    pub(crate) table_bytes: usize,
    /// The least that the last frame has said, or that stood before it.
    pub(crate) table_bytes_least: usize,
    pub(crate) streams_max: u32,
    pub(crate) window: i32,
    pub(crate) frame_bytes: usize,
    pub(crate) has_connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            table_bytes: 4096,
            table_bytes_least: 4096,
            streams_max: u32::MAX,
            window: WINDOW_INITIAL,
            frame_bytes: PAYLOAD_BYTES_MAX,
            has_connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Takes the settings of one frame in their order.
    pub(crate) fn take(&mut self, payload: &[u8], of: Role) -> Result<(), Fault> {
        if payload.len() / 6 > ENTRIES_MAX {
            return Err(Fault::calm("more settings in a frame than there are"));
        }
        self.table_bytes_least = self.table_bytes;
        for entry in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([entry[0], entry[1]]);
            let value = frame::number(&entry[2..]);
            let wrong = |reason| Err(Fault::protocol(reason, "RFC 9113 6.5.2"));
            match id {
                HEADER_TABLE_SIZE => {
                    self.table_bytes = value as usize;
                    self.table_bytes_least = self.table_bytes_least.min(self.table_bytes);
                }
                ENABLE_PUSH if value > 1 => return wrong("ENABLE_PUSH is neither 0 nor 1"),
                ENABLE_PUSH if value == 1 && of == Role::Server => {
                    return wrong("a server enables push");
                }
                MAX_CONCURRENT_STREAMS => self.streams_max = value,
                INITIAL_WINDOW_SIZE => match i32::try_from(value) {
                    Ok(window) => self.window = window,
                    Err(_) => return Err(Fault::window("the initial window is too large")),
                },
                MAX_FRAME_SIZE => match value as usize {
                    size @ PAYLOAD_BYTES_MAX..=0xff_ffff => self.frame_bytes = size,
                    _ => return wrong("MAX_FRAME_SIZE is not within its bounds"),
                },
                ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return wrong("ENABLE_CONNECT_PROTOCOL is neither 0 nor 1");
                }
                ENABLE_CONNECT_PROTOCOL if self.has_connect_protocol && value == 0 => {
                    return wrong("ENABLE_CONNECT_PROTOCOL is taken back");
                }
                ENABLE_CONNECT_PROTOCOL => self.has_connect_protocol = value == 1,
                NO_RFC7540_PRIORITIES if value > 1 => {
                    return wrong("NO_RFC7540_PRIORITIES is neither 0 nor 1");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What this end allows its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Streams that the peer may have open at a time; a client announces none.
    pub streams_max: u32,
    /// Bytes of a body that may be under way on one stream before they are taken. At most 2^31 - 1.
    pub stream_window: u32,
    /// The same of all streams together; at least 65,535, with which every connection begins.
    pub connection_window: u32,
    /// Bytes of a head that are taken, as they are announced.
    pub head_bytes: u32,
    /// Requests after which a server sends the client to another connection.
    pub requests_max: u32,
    /// Whether a client may ask for WebSocket on a stream (RFC 8441).
    pub has_connect_protocol: bool,
}

impl Settings {
    /// Of a server: 100 streams, 64 KiB for each body, 1 MiB for all; after 10,000 requests another connection, so that
    /// clients spread over what serves them by then.
    pub const DEFAULT: Self = Self {
        streams_max: 100,
        stream_window: 65_535,
        connection_window: 1 << 20,
        head_bytes: 40 * 1024,
        requests_max: 10_000,
        has_connect_protocol: false,
    };

    /// Writes the first frame.
    pub(crate) fn write(&self, out: &mut Output<'_>, role: Role) {
        let mut payload = [0; 6 * 6];
        let mut len = 0;
        let mut add = |id: u16, value: u32| {
            payload[len..len + 2].copy_from_slice(&id.to_be_bytes());
            payload[len + 2..len + 6].copy_from_slice(&value.to_be_bytes());
            len += 6;
        };
        match role {
            Role::Server => {
                add(MAX_CONCURRENT_STREAMS, self.streams_max);
                add(NO_RFC7540_PRIORITIES, 1);
                if self.has_connect_protocol {
                    add(ENABLE_CONNECT_PROTOCOL, 1);
                }
            }
            Role::Client => add(ENABLE_PUSH, 0),
        }
        if self.stream_window != WINDOW_INITIAL.unsigned_abs() {
            add(INITIAL_WINDOW_SIZE, self.stream_window.min(WINDOW_MAX.unsigned_abs()));
        }
        add(MAX_HEADER_LIST_SIZE, self.head_bytes);
        frame::write(out, frame::SETTINGS, 0, 0, &payload[..len]);
    }
}

impl Default for Settings {
    /// [`Settings::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::error::ErrorCode;

    fn take(of: Role, entries: &[(u16, u32)]) -> Result<PeerSettings, ErrorCode> {
        let bytes =
            |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let payload: Vec<u8> = entries.iter().flat_map(bytes).collect();
        let mut settings = PeerSettings::default();
        settings.take(&payload, of).map(|()| settings).map_err(|fault| fault.code)
    }

    #[test]
    fn values_are_taken_in_order_and_unknown_ones_ignored() {
        let settings = take(Role::Client, &[(4, 1), (4, 70_000), (0xabcd, 5), (3, 0), (7, 9)]);
        let settings = settings.expect("sound");
        assert_eq!((settings.window, settings.streams_max), (70_000, 0));
    }

    #[test]
    fn wrong_values_end_the_connection() {
        let protocol = ErrorCode::PROTOCOL_ERROR;
        let window = ErrorCode::FLOW_CONTROL_ERROR;
        for (of, entries, code) in [
            (Role::Client, &[(2, 2)][..], protocol),
            (Role::Server, &[(2, 1)], protocol),
            (Role::Client, &[(4, 0x8000_0000)], window),
            (Role::Client, &[(5, 16_383)], protocol),
            (Role::Client, &[(5, 0x0100_0000)], protocol),
            (Role::Server, &[(8, 2)], protocol),
            (Role::Server, &[(8, 1), (8, 0)], protocol),
            (Role::Client, &[(9, 2)], protocol),
            (Role::Client, &[(1, 1); 33], ErrorCode::ENHANCE_YOUR_CALM),
        ] {
            assert_eq!(take(of, entries).err(), Some(code), "{entries:?}");
        }
        assert!(
            take(Role::Client, &[(2, 1), (5, 16_384), (5, 0xff_ffff), (4, 0x7fff_ffff)]).is_ok()
        );
    }
}
