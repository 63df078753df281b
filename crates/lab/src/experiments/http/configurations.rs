//! Configurations of other people's servers and proxies: one worker, connections kept for ever, the same body.
//!
//! They are written into the run's private folder and nowhere else. What could make one server do less than another is
//! set alike: all log or none does, none closes a kept connection within a run, none compresses.

use super::load::{Certificate, Load};
use super::start::Ends;
use super::{H2O, HAPROXY, LIGHTTPD, NGINX};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// Longest body that nginx takes as a word of its configuration; longer ones come from the file.
const WORD_BYTES_MAX: usize = 2048;
/// Connections beyond those of the load: readiness, and those that close while others open.
const CONNECTIONS_SPARE: usize = 256;
/// Longer than any run, in seconds.
const FOR_EVER_S: u32 = 3600;

/// The command that runs `peer` with a configuration written into `folder`; `None` for a peer
/// that is not a server of its own.
pub(super) fn command(
    peer: &str,
    program: &Path,
    ends: Ends,
    load: &Load,
    folder: &Path,
) -> io::Result<Option<Command>> {
    let files = Files::write(folder, load)?;
    let mut command = Command::new(program);
    let text = match () {
        () if peer == NGINX.name => nginx(ends, load, &files),
        () if peer == HAPROXY.name => haproxy(ends, load, &files),
        () if peer == LIGHTTPD.name => lighttpd(ends.listen, load, &files),
        () if peer == H2O.name => h2o(ends.listen, load, &files),
        () => return Ok(None),
    };
    let config = folder.join(format!("{peer}.conf"));
    fs::write(&config, text)?;
    match () {
        () if peer == NGINX.name => {
            command.arg("-p").arg(folder).args(["-e", "stderr", "-c"]).arg(&config)
        }
        () if peer == HAPROXY.name => command.arg("-db").arg("-f").arg(&config),
        () if peer == LIGHTTPD.name => command.arg("-D").arg("-f").arg(&config),
        () => command.arg("-c").arg(&config),
    };
    Ok(Some(command))
}

/// The body as a file, in a folder that a server may serve.
struct Files {
    folder: PathBuf,
    site: PathBuf,
    body: PathBuf,
}

impl Files {
    fn write(folder: &Path, load: &Load) -> io::Result<Self> {
        let site = folder.join("site");
        fs::create_dir_all(&site)?;
        let body = site.join("index.html");
        fs::write(&body, "x".repeat(load.reply_bytes))?;
        Ok(Self { folder: folder.to_owned(), site, body })
    }
}

fn connections(load: &Load) -> usize {
    load.connections_at_once() + CONNECTIONS_SPARE
}

fn nginx(Ends { listen: address, behind }: Ends, load: &Load, files: &Files) -> String {
    // It closes kept connections as soon as less than a sixteenth of its slots is free.
    let each = if behind.is_some() { 2 } else { 1 };
    let connections = (connections(load) + connections(load) / 8) * each;
    let folder = files.folder.display();
    let answer = match (behind, load.reply_bytes <= WORD_BYTES_MAX) {
        (Some(_), _) => "proxy_pass http://lab; proxy_http_version 1.1; \
                         proxy_set_header Connection \"\";"
            .to_owned(),
        (None, true) if !load.is_file => {
            format!("default_type text/plain; return 200 \"{}\";", "x".repeat(load.reply_bytes))
        }
        // As its manual has it for static files.
        (None, _) => format!(
            "root {}; index index.html; sendfile on; tcp_nopush on; open_file_cache max=1000 \
             inactive=60s; open_file_cache_valid 60s;",
            files.site.display()
        ),
    };
    let log = match load.is_logged {
        true => format!("{folder}/access.log"),
        false => "off".to_owned(),
    };
    let (secure, keys) = match &load.certificate {
        Some(Certificate { cert, key, .. }) => (
            " ssl",
            format!(
                "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3; \
                 ssl_conf_command Ciphersuites {OPENSSL_SUITE}; ",
                cert.display(),
                key.display()
            ),
        ),
        None => ("", String::new()),
    };
    let upstream = behind.map_or_else(String::new, |behind| {
        format!(
            "  upstream lab {{ server {behind}; keepalive {connections}; keepalive_timeout \
             {FOR_EVER_S}; keepalive_requests 1000000000; }}\n"
        )
    });
    // The worker of a privileged master would change to a user that may not enter the folder.
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    format!(
        "{user}daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\n\
         events {{ worker_connections {connections}; }}\n\
         http {{\n{upstream}  access_log {log};\n  keepalive_timeout {FOR_EVER_S};\n  \
         keepalive_requests 1000000000;\n  \
         client_body_temp_path {folder}/nginx-body;\n  proxy_temp_path {folder}/nginx-proxy;\n  \
         fastcgi_temp_path {folder}/nginx-fastcgi;\n  uwsgi_temp_path {folder}/nginx-uwsgi;\n  \
         scgi_temp_path {folder}/nginx-scgi;\n  \
         server {{ listen {address}{secure} backlog=4096; {keys}location / {{ {answer} }} }}\n}}\n"
    )
}

fn haproxy(Ends { listen: address, behind }: Ends, load: &Load, files: &Files) -> String {
    let (connections, body) = (connections(load), files.body.display());
    // By default it keeps idle connections to servers only while few of its descriptors are in use.
    let pool = match behind {
        Some(_) => "  tune.pool-high-fd-ratio 100\n  tune.pool-low-fd-ratio 100\n",
        None => "",
    };
    let answer = match behind {
        Some(behind) => {
            let log = match load.is_logged {
                true => "log stdout format raw local0\n  option httplog\n  ",
                false => "",
            };
            format!(
                "{log}default_backend lab\nbackend lab\n  http-reuse always\n  server lab {behind}\n"
            )
        }
        None => format!("http-request return status 200 content-type text/plain file {body}\n"),
    };
    let secure = load.certificate.as_ref().map_or_else(String::new, |certificate| {
        format!(
            " ssl crt {} ssl-min-ver TLSv1.3 ciphersuites {OPENSSL_SUITE}",
            certificate.both.display()
        )
    });
    format!(
        "global\n  nbthread 1\n  maxconn {connections}\n  no strict-limits\n{pool}\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client {FOR_EVER_S}s\n  \
         timeout server {FOR_EVER_S}s\n  timeout http-request {FOR_EVER_S}s\n  \
         timeout http-keep-alive {FOR_EVER_S}s\n\
         frontend lab\n  bind {address} backlog 4096{secure}\n  maxconn {connections}\n  \
         {answer}"
    )
}

fn lighttpd(address: SocketAddr, load: &Load, files: &Files) -> String {
    let (connections, site) = (connections(load), files.site.display());
    // 65,535 requests on one connection are the most that it counts: a reconnection every few
    // seconds, which no figure shows.
    format!(
        "server.document-root = \"{site}\"\nserver.bind = \"{}\"\nserver.port = {}\n\
         server.max-connections = {connections}\nserver.max-fds = {}\n\
         server.listen-backlog = 4096\nserver.max-keep-alive-requests = 65535\n\
         server.max-keep-alive-idle = {FOR_EVER_S}\nserver.max-read-idle = {FOR_EVER_S}\n\
         index-file.names = ( \"index.html\" )\nmimetype.assign = ( \".html\" => \"text/plain\" )\n",
        address.ip(),
        address.port(),
        connections * 2,
    )
}

fn h2o(address: SocketAddr, load: &Load, files: &Files) -> String {
    let (connections, site) = (connections(load), files.site.display());
    let user = if rustix::process::geteuid().is_root() { "user: root\n" } else { "" };
    format!(
        "{user}listen:\n  host: {}\n  port: {}\nnum-threads: 1\nmax-connections: {connections}\n\
         http1-request-timeout: {FOR_EVER_S}\n\
         hosts:\n  default:\n    paths:\n      \"/\":\n        file.dir: {site}\n",
        address.ip(),
        address.port(),
    )
}

/// What connections in TLS have to agree on, as [`pollux_load::Answered`] says it: another version or
/// cipher suite would be another work.
pub(super) const SUITE: &str = "TLSv1_3 TLS13_AES_256_GCM_SHA384";
/// The same suite as OpenSSL names it.
pub(super) const OPENSSL_SUITE: &str = "TLS_AES_256_GCM_SHA384";
