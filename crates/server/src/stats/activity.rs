//! What the control socket says: a table of all counters, and the facts of the server.
//!
//! Pure functions over an [`Overview`].

use std::fmt::Write;

use pollux_engine::{CloseCause, Counter};

use pollux_poller::CountersSnapshot;

use super::{LoopSource, Overview};
use crate::counters::{CLASSES, METHODS, REFUSALS, ServerCounter};
use crate::proxy::{Fault, ProxyCounter, ProxyCounters};

/// Why there are no counters of a poller.
const NO_POLLER: &str = "n/a (the completion loop has no poller)";

/// Every counter that is not 0 in all loops, summed up and for each loop.
#[must_use]
pub fn activity(overview: &Overview) -> String {
    let mut table = Table { text: String::new(), loops: &overview.loops };
    table.head();
    table.row("connections open", |source| source.engine.open());
    for &counter in Counter::ALL {
        table.row(&format!("loop {}", counter.name()), |source| source.engine.value(counter));
    }
    for &cause in CloseCause::ALL {
        table.row(&format!("closed {}", cause.name()), |source| source.engine.closed(cause));
    }
    table.poller();
    for (place, method) in METHODS.iter().enumerate() {
        table.row(&format!("requests {method}"), |source| source.server.requests(place));
    }
    for (place, class) in CLASSES.iter().enumerate() {
        table.row(&format!("answers {class}"), |source| source.server.answers(place));
    }
    for place in 0..=REFUSALS.len() {
        let status = REFUSALS.get(place).map_or_else(|| "other".to_owned(), u16::to_string);
        table.row(&format!("refused {status}"), |source| source.server.refused(place));
    }
    for counter in ServerCounter::ALL {
        table.row(&format!("http {}", counter.name()), |source| source.server.value(counter));
    }
    let of = |source: &LoopSource, read: &dyn Fn(&ProxyCounters) -> u64| {
        source.proxy.as_deref().map_or(0, read)
    };
    for &counter in ProxyCounter::ALL {
        let name = format!("proxy {}", counter.name());
        table.row(&name, |source| of(source, &|proxy| proxy.value(counter)));
    }
    for (place, fault) in Fault::ALL.into_iter().enumerate() {
        let name = format!("fault {}", fault.name());
        table.row(&name, |source| of(source, &|proxy| proxy.faults(place)));
    }
    table.text
}

/// What the server is and how it was configured.
#[must_use]
pub fn info(overview: &Overview) -> String {
    let uptime = jiff::SignedDuration::from_secs(
        i64::try_from(overview.started.elapsed().as_secs()).unwrap_or(i64::MAX),
    );
    let mut text = format!(
        "name: pollux\nversion: {}\npid: {}\nuptime: {uptime:#}\npoller: {}\nloops: {}\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        overview.driver,
        overview.loops.len(),
    );
    let facts = overview.facts.lock().expect("nothing panics under this lock");
    for (name, value) in facts.iter().chain(&overview.notes) {
        writeln!(text, "{name}: {value}").expect("a string");
    }
    text
}

struct Table<'a> {
    text: String,
    loops: &'a [LoopSource],
}

impl Table<'_> {
    fn head(&mut self) {
        write!(self.text, "{:<28}{:>16}", "counter", "sum").expect("a string");
        for index in 0..self.loops.len() {
            write!(self.text, "{:>16}", format!("loop {index}")).expect("a string");
        }
        self.text.push('\n');
    }

    fn row(&mut self, name: &str, read: impl Fn(&LoopSource) -> u64) {
        let values: Vec<u64> = self.loops.iter().map(read).collect();
        self.values(name, &values);
    }

    fn values(&mut self, name: &str, values: &[u64]) {
        if values.iter().all(|value| *value == 0) {
            return;
        }
        write!(self.text, "{name:<28}{:>16}", values.iter().sum::<u64>()).expect("a string");
        for value in values {
            write!(self.text, "{value:>16}").expect("a string");
        }
        self.text.push('\n');
    }

    fn poller(&mut self) {
        let snapshots: Option<Vec<_>> =
            self.loops.iter().map(|source| Some(source.poller.as_ref()?.snapshot())).collect();
        let Some(snapshots) = snapshots else {
            writeln!(self.text, "{:<28}{NO_POLLER}", "poller").expect("a string");
            return;
        };
        let names = snapshots.first().map(CountersSnapshot::named).unwrap_or_default();
        for (place, (name, _)) in names.into_iter().enumerate() {
            let values: Vec<u64> = snapshots.iter().map(|s| s.named()[place].1).collect();
            self.values(&format!("poller {name}"), &values);
        }
    }
}
