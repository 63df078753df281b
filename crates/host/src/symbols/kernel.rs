//! The kernel's functions, by address: `/proc/kallsyms`.

use crate::reading::Reading;
use crate::sources::ENABLE_SYMBOLS;

/// The kernel's functions, by address.
#[derive(Clone, Debug)]
pub(super) struct KernelSymbols {
    /// Sorted by address, one entry for each.
    entries: Vec<(u64, Box<str>)>,
}

impl KernelSymbols {
    /// Reads the running kernel's symbols (some megabytes; once for each report, not for each run).
    #[must_use]
    pub(super) fn load() -> Reading<Self> {
        Reading::of_file("/proc/kallsyms")
            .parsed("the kernel hides its addresses from this user (all 0)", Self::parse)
            .or_enable_with(ENABLE_SYMBOLS)
    }

    /// Reads the form of `/proc/kallsyms`: address, type, name and perhaps a module. `None` if it
    /// holds no code with an address.
    #[must_use]
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut entries: Vec<_> = text.lines().filter_map(parse_symbol).collect();
        // Stable, so of several names for one address the first listed stays.
        entries.sort_by_key(|(address, _)| *address);
        entries.dedup_by_key(|(address, _)| *address);
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// The function that starts at or last before `ip`.
    #[must_use]
    pub(super) fn resolve(&self, ip: u64) -> Option<&str> {
        let after = self.entries.partition_point(|(address, _)| *address <= ip);
        let (_, name) = self.entries.get(after.checked_sub(1)?)?;
        Some(name)
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const KALLSYMS: &str = "\
    ffffffff81000000 T _stext\n\
    ffffffff81000000 T _text\n\
    ffffffff81000400 t pipe_read\n\
    ffffffff81000300 T do_epoll_wait\n\
    ffffffff81000350 D some_data\n\
    ffffffffc0000010 t virtio_poll\t[virtio_net]\n";

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
}
