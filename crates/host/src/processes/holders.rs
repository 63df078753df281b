//! Who listens at an address already, for the message of a start that can't and the warning of a check: found in
//! `/proc`, so that nothing is connected to. What this user may not see has no holder.

use std::collections::HashSet;
use std::fs::read_to_string;
use std::path::Path;

use super::listeners::{listening, sockets_of};
use super::proc::pids;

/// Whether a holder is this process.
#[must_use]
pub fn is_this(holder: &str) -> bool {
    holder.ends_with(&in_list(std::process::id()))
}

/// The program that listens on this port, as `name (process 12)`, this one only where no other does; none where that
/// is not ours to know (`proc_pid_net(5)`, `proc_pid_fd(5)`).
#[must_use]
pub fn of_port(port: u16) -> Option<String> {
    of_sockets(&listening().filter(|(at, _)| at.port() == port).map(|(_, inode)| inode).collect())
}

/// The program that listens on the unix socket of this path, as [`of_port`].
#[must_use]
pub fn of_path(path: &Path) -> Option<String> {
    let wanted = path.canonicalize().ok()?;
    let is_it = |bound: &str| Path::new(bound).canonicalize().is_ok_and(|bound| bound == wanted);
    let table = read_to_string("/proc/net/unix").ok()?;
    // Two sockets had the name where the first one was unlinked: the youngest has it now.
    let last = listening_at(&table).filter(|(_, bound)| is_it(bound)).last();
    of_sockets(&last.into_iter().map(|(inode, _)| inode).collect())
}

fn of_sockets(sockets: &HashSet<u64>) -> Option<String> {
    if sockets.is_empty() {
        return None;
    }
    let mut own = None;
    for pid in pids() {
        if sockets_of(pid).is_some_and(|held| !held.is_disjoint(sockets)) {
            let Ok(name) = read_to_string(format!("/proc/{pid}/comm")) else { continue };
            let program = format!("{}{}", name.trim(), in_list(pid));
            if pid != std::process::id() {
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

/// The inodes of the sockets that listen in the table of `/proc/net/unix`, with the path that each was bound to.
fn listening_at(table: &str) -> impl Iterator<Item = (u64, &str)> {
    /// __SO_ACCEPTCON, as the table has it.
    const LISTENS: &str = "00010000";
    table.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let flags = words.nth(3)?;
        let inode = words.nth(2)?;
        // The rest of the line: a path may have spaces.
        let path = line.split_once(inode)?.1.trim_start();
        (flags == LISTENS && path.starts_with('/')).then_some((inode.parse().ok()?, path))
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
        assert_eq!(listening_at(table).collect::<Vec<_>>(), [(4711, "/run/a b.sock")]);
    }
}
