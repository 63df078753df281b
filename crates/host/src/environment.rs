//! What machine this is: the facts a reader needs to compare a result with another, and which programs
//! it has.
//!
//! Read once at start and stored with every result. The host's name, addresses and user names are
//! left out on purpose: results are meant to be published. Nothing here changes the machine.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use pollux_sys::descriptors;
use rustix::fs::Access;
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use crate::reading::{Reading, number_of};

/// The machine, the kernel and the rights this process has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of pollux.
    pub pollux: String,
    /// Compiler that built it, if the build recorded it in `POLLUX_RUSTC`.
    pub rustc: Reading<String>,
    /// Kernel release.
    pub kernel: String,
    /// Processor architecture, as the kernel names it.
    pub architecture: String,
    /// Processor model.
    pub cpu_model: Reading<String>,
    /// CPUs the machine has online.
    pub cpus_online: Reading<usize>,
    /// CPUs this process may use (affinity and control group).
    pub cpus_allowed: Reading<usize>,
    /// Main memory in KiB.
    pub memory_kib: Reading<u64>,
    /// The kernel's clock source.
    pub clocksource: Reading<String>,
    /// Load averages over 1, 5 and 15 minutes.
    pub load_average: Reading<String>,
    /// Frequency governor of the first CPU; absent in most virtual machines.
    pub governor: Reading<String>,
    /// The processor says that it is a virtual one.
    pub is_virtual: Reading<bool>,
    /// Resource limits that bite in large experiments.
    pub limits: ProcessLimits,
    /// `kernel.io_uring_disabled`: 0 for all, 1 for a group only, 2 for none.
    pub io_uring_disabled: Reading<i64>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Reading<i64>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Reading<i64>,
    /// The effective user is root.
    pub is_root: bool,
    /// Effective capabilities.
    pub capabilities: Reading<Capabilities>,
    /// The kernel's measures against processor faults, by name.
    pub mitigations: Reading<BTreeMap<String, String>>,
}

/// Resource limits of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Open descriptors (`RLIMIT_NOFILE`).
    pub open_files: ResourceLimit,
    /// Locked memory in bytes (`RLIMIT_MEMLOCK`): old kernels' rings and sample buffers.
    pub locked_memory_bytes: ResourceLimit,
    /// POSIX message queues in bytes (`RLIMIT_MSGQUEUE`).
    pub message_queue_bytes: ResourceLimit,
}

/// One limit; `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// In force now; may be raised up to `hard`.
    pub soft: Option<u64>,
    /// Ceiling for those without `CAP_SYS_RESOURCE`.
    pub hard: Option<u64>,
}

/// A set of capabilities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// All of them, as the kernel prints them.
    pub mask: String,
    /// Those that decide what pollux can do or measure.
    pub names: Vec<String>,
}

/// Capabilities that matter here, by bit number (capabilities(7)).
const CAPABILITIES: [(u32, &str); 10] = [
    (2, "CAP_DAC_READ_SEARCH"),
    (10, "CAP_NET_BIND_SERVICE"),
    (12, "CAP_NET_ADMIN"),
    (14, "CAP_IPC_LOCK"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
    (24, "CAP_SYS_RESOURCE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

impl Environment {
    /// Reads everything now.
    #[must_use]
    pub fn read() -> Self {
        let names = rustix::system::uname();
        let cpuinfo = Reading::of_file("/proc/cpuinfo");
        Self {
            pollux: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: rustc(),
            kernel: names.release().to_string_lossy().into_owned(),
            architecture: names.machine().to_string_lossy().into_owned(),
            cpu_model: cpuinfo.parsed("/proc/cpuinfo names no model", parse_cpu_model),
            cpus_online: Reading::from_io(
                "CPUs online",
                pollux_sys::perf::online_cpus().map(|cpus| cpus.len()),
            ),
            cpus_allowed: Reading::from_io(
                "CPUs allowed",
                std::thread::available_parallelism().map(Into::into),
            ),
            memory_kib: Reading::of_file("/proc/meminfo")
                .parsed("/proc/meminfo has no line MemTotal", |text| number_of(text, "MemTotal")),
            clocksource: Reading::of_file(
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            load_average: Reading::of_file("/proc/loadavg")
                .map(|text: String| text.split_whitespace().take(3).collect::<Vec<_>>().join(", ")),
            governor: Reading::of_file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            is_virtual: is_virtual(),
            limits: ProcessLimits::read(),
            io_uring_disabled: sysctl("io_uring_disabled"),
            perf_event_paranoid: sysctl("perf_event_paranoid"),
            kptr_restrict: sysctl("kptr_restrict"),
            is_root: rustix::process::geteuid().is_root(),
            capabilities: Reading::of_file("/proc/self/status")
                .parsed("/proc/self/status has no line CapEff", parse_capabilities),
            mitigations: mitigations(),
        }
    }
}

impl ProcessLimits {
    fn read() -> Self {
        let limit = |resource| ResourceLimit::from(rustix::process::getrlimit(resource));
        Self {
            open_files: descriptors::Limit::here().into(),
            locked_memory_bytes: limit(Resource::Memlock),
            message_queue_bytes: limit(Resource::Msgqueue),
        }
    }
}

impl From<descriptors::Limit> for ResourceLimit {
    fn from(limit: descriptors::Limit) -> Self {
        let known = |limit| Some(limit).filter(|limit| *limit != u64::MAX);
        Self { soft: known(limit.soft), hard: known(limit.hard) }
    }
}

impl From<Rlimit> for ResourceLimit {
    fn from(limit: Rlimit) -> Self {
        Self { soft: limit.current, hard: limit.maximum }
    }
}

/// Whether the processor says that it is a virtual one (x86 only; others do not tell).
pub(crate) fn is_virtual() -> Reading<bool> {
    Reading::of_file("/proc/cpuinfo")
        .parsed("/proc/cpuinfo has no flags: this architecture does not tell", parse_is_virtual)
}

fn rustc() -> Reading<String> {
    match option_env!("POLLUX_RUSTC") {
        Some(version) => Reading::Value(version.to_owned()),
        None => Reading::unavailable("POLLUX_RUSTC was not set when pollux was built"),
    }
}

fn sysctl(name: &str) -> Reading<i64> {
    let path = format!("/proc/sys/kernel/{name}");
    Reading::of_file(&path).parsed(&format!("{path} holds no number"), |text| text.parse().ok())
}

fn mitigations() -> Reading<BTreeMap<String, String>> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    Reading::from_io(folder, fs::read_dir(folder)).and_then(|entries| {
        let found: BTreeMap<_, _> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let text = fs::read_to_string(entry.path()).ok()?;
                Some((name, text.trim().to_owned()))
            })
            .collect();
        if found.is_empty() {
            return Reading::unavailable(format!("{folder} holds nothing readable"));
        }
        Reading::Value(found)
    })
}

/// `/proc/cpuinfo` pads names with tabs before the colon.
fn cpuinfo_field<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

fn parse_cpu_model(cpuinfo: &str) -> Option<String> {
    let model = cpuinfo_field(cpuinfo, "model name").filter(|model| !model.is_empty())?;
    Some(model.to_owned())
}

fn parse_is_virtual(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo_field(cpuinfo, "flags")?;
    Some(flags.split(' ').any(|flag| flag == "hypervisor"))
}

fn parse_capabilities(status: &str) -> Option<Capabilities> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim();
    let bits = u64::from_str_radix(mask, 16).ok()?;
    let held = CAPABILITIES.iter().filter(|(bit, _)| bits >> bit & 1 == 1);
    Some(Capabilities {
        mask: mask.to_owned(),
        names: held.map(|(_, name)| (*name).to_owned()).collect(),
    })
}

/// The fact that tells how much else the machine did just before.
pub const LOAD_AVERAGE: &str = "load average";

/// A name and what was found.
pub type Fact = (&'static str, Reading<String>);

impl Environment {
    /// One line for each thing that a reader would ask about the machine.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        let mitigations = self.mitigations.clone().map(|all| {
            let active = all.iter().filter(|(_, state)| state.starts_with("Mitigation"));
            let names: Vec<&str> = active.map(|(name, _)| name.as_str()).collect();
            if names.is_empty() { "none active".to_owned() } else { names.join(", ") }
        });
        let capabilities = self.capabilities.clone().map(|set| {
            if set.names.is_empty() {
                "none that matters here".to_owned()
            } else {
                set.names.join(", ")
            }
        });
        vec![
            known("pollux", &self.pollux),
            fact("compiler", &self.rustc),
            // Beside programs in C, which always are.
            known("built with optimisation", yes_or_no(!cfg!(debug_assertions))),
            known("kernel", &self.kernel),
            known("architecture", &self.architecture),
            fact("CPU", &self.cpu_model),
            fact("CPUs online", &self.cpus_online),
            fact("CPUs allowed", &self.cpus_allowed),
            fact("memory", &self.memory_kib.clone().map(|kib| format!("{} GiB", kib >> 20))),
            fact("virtual machine", &self.is_virtual.clone().map(yes_or_no)),
            fact("clock source", &self.clocksource),
            fact(LOAD_AVERAGE, &self.load_average),
            fact("frequency governor", &self.governor),
            fact("mitigations", &mitigations),
            known("open files limit", &limit(self.limits.open_files)),
            known("locked memory limit", &limit(self.limits.locked_memory_bytes)),
            known("message queue limit", &limit(self.limits.message_queue_bytes)),
            fact("io_uring_disabled", &self.io_uring_disabled),
            fact("perf_event_paranoid", &self.perf_event_paranoid),
            fact("kptr_restrict", &self.kptr_restrict),
            known("run by root", yes_or_no(self.is_root)),
            fact("capabilities", &capabilities),
        ]
    }
}

fn known(name: &'static str, value: &str) -> Fact {
    (name, Reading::Value(value.to_owned()))
}

fn fact<T: Display + Clone>(name: &'static str, reading: &Reading<T>) -> Fact {
    (name, reading.clone().map(|value| value.to_string()))
}

fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

fn limit(limit: ResourceLimit) -> String {
    let words = |bound: Option<u64>| bound.map_or("unlimited".to_owned(), |n| n.to_string());
    format!("{} (hard {})", words(limit.soft), words(limit.hard))
}

/// Searched after PATH: servers live there, and PATH of ordinary users leaves them out.
const SERVER_FOLDERS: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

/// The program called `name`, where it is installed. The lab's plan asks before anything is run, its experiments when
/// they start one.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| is_program(program))
}

/// A program of pollux: beside the file of this one, whatever links led to it, else in PATH.
#[must_use]
pub fn find_program_beside(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own_folder().into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|program| is_program(program))
}

/// The folder of this program's file.
#[must_use]
pub fn own_folder() -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(fs::canonicalize).ok()?;
    own.parent().map(Path::to_owned)
}

/// What to say where `name` is not installed.
#[must_use]
pub fn missing_program(name: &str, package: &str) -> Option<String> {
    let reason = || format!("{name} is not installed here (Debian: apt-get install {package})");
    find_program(name).is_none().then(reason)
}

/// Whether a path is a file that may be run.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nmodel name\t: Example CPU @ 2.0GHz\n\
        flags\t\t: fpu vme hypervisor lahf_lm\n\nprocessor\t: 1\n";

    #[test]
    fn cpuinfo_tells_model_and_hypervisor_or_nothing() {
        assert_eq!(parse_cpu_model(CPUINFO).as_deref(), Some("Example CPU @ 2.0GHz"));
        assert_eq!(parse_is_virtual(CPUINFO), Some(true));
        assert_eq!(parse_is_virtual("flags\t: fpu vme\n"), Some(false));
        assert_eq!(parse_is_virtual("Features\t: fp asimd\n"), None);
        assert_eq!(parse_cpu_model("processor\t: 0\n"), None);
    }

    #[test]
    fn capability_bits_get_their_names() {
        let one = parse_capabilities("CapEff:\t0000004000000000\n").expect("a mask");
        assert_eq!(one.names, ["CAP_PERFMON"]);
        let most = parse_capabilities("CapEff:\t000001fffeffffff\n").expect("a mask");
        assert!(!most.names.contains(&"CAP_SYS_RESOURCE".to_owned()), "bit 24 is not set");
        assert_eq!(most.names.len(), CAPABILITIES.len() - 1);
        assert_eq!(parse_capabilities("CapEff:\tnone\n"), None);
    }

    #[test]
    fn memory_is_the_total() {
        let text = "MemTotal:       24684084 kB\nMemFree:        1 kB\n";
        assert_eq!(number_of(text, "MemTotal"), Some(24_684_084));
        assert_eq!(number_of("MemFree: 1 kB\n", "MemTotal"), None);
    }

    #[test]
    fn this_machine_is_described_without_empty_strings() {
        let environment = Environment::read();
        assert!(!environment.kernel.is_empty());
        assert!(environment.cpus_online.value().is_some_and(|count| *count > 0));
        assert!(environment.memory_kib.value().is_some_and(|kib| *kib > 0));
        assert!(environment.capabilities.value().is_some());
        let json = serde_json::to_string(&environment).expect("json");
        assert!(!json.contains(r#"{"value":""}"#), "{json}");
        assert!(!json.contains(r#"{"unavailable":""}"#), "{json}");
        let back: Environment = serde_json::from_str(&json).expect("our own json");
        assert_eq!(back, environment);
    }

    #[test]
    fn every_fact_has_a_name_of_its_own_and_a_value_or_a_reason() {
        let facts = Environment::read().facts();
        let mut names: Vec<_> = facts.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), facts.len());
        for (name, reading) in facts {
            let words = reading.value().map(String::as_str).or(reading.reason());
            assert!(words.is_some_and(|words| !words.is_empty()), "{name}");
        }
    }

    #[test]
    fn what_every_machine_has_is_found_and_what_none_has_is_named_with_its_package() {
        assert!(find_program("sh").is_some());
        assert_eq!(missing_program("sh", "dash"), None);
        let reason = missing_program("no-such-program", "some-package").expect("it is missing");
        assert!(reason.contains("apt-get install some-package"), "{reason}");
    }
}
