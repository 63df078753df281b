//! Who listens at an address already, for the message of a start that can't and the warning of a check: found in
//! `/proc`, so that nothing is connected to. What this user may not see has no holder.

use std::fs::{read_dir, read_link, read_to_string};
use std::path::Path;

/// Whether a holder is this process.
pub(super) fn is_this(holder: &str) -> bool {
    holder.ends_with(&in_list(std::process::id()))
}

/// The program that listens on this port, as `name (process 12)`, this one only where no other does; none where that
/// is not ours to know (`proc_pid_net(5)`, `proc_pid_fd(5)`).
pub(super) fn of_port(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| read_to_string(table).ok());
    of_sockets(tables.iter().flatten().flat_map(|table| listening_on(table, port)))
}

/// The program that listens on the unix socket of this path, as [`of_port`].
pub(super) fn of_path(path: &Path) -> Option<String> {
    let wanted = path.canonicalize().ok()?;
    let is_it = |bound: &str| Path::new(bound).canonicalize().is_ok_and(|bound| bound == wanted);
    let table = read_to_string("/proc/net/unix").ok()?;
    // Two sockets had the name where the first one was unlinked: the youngest has it now.
    let last = listening_at(&table).filter(|(_, bound)| is_it(bound)).last();
    of_sockets(last.map(|(inode, _)| inode).into_iter())
}

fn of_sockets<'a>(inodes: impl Iterator<Item = &'a str>) -> Option<String> {
    let sockets: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    if sockets.is_empty() {
        return None;
    }
    let mut own = None;
    for process in read_dir("/proc").ok()?.flatten() {
        let id = process.file_name();
        // Others, as `self`, name a process once more.
        if !id.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(descriptors) = read_dir(process.path().join("fd")) else { continue };
        let mut links = descriptors.flatten().filter_map(|each| read_link(each.path()).ok());
        if links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str())) {
            let Ok(name) = read_to_string(process.path().join("comm")) else { continue };
            let number = id.to_str().and_then(|id| id.parse().ok()).unwrap_or_default();
            let program = format!("{}{}", name.trim(), in_list(number));
            if number != std::process::id() {
                return Some(program);
            }
            own = Some(program);
        }
    }
    own
}

/// How the number of a process stands behind its name.
fn in_list(id: u32) -> String {
    format!(" (process {id})")
}

/// The inodes of the sockets that listen on `port` in a table of `/proc/net/tcp`.
fn listening_on(table: &str, port: u16) -> impl Iterator<Item = &str> {
    /// TCP_LISTEN, as the table has it.
    const LISTENS: &str = "0A";
    let ending = format!(":{port:04X}");
    table.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = words.get(1)?.ends_with(&ending) && *words.get(3)? == LISTENS;
        is_it.then(|| words.get(9).copied())?
    })
}

/// The inodes of the sockets that listen in the table of `/proc/net/unix`, with the path that each was bound to.
fn listening_at(table: &str) -> impl Iterator<Item = (&str, &str)> {
    /// __SO_ACCEPTCON, as the table has it.
    const LISTENS: &str = "00010000";
    table.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (flags, inode) = (words.nth(3)?, words.nth(2)?);
        // The rest of the line: a path may have spaces.
        let path = line.split_once(inode)?.1.trim_start();
        (flags == LISTENS && path.starts_with('/')).then_some((inode, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_found_by_its_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let program = of_port(port).expect("our own");
        assert!(program.ends_with(&format!("(process {})", std::process::id())), "{program}");
        drop(listener);
    }

    #[test]
    fn the_holder_of_a_path_is_found_by_its_socket_and_the_one_before_it_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a socket");
        assert_eq!(of_path(&path), None, "nothing is there");
        let first = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let program = of_path(&path).expect("our own");
        assert!(is_this(&program), "{program}");
        drop(first);
        assert_eq!(of_path(&path), None, "nobody listens");
    }

    #[test]
    fn lines_of_the_table_are_read_to_their_end() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     00000000: 00000002 00000000 00010000 0001 01 4711 /run/a b.sock\n\
                     00000000: 00000003 00000000 00000000 0001 03 4712 /run/a b.sock\n\
                     00000000: 00000002 00000000 00010000 0001 01 4713 @abstract\n\
                     00000000: 00000002 00000000 00010000 0001 01 4714\n";
        assert_eq!(listening_at(table).collect::<Vec<_>>(), [("4711", "/run/a b.sock")]);
    }
}
