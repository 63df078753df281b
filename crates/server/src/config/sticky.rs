//! Settings of cookies that lead clients back to the server that they had.

use std::fmt;

use pollux_settings::{Keys, Kind, Table, one_of, table};

/// Least bytes of a secret: who has seen a cookie has no use in guessing it.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 256;
const COOKIE_BYTES_MAX: usize = 64;
/// What stands in front of the name of a group, where its cookie has no name of its own.
const COOKIE_PREFIX: &str = "pollux_";

/// The cookie that leads clients back to the server of a group that they had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sticky {
    /// Its name.
    pub cookie: String,
    /// What its values are made with.
    pub(crate) secret: Secret,
    /// On which requests browsers send it.
    pub(crate) same_site: SameSite,
}

/// What is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// On which requests browsers send a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SameSite {
    #[default]
    Lax,
    Strict,
    None,
}

impl SameSite {
    /// Its word in a Set-Cookie field.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lax => "Lax",
            Self::Strict => "Strict",
            Self::None => "None",
        }
    }
}

const NO_STICKY: &str = "applies only to cookies that lead clients back; expected sticky as well";

table! { keys, key;
    /// What is said of cookies that lead clients back.
    struct Said {
        /// Lead clients back to the server of the backend that they had
        is_by_cookie as "sticky": Option<()> =
            key.otherwise("each request goes by balance").optional(&ways()),
        /// Name of the cookie, which is another one for each backend
        cookie as "sticky_cookie": Option<String> = key.otherwise("pollux_ and the name of the backend")
            .needs("sticky", NO_STICKY)
            .optional(&cookie_name()),
        /// A secret that the values of the cookie are made with: who does not have it can't find out the address of a
        /// server by trying; several proxies have the same one
        secret as "sticky_secret": Option<String> = key.only_file().otherwise("the name of the backend")
            .needs("sticky", NO_STICKY)
            .example("\"${STICKY_SECRET}\"")
            .optional(&secret()),
        /// On which requests browsers send the cookie
        same_site as "sticky_same_site": SameSite =
            key.default("lax").needs("sticky", NO_STICKY).one(&same_site()),
    }
}

impl Sticky {
    /// What is said of the cookie of the group called `name`, where it has one.
    pub(super) fn read(keys: &mut Keys<'_>, name: &str) -> Option<Self> {
        let Said { is_by_cookie, cookie, secret, same_site } = Said::read(keys);
        is_by_cookie?;
        let cookie = cookie.unwrap_or_else(|| format!("{COOKIE_PREFIX}{name}"));
        let secret = Secret(secret.unwrap_or_else(|| name.to_owned()));
        Some(Self { cookie, secret, same_site })
    }
}

fn ways() -> Kind<()> {
    one_of("way", [("cookie", "by a cookie, which answers set and backends do not see", ())])
        .called("HOW")
}

fn same_site() -> Kind<SameSite> {
    let lax = "those of the same site, and where a link leads there";
    let strict = "those of the same site";
    let none = "all, also of pages of other sites; the cookie is then for https alone";
    let all = [
        ("lax", lax, SameSite::Lax),
        ("strict", strict, SameSite::Strict),
        ("none", none, SameSite::None),
    ];
    one_of("rule", all).called("RULE")
}

fn cookie_name() -> Kind<String> {
    let accepts = "a name of at most 64 letters, digits, \"-\", \"_\" or \".\", such as route";
    Kind::new("NAME", accepts, |text| {
        let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=COOKIE_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_in_name);
        if is_name { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}

fn secret() -> Kind<String> {
    let accepts = "16 to 256 characters that nobody can guess (openssl rand -hex 16 makes some)";
    Kind::new("SECRET", accepts, |text| {
        let is_long = (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&text.len());
        if is_long { Ok(text.to_owned()) } else { Err(String::new()) }
    })
}

#[cfg(test)]
mod tests {
    use pollux_settings::Given;

    use super::*;
    use crate::config::ProxyConfig;

    fn read(said: &str) -> Result<Option<Sticky>, String> {
        let text = format!("{said}\n[[server]]\naddress = \"10.0.0.1:80\"");
        let read = Given::from_toml(&text, "p").read::<ProxyConfig>();
        read.map(|config| config.groups[0].sticky.clone()).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn a_cookie_has_a_name_and_is_sent_to_the_same_site_unless_something_else_is_said() {
        let sticky = |cookie: &str, secret: &str, same_site| {
            let secret = Secret(secret.to_owned());
            Ok(Some(Sticky { cookie: cookie.to_owned(), secret, same_site }))
        };
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("sticky = \"cookie\""), sticky("pollux_default", "default", SameSite::Lax));
        let all = "sticky = \"cookie\"\nsticky_cookie = \"route\"\nsticky_same_site = \"none\"\n\
                   sticky_secret = \"0123456789abcdef\"";
        assert_eq!(read(all), sticky("route", "0123456789abcdef", SameSite::None));
        assert!(!format!("{:?}", read(all)).contains("abcdef"), "a secret is not shown");
    }

    #[test]
    fn what_is_wrong_with_a_cookie_has_its_place() {
        for (said, expected) in [
            ("sticky = \"ip\"", "p:1:10: sticky"),
            ("sticky_cookie = \"a\"", "p:1:17: sticky_cookie: applies only to cookies"),
            ("sticky_same_site = \"lax\"", "p:1:20: sticky_same_site: applies only to cookies"),
            ("sticky = \"cookie\"\nsticky_cookie = \"a b\"", "p:2:17: sticky_cookie"),
            ("sticky = \"cookie\"\nsticky_cookie = \"\"", "p:2:17: sticky_cookie"),
            ("sticky = \"cookie\"\nsticky_secret = \"short\"", "expected 16 to 256 characters"),
            ("mode = \"tcp\"\nsticky = \"cookie\"", "applies only to mode \"http\""),
        ] {
            let message = read(said).expect_err(said);
            assert!(message.contains(expected) && message.lines().count() == 1, "{message}");
        }
    }
}
