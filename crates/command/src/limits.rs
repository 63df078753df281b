//! The limit of open descriptors of this process (getrlimit(2)).

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of descriptors to the hard one: plans and pools count on it.
///
/// # Errors
/// What `setrlimit(2)` gave.
pub fn raise_descriptor_limit() -> rustix::io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
}
