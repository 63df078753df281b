//! What a configuration says, as values: the pool's own settings and those of its workers.
//!
//! The supervisor follows them. A *cycle* is one check of the manager, [`Settings::sanity`]
//! apart: with a `sanity` of 5 seconds a `ping_max` of 4 is 20 seconds.

use std::path::PathBuf;
use std::time::Duration;

use super::Remark;
use crate::access::Group;
use crate::environment::Transport;

/// A configuration that can be used.
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
    /// What was passed over, or looks odd.
    pub warnings: Vec<Remark>,
}

/// `<appconfig>`: how the manager watches.
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
    /// Attribute `group`: whose members may call; `None` is the pool's user alone.
    pub group: Option<Group>,
}

/// One `<server>`: a program and its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `name`: an executable to be found in PATH; no `/`, no `,`.
    pub program: String,
    /// `<srvid>`: id of the first copy, from 1.
    pub first_id: u32,
    /// `<min>`: copies that run from the start.
    pub min: u32,
    /// `<max>`: ids kept for copies; what is above `min` is started by hand only.
    pub max: u32,
    /// How its copies are watched.
    pub policy: Policy,
    /// `<sysopt>` as words: options for the runtime, before `--`.
    pub system_options: Vec<String>,
    /// `<appopt>` as words: for the program's own `tpsvrinit`, behind `--`.
    pub program_options: Vec<String>,
    /// Where standard output and standard error go.
    pub output: Output,
    /// `<envs>`: variables added to the environment of the copies.
    pub variables: Vec<(String, String)>,
    /// Line of the element.
    pub line: usize,
}

/// How a worker is watched. `None` means that the limit is off.
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
    /// `<end_max>`: cycles until a worker that was told to stop must be gone.
    pub end_max_cycles: Option<u32>,
    /// `<killtime>`: cycles between two signals of the sequence 2, 15, 9, 9, …
    pub kill_cycles: u32,
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
        }
    }
}

/// The variable with a worker's own id.
pub const ID_VARIABLE: &str = "NDRX_SVSRVID";

/// How a configuration writes it, where each copy has its own: in `sysopt`, `appopt` and `env`.
const OWN_ID: &str = "${NDRX_SVSRVID}";

impl Entry {
    /// The ids of all its copies, running or not.
    #[must_use]
    pub fn ids(&self) -> std::ops::Range<u32> {
        self.first_id..self.first_id + self.max
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
            ..self.clone()
        }
    }
}

impl PoolConfig {
    /// Copies of all programs, running or not.
    #[must_use]
    pub fn workers_max(&self) -> u32 {
        self.entries.iter().map(|entry| entry.max).sum()
    }
}

/// Takes the redirections out of the options for the runtime; those stay as they are, for `ps`.
pub(super) fn redirections(options: &[String]) -> Output {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_found_among_the_options() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let found = redirections(&words("-e /l/A -r"));
        assert_eq!(found, Output { error: Some("/l/A".into()), out: None });
        let found = redirections(&words("-s -e:X -o/l/O -N -e /l/E"));
        assert_eq!(found, Output { error: Some("/l/E".into()), out: Some("/l/O".into()) });
        assert_eq!(redirections(&words("-r -e")), Output::default());
    }
}
