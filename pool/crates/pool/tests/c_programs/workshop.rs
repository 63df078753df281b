//! Where the tests build C programs, and the pools that run them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pollux_testing::{Output, Process, has, succeeded};
use tempfile::TempDir;

pub(crate) const POLLUX_POOL: &str = env!("CARGO_BIN_EXE_pollux-pool");

/// What programs of the reference are linked with.
pub(crate) const SERVER_LIBRARIES: &str = "-latmisrv -latmi -lubf -lnstd -lrt -ldl -lm";
pub(crate) const CLIENT_LIBRARIES: &str = "-latmiclt -latmi -lubf -lnstd -lpthread -lrt -ldl -lm";

/// The library as cargo built it.
pub(crate) fn built_library() -> String {
    let binary = Path::new(POLLUX_POOL);
    binary.with_file_name("deps").join("libpollux_xatmi_c.so").display().to_string()
}

/// A folder of a test's own, with what is built and written there; it goes with everything in it.
pub(crate) struct Workshop {
    folder: TempDir,
    shared: Arc<SharedPrograms>,
}

/// Programs that many tests have as they are, built once for those that run at the same time.
struct SharedPrograms {
    folder: TempDir,
    built: Mutex<HashSet<String>>,
}

impl SharedPrograms {
    /// Those of the workshops that are open; the folder goes with the last of them.
    fn open() -> Arc<Self> {
        static OPEN: Mutex<Weak<SharedPrograms>> = Mutex::new(Weak::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.upgrade().unwrap_or_else(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let new = Arc::new(Self { folder, built: Mutex::default() });
            *open = Arc::downgrade(&new);
            new
        })
    }
}

impl Workshop {
    /// `None`, with the reason printed, where there is no C compiler.
    pub(crate) fn open() -> Option<Self> {
        let folder = || tempfile::tempdir().expect("a folder");
        has("cc").then(|| Self { folder: folder(), shared: SharedPrograms::open() })
    }

    /// Lets a command run here, on the pool of `prefix`.
    pub(crate) fn in_environment(&self, prefix: &str, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        let folder = self.path("");
        // Short messages: many services fit the limits of an ordinary user, and memfds are used.
        command
            .current_dir(&folder)
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("NDRX_QPREFIX", prefix)
            .env("NDRX_CONFIG", self.path("pool.xml"))
            .env("NDRX_ULOG", &folder)
            .env("NDRX_MSGSIZEMAX", "512")
            .env_remove("NDRX_TOUT");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// `pollux` in this folder; it must do what it is asked.
    pub(crate) fn pollux(&self, arguments: &[&str]) -> String {
        succeeded(&mut pollux_in(self.folder.path(), arguments)).stdout
    }

    /// The server `program`, built from a source beside these tests.
    pub(crate) fn server(&self, program: &str, from: &str) {
        self.share(program, &["build-server", "-o", program, &source(from)]);
    }

    /// The client `program`, built from a source beside these tests.
    pub(crate) fn client(&self, program: &str, from: &str) {
        self.share(program, &["build-client", "-o", program, &source(from), "-l", "-lpthread"]);
    }

    fn share(&self, program: &str, build: &[&str]) {
        let shared = &self.shared;
        let mut built = shared.built.lock().unwrap_or_else(PoisonError::into_inner);
        if !built.contains(program) {
            succeeded(&mut pollux_in(shared.folder.path(), build));
            built.insert(program.to_owned());
        }
        drop(built);
        let linked = std::fs::hard_link(shared.folder.path().join(program), self.path(program));
        linked.expect("one file system");
    }

    /// Builds a program from the source beside it, by a link line as manuals have them.
    pub(crate) fn linked(&self, program: &str, libraries: &str) -> Output {
        if !self.path("prefix").exists() {
            self.pollux(&["lay-out", "prefix", "--library", &built_library()]);
        }
        let rpath = format!("-Wl,-rpath,{}", self.path("prefix/lib").display());
        let mut line = self.command("cc", &["-O2", "-Wall", "-Wextra", "-I.", "-Iprefix/include"]);
        line.args(["-Lprefix/lib", &rpath, "-o", program, &format!("{program}.c")]);
        let built = Process::run(line.args(libraries.split(' ')));
        assert!(built.status.success(), "{}", built.stderr);
        built
    }

    /// Any program in this folder.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path());
        command
    }
}

/// `pollux pool` in a folder, with what it is to give the compiler.
fn pollux_in(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(POLLUX_POOL);
    command.args(arguments).current_dir(folder);
    command.env("CFLAGS", format!("-O2 -Wall -Wextra -Werror -I. -I{}", checks().display()));
    command
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}

/// The folder of `check.h`.
fn checks() -> PathBuf {
    repository("pool/crates/xatmi-c/tests/interface")
}

/// A C source beside these tests.
pub(crate) fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c_programs").join(name);
    path.display().to_string()
}

/// A running pool of the programs in a workshop; it is stopped when this is dropped.
pub(crate) struct Pool<'a> {
    workshop: &'a Workshop,
    prefix: String,
}

impl<'a> Pool<'a> {
    /// Starts the programs of `xml`, which stand in the workshop; all of them must come up, for which a busy machine needs
    /// longer than two cycles.
    pub(crate) fn start(workshop: &'a Workshop, xml: &str) -> Self {
        let pool = Self::planned(workshop, xml);
        succeeded(&mut pool.order(&["start"]));
        pool
    }

    /// The same, of programs that need not come up.
    pub(crate) fn begin(workshop: &'a Workshop, xml: &str) -> Self {
        let pool = Self::planned(workshop, xml);
        Process::run(&mut pool.order(&["start"]));
        pool
    }

    fn planned(workshop: &'a Workshop, xml: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        workshop.write("pool.xml", &xml.replace("</srvid>", "</srvid><start_max>60</start_max>"));
        let prefix = format!("/pollux-test-{}-{number}", std::process::id());
        Self { workshop, prefix }
    }

    /// One copy of a program that stands in the workshop.
    pub(crate) fn of(workshop: &'a Workshop, program: &str) -> Self {
        let server =
            format!("<server name=\"{program}\"><srvid>1</srvid><min>1</min><max>1</max></server>");
        Self::start(workshop, &format!("<endurox><servers>{server}</servers></endurox>"))
    }

    /// A program of the workshop as a client of this pool.
    pub(crate) fn client(&self, program: &str) -> Command {
        self.in_environment(Command::new(self.workshop.path(program)))
    }

    /// A program of the system in the environment of a client of this pool.
    pub(crate) fn tool(&self, program: &str) -> Command {
        self.in_environment(Command::new(program))
    }

    /// Stops it; all workers must end.
    pub(crate) fn stop(self) {
        succeeded(&mut self.order(&["stop"]));
        std::mem::forget(self);
    }

    fn order(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(POLLUX_POOL);
        command.args(arguments);
        self.in_environment(command)
    }

    fn in_environment(&self, mut command: Command) -> Command {
        self.workshop.in_environment(&self.prefix, &mut command);
        command
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        // After a failed test; there is nothing to be done when this fails too.
        let _ = self.order(&["stop", "--now"]).output();
    }
}
