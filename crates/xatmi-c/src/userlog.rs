//! `userlog.h`: a line of the program in the log of the day.
//!
//! The file is opened for each line, so that it may be moved away at any time and a new day starts
//! a new one. A line is one write to a file that is opened for appending: lines of different
//! processes do not mix.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_int};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{caller, fault};

/// Appends a line to the log of the day; the bytes that were written, or -1 with errno.
///
/// # Safety
/// A sound `text` is that of a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pollux_userlog(text: *const c_char) -> c_int {
    let mut written = Err(libc::EINVAL);
    fault::quietly(|| {
        // SAFETY: the caller's promise.
        if let Some(text) = unsafe { caller::text(text) } {
            written = append(text).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        }
    });
    match written {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => {
            // SAFETY: it has no conditions.
            let place = unsafe { libc::__errno_location() };
            // SAFETY: the place is the thread's own errno.
            unsafe { *place = errno };
            -1
        }
    }
}

fn append(text: &CStr) -> io::Result<usize> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let local = local_time(now.as_secs())?;
    let (year, month, day) = (local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
    let date = format!("{year:04}{month:02}{day:02}");
    let variable = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let path = match variable("ULOGPFX") {
        Some(mut prefix) => {
            prefix.push(format!(".{month:02}{day:02}{:02}", year.rem_euclid(100)));
            PathBuf::from(prefix)
        }
        None => {
            PathBuf::from(variable("NDRX_ULOG").unwrap_or_default()).join(format!("ULOG.{date}"))
        }
    };
    let (hour, minute, second) = (local.tm_hour, local.tm_min, local.tm_sec);
    let time = format!("{hour:02}{minute:02}{second:02}{:03}", now.subsec_millis());
    let program = env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().display().to_string();
    let mut line = format!("{}:{date}:{time}:{program}:", std::process::id()).into_bytes();
    let text = text.to_bytes();
    line.extend(text.strip_suffix(b"\n").unwrap_or(text));
    line.push(b'\n');
    OpenOptions::new().create(true).append(true).open(path)?.write_all(&line)?;
    Ok(line.len())
}

/// The local time of a second since 1970, by the time zone of the program.
pub(crate) fn local_time(second: u64) -> io::Result<libc::tm> {
    let second = libc::time_t::try_from(second).map_err(io::Error::other)?;
    let mut local = MaybeUninit::uninit();
    // SAFETY: the second is a live local, and so is what the time is written to.
    let found = unsafe { libc::localtime_r(&raw const second, local.as_mut_ptr()) };
    if found.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: localtime_r(3) has filled it, as it returned its address.
    Ok(unsafe { local.assume_init() })
}
