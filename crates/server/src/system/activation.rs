//! Sockets that a service manager opened before it started this process (`sd_listen_fds(3)`).

use std::io;
use std::os::fd::OwnedFd;

use pollux_engine::Sockets;
use pollux_sys::inherited;

/// The first descriptor that a manager passes.
const FIRST: i32 = 3;
/// Most of them: as many as there are addresses.
const SOCKETS_MAX: i32 = crate::config::ADDRESSES_MAX as i32;

/// The sockets that were passed to this process, by `LISTEN_PID` and `LISTEN_FDS`; none where they are
/// another's or were not set.
///
/// # Errors
/// They are set and no numbers, or one of what they name is not a socket that listens.
pub fn sockets() -> io::Result<Option<Sockets>> {
    let variable = |name| std::env::var(name).ok();
    passed(variable("LISTEN_PID"), variable("LISTEN_FDS"), std::process::id())
}

fn passed(pid: Option<String>, fds: Option<String>, own: u32) -> io::Result<Option<Sockets>> {
    let (Some(pid), Some(fds)) = (pid, fds) else { return Ok(None) };
    if pid != own.to_string() {
        return Ok(None);
    }
    let wrong = |why: &str| io::Error::other(format!("LISTEN_FDS={fds}: {why}"));
    let number: i32 = fds.parse().map_err(|_| wrong("expected a number"))?;
    if !(1..=SOCKETS_MAX).contains(&number) {
        return Err(wrong(&format!("expected 1 to {SOCKETS_MAX}")));
    }
    // Taken and not duplicated: a duplicate would have the next number, and pass for one that was passed.
    let mut sockets = Sockets::inherited(Vec::new())?;
    for fd in FIRST..FIRST + number {
        let one = inherited::take(fd).and_then(|fd: OwnedFd| Sockets::inherited(vec![vec![fd]]));
        sockets.append(one.map_err(|error| {
            let last = FIRST + number - 1;
            wrong(&format!(
                "descriptor {fd} is not a socket that listens ({error}); expected one at each number from \
                 {FIRST} to {last}"
            ))
        })?);
    }
    Ok(Some(sockets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_another_process_mean_nothing_and_wrong_ones_are_refused() {
        let of = |pid: &str, fds: &str| passed(Some(pid.into()), Some(fds.into()), 7);
        assert!(of("8", "1").expect("another's").is_none());
        assert!(passed(None, Some("1".into()), 7).expect("half of it").is_none());
        for (fds, message) in
            [("", "expected a number"), ("0", "expected 1 to 64"), ("99", "expected 1 to 64")]
        {
            let error = of("7", fds).expect_err(fds).to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
