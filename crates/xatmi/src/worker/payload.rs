//! The buffer that a request arrives in, used again from call to call.
//!
//! The dispatch fills it from the message or from a memfd, and gets it back with the reply. A
//! request of the same type and size as the last reply's buffer allocates nothing.

use std::io;

use crate::buffer::{Buffer, BufferError, BufferType};
use crate::large;
use crate::ubf::UbfMut;
use crate::wire::{Body, Payload};

/// Buffers larger than this are given back to the allocator instead of being cleared and kept.
const KEPT_LEN_BYTES_MAX: usize = 4 << 20;

/// The buffer that is used again, when there is one.
#[derive(Debug, Default)]
pub(super) struct Spare(Option<Buffer>);

/// Why a request's data could not be had.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The bytes are not of the type that they claim to be.
    Content,
    /// The memfd could not be read: its sender is dead or has let go of it.
    Gone,
}

impl Spare {
    /// Keeps `buffer` for a later request.
    pub(super) fn keep(&mut self, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer
            && buffer.size() <= KEPT_LEN_BYTES_MAX
        {
            self.0 = Some(buffer);
        }
    }

    /// The data of a request; `None` when it came without.
    ///
    /// # Errors
    /// When the data can't be had.
    pub(super) fn fill(&mut self, payload: &Payload<'_>) -> Result<Option<Buffer>, Unusable> {
        let Some(kind) = payload.buffer_type else { return Ok(None) };
        let size = payload.buffer_size_bytes.max(payload.len_bytes()) as usize;
        match payload.body {
            Body::Inline(bytes) => self.filled(kind, size, bytes.len(), |room| {
                room.copy_from_slice(bytes);
                Ok(())
            }),
            // Its length is only claimed until then.
            Body::Large(reference) if !large::is_there(&reference) => Err(Unusable::Gone),
            Body::Large(reference) => {
                let len = reference.len_bytes as usize;
                self.filled(kind, size, len, |room| large::fetch(&reference, room))
            }
        }
        .map(Some)
    }

    /// A buffer whose first `len` bytes `fetch` writes.
    fn filled(
        &mut self,
        kind: BufferType,
        size: usize,
        len: usize,
        fetch: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Result<Buffer, Unusable> {
        let reused = self.0.take_if(|spare| {
            spare.buffer_type() == kind && spare.size() == size && spare.subtype().is_empty()
        });
        let is_new = reused.is_none();
        let mut buffer = match reused {
            Some(buffer) => buffer,
            None => Buffer::new(kind, "", size).map_err(|_| Unusable::Content)?,
        };
        let room = buffer.as_bytes_mut().get_mut(..len).ok_or(Unusable::Content)?;
        fetch(room).map_err(|_| Unusable::Gone)?;
        let checked = match is_new {
            true => buffer.received(len).map(|()| buffer),
            false => refilled(buffer, len),
        };
        checked.map_err(|_| Unusable::Content)
    }
}

/// Writes over what follows, so that no service sees what was another caller's, and looks at the content.
fn refilled(mut buffer: Buffer, len: usize) -> Result<Buffer, BufferError> {
    buffer.as_bytes_mut()[len..].fill(0);
    match buffer.buffer_type() {
        BufferType::Ubf => {
            UbfMut::adopt(buffer.as_bytes_mut())?;
        }
        BufferType::String | BufferType::Json if buffer.used_len(0)? != len => {
            return Err(BufferError::NoNul { name: buffer.buffer_type().name() });
        }
        _ => {}
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(kind: BufferType, size: u64, bytes: &[u8]) -> Payload<'_> {
        let body = Body::Inline(bytes);
        Payload { buffer_type: Some(kind), buffer_size_bytes: size, body }
    }

    #[test]
    fn memory_is_used_again_and_holds_nothing_of_before() {
        let mut spare = Spare::default();
        let secret = payload(BufferType::Carray, 64, b"a secret of the last caller");
        let first = spare.fill(&secret).expect("good").expect("a buffer");
        let at = first.as_bytes().as_ptr();
        spare.keep(Some(first));
        let second = spare.fill(&payload(BufferType::Carray, 64, b"x")).expect("good");
        let second = second.expect("a buffer");
        assert_eq!(second.as_bytes().as_ptr(), at);
        assert_eq!(second.as_bytes()[0], b'x');
        assert!(second.as_bytes()[1..].iter().all(|byte| *byte == 0));
        spare.keep(Some(second));
        let other = spare.fill(&payload(BufferType::String, 64, b"y\0")).expect("good");
        assert_eq!(other.expect("a buffer").buffer_type(), BufferType::String);
    }

    #[test]
    fn content_that_is_not_of_its_type_is_refused_in_new_and_used_memory() {
        let mut spare = Spare::default();
        for _ in 0..2 {
            let text = payload(BufferType::String, 8, b"no nul");
            assert!(matches!(spare.fill(&text), Err(Unusable::Content)));
            let fields = payload(BufferType::Ubf, 1024, &[7; 100]);
            assert!(matches!(spare.fill(&fields), Err(Unusable::Content)));
            spare.keep(Some(Buffer::alloc("STRING", "", 8).expect("memory")));
            let text = payload(BufferType::String, 8, b"a\0b\0");
            assert!(matches!(spare.fill(&text), Err(Unusable::Content)));
            spare.keep(Some(Buffer::alloc("UBF", "", 1024).expect("memory")));
        }
    }

    #[test]
    fn a_memfd_that_is_gone_is_told_apart() {
        let reference = crate::wire::LargeRef { pid: 1, fd: 9999, inode: 1, len_bytes: 5 };
        let body = Body::Large(reference);
        let payload = Payload { buffer_type: Some(BufferType::Carray), buffer_size_bytes: 5, body };
        assert!(matches!(Spare::default().fill(&payload), Err(Unusable::Gone)));
        assert!(matches!(Spare::default().fill(&Payload::NONE), Ok(None)));
    }
}
