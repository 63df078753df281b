//! What a program says of a buffer beside its data: `tpsetcallinfo`, `tpgetcallinfo`.
//!
//! The fields are kept with the buffer (`memory.rs`) and travel with requests and replies (`pollux_xatmi::call_info`), not in
//! conversations, events and unsolicited messages, and not over a bridge.

use std::ffi::{c_char, c_int, c_long};

use pollux_xatmi::buffer::BufferType;
use pollux_xatmi::client::{Arriving, CallFlags};
use pollux_xatmi::error::Code;

use crate::caller;
use crate::fault::{self, Fault};
use crate::memory::{self, Borrowed, no_buffer};
use crate::messages::{Landing, outgoing};

/// Room for more fields in a buffer that is made for a copy.
const ROOM_BYTES: usize = 1024;
/// `TPCI_NOEOFERR`.
const MAY_BE_MISSING: c_long = 0x1;

/// Keeps a copy of the fields `info` with the buffer `message`, in place of what was there.
#[unsafe(no_mangle)]
pub extern "C" fn tpsetcallinfo(
    message: *const c_char,
    info: *const c_char,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        if flags != 0 {
            return Err(Fault::invalid(format!("flags {flags:#x}: expected 0")));
        }
        let fields = memory::look(info, |held| {
            if held.buffer.buffer_type() != BufferType::Ubf {
                let kind = held.buffer.buffer_type().name();
                return Err(Fault::invalid(format!("the call info is {kind}: expected fields")));
            }
            Ok(Box::from(outgoing(&held.buffer, 0)?.bytes))
        });
        let fields: Box<[u8]> = fields.ok_or_else(no_buffer)??;
        if memory::change(message, |held| held.call_info = Some(fields)) {
            Ok(0)
        } else {
            Err(no_buffer())
        }
    })
}

/// Copies what is kept with the buffer `message` to the buffer `*info`, which is another one where it is too small or not
/// one of fields, and a new one for NULL. 0, and with TPCI_NOEOFERR 1, or 0 where nothing is kept.
///
/// # Safety
/// A sound `info` is that of a pointer that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpgetcallinfo(
    message: *const c_char,
    info: *mut *mut c_char,
    flags: c_long,
) -> c_int {
    fault::atmi(-1, || {
        if flags & !MAY_BE_MISSING != 0 {
            return Err(Fault::invalid(format!("flags {flags:#x}: expected 0 or TPCI_NOEOFERR")));
        }
        let is_asking = flags == MAY_BE_MISSING;
        // SAFETY: the caller's promise.
        let there = unsafe { caller::read(info) };
        let there =
            there.ok_or_else(|| Fault::invalid("no memory for the pointer to the fields"))?;
        let kept = memory::look(message, |held| held.call_info.clone()).ok_or_else(no_buffer)?;
        if !there.is_null() {
            memory::look(there, |_| ()).ok_or_else(no_buffer)?;
        }
        let Some(kept) = kept else {
            if is_asking {
                return Ok(0);
            }
            let detail =
                "nothing was said of the buffer by tpsetcallinfo, here or where it came from";
            return Err(Fault::new(Code::System.number(), detail));
        };
        let mut landing = Landing::at(Borrowed::from(there)?, CallFlags::NONE);
        let len_bytes = kept.len();
        let buffer_type = Some(BufferType::Ubf);
        let buffer_size_bytes = len_bytes + ROOM_BYTES;
        let coming = Arriving { buffer_type, buffer_size_bytes, len_bytes };
        landing.room(&coming)?.copy_from_slice(&kept);
        landing.landed(len_bytes)?;
        // SAFETY: the caller's promise.
        unsafe { caller::write(info, landing.give_out(None)) };
        Ok(c_int::from(is_asking))
    })
}
