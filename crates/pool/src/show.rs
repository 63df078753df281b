//! What a running pool has: workers, services, queues, clients.

use std::process::ExitCode;

use pollux_command::output::{self, Failure};
use pollux_xatmi::control::{
    Answer, ClientRow, Control, PoolInfo, QueueRow, Request, ServiceRow, WorkerRow,
};
use pollux_xatmi::environment::Transport;
use serde::Serialize;

use crate::{SILENCE, asked, connect};

/// The workers.
pub(crate) fn workers(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Ps, |answer| match answer {
        Answer::Workers(rows) => rows,
        _ => Vec::new(),
    })?;
    let columns = [
        words("PROGRAM"),
        number("SRVID"),
        number("PID"),
        words("STATE"),
        number("RESTARTS"),
        number("SINCE"),
        number("CALLS"),
        number("FAILED"),
        number("LATE"),
        number("DROPPED"),
        words("CAUSE"),
    ];
    let cells = |row: &WorkerRow| {
        let state = if row.is_busy { "busy" } else { row.state.as_str() };
        vec![
            row.program.clone(),
            row.srvid.to_string(),
            row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            state.to_owned(),
            row.restarts.to_string(),
            time(row.since_s),
            row.calls.to_string(),
            row.failed.to_string(),
            row.late.to_string(),
            row.dropped.to_string(),
            trouble(row),
        ]
    };
    show(json, &rows, |rows| table(&columns, &rows.iter().map(cells).collect::<Vec<_>>()))
}

/// Why a worker is not up, and when it is tried again; of interest until it is well again.
fn trouble(row: &WorkerRow) -> String {
    let cause = row.cause.as_deref().filter(|_| row.state != "up").unwrap_or_default();
    match row.next_start_s {
        Some(seconds) => {
            let (failures, pause) = (row.failures, time(seconds));
            format!("{cause}; failure {failures} in a row, next start in {pause}")
        }
        None => cause.to_owned(),
    }
}

/// The services.
pub(crate) fn services(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Services, |answer| match answer {
        Answer::Services(rows) => rows,
        _ => Vec::new(),
    })?;
    let columns = [
        words("SERVICE"),
        words("FUNCTION"),
        words("PROGRAM"),
        number("SRVID"),
        number("OK"),
        number("FAILED"),
        number("MAX MS"),
        number("LAST MS"),
        words("STATE"),
    ];
    let cells = |row: &ServiceRow| {
        vec![
            row.service.clone(),
            row.function.clone(),
            row.program.clone(),
            row.srvid.to_string(),
            row.ok.to_string(),
            row.failed.to_string(),
            milliseconds(row.max_ns),
            milliseconds(row.last_ns),
            row.state.clone(),
        ]
    };
    show(json, &rows, |rows| table(&columns, &rows.iter().map(cells).collect::<Vec<_>>()))
}

/// What the pool says of itself; none where it does not answer.
pub(crate) fn info_of(control: &mut Control) -> Option<PoolInfo> {
    let mut info = None;
    let asked = control.ask(&Request::Info, SILENCE, |answer| {
        if let Answer::Info(said) = answer {
            info = Some(*said);
        }
    });
    asked.ok().and(info)
}

/// The queues of the services, or their rings in shared memory.
pub(crate) fn queues(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Queues, |answer| match answer {
        Answer::Queues(rows) => rows,
        _ => Vec::new(),
    })?;
    // In shared memory a ring has no name but that of its service.
    let is_by_name = rows.iter().any(|row| row.queue.is_some());
    let columns = [
        words(if is_by_name { "QUEUE" } else { "SERVICE" }),
        number("WAITING"),
        number("AVERAGE"),
        number("CAPACITY"),
        number("BYTES"),
        number("WORKERS"),
        number("IDLE"),
        number("BUSY"),
    ];
    let cells = |row: &QueueRow| {
        vec![
            row.queue.clone().unwrap_or_else(|| row.service.clone()),
            row.depth.to_string(),
            row.average.map_or_else(|| "n/a".to_owned(), |average| format!("{average:.1}")),
            row.depth_max.to_string(),
            row.message_len_bytes.to_string(),
            row.workers.to_string(),
            row.idle.to_string(),
            row.busy.to_string(),
        ]
    };
    let text = |rows: &[QueueRow]| {
        let mut text = table(&columns, &rows.iter().map(cells).collect::<Vec<_>>());
        if rows.iter().any(|row| row.average.is_none()) {
            text += "n/a: averages need <gather_pq_stats>Y</gather_pq_stats>, and a check cycle\n";
        }
        text
    };
    show(json, &rows, text)
}

/// The client contexts.
pub(crate) fn clients(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Clients, |answer| match answer {
        Answer::Clients(rows) => rows,
        _ => Vec::new(),
    })?;
    let is_by_queues = rows.iter().any(|row| row.queue.is_some());
    let last = if is_by_queues { words("REPLY QUEUE") } else { number("REQUESTS") };
    let columns = [words("PROGRAM"), number("PID"), number("CONTEXT"), number("SINCE"), last];
    let cells = |row: &ClientRow| {
        vec![
            row.program.clone().unwrap_or_else(|| "-".to_owned()),
            row.pid.to_string(),
            row.context.to_string(),
            time(row.since_s),
            row.queue.clone().unwrap_or_else(|| {
                row.requests.map_or_else(|| "-".to_owned(), |requests| requests.to_string())
            }),
        ]
    };
    show(json, &rows, |rows| table(&columns, &rows.iter().map(cells).collect::<Vec<_>>()))
}

/// The pool itself.
pub(crate) fn info(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Info, |answer| match answer {
        Answer::Info(info) => vec![*info],
        _ => Vec::new(),
    })?;
    let info = rows.first().ok_or_else(|| Failure::failed("the manager said nothing of itself"))?;
    if json {
        let text = serde_json::to_string_pretty(info).map_err(Failure::failed)?;
        output::result(&text)?;
    } else {
        output::result(&facts(info))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn facts(info: &PoolInfo) -> String {
    let dash = || "-".to_owned();
    let state = if info.is_learning { "awaits workers of an earlier manager" } else { "manages" };
    let facts = [
        ("prefix", info.prefix.clone()),
        ("manager", format!("process {}, since {}, {state}", info.pid, time(info.since_s))),
        ("configuration", info.config.clone()),
        (
            "requests",
            Transport::named(&info.transport)
                .map_or_else(dash, |known| known.in_words().to_owned()),
        ),
        ("a message wakes", info.wake.clone()),
        ("log", info.log.clone().unwrap_or_else(|| "standard error".to_owned())),
        ("metrics", info.metrics.clone().unwrap_or_else(dash)),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value));
    let counts = info.counts.iter().map(|(name, n)| (name.replace('_', " "), n.to_string()));
    let lines = facts.into_iter().chain(counts);
    lines.map(|(name, value)| format!("{name:<22} {value}\n")).collect()
}

fn gather<R>(request: &Request, rows_of: impl Fn(Answer) -> Vec<R>) -> Result<Vec<R>, Failure> {
    let mut rows = Vec::new();
    let asked_for = connect()?.ask(request, SILENCE, |answer| rows.extend(rows_of(answer)));
    asked_for.map_err(|error| asked(&error))?;
    Ok(rows)
}

fn show<R: Serialize>(
    json: bool,
    rows: &[R],
    text: impl Fn(&[R]) -> String,
) -> Result<ExitCode, Failure> {
    if json {
        output::result(&serde_json::to_string_pretty(rows).map_err(Failure::failed)?)?;
    } else {
        output::result(&text(rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

// Columns for the terminal: as wide as their widest cell, numbers to the right.

/// A column: its heading, and whether its cells stand to the right.
pub(crate) struct Column {
    heading: &'static str,
    is_number: bool,
}

/// A column of words.
pub(crate) const fn words(heading: &'static str) -> Column {
    Column { heading, is_number: false }
}

/// A column of numbers.
pub(crate) const fn number(heading: &'static str) -> Column {
    Column { heading, is_number: true }
}

/// The table as text. Each row has a cell for each column.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let width = |index: usize| {
        let cells = rows.iter().map(|row: &Vec<String>| row[index].chars().count());
        cells.chain([columns[index].heading.len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut text = String::new();
        for ((cell, column), width) in cells.iter().zip(columns).zip(&widths) {
            let pad = " ".repeat(width - cell.chars().count());
            let (before, after) = if column.is_number { (&*pad, "") } else { ("", &*pad) };
            text += &format!("{before}{cell}{after}  ");
        }
        format!("{}\n", text.trim_end())
    };
    let headings: Vec<String> = columns.iter().map(|column| column.heading.to_owned()).collect();
    let mut text = line(&headings);
    for row in rows {
        text += &line(row);
    }
    text
}

/// Nanoseconds as milliseconds with three digits behind the point.
pub(crate) fn milliseconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// Seconds in the largest units that say it: `47s`, `12m03s`, `3h05m`, `2d04h`.
pub(crate) fn time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["a".to_owned(), "1".to_owned()], vec!["bcdef".to_owned(), "22".to_owned()]];
        let text = table(&[words("NAME"), number("N")], &rows);
        assert_eq!(text, "NAME    N\na       1\nbcdef  22\n");
    }

    #[test]
    fn times_have_two_units() {
        let texts = [0, 59, 60, 723, 3599, 3600, 11_100, 86_399, 187_200].map(time);
        let wanted =
            ["0s", "59s", "1m00s", "12m03s", "59m59s", "1h00m", "3h05m", "23h59m", "2d04h"];
        assert_eq!(texts, wanted);
        assert_eq!(milliseconds(1_234_567), "1.235");
    }
}
