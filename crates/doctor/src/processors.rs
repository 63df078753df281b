//! CPUs: how many, whose they are, how steady they run, which other programs run on them; what times are read from
//! there, and how late a timer may be.

use pollux_host::Reading;
use pollux_host::machine::{FOREIGN_CPU_SHARE_MAX, STEAL_SHARE_MAX};
use pollux_report::number::count;

use crate::check::Concern::{Churn, Dead, Everything, Queues, Servers, Sweep};
use crate::check::{Check, Judgement, Remedy, Subject};
use crate::readings::Readings;

/// Reader and writer, or server and generator.
const CPUS_MIN: u64 = 2;
/// Below, one generator on one CPU is what bounds a server's rate.
const CPUS_WANTED: u64 = 4;

const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![
        number(readings),
        quota(readings),
        isolated(readings),
        nohz_full(readings),
        governor(readings),
        turbo(readings),
        siblings(readings),
        steal(readings),
        load(readings),
        hypervisor(readings),
    ]
}

fn cpus(readings: &Readings) -> Reading<u64> {
    readings.environment.cpus_allowed.clone().map(|cpus| cpus as u64)
}

fn number(readings: &Readings) -> Check {
    let concerns = &[Servers, Dead, Churn, Sweep, Queues];
    let subject = Subject { name: "cpus_allowed", unit: Some("CPUs"), concerns };
    let wanted = format!("{CPUS_WANTED} or more");
    subject.judge(cpus(readings), wanted, |cpus| match *cpus {
        ..CPUS_MIN => Judgement::limits(
            "server and generator, reader and writer share one CPU: compare CPU time and counts, no \
             rates",
        ),
        CPUS_MIN..CPUS_WANTED => Judgement::limits(
            "one CPU makes the load: requests per second are those of the generator, CPU time for each \
             request of the server",
        ),
        _ => Judgement::ok(),
    })
}

fn quota(readings: &Readings) -> Check {
    use super::Quota;
    let subject = Subject { name: "cpu_quota", unit: Some("CPUs"), concerns: &[Everything] };
    let allowed = cpus(readings).value().copied().unwrap_or(0) as f64;
    subject.judge(readings.quota.clone(), "none", |quota| match quota {
        Quota::Cpus(quota) if *quota < allowed => {
            let remedy = "docker update --cpus 0 CONTAINER";
            Judgement::limits("all threads stop for the rest of a period once it is used up")
                .mended_by(Remedy { command: remedy.to_owned(), needs_root: true })
        }
        _ => Judgement::ok(),
    })
}

/// Isolated CPUs are in no process's mask unless it asks, so they help only with `taskset`.
fn isolated(readings: &Readings) -> Check {
    let subject = Subject { name: "cpus_isolated", unit: None, concerns: &[Everything] };
    let found = readings.files.text(ISOLATED).map(|list| or_none(&list));
    let allowed = readings.files.text("/proc/self/status").parsed(
        "/proc/self/status has no line Cpus_allowed_list",
        |status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            cpu_list(line.trim())
        },
    );
    let is_large = cpus(readings).value().is_some_and(|cpus| *cpus >= CPUS_WANTED);
    let wanted = if is_large { "some" } else { "nothing to spare below 4 CPUs" };
    subject.judge(found, wanted, |list| match (cpu_list(list), allowed.value()) {
        (None, _) => Judgement::unless(!is_large, "any task and interrupt may run beside a run")
            .mended_by(boot_words()),
        (Some(isolated), Some(allowed)) if isolated.iter().any(|cpu| !allowed.contains(cpu)) => {
            let all = readings.files.text("/sys/devices/system/cpu/online");
            let all = all.value().map_or("0-N", String::as_str);
            Judgement::limits(format!("CPUs {list} are kept free, also from pollux"))
                .mended_by(Remedy::of_command(format!("taskset -c {all} pollux lab")))
        }
        _ => Judgement::ok(),
    })
}

fn nohz_full(readings: &Readings) -> Check {
    let subject = Subject { name: "cpus_nohz_full", unit: None, concerns: &[Everything] };
    // A kernel that was built without it has no such file; one without CPUs in it says (null).
    let found = if readings.files.is_absent(NOHZ_FULL) {
        Reading::Value("none".to_owned())
    } else {
        readings.files.text(NOHZ_FULL).map(|list| or_none(list.trim_matches(['(', ')'])))
    };
    let isolated = readings.files.text(ISOLATED).value().and_then(|list| cpu_list(list));
    subject.judge(found, "the isolated CPUs", |list| {
        let quiet = cpu_list(list).unwrap_or_default();
        let is_covered = isolated.unwrap_or_default().iter().all(|cpu| quiet.contains(cpu));
        Judgement::unless(is_covered, "the timer tick still interrupts isolated CPUs")
            .mended_by(boot_words())
    })
}

fn governor(readings: &Readings) -> Check {
    let subject = Subject { name: "frequency_governor", unit: None, concerns: &[Everything] };
    subject.judge(readings.environment.governor.clone(), "performance", |governor| {
        Judgement::unless(governor == "performance", "runs after a pause start on a slow clock")
            .mended_by(Remedy::of_command("sudo cpupower frequency-set -g performance"))
    })
}

fn turbo(readings: &Readings) -> Check {
    let files = &readings.files;
    let is_off = if files.is_absent(NO_TURBO) {
        files.number(BOOST).map(|on| on == 0)
    } else {
        files.number(NO_TURBO).map(|off| off == 1)
    };
    let (word, path) = if files.is_absent(NO_TURBO) { ("0", BOOST) } else { ("1", NO_TURBO) };
    let subject = Subject { name: "frequency_boost", unit: None, concerns: &[Everything] };
    let found = is_off.map(|is_off| if is_off { "off" } else { "on" }.to_owned());
    subject.judge(found, "off", |state| {
        Judgement::unless(
            state == "off",
            "the clock sinks as the chip warms: early runs look faster",
        )
        .mended_by(Remedy::write(word, path))
    })
}

fn siblings(readings: &Readings) -> Check {
    let active = readings.files.number("/sys/devices/system/cpu/smt/active");
    let subject = Subject { name: "smt_siblings", unit: None, concerns: &[Everything] };
    let found = active.map(|active| if active == 1 { "active" } else { "none" }.to_owned());
    subject.judge(found, "none", |state| {
        let what = "two CPUs may be one core: reader and writer then slow each other";
        Judgement::unless(state == "none", what)
            .mended_by(Remedy::write("off", "/sys/devices/system/cpu/smt/control"))
    })
}

fn steal(readings: &Readings) -> Check {
    let most = 100.0 * STEAL_SHARE_MAX;
    let subject = Subject { name: "steal_percent", unit: Some("%"), concerns: &[Everything] };
    let wanted = format!("at most {most:.1} (limit for a quiet run)");
    subject.judge(readings.steal_percent.clone(), wanted, |percent| {
        let what = "the hypervisor runs others on our CPUs: blocks will be marked disturbed";
        Judgement::unless(*percent <= most, what)
    })
}

fn load(readings: &Readings) -> Check {
    let path = "/proc/loadavg";
    let found = readings.files.text(path).parsed("/proc/loadavg holds no number", |text| {
        text.split(' ').next()?.parse::<f64>().ok()
    });
    let cpus = readings.environment.cpus_online.value().map_or(1, |cpus| *cpus);
    let most = FOREIGN_CPU_SHARE_MAX * cpus as f64;
    let subject =
        Subject { name: "load_average_1min", unit: Some("tasks"), concerns: &[Everything] };
    // The mean remembers what ended a minute ago, often the command before this one.
    let busy_most = 100.0 * FOREIGN_CPU_SHARE_MAX;
    let busy = readings.busy_percent.value().copied();
    subject.judge(found, format!("at most {most:.1} (limit for a quiet run)"), |load| {
        let is_over = busy.is_some_and(|busy| busy <= busy_most);
        let now =
            busy.map_or(String::new(), |busy| format!(", {busy:.0} % of their time just now"));
        let look = Remedy::of_command("ps -eo pid,pcpu,comm --sort=-pcpu | head");
        Judgement::unless(
            *load <= most || is_over,
            format!("others use the CPUs{now}: wait, or end them"),
        )
        .mended_by(look)
    })
}

fn hypervisor(readings: &Readings) -> Check {
    let found = readings.environment.is_virtual.clone();
    let subject = Subject { name: "virtual_machine", unit: None, concerns: &[Everything] };
    let found = found.map(|is_virtual| if is_virtual { "yes" } else { "no" }.to_owned());
    subject.judge(found, "no", |is_virtual| {
        Judgement::unless(
            is_virtual == "no",
            "neighbours that no gate sees: trust counts before times",
        )
    })
}

fn or_none(list: &str) -> String {
    if list.is_empty() || list == "null" { "none".to_owned() } else { list.to_owned() }
}

fn boot_words() -> Remedy {
    Remedy::of_command("boot with isolcpus=LIST nohz_full=LIST (kernel command line)")
}

/// `1,4-6` as its numbers; `None` where there are none.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

/// Clock sources that are read without entering the kernel or leaving the virtual machine.
const FAST: [&str; 3] = ["tsc", "arch_sys_counter", "riscv_clocksource"];
/// The kernel's default; a wait ends so much later.
const SLACK_NS: u64 = 50_000;
const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

pub(super) fn clock_checks(readings: &Readings) -> Vec<Check> {
    vec![clock_source(readings), timer_slack(readings)]
}

fn clock_source(readings: &Readings) -> Check {
    let name = "clock_source";
    let subject = Subject { name, unit: None, concerns: &[Everything] };
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
    let subject = Subject { name, unit: Some("ns"), concerns: &[Everything] };
    let wanted = format!("at most {}: the kernel's default", count(SLACK_NS));
    subject.judge(readings.files.number("/proc/self/timerslack_ns"), wanted, |slack| {
        let what = format!("timers and intervals end up to {} ns late", count(*slack));
        let remedy =
            Remedy::of_command(format!("echo {SLACK_NS} | sudo tee /proc/$$/timerslack_ns"));
        Judgement::unless(*slack <= SLACK_NS, what).mended_by(remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("1,4-6"), Some(vec![1, 4, 5, 6]));
        assert_eq!(cpu_list("0"), Some(vec![0]));
        assert_eq!(cpu_list(""), None);
        assert_eq!(cpu_list("none"), None);
    }
}
