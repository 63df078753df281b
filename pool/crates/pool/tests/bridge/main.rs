//! Pools that share services over a broker, as processes: the command starts them, this very program
//! is their server, and broker, bridges and unknown senders do their worst.
//!
//! Needs `nats-server`; without it the tests say so, unless skips are forbidden.

mod broker;
mod server;
mod sharing;

use std::os::unix::fs::symlink;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pollux_testing::{DEADLINE, Process, broker_missing, run_tests, test, wait_for};
use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{Answer, CallFlags, Client};
use pollux_xatmi::control::{Answer as Listed, Control, Request};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::worker::LINK_VARIABLE;
use rustix::process::{Pid, Signal, kill_process};

/// Most of each is waiting for others.
const THREADS: usize = 4;

/// A test by its name.
type Test = (&'static str, fn());

const TESTS: [Test; 11] = [
    ("pools_share_services_and_outlive_their_broker", sharing::pools_outlive_their_broker),
    ("every_kind_of_call_and_buffer_goes_over", sharing::every_kind_of_call_and_buffer_goes_over),
    ("conversations_are_refused_at_once", sharing::conversations_are_refused_at_once),
    ("news_that_passed_while_away_are_asked_for", sharing::news_that_passed_are_asked_for),
    (
        "a_service_that_no_pool_has_goes_round_in_no_circle",
        sharing::a_service_that_no_pool_has_goes_round_in_no_circle,
    ),
    ("a_broker_that_stands_still_costs_no_more_than_the_time", broker::stands_still),
    ("a_broker_with_a_password_is_joined_or_named", broker::wants_a_password),
    ("what_is_too_long_is_refused_at_once", sharing::what_is_too_long_is_refused_at_once),
    ("unknown_senders_disturb_no_call", broker::unknown_senders_disturb_no_call),
    ("many_callers_share_two_bridges", sharing::many_callers_share_two_bridges),
    ("a_bridge_that_ends_owes_nothing", sharing::a_bridge_that_ends_owes_nothing),
];

fn main() -> ExitCode {
    if std::env::var_os(LINK_VARIABLE).is_some() {
        return server::run();
    }
    run_tests(THREADS, broker_missing(), TESTS.map(|(name, run)| test(name, run)).into())
}

/// A pool that the command started. It has two bridges, with the ids 10 and 11.
pub(crate) struct Pool {
    folder: tempfile::TempDir,
    prefix: String,
}

/// What a pool is made of.
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a str,
    /// Where its bridges find the broker.
    pub(crate) nats: &'a str,
    pub(crate) exports: &'a str,
    /// Words for its two servers, with the ids 1 and 2.
    pub(crate) services: &'a str,
    /// Words for a server that is not started, with the id 5.
    pub(crate) later: &'a str,
    pub(crate) refresh_s: u32,
}

impl Plan<'_> {
    /// A pool that says what it has once in a second.
    pub(crate) const EMPTY: Plan<'static> =
        Plan { name: "", nats: "", exports: "", services: "", later: "LATER", refresh_s: 1 };
}

impl Pool {
    pub(crate) fn start(plan: &Plan<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Tests run beside each other.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let prefix = format!("/bridge-{}-{}-{number}", plan.name, std::process::id());
        let own = std::env::current_exe().expect("this program");
        symlink(own, folder.path().join("echosv")).expect("a link");
        let Plan { name, nats, exports, services, later, refresh_s } = plan;
        let config = format!(
            "<?xml version=\"1.0\"?><endurox><appconfig><sanity>1</sanity>\
             <brrefresh>{refresh_s}</brrefresh></appconfig><defaults><pingtime>0</pingtime><start_max>60</start_max>\
             <exportsvcs>{exports}</exportsvcs></defaults><servers>\
             <server name=\"echosv\"><srvid>1</srvid><min>2</min><max>2</max>\
             <appopt>{services}</appopt></server>\
             <server name=\"echosv\"><srvid>5</srvid><min>0</min><max>1</max>\
             <appopt>{later}</appopt></server>\
             <server name=\"tpbridge\"><srvid>10</srvid><min>2</min><max>2</max>\
             <appopt>--nats {nats} --domain test --pool {name}</appopt></server>\
             </servers></endurox>"
        );
        std::fs::write(folder.path().join("pool.xml"), config).expect("a file");
        let pool = Self { folder, prefix };
        let file = pool.folder.path().join("pool.xml");
        let log = pool.folder.path().join("log");
        let file = file.to_string_lossy();
        let log = log.to_string_lossy();
        pool.command(&["start", "--config", &file, "--log", &log]);
        pool
    }

    /// A pool with the service `ECHO` for others, and one that has it not.
    pub(crate) fn pair(nats: &str) -> [Self; 2] {
        let here = Plan { name: "here", nats, exports: "ECHO", services: "ECHO", ..Plan::EMPTY };
        let there = Plan { name: "there", nats, services: "OTHER", ..Plan::EMPTY };
        [&here, &there].map(Self::start)
    }

    /// Runs `pollux pool` for this pool.
    pub(crate) fn command(&self, arguments: &[&str]) {
        let ended = self.started(arguments).ended();
        assert!(ended.status.success(), "{arguments:?}: {}{}", ended.stderr, self.log());
    }

    /// The same while it runs.
    pub(crate) fn started(&self, arguments: &[&str]) -> Process {
        let old = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.folder.path().to_owned());
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&old)));
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-pool"));
        command.args(arguments).env("NDRX_QPREFIX", &self.prefix);
        // Queues of a quarter: room for many callers within the stock limits.
        command.env("NDRX_MSGSIZEMAX", "1024").env("PATH", path.expect("no colon"));
        Process::start(&mut command)
    }

    pub(crate) fn environment(&self) -> Environment {
        let variable = |name: &str| (name == "NDRX_QPREFIX").then(|| self.prefix.clone().into());
        Environment::read(variable).expect("a prefix")
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(&self.environment()).expect("the pool runs")
    }

    /// A client, once `service` of another pool answers here.
    pub(crate) fn client_of(&self, service: &str) -> Client {
        let mut client = self.client();
        let request = text("1");
        wait_for("the service is there", || client.call(service, &request, CallFlags::NONE).ok());
        client
    }

    /// The bridges' processes by id, and how often each was started.
    pub(crate) fn bridges(&self) -> Vec<(u32, Pid)> {
        let mut bridges = Vec::new();
        let mut control = Control::connect(&self.environment().prefix).expect("a manager");
        let asked = control.ask(&Request::Ps, DEADLINE, |answer| {
            let Listed::Workers(rows) = answer else { return };
            let up = rows.into_iter().filter(|row| row.srvid >= 10);
            bridges.extend(up.filter_map(|row| Some((row.srvid, row.pid?))));
        });
        asked.expect("an answer");
        let pid = |pid: u32| Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        bridges.into_iter().map(|(srvid, number)| (srvid, pid(number))).collect()
    }

    /// What `ps` says is wrong with the bridges.
    pub(crate) fn causes_of_bridges(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let mut control = Control::connect(&self.environment().prefix).expect("a manager");
        let asked = control.ask(&Request::Ps, DEADLINE, |answer| {
            let Listed::Workers(rows) = answer else { return };
            causes
                .extend(rows.into_iter().filter(|row| row.srvid >= 10).filter_map(|row| row.cause));
        });
        asked.expect("an answer");
        causes
    }

    /// Sends a signal to all bridges.
    pub(crate) fn signal_bridges(&self, signal: Signal) {
        for (_, pid) in self.bridges() {
            kill_process(pid, signal).expect("it runs");
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn end(self) {
        self.command(&["stop"]);
    }
}

impl Drop for Pool {
    #[expect(clippy::print_stderr, reason = "a test that has failed shows the pool's log")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of {}:\n{}", self.prefix, self.log());
            // The test has failed already.
            let _ = self.started(&["stop", "--now"]).wait();
        }
    }
}

pub(crate) fn text(words: &str) -> Buffer {
    Buffer::string(words).expect("text")
}

pub(crate) fn content(answer: &Answer) -> &[u8] {
    let buffer = answer.buffer.as_ref().expect("it answers with data");
    &buffer.as_bytes()[..answer.len_bytes]
}
