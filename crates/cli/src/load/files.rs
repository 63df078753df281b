//! The files that a run writes. They are opened before the run: minutes of load are not lost to a missing folder.

use super::flags::Output;
use crate::output::{self, Failure};
use pollux_load::{Outcome, render};
use pollux_report::OutputFile;
use std::io::{self};
use std::path::Path;

/// The name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Json,
    Hlog,
    Csv,
    Html,
}

impl Kind {
    fn render(self, outcome: &Outcome) -> String {
        match self {
            Self::Json => render::json(outcome),
            Self::Hlog => render::hlog(outcome),
            Self::Csv => render::csv_seconds(outcome),
            Self::Html => render::html(outcome),
        }
    }
}

/// The files that were asked for.
#[derive(Debug)]
pub(super) struct Files {
    places: Vec<(Kind, OutputFile)>,
    printed: Option<Kind>,
    is_quiet: bool,
}

impl Files {
    /// Those of `output`; each can be written by now.
    pub(crate) fn prepare(output: &Output) -> Result<Self, Failure> {
        let asked = [
            (Kind::Json, &output.json),
            (Kind::Hlog, &output.hlog),
            (Kind::Csv, &output.csv),
            (Kind::Html, &output.html),
        ];
        let asked = asked.into_iter().filter_map(|(kind, path)| Some((kind, path.as_ref()?)));
        let mut files = Self { places: Vec::new(), printed: None, is_quiet: output.is_quiet };
        for (kind, path) in asked {
            if path.as_os_str() != STANDARD_OUTPUT {
                let place = OutputFile::prepare(path).map_err(|error| failure(path, &error))?;
                files.places.push((kind, place));
            } else if files.printed.replace(kind).is_some() || output.style.is_some() {
                let message = "standard output takes one result only; give the others a file";
                return Err(Failure::usage(message));
            }
        }
        Ok(files)
    }

    /// Whether one of them goes to standard output.
    pub(crate) fn are_printed(&self) -> bool {
        self.printed.is_some()
    }

    /// What standard output shows instead of the table, if a file was asked for there.
    pub(crate) fn printed(&self, outcome: &Outcome) -> Option<String> {
        self.printed.map(|kind| kind.render(outcome))
    }

    /// Writes all of them.
    pub(crate) fn write(&self, outcome: &Outcome) -> Result<(), Failure> {
        self.places.iter().try_for_each(|(kind, place)| self.put(place, &kind.render(outcome)))
    }

    /// Writes `text` into the JSON file, if there is one.
    pub(crate) fn write_json(&self, text: &str) -> Result<(), Failure> {
        let json = self.places.iter().find(|(kind, _)| *kind == Kind::Json);
        json.map_or(Ok(()), |(_, place)| self.put(place, text))
    }

    fn put(&self, place: &OutputFile, text: &str) -> Result<(), Failure> {
        place.put(text).map_err(|error| failure(place.given(), &error))?;
        if !self.is_quiet {
            output::remark(&format!("pollux load: {} written", place.given().display()));
        }
        Ok(())
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{} can't be written: {error}", path.display()))
}
