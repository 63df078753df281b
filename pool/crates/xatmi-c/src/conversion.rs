//! Buffers that a server has converted for its functions: `-xFUNCTION:JSON2UBF` and `-xFUNCTION:UBF2JSON` of its command line.
//!
//! The function gets what it was written for whatever its caller sends, and the caller gets a reply of the kind that it sent. A
//! buffer of another type is passed as it is; one that cannot be converted is TPESVCERR at the caller.

use pollux_xatmi::buffer::{Buffer, BufferType};
use pollux_xatmi::ubf::{UbfMut, UbfRef};
use pollux_xatmi::worker::{Conversion, Done, Incoming};

use crate::buffers::{fields_of_json, json_of_fields};
use crate::fault::Fault;

/// Bytes beside those of the fields that a converted buffer has: a function may add some.
const ROOM_BYTES: usize = 1024;

/// Converts a request for a function; whether the reply is to be converted back.
///
/// # Errors
/// The text is not JSON with names of fields, or fields have no text.
pub(crate) fn to_function(incoming: &mut Incoming, conversion: Conversion) -> Result<bool, Fault> {
    let (from, _) = kinds(conversion);
    match incoming.buffer.take() {
        Some(buffer) if buffer.buffer_type() == from => {
            let len = buffer.used_len(incoming.len_bytes)?;
            let made = converted(&buffer, len, conversion)?;
            incoming.len_bytes = made.used_len(0)?;
            incoming.buffer = Some(made);
            Ok(true)
        }
        other => {
            incoming.buffer = other;
            Ok(false)
        }
    }
}

/// Converts what a function ended with back, whose request was converted.
pub(crate) fn from_function(done: Done, conversion: Conversion) -> Done {
    let back = match conversion {
        Conversion::JsonToUbf => Conversion::UbfToJson,
        Conversion::UbfToJson => Conversion::JsonToUbf,
    };
    let (from, _) = kinds(back);
    let Done::Return(mut returned) = done else { return done };
    let Some(buffer) = returned.buffer.as_ref().filter(|buffer| buffer.buffer_type() == from)
    else {
        return Done::Return(returned);
    };
    let len = buffer.used_len(returned.len_bytes).map_err(Fault::from);
    match len.and_then(|len| converted(buffer, len, back)) {
        Ok(made) => {
            returned.buffer = Some(made);
            returned.len_bytes = 0;
            Done::Return(returned)
        }
        Err(_) => Done::NoReturn,
    }
}

fn kinds(conversion: Conversion) -> (BufferType, BufferType) {
    match conversion {
        Conversion::JsonToUbf => (BufferType::Json, BufferType::Ubf),
        Conversion::UbfToJson => (BufferType::Ubf, BufferType::Json),
    }
}

/// A new buffer of what stands in the first `len` bytes of another.
fn converted(from: &Buffer, len: usize, conversion: Conversion) -> Result<Buffer, Fault> {
    match conversion {
        Conversion::JsonToUbf => {
            let text = from.as_bytes()[..len].split(|byte| *byte == 0).next().unwrap_or_default();
            let text = str::from_utf8(text).map_err(|_| Fault::invalid("the text is not UTF-8"))?;
            let fields = fields_of_json(text)?;
            let size = fields.fields().used() + ROOM_BYTES;
            let mut made = Buffer::new(BufferType::Ubf, "", size)?;
            UbfMut::open(made.as_bytes_mut())?.copy_from(fields.fields())?;
            Ok(made)
        }
        Conversion::UbfToJson => {
            let text = json_of_fields(UbfRef::open(from.as_bytes())?)?;
            let mut made = Buffer::new(BufferType::Json, "", text.len() + ROOM_BYTES)?;
            made.as_bytes_mut()[..text.len()].copy_from_slice(text.as_bytes());
            Ok(made)
        }
    }
}
