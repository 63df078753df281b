//! Which server ids the entries of a configuration may have: bounds, and no id twice.
//!
//! Pure; the reader of configurations calls it when all entries are read.

use super::settings::Entry;

/// Server ids are below this, unless NDRX_SRVMAX says otherwise.
pub(super) const END: u32 = 10_000;
/// The highest NDRX_SRVMAX: ids and their sums stay far within 32 bits.
const END_MAX: u32 = 1 << 24;
/// Most copies in one pool: bounds what the manager keeps for them.
const WORKERS_MAX: u64 = 4_000;

/// What ids are below, by NDRX_SRVMAX in the environment that `lookup` knows.
///
/// # Errors
/// That it is no such number.
pub(super) fn end(lookup: &dyn Fn(&str) -> Option<String>) -> Result<u32, String> {
    let text = lookup("NDRX_SRVMAX").unwrap_or_default();
    match text.trim().parse() {
        _ if text.trim().is_empty() => Ok(END),
        Ok(end @ 2..=END_MAX) => Ok(end),
        _ => {
            let wanted = format!("give a whole number from 2 to {END_MAX}");
            Err(format!("NDRX_SRVMAX=`{}` in the environment: {wanted}", text.escape_debug()))
        }
    }
}

/// What is wrong with the ids of `entries`: lines with sentences.
pub(super) fn mistakes(entries: &[Entry], end: u32) -> Vec<(usize, String)> {
    let all: u64 = entries.iter().map(|entry| u64::from(entry.max)).sum();
    if all > WORKERS_MAX {
        return vec![(0, format!("{all} copies in all; a pool has at most {WORKERS_MAX}"))];
    }
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let last = entry.ids().end - 1;
        if last >= end {
            let what = format!(
                "{}: its last id, {last}, is not below {end}; lower <srvid> or <max>, or raise \
                 NDRX_SRVMAX",
                entry.program
            );
            found.push((entry.line, what));
        }
        let overlaps = |other: &&Entry| {
            let (own, other) = (entry.ids(), other.ids());
            other.start < own.end && own.start < other.end
        };
        if let Some(other) = entries[..index].iter().find(overlaps) {
            found.push((entry.line, overlap(entry, other)));
        }
    }
    found
}

fn overlap(entry: &Entry, other: &Entry) -> String {
    let (own, others) = (entry.ids(), other.ids());
    format!(
        "{}: ids {} to {} overlap those of {} in line {} ({} to {}); give <srvid>{}</srvid> or higher",
        entry.program,
        own.start,
        own.end - 1,
        other.program,
        other.line,
        others.start,
        others.end - 1,
        others.end
    )
}
