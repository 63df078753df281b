//! Lines of JSON with the process that started this one: orders on standard input, what came of them on standard output. When
//! standard input ends, that process is gone.

use std::io::{BufRead as _, Write as _};

use pollux_settings::command::output::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// Lines of standard input that wait.
const LINES_MAX: usize = 16;

/// Prints a line.
pub(crate) fn tell(told: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(told).expect("plain data");
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(Failure::failed)
}

/// The lines of standard input, read by a thread that ends with it, or with a line that can't be read.
pub(crate) fn lines<T: DeserializeOwned + Send + 'static>() -> Result<mpsc::Receiver<T>, Failure> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let thread = std::thread::Builder::new().name("agent-orders".to_owned());
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let Ok(order) = serde_json::from_str(&line) else { break };
            if sender.blocking_send(order).is_err() {
                break;
            }
        }
    };
    thread.spawn(read).map_err(Failure::failed)?;
    Ok(receiver)
}
