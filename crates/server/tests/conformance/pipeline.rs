//! Ten thousand requests in one write are answered in their order, on every driver.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use pollux_engine::{Driver, ListenAddress};
use pollux_server::Server;

use crate::answers::Answers;
use crate::case::Setup;
use crate::drivers::{end, start};
use crate::lockstep::PATIENCE;
use crate::site;
use crate::stage::Stage;

const REQUESTS: usize = 10_000;

/// What the request at this place asks for. Neighbours differ in their answers, and no pattern
/// comes again soon, so that answers which changed places would be seen.
fn file(at: usize) -> (&'static str, &'static [u8]) {
    const PLAIN: [&str; 5] =
        ["index.html", "hello.txt", "empty.txt", "sub/page.txt", "bare/file.txt"];
    let path = PLAIN[(at * 7 + at / 5 * 3 + at / 97) % PLAIN.len()];
    (path, site::content(path))
}

fn is_head(at: usize) -> bool {
    (at * at / 3 + at / 11).is_multiple_of(3)
}

#[test]
fn files_are_sent_in_the_order_of_the_requests() {
    let stage = Stage::new();
    let request = |at| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", file(at).0);
    let requests: String = (0..REQUESTS).map(request).collect();
    for driver in Driver::ALL {
        let Some(server) = start(&stage, Setup::Files, driver) else { continue };
        let answers = Answers::parse(&talk(&server, &requests), &[]).expect("sound");
        assert_eq!((answers.whole.len(), answers.has_part), (REQUESTS, false), "{driver}");
        for (at, answer) in answers.whole.iter().enumerate() {
            let is_right = answer.status == 200 && answer.body == file(at).1;
            assert!(is_right, "{driver}: answer {at} is not {}", file(at).0);
        }
        end(driver, server);
    }
}

#[test]
fn replies_stand_where_their_requests_stood() {
    let stage = Stage::new();
    let method = |at| if is_head(at) { "HEAD" } else { "GET" };
    let request = |at| format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", method(at));
    let requests: String = (0..REQUESTS).map(request).collect();
    let heads: Vec<bool> = (0..REQUESTS).map(is_head).collect();
    for driver in Driver::ALL {
        let Some(server) = start(&stage, Setup::Reply, driver) else { continue };
        // An answer to HEAD in the place of one to GET would swallow what follows it.
        let answers = Answers::parse(&talk(&server, &requests), &heads).expect("sound");
        assert_eq!((answers.whole.len(), answers.has_part), (REQUESTS, false), "{driver}");
        end(driver, server);
    }
}

/// Sends all in one write while it reads; what came up to the end.
fn talk(server: &Server, requests: &str) -> Vec<u8> {
    let ListenAddress::Tcp(address) = &server.addresses()[0] else { panic!("TCP comes first") };
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    let mut writer = stream.try_clone().expect("the same socket");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(requests.as_bytes()).expect("the server reads in the end");
            writer.shutdown(Shutdown::Write).expect("ended");
        });
        let mut came = Vec::new();
        stream.read_to_end(&mut came).expect("answers up to the end");
        came
    })
}
