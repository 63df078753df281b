//! What a proxy reports to the system around it: its state to the manager, its number in the PID file, requests and
//! the backends that answered in the access log.

use crate::stage::{Backend, Proxy};
use pollux_testing::{DEADLINE, Signal, wait_for};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

#[test]
fn a_manager_is_recognised_by_the_master_whose_id_stands_in_its_file_until_the_end() {
    let backend = Backend::start();
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("notify");
    let manager = UnixDatagram::bind(&name).expect("bound");
    manager.set_read_timeout(Some(DEADLINE)).expect("set");
    let notification = || {
        let mut text = [0; 200];
        let len = manager.recv(&mut text).expect("sent");
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let backends = [backend.address];
    let proxy = Proxy::start_by(&backends, "pid_file = \"pid\"", |command| {
        command.env("NOTIFY_SOCKET", &name)
    });
    let mut proxy = proxy.unwrap_or_else(|said| panic!("{said:#?}"));
    assert_eq!(notification(), "READY=1");
    let id = || fs::read_to_string(proxy.file("pid")).expect("written");
    assert_eq!(id(), format!("{}\n", proxy.id()));
    assert!(!proxy.file("pid.new").exists());
    let first = proxy.one_worker(&[]);
    proxy.signal(Signal::HUP);
    assert!(notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notification(), "READY=1");
    // The worker with the new settings is ready, and the master is the same.
    proxy.one_worker(&[first]);
    assert_eq!(id(), format!("{}\n", proxy.id()));
    // Wrong settings change nothing, and it is as ready as before.
    fs::write(proxy.file("p.toml"), "nonsense").expect("written");
    proxy.signal(Signal::HUP);
    assert!(notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(notification(), "READY=1");
    let file = proxy.file("pid");
    proxy.signal(Signal::TERM);
    assert_eq!(notification(), "STOPPING=1");
    assert!(proxy.ended().success());
    assert!(!file.exists());
}

/// Asks for `/page` with these fields, on a connection of its own.
fn ask(proxy: &Proxy, fields: &str) {
    let mut socket = TcpStream::connect(proxy.address).expect("connected");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let request = format!(
        "POST /page?q=1 HTTP/1.1\r\nHost: x\r\nX-Id: /page?q=1\r\n{fields}Connection: close\r\n\
         Content-Length: 9\r\n\r\n/page?q=1"
    );
    socket.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// The only line of a log, once it is written.
fn line(log: &Path) -> String {
    let text = wait_for(format_args!("a line in {}", log.display()), || {
        fs::read_to_string(log).ok().filter(|text| text.ends_with('\n'))
    });
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_combined_line_has_page_and_program_before_what_the_proxy_adds() {
    let backend = Backend::start();
    let settings = "access_log = \"access\"\naccess_log_format = \"combined\"";
    let proxy = Proxy::start(&[backend.address], settings);
    let log = proxy.file("access");
    ask(&proxy, "Referer: http://from.example/?a=\"b\"\r\nUser-Agent: a program/1.0\r\n");
    let first = line(&log);
    assert!(first.starts_with("127.0.0.1 - - ["), "{first}");
    let (_, rest) = first.split_once(" +0000] ").expect("a time");
    let said = "\"POST /page?q=1 HTTP/1.1\" 200 9 \"http://from.example/?a=\\x22b\\x22\" \"a program/1.0\" ";
    let added = rest.strip_prefix(said).unwrap_or_else(|| panic!("{first}"));
    let words: Vec<&str> = added.split_ascii_whitespace().collect();
    let [server, times, ended] = words[..] else { panic!("{first}") };
    assert_eq!(server, backend.address.to_string(), "{first}");
    let times: Vec<u64> = times.split('/').map(|time| time.parse().expect("a time")).collect();
    let [_, connected, first_byte, total] = times[..] else { panic!("{first}") };
    assert!(connected <= first_byte && first_byte <= total, "{first}");
    assert_eq!(ended, "ok", "{first}");
    // A reload leaves the old file to the program that renamed it; a value that is absent is a dash.
    fs::rename(&log, proxy.file("access.1")).expect("renamed");
    let before = proxy.one_worker(&[]);
    proxy.signal(Signal::HUP);
    proxy.one_worker(&[before]);
    ask(&proxy, "");
    assert!(line(&log).contains("\" 200 9 \"-\" \"-\" "), "{}", line(&log));
    assert_eq!(line(&proxy.file("access.1")), first);
}
