//! Request methods. The request line makes them, the server decides which it serves.

use std::fmt;

/// A method of RFC 9110 9 or PATCH; names are case-sensitive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method<'b> {
    /// GET.
    Get,
    /// HEAD: answered like GET, without the body.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// CONNECT: the target names a host and port.
    Connect,
    /// OPTIONS: the target may be `*`.
    Options,
    /// TRACE.
    Trace,
    /// PATCH.
    Patch,
    /// Any other token; a server that does not know it answers 501.
    Other(&'b str),
}

impl<'b> Method<'b> {
    /// Longest method that is looked at; a longer one is refused with 501 (RFC 9112 3). The
    /// longest registered one has 17 letters.
    pub const BYTES_MAX: usize = 32;

    /// The method of that name.
    #[must_use]
    pub fn named(name: &'b str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            "OPTIONS" => Self::Options,
            "TRACE" => Self::Trace,
            "PATCH" => Self::Patch,
            other => Self::Other(other),
        }
    }

    /// Its name, as it stands in the request line.
    #[must_use]
    pub fn name(self) -> &'b str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back_and_keep_their_case() {
        for name in
            ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "BREW"]
        {
            assert_eq!(Method::named(name).name(), name);
        }
        assert_eq!(Method::named("get"), Method::Other("get"));
    }
}
