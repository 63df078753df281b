//! What is asked for: a URL with method, fields and body, and where its server is.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use pollux_engine::ListenAddress;
use url::{Host, Url};

use crate::LoadError;

/// What a URL looks like.
const FORM: &str = "write http://HOST[:PORT]/PATH or https://…";

/// One request that is sent again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// As it was given.
    pub url: String,
    /// Where its server is.
    pub address: ListenAddress,
    /// Whether the connection is encrypted, and the name that the server's certificate is for.
    pub tls_name: Option<String>,
    /// What the Host field says.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// GET unless something else was asked for.
    pub method: String,
    /// Further fields, in order.
    pub fields: Vec<(String, String)>,
    /// Sent with a Content-Length when it is not empty.
    pub body: Vec<u8>,
    /// How often it is chosen, in relation to the others; at least 1.
    pub weight: u32,
}

impl Target {
    /// A GET of `url`, which begins with `http://` or `https://`. `instead` is where to connect to
    /// in place of the URL's host, whose name is not looked up then.
    ///
    /// # Errors
    /// [`LoadError::Url`] says what is wrong with it. A host name is looked up here:
    /// [`LoadError::Lookup`] when that fails.
    pub fn parse(url: &str, instead: Option<&ListenAddress>) -> Result<Self, LoadError> {
        let wrong = |why: String| LoadError::Url { url: url.to_owned(), why };
        // Without it "localhost:8080" would have the scheme "localhost".
        if !url.contains("://") {
            return Err(wrong(format!("it has no scheme; write http://{url} or https://…")));
        }
        let parsed = Url::parse(url).map_err(|error| wrong(format!("{error}; {FORM}")))?;
        let is_encrypted = match parsed.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(wrong(format!("its scheme is \"{other}\"; {FORM}"))),
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(wrong("it has a user name; give it with --user NAME:PASSWORD".to_owned()));
        }
        let host = parsed.host().ok_or_else(|| wrong(format!("it has no host; {FORM}")))?;
        let port = parsed.port_or_known_default().unwrap_or(80);
        let address = match instead {
            Some(address) => address.clone(),
            None => ListenAddress::Tcp(resolve(&host, port)?),
        };
        Ok(Self {
            url: url.to_owned(),
            address,
            tls_name: is_encrypted.then(|| bare(&host)),
            host: match parsed.port() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_string(),
            },
            path: parsed[url::Position::BeforePath..url::Position::AfterQuery].to_owned(),
            method: "GET".to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
            weight: 1,
        })
    }
}

impl Target {
    /// Whether it has a further field of this name.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name))
    }
}

fn resolve(host: &Host<&str>, port: u16) -> Result<SocketAddr, LoadError> {
    match host {
        Host::Ipv4(address) => Ok(SocketAddr::new(IpAddr::V4(*address), port)),
        Host::Ipv6(address) => Ok(SocketAddr::new(IpAddr::V6(*address), port)),
        Host::Domain(name) => {
            let failed = |source| LoadError::Lookup { host: (*name).to_owned(), source };
            let mut found = (*name, port).to_socket_addrs().map_err(failed)?;
            found.next().ok_or_else(|| failed(io::Error::other("it has no address")))
        }
    }
}

/// The host as certificates name it: an IPv6 address without brackets.
fn bare(host: &Host<&str>) -> String {
    match host {
        Host::Ipv6(address) => address.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_address_host_and_path() {
        let target = Target::parse("http://127.0.0.1:8080/a?b=c#d", None).expect("a URL");
        assert_eq!(target.address.to_string(), "127.0.0.1:8080");
        assert_eq!((&*target.host, &*target.path), ("127.0.0.1:8080", "/a?b=c"));
        assert_eq!(target.tls_name, None);
    }

    #[test]
    fn the_port_of_the_scheme_is_left_out_of_the_host() {
        let target = Target::parse("https://[::1]", None).expect("a URL");
        assert_eq!((target.address.to_string(), &*target.host), ("[::1]:443".into(), "[::1]"));
        assert_eq!((target.tls_name.as_deref(), &*target.path), (Some("::1"), "/"));
    }

    #[test]
    fn a_unix_socket_takes_the_place_of_the_host() {
        let socket = ListenAddress::Unix("/run/s".into());
        let target = Target::parse("http://app/x", Some(&socket)).expect("a URL");
        assert_eq!((target.address.to_string(), &*target.host), ("unix:/run/s".into(), "app"));
    }

    #[test]
    fn wrong_urls_say_what_is_wrong() {
        for (url, why) in [
            ("localhost:80/", "scheme"),
            ("http://", "host"),
            ("http://a@127.0.0.1/", "user name"),
            ("ftp://127.0.0.1/", "scheme"),
        ] {
            let error = Target::parse(url, None).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn a_name_that_nobody_knows_is_no_fault_of_the_url() {
        // RFC 6761: no name below it has an address.
        let error = Target::parse("http://pollux.invalid/", None).expect_err("no such host");
        assert!(matches!(error, LoadError::Lookup { ref host, .. } if host == "pollux.invalid"));
    }
}
