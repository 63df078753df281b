//! `pollux run`: flags to a session, signals passed on, figures shown, the program's own exit code.
//!
//! The program has this process's standard input, output and error; what is said of it goes to standard
//! error behind all that it wrote, or into files.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use pollux_host::own_folder;
use pollux_poller::Mechanism;
use pollux_report::OutputFile;
use pollux_run::attach::{self, Attached};
use pollux_run::{Course, ExitStatus, Findings, Process, Session, Start, library, within_reach};
use pollux_settings::{FlagsOnly, Kind, duration, one_of, path, table};
use rustix::process::Signal;
use signal_hook::consts;

mod view;

use self::view::View;
use crate::output::{self, Failure};
use crate::process_number::pid_kind;

/// Between two looks at whether a process that is followed is there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Exit codes of programs that run others, as of env(1), nice(1) and timeout(1).
const NOT_STARTED: u8 = 125;
const OUT_OF_REACH: u8 = 126;
const MISSING: u8 = 127;
/// The file name that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// The command line of `pollux run`.
#[derive(Debug, Args)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    flags: FlagsOnly<RunSettings>,
    /// The program with its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "attach",
        conflicts_with = "attach",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

table! { keys, key;
    /// The settings of `pollux run`, apart from the program.
    #[derive(Debug)]
    struct RunSettings {
        /// Follow a process that already runs, with its descendants, by tracepoints of the kernel; it is
        /// not stopped and not changed
        attach: Option<u32> =
            key.excludes(&["poller", "stats"]).optional(&pid_kind()),
        /// How long to follow it, such as 10s or 5m; without this, until it ends or until Ctrl-C
        length as "for": Option<Duration> =
            key.needs("attach", "it is for a process that is followed").optional(&length()),
        /// Mechanism to use in place of the kernel's epoll: {names}; without it the calls are passed on and
        /// counted
        poller: Option<Mechanism> = key.optional(&pollers()),
        #[heading("Output")]
        /// Count what the loop does; always on with --json, --live and --report, and without --poller
        stats: bool = key.switch(),
        /// Write the figures as JSON to this file; - is standard output, after what the program wrote
        json: Option<PathBuf> = key.optional(&path().called("FILE")),
        /// Write the figures with charts as one HTML file
        report: Option<PathBuf> = key.optional(&path().called("FILE")),
        /// Show what the loop does about each second while the program runs: redrawn in place on a terminal,
        /// a line elsewhere
        live: bool = key.switch(),
        /// Print no table
        quiet: bool = key.short('q').switch(),
    }
}

/// What can take the place of the kernel's epoll.
fn pollers() -> Kind<Mechanism> {
    one_of("mechanism", Mechanism::PLAIN.map(|one| (one.name(), "", one)))
}

/// How long a process may be followed.
fn length() -> Kind<Duration> {
    duration(Duration::from_millis(100)..=Duration::from_hours(24))
}

/// Whether a word of the command line stands behind `--`.
fn is_behind_dashes(word: &str) -> bool {
    let mut before = std::env::args_os().skip(1);
    before.by_ref().take_while(|each| each != word).any(|each| each == "--")
}

/// Runs the program to its end, or follows a process.
pub(crate) fn run(RunCommand { flags, command }: &RunCommand) -> Result<ExitCode, Failure> {
    let flags = &flags.read().map_err(Failure::usage)?;
    if let Some(pid) = flags.attach {
        return follow(flags, pid);
    }
    let (name, arguments) = command.split_first().expect("the command line asks for it");
    let name = name.to_string_lossy();
    if name.starts_with('-') && !is_behind_dashes(name.as_ref()) {
        return Err(Failure::usage(format!(
            "{name}: no such flag; expected those of pollux run --help, then the program (a program with such a \
             name stands behind --)"
        )));
    }
    let program = within_reach(&name).map_err(|error| {
        let code = if error.is_missing() { MISSING } else { OUT_OF_REACH };
        coded(code, error.to_string())
    })?;
    let library = library(own_folder().as_deref()).map_err(|why| coded(NOT_STARTED, why))?;
    let (json, report) = places(flags)?;
    let signals = caught().map_err(|error| coded(NOT_STARTED, error.to_string()))?;
    if let Some(poller) = flags.poller {
        // Where the kernel forbids it, the program would only say that epoll_create failed.
        let opened = poller.open().map(drop);
        opened.map_err(|error| {
            coded(OUT_OF_REACH, format!("--poller {poller}: {}", output::error_chain(&error)))
        })?;
    }
    let counts = flags.stats
        || flags.live
        || flags.json.is_some()
        || report.is_some()
        || flags.poller.is_none();
    let poller = flags.poller.map(Mechanism::name);
    let library = library.as_path();
    let program = program.as_path();
    let started =
        Session::start(Start { library, program, name: &name, arguments, poller, counts });
    let mut session = started.map_err(|error| coded(NOT_STARTED, format!("{name}: {error}")))?;
    let mut view = View::open(flags.live, keeps_course(flags));
    let ended = to_the_end(&mut session, &signals, &mut view)?;
    if counts {
        let findings = Findings::of(session.summary());
        show(
            (flags, command),
            (json.as_ref(), report.as_ref()),
            &findings,
            &view.close(&findings.summary),
        )?;
    }
    Ok(match ended {
        ExitStatus::Code(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        ExitStatus::Signal(signal) => {
            if signal == consts::SIGSYS {
                output::remark(&format!(
                    "pollux run: {name} was ended by SIGSYS: a filter of system calls (seccomp) forbids one, perhaps a \
                     call that the library makes; pollux run --attach needs none in the program"
                ));
            }
            output::ended_by(signal)
        }
    })
}

/// Follows a process until it ends, the time is over, or a signal.
fn follow(flags: &RunSettings, pid: u32) -> Result<ExitCode, Failure> {
    let (json, report) = places(flags)?;
    let signals = caught().map_err(|error| coded(NOT_STARTED, error.to_string()))?;
    let memory = attach::memory();
    let mut attached = Attached::to(pid, &memory).map_err(|error| {
        coded(if error.is_missing() { MISSING } else { OUT_OF_REACH }, error.to_string())
    })?;
    if std::io::stderr().is_terminal() {
        let (processes, threads) = attached.extent();
        output::remark(&format!(
            "pollux run: processes followed: {processes}, their threads: {threads}; Ctrl-C ends it"
        ));
    }
    let mut view = View::open(flags.live, keeps_course(flags));
    let end = flags.length.map(|length| Instant::now() + length);
    let mut next_look = Instant::now() + LOOK_EVERY;
    loop {
        attached.drain();
        let now = Instant::now();
        if next_look <= now {
            next_look = now + LOOK_EVERY;
            if attached.is_over() {
                break;
            }
        }
        if view.next().is_some_and(|next| next <= now) {
            view.look(attached.summary());
        }
        let pause = end.map_or(attach::DRAIN_EVERY, |end| {
            end.saturating_duration_since(now).min(attach::DRAIN_EVERY)
        });
        let ends = |signal| !matches!(signal, consts::SIGCHLD | consts::SIGUSR1 | consts::SIGUSR2);
        if end.is_some_and(|end| now >= end) || signals.recv_timeout(pause).is_ok_and(ends) {
            break;
        }
    }
    attached.finish();
    let findings = Findings::of(attached.summary());
    show(
        (flags, &[]),
        (json.as_ref(), report.as_ref()),
        &findings,
        &view.close(&findings.summary),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Whether figures over the time were asked for.
fn keeps_course(flags: &RunSettings) -> bool {
    flags.json.is_some() || flags.report.is_some()
}

fn coded(code: u8, message: String) -> Failure {
    Failure { message, code: ExitCode::from(code) }
}

/// The files that were asked for, which are made before anything is started.
fn places(flags: &RunSettings) -> Result<(Option<OutputFile>, Option<OutputFile>), Failure> {
    let place = |path: &PathBuf| {
        OutputFile::prepare(path)
            .map_err(|error| coded(NOT_STARTED, format!("{}: {error}", path.display())))
    };
    let json = flags.json.as_ref().filter(|path| path.as_os_str() != STANDARD_OUTPUT);
    let json = json.map(place).transpose()?;
    let report = flags.report.as_ref().map(place).transpose()?;
    if let (Some(json), Some(report)) = (&json, &report)
        && json.is_same(report)
    {
        let path = report.given().display();
        return Err(Failure::usage(format!(
            "--report {path} is the file of --json as well; expected a file for each"
        )));
    }
    Ok((json, report))
}

/// Signals as they come. A thread waits for them to the end of the process.
fn caught() -> std::io::Result<Receiver<i32>> {
    let mut signals = signal_hook::iterator::Signals::new([
        consts::SIGCHLD,
        consts::SIGINT,
        consts::SIGTERM,
        consts::SIGHUP,
        consts::SIGQUIT,
        consts::SIGUSR1,
        consts::SIGUSR2,
    ])?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || signals.forever().try_for_each(|signal| sender.send(signal)));
    Ok(receiver)
}

/// Waits until all that was started is gone.
fn to_the_end(
    session: &mut Session,
    signals: &Receiver<i32>,
    view: &mut View,
) -> Result<ExitStatus, Failure> {
    let mut is_reported = false;
    let mut asked = 0;
    loop {
        let ended = session.reap().map_err(Failure::failed)?;
        match ended {
            Some(ended) if session.is_over() => return Ok(ended),
            Some(_) if !is_reported => {
                is_reported = true;
                output::remark(
                    "pollux run: the command ended and left processes behind; Ctrl-C asks them to end, once \
                     more ends them",
                );
            }
            _ => {}
        }
        let signal = match view.next() {
            Some(next) => {
                match signals.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {
                        view.look(session.summary());
                        continue;
                    }
                    signal => signal.ok(),
                }
            }
            None => signals.recv().ok(),
        };
        let signal = signal.expect("the thread of signals continues");
        let of_keyboard = matches!(signal, consts::SIGINT | consts::SIGQUIT);
        if ended.is_some() && of_keyboard {
            // Programs that a shell left in the background ignore the keyboard's own signals.
            session.signal(if asked == 0 { Signal::TERM } else { Signal::KILL });
            asked += 1;
        } else if signal != consts::SIGCHLD && !(of_keyboard && is_in_front()) {
            // Those of a keyboard the terminal has sent to the program as well.
            Signal::from_named_raw(signal).inspect(|signal| session.signal(*signal));
        }
    }
}

/// Whether this process group has a terminal's keyboard.
fn is_in_front() -> bool {
    let stdin = std::io::stdin();
    stdin.is_terminal() && output::is_in_front(&stdin)
}

/// Shows the figures in the forms that were asked for.
fn show(
    (flags, command): (&RunSettings, &[OsString]),
    (json, report): (Option<&OutputFile>, Option<&OutputFile>),
    findings: &Findings,
    course: &Course,
) -> Result<(), Failure> {
    let put = |place: &OutputFile, text: &str| {
        let failed = |error| Failure::failed(format!("{}: {error}", place.given().display()));
        place.put(text).map_err(failed)
    };
    if let Some(place) = json {
        put(place, &findings.json(course))?;
    } else if flags.json.is_some() {
        output::result(&findings.json(course))?;
    }
    if let Some(place) = report {
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let name = match flags.attach {
            Some(pid) => {
                format!(
                    "{} {pid}",
                    findings
                        .summary
                        .processes
                        .first()
                        .map_or_else(|| "process".to_owned(), Process::name)
                )
            }
            None => words.join(" "),
        };
        put(place, &findings.page(course, &name))?;
    }
    if !flags.quiet {
        let stderr = std::io::stderr();
        let size = rustix::termios::tcgetwinsize(&stderr);
        let width = size.map_or(usize::MAX, |size| usize::from(size.ws_col));
        let colour = stderr.is_terminal() && output::takes_colours();
        output::remark(output::shown(&findings.table(width, colour)).trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::RunSettings;

    #[test]
    fn every_flag_takes_the_same_spellings() {
        assert_eq!(pollux_settings::misread::<RunSettings>(), [""; 0]);
    }
}
