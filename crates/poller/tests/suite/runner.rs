//! Runs every case on every backend and judges the answers.
//!
//! Prints one line for each run and a summary. An argument that is not an option keeps the runs
//! whose line contains it; `--list` only names them. Options of the usual test harness that
//! mean nothing here are passed over.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use pollux_poller::{Backend, Error};

use super::differences::{DIFFERENCES, declared};
use super::isolation::{Answer, CHILD, Isolation, keep_panics, live_as_child};
use super::rig::Rig;
use super::{Case, Deviation, Group};

/// Makes a backend that can't be opened a failure: for machines that are known to have all.
const FORBID_SKIP: &str = "POLLUX_FORBID_SKIP";

/// Every backend, in the order of the report.
pub(crate) const BACKENDS: [Backend; 6] =
    [Backend::Select, Backend::Poll, Backend::Aio, Backend::Epoll, Backend::Uring, Backend::Sim];

/// Looks at something that is about no backend; says what is wrong with it.
pub(crate) type Check = fn() -> Result<(), String>;

/// What one test binary runs.
pub(crate) struct Suite {
    /// Stands before the summary.
    pub(crate) title: &'static str,
    /// The cases.
    pub(crate) groups: &'static [Group],
    /// Checks that are about no backend, by name.
    pub(crate) checks: &'static [(&'static str, Check)],
    /// Where the cases run.
    pub(crate) isolation: Isolation,
    /// What runs them; the simulated one needs a world.
    pub(crate) backends: &'static [Backend],
    /// Deviations of the table that do not occur here, because what stands before the poller sees to it.
    pub(crate) mended: &'static [Deviation],
    /// The backend whose differences every other one has here, where something else stands in its place.
    pub(crate) judged_as: Option<Backend>,
}

/// One case on one backend.
struct Run {
    /// Its name in the report.
    line: String,
    /// Group and name of the case.
    name: String,
    case: &'static Case,
    backend: Backend,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    differed: usize,
    skipped: usize,
    failures: Vec<String>,
}

/// The main function of a test binary.
pub(crate) fn main(suite: &Suite) -> ExitCode {
    keep_panics();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs = runs(suite);
    if let [first, line] = &arguments[..]
        && first == CHILD
    {
        let run = runs.iter().find(|run| run.line == *line).expect("started by this binary");
        return live_as_child(run.case, run.backend);
    }
    let filters: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |line: &str| {
        filters.is_empty() || filters.iter().any(|filter| line.contains(filter.as_str()))
    };
    let wanted = runs.iter().filter(|run| is_wanted(&run.line));
    if arguments.iter().any(|argument| argument == "--list") {
        wanted.for_each(|run| say(&run.line));
        return ExitCode::SUCCESS;
    }
    let started = Instant::now();
    let mut tally = Tally::default();
    for (name, check) in suite.checks.iter().filter(|(name, _)| is_wanted(name)) {
        tally.book(name, check().map(|()| None));
    }
    for name in unknown_names(suite, &runs) {
        tally.book("differences", Err(format!("no case is called {name}")));
    }
    let unavailable: Vec<_> =
        suite.backends.iter().map(|&backend| (backend, unavailable(backend))).collect();
    for run in wanted {
        let reason = unavailable.iter().find(|(backend, _)| *backend == run.backend);
        match reason.and_then(|(_, why)| why.as_ref()) {
            Some(why) => tally.skip(&run.line, why),
            None => {
                let answer = suite.isolation.run(run.case, run.backend, &run.line);
                tally.book(&run.line, judge(suite, run, answer));
            }
        }
    }
    if tally.is_empty() && filters.is_empty() {
        tally.failures.push("nothing was run".to_owned());
    }
    tally.finish(suite, started)
}

impl Tally {
    fn is_empty(&self) -> bool {
        self.passed + self.differed + self.skipped + self.failures.len() == 0
    }

    fn book(&mut self, line: &str, judgement: Result<Option<Deviation>, String>) {
        match judgement {
            Ok(None) => {
                self.passed += 1;
                say(&format!("ok      {line}"));
            }
            Ok(Some(deviation)) => {
                self.differed += 1;
                say(&format!("differs {line}: as declared, {}", deviation.about()));
            }
            Err(why) => {
                say(&format!("FAILED  {line}: {why}"));
                self.failures.push(format!("{line}: {why}"));
            }
        }
    }

    fn skip(&mut self, line: &str, why: &str) {
        self.skipped += 1;
        say(&format!("skip    {line}: {why}"));
    }

    fn finish(mut self, suite: &Suite, started: Instant) -> ExitCode {
        let failed = self.failures.len();
        if self.skipped > 0 && std::env::var_os(FORBID_SKIP).is_some() {
            let message =
                format!("{} runs were skipped, which {FORBID_SKIP} forbids", self.skipped);
            self.failures.push(message);
        }
        for failure in &self.failures {
            say(&format!("failure: {failure}"));
        }
        let cases: usize = suite.groups.iter().map(|group| group.cases.len()).sum();
        say(&format!(
            "{}: {cases} cases × {} backends: {} passed, {} declared differences, {failed} \
             failed, {} skipped ({:.1} s)",
            suite.title,
            suite.backends.len(),
            self.passed,
            self.differed,
            self.skipped,
            started.elapsed().as_secs_f64(),
        ));
        if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Every case on every backend, a backend at a time.
fn runs(suite: &Suite) -> Vec<Run> {
    let mut runs = Vec::new();
    for &backend in suite.backends {
        for group in suite.groups {
            for case in group.cases {
                let name = format!("{}/{}", group.name, case.name);
                runs.push(Run { line: format!("{name} [{backend}]"), name, case, backend });
            }
        }
    }
    runs
}

/// Why `backend` can't be opened, where it can't.
fn unavailable(backend: Backend) -> Option<String> {
    match Rig::open(backend) {
        Err(error @ Error::Unavailable { .. }) => Some(error.to_string()),
        // Any other failure shows in each case.
        _ => None,
    }
}

/// Holds an answer against the declared table.
fn judge(suite: &Suite, run: &Run, answer: Answer) -> Result<Option<Deviation>, String> {
    let seen = answer?.err();
    let backend = suite.judged_as.unwrap_or(run.backend);
    let expected = declared(backend, &run.name, run.case.needs)
        .map(|row| row.deviation)
        .filter(|deviation| !suite.mended.contains(deviation));
    match (seen, expected) {
        (seen, expected) if seen == expected => Ok(seen),
        (None, Some(expected)) => {
            Err(format!("declared: \"{}\", but it kept the contract", expected.about()))
        }
        (Some(seen), Some(expected)) => {
            Err(format!("declared: \"{}\", but seen: \"{}\"", expected.about(), seen.about()))
        }
        (Some(seen), None) => Err(format!("undeclared difference: \"{}\"", seen.about())),
        (None, None) => unreachable!("equal"),
    }
}

/// Names in the table that mean a case of this binary and find none.
fn unknown_names(suite: &Suite, runs: &[Run]) -> Vec<&'static str> {
    let has_group = |name: &&str| suite.groups.iter().any(|group| name.starts_with(group.name));
    let named = DIFFERENCES.iter().flat_map(|row| row.cases.named());
    let is_ours = |name: &str| name.starts_with("process/") == (suite.title == "process");
    let unknown = named.filter(|name| {
        is_ours(name) && has_group(name) && !runs.iter().any(|run| run.name == **name)
    });
    unknown.copied().collect()
}

/// Prints one line of the report.
pub(crate) fn say(line: &str) {
    // A closed pipe (`| head`) is not a failure of a case.
    let _ = writeln!(std::io::stdout(), "{line}");
}
