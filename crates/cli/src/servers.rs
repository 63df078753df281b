//! `pollux serve` and `pollux proxy`: flags and file to a configuration, and a server or a proxy that runs
//! until a signal.
//!
//! The flags are made from the servers' own tables of settings, so flags, keys of the file and
//! defaults cannot differ. Each command has the flags of its own part; a file may lead either of them to
//! backends, or to an answer of pollux's own.

use std::ffi::OsString;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pollux_engine::{Signal, Signals};
use pollux_server::config::ServeConfig;
use pollux_server::config::serve_or_proxy::{ProxySettings, ServeOrProxy, ServeSettings};
use pollux_server::explain::Question;
use pollux_server::master::{
    CommandLine, Master, MasterError, ProxySockets, Settings, UpgradedMaster, WorkerProcess,
};
use pollux_server::stats::RELOADED;
use pollux_server::{OwnProcess, Server, ServerError};
use pollux_server::{privileges, system};
use pollux_settings::{Flags, Given, Table};

use crate::output::{self, Failure};
use crate::password::password;

/// What either of them acts on from its first moment on, so that none of them ends a server that starts: it is
/// done once it serves.
const EARLY: [Signal; 3] = [Signal::HangUp, Signal::User1, Signal::User2];
/// What ends it; at once, as long as it has nothing open.
const ENDING: [Signal; 3] = [Signal::Terminate, Signal::Interrupt, Signal::Quit];

/// The signals of a server, where `words` call for one: to be caught before anything else is done.
///
/// # Errors
/// No descriptor is left.
pub(crate) fn early_signals(words: &[OsString]) -> Result<Option<Signals>, Failure> {
    let is_server = words.first().is_some_and(|first| first == "serve" || first == "proxy");
    let caught = is_server.then(|| Signals::catch(&EARLY)).transpose();
    caught.map_err(Failure::failed)
}

/// All of them, with those that were caught early.
fn signals(early: Option<Signals>) -> io::Result<Signals> {
    let mut signals = early.map_or_else(|| Signals::catch(&EARLY), Ok)?;
    signals.catch_too(&ENDING)?;
    Ok(signals)
}

/// The command line of `pollux serve`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServeCommand {
    #[command(subcommand)]
    order: Option<ServeOrder>,
    #[command(flatten)]
    flags: Flags<ServeSettings>,
    /// Read all settings and the files that they name, say what the server would do, and end
    #[arg(long, help_heading = "Running")]
    check: bool,
}

/// What else `pollux serve` does than to serve.
#[derive(Debug, clap::Subcommand)]
enum ServeOrder {
    /// Say which site and which route of a file of settings answer a request, and why
    Explain {
        #[arg(help = "The request: 'POST https://www.example.org/api/x', or a URI alone for GET")]
        request: String,
        /// The TOML file with the settings
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// A field of the request; repeatable
        #[arg(long, short = 'H', value_name = "NAME: VALUE")]
        header: Vec<String>,
        /// The address of the client's connection, for allow and deny
        #[arg(long, value_name = "ADDRESS")]
        from: Option<IpAddr>,
    },
    /// Make a line for a file of users, with a hash of the password by argon2id
    ///
    /// The password is asked for at the terminal, or is the first line of standard input.
    Password {
        #[arg(help = "The name of the user")]
        name: String,
    },
}

/// Says what becomes of a request, by a file of settings.
fn explain(
    request: &str,
    config: &Path,
    fields: &[String],
    from: Option<IpAddr>,
) -> Result<ExitCode, Failure> {
    let file = Given::from_file(config, "--config").map_err(Failure::usage)?;
    let settings: ServeSettings = file.read().map_err(Failure::usage)?;
    let explained = Question::read(request, fields, from)
        .and_then(|question| pollux_server::explain::explain(&settings.into(), &question));
    output::result(&explained.map_err(Failure::usage)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the server until a signal ends it, or says what it would do with a request.
pub(crate) fn serve(command: &ServeCommand, early: Option<Signals>) -> Result<ExitCode, Failure> {
    if let Some(done) = privileges::run() {
        return done.map(|()| ExitCode::SUCCESS).map_err(Failure::failed);
    }
    if let Some(ServeOrder::Explain { request, config, header, from }) = &command.order {
        return explain(request, config, header, *from);
    }
    if let Some(ServeOrder::Password { name }) = &command.order {
        return password(name);
    }
    Start { name: "serve", flags: &command.flags, is_check: command.check }.run(early)
}

/// The command line of either command.
struct Start<'c, T> {
    /// What stands behind `pollux` in the lines that it prints.
    name: &'static str,
    flags: &'c Flags<T>,
    is_check: bool,
}

impl<T: Table + Into<ServeOrProxy> + Clone + 'static> Start<'_, T> {
    /// Runs what the settings lead to until a signal ends it, as a worker of its master too.
    fn run(&self, early: Option<Signals>) -> Result<ExitCode, Failure> {
        if let Some(worker) = WorkerProcess::find().map_err(Failure::failed)? {
            return Ok(work(self.flags, worker, early));
        }
        if let Some(upgraded) = UpgradedMaster::find().map_err(Failure::failed)? {
            return self.take_over(upgraded, early);
        }
        let file = self.flags.file().map_err(Failure::usage)?;
        let settings: T = self.flags.read_over(&file).map_err(Failure::usage)?;
        match settings.into() {
            ServeOrProxy::Answers(config) => self.answer(&config, early),
            ServeOrProxy::Passes(config) => {
                let file = text_of(&file);
                self.pass(Settings { config: *config, file }, early)
            }
        }
    }

    /// Runs a server that answers by itself.
    fn answer(&self, config: &ServeConfig, early: Option<Signals>) -> Result<ExitCode, Failure> {
        if self.is_check {
            return check(|| Server::check(config));
        }
        // Before anything else is opened: a number that was not passed must not be one of our own.
        let passed = system::sockets().map_err(Failure::failed)?;
        pollux_sys::descriptors::raise().map_err(Failure::failed)?;
        let mut signals = signals(early).map_err(Failure::failed)?;
        let failed = |error| Failure::failed(output::error_chain(&error));
        let words = ["serve".into()];
        let settings = self.flags.path();
        let process = OwnProcess { sockets: passed, settings, privileged: Some(&words) };
        let mut server = Server::start_on(config, process).map_err(failed)?;
        let flags = self.flags.clone();
        server.read_settings_by(move || {
            let read = flags.read().map_err(|mistakes| mistakes.to_string())?;
            Into::<ServeOrProxy>::into(read).answers()
        });
        if !config.monitoring.is_quiet {
            let name = self.name;
            server
                .banner()
                .iter()
                .for_each(|line| output::remark(&format!("pollux {name}: {line}")));
        }
        server.notify_manager();
        server.run(&mut signals).map_err(failed)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Runs a server that passes requests on, as its master.
    fn pass(&self, settings: Settings, early: Option<Signals>) -> Result<ExitCode, Failure> {
        if self.is_check {
            return check(|| Server::check_proxy(&settings.config));
        }
        // Before anything else is opened, as `answer` does it.
        let passed = system::sockets().map_err(Failure::failed)?;
        let passed = passed.map(|passed| ProxySockets::passed(&passed, &settings.config));
        let passed = passed.transpose().map_err(Failure::failed)?.unwrap_or_default();
        pollux_sys::descriptors::raise().map_err(Failure::failed)?;
        let mut signals = signals(early).map_err(Failure::failed)?;
        let failed = |error: MasterError| Failure::failed(output::error_chain(&error));
        let master = Master::start(settings, self.command_line(), &passed).map_err(failed)?;
        master.run(&mut signals).map_err(failed)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Continues as the master that another program was in this process.
    fn take_over(
        &self,
        upgraded: UpgradedMaster,
        early: Option<Signals>,
    ) -> Result<ExitCode, Failure> {
        let mut signals = signals(early).map_err(Failure::failed)?;
        upgraded.catches_signals();
        let file =
            upgraded.file().map_or_else(String::new, |(name, text)| format!("{name}\n{text}"));
        let settings: T = self.flags.read_with(upgraded.file()).map_err(Failure::usage)?;
        let config = settings.into().passes().map_err(Failure::usage)?;
        let settings = Settings { config, file };
        let failed = |error: MasterError| Failure::failed(output::error_chain(&error));
        let master = Master::take_over(upgraded, settings, self.command_line()).map_err(failed)?;
        master.run(&mut signals).map_err(failed)?;
        Ok(ExitCode::SUCCESS)
    }

    /// What a master has of the command line.
    fn command_line(&self) -> CommandLine {
        let flags = self.flags.clone();
        let name = self.name;
        CommandLine {
            arguments: std::env::args_os().skip(1).collect(),
            read: Box::new(move || read(&flags)),
            print: Box::new(move |text| output::remark(&format!("pollux {name}: {text}"))),
        }
    }
}

/// Prints what a start would do, or all that would keep it from starting, a line each.
fn check(rehearse: impl FnOnce() -> Result<String, Vec<ServerError>>) -> Result<ExitCode, Failure> {
    // As the start does: how many connections there may be follows from it.
    pollux_sys::descriptors::raise().map_err(Failure::failed)?;
    let plan = rehearse().map_err(|mistakes| {
        let lines: Vec<_> = mistakes.iter().map(|mistake| output::error_chain(mistake)).collect();
        Failure::usage(lines.join("\n"))
    })?;
    output::result(&plan)?;
    Ok(ExitCode::SUCCESS)
}

/// The command line of `pollux proxy`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProxyCommand {
    #[command(subcommand)]
    order: Option<ControlCommand>,
    #[command(flatten)]
    flags: Flags<ProxySettings>,
    /// Read all settings and the files that they name, say what the proxy would do, and end
    #[arg(long, help_heading = "Running")]
    check: bool,
}

/// Orders to a running proxy.
#[derive(Debug, clap::Subcommand)]
enum ControlCommand {
    /// Have a running proxy read its settings anew, without losing a connection
    Reload {
        /// Its control socket, as in its settings: unix:PATH
        #[arg(long, value_name = "unix:PATH")]
        control: String,
    },
    /// Have a running proxy answer 503 for a site, or answer for it again; that holds for its next workers too
    Maintenance {
        /// A host of the site, as in its settings
        host: String,
        /// Whether the maintenance begins or ends
        order: Switch,
        /// Its control socket, as in its settings: unix:PATH
        #[arg(long, value_name = "unix:PATH")]
        control: String,
    },
}

/// What an order switches.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Runs the proxy until a signal ends it, as its master or as a worker; or has one reload its settings.
pub(crate) fn proxy(command: &ProxyCommand, early: Option<Signals>) -> Result<ExitCode, Failure> {
    match &command.order {
        Some(ControlCommand::Reload { control }) => return reload(control),
        Some(ControlCommand::Maintenance { host, order, control }) => {
            return maintenance(host, *order, control);
        }
        None => {}
    }
    Start { name: "proxy", flags: &command.flags, is_check: command.check }.run(early)
}

/// Settings that lead to backends, read anew, with the file as workers get it.
fn read<T: Table + Into<ServeOrProxy>>(flags: &Flags<T>) -> Result<Settings, String> {
    let file = flags.file().map_err(|mistakes| mistakes.to_string())?;
    let settings: T = flags.read_over(&file).map_err(|mistakes| mistakes.to_string())?;
    Ok(Settings { config: settings.into().passes()?, file: text_of(&file) })
}

/// A file as workers get it.
fn text_of(file: &Given) -> String {
    file.file().map_or_else(String::new, |(name, text)| format!("{name}\n{text}"))
}

/// Serves as a worker until the master ends it. The master says what goes wrong.
fn work<T: Table + Into<ServeOrProxy> + Clone + 'static>(
    flags: &Flags<T>,
    worker: WorkerProcess,
    early: Option<Signals>,
) -> ExitCode {
    let prepared = flags.read_with(worker.file()).map_err(|wrong| wrong.to_string());
    let prepared = prepared.and_then(|settings| {
        let config = settings.into().passes()?;
        pollux_sys::descriptors::raise().map_err(|error| error.to_string())?;
        let signals = signals(early).map_err(|error| error.to_string())?;
        Ok((config, signals))
    });
    let ran = match prepared {
        Ok((config, mut signals)) => {
            let flags = flags.clone();
            let read = Box::new(move |text: &str| {
                let settings: T =
                    flags.read_with(text.split_once('\n')).map_err(|wrong| wrong.to_string())?;
                settings.into().passes()
            });
            worker.run(&config, read, &mut signals).map_err(drop)
        }
        Err(why) => {
            worker.failed(&why);
            Err(())
        }
    };
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Has a running proxy read its settings anew; says how that went.
fn reload(control: &str) -> Result<ExitCode, Failure> {
    let path = control.strip_prefix("unix:").unwrap_or(control);
    let failed = |error: io::Error| Failure::failed(format!("{control}: {error}"));
    let end = Instant::now() + RELOAD_TIMEOUT;
    while Instant::now() < end {
        let answer = ask(path, "reload").map_err(failed)?;
        match answer.as_str() {
            RELOADED => {
                output::remark(RELOADED);
                return Ok(ExitCode::SUCCESS);
            }
            // The worker has ended, of another reload or by itself: the next one takes the question.
            "" => {}
            why => return Err(Failure::failed(why)),
        }
    }
    Err(Failure::failed("no word of the reload; the log of the proxy may say more"))
}

/// Begins or ends the maintenance of a site of a running proxy.
fn maintenance(host: &str, order: Switch, control: &str) -> Result<ExitCode, Failure> {
    if host.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Failure::usage(format!("{host:?} is not a host; expected one without spaces")));
    }
    let order = match order {
        Switch::On => "on",
        Switch::Off => "off",
    };
    let path = control.strip_prefix("unix:").unwrap_or(control);
    let failed = |error: io::Error| Failure::failed(format!("{control}: {error}"));
    let end = Instant::now() + RELOAD_TIMEOUT;
    while Instant::now() < end {
        let answer = ask(path, &format!("maintenance {host} {order}")).map_err(failed)?;
        match answer.as_str() {
            // The worker has ended: the next one takes the order.
            "" => {}
            done if done.starts_with("site ") => {
                output::remark(done);
                return Ok(ExitCode::SUCCESS);
            }
            why => return Err(Failure::failed(why)),
        }
    }
    Err(Failure::failed("no word of the order; the log of the proxy may say more"))
}

/// Longer than a worker may take to start.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// What the control socket answers; nothing where it ends before, as it does with a worker that ends.
fn ask(path: &str, command: &str) -> io::Result<String> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let mut answer = Vec::new();
    let read = socket.write_all(format!("{command}\n").as_bytes()).and_then(|()| {
        let mut reader = BufReader::new(&socket);
        // An answer ends with an empty line.
        while !answer.ends_with(b"\n\n") && reader.read_until(b'\n', &mut answer)? > 0 {}
        Ok(())
    });
    match read {
        Err(error) if !matches!(error.kind(), ConnectionReset | BrokenPipe) => Err(error),
        _ if answer.ends_with(b"\n\n") => {
            Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
        }
        _ => Ok(String::new()),
    }
}
