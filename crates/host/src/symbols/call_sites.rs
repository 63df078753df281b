//! Names of call sites: function, file and line, as far as the program's files have them.
//!
//! Functions are read from the symbols of the file, lines from its debugging information or a file of that beside it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use pollux_sys::loop_stats::Module;

use super::elf::{Elf, Function};

/// What was read by now. Made for one report.
#[derive(Default)]
pub struct Symbols {
    files: HashMap<PathBuf, ProgramFile>,
    names: HashMap<(PathBuf, u64), String>,
}

/// What a file says of its addresses; nothing where it cannot be read.
struct ProgramFile {
    functions: Vec<Function>,
    lines: Option<Loader>,
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
        let path = &module.path;
        let at = at - module.bias;
        let key = (path.clone(), at);
        if let Some(known) = self.names.get(&key) {
            return known.clone();
        }
        let name = self.made(path, at);
        self.names.insert(key, name.clone());
        name
    }

    fn made(&mut self, path: &Path, at: u64) -> String {
        let of = self.files.entry(path.to_owned()).or_insert_with(|| ProgramFile::read(path));
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match (function_of(&of.functions, at), of.line(at)) {
            (Some((name, _)), Some(line)) => format!("{name} ({line})"),
            (Some((name, offset)), None) => format!("{name}+{offset:#x} ({file})"),
            (None, Some(line)) => line,
            (None, None) => format!("{file}+{at:#x}"),
        }
    }
}

impl ProgramFile {
    fn read(path: &Path) -> Self {
        let elf = Elf::read(path).ok().flatten();
        Self {
            functions: elf.map(|elf| elf.functions()).unwrap_or_default(),
            lines: Loader::new(path).ok(),
        }
    }

    /// File and line of an address, where the debugging information is there.
    fn line(&self, at: u64) -> Option<String> {
        let location = self.lines.as_ref()?.find_location(at).ok()??;
        let number = location.line.filter(|number| *number > 0)?;
        let file = Path::new(location.file?).file_name()?.to_string_lossy();
        Some(format!("{file}:{number}"))
    }
}

/// The function that an address lies in, and how far from its start.
fn function_of(functions: &[Function], at: u64) -> Option<(&str, u64)> {
    let after = functions.partition_point(|symbol| symbol.start <= at);
    let symbol = functions.get(after.checked_sub(1)?)?;
    let offset = at - symbol.start;
    // Some have no length.
    (symbol.len == 0 || offset < symbol.len).then_some((symbol.name.as_str(), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let symbol = |start, len, name: &str| Function { start, len, name: name.to_owned() };
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

    #[inline(never)]
    fn here() -> u64 {
        here as fn() -> u64 as usize as u64
    }

    #[test]
    fn a_place_of_this_program_has_its_function_and_its_line() {
        let own = std::env::current_exe().expect("the own path");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let first = maps.lines().find(|line| line.ends_with(&*own.to_string_lossy()));
        let start = first.and_then(|line| line.split_once('-')).expect("a mapping").0;
        let bias = u64::from_str_radix(start, 16).expect("an address");
        let modules = [Module { path: own, start: bias, end: u64::MAX, bias }];
        // Behind its first instruction, as the address that a call returns to would be.
        let name = Symbols::default().name(&modules, here() + 2);
        assert!(name.contains("here") && name.contains("(call_sites.rs:"), "{name}");
    }
}
