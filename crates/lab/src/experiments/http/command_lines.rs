//! The commands and configurations that servers are started by, and where they listen then.
//!
//! Servers of pollux and the baseline servers choose a port and print it; all others are given one.
//!
//! Configurations of other people's servers and proxies (one worker, connections kept for ever, the same body) are
//! written into the run's private folder and nowhere else. What could make one server do less than another is
//! set alike: all log or none does, none closes a kept connection within a run, none compresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fs, io};

use pollux_engine::Driver;
use pollux_host::{self as host, Program, patience};
use pollux_load::Protocol;
use pollux_poller::Mechanism;

use super::certificate::Certificate;
use super::forms;
use super::load::Load;
use super::server::{CommandLine, write_site};
use super::times::TimesSocket;
use super::{
    BASELINE_SERVERS, H2O, HAPROXY, HAPROXY_SPLICE, LIGHTTPD, NGHTTPD, NGHTTPX, NGINX, PEERS,
};
use crate::arm::{ArmKind, RAW_EPOLL};
use crate::error::MeasureError;
use crate::form::Form;
use crate::measure::{Pass, RunSpec};

/// What is said of a program that ends or waits without the line that servers of pollux begin with.
const NO_ADDRESS: &str = "did not say where it listens; expected a pollux that has `serve`, which \
                          prints \"http://ADDRESS:PORT\" when it is ready";
/// Longest body that nginx takes as a word of its configuration; longer ones come from the file.
const WORD_BYTES_MAX: usize = 2048;
/// Connections beyond those of the load: readiness, and those that close while others open.
const CONNECTIONS_SPARE: usize = 256;
/// Longer than any run, in seconds.
const FOR_EVER_S: u32 = 3600;
/// More requests than a connection has in any run.
const REQUESTS_FOR_EVER: u32 = 1_000_000_000;
/// The most that `--upstream-idle-max` takes.
const UPSTREAM_IDLE_MAX: usize = 65_536;
/// What connections in TLS have to agree on, as [`pollux_load::Answered`] says it: another version or
/// cipher suite would be another work.
pub(super) const SUITE: &str = "TLSv1_3 TLS13_AES_256_GCM_SHA384";
/// The same suite as OpenSSL names it.
const OPENSSL_SUITE: &str = "TLS_AES_256_GCM_SHA384";

/// Where a server listens, and where a proxy finds the server behind it.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) listen: SocketAddr,
    pub(super) behind: Option<SocketAddr>,
}

/// What is started, and how its address becomes known.
struct Launch {
    name: String,
    command: Command,
    /// Chosen by the lab; otherwise the process says it.
    address: Option<SocketAddr>,
}

/// Starts one process of the server, and waits until it says where it listens, if it does.
pub(super) fn spawn(
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    addresses: Addresses,
    page: Option<&TimesSocket>,
) -> Result<(Program, SocketAddr), MeasureError> {
    let mut launch = launch_of(spec, load, cpu, addresses, page)?;
    launch.command.stdin(Stdio::null());
    let mut process = match &spec.arm {
        ArmKind::Server { .. } => Program::start_reading_all(&launch.name, launch.command)?,
        _ => {
            launch.command.stdout(Stdio::null());
            Program::start(&launch.name, launch.command)?
        }
    };
    let (address, mechanism) = match launch.address {
        Some(address) => (address, None),
        None => announced(&mut process)?,
    };
    if let Some(form) = spec.arm.form() {
        is_that_form(form, mechanism.as_deref())?;
    } else if load.installed.is_none() {
        is_as_asked(spec.arm.driver(), mechanism)?;
    }
    Ok((process, address))
}

/// A server of pollux must say that it runs on the driver that it was asked for: one that says
/// nothing could run on any. Other servers have none.
fn is_as_asked(asked: Option<Driver>, said: Option<String>) -> Result<(), MeasureError> {
    let Some(asked) = asked else { return Ok(()) };
    let got = said.unwrap_or_else(|| "none that it names".to_owned());
    if got.split([',', ' ']).next() == Some(asked.name()) {
        Ok(())
    } else {
        Err(MeasureError::WrongMechanism { asked, got })
    }
}

/// A bare server says which form the kernel granted; it ends by itself where that is another one.
fn is_that_form(asked: Form, said: Option<&str>) -> Result<(), MeasureError> {
    let got = said.and_then(|said| said.split(',').next()).unwrap_or_default();
    let what = || format!("says that it is {got}, expected {}", asked.words());
    if got == asked.words() {
        Ok(())
    } else {
        Err(MeasureError::Program { program: asked.to_string(), what: what() })
    }
}

/// The command of each arm that the lab starts. This is the only place that knows them.
fn launch_of(
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    addresses: Addresses,
    page: Option<&TimesSocket>,
) -> Result<Launch, MeasureError> {
    if let ArmKind::Server { command } = &spec.arm {
        return start_foreign(command, spec, load, cpu, addresses.behind);
    }
    if let Some(name) = &load.installed {
        let launch = start_peer(name, load, &spec.scratch, None)?;
        return Ok(Launch { command: on_mechanism(spec, launch.command)?, ..launch });
    }
    if let Some(driver) = spec.arm.driver() {
        let program = pollux_of(spec)?;
        if let Some(behind) = addresses.behind {
            let mut command = proxy(&program, driver, cpu, behind, load, &spec.scratch);
            if let Some(page) = page {
                command.args(["--stats", &page.listen()]);
            }
            return Ok(Launch { name: "pollux proxy".to_owned(), command, address: None });
        }
        let mut command = serve(&program, driver, cpu, addresses.listen, load);
        if load.is_file {
            let folder = spec.scratch.join(format!("pollux-{}", std::process::id()));
            let root = write_site(&folder, load).map_err(|cause| setup("a folder", cause))?;
            command.arg(root);
        } else {
            command.args(["--reply", &load.reply_bytes.to_string()]);
        }
        secure(&mut command, load);
        if load.processes > 1 {
            command.args(["--listeners", "shared"]);
        }
        if load.is_split {
            command.arg("--split-reply");
        }
        if let Some(page) = page {
            command.args(["--stats", &page.listen()]);
        }
        if spec.pass == Pass::RequestTimes && load.processes == 1 {
            command.arg("--request-times");
        }
        return Ok(Launch { name: "pollux serve".to_owned(), command, address: None });
    }
    if let Some(form) = spec.arm.form() {
        let command = forms::command(form, addresses.listen, load, &spec.scratch)?;
        return Ok(Launch { name: form.to_string(), command, address: None });
    }
    match spec.arm.peer() {
        None => Err(MeasureError::Spec("http needs a driver or a peer".into())),
        Some(name) if BASELINE_SERVERS.iter().any(|server| server.name == name) => {
            let mut command = baseline_server(name, addresses.listen, load)?;
            if !load.is_kept_alive {
                command.arg("--close");
            }
            Ok(Launch { name: name.to_owned(), command, address: None })
        }
        Some(peer) if load.processes > 1 => {
            Err(MeasureError::Spec(format!("{peer} in several processes")))
        }
        Some(peer) => start_peer(peer, load, &spec.scratch, addresses.behind),
    }
}

/// The server behind a proxy, on its own CPU: the same for every arm, and the cheapest that works on
/// every kernel.
pub(super) fn backend(load: &Load, cpu: usize) -> Result<(Program, SocketAddr), MeasureError> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut command = if load.is_closed_behind {
        baseline_server(RAW_EPOLL.name, any, load)?
    } else {
        serve(&itself()?, Driver::Readiness(Mechanism::EpollEt), cpu, any, load)
    };
    if load.is_closed_behind {
        command.arg("--close")
    } else {
        command.args(["--reply", &load.reply_bytes.to_string()])
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = Program::start("the server behind the proxy", command)?;
    let (address, _) = announced(&mut process)?;
    Ok((process, address))
}

/// `command` on the mechanism of the arm, by `pollux run`, which refuses what is out of its reach; as it is
/// where the arm has none.
pub(crate) fn on_mechanism(spec: &RunSpec, command: Command) -> Result<Command, MeasureError> {
    let Some(driver) = spec.arm.driver() else { return Ok(command) };
    let mut run = Command::new(pollux_of(spec)?);
    run.args(["run", "--poller", driver.name(), "--"]);
    run.arg(command.get_program()).args(command.get_args());
    Ok(run)
}

/// The pollux of an arm: a build that the user named, or this one.
fn pollux_of(spec: &RunSpec) -> Result<PathBuf, MeasureError> {
    spec.arm.build().map_or_else(itself, |build| Ok(build.program.clone()))
}

fn baseline_server(name: &str, listen: SocketAddr, load: &Load) -> Result<Command, MeasureError> {
    let mut command = Command::new(itself()?);
    command.args(["lab", "baseline", name, "--listen", &listen.to_string()]);
    command.args(["--reply", &load.reply_bytes.to_string()]);
    Ok(command)
}

fn itself() -> Result<PathBuf, MeasureError> {
    std::env::current_exe().map_err(|cause| setup("this program's path", cause))
}

fn serve(program: &Path, driver: Driver, cpu: usize, listen: SocketAddr, load: &Load) -> Command {
    let mut command = Command::new(program);
    command.arg("serve");
    common(&mut command, driver, cpu, listen, load);
    command
}

/// With its limits and deadlines.
fn proxy(
    program: &Path,
    driver: Driver,
    cpu: usize,
    behind: SocketAddr,
    load: &Load,
    scratch: &Path,
) -> Command {
    let mut command = Command::new(program);
    command.arg("proxy").args(["--backend", &behind.to_string()]);
    common(&mut command, driver, cpu, SocketAddr::from((load.listens_at, 0)), load);
    command.args(["--upstream-idle-timeout", "1h"]).args(&load.options);
    let kept = load.connections_behind().min(UPSTREAM_IDLE_MAX);
    command.args(["--upstream-idle-max", &kept.to_string()]);
    secure(&mut command, load);
    if load.is_logged {
        command.arg("--access-log").arg(scratch.join(format!("proxy-{}.log", std::process::id())));
    }
    command
}

/// What is said to a server of pollux of its clients' protocols.
fn secure(command: &mut Command, load: &Load) {
    if let Some(certificate) = &load.certificate {
        command.arg("--cert").arg(&certificate.cert).arg("--key").arg(&certificate.key);
    }
    if load.http == Protocol::Http2 {
        command.args(["--http2-streams", &streams_max(load).to_string()]);
        command.args(["--http2-requests", &REQUESTS_FOR_EVER.to_string()]);
    }
}

/// Streams that a server allows, beside what is its own default.
fn streams_max(load: &Load) -> usize {
    load.streams.max(100)
}

fn common(command: &mut Command, driver: Driver, cpu: usize, listen: SocketAddr, load: &Load) {
    command.args(["--listen", &listen.to_string(), "--poller", driver.name()]);
    command.args(["--threads", &load.threads.to_string()]);
    // As for the others: no run is longer.
    command.args(["--pin", &cpu.to_string(), "--idle-timeout", "1h"]);
}

fn start_peer(
    name: &str,
    load: &Load,
    scratch: &Path,
    behind: Option<SocketAddr>,
) -> Result<Launch, MeasureError> {
    let mut peers = PEERS.into_iter().chain([HAPROXY_SPLICE, NGHTTPX]);
    let peer = peers.find(|peer| peer.name == name);
    let peer = peer.ok_or_else(|| MeasureError::Spec(format!("{name} is not a server")))?;
    let program = if name == HAPROXY_SPLICE.name { HAPROXY.name } else { name };
    let program: PathBuf = host::find_program(program).ok_or_else(|| MeasureError::Program {
        program: name.to_owned(),
        what: (peer.missing)().unwrap_or_else(|| "not found".to_owned()),
    })?;
    // Each copy of a baseline has its own.
    let folder = scratch.join(format!("{name}-{}", std::process::id()));
    let address = free_address_at(load.listens_at)?;
    let command = fs::create_dir_all(&folder)
        .and_then(|()| {
            command(name, &program, Addresses { listen: address, behind }, load, &folder)
        })
        .map_err(|cause| setup("a configuration", cause))?;
    let command = command.ok_or_else(|| MeasureError::Spec(format!("{name} is not a server")))?;
    Ok(Launch { name: name.to_owned(), command, address: Some(address) })
}

/// A server of the user: it says nothing that is read, and what it prints are its last words.
fn start_foreign(
    line: &str,
    spec: &RunSpec,
    load: &Load,
    cpu: usize,
    behind: Option<SocketAddr>,
) -> Result<Launch, MeasureError> {
    if load.processes > 1 {
        return Err(MeasureError::Spec("a server of the user in several processes".to_owned()));
    }
    let address = free_address_at(load.listens_at)?;
    let folder = spec.scratch.join(format!("server-{}", std::process::id()));
    let CommandLine { name, command } = CommandLine::new(
        line,
        &spec.axes,
        load,
        Addresses { listen: address, behind },
        cpu,
        &folder,
    )?;
    Ok(Launch { name, command, address: Some(address) })
}

pub(super) fn setup(what: &str, cause: io::Error) -> MeasureError {
    MeasureError::Setup { what: what.to_owned(), cause }
}

/// A port that was free a moment ago, for servers that can't choose one and say which. One that is
/// taken meanwhile makes the run fail, and the arm is tried again in the next block.
pub(crate) fn free_address() -> Result<SocketAddr, MeasureError> {
    free_address_at(Ipv4Addr::LOCALHOST.into())
}

fn free_address_at(address: IpAddr) -> Result<SocketAddr, MeasureError> {
    let listener = TcpListener::bind((address, 0));
    let found = listener.and_then(|listener| listener.local_addr());
    found.map_err(|cause| setup(&format!("a free port at {address}"), cause))
}

/// The address and what stands in brackets behind it: `…: http://127.0.0.1:8080 to … (epoll-et)`.
fn announced(process: &mut Program) -> Result<(SocketAddr, Option<String>), MeasureError> {
    let start = Instant::now();
    loop {
        let left = patience::SERVER_LISTENS.saturating_sub(start.elapsed());
        let Ok(Some(line)) = process.line_within(left) else {
            return Err(process.failed(NO_ADDRESS).into());
        };
        if let Some(found) = address_in(&line) {
            return Ok(found);
        }
    }
}

fn address_in(line: &str) -> Option<(SocketAddr, Option<String>)> {
    let (_, rest) = ["http://", "https://"].iter().find_map(|scheme| line.split_once(scheme))?;
    let (address, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let words = rest.split_once('(').and_then(|(_, words)| words.split_once(')'));
    Some((address.trim_end_matches('/').parse().ok()?, words.map(|(words, _)| words.to_owned())))
}

/// The command that runs `peer` with a configuration written into `folder`; `None` for a peer
/// that is not a server of its own.
fn command(
    peer: &str,
    program: &Path,
    addresses: Addresses,
    load: &Load,
    folder: &Path,
) -> io::Result<Option<Command>> {
    let files = Files::write(folder, load)?;
    let mut command = Command::new(program);
    let text = if peer == NGINX.name {
        nginx(addresses, load, &files)
    } else if peer == HAPROXY.name {
        haproxy(addresses, load, &files, false)
    } else if peer == HAPROXY_SPLICE.name {
        haproxy(addresses, load, &files, true)
    } else if peer == LIGHTTPD.name {
        lighttpd(addresses.listen, load, &files)
    } else if peer == H2O.name {
        h2o(addresses, load, &files)
    } else if peer == NGHTTPX.name {
        nghttpx(addresses, load, &files)
    } else if peer == NGHTTPD.name {
        nghttpd(&mut command, addresses.listen, load, &files);
        return Ok(Some(command));
    } else {
        return Ok(None);
    };
    let config = folder.join(format!("{peer}.conf"));
    fs::write(&config, text)?;
    if peer == NGINX.name {
        command.arg("-p").arg(folder).args(["-e", "stderr", "-c"]).arg(&config)
    } else if peer == HAPROXY.name || peer == HAPROXY_SPLICE.name {
        command.arg("-db").arg("-f").arg(&config)
    } else if peer == LIGHTTPD.name {
        command.arg("-D").arg("-f").arg(&config)
    } else if peer == NGHTTPX.name {
        command.arg(format!("--conf={}", config.display()))
    } else {
        command.arg("-c").arg(&config)
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

fn connections_behind(load: &Load) -> usize {
    load.connections_behind() + CONNECTIONS_SPARE
}

fn nginx(Addresses { listen: address, behind }: Addresses, load: &Load, files: &Files) -> String {
    // It closes kept connections as soon as less than a sixteenth of its slots is free.
    let both = connections(load) + behind.map_or(0, |_| connections_behind(load));
    let connections = both + both / 8;
    let folder = files.folder.display();
    let answer = match (behind, load.reply_bytes <= WORD_BYTES_MAX) {
        // Bodies pass as they come, as through the others, and not by way of a file.
        (Some(_), _) => "proxy_pass http://lab; proxy_http_version 1.1; \
                         proxy_set_header Connection \"\"; proxy_request_buffering off; \
                         client_max_body_size 0;"
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
    let log = if load.is_logged { format!("{folder}/access.log") } else { "off".to_owned() };
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
    // In clear text it speaks one of both on a port.
    let (http2, keys) = match load.http {
        Protocol::Http2 => {
            let streams = streams_max(load);
            (" http2", format!("http2_max_concurrent_streams {streams}; {keys}"))
        }
        _ => ("", keys),
    };
    let upstream = behind.map_or_else(String::new, |behind| {
        format!(
            "  upstream lab {{ server {behind}; keepalive {connections}; keepalive_timeout \
             {FOR_EVER_S}; keepalive_requests {REQUESTS_FOR_EVER}; }}\n"
        )
    });
    // The worker of a privileged master would change to a user that may not enter the folder.
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    format!(
        "{user}daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\n\
         events {{ worker_connections {connections}; }}\n\
         http {{\n{upstream}  access_log {log};\n  keepalive_timeout {FOR_EVER_S};\n  \
         keepalive_requests {REQUESTS_FOR_EVER};\n  \
         client_body_temp_path {folder}/nginx-body;\n  proxy_temp_path {folder}/nginx-proxy;\n  \
         fastcgi_temp_path {folder}/nginx-fastcgi;\n  uwsgi_temp_path {folder}/nginx-uwsgi;\n  \
         scgi_temp_path {folder}/nginx-scgi;\n  \
         server {{ listen {address}{secure}{http2} backlog=4096; {keys}location / {{ {answer} }} }}\n}}\n"
    )
}

fn haproxy(
    Addresses { listen: address, behind }: Addresses,
    load: &Load,
    files: &Files,
    splices: bool,
) -> String {
    let body = files.body.display();
    // It reckons with one to a server for each of a client.
    let connections = connections(load).max(behind.map_or(0, |_| connections_behind(load)));
    // By default it keeps idle connections to servers only while few of its descriptors are in use.
    let pool = match behind {
        Some(_) => "  tune.pool-high-fd-ratio 100\n  tune.pool-low-fd-ratio 100\n",
        None => "",
    };
    let answer = match behind {
        Some(behind) => {
            let log = if load.is_logged {
                "log stdout format raw local0\n  option httplog\n  "
            } else {
                ""
            };
            format!(
                "{log}default_backend lab\nbackend lab\n  http-reuse always\n  server lab {behind}\n"
            )
        }
        None => format!("http-request return status 200 content-type text/plain file {body}\n"),
    };
    let splice = if splices { "  option splice-request\n  option splice-response\n" } else { "" };
    let secure = load.certificate.as_ref().map_or_else(String::new, |certificate| {
        let alpn = if load.http == Protocol::Http2 { " alpn h2" } else { "" };
        format!(
            " ssl crt {} ssl-min-ver TLSv1.3 ciphersuites {OPENSSL_SUITE}{alpn}",
            certificate.both.display()
        )
    });
    let streams = match load.http {
        Protocol::Http2 => format!("  tune.h2.max-concurrent-streams {}\n", streams_max(load)),
        _ => String::new(),
    };
    format!(
        "global\n  nbthread 1\n  maxconn {connections}\n  no strict-limits\n{pool}{streams}\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client {FOR_EVER_S}s\n  \
         timeout server {FOR_EVER_S}s\n  timeout http-request {FOR_EVER_S}s\n  \
         timeout http-keep-alive {FOR_EVER_S}s\n{splice}\
         frontend lab\n  bind {address} backlog 4096{secure}\n  maxconn {connections}\n  \
         {answer}"
    )
}

fn lighttpd(address: SocketAddr, load: &Load, files: &Files) -> String {
    let connections = connections(load);
    let site = files.site.display();
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

fn h2o(Addresses { listen: address, behind }: Addresses, load: &Load, files: &Files) -> String {
    let connections = connections(load);
    let folder = files.folder.display();
    let user = if rustix::process::geteuid().is_root() { "user: root\n" } else { "" };
    let answer = match behind {
        // In milliseconds.
        Some(behind) => format!(
            "proxy.reverse.url: http://{behind}/\n        proxy.timeout.keepalive: {FOR_EVER_S}000\n"
        ),
        None => format!("file.dir: {}\n", files.site.display()),
    };
    // With its key in a process of its own handshakes would be another work.
    let secure = load.certificate.as_ref().map_or_else(String::new, |certificate| {
        format!(
            "  ssl:\n    certificate-file: {}\n    key-file: {}\n    neverbleed: OFF\n    \
             ocsp-update-interval: 0\n",
            certificate.cert.display(),
            certificate.key.display()
        )
    });
    let log =
        if load.is_logged { format!("access-log: {folder}/access.log\n") } else { String::new() };
    format!(
        "{user}listen:\n  host: {}\n  port: {}\n{secure}num-threads: 1\nmax-connections: {connections}\n\
         http1-request-timeout: {FOR_EVER_S}\nhttp2-idle-timeout: {FOR_EVER_S}\n\
         http2-max-concurrent-requests-per-connection: {}\n{log}\
         hosts:\n  default:\n    paths:\n      \"/\":\n        {answer}",
        address.ip(),
        address.port(),
        streams_max(load),
    )
}

fn nghttpd(command: &mut Command, address: SocketAddr, load: &Load, files: &Files) {
    command.args(["--workers=1", "--address", &address.ip().to_string()]);
    command.args(["--max-concurrent-streams", &streams_max(load).to_string()]);
    if load.certificate.is_none() {
        command.arg("--no-tls");
    }
    command.arg("--htdocs").arg(&files.site).arg(address.port().to_string());
    if let Some(Certificate { cert, key, .. }) = &load.certificate {
        command.arg(key).arg(cert);
    }
}

/// In clear text it takes both HTTP/1.1 and HTTP/2 on a port. A backend is asked by HTTP/1.1 where nothing else is said.
fn nghttpx(Addresses { listen: address, behind }: Addresses, load: &Load, files: &Files) -> String {
    let of = |address: SocketAddr| format!("{},{}", address.ip(), address.port());
    let backend = behind.map_or_else(String::new, |behind| format!("backend={}\n", of(behind)));
    let (plain, keys) = match &load.certificate {
        None => (";no-tls", String::new()),
        Some(Certificate { cert, key, .. }) => (
            "",
            format!(
                "private-key-file={}\ncertificate-file={}\ntls-min-proto-version=TLSv1.3\n\
                 tls13-ciphers={OPENSSL_SUITE}\n",
                key.display(),
                cert.display()
            ),
        ),
    };
    let log = if load.is_logged {
        format!("accesslog-file={}/access.log\n", files.folder.display())
    } else {
        String::new()
    };
    format!(
        "frontend={}{plain}\n{backend}workers=1\nbacklog=4096\n{keys}\
         frontend-http2-max-concurrent-streams={}\n\
         frontend-keep-alive-timeout={FOR_EVER_S}\nbackend-keep-alive-timeout={FOR_EVER_S}\n{log}",
        of(address),
        streams_max(load),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_with_what_stands_in_brackets() {
        let line = "pollux serve: http://127.0.0.1:8080 (epoll-et, 1 thread)";
        let (address, words) = address_in(line).expect("an address");
        assert_eq!((address.port(), words.as_deref()), (8080, Some("epoll-et, 1 thread")));
        let line = "pollux proxy: http://127.0.0.1:80 to 127.0.0.1:81 (uring, 1 thread)";
        let (address, words) = address_in(line).expect("an address");
        assert_eq!((address.port(), words.as_deref()), (80, Some("uring, 1 thread")));
        let line = "pollux serve: https://127.0.0.1:8443 (epoll, 1 thread)";
        assert_eq!(address_in(line).expect("an address").0.port(), 8443);
        assert_eq!(address_in("ready on http://[::1]:81/").map(|found| found.1), Some(None));
        assert_eq!(address_in("listening on 8080"), None);
    }

    #[test]
    fn a_bare_server_in_another_form_is_refused() {
        let form = "raw-uring:none+single".parse().expect("a form");
        let said = |words: &str| is_that_form(form, Some(words));
        assert!(said("none+single, shared buffers 64x16k").is_ok());
        for words in ["none, shared", "none+single+direct", "single+none", ""] {
            assert!(said(words).is_err(), "{words}");
        }
        assert!(is_that_form(form, None).is_err());
    }

    #[test]
    fn a_server_that_does_not_name_its_driver_is_refused() {
        let driver = Driver::Readiness(Mechanism::EpollEt);
        let said = |words: &str| is_as_asked(Some(driver), Some(words.to_owned()));
        assert!(said("epoll-et, 1 thread").is_ok());
        for words in ["epoll, 1 thread", "epoll-et2", "poll, as epoll-et is refused", ""] {
            assert!(matches!(said(words), Err(MeasureError::WrongMechanism { .. })), "{words}");
        }
        assert!(is_as_asked(Some(driver), None).is_err());
        assert!(is_as_asked(None, None).is_ok(), "a server that is not ours");
    }
}
