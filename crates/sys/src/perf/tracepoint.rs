//! Tracepoint numbers, which differ from boot to boot.
//!
//! The lab reads the numbers of a few tracepoints before it opens counters on them, from the trace file system
//! where that is mounted. Where it is not, and this process may mount, it is mounted in a mount namespace of one
//! short-lived thread, so that no other process (nor any other thread of this one) ever sees it. Nothing but
//! `id` files is read and nothing is written.

use std::ffi::CStr;
use std::path::Path;
use std::{io, ptr, thread};

/// Where distributions mount the trace file system, today's place first.
pub const TRACEFS_ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel makes this folder as a mount point, so no folder of ours is needed.
const MOUNT_POINT: &CStr = c"/sys/kernel/tracing";

/// A tracepoint by its names, as in `raw_syscalls:sys_enter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Group, such as `raw_syscalls`.
    pub group: &'static str,
    /// Name within its group, such as `sys_enter`.
    pub name: &'static str,
}

/// Reads one tracepoint's number below a mounted trace file system.
///
/// # Errors
///
/// Those of reading `events/<group>/<name>/id`: `NotFound` when it is not mounted there or the
/// kernel has no such tracepoint, `PermissionDenied` for users without the right; `InvalidData`
/// when the file holds no number.
pub fn tracepoint_id(tracefs_root: &Path, group: &str, name: &str) -> io::Result<u64> {
    let path = tracefs_root.join("events").join(group).join(name).join("id");
    let text = std::fs::read_to_string(&path)?;
    text.trim().parse().map_err(|_| {
        let fault = format!("{} holds {text:?}, not a number", path.display());
        io::Error::new(io::ErrorKind::InvalidData, fault)
    })
}

/// Reads several tracepoints' numbers from where the trace file system is mounted, or else by a
/// private mount. One result for each tracepoint, in order.
///
/// # Errors
///
/// The outer error: it is not mounted where we can read it, and a private mount was refused too
/// (`EPERM` without `CAP_SYS_ADMIN`). The inner ones: this tracepoint does not exist.
pub fn tracepoint_ids(wanted: &[Tracepoint]) -> io::Result<Vec<io::Result<u64>>> {
    let readable = |root: &&str| std::fs::read_dir(Path::new(root).join("events")).is_ok();
    match TRACEFS_ROOTS.iter().copied().find(|root| readable(root)) {
        Some(root) => Ok(ids_below(Path::new(root), wanted)),
        None => tracepoint_ids_by_private_mount(wanted),
    }
}

/// Reads several tracepoints' numbers through a mount that only one short-lived thread can see.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` on a kernel without tracing, `ENOENT` when
/// `/sys` is not mounted, and those of starting a thread.
fn tracepoint_ids_by_private_mount(wanted: &[Tracepoint]) -> io::Result<Vec<io::Result<u64>>> {
    thread::scope(|scope| {
        let reader =
            thread::Builder::new().name("tracefs-ids".to_owned()).spawn_scoped(scope, || {
                mount_for_this_thread()?;
                Ok(ids_below(Path::new(TRACEFS_ROOTS[0]), wanted))
            })?;
        reader.join().expect("the id reader does not panic")
    })
}

fn ids_below(root: &Path, wanted: &[Tracepoint]) -> Vec<io::Result<u64>> {
    wanted.iter().map(|point| tracepoint_id(root, point.group, point.name)).collect()
}

/// Leaves the process's mount namespace, cuts the propagation of mounts, and only then mounts.
///
/// The order is what keeps the host untouched: a mount made before the recursive change to
/// private would travel to every namespace that shares it.
fn mount_for_this_thread() -> io::Result<()> {
    // SAFETY: takes only a number. A new mount namespace for this thread alone also gives it its
    // own root and working directory, so no other thread sees what follows.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(c"tracefs", MOUNT_POINT, Some(c"tracefs"), flags)
}

fn mount(source: &CStr, target: &CStr, kind: Option<&CStr>, flags: u64) -> io::Result<()> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all strings end in NUL and outlive the call; a null file system type and null data
    // are allowed by mount(2) for a change of propagation and for tracefs.
    checked(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) })
}

fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SYS_ENTER: Tracepoint = Tracepoint { group: "raw_syscalls", name: "sys_enter" };
    const UNKNOWN: Tracepoint = Tracepoint { group: "raw_syscalls", name: "no_such_point" };

    /// A folder shaped like a trace file system; removed on drop.
    struct FakeRoot(std::path::PathBuf);

    impl FakeRoot {
        fn with_id(label: &str, text: &str) -> Self {
            let name = format!("pollux-tracefs-{label}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            let folder = root.join("events/raw_syscalls/sys_enter");
            fs::create_dir_all(&folder).expect("temporary folder");
            fs::write(folder.join("id"), text).expect("temporary file");
            Self(root)
        }
    }

    impl Drop for FakeRoot {
        fn drop(&mut self) {
            // Best effort: a leftover in the temporary folder harms no later test.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_id_file_is_one_number() {
        let root = FakeRoot::with_id("number", "348\n");
        let id = tracepoint_id(&root.0, "raw_syscalls", "sys_enter").expect("a number");
        assert_eq!(id, 348);
        let missing = tracepoint_id(&root.0, "raw_syscalls", "sys_exit").expect_err("missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_id_file_without_a_number_is_named_in_the_error() {
        let root = FakeRoot::with_id("text", "many\n");
        let error = tracepoint_id(&root.0, "raw_syscalls", "sys_enter").expect_err("no number");
        assert!(error.to_string().contains("sys_enter/id"), "{error}");
    }

    #[test]
    fn a_private_mount_is_not_seen_elsewhere() {
        let before = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        let answer = tracepoint_ids_by_private_mount(&[SYS_ENTER, UNKNOWN]);
        let after = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert_eq!(before, after);
        match answer {
            Ok(ids) => {
                assert!(ids[0].as_ref().is_ok_and(|id| *id > 0), "{:?}", ids[0]);
                assert!(ids[1].is_err());
            }
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
