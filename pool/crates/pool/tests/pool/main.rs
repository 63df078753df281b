//! `pollux pool` as a user types it. A worker is this program in another role.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use pollux_testing::{DEADLINE, Output, Process, Signal, run_tests, skip, succeeded, test};
use pollux_xatmi::client::Client;
use pollux_xatmi::control::{Answer, Request};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::link::{PeerLink, Received};
use pollux_xatmi::worker::{Done, LINK_VARIABLE, Worker};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, getpgid, kill_process};

const POLLUX_POOL: &str = env!("CARGO_BIN_EXE_pollux-pool");
/// Runs a program in a session with a terminal.
const SCRIPT: &str = "/usr/bin/script";
/// Tests at once: most of their time is spent waiting for pools.
const THREADS: usize = 4;

/// Set for this program where it is a manager that takes its time to end.
const SLOW_MANAGER: &str = "POLLUX_TEST_SLOW_MANAGER";

fn main() -> ExitCode {
    if std::env::var_os(LINK_VARIABLE).is_some() {
        return worker();
    }
    if std::env::var_os(SLOW_MANAGER).is_some() {
        return slow_manager();
    }
    let tests: [(&str, fn()); 16] = [
        ("a_pool_is_started_shown_ordered_and_stopped", a_pool_is_started_shown_and_stopped),
        ("a_service_manager_is_notified_of_the_pools_state", a_service_manager_is_notified),
        ("what_is_missing_is_reported_and_the_rest_starts", what_is_missing_is_reported),
        ("a_common_configuration_holds_the_environment", a_common_configuration_holds_it),
        ("check_finds_what_does_not_fit", check_finds_what_does_not_fit),
        ("check_asks_programs_what_they_offer", check_asks_programs_what_they_offer),
        ("a_worker_that_always_ends_is_shown_with_its_pause", a_worker_that_always_ends_is_shown),
        ("a_restart_of_what_is_down_returns", a_restart_of_what_is_down_returns),
        ("a_pool_keeps_nothing_open_of_its_caller", a_pool_keeps_nothing_open_of_its_caller),
        ("workers_have_no_terminal_to_ask_at", workers_have_no_terminal),
        ("workers_of_another_namespace_are_left_alone", workers_of_another_namespace),
        ("a_pool_that_does_not_run_is_an_error", a_pool_that_does_not_run_is_an_error),
        ("a_start_of_one_worker_begins_a_pool", a_start_of_one_worker_begins_a_pool),
        ("lists_name_what_the_transport_has", lists_name_what_the_transport_has),
        ("a_stop_returns_when_the_manager_has_ended", a_stop_returns_when_the_manager_has_ended),
        ("a_file_size_that_is_too_small_is_an_error", a_file_size_that_is_too_small_is_an_error),
    ];
    run_tests(THREADS, None, tests.map(|(name, run)| test(name, run)).into())
}

/// Answers the order to end and closes its socket; its process ends when standard input does.
#[expect(clippy::print_stderr, reason = "the test waits for it")]
fn slow_manager() -> ExitCode {
    let prefix = Environment::of_process().expect("set").prefix;
    let listener = pollux_xatmi::control::listen(&prefix).expect("the name is free");
    eprintln!("listens");
    let mut ready = [PollFd::new(&listener, PollFlags::IN)];
    poll(&mut ready, None).expect("a connection");
    let mut link = PeerLink::new(rustix::net::accept(&listener).expect("one waits"));
    let order = link.receive_within::<Request>(DEADLINE).expect("an order");
    assert!(matches!(order, Received::Message(Request::End { .. }, _)), "{order:?}");
    let message = "0 of 0 workers stopped".to_owned();
    link.send(&Answer::Done { message }).expect("sent");
    drop((link, listener));
    std::io::stdin().read_to_string(&mut String::new()).expect("the end of standard input");
    ExitCode::SUCCESS
}

fn worker() -> ExitCode {
    let worker = Worker::from_environment().expect("a manager started this");
    let registry = worker.registry();
    let ran = worker.run(
        std::env::args_os(),
        |words| {
            if words.first().is_some_and(|word| word == "end") {
                std::process::exit(7);
            }
            if words.first().is_some_and(|word| word == "refuse") {
                return Err("no account book".to_owned());
            }
            let echo = |request: pollux_xatmi::worker::Incoming| Done::success(request.buffer);
            // As many as the command line says, else one.
            let more =
                words.first().and_then(|word| word.to_str()?.parse::<u32>().ok()).unwrap_or(1);
            let names = (1..more).map(|number| format!("ECHO{number}"));
            for name in names.chain(["ECHO".to_owned()]) {
                registry.advertise(&name, "echo", echo).map_err(|error| error.to_string())?;
            }
            Ok(())
        },
        || {},
    );
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A folder with a configuration and a program `echosv`.
struct Bank {
    folder: tempfile::TempDir,
    prefix: String,
}

impl Bank {
    fn new(subject: &str, servers: &str) -> Self {
        Self::with(subject, "", servers)
    }

    /// The same, with an `<appconfig>`.
    fn with(subject: &str, app: &str, servers: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let own = std::env::current_exe().expect("this program");
        std::os::unix::fs::symlink(own, folder.path().join("echosv")).expect("a link");
        let text = format!("<endurox>{app}<servers>{servers}</servers></endurox>");
        std::fs::write(folder.path().join("bank.xml"), text).expect("a file");
        let prefix = format!("/pollux-cli-{subject}-{}", std::process::id());
        Self { folder, prefix }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("bank.xml")
    }

    /// `pollux pool` for this pool.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(POLLUX_POOL);
        self.surround(command.args(words));
        command
    }

    fn log(&self) -> String {
        format!("pollux-pool-{}.log", &self.prefix[1..])
    }

    fn surround(&self, command: &mut Command) {
        command.env("NDRX_QPREFIX", &self.prefix);
        command.env("NDRX_CONFIG", self.config()).env("NDRX_MSGSIZEMAX", "512");
        command.env("PATH", self.folder.path()).env_remove("NDRX_ULOG");
    }

    fn good(&self, words: &[&str]) -> (String, String) {
        let Output { status, stdout, stderr } = Process::run(&mut self.command(words));
        assert!(status.success(), "{words:?}: {stdout}{stderr}");
        (stdout, stderr)
    }

    fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.good(&[words, &["--json"]].concat()).0).expect("JSON")
    }

    fn bad(&self, words: &[&str], code: i32) -> String {
        refused(&mut self.command(words), code)
    }
}

/// What a command says that ends with this code.
fn refused(command: &mut Command, code: i32) -> String {
    let Output { status, stdout, stderr } = Process::run(command);
    assert_eq!(status.code(), Some(code), "{command:?}: {stdout}{stderr}");
    stdout + &stderr
}

impl Drop for Bank {
    fn drop(&mut self) {
        // Where a test has failed.
        let _ = self.command(&["stop", "--now"]).output();
    }
}

fn a_pool_is_started_shown_and_stopped() {
    let servers = "<server name='echosv'><srvid>7</srvid><min>2</min><max>3</max></server>";
    let bank = Bank::new("life", servers);
    let (_, said) = bank.good(&["start", "--wake", "all", "--metrics", "127.0.0.1:0"]);
    assert!(said.contains("2 of 2 workers up after "), "{said}");
    assert!(said.contains("metrics: http://127.0.0.1:"), "{said}");
    let (table, _) = bank.good(&["ps"]);
    let first: Vec<&str> = table.lines().next().expect("a heading").split_whitespace().collect();
    assert_eq!(first[..4], ["PROGRAM", "SRVID", "PID", "STATE"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    let rows = bank.json(&["ps"]);
    assert_eq!((&rows[0]["srvid"], &rows[0]["state"]), (&7.into(), &"up".into()));
    assert_eq!(rows[2]["state"], "down");
    let (services, _) = bank.good(&["services"]);
    assert!(services.contains("ECHO     echo      echosv"), "{services}");
    let (info, _) = bank.good(&["info"]);
    assert!(info.contains("a message wakes        all"), "{info}");
    bank.good(&["clients"]);
    bank.good(&["start", "--id", "9"]);
    bank.good(&["restart", "--name", "echosv"]);
    let (_, said) = bank.good(&["reload"]);
    assert!(said.contains("3 workers") && !said.contains("changed"), "{said}");
    let text = std::fs::read_to_string(bank.config()).expect("it is there");
    let changed = text.replace("</max>", "</max><appopt>1</appopt>");
    std::fs::write(bank.config(), changed).expect("a file");
    let (_, said) = bank.good(&["reload"]);
    assert!(
        said.contains("options of echosv 7 changed, which count from the next start"),
        "{said}"
    );
    // Kernels share the CPUs among sessions: a pool and the clients that are started beside it are in one.
    let manager = bank.json(&["info"])["pid"].as_i64().expect("a number");
    assert_eq!(session(&manager.to_string()), session("self"));
    let manager = Pid::from_raw(manager as i32);
    assert_eq!(getpgid(manager).ok(), manager, "the keys of a terminal are for others");
    // A start of what runs starts what is missing of it.
    bank.good(&["stop", "--id", "7"]);
    assert_eq!(bank.json(&["ps"])[0]["state"], "down");
    for _ in 0..2 {
        let (_, said) = bank.good(&["start"]);
        assert!(said.contains("runs already, as process"), "{said}");
        assert_eq!(bank.json(&["ps"])[0]["state"], "up");
    }
    let other = bank.folder.path().join("other.xml");
    std::fs::copy(bank.config(), &other).expect("copied");
    let said = bank.bad(&["start", "--config", &other.display().to_string()], 1);
    assert!(said.contains("runs already, as process"), "{said}");

    // A log that was moved away is begun anew by a reload.
    let log = bank.folder.path().join(bank.log());
    let moved = bank.folder.path().join("log.1");
    std::fs::rename(&log, &moved).expect("moved");
    bank.good(&["reload"]);
    let lines = std::fs::read_to_string(&log).expect("a new one");
    assert!(lines.contains("was read again") && !lines.contains(" open"), "{lines}");
    let said = bank.bad(&["stop", "--name", "nosuch"], 1);
    assert!(said.contains("no <server name=\"nosuch\">"), "{said}");
    let (_, said) = bank.good(&["stop"]);
    assert!(said.contains("workers stopped after "), "{said}");
    bank.bad(&["ps"], 1);
}

/// The session of a process: 0 where its leader lies outside of the PID namespace, which getsid(2) of rustix takes for
/// a fault.
fn session(process: &str) -> String {
    session_and_terminal(process)[0].clone()
}

/// The same with the number of its controlling terminal, 0 for none.
fn session_and_terminal(process: &str) -> [String; 2] {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("the name of its program ends");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    [fields[3], fields[4]].map(str::to_owned)
}

/// A session with a terminal that lasts until the test has looked: with its leader all would lose the terminal.
fn workers_have_no_terminal() {
    if !std::path::Path::new(SCRIPT).exists() {
        return skip("script(1) is not installed");
    }
    let servers = "<server name='echosv'><srvid>1</srvid><min>2</min><max>2</max></server>";
    let bank = Bank::new("tty", servers);
    let mut command = Command::new(SCRIPT);
    let started = format!("{POLLUX_POOL} start; echo leader $$; read end");
    command.args(["-qec", &started, "/dev/null"]).env("SHELL", "/bin/sh");
    bank.surround(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut terminal = Process::start(&mut command);
    let end = terminal.take_stdin();
    let mut said = BufReader::new(terminal.take_stdout()).lines().map_while(Result::ok);
    let leader = said.find_map(|line| Some(line.trim_end().strip_prefix("leader ")?.to_owned()));
    let [session, of_leader] = session_and_terminal(&leader.expect("the pool was started"));
    assert_ne!(of_leader, "0", "the session has no terminal");
    let mut processes = vec![bank.json(&["info"])["pid"].to_string()];
    let workers = bank.json(&["ps"]);
    processes.extend(workers.as_array().expect("rows").iter().map(|row| row["pid"].to_string()));
    assert_eq!(processes.len(), 3);
    for process in &processes {
        assert_eq!(session_and_terminal(process), [session.clone(), "0".to_owned()]);
    }
    bank.good(&["stop"]);
    drop(end);
}

fn a_service_manager_is_notified() {
    let servers = "<server name='echosv'><srvid>1</srvid><min>2</min><max>2</max></server>";
    let bank = Bank::new("notify", servers);
    let name = bank.folder.path().join("notify");
    let socket = UnixDatagram::bind(&name).expect("bound");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let notification = || loop {
        let mut text = [0; 200];
        match socket.recv(&mut text) {
            Ok(len) => break String::from_utf8_lossy(&text[..len]).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("no notification: {error}"),
        }
    };
    let until = |wanted: &str| {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last: &String| !last.starts_with(wanted)) {
            seen.push(notification());
        }
        seen
    };
    let mut command = bank.command(&["start", "--foreground"]);
    command.env("NOTIFY_SOCKET", &name).env("WATCHDOG_USEC", "2000000");
    let mut pool = Process::start(&mut command);
    let seen = until("READY=1");
    assert!(seen.contains(&"STATUS=2 of 2 workers up".to_owned()), "{seen:?}");
    // What a worker says is not the state of the pool.
    let pid = bank.json(&["ps"])[0]["pid"].as_u64().expect("a process");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    assert!(!String::from_utf8_lossy(&environment).contains("NOTIFY_SOCKET"));
    until("WATCHDOG=1");
    bank.good(&["reload"]);
    until("RELOADING=1\nMONOTONIC_USEC=");
    until("READY=1");
    bank.good(&["stop", "--id", "1"]);
    until("STATUS=1 of 1 workers up");
    // A worker that cannot end keeps the pool, which takes orders and says no other state than that it is ending.
    let worker =
        bank.json(&["ps"]).as_array().expect("rows").iter().find_map(|row| row["pid"].as_u64());
    let worker = worker.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("a process");
    kill_process(worker, Signal::STOP).expect("stopped");
    pool.signal(Signal::TERM);
    until("STOPPING=1");
    assert!(bank.bad(&["reload"], 1).contains("the pool is ending"));
    kill_process(worker, Signal::CONT).expect("continued");
    assert!(pool.wait().success());
    socket.set_nonblocking(true).expect("set");
    let mut text = [0; 200];
    while let Ok(len) = socket.recv(&mut text) {
        let text = String::from_utf8_lossy(&text[..len]);
        assert!(!text.starts_with("READY") && !text.starts_with("RELOADING"), "{text}");
    }
}

fn a_common_configuration_holds_it() {
    let bank = Bank::new("ccconfig", "<server name='echosv'><srvid>1</srvid></server>");
    let app = bank.folder.path().join("app.ini");
    let text = format!(
        "[@global]\nNDRX_QPREFIX={}\nNDRX_CONFIG=${{HOME_OF_TEST}}/bank.xml\n[@debug]\n*= file=\n",
        bank.prefix
    );
    std::fs::write(&app, text).expect("a file");
    let command = |words: &[&str]| {
        let mut command = bank.command(words);
        command.env_remove("NDRX_QPREFIX").env_remove("NDRX_CONFIG");
        command.env("NDRX_CCONFIG", &app).env("HOME_OF_TEST", bank.folder.path());
        command
    };
    succeeded(&mut command(&["start"]));
    // It is the pool of that prefix, for those who name it themselves.
    assert_eq!(bank.json(&["ps"])[0]["state"], "up");
    succeeded(&mut command(&["stop"]));
    std::fs::write(&app, "[@global]\nword\n").expect("a file");
    let said = refused(&mut command(&["ps"]), 2);
    assert!(said.contains("app.ini:2: expected NAME=VALUE"), "{said}");
}

fn what_is_missing_is_reported() {
    let servers = "<server name='echosv'><srvid>1</srvid></server>\
                   <server name='nosuch'><srvid>9</srvid></server>";
    let bank = Bank::new("missing", servers);
    // The other server is up all the same.
    let said = bank.bad(&["start"], 1);
    assert!(said.contains("warning: no executable nosuch in PATH"), "{said}");
    assert!(said.contains("1 of 2 workers are not up"), "{said}");
    let rows = bank.json(&["ps"]);
    assert_eq!((&rows[0]["program"], &rows[0]["state"]), (&"echosv".into(), &"up".into()));
    bank.good(&["stop"]);
    // Each cause has its workers.
    let refusing = "<server name='echosv'><srvid>1</srvid><min>3</min><max>3</max>\
                    <appopt>refuse</appopt></server>";
    let refusing = Bank::new("refusing", refusing);
    let said = refusing.bad(&["start"], 1);
    assert!(said.contains("3 of 3 workers are not up; echosv 1, 2, 3: "), "{said}");
    refusing.good(&["stop"]);
    let none = Bank::new("none", "<server name='nosuch'><srvid>9</srvid></server>");
    let said = none.bad(&["start"], 1);
    assert!(said.contains("no executable nosuch in PATH"), "{said}");
    none.bad(&["ps"], 1);
    let other = Bank::new(
        "output",
        "<server name='echosv'><srvid>1</srvid><sysopt>-e none/x -o .</sysopt></server>",
    );
    for command in ["start", "check"] {
        let said = other.bad(&[command], 1);
        assert!(said.contains("output file none/x: No such file or directory"), "{said}");
        assert!(said.contains("output file .: Is a directory"), "{said}");
        assert!(said.contains("make the folder"), "{said}");
    }
    std::fs::write(bank.config(), "<endurox>\n<servers>\n").expect("a file");
    let said = bank.bad(&["start"], 2);
    assert!(said.contains("bank.xml:3: XML: "), "{said}");
    // What was ignored is shown beside what is wrong.
    let wrong = "<endurox>\n<appconfig><sanity>x</sanity>\n<hue/></appconfig></endurox>";
    std::fs::write(bank.config(), wrong).expect("a file");
    for command in ["start", "check"] {
        let said = bank.bad(&[command], 2);
        for words in
            ["bank.xml:2: <sanity>x</sanity>: expected a whole", "bank.xml:3: <hue> is unknown"]
        {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    let said = refused(bank.command(&["start"]).env_remove("NDRX_CONFIG"), 2);
    assert!(said.contains("--config FILE, or set NDRX_CONFIG"), "{said}");
}

fn check_finds_what_does_not_fit() {
    let server = "<server name='echosv'><srvid>1</srvid><hue>1</hue></server>";
    let bank = Bank::new("check", server);
    let (said, _) = bank.good(&["check"]);
    assert!(said.contains("it fits this machine") && said.contains("warning: "), "{said}");
    assert!(said.contains("requests in shared memory: 1 services"), "{said}");
    let said = bank.bad(&["check", "--clients", "10000"], 1);
    assert!(said.contains("the memory of the pool is short by 1808 client contexts"), "{said}");
    let found = bank.json(&["check"]);
    assert_eq!((&found["workers"], &found["services"]), (&2.into(), &1.into()));
    assert_eq!((&found["transport"], &found["service_queues"]), (&"memory".into(), &0.into()));
    assert_eq!(found["silent_programs"], serde_json::json!([]));
    let bank = Bank::with("queues", "<appconfig transport='queues'/>", server);
    let (said, _) = bank.good(&["check"]);
    assert!(said.contains("queues: 1 for services"), "{said}");
    let said = bank.bad(&["check", "--clients", "4000000000"], 1);
    assert!(said.contains("RLIMIT_MSGQUEUE is short by "), "{said}");
    let found = bank.json(&["check"]);
    assert_eq!((&found["transport"], &found["service_queues"]), (&"queues".into(), &1.into()));
}

fn check_asks_programs_what_they_offer() {
    let servers = "<server name='echosv'><srvid>10</srvid><appopt>9</appopt></server>\
                   <server name='echosv'><srvid>20</srvid><appopt>11</appopt></server>\
                   <server name='echosv'><srvid>30</srvid><appopt>end</appopt></server>\
                   <server name='echosv'><srvid>40</srvid><appopt>refuse</appopt></server>";
    let bank = Bank::new("asks", servers);
    // ECHO and ten more, of which two programs have some in common, and one of each that is silent.
    let asked = bank.json(&["check", "--clients", "1"]);
    assert_eq!(asked["services"], 13, "{asked}");
    let silent = asked["silent_programs"].as_array().expect("a list");
    let silent: Vec<_> = silent.iter().filter_map(serde_json::Value::as_str).collect();
    assert!(silent[0].contains("ended without a word"), "{silent:?}");
    assert!(silent[1].ends_with("no account book"), "{silent:?}");
    let unasked = bank.json(&["check", "--clients", "1", "--no-ask"]);
    assert_eq!(unasked["services"], 4, "{unasked}");
    // Nothing was made, and nothing runs.
    let queues = std::fs::read_dir("/dev/mqueue").into_iter().flatten().flatten();
    let name = &bank.prefix[1..];
    assert_eq!(queues.filter(|q| q.file_name().to_string_lossy().starts_with(name)).count(), 0);
    let said = bank.bad(&["ps"], 1);
    assert!(said.contains("no pool"), "{said}");
}

fn a_worker_that_always_ends_is_shown() {
    let servers = "<server name='echosv'><srvid>1</srvid><appopt>end</appopt></server>";
    let bank = Bank::new("ends", servers);
    let said = bank.bad(&["start"], 1);
    assert!(said.contains("echosv 1: exited with 7"), "{said}");
    let (table, _) = bank.good(&["ps"]);
    assert!(table.contains("exited with 7; failure 1 in a row, next start in "), "{table}");
    let rows = bank.json(&["ps"]);
    assert_eq!((&rows[0]["state"], &rows[0]["failures"]), (&"waiting".into(), &1.into()));
    assert!(rows[0]["next_start_s"].as_u64().is_some_and(|time| time <= 5), "{rows}");
    bank.good(&["stop"]);
}

fn a_restart_of_what_is_down_returns() {
    let servers = "<server name='echosv'><srvid>1</srvid><min>0</min><max>2</max></server>";
    let bank = Bank::new("standby", servers);
    bank.good(&["start"]);
    let (_, said) = bank.good(&["restart", "--id", "2"]);
    assert!(said.contains("1 of 1 workers up again"), "{said}");
    let found = bank.json(&["check"]);
    assert_eq!((&found["is_running"], &found["services"]), (&true.into(), &1.into()));
    // Where nothing names a configuration, that of the pool that runs is checked.
    let mut check = bank.command(&["check", "--json"]);
    let ended = Process::run(check.env_remove("NDRX_CONFIG"));
    let running: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(running, found, "{}", ended.stderr);
    bank.good(&["stop"]);
}

/// The reader of a pipe that the command had open sees its end although the pool runs.
fn a_pool_keeps_nothing_open_of_its_caller() {
    let bank = Bank::new("open", "<server name='echosv'><srvid>1</srvid></server>");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec \"$0\" start 7>&1 >/dev/null", POLLUX_POOL]);
    bank.surround(&mut shell);
    let ended = Process::run(&mut shell);
    assert!(ended.status.success(), "{ended:?}");
    bank.good(&["stop"]);
}

/// A pool of the same prefix with queues and sockets of its own, as one in a container has.
fn workers_of_another_namespace() {
    let servers = "<server name='echosv'><srvid>1</srvid></server>";
    let inner = Bank::new("apart", servers);
    let mut outer = Bank::new("beside", servers);
    outer.prefix.clone_from(&inner.prefix);
    let mut apart = Command::new("/usr/bin/unshare");
    if let Err(error) = apart.arg("--version").stdout(Stdio::null()).status() {
        return skip(format_args!("unshare: {error}"));
    }
    let mut apart = Command::new("/usr/bin/unshare");
    apart.args(["--ipc", "--net", POLLUX_POOL, "start", "--foreground"]);
    inner.surround(&mut apart);
    let mut apart = Process::start(&mut apart);
    if apart.try_wait_for_stderr_line("begins as process").is_none() {
        return skip(apart.stderr_lines().join("\n"));
    }
    let (_, said) = outer.good(&["start"]);
    assert!(said.contains("1 of 1 workers up"), "{said}");
    let log = std::fs::read_to_string(outer.folder.path().join(outer.log())).expect("a log");
    assert!(!log.contains("earlier manager"), "{log}");
    outer.good(&["stop"]);
    apart.signal(Signal::TERM);
    let ended = apart.ended();
    assert!(ended.status.success() && !ended.stderr.contains("signal 2"), "{}", ended.stderr);
}

fn lists_name_what_the_transport_has() {
    let servers = "<server name='echosv'><srvid>1</srvid><min>2</min><max>2</max></server>";
    for (transport, in_words) in [("memory", "in shared memory"), ("queues", "by queues")] {
        let bank = Bank::with(transport, &format!("<appconfig transport='{transport}'/>"), servers);
        let (_, said) = bank.good(&["start"]);
        assert!(said.contains(&format!("; requests {in_words}; log: ")), "{said}");
        assert_eq!(bank.json(&["info"])["transport"], transport);
        let (info, _) = bank.good(&["info"]);
        assert!(info.contains(&format!("requests               {in_words}")), "{info}");
        let rings = bank.json(&["queues"]);
        let idle = &rings[0]["idle"];
        let busy = &rings[0]["busy"];
        let workers = &rings[0]["workers"];
        assert_eq!((idle, busy, workers), (&2.into(), &0.into(), &2.into()), "{rings}");
        let (table, _) = bank.good(&["queues"]);
        let heading = table.lines().next().expect("a heading");
        let environment =
            Environment::read(|name| (name == "NDRX_QPREFIX").then(|| bank.prefix.clone().into()));
        let _client = Client::open(&environment.expect("a prefix")).expect("it runs");
        let (clients, _) = bank.good(&["clients"]);
        // What the caller's environment says is not what the pool does.
        let mut check = bank.command(&["check"]);
        let other = if transport == "memory" { "queues" } else { "memory" };
        let check = Process::run(check.env("POLLUX_POOL_TRANSPORT", other)).stdout;
        assert!(check.contains(&format!("has the transport {transport}, as")), "{check}");
        assert!(check.contains(&format!("say {other}, which holds from")), "{check}");
        match transport {
            "memory" => {
                assert!(heading.starts_with("SERVICE  WAITING"), "{table}");
                assert!(!table.contains(",svc,") && rings[0]["queue"].is_null(), "{table}{rings}");
                assert_eq!(rings[0]["depth_max"], 1024);
                assert!(clients.contains("REQUESTS") && !clients.contains(",clt,"), "{clients}");
                assert_eq!(bank.json(&["clients"])[0]["requests"], 0);
                assert!(check.contains("requests in shared memory: 1 services"), "{check}");
            }
            _ => {
                assert!(heading.starts_with("QUEUE"), "{table}");
                assert!(table.contains(&format!("{},svc,ECHO", bank.prefix)), "{table}");
                assert!(clients.contains(&format!("{},clt,reply,", bank.prefix)), "{clients}");
                assert!(check.contains("queues: 1 for services"), "{check}");
            }
        }
        bank.good(&["stop"]);
    }
}

fn a_stop_returns_when_the_manager_has_ended() {
    let bank = Bank::new("slow", "");
    let mut manager = Command::new(std::env::current_exe().expect("this program"));
    bank.surround(manager.env(SLOW_MANAGER, "1").stdin(Stdio::piped()));
    let mut manager = Process::start(&mut manager);
    manager.wait_for_stderr_line("listens");
    let mut stop = Process::start(&mut bank.command(&["stop"]));
    stop.wait_for_stderr_line(&format!("the manager, process {}, is still ending", manager.id()));
    assert_eq!(stop.status(), None, "the manager is there");
    drop(manager.take_stdin());
    assert!(manager.wait().success());
    let ended = stop.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("0 of 0 workers stopped after "), "{ended:?}");
}

fn a_file_size_that_is_too_small_is_an_error() {
    let bank = Bank::new("short", "<server name='echosv'><srvid>1</srvid></server>");
    for order in ["start", "check"] {
        let mut shell = Command::new("/bin/sh");
        let words = format!("ulimit -f 1000; exec \"$0\" {order}");
        bank.surround(shell.args(["-c", &words, POLLUX_POOL]));
        let said = refused(&mut shell, 1);
        for words in ["RLIMIT_FSIZE is short by ", " allowed; have root raise", "LimitFSIZE="] {
            assert!(said.contains(words), "{order}: {said}");
        }
    }
}

fn a_start_of_one_worker_begins_a_pool() {
    let servers = "<server name='echosv'><srvid>1</srvid><min>2</min><max>2</max></server>\
                   <server name='missing'><srvid>5</srvid></server>";
    let bank = Bank::new("one", servers);
    let said = bank.bad(&["start", "--id", "9"], 1);
    assert!(said.contains("the configuration has no worker with the id 9"), "{said}");
    let (_, said) = bank.good(&["start", "--id", "2"]);
    assert!(said.contains("1 of 1 workers up"), "{said}");
    let states = |bank: &Bank| -> Vec<String> {
        let rows = bank.json(&["ps"]);
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| format!("{} {}", row["srvid"], row["state"])).collect()
    };
    assert_eq!(states(&bank), ["1 \"down\"", "2 \"up\"", "5 \"down\"", "6 \"down\""]);
    bank.good(&["start", "--name", "echosv"]);
    assert_eq!(states(&bank)[..2], ["1 \"up\"", "2 \"up\""]);
    bank.good(&["stop"]);
}

fn a_pool_that_does_not_run_is_an_error() {
    let bank = Bank::new("none", "<server name='echosv'><srvid>1</srvid></server>");
    for words in [["ps"], ["stop"], ["services"], ["queues"], ["clients"], ["reload"]] {
        let said = bank.bad(&words, 1);
        assert!(said.contains(&format!("no pool with the prefix {}", bank.prefix)), "{said}");
    }
}
