//! What a running pool has: workers, services, queues, clients.

use std::process::ExitCode;

use pollux_settings::command::output::{self, Failure};
use pollux_xatmi::control::{
    Answer, ClientRow, Control, PoolInfo, QueueRow, Request, ServiceRow, WorkerRow,
};
use pollux_xatmi::environment::Transport;
use serde::Serialize;

use crate::{SILENCE, asked, connect};

pub(crate) fn workers(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Ps, |answer| match answer {
        Answer::Workers(rows) => rows,
        _ => Vec::new(),
    })?;
    let columns: [Column<WorkerRow>; 13] = [
        words("PROGRAM", |row| row.program.clone()),
        number("SRVID", |row| row.srvid.to_string()),
        number("PID", |row| row.pid.map_or_else(dash, |pid| pid.to_string())),
        words("STATE", |row| if row.is_busy { "busy".to_owned() } else { row.state.clone() }),
        number("RESTARTS", |row| row.restarts.to_string()),
        number("SINCE", |row| time(row.since_s)),
        words("SERVICE", |row| row.service.clone().unwrap_or_else(dash)),
        number("FOR", |row| row.busy_ms.map_or_else(dash, within)),
        number("CALLS", |row| row.calls.to_string()),
        number("FAILED", |row| row.failed.to_string()),
        number("LATE", |row| row.late.to_string()),
        number("DROPPED", |row| row.dropped.to_string()),
        words("CAUSE", trouble),
    ];
    print(json, &rows[..], |rows| table(&columns, rows))
}

/// Why a worker is not up, and when it is tried again; of interest until it is well again.
fn trouble(row: &WorkerRow) -> String {
    let cause = row.cause.as_deref().filter(|_| row.state != "up").unwrap_or_default();
    match row.next_start_s {
        Some(seconds) => {
            let failures = row.failures;
            let pause = time(seconds);
            format!("{cause}; failure {failures} in a row, next start in {pause}")
        }
        None => cause.to_owned(),
    }
}

pub(crate) fn services(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Services, |answer| match answer {
        Answer::Services(rows) => rows,
        _ => Vec::new(),
    })?;
    let columns: [Column<ServiceRow>; 9] = [
        words("SERVICE", |row| row.service.clone()),
        words("FUNCTION", |row| row.function.clone()),
        words("PROGRAM", |row| row.program.clone()),
        number("SRVID", |row| row.srvid.to_string()),
        number("OK", |row| row.ok.to_string()),
        number("FAILED", |row| row.failed.to_string()),
        number("MAX MS", |row| milliseconds(row.max_ns)),
        number("LAST MS", |row| milliseconds(row.last_ns)),
        words("STATE", |row| row.state.clone()),
    ];
    print(json, &rows[..], |rows| table(&columns, rows))
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
    let columns: [Column<QueueRow>; 8] = [
        words(if is_by_name { "QUEUE" } else { "SERVICE" }, |row| {
            row.queue.clone().unwrap_or_else(|| row.service.clone())
        }),
        number("WAITING", |row| row.depth.to_string()),
        number("AVERAGE", |row| {
            row.average.map_or_else(|| "n/a".to_owned(), |average| format!("{average:.1}"))
        }),
        number("CAPACITY", |row| row.depth_max.to_string()),
        number("BYTES", |row| row.message_len_bytes.to_string()),
        number("WORKERS", |row| row.workers.to_string()),
        number("IDLE", |row| row.idle.to_string()),
        number("BUSY", |row| row.busy.to_string()),
    ];
    let text = |rows: &[QueueRow]| {
        let mut text = table(&columns, rows);
        if rows.iter().any(|row| row.average.is_none()) {
            text += "n/a: averages need <gather_pq_stats>Y</gather_pq_stats>, and a check cycle\n";
        }
        text
    };
    print(json, &rows[..], text)
}

/// The client contexts.
pub(crate) fn clients(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Clients, |answer| match answer {
        Answer::Clients(rows) => rows,
        _ => Vec::new(),
    })?;
    let is_by_queues = rows.iter().any(|row| row.queue.is_some());
    let last: Column<ClientRow> = if is_by_queues {
        words("REPLY QUEUE", |row| row.queue.clone().unwrap_or_else(dash))
    } else {
        number("REQUESTS", |row| row.requests.map_or_else(dash, |requests| requests.to_string()))
    };
    let columns = [
        words("PROGRAM", |row: &ClientRow| row.program.clone().unwrap_or_else(dash)),
        number("PID", |row| row.pid.to_string()),
        number("CONTEXT", |row| row.context.to_string()),
        number("SINCE", |row| time(row.since_s)),
        last,
    ];
    print(json, &rows[..], |rows| table(&columns, rows))
}

/// The pool itself.
pub(crate) fn info(json: bool) -> Result<ExitCode, Failure> {
    let rows = gather(&Request::Info, |answer| match answer {
        Answer::Info(info) => vec![*info],
        _ => Vec::new(),
    })?;
    let info = rows.first().ok_or_else(|| Failure::failed("the manager said nothing of itself"))?;
    print(json, info, facts)
}

fn facts(info: &PoolInfo) -> String {
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

/// Prints what a command found, as JSON or as a text for people.
pub(crate) fn print<T: Serialize + ?Sized>(
    json: bool,
    found: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<ExitCode, Failure> {
    let json = json.then(|| serde_json::to_string_pretty(found).map_err(Failure::failed));
    output::result(&json.transpose()?.unwrap_or_else(|| text(found)))?;
    Ok(ExitCode::SUCCESS)
}

/// A column for the terminal: its heading, whether its cells stand to the right, and the cell of a row.
struct Column<R> {
    heading: &'static str,
    is_number: bool,
    cell: fn(&R) -> String,
}

const fn words<R>(heading: &'static str, cell: fn(&R) -> String) -> Column<R> {
    Column { heading, is_number: false, cell }
}

const fn number<R>(heading: &'static str, cell: fn(&R) -> String) -> Column<R> {
    Column { heading, is_number: true, cell }
}

/// What stands for something that is not there.
fn dash() -> String {
    "-".to_owned()
}

/// The rows as text; columns are as wide as their widest cell.
fn table<R>(columns: &[Column<R>], rows: &[R]) -> String {
    let headings = columns.iter().map(|column| column.heading.to_owned()).collect();
    let cells = |row: &R| columns.iter().map(|column| (column.cell)(row)).collect();
    let lines: Vec<Vec<String>> = std::iter::once(headings).chain(rows.iter().map(cells)).collect();
    let width = |index: usize| lines.iter().map(|line| line[index].chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).filter_map(width).collect();
    let mut text = String::new();
    for cells in &lines {
        let mut line = String::new();
        for ((cell, column), width) in cells.iter().zip(columns).zip(&widths) {
            let pad = " ".repeat(width - cell.chars().count());
            let (before, after) = if column.is_number { (&*pad, "") } else { ("", &*pad) };
            line += &format!("{before}{cell}{after}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Nanoseconds as milliseconds with three digits behind the point.
fn milliseconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// Milliseconds as such below a second, else as [`time`] has them.
fn within(ms: u64) -> String {
    if ms < 1000 { format!("{ms}ms") } else { time(ms / 1000) }
}

/// Seconds in the largest units that say it: `47s`, `12m03s`, `3h05m`, `2d04h`.
fn time(seconds: u64) -> String {
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = seconds / 86_400;
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
        let columns: [Column<(&str, u32)>; 2] =
            [words("NAME", |row| row.0.to_owned()), number("N", |row| row.1.to_string())];
        let text = table(&columns, &[("a", 1), ("bcdef", 22)]);
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
