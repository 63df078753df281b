//! Leaving the sandbox of a server from inside: a process starts a real one, with the configuration of a
//! real one, and then tries everything that an attacker in its place would try.
//!
//! A sandbox binds the whole process and wants one without other threads, so each case is this program
//! started anew, without the threads of a test harness.

use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pollux_engine::Driver;
use pollux_server::{OwnProcess, Server};
use pollux_settings::Given;
use pollux_sys::ring::{Ring, Sizes};
use pollux_sys::sandbox::{try_calls, try_files};
use pollux_testing::{Process, Trial, run_tests, skip, test};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The driver of the case that this process is; not set in the one that runs the tests.
const DRIVER: &str = "POLLUX_TEST_DRIVER";
/// Set where the case has a sandbox.
const CONFINED: &str = "POLLUX_TEST_CONFINED";

/// Set for the process that may make no ring.
const RINGLESS: &str = "POLLUX_TEST_RINGLESS";

/// The reason stands in `/proc`, which a server in its sandbox does not see.
fn explain_a_forbidden_ring() {
    let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this architecture");
    // As container runtimes do.
    let rules = [(libc::SYS_io_uring_setup, Vec::new())].into();
    let others = SeccompAction::Allow;
    let these = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(rules, others, these, arch).expect("a valid filter");
    let program: BpfProgram = filter.try_into().expect("a valid program");
    apply_filter(&program).expect("a process may restrict itself");
    let text = "reply = 1\nlisten = \"127.0.0.1:0\"\nrequire_sandbox = true\nquiet = true";
    let config = Given::from_toml(text, "test").read().expect("right");
    let server = Server::start_on(&config, OwnProcess::default()).expect("on another mechanism");
    let said = server.banner().join("\n");
    server.abort();
    server.join().expect("it ends well");
    assert!(said.contains("a seccomp filter forbids io_uring_setup"), "{said}");
}

fn main() -> ExitCode {
    if let Ok(driver) = std::env::var(DRIVER) {
        let is_confined = std::env::var_os(CONFINED).is_some();
        let folder = tempfile::tempdir().expect("a folder");
        if let Some(inside) = Inside::start(&driver, folder.path(), is_confined) {
            inside.check(is_confined);
        }
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(RINGLESS).is_some() {
        explain_a_forbidden_ring();
        return ExitCode::SUCCESS;
    }
    let missing = try_files().map(drop).and_then(|()| try_calls()).err();
    let missing = missing.map(|unavailable| unavailable.to_string());
    // The same attempts succeed without a sandbox, or they would show nothing.
    let both = |driver: Driver| [trial(driver.name(), false), trial(driver.name(), true)];
    let ringless = test("a_ring_that_a_filter_forbids_is_explained_by_it_from_within", || {
        let mut command = Command::new(std::env::current_exe().expect("this one"));
        let ended = Process::run(command.env(RINGLESS, ""));
        assert!(ended.status.success(), "{}\n{}", ended.status, ended.stderr);
    });
    let trials = Driver::ALL.into_iter().flat_map(both).chain([ringless]);
    run_tests(1, missing.as_deref(), trials.collect())
}

fn trial(driver: &'static str, is_confined: bool) -> Trial {
    let name = if is_confined {
        "nothing_else_is_in_reach_on"
    } else {
        "without_a_sandbox_all_is_in_reach_on"
    };
    test(format!("{name}_{driver}"), move || {
        let mut command = Command::new(std::env::current_exe().expect("this one"));
        command.env(DRIVER, driver);
        if is_confined {
            command.env(CONFINED, "");
        }
        let mut case = Process::start(&mut command);
        if let Some(why) = case.try_wait_for_stderr_line("skipped: ") {
            skip(why.trim_start_matches("skipped: "));
        }
        let ended = case.ended();
        let cause = if is_confined {
            "Did a call end with EPERM? What a mechanism waits by stands in its row, `waits by` (poller/src/mechanism.rs)."
        } else {
            ""
        };
        assert!(ended.status.success(), "{}\n{}{cause}", ended.status, ended.stderr);
    })
}

type Attempt = fn(&Inside) -> std::io::Result<()>;

/// A server in this process, and what lies around it.
struct Inside {
    server: Server,
    /// What it serves and what it does not.
    folder: PathBuf,
    /// Of another process, which waits.
    elsewhere: TcpListener,
}

impl Inside {
    fn start(driver: &str, folder: &Path, is_confined: bool) -> Option<Self> {
        fs::create_dir_all(folder.join("www/site")).expect("made");
        fs::create_dir(folder.join("logs")).expect("made");
        fs::write(folder.join("www/site/page"), "a page").expect("written");
        fs::write(folder.join("secret"), "a secret").expect("written");
        let sandbox = if is_confined { "require_sandbox" } else { "no_sandbox" };
        let text = format!(
            "dir = {:?}\nlisten = [\"127.0.0.1:0\"]\npoller = \"{driver}\"\naccess_log = {:?}\n\
             {sandbox} = true\nthreads = 2\nstats = \"127.0.0.1:0\"\nquiet = true",
            folder.join("www/site"),
            folder.join("logs/access"),
        );
        let config = Given::from_toml(&text, "test").read().expect("right");
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("bound");
        match Server::start_on(&config, OwnProcess::default()) {
            Ok(server) => Some(Self { server, folder: folder.to_owned(), elsewhere }),
            Err(refused) => {
                skip(format_args!("{driver}: {refused}"));
                None
            }
        }
    }
}

impl Inside {
    fn check(self, is_confined: bool) {
        for (what, attempt) in self.attempts() {
            let outcome = attempt(&self);
            match (&outcome, is_confined) {
                (Err(error), true) => {
                    let is_refused =
                        matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
                    assert!(is_refused, "{what}: refused by something else: {error}");
                }
                (Ok(()), false) => {}
                (Err(error), false) if what.ends_with("ring of its own") => {
                    skip(format_args!("{what}: {error}"));
                }
                _ => panic!("{what}, confined {is_confined}: {outcome:?}"),
            }
        }
        // Permissions bind all other users.
        if is_confined && rustix::process::geteuid().is_root() {
            let empty = File::options()
                .read(true)
                .custom_flags(libc::O_TRUNC)
                .open(self.folder.join("www/site/page"));
            let refused = empty.expect_err("what is served can't be emptied");
            assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
        }
        // What is its own is in reach as before.
        let within = fs::read_to_string(self.folder.join("www/site/page"));
        assert_eq!(within.expect("in reach"), "a page");
        let log = self.folder.join("logs/another");
        let mut log = File::options().append(true).create(true).open(log).expect("in reach");
        log.write_all(b"a line\n").expect("written");
        self.server.abort();
        self.server.join().expect("it ends well");
    }

    fn attempts(&self) -> [(&'static str, Attempt); 15] {
        [
            ("read a file outside", |inside| {
                fs::read_to_string(inside.folder.join("secret")).map(drop)
            }),
            ("read a file of the system", |_| fs::read_to_string("/etc/hostname").map(drop)),
            ("list a folder outside", |inside| fs::read_dir(&inside.folder).map(drop)),
            ("write what is served", |inside| {
                fs::write(inside.folder.join("www/site/page"), "a page")
            }),
            ("make a file outside", |inside| fs::write(inside.folder.join("new"), "")),
            ("remove a log", |inside| fs::remove_file(inside.folder.join("logs/access"))),
            ("read its own memory", |_| File::open("/proc/self/mem").map(drop)),
            ("run a program", |_| Command::new("/bin/true").status().map(drop)),
            ("start a thread", |_| {
                let thread = std::thread::Builder::new().spawn(|| ())?;
                thread.join().expect("it does nothing");
                Ok(())
            }),
            ("connect", |inside| TcpStream::connect(inside.elsewhere.local_addr()?).map(drop)),
            ("open a socket", |_| UdpSocket::bind("127.0.0.1:0").map(drop)),
            ("open a socket of the machine's own", |_| UnixDatagram::unbound().map(drop)),
            ("signal another process", |_| {
                let parent = rustix::process::getppid().expect("it has one");
                Ok(rustix::process::test_kill_process(parent)?)
            }),
            ("make a ring of its own", |_| ring()),
            ("be traced", |_| trace()),
        ]
    }
}

/// Lets the parent trace this process, which would stop it at its next signal; there is none.
fn trace() -> std::io::Result<()> {
    #[expect(unsafe_code, reason = "no crate traces safely")]
    // SAFETY: the request reads and writes no memory.
    let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn ring() -> std::io::Result<()> {
    let opened = Ring::open(Sizes { submission: 8, completion: 8 });
    opened.map(drop).map_err(|refused| refused.cause)
}
