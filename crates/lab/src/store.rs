//! The folder of a run where its record lives, with the result, the report and the job.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use pollux_report::OutputFile;

use crate::record::{Ending, Record, RoundsOfSet, SCHEMA_VERSION};
use crate::report;

/// Name of the result file in a folder.
pub const RESULT_FILE: &str = "result.json";
/// Name of the result file of a run that is kept, compressed by gzip(1).
pub const KEPT_FILE: &str = "result.json.gz";
/// Name of the report.
pub const REPORT_FILE: &str = "report.html";
/// Name of the summary for CI pages.
pub const SUMMARY_FILE: &str = "report.md";
/// Name of the figures of all rounds.
pub const ROUNDS_FILE: &str = "rounds.tsv";
/// Name of the job as it was run.
pub const JOB_FILE: &str = "job.toml";
/// A result file beyond this is not ours: the largest job writes a few megabytes.
const RESULT_BYTES_MAX: u64 = 512 << 20;

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system refused.
    #[error("{}: {cause}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The folder for results can't be made or written to.
    #[error("results can't be written to {}: {cause}; --out DIR names another folder", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The folder holds a result, which another would replace.
    #[error(
        "--out {}: holds a result{}; choose another folder, or give --overwrite to replace it",
        path.display(),
        began.as_ref().map_or(String::new(), |began| format!(" of {began}"))
    )]
    Taken {
        path: PathBuf,
        /// When the run of that result began, where it can be read.
        began: Option<String>,
    },
    /// The file is not a result file.
    #[error("{}: not a result of pollux lab: {cause}", path.display())]
    Format {
        path: PathBuf,
        #[source]
        cause: serde_json::Error,
    },
    /// The file was written by a newer pollux.
    #[error("{}: schema {found}, this pollux reads up to {SCHEMA_VERSION}: use a newer one", path.display())]
    Newer { path: PathBuf, found: u64 },
    /// The file is larger than any result.
    #[error("{}: no result is larger than {RESULT_BYTES_MAX} bytes", path.display())]
    TooLarge { path: PathBuf },
}

/// Whether `folder` holds a result, plain or compressed.
#[must_use]
pub fn has_result(folder: &Path) -> bool {
    [RESULT_FILE, KEPT_FILE].iter().any(|name| folder.join(name).exists())
}

/// Refuses a folder that holds a result: another run would replace it.
///
/// # Errors
/// [`StoreError::Taken`].
pub fn check_free(folder: &Path) -> Result<(), StoreError> {
    if !has_result(folder) {
        return Ok(());
    }
    let began = load(folder).ok().map(|record| record.started);
    Err(StoreError::Taken { path: folder.to_owned(), began })
}

/// Makes `folder` and tries that it can be written to, before anything is measured.
///
/// # Errors
/// [`StoreError::Folder`] with what refused.
pub fn prepare(folder: &Path) -> Result<(), StoreError> {
    let is_folder = match fs::metadata(folder) {
        Ok(found) if !found.is_dir() => Err(io::Error::other("expected a folder, this is a file")),
        _ => Ok(()),
    };
    let tried = is_folder
        .and_then(|()| fs::create_dir_all(folder))
        .and_then(|()| OutputFile::prepare(&folder.join(RESULT_FILE)));
    tried.map(drop).map_err(|cause| StoreError::Folder { path: folder.to_owned(), cause })
}

/// Writes `text` to `path`, which is replaced as a whole or, where that fails, left as it was.
///
/// # Errors
/// [`StoreError::Io`] with `path`.
pub fn replace(path: &Path, text: &str) -> Result<(), StoreError> {
    let put = OutputFile::prepare(path).and_then(|place| place.put(text));
    put.map_err(|cause| StoreError::Io { path: path.to_owned(), cause })
}

/// Writes result, report, summary, rounds and job into `folder`, which is made if need be. Each file is
/// replaced as a whole, so that a reader never sees half of one.
///
/// # Errors
/// [`StoreError::Folder`] or, with the file that could not be written, [`StoreError::Io`].
pub fn save(folder: &Path, record: &Record) -> Result<(), StoreError> {
    let json = serde_json::to_string_pretty(record).expect("a record is plain data");
    let folder_error = |cause| StoreError::Folder { path: folder.to_owned(), cause };
    fs::create_dir_all(folder).map_err(folder_error)?;
    let files = [
        (RESULT_FILE, json),
        (REPORT_FILE, report::html(record)),
        (SUMMARY_FILE, report::markdown(record)),
        (ROUNDS_FILE, rounds(record)),
        (JOB_FILE, record.job.toml.clone()),
    ];
    files.iter().try_for_each(|(name, text)| replace(&folder.join(name), text))
}

/// The same of a run that continues: the files say so, and a run that is killed leaves them behind.
///
/// # Errors
/// As [`save`].
pub fn save_interim(folder: &Path, record: &Record) -> Result<(), StoreError> {
    save(folder, &Record { ending: Ending::Interim, ..record.clone() })
}

/// Reads the record in `path`: a folder that [`save`] wrote, or a result file, compressed or not.
///
/// # Errors
/// [`StoreError`] when it can't be read or is not a result of this or an older version.
pub fn load(path: &Path) -> Result<Record, StoreError> {
    let plain = path.join(RESULT_FILE);
    let kept = path.join(KEPT_FILE);
    let file = if !path.is_dir() {
        path.to_owned()
    } else if kept.exists() && !plain.exists() {
        kept
    } else {
        plain
    };
    let text = text(&file)?;
    let format = |cause| StoreError::Format { path: file.clone(), cause };
    let any: serde_json::Value = serde_json::from_str(&text).map_err(format)?;
    match any.get("schema").and_then(serde_json::Value::as_u64) {
        Some(found) if found > u64::from(SCHEMA_VERSION) => {
            Err(StoreError::Newer { path: file, found })
        }
        _ => serde_json::from_value(any).map_err(format),
    }
}

/// What is in a result file, compressed or not.
fn text(file: &Path) -> Result<String, StoreError> {
    let io = |cause| StoreError::Io { path: file.to_owned(), cause };
    let opened = File::open(file).map_err(io)?;
    let is_compressed = file.extension().is_some_and(|extension| extension == "gz");
    let mut source: Box<dyn Read> =
        if is_compressed { Box::new(MultiGzDecoder::new(opened)) } else { Box::new(opened) };
    let mut text = String::new();
    // One byte more than is allowed tells that there is more.
    let bytes = source.by_ref().take(RESULT_BYTES_MAX + 1).read_to_string(&mut text).map_err(io)?;
    if bytes as u64 > RESULT_BYTES_MAX {
        return Err(StoreError::TooLarge { path: file.to_owned() });
    }
    Ok(text)
}

/// The rounds of every set: a line for each arm, with units and CPU time of each of its turns.
fn rounds(record: &Record) -> String {
    let mut text = "set\texperiment\tpoint\tgroup\tarm\tunits/cpu_ns of each round\n".to_owned();
    for set in &record.rounds {
        for (arm, figures) in &set.arms {
            let figures: Vec<String> = figures
                .iter()
                .map(|figure| match figure {
                    Some(figure) => format!("{}/{}", figure.units, figure.cpu_ns),
                    None => "-".to_owned(),
                })
                .collect();
            let RoundsOfSet { set, experiment, point, group, .. } = set;
            let figures = figures.join(" ");
            text += &format!("{set}\t{experiment}\t{point}\t{group}\t{arm}\t{figures}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_that_can_not_be_written_leaves_nothing_hidden_and_is_named_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        // A folder stands where the file belongs.
        let path = folder.path().join(RESULT_FILE);
        fs::create_dir(&path).expect("a folder in it");
        let error = save(folder.path(), &Record::empty()).expect_err("it is a folder");
        let said = error.to_string();
        assert!(said.contains("/result.json: ") && !said.contains("/.result"), "{said}");
        assert_eq!(names(folder.path()), [RESULT_FILE]);
    }

    #[test]
    fn a_kept_result_is_read_compressed_and_a_cut_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        save(folder.path(), &Record::empty()).expect("written");
        let plain = folder.path().join(RESULT_FILE);
        let text = fs::read(&plain).expect("a result");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&text).expect("memory");
        let compressed = encoder.finish().expect("memory");
        fs::remove_file(&plain).expect("removed");
        let said = load(folder.path()).expect_err("neither").to_string();
        assert!(said.contains("/result.json: "), "{said}");
        let kept = folder.path().join(KEPT_FILE);
        fs::write(&kept, &compressed).expect("written");
        for path in [folder.path(), &kept] {
            let record =
                serde_json::to_vec_pretty(&load(path).expect("a result")).expect("plain data");
            assert_eq!(record, text);
        }
        fs::write(&kept, &compressed[..compressed.len() / 2]).expect("written");
        let said = load(folder.path()).expect_err("cut").to_string();
        assert!(said.contains("/result.json.gz: "), "{said}");
    }

    #[test]
    fn a_folder_that_can_not_be_used_comes_with_a_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("afile");
        fs::write(&file, "").expect("a file");
        let said = prepare(&file).expect_err("it is a file").to_string();
        assert!(said.starts_with("results can't be written to "), "{said}");
        assert!(
            said.contains("afile") && said.ends_with("--out DIR names another folder"),
            "{said}"
        );
        replace(&file, "all of it").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("read"), "all of it");
        assert_eq!(names(folder.path()), ["afile"]);
    }

    #[test]
    fn a_folder_with_a_result_is_taken_and_any_other_is_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        fs::write(path.join(REPORT_FILE), "").expect("a file");
        check_free(path).expect("a report alone is not a result");
        check_free(&path.join("none")).expect("nothing is there");
        let record = Record::empty();
        save(path, &record).expect("written");
        let said = check_free(path).expect_err("a result").to_string();
        let path = path.display();
        let began = &record.started;
        let next = "choose another folder, or give --overwrite to replace it";
        assert_eq!(said, format!("--out {path}: holds a result of {began}; {next}"));
        let plain = folder.path().join(RESULT_FILE);
        let kept = folder.path().join(KEPT_FILE);
        fs::rename(plain, kept).expect("renamed");
        let said = check_free(folder.path()).expect_err("compressed, unreadable").to_string();
        assert_eq!(said, format!("--out {path}: holds a result; {next}"));
    }
}
