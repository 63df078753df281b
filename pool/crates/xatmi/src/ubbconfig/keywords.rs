//! Keywords of a UBBCONFIG that become nothing, and why: what is not needed here, and what is not here.
//!
//! Those that become something stand in the tables too, as [`Fate::Used`]: a keyword that is in none is reported as
//! unknown.

use super::document::Parameter;

/// What becomes of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Used,
    /// Nothing is lost; why.
    NotNeeded(&'static str),
    /// The pool behaves in another way; in which.
    NotHere(&'static str),
}

use Fate::{NotHere, NotNeeded, Used};

const NO_SIZES: Fate =
    NotNeeded("tables need no sizes: `pollux pool check` shows the limits that there are");
const NO_LOG: Fate = NotNeeded("transactions are over no resource, and nothing of them is logged");
const NO_RESOURCE: Fate =
    NotHere("transactions are over no resource (XA): each service uses its database by itself");
const NO_LOAD: Fate =
    NotNeeded("requests go to a worker that is idle, so that no load is reckoned");
const NO_SIGNATURES: Fate = NotHere("buffers are not signed or encrypted");
const NO_PASSWORDS: Fate =
    NotHere("there are no passwords and access lists: the pool's user may call, and one group");
const NO_THREADS: Fate = NotHere("a server has one thread that serves: raise MIN and MAX instead");
const ONE_MACHINE: Fate = NotHere(
    "a pool has one machine: those of several call each other by <server name=\"tpbridge\"> over a NATS broker",
);
const OF_OBJECTS: Fate = NotHere("CORBA is not served");
const OF_QUEUES: Fate = NotNeeded(
    "each service has a place for requests that all its workers share, each client one for its replies",
);
const OWN_TIME: Fate = NotNeeded("the manager watches the processes themselves");

const RESOURCES: &[(&str, Fate)] = &[
    ("IPCKEY", Used),
    ("DOMAINID", Used),
    ("MASTER", Used),
    ("SCANUNIT", Used),
    ("BLOCKTIME", Used),
    ("PERM", Used),
    ("GID", Used),
    ("UID", NotNeeded("the pool's user is the one that starts it")),
    ("MODEL", ONE_MACHINE),
    (
        "OPTIONS",
        NotHere("nothing moves from machine to machine, and nothing is counted for accounts"),
    ),
    ("LDBAL", NO_LOAD),
    ("SANITYSCAN", OWN_TIME),
    ("BBLQUERY", OWN_TIME),
    ("DBBLWAIT", OWN_TIME),
    ("DBBLFAILOVER", OWN_TIME),
    ("SGRPFAILOVER", OWN_TIME),
    ("SYSTEM_ACCESS", NotNeeded("programs have no access to the tables of the pool")),
    ("CMTRET", NO_LOG),
    ("MAXTRANTIME", NotHere("a transaction has the time that tpbegin gives it")),
    (
        "NOTIFY",
        NotNeeded(
            "unsolicited messages are handed over around calls and by tpchkunsol, by no signal",
        ),
    ),
    ("USIGNAL", NotNeeded("no signal is sent for unsolicited messages")),
    ("SECURITY", NO_PASSWORDS),
    ("AUTHSVC", NO_PASSWORDS),
    ("SEC_PRINCIPAL_NAME", NO_PASSWORDS),
    ("SEC_PRINCIPAL_LOCATION", NO_PASSWORDS),
    ("SEC_PRINCIPAL_PASSVAR", NO_PASSWORDS),
    ("MAXACLGROUPS", NO_PASSWORDS),
    ("SIGNATURE_AHEAD", NO_SIGNATURES),
    ("SIGNATURE_BEHIND", NO_SIGNATURES),
    ("SIGNATURE_REQUIRED", NO_SIGNATURES),
    ("ENCRYPTION_REQUIRED", NO_SIGNATURES),
    ("COMPONENTS", OF_OBJECTS),
    ("MAXINTERFACES", OF_OBJECTS),
    ("MAXOBJECTS", OF_OBJECTS),
];

/// What sizes are called in `*RESOURCES` and `*MACHINES`.
const SIZES: [&str; 16] = [
    "MAXACCESSERS",
    "MAXSERVERS",
    "MAXSERVICES",
    "MAXGROUPS",
    "MAXNETGROUPS",
    "MAXMACHINES",
    "MAXQUEUES",
    "MAXBUFTYPE",
    "MAXBUFSTYPE",
    "MAXCONV",
    "MAXGTT",
    "MAXDRT",
    "MAXRFT",
    "MAXRTDATA",
    "MAXSPDATA",
    "MAXPENDINGBYTES",
];

const MACHINES: &[(&str, Fate)] = &[
    ("LMID", Used),
    ("APPDIR", Used),
    ("ENVFILE", Used),
    ("ULOGPFX", Used),
    ("PERM", Used),
    ("GID", Used),
    ("UID", NotNeeded("the pool's user is the one that starts it")),
    ("TUXDIR", NotNeeded("nothing of Tuxedo is used")),
    ("TUXCONFIG", NotNeeded("the configuration is read as it is: nothing is compiled")),
    ("TUXOFFSET", NotNeeded("the configuration is read as it is: nothing is compiled")),
    ("TLOGDEVICE", NO_LOG),
    ("TLOGOFFSET", NO_LOG),
    ("TLOGNAME", NO_LOG),
    ("TLOGSIZE", NO_LOG),
    ("TYPE", NotNeeded("a pool has one machine, and nothing is converted between kinds of them")),
    ("BRIDGE", ONE_MACHINE),
    ("NETLOAD", NO_LOAD),
    ("SPINCOUNT", NotNeeded("<appconfig spin=\"auto\"> is the default")),
    ("CMPLIMIT", NotHere("buffers are not compressed")),
    (
        "MAXWSCLIENTS",
        NotHere("there are no workstation clients: clients run on the machine of the pool"),
    ),
    ("MAXACLCACHE", NO_PASSWORDS),
    ("SEC_PRINCIPAL_NAME", NO_PASSWORDS),
    ("SEC_PRINCIPAL_LOCATION", NO_PASSWORDS),
    ("SEC_PRINCIPAL_PASSVAR", NO_PASSWORDS),
    ("SIGNATURE_REQUIRED", NO_SIGNATURES),
    ("ENCRYPTION_REQUIRED", NO_SIGNATURES),
    ("MAXOBJECTS", OF_OBJECTS),
];

const GROUPS: &[(&str, Fate)] = &[
    ("LMID", Used),
    ("GRPNO", Used),
    ("ENVFILE", Used),
    ("OPENINFO", NO_RESOURCE),
    ("CLOSEINFO", NO_RESOURCE),
    ("TMSNAME", NO_RESOURCE),
    ("TMSCOUNT", NO_LOG),
    ("SEC_PRINCIPAL_NAME", NO_PASSWORDS),
    ("SEC_PRINCIPAL_LOCATION", NO_PASSWORDS),
    ("SEC_PRINCIPAL_PASSVAR", NO_PASSWORDS),
    ("SIGNATURE_REQUIRED", NO_SIGNATURES),
    ("ENCRYPTION_REQUIRED", NO_SIGNATURES),
];

const SERVERS: &[(&str, Fate)] = &[
    ("SRVGRP", Used),
    ("SRVID", Used),
    ("CLOPT", Used),
    ("MIN", Used),
    ("MAX", Used),
    ("SEQUENCE", Used),
    ("RESTART", Used),
    ("MAXGEN", Used),
    ("GRACE", NotHere("the number of restarts has no limit: pauses grow up to <restart_max>")),
    ("ENVFILE", Used),
    ("RCMD", NotHere("no command is run when a server ends")),
    ("RQADDR", OF_QUEUES),
    ("REPLYQ", OF_QUEUES),
    ("RQPERM", NotNeeded("the pool's user may call, and the group of <appconfig group=\"NAME\">")),
    ("RPPERM", NotNeeded("the pool's user may call, and the group of <appconfig group=\"NAME\">")),
    ("CONV", NotNeeded("any server may serve conversations")),
    ("SYSTEM_ACCESS", NotNeeded("programs have no access to the tables of the pool")),
    ("MAXQUEUELEN", OF_QUEUES),
    ("MINDISPATCHTHREADS", NO_THREADS),
    ("MAXDISPATCHTHREADS", NO_THREADS),
    ("THREADSTACKSIZE", NO_THREADS),
    ("CONCURR_STRATEGY", OF_OBJECTS),
    ("SRVTYPE", NotNeeded("any program may be started")),
    ("SVCMAXIMUM", NO_SIZES),
    ("SICACHEENTRIESMAX", NotNeeded("services are found without a cache")),
    ("SEC_PRINCIPAL_NAME", NO_PASSWORDS),
    ("SEC_PRINCIPAL_LOCATION", NO_PASSWORDS),
    ("SEC_PRINCIPAL_PASSVAR", NO_PASSWORDS),
];

const SERVICES: &[(&str, Fate)] = &[
    ("LOAD", NO_LOAD),
    ("SRVGRP", NotNeeded("a service is that of the workers that offer it")),
    ("PRIO", Used),
    ("ROUTING", Used),
    ("AUTOTRAN", NotHere("no transaction begins by itself: tpbegin does it")),
    ("TRANTIME", NO_LOG),
    (
        "SVCTIMEOUT",
        NotHere(
            "a service that takes long is not ended; its caller gets TPETIME after NDRX_TOUT seconds",
        ),
    ),
    ("BLOCKTIME", NotHere("the time of a call is the caller's: tpsblktime, tptoutset, NDRX_TOUT")),
    ("BUFTYPE", NotHere("types of buffers are not checked ahead of a service")),
    ("BUFTYPECONV", NotHere("buffers are not converted ahead of a service")),
    ("CACHING", NotHere("replies are not cached")),
    ("SESSIONROLE", OF_OBJECTS),
    ("SIGNATURE_REQUIRED", NO_SIGNATURES),
    ("ENCRYPTION_REQUIRED", NO_SIGNATURES),
];

/// Sections of which nothing is taken, each with the reason.
const SECTIONS: &[(&str, &str)] = &[
    (
        "ROUTING",
        "requests are not routed by their data: any worker that offers a service takes them. Where groups have data of \
         their own, give each its own names (<sysopt>-s NEWNAME:NAME</sysopt>) and call by them",
    ),
    ("NETWORK", "machines do not talk to each other but by tpbridge over a NATS broker"),
    ("NETGROUPS", "machines do not talk to each other but by tpbridge over a NATS broker"),
    ("INTERFACES", "CORBA is not served"),
    ("FACTORIES", "CORBA is not served"),
    ("CACHES", "replies are not cached"),
];

/// What becomes of the entries of a section: of `None` they are read.
pub(super) fn section(name: &str) -> Option<&'static str> {
    if ["RESOURCES", "MACHINES", "GROUPS", "SERVERS", "SERVICES"].contains(&name) {
        return None;
    }
    let found = SECTIONS.iter().find(|(known, _)| *known == name);
    Some(found.map_or("this section is not known here", |(_, why)| why))
}

/// What becomes of a parameter in a section that is read.
pub(super) fn fate(section: &str, parameter: &Parameter) -> Fate {
    let keyword = parameter.keyword.as_str();
    let value = parameter.value.trim();
    let has_sizes = matches!(section, "RESOURCES" | "MACHINES");
    if has_sizes && SIZES.contains(&keyword) {
        return NO_SIZES;
    }
    let table = match section {
        "RESOURCES" => RESOURCES,
        "MACHINES" => MACHINES,
        "GROUPS" => GROUPS,
        "SERVERS" => SERVERS,
        _ => SERVICES,
    };
    let Some((_, fate)) = table.iter().find(|(known, _)| *known == keyword) else {
        return NotHere("this keyword is not known here");
    };
    // What is as it would be without the keyword is not a loss.
    let is_nothing = match keyword {
        "MODEL" => value.eq_ignore_ascii_case("SHM"),
        "SECURITY" | "OPENINFO" | "CLOSEINFO" => {
            value.is_empty() || value.eq_ignore_ascii_case("NONE")
        }
        // The one that comes with Tuxedo, for no resource.
        "TMSNAME" => value == "TMS" || value.is_empty(),
        "OPTIONS" => value.split(',').all(|option| option.trim() == "NO_XA"),
        "AUTOTRAN" | "SIGNATURE_REQUIRED" | "ENCRYPTION_REQUIRED" => {
            value.eq_ignore_ascii_case("N")
        }
        "BUFTYPE" => value.eq_ignore_ascii_case("ALL"),
        "MINDISPATCHTHREADS" | "MAXDISPATCHTHREADS" => matches!(value, "0" | "1"),
        "MAXWSCLIENTS" | "SVCTIMEOUT" | "BLOCKTIME" | "THREADSTACKSIZE" => value == "0",
        _ => false,
    };
    match fate {
        NotHere(_) if is_nothing => NotNeeded("it is so without it"),
        fate => *fate,
    }
}

/// Servers that come with Tuxedo, by what their names begin with, and who does their work.
const SYSTEM_SERVERS: &[(&str, &str)] = &[
    ("TMUSREVT", "events need no server: subscriptions are kept by the manager"),
    (
        "TMSYSEVT",
        "there are no events of the system: `pollux pool ps` and --metrics have the figures",
    ),
    ("TMQUEUE", "there are no persistent queues"),
    ("TMQFORWARD", "there are no persistent queues"),
    ("TMMETADATA", "there is no repository of services"),
    ("TMADMSVR", "there is no web console: `pollux pool` and --metrics"),
    ("TMFFNAME", "CORBA is not served"),
    ("TMIFRSVR", "CORBA is not served"),
    ("TMJAVASVR", "services in Java are not served"),
    ("ISL", "CORBA is not served"),
    ("WSL", "there are no workstation clients: clients run on the machine of the pool"),
    ("JSL", "Jolt is not served: clients run on the machine of the pool"),
    ("JREPSVR", "Jolt is not served: clients run on the machine of the pool"),
    ("DMADM", "other domains are reached by <server name=\"tpbridge\"> over a NATS broker"),
    ("GWADM", "other domains are reached by <server name=\"tpbridge\"> over a NATS broker"),
    ("GWTDOMAIN", "other domains are reached by <server name=\"tpbridge\"> over a NATS broker"),
    ("GWOSITP", "other domains are reached by <server name=\"tpbridge\"> over a NATS broker"),
    ("GWSNAX", "mainframes are not reached"),
    ("GWWS", "web services are not served"),
    ("AUTHSVR", "there are no passwords: the pool's user may call, and one group"),
    ("LAUTHSVR", "there are no passwords: the pool's user may call, and one group"),
    ("GAUTHSVR", "there are no passwords: the pool's user may call, and one group"),
    ("LMS", "figures are those of --metrics"),
];

/// Who does the work of a server that comes with Tuxedo.
pub(super) fn system_server(program: &str) -> Option<&'static str> {
    SYSTEM_SERVERS.iter().find(|(known, _)| *known == program).map(|(_, who)| *who)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(section: &str, keyword: &str, value: &str) -> Fate {
        let keyword = keyword.to_owned();
        let value = value.to_owned();
        fate(section, &Parameter { keyword, value, line: 1 })
    }

    #[test]
    fn a_keyword_that_changes_nothing_is_not_a_loss() {
        assert_eq!(of("SERVERS", "MIN", "3"), Used);
        assert_eq!(of("RESOURCES", "MAXSERVERS", "3"), NO_SIZES);
        for (section, keyword, nothing, something) in [
            ("RESOURCES", "MODEL", "SHM", "MP"),
            ("RESOURCES", "SECURITY", "NONE", "APP_PW"),
            ("GROUPS", "OPENINFO", "NONE", "Oracle_XA:Oracle_XA+Acc=P/scott/tiger"),
            ("GROUPS", "TMSNAME", "TMS", "TMS_ORA"),
            ("SERVICES", "AUTOTRAN", "N", "Y"),
            ("SERVERS", "MAXDISPATCHTHREADS", "1", "8"),
        ] {
            assert!(matches!(of(section, keyword, nothing), NotNeeded(_)), "{keyword}={nothing}");
            assert!(matches!(of(section, keyword, something), NotHere(_)), "{keyword}={something}");
        }
        assert_eq!(of("GROUPS", "XYZ", "1"), NotHere("this keyword is not known here"));
    }
}
