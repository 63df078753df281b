//! What travels beside the data of buffers.

use pollux_testing::succeeded;

use crate::TRANSPORTS;
use crate::workshop::{Pool, Workshop, source};

#[test]
fn fields_of_tpsetcallinfo_travel_beside_the_data() {
    let Some(workshop) = Workshop::open() else { return };
    workshop.pollux(&["build-client", "-o", "infosv", &source("call_info.c")]);
    for transport in TRANSPORTS {
        let pool = Pool::start(
            &workshop,
            &format!(
                "<endurox><appconfig transport=\"{transport}\"><sanity>1</sanity></appconfig>\
                 <servers><server name=\"infosv\"><srvid>1</srvid><min>2</min><max>2</max>\
                 <sysopt>-e {transport}.log</sysopt></server></servers></endurox>"
            ),
        );
        succeeded(pool.client("infosv").arg("client"));
        pool.stop();
        let log =
            std::fs::read_to_string(workshop.path(&format!("{transport}.log"))).expect("there");
        assert_eq!(log, "");
    }
}
