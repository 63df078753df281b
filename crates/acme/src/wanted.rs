//! Which certificates there should be: one for each site of the settings, with all of its names, or one for the names of the
//! command line.

use std::path::{Path, PathBuf};

use pollux_server::CertificateNeeds;
use pollux_server::config::serve_or_proxy::{ServeOrProxy, ServeSettings};
use pollux_settings::Given;

use crate::flags::AcmeFlags;

/// Most names that public authorities put into one certificate.
const NAMES_MAX: usize = 100;
/// Longest name, and longest part of one (RFC 1035 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// All of them, and where what belongs to them is.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) certificates: Vec<WantedCertificate>,
    /// Where authorities find answers.
    pub(crate) challenges: PathBuf,
    /// Where certificates go.
    pub(crate) folder: PathBuf,
    /// How the server is reloaded.
    pub(crate) control: Option<PathBuf>,
    pub(crate) pid_file: Option<PathBuf>,
    /// Names that are left alone, and why.
    pub(crate) remarks: Vec<String>,
}

/// One certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WantedCertificate {
    /// At least one, in small letters, as the site has them.
    pub(crate) names: Vec<String>,
    /// Called after the first name.
    pub(crate) file: PathBuf,
}

impl WantedCertificate {
    fn new(names: Vec<String>, folder: &Path) -> Self {
        let file = folder.join(format!("{}.pem", names[0]));
        Self { names, file }
    }

    /// How lines call it.
    pub(crate) fn title(&self) -> String {
        self.names.join(", ")
    }
}

impl Wanted {
    /// Reads the settings.
    ///
    /// # Errors
    /// They are wrong, or don't say where certificates or answers go: what is expected.
    pub(crate) fn read(flags: &AcmeFlags) -> Result<Self, String> {
        match &flags.config {
            Some(path) => Self::of_settings(path, flags),
            None if flags.names.is_empty() => {
                Err("which certificates? expected --config FILE, or --name with --certs and --challenges".to_owned())
            }
            None => Self::of_names(flags),
        }
    }

    fn of_names(flags: &AcmeFlags) -> Result<Self, String> {
        let names: Vec<String> = flags.names.iter().map(|name| folded(name)).collect();
        for name in &names {
            public_name(name).map_err(|why| format!("--name {name}: {why}"))?;
        }
        let names = distinct(names);
        if names.len() > NAMES_MAX {
            return Err(format!("--name: {} names; expected {NAMES_MAX} at most", names.len()));
        }
        let said = |folder: &Option<PathBuf>| folder.clone().expect("--name requires it");
        let folder = said(&flags.certs);
        Ok(Self {
            certificates: vec![WantedCertificate::new(names, &folder)],
            challenges: said(&flags.challenges),
            folder,
            control: control(flags, None),
            pid_file: None,
            remarks: Vec::new(),
        })
    }

    fn of_settings(path: &Path, flags: &AcmeFlags) -> Result<Self, String> {
        let file = Given::from_file(path, "--config").map_err(|wrong| wrong.to_string())?;
        let settings: ServeSettings = file.read().map_err(|wrong| wrong.to_string())?;
        let config = ServeOrProxy::from(settings).passes();
        let shown = path.display();
        let config =
            config.map_err(|_| format!("{shown} has no sites; expected [[site]], or --name"))?;
        let needs = CertificateNeeds::of(&config);
        let folder = match (&flags.certs, &needs.folders[..]) {
            (Some(folder), _) | (None, [folder]) => folder.clone(),
            (None, []) => {
                return Err(format!(
                    "{shown}: no front end with the sites has certs; expected certs = \"DIR\" in one, or --certs DIR"
                ));
            }
            (None, [one, other, ..]) => {
                let [one, other] = [one.display(), other.display()];
                return Err(format!(
                    "{shown}: front ends have certs in {one} and in {other}; expected --certs DIR, which says the one that is meant"
                ));
            }
        };
        let missing = || {
            format!(
                "{shown} has no acme_challenges; expected acme_challenges = \"DIR\" at the top, or --challenges DIR"
            )
        };
        let challenges = flags.challenges.clone().or(needs.challenges).ok_or_else(missing)?;
        let mut remarks = Vec::new();
        let mut certificates = Vec::new();
        for site in needs.sites {
            for domain in &site.below {
                remarks.push(format!(
                    "{domain} is left alone: authorities want a change of DNS for names with *"
                ));
            }
            let mut names = Vec::new();
            for name in site.exact {
                match public_name(&name) {
                    Ok(()) => names.push(name),
                    Err(why) => remarks.push(format!("{name} is left alone: {why}")),
                }
            }
            if names.len() > NAMES_MAX {
                let count = names.len();
                return Err(format!(
                    "{shown}: the site of {} has {count} names; expected {NAMES_MAX} at most for one certificate: make several sites",
                    names[0]
                ));
            }
            if !names.is_empty() {
                certificates.push(WantedCertificate::new(names, &folder));
            }
        }
        let control = control(flags, needs.control);
        let pid_file = needs.pid_file;
        Ok(Self { certificates, challenges, folder, control, pid_file, remarks })
    }
}

fn control(flags: &AcmeFlags, of_settings: Option<PathBuf>) -> Option<PathBuf> {
    let said = flags.control.as_ref();
    let said = said.map(|text| PathBuf::from(text.strip_prefix("unix:").unwrap_or(text)));
    said.or(of_settings)
}

fn folded(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn distinct(names: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for name in names {
        if !kept.contains(&name) {
            kept.push(name);
        }
    }
    kept
}

/// Whether an authority may issue a certificate for a name, once a file was found there.
fn public_name(name: &str) -> Result<(), String> {
    if name.contains('*') {
        return Err("authorities want a change of DNS for names with *, which is not done here; expected a name without".to_owned());
    }
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Err("an address; expected a name".to_owned());
    }
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
        return Err("not a name of a host; expected one such as www.example.org (xn-- where it has other letters)".to_owned());
    }
    if !name.contains('.') {
        return Err(
            "a name without a dot, which no authority knows; expected one such as www.example.org"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_authority_issues_for_are_named_with_what_is_expected() {
        for right in ["www.example.org", "xn--bcher-kva.example", "a.b"] {
            assert_eq!(public_name(right), Ok(()), "{right}");
        }
        for (wrong, part) in [
            ("*.example.org", "expected a name without"),
            ("localhost", "without a dot"),
            ("192.0.2.1", "an address"),
            ("a..b", "not a name of a host"),
            ("-a.b", "not a name of a host"),
            ("a_b.c", "not a name of a host"),
            ("bücher.example", "xn--"),
            (&format!("{}.example", "a".repeat(64)), "not a name of a host"),
            (&vec!["a"; 128].join("."), "not a name of a host"),
        ] {
            let why = public_name(wrong).expect_err(wrong);
            assert!(why.contains(part), "{wrong}: {why}");
        }
    }
}
