//! A cgroup of a process's own, so that what the kernel says of it is not everybody's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup with one process, for as long as it lives.
#[derive(Debug)]
pub struct Cgroup {
    pid: u32,
    folder: PathBuf,
    before: PathBuf,
}

impl Cgroup {
    /// Moves the process into one of its own; none where there is no second version of cgroups, or no right to make
    /// one.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let top = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"))?.get(1)?.to_owned();
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let before = Path::new(top).join(own);
        let folder = before.join(format!("pollux-test-{pid}"));
        fs::create_dir(&folder).ok()?;
        let this = Self { pid, folder, before };
        this.move_to(&this.folder).ok()?;
        fs::metadata(this.io_pressure()).ok()?;
        Some(this)
    }

    fn move_to(&self, folder: &Path) -> io::Result<()> {
        fs::write(folder.join("cgroup.procs"), self.pid.to_string())
    }

    /// The file that says for how long its tasks were held up by I/O.
    #[must_use]
    pub fn io_pressure(&self) -> PathBuf {
        self.folder.join("io.pressure")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that is gone has left it.
        let _ = self.move_to(&self.before);
        let _ = fs::remove_dir(&self.folder);
    }
}

/// For how long some task was held up until now, by a file of pressure (PSI); none where the kernel has none.
#[must_use]
pub fn held_up(pressure: &Path) -> Option<Duration> {
    let text = fs::read_to_string(pressure).ok()?;
    let line = text.lines().find(|line| line.starts_with("some "))?;
    Some(Duration::from_micros(line.split_once("total=")?.1.trim().parse().ok()?))
}
