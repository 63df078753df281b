//! Settings of what is answered: the answer itself, and what is added to all of them.

use std::path::PathBuf;

use pollux_settings::{Keys, Kind, Table, bytes, path, table};

use super::RULES_MAX;
use crate::answer_rules::AnswerRule;
use crate::rules::FieldRule;

/// Largest fixed reply.
const REPLY_BYTES_MAX: u64 = 1 << 30;
/// Most bytes that rules and CORS add to a head, which fit into each call.
pub(crate) const FIELDS_BYTES_MAX: usize = 8 * 1024;
/// Most origins: each request with one is compared with all.
const ORIGINS_MAX: usize = 64;
/// Most pages for errors; there are fewer codes that the server answers with.
const ERROR_PAGES_MAX: usize = 64;
/// What most keys of an answer are for.
const FILES: &str = "it is about files";

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
    /// Whether folders without `index.html` are listed.
    pub has_listing: bool,
    /// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are served for FILE.
    pub has_precompressed: bool,
    /// Whether text is compressed that does not lie ready so.
    pub compresses: bool,
    /// The file below the folder that is sent for pages that there are none of.
    pub spa: Option<PathBuf>,
}

table! { keys, key;
    /// The keys of all three kinds of answers.
    struct Asked {
        /// Serve the files below this folder
        dir: Option<PathBuf> =
            key.positional().excludes(&["reply", "echo"]).optional(&path().called("DIR")),
        /// Answer every request with a fixed body of this size
        reply: Option<u64> = key.excludes(&["echo"]).optional(&bytes(0..=REPLY_BYTES_MAX)),
        /// With --reply: head and body in two writes and no TCP_NODELAY, to show what that costs
        split_reply: bool = key.needs("reply", "it is about the fixed reply").switch(),
        /// Answer every request with its own body
        echo: bool = key.switch(),
        /// List folders that have no index.html
        listing: bool = key.needs("dir", FILES).switch(),
        /// Serve FILE.br, FILE.zst or FILE.gz to clients that take it
        precompressed: bool = key.needs("dir", FILES).switch(),
        /// Send this file below the folder, with 200, where there is none and the last part of the
        /// path has no dot: for applications in one page
        spa: Option<PathBuf> = key.needs("dir", FILES).optional(&path()),
        /// Compress text for clients that take it (br, zstd, gzip), where no form of it lies ready;
        /// what was made is kept in memory
        compress: bool = key.needs("dir", FILES).switch(),
    }
    => exactly_one
}

impl Asked {
    fn exactly_one(self, keys: &mut Keys<'_>) -> Self {
        if !["dir", "reply", "echo"].iter().any(|name| keys.has(name)) {
            keys.refuse("nothing to answer with; expected a folder, --reply SIZE or --echo");
        }
        self
    }
}

/// What is answered, with what belongs to it.
pub(super) fn answer(keys: &mut Keys<'_>) -> Answer {
    let Asked { dir, reply, split_reply, listing, precompressed, spa, compress, .. } =
        Asked::read(keys);
    match (dir, reply) {
        (Some(root), _) => Answer::Files(Files {
            root,
            has_listing: listing,
            has_precompressed: precompressed,
            compresses: compress,
            spa,
        }),
        (None, Some(len_bytes)) => Answer::Reply { len_bytes, is_split: split_reply },
        (None, None) => Answer::Echo,
    }
}

table! { keys, key;
    /// What is added to answers of every kind.
    #[derive(Clone, PartialEq, Eq, Default, Debug)]
    pub struct Extras {
        /// What is done to a field of answers: set, add or remove; before that, if it is not for all of
        /// them, the path, where a / at the end stands for all below it and * for anything, and the
        /// status: '/assets/ 2xx set Cache-Control: max-age=31536000'. Repeatable, in this order
        pub fields as "response_field": Vec<AnswerRule> =
            key.list(&answer_rule(), 0..=RULES_MAX),
        /// Let pages of this origin read the answers, such as https://app.example; repeatable; * for
        /// all
        pub cors: Vec<String> = key.needs("dir", FILES).list(&origin(), 0..=ORIGINS_MAX),
        /// Send this file with answers of this status; it is read at the start and at each reload;
        /// repeatable
        pub error_pages as "error_page": Vec<(u16, PathBuf)> =
            key.list(&error_page(), 0..=ERROR_PAGES_MAX),
    }
    => small_enough
}

impl Extras {
    fn small_enough(self, keys: &mut Keys<'_>) -> Self {
        if self.cors.len() > 1 && self.cors.iter().any(|origin| origin == "*") {
            keys.note("cors", "* stands for all; expected it alone");
        }
        let fields = self.fields.iter().map(|rule| rule.to_string().len());
        let bytes: usize = fields.chain(self.cors.iter().map(String::len)).sum();
        let most = FIELDS_BYTES_MAX / 2;
        if bytes > most {
            keys.note("response_field", format!("{bytes} bytes in all; expected at most {most}"));
        }
        self
    }
}

/// `set NAME: VALUE` and the like.
pub(crate) fn field_rule() -> Kind<FieldRule> {
    let accepts = "\"set NAME: VALUE\", \"add NAME: VALUE\" or \"remove NAME\"";
    Kind::new("RULE", accepts, FieldRule::read)
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
