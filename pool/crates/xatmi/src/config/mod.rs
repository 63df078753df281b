//! The configuration of a pool: `ndrxconfig.xml` as it is.
//!
//! The manager and the commands read it. Every element of `docs/pool.md` has its unit
//! and its bounds; `<server>` overrides `<defaults>`; `${NAME}` in values is taken from the
//! environment. Unknown elements are warnings with file and line; mistakes are errors that
//! say what is expected, all of them at once. Nothing here starts a process.
//!
//! `document` is XML as a tree with lines, `entities` what stands in its document type; `read` makes values of its
//! elements; `system_servers` are those of Enduro/X.

mod document;
mod entities;
mod read;
mod system_servers;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::common_config::NAME_VARIABLE;
use crate::environment::{Group, Transport};

pub(crate) use read::split as split_words;

/// Longest file that is read; thousands of servers fit.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A configuration that can be used: the pool's own settings and those of its workers.
///
/// A *cycle* is one check of the manager, [`Settings::sanity`] apart: with a `sanity` of 5 seconds a
/// `ping_max` of 4 is 20 seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The file as the user called it.
    pub file: PathBuf,
    /// `<appconfig>`.
    pub settings: Settings,
    /// `<server>` elements in order of the file, which is the order of the start.
    pub entries: Vec<Entry>,
    /// `<exportsvcs>`: services that a bridge may offer to other hosts.
    pub exported_services: Vec<String>,
    /// `<services>`: those with a priority other than the usual one.
    pub priorities: Vec<(String, u8)>,
    /// Elements that were ignored, and probable mistakes.
    pub warnings: Vec<Diagnostic>,
}

/// `<appconfig>`: how the manager supervises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `<sanity>`: time from the end of one check cycle to the next, at least a second.
    pub sanity: Duration,
    /// `<brrefresh>`: cycles between two service lists of a bridge; 0 is never.
    pub bridge_refresh_cycles: u32,
    /// `<restart_min>`: cycles before a worker that died is started again.
    pub restart_min_cycles: u32,
    /// `<restart_step>`: cycles added for each further failure in a row.
    pub restart_step_cycles: u32,
    /// `<restart_max>`: most cycles before a start.
    pub restart_max_cycles: u32,
    /// `<restart_to_check>`: how long a manager that comes back waits for workers to report.
    pub learning: Duration,
    /// `<gather_pq_stats>`: note the depth of each service queue in each cycle.
    pub gathers_queue_depths: bool,
    /// Attribute `transport`: how requests travel; `None` leaves it to the pool.
    pub transport: Option<Transport>,
    /// Attribute `spin`: when workers and clients look for a moment before they sleep.
    pub spin: Spinning,
    /// Attribute `group`: whose members may call; `None` is the pool's user alone.
    pub group: Option<Group>,
}

/// When a worker or a client in shared memory looks for a moment whether something comes, before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spinning {
    /// While no more threads of the pool and its clients can run than there are CPUs.
    #[default]
    Auto,
    /// However many can run.
    Always,
}

impl Spinning {
    /// The one of this name.
    fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "always" => Some(Self::Always),
            _ => None,
        }
    }
}

/// One `<server>`: a program and its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `name`: an executable to be found in PATH; no `/`, no `,`.
    pub program: String,
    /// `<fullpath>`: the file that is started in its place.
    pub full_path: Option<PathBuf>,
    /// `<cmdline>`: the command that is started in its place, with [`Entry::command`].
    pub command_line: Option<String>,
    /// `<srvid>`: id of the first copy, from 1.
    pub first_id: u32,
    /// `<min>`: copies that run from the start.
    pub min: u32,
    /// `<max>`: ids kept for copies; what is above `min` is started by hand only.
    pub max: u32,
    /// How its copies are supervised.
    pub policy: Policy,
    /// `<sysopt>` as words: options for the runtime, before `--`.
    pub system_options: Vec<String>,
    /// `<appopt>` as words: for the program's own `tpsvrinit`, behind `--`.
    pub program_options: Vec<String>,
    /// Where standard output and standard error go.
    pub output: Output,
    /// `<envs>`: variables added to the environment of the copies.
    pub variables: Vec<(String, String)>,
    /// `<env unset="y">`: variables of the pool's own environment that the copies do not get.
    pub cleared: Vec<String>,
    /// Line of the element.
    pub line: usize,
}

/// How a worker is supervised. `None` means that the limit is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `<autokill>`: whether workers that hang are sent signals.
    pub kills: bool,
    /// `<respawn>`: whether workers that died are started again.
    pub respawns: bool,
    /// `<start_max>`: cycles until a worker must be ready.
    pub start_max_cycles: Option<u32>,
    /// `<pingtime>`: cycles between two pings; none by default, as a worker inside a call longer
    /// than `ping_max` would be killed.
    pub ping_cycles: Option<u32>,
    /// `<ping_max>`: cycles until an answer must be there.
    pub ping_max_cycles: Option<u32>,
    /// `<end_max>`: cycles until a worker that was asked to stop must have ended.
    pub end_max_cycles: Option<u32>,
    /// `<killtime>`: cycles between two signals.
    pub kill_cycles: u32,
    /// `<killseq>`: the signals; 9 is sent after the last one, again and again.
    pub kill_sequence: Vec<i32>,
    /// `<sleep_after>`: time from the moment a copy is up to the start of what stands behind it.
    pub pause_after: Duration,
    /// `<rssmax>`: bytes of memory in use above which a copy is started anew.
    pub rss_max_bytes: Option<u64>,
    /// `<vszmax>`: bytes of address space above which a copy is started anew.
    pub vsz_max_bytes: Option<u64>,
    /// `<reloadonchange>`: whether copies are started anew when the file of their program has changed.
    pub restarts_on_change: bool,
}

/// Files that a worker's output is appended to; without one it goes to the manager's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// `-e FILE`: standard error, and standard output unless `-o` is given.
    pub error: Option<PathBuf>,
    /// `-o FILE`: standard output.
    pub out: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sanity: Duration::from_secs(5),
            bridge_refresh_cycles: 0,
            restart_min_cycles: 1,
            restart_step_cycles: 1,
            restart_max_cycles: 5,
            learning: Duration::from_secs(20),
            gathers_queue_depths: false,
            transport: None,
            spin: Spinning::Auto,
            group: None,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            kills: true,
            respawns: true,
            start_max_cycles: Some(2),
            ping_cycles: None,
            ping_max_cycles: Some(4),
            end_max_cycles: Some(5),
            kill_cycles: 1,
            kill_sequence: vec![2, 15, 9],
            pause_after: Duration::ZERO,
            rss_max_bytes: None,
            vsz_max_bytes: None,
            restarts_on_change: false,
        }
    }
}

/// The variable with a worker's own id.
pub const ID_VARIABLE: &str = "NDRX_SVSRVID";

/// How a configuration writes it, where each copy has its own: in `sysopt`, `appopt`, `cmdline` and `env`.
const OWN_ID: &str = "${NDRX_SVSRVID}";

/// The variable with the options of a worker: a program that a `<cmdline>` starts without any takes them from there.
pub const OPTIONS_VARIABLE: &str = "NDRX_SVCLOPT";

impl Entry {
    /// The ids of all its copies, running or not.
    #[must_use]
    pub fn ids(&self) -> std::ops::Range<u32> {
        self.first_id..self.first_id + self.max
    }

    /// Whether a copy of `other` is started in the same way: with the same options, files and variables.
    #[must_use]
    pub fn starts_as(&self, other: &Self) -> bool {
        let of = |entry: &Self| {
            let Self {
                system_options,
                program_options,
                output,
                variables,
                cleared,
                full_path,
                command_line,
                ..
            } = entry.clone();
            let options = (system_options, program_options, full_path, command_line);
            (options, output, variables, cleared)
        };
        of(self) == of(other)
    }

    /// The same for one copy: `${NDRX_SVSRVID}` in options, files and variables is its id.
    #[must_use]
    pub fn of_copy(&self, id: u32) -> Self {
        let id = id.to_string();
        let own = |text: &String| text.replace(OWN_ID, &id);
        let path = |path: &PathBuf| PathBuf::from(path.to_string_lossy().replace(OWN_ID, &id));
        let Output { error, out } = &self.output;
        Self {
            system_options: self.system_options.iter().map(own).collect(),
            program_options: self.program_options.iter().map(own).collect(),
            variables: self
                .variables
                .iter()
                .map(|(name, value)| (name.clone(), own(value)))
                .collect(),
            output: Output { error: error.as_ref().map(path), out: out.as_ref().map(path) },
            command_line: self.command_line.as_ref().map(own),
            ..self.clone()
        }
    }

    /// The words that `<cmdline>` starts, if there is one: `options` are those that the program would have got.
    #[must_use]
    pub fn command(&self, options: &[String]) -> Option<Vec<String>> {
        let text = self.command_line.as_ref()?;
        let text = text.replace(&format!("${{{NAME_VARIABLE}}}"), &self.program);
        let text = text.replace(&format!("${{{OPTIONS_VARIABLE}}}"), &joined(options));
        // It was split when it was read.
        split_words(&text).ok()
    }
}

impl PoolConfig {
    /// Reads `file`, with the environment of this process for `${NAME}`.
    ///
    /// # Errors
    /// Everything that is wrong with it, with lines.
    pub fn from_file(file: &Path) -> Result<Self, ConfigError> {
        let name = file.display().to_string();
        let failed = |why: String| ConfigError::one(&name, 0, why);
        let wanted = "expected the path of an ndrxconfig.xml";
        let bytes = bytes_of(file).map_err(|why| failed(format!("{why}; {wanted}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            let byte = error.as_bytes()[good.len()];
            let what = format!("the byte 0x{byte:02x} is not UTF-8; save the file in UTF-8");
            ConfigError::one(&name, line, what)
        })?;
        let beside = |other: &str| {
            let other = file.parent().map_or_else(|| other.into(), |folder| folder.join(other));
            let text = String::from_utf8(bytes_of(&other)?);
            text.map_err(|_| "it is not UTF-8; save the file in UTF-8".to_owned())
        };
        read::read(&name, &text, &|variable| std::env::var(variable).ok(), &beside)
    }

    /// Reads `text`, called `file` in messages; `lookup` knows the environment. Files that its entities name are not read.
    ///
    /// # Errors
    /// Everything that is wrong with it, with lines.
    pub fn from_text(
        file: &str,
        text: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let none = |_: &str| Err("it is not read; put what it stands for in its place".to_owned());
        read::read(file, text, lookup, &none)
    }

    /// Copies of all programs, running or not.
    #[must_use]
    pub fn workers_max(&self) -> u32 {
        self.entries.iter().map(|entry| entry.max).sum()
    }
}

/// One text of words, which `split_words` makes the same words of.
#[must_use]
pub fn joined(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| !letter.is_whitespace() && !matches!(letter, '"' | '\'' | '\\');
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Takes the redirections out of the options for the runtime; those stay as they are, for `ps`.
fn redirections(options: &[String]) -> Output {
    /// Options of the runtime that take the next word.
    const WITH_VALUE: [&str; 8] = ["-e", "-o", "-n", "-s", "-S", "-x", "-g", "-G"];
    let mut output = Output::default();
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let (option, value) = match WITH_VALUE.iter().find(|known| word.starts_with(**known)) {
            Some(known) if word.len() > known.len() => (*known, Some(word[2..].to_owned())),
            Some(known) => (*known, words.next().cloned()),
            None => continue,
        };
        match option {
            "-e" => output.error = value.map(PathBuf::from),
            "-o" => output.out = value.map(PathBuf::from),
            _ => {}
        }
    }
    output
}

/// Mistakes that are shown at once: a screen.
const SHOWN_MAX: usize = 50;
/// Longest message, so that all that are shown fit into one answer of the manager.
const MESSAGE_CHARS_MAX: usize = 300;

/// A configuration that can't be used. Never without a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// One or more, in the order of the file.
    pub mistakes: Vec<Diagnostic>,
    /// What was ignored beside them; not in the message, which has to fit into an answer of the manager.
    pub warnings: Vec<Diagnostic>,
}

/// A mistake in one line, or a warning about it in a configuration that can be used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Diagnostic {
    /// The file as the user called it.
    pub file: String,
    /// Counted from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// The mistake and what is expected, in one line.
    pub message: String,
}

impl Diagnostic {
    /// A remark; a long message is cut.
    pub(crate) fn new(file: &str, line: usize, message: &str) -> Self {
        let mut message = message.to_owned();
        if let Some((at, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(at);
            message.push('…');
        }
        Self { file: file.to_owned(), line, message }
    }
}

/// The content of a file, which is measured by reading: a device reports no length.
fn bytes_of(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

impl ConfigError {
    fn one(file: &str, line: usize, message: impl AsRef<str>) -> Self {
        Self { mistakes: vec![Diagnostic::new(file, line, message.as_ref())], warnings: Vec::new() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.mistakes.iter().take(SHOWN_MAX);
        let mut lines: Vec<String> = shown.map(ToString::to_string).collect();
        if let more @ 1.. = self.mistakes.len().saturating_sub(SHOWN_MAX) {
            lines.push(format!("and {more} more mistakes"));
        }
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

/// Server ids are below this, unless NDRX_SRVMAX is set.
pub(crate) const IDS_END: u32 = 10_000;
/// The highest NDRX_SRVMAX: ids and their sums stay far within 32 bits.
pub(crate) const IDS_END_MAX: u32 = 1 << 24;
/// Most copies in one pool: bounds what the manager keeps for them.
const WORKERS_MAX: u64 = 4_000;

/// The bound of ids, by NDRX_SRVMAX in the environment that `lookup` knows.
///
/// # Errors
/// When it is another text.
fn ids_end(lookup: &dyn Fn(&str) -> Option<String>) -> Result<u32, String> {
    let text = lookup("NDRX_SRVMAX").unwrap_or_default();
    match text.trim().parse() {
        _ if text.trim().is_empty() => Ok(IDS_END),
        Ok(end @ 2..=IDS_END_MAX) => Ok(end),
        _ => {
            let wanted = format!("expected a whole number from 2 to {IDS_END_MAX}");
            Err(format!("NDRX_SRVMAX=`{}` in the environment: {wanted}", text.escape_debug()))
        }
    }
}

/// Ids of `entries` beyond the bounds, and ids that two of them have: lines with messages.
fn id_mistakes(entries: &[Entry], end: u32) -> Vec<(usize, String)> {
    let all: u64 = entries.iter().map(|entry| u64::from(entry.max)).sum();
    if all > WORKERS_MAX {
        return vec![(0, format!("{all} copies in all; a pool has at most {WORKERS_MAX}"))];
    }
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let last = entry.ids().end - 1;
        if last >= end {
            let what = format!(
                "{}: its last id, {last}, is not below {end}; lower <srvid> or <max>, or raise \
                 NDRX_SRVMAX",
                entry.program
            );
            found.push((entry.line, what));
        }
        let overlaps = |other: &&Entry| {
            let own = entry.ids();
            let other = other.ids();
            other.start < own.end && own.start < other.end
        };
        if let Some(other) = entries[..index].iter().find(overlaps) {
            found.push((entry.line, overlap(entry, other)));
        }
    }
    found
}

fn overlap(entry: &Entry, other: &Entry) -> String {
    let own = entry.ids();
    let others = other.ids();
    format!(
        "{}: ids {} to {} overlap those of {} in line {} ({} to {}); give <srvid>{}</srvid> or higher",
        entry.program,
        own.start,
        own.end - 1,
        other.program,
        other.line,
        others.start,
        others.end - 1,
        others.end
    )
}
