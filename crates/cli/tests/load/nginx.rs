//! nginx as a server to put load on.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::run::PATIENCE;

/// Whether nginx is installed; a test that goes without says so.
pub(crate) fn has_nginx() -> bool {
    let is_there = Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_ok();
    if !is_there {
        assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "nginx is not installed");
        let _ = writeln!(std::io::stderr(), "skipped: nginx is not installed");
    }
    is_there
}

/// nginx on a socket in a folder, whose files it serves.
pub(crate) struct Nginx {
    process: Child,
    pub(crate) socket: String,
}

impl Nginx {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, "")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// One with further words in the block of its server.
    pub(crate) fn start_with(folder: &Path, words: &str) -> Self {
        let name = folder.to_str().expect("a plain name");
        let socket = format!("{name}/nginx.sock");
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {name}/{kind};"))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {name}/pid; error_log {name}/log;\n\
             events {{}}\nhttp {{ access_log off; {temporary}\n\
             server {{ listen unix:{socket}; root {name}; {words} }} }}\n"
        );
        std::fs::write(folder.join("nginx.conf"), config).expect("written");
        let mut command = Command::new("nginx");
        command.args(["-p", name, "-c", "nginx.conf", "-e", "log"]).stderr(Stdio::null());
        let process = command.spawn().expect("nginx starts");
        let end = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < end, "nginx does not listen");
            std::thread::yield_now();
        }
        Self { process, socket }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
