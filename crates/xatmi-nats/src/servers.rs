//! The addresses of the broker and the login there, read from one text.
//!
//! Name and password are part of the address, as in other programs for NATS; the client library
//! does not look for them there. Nothing here shows a password.

use std::fmt;

use async_nats::ServerAddr;

/// The servers of one broker.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    /// Without names and passwords.
    pub(crate) addresses: Vec<ServerAddr>,
    /// The first one given; a broker's servers share their users.
    pub(crate) login: Option<Login>,
}

/// The identity that the broker is shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// `nats://TOKEN@HOST`.
    Token(String),
    /// `nats://USER:PASSWORD@HOST`.
    User {
        /// The user.
        name: String,
        /// Its secret.
        password: String,
    },
}

impl Servers {
    /// Reads addresses with commas between them, such as `nats://user:secret@10.0.0.1:4222`; `tls`
    /// instead of `nats` demands encryption.
    ///
    /// # Errors
    /// A sentence that names the address without its login.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let mut servers = Self { addresses: Vec::new(), login: None };
        for part in text.split(',').map(str::trim) {
            let (scheme, rest) = part.split_once("://").unwrap_or(("nats", part));
            let (login, host) = match rest.rsplit_once('@') {
                Some((login, host)) => (Some(login), host),
                None => (None, rest),
            };
            let address = format!("{scheme}://{host}");
            let wrong = |why: &str| {
                format!(
                    "`{address}` is not an address of a broker: {why}; expected nats://HOST:PORT"
                )
            };
            let read: ServerAddr = address.parse().map_err(|error| wrong(&format!("{error}")))?;
            if !matches!(scheme, "nats" | "tls") || read.host().is_empty() {
                return Err(wrong("it needs a host, and nats:// or tls:// before it"));
            }
            servers.addresses.push(read);
            servers.login = servers.login.or_else(|| login.map(Login::new));
        }
        Ok(servers)
    }
}

impl Login {
    fn new(text: &str) -> Self {
        match text.split_once(':') {
            None => Self::Token(decoded(text)),
            Some((name, password)) => {
                Self::User { name: decoded(name), password: decoded(password) }
            }
        }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, server) in self.addresses.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}://{}:{}", server.scheme(), server.host(), server.port())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = if self.login.is_some() { ", with a login" } else { "" };
        write!(f, "{self}{login}")
    }
}

/// With `%40` and the like as what they stand for (RFC 3986, section 2.1).
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        (bytes, rest) = match (first, byte) {
            (b'%', Some(byte)) => (with(bytes, byte), &tail[2..]),
            _ => (with(bytes, *first), tail),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn with(mut bytes: Vec<u8>, byte: u8) -> Vec<u8> {
    bytes.push(byte);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_read_from_the_address_and_shown_nowhere() {
        let servers = Servers::new("nats://us%40er:se%3Acret@h:4223, tls://x").expect("addresses");
        let (name, password) = ("us@er".to_owned(), "se:cret".to_owned());
        assert!(servers.login == Some(Login::User { name, password }));
        assert_eq!(servers.to_string(), "nats://h:4223,tls://x:4222");
        assert!(!format!("{servers:?}").contains("cret"), "{servers:?}");
        let token = Servers::new("nats://t0ken@h").expect("an address");
        assert!(token.login == Some(Login::Token("t0ken".to_owned())));
        assert!(Servers::new("10.0.0.1").expect("an address").login.is_none());
    }

    #[test]
    fn what_is_not_an_address_is_named_without_its_password() {
        for bad in ["http://u:secret@h", "ws://h", "nats://", "nats://u:secret@h:port", "", "a,,b"]
        {
            let said = Servers::new(bad).expect_err(bad);
            assert!(said.contains("expected nats://HOST:PORT"), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn a_percent_sign_without_digits_stays() {
        assert_eq!(decoded("50%"), "50%");
        assert_eq!(decoded("%+4"), "%+4");
        assert_eq!(decoded("%zz%41"), "%zzA");
    }
}
