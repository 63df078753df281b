//! What all answers of a server have in common: the first fields of their heads, and its own pages for errors.
//!
//! Everything that writes the head of an answer begins it here. The settings are read once, when the
//! loops start and at each reload; nothing here reads a file while it serves.

use std::io;
use std::path::{Path, PathBuf};

use pollux_http::{DateCache, HeadWriter, Request, Status};

use crate::ServerError;
use crate::config::{Extras, FIELDS_BYTES_MAX, ProxyConfig};
use crate::fields::FieldRule;
use crate::head::media_types::content_type;
use crate::head::rules::Rules;
use crate::head::sets::FieldSet;
use crate::ids::FieldSetId;
use crate::route::request_id::{CurrentId, RequestIdConfig};

/// What this server calls itself.
const SERVER: &[u8] = b"pollux";
/// Largest page of the user's own, which fits into each call behind its head.
const PAGE_BYTES_MAX: u64 = 32 * 1024;
/// Which names of pages are right.
const A_PAGE: &str = "expected one that is there: below the folder that is served, without one below the working folder, \
                      or by a path from /";

/// What every answer begins with.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) date: DateCache,
    /// What it was made of, in a proxy.
    set: FieldSetId,
    /// Most servers have none of this.
    more: Option<Box<More>>,
}

/// What the common fields of an answer depend on, beside its status.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FieldContext {
    /// The origin of the page that asks, where the settings allow it: its place among them.
    origin: Option<u8>,
    /// Whose rules these are, in a proxy.
    set: FieldSetId,
    /// The rules that apply to the path, as bits in their order.
    rules: u64,
}

impl FieldContext {
    /// Of a request that these rules of this set apply to, in a proxy.
    pub(crate) fn of_rules(set: FieldSetId, rules: u64) -> Self {
        Self { origin: None, set, rules }
    }

    /// What the common fields were chosen by, in a proxy.
    pub(crate) fn set(self) -> FieldSetId {
        self.set
    }

    /// Whether a page of another origin asks that may read the answer.
    pub(crate) fn is_from_another_origin(self) -> bool {
        self.origin.is_some()
    }
}

#[derive(Debug, Default)]
struct More {
    rules: Rules,
    origins: Vec<String>,
    pages: Vec<(u16, Page)>,
    id: Option<AnsweredId>,
}

/// The id of a request in its answer.
#[derive(Debug)]
struct AnsweredId {
    /// Of the field.
    name: String,
    current: CurrentId,
}

/// Room that the field takes at most.
const ID_ROOM_BYTES: usize = 256;

/// A page of the user's own.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) content_type: &'static str,
    pub(crate) text: Box<[u8]>,
}

impl Default for Common {
    fn default() -> Self {
        Self { date: DateCache::new(0), set: FieldSetId::default(), more: None }
    }
}

impl Common {
    /// What the settings say; reads the pages.
    ///
    /// # Errors
    /// A page can't be read, or is too large.
    pub(crate) fn new(extras: &Extras) -> Result<Self, ServerError> {
        let mut common = Self::default();
        let rules = Rules::new(&extras.fields);
        let pages = Page::read_all(&extras.error_pages)?;
        let more = More { rules, origins: extras.cors.clone(), pages, id: None };
        if !(more.rules.is_empty() && more.origins.is_empty() && more.pages.is_empty()) {
            common.more = Some(Box::new(more));
        }
        Ok(common)
    }

    /// That of answers of a proxy's own whose requests have this set; reads the pages.
    ///
    /// # Errors
    /// As [`Common::new`].
    fn of_set(
        set: FieldSetId,
        of: &FieldSet,
        id: Option<&RequestIdConfig>,
    ) -> Result<Self, ServerError> {
        let pages = Page::read_all(&of.pages)?;
        let id = id
            .filter(|config| config.is_answered)
            .map(|config| AnsweredId { name: config.name.clone(), current: CurrentId::default() });
        let more = More { rules: Rules::new(&of.response), pages, id, ..More::default() };
        let has_more = !(more.rules.is_empty() && more.pages.is_empty() && more.id.is_none());
        Ok(Self { set, more: has_more.then(|| Box::new(more)), ..Self::default() })
    }

    /// Those of all sets of these settings, in their order.
    ///
    /// # Errors
    /// As [`Common::new`].
    pub(crate) fn all(config: &ProxyConfig) -> Result<Vec<Self>, ServerError> {
        let id = config.sites.request_id.as_ref();
        let of_set = |(place, set)| Self::of_set(FieldSetId::of_place(place), set, id);
        FieldSet::all(config).0.iter().enumerate().map(of_set).collect()
    }

    /// Answers have the ids that stand there, where they have some.
    pub(crate) fn share_ids(&mut self, current: &CurrentId) {
        if let Some(id) = self.more.as_mut().and_then(|more| more.id.as_mut()) {
            id.current = current.clone();
        }
    }

    /// Begins the head of an answer.
    #[inline]
    pub(crate) fn begin<'o>(
        &self,
        out: &'o mut [u8],
        status: Status,
        asked: FieldContext,
    ) -> HeadWriter<'o> {
        let mut head = HeadWriter::new(out, status);
        match &self.more {
            None => {
                head.field("Server", SERVER).date(&self.date);
            }
            Some(more) => more.write(&mut head, status, asked, &self.date),
        }
        head
    }

    /// Room that an answer of any status needs beside its usual fields.
    pub(crate) fn room_bytes(&self) -> usize {
        let pages = self.more.iter().flat_map(|more| &more.pages);
        let has_id = self.more.as_ref().is_some_and(|more| more.id.is_some());
        let of_id = if has_id { ID_ROOM_BYTES } else { 0 };
        FIELDS_BYTES_MAX + of_id + pages.map(|(_, page)| page.text.len()).max().unwrap_or(0)
    }

    /// The page of the user's own for this status.
    pub(crate) fn page(&self, status: Status) -> Option<&Page> {
        let pages = &self.more.as_ref()?.pages;
        pages.iter().find(|(code, _)| *code == status.code()).map(|(_, page)| page)
    }

    /// What the answer to this request depends on.
    #[inline]
    pub(crate) fn asked(&self, request: &Request<'_>) -> FieldContext {
        match &self.more {
            Some(more) => more.asked(request, self.set),
            None => FieldContext { set: self.set, ..FieldContext::default() },
        }
    }

    /// The same where there is no sound request.
    pub(crate) fn unasked(&self) -> FieldContext {
        FieldContext {
            origin: None,
            set: self.set,
            rules: self.more.as_ref().map_or(0, |more| more.rules.pathless()),
        }
    }

    /// Whether some paths get fields that others don't.
    pub(crate) fn has_paths(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.rules.has_paths())
    }
}

impl More {
    fn asked(&self, request: &Request<'_>, set: FieldSetId) -> FieldContext {
        FieldContext { origin: self.origin(request), set, rules: self.rules.for_request(request) }
    }

    /// The place of the origin of the page that asks, where it may see the answer.
    fn origin(&self, request: &Request<'_>) -> Option<u8> {
        let asks = (!self.origins.is_empty()).then(|| request.fields.first("origin")).flatten()?;
        let place = self.origins.iter().position(|one| one == "*" || one.as_bytes() == asks)?;
        u8::try_from(place).ok()
    }

    fn write(
        &self,
        head: &mut HeadWriter<'_>,
        status: Status,
        asked: FieldContext,
        date: &DateCache,
    ) {
        let applying = self.rules.applying_to_own(asked.rules, status.code());
        let rules = || applying.iter();
        let is_server = |rule: &&FieldRule| rule.name().eq_ignore_ascii_case("server");
        match rules().find(is_server) {
            None => {
                head.field("Server", SERVER);
            }
            Some(FieldRule::Set(_, value)) => {
                head.field("Server", value.as_bytes());
            }
            // Nothing else is removed, and Server is not added.
            Some(_) => {}
        }
        head.date(date);
        for rule in rules().filter(|rule| !is_server(rule)) {
            if let FieldRule::Set(name, value) | FieldRule::Add(name, value) = rule {
                head.field(name, value.as_bytes());
            }
        }
        if let Some(AnsweredId { name, current }) = &self.id {
            current.with(|id| {
                if !id.is_empty() {
                    head.field(name, id.as_bytes());
                }
            });
        }
        if let Some(origin) = asked.origin {
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
    /// Reads the pages of these statuses.
    fn read_all(pages: &[(u16, PathBuf)]) -> Result<Vec<(u16, Self)>, ServerError> {
        pages.iter().map(|(status, path)| Ok((*status, Self::read(path)?))).collect()
    }

    /// Reads one.
    ///
    /// # Errors
    /// It can't be read, or is too large.
    pub(crate) fn read(path: &Path) -> Result<Self, ServerError> {
        let failed = |cause: io::Error| {
            let cause = match cause.kind() {
                io::ErrorKind::NotFound => {
                    io::Error::new(cause.kind(), format!("{cause}; {A_PAGE}"))
                }
                _ => cause,
            };
            ServerError::Page { path: path.to_owned(), cause }
        };
        let len = std::fs::metadata(path).map_err(failed)?.len();
        if len > PAGE_BYTES_MAX {
            let why = format!("{len} bytes; expected at most {PAGE_BYTES_MAX}");
            return Err(failed(io::Error::other(why)));
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
    use crate::config::AnswerRule;

    /// The head of an answer with this status to a request for this path from a page of this origin.
    fn head_of(extras: &Extras, status: Status, path: &str, origin: &str) -> String {
        let common = Common::new(extras).expect("no page");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\n\r\n");
        let limits = pollux_http::Limits::default();
        let parsed = Request::parse(request.as_bytes(), &limits);
        let pollux_http::Parsed::Complete(request, _) = parsed else { panic!("a request") };
        let mut out = [0; 1024];
        let mut head = common.begin(&mut out, status, common.asked(&request));
        let len = head.finish().expect("room");
        let text = String::from_utf8(out[..len].to_vec()).expect("text");
        text.lines().filter(|line| !line.starts_with("Date")).collect::<Vec<_>>().join("|")
    }

    fn head(extras: &Extras, origin: &str) -> String {
        head_of(extras, Status::OK, "/", origin)
    }

    fn of(rules: &[&str]) -> Extras {
        let read = |rule: &&str| AnswerRule::read(rule).expect("right");
        Extras { fields: rules.iter().map(read).collect(), ..Extras::default() }
    }

    #[test]
    fn rules_are_applied_in_their_order_and_the_server_can_be_silent() {
        let extras = of(&["set X-A: 1", "add X-A: 2", "set x-b: 3", "set X-B: 4"]);
        assert_eq!(head(&extras, "x"), "HTTP/1.1 200 OK|Server: pollux|X-A: 1|X-A: 2|X-B: 4|");
        assert_eq!(head(&of(&["remove server"]), "x"), "HTTP/1.1 200 OK|");
        assert_eq!(head(&of(&["remove server", "set X-A: 1"]), "x"), "HTTP/1.1 200 OK|X-A: 1|");
        assert_eq!(
            head(&of(&["set Server: a", "set server: b"]), "x"),
            "HTTP/1.1 200 OK|Server: b|"
        );
    }

    #[test]
    fn rules_are_for_paths_and_statuses_and_a_later_one_takes_the_place_of_an_earlier_one() {
        let extras = of(&[
            "set Cache-Control: no-cache",
            "/assets/ 2xx set Cache-Control: max-age=9",
            "/assets/ add X-A: 1",
            "404 set Server: gone",
        ]);
        let of = |status, path| head_of(&extras, status, path, "x");
        assert_eq!(
            of(Status::OK, "/assets/a.css"),
            "HTTP/1.1 200 OK|Server: pollux|Cache-Control: max-age=9|X-A: 1|"
        );
        let missing = "HTTP/1.1 404 Not Found|Server: gone|Cache-Control: no-cache|";
        assert_eq!(of(Status::NOT_FOUND, "/assets/b"), format!("{missing}X-A: 1|"));
        assert_eq!(of(Status::NOT_FOUND, "/b"), missing);
        assert_eq!(of(Status::OK, "/"), "HTTP/1.1 200 OK|Server: pollux|Cache-Control: no-cache|");
    }

    #[test]
    fn only_origins_that_are_named_may_see_an_answer_and_caches_get_vary() {
        let named =
            Extras { cors: vec!["https://a".into(), "https://b:1".into()], ..Extras::default() };
        assert_eq!(
            head(&named, "https://b:1"),
            "HTTP/1.1 200 OK|Server: pollux|Access-Control-Allow-Origin: https://b:1|\
             Access-Control-Expose-Headers: *|Vary: Origin|"
        );
        for other in ["https://b", "https://a.evil", "null", "*"] {
            assert_eq!(head(&named, other), "HTTP/1.1 200 OK|Server: pollux|Vary: Origin|");
        }
        let all = Extras { cors: vec!["*".into()], ..Extras::default() };
        assert!(head(&all, "https://any").contains("|Access-Control-Allow-Origin: *|"));
        assert!(!head(&all, "https://any").contains("Vary"));
    }
}
