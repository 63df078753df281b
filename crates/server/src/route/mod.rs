//! Which route a request takes: site by host, route by path, then by what else it asks for.
//!
//! Pure: bytes decide, with no clock, no state and no I/O, so that the same request always takes the same route. The settings
//! are read into these types (`config/sites.rs`), the front asks the table that is made of them (`front/sites.rs`), and
//! `pollux serve explain` asks it for every step. Nothing here is allocated for a request.
//!
//! | part | one job |
//! |---|---|
//! | `access` | which addresses may ask |
//! | `host` | names of hosts, as settings and requests have them |
//! | `path` | the one reading of a path, and the patterns that it is matched with |
//! | `conditions` | what a route asks for beside the path |
//! | `redirect` | where a redirect leads |
//! | `rewrite` | what a backend gets of a path, and what its clients get of its redirects |
//! | `request_id` | the id that a request gets or keeps |
//! | `table` | the sites in the order in which they are tried; what a person has to know of that order |

pub(crate) mod access;
pub(crate) mod conditions;
pub(crate) mod host;
pub(crate) mod path;
pub(crate) mod redirect;
pub(crate) mod request_id;
pub(crate) mod rewrite;
pub(crate) mod table;

#[cfg(test)]
mod tests;
