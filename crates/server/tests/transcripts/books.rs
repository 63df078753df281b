//! What a program counted, beside the lines of its access log: each request stands in both, once.
//!
//! | of the lines | is counted in |
//! |---|---|
//! | the statuses that were sent, by class | `answers` |
//! | the statuses of refusals | `refused` |
//! | the faults of requests that had an exchange | `faults` |

use pollux_server::stats::LoopSource;
use pollux_server::{Fault, REFUSALS};
use serde_json::Value;

/// The counts of a program that has ended.
pub(crate) struct Books {
    pub(crate) sources: Vec<LoopSource>,
}

impl Books {
    /// Compares them with the lines, which are JSON.
    ///
    /// # Errors
    /// The counts that differ.
    pub(crate) fn compare(&self, lines: &str) -> Result<(), String> {
        let lines: Vec<Line> = lines.lines().map(Line::of).collect();
        let mut wrong = Vec::new();
        let mut same = |what: String, counted: u64, expected: usize| {
            if counted != expected as u64 {
                wrong.push(format!("{what}: {counted} counted, {expected} in the log"));
            }
        };
        let sum = |of: &dyn Fn(&LoopSource) -> u64| self.sources.iter().map(of).sum::<u64>();
        for class in 0..5 {
            let expected = lines.iter().filter(|line| line.class() == Some(class)).count();
            let counted = sum(&|source| source.server.answers(class));
            same(format!("answers {}xx", class + 1), counted, expected);
        }
        for (place, status) in REFUSALS.into_iter().map(Some).chain([None]).enumerate() {
            let is_of = |line: &&Line| line.is_refusal() && line.refused() == status;
            let expected = lines.iter().filter(is_of).count();
            let counted = sum(&|source| source.server.refused(place));
            same(format!("refused {status:?}"), counted, expected);
        }
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            let is_of = |line: &&Line| line.failed.as_deref() == Some(fault.name());
            let expected = lines.iter().filter(is_of).count();
            let of =
                |source: &LoopSource| source.proxy.as_ref().map_or(0, |proxy| proxy.faults(place));
            same(format!("the fault {}", fault.name()), sum(&of), expected);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

/// What a line says.
struct Line {
    status: u16,
    /// Whether a backend has begun the answer.
    is_of_backend: bool,
    end: Option<String>,
    /// The end of a request that had an exchange and failed.
    failed: Option<String>,
}

impl Line {
    fn of(text: &str) -> Self {
        let line: Value = serde_json::from_str(text).expect("an object of JSON");
        let word = |key: &str| line[key].as_str().map(str::to_owned);
        Self {
            status: line["status"].as_u64().and_then(|it| u16::try_from(it).ok()).expect("one"),
            is_of_backend: !line["first_byte_us"].is_null(),
            end: word("end"),
            failed: word("end").filter(|_| !line["state"].is_null()),
        }
    }

    /// The class of a status that was sent; none was where the client was gone, or the server ended before.
    fn class(&self) -> Option<usize> {
        let was_sent = self.status != 0 && self.status != 499;
        was_sent.then(|| usize::from(self.status / 100) - 1)
    }

    /// Whether the status refuses what the client did: one of the server's own for a request that is not sound, late, or
    /// not for it. A file that is not there is an answer.
    fn is_refusal(&self) -> bool {
        let is_of_client =
            self.end.as_ref().is_none_or(|end| end.starts_with("client_") && end != "client_gone");
        let is_error = self.status >= 400 && !matches!(self.status, 403 | 404 | 412 | 416 | 499);
        is_error && is_of_client && !self.is_of_backend
    }

    fn refused(&self) -> Option<u16> {
        Some(self.status).filter(|status| REFUSALS.contains(status))
    }
}
