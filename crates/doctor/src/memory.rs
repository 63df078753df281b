//! Memory: enough of it, and nothing that moves it about during a run.

use pollux_report::number::count;

use super::check::{Check, Concern, Judgement, Subject};
use super::descriptors::{ACTIVE_CONNECTIONS, DEAD_CONNECTIONS};
use super::readings::Readings;
use super::remedy::Remedy;
use crate::host::Reading;
use crate::room::{CONNECTION_BYTES, MEMORY_PARTS};

use Concern::{Dead, Descriptors, Everything, Queues};

/// What the plan wants to be free before it opens the dead connections and the active ones, both
/// ends of each here.
const AVAILABLE_MIB: u64 = {
    let connections = DEAD_CONNECTIONS + ACTIVE_CONNECTIONS;
    (connections * CONNECTION_BYTES * MEMORY_PARTS).div_ceil(1 << 20)
};
/// Two thousand TCP connections with full buffers and the lab itself.
const DEFAULT_JOB_MIB: u64 = 256;
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![available(readings), swap(readings), huge_pages(readings), overcommit(readings)]
}

fn available(readings: &Readings) -> Check {
    let kib = readings.files.field("/proc/meminfo", "MemAvailable");
    let concerns = &[Dead, Descriptors];
    let subject = Subject { name: "memory_available_mib", unit: Some("MiB"), concerns };
    let wanted = format!(
        "{}: a run takes half, for {} dead connections with both ends here",
        count(AVAILABLE_MIB),
        count(DEAD_CONNECTIONS)
    );
    subject.judge(kib.map(|kib| kib / 1024), wanted, |mib| match *mib {
        ..DEFAULT_JOB_MIB => {
            Judgement::blocks("the kernel may end the lab itself").and_the_default_job()
        }
        DEFAULT_JOB_MIB..AVAILABLE_MIB => {
            let most = (mib << 20) / MEMORY_PARTS / CONNECTION_BYTES;
            Judgement::limits(format!("dead connections past about {}", count(most)))
        }
        _ => Judgement::ok(),
    })
}

fn swap(readings: &Readings) -> Check {
    let meminfo = |name| readings.files.field("/proc/meminfo", name);
    let used = meminfo("SwapTotal")
        .and_then(|total| meminfo("SwapFree").map(|free| total.saturating_sub(free) / 1024));
    let subject = Subject { name: "swap_used_mib", unit: Some("MiB"), concerns: &[Everything] };
    subject.judge(used, "0", |mib| {
        Judgement::unless(*mib == 0, "a run may wait for pages from disk")
            .mended_by(Remedy::of_command("sudo swapoff -a"))
    })
}

/// `always [madvise] never`: the word in brackets is in force.
fn parse_choice(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice.to_owned())
}

fn huge_pages(readings: &Readings) -> Check {
    let name = "transparent_hugepages";
    let subject = Subject { name, unit: None, concerns: &[Everything] };
    let found = match readings.files.is_absent(HUGE_PAGES) {
        true => Reading::Value("not built in".to_owned()),
        false => readings.files.text(HUGE_PAGES).parsed("no choice in brackets", parse_choice),
    };
    subject.judge(found, "madvise or never", |choice| {
        let what = "memory figures jump by 2 MiB, and the kernel may merge pages in mid-run";
        Judgement::unless(choice != "always", what).mended_by(Remedy::write("madvise", HUGE_PAGES))
    })
}

fn overcommit(readings: &Readings) -> Check {
    let name = "vm.overcommit_memory";
    let subject = Subject { name, unit: None, concerns: &[Queues, Descriptors] };
    let found = readings.files.number("/proc/sys/vm/overcommit_memory");
    subject.judge(found, "0 or 1", |mode| {
        let what = "stacks of many threads and processes count in full: 250 workers may be refused";
        Judgement::unless(*mode != 2, what).mended_by(Remedy::sysctl(name, 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_in_force_is_the_one_in_brackets() {
        assert_eq!(parse_choice("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(parse_choice("always madvise never"), None);
    }
}
