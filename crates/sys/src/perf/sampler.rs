//! Where threads spend their CPU time: instruction addresses taken by a timer.
//!
//! The lab opens a [`Sampler`] on the measured threads, enables it around the window, drains it at
//! least every ten seconds and turns addresses into symbols elsewhere. The kernel's CPU clock
//! drives it, so it works without hardware counters; the price is that time spent with interrupts
//! off is charged to the place that turns them on again. Samples that do not fit a buffer that is not
//! drained are dropped by the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::counter::positive;
use super::event::{self, Attribute, DISABLE, ENABLE, KIND_SOFTWARE, Ring, SET_OUTPUT, flag};

/// Default samples for each second of CPU time. Not a round number, so that it does not beat in
/// step with the kernel's tick (100, 250 or 1000 Hz).
const SAMPLE_FREQUENCY_HZ: u64 = 999;

/// Data bytes of each CPU's buffer: room for 10,922 samples of 24 bytes, about eleven seconds of a
/// busy CPU at 999 Hz, and half of what an ordinary user may lock (516 KiB for each CPU).
const RING_BYTES: usize = 256 * 1024;

/// Events opened at once; one for each thread on each CPU. Bounds the descriptors used when the
/// sampled process has very many threads.
const EVENTS_MAX: usize = 4096;

/// `PERF_COUNT_SW_CPU_CLOCK`.
const CPU_CLOCK: u64 = 0;
/// `PERF_SAMPLE_IP | PERF_SAMPLE_TID`: a record is header, address, process and thread.
const SAMPLE_TYPE: u64 = 1 | 2;

/// `PERF_RECORD_SAMPLE`.
const RECORD_SAMPLE: u32 = 9;
/// `PERF_RECORD_MISC_CPUMODE_MASK`.
const MODE_MASK: u16 = 7;
/// `PERF_RECORD_MISC_KERNEL`.
const MODE_KERNEL: u16 = 1;
/// Bytes of `struct perf_event_header`: type, misc, size.
const HEADER_BYTES: usize = 8;

/// How a sampler is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Samples for each second of CPU time; the kernel refuses more than
    /// `kernel.perf_event_max_sample_rate`.
    pub frequency_hz: u64,
    /// Only user mode is sampled: what a user without rights on the kernel may have.
    pub excludes_kernel: bool,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self { frequency_hz: SAMPLE_FREQUENCY_HZ, excludes_kernel: false }
    }
}

/// One moment of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Address of the instruction that ran.
    pub ip: u64,
    /// The address is the kernel's, not the process's.
    pub is_kernel: bool,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

/// A running CPU-time sampler over some threads and everything they start later.
///
/// May be moved between threads; it takes no samples until [`Sampler::enable`].
#[derive(Debug)]
pub struct Sampler {
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    bytes: Vec<u8>,
}

impl Sampler {
    /// Samples the given threads and whatever they start from now on.
    ///
    /// # Errors
    ///
    /// `EACCES` when the kernel part needs `CAP_PERFMON` or `kernel.perf_event_paranoid` <= 1;
    /// `EINVAL` for a frequency above `kernel.perf_event_max_sample_rate`; `ESRCH` when no thread
    /// is left (those that ended meanwhile are passed over); `EPERM` when too much memory is
    /// locked; `InvalidInput` for no thread or more than 4096 pairs of thread and CPU.
    pub fn of_threads(tids: &[u32], options: SamplerOptions) -> io::Result<Self> {
        let cpus = online_cpus()?;
        let pairs = tids.len() * cpus.len();
        if pairs == 0 || pairs > EVENTS_MAX {
            let fault =
                format!("{pairs} pairs of thread and CPU to sample: 1 to {EVENTS_MAX} work");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, fault));
        }
        let mut sampler = Self {
            rings: Vec::with_capacity(cpus.len()),
            events: Vec::with_capacity(pairs),
            bytes: Vec::new(),
        };
        for cpu in cpus {
            let cpu = i32::try_from(cpu).expect("the kernel numbers CPUs below 2^13");
            sampler.add_cpu(tids, cpu, options)?;
        }
        if sampler.rings.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(sampler)
    }

    /// Samples all threads that a process has now and all that they start.
    ///
    /// A thread started by an already sampled one while this runs may be sampled twice; call it
    /// before the load starts.
    ///
    /// # Errors
    ///
    /// `NotFound` for a process that is gone, and those of [`Sampler::of_threads`].
    pub fn of_process(pid: u32, options: SamplerOptions) -> io::Result<Self> {
        let mut tids = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            tids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        Self::of_threads(&tids, options)
    }

    /// Starts sampling.
    ///
    /// # Errors
    ///
    /// Those of `ioctl(2)`.
    pub fn enable(&self) -> io::Result<()> {
        self.request_all(ENABLE)
    }

    /// Stops sampling; what is in the buffers stays for [`Sampler::drain`].
    ///
    /// # Errors
    ///
    /// Those of `ioctl(2)`.
    pub fn disable(&self) -> io::Result<()> {
        self.request_all(DISABLE)
    }

    /// Takes all samples out of the buffers, CPU by CPU, each CPU's in order of time.
    pub fn drain(&mut self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for ring in &mut self.rings {
            self.bytes.clear();
            ring.drain_into(&mut self.bytes);
            parse_records(&self.bytes, &mut samples);
        }
        samples
    }

    /// One event for each thread; the first one's buffer takes them all. Bound to a CPU because
    /// the kernel maps no buffer for an inherited event that may write from several CPUs at once.
    fn add_cpu(&mut self, tids: &[u32], cpu: i32, options: SamplerOptions) -> io::Result<()> {
        let mut owner = None;
        for tid in tids {
            let event = match event::open(attribute_of(options), positive(*tid)?, cpu) {
                Ok(event) => event,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(error),
            };
            match owner {
                None => {
                    self.rings.push(Ring::map(event.as_fd(), RING_BYTES)?);
                    owner = Some(event.as_raw_fd());
                }
                // Descriptors are never negative, so the conversion keeps the number.
                Some(first) => {
                    event::request(event.as_fd(), SET_OUTPUT, first as libc::c_ulong)?;
                }
            }
            self.events.push(event);
        }
        Ok(())
    }

    fn request_all(&self, request: libc::Ioctl) -> io::Result<()> {
        self.events.iter().try_for_each(|event| event::request(event.as_fd(), request, 0))
    }
}

fn attribute_of(options: SamplerOptions) -> Attribute {
    let kernel = if options.excludes_kernel { flag::EXCLUDE_KERNEL } else { 0 };
    Attribute {
        kind: KIND_SOFTWARE,
        config: CPU_CLOCK,
        sample_frequency_hz: options.frequency_hz,
        sample_type: SAMPLE_TYPE,
        flags: flag::DISABLED | flag::INHERIT | flag::FREQUENCY | flag::EXCLUDE_HYPERVISOR | kernel,
        ..Attribute::default()
    }
}

/// Appends the samples among `bytes`.
fn parse_records(mut bytes: &[u8], samples: &mut Vec<Sample>) {
    while bytes.len() >= HEADER_BYTES {
        let kind = u32_at(bytes, 0);
        let mode = u16_at(bytes, 4) & MODE_MASK;
        let len_bytes = usize::from(u16_at(bytes, 6));
        assert!(
            (HEADER_BYTES..=bytes.len()).contains(&len_bytes),
            "the kernel writes whole records"
        );
        let (record, rest) = bytes.split_at(len_bytes);
        // Of throttling, losses and the like: the shares of the samples stay right without them.
        if kind == RECORD_SAMPLE {
            samples.push(Sample {
                ip: u64_at(record, 8),
                is_kernel: mode == MODE_KERNEL,
                pid: u32_at(record, 16),
                tid: u32_at(record, 20),
            });
        }
        bytes = rest;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Numbers of the CPUs that are online, in order.
///
/// # Errors
///
/// Those of reading `/sys/devices/system/cpu/online`; `InvalidData` when it holds no list.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpu_list(&text).ok_or_else(|| {
        let fault = format!("/sys/devices/system/cpu/online holds {text:?}, not a list like 0-3,5");
        io::Error::new(io::ErrorKind::InvalidData, fault)
    })
}

/// Reads the kernel's list form: numbers and ranges with commas between.
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn record(kind: u32, mode: u16, body: &[u64]) -> Vec<u8> {
        let len = u16::try_from(HEADER_BYTES + 8 * body.len()).expect("short");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(mode.to_ne_bytes());
        bytes.extend(len.to_ne_bytes());
        bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn only_records_of_samples_become_samples() {
        let ids = 7 | (9 << 32);
        let mut bytes = record(RECORD_SAMPLE, MODE_KERNEL, &[0xffff_8000, ids]);
        bytes.extend(record(2, 0, &[1, 5]));
        bytes.extend(record(5, 0, &[0, 0, 0]));
        bytes.extend(record(RECORD_SAMPLE, 2, &[0x40_0000, ids]));
        let mut samples = Vec::new();
        parse_records(&bytes, &mut samples);
        let kernel = Sample { ip: 0xffff_8000, is_kernel: true, pid: 7, tid: 9 };
        let user = Sample { ip: 0x40_0000, is_kernel: false, ..kernel };
        assert_eq!(samples, [kernel, user]);
    }

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_list("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse_cpu_list("0,2-4"), Some(vec![0, 2, 3, 4]));
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("0-x"), None);
    }

    /// Burns CPU until a sample shows up; a loaded machine only makes it slower.
    fn first_samples(sampler: &mut Sampler) -> Vec<Sample> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            for step in 0..1_000_000_u64 {
                std::hint::black_box(step);
            }
            let samples = sampler.drain();
            if !samples.is_empty() {
                return samples;
            }
            assert!(Instant::now() < deadline, "no sample in 20 s of spinning");
        }
    }

    #[test]
    fn user_mode_of_this_process_is_sampled() {
        let options = SamplerOptions { excludes_kernel: true, ..SamplerOptions::default() };
        let mut sampler = match Sampler::of_process(std::process::id(), options) {
            Ok(sampler) => sampler,
            Err(error) => {
                let errno = error.raw_os_error().expect("a kernel error");
                let refusals = [libc::EACCES, libc::EPERM, libc::ENOSYS, libc::ENOENT];
                return assert!(refusals.contains(&errno), "{error}");
            }
        };
        sampler.enable().expect("enable");
        let samples = first_samples(&mut sampler);
        sampler.disable().expect("disable");
        assert!(samples.iter().all(|sample| sample.pid == std::process::id()));
        assert!(samples.iter().all(|sample| !sample.is_kernel));
    }

    #[test]
    fn sampling_nothing_is_refused() {
        let error = Sampler::of_threads(&[], SamplerOptions::default()).expect_err("no thread");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
