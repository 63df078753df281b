//! Files of users: a line for each, `NAME:HASH` as htpasswd(1) makes it, with a hash that costs so much to try that it is not
//! guessed. Read at the start, before there are clients.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};

use crate::random::random;

/// Longest file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest name of a user.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Longest password; bcrypt takes no notice of what is behind the first 72 bytes of one.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;
/// The most that a check of argon2id may cost, so that its thread comes to an end: KiB of memory, and passes over it.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;
/// The least, below which many passwords are guessed in a second.
const MEMORY_KIB_MIN: u32 = 7 * 1024;
/// Rounds of bcrypt, as a power of two.
const COST_MIN: u32 = 8;
const COST_MAX: u32 = 12;
/// What new lines are made with: 19 MiB and two passes, as OWASP has it.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;

const EXPECTED: &str = "expected argon2id or bcrypt: pollux serve password";

/// The users of a file, in its order.
pub(crate) struct UserList {
    hashes: Vec<Hash>,
    places: HashMap<String, usize>,
}

/// What a password is held against.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Hash {
    Argon2id(String),
    Bcrypt(String),
}

impl UserList {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let at = path.display();
        let failed = |error: std::io::Error| format!("{at}: the users can't be read: {error}");
        let file = File::open(path).map_err(failed)?;
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!(
                "{at}: is longer than {FILE_BYTES_MAX} bytes; expected fewer users"
            ));
        }
        Self::parse(&text).map_err(|(line, why)| match line {
            0 => format!("{at}: {why}"),
            line => format!("{at}:{line}: {why}"),
        })
    }

    /// The same of what is in it; an error has the number of its line, from 1, or 0 where it is about all.
    fn parse(text: &[u8]) -> Result<Self, (usize, String)> {
        let mut list = Self { hashes: Vec::new(), places: HashMap::new() };
        let mut lines = HashMap::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |why: String| (number + 1, why);
            let line = str::from_utf8(line).map_err(|_| wrong("is not UTF-8".to_owned()))?.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line.split_once(':').ok_or_else(|| {
                wrong("has no colon; expected NAME:HASH: pollux serve password".to_owned())
            })?;
            if !is_name(name) {
                let why = format!(
                    "\"{}\" is not a name; expected 1 to {NAME_BYTES_MAX} bytes without spaces at the ends, colons and \
                     control characters",
                    name.escape_debug()
                );
                return Err(wrong(why));
            }
            let hash = Hash::read(hash).map_err(|why| wrong(format!("{name}'s password {why}")))?;
            if let Some(before) = lines.insert(name.to_owned(), number + 1) {
                let why =
                    format!("{name} stands in line {before} as well; expected each name once");
                return Err(wrong(why));
            }
            list.places.insert(name.to_owned(), list.hashes.len());
            list.hashes.push(hash);
        }
        if list.hashes.is_empty() {
            return Err((
                0,
                "has no users; expected lines NAME:HASH: pollux serve password".to_owned(),
            ));
        }
        Ok(list)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// What the password of this user is held against, as text; empty where there is no such user.
    pub(super) fn stored(&self, name: &str) -> &str {
        match self.places.get(name).map(|place| &self.hashes[*place]) {
            Some(Hash::Argon2id(text) | Hash::Bcrypt(text)) => text,
            None => "",
        }
    }

    /// Whether this is the password of this user. It takes as long of one that is not there, for whom the one of another
    /// is tried in vain, always the same: `lot` chooses it.
    pub(super) fn is_right(&self, name: &str, password: &str, lot: u64) -> bool {
        match self.places.get(name) {
            Some(place) => self.hashes[*place].is_of(password),
            None => {
                self.hashes[(lot % self.hashes.len() as u64) as usize].is_of(password);
                false
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.chars().any(char::is_control)
        && name.trim() == name
}

impl Hash {
    /// Reads what stands behind the colon; why not, as the end of a sentence about the password.
    fn read(text: &str) -> Result<Self, String> {
        if text.starts_with("$argon2id$") {
            return Self::argon2id(text).map(|()| Self::Argon2id(text.to_owned()));
        }
        if ["$2y$", "$2b$", "$2a$"].iter().any(|start| text.starts_with(start)) {
            return Self::bcrypt(text).map(|()| Self::Bcrypt(text.to_owned()));
        }
        let by = match text {
            _ if text.starts_with("$argon2") => {
                return Err(format!("is hashed by another argon2 than argon2id; {EXPECTED}"));
            }
            _ if text.starts_with("$apr1$") => "is hashed by MD5 ($apr1$)",
            _ if text.starts_with("$1$") => "is hashed by MD5 ($1$)",
            _ if text.starts_with("{SHA}") => "is hashed by SHA-1 ({SHA})",
            _ if text.starts_with("$5$") => "is hashed by SHA-256 ($5$)",
            _ if text.starts_with("$6$") => "is hashed by SHA-512 ($6$)",
            _ => return Err(format!("is not hashed, or by crypt; {EXPECTED}")),
        };
        Err(format!("{by}, which is guessed too fast; {EXPECTED}"))
    }

    fn argon2id(text: &str) -> Result<(), String> {
        let unsound = || format!("is not a whole hash of argon2id; {EXPECTED}");
        let hash = PasswordHash::new(text).map_err(|_| unsound())?;
        if hash.version.is_some_and(|version| version != 19)
            || hash.salt.is_none()
            || hash.hash.is_none()
        {
            return Err(unsound());
        }
        let params = Params::try_from(&hash).map_err(|_| unsound())?;
        let memory = params.m_cost();
        let passes = params.t_cost();
        if memory > MEMORY_KIB_MAX || passes > PASSES_MAX || params.p_cost() > LANES_MAX {
            return Err(format!(
                "costs m={memory},t={passes},p={} to check; expected m={MEMORY_KIB_MAX},t={PASSES_MAX},p={LANES_MAX} at most",
                params.p_cost()
            ));
        }
        if u64::from(memory) * u64::from(passes) < u64::from(MEMORY_KIB_MIN) {
            return Err(format!(
                "costs m={memory},t={passes}, which is guessed too fast; expected m={MEMORY_KIB_MIN} at least"
            ));
        }
        Ok(())
    }

    fn bcrypt(text: &str) -> Result<(), String> {
        let parts = text.parse::<bcrypt::HashParts>();
        let parts = parts.map_err(|_| format!("is not a whole hash of bcrypt; {EXPECTED}"))?;
        match parts.get_cost() {
            cost if cost > COST_MAX => Err(format!(
                "has the cost {cost}, which takes too long; expected {COST_MIN} to {COST_MAX}"
            )),
            cost if cost < COST_MIN => Err(format!(
                "has the cost {cost}, which is guessed too fast; expected {COST_MIN} to {COST_MAX}"
            )),
            _ => Ok(()),
        }
    }

    /// Whether it was made of this password; both compare in constant time.
    fn is_of(&self, password: &str) -> bool {
        match self {
            Self::Argon2id(text) => PasswordHash::new(text).is_ok_and(|hash| {
                Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
            }),
            Self::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or(false),
        }
    }
}

/// A line for a file of users, made by argon2id with a salt of its own.
///
/// # Errors
/// What is wrong with the name or the password.
pub fn password_line(name: &str, password: &str) -> Result<String, String> {
    if !is_name(name) {
        return Err(format!(
            "\"{}\" is not a name; expected 1 to {NAME_BYTES_MAX} bytes without spaces at the ends, colons and control \
             characters",
            name.escape_debug()
        ));
    }
    if name.contains(':') {
        return Err(format!("\"{name}\" has a colon, which ends a name; expected none"));
    }
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(format!(
            "the password has {} bytes; expected 1 to {PASSWORD_BYTES_MAX}",
            password.len()
        ));
    }
    let salt = SaltString::encode_b64(&random::<16>()).map_err(|error| error.to_string())?;
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).map_err(|error| error.to_string())?;
    let argon2 = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let hash = argon2.hash_password(password.as_bytes(), &salt);
    Ok(format!("{name}:{}", hash.map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "geheim", by bcrypt with the cost 8.
    fn by_bcrypt() -> String {
        bcrypt::hash_with_salt("geheim", 8, *b"0123456789abcdef").expect("hashed").to_string()
    }

    fn wrong(line: &str) -> (usize, String) {
        UserList::parse(line.as_bytes()).err().expect("a mistake")
    }

    #[test]
    fn lines_of_both_kinds_are_read_and_hold_their_passwords() {
        let own = password_line("bert", "grün: 7").expect("made");
        let text = format!("# staff\n\nanna:{}\r\n{own}\n", by_bcrypt());
        let list = UserList::parse(text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong:?}"));
        assert_eq!(list.len(), 2);
        assert!(list.is_right("anna", "geheim", 0) && list.is_right("bert", "grün: 7", 0));
        for (name, password) in
            [("anna", "geheim "), ("bert", "geheim"), ("Anna", "geheim"), ("", "")]
        {
            for lot in 0..2 {
                assert!(!list.is_right(name, password, lot), "{name} {password}");
            }
        }
        assert_ne!(own, password_line("bert", "grün: 7").expect("made"), "a salt of its own");
        assert!(list.stored("anna").starts_with("$2") && list.stored("carl").is_empty());
    }

    #[test]
    fn what_is_guessed_too_fast_or_not_sound_is_refused_by_its_line() {
        let argon2 = |params: &str| {
            format!("a:$argon2id$v=19${params}$c2FsdHNhbHQ$RdescudvJCsgt3ub+b5dWRWJTmaaJObG")
        };
        let bcrypt = |cost: &str| format!("a:{}", by_bcrypt().replacen("$08$", cost, 1));
        for (line, why) in [
            (
                "anna:$apr1$x$y".to_owned(),
                "anna's password is hashed by MD5 ($apr1$), which is guessed too fast; expected argon2id or bcrypt: pollux serve password",
            ),
            ("anna:$1$x$y".to_owned(), "anna's password is hashed by MD5 ($1$), which"),
            ("anna:{SHA}xyz=".to_owned(), "anna's password is hashed by SHA-1 ({SHA}), which"),
            ("anna:$6$x$y".to_owned(), "anna's password is hashed by SHA-512 ($6$), which"),
            (
                "anna:rqXexS6ZhobKA".to_owned(),
                "anna's password is not hashed, or by crypt; expected",
            ),
            ("anna:".to_owned(), "anna's password is not hashed, or by crypt; expected"),
            (
                "a:$argon2i$v=19$m=65536,t=2,p=1$c2FsdA$aGFzaA".to_owned(),
                "a's password is hashed by another argon2 than",
            ),
            (
                "a:$argon2id$v=19$m=65536".to_owned(),
                "a's password is not a whole hash of argon2id; expected",
            ),
            (
                argon2("m=1048576,t=2,p=1"),
                "a's password costs m=1048576,t=2,p=1 to check; expected m=262144,t=16,p=16 at most",
            ),
            (argon2("m=19456,t=17,p=1"), "a's password costs m=19456,t=17,p=1 to check"),
            (
                argon2("m=64,t=2,p=1"),
                "a's password costs m=64,t=2, which is guessed too fast; expected m=7168 at least",
            ),
            (
                bcrypt("$04$"),
                "a's password has the cost 4, which is guessed too fast; expected 8 to 12",
            ),
            (
                bcrypt("$14$"),
                "a's password has the cost 14, which takes too long; expected 8 to 12",
            ),
            ("a:$2y$10$short".to_owned(), "a's password is not a whole hash of bcrypt; expected"),
            ("anna".to_owned(), "has no colon; expected NAME:HASH: pollux serve password"),
            (":x".to_owned(), "\"\" is not a name; expected 1 to 255 bytes"),
            ("a\u{1}:x".to_owned(), "\"a\\u{1}\" is not a name"),
        ] {
            let (number, found) = wrong(&format!("# one\n{line}\n"));
            assert!(number == 2 && found.starts_with(why), "{line}: {number}: {found}");
        }
        let twice = format!("a:{0}\nb:{0}\na:{0}", by_bcrypt());
        assert_eq!(
            wrong(&twice),
            (3, "a stands in line 1 as well; expected each name once".to_owned())
        );
        assert_eq!(wrong("# nobody\n").0, 0);
        assert!(password_line("a:b", "x").is_err() && password_line("a", "").is_err());
    }

    #[test]
    fn a_file_that_is_not_there_or_wrong_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("staff.users");
        let read = || UserList::read(&path).err().expect("a mistake");
        assert!(
            read().contains("staff.users: the users can't be read: No such file"),
            "{}",
            read()
        );
        std::fs::write(&path, "a:{SHA}x\n").expect("written");
        assert!(read().contains("staff.users:1: a's password is hashed by SHA-1"), "{}", read());
        std::fs::write(&path, vec![b'#'; 1 << 20 | 1]).expect("written");
        assert!(read().contains("is longer than 1048576 bytes"), "{}", read());
    }
}
