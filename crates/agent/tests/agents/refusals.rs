//! What is refused: targets, loads and messages.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use pollux_load::campaign::{CampaignReply, CampaignRequest, Demand, Said, ToldOrder};
use pollux_testing::{Process, Signal};

use crate::broker::Broker;
use crate::driven::{Driven, agent, agents, counted, lasting, run};
use crate::forged::{Manner, forged};
use crate::server::Counting;

pub(crate) fn a_target_that_is_not_allowed() {
    let broker = Broker::start(&[]);
    let server = Counting::start();
    let _all = [agent(&broker, "a", &[]), agent(&broker, "c", &[])];
    let mut strict = agent(&broker, "b", &["--allow", "192.0.2.0/24:80", "--allow", "127.0.0.1:1"]);
    let why = run(&broker, &counted(&server.url(), 300), 3).expect_err("it is refused");
    assert!(why.starts_with("agent b refuses the order: 127.0.0.1:"), "{why}");
    assert!(why.contains("it allows 192.0.2.0/24:80, 127.0.0.1:1 (--allow)"), "{why}");
    strict.wait_for_stderr_line("order refused: 127.0.0.1:");
    assert_eq!(server.requests(), 0);
    // The others have forgotten it, and one without flags allows loopback alone.
    let away = run(&broker, &counted("http://192.0.2.1/", 300), 2).expect_err("it is refused");
    assert!(away.contains("agent a refuses") && away.contains("loopback alone"), "{away}");
    let bounded = ["--max-connections", "3"];
    let _few = agent(&broker, "0", &bounded);
    let why = run(&broker, &counted(&server.url(), 300), 2).expect_err("too many connections");
    assert!(why.contains("6 connections; this agent opens 3 at most"), "{why}");
    assert_eq!(server.requests(), 0);
}

pub(crate) fn garbage_disturbs_no_load() {
    let broker = Broker::start(&[]);
    let mut all = agents(&broker, 2);
    let server = Counting::start();
    // What an earlier campaign was sent, to be sent again.
    let mut spy = broker.raw();
    spy.subscribe("pollux-load.default.agent.a");
    run(&broker, &counted(&server.url(), 20), 2).expect("a result");
    let mut old = Vec::new();
    for _ in 0..23 {
        old.push(spy.message().1);
    }
    let before = server.requests();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), 4), 2);
    driven.wait_for_answers();
    let mut raw = broker.raw();
    for subject in ["pollux-load.default.agent.a", "pollux-load.default.hello"] {
        for garbage in [&b""[..], b"{", b"\xff\xfe", b"{\"version\":2}", &b"[".repeat(10_000)] {
            raw.publish(subject, "nowhere", garbage);
        }
        for message in &old {
            raw.publish(subject, "nowhere", message);
        }
        let forged =
            "{\"version\":2,\"campaign\":\"forged\",\"instance\":0,\"demand\":\"dismiss\"}";
        raw.publish(subject, "nowhere", forged.as_bytes());
        raw.publish(subject, "nowhere", forged.replace("dismiss", "stop").as_bytes());
    }
    raw.settle();
    let outcome = driven.end().expect("a result");
    assert!(!outcome.was_ended_early);
    assert_eq!(outcome.totals.sent, server.requests() - before);
    all[0].wait_for_stderr_line("refused (1 in all)");
    all[0].wait_for_stderr_line("refused (8 in all)");
    // And when it has nothing else to do: orders of runs that are over open nothing.
    let before = server.requests();
    for message in &old {
        raw.publish("pollux-load.default.agent.a", "nowhere", message);
    }
    all[0].wait_for_stderr_line("order refused: its run is over");
    let again = run(&broker, &counted(&server.url(), 20), 2).expect("they are idle");
    assert_eq!((again.totals.answered, server.requests() - before), (20, 20));
}

/// What an order may say that flags can't.
pub(crate) fn forged_requests_are_never_sent() {
    let broker = Broker::start(&[]);
    let mut asked = agent(&broker, "a", &["--max-threads", "2"]);
    let server = Counting::start();
    let url = server.url();
    let with = |change: &dyn Fn(&mut pollux_load::Target)| {
        let mut plan = counted(&url, 30);
        change(&mut plan.targets[0]);
        run(&broker, &plan, 1).expect_err("it is refused")
    };
    let line = "x\r\n\r\nGET /forged HTTP/1.1\r\nHost: x".to_owned();
    let all = [
        with(&|target| target.path = format!("/{line}")),
        with(&|target| target.method.clone_from(&line)),
        with(&|target| target.host.clone_from(&line)),
        with(&|target| target.fields = vec![("A".to_owned(), line.clone())]),
        with(&|target| target.fields = vec![(line.clone(), "a".to_owned())]),
    ];
    assert!(all.iter().all(|why| why.starts_with("agent a could not begin: ")), "{all:#?}");
    let wide = pollux_load::Plan { threads: 3, ..counted(&url, 30) };
    let why = run(&broker, &wide, 1).expect_err("too many threads");
    assert!(why.contains("3 threads; this agent has 2 at most (--max-threads)"), "{why}");
    assert_eq!(server.requests(), 0);
    asked.wait_for_stderr_line("could not begin");
}

/// A port where nobody listens, and one where nobody speaks.
pub(crate) fn an_agent_without_a_broker_ends_on_a_signal() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = silent.local_addr().expect("it is bound").to_string();
    for broker in ["127.0.0.1:1", &silent] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-agent"));
        let mut agent = Process::start(command.args(["--nats", broker, "--name", "a"]));
        agent.wait_for_stderr_line("it is tried again until there is a connection");
        agent.signal(Signal::TERM);
        assert!(agent.wait().success());
    }
}

/// A broker that closes each connection as soon as it was accepted.
pub(crate) fn a_broker_that_is_lost_again_and_again_fills_no_log() {
    const INFO: &[u8] =
        b"INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"go\":\"x\",\"host\":\"x\",\
        \"port\":4222,\"headers\":true,\"max_payload\":1048576,\"proto\":1}\r\n";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let broker = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut client in listener.incoming().flatten() {
            let mut part = [0; 4096];
            let mut spoken = Vec::new();
            let _ = client.write_all(INFO);
            while !spoken.windows(4).any(|word| word == b"PING") {
                match client.read(&mut part) {
                    Ok(len @ 1..) => spoken.extend_from_slice(&part[..len]),
                    _ => break,
                }
            }
            let _ = client.write_all(b"PONG\r\n");
        }
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-agent"));
    let mut agent = Process::start(command.args(["--nats", &broker, "--name", "a"]));
    agent.wait_for_stderr_line("was lost (16 in all)");
    let next = agent.wait_for_stderr_line("was lost");
    assert!(next.contains("(32 in all)"), "{next}");
}

/// Two seconds of questions whose answers take too long.
pub(crate) fn clocks_that_are_not_known_begin_nothing() {
    let broker = Broker::start(&[]);
    let _slow = forged(&broker, "0", Manner::AnswersLate);
    let _agents = agents(&broker, 1);
    let server = Counting::start();
    let why = run(&broker, &counted(&server.url(), 30), 2).expect_err("one is not known");
    assert!(why.starts_with("agent 0: its clock is known to within "), "{why}");
    assert!(why.contains("expected 50ms, to start together with the others"), "{why}");
    assert_eq!(server.requests(), 0);
}

/// A client that may read the questions of the controller may answer in the place of the agent.
pub(crate) fn garbage_answers_are_counted() {
    let broker = Broker::start(&[]);
    let _agents = agents(&broker, 2);
    let server = Counting::start();
    let mut driven = Driven::start(&broker, &lasting(&server.url(), 3), 2);
    driven.wait_for_answers();
    let mut spy = broker.raw();
    spy.subscribe("pollux-load.default.agent.*");
    let forger = std::thread::spawn(move || {
        let said = b"{\"version\":2,\"agent\":\"a\",\"instance\":9,\"now_ns\":0,\"said\":";
        let forged = [&said[..], b"{\"refused\":\"no\"}}"].concat();
        let failed = [&said[..], b"\"accepted\"}"].concat();
        let garbage = [&b""[..], b"{", &forged, &failed];
        // Each fourth question gets one of them first, or the true answer, as chance has it: all of them would be an agent
        // that is silent.
        for number in 0.. {
            let Some(message) = spy.receive() else { return };
            let Some(inbox) = message.reply.filter(|_| number % 4 == 0) else { continue };
            spy.publish(&inbox, "", garbage[number / 4 % garbage.len()]);
        }
    });
    let told = driven.wait_for_remark("such replies in all");
    assert!(told.contains("what it answered: not a message"), "{told}");
    let outcome = driven.end().expect("a result");
    assert!(outcome.agents.iter().all(|agent| agent.lost.is_none()), "{:?}", outcome.agents);
    assert_eq!(outcome.totals.sent, server.requests());
    drop(broker);
    forger.join().expect("it answered to the end");
}

pub(crate) fn missing_busy_or_double() {
    let broker = Broker::start(&[]);
    let server = Counting::start();
    let none = run(&broker, &counted(&server.url(), 300), 2).expect_err("nobody is there");
    assert!(
        none.contains("2 agents were asked for, 0 answered") && none.contains("none;"),
        "{none}"
    );
    let _all = agents(&broker, 2);
    let mut driven = Driven::start(&broker, &lasting(&server.url(), 600), 1);
    driven.wait_for_answers();
    let busy = run(&broker, &counted(&server.url(), 300), 2).expect_err("one is busy");
    assert!(
        busy.contains("a (on ") && busy.contains("busy with") && busy.contains(", b (on "),
        "{busy}"
    );
    let mut list = Command::new(env!("CARGO_BIN_EXE_pollux-agent"));
    let listed = Process::run(list.args(["list", "--nats", &broker.url()]));
    assert_eq!(listed.stdout.lines().count(), 3, "{}", listed.stdout);
    assert!(listed.stdout.contains("loopback alone"), "{}", listed.stdout);
    let other = Process::run(list.args(["--group", "other"]));
    assert!(!other.status.success() && other.stderr.contains("no agent of the group other"));
    let _second = agent(&broker, "b", &[]);
    let double = run(&broker, &counted(&server.url(), 300), 2).expect_err("two of one name");
    assert!(double.contains("two agents have the name b"), "{double}");
}

/// Over a broker whose messages are shorter than all seconds that an agent may send at once.
pub(crate) fn an_answer_that_is_too_long_has_fewer_seconds() {
    const PAYLOAD_MAX: usize = 4_096;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, format!("max_payload: {PAYLOAD_MAX}\n")).expect("written");
    let broker = Broker::start(&["-c", file.to_str().expect("text")]);
    let _agents = agents(&broker, 1);
    let server = Counting::start();
    let mut spy = broker.raw();
    spy.subscribe("pollux-load.default.agent.a");
    let mut driven = Driven::start(&broker, &lasting(&server.url(), 600), 1);
    let (_, asked) = spy.message();
    let asked = CampaignRequest::decode(&asked).expect("what the controller asked");
    // So many that they would not fit.
    driven.wait_for("seconds", |now| now.all.elapsed > Duration::from_millis(7_500));
    let mut raw = broker.raw();
    raw.subscribe("answers");
    let mut next = 0;
    while next < 7 {
        let demand = Demand::Status { seconds_from: next };
        let status = CampaignRequest { demand, ..asked.clone() };
        raw.publish("pollux-load.default.agent.a", "answers", &status.encode());
        let (_, answer) = raw.message();
        assert!(answer.len() <= PAYLOAD_MAX, "{}", answer.len());
        let answer = CampaignReply::decode(&answer).expect("an answer");
        let Said::Status(status) = answer.said else { panic!("{:?}", answer.said) };
        assert_eq!(status.first, next);
        assert!(!status.seconds.is_empty() && status.seconds.len() < 7, "{:?}", status.seconds);
        next += status.seconds.len() as u32;
    }
    driven.tell(&ToldOrder::Stop);
    driven.end().expect("a result");
}

pub(crate) fn a_long_list_of_targets_is_shown_in_short() {
    let broker = Broker::start(&[]);
    let many: Vec<String> = (1..=60).map(|port| format!("--allow=192.0.2.1:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let _agent = agent(&broker, "a", &many);
    let mut list = Command::new(env!("CARGO_BIN_EXE_pollux-agent"));
    let listed = Process::run(list.args(["list", "--nats", &broker.url()]));
    assert!(listed.stdout.contains("192.0.2.1:20 and 40 more"), "{}", listed.stdout);
}

pub(crate) fn another_version_is_named() {
    let broker = Broker::start(&[]);
    let _all = agents(&broker, 1);
    let server = Counting::start();
    // An agent of another version, which answers the first question.
    let mut raw = broker.raw();
    raw.subscribe("pollux-load.default.hello");
    let answers = std::thread::spawn(move || {
        let (reply, _) = raw.message();
        let later = b"{\"version\":9,\"agent\":\"later\",\"said\":{}}";
        raw.publish(&reply.expect("a question"), "", later);
        raw.settle();
        raw
    });
    let why = run(&broker, &counted(&server.url(), 300), 2).expect_err("one is of another version");
    assert!(why.contains("agent later sends messages of version 9"), "{why}");
    // A controller of another version sees that there is an agent, of which version.
    let mut raw = answers.join().expect("it answered");
    let mut inbox = broker.raw();
    inbox.subscribe("answers");
    raw.publish("pollux-load.default.hello", "answers", b"{\"version\":9,\"demand\":\"hello\"}");
    let (_, answer) = inbox.message();
    let answer = String::from_utf8(answer).expect("JSON");
    assert!(answer.contains("\"version\":2") && answer.contains("\"agent\":\"a\""), "{answer}");
}

pub(crate) fn a_login_comes_from_a_file() {
    let broker = Broker::start(&["--user", "load", "--pass", "se:cret"]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("login");
    std::fs::write(&file, "load:se:cret\n").expect("written");
    let mode = |mode| std::fs::set_permissions(&file, Permissions::from_mode(mode));
    mode(0o604).expect("its own");
    let login = ["--nats-login", file.to_str().expect("text")];
    let mut open = Command::new(env!("CARGO_BIN_EXE_pollux-agent"));
    let refused = Process::run(open.args(["--nats", &broker.url()]).args(login));
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("others can read or write it (mode 0604)"),
        "{}",
        refused.stderr
    );
    mode(0o600).expect("its own");
    let _agent = agent(&broker, "a", &login);
    let server = Counting::start();
    let plan = counted(&server.url(), 50);
    let on_lost = pollux_load::campaign::OnLostAgent::Stop;
    let outcome = Driven::start_with(&broker, &plan, 1, on_lost, &login).end();
    assert_eq!(outcome.expect("a result").totals.answered, 50);
    let why = run(&broker, &plan, 1).expect_err("no login");
    assert!(why.contains("uthorization") && !why.contains("se:cret"), "{why}");
}
