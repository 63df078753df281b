//! Settings of what is answered: the answer itself, and what is added to all of them.

use std::path::PathBuf;

use pollux_settings::{Keys, Kind, bytes, path};

use super::RULES_MAX;
use crate::answer_rules::AnswerRule;
use crate::common_fields::FIELDS_BYTES_MAX;
use crate::config::{Answer, Extras, Files};
use crate::rules::FieldRule;

/// Largest fixed reply.
const REPLY_BYTES_MAX: u64 = 1 << 30;
/// Most origins: each request with one is compared with all.
const ORIGINS_MAX: usize = 64;
/// Most pages for errors; there are fewer codes that the server answers with.
const ERROR_PAGES_MAX: usize = 64;

/// Exactly one of the three kinds, with what belongs to it.
pub(super) fn answer(keys: &mut Keys<'_>) -> Option<Answer> {
    let (files, fixed) = ("it is about files", "it is about the fixed reply");
    keys.heading("Answer");
    let dir = keys
        .key("dir", "Serve the files below this folder")
        .positional()
        .excludes(&["reply", "echo"])
        .optional(&path().called("DIR"));
    let reply = keys
        .key("reply", "Answer every request with a fixed body of this size")
        .excludes(&["echo"])
        .optional(&bytes(0..=REPLY_BYTES_MAX));
    let is_split = keys
        .key(
            "split_reply",
            "With --reply: head and body in two writes and no TCP_NODELAY, to show what that costs",
        )
        .needs("reply", fixed)
        .switch();
    let is_echo = keys.key("echo", "Answer every request with its own body").switch();
    let has_listing =
        keys.key("listing", "List folders that have no index.html").needs("dir", files).switch();
    let has_precompressed = keys
        .key("precompressed", "Serve FILE.br, FILE.zst or FILE.gz to clients that take it")
        .needs("dir", files)
        .switch();
    let spa = keys
        .key(
            "spa",
            "Send this file below the folder, with 200, where there is none and the last part of the path \
             has no dot: for applications in one page",
        )
        .needs("dir", files)
        .optional(&path());
    let compresses = keys
        .key(
            "compress",
            "Compress text for clients that take it (br, zstd, gzip), where no form of it lies ready; what \
             was made is kept in memory",
        )
        .needs("dir", files)
        .switch();
    if !["dir", "reply", "echo"].iter().any(|name| keys.has(name)) {
        keys.refuse("nothing to answer with; expected a folder, --reply SIZE or --echo");
    }
    let (has_listing, has_precompressed, spa) = (has_listing?, has_precompressed?, spa?);
    let compresses = compresses?;
    match (dir?, reply?, is_echo?) {
        (Some(root), ..) => {
            Some(Answer::Files(Files { root, has_listing, has_precompressed, compresses, spa }))
        }
        (None, Some(len_bytes), _) => Some(Answer::Reply { len_bytes, is_split: is_split? }),
        (None, None, true) => Some(Answer::Echo),
        (None, None, false) => None,
    }
}

/// What is added to answers of every kind.
pub(super) fn extras(keys: &mut Keys<'_>) -> Option<Extras> {
    let fields = keys
        .key(
            "response_field",
            "What is done to a field of answers: set, add or remove; before that, if it is not for all of \
             them, the path, where a / at the end stands for all below it and * for anything, and the \
             status: '/assets/ 2xx set Cache-Control: max-age=31536000'. Repeatable, in this order",
        )
        .list(&answer_rule(), 0..=RULES_MAX);
    let cors = keys
        .key(
            "cors",
            "Let pages of this origin read the answers, such as https://app.example; repeatable; * for all",
        )
        .needs("dir", "it is about files")
        .list(&origin(), 0..=ORIGINS_MAX);
    let error_pages = keys
        .key(
            "error_page",
            "Send this file with answers of this status; it is read at the start and at each reload; \
             repeatable",
        )
        .list(&error_page(), 0..=ERROR_PAGES_MAX);
    let (fields, cors, error_pages) = (fields?, cors?, error_pages?);
    if cors.len() > 1 && cors.iter().any(|origin| origin == "*") {
        keys.note("cors", "* stands for all; expected it alone");
    }
    let added = |rule: &AnswerRule| rule.to_string().len();
    let bytes = fields.iter().map(added).chain(cors.iter().map(String::len)).sum::<usize>();
    if bytes > FIELDS_BYTES_MAX / 2 {
        let most = FIELDS_BYTES_MAX / 2;
        keys.note("response_field", format!("{bytes} bytes in all; expected at most {most}"));
    }
    Some(Extras { fields, cors, error_pages })
}

/// `set NAME: VALUE` and the like.
pub(crate) fn field_rule(read: fn(&str) -> Result<FieldRule, String>) -> Kind<FieldRule> {
    let accepts = "\"set NAME: VALUE\", \"add NAME: VALUE\" or \"remove NAME\"";
    Kind::new("RULE", accepts, read)
}

/// A rule for answers of the server's own making.
fn answer_rule() -> Kind<AnswerRule> {
    let accepts = "\"set NAME: VALUE\", \"add NAME: VALUE\" or \"remove NAME\", with a path and a \
                   status before it where it is not for all answers";
    Kind::new("RULE", accepts, |text| {
        let rule = AnswerRule::read(text)?;
        is_free(&rule.rule).map(|()| rule)
    })
}

/// Whether a field is the user's to say: what the server says of a file stays true.
fn is_free(rule: &FieldRule) -> Result<(), String> {
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
fn error_page() -> Kind<(u16, PathBuf)> {
    Kind::new(
        "'STATUS FILE'",
        "a status from 400 to 599 and a file, such as \"404 404.html\"",
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
