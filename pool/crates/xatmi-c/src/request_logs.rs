//! The log file of a request that travels in its buffer: `tplogsetreqfile`, `tploggetbufreqfile`, `tplogdelbufreqfile`.
//!
//! C programs call it. The name stands in the field EX_NREQLOGFILE of a buffer of fields. Every client of a service names
//! it, so POLLUX_REQUEST_LOG_DIR is the folder that such a file has to lie in; without it any file will do, as in Enduro/X.

use std::ffi::{OsStr, c_char, c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pollux_xatmi::buffer::BufferType;
use pollux_xatmi::error::Code;
use pollux_xatmi::ubf::{FieldId, FieldType, UbfError, Value};

use crate::calls::tpcall;
use crate::fault::{self, Fault};
use crate::fields::{changing, reading};
use crate::{caller, logging, memory};

/// `EX_NREQLOGFILE` of `Exfields.h`.
const NAME_FIELD: FieldId = FieldId::new(FieldType::String, 402);

/// The folder that files have to lie in which buffers name.
const FOLDER_VARIABLE: &str = "POLLUX_REQUEST_LOG_DIR";

/// What is to be done for a request.
enum Step {
    Log(PathBuf),
    /// A service names the file.
    Ask,
}

fn is_of_fields(data: *const c_char) -> bool {
    memory::look(data, |held| held.buffer.buffer_type() == BufferType::Ubf).unwrap_or(false)
}

/// The name in a buffer of fields.
///
/// # Safety
/// No other thread changes the buffer meanwhile.
unsafe fn name_in(data: *const c_char) -> Result<Option<PathBuf>, Fault> {
    // SAFETY: the caller's promise.
    match unsafe { reading(data) }?.get(NAME_FIELD, 0) {
        Ok(Value::String(name)) => Ok(Some(PathBuf::from(OsStr::from_bytes(name)))),
        Ok(_) | Err(UbfError::NotPresent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lines of this thread go to the file that the buffer names, else to `file`, whose name is put into the buffer, else to
/// the one that `service` names in its reply.
///
/// # Safety
/// A sound `data` is that of a pointer to a buffer that no other thread uses, sound `file` and `service` are those of texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogsetreqfile(
    data: *mut *mut c_char,
    file: *const c_char,
    service: *const c_char,
) -> c_int {
    let step = fault::atmi_if_failed(None, || {
        // SAFETY: the caller promises a pointer.
        let buffer = unsafe { caller::read(data) }.filter(|buffer| is_of_fields(*buffer));
        // SAFETY: the caller promises a text.
        let file = unsafe { caller::text(file) }.filter(|file| !file.is_empty());
        // SAFETY: the caller promises a text.
        let service = unsafe { caller::text(service) }.filter(|service| !service.is_empty());
        if let Some(buffer) = buffer
            // SAFETY: the caller's promise.
            && let Some(name) = unsafe { name_in(buffer) }?
        {
            check_folder(&name)?;
            return Ok(Some(Step::Log(name)));
        }
        match (file, buffer, service) {
            (Some(file), buffer, _) => {
                if let Some(buffer) = buffer {
                    // SAFETY: the caller's promise.
                    let mut fields = unsafe { changing(buffer) }?;
                    fields.change(NAME_FIELD, 0, Value::String(file.to_bytes()))?;
                }
                Ok(Some(Step::Log(PathBuf::from(OsStr::from_bytes(file.to_bytes())))))
            }
            (None, Some(_), Some(_)) => Ok(Some(Step::Ask)),
            _ => Err(Fault::invalid(
                "there is no file: give its name, a buffer of fields with it, or a service for such a buffer",
            )),
        }
    });
    match step {
        None => -1,
        Some(Step::Log(path)) => {
            fault::atmi_if_failed(-1, || logging::begin_request(path).map(|()| 0))
        }
        // SAFETY: the caller's promise.
        Some(Step::Ask) => unsafe { ask(data, service) },
    }
}

/// Calls the service, and takes the file from its reply.
///
/// # Safety
/// As for [`tplogsetreqfile`].
unsafe fn ask(data: *mut *mut c_char, service: *const c_char) -> c_int {
    const TPNOTRAN: c_long = 8;
    // SAFETY: the caller promises a pointer.
    let request = unsafe { caller::read(data) }.unwrap_or(std::ptr::null_mut());
    let mut len: c_long = 0;
    // SAFETY: the caller's promise; the length is a live local.
    if unsafe { tpcall(service, request, 0, data, &raw mut len, TPNOTRAN) } != 0 {
        return -1;
    }
    fault::atmi(-1, || {
        // SAFETY: the caller promises a pointer.
        let reply = unsafe { caller::read(data) }.filter(|buffer| is_of_fields(*buffer));
        let name = match reply {
            // SAFETY: the caller's promise.
            Some(reply) => unsafe { name_in(reply) }?,
            None => None,
        };
        let name = name.ok_or_else(|| Fault::invalid("the reply of the service names no file"))?;
        check_folder(&name)?;
        logging::begin_request(name).map(|()| 0)
    })
}

/// Whether a buffer may name this file.
fn check_folder(file: &Path) -> Result<(), Fault> {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) else {
        return Ok(());
    };
    let whole = |path: &Path| path.canonicalize().ok();
    // The file itself may be new; one that is there may be a link that leads elsewhere.
    let place = whole(file).or_else(|| {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let is_link = file.symlink_metadata().is_ok();
        Some(whole(parent.unwrap_or(Path::new(".")))?.join(file.file_name()?)).filter(|_| !is_link)
    });
    let is_within = match (place, whole(Path::new(&folder))) {
        (Some(place), Some(folder)) => place.starts_with(folder),
        _ => false,
    };
    if is_within {
        return Ok(());
    }
    let file = file.display();
    let folder = Path::new(&folder).display();
    Err(Fault::new(
        Code::Permission.number(),
        format!("the buffer names {file}, which is not in {folder} of {FOLDER_VARIABLE}"),
    ))
}

/// Copies the name in a buffer to `size` bytes, with a NUL.
///
/// # Safety
/// No other thread changes the buffer meanwhile; a sound `file` is that of `size` bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tploggetbufreqfile(
    data: *const c_char,
    file: *mut c_char,
    size: c_int,
) -> c_int {
    fault::atmi_if_failed(-1, || {
        if !is_of_fields(data) {
            return Err(Fault::invalid("it is not a buffer of fields"));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { name_in(data) }?;
        let name =
            name.ok_or_else(|| Fault::new(Code::NoEntry.number(), "no file is named there"))?;
        let name = name.as_os_str().as_bytes();
        let room = usize::try_from(size).unwrap_or(0);
        if caller::is_sound(file) {
            if name.len() >= room {
                let detail = format!("the name needs {} bytes, there are {room}", name.len() + 1);
                return Err(Fault::new(Code::Limit.number(), detail));
            }
            // SAFETY: the caller's promise; the name and its NUL are no more than that.
            let to = unsafe { caller::bytes_mut(file, name.len() + 1) };
            to[..name.len()].copy_from_slice(name);
            to[name.len()] = 0;
        }
        Ok(0)
    })
}

/// Takes the name out of a buffer.
///
/// # Safety
/// No other thread uses the buffer meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tplogdelbufreqfile(data: *mut c_char) -> c_int {
    fault::atmi_if_failed(-1, || {
        if !is_of_fields(data) {
            return Err(Fault::invalid("it is not a buffer of fields"));
        }
        // SAFETY: the caller's promise.
        match unsafe { changing(data) }?.delete(NAME_FIELD, 0) {
            Ok(()) => Ok(0),
            Err(UbfError::NotPresent { .. }) => {
                Err(Fault::new(Code::NoEntry.number(), "no file is named there"))
            }
            Err(error) => Err(error.into()),
        }
    })
}
