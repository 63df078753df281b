//! A program that was unpacked is started as its user would start it, asked, and ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::size_of;
use crate::install::output;
use crate::installed::at;

/// How long a program may take to say where it listens, and to answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// What `--version` says, which has to name `commit`.
pub(super) fn version(program: &mut Command, commit: &str) -> Result<String, String> {
    let said = output(program.arg("--version"))?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if said.contains(commit) { Ok(said) } else { Err(format!("\"{said}\" does not name {commit}")) }
}

/// Starts a server, whose arguments are complete, asks it for `/` and ends it. Gives the answer's body.
pub(super) fn answer(server: &mut Command) -> Result<String, String> {
    let started = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let name = server.get_program().to_string_lossy().into_owned();
    let mut child = started.map_err(|error| format!("{name}: {error}"))?;
    let answer = ask(&mut child);
    // It is asked no more; a server that ended by itself was reported above.
    let _ = child.kill();
    let _ = child.wait();
    answer
}

fn ask(child: &mut Child) -> Result<String, String> {
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe"));
    let address = loop {
        let mut line = String::new();
        let read = lines.read_line(&mut line).map_err(|error| error.to_string())?;
        if let Some((_, rest)) = line.split_once("http://") {
            break rest.split([' ', '/', '\n']).next().unwrap_or_default().to_owned();
        }
        said += &line;
        if read == 0 {
            return Err(format!("the server ended instead of listening: {said}"));
        }
    };
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let mut peer = TcpStream::connect(&address).map_err(failed)?;
    peer.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
    peer.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").map_err(failed)?;
    let mut answer = String::new();
    peer.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    if head.starts_with("HTTP/1.1 200 ") {
        Ok(body.to_owned())
    } else {
        Err(format!("{address} answered \"{head}\""))
    }
}

/// A command in a root folder of its own, as a user without rights; root is needed for that.
pub(super) fn inside(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("chroot");
    command.arg("--userspec=65534:65534").arg(root).args(words);
    command
}

/// Tries a static program in a folder that has nothing else.
pub(super) fn alone(program: &Path, commit: &str) -> Result<String, String> {
    let root = tempfile::tempdir().map_err(|error| error.to_string())?;
    let inner = root.path().join("pollux");
    std::fs::copy(program, &inner).map_err(at(&inner))?;
    // The folder's maker alone may enter it otherwise.
    open_to_all(root.path())?;
    let version = version(&mut inside(root.path(), &["/pollux"]), commit)?;
    let serve = ["/pollux", "serve", "--reply", "5", "--listen", "127.0.0.1:0"];
    let body = answer(&mut inside(root.path(), &serve))?;
    Ok(format!(
        "static  {}, {}: {version}; alone in a root folder it served {} bytes",
        program.display(),
        size_of(program)?,
        body.len()
    ))
}

pub(super) fn open_to_all(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, all).map_err(at(folder))
}
