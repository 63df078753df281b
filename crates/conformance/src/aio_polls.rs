//! Who holds the AIO polls of the system, of which `fs.aio-max-nr` bounds those of all programs together.
//!
//! A case that finds none left is skipped where other programs hold them ([`crate::rig`]), and fails where this one
//! does: then a poller gave up without giving them back.

use std::{fmt, fs};

use pollux_poller::{Backend, Error};
use rustix::io::Errno;

/// What the smallest context has that a poller opens with.
const OPENING: usize = 64;
/// What a ring of completions takes for each poll of its context: two events.
const RING_BYTES: usize = 2 * 32;

/// How many AIO polls are held, and who is at fault for a failure that it is behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AioPolls {
    /// By this process; some hundredths more than there are, because rings fill whole pages.
    ours: usize,
    all: usize,
    max: usize,
    /// There would be enough without the other programs that hold some.
    pub(crate) are_held_by_others: bool,
}

impl AioPolls {
    /// What is held now, if `error` of a poller on `backend` says that too few are left.
    ///
    /// # Panics
    /// Without `/proc`.
    pub(crate) fn behind(backend: Backend, error: &Error) -> Option<Self> {
        let errno = Errno::from_raw_os_error(error.raw_os_error()?);
        if backend != Backend::Aio || ![Errno::AGAIN, Errno::NOSPC].contains(&errno) {
            return None;
        }
        let read = |path| fs::read_to_string(path).expect("proc is mounted, of a kernel with AIO");
        let number = |path| read(path).trim().parse().expect("a number");
        let all = number("/proc/sys/fs/aio-nr");
        let max = number("/proc/sys/fs/aio-max-nr");
        Some(Self::judged(errno, held(), all, max))
    }

    fn judged(errno: Errno, ours: usize, all: usize, max: usize) -> Self {
        // A poller that grows holds its context until it has one of twice the size.
        let wanted = if errno == Errno::AGAIN { OPENING } else { 2 * ours };
        let are_held_by_others = all + wanted > max && ours + wanted <= max;
        Self { ours, all, max, are_held_by_others }
    }
}

impl fmt::Display for AioPolls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, all, max, .. } = self;
        write!(
            f,
            "of {max} AIO polls (fs.aio-max-nr), {all} are held, about {ours} by this process"
        )
    }
}

/// How many polls the contexts of this process have: what their rings of completions take.
///
/// # Panics
/// Without `/proc`.
pub fn held() -> usize {
    in_rings(&fs::read_to_string("/proc/self/maps").expect("proc is mounted"))
}

/// The same of `maps`, as `proc_pid_maps(5)` has it.
fn in_rings(maps: &str) -> usize {
    let rings = maps.lines().filter(|line| line.contains("/[aio]"));
    let bytes = rings.map(|ring| {
        let (first, rest) = ring.split_once('-').expect("a range");
        let (end, _) = rest.split_once(' ').expect("rights follow");
        let address = |digits| usize::from_str_radix(digits, 16).expect("an address");
        address(end) - address(first)
    });
    bytes.sum::<usize>() / RING_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_skip_where_other_processes_hold_the_polls() {
        let rows = [
            ("others hold nearly all", 1_000, 65_500, true, true),
            ("others hold too many for a context beside a large one", 16_384, 40_000, false, true),
            ("this process leaked nearly all", 65_500, 65_500, false, false),
            ("this process leaked half", 33_000, 65_500, true, false),
            ("enough are left", 1_000, 1_000, false, false),
        ];
        for (what, ours, all, at_opening, at_growing) in rows {
            let judged = [Errno::AGAIN, Errno::NOSPC]
                .map(|errno| AioPolls::judged(errno, ours, all, 65_536).are_held_by_others);
            assert_eq!(judged, [at_opening, at_growing], "{what}");
        }
    }

    #[test]
    fn contexts_are_counted_by_their_rings() {
        let maps = "7f21c3a00000-7f21c3a11000 rw-s 00000000 00:11 1050 /[aio] (deleted)\n\
                    7f21c3a11000-7f21c3a12000 rw-p 00000000 00:00 0 \n";
        assert_eq!(in_rings(maps), 1_088, "seventeen pages, of a context for 1024");
    }

    #[test]
    fn a_poller_on_aio_is_counted() {
        let mechanism = crate::rig::mechanism(Backend::Aio).expect("of the kernel");
        match mechanism.open() {
            Ok(poller) => {
                assert!(held() >= OPENING);
                drop(poller);
                assert_eq!(held(), 0);
            }
            Err(error) => pollux_testing::skip(error),
        }
    }
}
