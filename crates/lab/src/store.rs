//! Where records live on disk: a folder with the result, the report and the job.

use std::io;
use std::path::{Path, PathBuf};

use crate::record::{Record, SCHEMA_VERSION};
use crate::report;

/// Name of the result file in a folder.
pub const RESULT_FILE: &str = "result.json";
/// Name of the report.
pub const REPORT_FILE: &str = "report.html";
/// Name of the summary for CI pages.
pub const SUMMARY_FILE: &str = "report.md";
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
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The file is not a result file.
    #[error("{}: not a result of pollux lab: {cause}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: serde_json::Error,
    },
    /// The file was written by a newer pollux.
    #[error("{}: schema {found}, this pollux reads up to {SCHEMA_VERSION}: use a newer one", path.display())]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// The file is larger than any result.
    #[error("{}: {bytes} bytes, no result is larger than {RESULT_BYTES_MAX}", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
}

/// Makes `folder` and tries that it can be written to, before anything is measured.
///
/// # Errors
/// [`StoreError::Io`] with what refused.
pub fn prepare(folder: &Path) -> Result<(), StoreError> {
    let probe = folder.join(format!(".{RESULT_FILE}.partial"));
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| StoreError::Io { path, cause }
    };
    std::fs::create_dir_all(folder).map_err(io(folder))?;
    std::fs::write(&probe, "").map_err(io(&probe))?;
    std::fs::remove_file(&probe).map_err(io(&probe))
}

/// Writes result, report, summary and job into `folder`, which is made if need be. Each file is
/// replaced as a whole, so that a reader never sees half of one.
///
/// # Errors
/// [`StoreError::Io`] with the file that could not be written.
pub fn save(folder: &Path, record: &Record) -> Result<(), StoreError> {
    let json = serde_json::to_string_pretty(record).expect("a record is plain data");
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| StoreError::Io { path, cause }
    };
    std::fs::create_dir_all(folder).map_err(io(folder))?;
    let files = [
        (RESULT_FILE, json),
        (REPORT_FILE, report::html(record)),
        (SUMMARY_FILE, report::markdown(record)),
        (JOB_FILE, record.job.toml.clone()),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        let partial = folder.join(format!(".{name}.partial"));
        std::fs::write(&partial, text).map_err(io(&partial))?;
        std::fs::rename(&partial, &path).map_err(io(&path))?;
    }
    Ok(())
}

/// Reads the record in `path`: a folder that [`save`] wrote, or a result file.
///
/// # Errors
/// [`StoreError`] when it can't be read or is not a result of this or an older version.
pub fn load(path: &Path) -> Result<Record, StoreError> {
    let file = if path.is_dir() { path.join(RESULT_FILE) } else { path.to_owned() };
    let io = |cause| StoreError::Io { path: file.clone(), cause };
    let bytes = std::fs::metadata(&file).map_err(io)?.len();
    if bytes > RESULT_BYTES_MAX {
        return Err(StoreError::TooLarge { path: file, bytes });
    }
    let text = std::fs::read_to_string(&file).map_err(io)?;
    let format = |cause| StoreError::Format { path: file.clone(), cause };
    let any: serde_json::Value = serde_json::from_str(&text).map_err(format)?;
    match any.get("schema").and_then(serde_json::Value::as_u64) {
        Some(found) if found > u64::from(SCHEMA_VERSION) => {
            Err(StoreError::Newer { path: file, found })
        }
        _ => serde_json::from_value(any).map_err(format),
    }
}
