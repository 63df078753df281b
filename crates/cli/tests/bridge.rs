//! Two pools that share services over a broker, as processes: the command starts both, this very
//! program is their server, and the broker is stopped and started in mid-load.
//!
//! Needs `nats-server`; without it the test says so, unless skips are forbidden.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::client::{Answer, CallError, CallFlags, Client};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::error::Code;
use pollux_xatmi::worker::{Done, LINK_VARIABLE, Worker};

/// The longest wait for anything; a busy machine takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit of a call under load.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// Callers at the same time: more than the bridge has copies, so that some find all of them busy.
const CALLERS: usize = 6;
const LARGE_BYTES: usize = 300_000;

fn main() -> ExitCode {
    if std::env::var_os(LINK_VARIABLE).is_some() {
        return serve();
    }
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let name = "pools_share_services_and_outlive_their_broker";
    if wanted.is_some_and(|wanted| !name.contains(&wanted)) {
        return ExitCode::SUCCESS;
    }
    let Some(server) = nats_server() else {
        let reason = "nats-server is not installed";
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "skips are forbidden: {reason}");
        say(&format!("skipped: {reason}"));
        return ExitCode::SUCCESS;
    };
    pools_share_services_and_outlive_their_broker(&server);
    say(&format!("test {name} ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored"));
    ExitCode::SUCCESS
}

/// A worker of either pool.
fn serve() -> ExitCode {
    let worker = Worker::from_environment().expect("a manager started it");
    let registry = worker.registry();
    let ended = worker.run(
        std::env::args_os(),
        |options| {
            let echo = |request: pollux_xatmi::worker::Incoming| Done::success(request.buffer);
            let fail = |request: pollux_xatmi::worker::Incoming| Done::failure(request.buffer);
            for name in options {
                let name = name.to_string_lossy();
                let offered = match &*name {
                    "FAIL" => registry.advertise(&name, "fail", fail),
                    _ => registry.advertise(&name, "echo", echo),
                };
                offered.map_err(|error| error.to_string())?;
            }
            Ok(())
        },
        || {},
    );
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn pools_share_services_and_outlive_their_broker(nats_server: &str) {
    let port = free_port();
    let mut broker = Broker::start(nats_server, port);
    let here = Pool::start("here", port, "<exportsvcs>ECHO,FAIL</exportsvcs>", "ECHO FAIL HIDDEN");
    let there = Pool::start("there", port, "", "OTHER");
    let mut client = there.client();
    let hello = text("hello");

    until("the other pool's service is there", || {
        client.call("ECHO", &hello, CallFlags::NONE).ok().map(|answer| {
            assert_eq!(content(&answer), b"hello\0");
        })
    });
    let hidden = client.call("HIDDEN", &hello, CallFlags::NONE).expect_err("not exported");
    assert_eq!(hidden.code(), Code::NoEntry);
    match client.call("FAIL", &hello, CallFlags::NONE).expect_err("it fails") {
        CallError::Failed(answer) => assert_eq!(content(&answer), b"hello\0"),
        CallError::Error(error) => panic!("{error}"),
    }
    let large = Buffer::carray(&vec![7; LARGE_BYTES]).expect("bytes");
    let answer = client.call("ECHO", &large, CallFlags::NONE).expect("beyond a message");
    assert_eq!(answer.len_bytes, LARGE_BYTES);

    let (is_over, has_broken) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let load = || under_load(&there, &is_over, &has_broken);
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(load)).collect();
        broker.kill();
        until("callers are told that the broker is away", || {
            has_broken.load(Relaxed).then_some(())
        });
        broker = Broker::start(nats_server, port);
        until("the service is back", || client.call("ECHO", &hello, CallFlags::NONE).ok());
        is_over.store(true, Relaxed);
        for caller in callers {
            caller.join().expect("each call ended as it may");
        }
    });

    here.stop_server();
    until("a service that is gone is unknown", || {
        let error = client.call("ECHO", &hello, CallFlags::NONE).err()?;
        (error.code() == Code::NoEntry).then_some(())
    });
    drop(client);
    here.end();
    there.end();
    broker.kill();
}

/// Calls until the end; each call ends in success or in an error that the documents name.
fn under_load(pool: &Pool, is_over: &AtomicBool, has_broken: &AtomicBool) {
    let mut client = pool.client();
    client.set_timeout(CALL_LIMIT);
    let request = text("load");
    while !is_over.load(Relaxed) {
        let began = Instant::now();
        match client.call("ECHO", &request, CallFlags::NONE) {
            Ok(answer) => assert_eq!(content(&answer), b"load\0"),
            Err(error) => {
                let known = [Code::ServiceError, Code::NoEntry, Code::Time];
                assert!(known.contains(&error.code()), "{error}");
                has_broken.store(true, Relaxed);
            }
        }
        assert!(began.elapsed() < CALL_LIMIT + PATIENCE, "{:?}", began.elapsed());
    }
}

/// A broker that is killed when the test is over, however it ends.
struct Broker(Child);

impl Broker {
    fn start(program: &str, port: u16) -> Self {
        let port = port.to_string();
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", &port]).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("it is installed"))
    }

    fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Killed already after a test that went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pool that the command started.
struct Pool {
    folder: tempfile::TempDir,
    prefix: String,
}

impl Pool {
    fn start(name: &str, port: u16, defaults: &str, services: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let prefix = format!("/bridge-{name}-{}", std::process::id());
        let own = std::env::current_exe().expect("this program");
        symlink(own, folder.path().join("echosv")).expect("a link");
        let config = format!(
            "<?xml version=\"1.0\"?><endurox><appconfig><sanity>1</sanity><brrefresh>1</brrefresh>\
             </appconfig><defaults>{defaults}</defaults><servers>\
             <server name=\"echosv\"><srvid>1</srvid><min>2</min><max>2</max>\
             <appopt>{services}</appopt></server>\
             <server name=\"tpbridge\"><srvid>10</srvid><min>2</min><max>2</max>\
             <appopt>--nats nats://127.0.0.1:{port} --domain test --pool {name}</appopt></server>\
             </servers></endurox>"
        );
        std::fs::write(folder.path().join("pool.xml"), config).expect("a file");
        let pool = Self { folder, prefix };
        let file = pool.folder.path().join("pool.xml");
        let log = pool.folder.path().join("log");
        let (file, log) = (file.to_string_lossy(), log.to_string_lossy());
        pool.command(&["start", "--config", &file, "--log", &log]);
        pool
    }

    fn command(&self, arguments: &[&str]) {
        let old = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.folder.path().to_owned());
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&old)));
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.arg("pool").args(arguments).env("NDRX_QPREFIX", &self.prefix);
        let output = command.env("PATH", path.expect("no colon")).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}{}", self.log());
    }

    fn client(&self) -> Client {
        let variable = |name: &str| (name == "NDRX_QPREFIX").then(|| self.prefix.clone().into());
        let environment = Environment::read(variable).expect("a prefix");
        Client::open(&environment).expect("the pool runs")
    }

    fn stop_server(&self) {
        self.command(&["stop", "--name", "echosv"]);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn end(self) {
        self.command(&["stop"]);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!("log of {}:\n{}", self.prefix, self.log()));
            let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
            command.args(["pool", "stop", "--now"]).env("NDRX_QPREFIX", &self.prefix);
            // The test has failed already.
            let _ = command.output();
        }
    }
}

fn nats_server() -> Option<String> {
    let paths = ["nats-server", "/usr/sbin/nats-server"];
    let runs = |program: &&str| {
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    paths.iter().find(|program| runs(program)).map(|program| (*program).to_owned())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

fn text(words: &str) -> Buffer {
    Buffer::string(words).expect("text")
}

fn content(answer: &Answer) -> &[u8] {
    let buffer = answer.buffer.as_ref().expect("it answers with data");
    &buffer.as_bytes()[..answer.len_bytes]
}

/// Asks until there is an answer. Each attempt waits for others by itself.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "it took too long until {what}");
        std::thread::yield_now();
    }
}

#[expect(clippy::print_stdout, reason = "a test program without a harness reports by itself")]
fn say(words: &str) {
    println!("{words}");
}
