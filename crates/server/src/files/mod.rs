//! Files of one folder, served over HTTP.

pub mod encoding;
pub mod listing;
pub mod media;
pub mod root;
