//! What the file of a program says of itself: for which machine it is, what loads it, its sections, its functions.
//!
//! Whatever is wrong with a file is "not that".

use std::io;
use std::path::Path;

use object::elf::{EM_AARCH64, EM_X86_64, ET_DYN, FileHeader64};
use object::read::elf::{ElfFile64, ElfSymbolIterator, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};

type Header = FileHeader64<LittleEndian>;

/// The machine that this program is for, as e_machine has it.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") { EM_X86_64 } else { EM_AARCH64 };

/// An ELF file (elf(5)) with 64-bit words, lowest byte first.
pub struct Elf {
    bytes: Vec<u8>,
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Its address in the file.
    pub(super) start: u64,
    /// Bytes; 0 where the file does not say.
    pub(super) len: u64,
    /// As the file has it.
    pub(super) name: String,
}

impl Elf {
    /// The file, if it is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let elf = Self { bytes: std::fs::read(path)? };
        Ok(elf.header().is_some().then_some(elf))
    }

    fn header(&self) -> Option<&Header> {
        Header::parse(&*self.bytes).ok().filter(|header| header.endian().is_ok())
    }

    /// Whether it is for a machine as this one.
    #[must_use]
    pub fn is_for_this_machine(&self) -> bool {
        self.header().is_some_and(|header| header.e_machine(LittleEndian) == MACHINE)
    }

    /// Whether it may lie anywhere in memory, so that its symbols say where in the file and not where in
    /// memory they are.
    #[must_use]
    pub fn is_relocated(&self) -> bool {
        self.header().is_some_and(|header| header.e_type(LittleEndian) == ET_DYN)
    }

    /// The dynamic linker that it asks for.
    #[must_use]
    pub fn interpreter(&self) -> Option<String> {
        let bytes = &*self.bytes;
        let headers = self.header()?.program_headers(LittleEndian, bytes).ok()?;
        let mut found =
            headers.iter().filter_map(|one| one.interpreter(LittleEndian, bytes).ok()?);
        String::from_utf8(found.next()?.to_vec()).ok()
    }

    /// Whether it has a section of this name.
    #[must_use]
    pub fn has_section(&self, name: &str) -> bool {
        self.file().is_some_and(|file| file.section_by_name(name).is_some())
    }

    fn file(&self) -> Option<ElfFile64<'_, LittleEndian>> {
        ElfFile64::parse(&*self.bytes).ok()
    }

    /// Its functions, sorted by address: those for debuggers, else those for the linker.
    pub(super) fn functions(&self) -> Vec<Function> {
        let Some(file) = self.file() else { return Vec::new() };
        let mut found = functions_among(file.symbols());
        if found.is_empty() {
            found = functions_among(file.dynamic_symbols());
        }
        found.sort_by_key(|function| function.start);
        found
    }
}

fn functions_among(symbols: ElfSymbolIterator<'_, '_, Header>) -> Vec<Function> {
    let functions = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text);
    let named = functions.filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?.to_owned();
        Some(Function { start: symbol.address(), len: symbol.size(), name })
    });
    // What lies in another file has no address here.
    named.filter(|function| function.start > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_a_program_are_read_from_its_file() {
        let own = std::env::current_exe().expect("the own path");
        let elf = Elf::read(&own).expect("readable").expect("an ELF file");
        assert!(elf.functions().iter().any(|function| function.name == "main"));
        assert!(elf.interpreter().is_some_and(|linker| linker.contains("ld-linux")));
        assert!(elf.has_section(".text") && !elf.has_section(".note.go.buildid"));
        assert!(elf.is_for_this_machine() && elf.is_relocated());
    }

    #[test]
    fn what_is_cut_or_another_kind_of_file_is_not_that() {
        let own = std::env::current_exe().expect("the own path");
        let whole = std::fs::read(own).expect("readable");
        let mut other_words = whole[..64].to_vec();
        other_words[4] = 1;
        let mut highest_first = whole[..64].to_vec();
        highest_first[5] = 2;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        for bytes in [&b"#!/bin/sh\n"[..], b"", &whole[..63], &other_words, &highest_first] {
            std::fs::write(&path, bytes).expect("written");
            assert!(Elf::read(&path).expect("readable").is_none(), "{bytes:?}");
        }
        // A head alone is one, of which nothing more is known.
        std::fs::write(&path, &whole[..64]).expect("written");
        let elf = Elf::read(&path).expect("readable").expect("a head");
        assert!(elf.is_for_this_machine() && !elf.has_section(".text"));
        assert_eq!((elf.interpreter(), elf.functions()), (None, Vec::new()));
    }
}
