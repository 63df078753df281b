//! The certificate that all arms of a job show to clients, made once for a job.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use pollux_load::Trust;
use rcgen::{CertificateParams, KeyPair, SanType};

/// For the address at which they listen, with its key (ECDSA P-256), in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    /// Both in one file.
    pub(super) both: PathBuf,
}

impl Certificate {
    /// The one in the job's private folder, which is made where there is none yet. Arms that start at
    /// the same time get the same.
    pub(super) fn below(scratch: &Path, address: IpAddr) -> io::Result<Self> {
        let folder = scratch.join("certificate");
        if !folder.exists() {
            let draft = scratch.join(format!("certificate-{}", std::process::id()));
            Self::write(&draft, address)?;
            if let Err(error) = fs::rename(&draft, &folder) {
                // Another arm was faster.
                fs::remove_dir_all(&draft)?;
                if !folder.exists() {
                    return Err(error);
                }
            }
        }
        Ok(Self::of(&folder))
    }

    fn of(folder: &Path) -> Self {
        let at = |name| folder.join(name);
        Self { cert: at("cert.pem"), key: at("key.pem"), both: at("both.pem") }
    }

    fn write(folder: &Path, address: IpAddr) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let files = Self::of(folder);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        let cert = params.self_signed(&key).map_err(io::Error::other)?.pem();
        let key = key.serialize_pem();
        fs::write(&files.both, format!("{cert}{key}"))?;
        fs::write(&files.key, key)?;
        fs::write(&files.cert, cert)
    }

    /// Believes this certificate alone.
    pub(super) fn trust(&self) -> Trust {
        Trust::File(self.cert.clone())
    }
}
