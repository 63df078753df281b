//! What fits a machine: how much one thing takes, and how much is free.

/// Descriptors that a run needs besides those of its streams or pipes: standard streams, the
/// poller's own, counters, and files of `/proc` that are open for a moment.
pub const FDS_SPARE: u64 = 64;
/// What a server keeps for listeners, logs and endpoints, and does not give to connections.
pub const SERVER_FDS_SPARE: u64 = 320;
/// Memory of one connection on loopback, both ends with their files, buffers and sessions:
/// rounded up from 9 KiB of slabs and 3 KiB of the programs.
pub const CONNECTION_BYTES: u64 = 16 << 10;
/// A run may take so much of the free memory: one part in this many.
pub const MEMORY_PARTS: u64 = 2;

/// What is free of what all processes together may have; `None` where nobody knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Slots of AIO contexts (`fs.aio-max-nr`).
    pub aio_slots: Option<u64>,
}

impl Resources {
    /// Reads what is free here.
    #[must_use]
    pub fn here() -> Self {
        let number = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let aio_slots = number("/proc/sys/fs/aio-max-nr").zip(number("/proc/sys/fs/aio-nr"));
        Self {
            memory_bytes: memory_available_bytes(),
            aio_slots: aio_slots.map(|(max, used)| max.saturating_sub(used)),
        }
    }
}

/// Memory that programs may still take, by the kernel's estimate.
fn memory_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
