//! The longer parts of `pollux load --help`: examples, signals, exit codes.

use crate::help::Section;

/// What stands below those of `pollux load compare`.
pub(crate) const COMPARE_NOTES: &[Section] = &[
    Section::Examples(
        "\
# one pair: a change counts from 5 % on
pollux load --server-pid \"$(pidof -s nginx)\" --json before.json http://127.0.0.1:8080/
pollux load compare before.json after.json
# five pairs, taken in turns: smaller changes are told from noise
for i in 1 2 3 4 5; do
    pollux load --json a$i.json http://127.0.0.1:8080/; pollux load --json b$i.json http://127.0.0.1:8081/
done
pollux load compare --gate a1.json b1.json a2.json b2.json a3.json b3.json a4.json b4.json a5.json b5.json",
    ),
    Section::Text(
        "What is compared",
        "Rate, mean and percentiles of the latency, CPU time of the generator and, with --server-pid, of \
         the server for each answer; the change is that of the second result of a pair in relation to the \
         first. Of one pair the interval is that of its seconds, of several it is that of the pairs. \
         Percentiles need ten answers beyond them in each second for an interval.",
    ),
    Section::ExitCodes(&[
        ("0", "compared"),
        ("1", "a result could not be read"),
        ("2", "wrong flags, or different loads"),
        ("3", "--gate, and a figure got worse"),
        ("4", "--strict, and a figure is unclear or has no interval"),
    ]),
];

/// What stands below those of `pollux load merge`.
pub(crate) const MERGE_NOTES: &[Section] = &[
    Section::Examples(
        "\
# on two machines at the same time, then
pollux load merge one.json two.json
pollux load merge one.json two.json --json both.json --html both.html",
    ),
    Section::Text(
        "What is added",
        "Counts, bytes, histograms, seconds by their number, CPU time of the generators. Rates are those of \
         the longest run. The runs have to have asked for the same and to have been at the same time for \
         four fifths of the shortest. Objectives (--slo) are those of each part, and are left out.",
    ),
    Section::ExitCodes(&[
        ("0", "added"),
        ("1", "a result could not be read"),
        ("2", "wrong flags, or results that are no parts of one load"),
    ]),
];

/// What stands below the flags, and in the manual page.
pub(crate) const NOTES: &[Section] = &[
    Section::Examples(
        "\
# ten seconds over 64 connections
pollux load http://127.0.0.1:8080/
# exactly 100,000 requests
pollux load -c 8 -n 100000 http://127.0.0.1:8080/
# 5,000 requests/s whether or not they are answered: latency from the intended start
pollux load --rate 5000 -d 30s http://127.0.0.1:8080/
# a ramp, to see where it bends
pollux load --rate 100..20000@60s http://127.0.0.1:8080/
# exit code 3 when one of the objectives is missed
pollux load --slo p99=5ms --slo errors=0.1% http://127.0.0.1:8080/
# the percentiles of the table
pollux load --percentiles 50,99,99.99 http://127.0.0.1:8080/
pollux load --find-capacity --slo p99=5ms http://127.0.0.1:8080/
# 100 that work among 10,000 that do not
pollux load -c 100 --silent 5000 --dead 5000 --source 127.0.0.2-127.0.0.5 http://127.0.0.1:8080/
# nine to one
pollux load 9@http://127.0.0.1:8080/ 1@http://127.0.0.1:8080/large
pollux load -X POST --body @order.json -H 'Content-Type: application/json' http://127.0.0.1:8080/
# a thousand pages in turn; requests as a file has them, a line for each
pollux load 'http://127.0.0.1:8080/item/[1-1000]'
pollux load --requests-from requests.txt --order random http://127.0.0.1:8080/
# summed up as ab does
pollux load --no-keepalive --as ab -n 10000 http://127.0.0.1:8080/
pollux load --json - --quiet http://127.0.0.1:8080/ | jq .latency.quantiles
# CPU time of the server for each answer
pollux load --server-pid \"$(pidof -s nginx)\" http://127.0.0.1:8080/
pollux load --html load.html --csv load.csv --hlog load.hlog http://127.0.0.1:8080/
pollux load --prometheus 127.0.0.1:9100 -d 1h --rate 500 http://127.0.0.1:8080/
pollux load --unix pollux.sock http://localhost/
pollux load --user @password.txt --connect-to 127.0.0.1:8443 --insecure https://www.example/
pollux load --cookies -H 'Accept: text/html' http://127.0.0.1:8080/
pollux load --cert client.pem --key client.key https://localhost:8443/
pollux load --config load.toml --rate 2000
pollux load --cacert authority.pem https://localhost:8443/",
    ),
    Section::Text(
        "What it does not do",
        "HTTP/2 and HTTP/3, scripts of users, following redirects: each answer is that to one \
         HTTP/1.1 request, and redirects are counted apart.",
    ),
    Section::Signals(&[(
        "SIGINT, SIGTERM, SIGHUP",
        "end the run, as does q in the live view, and show what was measured until then; a second \
         one ends at once",
    )]),
    Section::ExitCodes(&[
        ("0", "done"),
        ("1", "could not run, or nothing was answered"),
        ("2", "wrong flags"),
        (
            "3",
            "done, but not what was asked for: the rate or an objective (--slo) was missed, nothing \
             was answered for a second or more, requests were never answered, more than one request \
             in a thousand failed, the generator was the bottleneck of a given rate or did not run \
             for a second or more, or no rate held the objectives",
        ),
        ("129", "ended early by SIGHUP; what was measured until then was shown"),
        ("130", "ended early by SIGINT (Ctrl-C) or by q; likewise"),
        ("143", "ended early by SIGTERM; likewise"),
    ]),
];
