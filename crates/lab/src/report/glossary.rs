//! The words of a report, for a reader who has read nothing else: as hints where they stand, and as a list at the end, as
//! paper and phones have no pointer. `docs/glossary.md` has more.

use pollux_engine::Driver;
use pollux_report::markup::{card, escape, section};

use super::in_order;
use crate::record::Record;

/// A word and what it means.
type Word = (&'static str, &'static str);

/// What every report speaks of.
const WORDS: [Word; 17] = [
    ("A/A", "the baseline a second time, as an arm of its own: whatever it differs by is chance"),
    ("arm", "one of the things that are compared"),
    ("baseline", "the arm that the others are divided by"),
    (
        "interval",
        "[low, high] behind a figure: of a hundred such intervals 95 hold the true value. One of a ratio that leaves 1 out shows \
         which arm costs less",
    ),
    (
        "set",
        "fresh processes of all arms, measured beside each other once; intervals are over sets",
    ),
    ("round", "one turn of every arm of a set, in random order"),
    ("turn", "some milliseconds in which one arm works alone while the others sleep"),
    ("block", "one run of every arm, one after the other, where arms do not take turns"),
    (
        "decided",
        "the interval leaves 1 out also after the correction for all rows of the run, or lies within the smallest effect \
         that counts. Undecided means that nothing was shown, not that arms are equal",
    ),
    ("ns, µs", "CPU time in billionths and millionths of a second, for one event, request or call"),
    ("sys/ev", "system calls for each event, request or call"),
    ("ev/wait", "events that one wait returned"),
    ("compl/enter", "completions for each enter of a ring"),
    (
        "completions/enter",
        "completions for each system call of a ring: how much work each of its turns finds",
    ),
    (
        "buffers/event",
        "receives of a ring for each event; each took one of the buffers that its connections share, or a piece of one",
    ),
    (
        "starved/event",
        "receives that ended because all shared buffers were in use, and were armed again",
    ),
    (
        "memory/connection",
        "bytes by which the measured processes grew (anonymous memory) from their first answer to the counted turns, for each connection",
    ),
];

/// Ways of waiting and the control, by the names of their arms.
const WAYS: [Word; 3] = [
    (
        "exclusive",
        "each worker waits with an epoll of its own and EPOLLEXCLUSIVE: an event wakes few of them",
    ),
    ("block", "each worker blocks in the call that takes the next message; no poller"),
    ("A/A", WORDS[0].1),
];

/// Mechanisms and ways of waiting, by the names of their arms.
fn arms() -> impl Iterator<Item = Word> {
    Driver::ALL.map(|driver| (driver.name(), driver.about())).into_iter().chain(WAYS)
}

/// What is meant by the name of an arm.
pub(super) fn arm(name: &str) -> &'static str {
    arms().find(|(known, _)| *known == name).map_or("", |(_, meaning)| meaning)
}

/// What is meant by a heading or label, where one of its words is one of ours.
pub(super) fn heading(words: &str) -> &'static str {
    let is_in = |word: &str| words.split([' ', ',']).any(|part| part.trim_end_matches('s') == word);
    let known = |(word, _): &&Word| is_in(word);
    if words.starts_with("ns/") || words.starts_with("µs/") {
        meaning("ns, µs")
    } else if words.starts_with("vs ") {
        meaning("interval")
    } else if words == "verdict" {
        meaning("decided")
    } else {
        WORDS.iter().find(known).map_or("", |(_, meaning)| meaning)
    }
}

fn meaning(word: &str) -> &'static str {
    WORDS.iter().find(|(known, _)| *known == word).map_or("", |(_, meaning)| meaning)
}

/// The words that this record needs.
pub(super) fn words(record: &Record) -> Vec<Word> {
    let names = in_order(record.results.iter().map(|row| row.arm.as_str()));
    let is_there = |(name, _): &Word| names.contains(name) && *name != WORDS[0].0;
    WORDS.iter().copied().chain(arms().filter(is_there)).collect()
}

pub(super) fn html(record: &Record) -> String {
    let word =
        |(word, meaning): &Word| format!("<dt>{}</dt><dd>{}</dd>", escape(word), escape(meaning));
    let words: String = words(record).iter().map(word).collect();
    section("words", "the words of this page", &card(&format!("<dl class=\"facts\">{words}</dl>")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_and_labels_find_their_word() {
        for (words, part) in [
            ("A/A control", "the baseline a second time"),
            ("sets", "fresh processes"),
            ("µs/request", "CPU time in"),
            ("vs epoll", "[low, high]"),
            ("widest interval", "[low, high]"),
            ("verdict", "the interval leaves 1 out"),
        ] {
            assert!(heading(words).starts_with(part), "{words}: {}", heading(words));
        }
        assert_eq!([heading("stolen CPU"), heading("notes"), arm("mine")], ["", "", ""]);
        assert!(arm("uring-poll").contains("readiness"));
    }
}
