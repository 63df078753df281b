//! Runs every case on every backend, each as a test of its own, and judges the answers.
//!
//! A case runs where it can do no harm: in a thread, or in a process of its own, which is this binary started
//! again. Either way a hang ends with a deadline. Through the epoll interface, whose instances are numbers that
//! outlive a thread and a program, each case runs in several [`Way`]s.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use pollux_poller::{Backend, Error};
use pollux_testing::{Process, Trial, run_tests, skippable_test, test};

use crate::aio_polls::AioPolls;
use crate::differences::declared;
use crate::rig::{Open, Rig, UsedUp, mechanism};
use crate::{Case, CaseResult, Deviation, Group, OF_INTERFACES};

/// Every backend, in the order of the report.
pub const BACKENDS: [Backend; Backend::ALL.len() + 1] = {
    let mut all = [crate::sim::BACKEND; Backend::ALL.len() + 1];
    let mut at = 0;
    while at < Backend::ALL.len() {
        all[at] = Backend::ALL[at];
        at += 1;
    }
    all
};

/// How long one case may take in a thread: the largest takes a second.
const CASE_DEADLINE: Duration = Duration::from_secs(60);
/// First argument of this binary when it is started again for one run; the name of the run stands behind it.
const CHILD: &str = "--child";
/// What a child prints for a kept contract.
const KEPT: &str = "kept";
/// Begins what a child prints where the system has nothing left for the backend; the reason stands behind it.
const USED_UP: &str = "used up: ";

/// A test that is about no backend, by its name.
pub type Check = (&'static str, fn());

/// Cases, and what they run on.
#[derive(Clone, Copy)]
pub struct Suite {
    /// Stands behind the backend in the names of the runs, where a binary has several suites.
    pub name: Option<&'static str>,
    pub groups: &'static [Group],
    /// What runs them; the simulated one needs a world.
    pub backends: &'static [Backend],
    /// How a poller for them is opened.
    pub open: Open,
    /// Where they run.
    pub isolation: Isolation,
    /// Deviations of the table that do not occur here, because what stands before the poller sees to it.
    pub mended: &'static [Deviation],
    /// The backend whose differences every other one has here, where something else stands in its place.
    pub judged_as: Option<Backend>,
    /// Cases that this does otherwise on a backend, as a test of its own shows.
    pub left_out: &'static [(Backend, &'static str)],
}

/// Where cases run.
#[derive(Clone, Copy)]
pub enum Isolation {
    /// In a thread each.
    Thread,
    /// In a process each, on its only thread; the function adds what the process needs to its command.
    Process(fn(&mut Command, Backend)),
}

/// How the instance of a script is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By the thread that made it.
    Alone,
    /// By two threads: one changes it, the other one waits.
    Threads,
    /// By a child of the process that made it.
    Child,
    /// By the program that the one which made it became.
    Program,
}

impl Way {
    pub const ALL: [Self; 4] = [Self::Alone, Self::Threads, Self::Child, Self::Program];

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Threads => "threads",
            Self::Child => "child",
            Self::Program => "program",
        }
    }

    /// That of this process, which was started for one script.
    ///
    /// # Panics
    /// In the process that starts the others.
    pub fn of_this_process() -> Self {
        let name = name_of_child().expect("started for one script");
        let way = Self::ALL.into_iter().find(|way| name.split("::").nth(1) == Some(way.name()));
        way.expect("alone, threads, child or program")
    }

    /// The suite in this way, on what `open` opens; `prepare` adds what the process of a script needs.
    pub fn suite(self, open: Open, prepare: fn(&mut Command, Backend)) -> Suite {
        Suite {
            name: Some(self.name()),
            groups: OF_INTERFACES,
            backends: Backend::ALL,
            open,
            isolation: Isolation::Process(prepare),
            mended: &[
                Deviation::AcceptsFiles,
                Deviation::ErrorLater,
                Deviation::Replaces,
                Deviation::TakesWakes,
            ],
            // Behind execve(2) it is an epoll of the kernel's.
            judged_as: (self == Self::Program).then_some(Backend::Epoll),
            // All are woken: a poll request would take an exclusive wake also while nobody waits.
            left_out: &[(Backend::UringPoll, "errno::exclusive_leaves_some_sleepers_asleep")],
        }
    }
}

/// One case on one backend.
#[derive(Clone)]
struct Run {
    /// As tests are listed: `epoll::triggers::edge_...`.
    name: String,
    /// Group and name of the case.
    path: String,
    case: &'static Case,
    backend: Backend,
    suite: Suite,
}

/// The main function of a test binary.
pub fn main(suites: &[Suite], checks: &[Check]) -> ExitCode {
    let runs: Vec<Run> = suites.iter().flat_map(runs).collect();
    if let Some(name) = name_of_child() {
        let run = runs.iter().find(|run| run.name == name).expect("started by this binary");
        return live_as_child(run);
    }
    let mut tests: Vec<Trial> = checks.iter().map(|&(name, check)| test(name, check)).collect();
    for backend in BACKENDS {
        let missing = Arc::new(OnceLock::new());
        for run in runs.iter().filter(|run| run.backend == backend).cloned() {
            let missing = Arc::clone(&missing);
            tests.push(skippable_test(run.name.clone(), move || {
                if let Some(why) = missing.get_or_init(|| unavailable(backend)) {
                    return Err(why.clone());
                }
                run.judge()
            }));
        }
    }
    run_tests(at_once(suites), None, tests)
}

/// How many cases run at once: several where each has a process of its own, and waits for the most part; one where they
/// share this one, whose descriptors are closed and get their numbers again.
fn at_once(suites: &[Suite]) -> usize {
    const PER_CPU: usize = 2;
    let has_processes = |suite: &Suite| matches!(suite.isolation, Isolation::Process(_));
    if !suites.iter().all(has_processes) {
        return 1;
    }
    thread::available_parallelism().map_or(1, |cpus| PER_CPU * cpus.get())
}

/// The name of the run that this process was started for.
pub fn name_of_child() -> Option<String> {
    let mut arguments = std::env::args().skip(1);
    arguments.next().filter(|first| first == CHILD).and_then(|_| arguments.next())
}

/// Every case on every backend.
fn runs(suite: &Suite) -> Vec<Run> {
    let mut runs = Vec::new();
    for &backend in suite.backends {
        for group in suite.groups {
            for case in group.cases {
                let path = format!("{}::{}", group.name, case.name);
                if suite.left_out.contains(&(backend, path.as_str())) {
                    continue;
                }
                let name = match suite.name {
                    Some(suite) => format!("{backend}::{suite}::{path}"),
                    None => format!("{backend}::{path}"),
                };
                runs.push(Run { name, path, case, backend, suite: *suite });
            }
        }
    }
    runs
}

/// Why `backend` can't be opened, where it can't.
fn unavailable(backend: Backend) -> Option<String> {
    match mechanism(backend)?.open() {
        Err(error @ Error::Unavailable { .. }) => {
            // Where too few AIO polls are left, each case finds out who holds them.
            AioPolls::behind(backend, &error).is_none().then(|| error.to_string())
        }
        // Any other failure shows in each case.
        _ => None,
    }
}

impl Run {
    /// Runs, and holds the answer against the declared table; or says why it could not run.
    fn judge(&self) -> Result<(), String> {
        let seen = match self.suite.isolation {
            Isolation::Thread => self.in_thread(),
            Isolation::Process(prepare) => self.in_process(prepare),
        }?;
        let backend = self.suite.judged_as.unwrap_or(self.backend);
        let expected = declared(backend, &self.path, self.case.needs)
            .map(|row| row.deviation)
            .filter(|deviation| !self.suite.mended.contains(deviation));
        match (seen.err(), expected) {
            (None, None) => (),
            (Some(seen), Some(expected)) if seen == expected => {
                report(&format!("as declared, {} ... ", seen.about()));
            }
            (None, Some(expected)) => {
                panic!("declared: \"{}\", but it kept the contract", expected.about())
            }
            (Some(seen), Some(expected)) => {
                panic!("declared: \"{}\", but seen: \"{}\"", expected.about(), seen.about())
            }
            (Some(seen), None) => panic!("undeclared difference: \"{}\"", seen.about()),
        }
        Ok(())
    }

    fn in_thread(&self) -> Answer {
        let (answer, answers) = mpsc::channel();
        let case = self.case;
        let backend = self.backend;
        let open = self.suite.open;
        // After the deadline nothing receives the answer.
        let thread = thread::spawn(move || {
            let _ = answer.send(run(case, backend, open));
        });
        match answers.recv_timeout(CASE_DEADLINE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("hangs: no end within {CASE_DEADLINE:?}"),
            Err(RecvTimeoutError::Disconnected) => {
                resume_unwind(thread.join().expect_err("it ended without an answer"))
            }
        }
    }

    fn in_process(&self, prepare: fn(&mut Command, Backend)) -> Answer {
        let mut again = Command::new(std::env::current_exe().expect("the own path"));
        again.args([CHILD, &self.name]);
        prepare(&mut again, self.backend);
        let ended = Process::run(&mut again);
        let Some(answer) = ended.stdout.lines().last().filter(|_| ended.status.success()) else {
            panic!("{}: {}{}", ended.status, ended.stdout, ended.stderr);
        };
        if answer == KEPT {
            return Ok(Ok(()));
        }
        if let Some(why) = answer.strip_prefix(USED_UP) {
            return Err(why.to_owned());
        }
        let known = Deviation::ALL.into_iter().find(|known| format!("{known:?}") == answer);
        Ok(Err(known.unwrap_or_else(|| panic!("no answer: {answer}"))))
    }
}

/// The whole life of a process that was started for one run.
fn live_as_child(of: &Run) -> ExitCode {
    let answer = match run(of.case, of.backend, of.suite.open) {
        Ok(Ok(())) => KEPT.to_owned(),
        Ok(Err(deviation)) => format!("{deviation:?}"),
        Err(why) => format!("{USED_UP}{why}"),
    };
    report(&answer);
    ExitCode::SUCCESS
}

/// What a case says; or why it could not run.
type Answer = Result<CaseResult, String>;

fn run(case: &Case, backend: Backend, open: Open) -> Answer {
    let used_up = UsedUp::default();
    let rig =
        || Rig::new(backend, open, Arc::clone(&used_up)).expect("a backend that can be opened");
    let outcome = catch_unwind(AssertUnwindSafe(|| (case.run)(&mut rig())));
    match used_up.get() {
        Some(why) => Err(why.clone()),
        None => Ok(outcome.unwrap_or_else(|failure| resume_unwind(failure))),
    }
}

/// Adds `text` to the line of the test in the report.
pub fn report(text: &str) {
    let mut stdout = std::io::stdout();
    // A closed pipe (`| head`) is not a failure of a case.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_a_case_that_is_skipped_takes_the_case_with_it() {
        fn run_by(script: fn(&mut Rig) -> CaseResult) -> Answer {
            let case = Case { name: "a case", needs: &[], run: script };
            run(&case, crate::sim::BACKEND, pollux_poller::Mechanism::open)
        }
        let swallowed = run_by(|rig| {
            let open = rig.opener();
            let other = thread::spawn(move || open().expect("as before").skip("nothing is left"));
            assert!(other.join().is_err());
            Ok(())
        });
        assert_eq!(swallowed, Err("nothing is left".to_owned()));
        let passed_on = run_by(|rig| {
            let open = rig.opener();
            thread::scope(|scope| {
                scope.spawn(move || open().expect("as before").skip("nothing is left"));
            });
            Ok(())
        });
        assert_eq!(passed_on, Err("nothing is left".to_owned()));
        assert_eq!(run_by(|_| Ok(())), Ok(Ok(())));
    }
}
