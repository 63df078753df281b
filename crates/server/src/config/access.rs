//! Settings of who may ask: `allow`, `deny` and `deny_with` of sites and routes, and the proxies in front that say who
//! asks.

use crate::route::request_id::RequestIdConfig;
use pollux_settings::{Keys, Kind, one_of};

use crate::config::rates::is_field_name;
use crate::route::access::{AccessRules, DenyWith, Network, TrustedProxies};

/// Most networks of a list: they are compared one after the other.
const NETWORKS_MAX: usize = 256;
/// What stands for all unix sockets.
const UNIX: &str = "unix:";

/// Who may ask, of a site or of a route.
pub(super) fn access(keys: &mut Keys<'_>) -> AccessRules {
    let about = "Take requests from these addresses and networks alone: 192.0.2.7, 192.0.2.0/24, 2001:db8::/48. Of allow and deny \
                 the smallest network decides, deny where both are the same. The rules of a site hold for all its routes; those of \
                 a route come to them";
    let key = keys.key("allow", about).otherwise("all addresses");
    let allow = key.example("\"192.0.2.0/24\"").distinct(&network(), 0..=NETWORKS_MAX);
    let about = "Take no request from these addresses and networks";
    let key = keys.key("deny", about).example("\"192.0.2.0/24\"");
    let deny = key.distinct(&network(), 0..=NETWORKS_MAX);
    let ways = [
        ("403", "answer 403", DenyWith::Forbidden),
        (
            "close",
            "end the connection, or the stream of HTTP/2, without an answer",
            DenyWith::Close,
        ),
    ];
    let about = "What becomes of a request that allow and deny do not let through";
    let key = keys.key("deny_with", about).default("403");
    let deny_with = key.one(&one_of("way", ways));
    if keys.has("deny_with") && allow.is_empty() && deny.is_empty() {
        keys.note(
            "deny_with",
            "has no effect where nobody is denied; expected allow or deny as well",
        );
    }
    AccessRules { allow, deny, deny_with }
}

/// Proxies in front whose X-Forwarded-For is believed.
pub(super) fn trusted_proxies(keys: &mut Keys<'_>) -> TrustedProxies {
    let about = "Proxies in front, by address or network, whose X-Forwarded-For says whom allow, deny, limits and wrong passwords are about: its last \
                 address that is none of these; unix: for all that come by a unix socket";
    let kind = Kind::new("ADDRESS", "an address, a network such as 10.0.0.0/8, or unix:", |text| {
        if text == UNIX { Ok(None) } else { Network::read(text).map(Some) }
    });
    let key = keys.key("trusted_proxies", about).only_file().otherwise("none");
    let all = key.example("\"10.0.0.0/8\"").distinct(&kind, 0..=NETWORKS_MAX);
    TrustedProxies {
        has_unix_sockets: all.contains(&None),
        networks: all.into_iter().flatten().collect(),
    }
}

/// The ids that requests to backends have.
pub(super) fn request_id(keys: &mut Keys<'_>) -> Option<RequestIdConfig> {
    let about = "Give each request an id, which backends get in this field and the log has (JSON): 32 hex digits, or what the field \
                 says where one of trusted_proxies sent it";
    let kind = Kind::new("NAME", "a name of a field, such as X-Request-Id", |text: &str| {
        if is_field_name(text) { Ok(text.to_owned()) } else { Err(String::new()) }
    });
    let key = keys.key("request_id", about).only_file().otherwise("none");
    let name = key.example("\"X-Request-Id\"").optional(&kind);
    let about = "Give clients the id in the answer, too";
    let key = keys.key("request_id_answer", about).only_file();
    let is_answered = key.needs("request_id", "is about the field of request_id").switch();
    name.map(|name| RequestIdConfig { name, is_answered })
}

fn network() -> Kind<Network> {
    let accepts = "an address, or a network such as 192.0.2.0/24 or 2001:db8::/48";
    Kind::new("ADDRESS", accepts, Network::read)
}
