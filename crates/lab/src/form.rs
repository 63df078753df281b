//! The forms of a bare server on io_uring or epoll that an arm can ask for by words: `raw-uring:none+single`.
//!
//! A form is words of one table joined by `+`, at most one for each option, in any order; its name has them in the order
//! of the table, and those left out that say what would be so anyway. A word that is unknown and words that exclude each
//! other are refused here, with the reason, before anything runs; what a kernel does not grant is for the program to
//! find (`experiments/http/forms.c`), which says which form it is. None stands for another.

use std::fmt;
use std::str::FromStr;

use pollux_settings::did_you_mean;

/// Most KiB of all of them.
const BUFFERS_KIB_MAX: u32 = 64 << 10;
/// Most of them, and most KiB of one.
const BUFFERS_MAX: u32 = 32_768;
const BUFFER_KIB_MAX: u32 = 1024;

/// What is asked through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Uring,
    Epoll,
}

impl Family {
    const EACH: [(&str, Self); 2] = [("raw-uring", Self::Uring), ("raw-epoll", Self::Epoll)];
}

/// What a word chooses; a form has one word for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    SetUp,
    Receive,
    Trigger,
    Descriptors,
    Send,
    Wait,
    BusyPoll,
    Anyway,
}

/// A word of a form.
struct Word {
    text: &'static str,
    families: &'static [Family],
    choice: Choice,
    /// Whether it says what is so anyway.
    is_default: bool,
    about: &'static str,
}

const fn word(
    text: &'static str,
    families: &'static [Family],
    choice: Choice,
    about: &'static str,
) -> Word {
    Word { text, families, choice, is_default: false, about }
}

const fn default(
    text: &'static str,
    families: &'static [Family],
    choice: Choice,
    about: &'static str,
) -> Word {
    Word { is_default: true, ..word(text, families, choice, about) }
}

const RING: &[Family] = &[Family::Uring];
const EPOLL: &[Family] = &[Family::Epoll];
const EITHER: &[Family] = &[Family::Uring, Family::Epoll];

/// All of them, in the order of names.
const WORDS: [Word; 20] = [
    default("defer", RING, Choice::SetUp, "completion work runs in the wait of the one thread"),
    word(
        "coop",
        RING,
        Choice::SetUp,
        "completion work runs at the next system call, without an interrupt",
    ),
    word("none", RING, Choice::SetUp, "completion work interrupts the thread"),
    word("sqpoll", RING, Choice::SetUp, "a thread of the kernel submits"),
    default(
        "multi",
        RING,
        Choice::Receive,
        "one request receives until it ends, into shared buffers",
    ),
    word("single", RING, Choice::Receive, "a request for each receive, into shared buffers"),
    word("poll-first", RING, Choice::Receive, "the same without a try before the wait"),
    word(
        "incremental",
        RING,
        Choice::Receive,
        "multi, where receives share a large buffer piece by piece",
    ),
    word("bundle", RING, Choice::Receive, "multi, where one completion stands for several buffers"),
    word(
        "own",
        RING,
        Choice::Receive,
        "a request for each receive, into a buffer of the connection",
    ),
    word(
        "epoll-wait",
        RING,
        Choice::Receive,
        "the ring waits for an epoll instance; reads and writes are calls",
    ),
    default("edge", EPOLL, Choice::Trigger, "reads until a read is short"),
    word("level", EPOLL, Choice::Trigger, "one read for each event"),
    default("plain", RING, Choice::Descriptors, "connections are descriptors"),
    word("direct", RING, Choice::Descriptors, "connections are slots of the ring's own table"),
    default("copy", RING, Choice::Send, "sends copy"),
    word("zc", RING, Choice::Send, "sends without a copy"),
    word("min-wait", RING, Choice::Wait, "waits for 8 completions or 50 µs, then for one"),
    word(
        "busy-poll",
        EITHER,
        Choice::BusyPoll,
        "polls the queue of the network card for 50 µs before it sleeps",
    ),
    word("anyway", EITHER, Choice::Anyway, "measures zc or busy-poll where they can do nothing"),
];

/// Words that exclude each other for a reason of their own, before the general one.
const EXCLUDE: [(&str, &str, &str); 3] = [
    (
        "defer",
        "sqpoll",
        "the kernel's own thread does the work, so it can't wait for this one (EINVAL)",
    ),
    (
        "coop",
        "sqpoll",
        "the kernel's own thread does the work, so it can't wait for this one (EINVAL)",
    ),
    (
        "incremental",
        "bundle",
        "together they lose the order of bytes (liburing issues 1320 and 1423)",
    ),
];

/// Words by which others call forms that the program does not have: what they begin with, and why.
const DROPPED: [(&str, &str); 6] = [
    (
        "legacy",
        "buffers that are provided by requests (Linux 5.7) take one for each that goes back, 1.3 times epoll, and since \
         5.19 every kernel has a ring of them; expected multi or single",
    ),
    (
        "zc-fixed",
        "registered memory saves a zero-copy send the look-up of its pages, and loopback copies them all the same; \
         expected zc",
    ),
    (
        "zcrx",
        "a receive without a copy (Linux 6.15) needs CAP_NET_ADMIN and a queue of its own on a network card that \
         splits headers, which loopback has not; measure it on that card by a server of yours, --arm NAME=COMMAND",
    ),
    (
        "sqpoll-",
        "a thread that spins for longer than a tick takes the time of the next arm's turn, so it spins for the least \
         that it takes; expected sqpoll",
    ),
    (
        "wait",
        "waits for other numbers and times lost in a closed loop as this one does (1.03 to 1.09 at 64 connections, \
         twice the cost at 4); expected min-wait",
    ),
    ("napi", "loopback has no queue to poll, whatever asks for it; expected busy-poll"),
];

/// Receive buffers of a form: how many, and how many KiB each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Buffers {
    count: u32,
    kib: u32,
}

impl Buffers {
    /// What the program has for a kind of receive where no word says otherwise.
    fn of(receive: &str) -> Self {
        let (count, kib) = match receive {
            "incremental" => (4, 256),
            "bundle" => (256, 4),
            "own" | "epoll-wait" | "epoll" => (1, 64),
            _ => (64, 16),
        };
        Self { count, kib }
    }

    /// A word such as `64x16k`; none where it is none of that kind.
    fn read(text: &str) -> Option<Result<Self, String>> {
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let read = || {
            let (count, kib) = text.strip_suffix('k')?.split_once('x')?;
            Some(Self { count: count.parse().ok()?, kib: kib.parse().ok()? })
        };
        Some(read().ok_or_else(|| {
            format!(
                "\"{text}\" is not a size of buffers; expected how many, x, and how many KiB each with a k, as in \
                 64x16k"
            )
        }))
    }

    fn fault(self, is_one: bool) -> Option<String> {
        let Self { count, kib } = self;
        if !(1..=BUFFER_KIB_MAX).contains(&kib) {
            return Some(format!("buffers of {kib} KiB; expected 1 to {BUFFER_KIB_MAX}"));
        }
        if is_one && count != 1 {
            return Some(format!("reads go into one buffer; expected 1x{kib}k"));
        }
        if !count.is_power_of_two() || count > BUFFERS_MAX {
            return Some(format!(
                "{count} buffers; a ring of them has a power of two, expected 1, 2, 4 and so on up to \
                 {BUFFERS_MAX}"
            ));
        }
        let all = u64::from(count) * u64::from(kib);
        (all > u64::from(BUFFERS_KIB_MAX)).then(|| {
            let all = all >> 10;
            let most = BUFFERS_KIB_MAX >> 10;
            format!("{all} MiB in all; expected at most {most}, fewer buffers or smaller ones")
        })
    }
}

impl fmt::Display for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}k", self.count, self.kib)
    }
}

/// A form, as it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    family: Family,
    /// A bit for each word of the table that is not a default.
    words: u32,
    /// Where they are not the usual ones.
    buffers: Option<Buffers>,
}

impl Form {
    /// Whether `text` asks for one, right or wrong.
    pub(crate) fn is_meant_by(text: &str) -> bool {
        let family = text.split_once(':').map(|(family, _)| family);
        Family::EACH.iter().any(|(name, _)| family == Some(name))
    }

    /// Whether its requests go through a ring.
    pub(crate) const fn is_on_ring(self) -> bool {
        matches!(self.family, Family::Uring)
    }

    /// Whether its receives take buffers that all connections share.
    pub(crate) fn receives_into_shared(self) -> bool {
        let has = |text: &str| {
            WORDS
                .iter()
                .position(|word| word.text == text)
                .is_some_and(|at| self.words >> at & 1 == 1)
        };
        self.is_on_ring() && !has("own") && !has("epoll-wait")
    }

    /// Its words, as the program that runs says them.
    pub(crate) fn words(self) -> String {
        let words = WORDS.iter().enumerate().filter(|(at, _)| self.words >> at & 1 == 1);
        let rank = |choice: Choice| choice as u8 > Choice::Trigger as u8;
        let (behind, before): (Vec<_>, Vec<_>) = words.partition(|(_, word)| rank(word.choice));
        let text = |(_, word): &(usize, &Word)| word.text.to_owned();
        let mut texts: Vec<String> = before.iter().map(text).collect();
        texts.extend(self.buffers.map(|buffers| buffers.to_string()));
        texts.extend(behind.iter().map(text));
        if texts.is_empty() {
            // A form of nothing but defaults is called by the first of them.
            texts.push(self.first_default().to_owned());
        }
        texts.join("+")
    }

    fn first_default(self) -> &'static str {
        let own = WORDS.iter().find(|word| word.is_default && word.families.contains(&self.family));
        own.map_or("", |word| word.text)
    }

    fn of(family: Family, text: &str) -> Result<Self, String> {
        let mut chosen: Vec<&Word> = Vec::new();
        let mut buffers = None;
        for text in text.split('+') {
            if let Some(read) = Buffers::read(text) {
                if buffers.replace(read?).is_some() {
                    return Err(format!("\"{text}\": buffers are given twice; expected once"));
                }
                continue;
            }
            let of_family = || WORDS.iter().filter(|word| word.families.contains(&family));
            let Some(word) = of_family().find(|word| word.text == text) else {
                if let Some((_, why)) = DROPPED.iter().find(|(word, _)| text.starts_with(word)) {
                    return Err(format!("\"{text}\" is not a word of a form: {why}"));
                }
                let names: Vec<&str> = of_family().map(|word| word.text).collect();
                let suggestion = did_you_mean(text, names.iter().copied());
                let names = names.join(", ");
                return Err(format!(
                    "\"{text}\" is not a word of a form; expected words of {names}, or buffers such as \
                     64x16k, joined by +{suggestion}"
                ));
            };
            if let Some(why) = chosen.iter().find_map(|other| exclusion(other, word)) {
                return Err(why);
            }
            chosen.push(word);
        }
        let receive = chosen.iter().find(|word| word.choice == Choice::Receive);
        let receive = receive.map_or("multi", |word| word.text);
        let (kind, is_one) = match family {
            Family::Epoll => ("epoll", true),
            Family::Uring => (receive, matches!(receive, "own" | "epoll-wait")),
        };
        if let Some((buffers, fault)) =
            buffers.and_then(|buffers: Buffers| Some((buffers, buffers.fault(is_one)?)))
        {
            return Err(format!("\"{buffers}\": {fault}"));
        }
        let has =
            |choice: Choice| chosen.iter().any(|word| word.choice == choice && !word.is_default);
        let has_idle = chosen.iter().any(|word| word.text == "zc") || has(Choice::BusyPoll);
        if has(Choice::Anyway) && !has_idle {
            return Err("\"anyway\" is for zc and busy-poll; expected one of them".to_owned());
        }
        let bit = |word: &&Word| WORDS.iter().position(|one| one.text == word.text);
        let bits = chosen.iter().filter(|word| !word.is_default).filter_map(bit);
        let words = bits.fold(0, |words, at| words | 1 << at);
        let buffers = buffers.filter(|buffers| *buffers != Buffers::of(kind));
        Ok(Self { family, words, buffers })
    }
}

/// Why two words can't stand in one form, if so.
fn exclusion(one: &Word, other: &Word) -> Option<String> {
    let pair = [one.text, other.text];
    if one.text == other.text {
        return Some(format!("\"{}\" is given twice; expected once", one.text));
    }
    let why = EXCLUDE.iter().find(|(a, b, _)| pair.contains(a) && pair.contains(b));
    if let Some((a, b, why)) = why {
        return Some(format!("{a} and {b} exclude each other: {why}"));
    }
    if one.choice == other.choice {
        let [a, b] = pair;
        return Some(format!("{a} and {b} exclude each other: {}, or {}", one.about, other.about));
    }
    let is_of_calls = |choice| matches!(choice, Choice::Descriptors | Choice::Send | Choice::Wait);
    let wait = pair.contains(&"epoll-wait");
    let calls = [one, other].into_iter().find(|word| is_of_calls(word.choice) && !word.is_default);
    calls.filter(|_| wait).map(|word| {
        format!(
            "epoll-wait and {} exclude each other: the ring waits for an epoll instance, and reads and \
             writes are calls",
            word.text
        )
    })
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, words) = text.split_once(':').unwrap_or((text, ""));
        let family = Family::EACH.iter().find(|(family, _)| *family == name);
        let (_, family) = family.ok_or_else(|| format!("\"{name}\" has no forms"))?;
        Self::of(*family, words)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = Family::EACH.iter().find(|(_, family)| *family == self.family);
        write!(f, "{}:{}", family.map_or("", |(name, _)| name), self.words())
    }
}

/// In job files and orders by its name.
pub(crate) mod by_name {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Form;

    pub(crate) fn serialize<S: Serializer>(form: &Form, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(form)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Form, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Some of each option.
    pub(crate) const SOME: [&str; 8] = [
        "raw-uring:defer",
        "raw-uring:none+single",
        "raw-uring:coop+16x64k",
        "raw-uring:incremental+direct",
        "raw-uring:zc+anyway",
        "raw-uring:sqpoll+epoll-wait",
        "raw-epoll:edge",
        "raw-epoll:level+1x16k",
    ];

    #[test]
    fn a_form_is_called_by_its_words_in_one_order_without_what_is_so_anyway() {
        for name in SOME {
            assert_eq!(name.parse::<Form>().expect(name).to_string(), name);
        }
        for (asked, name) in [
            ("raw-uring:single+plain+none", "raw-uring:none+single"),
            ("raw-uring:multi+plain+copy", "raw-uring:defer"),
            ("raw-uring:64x16k+coop", "raw-uring:coop"),
            ("raw-uring:direct+4x256k+incremental", "raw-uring:incremental+direct"),
            ("raw-uring:min-wait+own+direct+1x4k", "raw-uring:own+1x4k+direct+min-wait"),
            ("raw-epoll:edge+1x64k", "raw-epoll:edge"),
        ] {
            assert_eq!(asked.parse::<Form>().expect(asked).to_string(), name);
        }
        assert!(Form::is_meant_by("raw-uring:") && !Form::is_meant_by("raw-uring"));
    }

    #[test]
    fn what_no_kernel_can_do_is_refused_with_the_reason() {
        for (asked, reason) in [
            (
                "raw-uring:defer+sqpoll",
                "defer and sqpoll exclude each other: the kernel's own thread",
            ),
            ("raw-uring:bundle+incremental", "they lose the order of bytes"),
            ("raw-uring:coop+none", "coop and none exclude each other"),
            ("raw-uring:single+multi", "single and multi exclude each other"),
            ("raw-uring:plain+direct", "plain and direct exclude each other"),
            ("raw-uring:epoll-wait+zc", "reads and writes are calls"),
            ("raw-uring:coop+coop", "\"coop\" is given twice"),
            ("raw-uring:", "\"\" is not a word of a form; expected words of defer, coop"),
            ("raw-uring:multy", "did you mean"),
            ("raw-uring:level", "\"level\" is not a word of a form"),
            (
                "raw-epoll:direct",
                "\"direct\" is not a word of a form; expected words of edge, level",
            ),
            (
                "raw-uring:3x4k",
                "\"3x4k\": 3 buffers; a ring of them has a power of two, expected 1, 2, 4",
            ),
            ("raw-uring:65536x1k", "65536 buffers; a ring of them"),
            ("raw-uring:99999999x4k", "99999999 buffers"),
            ("raw-uring:64x0k", "buffers of 0 KiB; expected 1 to 1024"),
            ("raw-uring:64x2000k", "buffers of 2000 KiB; expected 1 to 1024"),
            ("raw-uring:64x16", "\"64x16\" is not a size of buffers; expected how many, x, and"),
            ("raw-uring:64x16m", "as in 64x16k"),
            ("raw-uring:32768x1024k", "32768 MiB in all; expected at most 64"),
            ("raw-uring:own+64x4k", "expected 1x4k"),
            ("raw-uring:64x4k+16x4k", "buffers are given twice"),
            ("raw-uring:single+anyway", "is for zc and busy-poll"),
            ("raw-poll:edge", "\"raw-poll\" has no forms"),
            (
                "raw-uring:legacy",
                "\"legacy\" is not a word of a form: buffers that are provided by requests",
            ),
            ("raw-uring:none+zc-fixed", "loopback copies them all the same; expected zc"),
            (
                "raw-uring:sqpoll-50",
                "\"sqpoll-50\" is not a word of a form: a thread that spins for longer",
            ),
            ("raw-uring:wait8-20", "as this one does"),
            ("raw-uring:zcrx", "needs CAP_NET_ADMIN"),
        ] {
            let said = asked.parse::<Form>().expect_err(asked);
            assert!(said.contains(reason), "{asked}: {said}");
        }
    }
}
