//! What all answers of a server have in common: the first fields of their heads, and its own pages for
//! errors.
//!
//! Everything that writes the head of an answer begins it here. The settings are read once, when the
//! loops start and at each reload; nothing here reads a file while it serves.

use std::path::Path;

use pollux_http::{DateCache, Fields, HeadWriter, Status};

use crate::ServerError;
use crate::config::Extras;
use crate::files::content_type;
use crate::rules::FieldRule;

/// What this server calls itself.
const SERVER: &[u8] = b"pollux";
/// Most bytes that rules and CORS add to a head: each call has to have room for it.
pub(crate) const FIELDS_BYTES_MAX: usize = 8 * 1024;
/// Largest page of the user's own: each call has to have room for it behind its head.
const PAGE_BYTES_MAX: u64 = 32 * 1024;

/// What every answer begins with.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) date: DateCache,
    /// Empty for none.
    server: Box<[u8]>,
    /// Most servers have none of the rest.
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    fields: Vec<(String, String)>,
    origins: Vec<String>,
    pages: Vec<(u16, Page)>,
}

/// A page of the user's own.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) content_type: &'static str,
    pub(crate) text: Box<[u8]>,
}

impl Default for Common {
    fn default() -> Self {
        Self { date: DateCache::new(0), server: SERVER.into(), more: None }
    }
}

impl Common {
    /// What the settings say; reads the pages.
    ///
    /// # Errors
    /// A page can't be read, or is too large.
    pub(crate) fn new(extras: &Extras) -> Result<Self, ServerError> {
        let mut common = Self::default();
        let mut more = More { origins: extras.cors.clone(), ..More::default() };
        for rule in &extras.fields {
            match rule {
                FieldRule::Set(name, value) if name.eq_ignore_ascii_case("server") => {
                    common.server = value.as_bytes().into();
                }
                FieldRule::Remove(_) => common.server = Box::default(),
                FieldRule::Set(name, value) => {
                    more.fields.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
                    more.fields.push((name.clone(), value.clone()));
                }
                FieldRule::Add(name, value) => more.fields.push((name.clone(), value.clone())),
            }
        }
        for (status, path) in &extras.error_pages {
            more.pages.push((*status, Page::read(path)?));
        }
        if !(more.fields.is_empty() && more.origins.is_empty() && more.pages.is_empty()) {
            common.more = Some(Box::new(more));
        }
        Ok(common)
    }

    /// Begins the head of an answer.
    #[inline]
    pub(crate) fn begin<'o>(
        &self,
        out: &'o mut [u8],
        status: Status,
        origin: Option<u8>,
    ) -> HeadWriter<'o> {
        let mut head = HeadWriter::new(out, status);
        if !self.server.is_empty() {
            head.field("Server", &self.server);
        }
        head.date(&self.date);
        if let Some(more) = &self.more {
            more.write(&mut head, origin);
        }
        head
    }

    /// Room that an answer of any status needs beside its usual fields.
    pub(crate) fn room_bytes(&self) -> usize {
        let pages = self.more.iter().flat_map(|more| &more.pages);
        FIELDS_BYTES_MAX + pages.map(|(_, page)| page.text.len()).max().unwrap_or(0)
    }

    /// The page of the user's own for this status.
    pub(crate) fn page(&self, status: Status) -> Option<&Page> {
        let pages = &self.more.as_ref()?.pages;
        pages.iter().find(|(code, _)| *code == status.code()).map(|(_, page)| page)
    }

    /// The place of the origin of the page that asks, where it may see the answer.
    #[inline]
    pub(crate) fn origin(&self, fields: Fields<'_>) -> Option<u8> {
        let origins = &self.more.as_ref()?.origins;
        let asks = (!origins.is_empty()).then(|| fields.first("origin")).flatten()?;
        let place = origins.iter().position(|one| one == "*" || one.as_bytes() == asks)?;
        u8::try_from(place).ok()
    }
}

impl More {
    fn write(&self, head: &mut HeadWriter<'_>, origin: Option<u8>) {
        for (name, value) in &self.fields {
            head.field(name, value.as_bytes());
        }
        if let Some(origin) = origin {
            head.field("Access-Control-Allow-Origin", self.origins[usize::from(origin)].as_bytes());
            head.field("Access-Control-Expose-Headers", b"*");
        }
        // What caches keep for one origin is not for another one (Fetch, 3.2.7).
        if self.origins.first().is_some_and(|first| first != "*") {
            head.field("Vary", b"Origin");
        }
    }
}

impl Page {
    fn read(path: &Path) -> Result<Self, ServerError> {
        let failed = |cause| ServerError::Page { path: path.to_owned(), cause };
        let len = std::fs::metadata(path).map_err(failed)?.len();
        if len > PAGE_BYTES_MAX {
            let why = format!("{len} bytes; expected at most {PAGE_BYTES_MAX}");
            return Err(failed(std::io::Error::other(why)));
        }
        let text = std::fs::read(path).map_err(failed)?;
        Ok(Self {
            content_type: content_type(path.as_os_str().as_encoded_bytes()),
            text: text.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(extras: &Extras, origin: &[u8]) -> String {
        let common = Common::new(extras).expect("no page");
        let request = [b"GET / HTTP/1.1\r\nHost: a\r\nOrigin: ", origin, b"\r\n\r\n"].concat();
        let parsed = pollux_http::Request::parse(&request, &pollux_http::Limits::default());
        let pollux_http::Parsed::Complete(request, _) = parsed else { panic!("a request") };
        let mut out = [0; 1024];
        let origin = common.origin(request.fields);
        let mut head = common.begin(&mut out, Status::OK, origin);
        let len = head.finish().expect("room");
        let text = String::from_utf8(out[..len].to_vec()).expect("text");
        text.lines().filter(|line| !line.starts_with("Date")).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn rules_are_applied_in_their_order_and_the_server_can_be_silent() {
        let rules = ["set X-A: 1", "add X-A: 2", "set x-b: 3", "set X-B: 4"];
        let of = |rules: &[&str]| {
            let fields = rules.iter().map(|rule| FieldRule::read(rule).expect("right")).collect();
            Extras { fields, ..Extras::default() }
        };
        let extras = of(&rules);
        assert_eq!(head(&extras, b"x"), "HTTP/1.1 200 OK|Server: pollux|X-A: 1|X-A: 2|X-B: 4|");
        assert_eq!(head(&of(&["remove server"]), b"x"), "HTTP/1.1 200 OK|");
    }

    #[test]
    fn only_origins_that_are_named_may_see_an_answer_and_caches_are_told() {
        let named =
            Extras { cors: vec!["https://a".into(), "https://b:1".into()], ..Extras::default() };
        assert_eq!(
            head(&named, b"https://b:1"),
            "HTTP/1.1 200 OK|Server: pollux|Access-Control-Allow-Origin: https://b:1|\
             Access-Control-Expose-Headers: *|Vary: Origin|"
        );
        for other in [&b"https://b"[..], b"https://a.evil", b"null", b"*"] {
            assert_eq!(head(&named, other), "HTTP/1.1 200 OK|Server: pollux|Vary: Origin|");
        }
        let all = Extras { cors: vec!["*".into()], ..Extras::default() };
        assert!(head(&all, b"https://any").contains("|Access-Control-Allow-Origin: *|"));
        assert!(!head(&all, b"https://any").contains("Vary"));
    }
}
