//! Beside the seed: what a document published, ours at the same places, and whether they agree.
//!
//! Only for jobs that repeat a document. Absolute figures are shown and never compared: machines
//! and kernels lie between; what is judged is direction and shape, in `published::agree`.

use crate::published::agree::Agreement;
use crate::published::{self, Beside, BesideSeries};
use crate::record::Record;
use crate::report::markup::{Cell, Table, card, escape, notes, section};
use crate::report::number;
use crate::report::view::in_order;

/// Whether the record's job repeats a document.
pub(crate) fn has_seed(record: &Record) -> bool {
    published::beside(record).is_some()
}

/// The section; empty for other jobs.
pub(crate) fn seed(record: &Record) -> String {
    let Some(beside) = published::beside(record) else { return String::new() };
    let head = format!(
        "<h3>{}</h3><p>{}</p>{}<h4>What one should know of it</h4>{}",
        escape(&beside.document.title),
        escape(&summary(&beside)),
        settings(&beside),
        notes(&beside.document.remarks)
    );
    let body = card(&head) + &card(&overview(&beside));
    section("seed", &format!("beside seed {}", beside.document.number), &body)
}

/// How many agree, in one sentence.
pub(crate) fn summary(beside: &Beside) -> String {
    let [agree, in_direction, differ, unknown] = beside.tally();
    format!(
        "Of {} series that it published, {agree} agree in direction and shape, {in_direction} in \
         direction only, {differ} differ, {unknown} can't be told here.",
        beside.series.len()
    )
}

/// The verdict in words, as every form of the report says it.
pub(crate) fn verdict(one: &BesideSeries) -> String {
    let words = &one.judgement.words;
    match one.judgement.agreement {
        Agreement::Agrees => format!("agrees: {words}"),
        Agreement::InDirection => format!("agrees in direction only: {words}"),
        Agreement::Differs => format!("differs: {words}"),
        Agreement::Unknown => format!("can't be told here: {words}"),
    }
}

fn settings(beside: &Beside) -> String {
    let mut table = Table::new(&["", "there", "here"]);
    for (name, theirs, ours) in &beside.settings {
        table.row(&[
            Cell::text(name),
            Cell::text(theirs).class("wide"),
            Cell::text(ours).class("wide"),
        ]);
    }
    table.finish()
}

/// A line for each series, grouped by what it is told over.
fn overview(beside: &Beside) -> String {
    let mut table = Table::new(&["series", "there", "here", "direction and shape"]);
    let places = |one: &BesideSeries| {
        let names = one.series.places.iter().map(|place| number::axis_value(&place.name));
        names.collect::<Vec<_>>().join(" · ")
    };
    let all: Vec<String> = beside.series.iter().map(places).collect();
    for over in in_order(all.iter().map(String::as_str)) {
        table.group(over);
        for (one, _) in beside.series.iter().zip(&all).filter(|(_, places)| *places == over) {
            table.row(&line(one));
        }
    }
    table.finish() + &notes(&gaps(beside))
}

fn line(one: &BesideSeries) -> [Cell; 4] {
    let (theirs, ours) = figures(one);
    let class = match one.judgement.agreement {
        Agreement::Agrees => "wide good",
        Agreement::Differs => "wide bad",
        Agreement::InDirection | Agreement::Unknown => "wide open",
    };
    [
        Cell::text(&name(one)),
        Cell::text(&theirs),
        Cell::text(&ours),
        Cell::text(&verdict(one)).class(class),
    ]
}

/// The series with its unit, where its name has none.
pub(crate) fn name(one: &BesideSeries) -> String {
    let (name, unit) = (&one.series.name, &one.series.unit);
    match name.contains(unit.as_str()) {
        true => name.clone(),
        false => format!("{name} ({unit})"),
    }
}

/// Theirs and ours in the order of the places; a dash where there is none.
pub(crate) fn figures(one: &BesideSeries) -> (String, String) {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number::si);
    let theirs = one.series.places.iter().map(|place| shown(place.published));
    let ours = one.ours.iter().map(|ours| shown(ours.as_ref().ok().copied()));
    (theirs.collect::<Vec<_>>().join(" · "), ours.collect::<Vec<_>>().join(" · "))
}

/// Why figures of ours are missing: one line for each reason, with the places.
pub(crate) fn gaps(beside: &Beside) -> Vec<String> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in &beside.series {
        for (place, ours) in one.series.places.iter().zip(&one.ours) {
            let Err(reason) = ours else { continue };
            match found.iter_mut().find(|(known, _)| known == reason) {
                Some((_, places)) if places.contains(&&*place.name) => {}
                Some((_, places)) => places.push(&place.name),
                None => found.push((reason, vec![&*place.name])),
            }
        }
    }
    let line = |(reason, places): (&str, Vec<&str>)| {
        let places: Vec<String> = places.into_iter().map(number::axis_value).collect();
        format!("no figure here for {}: {reason}", places.join(", "))
    };
    found.into_iter().map(line).collect()
}
