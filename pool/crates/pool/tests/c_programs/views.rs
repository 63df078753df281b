//! Views from their file to a service and back: `viewc`, programs that are built with its header, calls.

use std::process::Command;

use pollux_testing::{Process, succeeded};

use crate::workshop::{POLLUX_POOL, Pool, Workshop};

const VIEWS: &str = "VIEW ACCOUNT\nlong number T_NUMBER 1 - - 0\nstring owner T_OWNER 1 - 20 -\n\
                     double amounts T_AMOUNT 3 C - 0\nEND\n";
const FIELDS: &str = "T_NUMBER 1 long\nT_OWNER 2 string\nT_AMOUNT 3 double\n";

const SERVER: &str = r#"
#include <atmi.h>
#include <string.h>
#include "account.h"
int tpsvrinit(int argc, char **argv) { (void)argc; (void)argv; return 0; }
void tpsvrdone(void) {}
void SUM(TPSVCINFO *call) {
  char type[9] = "", subtype[17] = "";
  struct ACCOUNT *account = (struct ACCOUNT *)call->data;
  tptypes(call->data, type, subtype);
  if (strcmp(subtype, "ACCOUNT") != 0 || call->len != (long)sizeof *account) tpreturn(TPFAIL, 1, NULL, 0, 0);
  double sum = 0;
  for (int at = 0; at < account->C_amounts; at++) sum += account->amounts[at];
  account->C_amounts = 1;
  account->amounts[0] = sum;
  strcat(account->owner, strcmp(type, "VIEW") == 0 ? " V" : " X");
  tpreturn(TPSUCCESS, 0, call->data, 0, 0);
}
"#;

const CLIENT: &str = r#"
#include <atmi.h>
#include <string.h>
#include "account.h"
#include "check.h"
int main(int argc, char **argv) {
  (void)argv;
  static const char *const types[][2] = {{"VIEW", "Ada V"}, {"VIEW32", "Ada V"}, {"X_C_TYPE", "Ada X"}, {"X_COMMON", "Ada X"}};
  for (int at = 0; at < 4; at++) {
    struct ACCOUNT *account = (struct ACCOUNT *)tpalloc(types[at][0], "ACCOUNT", 0);
    CHECK(account != NULL);
    if (account == NULL) return 1;
    for (int call = 0; call < 3; call++) {
      strcpy(account->owner, "Ada");
      account->C_amounts = 2;
      account->amounts[0] = 1.5;
      account->amounts[1] = 2.25;
      long len = 0;
      if (argc > 1) { /* the server has another view of that name */
        CHECK(tpcall("SUM", (char *)account, 0, (char **)&account, &len, 0) == -1 && tperrno == TPESVCERR);
        continue;
      }
      CHECK(tpcall("SUM", (char *)account, 0, (char **)&account, &len, 0) == 0);
      CHECK(len == (long)sizeof *account && account->C_amounts == 1 && account->amounts[0] == 3.75);
      CHECK(strcmp(account->owner, types[at][1]) == 0 && tptypes((char *)account, NULL, NULL) == 1024);
    }
    tpfree((char *)account);
  }
  tpterm();
  return failures != 0;
}
"#;

fn viewc(workshop: &Workshop, words: &[&str]) -> Command {
    let mut command = workshop.command(POLLUX_POOL, &["viewc"]);
    command.args(words).env_remove("FLDTBLDIR32").env_remove("FIELDTBLS32");
    command.env("FLDTBLDIR", workshop.path("")).env("FIELDTBLS", "bank.fd");
    command
}

#[test]
fn a_struct_goes_to_a_service_and_comes_back_with_its_view() {
    let Some(workshop) = Workshop::open() else { return };
    for (name, text) in
        [("account.v", VIEWS), ("bank.fd", FIELDS), ("viewsv.c", SERVER), ("viewcl.c", CLIENT)]
    {
        workshop.write(name, text);
    }
    let said = succeeded(&mut viewc(&workshop, &["account.v"])).stderr;
    assert!(said.contains("account.v: ACCOUNT (56 bytes)"), "{said}");
    // As the makefiles of other makers expect: the compiled file goes elsewhere, the header does not.
    std::fs::create_dir(workshop.path("views")).expect("a folder");
    workshop.write("beside.v", VIEWS);
    succeeded(&mut viewc(&workshop, &["-d", "views", "beside.v"]));
    assert!(workshop.path("beside.h").exists() && workshop.path("views/beside.V").exists());
    assert!(!workshop.path("views/beside.h").exists());
    // The other view has the same name and size, and another order.
    workshop.write("other.v", &VIEWS.replace("number T_NUMBER", "digits T_NUMBER"));
    succeeded(&mut viewc(&workshop, &["-n", "other.v"]));
    workshop.pollux(&["build-server", "-o", "viewsv", "-s", "SUM", "viewsv.c"]);
    workshop.pollux(&["build-client", "-o", "viewcl", "viewcl.c"]);
    let server = |views: &str| {
        let folder = workshop.path("").display().to_string();
        format!(
            "<endurox><servers><server name=\"viewsv\"><srvid>1</srvid><min>1</min><max>1</max>\
             <envs><env name=\"VIEWDIR\">{folder}</env><env name=\"VIEWFILES\">{views}</env></envs>\
             </server></servers></endurox>"
        )
    };
    for (views, words) in [("account.V", &[][..]), ("other.V", &["wrong"])] {
        let pool = Pool::start(&workshop, &server(views));
        let mut client = pool.client("viewcl");
        client.args(words).env("VIEWDIR", workshop.path("")).env("VIEWFILES", "account.V");
        succeeded(&mut client);
        pool.stop();
    }
}

#[test]
fn a_mistake_in_a_file_of_views_leaves_nothing_behind() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.write("bank.fd", FIELDS);
    for (text, words, said) in [
        (
            "VIEW A\nshort one T_NONE 1 - - -\nEND\n",
            &[][..],
            "a.v: A.one: no field table has T_NONE; -n leaves",
        ),
        ("VIEW A\nshort one - 1 - - 1 2\n", &["-n"], "a.v:2: the view A has no END"),
    ] {
        workshop.write("a.v", text);
        let output = Process::run(viewc(&workshop, words).arg("a.v"));
        assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
        assert!(output.stderr.contains(said), "{}", output.stderr);
        assert!(!workshop.path("a.V").exists() && !workshop.path("a.h").exists());
    }
}
