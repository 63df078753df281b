//! Flags that people try because another program, or an earlier version, has them.

use pollux_command::mistakes::Elsewhere;

/// Flags of other programs and of earlier versions that people try, by command, with what they mean here.
pub(crate) const ELSEWHERE: [Elsewhere; 11] = [
    elsewhere("pollux serve", "--port", IN_LISTEN),
    elsewhere("pollux serve", "--bind", IN_LISTEN),
    elsewhere("pollux serve", "--host", IN_LISTEN),
    elsewhere("pollux serve", "--tls", "TLS takes a certificate: --cert FILE --key FILE"),
    elsewhere("pollux load", "--tls", "TLS is asked for by the URL: https://HOST/"),
    elsewhere("pollux load", "--port", "the port stands in the URL, as in http://127.0.0.1:8080/"),
    elsewhere("pollux load", "--rps", "the requests per second are --rate"),
    elsewhere("pollux lab", "--poller", "mechanisms are arms, as in --arm epoll,uring"),
    elsewhere("pollux lab", "--wait", "ways of waiting are arms, as in --arm exclusive,epoll"),
    elsewhere("pollux lab", "--peer", "other systems are arms, as in --arm epoll,nginx"),
    elsewhere("pollux lab", "--binary", "builds are arms, as in --arm old=pollux:PATH"),
];

const IN_LISTEN: &str = "the port stands in --listen, as in --listen 127.0.0.1:8080";

const fn elsewhere(command: &'static str, flag: &'static str, hint: &'static str) -> Elsewhere {
    Elsewhere { command, flag, hint }
}
