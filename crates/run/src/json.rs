//! The figures for programs, under a name and version that they can check.

use pollux_loop_stats::{Counter, Figures, Histogram, events_of, time_of};
use serde_json::{Map, Value, json as value};

use crate::{Course, Findings, Source};

/// What the `schema` field says.
const SCHEMA: &str = "pollux-run";
/// What the `version` field says; it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// The ends of a bucket; the last one is open.
type BucketOf = fn(usize) -> (u64, Option<u64>);

/// One indented object. Times are nanoseconds where the name ends in `_ns`.
pub(crate) fn json(findings: &Findings, course: &Course) -> String {
    let summary = &findings.summary;
    let process = |process: &crate::Process| {
        let mut fields = figures(&process.figures, summary.source);
        fields.insert("pid".to_owned(), process.figures.pid.into());
        fields.insert("program".to_owned(), process.name().into());
        fields.insert("threads".to_owned(), process.threads.into());
        Value::Object(fields)
    };
    let advice = |advice: &crate::Advice| {
        value!({
            "kind": advice.kind,
            "measured": advice.measured,
            "remedy": advice.remedy,
            "place": advice.place,
        })
    };
    let document = value!({
        "schema": SCHEMA,
        "version": VERSION,
        "lasted_ns": u64::try_from(summary.lasted.as_nanos()).unwrap_or(u64::MAX),
        "threads_lost": summary.threads_lost,
        "programs_uncounted": summary.programs_uncounted,
        "source": summary.source.name(),
        "records_lost": summary.source.records_lost(),
        "unknown": unknown(summary.source),
        "total": summary.total.as_ref().map(|total| figures(total, summary.source)),
        "processes": summary.processes.iter().map(process).collect::<Vec<_>>(),
        "intervals": course.intervals(),
        "longest_turns": findings.turns,
        "advice": findings.advice.iter().map(advice).collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_string_pretty(&document).expect("plain data becomes JSON");
    text.push('\n');
    text
}

/// Why counters are null, by their names.
fn unknown(source: Source) -> Map<String, Value> {
    let unknown =
        |counter: &Counter| Some((counter.name().to_owned(), source.unknown(*counter)?.into()));
    Counter::ALL.iter().filter_map(unknown).collect()
}

fn figures(of: &Figures, source: Source) -> Map<String, Value> {
    let mut fields = Map::new();
    for counter in Counter::ALL {
        let value = source.unknown(*counter).is_none().then(|| of.get(*counter));
        fields.insert(counter.name().to_owned(), value.into());
    }
    for histogram in Histogram::ALL {
        let (bucket_of, unit): (BucketOf, _) = match histogram {
            Histogram::EventsPerWait => (events_of, ""),
            Histogram::TurnLength | Histogram::WaitLength => (time_of, "_ns"),
        };
        let bucket = |(index, count): (usize, &u64)| {
            let (from, to) = bucket_of(index);
            let mut fields = Map::new();
            fields.insert(format!("from{unit}"), from.into());
            fields.insert(format!("to{unit}"), to.into());
            fields.insert("count".to_owned(), (*count).into());
            Value::Object(fields)
        };
        let buckets: Vec<Value> = of.histogram(*histogram).iter().enumerate().map(bucket).collect();
        fields.insert(histogram.name().to_owned(), buckets.into());
    }
    fields
}
