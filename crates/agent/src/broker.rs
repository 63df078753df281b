//! The connection to the broker, and which subjects there are.
//!
//! | subject | content |
//! |---|---|
//! | `pollux-load.GROUP.hello` | a question that each agent of the group answers |
//! | `pollux-load.GROUP.agent.NAME` | what one agent is asked |
//!
//! Answers come to inboxes of the client. The login is read from a file and shown nowhere.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, RequestErrorKind, ServerAddr};
use pollux_load::campaign::{AgentName, CampaignReply, CampaignRequest};
use pollux_settings::command::output::{self, Failure};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::flags::{BrokerFlags, NATS_DEFAULT};

/// The environment variable that stands for `--nats`.
const NATS_VARIABLE: &str = "POLLUX_NATS";
/// How long the first connection may take.
const FIRST_TRY: Duration = Duration::from_secs(2);
/// Between two tries to connect again: short, for agents stop after five seconds without a message.
const AGAIN_AFTER_MS: std::ops::Range<u64> = 80..160;
/// The longest file with a login.
const LOGIN_BYTES_MAX: u64 = 4096;
/// Messages that wait in this process at most: answers of many agents, and what one agent is asked. Each may be a megabyte
/// long; what comes beyond that is lost.
const WAITING_MAX: usize = 4096;
const WAITING_OF_AGENT_MAX: usize = 256;

/// What happens again and again is logged each time until it did so often.
const LOGGED_EACH: u64 = 16;

/// Whether something is logged that happens for the time with this number: ever more rarely, so that no sender fills a disk.
pub(crate) fn is_logged(count: u64) -> bool {
    count <= LOGGED_EACH || count.is_power_of_two()
}

/// A connection to the broker.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    pub(crate) client: Client,
    group: AgentName,
    /// Since when there is a connection; none while there is not.
    connected: watch::Receiver<Option<Instant>>,
}

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum AskError {
    /// Nobody listens on that subject, or did not answer in time, or there is no connection now.
    Silent(String),
    /// What came as a reply is none.
    Unread(String),
    /// It will not be sent, however often it is tried.
    Final(String),
}

impl Broker {
    /// Connects. Without a broker an agent tries again and again, since hosts start in any order; the controller does not.
    pub(crate) async fn connect(
        flags: &BrokerFlags,
        who: &str,
        is_patient: bool,
    ) -> Result<Self, Failure> {
        let text = named(flags);
        let servers = servers(&text).map_err(Failure::usage)?;
        let login = flags.nats_login.as_deref().map(login).transpose().map_err(Failure::usage)?;
        if let Some(ca) = &flags.nats_ca {
            let unread = |error| Failure::usage(format!("--nats-ca {}: {error}", ca.display()));
            std::fs::metadata(ca).map_err(unread)?;
        }
        let (sender, connected) = watch::channel(None);
        let waiting = if is_patient { WAITING_OF_AGENT_MAX } else { WAITING_MAX };
        let options = options(flags, who, login.clone(), sender.clone());
        let options = options.subscription_capacity(waiting);
        let first = tokio::time::timeout(FIRST_TRY, options.connect(&*servers)).await;
        let why = match first {
            Ok(Ok(client)) => {
                return Ok(Self { client, group: flags.group.clone(), connected });
            }
            Ok(Err(error)) => output::error_chain(&error),
            Err(_) => format!("no answer within {FIRST_TRY:?}"),
        };
        if !is_patient {
            return Err(Failure::failed(format!(
                "the broker {text}: {why}; start one (nats-server), or name it with --nats"
            )));
        }
        output::remark(&format!(
            "{who}: {text}: {why}; it is tried again until there is a connection"
        ));
        let options = options_again(flags, who, login, sender).subscription_capacity(waiting);
        let client = options.connect(&*servers).await;
        let client = client.map_err(|error| Failure::failed(format!("{text}: {error}")))?;
        Ok(Self { client, group: flags.group.clone(), connected })
    }

    /// Where each agent of the group is asked.
    pub(crate) fn hello(&self) -> String {
        format!("pollux-load.{}.hello", self.group)
    }

    /// Where one agent is asked.
    pub(crate) fn agent(&self, name: &AgentName) -> String {
        format!("pollux-load.{}.agent.{name}", self.group)
    }

    /// Since when there is a connection; none while there is not.
    pub(crate) fn connected_since(&self) -> Option<Instant> {
        *self.connected.borrow()
    }

    /// Asks one agent.
    pub(crate) async fn ask(
        &self,
        name: &AgentName,
        request: &CampaignRequest,
        patience: Duration,
    ) -> Result<CampaignReply, AskError> {
        let bytes = request.encode();
        let asked = async_nats::Request::new().payload(bytes.into()).timeout(Some(patience));
        let message = self.client.send_request(self.agent(name), asked).await;
        let message = message.map_err(|error| match error.kind() {
            RequestErrorKind::MaxPayloadExceeded => AskError::Final(error.to_string()),
            RequestErrorKind::NoResponders => AskError::Silent("nobody listens".to_owned()),
            RequestErrorKind::TimedOut => {
                AskError::Silent(format!("no answer within {patience:?}"))
            }
            _ => AskError::Silent(error.to_string()),
        })?;
        let reply = CampaignReply::decode(&message.payload);
        reply.map_err(|error| AskError::Unread(format!("what it answered: {error}")))
    }
}

/// The hosts of its servers; none where they can't be read, which is reported when it is connected to.
pub(crate) fn hosts(flags: &BrokerFlags) -> Vec<String> {
    let servers = servers(&named(flags)).unwrap_or_default();
    servers.iter().map(|server| server.host().to_owned()).collect()
}

fn named(flags: &BrokerFlags) -> String {
    let text = flags.nats.clone().or_else(|| std::env::var(NATS_VARIABLE).ok());
    text.unwrap_or_else(|| NATS_DEFAULT.to_owned())
}

fn options(
    flags: &BrokerFlags,
    who: &str,
    login: Option<Login>,
    connected: watch::Sender<Option<Instant>>,
) -> ConnectOptions {
    let said = who.to_owned();
    let lost = AtomicU64::new(0);
    let mut options = ConnectOptions::new()
        .name(who)
        .reconnect_delay_callback(|_| Duration::from_millis(fastrand::u64(AGAIN_AFTER_MS)))
        .event_callback(move |event| {
            match event {
                Event::Connected => {
                    connected.send_replace(Some(Instant::now()));
                }
                Event::Disconnected | Event::Closed => {
                    connected.send_replace(None);
                    let count = lost.fetch_add(1, Relaxed) + 1;
                    if is_logged(count) {
                        output::remark(&format!(
                            "{said}: the connection to the broker was lost ({count} in all)"
                        ));
                    }
                }
                _ => {}
            }
            std::future::ready(())
        });
    options = match login {
        None => options,
        Some(Login::Token(token)) => options.token(token),
        Some(Login::User(name, password)) => options.user_and_password(name, password),
    };
    match flags.nats_ca.clone() {
        None => options,
        Some(ca) => options.add_root_certificates(ca),
    }
}

fn options_again(
    flags: &BrokerFlags,
    who: &str,
    login: Option<Login>,
    connected: watch::Sender<Option<Instant>>,
) -> ConnectOptions {
    options(flags, who, login, connected).retry_on_initial_connect()
}

/// What the broker is shown.
#[derive(Clone, PartialEq, Eq)]
enum Login {
    Token(String),
    User(String, String),
}

fn login(path: &Path) -> Result<Login, String> {
    use std::io::Read as _;
    let at = |what: &dyn std::fmt::Display| format!("--nats-login {}: {what}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| at(&error))?;
    let mode = file.metadata().map_err(|error| at(&error))?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        let shown = path.display();
        return Err(at(&format!(
            "others can read or write it (mode {mode:04o}); expected mode 0600: chmod 600 {shown}"
        )));
    }
    file.take(LOGIN_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| at(&error))?;
    if text.len() as u64 > LOGIN_BYTES_MAX {
        return Err(at(&format!(
            "more than {LOGIN_BYTES_MAX} bytes; expected USER:PASSWORD or TOKEN"
        )));
    }
    let text = text.trim();
    if text.contains(char::is_control) {
        return Err(at(&"more than a line; expected USER:PASSWORD or TOKEN"));
    }
    if text.is_empty() {
        return Err(at(&"it is empty; expected USER:PASSWORD or TOKEN"));
    }
    Ok(match text.split_once(':') {
        None => Login::Token(text.to_owned()),
        Some((name, password)) => Login::User(name.to_owned(), password.to_owned()),
    })
}

fn servers(text: &str) -> Result<Vec<ServerAddr>, String> {
    let server = |part: &str| {
        let part = part.trim();
        let (scheme, host) = part.split_once("://").unwrap_or(("nats", part));
        if host.contains('@') {
            // Not repeated: it is a password.
            return Err("--nats: a login in the address, which lists of processes show; expected it in a file, \
                        --nats-login FILE"
                .to_owned());
        }
        let wrong = |why: &str| {
            format!(
                "--nats: \"{part}\" is not an address of a broker: {why}; expected nats://HOST:PORT"
            )
        };
        let read: ServerAddr =
            format!("{scheme}://{host}").parse().map_err(|error| wrong(&format!("{error}")))?;
        if !matches!(scheme, "nats" | "tls") || read.host().is_empty() {
            return Err(wrong("it needs a host, and nats:// or tls:// before it"));
        }
        Ok(read)
    };
    text.split(',').map(server).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn addresses_of_a_broker_are_read_and_mistakes_named() {
        assert_eq!(servers("nats://h:4223, tls://x").expect("two").len(), 2);
        assert_eq!(servers("h").expect("one")[0].port(), 4222);
        for (text, says) in [
            ("http://x", "nats://HOST:PORT"),
            ("nats://", "nats://HOST:PORT"),
            ("nats://user:secret@h", "--nats-login FILE"),
        ] {
            let error = servers(text).expect_err(text);
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_login_is_read_from_a_file_and_repeated_nowhere() {
        let folder = std::env::temp_dir().join(format!("pollux-agent-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("login");
        for (text, read) in [
            ("user:se:cret\n", Some(Login::User("user".to_owned(), "se:cret".to_owned()))),
            ("token", Some(Login::Token("token".to_owned()))),
            ("\n", None),
        ] {
            std::fs::write(&file, text).expect("written");
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its own");
            assert!(login(&file).ok() == read, "{text}");
        }
        for (mode, text, says) in [
            (
                0o644,
                "token",
                "others can read or write it (mode 0644); expected mode 0600: chmod 600 ",
            ),
            (0o602, "token", "mode 0602"),
            (0o600, "a\nb", "more than a line"),
            (0o640, &*"x".repeat(4_097), "more than 4096 bytes"),
        ] {
            std::fs::write(&file, text).expect("written");
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its own");
            assert!(login(&file).err().is_some_and(|why| why.contains(says)), "{says}");
        }
        assert!(login(&folder.join("none")).err().is_some_and(|why| why.contains("--nats-login")));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
