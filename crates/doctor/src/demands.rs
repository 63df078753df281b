//! What is demanded of a machine, by a measurement or a server.

use super::check::Concern;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// As it was asked for.
    pub name: String,
    /// What it concerns: at least one.
    pub concerns: Vec<Concern>,
}

impl From<Concern> for Asked {
    fn from(concern: Concern) -> Self {
        Self { name: concern.name().to_owned(), concerns: vec![concern] }
    }
}

/// What the jobs of the laboratory need.
pub struct Demands<'a> {
    /// The job that runs where none is named.
    pub default_job: &'static str,
    /// Descriptors of one process with which no job leaves anything out.
    pub descriptors: u64,
    /// What the jobs leave out where a process may have so many descriptors: a clause for each job.
    pub lost: &'a dyn Fn(u64) -> Vec<String>,
    /// Whether the default job loses one of its experiments then.
    pub loses_an_experiment: &'a dyn Fn(u64) -> bool,
    /// Bytes of message queues with which no job leaves anything out.
    pub queue_bytes: u64,
}
