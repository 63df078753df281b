//! Whole files: what each sample becomes stands beside it (`NAME.xml`, `NAME.said`), and mistakes.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::*;
use crate::config::PoolConfig;

/// Files of this kind as they are published: a server alone, a bank, several machines, and what options there are.
const SAMPLES: [(&str, Option<&str>); 12] = [
    ("simpapp", None),
    ("bank", None),
    ("machines", None),
    ("machines", Some("SITE2")),
    ("envfile", None),
    ("options", None),
    ("queues", None),
    ("unloaded", None),
    ("ids", None),
    ("stock", None),
    ("domains", None),
    ("shell", None),
];

fn samples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/ubbconfig/samples")
}

fn sample(name: &str, machine: Option<&str>) -> Conversion {
    let folder = samples();
    let text = read_file(&folder.join(format!("{name}.ubb"))).expect("a sample");
    // Files are beside the sample, and its name in messages is short.
    let read =
        |path: &Path| read_file(&folder.join(path)).map_err(|error| io::Error::from(error.kind()));
    convert(&format!("{name}.ubb"), &text, machine, &read).expect("sound")
}

fn said(conversion: &Conversion) -> String {
    let mut text = String::new();
    for (kind, list) in [("warning", &conversion.warnings), ("note", &conversion.notes)] {
        for one in list {
            writeln!(text, "{kind}: {one}").expect("a text");
        }
    }
    text
}

fn failed(text: &str) -> String {
    let none = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    convert("ubb", text, None, &none).expect_err("wrong").to_string()
}

#[test]
fn each_sample_becomes_what_stands_beside_it() {
    for (name, machine) in SAMPLES {
        let conversion = sample(name, machine);
        let file = machine.map_or_else(|| name.to_owned(), |machine| format!("{name}-{machine}"));
        for (ending, text) in [("xml", conversion.xml.clone()), ("said", said(&conversion))] {
            let path = samples().join(format!("{file}.{ending}"));
            if std::env::var_os("POLLUX_BLESS").is_some() {
                std::fs::write(&path, &text).expect("written");
            }
            let expected = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(text, expected, "{}: POLLUX_BLESS=1 writes it anew", path.display());
        }
        let lookup =
            |name: &str| Some(if name == "NDRX_SRVMAX" { "50000" } else { "/t" }.to_owned());
        let config = PoolConfig::from_text("pool.xml", &conversion.xml, &lookup).expect("sound");
        assert_eq!(config.entries.len(), conversion.servers, "{name}");
        assert_eq!(config.warnings, [], "{name}");
    }
}

#[test]
fn options_ids_and_variables_arrive_as_they_were_meant() {
    let lookup = |name: &str| Some(if name == "NDRX_SRVMAX" { "50000" } else { "/t" }.to_owned());
    let read = |name: &str| {
        let xml = sample(name, None).xml;
        PoolConfig::from_text("pool.xml", &xml, &lookup).expect("sound")
    };
    let options = read("options");
    let [all, some, ..] = options.entries.as_slice() else { panic!("{options:?}") };
    assert_eq!(all.program_options, ["-b", "5", "-n", "two words", "it is"]);
    assert_eq!(all.output.error.as_deref(), Some(Path::new("/log/all.err")));
    assert_eq!(some.system_options, ["-B", "-s", "DEPOSIT,WITHDRAW"]);
    let envs = read("envfile");
    let variable = |at: usize, name: &str| {
        let found = envs.entries[at].variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!(
        (variable(0, "A"), variable(0, "B"), variable(0, "C")),
        ("all".into(), "group".into(), "one".into())
    );
    assert_eq!(variable(1, "C"), "group & <others>");
    let ids: Vec<_> = read("ids").entries.iter().map(|entry| (entry.first_id, entry.max)).collect();
    assert_eq!(ids, [(1, 4), (20_003, 1), (29_990, 10), (39_995, 1)]);
    let order: Vec<_> = read("domains").entries.iter().map(|entry| entry.program.clone()).collect();
    assert_eq!(order, ["second", "first", "third"]);
}

#[test]
fn a_group_with_a_high_number_leaves_no_id_that_a_pool_refuses() {
    let groups = "*RESOURCES\nMASTER A\n*MACHINES\nh LMID=A\n*GROUPS\nG LMID=A GRPNO=1\nH LMID=A GRPNO=1500\n\
                  I LMID=A GRPNO=29999\n*SERVERS\nx SRVGRP=G SRVID=1\ny SRVGRP=H SRVID=1\nz SRVGRP=I SRVID=1\n";
    let none = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    let conversion = convert("ubb", groups, None, &none).expect("sound");
    let lookup = |_: &str| Some("16777216".to_owned());
    let config = PoolConfig::from_text("pool.xml", &conversion.xml, &lookup).expect("sound");
    let ids: Vec<_> = config.entries.iter().map(|entry| entry.first_id).collect();
    assert_eq!(ids, [1, 1_500_001, 1_500_002]);
}

#[test]
fn every_mistake_is_reported_with_its_line() {
    let text = "*RESOURCES\nIPCKEY abc\nMASTER A\nBLOCKTIME -1\nPERM 99\n*MACHINES\nh LMID=A\n*GROUPS\nG LMID=B GRPNO=0\n\
                *SERVERS\nnoid SRVGRP=G\nnogroup SRVID=1\nother SRVGRP=X SRVID=1\nrange SRVGRP=G SRVID=1 MIN=3 MAX=2\n\
                quote SRVGRP=G SRVID=5 CLOPT=\"-A -- 'x\"\nagain SRVGRP=G SRVID=6 RESTART=maybe\n";
    let said = failed(text);
    for part in [
        "ubb:2: IPCKEY=abc: expected a whole number",
        "ubb:4: BLOCKTIME=-1: expected",
        "ubb:5: PERM=99: expected an octal number such as 0660",
        "ubb:9: GRPNO=0: expected a whole number from 1",
        "ubb:9: group G: LMID=B is not a machine",
        "ubb:11: noid has no SRVID",
        "ubb:12: nogroup has no SRVGRP",
        "ubb:13: other: there is no group X",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let sites = text.replace("LMID=B GRPNO=0", "LMID=A GRPNO=1");
    let said = failed(&sites);
    for part in [
        "ubb:14: range: MIN=3 is above MAX=2",
        "ubb:15: CLOPT of quote: a quote ' is not closed",
        "ubb:16: RESTART=maybe: expected Y or N",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let template = "*RESOURCES\nIPCKEY <key>\nMASTER A\nSCANUNIT 40000MS\n*MACHINES\nh LMID=A\n";
    let said = failed(template);
    assert!(said.contains("ubb:2: IPCKEY: <key> is to be filled in"), "{said}");
    assert!(
        said.contains("ubb:4: SCANUNIT=40000MS: expected seconds from 1 to 60, or 1MS"),
        "{said}"
    );
    assert!(failed("*SERVERS\nA SRVGRP=G SRVID=1\n").contains("there is no section *RESOURCES"));
    assert!(
        failed("*RESOURCES\nMASTER B\n*MACHINES\nh LMID=A\n").contains("MASTER B is not an LMID")
    );
    let many = "*RESOURCES\nMASTER A\n*MACHINES\nh LMID=A\n*GROUPS\nG LMID=A GRPNO=1\n*SERVERS\nx SRVGRP=G SRVID=1 MAX=9000\n";
    assert!(failed(many).contains("what it becomes is refused: 9000 copies"), "{}", failed(many));
}

#[test]
fn a_folder_that_is_to_be_filled_in_is_named_and_not_used() {
    let text = "*RESOURCES\nMASTER A\n*MACHINES\nh LMID=A APPDIR=\"<Replace with the folder>\"\n*GROUPS\nG LMID=A GRPNO=1\n\
                *SERVERS\nx SRVGRP=G SRVID=1\n";
    let none = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    let conversion = convert("ubb", text, None, &none).expect("sound");
    assert_eq!(conversion.environment, "export NDRX_QPREFIX=/ubb\n");
    let said = said(&conversion);
    assert!(
        said.contains(
            "ubb:4: APPDIR=<Replace with the folder> of *MACHINES: it is to be filled in"
        ),
        "{said}"
    );
}
