//! Pollux as the load generator: its command and what it prints.
//!
//! Its latencies count from the moment a request is sent to the last byte of its answer, each
//! request for itself also where they are pipelined, and all are recorded.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use super::generator::Counted;
use super::load::Load;
use crate::generate::Generated;

/// The command; it ends by itself after `time`.
pub(super) fn command(load: &Load, to: SocketAddr, time: Duration) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", "generate", "--to", &to.to_string()]);
    command.args(["--connections", &load.connections.to_string()]);
    command.args(["--pipeline", &load.pipeline.to_string()]);
    command.args(["--reply", &load.reply_bytes.to_string()]);
    command.args(["--time-ms", &time.as_millis().to_string()]);
    if !load.is_kept_alive {
        command.arg("--close");
    }
    Ok(command)
}

/// What it printed.
pub(super) fn read(text: &str) -> Option<Counted> {
    let generated = Generated::read(text)?;
    Some(Counted {
        requests: generated.requests,
        elapsed: Duration::try_from_secs_f64(generated.elapsed_s).ok()?,
        failed: generated.failed,
        figures: generated.latencies,
        findings: generated.findings,
        described: Some(format!("pollux {} ({})", env!("CARGO_PKG_VERSION"), generated.driver)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read() {
        let text = r#"{"driver":"uring","requests":90000,"elapsed_s":1.5,"failed":2,
            "latencies":{"latency_p50_us":410.0,"latency_p999_us":2000.5},
            "findings":{"generator-bound":"a thread of it worked 99 % of the time"}}"#;
        let counted = read(text).expect("the figures");
        assert_eq!((counted.requests, counted.failed), (90_000, 2));
        assert_eq!(counted.elapsed, Duration::from_millis(1500));
        assert_eq!(counted.figures["latency_p999_us"], 2000.5);
        assert!(counted.findings.contains_key("generator-bound"));
        assert!(counted.described.is_some_and(|text| text.ends_with("(uring)")));
        assert_eq!(read("pollux: connect failed\n"), None);
    }
}
