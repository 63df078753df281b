//! What a document's subject must do, row by row: bounds on figures of a record, or where it is held.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::document::Document;
use crate::record::{Measurement, Record, ResultRow};

/// A row of what must hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    /// Names of the rows in the list of behaviours.
    pub(crate) row: String,
    /// What is to be seen, with its unit.
    pub(crate) behaviour: String,
    /// The value of the experiment's first axis.
    at: Option<String>,
    /// The arm; the usual one is `epoll`.
    arm: Option<String>,
    /// A figure of the runs instead of the value.
    figure: Option<String>,
    /// A figure that it is divided by.
    per: Option<String>,
    /// An arm by whose same figure it is divided.
    than: Option<String>,
    at_most: Option<f64>,
    at_least: Option<f64>,
    /// Where it is held, when no run shows it.
    held_by: Option<String>,
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The figure is within its bound.
    Met(f64),
    /// It is not.
    Missed(f64),
    /// There is no figure, and why.
    Unknown(String),
    /// Nothing measures it; what holds it.
    Held(String),
}

impl Check {
    /// The bound in words; empty where nothing is measured.
    pub(crate) fn bound(&self) -> String {
        let words = |word: &str, bound: Option<f64>| bound.map(|bound| format!("{word} {bound}"));
        let bound = words("at most", self.at_most).or_else(|| words("at least", self.at_least));
        bound.unwrap_or_default()
    }

    /// What a record says of it.
    pub(crate) fn outcome(&self, document: &Document, record: &Record) -> Outcome {
        if let Some(held_by) = &self.held_by {
            return Outcome::Held(held_by.clone());
        }
        let figure = || {
            let arm = self.arm.as_deref().unwrap_or("epoll");
            let figure = self.figure_of(arm, document, record)?;
            match &self.than {
                Some(than) => Ok(figure / self.figure_of(than, document, record)?),
                None => Ok(figure),
            }
        };
        match figure() {
            Err(reason) => Outcome::Unknown(reason),
            Ok(figure) if self.holds(figure) => Outcome::Met(figure),
            Ok(figure) => Outcome::Missed(figure),
        }
    }

    fn holds(&self, figure: f64) -> bool {
        self.at_most.is_none_or(|most| figure <= most)
            && self.at_least.is_none_or(|least| figure >= least)
    }

    fn figure_of(&self, arm: &str, document: &Document, record: &Record) -> Result<f64, String> {
        let axis = document.first_axis();
        let at = self.at.as_deref().unwrap_or_default();
        let is_it =
            |row: &&ResultRow| row.arm == arm && row.axes.get(axis).is_some_and(|is| is == at);
        let row = record.results.iter().find(is_it);
        let row = row.ok_or_else(|| format!("{arm} at {at} is not part of this run"))?;
        let figure = |name: &str, figures: &BTreeMap<String, f64>| figures.get(name).copied();
        let read = |run: &Measurement| {
            let value = match &self.figure {
                Some(name) => figure(name, &run.figures)?,
                None => run.value,
            };
            match &self.per {
                Some(per) => Some(value / figure(per, &run.figures)?),
                None => Some(value),
            }
        };
        let why =
            || row.notes.first().cloned().unwrap_or_else(|| "no run has the figure".to_owned());
        record.median_at(row.place(), read).ok_or_else(|| format!("{arm}: {}", why()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_up_to_itself_and_a_check_has_a_bound_or_what_holds_it() {
        for document in Document::all() {
            for check in &document.checks {
                let is_held = check.held_by.is_some();
                assert_ne!(is_held, check.at.is_some(), "{}", check.row);
                assert_ne!(is_held, check.at_most.is_some() || check.at_least.is_some());
                assert!(matches!(
                    (check.outcome(document, &Record::empty()), is_held),
                    (Outcome::Unknown(_), false) | (Outcome::Held(_), true)
                ));
                if let Some(most) = check.at_most {
                    assert!(check.holds(most) && !check.holds(most * 1.01), "{}", check.row);
                }
                if let Some(least) = check.at_least {
                    assert!(check.holds(least) && !check.holds(least * 0.99), "{}", check.row);
                }
            }
        }
    }
}
