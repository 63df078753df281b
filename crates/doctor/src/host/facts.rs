//! The environment as a list of facts in words, for the record and the report.

use std::fmt::Display;

use super::Reading;
use super::environment::{Environment, ResourceLimit};

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
        let capabilities = self.capabilities.clone().map(|set| set.names.join(", "));
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
