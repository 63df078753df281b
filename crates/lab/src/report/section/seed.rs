//! Beside the seed: what a document published, ours at the same places, and whether they agree.
//!
//! Only for jobs that repeat a document. Absolute figures are shown and never compared: machines
//! and kernels lie between; what is judged is direction and shape, in `seeds::agree`.

use crate::record::Record;
use crate::report::markup::{Cell, Table, card, escape, notes, section};
use crate::report::number;
use crate::seeds::agree::Agreement;
use crate::seeds::{self, Beside, BesideSeries};

/// Whether the record's job repeats a document.
pub(crate) fn has_seed(record: &Record) -> bool {
    seeds::beside(record).is_some_and(|beside| !beside.series.is_empty())
}

/// The section; empty for other jobs.
pub(crate) fn seed(record: &Record) -> String {
    let Some(beside) = seeds::beside(record).filter(|beside| !beside.series.is_empty()) else {
        return String::new();
    };
    let remarks: Vec<String> = beside.seed.remarks.iter().map(|&remark| remark.into()).collect();
    let head = format!(
        "<h3>{}</h3><p>{}</p>{}<h4>What one should know of it</h4>{}",
        escape(beside.seed.title),
        escape(&summary(&beside)),
        settings(&beside),
        notes(&remarks)
    );
    let body = card(&head) + &card(&series_table(&beside));
    section("seed", &format!("beside seed {}", beside.seed.number), &body)
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

fn series_table(beside: &Beside) -> String {
    let mut table = Table::new(&["place", "#there", "#here", "why not, and whether they agree"]);
    for one in &beside.series {
        table.group(&format!("{} ({})", one.series.name, one.series.unit));
        for (place, ours) in one.series.places.iter().zip(&one.ours) {
            let theirs = match place.published {
                Some(value) => Cell::number(&number::si(value), value),
                None => Cell::missing("–", "its picture is lost"),
            };
            let (ours, why) = match ours {
                Ok(value) => (Cell::number(&number::si(*value), *value), ""),
                Err(why) => (Cell::missing("–", why), why.as_str()),
            };
            let why = Cell::text(why).class("wide dim");
            table.row(&[Cell::text(&number::axis_value(place.name)), theirs, ours, why]);
        }
        let class = match one.judgement.agreement {
            Agreement::Agrees => "wide good",
            Agreement::Differs => "wide bad",
            Agreement::InDirection | Agreement::Unknown => "wide open",
        };
        table.row(&[
            Cell::text(""),
            Cell::text(""),
            Cell::text(""),
            Cell::text(&verdict(one)).class(class),
        ]);
    }
    table.finish()
}
