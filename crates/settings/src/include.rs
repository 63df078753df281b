//! Files that a file of settings takes in by `include`.
//!
//! Their texts stand behind its own, each as it is, so that all is read as one text and a mistake still has the place in its own
//! file. They have `[[…]]` sections alone: a key at their top would belong to whatever section stands before them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use crate::document::parse;
use crate::mistake::{Location, SettingError, SettingErrors};

/// The key that names them.
const KEY: &str = "include";
/// Most files that are included.
const FILES_MAX: usize = 1000;
/// Most bytes of all files together; a worker gets them in one piece.
const BYTES_MAX: usize = 4 << 20;

/// Where the text of an included file begins.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) from: usize,
    /// As it is called in messages.
    pub(crate) file: String,
}

/// Puts the texts of all files that `text`, the one of the file at `path`, includes behind it; says where each of them begins.
///
/// # Errors
/// Every file that can't be read or is not one to be included, with its place.
pub(crate) fn add_included(path: &Path, text: &mut String) -> Result<Vec<Part>, SettingErrors> {
    let mut mistakes = Vec::new();
    let mut note = |location: Location, message: String| {
        mistakes.push(SettingError { location, message });
    };
    let own = path.display().to_string();
    let mut files: Vec<PathBuf> = Vec::new();
    for (at, pattern) in patterns(text) {
        let location = Location::in_file(&own, text, at);
        match matching(path, &pattern) {
            Ok(found) => {
                let new = found.into_iter().filter(|file| !files.contains(file));
                let new: Vec<_> = new.collect();
                files.extend(new);
            }
            Err(why) => note(location.clone(), format!("{KEY} = \"{pattern}\": {why}")),
        }
        if files.len() > FILES_MAX {
            let found = files.len();
            note(location, format!("{KEY}: {found} files; expected at most {FILES_MAX}"));
            files.clear();
        }
    }
    let mut parts = Vec::new();
    for path in files {
        let file = path.display().to_string();
        let whole = Location::File { file: file.clone(), line: 1, column: 1 };
        let read = match read(&path, BYTES_MAX.saturating_sub(text.len())) {
            Ok(read) => read,
            Err(why) => {
                note(whole, why);
                continue;
            }
        };
        let wrong = faults(&read);
        let is_right = wrong.is_empty();
        for (at, why) in wrong {
            note(Location::in_file(&file, &read, at), why);
        }
        if is_right {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            parts.push(Part { from: text.len(), file });
            text.push_str(&read);
        }
    }
    SettingErrors::of(mistakes, &own).map_or(Ok(parts), Err)
}

/// The patterns of a file, each with its place. What is none is a mistake of its key.
fn patterns(text: &str) -> Vec<(usize, String)> {
    let Ok(top) = parse(text) else { return Vec::new() };
    let one = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(pattern) => Some((value.span().start, pattern.to_string())),
        _ => None,
    };
    match top.get_ref().get(KEY) {
        None => Vec::new(),
        Some(value) => match value.get_ref() {
            DeValue::Array(all) => all.iter().filter_map(one).collect(),
            _ => one(value).into_iter().collect(),
        },
    }
}

/// The files that a pattern names, from the folder of the file at `path` on, by their names.
fn matching(path: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let whole = path.parent().unwrap_or(Path::new("")).join(pattern);
    let name = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let folder = whole.parent().unwrap_or(Path::new(""));
    if folder.to_string_lossy().contains('*') {
        return Err("has a * in a folder; expected it in the name of the file alone".to_owned());
    }
    if !name.contains('*') {
        return Ok(vec![whole]);
    }
    let read = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let failed = |error: std::io::Error| format!("{error}; expected a folder that can be read");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(read).map_err(failed)? {
        let own = entry.map_err(failed)?.file_name();
        let Some(own) = own.to_str() else { continue };
        if fits(&name, own) && !own.starts_with('.') {
            found.push(folder.join(own));
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a name is one of the pattern, whose `*` are anything.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn read(path: &Path, bytes_max: usize) -> Result<String, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(bytes_max as u64 + 1).read_to_string(&mut text))
        .map_err(|error| format!("{error}; expected a file that can be read"))?;
    if text.len() > bytes_max {
        return Err(format!("all files together have more than {BYTES_MAX} bytes; expected less"));
    }
    Ok(text)
}

/// What is wrong with a file that is included, each with its byte.
fn faults(text: &str) -> Vec<(usize, String)> {
    const EXPECTED: &str =
        "expected sections in double brackets alone, such as [[site]], in a file that is included";
    let top = match parse(text) {
        Ok(top) => top,
        Err(faults) => return faults,
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = line.trim_start_matches([' ', '\t']);
        if start.starts_with("[[") {
            break;
        }
        if !start.trim_end().is_empty() && !start.starts_with('#') {
            return vec![(at + line.len() - start.len(), EXPECTED.to_owned())];
        }
        at += line.len();
    }
    let is_list = |value: &DeValue<'_>| matches!(value, DeValue::Array(_));
    let others = top.get_ref().iter().filter(|(_, value)| !is_list(value.get_ref()));
    others.map(|(name, _)| (name.span().start, EXPECTED.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything_in_a_name() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", "a.toml.bak", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "axbxc", true),
            ("a*b*c", "axc", false),
            ("*", "x", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_file_that_is_included_has_lists_of_sections_alone() {
        for (text, at) in [
            ("# about\n\n[[site]]\na = 1\n", None),
            ("", None),
            ("a = 1\n[[site]]\n", Some(0)),
            ("\n  a = 1\n", Some(3)),
            ("[site]\na = 1\n", Some(0)),
            ("[[site.route]]\na = 1\n", Some(2)),
            ("[[site]]\na = 1\n[other]\nb = 1\n", Some(16)),
        ] {
            let faults = faults(text);
            assert_eq!(faults.first().map(|(at, _)| *at), at, "{text}: {faults:?}");
        }
    }
}
