//! Configurations of other people's servers: one worker, no log, connections kept for ever, the
//! same body.
//!
//! Written into the run's private folder and nowhere else. What could make one server do less than
//! another is set alike: none logs, none closes a kept connection within a run, none compresses.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::load::Load;
use crate::arm::Peer;

/// Longest body that nginx takes as a word of its configuration; longer ones come from the file.
const WORD_BYTES_MAX: usize = 2048;
/// Connections beyond those of the load: readiness, and those that close while others open.
const CONNECTIONS_SPARE: usize = 256;
/// Longer than any run, in seconds.
const FOR_EVER_S: u32 = 3600;

/// The command that runs `peer` with a configuration written into `folder`; `None` for a peer
/// that is no server of its own.
///
/// # Errors
/// What the file system said.
pub(super) fn command(
    peer: Peer,
    program: &Path,
    address: SocketAddr,
    load: &Load,
    folder: &Path,
) -> io::Result<Option<Command>> {
    let files = Files::write(folder, load)?;
    let mut command = Command::new(program);
    let text = match peer {
        Peer::Nginx => nginx(address, load, &files),
        Peer::Haproxy => haproxy(address, load, &files),
        Peer::Lighttpd => lighttpd(address, load, &files),
        Peer::H2o => h2o(address, load, &files),
        _ => return Ok(None),
    };
    let config = folder.join(format!("{peer}.conf"));
    fs::write(&config, text)?;
    match peer {
        Peer::Nginx => command.arg("-p").arg(folder).args(["-e", "stderr", "-c"]).arg(&config),
        Peer::Haproxy => command.arg("-db").arg("-f").arg(&config),
        Peer::Lighttpd => command.arg("-D").arg("-f").arg(&config),
        _ => command.arg("-c").arg(&config),
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

fn nginx(address: SocketAddr, load: &Load, files: &Files) -> String {
    // It closes kept connections as soon as less than a sixteenth of its places is free.
    let connections = connections(load) + connections(load) / 8;
    let folder = files.folder.display();
    let answer = match load.reply_bytes <= WORD_BYTES_MAX {
        true => {
            format!("default_type text/plain; return 200 \"{}\";", "x".repeat(load.reply_bytes))
        }
        false => format!("root {}; index index.html;", files.site.display()),
    };
    // The worker of a privileged master would change its user, who may not enter the folder.
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    format!(
        "{user}daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\n\
         events {{ worker_connections {connections}; }}\n\
         http {{\n  access_log off;\n  keepalive_timeout {FOR_EVER_S};\n  \
         keepalive_requests 1000000000;\n  \
         client_body_temp_path {folder}/nginx-body;\n  proxy_temp_path {folder}/nginx-proxy;\n  \
         fastcgi_temp_path {folder}/nginx-fastcgi;\n  uwsgi_temp_path {folder}/nginx-uwsgi;\n  \
         scgi_temp_path {folder}/nginx-scgi;\n  \
         server {{ listen {address} backlog=4096; location / {{ {answer} }} }}\n}}\n"
    )
}

fn haproxy(address: SocketAddr, load: &Load, files: &Files) -> String {
    let (connections, body) = (connections(load), files.body.display());
    format!(
        "global\n  nbthread 1\n  maxconn {connections}\n  no strict-limits\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client {FOR_EVER_S}s\n  \
         timeout server {FOR_EVER_S}s\n  timeout http-request {FOR_EVER_S}s\n  \
         timeout http-keep-alive {FOR_EVER_S}s\n\
         frontend lab\n  bind {address} backlog 4096\n  maxconn {connections}\n  \
         http-request return status 200 content-type text/plain file {body}\n"
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
