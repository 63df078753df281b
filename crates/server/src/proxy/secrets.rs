//! What a proxy speaks TLS with, read from files before it starts and at each reload.

use std::sync::{Arc, Mutex, MutexGuard};

use pollux_engine::ListenAddress;
use pollux_tls::{ClientConfig, HTTP_1_1, Remedies, ServerConfig, ServerName, server_name};

use super::config::{Frontend, GroupConfig, Mode, ProxyConfig, ServerTls};
use crate::tls::{Certificate, Tls, TlsError};

/// What a user of the proxy can do about a backend's certificate.
const REMEDIES: Remedies = Remedies {
    name_authority: "--ca FILE",
    accept_any: "--verify none",
    name_server: "give a name that it has with --sni",
};

/// The encryption of a connection. It goes where the connection framing: an upstream connection that another
/// thread takes over has its state in what threads share. Only the holder of the connection touches it,
/// so its lock is free whenever it is asked for.
pub(super) type SharedTls = Arc<Mutex<Tls>>;

pub(super) fn lock(tls: &Mutex<Tls>) -> MutexGuard<'_, Tls> {
    tls.lock().expect("nothing panics under this lock")
}

/// What clients and backends of a proxy speak TLS with.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// For each front end.
    pub(super) clients: Vec<Option<Arc<ServerConfig>>>,
    /// For each group.
    pub(super) servers: Vec<Option<ServerSecrets>>,
    /// What clients will not like about the certificates that they are shown, in lines.
    pub remarks: Vec<String>,
}

/// What the servers of a group speak TLS with.
#[derive(Clone, Debug)]
pub(super) struct ServerSecrets {
    /// For requests, and for bytes of an unknown protocol.
    http: Arc<ClientConfig>,
    bytes: Arc<ClientConfig>,
    /// Of each server.
    names: Vec<ServerName<'static>>,
}

impl ProxyConfig {
    /// Reads all certificates and keys.
    ///
    /// # Errors
    /// A file can't be used, or a server has no name that a certificate can have.
    pub fn read_secrets(&self) -> Result<Secrets, TlsError> {
        let shown = self.frontends.iter().map(of_clients).collect::<Result<Vec<_>, _>>()?;
        let servers = self.groups.iter().map(of_servers).collect::<Result<_, _>>()?;
        let mut remarks: Vec<String> =
            shown.iter().flatten().flat_map(Certificate::remarks).collect();
        // Front ends may have one in common.
        remarks.sort();
        remarks.dedup();
        let config = |one: &Certificate| Arc::clone(one.config());
        let clients = shown.iter().map(|one| one.as_ref().map(config)).collect();
        Ok(Secrets { clients, servers, remarks })
    }
}

fn of_clients(front: &Frontend) -> Result<Option<Certificate>, TlsError> {
    let protocol = (front.mode == Mode::Http).then_some(HTTP_1_1);
    front.tls.as_ref().map(|keys| Certificate::open(keys.clone(), protocol)).transpose()
}

fn of_servers(group: &GroupConfig) -> Result<Option<ServerSecrets>, TlsError> {
    let Some(ServerTls { name, trust }) = &group.tls else { return Ok(None) };
    let name_of = |address: &ListenAddress| {
        let text = name.clone().unwrap_or_else(|| match address {
            ListenAddress::Tcp(address) => address.ip().to_canonical().to_string(),
            ListenAddress::Unix(_) => address.to_string(),
        });
        server_name(&text).map_err(TlsError::new)
    };
    let names = group.servers.iter().map(|server| name_of(&server.address));
    Ok(Some(ServerSecrets {
        http: trust.config(Some(HTTP_1_1))?,
        bytes: trust.config(None)?,
        names: names.collect::<Result<_, _>>()?,
    }))
}

impl ServerSecrets {
    /// The encryption of a connection to the server at this place of the group.
    pub(super) fn connection(&self, place: usize, mode: Mode) -> SharedTls {
        let config = match mode {
            Mode::Http => &self.http,
            Mode::Tcp => &self.bytes,
        };
        Arc::new(Mutex::new(Tls::outgoing(config, &self.names[place])))
    }
}

/// Why TLS with a backend failed, and what to do.
pub(super) fn why(error: Option<&pollux_tls::Error>) -> String {
    match error {
        Some(error) => REMEDIES.why(error),
        None => "it ended the connection in the handshake; does it speak TLS?".to_owned(),
    }
}
