//! Leaving the sandbox of a server from inside: a process starts a real one, with the configuration of a
//! real one, and then tries everything that an attacker would try who took it over.
//!
//! A sandbox binds the whole process and wants one without other threads, so each case is this program
//! started anew, without the threads of a test harness.
#![expect(clippy::print_stdout, reason = "what is skipped is shown")]

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

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [case, driver, folder] = words.as_slice() {
        // The same attempts succeed without a sandbox, or they would show nothing.
        let is_confined = case == CONFINED;
        if let Some(inside) = Inside::start(driver, Path::new(folder), is_confined) {
            inside.check(is_confined);
        }
        return ExitCode::SUCCESS;
    }
    if let Err(unavailable) =
        pollux_sandbox::try_files().map(drop).and_then(|()| pollux_sandbox::try_calls())
    {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{unavailable}");
        println!("skipped: {unavailable}");
        return ExitCode::SUCCESS;
    }
    for driver in Driver::ALL.map(Driver::name) {
        for case in ["free", CONFINED] {
            let folder = tempfile::tempdir().expect("a folder");
            let program = std::env::current_exe().expect("this one");
            let outcome = Command::new(program).args([case, driver]).arg(folder.path()).status();
            let outcome = outcome.expect("this program starts");
            assert!(outcome.success(), "{case} on {driver}: {outcome}");
            println!("{case} on {driver}: ok");
        }
    }
    ExitCode::SUCCESS
}

type Attempt = fn(&Inside) -> std::io::Result<()>;

const CONFINED: &str = "confined";

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
        fs::create_dir(folder.join("site")).expect("made");
        fs::create_dir(folder.join("logs")).expect("made");
        fs::write(folder.join("site/page"), "a page").expect("written");
        fs::write(folder.join("secret"), "a secret").expect("written");
        let sandbox = if is_confined { "require_sandbox" } else { "no_sandbox" };
        let text = format!(
            "dir = {:?}\nlisten = [\"127.0.0.1:0\"]\npoller = \"{driver}\"\naccess_log = {:?}\n\
             {sandbox} = true\nthreads = 2\nstats = \"127.0.0.1:0\"\nquiet = true",
            folder.join("site"),
            folder.join("logs/access"),
        );
        let config = Given::from_toml(&text, "test").read().expect("right");
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("bound");
        match Server::start_on(&config, OwnProcess::default()) {
            Ok(server) => Some(Self { server, folder: folder.to_owned(), elsewhere }),
            Err(refused) => {
                assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{refused}");
                println!("{driver} is skipped: {refused}");
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
                    assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{error}");
                    println!("{what} is skipped: {error}");
                }
                _ => panic!("{what}, confined {is_confined}: {outcome:?}"),
            }
        }
        // Permissions bind all other users.
        if is_confined && rustix::process::geteuid().is_root() {
            let empty = File::options()
                .read(true)
                .custom_flags(libc::O_TRUNC)
                .open(self.folder.join("site/page"));
            let refused = empty.expect_err("what is served can't be emptied");
            assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
        }
        // What is its own is in reach as before.
        let within = fs::read_to_string(self.folder.join("site/page"));
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
            ("write what is served", |inside| fs::write(inside.folder.join("site/page"), "a page")),
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
