//! The user that a server continues as once it has its sockets, certificate and error log.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group` (passwd(5), group(5)); users that are kept
//! elsewhere are given by their numbers.

use std::fs::{read_dir, read_to_string};
use std::io;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid};

use crate::ServerError;

/// Where users and groups are looked up.
pub(crate) const ACCOUNTS: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// A user and the groups that it is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    name: String,
    uid: u32,
    /// The first one is the main one.
    gids: Vec<u32>,
}

impl Identity {
    /// The user of this name or number, with the groups that the system has for it, or with this one
    /// alone.
    ///
    /// # Errors
    /// What is not known, and what is expected.
    pub(crate) fn find(user: &str, group: Option<&str>) -> Result<Self, String> {
        let read = |path| match read_to_string(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{path} cannot be read: {error}"))
            }
            read => Ok(read.unwrap_or_default()),
        };
        let [passwd, groups] = ACCOUNTS.map(read);
        Self::among(user, group, &passwd?, &groups?)
    }

    fn among(user: &str, group: Option<&str>, passwd: &str, groups: &str) -> Result<Self, String> {
        let number = user.parse::<u32>().ok();
        let known = passwd.lines().find_map(|line| {
            let words: Vec<&str> = line.split(':').collect();
            let (uid, gid) = (words.get(2)?.parse().ok()?, words.get(3)?.parse().ok()?);
            let is_meant = number.map_or(words[0] == user, |number| number == uid);
            is_meant.then(|| (words[0].to_owned(), uid, gid))
        });
        let group_of = |text: &str| {
            let named = |line: &str| {
                let mut words = line.split(':');
                let is_meant = words.next() == Some(text);
                is_meant.then(|| words.nth(1)?.parse::<u32>().ok())?
            };
            let found = text.parse().ok().or_else(|| groups.lines().find_map(named));
            found.ok_or_else(|| {
                format!("there is no group {text}; expected one of /etc/group or a number")
            })
        };
        let (name, uid, main) = match (known, number, group) {
            (Some((name, uid, main)), ..) => (name, uid, main),
            (None, Some(uid), Some(group)) => (uid.to_string(), uid, group_of(group)?),
            (None, Some(uid), None) => {
                return Err(format!("user {uid} is not in /etc/passwd; expected a group as well"));
            }
            (None, None, _) => {
                return Err(format!(
                    "there is no user {user}; expected one of /etc/passwd or a number with a group"
                ));
            }
        };
        if uid == 0 {
            return Err("this is root; expected a user with fewer rights".to_owned());
        }
        if let Some(group) = group {
            return Ok(Self { name, uid, gids: vec![group_of(group)?] });
        }
        let further = groups.lines().filter_map(|line| {
            let words: Vec<&str> = line.split(':').collect();
            let is_in = words.get(3)?.split(',').any(|member| member == name);
            is_in.then(|| words[2].parse::<u32>().ok())?
        });
        let gids = std::iter::once(main).chain(further.filter(|gid| *gid != main)).collect();
        Ok(Self { name, uid, gids })
    }

    /// Its name, or number.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether this process runs as another user.
    pub(crate) fn is_another(&self) -> bool {
        geteuid().as_raw() != self.uid
    }

    /// Has this thread, and all that it starts from now on, run as this user, with no way back. Of the
    /// user that it is already nothing is asked.
    ///
    /// # Errors
    /// [`ServerError::Privileges`]: other threads run already, or the process may not do so.
    pub(crate) fn assume(&self) -> Result<(), ServerError> {
        let Self { name, uid, gids } = self;
        let failed = |cause: io::Error| ServerError::Privileges { user: name.clone(), cause };
        if !self.is_another() {
            return Ok(());
        }
        // The kernel's calls are about one thread.
        let threads = read_dir("/proc/self/task").map_err(failed)?.count();
        if threads != 1 {
            return Err(failed(io::Error::other(format!("{threads} threads run already"))));
        }
        let groups: Vec<Gid> = gids.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(*uid), groups[0]);
        set_thread_groups(&groups).map_err(|errno| failed(errno.into()))?;
        set_thread_res_gid(gid, gid, gid).map_err(|errno| failed(errno.into()))?;
        set_thread_res_uid(uid, uid, uid).map_err(|errno| failed(errno.into()))?;
        if set_thread_uid(Uid::ROOT).is_ok() {
            return Err(failed(io::Error::other("root can be regained")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0::/root:/bin/sh\nwww:x:33:34::/:/bin/false\nbroken\nodd:x:a:b::/:\n";
    const GROUP: &str =
        "root:x:0:\nwww:x:34:\nlogs:x:40:www,other\ncerts:x:41:other,www\nmain:x:34:www\n";

    fn found(user: &str, group: Option<&str>) -> Result<(String, u32, Vec<u32>), String> {
        let found = Identity::among(user, group, PASSWD, GROUP)?;
        Ok((found.name, found.uid, found.gids))
    }

    #[test]
    fn users_are_found_with_their_groups() {
        assert_eq!(found("www", None), Ok(("www".into(), 33, vec![34, 40, 41])));
        assert_eq!(found("33", None), found("www", None));
        assert_eq!(found("www", Some("logs")), Ok(("www".into(), 33, vec![40])));
        assert_eq!(found("1234", Some("55")), Ok(("1234".into(), 1234, vec![55])));
    }

    #[test]
    fn unknown_users_and_root_are_refused() {
        for (user, group, expected) in [
            ("nobody-here", None, "there is no user nobody-here"),
            ("1234", None, "expected a group as well"),
            ("www", Some("none"), "there is no group none"),
            ("odd", None, "there is no user odd"),
            ("root", None, "this is root"),
            ("0", Some("34"), "this is root"),
        ] {
            let wrong = found(user, group).expect_err(user);
            assert!(wrong.contains(expected), "{wrong}");
        }
    }
}
