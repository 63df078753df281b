//! Connections that only wait, on a server of files under a small descriptor limit.

use std::net::TcpStream;

use crate::child::{Server, alone};
use crate::wire::Wire;

/// Descriptors that the server may have.
const DESCRIPTORS: u32 = 1024;
/// More than half of what is left beside listeners, logs and endpoints; less than three quarters.
const SILENT: usize = 500;

#[test]
fn silent_connections_beside_a_small_descriptor_limit_stop_no_answer() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "hello").expect("written");
    std::fs::write(folder.path().join("large"), vec![b'x'; 1 << 20]).expect("written");
    let folder = folder.path().to_str().expect("a plain path");
    for driver in ["epoll", "uring"] {
        let flags = [folder, "--header-timeout", "10m"];
        let Some(server) = Server::start_within(driver, &flags, Some(DESCRIPTORS)) else {
            continue;
        };
        let connect = |_| TcpStream::connect(server.address).expect("connected");
        let silent: Vec<TcpStream> = (0..SILENT).map(connect).collect();
        let mut live = Wire::connect(server.address);
        for (path, bytes) in [("/", 5), ("/large", 1 << 20)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answers = live.ask(request.as_bytes(), &[false]).expect("answered");
            assert_eq!((answers[0].status, answers[0].body.len()), (200, bytes), "{driver}");
        }
        let metrics = server.metrics();
        assert_eq!(metrics.sum("connections_open"), SILENT as u64 + 1, "{driver}");
        assert_eq!(metrics.sum("loop_full_pauses_total"), 0, "{driver}");
        drop((silent, live));
        server.await_rest();
        server.end();
    }
}
