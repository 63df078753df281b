//! A request and its answer: 128 bytes, of which two mean something.

use crate::error::MeasureError;

/// Length of a request and of an answer.
pub(super) const MESSAGE_BYTES: usize = 128;

/// The bytes of a message.
pub(super) type Bytes = [u8; MESSAGE_BYTES];

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A call before the window.
    Ramp,
    /// A call in it.
    Window,
    /// The worker that takes it ends, unanswered.
    Stop,
}

/// What the two bytes say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    /// Number of the caller.
    pub(super) caller: u8,
    /// What it is for.
    pub(super) purpose: Purpose,
}

impl Message {
    /// The message as it travels.
    pub(super) fn bytes(self) -> Bytes {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = self.caller;
        bytes[1] = self.purpose as u8;
        bytes
    }

    /// Reads what travelled.
    pub(super) fn read(bytes: &Bytes) -> Result<Self, MeasureError> {
        let purposes = [Purpose::Ramp, Purpose::Window, Purpose::Stop];
        let purpose = purposes.into_iter().find(|purpose| *purpose as u8 == bytes[1]);
        let purpose = purpose.ok_or_else(|| {
            MeasureError::Protocol(format!("a request with the purpose {}", bytes[1]))
        })?;
        Ok(Self { caller: bytes[0], purpose })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travelled_is_what_was_sent() {
        for purpose in [Purpose::Ramp, Purpose::Window, Purpose::Stop] {
            let sent = Message { caller: 63, purpose };
            assert_eq!(Message::read(&sent.bytes()).expect("a message"), sent);
        }
        assert!(Message::read(&[9; MESSAGE_BYTES]).is_err());
    }
}
