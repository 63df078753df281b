//! How a worker comes on board: what the manager left in its environment and among its
//! descriptors.
//!
//! Read once, when the process starts. Tests and programs that start workers in another way fill
//! [`Boarding`] in themselves.

use std::env;
use std::os::fd::{OwnedFd, RawFd};

use pollux_sys::inherited;

use crate::environment::Environment;
use crate::error::{Code, Error};
use crate::memory::WorkerMemory;
use crate::slots::Slots;

/// The variable with the numbers of the link, of the slots and of the worker's slot.
pub const LINK_VARIABLE: &str = "POLLUX_POOL_LINK";
/// The variable that says whom a message wakes: `one` or `all`.
pub const WAKE_VARIABLE: &str = "POLLUX_POOL_WAKE";

/// The variable with the numbers of the files of the pool's memory (records, claims, exchange) and of the
/// worker in it, where requests are there.
pub const MEMORY_VARIABLE: &str = "POLLUX_POOL_MEMORY";

/// Whom a message wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wake {
    /// One of the workers that wait (EPOLLEXCLUSIVE).
    #[default]
    One,
    /// All of them: the herd, to be measured.
    All,
}

/// What a worker is given.
#[derive(Debug)]
pub struct Boarding {
    /// Its end of the link to the manager.
    pub link: OwnedFd,
    /// The slots of the pool.
    pub slots: Slots,
    /// Its own among them.
    pub slot: usize,
    /// Whom a message wakes.
    pub wake: Wake,
    /// The memory that requests are in, and the number of the worker in it; none where queues are used.
    pub(crate) memory: Option<(WorkerMemory, usize)>,
    /// The pool's prefix, for the names of queues.
    pub environment: Environment,
}

impl Boarding {
    /// Takes what the manager left to this process.
    ///
    /// # Errors
    /// TPESYSTEM where it was not started by a manager, or what was left can't be used.
    pub fn of_process() -> Result<Self, Error> {
        let environment =
            Environment::of_process().map_err(|bad| Error::new(Code::Invalid, bad.to_string()))?;
        let link = env::var(LINK_VARIABLE).map_err(|_| {
            let detail = format!(
                "{LINK_VARIABLE} is not in the environment: a server is not started by hand, \
                 start it with `pollux pool start`"
            );
            Error::new(Code::System, detail)
        })?;
        let numbers = Numbers::parse(&link)?;
        let wake = env::var(WAKE_VARIABLE).unwrap_or_default();
        let slots = Slots::from_fd(descriptor(numbers.slots)?)
            .map_err(|source| unusable("the memory of the slots", source))?;
        let wake = wake_named(&wake)?;
        let memory = env::var(MEMORY_VARIABLE).ok().map(|text| memory(&text)).transpose()?;
        let link = descriptor(numbers.link)?;
        Ok(Self { link, slots, slot: numbers.slot, wake, memory, environment })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Numbers {
    link: RawFd,
    slots: RawFd,
    slot: usize,
}

impl Numbers {
    fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',');
        let mut next = || parts.next().and_then(|part| part.parse::<u32>().ok());
        let numbers = (next(), next(), next());
        match (numbers, parts.next()) {
            ((Some(link), Some(slots), Some(slot)), None) => Ok(Self {
                link: link.cast_signed(),
                slots: slots.cast_signed(),
                slot: slot as usize,
            }),
            _ => {
                let text = text.escape_debug();
                let detail = format!("{LINK_VARIABLE}=`{text}`: give LINK_FD,SLOTS_FD,SLOT");
                Err(Error::new(Code::System, detail))
            }
        }
    }
}

fn memory(text: &str) -> Result<(WorkerMemory, usize), Error> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|number| number.parse().ok()).collect();
    let Some([records, claims, exchange, number]) = numbers.as_deref() else {
        let text = text.escape_debug();
        let detail =
            format!("{MEMORY_VARIABLE}=`{text}`: give RECORDS_FD,CLAIMS_FD,EXCHANGE_FD,WORKER");
        return Err(Error::new(Code::System, detail));
    };
    let file = |number: &u32| descriptor(number.cast_signed());
    let memory = WorkerMemory::from_files([file(records)?, file(claims)?, file(exchange)?]);
    let number = *number as usize;
    Ok((memory.map_err(|source| unusable("the memory of the pool", source))?, number))
}

fn wake_named(name: &str) -> Result<Wake, Error> {
    match name {
        "" | "one" => Ok(Wake::One),
        "all" => Ok(Wake::All),
        other => {
            let other = other.escape_debug();
            Err(Error::new(Code::Invalid, format!("{WAKE_VARIABLE}=`{other}`: give one or all")))
        }
    }
}

fn descriptor(number: RawFd) -> Result<OwnedFd, Error> {
    inherited::duplicate(number).map_err(|source| unusable("an inherited descriptor", source))
}

fn unusable(what: &str, source: std::io::Error) -> Error {
    let detail = format!("{what} named by {LINK_VARIABLE} can't be used");
    Error::caused(Code::System, detail, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_and_nothing_else() {
        let numbers = Numbers { link: 5, slots: 6, slot: 249 };
        assert_eq!(Numbers::parse("5,6,249").expect("good"), numbers);
        for bad in ["", "5,6", "5,6,7,8", "-1,6,7", "a,b,c"] {
            let said = Numbers::parse(bad).expect_err(bad).to_string();
            assert!(said.contains("give LINK_FD,SLOTS_FD,SLOT"), "{said}");
        }
    }

    #[test]
    fn the_switch_of_the_experiment_is_one_or_all() {
        assert_eq!(wake_named("").expect("the default"), Wake::One);
        assert_eq!(wake_named("all").expect("good"), Wake::All);
        assert!(wake_named("some").is_err());
    }
}
