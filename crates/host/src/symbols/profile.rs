//! Where the CPU time of a measured process went, by functions of the kernel and files of the process.
//!
//! Kernel addresses become function names; user addresses are only grouped by the file they lie in, because what differs
//! between event mechanisms happens in the kernel. A share is never shown without the number of samples it rests on.

use std::collections::HashMap;

use pollux_sys::perf::{Sample, Sampler, SamplerOptions};
use serde::{Deserialize, Serialize};

use super::kernel::KernelSymbols;
use crate::reading::Reading;

/// Kernel samples whose function is not known.
const KERNEL: &str = "[kernel]";
/// User samples whose file is not known: generated code, or a process that is gone.
const USER: &str = "[user]";
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
        let kernel = KernelSymbols::load();
        let user = UserModules::of_process(self.pid);
        let mut shares = shares(&self.samples, &kernel, &user);
        shares.truncate(SYMBOLS_MAX);
        (Some(Reading::Value(self.samples.len() as u64)), shares)
    }
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

/// The files of one process's executable memory.
#[derive(Clone, Debug, Default)]
struct UserModules {
    entries: Vec<Module>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    start: u64,
    end: u64,
    name: String,
}

impl UserModules {
    /// The executable mappings of a process that is still alive.
    #[must_use]
    fn of_process(pid: u32) -> Reading<Self> {
        Reading::of_file(format!("/proc/{pid}/maps")).map(|text| Self::parse(&text))
    }

    /// Reads the form of `/proc/<pid>/maps`.
    #[must_use]
    fn parse(text: &str) -> Self {
        Self { entries: text.lines().filter_map(parse_module).collect() }
    }

    /// The file name, without folders, of the mapping that `ip` lies in.
    #[must_use]
    fn resolve(&self, ip: u64) -> Option<&str> {
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

#[cfg(test)]
mod tests {
    use super::super::kernel::tests::KALLSYMS;
    use super::*;

    const MAPS: &str = "\
    55d000000000-55d000001000 r--p 00000000 fe:00 17 /opt/bin/pollux\n\
    55d000001000-55d000009000 r-xp 00001000 fe:00 17 /opt/bin/pollux (deleted)\n\
    7f0000000000-7f0000002000 r-xp 00000000 00:00 0 \n\
    7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                  [vdso]\n";

    fn sample(ip: u64, is_kernel: bool) -> Sample {
        Sample { ip, is_kernel, pid: 1, tid: 1 }
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
