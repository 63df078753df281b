//! What was said, by flags or by a file, before it is judged: names, texts and places.
//!
//! The command line fills a [`Given`] from its flags and one from the file that `--config` names,
//! and lays the first over the second. Values stay texts here; `build.rs` reads them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::mistake::{ConfigError, Mistake, Place, did_you_mean};
use super::settings::{SETTINGS, Setting, Takes};

/// The settings of which one says what is answered: a flag replaces all of a file.
const ANSWERS: [&str; 3] = ["dir", "reply", "echo"];
/// Largest configuration file; far more than all settings need.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Settings as they were given.
#[derive(Clone, Debug, Default)]
pub struct Given {
    entries: BTreeMap<&'static str, Entry>,
    /// What is wrong with the form of the file; [`Given::build`] tells it with the rest.
    mistakes: Vec<Mistake>,
}

#[derive(Clone, Debug)]
struct Entry {
    texts: Vec<String>,
    place: Place,
}

impl Given {
    /// Adds what a flag said; a switch says `true`.
    ///
    /// # Panics
    /// When no setting has this name: flags are made from the table.
    pub fn flag(&mut self, name: &str, texts: Vec<String>) {
        let setting = Setting::find(name).expect("a flag made from the table");
        let place = Place::Flag(format!("--{}", setting.name));
        self.entries.insert(setting.name, Entry { texts, place });
    }

    /// Reads a file; what is wrong in it is kept and told by [`Given::build`].
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let failed = |message: String| ConfigError {
            mistakes: vec![Mistake { place: Place::Flag("--config".to_owned()), message }],
        };
        let mut text = String::new();
        // Bounded here and not by the size that is told: a device or a pipe tells none.
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| failed(format!("{name}: {error}")))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(format!("{name} is larger than {FILE_BYTES_MAX} bytes")));
        }
        Ok(Self::from_toml(&text, &name))
    }

    /// Reads the text of a file that is called `file` in messages; what is wrong in it is kept
    /// and told by [`Given::build`]. When it is not TOML, nothing is read.
    #[must_use]
    pub fn from_toml(text: &str, file: &str) -> Self {
        let (document, errors) = DeTable::parse_recoverable(text);
        let mut mistakes = Vec::new();
        let mut note = |at, message| {
            mistakes.push(Mistake { place: Place::in_file(file, text, at), message });
        };
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            note(at, format!("not TOML: {}", error.message().replace('\n', ", ")));
        }
        let mut given = Self::default();
        let entries = document.get_ref().iter().filter(|_| errors.is_empty());
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            let Some(setting) = SETTINGS.iter().find(|setting| setting.key() == name) else {
                let near = did_you_mean(name, SETTINGS.iter().map(Setting::key));
                note(key.span().start, format!("{name} is no setting{near}"));
                continue;
            };
            match texts(setting, value.get_ref()) {
                Ok(texts) => {
                    let place = Place::in_file(file, text, value.span().start);
                    given.entries.insert(setting.name, Entry { texts, place });
                }
                Err(right) => note(value.span().start, format!("{name}: {right}")),
            }
        }
        given.mistakes = mistakes;
        given
    }

    /// These settings, and those of `file` that are not given here.
    #[must_use]
    pub fn over(mut self, file: Self) -> Self {
        self.mistakes.extend(file.mistakes);
        let has_answer = ANSWERS.iter().any(|name| self.entries.contains_key(name));
        for (name, entry) in file.entries {
            if !(has_answer && ANSWERS.contains(&name)) {
                self.entries.entry(name).or_insert(entry);
            }
        }
        self
    }

    /// What is wrong with the form of the file.
    pub(super) fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// Whether `name` was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The texts given for `name`, and where.
    pub(super) fn texts(&self, name: &str) -> Option<(&[String], &Place)> {
        self.entries.get(name).map(|entry| (entry.texts.as_slice(), &entry.place))
    }
}

/// The texts of a TOML value that has the type that the setting takes.
fn texts(setting: &Setting, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.to_string()),
        _ => None,
    };
    let read = match (setting.takes, value) {
        (Takes::Switch, DeValue::Boolean(is_on)) => Some(vec![is_on.to_string()]),
        (Takes::Switch, _) => None,
        (Takes::List, DeValue::Array(items)) => {
            items.iter().map(|item| one(item.get_ref())).collect()
        }
        (Takes::List | Takes::Value, value) => one(value).map(|text| vec![text]),
    };
    read.ok_or_else(|| {
        let right = match setting.takes {
            Takes::Switch => "true or false",
            Takes::List => "a text in quotes or a list of them",
            Takes::Value => "a text in quotes or a whole number",
        };
        format!("this is a value of type {}; expected {right}", value.type_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_for_the_answer_replaces_every_answer_of_the_file() {
        let file =
            Given::from_toml("dir = \"/srv\"\nthreads = 2\nlisten = [\"a:1\", \"b:2\"]", "p");
        let mut flags = Given::default();
        flags.flag("echo", vec!["true".to_owned()]);
        flags.flag("threads", vec!["3".to_owned()]);
        let both = flags.over(file);
        assert!(both.has("echo") && !both.has("dir"));
        assert_eq!(both.texts("threads").expect("given").0, ["3"]);
        assert_eq!(both.texts("listen").expect("given").0, ["a:1", "b:2"]);
    }

    #[test]
    fn every_mistake_of_a_file_is_told_with_its_place() {
        let text = "heade_timeout = \"5s\"\necho = \"yes\"\nthreads = 0\n[listen]\nx = 1\n";
        let told = Given::from_toml(text, "p.toml").build().expect_err("four").to_string();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 4, "{told}");
        assert!(lines.is_sorted(), "from its top: {told}");
        assert!(
            told.contains("p.toml:1:1: heade_timeout is no setting; did you mean header_timeout?")
        );
        assert!(told.contains("p.toml:2:8: echo: this is a value of type string"), "{told}");
        assert!(
            told.contains("p.toml:4:1: listen: ") && told.contains("p.toml:3:11: threads: "),
            "{told}"
        );
    }

    #[test]
    fn a_file_without_end_is_refused_and_not_read_into_memory() {
        let told = Given::from_file(Path::new("/dev/zero")).expect_err("endless").to_string();
        assert!(told.contains("/dev/zero is larger than"), "{told}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "([a-z_]{1,12} ?= ?[\\PC]{0,12}\n){0,4}") {
            let _ = Given::from_toml(&text, "p").build();
        }
    }

    #[test]
    fn a_text_that_is_not_toml_is_refused_with_a_line() {
        let told = Given::from_toml("threads = 1\nlisten = [", "p").build().expect_err("open");
        assert!(told.to_string().starts_with("p:2:") && told.mistakes.len() == 1, "{told}");
    }
}
