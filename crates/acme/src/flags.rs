//! The command line of `pollux-acme`.

use std::path::PathBuf;

use clap::{Args, Parser};
use instant_acme::LetsEncrypt;
use pollux_settings::command::help::Section;
use pollux_settings::command::program::{TextCommand, long_version};

/// What stands below the flags, in help and manual.
pub(crate) fn sections(path: &str) -> Vec<Section> {
    Section::of(path, include_str!("help.txt"))
}

/// Get the certificates of sites from an authority that speaks ACME (RFC 8555), and renew them before they expire
#[derive(Debug, Parser)]
#[command(name = "pollux-acme", version)]
#[command(long_version = long_version(env!("CARGO_PKG_VERSION"), option_env!("POLLUX_COMMIT")))]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) text: Option<TextCommand>,
    #[command(flatten)]
    pub(crate) flags: AcmeFlags,
}

#[derive(Debug, Args)]
pub(crate) struct AcmeFlags {
    /// The file of settings of pollux serve or pollux proxy: each of its sites gets one certificate with all of its names, in
    /// the folder certs of its front end
    #[arg(long, value_name = "FILE", help_heading = "Certificates")]
    pub(crate) config: Option<PathBuf>,
    /// A name of one certificate, in place of those of sites; may be repeated, and all are in that certificate
    #[arg(long = "name", value_name = "NAME", help_heading = "Certificates")]
    #[arg(conflicts_with = "config", requires_all = ["certs", "challenges"])]
    pub(crate) names: Vec<String>,
    /// The folder that certificates are written into, each as NAME.pem with its key [default: certs of the settings]
    #[arg(long, value_name = "DIR", help_heading = "Certificates")]
    pub(crate) certs: Option<PathBuf>,
    /// The folder that is served below /.well-known/acme-challenge/ of each name, at port 80 [default: acme_challenges of the
    /// settings]
    #[arg(long, value_name = "DIR", help_heading = "Certificates")]
    pub(crate) challenges: Option<PathBuf>,
    /// The control socket of the server, which is asked to read new certificates: unix:PATH [default: control of the
    /// settings, else SIGHUP by their pid_file]
    #[arg(long, value_name = "unix:PATH", help_heading = "Certificates")]
    pub(crate) control: Option<String>,
    /// Agree to the terms of service of the authority; nothing is ordered before
    #[arg(long, help_heading = "Authority")]
    pub(crate) agree_terms: bool,
    /// Order at Let's Encrypt; without it at its test authority (staging), which no browser believes
    #[arg(long, help_heading = "Authority")]
    pub(crate) production: bool,
    /// Order at the authority with this directory
    #[arg(long, value_name = "URL", conflicts_with = "production", help_heading = "Authority")]
    pub(crate) directory: Option<String>,
    /// Certificates (PEM) that the one of the authority's own server is checked with, instead of the machine's
    #[arg(long, value_name = "FILE", help_heading = "Authority")]
    pub(crate) ca: Option<PathBuf>,
    /// The folder with the key of the account (account.key), made at the first order
    #[arg(long, value_name = "DIR", default_value = "/var/lib/pollux-acme")]
    #[arg(help_heading = "Authority")]
    pub(crate) state: PathBuf,
    /// Look once, order what is due, and end: for timers and cron
    #[arg(long, help_heading = "Running")]
    pub(crate) once: bool,
    /// With --once: order all certificates anew, due or not
    #[arg(long, requires = "once", help_heading = "Running")]
    pub(crate) renew: bool,
    /// Say what would be ordered, and end; nothing is asked of the authority
    #[arg(long, conflicts_with = "once", help_heading = "Running")]
    pub(crate) check: bool,
    /// With --once or --check: print the certificates as JSON
    #[arg(long, help_heading = "Running")]
    pub(crate) json: bool,
}

impl AcmeFlags {
    /// The directory of the authority.
    pub(crate) fn directory(&self) -> &str {
        match &self.directory {
            Some(url) => url,
            None if self.production => LetsEncrypt::Production.url(),
            None => LetsEncrypt::Staging.url(),
        }
    }

    /// Whether that is the authority for tests.
    pub(crate) fn is_staging(&self) -> bool {
        self.directory() == LetsEncrypt::Staging.url()
    }
}
