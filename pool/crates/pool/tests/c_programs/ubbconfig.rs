//! `pollux pool convert` as a user runs it, and pools of what it made, with servers of their own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pollux_testing::{Process, succeeded};

use crate::workshop::{POLLUX_POOL, Pool, Workshop, repository};

/// A server for any name: it offers its own name, and name and number for `-T NUMBER`; each answers with its options and
/// variables.
const SERVER: &str = r#"
#include <atmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char said[512];
static void answer(TPSVCINFO *call) {
  char *text = tprealloc(call->data, 1024);
  const char *folder = getenv("BANKDIR"), *tables = getenv("FLDTBLDIR32");
  snprintf(text, 1024, "%s BANKDIR=%s FLDTBLDIR32=%s", said, folder ? folder : "-", tables ? tables : "-");
  tpreturn(TPSUCCESS, 0, text, 0, 0);
}
void transfer(TPSVCINFO *call) { answer(call); }
void DEPOSIT(TPSVCINFO *call) { answer(call); }
void WITHDRAW(TPSVCINFO *call) { answer(call); }
int tpsvrinit(int argc, char **argv) {
  const char *name = strrchr(argv[0], '/');
  char service[64];
  name = name ? name + 1 : argv[0];
  snprintf(said, sizeof said, "%s", name);
  for (int at = optind; at < argc; at++) snprintf(said + strlen(said), sizeof said - strlen(said), " [%s]", argv[at]);
  if (argc == optind + 2 && strcmp(argv[optind], "-T") == 0) {
    snprintf(service, sizeof service, "%s_%s", name, argv[optind + 1]);
    if (tpadvertise(service, answer) != 0) return -1;
  }
  return strcmp(name, "some") == 0 || tpadvertise(name, answer) == 0 ? 0 : -1;
}
void tpsvrdone(void) {}
"#;

fn sample(name: &str) -> PathBuf {
    repository("pool/crates/xatmi/src/ubbconfig/samples").join(name)
}

fn convert(workshop: &Workshop, words: &[&str]) -> Command {
    let mut command = workshop.command(POLLUX_POOL, &["convert"]);
    command.args(words);
    command
}

fn call(pool: &Pool<'_>, service: &str) -> String {
    succeeded(pool.tool(POLLUX_POOL).args(["call", service, "--string", "x"])).stdout
}

/// A sample with its files, converted, and the server by so many names.
fn workshop_of(
    name: &str,
    change: impl Fn(String) -> String,
    programs: &[&str],
) -> Option<(Workshop, String)> {
    let workshop = Workshop::open()?;
    for entry in fs::read_dir(sample("")).expect("samples").flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "env") {
            fs::copy(entry.path(), workshop.path(&entry.file_name().to_string_lossy()))
                .expect("copied");
        }
    }
    let text = fs::read_to_string(sample(&format!("{name}.ubb"))).expect("a sample");
    workshop.write("ubbconfig", &change(text));
    succeeded(&mut convert(&workshop, &["ubbconfig", "-o", "made.xml"]));
    workshop.write("server.c", SERVER);
    for program in programs {
        let services = ["-s", "DEPOSIT,WITHDRAW", "-s", "MOVE:transfer"];
        let mut words = vec!["build-server", "-o", program, "server.c"];
        if *program == "some" || *program == "other" {
            words.extend(services);
        }
        workshop.pollux(&words);
    }
    let xml = fs::read_to_string(workshop.path("made.xml")).expect("made");
    Some((workshop, xml))
}

#[test]
fn simpapp_is_converted_started_and_answers() {
    let Some(workshop) = Workshop::open() else { return };
    let simpapp = |name: &str| repository("examples/simpapp").join(name).display().to_string();
    workshop.pollux(&["build-client", "-o", "simpcl", "-f", &simpapp("simpcl.c")]);
    workshop.pollux(&[
        "build-server",
        "-o",
        "simpserv",
        "-f",
        &simpapp("simpserv.c"),
        "-s",
        "TOUPPER",
    ]);
    let file = sample("simpapp.ubb").display().to_string();
    let converted = succeeded(&mut convert(&workshop, &[&file]));
    assert!(converted.stdout.contains("export NDRX_QPREFIX=/simpapp\n"), "{}", converted.stdout);
    assert!(
        converted.stderr.ends_with("simpapp.ubb: 1 <server>, 0 warnings\n"),
        "{}",
        converted.stderr
    );
    let pool = Pool::start(&workshop, &converted.stdout);
    let printed = succeeded(pool.client("simpcl").arg("hello")).stdout;
    assert_eq!(printed, "Returned string is: HELLO\n");
    pool.stop();
}

#[test]
fn a_bank_is_converted_and_each_server_has_its_options_and_variables() {
    let programs = ["TLR", "XFER", "ACCT", "BAL", "AUDITC", "BALC"];
    let Some((workshop, xml)) = workshop_of("bank", |text| text, &programs) else { return };
    // ENVFILE leaves the folder of Tuxedo to the start.
    let xml = xml.replace("${TUXDIR}", "/t");
    let pool = Pool::start(&workshop, &xml);
    let variables = "BANKDIR=/opt/bank FLDTBLDIR32=/opt/bank/fields:/t/udataobj\n";
    assert_eq!(call(&pool, "TLR_100"), format!("TLR [-T] [100] {variables}"));
    assert_eq!(call(&pool, "TLR_200"), format!("TLR [-T] [200] {variables}"));
    assert_eq!(call(&pool, "AUDITC"), format!("AUDITC {variables}"));
    assert!(workshop.path("TLR1.err").exists(), "-e of CLOPT");
    let rows: serde_json::Value =
        serde_json::from_str(&succeeded(pool.tool(POLLUX_POOL).args(["ps", "--json"])).stdout)
            .expect("JSON");
    let up = rows.as_array().expect("rows").iter().filter(|row| row["state"] == "up").count();
    assert_eq!(up, 2 + 2 + 6, "{rows}");
    pool.stop();
}

#[test]
fn options_of_services_offer_what_they_name() {
    let programs = ["all", "some", "other", "none", "spawn", "silent"];
    let change = |text: String| text.replace("/log/", "./");
    let Some((workshop, xml)) = workshop_of("options", change, &programs) else { return };
    let pool = Pool::start(&workshop, &xml);
    let rows: serde_json::Value = serde_json::from_str(
        &succeeded(pool.tool(POLLUX_POOL).args(["services", "--json"])).stdout,
    )
    .expect("JSON");
    let of = |program: &str| {
        let rows = rows.as_array().expect("rows").iter().filter(|row| row["program"] == program);
        let mut names: Vec<_> =
            rows.map(|row| row["service"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(of("some"), "DEPOSIT WITHDRAW");
    assert_eq!(of("other"), "DEPOSIT MOVE PAY REFUND WITHDRAW other");
    assert_eq!(of("spawn"), "spawn");
    assert_eq!(
        call(&pool, "all"),
        "all [-b] [5] [-n] [two words] [it is] BANKDIR=- FLDTBLDIR32=-\n"
    );
    assert!(call(&pool, "REFUND").starts_with("other "));
    pool.stop();
}

#[test]
fn what_a_shell_reads_starts_a_pool_whose_variables_are_set_nowhere() {
    let domain = format!("pollux-shop-{}", std::process::id());
    let change = |text: String| text.replace("DOMAINID\tshop", &format!("DOMAINID\t{domain}"));
    let Some((workshop, _)) = workshop_of("shell", change, &["till"]) else { return };
    let here = workshop.path("").display().to_string();
    let here = here.trim_end_matches('/');
    let text = fs::read_to_string(workshop.path("ubbconfig")).expect("there");
    workshop.write("ubbconfig", &text.replace("/opt/shop/bin", here));
    let variables = fs::read_to_string(workshop.path("shell.env")).expect("there");
    let variables = variables.replace("SHOP_LIBS", "FLDTBLDIR32").replace("SHOP", "BANKDIR");
    workshop.write("shell.env", &variables);
    let words = ["ubbconfig", "-o", "made.xml", "--environment", "made.env"];
    succeeded(&mut convert(&workshop, &words));
    workshop.write(
        "all.sh",
        "set -e\n. ./made.env\ntrap '\"$POOL\" stop >&2' EXIT\n\"$POOL\" start >&2\n\"$POOL\" call till --string x\n",
    );
    let mut shell = workshop.command("sh", &["all.sh"]);
    let shell = shell.env("POOL", POLLUX_POOL).env_remove("FLDTBLDIR32").env_remove("NDRX_CONFIG");
    let said = succeeded(shell).stdout;
    assert_eq!(said, "till BANKDIR=/opt/shop FLDTBLDIR32=/opt/shop/lib:\n");
}

#[test]
fn a_ubbconfig_in_place_of_a_configuration_is_named_with_the_command_that_converts_it() {
    let Some(workshop) = Workshop::open() else { return };
    fs::copy(sample("simpapp.ubb"), workshop.path("ubb")).expect("copied");
    let refused = |words: &[&str], code: i32| {
        let output = Process::run(&mut workshop.command(POLLUX_POOL, words));
        assert_eq!(output.status.code(), Some(code), "{}", output.stderr);
        output.stderr
    };
    for words in [&["check", "--config", "ubb"][..], &["start", "--config", "ubb"]] {
        let said = refused(words, 2);
        assert!(said.contains("ubb:2: this is a UBBCONFIG of Tuxedo"), "{said}");
        assert!(said.contains("`pollux pool convert ubb > ndrxconfig.xml`"), "{said}");
    }
    workshop.write("wrong", "*RESOURCES\nIPCKEY <here>\n");
    assert!(
        refused(&["convert", "wrong"], 2).contains("wrong:2: IPCKEY: <here> is to be filled in")
    );
    assert!(refused(&["convert", "none"], 1).contains("none: "));
    assert!(
        refused(&["convert", "ubb", "--machine", "X"], 2)
            .contains("X is not a machine; *MACHINES has simple")
    );
    assert!(
        refused(&["convert", "ubb", "-o", "no/such/file"], 1)
            .contains("no/such/file: cannot be written")
    );
}
