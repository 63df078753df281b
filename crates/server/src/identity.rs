//! Users and groups, by the names and numbers that settings give: which user a server becomes, and who owns its sockets.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group` (passwd(5), group(5)); users that are kept
//! elsewhere are given by their numbers.

use std::fs::{read_dir, read_to_string};
use std::io::{self, ErrorKind};

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid,
};

use crate::ServerError;

/// Where users and groups are looked up.
pub(crate) const ACCOUNTS: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// The user that a server becomes.
///
/// Who it is is found out when settings are read. A server that runs reads them again from within its sandbox,
/// where it may not read the system's files any more, since they were put in place anew: then it knows by the
/// words of the settings alone that the user is the same.
#[derive(Clone, Debug)]
pub struct Identity {
    /// As the settings name the user and the group.
    asked: (String, Option<String>),
    /// Why it was not found out where the files can't be read.
    account: Result<Account, String>,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.asked == other.asked
    }
}

impl Eq for Identity {}

/// A user and the groups that it is in.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Account {
    name: String,
    uid: u32,
    /// The first one is the main one.
    gids: Vec<u32>,
}

/// The text of one of the system's files; nothing where there is none.
fn accounts_in(path: &str) -> Result<String, String> {
    match read_to_string(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("{path} cannot be read: {error}"))
        }
        read => Ok(read.unwrap_or_default()),
    }
}

/// The number of the group of this name or number.
fn group_among(text: &str, groups: &str) -> Result<u32, String> {
    let named = |line: &str| {
        let mut words = line.split(':');
        let is_meant = words.next() == Some(text);
        is_meant.then(|| words.nth(1)?.parse::<u32>().ok())?
    };
    let found = text.parse().ok().or_else(|| groups.lines().find_map(named));
    found.ok_or_else(|| format!("there is no group {text}; expected one of /etc/group or a number"))
}

/// Whose a unix socket is: a user, a group or both, by names or numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketOwner {
    user: Option<String>,
    group: Option<String>,
}

impl SocketOwner {
    /// Reads `USER`, `USER:GROUP` or `:GROUP`; none of anything else.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let word = |word: &str| (!word.is_empty()).then(|| word.to_owned());
        let user = word(user);
        let group = word(group);
        let is_one = !text.contains(['\n', ' ']) && text.matches(':').count() <= 1;
        (is_one && (user.is_some() || group.is_some())).then_some(Self { user, group })
    }

    /// That the system has both, as far as its files can be read.
    ///
    /// # Errors
    /// What it does not have, and what is expected.
    pub(crate) fn is_known(&self) -> Result<(), String> {
        let [passwd, groups] = ACCOUNTS.map(accounts_in);
        let (Ok(passwd), Ok(groups)) = (passwd, groups) else { return Ok(()) };
        self.among(&passwd, &groups).map(drop)
    }

    /// The numbers of both.
    ///
    /// # Errors
    /// The system has one of them not, or its files can't be read.
    pub(crate) fn find(&self) -> Result<(Option<u32>, Option<u32>), String> {
        let [passwd, groups] = ACCOUNTS.map(accounts_in);
        self.among(&passwd?, &groups?)
    }

    fn among(&self, passwd: &str, groups: &str) -> Result<(Option<u32>, Option<u32>), String> {
        let of_user = |user: &String| {
            let named = |line: &str| {
                let mut words = line.split(':');
                let is_meant = words.next() == Some(user);
                is_meant.then(|| words.nth(1)?.parse::<u32>().ok())?
            };
            let found = user.parse().ok().or_else(|| passwd.lines().find_map(named));
            found.ok_or_else(|| {
                format!("there is no user {user}; expected one of /etc/passwd or a number")
            })
        };
        let of_group = |group: &String| group_among(group, groups);
        let uid = self.user.as_ref().map(of_user).transpose()?;
        Ok((uid, self.group.as_ref().map(of_group).transpose()?))
    }
}

impl Identity {
    /// The user of this name or number, with the groups that the system has for it, or with this one
    /// alone.
    ///
    /// # Errors
    /// What is not known, and what is expected.
    pub(crate) fn find(user: &str, group: Option<&str>) -> Result<Self, String> {
        let asked = (user.to_owned(), group.map(str::to_owned));
        let [passwd, groups] = ACCOUNTS.map(accounts_in);
        let account = match (passwd, groups) {
            (Ok(passwd), Ok(groups)) => Ok(Account::among(user, group, &passwd, &groups)?),
            (Err(unread), _) | (_, Err(unread)) => Err(unread),
        };
        Ok(Self { asked, account })
    }

    /// Its name, or number.
    pub(crate) fn name(&self) -> &str {
        self.account.as_ref().map_or(&self.asked.0, |account| &account.name)
    }

    /// Whether this process runs as another user.
    pub(crate) fn is_another(&self) -> bool {
        self.account.as_ref().is_ok_and(|account| geteuid().as_raw() != account.uid)
    }

    /// Has this thread, and all that it starts from now on, run as this user, with no way back. Of the
    /// user that it is already nothing is asked.
    ///
    /// # Errors
    /// [`ServerError::Privileges`]: other threads run already, or the process may not do so.
    pub(crate) fn assume(&self) -> Result<(), ServerError> {
        let failed =
            |cause: io::Error| ServerError::Privileges { user: self.name().to_owned(), cause };
        let account =
            self.account.as_ref().map_err(|unread| failed(io::Error::other(&**unread)))?;
        if !self.is_another() {
            return Ok(());
        }
        // The kernel's calls are about one thread.
        let threads = read_dir("/proc/self/task").map_err(failed)?.count();
        if threads != 1 {
            return Err(failed(io::Error::other(format!("{threads} threads run already"))));
        }
        let groups: Vec<Gid> = account.gids.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let uid = Uid::from_raw(account.uid);
        let gid = groups[0];
        set_thread_groups(&groups).map_err(|errno| failed(errno.into()))?;
        set_thread_res_gid(gid, gid, gid).map_err(|errno| failed(errno.into()))?;
        set_thread_res_uid(uid, uid, uid).map_err(|errno| failed(errno.into()))?;
        if set_thread_uid(Uid::ROOT).is_ok() {
            return Err(failed(io::Error::other("root can be regained")));
        }
        // Secure bits let them outlive the user that had them (capabilities(7)).
        let kept = capabilities(None).map_err(|errno| failed(errno.into()))?.permitted;
        if !kept.is_empty() {
            return Err(failed(io::Error::other(format!(
                "capabilities of root are left: {kept:?}"
            ))));
        }
        Ok(())
    }
}

impl Account {
    fn among(user: &str, group: Option<&str>, passwd: &str, groups: &str) -> Result<Self, String> {
        let number = user.parse::<u32>().ok();
        let known = passwd.lines().find_map(|line| {
            let words: Vec<&str> = line.split(':').collect();
            let uid = words.get(2)?.parse().ok()?;
            let gid = words.get(3)?.parse().ok()?;
            let is_meant = number.map_or(words[0] == user, |number| number == uid);
            is_meant.then(|| (words[0].to_owned(), uid, gid))
        });
        let group_of = |text: &str| group_among(text, groups);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0::/root:/bin/sh\nwww:x:33:34::/:/bin/false\nbroken\nodd:x:a:b::/:\n";
    const GROUP: &str =
        "root:x:0:\nwww:x:34:\nlogs:x:40:www,other\ncerts:x:41:other,www\nmain:x:34:www\n";

    fn found(user: &str, group: Option<&str>) -> Result<(String, u32, Vec<u32>), String> {
        let found = Account::among(user, group, PASSWD, GROUP)?;
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
            ("missing-user", None, "there is no user missing-user"),
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

    #[test]
    fn a_user_that_could_not_be_looked_up_again_is_known_by_its_words_and_never_assumed() {
        let asked = |user: &str| (user.to_owned(), None);
        let account = || Account::among("www", None, PASSWD, GROUP);
        let known = Identity { asked: asked("www"), account: account() };
        let unread = Identity { asked: asked("www"), account: Err("not readable".into()) };
        assert_eq!(known, unread);
        assert_ne!(known, Identity { asked: asked("33"), account: account() });
        assert!(!unread.is_another() && unread.name() == "www");
        let wrong = pollux_settings::command::output::error_chain(
            &unread.assume().expect_err("who it is is not known"),
        );
        assert!(wrong.ends_with(": not readable"), "{wrong}");
    }

    #[test]
    fn owners_of_sockets_are_found_by_name_and_number() {
        let found = |text: &str| SocketOwner::read(text).expect(text).among(PASSWD, GROUP);
        assert_eq!(found("www"), Ok((Some(33), None)));
        assert_eq!(found("www:logs"), Ok((Some(33), Some(40))));
        assert_eq!(found(":certs"), Ok((None, Some(41))));
        assert_eq!(found("7:8"), Ok((Some(7), Some(8))));
        assert!(found("nobody-here").is_err() && found(":none").is_err());
    }
}
