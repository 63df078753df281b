//! The mechanisms that tests of every kind go through.

use pollux_epoll_c::Mechanism;

/// Those that this machine allows; others are named.
#[expect(clippy::print_stderr, reason = "a skipped mechanism says so")]
pub(crate) fn allowed() -> impl Iterator<Item = Mechanism> {
    Mechanism::PLAIN.into_iter().filter(|mechanism| match mechanism.open() {
        Ok(_) => true,
        Err(refused) => {
            assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{mechanism}: {refused}");
            eprintln!("skipped: {mechanism}: {refused}");
            false
        }
    })
}

/// The same without the kernel's own epoll.
pub(crate) fn others() -> impl Iterator<Item = Mechanism> {
    allowed().filter(|mechanism| *mechanism != Mechanism::Epoll)
}
