//! From addresses to names: where the CPU time of a process went ([`Profiling`], by functions of the kernel), and which
//! place of a program called ([`Symbols`], by functions and lines of its files).

mod call_sites;
mod elf;
mod kernel;
mod profile;

pub use call_sites::Symbols;
pub use elf::Elf;
pub use profile::{Profiling, SymbolShare};
