//! What an agent has done, and how far the load is that it puts on a server now, as a page for Prometheus.

use pollux_http::MetricsPage;
use pollux_load::{Progress, ScrapedPage, render};

/// What is counted of an agent, from its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AgentCounts {
    /// Orders that were begun.
    pub(crate) orders: u64,
    /// Orders that were refused, by its bounds or because it was busy.
    pub(crate) orders_refused: u64,
    /// Messages that could not be read, or were not for this process or the order that it carries out.
    pub(crate) messages_refused: u64,
    /// Orders that came to a result.
    pub(crate) orders_finished: u64,
    /// Orders that could not begin, as of a target that no name allows, or not continue.
    pub(crate) orders_failed: u64,
    /// Times that the connection to the broker was lost.
    pub(crate) connections_lost: u64,
}

/// Offers it, where somebody may ask.
pub(crate) fn show(
    page: &ScrapedPage,
    counts: &AgentCounts,
    is_connected: bool,
    progress: Option<&Progress>,
) {
    page.show(text(counts, is_connected, progress));
}

fn text(counts: &AgentCounts, is_connected: bool, progress: Option<&Progress>) -> String {
    let mut page = MetricsPage::new("pollux_agent_");
    let AgentCounts {
        orders,
        orders_refused,
        messages_refused,
        orders_finished,
        orders_failed,
        connections_lost,
    } = *counts;
    for (name, help, count) in [
        ("orders_total", "Orders that were begun", orders),
        ("orders_finished_total", "Orders that came to a result", orders_finished),
        ("orders_failed_total", "Orders that could not begin or continue", orders_failed),
        (
            "orders_refused_total",
            "Orders that the bounds of the agent did not allow",
            orders_refused,
        ),
        (
            "messages_refused_total",
            "Messages that were not for it, or could not be read",
            messages_refused,
        ),
        ("broker_connections_lost_total", "Times that the broker was lost", connections_lost),
    ] {
        page.family(name, "counter", help);
        page.line(name, &[], count);
    }
    for (name, help, is_so) in [
        ("broker_connected", "Whether there is a connection to the broker", is_connected),
        ("busy", "Whether requests of an order are sent now", progress.is_some()),
    ] {
        page.family(name, "gauge", help);
        page.line(name, &[], u8::from(is_so));
    }
    progress.map_or_else(String::new, render::prometheus) + &page.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_agent_has_its_own_counts_alone() {
        let counts = AgentCounts { orders: 3, orders_refused: 2, ..AgentCounts::default() };
        let text = text(&counts, true, None);
        for line in [
            "pollux_agent_orders_total 3\n",
            "pollux_agent_orders_refused_total 2\n",
            "pollux_agent_broker_connected 1\n",
            "pollux_agent_busy 0\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("pollux_load_"), "{text}");
    }
}
