//! What becomes of answers of backends beside their fields: they are compressed, or a page takes the place of an error.
//!
//! A front end, a site and a route may say it. Of whether and what is compressed the innermost one decides; statuses that a
//! page takes the place of add up.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use pollux_settings::{Keys, Kind, bytes};

use crate::coding;
use crate::config::answers::status_range;

/// Shortest body that is compressed where nothing is said: below, the answer is one packet anyhow.
const LEN_MIN: u64 = 1024;
/// Most media types.
const TYPES_MAX: usize = 64;
/// Most statuses and classes of them.
const STATUSES_MAX: usize = 32;
/// What clients get piece by piece, for as long as they listen.
const EVENTS: &str = "text/event-stream";
const COMPRESS: &str = "applies only where answers of backends are compressed";

/// What one of them says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PassedAnswers {
    /// Whether answers are compressed.
    pub(crate) compresses: Option<bool>,
    types: Option<Vec<String>>,
    len_min: Option<u64>,
    /// Statuses that a page takes the place of, where there is one.
    intercepted: Vec<RangeInclusive<u16>>,
}

/// What is compressed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Compress {
    /// Media types, some with `*` for all below; none for what is text.
    types: Option<Vec<String>>,
    /// Shortest body, where its length is known.
    pub(crate) len_min: u64,
}

impl PassedAnswers {
    /// Reads it, where this was said about whether answers are compressed.
    pub(super) fn of(keys: &mut Keys<'_>, compresses: Option<bool>) -> Self {
        let about = "Compress answers of backends of these media types alone, such as \"text/html\", or \"text/*\" for all of text; \
                     never text/event-stream";
        let key = keys
            .key("compress_types", about)
            .otherwise("text, JSON, XML, scripts and what else gets smaller");
        let types = key.list(&media_type(), 0..=TYPES_MAX);
        let about =
            "Shortest body of a backend's answer that is compressed, where its length is known";
        let key = keys.key("compress_min", about).otherwise("1KiB");
        let len_min = key.optional(&bytes(0..=u64::from(u32::MAX)));
        for name in ["compress_types", "compress_min"] {
            if compresses == Some(false) && keys.has(name) {
                keys.note(name, format!("{COMPRESS}; expected compress = true as well"));
            }
        }
        let about = "Send the error_page of a status in place of an answer of a backend with it, such as \"502\" or \"5xx\"; \
                     where there is none, and for clients that want JSON and no HTML, the backend's passes";
        let statuses = Kind::new("STATUS", "a status from 400 to 599, or 4xx or 5xx", |text| {
            status_range(text).ok().filter(|range| *range.start() >= 400).ok_or_else(String::new)
        });
        let intercepted = keys.key("intercept", about).list(&statuses, 0..=STATUSES_MAX);
        let types = Some(types).filter(|types| !types.is_empty());
        Self { compresses, types, len_min, intercepted }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// With what comes to it.
    pub(crate) fn with(&self, inner: &Self) -> Self {
        Self {
            compresses: inner.compresses.or(self.compresses),
            types: inner.types.clone().or_else(|| self.types.clone()),
            len_min: inner.len_min.or(self.len_min),
            intercepted: [&self.intercepted[..], &inner.intercepted].concat(),
        }
    }

    /// What is compressed, if something is.
    pub(crate) fn compress(&self) -> Option<Compress> {
        let compress =
            Compress { types: self.types.clone(), len_min: self.len_min.unwrap_or(LEN_MIN) };
        self.compresses.unwrap_or_default().then_some(compress)
    }

    /// Whether a page takes the place of answers with this status, where there is one.
    pub(crate) fn intercepts(&self, status: u16) -> bool {
        self.intercepted.iter().any(|range| range.contains(&status))
    }

    /// What `--check` notes where none of these pages takes the place of something that is said to be replaced.
    pub(super) fn without_page(&self, pages: &[(u16, PathBuf)]) -> Option<String> {
        let has_page =
            |range: &&RangeInclusive<u16>| pages.iter().any(|(status, _)| range.contains(status));
        let range = self.intercepted.iter().find(|range| !has_page(range))?;
        let statuses = written(range);
        Some(format!(
            "no error_page has a page for {statuses}; expected one of the route, the site or the front end"
        ))
    }

    /// What `--check` says of it.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        match self.compresses {
            None => {}
            Some(true) => text.push_str(", compressed"),
            Some(false) => text.push_str(", not compressed"),
        }
        if !self.intercepted.is_empty() {
            let statuses: Vec<String> = self.intercepted.iter().map(written).collect();
            write!(text, ", pages for {} of the backend", statuses.join(", ")).expect("a string");
        }
        text
    }
}

impl Compress {
    /// Whether bodies of this type are compressed.
    pub(crate) fn takes(&self, content_type: &str) -> bool {
        let kind = coding::media_type(content_type);
        let is_one = |of: &String| match of.strip_suffix('*') {
            Some(start) => kind.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start)),
            None => kind.eq_ignore_ascii_case(of),
        };
        let is_taken = match &self.types {
            Some(types) => types.iter().any(is_one),
            None => coding::is_text(kind),
        };
        is_taken && !kind.eq_ignore_ascii_case(EVENTS)
    }
}

/// What a switch says where it was said, on or off.
pub(super) fn said(keys: &Keys<'_>, name: &str, is_on: bool) -> Option<bool> {
    keys.location(name).map(|_| is_on)
}

/// How statuses stand in a file.
fn written(range: &RangeInclusive<u16>) -> String {
    match range.start() {
        first if first == range.end() => first.to_string(),
        first => format!("{}xx", first / 100),
    }
}

fn media_type() -> Kind<String> {
    Kind::new("TYPE", "a media type such as text/html, or text/* for all of text", |text| {
        let is_in_name =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+');
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_in_name);
        match text.split_once('/') {
            _ if text.eq_ignore_ascii_case(EVENTS) => {
                Err("events are passed on as they come, and are never compressed".to_owned())
            }
            Some((kind, below)) if is_name(kind) && (below == "*" || is_name(below)) => {
                Ok(text.to_ascii_lowercase())
            }
            _ => Err(String::new()),
        }
    })
}
