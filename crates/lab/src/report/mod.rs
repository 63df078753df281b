//! Reports: what a reader sees of a run, each a pure function of the [`Record`].
//!
//! `pollux lab run` and `pollux lab report` call the three functions here. Nothing in this folder
//! measures, judges, reads a file or asks the host for anything: the same record gives the same
//! bytes on every machine, so a report can be made again from `result.json` alone.
//!
//! - [`html`]: one file for a browser, without network, complete without JavaScript;
//! - [`table`]: the summary for a terminal;
//! - [`markdown`]: the summary for the page of a CI step.
//!
//! Labels, reasons and commands of a record are foreign text: each form escapes them in its way.

mod chart;
mod section;
mod terminal;
mod view;
mod words;

use pollux_report::markup::escape;
use pollux_report::number;

use crate::record::Record;
use section::behind;
use view::{Arms, Comparison};

pub use terminal::markdown;
pub use terminal::table;

/// The record as one HTML file, in UTF-8.
///
/// The same record gives the same bytes. All text of the record is escaped, the record itself is
/// embedded as JSON in the script element with the id `record`.
#[must_use]
pub fn html(record: &Record) -> String {
    let arms = Arms::of(record);
    let comparisons = Comparison::all(record);
    let sections = [
        section::title(record),
        section::answers(&record.answers),
        section::trust(record),
        contents(record, &comparisons),
        section::results(record, &comparisons, &arms),
        behind::published(record),
        section::html(record, &arms),
        behind::times(record, &arms),
        behind::why(record, &arms),
        behind::runs(record, &arms),
        behind::sources(record),
        behind::left_out(record),
        behind::environment(record),
        behind::job(record),
    ];
    let data = behind::embedded(record);
    pollux_report::page_with_script(&record.job.question, &sections.concat(), &data)
}

/// Links to the sections.
fn contents(record: &Record, comparisons: &[Comparison<'_>]) -> String {
    let link = |(id, name): (String, String)| format!("<a href=\"#{id}\">{}</a>", escape(&name));
    let results = comparisons.iter().enumerate().map(|(index, comparison)| {
        let is_one_of_several = comparisons.iter().any(|other| {
            other.experiment == comparison.experiment && other.unit() != comparison.unit()
        });
        let name = match is_one_of_several {
            true => format!("{}, {}", comparison.title, comparison.unit()),
            false => comparison.title.clone(),
        };
        (format!("result-{index}"), name)
    });
    let mut fixed = vec![("published", "beside the published result", behind::is_there(record))];
    fixed.extend(
        section::there(record).into_iter().map(|section| (section.id, section.title, true)),
    );
    fixed.push(("times", "inside the server", behind::has_times(record)));
    fixed.push(("why", "why", !record.why.is_empty() || !record.counting.is_empty()));
    fixed.push(("runs", "every run", !record.runs.is_empty()));
    fixed.push(("unread", "could not be read", true));
    fixed.push(("left-out", "left out", !record.left_out.is_empty() || !record.cuts.is_empty()));
    fixed.push(("environment", "environment", true));
    fixed.push(("job", "repeat it", true));
    let there = fixed.into_iter().filter(|(.., is_there)| *is_there);
    let links: Vec<_> = results
        .chain(there.map(|(id, name, _)| (id.to_owned(), name.to_owned())))
        .map(link)
        .collect();
    format!("<nav>{}</nav>\n", links.join(" "))
}
