//! Why a server could not listen, in words of its settings: which process has the address, what it needs.
//!
//! The start of a server calls it with what the engine said. It reads `/proc` once, on the way out.

use std::fs::{read_dir, read_link, read_to_string};
use std::net::SocketAddr;

use pollux_engine::{GroupError, ListenError};
use rustix::io::Errno;

use crate::ServerError;

/// What an error of the group `part`, whose address the flag sets, is to the user.
pub(crate) fn explained(part: &'static str, flag: &'static str, cause: GroupError) -> ServerError {
    match cause {
        GroupError::Listen(cause) => explained_open(part, flag, cause),
        cause => ServerError::Group { part, cause },
    }
}

/// What it is that an address of `part`, which the flag sets, could not be opened.
pub(crate) fn explained_open(
    part: &'static str,
    flag: &'static str,
    cause: ListenError,
) -> ServerError {
    let ListenError::System { address, cause, .. } = cause else {
        return ServerError::Group { part, cause: GroupError::Listen(cause) };
    };
    let reason = reason(&address, flag, Errno::from_io_error(&cause), holder);
    ServerError::Listen { reason, cause }
}

/// What is wrong with the address and what is expected.
fn reason(
    address: &str,
    flag: &str,
    errno: Option<Errno>,
    holder: fn(u16) -> Option<String>,
) -> String {
    let tcp: Option<SocketAddr> = address.parse().ok();
    match (errno, tcp) {
        (Some(Errno::ADDRINUSE), Some(tcp)) => {
            let by =
                holder(tcp.port()).map_or_else(String::new, |program| format!(" by {program}"));
            format!(
                "{address} is in use{by}; end that program or choose another address with {flag}"
            )
        }
        (Some(Errno::ACCESS), Some(tcp)) => format!(
            "port {} needs root or CAP_NET_BIND_SERVICE (setcap cap_net_bind_service=+ep, \
             AmbientCapabilities=); or choose a port from 1024 on with {flag}",
            tcp.port()
        ),
        (Some(Errno::ADDRNOTAVAIL), Some(tcp)) => format!(
            "{} is not an address of this machine; choose one of its own with {flag}, or :{} for all \
             of them",
            tcp.ip(),
            tcp.port()
        ),
        _ => format!("{address} cannot be listened on; choose another address with {flag}"),
    }
}

/// The program that listens on this port, as `name (process 12)`; none where that is not ours to
/// know (`proc_pid_net(5)`, `proc_pid_fd(5)`).
fn holder(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| read_to_string(table).ok());
    let inode = tables.iter().flatten().find_map(|table| listening_inode(table, port))?;
    let socket = format!("socket:[{inode}]");
    for process in read_dir("/proc").ok()?.flatten() {
        let id = process.file_name();
        // Others, as `self`, name a process once more.
        if !id.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(descriptors) = read_dir(process.path().join("fd")) else { continue };
        let mut links = descriptors.flatten().filter_map(|each| read_link(each.path()).ok());
        if links.any(|link| link.as_os_str() == socket.as_str()) {
            let name = read_to_string(process.path().join("comm")).ok()?;
            return Some(format!("{} (process {})", name.trim(), id.display()));
        }
    }
    None
}

/// The inode of the socket that listens on `port` in a table of `/proc/net/tcp`.
fn listening_inode(table: &str, port: u16) -> Option<&str> {
    /// TCP_LISTEN, as the table has it.
    const LISTENS: &str = "0A";
    let ending = format!(":{port:04X}");
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = words.get(1)?.ends_with(&ending) && *words.get(3)? == LISTENS;
        is_it.then(|| words.get(9).copied())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(address: &str, errno: Errno) -> String {
        reason(address, "--listen", Some(errno), |_| Some("nginx (process 7)".to_owned()))
    }

    #[test]
    fn every_refusal_of_an_address_names_a_way_out() {
        assert_eq!(
            message("127.0.0.1:80", Errno::ADDRINUSE),
            "127.0.0.1:80 is in use by nginx (process 7); end that program or choose another \
             address with --listen"
        );
        let low = message("[::]:80", Errno::ACCESS);
        assert!(low.starts_with("port 80 needs root or CAP_NET_BIND_SERVICE (setcap"), "{low}");
        let other = message("8.8.8.8:80", Errno::ADDRNOTAVAIL);
        assert!(other.starts_with("8.8.8.8 is not an address of this machine;"), "{other}");
        assert!(other.ends_with(", or :80 for all of them"), "{other}");
        let unix = message("unix:/x", Errno::ACCESS);
        assert_eq!(unix, "unix:/x cannot be listened on; choose another address with --listen");
    }

    #[test]
    fn the_holder_of_a_port_is_found_by_its_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let program = holder(port).expect("our own");
        assert!(program.ends_with(&format!("(process {})", std::process::id())), "{program}");
        drop(listener);
    }
}
