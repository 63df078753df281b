//! Settings of what is answered: the answer itself, what is added to all of them, and the rules for fields
//! of the server's own answers.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use pollux_http::FilePath;
use pollux_settings::{Keys, Kind, Table, bytes, integer, path, table};

use crate::config::RULES_MAX;
use crate::fields::FieldRule;

/// Largest fixed reply.
pub(super) const REPLY_BYTES_MAX: u64 = 1 << 30;
/// Most bytes that rules and CORS add to a head, which fit into each call.
pub(crate) const FIELDS_BYTES_MAX: usize = 8 * 1024;
/// Most origins: each request with one is compared with all.
const ORIGINS_MAX: usize = 64;
/// Largest bound of a listing: the loop waits while it is made.
pub(super) const LISTING_MAX: u64 = 1_000_000;
/// Most pages for errors; there are fewer codes that the server answers with.
pub(super) const ERROR_PAGES_MAX: usize = 64;
/// Most bytes of rules for answers, as they are written.
pub(super) const RULES_BYTES_MAX: usize = FIELDS_BYTES_MAX / 2;
/// What most keys of an answer are for.
pub(super) const FILES: &str = "applies only to files";

/// What requests are answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A fixed body of so many bytes.
    Reply {
        /// Size of the body.
        len_bytes: u64,
        /// Whether head and body are two writes, and TCP_NODELAY is not set: a classic mistake,
        /// kept for showing what it costs.
        is_split: bool,
    },
    /// The body of the request.
    Echo,
    /// The files below a folder.
    Files(Files),
}

/// How the files below a folder are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The folder.
    pub root: PathBuf,
    /// Most names in the listing of a folder without `index.html`; none without listings.
    pub listing_max: Option<usize>,
    /// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are served for FILE.
    pub has_precompressed: bool,
    /// Whether text is compressed that does not lie ready so.
    pub compresses: bool,
    /// The file below the folder that is sent for pages that there are none of.
    pub spa: Option<PathBuf>,
    /// Whether they are answers to challenges of authorities (RFC 8555 8.3): short, and with names that are tokens.
    pub are_challenges: bool,
}

impl Files {
    /// The answers to challenges in this folder.
    pub(crate) fn of_challenges(folder: &Path) -> Self {
        Self {
            root: folder.to_owned(),
            listing_max: None,
            has_precompressed: false,
            compresses: false,
            spa: None,
            are_challenges: true,
        }
    }
}

table! { keys, key;
    /// The keys of all three kinds of answers.
    struct AnswerKeys {
        /// Serve the files below this folder
        dir: Option<PathBuf> =
            key.positional().excludes(&["reply", "echo"]).optional(&path().called("DIR")),
        /// Answer every request with a fixed body of this size
        reply: Option<u64> = key.excludes(&["echo"]).optional(&bytes(0..=REPLY_BYTES_MAX)),
        /// With --reply: head and body in two writes and no TCP_NODELAY, to show what that costs
        split_reply: bool = key.needs("reply", "applies only to a fixed reply").switch(),
        /// Answer every request with its own body
        echo: bool = key.switch(),
        /// List folders that have no index.html
        listing: bool = key.needs("dir", FILES).switch(),
        /// Most names of a listing; of a folder with more the first ones by their order are shown, which is
        /// said at the top
        listing_max: usize = key
            .needs("listing", "applies only to listings")
            .default("10000")
            .one(&integer(1..=LISTING_MAX)),
        /// Serve FILE.br, FILE.zst or FILE.gz to clients that take it
        precompressed: bool = key.needs("dir", FILES).switch(),
        /// Send this file below the folder, with 200, where there is none and the last part of the
        /// path has no dot: for applications in one page
        spa: Option<PathBuf> = key.needs("dir", FILES).optional(&path().called("FILE")),
        /// Compress text for clients that take it (br, zstd, gzip), where no form of it lies ready;
        /// what was made is kept in memory
        compress: bool = key.needs("dir", FILES).switch(),
    }
    => exactly_one
}

impl AnswerKeys {
    fn exactly_one(self, keys: &mut Keys<'_>) -> Self {
        if !["dir", "reply", "echo"].iter().any(|name| keys.has(name)) {
            keys.refuse("nothing to answer with; expected a folder, --reply SIZE, --echo, or backends in a file ([[server]])");
        }
        self
    }
}

/// What is answered, with what belongs to it.
pub(super) fn answer(keys: &mut Keys<'_>) -> Answer {
    let keys = AnswerKeys::read(keys);
    let AnswerKeys { dir, reply, split_reply, listing, listing_max, .. } = keys;
    let AnswerKeys { precompressed, spa, compress, .. } = keys;
    match (dir, reply) {
        (Some(root), _) => Answer::Files(Files {
            root,
            listing_max: listing.then_some(listing_max),
            has_precompressed: precompressed,
            compresses: compress,
            spa,
            are_challenges: false,
        }),
        (None, Some(len_bytes)) => Answer::Reply { len_bytes, is_split: split_reply },
        (None, None) => Answer::Echo,
    }
}

table! { keys, key;
    /// What is added to answers of every kind.
    #[derive(Clone, PartialEq, Eq, Default, Debug)]
    pub struct Extras {
        /// Change a response field: [PATH] [STATUS] set|add NAME: VALUE, or remove NAME. PATH limits the
        /// rule to a path, to all below a folder (ends with /) or to a pattern with *, STATUS to
        /// statuses (404 or 2xx,304): '/assets/ 2xx set Cache-Control: max-age=31536000'. Repeatable,
        /// applied in order
        pub fields as "response_field": Vec<AnswerRule> =
            key.list(&answer_rule(), 0..=RULES_MAX),
        /// Let pages of this origin read the answers, such as https://app.example; repeatable; * for
        /// all
        pub cors: Vec<String> = key.needs("dir", FILES).list(&origin(), 0..=ORIGINS_MAX),
        /// Send this file, below the folder where files are served, with answers of this status; it is read
        /// at the start and at each reload; repeatable
        pub error_pages as "error_page": Vec<(u16, PathBuf)> =
            key.list(&error_page(), 0..=ERROR_PAGES_MAX),
    }
    => small_enough
}

impl Extras {
    fn small_enough(self, keys: &mut Keys<'_>) -> Self {
        if self.cors.len() > 1 && self.cors.iter().any(|origin| origin == "*") {
            keys.note("cors", "* means all; expected it alone");
        }
        fit_into_a_head(keys, &self.fields, self.cors.iter().map(String::len).sum());
        self
    }
}

/// Refuses rules that are longer than fits into an answer of pollux's own, beside so many bytes.
pub(super) fn fit_into_a_head(keys: &mut Keys<'_>, rules: &[AnswerRule], others_bytes: usize) {
    let bytes = others_bytes + rules_bytes(rules);
    let most = RULES_BYTES_MAX;
    if bytes > most {
        keys.note("response_field", format!("{bytes} bytes in all; expected at most {most}"));
    }
}

/// Bytes of rules, as they are written.
pub(super) fn rules_bytes(rules: &[AnswerRule]) -> usize {
    rules.iter().map(|rule| rule.to_string().len()).sum()
}

/// A rule for requests, which may set Host too.
pub(crate) fn request_rule() -> Kind<FieldRule> {
    let accepts = "\"set NAME: VALUE\", \"add NAME: VALUE\" or \"remove NAME\"";
    Kind::new("RULE", accepts, FieldRule::read_for_requests)
}

/// A rule for answers of the server's own making.
fn answer_rule() -> Kind<AnswerRule> {
    Kind::new("RULE", OF_ANSWERS, |text| {
        let rule = AnswerRule::read(text)?;
        is_free(&rule.rule).map(|()| rule)
    })
}

/// A rule for answers that are passed on, and for those of the proxy's own where they can take it.
pub(super) fn passed_rule() -> Kind<AnswerRule> {
    Kind::new("RULE", OF_ANSWERS, AnswerRule::read)
}

const OF_ANSWERS: &str = "\"set NAME: VALUE\", \"add NAME: VALUE\" or \"remove NAME\", with a path and a status before \
                          it where it is not for all answers";

/// Whether a field is the user's to say: what the server says of a file stays true.
pub(crate) fn is_free(rule: &FieldRule) -> Result<(), String> {
    /// Written by the server from what it sends.
    const OWN: [&str; 12] = [
        "accept-ranges",
        "access-control-allow-origin",
        "access-control-expose-headers",
        "allow",
        "content-encoding",
        "content-range",
        "content-type",
        "etag",
        "last-modified",
        "location",
        "retry-after",
        "vary",
    ];
    let name = rule.name().to_ascii_lowercase();
    let is_vary_added = name == "vary" && matches!(rule, FieldRule::Add(..));
    let is_server = name == "server" && !matches!(rule, FieldRule::Add(..));
    match rule {
        _ if is_vary_added || is_server => Ok(()),
        FieldRule::Remove(_) => Err("only Server can be removed".to_owned()),
        _ if name == "server" => {
            Err("an answer has one Server field; expected set or remove".to_owned())
        }
        _ if OWN.contains(&&*name) => Err(format!("the server writes {name} itself")),
        _ => Ok(()),
    }
}

/// `*` or an origin as browsers send it (RFC 6454 6.2): scheme, host, and a port that is not usual.
fn origin() -> Kind<String> {
    Kind::new("ORIGIN", "* or an origin such as https://app.example", |text| {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b':' | b'[' | b']' | b'_');
        match host {
            Some(host) if !host.is_empty() && host.bytes().all(is_plain) => Ok(text.to_owned()),
            _ if text == "*" => Ok(text.to_owned()),
            Some(_) => {
                Err("an origin is in small letters and ends behind host and port".to_owned())
            }
            None => Err(String::new()),
        }
    })
}

/// `STATUS FILE`.
pub(super) fn error_page() -> Kind<(u16, PathBuf)> {
    Kind::new(
        "'STATUS FILE'",
        "a status from 400 to 599 and a file, both in one pair of quotes, such as \"404 404.html\"",
        |text| {
            let (status, path) = text.split_once(' ').ok_or_else(String::new)?;
            let status: u16 = status.parse().map_err(|_| String::new())?;
            let path = path.trim();
            if !(400..=599).contains(&status) || path.is_empty() {
                return Err(String::new());
            }
            Ok((status, PathBuf::from(path)))
        },
    )
}

/// Statuses that answers have which rules are about: interim ones have no fields.
const STATUSES: RangeInclusive<u16> = 200..=599;

/// A rule, and the answers that it applies to.
///
/// The table of settings reads them, `head/shared_fields.rs` applies them. Which paths match is found out once
/// for each request, as bits in the order of the rules; the status is known only when a head is begun.
///
/// ```text
///  [PATH] [STATUS] set NAME: VALUE      /assets/ 2xx set Cache-Control: max-age=31536000
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnswerRule {
    /// None for every path, and for requests that have none.
    path: Option<Pattern>,
    /// Empty for every status.
    statuses: Vec<RangeInclusive<u16>>,
    /// What is done.
    pub(crate) rule: FieldRule,
}

impl AnswerRule {
    /// Reads `[PATH] [STATUS]` and a rule for a field.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut path = None;
        let mut statuses = Vec::new();
        let mut rest = text.trim_start();
        loop {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            if word.starts_with(['/', '*']) && path.is_none() {
                path = Some(Pattern::read(word)?);
            } else if word.starts_with(|c: char| c.is_ascii_digit()) && statuses.is_empty() {
                statuses = word.split(',').map(status_range).collect::<Result<_, _>>()?;
            } else {
                return Ok(Self { path, statuses, rule: FieldRule::read(rest)? });
            }
            rest = behind.trim_start();
        }
    }

    /// Whether it is about paths.
    pub(crate) fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Whether it applies to this path, as [`decoded`] gives it; none where a request has none.
    pub(crate) fn is_for_path(&self, path: Option<&[u8]>) -> bool {
        let Some(pattern) = &self.path else { return true };
        path.is_some_and(|path| pattern.matches(path))
    }

    /// Whether it applies to answers with this status.
    #[inline]
    pub(crate) fn is_for_status(&self, status: u16) -> bool {
        self.statuses.is_empty() || self.statuses.iter().any(|range| range.contains(&status))
    }
}

impl fmt::Display for AnswerRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Pattern { text, .. }) = &self.path {
            write!(f, "{text} ")?;
        }
        for (number, range) in self.statuses.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}xx", range.start() / 100)?;
            }
        }
        let space = if self.statuses.is_empty() { "" } else { " " };
        write!(f, "{space}{}", self.rule)
    }
}

/// `404` or `4xx`.
pub(super) fn status_range(word: &str) -> Result<RangeInclusive<u16>, String> {
    let range = match word.strip_suffix("xx") {
        Some(class) => class.parse::<u16>().ok().filter(|class| *class < 10).map(|class| {
            let first = class * 100;
            first..=first + 99
        }),
        None => word.parse().ok().map(|status: u16| status..=status),
    };
    let is_one = |range: &RangeInclusive<u16>| STATUSES.contains(range.start());
    range.filter(is_one).ok_or_else(|| {
        format!("\"{word}\" is not a status; expected 200 to 599, 2xx to 5xx, or several: 404,5xx")
    })
}

/// Paths: one, all below a folder (`/assets/`), or those that parts with anything between them make up
/// (`*.css`).
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern {
    /// As it was written.
    text: String,
    /// Decoded; anything may stand between two of them.
    parts: Vec<Vec<u8>>,
}

impl Pattern {
    fn read(text: &str) -> Result<Self, String> {
        let part = |part: &str| {
            unescaped(part).ok_or_else(|| {
                format!("the path {text} has a % without two hex digits; expected %25 for % itself")
            })
        };
        let mut parts = text.split('*').map(part).collect::<Result<Vec<_>, _>>()?;
        if text.ends_with('/') {
            parts.push(Vec::new());
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    fn matches(&self, path: &[u8]) -> bool {
        let [first, others @ ..] = &self.parts[..] else { return false };
        let Some(mut rest) = path.strip_prefix(&first[..]) else { return false };
        let Some((last, middle)) = others.split_last() else { return rest.is_empty() };
        for part in middle {
            let Some(at) = find(rest, part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

/// The first place of a part.
fn find(path: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() { Some(0) } else { path.windows(part.len()).position(|at| at == part) }
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

/// The path of a target as patterns see it: decoded, without `.` and `..`, with a slash behind a folder.
/// None of a target that names no file: whatever its bytes are, they match nothing.
pub(crate) fn decoded<'r>(path: &str, room: &'r mut Vec<u8>) -> Option<&'r [u8]> {
    // One byte more at each end, for the slashes.
    room.resize(path.len() + 2, 0);
    let FilePath { relative, is_directory } = FilePath::decode(path, &mut room[1..]).ok()?;
    let len = relative.len();
    room[0] = b'/';
    if is_directory && len > 0 {
        room[len + 1] = b'/';
        return Some(&room[..len + 2]);
    }
    Some(&room[..len + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> AnswerRule {
        AnswerRule::read(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn rules_are_shown_as_they_are_read() {
        for text in [
            "set X-A: 1",
            "/assets/ 2xx set Cache-Control: max-age=31536000",
            "*.js add X-A: 1",
            "404,5xx set Cache-Control: no-store",
            "/a 200 remove Server",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule(" 404  /a   set X: 1").to_string(), "/a 404 set X: 1");
    }

    #[test]
    fn what_is_wrong_is_reported() {
        for (text, expected) in [
            ("6xx set A: 1", "\"6xx\" is not a status; expected 200 to 599"),
            ("1xx set A: 1", "\"1xx\" is not a status"),
            ("404,4x set A: 1", "\"4x\" is not a status"),
            ("99 set A: 1", "\"99\" is not a status"),
            ("65535xx set A: 1", "\"65535xx\" is not a status"),
            ("/a /b set A: 1", "\"/b\" is not an action"),
            ("404 5xx set A: 1", "\"5xx\" is not an action"),
            ("/a%4 set A: 1", "the path /a%4 has a % without two hex digits"),
            ("assets/ set A: 1", "\"assets/\" is not an action"),
            ("/a", "\"\" is not an action"),
            ("", "\"\" is not an action"),
        ] {
            let why = AnswerRule::read(text).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
    }

    #[test]
    fn paths_match_as_they_are_meant_however_they_are_written() {
        for (pattern, path, matches) in [
            ("/", "/", true),
            ("/", "/any/thing?x", true),
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/ab", false),
            ("/a/", "/a/", true),
            ("/a/", "/a/b/c", true),
            ("/a/", "/a", false),
            ("/a/", "/x/../a/b", true),
            ("/a/", "/%61//b", true),
            ("/a/", "/a/../b", false),
            ("/a%20b", "/a%20b", true),
            ("*.css", "/deep/er.css", true),
            ("*.css", "/er.css.map", false),
            ("/a/*/c", "/a/b/b/c", true),
            ("/a/*/c", "/a/c", false),
            ("/a*a", "/a", false),
            ("/%2A", "/*", true),
            ("/%2A", "/x", false),
            ("*", "/x", true),
            ("*", "/x%2Fy", false),
            ("*", "/../x", false),
        ] {
            let mut room = Vec::new();
            let path_only = path.split('?').next().expect("a part");
            let decoded = decoded(path_only, &mut room);
            let rule = rule(&format!("{pattern} set A: 1"));
            assert_eq!(rule.is_for_path(decoded), matches, "{pattern} {path}");
        }
        assert!(rule("set A: 1").is_for_path(None) && !rule("* set A: 1").is_for_path(None));
    }

    #[test]
    fn statuses_are_single_ones_and_classes() {
        let of = |text: &str, statuses: &[u16]| {
            let rule = rule(text);
            statuses.iter().map(|status| rule.is_for_status(*status)).collect::<Vec<_>>()
        };
        assert_eq!(of("set A: 1", &[200, 404]), [true, true]);
        assert_eq!(
            of("2xx,404 set A: 1", &[200, 206, 304, 404, 403]),
            [true, true, false, true, false]
        );
    }
}
