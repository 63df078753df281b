//! All certificates, looked at again and again: what is due is ordered, what failed is tried later, and the server is reloaded once for
//! all that is new.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pollux_settings::command::output::{self, Failure};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::authority::{self, Authority};
use crate::flags::AcmeFlags;
use crate::held::{self, Due, Held};
use crate::order;
use crate::reload::reload;
use crate::trouble::Trouble;
use crate::wanted::{Wanted, WantedCertificate};

/// Longest time between two looks: settings may have changed, and authorities ask for a look at least daily.
const LOOK_EVERY: Duration = Duration::from_secs(6 * 3600);
/// The pause after a first failure: authorities count failed tries of an hour, five at most.
const PAUSE_MIN: Duration = Duration::from_secs(300);
/// A file of the state: a certificate is new, and the server has not been asked to read it.
const RELOAD_FILE: &str = "reload";
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(12 * 3600);

/// How often an order is tried at once: each request of it is sent three times where its number is refused.
const TRIES: u32 = 5;

/// How a certificate stands.
enum Standing {
    /// It is renewed then.
    Current(Box<Held>, SystemTime),
    Due(Due, Option<Box<Held>>),
    Wrong(String),
}

/// What became of a certificate in a round.
enum Became {
    /// It is renewed then.
    Current(SystemTime, SystemTime),
    Issued(SystemTime),
    /// Another one is ordered, but not now.
    Due(Due),
    Failed(String),
}

/// What failed, and when it is tried again.
#[derive(Clone, Copy)]
struct Pause {
    failures: u32,
    until: Instant,
}

/// Says how all certificates stand; the authority is not asked.
pub(crate) fn check(flags: &AcmeFlags) -> Result<ExitCode, Failure> {
    let wanted = Wanted::read(flags).map_err(Failure::usage)?;
    wanted.remarks.iter().for_each(|remark| output::remark(remark));
    let mut all = Vec::new();
    for certificate in &wanted.certificates {
        let became = match stand(certificate, flags, false) {
            Standing::Current(held, renewal) => Became::Current(held.until, renewal),
            Standing::Due(due, _) => Became::Due(due),
            Standing::Wrong(why) => Became::Failed(why),
        };
        all.push((certificate, became));
    }
    if flags.json {
        output::result(&as_json(flags, &all))?;
    } else {
        let lines = all.iter().map(|(certificate, became)| line(flags, certificate, became));
        output::result(&lines.collect::<Vec<_>>().join("\n"))?;
        for folder in [&wanted.folder, &wanted.challenges] {
            if !folder.is_dir() {
                output::remark(&format!(
                    "{} is not there: it is made at the first order",
                    folder.display()
                ));
            }
        }
    }
    Ok(code(&all))
}

/// Orders what is due, once or until a signal ends it.
pub(crate) async fn run(flags: &AcmeFlags) -> Result<ExitCode, Failure> {
    let mut wanted = Wanted::read(flags).map_err(Failure::usage)?;
    let _held_by_us = authority::lock(&flags.state).map_err(Failure::failed)?;
    let mut rounds = Rounds {
        flags,
        authority: Authority::new(flags).map_err(Failure::usage)?,
        pauses: HashMap::new(),
    };
    let listen = |kind| signal(kind).map_err(Failure::failed);
    let mut ends = [listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?];
    let mut asked = listen(SignalKind::hangup())?;
    wanted.remarks.iter().for_each(|remark| output::remark(remark));
    loop {
        let [terminated, interrupted] = &mut ends;
        // What an order under way has put into the folder of challenges goes with it.
        let (all, is_reloaded) = tokio::select! {
            done = rounds.round(&wanted) => done?,
            () = came(terminated) => return Ok(ExitCode::SUCCESS),
            () = came(interrupted) => return Ok(ExitCode::SUCCESS),
        };
        if flags.once {
            if flags.json {
                output::result(&as_json(flags, &all))?;
            }
            return Ok(if is_reloaded { code(&all) } else { ExitCode::from(1) });
        }
        let soon = Instant::now() + PAUSE_MIN;
        let next = rounds.next(&all);
        let next = if is_reloaded { next } else { next.min(soon) };
        let [terminated, interrupted] = &mut ends;
        tokio::select! {
            () = sleep_until(next) => {}
            () = came(&mut asked) => rounds.pauses.clear(),
            () = came(terminated) => return Ok(ExitCode::SUCCESS),
            () = came(interrupted) => return Ok(ExitCode::SUCCESS),
        }
        match Wanted::read(flags) {
            Ok(read) => wanted = read,
            Err(why) => output::error(&format!("the settings are those from before: {why}")),
        }
    }
}

async fn came(signal: &mut Signal) {
    signal.recv().await;
}

/// How a certificate stands, by its file alone.
fn stand(wanted: &WantedCertificate, flags: &AcmeFlags, is_asked: bool) -> Standing {
    let held = match Held::read(&wanted.file) {
        Ok(Some(held)) => Box::new(held),
        Ok(None) => return Standing::Due(Due::Missing, None),
        Err(why) => return Standing::Wrong(why),
    };
    match held.differs(&wanted.names, flags.directory(), flags.is_staging()) {
        Err(why) => Standing::Wrong(format!("{}: {why}", wanted.file.display())),
        Ok(Some(due)) => Standing::Due(due, Some(held)),
        Ok(None) if is_asked => Standing::Due(Due::Asked, Some(held)),
        Ok(None) if held.renewal() <= SystemTime::now() => Standing::Due(Due::Age, Some(held)),
        Ok(None) => {
            let renewal = held.renewal();
            Standing::Current(held, renewal)
        }
    }
}

struct Rounds<'f> {
    flags: &'f AcmeFlags,
    authority: Authority,
    /// By file.
    pauses: HashMap<PathBuf, Pause>,
}

impl Rounds<'_> {
    /// Looks at all certificates once; what became of each, and whether the server knows what is new.
    async fn round<'w>(
        &mut self,
        wanted: &'w Wanted,
    ) -> Result<(Vec<(&'w WantedCertificate, Became)>, bool), Failure> {
        self.pauses.retain(|file, _| wanted.certificates.iter().any(|it| it.file == *file));
        let mut all = Vec::new();
        let mark = self.flags.state.join(RELOAD_FILE);
        for certificate in &wanted.certificates {
            let became = self.look(certificate, wanted).await?;
            match &became {
                Became::Issued(_) => {
                    self.pauses.remove(&certificate.file);
                    output::remark(&line(self.flags, certificate, &became));
                }
                Became::Failed(why) => output::error(why),
                Became::Current(..) | Became::Due(_) => {}
            }
            all.push((certificate, became));
        }
        // Also of an earlier round or process, which did not come so far.
        let told =
            if mark.exists() { reload(wanted).map(|how| output::remark(&how)) } else { Ok(()) };
        match &told {
            Ok(()) => _ = std::fs::remove_file(&mark),
            Err(why) => output::error(why),
        }
        Ok((all, told.is_ok()))
    }

    async fn look(&mut self, wanted: &WantedCertificate, all: &Wanted) -> Result<Became, Failure> {
        let standing = match stand(wanted, self.flags, self.flags.renew) {
            // The authority may know better, where it knows this account.
            Standing::Current(held, renewal) if self.flags.agree_terms => {
                let asked = self.authority.account(&self.flags.state).await.is_ok();
                let said = if asked { self.authority.renewal(&held).await } else { None };
                match said {
                    Some(moment) if moment <= SystemTime::now() => {
                        Standing::Due(Due::Age, Some(held))
                    }
                    Some(moment) => Standing::Current(held, moment),
                    None => Standing::Current(held, renewal),
                }
            }
            standing => standing,
        };
        if !matches!(standing, Standing::Due(..)) {
            self.pauses.remove(&wanted.file);
        }
        let (due, held) = match standing {
            Standing::Current(held, renewal) => return Ok(Became::Current(held.until, renewal)),
            Standing::Wrong(why) => return Ok(Became::Failed(why)),
            Standing::Due(due, held) => (due, held),
        };
        if self.pauses.get(&wanted.file).is_some_and(|pause| pause.until > Instant::now()) {
            return Ok(Became::Due(due));
        }
        if !self.flags.agree_terms {
            return Err(self.disagreed().await);
        }
        match self.order(wanted, all, held.as_deref()).await {
            Ok(got) => Ok(Became::Issued(got.until)),
            Err(trouble) => {
                let pause = self.pause(&wanted.file, &trouble);
                let stays = if held.is_some() { "; the certificate there stays" } else { "" };
                let again = if self.flags.once {
                    String::new()
                } else {
                    format!("; the next try is in {} min", pause.as_secs().div_ceil(60))
                };
                Ok(Became::Failed(format!("{}{stays}{again}", trouble.text)))
            }
        }
    }

    /// Gets a certificate and puts it into its place, in several tries where the authority refuses numbers of its own.
    async fn order(
        &mut self,
        wanted: &WantedCertificate,
        all: &Wanted,
        held: Option<&Held>,
    ) -> Result<Held, Trouble> {
        for _ in 1..TRIES {
            match self.order_once(wanted, all, held).await {
                Err(trouble) if trouble.is_of_nonces => {}
                done => return done,
            }
        }
        self.order_once(wanted, all, held).await
    }

    async fn order_once(
        &mut self,
        wanted: &WantedCertificate,
        all: &Wanted,
        held: Option<&Held>,
    ) -> Result<Held, Trouble> {
        order::prepare(&all.challenges)?;
        std::fs::create_dir_all(&all.folder)
            .map_err(|error| format!("{}: {error}", all.folder.display()))?;
        let directory = self.flags.directory();
        let before = held.filter(|held| held.directory == directory);
        let before = before.and_then(Held::identifier);
        let account = self.authority.account(&self.flags.state).await?;
        let got = order::get(account, wanted, &all.challenges, before).await?;
        let mark = self.flags.state.join(RELOAD_FILE);
        std::fs::write(&mark, "").map_err(|error| format!("{}: {error}", mark.display()))?;
        Ok(held::replace(&wanted.file, directory, &wanted.names, &got.chain, &got.key)?)
    }

    /// How long nothing is ordered for a file after this failure.
    fn pause(&mut self, file: &Path, trouble: &Trouble) -> Duration {
        let failures = self.pauses.get(file).map_or(0, |pause| pause.failures);
        let pause = pause_after(failures).max(trouble.pause);
        let pause_of_file = Pause { failures: failures + 1, until: Instant::now() + pause };
        self.pauses.insert(file.to_owned(), pause_of_file);
        pause
    }

    /// When the next look is.
    fn next(&self, all: &[(&WantedCertificate, Became)]) -> Instant {
        let now = Instant::now();
        let renewals = all.iter().filter_map(|(_, became)| match became {
            Became::Current(_, renewal) => {
                Some(now + renewal.duration_since(SystemTime::now()).unwrap_or_default())
            }
            _ => None,
        });
        let pauses = self.pauses.values().map(|pause| pause.until);
        renewals
            .chain(pauses)
            .fold(now + LOOK_EVERY, Instant::min)
            .max(now + Duration::from_secs(1))
    }

    /// Nothing is ordered whose terms nobody has agreed to.
    async fn disagreed(&self) -> Failure {
        let directory = self.flags.directory();
        match self.authority.terms().await {
            Ok(terms) => {
                let terms = terms.map_or_else(
                    || "its terms of service".to_owned(),
                    |url| format!("its terms of service, {url}"),
                );
                Failure::usage(format!(
                    "nothing is ordered at {directory} before somebody agrees to {terms}; expected --agree-terms"
                ))
            }
            Err(why) => Failure::usage(format!(
                "nothing is ordered at {directory} without --agree-terms; its terms of service could not be asked for: {why}"
            )),
        }
    }
}

/// The pause after so many failures before.
fn pause_after(failures: u32) -> Duration {
    PAUSE_MIN.saturating_mul(3_u32.saturating_pow(failures.min(10))).min(PAUSE_MAX)
}

/// What a certificate is, for people.
fn line(flags: &AcmeFlags, wanted: &WantedCertificate, became: &Became) -> String {
    let title = wanted.title();
    let file = wanted.file.display();
    match became {
        Became::Current(until, renewal) => {
            format!(
                "{title}: {file} is good until {}, renewed from {}",
                shown(*until),
                shown(*renewal)
            )
        }
        Became::Issued(until) => format!("{title}: {file} is new, good until {}", shown(*until)),
        Became::Due(due) => {
            format!(
                "{title}: one is ordered at {} into {file}: {}",
                flags.directory(),
                due_words(due)
            )
        }
        Became::Failed(why) => why.clone(),
    }
}

fn due_words(due: &Due) -> String {
    match due {
        Due::Missing => "there is none".to_owned(),
        Due::OtherNames => "the one there has other names".to_owned(),
        Due::OtherAuthority(directory) => format!("the one there is of {directory}"),
        Due::Age => "it is time".to_owned(),
        Due::Asked => "asked for by --renew".to_owned(),
    }
}

/// The same for programs.
fn as_json(flags: &AcmeFlags, all: &[(&WantedCertificate, Became)]) -> String {
    let of_one = |(wanted, became): &(&WantedCertificate, Became)| {
        let (state, until, renewal, why) = match became {
            Became::Current(until, renewal) => ("current", Some(*until), Some(*renewal), None),
            Became::Issued(until) => ("issued", Some(*until), None, None),
            Became::Due(due) => ("due", None, None, Some(due_words(due))),
            Became::Failed(why) => ("failed", None, None, Some(why.clone())),
        };
        json!({
            "names": wanted.names,
            "file": wanted.file.display().to_string(),
            "state": state,
            "expires": until.map(shown),
            "renewal": renewal.map(shown),
            "why": why,
        })
    };
    let certificates: Vec<_> = all.iter().map(of_one).collect();
    let report = json!({ "directory": flags.directory(), "certificates": certificates });
    serde_json::to_string_pretty(&report).expect("it is JSON")
}

/// A moment, to the second.
fn shown(moment: SystemTime) -> String {
    let second =
        Timestamp::try_from(moment).ok().and_then(|at| Timestamp::from_second(at.as_second()).ok());
    second.map_or_else(|| "a time that can't be shown".to_owned(), |at| at.to_string())
}

fn code(all: &[(&WantedCertificate, Became)]) -> ExitCode {
    let has_failed = all.iter().any(|(_, became)| matches!(became, Became::Failed(_)));
    ExitCode::from(u8::from(has_failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_day() {
        let minutes: Vec<u64> =
            (0..7).map(|failures| pause_after(failures).as_secs() / 60).collect();
        assert_eq!(minutes, [5, 15, 45, 135, 405, 720, 720]);
        assert_eq!(pause_after(u32::MAX), PAUSE_MAX);
    }
}
