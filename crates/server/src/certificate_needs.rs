//! What `pollux-acme` has to know of the settings: which names need certificates, where those lie, and how the server is reloaded.

use std::path::PathBuf;

use crate::certificates::is_address;
use crate::config::sites::SiteConfig;
use crate::config::{ClientTls, ProxyConfig};
use crate::route::host::HostName;

/// What a program has to know that gets certificates for the sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateNeeds {
    /// The folders of front ends with the sites, each once.
    pub folders: Vec<PathBuf>,
    /// Where answers to challenges lie.
    pub challenges: Option<PathBuf>,
    /// Where the server takes orders.
    pub control: Option<PathBuf>,
    /// Where it writes its number.
    pub pid_file: Option<PathBuf>,
    /// The sites without a certificate of their own.
    pub sites: Vec<SiteNames>,
}

/// The names of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteNames {
    /// Those that a certificate is got for, in small letters.
    pub exact: Vec<String>,
    /// Domains (`*.example.org`), of which an authority wants to see more than a file.
    pub below: Vec<String>,
}

impl CertificateNeeds {
    /// Those of these settings.
    #[must_use]
    pub fn of(config: &ProxyConfig) -> Self {
        let mut folders = Vec::new();
        for front in config.frontends.iter().filter(|front| front.group.is_none()) {
            if let ClientTls::Folder(folder) = &front.tls
                && !folders.contains(folder)
            {
                folders.push(folder.clone());
            }
        }
        let sites = config.sites.all.iter().filter(|site| site.tls.keys.is_none());
        Self {
            folders,
            challenges: config.sites.challenges.clone(),
            control: config.monitoring.control.clone(),
            pid_file: config.monitoring.pid_file.clone(),
            sites: sites.map(SiteNames::of).collect(),
        }
    }
}

impl SiteNames {
    fn of(site: &SiteConfig) -> Self {
        let mut names = Self { exact: Vec::new(), below: Vec::new() };
        for host in &site.hosts {
            match host {
                HostName::Exact(name) if is_address(name) => {}
                HostName::Exact(name) => names.exact.push(name.clone()),
                HostName::Below(_) => names.below.push(host.to_string()),
                HostName::Any => {}
            }
        }
        names
    }
}
