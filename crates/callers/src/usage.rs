//! What calling has used: CPU time of this process, and context switches of the machine.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this process, with its threads that have ended.
pub(crate) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Seconds of it in user mode and in the kernel, in ticks of 10 ms, as `time` of a shell has them; none
/// where they can't be read.
pub(crate) fn user_and_system() -> Option<[f64; 2]> {
    let ticks = ticks_in(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(ticks.map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Fields 14 and 15 of `proc_pid_stat(5)`, counted after the command name, which may hold blanks and
/// brackets itself.
fn ticks_in(stat: &str) -> Option<[u64; 2]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(|field| field.parse().ok());
    Some([ticks.next()??, ticks.next()??])
}

/// Context switches of all tasks of the machine since it started (`proc_stat(5)`, `ctxt`).
pub(crate) fn machine_switches() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 120 40 3 2 5 6 11 13 20 0 1 0 99";
        assert_eq!(ticks_in(stat), Some([5, 6]));
        assert_eq!(ticks_in("7 (a) S 1"), None);
    }
}
