//! The states of backends beside the settings: orders of the control socket, and which are down. Workers
//! send them to their master, and the master to the next worker, so that a drained backend stays drained
//! while workers come and go.
//!
//! One line for each backend of which there is anything to say, with the configured weight first: a weight
//! that was ordered counts until the settings name another one.
//!
//! ```text
//! CONFIGURED WEIGHT drain|ready up|down NAME
//! ```

use std::fmt::Write as _;

use super::backends::Backend;

/// The lines of these backends; empty when all is as configured.
pub(crate) fn states(backends: &[Backend]) -> String {
    let mut lines = String::new();
    for backend in backends {
        let (configured, weight) = (backend.configured_weight(), backend.weight());
        let (is_draining, is_down) = (backend.is_draining(), backend.is_down());
        if weight == configured && !is_draining && !is_down {
            continue;
        }
        let order = if is_draining { "drain" } else { "ready" };
        let health = if is_down { "down" } else { "up" };
        let name = backend.name();
        writeln!(lines, "{configured} {weight} {order} {health} {name}").expect("a string");
    }
    lines
}

/// Sets the backends whose line in `now` is not the one in `before` to the state there; one that it does
/// not name is as configured. One that was found down meanwhile stays down. A line that makes no sense is of
/// another version, and is passed over.
pub(crate) fn restore_states(backends: &[Backend], before: &str, now: &str) {
    for backend in backends {
        let find = |lines: &str| lines.lines().find_map(|line| Line::of(line, backend.name()));
        let (before, now) = (find(before), find(now));
        if before == now {
            continue;
        }
        let configured = backend.configured_weight();
        let weight = now.filter(|line| line.configured == configured).map(|line| line.weight);
        backend.set_weight(weight.unwrap_or(configured));
        backend.set_draining(now.is_some_and(|line| line.is_draining));
        if now.is_some_and(|line| line.is_down) {
            backend.begin_down();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Line {
    configured: u32,
    weight: u32,
    is_draining: bool,
    is_down: bool,
}

impl Line {
    /// What the line says, if it is about the backend of that name.
    fn of(line: &str, name: &str) -> Option<Self> {
        let mut words = line.strip_suffix(name)?.strip_suffix(' ')?.split(' ');
        let configured = Backend::read_weight(words.next()?)?;
        let weight = Backend::read_weight(words.next()?)?;
        let (is_draining, is_down) = (words.next()? == "drain", words.next()? == "down");
        words.next().is_none().then_some(Self { configured, weight, is_draining, is_down })
    }
}

#[cfg(test)]
mod tests {
    use pollux_engine::Moment;

    use super::*;
    use crate::proxy::{ProxyConfig, backends_of};

    fn backends(weights: [u32; 3]) -> std::sync::Arc<[Backend]> {
        let address = |port: u16| format!("127.0.0.1:{port}").parse().expect("an address");
        let listen = vec![address(1)];
        let mut config = ProxyConfig::new(listen, vec![address(2), address(3), address(4)]);
        let servers = config.groups[0].servers.iter_mut();
        servers.zip(weights).for_each(|(server, weight)| server.weight = weight);
        backends_of(&config)
    }

    #[test]
    fn the_next_worker_has_the_orders_and_the_health_of_the_one_before() {
        let before = backends([1, 2, 3]);
        assert_eq!(states(&before), "");
        before[0].set_draining(true);
        before[1].set_weight(7);
        let falls = (0..1000).filter_map(|_| before[2].failed(Moment::default())).count();
        assert_eq!(falls, 1);
        let lines = states(&before);
        let expected =
            "1 1 drain up 127.0.0.1:2\n2 7 ready up 127.0.0.1:3\n3 3 ready down 127.0.0.1:4\n";
        assert_eq!(lines, expected);
        let after = backends([1, 2, 3]);
        restore_states(&after, "", &lines);
        assert_eq!(states(&after), lines);
        // The settings have another weight meanwhile.
        let after = backends([1, 5, 3]);
        restore_states(&after, "", &lines);
        assert_eq!(after[1].weight(), 5);
        // What was ordered meanwhile is changed, and nothing else.
        after[1].set_draining(true);
        restore_states(&after, &lines, &lines.replace("drain", "ready"));
        assert_eq!((after[0].is_draining(), after[1].is_draining()), (false, true));
        restore_states(&after, "5 7 ready up 127.0.0.1:3\n", "");
        assert!(!after[1].is_draining(), "no line says that it is as configured");
    }

    #[test]
    fn lines_that_make_no_sense_change_nothing() {
        let all = backends([1, 2, 3]);
        restore_states(
            &all,
            "",
            "\n1\n1 9 drain up 127.0.0.1:9\n1 0 ready up 127.0.0.1:2\nx y z\n1 999 ready up 127.0.0.1:2",
        );
        assert_eq!(states(&all), "");
    }
}
