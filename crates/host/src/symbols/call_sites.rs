//! Names of call sites: function, file and line, as far as the program's files have them.
//!
//! Functions are read from the symbols of the file; lines, which are in the debugging information, are
//! asked of addr2line(1) where it is installed. ELF files are read as they are found: whatever is wrong
//! with one is "not that".

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_sys::loop_stats::Module;

/// Types of headers and sections.
const ET_DYN: u64 = 3;
const PT_INTERP: u64 = 3;
const SHT_SYMTAB: u64 = 2;
const SHT_DYNSYM: u64 = 11;
/// Low bits of a symbol's kind.
const STT_FUNC: u8 = 2;

/// What was read by now. Made for one report.
#[derive(Default)]
pub struct Symbols {
    functions: HashMap<PathBuf, Vec<Symbol>>,
    names: HashMap<(PathBuf, u64), String>,
}

impl Symbols {
    /// The name of the place that a call returns to: `serve+0x1f (server.c:33)`, or the file with the
    /// offset in it.
    pub fn name(&mut self, modules: &[Module], caller: u64) -> String {
        // The call itself: behind the last one of a function another function begins.
        let at = caller.saturating_sub(1);
        let Some(module) = modules.iter().find(|module| (module.start..module.end).contains(&at))
        else {
            return format!("{caller:#x}");
        };
        let (path, at) = (&module.path, at - module.bias);
        let key = (path.clone(), at);
        if let Some(known) = self.names.get(&key) {
            return known.clone();
        }
        let name = self.made(path, at);
        self.names.insert(key, name.clone());
        name
    }

    fn made(&mut self, path: &Path, at: u64) -> String {
        let functions = self.functions.entry(path.to_owned()).or_insert_with(|| {
            Elf::read(path).ok().flatten().map(|elf| elf.functions()).unwrap_or_default()
        });
        let function = function_of(functions, at);
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match (function, line_of(path, at)) {
            (Some((name, _)), Some(line)) => format!("{name} ({line})"),
            (Some((name, offset)), None) => format!("{name}+{offset:#x} ({file})"),
            (None, Some(line)) => line,
            (None, None) => format!("{file}+{at:#x}"),
        }
    }
}

/// The function that an address lies in, and how far from its start.
fn function_of(functions: &[Symbol], at: u64) -> Option<(&str, u64)> {
    let after = functions.partition_point(|symbol| symbol.start <= at);
    let symbol = functions.get(after.checked_sub(1)?)?;
    let offset = at - symbol.start;
    // Some have no length.
    (symbol.len == 0 || offset < symbol.len).then_some((symbol.name.as_str(), offset))
}

/// File and line of an address, where the debugging information and the tool are there.
fn line_of(path: &Path, at: u64) -> Option<String> {
    let mut tool = Command::new("addr2line");
    tool.arg("-e").arg(path).arg(format!("{at:#x}")).stdin(Stdio::null()).stderr(Stdio::null());
    let output = tool.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.split(" (").next()?;
    let (file, number) = line.rsplit_once(':')?;
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    let file = Path::new(file).file_name()?.to_string_lossy().into_owned();
    Some(format!("{file}:{number}"))
}

/// An ELF file (elf(5)) of this machine's byte order and word size, as far as it is looked at here: what loads it, and
/// its symbols.
pub struct Elf {
    bytes: Vec<u8>,
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address in the file.
    pub start: u64,
    /// Bytes; 0 where the file does not say.
    pub len: u64,
    /// As the file has it.
    pub name: String,
}

impl Elf {
    /// The file, if it is one with 64-bit words, lowest byte first.
    pub fn read(path: &Path) -> std::io::Result<Option<Self>> {
        let bytes = std::fs::read(path)?;
        let is_it = bytes.starts_with(b"\x7fELF\x02\x01") && bytes.len() >= 64;
        Ok(is_it.then_some(Self { bytes }))
    }

    /// The machine that it is for, as e_machine has it.
    pub fn machine(&self) -> u64 {
        self.number(18, 2).unwrap_or(0)
    }

    /// Whether it may lie anywhere in memory, so that its symbols say where in the file and not where in
    /// memory they are.
    pub fn is_relocated(&self) -> bool {
        self.number(16, 2) == Some(ET_DYN)
    }

    /// The dynamic linker that it asks for.
    pub fn interpreter(&self) -> Option<String> {
        let (start, count) = (self.number(32, 8)?, self.number(56, 2)?);
        let headers = (0..count).map(|index| start + index * self.number(54, 2).unwrap_or(0));
        let mut headers = headers.filter(|at| self.number(*at, 4) == Some(PT_INTERP));
        let at = headers.next()?;
        let text = self.part(self.number(at + 8, 8)?, self.number(at + 32, 8)?)?;
        let text = text.split(|byte| *byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok()
    }

    /// Whether it has a section of this name.
    pub fn has_section(&self, name: &str) -> bool {
        self.sections().any(|section| self.section_name(section).is_some_and(|found| found == name))
    }

    /// Its functions, sorted by address: those for debuggers, else those for the linker.
    fn functions(&self) -> Vec<Symbol> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let symbol = |start, len, name: &str| Symbol { start, len, name: name.to_owned() };
        let functions = [symbol(0x100, 0x20, "one"), symbol(0x200, 0, "two")];
        for (at, expected) in [
            (0xff, None),
            (0x100, Some(("one", 0))),
            (0x11f, Some(("one", 0x1f))),
            (0x120, None),
            (0x280, Some(("two", 0x80))),
        ] {
            assert_eq!(function_of(&functions, at), expected, "{at:#x}");
        }
    }

    #[test]
    fn the_functions_of_a_program_are_read_from_its_file() {
        let own = std::env::current_exe().expect("the own path");
        let elf = Elf::read(&own).expect("readable").expect("an ELF file");
        assert!(elf.functions().iter().any(|symbol| symbol.name == "main"));
        assert!(elf.interpreter().is_some_and(|linker| linker.contains("ld-linux")));
        assert!(elf.has_section(".text") && !elf.has_section(".note.go.buildid"));
    }
}
