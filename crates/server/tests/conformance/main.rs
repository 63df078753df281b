//! Byte-level conformance of the server to RFC 9110 and RFC 9112: the table, its judge, and its
//! runners.
//!
//! | file | one job |
//! |---|---|
//! | `cases` | the table: what is sent, and what must come |
//! | `verdict` | takes a stream of answers apart and judges it |
//! | `model` | the rules alone, without a server: the table can be kept |
//! | `stage` | the folder, configurations, the ways to send a request |
//! | `lockstep` | the table on sessions without a kernel and on every driver; ten thousand requests at once |

mod cases;
mod lockstep;
mod model;
mod stage;
mod verdict;

use std::collections::HashSet;

use cases::{After, ETAG, Setup, cases};

/// The table may grow, not shrink unnoticed.
const CASES_MIN: usize = 380;

/// Requests up to here are also sent byte by byte; longer ones in larger pieces, for the time.
const SMALL_BYTES: usize = 2048;

#[test]
fn the_table_is_whole() {
    let cases = cases();
    let names: HashSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "names are unique");
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());
    for setup in [Setup::Reply, Setup::Echo, Setup::Files] {
        assert!(cases.iter().filter(|case| case.setup == setup).count() >= 20, "{setup:?}");
    }
}

#[test]
fn every_case_names_its_rule_and_can_be_judged() {
    for case in cases() {
        let is_rule = case.rfc.split_once(' ').is_some_and(|(number, section)| {
            number.parse::<u16>().is_ok()
                && section.split('.').all(|part| part.parse::<u8>().is_ok())
        });
        assert!(is_rule, "{}: {:?}", case.name, case.rfc);
        assert_eq!(case.answers.is_empty(), case.after == After::Waiting, "{}", case.name);
        assert!(!case.request.is_empty(), "{}", case.name);
        let has_etag = cases::find(&case.request, ETAG.as_bytes()).is_some();
        assert!(!has_etag || case.setup == Setup::Files, "{}", case.name);
        let waits = case.answers.iter().any(|answer| answer.interim == cases::Interim::Must);
        assert_eq!(waits, !case.after_continue.is_empty(), "{}", case.name);
    }
}

#[test]
fn the_rules_alone_keep_the_table() {
    let mut faults = Vec::new();
    for case in cases() {
        let small_piece = if case.request.len() <= SMALL_BYTES { 1 } else { 997 };
        for piece in [case.request.len(), small_piece] {
            let (came, has_ended) = model::exchange(&case, piece);
            if let Err(fault) = verdict::judge(&case, &came, has_ended) {
                faults.push(format!(
                    "{} (RFC {}), in pieces of {piece}: {fault}",
                    case.name, case.rfc
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
