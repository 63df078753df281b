//! Servers of users: a command line that the lab starts, or a process that runs already.
//!
//! Nothing is known of them but where they have to listen. What the words in braces of a command
//! line stand for is said in [`PLACES`]; beside them each axis of the experiment is one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use pollux_processes::{Tree, listener};

use super::config::Certificate;
use super::load::Load;
use super::start::Ends;
use crate::axis::Axes;
use crate::error::MeasureError;

/// What a command line may have in braces beside the names of axes: the port to listen at, on
/// 127.0.0.1; the same with the address before it; the CPU that the server is kept on; a folder with
/// a body of `reply_bytes` at the path that is asked for; the PEM files of a certificate and its key, where
/// clients speak TLS.
pub(crate) const PLACES: [&str; 6] = ["port", "address", "cpus", "root", "cert", "key"];

/// The same of a proxy, with the address of the server behind it and the port of that.
pub(crate) const PLACES_OF_PROXY: [&str; 8] =
    ["port", "address", "cpus", "root", "cert", "key", "backend", "backend_port"];

/// A command line, ready to be started.
pub(super) struct CommandLine {
    /// The program's name, for messages.
    pub(super) name: String,
    /// The command.
    pub(super) command: Command,
}

impl CommandLine {
    /// Of `line`, for a server that has to listen at its end on `cpu`; files for it are written
    /// into `folder`.
    pub(super) fn new(
        line: &str,
        axes: &Axes,
        load: &Load,
        ends: Ends,
        cpu: usize,
        folder: &Path,
    ) -> Result<Self, MeasureError> {
        let setup = |cause| MeasureError::Setup { what: format!("the files for {line}"), cause };
        let root = write_site(folder, load).map_err(setup)?;
        let mut values = axes.texts();
        let mut stands_for = |name: &str, value: String| values.insert(name.to_owned(), value);
        stands_for("port", ends.listen.port().to_string());
        stands_for("address", ends.listen.to_string());
        stands_for("cpus", cpu.to_string());
        stands_for("root", root);
        if let Some(Certificate { cert, key, .. }) = &load.certificate {
            stands_for("cert", cert.display().to_string());
            stands_for("key", key.display().to_string());
        }
        if let Some(behind) = ends.behind {
            stands_for("backend", behind.to_string());
            stands_for("backend_port", behind.port().to_string());
        }
        let words =
            shell_words::split(line).map_err(|error| MeasureError::Spec(error.to_string()))?;
        let words: Vec<String> = words.iter().map(|word| filled(word, &values)).collect();
        let (program, arguments) =
            words.split_first().ok_or_else(|| MeasureError::Spec("an empty command".into()))?;
        let mut command = Command::new(program);
        command.args(arguments);
        let name = program.rsplit('/').next().unwrap_or(program).to_owned();
        Ok(Self { name, command })
    }
}

/// What is wrong with a server that is said to run already, if so.
pub(crate) fn running_fault(pid: u32, address: SocketAddr) -> Option<String> {
    let Some(tree) = Tree::of(&[pid]).ok().filter(Tree::is_alive) else {
        return Some(format!("process {pid} does not run; expected the number of one that does"));
    };
    let pids = tree.pids();
    (listener::is_of(&pids, address) == Some(false)).then(|| other_servers_at(address, &pids))
}

/// That another process than these listens at `address`, and what is expected.
pub(super) fn other_servers_at(address: SocketAddr, pids: &[u32]) -> String {
    let elsewhere = elsewhere(pids, ", which listens at ");
    match listener::owner(address) {
        Some((owner, name)) => format!(
            "at {address} listens another process, {owner} ({name}), and not this server{elsewhere}; \
             expected its own address, or pid:{owner}@{address}"
        ),
        None => format!(
            "at {address} listens another process, and not this server{elsewhere}; expected its own \
             address"
        ),
    }
}

/// Where these processes listen, behind `before`; empty where they don't or nobody knows.
pub(super) fn elsewhere(pids: &[u32], before: &str) -> String {
    let addresses = listener::addresses_of(pids);
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    if addresses.is_empty() { String::new() } else { format!("{before}{}", addresses.join(", ")) }
}

fn filled(word: &str, values: &BTreeMap<String, String>) -> String {
    values
        .iter()
        .fold(word.to_owned(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
}

/// A folder to serve, with the body at the load's path; a folder's path has it in `index.html`.
pub(super) fn write_site(folder: &Path, load: &Load) -> std::io::Result<String> {
    let root = folder.join("root");
    let path = load.path.split('?').next().unwrap_or_default().trim_start_matches('/');
    let is_inside = !path.split('/').any(|part| part == "..");
    let mut file = root.join(if is_inside { path } else { "" });
    if path.is_empty() || path.ends_with('/') || !is_inside {
        file.push("index.html");
    }
    std::fs::create_dir_all(file.parent().unwrap_or(&root))?;
    std::fs::write(file, "x".repeat(load.reply_bytes))?;
    Ok(root.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_braces_are_filled_in_after_the_line_is_split() {
        let values = [("port", "8080"), ("root", "/a folder")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let values = BTreeMap::from(values);
        let words =
            shell_words::split("./mine --on=:{port} '{root} {port}' '{\"a\": 1}'").expect("words");
        let words: Vec<String> = words.iter().map(|word| filled(word, &values)).collect();
        assert_eq!(words, ["./mine", "--on=:8080", "/a folder 8080", "{\"a\": 1}"]);
    }

    #[test]
    fn a_running_server_that_is_gone_or_another_one_is_distinguished() {
        use std::net::{Ipv4Addr, TcpListener};
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let this = std::process::id();
        assert_eq!(running_fault(this, address), None);
        let mut other = Command::new("sleep").arg("600").spawn().expect("a process");
        let told = running_fault(other.id(), address).expect("it does not listen");
        let expected = format!("at {address} listens another process, {this} (");
        assert!(told.starts_with(&expected), "{told}");
        assert!(told.ends_with(&format!("or pid:{this}@{address}")), "{told}");
        other.kill().expect("ours");
        other.wait().expect("ours");
        let told = running_fault(other.id(), address).expect("it is gone");
        assert!(told.starts_with(&format!("process {} does not run;", other.id())), "{told}");
    }
}
