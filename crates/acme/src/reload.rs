//! The server is asked to read its certificates again: by its control socket, which says how that went, or by SIGHUP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use pollux_server::stats::RELOADED;
use rustix::process::{Pid, Signal, kill_process};

use crate::wanted::Wanted;

/// For a reload, which reads all settings anew.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Between two questions while the server puts one worker in the place of another.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Has the server read its certificates; how that went.
///
/// # Errors
/// It runs, and has not read them.
pub(crate) fn reload(wanted: &Wanted) -> Result<String, String> {
    match (&wanted.control, &wanted.pid_file) {
        (Some(control), _) => by_control(control),
        (None, Some(file)) => by_signal(file),
        (None, None) => Ok("the server is not reloaded: it has neither control nor pid_file in its settings; reload it (SIGHUP)".to_owned()),
    }
}

fn by_control(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let end = Instant::now() + RELOAD_TIMEOUT;
    while Instant::now() < end {
        match ask(path).map(|answer| answer.trim().to_owned()) {
            Ok(answer) if answer == RELOADED => return Ok(answer),
            // A worker that has ended: the next one takes the question.
            Ok(answer) if answer.is_empty() => std::thread::sleep(AGAIN_AFTER),
            Ok(answer) => {
                return Err(format!("the server at unix:{shown} was not reloaded: {answer}"));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(format!(
                    "no server runs at unix:{shown}: it reads the certificates when it starts"
                ));
            }
            Err(error) => {
                return Err(format!("the server at unix:{shown} was not reloaded: {error}"));
            }
        }
    }
    Err(format!("the server at unix:{shown} says nothing of the reload; its log may say more"))
}

/// Its answer, empty where it has ended before one.
fn ask(path: &Path) -> io::Result<String> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let mut answer = String::new();
    let asked = socket.write_all(b"reload\n").and_then(|()| {
        let mut reader = BufReader::new(&socket).take(ANSWER_BYTES_MAX);
        // An answer ends with an empty line.
        while !answer.ends_with("\n\n") && reader.read_line(&mut answer)? > 0 {}
        Ok(())
    });
    match asked {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ) =>
        {
            Ok(String::new())
        }
        Err(error) => Err(error),
        Ok(()) => Ok(answer),
    }
}

fn by_signal(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(format!(
                "no server runs: there is no {shown}; it reads the certificates when it starts"
            ));
        }
        Err(error) => return Err(format!("{shown}: {error}")),
    };
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| {
        format!("{shown} has not the number of a process; expected that of the server")
    })?;
    kill_process(pid, Signal::HUP).map_err(|error| {
        format!("process {} of {shown} did not get SIGHUP: {error}", pid.as_raw_nonzero())
    })?;
    Ok("reload asked for (SIGHUP); the log of the server says how it went".to_owned())
}
