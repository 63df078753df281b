//! Context switches, as read at the end of each interval: of this process and of the machine.
//!
//! Two short files of `/proc`, which are read while a workload runs. Dumazet's program printed the machine's under the name ctxt.

/// Voluntary and involuntary switches of all threads of this process since they started.
#[must_use]
pub fn of_process() -> Option<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        sum += numbers_after(&status, "ctxt_switches:").sum::<u64>();
    }
    Some(sum)
}

/// Switches of all tasks of the machine since it started.
#[must_use]
pub fn of_machine() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    numbers_after(&stat, "ctxt").next()
}

/// The numbers in lines whose first word ends in `name`.
fn numbers_after<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = u64> + 'a {
    text.lines().filter_map(move |line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| word.ends_with(name))?;
        words.next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_switches_are_added_up() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(numbers_after(status, "ctxt_switches:").sum::<u64>(), 157);
    }

    #[test]
    fn the_machine_switches_at_least_as_much_as_this_process() {
        let (process, machine) = (of_process(), of_machine());
        assert!(process.is_some_and(|process| machine.is_some_and(|machine| machine >= process)));
    }
}
