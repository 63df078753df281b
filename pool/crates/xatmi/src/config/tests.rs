//! The configuration as users write it: the shape of the seed's file, overrides, mistakes.

use std::time::Duration;

use super::*;

/// The seed's elements with its values, its comments that hold broken tags, in own words.
const SEED: &str = r#"<?xml version="1.0" ?>
<endurox>
    <appconfig>
        <!-- check cycle, seconds -->
        <sanity>5</sanity>
        <brrefresh>6</brrefresh>
        <!-- once: <respawncheck>10</respawncheck> -->
        <restart_min>1</restart_min>
        <restart_step>1</restart_step>
        <restart_max>5</restart_max>
        <restart_to_check>20</restart_to_check>
        <gather_pq_stats>Y</gather_pq_stats>
    </appconfig>
    <defaults>
        <min>1</min>
        <max>2</max>
        <autokill>1</autokill>
        <!--
        <respawn>1<respawn>
        <env></env>
        -->
        <start_max>2</start_max>
        <pingtime>1</pingtime>
        <ping_max>4</ping_max>
        <end_max>5</end_max>
        <killtime>1</killtime>
        <!-- <exportsvcs>FOREX</exportsvcs> -->
    </defaults>
    <servers>
        <server name="banksv">
            <srvid>1</srvid>
            <min>250</min>
            <max>250</max>
            <sysopt>-e /opt/app1/log/BANKSV -r</sysopt>
        </server>
    </servers>
</endurox>"#;

fn read(text: &str) -> Result<PoolConfig, ConfigError> {
    let lookup = |name: &str| (name == "APP").then(|| "/opt/app".to_owned());
    PoolConfig::from_text("pool.xml", text, &lookup)
}

fn servers(text: &str) -> String {
    format!("<endurox>\n<servers>\n{text}\n</servers>\n</endurox>")
}

fn mistakes(text: &str) -> String {
    read(text).expect_err("it is wrong").to_string()
}

#[test]
fn services_have_priorities_and_defaults_count_for_those_behind() {
    let services = "<service svcnm=\"A\"/><service svcnm=\"B\" prio=\"70\"/><defaults prio=\"40\"/>\
                    <service svcnm=\"C\"/><service svcnm=\"D\" prio=\"50\" routing=\"R\"/>";
    let text =
        |services: &str| format!("<endurox><servers/><services>{services}</services></endurox>");
    let config = PoolConfig::from_text("x", &text(services), &|_| None).expect("good");
    assert_eq!(config.priorities, [("B".to_owned(), 70), ("C".to_owned(), 40)]);
    assert!(config.warnings.iter().any(|warning| warning.to_string().contains("routing")));
    for bad in [
        "<service svcnm=\"A\" prio=\"0\"/>",
        "<service svcnm=\"A\" prio=\"101\"/>",
        "<service prio=\"1\"/>",
        "<service svcnm=\"A B\"/>",
        "<service svcnm=\"A\" prio=\"2\"/><service svcnm=\"A\" prio=\"2\"/>",
    ] {
        assert!(PoolConfig::from_text("x", &text(bad), &|_| None).is_err(), "{bad}");
    }
}

#[test]
fn the_seeds_file_is_read_as_it_is() {
    let config = read(SEED).expect("it is right");
    assert_eq!(config.warnings, []);
    let settings = Settings {
        sanity: Duration::from_secs(5),
        bridge_refresh_cycles: 6,
        restart_min_cycles: 1,
        restart_step_cycles: 1,
        restart_max_cycles: 5,
        learning: Duration::from_secs(20),
        gathers_queue_depths: true,
        transport: None,
        spin: Spinning::Auto,
        group: None,
    };
    assert_eq!(config.settings, settings);
    let [entry] = config.entries.as_slice() else { panic!("one server") };
    assert_eq!((entry.program.as_str(), entry.ids()), ("banksv", 1..251));
    assert_eq!((entry.min, entry.max, config.workers_max()), (250, 250, 250));
    let policy = Policy { ping_cycles: Some(1), ..Policy::default() };
    assert_eq!(entry.policy, policy);
    assert_eq!(entry.system_options, ["-e", "/opt/app1/log/BANKSV", "-r"]);
    assert_eq!(entry.output.error.as_deref(), Some(Path::new("/opt/app1/log/BANKSV")));
}

#[test]
fn a_server_overrides_the_defaults_and_zero_switches_limits_off() {
    let text = r#"<endurox><servers>
        <server name="a"><srvid>10</srvid></server>
        <server name="b"><srvid>20</srvid><min>0</min><max>3</max><respawn>N</respawn>
          <autokill>0</autokill><ping_max>-1</ping_max><start_max>0</start_max>
          <pingtime>0</pingtime><end_max>7</end_max><killtime>2</killtime>
          <appopt>-x 'a b' ${APP}/f</appopt>
          <envs><env name="X">${APP}</env></envs></server>
        </servers><defaults><min>2</min><max>4</max><end_max>9</end_max>
        <exportsvcs>A, B</exportsvcs></defaults></endurox>"#;
    let config = read(text).expect("it is right");
    let [a, b] = config.entries.as_slice() else { panic!("two servers") };
    assert_eq!((a.min, a.max, a.policy.end_max_cycles), (2, 4, Some(9)));
    assert_eq!((b.min, b.max, b.ids()), (0, 3, 20..23));
    let policy = Policy {
        kills: false,
        respawns: false,
        start_max_cycles: None,
        ping_cycles: None,
        ping_max_cycles: None,
        end_max_cycles: Some(7),
        kill_cycles: 2,
        ..Policy::default()
    };
    assert_eq!(b.policy, policy);
    assert_eq!(b.program_options, ["-x", "a b", "/opt/app/f"]);
    assert_eq!(b.variables, [("X".to_owned(), "/opt/app".to_owned())]);
    assert_eq!(config.exported_services, ["A", "B"]);
}

#[test]
fn a_server_says_how_its_copies_are_ended_paused_and_started_anew() {
    let text = "<endurox><defaults><killseq>2, 14,15</killseq><rssmax>45M</rssmax>\
                <reloadonchange>Y</reloadonchange></defaults><servers>\
                <server name='a'><srvid>1</srvid><vszmax>1t</vszmax><sleep_after>20</sleep_after></server>\
                <server name='b'><srvid>10</srvid><killseq>9</killseq><rssmax>-1</rssmax><vszmax>4096</vszmax>\
                <reloadonchange>n</reloadonchange></server></servers></endurox>";
    let config = read(text).expect("right");
    assert_eq!(config.warnings, []);
    let [a, b] = config.entries.as_slice() else { panic!("two servers") };
    let of_a = Policy {
        kill_sequence: vec![2, 14, 15],
        pause_after: Duration::from_secs(20),
        rss_max_bytes: Some(45 << 20),
        vsz_max_bytes: Some(1 << 40),
        restarts_on_change: true,
        ..Policy::default()
    };
    assert_eq!(a.policy, of_a);
    let of_b = Policy { kill_sequence: vec![9], vsz_max_bytes: Some(4096), ..Policy::default() };
    assert_eq!(b.policy, of_b);
    for (element, expected) in [
        ("<killseq>2,x</killseq>", "numbers of signals from 1 to 64"),
        ("<killseq>0</killseq>", "numbers of signals from 1 to 64"),
        ("<rssmax>5X</rssmax>", "expected bytes, with K, M, G or T"),
        ("<vszmax>-2</vszmax>", "expected bytes, with K, M, G or T"),
        ("<rssmax>9223372036854775807T</rssmax>", "expected bytes, with K, M, G or T"),
    ] {
        let text = servers(&format!("<server name='a'><srvid>1</srvid>{element}</server>"));
        let said = read(&text).expect_err(element).to_string();
        assert!(said.contains(expected), "{element}: {said}");
    }
}

#[test]
fn a_command_line_has_the_options_of_its_copy() {
    let text = servers(
        "<server name='a'><srvid>10</srvid><sysopt>-e 'log file' -r</sysopt><appopt>x \\\"</appopt>\
         <cmdline>java -cp ${APP} Main ${NDRX_SVPROCNAME} '${NDRX_SVSRVID}' ${NDRX_SVCLOPT}</cmdline></server>\
         <server name='b'><srvid>20</srvid><fullpath>${APP}/b.debug</fullpath></server>\
         <server name='c'><srvid>30</srvid><cmdline></cmdline></server>",
    );
    let config = read(&text).expect("right");
    let [a, b, c] = config.entries.as_slice() else { panic!("three servers") };
    let options: Vec<String> =
        ["-i", "11", "-e", "log file", "", "\"\\"].map(str::to_owned).to_vec();
    let words = a.of_copy(11).command(&options).expect("it has one");
    let expected =
        ["java", "-cp", "/opt/app", "Main", "a", "11", "-i", "11", "-e", "log file", "", "\"\\"];
    assert_eq!(words, expected);
    assert_eq!(b.full_path.as_deref(), Some(Path::new("/opt/app/b.debug")));
    assert_eq!((b.command(&options), c.command(&options)), (None, None));
    assert!(!a.starts_as(&Entry { command_line: None, ..a.clone() }));
    let broken = servers("<server name='a'><srvid>1</srvid><cmdline>x 'y</cmdline></server>");
    assert!(read(&broken).is_err_and(|error| error.to_string().contains("<cmdline>")));
}

#[test]
fn several_defaults_count_for_the_servers_behind_them() {
    let server = |name: &str, id: u32| {
        format!("<servers><server name='{name}'><srvid>{id}</srvid></server></servers>")
    };
    let defaults =
        |min: u32, more: &str| format!("<defaults><min>{min}</min><max>3</max>{more}</defaults>");
    let text = [
        "<endurox>".to_owned(),
        defaults(1, "<respawn>N</respawn>"),
        server("a", 1),
        defaults(2, ""),
        server("b", 10),
        "</endurox>".to_owned(),
    ];
    let config = read(&text.concat()).expect("right");
    let found: Vec<_> =
        config.entries.iter().map(|entry| (entry.min, entry.max, entry.policy.respawns)).collect();
    assert_eq!(found, [(1, 3, false), (2, 3, false)]);
}

#[test]
fn without_pingtime_no_worker_is_pinged() {
    let config = read(&servers("<server name='a'><srvid>1</srvid></server>")).expect("right");
    assert_eq!(config.entries[0].policy.ping_cycles, None);
}

#[test]
fn each_copy_has_its_own_id_in_options_files_and_variables() {
    let text = servers(
        "<server name='a'><srvid>10</srvid><sysopt>-e ${APP}/log.${NDRX_SVSRVID} -r</sysopt>\
         <appopt>-n ${NDRX_SVSRVID}</appopt>\
         <envs><env name='OWN'>id ${NDRX_SVSRVID}</env></envs></server>",
    );
    let config = read(&text).expect("right");
    let copy = config.entries[0].of_copy(12);
    assert_eq!(copy.system_options, ["-e", "/opt/app/log.12", "-r"]);
    assert_eq!(copy.output.error, Some("/opt/app/log.12".into()));
    assert_eq!(copy.program_options, ["-n", "12"]);
    assert_eq!(copy.variables, [("OWN".to_owned(), "id 12".to_owned())]);
    let elsewhere = servers("<server name='a'><srvid>${NDRX_SVSRVID}</srvid></server>");
    let said = read(&elsewhere).expect_err("there is no copy yet").to_string();
    assert!(said.contains("${NDRX_SVSRVID} is not set"), "{said}");
}

#[test]
fn variables_come_in_groups_and_are_taken_away() {
    let text = "<endurox><defaults><envs group='G1'><env name='A'>1</env><env name='B'>2</env></envs>\
                <envs group='G2'><env name='C'>3</env></envs><envs><env name='D'>4</env></envs></defaults><servers>\
                <server name='a'><srvid>1</srvid><envs><usegroup>G1</usegroup><usegroup>G2</usegroup>\
                <env name='B' unset='y'/><env name='D' unset='n'>5</env></envs></server>\
                <server name='b'><srvid>10</srvid><envs><env name='D' unset='Y'>x</env><env name='E' unset='y'/>\
                <env name='E'>6</env></envs></server>\
                <server name='c'><srvid>20</srvid></server></servers></endurox>";
    let config = read(text).expect("right");
    assert_eq!(config.warnings, []);
    let of = |at: usize| {
        let entry = &config.entries[at];
        let pairs = entry.variables.iter().map(|(name, value)| format!("{name}={value}"));
        (pairs.collect::<Vec<_>>().join(" "), entry.cleared.join(" "))
    };
    assert_eq!(of(0), ("A=1 C=3 D=5".to_owned(), "B".to_owned()));
    assert_eq!(of(1), ("E=6".to_owned(), "D".to_owned()));
    assert_eq!(of(2), ("D=4".to_owned(), String::new()));
    assert!(!config.entries[0].starts_as(&config.entries[1]));
    let unknown = text.replace("<usegroup>G2<", "<usegroup>G3<");
    let said = read(&unknown).expect_err("there is no such group").to_string();
    assert!(said.contains("there is no group \"G3\" above"), "{said}");
}

#[test]
fn unknown_elements_are_warnings_with_their_line() {
    let text = "<endurox>\n<servers>\n<server name='a' kind='x'>\n<srvid>1</srvid>\n\
                <colour>red</colour>\n<env>/etc/env</env></server>\n</servers>\n<cluster/></endurox>";
    let config = read(text).expect("it can be used");
    let said: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let has = |start: &str, word: &str| {
        assert!(said.iter().any(|s| s.starts_with(start) && s.contains(word)), "{said:?}");
    };
    has("pool.xml:5: ", "<colour>");
    has("pool.xml:6: ", "<envs>");
    has("pool.xml:3: ", "attribute kind");
    has("pool.xml:8: ", "<cluster>");
    assert_eq!(said.len(), 4, "{said:?}");
}

#[test]
fn all_mistakes_are_reported_with_line_cause_and_remedy() {
    let text = servers(
        "<server name='a'>\n<srvid>0</srvid>\n<min>two</min></server>\n<server name='x/y'>\n\
         <srvid>5</srvid></server>\n<server name='c'/>\n<server name='d'><srvid>9</srvid>\n\
         <min>7</min><sysopt>-e 'x</sysopt><appopt>${NONE}</appopt></server>",
    );
    let said = mistakes(&text);
    for line in [
        "pool.xml:4: <srvid>0</srvid>: expected a whole number from 1 to",
        "pool.xml:5: <min>two</min>: expected a whole number of copies from 0",
        "pool.xml:6: the server name \"x/y\" has / or , in it",
        "pool.xml:8: c has no <srvid>",
        "pool.xml:9: d: min 7 is above max 2",
        "pool.xml:10: <sysopt>: a quote ' is not closed",
        "pool.xml:10: <appopt>: ${NONE} is not set",
    ] {
        assert!(said.contains(line), "{line}\nis not in\n{said}");
    }
}

#[test]
fn what_was_ignored_is_known_beside_the_mistakes() {
    let text = "<endurox>\n<appconfig>\n<sanity>x<y/></sanity>\n<foo/></appconfig>\n\
                <servers><server name='a'><srvid>1</srvid><respawn>maybe</respawn></server></servers></endurox>";
    let error = read(text).expect_err("sanity is wrong");
    let mistakes = error.mistakes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = [
        "pool.xml:3: <sanity>x</sanity>: expected a whole number of seconds from 1 to 86400",
        "pool.xml:5: <respawn>maybe</respawn>: expected Y, N, 1 or 0",
    ];
    assert_eq!(mistakes, expected);
    let warnings = error.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(warnings[0], "pool.xml:3: <y> is unknown here and ignored; expected text alone");
    assert!(warnings[1].starts_with("pool.xml:4: <foo> is unknown"), "{warnings:?}");
    assert_eq!(warnings.len(), 2);
}

#[test]
fn overlapping_ids_are_reported_with_the_next_free_one() {
    let text = servers(
        "<server name='a'><srvid>1</srvid><max>250</max></server>\n\
         <server name='b'><srvid>250</srvid></server>",
    );
    let said = mistakes(&text);
    assert!(said.starts_with("pool.xml:4: b: ids 250 to 251 overlap those of a"), "{said}");
    assert!(said.contains("<srvid>251</srvid>"), "{said}");
}

#[test]
fn bounds_hold_for_ids_and_copies() {
    let far = servers("<server name='a'><srvid>9999</srvid><max>3</max></server>");
    let said = mistakes(&far);
    assert!(said.contains("last id, 10001, is not below 10000; lower <srvid>"), "{said}");
    let far = servers("<server name='a'><srvid>10000</srvid></server>");
    assert!(
        mistakes(&far).contains("expected a whole number from 1 to 9999"),
        "{}",
        mistakes(&far)
    );
    let many = servers("<server name='a'><srvid>1</srvid><max>4001</max></server>");
    assert!(mistakes(&many).contains("at most 4000"), "{}", mistakes(&many));
    assert!(mistakes("<endurox>\n<servers>").contains("pool.xml:2: XML: "));
}

#[test]
fn ids_are_below_ndrx_srvmax() {
    let text = servers("<server name='a'><srvid>98</srvid><max>2</max></server>");
    let read_below = |end: &'static str| {
        let lookup = move |name: &str| (name == "NDRX_SRVMAX").then(|| end.to_owned());
        PoolConfig::from_text("pool.xml", &text, &lookup)
    };
    for end in ["100", "90000", "", " "] {
        assert!(read_below(end).is_ok(), "{end}");
    }
    let said = read_below("99").expect_err("99 is not below 99").to_string();
    assert!(said.contains("last id, 99, is not below 99"), "{said}");
    for end in ["many", "-1", "0", "99999999999"] {
        let said = read_below(end).expect_err("no number of ids").to_string();
        assert!(
            said.contains(&format!("NDRX_SRVMAX=`{end}` in the environment: expected")),
            "{said}"
        );
    }
}

#[test]
fn repeated_and_misplaced_elements_are_warnings() {
    let text = "<endurox>\n<defaults><sysopt>-r</sysopt>\n<exportsvcs>A</exportsvcs></defaults>\n\
                <servers><server name='a'><srvid>1</srvid>\n<srvid>2</srvid>\n\
                <exportsvcs>B, A,c/d</exportsvcs></server></servers></endurox>";
    let config = read(text).expect("it can be used");
    assert_eq!(
        (config.entries[0].first_id, &*config.exported_services),
        (2, &["A", "B"].map(String::from)[..])
    );
    let said: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let has = |start: &str, word: &str| {
        assert!(said.iter().any(|s| s.starts_with(start) && s.contains(word)), "{said:?}");
    };
    has("pool.xml:2: <sysopt> is unknown here", "expected min, max");
    has("pool.xml:5: <srvid> is in line 4 already", "the last one counts");
    has("pool.xml:6: \"c/d\" is not a name of a service", "without /");
    assert!(said.len() == 3 && !said[0].contains("sysopt, "), "{said:?}");
}

#[test]
fn other_files_are_refused_with_what_is_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |path: &Path| PoolConfig::from_file(path).expect_err("it is none").to_string();
    assert!(said(folder.path()).contains("expected the path of an ndrxconfig.xml"));
    let file = folder.path().join("pool.xml");
    assert!(said(&file).contains("expected the path of"), "{}", said(&file));
    std::fs::write(&file, b"<endurox>\n<!-- caf\xe9 -->\n</endurox>").expect("a file");
    assert!(said(&file).contains(":2: the byte 0xe9 is not UTF-8"), "{}", said(&file));
    std::fs::write(&file, vec![b' '; 1 + FILE_BYTES_MAX as usize]).expect("a file");
    assert!(said(&file).contains("longer than"), "{}", said(&file));
    std::fs::write(&file, "").expect("a file");
    assert!(said(&file).contains(":1: XML: there is no element"), "{}", said(&file));
}

#[test]
fn entities_of_a_document_type_are_put_in_within_bounds() {
    let shared = "<!DOCTYPE endurox [<!ENTITY log \"/var/log\"><!ENTITY common \"<max>4</max>\n\
                  <sysopt>-e &log;/x</sysopt>\">]>\n<endurox><servers>\n\
                  <server name='a'><srvid>1</srvid>&common;</server>\n\
                  <server name='b'><srvid>x</srvid>&common;</server>\n\
                  </servers></endurox>";
    assert!(mistakes(shared).starts_with("pool.xml:5: <srvid>x</srvid>: "), "lines stay");
    let config = read(&shared.replace("<srvid>x", "<srvid>5")).expect("right");
    let [a, b] = config.entries.as_slice() else { panic!("two servers") };
    assert_eq!((a.max, b.max, b.line), (4, 4, 5));
    assert_eq!(b.output.error.as_deref(), Some(Path::new("/var/log/x")));
    let included = "<!DOCTYPE endurox [\n<!ENTITY include SYSTEM \"servers.xml\">\n]>\n<endurox>\n&include;</endurox>";
    let said = mistakes(included);
    assert!(
        said.contains("pool.xml:5: XML: &include; is the file servers.xml: it is not read"),
        "{said}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pool.xml");
    std::fs::write(&file, included).expect("a file");
    let said = PoolConfig::from_file(&file).expect_err("it is missing").to_string();
    assert!(
        said.contains("pool.xml:5: XML: &include; is the file servers.xml: No such file"),
        "{said}"
    );
    let servers = "<servers>\n<server name='a'><srvid>1</srvid></server>\n</servers>";
    std::fs::write(folder.path().join("servers.xml"), servers).expect("a file");
    let config = PoolConfig::from_file(&file).expect("right");
    assert_eq!((config.entries[0].program.as_str(), config.entries[0].line), ("a", 5));
    let said = mistakes("<endurox><appconfig><sanity>&x;</sanity></appconfig></endurox>");
    assert!(said.contains("&x; is not known; write &amp; for &"), "{said}");
}

#[test]
fn a_ubbconfig_is_named_as_one() {
    let said = mistakes("# bankapp\n\n*RESOURCES\nIPCKEY 12345\n*MACHINES\n<x>\n");
    assert!(said.starts_with("pool.xml:3: this is a UBBCONFIG of Tuxedo"), "{said}");
    assert!(said.contains("`pollux pool convert pool.xml > ndrxconfig.xml`"), "{said}");
    let said = mistakes("*SERVER <x>\n");
    assert!(said.contains("XML: "), "{said}");
}

#[test]
fn a_file_without_servers_is_read_with_a_warning() {
    for text in [
        "<endurox/>",
        "<endurox><appconfig><sanity>1</sanity></appconfig><servers></servers></endurox>",
        "<endurox><servers/><clients><client cmdline='x'/></clients></endurox>",
    ] {
        let config = read(text).expect("it can be used");
        let said: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert!(config.entries.is_empty(), "{text}");
        assert!(said.iter().any(|one| one.contains("nothing runs until a reload")), "{said:?}");
    }
}

#[test]
fn a_number_stands_for_yes_with_a_warning_and_quotes_may_be_escaped() {
    let server = "<server name='a'><srvid>1</srvid><respawn>3</respawn>\
                  <appopt>-a 'it\\'s' \"say \\\"x\\\"\" \\'b 'c\\d'</appopt></server>";
    let config = read(&servers(server)).expect("it can be used");
    let said: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|one| one.contains("<respawn>3</respawn> counts as Y")), "{said:?}");
    assert!(config.entries[0].policy.respawns);
    let words = ["-a", "it's", "say \"x\"", "'b", "c\\d"];
    assert_eq!(config.entries[0].program_options, words);
}

#[test]
fn the_mistakes_of_a_hopeless_file_fit_a_reply() {
    let bad = format!("<server name='a'><srvid>{}</srvid></server>\n", "\u{e4}".repeat(5000));
    let said = mistakes(&servers(&bad.repeat(100)));
    assert!(said.lines().last().is_some_and(|line| line == "and 50 more mistakes"), "{said}");
    assert!(said.len() < crate::link::MESSAGE_LEN_BYTES_MAX / 2, "{} bytes", said.len());
}

#[test]
fn warnings_have_a_bound() {
    let text = format!(
        "<endurox>{}<servers><server name='a'><srvid>1</srvid></server></servers></endurox>",
        "<x/>\n".repeat(1000)
    );
    let warnings = read(&text).expect("it can be used").warnings;
    assert_eq!((warnings.len(), warnings[100].line), (101, 101));
    assert!(warnings[100].message.contains("more warnings"), "{:?}", warnings[100]);
}

#[test]
fn redirections_are_found_among_the_options() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let found = redirections(&words("-e /l/A -r"));
    assert_eq!(found, Output { error: Some("/l/A".into()), out: None });
    let found = redirections(&words("-s -e:X -o/l/O -N -e /l/E"));
    assert_eq!(found, Output { error: Some("/l/E".into()), out: Some("/l/O".into()) });
    assert_eq!(redirections(&words("-r -e")), Output::default());
}

#[test]
fn a_provisioned_configuration_starts_without_the_servers_of_its_maker() {
    let text = servers(
        "<server name='cconfsrv'><min>2</min><max>2</max><srvid>1</srvid></server>
         <server name='tpevsrv'><srvid>20</srvid><sysopt>-e x -r</sysopt></server>
         <server name='tpbridge'><max>1</max><srvid>101</srvid>
           <appopt>-n2 -r -i 0.0.0.0 -p 21003 -tP</appopt></server>
         <server name='tpbridge'><max>1</max><srvid>102</srvid>
           <appopt>--nats nats://127.0.0.1:4222</appopt></server>
         <server name='banksv'><srvid>200</srvid></server>
         <server name='cpmsrv'><max>1</max><srvid>9999</srvid></server>",
    );
    let config = read(&text).expect("it starts");
    let programs: Vec<_> = config.entries.iter().map(|entry| entry.program.as_str()).collect();
    assert_eq!(programs, ["tpbridge", "banksv"]);
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    for (line, name, who) in [
        (3, "cconfsrv", "NDRX_CCONFIG"),
        (4, "tpevsrv", "events need no server"),
        (5, "tpbridge", "NATS broker"),
        (10, "cpmsrv", "a service manager"),
    ] {
        let begin = format!("pool.xml:{line}: <server name=\"{name}\"> is passed over: ");
        let found = warnings.iter().find(|warning| warning.starts_with(&begin));
        assert!(found.is_some_and(|warning| warning.contains(who)), "{begin}{who}: {warnings:?}");
    }
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    // Nothing is left to run, which is as it was meant.
    for name in ["exsinglesv", "exsingleckl", "exsingleckr"] {
        let config = read(&servers(&format!("<server name='{name}'><srvid>20</srvid></server>")));
        let config = config.expect("right");
        assert!(config.entries.is_empty() && config.warnings[0].to_string().contains(name));
    }
    let only = read(&servers("<server name='tpevsrv'><srvid>20</srvid></server>")).expect("right");
    assert_eq!((only.entries.len(), only.warnings.len()), (0, 1));
}

#[test]
fn words_behind_two_dashes_are_the_programs() {
    let entry = |options: &str| {
        let text = format!("<server name='a'><srvid>1</srvid>{options}</server>");
        read(&servers(&text)).expect("right").entries.remove(0)
    };
    let alone = entry("<sysopt>-e f -r -- -a 5 -b</sysopt>");
    assert_eq!(alone.system_options, ["-e", "f", "-r"]);
    assert_eq!(alone.program_options, ["-a", "5", "-b", "--"]);
    let both = entry("<sysopt>-r -- -a</sysopt><appopt>-b</appopt>");
    assert_eq!(
        (both.system_options, both.program_options.concat()),
        (vec!["-r".to_owned()], "-a---b".to_owned())
    );
}

#[test]
fn elements_that_are_not_used_are_one_warning_and_a_tag_is_a_variable() {
    let text = "<endurox><appconfig>\n<checkpm>1</checkpm>\n<hue/></appconfig>\n\
                <defaults><protected>1</protected><cctag>A/B</cctag></defaults><servers>\n\
                <server name='a'><srvid>1</srvid><protected>2</protected></server>\n\
                <server name='b'><srvid>5</srvid><protected>2</protected><cctag>C</cctag></server>\n\
                </servers></endurox>";
    let config = read(text).expect("right");
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("pool.xml:3: <hue> is unknown here"), "{warnings:?}");
    assert_eq!(
        warnings[1],
        "pool.xml:2: of Enduro/X, and not used here: <checkpm> (line 2), <protected> (from line 4, 3 times)"
    );
    let tags: Vec<_> = config.entries.iter().flat_map(|entry| entry.variables.clone()).collect();
    let tag = |tag: &str| ("NDRX_CCTAG".to_owned(), tag.to_owned());
    assert_eq!(tags, [tag("A/B"), tag("C")]);
}

#[test]
fn a_pool_spins_while_cpus_are_free_or_always() {
    let with = |attribute: &str| format!("<endurox><appconfig{attribute}/></endurox>");
    for (attribute, spin) in [
        ("", Spinning::Auto),
        (" spin='auto'", Spinning::Auto),
        (" spin='always'", Spinning::Always),
    ] {
        let config = read(&with(attribute)).expect("it is right");
        assert_eq!(config.settings.spin, spin, "{attribute}");
    }
    let said = mistakes(&with(" spin='never'"));
    assert_eq!(said, "pool.xml:1: spin=\"never\" of <appconfig>: expected auto or always");
}
