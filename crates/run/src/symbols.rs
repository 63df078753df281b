//! Names of call sites: function, file and line, as far as the program's files have them.
//!
//! Functions are read from the symbols of the file; lines, which are in the debugging information, are
//! asked of addr2line(1) where it is installed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pollux_loop_stats::Module;

use crate::elf::{Elf, Symbol};

/// What was read by now. Made for one report.
#[derive(Default)]
pub(crate) struct Symbols {
    functions: HashMap<PathBuf, Vec<Symbol>>,
    names: HashMap<(PathBuf, u64), String>,
}

impl Symbols {
    /// The name of the place that a call returns to: `serve+0x1f (server.c:33)`, or the file with the
    /// offset in it.
    pub(crate) fn name(&mut self, modules: &[Module], caller: u64) -> String {
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
