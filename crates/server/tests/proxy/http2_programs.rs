//! The proxy before other people's programs that speak HTTP/2: the conformance suite `h2spec` in its strict form, the load
//! generator `h2load`, and the client httpx, each before servers of pollux that answer by HTTP/1.1.

use std::net::SocketAddr;
use std::process::Command;

use pollux_engine::{Driver, ListenAddress, Mechanism};
use pollux_server::Server;
use pollux_server::config::{ProxyConfig, ServeConfig};
use pollux_settings::Given;
use pollux_testing::{has, skip};

use crate::identity::Identity;
use crate::{Client, Proxy, field};

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

/// A backend that has a page, and no other method for it, as files have; but it answers a request that has come to its end
/// alone. Files refuse POST by its head: where that is faster than the frames by which a request of the suite is wrong, its client
/// has a whole answer before, and what comes behind one is not looked at.
fn patient() -> crate::Backend {
    crate::Backend::start(|_, mut client| {
        while let Some(head) = whole_request(&mut client) {
            let is_get = head.starts_with("GET ");
            let status = if is_get { "200 OK" } else { "405 No" };
            let page = "x".repeat(128);
            client.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 128\r\n\r\n"));
            if !head.starts_with("HEAD ") {
                client.try_send(page);
            }
        }
    })
}

/// The head of the next request, whose body has come too; none where the connection ends before.
fn whole_request(client: &mut Client) -> Option<String> {
    let head = client.head();
    if !head.ends_with("\r\n\r\n") {
        return None;
    }
    if field(&head, "Transfer-Encoding").is_some() {
        loop {
            let line = client.until("\r\n");
            let size = line.split([';', '\r']).next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16).ok()?;
            if size == 0 {
                while client.until("\r\n").len() > 2 {}
                return Some(head);
            }
            if client.bytes(size + 2).len() < size + 2 {
                return None;
            }
        }
    }
    let length = field(&head, "Content-Length").map_or(Ok(0), str::parse);
    let length: usize = length.expect("a length");
    (client.bytes(length).len() == length).then_some(head)
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
    let reply = Backend::start("reply = 128");
    let patient = patient();
    for driver in DRIVERS {
        for backend in [reply.address(), patient.address] {
            for flags in [&[][..], &["--tls", "--insecure"]] {
                let set = |config: &mut ProxyConfig| {
                    config.frontends[0].tls = (!flags.is_empty()).then(|| identity.keys()).into();
                };
                let Some(proxy) = Proxy::start(driver, &[backend], set) else { continue };
                let said = suite(proxy.address, flags);
                let is_all = said.contains("146 tests, 146 passed, 0 skipped, 0 failed");
                assert!(is_all, "{driver} {flags:?}: {said}");
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

/// The Python that Debian's packages are for.
const PYTHON: &str = "/usr/bin/python3";

/// Sends bodies of four lengths to each URL over a connection of its own, to all URLs at once, and says what became of each body.
const HTTPX: &str = "
import concurrent.futures, httpx, sys
def post(url):
    with httpx.Client(http1=False, http2=True) as client:
        answers = (client.post(url, content=b'x' * it) for it in (1000, 200000, 5000000, 1000))
        return [f'{url} {answer.http_version} {answer.status_code}' for answer in answers]
urls = sys.argv[1:]
with concurrent.futures.ThreadPoolExecutor(len(urls)) as threads:
    for lines in threads.map(post, urls):
        print('\\n'.join(lines))
";

/// It sends all of a body before it reads an answer, and takes RST_STREAM for an error.
#[test]
fn httpx_reads_that_a_body_is_too_long() {
    let imports = ["-c", "import h2, httpx"];
    let is_there = Command::new(PYTHON).args(imports).output().is_ok_and(|it| it.status.success());
    if !is_there {
        return skip("httpx is not installed (python3-httpx, python3-h2)");
    }
    let settings = "max_body = \"100KiB\"";
    let own = |kind: &str| Backend::start(&format!("{kind}\n{settings}"));
    let [reply, echo] = ["reply = 128", "echo = true"].map(own);
    let small = |config: &mut ProxyConfig| config.limits.clients.body_bytes_max = Some(100 << 10);
    // The limit of the proxy, and that of its backend.
    let limits = [small as fn(&mut ProxyConfig), |_| {}];
    let sets = DRIVERS.into_iter().flat_map(|driver| limits.map(|set| (driver, set)));
    let start = |(driver, set)| Proxy::start(driver, &[reply.address()], set);
    let proxies: Vec<Proxy> = sets.filter_map(start).collect();
    let proxied = proxies.iter().map(|proxy| proxy.address);
    let urls = [reply.address(), echo.address()].into_iter().chain(proxied);
    let urls: Vec<String> = urls.map(|address| format!("http://{address}/")).collect();
    // One program for all of them: it takes longer to start than to send, and most of the time it waits for ends.
    let said = Command::new(PYTHON).args(["-c", HTTPX]).args(&urls).output().expect("it runs");
    let expected = |url: &String| {
        ["200", "413", "413", "200"].map(|status| format!("{url} HTTP/2 {status}\n")).concat()
    };
    let lines = String::from_utf8_lossy(&said.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(lines, urls.iter().map(expected).collect::<String>(), "{wrong}");
}
