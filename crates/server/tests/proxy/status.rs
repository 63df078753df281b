//! The live page of a proxy: one file that asks for its figures, and the figures.

use pollux_engine::{Driver, ListenAddress};
use pollux_server::proxy::Fault;
use serde_json::Value;

use crate::stage::{Backend, Client, Proxy, unreachable};

fn get(proxy: &Proxy, path: &str) -> (String, String) {
    let Some(ListenAddress::Tcp(address)) = proxy.server().stats_address() else { panic!("TCP") };
    let mut client = Client::connect(*address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    (client.head(), client.rest())
}

fn ask(proxy: &Proxy) -> String {
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.rest()
}

#[test]
fn the_live_page_is_one_file_and_shows_what_the_metrics_count() {
    let backend = Backend::start(|_, mut client| {
        while !client.head().is_empty() {
            client.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    let proxy = Proxy::start(Driver::Completion, &[backend.address, unreachable()], |config| {
        config.loops.poller = None;
        config.monitoring.stats = Some(ListenAddress::Tcp("127.0.0.1:0".parse().expect("one")));
        config.groups[0].health.fall = 1;
    });
    let proxy = proxy.expect("some driver is to be had");
    for _ in 0..4 {
        assert!(ask(&proxy).starts_with("HTTP/1.1 200"), "the other one is tried");
    }
    proxy.server().overview().backends[0].set_draining(true);
    let (head, page) = get(&proxy, "/status");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/html"), "{head}");
    assert!(page.contains("fetch(\"status.json\"") && !page.contains("http"), "all is in it");
    let (head, figures) = get(&proxy, "/status.json");
    assert!(head.contains("application/json"), "{head}");
    let figures: Value = serde_json::from_str(&figures).expect("JSON");
    assert_eq!(figures["requests"], 4);
    let [first, second] = [0, 1].map(|place| &figures["servers"][place]);
    assert_eq!(
        (&first["name"], &first["state"]),
        (&backend.address.to_string().into(), &"drain".into())
    );
    assert_eq!(
        (&first["answered"], &first["failed"], &first["active"]),
        (&4.into(), &0.into(), &0.into())
    );
    assert!(first["wait_us"].as_u64().is_some_and(|waited| waited > 0), "{first}");
    assert_eq!(
        (&second["state"], &second["failed"], &second["falls"]),
        (&"down".into(), &1.into(), &1.into())
    );
    assert_eq!(figures["faults"].as_object().map(serde_json::Map::len), Some(Fault::ALL.len()));
    let (_, metrics) = get(&proxy, "/metrics");
    assert!(metrics.contains("pollux_proxy_backend_up"), "{metrics}");
}
