//! Beside a published result: what a document published, ours at the same places, and whether they agree.
//!
//! Only for jobs that repeat a document. Absolute figures are shown and never compared: machines
//! and kernels lie between; what is judged is direction and shape, in `published::agree`.

use pollux_report::markup::{card, escape, notes, section};
use pollux_report::{Cell, Table, Tone};

use crate::published::checks::Outcome;
use crate::published::{self, Beside, BesideSeries};
use crate::record::Record;
use crate::report::number;
use crate::report::view::{grouped, in_order};
use crate::stats::agree::Agreement;

/// Whether the record's job repeats a document.
pub(crate) fn is_there(record: &Record) -> bool {
    published::beside(record).is_some()
}

/// The section; empty for other jobs.
pub(crate) fn published(record: &Record) -> String {
    let Some(beside) = published::beside(record) else { return String::new() };
    let head = format!(
        "<h3>{}</h3><p>{}</p>{}<h4>What one should know of it</h4>{}",
        escape(&beside.document.title),
        escape(&summary(&beside)),
        settings(&beside).html(),
        notes(&beside.document.remarks)
    );
    let mut body = card(&head) + &card(&(overview(&beside).html() + &notes(&gaps(&beside))));
    if !beside.checks.is_empty() {
        body += &card(&format!("<h3>Behaviours</h3>{}", checks(&beside).html()));
    }
    section("published", &format!("beside the published {}", beside.document.name), &body)
}

/// How many agree, in one sentence.
pub(crate) fn summary(beside: &Beside) -> String {
    let [agree, in_direction, differ, unknown] = beside.tally();
    format!(
        "Of {} series that it published, {agree} agree in direction and shape, {in_direction} in \
         direction only, {differ} differ, {unknown} unknown here.",
        beside.series.len()
    )
}

/// How it was measured, there and here.
pub(crate) fn settings(beside: &Beside) -> Table {
    let mut table = Table::new(["", "there", "here"]);
    for (name, theirs, ours) in &beside.settings {
        table.row([Cell::text(name), Cell::text(theirs).wide(), Cell::text(ours).wide()]);
    }
    table
}

/// A line for each behaviour that must show.
pub(crate) fn checks(beside: &Beside) -> Table {
    let mut table = Table::new(["row", "behaviour", "required", "here", "outcome"]);
    for (check, outcome) in &beside.checks {
        let (figure, words, tone) = match outcome {
            Outcome::Met(figure) => (number::si(*figure), "holds".to_owned(), Tone::Good),
            Outcome::Missed(figure) => {
                (number::si(*figure), "does not hold here".to_owned(), Tone::Bad)
            }
            Outcome::Unknown(reason) => ("n/a".to_owned(), reason.clone(), Tone::Open),
            Outcome::Held(by) => ("–".to_owned(), format!("held by {by}"), Tone::Open),
        };
        table.row([
            Cell::text(&check.row),
            Cell::text(&check.behaviour).wide(),
            Cell::text(&check.bound()),
            Cell::text(&figure),
            Cell::text(&words).wide().tone(tone),
        ]);
    }
    table
}

/// A line for each series, grouped by what it is a series over.
pub(crate) fn overview(beside: &Beside) -> Table {
    let mut table = Table::new(["series", "there", "here", "direction and shape"]);
    let places = |one: &BesideSeries| {
        let names = one.series.places.iter().map(|place| number::axis_value(&place.name));
        names.collect::<Vec<_>>().join(" · ")
    };
    for (over, series) in grouped(beside.series.iter().map(|one| (places(one), one))) {
        table.group(&over);
        series.into_iter().for_each(|one| table.row(line(one)));
    }
    table
}

fn line(one: &BesideSeries) -> [Cell; 4] {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number::si);
    let all = |values: Vec<String>| Cell::text(&values.join(" · "));
    let theirs = one.series.places.iter().map(|place| shown(place.published));
    let ours = one.ours.iter().map(|ours| shown(ours.as_ref().ok().copied()));
    let (said, tone) = match one.judgement.agreement {
        Agreement::Agrees => ("agrees", Tone::Good),
        Agreement::InDirection => ("agrees in direction only", Tone::Open),
        Agreement::Differs => ("differs", Tone::Bad),
        Agreement::Unknown => ("unknown here", Tone::Open),
    };
    let verdict = Cell::text(&format!("{said}: {}", one.judgement.words));
    let (theirs, ours) = (all(theirs.collect()), all(ours.collect()));
    [Cell::text(&name(one)), theirs, ours, verdict.wide().tone(tone)]
}

/// The series with its unit, where its name has none.
fn name(one: &BesideSeries) -> String {
    let (name, unit) = (&one.series.name, &one.series.unit);
    match name.contains(unit.as_str()) {
        true => name.clone(),
        false => format!("{name} ({unit})"),
    }
}

/// Why figures of ours are missing: one line for each reason, with the places.
pub(crate) fn gaps(beside: &Beside) -> Vec<String> {
    let places = beside.series.iter().flat_map(|one| one.series.places.iter().zip(&one.ours));
    let missing =
        places.filter_map(|(place, ours)| Some((ours.as_ref().err()?.as_str(), &*place.name)));
    let line = |(reason, places): (&str, Vec<&str>)| {
        let places = in_order(places.into_iter()).into_iter().map(number::axis_value);
        format!("no figure here for {}: {reason}", places.collect::<Vec<_>>().join(", "))
    };
    grouped(missing).into_iter().map(line).collect()
}
