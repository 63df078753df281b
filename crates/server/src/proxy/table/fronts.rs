//! Settings of a front end: where clients come, what is passed on, and what of it.

use pollux_engine::ListenAddress;
use pollux_settings::{Key, Keys, address, did_you_mean, name, one_of};

use crate::config::table::{ADDRESSES_MAX, RULES_MAX, field_rule, tls};
use crate::proxy::config::{Forwarding, Frontend, Mode};
use crate::rules::{FieldRule, FieldRules};

pub(super) const LISTEN: &str = "HOST:PORT, :PORT (every address of this machine), [IPV6]:PORT or unix:PATH; \
                      repeatable; port 0 takes a free one";

/// What a front end does; where it listens and leads to is still to be said.
pub(super) fn manner(keys: &mut Keys<'_>) -> Option<Frontend> {
    let (mode, tls, accepts_header) = (mode(keys), tls(keys), accepts_header(keys));
    let x_forwarded = forwarding(
        keys,
        "x_forwarded",
        "What becomes of X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host, which tell the backend \
         who asked",
        "replace",
    );
    let forwarded = forwarding(
        keys,
        "forwarded",
        "What becomes of Forwarded (RFC 7239), which tells the same",
        "remove",
    );
    let rules = rules(keys);
    Some(Frontend {
        listen: Vec::new(),
        group: 0,
        mode: mode?,
        tls: tls?,
        accepts_header: accepts_header?,
        x_forwarded: x_forwarded?,
        forwarded: forwarded?,
        rules: rules?,
    })
}

fn forwarding(
    keys: &mut Keys<'_>,
    name: &'static str,
    about: &'static str,
    default: &'static str,
) -> Option<Forwarding> {
    let ways = Forwarding::ALL.map(|each| (each.name(), each.about(), each));
    keys.key(name, about).default(default).one(&one_of("way", ways).called("HOW"))
}

/// A front end, where these are the names of the groups; none where they are not known.
pub(super) fn frontend(keys: &mut Keys<'_>, groups: Option<&[String]>) -> Option<Frontend> {
    let listen = listen(keys.key("listen", LISTEN));
    let backend = keys
        .key("backend", "Name of the [[backend]] that requests go to")
        .otherwise("the only one")
        .optional(&name());
    let manner = manner(keys);
    let (listen, backend, groups, manner) = (listen?, backend?, groups?, manner?);
    match (backend, groups) {
        (None, [_]) => Some(Frontend { listen, ..manner }),
        (None, _) => {
            keys.refuse(
                "[[frontend]] lacks the key \"backend\"; expected the name of a [[backend]]",
            );
            None
        }
        (Some(wanted), _) => match groups.iter().position(|name| *name == wanted) {
            Some(group) => Some(Frontend { listen, group, ..manner }),
            None => {
                let near = did_you_mean(&wanted, groups.iter().map(String::as_str));
                keys.note("backend", format!("no [[backend]] is called \"{wanted}\"{near}"));
                None
            }
        },
    }
}

/// What is done to fields of heads.
fn rules(keys: &mut Keys<'_>) -> Option<FieldRules> {
    let request = keys
        .key("request_field", "What is done to a field of requests; repeatable, in this order")
        .list(&field_rule(FieldRule::read), 0..=RULES_MAX);
    let response = keys
        .key("response_field", "What is done to a field of answers; repeatable, in this order")
        .list(&field_rule(FieldRule::read), 0..=RULES_MAX);
    Some(FieldRules { request: request?, response: response? })
}

pub(super) fn listen(key: Key<'_, '_>) -> Option<Vec<ListenAddress>> {
    key.list(&address(), 1..=ADDRESSES_MAX)
}

fn mode(keys: &mut Keys<'_>) -> Option<Mode> {
    let modes =
        [("http", "requests of HTTP/1.1", Mode::Http), ("tcp", "bytes, both ways", Mode::Tcp)];
    keys.key("mode", "What is passed on").default("http").one(&one_of("mode", modes))
}

fn accepts_header(keys: &mut Keys<'_>) -> Option<bool> {
    keys.key(
        "accept_proxy",
        "Each connection has to begin with a head of the PROXY protocol (version 1 or 2) that says \
         whose it is: for clients that are proxies of your own",
    )
    .switch()
}
