//! The table of the proxy's settings: its page, and mistakes with their places.

use pollux_settings::Given;

use super::*;
use crate::proxy::{Balance, Check, ServerTls};
use crate::tls::Trust;

fn read(text: &str) -> Result<ProxyConfig, String> {
    Given::from_toml(text, "p").read().map_err(|mistakes| mistakes.to_string())
}

#[test]
fn the_page_in_docs_is_the_one_of_the_table() {
    let page = pollux_settings::reference::<ProxyConfig>();
    pollux_settings::kept("proxy-settings.md", "settings", &page).expect("that of the table");
}

#[test]
fn rules_for_fields_are_read_for_each_front_end_and_mistakes_have_their_position() {
    let text = "request_field = [\"set X-Env: prod\", \"remove Cookie\"]\n\
                response_field = \"add X-By: pollux\"\n[[server]]\naddress = \"10.0.0.1:80\"";
    let config = read(text).expect("right");
    let rules = &config.frontends[0].rules;
    assert_eq!((rules.request.len(), rules.response.len()), (2, 1));
    let wrong = "request_field = [\"set Content-Length: 1\", \"remove connection\"]\n\
                 response_field = \"drop X\"\n[[server]]\naddress = \"10.0.0.1:80\"";
    let message = read(wrong).expect_err("three mistakes");
    assert_eq!(message.lines().count(), 3, "{message}");
    assert!(
        message.starts_with("p:1:18: ") && message.contains("Content-Length frames"),
        "{message}"
    );
    assert!(
        message.contains("p:2:18: ") && message.contains("expected set, add or remove"),
        "{message}"
    );
}

#[test]
fn a_proxy_without_a_backend_is_a_mistake() {
    let message = read("threads = 2").expect_err("no backend");
    assert!(message.contains("backend"), "{message}");
    let one = read("[[server]]\naddress = \"127.0.0.1:1\"").expect("right");
    let addresses = one.servers().map(|server| server.address.clone()).collect();
    assert_eq!(one, ProxyConfig::new(one.listen(), addresses));
}

#[test]
fn servers_of_a_file_have_weights_and_checks_have_a_path() {
    let text = "balance = \"least\"\nhealth_check = \"http\"\nhealth_path = \"/up?x\"\n\
                [[server]]\naddress = \"10.0.0.1:80\"\nweight = 3\n\
                [[server]]\naddress = \"unix:/run/app.sock\"";
    let config = read(text).expect("right");
    let weights: Vec<_> = config.servers().map(|server| server.weight).collect();
    let group = &config.groups[0];
    assert_eq!((weights, group.balance), (vec![3, 1], Balance::Least));
    assert_eq!(group.health.check, Check::Http("/up?x".to_owned()));
    let wrong = "[[server]]\nweight = 0\n[[server]]\naddress = \"x\"";
    let message = read(wrong).expect_err("three mistakes");
    assert_eq!(message.lines().count(), 3, "{message}");
}

#[test]
fn tls_to_servers_is_believed_as_the_system_does_unless_something_else_is_said() {
    let tls = |said: &str| {
        let text = format!("{said}\n[[server]]\naddress = \"10.0.0.1:80\"");
        read(&text).map(|config| config.groups[0].tls.clone())
    };
    let with =
        |name: Option<&str>, trust| Ok(Some(ServerTls { name: name.map(str::to_owned), trust }));
    assert_eq!(tls(""), Ok(None));
    assert_eq!(tls("tls = true"), with(None, Trust::System));
    let named = "tls = true\nsni = \"app.example\"\nca = \"ca.pem\"";
    assert_eq!(tls(named), with(Some("app.example"), Trust::File("ca.pem".into())));
    assert_eq!(tls("tls = true\nverify = \"none\""), with(None, Trust::Anybody));
    for (said, expected) in [
        ("sni = \"app.example\"", "p:1:7: sni: "),
        ("tls = true\nsni = \"not a name\"", "p:2:7: sni"),
        ("tls = true\nca = \"x\"\nverify = \"none\"", "p:2:6: ca: is of no use"),
    ] {
        let message = tls(said).expect_err(said);
        assert!(message.contains(expected), "{message}");
    }
    let unix = "tls = true\n[[server]]\naddress = \"unix:/run/app.sock\"";
    let message = read(unix).expect_err("no name");
    assert!(message.contains("unix:/run/app.sock has no name; expected one with sni"), "{message}");
}

const SEVERAL: &str = "threads = 2\n\
    [[frontend]]\nlisten = [\"127.0.0.1:80\", \"[::1]:80\"]\nbackend = \"app\"\n\
    [[frontend]]\nlisten = \"unix:/run/p.sock\"\nbackend = \"files\"\n\
    [[backend]]\nname = \"files\"\n[[backend.server]]\naddress = \"10.0.0.1:80\"\n\
    [[backend]]\nname = \"app\"\nbalance = \"least\"\nhealth_check = \"tcp\"\n\
    [[backend.server]]\naddress = \"10.0.0.2:80\"\nweight = 5\n\
    [[backend.server]]\naddress = \"10.0.0.3:80\"\n";

#[test]
fn front_ends_lead_to_the_backends_that_they_name() {
    let config = read(SEVERAL).expect("right");
    let groups: Vec<_> = config.frontends.iter().map(|each| each.group).collect();
    assert_eq!((groups, config.listen().len()), (vec![1, 0], 3));
    assert_eq!(config.groups[1].balance, Balance::Least);
    assert_eq!(config.groups[1].health.check, Check::Tcp);
    assert_eq!(config.servers().map(|each| each.weight).collect::<Vec<_>>(), [1, 5, 1]);
}

#[test]
fn what_does_not_fit_between_sections_is_reported_with_its_position() {
    for (text, expected) in [
        (
            SEVERAL.replace("backend = \"files\"", "backend = \"flies\""),
            "p:7:11: backend: no [[backend]] is called \"flies\"; did you mean \"files\"?",
        ),
        (
            SEVERAL.replace("backend = \"files\"\n", ""),
            "p:5:1: [[frontend]] lacks the key \"backend\"",
        ),
        (format!("balance = \"least\"\n{SEVERAL}"), "p:1:11: balance: is of no use beside"),
        (
            format!("{SEVERAL}[[server]]\naddress = \"10.0.0.1:1\""),
            "[[server]] stands alone; expected [[backend.server]]",
        ),
        (
            "[[frontend]]\nlisten = \":80\"\nbackend = \"x\"".to_owned(),
            "p:3:11: backend: no [[backend]] is called \"x\"",
        ),
        (SEVERAL.replace("\"files\"", "\"app\""), "two [[backend]] sections are called \"app\""),
    ] {
        let message = read(&text).expect_err(&text);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn settings_that_are_wrong_together_are_reported() {
    let wrong = |text: &str| {
        let read = Given::from_toml(text, "p.toml").read::<ProxyConfig>();
        read.map(|_| ()).expect_err(text).to_string()
    };
    let to = |address: &str| format!("[[server]]\naddress = \"{address}\"\n");
    let one = to("127.0.0.1:9");
    for (text, part) in [
        (format!("listen = [\":80\", \":80\"]\n{one}"), "is listened on twice"),
        (format!("{one}{one}"), "two servers of \"default\" have the address 127.0.0.1:9"),
        (format!("listen = \":9\"\n{one}"), "127.0.0.1:9 is where the proxy listens"),
        (format!("listen = \"unix:/a\"\n{}", to("unix:/a")), "unix:/a is where the proxy listens"),
        (
            format!("mode = \"tcp\"\nserver_max_connections = 1\n{one}"),
            "max_connections, which mode",
        ),
    ] {
        let message = wrong(&text);
        assert!(message.contains(part), "{text}: {message}");
    }
    let right = format!("listen = [\"127.0.0.1:0\", \"127.0.0.1:0\", \"127.0.0.2:9\"]\n{one}");
    Given::from_toml(&right, "p.toml").read::<ProxyConfig>().expect("right together");
}
