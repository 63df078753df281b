//! What a route asks for beside the path: methods, fields, parts of the query.

use std::fmt;

use pollux_http::{Fields, Method};

/// What is asked, beside host and path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionInput<'r> {
    pub(crate) method: Method<'r>,
    /// Without its `?`.
    pub(crate) query: Option<&'r str>,
    pub(crate) fields: Fields<'r>,
}

/// What a route asks for; all of it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Conditions {
    /// One of these; HEAD as well where GET is one. None for all.
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<Wanted>,
    pub(crate) queries: Vec<Wanted>,
}

/// A field, or a part of the query, by its name, with this value perhaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// What of the conditions of a route a request lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lacking<'t> {
    Method(&'t [String]),
    Header(&'t Wanted),
    Query(&'t Wanted),
}

impl Conditions {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        usize::from(!self.methods.is_empty()) + self.headers.len() + self.queries.len()
    }

    /// What the request lacks first.
    #[inline]
    pub(crate) fn lacking(&self, asking: &ConditionInput<'_>) -> Option<Lacking<'_>> {
        if self.count() == 0 { None } else { self.first_lacking(asking) }
    }

    fn first_lacking(&self, asking: &ConditionInput<'_>) -> Option<Lacking<'_>> {
        if !self.methods.is_empty() && !self.takes_method(asking.method.name()) {
            return Some(Lacking::Method(&self.methods));
        }
        let value = |wanted: &Wanted| asking.fields.first(&wanted.name);
        let header = self.headers.iter().find(|wanted| !wanted.is_met(value(wanted)));
        if let Some(wanted) = header {
            return Some(Lacking::Header(wanted));
        }
        let value = |wanted: &Wanted| value_in_query(asking.query?, &wanted.name);
        let query = self.queries.iter().find(|wanted| !wanted.is_met(value(wanted)));
        query.map(Lacking::Query)
    }

    fn takes_method(&self, name: &str) -> bool {
        let has = |name: &str| self.methods.iter().any(|one| one == name);
        has(name) || (name == "HEAD" && has("GET"))
    }

    /// Whether each request that has what the other asks for has what this one does.
    pub(crate) fn are_no_more_than(&self, other: &Self) -> bool {
        let has_methods = self.methods.is_empty()
            || (!other.methods.is_empty()
                && other.methods.iter().all(|name| self.takes_method(name)));
        let all_in = |own: &[Wanted], others: &[Wanted], is_same_name: fn(&str, &str) -> bool| {
            own.iter().all(|own| {
                others.iter().any(|other| {
                    is_same_name(&own.name, &other.name)
                        && (own.value.is_none() || own.value == other.value)
                })
            })
        };
        has_methods
            && all_in(&self.headers, &other.headers, str::eq_ignore_ascii_case)
            && all_in(&self.queries, &other.queries, |one, two| one == two)
    }

    /// Whether one request may have what both ask for.
    pub(crate) fn may_meet(&self, other: &Self) -> bool {
        let methods = self.methods.is_empty()
            || other.methods.is_empty()
            || other.methods.iter().any(|name| self.takes_method(name))
            || self.methods.iter().any(|name| other.takes_method(name));
        let differ = |one: &Wanted, two: &Wanted| {
            one.value.is_some() && two.value.is_some() && one.value != two.value
        };
        let headers = self.headers.iter().all(|one| {
            let mut others = other.headers.iter();
            !others.any(|two| one.name.eq_ignore_ascii_case(&two.name) && differ(one, two))
        });
        let queries = self.queries.iter().all(|one| {
            let mut others = other.queries.iter();
            !others.any(|two| one.name == two.name && differ(one, two))
        });
        methods && headers && queries
    }
}

impl Wanted {
    /// Reads `NAME` or `NAME: VALUE`.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read_header(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value.trim().to_owned())),
            None => (text, None),
        };
        let is_sound = Method::is_name(name.as_bytes())
            && value.as_ref().is_none_or(|value| !value.contains(char::is_control));
        if is_sound { Ok(Self { name: name.to_owned(), value }) } else { Err(String::new()) }
    }

    /// Reads `NAME` or `NAME=VALUE`.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub(crate) fn read_query(text: &str) -> Result<Self, String> {
        let is_sound = !text.is_empty()
            && !text.starts_with('=')
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'&' | b'?'));
        if !is_sound {
            return Err(String::new());
        }
        Ok(match text.split_once('=') {
            Some((name, value)) => Self { name: name.to_owned(), value: Some(value.to_owned()) },
            None => Self { name: text.to_owned(), value: None },
        })
    }

    fn is_met(&self, value: Option<&[u8]>) -> bool {
        match (&self.value, value) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(wanted), Some(value)) => wanted.as_bytes() == value,
        }
    }
}

/// The value of the first part of a query with this name, as it was sent; nothing of one without `=`.
fn value_in_query<'q>(query: &'q str, name: &str) -> Option<&'q [u8]> {
    let mut parts = query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    parts.find(|(own, _)| *own == name).map(|(_, value)| value.as_bytes())
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        if !self.methods.is_empty() {
            f.write_str(&self.methods.join(","))?;
            space = " ";
        }
        for wanted in &self.headers {
            write!(f, "{space}{}", Lacking::Header(wanted))?;
            space = " ";
        }
        for wanted in &self.queries {
            write!(f, "{space}{}", Lacking::Query(wanted))?;
            space = " ";
        }
        Ok(())
    }
}

impl fmt::Display for Lacking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(methods) => write!(f, "method {}", methods.join(",")),
            Self::Header(Wanted { name, value: None }) => write!(f, "header \"{name}\""),
            Self::Header(Wanted { name, value: Some(value) }) => {
                write!(f, "header \"{name}: {value}\"")
            }
            Self::Query(Wanted { name, value: None }) => write!(f, "query \"{name}\""),
            Self::Query(Wanted { name, value: Some(value) }) => {
                write!(f, "query \"{name}={value}\"")
            }
        }
    }
}
