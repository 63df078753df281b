//! A pool that is open to a group, and callers of other users, on both forms of transport.
//!
//! Needs root, to start programs under user ids without an account; for other users the tests are skipped with the reason.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use pollux_testing::{Process, skip, succeeded, wait_until};
use rustix::process::geteuid;

use crate::workshop::{POLLUX_POOL, Workshop};

/// The group, and users of whom the first two are in it.
const GROUP: u32 = 61_500;
const OWNER: u32 = 61_501;
const MEMBER: u32 = 61_502;
const OUTSIDER: u32 = 61_503;

/// A user of these tests, in the group or not.
#[derive(Clone, Copy)]
struct User {
    id: u32,
    is_member: bool,
}

const OWNING: User = User { id: OWNER, is_member: true };
const MEMBERS: User = User { id: MEMBER, is_member: true };
const OUTSIDERS: User = User { id: OUTSIDER, is_member: false };

/// A pool of `OWNER`, in a folder that all may enter.
struct Pool {
    workshop: Workshop,
    prefix: String,
    /// POLLUX_POOL_GROUP of its manager.
    group: Option<u32>,
}

impl Pool {
    /// `None` where it cannot be tried.
    fn start(transport: &str, attribute: &str, group: Option<u32>) -> Option<Self> {
        if !geteuid().is_root() {
            skip("only root starts programs as other users");
            return None;
        }
        let workshop = Workshop::open()?;
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(workshop.path(""), open).expect("own folder");
        workshop.server("talksv", "talksv.c");
        workshop.client("talkcl", "talkcl.c");
        let folder = workshop.path("");
        workshop.write(
            "pool.xml",
            &format!(
                "<endurox><appconfig transport=\"{transport}\"{attribute}><sanity>1</sanity></appconfig>\
                 <servers><server name=\"talksv\"><srvid>1</srvid><start_max>60</start_max><min>2</min><max>2</max>\
                 <sysopt>-e {}/log</sysopt></server></servers></endurox>",
                folder.display()
            ),
        );
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("/pollux-access-{}-{number}", std::process::id());
        let pool = Self { workshop, prefix, group };
        if !pool.command(OWNING, &["true"], None).status().is_ok_and(|status| status.success()) {
            skip("setpriv (util-linux) does not run programs as other users here");
            return None;
        }
        succeeded(&mut pool.pollux(OWNING, &["start"], pool.group));
        Some(pool)
    }

    fn command(&self, user: User, words: &[&str], group: Option<u32>) -> Command {
        let mut command = Command::new("setpriv");
        let id = user.id.to_string();
        command.args(["--reuid", &id, "--regid", &id]);
        if user.is_member {
            command.args(["--groups", &GROUP.to_string()])
        } else {
            command.arg("--clear-groups")
        };
        command.args(words);
        self.workshop.in_environment(&self.prefix, &mut command);
        command.env_remove("POLLUX_POOL_TRANSPORT").env_remove("POLLUX_POOL_GROUP");
        if let Some(group) = group {
            command.env("POLLUX_POOL_GROUP", group.to_string());
        }
        command
    }

    fn pollux(&self, user: User, words: &[&str], group: Option<u32>) -> Command {
        self.command(user, &[&[POLLUX_POOL], words].concat(), group)
    }

    /// The client must be refused with these words.
    fn refuses(&self, user: User, group: Option<u32>, words: &str) {
        succeeded(&mut self.command(user, &["./talkcl", "stranger", words], group));
    }

    /// Names of its queues, where the kernel shows them.
    fn queues(&self) -> Vec<String> {
        let all = std::fs::read_dir("/dev/mqueue").into_iter().flatten().flatten();
        let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&self.prefix[1..])).collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // After a failed test; a pool that was stopped fails.
        let _ = self.pollux(OWNING, &["stop", "--now"], None).output();
    }
}

fn is_open_to_the_group(transport: &str, attribute: &str, group: Option<u32>) {
    let Some(pool) = Pool::start(transport, attribute, group) else { return };
    for user in [OWNING, MEMBERS] {
        let scenario = if user.id == OWNER { "messages" } else { "guest" };
        succeeded(&mut pool.command(user, &["./talkcl", scenario], Some(GROUP)));
    }
    // The pool's own user need not name the group.
    succeeded(&mut pool.command(OWNING, &["./talkcl", "messages"], None));
    pool.refuses(MEMBERS, None, "POLLUX_POOL_GROUP");
    pool.refuses(MEMBERS, Some(OUTSIDER), &format!("it is not in group {OUTSIDER}"));
    let not_in_it = format!("is open to group {GROUP}; user {OUTSIDER} is not in it");
    pool.refuses(OUTSIDERS, Some(GROUP), &not_in_it);
    pool.refuses(OUTSIDERS, None, &format!("that of user {OWNER}, process "));

    // Orders are for its own user.
    let order = Process::run(&mut pool.pollux(MEMBERS, &["stop"], Some(GROUP)));
    let said = order.stderr;
    assert!(
        !order.status.success() && said.contains("only its user and root may give commands"),
        "{said}"
    );

    // A member that is killed leaves nothing.
    let before = pool.queues();
    let mut waiter = pool.command(MEMBERS, &["./talkcl", "waiter"], Some(GROUP));
    let mut waiter = Process::start(waiter.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(waiter.take_stdout()).read_line(&mut line).expect("it calls");
    assert_eq!(line, "called\n");
    waiter.kill();
    wait_until("its queues are removed", || pool.queues() == before);

    succeeded(&mut pool.pollux(OWNING, &["stop"], None));
    assert_eq!(pool.queues(), [""; 0]);
    let log = std::fs::read_to_string(pool.workshop.path("log")).unwrap_or_default();
    assert!(!log.contains("talksv.c:"), "{log}");
}

#[test]
fn queues_are_open_to_the_group_of_the_configuration() {
    is_open_to_the_group("queues", &format!(" group=\"{GROUP}\""), None);
}

#[test]
fn memory_is_open_to_the_group_of_the_environment() {
    is_open_to_the_group("memory", "", Some(GROUP));
}

#[test]
fn a_pool_is_open_to_no_group_without_a_setting() {
    for transport in ["queues", "memory"] {
        let Some(pool) = Pool::start(transport, "", None) else { return };
        pool.refuses(MEMBERS, None, &format!("that of user {OWNER}, process "));
        // A client that trusts the group is refused by the pool.
        pool.refuses(MEMBERS, Some(GROUP), "is open to no group");
        succeeded(&mut pool.pollux(OWNING, &["stop"], None));
    }
}

#[test]
fn a_group_that_the_user_is_not_in_is_refused_before_the_pool_starts() {
    let Some(pool) = Pool::start("queues", "", None) else { return };
    succeeded(&mut pool.pollux(OWNING, &["stop"], None));
    let started = Process::run(&mut pool.pollux(OWNING, &["start"], Some(OUTSIDER)));
    let said = started.stderr;
    let wanted = format!("open to group {OUTSIDER}, and user {OWNER} is not in it");
    assert!(!started.status.success() && said.contains(&wanted), "{said}");
}
