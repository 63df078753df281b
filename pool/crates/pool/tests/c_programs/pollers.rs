//! A server with a main, descriptors and times of its own.

use pollux_testing::succeeded;

use crate::workshop::{Pool, Workshop, source};

#[test]
fn a_server_has_its_own_main_descriptors_and_times() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.pollux(&["build-client", "-o", "pollsv", &source("pollers.c")]);
    for transport in ["memory", "queues"] {
        let pool = Pool::start(
            &workshop,
            &format!(
                "<endurox><appconfig transport=\"{transport}\"><sanity>1</sanity><restart_min>0</restart_min>\
                 </appconfig><servers><server name=\"pollsv\"><srvid>1</srvid><min>1</min><max>1</max>\
                 <sysopt>-e {transport}.log -SLINKED:linked</sysopt></server></servers></endurox>"
            ),
        );
        succeeded(pool.client("pollsv").arg("client"));
        pool.stop();
        let log =
            std::fs::read_to_string(workshop.path(&format!("{transport}.log"))).expect("there");
        // By tpexit, by that of another thread, by a function that failed, by the stop.
        assert_eq!(log.matches("done\n").count(), 4, "{log}");
        assert!(log.contains("a function of tpext_... did not return 0"), "{log}");
        assert!(!log.contains("pollers.c:"), "{log}");
    }
}
