//! Typed buffers as the data of calls, conversations and services: what is sent of a buffer, and
//! the buffer that a reply makes.
//!
//! A buffer that is only sent is copied, as other threads may send it at the same time; one that a
//! reply may go to is borrowed.

use std::ffi::{c_char, c_long};

use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::call_info;
use pollux_xatmi::client::{Arrived, Arriving, CallFlags, Outgoing};
use pollux_xatmi::error::{Code, Error};
use pollux_xatmi::ubf::UbfMut;
use pollux_xatmi::view;

use crate::caller;
use crate::fault::{self, Fault};
use crate::memory::{self, Borrowed, Held, no_buffer, size};

/// What of a buffer is sent when the caller says `len`.
pub(crate) fn outgoing(buffer: &Buffer, len: c_long) -> Result<Outgoing<'_>, Fault> {
    let used = buffer.used_len(sent(buffer.buffer_type(), len)?)?;
    Ok(Outgoing {
        buffer_type: Some(buffer.buffer_type()),
        buffer_size_bytes: buffer.size(),
        has_info: false,
        bytes: &buffer.as_bytes()[..used],
    })
}

/// What a call sends: a copy of a buffer, which stays the program's meanwhile.
#[derive(Debug)]
pub(crate) struct Copied {
    buffer_type: Option<BufferType>,
    buffer_size_bytes: usize,
    has_info: bool,
    bytes: Vec<u8>,
}

impl Copied {
    /// What of the buffer at `pointer` is sent when the caller says `len`; nothing for NULL.
    pub(crate) fn of(pointer: *const c_char, len: c_long) -> Result<Self, Fault> {
        if pointer.is_null() {
            let bytes = Vec::new();
            return Ok(Self { buffer_type: None, buffer_size_bytes: 0, has_info: false, bytes });
        }
        let copied = memory::look(pointer, |held| {
            let Outgoing { buffer_type, buffer_size_bytes, bytes: sent, .. } =
                outgoing(&held.buffer, len)?;
            let mut bytes = Vec::new();
            let no_memory = |_| Fault::new(Code::Os.number(), "no memory to send the buffer");
            bytes.try_reserve_exact(sent.len()).map_err(no_memory)?;
            bytes.extend_from_slice(sent);
            Ok(Self { buffer_type, buffer_size_bytes, has_info: false, bytes })
        });
        copied.ok_or_else(no_buffer)?
    }

    /// The same with what travels beside the data of the buffer.
    pub(crate) fn beside_info(pointer: *const c_char, len: c_long) -> Result<Self, Fault> {
        let mut copied = Self::of(pointer, len)?;
        let bytes = memory::look(pointer, |held| {
            held.call_info.as_deref().map(|info| call_info::joined(&copied.bytes, info))
        });
        if let Some(bytes) = bytes.flatten() {
            copied.has_info = true;
            copied.bytes = bytes;
        }
        Ok(copied)
    }

    pub(crate) fn outgoing(&self) -> Outgoing<'_> {
        let Self { buffer_type, buffer_size_bytes, has_info, ref bytes } = *self;
        Outgoing { buffer_type, buffer_size_bytes, has_info, bytes }
    }
}

/// The length that counts: only bytes without a length of their own go by the caller's.
pub(crate) fn sent(buffer_type: BufferType, len: c_long) -> Result<usize, Fault> {
    match buffer_type {
        BufferType::Carray | BufferType::XOctet => size(len),
        BufferType::Ubf
        | BufferType::String
        | BufferType::Json
        | BufferType::View
        | BufferType::XCType
        | BufferType::XCommon
        | BufferType::Init => Ok(0),
    }
}

/// Where a reply goes: the caller's buffer when it fits, else a new one in its place.
#[derive(Debug)]
pub(crate) struct Landing {
    borrowed: Option<Borrowed>,
    made: Option<Buffer>,
    /// What came beside its data.
    pub(crate) call_info: Option<Box<[u8]>>,
    /// TPNOCHANGE: the only type that the reply may have.
    only: Option<BufferType>,
}

impl Landing {
    /// `borrowed` is used again when the reply fits; with TPNOCHANGE no other type may come.
    pub(crate) fn at(borrowed: Option<Borrowed>, flags: CallFlags) -> Self {
        let only = borrowed.as_ref().and_then(|borrowed| Self::only(borrowed, flags));
        Self { borrowed, made: None, call_info: None, only }
    }

    /// A new place, which takes that of the request when the reply is there.
    pub(crate) fn beside(request: &Borrowed, flags: CallFlags) -> Self {
        Self { borrowed: None, made: None, call_info: None, only: Self::only(request, flags) }
    }

    fn only(there: &Borrowed, flags: CallFlags) -> Option<BufferType> {
        flags.contains(CallFlags::NO_CHANGE).then(|| there.buffer().buffer_type())
    }

    /// Room for a reply that is about to be delivered.
    pub(crate) fn room(&mut self, arriving: &Arriving) -> Result<&mut [u8], Error> {
        let len = arriving.len_bytes;
        // Without a buffer nothing is written.
        let Some(buffer_type) = arriving.buffer_type else { return Ok(&mut []) };
        if let Some(only) = self.only.filter(|only| *only != buffer_type) {
            let came = buffer_type.name();
            let only = only.name();
            let detail = format!("the reply is {came}, and TPNOCHANGE allows only {only}");
            return Err(Error::new(Code::OutputType, detail));
        }
        let wanted = arriving.buffer_size_bytes.max(len).max(1);
        let fits = |borrowed: &Borrowed| {
            borrowed.buffer().buffer_type() == buffer_type && borrowed.buffer().size() >= wanted
        };
        if !self.borrowed.as_ref().is_some_and(fits) {
            let made = Buffer::new(buffer_type, "", wanted);
            self.made = Some(made.map_err(|error| Error::new(Code::Os, error.to_string()))?);
        }
        let place = self.place().expect("it fits, or was made");
        Ok(&mut place.as_bytes_mut()[..len])
    }

    /// Checks what was written, `len` bytes of unknown origin, and gives the length to report.
    pub(crate) fn landed(&mut self, len: usize) -> Result<c_long, Fault> {
        let wrong = |detail: String| Fault::new(Code::ServiceError.number(), detail);
        let place = self.place().ok_or_else(|| wrong("the reply has no buffer".to_owned()))?;
        if let Err(error) = place.received(len) {
            // The caller keeps a buffer that it can use: an empty one.
            place.as_bytes_mut().fill(0);
            if place.buffer_type() == BufferType::Ubf {
                let _ = UbfMut::init(place.as_bytes_mut());
            }
            return Err(wrong(format!("the reply is damaged: {error}")));
        }
        Ok(len_for_caller(place, len))
    }

    /// Gives the buffer out, in place of the one that was borrowed and of `replaced`.
    pub(crate) fn give_out(self, replaced: Option<Borrowed>) -> *mut c_char {
        let Some(buffer) = self.made else {
            let Some(mut held) = self.borrowed.map(Borrowed::into_held) else {
                return std::ptr::null_mut();
            };
            held.call_info = self.call_info.or(held.call_info);
            return memory::give_out(held);
        };
        let mut is_request = false;
        // What was said of the buffer stays where nothing else comes.
        let mut call_info = self.call_info;
        for mut held in [self.borrowed, replaced].into_iter().flatten().map(Borrowed::into_held) {
            is_request |= held.is_request;
            call_info = call_info.or(held.call_info.take());
            memory::free(held);
        }
        memory::give_out(Held { buffer, is_request, call_info })
    }

    fn place(&mut self) -> Option<&mut Buffer> {
        match &mut self.made {
            Some(made) => Some(made),
            None => self.borrowed.as_mut().map(Borrowed::buffer_mut),
        }
    }
}

/// What `*olen` becomes, and `len` of a service: the buffer's size for fields, the struct's for a view, else what was
/// sent.
pub(crate) fn len_for_caller(buffer: &Buffer, len: usize) -> c_long {
    let len = match buffer.buffer_type() {
        BufferType::Ubf => buffer.size(),
        kind if kind.is_view() => view::of_process(buffer.subtype()).map_or(len, |view| view.size),
        _ => len,
    };
    c_long::try_from(len).unwrap_or(c_long::MAX)
}

/// The name of a service that is called; TPENOENT when the bytes are not text.
///
/// # Safety
/// A sound `name` points to a text that stays as long as the result is used.
pub(crate) unsafe fn service_name<'a>(name: *const c_char) -> Result<&'a str, Fault> {
    // SAFETY: the caller's promise.
    let name = unsafe { caller::text(name) };
    let name = name.ok_or_else(|| Fault::invalid("the pointer to the service's name is null"))?;
    name.to_str().map_err(|_| {
        let detail = format!("no worker offers {}: its name is not text", name.to_string_lossy());
        Fault::new(Code::NoEntry.number(), detail)
    })
}

/// Where the caller wants a reply.
pub(crate) struct Wanted {
    data: *mut *mut c_char,
    len: *mut c_long,
    /// What `*data` is now.
    pointer: *mut c_char,
}

impl Wanted {
    /// # Safety
    /// Sound `data` and `len` point to a pointer and a long that no other thread uses during the
    /// call.
    pub(crate) unsafe fn at(data: *mut *mut c_char, len: *mut c_long) -> Result<Self, Fault> {
        if !caller::is_sound(len) {
            return Err(Fault::invalid("no memory for the length of the reply"));
        }
        // SAFETY: the caller's promise.
        unsafe { Self::at_without_length(data, len) }
    }

    /// The same where the caller may not ask for the length, by NULL.
    ///
    /// # Safety
    /// As for [`Wanted::at`].
    pub(crate) unsafe fn at_without_length(
        data: *mut *mut c_char,
        len: *mut c_long,
    ) -> Result<Self, Fault> {
        // SAFETY: the caller's promise.
        match unsafe { caller::read(data) } {
            Some(pointer) => Ok(Self { data, len, pointer }),
            None => Err(Fault::invalid("no memory for the pointer to the reply")),
        }
    }

    /// What the caller has there now.
    pub(crate) fn pointer(&self) -> *mut c_char {
        self.pointer
    }

    /// Gives the caller what landed, in place of what was there and of `replaced`.
    ///
    /// # Safety
    /// As for [`Wanted::at`].
    pub(crate) unsafe fn give_payload(
        self,
        arriving: &Arriving,
        mut landing: Landing,
        replaced: Option<Borrowed>,
    ) -> Result<(), Fault> {
        if arriving.buffer_type.is_some() {
            let reported = landing.landed(arriving.len_bytes)?;
            // SAFETY: the caller's promise.
            unsafe { caller::write(self.data, landing.give_out(replaced)) };
            // SAFETY: the caller's promise.
            unsafe { caller::write(self.len, reported) };
        } else {
            // Whatever the caller had stays where it is.
            // SAFETY: the caller's promise.
            unsafe { caller::write(self.len, 0) };
        }
        Ok(())
    }

    /// Gives the caller a reply that landed; TPESVCFAIL comes with one too.
    ///
    /// # Safety
    /// As for [`Wanted::at`].
    pub(crate) unsafe fn give(
        self,
        arrived: &Arrived,
        landing: Landing,
        replaced: Option<Borrowed>,
    ) -> Result<(), Fault> {
        fault::set_urcode(arrived.urcode);
        // SAFETY: the caller's promise.
        unsafe { self.give_payload(&arrived.payload, landing, replaced) }?;
        if arrived.is_failure {
            let detail = format!("the service returned TPFAIL with {}", arrived.urcode);
            return Err(Fault::new(Code::ServiceFailed.number(), detail));
        }
        Ok(())
    }
}
