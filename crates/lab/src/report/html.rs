//! The page: one file for a browser, made of the sections in reading order.
//!
//! Called through `report::html`.

use pollux_report::markup::escape;

use super::section::{behind, beside, head, machine, own, results};
use super::view::{Arms, Comparison};
use crate::record::Record;

/// The record as one HTML file, in UTF-8.
///
/// The same record gives the same bytes. All text of the record is escaped, the record itself is
/// embedded as JSON in the script element with the id `record`.
#[must_use]
pub fn html(record: &Record) -> String {
    let arms = Arms::of(record);
    let comparisons = Comparison::all(record);
    let sections = [
        head::title(record),
        head::answers(&record.answers),
        head::trust(record),
        contents(record, &comparisons),
        results::results(record, &comparisons, &arms),
        beside::published(record),
        own::html(record, &arms),
        behind::times(record, &arms),
        behind::why(record, &arms),
        behind::runs(record, &arms),
        machine::sources(record),
        machine::left_out(record),
        machine::environment(record),
        machine::job(record),
    ];
    let data = machine::embedded(record);
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
    let mut fixed = vec![("published", "beside the published result", beside::is_there(record))];
    fixed.extend(own::there(record).into_iter().map(|section| (section.id, section.title, true)));
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
