//! The authority: its directory and terms, the account with the key that is kept, and when it wants a certificate renewed.

use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use instant_acme::{Account, Key};
use pollux_tls::{ClientConfig, HTTP_1_1, Trust};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::acme_http::AcmeHttp;
use crate::flags::AcmeFlags;
use crate::held::{Held, write_secret};
use crate::trouble::Trouble;

/// The name of the file with the key of the account.
const KEY_FILE: &str = "account.key";
/// The name of the file that one of these programs holds.
const LOCK_FILE: &str = "lock";

/// What orders are made with.
pub(crate) struct Authority {
    http: AcmeHttp,
    directory: String,
    account: Option<Account>,
}

impl Authority {
    /// That of these flags; nothing is asked yet.
    ///
    /// # Errors
    /// The certificates by which its own is checked can't be read.
    pub(crate) fn new(flags: &AcmeFlags) -> Result<Self, String> {
        let trust = flags.ca.clone().map_or(Trust::System, Trust::File);
        let config: Arc<ClientConfig> =
            trust.config([HTTP_1_1]).map_err(|error| error.to_string())?;
        let directory = flags.directory().to_owned();
        Ok(Self { http: AcmeHttp(config), directory, account: None })
    }

    /// Where its terms of service are.
    ///
    /// # Errors
    /// It can't be asked, or answers nothing that can be read.
    pub(crate) async fn terms(&self) -> Result<Option<String>, String> {
        let page = self.http.get(&self.directory).await?;
        let parsed: serde_json::Value = serde_json::from_slice(&page).map_err(|error| {
            format!("{}: not the directory of an authority: {error}", self.directory)
        })?;
        Ok(parsed["meta"]["termsOfService"].as_str().map(ToOwned::to_owned))
    }

    /// The account of the key in this folder, opened where the authority has none yet. The terms are agreed to.
    pub(crate) async fn account(&mut self, state: &Path) -> Result<&Account, Trouble> {
        if self.account.is_none() {
            let key = account_key(&state.join(KEY_FILE))?;
            let builder = Account::builder_with_http(Box::new(self.http.clone()));
            let opened = builder.create_from_key(key, self.directory.clone()).await;
            let (account, _) = opened.map_err(|error| Trouble::of("account", error))?;
            self.account = Some(account);
        }
        Ok(self.account.as_ref().expect("it was opened"))
    }

    /// When the authority wants this certificate renewed (RFC 9773); none where it does not say.
    pub(crate) async fn renewal(&self, held: &Held) -> Option<SystemTime> {
        let (info, _) = self.account.as_ref()?.renewal_info(&held.identifier()?).await.ok()?;
        let window = info.suggested_window;
        Some(held.renewal_within(window.start.into(), window.end.into()))
    }
}

/// The key of the account; made where there is none.
fn account_key(path: &Path) -> Result<(Key, PrivateKeyDer<'static>), String> {
    let shown = path.display();
    let of_file = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (_, made) = Key::generate_pkcs8().map_err(|error| of_file(&error))?;
            let text = pem(made.secret_pkcs8_der());
            // Before the account is opened: one whose key is lost could not be used again.
            write_secret(path, text.as_bytes()).map_err(|error| of_file(&error))?;
            text
        }
        Err(error) => return Err(of_file(&error)),
    };
    let mode =
        std::fs::metadata(path).map_err(|error| of_file(&error))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{shown} can be read by others (mode {mode:04o}), and is the key of the account; expected mode 0600: chmod 600 {shown}"
        ));
    }
    let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|error| {
        format!("{shown} is not the key of an account ({error}); expected a PEM file of PKCS#8")
    })?;
    let key = Key::from_pkcs8_der(der.clone_key()).map_err(|_| {
        format!("{shown} is not the key of an account; expected one of ECDSA P-256")
    })?;
    Ok((key, PrivateKeyDer::Pkcs8(der)))
}

/// A key as PEM.
fn pem(der: &[u8]) -> String {
    let lines = base64(der);
    let lines = lines.as_bytes().chunks(64).map(|line| str::from_utf8(line).expect("it is ASCII"));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n")
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine;
    ::base64::prelude::BASE64_STANDARD.encode(bytes)
}

/// Keeps another of these programs from the same account, as long as it is held.
///
/// # Errors
/// Another one holds it, or the folder can't be made.
pub(crate) fn lock(state: &Path) -> Result<File, String> {
    let shown = state.display();
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(state).map_err(|error| format!("--state {shown}: {error}"))?;
    let path = state.join(LOCK_FILE);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(format!(
            "another pollux-acme works with {shown}; expected one at a time, or another --state"
        )),
        Err(std::fs::TryLockError::Error(error)) => Err(format!("{}: {error}", path.display())),
    }
}
