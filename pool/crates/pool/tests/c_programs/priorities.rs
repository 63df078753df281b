//! Of the requests that wait, which one is served first.

use pollux_testing::succeeded;

use crate::workshop::{Pool, Workshop, source};

#[test]
fn requests_are_served_by_their_priority() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.pollux(&["build-client", "-o", "priosv", &source("priorities.c")]);
    // By queues the kernel orders them, which gives the first no turn.
    for (transport, turns) in [("memory", &["turns"][..]), ("queues", &[])] {
        let pool = Pool::start(
            &workshop,
            &format!(
                "<endurox><appconfig transport=\"{transport}\"><sanity>1</sanity></appconfig>\
                 <servers><server name=\"priosv\"><srvid>1</srvid><min>1</min><max>1</max>\
                 <sysopt>-e {transport}.log</sysopt></server></servers>\
                 <services><service svcnm=\"NOTED\" prio=\"80\"/></services></endurox>"
            ),
        );
        succeeded(pool.client("priosv").arg("client").args(turns));
        pool.stop();
        let log =
            std::fs::read_to_string(workshop.path(&format!("{transport}.log"))).expect("there");
        assert_eq!(log, "");
    }
}
