//! Signals end a server gently, then at once, and open its log again. A process of its own.

use std::io::{Read, Write};
use std::net::TcpStream;

use pollux_engine::{ListenAddress, Signal, Signals};
use pollux_server::Server;
use pollux_settings::Given;
use pollux_testing::{DEADLINE, wait_until};
use rustix::process::{Signal as Number, getpid, kill_process};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// One test, for signals reach the whole process.
#[test]
fn signals_reopen_the_log_then_drain_then_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, old) = (folder.path().join("log"), folder.path().join("old"));
    let (errors, old_errors) = (folder.path().join("errors"), folder.path().join("old-errors"));
    let text = format!(
        "reply = 5\nlisten = \"127.0.0.1:0\"\naccess_log = {log:?}\nerror_log = {errors:?}\n\
         log_level = \"info\""
    );
    let config = Given::from_toml(&text, "test").read().expect("right");
    let caught = [Signal::Terminate, Signal::Interrupt, Signal::HangUp];
    let mut signals = Signals::catch(&caught).expect("caught");
    let server = Server::start(&config).expect("started");
    let ListenAddress::Tcp(address) = server.addresses()[0].clone() else { panic!("TCP") };

    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        ask(&mut stream);
        std::fs::rename(&log, &old).expect("renamed");
        std::fs::rename(&errors, &old_errors).expect("renamed");
        send(Number::HUP);
        // Each request gives the loop a turn to notice the signal.
        for file in [&log, &errors] {
            wait_until(format_args!("a new {}", file.display()), || {
                ask(&mut stream);
                file.exists()
            });
        }
        let message = std::fs::read_to_string(&old_errors).expect("read");
        assert!(message.contains("info: opening the logs again"), "{message}");
        assert!(!std::fs::read_to_string(&old).expect("read").is_empty());

        // Half a request keeps a draining server until the second signal.
        stream.write_all(&GET[..9]).expect("sent");
        let mut idle = TcpStream::connect(address).expect("connected");
        idle.set_read_timeout(Some(DEADLINE)).expect("set");
        ask(&mut idle);
        send(Number::TERM);
        assert_eq!(idle.read(&mut [0; 9]).expect("the end of an idle connection"), 0);
        send(Number::TERM);
        assert!(stream.read(&mut [0; 9]).map_or(true, |read| read == 0));
    });
    server.run(&mut signals).expect("ended by a signal");
    client.join().expect("the client saw what it should");
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(GET).expect("sent");
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\npollu") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        got.push(byte[0]);
    }
}

fn send(signal: Number) {
    kill_process(getpid(), signal).expect("sent");
}
