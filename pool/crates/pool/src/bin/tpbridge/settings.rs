//! The settings of a bridge: on its command line by the pool's configuration, and by the manager; the addresses of the
//! broker with the login there, read from one text; and the domain, with the subjects that its pools use.
//!
//! | subject | content |
//! |---|---|
//! | `pollux.DOMAIN.call.SERVICE` | requests for a service; queue group `bridges`, so one bridge gets each |
//! | `pollux.DOMAIN.news` | the services that a pool offers to the others, at changes and periodically |
//! | `pollux.DOMAIN.list`| a request for these lists, from a bridge that has just connected |
//!
//! Name and password are part of the address, as in other programs for NATS; the client library
//! does not look for them there. Nothing here shows a password.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;
use clap::{CommandFactory, Parser};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::pool::{EXPORTS_VARIABLE, REFRESH_VARIABLE};

use crate::exchange::POOL_LEN_BYTES_MAX;

/// The environment variable that stands for `--nats`: what it holds is in no list of processes.
const NATS_VARIABLE: &str = "POLLUX_NATS";
/// The broker when nothing is said.
const NATS_DEFAULT: &str = "nats://127.0.0.1:4222";

/// The longest time between two service lists: a day.
const REFRESH_S_MAX: u64 = 24 * 3600;

/// The queue group of bridges, so that one of them gets each call.
pub(crate) const GROUP: &str = "bridges";

/// The longest name of a domain.
const DOMAIN_LEN_BYTES_MAX: usize = 64;

/// The options, for the help of the program.
pub(crate) fn options() -> Vec<clap::Arg> {
    Arguments::command().get_arguments().cloned().collect()
}

/// Options behind `--` in `<appopt>`.
#[derive(Parser, Debug)]
#[command(name = "tpbridge", no_binary_name = true, disable_help_flag = true)]
struct Arguments {
    /// Addresses of the broker's servers, with commas between them: nats://HOST:PORT, with USER:PASSWORD@ or TOKEN@
    /// to log in, tls:// to demand encryption [default: nats://127.0.0.1:4222]
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Certificates (PEM) that the broker's own is checked with, instead of the machine's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Pools of one domain see each other's services
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = Domain::new)]
    domain: Domain,
    /// Name of this pool among the others [default: host and prefix]
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
}

/// What a bridge works with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) servers: Servers,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) domain: Domain,
    pub(crate) pool: String,
    /// Between two service lists; zero for none but when something changed.
    pub(crate) refresh: Duration,
    pub(crate) exports: BTreeSet<String>,
}

impl Settings {
    /// Reads the options, and what the manager left in the environment by `variable`.
    ///
    /// # Errors
    /// A sentence that names the option.
    pub(crate) fn read(
        options: &[OsString],
        variable: impl Fn(&str) -> Option<String>,
        environment: &Environment,
    ) -> Result<Self, String> {
        let arguments = Arguments::try_parse_from(options).map_err(|error| error.to_string())?;
        let nats = arguments.nats.or_else(|| variable(NATS_VARIABLE));
        let servers = Servers::new(nats.as_deref().unwrap_or(NATS_DEFAULT))?;
        if let Some(ca) = &arguments.ca {
            let unread = |error| format!("--ca {}: {error}", ca.display());
            std::fs::metadata(ca).map_err(unread)?;
        }
        let exports = variable(EXPORTS_VARIABLE).unwrap_or_default();
        let refresh_s = variable(REFRESH_VARIABLE).and_then(|seconds| seconds.parse().ok());
        let names = exports.split(',').map(str::trim).filter(|name| !name.is_empty());
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let pool = arguments.pool.unwrap_or_else(|| format!("{}{}", host(), environment.prefix));
        if pool.len() > POOL_LEN_BYTES_MAX {
            let len = pool.len();
            return Err(format!("--pool: {len} bytes; expected {POOL_LEN_BYTES_MAX} at most"));
        }
        Ok(Self {
            servers,
            ca: arguments.ca,
            domain: arguments.domain,
            pool,
            refresh: Duration::from_secs(refresh_s.unwrap_or(0).min(REFRESH_S_MAX)),
            exports: names.map(str::to_owned).collect(),
        })
    }
}

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
    User { name: String, password: String },
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

/// The pools that see each other's services.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Domain(String);

impl Domain {
    /// Reads a name of 1 to 64 letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let fits = (1..=DOMAIN_LEN_BYTES_MAX).contains(&name.len());
        if !fits || !name.bytes().all(is_plain) {
            return Err(format!(
                "`{}` is not a domain: give 1 to {DOMAIN_LEN_BYTES_MAX} letters, digits, - or _",
                name.escape_debug()
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// The subject of requests for `service`.
    ///
    /// Names of services may hold what means something in a subject (`.`, `*`, `>`); that is
    /// written as `=` and two hexadecimal digits.
    pub(crate) fn call(&self, service: &str) -> String {
        let mut subject = format!("pollux.{}.call.", self.0);
        for byte in service.bytes() {
            if is_plain(byte) {
                subject.push(char::from(byte));
            } else {
                let _ = write!(subject, "={byte:02X}");
            }
        }
        subject
    }

    /// The subject of service lists.
    pub(crate) fn service_lists(&self) -> String {
        format!("pollux.{}.news", self.0)
    }

    /// The subject on which lists are asked for.
    pub(crate) fn questions(&self) -> String {
        format!("pollux.{}.list", self.0)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn read(options: &[&str]) -> Result<Settings, String> {
        let environment = Environment::read(|_| None).expect("defaults");
        let options: Vec<_> = options.iter().map(OsString::from).collect();
        let variable = |name: &str| match name {
            EXPORTS_VARIABLE => Some(" BALANCE, X,,".to_owned()),
            REFRESH_VARIABLE => Some("30".to_owned()),
            NATS_VARIABLE => Some("nats://u:p@broker".to_owned()),
            _ => None,
        };
        Settings::read(&options, variable, &environment)
    }

    #[test]
    fn nothing_needs_to_be_said() {
        let settings = read(&[]).expect("defaults");
        assert!(settings.pool.ends_with("/pollux"), "{}", settings.pool);
        assert_eq!(settings.exports.len(), 2);
        assert_eq!(settings.refresh, Duration::from_secs(30));
        assert_eq!(settings.servers.to_string(), "nats://broker:4222");
        let given = read(&["--nats", "nats://other"]).expect("an address");
        assert_eq!(given.servers.to_string(), "nats://other:4222");
    }

    #[test]
    fn a_mistake_is_named() {
        for (options, named) in [
            (["--domain", "a.b"], "letters, digits"),
            (["--what", "x"], "--what"),
            (["--nats", "http://x"], "nats://HOST:PORT"),
            (["--pool", &"p".repeat(513)], "--pool: 513 bytes"),
            (["--ca", "/nowhere/ca.pem"], "--ca /nowhere/ca.pem"),
        ] {
            let said = read(&options).expect_err(named);
            assert!(said.contains(named), "{said}");
        }
    }

    #[test]
    fn a_login_is_read_from_the_address_and_shown_nowhere() {
        let servers = Servers::new("nats://us%40er:se%3Acret@h:4223, tls://x").expect("addresses");
        let name = "us@er".to_owned();
        let password = "se:cret".to_owned();
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

    #[test]
    fn a_domain_is_one_token() {
        for bad in ["", "a.b", "a b", "*", ">", "ä", &"d".repeat(65)] {
            let said = Domain::new(bad).expect_err(bad);
            assert!(said.contains("letters, digits"), "{said}");
        }
        assert_eq!(Domain::new("bank-1").expect("a domain").service_lists(), "pollux.bank-1.news");
    }

    #[test]
    fn each_service_has_one_token_of_its_own() {
        let domain = Domain::new("d").expect("a domain");
        assert_eq!(domain.call("BALANCE"), "pollux.d.call.BALANCE");
        let odd = ["A.B", "A*", "A>", "A=2EB", "A=B", "@sys", "A"];
        let subjects: HashSet<_> = odd.iter().map(|service| domain.call(service)).collect();
        assert_eq!(subjects.len(), odd.len());
        for subject in subjects {
            assert_eq!(subject.split('.').count(), 4, "{subject}");
            assert!(!subject.contains(['*', '>']), "{subject}");
        }
    }
}
