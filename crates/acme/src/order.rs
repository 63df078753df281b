//! One order: the authority gets the names, each name is shown to be this server's by a file, and a certificate is got for
//! a new key.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, RetryPolicy,
};

use crate::trouble::Trouble;
use crate::wanted::WantedCertificate;

/// For all of an order: authorities look from several places, and queue when they are busy.
const ORDER_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the authority is asked what has become of it.
const POLLS: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));
/// Longest token; it is the name of a file.
const TOKEN_BYTES_MAX: usize = 200;
/// What an earlier process left in the folder is removed after so long.
const LEFT_FOR: Duration = Duration::from_secs(24 * 3600);
/// An answer to a challenge is shorter; the server sends no more of a file either.
const ANSWER_BYTES_MAX: u64 = 1024;

/// What was got.
pub(crate) struct Got {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// Gets a certificate.
///
/// # Errors
/// What keeps it from that, in words. No file is left in the folder of challenges.
pub(crate) async fn get(
    account: &Account,
    wanted: &WantedCertificate,
    challenges: &Path,
    replaces: Option<CertificateIdentifier<'_>>,
) -> Result<Got, Trouble> {
    let ordered =
        tokio::time::timeout(ORDER_TIMEOUT, ordered(account, wanted, challenges, replaces));
    let late = |_| {
        Trouble::from(format!(
            "{}: no certificate within {} s",
            wanted.title(),
            ORDER_TIMEOUT.as_secs()
        ))
    };
    ordered.await.map_err(late)?
}

async fn ordered(
    account: &Account,
    wanted: &WantedCertificate,
    challenges: &Path,
    replaces: Option<CertificateIdentifier<'_>>,
) -> Result<Got, Trouble> {
    let title = wanted.title();
    let failed = |error| Trouble::of(&title, error);
    let names: Vec<Identifier> = wanted.names.iter().cloned().map(Identifier::Dns).collect();
    let plain = NewOrder::new(&names);
    let order = match replaces {
        Some(before) => match account.new_order(&NewOrder::new(&names).replaces(before)).await {
            // It may have been replaced by an order before, or be unknown by now.
            Err(Error::Api(_) | Error::Unsupported(_)) => account.new_order(&plain).await,
            answered => answered,
        },
        None => account.new_order(&plain).await,
    };
    let mut order = order.map_err(failed)?;
    let mut answers = Answers { folder: challenges, files: Vec::new() };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => {
                return Err(format!(
                    "{name}: the authority holds that it is {other:?}; the next try may pass"
                )
                .into());
            }
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::Http01) else {
            return Err(format!("{name}: the authority does not offer to look by http (http-01), and nothing else is done here; expected another --directory").into());
        };
        let answer = challenge.key_authorization();
        answers.put(&challenge.token, answer.as_str())?;
        challenge.set_ready().await.map_err(|error| Trouble::of(&name, error))?;
    }
    match order.poll_ready(&POLLS).await {
        Ok(OrderStatus::Ready) => {}
        Err(error) if is_of_nonces(&error) => return Err(failed(error)),
        Ok(_) | Err(Error::Api(_)) => return Err(refused(&mut order, &title).await),
        Err(error) => return Err(failed(error)),
    }
    let key = order.finalize().await.map_err(failed)?;
    let chain = order.poll_certificate(&POLLS).await.map_err(failed)?;
    Ok(Got { chain, key })
}

fn is_of_nonces(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if Trouble::of_problem("", problem).is_of_nonces)
}

/// Why an order was refused: what the authority says of the first name that it did not find to be this server's.
async fn refused(order: &mut Order, title: &str) -> Trouble {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else { continue };
        if let Some(problem) =
            state.challenges.iter().find_map(|challenge| challenge.error.as_ref())
        {
            return Trouble::of_problem(&name, problem);
        }
    }
    let problem = order.state().error.clone();
    let unnamed = || format!("{title}: the authority refuses it, and does not say why").into();
    problem.map_or_else(unnamed, |problem| Trouble::of_problem(title, &problem))
}

/// The files that the authority asks for, removed at the end.
struct Answers<'f> {
    folder: &'f Path,
    files: Vec<PathBuf>,
}

impl Answers<'_> {
    /// Writes the answer to a challenge, which all may read.
    fn put(&mut self, token: &str, answer: &str) -> Result<(), String> {
        if !is_token(token.as_bytes()) {
            return Err(format!(
                "the authority wants a file of the name {token:?}; expected letters, digits, - and _"
            ));
        }
        let path = self.folder.join(token);
        // One of another kind is somebody's; an earlier process may have left this very one.
        if path.symlink_metadata().is_ok() && !is_answer(&path) {
            return Err(format!(
                "{} is there, but not as an answer to a challenge",
                path.display()
            ));
        }
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).to_owned();
        let written = options.open(&path).and_then(|mut file| file.write_all(answer.as_bytes()));
        self.files.push(path);
        written.map_err(|error| {
            format!(
                "{}: {error}; expected a folder that pollux-acme may write into",
                self.folder.display()
            )
        })
    }
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        for file in &self.files {
            // What can't be removed is found by `prepare` later.
            let _ = fs::remove_file(file);
        }
    }
}

/// Makes the folder of challenges where it is missing, and removes what earlier processes left there.
///
/// # Errors
/// It can't be made or read.
pub(crate) fn prepare(folder: &Path) -> Result<(), String> {
    let wrong = |error: io::Error| format!("{}: {error}", folder.display());
    DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(wrong)?;
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file);
        let changed = meta.and_then(|meta| meta.modified().ok());
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        if age.is_some_and(|age| age > LEFT_FOR) && is_answer(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Whether this file is an answer to a challenge: its token, a dot, and what follows of a short text (RFC 8555 8.1).
fn is_answer(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(ANSWER_BYTES_MAX).read_to_end(&mut text));
    let rest = text.strip_prefix(name).filter(|_| is_token(name) && read.is_ok());
    rest.is_some_and(|rest| rest.first() == Some(&b'.') && (text.len() as u64) < ANSWER_BYTES_MAX)
}

/// Whether these are a token (RFC 8555 8.3), which begins with no dot and has no slash.
fn is_token(bytes: &[u8]) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_removed_and_a_name_that_leads_elsewhere_is_never_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("acme");
        prepare(&at).expect("made");
        let mut answers = Answers { folder: &at, files: Vec::new() };
        answers.put("to-ken_1", "to-ken_1.hash").expect("written");
        assert_eq!(fs::read_to_string(at.join("to-ken_1")).expect("there"), "to-ken_1.hash");
        for wrong in ["", "../x", "a/b", ".x", "a b", &"a".repeat(201)] {
            let why = answers.put(wrong, "x").expect_err(wrong);
            assert!(why.contains("expected letters"), "{why}");
        }
        drop(answers);
        assert_eq!(fs::read_dir(&at).expect("read").count(), 0);
    }

    #[test]
    fn what_a_process_left_is_removed_a_day_later_and_files_of_others_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str, age: Duration| {
            let mut file = File::create(folder.path().join(name)).expect("made");
            file.write_all(text.as_bytes()).expect("written");
            file.set_modified(SystemTime::now() - age).expect("set");
        };
        put("old", "old.hash", LEFT_FOR + Duration::from_secs(60));
        put("new", "new.hash", Duration::ZERO);
        put("index.html", "index.html.hash", LEFT_FOR * 2);
        put("passwd", "root:x:0:0", LEFT_FOR * 2);
        put("empty", "", LEFT_FOR * 2);
        prepare(folder.path()).expect("read");
        let left = |name: &str| folder.path().join(name).exists();
        assert_eq!(
            ["old", "new", "index.html", "passwd", "empty"].map(left),
            [false, true, true, true, true]
        );
        let mut answers = Answers { folder: folder.path(), files: Vec::new() };
        let why = answers.put("passwd", "passwd.hash").expect_err("it is somebody's");
        assert!(why.contains("not as an answer"), "{why}");
        answers.put("new", "new.other").expect("left by an earlier process");
        drop(answers);
        assert!(left("passwd") && !left("new"));
    }
}
