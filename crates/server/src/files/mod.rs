//! Files of one folder, served over HTTP: `site` answers, the others know one thing each.

mod compress;
mod listing;
mod media;
mod root;
mod site;

pub(crate) use media::content_type;
pub(crate) use site::Site;
