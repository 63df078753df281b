//! What a site or a route adds to what its front end does: rules for fields, pages for errors, and what becomes of answers of
//! backends.
//!
//! All of it adds up: first the rules of the front end are applied, then those of the site, then those of the route, so that
//! of several that set the same field the last one does. Of pages for one status that of the route is sent, else that of the
//! site.

use std::path::PathBuf;

use pollux_settings::{Keys, Location};

use crate::config::answers::{ERROR_PAGES_MAX, RULES_BYTES_MAX, error_page, rules_bytes};
use crate::config::backend_answers::PassedAnswers;
use crate::config::sections::{FieldRules, rules};
use crate::config::{AnswerRule, RULES_MAX};

/// What a site or a route adds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Added {
    pub(crate) rules: FieldRules,
    /// For answers of pollux's own.
    pub(crate) pages: Vec<(u16, PathBuf)>,
    pub(crate) passed: PassedAnswers,
}

/// The pages of a front end, a site or a route.
pub(super) fn pages(keys: &mut Keys<'_>) -> Vec<(u16, PathBuf)> {
    let about = "Send this file in place of an answer of pollux's own with this status, such as \"404 404.html\"; its path \
                 is that from the working folder, or begins with /. It is read at the start and at each reload; \
                 repeatable";
    keys.key("error_page", about).list(&error_page(), 0..=ERROR_PAGES_MAX)
}

impl Added {
    /// Reads it, where this was said about whether answers of backends are compressed.
    pub(super) fn of(keys: &mut Keys<'_>, compresses: Option<bool>) -> Self {
        let rules = rules(keys);
        let pages = pages(keys);
        let passed = PassedAnswers::of(keys, compresses);
        Self { rules, pages, passed }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let has_rules = !(self.rules.request.is_empty() && self.rules.response.is_empty());
        !has_rules && self.pages.is_empty() && self.passed.is_empty()
    }
}

/// Rules for answers that apply one behind the other, as far as they are bounded.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sum {
    count: usize,
    bytes: usize,
}

impl Sum {
    /// That of these.
    pub(super) fn of(rules: &[AnswerRule]) -> Self {
        Self { count: rules.len(), bytes: rules_bytes(rules) }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }

    /// The larger of both, of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self { count: self.count.max(other.count), bytes: self.bytes.max(other.bytes) }
    }

    /// Notes what is too much for one answer, where it is.
    pub(super) fn note(self, keys: &mut Keys<'_>, place: &Location) {
        let much = match self {
            Self { count, .. } if count > RULES_MAX => {
                format!("{count}; expected at most {RULES_MAX}")
            }
            Self { bytes, .. } if bytes > RULES_BYTES_MAX => {
                format!("{bytes} bytes; expected at most {RULES_BYTES_MAX}")
            }
            Self { .. } => return,
        };
        let what =
            format!("response_field: with those of the front end and of the site there are {much}");
        keys.note_at(place.clone(), what);
    }
}
