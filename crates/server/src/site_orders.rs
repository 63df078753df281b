//! Which sites are in maintenance by an order of the control socket, for all loops of a worker.
//!
//! A worker sends its master a line for each of them, behind the states of backends, and the master those to the next worker, so
//! that an order holds until it is taken back, whatever is reloaded and whichever process serves:
//!
//! ```text
//! maintenance HOST
//! ```
//!
//! HOST is the first name of the site then; after a reload it is the site that has this name.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use pollux_settings::did_you_mean;

use crate::config::Sites;
use crate::ids::SiteId;

/// What a line of a site begins with.
const LINE: &str = "maintenance ";

/// The orders for all sites.
#[derive(Debug)]
pub(crate) struct SiteOrders {
    sites: Box<[Order]>,
    /// How many are in maintenance.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Order {
    names: Box<[String]>,
    is_in_maintenance: AtomicBool,
}

impl SiteOrders {
    /// None, for these sites.
    pub(crate) fn none(sites: &Sites) -> Self {
        let order = |names: Vec<String>| Order {
            names: names.into(),
            is_in_maintenance: AtomicBool::new(false),
        };
        Self { sites: sites.host_names().map(order).collect(), count: AtomicUsize::new(0) }
    }

    /// Whether some site is in maintenance.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    pub(crate) fn is_in_maintenance(&self, site: SiteId) -> bool {
        self.sites[site.place()].is_in_maintenance.load(Relaxed)
    }

    /// Begins or ends the maintenance of the site that has this name; says what holds for it then.
    ///
    /// # Errors
    /// No site has it; what is expected.
    pub(crate) fn set(&self, host: &str, is_on: bool) -> Result<String, String> {
        let Some(order) = self.find(host) else {
            let names = || self.sites.iter().flat_map(|order| &order.names).map(String::as_str);
            let near = did_you_mean(host, names());
            let expected = if self.sites.is_empty() { "; this server has none" } else { "" };
            return Err(format!("no site has the host \"{host}\"{near}{expected}"));
        };
        self.switch(order, is_on);
        Ok(order.line())
    }

    /// A line for each site.
    pub(crate) fn view(&self) -> String {
        let lines: Vec<String> = self.sites.iter().map(Order::line).collect();
        if lines.is_empty() { "n/a: this server has no sites".to_owned() } else { lines.join("\n") }
    }

    /// What the next worker has to know.
    pub(crate) fn lines(&self) -> String {
        let ordered = self.sites.iter().filter(|order| order.is_in_maintenance.load(Relaxed));
        ordered.map(|order| format!("{LINE}{}\n", order.name())).collect()
    }

    /// Takes over what changed from these lines to those.
    pub(crate) fn restore(&self, before: &str, now: &str) {
        for order in &self.sites {
            let is_in = |lines: &str| {
                let mut hosts = lines.lines().filter_map(|line| line.strip_prefix(LINE));
                hosts.any(|host| order.names.iter().any(|name| name == host))
            };
            if is_in(before) != is_in(now) {
                self.switch(order, is_in(now));
            }
        }
    }

    fn find(&self, host: &str) -> Option<&Order> {
        let host = host.to_ascii_lowercase();
        self.sites.iter().find(|order| order.names.contains(&host))
    }

    fn switch(&self, order: &Order, is_on: bool) {
        match (order.is_in_maintenance.swap(is_on, Relaxed), is_on) {
            (false, true) => {
                self.count.fetch_add(1, Relaxed);
            }
            (true, false) => {
                self.count.fetch_sub(1, Relaxed);
            }
            _ => {}
        }
    }
}

impl Order {
    fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    fn line(&self) -> String {
        let is_on = self.is_in_maintenance.load(Relaxed);
        format!("site {}: {}", self.name(), if is_on { "maintenance" } else { "ready" })
    }
}

#[cfg(test)]
mod tests {
    use pollux_settings::Given;

    use super::*;
    use crate::config::ProxyConfig;

    fn orders(names: &[&str]) -> SiteOrders {
        let site = |names: &&str| {
            format!("[[site]]\nhost = [{names}]\n[[site.route]]\npath = \"/\"\nreply = 1\n")
        };
        let text: String = names.iter().map(site).collect();
        let config: ProxyConfig = Given::from_toml(&text, "p.toml").read().expect("right");
        SiteOrders::none(&config.sites)
    }

    #[test]
    fn an_order_holds_for_the_site_of_the_name_until_it_is_taken_back() {
        let first = orders(&["\"a.example\", \"b.example\"", "\"*\""]);
        assert!(!first.is_any() && first.lines().is_empty());
        assert_eq!(first.set("B.example", true).as_deref(), Ok("site a.example: maintenance"));
        assert_eq!(first.set("b.example", true).as_deref(), Ok("site a.example: maintenance"));
        assert!(first.is_any() && first.is_in_maintenance(SiteId::of_place(0)));
        assert!(!first.is_in_maintenance(SiteId::of_place(1)));
        assert_eq!(first.view(), "site a.example: maintenance\nsite *: ready");
        assert_eq!(first.lines(), "maintenance a.example\n");
        let wrong = first.set("a.exampel", true).expect_err("no site has it");
        assert_eq!(wrong, "no site has the host \"a.exampel\"; did you mean \"a.example\"?");
        // The next worker, whose sites stand in another order.
        let states = format!("1 7 ready up 10.0.0.1:80\n{}", first.lines());
        let next = orders(&["\"*\"", "\"c.example\", \"a.example\""]);
        next.restore("", &states);
        assert!(
            next.is_in_maintenance(SiteId::of_place(1))
                && !next.is_in_maintenance(SiteId::of_place(0))
        );
        assert_eq!(next.set("c.example", false).as_deref(), Ok("site c.example: ready"));
        assert!(!next.is_any());
        next.restore(&states, &states);
        assert!(!next.is_any(), "nothing has changed since it began");
        next.restore("", &states);
        next.restore(&states, "");
        assert!(!next.is_any() && next.lines().is_empty());
        assert!(orders(&["\"*\""]).set("*", true).is_ok());
    }
}
