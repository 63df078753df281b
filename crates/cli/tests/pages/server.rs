//! A server to be loaded, for as long as it is kept.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A server that answers everything.
pub(crate) struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Starts one on a port of its own.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux"));
        command.args(["serve", "--reply", "128", "--listen", "127.0.0.1:0"]);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("pollux starts");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("http://") {
            assert!(stderr.read_line(&mut said).expect("lines") > 0, "it ended: {said}");
        }
        let address = said.split("http://").nth(1).and_then(|rest| rest.split([' ', '/']).next());
        let url = format!("http://{}/", address.expect("an address").trim());
        Self { process, url }
    }

    /// What it is asked at.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
