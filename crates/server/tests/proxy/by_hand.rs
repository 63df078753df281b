//! One loop of a proxy that is turned by hand, so that counts are exact, and its clients.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use pollux_engine::{Counter, Driver, EventLoop, Limits, ListenAddress, Listener};
use pollux_poller::Mechanism;
use pollux_server::config::LogLevel;
use pollux_server::proxy::{Passing, ProxyConfig, ProxyCounters, ProxySession, ProxyShared};
use pollux_server::{Logs, ServerCounters};

use crate::stage::PATIENCE;

pub(crate) struct OneLoop {
    pub(crate) event_loop: EventLoop<ProxySession>,
    pub(crate) proxied: Arc<ProxyCounters>,
    pub(crate) clients: Vec<TcpStream>,
}

impl OneLoop {
    /// The loop with this number of a proxy to one backend, and so many clients.
    pub(crate) fn open(
        index: usize,
        config: &ProxyConfig,
        passing: &Arc<Passing>,
        mechanism: Mechanism,
        clients: usize,
    ) -> Self {
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().expect("an address"));
        let proxied = Arc::new(ProxyCounters::new(1));
        let counters = Arc::<ServerCounters>::default();
        let (passing, kept) = (Arc::clone(passing), Arc::clone(&proxied));
        let logs = Logs::new(LogLevel::Error);
        let shared = ProxyShared::new(index, config, &[], passing, counters, kept, &logs);
        let shared = shared.expect("no log is opened");
        let limits = Limits { connects_max: Some(1000), ..Limits::default() };
        let driver = Driver::Readiness(mechanism);
        let mut event_loop = EventLoop::open(driver, shared, limits).expect("epoll is there");
        let listener = Listener::open(&any, false).expect("a free port");
        let ListenAddress::Tcp(front) = listener.address().clone() else { panic!("TCP") };
        event_loop.listen(listener, false);
        let connect = |_| {
            let client = TcpStream::connect(front).expect("connected");
            client.set_read_timeout(Some(PATIENCE)).expect("set");
            client.set_nodelay(true).expect("set");
            client
        };
        Self { event_loop, proxied, clients: (0..clients).map(connect).collect() }
    }

    /// Turns until that many sends more were made.
    pub(crate) fn turn_until_sent(&mut self, sends: usize) {
        let counters = self.event_loop.counters();
        let end = counters.value(Counter::Sends) + sends as u64;
        while counters.value(Counter::Sends) < end {
            self.event_loop.turn(Some(Duration::from_secs(30))).expect("turned");
        }
    }
}
