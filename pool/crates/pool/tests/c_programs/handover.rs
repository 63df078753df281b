//! A server whose calls other threads answer, and whose buffers are converted for its functions.

use pollux_testing::succeeded;

use crate::workshop::{Pool, Workshop, source};

#[test]
fn calls_are_answered_by_other_threads_and_buffers_are_converted() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.pollux(&["build-client", "-o", "handsv", &source("handover.c"), "-l", "-lpthread"]);
    workshop.write("names.fd", "T_NAME 1 string\n");
    let folder = workshop.path("").display().to_string();
    for (transport, own_main) in [("memory", ""), ("queues", "<env name=\"OWN_MAIN\">1</env>")] {
        let pool = Pool::start(
            &workshop,
            &format!(
                "<endurox><appconfig transport=\"{transport}\"><sanity>1</sanity><restart_min>0</restart_min>\
                 </appconfig><servers><server name=\"handsv\"><srvid>1</srvid><min>1</min><max>1</max>\
                 <envs><env name=\"FLDTBLDIR\">{folder}</env><env name=\"FIELDTBLS\">names.fd</env>{own_main}</envs>\
                 <sysopt>-e {transport}.log -xFIELDS:JSON2UBF -x TEXT:UBF2JSON</sysopt></server></servers></endurox>"
            ),
        );
        let mut client = pool.client("handsv");
        succeeded(client.arg("client").env("FLDTBLDIR", &folder).env("FIELDTBLS", "names.fd"));
        pool.stop();
        let log =
            std::fs::read_to_string(workshop.path(&format!("{transport}.log"))).expect("there");
        // By TPEXIT of another thread, by the stop.
        assert_eq!(log.matches("done\n").count(), 2, "{log}");
        assert!(!log.contains("handover.c:") && !log.contains("-x"), "{log}");
    }
}
