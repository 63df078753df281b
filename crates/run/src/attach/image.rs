//! Which files lie where in the memory of a process that runs, by `/proc/PID/maps`.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pollux_loop_stats::{Module, Region};

use crate::elf::Elf;

/// The images that were written.
pub(super) struct Images<'a> {
    region: Region<'a>,
    of_process: HashMap<u32, Option<u64>>,
    written: Vec<(Vec<Module>, u64)>,
}

impl<'a> Images<'a> {
    pub(super) fn new(region: Region<'a>) -> Self {
        Self { region, of_process: HashMap::new(), written: Vec::new() }
    }

    /// The number of a process's image: that of its parent, if both have the same files.
    pub(super) fn of(&mut self, pid: u32) -> Option<u64> {
        if let Some(known) = self.of_process.get(&pid) {
            return *known;
        }
        let modules = modules(pid);
        let known = self.written.iter().find(|(known, _)| *known == modules);
        let number = match known {
            Some((_, number)) => Some(*number),
            None => self.region.claim_image().map(|(number, image)| {
                for module in &modules {
                    let path = module.path.as_os_str().as_bytes();
                    image.add(module.start, module.end, module.bias, path);
                }
                self.written.push((modules, number));
                number
            }),
        };
        self.of_process.insert(pid, number);
        number
    }
}

/// The files of a process, the program first; empty where it is gone or not ours to see.
fn modules(pid: u32) -> Vec<Module> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut modules = of_maps(&maps);
    for module in &mut modules {
        if !is_relocated(&module.path) {
            module.bias = 0;
        }
    }
    // Stable: the others stay in the order of their addresses.
    modules.sort_by_key(|module| module.path != program);
    modules
}

/// Files that have code in memory, as wide as all of their parts. A part is a line:
/// `start-end rwxp offset device inode path`.
fn of_maps(maps: &str) -> Vec<Module> {
    let mut modules: Vec<(Module, bool)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let Some(path) = line.find('/').map(|at| PathBuf::from(&line[at..])) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let Some((start, end)) = number(start).zip(number(end)) else { continue };
        let is_code = rights.contains('x');
        match modules.iter_mut().find(|(module, _)| module.path == path) {
            Some((module, has_code)) => {
                module.end = module.end.max(end);
                *has_code |= is_code;
            }
            None => modules.push((Module { start, end, bias: start, path }, is_code)),
        }
    }
    modules.retain(|(_, has_code)| *has_code);
    modules.into_iter().map(|(module, _)| module).collect()
}

/// Whether a file lies elsewhere than where its symbols say.
fn is_relocated(path: &Path) -> bool {
    Elf::read(path).ok().flatten().is_none_or(|elf| elf.is_relocated())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_file_are_one_module() {
        let maps = "\
555500000000-555500001000 r--p 00000000 fe:00 12 /usr/bin/a program
555500001000-555500009000 r-xp 00001000 fe:00 12 /usr/bin/a program
555500009000-55550000a000 rw-p 00008000 fe:00 12 /usr/bin/a program
555600000000-555600021000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 r--p 00000000 fe:00 13 /usr/share/data
7f0000002000-7f0000003000 r-xp 00000000 fe:00 14 /usr/lib/libc.so.6
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
";
        let module =
            |start, end, path: &str| Module { start, end, bias: start, path: PathBuf::from(path) };
        let expected = [
            module(0x5555_0000_0000, 0x5555_0000_a000, "/usr/bin/a program"),
            module(0x7f00_0000_2000, 0x7f00_0000_3000, "/usr/lib/libc.so.6"),
        ];
        assert_eq!(of_maps(maps), expected);
    }

    #[test]
    fn the_own_program_comes_first_with_its_functions() {
        let modules = modules(std::process::id());
        assert_eq!(Some(&modules[0].path), std::env::current_exe().ok().as_ref());
        assert!(modules.iter().any(|module| module.path.to_string_lossy().contains("libc")));
        let here = the_own_program_comes_first_with_its_functions as fn() as usize as u64;
        let name = crate::Symbols::default().name(&modules, here + 4);
        assert!(name.contains("the_own_program_comes_first"), "{name}");
    }
}
