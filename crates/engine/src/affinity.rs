//! Which CPUs the threads of a group run on: lists as users write them, and pinning.
//!
//! Servers and the lab read lists from command lines and job files, and each worker thread pins
//! itself before it opens its loop, so that the loop's memory is of the node it runs on.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs by number, each once and at least one, in the order in which workers take them.
///
/// Written as in `cpuset(7)`: `0,2-3` is 0, 2 and 3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Numbers are below this: what the kernel's call takes from `sched_setaffinity(2)`.
    pub const CPUS_MAX: usize = CpuSet::MAX_CPU;

    /// The CPUs that the calling thread may run on: those of the process, unless it was pinned.
    ///
    /// # Errors
    /// [`CpuError::System`], on machines with more than [`CpuList::CPUS_MAX`] CPUs (EINVAL).
    pub fn allowed() -> Result<Self, CpuError> {
        let set = sched_getaffinity(None).map_err(system("sched_getaffinity"))?;
        Ok(Self((0..Self::CPUS_MAX).filter(|cpu| set.is_set(*cpu)).collect()))
    }

    /// The numbers, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// Keeps the calling thread on the CPU of the worker with this index, and says which one it
    /// is. With more workers than CPUs the list starts again.
    ///
    /// # Errors
    /// [`CpuError::NotAllowed`] for a CPU that is missing, off, or not of this control group;
    /// [`CpuError::System`] otherwise.
    pub fn pin(&self, worker: usize) -> Result<usize, CpuError> {
        let cpu = self.0[worker % self.0.len()];
        let mut set = CpuSet::new();
        set.set(cpu);
        match sched_setaffinity(None, &set) {
            Ok(()) => Ok(cpu),
            Err(Errno::INVAL) => Err(CpuError::NotAllowed { cpu, allowed: Self::allowed()? }),
            Err(errno) => Err(system("sched_setaffinity")(errno)),
        }
    }

    /// Whether a thread of this process may be kept on each of these CPUs. No thread of the caller is moved.
    ///
    /// # Errors
    /// As [`CpuList::pin`], for the first that is not right; no thread can be made.
    pub fn check(&self) -> Result<(), CpuError> {
        // In a thread of its own: what it may run on is never more or less than before for others.
        let tried = || {
            // Those of before: a thread that was pinned may run on one CPU alone.
            let allowed = Self::allowed()?;
            let explained = |error| match error {
                CpuError::NotAllowed { cpu, .. } => {
                    CpuError::NotAllowed { cpu, allowed: allowed.clone() }
                }
                error => error,
            };
            (0..self.0.len()).try_for_each(|worker| self.pin(worker).map(drop).map_err(explained))
        };
        std::thread::scope(|scope| {
            let thread =
                std::thread::Builder::new().name("cpus".to_owned()).spawn_scoped(scope, tried);
            let thread = thread.map_err(|cause| CpuError::System { call: "clone", cause })?;
            thread.join().expect("it does not panic")
        })
    }

    fn push(&mut self, cpu: usize) -> Result<(), CpuError> {
        if self.0.contains(&cpu) {
            return Err(CpuError::Twice { cpu });
        }
        self.0.push(cpu);
        Ok(())
    }
}

impl FromStr for CpuList {
    type Err = CpuError;

    fn from_str(text: &str) -> Result<Self, CpuError> {
        let mut list = Self(Vec::new());
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first = number(first, text)?;
            let last = number(last, text)?;
            if first > last {
                return Err(CpuError::NotAList { text: text.to_owned() });
            }
            (first..=last).try_for_each(|cpu| list.push(cpu))?;
        }
        Ok(list)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|a, b| a + 1 == *b);
        for (index, range) in ranges.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match range {
                [cpu] => write!(f, "{comma}{cpu}")?,
                _ => write!(f, "{comma}{}-{}", range[0], range[range.len() - 1])?,
            }
        }
        Ok(())
    }
}

/// Why a list of CPUs can't be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum CpuError {
    /// It is not written as lists are.
    NotAList {
        /// What was written.
        text: String,
    },
    /// A number is [`CpuList::CPUS_MAX`] or more.
    TooHigh {
        /// The number.
        cpu: usize,
    },
    /// A CPU is named twice.
    Twice {
        /// Its number.
        cpu: usize,
    },
    /// The thread may not run there.
    NotAllowed {
        /// Where it was to run.
        cpu: usize,
        /// Where it may run.
        allowed: CpuList,
    },
    /// A system call failed in a way that has no meaning of its own here.
    System {
        /// Name of the call.
        call: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAList { text } => {
                write!(
                    f,
                    "\"{text}\" is not a list of CPUs; expected numbers and ranges such as 0,2-3"
                )
            }
            Self::TooHigh { cpu } => {
                write!(f, "CPU {cpu} is beyond {}, the highest number", CpuList::CPUS_MAX - 1)
            }
            Self::Twice { cpu } => write!(f, "CPU {cpu} is named twice"),
            Self::NotAllowed { cpu, allowed } => {
                write!(f, "CPU {cpu} is not one that may be used here: those are {allowed}")
            }
            Self::System { call, .. } => write!(f, "{call} failed"),
        }
    }
}

impl std::error::Error for CpuError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// With the kind of its cause; the error itself is inside.
impl From<CpuError> for io::Error {
    fn from(error: CpuError) -> Self {
        let kind = match &error {
            CpuError::System { cause, .. } => cause.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Digits and nothing else; `usize` alone would take a sign too.
fn number(digits: &str, text: &str) -> Result<usize, CpuError> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = digits.parse().ok().filter(|_| is_number);
    let cpu = parsed.ok_or_else(|| CpuError::NotAList { text: text.to_owned() })?;
    if cpu >= CpuList::CPUS_MAX {
        return Err(CpuError::TooHigh { cpu });
    }
    Ok(cpu)
}

fn system(call: &'static str) -> impl Fn(Errno) -> CpuError {
    move |errno| CpuError::System { call, cause: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getcpu;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap_or_else(|refused: CpuError| panic!("{refused}"))
    }

    fn refusal(text: &str) -> String {
        text.parse::<CpuList>().expect_err(text).to_string()
    }

    #[test]
    fn lists_are_read_and_written_alike() {
        for text in ["0", "0,2-3", "7,0-5", "3,2,1", "1023"] {
            assert_eq!(list(text).to_string(), text);
        }
        assert_eq!(list("0,2-3").as_slice(), [0, 2, 3]);
        assert_eq!(list("0,1,2,5-5").to_string(), "0-2,5");
    }

    #[test]
    fn text_that_is_not_a_list_is_refused_with_the_reason() {
        for text in ["", ",", "1,", "a", "1-", "-1", "+1", "2-1", "1-2-3", "1 2", "0x1", "٣"] {
            let said = refusal(text);
            assert!(said.starts_with(&format!("\"{text}\" is not a list")), "{said}");
        }
        assert_eq!(refusal("0-3,2"), "CPU 2 is named twice");
        assert_eq!(refusal("1024"), "CPU 1024 is beyond 1023, the highest number");
        assert_eq!(refusal("0-99999999"), "CPU 99999999 is beyond 1023, the highest number");
    }

    #[test]
    fn a_list_is_right_when_each_of_its_cpus_is_there() {
        let allowed = CpuList::allowed().expect("the kernel says so");
        let before = allowed.as_slice().to_vec();
        allowed.check().expect("all are there");
        let refused = list(&format!("{},1023", before[0])).check().expect_err("no such CPU");
        let expected = format!("CPU 1023 is not one that may be used here: those are {allowed}");
        assert_eq!(refused.to_string(), expected, "those of before the first one was tried");
        assert_eq!(CpuList::allowed().expect("as before").as_slice(), before);
    }

    #[test]
    fn workers_are_kept_on_their_cpus_and_the_list_starts_again() {
        let allowed = CpuList::allowed().expect("sched_getaffinity");
        let cpus = allowed.as_slice();
        for worker in 0..cpus.len() * 2 {
            let pin = || {
                let cpu = allowed.pin(worker).expect("it is allowed");
                (cpu, sched_getcpu(), CpuList::allowed().expect("sched_getaffinity"))
            };
            let expected = cpus[worker % cpus.len()];
            let pinned = std::thread::scope(|scope| scope.spawn(pin).join());
            let pinned = pinned.expect("the worker does not panic");
            assert_eq!(pinned, (expected, expected, CpuList(vec![expected])));
        }
        assert_eq!(
            CpuList::allowed().expect("sched_getaffinity"),
            allowed,
            "this one is not pinned"
        );
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_with_those_that_are() {
        let allowed = CpuList::allowed().expect("sched_getaffinity");
        let missing = (0..CpuList::CPUS_MAX).rev().find(|cpu| !allowed.0.contains(cpu));
        let missing = CpuList(vec![missing.expect("a machine with a CPU to spare")]);
        let refused = missing.pin(0).expect_err("it is not there").to_string();
        assert!(refused.ends_with(&format!("those are {allowed}")), "{refused}");
    }
}
