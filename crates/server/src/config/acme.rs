//! The folder in which `pollux-acme` leaves what authorities ask for before they issue certificates (RFC 8555), as a route of
//! each site.

use std::path::{Path, PathBuf};

use pollux_settings::{Keys, path};

use crate::config::Files;
use crate::config::added::Added;
use crate::config::sites::{RouteAnswer, RouteConfig, SiteConfig};
use crate::route::access::AccessRules;
use crate::route::conditions::Conditions;
use crate::route::path::PathPattern;
use crate::route::rewrite::Rewrite;
use crate::route::table::{ACME, RouteRule};

/// The folder with answers to challenges, where there is one.
pub(super) fn challenges(keys: &mut Keys<'_>) -> Option<PathBuf> {
    let about = "Answer who issues certificates (ACME, http-01) from this folder, of every site, by http too, and whatever is said of who \
                 may ask: pollux-acme leaves its files there. A certificate that is still missing only gets a warning then";
    let key = keys.key("acme_challenges", about).only_file().otherwise("none");
    key.example("\"/var/lib/pollux/acme\"").optional(&path().called("DIR"))
}

/// Has each site answer challenges from this folder, unless it says itself what answers there.
pub(super) fn answer_challenges(sites: &mut [SiteConfig], folder: &Path) {
    let text = str::from_utf8(ACME).expect("it is ASCII");
    let path = PathPattern::read(text).expect("it is a path");
    let strip = Rewrite::read(text).expect("it is a path");
    let rule = RouteRule { path, conditions: Conditions::default() };
    for site in sites {
        if site.routes.iter().any(|route| route.rule == rule) {
            continue;
        }
        site.routes.push(RouteConfig {
            rule: rule.clone(),
            answer: RouteAnswer::Files(Files::of_challenges(folder)),
            rewrite: Rewrite { strip: strip.clone(), add: String::new() },
            slash: None,
            access: AccessRules::default(),
            added: Added::default(),
            body_bytes_max: None,
            tunnel_timeout: None,
            limits: Vec::new(),
            users: None,
            loosens: false,
        });
    }
}

#[cfg(test)]
mod tests {
    use pollux_settings::Given;

    use crate::config::serve_or_proxy::{ProxySettings, ServeOrProxy};
    use crate::{CertificateNeeds, SiteNames};

    fn needs(text: &str) -> (CertificateNeeds, String) {
        let settings = Given::from_toml(text, "p.toml").read::<ProxySettings>().expect("right");
        let config = ServeOrProxy::from(settings).passes().expect("sites");
        (CertificateNeeds::of(&config), config.sites.summary(&config.groups))
    }

    #[test]
    fn each_site_answers_challenges_unless_it_does_so_itself() {
        let (needs, summary) = needs(
            "acme_challenges = \"acme\"\ncontrol = \"unix:c\"\n\
             [[frontend]]\nlisten = \":80\"\n[[frontend]]\nlisten = \":443\"\ncerts = \"certs\"\n\
             [[site]]\nhost = [\"WWW.example.org\", \"*.example.org\", \"192.0.2.1\"]\n\
             route = [{ path = \"/\", reply = 1 }]\n\
             [[site]]\nhost = \"own.example\"\ncert = \"c\"\nkey = \"k\"\n\
             route = [{ path = \"/.well-known/acme-challenge/\", reply = 2 }]\n",
        );
        assert_eq!(needs.folders, [std::path::PathBuf::from("certs")]);
        assert_eq!(needs.challenges.as_deref(), Some("acme".as_ref()));
        assert_eq!(needs.control.as_deref(), Some("c".as_ref()));
        let exact = vec!["www.example.org".to_owned()];
        let below = vec!["*.example.org".to_owned()];
        assert_eq!(needs.sites, [SiteNames { exact, below }], "one has its own");
        let line = "  /.well-known/acme-challenge/  answers to challenges in acme\n";
        assert!(summary.contains(line), "{summary}");
        assert!(summary.contains("/.well-known/acme-challenge/  a reply of 2 bytes"), "{summary}");
    }
}
