//! What is done to the fields of a request and of its answer, wherever it is said: by its front end, its site and its route, one
//! behind the other. Each front end has a set, and so has each site and route that adds something, below each of them.

use std::path::PathBuf;

use crate::config::added::Added;
use crate::config::backend_answers::PassedAnswers;
use crate::config::{AnswerRule, Frontend, ProxyConfig, RouteConfig};
use crate::fields::FieldRule;
use crate::ids::{FieldSetId, FrontId, RouteId, SiteId};

/// Tells a backend who asks, where a password was.
pub(crate) const USER: &str = "X-Remote-User";
/// Tell a backend whether its client has shown a certificate that was asked for, and whose.
pub(crate) const CLIENT_CERT: &str = "X-Client-Cert";
pub(crate) const CLIENT_SUBJECT: &str = "X-Client-Cert-Subject";
pub(crate) const CLIENT_SHA256: &str = "X-Client-Cert-SHA256";
/// Has that password.
const PASSWORD: &str = "Authorization";

/// What is done to fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSet {
    pub(crate) request: Vec<FieldRule>,
    pub(crate) response: Vec<AnswerRule>,
    /// For answers of pollux's own; of several for a status the first one.
    pub(crate) pages: Vec<(u16, PathBuf)>,
    /// What becomes of answers of backends.
    pub(crate) passed: PassedAnswers,
}

/// Which set a request has.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSetTable {
    /// Of each front end; empty where neither sites nor routes add something.
    fronts: Vec<Below>,
}

/// The sets below a front end; none of one that leads to backends.
#[derive(Clone, Debug, Default)]
struct Below {
    sites: Vec<FieldSetId>,
    routes: Vec<FieldSetId>,
}

impl FieldSet {
    /// Where some backend gets the name of a user, or of a certificate, nobody else's word is taken for one.
    fn of_front(front: &Frontend, passed: &[&str]) -> Self {
        let rules = front.rules.clone();
        let mut request = rules.request;
        request.extend(passed.iter().map(|name| FieldRule::Remove((*name).to_owned())));
        let pages = front.pages.clone();
        Self { request, response: rules.response, pages, passed: front.passed.clone() }
    }

    /// With what comes to it.
    fn with(&self, added: &Added) -> Self {
        // Of those that set a field of requests the last one does. Rules for answers say so themselves, by path and status.
        let is_kept = |rule: &&FieldRule| {
            let takes_place = |by: &FieldRule| {
                !matches!(by, FieldRule::Add(..)) && by.name().eq_ignore_ascii_case(rule.name())
            };
            !added.rules.request.iter().any(takes_place)
        };
        let request = self.request.iter().filter(is_kept).chain(&added.rules.request);
        Self {
            request: request.cloned().collect(),
            response: [&self.response[..], &added.rules.response].concat(),
            pages: [&added.pages[..], &self.pages].concat(),
            passed: self.passed.with(&added.passed),
        }
    }

    /// All sets of these settings, first those of the front ends, and which request has which.
    pub(crate) fn all(config: &ProxyConfig) -> (Vec<Self>, FieldSetTable) {
        let users = &config.sites.users;
        let mut passed = Vec::new();
        if users.iter().any(|users| users.passes_user) {
            passed.push(USER);
        }
        if config.sites.all.iter().any(|site| site.tls.clients.is_some()) {
            passed.extend([CLIENT_CERT, CLIENT_SUBJECT, CLIENT_SHA256]);
        }
        let of_front = |front: &Frontend| {
            let mut set = Self::of_front(front, &passed);
            if let Some(id) = config.sites.request_id.as_ref() {
                set.request.push(FieldRule::Remove(id.name.clone()));
                // The backend may send its own back.
                let remove = format!("remove {}", id.name);
                set.response.extend(AnswerRule::read(&remove).ok().filter(|_| id.is_answered));
            }
            set
        };
        let mut all: Vec<Self> = config.frontends.iter().map(of_front).collect();
        let sites = &config.sites.all;
        let hides_password =
            |route: &RouteConfig| route.users.is_some_and(|place| !users[place].passes_password);
        let adds = sites.iter().any(|site| !site.added.is_empty())
            || config.sites.routes().any(|route| !route.added.is_empty() || hides_password(route));
        let mut table = FieldSetTable::default();
        if !adds {
            return (all, table);
        }
        let mut below = |base: FieldSetId, added: &Added, hides_password: bool| {
            if added.is_empty() && !hides_password {
                return base;
            }
            let mut set = all[base.place()].with(added);
            if hides_password {
                set.request.push(FieldRule::Remove(PASSWORD.to_owned()));
            }
            all.push(set);
            FieldSetId::of_place(all.len() - 1)
        };
        for (place, front) in config.frontends.iter().enumerate() {
            let mut own = Below::default();
            for site in sites.iter().filter(|_| front.group.is_none()) {
                let of_site = below(FieldSetId::of_place(place), &site.added, false);
                own.sites.push(of_site);
                let of_route =
                    |route: &RouteConfig| below(of_site, &route.added, hides_password(route));
                own.routes.extend(site.routes.iter().map(of_route));
            }
            table.fronts.push(own);
        }
        (all, table)
    }
}

impl FieldSetTable {
    /// That of a request that came by this front end, as far as it got.
    #[inline]
    pub(crate) fn of(
        &self,
        front: FrontId,
        site: Option<SiteId>,
        route: Option<RouteId>,
    ) -> FieldSetId {
        let of_front = FieldSetId::of_front(front);
        let Some(below) = self.fronts.get(front.place()) else { return of_front };
        match (site, route) {
            (_, Some(route)) => below.routes.get(route.place()).copied().unwrap_or(of_front),
            (Some(site), None) => below.sites.get(site.place()).copied().unwrap_or(of_front),
            (None, None) => of_front,
        }
    }
}

impl FieldSetId {
    /// That of a front end.
    #[inline]
    pub(crate) fn of_front(front: FrontId) -> Self {
        Self::of_place(front.place())
    }
}

#[cfg(test)]
mod tests {
    use pollux_settings::Given;

    use super::*;

    #[test]
    fn sets_add_up_from_the_front_end_to_the_route() {
        let text = "[[backend]]\nname = \"api\"\n[[backend.server]]\naddress = \"10.0.0.1:80\"\n\
                    [[frontend]]\nlisten = \":80\"\nresponse_field = \"set A: front\"\nrequest_field = [\"set R: 1\", \"add S: 1\"]\n\
                    [[frontend]]\nlisten = \":81\"\n\
                    [[site]]\nhost = \"a.example\"\nresponse_field = \"set A: site\"\nerror_page = \"404 /site\"\n\
                    route = [{ path = \"/\", reply = 1 },\n\
                    { path = \"/b\", backend = \"api\", response_field = \"set B: route\", request_field = [\"set C: 1\", \"set R: 2\"], error_page = \"404 /route\" }]\n\
                    [[site]]\nhost = \"b.example\"\nroute = [{ path = \"/\", reply = 1 }]\n";
        let config: ProxyConfig =
            Given::from_toml(text, "p.toml").read().unwrap_or_else(|wrong| panic!("{wrong}"));
        let (all, table) = FieldSet::all(&config);
        let shown = |front: usize, site: Option<usize>, route: Option<usize>| {
            let id = table.of(
                FrontId::of_place(front),
                site.map(SiteId::of_place),
                route.map(RouteId::of_place),
            );
            let set = &all[id.place()];
            let rules = set.response.iter().map(ToString::to_string);
            let requests = set.request.iter().map(ToString::to_string);
            let pages =
                set.pages.iter().map(|(status, page)| format!("{status} {}", page.display()));
            rules.chain(requests).chain(pages).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(0, None, None), "set A: front, set R: 1, add S: 1");
        assert_eq!(
            shown(0, Some(0), None),
            "set A: front, set A: site, set R: 1, add S: 1, 404 /site"
        );
        assert_eq!(shown(0, Some(0), Some(0)), shown(0, Some(0), None));
        assert_eq!(
            shown(0, Some(0), Some(1)),
            "set A: front, set A: site, set B: route, add S: 1, set C: 1, set R: 2, 404 /route, 404 /site"
        );
        assert_eq!(shown(0, Some(1), Some(2)), shown(0, None, None));
        assert_eq!(shown(1, Some(0), Some(0)), "set A: site, 404 /site");
        assert_eq!(shown(1, Some(1), None), "");
        // Two front ends, with a site and a route each.
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn where_nothing_is_added_there_is_one_set_for_each_front_end() {
        let text = "[[site]]\nhost = \"*\"\nroute = [{ path = \"/\", reply = 1 }]\n";
        let config: ProxyConfig = Given::from_toml(text, "p.toml").read().expect("right");
        let (all, table) = FieldSet::all(&config);
        assert_eq!((all.len(), table.fronts.len()), (1, 0));
        let front = FrontId::default();
        assert_eq!(table.of(front, None, Some(RouteId::of_place(0))), FieldSetId::of_front(front));
    }
}
