//! The settings of a bridge: on its command line by the pool's configuration, and by the manager.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use pollux_xatmi::environment::Environment;
use pollux_xatmi::pool::{EXPORTS_VARIABLE, REFRESH_VARIABLE};

use crate::domain::Domain;
use crate::others::POOL_LEN_BYTES_MAX;
use crate::servers::Servers;

/// The environment variable that stands for `--nats`: what it holds is in no list of processes.
pub(crate) const NATS_VARIABLE: &str = "POLLUX_NATS";
/// The broker when nothing is said.
const NATS_DEFAULT: &str = "nats://127.0.0.1:4222";

/// The longest time between two service lists: a day.
const REFRESH_S_MAX: u64 = 24 * 3600;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
