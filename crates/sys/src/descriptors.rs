//! How many descriptors this process may have (RLIMIT_NOFILE of `getrlimit(2)`), and in words what allows more.
//!
//! Programs raise their soft limit to the hard one at their start; what counts descriptors before it opens them
//! asks here, so that every refusal has the same remedy. And what kind of file a descriptor names.

use std::os::fd::RawFd;
use std::{fs, io};

/// What raises the hard limit: of a shell that root has, and of a systemd unit.
pub const RAISED_BY: &str = "ulimit -Hn, LimitNOFILE=";
/// What a call means that finds no number free (EMFILE).
pub const NONE_LEFT: &str = "no descriptor is left: raise the limit (ulimit -Hn, LimitNOFILE=)";

/// What kind of file a descriptor names, as far as it matters to requests that poll it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A socket: what wakes a poll tells what became ready, and may claim more than holds.
    Socket,
    /// A pipe or FIFO, of which the same holds.
    Pipe,
    /// A `signalfd(2)`: ready or not by the signals of the thread that looks.
    Signals,
    /// Anything else.
    Other,
}

impl FileKind {
    /// That of `fd`; `None` for a number that is not open. One `fstat(2)`, and for anonymous files of the kernel a
    /// look into `/proc`, without which they are [`FileKind::Other`].
    #[must_use]
    pub fn of(fd: RawFd) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel writes one `stat` to a live local of that type.
        if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } < 0 {
            return None;
        }
        // SAFETY: the call succeeded, and then it has written the whole structure.
        let stat = unsafe { stat.assume_init() };
        Some(match stat.st_mode & libc::S_IFMT {
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFIFO => Self::Pipe,
            // Anonymous files have no type.
            0 if is_named(fd, "anon_inode:[signalfd]") => Self::Signals,
            _ => Self::Other,
        })
    }
}

/// Whether `fd` is a socket that listens.
#[must_use]
pub fn is_listener(fd: RawFd) -> bool {
    let mut listens: libc::c_int = 0;
    let mut len_bytes = size_of::<libc::c_int>() as libc::socklen_t;
    let level = libc::SOL_SOCKET;
    let option = libc::SO_ACCEPTCONN;
    let value = &raw mut listens;
    // SAFETY: the kernel writes one integer to a live local, whose size another one says.
    let done = unsafe { libc::getsockopt(fd, level, option, value.cast(), &raw mut len_bytes) };
    done == 0 && listens != 0
}

fn is_named(fd: RawFd, name: &str) -> bool {
    fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|path| path.as_os_str() == name)
}

/// The limits on descriptors; `u64::MAX` for none.
///
/// ```
/// use pollux_sys::descriptors::{Limit, raise};
///
/// let limit = Limit::here();
/// assert!(limit.soft <= limit.hard);
/// assert_eq!(raise()?.soft, limit.hard);
///
/// let limit = Limit { soft: 1024, hard: 4096 };
/// assert_eq!(limit.remedy(2000), "run `ulimit -S -n 2000`");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// How many this process may have.
    pub soft: u64,
    /// How far it may raise that.
    pub hard: u64,
}

impl Limit {
    /// Those of this process.
    ///
    /// # Panics
    /// When the kernel does not have them, which it always has.
    #[must_use]
    pub fn here() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a place for one limit, which lives until the call returns.
        let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        assert_eq!(read, 0, "RLIMIT_NOFILE: {}", io::Error::last_os_error());
        Self { soft: limit.rlim_cur, hard: limit.rlim_max }
    }

    /// What allows `needed` descriptors, more than the soft limit has.
    #[must_use]
    pub fn remedy(self, needed: u64) -> String {
        match self.command(needed) {
            Some(command) => format!("run `{command}`"),
            None => format!(
                "have root raise the hard limit (nofile in /etc/security/limits.conf, LimitNOFILE={needed} of a \
                 systemd unit)"
            ),
        }
    }

    /// The command of a shell that allows `needed` descriptors; none beyond the hard limit.
    #[must_use]
    pub fn command(self, needed: u64) -> Option<String> {
        (needed <= self.hard).then(|| format!("ulimit -S -n {needed}"))
    }
}

/// Allows this process as many descriptors as its hard limit has; what it has then.
///
/// # Errors
/// What `setrlimit(2)` gave: EPERM where the hard limit is above `fs.nr_open`.
pub fn raise() -> io::Result<Limit> {
    let Limit { hard, .. } = Limit::here();
    let limit = libc::rlimit { rlim_cur: hard, rlim_max: hard };
    // SAFETY: `limit` is one limit, which lives until the call returns.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(Limit { soft: hard, hard }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A limit with what raises it, for the middle of a sentence.
#[must_use]
pub fn in_words(limit: u64) -> String {
    format!("the descriptor limit of {limit} ({RAISED_BY})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_depends_on_the_hard_limit() {
        let limit = Limit { soft: 1024, hard: 4096 };
        assert_eq!(limit.remedy(4096), "run `ulimit -S -n 4096`");
        let above = limit.remedy(4097);
        assert!(above.contains("root") && above.contains("LimitNOFILE=4097"), "{above}");
        assert!(NONE_LEFT.contains(RAISED_BY) && in_words(1024).contains(RAISED_BY));
    }
}
