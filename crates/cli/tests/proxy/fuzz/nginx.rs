//! nginx as a second reader of what the proxy sends: it passes requests on to a backend that says what
//! it was asked to.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::stage::PATIENCE;

/// A running nginx.
pub(crate) struct Nginx {
    child: Child,
    folder: TempDir,
}

impl Nginx {
    /// One that passes requests on to that address; none where nginx is not installed.
    pub(crate) fn start(origin: SocketAddr) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
             access_log off; merge_slashes off; underscores_in_headers on;\n\
             client_header_buffer_size 64k; large_client_header_buffers 4 64k;\n\
             client_max_body_size 0; client_body_buffer_size 256k;\n\
             client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
             fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;\n\
             keepalive_requests 1000000; keepalive_timeout 600s;\n\
             server {{ listen unix:{path}/nginx.sock; location / {{\n\
             proxy_pass http://{origin}; proxy_http_version 1.1; proxy_set_header Connection close;\n\
             proxy_set_header Host $http_host; proxy_ignore_client_abort on;\n\
             }} }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, config).expect("written");
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).arg("-p").arg(folder.path());
        command.arg("-e").arg(folder.path().join("error.log"));
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = child else {
            pollux_testing::skip(format_args!("nginx is not installed"));
            return None;
        };
        let mut nginx = Self { child, folder };
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(nginx.socket()).is_err() {
            let ended = nginx.child.try_wait().expect("ours");
            let log = std::fs::read_to_string(nginx.folder.path().join("error.log"));
            assert!(ended.is_none() && Instant::now() < end, "nginx: {ended:?} {log:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(nginx)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        Path::join(self.folder.path(), "nginx.sock")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
