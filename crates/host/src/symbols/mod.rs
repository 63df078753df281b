//! From addresses to names: where the CPU time went, and which place of a program called ([`Symbols`], for functions
//! and lines of its files).
//!
//! The runner samples a measured process with [`Profiling`], the report shows the shares. Kernel addresses become function names; user addresses are only grouped by the
//! file they lie in, because what differs between event mechanisms happens in the kernel. A share
//! is never shown without the number of samples it rests on.

use std::collections::HashMap;

use pollux_sys::perf::{Sample, Sampler, SamplerOptions};
use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::sources::ENABLE_SYMBOLS;

mod call_sites;

pub use call_sites::{Elf, Symbol, Symbols};

/// Kernel samples whose function is not known.
const KERNEL: &str = "[kernel]";
/// User samples whose file is not known: generated code, or a process that is gone.
const USER: &str = "[user]";

/// The kernel's functions, by address.
#[derive(Clone, Debug)]
pub struct KernelSymbols {
    /// Sorted by address, one entry for each.
    entries: Vec<(u64, Box<str>)>,
}

/// The files of one process's executable memory.
#[derive(Clone, Debug, Default)]
pub struct UserModules {
    entries: Vec<Module>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    start: u64,
    end: u64,
    name: String,
}

/// One function's part of the CPU time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SymbolShare {
    /// Kernel function, or `name (user)` for a file of the process.
    pub symbol: String,
    /// Samples that fell into it.
    pub samples: u64,
    /// Of all samples, from 0 to 1.
    pub share: f64,
}

impl KernelSymbols {
    /// Reads the running kernel's symbols (some megabytes; once for each report, not for each run).
    #[must_use]
    pub fn load() -> Reading<Self> {
        Reading::of_file("/proc/kallsyms")
            .parsed("the kernel hides its addresses from this user (all 0)", Self::parse)
            .or_enable_with(ENABLE_SYMBOLS)
    }

    /// Reads the form of `/proc/kallsyms`: address, type, name and perhaps a module. `None` if it
    /// holds no code with an address.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut entries: Vec<_> = text.lines().filter_map(parse_symbol).collect();
        // Stable, so of several names for one address the first listed stays.
        entries.sort_by_key(|(address, _)| *address);
        entries.dedup_by_key(|(address, _)| *address);
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// The function that starts at or last before `ip`.
    #[must_use]
    pub fn resolve(&self, ip: u64) -> Option<&str> {
        let after = self.entries.partition_point(|(address, _)| *address <= ip);
        let (_, name) = self.entries.get(after.checked_sub(1)?)?;
        Some(name)
    }
}

impl UserModules {
    /// The executable mappings of a process that is still alive.
    #[must_use]
    pub fn of_process(pid: u32) -> Reading<Self> {
        Reading::of_file(format!("/proc/{pid}/maps")).map(|text| Self::parse(&text))
    }

    /// Reads the form of `/proc/<pid>/maps`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self { entries: text.lines().filter_map(parse_module).collect() }
    }

    /// The file name, without folders, of the mapping that `ip` lies in.
    #[must_use]
    pub fn resolve(&self, ip: u64) -> Option<&str> {
        let module = self.entries.iter().find(|module| (module.start..module.end).contains(&ip))?;
        Some(&module.name)
    }
}

/// Samples grouped by symbol, the largest first, names in order where equal. Without kernel symbols all
/// kernel time is one line, and user time of unknown mappings another.
fn shares(
    samples: &[Sample],
    kernel: &Reading<KernelSymbols>,
    user: &Reading<UserModules>,
) -> Vec<SymbolShare> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for sample in samples {
        *counts.entry(name_of(sample, kernel, user)).or_default() += 1;
    }
    let share = |samples: u64, of: usize| samples as f64 / of as f64;
    let mut shares: Vec<SymbolShare> = counts
        .into_iter()
        .map(|(symbol, count)| SymbolShare {
            symbol,
            samples: count,
            share: share(count, samples.len()),
        })
        .collect();
    shares.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.symbol.cmp(&b.symbol)));
    shares
}

fn name_of(
    sample: &Sample,
    kernel: &Reading<KernelSymbols>,
    user: &Reading<UserModules>,
) -> String {
    if sample.is_kernel {
        let found = kernel.value().and_then(|symbols| symbols.resolve(sample.ip));
        return found.unwrap_or(KERNEL).to_owned();
    }
    match user.value().and_then(|modules| modules.resolve(sample.ip)) {
        Some(module) => format!("{module} (user)"),
        None => USER.to_owned(),
    }
}

/// Code only, and only with an address: hidden addresses are all 0.
fn parse_symbol(line: &str) -> Option<(u64, Box<str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    let name = words.next()?;
    let symbol = match words.next() {
        Some(module) => format!("{name} {module}").into(),
        None => name.into(),
    };
    (is_code && address > 0).then_some((address, symbol))
}

/// Fields: addresses, rights, offset, device, inode, name (which may hold spaces).
fn parse_module(line: &str) -> Option<Module> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()?.contains('x');
    let path = fields.nth(3)?.trim().trim_end_matches(" (deleted)");
    let name = path.rsplit('/').next().filter(|name| !name.is_empty())?;
    is_code.then_some(Module {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        name: name.to_owned(),
    })
}

/// Lines of a profile that are kept; what is below is a long tail of single samples.
const SYMBOLS_MAX: usize = 60;

/// A profile under way, or why there is none.
pub struct Profiling {
    pid: u32,
    sampler: Reading<Sampler>,
    samples: Vec<Sample>,
}

impl Profiling {
    /// Starts to sample process `pid` `rate_hz` times per second of CPU time.
    #[must_use]
    pub fn start(pid: u32, rate_hz: u32) -> Self {
        let options = SamplerOptions { frequency_hz: u64::from(rate_hz), excludes_kernel: false };
        let sampler = Sampler::of_process(pid, options)
            .and_then(|sampler| sampler.enable().map(|()| sampler));
        let sampler = Reading::from_io("sampling the CPU clock", sampler)
            .or_enable_with("sudo sysctl kernel.perf_event_paranoid=1");
        Self { pid, sampler, samples: Vec::new() }
    }

    /// Empties the kernel's buffers, at the end of each interval.
    pub fn drain(&mut self) {
        if let Reading::Value(sampler) = &mut self.sampler {
            self.samples.append(&mut sampler.drain());
        }
    }

    /// Number of samples, and the symbols that they fell into.
    #[must_use]
    pub fn finish(mut self) -> (Option<Reading<u64>>, Vec<SymbolShare>) {
        if let Reading::Value(sampler) = &self.sampler {
            // A sampler that can't be stopped continues until it is dropped, below.
            let _ = sampler.disable();
        }
        self.drain();
        if let Reading::Unavailable { reason, enable } = self.sampler {
            return (Some(Reading::Unavailable { reason, enable }), Vec::new());
        }
        let (kernel, user) = (KernelSymbols::load(), UserModules::of_process(self.pid));
        let mut shares = shares(&self.samples, &kernel, &user);
        shares.truncate(SYMBOLS_MAX);
        (Some(Reading::Value(self.samples.len() as u64)), shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
    ffffffff81000000 T _stext\n\
    ffffffff81000000 T _text\n\
    ffffffff81000400 t pipe_read\n\
    ffffffff81000300 T do_epoll_wait\n\
    ffffffff81000350 D some_data\n\
    ffffffffc0000010 t virtio_poll\t[virtio_net]\n";
    const MAPS: &str = "\
    55d000000000-55d000001000 r--p 00000000 fe:00 17 /opt/bin/pollux\n\
    55d000001000-55d000009000 r-xp 00001000 fe:00 17 /opt/bin/pollux (deleted)\n\
    7f0000000000-7f0000002000 r-xp 00000000 00:00 0 \n\
    7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                  [vdso]\n";

    fn sample(ip: u64, is_kernel: bool) -> Sample {
        Sample { ip, is_kernel, pid: 1, tid: 1 }
    }

    #[test]
    fn an_address_belongs_to_the_function_that_starts_before_it() {
        let symbols = KernelSymbols::parse(KALLSYMS).expect("addresses");
        assert_eq!(symbols.resolve(0xffff_ffff_8100_0300), Some("do_epoll_wait"));
        assert_eq!(symbols.resolve(0xffff_ffff_8100_03ff), Some("do_epoll_wait"));
        assert_eq!(symbols.resolve(0xffff_ffff_8100_0400), Some("pipe_read"));
        assert_eq!(symbols.resolve(0xffff_ffff_8100_0001), Some("_stext"));
        assert_eq!(symbols.resolve(0xffff_ffff_c000_0020), Some("virtio_poll [virtio_net]"));
        assert_eq!(symbols.resolve(0x1000), None);
    }

    #[test]
    fn hidden_addresses_are_not_symbols() {
        assert!(KernelSymbols::parse("0000000000000000 T _stext\n").is_none());
        match KernelSymbols::load() {
            Reading::Value(symbols) => assert!(!symbols.entries.is_empty()),
            Reading::Unavailable { reason, enable } => {
                assert!(!reason.is_empty());
                assert_eq!(enable.as_deref(), Some(ENABLE_SYMBOLS));
            }
        }
    }

    #[test]
    fn user_addresses_are_grouped_by_file() {
        let modules = UserModules::parse(MAPS);
        assert_eq!(modules.resolve(0x55d0_0000_1004), Some("pollux"));
        assert_eq!(modules.resolve(0x55d0_0000_0004), None, "not executable");
        assert_eq!(modules.resolve(0x7f00_0000_0004), None, "no file");
        assert_eq!(modules.resolve(0x7ffc_0000_0004), Some("[vdso]"));
        let own = UserModules::of_process(std::process::id());
        assert!(own.value().is_some_and(|modules| !modules.entries.is_empty()));
    }

    #[test]
    fn a_profile_is_sorted_and_adds_up() {
        let kernel = KernelSymbols::parse(KALLSYMS);
        let kernel = Reading::Value(kernel.expect("addresses"));
        let user = Reading::Value(UserModules::parse(MAPS));
        let samples = [
            sample(0xffff_ffff_8100_0401, true),
            sample(0xffff_ffff_8100_0402, true),
            sample(0x55d0_0000_1004, false),
            sample(0x1, false),
        ];
        let shares = shares(&samples, &kernel, &user);
        let names: Vec<_> = shares.iter().map(|share| share.symbol.as_str()).collect();
        assert_eq!(names, ["pipe_read", "[user]", "pollux (user)"]);
        assert!((shares[0].share - 0.5).abs() < 1e-12);
    }

    #[test]
    fn without_symbols_the_kernel_is_one_line() {
        let hidden = Reading::unavailable("hidden");
        let gone = Reading::unavailable("gone");
        let found = shares(&[sample(7, true), sample(8, false)], &hidden, &gone);
        let names: Vec<_> = found.iter().map(|share| share.symbol.as_str()).collect();
        assert_eq!(names, [KERNEL, USER]);
        assert!(shares(&[], &hidden, &gone).is_empty());
    }
}
