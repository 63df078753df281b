//! What a card says beside its choice: what to do, and what that saves. From the rows that the answer rests on, so that
//! page, terminal and summary have the same figures as the table.

use pollux_engine::Driver;
use pollux_report::number::{self, NA};
use pollux_stats::SETS_MIN;

use super::words;
use crate::record::{Answer, Record, ResultRow, Verdict};

/// What to do about one kind of load.
pub(super) struct Advice {
    /// `change nothing`, `--poller uring`.
    pub(super) action: String,
    /// The figures of what it names, and the saving.
    pub(super) figures: String,
    /// Whether anything was decided.
    pub(super) is_decided: bool,
}

/// Of an answer that rests on rows of the record.
pub(super) fn of(record: &Record, answer: &Answer) -> Option<Advice> {
    let [experiment, point] = answer.place.as_ref()?;
    let is_here = |row: &&ResultRow| row.experiment == *experiment && row.point == *point;
    let rows: Vec<&ResultRow> = record.results.iter().filter(is_here).collect();
    let baseline = *rows.iter().find(|row| row.verdict == Verdict::Baseline)?;
    let default = of_default(&rows, baseline, &answer.better);
    let better: Vec<&ResultRow> = answer
        .better
        .iter()
        .filter_map(|arm| rows.iter().find(|row| row.arm == *arm))
        .copied()
        .collect();
    if better.is_empty() {
        let open = rows.iter().filter(|row| row.verdict == Verdict::Inconclusive).count();
        let is_decided = open == 0 || answer.choice == baseline.arm;
        let own = figure(baseline.value?, &baseline.unit);
        let nothing = if is_decided {
            "nothing that was measured saves anything that counts"
        } else {
            "nothing else was shown to save anything yet"
        };
        let figures = [Some(format!("{}: {own}; {nothing}", baseline.arm)), default];
        let figures = figures.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let action = if is_decided { "change nothing" } else { "change nothing yet" };
        return Some(Advice { action: action.to_owned(), figures, is_decided });
    }
    let savings = better.iter().filter_map(|row| saving(row, baseline));
    let figures: Vec<String> = savings.chain(default).collect();
    Some(Advice {
        action: action(&better, baseline),
        figures: figures.join("; "),
        is_decided: true,
    })
}

/// Whether what a server of pollux takes by itself is right for a load at which it was measured.
fn of_default(rows: &[&ResultRow], baseline: &ResultRow, better: &[String]) -> Option<String> {
    let preferred = Driver::PREFERRED[0];
    let row = rows.iter().find(|row| row.arm.parse().ok() == Some(preferred))?;
    let name = format!("{preferred}, what pollux takes by itself,");
    if row.arm == baseline.arm {
        let is_beaten = !better.is_empty();
        return Some(format!(
            "{name} {}",
            if is_beaten { "is beaten here" } else { "is right here" }
        ));
    }
    let is_small = row.is_small_difference();
    Some(match row.verdict {
        // The flag says so.
        _ if better.contains(&row.arm) => return None,
        Verdict::Faster | Verdict::Equivalent if !better.is_empty() => {
            format!("{name} is dearer here than {}", better.join(" or "))
        }
        Verdict::Faster | Verdict::Equivalent => format!("{name} is right here"),
        Verdict::Slower if is_small => format!("{name} is right here within what counts"),
        Verdict::Slower => {
            let ratio = words::ratio_and_interval(row);
            format!("{name} is wrong here: {ratio} times {}", baseline.arm)
        }
        Verdict::Failed => format!("{name} failed here"),
        _ => format!("whether {name} is right here is open"),
    })
}

/// The flag for a mechanism of ours, the name for anything else.
fn action(better: &[&ResultRow], baseline: &ResultRow) -> String {
    let names: Vec<&str> = better.iter().map(|row| row.arm.as_str()).collect();
    let are_ours =
        names.iter().chain([&baseline.arm.as_str()]).all(|name| name.parse::<Driver>().is_ok());
    if !are_ours {
        return format!("{} in place of {}", names.join(" or "), baseline.arm);
    }
    let preferred = Driver::PREFERRED[0];
    let flag = |name: &&str| {
        let is_default = name.parse() == Ok(preferred);
        let remark = if is_default { " (what pollux serve takes by itself)" } else { "" };
        format!("--poller {name}{remark}")
    };
    names.iter().map(flag).collect::<Vec<_>>().join(" or ")
}

/// What one arm costs by its ratio to the baseline, and what it saves: `uring: 22.2 µs/request, saves 4.3 [3.9, 4.6] of
/// 26.5`.
fn saving(row: &ResultRow, baseline: &ResultRow) -> Option<String> {
    let base = baseline.value?;
    let ratio = row.ratio?;
    let own = figure(base * ratio, &row.unit);
    let of = plain(base, &row.unit);
    let change = |ratio: f64| plain((base * (1.0 - ratio)).abs(), &row.unit);
    let verb = if row.more_is_better { "gains" } else { "saves" };
    let bounds = row.ci_low.zip(row.ci_high).filter(|_| row.blocks >= SETS_MIN);
    let interval = bounds.map(|(low, high)| {
        let (least, most) = if row.more_is_better { (low, high) } else { (high, low) };
        format!(" [{}, {}]", change(least), change(most))
    });
    let interval = interval.unwrap_or_default();
    Some(format!("{}: {own}, {verb} {}{interval} of {of}", row.arm, change(ratio)))
}

/// A value with its unit, in the unit of the table, so that a card and its row show the same number.
fn figure(value: f64, unit: &str) -> String {
    format!("{} {unit}", plain(value, unit))
}

/// The same without the unit.
fn plain(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        NA.to_owned()
    } else if unit.starts_with("ns/") {
        number::nanoseconds(value)
    } else if words::is_cost(unit) {
        number::significant(value)
    } else {
        number::si(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::row_in_turns;

    fn said(rows: Vec<ResultRow>, better: &[&str], choice: &str) -> (String, String, bool) {
        let place = Some([rows[0].experiment.clone(), rows[0].point.clone()]);
        let better = better.iter().map(|arm| (*arm).to_owned()).collect();
        let answer = Answer { place, better, choice: choice.to_owned(), ..Answer::default() };
        let mut record = Record::empty();
        record.results = rows;
        let Advice { action, figures, is_decided } = of(&record, &answer).expect("rows");
        (action, figures, is_decided)
    }

    fn row(arm: &str, verdict: Verdict, interval: [f64; 3]) -> ResultRow {
        let row = row_in_turns(arm, verdict).with_interval(interval);
        ResultRow { unit: "µs/request".to_owned(), value: Some(5.1), ..row }
    }

    fn baseline() -> ResultRow {
        row("epoll", Verdict::Baseline, [1.0; 3])
    }

    #[test]
    fn the_winner_has_its_own_figure_the_flag_and_the_saving() {
        let uring_poll = row("uring-poll", Verdict::Faster, [0.94, 0.93, 0.95]);
        let (action, figures, is_decided) =
            said(vec![baseline(), uring_poll.clone()], &["uring-poll"], "uring-poll");
        assert_eq!(action, "--poller uring-poll");
        assert_eq!(figures, "uring-poll: 4.79 µs/request, saves 0.306 [0.255, 0.357] of 5.10");
        assert!(is_decided);
        let uring = row("uring", Verdict::Faster, [0.94, 0.93, 0.95]);
        let both = said(
            vec![baseline(), uring_poll, uring],
            &["uring-poll", "uring"],
            "uring-poll or uring",
        );
        assert_eq!(
            both.0,
            "--poller uring-poll or --poller uring (what pollux serve takes by itself)"
        );
        assert!(both.1.contains("; uring: 4.79"), "{}", both.1);
        let own = row("node", Verdict::Faster, [0.5, 0.4, 0.6]);
        let go = ResultRow { baseline: "go".to_owned(), arm: "go".to_owned(), ..baseline() };
        assert_eq!(said(vec![go, own], &["node"], "node").0, "node in place of go");
    }

    #[test]
    fn what_pollux_takes_by_itself_is_called_right_or_wrong() {
        let uring = |verdict, interval| row("uring", verdict, interval);
        let faster = row("epoll-et", Verdict::Faster, [0.90, 0.89, 0.91]);
        let of = |rows: Vec<ResultRow>, better: &[&str]| said(rows, better, "x").1;
        let equal = uring(Verdict::Equivalent, [1.0, 0.995, 1.005]);
        let right = of(vec![baseline(), equal.clone()], &[]);
        assert!(right.ends_with("; uring, what pollux takes by itself, is right here"), "{right}");
        let beaten = of(vec![baseline(), faster, equal], &["epoll-et"]);
        assert!(beaten.ends_with(", is dearer here than epoll-et"), "{beaten}");
        let wrong = of(vec![baseline(), uring(Verdict::Slower, [1.5, 1.4, 1.6])], &[]);
        assert!(wrong.ends_with(", is wrong here: 1.500 [1.400, 1.600] times epoll"), "{wrong}");
        let open = of(vec![baseline(), uring(Verdict::Inconclusive, [1.0, 0.9, 1.1])], &[]);
        assert!(
            open.ends_with("; whether uring, what pollux takes by itself, is right here is open")
        );
        let own = of(vec![baseline(), uring(Verdict::Faster, [0.9, 0.89, 0.91])], &["uring"]);
        assert!(!own.contains("by itself"), "the flag says so: {own}");
    }

    #[test]
    fn where_nothing_is_better_nothing_is_changed() {
        let slower = row("select", Verdict::Slower, [2.0, 1.9, 2.1]);
        let (action, figures, is_decided) = said(vec![baseline(), slower], &[], "epoll");
        assert_eq!((action.as_str(), is_decided), ("change nothing", true));
        assert_eq!(
            figures,
            "epoll: 5.10 µs/request; nothing that was measured saves anything that counts"
        );
        let open = row("poll", Verdict::Inconclusive, [1.0, 0.8, 1.2]);
        let (action, figures, is_decided) = said(vec![baseline(), open], &[], "not decided");
        assert_eq!(action, "change nothing yet");
        assert_eq!(figures, "epoll: 5.10 µs/request; nothing else was shown to save anything yet");
        assert!(!is_decided);
    }
}
