//! Fields that hold a view: what a program hands over and gets is a `BVIEWFLD`, the name of the view and the address of a
//! struct; a buffer holds the name and the struct itself.
//!
//! Values of fields are read and given out through it. A view that the files of views do not have is `BBADVIEW`.

use std::cell::Cell;
use std::ffi::{c_char, c_uint};

use pollux_xatmi::ubf::{FieldType, UbfError, VIEW_NAME_BYTES, Value};
use pollux_xatmi::view::{self, VIEW_NAME_BYTES_MAX, ViewError};

use crate::fault::UbfFault;
use crate::{caller, memory};

/// `BVIEWFLD` of `ubf.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ViewField {
    flags: c_uint,
    name: [u8; VIEW_NAME_BYTES_MAX + 1],
    data: *mut c_char,
}

thread_local! {
    /// What was lent out last: a program looks at it before it asks for the next.
    static LENT: Cell<ViewField> = const { Cell::new(ViewField::NONE) };
}

impl From<ViewError> for UbfFault {
    fn from(error: ViewError) -> Self {
        match error {
            ViewError::Fields(error) => Self::Ubf(error),
            error => Self::Other(error.number(), error.to_string()),
        }
    }
}

impl ViewField {
    const NONE: Self =
        Self { flags: 0, name: [0; VIEW_NAME_BYTES_MAX + 1], data: std::ptr::null_mut() };

    /// One for what a buffer holds, with its struct at `data`.
    pub(crate) fn of(stored: &[u8], data: *mut c_char) -> Self {
        let mut name = [0; VIEW_NAME_BYTES_MAX + 1];
        for (to, from) in name.iter_mut().zip(&stored[..VIEW_NAME_BYTES.min(stored.len())]) {
            *to = *from;
        }
        // Whatever a buffer of another process holds, it is a text.
        name[VIEW_NAME_BYTES_MAX] = 0;
        Self { flags: 0, name, data }
    }
}

/// What a buffer holds for the `BVIEWFLD` at `pointer`; without a name it is an empty one.
///
/// # Safety
/// A sound `pointer` is that of a `BVIEWFLD` whose struct no other thread writes meanwhile.
pub(crate) unsafe fn stored(pointer: *const c_char) -> Result<Vec<u8>, UbfFault> {
    let invalid = |reason| UbfFault::from(UbfError::Invalid { reason });
    // SAFETY: the caller's promise.
    let given = unsafe { caller::read(pointer.cast::<ViewField>()) };
    let given = given.ok_or_else(|| invalid("the pointer to the BVIEWFLD is null"))?;
    let mut bytes = vec![0; VIEW_NAME_BYTES];
    let name = given.name.split(|byte| *byte == 0).next().unwrap_or_default();
    if name.is_empty() {
        return Ok(bytes);
    }
    let text = str::from_utf8(name).map_err(|_| invalid("the name of the view is not text"))?;
    let view = view::of_process(text)?;
    if !caller::is_sound(given.data) {
        return Err(invalid("the BVIEWFLD has no struct"));
    }
    if memory::capacity(given.data).is_some_and(|room| room < view.size) {
        return Err(invalid("the buffer of tpalloc is smaller than the struct"));
    }
    bytes[..name.len()].copy_from_slice(name);
    // SAFETY: the caller promises a struct of that view.
    bytes.extend_from_slice(unsafe { caller::bytes(given.data, view.size) });
    Ok(bytes)
}

/// Copies a value to the `BVIEWFLD` at `to`, whose struct is large enough; the bytes of the struct.
///
/// # Safety
/// A sound `to` is that of a `BVIEWFLD` that no other thread uses, with room for a struct of the view that is there.
pub(crate) unsafe fn give(value: &[u8], to: *mut c_char) -> Result<usize, UbfFault> {
    let invalid = |reason| UbfFault::from(UbfError::Invalid { reason });
    // SAFETY: the caller's promise.
    let there = unsafe { caller::read(to.cast::<ViewField>()) };
    let there = there.ok_or_else(|| invalid("no memory for the value"))?;
    let data = value.get(VIEW_NAME_BYTES..).unwrap_or_default();
    if !data.is_empty() && !caller::is_sound(there.data) {
        return Err(invalid("the BVIEWFLD has no memory for the struct"));
    }
    if let Some(room) = memory::capacity(there.data).filter(|room| *room < data.len()) {
        return Err(UbfError::NoSpace { needed: data.len(), room }.into());
    }
    // SAFETY: the caller promises room for the struct.
    unsafe { caller::bytes_mut(there.data, data.len()) }.copy_from_slice(data);
    // SAFETY: the caller promises a BVIEWFLD.
    unsafe { caller::write(to.cast(), ViewField::of(value, there.data)) };
    Ok(data.len())
}

/// Writes a `BVIEWFLD` to `to` and the struct right behind it; the bytes of the struct.
///
/// # Safety
/// `to` has space for `room` bytes, or for both where `room` is more than they need, and no other thread uses it.
pub(crate) unsafe fn give_whole(
    value: &[u8],
    to: *mut c_char,
    room: usize,
) -> Result<usize, UbfFault> {
    let head = size_of::<ViewField>();
    let data = value.get(VIEW_NAME_BYTES..).unwrap_or_default();
    let needed = head + data.len();
    if needed > room {
        return Err(UbfError::NoSpace { needed, room }.into());
    }
    let place = to.wrapping_add(head);
    // SAFETY: the caller promises room for both.
    unsafe { caller::bytes_mut(place, data.len()) }.copy_from_slice(data);
    // SAFETY: the caller promises room for a BVIEWFLD.
    unsafe { caller::write(to.cast(), ViewField::of(value, place)) };
    Ok(data.len())
}

/// Where a value stands for a program: in the buffer itself, or, for a view, in a `BVIEWFLD` of the thread that leads there;
/// and how long it is.
pub(crate) fn lent(field_type: FieldType, found: &[u8]) -> (*mut c_char, usize) {
    if field_type != FieldType::View {
        return (found.as_ptr().cast_mut().cast(), found.len());
    }
    let data = found.get(VIEW_NAME_BYTES..).unwrap_or_default();
    let field = ViewField::of(found, data.as_ptr().cast_mut().cast());
    let place = LENT.with(|lent| {
        lent.set(field);
        lent.as_ptr()
    });
    (place.cast(), data.len())
}

/// The length of a value as a program sees it.
pub(crate) fn seen_len(value: &Value<'_>) -> usize {
    match value {
        Value::View(bytes) => bytes.len().saturating_sub(VIEW_NAME_BYTES),
        other => other.raw_len(),
    }
}
