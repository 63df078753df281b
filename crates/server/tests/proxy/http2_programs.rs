//! The proxy before other people's programs that speak HTTP/2: the conformance suite `h2spec` in its strict form, and
//! the load generator `h2load`, each before servers of pollux that answer by HTTP/1.1.

use std::net::SocketAddr;
use std::process::Command;

use pollux_engine::{Driver, ListenAddress, Mechanism};
use pollux_server::Server;
use pollux_server::config::{ProxyConfig, ServeConfig};
use pollux_settings::Given;
use pollux_testing::has;

use crate::Proxy;
use crate::identity::Identity;

/// How often the suite is run until all of it passes.
const RUNS_MAX: usize = 3;
const DRIVERS: [Driver; 2] = [Driver::Readiness(Mechanism::EpollEt), Driver::Completion];

/// A server as a backend, ended with this.
struct Backend(Option<Server>);

impl Backend {
    fn start(settings: &str) -> Self {
        let text = format!("{settings}\nlisten = \"127.0.0.1:0\"\nquiet = true");
        let config: ServeConfig = Given::from_toml(&text, "test").read().expect("right");
        Self(Some(Server::start(&config).expect("started")))
    }

    fn address(&self) -> SocketAddr {
        let ListenAddress::Tcp(address) = self.0.as_ref().expect("it runs").addresses()[0] else {
            panic!("a TCP address")
        };
        address
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            server.abort();
            let ended = server.join();
            if !std::thread::panicking() {
                ended.expect("its loops end well");
            }
        }
    }
}

/// Runs the suite in its strict form; what it says at its end.
fn suite(address: SocketAddr, more: &[&str]) -> String {
    let ip = address.ip().to_string();
    let port = address.port().to_string();
    // A busy machine may be slow; what is as expected is seen at once.
    let flags = ["--strict", "--timeout", "2", "--host", &ip, "--port", &port];
    let mut command = Command::new("h2spec");
    let output = command.args(flags).args(more).output().expect("it was found");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn all_tests_of_h2spec_pass_before_servers_of_http_1() {
    if !has("h2spec") {
        return;
    }
    let identity = Identity::make();
    let site = tempfile::tempdir().expect("a folder");
    std::fs::write(site.path().join("index.html"), "x".repeat(128)).expect("written");
    let backends =
        [Backend::start("reply = 128"), Backend::start(&format!("dir = {:?}", site.path()))];
    for driver in DRIVERS {
        for backend in &backends {
            for flags in [&[][..], &["--tls", "--insecure"]] {
                let set = |config: &mut ProxyConfig| {
                    config.frontends[0].tls = (!flags.is_empty()).then(|| identity.keys());
                };
                let Some(proxy) = Proxy::start(driver, &[backend.address()], set) else { continue };
                // A backend may answer before the frame has come by which a request is wrong: its answer
                // is passed on then, which the suite does not expect. On a busy machine that happens.
                let runs = (0..RUNS_MAX).map(|_| suite(proxy.address, flags));
                let is_all =
                    |said: &String| said.contains("146 tests, 146 passed, 0 skipped, 0 failed");
                let mut wrong = runs.take_while(|said| !is_all(said));
                if let Some(first) = wrong.next() {
                    assert!(wrong.count() + 1 < RUNS_MAX, "{driver} {flags:?}: {first}");
                }
            }
        }
    }
}

#[test]
fn h2load_gets_all_that_it_asks_for_by_one_stream_and_by_many() {
    if !has("h2load") {
        return;
    }
    let backend = Backend::start("reply = 128");
    for driver in DRIVERS {
        let Some(proxy) = Proxy::start(driver, &[backend.address()], |_| ()) else { continue };
        for streams in ["1", "16"] {
            let flags = ["-n", "5000", "-c", "64", "-m", streams];
            let mut command = Command::new("h2load");
            command.args(flags).arg(format!("http://{}/", proxy.address));
            let said = command.output().expect("it was found").stdout;
            let said = String::from_utf8_lossy(&said).into_owned();
            let all = "5000 total, 5000 started, 5000 done, 5000 succeeded, 0 failed, 0 errored, \
                       0 timeout";
            assert!(said.contains(all), "{driver}: {said}");
        }
        // The counters of a request are those of its end, which comes behind its last byte.
        proxy.await_that("all answers are counted", |proxy| {
            let class_2xx = 1;
            proxy.sum(|each| each.server.answers(class_2xx)) == 10_000
        });
        assert_eq!(proxy.faults_total(), 0, "{driver}");
    }
}
