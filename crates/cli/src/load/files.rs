//! The files of a result: written beside their place and moved there whole, so that nobody ever
//! reads half of one, and an earlier one stays until the new one is there.
//!
//! Places are tried before the run: minutes of load are not lost to a missing folder.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pollux_load::{Outcome, render};

use super::flags::Output;
use crate::output::{self, Failure};

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
pub(crate) struct Files {
    places: Vec<(Kind, Place)>,
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
                files.places.push((kind, Place::prepare(path)?));
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

    fn put(&self, place: &Place, text: &str) -> Result<(), Failure> {
        place.put(text).map_err(|error| place.failure(&error))?;
        if !self.is_quiet {
            output::remark(&format!("pollux load: {} written", place.given.display()));
        }
        Ok(())
    }
}

/// Where one file goes.
#[derive(Debug)]
struct Place {
    given: PathBuf,
    /// Behind all links, so that a link stays one.
    path: PathBuf,
    /// Where it is written first; none for a pipe or a device, which nothing may replace.
    beside: Option<PathBuf>,
}

impl Place {
    fn prepare(given: &Path) -> Result<Self, Failure> {
        let path = given.canonicalize().unwrap_or_else(|_| given.to_owned());
        let found = std::fs::metadata(&path);
        let mut place = Self { given: given.to_owned(), beside: None, path };
        if found.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            let folder = given.display();
            return Err(Failure::failed(format!("{folder} is a folder; name a file in it")));
        }
        if found.is_ok_and(|found| !found.is_file()) {
            return Ok(place);
        }
        let beside = place.beside();
        std::fs::write(&beside, "").map_err(|error| place.failure(&error))?;
        place.beside = Some(beside);
        Ok(place)
    }

    /// A name in the same folder, for only there a file can be moved whole.
    fn beside(&self) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(format!(".{}", std::process::id()));
        self.path.with_file_name(name)
    }

    fn put(&self, text: &str) -> io::Result<()> {
        let Some(beside) = &self.beside else { return std::fs::write(&self.path, text) };
        let mut file = std::fs::File::create(beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(beside, &self.path)
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::failed(format!("{} can't be written: {error}", self.given.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // After a run that went well it is no longer there.
            let _ = std::fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_a_link_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "before").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        let place = Place::prepare(&link).expect("a place");
        let read = || std::fs::read_to_string(&file).expect("a file");
        assert_eq!(read(), "before", "until there is something new");
        place.put("after").expect("written");
        assert_eq!(read(), "after");
        assert!(link.is_symlink());
        drop(place);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn a_run_that_fails_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(Place::prepare(&folder.path().join("file")).expect("a place"));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let place = Place::prepare(Path::new("/dev/null")).expect("a place");
        assert_eq!(place.beside, None);
        place.put("nothing").expect("written");
    }
}
