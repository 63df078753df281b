//! Settings of a front end: where clients come, what is passed on, and what of it.

use pollux_engine::ListenAddress;
use pollux_settings::{Keys, Kind, Table, did_you_mean, name, one_of, table};

use crate::config::{ADDRESSES_MAX, RULES_MAX, address, certificate, field_rule};
use crate::rules::FieldRules;
use crate::tls;

pub(super) const LISTEN: &str = "HOST:PORT, :PORT (every address of this machine), [IPV6]:PORT or unix:PATH; \
                                 repeatable; port 0 takes a free one";

table! { keys, key, default;
    /// A front end: where clients come, and where their requests go.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Frontend {
        /// Where it listens; at least one.
        pub listen: Vec<ListenAddress> = Vec::new(),
        /// The place of its backends in [`ProxyConfig::groups`](super::ProxyConfig::groups).
        pub group: usize = 0,
        /// What is passed on
        pub mode: Mode = key.default("http").one(&Mode::kind()),
        /// Its certificate, where clients speak TLS.
        pub tls: Option<tls::Keys> = certificate(keys),
        /// Each connection has to begin with a head of the PROXY protocol (version 1 or 2) that says
        /// whose it is: for clients that are proxies of your own
        pub accepts_header as "accept_proxy": bool = key.switch(),
        /// What becomes of X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host, which name the
        /// client to the backend
        pub x_forwarded: Forwarding = key.default("replace").one(&Forwarding::kind()),
        /// What becomes of Forwarded (RFC 7239), which does the same
        pub forwarded: Forwarding = key.default("remove").one(&Forwarding::kind()),
        /// What is done to fields of its requests and their answers.
        pub rules: FieldRules = rules(keys),
    }
}

impl Frontend {
    /// That of a section, where these are the names of the groups; none where they are not known.
    pub(super) fn of_section(keys: &mut Keys<'_>, groups: Option<&[String]>) -> Self {
        let listen = keys.key("listen", LISTEN).list(&address(), 1..=ADDRESSES_MAX);
        let backend = keys.key("backend", "Name of the [[backend]] that requests go to");
        let backend = backend.otherwise("the only one").optional(&name());
        let front = Self { listen, ..Self::read(keys) };
        let Some(groups) = groups.filter(|_| !keys.is_wrong("backend")) else { return front };
        let Some(wanted) = backend else {
            if groups.len() != 1 {
                let what =
                    "[[frontend]] lacks the key \"backend\"; expected the name of a [[backend]]";
                keys.refuse(what);
            }
            return front;
        };
        let group = groups.iter().position(|name| *name == wanted).unwrap_or_else(|| {
            let near = did_you_mean(&wanted, groups.iter().map(String::as_str));
            keys.note("backend", format!("no [[backend]] is called \"{wanted}\"{near}"));
            0
        });
        Self { group, ..front }
    }
}

/// What is done to fields of heads.
fn rules(keys: &mut Keys<'_>) -> FieldRules {
    let mut rules = |name, about| keys.key(name, about).list(&field_rule(), 0..=RULES_MAX);
    FieldRules {
        request: rules(
            "request_field",
            "What is done to a field of requests; repeatable, in this order",
        ),
        response: rules(
            "response_field",
            "What is done to a field of answers; repeatable, in this order",
        ),
    }
}

/// What a front end passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Requests of HTTP/1.1.
    #[default]
    Http,
    /// Bytes.
    Tcp,
}

impl Mode {
    fn kind() -> Kind<Self> {
        let http = ("http", "requests of HTTP/1.1", Self::Http);
        one_of("mode", [http, ("tcp", "bytes, both ways", Self::Tcp)])
    }
}

/// What becomes of fields that name the client to the backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// The client's fields are passed on, with the proxy's own behind them.
    Add,
    /// The client's fields are dropped: no client can claim to be another one.
    Replace,
    /// The client's fields are passed on, and the proxy writes none.
    Keep,
    /// They are dropped.
    Remove,
}

impl Forwarding {
    fn kind() -> Kind<Self> {
        let replace = "the proxy writes them; what clients say is dropped";
        let add = "what the proxy knows stands behind what clients say: for proxies of your own";
        let keep = "the client's fields are passed on unchanged, and nothing is added: for proxies of your own";
        let remove = "what clients say is dropped, and nothing is written";
        let ways = [
            ("replace", replace, Self::Replace),
            ("add", add, Self::Add),
            ("keep", keep, Self::Keep),
            ("remove", remove, Self::Remove),
        ];
        one_of("way", ways).called("HOW")
    }

    /// Whether the proxy names the client.
    pub(in crate::proxy) fn writes(self) -> bool {
        matches!(self, Self::Add | Self::Replace)
    }
}
