//! Which files lie where in the memory of a program, so that a call site can be named when the program is gone.
//!
//! Processes that were forked have the same image.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(crate) const IMAGE_WORDS: usize = 2048;
const IMAGE_HEADER_WORDS: usize = 8;
const MODULE_WORDS: usize = 32;
const MODULES_MAX: usize = (IMAGE_WORDS - IMAGE_HEADER_WORDS) / MODULE_WORDS;
const PATH_WORDS: usize = MODULE_WORDS - 4;

/// A file that lies in the memory of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its first address.
    pub start: u64,
    /// Behind its last address.
    pub end: u64,
    /// What an address in the memory has more than in the file's own symbols.
    pub bias: u64,
    /// Where the file is, cut at 224 bytes.
    pub path: PathBuf,
}

/// The files of one program.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    words: &'a [AtomicU64; IMAGE_WORDS],
}

impl<'a> Image<'a> {
    pub(crate) const fn new(words: &'a [AtomicU64; IMAGE_WORDS]) -> Self {
        Self { words }
    }

    /// Adds a file; what is beyond the room is left out. Only for the thread that claimed it.
    pub fn add(&self, start: u64, end: u64, bias: u64, path: &[u8]) {
        let index = self.words[0].load(Relaxed) as usize;
        if index >= MODULES_MAX {
            return;
        }
        let module = &self.words[IMAGE_HEADER_WORDS + index * MODULE_WORDS..][..MODULE_WORDS];
        let path = &path[..path.len().min(PATH_WORDS * 8)];
        for (word, value) in module.iter().zip([start, end, bias, path.len() as u64]) {
            word.store(value, Relaxed);
        }
        for (word, bytes) in module[4..].iter().zip(path.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        self.words[0].store(index as u64 + 1, Release);
    }

    /// The files so far.
    #[must_use]
    pub fn modules(&self) -> Vec<Module> {
        let count = (self.words[0].load(Acquire) as usize).min(MODULES_MAX);
        let at =
            |index: usize| &self.words[IMAGE_HEADER_WORDS + index * MODULE_WORDS..][..MODULE_WORDS];
        (0..count).map(|index| read(at(index))).collect()
    }
}

fn read(module: &[AtomicU64]) -> Module {
    let word = |index: usize| module[index].load(Relaxed);
    let mut path: Vec<u8> = (4..MODULE_WORDS).flat_map(|index| word(index).to_le_bytes()).collect();
    path.truncate(word(3) as usize);
    let path = PathBuf::from(OsString::from_vec(path));
    debug_assert!(path.as_os_str().as_bytes().len() <= PATH_WORDS * 8);
    Module { start: word(0), end: word(1), bias: word(2), path }
}
