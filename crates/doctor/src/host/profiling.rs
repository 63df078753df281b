//! A profile: samples of the CPU clock over all threads of a process.

use pollux_sys::perf::{Sample, Sampler, SamplerOptions};

use super::Reading;
use super::symbols::{KernelSymbols, Profile, SymbolShare, UserModules};

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
        let kernel = KernelSymbols::load();
        let user = UserModules::of_process(self.pid);
        let profile = self
            .sampler
            .map(|sampler| Profile::of(&self.samples, sampler.samples_lost(), &kernel, &user));
        match profile {
            Reading::Value(mut profile) => {
                profile.shares.truncate(SYMBOLS_MAX);
                (Some(Reading::Value(profile.samples_total)), profile.shares)
            }
            Reading::Unavailable { reason, enable } => {
                (Some(Reading::Unavailable { reason, enable }), Vec::new())
            }
        }
    }
}
