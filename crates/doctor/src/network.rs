//! Ports, backlogs and TCP's memory: what the 2002 page set by hand, as far as it still matters.

use pollux_host::Reading;
use pollux_report::number::count;

use crate::check::Concern::{Agents, Churn, Dead, Descriptors, Servers, Sweep};
use crate::check::{Check, Judgement, Remedy, Subject, Sysctl};
use crate::limits::DEAD_CONNECTIONS;
use crate::readings::Readings;

/// The quick job's TCP streams, all from one address to one other.
const STREAMS: u64 = 2000;
/// Most connections that a job opens at once: the last point of the sweep.
const SWEEP_CONNECTIONS: u64 = 1000;
/// What pollux asks of `listen(2)`; `somaxconn` cuts it.
const BACKLOG: u64 = 4096;
/// The 2002 page's range.
const PAGE_PORTS: &str = "1024 65535";
/// A connection in TIME_WAIT holds its port for so long; no sysctl changes it.
const TIME_WAIT_S: u64 = 60;
/// The kernel's default for what a CPU keeps of packets before it drops them.
const PACKETS: u64 = 1000;
/// A page for each of sixty thousand connections that have something under way.
const TCP_PAGES: u64 = 65_536;
/// Both sides share an entry, and one outlives its connection by two minutes at most.
const TRACKED: u64 = 2 * 65_536;

pub(super) fn checks(readings: &Readings) -> Vec<Check> {
    vec![
        ports(readings),
        somaxconn().check(readings),
        syn_backlog().check(readings),
        tw_reuse(readings),
        fin_timeout().check(readings),
        time_wait(readings),
        tcp_mem(readings),
        conntrack(readings),
        netdev_backlog().check(readings),
        drops(readings),
    ]
}

pub(super) fn port_count(readings: &Readings) -> Reading<u64> {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    readings.files.numbers(path).and_then(|range| match range[..] {
        [first, last] if first <= last => Reading::Value(last - first + 1),
        _ => Reading::unavailable(format!("{path} holds no range")),
    })
}

fn ports(readings: &Readings) -> Check {
    let concerns = &[Dead, Churn, Sweep, Descriptors, Agents];
    let name = "net.ipv4.ip_local_port_range";
    let subject = Subject { name, unit: Some("ports"), concerns };
    let wanted = format!("{}, from {PAGE_PORTS}", count(64_512));
    subject.judge(port_count(readings), wanted, |ports| {
        let what = format!(
            "connections past {} from one source address to one server; `dead` spreads its own \
             over 127.0.0.x, other generators do not",
            count(*ports)
        );
        let remedy = Remedy::sysctl(name, PAGE_PORTS);
        if *ports < STREAMS {
            Judgement::blocks(what).and_the_default_job().mended_by(remedy)
        } else {
            Judgement::unless(*ports >= DEAD_CONNECTIONS, what).mended_by(remedy)
        }
    })
}

fn somaxconn() -> Sysctl {
    let name = "net.core.somaxconn";
    let unit = Some("connections");
    Sysctl {
        subject: Subject { name, unit, concerns: &[Sweep, Churn] },
        wanted: format!("{}: what pollux listens with", count(BACKLOG)),
        is_enough: |max| max >= BACKLOG,
        effect: |max| {
            format!("bursts past {} connections wait a second for a second SYN", count(max))
        },
        set: BACKLOG,
    }
}

fn syn_backlog() -> Sysctl {
    let name = "net.ipv4.tcp_max_syn_backlog";
    let unit = Some("connections");
    Sysctl {
        subject: Subject { name, unit, concerns: &[Sweep, Churn] },
        wanted: format!("{} (the 2002 page: 16,384)", count(SWEEP_CONNECTIONS)),
        is_enough: |max| max >= SWEEP_CONNECTIONS,
        effect: |max| {
            format!("more than {} half-open connections fall back to SYN cookies", count(max))
        },
        set: 16_384,
    }
}

fn tw_reuse(readings: &Readings) -> Check {
    let subject = Subject { name: "net.ipv4.tcp_tw_reuse", unit: None, concerns: &[Churn] };
    let path = "/proc/sys/net/ipv4/tcp_tw_reuse";
    subject.judge(readings.files.number(path), "2 (loopback) or 1 (everywhere)", |reuse| {
        let what = port_count(readings).value().map_or_else(String::new, |ports| {
            format!(": {} connections/s for one client", count(ports / TIME_WAIT_S))
        });
        let what =
            format!("a client that closes first gets a port back after {TIME_WAIT_S} s{what}");
        Judgement::unless(*reuse > 0, what).mended_by(Remedy::sysctl("net.ipv4.tcp_tw_reuse", 2))
    })
}

fn fin_timeout() -> Sysctl {
    let name = "net.ipv4.tcp_fin_timeout";
    let unit = Some("s");
    Sysctl {
        subject: Subject { name, unit, concerns: &[Churn] },
        wanted: "at most 60 (the 2002 page: 15; it ends FIN_WAIT_2, not TIME_WAIT)".to_owned(),
        is_enough: |seconds| seconds <= 60,
        effect: |seconds| format!("half-closed connections of former runs stay for {seconds} s"),
        set: 15,
    }
}

/// `TCP: inuse 3 orphan 0 tw 0 alloc 3 mem 57`.
fn parse_time_wait(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "tw")?;
    words.next()?.parse().ok()
}

fn time_wait(readings: &Readings) -> Check {
    let path = "/proc/net/sockstat";
    let now = readings.files.text(path).parsed("/proc/net/sockstat has no tw", parse_time_wait);
    let found = now.and_then(|now| port_count(readings).map(|ports| (now, ports)));
    let most = port_count(readings).value().map_or(0, |ports| ports / 4);
    let subject = Subject { name: "time_wait_now", unit: Some("connections"), concerns: &[Churn] };
    let wanted = format!("below {}: a quarter of the ports", count(most));
    subject.judge(found.map(|(now, _)| now), wanted, |now| {
        let what = "ports and memory that former runs still hold";
        let wait = Remedy::of_command(format!("sleep {TIME_WAIT_S}"));
        Judgement::unless(*now < most, what).mended_by(wait)
    })
}

fn tcp_mem(readings: &Readings) -> Check {
    let path = "/proc/sys/net/ipv4/tcp_mem";
    let pages = readings.files.numbers(path).and_then(|levels| match levels[..] {
        [_, pressure, _] => Reading::Value(pressure),
        _ => Reading::unavailable(format!("{path} holds no three levels")),
    });
    let subject = Subject {
        name: "net.ipv4.tcp_mem_pressure",
        unit: Some("pages"),
        concerns: &[Dead, Sweep, Servers],
    };
    subject.judge(pages, count(TCP_PAGES), |pages| {
        let what = format!(
            "windows shrink once all connections hold {} MiB of data",
            count(pages * 4 / 1024)
        );
        let levels = format!("{} {} {}", TCP_PAGES * 3 / 4, TCP_PAGES, TCP_PAGES * 3 / 2);
        let remedy = Remedy::sysctl("net.ipv4.tcp_mem", levels);
        Judgement::unless(*pages >= TCP_PAGES, what).mended_by(remedy)
    })
}

/// An entry is made only where a rule asks for tracking; a count of 0 says that none does.
fn conntrack(readings: &Readings) -> Check {
    let max = "/proc/sys/net/netfilter/nf_conntrack_max";
    let tracked = "/proc/sys/net/netfilter/nf_conntrack_count";
    let name = "net.netfilter.nf_conntrack_max";
    let subject = Subject { name, unit: Some("entries"), concerns: &[Churn, Dead] };
    let wanted = format!("no tracking, or {}", count(TRACKED));
    if readings.files.is_absent(max) {
        let found = Reading::Value("not loaded".to_owned());
        return subject.judge(found, wanted, |_| Judgement::ok());
    }
    let tracked = readings.files.number(tracked).value().copied();
    subject.judge(readings.files.number(max), wanted, |max| {
        let what = format!("packets are dropped once {} connections are tracked", count(*max));
        let remedy = Remedy::sysctl(name, 4 * TRACKED);
        Judgement::unless(*max >= TRACKED || tracked == Some(0), what).mended_by(remedy)
    })
}

fn netdev_backlog() -> Sysctl {
    let name = "net.core.netdev_max_backlog";
    let unit = Some("packets");
    Sysctl {
        subject: Subject { name, unit, concerns: &[Servers, Descriptors, Churn] },
        wanted: count(PACKETS),
        is_enough: |max| max >= PACKETS,
        effect: |max| {
            format!("loopback drops a burst past {} packets; TCP then waits 200 ms", count(max))
        },
        set: 4 * PACKETS,
    }
}

/// Second column of each CPU's line, in hexadecimal.
fn parse_drops(softnet_stat: &str) -> Option<u64> {
    let column = |line: &str| line.split_ascii_whitespace().nth(1).map(str::to_owned);
    let drops = softnet_stat.lines().map(|line| u64::from_str_radix(&column(line)?, 16).ok());
    drops.sum::<Option<u64>>().filter(|_| !softnet_stat.is_empty())
}

fn drops(readings: &Readings) -> Check {
    let path = "/proc/net/softnet_stat";
    let found =
        readings.files.text(path).parsed("/proc/net/softnet_stat has no drops", parse_drops);
    let subject = Subject {
        name: "packets_dropped_since_boot",
        unit: Some("packets"),
        concerns: &[Servers, Descriptors, Churn],
    };
    // It never falls, so a limit that was fixed long ago would still be reported.
    subject.judge(found, "not judged: it counts since boot", |_| Judgement::ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let sockstat =
            "sockets: used 24\nTCP: inuse 3 orphan 0 tw 17 alloc 3 mem 57\nUDP: inuse 0\n";
        assert_eq!(parse_time_wait(sockstat), Some(17));
        assert_eq!(parse_time_wait("UDP: inuse 0 mem 0\n"), None);
        assert_eq!(parse_drops("00ab 0000000a 00\n00cd 00000001 00\n"), Some(11));
        assert_eq!(parse_drops(""), None);
        assert_eq!(parse_drops("00ab\n"), None);
    }
}
