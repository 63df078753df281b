//! The mechanisms that tests of every kind go through.

use pollux_epoll_c::Mechanism;
use pollux_testing::skip;

/// Those that this machine allows; others are named.
pub(crate) fn allowed() -> impl Iterator<Item = Mechanism> {
    Mechanism::PLAIN.into_iter().filter(|mechanism| {
        mechanism.open().map_err(|refused| skip(format!("{mechanism}: {refused}"))).is_ok()
    })
}

/// The same without the kernel's own epoll.
pub(crate) fn others() -> impl Iterator<Item = Mechanism> {
    allowed().filter(|mechanism| *mechanism != Mechanism::Epoll)
}
