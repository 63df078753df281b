//! The settings of a server as one grammar: a file of `pollux serve` may have the keys of either command, and so may
//! one of `pollux proxy`. What they lead to is said by the file itself: backends, sites, or an answer of pollux's own.
//!
//! Each command is the short form whose flags are those of its own part. Keys that both have are one key, with one
//! meaning and one default. Above `config` and `proxy`, which do not know it.

use pollux_settings::{Chosen, Keys, Table};

use crate::config::ProxyConfig;
use crate::config::ServeConfig;

/// What a server does, as its settings say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServeOrProxy {
    /// It answers by itself: files, a fixed reply, an echo.
    Answers(Box<ServeConfig>),
    /// It passes requests, or bytes, on to backends, or has sites.
    Passes(Box<ProxyConfig>),
}

/// Keys and sections that say that requests go to backends.
const OF_BACKENDS: [&str; 4] = ["server", "backend", "frontend", "site"];
/// Keys that say that pollux answers itself.
const OF_ANSWERS: [&str; 3] = ["dir", "reply", "echo"];

const ANSWERS_ALONE: &str =
    "applies only where pollux answers itself; here requests go to backends";
const BACKENDS_ALONE: &str = "applies only where requests go to backends; expected [[server]], or [[frontend]] and [[backend]]";

const BESIDE_SITES: &str =
    "has no place beside [[site]]; expected what answers as a key of a [[site.route]]";

/// Why a key of an answer has no place where requests are passed on.
fn answers_alone(keys: &Keys<'_>) -> &'static str {
    if keys.names("site") { BESIDE_SITES } else { ANSWERS_ALONE }
}

/// The settings under the flags of `pollux serve`.
#[derive(Clone, Debug)]
pub struct ServeSettings(ServeOrProxy);

/// The settings under the flags of `pollux proxy`.
#[derive(Clone, Debug)]
pub struct ProxySettings(ServeOrProxy);

impl Table for ServeSettings {
    const HAS_VARIABLES: bool = true;

    fn read(keys: &mut Keys<'_>) -> Self {
        let is_passed = OF_BACKENDS.iter().any(|name| keys.names(name));
        let chosen = if is_passed { Chosen::Other } else { Chosen::Own };
        let why = answers_alone(keys);
        Self(keys.either(chosen, (why, answers), (BACKENDS_ALONE, passes)))
    }
}

impl Table for ProxySettings {
    const HAS_VARIABLES: bool = true;

    fn read(keys: &mut Keys<'_>) -> Self {
        let names = |names: &[&str]| names.iter().any(|name| keys.names(name));
        let is_answered = names(&OF_ANSWERS) && !names(&OF_BACKENDS);
        let chosen = if is_answered { Chosen::Other } else { Chosen::Own };
        let why = answers_alone(keys);
        Self(keys.either(chosen, (BACKENDS_ALONE, passes), (why, answers)))
    }
}

fn answers(keys: &mut Keys<'_>) -> ServeOrProxy {
    ServeOrProxy::Answers(Box::new(ServeConfig::read(keys)))
}

fn passes(keys: &mut Keys<'_>) -> ServeOrProxy {
    ServeOrProxy::Passes(Box::new(ProxyConfig::read(keys)))
}

impl From<ServeSettings> for ServeOrProxy {
    fn from(settings: ServeSettings) -> Self {
        settings.0
    }
}

impl From<ProxySettings> for ServeOrProxy {
    fn from(settings: ProxySettings) -> Self {
        settings.0
    }
}

impl ServeOrProxy {
    /// Those of a server that answers by itself.
    ///
    /// # Errors
    /// It passes requests on, which a server that runs cannot begin to do.
    pub fn answers(self) -> Result<ServeConfig, String> {
        match self {
            Self::Answers(config) => Ok(*config),
            Self::Passes(_) => {
                Err("the settings name backends now, which takes a restart".to_owned())
            }
        }
    }

    /// Those of a server that passes requests on.
    ///
    /// # Errors
    /// It answers by itself, which one that runs with backends cannot begin to do.
    pub fn passes(self) -> Result<ProxyConfig, String> {
        match self {
            Self::Passes(config) => Ok(*config),
            Self::Answers(_) => {
                Err("the settings name no backends now, which takes a restart".to_owned())
            }
        }
    }
}

/// What a text leads to, for tests: under the flags of each command, which must not matter.
#[cfg(test)]
pub(crate) fn settings_of(text: &str) -> Result<ServeOrProxy, String> {
    let given = pollux_settings::Given::from_toml(text, "p.toml");
    let serve = given.read::<ServeSettings>().map(ServeOrProxy::from);
    let proxy = given.read::<ProxySettings>().map(ServeOrProxy::from);
    let [serve, proxy] = [serve, proxy].map(|read| read.map_err(|wrong| wrong.to_string()));
    assert_eq!(serve, proxy, "{text}");
    serve
}

/// The same where requests go to backends or sites.
#[cfg(test)]
pub(crate) fn proxy_of(text: &str) -> Result<ProxyConfig, String> {
    settings_of(text).map(|settings| settings.passes().expect("it has sites"))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use pollux_settings::{Description, Given, GivenBy, Row, describe};

    use super::*;

    #[test]
    fn a_file_says_by_itself_whether_requests_go_to_backends() {
        assert!(matches!(settings_of("reply = 3"), Ok(ServeOrProxy::Answers(_))));
        assert!(matches!(settings_of("echo = true\n"), Ok(ServeOrProxy::Answers(_))));
        let to_one = "[[server]]\naddress = \"10.0.0.1:80\"";
        assert!(matches!(settings_of(to_one), Ok(ServeOrProxy::Passes(_))));
        let several = "[[frontend]]\nlisten = \":80\"\n[[backend]]\nname = \"a\"\n\
                       [[backend.server]]\naddress = \"10.0.0.1:80\"";
        assert!(matches!(settings_of(several), Ok(ServeOrProxy::Passes(_))));
    }

    #[test]
    fn a_key_of_the_other_kind_is_answered_with_its_place_and_what_it_is_for() {
        for (text, expected) in [
            (
                "dir = \"/srv\"\n[[server]]\naddress = \"10.0.0.1:80\"",
                "p.toml:1:1: dir: applies only where pollux answers itself; here requests go to backends",
            ),
            (
                "[[server]]\naddress = \"10.0.0.1:80\"\n[[server]]\naddress = \"10.0.0.2:80\"\ncors = \"*\"",
                "p.toml:5:1: the key \"cors\" is not for [[server]]; it belongs to the top of the file",
            ),
            (
                "reply = 1\nbalance = \"least\"",
                "p.toml:2:1: balance: applies only where requests go to backends; expected [[server]], or \
                 [[frontend]] and [[backend]]",
            ),
            (
                "reply = 1\nbalnce = 1",
                "p.toml:2:1: unknown key \"balnce\" at the top of the file; did you mean \"balance\"?",
            ),
        ] {
            assert_eq!(settings_of(text).expect_err(text), expected);
        }
    }

    #[test]
    fn a_flag_of_an_answer_beside_backends_is_reported_as_that_flag() {
        let mut flags = Given::default();
        flags.flag("dir", vec!["/srv".to_owned()]);
        flags.flag("listing", vec!["true".to_owned()]);
        let file = Given::from_toml("[[server]]\naddress = \"10.0.0.1:80\"", "p");
        let wrong = flags.over(file).read::<ServeSettings>().expect_err("both");
        assert_eq!(wrong.to_string(), format!("DIR: {ANSWERS_ALONE}\n--listing: {ANSWERS_ALONE}"));
        let mut flags = Given::default();
        flags.flag("backend", vec!["10.0.0.1:80".to_owned()]);
        let wrong = flags.over(Given::from_toml("echo = true", "p")).read::<ProxySettings>();
        let expected = format!("p:1:1: echo: {ANSWERS_ALONE}");
        assert_eq!(wrong.expect_err("both").to_string(), expected);
    }

    #[test]
    fn a_key_that_both_have_is_one_key() {
        let [serve, proxy]: [Description; 2] =
            [describe::<ServeConfig>(), describe::<ProxyConfig>()];
        let top = |of: &Description| of.sections[0].rows.clone();
        let serve = top(&serve);
        let proxy = top(&proxy);
        let mut both = 0;
        for one in &serve {
            let Some(other) = proxy.iter().find(|row| row.name == one.name) else { continue };
            both += 1;
            let name = one.name;
            assert_eq!(one.accepts, other.accepts, "{name}");
            let way = |row: &Row| (row.given_by, row.takes, row.short);
            assert_eq!(way(one), way(other), "{name}");
            assert_eq!((&one.default, &one.about), (&other.default, &other.about), "{name}");
        }
        assert!(both > 25, "{both}");
    }

    #[test]
    fn each_command_has_the_flags_of_its_own_part() {
        let names = |of: Description| of.flags().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(names(describe::<ServeSettings>()), names(describe::<ServeConfig>()));
        assert_eq!(names(describe::<ProxySettings>()), names(describe::<ProxyConfig>()));
        let all = describe::<ServeSettings>();
        let balance = all.sections[0].row("balance").expect("a key of files");
        assert_eq!(balance.given_by, GivenBy::File);
    }

    /// Every file of settings that is installed or printed, as a block of TOML, on a page of docs.
    fn files() -> Vec<(PathBuf, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = |path: &Path| std::fs::read_to_string(path).expect("readable");
        let below = |folder: &str, end: &str| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(root.join(folder)).expect("a folder");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            paths.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
        };
        let mut found = Vec::new();
        for path in below("xtask/package/etc", "toml") {
            let text = text(&path);
            found.push((path, text));
        }
        for path in below("docs", "md").into_iter().chain(below("docs/reference", "md")) {
            for block in text(&path).split("```toml\n").skip(1) {
                let block = block.split("```").next().expect("a part").to_owned();
                let is_of_servers =
                    OF_BACKENDS.iter().any(|name| block.contains(&format!("[[{name}]]")))
                        || OF_ANSWERS.iter().any(|name| {
                            block.lines().any(|line| line.starts_with(&format!("{name} = ")))
                        });
                if is_of_servers {
                    found.push((path.clone(), block));
                }
            }
        }
        found
    }

    #[test]
    fn every_file_of_settings_that_is_printed_or_installed_is_right_for_both_commands() {
        let files = files();
        for (path, text) in &files {
            let read = settings_of(text);
            assert!(read.is_ok(), "{}:\n{text}\n{}", path.display(), read.expect_err("wrong"));
        }
        assert!(files.len() > 4, "{files:?}");
    }
}
