//! `pollux serve` before the conformance suite of HTTP/2, `h2spec`, in its strict form.

use std::net::SocketAddr;
use std::process::Command;

use pollux_testing::has;

use crate::child::Server;
use crate::encrypted::Files;

/// Runs the suite; what it says at its end.
fn suite(address: SocketAddr, more: &[&str]) -> String {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    // A busy machine may be slow; what is as expected is seen at once.
    let flags = ["--strict", "--timeout", "2", "--host", &ip, "--port", &port];
    let mut command = Command::new("h2spec");
    let output = command.args(flags).args(more).output().expect("it was found");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn passes_all(server: &Server, more: &[&str]) {
    let said = suite(server.address, more);
    assert!(said.contains("146 tests, 146 passed, 0 skipped, 0 failed"), "{said}");
}

#[test]
fn all_tests_of_h2spec_pass_in_clear_text_and_in_tls() {
    if !has("h2spec") {
        return;
    }
    let files = Files::make();
    for driver in ["epoll-et", "uring"] {
        if let Some(server) = Server::start(driver, &["--reply", "128"]) {
            passes_all(&server, &[]);
        }
        if let Some(server) = files.serve(driver, &["--reply", "128"]) {
            passes_all(&server, &["--tls", "--insecure"]);
        }
    }
}
