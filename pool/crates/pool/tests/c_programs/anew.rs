//! Servers in C that are started by a command of their own, and such that are started anew while they are well.

use std::fs;

use pollux_testing::{script, succeeded, wait_for, wait_until};

use crate::workshop::{POLLUX_POOL, Pool, Workshop};

/// `PID` answers with the process and the arguments of its start function; `GROW` uses 96 MiB.
const SERVER: &str = r#"
#include <atmi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char arguments[256];
char *kept; /* where others could see it, so that it is not left out */
int tpsvrinit(int argc, char **argv) {
  for (int i = optind; i < argc; i++) snprintf(arguments + strlen(arguments), sizeof arguments - strlen(arguments), " %s", argv[i]);
  return 0;
}
void PID(TPSVCINFO *call) {
  char *text = tpalloc("STRING", NULL, 512);
  (void)call;
  snprintf(text, 512, "%ld:%s", (long)getpid(), arguments);
  tpreturn(TPSUCCESS, 0, text, 0, 0);
}
void GROW(TPSVCINFO *call) {
  size_t size = (size_t)96 << 20;
  kept = malloc(size);
  if (kept != NULL) memset(kept, 1, size);
  tpreturn(kept != NULL && kept[size - 1] == 1 ? TPSUCCESS : TPFAIL, 0, call->data, 0, 0);
}
"#;

fn workshop() -> Option<Workshop> {
    let workshop = Workshop::open()?;
    workshop.write("anewsv.c", SERVER);
    workshop.pollux(&["build-server", "-o", "anewsv", "-s", "PID,GROW", "anewsv.c"]);
    Some(workshop)
}

fn pool<'a>(workshop: &'a Workshop, server: &str) -> Pool<'a> {
    Pool::start(
        workshop,
        &format!(
            "<endurox><appconfig><sanity>1</sanity></appconfig><servers><server name=\"anewsv\"><srvid>7</srvid><min>1</min>\
             <max>1</max>{server}</server></servers></endurox>"
        ),
    )
}

/// The process that serves, if one does at this moment, and its arguments.
fn served_by(pool: &Pool<'_>) -> Option<(String, String)> {
    let call = pool.tool(POLLUX_POOL).args(["call", "PID", "--string", "x"]).output();
    let printed = String::from_utf8(call.expect("it runs").stdout).expect("UTF-8");
    let (pid, arguments) = printed.trim_end().split_once(':')?;
    Some((pid.to_owned(), arguments.to_owned()))
}

fn process(pool: &Pool<'_>) -> String {
    wait_for("an answer of the server", || served_by(pool)).0
}

fn another_than(pool: &Pool<'_>, before: &str) {
    wait_until("another process in its place", || {
        served_by(pool).is_some_and(|(pid, _)| pid != before)
    });
}

#[test]
fn a_server_that_uses_more_than_it_may_is_started_anew() {
    let Some(workshop) = workshop() else { return };
    let pool = pool(&workshop, "<rssmax>64M</rssmax>");
    let before = process(&pool);
    succeeded(pool.tool(POLLUX_POOL).args(["call", "GROW", "--string", "x"]));
    another_than(&pool, &before);
    pool.stop();
}

#[test]
fn a_server_whose_program_has_changed_is_started_anew() {
    let Some(workshop) = workshop() else { return };
    let pool = pool(&workshop, "<reloadonchange>Y</reloadonchange>");
    let before = process(&pool);
    fs::copy(workshop.path("anewsv"), workshop.path("next")).expect("copied");
    fs::rename(workshop.path("next"), workshop.path("anewsv")).expect("put in its place");
    another_than(&pool, &before);
    pool.stop();
}

#[test]
fn a_command_line_starts_a_server_with_and_without_its_options() {
    let Some(workshop) = workshop() else { return };
    // One passes the options on, the other one's child finds them in its environment.
    script(&workshop.path("passes"), "#!/bin/sh\nshift\nexec anewsv \"$@\"\n");
    script(&workshop.path("starts"), "#!/bin/sh\nanewsv\n");
    for (command, own) in [
        ("passes ${NDRX_SVPROCNAME} ${NDRX_SVCLOPT}", " a b c"),
        ("starts", " a b c"),
        ("./anewsv -k x -i ${NDRX_SVSRVID} -- alone", " alone"),
    ] {
        let options = format!("<cmdline>{command}</cmdline><appopt>a 'b c'</appopt>");
        let pool = pool(&workshop, &options);
        assert_eq!(served_by(&pool).expect("it is up").1, own, "{command}");
        pool.stop();
    }
    let file = workshop.path("anewsv").display().to_string();
    let pool = pool(&workshop, &format!("<fullpath>{file}</fullpath>"));
    assert_eq!(served_by(&pool).expect("it is up").1, "");
    pool.stop();
}
