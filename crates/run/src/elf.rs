//! The parts of an ELF file that are looked at here (elf(5)): what loads it, and its symbols.
//!
//! Files are read as they are found: whatever is wrong with one is "not that".

use std::path::Path;

/// Types of headers and sections.
const ET_DYN: u64 = 3;
const PT_INTERP: u64 = 3;
const SHT_SYMTAB: u64 = 2;
const SHT_DYNSYM: u64 = 11;
/// Low bits of a symbol's kind.
const STT_FUNC: u8 = 2;

/// A file of this machine's byte order and word size.
pub(crate) struct Elf {
    bytes: Vec<u8>,
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) name: String,
}

impl Elf {
    /// The file, if it is one with 64-bit words, lowest byte first.
    pub(crate) fn read(path: &Path) -> std::io::Result<Option<Self>> {
        let bytes = std::fs::read(path)?;
        let is_it = bytes.starts_with(b"\x7fELF\x02\x01") && bytes.len() >= 64;
        Ok(is_it.then_some(Self { bytes }))
    }

    /// The machine that it is for, as e_machine has it.
    pub(crate) fn machine(&self) -> u64 {
        self.number(18, 2).unwrap_or(0)
    }

    /// Whether it may lie anywhere in memory, so that its symbols say where in the file and not where in
    /// memory they are.
    pub(crate) fn is_relocated(&self) -> bool {
        self.number(16, 2) == Some(ET_DYN)
    }

    /// The dynamic linker that it asks for.
    pub(crate) fn interpreter(&self) -> Option<String> {
        let (start, count) = (self.number(32, 8)?, self.number(56, 2)?);
        let headers = (0..count).map(|index| start + index * self.number(54, 2).unwrap_or(0));
        let mut headers = headers.filter(|at| self.number(*at, 4) == Some(PT_INTERP));
        let at = headers.next()?;
        let text = self.part(self.number(at + 8, 8)?, self.number(at + 32, 8)?)?;
        let text = text.split(|byte| *byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok()
    }

    /// Whether it has a section of this name.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.sections().any(|section| self.section_name(section).is_some_and(|found| found == name))
    }

    /// Its functions, sorted by address: those for debuggers, else those for the linker.
    pub(crate) fn functions(&self) -> Vec<Symbol> {
        let of = |kind| {
            let table = self.sections().find(|at| self.number(at + 4, 4) == Some(kind));
            table.and_then(|table| self.functions_of(table)).unwrap_or_default()
        };
        let mut found = of(SHT_SYMTAB);
        if found.is_empty() {
            found = of(SHT_DYNSYM);
        }
        found.sort_by_key(|symbol| symbol.start);
        found
    }

    fn functions_of(&self, table: u64) -> Option<Vec<Symbol>> {
        const ENTRY_BYTES: u64 = 24;
        let (start, len) = (self.number(table + 24, 8)?, self.number(table + 32, 8)?);
        let names = self.sections().nth(self.number(table + 40, 4)? as usize)?;
        let names = self.number(names + 24, 8)?;
        let symbol = |index: u64| {
            let at = start + index * ENTRY_BYTES;
            let is_function = self.number(at + 4, 1)? as u8 & 0xf == STT_FUNC;
            let (start, len) = (self.number(at + 8, 8)?, self.number(at + 16, 8)?);
            let name = self.text(names + self.number(at, 4)?)?;
            (is_function && start > 0 && !name.is_empty()).then_some(Symbol { start, len, name })
        };
        Some((0..len / ENTRY_BYTES).filter_map(symbol).collect())
    }

    /// Where the headers of its sections are.
    fn sections(&self) -> impl Iterator<Item = u64> {
        let start = self.number(40, 8).unwrap_or(0);
        let (len, count) = (self.number(58, 2).unwrap_or(0), self.number(60, 2).unwrap_or(0));
        (0..if start == 0 { 0 } else { count }).map(move |index| start + index * len)
    }

    fn section_name(&self, section: u64) -> Option<String> {
        let names = self.sections().nth(self.number(62, 2)? as usize)?;
        self.text(self.number(names + 24, 8)? + self.number(section, 4)?)
    }

    fn text(&self, at: u64) -> Option<String> {
        let bytes = self.bytes.get(usize::try_from(at).ok()?..)?;
        Some(String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next()?).into_owned())
    }

    fn number(&self, at: u64, len: u64) -> Option<u64> {
        let bytes = self.part(at, len)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn part(&self, at: u64, len: u64) -> Option<&[u8]> {
        let (start, end) = (usize::try_from(at).ok()?, usize::try_from(at.checked_add(len)?).ok()?);
        self.bytes.get(start..end)
    }
}
