//! What the environment asks of the runtime: the `NDRX_` variables that clients, workers and the
//! manager share.
//!
//! Read once, at the start, and passed on as plain data: nothing else of the crate looks at the
//! environment for these. Variables of one part alone (the manager's configuration, field tables)
//! are read by that part.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use crate::access::{GROUP_VARIABLE, Group};
use crate::config::PoolConfig;
use crate::queue::Prefix;

/// The settings, with their defaults filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    /// What the names of all queues begin with: `NDRX_QPREFIX`, else [`DEFAULT_PREFIX`].
    pub prefix: Prefix,
    /// How long a call may take: `NDRX_TOUT` in seconds. `None` leaves it to the pool.
    pub timeout: Option<Duration>,
    /// Messages that a service queue holds: `NDRX_MSGMAX`. `None` leaves it to the kernel.
    pub messages_max: Option<u32>,
    /// Bytes of a message: `NDRX_MSGSIZEMAX`. `None` for [`DEFAULT_MESSAGE_LEN_BYTES`].
    pub message_len_bytes: Option<u32>,
    /// How requests travel in a pool that is started: `POLLUX_POOL_TRANSPORT`. `None` leaves it to the
    /// configuration.
    pub transport: Option<Transport>,
    /// Whose members use a pool of another one of them: `POLLUX_POOL_GROUP`, by name or number.
    pub group: Option<Group>,
}

/// How requests travel from clients to workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// By POSIX message queues.
    Queues,
    /// In memory that all of them share.
    #[default]
    Memory,
}

impl Transport {
    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Memory => "memory",
        }
    }

    /// Where requests are, in words: `in shared memory`, `by queues`.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Queues => "by queues",
            Self::Memory => "in shared memory",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Queues, Self::Memory].into_iter().find(|known| known.name() == name)
    }
}

/// The variable that says how requests travel, over what the configuration says.
pub const TRANSPORT_VARIABLE: &str = "POLLUX_POOL_TRANSPORT";
/// The prefix where none is given.
pub const DEFAULT_PREFIX: &str = "/pollux";
/// How long a call may take where neither client nor pool say otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a message by default: a page. What is longer goes by a memfd.
pub const DEFAULT_MESSAGE_LEN_BYTES: u32 = 4096;
/// The shortest message: a head and some data, so that small calls need no memfd.
pub const MESSAGE_LEN_BYTES_MIN: u32 = 256;
/// The longest message that the kernel allows at all (`HARD_MSGSIZEMAX`).
pub const MESSAGE_LEN_BYTES_MAX: u32 = 16 << 20;
/// The deepest queue that the kernel allows at all (`HARD_MSGMAX`).
pub const MESSAGES_MAX: u32 = 65_536;
/// The longest time-out that is counted; longer ones are this long (a year).
pub const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A variable whose value makes no sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadVariable {
    /// The variable.
    pub name: &'static str,
    /// Its value, as far as it is text.
    pub value: String,
    /// What would be right.
    pub wanted: String,
}

impl fmt::Display for BadVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.escape_debug();
        write!(f, "{}=`{value}` in the environment: {}", self.name, self.wanted)
    }
}

impl std::error::Error for BadVariable {}

impl Environment {
    /// The settings of this process.
    ///
    /// # Errors
    /// The first variable whose value makes no sense.
    pub fn of_process() -> Result<Self, BadVariable> {
        Self::read(|name| std::env::var_os(name))
    }

    /// How requests travel in a pool of this configuration: as the environment says, else as it says.
    #[must_use]
    pub fn transport_of(&self, config: &PoolConfig) -> Transport {
        self.transport.or(config.settings.transport).unwrap_or_default()
    }

    /// The settings that `variable` gives; an empty value counts as none.
    ///
    /// # Errors
    /// The first variable whose value makes no sense.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, BadVariable> {
        let text = |name: &'static str| {
            let value = variable(name).unwrap_or_default();
            let value = value.to_string_lossy().trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let number = |name, least, most| {
            text(name).map(|value| whole_number(name, &value, least, most)).transpose()
        };
        let prefix = text("NDRX_QPREFIX").unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        let prefix = Prefix::new(&prefix).map_err(|mistake| BadVariable {
            name: "NDRX_QPREFIX",
            value: prefix,
            wanted: mistake.to_string(),
        })?;
        let timeout_s = number("NDRX_TOUT", 1, u32::MAX)?;
        let transport = text(TRANSPORT_VARIABLE).map(|value| {
            let bad = |value| BadVariable {
                name: TRANSPORT_VARIABLE,
                value,
                wanted: "give a transport: memory or queues".to_owned(),
            };
            Transport::named(&value).ok_or_else(|| bad(value))
        });
        let group = text(GROUP_VARIABLE).map(|value| {
            let bad = |wanted| BadVariable { name: GROUP_VARIABLE, value: value.clone(), wanted };
            Group::of_machine(&value).map_err(bad)
        });
        Ok(Self {
            prefix,
            timeout: timeout_s.map(|s| Duration::from_secs(s.into()).min(TIMEOUT_MAX)),
            messages_max: number("NDRX_MSGMAX", 1, MESSAGES_MAX)?,
            message_len_bytes: number(
                "NDRX_MSGSIZEMAX",
                MESSAGE_LEN_BYTES_MIN,
                MESSAGE_LEN_BYTES_MAX,
            )?,
            transport: transport.transpose()?,
            group: group.transpose()?,
        })
    }
}

fn whole_number(
    name: &'static str,
    value: &str,
    least: u32,
    most: u32,
) -> Result<u32, BadVariable> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| BadVariable {
        name,
        value: value.to_owned(),
        wanted: format!("give a whole number from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, BadVariable> {
        Environment::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        let bare = read(&[]).expect("defaults");
        assert_eq!(bare.prefix.as_str(), "/pollux");
        assert_eq!((bare.timeout, bare.messages_max, bare.message_len_bytes), (None, None, None));
        assert_eq!(read(&[("NDRX_QPREFIX", ""), ("NDRX_TOUT", " ")]), Ok(bare));
    }

    #[test]
    fn what_is_given_is_taken() {
        let given = [
            ("NDRX_QPREFIX", "/app1"),
            ("NDRX_TOUT", "5"),
            ("NDRX_MSGMAX", "100"),
            ("NDRX_MSGSIZEMAX", "8192"),
            ("POLLUX_POOL_TRANSPORT", "memory"),
        ];
        let environment = read(&given).expect("all good");
        assert_eq!(environment.prefix.as_str(), "/app1");
        assert_eq!(environment.timeout, Some(Duration::from_secs(5)));
        assert_eq!(environment.messages_max, Some(100));
        assert_eq!(environment.message_len_bytes, Some(8192));
        assert_eq!(environment.transport, Some(Transport::Memory));
    }

    #[test]
    fn a_mistake_names_variable_value_and_remedy() {
        for (name, value) in [
            ("NDRX_QPREFIX", "app1"),
            ("NDRX_TOUT", "0"),
            ("NDRX_TOUT", "soon"),
            ("NDRX_MSGMAX", "-1"),
            ("NDRX_MSGSIZEMAX", "100"),
            ("POLLUX_POOL_TRANSPORT", "memfd"),
            ("POLLUX_POOL_GROUP", "no group of this name"),
        ] {
            let said = read(&[(name, value)]).expect_err(name).to_string();
            assert!(said.starts_with(&format!("{name}=`{value}`")), "{said}");
            let is_remedy =
                ["give a", "give the name", "expected"].iter().any(|way| said.contains(way));
            assert!(is_remedy, "{said}");
        }
    }
}
