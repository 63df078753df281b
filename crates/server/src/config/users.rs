//! Settings of users: files with the passwords of who may ask, under names that sites and routes say.

use std::path::PathBuf;

use pollux_settings::{Keys, Kind, name, path};

use crate::config::named::{place_of, refuse_twins};

/// Most sections.
const USERS_MAX: usize = 64;
/// Longest text that a client is shown.
const REALM_BYTES_MAX: usize = 128;
/// What loosens a route of a site with users.
const NONE: &str = "none";
const ABOUT: &str = "Who may ask where a site or route names it in users: a file with a line NAME:HASH for each, as htpasswd writes it";

/// The users of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsersConfig {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// What a browser shows where it asks for a password.
    pub(crate) realm: String,
    /// Whether a backend gets the name of the user.
    pub(crate) passes_user: bool,
    /// Whether it gets Authorization as it came.
    pub(crate) passes_password: bool,
}

/// What a site or a route says of users.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum UsersSaid {
    #[default]
    Nothing,
    /// Everybody may ask.
    None,
    /// Those at this place.
    Of(usize),
}

impl UsersSaid {
    /// The users of a route that says this, where its site has those.
    pub(crate) fn or(self, of_site: Self) -> Option<usize> {
        match (self, of_site) {
            (Self::Of(place), _) | (Self::Nothing, Self::Of(place)) => Some(place),
            _ => None,
        }
    }
}

/// The users of a file.
pub(super) fn users(keys: &mut Keys<'_>) -> Vec<UsersConfig> {
    let all = keys.tables("users", ABOUT, 0..=USERS_MAX, one);
    let all: Vec<UsersConfig> = all.into_iter().flatten().collect();
    refuse_twins(keys, "users", &all, |users| &users.name);
    all
}

fn one(keys: &mut Keys<'_>) -> Option<UsersConfig> {
    let own = keys.key("name", "Name for users of a site or route").required(&name());
    if own.as_deref() == Some(NONE) {
        keys.note("name", "\"none\" stands for everybody; expected another name");
    }
    let about = "The file, of lines NAME:HASH with a hash by argon2id (pollux serve password) or bcrypt (htpasswd -B)";
    let file = keys.key("file", about).example("\"/etc/pollux/staff.users\"").required(&path());
    let about = "What a browser shows where it asks for a password";
    let of_realm = Kind::new("TEXT", "text without \" and \\", |text: &str| {
        let is_one =
            |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) && !matches!(byte, b'"' | b'\\');
        let is_right =
            !text.is_empty() && text.len() <= REALM_BYTES_MAX && text.bytes().all(is_one);
        if is_right { Ok(text.to_owned()) } else { Err(String::new()) }
    });
    let realm = keys.key("realm", about).otherwise("name").optional(&of_realm);
    let about = "Give backends the name of the user as X-Remote-User; what a client says there is dropped by all routes then";
    let passes_user = keys.key("pass_user", about).switch();
    let about = "Give backends Authorization as the client sent it, with the password";
    let passes_password = keys.key("pass_password", about).switch();
    let name: String = own?;
    let file: PathBuf = file?;
    let realm = realm.unwrap_or_else(|| name.clone());
    Some(UsersConfig { name, file, realm, passes_user, passes_password })
}

/// The users that a site or route names.
pub(super) fn named(keys: &mut Keys<'_>, known: &[UsersConfig], about: &'static str) -> UsersSaid {
    let named = keys.key("users", about).otherwise("everybody").optional(&name());
    let Some(named) = named else { return UsersSaid::Nothing };
    if named == NONE {
        return UsersSaid::None;
    }
    let known = known.iter().map(|users| users.name.as_str());
    place_of(keys, "users", "users", &named, known).map_or(UsersSaid::Nothing, UsersSaid::Of)
}

#[cfg(test)]
mod tests {
    use crate::config::ProxyConfig;
    use crate::config::serve_or_proxy::proxy_of;

    const STAFF: &str = "[[users]]\nname = \"staff\"\nfile = \"staff.users\"\n";

    #[test]
    fn a_check_says_whose_passwords_are_asked_for_and_where_they_can_be_read() {
        let sites = "[[site]]\nhost = \"a.example\"\nusers = \"staff\"\n\
                     route = [ { path = \"/\", reply = 1 }, { path = \"/free\", reply = 2, users = \"none\" },\n\
                     { path = \"/.well-known/acme-challenge/\", reply = 3 } ]\n\
                     [[site]]\nhost = \"b.example\"\nroute = [ { path = \"/\", reply = 1, users = \"staff\" } ]\n";
        let config = proxy_of(&format!("{STAFF}{sites}")).expect("right");
        assert_eq!(
            config.sites.summary(&config.groups),
            "site a.example\n  users staff\n  \
             /free                         a reply of 2 bytes, users none: everybody may ask\n  \
             /.well-known/acme-challenge/  a reply of 3 bytes, the site's rules for who may ask aside\n  \
             /                             a reply of 1 bytes\n\
             site b.example\n  \
             /  a reply of 1 bytes, users staff\n"
        );
        let warned = |config: &ProxyConfig| {
            config.sites.warnings.iter().any(|warning| {
                warning.starts_with(
                    "users: passwords that come by 127.0.0.1:8080 can be read on their way",
                )
            })
        };
        assert!(warned(&config), "{:?}", config.sites.warnings);
        let tls = "[[frontend]]\nlisten = \":443\"\ncert = \"c\"\nkey = \"k\"\n\
                   [[frontend]]\nlisten = \":80\"\nredirect = \"https\"\n";
        let config = proxy_of(&format!("{tls}{STAFF}{sites}")).expect("right");
        assert_eq!(config.sites.warnings, Vec::<String>::new());
    }
}
