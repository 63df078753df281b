//! The upgrade of a master to another program, in the same process: all that it holds goes from one to the other.
//!
//! ```text
//!  SIGUSR2 ─► a worker of the new program starts ── fails, or too late ──► all stays as it was
//!                         │ it takes connections
//!                         ▼
//!              the worker before drains; the master becomes the new program (execve) ── fails ──► it stays what it is
//!                         │ environment: the number of a descriptor
//!                         ▼
//!              text: settings, counts, reloads │ descriptors: sockets, tables of limits, links to the workers
//! ```
//!
//! The id of the process stays, so a service manager and a file with the id know it as before, and the workers stay its
//! children. Signals wait from before the execve until the new program catches them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use pollux_sys::process;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::run::sockets::left_open;

/// Where a master names what the program before has left it.
const VARIABLE: &str = "POLLUX_PROXY_MASTER";
/// What both programs have to agree on: of what is left here, and of the frames between master and workers.
pub(crate) const FORM: &str = "1";

/// What is left to the next program, piece by piece.
#[derive(Default)]
pub(crate) struct Leaving {
    bytes: Vec<u8>,
    /// Open in the next program.
    descriptors: Vec<OwnedFd>,
}

impl Leaving {
    /// Some that begins with the form.
    pub(crate) fn new() -> Self {
        let mut leaving = Self::default();
        leaving.text(FORM);
        leaving
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.text(&number.to_string());
    }

    /// # Errors
    /// EMFILE.
    pub(crate) fn descriptor(&mut self, fd: impl AsFd) -> io::Result<()> {
        let copy = left_open(fd)?;
        self.number(copy.as_raw_fd() as u64);
        self.descriptors.push(copy);
        Ok(())
    }

    /// Descriptors that are named in a text, which are open in the next program.
    pub(crate) fn named(&mut self, (descriptors, text): (Vec<OwnedFd>, String)) {
        self.text(&text);
        self.descriptors.extend(descriptors);
    }

    /// Becomes that program, with the arguments of this one. It returns only where that fails.
    pub(crate) fn exec(mut self, program: &Path, arguments: &[OsString]) -> io::Error {
        let left = || {
            let mut file = File::from(memfd_create("pollux-master", MemfdFlags::CLOEXEC)?);
            file.write_all(&self.bytes)?;
            left_open(&file)
        };
        let file = match left() {
            Ok(file) => file,
            Err(error) => return error,
        };
        let variable = (VARIABLE.into(), file.as_raw_fd().to_string().into());
        self.descriptors.push(file);
        let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
        let variables: Vec<(OsString, OsString)> = others.chain([variable]).collect();
        let own = std::env::args_os().next().unwrap_or_else(|| program.into());
        let words: Vec<OsString> = std::iter::once(own).chain(arguments.iter().cloned()).collect();
        process::exec_with_signals_blocked(program, &words, &variables)
    }
}

/// What the program before has left.
#[derive(Debug)]
pub(crate) struct Left {
    bytes: Vec<u8>,
    at: usize,
}

impl Left {
    /// That of this process; none where it is not a master that was upgraded.
    ///
    /// # Errors
    /// What is named is not there, or has another form.
    pub(crate) fn find() -> io::Result<Option<Self>> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
        let number = text.parse().map_err(|_| io::Error::other(format!("{VARIABLE}={text}")))?;
        let mut file = File::from(process::take_inherited(number)?);
        file.rewind()?;
        let mut left = Self { bytes: Vec::new(), at: 0 };
        file.read_to_end(&mut left.bytes)?;
        match left.text()? {
            form if form == FORM => Ok(Some(left)),
            form => Err(io::Error::other(format!("{VARIABLE} is of form {form}; expected {FORM}"))),
        }
    }

    pub(crate) fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let cut = || io::Error::other(format!("what {VARIABLE} names is cut"));
        let rest = &self.bytes[self.at..];
        let (len, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
        let len = usize::try_from(u64::from_be_bytes(*len)).map_err(|_| cut())?;
        let bytes = rest.get(..len).ok_or_else(cut)?.to_vec();
        self.at += 8 + len;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> io::Result<String> {
        String::from_utf8(self.bytes()?).map_err(io::Error::other)
    }

    pub(crate) fn number(&mut self) -> io::Result<u64> {
        self.text()?.parse().map_err(io::Error::other)
    }

    pub(crate) fn descriptor(&mut self) -> io::Result<OwnedFd> {
        let number = RawFd::try_from(self.number()?).map_err(io::Error::other)?;
        process::take_inherited(number)
    }
}

/// The path of this program, at which another one is found once that was put there: that of the command line where it
/// leads here, as by a link to the version of the day.
pub(crate) fn own_program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let named = std::env::args_os().next().map(PathBuf::from);
    let named = named.filter(|named| named.components().count() > 1);
    let named = named.and_then(|named| std::path::absolute(named).ok());
    let is_own = |named: &PathBuf| {
        let [named, own] = [named, &own].map(|path| std::fs::canonicalize(path).ok());
        named.is_some() && named == own
    };
    Some(named.filter(is_own).unwrap_or(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found_in_the_same_order_and_a_cut_is_noticed() {
        let mut leaving = Leaving::default();
        leaving.text("two\nlines");
        leaving.number(7);
        leaving.bytes(&[0, 255]);
        leaving.text("");
        let bytes = leaving.bytes;
        let mut left = Left { bytes: bytes.clone(), at: 0 };
        assert_eq!(left.text().expect("left"), "two\nlines");
        assert_eq!(left.number().expect("left"), 7);
        assert_eq!(left.bytes().expect("left"), [0, 255]);
        assert_eq!(left.text().expect("left"), "");
        left.text().expect_err("there is nothing more");
        for len in 0..bytes.len() {
            let mut left = Left { bytes: bytes[..len].to_vec(), at: 0 };
            let all = (left.text(), left.number(), left.bytes(), left.text());
            assert!(all.3.is_err(), "{len}");
        }
    }
}
