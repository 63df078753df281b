//! What times are read from, and how late a timer may be.

use pollux_report::number::count;

use super::check::{Check, Concern, Judgement, Subject};
use super::readings::Readings;
use super::remedy::Remedy;

/// Clock sources that are read without entering the kernel or leaving the virtual machine.
const FAST: [&str; 3] = ["tsc", "arch_sys_counter", "riscv_clocksource"];
/// The kernel's default; a wait ends so much later.
const SLACK_NS: u64 = 50_000;
const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![clock_source(readings), timer_slack(readings)]
}

fn clock_source(readings: &Readings) -> Check {
    let name = "clock_source";
    let subject = Subject { name, unit: None, concerns: &[Concern::Everything] };
    let wanted = "tsc, or the architecture's own counter";
    subject.judge(readings.environment.clocksource.clone(), wanted, |source| {
        let available = readings.files.text(AVAILABLE);
        let faster = available.value().and_then(|list| {
            list.split_ascii_whitespace().find(|name| FAST.contains(name)).map(str::to_owned)
        });
        let what = "each reading of the clock costs more, up to a microsecond: latencies and small \
                    windows suffer";
        Judgement::unless(FAST.contains(&source.as_str()), what)
            .mended_by(faster.map(|faster| Remedy::write(&faster, CURRENT)))
    })
}

fn timer_slack(readings: &Readings) -> Check {
    let name = "timer_slack_ns";
    let subject = Subject { name, unit: Some("ns"), concerns: &[Concern::Everything] };
    let wanted = format!("at most {}: the kernel's default", count(SLACK_NS));
    subject.judge(readings.files.number("/proc/self/timerslack_ns"), wanted, |slack| {
        let what = format!("timers and intervals end up to {} ns late", count(*slack));
        let remedy =
            Remedy::of_command(format!("echo {SLACK_NS} | sudo tee /proc/$$/timerslack_ns"));
        Judgement::unless(*slack <= SLACK_NS, what).mended_by(remedy)
    })
}
